#!/usr/bin/env python3
"""Every tensor type as `radish info --tensor` decodes it, bit by bit against the float64
decoder of ggml_blocks.py: random blocks, and scales that are zero, subnormal, the largest,
infinite or NaN. A type that we do not have is refused. tools/quantize.py rounds to nearest. Then whole
models: some types and mixtures, all with RADISH_TEST_LONG=1."""
import json
import os
import struct
import subprocess
import sys
import tempfile

from radish_e2e import LONG, RADISH, ROOT, TINY, check, skip_script

try:
    import numpy as np
except ImportError:
    skip_script("python3-numpy is not here")

sys.path.insert(0, str(ROOT / "tools"))
from ggml_blocks import TYPES, decode, encode  # noqa: E402
from quantize import MIXTURES, quantize  # noqa: E402

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


# where the codes of values lie in a block: [from, to) of its bytes
CODES = {"Q4_0": (2, 18), "Q4_1": (4, 20), "Q5_0": (2, 22), "Q5_1": (4, 24), "Q8_0": (2, 34), "Q2_K": (16, 80),
         "Q3_K": (0, 96), "Q4_K": (16, 144), "Q5_K": (16, 176), "Q6_K": (0, 192), "IQ4_NL": (2, 18),
         "IQ4_XS": (8, 136), "MXFP4": (1, 17)}


def check_nearest(rng, name):
    """Under the scales of a block, no other code of any value is nearer: whatever codes are put instead."""
    x = rng.standard_normal(4096) * np.repeat(np.exp(rng.standard_normal(16)), 256)
    raw = encode(name, x)
    error = np.abs(decode(name, raw) - x)
    blocks = np.frombuffer(raw, np.uint8).reshape(-1, TYPES[name][2])
    for _ in range(64):
        other, (begin, end) = blocks.copy(), CODES[name]
        other[:, begin:end] = rng.integers(0, 256, (len(blocks), end - begin), dtype=np.uint8)
        worse = np.abs(decode(name, other) - x) - error
        check((worse >= -1e-12).all(), name, "is not rounded to nearest", worse.min())
    # Codes that are all in use leave an error of about a step: scales fit the numbers.
    off = np.linalg.norm(decode(name, raw) - x) / np.linalg.norm(x)
    most = {"2": 0.4, "3": 0.25, "4": 0.12, "5": 0.06, "6": 0.04, "X": 0.2, "Q": 0.1}.get(name[1], 0.02)
    check(off < most, name, "encodes wrongly", off)


def check_models(tmp, rng):
    """A model whose matrices are of a type gives in f32 the very logits of the model whose
    matrices are that type's values in F32. With the type's own kernels (auto) they are near."""
    packed, plain = os.path.join(tmp, "packed.gguf"), os.path.join(tmp, "plain.gguf")
    kinds, mixtures = [[name] for name in CODES], [[name] for name in MIXTURES]
    if not LONG:
        kinds = [kinds[i] for i in rng.choice(len(kinds), 2, replace=False)]
        mixtures = [mixtures[i] for i in rng.choice(len(mixtures), 2, replace=False)]
    kinds += [["Q4_K", "Q6_K", "Q8_0"], ["Q5_0", "Q4_1", "Q8_0"]]  # stacks of mixed types
    for names in kinds + mixtures:
        quantize(TINY, packed, names)
        quantize(packed, plain, ["F32"])
        want = logits(plain, "--dtype", "f32")
        check(np.array_equal(logits(packed, "--dtype", "f32"), want), names, "in f32")
        for dtype in ("auto", "q8_0"):
            got = logits(packed, "--dtype", dtype)
            off = np.linalg.norm(got - want) / np.linalg.norm(want)
            check(0 < off < 0.04, names, dtype, off)  # x is rounded, too


def check_program(tmp):
    """The program on a mixture of experts whose rows are no whole blocks of 256: types, routers, sizes."""
    plain, packed = os.path.join(tmp, "plain.gguf"), os.path.join(tmp, "packed.gguf")

    def tool(name, *args, want=0):
        done = subprocess.run([sys.executable, ROOT / "tools" / name, *args], capture_output=True, text=True)
        check(done.returncode == want, name, args, done.stdout, done.stderr)
        return done.stdout + done.stderr

    tool("make-model.py", "--shape", "nano-moe", "--type", "f32", plain)
    for kind, held in (("q4_k_m", ["F32", "Q4_K", "Q5_0", "Q8_0"]), ("MXFP4_MOE", ["F32", "MXFP4", "Q8_0"])):
        says = tool("quantize.py", plain, packed, kind)
        info = subprocess.run([RADISH, "info", packed, "--json"], capture_output=True, text=True)
        types = json.loads(info.stdout)["tensor_types"]
        check(held == sorted(types), kind, says, types)
        got, want = logits(packed), logits(plain)
        check(np.linalg.norm(got - want) < 0.5 * np.linalg.norm(want), kind)
    check("cannot be read" not in tool("quantize.py", packed, plain, "Q8_0"))
    check("none of the types" in tool("quantize.py", plain, packed, "Q7_K", want=1))
    with open(plain, "rb") as f:
        whole = f.read()
    for bad, words in ((b"GGUX" + whole[4:], "not a GGUF file"), (whole[:300], "too soon"), (whole[:-4000], "too soon")):
        path = os.path.join(tmp, "bad.gguf")
        with open(path, "wb") as f:
            f.write(bad)
        check(words in tool("quantize.py", path, os.path.join(tmp, "never.gguf"), "Q4_0", want=1), words)
    check(not [name for name in os.listdir(tmp) if "never" in name], "something was left")


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
            if name in CODES:
                check_nearest(rng, name)
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
        check_program(tmp)


main()
