#!/usr/bin/env python3
"""Embeddings through HTTP against a float64 forward pass in numpy (oracle.py): the last hidden
state or the mean of all, whatever is cached and however a prompt is cut."""
import base64
import tempfile

from radish_e2e import Server, check, run, skip_script

try:
    import numpy as np
except ImportError:
    skip_script("python3-numpy is not here")

import oracle
import tiny_gguf

F32 = ("--dtype", "f32", "--threads", "2")
SMALL = ("--chunked-prefill-size", "24", "--page-size", "4", "--max-total-tokens", "600")
TEXTS = ["the cat sat on the mat", "the cat sat on the mat and slept", "x", "Zürich " * 20]


def unit(v, count=None):
    v = np.asarray(v)[:count]
    return v / np.linalg.norm(v)


def wanted(path, ids, pooling):
    hidden = oracle.hidden(path, ids)
    return hidden.mean(0) if pooling == "mean" else hidden[-1]


def vectors(answer):
    data = answer["data"]
    check(answer["object"] == "list" and [d["index"] for d in data] == list(range(len(data))))
    check(all(d["object"] == "embedding" for d in data), answer)
    return [d["embedding"] for d in data]


def test_embeddings_are_numpys_hidden_states():
    with tempfile.TemporaryDirectory() as tmp:
        for name, pooling in (("llama", "last"), ("qwen3", "mean"), ("lfm2", "mean"),
                              ("mistral", "last")):
            path = f"{tmp}/{name}.gguf"
            tiny_gguf.write(path, tiny_gguf.SPECS[name])
            with Server(path, *F32, *SMALL, "--pooling", pooling) as s:
                ids = s.ask("/tokenize", {"prompt": TEXTS})["tokens"]
                first = s.ask("/v1/embeddings", {"input": TEXTS})
                got = vectors(first)
                for v, i in zip(got, ids):
                    want = unit(wanted(path, i, pooling))
                    off = np.abs(np.array(v) - want).max()
                    check(len(v) == len(want) and off < 1e-4, name, pooling, off)
                    check(abs(np.linalg.norm(v) - 1) < 1e-6, v)
                total = sum(map(len, ids))
                usage = first["usage"]
                check(usage["prompt_tokens"] == usage["total_tokens"] == total, usage)
                # Again, with all of it cached, as ids, and alone: the same bits.
                again = s.ask("/v1/embeddings", {"input": ids})
                check(vectors(again) == got, name)
                cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
                check(cached == 0 if pooling == "mean" else cached > 0, name, again["usage"])
                for v, i, text in zip(got, ids, TEXTS):
                    check(vectors(s.ask("/v1/embeddings", {"input": text})) == [v], text)
                    check(vectors(s.ask("/v1/embeddings", {"input": i})) == [v], text)
                # What an answer leaves is found, and an answer finds what an embedding left.
                answer = s.ask("/generate", {"input_ids": ids[3], "sampling_params": {
                    "max_new_tokens": 4, "temperature": 0}})
                check(answer["meta_info"]["cached_tokens"] > 0, name, answer)
                s.wait_idle()


