"""SGLang: which tests, and what they need."""
import importlib
import sys

from . import shim

WHERE = ("test/registered/unit/mem_cache", "test/registered/radix_cache", "test/registered/unit/managers",
         "test/manual", "test/srt", "test/registered/core")
FILES = ("test_radix_cache_unit", "test_radix_cache_slru_accuracy", "test_evict_policy", "test_decode_radix_lock_ref",
         "test_radix_force_miss", "test_schedule_policy", "test_swa_unittest", "test_swa_eviction_boundary",
         "test_swa_lock_release_lifecycle", "test_pure_swa_chunk_cache", "test_mamba_unittest",
         "test_unified_radix_cache_unittest", "test_session_unified_radix_cache", "test_paged_free_segment",
         # none of these is run, see NOT_RUN
         "test_hiradix_cache_unit", "test_hiradix_pp_sync_drain", "test_hicache_load_back_timing",
         "test_hicache_file_lru_unit", "test_nsa_pool_host_unit", "test_prefill_adder", "test_registry",
         "test_session_token_share_unit", "test_streaming_session_unit", "test_swa_alloc_extend_page_estimation",
         "test_tree_core_registry")
# Files whose tests get our allocators, too. The others' put slots into trees that no allocator gave out, which
# SGLang's take back and ours refuse.
OUR_ALLOCATORS = {"test_paged_free_segment"}
# Files that are run once more behind all others, with our allocators beneath our caches.
AGAIN = ("test_swa_unittest", "test_swa_eviction_boundary", "test_swa_lock_release_lifecycle")

_TIERS = "steps of SGLang's own tiers (its cache controller, host pools, storage threads); libradish has its own"
_SHAPE = "looks at the shape of SGLang's tree or its lists; libradish has others"
_PARTS = "calls parts of SGLang's tree that are behind its interface"
_CUT = "split nodes at the window's length: libradish locks and counts a part of a node instead"
_WHOLE = "wants a whole leaf to go for one token; libradish gives back the tokens that were asked for"
# A part of a test's name: why it cannot apply.
INAPPLICABLE = {
    "TestRadixKey": "a Python class that stays SGLang's",
    "TestTreeNode": "a Python class that is no part of the cache's interface",
    "test_evict_policy.": "Python functions that order Python nodes; tests/test_evict_policy.c has the orders",
    "test_hash_value_storage": "reads hash_value of Python's nodes; the hashes are in the events",
    "test_hash_value_split": "reads hash_value of Python's nodes; the hashes are in the events",
    "test_memory_allocated": "allocates on a GPU and counts torch's memory there",
    # windows
    "test_swa_memory_pool": "SGLang's pools and allocator, no cache",
    "test_free_swa_group_owns_deferred_indices": "SGLang's allocator, no cache",
    "test_swa_radix_cache_kv_events_split_hash": None,
    "test_swa_radix_cache_kv_events": _WHOLE,
    "test_flag_off_protects_full_leaf": _CUT,
    "test_flag_on_caps_protection_at_window": _CUT,
    "test_match_prefix_returns_full_chain_after_split": _CUT,
    "test_swa_leaf_capped_to_window_on_insert": _CUT,
    "test_dec_swa_lock_only_leaf": "frees a window when its lock goes; libradish (and SGLang's unified cache) keeps it "
                                   "until there is no room",
    "test_dec_lock_ref_skip_swa_true": "frees a window when its lock goes, see test_dec_swa_lock_only_leaf",
    "test_delete_leaf_skips_swa_size_on_tombstone": _PARTS,
    "test_dec_swa_lock_only_internal": _SHAPE,
    "test_evict_swa_leaf_with_full_lock_tombstones_in_place": _PARTS,
    # states
    "TestMamba.test_mamba_pool": "SGLang's pools, no cache",
    "TestMamba.test_hybrid": "SGLang's pools, no cache",
    "test_mamba_lru_match_refreshes_only_used_node": _SHAPE,
    "TestUnifiedMambaLRUMatchRefresh": _SHAPE,
    "test_mamba_radix_cache_kv_events_split_hash": None,
    "test_mamba_radix_cache_kv_events": _WHOLE,
    "test_mamba_radix_cache_1": "which of two leaves is older: SGLang's split makes both halves as recent as the walk, "
                                "libradish's only what was walked through",
    "TestUnifiedRadixCacheInt8MambaCheckpoint": "states in int8, a pool that wants a GPU's kernels",
    # the unified cache
    "TestUnifiedRadixComponentRegistryOverride": "components in Python",
    "TestUnifiedTreeNodeGetPrefixHashValues": "a Python class that is no part of the cache's interface",
    "TestUnifiedRadixCacheEagleHiCacheStorageKey": _TIERS,
    "test_kv_events_split_preserves_block_hash_parentage": "reads hash_value of Python's nodes; parents are in the events",
    "UnifiedLRUListBoundedRefreshTest": _SHAPE,
    "TestUnifiedRadixCacheActionRouting": _PARTS,
    "TestResumableInsertWalk": _PARTS,
    "TestReturnedValuesDrain": _PARTS,
    "TestPrefetchCommitOrdering": _TIERS,
    "TestUnifiedRadixPrefetchCorruption": _TIERS,
    "test_tombstone_cleanup_respects_locked_parent": _PARTS,
    "test_aux_evict_full_locked_leaf_tombstones_aux_only": _PARTS,
    "test_cascade_evict_asserts": _PARTS,
    "test_swa_unfinished_recovery_preserves_locked_full_value": _PARTS,
    "test_leaf_transition_swa_evict_spares_locked_full": _SHAPE,
    "test_swa_early_release_drops_co_located_mamba_lock": "drops the lock of a state with the window's; libradish keeps "
                                                          "it until the request lets go",
    "test_swa_lru_walk_down": _SHAPE,
    "test_swa_lru_match_only": _SHAPE,
    "test_swa_lru_fresh_leaf": _SHAPE,
    "test_swa_unfinished_req_preserves_existing_eviction_boundary": _SHAPE,
    "test_dec_swa_lock_only_hicache": _TIERS,
    "test_hicache": _TIERS,
    "test_scheduler_hicache": _TIERS,
    "test_load_back": _TIERS,
    "test_prepare_": _TIERS,
    "test_tp_swa_prefetch": _TIERS,
    "test_build_backup_kv_action": _TIERS,
    "test_evict_host_drains": _TIERS,
    "test_mamba_branching": _TIERS,
    "test_mamba_has_host_value_only_predicate": _TIERS,
    "test_mamba_device_value_accessor": _PARTS,
    "test_swa_remapping_rejects_length_mismatch": _TIERS,
    "test_swa_deep_tree_backup": _TIERS,
    "test_has_swa_host_pool_flag": _TIERS,
    # sessions
    "TestSessionUnifiedRadixCache": "reads counts in SGLang's components; test_components.py asks what goes first",
    # allocators
    "test_group_defers_until_group_end": "counts a list inside SGLang's allocator; test_engines.py asks available_size",
    "test_need_sort_routes_to_release_pages": "a list inside SGLang's allocator",
    "test_group_end_debug_assert": "a double free is found at the end of a group, by an option; ours is refused at once, "
                                   "always",
    "TestBaseFallbackFreeSegments": "SGLang's base class, no allocator",
}
# The same of those that are run again.
INAPPLICABLE_AGAIN = {
    "test_swa_memory_pool": None,  # SGLang's pools, our allocator
    "test_free_swa_group_owns_deferred_indices": "counts a list inside SGLang's allocator; test_components.py asks the sizes",
}
# A test file: why none of it is run.
NOT_RUN = {
    "test_hiradix_cache_unit": "wants K/V on a GPU, and pages of two over an allocator of single tokens; test_hiradix.py has "
                               "its case",
    "test_hiradix_pp_sync_drain": "a method by which the ranks of SGLang's pipelines agree; ours is for one rank",
    "test_hicache_load_back_timing": "a queue inside SGLang's cache controller, on a GPU",
    "test_hicache_file_lru_unit": "SGLang's store in files, no cache; test_hiradix.py has our own",
    "test_nsa_pool_host_unit": "a host pool of DeepSeek's sparse attention, on a GPU",
    "test_prefill_adder": "SGLang's scheduler over a cache that is a mock",
    "test_registry": "SGLang's table of names, no cache",
    "test_session_token_share_unit": "SGLang's sessions, no cache",
    "test_streaming_session_unit": "SGLang's wrapper over a cache that is a fake; it wraps these caches as its own",
    "test_swa_alloc_extend_page_estimation": "a method of SGLang's allocator, with a stub for the allocator",
    "test_tree_core_registry": "SGLang's table of trees behind its unified cache",
}


