"""Sample trees and a workspace for the tools' tests."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fugu_cli.messages import Call
from fugu_cli.tools.apply_patch import APPLY_PATCH
from fugu_cli.tools.bash import BASH
from fugu_cli.tools.diff import DIFF
from fugu_cli.tools.edit import EDIT
from fugu_cli.tools.read_write import READ, WRITE
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.run_tests import RUN_TESTS
from fugu_cli.tools.search import GLOB, GREP, LIST
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace

Build = Callable[[dict[str, str | bytes]], Workspace]


def git(folder: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True).stdout


def lay(folder: Path, files: dict[str, str | bytes]) -> None:
    """Write files; text as UTF-8."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


async def restore(workspace: Workspace, tree: str) -> tuple[str, ...]:
    """Put a snapshot back; returns the paths that changed."""
    return (await workspace.take_back(await workspace.history.since(tree))).paths


@pytest.fixture
def plain(tmp_path: Path) -> Build:
    """Makes a workspace that is no repository."""

    def build(files: dict[str, str | bytes]) -> Workspace:
        lay(tmp_path / "work", files)
        (tmp_path / "work").mkdir(exist_ok=True)
        return Workspace(tmp_path / "work", tmp_path / "store")

    return build


@pytest.fixture
def repo(tmp_path: Path) -> Build:
    """Makes a workspace that is a repository with one commit of the files."""

    def build(files: dict[str, str | bytes]) -> Workspace:
        root = tmp_path / "repo"
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
        lay(root, files)
        git(root, "add", "-A")
        git(root, "commit", "-q", "--allow-empty", "-m", "start")
        return Workspace(root, tmp_path / "store")

    return build


def use(workspace: Workspace, tool: str, **arguments: object) -> ToolResult:
    """Call a tool as an agent would."""
    return asyncio.run(TOOLS.run(Call.make("1", tool, **arguments), workspace, lambda text: None))


TOOLS = Toolbox((READ, LIST, GLOB, GREP, EDIT, WRITE, APPLY_PATCH, BASH, RUN_TESTS, DIFF))
