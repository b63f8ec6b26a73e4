"""Random histories against a model that is obviously right: a dict from prefixes to pages."""
import array
import os
import random
import unittest

import radish

try:
    import numpy
except ImportError:
    numpy = None

STEPS = 4000 if os.environ.get("RADISH_TEST_LONG") else int(os.environ.get("RADISH_TEST_STEPS", 400))


class Model:
    """cached[namespace, tokens up to a page's end] = page; a lock holds all prefixes of a key."""

    def __init__(self, page_size):
        self.page_size, self.cached, self.locks = page_size, {}, []

    def prefixes(self, name, tokens):
        ends = range(self.page_size, len(tokens) + 1, self.page_size)
        return [(name, tuple(tokens[:end])) for end in ends]

    def match(self, name, tokens):
        pages = []
        for prefix in self.prefixes(name, tokens):
            if prefix not in self.cached:
                break
            pages.append(self.cached[prefix])
        return pages

    def slots(self, pages):
        return [page * self.page_size + i for page in pages for i in range(self.page_size)]

    def locked(self):
        return {prefix for lock in self.locks for prefix in lock}

    def evicted(self, pages):
        """These left: each was there, none was locked, and what is left is closed to the front."""
        of = {page: prefix for prefix, page in self.cached.items()}
        locked = self.locked()
        for page in pages:
            prefix = of.pop(page)
            assert prefix not in locked, f"page {page} was locked"
            del self.cached[prefix]
        for name, tokens in self.cached:
            before = tokens[:-self.page_size]
            assert not before or (name, before) in self.cached, "a page is cached behind none"


def forms(rng, numbers):
    """The same numbers as one of many things."""
    made = [lambda: list(numbers), lambda: tuple(numbers), lambda: array.array("i", numbers),
            lambda: array.array("q", numbers)]
    if numpy:
        made += [lambda: numpy.array(numbers, "i4"), lambda: numpy.array(numbers, "i8")]
    return rng.choice(made)()


