"""Synthetic sessions: writes tasks of a pass matrix and replayed paths as a session's events, read
as the coordinator reads them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fugu_cli.coordinators.action_space import SLOTS
from fugu_cli.messages import Call
from fugu_cli.session.events import (
    ANSWERED,
    EVIDENCE,
    Asked,
    Assigned,
    Event,
    Failed,
    FileChange,
    Permitted,
    Replied,
    Role,
    ToolRan,
    Undone,
)
from fugu_cli.training.pass_matrix import (
    FailedRows,
    HeadRow,
    TaskRates,
    ValueSettings,
    row_values,
    softmax,
    turn_rate_and_cost,
)

WORKER_REPLIES = (
    "",
    "",
    "I changed the condition so that the last element is included.",
    "Fixed.",
    "The bug is fixed now.",
)
"""Closing words of a Worker; a small model's edit mostly comes without any."""
THINKER_REPLIES = (
    "The function looks correct.",
    "You should check the loop's condition.",
    "I cannot find the bug.",
)


class EventWriter:
    """Agents are called by their rows' names, so a transcript of these events names what the head
    chooses among.
    """

    def __init__(self, seats: Sequence[HeadRow], draw: random.Random) -> None:
        self._seats = seats
        self._draw = draw

    def asked(self, text: str, *, judged: bool) -> Asked:
        """A request; `judged`: the tests are its acceptance check."""
        suite = "pytest" if judged else None
        return Asked(
            text=text, snapshot="tree", test_command=suite, until=(suite,) if suite else ()
        )

    def said(self, turn: int, row: int, role: Role, text: str) -> list[Event]:
        """A turn of words alone."""
        return [
            self._assigned(turn, row, role),
            Replied(turn=turn, agent=self._seats[row].row, text=text),
        ]

    def failed(self, turn: int, row: int) -> list[Event]:
        """A turn whose agent did not answer."""
        failed = Failed(
            turn=turn, what=self._seats[row].row, kind="network", message="connection reset"
        )
        return [self._assigned(turn, row, "worker"), failed]

    def earlier(self) -> list[Event]:
        """A request that was answered before, in the same session."""
        answer = self.said(
            1, self._draw.randrange(len(self._seats)), "worker", "It reads the file line by line."
        )
        return [self.asked("What does the parser do?", judged=False), *answer, ANSWERED]

    def worked(self, turn: int, row: int, path: str, ok: bool | None) -> list[Event]:
        """A Worker's turn on `path`; `ok` is how the tests ended, None where there are none.

        Where the tests go on failing the Worker may have changed nothing at all: small models often
        only talk.
        """
        attempts = self._seats[row].attempts if ok is not None else 1
        if ok is False and attempts == 1 and self._draw.random() < 0.25:
            return self.said(turn, row, "worker", self._draw.choice((path, *THINKER_REPLIES)))
        facts: list[Event] = [self._assigned(turn, row, "worker")]
        draws = attempts if ok is False else self._draw.randint(1, attempts)
        for number in range(1, draws + 1):
            last = number == draws
            facts += self._drawn(turn, row, path, number)
            facts += (
                self.tests(turn, f"e{turn}-{number}", bool(ok) and last) if ok is not None else []
            )
            if attempts > 1 and (not last or ok is False):
                facts.append(
                    Undone(snapshot="tree", kind="rollback", turn=turn, reason="the tests failed")
                )
        return facts

    def tests(self, turn: int, id: str, ok: bool) -> list[Event]:
        """A run of the tests by fugu itself."""
        failed, passed = self._draw.randint(1, 6), self._draw.randint(0, 8)
        output = (
            f"{passed + 1} passed in 0.1s" if ok else f"{failed} failed, {passed} passed in 0.1s"
        )
        call = Call(id=id, tool="run_tests")
        ran = ToolRan(turn=turn, call=call, output=output, ok=ok)
        return [Permitted(turn=turn, call=call, allowed=True, by=EVIDENCE), ran]

    def _drawn(self, turn: int, row: int, path: str, number: int) -> list[Event]:
        """One draw's reply, with the calls that change `path`."""
        call = Call.make(
            f"t{turn}-{number}", self._draw.choice(("write", "write", "edit")), path=path
        )
        look = Call.make(f"l{turn}-{number}", "read", path=path)
        calls = (look, call) if self._draw.random() < 0.3 else (call,)
        facts: list[Event] = [
            Replied(
                turn=turn,
                agent=self._seats[row].row,
                text=self._draw.choice(WORKER_REPLIES),
                calls=calls,
            )
        ]
        for each in calls:
            changes = (
                (FileChange(path=path, before="a", after=f"b{turn}-{number}"),)
                if each is call
                else ()
            )
            facts.append(Permitted(turn=turn, call=each, allowed=True, by="policy"))
            facts.append(ToolRan(turn=turn, call=each, output="ok", ok=True, changes=changes))
        return facts

    def _assigned(self, turn: int, row: int, role: Role) -> Assigned:
        return Assigned(
            turn=turn, agent=self._seats[row].row, role=role, by="story", snapshot="tree"
        )


BELIEFS = {
    "verify": (0.75, 0.2, 0.05),
    "verify after cheap": (0.2, 0.7, 0.1),
    "unjudged verify": (0.05, 0.25, 0.7),
}
"""Who verifies, over cheap, middle and strong, which no measurement gave: where the tests pass any
other agent may confirm it, where none decide the strongest should."""
THOUGHT = "The cause is in the loop's condition.\n<suggested_role>worker</suggested_role>"


