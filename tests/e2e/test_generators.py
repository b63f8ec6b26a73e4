#!/usr/bin/env python3
"""The generators in tools/ that the documents' figures rest on: every shape in every type is a model that
radish reads and serves, the load has the prompt tokens that the figures name, and the traces give the hits
that counting them here gives. The same seed gives the same bytes everywhere."""
import contextlib
import functools
import gzip
import hashlib
import importlib.util
import io
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from radish_e2e import LONG, ROOT, TINY, Server, check, long_run, radish, run, skip_script

try:
    import numpy as np
except ImportError:
    skip_script("python3-numpy is not here")

TOOLS = ROOT / "tools"
TYPES = ["f32", "f16", "bf16", "q8_0", "q4_k_m", "mxfp4_moe", "iq4_nl"]
# One block of each shape, with heads and a vocabulary of its kind but little of everything else.
SMALL = ["--layers", 1, "--width", 64, "--heads", 4, "--kv-heads", 2, "--head-width", 16, "--ffn", 96,
         "--vocab", 700, "--context", 512]
SHAPES = {"nano-llama": "llama", "nano-qwen3": "qwen3", "tiny-llama": "llama", "tiny-qwen3": "qwen3",
          "llama-110m": "llama", "qwen3-0.6b": "qwen3", "llama-8b-2l": "llama", "nano-moe": "qwen3moe",
          "qwen3-30b-a3b-6l": "qwen3moe", "gpt-oss-20b-6l": "gpt-oss",
          "nano-qwen35": "qwen35", "qwen3.5-0.8b": "qwen35", "qwen3.6-35b-a3b-8l": "qwen35moe",
          "lfm2-1.2b": "lfm2", "granite-4-h-tiny": "granitehybrid", "nano-lfm2": "lfm2",
          "nano-granite-h": "granitehybrid", "nano-qwen35moe": "qwen35moe", "nano-lfm2moe": "lfm2moe"}
# Until there is a layer of attention among them.
LAYERS = {"nano-qwen35": 4, "qwen3.5-0.8b": 4, "qwen3.6-35b-a3b-8l": 4, "lfm2-1.2b": 3, "granite-4-h-tiny": 6, "nano-lfm2": 3,
          "nano-granite-h": 4, "nano-qwen35moe": 4, "nano-lfm2moe": 3}
FEW_EXPERTS = ["--experts", 4, "--used", 2, "--expert-ffn", 32]


def program(name, *args, want=0):
    done = subprocess.run([sys.executable, TOOLS / name, *map(str, args)], capture_output=True, text=True)
    check(done.returncode == want, name, args, done.returncode, done.stdout, done.stderr)
    return done.stdout


