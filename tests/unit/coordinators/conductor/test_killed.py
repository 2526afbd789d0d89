"""A workflow that is killed after any recorded fact goes on, ends the same way, and does nothing
twice.

One session is filmed: before and after every line the repository, the worktrees, the snapshots and
everything outside are copied. Then, for every frame, the world is put back, the log cut there, and
another process's place is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fugu_cli.coordinators.conductor.conductor import ConductorSettings
from fugu_cli.engine import orchestrator
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.session import store
from fugu_cli.session.events import RECORDED, Event, Finished, Merged, Permitted, Planned, ToolRan
from fugu_cli.session.log import Log
from fugu_cli.tools.workspace import recall_reads
from tests.filming import Begin, Film, Frame, shoot
from tests.reacting import CHECK, Reacting, calls, repository, results
from tests.unit.coordinators.conductor.staging import POOL, Play, both, lists, newest, planning

JOB = "Repair calc.txt."
PLAN = lists(
    (0, "Look at calc.txt.", []),
    (1, "Note that it ran.", []),
    (0, JOB, [0]),
    (1, JOB, [0]),
    (2, "Compare them.", [2, 3]),
)


def works(content: str) -> Callable[[Prompt], Reply]:
    """Looks, leaves a mark outside, or writes: by the subtask."""

    def react(prompt: Prompt) -> Reply:
        text, tools = newest(prompt), [result.tool for result in results(prompt)]
        if "Look at" in text:
            return (
                Reply(text="It is broken.")
                if tools
                else calls(Call.make("1", "read", path="calc.txt"))
            )
        if "Note that" in text:
            command = Call.make("1", "bash", command="echo ran >> ../counter")
            return Reply(text="It ran.") if tools else calls(Call.make("0", "list"), command)
        if "Compare" in text:
            return Reply(text="CHOOSE 4\nIt is right.")
        last = results(prompt)[-1:]
        if any(
            result.ok and (result.tool == "write" or content.strip() in result.text)
            for result in last
        ):
            return Reply(text="Repaired.")
        if any(result.ok and result.tool == "read" for result in last):
            return calls(Call.make("2", "write", path="calc.txt", content=content))
        return calls(Call.make("1", "read", path="calc.txt"))

    return react


def session(world: Path, log: Log) -> Play:
    agents = {
        "a": Reacting("a", works("fixed first\n")),
        "b": Reacting("b", works("fixed second\n")),
        "c": Reacting("c", both(planning("prose", PLAN), works("fixed third\n"))),
    }
    change = lambda stage: replace(stage, mode="yolo", store=world / "data" / "store")  # noqa: E731
    return Play(world / "repo", agents, POOL, ConductorSettings(agent="c"), log=log, change=change)


Staged = Callable[[Path, Log], Play]


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Film:
    return shoot(tmp_path_factory.mktemp("film"), filmed(session))


def filmed(staged: Staged) -> Begin:
    async def begin(world: Path, log: Log) -> Callable[[], Awaitable[Finished]]:
        repository(world / "repo", {"calc.txt": "broken\n", "check.sh": CHECK})
        play = staged(world, log)
        await play.stage().begin(log)
        return play.again

    return begin


@dataclass(frozen=True)
class Resumed:
    """What came of going on from a frame."""

    frame: Frame
    world: Path
    end: Finished
    events: list[Event]


async def resumed(film: Film, staged: Staged, number: int, turn: asyncio.Semaphore) -> Resumed:
    """On from a frame, in the very folders it was filmed in; the worktrees are those of the log
    that goes on.
    """
    frame = film.frames[number]
    path = film.world.parent / f"{number}.jsonl"
    world = frame.world
    async with turn:
        text = b"".join(film.lines[: frame.lines])
        path.write_bytes(text.replace(str(film.world).encode(), str(world).encode()))
        if (apart := store.worktrees_folder(world, film.world.parent / "whole.jsonl")).is_dir():
            apart.rename(store.worktrees_folder(world, path))
        log = Log.open(path)
        play = staged(world, log)
        environment = play.environment()
        recall_reads(environment.workspace, log.records)
        try:
            end = await orchestrator.run(log, play.stage().team(), environment)
            return Resumed(frame, world, end, list(log.events))
        finally:
            log.close()


async def all_resumed(film: Film, staged: Staged) -> list[Resumed]:
    turn = asyncio.Semaphore(3)
    return await asyncio.gather(*(resumed(film, staged, number, turn) for number in film.chosen()))


def test_the_filmed_session_holds_what_a_workflow_can(film: Film) -> None:
    events = [record.event for record in map(RECORDED.validate_json, film.lines)]
    assert film.end.reason == "accepted"
    assert [len(event.steps) for event in events if isinstance(event, Planned)] == [0, 5], (
        "one refused, one carried out"
    )
    assert [event.chosen for event in events if isinstance(event, Merged)] == [0, 4]
    turns = [event.turn for event in events if event.type == "replied"]
    assert turns != sorted(turns), "two turns were open at the same time"


def test_a_workflow_killed_anywhere_ends_the_same_and_does_nothing_twice(film: Film) -> None:
    found = asyncio.run(all_resumed(film, session))
    assert len(found) > 20
    assert [fault for one in found for fault in faults_of(one)] == []


def test_so_does_one_with_a_workflow_inside_and_a_second_round(tmp_path: Path) -> None:
    film = shoot(tmp_path, filmed(rounds))
    assert film.end == Finished(
        reason="accepted",
        message="2 workflows, 4 steps in all; tests pass, nobody reviewed",
        accepted_by="tests",
    )
    found = asyncio.run(all_resumed(film, rounds))
    assert len(found) > 15
    assert [fault for one in found for fault in faults_inside(one)] == []


OUTER = lists((3, "The part.", []), (1, "Sum up.", [0]))
INNER = lists((0, "Look at calc.txt.", []), (1, "Note that it ran.", []))
MORE = lists((0, "Repair calc.txt.", ["all"]))


def rounds(world: Path, log: Log) -> Play:
    """The planner plans a part itself; after the first round the tests fail, and a second one mends
    that.
    """

    def planner(prompt: Prompt) -> Reply:
        text = newest(prompt)
        return Reply(
            text=INNER
            if "of a larger plan" in text
            else MORE
            if "was carried out" in text
            else OUTER
        )

    def sums(prompt: Prompt) -> Reply:
        return Reply(text="It is broken.") if "Sum up" in newest(prompt) else works("b")(prompt)

    agents = {
        "a": Reacting("a", works("fixed second\n")),
        "b": Reacting("b", sums),
        "c": Reacting("c", both(planner, works("c"))),
    }
    change = lambda stage: replace(stage, mode="yolo", store=world / "data" / "store")  # noqa: E731
    return Play(world / "repo", agents, POOL, ConductorSettings(agent="c"), log=log, change=change)


def faults_inside(one: Resumed) -> list[str]:
    """The same, where three plans are what there is to pay for."""
    plans = [(event.round, event.within) for event in one.events if isinstance(event, Planned)]
    faults = faults_of(one, plans=3)
    if plans != [(1, None), (1, (1, 0)), (2, None)]:
        faults.append(f"after {one.frame.lines} lines: the plans are {plans}")
    return faults


def faults_of(one: Resumed, plans: int = 2) -> list[str]:
    """What is not as it would have been, in words."""
    faults = []
    if one.end.reason != "accepted":
        faults.append(f"it ends as {one.end}")
    if (one.world / "repo" / "calc.txt").read_text() != "fixed second\n":
        faults.append("the file is not what it was")
    permitted = [
        (event.turn, event.call.id) for event in one.events if isinstance(event, Permitted)
    ]
    again = {call for call in permitted if permitted.count(call) > 1}
    if again:
        faults.append(f"calls were made again: {again}")
    count = (one.world / "counter").read_text().count("ran")
    started = [e for e in one.events if isinstance(e, Permitted) and e.call.tool == "bash"]
    done = [e.call.id for e in one.events if isinstance(e, ToolRan)]
    killed = [e for e in started if e.call.id not in done]
    if len(started) != 1 or count not in ({0, 1} if killed else {1}):
        faults.append(f"the command ran {count} times, was started {len(started)} times")
    if sum(isinstance(event, Planned) for event in one.events) != plans:
        faults.append("a plan was paid for twice")
    return [f"after {one.frame.lines} lines, {one.frame.what}: {fault}" for fault in faults]
