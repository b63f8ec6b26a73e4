"""Answers of a wanted form, over the shipped model and over one that says what a script tells it to: by every
protocol's word for it, with tools, with reasoning before it, in streams, and the same whatever the cache held."""
import concurrent.futures
import json
import os
import random
import re
import time

from double import Double
from grammar_cases import CASES
from radish_e2e import LONG, TINY, Server, check, run, skip

CITY = {"type": "object", "properties": {
    "city": {"type": "string", "maxLength": 12}, "size": {"enum": ["small", "large", None]},
    "year": {"type": "integer", "minimum": 1000, "maximum": 2030}, "capital": {"type": "boolean"},
    "near": {"type": "array", "items": {"type": "string", "pattern": "^[A-Z][a-z]{1,6}$"}, "maxItems": 2}},
    "required": ["city", "year", "capital", "near"], "additionalProperties": False}
ASK = [{"role": "user", "content": "What is the capital of France?"}]


def fits(text):
    """Whether it is a CITY."""
    value = json.loads(text)
    return (list(value) == [name for name in CITY["properties"] if name in value]
            and not set(CITY["required"]) - set(value) and type(value["capital"]) is bool
            and type(value["year"]) is int and 1000 <= value["year"] <= 2030
            and len(value["city"]) <= 12 and value.get("size") in ("small", "large", None)
            and len(value["near"]) <= 2 and all(re.fullmatch("[A-Z][a-z]{1,6}", x) for x in value["near"]))


def test_every_protocols_word_for_a_form_is_kept_to():
    schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
    with Server(TINY) as s:
        def chat(want=200, **fields):
            body = {"messages": ASK, "max_tokens": 300, "temperature": 1, "seed": 3, **fields}
            answer = s.ask("/v1/chat/completions", body, want)
            return answer["choices"][0]["message"]["content"] if want == 200 else answer["error"]
        for seed in range(6):
            check(fits(chat(response_format=schema, seed=seed)), seed)
        anything = chat(response_format={"type": "json_object"}, temperature=0, max_tokens=40)
        check(re.match(r'\{("|\})', anything), anything)
        for fields in ({"guided_json": CITY}, {"structured_outputs": {"json": CITY}}, {"json_schema": json.dumps(CITY)}):
            check(fits(chat(**fields)), fields)
        for fields in ({"regex": "[a-f]{2,4}-[0-9]{1,3}x"}, {"guided_regex": "[a-f]{2,4}-[0-9]{1,3}x"},
                       {"ebnf": 'root ::= a{2,4} "-" [0-9]{1,3} "x"\na ::= [a-f]'}):
            check(re.fullmatch("[a-f]{2,4}-[0-9]{1,3}x", chat(**fields)), fields)
        for fields in {"guided_choice": ["red", "blue"]}, {"structured_outputs": {"choice": ["red", "blue"]}}:
            check(chat(**fields) in ("red", "blue"), fields)
        text = s.ask("/v1/completions", {"prompt": "Once", "regex": "[0-9]{3}", "max_tokens": 9})["choices"][0]["text"]
        check(re.fullmatch("[0-9]{3}", text), text)
        texts = s.ask("/generate", {"text": ["a", "b"], "sampling_params": [
            {"regex": "x{1,9}y", "max_new_tokens": 40}, {"json_schema": json.dumps(CITY), "max_new_tokens": 300}]})
        check(re.fullmatch("x{1,9}y", texts[0]["text"]) and fits(texts[1]["text"]), texts)
        told = s.ask("/v1/responses", {"input": "Where?", "max_output_tokens": 300, "text": {
            "format": {"type": "json_schema", "name": "city", "schema": CITY}}})
        check(fits(told["output"][-1]["content"][0]["text"]), told)
        told = s.ask("/v1/messages", {"messages": ASK, "max_tokens": 300, "output_config": {
            "format": {"type": "json_schema", "schema": CITY}}})
        check(fits(told["content"][0]["text"]), told)
        told = s.ask("/api/chat", {"messages": ASK, "stream": False, "format": CITY})
        check(fits(told["message"]["content"]), told)
        for fields, words in (({"regex": "(a"}, "'regex'"), ({"ebnf": "root ::= other"}, "other"),
                              ({"response_format": {"type": "json_schema", "json_schema": {
                                  "name": "x", "schema": {"type": "object", "if": {}}}}}, "if"),
                              ({"regex": "a", "ebnf": 'root ::= "a"'}, "both")):
            error = chat(400, **fields)
            check(words in error["message"] and error["param"] in fields, error)
        # Another parser would not help where the template drops the tools.
        error = chat(400, tool_choice="required", tools=TOOLS)
        check(error["param"] == "tools" and "would not hear" in error["message"], error)
        s.wait_idle()


