"""Calls of tools and reasoning over a model that is played back: what comes back, plain and in streams."""
import json

from double import Double
from radish_e2e import check, run

TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {
    "type": "object", "properties": {"x": {"type": "integer"}, "s": {"type": "string"}}}}}]
TEMPLATE = ("{% if tools %}<|im_start|>system\n{{ tools|tojson }}<tool_call></tool_call><|im_end|>\n{% endif %}"
            "{% for m in messages %}<|im_start|>{{ m.role }}{{ m.name and ':' + m.name }}\n{{ m.content }}"
            "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments.s }}</tool_call>{% endfor %}"
            "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
            "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
            "{% if reasoning_effort == 'high' %}<think>\n{% endif %}{% endif %}")
SAID = ("<think>\nhm \u00e9\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1, "
        "\"s\": \"a\nb\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>")


def joined(chunks):
    """The message and the end that a stream's chunks add up to."""
    message, finish = {}, None
    for chunk in chunks:
        for choice in chunk["choices"]:
            check(finish is None, chunk)
            finish = choice["finish_reason"]
            for key, value in choice["delta"].items():
                if key != "tool_calls":
                    message[key] = message.get(key, "") + value
                    continue
                calls = message.setdefault(key, [])
                for call in value:
                    if call["index"] == len(calls):
                        calls.append({**call, "function": {"name": call["function"]["name"], "arguments": ""}})
                    else:
                        check("id" not in call and "name" not in call["function"], call)
                    check(call["index"] == len(calls) - 1, call, calls)
                    calls[-1]["function"]["arguments"] += call["function"]["arguments"]
    return message, finish


def without_ids(message):
    message = json.loads(json.dumps(message))
    for call in message.get("tool_calls", []):
        check(call["id"].startswith("call_") and len(call.pop("id")) == 29, call)
        call.pop("index", None)
    return {key: value for key, value in message.items() if value not in ("", None)}


def test_the_double_says_what_its_script_says():
    script = [{"when": ["weather", "Paris"], "say": "It is <|im_start|>sunny \u00e9."},
              {"when": "weather", "unless": "Rome", "say": "Where?", "end": "<|eot_id|>"},
              {"when": "for ever", "say": "e", "end": None}]
    with Double(script, "--page-size", 4) as d:
        def text(*words, **fields):
            return d.chat(" ".join(words), **fields)["choices"][0]["message"]["content"]
        check(text("weather in Paris") == "It is sunny \u00e9.")
        check(text("weather in Paris", skip_special_tokens=False) == "It is <|im_start|>sunny \u00e9.")
        check(text("weather") == "Where?")
        check(text("weather in Rome") == "no rule")
        check(text("for ever", max_tokens=4) == "exxx")
        again = d.chat("weather in Paris, now at night")
        check(again["usage"]["prompt_tokens_details"]["cached_tokens"] > 20, again)
        d.wait_idle()


def test_calls_and_reasoning_come_apart_and_streams_add_up_to_them():
    want = {"role": "assistant", "content": "Let me look.", "reasoning_content": "hm \u00e9", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": '{"x": 1, "s": "a\\nb"}'}},
        {"type": "function", "function": {"name": "g", "arguments": "{}"}}]}
    with Double([{"when": "weather", "say": SAID}], template=TEMPLATE) as d:
        info = d.get("/model_info")
        check(info["tool_call_parser"] == "qwen" and info["reasoning_parser"] == "qwen3", info)
        whole = d.chat("weather", tools=TOOLS)
        check(without_ids(whole["choices"][0]["message"]) == want, whole)
        check(whole["choices"][0]["finish_reason"] == "tool_calls", whole)
        thought = whole["usage"]["completion_tokens_details"]["reasoning_tokens"]
        check(thought == len("<think>") - 6 + len("\nhm \u00e9\n".encode()) + 1, thought)
        body = {"messages": [{"role": "user", "content": "weather"}], "tools": TOOLS}
        message, finish = joined(d.stream("/v1/chat/completions", body))
        check(without_ids(message) == want and finish == "tool_calls", message, finish)
        one = d.chat("weather", tools=TOOLS, parallel_tool_calls=False)["choices"][0]
        check(without_ids(one["message"]) == {**want, "tool_calls": want["tool_calls"][:1]}, one)
        check(one["finish_reason"] == "tool_calls", one)
        message, finish = joined(d.stream("/v1/chat/completions", {**body, "parallel_tool_calls": False}))
        check(without_ids(message)["tool_calls"] == want["tool_calls"][:1] and finish == "tool_calls", message)
        plain = d.chat("weather")["choices"][0]  # nobody asked for calls
        check(plain["message"]["content"].startswith("Let me look.\n<tool_call>"), plain)
        check(plain["message"]["reasoning_content"] == "hm \u00e9" and plain["finish_reason"] == "stop", plain)
        text = d.chat("weather", separate_reasoning=False)["choices"][0]["message"]
        check(text["content"] == SAID and "reasoning_content" not in text, text)
        none = d.chat("weather", tools=TOOLS, tool_choice="none")["choices"][0]
        check("tool_calls" not in none["message"], none)
        d.wait_idle()


