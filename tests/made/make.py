#!/usr/bin/env python3
"""make.py DIR - makes what tests need and the repository does not hold, the same bytes each time:

    story.gguf          a Llama of 0.3 million random weights, SentencePiece, context 512
    story.golden.json   what it says, by the forward pass in numpy
    tiny-ARCH-TYPE.gguf two architectures in four types of numbers
    vocab-PRE.gguf      vocabularies alone (no weights)
    vocab-PRE.json      texts and their ids, by vocabulary.py

Does nothing where DIR is newer than these scripts. Files appear in one piece."""
import json
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = HERE.parent.parent / "tools"
sys.path[:0] = [str(HERE), str(TOOLS), str(HERE.parent / "e2e")]

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # the matrices are small
import numpy as np  # noqa: E402

import oracle  # noqa: E402
import texts  # noqa: E402
import tiny_gguf  # noqa: E402
from quantize import quantize  # noqa: E402
from vocabulary import NO_BYTES, Bpe, RawBpe, Spm  # noqa: E402

SOURCES = [*HERE.glob("*.py"), HERE.parent / "e2e/oracle.py", HERE.parent / "e2e/tiny_gguf.py",
           TOOLS / "quantize.py", TOOLS / "ggml_blocks.py"]

STORY = dict(arch="llama", layers=5, dim=64, ffn=172, heads=8, kv=4, hd=8, rope_dim=8, context=512,
             vocab=512, gain=6.0, quiet=range(Spm.FIRST))
PROMPTS = ["", "Once upon a time", "One day, Lily and Tim saw a big dog",
           '"Where are you going?" asked her mother.', "The bird said hello"]
FIRST_STEPS, STEPS, LEAST = 120, 60, 110
# An engine in f32 is off by about 1e-5; where two tokens are nearer than this, either may win.
NEAR = 1e-3


def golden_case(model, spm, prompt, steps):
    """Greedy steps up to the first one that is not clear."""
    ids = [1] + spm.encode(prompt)
    case = {"prompt": prompt, "prompt_ids": list(ids), "greedy_ids": []}
    for step in range(steps):
        last = oracle.forward(*model, ids)[-1]
        if not step:
            case["last_prompt_logits"] = [round(float(x), 9) for x in last]
        second, best = np.sort(last)[-2:]
        if best - second < NEAR:
            break
        ids.append(int(last.argmax()))
        case["greedy_ids"].append(ids[-1])
    return case


def story(out):
    """The first of a few seeds whose answers are clear for long enough."""
    spm = Spm.train(texts.stories(), STORY["vocab"])
    path = out / "story.gguf"
    for seed in range(1, 20):
        tiny_gguf.write(path, {**STORY, "vocabulary": spm.keys()}, seed)
        model = tiny_gguf.read(path)
        first = golden_case(model, spm, PROMPTS[0], FIRST_STEPS)
        if len(first["greedy_ids"]) >= LEAST and len(set(first["greedy_ids"])) > 20:
            break
    else:
        raise SystemExit("no seed gives clear answers")
    cases = [first] + [golden_case(model, spm, p, STEPS) for p in PROMPTS[1:]]
    (out / "story.golden.json").write_text(json.dumps({"seed": seed, "cases": cases}))


def tiny_models(out):
    """Enough widths for blocks of 32 and 256, and a vocabulary past the bytes."""
    common = dict(layers=4, dim=256, ffn=512, heads=8, kv=4, hd=32, rope_dim=32, vocab=512,
                  context=4096)
    for name, spec in (("llama", dict(arch="llama")),
                       ("qwen3", dict(arch="qwen3", base=1e6, eps=1e-6, tied=True))):
        plain = out / f"tiny-{name}-f32.gguf"
        tiny_gguf.write(plain, {**common, **spec}, seed=2)
        for kind in ("F16", "BF16", "Q8_0"):
            quantize(plain, out / f"tiny-{name}-{kind.lower()}.gguf", [kind])


def vocabularies(out):
    world = texts.world()
    for pre, vocabulary in (
            ("gpt-2", Bpe.train(world, 2000, "gpt-2")),
            ("llama-bpe", Bpe.train(world, 1200, "llama-bpe")),
            ("qwen2", Bpe.train(world, 1200, "qwen2")),
            ("deepseek-llm", Bpe.train(world, 1200, "deepseek-llm", lacks=NO_BYTES,
                                       users=["ü", "==", "===", "  ", "<|x|>", "안녕"])),
            ("spm", Spm.train(world, 3000)),
            ("default", Bpe.train(world, 600, "default")),  # the file names none
            # As Falcon's: characters that its training text did not have have no tokens.
            ("falcon", Bpe.train(world, 600, "falcon", lacks=(*NO_BYTES, 0x0b, 0xf2))),
            # As StarCoder's: what has no token has the end token, says the file.
            ("starcoder", Bpe.train(world, 600, "starcoder", lacks=NO_BYTES, unknown="<|end|>")),
            ("qwen35", Bpe.train(world, 600, "qwen35")),
            ("bailingmoe", Bpe.train(world, 600, "bailingmoe")),
            ("seed-coder", Bpe.train(world, 600, "seed-coder")),
            ("kimi-k2", Bpe.train(world, 600, "kimi-k2")),
            # õ and ÿ are tokens of their own, written as the bytes 0xf5 and 0xff would be.
            ("deepseek-coder", Bpe.train(world, 600, "deepseek-coder", lacks=NO_BYTES,
                                         users=["õ", "ÿ"])),
            ("deepseek-v3", Bpe.train(world, 600, "deepseek-v3")),
            *((pre, Bpe.train(world, 600, pre)) for pre in ("minicpm5", "youtu", "poro-chat", "viking")),
            ("gemma4", RawBpe.train(world, 600))):
        tiny_gguf.write_vocabulary(out / f"vocab-{pre}.gguf", vocabulary.keys())
        strings = texts.strings()
        if pre == "deepseek-llm":  # of its letters those up to U+052F are known here
            strings = [s for s in strings if all(ord(c) < 0x530 or 0x3000 <= ord(c) <= 0xd7ff
                                                 for c in s)]
        (out / f"vocab-{pre}.json").write_text(json.dumps(
            [{"text": text, "ids": vocabulary.encode(text)} for text in strings]))


def main(directory):
    out = pathlib.Path(directory)
    stamp = out / "made"
    newest = max(source.stat().st_mtime for source in SOURCES)
    if stamp.exists() and stamp.stat().st_mtime > newest:
        return
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as work:
        work = pathlib.Path(work)
        story(work)
        tiny_models(work)
        vocabularies(work)
        for path in work.iterdir():
            path.replace(out / path.name)
    stamp.touch()


if __name__ == "__main__":
    main(sys.argv[1])
