"""A session to look at, the interface without a terminal, and its screen as text."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from textual.app import App
from textual.pilot import Pilot

from fugu_cli.app.session_protocol import InterfaceOptions
from fugu_cli.messages import Call, Thinking, Usage
from fugu_cli.session import store
from fugu_cli.session.events import (
    EVIDENCE,
    RECORDED,
    Asked,
    Assigned,
    DecisionTimings,
    Event,
    Failed,
    FileChange,
    Finished,
    Member,
    Opened,
    Permitted,
    Price,
    Recorded,
    Replied,
    Scores,
    ToolRan,
    Undone,
)
from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.ui.tui.prompt import ChoiceList, PromptInput
from fugu_cli.ui.tui.session_controller import SessionController
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, running
from tests.unit.ui.tui.demo import DemoSessionOpener
from tests.unit.ui.tui.terminal import Terminal

START = 1_760_000_000.0
POOL = (
    Member(name="small", provider="local", model="qwen-0.5b", protocol="text", slot="cheap"),
    Member(
        name="coder",
        provider="openai",
        model="coder-1",
        slot="middle",
        price=Price(input=0.5, output=2.0),
    ),
    Member(
        name="large",
        provider="anthropic",
        model="large-4",
        slot="strong",
        price=Price(input=3.0, output=15.0),
    ),
)
FAILED_TESTS = "FAILED test_a.py::test_add - assert 3 == 4\n1 failed, 4 passed in 0.03s"


def scores(
    rows: tuple[float, float, float], roles: tuple[float, float, float], masked: bool = False
) -> Scores:
    return Scores(
        rows=("cheap", "middle", "strong"),
        row_logits=(1.5, 0.5, -0.25),
        row_probabilities=rows,
        role_logits=(0.9, 0.1, 2.0),
        role_probabilities=roles,
        masked=(("verifier", "there is no Worker answer yet"),) if masked else (),
        read="user: fix the failing test\nsystem: tests FAIL (1 failed, 4 passed)",
        tokens=812,
        cached_tokens=700,
    )


def tool(
    turn: int, call: Call, output: str, *, ok: bool = True, by: str = "policy", **more: object
) -> list[Event]:
    changes = (
        (FileChange(path=str(more["changed"]), before="1" * 40, after="2" * 40),)
        if "changed" in more
        else ()
    )
    seconds = float(str(more.get("seconds", 0.1)))
    return [
        Permitted(turn=turn, call=call, allowed=True, by=by),
        ToolRan(turn=turn, call=call, output=output, ok=ok, seconds=seconds, changes=changes),
    ]


def first_request() -> list[Event]:
    edit = Call.make(
        "t2-0-0", "edit", path="src/add.py", old="    return a - b", new="    return a + b"
    )
    read = Call.make("t1-0-0", "read", path="src/add.py")
    push = Call.make("t2-1-0", "bash", command="git push --force")
    tests = Call(id="e0-0", tool="run_tests")
    return [
        Asked(text="fix the failing test in src/add.py", snapshot="a" * 40, test_command="pytest", until=("pytest",)),
        *tool(0, tests, FAILED_TESTS, ok=False, by=EVIDENCE, seconds=1.4),
        Assigned(turn=1, agent="small", role="thinker", by="trinity",
                 milliseconds=DecisionTimings(format=0.4, forward=96.5),
                 scores=scores((0.62, 0.28, 0.1), (0.3, 0.7, 0.0), masked=True)),
        Replied(turn=1, agent="small", text="I read the file first.", calls=(read,), usage=Usage(input=900, output=30),
                model="qwen-0.5b", seconds=1.5),
        *tool(1, read, "1  def add(a, b):\n2      return a - b"),
        Replied(turn=1, agent="small", text=("The sign is wrong in "
            "`add`.\n<suggested_role>worker</suggested_role>"),
                usage=Usage(input=1000, cached=900, output=40), model="qwen-0.5b", seconds=1.1),
        Assigned(turn=2, agent="coder", role="worker", by="trinity", override="verifier",
                 scores=scores((0.2, 0.7, 0.1), (0.4, 0.1, 0.5))),
        Replied(turn=2, agent="coder", text="", calls=(edit,), usage=Usage(input=1500, output=60), model="coder-1",
                thinking=(Thinking(text="a - b should be a + b\nthe test says 3 == 4"),), seconds=2.0),
        *tool(2, edit, "edited src/add.py", changed="src/add.py"),
        Replied(turn=2, agent="coder", text="", calls=(push,), usage=Usage(input=1600, output=20), model="coder-1"),
        Permitted(turn=2, call=push, allowed=False, by="user", reason="it publishes"),
        Replied(turn=2, agent="coder",
                text=("`add` adds now:\n\n```python\nreturn a + b\n```\n\n- one line changed\n- "
                    "no other"),
                usage=Usage(input=1700, cached=1500, output=50), model="coder-1", seconds=1.0),
        *tool(2, Call(id="e2-0-3", tool="run_tests"), "5 passed in 0.02s", by=EVIDENCE, seconds=1.2),
        Assigned(turn=3, agent="large", role="verifier", by="trinity", scores=scores((0.1, 0.2, 0.7), (0.1, 0.0, 0.9))),
        Failed(turn=3, what="large", kind="limited", message="large: 429 after 3 tries"),
        Assigned(turn=4, agent="small", role="verifier", by="trinity", scores=scores((0.8, 0.2, 0.0), (0.1, 0.0, 0.9))),
        *tool(4, Call(id="e4-0", tool="diff"), "-    return a - b\n+    return a + b", by=EVIDENCE),
        Replied(turn=4, agent="small", text="ACCEPT\n\nThe tests pass.", usage=Usage(input=700, output=12),
                model="qwen-0.5b", seconds=0.8),
        Finished(reason="accepted", message="accepted by small"),
    ]  # fmt: skip


def second_request() -> list[Event]:
    write = Call.make("t1-0-0", "write", path="notes.txt", content="a\nb\nc\n")
    return [
        Asked(
            text="write notes.txt\nwith three letters",
            attachments=("src/add.py",),
            snapshot="b" * 40,
        ),
        Assigned(turn=1, agent="small", role="worker", by="cascade", reason="cheapest first"),
        Replied(
            turn=1,
            agent="small",
            text="I write it.",
            calls=(write,),
            usage=Usage(input=400, output=20),
        ),
        *tool(1, write, "wrote notes.txt", changed="notes.txt"),
        Undone(snapshot="b" * 40, turn=1, reason="the tests failed"),
        Replied(
            turn=1,
            agent="small",
            text="It is written.",
            usage=Usage(input=420, output=10),
            seconds=0.4,
        ),
        Finished(reason="turn_limit", message="5 turns were taken without a verdict"),
    ]


@pytest.fixture
def sample() -> list[Recorded]:
    """Two requests, with everything that can be drawn."""
    facts = [
        Opened(
            version="0.1.0",
            repo="/home/me/project",
            pool=POOL,
            coordinator="trinity",
            checkpoint="c" * 64,
        ),
        *first_request(),
        *second_request(),
    ]
    return [Recorded(seq=seq, at=START + 2 * seq, event=event) for seq, event in enumerate(facts)]


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository that is shown as ~/project."""
    monkeypatch.setenv("TZ", "UTC")
    root = Path.home() / "project"
    root.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True)
    (root / "kept.txt").write_text("mine\n")
    return root


