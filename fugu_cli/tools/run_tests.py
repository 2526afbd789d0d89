"""run_tests: the project's tests, with failures in short: the failing assertions, and the counts.

fugu runs it as evidence, agents may run it. `ok` is the exit code: the tests judge, not the text.
Figures that differ from run to run (seconds, addresses, temporary folders) are removed, so that
equal runs read equal.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from fugu_cli.safety import paths
from fugu_cli.session import tool_facts
from fugu_cli.session.events import TestReport
from fugu_cli.session.recognized_tests import is_test
from fugu_cli.snapshots import repository_files
from fugu_cli.testing.runner_commands import recognise_runner
from fugu_cli.testing.runner_discovery import output_format
from fugu_cli.testing.unable_runs import reason_not_run
from fugu_cli.tools.bash import describe_exit
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult, truncate, truncate_start
from fugu_cli.tools.shell_commands import CommandContext, CommandResult, run_command
from fugu_cli.tools.workspace import Tool, Workspace

if TYPE_CHECKING:
    from fugu_cli.testing.runner_results import ReportingCommand, TestOutcomes

DIGEST_LIMIT = 3000
"""Characters of a digest."""
FIRST_FAILURE, OTHER_FAILURES = 1600, 320
"""Characters of the first failure, and of each further one."""
MOST_FAILURES = 6
"""Failures told; of the others the number."""
MOST_LISTED = 50
"""Failing tests that are listed before the details."""
PLACES, STATEMENT = 4, 6
"""Places whose source is shown where a runner names them only, and lines of one statement."""
COMPARED = 12
"""Lines of one assertion's explanation."""


@dataclass(frozen=True)
class OutputPatterns:
    """Patterns of a test runner's output: start and end of a failure, lines that count, lines that
    only name.
    """

    starts: str
    ends: str
    counts: str
    names: str = r"(?!)"


OUTPUT_PATTERNS = {
    "pytest": OutputPatterns(
        r"_{3,} .+ _{3,}$",
        r"={3,} .* ={3,}$|\d+ (failed|passed|errors?)\b",
        r"=*\s*(no tests ran|.*\d+ (failed|passed|errors?|skipped|deselected)\b)|ERROR: ",
        r"(FAILED|ERROR) ",
    ),
    "unittest": OutputPatterns(
        r"(FAIL|ERROR): ", r"Ran \d+ tests?", r"Ran \d+ tests?|(FAILED|OK)\b"
    ),
    "cargo": OutputPatterns(
        r"error(\[E\d+\])?: |---- .* ----$",
        r"failures:$|test result:|For more information|error: could not compile|error: test "
        r"failed|warning: ",
        r"test result:|error: could not compile",
        r"test .* FAILED$",
    ),
    "nextest": OutputPatterns(
        r"error(\[E\d+\])?: (?!test run failed)| +(TRY \d+ )?(FAIL|ABORT|SIG\w+|TIMEOUT) ",
        r"For more information|error: |warning: | +(PASS|LEAK|FLAKY|SKIP|SLOW|Summary) |─+$",
        r" +Summary |error: could not compile",
        r" +(FAIL|ABORT|SIG\w+|TIMEOUT) ",
    ),
    "go": OutputPatterns(
        r"\s*--- FAIL:|# |panic: ", r"(FAIL|ok|PASS|exit status)\b|=== ", r"\s*--- FAIL|(FAIL|ok)\s"
    ),
    "maven": OutputPatterns(
        r"(?:\[ERROR\] )?(?!Tests run:)\S.*<<< (?:FAILURE|ERROR)!\s*$|\[ERROR\] \S+:\[\d+,\d+\] ",
        r"\[(?:INFO|WARNING|ERROR)\](?!.*<<< (?:FAILURE|ERROR)!\s*$)(?! \S+:\[\d+,\d+\] )|Tests "
        r"run:|Results ?:",
        r"(?:\[\w+\] )?Tests run: \d+, Failures: \d+, Errors: \d+, Skipped: \d+\s*$|\[ERROR\] "
        r"COMPILATION ERROR",
        r"\[ERROR\] +\S+:\d+ ",
    ),
    "node": OutputPatterns(
        r"\s*not ok \d+|  ● |\s+\d+\) ",
        r"\s*(ok \d+|1\.\.\d)|\s*\.\.\.$|# |Test Suites:|Tests:",
        r"# (pass|fail|tests) |Tests?:? .*\d|.*\d+ (passing|failing)",
        r"\s*not ok \d+",
    ),
}
NO_PATTERNS = OutputPatterns(r"(?!)", r"(?!)", r"(?!)")

