#!/usr/bin/env python3
"""check_unit.py ROOT RADISH - radish.service keeps what it promises: its exposure by systemd-analyze is 2.5 at most,
and its SystemCallFilter lets the server do what it does.

No unit is started, for there is no systemd in a container: strace tells what a server with all its tiers, TLS and
events calls, and systemd-analyze which calls the filter's sets hold. Needs both programs."""
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

MOST_EXPOSED = 2.5


def output(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def calls_of(name, seen):
    """Of a set of systemd's, or the call of that name."""
    if not name.startswith("@"):
        return {name}
    if name in seen:
        return set()
    seen.add(name)
    lines = [line.strip() for line in output("systemd-analyze", "syscall-filter", "--no-pager", name).splitlines()[1:]]
    return set().union(*(calls_of(line, seen) for line in lines if line and line[0] != "#"))


def allowed(unit):
    """What the unit's SystemCallFilter lines leave, in their order; @default is never refused."""
    left = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", unit, re.M):
        named = set().union(*(calls_of(name, set()) for name in line.lstrip("~").split()))
        left = left - named if line.startswith("~") else left | named
    return left | calls_of("@default", set())


def ask(url, body, context):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, context=context))


def called(root, radish):
    """The calls of a server that uses all it has, from its start to its end."""
    with tempfile.TemporaryDirectory(prefix="radish-unit-") as tmp:
        tmp = pathlib.Path(tmp)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout",
                        tmp / "key", "-out", tmp / "certificate"], capture_output=True, check=True)
        config = tmp / "radish.conf"
        config.write_text((root / "packaging/radish.conf").read_text().replace(
            "/usr/share/radish/", f"{root}/models/").replace("port = 30000", "port = 0") + f"""
enable-hierarchical-cache
hicache-pin-memory
hicache-size = 0.01
hicache-storage-backend = file:{tmp}/pages
max-total-tokens = 4096
ssl-certfile = {tmp}/certificate
ssl-keyfile = {tmp}/key
kv-events-config = {{"publisher": "zmq", "endpoint": "tcp://127.0.0.1:*"}}
""")
        trace = tmp / "trace"
        process = subprocess.Popen(["strace", "-f", "-qq", "-o", trace, radish, "serve", "--config", config],
                                   stdout=subprocess.PIPE, text=True)
        said = ""
        while "curl" not in said:
            line = process.stdout.readline()
            if not line:
                sys.exit(f"the server did not start: {said}")
            said += line
        port = re.search(r"127\.0\.0\.1:(\d+)", said)[1]
        context = ssl.create_default_context(cafile=tmp / "certificate")
        for _ in range(2):
            answer = ask(f"https://localhost:{port}/v1/chat/completions", {
                "messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}, context)
        server = int(trace.read_text().split()[0])
        os.kill(server, signal.SIGHUP)
        time.sleep(0.2)  # nothing tells when it was heard
        os.kill(server, signal.SIGTERM)
        code = process.wait(60)
        process.stdout.close()
        if "Paris" not in json.dumps(answer) or code:
            sys.exit(f"the server answered {answer} and ended with {code}")
        return set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.M))


def main():
    root, radish = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    missing = [name for name in ("systemd-analyze", "strace", "openssl") if not shutil.which(name)]
    if missing:
        sys.exit(f"{', '.join(missing)} is missing: tools/install-deps.sh long")
    unit = (root / "packaging/debian/radish.service").read_text()
    wrong = []
    with tempfile.TemporaryDirectory(prefix="radish-unit-") as tmp:
        path = pathlib.Path(tmp) / "radish.service"
        path.write_text(unit.replace("/usr/bin/radish", str(radish)))  # systemd wants the program to be there
        verified = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
        if verified.returncode or "radish.service" in verified.stderr:
            wrong.append(f"systemd-analyze verify: {verified.stderr}")
        said = output("systemd-analyze", "security", "--offline=true", path)
    exposure = float(re.search(r"exposure level for .*?: ([\d.]+)", said)[1])
    if exposure > MOST_EXPOSED:
        wrong.append(f"its exposure is {exposure}:\n{said}")
    may, does = allowed(unit), called(root, radish)
    if len(may) < 200 or len(does) < 30:
        wrong.append(f"only {len(may)} calls are allowed and {len(does)} were seen")
    if does - may:
        wrong.append(f"its filter refuses what the server calls: {sorted(does - may)}")
    for line in wrong:
        print(line)
    print(f"exposure {exposure}, {len(does)} kinds of calls of {len(may)} that the filter lets through: " +
          (f"{len(wrong)} things are wrong" if wrong else "right"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
