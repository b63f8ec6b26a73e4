"""radish.sglang - libradish behind SGLang's own interfaces.

    from radish.sglang import RadixCache                    # where SGLang makes its own
    cache = RadixCache(CacheInitParams(...))                # SGLang's parameters, its pools

    import radish.sglang; radish.sglang.install()           # or once, before SGLang is imported further

Needs SGLang beside it: parameters, results and events are SGLang's classes, tensors are torch's. What
stands here converts; what is kept, locked and evicted is decided in libradish. Slots come from and go
to whatever allocator SGLang gives, its own or TokenToKVPoolAllocator, PagedTokenToKVPoolAllocator and
SWATokenToKVPoolAllocator of this module; HiRadixCache takes device pages itself, from one of the first two.

Differences that an engine may see: nodes are handles (Node), not objects with children; a node that
was split keeps its handle for its lower part; eviction takes whole leaves first and the last one's
end (SGLang: whole leaves only), so it gives back the tokens that were asked for, in pages.
"""
import importlib
import time
import weakref

import torch

from radish import _core

_allocator, _base, _params = (importlib.import_module("sglang.srt.mem_cache." + name)
                              for name in ("allocator", "base_prefix_cache", "cache_init_params"))

__all__ = ["ChunkCache", "HiRadixCache", "MambaRadixCache", "Node", "PagedTokenToKVPoolAllocator", "PureSWAChunkCache", "RadixCache",
           "SWAChunkCache", "SWARadixCache", "SWATokenToKVPoolAllocator", "TokenToKVPoolAllocator", "UnifiedRadixCache", "install", "make_cache"]

NO_TIERS = ("radish.sglang: host tiers are there for models whose layers all attend to everything (HiRadixCache), "
            "not for windows, states and the unified cache: start without --enable-hierarchical-cache "
            "(radish.HiRadixCache has them under radish's own interface)")


def _tensor(array):
    """int64, without a copy."""
    return torch.from_dlpack(array)


def _slots_of(pages, page_size):
    return (pages[:, None] * page_size + torch.arange(page_size)).reshape(-1)


def _hand_window_on(mapping, source, target, page_size):
    """In SGLang's map the window side of one page becomes another's; the one has none then."""
    source, target = (slice(page * page_size, (page + 1) * page_size) for page in (source, target))
    mapping[target] = mapping[source]
    mapping[source] = 0


def _tokens(key):
    """A key's token ids. Of bigrams (EAGLE) the ids they are made of: the cache makes its own pairs."""
    if hasattr(key, "raw_token_ids"):
        return key.raw_token_ids()
    ids = key.token_ids
    if getattr(key, "is_bigram", False) and len(ids):  # of 2026-02: a list of pairs
        return [pair[0] for pair in ids] + [ids[-1][1]]
    return ids


def _fill_ids(req):
    """The tokens that a request has K/V of when a prefill is complete."""
    return req.get_fill_ids() if hasattr(req, "get_fill_ids") else req.fill_ids


def _committed(req, kv_len_to_handle):
    """How many a finished request has K/V of: told since the summer of 2026, asked of it before."""
    return req.pop_committed_kv_cache() if kv_len_to_handle is None else kv_len_to_handle


# What differs between SGLang's versions: fields that a result has, results that are plain numbers.
_MORE_NODES = len({"last_host_node", "best_match_node"} & set(_base.MatchResult._fields))
_LAST = "last_device_node" in getattr(_base.InsertResult, "__dataclass_fields__", ())
# Since the summer of 2026 a free says where in the request's row its slots stood, and one event tells of
# all blocks of a node that went; before, each block has one.
_SEGMENTS = hasattr(_allocator.BaseTokenToKVPoolAllocator, "free_segment")
_locked = getattr(_base, "IncLockRefResult", lambda delta: delta)
_unlocked = getattr(_base, "DecLockRefResult", lambda delta: delta)