def is_checkout(peer):
    return (peer / "python/sglang/srt/mem_cache/radix_cache.py").exists()


def prepare(peer, own):
    """Its classes in the place of which ours stand; the tests must find ours."""
    import torch

    torch.set_num_threads(1)
    shim.newer_torch()
    shim.msgspec_with_structs()
    finder = shim.Finder("sglang", peer / "python", bare=("sglang",),
                         stood_in=("sglang.srt.layers", "sglang.srt.configs.model_config", "sglang.srt.function_call",
                                   "sglang.srt.connector", "sglang.srt.distributed.parallel_state"))
    sys.meta_path.insert(0, finder)
    for module in ("utils", "utils.common"):
        importlib.import_module(f"sglang.srt.{module}").get_device = lambda *args: "cpu"
    cases = importlib.import_module("sglang.test.test_utils").CustomTestCase
    cases.__dict__.get("_callTestMethod") and delattr(cases, "_callTestMethod")  # tries again
    importlib.import_module("sglang.srt.mem_cache.radix_cache")
    if own:
        return []
    ours = importlib.import_module("radish.sglang")
    ours.install()
    return [getattr(ours, name) for name in ours.__all__ if name[0].isupper() and "Allocator" not in name]


def before(name, own, again=False):
    """What a file's tests need besides: the classes that they must find."""
    if own or name not in OUR_ALLOCATORS and not again:
        return []
    ours = importlib.import_module("radish.sglang")
    ours.install(allocators=True)
    return [getattr(ours, name) for name in ours.__all__ if "Allocator" in name]


def behind(module, again):
    """Their helper takes pages of the two pools apart and writes the map itself; ours gives both at once."""
    if again and hasattr(module, "_swa_alloc"):
        module._swa_alloc = lambda allocator, count: allocator.alloc(count)
