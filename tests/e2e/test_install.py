#!/usr/bin/env python3
"""What `make install` leaves is enough for others: the examples build against it with
pkg-config and with CMake's find_package, shared and static, and run.

It is installed into a DESTDIR and then moved elsewhere, so nothing in it can depend on
the build tree or on the prefix. RADISH names the built program; the build is beside it.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RADISH", ROOT / "build/release/radish")).resolve().parent
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.c") if "<zmq.h>" not in path.read_text())
STRICT = ["-O1", "-Wall", "-Wextra", "-pedantic", "-Werror"]
STORAGE_PROGRAM = """
#include <radish/storage_file.h>
#include <stdlib.h>
#include <string.h>
int main(void)
{
    char dir[] = "/tmp/radish-installed-XXXXXX";
    rad_storage_file_params params = {.struct_size = sizeof params, .dir = mkdtemp(dir)};
    rad_storage store;
    rad_error err;
    if (rad_storage_file_open(NULL, &params, &store, &err)) return 1;
    store.ops->close(store.self);
    char command[64] = "rm -r ";
    return system(strcat(command, dir));
}
"""
VERSION_PROGRAM = """
#include <radish/radish.h>
#include <stdio.h>
int main(void)
{
    printf("%s %s\\n", RAD_VERSION_STRING, rad_version_string());
    return rad_version() != RAD_VERSION;
}
"""


def run(*command, env=None, text=None):
    """The output; a failure ends the test with all that was said."""
    done = subprocess.run([str(word) for word in command], env={**os.environ, **(env or {})},
                          input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} gave {done.returncode}:\n{done.stdout}")
    return done.stdout


def cache_value(name):
    found = re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    return found[1] if found else ""


def header_version():
    text = (ROOT / "include/radish/radish.h").read_text()
    return ".".join(re.search(rf"#define RAD_VERSION_{part} (\d+)", text)[1]
                    for part in ("MAJOR", "MINOR", "PATCH"))


def install(tmp):
    """The tree, where nobody said it would be."""
    run("cmake", "--install", BUILD, "--prefix", "/opt/radish", env={"DESTDIR": str(tmp / "stage")})
    shutil.move(tmp / "stage/opt/radish", tmp / "moved")
    return tmp / "moved"


def check_files(prefix, lib, version):
    there = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    wanted = {"bin/radish", "share/man/man1/radish.1", "share/bash-completion/completions/radish",
              "share/fish/vendor_completions.d/radish.fish", "share/doc/radish/LICENSE"}
    wanted |= {f"share/man/man1/{path.name}" for path in (BUILD / "made/man").iterdir()}
    wanted |= {f"include/radish/{path.name}" for path in (ROOT / "include/radish").glob("*.h")}
    wanted |= {f"{lib}/{name}" for name in (
        "libradish.a", "libradish.so", "libradish.so.0", f"libradish.so.{version}",
        "libradish-storage.a", "libradish-storage.so", "libradish-storage.so.0",
        f"libradish-storage.so.{version}", "pkgconfig/radish.pc", "pkgconfig/radish-storage.pc",
        "cmake/radish/radishConfig.cmake",
        "cmake/radish/radishConfigVersion.cmake", "cmake/radish/radishTargets.cmake")}
    assert wanted <= there, f"not installed: {sorted(wanted - there)}"
    python = {path.name for path in (ROOT / "bindings/python/radish").iterdir()} | {"_core.abi3.so"}
    packages = {name for name in there if re.search(r"/python3\.\d+/(dist|site)-packages/radish/", name)}
    if packages:  # where python3-dev was there
        assert {pathlib.Path(name).name for name in packages} == python, sorted(packages)
    extra = {name for name in there - wanted - packages
             if not name.startswith(f"{lib}/cmake/radish/radishTargets-")}
    assert not extra, f"installed, and nobody asked for it: {sorted(extra)}"
    for name in there:
        if name.endswith((".pc", ".cmake")):
            text = (prefix / name).read_text()
            assert str(BUILD) not in text and str(ROOT) not in text, f"{name} names the build tree"
    said = run(prefix / "bin/radish", "--version")
    assert said.splitlines()[0] == f"radish {version}", said


def check_pkg_config(prefix, lib, version, tmp):
    env = {"PKG_CONFIG_PATH": str(prefix / lib / "pkgconfig")}
    assert run("pkg-config", "--modversion", "radish", env=env).strip() == version
    shared = run("pkg-config", "--cflags", "--libs", "radish", env=env).split()
    static = run("pkg-config", "--static", "--cflags", "--libs", "radish", env=env).split()
    runtime = {"LD_LIBRARY_PATH": str(prefix / lib)}
    for source in EXAMPLES:
        out = tmp / source.stem
        run("cc", "-std=c11", *STRICT, source, *shared, "-o", out)
        assert "[libradish.so.0]" in run("readelf", "-d", out), "not linked by its soname"
        run(out, env=runtime)
        run("cc", "-std=c11", *STRICT, source, "-static", *static, "-o", out)
        run(out)
    archive = run("pkg-config", "--variable=static_library", "radish", env=env).strip()
    for compiler, language in (("cc", "c"), ("c++", "c++")):
        if not shutil.which(compiler):
            print(f"no {compiler} here")
            continue
        out = tmp / "version"
        run(compiler, "-x", language, *STRICT, "-", "-x", "none", *shared, "-o", out,
            text=VERSION_PROGRAM)
        assert run(out, env=runtime).split() == [version, version]
    for linking, words in (("shared", ["--libs"]), ("static", ["--static", "--libs"])):
        flags = run("pkg-config", "--cflags", *words, "radish-storage", env=env).split()
        out = tmp / "storage"
        run("cc", "-x", "c", "-D_DEFAULT_SOURCE", "-std=c11", "-", "-x", "none",
            *(["-static"] if linking == "static" else []), *flags,
            f"-Wl,-rpath-link,{prefix / lib}", "-o", out, text=STORAGE_PROGRAM)
        run(out, env=runtime)
    # What is hidden in the archive is nobody's business: an engine may have such names.
    run("cc", "-x", "c", "-", "-x", "none", f"-I{prefix}/include", archive, "-lcrypto", "-pthread",
        "-o", out,
        text=VERSION_PROGRAM + "void heap_push(void) {}\nvoid map_insert(void) {}\n"
                               "void rad_panic(void) {}\n")
    assert run(out).split() == [version, version]


def check_find_package(prefix, tmp):
    for static in ("OFF", "ON"):
        build = tmp / "cmake"
        run("cmake", "-S", ROOT / "examples", "-B", build, "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={prefix}", f"-DRADISH_EXAMPLES_STATIC={static}")
        run("cmake", "--build", build)
        for source in EXAMPLES:
            out = build / source.stem
            assert ("[libradish.so.0]" in run("readelf", "-d", out)) == (static == "OFF")
            run(out)


def main():
    if cache_value("RADISH_SANITIZE"):
        print("skipped: a build with sanitizers is not installed")
        return 77
    assert EXAMPLES
    version, lib = header_version(), cache_value("CMAKE_INSTALL_LIBDIR")
    with tempfile.TemporaryDirectory(prefix="radish-install-") as name:
        tmp = pathlib.Path(name)
        prefix = install(tmp)
        check_files(prefix, lib, version)
        check_pkg_config(prefix, lib, version, tmp)
        check_find_package(prefix, tmp)
    print(f"radish {version}: {len(EXAMPLES)} examples, shared and static, pkg-config and CMake")
    return 0


if __name__ == "__main__":
    sys.exit(main())
