"""Tensors of torch, where it is installed: on the CPU they are used where they lie."""
import unittest

import radish

try:
    import torch
except ImportError:
    torch = None


@unittest.skipUnless(torch, "no torch")
class Tensors(unittest.TestCase):
    def test_both_types_in_and_out(self):
        for dtype in (torch.int32, torch.int64):
            cache = radish.RadixCache(page_size=4, free_list=100)
            tokens, slots = torch.arange(40, dtype=dtype), torch.arange(8, 48, dtype=dtype)
            cache.insert(tokens, slots)
            out = torch.full((40,), -1, dtype=dtype)
            match = cache.match_prefix(tokens, out)
            self.assertIs(match.slots, out)
            self.assertTrue(torch.equal(out, slots))
            self.assertEqual(cache.match_prefix(tokens[:9].clone(), out).prefix_tokens, 8)

    def test_what_is_not_a_row_of_integers_is_refused(self):
        cache = radish.RadixCache(max_tokens=100)
        for tensor, words in ((torch.zeros(4), "torch.float32"), (torch.arange(8)[::2], "gaps"),
                              (torch.arange(8).view(2, 4), "2 dimensions"),
                              (torch.zeros(4, dtype=torch.int16), "torch.int16")):
            with self.assertRaisesRegex(TypeError, words):
                cache.match_prefix(tensor)
        with self.assertRaisesRegex(TypeError, "not in the host's memory"):
            cache.match_prefix(torch.zeros(4, dtype=torch.int32, device="meta"))
        with self.assertRaisesRegex(ValueError, r"tokens\[1\] is -5"):
            cache.match_prefix(torch.tensor([1, -5]))

    def test_an_array_becomes_a_tensor_without_a_copy(self):
        rows = radish.ReqToTokenPool(3, 8)
        table = torch.from_dlpack(rows.table)
        table[1, 2] = 9
        self.assertEqual((rows.row(1)[2], table.data_ptr()), (9, rows.table.address))
        with self.assertRaises(radish.StateError):
            rows.close()
        del table
        rows.close()

    def test_kv_in_tensors(self):
        k, v = (torch.zeros(12, 1, 8, dtype=torch.float16) for _ in range(2))
        pool = radish.TokenToKVPool(2, 4, num_layers=1, num_kv_heads=1, head_dim=8,
                                    dtype="float16", buffers=[(k, v)])
        pool.set_kv_buffer(0, torch.tensor([7]), torch.full((1, 1, 8), 1.5), torch.ones(1, 1, 8))
        self.assertEqual(k[7].tolist(), [[1.5] * 8])

    def test_numbers_of_tensors_are_numbers(self):
        kv = radish.KVAllocator(8, 4)
        slots = kv.alloc_extend(torch.tensor([0]), torch.tensor([6]), torch.tensor([-1]),
                                torch.zeros(6, dtype=torch.int64))
        self.assertEqual(kv.alloc_decode([7], slots[-1:]).tolist(), [int(slots[-1]) + 1])
        request = radish.Request(torch.arange(5))
        request.append(torch.tensor(9))
        self.assertEqual(request.tokens.tolist(), [0, 1, 2, 3, 4, 9])


if __name__ == "__main__":
    unittest.main()
