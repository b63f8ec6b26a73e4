#!/usr/bin/env python3
"""Bad input gets a clear error, and the server goes on: after every case a good request
is answered as before, and at the end every slot is free or cached."""
import json
import socket
import struct
import subprocess
import tempfile
import threading
import time

from radish_e2e import RADISH, STORIES, Server, run, skip_unless

GOOD = {"prompt": [1, 403, 407], "max_tokens": 8, "temperature": 0, "ignore_eos": True,
        "return_token_ids": True}


def good_answer(server):
    return server.ask("/v1/completions", GOOD)["choices"][0]["token_ids"]


def rss_mb(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(x.split()[1]) for x in status if x.startswith("VmRSS")) / 1024


def expect(server, want, status, path, body, word=""):
    message = server.ask(path, body, status)["error"]["message"]
    assert message and word in message, f"no word of '{word}' in: {message}"
    assert good_answer(server) == want


def bad_requests(server, want):
    c = "/v1/completions"
    expect(server, want, 400, c, b"{\"prompt\": ", "JSON")
    expect(server, want, 400, c, b"[1,2,3]")
    expect(server, want, 400, c, b"{\"prompt\": \"\xff\xfe\"}")
    expect(server, want, 400, c, b"{\"prompt\": \"a\", \"prompt\": \"b\"}")
    expect(server, want, 400, c, b"[" * 100000)
    expect(server, want, 400, c, {"prompt": ""}, "empty")
    expect(server, want, 400, c, {"prompt": []}, "empty")
    expect(server, want, 400, c, {}, "prompt")
    expect(server, want, 400, c, {"prompt": [1, 99999]}, "99999")
    expect(server, want, 400, c, {"prompt": [1, -1]}, "-1")
    expect(server, want, 400, c, {"prompt": [1, 2.5]})
    expect(server, want, 400, c, {"prompt": [1] * 600}, "512")
    expect(server, want, 400, c, {"prompt": "word " * 3000}, "512")
    expect(server, want, 400, c, {"prompt": "a", "n": -1}, "n")
    expect(server, want, 400, c, {"prompt": "a", "n": 0}, "n")
    expect(server, want, 400, c, {"prompt": "a", "max_tokens": -5}, "max_tokens")
    expect(server, want, 400, c, {"prompt": "a", "temperature": -1}, "temperature")
    expect(server, want, 400, c, {"prompt": "a", "temperature": "hot"}, "temperature")
    expect(server, want, 400, c, {"prompt": "a", "top_p": 2}, "top_p")
    expect(server, want, 400, c, {"prompt": {"a": 1}})
    expect(server, want, 400, "/v1/chat/completions", {"messages": []}, "messages")
    expect(server, want, 400, "/v1/chat/completions", {"messages": [{"role": 5}]})
    expect(server, want, 400, "/generate", {"input_ids": [1, 99999]}, "99999")
    expect(server, want, 400, "/generate", {"text": "a", "input_ids": [1]})
    expect(server, want, 404, "/v1/nothing", {})
    server.get("/v1/completions", 405)


def huge_body(server, want):
    """100 MB announced and sent: refused, and the memory does not stay."""
    before = rss_mb(server)
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.settimeout(20)
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                  b"Content-Length: 104857600\r\n\r\n")
        answer = b""
        try:
            for _ in range(100):
                s.sendall(b" " * (1 << 20))
        except OSError:
            pass
        try:
            answer = s.recv(4096)
        except OSError:
            pass
        assert not answer or b" 413 " in answer, answer[:200]
    assert good_answer(server) == want
    assert rss_mb(server) < before + 80, (before, rss_mb(server))


def vanishing_clients(server, want):
    """Clients that go away in mid-stream: their requests are aborted."""
    body = json.dumps({"prompt": [1, 5, 9], "max_tokens": 400, "temperature": 0, "stream": True,
                       "ignore_eos": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    for i in range(40):
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(head + body[:len(body) if i % 4 else 20])
        if i % 2:
            s.recv(100)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    assert good_answer(server) == want
    server.wait_idle()


def many_connections(server, want):
    """1,000 connections that stay open and say nothing, or only half a request."""
    held = []
    for i in range(1000):
        s = socket.create_connection(("127.0.0.1", server.port))
        if i % 2:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le")
        held.append(s)
    assert good_answer(server) == want
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(good_answer(server)))
               for _ in range(64)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == [want] * 64
    for s in held:
        s.close()
    assert good_answer(server) == want


def test_bad_models():
    """Truncated and lying files end in one clear line and exit status 1."""
    data = STORIES.read_bytes()
    cases = {"empty": b"", "magic": b"GGML" + data[4:], "version": data[:4] + b"\x63" + data[5:],
             "half": data[:len(data) // 2], "head": data[:1000],
             "tensors": data[:8] + struct.pack("<Q", 1 << 60) + data[16:],
             "keys": data[:16] + struct.pack("<Q", 1 << 60) + data[24:],
             "string": data[:24] + struct.pack("<Q", 1 << 62) + data[32:],
             "arch": data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lamma", 1)}
    for name, content in cases.items():
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            f.write(content)
            f.flush()
            run = subprocess.run([RADISH, "serve", f.name, "--port", "1"], capture_output=True,
                                 text=True, timeout=60)
            lines = [x for x in run.stderr.splitlines() if x.strip()]
            assert run.returncode == 1, (name, run.returncode, run.stderr[-500:])
            assert lines and len(lines[-1]) > 15, (name, run.stderr[-500:])
            print(f"{name:8} {lines[-1].replace(f.name, 'FILE')}")


def test_hostile_clients():
    with Server(STORIES, "--dtype", "f32") as server:
        want = good_answer(server)
        assert len(want) == 8
        for case in (bad_requests, huge_body, vanishing_clients, many_connections):
            start = time.monotonic()
            case(server, want)
            print(f"{case.__name__}: ok, {time.monotonic() - start:.1f} s")
        server.wait_idle()


if __name__ == "__main__":
    skip_unless(STORIES)
    run(globals())
