#!/usr/bin/python3
"""python_side.py - what the cache costs an engine written in Python, side by side in one process.

    PEER=DIR bench/python_side.py [--requests N] [--pages 1,16] [--rounds R]    requests a second
    bench/python_side.py --calls                                                microseconds a call
    bench/python_side.py --threads [--rounds R]                                 two threads beside one

DIR is a checkout of SGLang: its RadixCache and its allocators run as they are there, on the CPU; what
they import and do not need here (triton, other rooms of theirs) is stood in for. Without PEER radish is
measured alone. Where DIR is a checkout of mini-sglang its scheduler serves conversations on either cache
(minisgl_side.py). Needs python3-numpy, python3-torch for a PEER, and the package: make python.

The traffic is tools/make-trace.py's: tenants with long prompts, conversations of five turns. A request
is, on both sides and with nothing computed in between:

    match the prompt but its last token, lock, slots for prompt and answer (evicting when there are
    none), the prompt is published, the answer is published, all else is given back

    SGLang          its objects: RadixKey of a list (of 2026-08: of an array('q')), MatchPrefixParams, tensors of int64
    radish          Request, admit, extend, unfinished_req, finished_req; tokens an array of int32
    radish, lists   the same with the lists that SGLang gets
    radish.sglang   SGLang's objects, as above; behind them its RadixCache and allocators by radish.sglang
    its tree alone  the same over SGLang's own allocators
    nothing         SGLang's objects and a cache that does nothing: what the loop itself costs

They take turns in blocks of 500 requests; making lists and arrays of a trace is not measured.
Seconds are the CPU's, of this process, which has one thread: what others do besides counts little. Of
several rounds the median is told."""
import argparse
import array
import importlib.abc
import importlib.util
import inspect
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import timeit
import types

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "build/release/python"))
sys.path.insert(0, str(ROOT / "tools"))

import numpy as np  # noqa: E402
import radish  # noqa: E402
from peers.shim import stand_in  # noqa: E402

BLOCK, ROWS = 500, 4


class Trace:
    """RXTRACE1: src/replay/trace_rxtrace.c tells the format."""

    def __init__(self, path):
        raw = np.fromfile(path, np.uint8)
        _, segments, requests, self.capacity, _, tokens, _ = struct.unpack_from("<QIIIIQQ", raw, 8)
        at = 48
        self.starts = raw[at:at + 8 * (segments + 1)].view("<u8").astype(np.int64)
        at += 8 * (segments + 1)
        self.tokens = raw[at:at + 4 * tokens].view("<i4")
        at += 4 * tokens
        self.requests = raw[at:at + 24 * requests].view("<u4").reshape(-1, 6)
        self.references = raw[at + 24 * requests:].view("<u4")

    def __len__(self):
        return len(self.requests)

    def request(self, i):
        """(prompt, prompt and answer), arrays of int32."""
        _, _, _, first, prompt, every = (int(n) for n in self.requests[i])
        pieces = [self.tokens[self.starts[s]:self.starts[s + 1]]
                  for s in self.references[first:first + every]]
        both = np.concatenate(pieces)
        return both[:len(both) - len(pieces[-1]) if every > prompt else len(both)], both


# ---- SGLang, as it is in PEER ----

class Finder(importlib.abc.MetaPathFinder):
    """Of SGLang the modules of its caches (OWN) as they are there; all else of it, and triton, stood in for."""

    OWN = ("cache_init_params", "evict_policy", "allocator", "allocator.base", "allocator.token", "allocator.paged",
           "base_prefix_cache", "events", "utils", "radix_cache")

    def __init__(self, peer):
        self.folder = pathlib.Path(peer, "python")

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in ("sglang", "triton"):
            return None
        if name.removeprefix("sglang.srt.mem_cache.") in self.OWN:
            base = self.folder.joinpath(*name.split("."))
            for file in (base.with_suffix(".py"), base / "__init__.py"):
                if file.exists():
                    return importlib.util.spec_from_file_location(name, file)
        return stand_in(name)


def load_sglang(peer):
    """The modules of SGLang's cache, loaded anew: classes of an earlier round are not mixed with these."""
    import torch

    torch.set_num_threads(1)
    if not pathlib.Path(peer, "python/sglang/srt/mem_cache/radix_cache.py").exists():
        sys.exit(f"python_side: {peer}: not a checkout of SGLang with a layout that is known here")
    for name in [n for n in sys.modules if n.split(".")[0] in ("sglang", "triton") or n == "radish.sglang"]:
        del sys.modules[name]
    sys.meta_path[:] = [Finder(peer)] + [f for f in sys.meta_path if not isinstance(f, Finder)]
    return torch, {name: importlib.import_module(f"sglang.srt.mem_cache.{name}")
                   for name in ("cache_init_params", "allocator", "base_prefix_cache", "radix_cache")}


