"""K/V in the memory of a GPU, which an emulated driver stands for."""
import array
import os
import unittest

import radish

LIBRARY = os.environ.get("RADISH_LIBCUDA")


class WithoutADriver(unittest.TestCase):
    def test_no_driver_is_said_in_words(self):
        with self.assertRaisesRegex(radish.UnsupportedError, "nowhere"):
            radish.CudaDevice(library="/nowhere/libcuda.so.1")


@unittest.skipUnless(LIBRARY, "RADISH_LIBCUDA names no driver")
class OnAGPU(unittest.TestCase):
    def test_kv_of_a_gpu(self):
        device = radish.CudaDevice(library=LIBRARY)
        pool = radish.TokenToKVPool(4, 4, num_layers=1, num_kv_heads=1, head_dim=4, device=device)
        with self.assertRaisesRegex(radish.StateError, "still use it"):
            device.close()
        self.assertIsInstance(pool.buffers(0)[0], int)  # an address of the GPU's
        pool.set_kv_buffer(0, [5], array.array("f", [1, 2, 3, 4]), array.array("f", [5, 6, 7, 8]))
        k, v = pool.get_kv(0, [5])
        self.assertEqual((k.tolist(), v.tolist()), ([[[1, 2, 3, 4]]], [[[5, 6, 7, 8]]]))
        device.copy_after(0)
        self.assertGreater(device.info().copied_bytes, 0)
        states = radish.StatePool(64, 2, device=device)
        with self.assertRaisesRegex(TypeError, "is a device's"):
            states.view(states.alloc())
        states.close()
        pool.close()
        device.close()
        with self.assertRaisesRegex(radish.StateError, "closed"):
            device.info()
        for make in (lambda: radish.StatePool(64, 2, device=device),
                     lambda: radish.TokenToKVPool(4, 4, num_layers=1, num_kv_heads=1, head_dim=4,
                                                  device=device)):
            with self.assertRaisesRegex(radish.StateError, "device: the CudaDevice is closed"):
                make()  # and not one in the host's memory

    def test_tiers_of_a_gpu(self):
        device = radish.CudaDevice(library=LIBRARY)
        kv, rows = radish.KVAllocator(8, 4), radish.ReqToTokenPool(2, 32)
        pool = radish.TokenToKVPool(8, 4, num_layers=1, num_kv_heads=1, head_dim=4, device=device)
        host = radish.HostKVPool(pool, 4.0, pinned=True)
        with radish.HiRadixCache(kv_allocator=kv, req_to_token_pool=rows, host_pool=host,
                                 load_back_threshold=1) as cache:
            for n in (0, 1, 0):
                request = radish.Request([n] * 3 + list(range(21)))
                cache.admit(request)
                loaded = cache.load_back(request).tokens
                cache.extend(request)
                cache.ready_to_load()
                fresh = request.slots[request.committed_len:24]
                numbers = array.array("f", [n] * 4 * len(fresh))
                pool.set_kv_buffer(0, fresh, numbers, numbers)
                k, _ = pool.get_kv(0, request.slots[:24])
                self.assertEqual([row[0][0] for row in k.tolist()], [n] * 24)
                request.committed_len = 24
                cache.finished_req(request)
                self.assertTrue(cache.drain(10**11))
            self.assertGreater(loaded, 0)  # what the device had let go


if __name__ == "__main__":
    unittest.main()
