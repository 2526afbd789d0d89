"""Finds the command that runs a project's tests by its manifest, for every language but Python."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

from fugu_cli.snapshots import repository_files
from fugu_cli.testing.javascript_tests import DENO_MANIFESTS, javascript_command
from fugu_cli.testing.manifests import file_names, read_json, read_text, read_toml, table_at

_COMMANDS_BY_MANIFEST = {
    "go.mod": "go test ./...",
    "pom.xml": "mvn -B -ntp test",
    "build.gradle": "gradle test --console=plain",
    "build.gradle.kts": "gradle test --console=plain",
    "build.sbt": "sbt test",
    "project.clj": "lein test",
    "*.sln": "dotnet test",
    "*.slnx": "dotnet test",
    "*.csproj": "dotnet test",
    "*.fsproj": "dotnet test",
    "mix.exs": "mix test",
    "rebar.config": "rebar3 eunit",
    "gleam.toml": "gleam test",
    "Package.swift": "swift test",
    "stack.yaml": "stack test",
    "*.cabal": "cabal test",
    "dune-project": "dune test",
    "build.zig": "zig build test",
    "*.nimble": "nimble test",
    "MODULE.bazel": "bazel test //...",
    "WORKSPACE.bazel": "bazel test //...",
}
"""Files in the root and the test commands they imply. The first that exists decides."""
_COMMANDS_BY_MANIFEST_AND_TESTS = (
    ("pubspec.yaml", "test/**/*_test.dart", "dart test"),
    ("shard.yml", "spec/**/*_spec.cr", "crystal spec"),
    ("Project.toml", "test/runtests.jl", "julia --project=. -e 'using Pkg; Pkg.test()'"),
    ("deps.edn", "test/**/*.clj", "clojure -X:test"),
    ("DESCRIPTION", "tests/testthat/test*.R", "Rscript -e 'devtools::test()'"),
    ("*", "t/**/*.t", "prove -lr t"),
    ("*", "test/**/*.bats", "bats -r test"),
    ("*", "tests/**/*.bats", "bats -r tests"),
    (".busted", "spec/**/*_spec.lua", "busted"),
)
"""A manifest that projects without tests have as well, the pattern of test files, the command."""
_WRAPPERS = {"mvn": "mvnw", "gradle": "gradlew"}
"""Scripts in the root that take the place of a program, if they can be executed."""
_BUILD_FOLDER = "build"


def has_build_file(names: Iterable[str]) -> bool:
    """Return whether one of the names is a build file, except make's."""
    patterns = ("package.json", "Cargo.toml", *DENO_MANIFESTS, *_COMMANDS_BY_MANIFEST)
    return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns)


def build_tool_command(root: Path) -> str | None:
    """Return the test command for `root`, None if no file there says how its tests are run."""
    finders: tuple[Callable[[Path], str | None], ...] = (
        _cargo,
        javascript_command,
        _by_manifest,
        _ruby,
        _php,
        _by_manifest_and_tests,
        _make,
        _task_runner,
        _cmake_or_meson,
    )
    for find in finders:
        try:
            command = find(root)
        except OSError:  # a link that leads nowhere it can be looked at
            continue
        if command is not None:
            return command
    return None


_SIDE_FOLDERS = frozenset(
    {
        "docs",
        "doc",
        "examples",
        "example",
        "samples",
        "demo",
        "demos",
        "vendor",
        "third_party",
        "fixtures",
        "testdata",
        "scripts",
        "tools",
    }
)
"""Folders whose tests are not those of the repository."""


def single_folder_command(root: Path) -> str | None:
    """Return the test command of the only folder in `root` that has one; None if none or several
    have one.
    """
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return None
    skipped = repository_files.SKIPPED_FOLDERS | _SIDE_FOLDERS
    commands: list[str] = []
    for path in folders:
        if path.name in skipped or path.name.startswith("."):
            continue
        command = build_tool_command(path)
        if command is not None:
            commands.append(f"cd {shlex.quote(path.name)} && {command}")
    return commands[0] if len(commands) == 1 else None


def _cargo(root: Path) -> str | None:
    """Return cargo's command. In the root package of a workspace, cargo tests the other members only
    if it is told to.
    """
    if not (root / "Cargo.toml").is_file():
        return None
    manifest = read_toml(root / "Cargo.toml")
    is_root_package = "workspace" in manifest and "package" in manifest
    return "cargo test --workspace" if is_root_package else "cargo test"


def _by_manifest(root: Path) -> str | None:
    names = file_names(root)
    for pattern, command in _COMMANDS_BY_MANIFEST.items():
        if not fnmatch.filter(names, pattern):
            continue
        program, _, rest = command.partition(" ")
        wrapper = _WRAPPERS.get(program, "")
        if wrapper in names and os.access(root / wrapper, os.X_OK):
            return f"./{wrapper} {rest}"
        return command
    return None


