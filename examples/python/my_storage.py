#!/usr/bin/env python3
"""my_storage.py - a storage backend in Python: pages in the files of a directory.

A HiRadixCache hands it records under keys of 32 bytes, from its transfer workers: the device never
waits for it, and whatever it loses, alters or fails at costs a miss. Two engines run one after the
other here; the second one finds in the directory what the first one computed."""
import array
import pathlib
import sys
import tempfile

import radish


class Directory:
    name = "directory"
    medium = "DISK"  # what events say of where the pages are

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def file(self, key):
        return self.path / key.hex()

    def batch_exists(self, keys, deadline_ns):
        """How many are there, counted from the first until one is missing."""
        for count, key in enumerate(keys):
            if not self.file(key).exists():
                return count
        return len(keys)

    def batch_get(self, keys, deadline_ns):
        return [self.file(key).read_bytes() if self.file(key).exists() else None for key in keys]

    def batch_set(self, keys, records, deadline_ns):
        """Whoever reads must see a record whole or not at all: it is written beside, then renamed."""
        for key, record in zip(keys, records):
            beside = self.file(key).with_suffix(".new")
            beside.write_bytes(record)
            beside.rename(self.file(key))
        return None  # all are stored

    def remove(self, key):
        self.file(key).unlink(missing_ok=True)

    def clear(self):
        for path in self.path.iterdir():
            path.unlink()


def engine(directory, prompt):
    """Serves the prompt once; (tokens found in the store, what is in K of the first layer)."""
    kv, rows = radish.KVAllocator(32, 16), radish.ReqToTokenPool(2, 256)
    pool = radish.TokenToKVPool(32, 16, num_layers=2, num_kv_heads=1, head_dim=8, dtype="float16")
    with radish.HiRadixCache(kv_allocator=kv, req_to_token_pool=rows, identity="my-model",
                             host_pool=radish.HostKVPool(pool), prefetch_policy="wait_complete",
                             prefetch_threshold=16, storage=Directory(directory)) as cache:
        ticket = cache.prefetch_start(prompt[:-1])  # the last token is always computed
        while ticket and cache.prefetch_progress(ticket, prompt[:-1]) is None:
            cache.wait(10**9)
        request = radish.Request(prompt)
        cache.admit(request)
        loaded = cache.load_back(request)
        cache.extend(request)
        cache.ready_to_load()
        fresh = request.slots[request.committed_len:len(prompt)]
        numbers = array.array("f", [t % 100 for t in prompt[request.committed_len:] for _ in range(8)])
        for layer in range(2):
            pool.set_kv_buffer(layer, fresh, numbers, numbers)
        k, _ = pool.get_kv(0, request.slots[:len(prompt)])  # waits for what is still coming
        seen = [row[0][0] for row in k.tolist()]
        request.committed_len = len(prompt)
        cache.finished_req(request)
        cache.drain(10**11)  # an orderly end: all is written
    return loaded.storage_tokens, seen


def main():
    prompt = [7 * i for i in range(100)]
    with tempfile.TemporaryDirectory() as directory:
        first, k = engine(directory, prompt)
        print(f"first engine: {first} tokens from the store, "
              f"{len(list(pathlib.Path(directory).iterdir()))} records left there")
        second, again = engine(directory, prompt)
        print(f"second engine: {second} tokens from the store, K {'the same' if k == again else 'WRONG'}")
    return (first, second, k) != (0, 96, again)


if __name__ == "__main__":
    sys.exit(main())
