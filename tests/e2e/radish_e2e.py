"""What the end-to-end tests share: where things are, a server to talk to, and checks.

    RADISH           the program (default build/release/radish)
    RADISH_TESTMADE  what tests/made/make.py made (default build/testmade; made where it is missing)
    RADISH_TESTDATA  test data outside the repository (default ../shared/data), which only adds cases

A test is a function whose name starts with test_; run(globals()) calls them in order and
ends the process; those marked @long_run only with RADISH_TEST_LONG=1. A test whose machine lacks
what it needs calls skip(why); one that the whole script needs calls skip_script(why). Both are
counted and named by tools/run-tests.sh.
"""
import ctypes
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
RADISH = os.environ.get("RADISH", str(ROOT / "build/release/radish"))
DATA = pathlib.Path(os.environ.get("RADISH_TESTDATA", str(ROOT.parent / "shared/data")))
MADE = pathlib.Path(os.environ.get("RADISH_TESTMADE", str(ROOT / "build/testmade")))
STORIES = MADE / "story.gguf"  # its SentencePiece vocabulary has 512 tokens, its context too
LONG = os.environ.get("RADISH_TEST_LONG", "0") not in ("", "0")
TINY = ROOT / "models/radish-tiny.gguf"
EMULATED = pathlib.Path(RADISH).parent / "tests/cuda/libcuda-emulated.so"  # a GPU's driver
HANG = 300  # seconds: nothing takes so long, however busy the machine is, unless it hangs


def allow_many_files():
    """Tests hold more than 1,000 connections, a Debian login may have 1,024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 4096:
        most = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


allow_many_files()

# What is tested is the CPU, also where there is a GPU; tests of a GPU name a library themselves.
os.environ.setdefault("RADISH_LIBCUDA", "none")


if "RADISH_TESTMADE" not in os.environ and not STORIES.exists():
    subprocess.run([sys.executable, str(ROOT / "tests/made/make.py"), str(MADE)], check=True)


class Skip(Exception):
    """What this machine cannot do."""


def skip(why):
    raise Skip(why)


def note_skip(test, why):
    print(f"skipped {test}: {why}", flush=True)
    if os.environ.get("RADISH_TEST_SKIPS"):
        with open(os.environ["RADISH_TEST_SKIPS"], "a") as f:
            f.write(f"{pathlib.Path(sys.argv[0]).stem} {test}: {why}\n")


def skip_script(why):
    note_skip("(all of it)", why)
    sys.exit(77)


def long_run(test):
    """For a test whose short form is another one."""
    test.long_run = True
    return test


def story_golden():
    """[{prompt, prompt_ids, last_prompt_logits, greedy_ids}] of STORIES: numpy's answers."""
    return json.loads((MADE / "story.golden.json").read_text())["cases"]


def radish(*args, stdin=b"", want=0, timeout=1000, env=None):
    """Runs the program, `env`: variables besides our own; returns (stdout, stderr) as text after checking
    the exit code."""
    done = subprocess.run([RADISH, *map(str, args)], input=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=timeout, env={**os.environ, **(env or {})})
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    if done.returncode != want:
        raise AssertionError(f"radish {args}: exit {done.returncode}, wanted {want}\n{out}\n{err}")
    return out, err


def without_huge_pages():
    """For a child: the kernel puts huge pages in behind a program's back, and what it holds seems to
    grow by megabytes."""
    PR_SET_THP_DISABLE = 41
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def can_populate():
    """Whether the kernel gives memory before it is written: Linux 5.14 does."""
    return tuple(int(x) for x in re.findall(r"\d+", os.uname().release)[:2]) >= (5, 14)


