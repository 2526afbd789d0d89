"""Starts the program of an MCP server, in the sandbox or outside it.

An agent may write what lies in the repository, so nothing of it runs with the user's rights. A
server that the repository brings, or whose command line names something in it, starts in the
sandbox and cannot write the repository. Where no sandbox holds, it starts only while its files are
as the user trusted them. Every server outside the sandbox works in a folder outside the
repository, because many programs run what they find where they are started (npx, `python -m`),
unless the user's own entry names the folder.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.extensions.mcp_settings import StdioServer
from fugu_cli.extensions.repository_code import (
    NO_COMPILED_FILES,
    TrustedCode,
    paths_in_repository,
)
from fugu_cli.safety.paths import expand_home, inside, path_exists, real_path
from fugu_cli.safety.programs import program_environment

if TYPE_CHECKING:
    from fugu_cli.safety.sandbox.command_sandbox import Launch, Sandbox

PASSED = frozenset(
    {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "LANG", "LANGUAGE"}
)
"""Variables that a server gets besides LC_* and those of its entry. Provider keys are not passed."""
REFUSED = (
    "it runs what lies in the repository, no sandbox holds here, and it is not known whether an "
    "agent changed that since you trusted it: `fugu trust` if the files are yours, or make it your "
    "own with `fugu mcp add --cwd . NAME -- COMMAND`"
)


@dataclass(frozen=True)
class ServerRules:
    """The conditions under which a session's servers start. `online`: the names of servers that
    reach the network in the sandbox. `code`: what the user trusted, None where nothing was.
    """

    sandbox: Sandbox | None = None
    online: frozenset[str] = frozenset()
    code: TrustedCode | None = None


NO_SANDBOX = ServerRules()


@dataclass(frozen=True)
class ServerStart:
    """A server's command line, folder and environment, and its confinement: None outside the
    sandbox. The temporary folder of `sandbox` is there as long as this is held.
    """

    words: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    launch: Launch | None = None
    sandbox: Sandbox | None = None


def plan_start(name: str, settings: StdioServer, root: Path, rules: ServerRules) -> ServerStart:
    """Decide on the start of a server. May wait for the sandbox's trial. Raises OSError where there
    is no such program or it must not run.
    """
    environment = server_environment(settings.env, program_environment(root))
    program = _find_program(settings.command, root, environment["PATH"])
    words = (program, *settings.args)
    real_root = real_path(root)
    if settings.cwd and not settings.of_repository:
        return ServerStart(words, real_path(root / expand_home(settings.cwd)), environment)
    named = paths_in_repository((*words, *_paths_of(settings.env)), real_root)
    if not (named or settings.of_repository):
        return ServerStart(words, _outside(real_root), environment)
    if rules.sandbox is not None:
        network = rules.sandbox.settings.network or name in rules.online
        sandbox = rules.sandbox.for_servers("mcp-servers", network=network)
        launch = sandbox.launch("", read_only=True)
        if launch.access is not None:
            variables = _confined_environment(settings.env, environment, launch)
            folder = real_path(root / settings.cwd)
            return ServerStart(words, folder, variables, launch, sandbox)
    if named and (rules.code is None or not rules.code.holds(named, real_root)):
        raise OSError(errno.EPERM, REFUSED)
    absolute = tuple(_absolute(word, real_root) for word in words)
    return ServerStart(absolute, _outside(real_root), {**environment, **NO_COMPILED_FILES})


def _confined_environment(
    entry: Mapping[str, str], environment: Mapping[str, str], launch: Launch
) -> dict[str, str]:
    """Return the environment of a server in the sandbox. The variables of its entry stay: the user
    trusted it with them.
    """
    variables = dict(environment)
    for name, value in launch.variables().items():
        if name in entry:
            continue
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    return variables


def _paths_of(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of an entry's variables that hold a path."""
    return tuple(value for value in env.values() if "/" in value)


def _outside(root: Path) -> Path:
    """Return the home folder, or `/` where the home lies in the repository."""
    home = real_path(Path.home())
    return Path("/") if inside(home, root) else home


def _absolute(word: str, root: Path) -> str:
    """Return a word that names a path in the repository so that it means that path from anywhere."""
    name, equals, value = word.rpartition("=")
    path = root / value
    return f"{name}{equals}{path}" if value and "\0" not in value and path_exists(path) else word


def server_environment(entry: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server: a few variables of ours and those of its entry."""
    passed = {
        name: value for name, value in environ.items() if name in PASSED or name.startswith("LC_")
    }
    return {**passed, **entry}


def _find_program(command: str, root: Path, path: str) -> str:
    """Return the file to run. Raises OSError if there is none."""
    if "/" in command:
        program: str | None = str(root / expand_home(command))
    else:
        program = shutil.which(command, path=path)
    if program is None or not os.access(program, os.X_OK) or Path(program).is_dir():
        raise FileNotFoundError(2, f"there is no program {command!r} that could be run")
    return program
