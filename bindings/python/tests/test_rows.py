"""publish_row: requests whose rows are the engine's, with an allocator behind the cache or a free list."""
import array
import os
import random
import threading
import unittest

import radish

try:
    import numpy
except ImportError:
    numpy = None

STEPS = 4000 if os.environ.get("RADISH_TEST_LONG") else int(os.environ.get("RADISH_TEST_STEPS", 300))
PAGES, COLUMNS, ROWS = 40, 64, 4


def table():
    if numpy:
        return numpy.zeros((ROWS, COLUMNS), "i4")
    return memoryview(bytearray(4 * ROWS * COLUMNS)).cast("i", (ROWS, COLUMNS))


class Engine:
    """Slots and requests of an engine over either kind of cache; every slot has one owner."""

    def __init__(self, page_size, is_eagle, direct):
        self.page_size, self.is_eagle, self.direct = page_size, is_eagle, direct
        self.kv = radish.KVAllocator(PAGES, page_size) if direct else None
        behind = {"kv_allocator": self.kv} if direct else {"free_list": PAGES}
        self.cache = radish.RadixCache(page_size=page_size, is_eagle=is_eagle, **behind)
        self.free = set() if direct else set(range(PAGES))
        self.table, self.held = table(), {}  # row: slots that are the request's own

    def give_back(self, slots):
        pages = {slot // self.page_size for slot in slots}
        assert not pages & self.free, "freed twice"
        self.free |= pages

    def take(self, count):
        """Slots for so many tokens, whole pages."""
        pages = -(-count // self.page_size)
        missing = pages - (self.kv.available_pages if self.direct else len(self.free))
        if missing > 0:
            self.cache.evict(missing * self.page_size)
            if not self.direct:
                self.give_back(self.cache.take_freed(slots=True).tolist())
        if self.direct:
            slots = self.kv.alloc_slots(count)
            return None if slots is None else slots.tolist()
        if pages > len(self.free):
            return None
        return [page * self.page_size + i for page in [self.free.pop() for _ in range(pages)]
                for i in range(self.page_size)]

    def begin(self, row, tokens, extra):
        found = self.cache.match_prefix(tokens[:-1], "int32", extra_key=extra)
        self.cache.lock_node(found.last_node)
        have = found.prefix_tokens
        slots = self.take(len(tokens) - have)
        if slots is None:
            self.cache.unlock_node(found.last_node)
            return None
        for i, slot in enumerate(found.slots.tolist() + slots):
            if i < COLUMNS:
                self.table[row, i] = slot
        return {"row": row, "tokens": tokens, "extra": extra, "node": found.last_node, "have": have}

    def publish(self, r, **how):
        tokens = r["tokens"]
        cut = random.Random(len(tokens)).randrange(len(tokens) + 1)
        node, kept, slots, freed = self.cache.publish_row(
            array.array("q", tokens[:cut]), self.table, r["row"], r["node"], r["have"], more_tokens=tokens[cut:] + [5],
            num_tokens=len(tokens), extra_key=r["extra"], dtype="int64", **how)
        if freed is not None:
            self.give_back(freed.tolist())
        r["node"], r["have"] = node, kept
        return slots

    def lost(self, running):
        """Pages that nobody has; below zero: pages that two have."""
        own = sum(-(-(len(r["tokens"]) - r["have"]) // self.page_size) for r in running)
        free = self.kv.available_pages if self.direct else len(self.free)
        return PAGES - free - own - self.cache.total_size // self.page_size


class Rows(unittest.TestCase):
    def run_one(self, page_size, is_eagle, direct):
        seed = f"{page_size} {is_eagle} {direct}"
        rng, e, running = random.Random(seed), Engine(page_size, is_eagle, direct), {}
        replaced = 0
        for step in range(STEPS):
            row = rng.randrange(ROWS)
            if row not in running:
                tokens = [1] * rng.randrange(2, 30) + [rng.randrange(2) for _ in range(rng.randrange(8))]
                r = e.begin(row, tokens, rng.choice((None, "a")))
                if r:
                    running[row] = r
            elif rng.random() < 0.6:
                r = running[row]
                before = [e.table[row, i] for i in range(len(r["tokens"]))]
                slots = e.publish(r, chunked=rng.random() < 0.5)
                whole = max(len(r["tokens"]) - is_eagle, 0) // page_size * page_size
                now = [e.table[row, i] for i in range(len(before))]
                self.assertEqual((r["have"], slots.tolist()), (whole, now), seed)
                replaced += now != before
                tokens = r["tokens"][:whole + is_eagle]
                if whole:
                    found = e.cache.match_prefix(tokens, "int32", extra_key=r["extra"])
                    self.assertEqual((found.slots.tolist(), found.last_node), (now[:whole], r["node"]), seed)
            else:
                r = running.pop(row)
                self.assertIsNone(e.publish(r, finished=True, is_insert=rng.random() < 0.7))
            self.assertEqual(e.lost(running.values()), 0, f"{seed} step {step}")
            if step % 10 == 0:
                e.cache.check()
        for r in running.values():
            e.publish(r, finished=True)
        self.assertEqual(e.cache.protected_size, 0)
        e.cache.evict(PAGES * page_size)
        if direct:
            self.assertEqual(e.kv.available_pages, PAGES)
        return replaced

    @unittest.skipUnless(numpy, "no numpy: python3-numpy")
    def test_no_slot_is_lost_or_owned_twice(self):
        replaced = [self.run_one(page_size, is_eagle, direct)
                    for page_size in (1, 4) for is_eagle in (False, True) for direct in (False, True)]
        self.assertGreater(sum(replaced), 0)

    def test_a_publication_without_news_is_a_hit(self):
        for is_eagle in (False, True):
            e = Engine(4, is_eagle, True)
            tokens = list(range(26))
            r = e.begin(0, tokens, None)
            e.publish(r)
            self.assertEqual((r["have"], e.cache.node_info(r["node"]).hit_count), (24, 0))
            for hits, how in ((1, {}), (1, {"chunked": True}), (2, {}), (2, {"finished": True, "is_insert": False})):
                node = r["node"]
                e.publish(r, **how)
                self.assertEqual(e.cache.node_info(node).hit_count, hits)
            r = e.begin(0, tokens, None)
            e.cache.reset()
            e.publish(r)  # the node has gone, and nothing enters in its place
            self.assertEqual(e.cache.total_size, 0)

    def test_a_node_of_another_path_costs_time_and_nothing_else(self):
        kv = radish.KVAllocator(20, 2)
        cache, rows = radish.RadixCache(kv_allocator=kv), radish.ReqToTokenPool(2, 16)
        matrix = rows.table
        slots = kv.alloc_slots(8).tolist()
        other = cache.insert([9, 9], kv.alloc_slots(2)).node
        cache.lock_node(other)
        for i, slot in enumerate(slots):
            matrix_row = rows.row(1)
            memoryview(matrix_row)[i] = slot
        node, kept, _, _ = cache.publish_row([1, 2, 3, 4, 5, 6, 7, 8], matrix, 1, other, 2)
        self.assertEqual(kept, 8)
        self.assertEqual(cache.match_prefix([1, 2, 3, 4, 5, 6, 7, 8], "int32").slots.tolist(), slots)
        self.assertEqual(cache.node_info(other).lock_ref, 0)
        self.assertEqual(cache.unlock_node(node), 8)

    def test_what_is_wrong_is_told_and_changes_nothing(self):
        kv = radish.KVAllocator(20, 2)
        cache, good = radish.RadixCache(kv_allocator=kv), radish.ReqToTokenPool(2, 8).table
        wrong = memoryview(bytearray(64)).cast("q", (2, 4))
        calls = [((([1, 2], good, 1), {"protected_tokens": 1}), ValueError, "whole pages of 2"),
                 ((([1, 2], good, 1), {"protected_tokens": 4}), ValueError, "at most the 2 tokens"),
                 ((([1] * 9, good, 1), {}), IndexError, r"table\[1\] with 9 slots: it has 3 rows of 8"),
                 ((([1, 2], good, 3), {}), IndexError, r"table\[3\]"),
                 ((([1, 2], good, -1), {}), OverflowError, "row is -1"),
                 ((([1, 2], wrong, 1), {}), TypeError, "table must be a writable matrix of int32"),
                 ((([1, 2], array.array("i", range(8)), 0), {}), TypeError, "table must be"),
                 ((([1, 2], bytes(64), 0), {}), BufferError, "writable"),
                 ((([1, 2], [[1, 2]], 0), {}), TypeError, "table must be"),
                 ((([1, -2], good, 1), {}), ValueError, r"tokens\[1\] is -2"),
                 ((([1], good, 1), {"more_tokens": [-2]}), ValueError, r"more_tokens\[0\] is -2"),
                 ((([1, 2], good, 1), {}), ValueError, "slot"),  # the row's are 0: page 0 is nobody's
                 ((([1, 2], good, 1, 1 << 40), {"finished": True, "is_insert": False}), radish.StateError, "")]
        for (args, named), error, words in calls:
            with self.subTest(words=words), self.assertRaisesRegex(error, words):
                cache.publish_row(*args, **named)
            self.assertEqual((cache.total_size, kv.available_pages), (0, 20))
        with self.assertRaisesRegex(radish.Error, "neither a KVAllocator"):
            radish.RadixCache(max_tokens=64).publish_row([1], good, 1)

    def test_threads_callbacks_and_what_is_closed(self):
        said = []

        def policy(facts):
            for call in (lambda: cache.publish_row([1, 2], matrix, 0), lambda: cache.lock_node(0),
                         lambda: kv.alloc_slots(1), lambda: kv.free_pages_of([1])):
                try:
                    call()
                except radish.StateError as e:
                    said.append(str(e))
            return 0

        kv = radish.KVAllocator(8, 2)
        cache = radish.RadixCache(kv_allocator=kv, evict_key=policy)
        rows = radish.ReqToTokenPool(1, 8)
        matrix, slots = rows.table, kv.alloc_slots(4)
        memoryview(rows.row(0))[0:4] = memoryview(slots)
        caught = []

        def elsewhere():
            for call in (lambda: cache.publish_row([1, 2], matrix, 0), lambda: cache.unlock_node(5),
                         lambda: kv.alloc_slots(1)):
                try:
                    call()
                except radish.StateError as e:
                    caught.append(str(e))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        self.assertEqual(len([words for words in caught if "take_over() here first" in words]), 3)
        with self.assertRaisesRegex(radish.StateError, "still use it"):
            rows.close()  # the matrix is its memory
        node = cache.publish_row([1, 2, 3, 4], matrix, 0)[0]
        self.assertEqual((cache.protected_size, kv.available_pages), (4, 6))
        cache.unlock_node(node)  # the policy is asked
        self.assertTrue(said)
        for words in said:
            self.assertRegex(words, "called from within")
        cache.close()
        for call in (lambda: cache.publish_row([1, 2], matrix, 0), lambda: cache.lock_node(node)):
            with self.assertRaisesRegex(radish.StateError, "closed"):
                call()

    def test_what_a_callback_raises(self):
        class Pages:
            num_pages = 8

            def free_pages(self, pages):
                raise OSError("disk")

        cache, matrix = radish.RadixCache(free_list=Pages()), table()
        with self.assertRaisesRegex(radish.Error, "neither a KVAllocator"):
            cache.publish_row([1], matrix, 0)

        def policy(facts):
            raise KeyError("no key")

        kv = radish.KVAllocator(8)
        cache = radish.RadixCache(kv_allocator=kv, evict_key=policy)
        matrix[0, 0] = kv.alloc_slots(1).tolist()[0]
        with self.assertRaisesRegex(KeyError, "no key"):
            cache.publish_row([1], matrix, 0)
        self.assertEqual(cache.total_size, 1)  # and was done

    def test_locks_by_node(self):
        cache = radish.RadixCache(max_tokens=64)
        node = cache.insert([1, 2, 3], [1, 2, 3]).node
        self.assertEqual((cache.lock_node(node), cache.lock_node(node)), (-3, 0))
        self.assertEqual(cache.evict(3), 0)
        self.assertEqual((cache.unlock_node(node), cache.unlock_node(node)), (0, 3))
        with self.assertRaisesRegex(radish.StateError, "not locked"):
            cache.unlock_node(node)
        self.assertEqual(cache.evict(3), 3)
        with self.assertRaises(radish.StateError):
            cache.lock_node(node)
        kv = radish.KVAllocator(8, 1, swa_num_pages=8)
        windows = radish.RadixCache(kv_allocator=kv, window_tokens=2)
        node = windows.insert([1, 2, 3], kv.alloc(3)).node
        with self.assertRaisesRegex(radish.UnsupportedError, "needs a Lock"):
            windows.lock_node(node)
        self.assertEqual(windows.protected_size, 0)

    def test_an_allocator_gives_and_takes_slots(self):
        kv = radish.KVAllocator(10, 4)
        slots = kv.alloc_slots(9, "int64").tolist()
        self.assertEqual([len(slots), kv.available_pages], [12, 7])
        self.assertEqual([slot % 4 for slot in slots], [0, 1, 2, 3] * 3)
        self.assertIsNone(kv.alloc_slots(29))
        self.assertIsNone(kv.alloc_slots(2 ** 32 - 1))
        self.assertEqual(len(kv.alloc_slots(0)), 0)
        kv.free_pages_of([slots[5], slots[1], slots[6], slots[0]])  # in any order, of a page more than one
        self.assertEqual(kv.available_pages, 9)
        for bad in ([slots[8], slots[0]], [-1], [2 ** 31 - 1]):
            with self.assertRaises(radish.StateError):
                kv.free_pages_of(bad)
        self.assertEqual(kv.available_pages, 9)
        kv.free_pages_of([])
        kv.free_pages_of(slots[8:])
        kv.check()


if __name__ == "__main__":
    unittest.main()
