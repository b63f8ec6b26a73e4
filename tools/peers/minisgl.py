"""mini-sglang: which tests, and what they need."""
import importlib
import sys

from .shim import Finder

FILES = ("core/test_cache_allocate", "core/test_scheduler", "kernel/test_comm", "kernel/test_index",
         "kernel/test_store", "kernel/test_tensor", "misc/test_serialize")
WHERE = ("tests",)
AGAIN = ()
INAPPLICABLE = INAPPLICABLE_AGAIN = {}  # a part of a test's name: why
# A test file: why none of it is run.
NOT_RUN = {
    "core/test_scheduler": "runs Llama-3.1-8B on a GPU",
    "kernel/test_comm": "kernels on GPUs",
    "kernel/test_index": "a kernel on a GPU",
    "kernel/test_store": "a kernel on a GPU",
    "kernel/test_tensor": "a kernel on a GPU",
    "misc/test_serialize": "messages between processes",
}


def is_checkout(peer):
    return (peer / "python/minisgl").is_dir()


def prepare(peer, own):
    """Its classes that the tests are to find: none, the cache is chosen by name."""
    sys.meta_path.insert(0, Finder("minisgl", peer / "python", bare={"minisgl", "minisgl.scheduler", "minisgl.utils"}))
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
    if not own:
        importlib.import_module("radish.minisgl").install()
    return []


def before(name, own, again):
    return []


def behind(module, again):
    pass
