"""What really happened in a test run, told by pytest itself: a plugin that grading puts beside the run.

Copied under a random name into the grading run and imported there by pytest before any of the task's code; it imports
nothing of fugu. Beside its copy lies a file with a secret and the path of the report; both files are gone before the
code under test is loaded. Each pytest session leaves two lines in the report, at its beginning and at its end. A
program that ends the process, prints "1 passed", skips from inside the code or exchanges parts of pytest leaves no good
second line. It is a witness and no prison: code that searches the memory of its own process for the secret can lie.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

NOTE = Path(__file__).with_suffix(".note")
WATCHED = ("_pytest", "pluggy", "unittest")


class Witness:
    """Counts what pytest reports, and looks whether pytest is still itself at the end."""

    def __init__(self, secret: str, report: str) -> None:
        self._tell = partial(_append, report, secret)
        self._passed = self._wrong = 0
        self._finished: set[str] = set()
        self._marked: set[str] = set()
        self._files: set[str] = set()
        self._before: dict[str, int] = {}
        self._tell({"begun": True})

    def pytest_configure(self, config: Any) -> None:
        """Everything of pytest that is loaded now must be the same at the end."""
        self._before = _identities()

    def pytest_itemcollected(self, item: Any) -> None:
        self._files.add(str(item.path))
        if item.get_closest_marker("xfail") or item.get_closest_marker("skip") or item.get_closest_marker("skipif"):
            self._marked.add(item.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """A module may skip itself; one that the code under test skips is wrong."""
        if report.skipped and not _same_file(report.longrepr, report.nodeid):
            self._wrong += 1
        self._wrong += bool(report.failed)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "teardown":
            self._finished.add(report.nodeid)
        if report.failed:
            self._wrong += 1
        elif report.skipped:
            self._wrong += not self._may_skip(report)
        elif report.when == "call":
            self._passed += 1

    def _may_skip(self, report: Any) -> bool:
        if report.nodeid in self._marked:
            return True
        where = report.longrepr[0] if isinstance(report.longrepr, tuple) else ""
        return not hasattr(report, "wasxfail") and (where in self._files or Path(where).name == "conftest.py")

    def pytest_sessionfinish(self, session: Any, exitstatus: int) -> None:
        told = {
            "begun": False,
            "passed": self._passed,
            "wrong": self._wrong,
            "missing": session.testscollected - len(self._finished),
            "exit": int(exitstatus),
            "changed": sorted(name for name, known in _compared(self._before) if not known)[:5],
        }
        if not os.environ.get("PYTEST_XDIST_WORKER"):
            self._tell(told)


def _append(report: str, secret: str, told: dict[str, Any]) -> None:
    with Path(report).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"secret": secret, **told}) + "\n")


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
                yield from ((f"{name}.{key}.{inner}", member) for inner, member in list(vars(value).items()))
    yield from ((f"builtins.{key}", value) for key, value in list(vars(builtins).items()) if callable(value))


def _identities() -> dict[str, int]:
    """Every function of the runner by its full name, and the identity of its code; and the built-in functions."""
    found = {}
    for name, value in _functions():
        if isinstance(value, FunctionType):
            found[name] = id(value.__code__)
        elif name.startswith("builtins."):
            found[name] = id(value)
    return found


def _compared(before: dict[str, int]) -> Iterator[tuple[str, bool]]:
    now = _identities()
    yield from ((name, now.get(name) == known) for name, known in before.items())


def _called() -> Witness | None:
    """The plugin, where grading called for it: importing this module elsewhere does nothing."""
    if not NOTE.is_file():
        return None
    secret, report = NOTE.read_text(encoding="utf-8").split("\n", 1)
    if "-n" not in sys.argv:  # processes of pytest-xdist import it again
        NOTE.unlink()
        Path(__file__).unlink()
    for name in ("PYTEST_ADDOPTS", "PYTHONPATH"):
        os.environ.pop(name, None)
    return Witness(secret, report)


_witness = _called()
if _witness is not None:
    pytest_configure = _witness.pytest_configure
    pytest_itemcollected = _witness.pytest_itemcollected
    pytest_collectreport = _witness.pytest_collectreport
    pytest_runtest_logreport = _witness.pytest_runtest_logreport
    pytest_sessionfinish = _witness.pytest_sessionfinish
