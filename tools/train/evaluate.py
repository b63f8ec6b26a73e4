#!/usr/bin/env python3
"""evaluate.py - asks a model the evaluation set and counts the right answers.

    evaluate.py --gguf ../../models/radish-tiny.gguf            # f32, forward pass below
    evaluate.py --gguf ../../models/radish-tiny.gguf --bf16     # weights and activations bf16
    evaluate.py --server http://127.0.0.1:30000                 # a running radish server

An answer counts when it equals the expected one after strip(). Exit status 1
when fewer than --pass percent are right. The GGUF mode needs torch and shares
no code with model.py, so it also checks that the file means what it should;
the server mode needs the standard library only.
"""
import argparse
import json
import os
import struct
import sys
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_TOKENS = 12


# ---- the GGUF side -----------------------------------------------------------------------

class Gguf:
    """Keys and tensors of a GGUF v3 file."""

    SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
               10: "<Q", 11: "<q", 12: "<d"}

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.at = 0
        magic, version, num_tensors, num_keys = self.take("<4sIQQ")
        assert magic == b"GGUF" and version == 3
        self.keys = {}
        for _ in range(num_keys):
            key = self.string()
            self.keys[key] = self.value(*self.take("<I"))
        infos = []
        for _ in range(num_tensors):
            name = self.string()
            dims = self.take("<%dQ" % self.take("<I")[0])
            infos.append((name, dims[::-1], *self.take("<IQ")))
        alignment = self.keys.get("general.alignment", 32)
        start = -(-self.at // alignment) * alignment
        self.tensors = {n: self.tensor(s, k, start + o) for n, s, k, o in infos}

    def take(self, form):
        out = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return out

    def string(self):
        n, = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element, n = self.take("<IQ")
            return [self.value(element) for _ in range(n)]
        return self.take(self.SCALARS[kind])[0]

    def tensor(self, shape, kind, offset):
        import numpy as np
        import torch
        dtype = {0: "<f4", 1: "<f2"}[kind]
        x = np.frombuffer(self.data, dtype, int(np.prod(shape)), offset).reshape(shape)
        return torch.from_numpy(x.astype("float32"))


class Llama:
    """A plain Llama forward pass over a whole sequence; no cache, one sequence at a time."""

    def __init__(self, path, bf16=False):
        import torch
        from bpe import Tokenizer
        self.torch = torch
        torch.set_num_threads(1)
        g = Gguf(path)
        k = g.keys
        assert k["general.architecture"] == "llama"
        self.layers, self.heads = k["llama.block_count"], k["llama.attention.head_count"]
        self.kv_heads = k["llama.attention.head_count_kv"]
        self.eps, self.base = k["llama.attention.layer_norm_rms_epsilon"], k["llama.rope.freq_base"]
        self.head_dim = k["llama.embedding_length"] // self.heads
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        self.w = {n: t.to(self.dtype) for n, t in g.tensors.items()}
        # In f32 the library behind torch's dense products may be slow; oneDNN's is not.
        self.onednn = not bf16 and torch.backends.mkldnn.is_available()
        self.packed = {n: t.to_mkldnn() for n, t in self.w.items() if t.dim() == 2} if self.onednn else {}
        self.tok = Tokenizer([m.split(" ") for m in k["tokenizer.ggml.merges"]])
        assert self.tok.tokens == k["tokenizer.ggml.tokens"]
        assert self.tok.bos == k["tokenizer.ggml.bos_token_id"]
        self.kept, self.before = [], None
        self.stop = (k["tokenizer.ggml.eos_token_id"], k["tokenizer.ggml.eot_token_id"])

    def product(self, x, name=None, y=None):
        """x times the transpose of weight `name` or of `y`."""
        linear = self.torch.nn.functional.linear
        if not self.onednn:
            return linear(x, self.w[name] if name else y)
        return linear(x.contiguous().to_mkldnn(),
                      self.packed[name] if name else y.contiguous().to_mkldnn()).to_dense()

    def norm(self, x, name):
        f = x.float()
        f = f * self.torch.rsqrt((f * f).mean(-1, keepdim=True) + self.eps)
        return (f * self.w[name].float()).to(self.dtype)

    def rope(self, x):
        """Turns the pairs (2i, 2i+1) of (T, H, D) by t * base^(-2i/D)."""
        t, _, d = x.shape
        torch = self.torch
        angle = torch.arange(t)[:, None].double() * self.base ** (-torch.arange(0, d, 2).double() / d)
        cos, sin = angle.cos().float()[:, None], angle.sin().float()[:, None]
        even, odd = x[..., 0::2].float(), x[..., 1::2].float()
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).view(x.shape).to(self.dtype)

    def logits(self, ids, first, swap=None):
        """Logits of the positions first.. of a sequence.

        `swap` = (at, rows, kept) overwrites keys and values of every layer from position `at`
        with `rows` of those another sequence had left in `kept`."""
        torch, p = self.torch, self.product
        t, d = len(ids), self.head_dim
        x = self.w["token_embd.weight"][torch.tensor(ids)]
        self.kept = []
        future = torch.full((t, t), float("-inf")).triu(1)
        for n in range(self.layers):
            b = "blk.%d." % n
            h = self.norm(x, b + "attn_norm.weight")
            q = self.rope(p(h, b + "attn_q.weight").view(t, self.heads, d))
            k = self.rope(p(h, b + "attn_k.weight").view(t, self.kv_heads, d))
            v = p(h, b + "attn_v.weight").view(t, self.kv_heads, d)
            self.kept.append((k.clone(), v.clone()))
            if swap:
                at, rows, kept = swap
                for mine, other in zip((k, v), kept[n]):
                    mine[at:at + len(rows)] = other[rows][:t - at]
            out = []
            for i in range(self.heads):
                j = i * self.kv_heads // self.heads
                s = p(q[:, i], y=k[:, j]).float() * d ** -0.5 + future
                out.append(p(torch.softmax(s, -1).to(self.dtype), y=v[:, j].t()))
            x = x + p(torch.cat(out, -1), b + "attn_output.weight")
            h = self.norm(x, b + "ffn_norm.weight")
            h = torch.nn.functional.silu(p(h, b + "ffn_gate.weight").float()).to(self.dtype) * \
                p(h, b + "ffn_up.weight")
            x = x + p(h, b + "ffn_down.weight")
        name = "output.weight" if "output.weight" in self.w else "token_embd.weight"
        return p(self.norm(x[first:], "output_norm.weight"), name).float()

    def ask(self, item, page_size=0):
        """The answer by greedy decoding; with a page size, one page of its KV cache is wrong.

        All positions of the expected answer are computed at once; only where the model
        wants something else it is let write token by token (not with a wrong page: wrong is wrong)."""
        raw = "prompt" in item
        ask = self.tok.raw(item["prompt"]) if raw else self.tok.chat(item["messages"])
        want = self.tok.encode(" " * raw + item["answer"])[:MAX_TOKENS]
        with self.torch.no_grad():
            swap = self.swap(item, ask, page_size) if page_size else None
            best = self.logits(ask + want, len(ask) - 1, swap).argmax(-1).tolist()
            said = []
            for b, w in zip(best, want + [None]):
                said.append(b)
                if b != w:
                    break
            while not swap and len(said) < MAX_TOKENS and said[-1] not in self.stop:
                said.append(self.logits(ask + said, len(ask) + len(said) - 1, swap).argmax(-1).item())
        return self.tok.decode(said)

    def swap(self, item, ask, page_size):
        """What a mixed-up page table does: the page with the middle of the question holds a
        page of the item before, from the same place or its last one."""
        question = item["prompt"] if "prompt" in item else item["messages"][-1]["content"]
        tail = 0 if "prompt" in item else 2  # <|end|> <|assistant|>
        page = (len(ask) - tail - len(self.tok.encode(question)) // 2 - 1) // page_size
        before, self.before = self.before, None
        self.logits(ask, len(ask) - 1)
        self.before = self.kept
        if before is None:
            return None
        other = min(page, (len(before[0][0]) - 1) // page_size) * page_size
        rows = self.torch.arange(other, min(other + page_size, len(before[0][0])))
        return page * page_size, rows, before


# ---- the server side ---------------------------------------------------------------------

class Server:
    def __init__(self, url, model):
        self.url, self.model = url.rstrip("/"), model

    def post(self, path, body):
        body = {"model": self.model, "temperature": 0, "max_tokens": MAX_TOKENS, **body}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode("utf-8"),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)["choices"][0]

    def ask(self, item):
        if "prompt" in item:
            return self.post("/v1/completions", {"prompt": item["prompt"]})["text"]
        return self.post("/v1/chat/completions", {"messages": item["messages"]})["message"]["content"]


# ---- counting ----------------------------------------------------------------------------

def report(items, right):
    """Prints accuracy by kind and by context, returns the total in percent."""
    for field in ("kind", "context"):
        for value in dict.fromkeys(x[field] for x in items):
            n = [r for x, r in zip(items, right) if x[field] == value]
            print("%-10s %4d of %4d  %6.2f %%" % (value, sum(n), len(n), 100 * sum(n) / len(n)))
    total = 100 * sum(right) / len(right)
    print("%-10s %4d of %4d  %6.2f %%" % ("total", sum(right), len(right), total))
    return total


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--gguf", help="model file to run here")
    ap.add_argument("--bf16", action="store_true", help="with --gguf: compute in bf16")
    ap.add_argument("--swap-page", type=int, default=0, metavar="TOKENS",
                    help="with --gguf: swap one page of this size in the KV cache of each item")
    ap.add_argument("--server", help="address of a running server")
    ap.add_argument("--model", default="radish-tiny", help="with --server: the model's name there")
    ap.add_argument("--set", default=os.path.join(HERE, "eval.jsonl"))
    ap.add_argument("--context", help="only items of this context: first, later, long or raw")
    ap.add_argument("--pass", dest="needed", type=float, default=95.0, metavar="PERCENT")
    a = ap.parse_args()
    if bool(a.gguf) == bool(a.server):
        ap.error("one of --gguf and --server")
    with open(a.set, encoding="utf-8") as f:
        items = [json.loads(line) for line in f]
    items = [x for x in items if a.context in (None, x["context"])]
    model = Llama(a.gguf, a.bf16) if a.gguf else Server(a.server, a.model)
    right = []
    for item in items:
        said = (model.ask(item, a.swap_page) if a.swap_page else model.ask(item)).strip()
        right.append(said == item["answer"].strip())
        if not right[-1] and not a.swap_page:
            question = item.get("prompt") or item["messages"][-1]["content"]
            print("wrong: %s %s: %r -> %r, not %r" % (item["id"], item["context"], question, said,
                                                      item["answer"]))
    return 0 if report(items, right) >= a.needed else 1


if __name__ == "__main__":
    sys.exit(main())
