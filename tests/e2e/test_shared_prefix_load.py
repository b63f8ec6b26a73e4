#!/usr/bin/env python3
"""The load generator's workloads W1-W4 run through both API styles without an error, and
every answer's ids come back (history_made_up 0)."""
import json
import os
import subprocess
import sys

from radish_e2e import DATA, TINY, Server, run, skip_unless

LOAD = DATA.parent / "tools/shared_prefix_load.py"


def load(style):
    # The whole load in make test-long; else the same structure with a quarter of it.
    scale = "4" if os.environ.get("RADISH_TEST_LONG", "0") in ("", "0") else "1"
    with Server(TINY, "--max-total-tokens", "16384") as server:
        done = subprocess.run(
            [sys.executable, str(LOAD), "--style", style, "--port", str(server.port), "--scale", scale,
             "--lo", "10", "--hi", "1000", "--timeout", "120"],
            capture_output=True, text=True, timeout=1800)
        print(done.stdout, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [r["workload"] for r in rows] == ["W1", "W2", "W3", "W4"]
        for row in rows:
            assert row["errors"] == 0, row
            assert row["history_made_up"] == 0, row
            assert row["prompt_cached"] > 0, row
        server.wait_idle()


def test_openai_style():
    load("openai")


def test_sglang_style():
    load("sglang")


if __name__ == "__main__":
    skip_unless(TINY)
    skip_unless(LOAD)
    run(globals())
