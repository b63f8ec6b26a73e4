#!/usr/bin/env python3
"""check_abi.py ROOT BUILD CC [CXX] - the promises of the binary interfaces of libradish and
libradish-storage.

 - The shared library and the archive export the same symbols, each begins with rad_ and is
   declared with RAD_API in include/radish/ (a header storage_*.h belongs to
   libradish-storage, the others to libradish), and each that is declared is there.
 - Each exported symbol has a version: a node of cmake/LIBRARY.map, the last of which is that of radish.h's version.
 - libradish.so.0 needs libc (and pthread, where that is a library of its own) and libcrypto
   only; libradish-storage.so.0 libradish, liburing and libhiredis besides libc.
 - libradish.so.0 has no variables but those below, which say what the CPU can do.
 - Every public header compiles alone, as C99 and C++11, without a warning, and no struct
   in it has hidden padding. radish.h includes all of libradish's.
 - Every params struct begins with struct_size; or its comment says it "does not grow".
 - No line of a public header is longer than 100 columns: what clang-format could not break well
   was written badly.
"""
import pathlib
import re
import subprocess
import sys

from sources import bare_code, declared, symbols

WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
PARAMS = re.compile(r"(/\*(?:(?!\*/).)*\*/\s*)?typedef struct (\w+_params)\s*\{(.*?)\}\s*(\w+);", re.S)
ALLOWED = {"libradish": re.compile(r"lib(c|pthread|crypto)\.so|ld-linux|ld64"),
           "libradish-storage": re.compile(
               r"lib(c|pthread|uring|hiredis|radish)\.so|ld-linux|ld64")}


# Writable for the whole process: asked once, the same for everybody.
CPU_FACTS = {"cap", "has_int8", "has_bf16", "highest", "once", "permitted", "refusal"}


def check_variables(build, wrong):
    code, out, err = run("objdump", "-t", str(build / "libradish.so.0"))
    if code:
        sys.exit(f"objdump: {err}")
    found = re.findall(r"^[0-9a-f]+ [^\t]*O \.t?(?:data|bss)\t[0-9a-f]+ +(?:\.hidden +)?(\w+)", out, re.M)
    if not CPU_FACTS & {name for name in found}:
        wrong.append(f"objdump shows no variables of libradish.so.0: {sorted(found)}")
    for name in sorted(set(found) - CPU_FACTS):
        if not name.startswith(("__", "completed")):
            wrong.append(f"libradish.so.0 has a global variable, {name}")


def library_of(header):
    return "libradish-storage" if header.startswith("storage_") else "libradish"


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def check_symbols(library, public, build, wrong):
    shared = str(build / f"{library}.so.0")
    exported = {f"{library}.so.0": symbols(shared, "-D", "--defined-only"),
                f"{library}.a": symbols(build / f"{library}.a", "-g", "--defined-only")}
    for name, have in exported.items():
        for symbol in sorted(have - public):
            wrong.append(f"{name} exports {symbol}, which no public header declares")
        for symbol in sorted(public - have):
            wrong.append(f"{name} lacks {symbol}, which a public header declares")
    for symbol in sorted(public):
        if not symbol.startswith("rad_"):
            wrong.append(f"{symbol} does not begin with rad_")
    for line in run("readelf", "-dW", shared)[1].splitlines():
        needed = re.search(r"\(NEEDED\).*\[(.*)\]", line)
        if needed and not ALLOWED[library].match(needed[1]):
            wrong.append(f"{library}.so.0 needs {needed[1]}")
        soname = re.search(r"\(SONAME\).*\[(.*)\]", line)
        if soname and soname[1] != f"{library}.so.0":
            wrong.append(f"{library}.so.0 calls itself {soname[1]}")


def check_versions(root, library, version, build, wrong):
    nodes = re.findall(r"^(\w[\w.]*) \{", (root / f"cmake/{library}.map").read_text(), re.M)
    newest = f"{library.removeprefix('lib').replace('-', '_').upper()}_{version}"
    if not nodes or nodes[-1] != newest:
        wrong.append(f"cmake/{library}.map ends with {nodes[-1:]}, of version {version} it would be {newest}")
    out = run("nm", "-D", "--defined-only", "--with-symbol-versions", str(build / f"{library}.so.0"))[1]
    found = [line.split()[-1] for line in out.splitlines() if line.split()[1] != "A"]
    for symbol in found:
        name, _, node = symbol.partition("@@")
        if node not in nodes:
            wrong.append(f"{library}.so.0 exports {name} under {node or 'no version'}")
    if not found:
        wrong.append(f"nm shows nothing of {library}.so.0")


def check_alone(header, include, compiler, language, wrong):
    code, _, err = run(*compiler, *WARNINGS, *language, f"-I{include}", "-",
                       text=f"#include <radish/{header}>\n")
    if code:
        wrong.append(f"{header} alone, {' '.join(language)}:\n{err.strip()}")


def main():
    root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    include = root / "include"
    wrong, public, compiles = [], {library: set() for library in ALLOWED}, 0
    headers = {path.name: path.read_text() for path in sorted(include.glob("radish/*.h"))}
    languages = [([sys.argv[3]], ["-x", "c", "-std=c99", "-Wpadded"])]
    if len(sys.argv) > 4 and sys.argv[4]:
        languages.append(([sys.argv[4]], ["-x", "c++", "-std=c++11"]))
    else:
        print("no C++ compiler: the headers were not tried as C++")

    for name, text in headers.items():
        library = library_of(name)
        public[library] |= set(declared(text))
        for compiler, language in languages:
            check_alone(name, include, compiler, language, wrong)
            compiles += 1
        if library == "libradish" and name != "radish.h" and f"#include <radish/{name}>" not in headers["radish.h"]:
            wrong.append(f"radish.h does not include {name}")
        for n, line in enumerate(text.splitlines(), 1):
            if len(line) > 100:
                wrong.append(f"{name}:{n}: {len(line)} columns")
        for comment, struct, body, alias in PARAMS.findall(text):
            begins = bare_code(body).split(";")[0].split() == ["size_t", "struct_size"]
            if not begins and "does not grow" not in re.sub(r"[\s*]+", " ", comment or ""):
                wrong.append(f"{name}: {struct} does not begin with size_t struct_size")
            if struct != alias:
                wrong.append(f"{name}: struct {struct} is typedef {alias}")
    if not all(public.values()) or compiles != len(headers) * len(languages):
        wrong.append("nothing was looked at")
    version = ".".join(re.findall(r"#define RAD_VERSION_(?:MAJOR|MINOR) (\d+)", headers["radish.h"]))
    for library, names in public.items():
        check_symbols(library, names, build, wrong)
        check_versions(root, library, version, build, wrong)
    check_variables(build, wrong)

    for line in wrong:
        print(line)
    print(f"{sum(map(len, public.values()))} functions in {len(headers)} headers: " +
          (f"{len(wrong)} things are wrong" if wrong else "as promised"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
