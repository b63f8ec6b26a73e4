#!/usr/bin/env python3
"""Coding agents as people have them, unmodified, do a task: files change on disk as the model's words
say, and each turn computes what is new in it. They are set up as docs/agents.md says.

Their packages come from npm (tools/install-clients.sh agents, which `make test-long` calls). The agents
and the server run where there is no network but 127.0.0.1, so nothing else can be asked."""
import fcntl
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap

from double import Double
from radish_e2e import HANG, LONG, ROOT, check, long_run, run, skip, skip_script
from test_messages import TEMPLATE

PROGRAMS = ROOT / "build/agents/node_modules/.bin"
ALONE = "RADISH_TEST_ALONE"
DOCUMENTED = "http://127.0.0.1:30000"
ASKED = re.compile(r" POST (\S+) (\d+) .* (\d+) prompt tokens, (\d+) cached, (\d+) out")


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def rules(steps):
    """A model that goes on from what it said last. What it says at the end it says where the shell's
    answer is there, too. Small models are asked for titles."""
    said = [f"<think>of {i}</think>Step {i}." + step if thinks else f"Step {i}." + step
            for i, (thinks, step) in enumerate(steps)]
    out = [{"when": "title generator", "say": "A title"},
           {"when": ["TASK7", f"Step {len(said) - 1}.", "MARK42"], "say": "All done."}]
    for i in range(len(said) - 1, 0, -1):
        out.append({"when": ["TASK7", f"Step {i - 1}."], "unless": f"Step {i}.", "say": said[i]})
    return out + [{"when": "TASK7", "unless": "Step 0.", "say": said[0]}]


def turns_compute_what_is_new(log, path):
    """By the server's own account. Requests that are no turn of the task are short."""
    asked = [(where, int(status), *map(int, counts)) for where, status, *counts in ASKED.findall(log)]
    turns = [(prompt, cached, out) for where, _, prompt, cached, out in asked if prompt > 10000]
    check(all(where == path and status == 200 for where, status, *_ in asked), asked)
    for (prompt, _, out), (_, cached, _) in zip(turns, turns[1:]):
        check(cached == prompt + out - 1, turns)  # nobody has computed what the end token gives
    return len(turns)


def lines_of(client):
    """What docs/agents.md says that a client needs: the first block below its heading."""
    section = (ROOT / "docs/agents.md").read_text().split(f"\n## {client}\n", 1)[1].split("\n## ")[0]
    lines = section.split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("    "))
    last = next((i for i, line in enumerate(lines[first:], first) if line and not line.startswith("    ")), None)
    return textwrap.dedent("\n".join(lines[first:last]))


def work(agent, path, steps, command, env=(), files=()):
    """What `env` and the texts of `files` say of the documentation's address is said of the server's."""
    program = PROGRAMS / agent
    if not program.exists():
        skip("the packages are not here: tools/install-clients.sh agents says why")
    with tempfile.TemporaryDirectory(prefix="radish-agent-") as home:
        place = pathlib.Path(home) / "work"
        place.mkdir()
        with Double(rules(steps), "--served-model-name", "my-model", "--served-model-name", "*",
                    "--log-level", "info", template=TEMPLATE, context=200000) as d:
            def here(text):
                check("127.0.0.1" not in text or DOCUMENTED in text, text)
                return text.replace(DOCUMENTED, f"http://127.0.0.1:{d.port}")
            for name, text in dict(files).items():
                file = pathlib.Path(home) / name
                file.parent.mkdir(parents=True)
                file.write_text(here(text))
            done = subprocess.run(
                [program, *command], cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=HANG, env={"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8",
                                   "TERM": "dumb", **{name: here(text) for name, text in dict(env).items()}})
            d.wait_idle()
        words = (done.stdout, done.stderr, d.log)
        check(done.returncode == 0 and "All done." in done.stdout, *words)
        check((place / "notes.txt").read_text() == "two words\n", *words)
        check((place / "copy.txt").read_text() == "two words\n", *words)
        check(not re.search(r" (POST|GET|HEAD) \S+ [45]\d\d", d.log), *words)
        check(turns_compute_what_is_new(d.log, path) == len(steps) + 1, *words)


SHELL = "cp notes.txt copy.txt; echo MARK$((40+2))"


@long_run
def test_claude_code_through_messages():
    words = shlex.split(lines_of("Claude Code"))
    given = dict(word.split("=", 1) for word in words[:words.index("claude")])
    work("claude", "/v1/messages", [
        (True, call("ToolSearch", query="select:CronList,WebFetch", max_results=5)),
        (True, call("Write", file_path="notes.txt", content="one word\n")),
        # The client sends what it has read, not what was said: replace_all would come in front.
        (False, call("Edit", replace_all=False, file_path="notes.txt", old_string="one word",
                     new_string="two words")),
        (True, call("Bash", command=SHELL, description="copy it"))],
        [*words[words.index("claude") + 1:], "-p", "TASK7, please", "--allowedTools", "Write,Edit,Bash"],
        env={**given, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})


@long_run
def test_codex_through_responses():
    work("codex", "/v1/responses", [
        (True, call("exec_command", cmd="echo one word > notes.txt")),
        (False, call("multi_agent_v1__close_agent", target="nobody")),
        (True, call("exec_command", cmd="sed -i s/one.word/two\\ words/ notes.txt")),
        (False, call("exec_command", cmd=SHELL))],
        ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "TASK7, please"],
        files={".codex/config.toml": "check_for_update_on_startup = false\n" + lines_of("Codex") +
               "\n[analytics]\nenabled = false\n"})


@long_run
def test_opencode_through_chat_completions():
    work("opencode", "/v1/chat/completions", [
        (False, call("write", content="one word\n", filePath="notes.txt")),
        (False, call("edit", filePath="notes.txt", oldString="one word", newString="two words")),
        (False, call("bash", command=SHELL, description="copy it"))],
        ["run", "TASK7, please"], env={"OPENCODE_DISABLE_MODELS_FETCH": "1"},
        files={".config/opencode/opencode.json": lines_of("opencode")})


def with_loopback_alone():
    """This script again, in a network of its own in which there is 127.0.0.1 and nothing else."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    wanted = ["unshare", *user, "--net"]
    if not shutil.which("unshare") or subprocess.run([*wanted, "true"], capture_output=True).returncode:
        skip_script("there can be no network of its own here, and agents must not reach another")
    os.execvpe("unshare", [*wanted, sys.executable, *sys.argv], {**os.environ, ALONE: "1"})


def start_loopback():
    SIOCSIFFLAGS, IFF_UP = 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


if __name__ == "__main__":
    if LONG:
        if not PROGRAMS.is_dir():
            skip_script("agents from npm are not here: tools/install-clients.sh agents says why")
        if not os.environ.get(ALONE):
            with_loopback_alone()
        start_loopback()
    run(globals())
