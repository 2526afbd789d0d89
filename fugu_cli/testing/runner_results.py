"""The result of each test of a run, by the name its runner gives it.

Between runner_commands.py, which knows the command, and run_tests. A runner that can write a report
into a file is asked to; of the others the output is read. Only complete results are returned: what
cannot be told is None. A selection may hold more tests than were asked for, never fewer.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from pydantic import BaseModel

from fugu_cli.session import recognized_tests
from fugu_cli.session.events import MOST_FAILING, TestReport
from fugu_cli.snapshots import repository_files
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.testing.runner_commands import NAME_SEPARATOR, Invocation

_CHATTER = re.compile(r"=== (?:RUN|PAUSE|CONT|NAME)\b|PASS$")
_UNBUILT = re.compile(r"^FAIL\t(\S+) \[\w+ failed\]")
"""Before Go 1.24 no event says that a package could not be built."""
_VERDICT = re.compile(r"\s*--- (?:FAIL|PASS|SKIP)")
_GO_RESULTS: dict[str, Literal["passed", "failed", "skipped"]] = {
    "pass": "passed",
    "fail": "failed",
    "skip": "skipped",
}


class GoEvents:
    """A stream of events. `results` has each finished test by `PACKAGE TEST`, and failed packages
    by their name.
    """

    def __init__(self) -> None:
        self.results: dict[str, Literal["passed", "failed", "skipped"]] = {}
        self.broken: list[str] = []
        """Packages that failed, whatever their tests say."""
        self._rest = b""
        self._outputs: dict[str, list[str]] = {}

    def take(self, data: bytes) -> bytes:
        """Add a piece of the stream and return the text in it. Lines that are no events are
        returned as they are.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        return b"".join(self._text(line) for line in lines)

    def rest(self) -> str:
        """Return the text of an unfinished last line and of interrupted tests."""
        last = self._text(self._rest) if self._rest else b""
        outputs = "".join(_ordered(lines) for lines in self._outputs.values())
        self._rest, self._outputs = b"", {}
        return last.decode("utf-8", "replace") + outputs

    def _text(self, line: bytes) -> bytes:
        try:
            event = parse_json(line)
        except ValueError:
            self.broken += _UNBUILT.findall(line.decode("utf-8", "replace"))
            return line + b"\n"
        if not isinstance(event, dict) or not isinstance(event.get("Action"), str):
            return line + b"\n"
        name = f"{event.get('Package', '')} {event.get('Test', '')}".strip()
        return self._take_event(
            event["Action"], name, str(event.get("Output", "")), bool(event.get("Test"))
        ).encode()

    def _take_event(self, action: str, name: str, output: str, of_test: bool) -> str:
        if action in {"output", "build-output"}:
            if _CHATTER.match(output):
                return ""
            if not of_test:
                return output
            self._outputs.setdefault(name, []).append(output)
            return ""
        if action not in _GO_RESULTS:
            return ""
        if of_test:
            self.results[name] = _GO_RESULTS[action]
            lines = self._outputs.pop(name, [])
            return _ordered(lines) if action == "fail" else ""
        if action == "fail":
            self.broken.append(name)
        return ""


def _ordered(lines: list[str]) -> str:
    """Return the lines as without -json, with the verdict before the output."""
    return "".join(sorted(lines, key=lambda line: _VERDICT.match(line) is None))


TestOutcome = Literal["passed", "failed", "skipped"]
TestOutcomes = Mapping[str, TestOutcome]
"""Each test by its name. Only failed ones are named where a runner names no others."""
LARGEST_REPORT = 100_000_000
"""Bytes of a report that is read."""
_REPORTS = ("surefire-reports", "failsafe-reports", "test-results")
_REFUSAL = re.compile(
    r"unknown|unrecogni[sz]ed|bad option|not allowed|unexpected|not defined|Cannot find", re.I
)
_MAVEN_FAILS = ("-fae", "-fn", "-ff", "--fail-at-end", "--fail-never", "--fail-fast")


