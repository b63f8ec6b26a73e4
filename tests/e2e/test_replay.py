#!/usr/bin/env python3
"""`radish replay` of a trace that the test data's generator writes, at three page sizes."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from radish_e2e import DATA, RADISH, check, radish, run, skip_unless

GENERATOR = DATA.parent / "tools/trace_gen.py"
skip_unless(RADISH)
skip_unless(GENERATOR)


def rates(*options):
    """Token hit rates of LRU by page size, at the capacity that the file names."""
    with tempfile.TemporaryDirectory(prefix="radish-replay-") as tmp:
        trace = Path(tmp) / "trace"
        subprocess.run([sys.executable, str(GENERATOR), str(trace), *options], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        sizes = [word for size in (1, 16, 64) for word in ("--page-size", size)]
        cells = json.loads(radish("replay", trace, *sizes, "--json")[0])["cells"]
    check([c["page_size"] for c in cells] == [1, 16, 64], cells)
    return [c["token_hit_rate"] for c in cells], cells


def test_larger_pages_find_no_more():
    found, cells = rates("--requests", "500")
    check(1 > found[0] > found[1] > found[2] > 0, found)
    check(all(c["requests"] == 500 for c in cells), cells)


def test_the_default_trace_has_the_hit_rates_of_theory():
    if os.environ.get("RADISH_TEST_LONG", "0") in ("", "0"):
        return print("skipped: needs RADISH_TEST_LONG=1 (20,000 requests are to be written)")
    found, _ = rates()
    # Eviction frees exactly what is asked; freeing whole leaves would give 0.0001 less.
    check([f"{rate:.4f}" for rate in found] == ["0.8031", "0.8009", "0.7929"], found)


if __name__ == "__main__":
    run(globals())
