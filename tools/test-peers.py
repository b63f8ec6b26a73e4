#!/usr/bin/python3
"""test-peers.py [--own | --differential STEPS] [NAME...] - another engine's own unit tests of its cache, run on libradish.

    PEER=DIR make test-peers

DIR is a checkout of SGLang or of mini-sglang; nothing is fetched. What their tests import and do not
test (triton, CUDA kernels, servers) is stood in for: such a module has any name, which does nothing.
Then their tests run as they are, with radish.sglang's classes in the place of theirs (mini-sglang:
radish.minisgl's). --own runs them on their own classes instead: what fails there says nothing about
radish. A test that cannot apply is listed below with the reason; only those that NAME part of their
name are run where any is given. Exit code 1 when an applicable one fails.

Needs python3-torch, python3-numpy, and the package: make python."""
import argparse
import dataclasses
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import types
import typing
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, os.environ.get("RADISH_PYTHON", str(ROOT / "build/release/python")))

# Test files of SGLang.
SGLANG = ("test_radix_cache_unit", "test_radix_cache_slru_accuracy", "test_evict_policy", "test_swa_unittest",
          "test_swa_eviction_boundary", "test_mamba_unittest", "test_nsa_pool_host_unit")
MINISGL = ("core/test_cache_allocate", "core/test_scheduler", "kernel/test_comm", "kernel/test_index",
           "kernel/test_store", "kernel/test_tensor", "misc/test_serialize")
WHERE = ("test/registered/unit/mem_cache", "test/registered/radix_cache", "test/srt", "test/registered/core")

# A part of a test's name: why it cannot apply.
INAPPLICABLE = {
    "TestRadixKey": "a Python class that stays SGLang's",
    "TestTreeNode": "a Python class that is no part of the cache's interface",
    "test_evict_policy.": "Python functions that order Python nodes; tests/test_evict_policy.c has the orders",
    "test_hash_value_storage": "reads children and hash_value of Python's nodes; the hashes are in the events",
    "test_hash_value_split": "reads children and hash_value of Python's nodes; the hashes are in the events",
    "test_memory_allocated": "allocates on a GPU and counts torch's memory there",
}
# A test file: why none of it is run.
NOT_RUN = {
    "test_swa_unittest": "radish.sglang has no SWARadixCache yet",
    "test_swa_eviction_boundary": "radish.sglang has no SWARadixCache yet",
    "test_mamba_unittest": "radish.sglang has no MambaRadixCache yet",
    "test_nsa_pool_host_unit": "a host pool of DeepSeek's sparse attention, on a GPU",
    "core/test_scheduler": "runs Llama-3.1-8B on a GPU",
    "kernel/test_comm": "kernels on GPUs",
    "kernel/test_index": "a kernel on a GPU",
    "kernel/test_store": "a kernel on a GPU",
    "kernel/test_tensor": "a kernel on a GPU",
    "misc/test_serialize": "messages between processes",
}