@dataclass(frozen=True)
class ReportingCommand:
    """A test command that reports the result of each test. It is run with `variables` in its
    environment; `options` are those that were added to the user's command. `file` is the report, if
    the runner writes one. `events` reads the output, if that is a stream of results.
    `earlier_reports` are reports that existed before the run, by path, with their modification
    times.
    """

    invocation: Invocation
    command: str
    variables: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    file: Path | None = None
    events: GoEvents | None = None
    earlier_reports: Mapping[Path, int] = field(default_factory=dict)

    def refused(self, output: str) -> bool:
        """Return whether the runner refused the options, and so ran no test."""
        if self.file is not None and self.file.exists():
            return False
        names = {word.partition("=")[0] for word in self.options if word.startswith("-")}
        refusals = [line for line in output.splitlines() if _REFUSAL.search(line)]
        return any(name in line for line in refusals for name in names)


def with_report(invocation: Invocation, root: Path, folder: Path) -> ReportingCommand:
    """Return the command that also writes a report into `folder`, outside the repository."""
    match invocation.kind:
        case "pytest":
            return _pytest(invocation, folder)
        case "jest" | "vitest":
            return _javascript(invocation, folder)
        case "node":
            return _node(invocation, folder)
        case "cargo":
            return _cargo(invocation)
        case "nextest":
            return _nextest(invocation, folder)
        case "go":
            options = () if invocation.given("-json", "--json") else ("-json",)
            command = invocation.inserting("test", options) if options else invocation.command
            return ReportingCommand(invocation, command, options=options, events=GoEvents())
        case "maven" | "gradle":
            return _java(invocation, root)
        case "unittest":
            return ReportingCommand(invocation, invocation.command)


def _pytest(invocation: Invocation, folder: Path) -> ReportingCommand:
    if invocation.given("--junitxml", "--junit-xml", "--"):
        return ReportingCommand(invocation, invocation.command)
    file = folder / "pytest.xml"
    options = (f"--junitxml={file}", "-o", "junit_family=xunit1")
    return ReportingCommand(invocation, invocation.adding(options), options=options, file=file)


def _javascript(invocation: Invocation, folder: Path) -> ReportingCommand:
    file = folder / "report.json"
    if invocation.given("--outputFile", "--outputFile.json", "--json", "--"):
        return ReportingCommand(invocation, invocation.command)
    if invocation.kind == "jest":
        options: tuple[str, ...] = ("--json", f"--outputFile={file}")
    else:
        usual = () if invocation.given("--reporter") else ("--reporter=default",)
        options = (*usual, "--reporter=json", f"--outputFile.json={file}")
    return ReportingCommand(invocation, invocation.adding(options), options=options, file=file)


def _node(invocation: Invocation, folder: Path) -> ReportingCommand:
    """Return the command that also writes node's TAP output to a file. In a script of package.json
    the options go into NODE_OPTIONS, because they must be in front of the script's files.
    """
    if invocation.given("--test-reporter", "--test-reporter-destination"):
        return ReportingCommand(invocation, invocation.command)
    file = folder / "node.tap"
    options = (
        "--test-reporter=tap",
        "--test-reporter-destination=stdout",
        "--test-reporter=tap",
        f"--test-reporter-destination={file}",
    )
    if invocation.script is None:
        return ReportingCommand(
            invocation, invocation.inserting("node", options), options=options, file=file
        )
    if re.search(r"[\s\"']", str(file)):
        return ReportingCommand(invocation, invocation.command)
    before = os.environ.get("NODE_OPTIONS", "")
    variables = {"NODE_OPTIONS": " ".join([before, *options]).strip()}
    return ReportingCommand(invocation, invocation.command, variables, options, file)


