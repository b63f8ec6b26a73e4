"""radish.sglang_tiers - SGLang's HiRadixCache: what the device evicts lives on in host memory, and in files.

    device   SGLang's KV pool, one tensor (or K and V) a layer     what match_prefix finds
    host     radish.HostKVPool, of hicache_ratio or hicache_size   what init_load_back brings back
    storage  radish.FileStore, for --hicache-storage-backend file  what a prefetch brings to the host

Tree, transfers and threads are libradish's (hicache.h); SGLang's cache controller and host pools are not
used. A scheduler sees what it sees of SGLang's, but that a load is done when init_load_back returns, so that
no layer waits for one: ready_to_load_host_cache says -1. That makes the step that loads longer by the copy.

Needs the allocators of radish.sglang, since a load takes device pages, and K/V in this machine's memory: on a
GPU the copies would have to go in order with SGLang's streams, which nobody has tried. What else is not
there is refused in words by the constructor (refuse)."""
import inspect
import json
import logging
import os
import time
import types

import torch

from radish import _core
from radish.file_store import FileStore
from radish.sglang import Node, RadixCache, _base, _tensor, _tokens

__all__ = ["HiRadixCache"]

logger = logging.getLogger("radish.sglang")
WRITE_POLICIES = ("write_through", "write_through_selective", "write_back")
PREFETCH_POLICIES = ("best_effort", "wait_complete", "timeout")
LAYOUTS = {"layer_first": "layer_first", "page_first": "page_first", "page_first_direct": "page_first"}
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
A_WHILE = 10**9  # ns, of a wait that begins anew,
MOST_WAITS = 60  # so often at most where a store may never answer
NS = 10**9


def _refused(why):
    return ValueError(f"radish.sglang: HiRadixCache {why}")


def _ranks(group):
    distributed = torch.distributed
    if group is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return distributed.get_world_size(group=group)


def _refuse_what_is_not_there(params, args):
    """Everything that SGLang's has and this one has not."""
    ranks = max(_ranks(getattr(params, name, None)) for name in ("tp_cache_group", "attn_cp_cache_group",
                                                                 "attn_tp_cache_group"))
    if ranks > 1 or getattr(params, "pp_size", 1) > 1 or getattr(params, "attn_cp_size", 1) > 1:
        raise _refused("is for one rank: several would have to agree on which copies are complete")
    if params.disable:
        raise _refused("and disable_radix_cache do not go together")
    pool = params.token_to_kv_pool_allocator
    if not isinstance(getattr(pool, "core", None), _core.KVAllocator) or pool.core.window_num_pages:
        raise _refused(f"takes device pages itself, which {type(pool).__name__} cannot give: call "
                       "radish.sglang.install(allocators=True) before SGLang makes its own (and models with windows "
                       "have no tiers here)")
    if pool.page_size != params.page_size:
        raise _refused(f"has pages of {params.page_size} tokens, its allocator of {pool.page_size}")
    for name, known in (("hicache_write_policy", WRITE_POLICIES), ("hicache_storage_prefetch_policy", PREFETCH_POLICIES),
                        ("hicache_mem_layout", tuple(LAYOUTS)), ("hicache_io_backend", ("kernel", "direct")),
                        ("hicache_storage_backend", (None, "file"))):
        value = getattr(args, name, known[0])
        if value not in known:
            raise _refused(f"knows no {name} {value!r}, but {', '.join(str(k) for k in known)}")


def _layers(kv):
    """The tensors of each layer of SGLang's pool: (K and V,) of MLA, or (K, V)."""
    return [(b,) for b in kv.kv_buffer] if hasattr(kv, "kv_buffer") else list(zip(kv.k_buffer, kv.v_buffer))


