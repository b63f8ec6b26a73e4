#!/usr/bin/env python3
"""test_cli.py - the commands that scripts rely on, against golden answers."""
import http.server
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

import double
import tiny_gguf
from radish_e2e import (DATA, HANG, MADE, RADISH, ROOT, STORIES, TINY, Server, check, radish,
                        run, skip, story_golden)

sys.path.append(str(ROOT / "tests/made"))
from vocabulary import Bpe  # noqa: E402

GOLDEN = story_golden()


def ids_text(ids):
    return ",".join(map(str, ids))


def test_generate_is_golden():
    for case in GOLDEN:
        count = min(60, len(case["greedy_ids"]))
        out, _ = radish("generate", "-m", STORIES, "--ids", ids_text(case["prompt_ids"]), "-n",
                        count, "--temp", 0, "--ignore-eos", "--dtype", "f32", "--json")
        answer = json.loads(out)
        check(answer["output_ids"] == case["greedy_ids"][:count], case["prompt"], answer)
        check(answer["cached_tokens"] == 0 and isinstance(answer["text"], str), answer)


def test_generate_text():
    out, _ = radish("generate", "-m", STORIES, "-p", "Once upon a time", "-n", 20, "--dtype", "f32")
    check(len(out) > 20 and out.endswith("\n"), out)
    answer = json.loads(radish("generate", STORIES, "-p", "Once upon a time", "-n", 20, "--dtype",
                               "f32", "--json")[0])
    check(answer["text"] + "\n" == out, answer, out)
    stopped = json.loads(radish("generate", STORIES, "-p", "Once upon a time", "-n", 50, "--dtype",
                                "f32", "--json", "--stop", answer["text"][8:14])[0])
    check(stopped["finish_reason"] == "stop" and stopped["text"] == answer["text"][:8], stopped)
    seeded = [radish("generate", STORIES, "-p", "Once", "-n", 20, "--temp", 1, "--seed", 3)[0]
              for _ in range(2)]
    check(seeded[0] == seeded[1])
    from_file, _ = radish("generate", STORIES, "-f", "-", "-n", 20, "--dtype", "f32",
                          stdin=b"Once upon a time")
    check(from_file == out)


def test_logits_are_golden():
    for case in GOLDEN:
        out, _ = radish("logits", "-m", STORIES, "--ids", ids_text(case["prompt_ids"]), "--dtype",
                        "f32", "--json")
        logits = json.loads(out)["logits"]
        check(len(logits) == len(case["prompt_ids"]) and len(logits[0]) == 512)
        worst = max(abs(a - b) for a, b in zip(logits[-1], case["last_prompt_logits"]))
        check(worst < 1e-3, case["prompt"], worst)


def test_tokenize_is_golden():
    for vocabulary in sorted(MADE.glob("vocab-*.gguf")):  # all texts are in a unit test
        for case in json.loads(vocabulary.with_suffix(".json").read_text())[::100]:
            out, _ = radish("tokenize", "-m", vocabulary, "--json", "--file", "-",
                            stdin=case["text"].encode())
            check(json.loads(out)["ids"] == case["ids"], vocabulary.name, case)
    for vocabulary in sorted((DATA / "tokenizers").glob("*.gguf")):
        texts = (vocabulary.parent / (vocabulary.name + ".inp")).read_bytes()
        texts = texts.split(b"\n__ggml_vocab_test__\n")
        lines = (vocabulary.parent / (vocabulary.name + ".out")).read_text().split("\n")
        for text, line in list(zip(texts, lines))[::6]:  # all of them are in a unit test
            out, _ = radish("tokenize", "-m", vocabulary, "--json", "--file", "-",
                            stdin=text)
            check(json.loads(out)["ids"] == list(map(int, line.split())), vocabulary.name, text)
    out, _ = radish("tokenize", "-m", STORIES, "-p", "Once upon")
    check(len(out.splitlines()) >= 2 and "Once" in out, out)


def test_info():
    out, _ = radish("info", "-m", STORIES, "--json")
    info = json.loads(out)
    check(info["architecture"] == "llama" and info["supported"], info)
    check(info["num_tensors"] == 3 + 5 * 9, info)
    layer = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 172 + 2 * 64
    check(info["num_parameters"] == 2 * 512 * 64 + 5 * layer + 64, info["num_parameters"])
    check(info["metadata"]["llama.context_length"] == 512)
    out, _ = radish("info", STORIES, "--tensors")
    check("token_embd.weight" in out and "can serve it: yes" in out, out)
    check(not json.loads(radish("info", MADE / "vocab-gpt-2.gguf", "--json")[0])["supported"])