class Histories(unittest.TestCase):
    def run_one(self, seed, page_size, policy):
        rng = random.Random(seed)
        num_pages = 60
        cache = radish.RadixCache(page_size=page_size, free_list=num_pages, eviction_policy=policy)
        model, free, locks = Model(page_size), list(range(num_pages)), []

        def take_freed():
            pages = cache.take_freed("int64" if rng.random() < 0.5 else "int32").tolist()
            model.evicted(pages)
            free.extend(pages)
            return len(pages)

        for step in range(STEPS):
            name = rng.choice([{}, {"extra_key": "lora"}, {"cache_salt": "user"}])
            space = tuple(name.items())
            begin = rng.choice([[1, 2], [1, 3], [2, 2]])
            tokens = begin * rng.randrange(0, 4) + [rng.randrange(3) for _ in range(rng.randrange(1, 14))]
            known = model.match(space, tokens)
            kind = rng.randrange(10)
            if kind < 4:
                match = cache.match_prefix(forms(rng, tokens), rng.choice(["int32", "int64"]), **name)
                self.assertEqual(match.slots.tolist(), model.slots(known))
                self.assertEqual(cache.lookup(tokens, **name).prefix_tokens, len(known) * page_size)
                if known and rng.random() < 0.3:
                    locks.append(cache.inc_lock_ref(match.last_node))
                    model.locks.append(model.prefixes(space, tokens)[:len(known)])
            elif kind < 7:
                pages = len(tokens) // page_size
                short = pages - len(known) - len(free)
                if short > 0:
                    cache.evict(short * page_size)
                    take_freed()
                    known = model.match(space, tokens)
                if pages - len(known) > len(free):
                    continue
                new = [free.pop() for _ in range(pages - len(known))]
                slots = model.slots(known + new)
                done = cache.insert(forms(rng, tokens), forms(rng, slots + [7] * (len(tokens) % page_size)),
                                    priority=rng.randrange(3), **name)
                self.assertEqual(done.prefix_tokens, len(known) * page_size)
                model.cached.update(zip(model.prefixes(space, tokens), known + new))
            elif kind == 7:
                asked = rng.randrange(1, 20)
                loose = (len(model.cached) - len(model.locked())) * page_size
                most = min(loose, -(-asked // page_size) * page_size)
                self.assertEqual(cache.evict(asked), most)
                self.assertEqual(take_freed() * page_size, most)
            elif locks:
                at = rng.randrange(len(locks))
                model.locks.pop(at)
                if rng.random() < 0.5:
                    locks.pop(at).release()
                else:
                    locks.pop(at)  # goes, and gives back
            self.assertEqual(cache.total_size, len(model.cached) * page_size)
            self.assertEqual(cache.protected_size, len(model.locked()) * page_size)
            if step % 50 == 0:
                cache.check()
                self.assertEqual(sorted(cache.all_values_flatten("int64").tolist()),
                                 sorted(model.slots(model.cached.values())))

    def test_random_histories(self):
        seed = int(os.environ.get("RADISH_TEST_SEED", 0)) or random.randrange(1, 10**6)
        for page_size, policy in ((1, "lru"), (4, "lfu"), (2, "slru"), (3, "cost")):
            with self.subTest(seed=seed, page_size=page_size, policy=policy):
                self.run_one(seed, page_size, policy)

    def test_events_tell_what_is_cached(self):
        rng = random.Random(5)
        cache = radish.RadixCache(page_size=2, free_list=200, enable_kv_events=True)
        blocks = {}
        for _ in range(STEPS):
            tokens = [rng.randrange(2) for _ in range(rng.randrange(2, 16))]
            if cache.total_size > 350:
                cache.evict(60)
            known = cache.match_prefix(tokens, "int32").slots.tolist()
            while len(known) + 2 <= len(tokens):
                page = rng.choice(sorted(set(range(200)) - {s // 2 for s in cache.all_values_flatten()} -
                                         {s // 2 for s in known}))
                known += [2 * page, 2 * page + 1]
            cache.insert(tokens, known + [0])
            if rng.random() < 0.3:
                cache.evict(rng.randrange(9))
                cache.take_freed()
            for event in cache.take_events():
                if event.type == "BlockStored":
                    parent = event.parent_block_hash
                    for i, block in enumerate(event.block_hashes):
                        self.assertTrue(parent is None or parent in blocks)
                        blocks[block] = event.token_ids[2 * i:2 * i + 2]
                        parent = block
                else:
                    for block in event.block_hashes:
                        del blocks[block]
            self.assertEqual(2 * len(blocks), cache.total_size)
        chain = radish.page_hash_chain(tokens, 2)
        self.assertEqual(cache.page_hashes(tokens), chain)
        self.assertTrue(all(radish.page_hash_event(h) in blocks for h in chain))


class Batches(unittest.TestCase):
    def test_a_batch_answers_as_single_matches(self):
        cache = radish.RadixCache(page_size=2, max_tokens=500)
        for salt in (None, "a"):
            cache.insert(range(20), range(2 + 20 * bool(salt), 22 + 20 * bool(salt)), cache_salt=salt)
        keys = [list(range(n)) for n in range(1, 22)]
        salts = [None if n % 2 else "a" for n in range(1, 22)]
        singles = [cache.match_prefix(k, "int64", cache_salt=s) for k, s in zip(keys, salts)]
        batch = cache.match_batch(keys, "int64", cache_salts=salts)
        self.assertEqual([(m.prefix_tokens, m.slots.tolist(), m.last_node) for m in batch],
                         [(m.prefix_tokens, m.slots.tolist(), m.last_node) for m in singles])
        own = [array.array("q", [0] * 30) for _ in keys]
        batch = cache.match_batch(keys, own, cache_salts=salts)
        for single, match, into in zip(singles, batch, own):
            self.assertIs(match.slots, into)
            self.assertEqual(into.tolist()[:match.prefix_tokens], single.slots.tolist())
        self.assertEqual(cache.match_batch([]), [])
        for wrong in ([[1], [-1]], 5, [5]):
            with self.assertRaises((ValueError, TypeError)):
                cache.match_batch(wrong)
        match, spans = cache.match_spans(range(20))
        self.assertEqual([s for _, pages in spans for s in pages], list(range(1, 11)))

    def test_inserts_of_a_session_go_last(self):
        cache = radish.RadixCache(max_tokens=100, max_sessions=2)
        session, handle = cache.session_open(), cache.match_handle([1])
        handle.insert([1, 2, 3], [1, 2, 3], session=session)
        cache.insert([5, 6, 7], [5, 6, 7])
        self.assertEqual((cache.evict(3), cache.lookup([1, 2, 3]).prefix_tokens), (3, 3))
        cache.insert([8, 9], [8, 9], session=session)  # one session refers to one path: the last one
        self.assertEqual((cache.evict(3), cache.lookup([8, 9]).prefix_tokens), (3, 2))

    def test_handles_go_on_from_where_they_are(self):
        cache = radish.RadixCache(page_size=2, max_tokens=500)
        handle = cache.match_handle([1])
        for n in range(4, 40, 4):
            done = handle.insert(range(n), range(100 + n - 4, 100 + n))
            self.assertEqual((handle.num_tokens, done.node), (n, handle.node))
        self.assertEqual(handle.slots().tolist(), list(range(100, 136)))
        self.assertEqual(handle.slots(3, 2, "int64").tolist(), [103, 104])
        other = cache.match_handle(list(range(10)) + [99, 99])
        self.assertEqual((other.num_tokens, handle.common(other)), (10, 10))
        with handle.lock() as lock:
            self.assertEqual((cache.protected_size, lock.held), (36, True))
        self.assertEqual(cache.continuation(range(10), 5).tolist(), [10, 11, 12, 13, 14])


if __name__ == "__main__":
    unittest.main()
