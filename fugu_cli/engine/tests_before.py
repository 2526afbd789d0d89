"""The tool tests_before: how failing tests stood before the request, run on a copy of the files as
they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.engine import loaded_code
from fugu_cli.errors import StorageError
from fugu_cli.messages import Value
from fugu_cli.session import tool_facts
from fugu_cli.session.events import FileChange, TestReport
from fugu_cli.session.recognized_tests import removed_tests
from fugu_cli.snapshots import repository_files
from fugu_cli.snapshots.git_repositories import split_names
from fugu_cli.system import temp_dirs
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.testing.runner_commands import (
    NAME_SEPARATOR,
    Invocation,
    recognise_runner,
    select_failing,
)
from fugu_cli.tools import worktrees
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.run_tests import SuiteRun, report_folder, run_suite
from fugu_cli.tools.workspace import Tool, Workspace

if TYPE_CHECKING:
    from fugu_cli.testing.runner_results import TestOutcomes

NEEDED = frozenset(
    {".venv", "venv", "env", "node_modules", "vendor", ".tox", ".nox", "site-packages", ".eggs"}
)
"""Names of dependencies and environments, which come along into the copy."""
VENDORED = "vendor"
"""The name of a folder whose code may load the code beside it."""
LEFT_OUT = (repository_files.SKIPPED_FOLDERS - NEEDED) | {
    "out",
    "bin",
    "obj",
    "coverage",
    "htmlcov",
    ".hypothesis",
    ".coverage",
    ".cache",
}
"""Names of what is built from the code, or a cache: it is not as it was before."""
CACHES = frozenset({".cache", ".vite", ".vite-temp", ".vitest"})
"""Names in node_modules of what tools write there."""
COPIED = 1_000_000
"""Bytes up to which an ignored file is copied; a larger one is linked."""
LAID_OUT_FILES = 20_000
LAID_OUT_BYTES = 100_000_000
"""Files, and bytes, of an ignored folder up to which the copy has a folder of its own; a larger one
is linked."""
_JOINTS = ("::", NAME_SEPARATOR, " ", ".", "#", "/")


@dataclass(frozen=True)
class EarlierResults:
    """The earlier results of tests that fail now, in the order they were asked for.

    `absent` did not exist or were not run. `unknown` says why nothing is known, else "". Without
    `by_id` the runner names no tests: then the whole suite was run, and `ok` and `report` say how
    it ended.
    """

    failed: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unknown: str = ""
    by_id: bool = False
    ok: bool | None = None
    report: TestReport | None = None


async def failing_before(
    workspace: Workspace, snapshot: str | None, report: TestReport | None, say: Say
) -> EarlierResults:
    """Run the failing tests of `report` on the files of `snapshot` (a git tree id), or all tests if
    it names none.

    Changes nothing in the repository. `say` receives the runner's output.
    """
    command = workspace.test_command
    if command is None:
        return EarlierResults(unknown="there is no test command")
    if snapshot is None or not workspace.in_git:
        return EarlierResults(
            unknown="outside a git repository the files as they were cannot be laid out"
        )
    try:
        with temp_dirs.temp_dir("before") as folder, _scratch_folder(workspace) as scratch:
            copy = await worktrees.make_worktree(workspace, snapshot, folder / "copy")
            brought = await _bring_along(workspace, copy)
            watch = _watched(workspace, copy, scratch, brought)
            selected = select_failing(command, report, copy.root) if report is not None else None
            run = await _run_existing_tests(selected or command, copy, say, watch)
            if run is None:
                absent = report.failing if report is not None else ()
                return EarlierResults(absent=absent, by_id=True)
            results = _results(run, report, watch, recognise_runner(command, copy.root))
            failed = bool(results.failed) or (not results.by_id and not results.ok)
            if copy.sandbox is None or results.unknown or not failed:
                return results
            if hidden := await asyncio.to_thread(copy.sandbox.hidden_links):
                return EarlierResults(
                    unknown=f"commands in the sandbox cannot read what {hidden[0]} links to"
                )
            return results
    except (StorageError, OSError) as error:
        return EarlierResults(unknown=f"the files as they were could not be laid out: {error}")


@dataclass(frozen=True)
class _Brought:
    """Paths that git ignores: those linked into the copy, those that the copy lacks, and linked
    packages that load code of the repository itself.
    """

    linked: tuple[str, ...]
    missing: tuple[str, ...]
    loading: tuple[str, ...]


@dataclass(frozen=True)
class _Watch:
    """Shows whether a run tested the copy: with `variables` it writes the code that it loads to
    `loaded_code`. `brought` are the ignored paths that the copy got.
    """

    variables: dict[str, str]
    loaded_code: Path
    brought: _Brought


@contextlib.contextmanager
def _scratch_folder(workspace: Workspace) -> Iterator[Path]:
    folder = report_folder(workspace)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="before-", dir=folder) as folder_name:
        yield Path(folder_name)


# --- the copy -------------------------------------------------------------------------------------


async def _bring_along(workspace: Workspace, copy: Workspace) -> _Brought:
    """Link or copy what git ignores."""
    assert workspace.history.snapshots is not None
    listing = ("ls-files", "-z", "-o", "-i", "--directory", "--exclude-standard", "--", ".")
    ignored = [
        name.rstrip("/")
        for name in split_names(await workspace.history.snapshots.git.run(*listing))
    ]
    names = [
        *ignored,
        *(name for name in worktrees.ENVIRONMENTS if (workspace.root / name).is_dir()),
    ]
    return await asyncio.to_thread(_lay_out, workspace.root, copy.root, list(dict.fromkeys(names)))


def _lay_out(old: Path, new: Path, names: Sequence[str]) -> _Brought:
    linked: list[str] = []
    missing: list[str] = []
    loading: list[str] = []
    for name in names:
        source, target = old / name, new / name
        if any(part in LEFT_OUT for part in Path(name).parts) or name.endswith((".pyc", ".pyo")):
            missing.append(name)
            continue
        if target.is_symlink():
            target.unlink()
        if os.path.lexists(target):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.name == "node_modules" and source.is_dir():
            loading += [
                f"{name}/{package}" for package in _lay_out_packages(source, target, old, new)
            ]
        elif source.is_file() and not source.is_symlink() and source.stat().st_size <= COPIED:
            shutil.copy2(source, target)
        elif not _lay_out_folder(source, target, old, new):
            target.symlink_to(_link_target(source, old, new), target_is_directory=source.is_dir())
            linked.append(name)
    return _Brought(tuple(linked), tuple(missing), tuple(loading))


def _lay_out_folder(source: Path, target: Path, old: Path, new: Path) -> bool:
    """Copy an ignored folder. Return False if it is to be linked.

    Code in a linked folder finds the repository beside itself, not the copy: Composer's autoloader
    does. Files are never hard links, for a test that writes into one would change the user's. An
    environment names its folder in its scripts, so it stays where it is.
    """
    is_environment = source.name in NEEDED - {VENDORED}
    if source.is_symlink() or is_environment or not _can_be_laid_out(source):
        return False

    try:
        shutil.copytree(source, target, symlinks=True)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        return False
    for folder, folders, files in os.walk(target):
        for name in (*folders, *files):
            path = Path(folder, name)
            if path.is_symlink() and path.readlink().is_absolute():
                original = source / path.relative_to(target)
                path.unlink()
                path.symlink_to(_link_target(original, old, new))
    return True


def _can_be_laid_out(source: Path) -> bool:
    """Return whether `source` is small, holds only plain files and is no virtual environment."""
    count = size = 0
    for folder, _, files in os.walk(source):
        for name in files:
            status = Path(folder, name).lstat()
            if name == "pyvenv.cfg" or not (
                stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
            ):
                return False
            count += 1
            size += status.st_size
            if count > LAID_OUT_FILES or size > LAID_OUT_BYTES:
                return False
    return True


def _lay_out_packages(source: Path, target: Path, old: Path, new: Path) -> list[str]:
    """Link each package of a node_modules folder. A link to a package of the repository leads into
    the copy, and packages that depend on one are copied: node looks for it beside their real place.
    Return those that are linked although they load the repository's own code.
    """
    packages = dict(_packages(source))
    own = {name for name, path in packages.items() if _is_own_code(path, old)}
    dependents = _dependents(packages, own)
    loading = []
    for name, path in packages.items():
        link = target / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if name in dependents and _lay_out_folder(path, link, old, new):
            continue
        link.symlink_to(_link_target(path, old, new), target_is_directory=path.is_dir())
        if name in dependents:
            loading.append(name)
    for store in source.glob(".pnpm/*/node_modules"):
        if any(_is_own_code(path, old) for _, path in _packages(store)):
            loading.append(store.parent.relative_to(source).as_posix())
    return loading


def _packages(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and path of each package in a node_modules folder."""
    for entry in folder.iterdir():
        if entry.name in CACHES:
            continue
        if entry.name.startswith("@") and not entry.is_symlink():
            yield from ((f"{entry.name}/{path.name}", path) for path in entry.iterdir())
        else:
            yield entry.name, entry


