"""radish.sglang and radish.minisgl over the least that those engines are: their parameters and results.
tools/test-peers.py runs the engines' own tests, given a checkout."""
import array
import random
import sys
import types
import unittest

import radish
from stand_ins import Key, Rows, imported, torch


class TheirAllocator:
    """An allocator that is not radish's, and checks what comes back."""

    def __init__(self, size, page_size):
        self.size, self.page_size, self.device = size, page_size, "cpu"
        self.pages = list(range(1, size // page_size + 1))

    def available_size(self):
        return len(self.pages) * self.page_size

    def alloc(self, count):
        taken, self.pages = self.pages[:count // self.page_size], self.pages[count // self.page_size:]
        return torch.tensor([page * self.page_size + i for page in taken for i in range(self.page_size)])

    def free(self, slots):
        pages = torch.unique(slots // self.page_size).tolist()
        assert not set(pages) & set(self.pages), "freed twice"
        self.pages += pages


@unittest.skipUnless(torch, "no torch: python3-torch")
class Engines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (cls.sglang, cls.minisgl), cls.forget = imported("radish.sglang", "radish.minisgl")

    @classmethod
    def tearDownClass(cls):
        cls.forget()

    def serve(self, cache, pool, rows, tokens, answer, row, before_finish=lambda: None, august=False):
        """One request as SGLang's scheduler takes it through, of February or of August 2026; tokens found in
        the cache."""
        page, total = cache.page_size, len(tokens) + len(answer)
        found = cache.match_prefix(types.SimpleNamespace(key=Key(tokens[:-1])))
        cache.inc_lock_ref(found.last_device_node)
        have = len(found.device_indices)
        need = (total + page - 1) // page * page - have
        short = need - pool.available_size()
        if short > 0:
            cache.evict(types.SimpleNamespace(num_tokens=short))
        slots = pool.alloc(need)
        self.assertIsNotNone(slots)
        rows.req_to_token[row, :have] = found.device_indices
        rows.req_to_token[row, have:have + need] = slots
        req = types.SimpleNamespace(
            req_pool_idx=row, origin_input_ids=tokens, output_ids=answer, extra_key=None, priority=0,
            cache_protected_len=have, last_node=found.last_device_node, prefix_indices=found.device_indices)
        if august:
            req.origin_input_ids, req.output_ids = array.array("q", tokens), array.array("q", answer + [6])
            req.get_fill_ids = lambda: array.array("q", tokens)
        else:
            req.fill_ids, req.pop_committed_kv_cache = tokens, lambda: total
        cache.cache_unfinished_req(req)
        self.assertEqual(req.prefix_indices.tolist(), rows.req_to_token[row, :len(tokens)].tolist())
        self.assertEqual(req.cache_protected_len, len(tokens) // page * page)
        before_finish()
        cache.cache_finished_req(req, **({"kv_len_to_handle": total} if august else {}))
        return have

    def test_requests_lose_no_slot(self):
        for page, theirs, august in ((1, False, False), (4, False, True), (1, True, True), (4, True, False)):
            rng = random.Random(page)
            kind = self.sglang.TokenToKVPoolAllocator if page == 1 else self.sglang.PagedTokenToKVPoolAllocator
            pool = TheirAllocator(64, page) if theirs else kind(
                *((64,) if page == 1 else (64, page)), torch.float16, "cpu", None, False)
            rows = Rows(torch.int64 if theirs and august else torch.int32)
            params = sys.modules["sglang.srt.mem_cache.cache_init_params"].CacheInitParams(
                req_to_token_pool=rows, token_to_kv_pool_allocator=pool, page_size=page)
            cache = self.sglang.RadixCache(params)
            found = 0
            for i in range(150):
                tokens = [rng.randrange(2) for _ in range(rng.randrange(2, 20))]
                nested = [rng.randrange(2) for _ in range(8)]
                found += self.serve(cache, pool, rows, tokens, [7, 8, 9], 1,
                                    lambda: i % 3 or self.serve(cache, pool, rows, nested, [5], 2), august)
                self.assertEqual(pool.available_size() + cache.total_size(), 64)
                self.assertEqual(cache.protected_size(), 0)
            self.assertGreater(found, 100)
            values = cache.all_values_flatten().tolist()
            self.assertEqual(len(set(values)), len(values))
            cache.evict(types.SimpleNamespace(num_tokens=64))
            self.assertEqual(pool.available_size(), 64)

    def test_a_group_of_frees(self):
        pool = self.sglang.PagedTokenToKVPoolAllocator(32, 4, torch.float16, "cpu", None, False)
        slots = pool.alloc(16)
        self.assertEqual((len(slots), pool.available_size()), (16, 16))
        self.assertIsNone(pool.alloc(17))
        pool.free_group_begin()
        pool.free(slots[torch.tensor([9, 8, 0])])  # pages of slots in any order
        pool.free_segment(slots[4:5], start_pos=4)
        self.assertEqual(pool.available_size(), 16)
        with self.assertRaises(radish.StateError):
            pool.free(slots[4:8])
        pool.free_group_end()
        self.assertEqual(pool.available_size(), 28)
        pool.free(slots[12:].to(torch.int32))
        pool.free_group_begin()
        pool.clear()
        pool.free_group_end()
        self.assertEqual(pool.available_size(), 32)

    def test_slots_with_gaps_are_freed(self):
        pool = self.sglang.TokenToKVPoolAllocator(32, torch.float16, "cpu", None, False)
        slots = pool.alloc(32)
        pool.free(slots[::2])
        pool.free(slots.reshape(16, 2)[:, 1])  # a column, say of drafts that were refused
        self.assertEqual(pool.available_size(), 32)

    def test_a_state_of_before_a_clear_frees_nothing(self):
        pool = self.sglang.PagedTokenToKVPoolAllocator(32, 4, torch.float16, "cpu", None, False)
        state = pool.backup_state()
        pool.alloc(16)
        pool.clear()
        self.assertIsNotNone(pool.alloc(32))  # of another's
        pool.restore_state(state)
        self.assertEqual(pool.available_size(), 0)

    def test_an_allocator_is_resized_before_a_cache_stands_on_it(self):
        for page in (1, 4):
            kind = self.sglang.TokenToKVPoolAllocator if page == 1 else self.sglang.PagedTokenToKVPoolAllocator
            pool = kind(*((64,) if page == 1 else (64, page)), torch.float16, "cpu", None, False)
            self.assertIsNotNone(pool.alloc(32))  # of a graph's capture, say
            for size in (24, 96):  # SGLang's pool has memory for so many now
                pool.resize(types.SimpleNamespace(max_total_num_tokens=size))
                self.assertEqual((pool.size, pool.available_size(), len(pool.free_pages)), (size, size, size // page))
                slots = pool.alloc(size)
                self.assertEqual((slots.max().item(), pool.alloc(page)), (size + page - 1, None))
                pool.free(slots)
            cache = self.sglang.RadixCache(sys.modules["sglang.srt.mem_cache.cache_init_params"].CacheInitParams(
                token_to_kv_pool_allocator=pool, page_size=page))
            with self.assertRaisesRegex(radish.StateError, "still use it"):
                pool.resize(types.SimpleNamespace(max_total_num_tokens=32))
            self.assertEqual((pool.size, pool.available_size(), cache.total_size()), (96, 96, 0))
            with self.assertRaisesRegex(OverflowError, "num_pages is -"):
                pool.resize(types.SimpleNamespace(max_total_num_tokens=-8))

    def test_a_simulated_tree_keeps_any_value(self):
        cache = self.sglang.RadixCache.create_simulated(page_size=2, enable_kv_cache_events=True)
        insert = lambda tokens, values: cache.insert(types.SimpleNamespace(
            key=Key(tokens), value=torch.tensor(values), priority=0, chunked=False)).prefix_len
        self.assertEqual(insert([1, 2, 3, 4, 5], [70, 10, 90, 5, 6]), 0)
        self.assertEqual(insert([1, 2, 3, 4, 8, 9], [0, 0, 0, 0, 33, 44]), 4)
        found = cache.match_prefix(types.SimpleNamespace(key=Key([1, 2, 3, 4, 8, 9, 9])))
        self.assertEqual(found.device_indices.tolist(), [70, 10, 90, 5, 33, 44])
        events = cache.take_events()[1:]  # behind the tree's first, empty state
        self.assertEqual([e.token_ids for e in events if hasattr(e, "token_ids")], [[1, 2], [3, 4], [8, 9]])
        self.assertEqual(events[1].parent_block_hash, events[0].block_hashes[0])
        node = found.last_device_node
        self.assertEqual(cache.inc_lock_ref(node).delta, -6)
        self.assertEqual(node.lock_ref, 1)
        self.assertEqual(cache.dec_lock_ref(node).delta, 6)
        with self.assertRaisesRegex(RuntimeError, "is not locked"):
            cache.dec_lock_ref(node)
        self.assertEqual(cache.evict(types.SimpleNamespace(num_tokens=100)).num_tokens_evicted, 6)
        cache.reset()
        with self.assertRaisesRegex(ValueError, "belady"):
            self.sglang.RadixCache(sys.modules["sglang.srt.mem_cache.cache_init_params"].CacheInitParams(
                eviction_policy="belady"))

    def test_mini_sglang(self):
        self.minisgl.install()
        cache = sys.modules["minisgl.kvcache"].SUPPORTED_CACHE_MANAGER._registry["radix"]("cpu")
        ids, slots = torch.arange(10, dtype=torch.int32), torch.arange(12, dtype=torch.int32)
        done = cache.insert_prefix(ids, slots[:10])
        self.assertEqual((done.cached_len, done.handle.cached_len), (0, 8))
        handle = cache.match_prefix(ids[:7]).cuda_handle
        self.assertEqual((handle.cached_len, handle.get_matched_indices().tolist()), (4, [0, 1, 2, 3]))
        cache.lock_handle(handle)
        with self.assertRaisesRegex(RuntimeError, "only"):
            cache.evict(8)
        self.assertEqual(cache.evict(0).tolist(), [])
        self.assertEqual(sorted(cache.evict(cache.size_info.evictable_size).tolist()), [4, 5, 6, 7])
        cache.lock_handle(handle, unlock=True)
        self.assertEqual(cache.size_info, (4, 0))
        self.assertEqual(cache.insert_prefix(ids[:3], slots[:3]).handle.cached_len, 0)
        cache.check_integrity()
        cache.reset()
        self.assertEqual(cache.size_info, (0, 0))


if __name__ == "__main__":
    unittest.main()