def _cargo(invocation: Invocation) -> ReportingCommand:
    """Return the command that continues after a failing test. With a stable Rust libtest writes no
    report, so its lines are read.
    """
    options = ("--no-fail-fast",)
    if invocation.given(*options):
        return ReportingCommand(invocation, invocation.command)
    command = invocation.inserting("test", options)
    return ReportingCommand(invocation, command, options=options)


def _nextest(invocation: Invocation, folder: Path) -> ReportingCommand:
    """Return the command that continues after a failing test and writes a JUnit report, which only
    a configuration file can ask for. The setting of a repository that asks for a report itself has
    precedence.
    """
    file, configuration = folder / "nextest.xml", folder / "nextest.toml"
    report = f"[profile.default.junit]\npath = {json.dumps(str(file))}\n"
    configuration.write_text(report, encoding="utf-8")
    options = ["--tool-config-file", f"fugu:{configuration}"]
    if not invocation.given("--no-fail-fast", "--fail-fast", "--max-fail"):
        options.append("--no-fail-fast")
    subcommand = "run" if "run" in invocation.words else "r"
    command = invocation.inserting(subcommand, options)
    return ReportingCommand(invocation, command, options=tuple(options), file=file)


def _java(invocation: Invocation, root: Path) -> ReportingCommand:
    """Return the command that continues with the modules after a failing one. The plugins of Maven
    and Gradle write reports anyway.
    """
    reports = _java_reports(root / invocation.folder)
    earlier = {path: path.stat().st_mtime_ns for path in reports}
    if invocation.given(*_MAVEN_FAILS, "--continue"):
        return ReportingCommand(invocation, invocation.command, earlier_reports=earlier)
    options = ("--fail-at-end",) if invocation.kind == "maven" else ("--continue",)
    command = invocation.adding(options)
    return ReportingCommand(invocation, command, options=options, earlier_reports=earlier)


def read_results(reporting: ReportingCommand, output: str, root: Path) -> TestOutcomes | None:
    """Read the result of each test from a run with this `output`. None if there is no complete
    result.
    """
    try:
        return _read_results(reporting, output, root)
    except (OSError, ValueError, ElementTree.ParseError):
        return None


def _read_results(reporting: ReportingCommand, output: str, root: Path) -> TestOutcomes | None:
    """Read the results from the report or the output. Raises OSError, ParseError or ValueError for
    an unreadable report.
    """
    invocation, file = reporting.invocation, reporting.file
    folder = root / invocation.folder
    match invocation.kind:
        case "pytest":
            cases = _cases([file] if file else [])
            return _worst((_node_id(case, root, folder), case.outcome) for case in cases)
        case "jest" | "vitest":
            return _of_javascript(_text(file), folder)
        case "node":
            return _of_tap(_text(file), folder)
        case "cargo":
            return _of_cargo(output)
        case "nextest":
            cases = _cases([file] if file else [])
            return _worst((f"{case.classname} {case.name}", case.outcome) for case in cases)
        case "go":
            events = reporting.events or GoEvents()
            results = dict(events.results)
            failed = [name for name, outcome in results.items() if outcome == "failed"]
            packages = {name.partition(" ")[0] for name in failed}
            for name in events.broken:
                if name not in packages:  # a package that failed without a failing test
                    results[name] = "failed"
            return results
        case "maven" | "gradle":
            earlier = reporting.earlier_reports
            reports = _java_reports(folder)
            new = [path for path in reports if path.stat().st_mtime_ns != earlier.get(path)]
            cases = _cases(new)
            return _worst((f"{case.classname}#{case.name}", case.outcome) for case in cases)
        case "unittest":
            return _of_unittest(output)


def without_report_lines(reporting: ReportingCommand, output: str) -> str:
    """Remove the lines that only say where the report is."""
    if reporting.file is None:
        return output
    folder_name = reporting.file.parent.name
    return "".join(line for line in output.splitlines(keepends=True) if folder_name not in line)


