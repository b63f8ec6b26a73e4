#!/usr/bin/env python3
"""Penalties, bias, logprobs, min_new_tokens, stop strings and n through HTTP, on the model in
the repository."""
import json
import math

from radish_e2e import TINY, Server, check, radish, run

F32 = ("--dtype", "f32", "--max-total-tokens", "8192", "--threads", "2")
PROMPT = "The capital of"
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


def generate(s, params=None, **more):
    return s.ask("/generate", {"text": PROMPT, **more, "sampling_params": {
        "temperature": 0, "max_new_tokens": 24, "ignore_eos": True, **(params or {})}})


def model_logits(ids):
    out, _ = radish("logits", "-m", TINY, "--dtype", "f32", "--ids", ",".join(map(str, ids)),
                    "--json")
    return json.loads(out)["logits"]


def prompt_ids():
    out, _ = radish("tokenize", "-m", TINY, "--json", "--bos", "-p", PROMPT)
    return json.loads(out)["ids"]


def log_total(line):
    most = max(line)
    return math.log(sum(math.exp(x - most) for x in line)) + most


def follow(prompt, output, presence=0.0, frequency=0.0, repetition=1.0, bias=None):
    """Every token of a greedy answer is the best by the model's logits and the formulas."""
    lines = model_logits(prompt + output)[len(prompt) - 1:]
    for i, token in enumerate(output):
        line, said = lines[i], output[:i]
        for t in set(said):
            line[t] -= presence + frequency * said.count(t)
            line[t] = line[t] / repetition if line[t] > 0 else line[t] * repetition
        for t, b in (bias or {}).items():
            line[int(t)] += b
        check(line[token] > max(line) - 1e-4, i, token, line[token], max(line))


def test_penalties_and_bias_are_the_formulas():
    with Server(TINY, *F32) as s:
        plain = generate(s)
        ids = prompt_ids()
        check(plain["meta_info"]["prompt_tokens"] == len(ids), ids, plain)
        first = str(plain["output_ids"][0])
        for ask, naive in (
                ({"presence_penalty": 1.5}, {"presence": 1.5}),
                ({"frequency_penalty": 0.8}, {"frequency": 0.8}),
                ({"repetition_penalty": 1.6}, {"repetition": 1.6}),
                ({"logit_bias": {first: -100}}, {"bias": {first: -100}}),
                ({"presence_penalty": 0.5, "frequency_penalty": 0.3, "repetition_penalty": 1.2,
                  "logit_bias": {"40": 2.5}},
                 {"presence": 0.5, "frequency": 0.3, "repetition": 1.2, "bias": {"40": 2.5}})):
            got = generate(s, ask)["output_ids"]
            follow(ids, got, **naive)
            check(got != plain["output_ids"], ask, "changes nothing")
            flags = [w for k, v in ask.items() if k != "logit_bias"
                     for w in ("--" + k.replace("_", "-"), v)]
            if flags and "logit_bias" not in ask:
                out, _ = radish("generate", "-m", TINY, "--dtype", "f32", "-p", PROMPT, "-n", 24,
                                "--ignore-eos", "--json", *flags)
                check(json.loads(out)["output_ids"] == got, flags, out, got)
        # The same by the other dialects.
        body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True, "frequency_penalty": 0.8}
        got = s.ask("/v1/completions", body)["choices"][0]["token_ids"]
        check(got == generate(s, {"frequency_penalty": 0.8})["output_ids"][:8], got)
        s.wait_idle()


