#!/usr/bin/env python3
"""`radish bench`: what it writes is well formed, adds up, and its answers agree."""
import csv
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from radish_e2e import LONG, RADISH, ROOT, TINY, check, radish, run, skip

KV_BYTES_A_TOKEN = 5 * 2 * 4 * 32 * 2  # of TINY: layers, K and V, heads, numbers, bytes of bf16
SMALL = ["--max-total-tokens", "32768", "--workload", "llm_judge", "--workload",
         "skeleton_of_thought", "--concurrency", "8", "--context-length", "1024"]


def test_suite_json_adds_up():
    out, _ = radish("bench", TINY, "--what", "suite", "--json", "--kv-cache-dtype",
                    "int8", *SMALL)
    rows = [json.loads(line) for line in out.splitlines()]
    check([r["workload"] for r in rows] == ["skeleton_of_thought", "llm_judge"], rows)  # the suite's order
    for r in rows:
        # The same answers with the cache on and off, and without reading blocks once.
        check(r["on"]["digest"] == r["off"]["digest"] == r["no_tree_attention"]["digest"], r)
        check(r["off"]["cached_tokens"] == 0, r)
        check(r["hit_rate"] > 0.9 * r["best_hit_rate"] > 0, r)
        check(r["hit_rate"] <= r["best_hit_rate"] + 1e-4, r)
        check(r["speedup"] > 0 and r["bound"] > 0, r)
        check(r["pairs"] == 1 and r["pairs_again"] <= 1 and r["price_drift"] >= 1, r)
        check(r["on_priced"] > 0 and r["off_priced"] > 0, r)
    check(rows[0]["prompt_tokens"] == 9240 and rows[1]["prompt_tokens"] == 16240, rows)


