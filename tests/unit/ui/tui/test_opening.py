"""A session is opened behind a screen that goes on: in a thread, what is typed meanwhile kept for
it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from textual.app import App
from textual.pilot import Pilot

from fugu_cli.app.session_protocol import InterfaceOptions, SessionProtocol, SetupOffer
from fugu_cli.cli.session_opening import FolderSessions
from fugu_cli.config.loader import load_config
from fugu_cli.coordinators import Coordinator, Decision
from fugu_cli.engine.environment import AskPermission, Permission
from fugu_cli.errors import ModelFileError
from fugu_cli.local.sources import FetchProgress, ReportProgress
from fugu_cli.messages import Call
from fugu_cli.safety import policy
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Finished,
    Member,
    Opened,
    Permitted,
    Recorded,
)
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from fugu_cli.ui.session_totals import Activity
from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.ui.tui.prompt import PromptInput
from tests.acceptance.loopback import KEY, Loopback
from tests.unit.ui.tui.demo import DemoSessionOpener, DemoSetup

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


def test_without_models_or_keys_a_key_is_offered_and_the_request_waits_in_the_prompt(
    project: Path, shown: Callable[[App[int]], str], server: Loopback
) -> None:
    """The embedded pool, and none of its models is here."""
    environ = {"OPENAI_BASE_URL": server.url}
    seen: list[str] = []

    async def whole() -> list[str]:
        sessions = FolderSessions(load_config(project, {}, {}), environ)
        app = FuguApp(sessions, InterfaceOptions(state=Path.home() / "state"))
        async with app.run_test(size=(140, 40)) as pilot:

            async def sees(text: str) -> None:
                await until(lambda: text in (seen.append(shown(app)) or seen[-1]))

            await sees("What shall fugu work with?")
            await pilot.pause(0.5)
            await pilot.press("escape")
            await sees("No model can work yet: qwen2.5-coder")
            await sees("/login downloads them, or takes a provider's key")
            await typed(pilot, "hello")
            await sees("download small models")
            await pilot.press(*"openai", "enter")
            await sees("API key of openai (it is not shown)")
            await pilot.press("x", " ", "y", "enter")
            await sees("the key holds a space")
            assert app.main.query_one(PromptInput).text == "hello"
            await pilot.press("enter")
            await sees("download small models")
            await pilot.press(*"openai", "enter")
            await sees("API key of openai (it is not shown)")
            await pilot.press(*"sk-other", "enter")
            await sees("Incorrect API key provided")
            await pilot.press(*KEY, "enter")
            await sees("openai key saved in")
            await sees("2 models")
            await until(lambda: app.main.query_one(PromptInput).text == "hello")
            assert app.main.controller is not None
            members = app.main.controller.session.team.members.values()
            assert {member.provider for member in members} == {"openai"}
            return requests(app)

    assert asyncio.run(whole()) == []
    assert environ == {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url}
    assert not any(KEY in screen for screen in seen)
    assert KEY not in (Path.home() / "state" / "history.jsonl").read_text()


@dataclass
class Deciding:
    """A coordinator that decides when it is told to."""

    rule: Coordinator
    may: asyncio.Event

    async def decide(self, state: SessionState) -> Decision:
        await self.may.wait()
        return await self.rule.decide(state)


@dataclass
class SlowlyDecided(DemoSessionOpener):
    """Sessions with such a coordinator."""

    def __post_init__(self) -> None:
        self.may = asyncio.Event()

    async def begin(self, ask: AskPermission) -> SessionProtocol:
        session = await super().begin(ask)
        session.team = replace(
            session.team, coordinator=Deciding(session.team.coordinator, self.may)
        )
        return session


def test_before_the_first_token_it_says_what_goes_on_with_a_clock_and_who_is_probably_next(
    opener: DemoSessionOpener, shown: Callable[[App[int]], str]
) -> None:
    async def whole() -> None:
        deciding = SlowlyDecided(opener.root, opener.data, {"small": ANSWER, "large": ANSWER})
        app = FuguApp(deciding, InterfaceOptions(state=Path.home() / "state", prompt="hello"))
        async with app.run_test(size=(120, 30)):
            clock = re.compile(r"[\u2800-\u28ff] deciding, then probably small \d+\.\ds")
            await until(lambda: clock.search(shown(app)) is not None)
            deciding.may.set()
            await until(lambda: "Done." in shown(app))
            assert "probably" not in shown(app)

    asyncio.run(whole())


def test_who_is_next_is_guessed_from_the_last_request_and_the_rule() -> None:
    pool = (
        Member(name="a", provider="p", model="m", protocol="native", slot="cheap"),
        Member(name="b", provider="p", model="m", protocol="native", slot="strong"),
    )
    tests = Call(id="e", tool="run_tests")

    def tally(*facts: Event, by: str = "cascade") -> Activity:
        made = Activity()
        for seq, event in enumerate(
            [Opened(version="1", repo="/", pool=pool, coordinator=by), *facts]
        ):
            made.add_item(Recorded(seq=seq, at=0.0, event=event), 0.0)
        return made

    asked, acts = (
        Asked(text="x", test_command="make"),
        Assigned(turn=1, agent="b", role="worker", by="trinity"),
    )
    running = tally(asked, Permitted(turn=0, call=tests, allowed=True, by="evidence"))
    assert (running.doing, running.first_agent(["a", "b"])) == ("running the tests: make", "a")
    assert tally(asked, by="trinity").first_agent(["a", "b"]) == ""
    assert tally(asked, by="trinity").first_agent(["b"]) == "b"
    assert tally(asked, acts, by="trinity").first_agent(["a", "b"]) == ""
    before = (asked, acts, Finished(reason="answered"), asked)
    assert tally(*before, by="trinity").first_agent(["a", "b"]) == "b"
    assert tally(*before).first_agent(["a"]) == "a"


class Downloading(DemoSetup):
    """Nobody can work before something is downloaded, which goes on when it is told to."""

    def __init__(self) -> None:
        self.here, self.may = False, asyncio.Event()

    def lacking(self) -> tuple[str, ...]:
        if not self.here:
            raise ModelFileError("tiny is not on this machine yet (2.0 GB)")
        return ()

    def offer(self) -> SetupOffer:
        return SetupOffer((("acme", "ACME_KEY"),), "tiny: 2.0 GB")

    async def download(self, report: ReportProgress) -> None:
        report(FetchProgress(500_000_000, 2_000_000_000, "tiny from \x1b[2Ja mirror"))
        await self.may.wait()
        self.here = True


def test_small_models_are_downloaded_with_a_bar_and_can_be_stopped(
    opener: DemoSessionOpener, shown: Callable[[App[int]], str]
) -> None:
    async def whole() -> list[str]:
        downloading = Downloading()
        waiting = DemoSessionOpener(opener.root, opener.data, {"small": ANSWER}, setup=downloading)
        app = FuguApp(waiting, InterfaceOptions(state=Path.home() / "state", prompt="hello"))
        async with app.run_test(size=(120, 30)) as pilot:
            await until(lambda: "download small models" in shown(app))
            await pilot.press("down", "enter")
            await until(lambda: "██████░░░░░░░░░░░░░░░░░░ downloading 25% of 2.0 GB" in shown(app))
            await until(lambda: "downloading 25% of 2.0 GB 0" in shown(app))
            await pilot.press("enter")
            await until(lambda: shown(app).count("No model can work yet") == 1)
            await pilot.press("escape")
            await until(lambda: "the download was stopped; /login goes on with it" in shown(app))
            await pilot.press(*([] if app.main.query_one(PromptInput).text else ["up"]))
            await pilot.press("enter")
            await until(lambda: "download small models" in shown(app))
            downloading.may.set()
            await pilot.press("down", "enter")
            await until(lambda: "the models are here: enter sends the request" in shown(app))
            await until(lambda: app.main.query_one(PromptInput).text == "hello")
            await pilot.press("enter")
            await until(lambda: "Done." in shown(app))
            return requests(app)

    assert asyncio.run(whole()) == ["hello"]


PAINTS = """
import asyncio, os, sys
from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.app.session_protocol import InterfaceOptions
from pathlib import Path

class Opener:
    root = Path.cwd()

class LoadsNow:
    def find_spec(self, name, *_):
        if name == "fugu_cli.ui.tui.commands":
            print(*(name for name in sys.modules if name.startswith("fugu_cli.")), file=sys.__stdout__, flush=True)
            os._exit(0)

async def whole():
    async with FuguApp(Opener(), InterfaceOptions(state=Path("state"))).run_test(size=(120, 40)) as pilot:
        await pilot.pause(60)

sys.meta_path.insert(0, LoadsNow())
asyncio.run(whole())
"""
"""Says what of fugu is there when the first frame is painted and loading begins."""


def test_what_paints_first_brings_neither_the_log_nor_the_policy_with_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PAINTS], capture_output=True, text=True, check=True
    )
    assert {name.split(".")[1] for name in done.stdout.split()} == {
        "app",
        "errors",
        "formatting",
        "messages",
        "system",
        "ui",
    }
