#!/usr/bin/env python3
"""check_npm.py ROOT - `make test` takes clients from npm when there is an npm, also one that came later.

A copy of Makefile and tools/install-clients.sh, and a PATH with an npm and a node of our own, or without."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

NEEDED = ["sh", "make", "dirname", "sed", "mkdir", "touch", "cp", "rm"]
NPM = """#!/bin/sh
echo "$@" >>'{work}/asked'
[ ! -f '{work}/unreachable' ] && mkdir node_modules
"""


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def wrong(root, work):
    """What does not go as it should, else nothing."""
    for name in ["Makefile", "tools/install-clients.sh", "tests/clients/package.json", "tests/clients/package-lock.json"]:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, work / name)
    path, done = work / "bin", work / "build/clients/done"
    path.mkdir()
    for name in NEEDED:
        (path / name).symlink_to(shutil.which(name))

    def make():
        """What it says, and how often npm was asked until then."""
        ran = subprocess.run(["make", "build/clients/done"], cwd=work, env={"PATH": str(path)}, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
        asked = work / "asked"
        return f"{ran.stdout}{ran.returncode or ''}", len(asked.read_text().splitlines()) if asked.exists() else 0

    for what, start in [("npm", lambda: None), ("node 20", lambda: program(path / "npm", NPM.format(work=work))),
                        ("this is 18", lambda: program(path / "node", "#!/bin/sh\necho v18.19.0\n"))]:
        start()
        for _ in range(2):  # it is said each time
            said, asked = make()
            if what not in said or "\n" in said[:-1] or asked or done.exists():
                yield f"{what}: it says {said!r}, asks npm {asked} times"
    program(path / "node", "#!/bin/sh\necho v20.1.0\n")
    (work / "unreachable").touch()
    said, asked = make()
    if "tools/install-clients.sh clients tries again" not in said or asked != 1 or "without" not in done.read_text():
        yield f"no registry: it says {said!r}, asks npm {asked} times"
    said, asked = make()
    if asked != 1:
        yield f"no registry: the next one asks it again, {said!r}"
    (work / "unreachable").unlink()
    subprocess.run(["tools/install-clients.sh", "clients"], cwd=work, env={"PATH": str(path)}, check=True)
    said, asked = make()
    if asked != 2 or done.read_text() != "with packages\n" or not (work / "build/clients/node_modules").is_dir():
        yield f"a registry: it says {said!r}, asks npm {asked} times"


def main(root):
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        print(f"not run: there is no {', '.join(missing)}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        found = list(wrong(root, pathlib.Path(folder)))
    print("\n".join(found) or "npm is asked once, and when it comes later")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