def _device_pool(kv, num_pages, page_size):
    """libradish's name for the memory of SGLang's pool: nothing is copied."""
    more = [name for name in ("k_scale_buffer", "v_scale_buffer", "kv_scale_buffer", "index_k_with_scale_buffer",
                              "index_k_buffer", "full_kv_pool", "swa_kv_pool") if getattr(kv, name, None) is not None]
    if more or not (hasattr(kv, "kv_buffer") or hasattr(kv, "k_buffer")):
        raise _refused(f"keeps K and V (MHA, MLA) and nothing besides: {type(kv).__name__} has "
                       f"{', '.join(more) or 'neither k_buffer nor kv_buffer'}")
    layers = _layers(kv)
    first = layers[0][0]
    for buffer in (b for layer in layers for b in layer):
        if buffer.device.type != "cpu":
            raise _refused(f"has not been tried with K/V on {buffer.device}: its copies would have to go in order with "
                           "SGLang's streams. K/V in this machine's memory (--device cpu) is what it takes")
        if buffer.dim() != 3 or not buffer.is_contiguous():
            raise _refused(f"wants each layer as (slots, heads, numbers) in one piece, not {tuple(buffer.shape)}")
    wide = {"num_pages": num_pages, "page_size": page_size, "num_layers": len(layers),
            "start_layer": getattr(kv, "start_layer", 0) or 0, "buffers": layers,
            # Codes of one byte are moved as they are, whatever they stand for.
            "dtype": DTYPES.get(first.dtype, "fp8_e4m3" if first.element_size() == 1 else None)}
    if wide["dtype"] is None:
        raise _refused(f"has no K/V of {first.dtype}")
    if len(layers[0]) == 1:
        rank = getattr(kv, "kv_lora_rank", first.shape[2])
        return _core.TokenToKVPool.mla(kv_lora_rank=rank, rope_dim=first.shape[1] * first.shape[2] - rank, **wide)
    return _core.TokenToKVPool(num_kv_heads=first.shape[1], head_dim=first.shape[2], v_head_dim=layers[0][1].shape[2],
                               **wide)


def _storage_options(text):
    """--hicache-storage-backend-extra-config: JSON, or @ and a file of it."""
    if text and text.startswith("@"):
        with open(text[1:]) as file:
            text = file.read()
    options = {"prefetch_threshold": 256, "prefetch_timeout_base": 1.0, "prefetch_timeout_per_ki_token": 0.25,
               "hicache_storage_pass_prefix_keys": False, "max_bytes": FileStore.MAX_BYTES}
    given = json.loads(text) if text else {}
    for name, value in given.items():
        if name not in options:
            raise _refused(f"knows no {name!r} in hicache_storage_backend_extra_config, but {', '.join(options)}")
        wanted = (int, float) if isinstance(options[name], float) else type(options[name])
        if not isinstance(value, wanted) or isinstance(value, bool) != isinstance(options[name], bool) or value < 0:
            raise _refused(f"cannot use {name} {value!r}")
        options[name] = value
    return options


class TierNode(Node):
    """A place in the tree, on the device or behind it on the host: `ref` is the last node on the device,
    `host_tokens` say how many tokens further on the host it is; `path` are the tokens up to there."""

    __slots__ = ("host_tokens", "path", "extra_key")

    def __init__(self, cache, ref, host_tokens=0, path=(), extra_key=None, published=False):
        super().__init__(cache, ref, published)
        self.host_tokens, self.path, self.extra_key = host_tokens, path, extra_key

    def __eq__(self, other):
        return super().__eq__(other) and self.host_tokens == other.host_tokens

    __hash__ = Node.__hash__

    def __repr__(self):
        return f"Node({self.ref}, {self.host_tokens} tokens further on the host)" if self.host_tokens else super().__repr__()

    @property
    def parent(self):
        return None if not self.ref else TierNode(
            self.cache, self.cache.core.node_info(self.ref).parent, extra_key=self.extra_key)

    @property
    def evicted(self):
        return self.host_tokens > 0

    @property
    def backuped(self):
        return self.evicted or not self.ref or self.cache.core.node_info(self.ref).on_host

    def get_last_hash_value(self):
        """SGLang hands it on to prefetch_from_storage; libradish has its own (page_hash.h)."""
        return None

    def get_prefix_hash_values(self, node=None):
        return []


class _NoLayers:
    """What SGLang's model worker asks before it reads a layer: there is nothing to wait for."""

    def set_consumer(self, index):
        pass

    def wait_until(self, layer):
        pass


