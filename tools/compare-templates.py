#!/usr/bin/python3
"""compare-templates.py - what radish makes of chat templates, beside jinja2.

    tools/compare-templates.py DIR [--radish build/release/radish] [--show]

Each *.jinja below DIR is rendered in six conversations (user; system; turns; tools; a tool call and its
result; thinking) by `radish render` and by jinja2 in the environment that Hugging Face uses. A line a
template: = the same text, - both refuse, X they differ. Whether a template wants the arguments of a call
as an object or as JSON is tried; --show prints where texts part. The exit status is 1 where any differ.

Needs python3-jinja2."""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/e2e"))
import hugging_face  # noqa: E402

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather <now> & \"here\".",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Where"},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "days": {"type": "array", "items": {"type": "integer"}}}, "required": ["city"]}}}
CLOCK = {"type": "function", "function": {
    "name": "get_time", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}
HELLO = {"role": "user", "content": "Hello, how's the weather in Zürich? <b>&amp;</b>"}
SYSTEM = {"role": "system", "content": "You are terse. "}


def called(arguments):
    return [HELLO,
            {"role": "assistant", "content": "", "tool_calls": [{
                "id": "call00001", "type": "function", "function": {
                    "name": "get_weather", "arguments": arguments}}]},
            {"role": "tool", "tool_call_id": "call00001", "name": "get_weather",
             "content": '{"degrees": 18.5, "sky": "clear"}'}]


CITY = {"city": "Zürich", "days": [1, 2], "deep": {"a": None, "b": True}}
CONVERSATIONS = {
    "user": [{"messages": [HELLO]}],
    "system": [{"messages": [SYSTEM, HELLO]}],
    "turns": [{"messages": [HELLO, {"role": "assistant", "content": " Fine.\n"},
                            {"role": "user", "content": "And tomorrow?"}]}],
    "tools": [{"messages": [SYSTEM, HELLO], "tools": [WEATHER, CLOCK]},
              {"messages": [HELLO], "tools": [WEATHER, CLOCK]}],
    "call": [{"messages": called(CITY), "tools": [WEATHER]},
             {"messages": called(json.dumps(CITY)), "tools": [WEATHER]}],
    "thinking": [{"messages": [
        HELLO, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nFine.", "reasoning_content": "Hm."},
        {"role": "user", "content": "Really?"}], "kwargs": {"enable_thinking": True, "thinking": True}}],
}


def cases(source, compiled):
    """Of each conversation the first form that jinja2 renders, else the first, with its outcome."""
    for forms in CONVERSATIONS.values():
        done = []
        for form in forms:
            case = {"template": source, "add_generation_prompt": True, **form}
            done.append((case, *(hugging_face.render(compiled, case) if compiled else (None, "syntax"))))
        yield next((d for d in done if d[2] is None), done[0])


def compile_template(env, source):
    try:
        return env.from_string(source)
    except Exception:  # then radish must refuse it, too
        return None


def parting(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"at {at}: radish {a[at:at + 60]!r}, jinja2 {b[at:at + 60]!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--radish", default=ROOT / "build/release/radish")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    env, rows = hugging_face.environment(), []
    for path in sorted(options.directory.rglob("*.jinja")):
        source = path.read_text()
        rows += [(path, *case) for case in cases(source, compile_template(env, source))]
    if not rows:
        sys.exit(f"{options.directory}: no *.jinja")
    lines = "".join(json.dumps(case) + "\n" for _, case, _, _ in rows)
    answers = subprocess.run(
        [options.radish, "render", "--lines", "-", "--bos-token", "<s>", "--eos-token", "</s>", "--now",
         hugging_face.NOW.strftime("%Y-%m-%d")], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in answers.stdout.decode().split("\n") if line]
    table, why, counts = {}, [], {"=": 0, "-": 0, "X": 0}
    for (path, _, text, error), answer in zip(rows, answers, strict=True):
        got = answer.get("text")
        sign = "-" if error and got is None else "=" if not error and got == text else "X"
        table[path] = table.get(path, "") + sign
        counts[sign] += 1
        if sign == "X":
            why.append(f"{path.name}: " + (parting(got, text) if got is not None and not error else
                                           f"radish {answer.get('error', {}).get('message', 'renders it')}, "
                                           f"jinja2 {error or 'renders it'}"))
        elif sign == "-" and options.show:
            why.append(f"{path.name} is refused: radish {answer['error']['message']}, jinja2 {error}")
    print(" ".join(f"{n + 1} {name}" for n, name in enumerate(CONVERSATIONS)))
    for path, signs in table.items():
        print(f"{signs}  {path.relative_to(options.directory)}")
    print("\n".join(why))
    alike = sum("X" not in signs for signs in table.values())
    print(f"{alike} of {len(table)} templates alike in {len(CONVERSATIONS)} conversations each: "
          f"{counts['=']} texts the same, {counts['-']} refused by both, {counts['X']} differ")
    return alike < len(table)


if __name__ == "__main__":
    sys.exit(main())
