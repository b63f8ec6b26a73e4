"""radish.sglang_components - SGLang's caches for models whose layers do not all attend to everything.

    SWARadixCache       some layers see a sliding window; slots from a SWATokenToKVPoolAllocator
    MambaRadixCache     some layers carry a recurrent state; states from a HybridReqToTokenPool
    UnifiedRadixCache   what SGLang has used for all of them since the summer of 2026: it names nodes by
                        numbers, and params.tree_components says which kinds of layers there are

One libradish cache stands behind each: full pages, a window side of them, snapshots of states are values
in the same nodes. What SGLang's allocator holds stays there: pages and window sides that leave the tree go
to its free and free_swa, and where a duplicate brings back a window side that the tree had given up, its
entry of full_to_swa_index_mapping moves (SGLang's unified cache does the same where the old slots are
locked, else it changes slots).

An engine may see, besides what radish.sglang says: a lock holds the last window, not the nodes that it
lies in; windows are given back page by page, those first that no match is known to end behind; and what a
running request releases (dec_swa_lock_only) stays cached until somebody needs the room."""
import array
import importlib
import time
import weakref

import torch

from radish import _core
from radish.sglang import (NO_TIERS, _base, _Cache, _committed, _fill_ids, _hand_window_on, _OwnSlots, _slots_of,
                           _tensor, _tokens)
from radish.sglang_sessions import WithSessions
from radish.sglang_states import Snapshots, WithStates

_radix = importlib.import_module("sglang.srt.mem_cache.radix_cache")

_NEW_KEYS = hasattr(_radix.RadixKey, "page_aligned")  # since the summer of 2026: arrays, views of pairs

__all__ = ["MambaRadixCache", "SWARadixCache", "UnifiedRadixCache"]


def _maker(name):
    """SGLang's result of this name, of those of the given values that this version of it has; the first
    value itself where it has no such result."""
    kind = getattr(_base, name, None)
    if kind is None:
        return lambda **values: next(iter(values.values()))
    known = getattr(kind, "_fields", None) or kind.__dataclass_fields__
    return lambda **values: kind(**{k: v for k, v in values.items() if k in known})


_matched, _inserted, _evicted, _unlocked = map(_maker, ("MatchResult", "InsertResult", "EvictResult",
                                                         "DecLockRefResult"))
_locked, _insert_params = _maker("IncLockRefResult"), _maker("InsertParams")


class _Left:
    """libradish's free list: what left the tree, in order, until SGLang's allocator is told of it."""

    def __init__(self, num_pages):
        self.num_pages, self.log = num_pages, []

    def free_pages(self, pages):
        self.log.append(("free", pages))


class _LeftWithWindows(_Left):
    def free_windows(self, pages):
        self.log.append(("free_swa", pages))

    def move_window(self, source, target):
        self.log.append(("move", (source, target)))


class TreeNode:
    """A place in the tree. SGLang's schedulers need its id only; the rest is for looking, and key, value and
    children walk the whole tree."""

    def __init__(self, cache, ref):
        self.cache, self.id = cache, ref

    def __repr__(self):
        return f"TreeNode({self.id})"

    @property
    def info(self):
        return self.cache.core.node_info(self.id)

    def _walked(self):
        return next(n for n in self.cache.core.walk() if n.node == self.id)

    @property
    def parent(self):
        return self.cache._node(self.info.parent) if self.id else None

    @property
    def children(self):
        """By their first page, as SGLang's."""
        found = {}
        for n in self.cache.core.walk():
            child = self.cache._node(n.node)
            if child.parent is self:
                found[child.key.child_key(self.cache.page_size)] = child
        return found

    @property
    def key(self):
        ids = self._walked().tokens.tolist() if self.id else []
        if not self.cache.is_eagle:
            return _radix.RadixKey(self.cache._ids(ids), None)
        if not _NEW_KEYS:
            return _radix.RadixKey(list(zip(ids, ids[1:])), None, is_bigram=True)
        return _radix.RadixKey(self.cache._ids(ids), None, is_bigram=True)

    @property
    def value(self):
        return self.cache._their_slots(torch.tensor(self._walked().slots.tolist(), dtype=torch.int64))

    @property
    def component_data(self):
        return {kind: _Value(self, int(kind)) for kind in self.cache.tree_components}

    @property
    def lock_ref(self):
        return self.info.lock_ref if self.id else 1

    full_lock_ref = lock_ref
    hit_count = property(lambda self: self.info.hit_count)
    priority = property(lambda self: self.info.priority)
    swa_lock_ref = property(lambda self: self.info.window_lock_ref)
    swa_tombstone = property(lambda self: bool(self.id) and not self.info.window_tokens)
    mamba_value = property(lambda self: self.cache.states.slots.get(self.info.state))
    evicted = backuped = False


