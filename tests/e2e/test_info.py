#!/usr/bin/env python3
"""radish info tells what serving takes, and a server then holds that."""
import json
import pathlib
import subprocess
import sys
import tempfile

import tiny_gguf
from radish_e2e import (MADE, ROOT, STORIES, TINY, Server, can_populate, check, long_run, radish, run,
                        skip)

SLACK = 0.05
SMALL = 9e6  # what a small pool finds in the heap that loading left
UNTOUCHED = 0.4  # of a batch's buffers: there is room for every way to compute it, and one is gone


def info(model, *args):
    return json.loads(radish("info", model, "--json", *args)[0])


def hold_one_context(server, context):
    ids = [5 + i % 200 for i in range(context - 8)]
    server.ask("/generate", {"input_ids": ids, "sampling_params": {"max_new_tokens": 4,
                                                                   "ignore_eos": True}})


def check_resident(model, *args):
    memory = info(model, *args)["memory"]
    with Server(model, *args) as server:
        hold_one_context(server, memory["context_length"])
        cache, pool = memory["cache"], memory["server"]
        apart = pool["window_total_tokens"] > 0
        state = cache.pop("state", None)
        server.await_populated(min(1e9, sum(
            part["bytes_per_token"] * pool["window_total_tokens" if apart and kind == "window"
                                           else "max_total_tokens"]
            for kind, part in cache.items())))
        held, said = server.resident_bytes(), server.get("/server_info")
    wanted = memory["server"]["resident_bytes"]
    print(f"        {pathlib.Path(model).name} {args}: {held / 1e6:.1f} MB held, "
          f"{wanted / 1e6:.1f} foretold ({held / wanted - 1:+.1%})")
    check(abs(held / wanted - 1) < SLACK, model, args, held, memory)
    if state:
        states = memory["server"]["max_mamba_cache_size"]
        check(abs(said["max_mamba_cache_size"] / states - 1) < SLACK, said, states)
        check(said["mamba_state_bytes"] == state["bytes"], said, state)
        check(said["mamba_track_interval"] == state["interval"], said, state)
    pool = memory["server"]["max_total_tokens"]
    check(abs(said["max_total_num_tokens"] / pool - 1) < SLACK, said["max_total_num_tokens"], pool)
    check(said["kv_bytes_per_token"] in (cache["full"]["bytes_per_token"], sum(
        part["bytes_per_token"] for part in cache.values())), said["kv_bytes_per_token"], cache)


def test_a_server_holds_what_was_foretold():
    if not can_populate():
        skip("this kernel cannot make memory ready")
    check_resident(TINY)
    check_resident(TINY, "--dtype", "f32", "--context-length", "512")
    check_resident(STORIES)
    check_resident(MADE / "tiny-llama-q8_0.gguf")
    check_resident(MADE / "tiny-qwen3-f32.gguf")
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "hybrid.gguf"
        subprocess.run([sys.executable, ROOT / "tools/make-model.py", "--shape", "nano-qwen35",
                        "--type", "f32", "--nextn", "1", path], check=True, capture_output=True)
        check_resident(path)
        # The head's layer has K/V beside those of the two, and its weights.
        head, none = info(path)["memory"], info(path, "--speculative-algorithm", "none")["memory"]
        full = head["cache"]["full"]
        check(full["layers"] == 3 and full["nextn_layers"] == 1, full)
        check(full["bytes_per_token"] * 2 == none["cache"]["full"]["bytes_per_token"] * 3, full, none)
        check(none["cache"]["full"]["nextn_layers"] == 0, none)
        check(head["weights_bytes"] > none["weights_bytes"] + 2 * 128 * (2 * 128 + 3 * 256), head, none)
        check("3 layers (one is a head that guesses)" in radish("info", path)[0])


def test_a_server_of_each_kind_holds_what_was_foretold():
    """Experts, latent attention, windows with sinks, windows whose heads are others, with a second
    embedding."""
    if not can_populate():
        skip("this kernel cannot make memory ready")
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "moe.gguf"
        subprocess.run([sys.executable, ROOT / "tools/make-model.py", "--shape", "nano-moe", "--type",
                        "q8_0", path], check=True, capture_output=True)
        check_resident(path)
        for kind in ("deepseek2", "gpt-oss", "gemma4"):
            path = pathlib.Path(directory) / f"{kind}.gguf"
            tiny_gguf.write(path, dict(tiny_gguf.SPECS[kind], context=2048))
            check_resident(path)