def test_a_form_changes_nothing_else_and_the_cache_changes_no_form():
    """Streams, choices, logprobs, cuts; cold, cached, and beside others: the same tokens."""
    body = {"messages": ASK, "max_tokens": 300, "temperature": 0.8, "seed": 11, "return_token_ids": True,
            "response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": CITY}}}
    with Server(TINY, "--page-size", 4) as s:
        def ids(**fields):
            return s.ask("/v1/chat/completions", {**body, **fields})["choices"][0]["token_ids"]
        cold = ids()
        check(ids() == cold, "cached")
        check(ids(cache_salt="other") == cold, "cold again")
        several = s.ask("/v1/chat/completions", {**body, "n": 3, "logprobs": True, "top_logprobs": 2})["choices"]
        check(several[0]["token_ids"] == cold and all(fits(c["message"]["content"]) for c in several), several)
        check(len({c["message"]["content"] for c in several}) > 1, several)
        # Logprobs are the model's: what the form forbids is among the likeliest.
        check(any(not any(t["token"] == p["token"] for t in p["top_logprobs"])
                  for p in several[0]["logprobs"]["content"]), several[0])
        streamed = "".join(c["choices"][0]["delta"].get("content") or "" for c in
                           s.stream("/v1/chat/completions", body) if c["choices"])
        check(streamed == several[0]["message"]["content"], streamed)
        cut = s.ask("/v1/chat/completions", {**body, "max_tokens": 4})["choices"][0]
        check(cut["finish_reason"] == "length" and cut["token_ids"] == cold[:4], cut)
        ended = s.ask("/v1/chat/completions", {**body, "ignore_eos": True})["choices"][0]
        check(ended["finish_reason"] == "stop" and ended["token_ids"] == cold, ended)
        s.wait_idle()


def test_stop_strings_and_min_tokens_beside_a_form():
    """A stop string ends an answer wherever it comes, in whole tokens of the same answer; min_tokens holds the end back
    as long as the form lets something else come."""
    with Server(TINY) as s:
        def choices(**fields):
            return s.ask("/v1/chat/completions", {"messages": ASK, "max_tokens": 300, "temperature": 1, "seed": 5,
                                                  "return_token_ids": True, **fields})["choices"]
        for form in ({"regex": "([a-d]{2},){30}x"}, {"json_schema": json.dumps(CITY)}):
            whole = choices(**form, n=3)
            for stop in ("b", ["zzz", "d,"], '": ', "no such text"):
                for free, cut in zip(whole, choices(**form, n=3, stop=stop)):
                    text = free["message"]["content"]
                    ends = [text.index(word) for word in ([stop] if isinstance(stop, str) else stop) if word in text]
                    check(cut["message"]["content"] == text[:min(ends, default=None)], form, stop, cut, text)
                    check(cut["finish_reason"] == "stop" and free["token_ids"][:len(cut["token_ids"])] == cut["token_ids"], cut)
                    check(bool(ends) == (len(cut["token_ids"]) < len(free["token_ids"])), form, stop, cut, free)
        body = {"messages": ASK, "max_tokens": 300, "temperature": 1, "seed": 5, "regex": "([a-d]{2},){30}x", "stop": "c"}
        streamed = "".join(c["choices"][0]["delta"].get("content") or "" for c in s.stream("/v1/chat/completions", body))
        check(streamed == s.ask("/v1/chat/completions", body)["choices"][0]["message"]["content"] and "c" not in streamed, streamed)
        for seed in range(4):
            long, = choices(regex="a{0,60}", min_tokens=7, seed=seed)
            check(len(long["token_ids"]) > 7 and re.fullmatch("a{7,60}", long["message"]["content"]), long)
            short, = choices(regex="ab", min_tokens=7, seed=seed)
            check(short["message"]["content"] == "ab" and short["finish_reason"] == "stop", short)
        s.wait_idle()