def _dependents(packages: Mapping[str, Path], own: set[str]) -> set[str]:
    """Return the packages that need one of the packages `own` to run, directly or not."""
    if not own:
        return set()
    needs = {name: _dependencies(path) for name, path in packages.items() if name not in own}
    dependents: set[str] = set()
    while True:
        more = {name for name, needed in needs.items() if needed & (own | dependents)} - dependents
        if not more:
            return dependents
        dependents |= more


def _dependencies(package: Path) -> set[str]:
    """Return the names of what a package's manifest says that it needs to run."""
    try:
        manifest = parse_json((package / "package.json").read_bytes())
    except (OSError, ValueError):
        return set()
    if not isinstance(manifest, dict):
        return set()
    names: set[str] = set()
    for field in ("dependencies", "peerDependencies", "optionalDependencies"):
        declared = manifest.get(field)
        names |= set(declared) if isinstance(declared, dict) else set()
    return names


def _is_own_code(path: Path, root: Path) -> bool:
    """Return whether `path` is a link to code of the repository, not to a dependency in it."""
    if not path.is_symlink():
        return False
    real = path.resolve()
    return real.is_relative_to(root) and not NEEDED & set(real.relative_to(root).parts)


def _link_target(path: Path, old: Path, new: Path) -> Path:
    """Return the target of a link: in the copy if `path` leads to the repository's own code, else
    as it is.
    """
    return new / path.resolve().relative_to(old) if _is_own_code(path, old) else path


