#!/usr/bin/env python3
"""check_deps.py ROOT - `make` installs what CMake will ask for.

Everything that a CMakeLists.txt names as REQUIRED must be in the list of packages that
tools/install-deps.sh installs for a plain build: configuring looks for all of it, also for
what only the tests use.
"""
import pathlib
import re
import sys

# What CMake asks for -> the Debian package that has it.
PACKAGES = {"PkgConfig": "pkg-config", "Threads": "libc6-dev", "XXHASH_INCLUDE_DIR": "libxxhash-dev",
            "LIBEVENT": "libevent-dev", "JANSSON": "libjansson-dev", "PCRE2": "libpcre2-dev",
            "UTF8PROC": "libutf8proc-dev", "CRYPTO": "libssl-dev", "SSL": "libssl-dev", "ZLIB": "zlib1g-dev", "CMOCKA": "libcmocka-dev",
            "URING": "liburing-dev", "HIREDIS": "libhiredis-dev",
            "PYTHON3": "python3"}
ASKS = re.compile(r"^\s*(?:pkg_check_modules|find_\w+)\((\w+)[^)]*\bREQUIRED\b", re.M)


def main(root):
    script = (root / "tools/install-deps.sh").read_text()
    build = re.search(r'^build="([^"]*)"', script, re.M).group(1).split()
    wrong, asked = [], set()
    for path in [root / "CMakeLists.txt", *root.glob("*/CMakeLists.txt")]:
        for name in ASKS.findall(path.read_text()):
            if name == "radish":
                continue  # the examples, built against what was installed
            asked.add(name)
            package = PACKAGES.get(name)
            if not package:
                wrong.append(f"{path.relative_to(root)}: which package has {name}?")
            elif package not in build:
                wrong.append(f"{path.relative_to(root)}: {name} wants {package}, "
                             "which `make` does not install")
    if len(asked) < 5:
        wrong.append(f"only {sorted(asked)} found; does this script still read CMake right?")
    print("\n".join(wrong) or f"{len(asked)} packages are installed before CMake asks for them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
