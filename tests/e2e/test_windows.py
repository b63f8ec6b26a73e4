#!/usr/bin/env python3
"""test_windows.py - a gemma2 and a Mistral whose layers see 40 tokens, with window memory.

In the memory of a pool that masks they serve a context that such a pool has no room for; both sides
are in /server_info and /metrics, and answers are those of a server that masks."""
import pathlib
import shutil
import tempfile

import tiny_gguf
from radish_e2e import Server, check, radish, run, skip
from redis_e2e import Redis

WINDOW, MASKED, TOKENS, CHUNK = 40, 400, 600, 32
RATIO = 0.2  # of TOKENS; a chunk comes on top
SPECS = {"gemma2": tiny_gguf.SPECS["gemma2"], "mistral": tiny_gguf.SPECS["mistral"]}


def model(directory, name):
    path = pathlib.Path(directory) / f"{name}.gguf"
    tiny_gguf.write(path, {**SPECS[name], "layers": 4, "context": 1024})
    return path


def ask(server, ids, new=24):
    answer = server.ask("/generate", {"input_ids": ids, "sampling_params": {
        "max_new_tokens": new, "temperature": 0, "ignore_eos": True}})
    return answer["output_ids"], answer["meta_info"]["cached_tokens"]


def choices(server, ids):
    """Three that compute their prompt once."""
    answer = server.ask("/v1/completions", {"prompt": ids, "n": 3, "max_tokens": 20, "seed": 4,
                                            "temperature": 0.8, "ignore_eos": True})
    return [choice["text"] for choice in answer["choices"]]


def info(server):
    return server.get("/server_info")


def prompt(n, seed):
    return [(seed * 7919 + i * i * 31 + i * seed) % 250 for i in range(n)]


def pool_bytes(i):
    return (i["max_total_num_tokens"] * i["kv_bytes_per_token"] +
            i.get("swa_max_total_num_tokens", 0) * i.get("swa_kv_bytes_per_token", 0))


def check_model(directory, name):
    path = model(directory, name)
    common = ["--chunked-prefill-size", CHUNK, "--threads", 2, "--dtype", "f32"]
    long, short = prompt(540, 3), prompt(300, 5)
    with Server(path, *common, "--max-total-tokens", 2 * TOKENS,
                "--disable-hybrid-swa-memory") as s:
        masked = [ask(s, ids)[0] for ids in (long, short, long[:200])]
        forked = choices(s, short)
        check("swa_max_total_num_tokens" not in info(s))
        check("sglang:swa_available_tokens" not in s.metric_values())
    with Server(path, *common, "--max-total-tokens", MASKED, "--disable-hybrid-swa-memory") as s:
        of_masked = pool_bytes(info(s))
        s.ask("/generate", {"input_ids": long}, want=400)
    with Server(path, *common, "--max-total-tokens", TOKENS, "--swa-full-tokens-ratio", RATIO) as s:
        i = info(s)
        check("window memory" in s.banner, s.banner)
        check(i["max_total_num_tokens"] == TOKENS and i["sliding_window_size"] == WINDOW, i)
        check(i["swa_max_total_num_tokens"] == int(RATIO * TOKENS) + CHUNK, i)
        check(i["kv_bytes_per_token"] == (i["swa_kv_bytes_per_token"] if name == "gemma2" else 0), i)
        check(pool_bytes(i) < of_masked, pool_bytes(i), of_masked)
        check(ask(s, long) == (masked[0], 0), "a context that the masked pool has no room for")
        check(ask(s, short)[0] == masked[1])
        check(ask(s, short) == (masked[1], 299), "its pages and its window are there")
        check(ask(s, long[:200])[0] == masked[2])
        check(choices(s, short) == forked)
        figures, m = s.wait_idle(), s.metric_values()
        check(m["sglang:swa_max_total_num_tokens"] == i["swa_max_total_num_tokens"], m)
        check(figures["swa_available_tokens"] + figures["swa_evictable_tokens"] ==
              i["swa_max_total_num_tokens"], figures)
        check(figures["available_tokens"] + figures["evictable_tokens"] == TOKENS, figures)
        check(0 < m["sglang:swa_used_tokens"] and m["sglang:swa_token_usage"] == 0, m)
        check(figures["kv_errors"] == 0 and figures["evicted_tokens"] > 0, figures)


def test_gemma2_serves_more_context_in_the_same_memory():
    with tempfile.TemporaryDirectory() as directory:
        check_model(directory, "gemma2")


def test_mistral_serves_more_context_in_the_same_memory():
    with tempfile.TemporaryDirectory() as directory:
        check_model(directory, "mistral")


