"""The content a call's output depends on, as one id: a file's blob, or the whole tree for what looks at many files.

The tool memory of workflows (conductor/memory.py) keys its entries by it. "" where it cannot be told: outside the
repository, or a command that may look at more than files. Changes nothing.
"""

from __future__ import annotations

from pathlib import Path

from fugu_cli import policy
from fugu_cli.messages import Call
from fugu_cli.policy import paths
from fugu_cli.policy.arguments import Malformed, arguments_of
from fugu_cli.tools import blobs
from fugu_cli.tools.workspace import Workspace

LOOKING = frozenset({"list", "glob", "grep", "run_tests"})
ELSEWHERE = frozenset(
    [
        "git",
        "date",
        "ps",
        "env",
        "printenv",
        "id",
        "who",
        "whoami",
        "uptime",
        "df",
        "du",
        "free",
        "top",
        "hostname",
        "uname",
        "which",
    ]
)
"""Commands that only read, and not only the repository's files."""
LARGEST = 2_000_000
"""Bytes of a file that is looked at."""


async def state(workspace: Workspace, call: Call) -> str:
    """The id now. The same id later means: the same call would say the same."""
    given = arguments_of(call)
    if isinstance(given, Malformed):
        return ""
    if call.tool == "read":
        return _blob(workspace, given.get("path"))
    command = given.get("command") if call.tool == "bash" else None
    if call.tool in LOOKING or (isinstance(command, str) and _only_files(workspace, call, command)):
        return await workspace.snapshot() or ""
    return ""


def _blob(workspace: Workspace, name: object) -> str:
    path = paths.locate(name, workspace.root) if isinstance(name, str) else None
    if not isinstance(path, Path) or not paths.inside(path, workspace.root):
        return ""
    try:
        return blobs.blob_id(path.read_bytes()) if path.is_file() and path.stat().st_size <= LARGEST else ""
    except OSError:
        return ""


def _only_files(workspace: Workspace, call: Call, command: str) -> bool:
    """A command that policy knows to read only, and that looks at nothing but files."""
    reads = policy.judge(call, policy.Rules(mode="plan"), workspace.root).verdict == "allow"
    return reads and not ELSEWHERE & set(command.replace("/", " ").split())
