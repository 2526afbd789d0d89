import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fugu_cli.errors import UsageError
from fugu_cli.messages import Usage
from fugu_cli.session.events import Asked, Assigned, Event, Failed, Finished, Replied
from fugu_cli.session.log import Log
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.evaluation.rollout import (
    AgentSpending,
    RolloutContext,
    RolloutOutcome,
    RolloutSession,
    agent_spending,
)
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.repository import write_files
from tests.benchmarks.arms import RolloutDropped, measure_arms

ACCEPTED = Finished(reason="accepted")


def turn(number: int, agent: str, **usage: int) -> list[Event]:
    return [
        Assigned(turn=number, agent=agent, role="worker", by="test"),
        Replied(turn=number, agent=agent, usage=Usage(**usage), seconds=1.5),
    ]


@dataclass
class Played:
    """A session that goes as it was written down: facts, then files, then the end."""

    log: Log
    repository: Path
    facts: list[Event]
    files: Mapping[str, str]
    end: Finished
    closed: bool = False

    async def ask(self, text: str) -> None:
        self.log.append(Asked(text=text))

    async def run(self) -> Finished:
        for fact in self.facts:
            self.log.append(fact)
        write_files(self.files, self.repository)
        self.log.append(self.end)
        return self.end

    async def close(self) -> None:
        self.closed = True
        self.log.close()


@dataclass
class Stage:
    """Opens a Played session for each place, by its arm; keeps where it was asked to."""

    plays: Mapping[str, Callable[[RolloutContext], Played]]
    places: list[RolloutContext] = field(default_factory=list)
    opened: list[Played] = field(default_factory=list)

    async def open(self, place: RolloutContext) -> RolloutSession:
        self.places.append(place)
        self.opened.append(self.plays[place.arm](place))
        return self.opened[-1]


def play(
    facts: list[Event], end: Finished = ACCEPTED, **files: str
) -> Callable[[RolloutContext], Played]:
    named = {name.replace("_py", ".py"): text for name, text in files.items()}
    return lambda place: Played(
        Log.create(place.data / "one.jsonl"), place.repository, facts, named, end
    )


def measured(task: Task, stage: Stage, arms: list[str], file: Path) -> list[RolloutOutcome | str]:
    told: list[RolloutOutcome | str] = []
    asyncio.run(measure_arms([task], arms, stage.open, file, told.append))
    return told


def test_a_row_says_how_the_session_ended_and_what_it_cost(task: Task, tmp_path: Path) -> None:
    facts = [*turn(1, "small", input=10, output=2), *turn(2, "coder", input=30, cached=8, output=4)]
    facts += turn(3, "small", input=20, cached=10, output=1)
    stage = Stage({"cascade": play(facts, double_py=task.solution["double.py"])})
    (row,) = measured(task, stage, ["cascade"], tmp_path / "rows.jsonl")
    assert isinstance(row, RolloutOutcome)
    assert row == RolloutOutcome(
        task="double",
        arm="cascade",
        ok=True,
        accepted=True,
        reason="accepted",
        turns=3,
        seconds=row.seconds,
        spent=(
            AgentSpending(agent="small", calls=2, input=30, cached=10, output=3, seconds=3.0),
            AgentSpending(agent="coder", calls=1, input=30, cached=8, output=4, seconds=1.5),
        ),
        session="sessions/cascade/one.jsonl",
    )
    assert (row.calls, row.model_seconds, row.input, row.output) == (3, 4.5, 60, 7)
    assert results_folder.read_rows(tmp_path / "rows.jsonl", RolloutOutcome) == [row]
    assert stage.opened[0].closed


def test_the_session_starts_in_the_tasks_repository_with_its_request(
    task: Task, tmp_path: Path
) -> None:
    stage = Stage({"single:small": play([])})
    measured(task, stage, ["single:small"], tmp_path / "rows.jsonl")
    (place,) = stage.places
    assert (place.arm, place.task, place.repository.name) == ("single:small", task, "double")
    assert place.data == tmp_path / "sessions" / "single-small"
    assert stage.opened[0].log.events[0] == Asked(text=task.prompt)


def test_what_the_engine_accepts_is_not_what_counts_as_solved(task: Task, tmp_path: Path) -> None:
    wrong = play([], double_py="def double(n):\n    return 4\n")
    right = play([], Finished(reason="turn_limit"), double_py=task.solution["double.py"])
    told = measured(
        task, Stage({"wrong": wrong, "right": right}), ["wrong", "right"], tmp_path / "rows.jsonl"
    )
    assert [
        (row.ok, row.accepted, row.reason) for row in told if isinstance(row, RolloutOutcome)
    ] == [
        (False, True, "accepted"),
        (True, False, "turn_limit"),
    ]


def test_what_was_measured_is_not_measured_again(task: Task, tmp_path: Path) -> None:
    stage = Stage({"a": play([]), "b": play([])})
    file = tmp_path / "rows.jsonl"
    measured(task, stage, ["a"], file)
    (tmp_path / "sessions" / "a" / "one.jsonl").unlink()
    measured(task, stage, ["a", "b"], file)
    assert [place.arm for place in stage.places] == ["a", "b"]
    assert [row.arm for row in results_folder.read_rows(file, RolloutOutcome)] == ["a", "b"]


def test_a_failure_of_the_surroundings_is_dropped_and_one_of_the_agents_is_not(
    task: Task, tmp_path: Path
) -> None:
    failed = Finished(reason="failed", message="nobody is left")
    network = play([Failed(turn=1, what="small", kind="network", message="gone")], failed)
    invalid = play([Failed(turn=1, what="small", kind="invalid", message="too long")], failed)
    file = tmp_path / "rows.jsonl"
    told = measured(
        task, Stage({"network": network, "invalid": invalid}), ["network", "invalid"], file
    )
    assert told[0] == "double, network: nobody is left; dropped"
    (row,) = results_folder.read_rows(file, RolloutOutcome)
    assert (row.arm, row.ok, row.failures) == ("invalid", False, ("small: invalid: too long",))


def test_three_drops_in_a_row_end_the_measurement(task: Task, tmp_path: Path) -> None:
    facts: list[Event] = [Failed(turn=1, what="a", kind="refused", message="no key")]
    end = Finished(reason="failed")
    stage = Stage(
        dict.fromkeys("abcd", lambda place: Played(Log.memory(), place.repository, facts, {}, end))
    )
    with pytest.raises(RolloutDropped, match="double, c: no key"):
        measured(task, stage, list("abcd"), tmp_path / "rows.jsonl")


def test_a_session_that_fails_to_run_is_closed_and_leaves_no_row(
    task: Task, tmp_path: Path
) -> None:
    @dataclass
    class Broken(Played):
        async def run(self) -> Finished:
            raise UsageError("broken")

    stage = Stage({"a": lambda place: Broken(Log.memory(), place.repository, [], {}, ACCEPTED)})
    with pytest.raises(UsageError, match="broken"):
        measured(task, stage, ["a"], tmp_path / "rows.jsonl")
    assert stage.opened[0].closed
    assert results_folder.read_rows(tmp_path / "rows.jsonl", RolloutOutcome) == []


def test_nothing_was_spent_before_a_reply() -> None:
    assert agent_spending([Asked(text="x")]) == ()
