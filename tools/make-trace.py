#!/usr/bin/python3
"""make-trace.py - writes a trace of made-up traffic for `radish replay` and bench_trace.

    tools/make-trace.py --form rxtrace OUT.rxtrace
    tools/make-trace.py --form mooncake OUT.jsonl.gz

rxtrace: every token, in shared segments (the format: src/replay/trace_rxtrace.c). Tenants, each with a
system prompt of 1,000 to 4,000 tokens, hold conversations of five turns: the user says 200 to 400 tokens,
the answer has 100 to 300, and the next prompt is all of it. Which tenant a new conversation belongs to
follows Zipf's law (the k-th as often as 1/k). --open conversations take turns in random order; one that has
ended is replaced. The file names --capacity as the cache's size, which is far below what is open. 20,000
requests take 42 MB and 1 s.

mooncake: JSON lines with timestamps and the hash ids of blocks of 512 tokens (src/replay/trace_mooncake.c;
gzip where OUT ends in .gz), no tokens. Sessions arrive at random over --hours; three in ten begin with the
prompt of one of 60 applications, chosen by Zipf's law. First prompts have a median of 6,000 tokens and a
long tail; six in ten sessions ask once, others up to 40 times, mostly some minutes apart. An id names a
block and all before it, so the last block, which is not full, gets an id of its own in each turn. 12,000
requests take 0.9 MB and 1 s.

The same --seed gives the same bytes on every machine. Needs python3-numpy (rxtrace).
"""
import argparse
import gzip
import json
import math
import os
import random
import struct
import sys

BLOCK = 512


class Dice:
    """Numbers from random() alone, the one function whose sequence Python promises to keep."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def below(self, n):
        return int(self.random() * n)

    def between(self, least, most):
        return least + self.below(most - least + 1)

    def exponential(self, mean):
        return -mean * math.log(1 - self.random())

    def log_normal(self, median, sigma):
        # Box and Muller's way to a normal number
        normal = math.sqrt(-2 * math.log(1 - self.random())) * math.cos(2 * math.pi * self.random())
        return median * math.exp(sigma * normal)

    def zipf(self, sums):
        """A place by Zipf's law; `sums`: the sums of 1/1 ... 1/k."""
        x = self.random() * sums[-1]
        return next(i for i, s in enumerate(sums) if x < s)


def zipf_sums(n):
    sums, total = [], 0.0
    for k in range(1, n + 1):
        total += 1 / k
        sums.append(total)
    return sums


# ---- rxtrace ----

TURNS = 5


def tenants_traffic(a):
    """(segment lengths, requests); a request is (tenant, conversation, turn, segments of prompt and
    output; the last is the output)."""
    dice = Dice(a.seed)
    lengths = [dice.between(1000, 4000) for _ in range(a.tenants)]
    sums = zipf_sums(a.tenants)
    begun = 0

    def begin():
        nonlocal begun
        tenant = dice.zipf(sums)
        begun += 1
        return {"tenant": tenant, "id": begun - 1, "turn": 0, "segments": [tenant]}

    def segment(least, most):
        lengths.append(dice.between(least, most))
        return len(lengths) - 1

    opened = [begin() for _ in range(a.open)]
    requests = []
    for _ in range(a.requests):
        place = dice.below(a.open)
        c = opened[place]
        c["segments"] = c["segments"] + [segment(200, 400), segment(100, 300)]
        requests.append((c["tenant"], c["id"], c["turn"], c["segments"]))
        c["turn"] += 1
        if c["turn"] == TURNS:
            opened[place] = begin()
    return lengths, requests


def write_rxtrace(out, a):
    try:
        import numpy as np
    except ImportError:
        sys.exit("make-trace: numpy is not here (apt-get install python3-numpy, and run it with "
                 "/usr/bin/python3)")
    lengths, requests = tenants_traffic(a)
    starts = np.concatenate(([0], np.cumsum(lengths, dtype=np.uint64)))
    tokens = int(starts[-1])
    references = sum(len(segments) for _, _, _, segments in requests)
    out.write(b"RXTRACE1")
    out.write(struct.pack("<QIIIIQQ", a.seed, len(lengths), len(requests), a.capacity, a.vocab, tokens,
                          references))
    out.write(starts.astype("<u8"))
    bits = np.random.SFC64(a.seed)
    for start in range(0, tokens, 1 << 20):
        raw = bits.random_raw(min(1 << 20, tokens - start)) >> np.uint64(32)
        out.write(((raw * np.uint64(a.vocab)) >> np.uint64(32)).astype("<i4"))
    first = 0
    for tenant, conversation, turn, segments in requests:
        out.write(struct.pack("<6I", tenant, conversation, turn, first, len(segments) - 1, len(segments)))
        first += len(segments)
    for _, _, _, segments in requests:
        out.write(struct.pack(f"<{len(segments)}I", *segments))
    prompts = sum(lengths[s] for _, _, _, segments in requests for s in segments[:-1])
    return f"{len(requests)} requests, {prompts} prompt tokens, {tokens} distinct ones"


