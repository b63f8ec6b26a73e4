"""minisgl_side.py - mini-sglang's own scheduler loop on its own cache and on radish's.

Run by python_side.py when PEER is a checkout of mini-sglang. Its LLM, Scheduler, PrefillManager,
DecodeManager, TableManager, CacheManager, requests and batches run as they are, in run_forever's
overlapped loop. Stood in for, since they want a GPU or packages that are not here:

    Engine          a model of two attention layers, float64, on the CPU, greedy; its K and V lie in
                    slots and are read by mini-sglang's page table, so a wrong slot gives other tokens
    CUDA            streams, events and pinned memory do nothing
    the tokenizer   prompts are token ids
    C++             fast_compare_key is numpy's comparison; its time is told apart

The same conversations are served three times: without a cache ("naive"), on its radix tree, on
radish.minisgl. The tokens must be the same. Time is the thread's CPU time within the cache's calls."""
import functools
import importlib
import importlib.abc
import importlib.util
import pathlib
import random
import sys
import time
import types
from typing import Any, NamedTuple

import numpy as np

from peers.shim import Anything, stand_in

VOCABULARY, WIDTH, LONGEST = 97, 16, 1024


class Finder(importlib.abc.MetaPathFinder):
    """Packages that are not here, and mini-sglang's of a GPU, are ignored."""

    IGNORED = {"minisgl." + name for name in ("engine", "kernel", "attention", "models", "layers", "moe")}

    def __init__(self, peer):
        self.folder = pathlib.Path(peer, "python")

    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if name == "minisgl.engine.config":
            return importlib.util.spec_from_file_location(name, self.folder / "minisgl/engine/config.py")
        ignored = any(name == i or name.startswith(i + ".") for i in self.IGNORED)
        missing = top in ("msgpack", "zmq", "transformers", "huggingface_hub", "tqdm", "tvm_ffi", "modelscope",
                          "safetensors", "flashinfer")
        return stand_in(name) if ignored or missing else None


def without_cuda(torch):
    """torch as mini-sglang calls it, on a machine without a GPU."""
    stream = Anything()
    for name in ("Stream", "stream", "Event"):
        setattr(torch.cuda, name, lambda *a, **k: stream)
    torch.cuda.set_stream = lambda s: None
    torch.cuda.current_stream = lambda *a: stream
    for name in ("empty", "tensor"):
        made = getattr(torch, name)
        setattr(torch, name, functools.wraps(made)(
            lambda *a, made=made, pin_memory=False, **k: made(*a, **k)))
    torch.Tensor.pin_memory = lambda self, *a: self


class Output(NamedTuple):  # as mini-sglang's ForwardOutput
    next_tokens_gpu: Any
    next_tokens_cpu: Any
    copy_done_event: Any


class Engine:
    """In the place of minisgl.engine.Engine."""

    def __init__(self, config):
        import torch
        from minisgl import core

        self.torch, self.device, self.stream = torch, torch.device("cpu"), torch.cuda.Stream()
        from minisgl.distributed import info

        core._GLOBAL_CTX = info._TP_INFO = None  # the last one's
        info.set_tp_info(0, 1)
        self.ctx = core.Context(config.page_size)
        core.set_global_ctx(self.ctx)
        self.num_pages, self.max_seq_len, self.tp_cpu_group = config.num_page_override, LONGEST, None
        self.ctx.page_table = self.page_table = torch.zeros((config.max_running_req + 1, LONGEST), dtype=torch.int32)
        draw = torch.Generator().manual_seed(1)
        matrix = lambda *shape: torch.randn(shape, generator=draw, dtype=torch.float64) / shape[-1] ** 0.5
        self.tokens, self.places, self.head = matrix(VOCABULARY, WIDTH) * 4, matrix(LONGEST, WIDTH), matrix(WIDTH, VOCABULARY)
        self.layers = [[matrix(WIDTH, WIDTH) for _ in "qkv"] for _ in range(2)]
        self.kv = torch.zeros((2, 2, self.num_pages * config.page_size, WIDTH), dtype=torch.float64)
        self.computed = 0
        self.graph_runner = types.SimpleNamespace(pad_batch=lambda b: setattr(b, "padded_reqs", b.reqs))
        self.attn_backend = self.sampler = types.SimpleNamespace(
            prepare_metadata=lambda b: None, prepare=lambda b: None)

    def forward_batch(self, batch, args):
        torch, at, last = self.torch, 0, []
        with self.ctx.forward_batch(batch):
            for req in batch.reqs:
                begin, end = req.cached_len, req.device_len
                here = slice(at, at + end - begin)
                at += end - begin
                slots = self.page_table[req.table_idx, :end].long()
                x = self.tokens[batch.input_ids[here].long()] + self.places[begin:end]
                causal = torch.arange(end)[None] > torch.arange(begin, end)[:, None]
                for (k, v), (wq, wk, wv) in zip(self.kv, self.layers):
                    k[batch.out_loc[here].long()], v[batch.out_loc[here].long()] = x @ wk, x @ wv
                    scores = ((x @ wq) @ k[slots].T).masked_fill(causal, -float("inf"))
                    x = torch.tanh(x + torch.softmax(scores, -1) @ v[slots])
                last.append(x[-1])
                self.computed += end - begin
        for req in batch.reqs:
            req.complete_one()
        tokens = torch.argmax(torch.stack(last) @ self.head, -1).to(torch.int32)
        return Output(tokens, tokens, Anything())


