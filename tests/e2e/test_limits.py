#!/usr/bin/env python3
"""What one request may take: an answer that takes too long ends in its protocol's way, and what it
held of the cache goes back; a stop that waits, and one that does not; a line in the log for each."""
import json
import re
import signal
import threading

from double import Double
from radish_e2e import HANG, check, run

ENDLESS = [{"when": "count", "say": "one two three ", "end": None, "delay_ms": 5},
           {"when": "hello", "say": "Hi."}]


def together(server, asked):
    """The answers to requests that run at the same time, as (status, text)."""
    answers = [None] * len(asked)

    def ask(i, path, body):
        response, text = server.raw("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answers[i] = response.status, text.decode()

    threads = [threading.Thread(target=ask, args=(i, *a)) for i, a in enumerate(asked)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return answers


def test_request_timeout():
    talk = [{"role": "user", "content": "count " * 40}]
    chat, message = {"messages": talk, "max_tokens": 20000}, {"model": "m", "max_tokens": 20000, "messages": talk}
    with Double(ENDLESS, "--request-timeout", 1, "--served-model-name", "*") as s:
        told = together(s, [
            ("/v1/chat/completions", chat), ("/v1/chat/completions", {**chat, "stream": True}),
            ("/v1/messages", message), ("/v1/messages", {**message, "stream": True}),
            ("/v1/responses", {"input": "count"}), ("/v1/responses", {"input": "count", "stream": True}),
            ("/api/chat", {"model": "m", "messages": talk, "stream": False}),
            ("/api/chat", {"model": "m", "messages": talk})])
        for status, text in told[::2]:
            check(status == 504 and "(--request-timeout)" in text, status, text)
        check(json.loads(told[2][1])["error"]["type"] == "timeout_error", told[2])
        check(list(json.loads(told[6][1])) == ["error"], told[6])
        for status, text in told[1::2]:
            check(status == 200 and "(--request-timeout)" in text[-600:], status, text[-600:])
        check('"type":"timeout_error"' in told[3][1].split("event: error")[1], told[3][1][-600:])
        check("error" in json.loads(told[7][1].strip().split("\n")[-1]), told[7][1][-300:])
        check(s.chat("hello")["choices"][0]["message"]["content"] == "Hi.")
        figures = s.wait_idle()  # every slot is free or cached
        check(figures["num_aborted"] == 8, figures)


def test_a_second_signal_ends_at_once():
    """The first one waits for what runs: with this time, for longer than anybody would."""
    with Double(ENDLESS, "--drain-timeout", 86400) as s:
        stream = s.connect()
        stream.request("POST", "/v1/chat/completions", json.dumps(
            {"messages": [{"role": "user", "content": "count"}], "max_tokens": 30000, "stream": True}))
        answer = stream.getresponse()
        check(b"data:" in answer.readline())
        s.process.send_signal(signal.SIGTERM)
        while True:  # until it listens no longer
            try:
                s.raw("GET", "/health")
            except OSError:
                break
        check(b"data:" in answer.readline() + answer.readline() and s.process.poll() is None)
        s.process.send_signal(signal.SIGTERM)
        s.process.wait(HANG)
        check(s.process.returncode == 0, s.process.returncode)
        answer.read()  # it has an end


def test_every_request_leaves_a_line_with_a_time():
    with Double(ENDLESS, "--log-level", "info", "--max-header-bytes", 2000) as s:
        check(s.raw("GET", "/nothing", None, {"X-Request-Id": "mine"})[0].getheader("X-Request-Id") == "mine")
        s.ask("/v1/messages", {"messages": 5}, want=400)
        check(s.raw("GET", "/health", None, {"X": "x" * 3000})[0].status == 431)
        s.chat("hello")
    for want in ("GET /nothing 404 .*request mine, from 127.0.0.1", "POST /v1/messages 400 ", "- - 431 .*refused",
                 "POST /v1/chat/completions 200 .*prompt tokens"):
        lines = re.findall(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z radish: info: " + want, s.log, re.M)
        check(len(lines) == 1, want, s.log)


if __name__ == "__main__":
    run(globals())
