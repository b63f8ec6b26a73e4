"""The forward pass in float64, once more and from the papers: what a GGUF model says after
each token of a sequence. No cache, no batch, no blocks; attention is one matrix.

Llama 2 and 3 (RMS norm, SwiGLU, grouped queries, RoPE), Qwen 2 (biases) and 3 (q/k norms),
Phi-3 (fused matrices, longrope), Gemma 2 (caps, post-norms, every other layer local,
GELU), Gemma 3 (five local layers in six, with a RoPE of their own), Mistral (sliding window),
Ministral 3 (queries that grow with the position; YaRN's temperature divided out), Granite (four
scales), OLMo 2 (norms behind the blocks alone, over all heads of q and of k) and 3 (three local
layers in four, whose RoPE is not stretched), SmolLM3 (no RoPE in every fourth layer), YaRN;
mixtures of experts: Mixtral, Granite (with a shared expert), OLMoE and Qwen2-MoE (probabilities
as they are; Qwen2's shared expert has a gate), Qwen3-MoE, gpt-oss (its model card and reference
code: sinks, biases, limits in its SwiGLU), DeepSeek 2 and 3 (latent attention as the paper writes
it, K and V of every head made; sigmoids, a bias to choose by, groups of experts), Ling 2.0, ERNIE
4.5 (probabilities plus a bias to choose by); Gemma 4 (wider heads in full layers, scores as they
are, V normed and K's own where there is none, last layers that read others' K and V, a second
embedding of which each layer adds its part, experts beside the dense block); layers that keep a state, token by token: Qwen 3.5
(gated delta rule; its attention has gates), Granite 4 h (Mamba 2), LFM2 (short convolutions). GGUF
stores the q and k of those whose RoPE was permuted so that it turns neighbours; of all others it
turns halves. Gemma's norms are stored as 1 + w.
"""
import numpy as np

from tiny_gguf import of_layer, read

NEIGHBOURS = ("llama", "granite", "granitemoe", "mistral3", "smollm3", "deepseek2",
              "ernie4_5", "ernie4_5-moe")


def rope_angles(meta, arch, tensors, rope_dim, context):
    """(radians per position of each rotation, what the rotated is multiplied by)."""
    def key(name, default):
        return meta.get(f"{arch}.rope.{name}", default)

    def temperature(multiplier):
        return 0.1 * multiplier * np.log(scale) + 1

    i = np.arange(rope_dim // 2)
    base, train = key("freq_base", 10000.0), meta[f"{arch}.context_length"]
    original = key("scaling.original_context_length", train)
    freq = base ** (-2.0 * i / rope_dim)
    if "rope_freqs.weight" in tensors:
        freq = freq / tensors["rope_freqs.weight"]
    if "rope_factors_long.weight" in tensors:
        which = "long" if context > original else "short"
        freq = freq / tensors[f"rope_factors_{which}.weight"]
    kind = key("scaling.type", "linear")
    scale = key("scaling.factor", key("scale_linear", 1.0)) or 1.0
    size = key("scaling.attn_factor", 1.0) * key("scaling.yarn_attn_factor", 1.0)
    if kind == "none":
        return freq, size
    if kind != "yarn":
        return freq / scale, size

    # YaRN, equations 17 to 23: r(i) turns of rotation i in the original context; gamma 0
    # where r < beta_slow, 1 where r > beta_fast. Implementations make the ramp linear in
    # i between the rotations of those two, rounded outwards.
    def rotation(turns):
        return rope_dim * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base))

    low = max(np.floor(rotation(key("scaling.yarn_beta_fast", 32.0))), 0)
    high = min(np.ceil(rotation(key("scaling.yarn_beta_slow", 1.0))), rope_dim - 1)
    gamma = 1 - np.clip((i - low) / max(high - low, 0.001), 0, 1)
    gamma = gamma * key("scaling.yarn_ext_factor", 1.0)
    return ((1 - gamma) * freq / scale + gamma * freq,
            size * temperature(1) / temperature(key("scaling.yarn_log_multiplier", 0.0)))


def local_layers(meta, arch, layers):
    """Which layers see the window alone, if there is one."""
    period = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "olmo2": 4}.get(arch)
    pattern = meta.get(f"{arch}.attention.sliding_window_pattern", period)
    if isinstance(pattern, list):
        return pattern
    return [not pattern or layer % pattern != pattern - 1 for layer in range(layers)]


