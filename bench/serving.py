#!/usr/bin/python3
"""serving.py MODEL [--runs N] [--divide N] - the four workloads of tools/send-load.py over HTTP: wall time,
first token, prompt tokens evaluated beside what computing each prefix once takes, and the same while another
process keeps one CPU busy.

16 clients, bf16, page size 1, --runs (3) rounds of W1 to W4 with the cache flushed before each; medians.
--divide: a shorter load. The program is $RADISH. Exits with 1 when more was evaluated than once, when a
request failed, or when an answer's ids had to be made up."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from radish_e2e import Server  # noqa: E402

NAMES = ["W1", "W2", "W3", "W4"]


def round_of(server, a):
    highest = min(30999, server.get("/model_info")["vocab_size"] - 5)  # no control tokens
    results = {}
    for name in NAMES:
        server.ask("/flush_cache", {})
        out = subprocess.run([sys.executable, ROOT / "tools/send-load.py", "--port", str(server.port), "--json",
                              "--workload", name, "--divide", str(a.divide), "--highest-id", str(highest)],
                             stdout=subprocess.PIPE).stdout
        results[name] = json.loads(out)
    return results


def measure(server, a):
    """Yields of each workload: name, medians, the most that was evaluated, once, whether all is well."""
    rounds = [round_of(server, a) for _ in range(a.runs)]
    for name in NAMES:
        these = [r[name] for r in rounds]
        median = {k: statistics.median(t[k] for t in these)
                  for k in ("seconds", "first_token_p50_s", "output_tokens_per_s")}
        yield name, median, max(t["evaluated"] for t in these), these[0]["once"], all(
            t["evaluated"] <= t["once"] and not t["errors"] and not t["made_up"] for t in these)


def busy():
    """A process that does nothing but run on the last CPU this one may use."""
    cpu = max(os.sched_getaffinity(0))
    return subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{cpu}}})\n"
                             "while True: pass"])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--divide", type=int, default=1)
    a = parser.parse_args()
    good, alone = True, {}
    with Server(a.model, "--dtype", "bf16", "--max-total-tokens", 65536, huge_pages=True) as server:
        server.await_memory()
        print(f"# {','.join(NAMES)}, 16 clients, medians of {a.runs}, load average "
              f"{os.getloadavg()[0]:.2f}", flush=True)
        for name, median, most, once, ok in measure(server, a):
            good, alone[name] = good and ok, median["seconds"]
            print(f"{name}  {median['seconds']:6.2f} s  first token {median['first_token_p50_s']:5.2f} s  "
                  f"{median['output_tokens_per_s']:7.1f} output tokens/s  evaluated {most} of the "
                  f"{once} that each prefix once takes{'' if ok else '  FAILED'}", flush=True)
        other = busy()
        try:
            for name, median, _, _, ok in measure(server, a):
                good = good and ok
                print(f"{name}  {median['seconds']:6.2f} s with another process busy on one CPU: "
                      f"{median['seconds'] / alone[name]:.2f}x", flush=True)
        finally:
            other.kill()
            other.wait()
    sys.exit(0 if good else 1)


main()