def tool(name, *args, want=0):
    """The same in this process, which has numpy already; returns what it printed, or why it ended."""
    out, before, code = io.StringIO(), sys.argv, 0
    sys.argv = [name, *map(str, args)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            module_of(name).main()
    except SystemExit as end:  # a message, which is exit status 1, or a number
        code = end.code or 0
        if isinstance(code, str):
            out.write(code)
            code = 1
    finally:
        sys.argv = before
    check(code == want, name, args, code, out.getvalue())
    return out.getvalue()


@functools.cache
def module_of(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]


def test_every_shape_and_type_is_a_model():
    listed = program("make-model.py", "--list")
    with tempfile.TemporaryDirectory() as tmp:
        for n, (shape, arch) in enumerate(SHAPES.items()):
            check(f"\n{shape} " in listed, shape, listed)
            # one type each; all of all in make test-long
            for kind in TYPES if LONG else [TYPES[n % len(TYPES)]]:
                path = f"{tmp}/{shape}-{kind}.gguf"
                few = FEW_EXPERTS if arch in ("qwen3moe", "gpt-oss", "qwen35moe", "granitehybrid") else []
                few = ["--layers", LAYERS.get(shape, 1), *few]
                tool("make-model.py", "--shape", shape, "--type", kind, *SMALL, *few, path)
                says = json.loads(radish("info", "-m", path, "--json")[0])
                check(says["architecture"] == arch, says)
                rows = np.array(json.loads(radish("logits", "-m", path, "--ids", "1,300,699", "--json")[0])["logits"])
                check(rows.shape == (3, 700) and np.isfinite(rows).all() and rows.std() > 0, shape, kind)
        check(len(listed.strip().splitlines()) == len(SHAPES) + 1, listed)


def test_the_same_seed_gives_the_same_bytes():
    """Pinned: with another version of Python or numpy, too."""
    wanted = {
        ("make-model.py", "--shape", "nano-llama", "--type", "f32", "--layers", 1, "--vocab", 300): "aef671731e9a14e9",
        ("make-model.py", "--shape", "nano-qwen3", "--type", "q8_0", "--layers", 1, "--vocab", 300): "d2c6bb725a6faac9",
        ("make-model.py", "--shape", "nano-llama", "--type", "bf16", "--layers", 1, "--vocab", 300): "961824ad9982e485",
        ("make-trace.py", "--form", "rxtrace", "--requests", 20, "--open", 4): "1b8790ace3d49375",
        ("make-trace.py", "--form", "mooncake", "--requests", 200): "fcc07dc2caf06cd7"}
    with tempfile.TemporaryDirectory() as tmp:
        got = {}
        for args in wanted:
            tool(*args, f"{tmp}/made")
            got[args] = digest(f"{tmp}/made")
        check(got == wanted, got)
        for args in list(wanted)[2:]:
            tool(*args, "--seed", 2, f"{tmp}/other")
            check(digest(f"{tmp}/other") != wanted[args], args)


def test_a_tensor_is_the_same_in_every_type_and_depth():
    """bf16's bits are the upper half of f32's, rounded; one layer's are those of two layers' first."""
    import tiny_gguf
    with tempfile.TemporaryDirectory() as tmp:
        args = ["--shape", "nano-llama", "--vocab", 300, "--layers"]
        tool("make-model.py", *args, 1, "--type", "f32", f"{tmp}/exact")
        tool("make-model.py", *args, 2, "--type", "bf16", f"{tmp}/rounded")
        exact, rounded = tiny_gguf.read(f"{tmp}/exact")[1], tiny_gguf.read(f"{tmp}/rounded")[1]
        for name, x in exact.items():
            check(np.abs(rounded[name] - x).max() <= np.abs(x).max() / 256, name)
        q = exact["blk.0.attn_q.weight"]
        check(abs(q.mean()) < 0.005 and abs(q.std() * 128 ** 0.5 - 1) < 0.02, q.mean(), q.std())


def test_a_made_model_is_served():
    """Text is tokens of its vocabulary and back, also what is no word there; chat goes through its template."""
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/served.gguf"
        tool("make-model.py", "--shape", "tiny-qwen3", "--vocab", 2000, path)
        text = "baba bebu  Radish 2026, \u00e9\u4f60\U0001f331\n\tcuda"
        (pathlib.Path(tmp) / "text").write_text(text)
        ids = json.loads(radish("tokenize", "-m", path, "--json", "--file", f"{tmp}/text")[0])
        made = module_of("make-model.py")
        byte_of = {name: byte for byte, name in enumerate(made.byte_names())}
        tokens = made.vocabulary(2000)[0]
        back = bytes(byte_of[c] for i in ids["ids"] for c in tokens[i])
        check(back == text.encode() and len(ids["ids"]) < len(back), ids)
        with Server(path) as server:
            body = {"messages": [{"role": "user", "content": "ba be"}], "max_tokens": 4, "ignore_eos": True}
            first, again = (server.ask("/v1/chat/completions", body)["usage"] for _ in range(2))
            check(first["completion_tokens"] == again["completion_tokens"] == 4, first)
            check(again["prompt_tokens_details"]["cached_tokens"] == first["prompt_tokens"] - 1, again)


def test_the_load_has_the_tokens_that_the_figures_name():
    """Of the whole load, nothing sent: prompts, and prompt tokens with each prefix computed once."""
    load = module_of("send-load.py")

    class Args:
        lowest_id, highest_id = 300, 30999

    def steps(first):
        return sum(1 + steps(step.then) for step in first)

    found = {}
    for name, make in load.WORKLOADS.items():
        first = make(load.Ids(f"{name} 1", Args), 1)
        found[name] = steps(first), load.tokens_once(first)
    check(found == {"W1": (64, 5632), "W2": (64, 8752), "W3": (84, 2448), "W4": (64, 20480)}, found)


def test_a_server_computes_each_prefix_once():
    # requests, prompt tokens, of them with each prefix once: of a sixteenth of the load, or all of it
    wanted = {"W1": (4, 6400, 1792), "W2": (4, 3712, 1027), "W3": (20, 22080, 1360), "W4": (4, 5120, 4096)}
    if LONG:
        wanted = {"W1": (64, 102400, 5632), "W2": (64, 59392, 8752), "W3": (84, 98880, 2448), "W4": (64, 81920, 20480)}
    with Server(TINY, "--max-total-tokens", "32768") as server:
        for style in ("openai", "sglang"):
            out = program("send-load.py", "--port", server.port, "--style", style, "--divide",
                          1 if LONG else 16, "--lowest-id", 10, "--highest-id", 1000, "--timeout", 120, "--json")
            rows = {row["workload"]: row for row in map(json.loads, out.splitlines())}
            check(list(rows) == list(wanted), rows)
            for name, row in rows.items():
                got = row["requests"], row["prompt_tokens"], row["once"]
                check(got == wanted[name] and row["made_up"] == row["errors"] == 0, row)
                # Siblings may share the last token of what they continue.
                least = row["once"] - (row["requests"] if name == "W3" else 0)
                check(least <= row["evaluated"] <= row["once"], row)
            server.wait_idle()
            server.ask("/flush_cache", {})


def test_a_load_that_fails_says_so():
    with Server(TINY, "--max-total-tokens", "16384") as server:
        # Its ids are above the model's vocabulary.
        out = program("send-load.py", "--port", server.port, "--workload", "W1", "--divide", 16, want=1)
        check("4 of 4 requests failed: RuntimeError: HTTP 400" in out, out)


def leading(found, keys):
    """How many of the first keys were seen; all are from now on."""
    count = next((i for i, key in enumerate(keys) if key not in found), len(keys))
    found.update(keys)
    return count


def chain(tokens, page):
    """A key for each whole page and all before it."""
    keys, key = [], 0
    for start in range(0, len(tokens) - page + 1, page):
        key = hash((key, tokens[start:start + page].tobytes()))
        keys.append(key)
    return keys


def read_rxtrace(path):
    """(prompt, prompt and output) of each request, as arrays of tokens."""
    data = pathlib.Path(path).read_bytes()
    magic, _, segments, requests, _, _, tokens, references = struct.unpack_from("<8sQIIIIQQ", data)
    check(magic == b"RXTRACE1")
    starts = np.frombuffer(data, "<u8", segments + 1, 48)
    at = 48 + starts.nbytes
    ids = np.frombuffer(data, "<i4", tokens, at)
    records = np.frombuffer(data, "<u4", requests * 6, at + ids.nbytes).reshape(-1, 6)
    named = np.frombuffer(data, "<u4", references, at + ids.nbytes + records.nbytes)
    check(at + ids.nbytes + records.nbytes + named.nbytes == len(data))
    parts = [ids[starts[s]:starts[s + 1]] for s in range(segments)]
    for _, _, _, first, prompt, count in records:
        yield tuple(np.concatenate([parts[s] for s in named[first:first + n]]) for n in (prompt, count))


def test_a_trace_of_tokens_gives_the_hits_that_counting_gives():
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/day.rxtrace"
        tool("make-trace.py", "--form", "rxtrace", "--requests", 150, "--open", 20, "--tenants", 5, path)
        trace = list(read_rxtrace(path))
        check(len(trace) == 150)
        for page in (1, 16, 64):
            cell = json.loads(radish("replay", path, "--page-size", page, "--json")[0])["cells"][0]
            found, hits = set(), 0
            for prompt, everything in trace:
                hits += leading(found, chain(prompt, page)) * page
                found.update(chain(everything, page))
            check(cell["hit_tokens"] == hits > 0, page, cell, hits)
            check(cell["prompt_tokens"] == sum(len(prompt) for prompt, _ in trace), cell)


def test_a_trace_of_blocks_gives_the_hits_that_counting_gives():
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/day.jsonl.gz"
        tool("make-trace.py", "--form", "mooncake", "--requests", 800, path)
        lines = [json.loads(line) for line in gzip.open(path)]
        times = [line["timestamp"] for line in lines]
        check(len(lines) == 800 and times == sorted(times))
        parents = {}
        for line in lines:
            ids = line["hash_ids"]
            check(len(ids) == -(-line["input_length"] // 512), line)
            for parent, child in zip([None, *ids], ids):
                check(parents.setdefault(child, parent) == parent, "an id has two parents", line)
        found = set()
        hits = sum(leading(found, line["hash_ids"]) for line in lines)
        cell = json.loads(radish("replay", path, "--capacity-blocks", 1000000, "--json")[0])["cells"][0]
        check(cell["hit_blocks"] == hits > 0 and cell["requests"] == 800, cell, hits)


def rates(trace, *args):
    cells = json.loads(radish("replay", trace, *args, "--json")[0])["cells"]
    return [f"{cell['block_hit_rate' if 'jsonl' in trace else 'token_hit_rate']:.4f}" for cell in cells]


def test_the_hit_rates_of_the_documents_are_those_of_the_default_traces():
    page = (ROOT / "docs/benchmarks.md").read_text()
    with tempfile.TemporaryDirectory() as tmp:
        blocks, tokens = f"{tmp}/hour.jsonl.gz", f"{tmp}/tenants.rxtrace"
        tool("make-trace.py", "--form", "mooncake", blocks)
        capacities = [word for count in (10000, 30000, 100000) for word in ("--capacity-blocks", count)]
        for policy in ("lru", "lfu", "slru", "cost"):
            row = " | ".join(rates(blocks, "--policy", policy, *capacities))
            check(re.search(rf"^\| {policy}( \(ours\))? \| {re.escape(row)} \|$", page, re.M), policy, row)
        if LONG:
            tool("make-trace.py", "--form", "rxtrace", tokens)
            row = " / ".join(rates(tokens, "--page-size", 1, "--page-size", 16, "--page-size", 64))
            check(row in page, row)


def test_what_cannot_be_made_is_said():
    cases = [
        (("make-model.py", "--shape", "nano-llama", "--vocab", 100), "--vocab is at least 260"),
        (("make-model.py", "--shape", "nano-llama", "--vocab", 10 ** 8), "--vocab is at most 2337770"),
        (("make-model.py", "--shape", "nano-llama", "--experts", 3), "it has no experts"),
        (("make-model.py", "--shape", "nano-moe", "--used", 17), "--used is at most --experts"),
        (("make-model.py", "--shape", "nano-llama", "--heads", 3), "multiple of --kv-heads"),
        (("make-model.py", "--shape", "nano-llama", "--ffn", 40, "--type", "q8_0"), "blk.0.ffn_down.weight"),
        (("make-trace.py", "--form", "rxtrace", "--requests", 0), "--requests is out of range"),
        (("make-trace.py", "--form", "mooncake", "--hours", "nan"), "--hours is out of range")]
    with tempfile.TemporaryDirectory() as tmp:
        for args, words in cases:
            says = tool(*args, f"{tmp}/out", want=2 if "out of range" in words else 1)
            check(words in says, args, says)
        for name, flags in (("make-model.py", ["--shape", "nano-llama"]), ("make-trace.py", ["--form", "rxtrace"])):
            says = tool(name, *flags, f"{tmp}/no/such/folder", want=1)
            check("No such file or directory" in says, says)
        check(not list(pathlib.Path(tmp).iterdir()), "something was left")


@long_run
def test_all_that_make_bench_measures_runs_to_its_end():
    """Of the release build, each benchmark in its smallest form: some minutes."""
    with tempfile.TemporaryDirectory() as tmp:
        for script, more in (("run-bench.sh", {}), ("make-benchmarks.sh", {"DOCS": tmp})):
            done = subprocess.run([TOOLS / script], env={**os.environ, "QUICK": "1", **more}, capture_output=True,
                                  text=True)
            check(done.returncode == 0 and "skipped" not in done.stdout, script, done.stdout, done.stderr)
        check({"suite.csv", "suite.svg"} == {f.name for f in pathlib.Path(tmp, "benchmarks").iterdir()})


if __name__ == "__main__":
    run(globals())
