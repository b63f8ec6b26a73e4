#!/usr/bin/env python3
"""Every tensor type as `radish info --tensor` decodes it, bit by bit against the float64
decoder of ggml_blocks.py: random blocks, and scales that are zero, subnormal, the largest,
infinite or NaN. A type that we do not have is refused. Then whole models: two types and some mixtures,
every type with RADISH_TEST_LONG=1."""
import json
import os
import struct
import subprocess
import sys
import tempfile

from radish_e2e import RADISH, TINY, check, skip_script

try:
    import numpy as np
except ImportError:
    skip_script("python3-numpy is not here")

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from ggml_blocks import TYPES, decode, encode  # noqa: E402
from requantize import requantize  # noqa: E402

BLOCKS = 48
HALVES = [0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x3c00]
# where f16 numbers lie in a block
SCALES = {"F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
          "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "IQ4_NL": [0], "IQ4_XS": [0]}


def string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def write_gguf(path, name, kind, cols, rows, raw):
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + string("general.architecture")
    head += struct.pack("<I", 8) + string("llama") + string(name)
    head += struct.pack("<IQQIQ", 2, cols, rows, kind, 0)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + raw)


def random_blocks(rng, name):
    _, _, size = TYPES[name]
    blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for at in SCALES.get(name, []):
        for i in range(BLOCKS):  # random bits, then every pair of odd ones
            odd = HALVES[(i * (3 if at in (2, 82) else 1) + i // len(HALVES)) % len(HALVES)]
            if i >= BLOCKS // 2 or name == "F16":
                blocks[i, at:at + 2] = [odd & 255, odd >> 8]
    return blocks.tobytes()


def values(path, name):
    run = subprocess.run([RADISH, "info", path, "--tensor", name], capture_output=True, text=True)
    check(run.returncode == 0, run.stderr)
    return np.array(run.stdout.split(), dtype=np.float64), run.stdout.count("\n")


def same_bits(got, want):
    """Also the sign of zero; any NaN equals any other."""
    a, b = got.astype("<f4"), want.astype("<f4")
    both_nan = np.isnan(a) & np.isnan(b)
    return bool(np.all(both_nan | (a.view("<u4") == b.view("<u4"))))


def logits(path, *options):
    run = subprocess.run([RADISH, "logits", path, "--ids", "1,300,77,12,5,9", "--json", *options],
                         capture_output=True, text=True)
    check(run.returncode == 0, path, run.stderr)
    return np.array(json.loads(run.stdout)["logits"])


def check_models(tmp, rng):
    """A model whose matrices are of a type gives in f32 the very logits of the model whose
    matrices are that type's values in F32. With the type's own kernels (auto) they are near."""
    packed, plain = os.path.join(tmp, "packed.gguf"), os.path.join(tmp, "plain.gguf")
    kinds = [[name] for name in TYPES if name not in ("F32", "F16", "BF16")]
    if not os.environ.get("RADISH_TEST_LONG"):
        kinds = [kinds[i] for i in rng.choice(len(kinds), 2, replace=False)]
    kinds += [["Q4_K", "Q6_K", "Q8_0"], ["Q5_0", "Q4_1", "Q8_0"]]  # stacks of mixed types
    kinds += [["Q4_K_M"], ["Q5_K_S"]]  # as people mix them
    for names in kinds:
        requantize(TINY, packed, names)
        requantize(packed, plain, ["F32"])
        want = logits(plain, "--dtype", "f32")
        check(np.array_equal(logits(packed, "--dtype", "f32"), want), names, "in f32")
        for dtype in ("auto", "q8_0"):
            got = logits(packed, "--dtype", dtype)
            off = np.linalg.norm(got - want) / np.linalg.norm(want)
            check(0 < off < 0.04, names, dtype, off)  # x is rounded, too


def main():
    seed = int(os.environ.get("RADISH_TEST_SEED", struct.unpack("<I", os.urandom(4))[0]))
    print("seed", seed)
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "blocks.gguf")
        for name, (kind, per_block, _) in TYPES.items():
            for _ in range(4):
                raw = random_blocks(rng, name)
                write_gguf(path, "x", kind, per_block * BLOCKS // 4, 4, raw)
                got, lines = values(path, "x")
                with np.errstate(over="ignore"):
                    check(lines == 4 and same_bits(got, decode(name, raw)), name, "decodes wrongly")
            # The encoder is only for tests, but it must be the decoder's inverse.
            x = rng.standard_normal(1024)
            back = decode(name, encode(name, x))
            loose = {"2": 0.4, "3": 0.25, "4": 0.12, "5": 0.06, "6": 0.04, "X": 0.2, "Q": 0.1}.get(name[1], 0.02)
            off = np.linalg.norm(back - x) / np.linalg.norm(x)
            check(off < loose, name, "encodes wrongly", off)
        # A type without a decoder, and a file that ends too soon, in words.
        write_gguf(path, "x", 16, 256, 1, bytes(66))
        run = subprocess.run([RADISH, "info", path, "--tensor", "x"], capture_output=True, text=True)
        check(run.returncode == 1 and "IQ2_XXS" in run.stderr, run.stderr)
        for name, (kind, per_block, size) in TYPES.items():
            write_gguf(path, "x", kind, per_block, 3, bytes(3 * size - 1))
            run = subprocess.run([RADISH, "info", path], capture_output=True, text=True)
            check(run.returncode == 1 and "end behind" in run.stderr, name, run.stderr)
            if per_block > 1:
                write_gguf(path, "x", kind, per_block + 1, 1, bytes(2 * size))
                run = subprocess.run([RADISH, "info", path], capture_output=True, text=True)
                check(run.returncode == 1 and "blocks of" in run.stderr, name, run.stderr)
        check_models(tmp, rng)


main()
