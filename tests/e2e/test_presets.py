#!/usr/bin/env python3
"""Models with random weights load and run in every type of numbers, and their logits agree with an
independent float64 forward pass in numpy: small ones, and in the long run some with the shapes of real
ones (up to 2.4 GB a file, 10 GB of memory)."""
import json
import subprocess
import sys
import tempfile

from radish_e2e import HANG, MADE, ROOT, check, long_run, radish, run, skip_script

try:
    import numpy as np
except ImportError:
    skip_script("python3-numpy is not here")

import oracle

KINDS = ("f32", "f16", "bf16", "q8_0")


def radish_json(*args):
    return json.loads(radish(*args, timeout=20 * HANG)[0])


def agree(path, what, ids, steps):
    """A bf16 run rounds weights and activations; an f32 run of rounded weights only adds in f32."""
    want, words = oracle.logits(path, ids), ",".join(map(str, ids))
    for dtype, limit in (("f32", 1e-4), ("bf16", 3e-2)):
        got = np.array(radish_json("logits", "-m", path, "--ids", words, "--dtype", dtype,
                                   "--json")["logits"])
        check(got.shape == want.shape, got.shape, want.shape)
        worst = np.abs(got - want).max() / np.abs(want).max()
        check(worst < limit, what, dtype, worst)
        out = radish_json("generate", "-m", path, "--ids", words, "-n", steps, "--temp", 0,
                          "--ignore-eos", "--dtype", dtype, "--json")["output_ids"]
        check(len(out) == steps, out)
        print(f"{what} {dtype}: largest difference {worst:.1e}, then {out}", flush=True)


def test_small_models_agree_with_numpy():
    for name in ("tiny-llama", "tiny-qwen3"):
        for kind in KINDS:
            agree(MADE / f"{name}-{kind}.gguf", f"{name} {kind}",
                  [300, 301, 17, 44, 300, 301, 99, 5, 260], 8)


@long_run
def test_large_models_agree_too():
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/large.gguf"
        for shape in ("llama-110m", "qwen3-0.6b"):
            for kind in KINDS:
                subprocess.run([sys.executable, str(ROOT / "tools/make-model.py"), "--shape", shape,
                                "--type", kind, path], check=True, stdout=subprocess.DEVNULL)
                agree(path, f"{shape} {kind}", [300, 17, 2000], 4)


run(globals())
