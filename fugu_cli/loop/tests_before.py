"""How failing tests stood before the request: they are run on a copy of the files as they were.

Below the engine, which asks only where something fails. The copy is laid out from a snapshot and removed again. What
git ignores is not in a snapshot: dependencies and small files are brought along, what is built is not. Where the copy
cannot be made, or may not have been what was tested, the answer is that nobody knows, with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli import scratch
from fugu_cli.errors import StorageError
from fugu_cli.events import TestReport
from fugu_cli.loop import worktrees
from fugu_cli.tools import loaded_code, tree
from fugu_cli.tools.git import names
from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.run_tests import Ran, reports_folder, run_suite
from fugu_cli.tools.runner_reports import Results
from fugu_cli.tools.runner_selection import select
from fugu_cli.tools.runners import WITHIN, Invocation, recognise
from fugu_cli.tools.workspace import Workspace

NEEDED = frozenset({".venv", "venv", "env", "node_modules", "vendor", ".tox", ".nox", "site-packages", ".eggs"})
"""Names of dependencies and environments, which are linked into the copy."""
LEFT_OUT = (tree.SKIPPED - NEEDED) | {"out", "bin", "obj", "coverage", "htmlcov", ".hypothesis", ".coverage", ".cache"}
"""Names of what is built from the code, or a cache: it is not as it was before."""
CACHES = frozenset({".cache", ".vite", ".vite-temp", ".vitest"})
"""Names in node_modules of what tools write there."""
COPIED = 1_000_000
"""Bytes up to which an ignored file is copied; a larger one is linked."""
_JOINTS = ("::", WITHIN, " ", ".", "#", "/")


@dataclass(frozen=True)
class Before:
    """How tests that fail now stood before: by their names, in the order they were asked for.

    `absent` did not exist, or were not run. `unknown` is the reason why nothing can be said of the tests, "" where it
    can. Without `by_id` the runner names no tests: then the whole suite was run, and `ok` and `report` say how it
    ended.
    """

    failed: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unknown: str = ""
    by_id: bool = False
    ok: bool | None = None
    report: TestReport | None = None


async def failing_before(workspace: Workspace, snapshot: str | None, report: TestReport | None, say: Say) -> Before:
    """Run the failing tests of `report` on the files of `snapshot` (a git tree id); all tests where it names none.

    Changes nothing in the repository. `say` is told the runner's output.
    """
    command = workspace.test_command
    if command is None:
        return Before(unknown="there is no test command")
    if snapshot is None or not workspace.in_git:
        return Before(unknown="outside a git repository the files as they were cannot be laid out")
    try:
        with scratch.folder("before") as folder, _place(workspace) as place:
            copy = await worktrees.make(workspace, snapshot, folder / "copy")
            brought = await _bring_along(workspace, copy)
            watch = _watched(workspace, copy, place, brought)
            selected = select(command, report, copy.root) if report is not None else None
            ran = await _run(selected or command, copy, say, watch)
            return _said(ran, report, watch, recognise(command, copy.root))
    except (StorageError, OSError) as error:
        return Before(unknown=f"the files as they were could not be laid out: {error}")


@dataclass(frozen=True)
class _Brought:
    """Of what git ignores: the paths that are linked into the copy, and those that it lacks."""

    linked: tuple[str, ...]
    left: tuple[str, ...]


@dataclass(frozen=True)
class _Watch:
    """What tells whether the copy was tested: `told` is written by the run. `left` as above."""

    variables: dict[str, str]
    told: Path
    left: tuple[str, ...]


@contextlib.contextmanager
def _place(workspace: Workspace) -> Iterator[Path]:
    folder = reports_folder(workspace)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="before-", dir=folder) as place:
        yield Path(place)


# --- the copy ---------------------------------------------------------------------------------------------------------


async def _bring_along(workspace: Workspace, copy: Workspace) -> _Brought:
    """Link or copy what git ignores."""
    assert workspace.snapshots is not None
    listing = ("ls-files", "-z", "-o", "-i", "--directory", "--exclude-standard", "--", ".")
    ignored = [name.rstrip("/") for name in names(await workspace.snapshots.git.run(*listing))]
    found = [*ignored, *(name for name in worktrees.ENVIRONMENTS if (workspace.root / name).is_dir())]
    return await asyncio.to_thread(_laid, workspace.root, copy.root, list(dict.fromkeys(found)))


def _laid(old: Path, new: Path, found: Sequence[str]) -> _Brought:
    linked: list[str] = []
    left: list[str] = []
    for name in found:
        source, target = old / name, new / name
        if any(part in LEFT_OUT for part in Path(name).parts) or name.endswith((".pyc", ".pyo")):
            left.append(name)
            continue
        if target.is_symlink():
            target.unlink()
        if os.path.lexists(target):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.name == "node_modules" and source.is_dir():
            _packages(source, target, old, new)
        elif source.is_file() and not source.is_symlink() and source.stat().st_size <= COPIED:
            shutil.copy2(source, target)
        else:
            target.symlink_to(_led(source, old, new), target_is_directory=source.is_dir())
            linked.append(name)
    return _Brought(tuple(linked), tuple(left))


def _packages(source: Path, target: Path, old: Path, new: Path) -> None:
    """A folder of packages: each is linked; one that is a link into the repository leads into the copy."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.name in CACHES:
            continue
        if entry.name.startswith("@") and not entry.is_symlink():
            _packages(entry, target / entry.name, old, new)
        else:
            (target / entry.name).symlink_to(_led(entry, old, new), target_is_directory=entry.is_dir())


