#!/usr/bin/env python3
"""check_portable.py ROOT CC - the few places that only some machines can compile stay guarded.

Seen with the compiler at hand: a machine without x86 or glibc is one whose macros are taken away
behind the system's headers. tools/run-ports.sh (make test-long) builds for such machines in earnest.
"""
import pathlib
import subprocess
import sys

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
    print("\n".join(wrong) or "clones and glibc's own functions are guarded")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]))
