#!/usr/bin/env python3
"""Anthropic's protocol: POST /v1/messages and /v1/messages/count_tokens, as its clients read it."""
import json

from double import Double
from radish_e2e import check, run

TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n"
    "{%- for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{%- endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{%- for c in m.tool_calls or [] %}<tool_call>\n"
    "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n"
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SCRIPT = [
    {"when": "RESULT", "say": "It is sunny."},
    {"when": "get_weather", "say": "Let me look.<tool_call>\n{\"name\": \"get_weather\", "
                                   "\"arguments\": {\"city\": \"Paris\"}}\n</tool_call>"},
    {"when": "long", "say": "abcdefghijklmnopqrstuvwxyz" * 4},
    {"when": "slow", "say": "late", "delay_ms": 400},
    {"say": "Hello there"},
]
TOOL = {"name": "get_weather", "description": "the weather",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


def body(text, **fields):
    return {"model": "m", "max_tokens": 200, "messages": [{"role": "user", "content": text}], **fields}


def events(text):
    """[(name, data)] of a stream; both say the same type."""
    out = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        check(name.startswith("event: ") and data.startswith("data: "), block)
        out.append((name[7:], json.loads(data[6:])))
        check(out[-1][0] == out[-1][1]["type"], block)
    return out


def stream(d, message):
    text = json.dumps({**message, "stream": True})
    return events(d.raw("POST", "/v1/messages", text)[1].decode())


def test_answers():
    with Double(SCRIPT, "--served-model-name", "*", template=TEMPLATE) as d:
        told = d.ask("/v1/messages?beta=true", body("hi"))
        check(told["id"].startswith("msg_") and told["type"] == "message", told)
        check(told["role"] == "assistant" and told["model"] == "m", told)
        check(told["content"] == [{"type": "text", "text": "Hello there"}], told)
        check(told["stop_reason"] == "end_turn" and told["stop_sequence"] is None, told)
        use = told["usage"]
        check(use["cache_read_input_tokens"] == 0 and use["cache_creation_input_tokens"] == 0, use)
        counted = d.ask("/v1/messages/count_tokens", {"messages": body("hi")["messages"]})
        check(counted == {"input_tokens": use["input_tokens"]}, counted, use)
        again = d.ask("/v1/messages", body("hi"))["usage"]
        check(again["cache_read_input_tokens"] == use["input_tokens"] - 1, again)
        check(again["input_tokens"] == 1 and again["output_tokens"] == use["output_tokens"], again)

        told = d.ask("/v1/messages", body("long", stop_sequences=["kl", "cd"]))
        check(told["stop_reason"] == "stop_sequence" and told["stop_sequence"] == "cd", told)
        told = d.ask("/v1/messages", body("long", max_tokens=3))
        check(told["stop_reason"] == "max_tokens" and told["content"][0]["text"] == "abc", told)


def test_streams():
    with Double(SCRIPT, "--served-model-name", "*", template=TEMPLATE) as d:
        got = stream(d, body("hi"))
        names = [name for name, _ in got]
        check(names[:2] == ["message_start", "content_block_start"], names)
        check(names[-3:] == ["content_block_stop", "message_delta", "message_stop"], names)
        start = got[0][1]["message"]
        check(start["content"] == [] and start["stop_reason"] is None, start)
        check(start["usage"]["input_tokens"] > 10 and start["usage"]["output_tokens"] == 0, start)
        check(got[1][1] == {"type": "content_block_start", "index": 0,
                            "content_block": {"type": "text", "text": ""}}, got[1])
        deltas = [data["delta"] for name, data in got if name == "content_block_delta"]
        check(all(delta["type"] == "text_delta" for delta in deltas), deltas)
        check("".join(delta["text"] for delta in deltas) == "Hello there", deltas)
        end = got[-2][1]
        check(end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}, end)
        check(end["usage"]["output_tokens"] == 12, end)  # a byte is a token, and the end one


