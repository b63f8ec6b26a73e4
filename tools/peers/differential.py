"""SGLang's trees and radish.sglang's side by side: the same random calls, and each answer compared.

Two caches get the same inserts, matches, locks, unlocks and evictions. What is not compared, and why:

    smaller evictions    SGLang's match splits nodes and its eviction takes whole leaves, libradish takes pages
                         from a leaf's end. Where no node is split (order) what goes first is compared, but
                         of slru: a new node has one hit there and none here; and of lfu until the summer of
                         2026, when SGLang began to count.
    hashes of names      of a namespace of its own (extra_key) SGLang's are those of no namespace."""
import importlib
import random
import types

import torch


class Pool:
    """Keeps what it is given."""
    device, size = "cpu", 1 << 16

    def __init__(self):
        self.freed = []

    def free(self, slots):
        self.freed += slots.tolist()

    def free_segment(self, slots, *, start_pos):
        self.freed += slots.tolist()


class WindowPool(Pool):
    """With a window side, which is there until free_swa or free takes it."""

    def __init__(self, page_size):
        Pool.__init__(self)
        self.page_size, self.freed_windows = page_size, []
        self.full_to_swa_index_mapping = torch.zeros(self.size * 2, dtype=torch.int64)
        self._kvcache = self
        self.full_attn_allocator = types.SimpleNamespace(free=lambda slots: Pool.free(self, slots))

    def clear(self):
        pass

    def alloc(self, slots):
        self.full_to_swa_index_mapping[slots] = slots

    def free(self, slots):
        self.free_swa(slots)
        Pool.free(self, slots)

    def free_segment(self, slots, *, start_pos):
        self.free(slots)

    def set_full_to_swa_mapping(self, slots, windows):
        self.full_to_swa_index_mapping[slots] = windows

    def free_swa(self, slots):
        gone = slots[self.full_to_swa_index_mapping[slots] > 0]
        self.freed_windows += gone.tolist()
        self.full_to_swa_index_mapping[gone] = 0

    def translate_loc_from_full_to_swa(self, slots):
        return self.full_to_swa_index_mapping[slots]


class Differs(Exception):
    pass


def same(what, answers):
    if answers[0] != answers[1]:
        raise Differs(f"{what}: theirs {str(answers[0])[:160]}, ours {str(answers[1])[:160]}")


def delta(result):
    return getattr(result, "delta", result)


class Setting:
    def __init__(self, seed, page, eagle=False, spaces=(None,), **params):
        self.base = importlib.import_module("sglang.srt.mem_cache.base_prefix_cache")
        self.make = importlib.import_module("sglang.srt.mem_cache.cache_init_params").CacheInitParams
        self.RadixKey = importlib.import_module("sglang.srt.mem_cache.radix_cache").RadixKey
        self.new_keys = hasattr(self.RadixKey, "page_aligned")
        self.rng, self.page, self.eagle, self.spaces, self.params = random.Random(seed), page, eagle, spaces, params
        self.next_page, self.held, self.steps = 1, [], 0

    def key(self, tokens, space=None):
        import array
        return self.RadixKey(array.array("q", tokens) if self.new_keys else list(tokens), space)

    def caches(self, kinds, pools):
        self.pools = pools
        return [kind(self.make(disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=pool,
                               page_size=self.page, is_eagle=self.eagle, enable_kv_cache_events=True, **self.params))
                for kind, pool in zip(kinds, pools)]

    def tokens(self, longest=9):
        return [self.rng.randrange(2) for _ in range(self.page * self.rng.randrange(1, longest)
                                                     + self.rng.randrange(self.page))]

    def slots(self, pages):
        slots = torch.arange(self.next_page * self.page, (self.next_page + pages) * self.page)
        self.next_page = self.next_page + pages if self.next_page < 15000 else 1
        return slots


