"""radish.minisgl - libradish as the prefix cache of mini-sglang.

    import radish.minisgl; radish.minisgl.install()       # "radish" is a cache type from here on,
                                                          # and "radix" means it, too

Needs mini-sglang beside it: handles, results and sizes are its classes, tensors are torch's."""
import torch
from minisgl.core import get_global_ctx
from minisgl.kvcache import SUPPORTED_CACHE_MANAGER
from minisgl.kvcache.base import (BaseCacheHandle, BasePrefixCache, InsertResult, MatchResult,
                                  SizeInfo)

from radish import _core

__all__ = ["CacheHandle", "RadishPrefixCache", "install"]

MOST_PAGES = 1 << 20  # mini-sglang's cache is not told how many there are


class CacheHandle(BaseCacheHandle):
    """A prefix in the tree; its slots are asked of the tree if anybody wants them."""

    __hash__, __eq__ = object.__hash__, object.__eq__

    def __init__(self, cached_len, cache, node, ids, slots=None):
        self.__dict__.update(cached_len=cached_len, cache=cache, node=node, ids=ids, slots=slots)  # it is frozen

    def get_matched_indices(self):
        if self.slots is None:
            found = self.cache.core.match_prefix(self.ids[:self.cached_len], "int32")
            self.__dict__["slots"] = self.cache._tensor(found.slots)
        return self.slots


class RadishPrefixCache(BasePrefixCache):
    """libradish's page 0 is nobody's, mini-sglang's is a page: ours are one further."""

    def __init__(self, device):
        super().__init__()
        self.device = torch.device(device)
        self.page_size = get_global_ctx().page_size
        self.core = _core.RadixCache(page_size=self.page_size, free_list=MOST_PAGES)

    def _tensor(self, array):
        return (torch.from_dlpack(array) - self.page_size).to(self.device)

    def match_prefix(self, input_ids):
        found = self.core.match_prefix(input_ids, "int32")
        return MatchResult(CacheHandle(found.prefix_tokens, self, found.last_node, input_ids,
                                       self._tensor(found.slots)))

    def insert_prefix(self, input_ids, indices):
        count = len(input_ids) - len(input_ids) % self.page_size
        if not count:
            return InsertResult(0, CacheHandle(0, self, 0, input_ids))
        done = self.core.insert(input_ids[:count], indices[:count].cpu() + self.page_size)
        return InsertResult(done.prefix_tokens, CacheHandle(count, self, done.node, input_ids))

    def lock_handle(self, handle, unlock=False):
        if not handle.node:
            return
        if unlock:
            self.core.unlock_node(handle.node)
        else:
            self.core.lock_node(handle.node)

    def evict(self, size):
        if size > self.core.evictable_size:
            raise RuntimeError(f"cannot evict {size} tokens, only {self.core.evictable_size} are evictable")
        if size:
            self.core.evict(size)
        return self._tensor(self.core.take_freed("int32", slots=True))

    def reset(self):
        self.core.reset()
        self.core.take_freed()

    @property
    def size_info(self):
        return SizeInfo(evictable_size=self.core.evictable_size, protected_size=self.core.protected_size)

    def check_integrity(self):
        self.core.check()


def install():
    for name in ("radix", "radish"):
        SUPPORTED_CACHE_MANAGER._registry.pop(name, None)
        SUPPORTED_CACHE_MANAGER.register(name)(lambda device: RadishPrefixCache(device))