def test_errors():
    with Double(SCRIPT, template=TEMPLATE, context=512) as d:
        def error(message, status, path="/v1/messages"):
            told = d.ask(path, message, status)
            check(told["type"] == "error" and told["request_id"], told)
            return told["error"]["type"], told["error"]["message"]
        model = d.get("/v1/models")["data"][0]["id"]
        good = body("hi", model=model)
        check(error(body("hi", model="other"), 404)[0] == "not_found_error")
        check(error({**good, "messages": []}, 400)[0] == "invalid_request_error")
        kind, words = error({**good, "messages": [{"role": "user", "content": "a" * 600}]}, 400)
        check(kind == "invalid_request_error", kind)
        check(words.startswith("prompt is too long: 6") and words.endswith("> 512 maximum"), words)
        for change, word in (
                ({"max_tokens": None}, "max_tokens"), ({"temprature": 1}, "temprature"),
                ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
                ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "images"),
                ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text"),
                ({"messages": [{"role": "tool", "content": "a"}]}, "role"),
                ({"system": 3}, "system"), ({"output_format": {"type": "xml"}}, "output_format"),
                ({"cache_control": {"type": "ephemeral", "ttl": "2h"}}, "ttl")):
            kind, words = error({**good, **change}, 400)
            check(kind == "invalid_request_error" and word in words, change, words)
        check(error(b"{", 400, "/v1/messages/count_tokens")[0] == "invalid_request_error")
        response, text = d.raw("GET", "/v1/messages", b"")
        check(response.status == 405 and json.loads(text)["type"] == "error", text)