def check_host(directory, name):
    """Prompts that have left the device come back from the host, windows and all."""
    path = model(directory, name)
    common = ["--chunked-prefill-size", CHUNK, "--threads", 2, "--dtype", "f32"]
    prompts = [prompt(250, seed) for seed in range(3, 9)]
    with Server(path, *common, "--max-total-tokens", 2 * TOKENS,
                "--disable-hybrid-swa-memory") as s:
        masked = [ask(s, ids)[0] for ids in prompts]
    with Server(path, *common, "--max-total-tokens", TOKENS, "--swa-full-tokens-ratio", RATIO,
                "--enable-hierarchical-cache", "--hicache-ratio", 6) as s:
        i = info(s)
        check("window memory" in s.banner and "mask" not in s.banner, s.banner)
        check(i["swa_max_total_num_tokens"] == int(RATIO * TOKENS) + CHUNK, i)
        for ids, answer in zip(prompts, masked):
            check(ask(s, ids) == (answer, 0))
            s.wait_idle()  # else the next prompt may take its pages before they are copied
        for ids, answer in zip(prompts, masked):
            check(ask(s, ids) == (answer, 249))
        figures, m = s.wait_idle(), s.metric_values()
        check(figures["host_window_total_tokens"] == 6 * i["swa_max_total_num_tokens"], figures)
        check(m["sglang:load_back_tokens_total"] > 900, m)
        check(WINDOW * 4 <= m["radish_load_back_window_tokens_total"] <= WINDOW * 12, m)
        check(m["radish_hicache_host_window_used_tokens"] > 0, m)
        check(figures["kv_errors"] == 0, figures)
        check(figures["swa_available_tokens"] + figures["swa_evictable_tokens"] ==
              i["swa_max_total_num_tokens"], figures)


def test_gemma2_comes_back_from_the_host_with_its_windows():
    with tempfile.TemporaryDirectory() as directory:
        check_host(directory, "gemma2")


def test_mistral_comes_back_from_the_host_with_its_windows():
    with tempfile.TemporaryDirectory() as directory:
        check_host(directory, "mistral")


def test_chats_back_to_back_are_all_found_under_write_back():
    """What copies to the host hold is waited for: no load is refused for it."""
    with tempfile.TemporaryDirectory() as directory:
        path = model(directory, "gemma2")
        with Server(path, "--chunked-prefill-size", CHUNK, "--threads", 1, "--dtype", "f32",
                    "--max-total-tokens", TOKENS, "--swa-full-tokens-ratio", RATIO,
                    "--enable-hierarchical-cache", "--hicache-ratio", 4,
                    "--hicache-write-policy", "write_back") as s:
            chats = [prompt(120, 11) + prompt(150, seed) for seed in range(20, 26)]
            first = [chat + ask(s, chat)[0] for chat in chats]
            again = [ask(s, turn + prompt(30, 50 + i))[1] for i, turn in enumerate(first)]
            check(again == [len(first[0]) - 1] * len(chats), again)


def check_restart(directory, name, store):
    path = model(directory, name)
    args = [path, "--chunked-prefill-size", CHUNK, "--threads", 2, "--dtype", "f32",
            "--max-total-tokens", TOKENS, "--swa-full-tokens-ratio", RATIO,
            "--enable-hierarchical-cache", "--hicache-storage-backend", store,
            "--hicache-prefetch-threshold", 16, "--hicache-storage-prefetch-policy", "wait_complete"]
    ids = prompt(250, 3)
    with Server(*args) as s:
        check("mask" not in s.banner, s.banner)
        first = ask(s, ids)
        check(first[1] == 0 and ask(s, ids) == (first[0], 249))
        s.wait_idle()
    with Server(*args) as s:
        check(ask(s, ids) == (first[0], 249))
        m = s.metric_values()
        check(m["sglang:prefetched_tokens_total"] == 249, m)
        check(m["radish_prefetched_window_tokens_total"] == WINDOW, m)


def test_windows_come_back_from_a_store_after_a_restart():
    for name in SPECS:
        with tempfile.TemporaryDirectory() as directory:
            check_restart(directory, name, f"file:{directory}/store")


def test_windows_come_back_from_redis_after_a_restart():
    if not shutil.which("redis-server"):
        skip("no redis-server")
    with tempfile.TemporaryDirectory() as directory:
        redis = Redis(directory)
        try:
            check_restart(directory, "gemma2", f"redis:127.0.0.1:{redis.port}")
        finally:
            redis.end()


def test_gemma4s_windows_lie_apart_in_any_case():
    """Their heads are not as the others': with a context below the window, and where masks are asked
    for. A pool with room for no window is refused."""
    with tempfile.TemporaryDirectory() as directory:
        path, ids, answers = pathlib.Path(directory) / "m.gguf", prompt(20, 3), []
        tiny_gguf.write(path, tiny_gguf.SPECS["gemma4"])
        common = ["--threads", 2, "--dtype", "f32"]
        for args in ([], ["--context-length", 32], ["--disable-hybrid-swa-memory"],
                     ["--max-total-tokens", 96, "--page-size", 16]):
            with Server(path, *common, *args) as s:
                answers += [ask(s, ids, 8)[0] for _ in range(2)]
                check(info(s)["swa_max_total_num_tokens"] > 0, args)
            check(("is without effect" in s.log) == ("--disable-hybrid-swa-memory" in args), s.log)
        check(all(answer == answers[0] for answer in answers), answers)
        err = radish("serve", path, *common, "--max-total-tokens", 64, "--page-size", 16, want=1)[1]
        check("window memory of 64 tokens is too small for a window of 40" in err, err)


def test_a_ratio_that_is_none_is_refused():
    with tempfile.TemporaryDirectory() as directory:
        path = model(directory, "gemma2")
        err = radish("serve", path, "--swa-full-tokens-ratio", "1.5", want=2)[1]
        check("swa-full-tokens-ratio" in err, err)


run(globals())
