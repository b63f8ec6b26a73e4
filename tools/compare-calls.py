#!/usr/bin/python3
"""compare-calls.py - calls as chat templates write them, read back by the server.

    tools/compare-calls.py DIR [--show] [--only WORD]

Each *.jinja below DIR is rendered by jinja2, in the environment that Hugging Face uses, with a
conversation in which the assistant has called tools. What stands there is what a model of that
template says: it is played back (tests/double) to the server under that template, in whole answers and
in streams. A line a template and conversation: = the same calls and words, - the template writes no
calls or jinja2 refuses it, d it drops tools, X they differ. Names are as the server finds them from the template. The exit
status is 1 where any differ.

Needs python3-jinja2 and build/release/tests/radish_double."""
import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/e2e"))
import hugging_face  # noqa: E402
from double import MARKERS, WORDS, Double  # noqa: E402
from test_tools import joined  # noqa: E402

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Where"}, "days": {"type": "integer"},
        "wind": {"type": "boolean"}, "hours": {"type": "array", "items": {"type": "number"}},
        "more": {"type": "object", "properties": {"unit": {"type": "string"}}}}, "required": ["city"]}}}
CLOCK = {"type": "function", "function": {
    "name": "get_time", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}
HELLO = {"role": "user", "content": "Hello"}
PLAIN = ("get_weather", {"city": "Zürich, 5 > 4 & \"so\""})
RICH = ("get_weather", {"city": "a\nb", "days": -3, "wind": True, "hours": [1.5, 2],
                        "more": {"unit": "C"}})
BARE = ("get_time", {})
CONVERSATIONS = {"one": [PLAIN], "rich": [RICH], "two": [PLAIN, ("get_weather", {"city": "Rome"})],
                 "none": [BARE]}
END = "\ue000"  # stands in what follows, and nowhere else


def said(render, calls, words, as_text):
    """(the prompt, what a model says behind it); None: the template cannot."""
    message = {"role": "assistant", "content": words, "tool_calls": [
        {"id": f"call{i:05}", "type": "function", "function": {
            "name": name, "arguments": json.dumps(arguments, ensure_ascii=False) if as_text else arguments}}
        for i, (name, arguments) in enumerate(calls)]}
    results = [{"role": "tool", "tool_call_id": f"call{i:05}", "name": name, "content": END}
               for i, (name, _) in enumerate(calls)]
    prompt, error = render([HELLO], True)
    whole, wrong = render([HELLO, message, *results], False)
    if error or wrong or END not in whole:
        return None
    whole = whole[:whole.index(END)]
    same = next((i for i, (a, b) in enumerate(zip(prompt, whole)) if a != b), min(len(prompt), len(whole)))
    same = max(whole.rfind("<", 0, same), 0) if whole.rfind("<", 0, same) > whole.rfind(">", 0, same) else same
    text = cut_at_end(whole[same:])
    # Of a thought that is not there a template leaves the end, or nothing; the model has had one.
    text = re.sub(r"^\s*(<[^/<>]*think[^<>]*>\s*)?</[^<>]*think[^<>]*>", "", text)
    thinks = re.search(r"<([^/<>]*think[^<>]*)>\s*$", prompt)
    if thinks:
        text = f"Hm.</{thinks.group(1)}>{text}"
    return prompt, text


def forms(compiled, calls, words):
    """The first form in which the template takes arguments, as an object or as text."""
    def render(messages, begins):
        return hugging_face.render(compiled, {"messages": messages, "tools": [WEATHER, CLOCK],
                                              "add_generation_prompt": begins, "kwargs": {}})
    for as_text in False, True:
        for content in words, "":
            got = said(render, calls, content, as_text)
            if got and all(name in got[1] for name, _ in calls) and all(
                    str(v) in got[1] for _, a in calls for v in a.values() if isinstance(v, str) and v.isalpha()):
                return got[0], got[1], content if content in got[1] else ""
    return None


def markers_of(source):
    found = set(re.findall(r"<[|｜/][^<>\s'\"{}]{1,40}[|｜]>|<\|[A-Z_a-z]+\|?>|\[/?[A-Z_]{3,}\]", source))
    return sorted(found - set(MARKERS) - set(WORDS))


ENDS = """<|im_end|> <|eot_id|> <|eom_id|> </s> <|end_of_text|> <|call|> <end_of_turn> <｜end▁of▁sentence｜>
<|END_OF_TURN_TOKEN|> <turn|> <|eot|> [e~[ <|user|> <|observation|> <|tool_response> <|endoftext|> <|end_of_turn|>
</assistant> <sep> <SPECIAL_12> <|tools_suffix|>[ <seed:eos> <|calls|> <|message_sep|> <｜hy_eos:opensource｜> <|assistant_end|>""".split()


def cut_at_end(text):
    """Without what ends the turn and begins the next."""
    ends = ENDS if "<|channel|>" in text else [*ENDS, "<|end|>"]
    cuts = [text.index(e) for e in ends if e in text]
    return text[:min(cuts)] if cuts else text


def answer(d, message):
    calls = [(c["function"]["name"], json.loads(c["function"]["arguments"]))
             for c in message.get("tool_calls") or []]
    words = (message.get("content") or "").strip()
    return calls, words or (message.get("reasoning_content") or "").strip().removesuffix("Hm.")


def compare(path, source, compiled, show):
    row, why = "", []
    for name, calls in CONVERSATIONS.items():
        form = forms(compiled, calls, "Let me look.") if compiled else None
        if not form:
            row += "-"
            continue
        text = form[1]
        with Double([{"say": text}], template=source, more=markers_of(source)) as d:
            body = {"messages": [HELLO], "tools": [WEATHER, CLOCK], "max_tokens": 2000}
            got = []
            try:
                got.append(answer(d, d.ask("/v1/chat/completions", body)["choices"][0]["message"]))
                got.append(answer(d, joined(d.stream("/v1/chat/completions", body))[0]))
            except AssertionError as error:
                if "the chat template" in str(error):  # it drops tools, and the server says so
                    row += "d"
                    continue
                got.append(str(error)[:300])
            info = d.get("/model_info")
        fine = all(g == (list(calls), form[2]) for g in got)
        row += "=" if fine else "X"
        if not fine or show:
            why.append(f"{path.name} {name} ({info['tool_call_parser']}, {info['reasoning_parser']}): "
                       f"{text!r}\n    -> {got[0]!r}" + (f"\n    -> {got[-1]!r}" if got[-1] != got[0] else ""))
    return row, why


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    env, wrong = hugging_face.environment(), 0
    print(" ".join(f"{n + 1} {name}" for n, name in enumerate(CONVERSATIONS)))
    for path in sorted(options.directory.rglob("*.jinja")):
        if options.only not in path.name:
            continue
        source = path.read_text()
        try:
            compiled = env.from_string(source)
        except Exception:
            compiled = None
        row, why = compare(path, source, compiled, options.show)
        wrong += "X" in row
        print(row, path.name, *why, sep="  " if not why else "\n    ", flush=True)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
