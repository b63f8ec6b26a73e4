#!/usr/bin/env python3
"""test_states.py - tiny models of each family with recurrent layers, served: what turns, edits and
branches compute is in cached_tokens, to the token; answers are those of a server that shares
nothing; the states are in /server_info, /metrics and the banner."""
import json
import pathlib
import subprocess
import sys
import tempfile

import tiny_gguf
from radish_e2e import ROOT, Server, check, radish, run

TURNS, OWN, ANSWER, STEM, BRANCHES = 10, 12, 9, 127, 16
COMMON = ["--threads", 2, "--dtype", "f32", "--context-length", 1024, "--max-running-requests", 8]


def make(directory, shape):
    path = pathlib.Path(directory) / f"{shape}.gguf"
    subprocess.run([sys.executable, ROOT / "tools/make-model.py", "--shape", shape, "--type", "f32",
                    path], check=True, capture_output=True)
    tokens = tiny_gguf.read(path)[0]["tokenizer.ggml.tokens"]
    return path, tokens.index("<|im_start|>")


class Text:
    """Ids as a template writes them: each message begins with <|im_start|>."""

    def __init__(self, start, seed):
        self.start, self.seed, self.ids = start, seed, []

    def words(self, n):
        out = []
        for _ in range(n):
            self.seed = (self.seed * 1103515245 + 12345) % (1 << 31)
            out.append(20 + (self.seed >> 8) % 200)
        return out

    def say(self, n):
        self.message = len(self.ids)
        self.ids += [self.start, *self.words(n)]

    def open(self):
        self.opening = len(self.ids)
        self.ids += [self.start, 30, 31]


def ask(server, ids, new=ANSWER):
    answer = server.ask("/generate", {"input_ids": ids, "sampling_params": {
        "max_new_tokens": new, "temperature": 0, "ignore_eos": True}})
    return answer["output_ids"], answer["meta_info"]["cached_tokens"]


def course(start):
    """Prompts, and what of each is cached by pages of one token; answers are put in as they come."""
    text = Text(start, 5)
    text.say(60)
    before = 0
    for _ in range(TURNS):
        text.say(OWN)
        text.open()
        answer = yield text.ids, max(before - 1, 0), "a turn"
        last = text.ids, text.opening, text.message
        text.ids = text.ids + answer
        before = len(text.ids)
    ids, opening, message = last
    yield ids, opening, "regenerated"
    edited = Text(start, 99)
    edited.ids = ids[:message]
    edited.say(OWN + 5)
    edited.open()
    yield edited.ids, message, "edited"
    stem = Text(start, 7)
    stem.ids = stem.words(STEM)
    for i in range(BRANCHES):
        branch = Text(start, 1000 + i)
        branch.ids = stem.ids + [300 + i]
        branch.say(OWN)
        yield branch.ids, 0 if i < 1 else len(stem.ids) * (i > 1), f"branch {i}"


