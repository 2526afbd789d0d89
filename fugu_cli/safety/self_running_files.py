"""Files that run by themselves, in two classes: one table for policy, the sandbox and fugu itself.

Files of the first class are run by others without a further word: git, editors, shells, CI
services, agents. Writing one is asked about every time, and the sandbox seals it. Files of the
second class are run by tests, builds and language servers. Writing one is free where those run in
the sandbox. Stands above paths.py and git_configuration.py; reads nothing but git's configuration
and the names of files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

from fugu_cli.safety.git_configuration import obeyed_paths
from fugu_cli.safety.paths import inside


class RunBy(Enum):
    """The party that runs a file of the table: the first and the second class."""

    OTHERS = 1
    CHECKS = 2


@dataclass(frozen=True)
class SelfRunningFile:
    """The class of a path, and a clause that says who runs it."""

    run_by: RunBy
    reason: str


RUN_BY_OTHERS = {
    "it belongs to git itself": ".git .gitconfig",
    "git runs it as a hook": (
        ".husky .githooks .pre-commit-config.yaml .lefthook lefthook.* .lefthook.* "
        "lefthook-local.* .lefthook-local.* .overcommit.yml"
    ),
    "a shell runs it when somebody enters the folder": (
        ".envrc .direnv mise.toml .mise.toml mise.local.toml .mise.local.toml .mise "
        "mise/config.toml .config/mise .autoenv .autoenv.zsh"
    ),
    "an editor runs what it says": (
        ".vscode .idea .devcontainer .devcontainer.json .zed .fleet *.code-workspace "
        "*.sublime-project .vim .vimrc .gvimrc .exrc .nvimrc .nvim.lua .config/nvim .emacs "
        ".emacs.d .dir-locals.el .helix .vs .nova .lvimrc .local.vimrc .ycm_extra_conf.py"
    ),
    "cargo runs what it says": ".cargo/config.toml .cargo/config",
    "a CI service runs it": (
        ".github .gitlab .gitlab-ci.yml .circleci .travis.yml jenkinsfile azure-pipelines.yml azure-pipelines.yaml "
        ".azure-pipelines bitbucket-pipelines.yml .buildkite .drone.yml .drone.yaml .woodpecker "
        ".woodpecker.yml .woodpecker.yaml appveyor.yml .appveyor.yml .cirrus.yml .semaphore "
        ".forgejo .gitea .teamcity .builds .build.yml .cirrus.star .tekton buildspec.yml "
        "buildspec.yaml cloudbuild.yaml cloudbuild.yml codemagic.yaml bitrise.yml .gitpod.yml "
        ".replit .idx"
    ),
    "it says what agents may do": (
        ".fugurc agents.md agents.override.md .agents .claude claude.md claude.local.md .cursor "
        ".cursorrules .codex .gemini gemini.md .mcp.json .windsurf .windsurfrules .clinerules "
        ".roo .roomodes .kiro .opencode opencode.json opencode.jsonc .amazonq .junie .continue "
        ".aider.conf.yml .qwen qwen.md .goosehints .augment .augment-guidelines .trae .crush "
        ".crush.json crush.json crush.md warp.md .amp .rules .openhands .factory .vibe .kimi "
        ".kilocode .cline .codebuddy .iflow .rovodev .grok"
    ),
    "a program runs it when it starts": (
        ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv "
        ".zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .inputrc .config/fish "
        ".config/autostart .config/systemd .gdbinit .lldbinit .tmux.conf .screenrc .pdbrc "
        ".pythonrc .pythonrc.py .ipython .irbrc .rprofile .psqlrc .sqliterc"
    ),
    "a language server loads it": "tsserver.js node_modules/typescript/lib",
}
"""By the reason, patterns for a name in any folder, in small letters. A folder stands for all that
is in it.
"""

RUN_BY_CHECKS = {
    "the tests run it": (
        "conftest.py sitecustomize.py usercustomize.py *.pth noxfile.py tox.ini jest.config.* "
        "vitest.config.* vite.config.* karma.conf.* playwright.config.* cypress.config.* "
        ".mocharc.* ava.config.* bunfig.toml"
    ),
    "the build runs it": (
        "makefile gnumakefile justfile taskfile.yml taskfile.yaml package.json .npmrc .yarnrc.yml "
        "setup.py build.rs rakefile gemfile gradlew mvnw build.gradle build.gradle.kts "
        "settings.gradle settings.gradle.kts webpack.config.* rollup.config.* babel.config.* "
        "eslint.config.* flake.nix shell.nix default.nix devenv.nix .eslintrc.js "
        ".eslintrc.cjs .pnp.cjs .pnp.loader.mjs .yarn .yarnrc .pnpmfile.* gulpfile.* gruntfile.* "
        "next.config.* postcss.config.* tailwind.config.* prettier.config.* cmakelists.txt "
        "rust-toolchain rust-toolchain.toml .tool-versions "
        "meson.build pom.xml build.xml build.sbt mix.exs package.swift build.zig"
    ),
    "tests and builds run what is in it": "node_modules .venv venv",
}

NOT_SEARCHED = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__"})


def self_running_file(path: Path, root: Path) -> SelfRunningFile | None:
    """Return why and when a resolved path below `root` is run, None if nothing runs it by itself. A
    path of both classes counts as one of the first.
    """
    if not inside(path, root):
        return None
    parts = [part.casefold() for part in path.relative_to(root).parts]
    if reason := _OTHERS.reason(parts):
        return SelfRunningFile(RunBy.OTHERS, reason)
    if any(inside(path, folder) for folder in own_environments(root)):
        return SelfRunningFile(RunBy.OTHERS, "fugu itself runs from it")
    if any(inside(path, obeyed) for obeyed in obeyed_paths(root)):
        return SelfRunningFile(RunBy.OTHERS, "git's configuration names it")
    if reason := _CHECKS.reason(parts):
        return SelfRunningFile(RunBy.CHECKS, reason)
    return None


def entries_run_by_others(folder: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return which entries of a folder are of the first class, git's own left out. `folder` is
    relative to the repository's root. Nothing is looked for among dependencies.
    """
    if not NOT_SEARCHED.isdisjoint(folder.split("/")):
        return ()
    return tuple(
        name
        for name in names
        if name != ".git" and _OTHERS_ENTRY.search(f"{folder}/{name}".casefold())
    )


