#!/usr/bin/env python3
"""Every architecture and option against a float64 forward pass in numpy (oracle.py), on small
models made here: logits of a prompt longer than the sliding window, and greedy answers of
a server that prefills in chunks and finds prefixes in its cache."""
import json
import tempfile

from radish_e2e import Server, check, radish, run, skip_script

try:
    import numpy as np
except ImportError:
    skip_script("python3-numpy is not here")

import oracle
import tiny_gguf

LIMITS = {"f32": 1e-4, "bf16": 5e-2}
IDS = [int(i) for i in np.random.default_rng(7).integers(0, 256, 150)]


def words(ids):
    return ",".join(map(str, ids))


def test_logits_agree_with_numpy():
    with tempfile.TemporaryDirectory() as tmp:
        for name, spec in tiny_gguf.SPECS.items():
            path = f"{tmp}/{name}.gguf"
            tiny_gguf.write(path, spec)
            want = oracle.logits(path, IDS)
            off = {}
            for dtype, limit in LIMITS.items():
                out, _ = radish("logits", "-m", path, "--ids", words(IDS), "--dtype", dtype, "--json")
                got = np.array(json.loads(out)["logits"])
                check(got.shape == want.shape, got.shape, want.shape)
                off[dtype] = np.abs(got - want).max() / np.abs(want).max()
                if dtype == "f32" or "experts" not in spec:  # where rounding turns a choice
                    check(off[dtype] < limit, name, dtype, off[dtype])
            print(f"  {name}: f32 off by {off['f32']:.1e} of the largest logit, bf16 by "
                  f"{off['bf16']:.1e}")


def test_options_matter():
    """An oracle that ignored an option would agree with a radish that ignores it too."""
    with tempfile.TemporaryDirectory() as tmp:
        path, plain = f"{tmp}/a.gguf", f"{tmp}/b.gguf"
        for name, spec in tiny_gguf.SPECS.items():
            for key in [*spec.get("keys", {}), *(["extra"] if "extra" in spec else [])]:
                less = {k: dict(v) if isinstance(v, dict) else v for k, v in spec.items()}
                less.pop("extra") if key == "extra" else less["keys"].pop(key)
                if key == "rope.scaling.type" and "longrope" in spec["keys"].values():
                    continue  # the tensors say it all
                if name == "phi3-long" and key == "attention.sliding_window":
                    continue  # past the context: masks nothing
                if key.startswith(("ssm.", "shortconv.")) or key in (
                        "full_attention_interval", "attention.head_count_kv",
                        "interleave_moe_layer_step", "attention.key_length_swa",
                        "attention.value_length_swa", "attention.shared_kv_layers",
                        "embedding_length_per_layer_input") or (
                        name.startswith("gemma4") and key.startswith("attention.sliding_window")):
                    continue  # the tensors' shapes say it, too
                if key in ("expert_feed_forward_length", "leading_dense_block_count") or (
                        "latent" in spec and key.startswith(("attention.", "expert_"))) or (
                        key.startswith("expert_shared_")):
                    continue  # the tensors' shapes say it, too
                tiny_gguf.write(path, spec)
                tiny_gguf.write(plain, less)
                a, b = (oracle.logits(p, IDS[:90]) for p in (path, plain))
                if key == "rope.scaling.type" and spec["keys"][key] == "linear":
                    check(np.array_equal(a, b), "linear is what a factor alone means")
                elif key == "rope.dimension_sections":
                    check(np.array_equal(a, b), "of text all axes are one")
                elif name == "phi3-short" and key == "rope.scaling.original_context_length":
                    check(np.array_equal(a, b), "the context is the default")
                else:
                    check(np.abs(a - b).max() > 1e-3, name, key, "changes nothing")


def test_the_context_in_force_chooses_the_long_or_the_short_factors():
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/phi3.gguf"
        tiny_gguf.write(path, tiny_gguf.SPECS["phi3-long"])
        answers = {}
        for context in (128, 129):
            _, answers[context] = greedy(path, IDS[:60], 20, "--context-length", context)
            follow(path, IDS[:60], answers[context], context)
        check(answers[128] != answers[129], "the choice changes nothing")


