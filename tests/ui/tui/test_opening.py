"""A session is opened behind a screen that goes on: in a thread, what is typed meanwhile kept for it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from textual.app import App
from textual.pilot import Pilot

from fugu_cli.cli.session_opening import FolderSessions
from fugu_cli.config.loader import load_config
from fugu_cli.engine.environment import AskPermission, Permission
from fugu_cli.messages import Call
from fugu_cli.safety import policy
from fugu_cli.session.log import Log
from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.ui.tui.session_protocol import InterfaceOptions, SessionProtocol
from tests.ui.tui.demo import DemoSessionOpener

ANSWER = '[[step]]\ntext = "Done."\n'


@dataclass
class SlowDesk(DemoSessionOpener):
    """Opens a session when it is told to."""

    def __post_init__(self) -> None:
        self.may = asyncio.Event()

    async def begin(self, ask: AskPermission) -> SessionProtocol:
        await self.may.wait()
        return await super().begin(ask)


async def never(call: Call, judgement: policy.Judgement) -> Permission:
    raise AssertionError("nothing is to be asked")


async def until(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


def requests(app: FuguApp) -> list[str]:
    controller = app.main.controller
    assert controller is not None
    return (
        [event.text for event in controller.session.log.events if event.type == "asked"]
        if controller.work.session
        else []
    )


async def typed(pilot: Pilot[int], text: str) -> None:
    await pilot.press(*text, "enter")


def test_what_is_typed_while_a_session_is_opened_is_asked_in_it_after_the_prompt_of_the_command_line(
    project: Path,
) -> None:
    async def whole() -> list[str]:
        opener = SlowDesk(project, Path.home() / "data", {"small": ANSWER})
        app = FuguApp(opener, InterfaceOptions(state=Path.home() / "state", prompt="first"))
        async with app.run_test(size=(100, 30)) as pilot:
            await until(lambda: app.main.controller is not None)
            await typed(pilot, "second")
            await typed(pilot, "third")
            opener.may.set()
            await until(lambda: len(requests(app)) == 3)
            return requests(app)

    assert asyncio.run(whole()) == ["first", "second", "third"]


def test_what_is_typed_after_new_is_asked_in_the_new_session(project: Path) -> None:
    async def whole() -> list[str]:
        opener = SlowDesk(project, Path.home() / "data", {"small": ANSWER})
        opener.may.set()
        app = FuguApp(opener, InterfaceOptions(state=Path.home() / "state"))
        async with app.run_test(size=(100, 30)) as pilot:
            await until(lambda: app.main.controller is not None and app.main.controller.started)
            assert app.main.controller is not None
            before = app.main.controller.session
            opener.may.clear()
            await typed(pilot, "/new ")
            await typed(pilot, "hello")
            await pilot.pause(0.1)
            assert requests(app) == []
            opener.may.set()
            await until(lambda: bool(requests(app)))
            assert app.main.controller.session is not before
            return requests(app)

    assert asyncio.run(whole()) == ["hello"]


@pytest.fixture
def slow_git(project: Path, monkeypatch: pytest.MonkeyPatch) -> FolderSessions:
    """Sessions of a repository in which git takes its time."""
    script = Path.home() / "a.toml"
    script.write_text(ANSWER)
    entry = f'[[agents]]\nname = "a"\nprovider = "scripted"\nmodel = "{script}"\n'
    (Path.home() / ".fugurc").write_text(f'coordinator = "cascade"\n{entry}')
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--allow-empty", "-qm", "x"],
                   cwd=project, check=True)  # fmt: skip
    bin = Path.home() / "bin"
    bin.mkdir()
    (bin / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *rev-parse*) sleep 0.5;; esac\nexec {shutil.which("git")} "$@"\n'
    )
    (bin / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin}{os.pathsep}{os.environ['PATH']}")
    return FolderSessions(load_config(project, {}, {}), {})


def test_nothing_waits_for_a_session_that_is_being_opened(slow_git: FolderSessions) -> None:
    async def whole() -> None:
        opening = asyncio.create_task(slow_git.begin(never))
        await asyncio.sleep(0.1)
        assert not opening.done()
        await (await opening).close()

    asyncio.run(whole())


def test_a_session_that_nobody_waits_for_any_more_is_closed(slow_git: FolderSessions) -> None:
    async def whole() -> None:
        opening = asyncio.create_task(slow_git.begin(never))
        await asyncio.sleep(0.1)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        assert opening.cancelled()

    asyncio.run(whole())
    (path,) = slow_git.loaded.config.data.rglob("*.jsonl")
    Log.open(path).close()


def test_a_request_that_nobody_can_work_on_yet_is_answered_with_what_to_fetch(
    project: Path, shown: Callable[[App[int]], str]
) -> None:
    """The embedded pool, and none of its models is here."""

    async def whole() -> list[str]:
        app = FuguApp(FolderSessions(load_config(project, {}, {}), {}), InterfaceOptions(state=Path.home() / "state"))
        async with app.run_test(size=(140, 30)) as pilot:
            await until(lambda: app.main.controller is not None and app.main.controller.started)
            await typed(pilot, "hello")
            await until(lambda: "fugu models pull" in shown(app))
            return requests(app)

    assert asyncio.run(whole()) == []


def test_what_paints_first_brings_neither_the_log_nor_the_policy_with_it() -> None:
    code = "import sys, fugu_cli.ui.tui.app; print(*(name for name in sys.modules if name.startswith('fugu_cli.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    inner = {name.split(".")[1] for name in done.stdout.split()}
    assert inner & {"events", "messages", "log", "policy", "views", "tools", "wiring"} == {"messages"}