def test_info_knows_templates_and_pre_tokenizers():
    tiny = dict(arch="llama", layers=1, dim=32, ffn=32, heads=2, kv=2, hd=16, rope_dim=16,
                context=64, vocab=257)
    keys, text = Bpe([], "gpt-2").keys(), tiny_gguf.STR
    with tempfile.TemporaryDirectory(prefix="radish-info-") as tmp:
        path = Path(tmp) / "m.gguf"
        tiny_gguf.write(path, {**tiny, "vocabulary": keys + [
            ("tokenizer.chat_template", text, "{{ messages[0].content }}"),
            ("tokenizer.chat_templates", tiny_gguf.ARR, (text, ["tool_use"])),
            ("tokenizer.chat_template.tool_use", text, "{{ tools }}\n")]})
        info = json.loads(radish("info", path, "--json")[0])
        check(info["supported"] and info["chat_templates"] == ["default", "tool_use"], info)
        check("chat templates: default, tool_use\n" in radish("info", path)[0])
        check(radish("info", path, "--chat-template", "tool_use")[0] == "{{ tools }}\n")
        check("no chat template 'rag'" in radish("info", path, "--chat-template", "rag", want=1)[1])
        tiny_gguf.write(path, {**tiny, "vocabulary": [
            (k, t, "klingon" if k == "tokenizer.ggml.pre" else v) for k, t, v in keys]})
        info = json.loads(radish("info", path, "--json")[0])
        check(not info["supported"] and "'klingon'" in info["reason"], info["reason"])


def test_chat():
    turns = b"What is the capital of France?\n/stats\nWhat is the capital of Japan?\n/stats\n" \
            b"/help\n/reset\n/nonsense\n/quit\n"
    out, _ = radish("chat", TINY, "--system", "You are a helpful assistant.", stdin=turns)
    check("Paris" in out and "Tokyo" in out and "/reset" in out, out)
    stats = [line for line in out.splitlines() if line.startswith("last turn:")]
    cached = [int(line.split(", ")[1].split()[0]) for line in stats]
    check(len(stats) == 2 and cached[1] > cached[0] and cached[1] > 10, out)
    # Answers that were cut off, sampled or ended by a stop string are found again too.
    for flags in (["-n", 2], ["-n", 9, "--ignore-eos", "--temp", 3, "--seed", 5], []):
        out, _ = radish("chat", TINY, *flags, stdin=b"What is the capital of France?\n/stats\n" * 3)
        stats = [list(map(int, re.findall(r"(\d+) (?:prompt tokens|of them|tokens out)", line)))
                 for line in out.splitlines() if line.startswith("last turn:")]
        for (prompt, _, answer), (_, found, _) in zip(stats, stats[1:]):
            check(found >= prompt + answer - 1, flags, out)
    out, _ = radish("chat", TINY, "--stop", "ari", stdin=b"What is the capital of France?\n" * 2)
    check("ari" not in out and "P" in out, out)
    out, _ = radish("generate", TINY, "--chat", "-p", "What is the capital of France?")
    check("Paris" in out, out)


def test_a_full_conversation_says_what_helps():
    turns = b"What is the capital of France?\n" * 4 + b"/reset\nWhat is the capital of Japan?\n"
    out, err = radish("chat", TINY, "--context-length", 40, stdin=turns)
    full = "the conversation no longer fits the context of 40 tokens; /reset begins a new one"
    check(full in err and "Paris" in out, out, err)
    check(out.splitlines()[-2] == "the conversation is forgotten", out)
    check("Tokyo" in out.splitlines()[-1], out)
    out, err = radish("chat", TINY, "--context-length", 40, stdin=b"one two three " * 40)
    check("the prompt" in err and "/reset" not in err, err)  # it would not help


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *args, home="/dev/null", program=RADISH, env=None):  # where nothing can be made
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.environ.update(HOME=home, TERM="xterm", LC_ALL="C", **env or {})
            os.environ.pop("XDG_STATE_HOME", None)
            os.execv(program, [program, *map(str, args)])
        self.seen = ""

    def expect(self, words):
        """What came up to these words; they, and what comes behind, are for the next call."""
        while words not in self.seen:
            check(select.select([self.fd], [], [], HANG)[0], "no", words, "in", self.seen)
            self.seen += os.read(self.fd, 4096).decode()
        before, self.seen = self.seen.split(words, 1)
        return before

    def type(self, text):
        os.write(self.fd, text)

    def await_editor(self):
        """Until keys are its own: before, the terminal takes some for itself."""
        until = time.monotonic() + HANG
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            check(time.monotonic() < until, "no editor reads the terminal")
            time.sleep(0.001)

    def ended(self):
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return code


