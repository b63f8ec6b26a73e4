#!/usr/bin/env python3
"""OpenAI's Responses: POST /v1/responses as its clients read it, and going on from stored answers."""
import json

from double import Double
from radish_e2e import check, run
from test_messages import SCRIPT, TEMPLATE
from test_sessions import RULES as CALLS, TEMPLATE as OTHER_CALLS

TOOL = {"type": "function", "name": "get_weather", "description": "the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


def double(*args, **more):
    return Double(SCRIPT, "--served-model-name", "*", *args, template=TEMPLATE, **more)


def stream(d, body):
    """[data] of a stream, numbered from 0, each event's name beside it."""
    out = []
    text = d.raw("POST", "/v1/responses", json.dumps({**body, "stream": True}))[1].decode()
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        out.append(json.loads(data.removeprefix("data: ")))
        check(name == "event: " + out[-1]["type"] and out[-1]["sequence_number"] == len(out) - 1, block)
    return out


def test_an_answer():
    with double() as d:
        told = d.ask("/v1/responses", {"model": "m", "input": "hi", "instructions": "Be kind.",
                                       "metadata": {"a": "b"}, "temperature": 0.5})
        check(told["id"].startswith("resp_") and told["object"] == "response", told)
        check(told["status"] == "completed" and told["error"] is None, told)
        check(told["metadata"] == {"a": "b"} and told["temperature"] == 0.5, told)
        check(told["instructions"] == "Be kind." and told["tools"] == [], told)
        message, = told["output"]
        check(message["type"] == "message" and message["role"] == "assistant", message)
        check(message["content"] == [{"type": "output_text", "text": "Hello there", "annotations": [],
                                      "logprobs": []}], message)
        use = told["usage"]
        check(use["total_tokens"] == use["input_tokens"] + use["output_tokens"], use)
        check(use["input_tokens_details"] == {"cached_tokens": 0}, use)
        told = d.ask("/v1/responses", {"input": "long", "max_output_tokens": 3})
        check(told["status"] == "incomplete", told)
        check(told["incomplete_details"] == {"reason": "max_output_tokens"}, told)
        check(told["output"][0]["content"][0]["text"] == "abc", told)


def test_a_stream():
    with double() as d:
        got = stream(d, {"input": "hi"})
        kinds = [event["type"].removeprefix("response.") for event in got]
        check(kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"], kinds)
        check(kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"],
              kinds)
        check(all(kind == "output_text.delta" for kind in kinds[4:-4]), kinds)
        check("".join(event["delta"] for event in got[4:-4]) == "Hello there", got)
        check(got[0]["response"]["status"] == "in_progress" and not got[0]["response"]["output"])
        last = got[-1]["response"]
        check(last["status"] == "completed" and last["output"] == [got[-2]["item"]], last)
        ids = {event["item_id"] for event in got if "item_id" in event}
        check(ids == {last["output"][0]["id"]} == {got[2]["item"]["id"]}, ids)
        check(d.get("/v1/responses/" + last["id"]) == last)


def test_going_on():
    with double() as d:
        first = d.ask("/v1/responses", {"input": "one", "instructions": "Be kind."})
        second = d.ask("/v1/responses", {"input": "two", "previous_response_id": first["id"],
                                         "instructions": "Be brief."})
        check(second["previous_response_id"] == first["id"], second)
        chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"},
                {"role": "assistant", "content": "Hello there"}, {"role": "user", "content": "two"}]
        want = d.ask("/tokenize", {"messages": chat})["count"]
        check(second["usage"]["input_tokens"] == want, second["usage"], want)
        third = d.ask("/v1/responses", {"previous_response_id": second["id"], "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "three"}]}], "store": False})
        chat = chat[1:] + [{"role": "assistant", "content": "Hello there"},
                           {"role": "user", "content": "three"}]
        check(third["usage"]["input_tokens"] == d.ask("/tokenize", {"messages": chat})["count"])
        d.get("/v1/responses/" + third["id"], 404)
        check(json.loads(d.raw("DELETE", "/v1/responses/" + first["id"], b"")[1])["deleted"] is True)
        d.get("/v1/responses/" + first["id"], 404)
        error = d.ask("/v1/responses", {"input": "x", "previous_response_id": first["id"]}, 400)["error"]
        check(error["code"] == "previous_response_not_found", error)


def test_items_that_are_referred_to():
    """Clients that know an answer stored send its items' ids back."""
    with double() as d:
        first = d.ask("/v1/responses", {"input": "one"})
        item = first["output"][0]

        def ask(said, want=200):
            return d.ask("/v1/responses", {"input": [{"role": "user", "content": "one"}, said,
                                                     {"role": "user", "content": "two"}]}, want)
        referred = {"type": "item_reference", "id": item["id"]}
        check(ask(referred)["usage"]["input_tokens"] == ask(item)["usage"]["input_tokens"], item)
        for wrong in item["id"][:-1] + "9", item["id"] + "_0", "msg_", "_", "a" * 500:
            error = ask({**referred, "id": wrong}, 400)["error"]
            check(error["param"] == "input" and "is not here" in error["message"], wrong, error)
        d.raw("DELETE", "/v1/responses/" + first["id"], b"")
        check("is not here" in ask(referred, 400)["error"]["message"])


def test_going_on_from_ids():
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]

    def go_on(d, before, given, **more):
        body = {"input": given, "tools": tools, "previous_response_id": before["id"], **more}
        told = d.ask("/v1/responses", body)
        history = told["usage"]["input_tokens_details"]["cache_explanation"]["history"]
        words = [part["text"] for item in told["output"] if item["type"] == "message"
                 for part in item["content"]]
        return told, "".join(words), history

    with Double(CALLS, "--served-model-name", "*", template=OTHER_CALLS) as d:
        first = d.ask("/v1/responses", {"input": "Look.", "tools": tools})
        call, = first["output"]
        result = [{"type": "function_call_output", "call_id": call["call_id"], "output": "It is 5."}]
        second, words, history = go_on(d, first, result)
        check(words == "Five." and history["from"] == "ids", words, history)
        # the call is rendered otherwise than it was written: from that token on
        check(history["agreed_tokens"] < history["generated_tokens"] == first["usage"]["total_tokens"],
              history)
        check(history["generated"]["text"] == "{" and history["rendered"]["text"] == "\n", history)
        use = second["usage"]
        check(use["input_tokens_details"]["cached_tokens"] == first["usage"]["total_tokens"] - 1, use)
        third, words, history = go_on(d, second, "Sure?")
        check(words == "Yes." and history["from"] == "ids", words, history)
        cached = third["usage"]["input_tokens_details"]["cached_tokens"]
        check(cached == second["usage"]["total_tokens"] - 1, third["usage"])
        # a branch; what is another conversation; an answer that was cut
        check(go_on(d, first, result)[2]["from"] == "ids")
        told, words, history = go_on(d, second, "Sure?", instructions="Be brief.")
        check(words == "Yes." and history["from"] == "rendering", words, history)
        check(history["why"] == "the prompt was another", history)
        cut = d.ask("/v1/responses", {"input": "Look.", "tools": tools, "max_output_tokens": 3})
        check("end token" in go_on(d, cut, "Look.")[2]["why"])
    # a template that leaves thoughts out is obeyed
    with Double([{"say": "<think>" + "Hm. " * 20 + "</think>Yes."}], "--served-model-name", "*",
                "--reasoning-parser", "qwen3") as d:
        first = d.ask("/v1/responses", {"input": "?"})
        told, words, history = go_on(d, first, "Sure?", tools=[])
        check(history["from"] == "rendering" and "reasoning out" in history["why"], history)


def test_items_become_messages():
    with double() as d:
        items = [{"role": "developer", "content": "Be brief."},
                 {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
                 {"type": "reasoning", "id": "rs_1", "summary": [],
                  "content": [{"type": "reasoning_text", "text": "hm"}]},
                 {"type": "function_call", "call_id": "call_1", "name": "get_weather",
                  "arguments": "{\"city\": \"Rome\"}"},
                 {"type": "function_call_output", "call_id": "call_1", "output": "RESULT"},
                 {"role": "user", "content": "c"}]
        chat = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "a"},
                {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {
                        "name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "RESULT"},
                {"role": "user", "content": "c"}]
        tools = [{"type": "function", "function": {k: v for k, v in TOOL.items() if k != "type"}}]
        want = d.ask("/tokenize", {"messages": chat, "tools": tools})["count"]
        told = d.ask("/v1/responses", {"input": items, "tools": [TOOL]})
        check(told["usage"]["input_tokens"] == want, told["usage"], want)


def test_what_is_refused():
    with double(context=512) as d:
        for body, param, word in (
                ({}, "input", "input"), ({"input": []}, "input", "nothing to answer"),
                ({"input": "a", "background": True}, "background", "background"),
                ({"input": "a", "tools": [{"type": "web_search"}]}, "tools", "web_search"),
                ({"input": "a", "tools": [{"type": "function"}]}, "tools", "name"),
                ({"input": [{"type": "item_reference", "id": "x"}]}, "input", "'x' is not here"),
                ({"input": [{"type": "item_reference"}]}, "input", "is not here"),
                ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input", "images"),
                ({"input": [{"role": "tool", "content": "a"}]}, "input", "role"),
                ({"input": [{"type": "function_call", "name": "f"}]}, "input", "call_id"),
                ({"input": "a", "text": {"format": {"type": "xml"}}}, "text.format", "json_schema are"),
                ({"input": "a", "temprature": 1}, "temprature", "temprature")):
            error = d.ask("/v1/responses", body, 400)["error"]
            check(error["param"] == param and word in error["message"], body, error)
        error = d.ask("/v1/responses", {"input": "a" * 600}, 400)["error"]
        check(error["code"] == "context_length_exceeded", error)
        d.ask("/v1/responses/resp_1/cancel", b"", 400)


def test_tools():
    with double() as d:
        ask = {"input": [{"role": "user", "content": "How is the weather?"}], "tools": [TOOL]}
        got = stream(d, ask)
        told = got[-1]["response"]
        message, call = told["output"]
        check(message["content"][0]["text"] == "Let me look.", message)
        check(call["type"] == "function_call" and call["name"] == "get_weather", call)
        check(json.loads(call["arguments"]) == {"city": "Paris"}, call)
        mine = [event for event in got if event.get("output_index") == 1]
        kinds = [event["type"].removeprefix("response.") for event in mine]
        check(kinds[0] == "output_item.added" and mine[0]["item"]["arguments"] == "", mine[0])
        check(kinds[-2:] == ["function_call_arguments.done", "output_item.done"], kinds)
        check(all(event["item_id"] == call["id"] for event in mine[1:-1]), mine)
        deltas = [event["delta"] for event in mine if event["type"].endswith(".delta")]
        check("".join(deltas) == call["arguments"] == mine[-2]["arguments"], deltas)
        check(mine[0]["item"]["call_id"] == mine[-1]["item"]["call_id"] == call["call_id"], mine)
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "RESULT"}
        with_history = d.ask("/v1/responses", {**ask, "input": ask["input"] + told["output"] + [result]})
        gone_on = d.ask("/v1/responses", {"input": [result], "tools": [TOOL],
                                          "previous_response_id": told["id"]})
        for answer in (with_history, gone_on):
            check(answer["output"][0]["content"][0]["text"] == "It is sunny.", answer)
        check(with_history["usage"]["input_tokens"] == gone_on["usage"]["input_tokens"], gone_on)
        error = d.ask("/v1/responses", {**ask, "tool_choice": {"type": "function", "name": "none"}}, 400)["error"]
        check(error["param"] == "tool_choice", error)


def test_free_text():
    """A custom tool's call is what the model gave for its one argument."""
    say = "<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"input\": \"a\\n\\\"b\\\"\"}}\n</tool_call>"
    with Double([{"say": say}], "--served-model-name", "*", template=TEMPLATE) as d:
        ask = {"input": "x", "tools": [{"type": "custom", "name": "patch", "description": "edits"}]}
        call, = d.ask("/v1/responses", ask)["output"]
        check(call["type"] == "custom_tool_call" and call["input"] == 'a\n"b"', call)
        got = stream(d, ask)
        deltas = [e["delta"] for e in got if e["type"] == "response.custom_tool_call_input.delta"]
        check(deltas == ['a\n"b"'], got)
        again = {"input": [{"role": "user", "content": "x"}, call, {
            "type": "custom_tool_call_output", "call_id": call["call_id"], "output": "done"}],
            "tools": ask["tools"]}
        d.ask("/v1/responses", again)


def test_namespaces():
    """The model knows a function of one by both names, the client by each."""
    script = [{"when": "RESULT", "say": "done"},
              {"say": '<tool_call>\n{"name": "mail__send", "arguments": {"to": "a"}}\n</tool_call>'}]
    with Double(script, "--served-model-name", "*", template=TEMPLATE) as d:
        space = {"type": "namespace", "name": "mail", "description": "letters", "tools": [
            {"type": "function", "name": "send", "parameters": {"type": "object"}}]}
        ask = {"input": "x", "tools": [TOOL, space]}
        first = d.ask("/v1/responses", ask)
        call, = first["output"]
        check((call["type"], call["namespace"], call["name"]) == ("function_call", "mail", "send"), call)
        added = next(e for e in stream(d, ask) if e["type"] == "response.output_item.added")
        check((added["item"]["namespace"], added["item"]["name"]) == ("mail", "send"), added)
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "RESULT"}
        for body in ({**ask, "input": [{"role": "user", "content": "x"}, call, result]},
                     {**ask, "input": [result], "previous_response_id": first["id"]}):
            told = d.ask("/v1/responses", body)
            check(told["output"][0]["content"][0]["text"] == "done", told)
            use = told["usage"]  # but for the result and the end token all is known
            check(use["input_tokens_details"]["cached_tokens"] >
                  first["usage"]["input_tokens"] + first["usage"]["output_tokens"] - 2, use, first)
        # an image that a tool gave is told of in words; those of users are refused
        seen = {**result, "output": [{"type": "input_text", "text": "RESULT"}, {"type": "input_image"}]}
        told = d.ask("/v1/responses", {**ask, "input": [{"role": "user", "content": "x"}, call, seen]})
        check(told["output"][0]["content"][0]["text"] == "done", told)
        for tool in {**space, "tools": [space]}, {**space, "name": "a\nb"}, {"type": "function", "name": ""}:
            check(d.ask("/v1/responses", {**ask, "tools": [tool]}, 400)["error"]["param"] == "tools", tool)


def test_thoughts():
    with Double([{"say": "<think>Hm.</think>Yes."}], "--reasoning-parser", "qwen3",
                template=TEMPLATE) as d:
        got = stream(d, {"input": "?"})
        thought, message = got[-1]["response"]["output"]
        check(thought["type"] == "reasoning" and thought["summary"] == [], thought)
        check(thought["content"] == [{"type": "reasoning_text", "text": "Hm."}], thought)
        check(message["content"][0]["text"] == "Yes.", message)
        deltas = [e["delta"] for e in got if e["type"] == "response.reasoning_text.delta"]
        check("".join(deltas) == "Hm.", got)
        check(got[-1]["response"]["usage"]["output_tokens_details"]["reasoning_tokens"] > 0, got[-1])


if __name__ == "__main__":
    run(globals())