def test_all_that_the_shipped_model_says_under_a_schema_is_valid():
    """Says python3-jsonschema, of the schemas of test_grammar.py; in the short form of 24 of them. The model, small as it
    is, would go on with texts and digits for long: with a bias for what ends them, and a penalty for saying the same
    again, nearly all answers end."""
    try:
        from grammar_judge import is_valid, number, validator
    except ImportError:
        skip("python3-jsonschema is not here")
    seed = int(os.environ.get("RADISH_TEST_SEED") or str(time.time_ns() % 2**40), 0)
    print(f"seed: RADISH_TEST_SEED={seed}")
    rng = random.Random(seed)
    schemas = [schema for schema, _ in CASES]
    ways = [(1, 9, 1), (0.7, 8, 2), (0, 9, 1)][:3 if LONG else 1]  # temperature, bias, penalty
    asked = [(schema, rng.randrange(2**31), *way) for schema in (schemas if LONG else rng.sample(schemas, 24)) for way in ways]
    with Server(TINY) as s:
        ends = [s.ask("/tokenize", {"prompt": mark})["tokens"][-1] for mark in '",]}']

        def answer(ask):
            schema, own_seed, temperature, bias, penalty = ask
            return s.ask("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "Answer as JSON: " + json.dumps(schema)[:200]}],
                "max_tokens": 1500 if LONG else 200, "seed": own_seed, "json_schema": json.dumps(schema), "temperature": temperature,
                "frequency_penalty": penalty, "logit_bias": {str(end): bias for end in ends}})["choices"][0]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(answer, asked))
        s.wait_idle()
    cut = []
    for (schema, *how), choice in zip(asked, answers):
        text = choice["message"]["content"]
        if choice["finish_reason"] == "length":
            cut.append((schema, text))
            continue
        check(choice["finish_reason"] == "stop", schema, how, choice)
        check(is_valid(validator(schema), json.loads(text, parse_float=number)), schema, how, text)
    print(f"{len(asked)} answers by {len(asked) // len(ways)} schemas: {len(asked) - len(cut)} valid, {len(cut)} cut by max_tokens")
    check(len(cut) < len(asked) / 2, cut)


FUNCTIONS = [
    {"name": "weather", "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False}},
    {"name": "stop", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}]
TOOLS = [{"type": "function", "function": f} for f in FUNCTIONS]
READS_TOOLS = ("{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
               "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# A family, what its model says for weather(Rome, 3), and the token that ends its answers.
FAMILIES = {
    "hermes": ('<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>', "<|im_end|>"),
    "qwen3_coder": ("<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n"
                    "</parameter>\n</function>\n</tool_call>", "<|im_end|>"),
    "llama3": ('{"name": "weather", "parameters": {"city": "Rome", "days": 3}}', "<|eot_id|>"),
    "mistral": ('[TOOL_CALLS]weather[ARGS]{"city": "Rome", "days": 3}', "</s>"),
    "granite": ('<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}]', "<|end_of_text|>"),
    "functionary": ('<function=weather>{"city": "Rome", "days": 3}</function>', "<|eot_id|>"),
    "gemma4": ('<|tool_call>call:weather{city:<|"|>Rome<|"|>,days:3}<tool_call|>', "<turn|>"),
    "gpt-oss": ('<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.weather '
                '<|constrain|>json<|message|>{"city": "Rome", "days": 3}', "<|call|>"),
}


def test_guessed_tokens_change_nothing():
    """With what a form forces alone, with drafts of every kind, and with none; asked twice, so that the tree knows.
    Foretold is what was said first, with an edit: how much of it is right depends on nothing else."""
    bodies = [{"messages": ASK, "max_tokens": 300, "temperature": t, "seed": 4, "logprobs": True,
               "return_token_ids": True, **form} for t in (0, 0.8) for form in (
                   {}, {"response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": CITY}}})]
    told, right = [], []
    kinds = "prediction", "tree", "ngram", "recent"
    for flags in (["--speculative-algorithm", "none"], [], ["--speculative-num-draft-tokens", 0]):
        with Server(TINY, *flags) as s:
            if told:
                for body, first in zip(bodies, told[0]):
                    said = first[0]["message"]["content"]
                    body["prediction"] = {"type": "content", "content": [
                        {"type": "text", "text": said[:20] + "Edit"}, {"type": "text", "text": said[25:]}]}
            answers = [s.ask("/v1/chat/completions", body) for body in bodies * 2]
            told.append([a["choices"] for a in answers])
            figures = s.wait_idle()  # how many are guessed depends on what steps were measured to take
            guessed = {k: figures["draft_tokens_" + k] for k in ("forced", *kinds)}
            check(told[-1] == told[0], flags)
            check(not flags or not sum(guessed[k] for k in kinds), guessed)
            check(0 not in flags or not guessed["forced"], guessed)
            if len(told) > 1:
                right.append([a["usage"]["completion_tokens_details"] for a in answers])
    check(right[0] == right[1], right)
    check(all(d["accepted_prediction_tokens"] > d["rejected_prediction_tokens"] for d in right[0][1::2]), right[0])
    check(all(fits(c[0]["message"]["content"]) for c in told[0][1::2]), told[0])


