"""The forward pass in float64, once more and from the papers: what a GGUF model says after
each token of a sequence. No cache, no batch, no blocks; attention is one matrix.

Llama 2 and 3 (RMS norm, SwiGLU, grouped queries, RoPE), Qwen 2 (biases) and 3 (q/k norms),
Phi-3 (fused matrices, longrope), Gemma 2 (caps, post-norms, every other layer local,
GELU), Mistral (sliding window), YaRN. GGUF stores llama's q and k permuted, so that RoPE
turns neighbours; of all others it turns halves. Gemma's norms are stored as 1 + w.
"""
import numpy as np

from tiny_gguf import read


def rope_angles(meta, arch, tensors, rope_dim, context):
    """(radians per position of each rotation, what the rotated is multiplied by)."""
    def key(name, default):
        return meta.get(f"{arch}.rope.{name}", default)

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
    return (1 - gamma) * freq / scale + gamma * freq, size * (0.1 * np.log(scale) + 1)


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


def logits(path, ids, context=None):
    """[len(ids)][vocab]; context: the one in force, if it is not the model's."""
    return forward(*read(path), ids, context)


def forward(meta, w, ids, context=None):
    """The same of a model that was read."""
    arch = meta["general.architecture"]
    gemma, phi = arch == "gemma2", arch == "phi3"

    def key(name, *default):
        return meta.get(f"{arch}.{name}", *default)

    dim, heads, kv = key("embedding_length"), key("attention.head_count"), key(
        "attention.head_count_kv")
    hd, layers, ffn = key("attention.key_length"), key("block_count"), key("feed_forward_length")
    eps = key("attention.layer_norm_rms_epsilon")
    freq, size = rope_angles(meta, arch, w, key("rope.dimension_count"),
                             context or key("context_length"))
    window = key("attention.sliding_window", 4096 if gemma else 0)
    cap = key("attn_logit_softcapping", 50.0) if gemma else 0
    final_cap = key("final_logit_softcapping", 30.0) if gemma else 0

    def norm(x, g):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * g

    n = len(ids)
    back = np.arange(n)[:, None] - np.arange(n)[None, :]  # query's position minus key's
    x = w["token_embd.weight"][ids] * (np.sqrt(dim) if gemma else 1)
    for layer in range(layers):
        def t(name, kind="weight"):
            return w[f"blk.{layer}.{name}.{kind}"]
        h = norm(x, t("attn_norm"))
        if phi:
            q, k, v = np.split(h @ t("attn_qkv").T, [heads * hd, (heads + kv) * hd], -1)
        else:
            q, k, v = (h @ t(f"attn_{p}").T + (t(f"attn_{p}", "bias") if arch == "qwen2" else 0)
                       for p in "qkv")
        q, k, v = q.reshape(n, heads, hd), k.reshape(n, kv, hd), v.reshape(n, kv, hd)
        if arch == "qwen3":
            q, k = norm(q, t("attn_q_norm")), norm(k, t("attn_k_norm"))
        q, k = (rotate(y, freq, size, arch == "llama") for y in (q, k))
        local = window and not (gemma and layer % 2)
        hidden = (back < 0) | (back >= window if local else False)
        out = np.empty((n, heads, hd))
        for head in range(heads):
            group = head // (heads // kv)
            s = q[:, head] @ k[:, group].T / np.sqrt(hd)
            s = cap * np.tanh(s / cap) if cap else s
            p = np.exp(np.where(hidden, -np.inf, s))
            out[:, head] = p / p.sum(-1, keepdims=True) @ v[:, group]
        a = out.reshape(n, -1) @ t("attn_output").T
        x = x + (norm(a, t("post_attention_norm")) if gemma else a)
        h = norm(x, t("ffn_norm"))
        up = h @ t("ffn_up").T
        gate, up = (up[:, :ffn], up[:, ffn:]) if phi else (h @ t("ffn_gate").T, up)
        act = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate ** 3))) \
            if gemma else gate / (1 + np.exp(-gate))
        f = (act * up) @ t("ffn_down").T
        x = x + (norm(f, t("post_ffw_norm")) if gemma else f)
    out = norm(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T
    return final_cap * np.tanh(out / final_cap) if final_cap else out
