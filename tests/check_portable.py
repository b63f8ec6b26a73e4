#!/usr/bin/env python3
"""check_portable.py ROOT CC - the few places that only some machines can compile stay guarded.

Seen with the compiler at hand: a machine without x86 or glibc is one whose macros are taken away
behind the system's headers. tools/run-ports.sh (make test-long) builds for such machines in earnest; what
tests/musl/check_musl.py gives a compiler in CMake's place is enough for the sources that CMakeLists.txt tells something.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "musl"))
import check_musl

READ_WORDS = """#include "base/base.h"
#include <stddef.h>
#include <stdint.h>
{undo}
#include "base/read_words.h"
uint64_t words(const uint64_t *p, size_t n);
uint64_t words(const uint64_t *p, size_t n) {{ return read_words(p, n); }}
"""
# What musl does not have, or not in every version that is about.
POISON = """#define _GNU_SOURCE
#include <liburing.h>
#include <pthread.h>
#include <sys/uio.h>
#pragma GCC poison pthread_rwlockattr_setkind_np preadv2
#undef __GLIBC__
#include "{source}"
"""


def compiled(root, cc, text, *flags):
    """Assembly of a text; words and an end where it does not compile."""
    done = subprocess.run([cc, "-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{root}/include", f"-I{root}/src",
                           *flags, "-S", "-x", "c", "-o", "-", "-"], input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"does not compile with {flags}:\n{text}\n{done.stderr}")
    return done.stdout


def has_clones(root, cc, undo, *flags):
    """Whether read_words is chosen by the loader, with a resolver (an ifunc)."""
    return "indirect_function" in compiled(root, cc, READ_WORDS.format(undo=undo), *flags)


def told(root):
    """Sources that know something from CMakeLists.txt: a definition, the commit, instructions."""
    lists = "".join(path.read_text() for path in [root / "CMakeLists.txt", *root.glob("*/CMakeLists.txt")])
    words = {*re.findall(r"\bRADISH_\w+(?==\\?\")", lists), "<radish_commit.h>", "/ptx_text.h\""}
    return [path for path in [*root.glob("src/*/*.c"), *root.glob("tests/*.c")]
            if path.stem.endswith(("_dotprod", "_i8mm")) or any(word in path.read_text() for word in words)]


def musl_flags(root, cc):
    """What a source of those says to check_musl's flags."""
    with tempfile.TemporaryDirectory() as out:
        common = [cc, *check_musl.FLAGS, f"-I{root}/include", f"-I{root}/src", f"-I{root}/tests",
                  *check_musl.definitions(root, pathlib.Path(out))]
        by_name = check_musl.machine_flags(root, cc)
        for source in told(root):
            extra = next((flags for ending, flags in by_name if source.name.endswith(ending)), [])
            code, words = check_musl.run([*common, *extra, "-fsyntax-only", source])
            if code:
                yield f"{source.relative_to(root)} with check_musl.py's flags:\n{words[:2000]}"


def main(root, cc):
    macros = subprocess.run([cc, "-dM", "-E", "-include", "stdint.h", "-x", "c", "/dev/null"], capture_output=True,
                            text=True, check=True).stdout
    wrong = []
    if has_clones(root, cc, "") != ("__x86_64__ " in macros and "__GLIBC__ " in macros):
        wrong.append("read_words.h: clones on x86 with glibc, and only there")
    for why, undo, *flags in [("not x86", "#undef __x86_64__"), ("not glibc", "#undef __GLIBC__"),
                              ("the resolver would be instrumented", "", "-fsanitize=thread"),
                              ("the resolver would be instrumented", "", "-fsanitize=address")]:
        if has_clones(root, cc, undo, *flags):
            wrong.append(f"read_words.h: clones although {why}")
    for path in sorted((root / "src").rglob("*.[ch]")):
        text = path.read_text()
        if "target_clones" in text and path.name != "read_words.h":
            wrong.append(f"{path.relative_to(root)}: target_clones belong to read_words.h, which guards them")
        if path.suffix == ".c" and ("setkind_np" in text or "preadv2" in text):
            compiled(root, cc, POISON.format(source=path))
    wrong += musl_flags(root, cc)
    print("\n".join(wrong) or "clones and glibc's own functions are guarded")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]))
