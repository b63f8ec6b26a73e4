#!/usr/bin/env python3
"""test_grammar.py - JSON Schemas beside an independent validator (python3-jsonschema).

For each schema of grammar_cases.py, in each form of white space in turn: what a sampler makes of it that
takes any token that is allowed is valid; and of the values that stand beside it the automaton accepts,
token by token, those that the validator accepts, and no others. Random schemas likewise. The seed is
printed; RADISH_TEST_SEED repeats a run."""
import json
import os
import pathlib
import random
import subprocess
import time

from radish_e2e import LONG, RADISH, check, run, skip_script

try:
    from grammar_judge import is_valid, number, validator
except ImportError:
    skip_script("python3-jsonschema is not here")

from grammar_cases import CASES, REFUSED

PROBE = str(pathlib.Path(RADISH).parent / "tests/grammar_probe")
SEED = int(os.environ.get("RADISH_TEST_SEED") or str(time.time_ns() % 2**40), 0)
rng = random.Random(SEED)
SEPARATORS = [(", ", ": "), (",", ":"), (", ", ": ")]


def probe(requests):
    done = subprocess.run([PROBE], input="\n".join(map(json.dumps, requests)) + "\n", capture_output=True, text=True)
    check(done.returncode == 0, done.stderr[-2000:])
    answers = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    check(len(answers) == len(requests), "an answer for each request")
    return answers


def spread(text):
    """Some white space of the loose form between tokens."""
    out, quoted, i = "", False, 0
    while i < len(text):
        c = text[i]
        if quoted and c == "\\":
            out += text[i:i + 2]
            i += 2
            continue
        quoted ^= c == '"'
        blank = rng.choice(["", " ", "\n", "\n  ", "\n\t "])
        if not quoted and c in "]}" and text[i - 1] not in "[{":
            out += blank
        if not quoted and c in ",:":
            out = out + rng.choice(["", " "]) + c
        else:
            out += c
        if not quoted and c in "[{" and text[i + 1] not in "]}" or not quoted and c in ",:":
            out += blank
        i += 1
    return out


def written(value, space):
    text = json.dumps(value, ensure_ascii=False, separators=SEPARATORS[space] if space < 2 else (",", ":"))
    return spread(text) if space == 2 else text


def compare(cases, samples):
    requests, judges = [], []
    for n, (schema, values) in enumerate(cases):
        space = n % 3
        judges.append(validator(schema))
        requests.append({"kind": "schema", "text": json.dumps(schema), "space": space, "seed": rng.randrange(2**40),
                         "samples": samples, "accept": [written(value, space) for value in values]})
    yes = no = sampled = cut = 0
    for (schema, values), request, judge, answer in zip(cases, requests, judges, probe(requests)):
        check(not answer["error"], schema, answer["error"])
        for value, text, accepted in zip(values, request["accept"], answer["accept"]):
            value = json.loads(text, parse_float=number)
            valid = is_valid(judge, value)
            check(accepted == valid, schema, text, "accepted" if accepted else "refused", SEED)
            yes, no = yes + valid, no + (not valid)
        for text in answer["samples"]:
            cut += text is None
            if text is not None:
                value = json.loads(text, parse_float=number, strict=True)
                check(is_valid(judge, value), schema, text, "was allowed", SEED)
                sampled += 1
    print(f"{len(cases)} schemas: {yes} values accepted, {no} refused, {sampled} samples valid, {cut} too long")
    check(sampled > 20 * cut, "samples come to an end")


def test_schemas_and_values():
    check(len(CASES) >= 300, len(CASES), "schemas")
    compare(CASES, 40 if LONG else 6)


def test_what_is_not_served():
    answers = probe([{"kind": "schema", "text": json.dumps(schema)} for schema, _ in REFUSED])
    for (schema, words), answer in zip(REFUSED, answers):
        check(words in answer["error"], schema, "is refused as", words, "and not as", answer["error"])


