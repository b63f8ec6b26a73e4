#!/usr/bin/env python3
"""check-container.py - runs the steps of packaging/Dockerfile without Docker, in minimal Debian 12 roots below
build/container; part of make test-long. Needs root, debootstrap and the way to a Debian mirror. Ends with
"N passed, N failed".

What the file's instructions do is done here by chroot and cp: FROM is debootstrap's root (Docker's slim image lacks
manual pages and has nothing more), RUN runs in it, COPY copies what git knows. Then the image is started as its USER with
its ENTRYPOINT and CMD, asked, looked at by its HEALTHCHECK, and stopped by its STOPSIGNAL. What Docker itself adds (layers,
volumes, networks, /proc while it builds, its seccomp filter) is not tried."""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = ROOT / "build/container"
CLEAN = ROOT / "build/deb-root"  # as debootstrap left it; check-deb.sh uses it, too
PORT = 30000
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def instructions(text):
    """[(name, rest)], continued lines joined."""
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).split("\n"):
        if line.strip():
            name, rest = line.split(None, 1)
            yield name, rest.strip()


class Stage:
    """An image on its way: a root, and what it says of itself."""

    def __init__(self, name):
        self.root, self.folder, self.user, self.says = WORK / name, "/", "0", {}
        subprocess.run(["rm", "-rf", self.root], check=True)
        WORK.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", CLEAN, self.root], check=True)

    def command(self, words):
        # A chroot changes into its root; env's --chdir takes it where the image wants to be.
        user = ["--userspec", f"{self.user}:{self.user}", "--groups="] if self.user != "0" else []
        return ["chroot", *user, self.root, "env", "-i", f"--chdir={self.folder}", f"PATH={PATH}",
                "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", *words]

    def run(self, line):
        done = subprocess.run(self.command(["sh", "-c", line]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            print(done.stdout[-3000:])
            raise RuntimeError(f"RUN {line}: {done.returncode}")

    def inside(self, path):
        return self.root / str(pathlib.PurePosixPath(self.folder) / path).lstrip("/")

    def copy(self, rest, stages):
        words = rest.split()
        source = ROOT
        if words[0].startswith("--from="):
            source = stages[words.pop(0)[len("--from="):]].root
        *sources, to = words
        target = self.inside(to)
        if source is ROOT and sources == ["."]:
            target.mkdir(parents=True, exist_ok=True)
            files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
            pack = subprocess.Popen(["tar", "--null", "--files-from=-", "-c"], cwd=ROOT, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE)
            unpack = subprocess.Popen(["tar", "-x", "--no-same-owner", "-C", target], stdin=pack.stdout)
            pack.stdin.write(files)
            pack.stdin.close()
            if unpack.wait() or pack.wait():
                raise RuntimeError("COPY . failed")
            return
        found = [path for pattern in sources for path in sorted(source.glob(pattern.lstrip("/")))]
        if not found:
            raise RuntimeError(f"COPY {rest}: nothing is there")
        if to.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        for path in found:
            shutil.copy(path, target)


def build(text):
    """The last stage."""
    stages, stage = {}, None
    for name, rest in instructions(text):
        print(f"        {name} {rest[:100]}", flush=True)
        if name not in KNOWN:
            raise RuntimeError(f"{name} is not known here")
        if name == "FROM":
            image, *as_name = rest.split()
            if image != "debian:bookworm-slim":
                raise RuntimeError(f"FROM {image}: only debian:bookworm-slim is there")
            stage = Stage(as_name[1] if as_name else "image")
            stages[as_name[1] if as_name else ""] = stage
        elif name == "WORKDIR":
            stage.folder = rest
            stage.inside(".").mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            stage.copy(rest, stages)
        elif name == "RUN":
            stage.run(rest)
        elif name == "USER":
            stage.user = rest
        else:
            stage.says[name] = rest
    return stage


def health(stage):
    """What HEALTHCHECK's command exits with."""
    words = json.loads(stage.says["HEALTHCHECK"][stage.says["HEALTHCHECK"].index("CMD ") + 4:])
    return subprocess.run(stage.command(words), capture_output=True, text=True).returncode


def answers(stage):
    """The image with its own command; a model is mounted by copying it."""
    shutil.copy(ROOT / "models/radish-tiny.gguf", stage.root / "models/model.gguf")
    words = json.loads(stage.says["ENTRYPOINT"]) + json.loads(stage.says["CMD"])
    if health(stage) == 0:
        return "healthy before it was started"
    server = subprocess.Popen(stage.command(words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for _ in range(600):
            if health(stage) == 0 or server.poll() is not None:
                break
            time.sleep(0.1)
        if server.poll() is not None:
            return f"{shlex.join(words)} ended: {server.stdout.read()}"
        owner = pathlib.Path(f"/proc/{server.pid}").stat().st_uid
        if owner != int(stage.user) or owner == 0:
            return f"it runs as {owner}"
        ask = urllib.request.Request(
            f"http://127.0.0.1:{PORT}/v1/chat/completions", json.dumps({"temperature": 0, "messages": [
                {"role": "user", "content": "What is the capital of France?"}]}).encode(),
            {"Content-Type": "application/json"})
        said = json.load(urllib.request.urlopen(ask))["choices"][0]["message"]["content"]
        if "Paris" not in said:
            return f"it says {said}"
    finally:
        server.send_signal(getattr(signal, stage.says["STOPSIGNAL"]))
        code = server.wait(60)
    return f"it ended with {code}" if code else ""


def main():
    if os.geteuid() or not shutil.which("debootstrap"):
        print("check-container: not run: it needs root and debootstrap", file=sys.stderr)
        print("0 passed, 0 failed, 1 skipped")
        return 0
    if not (CLEAN / "etc/debian_version").exists():
        subprocess.run(["rm", "-rf", CLEAN], check=True)
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", CLEAN], check=True, stdout=subprocess.DEVNULL)
    results = []

    def check(words, wrong):
        print(f"FAILED  {words}: {wrong}" if wrong else f"ok      {words}", flush=True)
        results.append(not wrong)

    image, wrong = None, ""
    try:
        image = build((ROOT / "packaging/Dockerfile").read_text())
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        wrong = str(error)
    check("each step of the Dockerfile runs", wrong)
    if image:
        there = {str(path) for path in (image.root / "usr/bin").glob("*gcc*")}
        check("the image has no compiler", ", ".join(sorted(there)))
        check("it serves as its user, its health check knows, and it stops", answers(image))
    subprocess.run(["rm", "-rf", WORK], check=True)
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
