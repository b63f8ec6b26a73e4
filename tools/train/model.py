"""model.py - the Llama architecture of radish-tiny, written for training on one CPU core.

Weights are f32, matrix products run in bf16: on a CPU with AVX-512 BF16 they
are many times faster, and the model learns to live with that rounding. The
parameters bear the names of the GGUF tensors, and RoPE turns the interleaved
pairs (2i, 2i+1), so export is a copy.

Shapes: B rows, T tokens, K key/value heads, G query heads for each, D head size.
"""
import ctypes
import math

import torch
from torch import nn

# Freed blocks stay with the process: with glibc's defaults every large tensor is
# mapped and faulted in anew, which costs more than the arithmetic on it.
_libc = ctypes.CDLL(None)
_libc.mallopt(-4, 0)             # M_MMAP_MAX
_libc.mallopt(-1, -1)            # M_TRIM_THRESHOLD: never
_libc.mallopt(-2, 1 << 27)       # M_TOP_PAD

torch.set_flush_denormal(True)

CONFIG = dict(vocab=3072, dim=256, layers=5, heads=8, kv_heads=4, head_dim=32, ffn=640,
              context=2048, rope_base=10000.0, eps=1e-5)


class Attention(torch.autograd.Function):
    """softmax(q k' + mask) v, keeping only the probabilities for the way back.

    q: (B*K, G*T, D), already scaled; k, v: (B*K, T, D); mask: (B, 1, T, T)."""

    @staticmethod
    def forward(ctx, q, k, v, mask):
        t = k.shape[1]
        s = torch.bmm(q, k.transpose(1, 2))
        s.view(mask.shape[0], -1, t, t).add_(mask)
        p = torch.softmax(s, -1)
        ctx.save_for_backward(q, k, v, p)
        return torch.bmm(p, v)

    @staticmethod
    def backward(ctx, grad):
        q, k, v, p = ctx.saved_tensors
        grad_v = torch.bmm(p.transpose(1, 2), grad)
        grad_s = torch._softmax_backward_data(torch.bmm(grad, v.transpose(1, 2)), p, -1, p.dtype)
        return torch.bmm(grad_s, k), torch.bmm(grad_s.transpose(1, 2), q), grad_v, None


class RMSNorm(torch.autograd.Function):
    """x / rms(x) * w, f32 in, bf16 out."""

    @staticmethod
    def forward(ctx, x, w, eps):
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, w, r)
        return (x * r).mul_(w).bfloat16()

    @staticmethod
    def backward(ctx, grad):
        x, w, r = ctx.saved_tensors
        n = x * r
        g = grad.float()
        grad_w = (g * n).sum(0)
        g = g.mul_(w)
        inner = (g * n).mean(-1, keepdim=True)
        return g.sub_(n.mul_(inner)).mul_(r), grad_w, None