class SGLang:
    """Its tree and its allocators, called as its scheduler calls them."""

    def __init__(self, peer, pages, page_size, longest):
        self.torch, self.m = load_sglang(peer)
        torch, m = self.torch, self.m
        self.base = m["base_prefix_cache"]
        # Of 2026-08: tokens are array('q'), capped by the key; a finished request's length is told.
        self.is_new = "limit" in inspect.signature(m["radix_cache"].RadixKey).parameters
        allocators, caches = self.theirs()
        size = pages * page_size
        if page_size == 1:
            self.kv = allocators.TokenToKVPoolAllocator(size, torch.float16, "cpu", None, False)
        else:
            self.kv = allocators.PagedTokenToKVPoolAllocator(size, page_size, torch.float16, "cpu", None, False)
        self.req_to_token = torch.zeros((ROWS, longest), dtype=torch.int32)
        self.cache = caches.RadixCache(m["cache_init_params"].CacheInitParams(
            disable=False, req_to_token_pool=self, token_to_kv_pool_allocator=self.kv, page_size=page_size))
        self.page_size, self.hits = page_size, 0

    def theirs(self):
        """(who has the allocators, who has the cache)"""
        return self.m["allocator"], self.m["radix_cache"]

    def write(self, indices, values):  # its ReqToTokenPool's
        self.req_to_token[indices] = values

    class Req:
        req_pool_idx, extra_key, priority = 1, None, 0

        def get_fill_ids(self):
            return self.fill_ids[:self.fill_end]

        def pop_committed_kv_cache(self):
            return len(self.origin_input_ids) + len(self.output_ids)

    def prepare(self, prompt, both):
        ids = (lambda a: array.array("q", a.astype(np.int64).tobytes())) if self.is_new else np.ndarray.tolist
        return ids(prompt), ids(both[len(prompt):])

    def serve(self, prompt, answer):
        page, base, cache, key = self.page_size, self.base, self.cache, self.m["radix_cache"].RadixKey
        req = self.Req()
        req.origin_input_ids, req.output_ids, req.fill_ids, req.fill_end = prompt, answer, prompt, len(prompt)
        key = key(prompt, None, limit=len(prompt) - 1) if self.is_new else key(prompt[:-1], None)
        found = cache.match_prefix(base.MatchPrefixParams(key=key, req=req))
        req.prefix_indices, req.last_node = found.device_indices, found.last_device_node
        req.cache_protected_len = have = len(req.prefix_indices)
        cache.inc_lock_ref(req.last_node)
        total = len(prompt) + len(answer)
        need = (total + page - 1) // page * page - have
        short = need - self.kv.available_size()
        if short > 0:
            cache.evict(base.EvictParams(num_tokens=short))
        slots = self.kv.alloc(need)
        self.write((1, slice(0, have)), req.prefix_indices)
        self.write((1, slice(have, have + need)), slots)
        cache.cache_unfinished_req(req)
        if self.is_new:
            cache.cache_finished_req(req, kv_len_to_handle=total)
        else:
            cache.cache_finished_req(req)
        self.hits += have


class Adapted(SGLang):
    """The same calls; what answers is radish.sglang."""

    def theirs(self):
        adapter = importlib.import_module("radish.sglang")  # of these modules of SGLang's
        return adapter, adapter


class AdaptedTree(SGLang):
    """radish.sglang's tree over SGLang's own allocators: what install() gives."""

    def theirs(self):
        return self.m["allocator"], importlib.import_module("radish.sglang")


class Nothing(SGLang):
    """The same calls; what answers does nothing: what the loop costs, and torch's writes to the row."""

    def theirs(self):
        torch, base = self.torch, self.base
        slots = torch.arange(1 << 20)
        fields = dict.fromkeys(("last_device_node", "last_host_node", "best_match_node"))
        found = base.MatchResult(**{"device_indices": slots[:0]} | {
            k: v for k, v in fields.items() if k in base.MatchResult._fields})

        class Allocator:
            def __init__(self, size, *rest):
                self.size = size

            def available_size(self):
                return self.size

            def alloc(self, count):
                return slots[:count]

        class Cache:
            def __init__(self, params):
                pass

            def match_prefix(self, params):
                return found

            def inc_lock_ref(self, node):
                pass

            def cache_unfinished_req(self, req):
                pass

            def cache_finished_req(self, req, kv_len_to_handle=0):
                pass

        has = types.SimpleNamespace(TokenToKVPoolAllocator=Allocator, PagedTokenToKVPoolAllocator=Allocator,
                                    RadixCache=Cache)
        return has, has


