"""sources.py - what several checks read out of sources, documents and what was built."""
import re
import subprocess
import sys

C_BLOCK = re.compile(r"^```c\n(.*?)^```$", re.M | re.S)  # of a document: docs/embedding.md is a program of them

ROOMS = re.compile(r"^set\(CACHE_ROOMS ([\w ]+)\)", re.M)
DECLARED = re.compile(r"\bRAD_API\b[^;{]*?\b(\w+)\s*\(")
TOKEN = re.compile(r"""\"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|/\*.*?\*/|//[^\n]*""", re.S)  # text or a comment


def library_rooms(root):
    """The folders of src/ that libradish is made of."""
    return set(ROOMS.search((root / "CMakeLists.txt").read_text())[1].split())


def without_comments(text):
    """Every line where it was."""
    return TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if m[0][0] == "/" else m[0], text)


def bare_code(text):
    """Without comments, preprocessor lines and what stands in strings."""
    text = TOKEN.sub(lambda m: {"/": " ", '"': '""'}.get(m[0][0], m[0]), text)
    return re.sub(r"^\s*#(?:.*\\\n)*.*$", "", text, flags=re.M)


def declared(header):
    """The functions that a public header's text declares."""
    return DECLARED.findall(bare_code(header))


def symbols(path, *options):
    """The names with an address that nm shows; those of symbol versions (A) are none."""
    done = subprocess.run(["nm", *options, str(path)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"nm {path}: {done.stderr}")
    rows = [line.split() for line in done.stdout.splitlines()]
    return {row[2].split("@")[0] for row in rows if len(row) == 3 and row[1] != "A"}