def own_environments(root: Path) -> list[Path]:
    """Return the environments that fugu itself runs from, where they lie below `root`."""
    prefixes = dict.fromkeys(Path(os.path.realpath(name)) for name in (sys.prefix, sys.base_prefix))
    return [prefix for prefix in prefixes if root in prefix.parents]


class _Patterns:
    """One class of the table, ready to be looked up by the parts of a path."""

    def __init__(self, table: dict[str, str]) -> None:
        self._reasons: dict[str, str] = {}
        self._others: list[tuple[list[str], str]] = []
        for reason, patterns in table.items():
            for pattern in patterns.split():
                if "*" in pattern or "/" in pattern:
                    self._others.append((pattern.split("/"), reason))
                else:
                    self._reasons[pattern] = reason

    def reason(self, parts: list[str]) -> str:
        """Return why the path with these parts is of the class, "" where it is not."""
        for part in parts:
            if part in self._reasons:
                return self._reasons[part]
        for pattern, reason in self._others:
            if any(_begins_with(parts[start:], pattern) for start in range(len(parts))):
                return reason
        return ""


def _begins_with(parts: list[str], pattern: list[str]) -> bool:
    if len(parts) < len(pattern):
        return False
    return all(fnmatchcase(part, piece) for part, piece in zip(parts, pattern, strict=False))


def _entry_pattern(table: dict[str, str]) -> re.Pattern[str]:
    """Return what a path of the table ends with: looked for in every file of a repository, it must
    be quick.
    """
    names = []
    for pattern in " ".join(table.values()).split():
        names.append(re.escape(pattern).replace(r"\*", "[^/]*"))
    return re.compile(rf"(?:^|/)(?:{'|'.join(names)})$")


_OTHERS_ENTRY = _entry_pattern(RUN_BY_OTHERS)
_OTHERS = _Patterns(RUN_BY_OTHERS)
_CHECKS = _Patterns(RUN_BY_CHECKS)
