#!/usr/bin/env python3
"""test_tiers.py - a small KV cache over host memory and a directory: prompts come back from
both, also after a restart, with the answers that they had."""
import pathlib
import shutil
import tempfile

from radish_e2e import STORIES, TINY, Server, check, radish, run, skip
from redis_e2e import Redis

WORDS = "once upon a time there was a little girl who loved to play in the park with her dog ".split()


def prompts(count=8, words=150):
    return [" ".join(WORDS[(i * 7 + k * (i + 3)) % len(WORDS)] for k in range(words))
            for i in range(count)]


def serve(*args, model=STORIES):
    return Server(model, "--max-total-tokens", 640, "--page-size", 16, "--context-length", 512,
                  *args)


def ask(s, text):
    answer = s.ask("/generate", {"text": text, "sampling_params": {"temperature": 0,
                                                                   "max_new_tokens": 8}})
    return answer["output_ids"], answer["meta_info"]


def settled(s):
    while s.figures()["transfers_under_way"]:
        pass


def tiers(store, *args, model=STORIES):
    return serve("--enable-hierarchical-cache", "--hicache-ratio", 6, "--hicache-storage-backend",
                 f"file:{store}", "--hicache-storage-prefetch-policy", "wait_complete",
                 "--hicache-storage-backend-extra-config", '{"prefetch_threshold": 64}', *args,
                 model=model)


def test_prompts_come_back_from_every_tier_with_the_same_answers():
    with serve("--disable-radix-cache") as s:
        meta = ask(s, "hello")[1]
        check("cached_tokens_details" not in meta and "cache_explanation" not in meta, meta)
        plain = [ask(s, text)[0] for text in prompts()]
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        with tiers(tmp) as s:
            check("host tier" in s.banner and f"storage file:{tmp}\n" in s.banner, s.banner)
            for turn in range(2):
                for text, want in zip(prompts(), plain):
                    ids, meta = ask(s, text)
                    check(ids == want, ids, want)
                    settled(s)
                    details = meta["cached_tokens_details"]
                    check(sum(details.values()) == meta["cached_tokens"], meta)
                    why = meta["cache_explanation"]
                    check({tier: why[tier]["tokens"] for tier in details} == details, meta)
                    if turn:
                        check(why["host"]["load"] == "taken", why)
                        check(why["device"]["end"] == "evicted", why)
                        check(why["device"]["evicted_s_ago"] > 0, why)
                        check(details["host"] > 0 and details["storage"] == 0, meta)
                        check(meta["prompt_tokens"] - meta["cached_tokens"] <= 16, meta)
            figures = s.wait_idle()
            check(figures["storage_written_tokens"] > 640, figures)
            metrics = s.metrics()
            check('cache_source="host"' in metrics and "radish_hicache_transfers" in metrics)
        with tiers(tmp) as s:  # a restart; the same prompts in another order
            for i, (text, want) in enumerate(list(zip(prompts(), plain))[::-1]):
                ids, meta = ask(s, text)
                check(ids == want, ids, want)
                settled(s)
                if i:  # on a busy machine computing so small a model may win against waiting
                    continue
                check(meta["cached_tokens_details"]["storage"] > 0, meta)
                check(meta["prompt_tokens"] - meta["cached_tokens"] <= 16, meta)
                why = meta["cache_explanation"]
                check(why["storage"]["present"] > 0 and why["device"]["end"] == "never_seen", why)
            usage = s.ask("/v1/completions", {"prompt": prompts()[0], "max_tokens": 1})["usage"]
            details = usage["prompt_tokens_details"]
            check(sum(details["cached_tokens_details"].values()) == details["cached_tokens"], usage)
            check(details["cache_explanation"]["host"]["load"] in ("taken", "nothing"), usage)
            settled(s)
            s.ask("/flush_cache?tiers=device,host", {})
            check(s.figures()["evictable_tokens"] == 0)
            check(ask(s, prompts()[2])[0] == plain[2])
            s.ask("/flush_cache?tiers=nowhere", {}, want=400)


