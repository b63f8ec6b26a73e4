#!/usr/bin/python3
"""quantize.py - a GGUF model with its matrices in other types.

    tools/quantize.py IN.gguf OUT.gguf Q4_K_M
    tools/quantize.py IN.gguf OUT.gguf Q6_K,Q4_K,IQ4_NL
    tools/quantize.py --list

A type is what --list shows: one of GGUF's, for all matrices, or a mixture as people name them: most
matrices in its base type, the output, values and ffn_down of some layers in more bits. Several, with
commas, go round the matrices in turn. A matrix whose rows are not whole blocks of 256 gets a type of
blocks of 32; one whose rows are not those either keeps what it has, as do vectors and routers. What the
file has may be any of GGUF's types, quantised ones too: their numbers are rounded once more.

Numbers are rounded to nearest (ggml_blocks.py), with no data about activations. Needs python3-numpy.
The file is read and written a few megabytes at a time: about 0.2 GB of memory for any size. A core of a
Zen 5 takes 20 to 40 s for 10^9 weights in most types, four times that in IQ4_NL and IQ4_XS.
"""
import argparse
import os
import re
import struct
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("quantize: numpy is not here (apt-get install python3-numpy, and run it with /usr/bin/python3)")

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ggml_blocks import TYPES, decode, encode  # noqa: E402

PIECE = 1 << 20  # values at a time; a multiple of every block
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
UINT32, STRING, ARRAY = 4, 8, 9

# What rows that are not whole blocks of 256 get instead.
BLOCKS_OF_32 = {"Q2_K": "IQ4_NL", "Q3_K": "IQ4_NL", "IQ4_XS": "IQ4_NL", "Q4_K": "Q5_0", "Q5_K": "Q5_1",
                "Q6_K": "Q8_0"}
# name: the type of most matrices
MIXTURES = {"Q3_K_S": "Q3_K", "Q3_K_M": "Q3_K", "Q3_K_L": "Q3_K", "Q4_K_S": "Q4_K", "Q4_K_M": "Q4_K",
            "Q5_K_S": "Q5_K", "Q5_K_M": "Q5_K", "MXFP4_MOE": "Q8_0"}
# general.file_type
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10,
              "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16,
              "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30, "BF16": 32, "MXFP4_MOE": 38}


