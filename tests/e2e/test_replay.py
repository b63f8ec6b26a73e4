#!/usr/bin/env python3
"""`radish replay` of traces that tools/make-trace.py writes, beside a cache of blocks as one would
write it down in a minute, and at three page sizes."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from radish_e2e import ROOT, check, long_run, radish, run


def make_trace(path, *options):
    subprocess.run([sys.executable, str(ROOT / "tools/make-trace.py"), *options, str(path)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# ---- blocks, beside a naive cache ----

class Block:
    def __init__(self, parent, now):
        self.parent, self.children = parent, 0
        self.made = self.used = now
        self.hits = 0


KEYS = {"lru": lambda b: b.used, "fifo": lambda b: b.made, "lfu": lambda b: (b.hits, b.used),
        "filo": lambda b: -b.made, "mru": lambda b: -b.used,
        "slru": lambda b: (b.hits >= 2, b.used)}  # twice found: protected


def hits_of_a_naive_cache(requests, capacity, policy):
    """An id names a block and all before it. A request finds the blocks it has at the front, in one
    piece; room for the others is made by dropping blocks that nothing continues, one by one, but none
    of the found ones. A request that does not fit leaves nothing."""
    key, cache, found_blocks = KEYS[policy], {}, 0
    for now, ids in enumerate(requests):
        found = 0
        while found < len(ids) and ids[found] in cache:
            cache[ids[found]].used = now
            found += 1
        found_blocks += found
        ours = set(ids[:found])
        if len(ids) > capacity:
            drop = len(cache) - found
        else:
            drop = len(cache) + len(ids) - found - capacity
        for _ in range(drop):
            name = min((n for n, b in cache.items() if not b.children and n not in ours),
                       key=lambda n: key(cache[n]))
            parent = cache.pop(name).parent
            if parent is not None:
                cache[parent].children -= 1
        if len(ids) > capacity:
            continue
        for name in ids[:found]:
            cache[name].hits += 1
        for i, name in list(enumerate(ids))[found:]:
            cache[name] = Block(ids[i - 1] if i else None, now)
            if i:
                cache[ids[i - 1]].children += 1
    return found_blocks


def test_every_policy_finds_what_a_naive_cache_finds():
    with tempfile.TemporaryDirectory(prefix="radish-replay-") as tmp:
        trace = Path(tmp) / "trace.jsonl.gz"
        make_trace(trace, "--form", "mooncake", "--requests", "250", "--hours", "0.1")
        plain = Path(tmp) / "trace.jsonl"
        make_trace(plain, "--form", "mooncake", "--requests", "250", "--hours", "0.1")
        requests = [json.loads(line)["hash_ids"] for line in plain.read_text().splitlines()]
        sizes, seen = (150, 700), set()
        words = [word for p in KEYS for word in ("--policy", p)]
        words += [word for n in sizes for word in ("--capacity-blocks", n)]
        cells = json.loads(radish("replay", trace, "--json", *words)[0])["cells"]
        check(len(cells) == len(KEYS) * len(sizes), cells)
        for cell in cells:
            want = hits_of_a_naive_cache(requests, cell["capacity_blocks"], cell["policy"])
            check(cell["hit_blocks"] == want, want, cell)
            seen.add((cell["capacity_blocks"], want))
        check(len(seen) > 6, "policies do not differ here", seen)


# ---- tokens, at several page sizes ----

def rates(*options):
    """Token hit rates of LRU by page size, at the capacity that the file names."""
    with tempfile.TemporaryDirectory(prefix="radish-replay-") as tmp:
        trace = Path(tmp) / "trace"
        make_trace(trace, "--form", "rxtrace", *options)
        sizes = [word for size in (1, 16, 64) for word in ("--page-size", size)]
        cells = json.loads(radish("replay", trace, *sizes, "--json")[0])["cells"]
    check([c["page_size"] for c in cells] == [1, 16, 64], cells)
    return [c["token_hit_rate"] for c in cells], cells


def test_larger_pages_find_no_more():
    found, cells = rates("--requests", "500")
    check(1 > found[0] > found[1] > found[2] > 0, found)
    check(all(c["requests"] == 500 for c in cells), cells)


@long_run
def test_larger_pages_find_no_more_in_a_long_trace():
    found, _ = rates()
    check(1 > found[0] > found[1] > found[2] > 0.5, found)


run(globals())