def test_the_order_and_the_white_space_are_one():
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})
    texts = ['{"a": 1, "b": 2}', '{"a":1,"b":2}', '{\n  "a": 1,\n  "b": 2\n}', '{"b": 2, "a": 1}', ' {"a": 1}', '{"a": 1} ',
             '{"a": 1, "b": 2, "c": 3}', '{"c": 3, "b": 2}', '{"a": 1, "a": 2}', '{"\\u0061": 1}', '{"c": 1, "\\u0063": 2}']
    want = [[1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0]]
    for space in range(3):
        answer, = probe([{"kind": "schema", "text": schema, "space": space, "accept": texts}])
        check(answer["accept"] == [x == 1 for x in want[space]], space, answer)
    answer, = probe([{"kind": "schema", "text": schema, "closed": True, "accept": ['{"a": 1}', '{"c": 1}', '{"a": 1, "c": 1}']}])
    check(answer["accept"] == [True, False, False], answer)
    schema = json.dumps({"properties": {"a": {"const": 1}}, "patternProperties": {"^b": {"const": 2}}, "type": "object"})
    answer, = probe([{"kind": "schema", "text": schema, "closed": True, "accept": ['{"a": 1, "b": 2}', '{"bb": 2}', '{"b": 1}', '{"c": 2}']}])
    check(answer["accept"] == [True, True, False, False], answer)


# ---- random schemas ----

def random_schema(depth=0):
    kind = rng.randrange(9 if depth < 3 else 5)
    if kind == 0:
        return {"type": rng.choice(["null", "boolean", "string", "integer", "number"])}
    if kind == 1:
        return {"enum": rng.sample(["a", "b", 1, 2, None, True, 1.5, "", [], {}], rng.randint(1, 4))}
    if kind == 2:
        low = rng.randint(-20, 20)
        return {"type": rng.choice(["integer", "number"]), "minimum": low, "maximum": low + rng.randint(0, 30)}
    if kind == 3:
        return {"type": "string", "minLength": rng.randint(0, 2), "maxLength": rng.randint(2, 6)}
    if kind == 4:
        return {"type": "string", "pattern": rng.choice(["^a", "b$", "^[ab]*$", "a|b", "^.?$"])}
    if kind == 5:
        low = rng.randint(0, 2)
        return {"type": "array", "items": random_schema(depth + 1), "minItems": low, "maxItems": low + rng.randint(0, 3)}
    if kind == 6:
        # One branch with properties: another would ask for another order of them.
        return {"anyOf": [random_schema(depth + 1), *(random_schema(3) for _ in range(rng.randint(0, 2)))]}
    names = rng.sample("abcd", rng.randint(0, 4))
    schema = {"type": "object", "properties": {name: random_schema(depth + 1) for name in names},
              "required": [name for name in names if rng.random() < .5]}
    more = rng.randrange(3)
    if more:
        schema["additionalProperties"] = False if more == 1 else random_schema(depth + 1)
    return schema


def random_value(schema, depth=0):
    """Often one that fits, with properties in the order of the schema."""
    if rng.random() < .08 or not isinstance(schema, dict) or depth > 8:
        return rng.choice([None, True, 1, 2.5, "a", "b", "", [], {}, [1], {"z": 1}])
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "anyOf" in schema:
        return random_value(rng.choice(schema["anyOf"]), depth)
    kind = schema.get("type")
    if kind == "object":
        out = {}
        for name, each in schema["properties"].items():
            if rng.random() < (.95 if name in schema["required"] else .5):
                out[name] = random_value(each, depth + 1)
        if rng.random() < .2:
            out[rng.choice(["y", "z", "ab", "é"])] = random_value(schema.get("additionalProperties", {"type": "null"}), depth + 1)
        return out
    if kind == "array":
        return [random_value(schema["items"], depth + 1) for _ in range(rng.randint(0, 4))]
    if kind == "string":
        return "".join(rng.choice("abé\n") for _ in range(rng.randint(0, 5)))
    if kind in ("integer", "number"):
        return rng.randint(-25, 55) if kind == "integer" or rng.random() < .5 else round(rng.uniform(-25, 55), rng.randint(1, 3))
    return rng.choice([None, True, False])


def test_random_schemas():
    cases = []
    for _ in range(3000 if LONG else 250):
        schema = random_schema()
        if rng.random() < .2:
            schema = {"allOf": [schema, random_schema(3)]} if rng.random() < .5 else {"$ref": "#/$defs/x", "$defs": {"x": schema}}
        cases.append((schema, [random_value(schema["$defs"]["x"] if "$ref" in schema else schema.get("allOf", [schema])[0])
                               for _ in range(8)]))
    answers = probe([{"kind": "schema", "text": json.dumps(schema)} for schema, _ in cases])
    for (schema, values), answer in zip(cases, answers):
        if answer["error"]:
            check(answer["error"] == "no text has this form", schema, answer["error"])
            check(not any(is_valid(validator(schema), value) for value in values), schema)
    compare([case for case, answer in zip(cases, answers) if not answer["error"]], 2)


print(f"seed: RADISH_TEST_SEED={SEED}")
run(globals())
