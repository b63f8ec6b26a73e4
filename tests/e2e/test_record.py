#!/usr/bin/env python3
"""`radish serve --record` and `radish replay` of what it writes: the server's own counters, to the token; no
text; and a file that ends early, or has an end that the server did not mean.

    RADISH_RECORD_SECONDS  seconds of mixed load that long runs record: 1,800
    RADISH_RECORD_SEED     printed by each run; the same works again, in another order of arrival
"""
import collections
import http.client
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import tiny_gguf
from radish_e2e import HANG, ROOT, STORIES, TINY, Server, check, long_run, radish, run, story_golden
from soak_works import TEMPLATE, WORKS, Load

TIER = ("--enable-hierarchical-cache", "--hicache-ratio", 1.5)
IDS = [1] + story_golden()[0]["greedy_ids"]
WORDS = "fox dog king tree queen boat bird hill".split()
SECONDS = float(os.environ.get("RADISH_RECORD_SECONDS") or 1800)
SERVE = ("--dtype", "f32", "--threads", "1")


def generate(s, ids, out=6, **more):
    return s.ask("/generate", {"input_ids": ids, **more, "sampling_params": {
        "max_new_tokens": out, "temperature": 0, "ignore_eos": True}})


def abort_one(s, ids):
    """A client that goes away while its answer comes."""
    connection = http.client.HTTPConnection("127.0.0.1", s.port)
    connection.request("POST", "/generate", json.dumps({"input_ids": ids, "stream": True, "sampling_params": {
        "max_new_tokens": 300, "temperature": 0, "ignore_eos": True}}), {"Content-Type": "application/json"})
    connection.getresponse().read(20)
    connection.close()


