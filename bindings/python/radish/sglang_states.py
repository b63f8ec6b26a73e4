"""radish.sglang_states - snapshots of recurrent states between SGLang's pools and a libradish cache.

SGLang keeps states in slots of a HybridReqToTokenPool, and what its tree holds are numbers of slots. libradish
asks for a pool of its own: here one of empty states, whose numbers stand for SGLang's slots. So the tree
decides which snapshots there are, and SGLang's pool has their memory."""
import importlib

from radish import _core


class Snapshots:
    def __init__(self, pool):
        allocator = getattr(pool, "mamba_allocator", None) or pool.mamba_pool  # the latter until spring 2026
        self.pool, self.allocator = pool, allocator
        stored = getattr(pool, "mamba_ckpt_pool", None)  # snapshots in int8 lie in a pool of their own
        if stored is not None:
            raise ValueError("radish.sglang: states in int8 (enable_int8_mamba_checkpoint) are not supported")
        self.core = _core.StatePool(64, allocator.size + 1)
        self.slots = {}  # number of ours: slot of SGLang's, a tensor of one

    def hang_in(self, cache, node, depth, slot):
        """Behind so many tokens; False: there is one already, and the slot stays the caller's."""
        number = self.core.alloc()
        if number is None:
            raise RuntimeError(f"radish.sglang: all {self.core.num_states} snapshots are in the tree")
        cache.put_state(node, depth, number)
        if not self.core.is_taken(number):
            return False
        self.slots[number] = slot
        return True

    def give_back_lost(self):
        """Slots of snapshots that left the tree."""
        if self.core.num_states - self.core.available == len(self.slots):
            return
        for number in [n for n in self.slots if not self.core.is_taken(n)]:
            self.allocator.free(self.slots.pop(number))

    def forget(self):
        self.slots.clear()  # SGLang clears its pool itself

    def alloc(self, cache):
        """A slot for a request, evicting a snapshot if need be."""
        slot = self.allocator.alloc(1)
        if slot is None:
            cache.evict(cache.EvictParams(num_tokens=0, mamba_num=1))
            slot = self.allocator.alloc(1)
        if slot is None:
            raise RuntimeError("radish.sglang: no slot for a state is free, and none can be evicted")
        return slot

    def copy(self, source, target):
        """Of a slot, virtual ones where SGLang has such."""
        translate = getattr(self.pool, "translate_mamba_indices", lambda slot: slot)
        self.pool.mamba_pool.copy_from(translate(source), translate(target))


class WithStates:
    """What a cache with snapshots does beside the pages; for _Components."""

    @staticmethod
    def chunk_size():
        """A state can be taken at multiples of this only."""
        try:
            context = importlib.import_module("sglang.srt.runtime_context")
            return context.get_server_args().mamba_cache_chunk_size
        except ImportError:
            args = importlib.import_module("sglang.srt.server_args")
            return args.get_global_server_args().mamba_cache_chunk_size

    def _take_state(self, params, found, result):
        """The request gets a copy of the snapshot that the match ends at."""
        chunk = self.chunk_size()
        branch = found.seen_tokens // chunk * chunk
        result = result._replace(mamba_branching_seqlen=branch if branch > found.prefix_tokens else None)
        req, source = params.req, self.states.slots.get(found.state)
        if not params.cow_mamba or source is None:
            return result
        if req.mamba_pool_idx is None:
            lock = self.core.inc_lock_ref(found.last_node)
            req.mamba_pool_idx = self.states.alloc(self)[0]
            lock.release()
        if hasattr(req, "mamba_cow_src_index"):  # the runner copies, with those of the whole batch
            req.mamba_cow_src_index, req.mamba_needs_clear = source, False
        else:
            self.states.copy(source, req.mamba_pool_idx.unsqueeze(0))
        return result

    def _state_of(self, req, num_tokens, finished):
        """(what insert is given, how many tokens it stands behind)"""
        pool = self.req_to_token_pool
        if self.enable_mamba_extra_buffer:
            num_tokens = req.mamba_last_track_seqlen
        elif finished:
            behind = getattr(pool.mamba_pool, "replayssm_write_pos", None)  # tokens that the slot has not seen
            if behind is not None:
                num_tokens -= int(behind[req.mamba_pool_idx])
                behind[req.mamba_pool_idx] = 0
        if not num_tokens:
            return {}, 0
        if not self.enable_mamba_extra_buffer:
            slot = req.mamba_pool_idx.unsqueeze(-1).clone()
            if not finished:
                slot, source = self.states.alloc(self), slot
                self.states.copy(source, slot)
        elif finished:
            slot = req.mamba_ping_pong_track_buffer[self._kept_buffer(req)].unsqueeze(-1).clone()
        elif hasattr(pool, "donate_mamba_ping_pong_slot"):
            slot = pool.donate_mamba_ping_pong_slot(req, self.states.alloc(self))
        else:
            slot = self.states.alloc(self)
            self.states.copy(req.mamba_ping_pong_track_buffer[self._kept_buffer(req)].unsqueeze(-1), slot)
        return {"mamba_value": slot}, num_tokens

    def _kept_buffer(self, req):
        pool = self.req_to_token_pool
        if hasattr(pool, "get_mamba_ping_pong_keep_idx"):
            return pool.get_mamba_ping_pong_keep_idx(req)
        return pool.get_mamba_ping_pong_other_idx(req.mamba_next_track_idx)

    def _cached_state(self, req, state, result, finished):
        """The state is the tree's now, or goes back."""
        taken = bool(result and state and not result.mamba_exist)
        if not finished:
            if state and not taken:
                self.states.allocator.free(state["mamba_value"])
            if hasattr(req, "mamba_last_track_seqlen"):
                req.mamba_last_track_seqlen = None
        elif self.enable_mamba_extra_buffer:
            kept = self._kept_buffer(req) if taken else None
            self.req_to_token_pool.free_mamba_cache(req, mamba_ping_pong_track_buffer_to_keep=kept)
        elif not taken:
            self.req_to_token_pool.free_mamba_cache(req)
