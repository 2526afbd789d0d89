"""Records what really happened in a test run, from inside pytest or unittest. Grading copies this
file beside the run; it imports nothing of fugu.

Copied under a random name into the grading run and imported there by the runner before any of the
task's code; it imports nothing of fugu. Beside its copy lies a file with a secret, the path of the
report, the repository and the names of the task's own files (none where every file may have tests);
both files are gone before the code under test is loaded. Each run leaves two lines in the report,
at its beginning and at its end; the last has every test that was found, with a mark of its code. A
program that ends the process, prints "1 passed", skips from inside the code, exchanges parts of the
runner or puts tests of its own in the place of the real ones leaves no good second line. Modules
that are none of the task's own are not searched for tests: pytest would give their fixtures all the
others. It records and is no prison: code that searches the memory of its own process for the secret
can lie.
"""

from __future__ import annotations

import builtins
import hashlib
import inspect
import json
import math
import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

NOTE_FILE = Path(__file__).with_suffix(".note")
WATCHED = ("pytest", "_pytest", "pluggy", "unittest")
PLAIN = ("builtins.", "math.")
"""Modules whose functions tests call by name and nobody exchanges in earnest."""


class RunRecord:
    """Counts what a runner reports, and looks whether it and its tests are still themselves at the
    end.
    """

    def __init__(self, secret: str, report: str, root: str, own: str) -> None:
        self._secret, self._report, self._root = secret, report, root
        self._own = frozenset(json.loads(own))
        self.passed = self.wrong = 0
        self._tests: dict[str, str] = {}
        self._codes: list[tuple[FunctionType, CodeType]] = []
        self._before: dict[str, int] = {}
        self._plugins: set[str] = set()
        self._tell({"begun": True})

    def begin(self) -> None:
        """Begin to record. All code of the runner that is loaded, now or at the first call, must be
        unchanged at the end.
        """
        self._before = _identities() | self._before

    def owns(self, file: str) -> bool:
        """Return whether the file belongs to the task or to nothing that is graded."""
        below = self._below(file)
        return not self._own or below.startswith("../") or below in self._own

    def saw(self, file: str, name: str, test: Any) -> None:
        """Record a test of `file`. Tests of one function with different arguments count as one
        test.
        """
        function = inspect.unwrap(test) if callable(test) else None
        origin = ""
        if isinstance(function, FunctionType):
            code = function.__code__
            self._codes.append((function, code))
            origin = (
                f"{self._below(code.co_filename)} "
                f"{hashlib.sha256(_code_text(code).encode()).hexdigest()[:16]}"
            )
        self._tests[f"{self._below(file)}::{name.split('[')[0]}"] = origin

    def plugin(self, file: str) -> None:
        """Record that code of `file` takes part in the run though it did not at the beginning, or
        is not the task's own.
        """
        if not (below := self._below(file)).startswith("../"):
            self._plugins.add(below)

    def end(self, missing: int, code: int) -> None:
        changed = [name for name, unchanged in _compared(self._before) if not unchanged]
        changed += [
            function.__name__ for function, code in self._codes if function.__code__ is not code
        ]
        counts = {
            "begun": False,
            "passed": self.passed,
            "wrong": self.wrong,
            "missing": missing,
            "exit": code,
        }
        details = {
            "changed": sorted(changed)[:5],
            "plugins": sorted(self._plugins),
            "tests": self._tests,
        }
        self._tell({**counts, **details})

    def _below(self, file: str) -> str:
        return Path(os.path.relpath(os.path.realpath(file), self._root)).as_posix()

    def _tell(self, fields: dict[str, Any]) -> None:
        with Path(self._report).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"secret": self._secret, **fields}) + "\n")


