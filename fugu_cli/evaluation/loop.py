"""A coordinator and a pool on each task, in the engine's own loop: the same session a user has.

Stands above tasks and the orchestrator. Who works is the caller's business: it gives a function that opens a session
(wiring does) for an arm's name. An arm is a coordinator over a pool. What is recorded comes from the session's log.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fugu_cli import scratch, views
from fugu_cli.errors import InfrastructureError
from fugu_cli.evaluation import rows
from fugu_cli.evaluation.spending import SURROUNDINGS
from fugu_cli.events import Event, Failed, Finished, Planned, Replied
from fugu_cli.log import Log
from fugu_cli.messages import Usage, Value
from fugu_cli.tasks import Task
from fugu_cli.tasks.grading import grade
from fugu_cli.tasks.repository import materialise


class Session(Protocol):
    """What a try needs of an open session."""

    @property
    def log(self) -> Log:
        """Its facts."""

    async def ask(self, text: str) -> None:
        """Record the request."""

    async def run(self) -> Finished:
        """Drive it to its end, within the limits the session was opened with."""

    async def close(self) -> None:
        """Give back what it holds."""


@dataclass(frozen=True)
class Place:
    """Where a try happens: the arm's name, the task, its repository, and the folder for the session's data; which
    repetition it is, the log to go on with, and whether the task is a question that nothing but an answer solves."""

    arm: str
    task: Task
    repository: Path
    data: Path
    seed: int = 0
    resume: Path | None = None
    question: bool = False


Open = Callable[[Place], Awaitable[Session]]


class Spent(Value):
    """What one agent cost in a try: model calls (rolled-back draws included), tokens, seconds of waiting for it."""

    agent: str
    calls: int
    input: int
    cached: int
    output: int
    seconds: float


class Use(Value):
    """How many turns of a try an agent took in a role."""

    agent: str
    role: str
    turns: int


class Outcome(Value):
    """A row. `ok` is the grade, `accepted` what the engine said of itself; `session` the log, relative to the rows.

    `seed` counts repetitions, `usd` is what the pool's prices make of it.
    """

    task: str
    arm: str
    ok: bool
    accepted: bool
    reason: str
    turns: int
    seconds: float
    spent: tuple[Spent, ...]
    session: str
    failures: tuple[str, ...] = ()
    seed: int = 0
    usd: float = 0.0
    uses: tuple[Use, ...] = ()

    @property
    def calls(self) -> int:
        return sum(one.calls for one in self.spent)

    @property
    def model_seconds(self) -> float:
        return sum(one.seconds for one in self.spent)

    @property
    def input(self) -> int:
        return sum(one.input for one in self.spent)

    @property
    def output(self) -> int:
        return sum(one.output for one in self.spent)


class Dropped(InfrastructureError):
    """A try that ended for reasons outside the agents; its row stays empty and is measured again."""


Tell = Callable[[Outcome | str], None]
"""Takes each row as it is measured, or a sentence about one that could not be."""


async def attempt(task: Task, arm: str, open_session: Open, folder: Path) -> Outcome:
    """One task, one arm, in a new repository; the session's log stays below `folder`.

    Raises Dropped when the surroundings ended it, and whatever opening the session raises.
    """
    with scratch.folder("loop") as temporary:
        repository = await materialise(task, temporary / task.id)
        session = await open_session(Place(arm, task, repository, folder / "sessions" / arm.replace(":", "-")))
        started = time.monotonic()
        try:
            await session.ask(task.prompt)
            end = await session.run()
            events = tuple(session.log.events)
            path = session.log.path
        finally:
            await session.close()
        seconds = time.monotonic() - started
        failures = [event for event in events if isinstance(event, Failed)]
        if end.reason == "failed" and any(failure.kind in SURROUNDINGS for failure in failures):
            raise Dropped(f"{task.id}, {arm}: {end.message or failures[-1].message}")
        judged = await grade(task, repository)
    return Outcome(
        task=task.id,
        arm=arm,
        ok=judged.ok,
        accepted=end.reason == "accepted",
        reason=end.reason,
        turns=len(views.turns(events)),
        seconds=round(seconds, 3),
        spent=spent(events),
        session="" if path is None else str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path),
        failures=tuple(f"{failure.what}: {failure.kind}: {failure.message}" for failure in failures),
    )


def spent(events: Sequence[Event]) -> tuple[Spent, ...]:
    """The cost of a session by agent, in the order of their first reply."""
    replies = [event for event in events if isinstance(event, Replied | Planned)]
    total: list[Spent] = []
    for agent in dict.fromkeys(reply.agent for reply in replies):
        own = [reply for reply in replies if reply.agent == agent]
        usage = sum((reply.usage for reply in own), Usage())
        seconds = round(sum(reply.seconds for reply in own), 3)
        total.append(
            Spent(
                agent=agent,
                calls=len(own),
                input=usage.input,
                cached=usage.cached,
                output=usage.output,
                seconds=seconds,
            )
        )
    return tuple(total)


async def measure(tasks: Sequence[Task], arms: Sequence[str], open_session: Open, file: Path, tell: Tell) -> None:
    """Fill the table tasks x arms in `file`, task by task so that a measurement cut short compares the same tasks; what
    is there already is not measured again. Three tries in a row that had to be dropped end it with Dropped.
    """
    known = {(row.task, row.arm) for row in rows.read(file, Outcome)}
    dropped = 0
    for task in tasks:
        for arm in arms:
            if (task.id, arm) in known:
                continue
            try:
                row = await attempt(task, arm, open_session, file.parent)
            except Dropped as error:
                dropped += 1
                tell(f"{error}; dropped")
                if dropped == 3:
                    raise
                continue
            dropped = 0
            rows.append(file, row)
            tell(row)