class Anything:
    """What a module that is not needed has: a class, a decorator, a constant."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else Anything()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __mro_entries__(self, bases):
        return (object,)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False

    def __or__(self, other):
        return other

    __ror__ = __or__

    def __getitem__(self, key):
        return Anything()

    def __bool__(self):
        return False


class StandIn(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


def differential(steps):
    """SGLang's RadixCache and radish.sglang's side by side: random inserts of whole pages, matches, locks,
    evictions of all that is evictable. How many of the settings differ in an answer. Not compared is what goes
    first in a smaller eviction: SGLang's match splits nodes, libradish's does not. Nor hashes of a namespace of
    its own: SGLang's are those of no namespace."""
    import random

    import torch
    from sglang.srt.mem_cache import base_prefix_cache as base
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.radix_cache import RadixKey

    import radish.sglang

    class Pool:  # keeps what it is given
        device, size = "cpu", 1 << 16

        def __init__(self):
            self.freed = []

        def free(self, slots):
            self.freed += slots.tolist()

    wrong = 0
    for policy in ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru"):
        for page in (1, 4):
            for eagle in (False, True):
                rng = random.Random(f"{policy} {page} {eagle}")
                spaces = (None, "a") if eagle else (None,)
                pools = [Pool(), Pool()]
                caches = [kind(CacheInitParams(
                    disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=pool, page_size=page,
                    is_eagle=eagle, eviction_policy=policy, enable_kv_cache_events=True))
                    for kind, pool in zip((THEIRS, radish.sglang.RadixCache), pools)]
                held, next_page, differences = [], 1, []

                def same(what, answers):
                    if answers[0] != answers[1]:
                        differences.append((what, answers))

                for step in range(steps):
                    tokens = [rng.randrange(2) for _ in range(page * rng.randrange(1, 9) + rng.randrange(page))]
                    space = rng.choice(spaces)
                    action = rng.randrange(8)
                    if action < 3:
                        pages = (len(tokens) - eagle) // page
                        tokens = tokens[:pages * page + eagle]
                        slots = torch.arange(next_page * page, (next_page + pages) * page)
                        next_page = next_page + pages if next_page < 15000 else 1
                        priority = rng.randrange(3)
                        got = [c.insert(base.InsertParams(key=RadixKey(list(tokens), space), value=slots.clone(),
                                                          priority=priority)).prefix_len for c in caches]
                        same("insert", got)
                    elif action < 6:
                        got = [c.match_prefix(base.MatchPrefixParams(key=RadixKey(list(tokens), space)))
                               for c in caches]
                        same("match", [g.device_indices.tolist() for g in got])
                        if action == 5 and len(held) < 4:
                            same("lock", [c.inc_lock_ref(g.last_device_node).delta for c, g in zip(caches, got)])
                            held.append([g.last_device_node for g in got])
                    elif action == 6 and held:
                        nodes = held.pop(rng.randrange(len(held)))
                        same("unlock", [c.dec_lock_ref(n).delta for c, n in zip(caches, nodes)])
                    elif action == 7 and rng.randrange(8) == 0:
                        all_of_it = base.EvictParams(num_tokens=max(caches[0].evictable_size(), 1))
                        same("evict", [c.evict(all_of_it).num_tokens_evicted for c in caches])
                        same("evicted", [sorted(p.freed) for p in pools])
                        for p in pools:
                            p.freed.clear()
                    same("sizes", [(c.evictable_size(), c.protected_size(), c.total_size()) for c in caches])
                    if differences:
                        break
                events = [c.take_events() for c in caches]
                if not differences and spaces == (None,):
                    same("stored", [sorted((e.block_hashes, e.parent_block_hash or 0) for e in all
                                           if type(e).__name__ == "BlockStored") for all in events])
                    same("removed", [sorted(e.block_hashes for e in all if type(e).__name__ == "BlockRemoved")
                                     for all in events])
                wrong += bool(differences)
                where = f"{policy}, pages of {page}{', bigrams' if eagle else ''}"
                if differences:
                    what, (theirs, ours) = differences[0]
                    print(f"differs       {where}, step {step}, {what}: theirs {str(theirs)[:160]}, ours {str(ours)[:160]}")
                else:
                    print(f"equal         {where}: {step + 1} steps, {len(events[1])} events")
    return wrong


THEIRS = None  # SGLang's RadixCache
CLASSES = []   # (module, the class that tests find in it)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules below `real` are the checkout's, but those of `bare` without what their __init__ does; all
    others below `roots` are stood in for."""

    def __init__(self, roots, real, bare, folder):
        self.roots, self.real, self.bare, self.folder = roots, real, bare, folder

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in self.roots or name in self.real:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        if name in self.bare:
            spec.submodule_search_locations = [str(self.folder / name.replace(".", "/"))]
        return spec

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def event_classes(module):
    """SGLang's need msgspec, which Debian has not."""
    @dataclasses.dataclass
    class BlockStored:
        block_hashes: list
        parent_block_hash: typing.Optional[int]
        token_ids: list
        block_size: int
        lora_id: typing.Optional[int]
        medium: typing.Optional[str] = None

    @dataclasses.dataclass
    class BlockRemoved:
        block_hashes: list
        medium: typing.Optional[str] = None

    @dataclasses.dataclass
    class AllBlocksCleared:
        pass

    for c in (BlockStored, BlockRemoved, AllBlocksCleared):
        setattr(module, c.__name__, c)
    module.MEDIUM_GPU, module.MEDIUM_CPU = "GPU", "CPU_PINNED"