@pytest.fixture
def opener(project: Path) -> DemoSessionOpener:
    """Scripted agents in the project."""
    return DemoSessionOpener(project, Path.home() / "data")


@pytest.fixture
def stored(opener: DemoSessionOpener, sample: list[Recorded]) -> str:
    """The sample session in a file; its id."""
    path = store.session_folder(opener.data, opener.root) / "20251009-085320-cafe.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(RECORDED.dump_json(record) + b"\n" for record in sample))
    return path.stem


@pytest.fixture
def opened(opener: DemoSessionOpener) -> Callable[..., FuguApp]:
    """The interface on the desk."""

    def make(**options: object) -> FuguApp:
        return FuguApp(
            opener, InterfaceOptions(state=Path.home() / "state", theme="dark", **options)
        )  # type: ignore[arg-type]

    return make


@pytest.fixture
def clipboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bytes], Path]:
    """A desktop whose clipboard program has this name and prints these bytes. Returns the file of
    its arguments.
    """

    def make(name: str, data: bytes) -> Path:
        folder = tmp_path / "programs"
        folder.mkdir()
        (folder / "data").write_bytes(data)
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "$@" > {folder}/asked\ncat {folder}/data\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
        monkeypatch.setenv("DISPLAY", ":0")
        return folder / "asked"

    return make


