#!/usr/bin/env python3
"""check_musl.py ROOT OUT [JOBS] - radish with musl instead of glibc, in folder OUT (musl-tools).

 - Every source below src, tests, bench and examples compiles without a warning.
 - libradish links with musl and Debian's libcrypto.a, whose glibc names are in glibc_names.c; the
   examples run, and so do the unit tests that use nothing but libradish's rooms, with cmocka.h here.

The rest is compiled and not linked: Debian has liburing, hiredis, libevent, jansson, PCRE2 and utf8proc
for glibc only.
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys

ROOMS = ("base", "device", "mem", "cache", "hicache")  # libradish
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Wpointer-arith", "-Wvla",
            "-Wno-missing-field-initializers", "-Werror"]
FLAGS = ["-std=gnu17", "-O1", "-fno-math-errno", "-ffp-contract=off", *WARNINGS, "-Wno-psabi"]
HEADERS = ("xxhash.h", "liburing.h", "liburing", "hiredis", "jansson.h", "jansson_config.h", "pcre2.h", "utf8proc.h",
           "zlib.h", "zconf.h", "zmq.h", "event2", "linux", "asm", "asm-generic")  # that do not ask which libc it is
OWN = re.compile(r'^\s*#\s*include\s+"(\w+)/', re.M)
ELSEWHERE = re.compile(r"radish/storage_(file|redis)\.h|<jansson\.h>|\b__wrap_")  # libradish-storage, jansson, or a linker's option
RIGS = re.compile(r'^\s*#\s*include\s+"(\w+\.h)"', re.M)


def find_header(name):
    """In Debian's folder for all machines, or for this one."""
    for folder in (pathlib.Path("/usr/include"), *pathlib.Path("/usr/include").glob("*-linux-gnu")):
        if (folder / name).exists():
            return folder / name
    sys.exit(f"check_musl: no {name}; tools/install-deps.sh long")


def link_headers(out):
    """A folder with what musl's own does not have, and nothing of glibc."""
    folder = out / "include"
    (folder / "openssl").mkdir(parents=True, exist_ok=True)
    links = {folder / name: find_header(name) for name in HEADERS}
    for of in (pathlib.Path("/usr/include/openssl"), find_header("openssl/opensslconf.h").parent):
        links |= {folder / "openssl" / header.name: header for header in of.iterdir()}
    for link, to in links.items():
        link.unlink(missing_ok=True)
        link.symlink_to(to)
    return folder


def machine_flags(root, cc):
    """The instruction sets that CMakeLists.txt names for file names, of them what this machine's compiler
    knows: [(ending, flags)]."""
    rows = re.findall(r'MATCHES "(_\w+)\\\\\.c\$"\)\s+set_source_files_properties\(\S+ PROPERTIES COMPILE_OPTIONS\s+"([^"]+)"',
                      (root / "CMakeLists.txt").read_text())
    sets = [(f"{ending}.c", flags.split(";")) for ending, flags in rows]
    return [(ending, flags) for ending, flags in sets
            if not run([cc, *flags, "-E", "-x", "c", "/dev/null", "-o", "/dev/null"])[0]]


def definitions(root, out):
    """What CMakeLists.txt has sources know of themselves, and of the build."""
    commit = out / "commit"
    code, words = run(["cmake", f"-DSOURCE={root}", f"-DOUT={commit / 'radish_commit.h'}", "-P", root / "cmake/commit.cmake"])
    if code:
        sys.exit(f"check_musl: cmake/commit.cmake: {words}")
    return ["-isystem", commit, f'-DRADISH_SOURCE_DIR="{root}"', f'-DRADISH_SRC="{root}/src"',
            '-DRADISH_BUILD_TYPE="musl"', '-DRADISH_BUILD_SANITIZE=""']


def rooms_of(root, path, seen):
    """The rooms whose headers a test uses, also by way of the tests' own headers."""
    if path in seen or not path.exists():
        return set()
    seen.add(path)
    text = path.read_text()
    rooms = set(OWN.findall(text)) | ({"storage"} if ELSEWHERE.search(text) else set())
    for rig in RIGS.findall(text):
        rooms |= rooms_of(root, path.parent / rig, seen)
    return rooms


def run(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    return done.returncode, done.stdout + done.stderr


def main(root, out, jobs):
    include = link_headers(out)
    by_name = machine_flags(root, "musl-gcc")
    common = ["musl-gcc", *FLAGS, f"-I{root}/include", f"-I{root}/src", f"-I{root}/tests/musl", f"-I{root}/tests",
              f"-I{root}/bench", "-isystem", include, *definitions(root, out)]
    sources = [p for d in ("src/*", "tests", "bench", "examples", "tests/musl") for p in sorted(root.glob(f"{d}/*.c"))]
    objects, failed = {}, []

    def compile_one(source):
        target = out / ("-".join(source.relative_to(root).parts) + ".o")
        extra = next((flags for ending, flags in by_name if source.name.endswith(ending)), [])
        return source, target, run([*common, *extra, "-c", source, "-o", target])

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for source, target, (code, words) in pool.map(compile_one, sources):
            objects[source] = target
            if code:
                failed.append(f"{source.relative_to(root)} does not compile:\n{words}")
    if failed:
        return failed
    library = [objects[s] for s in sources if s.parent.parent.name == "src" and s.parent.name in ROOMS]
    library += [objects[root / "tests/musl/glibc_names.c"]]
    crypto = next(pathlib.Path("/usr/lib").glob("*-linux-gnu/libcrypto.a"))
    programs = [p for p in sorted(root.glob("examples/*.c")) if "<zmq.h>" not in p.read_text()]
    programs += [p for p in sorted(root.glob("tests/test_*.c")) if rooms_of(root, p, set()) <= set(ROOMS)]

    def run_one(source):
        program = out / source.stem
        code, words = run(["musl-gcc", "-o", program, objects[source], *library, crypto, "-lm"])
        if not code:
            code, words = run([program], cwd=root, timeout=3600)
        return source, code, words

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for source, code, words in pool.map(run_one, programs):
            if code:
                failed.append(f"{source.stem} with musl: {code}\n{words[-2000:]}")
    if len(programs) < 20:
        failed.append(f"only {len(programs)} programs; does this script still read includes right?")
    print(f"musl: {len(sources)} files compile, {len(programs)} programs run: {' '.join(p.stem for p in programs)}")
    return failed


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[2]).resolve()
    where.mkdir(parents=True, exist_ok=True)
    wrong = main(pathlib.Path(sys.argv[1]).resolve(), where, int(sys.argv[3]) if len(sys.argv) > 3 else 2)
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)
