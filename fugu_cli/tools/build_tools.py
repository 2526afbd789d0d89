"""The test commands of build tools and package managers, by the files that configure them.

Below tests.py, which goes by Python's tests itself. It looks at names and, of a few files, at their text; it runs
nothing and does not ask whether a program is installed: that it is missing the run says more clearly than silence.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path

from fugu_cli.test_paths import NODE_TEST
from fugu_cli.tools import tree

_BEFORE_NODE = {"Cargo.toml": "cargo test"}
_AFTER_NODE = {
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
    "deno.json": "deno test",
    "deno.jsonc": "deno test",
}
"""What a file in the root says about how the tests are run; the first that is there decides."""
_BESIDE = frozenset(
    {
        *("docs", "doc", "examples", "example", "samples", "demo", "demos"),
        *("vendor", "third_party", "fixtures", "testdata", "scripts", "tools"),
    }
)
"""Folders whose tests are not those of the repository."""
_WRAPPERS = {"mvn": "mvnw", "gradle": "gradlew"}
_NODE_LOCKS = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lockb": "bun run", "bun.lock": "bun run"}


def configured(names: Iterable[str]) -> bool:
    """Among the names of a root's files is one that says what it is built with, make aside."""
    patterns = ("package.json", *_BEFORE_NODE, *_AFTER_NODE)
    return any(fnmatch(name, pattern) for name in names for pattern in patterns)


def command(root: Path) -> str | None:
    """The command line, to be run in `root`; None where no file there says how its tests are run."""
    finders: tuple[Callable[[Path], str | None], ...] = (
        lambda root: _by_table(root, _BEFORE_NODE),
        _node,
        lambda root: _by_table(root, _AFTER_NODE),
        _ruby,
        _php,
        _make,
    )
    return next((found for find in finders if (found := find(root)) is not None), None)


def command_of_a_folder(root: Path) -> str | None:
    """The command of the one folder in `root` that has any; None where none or several have."""
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return None
    own = [path for path in folders if path.name not in tree.SKIPPED | _BESIDE and not path.name.startswith(".")]
    found = {path.name: line for path in own if (line := command(path)) is not None}
    if len(found) != 1:
        return None
    ((folder, line),) = found.items()
    return f"cd {shlex.quote(folder)} && {line}"


def _by_table(root: Path, table: dict[str, str]) -> str | None:
    try:
        names = {path.name for path in root.iterdir() if path.is_file()}
    except OSError:
        return None
    line = next((line for pattern, line in table.items() if any(fnmatch(name, pattern) for name in names)), None)
    if line is None:
        return None
    program, _, rest = line.partition(" ")
    wrapper = _WRAPPERS.get(program, "")
    return f"./{wrapper} {rest}" if wrapper in names and os.access(root / wrapper, os.X_OK) else line


def _node(root: Path) -> str | None:
    script = _test_script(_text(root / "package.json"))
    if script and "no test specified" not in script:
        for lock, line in _NODE_LOCKS.items():
            if (root / lock).is_file() and shutil.which(line.split()[0]):
                return f"{line} test"
        return "npm test"
    tests = any(NODE_TEST.fullmatch(path.name) for path in tree.files(root, depth=4, limit=5000))
    return "node --test" if tests else None


def _test_script(text: str) -> str:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return ""
    scripts = found.get("scripts") if isinstance(found, dict) else None
    script = scripts.get("test") if isinstance(scripts, dict) else None
    return script if isinstance(script, str) else ""


def _ruby(root: Path) -> str | None:
    """RSpec where it has its file or examples, else Rails' own tests, else a Rakefile's."""
    bundled = "bundle exec " if (root / "Gemfile").is_file() else ""
    if (root / ".rspec").is_file() or any((root / "spec").glob("**/*_spec.rb")):
        return f"{bundled}rspec"
    if (root / "bin" / "rails").is_file() and (root / "test").is_dir():
        return "bin/rails test"
    asks = re.search(r"TestTask|\btask[ (]+[:\"']?(?:test|default)\b", _text(root / "Rakefile"))
    return f"{bundled}rake test" if asks and (root / "test").is_dir() else None


def _php(root: Path) -> str | None:
    if '"test"' in _text(root / "composer.json").partition('"scripts"')[2]:
        return "composer test"
    named = any((root / name).is_file() for name in ("phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml"))
    return "vendor/bin/phpunit" if named else None


def _make(root: Path) -> str | None:
    for name in ("GNUmakefile", "makefile", "Makefile"):
        for target in ("test", "check"):
            if re.search(rf"^{target}\s*:(?!=)", _text(root / name), re.MULTILINE):
                return f"make {target}"
    return None


def _text(path: Path) -> str:
    """ "" where there is no such file, or it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return ""
