#!/usr/bin/env python3
"""tools/gpu-verify.sh packs what a machine with a GPU lacks, and keeps what its steps find there: with the
emulated driver in the place of a GPU."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from radish_e2e import EMULATED, LONG, RADISH, ROOT, check, run, skip

BUILD = pathlib.Path(RADISH).parent


def call(*args, want=0, **options):
    done = subprocess.run([str(arg) for arg in args], capture_output=True, text=True, **options)
    check(done.returncode == want, args, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_a_bundle_verifies_elsewhere():
    if not EMULATED.exists() or not (BUILD / "bench/bench_cuda").exists():
        skip("the emulated driver or the benchmarks are not built")
    with tempfile.TemporaryDirectory(prefix="radish-gpu-") as tmp:
        tmp = pathlib.Path(tmp)
        call(ROOT / "tools/gpu-verify.sh", "--pack", tmp / "all.tar", BUILD)
        subprocess.run(["tar", "-C", tmp, "-xf", tmp / "all.tar"], check=True)
        top = tmp / "radish-gpu"
        check(not any(top.glob("lib/libc.so*")), "glibc is every machine's own")
        # Some 15 seconds on the emulator: with the long tests.
        serve = ",serve" if LONG and shutil.which("curl") else ""
        said = call(top / "gpu-verify.sh", "--run", "--out", tmp / "found", "--small", "--only",
                    "ceilings,p1,figures,p1_q8_0,figures_q8_0,p1_fp8,figures_fp8,torch" + serve, "--library",
                    top / "lib/libcuda-emulated.so", cwd=tmp)
        found = json.loads((tmp / "found/result.json").read_text())["steps"]
        for step in ("ceilings", "p1", "figures", "p1_q8_0", "figures_q8_0", "p1_fp8", "figures_fp8"):
            check(found[step]["run"]["status"] == "ok", step, said)
        check(found["torch"]["run"]["status"] in ("ok", "skipped"), said)
        check(found["ceilings"]["found"]["read_gb_s"] > 0 and found["ceilings"]["found"]["wgmma_tflops"] > 0, found)
        for form, dtype, kv in (("", "bf16", "bf16"), ("_q8_0", "q8_0", "bf16"), ("_fp8", "bf16", "fp8_e4m3")):
            p1, = found["p1" + form]["found"]["p1"]
            check(p1["shape"] == ("toy-moe" if form == "_q8_0" else "toy"), p1)
            check(p1["compositions"] >= 1 and p1["rows"] > 0 and p1["differ"] == 0 and p1["dtype"] == dtype and
                  p1["kv"] == kv, p1)
            rows = found["figures" + form]["found"]["rows"]
            kinds = {(row["what"], row["dtype"], row["kv"]) for row in rows}
            check(kinds == {(kind, dtype, kv) for kind in ("decode", "prefill", "tree", "load")}, kinds)
            check(p1["graph_steps"] > 0 and p1["loaded_tokens"] > 0, p1)
        if serve:
            served = found["serve"]["found"]
            check(served["verified"] > 0 and served["differ"] == 0 and served["host"] > 0, served, said)
        tables = call(sys.executable, ROOT / "tools/gpu-report.py", "--print", tmp / "found/result.json")
        check("emulated GPU (sm_90)" in tables and "| toy | prefill of 48 |" in tables and
              "| toy-moe in Q8_0 | prefill of 48 |" in tables and
              "| toy-moe: 3 batches" in tables and
              "| toy with K and V in fp8 | prefill of 48 |" in tables, tables)
        # A step that fails is told, and what others found stays.
        call(top / "gpu-verify.sh", "--run", "--out", tmp / "found", "--small", "--only", "p1", "--library",
             tmp / "none.so", cwd=tmp, want=1)
        found = json.loads((tmp / "found/result.json").read_text())["steps"]
        check(found["p1"]["run"]["status"] == "failed" and "found" in found["ceilings"], found)
        call(top / "gpu-verify.sh", "--run", "--only", "nothing", cwd=tmp, want=2)


os.environ.pop("RADISH_LIBCUDA", None)
run(globals())