def follow(server, start, page):
    answers, steps = [], course(start)
    ids, cached, what = next(steps)
    while True:
        answer, found = ask(server, ids)
        if page:
            check(found == cached // page * page, what, len(ids), "tokens", found, "cached, not",
                  cached // page * page)
        answers.append(answer)
        try:
            ids, cached, what = steps.send(answer)
        except StopIteration:
            return answers


def check_shape(directory, shape, pages, few=True):
    path, start = make(directory, shape)
    with Server(path, *COMMON, "--disable-radix-cache") as s:
        alone = follow(s, start, 0)
    for page in pages:
        args = [*COMMON, "--page-size", page, "--mamba-track-interval", 4096]
        with Server(path, *args, "--max-mamba-cache-size", 80) as s:
            check("states        80 of the" in s.banner, s.banner)
            check(follow(s, start, page) == alone, shape, page)
            info, figures = s.get("/server_info"), s.wait_idle()
            check(info["max_mamba_cache_size"] == 80 and info["mamba_track_interval"] == 4096, info)
            check(figures["states_held"] == figures["states_protected"] == 0, figures)
            check(figures["states_available"] + figures["states_evictable"] == 80, figures)
            check(figures["states_saved"] - figures["states_evicted"] - figures["states_dropped"] ==
                  figures["states_evictable"] > 20, figures)
            check(figures["kv_errors"] == 0 and figures["states_unsaved"] == 0, figures)
            check("sglang:max_mamba_cache_size{" in s.metrics())
        if not few:
            continue
        with Server(path, *args, "--max-mamba-cache-size", 3) as s: # hardly any is kept
            check(follow(s, start, 0) == alone, shape, page)
            check(s.wait_idle()["states_evicted"] > 10)


def test_a_delta_rule_computes_what_is_new():
    with tempfile.TemporaryDirectory() as directory:
        check_shape(directory, "nano-qwen35", (1, 16))


def test_short_convolutions_compute_what_is_new():
    with tempfile.TemporaryDirectory() as directory:
        check_shape(directory, "nano-lfm2", (16,))


def test_mamba_computes_what_is_new():
    with tempfile.TemporaryDirectory() as directory:
        check_shape(directory, "nano-granite-h", (1,))


def test_mixtures_compute_what_is_new():
    with tempfile.TemporaryDirectory() as directory:
        check_shape(directory, "nano-qwen35moe", (16,), few=False)
        check_shape(directory, "nano-lfm2moe", (1,), few=False)


def test_a_conversation_over_chat():
    """Where messages begin is learnt from the template. An answer may be other ids when it comes
    back as text, and then all from its opening on is computed."""
    with tempfile.TemporaryDirectory() as directory:
        path, _ = make(directory, "nano-qwen35")
        with Server(path, *COMMON, "--mamba-track-interval", 4096) as s:
            messages, before = [], 0
            for turn in range(4):
                messages.append({"role": "user", "content": f"question {turn} of some words"})
                answer = s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 8,
                                                        "temperature": 0, "ignore_eos": True})
                usage = answer["usage"]
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                check(cached >= before, turn, usage, before)
                before = usage["prompt_tokens"] - 12  # "<|im_start|>assistant\n" and less
                messages.append(answer["choices"][0]["message"])
            again = s.ask("/v1/chat/completions", {"messages": messages[:-1], "max_tokens": 8,
                                                   "temperature": 0, "ignore_eos": True})["usage"]
            cached = again["prompt_tokens_details"]["cached_tokens"]
            check(0 < again["prompt_tokens"] - cached <= 12, again)


def test_prompts_and_their_states_come_back_from_the_host():
    with tempfile.TemporaryDirectory() as directory:
        path, start = make(directory, "nano-qwen35")
        prompts = []
        for seed in range(6):
            text = Text(start, 500 + seed)
            text.say(250)
            text.open()
            prompts.append(text.ids)
        with Server(path, *COMMON, "--disable-radix-cache") as s:
            alone = [ask(s, ids)[0] for ids in prompts]
        for page in 1, 16:
            with Server(path, *COMMON, "--page-size", page, "--max-total-tokens", 640,
                        "--max-mamba-cache-size", 6, "--enable-hierarchical-cache",
                        "--hicache-ratio", 6) as s:
                for _ in range(2):
                    found = [ask(s, ids) for ids in prompts]
                    check([answer for answer, _ in found] == alone, page)
                    figures = s.wait_idle()
                check(all(cached == 251 // page * page for _, cached in found), page, found)
                m = s.metric_values()
                check(m["radish_hicache_host_total_states"] == 36, m)
                check(m["radish_load_back_states_total"] >= 4, m)
                check(figures["states_available"] + figures["states_evictable"] == 6, figures)
                check(figures["kv_errors"] == 0, figures)


def test_states_are_asked_for_in_words():
    with tempfile.TemporaryDirectory() as directory:
        path, _ = make(directory, "nano-lfm2")
        err = radish("serve", path, "--max-mamba-cache-size", "1", want=1)[1]
        check("needs 2 states at least, not 1" in err, err)
        err = radish("serve", path, "--mamba-full-memory-ratio", "101", want=2)[1]
        check("mamba-full-memory-ratio" in err, err)
        told = radish("info", path)[0]
        check("state: " in told and " states" in told, told)
        few, many, far = (json.loads(radish("info", path, "--json", *args)[0])["memory"] for args in (
            ("--max-mamba-cache-size", "7"), ("--mamba-full-memory-ratio", "50"),
            ("--mamba-track-interval", "4096")))
        check(few["server"]["max_mamba_cache_size"] == 7, few)
        check(many["server"]["max_mamba_cache_size"] > 7, many)
        check(far["cache"]["state"]["interval"] == 4096 > few["cache"]["state"]["interval"], far, few)


if __name__ == "__main__":
    run(globals())
