#!/usr/bin/env python3
"""check_use.py ROOT - a public function is there because something that ships calls it.

Every RAD_API function of include/radish has a caller outside libradish: in a room of src/ that is
none of the library's, in the Python module, in bench/, in examples/ or in the program of
docs/embedding.md. Or it stands in tests/uncalled.txt with the reason why it stays and what will call
it. What stands there and has a caller by now, or is gone, is an error too, so the list can only
shrink to what is true.
"""
import pathlib
import re
import sys

from sources import C_BLOCK, bare_code, declared, library_rooms


def read_list(path):
    """name -> (line, reason). A reason is a heading that ends in a colon; its names are indented."""
    reason, listed = None, {}
    for n, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            reason = line.rstrip(":")
            continue
        for name in line.split():
            listed[name] = (n, reason)
    return listed


def called_names(root):
    inside = library_rooms(root)
    paths = [p for p in root.glob("src/*/*.[ch]") if p.parent.name not in inside]
    paths += [*root.glob("bench/*.[ch]"), *root.glob("examples/*.[ch]"),
              *root.glob("bindings/*/src/*.[ch]")]
    texts = [path.read_text() for path in paths]
    texts += C_BLOCK.findall((root / "docs/embedding.md").read_text())
    return {name for text in texts for name in re.findall(r"\brad_\w+", bare_code(text))}


def main():
    root = pathlib.Path(sys.argv[1])
    public = {name: header.name for header in sorted(root.glob("include/radish/*.h"))
              for name in declared(header.read_text())}
    called, path = called_names(root), root / "tests/uncalled.txt"
    listed, wrong = read_list(path), []
    for name, header in public.items():
        if name not in called and name not in listed:
            wrong.append(f"{header}: nothing that ships calls {name}: use it, remove it, or say in "
                         f"tests/uncalled.txt what will call it")
    for name, (line, reason) in listed.items():
        if name not in public:
            wrong.append(f"{path}:{line}: {name} is not a public function (any more)")
        elif name in called:
            wrong.append(f"{path}:{line}: {name} has a caller now")
        if not reason:
            wrong.append(f"{path}:{line}: {name} stands there without a reason")
    print("\n".join(wrong) or f"{len(public)} public functions, {len(listed)} of them listed as "
          "not called yet")
    return 1 if wrong or not public or not called else 0


if __name__ == "__main__":
    sys.exit(main())
