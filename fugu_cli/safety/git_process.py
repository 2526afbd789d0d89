"""Runs git for fugu, in the user's repository and in fugu's own.

The git program and what it starts come from outside the repository. No hook, file monitor or pager
runs. With `NO_FETCH` nothing is fetched. Only a commit or a push that the user asked for runs
programs that the repository names.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fugu_cli.errors import FuguError, StorageError, UsageError
from fugu_cli.safety.programs import (
    find_program,
    search_path_outside,
    without_libraries_inside,
)

NO_MONITOR = ("-c", "core.fsmonitor=false")
NO_PROGRAMS = (*NO_MONITOR, "-c", f"core.hooksPath={os.devnull}", "-c", "core.pager=cat")
LOCAL_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
)
"""Variables that bind git to one repository; a hook that starts fugu has them set."""
NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
"""Keep git from fetching what a partial clone lacks; git before 2.45 knows only the second."""
MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "67108864",
    "MALLOC_TRIM_THRESHOLD_": "134217728",
    "MALLOC_TOP_PAD_": "4194304",
}
"""glibc keeps the memory that git frees. Else each object it compresses costs a mapping of new
pages, ten times the time of the compression. Other C libraries ignore these variables."""
NESTED_AT_MOST = 200
"""Repositories inside a repository that are looked at."""
_STARTS_PROGRAM = re.compile(
    r"filter\..*\.(clean|smudge|process)|diff\.external|diff\..*\.(textconv|command)"
    r"|trailer\..*\.(command|cmd)|merge\..*\.driver|gpg\.(.*\.)?program|pager\..*"
    r"|core\.(pager|editor|askpass|sshcommand|gitproxy|alternaterefscommand)"
    r"|remote\..*\.(uploadpack|receivepack|vcs)|uploadpack\.packobjectshook"
    r"|credential\.(.*\.)?helper|protocol\.(.*\.)?allow",
    re.DOTALL,
)
"""Settings of git that name a program, or let an address be one."""


@dataclass(frozen=True)
class GitOutput:
    """The result of a call; `code` is 0 when it succeeded."""

    code: int
    out: bytes
    err: str


def git_program(root: Path) -> str | None:
    """Return the path of git, None where it is not installed outside `root`."""
    return find_program("git", root)


def own_environment(**variables: str) -> dict[str, str]:
    """Return variables with which git reads neither the user's nor the system's configuration, and
    no repository but the one that is named.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **kept,
        **NO_FETCH,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
        **MEMORY,
        **variables,
    }


def users_environment() -> dict[str, str]:
    """Return variables with which git reads the user's configuration, in the repository of the
    folder it runs in.
    """
    return {name: value for name, value in os.environ.items() if name not in LOCAL_VARIABLES}