# ---- mooncake ----

APPLICATIONS, MOST_TURNS, LONGEST = 60, 40, 128 * 1024


def sessions_traffic(a):
    """[(milliseconds, input tokens, output tokens, ids)] in the order of their arrival."""
    dice = Dice(a.seed)
    sums = zipf_sums(APPLICATIONS)
    prompts = [BLOCK * dice.between(1, 8) for _ in range(APPLICATIONS)]
    span = a.hours * 3600e3
    requests = []
    session = 0
    while len(requests) < a.requests:
        shared = application = 0
        if dice.random() < 0.3:
            application = dice.zipf(sums)
            shared = prompts[application]
        length = shared + 50 + int(dice.log_normal(6000, 1.2))
        turns = 1 if dice.random() < 0.6 else 1 + min(MOST_TURNS - 1, 1 + int(dice.exponential(5)))
        at = dice.random() * span
        for turn in range(turns):
            if length > LONGEST or at >= span or len(requests) == a.requests:
                break
            # What a block is known by until all requests are there: one that is full by its place, in
            # the application's prompt or the session; one that is not by its turn, too.
            full = length // BLOCK
            blocks = [("application", application, b) if (b + 1) * BLOCK <= shared else
                      ("session", session, b) for b in range(full)]
            if length % BLOCK:
                blocks.append(("session", session, full, turn))
            answer = 1 + min(4000, int(dice.log_normal(250, 0.9)))
            requests.append((int(at), length, answer, blocks))
            length += answer + 1 + int(dice.log_normal(120, 1.2))
            at += 5000 + dice.log_normal(120000, 1.4)
        session += 1
    requests.sort(key=lambda request: request[0])
    return requests


def write_mooncake(out, a):
    ids = {}
    total = 0
    for at, length, answer, blocks in sessions_traffic(a):
        hash_ids = [ids.setdefault(block, len(ids)) for block in blocks]
        total += len(blocks)
        line = {"timestamp": at, "input_length": length, "output_length": answer, "hash_ids": hash_ids}
        out.write(json.dumps(line).encode() + b"\n")
    return f"{a.requests} requests, {total} blocks of {BLOCK} tokens, {len(ids)} distinct ones"


# ---- the command ----

def write(a):
    part = f"{a.out}.part"
    try:
        with open(part, "wb") as f:
            if a.form == "rxtrace":
                words = write_rxtrace(f, a)
            elif a.out.endswith(".gz"):
                # without a name and a time, which would make the bytes differ
                with gzip.GzipFile(filename="", fileobj=f, mode="wb", mtime=0) as packed:
                    words = write_mooncake(packed, a)
            else:
                words = write_mooncake(f, a)
        os.replace(part, a.out)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
    return words


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT", help="the file to write")
    parser.add_argument("--form", choices=["rxtrace", "mooncake"], required=True)
    parser.add_argument("--seed", type=int, default=1, help="another seed, other traffic (1)")
    parser.add_argument("--requests", type=int, metavar="N", help="rxtrace 20,000, mooncake 12,000")
    parser.add_argument("--tenants", type=int, default=64, metavar="N", help="rxtrace: tenants (64)")
    parser.add_argument("--open", type=int, default=2000, metavar="N",
                        help="rxtrace: conversations open at a time (2000)")
    parser.add_argument("--capacity", type=int, default=2000000, metavar="N",
                        help="rxtrace: the cache's tokens that the file names (2,000,000)")
    parser.add_argument("--vocab", type=int, default=128256, metavar="N",
                        help="rxtrace: token ids are below this (128256)")
    parser.add_argument("--hours", type=float, default=1.0, metavar="N",
                        help="mooncake: over how long sessions arrive (1)")
    a = parser.parse_args()
    if a.requests is None:
        a.requests = 20000 if a.form == "rxtrace" else 12000
    for name in ("requests", "tenants", "open", "capacity", "vocab", "seed"):
        if not (0 if name == "seed" else 1) <= getattr(a, name) < 2**31:
            parser.error(f"--{name} is out of range")
    if not 0 < a.hours < 1e6:
        parser.error("--hours is out of range")
    try:
        print(f"{a.out}: {write(a)}")
    except OSError as error:
        sys.exit(f"make-trace: {error}")


if __name__ == "__main__":
    main()
