#!/usr/bin/env python3
"""A server under all kinds of load at once, for long: no answer is wrong, nothing is lost, nothing grows.

    RADISH_SOAK_SECONDS  seconds of load: 1,800 in long runs, else 2
    RADISH_SOAK_SEED     printed by each run; the same works again, in another order of arrival
    RADISH_SOAK_ONLY     names of works with commas between them: no others

The server has a pool that is much too small, a host tier, a store that is too small as well, keys, sessions and drafts.
Clients (soak_works.py) talk, stream, leave, abort, ask for forms and several answers, foretell, flush and send
rubbish. Every so many answers are compared, token by token and bit by bit of their logprobs, with those of
a second server, which has no cache and guesses nothing. Now and then all pause: then each slot must have
its owner, by the server's own check, and memory, threads and files are looked at.
"""
import json
import os
import pathlib
import random
import re
import statistics
import tempfile
import time

from radish_e2e import HANG, LONG, TINY, Server, check, run
from soak_works import TEMPLATE, WORKS, Load

SECONDS = float(os.environ.get("RADISH_SOAK_SECONDS") or (1800 if LONG else 2))
SEED = int(os.environ.get("RADISH_SOAK_SEED") or random.SystemRandom().randrange(10 ** 6))
ONLY = [name for name in os.environ.get("RADISH_SOAK_ONLY", "").split(",") if name]
CLIENTS = 10
ROUND = 60  # seconds between two pauses
COMPARED = 6  # one of so many answers
GROWTH = 0.05  # of the resident memory, once the first sixth of the run or five minutes are over
KEYS = ["ann", "bob", "carol"]
POOL = 4096  # two of the model's contexts: 10 clients' prompts do not fit
STORE = 40_000_000


class Keyed(Server):
    """A server whose administrator asks."""

    def __init__(self, *args, key=None, **more):
        super().__init__(*args, **more)
        self.key = key

    def raw(self, method, path, body=None, headers=None):
        key = {"Authorization": "Bearer " + self.key} if self.key else {}
        return super().raw(method, path, body, {**key, **(headers or {})})

    def numbers(self):
        """The server's process, seen from outside."""
        process = pathlib.Path(f"/proc/{self.process.pid}")
        status = (process / "status").read_text()
        links = []
        for link in (process / "fd").iterdir():
            try:
                links.append(os.readlink(link))
            except FileNotFoundError:
                pass  # closed meanwhile
        sockets = sum(link.startswith("socket:") for link in links)
        return {"rss": self.resident_bytes(), "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),
                "sockets": sockets, "files": len(links) - sockets}


class Soak(Load):
    def __init__(self, server, judge):
        super().__init__(server, server.key, ONLY or sorted(WORKS))
        self.server, self.judge, self.history = server, judge, []
        self.sockets = server.numbers()["sockets"]  # what listens

    def compare(self, rng, path, cold, told, facts, asked):
        """Of the first and some later answers: what the other server says is the same."""
        if self.counts["compared"] and rng.randrange(COMPARED):
            return
        want = facts(self.judge.ask(path, cold))
        self.count("compared")
        check(told == want, "NOT THE COLD ANSWER", path, json.dumps(asked), "told", told, "cold", want)

    def load(self, seconds):
        self.run(seconds, [(KEYS[n % len(KEYS)], random.Random(f"{SEED} {n} {len(self.history)}"))
                           for n in range(CLIENTS)])
        ended = self.server.process.poll()
        if ended is not None:
            self.failures.append(f"the server ended with {ended}: {self.server.process.stderr.read().decode()}")
        check(not self.failures, f"seed {SEED}\n" + "\n".join(self.failures))

    def pause(self):
        """Nothing runs: whose is what? Returns the server's figures and the numbers of its process."""
        until = time.monotonic() + HANG
        checks = self.server.figures()["self_checks"]
        while True:
            figures, numbers = self.server.figures(), self.server.numbers()
            # One round of checks may have begun before. What is computed once more has pages.
            if not figures["sessions_open"] and not figures["verify_pending"] and \
                    figures["self_checks"] >= checks + 2 and numbers["sockets"] <= self.sockets:
                break
            check(time.monotonic() < until, "sessions or sockets stay open, or nothing is checked", figures, numbers)
            time.sleep(0.02)
        figures = self.server.wait_idle()
        for name in "self_check_violations", "verify_mismatches", "sessions_held":
            check(figures[name] == 0, name, figures)
        return figures, self.server.numbers()


def test_nothing_is_wrong_lost_or_grows():
    print(f"  RADISH_SOAK_SEED={SEED}", flush=True)
    with tempfile.TemporaryDirectory(prefix="radish-soak-") as tmp:
        template = pathlib.Path(tmp) / "template.jinja"
        template.write_text(TEMPLATE)
        keys = [word for key in KEYS for word in ("--api-key", key)]
        common = ("--chat-template", template, "--tool-call-parser", "hermes")
        extra = json.dumps({"max_size": STORE, "prefetch_threshold": 64, "fsync": "never"})
        server = Keyed(TINY, *common, "--page-size", 16, "--max-total-tokens", POOL, *keys, "--admin-api-key", "root",
                       "--enable-streaming-session", "--enable-hierarchical-cache", "--hicache-ratio", 2,
                       "--hicache-storage-backend", f"file:{tmp}/store",
                       "--hicache-storage-backend-extra-config", extra, "--enable-priority-scheduling",
                       "--self-check-interval", 0.3, "--verify", 0.02, "--speculative-ngram-capacity", 16384, key="root")
        judge = Keyed(TINY, *common, "--disable-radix-cache", "--speculative-algorithm", "none",
                      "--speculative-num-draft-tokens", 0, "--max-total-tokens", 16384)
        with server, judge:
            soak = Soak(server, judge)
            left = SECONDS
            while left > 0:
                soak.load(min(left, ROUND))
                left -= ROUND
                soak.history.append(soak.pause())
                report(soak)
            check_flat(soak)
            with soak.lock:
                counts = dict(sorted(soak.counts.items()))
            print("  " + ", ".join(f"{name} {n}" for name, n in counts.items()), flush=True)
        for each in server, judge:
            said = [line for line in each.log.splitlines() if line.strip()]
            check(not said, "the log of", each.args, "\n".join(said))


def report(soak):
    figures, numbers = soak.history[-1]
    print(f"  {len(soak.history):3}: {numbers['rss'] / 1e6:.1f} MB, {numbers['threads']} threads, "
          f"{numbers['sockets']} sockets, {numbers['files']} other files; compared {soak.counts['compared']}, evicted "
          f"{figures['evicted_tokens']}, loaded {figures['loaded_tokens']}, aborted {figures['num_aborted']}, "
          f"self-checks {figures['self_checks']}", flush=True)


def check_flat(soak):
    """After the first pauses, memory, threads and files are what they were; where there are too few of them,
    it says nothing of memory."""
    numbers = [n for _, n in soak.history]
    first = min(5, len(numbers) // 3)
    for n in numbers[1:]:
        check(n["threads"] == numbers[0]["threads"], "threads", numbers)
        check(abs(n["files"] - numbers[0]["files"]) <= 2, "files", numbers)  # of the store one ends, one begins
    if first:
        begin = statistics.median(n["rss"] for n in numbers[first - 1:first + 2])
        end = statistics.median(n["rss"] for n in numbers[-3:])
        print(f"  memory {begin / 1e6:.1f} MB, at the end {end / 1e6:.1f} MB ({end / begin - 1:+.1%})")
        check(end < begin * (1 + GROWTH), "memory grows", [n["rss"] for n in numbers])


run(globals())