def test_a_pool_of_one_context_holds_what_was_foretold():
    for model in (TINY, STORIES):
        check_context(model)


def check_context(model, *args):
    memory = info(model, *args)["memory"]
    context = memory["context_length"]
    with Server(model, *args, "--kv-populate-ahead", "0", "--max-total-tokens", context) as server:
        hold_one_context(server, context)
        held = server.resident_bytes()
    wanted = memory["total_bytes"]
    print(f"        {pathlib.Path(model).name}, one context: {held / 1e6:.1f} MB held, "
          f"{wanted / 1e6:.1f} foretold ({held / wanted - 1:+.1%})")
    check(held < (1 + SLACK) * wanted, model, held, memory)
    least = (1 - SLACK) * wanted - SMALL - UNTOUCHED * memory["batch_bytes"]
    check(held > least, model, held, memory)


def test_what_answers_are_guessed_from_is_foretold():
    """Tokens of answers take slots all over the index: 3,000 of them nearly all pages."""
    tokens = 1 << 20
    args = "--speculative-ngram-capacity", tokens
    memory = info(TINY, *args)["memory"]["server"]
    none = info(TINY, "--speculative-ngram-capacity", 0)["memory"]["server"]
    texts = none["guess_bytes"]
    check(memory["guess_bytes"] - texts > 24 * tokens and none["resident_bytes"] == memory["resident_bytes"])
    held = []
    for capacity in (0, tokens):
        with Server(TINY, "--speculative-algorithm", "recent", "--speculative-ngram-capacity", capacity,
                    "--kv-populate-ahead", "0", "--max-total-tokens", "4096") as server:
            for k in range(12):
                server.ask("/generate", {"input_ids": [3 + k, 5 + k], "sampling_params": {
                    "max_new_tokens": 400, "ignore_eos": True, "temperature": 1}})
            held.append(server.resident_bytes())
    more, slots = held[1] - held[0], 16 * tokens
    print(f"        {more / 1e6:.1f} MB of {(memory['guess_bytes'] - texts) / 1e6:.1f}")
    check(0.8 * slots < more < memory["guess_bytes"] - texts, held, slots)


@long_run
def test_a_larger_model_holds_what_was_foretold():
    with tempfile.TemporaryDirectory(prefix="radish-info-") as tmp:
        for kind in ("bf16", "q8_0"):
            model = f"{tmp}/{kind}.gguf"
            subprocess.run([sys.executable, ROOT / "tools/make-model.py", "--shape", "llama-110m",
                            "--layers", "6", "--type", kind, model], check=True)
            check_context(model, "--context-length", "4096")
            check_resident(model, "--context-length", "4096")


def test_what_is_told_of_a_context():
    whole, half = info(TINY)["memory"], info(TINY, "--context-length", "1024")["memory"]
    check(half["context_length"] == 1024 and whole["context_length"] == 2048, half, whole)
    check(whole["kv_bytes"] == 2 * half["kv_bytes"], whole, half)
    check(whole["weights_bytes"] == half["weights_bytes"])
    check(half["batch_bytes"] < whole["batch_bytes"])
    check(half["total_bytes"] < whole["total_bytes"])
    small = info(TINY, "--dtype", "f32", "--kv-cache-dtype", "int8")["memory"]
    large = info(TINY, "--dtype", "f32")["memory"]
    check(small["kv_bytes"] < large["kv_bytes"] / 2 and large["matrices"].keys() == {"f32"})
    _, why = radish("info", TINY, "--context-length", "1000000", want=1)
    check("--context-length 1000000 is more than the model's 2048" in why, why)
    _, why = radish("info", TINY, "--kv-cache-dtype", "int3", want=2)
    check("int3" in why, why)
    words = radish("info", TINY, "--context-length", "1024")[0]
    for wanted in ("memory for a context of 1024 tokens", "cache: full: 5 layers, ",
                   "radish serve here: a pool of ", "tokenizer: gpt2, pre ", "tensors: "):
        check(wanted in words, wanted, words[:2000])


