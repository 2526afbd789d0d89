"""Finds tests that belong to changed files but that the repository's test command does not run: those
of a part in another language with its own manifest. Says nothing where it is unknown what the
command runs (make, a script).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from fugu_cli.testing.runner_discovery import build_tool_command, has_python_tests, test_script

_PROGRAMS = {
    "Python": "pytest unittest doctest manage.py",
    "JavaScript": "node npm pnpm yarn bun deno",
    "Rust": "cargo",
    "Go": "go",
    "JVM": "mvn mvnw gradle gradlew sbt lein",
    ".NET": "dotnet",
    "Ruby": "rspec rake rails",
    "PHP": "composer phpunit",
    "Elixir": "mix",
    "Erlang": "rebar3",
    "Swift": "swift",
    "Haskell": "stack cabal",
    "OCaml": "dune",
    "Zig": "zig",
    "Gleam": "gleam",
}
_LANGUAGE_OF_PROGRAM = {
    program: language for language, programs in _PROGRAMS.items() for program in programs.split()
}
_SUFFIXES = {
    "Python": ".py .pyi",
    "JavaScript": ".js .jsx .ts .tsx .mjs .cjs .mts .cts .vue .svelte",
    "Rust": ".rs",
    "Go": ".go",
    "JVM": ".java .kt .kts .groovy .scala .clj",
    ".NET": ".cs .fs .vb",
    "Ruby": ".rb",
    "PHP": ".php",
    "Elixir": ".ex .exs",
    "Erlang": ".erl",
    "Swift": ".swift",
    "Haskell": ".hs",
    "OCaml": ".ml .mli",
    "Zig": ".zig",
    "Gleam": ".gleam",
}
_LANGUAGE_OF_SUFFIX = {
    suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()
}
_PROSE = frozenset({".md", ".rst", ".txt", ".adoc"})
_RUNS_ANYTHING = re.compile(
    r"\b(?:turbo|nx|lerna|moon|rush|make|just|bazel|wireit|concurrently|npm-run-all|run-[sp]|sh"
    r"|bash|docker)\b|[;&|]"
)
"""In the test script of a package.json: it may run the tests of other languages."""


def untested_commands(
    root: Path, changed: Iterable[str], command: str | None, ran: Sequence[str]
) -> tuple[str, ...]:
    """Return the command lines of tests that belong to `changed` files and were not run.

    `command` is the one that ran in `root`, None where none is known there; `ran` are the shell
    commands that agents ran, without those that only read. Paths are relative to `root`.
    """
    tested = _languages(command or "")
    if command is not None and (not tested or _may_run_anything(root, command)):
        return ()
    lines: dict[str, None] = {}
    for path in map(PurePosixPath, changed):
        if path.is_absolute() or ".." in path.parts or path.suffix in _PROSE:
            continue
        language = _LANGUAGE_OF_SUFFIX.get(path.suffix, "")
        if language in tested:
            continue
        for folder in path.parents:
            line = _tests_of(root / folder, language)
            if line is None or (not language and folder == PurePosixPath(".")):
                continue
            if not _languages(line) & tested and not _was_run(folder, line, ran):
                inside = (
                    "" if folder == PurePosixPath(".") else f"cd {shlex.quote(str(folder))} && "
                )
                lines[inside + line] = None
            break
    return tuple(lines)


def _tests_of(folder: Path, language: str) -> str | None:
    """Return the command for the tests of that language in a folder; of any, where it is ""."""
    if language == "Python":
        return "python -m pytest" if has_python_tests(folder) else None
    line = build_tool_command(folder)
    if line is None or not language:
        return line
    return line if language in _languages(line) or not _languages(line) else None


def _languages(command: str) -> set[str]:
    words = re.split(r"[\s/;&|()]+", command)
    return {_LANGUAGE_OF_PROGRAM[word] for word in words if word in _LANGUAGE_OF_PROGRAM}


def _may_run_anything(root: Path, command: str) -> bool:
    return "JavaScript" in _languages(command) and bool(_RUNS_ANYTHING.search(test_script(root)))


def _was_run(folder: PurePosixPath, line: str, ran: Sequence[str]) -> bool:
    """Return whether a shell command may have run these tests."""
    program = line.split()[0]
    name = re.escape(folder.name or program)
    word = re.compile(rf"(?<![\w-]){name}(?![\w-])")
    return any(word.search(command) and "test" in command for command in ran)