class Radish:
    def __init__(self, pages, page_size, longest):
        self.kv = radish.KVAllocator(pages, page_size)
        self.rows = radish.ReqToTokenPool(ROWS, longest)
        self.cache = radish.RadixCache(kv_allocator=self.kv, req_to_token_pool=self.rows)
        self.hits = 0

    def prepare(self, prompt, both):
        return prompt, both[len(prompt):]

    def serve(self, prompt, answer):
        cache = self.cache
        req = radish.Request(prompt)
        found = cache.admit(req)
        if not cache.extend(req, len(prompt) + len(answer)):
            raise RuntimeError("there is no room even after evicting")
        req.committed_len = len(prompt)
        cache.unfinished_req(req)
        req.extend(answer)
        req.committed_len = len(req)
        cache.finished_req(req)
        self.hits += found.prefix_tokens


class RadishLists(Radish):
    def prepare(self, prompt, both):
        return prompt.tolist(), both[len(prompt):].tolist()


def side_by_side(trace, peer, page_size):
    """{name: (requests a second, hit tokens)}"""
    lengths = np.diff(trace.starts)[trace.references]
    longest = int(np.add.reduceat(lengths, trace.requests[:, 3]).max()) + page_size
    pages = trace.capacity // page_size
    sides = {"radish": Radish(pages, page_size, longest), "radish, lists": RadishLists(pages, page_size, longest)}
    if peer:
        sides = {"SGLang": SGLang(peer, pages, page_size, longest),
                 "radish.sglang": Adapted(peer, pages, page_size, longest),
                 "its tree alone": AdaptedTree(peer, pages, page_size, longest), **sides,
                 "nothing": Nothing(peer, pages, page_size, longest)}
    spent = dict.fromkeys(sides, 0)
    prompts = 0
    for first in range(0, len(trace), BLOCK):
        block = [trace.request(i) for i in range(first, min(first + BLOCK, len(trace)))]
        prompts += sum(len(prompt) for prompt, _ in block)
        for name, side in sides.items():
            ready = [side.prepare(prompt, both) for prompt, both in block]
            began = time.process_time_ns()
            for prompt, answer in ready:
                side.serve(prompt, answer)
            spent[name] += time.process_time_ns() - began
    for name in ("radish", "radish, lists"):
        sides[name].cache.check_ownership()
    return {name: (len(trace) / spent[name] * 1e9, side.hits / prompts) for name, side in sides.items()}


def traffic(a):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "trace")
        subprocess.run([sys.executable, ROOT / "tools/make-trace.py", "--form", "rxtrace", "--requests",
                        str(a.requests), path], check=True, stdout=subprocess.DEVNULL)
        trace = Trace(path)
    print(f"{a.requests} requests, room for {trace.capacity} tokens; {os.cpu_count()} CPUs, load "
          f"{os.getloadavg()[0]:.1f}")
    for page_size in (int(p) for p in a.pages.split(",")):
        rounds = [side_by_side(trace, os.environ.get("PEER"), page_size) for _ in range(a.rounds)]
        rates = {name: statistics.median(r[name][0] for r in rounds) for name in rounds[0]}
        for name, rate in rates.items():
            times = (f", {statistics.median(r[name][0] / r['SGLang'][0] for r in rounds):5.1f} x SGLang"
                     if "SGLang" in rates and name != "SGLang" else "")
            print(f"page {page_size:2}  {name:14} {rate:10.0f} requests/s, "
                  f"{100 * rounds[0][name][1]:5.2f}% of prompts found{times}", flush=True)


# ---- calls ----

IN_C = r"""
#include <radish/radish.h>
#include <stdio.h>
#include <time.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}
int main(void)
{
    static rad_token tokens[4096];
    static rad_slot slots[4096];
    rad_cache_params params = {.struct_size = sizeof params, .max_tokens = 10000};
    rad_cache *cache;
    if (rad_cache_create(NULL, &params, &cache, NULL)) return 1;
    for (int i = 0; i < 4096; i++)
        tokens[i] = i, slots[i] = i + 1;
    rad_key key = {.tokens = tokens, .num_tokens = 4096};
    rad_cache_insert(cache, &key, slots, NULL, NULL, NULL);
    rad_match match;
    double best = 1e9;
    for (int r = 0; r < 60; r++) {
        double began = now();
        for (int i = 0; i < 2000; i++)
            rad_cache_match_prefix(cache, &key, slots, &match, NULL);
        double took = (now() - began) / 2000;
        if (took < best) best = took;
    }
    printf("%f\n", best);
    return 0;
}
"""


