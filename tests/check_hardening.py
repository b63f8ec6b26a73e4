#!/usr/bin/env python3
"""check_hardening.py BUILD - what was built is as hard to misuse as cmake/hardening.cmake says.

Reads the program and the libraries with readelf: PIE, full RELRO, no executable stack, nothing
writable and executable at once, no text relocations, stack protector, FORTIFY, and landing pads for
indirect branches (CET) in every object of the archives. Debian's own start files have no CET marks,
so that what is linked has none either: the objects are looked at.
"""
import pathlib
import re
import subprocess
import sys


def readelf(path, *what):
    return subprocess.run(["readelf", "-W", *what, str(path)], check=True, capture_output=True, text=True).stdout


def wrong_with_linked(path, is_program):
    """What is missing in a program or shared library."""
    segments, dynamic, symbols = readelf(path, "-l"), readelf(path, "-d"), readelf(path, "--dyn-syms")
    stack = re.search(r"GNU_STACK.* (\S+) +0x\w+$", segments, re.M)
    if "Elf file type is DYN" not in segments or (is_program and "Flags:" not in dynamic):
        yield "not position independent"
    if is_program and not re.search(r"FLAGS_1.*\bPIE\b", dynamic):
        yield "no PIE"
    if "GNU_RELRO" not in segments:
        yield "no RELRO"
    if not re.search(r"BIND_NOW|FLAGS_1.*\bNOW\b", dynamic):
        yield "RELRO is not full: names are resolved late"
    if not stack or "E" in stack.group(1):
        yield "the stack is executable"
    for line in segments.splitlines():
        if re.match(r" +LOAD .*\bRWE\b", line):
            yield "a segment is writable and executable"
    if "TEXTREL" in dynamic:
        yield "text relocations"
    if "__stack_chk_fail" not in symbols:
        yield "no stack protector"
    if not re.search(r"__\w+_chk@", symbols):
        yield "no FORTIFY"


def wrong_with_archive(path):
    """Objects without marks for indirect branches; x86 has IBT and SHSTK, aarch64 BTI and PAC."""
    machine = re.search(r"Machine: +(.*)", readelf(path, "-h")).group(1)
    if "X86-64" in machine:
        marks = ("IBT", "SHSTK")
    elif "AArch64" in machine:
        marks = ("BTI", "PAC")
    else:
        return
    objects = re.split(r"^File: ", readelf(path, "-n"), flags=re.M)[1:]
    if not objects:
        yield "no objects; does this script still read readelf right?"
    for text in objects:
        if not all(mark in text for mark in marks):
            yield f"{text.splitlines()[0]}: no {' and '.join(marks)}"


def main(build):
    wrong, seen = [], 0
    linked = [(build / "radish", True), *((p, False) for p in build.glob("libradish*.so"))]
    for path, is_program in linked:
        seen += 1
        wrong += [f"{path.name}: {what}" for what in wrong_with_linked(path, is_program)]
    for path in build.glob("libradish*.a"):
        seen += 1
        wrong += [f"{path.name}: {what}" for what in wrong_with_archive(path)]
    if seen < 5:
        wrong.append(f"only {seen} files found in {build}")
    print("\n".join(wrong) or f"{seen} files are hardened")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