class HiRadixCache(RadixCache):
    """SGLang's HiRadixCache(params, server_args)."""

    hicache_storage_pass_prefix_keys = False  # libradish's storage knows a page by its own hash

    def __init__(self, params, server_args):
        _refuse_what_is_not_there(params, server_args)
        self._args, self._storage, self._prefetches = server_args, None, {}  # rid: (ticket, tokens, name)
        self.prefetch_loaded_tokens_by_reqid = {}
        self._options = _storage_options(getattr(server_args, "hicache_storage_backend_extra_config", None))
        self.write_policy = getattr(server_args, "hicache_write_policy", WRITE_POLICIES[0])
        self.prefetch_stop_policy = getattr(server_args, "hicache_storage_prefetch_policy", PREFETCH_POLICIES[0])
        super().__init__(params)
        self.root_node = TierNode(self, 0)
        self.cache_controller = types.SimpleNamespace(
            layer_done_counter=_NoLayers(), storage_backend=self._storage, write_policy=self.write_policy)

    def _make_core(self, kv_allocator, **params):
        args, kv, page_size = self._args, self.token_to_kv_pool_allocator.get_kvcache(), self.page_size
        self._device = _device_pool(kv, kv_allocator.num_pages, page_size)
        size = getattr(args, "hicache_size", 0) or 0  # GB
        self._host = _core.HostKVPool(
            self._device, **{"bytes": int(size * 1e9)} if size > 0 else {"ratio": float(args.hicache_ratio)},
            layout=LAYOUTS[getattr(args, "hicache_mem_layout", "layer_first")])
        # A row for what is being loaded, and never more than one load: all the device's tokens, and one that is not.
        self._rows = _core.ReqToTokenPool(1, kv_allocator.num_pages * page_size + 2)
        if getattr(args, "hicache_storage_backend", None):
            self._storage = self._open_storage()
        timeout, options = {}, self._options
        for name, key in (("timeout_base_ns", "prefetch_timeout_base"), ("timeout_per_ki_ns", "prefetch_timeout_per_ki_token")):
            timeout[name] = max(int(options[key] * NS), 1)
        model = getattr(args, "served_model_name", None) or getattr(args, "model_path", None) or "a model of SGLang's"
        return _core.HiRadixCache(
            kv_allocator=kv_allocator, req_to_token_pool=self._rows, host_pool=self._host, storage=self._storage,
            identity={"model": model, "build": f"SGLang's K/V of {_layers(kv)[0][0].dtype}"}, write_policy=self.write_policy,
            prefetch_policy=self.prefetch_stop_policy, prefetch_threshold=max(options["prefetch_threshold"], 1),
            host_eviction_policy=self.eviction_policy, tier_events=self.enable_kv_cache_events,
            max_pinned_tokens=kv_allocator.num_pages * page_size, **timeout, **params)

    # ---- the tree ----

    def reset(self):
        """Also what is under way: SGLang clears its allocator next."""
        for rid in list(self._prefetches):
            self.release_aborted_request(rid)
        self.prefetch_loaded_tokens_by_reqid.clear()
        for _ in range(MOST_WAITS):  # what goes on longer is a store's, and holds no device page
            if self.core.wait(A_WHILE) is None:
                break
        super().reset()

    def match_prefix(self, params):
        tokens, name = _tokens(params.key), params.key.extra_key
        if self.disable or not len(tokens):
            return self._nothing
        found = self.core.match_prefix(tokens, "int64", extra_key=name)
        depth = found.prefix_tokens + found.host_hit_tokens
        path = tokens[:depth + self.is_eagle] if found.host_hit_tokens or self.enable_storage else ()
        end = TierNode(self, found.last_node, found.host_hit_tokens, path, name)
        return self._found(_tensor(found.slots), self._node(found.last_node, name), end)

    def _node(self, ref, extra_key, published=False):
        return TierNode(self, ref, extra_key=extra_key, published=published)

    def _matched(self, slots, node):
        return self._found(slots, self._node(node, None), self._node(node, None))

    def _found(self, slots, on_device, end):
        more = {"best_match_node": end} if "best_match_node" in _base.MatchResult._fields else {}
        return _base.MatchResult(device_indices=slots, last_device_node=on_device, last_host_node=end,
                                 host_hit_length=end.host_tokens, **more)

    def is_root(self, node):
        return not node.ref and not node.host_tokens

    def is_backuped(self, node):
        return node.backuped

    def evict_host(self, num_tokens):
        """Tokens that the host gave up."""
        return self.core.evict_host(num_tokens)

    # ---- device to host ----

    def _path_of(self, node):
        """(tokens up to the node's end, the namespace's name)"""
        if len(node.path):
            return node.path, node.extra_key
        pieces, ref = [], node.ref
        edges = {n.node: n.tokens.tolist() for n in self.core.walk()}
        while ref:
            pieces.append(edges[ref][:len(edges[ref]) - (self.is_eagle and bool(pieces))])
            ref = self.core.node_info(ref).parent
        return [token for piece in reversed(pieces) for token in piece], node.extra_key

    def write_backup(self, node, write_back=False):
        """Begins to copy what the host lacks of the path to the node, whatever the write policy; how many tokens
        that node has. Schedulers need not call it."""
        if not node.ref:
            return 0
        tokens, name = self._path_of(node)
        self.core.pin_prefix(tokens, 0, extra_key=name)
        if write_back:
            self.writing_check(write_back=True)
        return self.core.node_info(node.ref).num_tokens

    def writing_check(self, write_back=False, **kwargs):
        """What has been copied can be found from now on; with write_back all of it."""
        self.core.poll()
        if write_back:
            self.core.drain(MOST_WAITS * A_WHILE)

    def loading_check(self, **kwargs):
        self.core.poll()

    def check_hicache_events(self):
        self.core.poll()

    # ---- host to device ----

    def init_load_back(self, params, host_hit_length=None, mem_quota=None):
        """(slots of what is behind the match's on the device now, the node that ends them). Of SGLang of 2026-02
        the first argument is the node."""
        node, quota = (params, mem_quota) if isinstance(params, TierNode) else (
            params.best_match_node, params.mem_quota)
        have = len(node.path) - self.is_eagle - node.host_tokens  # on the device when it was matched
        if not node.evicted:
            return torch.empty(0, dtype=torch.int64), self._node(node.ref, node.extra_key)
        start = time.perf_counter()
        self._count_load(self._load(node, quota), start)
        found = self.core.match_prefix(node.path, "int64", extra_key=node.extra_key)
        if found.prefix_tokens <= have:  # the match's own node, which its request holds
            return torch.empty(0, dtype=torch.int64), self._node(node.ref, node.extra_key)
        return _tensor(found.slots)[have:], self._node(found.last_node, node.extra_key)

    load_back = init_load_back

    def _load(self, node, quota):
        """All that the host has up to the node, or nothing; tokens that came."""
        core = self.core
        if len(node.path) >= self._rows.row_tokens:
            return 0
        request = _core.Request([*node.path, 0], extra_key=node.extra_key)  # the last one is never loaded
        evictable = core.evictable_size
        core.admit(request)
        if quota is not None:
            quota = max(quota - (evictable - core.evictable_size), 0)  # the prefix cannot be evicted for it
        loaded = 0
        try:
            loaded = core.load_back(request, quota).tokens
            if loaded:
                core.ready_to_load()
                while not core.load_status(request):
                    core.wait(A_WHILE)
                if self.is_eagle and core.extend(request, request.committed_len + 1):
                    request.committed_len += 1  # n tokens publish n - 1 pairs, and n - 1 came
                core.unfinished_req(request, chunked=True)  # no hit: the request that wants it is one
        except _core.IOError as error:  # it is computed instead
            logger.warning("a load from the host failed: %s", error)
            loaded = 0
        finally:  # there is one row: nothing may stay in it
            core.finished_req(request, is_insert=False)
        return loaded

    def _count_load(self, num_tokens, start):
        metrics = getattr(self, "metrics_collector", None)
        if metrics is None or not num_tokens:
            return
        metrics.observe_load_back_duration(time.perf_counter() - start)
        count = metrics.increment_load_back_num_tokens
        of_pools = "pool" in inspect.signature(count).parameters  # since the summer of 2026
        count(num_tokens, **{"pool": "kv"} if of_pools else {})

    def ready_to_load_host_cache(self):
        return -1

    def is_load_back_event_done(self, consumer_index):
        return True

    # ---- storage ----

    @property
    def enable_storage(self):
        return self._storage is not None

    def _open_storage(self):
        folder = os.environ.get("SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR", "/tmp/hicache")
        return FileStore(folder, self._options["max_bytes"])

    def prefetch_from_storage(self, req_id, last_host_node, new_input_tokens, last_hash=None, prefix_keys=None):
        """What storage has behind the node goes to the host, while the request waits."""
        if not self.enable_storage or req_id in self._prefetches:
            return
        path, name = last_host_node.path, last_host_node.extra_key
        tokens = [*path, *(new_input_tokens[1:] if self.is_eagle and len(path) else new_input_tokens)]
        try:
            ticket = self.core.prefetch_start(tokens, extra_key=name) if tokens else None
        except _core.LimitError:  # the name is too long for page hashes: it is in no store
            return
        if ticket is not None:
            self._prefetches[req_id] = ticket, tokens, name

    def check_prefetch_progress(self, req_id):
        """False: the request is to wait."""
        if req_id not in self._prefetches:
            return True
        ticket, tokens, name = self._prefetches[req_id]
        came = self.core.prefetch_progress(ticket, tokens, extra_key=name)
        if came is None:
            return False
        del self._prefetches[req_id]
        self.prefetch_loaded_tokens_by_reqid[req_id] = came
        return True

    def terminate_prefetch(self, req_id):
        ticket = self._prefetches.pop(req_id, (None,))[0]
        if ticket is not None:
            self.core.prefetch_revoke(ticket)

    def pop_prefetch_loaded_tokens(self, req_id):
        return self.prefetch_loaded_tokens_by_reqid.pop(req_id, 0)

    def release_aborted_request(self, rid):
        self.terminate_prefetch(rid)
        self.prefetch_loaded_tokens_by_reqid.pop(rid, None)

    def attach_storage_backend(self, storage_backend, storage_backend_extra_config_json=None, served_model_name=None,
                               hicache_storage_prefetch_policy=None, hicache_write_policy=None):
        """(whether it is attached now, words)"""
        if storage_backend != "file":
            return False, f"radish knows no storage backend {storage_backend!r}, but file"
        for name, wanted, is_now in (("prefetch", hicache_storage_prefetch_policy, self.prefetch_stop_policy),
                                     ("write", hicache_write_policy, self.write_policy)):
            if wanted is not None and wanted != is_now:
                return False, f"the {name} policy is {is_now} since the start; radish changes none while it runs"
        if self.enable_storage:
            return True, "the file backend is attached already"
        try:
            self._options.update(_storage_options(storage_backend_extra_config_json))
            store = self._open_storage()
            attached = self.core.attach_storage(store)
        except (OSError, ValueError, _core.Error) as error:
            return False, f"the file backend was not attached: {error}"
        if not attached:
            return False, "transfers are under way: ask again"
        self._storage = self.cache_controller.storage_backend = store
        return True, "attached"

    def detach_storage_backend(self):
        if not self.enable_storage:
            return True, "no storage backend is attached"
        for rid in list(self._prefetches):
            self.release_aborted_request(rid)
        self.writing_check(write_back=True)
        for _ in range(MOST_WAITS):
            if self.core.detach_storage():
                break
            self.core.wait(A_WHILE)
        else:
            return False, "transfers are under way: ask again"
        self._storage = self.cache_controller.storage_backend = None
        return True, "detached"

    def clear_storage_backend(self):
        return bool(self.enable_storage and self.core.clear(storage=True))

    def shutdown(self):
        self.detach_storage_backend()

    def release_host_resources(self):
        """The cache is of no use afterwards."""
        self._prefetches.clear()
        for part in (self.core, self._host, self._device, self._rows):
            part.close()