def test_ctrl_c_at_the_prompt_keeps_the_conversation():
    hint = "(Ctrl-D, /quit or Ctrl-C again leaves)"
    t = Terminal("chat", TINY)
    t.expect("radish-tiny, context 2048 tokens. /help lists the commands, Ctrl-D leaves.")
    t.expect("> ")
    t.type(b"What is the capital of France?\n")
    t.expect("Paris")
    t.expect("> ")
    for _ in range(2):  # not in a row: a command comes between
        t.type(b"half a li\x03")
        t.expect(hint)
        t.expect("> ")
        t.type(b"/stats\n")
        t.expect("last turn: ")
        t.expect("> ")
    t.type(b"\x03")
    t.expect(hint)
    t.expect("> ")
    t.type(b"\x03")
    check(t.ended() == 0)


def test_lines_are_edited_and_remembered():
    if b"libedit" not in subprocess.run(["ldd", RADISH], stdout=subprocess.PIPE).stdout:
        skip("radish was built without libedit")
    with tempfile.TemporaryDirectory() as home:
        t = Terminal("chat", TINY, home=home)
        t.expect("> ")
        t.await_editor()
        t.type(b"What is the cxpital of France?")
        t.type(b"\x01" + b"\x1b[C" * 13 + b"\x04a\n")  # to the front, 13 to the right, delete, a
        t.expect("Paris")
        check(re.search(r"\[\d+ prompt tokens, 0 cached; .* tokens out, ", t.expect("> ")))
        t.await_editor()
        t.type(b"/st\t\n")  # completed
        t.expect("last turn: ")
        t.expect("> ")
        t.await_editor()
        t.type(b"What is the capital\\\nof Germany?\n")
        t.expect("Berlin")
        t.expect("> ")
        t.await_editor()
        for line in "/system Grüße, 東京 €\x7fE", "/system":  # a delete takes a whole character
            t.type(line.encode() + b"\n")
            t.expect("now" if " " in line else "Grüße, 東京 E\r\n")
            t.expect("> ")
            t.await_editor()
        t.type(b"/quit\n")
        check(t.ended() == 0)
        history = Path(home, ".local/state/radish/chat_history")
        check(history.stat().st_mode & 0o077 == 0)
        t = Terminal("chat", TINY, "--no-figures", home=home)
        t.expect("> ")
        t.await_editor()
        t.type(b"\x1b[A" * 6 + b"\n")  # six lines up: the first
        t.expect("capital of France?")
        t.expect("Paris")
        check("prompt tokens" not in t.expect("> "))
        t.await_editor()
        t.type(b"\x04")
        check(t.ended() == 0)


def test_what_a_model_or_a_file_says_drives_no_terminal():
    evil = "a\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r\x7fb\tc 東"
    shown = "a^[]0;title^G^[[2J<U+009B>31m<U+202E>^M^?b\tc 東"
    with tempfile.TemporaryDirectory() as tmp:
        model, script = Path(tmp, "m.gguf"), Path(tmp, "script.json")
        double.write_model(model, template=double.CHATML + "{# \x1b[31m #}")
        script.write_text(json.dumps([{"when": "hello", "say": evil}]))
        env = {"RADISH_SCRIPT": str(script)}
        t = Terminal("chat", model, program=double.DOUBLE, env=env)
        t.expect("> ")
        t.type(b"hello\n")
        t.expect(f"{shown}\r\n")
        t.expect("> ")
        t.type(b"/quit\n")
        check(t.ended() == 0)
        # A file gets what was said, byte by byte.
        done = subprocess.run([double.DOUBLE, "chat", model], input=b"hello\n", capture_output=True,
                              env={**os.environ, **env})
        check(done.stdout.decode() == f"{evil}\n", done)
        t = Terminal("info", model, "--chat-template", "default")
        t.expect("{# ^[[31m #}")
        check(t.ended() == 0)


