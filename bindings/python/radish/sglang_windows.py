"""radish.sglang_windows - SGLang's allocator for models some of whose layers see a window only.

Two pools: slots name tokens in the layers that attend to everything, and a map says which slot of the smaller
pool the window layers have for one. One radish.KVAllocator has both: a page has a window side or has lost it.

    slot of the full pool               8  9 10 11 | 12 13 14 15 | 16 ..
    full_to_swa_index_mapping[slot]     0  0  0  0 |  4  5  6  7 | ..       a token keeps its place in the page

The map is SGLang's, a tensor with -1 behind its end (so that it can be asked for the slot before the first
one, too); it is written where pages get a window side, lose it, or hand it on."""
import warnings

import torch

from radish.sglang import PagedTokenToKVPoolAllocator, _hand_window_on, _slots_of, _tensor

__all__ = ["SWATokenToKVPoolAllocator"]


class _Side:
    """One of the two pools, for looking: SGLang's checks ask each for its sizes."""

    def __init__(self, size, page_size, available_size):
        self.size, self.page_size, self.available_size = size, page_size, available_size

    def __getattr__(self, name):
        raise AttributeError(f"radish.sglang: the pools of a SWATokenToKVPoolAllocator go together, one has no {name!r}")


class SWATokenToKVPoolAllocator(PagedTokenToKVPoolAllocator):
    """Any page size. Freed twice is refused, a window freed twice is nothing."""

    def __init__(self, size, size_swa, page_size, dtype, device, kvcache, need_sort):
        self.full_to_swa_index_mapping = torch.zeros(size + page_size + 1, dtype=torch.int64, device=device)
        self.full_to_swa_index_mapping[-1] = -1
        super(PagedTokenToKVPoolAllocator, self).__init__(
            size, page_size, dtype, device, kvcache, need_sort, swa_num_pages=size_swa // page_size)
        self._look(size, size_swa)
        kvcache.register_mapping(self.full_to_swa_index_mapping)

    def _look(self, size, size_swa):
        self.size, self._size_full, self._size_swa = min(size, size_swa), size, size_swa
        with warnings.catch_warnings():  # torch has no tensors that are only read, and says so
            warnings.simplefilter("ignore")
            self._window_of = torch.frombuffer(self.core.window_page_map, dtype=torch.int32)  # of each page, the core's
        self.full_attn_allocator = _Side(size, self.page_size, self.full_available_size)
        self.swa_attn_allocator = _Side(size_swa, self.page_size, self.swa_available_size)

    def resize(self, config):
        """As of one pool; the map stays, so that there can be no more than at first."""
        size, size_swa = int(config.full_max_total_num_tokens), int(config.swa_max_total_num_tokens)
        most = len(self.full_to_swa_index_mapping) - self.page_size - 1
        if size > most:
            raise ValueError(f"radish.sglang: a SWATokenToKVPoolAllocator made for {most} tokens cannot grow to {size}")
        core = self._make_core(size, swa_num_pages=size_swa // self.page_size)
        self._window_of = None  # it holds the core
        self.core.close()
        self.core = core
        self._look(size, size_swa)
        self.clear()

    size_full = property(lambda self: self._size_full)
    size_swa = property(lambda self: self._size_swa)

    def clear(self):
        super().clear()
        self.full_to_swa_index_mapping[:-1] = 0

    def available_size(self):
        return min(self.full_available_size(), self.swa_available_size())

    def full_available_size(self):
        return self.core.available_size

    def swa_available_size(self):
        return self.core.window_available_pages * self.page_size

    def new_pages_available(self, num_full_pages, num_swa_pages):
        return num_full_pages <= self.core.available_pages and num_swa_pages <= self.core.window_available_pages

    def debug_print(self):
        return f"#swa-available-size: {self.swa_available_size()}, #full-attn-available-size: {self.full_available_size()}, "

    def translate_loc_from_full_to_swa(self, kv_indices):
        return self._kvcache.translate_loc_from_full_to_swa(kv_indices)

    # ---- what is handed out ----

    def _slots(self, array):
        slots = super()._slots(array)
        return slots if slots is None else self._mapped(slots)

    def _mapped(self, slots):
        page, place = slots // self.page_size, slots % self.page_size
        window = self._window_of[page.cpu()].to(slots.device, torch.int64)
        self.full_to_swa_index_mapping[slots] = torch.where(window > 0, window * self.page_size + place, window)
        return slots

    def alloc_extend_swa_tail(self, prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu, last_loc, extend_num_tokens,
                              swa_tail_len):
        """One request's slots, of which only the last swa_tail_len need a window side: their pages have one."""
        firsts, ends, page_size = prefix_lens_cpu.tolist(), seq_lens_cpu.tolist(), self.page_size
        first, end = firsts[0], ends[0]
        if len(firsts) != 1 or len(ends) != 1 or first % page_size or end - first != extend_num_tokens or not 0 <= swa_tail_len <= extend_num_tokens:
            raise NotImplementedError("radish.sglang: a tail with windows is for one request, from a page's start on")
        pages = -(-end // page_size)
        windows = pages - (end - swa_tail_len) // page_size if swa_tail_len else 0
        taken = self.core.alloc_tail(pages - first // page_size, windows, "int64")
        if taken is None:
            return None
        # As any slots are: noted by marks, mapped where there is a window side.
        return self._slots(_slots_of(_tensor(taken), page_size)[:extend_num_tokens])

    def set_full_to_swa_mapping(self, full_indices, swa_indices):
        raise NotImplementedError("radish.sglang: which window slot is whose follows from the pages; move_window moves one")

    # ---- what comes back ----

    def _unmap(self, slots):
        pages = torch.unique(slots // self.page_size)
        self.full_to_swa_index_mapping[_slots_of(pages.cpu(), self.page_size).to(pages.device)] = 0

    def free(self, free_index):
        if free_index.numel():
            super().free(free_index)
            self._unmap(free_index)

    def free_swa(self, free_index):
        """The pages of these slots lose their window side; who has none loses nothing."""
        if free_index.numel():
            self.core.free_window((free_index // self.page_size).cpu())
            self._unmap(free_index)

    def move_window(self, source, target):
        """Pages; both hold the same tokens. For a tree that keeps `target` and is offered `source`."""
        self.core.move_window(source, target)
        _hand_window_on(self.full_to_swa_index_mapping, source, target, self.page_size)
