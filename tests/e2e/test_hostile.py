#!/usr/bin/env python3
"""Bad input gets a clear error, and the server goes on: after every case a good request
is answered as before, memory is where it was, and at the end every slot is free or cached.

RADISH_TEST_LONG=1: more connections, and a body of 1 GB that is really sent."""
import http.client
import json
import select
import socket
import struct
import subprocess
import tempfile
import threading
import time

from radish_e2e import HANG, LONG, RADISH, STORIES, Server, run

GB = 1 << 30

GOOD = {"prompt": [1, 403, 407], "max_tokens": 8, "temperature": 0, "ignore_eos": True,
        "return_token_ids": True}


def good_answer(server):
    return server.ask("/v1/completions", GOOD)["choices"][0]["token_ids"]


def rss_mb(server):
    return server.resident_bytes() / (1 << 20)


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


def read_all(s):
    """What comes until the end or a reset."""
    data = b""
    try:
        while chunk := s.recv(65536):
            data += chunk
    except OSError:
        pass
    return data


def expect_json_error(answer, status, word=""):
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), (status, answer[:300])
    message = json.loads(body)["error"]["message"]
    assert word in message, (word, message)


def huge_body(server, want):
    """1 GB announced: refused before it comes. Sent all the same (long: all of it), with a length
    or in chunks: refused, dropped, and the memory does not grow."""
    before = rss_mb(server)
    megabytes = 1024 if LONG else 100
    part = b" " * (1 << 20)
    for head, frame in ((b"Content-Length: %d" % GB, b"%b"),
                        (b"Transfer-Encoding: chunked", b"100000\r\n%b\r\n")):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.settimeout(HANG)
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n" % head)
            if b"Length" in head: # the answer is there before the body
                assert select.select([s], [], [], HANG)[0]
            sent = 0
            try:
                for _ in range(megabytes):
                    s.sendall(frame.replace(b"%b", part))
                    sent += 1
            except OSError: # it has waited for long enough
                assert sent > 64
            else:
                expect_json_error(read_all(s), 413, "longer than")
            print(f"  {head.decode()}: {sent} MB taken, {rss_mb(server) - before:+.1f} MB held")
    assert good_answer(server) == want
    assert rss_mb(server) < before + 80, (before, rss_mb(server)) # 64 MiB of chunks may stay