def mixed_load(s, seed, requests=60, pins=True):
    """Requests that share and part, side by side; other namespaces, priorities, aborts, a session, a flush."""
    def ask(dice):
        cut = dice.randrange(8, 60)
        ids = IDS[:cut] + [dice.choice(IDS[1:]) for _ in range(dice.randrange(24))]
        more = {"cache_salt": f"tenant {dice.randrange(2)}"} if dice.random() < 0.25 else {}
        if dice.random() < 0.2:
            more["priority"] = dice.randrange(3)
        if dice.random() < 0.1:
            abort_one(s, ids)
        else:
            generate(s, ids, dice.randrange(1, 24), **more)
        if pins and dice.random() < 0.1:  # also of what is not there
            s.ask("/pin_prefix", {"token_ids": ids[:dice.randrange(4, 80)], "ttl_seconds": dice.choice([0, 60])})

    def turns():
        session = s.ask("/open_session", {"capacity_of_str_len": 100})
        before = {}
        for turn in range(4):
            answer = generate(s, IDS[turn * 9:turn * 9 + 9 + 20 * (not turn)],
                              session_params={"id": session, **before})
            before = {"rid": answer["meta_info"]["id"]}
        s.ask("/close_session", {"session_id": session})

    for half in range(2):
        threads = [threading.Thread(target=turns)]
        for worker in range(6):
            dice = random.Random(f"{seed} {half} {worker}")
            threads.append(threading.Thread(target=lambda d=dice: [ask(d) for _ in range(requests // 12)]))
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        s.wait_idle()
        if not half:
            s.ask("/flush_cache", {})
    return s.figures()


def replay(path, *options):
    return json.loads(radish("replay", path, "--json", *options)[0])


def same_counters(told, figures):
    ours = told["replay"]["counters"]
    for name in "prompt_tokens", "cached_tokens", "evicted_tokens":
        check(ours[name] == figures[name], name, ours, figures[name])


def await_written(s, operations):
    """The recorder's thread writes behind the answers."""
    until = time.monotonic() + HANG
    while (now := s.figures())["record_operations"] < operations and time.monotonic() < until:
        time.sleep(0.01)
    return now


def recorded(tmp, seed, *options, requests=60):
    path = Path(tmp) / "server.rec"
    with Server(STORIES, *SERVE, "--record", path, *options) as s:
        figures = mixed_load(s, seed, requests, pins=TIER[0] not in options)
        now = await_written(s, 101)
        check(now["record_dropped"] == 0 and now["record_operations"] > 100 and now["record_bytes"] > 1000, now)
        check('radish_record_operations_total{model_name="story"}' in s.metrics())
    return path, figures


def test_a_replay_counts_what_the_server_counted():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    for options in (("--max-total-tokens", 330),
                    ("--max-total-tokens", 400, "--page-size", 16, "--radix-eviction-policy", "slru"),
                    ("--max-total-tokens", 400, "--enable-streaming-session", "--radix-eviction-policy", "cost"),
                    ("--max-total-tokens", 330, *TIER),
                    ("--max-total-tokens", 400, "--page-size", 16, *TIER, "--hicache-write-policy", "write_back")):
        with tempfile.TemporaryDirectory(prefix="radish-record-") as tmp:
            path, figures = recorded(tmp, seed, *options)
            told = replay(path)
            about = told["replay"]
            check(about["exact"] and about["end"] == "stopped", seed, options, about)
            check(about["differences"] == 0 and about["counters"] == about["recorded_counters"], seed, about)
            check(about["counters"]["evicted_tokens"] > 0 and about["counters"]["inserted_tokens"] > 400, about)
            check(about["aborted"] + about["finished"] + about["failed"] == about["requests"], about)
            same_counters(told, figures)
            if TIER[0] in options:
                check(about["counters"]["written_tokens"] > 0, about)
            check(told["format"] == "RADREC2" and told["cells"][0]["requests"] <= about["requests"], told)
            check(told["prices"]["from"] == "as the server measured them", told)
            words, _ = radish("replay", path)
            check("exact, as the server counted" in words and "a model" in words, words)
            check(oct(path.stat().st_mode & 0o777) == "0o600", path.stat())


def window_model(tmp):
    path = Path(tmp) / "window.gguf"
    tiny_gguf.write(path, {**tiny_gguf.SPECS["gemma2"], "layers": 4, "context": 1024})
    return path


def state_model(tmp):
    path = Path(tmp) / "states.gguf"
    subprocess.run([sys.executable, ROOT / "tools/make-model.py", "--shape", "nano-qwen35", "--type", "f32", path],
                   check=True, capture_output=True)
    return path


def shared_prompts(s, seed, most):
    """Side by side: prompts that share a long front, or one of three, and answers that go on from others."""
    def ask(dice):
        ids = [7 + dice.randrange(3)] + [11 + i * i % 180 for i in range(dice.randrange(20, most))]
        for _ in range(3):
            ids += [dice.randrange(10, 190) for _ in range(dice.randrange(1, 12))]
            ids += generate(s, ids, dice.randrange(2, 30))["output_ids"]

    threads = [threading.Thread(target=lambda i=i: ask(random.Random(f"{seed} {i}"))) for i in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return s.wait_idle()


def test_windows_and_states_are_replayed_too():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    with tempfile.TemporaryDirectory(prefix="radish-record-") as tmp:
        for model, most, told_of, options in (
                (window_model(tmp), 300, "swa_max_total_num_tokens",
                 ("--max-total-tokens", 800, "--swa-full-tokens-ratio", 0.2, "--chunked-prefill-size", 32)),
                (state_model(tmp), 150, "max_mamba_cache_size",
                 ("--max-total-tokens", 900, "--max-mamba-cache-size", 14, "--max-running-requests", 4)),
                (Path(tmp) / "states.gguf", 150, "max_mamba_cache_size",
                 ("--max-total-tokens", 1600, "--max-mamba-cache-size", 20, "--page-size", 16,
                  "--max-running-requests", 4))):
            path = Path(tmp) / "server.rec"
            path.unlink(missing_ok=True)
            with Server(model, *SERVE, "--context-length", 1024, *options, "--record", path) as s:
                figures = shared_prompts(s, seed, most)
                check(figures[told_of] > 0 and figures["kv_errors"] == 0, told_of, figures)
            told = replay(path)
            check(told["replay"]["exact"], seed, options, told["replay"])
            check(told["replay"]["counters"]["cached_tokens"] > 0, told["replay"])
            check("mamba" not in told_of or figures["states_evicted"] > 0, figures)
            same_counters(told, figures)


@long_run
def test_a_replay_counts_what_the_server_counted_whatever_it_does():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    for options in (("--page-size", 4, "--radix-eviction-policy", "lfu"), ("--max-namespaces", 2),
                    ("--schedule-policy", "fcfs", "--radix-eviction-policy", "priority"),
                    ("--chunked-prefill-size", 16, "--radix-eviction-policy", "filo"),
                    ("--speculative-algorithm", "tree,ngram", "--speculative-num-draft-tokens", 4),
                    ("--page-size", 16, "--chunked-prefill-size", 32, "--max-running-requests", 4),
                    (*TIER, "--page-size", 4, "--radix-eviction-policy", "lfu", "--hicache-copy-threads", 3),
                    (*TIER, "--schedule-policy", "fcfs", "--hicache-write-policy", "write_back"),
                    (*TIER, "--speculative-algorithm", "tree,ngram", "--speculative-num-draft-tokens", 4,
                     "--hicache-write-policy", "write_through_selective"),
                    (*TIER, "--enable-streaming-session", "--hicache-max-transfers", 4),
                    (*TIER, "--page-size", 16, "--chunked-prefill-size", 32, "--hicache-load-back-threshold", 1)):
        with tempfile.TemporaryDirectory(prefix="radish-record-") as tmp:
            path, figures = recorded(tmp, seed, "--max-total-tokens", 512, *options, requests=3000)
            told = replay(path)
            check(told["replay"]["exact"] and told["replay"]["operations"] > 10000, seed, options, told["replay"])
            same_counters(told, figures)


class Counted(Load):
    """Answers that are compared with nothing, but what the server counted is."""

    def compare(self, *_):
        self.count("answers")


def recorded_load(seconds, *options):
    """A pool that is too small for the clients: what does not fit is retracted, evicted and computed again."""
    seed = os.environ.get("RADISH_RECORD_SEED") or random.randrange(10 ** 6)
    counts = collections.Counter()
    print(f"  RADISH_RECORD_SEED={seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="radish-record-") as tmp:
        template, path = Path(tmp) / "template.jinja", Path(tmp) / "server.rec"
        template.write_text(TEMPLATE)
        with Server(TINY, "--chat-template", template, "--tool-call-parser", "hermes", "--max-total-tokens", 4096,
                    "--enable-streaming-session", "--enable-priority-scheduling", "--verify", 0.02, *options,
                    "--record", path) as s:
            rounds = max(2, round(seconds / 60))
            names = sorted(set(WORKS) - {"flush"})  # there is no store
            for n in range(rounds):
                load = Counted(s, "nobody's", names, pins=TIER[0] not in options)  # the server asks for no keys
                load.run(seconds / rounds, [("anybody's", random.Random(f"{seed} {n} {i}")) for i in range(8)])
                check(not load.failures, f"seed {seed} {n}\n" + "\n".join(load.failures))
                counts.update(load.counts)
                until = time.monotonic() + HANG  # sessions that lapse, and answers that are computed once more
                while (figures := s.figures())["sessions_open"] or figures["verify_pending"]:
                    check(time.monotonic() < until, "sessions stay open", figures)
                    time.sleep(0.05)
                figures = s.wait_idle()
                check(figures["record_dropped"] == 0 and figures["self_check_violations"] == 0, figures)
                if n % 5 == 0:
                    s.ask("/flush_cache?timeout=10", {})
        told = replay(path)
        about = told["replay"]
        print(f"  {about['operations']} operations of {about['requests']} requests in {about['duration_s']:.0f} s, "
              f"{path.stat().st_size / 1e6:.1f} MB: {about['counters']}; {dict(sorted(counts.items()))}", flush=True)
        check(about["exact"] and about["counters"] == about["recorded_counters"], seed, options, about)
        check(about["aborted"] + about["finished"] + about["failed"] == about["requests"], about)
        same_counters(told, figures)
        return about


@long_run
def test_a_recorded_half_hour_replays_exactly():
    """Sessions of both kinds, namespaces, priorities, aborts, forms, foretold answers, embeddings, flushes, a
    pool that is too small, and a host tier that is too small as well."""
    about = recorded_load(SECONDS, *TIER)
    check(about["counters"]["evicted_tokens"] > 0 and about["aborted"] > 0, about)
    check(about["counters"]["loaded_tokens"] > 0 and about["counters"]["host_evicted_tokens"] > 0, about)


@long_run
def test_recorded_minutes_without_a_tier_replay_exactly():
    check(recorded_load(SECONDS / 6)["counters"]["evicted_tokens"] > 0)


def test_there_is_no_text_in_it():
    with tempfile.TemporaryDirectory(prefix="radish-record-") as tmp:
        path = Path(tmp) / "server.rec"
        paths = [path, Path(f"{path}.1")]
        secret = "a king whose name was Rumpel"
        for _ in range(2):  # the second does not write over the first
            with Server(STORIES, *SERVE, "--record", path) as s:
                s.ask("/generate", {"text": secret, "extra_key": "a tenant of ours",
                                    "sampling_params": {"max_new_tokens": 4}})
                generate(s, IDS[:30])
        first, second = (one.read_bytes() for one in paths)
        for data in first, second:
            check(b"Rumpel" not in data and b"tenant" not in data and len(data) < 4000, len(data))
            check(struct.pack("<3i", *IDS[4:7]) not in data and bytes(IDS[i] % 256 for i in range(4, 10)) not in data)
        # 30 pages, each with a name of 8 bytes; the salt is another one, so the second has other names
        names = [{data[i:i + 8] for i in range(400, len(data) - 8)} for data in (first, second)]
        check(len(names[0] & names[1]) < len(names[0]) / 4, len(names[0]), len(names[0] & names[1]))


def test_a_server_that_is_killed_leaves_a_record():
    with tempfile.TemporaryDirectory(prefix="radish-record-") as tmp:
        path = Path(tmp) / "server.rec"
        with Server(STORIES, *SERVE, "--max-total-tokens", 300, "--record", path) as s:
            for i in range(12):
                generate(s, IDS[:10 + 3 * i])
            check(await_written(s, 60)["record_operations"] >= 60)
            os.kill(s.process.pid, signal.SIGKILL)
            s.process.wait()
            s.process.returncode = 0
        about = replay(path)["replay"]
        check(about["end"] == "cut" and about["differences"] == 0 and 8 <= about["requests"] <= 12, about)
        # What was replayed is told though the server had not counted yet.
        check(about["counters"]["inserted_tokens"] > 30 and about["counters"]["nodes"] >= 1, about)
        whole = path.read_bytes()
        for cut in (len(whole) - 1, len(whole) // 2, 9):  # as a full disk leaves it
            path.write_bytes(whole[:cut])
            code = 0 if cut > 9 else 1
            out, err = radish("replay", path, want=code)
            check(("has no end" in out) if not code else "nothing was recorded" in err, cut, out, err)
        wrong = bytearray(whole)
        wrong[len(whole) // 2] ^= 4
        path.write_bytes(wrong)
        _, err = radish("replay", path, want=1)
        check("is damaged: its checksum is wrong" in err and str(path) in err, err)


def test_a_record_ends_at_its_limit_and_serving_goes_on():
    with tempfile.TemporaryDirectory(prefix="radish-record-") as tmp:
        path = Path(tmp) / "server.rec"
        with Server(STORIES, *SERVE, "--record", path, "--record-limit", 0.0001) as s:
            for i in range(60):
                dice = random.Random(i)
                generate(s, [dice.choice(IDS[1:]) for _ in range(480)], 1)
                if s.figures()["record_dropped"]:
                    break
            generate(s, IDS[:20])
            until = time.monotonic() + HANG
            while not (figures := s.figures())["record_dropped"] and time.monotonic() < until:
                time.sleep(0.01)
        check(figures["record_dropped"] > 0 and 90_000 < path.stat().st_size <= 100_000, figures)
        check("at its limit" in s.log, s.log)
        about = replay(path)["replay"]
        check(about["end"] == "limit" and about["differences"] == 0, about)


def test_a_record_that_cannot_grow_ends_and_serving_goes_on():
    """As where the service's LimitFSIZE or ulimit -f is reached: a signal that would end the server."""
    with tempfile.TemporaryDirectory(prefix="radish-record-") as tmp:
        path = Path(tmp) / "server.rec"
        with Server(STORIES, *SERVE, "--record", path) as s:
            resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
            until = time.monotonic() + HANG
            for i in range(60):
                dice = random.Random(i)
                generate(s, [dice.choice(IDS[1:]) for _ in range(480)], 1)
                if s.figures()["record_dropped"] or time.monotonic() > until:
                    break
            generate(s, IDS[:20])
        check("cannot be written, and ends here" in s.log, s.log)
        check(path.stat().st_size <= 4000, path.stat())


def test_the_banner_names_the_file_that_is_written():
    """A file that is there is kept, so the name is not always the one that was given."""
    with tempfile.TemporaryDirectory(prefix="radish-record-") as tmp:
        path = Path(tmp) / "server.rec"
        for name in path, f"{path}.1":
            with Server(STORIES, *SERVE, "--record", path) as s:
                check(f"records what the cache is asked to {name}\n" in s.banner, s.banner)
    with Server(STORIES, *SERVE) as s:
        check("records" not in s.banner, s.banner)


def test_where_no_replay_is_exact_it_says_why():
    with tempfile.TemporaryDirectory(prefix="radish-record-") as tmp:
        path = Path(tmp) / "server.rec"
        with Server(STORIES, *SERVE, "--max-total-tokens", 300, "--enable-hierarchical-cache",
                    "--hicache-storage-backend", f"file:{tmp}/store", "--record", path) as s:
            for i in range(6):
                generate(s, IDS[:10 + 3 * i])
        about = replay(path)["replay"]
        check(not about["exact"] and "tiers" in about["why_not_exact"], about)
        out, _ = radish("replay", path, "--host-tokens", 600)
        check("no exact replay: the cache had tiers" in out and "host blocks" in out, out)
        path.unlink()
        with Server(STORIES, *SERVE, "--enable-hierarchical-cache", "--record", path) as s:
            generate(s, IDS[:30])
            s.ask("/pin_prefix", {"token_ids": IDS[:20]})
        about = replay(path)["replay"]
        check("pinned or retained while there was a host tier" in about["why_not_exact"], about)
        check(about["differences"] == 0, about)


def test_what_a_record_cannot_be_is_refused_before_anything_is_served():
    with tempfile.TemporaryDirectory(prefix="radish-record-") as tmp:
        os.mkfifo(pipe := Path(tmp) / "pipe")
        for path, words in ((Path(tmp) / "no" / "where", "No such file"), (pipe, "is a pipe"), (tmp, "is a directory"),
                            ("/dev/null", "is a device")):
            out, err = radish("serve", STORIES, "--record", path, want=1)
            check(not out and "record: " in err and words in err and str(path) in err, out, err)
        check(os.listdir(tmp) == ["pipe"], os.listdir(tmp))


run(globals())
