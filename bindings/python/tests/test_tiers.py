"""Requests through all tiers, with a store of Python's behind them; windows, states, sessions."""
import array
import json
import threading
import unittest

import radish

PAGE, HANG_NS = 4, 10**11


class Store:
    """A store in a dict; the workers' threads call it."""
    name = "dict"
    medium = "DISK"

    def __init__(self):
        self.records, self.lock, self.threads = {}, threading.Lock(), set()

    def batch_exists(self, keys, deadline_ns):
        for n, key in enumerate(keys):
            if key not in self.records:
                return n
        return len(keys)

    def batch_get(self, keys, deadline_ns):
        return [self.records.get(key) for key in keys]

    def batch_set(self, keys, records, deadline_ns):
        with self.lock:
            self.threads.add(threading.get_ident())
            self.records.update(zip(keys, records))
        return [True] * len(keys)

    def clear(self):
        self.records.clear()


class Engine:
    """K and V of a token are numbers made of all tokens before it."""

    def __init__(self, pages=16, **params):
        self.kv = radish.KVAllocator(pages, PAGE)
        self.rows = radish.ReqToTokenPool(4, 128)
        self.pool = radish.TokenToKVPool(pages, PAGE, num_layers=2, num_kv_heads=1, head_dim=4)
        self.host = radish.HostKVPool(self.pool, 4.0)
        self.cache = radish.HiRadixCache(kv_allocator=self.kv, req_to_token_pool=self.rows,
                                         host_pool=self.host, identity="toy", load_back_threshold=1,
                                         prefetch_threshold=1, prefetch_policy="wait_complete",
                                         **params)

    def serve(self, tokens):
        """What came from where; what is in the slots is checked."""
        request = radish.Request(tokens)
        ticket = self.cache.prefetch_start(tokens[:-1])
        while ticket and self.cache.prefetch_progress(ticket, tokens[:-1]) is None:
            self.cache.wait(HANG_NS)
        found = self.cache.admit(request)
        loaded = self.cache.load_back(request)
        assert self.cache.extend(request)
        self.cache.ready_to_load()
        values = [hash(tuple(tokens[:i + 1])) % 65536 for i in range(len(tokens))]
        for layer in range(2):
            k, _ = self.pool.get_kv(layer, request.slots[:request.committed_len])
            assert [row[0][0] for row in k.tolist()] == values[:request.committed_len], (layer, found, loaded)
            rest = request.slots[request.committed_len:len(tokens)]
            data = array.array("f", [v for v in values[request.committed_len:] for _ in range(4)])
            self.pool.set_kv_buffer(layer, rest, data, data)
        assert self.cache.load_status(request)
        request.committed_len = len(tokens)
        self.cache.unfinished_req(request)
        self.cache.finished_req(request)
        return found.prefix_tokens, loaded.tokens, loaded.storage_tokens


class Tiers(unittest.TestCase):
    def test_pages_go_to_the_host_and_to_a_store_and_come_back(self):
        store = Store()
        engine = Engine(storage=store)
        prompts = [[n] * 3 + list(range(30)) for n in range(6)]
        for prompt in prompts:  # 8 pages each, of 16
            self.assertEqual(engine.serve(prompt), (0, 0, 0))
            self.assertTrue(engine.cache.drain(HANG_NS))
        self.assertEqual(engine.serve(prompts[0]), (0, 32, 0))
        self.assertEqual(engine.serve(prompts[0]), (32, 0, 0))
        self.assertEqual(len(store.records), 6 * 8)
        self.assertNotIn(threading.get_ident(), store.threads)
        self.assertEqual(engine.cache.explain_tiers(prompts[1]).load, "taken")
        stats = engine.cache.hicache_stats()
        self.assertEqual((stats.loaded_tokens, stats.backed_up_tokens, stats.storage_errors), (32, 192, 0))
        engine.cache.check_ownership()
        engine.cache.close()

        again = Engine(storage=store)  # another process, say
        self.assertEqual(again.serve(prompts[3]), (0, 32, 32))
        self.assertEqual(again.cache.last_prefetch().why, "all")
        self.assertTrue(again.cache.detach_storage())
        self.assertEqual(again.serve(prompts[4]), (0, 0, 0))
        self.assertTrue(again.cache.attach_storage(store))
        again.cache.drain(HANG_NS)
        self.assertTrue(again.cache.clear(device=True, host=True, storage=True))
        self.assertEqual((store.records, again.cache.total_size), ({}, 0))

    def test_a_store_that_raises_or_lies_costs_misses(self):
        class Bad(Store):
            def batch_set(self, keys, records, deadline_ns):
                super().batch_set(keys, records, deadline_ns)
                raise OSError("the disk is full")

            def batch_get(self, keys, deadline_ns):
                return [b"short", None, 5][:1] * len(keys)

            def batch_exists(self, keys, deadline_ns):
                return 10**6

        for store in (Bad(), type("Worse", (Store,), {"batch_exists": lambda *a: "many"})()):
            engine = Engine(storage=store)
            with self.assertLogs("radish", "WARNING") as said:
                for n in range(3):
                    self.assertEqual(engine.serve([n] * 20)[2], 0)
                self.assertTrue(engine.cache.drain(HANG_NS))
            self.assertIn("raised", said.output[0])
            self.assertGreater(engine.cache.hicache_stats().storage_errors, 0)
            engine.cache.check_ownership()
            engine.cache.close()

    def test_what_is_no_store_is_refused(self):
        engine = Engine()
        for backend in (object(), None, Engine):
            with self.assertRaisesRegex(TypeError, "needs the method batch_exists"):
                engine.cache.attach_storage(backend)
        with self.assertRaises(TypeError):
            Engine(storage=5)
        with self.assertRaisesRegex(radish.Error, "."):
            radish.HiRadixCache(kv_allocator=engine.kv, req_to_token_pool=engine.rows)

    def test_a_load_is_for_a_request_of_the_cache(self):
        engine, other = Engine(), Engine()
        mine, theirs = radish.Request(range(9)), radish.Request(range(9))
        engine.cache.admit(mine)
        other.cache.admit(theirs)
        for call in (engine.cache.load_back, engine.cache.load_status):
            with self.assertRaisesRegex(TypeError, "takes a Request"):
                call(5)
            with self.assertRaisesRegex(radish.Error, "was not admitted"):
                call(radish.Request(range(9)))
            with self.assertRaisesRegex(radish.Error, "another cache's"):
                call(theirs)
            mine.allocated_len = 10**6
            with self.assertRaisesRegex(ValueError, "a row has 128"):
                call(mine)
            mine.allocated_len = 0
            call(mine)
        engine.cache.finished_req(mine)
        other.cache.finished_req(theirs)


