"""radish.sglang's HiRadixCache under random requests, beside a double that only knows which prefixes were published:
what is found, on the device and on the host, is what there must be, and each byte of it is its token's."""
import json
import os
import random
import sys
import tempfile
import types
import unittest

import radish
from stand_ins import Key, Rows, imported, module, torch

SIZE, LAYERS, HEADS, DIM = 64, 2, 2, 4
RATIO = 1024.0  # of the host: it never has to give anything up


class Memory:
    """SGLang's KV pool of MHA, or of MLA: tensors, and what must be in a token's slot."""

    def __init__(self, page_size, dtype=None, mla=False):
        shape, dtype = (SIZE + page_size, HEADS, DIM), dtype or torch.float16
        make = lambda *shape: [torch.zeros(shape, dtype=dtype) for _ in range(LAYERS)]
        if mla:
            self.kv_buffer, self.kv_lora_rank, self.start_layer = make(SIZE + page_size, 1, 12), 8, 0
            self.all = self.kv_buffer
        else:
            self.k_buffer, self.v_buffer, self.start_layer = make(*shape), make(*shape), 0
            self.all = self.k_buffer + self.v_buffer

    def of(self, history, buffer):
        """History: the tokens up to this one."""
        seed = torch.Generator().manual_seed(hash((history, buffer)) & 0x7FFFFFFF)
        return torch.randint(0, 120, self.all[0].shape[1:], generator=seed).to(self.all[0].dtype)

    def write(self, tokens, first, slots):
        for at, slot in enumerate(slots, first):
            for i, buffer in enumerate(self.all):
                buffer[slot] = self.of(tuple(tokens[:at + 1]), i)

    def check(self, test, tokens, slots):
        for at, slot in enumerate(slots):
            for i, buffer in enumerate(self.all):
                test.assertTrue(torch.equal(buffer[slot], self.of(tuple(tokens[:at + 1]), i)), (tokens, at, i))


