#!/usr/bin/python3
"""scrape.py MODEL [--tokens N] - how long /metrics takes while the server computes one long prompt.

A client asks for it again and again while another's prompt of N tokens (30000) is computed in chunks; a row
is the median, the 99th percentile and the worst of those asked meanwhile, 100 of them or more, and the
longest step. The program is $RADISH. Aim: a median of at most 5 ms. Exits with 1 past that, or when an
answer is not what it should be."""
import argparse
import http.client
import json
import os
import pathlib
import random
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from radish_e2e import Server  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=30000)
    a = parser.parse_args()
    draw = random.Random(1)
    prompt = {"input_ids": [draw.randrange(1, 500) for _ in range(a.tokens)], "sampling_params": {"max_new_tokens": 1}}
    times, done, answers = [], threading.Event(), []
    with Server(a.model, "--max-total-tokens", a.tokens + 2048, huge_pages=True) as server:
        def compute():
            answers.append(server.raw("POST", "/generate", json.dumps(prompt))[0].status)
            done.set()

        alone = server.metrics()
        sender = threading.Thread(target=compute)
        begun = time.perf_counter()
        sender.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
        while not done.is_set():
            begin = time.perf_counter()
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            text = answer.read()
            if not done.is_set():
                times.append(time.perf_counter() - begin)
            if answer.status != 200 or len(text) < len(alone) // 2:
                sys.exit(f"/metrics: {answer.status}, {len(text)} bytes")
            time.sleep(0.005)
        took = time.perf_counter() - begun
        sender.join()
        connection.close()
        figures = server.figures()
    times.sort()
    print(f"# {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.2f}")
    print(f"/metrics ({len(text) >> 10} KB) beside {a.tokens} tokens in {took:.1f} s, {figures['forward_steps']} steps: "
          f"median {times[len(times) // 2] * 1e3:.2f}  p99 {times[len(times) * 99 // 100] * 1e3:.2f}  "
          f"worst {times[-1] * 1e3:.2f} ms of {len(times)}")
    enough = len(times) >= 100 or a.tokens < 30000
    sys.exit(0 if answers == [200] and enough and times and times[len(times) // 2] <= 0.005 else 1)


main()