def test_the_prompts_end_says_whether_an_answer_begins_in_reasoning():
    script = [{"when": "assistant\n<think>\n\n</think>", "say": "plain"}, {"when": "<think>\n", "say": "so\n</think>\n\nyes"},
              {"say": "<think>cut"}]
    with Double(script, template=TEMPLATE) as d:
        def message(**fields):
            return without_ids(d.chat("say <think>\n</think> no more", **fields)["choices"][0]["message"])
        check(message(reasoning_effort="high") == {"role": "assistant", "content": "yes", "reasoning_content": "so"})
        for off in {"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}:
            check(message(**off) == {"role": "assistant", "content": "plain"}, off)
    with Double([{"say": "<think>cut"}], template=TEMPLATE) as d:
        choice = d.chat("x", max_tokens=4)["choices"][0]
        check(choice["message"] == {"role": "assistant", "content": None, "reasoning_content": "cut"[:3]}, choice)
    with Double([{"say": "so</think>yes"}], "--reasoning-parser", "deepseek-r1") as d:
        check(without_ids(d.chat("x")["choices"][0]["message"])["reasoning_content"] == "so")


# What templates of families show, what the model says, and the content in front of f({"s": "v"}).
FAMILIES = [
    ("<tool_call> <function=f> <parameter=s>", "Hi <tool_call>\n<function=f>\n<parameter=s>\nv\n</parameter>\n"
     "</function>\n</tool_call>", "Hi"),
    ("<|python_tag|>", '<|python_tag|>{"name": "f", "parameters": {"s": "v"}}', None),
    ("<|python_tag|>", '{"name": "f", "parameters": {"s": "v"}}', None),
    ("[func_name1(a=1)]", '[f(s="v")]', None),
    ("<|python_start|>", '<|python_start|>[f(s="v")]<|python_end|>', None),
    ("<|tool_list_start|>", '<|tool_call_start|>[f(s=\'v\')]<|tool_call_end|>Hi', "Hi"),
    ("[TOOL_CALLS]", 'Hi[TOOL_CALLS] [{"name": "f", "arguments": {"s": "v"}}]', "Hi"),
    ("[TOOL_CALLS]", '[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{"s": "v"}', None),
    ("<\uff5ctool\u2581calls\u2581begin\uff5c>", "Hi<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function"
     "<\uff5ctool\u2581sep\uff5c>f\n```json\n{\"s\": \"v\"}\n```<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>", "Hi"),
    ("<|channel|>analysis", '<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>commentary '
     'to=functions.f <|constrain|>json<|message|>{"s": "v"}', None),
    ("<|tool_call>", 'Hi<|tool_call>call:f{s:<|"|>v<|"|>}<tool_call|>', "Hi"),
    ("\uff5cDSML\uff5c", 'Hi\n\n<\uff5cDSML\uff5ctool_calls>\n<\uff5cDSML\uff5cinvoke name="f">\n<\uff5cDSML\uff5cparameter name="s" '
     'string="true">v</\uff5cDSML\uff5cparameter>\n</\uff5cDSML\uff5cinvoke>\n</\uff5cDSML\uff5ctool_calls>', "Hi"),
    ("<minimax:tool_call>", 'Hi\n<minimax:tool_call>\n<invoke name="f">\n<parameter name="s">v</parameter>\n'
     '</invoke>\n</minimax:tool_call>', "Hi"),
    ("<|START_ACTION|> <|START_THINKING|>", '<|START_THINKING|>so<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", '
     '"parameters": {"s": "v"}}\n]<|END_ACTION|>', None),
    ("<|tools_prefix|> <|inner_prefix|>", '<|inner_prefix|>so<|inner_suffix|>Hi<|tools_prefix|>[{"f": {"s": "v"}}]<|tools_suffix|>', "Hi"),
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     '{"s": "v"}<|tool_call_end|><|tool_calls_section_end|>', None),
]


