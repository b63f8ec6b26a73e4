"""radish.sglang_chunk - SGLang's caches without reuse: what a request computed goes back when it ends.

Nothing is kept, so nothing of libradish stands behind them; they are here so that all of SGLang's names have
an answer, and for where a server is told to make radish's caches and to reuse nothing."""
import torch

from radish.sglang import _base, _committed, _fill_ids
from radish.sglang_components import _evicted, _inserted, _locked, _matched, _unlocked

__all__ = ["ChunkCache", "PureSWAChunkCache", "SWAChunkCache"]


class ChunkCache(_base.BasePrefixCache):
    disable = True  # SGLang: no prefix is ever matched

    def __init__(self, params):
        pool = params.token_to_kv_pool_allocator
        self.req_to_token_pool, self.token_to_kv_pool_allocator = params.req_to_token_pool, pool
        self.page_size = params.page_size
        self.device = pool.device if pool else torch.device("cpu")

    def is_chunk_cache(self):
        return True

    def reset(self):
        pass

    def match_prefix(self, params):
        return _matched(device_indices=torch.empty(0, dtype=torch.int64), last_device_node=None, last_host_node=None,
                        best_match_node=None)

    def insert(self, params):
        return _inserted(prefix_len=0)

    def _row(self, req, count):
        return self.req_to_token_pool.req_to_token[req.req_pool_idx, :count]

    def cache_finished_req(self, req, is_insert=True, *, kv_len_to_handle=None, **kwargs):
        count = _committed(req, kv_len_to_handle)
        slots = self._not_given_back(req, self._row(req, count))
        if len(slots):
            self.token_to_kv_pool_allocator.free(slots)

    def _not_given_back(self, req, slots):
        return slots[req.cache_protected_len:]  # what is before it came from elsewhere

    def cache_unfinished_req(self, req, chunked=False, **kwargs):
        count = len(_fill_ids(req))
        req.prefix_indices = self._row(req, count).to(dtype=torch.int64, copy=True)

    def evict(self, params):
        return _evicted()

    def inc_lock_ref(self, node, *args):
        return _locked(swa_uuid_for_lock=None, delta=0)

    def dec_lock_ref(self, node, *args, **kwargs):
        return _unlocked(delta=0)

    def pretty_print(self):
        return ""


class SWAChunkCache(ChunkCache):
    """With a window side, which SGLang gives back while a request runs."""

    def __init__(self, params):
        super().__init__(params)
        self.sliding_window_size = params.sliding_window_size
        self.chunked_prefill_size = getattr(params, "chunked_prefill_size", None)

    def supports_swa(self):
        return True


class PureSWAChunkCache(SWAChunkCache):
    """Every layer has the window: what SGLang gave back of it is all that there was of these tokens."""

    def _not_given_back(self, req, slots):
        first, gone = req.swa_evict_floor, req.kv.swa_evicted_seqlen
        if gone <= first:
            return slots[req.cache_protected_len:]
        return torch.cat((slots[req.cache_protected_len:first], slots[max(gone, req.cache_protected_len):]))