def test_a_conversation_is_saved_and_goes_on():
    with tempfile.TemporaryDirectory() as tmp:
        file = Path(tmp, "c.json")
        out, err = radish("chat", TINY, stdin=f"/retry\nWhat is the capital of France?\n/retry\n/stats\n"
                          f"/system You are kind.\n/system\n/save {file}\n/save\n/quit now\n".encode())
        check(out.count("Paris") == 2 and "nothing was asked yet" in out and "You are kind.\n" in out, out)
        check("2 messages are in" in out and "/save FILE" in out and "takes nothing" in out, out)
        prompt, cached = map(int, re.search(r"turn: (\d+) prompt tokens, (\d+) of", out).groups())
        check(cached == prompt - 1, out)  # asked again, all but the last token is there
        saved = json.loads(file.read_text())
        check([m["role"] for m in saved["messages"]] == ["system", "user", "assistant"], saved)
        out, _ = radish("chat", TINY, "--load", file, stdin=b"What is the capital of Japan?\n/stats\n")
        again, _ = radish("chat", TINY, stdin=f"/load {file}\nWhat is the capital of Japan?\n".encode())
        check("Tokyo" in out and "Tokyo" in again, out, again)
        check(int(re.search(r"turn: (\d+) prompt", out)[1]) > prompt + 8, out)
        long = "day " * 2500  # a question that is refused leaves what was loaded alone
        out, err = radish("chat", TINY, "--load", file, stdin=f"{long}\n/save {file}\n".encode())
        check("2 messages are in" in out, out)
        check("no longer fits the context" in err and json.loads(file.read_text()) == saved, err)
        for text, words in (("{", "line 1"), ("{}", 'no "messages"'), ('{"messages": [1, 2]}', "message 1"),
                            ('{"messages": [{"role": "user", "content": "a"}]}', "without an answer"),
                            ('{"messages": [{"role": "user", "content": []}, {}]}', "no text"),
                            ('{"messages": [{"role": "system", "content": ""}, {"role": "assistant"}, 1]}',
                             "'user' is expected")):
            file.write_text(text)
            _, err = radish("chat", TINY, "--load", file, stdin=b"", want=1)
            check(words in err, text, err)
        _, err = radish("chat", TINY, stdin=f"/load {tmp}\n/load {tmp}/none\n/save {tmp}\n".encode())
        check(err.count("radish: ") == 3 and "No such file" in err, err)


def test_a_running_server_is_looked_at():
    with Server(TINY, "--admin-api-key", "secret") as s:
        url = f"http://127.0.0.1:{s.port}"
        for question in ("What is the capital of France?", "What is the capital of Japan?"):
            body = {"messages": [{"role": "user", "content": question}], "max_tokens": 3}
            s.raw("POST", "/v1/chat/completions", json.dumps(body), {"Authorization": "Bearer secret"})
        key = {"RADISH_API_KEY": "secret"}
        out, _ = radish("top", url, "--once", env=key)
        check("radish-tiny" in out and "first token" in out and "nobody asks" in out, out)
        found = float(re.search(r"device ([\d.]+) %", out)[1])
        check(10 < found < 90 and "\033" not in out, out)
        out, _ = radish("inspect", "cache", f"127.0.0.1:{s.port}", "--api-key", "secret")
        check(out.count("├─") == 1 and out.count("└─") >= 1 and " 1 hit  " in out, out)
        node = re.search(r"#(\d+)  device  evictable", out)[1]
        out, _ = radish("inspect", "cache", url, "--node", node, env=key)
        check("why " in out and "evict" in out or "goes first" in out, out)
        tree = json.loads(radish("inspect", "cache", url, "--json", "--limit", 2, env=key)[0])
        check(len(tree["nodes"]) == 2 < tree["nodes_total"], tree)
        out, _ = radish("inspect", "cache", url, "--limit", 1, env=key)
        check("nodes more with" in out, out)
        _, err = radish("inspect", "cache", url, "--node", node, "--under", node, env=key, want=2)
        check("--under" in err, err)
        check(radish("health", url)[0] == f"{url} is well\n")  # without a key
        for args, words in ((["top"], "the server answers 401"), (["health", f"{url}/no"], "the server answers 404"),
                            (["health", "http://127.0.0.1:1"], "nobody answers"), (["inspect", "cache", "--node", "999", url], "40"),
                            (["top", "http://127.0.0.1:1"], "nobody answers at 127.0.0.1:1"),
                            (["top", f"https://127.0.0.1:{s.port}"], "TLS")):
            if len(args) == 1:
                args.append(url)
            _, err = radish(*args, want=1)
            check(words in err and err.startswith("radish: ") and err.count("\n") == 1, args, err)
        _, err = radish("top", "gopher://x", want=2)
        check("no URL of a server" in err, err)
        os.environ.update(key)
        t = Terminal("top", url, "--interval", "0.1")
        t.expect("tokens/s")
        t.expect("between tokens")
        t.expect("tokens/s")
        t.type(b"q")
        t.expect("\033[?1049l")  # the page that was there before
        check(t.ended() == 0)
        del os.environ["RADISH_API_KEY"]
    class Quiet(http.server.BaseHTTPRequestHandler):  # 403 in bad words, or 501
        def do_GET(self):
            if not self.path.startswith("/bad/"):
                return self.send_error(501)
            body = json.dumps({"error": {"message": "no\n\033[31mway"}}).encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        _, err = radish("inspect", "cache", f"http://127.0.0.1:{other.server_port}/a/b", want=1)
        check("is it a radish?" in err and "/a/b/inspect/tree" in err, err)
        _, err = radish("top", f"http://127.0.0.1:{other.server_port}/bad", want=1)
        check(err == "radish: the server answers 403: no ?[31mway\n", err)
        other.shutdown()