def test_generate_logprobs_are_a_log_softmax():
    with Server(TINY, *F32) as s:
        answer = generate(s, return_logprob=True, top_logprobs_num=3)
        plain = generate(s)
        check(answer["output_ids"] == plain["output_ids"] and answer["text"] == plain["text"])
        meta, ids = answer["meta_info"], prompt_ids()
        check("output_token_logprobs" not in plain["meta_info"], plain)
        own, top = meta["output_token_logprobs"], meta["output_top_logprobs"]
        check([o[1] for o in own] == answer["output_ids"] and len(top) == len(own), own)
        check(all(o[2] is None for o in own) and meta["input_token_logprobs"] == [], meta)
        lines = model_logits(ids + answer["output_ids"])[len(ids) - 1:]
        for line, o, best in zip(lines, own, top):
            total = log_total(line)
            check(abs(o[0] - (line[o[1]] - total)) < 1e-3, o)
            order = sorted(range(len(line)), key=lambda t: (-line[t], t))[:3]
            check([b[1] for b in best] == order, best, order)
            check(all(abs(b[0] - (line[b[1]] - total)) < 1e-3 for b in best), best)
        texts = generate(s, return_logprob=True, return_text_in_logprobs=True)["meta_info"]
        check("output_top_logprobs" not in texts, texts)
        spelled = generate(s, {"skip_special_tokens": False})["text"]
        said = "".join(o[2] for o in texts["output_token_logprobs"])
        check(said.strip() == spelled.strip(), said, spelled)
        # Temperature and penalties choose; the logprobs stay the model's.
        hot = generate(s, {"temperature": 1.5, "seed": 3, "frequency_penalty": 2,
                           "max_new_tokens": 1}, return_logprob=True)
        token = hot["meta_info"]["output_token_logprobs"][0]
        total = math.log(sum(math.exp(x) for x in lines[0]))
        check(abs(token[0] - (lines[0][token[1]] - total)) < 1e-3, token)
        # A stream's last event has them all.
        events = s.stream("/generate", {"text": PROMPT, "return_logprob": True,
                                        "top_logprobs_num": 3, "sampling_params": {
                                            "temperature": 0, "max_new_tokens": 24,
                                            "ignore_eos": True}})
        check(events[-1]["meta_info"]["output_top_logprobs"] == top, events[-1])
        check(events[-1]["meta_info"]["output_token_logprobs"] == own, events[-1])
        batch = s.ask("/generate", {"text": ["a", "b"], "return_logprob": True, "sampling_params": {
            "max_new_tokens": 2, "ignore_eos": True}})
        check(all(len(b["meta_info"]["output_token_logprobs"]) == 2 for b in batch), batch)


def test_completion_logprobs():
    with Server(TINY, *F32) as s:
        body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "ignore_eos": True,
                "logprobs": 2, "return_token_ids": True, "skip_special_tokens": False}
        choice = s.ask("/v1/completions", body)["choices"][0]
        lp = choice["logprobs"]
        check(set(lp) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, lp)
        check(all(len(lp[key]) == 12 for key in lp), lp)
        check("".join(lp["tokens"]).strip() == choice["text"].strip(), lp, choice)
        for i, token in enumerate(lp["tokens"]):
            check(lp["text_offset"][i] == sum(map(len, lp["tokens"][:i])), i, lp)
            best = lp["top_logprobs"][i]
            check(len(best) == 2 and max(best.values()) == lp["token_logprobs"][i], i, lp)
            check(best[token] == lp["token_logprobs"][i], token, best)
        parts = [c["choices"][0] for c in s.stream("/v1/completions", body)]
        for key in lp:
            check(sum((p["logprobs"][key] for p in parts), []) == lp[key], key, parts)
        none = s.ask("/v1/completions", {**body, "logprobs": 0})["choices"][0]["logprobs"]
        check(none["top_logprobs"] == [{}] * 12, none)
        check(none["token_logprobs"] == lp["token_logprobs"], none)
        short = s.ask("/v1/completions", {**body, "skip_special_tokens": True})["choices"][0]
        where = dict(zip(short["logprobs"]["text_offset"], short["logprobs"]["tokens"]))
        for at, token in where.items():  # of tokens without text the last one at a place counts
            check(token.startswith("<|") or short["text"][at:].startswith(token), at, token, short)
        off = s.ask("/v1/completions", {**body, "logprobs": None})["choices"][0]
        check(off["logprobs"] is None and off["text"] == choice["text"], off)


