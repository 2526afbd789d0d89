"""run_tests: the project's tests, with what fails told briefly.

fugu itself runs it as evidence, agents may. `ok` is the exit code: the tests judge, not the text.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from fugu_cli.policy import paths
from fugu_cli.tools import Result, Say, Tool, tree
from fugu_cli.tools.bash import outcome
from fugu_cli.tools.failures import LIMIT, digest, placed, shown_at, statement
from fugu_cli.tools.files import Given
from fugu_cli.tools.process import Around, run_command
from fugu_cli.tools.relevant_files import is_test
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
    if workspace.box is not None and workspace.box.offline:
        command = without_network(command)
    try:
        around = Around(_environment(workspace), workspace.box)
        ended = await run_command(command, workspace.root, limit, say, around)
    except OSError as error:
        return Result(text=f"The tests could not be started: {error.strerror}.", ok=False)
    ok = ended.code == 0
    said = workspace.whole_secrets(ended.output, LIMIT)
    told = digest(said, command, str(workspace.root), ok=ok) or "(no output)"
    if not ok and runner(command) in {"node", "maven"}:
        told = shown_at(told, {number: _source(workspace, path, line) for number, path, line in placed(told)})
    how = "" if ok else f"\n{outcome(ended, limit)}"
    return Result(text=f"{told}{how}{note}", ok=ok)


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
    if not isinstance(found, Path) or not paths.inside(found, workspace.root) or not is_test(found, workspace.root):
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