def test_interrupt_ends_an_answer():
    for _ in range(5):
        process = subprocess.Popen([RADISH, "generate", str(STORIES), "-p", "Once", "-n", "480",
                                    "--ignore-eos", "--threads", "1"], stdout=subprocess.PIPE)
        check(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=HANG)
        if process.returncode == 0:
            return
        # On a busy machine the whole answer may be there before the signal.
        check(process.returncode == -signal.SIGINT, process.returncode)
    check(False, "five answers ended before they could be interrupted")


def test_a_trace_is_replayed_under_every_policy():
    trace = Path(tempfile.mkdtemp()) / "trace.jsonl"
    trace.write_text("".join(json.dumps({"input_length": 512 * len(ids), "hash_ids": ids}) + "\n"
                             for ids in ([1, 2], [3, 4], [1, 2], [5, 6], [3, 4], [1, 2])))
    policies = ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru", "cost")
    flags = [word for p in policies for word in ("--policy", p)]
    cells = json.loads(radish("replay", trace, "--capacity-blocks", 4, "--json", *flags)[0])["cells"]
    check([c["policy"] for c in cells] == list(policies), cells)
    hits = {c["policy"]: c["hit_blocks"] for c in cells}
    check(hits["lru"] == 2 and hits["lfu"] == 4 and hits["slru"] == 2, hits)
    once = json.loads(radish("replay", trace, "--capacity-blocks", 4, "--json", "--policy", "slru",
                             "--radix-eviction-policy-config", '{"protected_threshold":1}')[0])
    check(once["cells"][0]["hit_blocks"] == 4, once)
    out, err = radish("replay", trace, "--capacity-tokens", 1, want=1)
    check(out == "" and "capacity" in err, out, err)  # no head of a table without a line
    trace.unlink()
    trace.parent.rmdir()