def test_chat_logprobs():
    with Server(TINY, *F32) as s:
        body = {"messages": MESSAGES, "max_tokens": 8, "temperature": 0, "logprobs": True,
                "top_logprobs": 4, "return_token_ids": True}
        choice = s.ask("/v1/chat/completions", body)["choices"][0]
        content = choice["logprobs"]["content"]
        check(len(content) == len(choice["token_ids"]), choice)
        for entry in content:
            check(set(entry) == {"token", "logprob", "bytes", "top_logprobs"}, entry)
            check(bytes(entry["bytes"]).decode() == entry["token"], entry)
            check(len(entry["top_logprobs"]) == 4, entry)
            check(entry["top_logprobs"][0]["logprob"] == entry["logprob"] <= 0, entry)
            values = [t["logprob"] for t in entry["top_logprobs"]]
            check(values == sorted(values, reverse=True), values)
        parts = [c["choices"][0] for c in s.stream("/v1/chat/completions", body)]
        got = sum((p["logprobs"]["content"] for p in parts), [])
        check(got == content, got)
        off = s.ask("/v1/chat/completions", {**body, "logprobs": False, "top_logprobs": 0})
        check(off["choices"][0]["logprobs"] is None, off)


def test_parts_of_a_character_are_written_as_bytes():
    with Server(TINY, *F32) as s:
        out, _ = radish("tokenize", "-m", TINY, "--json", "-p", "\U0001f9c5")
        ids = json.loads(out)["ids"]
        body = {"prompt": PROMPT, "max_tokens": 1, "temperature": 0, "logprobs": 3,
                "ignore_eos": True, "logit_bias": {str(ids[-1]): 100}, "return_token_ids": True}
        choice = s.ask("/v1/completions", body)["choices"][0]
        check(choice["token_ids"] == ids[-1:], choice, ids)
        check(choice["logprobs"]["tokens"][0].startswith("bytes:\\x"), choice)
        check(choice["text"] == "\ufffd", choice)


def test_min_new_tokens_holds_the_end_back():
    with Server(TINY, *F32) as s:
        body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 60, "return_token_ids": True}
        short = s.ask("/v1/chat/completions", body)
        n = short["usage"]["completion_tokens"]
        check(short["choices"][0]["finish_reason"] == "stop" and n < 40, short)
        end = short["choices"][0]["token_ids"][-1]
        long = s.ask("/v1/chat/completions", {**body, "min_tokens": n + 15})
        ids = long["choices"][0]["token_ids"]
        check(len(ids) >= n + 15 and end not in ids[:n + 15], long)
        check(ids[:n - 1] == short["choices"][0]["token_ids"][:n - 1], long, short)
        both = generate(s, {"max_new_tokens": 20, "min_new_tokens": 5, "ignore_eos": False})
        check(both["meta_info"]["completion_tokens"] >= 5, both)
        stop = generate(s)["output_ids"][2]
        held = generate(s, {"stop_token_ids": [stop], "min_new_tokens": 9, "max_new_tokens": 12})
        check(stop not in held["output_ids"][:9], held)


def test_stop_strings_lie_across_token_borders():
    """Every string from the middle of a token to the middle of a later one ends the answer at
    the same place, streamed or not, and nothing of it was said before."""
    with Server(TINY, *F32) as s:
        out, _ = radish("tokenize", "-m", TINY, "--json", "--special", "-p", "<|eos|><|end|>")
        body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "frequency_penalty": 1,
                "logit_bias": {str(t): -100 for t in json.loads(out)["ids"]}, "logprobs": 0}
        whole = s.ask("/v1/completions", body)["choices"][0]
        body.pop("logprobs")
        text, offsets = whole["text"], whole["logprobs"]["text_offset"]
        across = 0
        for start in range(1, len(text) - 6, 7):
            for length in (2, 5, 17):
                stop = text[start:start + length]
                borders = sum(start < o < start + length for o in offsets)
                cut = text.index(stop)
                answer = s.ask("/v1/completions", {**body, "stop": ["~~~", stop]})["choices"][0]
                check(answer["finish_reason"] == "stop" and answer["stop_reason"] == stop, answer)
                check(answer["text"] == text[:cut], stop, answer["text"], text)
                said = ""
                for part in s.stream("/v1/completions", {**body, "stop": ["~~~", stop]}):
                    said += part["choices"][0]["text"]
                    check(text[:cut].startswith(said), stop, said)
                check(said == text[:cut], stop, said)
                across += borders > 0
        check(across > 10, across)
        # The beginning of a stop string that never comes is not lost.
        tail = {**body, "stop": text[-3:] + "never"}
        check(s.ask("/v1/completions", tail)["choices"][0]["text"] == text)
        parts = s.stream("/v1/completions", tail)
        check("".join(p["choices"][0]["text"] for p in parts) == text)