class Node:
    """A place in the tree, as SGLang's requests hold it (req.last_node)."""

    __slots__ = ("cache", "ref", "published")

    def __init__(self, cache, ref, published=False):
        self.cache, self.ref, self.published = cache, ref, published  # published: by the request that holds it

    def __eq__(self, other):
        return isinstance(other, Node) and self.ref == other.ref and self.cache is other.cache

    def __hash__(self):
        return hash(self.ref)

    def __repr__(self):
        return f"Node({self.ref})"

    @property
    def id(self):
        return self.ref

    @property
    def parent(self):
        return None if not self.ref else Node(self.cache, self.cache.core.node_info(self.ref).parent)

    @property
    def lock_ref(self):
        return 1 if not self.ref else self.cache.core.node_info(self.ref).lock_ref

    @property
    def hit_count(self):
        return 0 if not self.ref else self.cache.core.node_info(self.ref).hit_count

    @property
    def priority(self):
        return self.cache.core.node_info(self.ref).priority

    @property
    def key(self):
        """Tokens of its edge; the root has none."""
        return range(0) if not self.ref else range(self.cache.core.node_info(self.ref).num_tokens)

    evicted = False  # a node without pages on the device is no node here
    backuped = False


class _OwnSlots:
    """Slots for a tree without an allocator (SGLang's simulated ones), which keeps any value for any
    token: the tree has pages of our own, and a table says what stands for their slots."""

    def __init__(self, page_size):
        self.page_size = page_size
        self.free, self.used = [], 1
        self.values = torch.zeros(1 << 16, dtype=torch.int64)

    def take(self, count):
        pages = [self.free.pop() if self.free else None for _ in range(count)]
        for i, page in enumerate(pages):
            if page is None:
                pages[i], self.used = self.used, self.used + 1
        while self.used * self.page_size > len(self.values):
            self.values = torch.cat((self.values, torch.zeros_like(self.values)))
        return _slots_of(torch.tensor(pages, dtype=torch.int64), self.page_size)

    def give_back(self, slots):
        self.free.extend((slots[::self.page_size] // self.page_size).tolist())


class _Cache(_base.BasePrefixCache):
    """What a cache has whatever lies in its tree; sglang_components builds on it, too."""

    MOST_PAGES = 1 << 20  # if nothing says how many there are; 5 bytes each

    def __init__(self, params):
        self.disable = params.disable
        self.req_to_token_pool = params.req_to_token_pool
        self.token_to_kv_pool_allocator = params.token_to_kv_pool_allocator
        self.page_size = params.page_size
        self.is_eagle = params.is_eagle
        self.enable_kv_cache_events = params.enable_kv_cache_events
        self.disable_finished_insert = params.disable_finished_insert

    def _cacheable(self, num_tokens):
        """Of so many tokens those that can be in the tree: whole pages, of bigrams."""
        count = max(num_tokens - self.is_eagle, 0)
        return count - count % self.page_size

    def _on_device(self, slots):
        """The engine's tensors are where its K/V is, libradish's are on the CPU."""
        return slots.to(self.device) if self._elsewhere else slots

    # ---- what it holds ----

    def evictable_size(self):
        return self.core.evictable_size

    def protected_size(self):
        return self.core.protected_size

    def pretty_print(self):
        print(self.core.dump())
        print(f"#tokens: {self.total_size()}")

    def take_events(self):
        if not self.enable_kv_cache_events:
            return []
        from sglang.srt.disaggregation import kv_events
        events = []
        for e in self.core.take_events():
            if e.type == "BlockStored":
                parent = e.parent_block_hash
                for i, block in enumerate(e.block_hashes):  # one event a page, as SGLang has them
                    at = i * e.block_size
                    events.append(kv_events.BlockStored(
                        block_hashes=[block], parent_block_hash=parent,
                        token_ids=list(e.token_ids[at:at + e.block_size]), block_size=e.block_size,
                        lora_id=None, medium=e.medium))
                    parent = block
            elif e.type == "BlockRemoved":
                gone = e.block_hashes[::-1]  # libradish tells the deepest first, SGLang the first
                events += [kv_events.BlockRemoved(block_hashes=blocks, medium=e.medium)
                           for blocks in ([gone] if _SEGMENTS else ([block] for block in gone))]
            else:  # also where events were lost: a follower begins anew
                events.append(kv_events.AllBlocksCleared())
        return events


class RadixCache(_Cache):
    """SGLang's RadixCache: the same calls, parameters and results."""

    def __new__(cls, *args, **kwargs):
        if cls.__module__.startswith("sglang.srt."):  # install() made this class their base
            raise NotImplementedError(
                f"radish.sglang: SGLang's {cls.__name__} works on the nodes of SGLang's own tree, and "
                "radish.sglang.install() has put radish's in its place: start without the option that asks for "
                "it (--enable-hierarchical-cache), or without install()")
        return super().__new__(cls)

    def __init__(self, params):
        pool = params.token_to_kv_pool_allocator
        super().__init__(params)
        self.eviction_policy = params.eviction_policy.lower()
        device = pool.device if pool else "cpu"
        self.device = torch.device(device) if isinstance(device, str) else device
        self._elsewhere = isinstance(self.device, torch.device) and self.device.type != "cpu"
        if params.enable_metrics:
            self.init_metrics_collector()
        size = getattr(pool, "size", None)
        # The allocator's pages are the tree's where they are as large; else any slot may stand for any token.
        paged_alike = isinstance(size, int) and getattr(pool, "page_size", self.page_size) == self.page_size
        self._own = None if paged_alike else _OwnSlots(self.page_size)
        if paged_alike and isinstance(pool, _Allocator):  # what leaves the tree goes there by itself
            self._direct, behind = True, {"kv_allocator": pool.core}
        else:  # what SGLang's allocators give may lie beyond their size (padding, pools of several kinds)
            pages = max(size // self.page_size * 2, self.MOST_PAGES) if isinstance(size, int) else self.MOST_PAGES
            self._direct, behind = False, {"free_list": pages}
        self.core = self._make_core(page_size=self.page_size, eviction_policy=self.eviction_policy,
                                    is_eagle=self.is_eagle, enable_kv_events=self.enable_kv_cache_events, **behind)
        self.root_node = Node(self, 0)
        self._nothing = self._matched(torch.empty(0, dtype=torch.int64), 0)
        self.reset()

    def _make_core(self, **params):
        return _core.RadixCache(**params)

    @classmethod
    def create_simulated(cls, disable=False, mock_allocator=None, page_size=1,
                         enable_kv_cache_events=False):
        """A tree without pools."""
        return cls(_params.CacheInitParams(
            disable=disable, req_to_token_pool=None, token_to_kv_pool_allocator=mock_allocator,
            page_size=page_size, enable_kv_cache_events=enable_kv_cache_events))

    # ---- the tree ----

    def reset(self):
        self.core.reset()
        if not self._direct:
            self.core.take_freed()  # all at once: SGLang clears its allocator itself
        if self._own:
            self._own = _OwnSlots(self.page_size)

    def _give_back(self):
        """Slots that left the tree go to whom they came from."""
        if self._direct:
            return
        freed = self.core.take_freed("int64", slots=True)
        if not len(freed):
            return
        slots = _tensor(freed)
        if self._own:
            values = self._own.values[slots]
            self._own.give_back(slots)
            slots = values
        if self.token_to_kv_pool_allocator:
            self._free(self._on_device(slots))

    def _free(self, slots, start=0):
        """Slots of a request's row from position `start` on, or whole pages."""
        if not slots.numel():
            return
        if _SEGMENTS:
            self.token_to_kv_pool_allocator.free_segment(slots, start_pos=start)
        else:
            self.token_to_kv_pool_allocator.free(slots)

    def match_prefix(self, params):
        tokens = _tokens(params.key)
        if self.disable or not len(tokens):
            return self._nothing
        found = self.core.match_prefix(tokens, "int64", extra_key=params.key.extra_key)
        if not found.prefix_tokens:
            return self._nothing
        slots = _tensor(found.slots)
        return self._matched(self._own.values[slots] if self._own else slots, found.last_node)

    def _node(self, ref, extra_key, published=False):
        return Node(self, ref, published) if ref else self.root_node

    def _matched(self, slots, node):
        node = self._node(node, None)
        return _base.MatchResult(self._on_device(slots), node, *[node] * _MORE_NODES)

    def _insert(self, tokens, slots, extra_key, priority, chunked=False):
        """Tokens of the prefix that was there before, and the last node. The tree takes the slots
        behind the prefix."""
        if self._own:
            given = slots
            slots = self._own.take(len(given) // self.page_size)
            self._own.values[slots] = given[:len(slots)].to(torch.int64).cpu()
        count = self._cacheable(len(tokens))
        if self._own:
            self._own.give_back(slots[count:])
        slots, tokens = slots[:count], tokens[:count + self.is_eagle]
        done = self.core.insert(tokens, slots.cpu() if self._elsewhere else slots, extra_key=extra_key, priority=priority or 0,
                                chunked=chunked) if count else None
        known = done.prefix_tokens if done else 0
        if self._own and known:
            self._own.give_back(slots[:known])
        self._give_back()
        return known, done.node if done else 0

    def insert(self, params):
        if self.disable:
            return _base.InsertResult(prefix_len=0)
        tokens = _tokens(params.key)
        slots = params.value
        if slots is None:
            slots = torch.tensor(tokens, dtype=torch.int64)
        known, node = self._insert(tokens, slots, params.key.extra_key, params.priority, params.chunked)
        if _LAST:
            return _base.InsertResult(prefix_len=known, last_device_node=self._node(node, params.key.extra_key))
        return _base.InsertResult(prefix_len=known)

    def evict(self, params):
        if self.disable:
            return _base.EvictResult()
        start = time.perf_counter()
        count = self.core.evict(params.num_tokens)
        self._give_back()
        self.update_eviction_metrics(count, start)
        return _base.EvictResult(num_tokens_evicted=count)

    def inc_lock_ref(self, node):
        if self.disable or not node.ref:
            return _locked(delta=0)
        return _locked(delta=self.core.lock_node(node.ref))

    def dec_lock_ref(self, node, params=None):
        if self.disable or not node.ref:
            return _unlocked(delta=0)
        return _unlocked(delta=self.core.unlock_node(node.ref))

    # ---- requests ----

    def _publish(self, req, tokens, table, row, **how):
        """All of it in one call; (the last node, tokens that the tree has, the row's slots)."""
        node, kept, slots, freed = self.core.publish_row(
            tokens, table, row, req.last_node.ref if req.last_node is not None else 0, req.cache_protected_len,
            extra_key=req.extra_key, priority=getattr(req, "priority", 0) or 0, dtype="int64", **how)
        if freed is not None:
            self._free(self._on_device(_tensor(freed)))
        return node, kept, slots

    def _row(self, req, count):
        """Where the row is, of int32 on the CPU: a table and its number there, and whether that is a copy."""
        table = self.req_to_token_pool.req_to_token
        if not self._elsewhere and table.dtype == torch.int32:
            return table, req.req_pool_idx, False
        return table[req.req_pool_idx:req.req_pool_idx + 1, :count].to("cpu", torch.int32), 0, True

    def cache_finished_req(self, req, is_insert=True, *, kv_len_to_handle=None, **kwargs):
        count = _committed(req, kv_len_to_handle)
        if self.disable:  # of 2026-08: the protected prefix is not this request's
            protected = 0 if kv_len_to_handle is None else req.cache_protected_len
            self._free(self.req_to_token_pool.req_to_token[req.req_pool_idx, protected:count], protected)
            return
        is_insert = is_insert and not self.disable_finished_insert
        if self._own:
            self._finish_apart(req, (req.origin_input_ids + req.output_ids)[:count], is_insert)
        else:
            # Its prefill was the hit, where nothing has come since.
            counted = getattr(req.last_node, "published", False) and self._cacheable(count) <= req.cache_protected_len
            self._publish(req, req.origin_input_ids, *self._row(req, count)[:2], more_tokens=req.output_ids,
                          num_tokens=count, finished=True, is_insert=is_insert, chunked=counted)

    def cache_unfinished_req(self, req, chunked=False, **kwargs):
        if self.disable:
            return
        tokens = _fill_ids(req)
        if self._own:
            self._publish_apart(req, tokens, chunked)
            return
        table, row, is_copy = self._row(req, len(tokens))
        before = table.clone() if is_copy else None
        node, kept, slots = self._publish(req, tokens, table, row, chunked=chunked)
        if is_copy and not torch.equal(before, table):  # others were faster: theirs are in the tree
            self.req_to_token_pool.write((req.req_pool_idx, slice(0, len(tokens))), table[0].to(self.device))
        req.last_node, req.cache_protected_len = self._node(node, req.extra_key, not chunked), kept
        # Also what is not a whole page yet, which stays the request's own.
        req.prefix_indices = self._on_device(_tensor(slots))

    # The same for slots that stand for others (_own), step by step.

    def _finish_apart(self, req, tokens, is_insert):
        count, protected = len(tokens), req.cache_protected_len
        slots = self.req_to_token_pool.req_to_token[req.req_pool_idx, :count]
        kept = known = self._cacheable(count)
        if is_insert:
            known, _ = self._insert(tokens, slots.to(torch.int64), req.extra_key, getattr(req, "priority", 0))
        self._free(slots[protected:known], protected)  # another request's are in the tree
        self._free(slots[kept:], kept)
        if req.last_node is not None:
            self.dec_lock_ref(req.last_node)

    def _publish_apart(self, req, tokens, chunked):
        slots = self.req_to_token_pool.req_to_token[req.req_pool_idx, :len(tokens)]
        known, _ = self._insert(tokens, slots.to(torch.int64), req.extra_key, getattr(req, "priority", 0), chunked)
        have, protected = self._cacheable(len(tokens)), req.cache_protected_len
        self._free(slots[protected:known], protected)
        found = self.core.match_prefix(tokens, "int64", extra_key=req.extra_key)
        cached = self._matched(self._own.values[_tensor(found.slots)], 0).device_indices
        if len(cached) != have:
            raise RuntimeError(f"{len(cached)} of {have} tokens are cached after an insert")
        self.req_to_token_pool.write((req.req_pool_idx, slice(protected, have)), cached[protected:])
        before, req.last_node = req.last_node, Node(self, found.last_node)
        self.inc_lock_ref(req.last_node)
        self.dec_lock_ref(before)
        req.cache_protected_len = have
        req.prefix_indices = torch.cat((cached, slots[have:]))

    # ---- what it holds ----

    def is_root(self, node):
        return not node.ref

    def total_size(self):
        return self.core.total_size

    def all_values_flatten(self):
        slots = _tensor(self.core.all_values_flatten("int64"))
        if self._own:
            return self._own.values[slots]
        return self._on_device(slots)


class _Mark:
    """What an allocator has handed out since it was asked for its state."""

    def __init__(self):
        self.pages = set()


class _Allocator(_allocator.BaseTokenToKVPoolAllocator):
    """SGLang's allocators over radish.KVAllocator: tensors of slots in and out."""

    def __init__(self, size, page_size, dtype, device, kvcache, need_sort, **more):
        super().__init__(size, page_size, dtype, device, kvcache, need_sort)
        self._need_sort = need_sort
        self.core = self._make_core(size, **more)
        self._marks = weakref.WeakSet()
        self.clear()

    def _make_core(self, size, **more):
        return _core.KVAllocator(size // self.page_size, self.page_size, need_sort=self._need_sort, **more)

    def resize(self, config):
        """All is free again, and there are so many. SGLang asks for it when it has captured its graphs and knows
        what memory is left; a cache that takes these pages itself must not be there yet: refused."""
        core = self._make_core(config.max_total_num_tokens)
        self.core.close()
        self.core, self.size = core, config.max_total_num_tokens
        if self.page_size > 1:
            self.num_pages = core.num_pages
        self.clear()

    def clear(self):
        self.core.clear()
        for mark in self._marks:  # what it noted is nobody's, or another's
            mark.pages.clear()
        self._marks.clear()
        self.is_not_in_free_group = True
        self.free_group = []

    def available_size(self):
        return self.core.available_size

    def _slots(self, array):
        if array is None:
            return None
        slots = _tensor(array)
        for mark in self._marks:  # a page that is new to a request begins with its first slot
            mark.pages.update((slots[slots % self.page_size == 0] // self.page_size).tolist())
        return slots if self.device == "cpu" else slots.to(self.device)

    @property
    def free_pages(self):
        """For looking: asks about every page."""
        return torch.tensor([p for p in range(1, self.core.num_pages + 1) if not self.core.is_taken(p)])

    @free_pages.setter
    def free_pages(self, pages):
        """SGLang's base class makes a list of its own; there is none here."""

    def alloc(self, need_size):
        return self._slots(self.core.alloc_slots(need_size, "int64"))

    def free(self, free_index):
        if free_index.numel():
            self.core.free_pages_of(free_index.contiguous() if self.device == "cpu" else free_index.cpu().contiguous())

    def free_segment(self, free_index, *, start_pos):
        self.free(free_index)

    # Within a group what is freed is checked at once, and available at its end.

    def free_group_begin(self):
        if self.is_not_in_free_group:
            self.core.free_group_begin()
        self.is_not_in_free_group = False

    def free_group_end(self):
        if not self.is_not_in_free_group:
            self.core.free_group_end()
        self.is_not_in_free_group = True

    # SGLang of 2026-02 takes slots to try something and puts the state back.

    def backup_state(self):
        state = _Mark()
        self._marks.add(state)
        return state

    def restore_state(self, state):
        """What was handed out since, and not freed since, is free again. What was freed since stays free."""
        self._marks.discard(state)
        pages = [page for page in sorted(state.pages) if self.core.is_taken(page)]
        state.pages.clear()
        if pages:
            self.free(_slots_of(torch.tensor(pages), self.page_size).to(self.device))

    def get_cpu_copy(self, indices, **kwargs):
        return self._kvcache.get_cpu_copy(indices, **kwargs)

    def load_cpu_copy(self, kv_cache_cpu, indices, **kwargs):
        return self._kvcache.load_cpu_copy(kv_cache_cpu, indices, **kwargs)


class TokenToKVPoolAllocator(_Allocator):
    def __init__(self, size, dtype, device, kvcache, need_sort):
        super().__init__(size, 1, dtype, device, kvcache, need_sort)


class PagedTokenToKVPoolAllocator(_Allocator):
    def __init__(self, size, page_size, dtype, device, kvcache, need_sort):
        super().__init__(size, page_size, dtype, device, kvcache, need_sort)

    def alloc_extend(self, prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu, last_loc,
                     extend_num_tokens, **kwargs):
        return self._slots(self.core.alloc_extend(prefix_lens_cpu.to(torch.int64),
                                                  seq_lens_cpu.to(torch.int64),
                                                  last_loc.cpu().to(torch.int64), "int64"))

    def alloc_decode(self, seq_lens, seq_lens_cpu, last_loc, **kwargs):
        return self._slots(self.core.alloc_decode(seq_lens_cpu.to(torch.int64),
                                                  last_loc.cpu().to(torch.int64), "int64"))


# What stands in files of its own, over what is above.
_ELSEWHERE = {name: "radish." + module for module, names in {
    "sglang_components": ("MambaRadixCache", "SWARadixCache", "UnifiedRadixCache"),
    "sglang_chunk": ("ChunkCache", "PureSWAChunkCache", "SWAChunkCache"),
    "sglang_install": ("install", "make_cache"),
    "sglang_tiers": ("HiRadixCache",),
    "sglang_windows": ("SWATokenToKVPoolAllocator",),
}.items() for name in names}


def __getattr__(name):
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