def test_errors_are_one_line():
    for args, code, words in (
            ((), 2, ""),
            (("nonsense",), 2, "no command"),
            (("generate",), 2, "-m"),
            (("generate", STORIES), 2, "-p"),
            (("generate", STORIES, "-p", "a", "--ids", "1"), 2, "one of"),
            (("generate", STORIES, "--ids", "1,x"), 2, "numbers"),
            (("generate", STORIES, "-p", "a", "--temp", "hot"), 2, "number"),
            (("generate", STORIES, "-p", "a", "--wrong"), 2, "--wrong"),
            (("generate", STORIES, "-p", "a", "--dtype", "f64"), 2, "dtype"),
            (("generate", "/nowhere.gguf", "-p", "a"), 1, "/nowhere.gguf"),
            (("generate", ROOT / "README.md", "-p", "a"), 1, ""),
            (("generate", STORIES, "--ids", "512"), 1, "vocabulary"),
            (("generate", STORIES, "--ids", ids_text([1] * 600)), 1,
             "the prompt has 600 tokens, the context is 512 tokens long"),
            (("generate", STORIES, "-p", "a", "-n", "-7"), 2, "from -1 to 1000000000, not '-7'"),
            (("generate", STORIES, "-p", "a", "--temp", "-1"), 2, "a number from 0 to 100,"),
            (("generate", STORIES, "-p", "a", "--seed", "x"), 2, "a whole number from 0 on,"),
            (("logits", STORIES, "--ids", "512"), 1, "vocabulary"),
            (("logits", STORIES, "--ids", ids_text([1] * 600)), 1,
             "the prompt has 600 tokens, the context is 512 tokens long"),
            (("info", "/nowhere.gguf"), 1, "/nowhere.gguf"),
            (("serve", STORIES, "--port", "99999"), 2,
             "--port wants a whole number from 0 to 65535"),
            (("serve", STORIES, "--served-model-name", ""), 2, "--served-model-name"),
            (("serve", STORIES, "--served-model-name", "caf\udce9"), 2, "UTF-8"),
            (("serve", STORIES, "--served-model-name", "a\x1b[2J"), 2, "controls"),
            (("serve", STORIES, "--report-cached-tokens", "some"), 2, "rounded:N"),
            (("serve", STORIES, "--report-cached-tokens", "rounded:0"), 2, "rounded:N"),
            (("serve", STORIES, "--report-cached-tokens", "rounded:4x"), 2, "rounded:N"),
            (("serve", STORIES, "--host", "nowhere"), 1, "address"),
            # What the engine says of its parameters is said of the flags.
            (("serve", STORIES, "--context-length", "513"), 1, ": --context-length 513 is more than the model's 512"),
            (("serve", STORIES, "--max-itl-ms", "9", "--chunked-prefill-size", "-1"), 1,
             ": --max-itl-ms needs prompts in chunks, and --chunked-prefill-size is -1"),
            (("serve", STORIES, "--kv-cache-dtype", "page_size"), 1, ": --kv-cache-dtype is auto, f32, bf16, f16, fp8_e4m3, "
             "fp8_e5m2 or int8, not 'page_size'"),
            (("serve", STORIES, "--hicache-write-policy", "write_back"), 1, ": --hicache-write-policy needs "
             "--enable-hierarchical-cache: without"),
            (("serve", STORIES, "--radix-eviction-policy", "cost", "--radix-eviction-policy-config",
              '{"cost_half_life_percent": 0}'), 2, "cost_half_life_percent"),
            (("serve", "no/page_size"), 1, "cannot open no/page_size:"),
            (("serve", STORIES, "--schedule-low-priority-values-first"), 2,
             "needs --enable-priority-scheduling or --schedule-policy priority"),
            (("serve", STORIES, "--schedule-low-priority-values-first", "--schedule-policy", "lof"),
             2, "needs --enable-priority-scheduling"),
            # With either of them the next mistake is the one that is named.
            (("serve", STORIES, "--schedule-low-priority-values-first", "--schedule-policy",
              "priority", "--host", "nowhere"), 1, "address"),
            (("serve", STORIES, "--schedule-low-priority-values-first",
              "--enable-priority-scheduling", "--host", "nowhere"), 1, "address"),
            (("serve", STORIES, "--chunked-prefill-size", "-1", "--max-itl-ms", "500"), 1,
             "--max-itl-ms needs prompts in chunks"),
            (("serve", STORIES, "--radix-eviction-policy", "clairvoyant"), 2, "slru"),
            (("serve", STORIES, "--radix-eviction-policy", "user"), 2, "library"),
            (("serve", STORIES, "--radix-eviction-policy", "slru",
              "--radix-eviction-policy-config", '{"threshold":4}'), 2, "protected_threshold"),
            (("serve", STORIES, "--radix-eviction-policy", "slru",
              "--radix-eviction-policy-config", '{"protected_threshold":0}'), 2, "whole number"),
            (("serve", STORIES, "--radix-eviction-policy-config", '{"protected_threshold":4}'), 2,
             "an option of slru"),
            (("serve", STORIES, "--radix-eviction-policy-config", "[1"), 2, "JSON object"),
            (("replay", "/nowhere", "--policy", "clairvoyant"), 2, "slru"),
            (("chat", STORIES), 1, "chat")):
        out, err = radish(*args, want=code)
        if args:
            check(out == "", args, out)
            lines = [line for line in err.strip().splitlines() if "this CPU has AMX" not in line]
            check(len(lines) == 1 and words in lines[0], args, err)


def test_a_config_file_holds_options():
    with tempfile.TemporaryDirectory() as tmp:
        config = Path(tmp) / "radish.conf"
        config.write_text(f"# a service\n\nmodel-path = {STORIES}\n  port=0 \r\nshared-cache = false\n"
                          "served-model-name = first\nserved-model-name = the second\n"
                          "max-total-tokens = 700\nenable-hierarchical-cache")
        with Server(None, "--config", config, "--max-total-tokens", "900") as server:
            names = [model["id"] for model in server.get("/v1/models")["data"]]
            info = server.get("/server_info")
            check(names == ["first", "the second"], names)
            check(info["max_total_num_tokens"] == 900, info)
            check("host tier" in server.banner, server.banner)
        # A model on the command line is not a second one.
        with Server(TINY, "--config", config, "--served-model-name", "third") as server:
            names = [model["id"] for model in server.get("/v1/models")["data"]]
            check(names == ["first", "the second", "third"], names)
        for text, words in (("prot = 1", ":1: 'prot': there is no such option"),
                            ("\nport = x", ":2: --port wants a whole number from 0 to 65535"),
                            ("port", ":1: 'port': it wants a value"),
                            ("shared-cache = maybe", "alone, or true, or false"),
                            ("--port = 3", ":1: a line is the name of an option without dashes"),
                            ("port =", ":1: a line is"), ("= 3", ":1: a line is"),
                            ("port 3", ":1: a line is"), ("po\0rt = 3", "byte 0"),
                            ("stop-\n" * 200000, "longer than"),
                            ("allow-host = a\n" * 17, ":17: --allow-host is given too often"),
                            ("config = other", "a config file names no other")):
            config.write_text(text)
            _, err = radish("serve", "--config", config, want=2)
            check(words in err and err.count("\n") == 1, text[:40], err)
        _, err = radish("serve", "--config", tmp, want=2)
        check("cannot read" in err, err)
        config.write_text("# nothing")
        _, err = radish("serve", "--config", config, "--config", config, want=2)
        check("given twice" in err, err)


