#!/usr/bin/python3
"""hicache_blog.py MODEL [--policy P] [--users N] [--turns N] - conversations that come back in turns through
a KV pool of a quarter of them: the hit rate, and what host memory below the pool gives.

24 users, 8 turns each, 96 new tokens a turn and an answer of one; every turn in an order of its
own, one request at a time, fcfs. Best hit rate with any memory: 0.78. Three servers: an ample
pool, a quarter, a quarter with a host tier of four times the pool, which is written by --policy
(write_through, write_through_selective or write_back). The program is $RADISH."""
import argparse
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from radish_e2e import Server  # noqa: E402

QUESTION, ANSWER = 96, 1
PAGE = 16


def play(a, *args):
    rng = random.Random(1)
    with Server(a.model, "--page-size", PAGE, "--schedule-policy", "fcfs", "--max-running-requests",
                1, *args, huge_pages=True) as server:
        server.await_memory()
        vocab = min(server.get("/model_info")["vocab_size"], 30000)
        history = [[] for _ in range(a.users)]
        prompt = cached = 0
        answers = []
        start = time.monotonic()
        for _ in range(a.turns):
            order = list(range(a.users))
            rng.shuffle(order)
            for user in order:
                history[user] += [rng.randrange(3, vocab) for _ in range(QUESTION)]
                answer = server.ask("/generate", {
                    "input_ids": history[user],
                    "sampling_params": {"temperature": 0, "max_new_tokens": ANSWER,
                                        "ignore_eos": True}})
                history[user] += answer["output_ids"]
                answers.append(answer["output_ids"])
                prompt += answer["meta_info"]["prompt_tokens"]
                cached += answer["meta_info"]["cached_tokens"]
        return cached / prompt, time.monotonic() - start, answers


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--policy", default="write_through")
    parser.add_argument("--users", type=int, default=24)
    parser.add_argument("--turns", type=int, default=8)
    a = parser.parse_args()
    if a.users < 8 or a.turns < 2:
        parser.error("at least 8 users, so that a quarter holds the longest conversation, and 2 turns")
    working_set = a.users * a.turns * (QUESTION + ANSWER)
    pool = working_set // 4
    runs = [("ample pool", ["--max-total-tokens", working_set * 2]),
            ("a quarter", ["--max-total-tokens", pool]),
            ("a quarter and a host tier", ["--max-total-tokens", pool, "--hicache-ratio", 4,
                                           "--enable-hierarchical-cache",
                                           "--hicache-write-policy", a.policy])]
    print(f"# {working_set} tokens in all, a pool of {pool}, pages of {PAGE}, {a.policy}")
    seconds, answers = {}, {}
    for name, args in runs:
        hit, seconds[name], answers[name] = play(a, *args)
        print(f"{name:28} hit rate {hit:.3f}   {seconds[name]:7.2f} s", flush=True)
    same = all(a == answers["ample pool"] for a in answers.values())
    gain = seconds["a quarter"] / seconds["a quarter and a host tier"]
    most = seconds["a quarter"] / seconds["ample pool"]
    print(f"throughput x{gain:.2f} by the host tier, x{most:.2f} by an ample pool; answers "
          f"{'the same' if same else 'DIFFER'}")
    sys.exit(0 if same else 1)


main()