def test_n_choices():
    with Server(TINY, *F32) as s:
        body = {"messages": [{"role": "user", "content": "Tell me a story."}], "n": 3, "seed": 11,
                "max_tokens": 12, "temperature": 1.9, "return_token_ids": True, "ignore_eos": True}
        answer = s.ask("/v1/chat/completions", body)
        again = s.ask("/v1/chat/completions", body)
        one = s.ask("/v1/chat/completions", {**body, "n": 1})
        check([c["index"] for c in answer["choices"]] == [0, 1, 2], answer)
        check(answer["choices"] == again["choices"], "a seed repeats, whatever is cached")
        check(answer["choices"][0] == one["choices"][0], "the first choice is what n = 1 gives")
        check(len({c["message"]["content"] for c in answer["choices"]}) > 1, answer)
        usage = answer["usage"]
        check(usage["prompt_tokens"] == one["usage"]["prompt_tokens"], usage, one)
        check(usage["completion_tokens"] == sum(len(c["token_ids"]) for c in answer["choices"]))
        streamed = {}
        for chunk in s.stream("/v1/chat/completions", body):
            choice = chunk["choices"][0]
            streamed.setdefault(choice["index"], []).extend(choice["token_ids"])
        check(streamed == {c["index"]: c["token_ids"] for c in answer["choices"]}, streamed)

        completions = s.ask("/v1/completions", {"prompt": ["One", "Two"], "n": 2, "max_tokens": 3,
                                                "temperature": 0, "ignore_eos": True})
        texts = [c["text"] for c in completions["choices"]]
        check(len(texts) == 4 and texts[0] == texts[1] and texts[2] == texts[3], texts)
        native = generate(s, {"n": 2, "max_new_tokens": 4})
        check(len(native) == 2 and native[0]["output_ids"] == native[1]["output_ids"], native)
        s.wait_idle()


def prompt_logprobs(s, ids, start=0, **more):
    meta = s.ask("/generate", {"input_ids": ids, "return_logprob": True, "top_logprobs_num": 2,
                               "logprob_start_len": start, "token_ids_logprob": [7, 300],
                               "sampling_params": {"max_new_tokens": 0}, **more})["meta_info"]
    return [meta[key] for key in ("input_token_logprobs", "input_top_logprobs",
                                  "input_token_ids_logprobs")] + [meta]