# --- the run --------------------------------------------------------------------------------------


def _watched(workspace: Workspace, copy: Workspace, scratch: Path, brought: _Brought) -> _Watch:
    """Prepare a run in the copy: Python loads the copy's code, and builds leave the user's build
    folders alone.
    """
    loaded = scratch / "told"
    shutil.copy(loaded_code.__file__, scratch / "sitecustomize.py")
    note = {
        "old": str(workspace.root),
        "new": str(copy.root),
        "linked": brought.linked,
        "told": str(loaded),
    }
    (scratch / "note.json").write_text(json.dumps(note), encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(scratch), os.environ.get("PYTHONPATH", ""))))
    cargo = str(workspace.store / "cargo-target")
    return _Watch(
        {"PYTHONPATH": path, "UV_NO_SYNC": "1", "CARGO_TARGET_DIR": cargo}, loaded, brought
    )


NOT_FOUND = 4
"""pytest's exit code for a test that is not there."""
_NOT_FOUND = re.compile(
    r"^ERROR: (?:not found: (?P<id>.+?)(?:\s*$| \()|file or directory not found: (?P<file>.+)$)",
    re.M,
)


async def _run_existing_tests(
    command: str, copy: Workspace, say: Say, watch: _Watch
) -> SuiteRun | ToolResult | None:
    """Run the tests of a command that exist in the copy. Return None if none exists.

    pytest runs nothing if it cannot find one of the tests it was given. It is then run again
    without the missing ones: first it reports missing files, one at a time, and then missing tests.
    """
    run = await run_suite(command, copy, copy.test_timeout, say, watch.variables)
    if isinstance(run, ToolResult):
        return run
    invocation = recognise_runner(command, copy.root)
    if invocation is None or invocation.kind != "pytest" or run.ended.code != NOT_FOUND:
        return run
    missing = [match["id"] or match["file"] for match in _NOT_FOUND.finditer(run.ended.output)]
    kept = [
        argument
        for argument in invocation.own
        if not any(_is_missing(argument, name, copy.root) for name in missing)
    ]
    if len(kept) == len(invocation.own):
        return run
    selects_tests = any("::" in argument or argument.endswith(".py") for argument in kept)
    if not selects_tests:
        return None
    return await _run_existing_tests(invocation.replacing(kept), copy, say, watch)


