"""Another engine's test files as unittest's tests, with pytest or without."""
import importlib.util
import sys
import unittest

from .shim import StandIn


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
    fixtures = list(pytest.fixtures)
    for name, group in list(vars(module).items()):
        if not name.startswith("Test") or not isinstance(group, type) or issubclass(group, unittest.TestCase):
            continue

        def set_up(self):
            self.fixtures = [f() for f in fixtures]
            for f in self.fixtures:
                next(f)

        def tear_down(self):
            for f in self.fixtures:
                next(f, None)

        case = type(name, (group, unittest.TestCase), {"setUp": set_up, "tearDown": tear_down,
                                                       "__module__": module.__name__})
        setattr(module, name, case)


def load_file(path, pytest, classes, behind):
    """The tests of a file. `classes`: those that it must find under their names, where it has such names.
    `behind` gets the module."""
    pytest.fixtures.clear()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for ours in classes:
        found = getattr(module, ours.__name__, ours)
        if found is not ours:
            sys.exit(f"test-peers: {path.stem} tests {found}, not {ours}")
    behind(module)
    tests_of_classes(module, pytest)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test