def free_port():
    """Somebody else may take it meanwhile."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """`with Server(model, "--page-size", "16") as s:`; a stop must end it with exit code 0.

    A model of None is in a config file. Without huge pages, unless it is there to be timed. `env`: variables besides our own."""

    def __init__(self, model, *args, huge_pages=False, env=None):
        self.env = {**os.environ, **(env or {})}
        self.before = None if huge_pages else without_huge_pages
        self.args = [RADISH, "serve", *([model] if model else []), "--port", "0", *args]
        self.args = [str(arg) for arg in self.args]

    def __enter__(self):
        self.process = subprocess.Popen(self.args, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        preexec_fn=self.before, env=self.env)
        self.banner = ""
        while "curl" not in self.banner:
            line = self.process.stdout.readline().decode()
            if not line:
                raise AssertionError("the server ended: " + self.process.stderr.read().decode())
            self.banner += line
        self.port = int(re.search(r"https?://127\.0\.0\.1:(\d+)", self.banner).group(1))
        return self

    def __exit__(self, kind, value, trace):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(HANG)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("the server did not stop")
        self.log = stderr = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        if kind is None and self.process.returncode != 0:
            raise AssertionError(f"the server ended with {self.process.returncode}: {stderr}")

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG)

    def raw(self, method, path, body=None, headers=None):
        connection = self.connect()
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response, data

    def ask(self, path, body, want=200):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        response, answer = self.raw("POST", path, data, {"Content-Type": "application/json"})
        if response.status != want:
            raise AssertionError(f"{path} {data[:200]}: {response.status}, wanted {want}: {answer}")
        return json.loads(answer)

    def get(self, path, want=200):
        response, answer = self.raw("GET", path)
        check(response.status == want, path, response.status, answer)
        return json.loads(answer)

    def stream(self, path, body):
        """The data: objects of an answer; the last line must be [DONE]."""
        connection = self.connect()
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        check(response.status == 200, response.status, body)
        check(response.getheader("Content-Type").startswith("text/event-stream"))
        lines = [line[6:] for line in response.read().decode().split("\n")
                 if line.startswith("data: ")]
        connection.close()
        check(lines[-1] == "[DONE]", lines[-1])
        return [json.loads(line) for line in lines[:-1]]

    def figures(self):
        return self.get("/server_info")["internal_states"][0]

    def metrics(self):
        return self.raw("GET", "/metrics")[1].decode()

    def metric_values(self):
        """{name: the last of its values}"""
        lines = self.metrics().splitlines()
        return {line.split("{")[0]: float(line.split()[-1]) for line in lines if line and line[0] != "#"}

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def await_populated(self, wanted):
        """Returns how much of the KV pool is ready once it is that many bytes, or a token less."""
        wanted -= self.get("/server_info")["kv_bytes_per_token"]
        until = time.monotonic() + HANG
        while True:
            ready = self.figures()["kv_populated_bytes"]
            if ready > wanted:
                return ready
            check(time.monotonic() < until, "not ready", ready, wanted)
            time.sleep(0.01)

    def await_memory(self):
        """Of the KV pool of a server that was just started, as far as it is made ready."""
        info = self.get("/server_info")
        pool = info["max_total_num_tokens"] * info["kv_bytes_per_token"]
        if can_populate():
            self.await_populated(min(pool, 1e9))

    def wait_idle(self):
        """Returns the figures once nothing runs or waits; every slot must then be free or cached, but for
        those that a transfer between the tiers holds until it ends."""
        until = time.monotonic() + HANG
        while True:
            figures = self.figures()
            free = figures["available_tokens"] + figures["evictable_tokens"]
            copies = figures.get("transfers_under_way") and free != figures["max_total_num_tokens"]
            if not figures["num_running_reqs"] and not figures["num_queue_reqs"] and not copies:
                break
            check(time.monotonic() < until, "still busy", figures)
            time.sleep(0.01)
        cached = figures["evictable_tokens"] + figures["protected_tokens"]
        check(figures["available_tokens"] + cached == figures["max_total_num_tokens"], figures)
        check(figures["held_tokens"] == 0 and figures["protected_tokens"] == 0, figures)
        return figures


def check(condition, *words):
    if not condition:
        raise AssertionError(" ".join(map(str, words)))


def run(names):
    failed = 0
    for name, test in list(names.items()):
        if not name.startswith("test_") or (len(sys.argv) > 1 and sys.argv[1] not in name):
            continue
        if getattr(test, "long_run", False) and not LONG:
            continue
        start = time.monotonic()
        try:
            test()
            print(f"ok      {name} ({time.monotonic() - start:.2f} s)", flush=True)
        except Skip as why:
            note_skip(name, why)
        except Exception:
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    sys.exit(1 if failed else 0)