def more_bits(layer, layers):
    """The first and the last eighth of all layers, and every third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def in_mixture(mixture, name, layers, tied):
    """The type of one matrix in a mixture, where its rows allow for that."""
    base = MIXTURES[mixture]
    if mixture == "MXFP4_MOE":
        return "MXFP4" if "_exps." in name else base
    if name == "output.weight" or name == "token_embd.weight" and tied:
        return "Q6_K"
    found = re.fullmatch(r"blk\.(\d+)\.(attn_v|attn_output|ffn_down(?:_exps|_shexp)?)\.weight", name)
    if not found:
        return base
    layer, part = int(found[1]), found[2][:8]
    if mixture == "Q3_K_L":
        return "Q5_K"
    if mixture == "Q3_K_M":
        first = {"attn_v": 2, "ffn_down": layers // 16}.get(part, 0)
        return "Q5_K" if layer < first else "Q4_K"
    if part == "attn_out" or mixture == "Q3_K_S":
        return base
    if mixture[-1] == "M":
        return "Q6_K" if more_bits(layer, layers) else base
    return "Q5_K" if layer < (4 if part == "attn_v" else layers // 8) else base


def chosen(kind, name, shape, layers, tied):
    """What a tensor becomes under a type or mixture, its row length first in `shape`; None: it stays."""
    if len(shape) < 2 or ".ffn_gate_inp" in name:
        return None
    kind = in_mixture(kind, name, layers, tied) if kind in MIXTURES else kind
    if shape[0] % TYPES[kind][1]:
        kind = BLOCKS_OF_32.get(kind, kind)
    return None if shape[0] % TYPES[kind][1] else kind


class Reader:
    def __init__(self, file):
        self.file = file

    def take(self, count):
        data = self.file.read(count)
        if len(data) < count:
            raise ValueError("the file ends too soon")
        return data

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def string(self):
        return self.take(self.number("Q"))

    def value(self, kind):
        """The bytes of a value."""
        if kind == STRING:
            text = self.string()
            return struct.pack("<Q", len(text)) + text
        if kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            head = struct.pack("<IQ", inner, count)
            if inner == STRING:
                return head + b"".join(self.value(STRING) for _ in range(count))
            return head + self.take(count * SIZES[inner])
        return self.take(SIZES[kind])


def read_head(file):
    """(version, {key: (kind, bytes)}, [(name, shape, type, place)], where the tensors begin)."""
    r = Reader(file)
    if r.take(4) != b"GGUF":
        raise ValueError("not a GGUF file")
    version, num_tensors, num_keys = r.number("I"), r.number("Q"), r.number("Q")
    if version not in (2, 3):
        raise ValueError(f"GGUF of version {version}")
    keys = {}
    for _ in range(num_keys):
        key, kind = r.string(), r.number("I")
        keys[key] = kind, r.value(kind)
    if int.from_bytes(keys.get(b"split.count", (0, b""))[1], "little") > 1:
        raise ValueError("one of several parts: only whole files can be read")
    tensors = []
    for _ in range(num_tensors):
        name = r.string()
        shape = [r.number("Q") for _ in range(r.number("I"))]
        tensors.append((name.decode(), shape, r.number("I"), r.number("Q")))
    align = int.from_bytes(keys.get(b"general.alignment", (0, b"\x20"))[1], "little")
    return version, keys, tensors, -(-file.tell() // align) * align, align


def plan_of(tensors, kinds):
    """[(name, shape, old type, new type, its place, values)]."""
    by_number = {number: name for name, (number, _, _) in TYPES.items()}
    names = {name for name, *_ in tensors}
    layers = len({name.split(".")[1] for name in names if name.startswith("blk.")})
    plan, turn = [], 0
    for name, shape, number, place in tensors:
        if number not in by_number:
            raise ValueError(f"{name} is of a type that cannot be read ({number})")
        old = by_number[number]
        new = chosen(kinds[turn % len(kinds)], name, shape, layers, "output.weight" not in names)
        turn += len(shape) > 1
        plan.append((name, shape, old, new or old, place, int(np.prod(shape, dtype=np.int64))))
    return plan


def bytes_of(kind, values):
    return values // TYPES[kind][1] * TYPES[kind][2]


def write_tensor(source, out, old, new, values):
    for first in range(0, values, PIECE):
        count = min(PIECE, values - first)
        raw = source.read(bytes_of(old, count))
        if len(raw) < bytes_of(old, count):
            raise ValueError("the file ends too soon")
        out.write(raw if old == new else encode(new, decode(old, raw)))


def quantize(source_path, path, kinds):
    """Writes the file; returns {type: bytes}. Under another name first: a run that is interrupted leaves
    no half a model."""
    part, sizes = f"{path}.part", {}
    with open(source_path, "rb") as source:
        version, keys, tensors, start, align = read_head(source)
        plan = plan_of(tensors, kinds)
        if len(kinds) == 1 and kinds[0] in FILE_TYPES:
            keys[b"general.file_type"] = UINT32, struct.pack("<I", FILE_TYPES[kinds[0]])
        try:
            with open(part, "wb") as out:
                out.write(b"GGUF" + struct.pack("<IQQ", version, len(plan), len(keys)))
                for key, (kind, value) in keys.items():
                    out.write(struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value)
                place = 0
                for name, shape, _, new, _, values in plan:
                    name = name.encode()
                    out.write(struct.pack("<Q", len(name)) + name + struct.pack("<I", len(shape)))
                    out.write(struct.pack(f"<{len(shape)}QIQ", *shape, TYPES[new][0], place))
                    place += -(-bytes_of(new, values) // align) * align
                out.write(b"\0" * (-out.tell() % align))
                for name, _, old, new, place, values in plan:
                    source.seek(start + place)
                    write_tensor(source, out, old, new, values)
                    out.write(b"\0" * (-out.tell() % align))
                    sizes[new] = sizes.get(new, 0) + bytes_of(new, values)
            os.replace(part, path)
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise
    return sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="IN.gguf", nargs="?")
    parser.add_argument("out", metavar="OUT.gguf", nargs="?")
    parser.add_argument("types", metavar="TYPE[,TYPE...]", nargs="?")
    parser.add_argument("--list", action="store_true", help="show the types and end")
    a = parser.parse_args()
    if a.list:
        for name, (_, values, size) in TYPES.items():
            print(f"{name:10} {8 * size / values:.4g} bits a weight")
        for name, base in MIXTURES.items():
            print(f"{name:10} most of it {base}")
        return
    if not a.types:
        parser.error("IN.gguf, OUT.gguf and a type are needed (or --list)")
    kinds = a.types.upper().split(",")
    for kind in kinds:
        if kind not in TYPES and kind not in MIXTURES:
            sys.exit(f"quantize: {kind} is none of the types that --list shows")
    try:
        sizes = quantize(a.source, a.out, kinds)
    except (OSError, ValueError) as error:
        sys.exit(f"quantize: {a.source}: {error}")
    print(f"{a.out}: " + ", ".join(f"{kind} {size / 1e6:.1f} MB" for kind, size in sizes.items()))


if __name__ == "__main__":
    main()