class _Value:
    """What a node has of one component: 0 full, 1 window, 2 state."""

    def __init__(self, node, component):
        self.node, self.component = node, component

    @property
    def lock_ref(self):
        info = self.node.info
        return (info.lock_ref, info.window_lock_ref, info.state_lock_ref)[self.component]

    @property
    def value(self):
        node, info = self.node, self.node.info
        if self.component == 2:
            return node.cache.states.slots.get(info.state)
        if self.component == 0:
            return node.value
        if not info.window_tokens:
            return None
        return node.cache.token_to_kv_pool_allocator.full_to_swa_index_mapping[node.value[-info.window_tokens:]]


class _Components(WithSessions, WithStates, _Cache):
    """What the three have in common."""

    EvictParams = _base.EvictParams
    names_numbers = False  # SGLang gets numbers of nodes, not nodes

    def __init__(self, params, components):
        pool = params.token_to_kv_pool_allocator
        super().__init__(params)
        self.tree_components = tuple(components)
        device = getattr(pool, "device", None)
        self.device = torch.device(device if isinstance(device, (str, torch.device)) else "cpu")
        self._elsewhere = self.device.type != "cpu"
        if params.enable_metrics:
            self.init_metrics_collector()
        kinds = {int(c) for c in components}
        self._windows, self._states = 1 in kinds, 2 in kinds
        size = getattr(pool, "size_full", None) or getattr(pool, "size", None)
        alike = isinstance(size, int) and getattr(pool, "page_size", self.page_size) == self.page_size
        self._own = None if alike else _OwnSlots(self.page_size)
        pages = max(size // self.page_size * 2, self.MOST_PAGES) if alike else self.MOST_PAGES
        self._left = (_LeftWithWindows if self._windows else _Left)(pages)
        more = {}
        self.sliding_window_size = None
        if self._windows:
            if not alike:
                raise ValueError(f"radish.sglang: window sides need an allocator with pages of {self.page_size}")
            self.sliding_window_size = more["window_tokens"] = params.sliding_window_size
        if self._states:
            self.states = Snapshots(self.req_to_token_pool)
            more["state_pool"] = self.states.core
            self.enable_mamba_extra_buffer = params.enable_mamba_extra_buffer
            self.is_eagle = False  # as in SGLang
        self.enable_session_radix_cache = self.names_numbers and getattr(params, "enable_session_radix_cache", False)
        self._sessions = {}  # name: number
        if self.enable_session_radix_cache:
            more["max_sessions"] = self.MOST_SESSIONS
        self.core = _core.RadixCache(
            page_size=self.page_size, free_list=self._left, eviction_policy=params.eviction_policy.lower(),
            is_eagle=self.is_eagle, enable_kv_events=self.enable_kv_cache_events, **more)
        self._locks, self._num_locks = {}, 0  # node: {number: receipt}
        self._nodes = weakref.WeakValueDictionary()
        self.root_node = self._node(0)
        self.reset()

    # ---- nodes ----

    def _node(self, ref):
        node = self._nodes.get(ref)
        if node is None:
            node = self._nodes[ref] = TreeNode(self, ref)
        return node

    def _handle(self, ref):
        return ref if self.names_numbers else self._node(ref)

    def _ref(self, handle):
        return handle if self.names_numbers else handle.id

    def resolve_node_handle(self, handle):
        return self._node(handle) if self.names_numbers else handle

    def root_node_handle(self, extra_key=None):
        return self._handle(0)

    def is_root(self, handle):
        return not self._ref(handle)

    def is_backuped(self, handle):
        return False

    # ---- slots ----

    def _their_slots(self, slots):
        if self._own:
            slots = self._own.values[slots]
        return self._on_device(slots)

    def _tell_allocator(self):
        """What left the tree, in the order in which it went."""
        log, self._left.log = self._left.log, []
        for what, pages in log:
            if what == "move":
                self._move_window(*pages)
                continue
            slots = _slots_of(torch.from_dlpack(pages).to(torch.int64), self.page_size)
            theirs = self._their_slots(slots)
            if self._own:
                self._own.give_back(slots)
            getattr(self.token_to_kv_pool_allocator, what)(theirs)
        if self._states:
            self.states.give_back_lost()

    def _move_window(self, source, target):
        pool = self.token_to_kv_pool_allocator
        if hasattr(pool, "move_window"):  # radish's
            pool.move_window(source, target)
        else:
            _hand_window_on(pool.full_to_swa_index_mapping, source, target, self.page_size)

    # ---- the tree ----

    def reset(self):
        for name in list(self._sessions):
            self.release_radix_session(name)
        self._locks.clear()
        self.core.reset()
        self._left.log.clear()  # SGLang clears its allocators itself
        if self._own:
            self._own = _OwnSlots(self.page_size)
        if self._states:
            self.states.forget()

    def match_prefix(self, params):
        key, root = params.key, self._handle(0)
        if self.disable or not len(key):
            return _matched(device_indices=torch.empty(0, dtype=torch.int64, device=self.device), last_device_node=root,
                            last_host_node=root, best_match_node=root)
        found = self.core.match_prefix(_tokens(key), "int64", extra_key=key.extra_key)
        node = self._handle(found.last_node)
        result = _matched(device_indices=self._their_slots(_tensor(found.slots)), last_device_node=node,
                          last_host_node=node, best_match_node=node, full_kv_hit_length=found.seen_tokens)
        return self._take_state(params, found, result) if self._states else result

    def insert(self, params, session=0):
        """Duplicates behind prev_prefix_len are given back, as SGLang's do."""
        if self.disable:
            return _inserted(prefix_len=0)
        tokens, slots = _tokens(params.key), params.value
        if slots is None:
            slots = torch.tensor(tokens, dtype=torch.int64)
        count = min(self._cacheable(len(tokens)), len(slots) - len(slots) % self.page_size)
        if not count:
            return _inserted(prefix_len=0, last_device_node=self._handle(0), mamba_exist=True)
        given = slots = slots[:count].to(torch.int64).cpu()
        if self._own:
            slots = self._own.take(count // self.page_size)
            self._own.values[slots] = given
        done = self.core.insert(tokens[:count + self.is_eagle], slots, extra_key=params.key.extra_key,
                                priority=getattr(params, "priority", 0) or 0, chunked=getattr(params, "chunked", False),
                                window_from=params.swa_evicted_seqlen if self._windows else 0, session=session)
        self._tell_allocator()
        if done is None:
            if self._own:
                self._own.give_back(slots)
            raise RuntimeError(f"radish.sglang: no node of {self.core.stats().num_nodes} is free for an insert")
        known = done.prefix_tokens
        if self._own:
            self._own.give_back(slots[:known])
        exists = self._states and not self.states.hang_in(self.core, done.node, count, params.mamba_value)
        if known > params.prev_prefix_len:
            self.token_to_kv_pool_allocator.free(given[params.prev_prefix_len:known].to(self.device))
        return _inserted(prefix_len=known, last_device_node=self._handle(done.node), total_len=count,
                         mamba_exist=exists)

    def evict(self, params):
        if self.disable:
            return _evicted()
        start, core = time.perf_counter(), self.core
        windows = core.window_evictable_size
        states = core.state_evictable_size
        full = core.evict(params.num_tokens)
        windows -= core.window_evictable_size
        states -= core.state_evictable_size
        if self._windows and windows < params.swa_num_tokens:
            windows += core.evict_window(params.swa_num_tokens - windows)
        if self._states and states < params.mamba_num:
            states += core.evict_state(params.mamba_num - states)
        self._tell_allocator()
        self.update_eviction_metrics(full, start)
        return _evicted(num_tokens_evicted=full, swa_num_tokens_evicted=windows, mamba_num_evicted=states)

    def inc_lock_ref(self, handle, skip_lock_components=()):
        ref = self._ref(handle)
        if self.disable or not ref:
            return _locked(swa_uuid_for_lock=None, delta=0)
        lock = self.core.inc_lock_ref(ref)
        self._num_locks += 1
        self._locks.setdefault(ref, {})[self._num_locks] = lock
        return _locked(swa_uuid_for_lock=self._num_locks if self._windows else None, delta=lock.evictable_change)

    def _receipt(self, handle, number, who):
        """The receipt that SGLang names by number, or the newest of the node."""
        locks = self._locks.get(self._ref(handle))
        if not locks:
            raise RuntimeError(f"{who}: {handle} is not locked")
        return locks, number if number in locks else next(reversed(locks))

    def dec_lock_ref(self, handle, params=None, skip_swa=False):
        ref = self._ref(handle)
        if self.disable or not ref:
            return _unlocked(delta=0)
        locks, number = self._receipt(handle, getattr(params, "swa_uuid_for_lock", params), "dec_lock_ref")
        change = self.core.dec_lock_ref(locks.pop(number))
        if not locks:
            del self._locks[ref]
        return _unlocked(delta=change)

    def dec_swa_lock_only(self, handle, swa_uuid_for_lock=None, skip_lock_node_ids=None):
        """The request has gone beyond the window in front of the node: the node stays, its window may go."""
        if self.disable or not self._ref(handle):
            return
        locks, number = self._receipt(handle, swa_uuid_for_lock, "dec_swa_lock_only")
        locks[number].release_window()

    # ---- requests ----

    def _ids(self, tokens):
        """Token ids as this version's RadixKey takes them."""
        return array.array("q", tokens) if _NEW_KEYS else tokens

    def _key(self, tokens, extra_key):
        if _NEW_KEYS:
            return _radix.RadixKey(tokens, extra_key, is_bigram=self.is_eagle).page_aligned(self.page_size)
        return _radix.RadixKey(tokens[:self._cacheable(len(tokens)) + self.is_eagle], extra_key)

    def _insert_req(self, req, tokens, slots, chunked=False, session=0, **more):
        """Duplicates go; the tree's last node."""
        values = slots[:self._cacheable(len(tokens))].to(torch.int64)
        if self._windows:
            more["swa_evicted_seqlen"] = getattr(req, "kv", req).swa_evicted_seqlen
        params = _insert_params(
            key=self._key(tokens, req.extra_key), value=values, prev_prefix_len=req.cache_protected_len,
            chunked=chunked, priority=getattr(req, "priority", 0) or 0, **more)
        return self.insert(params, session) if session else self.insert(params)

    def _row(self, req, count):
        return self.req_to_token_pool.req_to_token[req.req_pool_idx, :count]

    def _unlock_req(self, req):
        if req.last_node is not None:
            self.dec_lock_ref(req.last_node, _base.DecLockRefParams(swa_uuid_for_lock=req.swa_uuid_for_lock)
                              if hasattr(_base, "DecLockRefParams") else getattr(req, "swa_uuid_for_lock", None))

    def _free(self, slots):
        if slots.numel():
            self.token_to_kv_pool_allocator.free(slots)

    def cache_finished_req(self, req, is_insert=True, *, kv_len_to_handle=None, **kwargs):
        count = _committed(req, kv_len_to_handle)
        slots, protected = self._row(req, count), req.cache_protected_len
        if self.disable:
            self._free(slots[protected:])
            if self._states:
                self._cached_state(req, {}, None, True)
            return
        is_insert = is_insert and not self.disable_finished_insert
        kept, result, state = self._cacheable(count), None, {}
        if is_insert:
            if self._states:
                state, count = self._state_of(req, count, True)
            tokens = (req.origin_input_ids + req.output_ids)[:count]
            kept = self._cacheable(count)
            result = self._insert_req(req, tokens, slots, session=self._session_of_finished(req), **state)
        else:
            self._free(slots[protected:kept])
        self._free(slots[max(kept, protected):])
        self._unlock_req(req)
        if self._states:
            self._cached_state(req, state, result, True)

    def cache_unfinished_req(self, req, chunked=False, **kwargs):
        tokens = _fill_ids(req)
        slots, protected = self._row(req, len(tokens)), req.cache_protected_len
        if self.disable:
            req.prefix_indices = slots
            return
        state, count = self._state_of(req, len(tokens), False) if self._states else ({}, len(tokens))
        if not count:  # nothing that a state stands behind
            req.prefix_indices = slots.to(torch.int64)
            return self._cached_state(req, state, None, False)
        self._free_out_of_window(req, count)
        result = self._insert_req(req, tokens[:count], slots, chunked, **state)
        have = self._cacheable(count)
        found = self.match_prefix(_base.MatchPrefixParams(key=self._key(tokens[:count], req.extra_key)))
        cached = found.device_indices
        if len(cached) < max(result.prefix_len, protected):
            raise RuntimeError(f"{len(cached)} of {have} tokens are cached after an insert")
        self.req_to_token_pool.write((req.req_pool_idx, slice(protected, len(cached))), cached[protected:])
        self._unlock_req(req)
        lock = self.inc_lock_ref(found.last_device_node)
        req.last_node, req.cache_protected_len = found.last_device_node, len(cached)
        req.swa_uuid_for_lock = getattr(lock, "swa_uuid_for_lock", lock)
        req.swa_prefix_lock_released = False
        # What is not a whole page yet stays the request's own.
        rest = slots[len(cached):]
        req.prefix_indices = torch.cat((cached, rest)) if rest.numel() else cached
        if self._states:
            self._cached_state(req, state, result, False)

    def _free_out_of_window(self, req, count):
        """What the layers with windows cannot see from the next token on goes now, where SGLang wants it so."""
        envs = importlib.import_module("sglang.srt.environ").envs
        wanted = getattr(envs, "SGLANG_OPT_UNIFIED_CACHE_FREE_OUT_OF_WINDOW_SLOTS", None)
        if self._windows and wanted is not None and wanted.get():
            importlib.import_module("sglang.srt.mem_cache.common").free_swa_out_of_window_slots(
                req, count - 1, sliding_window_size=self.sliding_window_size, page_size=self.page_size,
                req_to_token_pool=self.req_to_token_pool,
                token_to_kv_pool_allocator=self.token_to_kv_pool_allocator)

    # ---- what it holds ----

    def supports_swa(self):
        return self._windows

    def supports_mamba(self):
        return self._states

    def full_evictable_size(self):
        return self.core.evictable_size

    def full_protected_size(self):
        return self.core.protected_size

    def swa_evictable_size(self):
        return self.core.window_evictable_size

    def swa_protected_size(self):
        return self.core.window_protected_size

    def mamba_evictable_size(self):
        return self.core.state_evictable_size

    def mamba_protected_size(self):
        return self.core.state_protected_size

    def total_size(self):
        core = self.core
        return core.total_size, core.window_evictable_size + core.window_protected_size

    def all_values_flatten(self):
        return self._their_slots(_tensor(self.core.all_values_flatten("int64")))

    def available_and_evictable_str(self):
        pool, lines = self.token_to_kv_pool_allocator, []
        of = {0: ("full", self.full_evictable_size(), getattr(pool, "full_available_size", pool.available_size)),
              1: ("swa", self.swa_evictable_size(), getattr(pool, "swa_available_size", None)),
              2: ("mamba", self.mamba_evictable_size(), self._states and self.states.allocator.available_size)}
        for component in self.tree_components:
            name, evictable, available = of[int(component)]
            free = available()
            lines.append(f"Available {name} tokens: {free + evictable} (available {free} + evictable {evictable})\n")
        return "".join(lines)

    def sanity_check(self):
        self.core.check()


class SWARadixCache(_Components):
    """SGLang's SWARadixCache: full pages, and a window side of the last of them."""

    def __init__(self, params):
        super().__init__(params, (0, 1))

    # As attributes, since some of SGLang reads them so.
    full_evictable_size_ = property(_Components.full_evictable_size)
    full_protected_size_ = property(_Components.full_protected_size)
    swa_evictable_size_ = property(_Components.swa_evictable_size)
    swa_protected_size_ = property(_Components.swa_protected_size)


class MambaRadixCache(_Components):
    """SGLang's MambaRadixCache: full pages, and snapshots of what recurrent layers carry."""

    def __init__(self, params):
        super().__init__(params, (0, 2))


class UnifiedRadixCache(_Components):
    """SGLang's UnifiedRadixCache: nodes are numbers; components by params.tree_components."""

    names_numbers = True

    def __init__(self, params):
        super().__init__(params, params.tree_components)
        self.tree_core = _TreeCore(self)

    def init_hicache(self, *args, **kwargs):
        """SGLang's registry calls it where host tiers are asked for."""
        raise NotImplementedError(NO_TIERS)


class _TreeCore:
    """What SGLang asks its tree core for to look at it."""

    def __init__(self, cache):
        self.cache, self.is_eagle = cache, cache.is_eagle

    def node_by_id(self, ref):
        return self.cache._node(ref)

    @property
    def evictable_device_leaves(self):
        nodes = [self.cache._node(n.node) for n in self.cache.core.walk()]
        return {n for n in nodes if n.info.is_evictable}
