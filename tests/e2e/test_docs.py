#!/usr/bin/env python3
"""Every command that README and docs show (tests/docs_commands.py) is run, from the clone alone; but for spans of code
without options, and curl's within a sentence. It is run in an empty folder that has the clone's folders and the files
that it names; of a server it is seen that it gets ready and ends well. What is not run has a row in NOT_RUN that says
why, and none of them may be without a use."""
import http.client
import os
import pathlib
import re
import shlex
import ssl
import subprocess
import sys
import tempfile
import urllib.parse

from radish_e2e import HANG, RADISH, ROOT, TINY, Server, check, run, without_huge_pages

sys.path.append(str(ROOT / "tests"))
from docs_commands import commands  # noqa: E402

BUILD = pathlib.Path(RADISH).parent
# What a reader puts in the place of these.
STANDS_FOR = [(r"\bMODEL(?:\.gguf)?\b|(?<![\w/-])model\.gguf\b|\bFILE$", "models/radish-tiny.gguf"),
              (r"\bTEXT\b", "text.txt"), (r"\bTRACE(?=\.jsonl\.gz)|\bOUT(?=\.jsonl\.gz|\.rxtrace)", "trace"),
              (r"\bDIR\b", "stored"), (r"/var/cache/radish\b", "stored"),
              (r"\btcp://\*:55\d\d\b", "tcp://127.0.0.1:*"), (r"--host 0\.0\.0\.0", "--host 127.0.0.1"),
              (r" --port 30000\b", ""),
              (r"\[[^]]*\]$|\[--bf16\]", ""), (r" \.\.\.$", "")]

# Commands by what they begin with or hold, and why they are not run here.
NOT_RUN = [
    (r"make (run|test|test-long|bench)\b", "this suite is inside of them, or they are what it is beside"),
    (r"make (install|uninstall)\b", "test_install.py"),
    (r"make deb\b|tools/check-deb", "wants root: make test-long"),
    (r"tools/install-deps", "installs packages"),
    (r"tools/build\.sh", "has built what runs this"),
    (r"(\w+=\S+ )?tools/run-bench\.sh|tools/make-benchmarks\.sh",
     "minutes and a quiet machine: test_generators.py runs what they are made of"),
    (r"tools/gpu-", "test_gpu_verify.py"),
    (r"--device cuda|libcuda-emulated", "test_device.py"),
    (r"tools/train/evaluate\.py", "minutes, and a server beside it"),
    (r"RADISH_TEST_LONG=1 build/release/tests/test_shipped_model", "make test-long"),
    (r"radish bench( MODEL| --what|$)", "minutes: test_bench.py runs each part of it"),
    (r"build/release/bench/bench_(gemm|attention|scan|model)", "minutes of arithmetic: test_bench.py builds on them"),
    (r"tools/send-load\.py", "wants another server: test_generators.py"),
    (r"tools/make-model\.py --shape", "hundreds of megabytes: test_generators.py makes small ones"),
    (r"tools/compare-", "wants other people's templates"),
    (r"radish serve .*(redis:)", "wants a cluster: test_tiers_cluster.py"),
    (r"radish (replay|serve|bench|info)$|radish bench --what scaling$|tools/make-trace\.py --form mooncake$", "names a command only"),
    (r"make (python|wheel)\b", "bindings/python/tests/test_wheel.py"),
    (r"(PEER=\S+ )?(bench/python_side\.py|tools/test-peers\.py|make test-peers)", "minutes, and a checkout of SGLang"),
    (r"\| man -l", "wants man-db: check_man.py looks the pages over"),
    (r"cc engine\.c", "wants an installed radish: test_install.py"),
]
TALKS = re.compile(r"(build/release/)?radish (top|health|inspect cache)$")  # to a server that runs
MAKES = re.compile(r"openssl |tools/make-trace|radish serve .* (file:|--record )")  # what others want: first


def documents():
    return [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
            *sorted((ROOT / "docs").glob("*.md"))]


def reason(line, used):
    for i, (pattern, why) in enumerate(NOT_RUN):
        if re.search(pattern, line):
            used.add(i)
            return why
    return None


