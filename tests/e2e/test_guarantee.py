#!/usr/bin/env python3
"""What a server promises of its answers at start: one line, the same on its banner, in its log
and in /server_info, and true of what runs: the types of weights and KV that were asked for,
and the kernels that docs/kernels.md says this CPU gets. There is no case without a promise."""
import os
import re
import subprocess
import sys
import tempfile

from radish_e2e import RADISH, ROOT, TINY, Server, check, run, skip_script

try:
    import numpy  # noqa: F401: what makes the models wants it
except ImportError:
    skip_script("python3-numpy is not here")

import tiny_gguf

LINE = re.compile(r"answers are bit-identical whatever the cache or the batch does: "
                  r"(?P<weights>[\w+]+) weights, (?P<kv>\w+) KV, attention (?P<attention>[\w-]+), "
                  r"products (?P<products>\w+)$")
ATTENTION = {"cpu-amx", "cpu-amx-codes", "cpu-avx512bf16", "cpu-avx512bf16-codes",
             "cpu-avx512", "cpu-avx2", "cpu-neon", "cpu-scalar"}
PRODUCTS = {"amx", "avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2", "i8mm", "dotprod", "neon", "scalar"}


def cpu_flags():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        lines = [line for line in f if line.startswith("flags")]
    return set(lines[0].split()) if lines else set()


def codes_are_computed_with(flags, kv):
    return kv in ("int8", "fp8_e4m3", "fp8_e5m2") and {"avx512_bf16", "avx512vbmi"} <= flags


def expected_kernels(flags, kv):
    """(attention, products) of a CPU without AMX, by the tables of docs/kernels.md."""
    avx512 = {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= flags
    vnni = avx512 and "avx512_vnni" in flags
    bf16 = avx512 and "avx512_bf16" in flags
    avx2 = {"avx2", "fma"} <= flags
    attention = "avx512bf16" if bf16 else "avx512" if avx512 else "avx2" if avx2 else "scalar"
    products = ("avx512bf16" if vnni and bf16 else "avx512vnni" if vnni else
                "avx512" if avx512 else "avxvnni" if avx2 and "avx_vnni" in flags else
                "avx2" if avx2 else "scalar")
    return "cpu-" + attention + ("-codes" if codes_are_computed_with(flags, kv) else ""), products


def promise(model, *args):
    """The words of the line; the three places must agree."""
    with Server(model, "--log-level", "info", "--max-total-tokens", "512", *args) as s:
        lines = [line.strip() for line in s.banner.splitlines() if "bit-identical" in line]
        check(len(lines) == 1, s.banner)
        told = s.get("/server_info")
        check(told["guarantee"] == lines[0], told["guarantee"], lines[0])
        found = LINE.match(lines[0])
        check(found, lines[0])
        head = re.search(r"\((\w+), ([\w+]+), (\w+) KV, attention ([\w-]+), ", s.banner)
        check(head and head.groups()[1:] == (found["weights"], found["kv"], found["attention"]),
              s.banner)
    check(lines[0] in s.log, s.log)
    return found, s.log


def check_kernels(found, log):
    check(found["attention"] in ATTENTION and found["products"] in PRODUCTS, found.group())
    flags = cpu_flags()
    if not flags:
        return  # another architecture, or no /proc
    attention, products = expected_kernels(flags, found["kv"])
    amx_attention = attention.replace("avx512bf16", "amx")
    if "amx_bf16" in flags:  # used when it has proved itself; else the log says why not
        for what, name, amx, less in (("attention", found["attention"], amx_attention, attention),
                                      ("products", found["products"], "amx", products)):
            told = f"{what} by {less.removesuffix('-codes')} instead" in log
            check(name == amx or name == less and told, name, log)
        return
    check(found["attention"] == attention, found.group(), attention)
    check(found["products"] == products, found.group(), products)


def test_the_line_says_what_runs():
    auto = "bf16" if "avx512_bf16" in cpu_flags() else "f32"
    with tempfile.TemporaryDirectory() as tmp:
        f32, q8 = f"{tmp}/f32.gguf", f"{tmp}/q8_0.gguf"
        tiny_gguf.write(f32, {**tiny_gguf.SPECS["llama"], "dim": 64, "ffn": 96})
        subprocess.run([sys.executable, str(ROOT / "tools/quantize.py"), f32, q8, "Q8_0"],
                       check=True, stdout=subprocess.DEVNULL)
        # model, options, weights, KV
        for model, args, weights, kv in (
                (TINY, [], "bf16" if auto == "bf16" else "f16w", auto),
                (TINY, ["--dtype", "f32"], "f32", "f32"),
                (TINY, ["--dtype", "bf16", "--kv-cache-dtype", "int8"], "bf16", "int8"),
                (TINY, ["--dtype", "q8_0"], "q8_0", auto),
                (f32, ["--dtype", "auto"], auto, auto),
                (f32, ["--dtype", "f32", "--kv-cache-dtype", "bf16"], "f32", "bf16"),
                (q8, ["--disable-radix-cache"], "q8_0", auto),
                (q8, ["--dtype", "f32"], "f32", "f32")):
            found, log = promise(model, *args)
            print("  " + found.group())
            check(found["kv"] == kv, args, found.group())
            # A matrix whose rows have no whole blocks, and an embedding, stay what they were.
            types = found["weights"].split("+")
            check(weights in types and set(types) <= {weights, auto}, args, found.group())
            check(weights == "q8_0" or types == [weights], args, found.group())
            check_kernels(found, log)


def test_a_cap_holds_and_is_told():
    """RADISH_ISA: what stands above it is not used; the log and /server_info say so."""
    wanted = {"avx2": {"cpu-avx2", "cpu-scalar", "avx2", "scalar"}, "scalar": {"cpu-scalar", "scalar"}}
    if {"avx2", "fma", "avx_vnni"} <= cpu_flags():
        wanted["avxvnni"] = {"cpu-avx2", "avxvnni"}
    for cap, names in wanted.items():
        with Server(TINY, "--log-level", "info", "--max-total-tokens", "512",
                    env={"RADISH_ISA": cap}) as s:
            told = s.get("/server_info")
            found = LINE.match(told["guarantee"])
            check(told["isa_cap"] == cap, told)
            check({found["attention"], found["products"]} <= names, cap, found.group())
        check(f"instructions up to {cap}, " in s.log, s.log)
    refused = subprocess.run([RADISH, "generate", "-m", str(TINY), "-p", "x"], text=True,
                             capture_output=True, env={**os.environ, "RADISH_ISA": "avx3"})
    check(refused.returncode == 1 and "not 'avx3'" in refused.stderr, refused.stderr)


def test_the_manual_shows_this_line():
    text = " ".join((ROOT / "docs/kernels.md").read_text(encoding="utf-8").split())
    shown = re.search(r"answers are bit-identical .*? products \w+", text)
    check(shown and LINE.match(shown.group()), shown)
    for name in ATTENTION | PRODUCTS:
        check(f"`{name}`" in text, name, "is not explained in docs/kernels.md")


run(globals())
