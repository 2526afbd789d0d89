"""run_tests: the project's tests, with what fails told briefly.

fugu itself runs it as evidence, agents may. `ok` is the exit code: the tests judge, not the text.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from fugu_cli.events import TestReport
from fugu_cli.policy import paths
from fugu_cli.test_paths import is_test
from fugu_cli.tools import Tool, tree
from fugu_cli.tools.bash import outcome
from fugu_cli.tools.failures import LIMIT, digest, placed, shown_at, statement
from fugu_cli.tools.files import Given
from fugu_cli.tools.process import Around, Ended, run_command
from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.runner_reports import Reporting, Results, report, reporting, results, without_mention
from fugu_cli.tools.runners import recognise
from fugu_cli.tools.tests import runner
from fugu_cli.tools.workspace import Workspace

_MAVEN = re.compile(r"(?<![\w.-])(?:mvnw|mvnd|mvn)(?=\s)")
_BY_NAME = (".java", ".kt", ".scala")
"""Endings of files that a stack names without their folders."""
NONE_FOUND = (
    "No test command was found in this repository (pytest, unittest, cargo, npm, node, go, Maven, Gradle, dotnet, make "
    "and others). "
    "Start fugu with --test-command to name one."
)


class RunTests(Given):
    """Arguments of run_tests."""

    target: str = Field(default="", description="only this file or test id (pytest)")
    seconds: SkipJsonSchema[float | None] = None
    """At most so long, where that is less than the user allows."""


async def run_tests(given: RunTests, workspace: Workspace, say: Say) -> Result:
    """Run the tests, all or (pytest) one target."""
    command, note = workspace.test_command, ""
    limit = min(workspace.test_timeout, given.seconds or workspace.test_timeout)
    if command is None:
        return Result(text=NONE_FOUND, ok=False)
    if given.target:
        if runner(command) == "pytest":
            if (fault := _fault(given.target, workspace)) is not None:
                return fault
            command = f"{command} {shlex.quote(given.target)}"
        else:
            note = f"\n(target is for pytest; all tests were run with `{command}`)"
    ran = await run_suite(command, workspace, limit, say)
    return ran if isinstance(ran, Result) else ran.told(workspace, limit, note)


@dataclass(frozen=True)
class Ran:
    """A test command that was run: how it ended, and what is known of its tests."""

    command: str
    ended: Ended
    results: Results | None

    @property
    def ok(self) -> bool:
        return self.ended.code == 0

    @property
    def report(self) -> TestReport | None:
        """None where it did not come to an end, and where neither a report nor the output tells."""
        return None if self.ended.code is None else report(self.results, self.ended.output, ok=self.ok)

    def told(self, workspace: Workspace, limit: float, note: str = "") -> Result:
        """What an agent gets."""
        ok, command = self.ok, self.command
        said = workspace.whole_secrets(self.ended.output, LIMIT)
        told = digest(said, command, str(workspace.root), ok=ok) or "(no output)"
        if not ok and runner(command) in {"node", "maven"}:
            told = shown_at(told, {number: _source(workspace, path, line) for number, path, line in placed(told)})
        how = "" if ok else f"\n{outcome(self.ended, limit)}"
        return Result(text=f"{told}{how}{note}", ok=ok, tests=self.report)


async def run_suite(
    command: str, workspace: Workspace, limit: float, say: Say, variables: Mapping[str, str] | None = None
) -> Ran | Result:
    """Run a test command for at most `limit` seconds, and have its runner report; a Result where it cannot start.

    A runner that refuses the options for that is run again without them.
    """
    box, root = workspace.box, workspace.root
    if box is not None and box.offline:
        command = without_network(command)
    try:
        reports_folder(workspace).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="report-", dir=reports_folder(workspace)) as folder:
            invocation = recognise(command, root)
            asked = reporting(invocation, root, Path(folder)) if invocation is not None else None
            around = Around({**_environment(workspace), **(variables or {})}, box)
            if asked is None:
                return Ran(command, await run_command(command, root, limit, say, around), None)
            ended = await _reported(asked, workspace, limit, say, around)
            if asked.refused(ended.output) and ended.code:
                return Ran(command, await run_command(command, root, limit, say, around), None)
            found = results(asked, ended.output, root)
            return Ran(command, replace(ended, output=without_mention(asked, ended.output)), found)
    except OSError as error:
        return Result(text=f"The tests could not be started: {error.strerror}.", ok=False)


def reports_folder(workspace: Workspace) -> Path:
    """A folder outside the repository that commands may write."""
    return workspace.box.cache if workspace.box is not None else workspace.store / "cache"


async def _reported(asked: Reporting, workspace: Workspace, limit: float, say: Say, around: Around) -> Ended:
    events = asked.events
    around = replace(around, variables={**around.variables, **asked.variables})
    if events is None:
        return await run_command(asked.command, workspace.root, limit, say, around)
    ended = await run_command(asked.command, workspace.root, limit, say, replace(around, through=events.take))
    return replace(ended, output=ended.output + events.rest())


def without_network(command: str) -> str:
    """The command, where it is Maven's, told that there is no network: else it looks there for what nothing needs, and
    fails. (Before 3.9 no variable of the environment says it.)"""
    words = command.split()
    if runner(command) != "maven" or {"-o", "--offline"} & set(words):
        return command
    return _MAVEN.sub(r"\g<0> -o", command, count=1)


def _source(workspace: Workspace, path: str, line: int) -> str:
    """The statement at this line of a test in the repository, "" of any other file: some may be kept from agents."""
    same = tree.Index(workspace.root).ending(path, most=1) if path.endswith(_BY_NAME) else []
    found = same[0] if same else paths.locate(path, workspace.root)
    if not isinstance(found, Path) or not paths.inside(found, workspace.root):
        return ""
    if not is_test(found.relative_to(workspace.root).as_posix()):
        return ""
    try:
        return statement(found.read_text(encoding="utf-8").split("\n"), line)
    except (OSError, ValueError):
        return ""


def _fault(target: str, workspace: Workspace) -> Result | None:
    """A target is a file or test in the repository, never an option."""
    path = paths.locate(target.partition("::")[0], workspace.root)
    if target.startswith("-") or not isinstance(path, Path) or not paths.inside(path, workspace.root):
        return Result(text=f"`{target}` is not a test file or test id in this repository.", ok=False)
    if not paths.there(path):
        return Result(text=f"There is no test file {target.partition('::')[0]}.", ok=False)
    return None


def _environment(workspace: Workspace) -> dict[str, str | None]:
    """Short backtraces, and no endless comparisons: with CI set, pytest shows them whole.

    A first cargo build does not fill the repository with its target folder. Tests may stand in bare repositories.
    """
    more: dict[str, str | None] = {"RUST_BACKTRACE": "0", "GIT_CONFIG_COUNT": os.environ.get("GIT_CONFIG_COUNT")}
    if runner(workspace.test_command or "") == "pytest":
        more["CI"] = None
    if not (workspace.root / "target").exists():
        more["CARGO_TARGET_DIR"] = str(workspace.store / "cargo-target")
    return more


RUN_TESTS = Tool(name="run_tests", effect="runs", arguments=RunTests, run=run_tests)
