#!/usr/bin/env python3
"""requantize.py IN.gguf OUT.gguf TYPE[,TYPE...] - a GGUF with its matrices in other types.

Several types go round the matrices in turn. A matrix whose rows the type's blocks do not
divide keeps what it had, as vectors do. Q4_K_S, Q4_K_M, Q5_K_S and Q5_K_M are the mixtures
that people name so: most matrices in Q4_K or Q5_K, the output, values and ffn_down of some
layers in more bits, and rows that are not whole blocks of 256 in blocks of 32. Needs numpy; a
row at a time would be kind to memory, but this is for tests and benchmarks: it holds one
tensor in float64."""
import os
import re
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ggml_blocks import TYPES, decode, encode  # noqa: E402

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def string(self):
        n = self.number("Q")
        self.at += n
        return bytes(self.data[self.at - n:self.at])

    def skip_value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, n = self.number("I"), self.number("Q")
            if inner != 8:
                self.at += n * SIZES[inner]
            else:
                for _ in range(n):
                    self.string()
            return None
        self.at += SIZES[kind]
        return int.from_bytes(self.data[self.at - SIZES[kind]:self.at], "little")


BLOCKS_OF_32 = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


def in_mixture(mixture, name, cols, layers, tied):
    """The type of one matrix in a mixture."""
    most, size = mixture[:4], mixture[5]
    found = re.match(r"blk\.(\d+)\.(.*)\.weight", name)
    kind = most
    if name == "output.weight" or name == "token_embd.weight" and tied:
        kind = "Q6_K"
    elif found and found[2] in ("attn_v", "ffn_down"):
        i, eighth = int(found[1]), layers // 8
        if size == "M" and (i < eighth or i >= 7 * layers // 8 or (i - eighth) % 3 == 2):
            kind = "Q6_K"
        elif size == "S" and i < (4 if found[2] == "attn_v" else eighth):
            kind = "Q5_K"
    return kind if cols % 256 == 0 else BLOCKS_OF_32[kind]


def requantize(source, target, names):
    with open(source, "rb") as f:
        data = memoryview(f.read())
    r = Reader(data)
    assert bytes(data[:4]) == b"GGUF"
    r.at = 8
    num_tensors, num_kvs, align = r.number("Q"), r.number("Q"), 32
    for _ in range(num_kvs):
        key, kind = r.string(), r.number("I")
        value = r.skip_value(kind)
        if key == b"general.alignment":
            align = value
    head = bytes(data[:r.at])
    infos = []
    for _ in range(num_tensors):
        name = r.string()
        dims = [r.number("Q") for _ in range(r.number("I"))]
        infos.append((name, dims, r.number("I"), r.number("Q")))
    start = (r.at + align - 1) // align * align
    by_number = {v[0]: k for k, v in TYPES.items()}
    plan, offset, turn = [], 0, 0
    here = [info[0].decode() for info in infos]
    layers = len({name.split(".")[1] for name in here if name.startswith("blk.")})
    for name, dims, kind, where in infos:
        old = by_number[kind]
        new = old
        if len(dims) == 2:
            new, turn = names[turn % len(names)], turn + 1
            if new[-2:] in ("_S", "_M"):
                new = in_mixture(new, name.decode(), dims[0], layers, "output.weight" not in here)
            if dims[0] % TYPES[new][1]:
                new = old
        count = int(np.prod(dims))
        size = count // TYPES[new][1] * TYPES[new][2]
        plan.append((name, dims, old, new, where, count, offset, size))
        offset += (size + align - 1) // align * align
    with open(target, "wb") as out:
        out.write(head)
        for name, dims, _, new, _, _, at, _ in plan:
            out.write(struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims)))
            out.write(struct.pack("<%dQ" % len(dims), *dims))
            out.write(struct.pack("<IQ", TYPES[new][0], at))
        out.write(b"\0" * (-out.tell() % align))
        for _, _, old, new, where, count, _, size in plan:
            step = 1 << 22  # values; a multiple of every block
            for first in range(0, count, step):
                n = min(step, count - first)
                a = start + where + first // TYPES[old][1] * TYPES[old][2]
                raw = data[a:a + n // TYPES[old][1] * TYPES[old][2]]
                out.write(bytes(raw) if old == new else encode(new, decode(old, raw)))
            out.write(b"\0" * (-size % align))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    requantize(sys.argv[1], sys.argv[2], sys.argv[3].split(","))