def test_logprobs_of_the_prompt_are_those_of_decoding():
    """Cold and cached, in one piece and in several, from any token on: the same bits, and what
    decoding says of each token behind those before it."""
    text = "It was a dark and stormy night; the rain fell in torrents, except at intervals. " * 3
    with Server(TINY, *F32, "--chunked-prefill-size", "32", "--page-size", "4") as s:
        ids = s.ask("/tokenize", {"prompt": text})["tokens"]
        own, top, by_id, meta = prompt_logprobs(s, ids)
        check([o[1] for o in own] == ids and meta["cached_tokens"] == 0, own, meta)
        check([own[0][0], top[0], by_id[0]] == [None] * 3, own[0], top[0], by_id[0])
        lines = model_logits(ids)
        for i, line in enumerate(lines[:-1], 1):
            total = log_total(line)
            check(abs(own[i][0] - (line[ids[i]] - total)) < 1e-3, i, own[i])
            check(top[i][0][1] == max(range(len(line)), key=lambda t: line[t]), i, top[i])
            check([b[1] for b in by_id[i]] == [7, 300], by_id[i])
        for i in (1, 2, 17, len(ids) - 1):
            one = s.ask("/generate", {"input_ids": ids[:i], "return_logprob": True,
                                      "token_ids_logprob": [ids[i]],
                                      "sampling_params": {"max_new_tokens": 1}})["meta_info"]
            check(one["output_token_ids_logprobs"][0][0][:2] == own[i][:2], i, one, own[i])
            check((i - 1) // 4 * 4 <= one["cached_tokens"] < i, i, one)
        for start in (0, 1, 30, len(ids) - 1):
            some = prompt_logprobs(s, ids, start)
            check([x[0][0] if k == 0 else x[0] for k, x in enumerate(some[:3])] == [None] * 3)
            check([x[1:] for x in some[:3]] == [x[start + 1:] for x in (own, top, by_id)], start)
            check(start // 4 * 4 <= some[3]["cached_tokens"] <= start, start, some[3])
            cut = some[3]["cache_explanation"].get("computed_from")
            check(cut == (start if start + 1 < len(ids) else None), some[3])
        check(prompt_logprobs(s, ids, len(ids) - 1)[0] == [[None, ids[-1], None]])
        # One asks for all of its choices; a stream's last event has them.
        two = s.ask("/generate", {"input_ids": ids, "return_logprob": True, "logprob_start_len": 0,
                                  "sampling_params": {"max_new_tokens": 2, "n": 2}})
        check(all(c["meta_info"]["input_token_logprobs"] == own for c in two), two)
        events = s.stream("/generate", {"input_ids": ids, "return_logprob": True,
                                        "logprob_start_len": 0, "sampling_params": {
                                            "max_new_tokens": 3, "ignore_eos": True}})
        check(events[-1]["meta_info"]["input_token_logprobs"] == own, events[-1])
        s.wait_idle()


def test_echo_and_vllms_prompt_logprobs():
    with Server(TINY, *F32) as s:
        ids = prompt_ids()
        own, top, _, _ = prompt_logprobs(s, ids)
        body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "ignore_eos": True,
                "logprobs": 2, "echo": True}
        choice = s.ask("/v1/completions", body)["choices"][0]
        after = s.ask("/v1/completions", {**body, "echo": False})["choices"][0]
        check(choice["text"] == PROMPT + after["text"], choice)
        lp = choice["logprobs"]
        check(lp["token_logprobs"] == [o[0] for o in own] + after["logprobs"]["token_logprobs"])
        check(lp["top_logprobs"][0] is None and len(lp["top_logprobs"]) == len(ids) + 4, lp)
        check(all(sorted(a.values()) == sorted(x[0] for x in b)
                  for a, b in zip(lp["top_logprobs"][1:], top[1:])), lp, top)
        for at, token in zip(lp["text_offset"], lp["tokens"]):
            check(token.startswith("<|") or choice["text"][at:].startswith(token), at, token)
        by_ids = s.ask("/v1/completions", {**body, "prompt": ids})["choices"][0]
        check(by_ids == choice, by_ids)
        score = s.ask("/v1/completions", {**body, "max_tokens": 0})
        check(score["choices"][0]["text"] == PROMPT and score["usage"]["completion_tokens"] == 0)
        check(score["choices"][0]["logprobs"]["token_logprobs"] == [o[0] for o in own], score)
        parts = [c["choices"][0] for c in s.stream("/v1/completions", body)]
        check("".join(p["text"] for p in parts) == choice["text"], parts)
        for key in lp:
            check(sum((p["logprobs"][key] for p in parts), []) == lp[key], key, parts)
        plain = s.ask("/v1/completions", {**body, "logprobs": None})["choices"][0]
        check(plain["text"] == choice["text"] and plain["logprobs"] is None, plain)
        for path, more in (("/v1/completions", {"prompt": ids, "n": 2}),
                           ("/v1/chat/completions", {"messages": MESSAGES})):
            got = s.ask(path, {**more, "max_tokens": 1, "prompt_logprobs": 2})
            told = (got if "messages" in more else got["choices"][1])["prompt_logprobs"]
            check(told[0] is None and len(told) == got["usage"]["prompt_tokens"], told)
            check(all(1 in [t["rank"] for t in x.values()] for x in told[1:]), told)
        told = s.ask("/v1/completions", {"prompt": ids, "max_tokens": 1, "prompt_logprobs": 0})
        check([list(x.items())[0][1]["logprob"] for x in told["choices"][0]["prompt_logprobs"][1:]]
              == [o[0] for o in own[1:]], told)
        s.wait_idle()


def test_the_best_of_several_are_told():
    """By the mean of their tokens' logprobs, best first; all are counted."""
    with Server(TINY, *F32) as s:
        body = {"prompt": ["Long ago", "The end"], "temperature": 1.5, "seed": 11, "max_tokens": 6,
                "logprobs": 0, "ignore_eos": True}
        every = s.ask("/v1/completions", {**body, "n": 6})["choices"]
        best = s.ask("/v1/completions", {**body, "n": 2, "best_of": 6})
        hidden = s.ask("/v1/completions", {**body, "n": 2, "best_of": 6, "logprobs": None})
        check(best["usage"]["completion_tokens"] == 72, best["usage"])
        check(best["usage"]["prompt_tokens"] == hidden["usage"]["prompt_tokens"], best, hidden)
        for p in range(2):
            order = sorted(every[6 * p:6 * p + 6],
                           key=lambda c: -math.fsum(c["logprobs"]["token_logprobs"]))
            for k in range(2):
                got = best["choices"][2 * p + k]
                check(got["index"] == 2 * p + k and got["text"] == order[k]["text"], got, order)
                check(got["logprobs"] == order[k]["logprobs"], got)
                got = hidden["choices"][2 * p + k]
                check(got["text"] == order[k]["text"] and got["logprobs"] is None, got)
        s.wait_idle()


def test_siblings_share_the_prompt():
    """n choices compute the prompt once: the others find it, wait for it, or share it."""
    with Server(TINY, *F32) as s:
        body = {"prompt": "word " * 150, "n": 8, "max_tokens": 2, "temperature": 1, "seed": 1}
        s.ask("/v1/completions", {**body, "prompt": "warm up", "n": 1})
        before = s.figures()
        answer = s.ask("/v1/completions", body)
        after = s.wait_idle()
        computed = after["prefill_tokens"] - before["prefill_tokens"]
        prompt = answer["usage"]["prompt_tokens"]
        check(computed <= prompt + 8, computed, prompt)


def test_what_is_not_possible_is_refused_by_name():
    with Server(TINY, *F32) as s:
        v = len(model_logits([1])[0])
        for path, body, param in (
                ("/v1/completions", {"prompt": "a", "logit_bias": {str(v): 1}}, "logit_bias"),
                ("/v1/completions", {"prompt": "a", "logit_bias": {"1": 101}}, "logit_bias"),
                ("/v1/completions", {"prompt": "a", "logit_bias": {"a": 1}}, "logit_bias"),
                ("/v1/completions", {"prompt": "a", "presence_penalty": 3}, "presence_penalty"),
                ("/v1/completions", {"prompt": "a", "frequency_penalty": "x"}, "frequency_penalty"),
                ("/v1/completions", {"prompt": "a", "repetition_penalty": 0}, "repetition_penalty"),
                ("/v1/completions", {"prompt": "a", "min_tokens": 17}, "min_tokens"),
                ("/v1/completions", {"prompt": "a", "n": 3, "best_of": 2}, "best_of"),
                ("/v1/completions", {"prompt": "a", "n": 0}, "n"),
                ("/v1/chat/completions", {"messages": MESSAGES, "echo": True}, "echo"),
                ("/v1/chat/completions", {"messages": MESSAGES, "top_logprobs": 3}, "top_logprobs"),
                ("/v1/chat/completions", {"messages": MESSAGES, "logprobs": 3}, "logprobs"),
                ("/generate", {"text": "a", "return_logprob": True, "logprob_start_len": 50},
                 "logprob_start_len"),
                ("/generate", {"text": "a", "return_logprob": True, "token_ids_logprob": [v]},
                 "token_ids_logprob"),
                ("/generate", {"text": "a", "return_logprob": True, "top_logprobs_num": -1},
                 "top_logprobs_num"),
                ("/generate", {"text": "a", "sampling_params": {"min_new_tokens": 1000}},
                 "min_new_tokens")):
            error = s.ask(path, body, 400)["error"]
            check(error["param"] == param and len(error["message"]) > 10, body, error)
        for raw in (b'{"prompt":"a","presence_penalty":NaN}', b'{"prompt":"a","n":1e400}'):
            s.ask("/v1/completions", raw, 400)
        check(s.ask("/v1/completions", {"prompt": "a"})["choices"])
        s.wait_idle()


if __name__ == "__main__":
    run(globals())