def _by_manifest_and_tests(root: Path) -> str | None:
    names = file_names(root)
    for pattern, tests_pattern, command in _COMMANDS_BY_MANIFEST_AND_TESTS:
        has_manifest = bool(fnmatch.filter(names, pattern))
        if not has_manifest or not _has_file(root, tests_pattern):
            continue
        if command == "dart test" and "sdk: flutter" in (read_text(root / pattern) or ""):
            return "flutter test"
        return command
    return None


def _has_file(root: Path, pattern: str) -> bool:
    return next(root.glob(pattern), None) is not None


def _ruby(root: Path) -> str | None:
    """Return the command for RSpec's tests if there are any, else for those of Rails, of a Rakefile's
    task, or of minitest.
    """
    bundled = "bundle exec " if (root / "Gemfile").is_file() else ""
    if (root / ".rspec").is_file() or _has_file(root, "spec/**/*_spec.rb"):
        return f"{bundled}rspec"
    has_test_folder = (root / "test").is_dir()
    if has_test_folder and (root / "bin" / "rails").is_file():
        return "bin/rails test"
    rakefile = read_text(root / "Rakefile") or ""
    has_task = re.search(r"TestTask|\btask[ (]+[:\"']?(?:test|default)\b", rakefile) is not None
    if has_test_folder and has_task:
        return f"{bundled}rake test"
    for pattern in ("test/**/*_test.rb", "test/**/test_*.rb"):
        if _has_file(root, pattern):
            script = f'Dir["./{pattern}"].each {{ |file| require file }}'
            return f"{bundled}ruby -Ilib -Itest -e {shlex.quote(script)}"
    return None


def _php(root: Path) -> str | None:
    composer = read_json(root / "composer.json")
    if "test" in table_at(composer, "scripts"):
        return "composer test"
    if (root / "artisan").is_file() and (root / "tests").is_dir():
        return "php artisan test"
    if (root / "tests" / "Pest.php").is_file():
        return "vendor/bin/pest"
    names = ("phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml")
    if any((root / name).is_file() for name in names):
        return "vendor/bin/phpunit"
    required = {**table_at(composer, "require"), **table_at(composer, "require-dev")}
    if "phpunit/phpunit" in required and _has_file(root, "tests/**/*Test.php"):
        return "vendor/bin/phpunit tests"
    return None


def _make(root: Path) -> str | None:
    for name in ("GNUmakefile", "makefile", "Makefile"):
        text = read_text(root / name) or ""
        for target in ("test", "check"):
            if re.search(rf"^{target}\s*:(?!=)", text, re.MULTILINE):
                return f"make {target}"
    return None


_TASK_FILES = {
    "justfile": ("just", r"^@?{name}(?:\s[^:=\n]*)?:(?!=)"),
    "Justfile": ("just", r"^@?{name}(?:\s[^:=\n]*)?:(?!=)"),
    ".justfile": ("just", r"^@?{name}(?:\s[^:=\n]*)?:(?!=)"),
    "Taskfile.yml": ("task", r"^  {name}:"),
    "Taskfile.yaml": ("task", r"^  {name}:"),
    "mise.toml": ("mise run", r"^\[tasks\.{name}\]"),
    ".mise.toml": ("mise run", r"^\[tasks\.{name}\]"),
}
"""Files of task runners with the command that runs a task, and the pattern of a task's first line."""


def _task_runner(root: Path) -> str | None:
    for file, (program, pattern) in _TASK_FILES.items():
        text = read_text(root / file) or ""
        for name in ("test", "tests", "check"):
            if re.search(pattern.format(name=name), text, re.MULTILINE):
                return f"{program} {name}"
    return None


def _cmake_or_meson(root: Path) -> str | None:
    """Return the commands that build a project of CMake or Meson and run its tests."""
    cmake = read_text(root / "CMakeLists.txt") or ""
    if re.search(r"^\s*(?:enable_testing|add_test|include\s*\(\s*CTest)\b", cmake, re.M | re.I):
        build = f"cmake -S . -B {_BUILD_FOLDER} && cmake --build {_BUILD_FOLDER}"
        return f"{build} && ctest --test-dir {_BUILD_FOLDER} --output-on-failure"
    if not (root / "meson.build").is_file():
        return None
    for name in ("meson.build", "test/meson.build", "tests/meson.build"):
        if re.search(r"^\s*test\s*\(", read_text(root / name) or "", re.MULTILINE):
            is_set_up = (root / _BUILD_FOLDER / "build.ninja").is_file()
            setup = "" if is_set_up else f"meson setup {_BUILD_FOLDER} && "
            return f"{setup}meson test -C {_BUILD_FOLDER} --print-errorlogs"
    return None