def make_folder(folder):
    for name in ("tools", "bench", "models", "tests", "docs", "Makefile"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build").mkdir()
    (folder / "build/release").symlink_to(BUILD)
    (folder / "text.txt").write_text("What is the capital of France?")
    (folder / "t.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    (folder / "m.json").write_text('[{"role": "user", "content": "a"}]')
    (folder / "keys").write_text("KEY\n")


def shell(name, line, folder, env):
    """What is wrong with it: a list of one text, or of none."""
    done = subprocess.run(["sh", "-c", line], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=HANG)
    return [f"{name}\n    {line}: {done.returncode} {done.stdout[-300:]}{done.stderr[-600:]}"] * (done.returncode != 0)


def start(words, folder, env, name):
    """A server of the document's words, until it says that it is ready; it ends with 0."""
    process = subprocess.Popen([*words, "--port", "0"], cwd=folder, env=env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, preexec_fn=without_huge_pages)
    said = ""
    while "curl" not in said:
        line = process.stdout.readline()
        check(line, name, said, "" if line else process.stderr.read())
        said += line
    process.terminate()
    check(process.wait(HANG) == 0, name, process.stderr.read())
    process.stdout.close()
    process.stderr.close()


def ask(line, port, secure=None):
    """What curl would do with these words."""
    words = shlex.split(line)[1:]
    body, headers, url, ca = None, {}, None, None
    while words:
        word = words.pop(0)
        if word == "-d":
            body = words.pop(0).encode()
        elif word == "-H":
            name, value = words.pop(0).split(": ", 1)
            headers[name] = value
        elif word == "--cacert":
            ca = words.pop(0)
        elif word != "-s":
            url = urllib.parse.urlsplit(word if "//" in word else f"http://{word}")
    check((url.scheme == "https") == bool(ca), line)
    connection = http.client.HTTPSConnection("localhost", port, context=ssl.create_default_context(
        cafile=secure / ca), timeout=HANG) if ca else http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)
    connection.request("POST" if body else "GET", f"{url.path}?{url.query}".rstrip("?"), body, headers)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    check(reply.status == 200, line, reply.status, text)
    return text


def test_every_command_runs():
    used, asked, ran, left, wrong = set(), [], 0, set(), []
    with tempfile.TemporaryDirectory(prefix="radish-docs-") as tmp:
        folder = pathlib.Path(tmp)
        make_folder(folder)
        env = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"}
        seen = set()
        shown = [(document, line) for document in documents() for line, is_span in commands(document.read_text())
                 if not is_span or " " in line and not line.startswith("curl ")]
        for document, line in sorted(shown, key=lambda c: not MAKES.match(c[1])):
            why = reason(line, used)
            if why:
                left.add(line)
            if why or line in seen:
                continue
            seen.add(line)
            name = f"{document.name}: {line}"
            if line.startswith("curl ") or TALKS.match(line):
                asked.append((name, line))
                continue
            for pattern, stands in STANDS_FOR:
                line = re.sub(pattern, stands, line)
            if re.match(r"(build/release/)?radish serve ", line) and "--help" not in line:
                start(shlex.split(line), folder, env, name)
                ran += 1
                continue
            wrong += shell(name, line, folder, env)
            ran += 1
        with Server(TINY) as plain:
            for name, line in asked:
                if TALKS.match(line):
                    wrong += shell(name, f"{line} http://127.0.0.1:{plain.port}", folder, env)
                elif "https:" not in line:
                    ask(line, plain.port)
        with Server(TINY, "--ssl-certfile", folder / "server.crt", "--ssl-keyfile", folder / "server.key",
                    "--api-key-file", folder / "keys") as secure:
            for name, line in asked:
                if "https:" in line:
                    ask(line, secure.port, folder)
        print(f"  {ran} run, {len(asked)} asked, {len(left)} left for a reason")
        check(not wrong, "\n".join(wrong))
        check(ran > 20 and len(asked) > 5, ran, asked)
    idle = [NOT_RUN[i][0] for i in range(len(NOT_RUN)) if i not in used]
    check(not idle, "no document has what these rows of NOT_RUN stand for:", idle)


run(globals())
