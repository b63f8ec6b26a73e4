#!/usr/bin/env python3
"""test_metrics.py - what /metrics says is well formed and in docs/metrics.md; each metric that a panel of
the dashboard or an alert asks for is there; and, in long runs, each panel has data after W1 to W4 in
Debian's Prometheus.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from radish_e2e import HANG, ROOT, STORIES, TINY, Server, check, free_port, long_run, run, skip

DASHBOARD = ROOT / "packaging/grafana/radish.json"
RULES = ROOT / "packaging/prometheus/radish.rules.yml"
TIERS = ("--max-total-tokens", 640, "--page-size", 16, "--context-length", 512, "--enable-hierarchical-cache",
         "--hicache-ratio", 3, "--explain-namespaces")
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*\})? (\S+)$')


def panels():
    """(title, query) of all that the dashboard asks."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def asked():
    """Names of metrics that panels and alerts ask for."""
    text = "\n".join(query for _, query in panels()) + "\n".join(
        line for line in RULES.read_text().splitlines() if not line.strip().startswith("#"))
    names = set(re.findall(r"\b(?:sglang:|radish_|process_)[a-z_]\w*\w", text))
    return {re.sub(r"_bucket$", "", name) for name in names}


def documented():
    text = (ROOT / "docs/metrics.md").read_text()
    return dict(re.findall(r"^\| `([\w:]+)` \| (\w+) \|", text, re.M))


def parse(text):
    """name -> type, and the samples; every line is a comment or a sample."""
    types, samples = {}, []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            check(name not in types, "twice", name)
            types[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.match(line)
            check(match, "no sample:", line)
            name = re.sub(r"_(bucket|sum|count)$", "", match[1]) if match[1] not in types else match[1]
            check(name in types, "no type before", line)
            samples.append((match[1], match[2] or "", float(match[3])))
    return types, samples


def test_metrics_are_in_the_docs_and_count_what_was_asked():
    with Server(STORIES, *TIERS) as s:
        for salt in (None, "a", "b"):
            body = {"prompt": "Once upon a time there was a little girl who loved the park " * 4, "max_tokens": 9}
            s.ask("/v1/completions", {**body, **({"cache_salt": salt} if salt else {})})
        s.ask("/v1/completions", b"{", want=400)
        s.raw("GET", "/nothing/of/ours")
        types, samples = parse(s.metrics())
        docs = documented()
        for name, kind in types.items():
            check(docs.get(name) == kind, name, kind, "in docs/metrics.md:", docs.get(name))
        values = {name + labels: value for name, labels, value in samples}
        check(len(values) == len(samples), "a sample twice")
        model = 'model_name="story"'
        check(values[f'radish_http_responses_total{{{model},endpoint="/v1/completions",code="200"}}'] == 3, values)
        check(values[f'radish_http_responses_total{{{model},endpoint="/v1/completions",code="400"}}'] == 1)
        check(values[f'radish_http_responses_total{{{model},endpoint="other",code="404"}}'] == 1)
        check(values[f"radish_other_namespace_tokens_total{{{model}}}"] > 0, "what a salt has lost")
        check(values["process_resident_memory_bytes"] > 1e6 and values["process_open_fds"] > 3, values)
        check(abs(values["process_start_time_seconds"] - time.time()) < 3600)
        for kind, count in (("queue_time", 3), ("time_to_first_token", 3), ("inter_token_latency", 24),
                            ("e2e_request_latency", 3)):
            buckets = [value for name, labels, value in samples if name == f"sglang:{kind}_seconds_bucket"]
            check(buckets == sorted(buckets) and buckets[-1] == count, kind, buckets)
            check(values[f"sglang:{kind}_seconds_count{{{model}}}"] == count)
        missing = asked() - types.keys()
        check(all(name.startswith("radish_kv_event") for name in missing), "asked for, and not there", missing)
        check(len(asked()) > 50 and len(list(panels())) > 50)
        if shutil.which("promtool"):
            done = subprocess.run(["promtool", "check", "metrics"], input=s.metrics().encode(), capture_output=True)
            said = [line for line in (done.stdout + done.stderr).decode().splitlines()
                    if not re.fullmatch(r"sglang:\w+ metric names should not contain ':'", line)]
            check(not said, said)


def test_dashboard_and_alerts_ask_for_what_is_documented():
    docs = documented()
    check(asked() <= docs.keys(), "no such metrics:", asked() - docs.keys())
    if not shutil.which("promtool"):
        skip("promtool (Debian: prometheus) is not here")
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True)
    check(done.returncode == 0, done.stdout, done.stderr)


class Prometheus:
    """Debian's, which scrapes the server every second."""

    def __init__(self, folder, port):
        self.port = free_port()
        config = folder / "prometheus.yml"
        config.write_text(f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{RULES}]\n"
                          "scrape_configs:\n- job_name: radish\n  static_configs:\n"
                          f"  - targets: ['127.0.0.1:{port}']\n")
        self.log = open(folder / "log", "w")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=self.log)

    def get(self, path, **query):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=HANG) as answer:
            return json.loads(answer.read())["data"]

    def await_scrapes(self, count):
        until = time.monotonic() + HANG
        while True:
            try:
                samples = self.get("/api/v1/query", query="count_over_time(up[10m])")["result"]
                if samples and float(samples[0]["value"][1]) >= count:
                    return
            except OSError:
                check(self.process.poll() is None, "prometheus ended")
            check(time.monotonic() < until, "no scrapes")
            time.sleep(0.2)

    def close(self):
        self.process.terminate()
        self.process.wait(HANG)
        self.log.close()


@long_run
def test_every_panel_has_data_after_w1_to_w4():
    if not shutil.which("prometheus"):
        skip("prometheus is not here")
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        with Server(TINY, "--max-total-tokens", 8192, "--page-size", 16, "--enable-hierarchical-cache",
                    "--hicache-storage-backend", f"file:{tmp}/store", "--explain-namespaces") as s:
            folder = pathlib.Path(tmp) / "prometheus"
            folder.mkdir()
            prometheus = Prometheus(folder, s.port)
            try:
                prometheus.await_scrapes(2)
                done = subprocess.run([sys.executable, ROOT / "tools/send-load.py", "--port", str(s.port), "--divide",
                                       "16", "--highest-id", "3000"], stdout=subprocess.PIPE)
                check(done.returncode == 0, done.stdout)
                scrapes = prometheus.get("/api/v1/query", query="count_over_time(up[10m])")["result"][0]["value"][1]
                prometheus.await_scrapes(float(scrapes) + 2)
                for title, query in panels():
                    for name, value in (("$model", ".*"), ("$instance", ".*"), ("$job", ".*"),
                                        ("$__rate_interval", "10m")):
                        query = query.replace(name, value)
                    found = prometheus.get("/api/v1/query", query=query)["result"]
                    check(found, f"no data: {title}: {query}")
                    check(all(row["value"][1] != "NaN" for row in found), title, query, found)
                groups = prometheus.get("/api/v1/rules")["groups"]
                rules = [rule for group in groups for rule in group["rules"]]
                check(len(rules) > 10 and all(rule["health"] == "ok" for rule in rules), rules)
                firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
                check(not firing, firing)
            finally:
                prometheus.close()


run(globals())
