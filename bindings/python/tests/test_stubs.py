"""_core.pyi says what the module has, all of it, with the arguments that it takes."""
import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import radish
from radish import _core

LONG = os.environ.get("RADISH_TEST_LONG", "0") not in ("", "0")
STUBS = ast.parse(pathlib.Path(_core.__file__).with_name("_core.pyi").read_text())
CLASSES = {node.name: node for node in STUBS.body if isinstance(node, ast.ClassDef)}


def members(name):
    """Of a class and what it derives from in the stubs."""
    found = {}
    for base in CLASSES[name].bases:
        if isinstance(base, ast.Name) and base.id in CLASSES:
            found.update(members(base.id))
    for node in CLASSES[name].body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = node
    return found


def arguments(function):
    a = function.args
    return [arg.arg for arg in a.posonlyargs + a.args + a.kwonlyargs if arg.arg not in ("self", "cls")]


class Stubs(unittest.TestCase):
    if LONG:  # mypy is one of the packages of make test-long
        def test_mypy_reads_them(self):
            script = ("import radish\nfrom typing import Optional\nkv = radish.KVAllocator(4)\n"
                      "fresh: Optional[radish.Array] = kv.alloc(1, 'int64')\n"
                      "place = memoryview(bytearray(4)).cast('i')\n"
                      "same: Optional[memoryview] = kv.alloc(1, place)\n")
            place = str(pathlib.Path(_core.__file__).parent.parent)
            with tempfile.TemporaryDirectory() as cache:
                run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, "-c", script],
                                     env=os.environ | {"MYPYPATH": place}, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_names(self):
        have = {name for name in dir(_core) if not name.startswith("_")}
        said = {node.name for node in STUBS.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))
                and not node.name.startswith("_")}
        said |= {node.target.id for node in STUBS.body if isinstance(node, ast.AnnAssign)}
        self.assertEqual(have - said, set())
        self.assertEqual(said - have, {"__version__", "FreeList", "Storage"})
        self.assertEqual({name for name in have if not hasattr(radish, name)}, set())

    def test_members_and_their_arguments(self):
        for name in CLASSES:
            cls = getattr(_core, name, None)
            if cls is None or issubclass(cls, Exception):
                continue
            said = members(name)
            have = {m for m in dir(cls) if not m.startswith("_")}
            if issubclass(cls, tuple):
                have -= set(dir(tuple)) | {"n_fields", "n_sequence_fields", "n_unnamed_fields"}
            self.assertEqual({m for m in said if not m.startswith("_")}, have, name)
            for method, node in said.items():
                told = re.match(r"\w+\((.*?)\) ->", (getattr(cls, method).__doc__ or "")
                                if hasattr(cls, method) else "")
                if method.startswith("_") or not told:
                    continue
                names = [part.split("=")[0].strip() for part in told[1].split(",")]
                self.assertEqual([n for n in names if n not in ("*", "")], arguments(node),
                                 f"{name}.{method}")

    def test_everything_says_what_it_does(self):
        for name in CLASSES:
            cls = getattr(_core, name, None)
            if cls is None:
                continue
            self.assertTrue(cls.__doc__, name)
            if issubclass(cls, (tuple, Exception)):
                continue
            for member in dir(cls):
                if not member.startswith("_"):
                    self.assertTrue(getattr(cls, member).__doc__, f"{name}.{member}")


if __name__ == "__main__":
    unittest.main()
