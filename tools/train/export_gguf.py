#!/usr/bin/env python3
"""export_gguf.py - writes a checkpoint of train.py as a GGUF v3 file.

    export_gguf.py run/last.pt ../../models/radish-tiny.gguf

Matrices become F16, norm vectors stay F32. The file holds all a server needs:
architecture, vocabulary, merges and the chat template.

    header | key-value pairs | tensor infos | padding | tensor data, each at 32
"""
import argparse
import os
import struct

import numpy as np
import torch

from bpe import CONTROL, Tokenizer
from model import Model

HERE = os.path.dirname(os.path.abspath(__file__))
ALIGNMENT = 32
TYPE_F32, TYPE_F16 = 0, 1
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9

CHAT_TEMPLATE = ("{{ bos_token }}{% for message in messages %}"
                 "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")
DESCRIPTION = ("A very small chat model that knows capitals, currencies and continents, small sums, "
               "number words, days, months and opposites. Trained from scratch for radish.")


def string(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def pair(key, kind, value):
    """One key-value pair; an ARRAY value is (element kind, list)."""
    scalar = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}
    out = string(key) + struct.pack("<I", kind)
    if kind == STRING:
        return out + string(value)
    if kind == ARRAY:
        element, items = value
        out += struct.pack("<IQ", element, len(items))
        return out + b"".join(string(x) if element == STRING else struct.pack(scalar[element], x)
                              for x in items)
    return out + struct.pack(scalar[kind], value)


def metadata(config, tok):
    c = config
    kinds = [1] * (len(tok.tokens) - len(CONTROL)) + [3] * len(CONTROL)
    return [
        pair("general.architecture", STRING, "llama"),
        pair("general.name", STRING, "radish-tiny"),
        pair("general.license", STRING, "apache-2.0"),
        pair("general.description", STRING, DESCRIPTION),
        pair("general.file_type", UINT32, 1),
        pair("general.alignment", UINT32, ALIGNMENT),
        pair("llama.context_length", UINT32, c["context"]),
        pair("llama.embedding_length", UINT32, c["dim"]),
        pair("llama.block_count", UINT32, c["layers"]),
        pair("llama.feed_forward_length", UINT32, c["ffn"]),
        pair("llama.attention.head_count", UINT32, c["heads"]),
        pair("llama.attention.head_count_kv", UINT32, c["kv_heads"]),
        pair("llama.attention.key_length", UINT32, c["head_dim"]),
        pair("llama.attention.value_length", UINT32, c["head_dim"]),
        pair("llama.attention.layer_norm_rms_epsilon", FLOAT32, c["eps"]),
        pair("llama.rope.freq_base", FLOAT32, c["rope_base"]),
        pair("llama.rope.dimension_count", UINT32, c["head_dim"]),
        pair("llama.vocab_size", UINT32, c["vocab"]),
        pair("tokenizer.ggml.model", STRING, "gpt2"),
        pair("tokenizer.ggml.pre", STRING, "gpt-2"),
        pair("tokenizer.ggml.tokens", ARRAY, (STRING, tok.tokens)),
        pair("tokenizer.ggml.token_type", ARRAY, (INT32, kinds)),
        pair("tokenizer.ggml.merges", ARRAY, (STRING, [" ".join(m) for m in tok.merges])),
        pair("tokenizer.ggml.bos_token_id", UINT32, tok.bos),
        pair("tokenizer.ggml.eos_token_id", UINT32, tok.eos),
        pair("tokenizer.ggml.eot_token_id", UINT32, tok.end),
        pair("tokenizer.ggml.padding_token_id", UINT32, tok.pad),
        pair("tokenizer.ggml.add_bos_token", BOOL, True),
        pair("tokenizer.chat_template", STRING, CHAT_TEMPLATE),
    ]


def write(path, config, tensors, tok):
    """Writes the file; `tensors` is {GGUF name: f32 array}. Returns its size."""
    infos, data, offset = [], [], 0
    for name, x in tensors.items():
        kind, dtype = (TYPE_F32, "<f4") if x.ndim == 1 else (TYPE_F16, "<f2")
        raw = x.astype(dtype)
        assert np.isfinite(raw).all(), name
        infos.append(string(name) + struct.pack("<I", x.ndim) +
                     struct.pack("<%dQ" % x.ndim, *reversed(x.shape)) +  # GGUF: row length first
                     struct.pack("<IQ", kind, offset))
        raw = raw.tobytes()
        raw += b"\0" * (-len(raw) % ALIGNMENT)
        data.append(raw)
        offset += len(raw)
    pairs = metadata(config, tok)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(infos), len(pairs)) + b"".join(pairs + infos)
    head += b"\0" * (-len(head) % ALIGNMENT)
    with open(path, "wb") as f:
        f.write(head)
        f.writelines(data)
    return len(head) + offset


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("checkpoint")
    ap.add_argument("gguf")
    a = ap.parse_args()
    state = torch.load(a.checkpoint)
    model = Model()
    model.load_state_dict(state["model"])
    tensors = {k: v.numpy() for k, v in model.tensors().items()}
    size = write(a.gguf, model.config, tensors, Tokenizer.load(os.path.join(HERE, "tokenizer.json")))
    print("%s: %d bytes, %d parameters, step %d, %.0f s of training, largest weight %.2f" % (
        a.gguf, size, sum(x.size for x in tensors.values()), state["step"], state["seconds"],
        max(abs(x).max() for x in tensors.values())))


if __name__ == "__main__":
    main()