_NOISE = re.compile(
    r"\s*(at )?.*\(?node:\w|\s*duration_ms|# (duration_ms|suites|cancelled|todo)|\s+at /rustc/"
    r"|\s+at (java\.base|jdk\.|sun\.|org\.(junit|opentest4j|apache\.maven|assertj|hamcrest))"
    r"|\s+\^+\s*$|\s+\d+: (core|std|__rustc|rust_begin)|note: (Some details are omitted|run with "
    r"`RUST_BACKTRACE)"
)
_VARYING = (
    (re.compile(r" in \d+(\.\d+)?s( \(\d+:\d\d:\d\d\))?(?= =|$)"), ""),
    (re.compile(r"^(Ran \d+ tests?) in [\d.]+s$"), r"\1"),
    (re.compile(r"; finished in [\d.]+s$"), ""),
    (re.compile(r" \[ *[\d.]+s\](?: \( *\d+/\d+\))?"), ""),
    (re.compile(r"(?: --|,)?\s+Time elapsed: [\d.]+ s(?:ec)?\b"), ""),
    (re.compile(r" \(\d+\.\d+s\)$|\t\d+\.\d+s$"), ""),
    (re.compile(r"([_=-])\1{5,}"), r"\1\1\1\1\1"),
    (re.compile(r"(_ ){5,}_?\s*$"), "_ _ _"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "0x..."),
    (re.compile(r"(/pytest-of-\w+/pytest-)\d+/"), r"\1N/"),
)


