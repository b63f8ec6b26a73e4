#!/usr/bin/env python3
"""Ollama's protocol: /api/chat and /api/generate as its clients read them, and what they ask before."""
import hashlib
import json
import re

from double import Double
from radish_e2e import check, run
from test_messages import SCRIPT, TEMPLATE

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
COUNTS = ("total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count",
          "eval_duration")


def double(*args, **more):
    return Double(SCRIPT, "--served-model-name", "story", *args, template=TEMPLATE, **more)


def lines(d, path, body):
    response, text = d.raw("POST", path, json.dumps(body))
    check(response.getheader("Content-Type") == "application/x-ndjson", response.getheaders())
    out = [json.loads(line) for line in text.decode().splitlines()]
    check([line["done"] for line in out] == [False] * (len(out) - 1) + [True], out)
    check(all(TIME.fullmatch(line["created_at"]) and line["model"] == "story" for line in out), out)
    check(all(isinstance(out[-1][name], int) for name in COUNTS), out[-1])
    return out


def test_chat():
    with double() as d:
        body = {"model": "story:latest", "messages": [{"role": "user", "content": "hi"}]}
        got = lines(d, "/api/chat", body)
        check("".join(line["message"]["content"] for line in got) == "Hello there", got)
        check(got[-1]["message"] == {"role": "assistant", "content": ""}, got[-1])
        check(got[-1]["done_reason"] == "stop" and got[-1]["eval_count"] == 12, got[-1])
        whole = d.ask("/api/chat", {**body, "stream": False})
        check(whole["message"] == {"role": "assistant", "content": "Hello there"}, whole)
        check(whole["done"] is True and whole["prompt_eval_count"] == got[-1]["prompt_eval_count"], whole)
        chat = d.ask("/v1/chat/completions", {"messages": body["messages"]})
        check(chat["usage"]["prompt_tokens"] == whole["prompt_eval_count"], chat)
        loaded = d.ask("/api/chat", {"model": "story", "messages": [], "stream": False})
        check(loaded["done_reason"] == "load" and loaded["message"]["content"] == "", loaded)


def test_generate():
    with double() as d:
        body = {"model": "story", "prompt": "long", "options": {"num_predict": 3, "num_ctx": 4096}}
        got = lines(d, "/api/generate", body)
        check("".join(line["response"] for line in got) == "abc", got)
        check(got[-1]["done_reason"] == "length", got[-1])
        raw = d.ask("/api/generate", {**body, "raw": True, "stream": False})
        check(raw["response"] == "abc" and raw["prompt_eval_count"] == 4, raw)
        check("".join(line["response"] for line in lines(d, "/api/generate", {**body, "raw": True})) ==
              "abc")
        told = d.ask("/api/generate", {**body, "system": "s", "stream": False})
        check(told["prompt_eval_count"] > raw["prompt_eval_count"] + 6, told)
        check(d.ask("/api/generate", {"model": "story", "stream": False})["done_reason"] == "load")


def test_what_is_there():
    with double() as d:
        model, = d.get("/api/tags")["models"]
        check(model["name"] == model["model"] == "story" and model["size"] > 1000, model)
        check(TIME.fullmatch(model["modified_at"]), model)
        with open(d.args[2], "rb") as file:
            data = file.read()
        pieces = b"".join(data[len(data) // 256 * i:][:4096] for i in range(256))
        want = hashlib.sha256(len(data).to_bytes(8, "little") + data[:1 << 20] + data[-(1 << 20):] + pieces)
        check(model["digest"] == want.hexdigest() and model["size"] == len(data), model)
        check(model["details"]["family"] == "llama" and model["details"]["format"] == "gguf", model)
        check(d.get("/api/ps")["models"][0]["name"] == "story")
        check(d.get("/api/version")["version"])
        shown = d.ask("/api/show", {"model": "story:latest"})
        check(shown["capabilities"] == ["completion", "tools"], shown)
        check(shown["model_info"]["llama.context_length"] == 32768, shown)
        check(b"Ollama is running" in d.raw("GET", "/", b"")[1])
        for path, body, status, word in (
                ("/api/show", {"model": "other"}, 404, "other"),
                ("/api/chat", {"model": "other", "messages": []}, 404, "other"),
                ("/api/chat", {"messages": [{"role": "user", "content": "a", "images": ["x"]}]}, 400,
                 "images"),
                ("/api/chat", {"messages": [{"content": "a"}]}, 400, "role"),
                ("/api/generate", {"prompt": "a", "format": "xml"}, 400, "format"),
                ("/api/generate", {"prompt": "a", "options": {"temprature": 1}}, 400, "temprature"),
                ("/api/generate", {"prompt": "a" * 40000}, 400, "the prompt has 4")):
            told = d.ask(path, body, status)
            check(list(told) == ["error"] and word in told["error"], path, told)


def test_tools():
    tool = {"type": "function", "function": {"name": "get_weather", "description": "the weather",
                                             "parameters": {"type": "object", "properties": {}}}}
    with double() as d:
        body = {"model": "story", "tools": [tool],
                "messages": [{"role": "user", "content": "How is the weather?"}]}
        got = lines(d, "/api/chat", body)
        calls = [line["message"]["tool_calls"] for line in got if "tool_calls" in line["message"]]
        check(len(calls) == 1 and len(calls[0]) == 1, got)  # whole, in one line
        check(calls[0][0]["function"]["name"] == "get_weather", calls)
        check(calls[0][0]["function"]["arguments"] == {"city": "Paris"}, calls)
        whole = d.ask("/api/chat", {**body, "stream": False})
        check(whole["message"]["content"] == "Let me look.", whole)
        check(whole["message"]["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}, whole)
        body["messages"] += [whole["message"], {"role": "tool", "tool_name": "get_weather",
                                                "content": "RESULT"}]
        check(d.ask("/api/chat", {**body, "stream": False})["message"]["content"] == "It is sunny.")
    with Double([{"say": "<think>Hm.</think>Yes."}], "--reasoning-parser", "qwen3",
                template=TEMPLATE) as d:
        told = d.ask("/api/chat", {"messages": [{"role": "user", "content": "?"}], "stream": False})
        check(told["message"] == {"role": "assistant", "content": "Yes.", "thinking": "Hm."}, told)


if __name__ == "__main__":
    run(globals())
