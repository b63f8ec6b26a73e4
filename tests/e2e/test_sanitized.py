#!/usr/bin/env python3
"""test_sanitized.py - the program as a user starts it, with the shipped model: streams, several
clients, clients that leave, bodies that are refused, tiers, and a stop by SIGTERM amid answers. It
ends with exit code 0.

It is short, as it is there for the programs of the asan and tsan presets: there a report ends it
with another code, and nothing of one may stand in its log.
"""
import json
import tempfile
import threading

from radish_e2e import TINY, Server, check, radish, run

MESSAGES = [{"role": "system", "content": "You are a helpful animal."}, {"role": "user", "content": "Who are you?"}]


def no_report(log):
    check("Sanitizer" not in log and "runtime error" not in log, log)


def chat(server, tokens=12, **more):
    return server.ask("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": tokens, "temperature": 0, **more})


def leave_early(server, path, body):
    """Reads the first bytes of a stream and closes the connection."""
    connection = server.connect()
    connection.request("POST", path, json.dumps({**body, "stream": True}))
    response = connection.getresponse()
    check(response.status == 200, response.status)
    response.read(20)
    connection.close()


def at_once(*calls):
    """Runs them in threads of their own; the first that fails is raised here."""
    wrong = []

    def guarded(call):
        try:
            call()
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


def test_requests_of_all_kinds():
    with tempfile.TemporaryDirectory(prefix="radish-sanitized-") as store:
        tiers = ("--enable-hierarchical-cache", "--hicache-storage-backend", "file:" + store)
        with Server(TINY, "--max-total-tokens", "2048", *tiers) as server:
            first = chat(server)["choices"][0]["message"]["content"]
            answers = []
            generate = {"text": "Once upon a time", "sampling_params": {"max_new_tokens": 200, "temperature": 0}}
            at_once(lambda: answers.append(chat(server)["choices"][0]["message"]["content"]),
                    lambda: server.stream("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 12}),
                    lambda: server.stream("/generate", {"text": "Hello", "sampling_params": {"max_new_tokens": 12}}),
                    lambda: server.ask("/v1/completions", {"prompt": "One, two", "max_tokens": 8, "n": 2,
                                                           "logprobs": 2}),
                    lambda: leave_early(server, "/generate", generate),
                    lambda: leave_early(server, "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 200}),
                    lambda: server.ask("/v1/completions", b"{", want=400),
                    lambda: server.raw("GET", "/metrics"))
            check(answers == [first], answers, first)
            server.wait_idle()
            server.raw("POST", "/flush_cache")
        no_report(server.log)


def test_a_stop_amid_answers():
    with tempfile.TemporaryDirectory(prefix="radish-sanitized-") as tmp:
        path = tmp + "/record"
        with Server(TINY, "--max-total-tokens", "2048", "--record", path) as server:
            connections = []
            for _ in range(3):
                connection = server.connect()
                connection.request("POST", "/generate", json.dumps(
                    {"text": "Once", "stream": True, "sampling_params": {"max_new_tokens": 200, "ignore_eos": True}}))
                connections.append(connection)
                connection.getresponse().read(20)
        for connection in connections:
            connection.close()
        no_report(server.log)
        told, log = radish("replay", path, "--sweep", "--threads", 4, "--json")
        check(json.loads(told)["replay"]["exact"], told)
        no_report(log)


def test_commands():
    _, log = radish("generate", "-m", TINY, "-p", "Once upon a time", "--max-new-tokens", "8")
    no_report(log)


if __name__ == "__main__":
    run(globals())