def test_parts_of_the_cache_are_told_apart():
    with tempfile.TemporaryDirectory(prefix="radish-info-") as tmp:
        path = pathlib.Path(tmp) / "m.gguf"
        tiny_gguf.write(path, dict(tiny_gguf.SPECS["gemma3"], context=4096))
        told = info(path)
        cache = told["memory"]["cache"]
        check(cache["full"]["layers"] + cache["window"]["layers"] == 7, cache)
        check(cache["window"]["window"] == 40, cache)
        check_resident(path)
        each = {kind: part["bytes_per_token"] / part["layers"] for kind, part in cache.items()}
        check(each["full"] == each["window"], cache)
        check(told["tensor_types"]["F32"]["tensors"] == told["num_tensors"], told["tensor_types"])
        check(sum(t["bytes"] for t in told["tensor_types"].values()) == told["tensor_bytes"])
        words = radish("info", path)[0]
        check("; window: " in words and "of the last 40" in words, words[:1500])


def test_a_draft_model_is_told_and_another_vocabulary_is_not_one():
    with tempfile.TemporaryDirectory(prefix="radish-info-") as tmp:
        def refused(spec):
            path = pathlib.Path(tmp) / "draft.gguf"
            tiny_gguf.write(path, spec)
            return radish("info", model, "--speculative-draft-model-path", path, want=1)[1]
        model, small, none = (pathlib.Path(tmp) / name for name in ("m.gguf", "s.gguf", "none"))
        tiny_gguf.write(model, dict(arch="qwen3", vocab=300))
        tiny_gguf.write(small, dict(arch="llama", vocab=292, layers=1, type="bf16"))
        alone = info(model, "--dtype", "bf16")["memory"]
        both = info(model, "--dtype", "bf16", "--speculative-draft-model-path", small)["memory"]
        draft = both["cache"].pop("draft")
        check(draft["bytes_per_token"] == 2 * 2 * 24 * 2 + 8 and draft["weights_bytes"], draft)
        check(both["cache"] == alone["cache"], both, alone)
        check(both["total_bytes"] > alone["total_bytes"] + draft["weights_bytes"], both, alone)
        words = radish("info", model, "--speculative-draft-model-path", small)[0]
        check("draft model: weights 0." in words, words[:1500])
        _, why = radish("info", model, "--speculative-draft-model-path", none, want=1)
        check(str(none) in why, why)
        why = refused(dict(arch="llama", vocab=300, vocabulary=[
            ("tokenizer.ggml.model", tiny_gguf.STR, "gpt2"),
            ("tokenizer.ggml.pre", tiny_gguf.STR, "gpt-2"),
            ("tokenizer.ggml.tokens", tiny_gguf.ARR, (tiny_gguf.STR, [f"t{i}" for i in range(300)])),
            ("tokenizer.ggml.merges", tiny_gguf.ARR, (tiny_gguf.STR, []))]))
        check("another vocabulary: token 0 is 't0', and '" in why, why)
        why = refused(dict(arch="llama", vocab=300 + 129))
        check("another vocabulary: it has 429 tokens, the model 300" in why, why)
        why = refused(dict(tiny_gguf.SPECS["lfm2"], vocab=300))
        check("of its layers are recurrent" in why, why)
        why = refused(dict(arch="qwen3", vocab=300, keys={"pooling_type": 3}))
        check("for embeddings" in why, why)


def test_what_cannot_be_served_is_told_with_key_and_value():
    with tempfile.TemporaryDirectory(prefix="radish-info-") as tmp:
        path = pathlib.Path(tmp) / "m.gguf"
        tiny_gguf.write(path, dict(arch="llama", keys={"attention.max_alibi_bias": 8.0}))
        told = info(path)
        check(not told["supported"] and told["memory"] is None, told)
        check("attention.max_alibi_bias" in told["reason"] and "8" in told["reason"], told["reason"])


run(globals())
