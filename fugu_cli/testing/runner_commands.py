"""Recognises the test runner of a command line, where its options go, and the command for only some
tests.

Between a project's test command and runner_results.py, which adds options or narrows it. A command
that does more than one thing, or that a shell would expand, is not recognised. Reads package.json
and runs nothing. Source of the event format: `go doc test2json`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from fugu_cli.session.events import TestReport
from fugu_cli.system.bounded_json import parse_json

NAME_SEPARATOR = " > "
"""Between the names of a suite and of a test in it (JavaScript)."""

RunnerKind = Literal[
    "pytest", "unittest", "jest", "vitest", "node", "cargo", "nextest", "go", "maven", "gradle"
]
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_BEFORE = re.compile(r"\s*(?:cd\s+([\w.@+/-]+)|(?:source|\.)\s+[\w.@+/-]+/activate)\s*")
_JOINING = re.compile(r"[();<>|&]+")
_EXPANDED = re.compile(r"[$`\n\\]")
_PACKAGE_MANAGERS = ("npm", "pnpm", "yarn", "bun")
_PREFIXES = (
    ("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("pdm", "run"), ("hatch", "run"), ("rye", "run"),
    ("pnpm", "exec"), ("yarn", "exec"), ("npx", "--no"), ("npx", "--no-install"), ("npx",), ("bunx",),
    ("cross-env",), ("time",),
)  # fmt: skip
"""Words that start another program with the words behind them."""
_JS: dict[str, RunnerKind] = {
    "jest": "jest",
    "jest.js": "jest",
    "vitest": "vitest",
    "vitest.mjs": "vitest",
}


@dataclass(frozen=True)
class Invocation:
    """A command line that starts a known runner.

    `command` is the whole line, `before` its part up to the last `&&`, and `words` the rest,
    assignments of variables included. `folder` is the folder it runs in, relative to the root.
    `own` are the runner's arguments in the line. If a package manager starts the runner, `script`
    holds the arguments that package.json adds; else it is None.
    """

    kind: RunnerKind
    command: str
    before: str
    folder: str
    words: tuple[str, ...]
    own: tuple[str, ...]
    script: tuple[str, ...] | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The runner's arguments from package.json and from the command line."""
        return (*(self.script or ()), *self.own)

    def given(self, *options: str) -> bool:
        """Return whether one of `options` is given, with or without `=value`."""
        return any(word.partition("=")[0] in options for word in self.arguments)

    def adding(self, words: Sequence[str]) -> str:
        """Return the command with more arguments at its end."""
        needs_separator = (
            self.words[0] == "npm" and self.script is not None and "--" not in self.words
        )
        added = ["--", *words] if needs_separator else words
        return " ".join([self.command.rstrip(), *map(shlex.quote, added)])

    def inserting(self, after: str, words: Sequence[str]) -> str:
        """Return the command with more arguments after the word (or words) `after`, before which a
        folder may stand (`bin/pytest`).
        """
        last_command = self.command[len(self.before) :]
        pattern = rf"(?<!\S)(?:[^\s=]*/)?{re.escape(after)}(?=\s|$)"
        match = re.search(pattern, last_command)
        if match is None:
            return self.command
        start, end = last_command[: match.end()], last_command[match.end() :]
        return f"{self.before}{start} {shlex.join(words)}{end}"

    def replacing(self, own: Sequence[str]) -> str:
        """Return the command with `own` in place of the runner's arguments in it."""
        program = self.words[: len(self.words) - len(self.own)]
        return self.before + " ".join(_quoted(word) for word in (*program, *own))


def recognise_runner(command: str, root: Path) -> Invocation | None:
    """Return the test runner that `command` starts in `root`; None if it is unknown, or the command
    does more than one thing.
    """
    before, folder, words = _split(command)
    if not words:
        return None
    runner, own = _runner(_program(words))
    if runner is not None:
        return Invocation(runner, command, before, folder, words, own)
    script = _script(_program(words), root / folder)
    if script is None:
        return None
    _, _, scripted = _split(script, loose=True)
    runner, arguments = _runner(_program(scripted))
    if runner is None:
        return None
    return Invocation(runner, command, before, folder, words, _behind_script(words), arguments)


