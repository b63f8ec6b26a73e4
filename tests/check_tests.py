#!/usr/bin/env python3
"""check_tests.py ROOT - no test says how long something may take.

A machine that does other things besides makes any figure wrong. What is awaited has one limit, for what
hangs: AWAIT and TEST_HANG_S in C, HANG in Python. So clocks are looked at in few places: test.h, and
where the growth of CPU time is looked at in long runs."""
import pathlib
import re
import sys

CLOCK = re.compile(r"\bCLOCK_(?!PROCESS_CPUTIME_ID)\w+|\bgettimeofday\b|\btime\(NULL\)")
CPU_CLOCK = re.compile(r"\bCLOCK_PROCESS_CPUTIME_ID\b|\bclock\(\)")
MAY_HAVE_CPU_CLOCK = {"test_tokenizer.c", "test_tokenizer_hostile.c"}
PYTHON_CLOCK = r"time\.(?:monotonic|time|perf_counter)\(\)"
PYTHON_DEADLINE = re.compile(PYTHON_CLOCK + r" \+ (?:[1-5]?\d\b|seconds\b)")  # what has a minute is no limit
PYTHON_LIMIT = re.compile(r"\b(?:assert\b|check\(|if\b|while\b).*(?:" + PYTHON_CLOCK + r" -|\btook\b|\belapsed\b)")


def complaints(root):
    for path in [*root.glob("tests/*.c"), *root.glob("tests/*.h")]:
        for n, line in enumerate(path.read_text().splitlines(), 1):
            if path.name != "test.h" and CLOCK.search(line) or \
                    path.name not in MAY_HAVE_CPU_CLOCK and CPU_CLOCK.search(line):
                yield f"{path.relative_to(root)}:{n}: a test looks at a clock: {line.strip()}"
    for path in root.glob("tests/e2e/*.py"):
        for n, line in enumerate(path.read_text().splitlines(), 1):
            if PYTHON_DEADLINE.search(line) or PYTHON_LIMIT.search(line):
                yield f"{path.relative_to(root)}:{n}: a time is limited, and not by HANG: {line.strip()}"


def main(root):
    wrong = list(complaints(root))
    print("\n".join(wrong) or "no test limits a time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