def _is_missing(argument: str, missing: str, root: Path) -> bool:
    """Return whether a test or file that pytest reports as `missing` is this argument, or the file
    of the test in it.
    """
    return missing in {argument, f"{root}/{argument}"} or argument.startswith(f"{missing}::")


def _results(
    ran: SuiteRun | ToolResult,
    report: TestReport | None,
    watch: _Watch,
    invocation: Invocation | None,
) -> EarlierResults:
    if isinstance(ran, ToolResult):
        return EarlierResults(unknown=ran.text)
    if doubt := _doubt(ran, watch, invocation):
        return EarlierResults(unknown=doubt)
    if ran.report is not None and ran.report.unable:
        return EarlierResults(unknown=f"on the files as they were {ran.report.unable}")
    if report is None or not report.by_id:
        return EarlierResults(ok=ran.ok, report=ran.report)
    if ran.results is None:
        how = f"exit code {ran.ended.code}"
        return EarlierResults(
            unknown=f"on the files as they were the tests could not be run, or told apart ({how})",
            ok=ran.ok,
        )
    stood = {name: _earlier_outcome(name, ran.results) for name in report.failing}
    failed, passed, absent = (
        tuple(name for name, outcome in stood.items() if outcome == what)
        for what in ("failed", "passed", "absent")
    )
    if failed and (needed := _missing_build(ran.ended.output, watch.brought.missing)):
        return EarlierResults(
            unknown=f"they may need {needed}, which is built and was not there before", ok=ran.ok
        )
    return EarlierResults(failed, passed, absent, by_id=True, ok=ran.ok, report=ran.report)


def _doubt(ran: SuiteRun, watch: _Watch, invocation: Invocation | None) -> str:
    """Return why the copy may not have been tested, "" if it was."""
    if ran.ended.code is None:
        return f"on the files as they were the tests did not end within {ran.ended.seconds:.0f} s"
    try:
        loaded = []
        if watch.loaded_code.is_file():
            loaded = watch.loaded_code.read_text("utf-8", "replace").splitlines()
    except OSError:
        loaded = []
    if wrong := [line for line in loaded if line != "begun"]:
        return (
            f"the tests load the code from the repository itself, wherever they are run "
            f"({wrong[0]})"
        )
    vendored = [name for name in watch.brought.linked if Path(name).name == VENDORED]
    for name in (*vendored, *watch.brought.loading):
        return f"{name} is only linked to, and may load the code of the repository itself"
    if invocation is not None and invocation.kind in {"pytest", "unittest"} and not loaded:
        return "it cannot be told which code the tests loaded"
    return ""