def summarise_results(results: TestOutcomes | None, output: str, *, ok: bool) -> TestReport | None:
    """Summarise test results. Without `results` the counts in the `output` are used; None if it has
    none.
    """
    passed, failed = recognized_tests.passed_count(output), recognized_tests.failed_count(output)
    failing = _failing(results or {})
    if results and ok == (not failing):
        enclosing = {name for test in results for name in _enclosing(test)}
        outcomes = [outcome for name, outcome in results.items() if name not in enclosing]
        passing = outcomes.count("passed")
        passing -= min(recognized_tests.unexpectedly_passed_count(output), passing)
        return TestReport(
            passed=passing or passed or 0,
            failed=len(failing),
            skipped=outcomes.count("skipped") or recognized_tests.skipped_count(output),
            failing=tuple(failing[:MOST_FAILING]),
            by_id=len(failing) <= MOST_FAILING,
        )
    if passed is None and failed is None:
        return None
    return TestReport(
        passed=passed or 0, failed=failed or 0, skipped=recognized_tests.skipped_count(output)
    )


def _failing(results: TestOutcomes) -> list[str]:
    """Return the failed tests, without tests that only contain failed ones."""
    failed = [name for name, outcome in results.items() if outcome == "failed"]
    enclosing = {name for test in failed for name in _enclosing(test)}
    return [name for name in failed if name not in enclosing]


def _enclosing(name: str) -> Iterator[str]:
    """Yield the names of the tests that a test may be part of."""
    for joint in (NAME_SEPARATOR, "/"):
        parts = name.split(joint)
        yield from (joint.join(parts[:length]) for length in range(1, len(parts)))


# --- reports in files -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """A test in a JUnit report."""

    classname: str
    name: str
    file: str
    outcome: TestOutcome


def _cases(files: Iterable[Path]) -> Iterator[_Case]:
    """Yield the tests in JUnit reports. Raises OSError, ParseError, ValueError for an unreadable
    report.
    """
    for file in files:
        try:
            parsed = ElementTree.fromstring(_read_report(file))
        except LookupError as error:
            raise ValueError("the report names an encoding that nobody knows") from error
        for element in parsed.iter("testcase"):
            tags = {child.tag for child in element}
            outcome: TestOutcome = "passed"
            if tags & {"failure", "error"}:
                outcome = "failed"
            elif "skipped" in tags:
                outcome = "skipped"
            name, classname = element.get("name", ""), element.get("classname", "")
            yield _Case(classname, name, element.get("file", ""), outcome)


def _worst(pairs: Iterable[tuple[str, TestOutcome]]) -> TestOutcomes:
    """Return one result for each name: failed before passed, passed before skipped."""
    results: dict[str, TestOutcome] = {}
    ranks = {"skipped": 0, "passed": 1, "failed": 2}
    for name, outcome in pairs:
        if ranks[outcome] >= ranks.get(results.get(name, ""), -1):
            results[name] = outcome
    return results


def _node_id(case: _Case, root: Path, folder: Path) -> str:
    """Return pytest's id relative to `folder`: file::Class::test[parameters]. A file that could not
    be loaded is its path.
    """
    dotted = case.classname or case.name
    path = _module(dotted, case.file, root, folder)
    if path is None:
        return f"{case.classname}::{case.name}" if case.classname else case.name
    if not case.classname:
        return path
    classes = (
        dotted.split(".")[len(_dotted(path).split(".")) :]
        if dotted.startswith(_dotted(path))
        else []
    )
    if not classes:  # the path leads out of the folder, as `../` says
        parts = dotted.split(".")
        stem = Path(path).name.removesuffix(".py")
        classes = parts[parts.index(stem) + 1 :] if stem in parts else []
    return "::".join([path, *classes, case.name])


