#!/usr/bin/env python3
"""check_docs.py ROOT BUILD CC - the documents cannot rot.

 - The ```c blocks of docs/embedding.md, put together in their order, are one program that
   compiles without a warning against the public headers and libradish.so, and exits with 0.
 - Every rad_name and RAD_NAME that README.md and docs/*.md mention is in a public header.
 - Every file of the repository that they link to is there.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```c\n(.*?)^```$", re.M | re.S)
NAME = re.compile(r"\b(?:rad|RAD)_\w+\b(?!\*)")  # rad_kv_alloc_* stands for many
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def program(path):
    """The blocks as one file, with line numbers of the document for the compiler."""
    text = path.read_text()
    parts = []
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1)) + 1
        parts.append(f'#line {line} "{path}"\n{block[1]}')
    return "\n".join(parts)


def run_program(root, build, compiler, wrong):
    path = root / "docs/embedding.md"
    source = program(path)
    if "int main(" not in source:
        wrong.append(f"{path}: no program in it")
        return
    with tempfile.TemporaryDirectory(prefix="radish-docs-") as tmp:
        out = pathlib.Path(tmp) / "embedding"
        done = subprocess.run([compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Wshadow",
                               "-pedantic", "-Werror", f"-I{root}/include", "-x", "c", "-",
                               "-x", "none", f"-L{build}", "-lradish", f"-Wl,-rpath,{build}",
                               "-o", str(out)], input=source, capture_output=True, text=True)
        if done.returncode:
            wrong.append(f"{path} does not compile:\n{done.stderr}")
            return
        done = subprocess.run([str(out)], capture_output=True, text=True)
        if done.returncode:
            wrong.append(f"{path}: its program gave {done.returncode}\n{done.stdout}{done.stderr}")


def main():
    root, build, compiler = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    wrong = []
    run_program(root, build, compiler, wrong)
    headers = "\n".join(path.read_text() for path in root.glob("include/radish/*.h"))
    known = set(NAME.findall(headers))
    documents = [root / "README.md", *sorted(root.glob("docs/*.md"))]
    mentioned = 0
    for path in documents:
        text = path.read_text()
        for name in sorted(set(NAME.findall(text))):
            mentioned += 1
            if name not in known:
                wrong.append(f"{path}: {name} is in no public header")
        for link in LINK.findall(text):
            if not (path.parent / link).exists():
                wrong.append(f"{path}: links to {link}, which is not there")
    for line in wrong:
        print(line)
    print(f"{len(documents)} documents, {mentioned} names: " +
          (f"{len(wrong)} things are wrong" if wrong else "right"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