def _split(command: str, *, loose: bool = False) -> tuple[str, str, tuple[str, ...]]:
    """Return the part of a line before its last command, the folder that this command runs in, and
    its words. There are no words if a shell would expand or redirect something in the command, or
    if something other than `cd FOLDER` or the activation of an environment precedes it. `loose`
    allows anything before it.
    """
    not_plain = "", "", ()
    head, separator, last_command = command.rpartition("&&")
    folder = PurePosixPath()
    if separator and not loose:
        for part in head.split("&&"):
            match = _BEFORE.fullmatch(part)
            if match is None:
                return not_plain
            folder /= match.group(1) or ""
    lexer = shlex.shlex(last_command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = tuple(lexer)
    except ValueError:
        return not_plain
    without_quoted = re.sub(r"'[^']*'", "", last_command)
    if _EXPANDED.search(without_quoted) or any(_JOINING.fullmatch(word) for word in words):
        return not_plain
    indentation = last_command[: len(last_command) - len(last_command.lstrip())]
    return head + separator + indentation, folder.as_posix(), words


def _program(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words without leading assignments of variables and programs that only start
    another one, such as `uv run`.
    """
    rest = tuple(words)
    while rest:
        if _ASSIGNED.fullmatch(rest[0]):
            rest = rest[1:]
            continue
        prefix = next((prefix for prefix in _PREFIXES if rest[: len(prefix)] == prefix), None)
        if prefix is None:
            break
        rest = rest[len(prefix) :]
    return rest


def _runner(words: Sequence[str]) -> tuple[RunnerKind | None, tuple[str, ...]]:
    """Return the runner that the words start and its arguments; None if it is unknown."""
    if not words:
        return None, ()
    name, rest = PurePosixPath(words[0]).name, tuple(words[1:])
    if re.fullmatch(r"(?:python|pypy)[\d.]*", name):
        return _of_python(rest)
    if name in {"pytest", "py.test"}:
        return "pytest", rest
    if name == "node":
        return _of_node(rest)
    if name in _JS:
        return (None, ()) if "watch" in rest or "--watch" in rest else (_JS[name], rest)
    if name == "react-scripts" and rest[:1] == ("test",):
        return "jest", rest[1:]
    return _of_builds(name, rest)


def _of_python(rest: tuple[str, ...]) -> tuple[RunnerKind | None, tuple[str, ...]]:
    if "-m" not in rest:
        return None, ()
    index = rest.index("-m") + 1
    module, own = "".join(rest[index : index + 1]), rest[index + 1 :]
    if re.fullmatch(r"(?:-[XW] \S+ |-\S+ )*", " ".join([*rest[: index - 1], ""])) is None:
        return None, ()
    match module:
        case "pytest" | "unittest":
            return module, own
        case _:
            return None, ()


def _of_node(rest: tuple[str, ...]) -> tuple[RunnerKind | None, tuple[str, ...]]:
    if "--test" in rest and "--watch" not in rest:
        return "node", rest
    for index, word in enumerate(rest):
        if not word.startswith("-"):
            name = PurePosixPath(word).name
            return (_JS[name], rest[index + 1 :]) if name in _JS else (None, ())
    return None, ()


def _of_builds(name: str, rest: tuple[str, ...]) -> tuple[RunnerKind | None, tuple[str, ...]]:
    if name == "cargo":
        while rest[:1] and rest[0].startswith("+"):
            rest = rest[1:]
        if rest[:1] in {("test",), ("t",)}:
            return "cargo", rest[1:]
        if rest[:2] in {("nextest", "run"), ("nextest", "r")}:
            return "nextest", rest[2:]
        return None, ()
    if name == "go" and rest[:1] == ("test",):
        return "go", rest[1:]
    if name in {"mvn", "mvnw", "mvnd"}:
        return "maven", rest
    return ("gradle", rest) if name in {"gradle", "gradlew"} else (None, ())


def _script(words: Sequence[str], folder: Path) -> str | None:
    """Return the script in package.json that `npm test` or a similar command runs, None for other
    commands.
    """
    if not words or words[0] not in _PACKAGE_MANAGERS:
        return None
    rest = [word for word in words[1:] if not word.startswith("-")]
    if rest[:1] == ["run"]:
        named = rest[1:2]
    elif rest[:1] in (["test"], ["t"]):
        named = ["test"]
    else:
        named = rest[:1]
    try:
        package = parse_json((folder / "package.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    scripts = package.get("scripts") if isinstance(package, dict) else None
    script = scripts.get(named[0]) if isinstance(scripts, dict) and named else None
    return script if isinstance(script, str) else None


def _behind_script(words: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments that the package manager passes on to the script."""
    return tuple(words[list(words).index("--") + 1 :]) if "--" in words else ()


def _quoted(word: str) -> str:
    name, sign, value = word.partition("=")
    if sign and _ASSIGNED.fullmatch(word):
        return f"{name}={shlex.quote(value)}"
    return shlex.quote(word)


MOST_SELECTED = 100
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
_GO_PLAIN = frozenset(
    {"-v", "-race", "-short", "-cover", "-json", "-a", "-msan", "-asan", "-trimpath", "-failfast"}
)
_REGEX = re.compile(r"[.*+?^${}()|\[\]\\/]")


def select_failing(command: str, report: TestReport, root: Path) -> str | None:
    """Return the command for the failing tests of `report`, None if only the whole suite can be
    run.
    """
    invocation = recognise_runner(command, root)
    if invocation is None or not report.by_id or not 0 < len(report.failing) <= MOST_SELECTED:
        return None
    failing = report.failing
    match invocation.kind:
        case "pytest":
            selection = _pytest(invocation, failing)
        case "unittest":
            selection = invocation.adding(
                ["-v", *(word for name in failing for word in ("-k", name))]
            )
        case "jest" | "vitest":
            selection = _javascript(invocation, failing)
        case "node":
            selection = _node(invocation, failing)
        case "cargo" | "nextest":
            selection = _cargo(invocation, failing)
        case "go":
            selection = _go(invocation, failing)
        case "maven":
            selection = _maven(invocation, failing)
        case "gradle":
            selection = _gradle(invocation, failing)
    return selection


def _options(
    words: Sequence[str], valued: Iterable[str], plain: Iterable[str] = ()
) -> list[str] | None:
    """Return the options among the arguments with their values, or None if it is unclear whether
    a word is an option's value.

    `plain` are the options without a value. If it is empty, short options have none, and neither
    has `--option` before another option.
    """
    options: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return None
        if not word.startswith("-"):
            continue
        options.append(word)
        if word in valued and rest:
            options.append(rest.pop(0))
        elif "=" not in word and (
            word not in plain if plain else word.startswith("--") and _is_value(rest)
        ):
            return None
    return options


def _is_value(rest: Sequence[str]) -> bool:
    """Return whether the next word may be a value."""
    return bool(rest) and not rest[0].startswith("-")


def _pytest(invocation: Invocation, failing: Sequence[str]) -> str | None:
    options = _options(invocation.own, _PYTEST_VALUED)
    if options is None or invocation.given("--pyargs"):
        return None
    if not all(_is_node_id(name) for name in failing):
        return None
    return invocation.replacing([*options, "--maxfail=0", *failing])


def _is_node_id(name: str) -> bool:
    return not name.startswith("-") and ("::" in name or name.endswith(".py"))


def _javascript(invocation: Invocation, failing: Sequence[str]) -> str | None:
    """Return the command for the failing tests: by their files, and by their names if every file
    could be loaded.
    """
    if invocation.given("-t", "--testNamePattern", "--bail", "--"):
        return None
    files = list(dict.fromkeys(name.partition(NAME_SEPARATOR)[0] for name in failing))
    names = [name.split(NAME_SEPARATOR)[1:] for name in failing]
    by_name: list[str] = []
    if all(names):
        patterns = "|".join(map(_full_name_pattern, names))
        by_name = ["-t", f"^({patterns})$"]
    selects_files = any(not word.startswith("-") and word != "run" for word in invocation.arguments)
    if selects_files:
        return invocation.adding(by_name) if by_name else None
    by_path = ["--runTestsByPath"] if invocation.kind == "jest" else []
    return invocation.adding([*by_path, *files, *by_name])


def _full_name_pattern(names: Sequence[str]) -> str:
    """Return a pattern for the full name of a test, which runners join with spaces or with `>`."""
    return " (> )?".join(map(_escaped, names))


def _escaped(name: str) -> str:
    return _REGEX.sub(r"\\\g<0>", name)


def _node(invocation: Invocation, failing: Sequence[str]) -> str | None:
    """Return the command that selects tests by name. A test needs its own name and the names of the
    suites around it.
    """
    if invocation.script is not None:
        return None
    parts = dict.fromkeys(part for name in failing for part in name.split(NAME_SEPARATOR))
    if any(re.fullmatch(r"\S+\.[cm]?[jt]sx?", part) for part in parts):
        return None  # a whole file, which is no test's name
    patterns = [f"--test-name-pattern=^{_escaped(part)}$" for part in parts]
    return invocation.inserting("node", patterns)


def _cargo(invocation: Invocation, failing: Sequence[str]) -> str | None:
    names = list(dict.fromkeys(name.partition(" ")[2] for name in failing))
    if not all(names):
        return None
    return invocation.adding(names if "--" in invocation.own else ["--", *names])


def _go(invocation: Invocation, failing: Sequence[str]) -> str | None:
    """Return the command that selects tests, or whole packages if one of them could not be built."""
    options = _options(invocation.own, _GO_VALUED, _GO_PLAIN)
    if options is None:
        return None
    packages = dict.fromkeys(name.partition(" ")[0] for name in failing)
    tests = [name.partition(" ")[2].partition("/")[0] for name in failing]
    by_name: list[str] = []
    if all(tests):
        names = "|".join(dict.fromkeys(tests))
        by_name = ["-run", f"^({names})$"]
    return invocation.replacing([*options, *by_name, *packages])


def _maven(invocation: Invocation, failing: Sequence[str]) -> str | None:
    if invocation.given("-Dtest", "-Dit.test"):
        return None
    classes: dict[str, list[str]] = {}
    for name in failing:
        test_class, method = _method(name)
        classes.setdefault(test_class, []).append(method)
    parts = []
    for test_class, methods in classes.items():
        names = "+".join(dict.fromkeys(methods))
        parts.append(f"{test_class}#{names}" if all(methods) else test_class)
    lenient = ("-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false")
    return invocation.adding([f"-Dtest={','.join(parts)}", *lenient])


def _gradle(invocation: Invocation, failing: Sequence[str]) -> str | None:
    """Return the command that selects tests with `--tests`, which belongs to the task before it;
    None unless the line has only one task.
    """
    tasks = [word for word in invocation.own if not word.startswith("-")]
    if len(tasks) != 1 or invocation.given("--tests"):
        return None
    names = [".".join(filter(None, _method(name))) for name in failing]
    selection: list[str] = []
    for name in dict.fromkeys(names):
        selection += ["--tests", name]
    return invocation.adding(selection)


def _method(name: str) -> tuple[str, str]:
    """Return the class and method of a test; no method if its name is no identifier, or the class
    itself failed.
    """
    test_class, _, test = name.partition("#")
    match = re.match(r"[A-Za-z_]\w*(?=$|[({\[])", test)
    return test_class, match.group() if match and test != test_class else ""
