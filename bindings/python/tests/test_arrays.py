"""Tokens and slots come from, and go to, whatever holds int32 or int64."""
import array
import ctypes
import unittest

import radish

try:
    import numpy
except ImportError:
    numpy = None

TOKENS = list(range(100, 140))
SLOTS = list(range(4, 44))


def filled():
    cache = radish.RadixCache(page_size=4, max_tokens=1000)
    cache.insert(TOKENS, SLOTS)
    return cache


class Arrays(unittest.TestCase):
    def test_every_form_of_tokens_finds_the_same(self):
        cache = filled()
        forms = [TOKENS, tuple(TOKENS), range(100, 140), array.array("i", TOKENS),
                 array.array("q", TOKENS), memoryview(array.array("l", TOKENS)),
                 radish.Request(TOKENS).tokens]
        if numpy:
            forms += [numpy.array(TOKENS, dtype) for dtype in ("i4", "i8", "u4", "u8")]
        for form in forms:
            match = cache.match_prefix(form, "int64")
            self.assertEqual((match.prefix_tokens, match.slots.tolist()), (40, SLOTS))

    def test_every_form_of_slots_is_inserted(self):
        for form in (SLOTS, array.array("i", SLOTS), array.array("q", SLOTS)):
            cache = radish.RadixCache(page_size=4, max_tokens=1000)
            self.assertEqual(cache.insert(TOKENS, form).prefix_tokens, 0)
            self.assertEqual(cache.all_values_flatten().tolist(), SLOTS)

    def test_slots_go_into_the_callers_array(self):
        cache = filled()
        for code in "iq":
            into = array.array(code, [-7] * 45)
            match = cache.match_prefix(TOKENS[:20] + [0] * 25, into)
            self.assertIs(match.slots, into)
            self.assertEqual(into.tolist(), SLOTS[:20] + [-7] * 25)

    def test_one_row_of_integers_or_an_exception(self):
        cache = filled()
        wrong = [1.5, "abc", None, [1, "a"], [1.0], array.array("d", [1]), array.array("h", [1]),
                 b"abcd", object()]
        if numpy:
            wrong += [numpy.arange(8)[::2], numpy.arange(8).reshape(2, 4), numpy.zeros(3),
                      numpy.arange(3, dtype=">i4"), numpy.arange(3) > 1]
        for tokens in wrong:
            with self.assertRaises(TypeError, msg=repr(tokens)):
                cache.match_prefix(tokens)
        for tokens in ([1, -1], [2**31], [2**70], array.array("i", [3, -4]),
                       array.array("q", [2**33]), array.array("q", [-2])):
            with self.assertRaisesRegex(ValueError, r"tokens\[\d\] is -?\d+"):
                cache.match_prefix(tokens)

    def test_a_place_that_will_not_do(self):
        cache = filled()
        with self.assertRaisesRegex(ValueError, "room for 39"):
            cache.match_prefix(TOKENS, array.array("i", [0] * 39))
        for place in (bytes(400), "int16", [0] * 40, array.array("d", [0] * 40)):
            with self.assertRaises(TypeError):
                cache.match_prefix(TOKENS, place)

    def test_an_array_shares_its_memory(self):
        rows = radish.ReqToTokenPool(3, 8)
        table = memoryview(rows.table)
        self.assertEqual((table.shape, table.format, table.readonly), ((4, 8), "i", False))
        memoryview(rows.row(2))[5] = 77
        self.assertEqual(rows.table[2][5], 77)
        self.assertEqual(rows.table.tolist()[2], [0] * 5 + [77] + [0] * 2)
        self.assertEqual(rows.row(2)[-3:].tolist(), [77, 0, 0])
        with self.assertRaises(IndexError):
            rows.row(4)
        with self.assertRaises(IndexError):
            rows.row(2)[8]

    def test_an_array_that_has_gaps_or_runs_backwards(self):
        """A consumer that asks for memory without gaps would read beside it; torch 1.13 ends the
        process over a negative stride."""
        slots = filled().match_prefix(TOKENS, "int32").slots
        get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
        with_strides, in_c_order = 0x18, 0x38
        for part, order, good in ((slots, in_c_order, True), (slots[::2], with_strides, True),
                                  (slots[::2], in_c_order, False), (slots[::-1], in_c_order, False)):
            view = ctypes.create_string_buffer(200)  # a Py_buffer has 80 bytes
            if good:
                get(ctypes.py_object(part), view, order)
                release(view)
            else:
                with self.assertRaisesRegex(BufferError, "has gaps"):
                    get(ctypes.py_object(part), view, order)
        slots[::2].__dlpack__()
        with self.assertRaisesRegex(BufferError, "backwards"):
            slots[::-1].__dlpack__()

    def test_what_an_array_shows_cannot_be_closed(self):
        rows = radish.ReqToTokenPool(3, 8)
        shown = memoryview(rows.row(1))
        with self.assertRaisesRegex(radish.StateError, "still use it"):
            rows.close()
        shown.release()
        rows.close()
        with self.assertRaisesRegex(radish.StateError, "is closed"):
            rows.table

    @unittest.skipUnless(numpy, "no numpy")
    def test_numpy_copies_nothing(self):
        rows = radish.ReqToTokenPool(3, 8)
        view = numpy.asarray(rows.table)
        view[1, 2] = 5
        self.assertEqual(rows.row(1)[2], 5)
        self.assertEqual(view.__array_interface__["data"][0], rows.table.address)
        again = numpy.from_dlpack(rows.table)
        self.assertEqual(again[1, 2], 5)
        del rows
        self.assertEqual(view[1, 2], 5)  # the pool lives as long as what shows it

    @unittest.skipUnless(numpy, "no numpy")
    def test_kv_of_a_pool_in_callers_memory(self):
        k = numpy.zeros((12, 2, 8), "f4")
        v = numpy.zeros((12, 2, 8), "f4")
        pool = radish.TokenToKVPool(2, 4, num_layers=1, num_kv_heads=2, head_dim=8,
                                    buffers=[(k, v)])
        ones = numpy.ones((2, 2, 8), "f4")
        pool.set_kv_buffer(0, [5, 9], ones, 2 * ones)
        self.assertEqual((k.sum(axis=(1, 2)).tolist(), v[9, 0, 0]), ([0] * 5 + [16] + [0] * 3 + [16] + [0] * 2, 2))
        got_k, got_v = pool.get_kv(0, [9, 1])
        self.assertEqual((numpy.asarray(got_v).sum(axis=(1, 2)).tolist(), got_k.shape), ([32, 0], (2, 2, 8)))
        saved = pool.get_cpu_copy([5])
        pool.load_cpu_copy([6], saved)
        self.assertEqual(k[6].tolist(), k[5].tolist())
        with self.assertRaisesRegex(IndexError, "the slots 0 to 11"):
            pool.set_kv_buffer(0, [12], ones[:1], ones[:1])
        with self.assertRaisesRegex(IndexError, "no layer 1"):
            pool.get_kv(1, [1])
        with self.assertRaisesRegex(ValueError, "32 float32 are needed"):
            pool.set_kv_buffer(0, [1, 2], ones[:1], ones)
        with self.assertRaisesRegex(ValueError, "12 slots"):
            radish.TokenToKVPool(2, 4, num_layers=1, num_kv_heads=2, head_dim=8,
                                 buffers=[(k[:11], v)])

    def test_kv_of_each_dtype_is_there_in_its_own_type(self):
        for dtype, shown, bytes_each in (("float32", "float32", 4), ("float16", "float16", 2),
                                         ("bfloat16", "uint16", 2), ("fp8_e4m3", "uint8", 1),
                                         ("int8", "int8", 1)):
            pool = radish.TokenToKVPool(1, 2, num_layers=2, num_kv_heads=1, head_dim=4,
                                        v_head_dim=2, dtype=dtype, start_layer=3)
            k, v, k_scale, v_scale = pool.buffers(4)
            self.assertEqual((k.dtype, k.shape, v.shape), (shown, (4, 1, 4), (4, 1, 2)))
            self.assertEqual(memoryview(k).itemsize, bytes_each)
            self.assertEqual((k_scale is not None, v_scale is not None), (dtype == "int8",) * 2)

    def test_mla_takes_latent_and_rope_apart(self):
        pool = radish.TokenToKVPool.mla(2, 2, num_layers=1, kv_lora_rank=4, rope_dim=2)
        pool.set_kv_buffer(0, [3], array.array("f", [1, 2, 3, 4]), array.array("f", [5, 6]))
        k, v = pool.get_kv(0, [3])
        self.assertEqual((k.tolist(), v.tolist()), ([[[1, 2, 3, 4, 5, 6]]], [[[1, 2, 3, 4]]]))
        self.assertEqual(pool.params.kind, "mla")


if __name__ == "__main__":
    unittest.main()
