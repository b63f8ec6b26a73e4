#!/usr/bin/env python3
"""test_render.py - `radish render` and its errors, and a server that renders a template of its own with
tools in the request; where the shared data is there, public templates and their golden renderings.
What templates mean is held in test_render_oracle.py."""
import json
import sys
import tempfile
from pathlib import Path

import tiny_gguf
from radish_e2e import DATA, ROOT, TINY, Server, check, radish, run

sys.path.append(str(ROOT / "tests/made"))
from vocabulary import Bpe  # noqa: E402


def render(tmp, template, case, **more):
    args = ["render", "--template", template, "--json", "--now", "2025-01-15", "--bos-token",
            case["bos_token"], "--eos-token", case["eos_token"]]
    for name in "messages", "tools":
        if case["input"].get(name) is not None:
            path = Path(tmp) / f"{name}.json"
            path.write_text(json.dumps(case["input"][name]))
            args += [f"--{name}", path]
    if case["input"].get("add_generation_prompt"):
        args.append("--add-generation-prompt")
    return json.loads(radish(*args, **more)[0])


def golden_renderings():
    count = 0
    with tempfile.TemporaryDirectory(prefix="radish-render-") as tmp:
        for path in sorted((DATA / "chat").glob("*.golden.json")):
            template = path.with_name(path.name.replace(".golden.json", ".jinja"))
            for case in json.loads(path.read_text()):
                count += 1
                if "expected" in case:
                    answer = render(tmp, template, case)
                    check(answer == {"text": case["expected"]}, path, case["name"], answer)
                else:
                    error = render(tmp, template, case, want=1)["error"]
                    check(error["message"] == case["error"] and error["type"] == "raise_exception",
                          path, case["name"], error)
    print(f"{count} golden renderings")


if (DATA / "chat").is_dir():
    test_golden_renderings = golden_renderings


def test_errors_name_line_and_construct():
    with tempfile.TemporaryDirectory(prefix="radish-render-") as tmp:
        template, messages = Path(tmp) / "t.jinja", Path(tmp) / "m.json"
        messages.write_text("[]")
        template.write_text("a\n{{ x|frobnicate }}")
        out, _ = radish("render", "--template", template, "--messages", messages, "--json", want=1)
        error = json.loads(out)["error"]
        check(error["line"] == 2 and "frobnicate" in error["message"]
              and error["type"] == "unsupported", error)
        _, err = radish("render", "--template", template, "--messages", messages, want=1)
        check("line 2" in err and "frobnicate" in err, err)
        template.write_text("{{ mood }} {{ strftime_now('%Y') }}\n")
        out, _ = radish("render", "--template", template, "--messages", messages, "--kwargs",
                        '{"mood": "fine"}', "--now", "2025-01-15")
        check(out == "fine 2025", out)
        radish("render", "--template", template, want=2)
        radish("render", "--template", template, "--messages", messages, "--now", "today", want=2)


def test_the_server_renders_a_file_with_tools():
    with tempfile.TemporaryDirectory(prefix="radish-render-") as tmp:
        template = Path(tmp) / "t.jinja"
        template.write_text("<|bos|>{% if tools %}<|system|>{{ tools|tojson }}<|end|>{% endif %}"
                            "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
                            "{% if mood is defined %}{{ raise_exception('mood ' + mood) }}{% endif %}"
                            "<|assistant|>")
        question = {"messages": [{"role": "user", "content": "What is the capital of France?"}],
                    "max_tokens": 4, "temperature": 0}
        with Server(TINY, "--chat-template", template) as s:
            plain = s.ask("/v1/chat/completions", question)
            tools = s.ask("/v1/chat/completions", {
                **question, "tools": [{"type": "function", "function": {"name": "f"}}]})
            check(tools["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"] + 10, plain, tools)
            refused = s.ask("/v1/chat/completions",
                            {**question, "chat_template_kwargs": {"mood": "bad"}}, want=400)
            check(refused["error"]["message"] == "mood bad", refused)
        template.write_text("{% include 'x' %}")
        _, err = radish("serve", TINY, "--port", "0", "--chat-template", template, want=1)
        check("'include'" in err and "line 1" in err, err)


def test_the_servers_requests_with_tools_take_the_files_tool_use():
    text = tiny_gguf.STR
    with tempfile.TemporaryDirectory(prefix="radish-render-") as tmp:
        model = Path(tmp) / "m.gguf"  # a token is a byte
        tiny_gguf.write(model, dict(
            arch="llama", layers=1, dim=32, ffn=32, heads=2, kv=2, hd=16, rope_dim=16, context=64, vocab=257,
            vocabulary=Bpe([], "gpt-2").keys() + [
                ("tokenizer.chat_template", text, "d:{{ messages[0].content }}{{ 1|nix if odd is defined }}"),
                ("tokenizer.chat_template.tool_use", text, "t:{{ tools[0].function.name }}:{{ messages[0].content }}")]))
        plain = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        tools = {**plain, "tools": [{"type": "function", "function": {"name": "get"}}]}

        def prompt_tokens(s, body):
            return s.ask("/v1/chat/completions", body)["usage"]["prompt_tokens"]
        with Server(model) as s:
            check(prompt_tokens(s, plain) == len("d:Hi") and prompt_tokens(s, tools) == len("t:get:Hi"))
            odd = s.ask("/v1/chat/completions", {**plain, "chat_template_kwargs": {"odd": 1}}, want=400)
            check("line 1: there is no filter 'nix'" in odd["error"]["message"], odd)
        check("filter 'nix' (line 1) that radish has not" in s.log, s.log)
        with Server(model, "--chat-template", "default") as s:
            check(prompt_tokens(s, plain) == len("d:Hi"))
            refused = s.ask("/v1/chat/completions", tools, want=400)
            check("(default) does not read them" in refused["error"]["message"], refused)
        with Server(model, "--chat-template", "tool_use") as s:
            check(prompt_tokens(s, tools) == len("t:get:Hi"))
        check("filter" not in s.log, s.log)


run(globals())
