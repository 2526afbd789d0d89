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
"""Names of dependencies and environments, which are linked or copied into the copy."""
VENDORED = "vendor"
"""The name of a folder whose code may load the code of the repository around it."""
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
"""Names of caches and of build results, which belong to the present code and are not copied."""
CACHES = frozenset({".cache", ".vite", ".vite-temp", ".vitest"})
"""Names of caches that tools write into node_modules."""
LARGEST_COPIED_FILE = 1_000_000
"""Bytes up to which an ignored file is copied; a larger one is linked."""
MOST_COPIED_FILES = 20_000
MOST_COPIED_BYTES = 100_000_000
"""Files and bytes up to which an ignored folder is copied; a larger one is linked."""
_SEPARATORS = ("::", NAME_SEPARATOR, " ", ".", "#", "/")
"""Texts that stand between the parts of a test's id."""


@dataclass(frozen=True)
class EarlierResults:
    """The earlier results of tests that fail now, in the order of the report.

    `absent` did not exist or were not run. `unknown` says why nothing is known, else "". `by_id`
    is false if the runner names no tests. Then the whole suite was run, and `ok` and `report` are
    its result.
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
            ignored = await _lay_out_ignored(workspace, copy)
            watch = _prepare_watch(workspace, copy, scratch, ignored)
            selected = select_failing(command, report, copy.root) if report is not None else None
            run = await _run_existing_tests(selected or command, copy, say, watch)
            if run is None:
                absent = report.failing if report is not None else ()
                return EarlierResults(absent=absent, by_id=True)
            results = _results(run, report, watch, recognise_runner(command, copy.root))
            has_failed = bool(results.failed) if results.by_id else not results.ok
            if has_failed and not results.unknown and copy.sandbox is not None:
                hidden = await asyncio.to_thread(copy.sandbox.hidden_links)
                if hidden:
                    why = f"commands in the sandbox cannot read what {hidden[0]} links to"
                    return EarlierResults(unknown=why)
            return results
    except (StorageError, OSError) as error:
        return EarlierResults(unknown=f"the files as they were could not be laid out: {error}")


@dataclass(frozen=True)
class _IgnoredPaths:
    """The fate of the paths that git ignores: those linked into the copy, those that the copy
    lacks, and linked packages that load code of the repository itself.
    """

    linked: tuple[str, ...]
    missing: tuple[str, ...]
    loading: tuple[str, ...]


@dataclass(frozen=True)
class _RunWatch:
    """Tells whether a run tested the copy. With the environment `variables` a Python run writes the
    paths of the code that it loads to the file `loaded_code`.
    """

    variables: dict[str, str]
    loaded_code: Path
    ignored: _IgnoredPaths


@contextlib.contextmanager
def _scratch_folder(workspace: Workspace) -> Iterator[Path]:
    folder = report_folder(workspace)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="before-", dir=folder) as folder_name:
        yield Path(folder_name)


# --- the copy -------------------------------------------------------------------------------------


async def _lay_out_ignored(workspace: Workspace, copy: Workspace) -> _IgnoredPaths:
    """Link or copy the paths that git ignores into the copy."""
    assert workspace.history.snapshots is not None
    listing = ("ls-files", "-z", "-o", "-i", "--directory", "--exclude-standard", "--", ".")
    listed = split_names(await workspace.history.snapshots.git.run(*listing))
    names = [name.rstrip("/") for name in listed]
    names += [name for name in worktrees.ENVIRONMENTS if (workspace.root / name).is_dir()]
    return await asyncio.to_thread(_lay_out, workspace.root, copy.root, list(dict.fromkeys(names)))


def _lay_out(old: Path, new: Path, names: Sequence[str]) -> _IgnoredPaths:
    """Link or copy these paths from the folder `old` into the folder `new`."""
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
            packages = _lay_out_packages(source, target, old, new)
            loading += [f"{name}/{package}" for package in packages]
        elif _is_small_file(source):
            shutil.copy2(source, target)
        elif not _copy_folder(source, target, old, new):
            target.symlink_to(_link_target(source, old, new), target_is_directory=source.is_dir())
            linked.append(name)
    return _IgnoredPaths(tuple(linked), tuple(missing), tuple(loading))


def _is_small_file(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    return path.stat().st_size <= LARGEST_COPIED_FILE


def _copy_folder(source: Path, target: Path, old: Path, new: Path) -> bool:
    """Copy an ignored folder. Return False if it must be linked instead.

    Code in a linked folder may load the repository's code around it, as Composer's autoloader does,
    so folders are copied where possible. Files are copied and not hard-linked, because a test that
    writes into one would change the user's file. A virtual environment is linked, because its
    scripts name its folder.
    """
    is_environment = source.name in NEEDED - {VENDORED}
    if source.is_symlink() or is_environment or not _can_be_copied(source):
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


def _can_be_copied(folder: Path) -> bool:
    """Return whether a folder is small, holds only files and links and is no virtual environment."""
    count = size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            status = Path(parent, name).lstat()
            is_file_or_link = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
            if name == "pyvenv.cfg" or not is_file_or_link:
                return False
            count += 1
            size += status.st_size
            if count > MOST_COPIED_FILES or size > MOST_COPIED_BYTES:
                return False
    return True


def _lay_out_packages(source: Path, target: Path, old: Path, new: Path) -> list[str]:
    """Link each package of a node_modules folder.

    A link to a package of the repository leads into the copy. Packages that depend on such a
    package are copied, because node looks for their dependencies at their real path. Return those
    that had to be linked although they load the repository's own code.
    """
    packages = dict(_packages(source))
    own = {name for name, path in packages.items() if _is_own_code(path, old)}
    dependents = _dependents(packages, own)
    loading = []
    for name, path in packages.items():
        link = target / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if name in dependents and _copy_folder(path, link, old, new):
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
    """Return the packages that depend on one of the packages `own`, directly or not."""
    if not own:
        return set()
    others = {name: _dependencies(path) for name, path in packages.items() if name not in own}
    dependents: set[str] = set()
    while True:
        needed = own | dependents
        more = {name for name, dependencies in others.items() if dependencies & needed}
        if more <= dependents:
            return dependents
        dependents |= more


def _dependencies(package: Path) -> set[str]:
    """Return the names of the packages that a package needs to run, according to its manifest."""
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
    """Return the target of a link to `path`: the copy of the repository's own code if the path
    leads to it, else the path itself.
    """
    return new / path.resolve().relative_to(old) if _is_own_code(path, old) else path


# --- the run --------------------------------------------------------------------------------------


def _prepare_watch(
    workspace: Workspace, copy: Workspace, scratch: Path, ignored: _IgnoredPaths
) -> _RunWatch:
    """Prepare a run in the copy, so that Python loads the copy's code and says which code it loads,
    and builds leave the user's build folders alone.
    """
    report = scratch / "loaded"
    shutil.copy(loaded_code.__file__, scratch / "sitecustomize.py")
    note = {
        "old": str(workspace.root),
        "new": str(copy.root),
        "linked": ignored.linked,
        "report": str(report),
    }
    (scratch / "note.json").write_text(json.dumps(note), encoding="utf-8")
    python_path = str(scratch)
    if users_path := os.environ.get("PYTHONPATH", ""):
        python_path += os.pathsep + users_path
    variables = {
        "PYTHONPATH": python_path,
        "UV_NO_SYNC": "1",
        "CARGO_TARGET_DIR": str(workspace.store / "cargo-target"),
    }
    return _RunWatch(variables, report, ignored)


NOT_FOUND = 4
"""pytest's exit code if a given test does not exist."""
_NOT_FOUND = re.compile(
    r"^ERROR: (?:not found: (?P<id>.+?)(?:\s*$| \()|file or directory not found: (?P<file>.+)$)",
    re.M,
)


