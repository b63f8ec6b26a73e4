#!/usr/bin/env python3
"""Synthetic models of every preset and type load and run, and in f32 the logits of the
small ones agree with an independent float64 forward pass in numpy."""
import json
import os
import subprocess
import sys
import tempfile

from radish_e2e import DATA, radish, run, skip_unless

try:
    import numpy as np
except ImportError:
    print("skipped: python3-numpy is not here")
    sys.exit(77)

TOOLS = DATA.parent / "tools"
sys.path.insert(0, str(TOOLS))
IDS = [300, 301, 17, 44, 300, 301, 99, 5, 260]


def radish_json(*args):
    return json.loads(radish(*args, timeout=300)[0])


def weights(make, preset, kind, seed=1):
    """The tensors as the generator draws them, rounded to the type, in float64."""
    c = make.PRESETS[preset]
    out = {}
    for i, (name, shape, std) in enumerate(make.plan(c)):
        g = np.random.Generator(np.random.PCG64([seed, i]))
        x = g.standard_normal(shape, dtype=np.float32)
        if std is None:
            amp = 0.1 if c["scale"] == "fan" else 0.0
            out[name] = (1.0 + amp * x).astype(np.float32).astype(np.float64)
            continue
        x *= np.float32(std)
        if kind == "f16":
            x = x.astype(np.float16)
        elif kind == "bf16":
            x = (make.to_bf16(x).astype(np.uint32) << 16).view(np.float32)
        elif kind == "q8_0":
            rec = make.to_q8_0(x)
            x = (rec["d"].astype(np.float64)[:, None] * rec["q"]).reshape(shape)
        out[name] = x.astype(np.float64)
    return c, out


def forward(c, w, ids):
    """Plain attention over the whole sequence, no cache; [len(ids)][vocab]."""
    def norm(x, g):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + c["eps"]) * g

    n, hd, heads, kv = len(ids), c["hd"], c["heads"], c["kv"]
    angle = np.arange(n)[:, None] * c["base"] ** (-2.0 * np.arange(hd // 2) / hd)
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]

    def rope(x):
        if c["arch"] == "llama":
            a, b = x[..., 0::2], x[..., 1::2]
        else:
            a, b = x[..., :hd // 2], x[..., hd // 2:]
        ra, rb = a * cos - b * sin, a * sin + b * cos
        if c["arch"] == "llama":
            return np.stack([ra, rb], -1).reshape(x.shape)
        return np.concatenate([ra, rb], -1)

    x = w["token_embd.weight"][ids]
    mask = np.triu(np.full((n, n), -np.inf), 1)
    for layer in range(c["layers"]):
        def t(name):
            return w[f"blk.{layer}.{name}.weight"]
        h = norm(x, t("attn_norm"))
        q = (h @ t("attn_q").T).reshape(n, heads, hd)
        k = (h @ t("attn_k").T).reshape(n, kv, hd)
        v = (h @ t("attn_v").T).reshape(n, kv, hd)
        if c["arch"] == "qwen3":
            q, k = norm(q, t("attn_q_norm")), norm(k, t("attn_k_norm"))
        q, k = rope(q), rope(k)
        out = np.empty((n, heads, hd))
        for head in range(heads):
            g = head // (heads // kv)
            s = q[:, head] @ k[:, g].T / np.sqrt(hd) + mask
            p = np.exp(s - s.max(-1, keepdims=True))
            out[:, head] = p / p.sum(-1, keepdims=True) @ v[:, g]
        x = x + out.reshape(n, -1) @ t("attn_output").T
        h = norm(x, t("ffn_norm"))
        gate = h @ t("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ t("ffn_up").T)) @ t("ffn_down").T
    x = norm(x, w["output_norm.weight"])
    return x @ w["token_embd.weight" if c["tied"] else "output.weight"].T


def make_model(preset, kind, path):
    subprocess.run([sys.executable, str(TOOLS / "make_gguf.py"), "--preset", preset, "--type", kind,
                    "--out", path], check=True, capture_output=True)


def test_small_presets_agree_with_numpy():
    import make_gguf as make
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/small.gguf"
        for preset in ("tiny-llama", "tiny-qwen3"):
            for kind in ("f32", "f16", "bf16", "q8_0"):
                make_model(preset, kind, path)
                want = forward(*weights(make, preset, kind), IDS)
                for dtype, limit in (("f32", 1e-4), ("bf16", 3e-2)):
                    got = np.array(radish_json("logits", "-m", path, "--ids",
                                               ",".join(map(str, IDS)), "--dtype", dtype,
                                               "--json")["logits"])
                    assert got.shape == want.shape, (got.shape, want.shape)
                    worst = np.abs(got - want).max() / np.abs(want).max()
                    assert worst < limit, (preset, kind, dtype, worst)
                    print(f"{preset} {kind} {dtype}: largest difference {worst:.1e}")
                out = radish_json("generate", "-m", path, "--ids", "300,17", "-n", 8, "--temp", 0,
                                  "--ignore-eos", "--dtype", "f32", "--json")
                assert len(out["output_ids"]) == 8


def test_large_presets_agree_too():
    if os.environ.get("RADISH_TEST_LONG", "0") in ("", "0"):
        return print("skipped: needs RADISH_TEST_LONG=1 (up to 2.4 GB per file, 10 GB of memory)")
    import make_gguf as make
    ids = [300, 17, 2000]
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/large.gguf"
        for preset in ("llama-110m", "qwen3-0.6b"):
            for kind in ("f32", "f16", "bf16", "q8_0"):
                make_model(preset, kind, path)
                want = forward(*weights(make, preset, kind), ids)
                for dtype, limit in (("f32", 1e-4), ("bf16", 3e-2)):
                    words = ",".join(map(str, ids))
                    got = np.array(radish_json("logits", "-m", path, "--ids", words, "--dtype",
                                               dtype, "--json")["logits"])
                    worst = np.abs(got - want).max() / np.abs(want).max()
                    assert worst < limit, (preset, kind, dtype, worst)
                    out = radish_json("generate", "-m", path, "--ids", words, "-n", 4, "--temp", 0,
                                      "--ignore-eos", "--dtype", dtype, "--json")
                    assert len(out["output_ids"]) == 4
                    print(f"{preset} {kind} {dtype}: largest difference {worst:.1e}, "
                          f"then {out['output_ids']}", flush=True)


if __name__ == "__main__":
    skip_unless(TOOLS / "make_gguf.py")
    run(globals())