def test_forms_of_an_embedding():
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/llama.gguf"
        keys = {"pooling_type": 1}  # mean
        tiny_gguf.write(path, {**tiny_gguf.SPECS["llama"], "keys": keys})
        with Server(path, *F32, "--served-model-name", "m") as s:
            ids = s.ask("/tokenize", {"prompt": TEXTS})["tokens"]
            full = [wanted(path, i, "mean") for i in ids]
            body = {"model": "m", "input": TEXTS, "user": "somebody"}
            plain = s.ask("/v1/embeddings", body)
            got = vectors(plain)
            check(plain["model"] == "m")
            check(all(np.abs(v - unit(f)).max() < 1e-4 for v, f in zip(got, full)))
            coded = vectors(s.ask("/v1/embeddings", {**body, "encoding_format": "base64"}))
            check([np.frombuffer(base64.b64decode(c, validate=True), "<f4").tolist() for c in coded]
                  == [np.array(v, "<f4").tolist() for v in got], coded)
            for count in (1, 2, 5, len(got[0])):
                for form in ("float", "base64"):
                    cut = vectors(s.ask("/v1/embeddings", {**body, "dimensions": count,
                                                           "encoding_format": form}))
                    if form == "base64":
                        cut = [np.frombuffer(base64.b64decode(c, validate=True), "<f4") for c in cut]
                    check(all(len(c) == count and np.abs(c - unit(f, count)).max() < 1e-4
                              for c, f in zip(cut, full)), count, form)

            ollama = s.ask("/api/embed", {"model": "m:latest", "input": TEXTS, "truncate": True,
                                          "keep_alive": "5m", "options": {"num_ctx": 64}})
            check(ollama["embeddings"] == got and ollama["model"] == "m", ollama)
            check(ollama["prompt_eval_count"] == sum(map(len, ids)), ollama)
            check(ollama["total_duration"] > 0 and ollama["load_duration"] >= 0, ollama)
            check(s.ask("/api/embed", {"input": TEXTS[0]})["embeddings"] == got[:1])
            check(s.ask("/api/embeddings", {"prompt": TEXTS[1]}) == {"embedding": got[1]})
            check(s.ask("/api/embed", {"input": []})["embeddings"] == [])
            check(s.ask("/api/embeddings", {}) == {"embedding": []})

            long = [5] * 5000
            for path, ask, param, words in (
                    ("/v1/embeddings", {}, "input", "missing"),
                    ("/v1/embeddings", {"input": ""}, "input", "empty"),
                    ("/v1/embeddings", {"input": ["a", ""]}, "input", "prompt 1"),
                    ("/v1/embeddings", {"input": [[1], {}]}, "input", "list of token ids"),
                    ("/v1/embeddings", {"input": [99999]}, "input", "vocabulary"),
                    ("/v1/embeddings", {"input": long}, "input", "the context is"),
                    ("/v1/embeddings", {"input": "a " * 5000}, "input", "the context is"),
                    ("/v1/embeddings", {"input": "a", "dimensions": 10 ** 6}, "dimensions", "have"),
                    ("/v1/embeddings", {"input": "a", "dimensions": 0}, "dimensions", "between 1"),
                    ("/v1/embeddings", {"input": "a", "encoding_format": "int8"},
                     "encoding_format", "base64"),
                    ("/v1/embeddings", {"input": "a", "normalize": False}, "normalize", "length 1"),
                    ("/v1/embeddings", {"input": "a", "stream": True}, "stream", "not known")):
                error = s.ask(path, ask, 400)["error"]
                check(error["param"] == param and words in error["message"], ask, error)
                if ask.get("input") == long:
                    check(error["code"] == "context_length_exceeded", error)
            check("the context is" in s.ask("/api/embed", {"input": "a " * 5000}, 400)["error"])
            check("options" in s.ask("/api/embed", {"input": "a", "options": 3}, 400)["error"])
            s.ask("/v1/embeddings", {"model": "another", "input": "a"}, 404)
            s.wait_idle()


def test_a_vocabulary_that_ends_texts_ends_them():
    """add_eos_token: what the last hidden state stands behind. Ids are taken as they are."""
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/llama.gguf"
        tokens = tiny_gguf.byte_letters() + ["<end>"]
        tiny_gguf.write(path, {**tiny_gguf.SPECS["llama"], "vocab": 257, "vocabulary": [
            ("tokenizer.ggml.model", tiny_gguf.STR, "gpt2"),
            ("tokenizer.ggml.pre", tiny_gguf.STR, "gpt-2"),
            ("tokenizer.ggml.tokens", tiny_gguf.ARR, (tiny_gguf.STR, tokens)),
            ("tokenizer.ggml.token_type", tiny_gguf.ARR, (tiny_gguf.I32, [1] * 256 + [3])),
            ("tokenizer.ggml.merges", tiny_gguf.ARR, (tiny_gguf.STR, [])),
            ("tokenizer.ggml.add_eos_token", tiny_gguf.BOOL, True),
            ("tokenizer.ggml.eos_token_id", tiny_gguf.U32, 256)]})
        with Server(path, *F32) as s:
            ids = s.ask("/tokenize", {"prompt": "a text"})["tokens"]
            check(256 not in ids, ids)
            answer = s.ask("/v1/embeddings", {"input": "a text"})
            check(answer["usage"]["prompt_tokens"] == len(ids) + 1, answer["usage"])
            want = vectors(s.ask("/v1/embeddings", {"input": [*ids, 256]}))
            check(vectors(answer) == want, answer)
            check(np.abs(want[0] - unit(wanted(path, [*ids, 256], "last"))).max() < 1e-4)
            s.wait_idle()


if __name__ == "__main__":
    run(globals())