class Components(unittest.TestCase):
    def test_windows_are_given_back_while_a_request_runs(self):
        kv = radish.KVAllocator(64, PAGE, swa_num_pages=16)
        cache = radish.RadixCache(kv_allocator=kv, req_to_token_pool=radish.ReqToTokenPool(2, 200),
                                  window_tokens=8)
        request = radish.Request(range(40))
        cache.admit(request)
        self.assertTrue(cache.extend(request))
        request.committed_len = 40
        cache.release_window(request, 40 - 8 - PAGE)
        self.assertEqual((kv.window_available_pages, request.window_len), (16 - 3, 28))
        cache.finished_req(request)
        self.assertEqual(cache.match_prefix(range(40)).prefix_tokens, 40)
        self.assertEqual((cache.window_evictable_size, cache.evict_window(4)), (12, 4))
        window_map = memoryview(kv.window_page_map)
        self.assertEqual((len(window_map), window_map.readonly), (65, True))
        self.assertEqual(sum(page != 0 for page in window_map), 2)
        cache.check_ownership()

    def test_windows_make_room(self):
        kv = radish.KVAllocator(64, PAGE, swa_num_pages=10)
        cache = radish.RadixCache(kv_allocator=kv, req_to_token_pool=radish.ReqToTokenPool(2, 200),
                                  window_tokens=8)
        for n in range(5):
            request = radish.Request([n] * 40)
            cache.admit(request)
            self.assertTrue(cache.extend(request))  # evicts windows, not pages
            request.committed_len = 40
            cache.finished_req(request)
        self.assertEqual(cache.total_size, 200)
        cache.check_ownership()

    def test_states_hang_behind_pages(self):
        states = radish.StatePool(100, 4)
        kv = radish.KVAllocator(64, PAGE)
        cache = radish.RadixCache(kv_allocator=kv, req_to_token_pool=radish.ReqToTokenPool(2, 200),
                                  state_pool=states)
        request = radish.Request(range(21))
        self.assertEqual(cache.admit(request).state, 0)
        cache.extend(request)
        request.committed_len = 21
        cache.unfinished_req(request)
        state = states.alloc()
        memoryview(states.view(state))[:3] = b"abc"
        cache.put_state(request.node, 20, state)
        match = cache.match_prefix(range(21))
        self.assertEqual((match.prefix_tokens, match.state), (20, state))
        self.assertEqual(bytes(states.view(match.state)[:3]), b"abc")
        with self.assertRaises(radish.StateError):
            cache.put_state(request.node, 20, 99)
        cache.finished_req(request)
        copy = states.alloc()
        states.copy(match.state, copy)
        self.assertEqual(bytes(states.view(copy)[:3]), b"abc")
        states.free(copy)
        self.assertEqual((states.available, states.state_bytes, cache.evict_state(5)), (3, 128, 1))
        with self.assertRaises(radish.StateError):
            states.free(copy)
        self.assertTrue(memoryview(states.view(0)).readonly)
        states.check()

    def test_rows_are_not_published_through_a_wrapper(self):
        kv, rows = radish.KVAllocator(64, PAGE), radish.ReqToTokenPool(4, 200)
        cache = radish.StreamingCache(radish.RadixCache(kv_allocator=kv, req_to_token_pool=rows), 4)
        table = memoryview(bytearray(3 * PAGE * 4)).cast("i", (1, 3 * PAGE))
        with self.assertRaisesRegex(radish.StateError, "use a Request"):
            cache.publish_row(list(range(3 * PAGE)), table, 0, finished=True)
        cache.check()

    def test_a_session_goes_on_within_a_page(self):
        kv, rows = radish.KVAllocator(64, PAGE), radish.ReqToTokenPool(4, 200)
        cache = radish.StreamingCache(radish.RadixCache(kv_allocator=kv, req_to_token_pool=rows), 4)
        session = cache.session_open()
        tokens = list(range(10))
        for turn, kept in enumerate((0, 10, 21)):
            request = radish.Request(tokens, session=session)
            cache.admit(request)
            self.assertEqual(request.committed_len, kept)
            cache.extend(request)
            request.committed_len = len(tokens)
            cache.unfinished_req(request)
            cache.finished_req(request)
            tokens += [1000 + turn] * 11
        self.assertEqual((cache.session_stats().restored, cache.session_stats().held), (2, 1))
        self.assertEqual(cache.session_release_idle(5), 1)
        cache.session_close(session)
        with self.assertRaises(radish.StateError):
            cache.session_close(session)
        cache.check_ownership()

    def test_the_front_of_a_page_is_copied(self):
        pool = radish.TokenToKVPool(16, PAGE, num_layers=1, num_kv_heads=1, head_dim=1)
        kv = radish.KVAllocator(16, PAGE)
        cache = radish.RadixCache(kv_allocator=kv, copy_slots=pool.copy_slots)
        slots = kv.alloc_extend([0], [8], [-1])
        cache.insert([1, 2, 3, 4, 5, 6, 7, 8], slots)
        match = cache.match_prefix([1, 2, 3, 4, 5, 6, 9])
        self.assertEqual((match.prefix_tokens, match.partial_tokens), (4, 2))
        private = cache.reuse_partial([1, 2, 3, 4, 5, 6, 9], match)
        self.assertEqual(len(private), 2)
        kv.free_slots(private)
        with self.assertRaises(TypeError):
            cache.reuse_partial([1], 5)
        bad = radish.RadixCache(kv_allocator=radish.KVAllocator(8, PAGE), copy_slots=lambda *a: 1 / 0)
        bad.insert([1, 2, 3, 4], bad.kv_allocator.alloc_extend([0], [4], [-1]))
        with self.assertRaises(ZeroDivisionError):
            bad.reuse_partial([1, 2, 9], bad.match_prefix([1, 2, 9]))

    def test_a_chunk_cache_shares_nothing(self):
        kv = radish.KVAllocator(16, PAGE)
        cache = radish.ChunkCache(kv_allocator=kv, req_to_token_pool=radish.ReqToTokenPool(2, 40))
        for _ in range(2):
            request = radish.Request(range(20))
            self.assertEqual(cache.admit(request).prefix_tokens, 0)
            cache.extend(request)
            request.committed_len = 20
            cache.finished_req(request)
        self.assertEqual(kv.available_pages, 16)
        with self.assertRaises(radish.UnsupportedError):
            cache.insert([1], [1])

    def test_looking_at_it(self):
        cache = radish.RadixCache(page_size=2, max_tokens=100, max_pinned_tokens=50, retention=True,
                                  explain_pages=10, enable_page_hashes=True)
        cache.insert([1, 2, 3, 4], [2, 3, 4, 5])
        cache.insert([1, 2, 5, 6], [2, 3, 6, 7])
        self.assertEqual([(n.depth, n.tokens.tolist(), n.slots.tolist()) for n in cache.walk()][0],
                         (1, [1, 2], [2, 3]))
        self.assertIn("2 [1, 2] r=0", cache.dump())
        self.assertEqual(json.loads(cache.dump("json"))["total_tokens"], 6)
        leaf = cache.node_info(cache.match_prefix([1, 2, 5, 6]).last_node)
        self.assertEqual((leaf.depth_tokens, leaf.num_tokens, leaf.is_evictable), (4, 2, True))
        self.assertEqual(cache.node_info(leaf.parent).num_children, 2)
        self.assertEqual(cache.pin_prefix([1, 2, 3, 4], 10**15), 4)
        self.assertEqual((cache.pinned_size, cache.retain_prefix([1, 2, 5, 6], 9)), (4, 4))
        cache.pin_prefix([1, 2, 3, 4], 0)
        self.assertEqual(cache.evict(2), 2)
        told = cache.explain([1, 2, 3, 4])
        self.assertEqual((told.prefix_tokens, told.why, told.eviction.cause), (2, "evicted", "asked"))
        self.assertEqual(cache.explain([9, 9]).why, "never_seen")
        self.assertEqual(cache.stats().evicted_tokens, 2)
        self.assertEqual(cache.namespace_stats().used, 1)
        self.assertIsNone(radish.page_hash_seed())
        self.assertEqual(len(radish.page_hash_seed("a")), 32)


if __name__ == "__main__":
    unittest.main()
