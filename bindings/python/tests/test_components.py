"""radish.sglang's caches with windows and states under random requests: nobody's slot is lost, and what a match
gives has the K/V and the state of its tokens."""
import random
import sys
import types
import unittest

from stand_ins import Key, Rows, imported, module, torch

WINDOW = 6


class Pages:
    """SGLang's allocators with a full and a window side, as far as a cache uses them."""

    def __init__(self, size, size_swa, page_size):
        self.page_size, self.size_full, self.size_swa, self.device = page_size, size, size_swa, "cpu"
        self.full = list(range(1, size // page_size + 1))
        self.swa = list(range(1, size_swa // page_size + 1))
        self.full_to_swa_index_mapping = torch.zeros(size + page_size, dtype=torch.int64)
        self.taken = set()

    def full_available_size(self):
        return len(self.full) * self.page_size

    def swa_available_size(self):
        return len(self.swa) * self.page_size

    def slots(self, pages):
        pages = torch.tensor(pages, dtype=torch.int64)
        return (pages[:, None] * self.page_size + torch.arange(self.page_size)).reshape(-1)

    def alloc(self, count):
        count //= self.page_size
        pages, self.full = self.full[:count], self.full[count:]
        windows, self.swa = self.swa[:count], self.swa[count:]
        assert len(pages) == len(windows) == count, "no room"
        self.taken |= set(pages)
        slots = self.slots(pages)
        self.full_to_swa_index_mapping[slots] = self.slots(windows)
        return slots

    def pages(self, slots):
        return torch.unique(slots.long() // self.page_size).tolist()

    def free(self, slots):
        self.free_swa(slots)
        for page in self.pages(slots):
            self.taken.remove(page)  # KeyError: freed twice
            self.full.append(page)

    def free_swa(self, slots):
        for page in self.pages(slots):
            first = page * self.page_size
            window = int(self.full_to_swa_index_mapping[first])
            if window:
                self.swa.append(window // self.page_size)
                self.full_to_swa_index_mapping[first:first + self.page_size] = 0


class WindowPool:
    """What SGLang's KV pools of two kinds of layers are to an allocator."""

    def register_mapping(self, mapping):
        self.mapping = mapping

    def translate_loc_from_full_to_swa(self, slots):
        return self.mapping[slots]


class States:
    """SGLang's rows with a slot for a state in each."""

    def __init__(self, size):
        self.size, self.free_slots, self.content = size, list(range(1, size + 1)), {}
        self.mamba_allocator = self.mamba_pool = self
        self.rows = Rows()
        self.req_to_token, self.write = self.rows.req_to_token, self.rows.write

    def available_size(self):
        return len(self.free_slots)

    def alloc(self, count):
        if not self.free_slots:
            return None
        return torch.tensor([self.free_slots.pop(0)])

    def free(self, slots):
        assert not set(slots.tolist()) & set(self.free_slots), "freed twice"
        self.free_slots += slots.tolist()

    def copy_from(self, source, target):
        self.content[int(target)] = self.content[int(source)]

    def free_mamba_cache(self, req):
        self.free(req.mamba_pool_idx.unsqueeze(0))
        req.mamba_pool_idx = None


def request(row, tokens, answer):
    return types.SimpleNamespace(
        req_pool_idx=row, origin_input_ids=tokens, output_ids=answer, fill_ids=tokens, extra_key=None, priority=0,
        swa_uuid_for_lock=None, swa_evicted_seqlen=0, mamba_pool_idx=None, mamba_last_track_seqlen=None,
        pop_committed_kv_cache=lambda: len(tokens) + len(answer))


@unittest.skipUnless(torch, "no torch: python3-torch")
class Components(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (cls.sglang, params, cls.base), cls.forget = imported(
            "radish.sglang", "sglang.srt.mem_cache.cache_init_params", "sglang.srt.mem_cache.base_prefix_cache")
        cls.Params = params.CacheInitParams

    @classmethod
    def tearDownClass(cls):
        cls.forget()

    def pages(self, size, size_swa, page, ours, need_sort=False):
        if not ours:
            return Pages(size, size_swa, page)
        return self.sglang.SWATokenToKVPoolAllocator(size, size_swa, page, None, "cpu", WindowPool(), need_sort)

    def start(self, cache, pool, req, written, windows):
        """Match, lock, slots, K/V; the tokens that were found."""
        tokens, total, page = req.origin_input_ids, len(req.origin_input_ids) + len(req.output_ids), pool.page_size
        params = self.base.MatchPrefixParams(key=Key(tokens[:-1]), cow_mamba=True, req=req)
        found = cache.match_prefix(params)
        lock = cache.inc_lock_ref(found.last_device_node)
        have = len(found.device_indices)
        req.swa_uuid_for_lock, req.last_node, req.cache_protected_len = (
            lock.swa_uuid_for_lock, found.last_device_node, have)
        history = [hash(tuple((tokens + req.output_ids)[:i + 1])) for i in range(total)]
        for i, slot in enumerate(found.device_indices.tolist()):
            self.assertEqual(written["full", slot], history[i])
            if windows and i >= have - WINDOW:
                window = int(pool.full_to_swa_index_mapping[slot])
                self.assertTrue(window, "a match without its window")
                self.assertEqual(written["swa", window], history[i])
        need = -(-total // page) * page - have
        cache.evict(self.base.EvictParams(num_tokens=max(need - pool.full_available_size(), 0),
                                          swa_num_tokens=max(need - pool.swa_available_size(), 0)))
        slots = pool.alloc(need)
        rows = cache.req_to_token_pool
        rows.write((req.req_pool_idx, slice(0, have)), found.device_indices)
        rows.write((req.req_pool_idx, slice(have, have + need)), slots)
        for i, slot in enumerate(slots[:total - have].tolist()):
            written["full", slot] = history[have + i]
            written["swa", int(pool.full_to_swa_index_mapping[slot])] = history[have + i]
        return have, history

    def release_window(self, cache, pool, req, done):
        """As SGLang does once a request has gone on: nothing looks before these any more."""
        upto = max(done - WINDOW - pool.page_size, 0) // pool.page_size * pool.page_size
        upto = max(upto, req.swa_evicted_seqlen)
        first = max(req.cache_protected_len, req.swa_evicted_seqlen)
        if upto > first:
            pool.free_swa(cache.req_to_token_pool.req_to_token[req.req_pool_idx, first:upto])
        req.swa_evicted_seqlen = upto
        cache.dec_swa_lock_only(req.last_node, req.swa_uuid_for_lock)

    def test_what_is_refused_changes_nothing(self):
        for page in (1, 4):
            pool = self.pages(64, 32, page, True)
            slots = pool.alloc(16)
            before = pool.full_to_swa_index_mapping.clone()
            for wrong in (slots.float(), slots.reshape(4, 4), torch.tensor([-4]), torch.tensor([0]), torch.tensor([1 << 40]),
                          torch.tensor([64 + page]), torch.cat((slots, torch.tensor([64])))):
                for free in (pool.free, pool.free_swa):
                    with self.assertRaises((TypeError, ValueError, RuntimeError)):
                        free(wrong)
                    self.assertEqual((pool.full_available_size(), pool.swa_available_size()), (48, 16))
                    self.assertTrue(torch.equal(pool.full_to_swa_index_mapping, before))
            two = torch.tensor([0, 4])
            with self.assertRaisesRegex(NotImplementedError, "one request"):
                pool.alloc_extend_swa_tail(two, two, two + 4, two + 4, torch.tensor([-1, -1]), 8, 4)

    def test_both_pools_are_resized_before_a_cache_stands_on_them(self):
        for page in (1, 4):
            pool = self.pages(64, 32, page, True)
            self.assertIsNotNone(pool.alloc(16))
            for size, size_swa in ((48, 24), (64, 40)):
                sizes = types.SimpleNamespace(full_max_total_num_tokens=size, swa_max_total_num_tokens=size_swa)
                pool.resize(sizes)
                self.assertEqual((pool.size_full, pool.size_swa, pool.size), (size, size_swa, size_swa))
                self.assertEqual((pool.full_available_size(), pool.swa_available_size()), (size, size_swa))
                self.assertEqual((pool.full_attn_allocator.size, pool.swa_attn_allocator.size), (size, size_swa))
                self.assertFalse(pool.full_to_swa_index_mapping[:-1].any())
                slots = pool.alloc(size_swa)
                self.assertIsNone(pool.alloc(page))
                windows = pool.full_to_swa_index_mapping[slots]
                self.assertEqual(sorted(windows.tolist()), list(range(page, size_swa + page)))
                pool.free(slots)
            with self.assertRaisesRegex(ValueError, "made for 64 tokens cannot grow to 68"):
                pool.resize(types.SimpleNamespace(full_max_total_num_tokens=68, swa_max_total_num_tokens=40))
            self.assertEqual((pool.full_available_size(), pool.swa_available_size()), (64, 40))

    def test_windows(self):
        for page, ours in ((1, False), (4, False), (1, True), (4, True)):
            rng, written = random.Random(page), {}
            pool, rows = self.pages(192, 96, page, ours), Rows()
            cache = self.sglang.SWARadixCache(self.Params(
                req_to_token_pool=rows, token_to_kv_pool_allocator=pool, page_size=page, sliding_window_size=WINDOW))
            found = 0
            for _ in range(80):
                reqs = []
                for row in range(rng.randrange(1, 3)):
                    tokens = [rng.randrange(2) for _ in range(rng.randrange(2, 30))]
                    reqs.append(request(row + 1, tokens, [7, 8, 9]))
                    found += self.start(cache, pool, reqs[-1], written, True)[0]
                for req in reqs:
                    cache.cache_unfinished_req(req)
                    if rng.randrange(2) and req.cache_protected_len:
                        self.release_window(cache, pool, req, len(req.fill_ids))
                for req in reqs:
                    cache.cache_finished_req(req, is_insert=rng.randrange(8) > 0)
                cache.sanity_check()
                total, windows = cache.total_size()
                self.assertEqual(pool.full_available_size() + total, 192)
                self.assertEqual(pool.swa_available_size() + windows, 96)
                self.assertEqual((cache.full_protected_size(), cache.swa_protected_size()), (0, 0))
            self.assertGreater(found, 60)
            cache.evict(self.base.EvictParams(num_tokens=0, swa_num_tokens=1000))
            self.assertEqual((pool.swa_available_size(), cache.swa_evictable_size()), (96, 0))
            cache.evict(self.base.EvictParams(num_tokens=1000))
            self.assertEqual((pool.full_available_size(), int(pool.full_to_swa_index_mapping[:192].abs().sum())), (192, 0))
            if ours:
                pool.core.check()

    def test_a_duplicate_brings_a_window_back(self):
        for ours in (False, True):
            self.bring_a_window_back(self.pages(64, 64, 1, ours))

    def bring_a_window_back(self, pool):
        rows = Rows()
        cache = self.sglang.SWARadixCache(self.Params(
            req_to_token_pool=rows, token_to_kv_pool_allocator=pool, page_size=1, sliding_window_size=WINDOW))
        tokens = list(range(10))
        cache.insert(self.base.InsertParams(key=Key(tokens), value=pool.alloc(10)))
        self.assertEqual(cache.evict(self.base.EvictParams(swa_num_tokens=10)).swa_num_tokens_evicted, 10)
        match = lambda: cache.match_prefix(self.base.MatchPrefixParams(key=Key(tokens))).device_indices.tolist()
        self.assertEqual(match(), [])
        again = pool.alloc(10)
        windows = pool.full_to_swa_index_mapping[again].tolist()
        self.assertEqual(cache.insert(self.base.InsertParams(key=Key(tokens), value=again)).prefix_len, 10)
        self.assertEqual(match(), list(range(1, 11)))  # the tree's own slots, with the windows of the others
        self.assertEqual(pool.full_to_swa_index_mapping[match()].tolist(), windows)
        self.assertEqual((pool.full_available_size(), pool.swa_available_size()), (54, 54))

    def test_an_allocator_with_windows(self):
        """Random calls beside a double that is two lists: pages that are taken, and those with a window side."""
        lens = lambda *n: torch.tensor(n)
        for page in (1, 4):
            pool, rng = self.pages(96, 48, page, True, need_sort=page == 1), random.Random(page)
            mapping, held, windows, state = pool.full_to_swa_index_mapping, [], set(), None
            expand = lambda pages: [p * page + i for p in pages for i in range(page)]
            for step in range(200):
                what, held = rng.randrange(6), held[:]
                if what == 0:
                    count = rng.randrange(1, 5)
                    slots = pool.alloc(count * page)
                    room = len(held) + count <= 96 // page and len(windows) + count <= 48 // page
                    self.assertEqual(slots is not None, room)
                    if room:
                        pages = [int(s) // page for s in slots[::page]]
                        self.assertEqual(slots.tolist(), expand(pages))
                        self.assertFalse(set(pages) & set(held))
                        held, windows = held + pages, windows | set(pages)
                elif what == 1 and held:
                    pages = rng.sample(held, rng.randrange(1, len(held) + 1))
                    pool.free_swa(torch.tensor(expand(pages)[::rng.choice((1, page))]))
                    windows -= set(pages)
                elif what == 2 and held:
                    pages = rng.sample(held, rng.randrange(1, min(len(held), 6) + 1))
                    pool.free_group_begin()
                    pool.free(torch.tensor(expand(pages)))
                    pool.free_group_end()
                    held, windows = [p for p in held if p not in pages], windows - set(pages)
                    with self.assertRaises(RuntimeError):
                        pool.free(torch.tensor([pages[0] * page]))
                elif what == 3 and set(held) - windows and windows:
                    source, target = rng.choice(sorted(windows)), rng.choice(sorted(set(held) - windows))
                    moved = mapping[expand([source])].tolist()
                    pool.move_window(source, target)
                    self.assertEqual(mapping[expand([target])].tolist(), moved)
                    windows = windows - {source} | {target}
                elif what == 4:
                    state = pool.backup_state()
                    first = pool.alloc(2 * page)
                    if first is not None and page > 1:  # the rest of a page, and the next one
                        pool.alloc_extend(lens(6), lens(6), lens(9), lens(9), first[5:6], 3)
                        pool.alloc_decode(lens(9), lens(9), first[6:7] + 1)
                    pool.restore_state(state)
                elif what == 5 and page > 1:
                    slots = pool.alloc_extend_swa_tail(lens(0), lens(0), lens(10), lens(10), lens(-1), 10, 3)
                    if slots is not None:
                        pages = [int(s) // page for s in slots[::page]]
                        held, windows = held + pages, windows | set(pages[1:])
                self.assertEqual((pool.full_available_size(), pool.swa_available_size()),
                                 (96 - len(held) * page, 48 - len(windows) * page))
                self.assertEqual(pool.available_size(), min(pool.full_available_size(), pool.swa_available_size()))
                # Of a page only the slots that were handed out are in the map.
                of = {slot: window for slot in expand(windows) if (window := int(mapping[slot]))}
                self.assertGreaterEqual(len(of), len(windows) * (1 if page == 1 else 2))
                self.assertEqual(len(set(of.values())), len(of))
                self.assertTrue(all(0 < w < 48 + page and w % page == s % page for s, w in of.items()))
                self.assertEqual(int((mapping[:-1] > 0).sum()), len(of))
                pool.core.check()
            self.assertEqual(pool.translate_loc_from_full_to_swa(lens(-1, 0)).tolist(), [-1, 0])
            self.assertEqual((pool.size, pool.size_full, pool.size_swa), (48, 96, 48))
            self.assertEqual(pool.swa_attn_allocator.available_size(), pool.swa_available_size())
            with self.assertRaisesRegex(AttributeError, "go together"):
                pool.full_attn_allocator.alloc(4)
            pool.clear()
            self.assertEqual((pool.full_available_size(), int(mapping.sum())), (96, -1))

    def test_locks_go_by_number(self):
        pool = Pages(64, 64, 1)
        cache = self.sglang.SWARadixCache(self.Params(
            req_to_token_pool=Rows(), token_to_kv_pool_allocator=pool, page_size=1, sliding_window_size=WINDOW))
        cache.insert(self.base.InsertParams(key=Key(list(range(10))), value=pool.alloc(10)))
        node = cache.match_prefix(self.base.MatchPrefixParams(key=Key(list(range(10))))).last_device_node
        one, two = cache.inc_lock_ref(node), cache.inc_lock_ref(node)
        cache.dec_swa_lock_only(node, one.swa_uuid_for_lock)
        self.assertEqual((cache.swa_protected_size(), cache.full_protected_size()), (WINDOW, 10))
        cache.dec_lock_ref(node, self.base.DecLockRefParams(swa_uuid_for_lock=two.swa_uuid_for_lock))
        self.assertEqual((cache.swa_protected_size(), cache.full_protected_size()), (0, 10))
        cache.dec_lock_ref(node, self.base.DecLockRefParams(swa_uuid_for_lock=one.swa_uuid_for_lock))
        self.assertEqual(cache.full_protected_size(), 0)
        with self.assertRaisesRegex(RuntimeError, "is not locked"):
            cache.dec_lock_ref(node)
        with self.assertRaisesRegex(ValueError, "pages of 4"):
            self.sglang.SWARadixCache(self.Params(token_to_kv_pool_allocator=pool, page_size=4, sliding_window_size=8))

    def test_a_server_gets_the_cache_of_its_layers(self):
        kinds = types.SimpleNamespace(FULL=0, SWA=1, MAMBA=2)
        module("sglang.srt.mem_cache.unified_cache")
        module("sglang.srt.mem_cache.unified_cache.components", ComponentType=kinds)
        module("sglang.srt.mem_cache.swa_radix_cache", SWARadixCache=None)
        registered = {}
        module("sglang.srt.mem_cache.registry", registered_radix_cache_backends=lambda: list(registered),
               register_radix_cache_backend=registered.__setitem__)
        self.sglang.install()
        self.sglang.install()
        self.assertIs(sys.modules["sglang.srt.mem_cache.swa_radix_cache"].SWARadixCache, self.sglang.SWARadixCache)

        def made(windows=False, states=False, disabled=False, tiers=False, full_tokens=None):
            params = self.Params(req_to_token_pool=States(4), token_to_kv_pool_allocator=Pages(16, 16, 1),
                                 sliding_window_size=4)
            return registered["radish"](types.SimpleNamespace(
                params=params, is_hybrid_swa=windows, is_hybrid_ssm=states, disable_radix_cache=disabled,
                effective_chunked_prefill_size=8, enable_hierarchical_cache=tiers, full_tokens_per_layer=full_tokens))

        self.assertIs(type(made()), self.sglang.RadixCache)
        for windows, states in ((True, False), (False, True), (True, True)):
            cache = made(windows, states)
            self.assertIs(type(cache), self.sglang.UnifiedRadixCache)
            self.assertEqual((cache.supports_swa(), cache.supports_mamba()), (windows, states))
            self.assertEqual(cache.root_node.id, cache.root_node_handle())
        self.assertIs(type(made(disabled=True)), self.sglang.ChunkCache)
        self.assertIs(type(made(True, disabled=True)), self.sglang.SWAChunkCache)
        self.assertIs(type(made(True, disabled=True, full_tokens=0)), self.sglang.PureSWAChunkCache)
        with self.assertRaisesRegex(ValueError, "enable-hierarchical-cache"):
            made(windows=True, tiers=True)
        with self.assertRaisesRegex(NotImplementedError, "enable-hierarchical-cache"):
            made(True).init_hicache(None, None)  # SGLang's own registry, behind install()

    def test_caches_that_sglang_derives_from_its_tree_are_refused(self):
        """Behind install() its HiRadixCache has radish's class for a base, and would call what is not there."""
        theirs = type("HiRadixCache", (self.sglang.RadixCache,), {
            "__module__": "sglang.srt.mem_cache.hiradix_cache", "__init__": lambda self, params, args: None})
        with self.assertRaisesRegex(NotImplementedError, "HiRadixCache .*--enable-hierarchical-cache"):
            theirs(self.Params(), None)
        ours = type("Derived", (self.sglang.RadixCache,), {"__module__": "engine"})
        self.assertEqual(ours(self.Params(req_to_token_pool=States(4), page_size=1,
                                          token_to_kv_pool_allocator=Pages(16, 16, 1))).total_size(), 0)

    def test_what_a_session_refers_to_goes_last(self):
        pool, rows = Pages(64, 64, 1), Rows()
        params = self.Params(req_to_token_pool=rows, token_to_kv_pool_allocator=pool, tree_components=(0,))
        params.enable_session_radix_cache = True
        cache = self.sglang.UnifiedRadixCache(params)

        def serve(tokens, generation, reason):
            req = request(1, tokens, [])
            req.cache_protected_len, req.last_node, req.finished_reason = 0, cache.root_node.id, reason
            req.session, req.session_id, req.session_generation = None, "chat", generation
            rows.write((1, slice(0, len(tokens))), pool.alloc(len(tokens)))
            cache.cache_finished_req(req)
            req.kv_committed_len = len(tokens)
            return req

        cached = lambda *starts: [len(cache.match_prefix(self.base.MatchPrefixParams(
            key=Key(list(range(s, s + 4))))).device_indices) for s in starts]
        old = cache.open_radix_session("chat")
        number = cache.open_radix_session("chat")
        self.assertNotEqual(old, number)
        self.assertEqual(cache.ensure_session_generation("chat"), number)
        serve([0, 1, 2, 3], number, "stop")
        serve([10, 11, 12, 13], old, "stop")  # of a session that was closed
        serve([20, 21, 22, 23], number, type("FINISH_ABORT", (), {})())
        cache.evict(self.base.EvictParams(num_tokens=8))
        self.assertEqual(cached(0, 10, 20), [4, 0, 0])
        late = serve([30, 31, 32, 33], number, None)
        cache.session_refs.register_session_ref(late)  # and no longer to what it was before
        cache.evict(self.base.EvictParams(num_tokens=4))
        self.assertEqual(cached(0, 30), [0, 4])
        cache.release_radix_session("chat")
        cache.release_radix_session("chat")
        cache.evict(self.base.EvictParams(num_tokens=4))
        self.assertEqual(pool.full_available_size(), 64)

    def test_without_reuse_all_of_a_request_goes_back(self):
        pool, rows = Pages(16, 16, 1), Rows()
        cache = self.sglang.ChunkCache(self.Params(req_to_token_pool=rows, token_to_kv_pool_allocator=pool))
        req = request(1, [1, 2, 3], [4])
        req.cache_protected_len = 0
        rows.write((1, slice(0, 4)), pool.alloc(4))
        found = cache.match_prefix(self.base.MatchPrefixParams(key=Key([1, 2, 3])))
        self.assertEqual((len(found.device_indices), found.last_device_node), (0, None))
        cache.cache_unfinished_req(req)
        self.assertEqual(req.prefix_indices.tolist(), [1, 2, 3])
        cache.cache_finished_req(req)
        self.assertEqual(pool.full_available_size(), 16)
        self.assertTrue(cache.is_chunk_cache())

    def test_states(self):
        rng, written = random.Random(3), {}
        pool, rows = Pages(512, 512, 1), States(12)
        cache = self.sglang.MambaRadixCache(self.Params(
            req_to_token_pool=rows, token_to_kv_pool_allocator=pool, page_size=1))
        found = 0
        for _ in range(100):
            tokens = [rng.randrange(2) for _ in range(rng.randrange(2, 14))]
            req = request(1, tokens, [7, 8])
            have, history = self.start(cache, pool, req, written, False)
            if have:  # the request goes on with a copy of what was kept behind them
                self.assertEqual(rows.content[int(req.mamba_pool_idx)], history[have - 1])
            else:
                req.mamba_pool_idx = cache.states.alloc(cache)[0]
            found += have
            rows.content[int(req.mamba_pool_idx)] = history[len(tokens) - 1]
            cache.cache_unfinished_req(req)
            rows.content[int(req.mamba_pool_idx)] = history[-1]
            cache.cache_finished_req(req, is_insert=rng.randrange(8) > 0)
            cache.sanity_check()
            self.assertEqual(pool.full_available_size() + cache.total_size()[0], 512)
            self.assertEqual(rows.available_size() + cache.mamba_evictable_size(), 12)
        self.assertGreater(found, 30)
        self.assertEqual(cache.evict(self.base.EvictParams(mamba_num=100)).mamba_num_evicted, 12)
        self.assertEqual(rows.available_size(), 12)


if __name__ == "__main__":
    unittest.main()