def _module(dotted: str, file: str, root: Path, folder: Path) -> str | None:
    """Return the file that a dotted name begins with, relative to `folder`.

    pytest's names are relative to its root folder, which may lie above.
    """
    above = [
        folder,
        *(parent for parent in folder.parents if parent == root or root in parent.parents),
    ]
    if file and (dotted == _dotted(file) or dotted.startswith(f"{_dotted(file)}.")):
        return next(
            (_relative(base / file, folder) for base in above if (base / file).is_file()), file
        )
    parts = dotted.split(".")
    for base in above:
        for length in range(len(parts), 0, -1):
            path = base.joinpath(*parts[:length]).with_suffix(".py")
            if path.is_file():
                return _relative(path, folder)
    return None


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


class _Assertion(BaseModel):
    """A test in jest's report."""

    title: str
    status: str
    ancestorTitles: tuple[str, ...] = ()


class _Suite(BaseModel):
    """A file in jest's report."""

    name: str
    status: str
    assertionResults: tuple[_Assertion, ...]


class _Report(BaseModel):
    testResults: tuple[_Suite, ...]


def _of_javascript(text: str, folder: Path) -> TestOutcomes:
    """Parse the JSON of jest or vitest. A file that could not be loaded is named by its path."""
    results: list[tuple[str, TestOutcome]] = []
    outcomes: dict[str, TestOutcome] = {"passed": "passed", "failed": "failed"}
    for suite in _Report.model_validate_json(text).testResults:
        file = _relative(Path(suite.name), folder)
        tests = suite.assertionResults
        for test in tests:
            name = NAME_SEPARATOR.join([file, *test.ancestorTitles, test.title])
            results.append((name, outcomes.get(test.status, "skipped")))
        if suite.status == "failed" and all(test.status != "failed" for test in tests):
            results.append((file, "failed"))
    return _worst(results)


_POINT = re.compile(r"( *)(not ok|ok) \d+(?: - (.*?))?( # (?:SKIP|TODO)\b.*)?$")


def _of_tap(text: str, folder: Path) -> TestOutcomes:
    """Parse node's TAP. A test's line follows those of its subtests, which are indented by four
    more spaces. Details of a test stand between `---` and `...`.
    """
    results: list[tuple[str, TestOutcome]] = []
    names: list[str] = []
    """The names of the test that is being read and of those around it."""
    end_of_details = ""
    is_whole = False
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip(" "))]
        level = len(indent) // 4
        is_whole = is_whole or line.startswith("# pass ")
        if end_of_details:
            if line == end_of_details:
                end_of_details = ""
        elif line == f"{indent}---":
            end_of_details = f"{indent}..."
        elif line.startswith(f"{indent}# Subtest: "):
            name = line.removeprefix(f"{indent}# Subtest: ")
            names = [*names[:level], _plain(name, folder)]
        elif point := _POINT.match(line):
            path = [*names[:level], _plain(point.group(3) or "", folder)]
            outcome: TestOutcome = "passed"
            if point.group(4):
                outcome = "skipped"
            elif point.group(2) == "not ok":
                outcome = "failed"
            results.append((NAME_SEPARATOR.join(path), outcome))
    if not is_whole:
        raise ValueError("the report has no end")
    return _worst(results)


def _plain(name: str, folder: Path) -> str:
    """Return the name of a test as it is in the code, or the path of a file that could not be
    loaded.
    """
    text = re.sub(r"\\(.)", r"\1", name)
    return _relative(Path(text), folder) if text.startswith("/") and Path(text).is_file() else text


def _java_reports(folder: Path) -> list[Path]:
    """Return the reports of Maven's and Gradle's modules in `folder`."""
    reports: list[Path] = []
    for walked, folders, files in os.walk(folder):
        path = Path(walked)
        if any(name in path.parts for name in _REPORTS):
            names = [name for name in files if name.startswith("TEST-") and name.endswith(".xml")]
            reports += [path / name for name in names]
        elif path.name in {"target", "build"}:
            folders[:] = [name for name in folders if name in _REPORTS]
        else:
            skipped = repository_files.SKIPPED_FOLDERS - {"target", "build"}
            folders[:] = [
                name for name in folders if name not in skipped and not name.startswith(".")
            ]
    return reports