async def _run_existing_tests(
    command: str, copy: Workspace, say: Say, watch: _RunWatch
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
    run: SuiteRun | ToolResult,
    report: TestReport | None,
    watch: _RunWatch,
    invocation: Invocation | None,
) -> EarlierResults:
    """Return the results of the run for the tests that fail in `report`, the present one."""
    if isinstance(run, ToolResult):
        return EarlierResults(unknown=run.text)
    if doubt := _doubt(run, watch, invocation):
        return EarlierResults(unknown=doubt)
    if run.report is not None and run.report.unable:
        return EarlierResults(unknown=f"on the files as they were {run.report.unable}")
    if report is None or not report.by_id:
        return EarlierResults(ok=run.ok, report=run.report)
    if run.results is None:
        code = f"exit code {run.ended.code}"
        return EarlierResults(
            unknown=f"on the files as they were the tests could not be run, or told apart ({code})",
            ok=run.ok,
        )
    by_outcome: dict[str, list[str]] = {"failed": [], "passed": [], "absent": []}
    for name in report.failing:
        by_outcome[_earlier_outcome(name, run.results)].append(name)
    if by_outcome["failed"]:
        needed = _missing_build(run.ended.output, watch.ignored.missing)
        if needed:
            why = f"they may need {needed}, which is built and was not there before"
            return EarlierResults(unknown=why, ok=run.ok)
    return EarlierResults(
        failed=tuple(by_outcome["failed"]),
        passed=tuple(by_outcome["passed"]),
        absent=tuple(by_outcome["absent"]),
        by_id=True,
        ok=run.ok,
        report=run.report,
    )


