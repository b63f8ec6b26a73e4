#!/usr/bin/python3
"""test-peers.py [--own | --differential STEPS] [NAME...] - another engine's own tests of its cache, on libradish.

    PEER=DIR make test-peers

DIR is a checkout of SGLang or of mini-sglang; nothing is fetched. What their tests import and do not
test (triton, CUDA kernels, servers) is stood in for: tools/peers/shim.py. Then their tests run as they
are, with radish.sglang's classes in the place of theirs (mini-sglang: radish.minisgl's). --own runs them
on their own classes instead: what fails there says nothing about radish. A test that cannot apply is
listed in tools/peers with the reason; only those that NAME part of their name are run where any is
given. Exit code 1 when an applicable one fails.

Needs python3-torch, python3-numpy, and the package: make python."""
import argparse
import collections
import gc
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, os.environ.get("RADISH_PYTHON", str(ROOT / "build/release/python")))
sys.path.insert(0, str(ROOT / "tools"))

from peers import loading, minisgl, sglang  # noqa: E402


def quietly(run, *args):
    out, err = sys.stdout, sys.stderr
    with open(os.devnull, "w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        try:
            return run(*args)
        finally:
            sys.stdout, sys.stderr = out, err


def run_tests(engine, peer, options):
    classes = quietly(engine.prepare, peer, options.own)
    pytest = loading.stand_in_pytest()
    total = collections.Counter()
    of_files = [f for f in engine.FILES if any(f in n or n in f for n in options.names)] or engine.FILES
    again = [] if options.own else [f for f in engine.AGAIN if f in of_files]
    for at, name in enumerate([*of_files, *again]):
        is_again = at >= len(of_files)
        reasons = engine.INAPPLICABLE | (engine.INAPPLICABLE_AGAIN if is_again else {})
        path = next((peer / w / f"{name}.py" for w in engine.WHERE if (peer / w / f"{name}.py").exists()), None)
        if not path:  # of another version
            continue
        if name in engine.NOT_RUN:
            print(f"not run       {name}: {engine.NOT_RUN[name]}")
            continue
        counts = collections.Counter()
        suite = quietly(loading.load_file, path, pytest, classes + engine.before(name, options.own, is_again),
                        lambda module: engine.behind(module, is_again))
        for i, test in enumerate(loading.flat(suite)):
            if options.names and not any(n in test.id() for n in options.names):
                continue
            why = next((why for part, why in reasons.items() if part in test.id()), None)
            if options.own:
                why = None
            counts[run_test(test, why, options)] += 1
            if i % 16 == 0:
                gc.collect()  # pools of hundreds of megabytes in cycles
        if counts:
            total += counts
            print(f"{name}{' over our allocators' if is_again else ''}: {told(counts)}", flush=True)
    print(f"{told(total)} on {'their own classes' if options.own else 'libradish'}")
    return 1 if total["failed"] or not total["passed"] else 0


def run_test(test, why, options):
    """What became of it; `why` it is not expected to pass."""
    if why and not options.listed:
        print(f"cannot apply  {test.id()}: {why}")
        return "cannot apply"
    result = unittest.TestResult()
    quietly(test.run, result)
    broken = result.failures + result.errors  # of subtests, too
    if result.skipped:
        return "skip themselves"
    if why:
        if not broken:
            print(f"passes all the same  {test.id()}: {why}")
        return "cannot apply"
    if broken:
        trace = "".join(trace for _, trace in broken)
        print(f"FAILED        {test.id()}\n{trace.strip().splitlines()[-1] if options.brief else trace}")
    return "failed" if broken else "passed"


def told(counts):
    return f"{counts['passed']} of {counts['passed'] + counts['failed']} passed" + "".join(
        f", {counts[what]} {what}" for what in ("cannot apply", "skip themselves") if counts[what])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--brief", action="store_true", help="of each failure the last line")
    parser.add_argument("--listed", action="store_true",
                        help="runs those that cannot apply, too, and tells which pass")
    parser.add_argument("--differential", type=int, metavar="STEPS",
                        help="SGLang's trees and libradish's side by side, random operations")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    peer = pathlib.Path(os.environ.get("PEER", ""))
    if not os.environ.get("PEER") or not peer.is_dir():
        sys.exit("test-peers: PEER=DIR names a checkout of SGLang or mini-sglang")
    engine = next((e for e in (sglang, minisgl) if e.is_checkout(peer)), None)
    if not engine:
        sys.exit(f"test-peers: {peer} is no checkout of SGLang or mini-sglang that this script knows")
    if options.differential:
        from peers import differential
        quietly(sglang.prepare, peer, True)
        sys.exit(1 if differential.run(options.differential, options.names) else 0)
    sys.exit(run_tests(engine, peer, options))


if __name__ == "__main__":
    main()