def local_angles(meta, arch, rope_dim, base, angles):
    """Those of local layers."""
    if arch not in ("gemma3", "gemma4", "olmo2"):
        return angles
    rope_dim = meta.get(f"{arch}.rope.dimension_count_swa",
                        meta.get(f"{arch}.attention.key_length_swa", rope_dim))
    base = meta.get(f"{arch}.rope.freq_base_swa", base if arch == "olmo2" else 10000.0)
    return base ** (-2.0 * np.arange(rope_dim // 2) / rope_dim), 1.0


def rotate(x, freq, size, neighbours):
    """x: [tokens][heads][head_dim]; what lies behind the rotations stays."""
    n = 2 * len(freq)
    angle = np.arange(len(x))[:, None, None] * freq
    a, b = (x[..., 0:n:2], x[..., 1:n:2]) if neighbours else (x[..., :n // 2], x[..., n // 2:n])
    turned = (size * (a * np.cos(angle) - b * np.sin(angle)),
              size * (b * np.cos(angle) + a * np.sin(angle)))
    out = x.copy()
    if neighbours:
        out[..., 0:n:2], out[..., 1:n:2] = turned
    else:
        out[..., :n // 2], out[..., n // 2:n] = turned
    return out


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def convolved(x, weight, bias=0.0):
    """Each channel with its own few taps, the newest token's last."""
    taps = weight.shape[1]
    padded = np.concatenate([np.zeros((taps - 1, x.shape[1])), x])
    return sum(padded[i:i + len(x)] * weight[:, i] for i in range(taps)) + bias


def delta_layer(t, h, key, norm, eps):
    """Gated DeltaNet: S = d S + k (x) w (v - k . d S); value heads take turns with key heads."""
    groups, n, heads = key("ssm.group_count"), key("ssm.state_size"), key("ssm.time_step_rank")
    qkv = silu(convolved(h @ t("attn_qkv").T, t("ssm_conv1d")))
    q, k, v = (x.reshape(len(h), -1, width) for x, width in zip(
        np.split(qkv, [groups * n, 2 * groups * n], -1), (n, n, key("ssm.inner_size") // heads)))
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + eps) for x in (q, k))
    decay = np.exp(t("ssm_a", None) * np.log1p(np.exp(h @ t("ssm_alpha").T + t("ssm_dt", "bias"))))
    weight, state = sigmoid(h @ t("ssm_beta").T), np.zeros((heads, n, v.shape[-1]))
    out = np.empty_like(v)
    for i in range(len(h)):
        of = np.arange(heads) % groups
        state *= decay[i][:, None, None]
        seen = np.einsum("hk,hkv->hv", k[i, of], state)
        state += np.einsum("hk,hv->hkv", k[i, of], weight[i][:, None] * (v[i] - seen))
        out[i] = np.einsum("hk,hkv->hv", q[i, of], state) / np.sqrt(n)
    z = (h @ t("attn_gate").T).reshape(out.shape)
    return (norm(out, t("ssm_norm")) * silu(z)).reshape(len(h), -1) @ t("ssm_out").T


def mamba_layer(t, h, key, norm):
    """Mamba 2: S = e^(a dt) S + dt B (x) x, out = C . S + D x; norms of groups behind the gate."""
    groups, n, heads = key("ssm.group_count"), key("ssm.state_size"), key("ssm.time_step_rank")
    inner = key("ssm.inner_size")
    z, xbc, dt = np.split(h @ t("ssm_in").T, [inner, 2 * inner + 2 * groups * n], -1)
    xbc = silu(convolved(xbc, t("ssm_conv1d"), t("ssm_conv1d", "bias")))
    x, b, c = np.split(xbc, [inner, inner + groups * n], -1)
    x = x.reshape(len(h), heads, -1)
    b, c = (np.repeat(y.reshape(len(h), groups, n), heads // groups, 1) for y in (b, c))
    dt = np.log1p(np.exp(dt + t("ssm_dt", "bias")))
    state, out = np.zeros((heads, n, x.shape[-1])), np.empty_like(x)
    for i in range(len(h)):
        state *= np.exp(dt[i][:, None, None] * t("ssm_a", None)[:, :, None])
        state += np.einsum("hk,hv->hkv", b[i], dt[i][:, None] * x[i])
        out[i] = np.einsum("hk,hkv->hv", c[i], state) + t("ssm_d", None) * x[i]
    gated = (out.reshape(len(h), -1) * silu(z)).reshape(len(h), groups, -1)
    return norm(gated, t("ssm_norm")).reshape(len(h), -1) @ t("ssm_out").T


def conv_layer(t, h):
    b, c, x = np.split(h @ t("shortconv.in_proj").T, 3, -1)
    return (c * convolved(b * x, t("shortconv.conv"))) @ t("shortconv.out_proj").T


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def mixture(t, h, arch, key, routed=None):
    """What the experts say that each row's router chose, weighted; `routed` is what it reads, if
    not h."""
    def expert(row, gate, up, down, biases=(0, 0, 0)):
        g, u = gate @ row + biases[0], up @ row + biases[1]
        if arch == "gpt-oss":
            g, u = np.minimum(g, 7), np.clip(u, -7, 7)
            return down @ (g / (1 + np.exp(-1.702 * g)) * (u + 1)) + biases[2]
        return down @ ((gelu(g) if arch == "gemma4" else silu(g)) * u)

    used = key("expert_used_count")
    scores = (h if routed is None else routed) @ t("ffn_gate_inp").T
    if arch == "gpt-oss":
        scores = scores + t("ffn_gate_inp", "bias")
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    if key("expert_gating_func", 0) == 2:
        p = 1 / (1 + np.exp(-scores))
    by, groups = p.copy(), key("expert_group_count", 1)
    if key("expert_gating_func", 0) == 2 or arch == "ernie4_5-moe":
        by += t("exp_probs_b", "bias")
    if groups > 1:
        worth = np.sort(by.reshape(len(h), groups, -1), -1)[..., -2:].sum(-1)
        order = np.argsort(-worth, -1, kind="stable")[:, key("expert_group_used_count"):]
        for row, out_groups in zip(by.reshape(len(h), groups, -1), order):
            row[out_groups] = -np.inf
    out = np.zeros_like(h)
    if arch == "gemma4":
        exps = [*np.split(t("ffn_gate_up_exps"), 2, 1), t("ffn_down_exps")]
    else:
        exps = [t(f"ffn_{part}_exps") for part in ("gate", "up", "down")]
    biases = [t(f"ffn_{part}_exps", "bias") if arch == "gpt-oss" else np.zeros(len(exps[0]))
              for part in ("gate", "up", "down")]
    for i, row in enumerate(h):
        best = np.argsort(-by[i], kind="stable")[:used]
        weights = p[i, best]
        if key("expert_weights_norm", arch not in ("olmoe", "qwen2moe", "deepseek2", "bailingmoe2")):
            weights = weights / weights.sum()
        if arch == "gemma4":
            weights = weights * t("ffn_down_exps", "scale")[best]
        for e, weight in zip(best, weights * key("expert_weights_scale", 1.0)):
            out[i] += weight * expert(row, *(w[e] for w in exps), [b[e] for b in biases])
        if key("expert_shared_feed_forward_length", 0) or key("expert_shared_count", 0):
            gate = 1.0
            if arch in ("qwen2moe", "qwen35moe"):
                gate = 1 / (1 + np.exp(-t("ffn_gate_inp_shexp") @ row))
            out[i] += gate * expert(row, *(t(f"ffn_{part}_shexp")
                                           for part in ("gate", "up", "down")))
    return out


def latent_heads(t, h, key, turns, norm):
    """q, K and V of all heads, [tokens][heads][width]; what is not K's latent is rotated."""
    heads, rope = key("attention.head_count"), key("rope.dimension_count")
    rank = key("attention.kv_lora_rank")
    if key("attention.q_lora_rank", 0):
        q = norm(h @ t("attn_q_a").T, t("attn_q_a_norm")) @ t("attn_q_b").T
    else:
        q = h @ t("attn_q").T
    row = h @ t("attn_kv_a_mqa").T
    latent, turned = norm(row[:, :rank], t("attn_kv_a_norm")), rotate(row[:, None, rank:], *turns, True)
    q = q.reshape(len(h), heads, -1)
    q = np.concatenate([q[..., :-rope], rotate(q[..., -rope:], *turns, True)], -1)
    k = np.einsum("tl,hlp->thp", latent, t("attn_k_b"))
    k = np.concatenate([k, np.repeat(turned, heads, 1)], -1)
    return q, k, np.einsum("tl,hvl->thv", latent, t("attn_v_b"))


def logits(path, ids, context=None):
    """[len(ids)][vocab]; context: the one in force, if it is not the model's."""
    return forward(*read(path), ids, context)


def hidden(path, ids, context=None):
    """[len(ids)][dim]: what stands before the output's matrix."""
    return forward(*read(path), ids, context, True)


def forward(meta, w, ids, context=None, only_hidden=False):
    """The same of a model that was read."""
    arch = meta["general.architecture"]
    gemma2, phi, granite = arch == "gemma2", arch == "phi3", arch.startswith("granite")
    oss = arch == "gpt-oss"
    gemma4 = arch == "gemma4"
    gemma = arch in ("gemma2", "gemma3", "gemma4")
    behind = gemma or arch == "olmo2"

    def key(name, *default):
        return meta.get(f"{arch}.{name}", *default)

    dim, kvs = key("embedding_length"), key("attention.head_count_kv")
    gated, interval = arch.startswith("qwen35"), key("full_attention_interval", 4)
    hd, layers = key("attention.key_length"), key("block_count")
    eps = key("attention.layer_norm_rms_epsilon")
    angles = rope_angles(meta, arch, w, key("rope.dimension_count"),
                         context or key("context_length"))
    local_turns = local_angles(meta, arch, key("rope.dimension_count"), key("rope.freq_base"),
                               angles)
    window = key("attention.sliding_window", 4096 if gemma2 else 0)
    locals_ = local_layers(meta, arch, layers)
    cap = key("attn_logit_softcapping", 50.0) if gemma2 else 0
    final_cap = key("final_logit_softcapping", 30.0) if gemma2 else key("final_logit_softcapping", 0)
    scale = key("attention.scale", 0) or (1 if gemma4 else 1 / np.sqrt(hd))
    own_kv, kept = layers - key("attention.shared_kv_layers", 0), {}
    residual = (key("residual_scale", 0) or 1) if granite else 1
    latent = key("attention.kv_lora_rank", 0)
    if latent:  # YaRN's temperature is in the scale instead
        log_mul = key("rope.scaling.yarn_log_multiplier", 0.0)
        scale = (1 + log_mul * np.log(key("rope.scaling.factor", 1.0))) ** 2
        scale /= np.sqrt(key("attention.key_length_mla"))
        angles = (angles[0], 1.0)
    warmth = key("attention.temperature_scale", 0.0)
    period = key("rope.scaling.original_context_length", key("context_length"))

    def norm(x, g):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * g

    n = len(ids)
    back = np.arange(n)[:, None] - np.arange(n)[None, :]  # query's position minus key's
    def attention(t, h, layer, heads, kv, local):
        hd = key("attention.key_length_swa") if gemma4 and local else key("attention.key_length")
        if gemma4:
            q, k, v = h @ t("attn_q").T, *kept.get(bool(local), (None, None))
            if layer < own_kv:
                k = h @ t("attn_k").T
                v = h @ t("attn_v").T if f"blk.{layer}.attn_v.weight" in w else k
                k, v = k.reshape(n, kv, hd), norm(v.reshape(n, kv, hd), 1)
                k = rotate(norm(k, t("attn_k_norm")), *(local_turns if local else angles), False)
                kept[bool(local)] = k, v
            q = rotate(norm(q.reshape(n, heads, hd), t("attn_q_norm")),
                       *(local_turns if local else angles), False)
        elif latent:
            q, k, v = latent_heads(t, h, key, angles, norm)
        elif phi or arch == "bailingmoe2":
            q, k, v = np.split(h @ t("attn_qkv").T, [heads * hd, (heads + kv) * hd], -1)
        else:
            q, k, v = (h @ t(f"attn_{p}").T + (t(f"attn_{p}", "bias") if arch in ("qwen2", "qwen2moe", "gpt-oss") else 0)
                       for p in "qkv")
        if latent:
            kv = heads
        width = v.shape[-1] if latent else hd
        if gated:
            q, gate = np.split(q.reshape(n, heads, 2 * hd), 2, -1)
        if arch in ("olmo2", "olmoe"):
            q, k = norm(q, t("attn_q_norm")), norm(k, t("attn_k_norm"))
        if not latent and not gemma4:
            q, k, v = q.reshape(n, heads, hd), k.reshape(n, kv, hd), v.reshape(n, kv, hd)
        if arch in ("qwen3", "qwen3vl", "qwen3moe", "gemma3", "qwen35", "qwen35moe", "lfm2", "lfm2moe", "bailingmoe2"):
            q, k = norm(q, t("attn_q_norm")), norm(k, t("attn_k_norm"))
        if not (arch == "smollm3" and layer % 4 == 3) and not latent and not gemma4 and key("rope.scaling.finetuned", True):
            turns = local_turns if local else angles
            q, k = (rotate(y, *turns, arch in NEIGHBOURS) for y in (q, k))
        if warmth:
            q = q * (1 + warmth * np.log(1 + np.arange(n) // period))[:, None, None]
        hidden = (back < 0) | (back >= window if local else False)
        out = np.empty((n, heads, width))
        for head in range(heads):
            group = head // (heads // kv)
            s = q[:, head] @ k[:, group].T * scale
            s = cap * np.tanh(s / cap) if cap else s
            p = np.exp(np.where(hidden, -np.inf, s))
            sink = np.exp(t("attn_sinks")[head]) if oss else 0
            out[:, head] = p / (p.sum(-1, keepdims=True) + sink) @ v[:, group]
        if gated:
            out *= sigmoid(gate)
        return out.reshape(n, -1) @ t("attn_output").T + (t("attn_output", "bias") if oss else 0)

    x = w["token_embd.weight"][ids] * (np.sqrt(dim) if gemma else
                                       (key("embedding_scale", 0) or 1) if granite else 1)
    width = key("embedding_length_per_layer_input", 0)
    if width:
        e = (x @ w["per_layer_model_proj.weight"].T / np.sqrt(dim)).reshape(n, layers, width)
        e = norm(e, w["per_layer_proj_norm.weight"])
        e = (e + w["per_layer_token_embd.weight"][ids].reshape(e.shape) * np.sqrt(width)) / np.sqrt(2)
    for layer in range(layers):
        heads = of_layer(key("attention.head_count"), layer)
        ffn = of_layer(key("feed_forward_length"), layer)
        local = window and locals_[layer]

        def t(name, kind="weight"):
            return w[f"blk.{layer}.{name}" + (f".{kind}" if kind else "")]

        kv = of_layer(kvs, layer)
        if gated and (layer + 1) % interval:
            kv = 0

        h = x if arch == "olmo2" else norm(x, t("attn_norm"))
        if kv:
            a = attention(t, h, layer, heads, kv, local)
        elif gated:
            a = delta_layer(t, h, key, norm, eps)
        else:
            a = conv_layer(t, h) if arch.startswith("lfm2") else mamba_layer(t, h, key, norm)
        x = x + residual * (norm(a, t("post_attention_norm")) if behind else a)
        h = x if arch == "olmo2" else norm(x, t("post_attention_norm" if oss or gated else "ffn_norm"))
        if f"blk.{layer}.ffn_gate_inp.weight" in w and not gemma4:
            x = x + residual * mixture(t, h, arch, key)
            continue
        up = h @ t("ffn_up").T
        gate, up = (up[:, :ffn], up[:, ffn:]) if phi else (h @ t("ffn_gate").T, up)
        f = ((gelu(gate) if gemma else silu(gate)) * up) @ t("ffn_down").T
        if gemma4 and f"blk.{layer}.ffn_gate_inp.weight" in w:
            said = mixture(t, norm(x, t("pre_ffw_norm_2")), arch, key,
                           norm(x, t("ffn_gate_inp", "scale")) / np.sqrt(dim))
            f = norm(f, t("post_ffw_norm_1")) + norm(said, t("post_ffw_norm_2"))
        x = x + residual * (norm(f, t("post_ffw_norm")) if behind else f)
        if width:
            x = x + norm((gelu(x @ t("inp_gate").T) * e[:, layer]) @ t("proj").T, t("post_norm"))
        if f"blk.{layer}.layer_output_scale.weight" in w:
            x = x * t("layer_output_scale")
    last = "token_embd_norm.weight" if arch.startswith("lfm2") else "output_norm.weight"
    if only_hidden:
        return norm(x, w[last])
    out = norm(x, w[last]) @ w.get("output.weight", w["token_embd.weight"]).T
    out = out / key("logit_scale", 1.0)
    return final_cap * np.tanh(out / final_cap) if final_cap else out