def digest_output(
    output: str, command: str, root: str, *, ok: bool, limit: int = DIGEST_LIMIT
) -> str:
    """Return the essential lines of `output` for an agent, in about `limit` characters. Paths in
    `root` become relative.
    """
    output_lines = output.replace(f"{root}/", "").split("\n")
    lines = [_without_varying(line) for line in output_lines if not _NOISE.match(line)]
    patterns = OUTPUT_PATTERNS.get(output_format(command)) or _recognise_patterns(lines)
    counts = list(dict.fromkeys(line for line in lines if re.match(patterns.counts, line)))
    if ok:
        return truncate_start("\n".join(counts[-3:] or lines).strip(), limit // 4)
    failures = _failures(lines, patterns)
    if failures:
        return _join_failures(failures, counts, limit)
    text = "\n".join(lines).strip()
    if len(text) <= limit:
        return text
    names = [line for line in lines if re.match(patterns.names, line)]
    tail = truncate_start(text, limit * 2 // 3)
    more = "\n".join(line for line in [*names[:MOST_FAILURES], *counts[-3:]] if line not in tail)
    return f"{tail}\n{truncate(more, limit // 3)}" if more else tail


def unshown_places(digest: str) -> list[tuple[int, str, int]]:
    """Return the places that a digest of node's or Maven's tests names without showing their
    source: line number in the digest, path, line of the file.
    """
    lines = digest.split("\n")
    if any(_FRAMED.match(line) for line in lines):
        return []
    places: list[tuple[int, str, int]] = []
    for number, line in enumerate(lines):
        match = _SCRIPT.search(line) or _STACK.match(line)
        if match:
            places.append((number, match.group(1), int(match.group(2))))
    return places[:PLACES]


def insert_sources(digest: str, sources: Mapping[int, str]) -> str:
    """Insert the source lines into the digest, by line number."""
    lines: list[str] = []
    for number, line in enumerate(digest.split("\n")):
        lines.append(line)
        if source := sources.get(number):
            lines.append(f"      > {source}")
    return "\n".join(lines)


def statement_at(lines: Sequence[str], line: int) -> str:
    """Return the statement that begins on this line (from 1), up to its closing bracket."""
    statement = ""
    for text in lines[line - 1 : line - 1 + STATEMENT]:
        statement = f"{statement} {text.strip()}".strip()
        if statement.count("(") <= statement.count(")"):
            break
    return truncate(statement, OTHER_FAILURES // 2)


def _without_varying(line: str) -> str:
    """Return the text without figures that differ from run to run."""
    for varying, replacement in _VARYING:
        line = varying.sub(replacement, line)
    return line.rstrip()


def _recognise_patterns(lines: Sequence[str]) -> OutputPatterns:
    """Return the patterns that match the most failures, for commands that do not name their runner."""
    best, most_failures = NO_PATTERNS, 0
    for patterns in OUTPUT_PATTERNS.values():
        failures = sum(bool(re.match(patterns.starts, line)) for line in lines)
        if failures > most_failures:
            best, most_failures = patterns, failures
    if any(re.match(best.counts, line) for line in lines):
        return best
    return NO_PATTERNS


def _failures(lines: Sequence[str], patterns: OutputPatterns) -> list[list[str]]:
    """Return the lines of each failure."""
    failures: list[list[str]] = []
    inside = False
    for line in lines:
        if re.match(patterns.ends, line):
            inside = False
        elif re.match(patterns.starts, line):
            failures.append([line])
            inside = True
        elif inside:
            failures[-1].append(line)
    return failures


def _join_failures(failures: Sequence[Sequence[str]], counts: Sequence[str], limit: int) -> str:
    """Return the first failure at length, others in short, then the lines with counts."""
    if len(counts) > MOST_FAILURES:
        counts = [*counts[:MOST_FAILURES], counts[-1]]
    closing = [line if len(line) <= 200 else line[:200] + "..." for line in counts]
    remaining = limit - sum(len(line) + 1 for line in closing)
    parts: list[str] = []
    for index, failure in enumerate(failures):
        part = _brief(failure) if index else _shorten(failure, FIRST_FAILURE)
        if part in parts:
            continue
        if parts and (len(part) > remaining or len(parts) == MOST_FAILURES):
            parts.append(f"[... {len(failures) - index} more failures]")
            break
        parts.append(part)
        remaining -= len(part) + 1
    parts += [line for line in closing if line not in parts]
    return "\n".join(parts)


def _brief(failure: Sequence[str]) -> str:
    """Shorten a further failure to its name, arguments, assertion and place."""
    text = "\n".join(line for line in failure if line.strip())
    assertion = [line for line in failure if line.startswith("E ")]
    if len(text) <= OTHER_FAILURES or not assertion:
        return truncate(text, OTHER_FAILURES)
    lines = [failure[0]]
    lines += [line for line in failure[1:4] if re.match(r"(?!self)\w+ = ", line)]
    lines += assertion[:2]
    lines += [line for line in failure if _PLACE.match(line)][-1:]
    most = OTHER_FAILURES // 2
    return "\n".join(line if len(line) <= most else line[:most] + "..." for line in lines)


_SCRIPT = re.compile(r"(?:^|[\s(])((?:[\w.@+-]+/)*[\w.@+-]+\.[cm]?[jt]sx?):(\d+):\d+\)?$")
_STACK = re.compile(r"\s+at [\w.$/]+\((\w+\.(?:java|kt|scala)):(\d+)\)$")
_FRAMED = re.compile(r"\s*>?\s*\d+ \| ")
_PLACE = re.compile(r"\S+:\d+: ")


def _shorten(failure: Sequence[str], limit: int) -> str:
    """Shorten a failure to `limit` characters, keeping its head, the assertion and its place."""
    captured = len(failure)
    for index, line in enumerate(failure):
        if re.match(r"-{3,} Captured ", line):
            captured = index
            break
    whole = _shorten_comparisons("\n".join(failure).strip("\n").split("\n"))
    if len("\n".join(whole)) <= limit:
        return "\n".join(whole)
    own = _shorten_comparisons("\n".join(failure[:captured]).strip("\n").split("\n"))
    if len("\n".join(own)) <= limit:
        return "\n".join(own)
    key = [i for i, line in enumerate(own) if re.match(r">|E ", line) or _PLACE.match(line)]
    if not key:
        return truncate("\n".join(own), limit)
    shown = {0, *key}
    for index in key:
        if own[index].startswith(">"):
            shown.update(range(max(index - 6, 1), index))
    return truncate("\n".join(_mark_gaps(own, sorted(shown))), limit)


def _shorten_comparisons(lines: Sequence[str]) -> list[str]:
    """Keep at most `COMPARED` lines of each explanation: comparisons of long lists go on for pages."""
    kept: list[str] = []
    length = 0
    for line in lines:
        length = length + 1 if line == "E" or line.startswith("E ") else 0
        if length <= COMPARED:
            kept.append(line)
        elif length == COMPARED + 1:
            kept.append("E     ...")
    return kept


def _mark_gaps(lines: Sequence[str], indexes: Sequence[int]) -> list[str]:
    """Return the lines at the indexes, with a mark for gaps."""
    marked: list[str] = []
    before = -1
    for index in indexes:
        if index != before + 1:
            marked.append("    ...")
        marked.append(lines[index])
        before = index
    return marked


_MAVEN = re.compile(r"(?<![\w.-])(?:mvnw|mvnd|mvn)(?=\s)")
_BY_NAME = (".java", ".kt", ".scala")
"""Endings of files that a stack names without their folders."""
NONE_FOUND = (
    "No test command was found in this repository (pytest, unittest, cargo, npm, node, go, "
    "Maven, Gradle, dotnet, make "
    "and others). "
    "Start fugu with --test-command to name one."
)


def _joined_targets(value: object) -> object:
    """Return a list of targets as one line."""
    if isinstance(value, list) and all(isinstance(target, str) for target in value):
        return shlex.join(value)
    return value


class RunTestsArguments(ToolArguments):
    """Arguments of run_tests."""

    target: Annotated[str, BeforeValidator(_joined_targets)] = Field(
        default="", description="only these files or test ids (pytest)"
    )
    change: SkipJsonSchema[str] = ""
    """The copy whose tests are run, where an agent chooses one of several changes; its prompt says
    so.
    """
    seconds: SkipJsonSchema[float | None] = None
    """At most so long, where that is less than the user allows."""


async def run_tests(arguments: RunTestsArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Run the tests, all or (pytest) one target."""
    if arguments.change:
        copy = workspace.copies.get(arguments.change)
        if copy is None:
            names = ", ".join(workspace.copies)
            there_are = f"The copies are {names}" if names else "There are no copies to choose from"
            text = f"There is no copy `{arguments.change}`. {there_are}."
            return _not_run(text, "there is no such copy")
        workspace = copy
    command, note = workspace.test_command, ""
    limit = min(workspace.test_timeout, arguments.seconds or workspace.test_timeout)
    if command is None:
        return _not_run(NONE_FOUND, "no test command was found")
    if arguments.target:
        if output_format(command) == "pytest":
            targets = _split_targets(arguments.target, workspace)
            for target in targets:
                if (fault := _fault(target, workspace)) is not None:
                    return fault
            command = f"{command} {shlex.join(targets)}"
        else:
            note = f"\n(target is for pytest alone: `{command}` was run without it)"
    suite = await run_suite(command, workspace, limit, say)
    if isinstance(suite, ToolResult):
        return suite
    return suite.tool_result(workspace, limit, note)


@dataclass(frozen=True)
class SuiteRun:
    """A finished test command and the results of its tests."""

    command: str
    ended: CommandResult
    results: TestOutcomes | None

    @property
    def ok(self) -> bool:
        return self.ended.code == 0

    @property
    def report(self) -> TestReport | None:
        """Return the counts, or why nothing was run; None if the run gives neither."""
        from fugu_cli.testing.runner_results import summarise_results

        counts = summarise_results(self.results, self.ended.output, ok=self.ok)
        unable = reason_not_run(
            self.ended.code,
            self.ended.output,
            self.ended.seconds,
            output_format(self.command),
            counted=counts is not None and bool(counts.passed or counts.failed),
        )
        return TestReport(unable=unable) if unable else counts

    def tool_result(self, workspace: Workspace, limit: float, note: str = "") -> ToolResult:
        """Return the result for an agent."""
        output = workspace.whole_secrets(self.ended.output, DIGEST_LIMIT)
        digest = digest_output(output, self.command, str(workspace.root), ok=self.ok)
        if not digest:
            digest = "(no output)"
        if not self.ok and output_format(self.command) in {"node", "maven"}:
            sources: dict[int, str] = {}
            for number, path, line in unshown_places(digest):
                sources[number] = _source(workspace, path, line)
            digest = insert_sources(digest, sources)
        end = "" if self.ok else f"\n{describe_exit(self.ended, limit)}"
        report = self.report
        failing = _failing_list(report) if report is not None else ""
        return ToolResult(
            text=f"{failing}{digest}{end}{note}",
            ok=self.ok,
            tests=report,
            restored=self.ended.restored,
        )


def _failing_list(report: TestReport) -> str:
    """Return the ids of the failing tests, one on each line, "" unless there are several."""
    ids = report.failing
    if len(ids) < 2:
        return ""
    more = f"[... {len(ids) - MOST_LISTED} more]\n" if len(ids) > MOST_LISTED else ""
    listed = "".join(f"  {truncate(id, 200)}\n" for id in ids[:MOST_LISTED])
    return f"{len(ids)} tests fail:\n{listed}{more}\n"


async def run_suite(
    command: str,
    workspace: Workspace,
    limit: float,
    say: Say,
    variables: Mapping[str, str] | None = None,
) -> SuiteRun | ToolResult:
    """Run a test command for at most `limit` seconds with options that make its runner report.
    Return a ToolResult if it cannot start.

    A runner that refuses these options is run again without them.
    """
    from fugu_cli.testing import runner_results

    sandbox, root = workspace.sandbox, workspace.root
    if sandbox is not None and sandbox.offline:
        command = without_network(command)
    try:
        report_folder(workspace).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="report-", dir=report_folder(workspace)) as folder:
            invocation = recognise_runner(command, root)
            reporting = None
            if invocation is not None:
                reporting = runner_results.with_report(invocation, root, Path(folder))
            context = CommandContext({**_environment(workspace), **(variables or {})}, sandbox)
            if reporting is not None:
                ended = await _run_reporting(reporting, workspace, limit, say, context)
                if not (reporting.refused(ended.output) and ended.code):
                    shown = runner_results.without_report_lines(reporting, ended.output)
                    results = runner_results.read_results(reporting, ended.output, root)
                    return SuiteRun(command, replace(ended, output=shown), results)
            ended = await run_command(command, root, limit, say, context)
            return SuiteRun(command, ended, None)
    except OSError as error:
        return _not_run(f"The tests could not be started: {error.strerror}.", str(error.strerror))


def report_folder(workspace: Workspace) -> Path:
    """Return a folder outside the repository that commands may write."""
    return workspace.sandbox.cache if workspace.sandbox is not None else workspace.store / "cache"


async def _run_reporting(
    reporting: ReportingCommand,
    workspace: Workspace,
    limit: float,
    say: Say,
    context: CommandContext,
) -> CommandResult:
    variables = {**context.variables, **reporting.variables}
    context = replace(context, variables=variables)
    events = reporting.events
    if events is None:
        return await run_command(reporting.command, workspace.root, limit, say, context)
    context = replace(context, through=events.take)
    ended = await run_command(reporting.command, workspace.root, limit, say, context)
    return replace(ended, output=ended.output + events.rest())


def without_network(command: str) -> str:
    """Add the offline option to a Maven command, which would otherwise look for things that it does
    not need, and fail.

    Before 3.9 no environment variable can say this.
    """
    words = command.split()
    if output_format(command) != "maven" or {"-o", "--offline"} & set(words):
        return command
    return _MAVEN.sub(r"\g<0> -o", command, count=1)


def _source(workspace: Workspace, path: str, line: int) -> str:
    """Return the statement at this line of a test in the repository; "" for other files, because
    some may be kept from agents.
    """
    file = paths.locate(path, workspace.root)
    if path.endswith(_BY_NAME):
        same_name = repository_files.FileIndex(workspace.root).ending(path, most=1)
        file = same_name[0] if same_name else file
    if not isinstance(file, Path) or not paths.inside(file, workspace.root):
        return ""
    if not is_test(file.relative_to(workspace.root).as_posix()):
        return ""
    try:
        return statement_at(file.read_text(encoding="utf-8").split("\n"), line)
    except (OSError, ValueError):
        return ""


def _split_targets(text: str, workspace: Workspace) -> list[str]:
    """Return the targets in a text. One whose name or parameters hold blanks stays whole."""
    if text.startswith("-"):
        return [text]
    try:
        words = shlex.split(text) or [text]
    except ValueError:
        words = [text]
    every_word_is_a_target = all(_fault(word, workspace) is None for word in words)
    return words if every_word_is_a_target or _fault(text, workspace) is not None else [text]


def _fault(target: str, workspace: Workspace) -> ToolResult | None:
    """Return why a target is not a file or test in the repository, or None. It is never an option."""
    path = paths.locate(target.partition("::")[0], workspace.root)
    if (
        target.startswith("-")
        or not isinstance(path, Path)
        or not paths.inside(path, workspace.root)
    ):
        text = f"`{target}` is not a test file or test id in this repository."
        return _not_run(text, "their target is no test")
    if not paths.path_exists(path):
        text = f"There is no test file {target.partition('::')[0]}."
        return _not_run(text, "their target does not exist")
    return None


def _not_run(text: str, why: str) -> ToolResult:
    unable = f"the tests could not be run: {why}"
    return ToolResult(text=text, ok=False, tests=TestReport(unable=unable))


def _environment(workspace: Workspace) -> dict[str, str | None]:
    """Return environment variables for short tracebacks and comparisons (pytest shows them whole if
    CI is set), for a build folder of cargo outside the repository, and for tests that use bare
    repositories.
    """
    variables: dict[str, str | None] = {
        "RUST_BACKTRACE": "0",
        "GIT_CONFIG_COUNT": os.environ.get("GIT_CONFIG_COUNT"),
    }
    if output_format(workspace.test_command or "") == "pytest":
        variables["CI"] = None
    if not (workspace.root / "target").exists():
        variables["CARGO_TARGET_DIR"] = str(workspace.store / "cargo-target")
    return variables


RUN_TESTS = Tool.of(tool_facts.RUN_TESTS, RunTestsArguments, run_tests)
