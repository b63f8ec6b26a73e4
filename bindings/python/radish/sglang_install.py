"""radish.sglang_install - radish.sglang's classes in the place of SGLang's own."""
import importlib

from radish import sglang as ours

# What a class of ours replaces: modules of SGLang's that have one of that name, by version.
_REPLACED = {
    "ChunkCache": ("chunk_cache",),
    "PureSWAChunkCache": ("chunk_cache",),
    "SWAChunkCache": ("chunk_cache",),
    "RadixCache": ("radix_cache",),
    "HiRadixCache": ("hiradix_cache",),
    "MambaRadixCache": ("mamba_radix_cache",),
    "SWARadixCache": ("swa_radix_cache",),
    "UnifiedRadixCache": ("unified_radix_cache",),
}
_REPLACED_ALLOCATORS = {
    "TokenToKVPoolAllocator": ("allocator", "allocator.token", "allocator.swa"),
    "PagedTokenToKVPoolAllocator": ("allocator", "allocator.paged", "allocator.swa"),
    "SWATokenToKVPoolAllocator": ("swa_memory_pool", "allocator.swa"),
}


def make_cache(context):
    """The cache for a server: what SGLang's --radix-cache-backend radish calls, see install."""
    params = context.params
    if getattr(context, "enable_hierarchical_cache", False):
        if context.is_hybrid_swa or context.is_hybrid_ssm or getattr(context, "is_dsa", False):
            raise ValueError(ours.NO_TIERS)
        return ours.HiRadixCache(params, context.server_args)
    if context.disable_radix_cache and context.effective_chunked_prefill_size is not None:
        if not context.is_hybrid_swa:
            return ours.ChunkCache(params)
        pure = getattr(context, "full_tokens_per_layer", None) == 0
        return (ours.PureSWAChunkCache if pure else ours.SWAChunkCache)(params)
    if not context.is_hybrid_swa and not context.is_hybrid_ssm:
        return ours.RadixCache(params)
    kinds = importlib.import_module("sglang.srt.mem_cache.unified_cache.components").ComponentType
    params.tree_components = ((kinds.FULL,) + context.is_hybrid_swa * (kinds.SWA,)
                              + context.is_hybrid_ssm * (kinds.MAMBA,))
    return ours.UnifiedRadixCache(params)


def install(allocators=False):
    """SGLang's modules have these caches instead of their own, for all that import them from there
    afterwards; where it has a table of caches (summer of 2026), "radish" is one of them, for its
    --radix-cache-backend. allocators: these allocators, too. They keep their free pages on the CPU, so
    each alloc and free of a GPU's slots copies; they refuse to free what they did not give."""
    for name, modules in (_REPLACED | (_REPLACED_ALLOCATORS if allocators else {})).items():
        for module in modules:
            try:
                theirs = importlib.import_module("sglang.srt.mem_cache." + module)
            except ImportError:  # of another version
                continue
            if hasattr(theirs, name):
                setattr(theirs, name, getattr(ours, name))
    try:
        registry = importlib.import_module("sglang.srt.mem_cache.registry")
    except ImportError:
        return
    if "radish" not in registry.registered_radix_cache_backends():
        registry.register_radix_cache_backend("radish", make_cache)
