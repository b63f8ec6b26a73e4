#!/usr/bin/env python3
"""report.py BUILD - what a run of tools/run-tests.sh came to, from what it left in BUILD:

    parts.txt          a line per part: seconds, preset, "build" or "test", "ok" or "failed"; parts that
                       run beside each other are followed by a line for the preset "all"
    PRESET/junit.xml   CTest's report of each preset that was tested
    skips.txt          a line per skip inside a test: program, test, why

Prints what was skipped and why, the minutes by part, the longest tests, and at last how many passed,
failed and were skipped. A test is one of CTest's; a skip inside of one counts as one more. The exit
status is 0 when something passed and nothing failed."""
import collections
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

MOST_LONGEST = 10


def read_parts(build):
    parts = [line.split() for line in (build / "parts.txt").read_text().splitlines()]
    return [(int(seconds), preset, what, state) for seconds, preset, what, state in parts]


def state_of(case):
    """passed, skipped (it said so by its exit status), or failed: also what could not be run."""
    skipped = case.find("skipped")
    if skipped is not None:
        return "skipped" if "SKIP_RETURN_CODE" in skipped.get("message", "") else "failed"
    return "passed" if case.get("status") == "run" else "failed"


def read_cases(build, parts):
    """[(seconds, preset, name, state)] of what CTest ran."""
    cases = []
    for _, preset, what, state in parts:
        if what == "test" and state == "ok":
            report = ElementTree.parse(build / preset / "junit.xml").getroot()
            cases += [(float(case.get("time")), preset, case.get("name"), state_of(case))
                      for case in report.iter("testcase")]
    return cases


def main(build):
    build = pathlib.Path(build)
    parts = read_parts(build)
    cases = read_cases(build, parts)
    skips = build / "skips.txt"
    inside = skips.read_text().splitlines() if skips.exists() else []
    scripts = {line.split()[0] for line in inside if "(all of it)" in line}  # CTest's, with words
    whole = [f"{name} ({preset})" for _, preset, name, state in cases
             if state == "skipped" and name.removeprefix("e2e_") not in scripts]
    states = [state for *_, state in cases]
    failed = states.count("failed") + sum(state == "failed" for *_, state in parts)
    skipped = len(inside) + len(whole)

    for line, times in sorted(collections.Counter(inside).items()) + [(name, 1) for name in whole]:
        print("skipped:", line + (f" (in {times} builds)" if times > 1 else ""))
    told = ", ".join(f"{preset} {what} {seconds / 60:.1f}" for seconds, preset, what, _ in parts
                     if preset != "all")
    whole = [seconds for seconds, preset, *_ in parts if preset == "all"] or [part[0] for part in parts]
    print(f"minutes: {told}; together {sum(whole) / 60:.1f}")
    longest = sorted(cases, reverse=True)[:MOST_LONGEST]
    print("longest tests, seconds: " + ", ".join(f"{name} ({preset}) {seconds:.0f}"
                                                 for seconds, preset, name, _ in longest))
    print(f"{states.count('passed')} passed, {failed} failed" +
          (f", {skipped} skipped" if skipped else ""))
    return 0 if "passed" in states and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