class PytestHooks:
    """The hooks of pytest."""

    def __init__(self, account: RunRecord) -> None:
        self._account = account
        self._finished: set[str] = set()
        self._marked: set[str] = set()
        self._files: set[str] = set()
        self._hooks: set[tuple[str, str]] = set()

    def pytest_load_initial_conftests(self, early_config: Any) -> None:
        """Begin once plugins are loaded, and before any conftest.py, which may import the code
        under test.
        """
        del early_config
        self._account.begin()

    def pytest_configure(self, config: Any) -> None:
        if hasattr(
            config.option, "numprocesses"
        ):  # what pytest-xdist runs elsewhere nobody would watch
            config.option.numprocesses, config.option.dist, config.option.tx = 0, "no", []
        self._account.begin()
        self._hooks = set(_hooks_of(config))
        for _, file in self._hooks:
            if not self._account.owns(file):
                self._account.plugin(file)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return (
            True
            if collection_path.is_file() and not self._account.owns(str(collection_path))
            else None
        )

    def pytest_itemcollected(self, item: Any) -> None:
        self._files.add(str(item.path))
        if (
            item.get_closest_marker("xfail")
            or item.get_closest_marker("skip")
            or item.get_closest_marker("skipif")
        ):
            self._marked.add(item.nodeid)

    def pytest_collection_finish(self, session: Any) -> None:
        for item in session.items:
            self._account.saw(
                str(item.path), item.nodeid.partition("::")[2], getattr(item, "function", None)
            )

    def pytest_collectreport(self, report: Any) -> None:
        """Count a module as wrong that could not be collected, or that the code under test skips. A
        module may skip itself.
        """
        if report.skipped and not _same_file(report.longrepr, report.nodeid):
            self._account.wrong += 1
        self._account.wrong += bool(report.failed)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "teardown":
            self._finished.add(report.nodeid)
        if report.failed:
            self._account.wrong += 1
        elif report.skipped:
            self._account.wrong += not self._may_skip(report)
        elif report.when == "call":
            self._account.passed += 1

    def _may_skip(self, report: Any) -> bool:
        if report.nodeid in self._marked:
            return True
        where = report.longrepr[0] if isinstance(report.longrepr, tuple) else ""
        return not hasattr(report, "wasxfail") and (
            where in self._files or Path(where).name == "conftest.py"
        )

    def pytest_sessionfinish(self, session: Any, exitstatus: int) -> None:
        if not os.environ.get("PYTEST_XDIST_WORKER"):
            for _, file in {*_hooks_of(session.config)} - self._hooks:
                self._account.plugin(file)
            self._account.end(session.testscollected - len(self._finished), int(exitstatus))


def _hooks_of(config: Any) -> Iterator[tuple[str, str]]:
    """Return every hook that a plugin implements, with the file of its code."""
    for name, hook in vars(config.hook).items():
        for answer in getattr(hook, "get_hookimpls", list)():
            code = getattr(inspect.unwrap(answer.function), "__code__", None)
            if code is not None:
                yield name, code.co_filename


def _watch_unittest(account: RunRecord) -> None:
    """Have unittest's runner count with a result of ours."""
    import unittest
    import unittest.main

    class Result(unittest.TextTestResult):
        """Counts a skip as wrong unless the test is marked to skip or its own module raised it, and
        a failed run as wrong: a module may not have been loaded.
        """

        def startTest(self, test: Any) -> None:
            super().startTest(test)
            method = getattr(test, "_testMethodName", "")
            function = getattr(type(test), method, None)
            if isinstance(function, FunctionType) and not type(test).__module__.startswith(
                "unittest"
            ):
                file = inspect.unwrap(function).__code__.co_filename
                account.saw(file, f"{type(test).__qualname__}::{method}", function)

        def addSuccess(self, test: Any) -> None:
            super().addSuccess(test)
            account.passed += 1

        def addSkip(self, test: Any, reason: str) -> None:
            super().addSkip(test, reason)
            method = getattr(type(test), getattr(test, "_testMethodName", ""), None)
            marked = getattr(test, "__unittest_skip__", False) or getattr(
                method, "__unittest_skip__", False
            )
            account.wrong += not (marked or _raised_in(type(test).__module__))

        def stopTestRun(self) -> None:
            super().stopTestRun()
            account.wrong += not self.wasSuccessful()
            account.end(0, 0)

    setattr(unittest.TextTestRunner, "resultclass", Result)  # noqa: B010 - typed as a function there
    account.begin()


