#!/usr/bin/env python3
"""test_nextn.py - a model whose file carries a head that guesses, served: answers are those without
it, whatever pages, tiers and sessions do; what it guessed is counted; where there is none, or it is
named wrongly, the words say so."""
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from radish_e2e import ROOT, TINY, Server, check, radish, run

COMMON = ["--threads", 2, "--dtype", "f32", "--context-length", 512, "--max-running-requests", 4]
WAYS = (["--page-size", 16], ["--enable-hierarchical-cache", "--max-total-tokens", 1024],
        ["--enable-streaming-session"])


def make(directory, heads):
    path = pathlib.Path(directory) / f"heads-{heads}.gguf"
    subprocess.run([sys.executable, ROOT / "tools/make-model.py", "--shape", "nano-qwen35", "--type", "f32",
                    "--nextn", str(heads), path], check=True, capture_output=True)
    return path


def answers(server):
    """Forks of one prompt, and repetitions."""
    stem = [20 + i * 7 % 300 for i in range(150)]
    said = []
    for i, temperature in enumerate((0, 0, 0.8, 0.8, 0)):
        params = {"max_new_tokens": 40, "temperature": temperature, "sampling_seed": i // 2, "ignore_eos": True}
        ids = stem[:150 - 20 * (i // 2)] + [30 + i // 2]
        said.append(server.ask("/generate", {"input_ids": ids, "sampling_params": params})["output_ids"])
    return said


def guessed(server):
    return int(re.search(r'radish_draft_tokens_total\{.*source="nextn"\} (\d+)', server.metrics())[1])


def test_answers_are_those_without_the_head():
    with tempfile.TemporaryDirectory(prefix="radish-nextn-") as directory:
        path = make(directory, 1)
        with Server(path, *COMMON, "--speculative-algorithm", "none") as server:
            check(server.get("/server_info")["speculative_algorithm"] == "none")
            want = answers(server)
            check(guessed(server) == 0)
        for more in WAYS:
            with Server(path, *COMMON, "--speculative-algorithm", "NEXTN", *more) as server:
                check(server.get("/server_info")["speculative_algorithm"] == "nextn")
                check(answers(server) == want, more)
                check(guessed(server) > 0, more)
        with Server(path, *COMMON) as server:
            check(server.get("/server_info")["speculative_algorithm"].endswith(",nextn"))
            check(answers(server) == want)


def test_of_several_heads_one_is_used_and_of_none_it_is_said():
    with tempfile.TemporaryDirectory(prefix="radish-nextn-") as directory:
        two = make(directory, 2)
        check("3 layers (one is a head that guesses)" in radish("info", two)[0])
        _, why = radish("info", TINY, "--speculative-algorithm", "eagle", want=1)
        check("has no head that guesses" in why, why)
        _, why = radish("serve", TINY, "--speculative-algorithm", "nextn", want=1)
        check("has no head that guesses" in why, why)
    small = "--speculative-draft-model-path", TINY  # who wants nobody's guesses wants no model's either
    for nobody in (["--speculative-algorithm", "none"], ["--speculative-num-draft-tokens", 0]):
        _, why = radish("serve", TINY, *small, *nobody, want=1)
        check(f"a draft model, and {nobody[0]} is" in why, why)
    with Server(TINY, *COMMON) as server:
        check(server.get("/server_info")["speculative_algorithm"] == "prediction,tree,ngram,recent")
    with Server(TINY, *COMMON, "--disable-radix-cache", "--speculative-ngram-capacity", "0") as server:
        check(server.get("/server_info")["speculative_algorithm"] == "prediction,ngram")


def test_a_head_that_cannot_be_used_is_left_out_and_it_is_said():
    """The head's matrix has half its rows: the model is served without, and refused only where nobody
    else is to guess."""
    with tempfile.TemporaryDirectory(prefix="radish-nextn-") as directory:
        path = make(directory, 1)
        data = bytearray(path.read_bytes())
        name = re.search(rb"blk\.\d+\.nextn\.eh_proj\.weight", data)
        rows = name.end() + 4 + 8  # behind the number of dimensions and the first
        count, = struct.unpack_from("<Q", data, rows)
        struct.pack_into("<Q", data, rows, count // 2)
        path.write_bytes(data)
        words = f"is left out: tensor {name[0].decode()} is {2 * count} x {count // 2}"
        said = radish("info", path)[0]
        check("no head guesses: " in said and words in said, said)
        full = json.loads(radish("info", path, "--json")[0])["memory"]["cache"]["full"]
        check(words in full["why_no_nextn"] and full["nextn_layers"] == 0, full)
        check("no head guesses" not in radish("info", path, "--speculative-algorithm", "ngram")[0])
        _, why = radish("serve", path, "--speculative-algorithm", "nextn", want=1)
        check("speculative-algorithm 'nextn'" in why and words in why, why)
        with Server(path, *COMMON) as server:
            check(server.get("/server_info")["speculative_algorithm"] == "prediction,tree,ngram,recent")
            check(len(answers(server)) == 5 and guessed(server) == 0)
        check(words in server.log, server.log)


if __name__ == "__main__":
    run(globals())
