#!/usr/bin/env python3
"""run.py NAME... - runs test_NAME.py of each; exits with 77 where all of it was skipped.

Why single tests were skipped is noted where tests/report.py looks for it."""
import importlib
import os
import pathlib
import sys
import unittest


def main():
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromModule(
        importlib.import_module(f"test_{name}")) for name in sys.argv[1:])
    count = suite.countTestCases()
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    if count == len(result.skipped) and result.wasSuccessful():
        print(*{why for _, why in result.skipped})
        return 77
    if os.environ.get("RADISH_TEST_SKIPS"):
        with open(os.environ["RADISH_TEST_SKIPS"], "a") as f:
            f.writelines(f"python {test.id()}: {why}\n" for test, why in result.skipped)
    return not result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
