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

import oracle

TOOLS = DATA.parent / "tools"
IDS = [300, 301, 17, 44, 300, 301, 99, 5, 260]


def radish_json(*args):
    return json.loads(radish(*args, timeout=300)[0])


def make_model(preset, kind, path):
    subprocess.run([sys.executable, str(TOOLS / "make_gguf.py"), "--preset", preset, "--type", kind,
                    "--out", path], check=True, capture_output=True)


def test_small_presets_agree_with_numpy():
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/small.gguf"
        for preset in ("tiny-llama", "tiny-qwen3"):
            for kind in ("f32", "f16", "bf16", "q8_0"):
                make_model(preset, kind, path)
                want = oracle.logits(path, IDS)
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
    ids = [300, 17, 2000]
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/large.gguf"
        for preset in ("llama-110m", "qwen3-0.6b"):
            for kind in ("f32", "f16", "bf16", "q8_0"):
                make_model(preset, kind, path)
                want = oracle.logits(path, ids)
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