def test_a_store_is_attached_and_detached_while_nothing_runs():
    path = "/hicache/storage-backend"
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        with serve("--enable-hierarchical-cache", "--hicache-storage-admin") as s:
            put = '{"hicache_storage_backend": "file:%s/store", ' \
                  '"hicache_storage_backend_extra_config_json": %s}'
            check(s.get(path) == {"enable_hierarchical_cache": True, "attached": False})
            for config in ('{"max_size": "much"}', '{"nonsense": 1}', '"no json"', "[]"):
                response, answer = s.raw("PUT", path, put % (tmp, config))
                check(response.status == 400, config, answer)
            response, answer = s.raw("PUT", path, put % (tmp, '"{\\"max_size\\": 10000000}"'))
            check(response.status == 200, answer)
            check(s.get(path)["max_bytes"] == 10000000, s.get(path))
            check(s.raw("PUT", path, put % (tmp, "{}"))[0].status == 400)  # there is one
            ask(s, prompts()[0])
            settled(s)
            check(s.get(path)["pages"] > 5, s.get(path))
            s.ask("/flush_cache?tiers=storage&timeout=10", {})
            check(s.get(path)["pages"] == 0 and "under_way" not in s.get(path), s.get(path))
            for _ in range(2):
                check(s.raw("DELETE", path)[0].status == 200)
            check(not s.get(path)["attached"])
        with serve("--enable-hierarchical-cache") as s:
            check(s.raw("PUT", path, put % (tmp, "{}"))[0].status == 403)
            check(s.raw("POST", path, "{}")[0].status == 405)
    for args, words in ((["--hicache-size", 900000], "--hicache-size 900000 GB: only"),
                        (["--hicache-ratio", 900000], "for the KV pool and the host tier"),
                        (["--hicache-storage-backend-extra-config", '{"max_size": 1}'],
                         "'max_size' is for a storage backend, and there is none")):
        check(words in radish("serve", STORIES, "--enable-hierarchical-cache", *args,
                              "--max-total-tokens", 4096, want=1)[1], args)
    for args in (["--hicache-storage-backend", "file:/tmp/x"], ["--hicache-ratio", 3],
                 ["--hicache-write-policy", "write_back"]):
        check("needs --enable-hierarchical-cache" in radish("serve", STORIES, *args, want=1)[1], args)
    check("needs --enable-hierarchical-cache" in radish(
        "serve", STORIES, "--hicache-storage-admin", want=2)[1])


def test_thresholds_and_threads_of_the_tiers_are_options():
    knobs = ("--hicache-copy-threads", 2, "--hicache-store-threads", 1, "--hicache-max-transfers",
             64)
    with serve("--enable-hierarchical-cache", "--hicache-ratio", 6, *knobs,
               "--hicache-load-back-threshold", 400) as s:
        for _ in range(2):
            for text in prompts():
                ask(s, text)
                settled(s)
        metrics = s.metrics()
        answers = {line.split('answer="')[1].split('"')[0]: float(line.split()[-1])
                   for line in metrics.splitlines() if line.startswith("radish_hicache_loads_total")}
        check(answers["below_threshold"] > 0 and answers["taken"] == 0, answers)
    lost = radish("serve", STORIES, "--enable-hierarchical-cache", "--hicache-prefetch-threshold", 9,
                  "--hicache-storage-backend-extra-config", '{"prefetch_threshold": 64}', want=1)[1]
    check("say it once" in lost, lost)


AGENTS = ("{% for t in tools or [] %}{{ t.function.name }}: {{ t.function.description }}. {% endfor %}"
          "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>{{ m.reasoning_content }}"
          "</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}"
          "({{ c.function.arguments | tojson }})</tool_call>{% endfor %}\n{% endfor %}"
          "{% if add_generation_prompt %}assistant: <think>{% endif %}")