def test_info_says_what_sets_a_model_apart():
    wanted = {
        "llama-3-rope": ["interleaved RoPE over 24 of 24, base 500000", "rope_freqs.weight"],
        "llama-yarn": ["RoPE over 16 of 24", "YaRN x8 from 64", "magnitude 1.20794"],
        "llama-linear-old-key": ["linear x2.5"],
        "mistral": ["sliding window of 40 in all layers"],
        "qwen2": ["NEOX", "q/k/v biases", "tied embedding"],
        "qwen3": ["q/k norms"],
        "phi3-long": ["fused q/k/v and gate/up", "rope_factors_long.weight", "magnitude 1.19"],
        "phi3-short": ["rope_factors_short.weight"],
        "gemma2": ["GEGLU", "post-norms", "embedding x sqrt(dim)", "scores capped at 2",
                   "logits capped at 3", "sliding window of 40 in even layers"],
        "gemma3": ["base 1e+06, linear x8 (sliding layers, base 10000)",
                   "sliding window of 40 in 6 of 7 layers"],
        "gemma4": ["V norms; 16 numbers of the token for each layer", "3 layers read others' K/V",
                   "sliding window of 40 in 4 of 6 layers"],
        "granite": ["embedding x 12, residual x 0.22, logits / 0.5"],
        "granite-no-rope": ["no RoPE"],
        "mistral3": ["queries grow by 0.3 ln of every 40 positions"],
        "olmo3": ["q/k norms over all heads; only post-norms", "in 3 of 5 layers"],
        "deepseek2": ["latent attention of 40 + 16 for heads of 36 and 20",
                      "2 of 8 experts of 32 a token, sigmoid router, a shared one of 64"],
        "gpt-oss": ["SwiGLU with limits; 3 of 6 experts of 48 a token; biases; attention sinks",
                    "YaRN x32 from 128", "sliding window of 40 in even layers"],
        "qwen2moe": ["2 of 6 experts of 32 a token, a shared one of 72"],
        "smollm3": ["no RoPE in 1 of 5 layers"],
        "qwen35": ["RoPE over 8 of 24", "gated delta rule in 2 of 4 layers, 4 heads of 16 x 24, 4 taps",
                   "gated attention"],
        "lfm2": ["short convolution in 3 of 5 layers, 3 taps"],
        "granitehybrid": ["no RoPE", "Mamba 2 in 3 of 4 layers, 4 heads of 16 x 24, 4 taps"],
        "bailingmoe2": ["fused q/k/v", "a shared one of 80"],
    }
    with tempfile.TemporaryDirectory() as tmp:
        for name, phrases in wanted.items():
            path = f"{tmp}/{name}.gguf"
            tiny_gguf.write(path, tiny_gguf.SPECS[name])
            info = json.loads(radish("info", path, "--json")[0])
            check(info["supported"] and not info["reason"], info["reason"])
            for phrase in phrases:
                check(phrase in info["traits"], name, phrase, info["traits"])
            check(phrases[-1] in radish("info", path)[0], "not in the text")
        tiny_gguf.write(path, {"arch": "llama", "keys": {"rope.scaling.type": "ntk"}})
        info = json.loads(radish("info", path, "--json")[0])
        check(not info["supported"] and '"ntk"' in info["reason"] and not info["traits"], info)
        error = radish("logits", "-m", path, "--ids", 1, want=1)[1]
        check('"ntk"' in error and "yarn" in error, error)


def greedy(path, ids, n, *args):
    with Server(path, "--dtype", "f32", "--chunked-prefill-size", 32, "--page-size", 16,
                "--max-total-tokens", 2048, *args) as s:
        def ask():
            return s.ask("/generate", {"input_ids": ids, "sampling_params": {
                "temperature": 0, "max_new_tokens": n, "ignore_eos": True}})
        cold, warm = ask(), ask()
        check(cold["output_ids"] == warm["output_ids"], "a hit changed the answer")
        check(warm["meta_info"]["cached_tokens"] >= len(ids) // 16 * 16 - 16, warm)
    return cold, warm["output_ids"]


def follow(path, ids, answer, context=None):
    """The oracle chooses the same tokens, or one that is as good."""
    want = oracle.logits(path, ids + answer, context)
    for i, token in enumerate(answer):
        line = want[len(ids) + i - 1]
        check(line.max() - line[token] < 1e-3 * np.abs(line).max(), i, token, line.max())


def test_servers_answers_are_the_oracles():
    with tempfile.TemporaryDirectory() as tmp:
        for name in ("llama-yarn", "mistral", "qwen2", "phi3", "phi3-long", "gemma2", "gemma3", "olmo3",
                     "mistral3", "qwen3moe", "gpt-oss", "deepseek2", "gemma4", "qwen35moe", "lfm2moe",
                     "granitehybrid"):
            path = f"{tmp}/{name}.gguf"
            tiny_gguf.write(path, tiny_gguf.SPECS[name])
            _, answer = greedy(path, IDS[:100], 60)
            follow(path, IDS[:100], answer)


if __name__ == "__main__":
    run(globals())