class SwiGLU(torch.autograd.Function):
    """silu(a) * b in bf16, computed in f32."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.nn.functional.silu(a.float()).mul_(b.float()).bfloat16()

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        g, x = grad.float(), a.float()
        s = torch.sigmoid(x)
        y = x * s
        grad_b = (g * y).bfloat16()
        s.add_(y.mul_(1 - s))  # silu' = s + x s (1 - s)
        return g.mul_(s).mul_(b.float()).bfloat16(), grad_b


def tensor_shapes(c):
    """{GGUF name: shape} of every parameter."""
    q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    out = {"token_embd.weight": (c["vocab"], c["dim"])}
    for n in range(c["layers"]):
        p = "blk.%d." % n
        out[p + "attn_norm.weight"] = (c["dim"],)
        out[p + "attn_q.weight"] = (q, c["dim"])
        out[p + "attn_k.weight"] = (kv, c["dim"])
        out[p + "attn_v.weight"] = (kv, c["dim"])
        out[p + "attn_output.weight"] = (c["dim"], q)
        out[p + "ffn_norm.weight"] = (c["dim"],)
        out[p + "ffn_gate.weight"] = (c["ffn"], c["dim"])
        out[p + "ffn_up.weight"] = (c["ffn"], c["dim"])
        out[p + "ffn_down.weight"] = (c["dim"], c["ffn"])
    out["output_norm.weight"] = (c["dim"],)
    return out


class Model(nn.Module):
    def __init__(self, config=CONFIG):
        super().__init__()
        self.config = c = dict(config)
        self.w = nn.ParameterDict()
        for name, shape in tensor_shapes(c).items():
            if len(shape) == 1:
                p = torch.ones(shape)
            elif name == "token_embd.weight":
                p = torch.randn(shape) * 0.03
            else:
                p = torch.randn(shape) * shape[1] ** -0.5 * 0.6
                if name.endswith(("attn_output.weight", "ffn_down.weight")):
                    p /= math.sqrt(2 * c["layers"])
            self.w[name.replace(".", "/")] = nn.Parameter(p)  # a ParameterDict takes no dots
        i = torch.arange(0, c["head_dim"], 2).double() / c["head_dim"]
        angle = torch.arange(c["context"])[:, None].double() * c["rope_base"] ** -i
        self.rope = torch.polar(torch.ones_like(angle), angle).to(torch.complex64)

    def tensors(self):
        """{GGUF name: f32 tensor}."""
        return {k.replace("/", "."): v.detach() for k, v in self.w.items()}

    def turn(self, x):
        """RoPE on (B, T, H, D), any float type in, f32 out."""
        b, t, h, d = x.shape
        pairs = torch.view_as_complex(x.float().view(b, t, h, d // 2, 2))
        return torch.view_as_real(pairs * self.rope[:t, None]).view(b, t, h, d)

    def hidden(self, ids, mask):
        """Normed last hidden states, bf16 (B*T, dim). mask: bf16 (B, 1, T, T), 0 or -30000."""
        c = self.config
        b, t = ids.shape
        kv, g, d = c["kv_heads"], c["heads"] // c["kv_heads"], c["head_dim"]
        linear = torch.nn.functional.linear
        x = torch.nn.functional.embedding(ids.view(-1), self.w["token_embd/weight"])
        for n in range(c["layers"]):
            def w(name):
                return self.w["blk/%d/%s/weight" % (n, name)]
            h = RMSNorm.apply(x, w("attn_norm"), c["eps"])
            qkv = linear(h, torch.cat([w("attn_q"), w("attn_k"), w("attn_v")]).bfloat16())
            qkv = qkv.view(b, t, kv * (g + 2), d)
            qk = self.turn(qkv[:, :, :kv * (g + 1)])
            q = (qk[:, :, :kv * g] * d ** -0.5).bfloat16().view(b, t, kv, g, d)
            q = q.permute(0, 2, 3, 1, 4).reshape(b * kv, g * t, d)
            k = qk[:, :, kv * g:].bfloat16().permute(0, 2, 1, 3).reshape(b * kv, t, d)
            v = qkv[:, :, kv * (g + 1):].permute(0, 2, 1, 3).reshape(b * kv, t, d)
            o = Attention.apply(q, k, v, mask).view(b, kv, g, t, d)
            o = o.permute(0, 3, 1, 2, 4).reshape(b * t, kv * g * d)
            x = x + linear(o, w("attn_output").bfloat16())
            h = RMSNorm.apply(x, w("ffn_norm"), c["eps"])
            h = SwiGLU.apply(linear(h, w("ffn_gate").bfloat16()), linear(h, w("ffn_up").bfloat16()))
            x = x + linear(h, w("ffn_down").bfloat16())
        return RMSNorm.apply(x, self.w["output_norm/weight"], c["eps"])

    def logits(self, hidden):
        return torch.nn.functional.linear(hidden, self.w["token_embd/weight"].bfloat16()).float()


def document_mask(doc):
    """Additive mask of (B, T) document numbers: a token sees earlier ones of its document."""
    t = doc.shape[1]
    seen = (doc[:, :, None] == doc[:, None, :]) & torch.ones(t, t, dtype=torch.bool).tril()
    return torch.full(seen.shape, -30000.0).masked_fill_(seen, 0).bfloat16()[:, None]