@dataclass(frozen=True)
class MatrixSession:
    """A session up to a decision, and the decision wanted: a distribution over the rows, and a
    role.
    """

    events: tuple[Event, ...]
    rows: tuple[float, ...]
    role: Role
    group: str
    """The task: examples of one task are never on both sides of a split."""
    weight: float = 1.0
    history: FailedRows | None = None
    """Set where the tests fail: which rows have failed so far."""


class MatrixSessionWriter:
    """Tells the stories of one task. Everything random comes from the given generator."""

    def __init__(self, seats: Sequence[HeadRow], draw: random.Random) -> None:
        self._draw = draw
        self._count = len(seats)
        self._writer = EventWriter(seats, draw)
        self._order = [_order(seat.row, index) for index, seat in enumerate(seats)]

    def task(self, task: TaskRates, terms: ValueSettings, count: int) -> Iterator[MatrixSession]:
        """The beginning, every first failure, `count` longer stories, and those in which no tests
        judge.
        """
        yield from self._after(task, (), terms)
        for row in range(self._count):
            yield from self._after(task, (row,), terms)
        for _ in range(count):
            length = self._draw.randint(2, 3)
            yield from self._after(task, tuple(self._any() for _ in range(length)), terms)
        yield from self._unjudged(task, terms)

    def _unjudged(self, task: TaskRates, terms: ValueSettings) -> Iterator[MatrixSession]:
        """No tests decide: work, then a judgement that refuses it, then more work."""
        start: tuple[Event, ...] = (self._writer.asked(task.prompt, judged=False),)
        yield MatrixSession(
            start, softmax(row_values(task, (), terms), terms.tau), "worker", task.task
        )
        row = self._any()
        worked = (*start, *self._writer.worked(1, row, path_of(task.prompt), None))
        yield MatrixSession(worked, self._belief("unjudged verify"), "verifier", task.task)
        revised = (
            *worked,
            *self._writer.said(2, self._any(), "verifier", "REVISE: it is not done yet."),
        )
        worth = softmax(row_values(task, (row,), terms), terms.tau)
        yield MatrixSession(revised, worth, "worker", task.task, _reach(task, (row,)))

    def _after(
        self, task: TaskRates, history: FailedRows, terms: ValueSettings
    ) -> Iterator[MatrixSession]:
        """Decisions at and around the state in which `history` failed."""
        worth = softmax(row_values(task, history, terms), terms.tau)
        weight = _reach(task, history)
        start = self.failing(task, history)
        yield MatrixSession(start, worth, "worker", task.task, weight, history)
        number, row, aside = len(history) + 1, self._any(), self._draw.randrange(3)
        if aside == 0:
            thought = (*start, *self._writer.said(number, self._any(), "thinker", THOUGHT))
            yield MatrixSession(thought, worth, "worker", task.task, weight / 2)
        if aside == 1:
            yield MatrixSession(
                (*start, *self._writer.failed(number, row)), worth, "worker", task.task, weight / 2
            )
        likely = weight * max(turn_rate_and_cost(task, row, history)[0], 0.1)
        done = (*start, *self._writer.worked(number, row, path_of(task.prompt), True))
        name = "verify after cheap" if self._order[row] == 0 else "verify"
        yield MatrixSession(done, self._belief(name), "verifier", task.task, likely)
        if aside == 2:
            revised = (
                *done,
                *self._writer.said(
                    number + 1, self._any(), "verifier", "REVISE: a case is missing."
                ),
            )
            later = softmax(row_values(task, (*history, row), terms), terms.tau)
            yield MatrixSession(revised, later, "worker", task.task, likely / 2)

    def failing(self, task: TaskRates, history: FailedRows) -> tuple[Event, ...]:
        """The session up to where all of `history` has failed on `task`."""
        before = self._writer.earlier() if self._draw.random() < 0.15 else []
        start: list[Event] = [*before, self._writer.asked(task.prompt, judged=True)]
        start += self._writer.tests(0, "e0-0", False)
        for number, row in enumerate(history, start=1):
            start += self._writer.worked(number, row, path_of(task.prompt), False)
        return tuple(start)

    def _any(self) -> int:
        return self._draw.randrange(self._count)

    def _belief(self, name: str) -> tuple[float, ...]:
        by_slot = [BELIEFS[name][order] for order in self._order]
        return tuple(value / sum(by_slot) for value in by_slot)


def _order(row: str, index: int) -> int:
    """How strong a row is, 0 to 2: by its slot, or by its place where rows are agents."""
    return next(
        (number for number, slot in enumerate(SLOTS) if slot == row), min(index, len(SLOTS) - 1)
    )


def _reach(task: TaskRates, history: FailedRows) -> float:
    """How likely this task comes to fail at all of `history`; floored, for the state must be known
    when it is met.
    """
    reached = 1.0
    for index, row in enumerate(history):
        reached *= 1 - turn_rate_and_cost(task, row, history[:index])[0]
    return max(reached, 0.05)


def path_of(prompt: str) -> str:
    """The file a request names, else one of no meaning."""
    found = re.search(r"`([\w./-]+\.\w{1,4})`", prompt)
    return found.group(1) if found else "main.py"
