"""radish - a prefix-sharing KV cache for inference engines.

    kv = radish.KVAllocator(num_pages=1024, page_size=16)
    rows = radish.ReqToTokenPool(num_rows=64, row_tokens=4096)
    cache = radish.RadixCache(kv_allocator=kv, req_to_token_pool=rows)

    req = radish.Request(tokens)             # int32 or int64: numpy, torch, array, list
    cache.admit(req)                         # a row, what is cached into it, a lock
    cache.extend(req)                        # slots for the rest, evicting if need be
    ...                                      # compute K/V of req.slots[req.committed_len:len(req)]
    req.committed_len = len(req)
    cache.unfinished_req(req)                # others may share the prompt from here on
    ...                                      # req.append(token); cache.extend(req); ...
    cache.finished_req(req)                  # the one exit

Integers come and go where they lie: int32 without a copy, int64 through one in C. What the library
answers with "no room" is None or False; what it refuses is a radish.Error in its own words.

One thread owns a cache together with its allocator and pools: the one that made them, until another
calls take_over(). Calls from other threads, from within a callback, of what is closed, and in a
forked child are refused. What takes long runs without the interpreter's lock, so caches of several
threads go on side by side.

docs/embedding.md has the whole story; radish.sglang and radish.minisgl have those engines'
interfaces.
"""
from radish._core import *  # noqa: F401,F403
from radish._core import VERSION, __version__  # noqa: F401
from radish.file_store import FileStore  # noqa: F401