def prepare_sglang(peer, own):
    import torch

    torch.set_num_threads(1)
    newer = not hasattr(torch, "set_default_device")  # than Debian's
    if newer:
        torch.set_default_device = lambda device: None
    cache = "sglang.srt.mem_cache."
    real = {cache + name for name in ("allocator", "base_prefix_cache", "cache_init_params", "chunk_cache",
                                      "common", "evict_policy", "memory_pool", "radix_cache")}
    bare = {"sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.test", "sglang.test.ci"}
    sys.meta_path.insert(0, Finder({"sglang", "triton", "msgspec", "sgl_kernel"}, real, bare,
                                   peer / "python"))
    utils = importlib.import_module("sglang.srt.utils")
    utils.get_bool_env_var = lambda *args: False
    utils.next_power_of_2 = lambda n: 1 << max(n - 1, 0).bit_length()
    utils.get_num_new_pages = lambda *args, **kwargs: 0
    for flag in ("is_cuda", "is_npu", "is_hip", "is_xpu", "is_cpu", "is_musa", "is_mps", "is_hpu"):
        setattr(utils, flag, lambda: False)
    utils.cpu_has_amx_support = lambda: False
    if newer:  # K/V itself is in no test that is run
        importlib.import_module("sglang.srt.mem_cache.memory_pool").MHATokenToKVPool = Anything
    event_classes(importlib.import_module("sglang.srt.disaggregation.kv_events"))
    storage = importlib.import_module("sglang.srt.mem_cache.hicache_storage")

    def get_hash_str(tokens, prior_hash=None):
        h = hashlib.sha256(bytes.fromhex(prior_hash) if prior_hash else b"")
        for token in tokens:
            for part in token if isinstance(token, tuple) else (token,):
                h.update(part.to_bytes(4, "little"))
        return h.hexdigest()

    storage.get_hash_str = get_hash_str
    pools = importlib.import_module("sglang.srt.mem_cache.utils")
    pools.convert_to_bigram_key = lambda tokens: list(zip(tokens, tokens[1:]))
    storage.hash_str_to_int64 = lambda text: int.from_bytes(bytes.fromhex(text)[:8], "big", signed=True)
    global THEIRS
    THEIRS = importlib.import_module("sglang.srt.mem_cache.radix_cache").RadixCache
    if own:
        return
    import radish.sglang
    radish.sglang.install()
    CLASSES.append((importlib.import_module("sglang.srt.mem_cache.radix_cache"), radish.sglang.RadixCache))