def _doubt(run: SuiteRun, watch: _RunWatch, invocation: Invocation | None) -> str:
    """Return why the run may not have tested the copy, "" if it did."""
    if run.ended.code is None:
        return f"on the files as they were the tests did not end within {run.ended.seconds:.0f} s"
    loaded: list[str] = []
    with contextlib.suppress(OSError):  # without the file nothing was reported
        loaded = watch.loaded_code.read_text("utf-8", "replace").splitlines()
    if wrong := [line for line in loaded if line != loaded_code.BEGUN]:
        return (
            f"the tests load the code from the repository itself, wherever they are run "
            f"({wrong[0]})"
        )
    vendored = [name for name in watch.ignored.linked if Path(name).name == VENDORED]
    if linked := [*vendored, *watch.ignored.loading]:
        return f"{linked[0]} is only linked to, and may load the code of the repository itself"
    if invocation is not None and invocation.kind in {"pytest", "unittest"} and not loaded:
        return "it cannot be told which code the tests loaded"
    return ""


def _earlier_outcome(name: str, results: TestOutcomes) -> str:
    """Return `failed`, `passed` or `absent`. A name that has no result of its own may be inside a
    file that could not be loaded, or be a file or class with tests in it.
    """
    outcome = results.get(name)
    if outcome is not None:
        return outcome if outcome in {"failed", "passed"} else "absent"
    for test, result in results.items():
        if result == "failed" and _is_inside(name, test):
            return "failed"
    inner_results = {result for test, result in results.items() if _is_inside(test, name)}
    for result in ("passed", "failed"):
        if result in inner_results:
            return result
    return "absent"


def _is_inside(name: str, outer: str) -> bool:
    """Return whether the id `name` names a part of the file, class or test `outer`."""
    return any(name.startswith(outer + separator) for separator in _SEPARATORS)


def _missing_build(output: str, missing: Sequence[str]) -> str:
    """Return the first of the missing paths that the output mentions, "" for none."""
    for name in missing:
        if Path(name).name in {"__pycache__", "target"}:
            continue
        if re.search(rf"(?<![\w.-]){re.escape(name)}\b", output):
            return name
    return ""


SHOWN = 50
"""The most names in one list of tests."""


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
    their earlier outcomes are known.
    """
    removed = await _removed_tests(arguments.edited, workspace)
    removed_text = _name_list("Removed by this request:", removed)
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


async def _removed_tests(edited: Sequence[FileChange], workspace: Workspace) -> tuple[str, ...]:
    """Return the names of the tests that the changes removed."""
    texts: dict[str, str] = {}
    for change in edited:
        for blob in (change.before, change.after):
            if blob is not None and blob not in texts:
                data = await workspace.history.blob(blob)
                texts[blob] = data.decode("utf-8", "replace")
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
        _name_list("Passed before this request and fail now:", before.passed),
        _name_list("Failed before this request as well:", before.failed),
        _name_list("Did not exist before this request:", before.absent),
    ]
    return [text for text in texts if text]


def _name_list(heading: str, names: Sequence[str]) -> str:
    """Return the names below a heading, "" if there are none."""
    if not names:
        return ""
    lines = [heading, *(f"  {name}" for name in names[:SHOWN])]
    if len(names) > SHOWN:
        lines.append(f"  and {len(names) - SHOWN} more")
    return "\n".join(lines)


TESTS_BEFORE = Tool.of(tool_facts.TESTS_BEFORE, TestsBeforeArguments, tests_before)
