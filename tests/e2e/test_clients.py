#!/usr/bin/env python3
"""Clients as people have them, unmodified, against the server: tests/clients/clients.mjs.

Their packages come from npm (tools/install-clients.sh, which `make test` calls)."""
import shutil
import subprocess

from double import Double
from radish_e2e import HANG, ROOT, check, run, skip_script
from test_messages import SCRIPT, TEMPLATE

PACKAGES = ROOT / "build/clients/node_modules"
RULES = [{"when": "endless", "say": "x", "end": None}, *SCRIPT]


def use(client):
    with Double(RULES, "--served-model-name", "m", template=TEMPLATE) as d:
        done = subprocess.run(["node", PROGRAM, f"http://127.0.0.1:{d.port}", client],
                              capture_output=True, text=True, timeout=HANG)
        check(done.returncode == 0, done.stdout, done.stderr)
        d.wait_idle()  # also what a client left behind has ended


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


if __name__ == "__main__":
    if not shutil.which("node") or not PACKAGES.is_dir():
        skip_script("clients from npm are not here: tools/install-clients.sh says why")
    # Beside the packages, where node looks for them.
    PROGRAM = shutil.copy(ROOT / "tests/clients/clients.mjs", PACKAGES.parent)
    run(globals())
