"""Finds tests that belong to changed files but that the repository's test command does not run:
those of a part with its own manifest. Says nothing where the command may run them (make, a script).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from fugu_cli.testing.build_tools import build_tool_command
from fugu_cli.testing.javascript_tests import test_script
from fugu_cli.testing.manifests import file_names, read_text
from fugu_cli.testing.runner_commands import recognise_runner
from fugu_cli.testing.runner_discovery import has_python_tests

_PROGRAMS = {
    "Python": "pytest unittest doctest manage.py tox nox hatch poe",
    "JavaScript": "node npm npx pnpm yarn bun bunx deno jest vitest mocha ava jasmine tap tape",
    "Rust": "cargo",
    "Go": "go",
    "JVM": "mvn mvnw gradle gradlew sbt lein",
    ".NET": "dotnet",
    "Ruby": "rspec rake rails ruby",
    "PHP": "composer phpunit pest artisan",
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


_MANIFESTS = {
    "Python": "pyproject.toml setup.py setup.cfg",
    "JavaScript": "package.json deno.json deno.jsonc",
    "Rust": "Cargo.toml",
    "Go": "go.mod",
    "JVM": "pom.xml build.gradle build.gradle.kts build.sbt project.clj",
    ".NET": "*.csproj *.fsproj *.vbproj",
    "Ruby": "Gemfile *.gemspec",
    "PHP": "composer.json",
    "Elixir": "mix.exs",
    "Erlang": "rebar.config",
    "Swift": "Package.swift",
    "Haskell": "*.cabal",
    "OCaml": "dune-project",
    "Zig": "build.zig",
    "Gleam": "gleam.toml",
}
"""The files that make a folder a part of its own."""
_LINKING_FILES = (
    *("*.sln", "*.slnx", "settings.gradle", "settings.gradle.kts", "cabal.project", "stack.yaml"),
    *("Rakefile", "pnpm-workspace.yaml", ".mocharc.*", "pytest.ini", "tox.ini"),
)
"""Further files by which a test command may reach the parts below its folder."""


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
        is_tested = language in tested
        for folder in path.parents:
            line = _tests_of(root / folder, language)
            if line is None or (not language and folder == PurePosixPath(".")):
                continue
            if is_tested and not _has_manifest(root / folder, language):
                continue
            if is_tested:
                may_be_tested = _may_reach(root, command or "", folder, language)
            else:
                may_be_tested = bool(_languages(line) & tested)
            if not may_be_tested and not _was_run(folder, line, ran):
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


def _has_manifest(folder: Path, language: str) -> bool:
    patterns = _MANIFESTS.get(language, "").split()
    return any(fnmatch(name, pattern) for name in file_names(folder) for pattern in patterns)


def _may_reach(root: Path, command: str, part: PurePosixPath, language: str) -> bool:
    """Return whether a command for tests of the same language may run those in the folder `part`."""
    own = _folder_of(command)
    if not part.is_relative_to(own):
        return ".." in f"{command} {test_script(root / own)}"
    below = part.relative_to(own)
    if not below.parts:
        return True
    match language:
        case "Go":
            return False  # `./...` ends where another module begins
        case "Python":
            return _python_reaches(root, own, command, below)
        case "JavaScript":
            return _javascript_reaches(root, own, command, below)
        case _:
            return _is_named(below, _manifest_texts(root / own, language))


def _python_reaches(root: Path, own: PurePosixPath, command: str, below: PurePosixPath) -> bool:
    """pytest walks through all folders unless it is given paths, unittest only through packages."""
    invocation = recognise_runner(command, root)
    if invocation is not None and invocation.kind == "pytest":
        if paths := _paths_in(invocation.arguments, root / own):
            return _covers(paths, below)
        texts = _manifest_texts(root / own, "Python")
        return _is_named(below, texts) or not any("testpaths" in text for text in texts)
    if re.search(r"\b(?:unittest|manage\.py)\b", command):
        is_package = (root / own / below.parts[0] / "__init__.py").exists()
        return is_package or _is_named(below, [command])
    return True


def _javascript_reaches(root: Path, own: PurePosixPath, command: str, below: PurePosixPath) -> bool:
    """Most runners walk through all folders unless they are given paths, Mocha looks in `test`."""
    invocation = recognise_runner(command, root)
    if invocation is not None:
        paths = _paths_in(invocation.arguments, root / own)
        return not paths or _covers(paths, below)
    line = f"{command} {test_script(root / own)}"
    if re.search(r" --workspaces\b|\bmocha\b", line):
        return _is_named(below, [line, "test", *_manifest_texts(root / own, "JavaScript")])
    return True


def _folder_of(command: str) -> PurePosixPath:
    """Return the folder that a command like `cd web && npm test` runs in."""
    start = re.match(r"cd ('[^']*'|\S+) && ", command)
    return PurePosixPath(start.group(1).strip("'") if start else ".")


_OPTION_WITH_VALUE = re.compile(r"-(?!-?(?:[qvxsl]+|verbose|quiet|run|test|ci|coverage)$)[^=]*")


def _paths_in(arguments: Sequence[str], folder: Path) -> list[str]:
    """Return the arguments that are paths in the folder or patterns of such. A word behind an
    option may be its value.
    """
    paths = []
    previous = ""
    for word in arguments:
        is_value = _OPTION_WITH_VALUE.fullmatch(previous) is not None
        is_path = "*" in word or (folder / word).exists()
        if is_path and not is_value and not word.startswith("-"):
            paths.append(word)
        previous = word
    return paths


def _covers(paths: Sequence[str], below: PurePosixPath) -> bool:
    """Return whether one of the paths, or what a pattern may stand for, holds files of a part."""
    return any(
        "*" in path or below.is_relative_to(path) or PurePosixPath(path).is_relative_to(below)
        for path in paths
    )


def _manifest_texts(folder: Path, language: str) -> list[str]:
    patterns = [*_MANIFESTS[language].split(), *_LINKING_FILES]
    names = [name for name in file_names(folder) if any(fnmatch(name, p) for p in patterns)]
    return [read_text(folder / name) or "" for name in names]


def _is_named(below: PurePosixPath, texts: Sequence[str]) -> bool:
    """Return whether a text names the first folder of a path, or has a pattern for any folder."""
    name = rf"(?<![\w-]){re.escape(below.parts[0])}(?![\w-])"
    any_folder = r"(?:^|[\"'\s])(?:\./)?\*"
    return any(re.search(f"{name}|{any_folder}", text) for text in texts)


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