def test_version_tells_the_build_and_the_machine():
    nowhere = {**os.environ, "RADISH_LIBCUDA": "/nowhere/libcuda.so.1", "RADISH_ISA": "scalar"}

    def said(*args, env=nowhere):
        return subprocess.run([RADISH, *args], env=env, capture_output=True, text=True)

    done = said("--version")
    lines = done.stdout.splitlines()
    check(done.returncode == 0 and re.fullmatch(r"radish \d+\.\d+\.\d+", lines[0]), done)
    told = dict(line.split(": ", 1) for line in lines[1:])
    check(re.match(r"(gcc|clang) \d+\.\d+\.\d+, ", told["build"]), told)
    check("libedit" in told["parts"] and "libzmq" in told["parts"], told)
    check(told["cpu"].startswith(os.uname().machine + ", "), told)
    check(told["kernels"].startswith("products scalar, attention cpu-scalar, norms portable"), told)
    check("RADISH_ISA=scalar" in told["kernels"] and told["instructions"] == "scalar", told)
    check(told["gpu"].startswith("none: ") and "/nowhere/libcuda.so.1" in told["gpu"], told)
    for args in (["version"], ["-V"]):
        check(said(*args).stdout == done.stdout, args)
    check("products scalar" not in said("version", env={**nowhere, "RADISH_ISA": ""}).stdout or
          os.uname().machine != "x86_64")
    check(said("version", "now").returncode == 2)
    wrong = said("version", env={**nowhere, "RADISH_ISA": "mmx"})
    check(wrong.returncode == 1 and "RADISH_ISA is" in wrong.stderr, wrong)


NAMED = ("schedule-policy", "radix-eviction-policy", "kv-cache-dtype", "hicache-write-policy",
         "hicache-mem-layout", "hicache-eviction-policy", "hicache-storage-prefetch-policy", "hicache-storage-mode")
TIERS = ("--enable-hierarchical-cache", "--hicache-storage-backend", "file:/nowhere/pages")

