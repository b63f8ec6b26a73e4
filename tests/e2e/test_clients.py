#!/usr/bin/env python3
"""Clients as people have them, unmodified, against the server: tests/clients/clients.mjs.

Their packages come from npm (tools/install-clients.sh, which `make test` calls)."""
import json
import shutil
import subprocess

from double import Double
from radish_e2e import HANG, ROOT, TINY, Server, check, run, skip_script
from test_messages import SCRIPT, TEMPLATE

PACKAGES = ROOT / "build/clients/node_modules"
EVENT = {"title": "Zoo", "kind": "walk", "seats": 20, "price": 2.5, "room": None, "tags": ["a", "b"],
         "day": "2026-02-28", "key": "abcdefghijklmnopqrstu", "level": 4, "by": {"is": "club", "open": True}}


def booked(arguments):
    return f'<tool_call>\n{{"name": "book", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


RULES = [{"when": "endless", "say": "x", "end": None},
         {"when": "Book the", "unless": "RESULT", "say": booked(EVENT)},
         {"when": "Book nonsense", "unless": "RESULT", "say": booked({"title": "", "seats": "many", "more": 1})},
         {"when": ["Tell the", "book"], "say": booked(EVENT)}, {"when": "Tell the", "say": json.dumps(EVENT)}, *SCRIPT]


def use(client):
    with Double(RULES, "--served-model-name", "m", template=TEMPLATE) as d:
        ask(d, "scripted", client, client + "_forms")
        d.wait_idle()  # also what a client left behind has ended


def ask(server, *what):
    done = subprocess.run(["node", PROGRAM, f"http://127.0.0.1:{server.port}", *what],
                          capture_output=True, text=True, timeout=HANG)
    check(done.returncode == 0, done.stdout, done.stderr)


def test_openai():
    use("openai")


def test_anthropic():
    use("anthropic")


def test_ai_sdk():
    use("ai")


def test_langchain():
    use("langchain")


def test_ollama():
    use("ollama")


def test_forms_of_the_shipped_model():
    with Server(TINY, "--served-model-name", "m") as s:
        ask(s, "shipped", "openai_forms", "anthropic_forms", "ai_forms", "langchain_forms", "ollama_forms")
        s.wait_idle()


if __name__ == "__main__":
    if not shutil.which("node") or not PACKAGES.is_dir():
        skip_script("clients from npm are not here: tools/install-clients.sh says why")
    # Beside the packages, where node looks for them.
    PROGRAM = shutil.copy(ROOT / "tests/clients/clients.mjs", PACKAGES.parent)
    run(globals())
