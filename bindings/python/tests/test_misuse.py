"""Whatever Python does wrong is refused in words: nothing crashes, and nothing is lost by it."""
import array
import gc
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import unittest
import weakref

import radish


def parts(pages=64, page_size=4, rows=4, **params):
    kv = radish.KVAllocator(pages, page_size)
    pool = radish.ReqToTokenPool(rows, 200)
    return kv, pool, radish.RadixCache(kv_allocator=kv, req_to_token_pool=pool, **params)


def run(script):
    """What a Python of its own says and how it ends."""
    return subprocess.run([sys.executable, "-c", "import radish\n" + script], capture_output=True,
                          text=True)


def raised_in_thread(call):
    caught = []

    def body():
        try:
            call()
        except Exception as e:
            caught.append(e)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return caught[0] if caught else None


class Misuse(unittest.TestCase):
    def test_a_closed_cache_and_all_that_is_its(self):
        kv, rows, cache = parts()
        request = radish.Request(range(20))
        cache.admit(request)
        cache.extend(request)
        request.committed_len = 20
        cache.unfinished_req(request)
        handle, lock = cache.match_handle(range(20)), cache.inc_lock_ref(request.node)
        cache.close()
        cache.close()  # twice is fine
        for call in (handle.slots, handle.lock, lock.release, cache.poll, cache.walk,
                     lambda: cache.match_prefix([1]), lambda: cache.finished_req(request),
                     lambda: cache.evictable_size, lambda: handle.insert([1], [1]),
                     cache.take_over):
            with self.assertRaisesRegex(radish.StateError, "is closed"):
                call()
        del request, lock, handle
        kv.close()
        rows.close()

    def test_parts_in_use_are_not_closed(self):
        kv, rows, cache = parts()
        for part in (kv, rows):
            with self.assertRaisesRegex(radish.StateError, "still use it"):
                part.close()
        cache.close()
        kv.close()
        with self.assertRaisesRegex(radish.StateError, "KVAllocator.alloc: the KVAllocator is closed"):
            kv.alloc(1)
        with self.assertRaisesRegex(radish.StateError, "closed"):
            radish.RadixCache(kv_allocator=kv)

    def test_pages_and_rows_are_given_back_once(self):
        kv, rows, _ = parts()
        pages = kv.alloc(3)
        kv.free(pages)
        for wrong in (pages, [1, 1], [0], [-1], [65], array.array("q", [64, 2**31 - 1])):
            with self.assertRaises((radish.StateError, radish.InvalidError)):
                kv.free(wrong)
        with self.assertRaises(ValueError):
            kv.free(array.array("q", [2**40]))
        row = rows.alloc()
        rows.free(row)
        for wrong in (row, 0, 99):
            with self.assertRaises(radish.StateError):
                rows.free(wrong)
        with self.assertRaises(OverflowError):
            rows.free(-1)
        kv.check()
        rows.check()

    def test_no_room_is_an_answer(self):
        kv, rows, cache = parts(pages=2, rows=1)
        self.assertIsNone(kv.alloc(3))
        self.assertIsNone(kv.alloc(2**32 - 1))
        self.assertIsNone(kv.alloc_extend([0], [2**31 - 1], [-1]))
        self.assertEqual(rows.alloc(), 1)
        self.assertIsNone(rows.alloc())
        self.assertIsNone(cache.admit(radish.Request([1, 2, 3])))
        rows.free(1)
        request = radish.Request(range(9))
        cache.admit(request)
        self.assertFalse(cache.extend(request))
        self.assertTrue(cache.extend(request, 8))
        with self.assertRaisesRegex(radish.InvalidError, "a row has 200"):
            cache.extend(request, 201)

    def test_numbers_out_of_their_limits(self):
        kv, _, cache = parts()
        for call in (lambda: radish.KVAllocator(-1), lambda: radish.KVAllocator(2**32),
                     lambda: cache.evict(-1), lambda: cache.evict(2**64),
                     lambda: radish.Request([1], priority=2**31)):
            with self.assertRaises(OverflowError):
                call()
        for call in (lambda: radish.KVAllocator("9"), lambda: kv.alloc(1.5), lambda: cache.evict(None),
                     lambda: radish.Request([1], extra_key=5), lambda: radish.KVAllocator(),
                     lambda: radish.KVAllocator(1, 2, 3), lambda: radish.KVAllocator(1, pages=2),
                     lambda: cache.match_prefix([1], token=3), lambda: cache.match_prefix([1], tokens=[1])):
            with self.assertRaises(TypeError):
                call()
        with self.assertRaisesRegex(ValueError, "zero byte"):
            cache.match_prefix([1], extra_key="a\0b")
        with self.assertRaises(UnicodeEncodeError):
            cache.match_prefix([1], extra_key="\ud800")
        with self.assertRaises(ValueError):
            radish.Request([-1])
        with self.assertRaisesRegex(ValueError, "is none of: lru, lfu"):
            radish.RadixCache(eviction_policy="best")

    def test_nodes_locks_and_handles_that_are_stale(self):
        cache = radish.RadixCache(page_size=2, max_tokens=100)
        cache.insert([1, 2, 3, 4], [2, 3, 4, 5])
        match, handle = cache.match_prefix([1, 2, 3, 4]), cache.match_handle([1, 2, 3, 4])
        lock = cache.inc_lock_ref(match.last_node)
        self.assertEqual((cache.evict(4), cache.protected_size), (0, 4))
        self.assertEqual(lock.release(), 4)
        with self.assertRaises(radish.StateError):
            lock.release()
        with lock:
            pass  # its end does not release twice
        self.assertEqual(cache.evict(4), 4)
        for call in (handle.slots, handle.lock, lambda: handle.insert([1, 2, 3, 4, 5, 6], [8, 9]),
                     lambda: cache.inc_lock_ref(match.last_node), lambda: cache.node_info(match.last_node),
                     lambda: cache.inc_lock_ref(2**63 + 5)):
            with self.assertRaises(radish.StateError):
                call()
        with self.assertRaises(OverflowError):
            cache.inc_lock_ref(-1)
        other = radish.RadixCache(max_tokens=100)
        with self.assertRaisesRegex(radish.StateError, "another cache's"):
            other.dec_lock_ref(lock)
        with self.assertRaises(TypeError):
            other.dec_lock_ref(3)
        with self.assertRaises(IndexError):
            handle.slots(0, 5)

    def test_windows_of_locks(self):
        kv = radish.KVAllocator(16, 2, swa_num_pages=16)
        cache = radish.RadixCache(page_size=2, kv_allocator=kv, window_tokens=4)
        cache.insert(range(8), kv.alloc_extend([0], [8], [-1]))
        lock = cache.inc_lock_ref(cache.match_prefix(range(8)).last_node)
        self.assertEqual((lock.window_from, cache.window_protected_size), (4, 4))
        for wrong in (-1, 2**32, "3", None):
            with self.assertRaises((TypeError, OverflowError)):
                lock.release_window(wrong)
        lock.release_window(7)
        self.assertEqual((lock.window_from, cache.window_protected_size), (6, 2))
        lock.release_window()
        self.assertEqual((cache.window_protected_size, cache.protected_size), (0, 8))
        lock.release()
        with self.assertRaisesRegex(radish.StateError, "holds nothing"):
            lock.release_window()
        cache.close()
        with self.assertRaisesRegex(radish.StateError, "closed"):
            lock.release_window()
        plain = radish.RadixCache(max_tokens=100)
        plain.insert([1, 2], [1, 2])
        with self.assertRaises(radish.UnsupportedError):
            plain.inc_lock_ref(plain.match_prefix([1, 2]).last_node).release_window()

    def test_requests_of_other_caches_and_wrong_records(self):
        kv, rows, cache = parts()
        other = parts()[2]
        request = radish.Request(range(30))
        with self.assertRaisesRegex(radish.StateError, "no row"):
            cache.extend(request)
        cache.admit(request)
        with self.assertRaisesRegex(radish.StateError, "admitted already"):
            cache.admit(request)
        for call in (other.extend, other.finished_req, other.unfinished_req, other.admit):
            with self.assertRaisesRegex(radish.StateError, "another cache's"):
                call(request)
        request.committed_len = 31
        with self.assertRaises(radish.InvalidError):
            cache.unfinished_req(request)
        request.committed_len = 0
        request.allocated_len = 10**6
        with self.assertRaises(ValueError):
            cache.unfinished_req(request)
        request.allocated_len = 0
        wrapped, held = radish.StreamingCache(other, 4), radish.Request(range(30))
        wrapped.admit(held)
        held.allocated_len = 10**6
        with self.assertRaisesRegex(ValueError, "a row has"):
            wrapped.extend(held)
        held.allocated_len = 0
        wrapped.finished_req(held)
        cache.extend(request)
        request.slots[0]  # the row's memory
        memoryview(request.slots)[4] = 1000000  # nobody's slot
        request.committed_len = 30
        with self.assertRaises((radish.StateError, radish.InvalidError)):
            cache.unfinished_req(request)
        for wrong in (None, 5, "r"):
            with self.assertRaises(TypeError):
                cache.admit(wrong)
        with self.assertRaises(ValueError):
            cache.admit(radish.Request(range(201)))
        with self.assertRaises(OverflowError):
            request.committed_len = -1
        with self.assertRaises(AttributeError):
            del request.committed_len

    def test_requests_that_only_the_check_knows(self):
        """A sequence may make its entries as it is asked: the check keeps what it reads."""
        kv, rows, cache = parts()

        class Fresh:
            def __len__(self):
                return 3

            def __getitem__(self, i):
                request = radish.Request(range(100 * i, 100 * i + 30))
                cache.admit(request)
                cache.extend(request)
                return request

        cache.check_ownership(Fresh())
        self.assertEqual((kv.available_pages, rows.available), (64, 4))
        self.assertEqual(cache.report_ownership(Fresh()), [])
        self.assertEqual((kv.available_pages, rows.available), (64, 4))
        twice = Fresh()[0]
        with self.assertRaises(radish.CorruptError):
            cache.check_ownership([twice, twice])
        twice.append(5)  # and it is nobody's any more
        with self.assertRaises(TypeError):
            cache.check_ownership([twice, 5])
        twice.append(5)

    def test_a_request_is_what_it_was_when_it_is_admitted_again(self):
        _, _, cache = parts()
        request = radish.Request(range(30), extra_key="lora", cache_salt="alice", priority=7)
        for _ in range(2):  # retracted, and back
            cache.admit(request)
            cache.extend(request)
            cache.finished_req(request)
            self.assertEqual((len(request), request.priority, request.extra_key, request.cache_salt),
                             (30, 7, "lora", "alice"))

    def test_a_request_stays_as_it_is_while_it_is_admitted(self):
        """The tree compares its tokens without the interpreter's lock; an append would move them."""
        count = 70000
        kv, rows = radish.KVAllocator(count), radish.ReqToTokenPool(1, count + 1000)
        cache = radish.RadixCache(kv_allocator=kv, req_to_token_pool=rows)
        cache.insert(range(count), kv.alloc(count))
        request = radish.Request(range(count))
        refused, stop = [], threading.Event()

        def append():
            while not stop.is_set():
                try:
                    request.append(1)
                except radish.StateError as e:
                    refused.append(str(e))
                time.sleep(0)

        before = sys.getswitchinterval()
        sys.setswitchinterval(10**6)  # it runs when admit gives the lock away, and only then
        thread = threading.Thread(target=append)
        try:
            thread.start()
            for _ in range(100000):
                if len(request) > count:
                    request.truncate(count)  # of when the thread began
                cache.admit(request)
                self.assertEqual(len(request), count)
                cache.finished_req(request)
                if refused:
                    break
            self.assertIn("in use by a call", refused[0])
        finally:
            stop.set()
            sys.setswitchinterval(before)
            thread.join()

    def test_what_is_dropped_gives_back_what_it_holds(self):
        kv, rows, cache = parts()
        request = radish.Request(range(30))
        cache.admit(request)
        cache.extend(request)
        self.assertEqual((kv.available_pages, rows.available), (56, 3))
        del request
        self.assertEqual((kv.available_pages, rows.available), (64, 4))
        cache.insert(list(range(8)), [kv.page_size * p + i for p in kv.alloc(2) for i in range(4)])
        lock = cache.inc_lock_ref(cache.match_prefix(range(8)).last_node)
        self.assertEqual(cache.protected_size, 8)
        del lock
        self.assertEqual(cache.protected_size, 0)
        cache.check_ownership()

    def test_what_is_dropped_within_a_call_waits_for_its_end(self):
        kv, rows, cache = parts(evict_key=lambda facts: held.clear() or 0)
        held = []
        cache.insert(list(range(8)), list(kv.alloc_extend([0], [8], [-1])))
        lock = cache.inc_lock_ref(cache.match_prefix(range(8)).last_node)
        request = radish.Request(range(50, 70))
        cache.admit(request)
        cache.extend(request)
        held += [lock, request]
        del lock, request
        other = radish.Request(range(100, 104))  # its publication asks the policy
        cache.admit(other)
        cache.extend(other)
        other.committed_len = 4
        cache.finished_req(other)
        self.assertEqual(held, [])
        self.assertEqual((cache.protected_size, rows.available), (0, 4))
        cache.check_ownership()

    def test_a_policy_is_asked_while_a_lock_goes(self):
        said = []

        def policy(facts):
            for call in (cache.poll, lambda: request.append(1) if asked else cache.poll()):
                try:
                    call()
                except radish.StateError as e:
                    said.append(str(e))
            return 0

        asked = []
        kv, rows, cache = parts(evict_key=policy)
        cache.insert(list(range(8)), list(kv.alloc_extend([0], [8], [-1])))
        lock = cache.inc_lock_ref(cache.match_prefix(range(8)).last_node)
        said.clear()
        del lock
        self.assertRegex(said[0], "called from within the end of a lock")
        request = radish.Request(range(50, 58))
        cache.admit(request)
        cache.extend(request)
        request.committed_len = 8
        asked.append(True)
        cache.unfinished_req(request)
        cache.finished_req(request)
        self.assertIn("the request is in use by a call that has not ended", said)
        cache.check_ownership()

    def test_another_thread_is_refused_until_it_takes_over(self):
        kv, rows, cache = parts()
        for call in (cache.poll, lambda: kv.alloc(1), rows.alloc, cache.close):
            error = raised_in_thread(call)
            self.assertIsInstance(error, radish.StateError)
            self.assertRegex(str(error), "is thread .* take_over")
        self.assertIsNone(raised_in_thread(cache.take_over))
        with self.assertRaisesRegex(radish.StateError, "take_over"):
            kv.alloc(1)  # it went with the cache
        kv.take_over()
        self.assertEqual(cache.evictable_size, 0)

    def test_a_callback_cannot_enter_its_cache(self):
        said = []

        def policy(facts):
            for call in (cache.poll, lambda: cache.match_prefix([1]), cache.close, cache.take_over,
                         lambda: kv.alloc(1), lambda: cache.evict(4)):
                try:
                    call()
                except radish.StateError as e:
                    said.append(str(e))
            return facts.last_access

        kv, rows, cache = parts(evict_key=policy)
        cache.insert(list(range(8)), list(kv.alloc_extend([0], [8], [-1])))
        self.assertTrue(said)
        for words in said:
            self.assertRegex(words, "called from within insert")
        cache.check()

    def test_what_a_callback_raises_is_raised_by_the_call(self):
        def policy(facts):
            raise KeyError("no key")

        cache = radish.RadixCache(evict_key=policy, max_tokens=100)
        with self.assertRaisesRegex(KeyError, "no key"):
            cache.insert([1, 2], [3, 4])
        self.assertEqual(cache.total_size, 2)  # and was done
        for answer in ("x", None, -5, 2**80):
            cache = radish.RadixCache(evict_key=lambda facts: answer, max_tokens=100)
            if isinstance(answer, int):
                cache.insert([1, 2], [3, 4])
                cache.check()
                continue
            with self.assertRaises(TypeError):
                cache.insert([1, 2], [3, 4])

        class Pages:
            num_pages = 50

            def free_pages(self, pages):
                raise OSError("disk")

        cache = radish.RadixCache(free_list=Pages())
        cache.insert([1, 2], [3, 4])
        with self.assertRaisesRegex(OSError, "disk"):
            cache.evict(2)
        self.assertEqual(cache.total_size, 0)

    def test_a_free_list_that_is_not_emptied(self):
        cache = radish.RadixCache(free_list=4)
        cache.insert([1, 2], [1, 2])
        cache.evict(2)
        self.assertEqual(sorted(cache.take_freed()), [1, 2])
        for _ in range(2):  # nobody takes them, and they come in again
            cache.insert([1, 2], [1, 2])
            cache.evict(2)
        cache.insert([1, 2], [1, 2])
        with self.assertRaisesRegex(radish.StateError, "take_freed"):
            cache.evict(2)
        with self.assertRaisesRegex(radish.StateError, "free_list"):
            radish.RadixCache(max_tokens=9).take_freed()

    def test_wrong_parts(self):
        kv, rows, cache = parts()
        for make in (lambda: radish.RadixCache(kv_allocator=rows), lambda: radish.RadixCache(evict_key=3),
                     lambda: radish.StreamingCache(kv), lambda: radish.HiRadixCache(host_pool=kv),
                     lambda: radish.HostKVPool(kv), lambda: radish.Cache(),
                     lambda: radish.Match(), lambda: radish.Lock(), lambda: radish.Array()):
            with self.assertRaises(TypeError):
                make()
        with self.assertRaises(radish.Error):
            radish.RadixCache(kv_allocator=kv, page_size=8)
        with self.assertRaises(AttributeError):
            radish.RadixCache(free_list=object())
        half = radish.RadixCache.__new__(radish.RadixCache)  # is whole: __new__ makes it
        self.assertEqual(half.total_size, 0)

    def test_a_cache_that_was_wrapped_is_the_wrappers(self):
        kv, rows, cache = parts()
        lock = None
        cache.insert(list(range(4)), list(kv.alloc_extend([0], [4], [-1])))
        lock = cache.inc_lock_ref(cache.match_prefix(range(4)).last_node)
        with self.assertRaisesRegex(radish.StateError, "are out"):
            radish.StreamingCache(cache, 4)
        lock.release()
        streaming = radish.StreamingCache(cache, 4)
        with self.assertRaisesRegex(radish.StateError, "closed"):
            cache.poll()
        self.assertEqual(streaming.match_prefix(range(4)).prefix_tokens, 4)
        streaming.close()
        kv.close()

    def test_a_cache_is_reset_before_it_leaves_an_allocator(self):
        kv, rows, cache = parts()
        for reset, left in ((True, 64), (False, 62)):
            cache = radish.RadixCache(kv_allocator=kv)
            cache.insert(range(8), [4 * p + i for p in kv.alloc(2) for i in range(4)])
            if reset:
                cache.reset()
            cache.close()
            self.assertEqual(kv.available_pages, left)

    def test_an_allocator_outlives_many_caches(self):
        """Each cache makes its parts its own, which once left a little memory behind each time."""
        kv, rows, states = radish.KVAllocator(8), radish.ReqToTokenPool(2, 8), radish.KVAllocator(8)
        radish.RadixCache(kv_allocator=states, req_to_token_pool=rows).close()
        tracemalloc.start()
        try:
            for i in range(520):
                if i == 20:
                    before = tracemalloc.get_traced_memory()[0]
                radish.RadixCache(kv_allocator=kv, req_to_token_pool=rows).close()
            self.assertLess(tracemalloc.get_traced_memory()[0] - before, 500 * 8)
        finally:
            tracemalloc.stop()
        self.assertEqual((kv.available_pages, states.available_pages, rows.available), (8, 8, 2))

    def test_cycles_are_collected(self):
        class Engine:
            num_pages = 100

            def __init__(self):
                self.cache = radish.RadixCache(free_list=self, evict_key=self.key)

            def key(self, facts):
                return 0

            def free_pages(self, pages):
                pass

        engine = Engine()
        engine.cache.insert([1, 2], [3, 4])
        gone = weakref.ref(engine)
        del engine
        gc.collect()
        self.assertIsNone(gone())

    def test_derived_classes(self):
        class Mine(radish.RadixCache):
            def poll(self):
                return "mine"

        class MyPages(radish.KVAllocator):
            pass

        class MyRequest(radish.Request):
            pass

        kv = MyPages(8, 2)
        kv.note = 5
        cache = Mine(kv_allocator=kv, req_to_token_pool=radish.ReqToTokenPool(2, 20))
        request = MyRequest([1, 2, 3])
        self.assertIsNotNone(cache.admit(request))
        self.assertEqual((cache.poll(), cache.kv_allocator.note), ("mine", 5))
        for _ in range(100):
            Mine(max_tokens=10), MyPages(3), MyRequest([1])

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_a_forked_child_is_refused(self):
        done = run("""
import os, sys
kv = radish.KVAllocator(8); rows = radish.ReqToTokenPool(2, 50)
cache = radish.RadixCache(kv_allocator=kv, req_to_token_pool=rows)
request = radish.Request([1, 2, 3]); cache.admit(request); cache.extend(request)
lock = cache.inc_lock_ref(0)
child = os.fork()
if not child:
    for call in (cache.poll, lambda: kv.alloc(1), rows.alloc, lock.release, cache.close, cache.take_over):
        try:
            call()
            print("NOT REFUSED")
        except radish.StateError as e:
            assert "forked" in str(e), e
    del request, lock, cache, kv, rows
    own = radish.RadixCache(max_tokens=10)
    own.insert([1, 2], [1, 2])
    sys.exit(7)
status = os.waitpid(child, 0)[1]
cache.finished_req(request); cache.check_ownership()
print(os.waitstatus_to_exitcode(status))
""")
        self.assertEqual((done.stdout.strip(), done.stderr, done.returncode), ("7", "", 0))

    def test_the_interpreter_ends_with_all_alive(self):
        done = run("""
import threading
kv = radish.KVAllocator(8, 4); rows = radish.ReqToTokenPool(2, 50)
pool = radish.TokenToKVPool(8, 4, num_layers=1, num_kv_heads=1, head_dim=8)
class Store:
    def batch_exists(self, keys, deadline): return 0
    def batch_get(self, keys, deadline): return [None] * len(keys)
    def batch_set(self, keys, records, deadline): return None
cache = radish.HiRadixCache(kv_allocator=kv, req_to_token_pool=rows, host_pool=radish.HostKVPool(pool),
                            identity="m", storage=Store(), evict_key=None)
requests = []
for i in range(2):
    r = radish.Request(range(i, i + 16)); cache.admit(r); cache.extend(r); r.committed_len = 16
    cache.unfinished_req(r); requests.append(r)
lock = cache.inc_lock_ref(requests[0].node)
views = [memoryview(rows.table), pool.buffers(0)]
plain = radish.RadixCache(evict_key=lambda facts: 1, max_tokens=100); plain.insert([1], [2])
class Late:
    def __del__(self):
        try: cache.poll()
        except Exception as e: print(type(e).__name__)
late = Late()
print("end")
""")
        self.assertEqual((done.stdout.split()[0], done.stderr, done.returncode), ("end", "", 0))

    def test_one_interpreter_has_it(self):
        done = run("""
try:
    import _xxsubinterpreters as sub
except ImportError:
    print("refused"); raise SystemExit
other = sub.create()
try:
    sub.run_string(other, "import radish")
    print("loaded twice")
except Exception as e:
    print("refused" if "one interpreter" in str(e) or "subinterpreter" in str(e) else e)
""")
        self.assertEqual((done.stdout.strip(), done.returncode), ("refused", 0))

    def test_what_takes_long_lets_other_threads_run(self):
        count = 70000
        narrow, wide = array.array("i", range(count)), array.array("q", range(count))
        kv = radish.KVAllocator(count)
        cache = radish.RadixCache(kv_allocator=kv)
        table = memoryview(bytearray(4 * count)).cast("i", (1, count))
        slots = kv.alloc(count)
        row = memoryview(table.obj).cast("i")
        row[:] = memoryview(slots)

        def publish():
            node = cache.publish_row(narrow, table, 0)[0]
            cache.unlock_node(node)

        def insert_and_evict():
            cache.evict(count)
            cache.insert(wide, kv.alloc(count))

        calls = [publish, lambda: cache.match_prefix(narrow), lambda: cache.match_prefix(wide, "int64"),
                 lambda: cache.lookup(narrow), lambda: cache.match_handle(narrow),
                 lambda: cache.match_batch([[1, 2]] * 16), cache.check, cache.check_ownership, insert_and_evict]
        before = sys.getswitchinterval()
        sys.setswitchinterval(10**6)  # from now on a thread runs when another gives the lock away
        try:
            for call in calls:
                counted = [0]
                stop = threading.Event()

                def count_up():
                    while not stop.is_set():
                        counted[0] += 1
                        time.sleep(0)  # gives the lock away

                thread = threading.Thread(target=count_up)
                thread.start()
                for _ in range(100000):  # the other thread may be late
                    seen = counted[0]
                    call()
                    if counted[0] > seen > 0:  # it went on while the call was under way
                        break
                else:
                    self.fail(f"no other thread ran within {call}")
                stop.set()
                time.sleep(0)
                thread.join()
        finally:
            stop.set()
            sys.setswitchinterval(before)

    def test_two_threads_with_two_caches(self):
        wrong = []

        def body(first):
            try:
                kv, rows, cache = parts(pages=32)
                for i in range(150):
                    request = radish.Request(range(first + i % 7, first + i % 7 + 40))
                    assert cache.admit(request)
                    assert cache.extend(request)
                    request.committed_len = 40
                    cache.unfinished_req(request)
                    cache.finished_req(request)
                    cache.check()  # without the interpreter's lock
                cache.check_ownership()
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=body, args=(1000 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