def _led(path: Path, old: Path, new: Path) -> Path:
    """Where a link to `path` leads: into the copy, where `path` leads to the repository's own code."""
    real = path.resolve()
    own = path.is_symlink() and real.is_relative_to(old) and not NEEDED & set(real.relative_to(old).parts)
    return new / real.relative_to(old) if own else path


# --- the run ----------------------------------------------------------------------------------------------------------


def _watched(workspace: Workspace, copy: Workspace, place: Path, brought: _Brought) -> _Watch:
    """Variables for a run in the copy: Python's code comes from there, and builds leave the user's own alone."""
    told = place / "told"
    shutil.copy(loaded_code.__file__, place / "sitecustomize.py")
    note = {"old": str(workspace.root), "new": str(copy.root), "linked": brought.linked, "told": str(told)}
    (place / "note.json").write_text(json.dumps(note), encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH", ""))))
    cargo = str(workspace.store / "cargo-target")
    return _Watch({"PYTHONPATH": path, "UV_NO_SYNC": "1", "CARGO_TARGET_DIR": cargo}, told, brought.left)


NOT_FOUND = 4
"""pytest's exit code for a test that is not there."""
_NOT_FOUND = re.compile(
    r"^ERROR: (?:not found: (?P<id>.+?)(?:\s*$| \()|file or directory not found: (?P<file>.+)$)", re.M
)


async def _run(command: str, copy: Workspace, say: Say, watch: _Watch) -> Ran | Result:
    """pytest runs nothing where one of the tests is not there: it is run again without those. It tells of files that
    are not there first, one by one, and then of tests."""
    ran = await run_suite(command, copy, copy.test_timeout, say, watch.variables)
    invocation = recognise(command, copy.root)
    if isinstance(ran, Result) or invocation is None or invocation.kind != "pytest" or ran.ended.code != NOT_FOUND:
        return ran
    missing = [found["id"] or found["file"] for found in _NOT_FOUND.finditer(ran.ended.output)]
    kept = [word for word in invocation.own if not any(_names(name, word, copy.root) for name in missing)]
    if len(kept) == len(invocation.own):
        return ran
    if not any("::" in word or word.endswith(".py") for word in kept):
        return Ran(command, ran.ended, {})
    return await _run(invocation.replacing(kept), copy, say, watch)


def _names(missing: str, word: str, root: Path) -> bool:
    """pytest says of a test that is not there where its file would be."""
    return missing in {word, f"{root}/{word}"} or word.startswith(f"{missing}::")


def _said(ran: Ran | Result, report: TestReport | None, watch: _Watch, invocation: Invocation | None) -> Before:
    if isinstance(ran, Result):
        return Before(unknown=ran.text)
    if doubt := _doubt(ran, watch, invocation):
        return Before(unknown=doubt)
    if report is None or not report.by_id:
        return Before(ok=ran.ok, report=ran.report)
    if ran.results is None:
        how = f"exit code {ran.ended.code}"
        return Before(unknown=f"on the files as they were the tests could not be run, or told apart ({how})", ok=ran.ok)
    stood = {name: _stood(name, ran.results) for name in report.failing}
    failed, passed, absent = (
        tuple(name for name, one in stood.items() if one == what) for what in ("failed", "passed", "absent")
    )
    if failed and (needed := _built(ran.ended.output, watch.left)):
        return Before(unknown=f"they may need {needed}, which is built and was not there before", ok=ran.ok)
    return Before(failed, passed, absent, by_id=True, ok=ran.ok, report=ran.report)


def _doubt(ran: Ran, watch: _Watch, invocation: Invocation | None) -> str:
    """Why the copy may not have been what was tested."""
    if ran.ended.code is None:
        return f"on the files as they were the tests did not end within {ran.ended.seconds:.0f} s"
    try:
        told = watch.told.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        told = []
    if wrong := [line for line in told if line != "begun"]:
        return f"the tests load the code from the repository itself, wherever they are run ({wrong[0]})"
    if invocation is not None and invocation.kind in {"pytest", "unittest"} and not told:
        return "it cannot be told which code the tests loaded"
    return ""


def _stood(name: str, results: Results) -> str:
    """failed, passed or absent. A file or class that could not be loaded stood as the tests in it did."""
    outcome = results.get(name)
    if outcome is None:
        around = [other for other, one in results.items() if one == "failed" and _is_within(name, other)]
        inside = [one for other, one in results.items() if _is_within(other, name)]
        outcome = "failed" if around else next((one for one in ("passed", "failed") if one in inside), None)
    return outcome if outcome in {"failed", "passed"} else "absent"


def _is_within(name: str, other: str) -> bool:
    return any(name.startswith(other + joint) for joint in _JOINTS)


def _built(output: str, left: Sequence[str]) -> str:
    """The first path that the copy lacks and the output names."""
    mentioned = (name for name in left if re.search(rf"(?<![\w.-]){re.escape(name)}\b", output))
    return next((name for name in mentioned if Path(name).name not in {"__pycache__", "target"}), "")
