#!/usr/bin/env python3
"""check_docs.py ROOT BUILD CC - the documents cannot rot.

 - The ```c blocks of docs/embedding.md, put together in their order, are one program that
   compiles without a warning against the public headers and libradish.so, and exits with 0.
 - Every rad_name and RAD_NAME that README.md and docs/*.md mention is in a public header.
 - Every file of the repository that they link to is there.
 - The commands that they name are there with their options, and nothing in the repository but the
   tests' RADISH_TESTDATA names a file beside the clone (docs_commands.py).
 - Every file that docs/architecture.md names is there, every room has its line, and what a newcomer
   wants to do touches two files at most (a file of one's own is one).
 - docs/models.md and radish(1) name every architecture that src/model/config_arch.c has.
 - CHANGELOG.md begins with the version of include/radish/radish.h.
 - docs/embedding.md's table of sizes is what `bench_cache --sizing` prints, within 5%.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

from docs_commands import check_beside, check_commands
from sources import C_BLOCK

NAME = re.compile(r"\b(?:rad|RAD)_\w+\b(?!\*)")  # rad_kv_alloc_* stands for many
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def program(path):
    """The blocks as one file, with line numbers of the document for the compiler."""
    text = path.read_text()
    parts = []
    for block in C_BLOCK.finditer(text):
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


def check_architecture(root, wrong):
    text = (root / "docs/architecture.md").read_text()
    files = {name for name in re.findall(r"`((?:src|include|tests|examples)/[\w/.]+\.\w+)`", text)}
    wrong += [f"docs/architecture.md names {name}, which is not there" for name in sorted(files)
              if not (root / name).is_file()]
    rooms = text[text.index("## Rooms"):text.index("## One request")]
    for room in re.findall(r"^(\w+):", (root / "src/LAYERS").read_text(), re.M):
        if not re.search(rf"^\|[^|]*`{room}`[^|]*\|", rooms, re.M):
            wrong.append(f"docs/architecture.md has no line for the room {room}")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", text[text.index("## A newcomer"):], re.M)
    for what, touched in rows[2:]:
        if len(touched.split(", ")) > 2:
            wrong.append(f"docs/architecture.md: to {what} touches {touched}")
    if not files or len(rows) < 10:
        wrong.append("docs/architecture.md: nothing was looked at")


def check_models(root, wrong):
    """What radish can run is named where people look."""
    archs = re.findall(r'\{\.name = "([\w-]+)"', (root / "src/model/config_arch.c").read_text())
    models, page = (root / "docs/models.md").read_text(), (root / "docs/man/radish.1").read_text()
    listed = re.search(r"of the architectures ([^.]*?) on the CPU\.", page)
    named = set(re.findall(r"[\w-]+", listed[1])) if listed else set()
    wrong += [f"docs/models.md does not name the architecture {a}" for a in archs if f"`{a}`" not in models]
    if f"[{len(archs)} architectures](docs/models.md)" not in (root / "README.md").read_text():
        wrong.append(f"README.md does not say that there are {len(archs)} architectures")
    wrong += [f"docs/man/radish.1 does not name the architecture {a}" for a in archs if a not in named]
    if len(archs) < 5:
        wrong.append("src/model/config_arch.c: no architectures were found")


def check_version(root, headers, wrong):
    version = ".".join(re.findall(r"#define RAD_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", headers))
    newest = re.search(r"^## (\S+?)[,\s]", (root / "CHANGELOG.md").read_text(), re.M)
    if not newest or newest[1] != version:
        wrong.append(f"CHANGELOG.md begins with {newest and newest[1]}, radish.h is of {version}")


def check_sizing(root, build, wrong):
    page = root / "docs/embedding.md"
    said = {int(row[0]): [float(x) for x in row[1:]] for row in re.findall(
        r"^\| (\d+) \|" + r" ([\d.]+) bytes \|" * 3 + "$", page.read_text(), re.M)}
    out = subprocess.run([f"{build}/bench/bench_cache", "--sizing"], capture_output=True, text=True,
                         check=True).stdout
    found = {int(row[0]): [float(x) for x in row[1:]] for row in re.findall(
        r"^page size (\d+) *: keys ([\d.]+), nodes ([\d.]+), allocator ([\d.]+)", out, re.M)}
    if not found or said.keys() != found.keys() or any(
            abs(a - b) > 0.05 * b + 0.05 for size in found for a, b in zip(said[size], found[size])):
        wrong.append(f"{page}: its table of sizes says {said}, bench_cache --sizing {found}")


def main():
    root, build, compiler = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]
    wrong = []
    run_program(root, build, compiler, wrong)
    check_architecture(root, wrong)
    check_models(root, wrong)
    headers = "\n".join(path.read_text() for path in root.glob("include/radish/*.h"))
    check_version(root, headers, wrong)
    known = set(NAME.findall(headers))
    documents = [root / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    documents += [*sorted(root.glob("docs/*.md"))]
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
    check_sizing(root, build, wrong)
    count = check_commands(root, pathlib.Path(build), documents, wrong)
    check_beside(root, wrong)
    for line in wrong:
        print(line)
    print(f"{len(documents)} documents, {mentioned} names, {count} commands: " +
          (f"{len(wrong)} things are wrong" if wrong else "right"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