def git_command(
    root: Path, *arguments: str, environment: Mapping[str, str], as_the_user: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Return the words and the variables of a git call that starts nothing the repository at `root`
    brings. `as_the_user`: it does what git does when the user types the command. Raises UsageError
    when git is missing.
    """
    path = search_path_outside(root)
    program = shutil.which("git", path=path)
    if program is None:
        raise UsageError("git was not found", hint="install git and make sure it is on PATH")
    variables = without_libraries_inside(environment, root)
    if as_the_user:
        return [program, *NO_MONITOR, *arguments], variables
    return [program, *NO_PROGRAMS, *arguments], {**variables, "PATH": path}


def run_git(
    root: Path,
    *arguments: str,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    stdin: bytes = b"",
    seconds: float | None = None,
    largest_file: int | None = None,
    as_the_user: bool = False,
) -> GitOutput:
    """Run git to its end, in `root` or in `cwd`. Raises UsageError when git is missing, TimeoutError
    when it has not ended after `seconds`, and StorageError when the folder is gone.

    The system ends it when it writes a file of more than `largest_file` bytes.
    """
    folder = cwd or root
    words, variables = git_command(
        root, *arguments, environment=environment, as_the_user=as_the_user
    )
    limit_files = None
    if largest_file is not None:
        import resource  # Windows has none

        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = largest_file if most == resource.RLIM_INFINITY else min(largest_file, most)
        limit_files = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
    try:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=limit_files,
        )
    except FileNotFoundError as error:
        raise missing(folder) from error
    try:
        output, err = process.communicate(stdin, seconds)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    finally:
        if process.returncode is None:  # with what it started: a transport holds the pipes
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return GitOutput(process.returncode, output, err.decode("utf-8", "replace").strip())


async def start_git(
    root: Path, *arguments: str, environment: Mapping[str, str], cwd: Path | None = None
) -> asyncio.subprocess.Process:
    """Start git with all three streams piped, in `root` or in `cwd`. Raises UsageError when git is
    missing, and StorageError when the folder is gone.
    """
    folder = cwd or root
    words, variables = git_command(root, *arguments, environment=environment)
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *words, cwd=folder, env=variables, limit=2**20, stdin=pipe, stdout=pipe, stderr=pipe
        )
    except FileNotFoundError as error:
        raise missing(folder) from error


def show_git(root: Path, *arguments: str, cwd: Path) -> int:
    """Run git as the user would, with the terminal as its own, and return its exit code. It may
    ask, open an editor, sign, and run the repository's hooks.
    """
    words, variables = git_command(
        root, *arguments, environment=users_environment(), as_the_user=True
    )
    return subprocess.run(words, cwd=cwd, env=variables, check=False).returncode


def missing(folder: Path) -> FuguError:
    """Return the error for a git that could not be started in `folder`."""
    if folder.is_dir():
        return UsageError("git was not found", hint="install git and make sure it is on PATH")
    return StorageError(f"the folder {folder} is gone", hint="start again in a folder that exists")


def settings_variables(*options: str) -> dict[str, str]:
    """Return variables that give the settings of `options` (`-c NAME=VALUE`...) to every git that a
    program starts, after those that the environment gives already.
    """
    count = os.environ.get("GIT_CONFIG_COUNT", "")
    index = int(count) if count.isdigit() else 0
    variables: dict[str, str] = {}
    for option in options:
        if option == "-c":
            continue
        name, _, value = option.partition("=")
        variables[f"GIT_CONFIG_KEY_{index}"] = name
        variables[f"GIT_CONFIG_VALUE_{index}"] = value
        index += 1
    return {**variables, "GIT_CONFIG_COUNT": str(index)}


def repository_programs_off(root: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return options with which git starts no program that the configuration of the repository at
    `root`, or of one inside it, names. Programs of the user's own configuration, such as filters,
    still run. Raises UsageError if git cannot read the configuration.
    """
    settings = _programs_off_in(root, root, environment)
    without_repository = {
        name: value for name, value in environment.items() if name not in LOCAL_VARIABLES
    }
    waiting, folders = [root], {root}
    while waiting:
        nested = set(_nested_repositories(root, waiting.pop(), without_repository)) - folders
        folders |= nested
        waiting += nested
        if len(folders) > NESTED_AT_MOST:
            raise UsageError(
                f"{root} holds more than {NESTED_AT_MOST} repositories, and each may name programs",
                hint="work in one of them",
            )
        for folder in nested:
            settings |= _programs_off_in(root, folder, without_repository)
    return tuple(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))


def _programs_off_in(root: Path, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    listed = run_git(
        root, "config", "--list", "--show-scope", "-z", cwd=folder, environment=environment
    )
    if listed.code:
        raise UsageError(f"git's configuration cannot be read: {listed.err}")
    settings: dict[str, str] = {}
    fields = listed.out.split(b"\0")
    for scope, setting in zip(fields[::2], fields[1::2], strict=False):
        name = os.fsdecode(setting.partition(b"\n")[0])
        if scope not in {b"local", b"worktree"} or not _STARTS_PROGRAM.fullmatch(name):
            continue
        if "=" in name:
            raise UsageError(
                f"the repository's setting {name} starts a program and cannot be turned off",
                hint=f"`git config --local --unset-all {shlex.quote(name)}` removes it",
            )
        settings[name] = ""
        if "pager" in name:
            settings[name] = "cat"
        elif name.startswith("filter."):
            settings[f"{name.rpartition('.')[0]}.required"] = "false"
        elif name.startswith("protocol."):
            settings[name] = "never"
    return settings


def _nested_repositories(
    root: Path, folder: Path, environment: Mapping[str, str]
) -> Iterator[Path]:
    """Yield the repositories that git looks into when it compares the files of one at `folder`."""
    listed = run_git(root, "ls-files", "--stage", "-z", cwd=folder, environment=environment)
    for entry in listed.out.split(b"\0"):
        nested = folder / os.fsdecode(entry.partition(b"\t")[2])
        if entry.startswith(b"160000 ") and os.path.lexists(nested / ".git"):
            yield nested
