"""`fugu update`: which fugu is installed, which is the newest, and the installer's own command to
get it.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from fugu_cli import __version__
from fugu_cli.cli.current_folder import current_path, print_clean, say
from fugu_cli.config.loader import repository
from fugu_cli.errors import InfrastructureError, UsageError
from fugu_cli.safety.programs import add_repository, find_program, program_environment

PACKAGE = "fugu-cli"
UNKNOWN = "which fugu is the newest is not known"
NO_PROJECT = Path("/")
"""The folder in which installers run: they obey a project's settings, such as the index in `uv.toml`."""
LOOK_SECONDS = 60.0
"""Seconds that the installer may take to say which version is the newest."""


@dataclass(frozen=True)
class Installation:
    """The program that installed fugu. The command `look` prints the newest version, which the
    pattern `newest` finds in its output; `update` installs it.
    """

    by: str
    look: tuple[str, ...]
    newest: str
    update: tuple[str, ...]


def update(yes: bool) -> int:
    """Print the installed and the newest version. If they differ, ask (unless `yes`) and update.

    Raises UsageError if it cannot ask or fugu runs from a folder, InfrastructureError if the newest
    version cannot be found or the command fails.
    """
    add_repository(repository(current_path()))
    installation = find_installation(Path(sys.prefix))
    print_clean(f"fugu {__version__}, installed by {installation.by} in {sys.prefix}")
    newest = _find_newest(installation)
    if newest == __version__:
        print_clean("this is the newest")
        return 0
    command = shlex.join(installation.update)
    print_clean(f"the newest is {newest}: `{command}`")
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError("an update is asked about, and there is no terminal", hint="add --yes")
        say("run it? [y/N]")
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            return 4
    sys.stdout.flush()
    done = subprocess.run(
        installation.update, cwd=NO_PROJECT, env=program_environment(), check=False
    )
    code = done.returncode
    if code:
        raise InfrastructureError(
            f"`{command}` ended with exit code {code}", hint="what it says above is the reason"
        )
    return 0


def find_installation(prefix: Path) -> Installation:
    """Return the installer of the environment at `prefix`.

    Raises UsageError if fugu came from a folder or a file, or its installer is not there.
    """
    origin = json.loads(metadata.distribution(PACKAGE).read_text("direct_url.json") or "{}")
    if "dir_info" in origin:
        folder = origin["url"].removeprefix("file://")
        raise UsageError(f"fugu runs from the folder {folder}", hint="update it with git")
    if "archive_info" in origin:
        raise UsageError(
            f"fugu was installed from a file, {origin['url'].removeprefix('file://')}, and a newer "
            "one is found in no index",
            hint=f"with a newer wheel: `{_command_for_a_wheel(prefix)}`",
        )
    dry = ("uv", "pip", "install", "--dry-run", "--upgrade", "--python", sys.executable, PACKAGE)
    added = rf"(?:^ \+ {PACKAGE}==|^Would install (?:.* )?{re.sub('-', '[-_]', PACKAGE)}-)(\S+)"
    if (prefix / "uv-receipt.toml").exists():
        return _check_installer(Installation("uv", dry, added, ("uv", "tool", "upgrade", PACKAGE)))
    if (prefix / "pipx_metadata.json").exists():
        look = ("pipx", "runpip", PACKAGE, "install", "--dry-run", "--upgrade", PACKAGE)
        return _check_installer(Installation("pipx", look, added, ("pipx", "upgrade", PACKAGE)))
    if util.find_spec("pip") is None:
        return _check_installer(
            Installation("uv", dry, added, tuple(word for word in dry if word != "--dry-run"))
        )
    pip = (sys.executable, "-I", "-m", "pip")
    index = (*pip, "index", "versions", PACKAGE)
    return Installation(
        "pip", index, rf"^{PACKAGE} \((\S+)\)", (*pip, "install", "--upgrade", PACKAGE)
    )


def _command_for_a_wheel(prefix: Path) -> str:
    if (prefix / "uv-receipt.toml").exists():
        return "uv tool install --force WHEEL"
    if (prefix / "pipx_metadata.json").exists():
        return "pipx install --force WHEEL"
    if util.find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(sys.executable)} WHEEL"
    return f"{shlex.quote(sys.executable)} -m pip install WHEEL"


def _check_installer(installation: Installation) -> Installation:
    if find_program(installation.by) is None:
        raise UsageError(
            f"fugu was installed by {installation.by}, which is not on PATH",
            hint=f"put {installation.by} there",
        )
    return installation


def _find_newest(installation: Installation) -> str:
    """Return the newest version, or this one if the installer has none."""
    try:
        done = subprocess.run(
            installation.look,
            cwd=NO_PROJECT,
            env=program_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=LOOK_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(
            f"{UNKNOWN}: {installation.by} does not answer", hint="try again later"
        ) from error
    if (
        match := re.search(installation.newest, f"{done.stdout}\n{done.stderr}", re.MULTILINE)
    ) is not None:
        return match[1]
    if done.returncode == 0:
        return __version__
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    hint = lines[-1].strip() if lines else f"exit code {done.returncode}"
    raise InfrastructureError(f"{UNKNOWN}: {installation.by} does not say", hint=hint)
