#!/usr/bin/env python3
"""After the start a server needs nothing of its model file, and takes only the memory that it
has used and what it makes ready: a pool sized for most of the machine is not touched whole. A
model in several files is the same model."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from radish_e2e import ROOT, TINY, Server, can_populate, check, radish, run

SMALL = ("--max-total-tokens", "4096")


def answer(server, prompt):
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0}
    return server.ask("/v1/completions", body)["choices"][0]["text"]


def test_a_file_cut_behind_the_servers_back_is_not_missed():
    with tempfile.TemporaryDirectory(prefix="radish-file-") as tmp:
        copy = pathlib.Path(tmp) / "model.gguf"
        shutil.copy(TINY, copy)
        with Server(copy, *SMALL) as server:
            maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
            check(str(copy) not in maps, "the file is still mapped")
            before = answer(server, "Once upon a time")
            with open(copy, "r+b") as f:
                f.truncate(100)
            check(answer(server, "Once upon a time") == before)
            check(answer(server, "The capital of France is"))
            server.get("/v1/models")


def test_an_untouched_pool_takes_no_memory_but_what_is_made_ready():
    for ahead, least in ((0, 0), (0.02, 20e6)):
        with Server(TINY, "--max-total-tokens", "100000", "--context-length", "512",
                    "--kv-populate-ahead", ahead) as server:
            pool = 2**20 * float(re.search(r"KV pool 100000 tokens \(([0-9.]+) MiB\)",
                                           server.banner)[1])
            if least and can_populate():
                server.await_populated(least)
                check(server.resident_bytes() > least, server.resident_bytes())
            check(server.resident_bytes() < pool / 2, server.resident_bytes(), pool)
            check(answer(server, "Once upon a time"))


def split(model, name, *args):
    tool = [sys.executable, ROOT / "tools/split-gguf.py", model, name, *args]
    done = subprocess.run([str(word) for word in tool], check=True, stdout=subprocess.PIPE)
    return [pathlib.Path(line) for line in done.stdout.decode().split("\n")[:-1]]


def logits(model):
    return radish("logits", "-m", model, "--ids", "5,9,20", "--json", "--dtype", "f32")[0]


def test_a_model_in_several_files_is_the_same_model():
    whole = logits(TINY)
    with tempfile.TemporaryDirectory(prefix="radish-split-") as tmp:
        for i, args in enumerate((("--parts", "2"), ("--max-mb", "1"), ("--parts", "3", "--keys-first"))):
            parts = split(TINY, f"{tmp}/{i}", *args)
            check(len(parts) > 1 and all(part.exists() for part in parts), parts)
            for part in parts[:3]:
                check(logits(part) == whole, part)
        with Server(parts[1], *SMALL) as server:
            check(answer(server, "Once upon a time"))
            maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
            check(tmp not in maps, "a part is still mapped")
        for part in parts:
            kept = part.rename(tmp + "/kept")
            _, why = radish("serve", [p for p in parts if p != part][0], want=1)
            check(f"cannot open {part}" in why, why)
            kept.rename(part)
        shutil.copy(parts[1], parts[2])
        _, why = radish("generate", "-m", parts[0], "-p", "x", want=1)
        check(parts[2].name in why and "part 2 of 3" in why, why)


run(globals())