COMPLETE = """
source /dev/stdin
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_radish
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_bash_completes_words():
    script, _ = radish("completion", "bash")

    def completed(*words, folder=None):
        done = subprocess.run(["bash", "-c", COMPLETE, "bash", "radish", *words], input=script, cwd=folder,
                              capture_output=True, text=True)
        check(done.returncode == 0 and done.stderr == "", words, done)
        return set(done.stdout.split("\n")) - {""}

    commands = set(re.findall(r"^  (\w+) {2,}", radish("--help")[0], re.M))
    check(completed("") == commands | {"--help", "--version"}, completed(""))
    check(completed("se") == {"serve"} and completed("help", "to") == {"tokenize", "top"})
    check(completed("inspect", "") == {"cache", "store", "--help"})
    check(completed("completion", "") == {"bash", "zsh", "fish"})
    check(completed("man", "inspect") == {"inspect-cache", "inspect-store"} and completed("man", "serve", "") == set())
    # All options that the manual has, and no others.
    for command in sorted(commands - {"help", "inspect"}) + ["inspect cache", "inspect store"]:
        manual = radish(*command.split(), "--help")[0]
        options = set(re.findall(r"^  (?:-\w, |    )(--[\w-]+)", manual, re.M))
        options |= set(re.findall(r"^  (-\w), ", manual, re.M)) | {"--help"}
        if command != "completion":
            check(completed(*command.split(), "-") == options, command, completed(*command.split(), "-"))
    check(completed("serve", "x.gguf", "--page") == {"--page-size"})
    check(completed("inspect", "store", "--ver") == {"--verify"})
    # Values: one of some, in both ways to write it; a number; and then a word again.
    check(completed("serve", "--dtype", "") == {"auto", "f32", "bf16", "q8_0"})
    check(completed("chat", "--device", "c") == {"cpu", "cuda"})
    check(completed("serve", "--log-format", "=", "j") == {"json"})
    check(completed("serve", "--log-format", "=") == {"text", "json"})
    check(completed("serve", "--log-format=j") == {"--log-format=json"})
    check(completed("serve", "--port", "") == set() and completed("top", "") == set())
    # Of names all that there are, which is what is said of a wrong one.
    for command, name in [("serve", name) for name in NAMED] + [("replay", "policy"), ("replay", "router")]:
        more = TIERS if name.startswith("hicache") else ()
        said = subprocess.run([RADISH, command, TINY, *more, f"--{name}", "wrong"], capture_output=True, text=True).stderr
        there_are = re.search(r"(?:there are|is none of|is) (.*?)(?:, not| \(radish|\n)", said)
        check(there_are, said)
        names = set(re.split(", | and | or ", there_are[1])) | ({"opt"} if name == "policy" else set())
        words = completed(command, f"--{name}", "")
        check(len(names) > 1 and words == names, name, words, said)
        check(f"--{name}" in said or name not in ("hicache-eviction-policy", "kv-cache-dtype"), said)
    check(completed("serve", "--tool-call-parser", "qwen3") == {"qwen3_coder"})
    check({"auto", "none", "qwen3"} < completed("serve", "--reasoning-parser", ""))
    check(completed("nothing", "") == set())
    with tempfile.TemporaryDirectory() as tmp:
        for name in ("a model.gguf", "b.gguf", "a$x"):
            (Path(tmp) / name).touch()
        check(completed("serve", "", folder=tmp) == {"a model.gguf", "b.gguf", "a$x"})
        check(completed("serve", "-m", "a", folder=tmp) == {"a model.gguf", "a$x"})
        check(completed("generate", "--chat", "b", folder=tmp) == {"b.gguf"})
    check("bashcompinit" in radish("completion", "zsh")[0])
    for args in (("completion",), ("completion", "csh")):
        check("bash, zsh or fish" in radish(*args, want=2)[1])


def test_fish_completes_the_same():
    script = radish("completion", "fish")[0]
    manual = radish("serve", "--help")[0]
    said = re.findall(r"^complete -c radish -n '__radish_is serve'(?: -s (\w))? -l ([\w-]+)(.*) -d '", script, re.M)
    check([(letter, name) for letter, name, _ in said] == re.findall(r"^  (?:-(\w), |    )--([\w-]+)", manual, re.M), said)
    how = {name: more for _, name, more in said}
    check(how["model-path"] == " -rF" and how["port"] == " -x" and how["attn-ref"] == "", how)
    check(how["log-format"] == " -x -a 'text json'" and how["device"] == " -x -a 'auto cpu cuda'", how)
    fish = shutil.which("fish")
    if not fish:
        return  # what the lines do is tried where there is one

    def completed(line):
        done = subprocess.run([fish, "--no-config", "-c", f"{script}\ncomplete -C {shlex.quote(line)}"],
                              capture_output=True, text=True)
        check(done.returncode == 0 and done.stderr == "", line, done)
        return {found.split("\t")[0] for found in done.stdout.splitlines()}

    check(completed("radish se") == {"serve"} and completed("radish help to") == {"tokenize", "top"})
    check(completed("radish inspect ") == {"cache", "store"})
    check(completed("radish inspect store --ver") == {"--verify"})
    check(completed("radish serve --log-format ") == {"text", "json"})
    check(completed("radish completion ") == {"bash", "zsh", "fish"})
    check({"inspect-cache", "serve"} <= completed("radish man ") and "inspect" not in completed("radish inspect "))
    check(completed("radish serve x.gguf --page") == {"--page-size"})


def test_output_that_cannot_be_written_is_an_error():
    for args in (["--help"], ["version"], ["serve", "--help"], ["help", "chat"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([RADISH, *args], stdout=full, stderr=subprocess.PIPE)
        check(done.returncode == 1 and b"cannot write" in done.stderr, args, done)


def test_help_is_a_manual():
    for command in ("serve", "chat", "generate", "tokenize", "logits", "info"):
        out, _ = radish(command, "--help")
        check(out.startswith("usage: radish " + command) and "--model-path" in out, out)
        check(radish("help", command)[0] == out)
    # A number whose 0 is not 0 says so.
    for command, zeros in (("serve", 28), ("chat", 2), ("generate", 2), ("logits", 1)):
        out = " ".join(radish(command, "--help")[0].split())
        check(out.count("0 = default") == zeros, command, out)
    check("Default -1." in radish("chat", "--help")[0])
    check("Default 128." in radish("generate", "--help")[0])
    check("serve" in radish("--help")[0] and radish("version")[0].startswith("radish "))


if __name__ == "__main__":
    run(globals())
