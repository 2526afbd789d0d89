"""How a call is judged, asked about and recorded before it runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from fugu_cli.engine.environment import Environment, Permission
from fugu_cli.engine.tool_calls import CUT_OFF, run_call
from fugu_cli.messages import Call
from fugu_cli.safety.policy import Judgement, Rules
from fugu_cli.session.events import Permitted, Replied, ToolRan
from fugu_cli.session.log import Log
from fugu_cli.system.resolved_files import read_resolved
from fugu_cli.tools.workspace import Workspace
from fugu_cli.wiring import build_toolbox


def test_a_yes_does_not_hold_for_another_place_that_a_link_leads_to_by_then(tmp_path: Path) -> None:
    root, other = tmp_path / "work", tmp_path / "other"
    (root / "real").mkdir(parents=True)
    other.mkdir()
    (root / "folder").symlink_to("real")

    async def turned(call: Call, judgement: Judgement) -> Permission:
        (root / "folder").unlink()
        (root / "folder").symlink_to(other)
        return "once"

    log, environment = (
        Log.memory(),
        Environment(
            build_toolbox(), Workspace(root, tmp_path / "store"), Rules(mode="ask"), turned
        ),
    )
    call = Call.make("1", "write", path="folder/a.txt", content="x")
    asyncio.run(run_call(log, environment, 1, call))
    permitted, ran = log.events
    assert isinstance(permitted, Permitted) and isinstance(ran, ToolRan)
    assert not ran.ok and "leads to another place now" in ran.output
    assert list(other.iterdir()) == []
    # a link that comes into the path only when the tool is at work
    for change in (
        lambda: environment.workspace.write(root / "folder" / "a.txt", b"x"),
        lambda: read_resolved(root / "folder" / "a.txt"),
    ):
        with pytest.raises(NotADirectoryError):
            change()
    # a pipe that has taken the place of a file
    os.mkfifo(root / "real" / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        read_resolved(root / "real" / "pipe")
    assert list(other.iterdir()) == []


def test_a_call_that_the_reply_limit_cut_is_told_so(tmp_path: Path) -> None:
    async def never(call: Call, judgement: Judgement) -> Permission:
        raise AssertionError

    root = tmp_path / "work"
    root.mkdir()
    log, environment = (
        Log.memory(),
        Environment(build_toolbox(), Workspace(root, tmp_path / "store"), Rules(), never),
    )
    whole = Call.make("1", "write", path="a.txt", content="x")
    cut = Call(id="2", tool="write", arguments='{"path": "big.txt", "content": "aaa')
    log.append(Replied(turn=1, agent="a", calls=(whole, cut), stop="length"))
    for call in (whole, cut):
        asyncio.run(run_call(log, environment, 1, call))
    outputs = [event.output for event in log.events if isinstance(event, ToolRan)]
    assert outputs == ["Created a.txt (1 line).", CUT_OFF.format(tool="write")]
    assert [path.name for path in root.iterdir()] == ["a.txt"]
