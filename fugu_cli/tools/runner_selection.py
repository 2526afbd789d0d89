"""The command that runs only some tests, by the names a report has for them.

Beside runner_reports.py. What it selects may be more than was asked for, never less. Pure, but for package.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fugu_cli.events import TestReport
from fugu_cli.tools.runners import WITHIN, Invocation, recognise

MOST = 100
"""Tests that are selected; for more the whole suite is run."""
_PYTEST_VALUED = frozenset({
    "-k", "-m", "-p", "-o", "-c", "-n", "-r", "-W", "--rootdir", "--confcutdir", "--basetemp", "--maxfail", "--tb",
    "--durations", "--capture", "--color", "--ignore", "--ignore-glob", "--deselect", "--import-mode", "--dist",
    "--numprocesses", "--timeout", "--log-level", "--override-ini", "--junitxml", "--junit-xml", "--cov",
    "--cov-report", "--cov-config", "--cov-fail-under", "--verbosity", "--show-capture",
})  # fmt: skip
_GO_VALUED = frozenset({
    "-tags", "-timeout", "-count", "-p", "-parallel", "-mod", "-covermode", "-coverpkg", "-coverprofile", "-shuffle",
    "-vet", "-ldflags",
})  # fmt: skip
_GO_PLAIN = frozenset({"-v", "-race", "-short", "-cover", "-json", "-a", "-msan", "-asan", "-trimpath", "-failfast"})
_REGEX = re.compile(r"[.*+?^${}()|\[\]\\/]")


def select(command: str, report: TestReport, root: Path) -> str | None:
    """The command line that runs the failing tests of `report`; None where only the whole suite can be run."""
    invocation = recognise(command, root)
    if invocation is None or not report.by_id or not 0 < len(report.failing) <= MOST:
        return None
    failing = report.failing
    match invocation.kind:
        case "pytest":
            found = _pytest(invocation, failing)
        case "unittest":
            found = invocation.adding(["-v", *(word for name in failing for word in ("-k", name))])
        case "jest" | "vitest":
            found = _javascript(invocation, failing)
        case "node":
            found = _node(invocation, failing)
        case "cargo" | "nextest":
            found = _cargo(invocation, failing)
        case "go":
            found = _go(invocation, failing)
        case "maven":
            found = _maven(invocation, failing)
        case "gradle":
            found = _gradle(invocation, failing)
    return found


def _options(words: Sequence[str], valued: Iterable[str], plain: Iterable[str] = ()) -> list[str] | None:
    """The options among the arguments, with their values; None where a word may be either.

    `plain`: options known to take no value; without any, short options and `--option` before another option are.
    """
    found: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return None
        if not word.startswith("-"):
            continue
        found.append(word)
        if word in valued and rest:
            found.append(rest.pop(0))
        elif "=" not in word and (word not in plain if plain else word.startswith("--") and _is_value(rest)):
            return None
    return found


def _is_value(rest: Sequence[str]) -> bool:
    """What comes next may be a value."""
    return bool(rest) and not rest[0].startswith("-")


def _pytest(invocation: Invocation, failing: Sequence[str]) -> str | None:
    options = _options(invocation.own, _PYTEST_VALUED)
    if options is None or invocation.given("--pyargs") or any(not _is_node_id(name) for name in failing):
        return None
    return invocation.replacing([*options, "--maxfail=0", *failing])


def _is_node_id(name: str) -> bool:
    return not name.startswith("-") and ("::" in name or name.endswith(".py"))


def _javascript(invocation: Invocation, failing: Sequence[str]) -> str | None:
    """By files, and by names where every file could be loaded."""
    if invocation.given("-t", "--testNamePattern", "--bail", "--"):
        return None
    files = list(dict.fromkeys(name.partition(WITHIN)[0] for name in failing))
    names = [name.split(WITHIN)[1:] for name in failing]
    by_name = ["-t", f"^({'|'.join(map(_spaced, names))})$"] if all(names) else []
    if any(not word.startswith("-") and word != "run" for word in invocation.arguments):
        return invocation.adding(by_name) if by_name else None
    by_path = ["--runTestsByPath"] if invocation.kind == "jest" else []
    return invocation.adding([*by_path, *files, *by_name])


def _spaced(names: Sequence[str]) -> str:
    """A pattern of a test's full name, which runners join with blanks or with `>`."""
    return " (> )?".join(map(_escaped, names))


def _escaped(name: str) -> str:
    return _REGEX.sub(r"\\\g<0>", name)


def _node(invocation: Invocation, failing: Sequence[str]) -> str | None:
    """A test runs where its own name and those around it are asked for."""
    parts = dict.fromkeys(part for name in failing for part in name.split(WITHIN))
    if invocation.script is not None or any(re.fullmatch(r"\S+\.[cm]?[jt]sx?", part) for part in parts):
        return None
    patterns = [f"--test-name-pattern=^{_escaped(part)}$" for part in parts]
    return invocation.inserting("node", patterns)


def _cargo(invocation: Invocation, failing: Sequence[str]) -> str | None:
    names = list(dict.fromkeys(name.partition(" ")[2] for name in failing))
    if not all(names):
        return None
    return invocation.adding(names if "--" in invocation.own else ["--", *names])


def _go(invocation: Invocation, failing: Sequence[str]) -> str | None:
    """Packages as a whole where one of them could not be built."""
    options = _options(invocation.own, _GO_VALUED, _GO_PLAIN)
    if options is None:
        return None
    packages = dict.fromkeys(name.partition(" ")[0] for name in failing)
    tests = [name.partition(" ")[2].partition("/")[0] for name in failing]
    by_name = ["-run", f"^({'|'.join(dict.fromkeys(tests))})$"] if all(tests) else []
    return invocation.replacing([*options, *by_name, *packages])


def _maven(invocation: Invocation, failing: Sequence[str]) -> str | None:
    if invocation.given("-Dtest", "-Dit.test"):
        return None
    classes: dict[str, list[str]] = {}
    for name in failing:
        kind, method = _method(name)
        classes.setdefault(kind, []).append(method)
    parts = [f"{kind}#{'+'.join(dict.fromkeys(of))}" if all(of) else kind for kind, of in classes.items()]
    lenient = ("-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false")
    return invocation.adding([f"-Dtest={','.join(parts)}", *lenient])


def _gradle(invocation: Invocation, failing: Sequence[str]) -> str | None:
    """The option belongs to one task, the last."""
    if len([word for word in invocation.own if not word.startswith("-")]) != 1 or invocation.given("--tests"):
        return None
    names = [".".join(filter(None, _method(name))) for name in failing]
    return invocation.adding([word for name in dict.fromkeys(names) for word in ("--tests", name)])


def _method(name: str) -> tuple[str, str]:
    """The class and the method of a test; no method where it is not an identifier, or the class itself failed."""
    kind, _, test = name.partition("#")
    found = re.match(r"[A-Za-z_]\w*(?=$|[({\[])", test)
    return kind, found.group() if found and test != kind else ""