def calls_of(choice):
    return [(c["function"]["name"], json.loads(c["function"]["arguments"]))
            for c in choice["message"].get("tool_calls") or []]


def test_calls_that_must_come_come_in_the_models_own_form():
    for family, (said, end) in FAMILIES.items():
        talk = "No, I would rather talk."
        if family == "gpt-oss":  # thoughts may be as long as they like
            talk = f"<|channel|>analysis<|message|>{talk}<|end|><|start|>assistant<|channel|>final<|message|>No."
        script = [{"when": "to Rome", "say": said, "end": end}, {"say": talk, "end": end}]
        with Double(script, "--tool-call-parser", family, template=READS_TOOLS, eos=end) as d:
            def choice(words, **fields):
                return d.chat(words, tools=TOOLS, max_tokens=400, **fields)["choices"][0]
            # What it would say anyway it says; who would talk calls.
            got = calls_of(choice("fly to Rome", tool_choice="required"))
            check(got == [("weather", {"city": "Rome", "days": 3})], family, got)
            forced = choice("talk", tool_choice="required", parallel_tool_calls=False)
            check(forced["finish_reason"] == "tool_calls", family, forced)
            (name, arguments), = calls_of(forced)
            check(name in ("weather", "stop"), family, forced)
            named = choice("talk", tool_choice={"type": "function", "function": {"name": "weather"}})
            (name, arguments), = calls_of(named)
            check(name == "weather" and arguments["city"] in ("Paris", "Rome") and 1 <= arguments["days"] <= 9,
                  family, named)
            check(not calls_of(choice("talk")), family)  # auto
            error = d.chat("talk", tools=TOOLS, tool_choice={"type": "function", "function": {"name": "none"}},
                           want=400)["error"]
            check("there is no function 'none'" in error["message"], error)
            d.wait_idle()


def test_strict_tools_and_forms_beside_tools():
    """With auto the model may talk; calls it makes keep to their schemas. With a form, what is no call has it."""
    script = [{"when": "call", "say": '<tool_call>\n{"name": "weather", "arguments": {"city": "London", "days": 12}}'},
              {"when": "form", "say": '{"a": 1}'},
              {"say": "It is <b>warm</b> < 30 <tool"}]
    strict = [{"type": "function", "function": {**FUNCTIONS[0], "strict": True}}, TOOLS[1]]
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {
        "type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"]}}}
    with Double(script, "--tool-call-parser", "hermes", template=READS_TOOLS) as d:
        free = d.chat("call", tools=TOOLS, max_tokens=200)["choices"][0]
        check(not calls_of(free) or calls_of(free)[0][1]["city"] == "London", free)
        (name, arguments), = calls_of(d.chat("call", tools=strict, max_tokens=200, parallel_tool_calls=False)["choices"][0])
        check(arguments["city"] in ("Paris", "Rome") and 1 <= arguments["days"] <= 9, arguments)
        talk = d.chat("talk", tools=strict, max_tokens=200)["choices"][0]["message"]
        check(talk["content"] == "It is <b>warm</b> < 30 <tool", talk)
        said = d.chat("form", tools=TOOLS, response_format=form, max_tokens=200)["choices"][0]["message"]
        check(json.loads(said["content"]) == {"a": 1}, said)
        (name, arguments), = calls_of(d.chat("call", tools=TOOLS, response_format=form, max_tokens=200,
                                             parallel_tool_calls=False)["choices"][0])
        check(name == "weather", arguments)
        # Those of others are as they come, also where nothing could be kept to.
        free = {"name": "free", "parameters": {"type": "object", "properties": {"a": {"if": {}}}}}
        d.chat("talk", tools=[*strict, {"type": "function", "function": free}])
        # As text a schema ends where its JSON does; a byte 0 stands for itself.
        for schema in ('{"type":"integer"}) | "zz" (', '{"type":'):
            error = d.chat("form", tools=TOOLS, json_schema=schema, want=400)["error"]
            check(error["param"] == "json_schema" and "JSON" in error["message"], error)
        said = d.chat("form", regex="a\0b", max_tokens=9)["choices"][0]["message"]
        check(said["content"] == "a\0b", said)
        d.wait_idle()