def vanishing_clients(server, want):
    """Clients that go away in mid-stream: their requests are aborted."""
    body = json.dumps({"prompt": [1, 5, 9], "max_tokens": 400, "temperature": 0, "stream": True,
                       "ignore_eos": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
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
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le")
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


COMMON = {"temperature": "int real", "top_p": "int real", "min_p": "int real", "top_k": "int",
          "frequency_penalty": "int real", "presence_penalty": "int real",
          "repetition_penalty": "int real", "stop": "str list", "stop_token_ids": "list",
          "ignore_eos": "bool", "skip_special_tokens": "bool", "n": "int", "logit_bias": "obj"}
ROUTING = {"priority": "int", "extra_key": "str", "cache_salt": "str", "stream": "bool"}
OPENAI = {**COMMON, **ROUTING, "max_tokens": "int", "seed": "int", "user": "str", "model": "str",
          "min_tokens": "int", "return_token_ids": "bool", "response_format": "obj",
          "stream_options": "obj"}
ENDPOINTS = {
    "/v1/completions": ({"prompt": [1, 5], "max_tokens": 1},
                        {**OPENAI, "prompt": "str list", "logprobs": "int"}),
    "/v1/chat/completions": ({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
                             {**OPENAI, "messages": "list", "logprobs": "bool",
                              "top_logprobs": "int", "max_completion_tokens": "int"}),
    "/generate": ({"input_ids": [1, 5], "sampling_params": {"max_new_tokens": 1}},
                  {**ROUTING, "input_ids": "list", "sampling_params": "obj list",
                   "return_logprob": "bool", "top_logprobs_num": "int list",
                   **{f"sampling_params.{k}": v for k, v in COMMON.items()},
                   "sampling_params.max_new_tokens": "int"}),
}
WRONG = {"str": "x", "real": 1.5, "bool": True, "list": [{"a": []}], "obj": {"a": [1]}}
NUMBERS = ["NaN", "Infinity", "-Infinity", "1e400", "-1e308", "99999999999999999999",
           "-9223372036854775808", "1e-400", "0x10", "01", "1" * 5000]


def with_field(good, field, text):
    """The request as JSON with `field` set to the JSON text."""
    body = json.loads(json.dumps(good))
    at, *inner = field.split(".")
    if inner:
        body[at][inner[0]] = "@"
    else:
        body[at] = "@"
    return json.dumps(body).replace('"@"', text, 1).encode()


def wrong_types(server, want):
    """Every field of every endpoint with a value of every wrong type, and with numbers that are
    none, or too large: 400 in words, or taken; never a 500, never silence."""
    connection = server.connect()
    asked = {}
    for path, (good, fields) in ENDPOINTS.items():
        for field, kinds in fields.items():
            cases = [(k, json.dumps(v)) for k, v in WRONG.items() if k not in kinds]
            for kind, text in cases + [("number", n) for n in NUMBERS] + [("bytes", '"\\udfff"')]:
                body = with_field(good, field, text)
                connection.request("POST", path, body)
                response = connection.getresponse()
                answer = response.read()
                asked[response.status] = asked.get(response.status, 0) + 1
                ok = (400,) if kind not in ("number", "bytes") or "a" in text else (200, 400)
                assert response.status in ok, (path, field, text[:40], response.status, answer)
                if response.status == 400:
                    assert json.loads(answer)["error"]["message"], (path, field, text[:40])
            body = with_field(good, field, '"@"').replace(b"@", b"\xc3\x28\xff")
            connection.request("POST", path, body)
            response = connection.getresponse()
            assert response.status == 400, (path, field, response.status)
            assert "byte" in json.loads(response.read())["error"]["message"], (path, field)
    connection.close()
    print("  answers:", asked)
    assert good_answer(server) == want


def deep_json(server, want):
    """Nesting and numbers of values past the limits: 400 at once."""
    c = "/v1/completions"
    for body in (b"[" * 1000000, b'{"a":' * 500000, b'{"prompt":' + b"[" * 63 + b"1" + b"]" * 63 +
                 b"}", b'{"prompt":[' + b"1," * 6000000 + b"1]}"):
        response, answer = server.raw("POST", c, body)
        assert response.status == 400, (response.status, answer[:200])
        assert json.loads(answer)["error"]["message"]
    assert good_answer(server) == want


class Others:
    """A good client beside the hostile ones: `with Others(server, want):` it asks all the time,
    gets the right answer each time, and at least once. In a flood it may come too slowly with
    its request to keep its place: then it is turned away, seldom, and asks again."""

    def __init__(self, server, want, turned_away=0):
        self.server, self.want, self.waits, self.wrong, self.done = server, want, [], [], False
        self.may_be_turned_away = turned_away
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        while not self.done:
            start = time.monotonic()
            try:
                if good_answer(self.server) != self.want:
                    self.wrong.append("another answer")
            except ConnectionError as e:
                self.may_be_turned_away -= 1
                if self.may_be_turned_away < 0:
                    self.wrong.append(repr(e))
            except Exception as e:
                self.wrong.append(repr(e))
            self.waits.append(time.monotonic() - start)
            time.sleep(0.01)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.done = True
        self.thread.join()
        self.waits.sort()
        print(f"  others: {len(self.waits)} requests, median "
              f"{self.waits[len(self.waits) // 2] * 1000:.0f} ms, worst {self.waits[-1] * 1000:.0f}")
        if kind is None:
            assert self.waits and not self.wrong, self.wrong[:3]


def slowloris(server, want):
    """Heads and bodies that trickle: 408 when the time is over, though a byte came just now."""
    count = 1000 if LONG else 100
    before = rss_mb(server)
    heads = (b"GET /health HTTP/1.1\r\nX-Slow: ",
             b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{\"text\"",
             b"POST /generate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n{")
    with Others(server, want):
        slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
        end, ended = time.monotonic() + HANG, 0
        for i, s in enumerate(slow):
            s.sendall(heads[i % 3])
        waiting = set(slow)
        while waiting and time.monotonic() < end:
            for s in select.select(list(waiting)[:900], [], [], 0.2)[0]:
                expect_json_error(read_all(s), 408, "seconds")
                waiting.remove(s)
                s.close()
                ended += 1
            for s in waiting:
                try:
                    s.send(b"x")
                except OSError:
                    pass
        assert ended == count, f"{ended} of {count} were ended"
    print(f"  {count} ended, {rss_mb(server) - before:+.1f} MB")
    assert rss_mb(server) < before + 20, rss_mb(server) - before


def half_closed(server, want):
    """A client that closes its side in the middle of a request is let go of at once; one that
    closes it after the request gets the answer to its end."""
    body = json.dumps({**GOOD, "max_tokens": 400, "stream": True}).encode()
    whole = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body), body)
    for part in (b"", whole[:10], whole[:60], whole[:-1], whole):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.settimeout(HANG)
            s.sendall(part)
            time.sleep(0.02)
            s.shutdown(socket.SHUT_WR)
            answer = read_all(s)
            assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") if part == whole else not answer, (
                part, answer[-200:])
    assert good_answer(server) == want
    server.wait_idle()


def byte_by_byte(server, want):
    body = json.dumps(GOOD).encode()
    whole = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
             b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(whole)):
            s.sendall(whole[i:i + 1])
        answer = read_all(s)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["token_ids"] == want


