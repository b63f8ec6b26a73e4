#!/usr/bin/python3
"""make-wheel.py BUILT OUT - packs the Python package that CMake built in BUILT (build/release/python)
into a wheel in OUT, and prints its name. Needs nothing but Python; the same files give the same bytes.

The tag cp311-abi3 says that Python 3.11 and all later ones can use it. The platform is this machine's:
the module needs its C library and libcrypto.so.3."""
import base64
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SUMMARY = "Prefix-sharing KV cache for inference engines: RadixAttention's cache as a library"


def version():
    header = (ROOT / "include/radish/radish.h").read_text()
    return ".".join(re.search(rf"#define RAD_VERSION_{part} (\d+)", header)[1]
                    for part in ("MAJOR", "MINOR", "PATCH"))


def stripped(path):
    """Without what only debuggers read, where there is binutils."""
    if path.suffix != ".so" or not shutil.which("strip"):
        return path.read_bytes()
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run(["strip", "--strip-unneeded", "-o", copy.name, path], check=True)
        return pathlib.Path(copy.name).read_bytes()


def main(built, out):
    package = pathlib.Path(built, "radish")
    if not (package / "_core.abi3.so").exists():
        sys.exit(f"make-wheel: {package}/_core.abi3.so is not there: the module was not built "
                 "(python3-dev is missing?)")
    number = version()
    tag = f"cp311-abi3-{re.sub('[-.]', '_', sysconfig.get_platform())}"
    info = f"radish-{number}.dist-info"
    files = {f"radish/{path.relative_to(package)}": stripped(path)
             for path in sorted(package.rglob("*")) if path.is_file() and "__pycache__" not in path.parts}
    files[f"{info}/METADATA"] = (f"Metadata-Version: 2.1\nName: radish\nVersion: {number}\nSummary: {SUMMARY}\n"
                                 "Requires-Python: >=3.11\nLicense-File: LICENSE\n").encode()
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files[f"{info}/WHEEL"] = ("Wheel-Version: 1.0\nGenerator: make-wheel\nRoot-Is-Purelib: false\n"
                              f"Tag: {tag}\n").encode()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()

    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    wheel = pathlib.Path(out, f"radish-{number}-{tag}.whl")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(entry, data)
    print(wheel)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