def _text(file: Path | None) -> str:
    """Return the file's text. Raises OSError, ValueError if it is missing or no report."""
    if file is None:
        raise ValueError("there is no report")
    return _read_report(file).decode("utf-8", "replace")


def _read_report(path: Path) -> bytes:
    """Return the text of a report. A test may have put a link, a pipe or a device in its place,
    which is not read. Raises OSError and ValueError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_REPORT:
            raise ValueError("it is no file, or too large")
        return file.read(LARGEST_REPORT)


# --- results in the output ------------------------------------------------------------------------

_UNITTEST_RAN = re.compile(
    r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?", re.MULTILINE
)
_UNITTEST_WRONG = re.compile(r"(?<!expected )\b(?:failures|errors|unexpected successes)=(\d+)")
_UNITTEST_BAD = re.compile(r"^={70}\n((?:(?:FAIL|ERROR|UNEXPECTED SUCCESS): .*\n)+)", re.MULTILINE)
_UNITTEST_NAME = re.compile(r"(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\S+) \(([^)\s]+)\)")
_UNITTEST_BEGUN = re.compile(r"^(\w+) \(([\w.]+)\)(?: \.\.\. |$)(skipped )?", re.MULTILINE)
_CARGO_BINARY = re.compile(
    r"^\s*Running (?:.* \()?\S*?([^/\s()`]+?)(?:-[0-9a-f]{16})?(?:\.exe)?`?\)?$"
)
_CARGO_DOCS = re.compile(r"^\s*Doc-tests (\S+)$")
_CARGO_TEST = re.compile(
    r"^test (.+?)(?: - should panic| \(line \d+\).*)? \.\.\. (ok|FAILED|ignored)\b"
)
_CARGO_RESULT = re.compile(
    r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE
)


def _of_unittest(output: str) -> TestOutcomes | None:
    """Parse unittest's output: failed tests from the headings of their tracebacks, others if -v
    names them.
    """
    summary = _UNITTEST_RAN.findall(output)
    if len(summary) != 1:
        return None
    heads = [
        head for block in _UNITTEST_BAD.findall(output) for head in _UNITTEST_NAME.findall(block)
    ]
    if len(heads) != sum(map(int, _UNITTEST_WRONG.findall(summary[0][1]))):
        return None
    results: dict[str, TestOutcome] = {}
    for name, within, skipped in _UNITTEST_BEGUN.findall(output):
        results[_unittest_id(name, within)] = "skipped" if skipped else "passed"
    return results | {_unittest_id(*head): "failed" for head in heads}


def _unittest_id(name: str, within: str) -> str:
    """Return the dotted name of a test. Before Python 3.11 the class comes without the method. A
    module that could not be loaded, and the setup of a class or module, count as tests of their
    own.
    """
    if within.startswith("unittest.loader._FailedTest"):
        return name
    if name.startswith(("setUp", "tearDown")):
        return within
    return within if within.endswith(f".{name}") else f"{within}.{name}"


def _of_cargo(output: str) -> TestOutcomes | None:
    """Parse libtest's lines. A test is named by its binary and its name."""
    results: list[tuple[str, TestOutcome]] = []
    outcomes: dict[str, TestOutcome] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
    binary = ""
    for line in output.splitlines():
        if head := _CARGO_BINARY.match(line) or _CARGO_DOCS.match(line):
            binary = head.group(1)
        elif test := _CARGO_TEST.match(line):
            results.append((f"{binary} {test.group(1)}".strip(), outcomes[test.group(2)]))
    totals = [sum(map(int, column)) for column in zip(*_CARGO_RESULT.findall(output), strict=True)]
    read = [outcome for _, outcome in results]
    is_complete = totals == [read.count(outcome) for outcome in outcomes.values()]
    if not results or not is_complete or "error: could not compile" in output:
        return None
    return _worst(results)