def test_what_is_sent_reaches_the_template():
    with Double(SCRIPT, "--served-model-name", "*", template=TEMPLATE) as d:
        history = {"system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                              {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                   "tools": [TOOL], "messages": [
                       {"role": "user", "content": "a"},
                       {"role": "assistant", "content": [
                           {"type": "thinking", "thinking": "hm", "signature": "s"},
                           {"type": "redacted_thinking", "data": "x"},
                           {"type": "text", "text": "b"},
                           {"type": "tool_use", "id": "toolu_1", "name": "get_weather",
                            "input": {"city": "Rome"}}]},
                       {"role": "user", "content": [
                           {"type": "tool_result", "tool_use_id": "toolu_1",
                            "content": [{"type": "text", "text": "RESULT"}]},
                           {"type": "text", "text": "c"}]}]}
        chat = {"messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b", "reasoning_content": "hm", "tool_calls": [
                {"id": "toolu_1", "type": "function",
                 "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "RESULT"},
            {"role": "user", "content": "c"}],
            "tools": [{"type": "function", "function": {
                "name": "get_weather", "description": "the weather",
                "parameters": TOOL["input_schema"]}}]}
        want = d.ask("/tokenize", chat)["count"]
        check(d.ask("/v1/messages/count_tokens", history) == {"input_tokens": want})
        d.ask("/v1/chat/completions", {**chat, "max_tokens": 1})
        use = d.ask("/v1/messages", {**history, "max_tokens": 20})["usage"]
        # the very same prompt; and what it computed it asked to be kept
        check(use["cache_read_input_tokens"] == want - 1, use, want)
        check(use["cache_creation_input_tokens"] == 0 and use["input_tokens"] == 1, use)


def test_tools():
    with Double(SCRIPT, "--served-model-name", "*", template=TEMPLATE) as d:
        ask = body("How is the weather?", tools=[TOOL])
        told = d.ask("/v1/messages", ask)
        check(told["stop_reason"] == "tool_use", told)
        text, use = told["content"]
        check(text == {"type": "text", "text": "Let me look."}, text)
        check(use["type"] == "tool_use" and use["name"] == "get_weather", use)
        check(use["input"] == {"city": "Paris"} and use["id"], use)
        got = stream(d, ask)
        starts = [data for name, data in got if name == "content_block_start"]
        check([s["index"] for s in starts] == [0, 1], starts)
        check(starts[1]["content_block"] == {**use, "id": starts[1]["content_block"]["id"], "input": {}})
        pieces = [data["delta"]["partial_json"] for name, data in got
                  if name == "content_block_delta" and data["index"] == 1]
        check(json.loads("".join(pieces)) == use["input"], pieces)
        stops = [i for i, (name, _) in enumerate(got) if name == "content_block_stop"]
        begun = [i for i, (name, _) in enumerate(got) if name == "content_block_start"]
        check(len(stops) == 2 and stops[0] < begun[1], got)  # one ends before the next begins
        check(got[-2][1]["delta"]["stop_reason"] == "tool_use", got[-2])
        ask["messages"] += [{"role": "assistant", "content": told["content"]},
                            {"role": "user", "content": [{"type": "tool_result", "content": "RESULT",
                                                          "tool_use_id": use["id"]}]}]
        before = told["usage"]
        told = d.ask("/v1/messages", ask)
        check(told["content"] == [{"type": "text", "text": "It is sunny."}], told)
        check(told["usage"]["cache_read_input_tokens"] > before["input_tokens"], told, before)
        error = d.ask("/v1/messages", {**ask, "tool_choice": {"type": "tool", "name": "none"}}, 400)["error"]
        check(error["type"] == "invalid_request_error" and "tool_choice" in error["message"], error)


def test_an_image_that_a_tool_gave_is_told_of_in_words():
    """Else the agent whose tool read it could not go on, for its history has it for ever."""
    script = [{"when": "[The tool gave an image, a file or sound here", "say": "What was it?"}]
    with Double(script, "--served-model-name", "*", template=TEMPLATE) as d:
        use = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {}}
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        told = d.ask("/v1/messages", body("", tools=[TOOL], messages=[
            {"role": "user", "content": "look"}, {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [image]}]}]))
        check(told["content"][0]["text"] == "What was it?", told)
        part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        chat = [{"role": "user", "content": "look"},
                {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {
                    "name": "get_weather", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "a", "content": [part]}]
        check(d.chat(chat)["choices"][0]["message"]["content"] == "What was it?")
        error = d.chat([{"role": "user", "content": [part]}], 400)["error"]
        check("images" in error["message"] and error["param"] == "messages", error)


def test_tools_that_the_history_tells_of():
    """The front of the prompt stays; the model reads of a tool where it is first referred to."""
    later = {"name": "rain", "description": "how much", "defer_loading": True,
             "input_schema": {"type": "object", "properties": {"mm": {"type": "string"}}}}
    script = [{"when": "says the tool", "say": "heard"},
              {"when": ['"name":"rain"', "can be called."], "say": "<tool_call>\n<function=rain>\n"
               "<parameter=mm>\n3\n</parameter>\n</function>\n</tool_call>"},
              {"when": "rain", "say": "It is there already."}]
    with Double(script, "--served-model-name", "*", "--tool-call-parser", "qwen3_coder",
                template=TEMPLATE) as d:
        def referring(*names, **fields):
            return {**body("find", tools=[TOOL, later], **fields), "messages": [
                {"role": "user", "content": "find"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "get_weather",
                                                   "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [
                    {"type": "tool_reference", "tool_name": name} for name in names]}]}]}
        plain = body("find", tools=[TOOL])
        count = d.ask("/v1/messages/count_tokens", plain)
        check(d.ask("/v1/messages/count_tokens", body("find", tools=[TOOL, later])) == count)
        d.ask("/v1/messages", plain)
        told = d.ask("/v1/messages", referring("rain", "rain"))
        check(told["content"][0]["input"] == {"mm": "3"}, told)  # a string, as its schema says
        check(told["usage"]["cache_read_input_tokens"] >= count["input_tokens"] - 30, told, count)
        once, twice = (d.ask("/v1/messages/count_tokens", referring(*["rain"] * n))["input_tokens"]
                       for n in (1, 2))
        check(twice - once < 40, once, twice)  # its definition stands there once
        for tool in {"type": "tool_definition", "definition": later}, {"type": "tool_reference", "name": "rain"}:
            changed = referring("rain")
            changed["messages"] += [{"role": "system", "content": [
                {"type": "tool_addition", "tool": tool},
                {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "get_weather"}},
                {"type": "text", "text": "So says the tool."}]}]
            check(d.ask("/v1/messages", changed)["content"][0]["text"] == "heard", tool)
        for bad, word in ((body("x", tools=[later]), "defer_loading"), (referring(3), "reference"),
                          (body("x", tools=[TOOL], messages=[{"role": "system", "content": [
                              {"type": "tool_addition", "tool": {"type": "text"}}]}]), "tool_definition")):
            check(word in d.ask("/v1/messages", bad, 400)["error"]["message"], bad)


