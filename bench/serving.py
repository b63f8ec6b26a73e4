#!/usr/bin/env python3
"""serving.py MODEL LOAD_GENERATOR [RUNS] - the four shared-prefix workloads of
shared_prefix_load.py over HTTP: wall time, first token, prompt tokens evaluated beside what
computing each prefix once takes, and the same while another process keeps one CPU busy.

16 clients, bf16, page size 1, RUNS (3) rounds of W1 to W4 with the cache flushed before each;
medians. The program is $RADISH. Exits with 1 when more was evaluated than once, when a request
failed, or when history had to be made up."""
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from radish_e2e import Server  # noqa: E402

ONCE = {"W1": 5632, "W2": 8752, "W3": 2448, "W4": 20480}  # tokens: each prefix computed once
NAMES = ",".join(ONCE)


def round_of(server, load):
    results = {}
    for name in ONCE:
        server.ask("/flush_cache", {})
        out = subprocess.run([sys.executable, load, "--style", "openai", "--port",
                              str(server.port), "--workload", name], stdout=subprocess.PIPE,
                             check=True).stdout
        results[name] = json.loads(out)
    return results


def measure(server, load, runs):
    rounds = [round_of(server, load) for _ in range(runs)]
    for name, once in ONCE.items():
        these = [r[name] for r in rounds]
        median = {k: statistics.median(t[k] for t in these)
                  for k in ("wall_s", "ttft_p50_s", "out_tok_per_s")}
        most = max(t["prompt_evaluated"] for t in these)
        yield name, median, most, once, all(
            t["prompt_evaluated"] <= once and not t["errors"] and not t["history_made_up"]
            for t in these)


def busy():
    """A process that does nothing but run on the last CPU this one may use."""
    cpu = max(os.sched_getaffinity(0))
    return subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{cpu}}})\n"
                             "while True: pass"])


def main():
    model, load = sys.argv[1:3]
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    good, alone = True, {}
    with Server(model, "--dtype", "bf16", "--max-total-tokens", 65536, huge_pages=True) as server:
        server.await_memory()
        print(f"# {NAMES}, 16 clients, medians of {runs}, load average "
              f"{os.getloadavg()[0]:.2f}", flush=True)
        for name, median, most, once, ok in measure(server, load, runs):
            good, alone[name] = good and ok, median["wall_s"]
            print(f"{name}  {median['wall_s']:6.2f} s  first token {median['ttft_p50_s']:5.2f} s  "
                  f"{median['out_tok_per_s']:7.1f} output tokens/s  evaluated {most} of the "
                  f"{once} that each prefix once takes{'' if ok else '  FAILED'}", flush=True)
        other = busy()
        try:
            for name, median, _, _, ok in measure(server, load, runs):
                good = good and ok
                print(f"{name}  {median['wall_s']:6.2f} s with another process busy on one CPU: "
                      f"{median['wall_s'] / alone[name]:.2f}x", flush=True)
        finally:
            other.kill()
            other.wait()
    sys.exit(0 if good else 1)


main()