def agents_turns(s):
    """What is said to an agent's five turns, with tools, thoughts and logprobs, greedy and drawn."""
    tools = [{"type": "function", "function": {
        "name": name, "description": f"It can {name} a file and says what became of it",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}
        for name in ("read", "write", "search")]
    messages = [{"role": "system", "content": "You have tools."},
                {"role": "user", "content": "What is the capital of France?"}]
    said = []
    for turn in range(5):
        body = {"messages": messages, "tools": tools, "max_tokens": 10, "logprobs": True, "top_logprobs": 3,
                "temperature": 0.8 * (turn % 2), "seed": turn, "reasoning_effort": "high",
                "parallel_tool_calls": turn != 2}
        whole = s.ask("/v1/chat/completions", body)
        choice = whole["choices"][0]
        check(choice["message"]["reasoning_content"] and not choice["message"]["content"], choice)
        text = "".join(choice["delta"].get("reasoning_content") or "" for chunk in
                       s.stream("/v1/chat/completions", body) for choice in chunk["choices"])
        check(text == choice["message"]["reasoning_content"], text, choice)
        said.append(choice)
        settled(s)
        messages += [{"role": "assistant", "content": "", "reasoning_content": f"so {turn}", "tool_calls": [
            {"id": f"c{turn}", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": "Paris. " * (turn + 1)}]
    return said, whole["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_tools_and_thoughts_are_the_same_from_every_tier():
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        template = pathlib.Path(tmp) / "agents.jinja"
        template.write_text(AGENTS)
        args = ("--chat-template", template, "--tool-call-parser", "qwen", "--reasoning-parser", "qwen3")
        with serve("--disable-radix-cache", *args, model=TINY) as s:
            plain, cached = agents_turns(s)
            check(not cached, cached)
        for life in range(2):  # the second finds the first one's pages in the store
            with tiers(f"{tmp}/store", *args, model=TINY) as s:
                for turn in range(2):
                    said, cached = agents_turns(s)
                    check(said == plain and cached > 100, life, turn, cached)
                    for text in prompts():  # what was cached goes to the host
                        ask(s, text)
                figures = s.wait_idle()
                check(figures["loaded_tokens"] > 0 and figures["evicted_tokens"] > 0, figures)
                check(not life or figures["fetched_tokens"] > 0, figures)


def test_kill_9_loses_nothing_but_time():
    with serve("--disable-radix-cache") as s:
        plain = [ask(s, text)[0] for text in prompts()]
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        for life in range(5):
            s = tiers(tmp)
            s.__enter__()
            try:
                for i, (text, want) in enumerate(zip(prompts(), plain)):
                    check(ask(s, text)[0] == want, life, i)
                    if i == 2 + life:  # with copies under way
                        break
                figures = s.figures()
                check(figures["storage_bad_pages"] == 0 and figures["lost_loads"] == 0, figures)
            finally:
                s.process.kill()
                s.process.wait()
                s.process.stdout.close()
                s.process.stderr.close()
        with tiers(tmp) as s:
            ids, meta = ask(s, prompts()[0])
            check(ids == plain[0] and meta["cached_tokens_details"]["storage"] > 0, meta)


def test_every_prompt_of_before_a_restart_is_in_storage_and_nobody_elses():
    body = {"sampling_params": {"temperature": 0, "max_new_tokens": 8}}

    def first(s, **more):
        return s.ask("/generate", {**body, **more})["meta_info"]

    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        with tiers(tmp) as s:
            for text in prompts(4):
                first(s, text=text, cache_salt="ours")
                settled(s)
        for text in prompts(4):  # each one is the first of its life: that one is waited for
            with tiers(tmp) as s:
                meta = first(s, text=text, cache_salt="ours")
                check(meta["cached_tokens_details"]["storage"] == meta["cached_tokens"], meta)
                check(meta["prompt_tokens"] - meta["cached_tokens"] <= 16, meta)
        with tiers(tmp) as s:
            for more in ({}, {"cache_salt": "theirs"}, {"extra_key": "ours"}):
                meta = first(s, text=prompts(4)[0], **more)
                check(meta["cached_tokens"] == 0, more, meta)
                settled(s)
        other = pathlib.Path(tmp) / "other.gguf"  # the same shapes, a weight of another value
        data = bytearray(STORIES.read_bytes())
        data[-100] ^= 1
        other.write_bytes(data)
        with tiers(tmp, model=other) as s:
            meta = first(s, text=prompts(4)[0], cache_salt="ours")
            check(meta["cached_tokens"] == 0, meta)
            check(s.figures()["storage_bad_pages"] == 0)


def test_two_servers_share_one_redis():
    if not shutil.which("redis-server"):
        skip("no redis-server")
    with tempfile.TemporaryDirectory(prefix="radish-e2e-") as tmp:
        redis = Redis(tmp)
        try:
            args = ["--enable-hierarchical-cache", "--hicache-storage-backend",
                    f"redis:127.0.0.1:{redis.port}", "--hicache-storage-prefetch-policy",
                    "wait_complete", "--hicache-storage-backend-extra-config",
                    '{"prefetch_threshold": 64, "prefix": "e2e:"}']
            with serve(*args) as one, serve(*args) as other:
                want, meta = ask(one, prompts()[0])
                settled(one)
                ids, meta = ask(other, prompts()[0])
                check(ids == want and meta["cached_tokens_details"]["storage"] > 100, meta)
                redis.end()  # from now on everything is a miss, and nothing else
                want, _ = ask(one, prompts()[1])
                ids, meta = ask(other, prompts()[1])
                check(ids == want and meta["cached_tokens"] < 32, meta)
                settled(one)
                settled(other)
                one.wait_idle()
                other.wait_idle()
        finally:
            redis.end()


run(globals())
