"""hugging_face.py - jinja2 as Hugging Face's apply_chat_template sets it up: the oracle of chat templates.

Needs python3-jinja2. The date of strftime_now is NOW, as with `radish render --now 2025-01-15`."""
import json
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime(2025, 1, 15)


class Generation(jinja2.ext.Extension):
    """Hugging Face's {% generation %}: here its body only."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_show"), [], [], body).set_lineno(line)

    def _show(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads  # not Hugging Face's, but DeepSeek's templates name it
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(template, case):
    """(text, None), or (None, what Python has to say). A case is a line of `radish render --lines`."""
    try:
        return template.render(
            messages=case["messages"], tools=case.get("tools"), documents=None, bos_token="<s>",
            eos_token="</s>", add_generation_prompt=case["add_generation_prompt"],
            **case.get("kwargs", {})), None
    except Exception as e:
        return None, e
