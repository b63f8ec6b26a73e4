"""Small models of every architecture with random weights, written as GGUF files; and a
reader of such files. Both from the format's definition; nothing of radish is used.

    write(path, spec)       spec: a dict, see SPECS
    write_vocabulary(path, keys)  a file of keys alone
    meta, tensors = read(path)    metadata as a dict, tensors as float64 [rows][cols]
"""
import struct

import numpy as np

U32, I32, F32, BOOL, STR, ARR = 4, 5, 6, 7, 8, 9
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
           11: "<q", 12: "<d"}
ALIGN = 32
SMALL = dict(vocab=260, layers=3, dim=48, ffn=80, heads=4, kv=2, hd=24, context=512, rope_dim=24,
             tied=False, base=10000.0, eps=1e-5, type="f32")

# One model for each architecture and each way of stretching RoPE. `keys` are metadata
# below "ARCH.", `extra` tensors of divisors for RoPE's angles. `vocabulary` are (key, kind, value)
# in place of the bytes'; `gain` multiplies the output matrix, whose rows `quiet` are zero.
SPECS = {
    "llama": dict(arch="llama"),
    "llama-3-rope": dict(arch="llama", base=500000.0, extra={
        "rope_freqs.weight": [1, 1, 1, 1, 1.3, 2, 4, 8, 8, 8, 8, 8]}),
    "llama-linear": dict(arch="llama", keys={"rope.scaling.type": "linear",
                                             "rope.scaling.factor": 4.0}),
    "llama-linear-old-key": dict(arch="llama", keys={"rope.scale_linear": 2.5}),
    "llama-yarn": dict(arch="llama", rope_dim=16, keys={
        "rope.scaling.type": "yarn", "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 64}),
    "llama-yarn-all-keys": dict(arch="llama", keys={
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 100, "rope.scaling.attn_factor": 0.9,
        "rope.scaling.yarn_beta_fast": 6.0, "rope.scaling.yarn_beta_slow": 0.5,
        "rope.scaling.yarn_ext_factor": 0.8, "rope.scaling.yarn_attn_factor": 1.1}),
    "mistral": dict(arch="llama", base=1e6, keys={"attention.sliding_window": 40}),
    "qwen2": dict(arch="qwen2", base=1e6, tied=True, type="f16"),
    "qwen2-yarn": dict(arch="qwen2", base=1e6, keys={
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 128}),
    "qwen3": dict(arch="qwen3", base=1e6, tied=True, eps=1e-6, hd=32, rope_dim=32, type="bf16"),
    "phi3": dict(arch="phi3", keys={"attention.sliding_window": 33}),
    "phi3-long": dict(arch="phi3", rope_dim=18, keys={
        "rope.scaling.type": "longrope", "rope.scaling.original_context_length": 128,
        "rope.scaling.attn_factor": 1.19, "attention.sliding_window": 600}, extra={
        "rope_factors_long.weight": [1.05, 1.1, 1.4, 2, 3, 5, 9, 17, 30],
        "rope_factors_short.weight": [1, 1, 1, 1, 1.1, 1.1, 1.2, 1.5, 2]}),
    "phi3-short": dict(arch="phi3", keys={
        "rope.scaling.original_context_length": 512, "rope.scaling.attn_factor": 1.1}, extra={
        "rope_factors_long.weight": list(range(2, 14)),
        "rope_factors_short.weight": [1 + i / 10 for i in range(12)]}),
    "gemma2": dict(arch="gemma2", tied=True, hd=32, rope_dim=32, type="bf16", keys={
        "attention.sliding_window": 40, "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0}),
    "gemma2-defaults": dict(arch="gemma2", tied=True, layers=2, hd=16, rope_dim=16),
    "gemma3": dict(arch="gemma3", tied=True, layers=7, hd=32, rope_dim=32, base=1e6, keys={
        "attention.sliding_window": 40, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}),
    "gemma3-keys": dict(arch="gemma3", tied=True, layers=5, base=1e6, keys={
        "attention.sliding_window": 40, "attention.sliding_window_pattern": 3,
        "rope.freq_base_swa": 500.0}),
    "gemma4": dict(arch="gemma4", tied=True, layers=6, hd=32, local_hd=24, local_kv=4, rope_dim=32, base=1e6,
                   shared_kv=3, extra={"rope_freqs.weight": [1] * 4 + [1e30] * 12},
                   out_scale=True, layer_embd=16, keys={
        "attention.sliding_window": 40, "attention.key_length_swa": 24, "attention.value_length_swa": 24,
        "rope.dimension_count_swa": 16, "rope.freq_base_swa": 500.0, "attention.shared_kv_layers": 3,
        "attention.head_count_kv": [4, 4, 2, 4, 4, 2], "embedding_length_per_layer_input": 16,
        "attention.sliding_window_pattern": [True, True, False, True, True, False],
        "final_logit_softcapping": 3.0}),
    "gemma4-moe": dict(arch="gemma4", tied=True, layers=3, hd=32, local_hd=24, rope_dim=32, v_is_k=True,
                       experts=6, expert=32, keys={
        "attention.sliding_window": 40, "attention.key_length_swa": 24, "attention.value_length_swa": 24,
        "expert_used_count": 2, "expert_feed_forward_length": 32,
        "attention.sliding_window_pattern": [True, True, False]}),
    "granite": dict(arch="granite", tied=True, keys={
        "embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 0.1, "logit_scale": 0.5}),
    "granite-no-rope": dict(arch="granite", tied=True, keys={
        "logit_scale": 4.0, "rope.scaling.finetuned": False}),
    "mistral3": dict(arch="mistral3", base=1e6, keys={
        "rope.scaling.type": "yarn", "rope.scaling.factor": 16.0,
        "rope.scaling.original_context_length": 40, "rope.scaling.yarn_log_multiplier": 0.7,
        "attention.temperature_scale": 0.3}),
    "olmo2": dict(arch="olmo2"),
    "olmo3": dict(arch="olmo2", layers=5, keys={
        "attention.sliding_window": 40, "rope.scaling.type": "yarn", "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 64,
        "attention.sliding_window_pattern": [True, False, True, True, False]}),
    "qwen3vl": dict(arch="qwen3vl", hd=32, rope_dim=32, base=1e6, keys={
        "rope.dimension_sections": [8, 4, 4, 0]}),
    "smollm3": dict(arch="smollm3", layers=5, base=5e6),
    "mixtral": dict(arch="llama", experts=6, keys={"expert_used_count": 2}),
    "granitemoe": dict(arch="granitemoe", tied=True, ffn=64, experts=6, shared=40, keys={
        "expert_used_count": 3, "expert_shared_feed_forward_length": 40, "residual_scale": 0.22,
        "logit_scale": 0.5}),
    "olmoe": dict(arch="olmoe", ffn=64, experts=6, keys={"expert_used_count": 3}),
    "qwen2moe": dict(arch="qwen2moe", experts=6, expert=32, shared=72, keys={
        "expert_used_count": 2, "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 72}),
    "qwen3moe": dict(arch="qwen3moe", hd=32, rope_dim=32, base=1e6, experts=8, expert=64, dense=1,
                     keys={"expert_used_count": 3, "expert_feed_forward_length": 64,
                           "leading_dense_block_count": 1, "expert_weights_scale": 1.5}),
    "gpt-oss": dict(arch="gpt-oss", layers=4, base=150000.0, experts=6, expert=48, keys={
        "expert_used_count": 3, "expert_feed_forward_length": 48, "attention.sliding_window": 40,
        "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 128}),
    "deepseek2": dict(arch="deepseek2", kv=1, hd=56, rope_dim=16, experts=8, expert=32, dense=1,
                      shared=64, latent=dict(q=44, kv=40, key=36, value=20), keys={
        "attention.value_length": 40, "attention.q_lora_rank": 44, "attention.kv_lora_rank": 40,
        "attention.key_length_mla": 36, "attention.value_length_mla": 20, "expert_used_count": 2,
        "expert_feed_forward_length": 32, "leading_dense_block_count": 1, "expert_shared_count": 2,
        "expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 2.5,
        "expert_group_count": 4, "expert_group_used_count": 2}),
    "deepseek2-lite": dict(arch="deepseek2", kv=1, hd=56, rope_dim=16, experts=6, expert=32,
                           shared=32, latent=dict(q=0, kv=40, key=36, value=20), keys={
        "attention.value_length": 40, "attention.kv_lora_rank": 40,
        "attention.key_length_mla": 36, "attention.value_length_mla": 20, "expert_used_count": 3,
        "expert_feed_forward_length": 32, "expert_shared_count": 1,
        "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0,
        "rope.scaling.original_context_length": 64, "rope.scaling.yarn_log_multiplier": 0.0707}),
    "bailingmoe2": dict(arch="bailingmoe2", hd=12, rope_dim=6, experts=8, expert=32, dense=1, shared=80,
                        keys={"expert_used_count": 3, "expert_feed_forward_length": 32,
                              "leading_dense_block_count": 1, "expert_shared_count": 2,
                              "expert_shared_feed_forward_length": 40, "expert_gating_func": 2,
                              "expert_weights_norm": True, "expert_weights_scale": 2.5,
                              "expert_group_count": 4, "expert_group_used_count": 2}),
    "ernie4_5-moe": dict(arch="ernie4_5-moe", tied=True, layers=4, experts=6, expert=32, shared=48, dense=1,
                         every=2, keys={
        "expert_used_count": 2, "expert_feed_forward_length": 32, "leading_dense_block_count": 1,
        "interleave_moe_layer_step": 2, "expert_shared_feed_forward_length": 48}),
    "qwen35": dict(arch="qwen35", layers=4, base=1e7, eps=1e-3, rope_dim=8, attention=(1, 3),
                   state=dict(taps=4, heads=4, groups=2, key=16, value=24), keys={
        "full_attention_interval": 2, "ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 2,
        "ssm.time_step_rank": 4, "ssm.inner_size": 96, "rope.dimension_sections": [2, 1, 1, 0]}),
    "qwen35moe": dict(arch="qwen35moe", layers=4, base=1e7, eps=1e-3, rope_dim=8, attention=(3,),
                      experts=6, expert=32, shared=40,
                      state=dict(taps=4, heads=6, groups=3, key=20, value=16), keys={
        "ssm.conv_kernel": 4, "ssm.state_size": 20, "ssm.group_count": 3, "ssm.time_step_rank": 6,
        "ssm.inner_size": 96, "expert_used_count": 2, "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 40}),
    "lfm2": dict(arch="lfm2", tied=True, layers=5, hd=12, rope_dim=12, attention=(2, 4),
                 state=dict(taps=3), keys={
        "shortconv.l_cache": 3, "attention.head_count_kv": [0, 0, 2, 0, 2]}),
    "lfm2moe": dict(arch="lfm2moe", tied=True, layers=3, hd=12, rope_dim=12, attention=(1,), dense=1,
                    experts=6, expert=32, state=dict(taps=3), keys={
        "shortconv.l_cache": 3, "attention.head_count_kv": [0, 2, 0], "expert_used_count": 2,
        "expert_feed_forward_length": 32, "leading_dense_block_count": 1, "expert_gating_func": 2}),
    "granitehybrid": dict(arch="granitehybrid", tied=True, layers=4, ffn=64, experts=6, shared=40,
                          attention=(2,), state=dict(taps=4, heads=4, groups=2, key=16, value=24), keys={
        "ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 2, "ssm.time_step_rank": 4,
        "ssm.inner_size": 96, "attention.head_count_kv": [0, 0, 2, 0], "expert_used_count": 3,
        "expert_shared_feed_forward_length": 40, "residual_scale": 0.22, "logit_scale": 0.5,
        "rope.scaling.finetuned": False}),
    "llama-layers-differ": dict(arch="llama", layers=4, heads=[4, 2, 8, 4], ffn=[80, 48, 96, 80]),
}


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind, value):
    if kind == STR:
        return _string(value)
    if kind == ARR:
        of, items = value
        return struct.pack("<IQ", of, len(items)) + b"".join(_value(of, item) for item in items)
    return struct.pack(SCALARS[kind], value)


def _kv(key, kind, value):
    return _string(key) + struct.pack("<I", kind) + _value(kind, value)


def _kind(value):
    return BOOL if isinstance(value, bool) else U32 if isinstance(value, int) else \
        F32 if isinstance(value, float) else STR


def _plain(key, value):
    """A key whose kind the value tells; a list is an array of bools or of I32."""
    if isinstance(value, list):
        return _kv(key, ARR, (BOOL if isinstance(value[0], bool) else I32, value))
    return _kv(key, _kind(value), value)


def of_layer(value, layer):
    """A key's number for one layer: all have one, or each has its own."""
    return value[layer] if isinstance(value, list) else value


def _recurrent(s, b):
    """The mixer of a layer that keeps a state instead of K and V."""
    a, d, r = s["arch"], s["dim"], s["state"]
    if a.startswith("lfm2"):
        yield b + "shortconv.conv.weight", (d, r["taps"]), 0
        yield b + "shortconv.in_proj.weight", (3 * d, d), 0
        yield b + "shortconv.out_proj.weight", (d, d), 0
        return
    heads, inner = r["heads"], r["heads"] * r["value"]
    channels = inner + 2 * r["groups"] * r["key"]
    yield b + "ssm_conv1d.weight", (channels, r["taps"]), 0
    yield b + "ssm_dt.bias", (heads,), 0
    yield b + "ssm_out.weight", (d, inner), 0
    if a == "granitehybrid":
        yield b + "ssm_in.weight", (inner + channels + heads, d), 0
        yield b + "ssm_conv1d.bias", (channels,), 0
        yield b + "ssm_a", (heads, 1), -1
        yield b + "ssm_d", (heads, 1), 1
        yield b + "ssm_norm.weight", (r["groups"], inner // r["groups"]), 1
        return
    yield b + "attn_qkv.weight", (channels, d), 0
    yield b + "attn_gate.weight", (inner, d), 0
    yield b + "ssm_alpha.weight", (heads, d), 0
    yield b + "ssm_beta.weight", (heads, d), 0
    yield b + "ssm_a", (heads,), -1
    yield b + "ssm_norm.weight", (r["value"],), 1


def _shapes(s):
    """(name, shape, middle): vectors lie around `middle`, matrices around 0."""
    a, d = s["arch"], s["dim"]
    s.setdefault("keys", {})
    yield "token_embd.weight", (s["vocab"], d), 0
    for layer in range(s["layers"]):
        b, f = f"blk.{layer}.", of_layer(s["ffn"], layer)
        local = of_layer(s["keys"].get("attention.sliding_window_pattern", False), layer) if a == "gemma4" else False
        hd = s["local_hd"] if local else s["hd"]
        q, k = of_layer(s["heads"], layer) * hd, (s.get("local_kv", s["kv"]) if local else s["kv"]) * hd
        own = layer < s["layers"] - s.get("shared_kv", 0)
        if a != "olmo2":
            yield b + "attn_norm.weight", (d,), 1
        mla, attends = s.get("latent"), layer in s.get("attention", range(s["layers"]))
        gated = a.startswith("qwen35")
        if not attends:
            yield from _recurrent(s, b)
        elif mla:
            heads, rope = s["heads"], s["rope_dim"]
            if mla["q"]:
                yield b + "attn_q_a.weight", (mla["q"], d), 0
                yield b + "attn_q_a_norm.weight", (mla["q"],), 1
                yield b + "attn_q_b.weight", (heads * mla["key"], mla["q"]), 0
            else:
                yield b + "attn_q.weight", (heads * mla["key"], d), 0
            yield b + "attn_kv_a_mqa.weight", (mla["kv"] + rope, d), 0
            yield b + "attn_kv_a_norm.weight", (mla["kv"],), 1
            yield b + "attn_k_b.weight", (heads, mla["kv"], mla["key"] - rope), 0
            yield b + "attn_v_b.weight", (heads, mla["value"], mla["kv"]), 0
            q = heads * mla["value"]
        elif a in ("phi3", "bailingmoe2"):
            yield b + "attn_qkv.weight", (q + 2 * k, d), 0
        else:
            parts = "q" if not own else "qk" if s.get("v_is_k") and not local else "qkv"
            yield from ((b + f"attn_{p}.weight", (n, d), 0) for p, n in zip(parts, (2 * q if gated else q, k, k)))
        if a in ("qwen2", "qwen2moe", "gpt-oss"):
            yield from ((b + f"attn_{p}.bias", (n,), 0) for p, n in zip("qkv", (q, k, k)))
        if attends and a in ("qwen3", "qwen3vl", "qwen3moe", "gemma3", "qwen35", "qwen35moe", "lfm2",
                             "lfm2moe", "bailingmoe2"):
            yield from ((b + f"attn_{p}_norm.weight", (s["hd"],), 1) for p in "qk")
        if a == "gemma4":
            yield b + "attn_q_norm.weight", (hd,), 1
            if own:
                yield b + "attn_k_norm.weight", (hd,), 1
        if a in ("olmo2", "olmoe"):
            yield from ((b + f"attn_{p}_norm.weight", (n,), 1) for p, n in zip("qk", (q, k)))
        if attends:
            yield b + "attn_output.weight", (d, q), 0
        if a == "gpt-oss":
            yield b + "attn_output.bias", (d,), 0
            yield b + "attn_sinks.weight", (s["heads"],), 0.5
            yield b + "post_attention_norm.weight", (d,), 1
        elif gated:
            yield b + "post_attention_norm.weight", (d,), 1
        elif a != "olmo2":
            yield b + "ffn_norm.weight", (d,), 1
        experts = s.get("experts", 0) if layer >= s.get("dense", 0) else 0
        if (layer + 1) % s.get("every", 1):
            experts = 0
        if (not experts or a == "gemma4") and a != "phi3":
            yield b + "ffn_gate.weight", (f, d), 0
        if not experts or a == "gemma4":
            yield b + "ffn_up.weight", (2 * f if a == "phi3" else f, d), 0
            yield b + "ffn_down.weight", (d, f), 0
        if experts:
            e, shared = s.get("expert", f), s.get("shared", 0)
            if a == "gemma4":
                yield b + "ffn_gate_inp.scale", (d,), d ** 0.5
                yield b + "ffn_down_exps.scale", (experts,), 1
                yield from ((b + name + ".weight", (d,), 1)
                            for name in ("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"))
            yield b + "ffn_gate_inp.weight", (experts, d), 0
            yield from ((b + f"ffn_{p}_exps.weight", (experts, *shape), 0)
                        for p, shape in ((("gate_up", (2 * e, d)), ("down", (d, e))) if a == "gemma4" else
                                         (("gate", (e, d)), ("up", (e, d)), ("down", (d, e)))))
            if s["keys"].get("expert_gating_func") == 2 or a == "ernie4_5-moe":
                yield b + "exp_probs_b.bias", (experts,), 0
            if a == "gpt-oss":
                yield b + "ffn_gate_inp.bias", (experts,), 0
                yield from ((b + f"ffn_{p}_exps.bias", (experts, n), 0)
                            for p, n in (("gate", e), ("up", e), ("down", d)))
            if a in ("qwen2moe", "qwen35moe"):
                yield b + "ffn_gate_inp_shexp.weight", (d,), 0
            if shared:
                yield from ((b + f"ffn_{p}_shexp.weight", shape, 0) for p, shape in (
                    ("gate", (shared, d)), ("up", (shared, d)), ("down", (d, shared))))
        if a == "gemma4" and "layer_embd" in s:
            yield b + "inp_gate.weight", (s["layer_embd"], d), 0
            yield b + "proj.weight", (d, s["layer_embd"]), 0
            yield b + "post_norm.weight", (d,), 1
        if s.get("out_scale"):
            yield b + "layer_output_scale.weight", (1,), 0.8
        if a in ("gemma2", "gemma3", "gemma4", "olmo2"):
            yield b + "post_attention_norm.weight", (d,), 1
            yield b + "post_ffw_norm.weight", (d,), 1
    if "layer_embd" in s:
        every = s["layers"] * s["layer_embd"]
        yield "per_layer_token_embd.weight", (s["vocab"], every), 0
        yield "per_layer_model_proj.weight", (every, d), 0
        yield "per_layer_proj_norm.weight", (s["layer_embd"],), 1
    yield "token_embd_norm.weight" if s["arch"].startswith("lfm2") else "output_norm.weight", (d,), 1
    if not s["tied"]:
        yield "output.weight", (s["vocab"], d), 0


def byte_letters():
    """The characters that stand for the 256 bytes in byte-level BPE."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(rest)) for b in range(256)]


def write(path, spec, seed=1):
    s = {**SMALL, **spec}
    a, random = s["arch"], np.random.default_rng(seed)
    keys = {"context_length": s["context"], "embedding_length": s["dim"],
            "block_count": s["layers"], "feed_forward_length": s["ffn"],
            "attention.head_count": s["heads"], "attention.head_count_kv": s["kv"],
            "attention.key_length": s["hd"], "attention.value_length": s["hd"],
            "attention.layer_norm_rms_epsilon": s["eps"], "rope.freq_base": s["base"],
            "rope.dimension_count": s["rope_dim"],
            **({"expert_count": s["experts"]} if "experts" in s else {}), **s.get("keys", {})}
    tokens = byte_letters() + [f"<c{i}>" for i in range(s["vocab"] - 256)]
    kinds = [1] * 256 + [3] * (s["vocab"] - 256)
    kvs = [_kv("general.architecture", STR, a)]
    kvs += [_plain(f"{a}.{key}", value) for key, value in keys.items()]
    kvs += [_kv(*key) for key in s.get("vocabulary") or [
        ("tokenizer.ggml.model", STR, "gpt2"), ("tokenizer.ggml.pre", STR, "gpt-2"),
        ("tokenizer.ggml.tokens", ARR, (STR, tokens)),
        ("tokenizer.ggml.token_type", ARR, (I32, kinds)),
        ("tokenizer.ggml.merges", ARR, (STR, [])),
        ("tokenizer.ggml.eos_token_id", U32, s["vocab"] - 1)]]
    infos, data = [], b""
    extra = [(name, np.array(v, np.float32)) for name, v in s.get("extra", {}).items()]
    for name, shape, middle in _shapes(s):
        x = random.standard_normal(shape)
        x = middle + 0.3 * x if len(shape) == 1 else x / np.sqrt(shape[-1])
        if name.endswith((".ssm_a", ".ssm_d", ".ssm_norm.weight")):
            x = middle + 0.2 * random.standard_normal(shape)
        if name.endswith("ffn_gate_inp.weight"):
            x *= 4  # clear choices
        if name.endswith("attn_q_norm.weight") and a == "gemma4":
            x *= 0.12  # scores are not scaled: large ones make much of rounding
        if name == "output.weight":
            x *= s.get("gain", 1)
            x[list(s.get("quiet", ()))] = 0
        extra.append((name, x.astype(np.float32)))
    for name, x in extra:
        kind, raw = 0, x.astype("<f4").tobytes()
        if x.ndim > 1 and s["type"] == "f16":
            kind, raw = 1, x.astype("<f2").tobytes()
        if x.ndim > 1 and s["type"] == "bf16":
            kind, raw = 30, (x.view("<u4") >> 16).astype("<u2").tobytes()
        infos.append(_string(name) + struct.pack("<I", x.ndim) +
                     struct.pack(f"<{x.ndim}Q", *x.shape[::-1]) + struct.pack("<IQ", kind, len(data)))
        data += raw + bytes(-len(raw) % ALIGN)
    _save(path, kvs, infos, data)


def write_vocabulary(path, keys):
    _save(path, [_kv("general.architecture", STR, "llama"), *(_kv(*key) for key in keys)], [], b"")


def _save(path, kvs, infos, data):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(kvs)) + b"".join(kvs + infos)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGN) + data)


class _Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, fmt):
        value = struct.unpack_from(fmt, self.data, self.at)
        self.at += struct.calcsize(fmt)
        return value[0] if len(value) == 1 else value

    def string(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == STR:
            return self.string()
        if kind == ARR:
            of, n = self.take("<I"), self.take("<Q")
            return [self.value(of) for _ in range(n)]
        return self.take(SCALARS[kind])


def _decode(kind, raw, count):
    if kind == 0:
        return np.frombuffer(raw, "<f4", count).astype(np.float64)
    if kind == 1:
        return np.frombuffer(raw, "<f2", count).astype(np.float64)
    if kind == 30:
        bits = np.frombuffer(raw, "<u2", count).astype("<u4") << 16
        return bits.view("<f4").astype(np.float64)
    if kind == 8:
        blocks = np.frombuffer(raw, np.dtype([("d", "<f2"), ("q", "i1", 32)]), count // 32)
        return (blocks["d"].astype(np.float64)[:, None] * blocks["q"]).reshape(-1)
    raise ValueError(f"tensor type {kind}")


def read(path):
    with open(path, "rb") as f:
        r = _Reader(f.read())
    assert r.data[:4] == b"GGUF"
    r.at = 8
    num_tensors, num_kvs = r.take("<QQ")
    meta = {}
    for _ in range(num_kvs):
        key = r.string()
        meta[key] = r.value(r.take("<I"))
    infos = []
    for _ in range(num_tensors):
        name, n = r.string(), r.take("<I")
        shape = [r.take("<Q") for _ in range(n)][::-1]
        infos.append((name, shape, *r.take("<IQ")))
    base = -(-r.at // ALIGN) * ALIGN
    return meta, {name: _decode(kind, r.data[base + at:], int(np.prod(shape))).reshape(shape)
                  for name, shape, kind, at in infos}