def _earlier_outcome(name: str, results: TestOutcomes) -> str:
    """failed, passed or absent. A file or class that could not be loaded stood as the tests in it
    did.
    """
    outcome = results.get(name)
    if outcome is None:
        around = [
            test
            for test, result in results.items()
            if result == "failed" and _is_within(name, test)
        ]
        inside = [result for test, result in results.items() if _is_within(test, name)]
        outcome = (
            "failed"
            if around
            else next((result for result in ("passed", "failed") if result in inside), None)
        )
    return outcome if outcome in {"failed", "passed"} else "absent"


def _is_within(name: str, test: str) -> bool:
    return any(name.startswith(test + joint) for joint in _JOINTS)


def _missing_build(output: str, missing: Sequence[str]) -> str:
    """Return the first path that the copy lacks and the output names."""
    mentioned = (name for name in missing if re.search(rf"(?<![\w.-]){re.escape(name)}\b", output))
    return next(
        (name for name in mentioned if Path(name).name not in {"__pycache__", "target"}), ""
    )


SHOWN = 50
"""Names of tests listed of each kind, at most."""


class TestsBeforeArguments(Value):
    """Arguments of tests_before."""

    __test__ = False

    tree: str = ""
    """The snapshot before the request."""
    ids: tuple[str, ...] = ()
    """Tests that fail now; none if the runner gives no ids."""
    failing: bool = False
    """True if any test fails now."""
    edited: tuple[FileChange, ...] = ()
    """Test files that were changed."""


async def tests_before(
    arguments: TestsBeforeArguments, workspace: Workspace, say: Say
) -> ToolResult:
    """Run the failing tests on the files as they were before the request. The result is `ok` if
    their state then is known.
    """
    removed = await _removed(arguments.edited, workspace)
    removed_text = _listed("Removed by this request:", removed)
    if not arguments.failing:
        return ToolResult(text=removed_text, tests=TestReport(removed=removed))
    ids = arguments.ids
    report = TestReport(failed=len(ids), failing=ids, by_id=True) if ids else None
    before = await failing_before(workspace, arguments.tree or None, report, say)
    if before.unknown:
        lines = [f"{before.unknown}.", removed_text]
        tests = TestReport(removed=removed)
    else:
        lines = [*_describe(before), removed_text]
        tests = _report(before, removed)
    text = "\n".join(line for line in lines if line)
    return ToolResult(text=text, ok=not before.unknown, tests=tests)


async def _removed(edited: Sequence[FileChange], workspace: Workspace) -> tuple[str, ...]:
    """Return the names of the tests that the changes removed."""
    names = {
        name for change in edited for name in (change.before, change.after) if name is not None
    }
    texts = {
        name: (await workspace.history.blob(name)).decode("utf-8", "replace") for name in names
    }
    return removed_tests(edited, texts.get)


def _report(before: EarlierResults, removed: tuple[str, ...]) -> TestReport:
    if before.by_id:
        return TestReport(
            passed=len(before.passed),
            failed=len(before.failed),
            failing=before.failed,
            passing=before.passed,
            by_id=True,
            removed=removed,
        )
    report = before.report or TestReport(failed=0 if before.ok else 1)
    return report.model_copy(update={"removed": removed})


def _describe(before: EarlierResults) -> list[str]:
    if not before.by_id:
        if before.ok:
            state = "they passed"
        elif before.report is None:
            state = "they failed"
        else:
            state = f"they failed ({before.report.failed} failed)"
        return [f"All tests were run on the files as they were before this request: {state}."]
    texts = [
        _listed("Passed before this request and fail now:", before.passed),
        _listed("Failed before this request as well:", before.failed),
        _listed("Did not exist before this request:", before.absent),
    ]
    return [text for text in texts if text]


def _listed(head: str, names: Sequence[str]) -> str:
    """Return the head with the names below it, "" without any."""
    more = [f"  and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return "\n".join([head, *(f"  {name}" for name in names[:SHOWN]), *more]) if names else ""


TESTS_BEFORE = Tool.of(tool_facts.TESTS_BEFORE, TestsBeforeArguments, tests_before)