def test_every_familys_markers_are_found_where_they_are_control_tokens():
    for shown, said, content in FAMILIES:
        template = "{# " + shown + " #}" + TEMPLATE.replace("<tool_call>", "").replace("</tool_call>", "") \
            .replace("think>", "thought>")
        end = "<|call|>" if "channel|" in shown else "<|im_end|>"
        script = [{"when": "TOOLS", "say": said, "end": end}, {"say": "a [f(x)] <|start|>b"}]
        with Double(script, template=template, eos=end) as d:
            message = d.chat("TOOLS", tools=TOOLS)["choices"][0]
            calls = message["message"]["tool_calls"]
            check(len(calls) == 1 and calls[0]["function"]["name"] == "f", said, message)
            check(json.loads(calls[0]["function"]["arguments"]) == {"s": "v"}, said, message)
            check(message["message"]["content"] == content and message["finish_reason"] == "tool_calls", message)
            check(message["message"].get("reasoning_content") == ("so" if ">so<" in said else None), message)
            if "[TOOL_CALLS]" in shown:
                check(len(calls[0]["id"]) == 9, calls)
            body = {"messages": [{"role": "user", "content": "TOOLS"}], "tools": TOOLS}
            streamed, finish = joined(d.stream("/v1/chat/completions", body))
            check(streamed["tool_calls"][0]["function"] == calls[0]["function"] and finish == "tool_calls", streamed)
            check((streamed.get("content") or None) == content, streamed)


def test_results_come_in_every_shape_and_the_next_turn_finds_the_last_one():
    script = [{"when": ["tool:f\nsunny", "tool:g\n[1,2]", "tool:h\n"], "say": "done"}, {"say": SAID}]
    with Double(script, "--page-size", 4, template=TEMPLATE) as d:
        talk = [{"role": "user", "content": "weather"}]
        d.chat(talk, tools=TOOLS)
        calls = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}}
                 for i, n, a in (("1", "f", '{"s": "v"}'), ("2", "g", ""), ("3", "h", "not JSON"))]
        talk += [{"role": "assistant", "content": None, "tool_calls": calls},
                 {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "sun"}, {"type": "text", "text": "ny"}]},
                 {"role": "tool", "tool_call_id": "2", "content": [1, 2]},
                 {"role": "tool", "tool_call_id": "3"}]
        answer = d.chat(talk, tools=TOOLS)
        check(answer["choices"][0]["message"]["content"] == "done", answer)
        check(answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 200, answer["usage"])
        d.wait_idle()


def test_a_template_that_drops_tools_is_an_error_and_so_is_a_parser_that_is_not_there():
    with Double([{"say": "x"}]) as d:
        error = d.chat("x", tools=TOOLS, want=400)["error"]
        check(error["param"] == "tools" and "does not read them" in error["message"], error)
        named = {"type": "function", "function": {"name": TOOLS[0]["function"]["name"]}}
        error = d.chat("x", tools=TOOLS, tool_choice=named, want=400)["error"]
        check(error["param"] == "tools" and "does not read them" in error["message"], error)
    unread = TEMPLATE.replace("<tool_call></tool_call>", "").replace("<tool_call>", "(").replace("</tool_call>", ")")
    with Double([{"say": SAID}], template=unread) as d:
        message = d.chat("x", tools=TOOLS)["choices"][0]["message"]
        check("tool_calls" not in message and message["content"].endswith("</tool_call>"), message)
        error = d.chat("x", tools=TOOLS, parallel_tool_calls=False, want=400)["error"]
        check(error["param"] == "parallel_tool_calls", error)
        error = d.chat("x", tools=TOOLS, tool_choice=named, want=400)["error"]
        check(error["param"] == "tool_choice" and "parallel" not in error["message"], error)
    check("they come back as text" in d.log, d.log)
    try:
        with Double([{"say": "x"}], "--tool-call-parser", "nonsense"):
            check(False)
    except AssertionError as error:
        check("--tool-call-parser 'nonsense' is none of auto, none, apertus2509" in str(error), error)


if __name__ == "__main__":
    run(globals())