def pipelining(server, want):
    """Requests sent ahead are answered one by one, in their order; a bad one is in its place."""
    rounds = 200 if LONG else 40
    bodies = [json.dumps({**GOOD, "max_tokens": 1 + i % 4}).encode() for i in range(rounds)]
    bodies[rounds // 2] = b"{"
    data = b"".join(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" %
                    (len(b), b) for b in bodies)
    data += b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.settimeout(HANG)
        sender = threading.Thread(target=s.sendall, args=(data,))
        sender.start()
        f = s.makefile("rb")
        for i in range(rounds + 1):
            status = int(f.readline().split()[1])
            length = 0
            while (line := f.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split()[1])
            answer = json.loads(f.read(length))
            if i == rounds // 2:
                assert status == 400, status
            elif i < rounds:
                assert answer["choices"][0]["token_ids"] == want[:1 + i % 4], (i, answer)
            else:
                assert status == 200 and answer["status"] == "ok"
        sender.join()


def connection_flood(server, want):
    """More connections than there are places, held open: others get in all the same."""
    count = 10000 if LONG else 1000
    before = rss_mb(server)
    held = []
    with Others(server, want, turned_away=count // 300):
        for i in range(count):
            s = socket.create_connection(("127.0.0.1", server.port), timeout=HANG)
            if i % 3 == 1:
                s.sendall(b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Le")
            elif i % 3 == 2:
                s.sendall(b"\x16\x03\x01\x02\x00\x01\x00") # not HTTP at all
            held.append(s)
            if len(held) > 800: # our own descriptors are bounded too
                held.pop(0).close()
        time.sleep(0.5)
    for s in held:
        s.close()
    assert good_answer(server) == want
    print(f"  {count} connections, {rss_mb(server) - before:+.1f} MB")
    assert rss_mb(server) < before + 30, rss_mb(server) - before


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
                                 text=True, timeout=HANG)
            lines = [x for x in run.stderr.splitlines() if x.strip()]
            assert run.returncode == 1, (name, run.returncode, run.stderr[-500:])
            assert lines and len(lines[-1]) > 15, (name, run.stderr[-500:])
            print(f"{name:8} {lines[-1].replace(f.name, 'FILE')}")


def memory_goes_back(server, want):
    """Bodies whose JSON takes a hundred times their bytes: answered or refused in words, others are
    served, and the memory is the system's again soon after."""
    before = rss_mb(server)
    good = json.dumps(GOOD)[:-1].encode()
    body = good + b', "metadata": {"x": [' + b"{}," * 900000 + b"{}]}}"
    arguments = '{\\"a\\": [' + "{}," * 200000 + "{}]}"
    calls = ",".join('{"id": "c", "type": "function", "function": {"name": "f", "arguments": "%s"}}'
                     % arguments for _ in range(10))
    tools = ('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null,'
             ' "tool_calls": [%s]}], "max_tokens": 1}' % calls).encode()
    answers = []

    def send(path, bytes_):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG)
        connection.request("POST", path, bytes_)
        answer = connection.getresponse()
        answers.append((answer.status, answer.read()))
        connection.close()

    threads = [threading.Thread(target=send, args=args) for args in
               [("/v1/completions", body)] * 6 + [("/v1/chat/completions", tools)]]
    for thread in threads:
        thread.start()
    assert good_answer(server) == want
    for thread in threads:
        thread.join()
    assert len(answers) == 7 and all(status in (200, 413, 503) for status, _ in answers), answers
    assert sum(status == 413 and b"values of this request" in text for status, text in answers) == 1
    peak, deadline = rss_mb(server), time.monotonic() + HANG
    while rss_mb(server) > before + 40:
        assert time.monotonic() < deadline, (before, peak, rss_mb(server))
        time.sleep(0.05)
    print(f"  {peak - before:+.0f} MB, then {rss_mb(server) - before:+.0f} MB")
    assert good_answer(server) == want


def test_hostile_clients():
    with Server(STORIES, "--dtype", "f32", "--kv-populate-ahead", 0) as server:
        want = good_answer(server)
        assert len(want) == 8
        for case in (bad_requests, wrong_types, deep_json, huge_body, memory_goes_back,
                     vanishing_clients, many_connections, half_closed, byte_by_byte, pipelining):
            start = time.monotonic()
            case(server, want)
            print(f"{case.__name__}: ok, {time.monotonic() - start:.1f} s")
        server.wait_idle()


def test_hostile_crowds():
    with Server(STORIES, "--dtype", "f32", "--kv-populate-ahead", 0, "--timeout-request", 2,
                "--max-connections", 2000 if LONG else 300) as server:
        want = good_answer(server)
        for case in (slowloris, connection_flood):
            start = time.monotonic()
            case(server, want)
            print(f"{case.__name__}: ok, {time.monotonic() - start:.1f} s")
        server.wait_idle()


if __name__ == "__main__":
    run(globals())
