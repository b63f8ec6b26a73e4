#!/usr/bin/env python3
"""check_gear.py ROOT BUILD - what only tests need is in no library and in no program.

 - No function or variable of tests/gear (fakes of devices, stores, models and CPUs, and what tests
   do to a scheduler) is in the program, in libradish or libradish-storage, or in the engine's
   archive.
 - Nothing in src/ and include/ is called test_..., as a hook would be that the product carries for
   tests. (Jinja's own tests are the language's.)
"""
import pathlib
import re
import sys

from sources import symbols, without_comments

PRODUCT = ["radish", "libradish.so.0", "libradish.a", "libradish-core.a", "libradish-engine.a",
           "libradish-storage.so.0", "libradish-storage.a"]
HOOK = re.compile(r"\btest_\w+|\b[a-z]\w*_test_\w+")


def main():
    root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    gear = set().union(*(symbols(path, "-g", "--defined-only") for path in build.glob("tests/libradish_gear*.a")))
    wrong = []
    for name in PRODUCT:
        have = symbols(build / name, "--defined-only")
        if not have:
            wrong.append(f"nm shows no symbols of {name}")
        wrong += [f"{name} has {symbol}, which is the tests'" for symbol in sorted(have & gear)]
    paths = [*root.glob("src/*/*.[ch]"), *root.glob("include/radish/*.h")]
    for path in sorted(paths):
        if path.name.startswith("jinja"):
            continue
        wrong += [f"{path.relative_to(root)}: {name} is a hook for tests"
                  for name in sorted(set(HOOK.findall(without_comments(path.read_text()))))]
    print("\n".join(wrong) or f"{len(gear)} names of the tests' gear are in none of {', '.join(PRODUCT)}")
    return 1 if wrong or not gear or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
