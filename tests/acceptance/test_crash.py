"""A session that is killed after any recorded fact goes on, ends the same way, and does nothing
twice.

One run is filmed: before and after every line the repository, its snapshots and everything outside
are copied. Then, for every frame, the world is put back to it, the log cut there, and the session
goes on in a new process's place.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fugu_cli.engine import orchestrator
from fugu_cli.messages import Call, FromUser, Prompt, Reply
from fugu_cli.providers import Agent
from fugu_cli.session.events import RECORDED, Event, Finished, Member, Permitted, Undone
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import open_calls
from fugu_cli.tools.workspace import recall_reads
from tests.filming import Film, Frame, shoot
from tests.reacting import Reacting, Stage, calls, fails, repository, results, role

BROKEN = Member(name="broken", provider="openai", model="b", slot="cheap")
NATIVE = Member(name="native", provider="openai", model="n", slot="middle")
STRONG = Member(name="strong", provider="openai", model="s", slot="strong")


def works_badly(prompt: Prompt) -> Reply:
    """Reads, runs a command that leaves a mark outside, tries what is forbidden, writes something
    wrong.
    """
    if role(prompt) == "verifier":
        return Reply(text="ACCEPT" if ": 1 pass." in str(prompt.messages) else "REVISE")
    newest = next(message for message in reversed(prompt.messages) if isinstance(message, FromUser))
    if "You are not done" in newest.text:
        return Reply(text="I know no more.")
    tried = {result.tool for result in results(prompt)}
    if not tried:
        return calls(
            Call.make("1", "read", path="calc.txt"),
            Call.make("2", "bash", command="echo ran >> ../counter"),
            text="So:",
        )
    if "write" not in tried:
        return calls(
            Call.make("3", "bash", command="rm -rf gone"),
            Call.make("4", "write", path="calc.txt", content="half\n"),
        )
    return Reply(text="I tried.")


def repairs(prompt: Prompt) -> Reply:
    """Reads until it knows, then writes what is right."""
    if role(prompt) == "verifier":
        return Reply(text="ACCEPT")
    newest = results(prompt)[-1:]
    if any(result.ok and (result.tool == "write" or "fixed" in result.text) for result in newest):
        return Reply(text="It is fixed.")
    if any(result.ok and result.tool == "read" for result in newest):
        return calls(Call.make("1", "write", path="calc.txt", content="fixed\n"))
    return calls(Call.make("1", "read", path="calc.txt"))


SESSIONS: Mapping[str, tuple[tuple[Member, ...], Callable[[], Mapping[str, Agent]]]] = {
    "native": (
        (BROKEN, NATIVE, STRONG),
        lambda: {
            "broken": Reacting("broken", fails),
            "native": Reacting("native", works_badly),
            "strong": Reacting("strong", repairs),
        },
    ),
}


def stage_of(name: str, world: Path) -> Stage:
    members, agents = SESSIONS[name]
    return Stage(
        world / "repo", world / "store", members, agents(), mode="yolo", deny=("bash(rm *)",)
    )


@dataclass(frozen=True)
class Played:
    """A film, and which of the sessions it is of."""

    name: str
    film: Film


@pytest.fixture(scope="module", params=list(SESSIONS))
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    async def begin(world: Path, log: Log) -> Callable[[], Awaitable[Finished]]:
        stage = stage_of(request.param, world)
        repository(stage.root)
        await stage.begin(log)
        return lambda: orchestrator.run(log, stage.team(), stage.environment())

    return Played(request.param, shoot(tmp_path_factory.mktemp("film"), begin))


@dataclass(frozen=True)
class Resumed:
    """What came of going on from a frame."""

    frame: Frame
    world: Path
    path: Path
    end: Finished
    events: list[Event]


async def resumed(played: Played, number: int, folder: Path, turn: asyncio.Semaphore) -> Resumed:
    """A copy of the frame's world and the log's first lines, and on from there as a new process
    would.
    """
    film = played.film
    frame = film.frames[number]
    world, path = folder / str(number), folder / f"{number}.jsonl"
    async with turn:
        shutil.copytree(frame.world, world, symlinks=True)
        torn = b'{"seq": 99, "at": 1.0, "ev' if number % 3 == 0 else b""
        path.write_bytes(b"".join(film.lines[: frame.lines]) + torn)
        log = Log.open(path)
        stage = stage_of(played.name, world)
        environment = stage.environment()
        recall_reads(environment.workspace, log.records)
        try:
            end = await orchestrator.run(log, stage.team(), environment)
            return Resumed(frame, world, path, end, list(log.events))
        finally:
            log.close()


async def all_resumed(played: Played, folder: Path) -> list[Resumed]:
    turn = asyncio.Semaphore(3)
    return await asyncio.gather(
        *(resumed(played, number, folder, turn) for number in played.film.chosen())
    )


def appends(call: Call) -> bool:
    return call.tool == "bash" and "counter" in call.arguments


def test_the_filmed_session_holds_what_a_session_can(played: Played) -> None:
    film = played.film
    events = [record.event for record in map(RECORDED.validate_json, film.lines)]
    assert film.end.reason == "accepted"
    assert (film.world / "repo" / "calc.txt").read_text() == "fixed\n"
    kinds = {event.type for event in events}
    if played.name == "native":
        assert {"failed", "permitted", "tool_ran", "replied"} <= kinds
        assert any(isinstance(event, Permitted) and not event.allowed for event in events)
        assert (film.world / "counter").read_text() == "ran\n"
    else:
        assert sum(isinstance(event, Undone) for event in events) == 2


def test_a_session_killed_anywhere_ends_the_same_and_does_nothing_twice(
    played: Played, tmp_path: Path
) -> None:
    film = played.film
    assert {frame.lines for frame in film.frames} == set(range(3, len(film.lines) + 1)), (
        "every line has its frame"
    )
    found = asyncio.run(all_resumed(played, tmp_path))
    assert [fault for one in found for fault in faults_of(played, one)] == []


def faults_of(played: Played, one: Resumed) -> list[str]:
    """What is not as it would have been, in words."""
    film = played.film
    faults = []
    if one.end.reason != film.end.reason:
        faults.append(f"it ends as {one.end}")
    if (one.world / "repo" / "calc.txt").read_text() != "fixed\n":
        faults.append("the file is not what it was")
    if not one.path.read_bytes().startswith(b"".join(film.lines[: one.frame.lines])):
        faults.append("the log does not begin as it was")
    permitted = [event.call.id for event in one.events if isinstance(event, Permitted)]
    again = {id for id in permitted if permitted.count(id) > 1}
    if again:
        faults.append(f"calls were made again: {again}")
    count = (one.world / "counter").read_text().count("ran")
    started = [
        event.call for event in one.events if isinstance(event, Permitted) and appends(event.call)
    ]
    killed = one.frame.what == "after permitted" and _newest(film, one.frame).call in started
    if played.name == "native" and (len(started) != 1 or count != (0 if killed else 1)):
        faults.append(f"the command ran {count} times, was started {len(started)} times")
    if open_calls(SessionState(one.events).request.turns[-1]):
        faults.append("calls are left open")
    return [f"after {one.frame.lines} lines, {one.frame.what}: {fault}" for fault in faults]


def _newest(film: Film, frame: Frame) -> Permitted:
    record = RECORDED.validate_json(film.lines[frame.lines - 1])
    assert isinstance(record.event, Permitted)
    return record.event
