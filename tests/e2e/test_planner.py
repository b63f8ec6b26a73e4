#!/usr/bin/env python3
"""`radish replay` as a planner: rates that are known to the digit, sweeps, and the report."""
import json
import re
import shlex
import subprocess
import sys
import tempfile
import xml.dom.minidom
from pathlib import Path

from radish_e2e import ROOT, check, radish, run


def make_trace(path, *options):
    subprocess.run([sys.executable, str(ROOT / "tools/make-trace.py"), *options, str(path)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_every_price_is_told_and_none_is_passed_over():
    with tempfile.TemporaryDirectory(prefix="radish-replay-") as tmp:
        trace = Path(tmp) / 'a "trace" \\ of <mine>.jsonl'
        make_trace(trace, "--form", "mooncake", "--requests", "50", "--hours", "0.1")
        told = json.loads(radish("replay", trace, "--json", "--capacity-blocks", 100, "--prefill-tps", 20000,
                                 "--decode-tps", 1000, "--load-tps", 500000, "--fetch-tps", 250000)[0])
        check(told["file"] == str(trace), told["file"])
        check([told["prices"][name] for name in ("prompt_token_s", "decode_s", "load_token_s", "fetch_token_s")]
              == [5e-5, 1e-3, 2e-6, 4e-6], told["prices"])
        # Without the price of a prompt token the others say nothing; and options are of a policy that is played.
        for wrong, words in ((("--load-tps", 5), "times need --prefill-tps: only a record"),
                             (("--decode-tps", 5, "--fetch-tps", 5), "times need --prefill-tps"),
                             (("--radix-eviction-policy-config", "{x"), "wants a JSON object"),
                             (("--sweep", "--radix-eviction-policy-config", '{"protected_threshold":4}'),
                              "an option of slru, the policy is lru"),
                             (("--policy", "opt", "--radix-eviction-policy-config", "{}"), "opt has no options")):
            out, err = radish("replay", trace, "--capacity-blocks", 100, *wrong, want=2)
            check(not out and words in err and err.count("\n") == 1, wrong, out, err)
        _, err = radish("replay", trace, "--capacity-tokens", 5, want=1)
        check("5 is less than a page of 512 tokens" in err, err)


KNOWN = {("lru", 1000): "0.0311", ("lru", 10000): "0.2968", ("slru", 1000): "0.0438", ("slru", 10000): "0.2960",
         ("opt", 1000): "0.2186", ("opt", 10000): "0.3897"}


def test_a_made_trace_has_its_known_rates():
    """To the digit, on every machine: the trace is the generator's, the rates are the cache's."""
    with tempfile.TemporaryDirectory(prefix="radish-replay-") as tmp:
        trace = Path(tmp) / "trace.jsonl.gz"
        make_trace(trace, "--form", "mooncake", "--requests", "3000", "--hours", "0.25")
        cells = json.loads(radish("replay", trace, "--json", "--policy", "lru", "--policy", "slru", "--opt",
                                  "--capacity-blocks", 1000, "--capacity-blocks", 10000)[0])["cells"]
        told = {(c["policy"], c["capacity_blocks"]): f"{c['block_hit_rate']:.4f}" for c in cells}
        check(told == KNOWN, told)


def test_a_sweep_and_its_report():
    with tempfile.TemporaryDirectory(prefix="radish-replay-") as tmp:
        trace, page = Path(tmp) / "trace <&>.jsonl.gz", Path(tmp) / "report.html"
        make_trace(trace, "--form", "mooncake", "--requests", "250", "--hours", "0.1")
        words = ("--sweep", "--json", "--servers", 1, "--servers", 3, "--router", "hash", "--router", "cache",
                 "--host-tokens", 100000, "--prefill-tps", 20000)
        by_threads = []
        for threads in 1, 4:
            told = json.loads(radish("replay", trace, *words, "--threads", threads, "--html", page)[0])
            for cell in told["cells"]:
                cell.pop("seconds", None)
            by_threads.append(told)
        check(by_threads[0] == by_threads[1], "threads make a difference")
        cells = by_threads[0]["cells"]
        check({c["policy"] for c in cells} == {"lru", "lfu", "slru", "cost", "opt"}, cells)
        best = {(c["capacity_blocks"], c["servers"]): c["hit_tokens"] for c in cells if c["policy"] == "opt"}
        check(len(best) >= 8, best)
        for cell in cells:
            check(cell["hit_tokens"] <= best[cell["capacity_blocks"], cell["servers"]], cell, best)
            if cell["policy"] == "opt":
                continue
            check(sum(cell["misses"].values()) + cell["hit_tokens"] == cell["prompt_tokens"], cell)
            check(0 < cell["saved_s"] < cell["compute_s"] and 0 < cell["busiest"] <= 1, cell)
            check((cell["misses"]["other_server"] > 0) <= (cell["servers"] > 1), cell)
        html = page.read_text()
        check(html.count("<svg") == html.count("</svg>") == 4 and "<script" not in html, html[:500])
        check("http" not in html and "src=" not in html and "url(" not in html and "nan" not in html.lower())
        check("prefers-color-scheme:dark" in html and "trace &lt;&amp;&gt;.jsonl.gz" in html)
        xml.dom.minidom.parseString(html[html.index("<svg"):html.index("</svg>") + 6])  # it is well-formed
        _, err = radish("replay", trace, "--capacity-blocks", 9, "--html", Path(tmp) / "no" / "where", want=1)
        check("No such file" in err, err)
        for wrong, word in ((("--router", "nearest"), "round-robin, hash or cache"), (("--servers", 65), "1 to 64"),
                            (("--storage-tokens", "some"), "or all"), (("--host-tokens", -1), "from 0")):
            check(word in radish("replay", trace, *wrong, want=2)[1], wrong)


def test_docs_sizing_shows_what_is_printed():
    """The figures of docs/sizing.md, character by character, but for spaces at the ends of lines."""
    text = (ROOT / "docs/sizing.md").read_text()
    with tempfile.TemporaryDirectory(prefix="radish-replay-") as tmp:
        make_trace(Path(tmp) / "trace.jsonl.gz", "--form", "mooncake", "--requests", "3000", "--hours", "0.25")
        blocks = re.findall(r"^```console\n\$ build/release/radish ((?:[^\n]*\\\n)*[^\n]*)\n(.*?)^```$", text, re.M | re.S)
        check(len(blocks) == 4, len(blocks))
        for command, shown in blocks:
            words = shlex.split(command.replace("\\\n", " "))
            words[words.index("trace.jsonl.gz")] = Path(tmp) / "trace.jsonl.gz"
            out, _ = radish(*words)
            check(re.sub(r" +$", "", out, flags=re.M) == re.sub(r" +$", "", shown, flags=re.M), command, out)


run(globals())