def test_an_answer_goes_on_from_a_prefill():
    rules = [{"when": "assistant\nThe answer", "unless": "The answer<|im_end|>", "say": " is 4."}]
    with Double(rules, "--served-model-name", "*", template=TEMPLATE) as d:
        talk = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "The answer"}]
        told = d.ask("/v1/messages", body("", messages=talk))
        check(told["content"] == [{"type": "text", "text": " is 4."}], told)
        told = d.chat(talk, continue_final_message=True, add_generation_prompt=False)
        check(told["choices"][0]["message"]["content"] == " is 4.", told)
        check(d.chat(talk)["choices"][0]["message"]["content"] == "no rule")
        d.chat(talk[:1], 400, continue_final_message=True)
        d.chat(talk, 400, add_generation_prompt=False)
        d.chat([talk[0], {"role": "assistant", "content": " "}], 400, continue_final_message=True)


def test_what_asks_to_be_kept_is_pinned():
    for args, most in ((["--max-pinned-tokens", 0], 0), ([], 32768)):
        with Double(SCRIPT, "--served-model-name", "*", *args, template=TEMPLATE) as d:
            plain = d.ask("/v1/messages", body("hi"))["usage"]
            check(d.figures()["pinned_tokens"] == 0, d.figures())
            use = d.ask("/v1/messages", body("hi", system=[{
                "type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]))["usage"]
            told = use["cache_creation_input_tokens"]
            check(told > 0 and (use["input_tokens"] > 0) == (most > 0), use, plain)
            pinned = d.figures()["pinned_tokens"]
            check(pinned == (told + use["cache_read_input_tokens"] if most else 0), pinned, most)
            d.chat("something else", prompt_cache_key="k")
            check((d.figures()["pinned_tokens"] > pinned) == (most > 0), d.figures())


def test_a_marker_pins_what_stands_before_it():
    mark = {"cache_control": {"type": "ephemeral"}}
    words, more = "w" * 40, "m" * 60

    def texts(at):
        return [{"type": "text", "text": words, **(mark if at == 0 else {})},
                {"type": "text", "text": more, **(mark if at == 1 else {})}]

    tool = {"name": "look", "description": words, "input_schema": {"type": "object"}}
    for name, fields in (("system", {"system": texts(0)}),
                         ("message", {"messages": [{"role": "user", "content": texts(0)}]}),
                         ("earlier", {"messages": [{"role": "user", "content": texts(1)},
                                                   {"role": "assistant", "content": more},
                                                   {"role": "user", "content": more}]}),
                         ("tool", {"tools": [{**tool, **mark}, {**tool, "name": "other"}]})):
        with Double(SCRIPT, "--served-model-name", "*", template=TEMPLATE) as d:
            use = d.ask("/v1/messages", body("hi", **fields))["usage"]
            pinned = d.figures()["pinned_tokens"]
            # what was asked to be kept is told, and what comes behind it is not kept
            check(use["cache_creation_input_tokens"] == pinned > len(words), name, use, pinned)
            check(use["input_tokens"] > (len(more) if name != "tool" else 40), name, use)
            again = d.ask("/v1/messages", body("hi", **fields))["usage"]
            check(again["cache_creation_input_tokens"] == 0, name, again)


def test_thoughts():
    with Double([{"say": "<think>Hm. Well.</think>Yes."}], "--served-model-name", "*",
                "--reasoning-parser", "qwen3", template=TEMPLATE) as d:
        told = d.ask("/v1/messages", body("?"))
        check([block["type"] for block in told["content"]] == ["thinking", "text"], told)
        check(told["content"][0]["thinking"] == "Hm. Well." and told["content"][0]["signature"], told)
        got = stream(d, body("?"))
        deltas = [data["delta"] for name, data in got if name == "content_block_delta"]
        thoughts = [delta for delta in deltas if delta["type"] == "thinking_delta"]
        check("".join(delta["thinking"] for delta in thoughts) == "Hm. Well.", deltas)
        check([d["type"] for d in deltas[len(thoughts):]][:2] == ["signature_delta", "text_delta"], deltas)


if __name__ == "__main__":
    run(globals())