def test_parameters_in_xml_are_of_any_schema():
    """A string without an enum holds a slash and half a tag; others keep to what their schema refers to."""
    shared = {"type": "object", "properties": {
        "path": {"type": "string"}, "days": {"$ref": "#/$defs/days"}, "more": True},
        "required": ["path", "days"], "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 9}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": shared}}]
    said = ("<tool_call>\n<function=f>\n<parameter=path>\n/etc </p> </parameter\n</parameter>\n<parameter=days>\n3\n"
            "</parameter>\n</function>\n</tool_call>")
    script = [{"when": "beyond", "say": said.replace("3", "0")}, {"say": said}]
    with Double(script, "--tool-call-parser", "qwen3_coder", template=READS_TOOLS) as d:
        def arguments(words):
            answer = d.chat(words, tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=200)
            (name, told), = calls_of(answer["choices"][0])
            return told
        check(arguments("x") == {"path": "/etc </p> </parameter", "days": 3}, arguments("x"))
        check(1 <= arguments("beyond")["days"] <= 9)
        d.wait_idle()


def test_what_cannot_be_kept_to_is_refused_where_it_must_be():
    """A strict function between tags whose schema speaks of all parameters at once; the same beside another strict one."""
    odd = {"name": "odd", "parameters": {"type": "object", "properties": {"a>b": {"if": {}}, "c": {"$ref": "#/x"}},
                                         "anyOf": [{"minProperties": 1}]}}
    with Double([{"say": "No."}], "--tool-call-parser", "qwen3_coder", template=READS_TOOLS) as d:
        error = d.chat("x", tools=[{"type": "function", "function": {**odd, "strict": True}}], want=400)["error"]
        check(error["param"] == "tools" and "'anyOf' of all parameters of 'odd'" in error["message"], error)
        error = d.chat("x", tools=[{"type": "function", "function": odd}], tool_choice="required", want=400)["error"]
        check(error["param"] == "tool_choice" and "'odd'" in error["message"], error)
        said = d.chat("x", tools=[{"type": "function", "function": odd}, {"type": "function", "function": {
            **FUNCTIONS[0], "strict": True}}])["choices"][0]["message"]
        check(said["content"] == "No.", said)
        d.wait_idle()


def test_a_brace_in_the_middle_of_talk_begins_no_call():
    """Where a call is an answer that begins with a brace, strict tools leave the braces of all others alone."""
    strict = [{"type": "function", "function": {**FUNCTIONS[0], "strict": True}}]
    for talk in ("int f() { return 1; }", " x {{", ""):
        with Double([{"say": talk, "end": "<|eot_id|>"}], "--tool-call-parser", "llama3", template=READS_TOOLS,
                    eos="<|eot_id|>") as d:
            message = d.chat("x", tools=strict, max_tokens=200)["choices"][0]["message"]
            check((message["content"] or "").strip() == talk.strip() and not message.get("tool_calls"), message)


def test_reasoning_comes_before_a_form_and_is_free():
    thinking = READS_TOOLS.replace("assistant\n{% endif %}", "assistant\n{% if enable_thinking is defined and "
                                   "not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}")
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["yes", "no"]}}}
    script = [{"when": "</think>", "say": '"no"'}, {"when": "think", "say": '<think>\nhm {"a"\n</think>"no"'}, {"say": '"no"'}]
    with Double(script, "--reasoning-parser", "qwen3", template=thinking) as d:
        def message(words, **fields):
            return d.chat(words, response_format=form, max_tokens=100, **fields)["choices"][0]["message"]
        got = message("think")
        check(got["content"] == '"no"' and got["reasoning_content"] == 'hm {"a"', got)
        check(message("x")["content"] == '"no"')
        got = message("think", chat_template_kwargs={"enable_thinking": False})
        check(got["content"] == '"no"' and not got.get("reasoning_content"), got)
        d.wait_idle()
    said = '<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>"no"'
    with Double([{"when": "x", "say": said, "end": "<|return|>"}, {"say": "No.", "end": "<|return|>"}],
                "--tool-call-parser", "gpt-oss", "--reasoning-parser", "gpt-oss", template=READS_TOOLS, eos="<|return|>") as d:
        got = d.chat("x", response_format=form, max_tokens=100)["choices"][0]["message"]
        check(got["content"] == '"no"' and got["reasoning_content"] == "hm", got)
        d.wait_idle()


if __name__ == "__main__":
    run(globals())
