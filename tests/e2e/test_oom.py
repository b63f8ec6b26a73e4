#!/usr/bin/env python3
"""Memory that runs out while a server answers: the n-th allocation of the process fails, whoever asks
for it (ours, libevent's, jansson's, libcrypto's), or several in a row do. The request in hand is
answered rightly, with an error, or its connection is closed; the server lives on, and the next
request is answered rightly.

RADISH_TEST_LONG=1: 500 points; else some dozens. RADISH_TEST_SEED chooses others."""
import http.client
import json
import mmap
import os
import pathlib
import random
import struct
import tempfile

import radish_e2e
from radish_e2e import HANG, LONG, RADISH, TINY, Server, check, run, skip_script

PROGRAM = pathlib.Path(RADISH).parent / "tests/radish_oom"
if not PROGRAM.exists():
    skip_script("the failing allocator and a sanitizer's exclude each other")
SEED = int(os.environ.get("RADISH_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)
SITES = 64
PROMPT = "A page of the cache is shared by all who begin with the same words. " * 3
CHAT = {"messages": [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Name one."}],
        "max_tokens": 6, "temperature": 0}
TOOL = {"type": "function",
        "function": {"name": "look", "description": "looks", "parameters": {
            "type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}}}
#: Method, path, body; what must agree in the answers is left by `essence`.
REQUESTS = {
    "completion": ("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 6, "temperature": 0}),
    "several": ("POST", "/v1/completions", {"prompt": [PROMPT + "One", "Two", [5, 6, 7]], "n": 2,
                                            "max_tokens": 3, "temperature": 0, "logprobs": 2,
                                            "stop": ["\n\n", "zz"]}),
    "stream": ("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 6, "temperature": 0,
                                           "stream": True,
                                           "stream_options": {"include_usage": True}}),
    "chat": ("POST", "/v1/chat/completions", CHAT),
    "chat_stream": ("POST", "/v1/chat/completions", dict(CHAT, stream=True, logprobs=True,
                                                         top_logprobs=3)),
    "generate": ("POST", "/generate", {"text": PROMPT, "return_logprob": True,
                                       "sampling_params": {"max_new_tokens": 5, "temperature": 0}}),
    "salted": ("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 2, "temperature": 0,
                                           "cache_salt": "tenant a"}),
    "metrics": ("GET", "/metrics", None),
    "info": ("GET", "/server_info", None),
    "models": ("GET", "/v1/models", None),
    "health": ("GET", "/health", None),
    "flush": ("POST", "/flush_cache?timeout=60", None),  # what lost its memory may be being aborted
    "wrong": ("POST", "/v1/completions", {"prompt": 7}),
    "nowhere": ("GET", "/nowhere", None),
}


class Memory:
    """The page in common with the server's allocator; see tests/oom/failing_malloc.c."""

    def __init__(self, path):
        path.write_bytes(bytes(4096))
        self.file = open(path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), 4096)

    def word(self, at):
        return struct.unpack_from("<Q", self.map, 8 * at)[0]

    def arm(self, at, how_many):
        struct.pack_into("<Q", self.map, 8, how_many)
        struct.pack_into("<Q", self.map, 0, at)

    calls = property(lambda self: self.word(2))
    failed = property(lambda self: self.word(3))

    def last_site(self):
        return self.word(4 + (self.failed - 1) % SITES) if self.failed else 0


def ask(port, name):
    """Status and body; None: the connection was closed before the answer was whole."""
    method, path, body = REQUESTS[name]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)
    try:
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"Content-Type": "application/json"} if body is not None else {})
        response = connection.getresponse()
        return response.status, response.read()
    except (http.client.HTTPException, ConnectionError):
        return None
    finally:
        connection.close()


def events(body):
    return [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]


def strip(value):
    """Without what differs from one right answer to the next: names, times, what was cached or guessed."""
    if isinstance(value, dict):
        return {k: strip(v) for k, v in value.items()
                if k not in ("id", "created", "usage", "cached_tokens", "e2e_latency", "rid")
                and not k.startswith(("prompt_tokens_det", "cache", "spec_")) and "latency" not in k}
    return [strip(v) for v in value] if isinstance(value, list) else value


def stream_essence(said):
    """What was said in all, however it was cut into events."""
    choices = [c for e in said if e != "[DONE]" for c in json.loads(e).get("choices", [])]
    text = "".join(c.get("text") or c.get("delta", {}).get("content") or "" for c in choices)
    tokens = [t["token"] for c in choices if c.get("logprobs") for t in c["logprobs"]["content"]]
    reasons = [c["finish_reason"] for c in choices if c.get("finish_reason")]
    usage = [json.loads(e)["usage"]["completion_tokens"] for e in said
             if e != "[DONE]" and json.loads(e).get("usage")]
    return text, tokens, reasons, usage, said[-1:] == ["[DONE]"]


def essence(name, answer):
    status, body = answer
    if status >= 400:
        return status, None
    if "stream" in name:
        return status, stream_essence(events(body))
    if name == "metrics":
        return status, sorted({line.split("{")[0].split(" ")[0] for line in
                               body.decode().splitlines() if line and line[0] != "#"})
    if name in ("info", "health", "flush"):
        try:
            return status, sorted(json.loads(body))
        except (ValueError, TypeError):
            return status, None
    return status, strip(json.loads(body))


def is_error(name, answer):
    """An error of ours, in the shape that clients expect; in a stream as its last event."""
    status, body = answer
    if status >= 400:
        if not body:
            return True
        return "error" in json.loads(body)
    return "stream" in name and any('"error"' in e for e in events(body))


def where(site, maps):
    for line in maps:
        words = line.split()
        begin, end = (int(x, 16) for x in words[0].split("-"))
        if begin <= site < end and len(words) > 5:
            return f"{words[5]}+{site - begin + int(words[2], 16):#x}"
    return f"{site:#x}"


def see_it_lives(server, answer, what):
    if answer is None and server.process.poll() is not None:
        log = server.process.stderr.read().decode()
        check(False, "the server died:", server.process.returncode, what, log)


def play(points):
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    with tempfile.TemporaryDirectory(prefix="radish-oom-") as tmp:
        memory = Memory(pathlib.Path(tmp) / "control")
        os.environ["RADISH_OOM"] = tmp + "/control"
        os.environ["MALLOC_ARENA_MAX"] = "2"
        radish_e2e.RADISH = str(PROGRAM)
        with Server(TINY, "--threads", 1, "--max-total-tokens", 2048, "--page-size", 4,
                    "--enable-hierarchical-cache", "--hicache-storage-backend",
                    f"file:{tmp}/store") as server:
            maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text().splitlines()
            right, cost = {}, {}
            for name in REQUESTS:
                for _ in range(2):  # the second finds what there is to be found
                    before = memory.calls
                    answer = ask(server.port, name)
                    check(answer is not None, name)
                    right[name] = essence(name, answer)
                    cost[name] = memory.calls - before
            outcomes = {"right": 0, "error": 0, "closed": 0, "not reached": 0}
            names = list(REQUESTS)
            for point in range(points):
                name = names[point % len(names)]
                at = 1 + rng.randrange(max(cost[name], 1))
                how_many = rng.choice((1, 1, 1, 3, 20, 10**9))  # the last: all from there on
                had = memory.failed
                memory.arm(at, how_many)
                answer = ask(server.port, name)
                memory.arm(0, 0)
                what = (f"point {point}: {name}, allocation {at} of {cost[name]} and {how_many - 1} "
                        f"more, {where(memory.last_site(), maps) if memory.failed > had else 'none'}")
                see_it_lives(server, answer, what)
                if answer is None:
                    outcome = "closed"
                elif essence(name, answer) == right[name]:
                    outcome = "right" if memory.failed > had else "not reached"
                else:
                    check(is_error(name, answer), what, answer, right[name])
                    outcome = "error"
                outcomes[outcome] += 1
                again = rng.choice(names)
                answer = ask(server.port, again)
                see_it_lives(server, answer, what)
                check(answer is not None and essence(again, answer) == right[again],
                      "the next request:", again, answer, right[again], what)
            print(outcomes, f"allocations a request: {cost}")
            check(outcomes["not reached"] < points, outcomes)


def test_memory_that_runs_out_costs_a_request():
    play(500 if LONG else 42)


if __name__ == "__main__":
    run(globals())