@pytest.fixture
def shown() -> Callable[[App[int]], str]:
    """What the screen shows, as text."""

    def text(app: App[int]) -> str:
        strips = app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    return text


ANSWER = '[[step]]\ntext = "Done."\n'
WRITES = (
    '[[step]]\ncalls = [{ tool = "write", arguments = { path = "new.txt", content = "x\\n" } }]\n'
    + ANSWER
)
Shown = Callable[[App[int]], str]


class Hand:
    """Types and looks."""

    def __init__(self, app: FuguApp, pilot: Pilot[int], shown: Shown) -> None:
        self.app, self.pilot, self._shown = app, pilot, shown

    @property
    def controller(self) -> SessionController:
        assert self.app.main.controller is not None
        return self.app.main.controller

    @property
    def text(self) -> str:
        return self._shown(self.app)

    async def type(self, line: str, key: str = "enter") -> None:
        """Into the prompt at once, then Enter, or Tab to queue it."""
        prompt = self.app.main.query_one(PromptInput)
        prompt.put(line)
        await self.pilot.pause()
        self.app.main.query_one("#choices", ChoiceList).offer(())
        await self.pilot.press(key)

    async def sees(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text for text in texts))

    async def until(self, true: Callable[[], bool]) -> None:
        for _ in range(600):
            if true():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it did not come to that\n" + self.text)

    async def done(self, requests: int) -> None:
        await self.until(
            lambda: self.kinds().count("finished") >= requests and not self.controller.work.running
        )

    def kinds(self) -> list[str]:
        return [event.type for event in self.controller.session.log.events]


Play = Callable[[Hand], Awaitable[None]]


@pytest.fixture
def play(
    opened: Callable[..., FuguApp], opener: DemoSessionOpener, shown: Shown
) -> Callable[..., None]:
    def run(what: Play, scripts: dict[str, str] | None = None, **options: object) -> None:
        opener.scripts = scripts or {"small": ANSWER, "large": ANSWER}
        opener.mode = "edit"

        async def whole() -> None:
            app = opened(**options)
            async with app.run_test(size=(110, 40)) as pilot:
                hand = Hand(app, pilot, shown)
                await hand.until(
                    lambda: (
                        app.main.controller is not None
                        and app.main.controller.work.session is not None
                    )
                )
                await what(hand)

        asyncio.run(whole())

    return run


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with running() as loopback:
        yield loopback


@pytest.fixture
def place(server: Loopback, tmp_path: Path) -> Iterator[Place]:
    """A repository whose tests fail, and one agent. Nothing that was started may outlive the
    test.
    """
    found = Place(tmp_path, server.url)
    found.begin()
    found.configure(Agent("m", more='protocol = "native"'))
    yield found
    end = time.monotonic() + 5
    while (left := found.left_behind()) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == []


@pytest.fixture
def fugu(place: Place) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str, size: tuple[int, int] = (100, 34), **environ: str) -> Terminal:
        environ = {**place.environ(), **environ}
        opened.append(
            Terminal([sys.executable, "-m", "fugu_cli", *arguments], place.repo, environ, size)
        )
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def ready(terminal: Terminal) -> Terminal:
    terminal.sees("coordinator: cascade · agents: m")
    return terminal
