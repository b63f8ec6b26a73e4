#!/usr/bin/python3
"""stall.py MODEL [--divide N] - how long a small request waits while others ask much of the server.

A client asks for /health again and again, 5 ms after each answer, on a connection of its own, while
another client sends what is costly; a row is the median, the 99th percentile and the worst. The last
row asks for /metrics beside 300 calls that wait for a flush. --divide: smaller requests. The program
is $RADISH. Aim: 20 ms. Exits with 1 when an answer is not what it should be."""
import argparse
import json
import os
import pathlib
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from radish_e2e import Server  # noqa: E402
import http.client  # noqa: E402


def post(port, path, body):
    """Sends a body and reads the answer in large pieces; returns its status and length."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    length = 0
    while part := answer.read(1 << 20):
        length += len(part)
    connection.close()
    return answer.status, length


def watch(port, path, done):
    """Seconds that each answer took, until `done` is set."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    times = []
    while not done.is_set() or len(times) < 100:
        begin = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        times.append(time.perf_counter() - begin)
        if answer.status != 200:
            raise AssertionError(f"{path}: {answer.status}")
        time.sleep(0.005)
    connection.close()
    return sorted(times)


def row(server, name, calls, path="/health", want=(200,)):
    """Prints a line of the table; `calls` are (path, body) that are sent side by side."""
    done, results = threading.Event(), []

    def send():
        threads = [threading.Thread(target=lambda c=c: results.append(post(server.port, *c))) for c in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done.set()

    sender = threading.Thread(target=send)
    sender.start()
    times = watch(server.port, path, done)
    sender.join()
    good = len(results) == len(calls) and all(status in want for status, _ in results)
    print(f"{name:44s} {path:8s} median {times[len(times) // 2] * 1e3:7.2f}  p99 "
          f"{times[len(times) * 99 // 100] * 1e3:7.2f}  worst {times[-1] * 1e3:7.2f} ms of {len(times)}"
          f"{'' if good else f'  FAILED {results[:3]}'}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--divide", type=int, default=1)
    a = parser.parse_args()
    ids = json.dumps({"prompt": [7] * (4_000_000 // a.divide), "max_tokens": 1})
    values = '{"messages": [{"role": "user", "content": "x"}], "metadata": [' + ",".join(
        ["{}"] * (4_000_000 // a.divide)) + "]}"
    choices = json.dumps({"messages": [{"role": "user", "content": "What is the capital of France?"}],
                          "n": 128 // min(a.divide, 32), "max_tokens": 120 // min(a.divide, 8), "logprobs": True,
                          "top_logprobs": 20, "ignore_eos": True})
    stops = json.dumps({"prompt": ["x"] * (1024 // a.divide), "max_tokens": 1,
                        "stop": [f"{i:02d}" + "y" * 1000 for i in range(64)]})
    with Server(a.model, "--threads", 1, "--max-queued-requests", 8192) as server:
        print(f"# {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.2f}; one thread computes", flush=True)
        good = row(server, "alone", [("/health", "{}")], want=(405,))
        # Longer than the context, and more than the memory of requests: both are read first.
        good &= row(server, f"a body of {len(ids) >> 20} MB of token ids", [("/v1/completions", ids)], want=(400,))
        good &= row(server, f"a body of {len(values) >> 20} MB of {{}}", [("/v1/chat/completions", values)],
                    want=(200, 400, 413))
        good &= row(server, "1,024 prompts x 64 stop strings", [("/v1/completions", stops)])
        good &= row(server, "an answer of 128 choices, 20 alternatives", [("/v1/chat/completions", choices)])
        waiting = [("/flush_cache?timeout=2", "")] * (300 // a.divide)
        long_answer = ("/v1/completions", json.dumps({"prompt": "x", "max_tokens": 1500, "ignore_eos": True}))
        good &= row(server, "300 calls that wait for a flush", waiting + [long_answer], "/metrics",
                    want=(200, 400, 503))
    sys.exit(0 if good else 1)


main()