class Engine:
    """A cache, and a scheduler's steps with it as SGLang of February or of August 2026 takes them."""

    def __init__(self, test, page=4, august=True, mla=False, dtype=None, eagle=False, ratio=RATIO, **args):
        self.test, self.page, self.august = test, page, august
        self.memory = Memory(page, dtype, mla)
        sglang = test.sglang
        self.pool = (sglang.TokenToKVPoolAllocator(SIZE, None, "cpu", None, False) if page == 1 else
                     sglang.PagedTokenToKVPoolAllocator(SIZE, page, None, "cpu", None, False))
        self.pool.get_kvcache = lambda: self.memory
        self.rows = Rows()
        params = test.Params(req_to_token_pool=self.rows, token_to_kv_pool_allocator=self.pool, page_size=page,
                             is_eagle=eagle, enable_kv_cache_events=args.pop("events", False))
        self.args = types.SimpleNamespace(**{"hicache_ratio": ratio, "served_model_name": "toy", **args})
        self.cache = sglang.HiRadixCache(params, self.args)
        self.published, self.count = set(), 0  # the double: whole pages, as the tokens up to their end

    def must_find(self, tokens):
        ends = range(self.page, len(tokens) + 1, self.page)
        return max((end for end in ends if tuple(tokens[:end]) in self.published), default=0)

    def load_back(self, found):
        node = found.last_host_node
        if not self.august:
            return self.cache.init_load_back(node, found.host_hit_length)
        return self.cache.init_load_back(types.SimpleNamespace(
            best_match_node=node, host_hit_length=found.host_hit_length, mem_quota=None))

    def prefetch(self, tokens):
        """The request arrives; it waits until what storage has is there. Tokens that came."""
        cache, found = self.cache, self.match(tokens)
        self.count += 1
        have = len(found.device_indices) + found.host_hit_length
        cache.prefetch_from_storage(self.count, found.last_host_node, tokens[have:-1], None, None)
        while not cache.check_prefetch_progress(self.count):
            cache.core.wait(10**9)
        return cache.pop_prefetch_loaded_tokens(self.count)

    def match(self, tokens):
        return self.cache.match_prefix(types.SimpleNamespace(key=Key(tokens[:-1])))

    def serve(self, tokens, answer=(), settled=True, prefilled=True):
        """Tokens found (on the device, on the host). settled: no copy that is under way holds pages."""
        cache, pool, page, total = self.cache, self.pool, self.page, len(tokens) + len(answer)
        cache.check_hicache_events()
        cache.writing_check(write_back=settled)
        found = self.match(tokens)
        cache.inc_lock_ref(found.last_device_node)  # as the scheduler's _lock_node
        have, node, slots = len(found.device_indices), found.last_device_node, found.device_indices
        on_device = have
        if found.host_hit_length:
            more, node = self.load_back(found)
            slots = torch.cat((slots, more))
        cache.inc_lock_ref(node)
        cache.dec_lock_ref(found.last_device_node)
        have = len(slots)
        self.memory.check(self.test, tokens, slots.tolist())
        need = -(-total // page) * page - have
        short = need - pool.available_size()
        if short > 0:
            cache.evict(types.SimpleNamespace(num_tokens=short))
        fresh = pool.alloc(need)
        if fresh is None and not settled:  # copies to the host hold pages until they end
            cache.writing_check(write_back=True)
            cache.evict(types.SimpleNamespace(num_tokens=short))
            fresh = pool.alloc(need)
        self.test.assertIsNotNone(fresh)
        self.rows.req_to_token[1, :have], self.rows.req_to_token[1, have:have + need] = slots, fresh
        everything = [*tokens, *answer]
        self.memory.write(everything, have, fresh[:total - have].tolist())
        req = types.SimpleNamespace(
            req_pool_idx=1, origin_input_ids=tokens, output_ids=list(answer), extra_key=None, priority=0,
            fill_ids=tokens, pop_committed_kv_cache=lambda: total,
            cache_protected_len=have, last_node=node, prefix_indices=slots)
        if prefilled:
            cache.cache_unfinished_req(req)
        cache.cache_finished_req(req)
        self.published.update(tuple(everything[:end]) for end in range(page, total + 1, page))
        return on_device, have - on_device

    def check(self):
        cache = self.cache
        cache.core.check()
        cache.core.check_ownership()
        self.test.assertEqual(self.pool.available_size() + cache.total_size(), SIZE)
        self.test.assertEqual(cache.evictable_size() + cache.protected_size(), cache.total_size())


@unittest.skipUnless(torch, "no torch: python3-torch")
class HiRadix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (cls.sglang, params, cls.kinds), cls.forget = imported(
            "radish.sglang", "sglang.srt.mem_cache.cache_init_params", "sglang.srt.disaggregation.kv_events")
        cls.Params = params.CacheInitParams

    @classmethod
    def tearDownClass(cls):
        cls.forget()

    def test_what_the_device_evicts_comes_back(self):
        steps = int(os.environ.get("RADISH_TEST_STEPS", 240)) // 4
        for page, policy, layout, mla, august in (
                (1, "write_through", "layer_first", False, True), (4, "write_through", "page_first", True, False),
                (4, "write_back", "page_first_direct", False, True), (1, "write_back", "layer_first", True, False)):
            engine = Engine(self, page, august, mla, hicache_write_policy=policy, hicache_mem_layout=layout)
            seed = int(os.environ.get("RADISH_TEST_SEED", page))
            rng, loaded, told = random.Random(seed), 0, [()]
            for step in range(steps):
                tokens = list(rng.choice(told))[:rng.randrange(30)] + [rng.randrange(9) for _ in range(rng.randrange(2, 9))]
                told.append(tokens)
                wanted = engine.must_find(tokens[:-1])
                with self.subTest(page=page, policy=policy, step=step, seed=seed):
                    device, host = engine.serve(tokens, [7] * rng.randrange(8))
                    found = engine.match(tokens)
                    # Less than ten tokens of the host are not worth a load.
                    self.assertTrue(device + host == wanted or wanted - device < 10, (device, host, wanted))
                    if policy == "write_through":
                        engine.cache.writing_check(write_back=True)
                    self.assertEqual(len(found.device_indices) + found.host_hit_length, engine.must_find(tokens[:-1]))
                    loaded += host
                if step % 8 == 0:
                    engine.cache.evict(types.SimpleNamespace(num_tokens=SIZE))
                    found = engine.match(tokens)
                    self.assertEqual((len(found.device_indices), found.host_hit_length),
                                     (0, engine.must_find(tokens[:-1])))
                    self.assertTrue(found.last_host_node.backuped and not engine.cache.is_root(found.last_host_node)
                                    or not found.host_hit_length)
                if step % 16 == 0:
                    engine.check()
            self.assertGreater(loaded, steps)
            stats = engine.cache.core.hicache_stats()
            self.assertEqual((stats.loaded_tokens, stats.host_evicted_tokens), (loaded, 0))
            engine.check()
            engine.cache.reset()
            self.assertEqual((engine.pool.available_size(), engine.cache.core.hicache_stats().host_used_tokens), (SIZE, 0))
            engine.cache.release_host_resources()

    def test_selective_copies_what_was_asked_for_again(self):
        engine = Engine(self, hicache_write_policy="write_through_selective")
        once, twice = list(range(24)), list(range(100, 124))
        for tokens in (once, twice, twice + [5] * 6):
            engine.serve(tokens)
            engine.cache.writing_check(write_back=True)
        engine.cache.evict(types.SimpleNamespace(num_tokens=SIZE))
        self.assertEqual([engine.match(t + [0]).host_hit_length for t in (once, twice)], [0, 24])

    def test_selective_counts_a_request_that_brings_no_new_page(self):
        for prefilled in (True, False):  # False: it ends with its first token
            engine = Engine(self, hicache_write_policy="write_through_selective")
            once, twice = list(range(26)), list(range(100, 126))  # of a page of four the last two are never cached
            for tokens in (once, twice, twice):
                engine.serve(tokens, prefilled=prefilled)
                engine.cache.writing_check(write_back=True)
            hits = [engine.match(tokens).last_device_node.hit_count for tokens in (once, twice)]
            engine.cache.evict(types.SimpleNamespace(num_tokens=SIZE))
            self.assertEqual((hits, [engine.match(t).host_hit_length for t in (once, twice)]), ([0, 1], [0, 24]))

    def test_a_small_host_forgets_and_never_lies(self):
        engine = Engine(self, ratio=1.0)
        rng = random.Random(5)
        for step in range(40):
            engine.serve([rng.randrange(2) for _ in range(rng.randrange(12, 40))], settled=False)
            if step % 5 == 0:
                self.assertGreaterEqual(engine.cache.evict_host(rng.randrange(64)), 0)
        self.assertGreater(engine.cache.core.hicache_stats().host_evicted_tokens, 0)
        engine.check()

    def test_bigrams(self):
        engine = Engine(self, page=1, eagle=True)
        tokens = list(range(20))
        engine.serve(tokens)
        engine.cache.writing_check(write_back=True)
        engine.cache.evict(types.SimpleNamespace(num_tokens=SIZE))
        found = engine.match(tokens + [9])
        self.assertEqual((len(found.device_indices), found.host_hit_length), (0, 19))
        slots, node = engine.load_back(found)
        engine.memory.check(self, tokens, slots.tolist())
        self.assertEqual((len(slots), node.hit_count), (19, 0))

    def test_a_load_is_all_or_nothing(self):
        engine = Engine(self)
        tokens = list(range(32))
        engine.serve(tokens)
        engine.cache.writing_check(write_back=True)
        engine.cache.evict(types.SimpleNamespace(num_tokens=16))
        found = engine.match(tokens + [9])
        self.assertEqual((len(found.device_indices), found.host_hit_length), (16, 16))
        engine.cache.inc_lock_ref(found.last_device_node)
        ask = types.SimpleNamespace(best_match_node=found.last_host_node, host_hit_length=16, mem_quota=15)
        slots, node = engine.cache.init_load_back(ask)
        self.assertEqual((len(slots), node), (0, found.last_device_node))
        held = engine.pool.alloc(48)  # no room, and nothing can go
        ask.mem_quota = None
        self.assertEqual(len(engine.cache.init_load_back(ask)[0]), 0)
        engine.pool.free(held)
        slots, node = engine.cache.init_load_back(ask)
        self.assertEqual(len(slots), 16)
        again, same = engine.cache.init_load_back(ask)  # of a sibling whose match was as old
        self.assertEqual((again.tolist(), same), (slots.tolist(), node))
        engine.cache.dec_lock_ref(found.last_device_node)
        self.assertRegex(repr(found.last_host_node), r"Node\(\d+, 16 tokens further on the host\)")
        self.assertEqual(engine.cache.ready_to_load_host_cache(), -1)
        engine.check()

    def test_a_load_that_fails_is_computed_instead(self):
        for where, error in (("load_status", radish.IOError), ("load_back", radish.IOError),
                             ("load_status", KeyboardInterrupt), ("unfinished_req", radish.StateError)):
            engine = Engine(self)
            cache, tokens = engine.cache, list(range(33))
            engine.serve(tokens)
            cache.writing_check(write_back=True)
            cache.evict(types.SimpleNamespace(num_tokens=SIZE))
            core, begun = cache.core, []

            class Failing:
                """The core, whose load goes wrong when it is under way."""

                def __getattr__(self, name):
                    return getattr(core, name)

                def fail(self, *args, **kwargs):
                    begun.append(args)
                    raise error("the copy broke off")

            setattr(Failing, where, Failing.fail)
            cache.core = Failing()
            found = engine.match(tokens)
            self.assertEqual((len(found.device_indices), found.host_hit_length), (0, 32))
            if error is radish.IOError:
                with self.assertLogs("radish.sglang", "WARNING") as said:
                    slots, node = engine.load_back(found)
                self.assertIn("the copy broke off", said.output[0])
                self.assertEqual((len(slots), node.ref), (0, 0))
            else:
                with self.assertRaises(error):
                    engine.load_back(found)
            cache.core = core
            self.assertEqual(len(begun), 1)
            cache.writing_check(write_back=True)  # of the load that nobody waits for, too: it holds pages till then
            self.assertEqual(cache.protected_size(), 0)
            engine.check()
            self.assertEqual(engine.pool.available_size(), SIZE)  # nothing of it is in the tree
            self.assertEqual(engine.serve(tokens), (0, 32))  # what the host has is as good as before
            engine.check()

    def test_sizes_and_figures(self):
        engine = Engine(self, hicache_size=2e-6)  # GB, of 64 bytes a token
        self.assertEqual(engine.cache.core.hicache_stats().host_tokens, (2000 // 64 // 4 - 1) * 4)  # and page 0
        for of_pools in (False, True):
            engine, said = Engine(self), []
            count = ((lambda num_tokens, pool: said.append((num_tokens, pool))) if of_pools else
                     (lambda num_tokens: said.append(num_tokens)))
            engine.cache.metrics_collector = types.SimpleNamespace(
                observe_load_back_duration=said.append, increment_load_back_num_tokens=count,
                observe_eviction_duration=said.append, increment_eviction_num_tokens=said.append)
            engine.serve(list(range(24)))
            engine.cache.writing_check(write_back=True)
            engine.cache.evict(types.SimpleNamespace(num_tokens=SIZE))
            said.clear()
            self.assertEqual(engine.serve(list(range(25))), (0, 24))
            self.assertEqual(said[1:], [(24, "kv") if of_pools else 24])

    def test_a_backup_that_is_asked_for(self):
        engine = Engine(self, hicache_write_policy="write_back", events=True)
        engine.serve(list(range(10)), [1, 2])
        engine.serve(list(range(6)) + [77] * 6)
        node = engine.match(list(range(10)) + [1, 2, 3]).last_device_node
        self.assertFalse(node.backuped)
        engine.cache.take_events()
        self.assertEqual(engine.cache.write_backup(node, write_back=True), 4)
        self.assertTrue(node.backuped)
        events = [e for e in engine.cache.take_events() if e.medium == "CPU_PINNED"]
        self.assertEqual([e.token_ids for e in events], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 1, 2]])
        self.assertEqual([e.parent_block_hash for e in events[1:]], [e.block_hashes[0] for e in events[:2]])
        engine.cache.evict(types.SimpleNamespace(num_tokens=SIZE))
        engine.cache.evict_host(4)
        self.assertIn("CPU_PINNED", [e.medium for e in engine.cache.take_events()
                                     if isinstance(e, self.kinds.BlockRemoved)])
        self.assertEqual(engine.cache.write_backup(engine.cache.root_node), 0)

    def test_a_backup_of_a_namespace(self):
        for is_eagle in (False, True):
            engine = Engine(self, hicache_write_policy="write_back", eagle=is_eagle)
            tokens, nodes = list(range(8 + is_eagle)), {}
            for name in (None, "a"):
                engine.cache.insert(types.SimpleNamespace(
                    key=Key(tokens, name), value=engine.pool.alloc(8), priority=0, chunked=False))
                nodes[name] = engine.cache.match_prefix(types.SimpleNamespace(key=Key(tokens, name))).last_device_node
            req = types.SimpleNamespace(
                req_pool_idx=1, extra_key="a", fill_ids=tokens, cache_protected_len=8, last_node=nodes["a"])
            engine.cache.inc_lock_ref(nodes["a"])
            engine.cache.cache_unfinished_req(req)
            self.assertEqual(engine.cache.write_backup(req.last_node, write_back=True), 8)
            self.assertEqual((nodes["a"].backuped, nodes[None].backuped), (True, False))
            self.assertEqual(engine.cache.write_backup(nodes[None], write_back=True), 8)
            self.assertTrue(nodes[None].backuped)

    def test_a_node_that_is_split_while_it_is_copied(self):
        engine = Engine(self, page=4, hicache_write_policy="write_back", events=True)
        insert = lambda tokens: engine.cache.insert(types.SimpleNamespace(
            key=Key(tokens), value=engine.pool.alloc(len(tokens)), priority=0, chunked=False))
        first, second = list(range(8)), [0, 1, 2, 3, 9, 9, 9, 9]
        insert(first)
        on_host = lambda: [e for e in engine.cache.take_events() if getattr(e, "medium", None) == "CPU_PINNED"]
        self.assertEqual(engine.cache.write_backup(engine.match(first + [0]).last_device_node), 8)
        self.assertEqual(insert(second).prefix_len, 4)
        self.assertEqual(on_host(), [])  # copied perhaps, acknowledged not yet
        engine.cache.writing_check(write_back=True)
        stored = on_host()
        self.assertEqual([e.token_ids for e in stored], [first[:4], first[4:]])
        self.assertEqual([e.parent_block_hash for e in stored], [None, stored[0].block_hashes[0]])

    def test_pages_survive_in_files(self):
        prompts = [[n] * 3 + list(range(30)) for n in range(4)]
        stored = dict(hicache_storage_backend="file", hicache_storage_prefetch_policy="wait_complete",
                      hicache_storage_backend_extra_config=json.dumps({"prefetch_threshold": 8}))
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"] = os.path.join(folder, "kv")
            self.addCleanup(os.environ.pop, "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR")
            engine = Engine(self, **stored)
            for prompt in prompts:
                engine.serve(prompt)
            engine.cache.writing_check(write_back=True)
            engine.cache.release_host_resources()
            for august in (True, False):
                engine = Engine(self, august=august, **stored)  # another process, say
                self.assertEqual(engine.prefetch(prompts[1]), 32)
                self.assertEqual(engine.serve(prompts[1]), (0, 32))
                self.assertEqual(engine.prefetch(prompts[1]), 0)
                found = engine.match(prompts[2])
                engine.cache.prefetch_from_storage("gone", found.last_host_node, prompts[2], None)
                engine.cache.release_aborted_request("gone")
                self.assertTrue(engine.cache.check_prefetch_progress("gone"))
                self.assertEqual(engine.cache.pop_prefetch_loaded_tokens("gone"), 0)
                found.last_host_node.extra_key = "x" * (1 << 20)  # of no store
                engine.cache.prefetch_from_storage("long", found.last_host_node, prompts[2], None)
                self.assertTrue(engine.cache.check_prefetch_progress("long"))
                self.assertEqual(engine.cache.detach_storage_backend()[0], True)
                self.assertEqual((engine.prefetch(prompts[3]), engine.cache.enable_storage), (0, False))
                self.assertEqual(engine.cache.attach_storage_backend("nixl")[0], False)
                self.assertEqual(engine.cache.attach_storage_backend("file", hicache_write_policy="write_back")[0], False)
                attached, words = engine.cache.attach_storage_backend("file")
                self.assertTrue(attached, words)
                self.assertEqual(engine.prefetch(prompts[3]), 32)
                engine.check()
            self.assertTrue(engine.cache.clear_storage_backend())
            self.assertEqual([f for _, _, files in os.walk(folder) for f in files], [])
            engine.cache.release_host_resources()

    def test_a_folder_keeps_to_its_budget(self):
        with tempfile.TemporaryDirectory() as folder:
            store, keys = radish.FileStore(folder, max_bytes=100), [bytes([n]) * 32 for n in range(5)]
            self.assertEqual(store.batch_set(keys[:3], [b"x" * 30] * 3, 0), [True] * 3)
            self.assertEqual(store.batch_get(keys[:1], 0), [b"x" * 30])
            self.assertEqual(store.batch_set(keys[3:], [b"y" * 40, b"z" * 101], 0), [True, False])
            self.assertEqual([r and r[:1] for r in store.batch_get(keys, 0)], [b"x", None, b"x", b"y", None])
            self.assertEqual(store.batch_exists(keys, 0), 1)
            self.assertEqual(store.stats(), {"bytes": 100, "max_bytes": 100, "pages": 3})
            open(os.path.join(folder, "somebody's"), "w").close()
            again = radish.FileStore(folder, max_bytes=50)
            self.assertEqual(again.stats()["pages"], 1)
            self.assertIn("somebody's", os.listdir(folder))
            again.remove(keys[0])
            again.remove(keys[3])
            self.assertEqual((again.stats()["bytes"], store.batch_get(keys[3:4], 0)), (0, [None]))

    def test_a_budget_that_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            for budget in (-1, float("nan"), None, "8", 1.5):
                with self.assertRaisesRegex(ValueError, "max_bytes"):
                    radish.FileStore(os.path.join(folder, "kv"), max_bytes=budget)
            self.assertEqual(os.listdir(folder), [])
            self.assertEqual(radish.FileStore(folder, max_bytes=0).batch_set([b"k" * 32], [b"x"], 0), [False])

    def test_what_is_not_there_is_refused_in_words(self):
        for words, wrong in (("knows no hicache_write_policy 'sometimes'", {"hicache_write_policy": "sometimes"}),
                             ("knows no hicache_storage_backend 'mooncake'", {"hicache_storage_backend": "mooncake"}),
                             ("knows no hicache_mem_layout", {"hicache_mem_layout": "page_head"}),
                             ("knows no 'depth'", {"hicache_storage_backend_extra_config": '{"depth": 3}'}),
                             ("cannot use prefetch_threshold", {"hicache_storage_backend_extra_config":
                                                                '{"prefetch_threshold": "many"}'}),
                             ("has no K/V of torch.float64", {"dtype": torch.float64})):
            with self.assertRaisesRegex(ValueError, words):
                Engine(self, **wrong)
        engine = Engine(self)
        params = self.Params(token_to_kv_pool_allocator=engine.pool, page_size=4)
        build = lambda **more: self.sglang.HiRadixCache(
            types.SimpleNamespace(**{**vars(params), "eviction_policy": "lru", **more}), engine.args)
        with self.assertRaisesRegex(ValueError, "is for one rank"):
            build(pp_size=2)
        with self.assertRaisesRegex(ValueError, "disable_radix_cache"):
            build(disable=True)
        with self.assertRaisesRegex(ValueError, r"install\(allocators=True\)"):
            build(token_to_kv_pool_allocator=types.SimpleNamespace(page_size=4))
        with self.assertRaisesRegex(ValueError, "pages of 8 tokens, its allocator of 4"):
            build(page_size=8)
        engine.memory.k_scale_buffer = [1]
        with self.assertRaisesRegex(ValueError, "has k_scale_buffer"):
            build()
        with self.assertRaisesRegex(ValueError, "in one piece"):
            memory = engine.pool.get_kvcache = lambda: types.SimpleNamespace(
                k_buffer=[torch.zeros(9, 8, 4, 2)], v_buffer=[torch.zeros(9, 8, 4, 2)])
            build()

    def test_make_cache_gives_it(self):
        engine = Engine(self)
        context = types.SimpleNamespace(
            params=self.Params(req_to_token_pool=engine.rows, token_to_kv_pool_allocator=engine.pool, page_size=4),
            server_args=engine.args, enable_hierarchical_cache=True, is_hybrid_swa=False, is_hybrid_ssm=False,
            disable_radix_cache=False, effective_chunked_prefill_size=None)
        cache = self.sglang.make_cache(context)
        self.assertIsInstance(cache, self.sglang.HiRadixCache)
        cache.cache_controller.layer_done_counter.set_consumer(cache.ready_to_load_host_cache())
        context.is_hybrid_swa = True
        with self.assertRaisesRegex(ValueError, "host tiers"):
            self.sglang.make_cache(context)


if __name__ == "__main__":
    unittest.main()