def in_c():
    """Microseconds of a match of 4,096 cached tokens in C."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "m.c"), pathlib.Path(folder, "m")
        source.write_text(IN_C)
        subprocess.run(["cc", "-O2", "-I", ROOT / "include", source, ROOT / "build/release/libradish.a", "-lcrypto",
                        "-pthread", "-o", program], check=True)
        return float(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


def calls():
    cache = radish.RadixCache(max_tokens=10000)
    tokens = np.arange(4096, dtype=np.int32)
    cache.insert(tokens, tokens + 1)
    names = {"cache": cache, "few": tokens[:8].copy(), "many": tokens, "to": np.zeros(4096, np.int32),
             "few64": tokens[:8].astype(np.int64), "many64": tokens.astype(np.int64),
             "to64": np.zeros(4096, np.int64)}
    wanted = [("an empty call", "cache.poll()"), ("a property", "cache.evictable_size"),
              ("8 tokens, numpy int32", "cache.match_prefix(few, to)"),
              ("8 tokens, numpy int64", "cache.match_prefix(few64, to64)"),
              ("8 tokens, a new Array", "cache.match_prefix(few, 'int64')"),
              ("4,096 tokens, numpy int32", "cache.match_prefix(many, to)"),
              ("4,096 tokens, numpy int64", "cache.match_prefix(many64, to64)")]
    try:
        import torch
        for name in ("few", "many", "to", "few64", "many64", "to64"):
            names["t" + name] = torch.from_numpy(names[name])
        wanted += [("8 tokens, torch int32", "cache.match_prefix(tfew, tto)"),
                   ("8 tokens, torch int64", "cache.match_prefix(tfew64, tto64)"),
                   ("4,096 tokens, torch int32", "cache.match_prefix(tmany, tto)"),
                   ("4,096 tokens, torch int64", "cache.match_prefix(tmany64, tto64)")]
    except ImportError:
        print("torch is not here")
    print(f"least of 60 times 2,000; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    for title, statement in wanted:
        took = min(timeit.repeat(statement, globals=names, number=2000, repeat=60, timer=time.process_time)) / 2000 * 1e6
        print(f"{took:8.3f} us  {title}", flush=True)
    print(f"{in_c():8.3f} us  4,096 tokens, the call in C")


# ---- threads ----

def threads(rounds):
    """Two threads with a cache each beside one: calls a second of wall time, in turns."""
    print(f"calls of two threads beside those of one, median of {rounds} pairs; {os.cpu_count()} CPUs, load "
          f"{os.getloadavg()[0]:.1f}")
    for count in (1024, 16384, 65536, 524288):
        tokens = np.arange(count, dtype=np.int32)
        caches = [radish.RadixCache(max_tokens=count + 1) for _ in "ab"]
        for cache in caches:
            cache.insert(tokens, tokens)
        seconds = 0.2
        done = [0, 0]

        def body(i, until):
            caches[i].take_over()
            match, calls = caches[i].match_prefix, 0
            while time.perf_counter() < until:
                match(tokens)
                calls += 1
            done[i] = calls

        ratios = []
        for _ in range(rounds):
            rates = []
            for n in (1, 2):
                done[:] = 0, 0
                until = time.perf_counter() + seconds
                workers = [threading.Thread(target=body, args=(i, until)) for i in range(n)]
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
                rates.append(sum(done) / seconds)
            ratios.append(rates[1] / rates[0])
        print(f"{count:7} tokens matched a call: {rates[0]:8.0f} calls/s of one thread, {statistics.median(ratios):4.2f} "
              f"times as many of two ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--pages", default="1,16")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--threads", action="store_true")
    a = parser.parse_args()
    peer = os.environ.get("PEER", "")
    if a.threads:
        return threads(max(a.rounds, 3))
    if not a.calls and pathlib.Path(peer, "python/minisgl").is_dir():
        import minisgl_side
        return minisgl_side.run(peer)
    return calls() if a.calls else traffic(a)


if __name__ == "__main__":
    sys.exit(main())