def prepare_minisgl(peer, own):
    import torch

    torch.set_num_threads(1)
    real = {"minisgl." + name for name in ("core", "kvcache", "kvcache.base", "kvcache.radix_cache",
                                           "kvcache.naive_cache", "scheduler.cache", "utils.registry", "utils.misc")}
    sys.meta_path.insert(0, Finder({"minisgl", "tvm_ffi"}, real, {"minisgl", "minisgl.scheduler", "minisgl.utils"},
                                   peer / "python"))
    utils, registry = (importlib.import_module(f"minisgl.utils{name}") for name in ("", ".registry"))
    utils.Registry = registry.Registry
    utils.align_down = lambda a, b: a // b * b
    utils.div_ceil = lambda a, b: -(-a // b)
    kernel = importlib.import_module("minisgl.kernel")  # C++ there

    def fast_compare_key(a, b):
        n = min(len(a), len(b))
        differ = (a[:n] != b[:n]).nonzero()
        return int(differ[0]) if len(differ) else n

    kernel.fast_compare_key = fast_compare_key
    if own:
        return
    import radish.minisgl
    radish.minisgl.install()


def stand_in_pytest():
    """Where there is no pytest: fixtures that are always used, and raises."""
    module = StandIn("pytest")
    module.fixtures = []

    def fixture(function=None, autouse=False):
        if function is None:
            return lambda f: fixture(f, autouse)
        module.fixtures.append(function)
        return function

    module.fixture, module.raises = fixture, lambda what, match="": unittest.TestCase().assertRaisesRegex(what, match)
    sys.modules["pytest"] = module
    return module


def tests_of_classes(module, pytest):
    """Classes as pytest finds them become unittest's."""
    for name, group in list(vars(module).items()):
        if not name.startswith("Test") or not isinstance(group, type) or issubclass(group, unittest.TestCase):
            continue

        def set_up(self):
            self.fixtures = [f() for f in pytest.fixtures]
            for f in self.fixtures:
                next(f)

        def tear_down(self):
            for f in self.fixtures:
                next(f, None)

        case = type(name, (group, unittest.TestCase), {"setUp": set_up, "tearDown": tear_down,
                                                       "__module__": module.__name__})
        setattr(module, name, case)


def load_tests(peer, names, where):
    """The tests, and (file, why not) of files of which none is run."""
    loaded, left = unittest.TestSuite(), []
    pytest = stand_in_pytest()
    for name in names:
        path = next((peer / w / f"{name}.py" for w in where if (peer / w / f"{name}.py").exists()), None)
        if not path or name in NOT_RUN:
            left.append((name, NOT_RUN.get(name) if path else "not there"))
            continue
        pytest.fixtures.clear()
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for there, ours in CLASSES:
            if hasattr(module, ours.__name__) and getattr(module, ours.__name__) is not ours:
                sys.exit(f"test-peers: {name} does not test {ours}")
        tests_of_classes(module, pytest)
        pytest.fixtures = list(pytest.fixtures)
        loaded.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    return loaded, left


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--differential", type=int, metavar="STEPS",
                        help="SGLang's tree and libradish's side by side, random operations")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    peer = pathlib.Path(os.environ.get("PEER", ""))
    if not os.environ.get("PEER") or not peer.is_dir():
        sys.exit("test-peers: PEER=DIR names a checkout of SGLang or mini-sglang")
    if (peer / "python/sglang/srt/mem_cache/radix_cache.py").exists():
        prepare_sglang(peer, options.own)
        if options.differential:
            sys.exit(1 if differential(options.differential) else 0)
        suite, left = load_tests(peer, SGLANG, WHERE)
    elif (peer / "python/minisgl").is_dir():
        prepare_minisgl(peer, options.own)
        suite, left = load_tests(peer, MINISGL, ("tests",))
    else:
        sys.exit(f"test-peers: {peer} is no checkout of SGLang or mini-sglang that this script knows")
    run, result, skipped = 0, unittest.TestResult(), []
    sys.stdout.flush()
    for test in flat(suite):
        if options.names and not any(name in test.id() for name in options.names):
            continue
        why = next((why for part, why in INAPPLICABLE.items() if part in test.id()), None)
        if why and not options.own:
            skipped.append((test.id(), why))
            continue
        run += 1
        out, sys.stdout = sys.stdout, open(os.devnull, "w")
        try:
            test.run(result)
        finally:
            sys.stdout.close()
            sys.stdout = out
    failed = {}
    for test, trace in result.failures + result.errors:  # of subtests, too
        test = getattr(test, "test_case", test)
        failed[test.id()] = failed.get(test.id(), "") + trace
    for test, why in skipped:
        print(f"cannot apply  {test}: {why}")
    for name, why in left:
        print(f"not run       {name}: {why}")
    for test, trace in failed.items():
        print(f"FAILED        {test}\n{trace}")
    print(f"{run - len(failed)} of {run} passed on {'their own classes' if options.own else 'libradish'}"
          f"{f', {len(skipped)} cannot apply' if skipped else ''}")
    sys.exit(1 if failed or not run else 0)


if __name__ == "__main__":
    main()
