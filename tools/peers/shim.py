"""What another engine's tests import and do not test, stood in for.

A module of the checkout is the checkout's own as long as it can be imported; one that cannot (it wants
a GPU, triton, a newer torch) and every package that is not installed is a StandIn: it has any name, which
does nothing. So nothing is listed by hand that a newer checkout may move. Whether a test gets the classes
that it is to test is checked where it is loaded (loading.py)."""
import gc
import importlib.abc
import importlib.machinery
import os
import sys
import types


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
        # No base of its own: `object` would have to stand behind the other bases.
        return () if len(bases) > 1 else (object,)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False

    def __or__(self, other):
        return other

    __ror__ = __or__

    def __getitem__(self, key):
        return Anything()

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def __bool__(self):
        return False


class _AnyClass(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class StandIn(types.ModuleType):
    """A name that begins as classes' names do is a class: something may ask whether it has an instance."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name[0].isupper() and not name.isupper():
            setattr(self, name, _AnyClass(name, (Anything,), {}))
            return self.__dict__[name]
        return Anything()


class _StandInLoader(importlib.abc.Loader):
    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def stand_in(name):
    """What a finder answers for a module, and all below it, that is to be a StandIn."""
    return importlib.machinery.ModuleSpec(name, _StandInLoader(), is_package=True)


class _OwnOrStandIn(importlib.abc.Loader):
    """Runs a module of the checkout; what breaks on the way makes it a StandIn."""

    def __init__(self, loader, broken):
        self.loader, self.broken = loader, broken

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        try:
            self.loader.exec_module(module)
        except Exception as e:
            self.broken[module.__name__] = f"{type(e).__name__}: {e}"
            kept = {k: v for k, v in vars(module).items() if k.startswith("__")}
            module.__dict__.clear()
            module.__dict__.update(kept)
            module.__class__ = StandIn


class Finder(importlib.abc.MetaPathFinder):
    """First on sys.meta_path. `bare`: packages of the checkout without what their __init__ does;
    `stood_in`: modules that are StandIns even where they could be imported."""

    def __init__(self, root, folder, bare=(), stood_in=()):
        self.root, self.folder = root, str(folder)
        self.bare, self.stood_in = set(bare), set(stood_in)
        self.broken = {}  # module: why it is a StandIn

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != self.root:
            return self._missing_package(name)
        parent = sys.modules.get(name.rpartition(".")[0])
        if name in self.stood_in or isinstance(parent, StandIn) and parent.__name__ not in self.bare:
            return stand_in(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path or [self.folder])
        if spec is None or spec.loader is None and name not in self.bare:
            return spec or (stand_in(name) if self.root == name else None)
        if name in self.bare:
            bare = stand_in(name)
            bare.submodule_search_locations = list(spec.submodule_search_locations)
            return bare
        spec.loader = _OwnOrStandIn(spec.loader, self.broken)
        return spec

    def _missing_package(self, name):
        """What the checkout asks for and is not installed. torch's own tries must fail as ever."""
        top = name.split(".")[0]
        if isinstance(sys.modules.get(top), StandIn):
            return stand_in(name)
        frame = sys._getframe(2)
        while frame and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if not frame or not frame.f_code.co_filename.startswith(os.path.dirname(self.folder)):
            return None
        if top == name and importlib.machinery.PathFinder.find_spec(name) is None \
                and name not in sys.builtin_module_names \
                and importlib.machinery.FrozenImporter.find_spec(name) is None:
            return stand_in(name)
        return None


def _with_long_indices(function):
    import torch

    def long(index):
        if isinstance(index, tuple):
            return tuple(map(long, index))
        return index.long() if isinstance(index, torch.Tensor) and index.dtype == torch.int32 else index

    return lambda self, index, *value: function(self, long(index), *value)


def newer_torch():
    """Names that torch has had since Debian's: for imports, and for what a CPU does all the same."""
    import torch

    if not hasattr(torch, "set_default_device"):
        torch.set_default_device = lambda device: None
        torch.get_default_device = lambda: torch.device("cpu")
        contextlib = types.ModuleType("torch.utils._contextlib")
        contextlib._DecoratorContextManager = torch.autograd.grad_mode._DecoratorContextManager
        sys.modules["torch.utils._contextlib"] = contextlib
        for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
            setattr(torch, name, torch.float16)
        for name in ("uint16", "uint32", "uint64"):
            setattr(torch, name, torch.int64)
        for name in ("xpu", "compiler", "mps"):
            setattr(torch, name, StandIn(f"torch.{name}"))
        # A type written in C takes no new attribute by its name, but in its dictionary.
        gc.get_referents(torch.dtype.__dict__)[0]["itemsize"] = property(
            lambda dtype: torch.empty((), dtype=dtype).element_size())
        for name in ("__getitem__", "__setitem__"):  # int32 tensors are indices, too
            setattr(torch.Tensor, name, _with_long_indices(getattr(torch.Tensor, name)))
        zeros = torch.zeros
        torch.zeros = lambda *args, device=None, **kw: zeros(*args, device="cpu" if device == "cuda" else device, **kw)
        torch.cpu.is_available = lambda: True
        torch.get_device_module = lambda device=None: StandIn("torch.device")
        torch.compile = Anything()
        torch.library.Library = Anything
        torch.ops.sglang = torch.ops.sgl_kernel = StandIn("torch.ops.sglang")


def msgspec_with_structs():
    """SGLang's events are msgspec's Structs, which Debian has not: fields by annotations, in their order."""
    import dataclasses

    class Struct:
        def __init_subclass__(cls, **options):
            super().__init_subclass__()
            for name in cls.__dict__.get("__annotations__", ()):
                default = cls.__dict__.get(name)
                if isinstance(default, (list, dict, set)):
                    setattr(cls, name, dataclasses.field(default_factory=default.copy))
            dataclasses.dataclass(cls, kw_only=options.get("kw_only", False))

    module = StandIn("msgspec")
    module.Struct, module.__path__ = Struct, []
    module.field = lambda default=dataclasses.MISSING, default_factory=dataclasses.MISSING, **_: dataclasses.field(
        default=default, default_factory=default_factory)
    sys.modules["msgspec"] = module