# In the place of llama.cpp's server: goes on from its last answer's end, else computes all.
STAND_IN = f"""#!{sys.executable}
import http.server, json, sys
past = []
class Handler(http.server.BaseHTTPRequestHandler):
    def reply(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
    def do_GET(self):
        self.reply({{"status": "ok"}})
    def do_POST(self):
        global past
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ids, out = asked["prompt"], [40 + i for i in range(asked["n_predict"])]
        known = len(past) if past and ids[:len(past)] == past else 0
        past = ids + out
        self.reply({{"tokens": out, "timings": {{"prompt_n": len(ids) - known}}}})
    def log_message(self, *words):
        pass
assert "-m" in sys.argv and "-c" in sys.argv
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def test_states_beside_another_server():
    if not importlib.util.find_spec("numpy"):
        skip("python3-numpy is not here")
    with tempfile.TemporaryDirectory(prefix="radish-bench-") as tmp:
        model, server = pathlib.Path(tmp) / "m.gguf", pathlib.Path(tmp) / "llama-server"
        subprocess.run([sys.executable, ROOT / "tools/make-model.py", "--shape", "nano-lfm2", "--type",
                        "bf16", model], check=True, capture_output=True)
        server.write_text(STAND_IN)
        server.chmod(0o755)
        command = [sys.executable, ROOT / "bench/states_beside.py", model, "--message", "16"]
        env = {**os.environ, "RADISH": str(RADISH), "LLAMA_SERVER": str(server)}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        check(done.returncode == 0, done.stdout, done.stderr)
        for line in ("chat, sum         radish 231 of 1545, llama-server 222 of 1545",
                     "regenerated, sum  radish 2 of 258, llama-server 258 of 258",
                     "edited, sum       radish 19 of 258, llama-server 258 of 258",
                     "branches, sum     radish 576 of 2368, llama-server 2368 of 2368"):
            check(line in done.stdout, line, done.stdout)
        done = subprocess.run([*command, "--llama-server", "/bin/false"], env=env, capture_output=True,
                              text=True)
        check(done.returncode == 1 and "/bin/false does not serve" in done.stderr, done.stderr)


def test_files():
    with tempfile.TemporaryDirectory(prefix="radish-bench-") as tmp:
        tmp = pathlib.Path(tmp)
        out, _ = radish("bench", TINY, "--what", "suite", "--csv", tmp / "s.csv", "--svg",
                        tmp / "s.svg", "--markdown", tmp / "s.md", "--max-total-tokens", "32768",
                        "--workload", "skeleton_of_thought")
        check("skeleton_of_thought" in out and "gain" in out, out)
        rows = list(csv.DictReader((tmp / "s.csv").open()))
        check(len(rows) == 1 and rows[0]["calls"] == "120", rows)
        svg = xml.etree.ElementTree.parse(tmp / "s.svg").getroot()
        check(svg.tag.endswith("svg") and len(svg) > 8, svg)
        check("| skeleton_of_thought | 1 | 9240 + 2280 |" in (tmp / "s.md").read_text())


def test_files_are_opened_before_anything_is_measured():
    with tempfile.TemporaryDirectory(prefix="radish-bench-") as tmp:
        tmp = pathlib.Path(tmp)
        (tmp / "old.csv").write_text("of yesterday")
        args = ["bench", TINY, "--what", "speed,suite", "--csv", tmp / "old.csv", "--svg",
                tmp / "new.svg"]
        out, err = radish(*args, "--markdown", tmp / "none/x.md", want=1)
        check(out == "" and "cannot write" in err and "none/x.md" in err, (out, err))
        check((tmp / "old.csv").read_text() == "of yesterday", tmp)  # as if nothing had been asked
        check(not (tmp / "new.svg").exists(), tmp)
        _, err = radish(*args, "--workload", "nope", "--what", "suite", want=1)
        check("no workload" in err and (tmp / "old.csv").read_text() == "of yesterday", err)
        check(not (tmp / "new.svg").exists(), tmp)


def test_a_workload_that_shares_nothing_gets_nine_pairs():
    if not os.environ.get("RADISH_TEST_LONG"):
        return  # twenty-seven runs: a minute with sanitizers
    out, _ = radish("bench", TINY, "--what", "suite", "--json", "--max-total-tokens", "16384",
                    "--workload", "no_reuse", "--pairs", "2", "--concurrency", "4")
    row = json.loads(out)
    check(row["pairs"] == 9 and row["on"]["cached_tokens"] == 0, row)
    check(row["on"]["digest"] == row["off"]["digest"] == row["no_tree_attention"]["digest"], row)


def test_start():
    out, _ = radish("bench", TINY, "--what", "start", "--json", "--max-total-tokens", "4096")
    row = json.loads(out)
    check(row["bench"] == "start" and row["ready_s"] > 0 and row["first_s"] > 0, row)
    check(row["cpu_s"] > 0, row)
    check(row["file_bytes"] == pathlib.Path(TINY).stat().st_size and row["read_s"] > 0, row)


def test_speed():
    out, _ = radish("bench", TINY, "--what", "speed", "--json", "--max-total-tokens", "32768")
    rows = [json.loads(line) for line in out.splitlines()]
    check([r["bench"] for r in rows] == ["prefill"] * 2 + ["decode"] * 3 + ["mixed"], rows)
    check(all(r["tokens_per_s"] > 0 for r in rows), rows)
    check(rows[-1]["longest_gap_s"] > 0, rows)


def test_what_does_not_fit_is_named():
    for what in ("speed", "tree"):
        out, err = radish("bench", TINY, "--what", what, "--context-length", "20", want=1)
        check("context" in err and "20" in err and "pool of" not in err and not out, (out, err))
    _, err = radish("bench", TINY, "--what", "tree", "--context-length", "64", want=1)
    check("64" in err and "too short" in err, err)
    out, _ = radish("bench", TINY, "--what", "speed", "--max-total-tokens", "300")
    for line in ("prefill   512", "prefill  2048", "decode      8", "decode     32", "mixed"):
        named = [words for words in out.splitlines() if words.strip().startswith(line)]
        check(len(named) == 1 and "left out" in named[0] and "pool 300" in named[0], out)
    check("decode      1 at a time" in out and out.count("left out") == 6, out)
    out, err = radish("bench", TINY, "--what", "speed", "--json", "--context-length", "100",
                      "--max-total-tokens", "5000")
    rows = [json.loads(line) for line in out.splitlines()]
    check([r["bench"] for r in rows] == ["decode"] * 3 and rows[0]["context"] == 67, rows)
    check(err.count("left out") == 5 and "mixed" in err, err)


def test_tree_attention_reads_what_the_arithmetic_says():
    out, _ = radish("bench", TINY, "--what", "tree", "--json", "--max-total-tokens", "8192")
    row = json.loads(out)
    check(row["requests"] == 32 and row["prefix"] > 500, row)
    for mode in ("on", "off"):
        check(abs(row[mode + "_read_mb"] / row[mode + "_predicted_mb"] - 1) < 1e-3, row)
    check(row["on_read_mb"] < row["off_read_mb"] / 4, row)


def test_drafts_change_no_answer():
    kinds = ["file", "foretold", "calls", "again", "alike", "talk", "own", "never"]
    small = ["--context-length", "480", "--max-total-tokens", "12000" if LONG else "2000"]
    out, _ = radish("bench", TINY, "--what", "drafts", "--json", "--pairs", "1", *small)
    rows = [json.loads(line) for line in out.splitlines()]
    check([r["case"] for r in rows] == kinds * (2 if LONG else 1), rows)
    for r in rows:  # how many are tried is a matter of what steps were measured to take
        check(r["off_tokens_per_s"] > 0 and r["on_tokens_per_s"] > 0 and r["ratio"] > 0, r)
        check(0 <= r["right"] <= 1 and r["tokens_a_step"] >= 1, r)
        check(abs(r["drafts_a_step"] * r["right"] - (r["tokens_a_step"] - 1)) < 0.01, r)
        check(r["case"] != "never" or r["drafts_a_step"] == 0, r)
        check(0 < r["guess_share"] < 1, r)
    check(rows[0]["requests"] == 1 and rows[0]["tokens"] > 100, rows[0])
    out, _ = radish("bench", TINY, "--what", "drafts", "--pairs", "1", "--speculative-algorithm", "tree",
                    "--speculative-num-draft-tokens", "3", "--cpu-time", *small)
    check("1 threads: tree, up to 3 at one time" in out and "tokens a step" in out, out)
    out, err = radish("bench", TINY, "--what", "drafts", "--context-length", "100", want=1)
    check("drafts: prompts of" in err and "the context has 100" in err and not out, (out, err))


def test_scaling_goes_beyond_the_usual_number_of_requests():
    out, _ = radish("bench", TINY, "--what", "scaling", "--json", "--context-length", "1024",
                    "--max-total-tokens", "16384", "--kv-cache-dtype", "bf16")
    rows = [json.loads(line) for line in out.splitlines()]  # "inf" would not be JSON
    check([r["context"] for r in rows if "context" in r] == [1024], rows)
    check(rows[0]["first_token_bound_s"] > 0 and rows[0]["decode_bound_tokens_per_s"] > 0, rows)
    running = [r for r in rows if "running" in r]
    check([r["running"] for r in running] == [1, 2, 4, 8, 16, 32, 64, 128], rows)
    check(all(r["step_s"] > 0 and r["tokens_per_s"] > 0 for r in running), rows)
    check(88 <= running[0]["request_context"] <= 104, rows)  # more may not meet behind so few
    for r in running:  # each beside its bound, whose bytes are those of the requests' contexts
        context = r["kv_bytes"] / r["running"] / KV_BYTES_A_TOKEN
        check(64 < context < 64 + 8 * 64 and abs(context - r["request_context"]) < 0.1, r)
        check(r["step_bound_s"] > 0 and r["kv_read_rate"] > 0, r)
        check(0 <= r["schedule_share"] < 1 and 0 <= r["sample_share"] < 1, r)
    out, _ = radish("bench", TINY, "--what", "scaling", "--context-length", "1000",
                    "--max-total-tokens", "1024")
    check("bound" in out and "K/V a step" in out and "MB of weights" in out, out)


def test_mistakes():
    for args, words in ((["--what", "speed,sweet"], "not 'sweet'"), (["--scale", "moon"], "moon"),
                        (["--json", "--csv", "x"], "alone"),
                        (["--what", "speed", "--csv", "x"], "--csv is of the suite"),
                        (["--what", "tree,start", "--workload", "react"], "--workload is of"),
                        (["--what", "speed", "--scale", "cpu"], "--scale is of the suite"),
                        (["--what", "speed", "--pairs", "1"], "--pairs is of the suite"),
                        (["--speculative-algorithm", "tree"], "--speculative-algorithm is of drafts"),
                        (["--cpu-time"], "--cpu-time is of drafts alone"),
                        (["--what", "drafts", "--cpu-time", "--threads", "2"], "of one thread, not of 2"),
                        (["--what", "scaling", "--concurrency", "16"], "--concurrency is of")):
        _, err = radish("bench", TINY, *args, want=2)
        check(words in err, err)
    _, err = radish("bench", TINY, "--kv-cache-dtype", "int4", want=1)
    check("fp8_e5m2 or int8, not 'int4'" in err, err)
    out, err = radish("bench", TINY, "--workload", "nope", want=1)
    check("no workload 'nope'" in err and not out, (out, err))  # before the speed is measured
    for what, name, words in (("drafts", "mmlu_5shot", "of drafts: file, foretold,"),
                              ("suite", "file", "e.g. mmlu_5shot")):  # one of the other measures nothing
        out, err = radish("bench", TINY, "--what", what, "--workload", name, want=1)
        check(f"no workload '{name}'" in err and words in err and not out, (out, err))
    _, err = radish("bench", TINY, "--what", "suite", "--scale", "paper", "--workload", "react",
                    want=1)
    check("context" in err, err)


run(globals())