def _raised_in(module: str) -> bool:
    """Return whether the module itself raised the handled exception, perhaps through unittest."""
    trace, raising_module = sys.exc_info()[2], ""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        if name.split(".")[0] != "unittest":
            raising_module = name
        trace = trace.tb_next
    return raising_module == module


def _code_text(code: CodeType) -> str:
    """Return a description of a function's code that is the same in every run."""
    parts = [
        code.co_code.hex(),
        repr(code.co_names),
        repr(code.co_varnames),
        str(code.co_firstlineno),
    ]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            parts.append(_code_text(constant))
        else:
            parts.append(
                repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
            )
    return "\n".join(parts)


def _same_file(longrepr: Any, nodeid: str) -> bool:
    where = longrepr[0] if isinstance(longrepr, tuple) else ""
    return bool(nodeid) and Path(where).as_posix().endswith(nodeid.split("::")[0])


def _functions() -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in WATCHED or module is None:
            continue
        for key, value in list(vars(module).items()):
            yield f"{name}.{key}", value
            if isinstance(value, type) and value.__module__.split(".")[0] in WATCHED:
                yield from (
                    (f"{name}.{key}.{inner}", member) for inner, member in list(vars(value).items())
                )
    for module in (builtins, math):
        yield from (
            (f"{module.__name__}.{key}", value)
            for key, value in list(vars(module).items())
            if callable(value)
        )


def _identities() -> dict[str, int]:
    """Return every function of the runner by its full name, with the identity of its code, and the
    built-in functions.
    """
    identities = {}
    for name, value in _functions():
        if isinstance(value, FunctionType):
            identities[name] = id(value.__code__)
        elif name.startswith(PLAIN):
            identities[name] = id(value)
    return identities


def _compared(before: dict[str, int]) -> Iterator[tuple[str, bool]]:
    """Yield each function's name and whether it is unchanged. A new function of a class that had
    others counts as a change: classes grow none.
    """
    present = _identities()
    yield from ((name, present.get(name) == identity) for name, identity in before.items())
    classes = {name.rpartition(".")[0] for name in before}
    modules = set(sys.modules)
    for name in present.keys() - before.keys():
        owner = name.rpartition(".")[0]
        if owner in classes and owner not in modules:
            yield name, False


def _begin_if_called() -> RunRecord | None:
    """Begin to record if grading asked for it. Importing this module elsewhere does nothing."""
    if not NOTE_FILE.is_file():
        return None
    secret, report, root, own = NOTE_FILE.read_text(encoding="utf-8").split("\n", 3)
    NOTE_FILE.unlink()
    Path(__file__).unlink()
    for name in ("PYTEST_ADDOPTS", "PYTHONPATH"):
        os.environ.pop(name, None)
    return RunRecord(secret, report, root, own)


_run_record = _begin_if_called()
if _run_record is not None and ("-m", "unittest") in pairwise(sys.orig_argv):
    _watch_unittest(_run_record)
elif _run_record is not None:
    _hooks = PytestHooks(_run_record)
    pytest_load_initial_conftests = _hooks.pytest_load_initial_conftests
    pytest_configure = _hooks.pytest_configure
    pytest_ignore_collect = _hooks.pytest_ignore_collect
    pytest_itemcollected = _hooks.pytest_itemcollected
    pytest_collection_finish = _hooks.pytest_collection_finish
    pytest_collectreport = _hooks.pytest_collectreport
    pytest_runtest_logreport = _hooks.pytest_runtest_logreport
    pytest_sessionfinish = _hooks.pytest_sessionfinish