def trees(setting, theirs, ours, steps):
    """RadixCache: how many events were equal."""
    s, rng, base = setting, setting.rng, setting.base
    caches = s.caches((theirs, ours), [Pool(), Pool()])
    for s.steps in range(steps):
        tokens, space = s.tokens(), rng.choice(s.spaces)
        action = rng.randrange(8)
        if action < 3:
            pages = (len(tokens) - s.eagle) // s.page
            tokens, slots, priority = tokens[:pages * s.page + s.eagle], s.slots(pages), rng.randrange(3)
            same("insert", [c.insert(base.InsertParams(key=s.key(tokens, space), value=slots.clone(),
                                                       priority=priority)).prefix_len for c in caches])
        elif action < 6:
            got = [c.match_prefix(base.MatchPrefixParams(key=s.key(tokens, space))) for c in caches]
            same("match", [g.device_indices.tolist() for g in got])
            if action == 5 and len(s.held) < 4:
                same("lock", [delta(c.inc_lock_ref(g.last_device_node)) for c, g in zip(caches, got)])
                s.held.append([g.last_device_node for g in got])
        elif action == 6 and s.held:
            nodes = s.held.pop(rng.randrange(len(s.held)))
            same("unlock", [delta(c.dec_lock_ref(n)) for c, n in zip(caches, nodes)])
        elif action == 7 and rng.randrange(8) == 0:
            all_of_it = base.EvictParams(num_tokens=max(caches[0].evictable_size(), 1))
            same("evict", [c.evict(all_of_it).num_tokens_evicted for c in caches])
            same("evicted", [sorted(p.freed) for p in s.pools])
            for p in s.pools:
                p.freed.clear()
        same("sizes", [(c.evictable_size(), c.protected_size(), c.total_size()) for c in caches])
    events = [c.take_events() for c in caches]
    if s.spaces == (None,):
        same("stored", [sorted((e.block_hashes, e.parent_block_hash or 0) for e in all
                               if type(e).__name__ == "BlockStored") for all in events])
        same("removed", [sorted(h for e in all if type(e).__name__ == "BlockRemoved" for h in e.block_hashes)
                         for all in events])
    return len(events[1])


