"""What radish.sglang and radish.minisgl import of those engines, as little as will do: parameters and results."""
import dataclasses
import importlib
import sys
import types
from typing import Any, NamedTuple

try:
    import torch
except ImportError:
    torch = None


def module(name, **has):
    m = sys.modules[name] = types.ModuleType(name)
    m.__dict__.update(has)
    m.__path__ = []
    if "." in name:
        setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], m)
    return m


def record(name, *fields):
    return dataclasses.make_dataclass(name, [(f, Any, dataclasses.field(default=d)) for f, d in fields])


def stand_ins():
    for name in ("sglang", "sglang.srt", "sglang.srt.disaggregation", "sglang.srt.mem_cache", "minisgl"):
        module(name)

    class Result(NamedTuple):
        device_indices: Any
        last_device_node: Any
        last_host_node: Any
        mamba_branching_seqlen: Any = None
        host_hit_length: int = 0

    class BaseCache:
        def update_eviction_metrics(self, count, start):
            pass

    class BaseAllocator:
        def __init__(self, size, page_size, dtype, device, kvcache, need_sort):
            self.size, self.page_size, self.device, self._kvcache = size, page_size, device, kvcache

        def free_group_begin(self):
            self.is_not_in_free_group, self.free_group = False, []

        def free_group_end(self):
            self.is_not_in_free_group = True
            if self.free_group:
                self.free(torch.cat(self.free_group))

        def resize(self, config):
            self.size = config.max_total_num_tokens
            self.clear()

    module("sglang.srt.mem_cache.allocator", BaseTokenToKVPoolAllocator=BaseAllocator)
    module("sglang.srt.mem_cache.base_prefix_cache", BasePrefixCache=BaseCache, MatchResult=Result,
           InsertResult=record("InsertResult", ("prefix_len", 0), ("mamba_exist", False)),
           EvictResult=record("EvictResult", ("num_tokens_evicted", 0), ("swa_num_tokens_evicted", 0),
                              ("mamba_num_evicted", 0)),
           IncLockRefResult=record("IncLockRefResult", ("delta", None), ("swa_uuid_for_lock", None)),
           DecLockRefResult=record("DecLockRefResult", ("delta", None)),
           DecLockRefParams=record("DecLockRefParams", ("swa_uuid_for_lock", None)),
           EvictParams=record("EvictParams", ("num_tokens", 0), ("swa_num_tokens", 0), ("mamba_num", 0)),
           InsertParams=record("InsertParams", ("key", None), ("value", None), ("mamba_value", None),
                               ("prev_prefix_len", 0), ("swa_evicted_seqlen", 0), ("chunked", False), ("priority", 0)),
           MatchPrefixParams=record("MatchPrefixParams", ("key", None), ("cow_mamba", False), ("req", None)))
    module("sglang.srt.mem_cache.cache_init_params", CacheInitParams=record(
        "CacheInitParams", ("disable", False), ("req_to_token_pool", None), ("token_to_kv_pool_allocator", None),
        ("page_size", 1), ("is_eagle", False), ("eviction_policy", "lru"), ("disable_finished_insert", False),
        ("enable_metrics", False), ("enable_kv_cache_events", False), ("sliding_window_size", None),
        ("enable_mamba_extra_buffer", False), ("tree_components", None)))
    module("sglang.srt.mem_cache.radix_cache", RadixKey=Key)
    module("sglang.srt.environ", envs=types.SimpleNamespace())
    module("sglang.srt.runtime_context",
           get_server_args=lambda: types.SimpleNamespace(mamba_cache_chunk_size=4))
    module("sglang.srt.disaggregation.kv_events",
           BlockStored=record("BlockStored", ("block_hashes", 0), ("parent_block_hash", 0), ("token_ids", 0),
                              ("block_size", 0), ("lora_id", 0), ("medium", 0)),
           BlockRemoved=record("BlockRemoved", ("block_hashes", 0), ("medium", 0)),
           AllBlocksCleared=record("AllBlocksCleared"))

    class Registry:
        def __init__(self):
            self._registry = {}

        def register(self, name):
            return lambda make: self._registry.__setitem__(name, make)

    class Handle:
        cached_len: int

    module("minisgl.core", get_global_ctx=lambda: types.SimpleNamespace(page_size=4))
    module("minisgl.kvcache", SUPPORTED_CACHE_MANAGER=Registry())
    module("minisgl.kvcache.base", BaseCacheHandle=dataclasses.dataclass(frozen=True)(Handle), BasePrefixCache=object,
           InsertResult=NamedTuple("InsertResult", [("cached_len", int), ("handle", Any)]),
           MatchResult=NamedTuple("MatchResult", [("cuda_handle", Any)]),
           SizeInfo=NamedTuple("SizeInfo", [("evictable_size", int), ("protected_size", int)]))


class Rows:
    def __init__(self, dtype=None):
        self.req_to_token = torch.zeros((8, 256), dtype=dtype or torch.int32)

    def write(self, indices, values):
        self.req_to_token[indices] = values.to(self.req_to_token.dtype)


class Key:
    def __init__(self, token_ids, extra_key=None):
        self.token_ids, self.extra_key = token_ids, extra_key

    def __len__(self):
        return len(self.token_ids)


def imported(*names):
    """These modules over the stand-ins, and how to be rid of all of them."""
    before = set(sys.modules)
    stand_ins()

    def forget():
        for name in set(sys.modules) - before:
            if name.split(".")[0] in ("sglang", "minisgl") or name.startswith(("radish.sglang", "radish.minisgl")):
                del sys.modules[name]

    return [importlib.import_module(name) for name in names], forget
