#!/usr/bin/python3
"""states_beside.py MODEL [--message N] [--llama-server PATH] - the courses of bench_states over HTTP: prompt
tokens that turns, a regenerated answer, an edited message and branches compute, by radish and, where there
is one, by llama.cpp's llama-server beside it.

The server is named by --llama-server or $LLAMA_SERVER; without it radish's figures stand alone. Both get the
same number of tokens, one request at a time, and go on from their own answers (greedy, of a fixed length).
Of radish what is computed is the prompt less cached_tokens, of llama-server what its timings call prompt_n.
The program is $RADISH. Exits with 1 where radish computed more than a chat's own tokens: what is new in a
turn and, regenerated or edited, the last message."""
import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import tiny_gguf  # noqa: E402
from radish_e2e import Server  # noqa: E402

TURNS, BRANCHES, OPENING, START_S = 10, 16, 3, 120


class Radish:
    name = "radish"

    def __init__(self, model, context):
        self.server = Server(model, "--context-length", context, "--max-total-tokens", 4 * context,
                             "--max-running-requests", 1).__enter__()

    def ask(self, ids, new):
        answer = self.server.ask("/generate", {"input_ids": ids, "sampling_params": {
            "max_new_tokens": new, "temperature": 0, "ignore_eos": True}})
        return answer["output_ids"], len(ids) - answer["meta_info"]["cached_tokens"]

    def stop(self):
        self.server.__exit__(None, None, None)


class LlamaServer:
    name = "llama-server"

    def __init__(self, program, model, context):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{s.getsockname()[1]}"
        self.process = subprocess.Popen(
            [program, "-m", str(model), "--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1], "-c",
             str(context), "-np", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None or time.monotonic() > until:
                    self.stop()
                    sys.exit(f"states_beside: {program} does not serve {model}")
                time.sleep(0.05)

    def ask(self, ids, new):
        body = {"prompt": ids, "n_predict": new, "temperature": 0, "ignore_eos": True, "cache_prompt": True,
                "return_tokens": True}
        request = urllib.request.Request(self.url + "/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as reply:
            answer = json.load(reply)
        return answer["tokens"], answer["timings"]["prompt_n"]

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Text:
    """Messages as a template writes them: each begins with one token."""

    def __init__(self, start, seed):
        self.start, self.seed, self.ids, self.message = start, seed, [], 0

    def say(self, n):
        self.message = len(self.ids)
        self.ids.append(self.start)
        for _ in range(n - 1):
            self.seed = (self.seed * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            self.ids.append(20 + (self.seed >> 33) % 200)

    def open(self):
        self.ids += [self.start, *range(21, 21 + OPENING - 1)]


def courses(ask, start, n):
    """Yields course, what is asked, tokens of the prompt, those computed, those that are new in it."""
    text, answer = Text(start, 1), n // 4
    text.say(2 * n)
    new = 0
    for turn in range(TURNS):
        before = len(text.ids) if turn else 0
        text.say(n)
        text.open()
        asked, message = list(text.ids), text.message
        out, computed = ask(text.ids, answer)
        yield "chat", f"turn {turn + 1}", len(asked), computed, len(asked) - before + 1
        text.ids = asked + out
    _, computed = ask(asked, answer)
    yield "last", "regenerated", len(asked), computed, OPENING
    edited = Text(start, 99)
    edited.ids = asked[:message]
    edited.say(n)
    edited.open()
    new = len(edited.ids) - message
    _, computed = ask(edited.ids, answer)
    yield "last", "edited", len(edited.ids), computed, new
    stem = Text(start, 7)
    stem.say(8 * n)
    for i in range(BRANCHES):
        branch = Text(start, 1000 + i)
        branch.ids = stem.ids + [300 + i]
        branch.say(n)
        branch.open()
        _, computed = ask(branch.ids, answer)
        yield "branches", f"branch {i + 1}", len(branch.ids), computed, (
            len(branch.ids) - len(stem.ids) if i > 1 else len(branch.ids))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split(" - ")[0])
    parser.add_argument("model")
    parser.add_argument("--message", type=int, default=96)
    parser.add_argument("--llama-server", default=os.environ.get("LLAMA_SERVER"))
    a = parser.parse_args()
    context = 16 * (a.message + a.message // 4 + OPENING)
    start = tiny_gguf.read(a.model)[0]["tokenizer.ggml.tokens"].index("<|im_start|>")
    rows, names, more = {}, [], False
    for make in [lambda: Radish(a.model, context),
                 *([lambda: LlamaServer(a.llama_server, a.model, context)] if a.llama_server else [])]:
        server = make()
        names.append(server.name)
        try:
            for course, what, prompt, computed, new in courses(server.ask, start, a.message):
                rows.setdefault((course, what), [prompt]).append(computed)
                more |= server.name == "radish" and computed > new
        finally:
            server.stop()
    print(f"  {'':12} {'all':>6}" + "".join(f" {name:>13}" for name in names))
    together = {}
    for (course, what), figures in rows.items():
        print(f"  {what:12} {figures[0]:6}" + "".join(f" {n:13}" for n in figures[1:]))
        kind = course if course != "last" else what
        together[kind] = [x + y for x, y in zip(together.get(kind, [0] * len(figures)), figures)]
    for kind, figures in together.items():
        print(f"  {kind + ', sum':18}" + " ".join(f"{name} {n} of {figures[0]}" + ","
                                                  for name, n in zip(names, figures[1:])).rstrip(","))
    sys.exit(more)


if __name__ == "__main__":
    main()