def order(setting, theirs, ours, steps):
    """RadixCache: what goes first. Keys are rows of segments that never part within one, so that no node is
    split and both trees have the same shape; theirs says how many tokens its leaves were, ours is asked for those."""
    s, rng, base = setting, setting.rng, setting.base
    caches = s.caches((theirs, ours), [Pool(), Pool()])
    went = 0
    for s.steps in range(steps):
        path = tuple(rng.randrange(3) for _ in range(rng.randrange(1, 5)))
        tokens = []
        for depth in range(1, len(path) + 1):  # a segment's tokens are told by the whole path to it
            name = sum((digit + 1) * 4 ** i for i, digit in enumerate(path[:depth]))
            tokens += [name] * (s.page * (1 + name % 3))
        action = rng.randrange(6)
        if action < 3:
            for depth in range(1, len(path) + 1):  # each segment is a node
                upto = max(i for i, t in enumerate(tokens)
                           if t == sum((d + 1) * 4 ** k for k, d in enumerate(path[:depth]))) + 1
                slots, priority = s.slots(upto // s.page), rng.randrange(3)
                same("insert", [c.insert(base.InsertParams(key=s.key(tokens[:upto]), value=slots.clone(),
                                                           priority=priority)).prefix_len for c in caches])
        elif action < 5:
            got = [c.match_prefix(base.MatchPrefixParams(key=s.key(tokens))) for c in caches]
            same("match", [g.device_indices.tolist() for g in got])
        elif caches[0].evictable_size():
            for p in s.pools:
                p.freed.clear()
            count = caches[0].evict(base.EvictParams(num_tokens=rng.randrange(1, 6 * s.page))).num_tokens_evicted
            same("evict", [count, caches[1].evict(base.EvictParams(num_tokens=count)).num_tokens_evicted])
            same("evicted", [sorted(p.freed) for p in s.pools])
            went += count
    return went


def windows(setting, theirs, ours, steps):
    """SWARadixCache. Not compared: which slots a match gives where a duplicate brought a window back (SGLang takes
    the newer slots, libradish moves their window sides), and what goes first in a smaller eviction."""
    s, rng, base = setting, setting.rng, setting.base
    kind = importlib.import_module(theirs.__module__).SWATokenToKVPoolAllocator  # which it insists on
    pool = type("Pool", (WindowPool, kind), {})
    caches = s.caches((theirs, ours), [pool(s.page), pool(s.page)])
    for s.steps in range(steps):
        tokens, action = s.tokens(), rng.randrange(8)
        if action < 3:
            tokens = tokens[:len(tokens) // s.page * s.page]
            slots = s.slots(len(tokens) // s.page)
            gone = rng.choice((0, 0, rng.randrange(len(tokens) // s.page) * s.page))
            answers = []
            for cache, pool in zip(caches, s.pools):
                pool.alloc(slots)
                pool.free_swa(slots[:gone])
                answers.append(cache.insert(base.InsertParams(key=s.key(tokens), value=slots.clone(),
                                                              swa_evicted_seqlen=gone)).prefix_len)
            same("insert", answers)
        elif action < 6:
            got = [c.match_prefix(base.MatchPrefixParams(key=s.key(tokens))) for c in caches]
            same("match", [len(g.device_indices) for g in got])
            if action == 5 and len(s.held) < 4 and len(got[0].device_indices):
                s.held.append([(g.last_device_node, c.inc_lock_ref(g.last_device_node)) for c, g in zip(caches, got)])
        elif action == 6 and s.held:
            for cache, (node, lock) in zip(caches, s.held.pop(rng.randrange(len(s.held)))):
                uuid = getattr(lock, "swa_uuid_for_lock", lock)
                cache.dec_lock_ref(node, base.DecLockRefParams(swa_uuid_for_lock=uuid)
                                   if hasattr(base, "DecLockRefParams") else uuid)
        elif action == 7 and rng.randrange(8) == 0 and not s.held:
            for cache in caches:  # a leaf that has lost its window goes at once there, here when its pages are wanted
                cache.evict(base.EvictParams(num_tokens=0, swa_num_tokens=max(cache.swa_evictable_size(), 1)))
                cache.evict(base.EvictParams(num_tokens=max(cache.full_evictable_size(), 1)))
        same("full sizes", [(c.full_evictable_size(), c.full_protected_size()) for c in caches])
        same("windows", [c.swa_evictable_size() + c.swa_protected_size() for c in caches])
        same("freed", [len(p.freed) for p in s.pools])
    return len(s.pools[1].freed)


UNITS = {"trees": "events", "order": "tokens evicted", "windows": "slots given back"}


def run(steps, names=()):
    """How many of the settings differ in an answer."""
    radix = importlib.import_module("sglang.srt.mem_cache.radix_cache").RadixCache
    import radish.sglang as ours
    settings = [(f"{policy}, pages of {page}{', bigrams' if eagle else ''}", trees, radix, ours.RadixCache,
                 dict(page=page, eagle=eagle, eviction_policy=policy, spaces=(None, "a") if eagle else (None,)))
                for policy in ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru")
                for page in (1, 4) for eagle in (False, True)]
    counts_hits = hasattr(importlib.import_module("sglang.srt.mem_cache.radix_cache").RadixKey, "page_aligned")
    settings += [(f"order of {policy}, pages of {page}", order, radix, ours.RadixCache,
                  dict(page=page, eviction_policy=policy))
                 for policy in ("lru", "fifo", "mru", "filo", "priority") + ("lfu",) * counts_hits for page in (1, 4)]
    try:
        swa = importlib.import_module("sglang.srt.mem_cache.swa_radix_cache").SWARadixCache
        settings += [(f"windows of {window}, pages of {page}", windows, swa, ours.SWARadixCache,
                      dict(page=page, sliding_window_size=window)) for page in (1, 4) for window in (1, 4, 9)]
    except ImportError:
        pass
    wrong = 0
    for name, compare, theirs, mine, params in settings:
        if names and not any(n in name for n in names):
            continue
        setting = Setting(name, **params)
        try:
            events = compare(setting, theirs, mine, steps)
            print(f"equal         {name}: {setting.steps + 1} steps, {events} {UNITS[compare.__name__]}", flush=True)
        except ValueError as e:
            if "policy" not in str(e):
                raise
            print(f"not there     {name}: {e}", flush=True)
        except Differs as e:
            wrong += 1
            print(f"differs       {name}, step {setting.steps}, {e}", flush=True)
    return wrong