def load(peer):
    import torch

    torch.set_num_threads(1)
    sys.meta_path.insert(0, Finder(peer))
    sys.path.insert(0, str(pathlib.Path(peer, "python")))
    without_cuda(torch)
    engine = importlib.import_module("minisgl.engine")
    engine.Engine, engine.EngineConfig = Engine, importlib.import_module("minisgl.engine.config").EngineConfig
    scheduler = importlib.import_module("minisgl.scheduler.scheduler")
    scheduler.load_tokenizer = lambda path: types.SimpleNamespace(eos_token_id=-1, decode=lambda ids: "")
    return importlib.import_module("minisgl.llm.llm"), importlib.import_module("minisgl.core")


class Clock:
    """CPU nanoseconds in the calls that it wraps; one within another counts once."""

    def __init__(self):
        self.spent, self.calls, self.depth = 0, 0, 0

    def wrap(self, function):
        def timed(*args, **kwargs):
            if self.depth:
                return function(*args, **kwargs)
            self.depth, began = 1, time.thread_time_ns()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent += time.thread_time_ns() - began
                self.calls += 1
                self.depth = 0
        return timed


def watch(cache, handle_class, clock):
    """This cache's calls, and what its handles are asked, are on the clock."""
    calls = {name: clock.wrap(getattr(cache, name)) for name in
             ("match_prefix", "insert_prefix", "lock_handle", "evict", "check_integrity")}
    size_info = type(cache).size_info.fget
    watched = type("Watched", (type(cache),), {"size_info": property(clock.wrap(size_info))})
    cache.__class__ = watched
    for name, call in calls.items():
        setattr(cache, name, call)
    if handle_class:
        handle_class.get_matched_indices = clock.wrap(handle_class.get_matched_indices)


def serve(llm, core, users, turns, seed):
    """Conversations behind a few system prompts; all answers, in order."""
    rng = random.Random(seed)
    draw = lambda count: [rng.randrange(VOCABULARY) for _ in range(count)]
    systems = [draw(rng.randrange(120, 200)) for _ in range(4)]
    talks, answers = [list(rng.choice(systems)) for _ in range(users)], []
    sampling = core.SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=12)
    for turn in range(turns):
        order = rng.sample(range(users), users)
        for user in order:
            talks[user] += draw(rng.randrange(10, 60))
        done = llm.generate([talks[user] for user in order], sampling)
        for user, answer in zip(order, done):
            talks[user] += answer["token_ids"]
            answers.append(answer["token_ids"])
    return answers


def run(peer, users=64, turns=4, page_sizes=(1, 16)):
    """Prints a row for each cache; 1 if they do not say the same."""
    llm_module, core = load(peer)
    import torch
    import radish.minisgl
    from minisgl.kvcache import SUPPORTED_CACHE_MANAGER, radix_cache

    SUPPORTED_CACHE_MANAGER.register("radish")(lambda device: radish.minisgl.RadishPrefixCache(device))
    kernel, comparing = importlib.import_module("minisgl.kernel"), Clock()

    def compare(a, b):
        n = min(len(a), len(b))
        same = a[:n].numpy() == b[:n].numpy()
        return n if same.all() else int(np.argmin(same))

    kernel.fast_compare_key = comparing.wrap(compare)
    handles = {"naive": None, "radix": radix_cache.RadixCacheHandle, "radish": radish.minisgl.CacheHandle}
    different = False
    for page_size in page_sizes:
        said = {}
        for kind, handle in handles.items():
            llm = llm_module.LLM("none", torch.float64, page_size=page_size, cache_type=kind, max_running_req=16,
                                 num_page_override=6144 // page_size, max_extend_tokens=512)
            clock, original = Clock(), handle and handle.get_matched_indices
            watch(llm.cache_manager.prefix_cache, handle, clock)
            before, began = comparing.spent, time.process_time_ns()
            said[kind] = serve(llm, core, users, turns, seed=7)
            whole = time.process_time_ns() - began
            if handle:
                handle.get_matched_indices = original
            compared = comparing.spent - before
            of_it = f", of it {compared / 1e6:.0f} in the comparison of keys" if compared else ""
            print(f"page {page_size:2}  {kind:6} {len(said[kind])} answers, {llm.engine.computed} tokens computed, "
                  f"{whole / 1e9:.1f} s; in the cache's {clock.calls} calls {clock.spent / 1e6:.0f} ms{of_it}", flush=True)
        same = said["naive"] == said["radix"] == said["radish"]
        different |= not same
        print(f"page {page_size:2}  the tokens are {'the same' if same else 'NOT THE SAME'}")
    return int(different)
