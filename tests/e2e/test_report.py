#!/usr/bin/env python3
"""test_report.py - what is skipped inside of programs and scripts is noted, named and counted, and what
lies beside the repository adds tests without being missed; and a long run has all its parts."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from radish_e2e import ROOT, check, run

PROGRAM = """
#include "test.h"
TEST(this_runs) { CHECK(true); }
TEST(this_does_not) { SKIP_UNLESS(false, "no such CPU"); CHECK(false); }
TEST_WITH_DATA(this_is_more, "more.gguf") { CHECK(true); }
TEST_MAIN()
"""
SCRIPT = """
import sys
sys.path.insert(0, "@e2e@")
from radish_e2e import long_run, run, skip, skip_script
if len(sys.argv) > 2:
    skip_script("no such program")
def test_this_runs():
    pass
def test_this_does_not():
    skip("no such kernel")
@long_run
def test_this_takes_long():
    raise Exception
run(globals())
"""


def skips_of(tmp, *command, data="/nonexistent", want=0):
    note = pathlib.Path(tmp) / "skips.txt"
    note.unlink(missing_ok=True)
    env = {**os.environ, "RADISH_TEST_SKIPS": str(note), "RADISH_TESTDATA": data, "RADISH_TEST_LONG": "0"}
    done = subprocess.run([*map(str, command)], env=env, capture_output=True, text=True)
    check(done.returncode == want, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr, note.read_text().splitlines() if note.exists() else []


def test_a_program_notes_what_it_skips():
    with tempfile.TemporaryDirectory() as tmp:
        program = f"{tmp}/test_x"
        subprocess.run(["cc", "-x", "c", "-", "-I", ROOT / "include", "-I", ROOT / "tests", "-o", program,
                        "-lcmocka"], input=PROGRAM, text=True, check=True)
        out, skips = skips_of(tmp, program)
        check(skips == ["test_x this_does_not: no such CPU"], skips)
        check("this_runs" in out and "this_is_more" not in out, out)
        (pathlib.Path(tmp) / "more.gguf").write_text("")
        out, skips = skips_of(tmp, program, data=tmp)
        check(len(skips) == 1 and "this_is_more" in out, out)


def test_a_script_notes_what_it_skips():
    with tempfile.TemporaryDirectory() as tmp:
        script = pathlib.Path(tmp) / "test_y.py"
        script.write_text(SCRIPT.replace("@e2e@", str(ROOT / "tests/e2e")))
        out, skips = skips_of(tmp, sys.executable, script)
        check(skips == ["test_y test_this_does_not: no such kernel"] and "long" not in out, skips, out)
        _, skips = skips_of(tmp, sys.executable, script, "all", "of it", want=77)
        check(skips == ["test_y (all of it): no such program"], skips)


def report(tmp, cases, skips="", parts="60 release build ok\n90 release test ok\n", want=0):
    build = pathlib.Path(tmp)
    (build / "release").mkdir(exist_ok=True)
    (build / "release/junit.xml").write_text("<testsuite>" + "".join(
        f'<testcase name="{name}" time="{seconds}" status="{status}">{inner}</testcase>'
        for name, seconds, status, inner in cases) + "</testsuite>")
    (build / "parts.txt").write_text(parts)
    (build / "skips.txt").write_text(skips)
    done = subprocess.run([sys.executable, ROOT / "tests/report.py", tmp], capture_output=True, text=True)
    check(done.returncode == want, done.stdout, done.stderr)
    return done.stdout.splitlines()


def test_the_last_line_counts_all_of_it():
    skipped = '<skipped message="SKIP_RETURN_CODE=77"/>'
    missing = '<skipped message="Unable to find executable"/>'
    good = [("test_a", 5, "run", ""), ("test_b", 70, "run", "")]
    with tempfile.TemporaryDirectory() as tmp:
        lines = report(tmp, good)
        check(lines[-1] == "2 passed, 0 failed", lines)
        check(lines[0] == "minutes: release build 1.0, release test 1.5; together 2.5", lines)
        beside = "60 release build ok\n90 release test ok\n80 asan build ok\n162 all tests ok\n"
        check(report(tmp, good, parts=beside)[0] ==
              "minutes: release build 1.0, release test 1.5, asan build 1.3; together 2.7")
        check(lines[1] == "longest tests, seconds: test_b (release) 70, test_a (release) 5", lines)
        lines = report(tmp, [*good, ("e2e_test_y", 0, "notrun", skipped), ("e2e_test_z", 0, "notrun", skipped)],
                       "test_y (all of it): no such program\n" +
                       "test_a x: no such CPU\n" * 2)
        check(lines[-1] == "2 passed, 0 failed, 4 skipped", lines)
        check(lines[:3] == ["skipped: test_a x: no such CPU (in 2 builds)",
                            "skipped: test_y (all of it): no such program",
                            "skipped: e2e_test_z (release)"], lines)
        lines = report(tmp, [*good, ("test_c", 1, "fail", ""), ("test_d", 0, "notrun", missing)], want=1)
        check(lines[-1] == "2 passed, 2 failed", lines)
        lines = report(tmp, good, parts="60 release build ok\n90 release test failed\n5 asan build failed\n",
                       want=1)
        check(lines[-1] == "0 passed, 2 failed", lines)


def long_run_of(folder, *parts, want=0):
    """tools/run-long.sh over tools that note how they were called, of which one may end with 3: its last lines, and
    what was called."""
    (folder / "calls").write_text("")
    done = subprocess.run([folder / "tools/run-long.sh", *parts], capture_output=True, text=True,
                          env={**os.environ, "JOBS": "5", "FUZZ_SECONDS": "7"})
    check(done.returncode == want, done.returncode, done.stdout, done.stderr)
    lines = [line for line in done.stdout.splitlines() if re.match(r"(ok|FAILED) ", line)]
    return lines, (folder / "calls").read_text().splitlines()


def test_a_long_run_goes_on_behind_a_part_that_fails():
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        (folder / "tools").mkdir()
        shutil.copy(ROOT / "tools/run-long.sh", folder / "tools")
        for name, fails in (("run-tests.sh", 0), ("run-fuzz.sh", 3), ("run-ports.sh", 0), ("make-deb.sh", 0),
                            ("check-deb.sh", 0), ("check-container.py", 0)):
            stub = folder / "tools" / name
            stub.write_text(f'#!/bin/sh\necho "{name} $* long=${{RADISH_TEST_LONG:-}}" >>calls\n'
                            f'echo "words of {name}"\nexit {fails}\n')
            stub.chmod(0o755)
        lines, calls = long_run_of(folder, want=1)
        check(calls == ["run-tests.sh 5 long=1", "run-fuzz.sh 7 long=", "run-ports.sh 5 long=", "make-deb.sh 5 long=",
                        "check-deb.sh  long=", "check-container.py  long="], calls)
        check([line.split()[:2] for line in lines] == [["ok", "suite"], ["FAILED", "fuzz"], ["ok", "ports"],
                                                       ["ok", "deb"], ["ok", "container"]], lines)
        check(re.fullmatch(r"FAILED +fuzz +0\.\d min  words of run-fuzz\.sh", lines[1]), lines[1])
        lines, calls = long_run_of(folder, "deb", "ports")  # those that are named, as named
        check(calls == ["make-deb.sh 5 long=", "check-deb.sh  long=", "run-ports.sh 5 long="], calls)
        check(long_run_of(folder, "debs", want=2) == ([], []))


run(globals())
