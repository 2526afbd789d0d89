"""Replay sessions: writes a replayed path as a session's events and reads it as the coordinator does.

Between replay.py, which knows what happened, and the coordinator's transcript, masks and head, which are used as they
are: a decision on a scene is the decision Trinity takes on the same log (a test holds that). A request that a check
decides begins with the check's word, as in the loop: without it a first decision would stand on an issue's last words,
which are different every time and mean nothing.

Departure: a decision here takes the maximum, where TRINITY samples in training. A replayed outcome costs nothing, so
candidates are told apart by more cases instead of by draws, whose noise common seeds do not take away.

The digest of a turn carries what a run shows of itself: how many calls it made and how the check judged it. Two kinds
of paths are told: recorded issues (an agent's own run, a check afterwards), and tasks of a pass matrix, as the loop of
small models leaves them (tests that fail before, whole files written, draws rolled back).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fugu_cli.coordinators import masks, transcript
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.transcript import Format
from fugu_cli.events import ROLES, Asked, Assigned, Change, Event, Permitted, Replied, ToolRan
from fugu_cli.messages import Call
from fugu_cli.training.matrix import Seat
from fugu_cli.training.matrix_sessions import path_of
from fugu_cli.training.outcomes import Case
from fugu_cli.training.synthetic_events import EventWriter


@dataclass(frozen=True)
class Step:
    """A Worker's turn by `row`, and whether the check passed afterwards."""

    row: int
    passed: bool


Trail = tuple[Step, ...]
Places = NDArray[np.int64]
WORKER = ROLES.index("worker")


@dataclass(frozen=True)
class Reading:
    """How transcripts are written: what a checkpoint's meta says of it. `request` is the most tokens of a request."""

    format: Format = "raw"
    workers_only: bool = False
    budget: int = 1536
    request: int = 160


@dataclass(frozen=True)
class Scene:
    """A point at which to decide: the transcript, and the rows and roles that cannot be chosen."""

    text: str
    rows_out: tuple[int, ...]
    roles_out: tuple[int, ...]
    rows: int
    spent: tuple[int, ...] = ()
    """Rows whose one recorded run was used: they may verify, not work again."""

    def choose(self, logits: NDArray[np.float32]) -> tuple[Places, Places]:
        """Rows and roles (size,) of candidates' logits (size, rows + roles): the highest that is not masked. A row of
        -1: nobody is left to work."""
        heads = logits.astype(np.float64)
        roles = _best(heads[:, self.rows :], self.roles_out)
        working = _best(heads[:, : self.rows], (*self.rows_out, *self.spent))
        return np.where(roles == WORKER, working, _best(heads[:, : self.rows], self.rows_out)), roles


def _best(scores: NDArray[np.float64], out: Sequence[int]) -> Places:
    """The highest place that is not out, -1 where all are."""
    if len(set(out)) == scores.shape[1]:
        return np.full(len(scores), -1)
    masked = scores.copy()
    masked[:, list(out)] = -np.inf
    return np.asarray(masked.argmax(1))


class ReplaySessionWriter:
    """`seats` give the rows their names. What a path reads like is the same every time it is told."""

    def __init__(self, seats: Sequence[Seat], backbone: Backbone, reading: Reading, seed: int = 0) -> None:
        self._seats = tuple(seats)
        self._backbone = backbone
        self._reading = reading
        self._seed = seed
        self._scenes: dict[tuple[str, tuple[int, ...], Trail, frozenset[int]], Scene] = {}

    def scene(self, case: Case, path: Trail) -> Scene:
        """What is to be decided on after `path`."""
        key = (case.task.task, case.calls, path, case.empty)
        if key not in self._scenes:
            self._scenes[key] = self._scene(case, path)
        return self._scenes[key]

    def events(self, case: Case, path: Trail) -> tuple[Event, ...]:
        """The session up to there."""
        text = transcript.cut_middle(case.task.prompt.strip(), self._reading.request, self._backbone.count)
        told = self._looped if case.looped else self._recorded
        facts: list[Event] = [Asked(text=text, snapshot="tree", test_command="pytest", until=("pytest",))]
        facts += self._writer(case, ()).tests(0, "e0-0", False)
        for number in range(1, len(path) + 1):
            facts += told(case, path[:number])
        return tuple(facts)

    def _scene(self, case: Case, path: Trail) -> Scene:
        events, reading = self.events(case, path), self._reading
        lines = transcript.lines(events, {}, workers_only=reading.workers_only)
        text = self._backbone.write(transcript.fit(lines, reading.budget, self._backbone.count), reading.format)
        roles = tuple(ROLES.index(role) for role in masks.roles_out(events))
        spent = () if case.looped else tuple(sorted({step.row for step in path}))
        return Scene(text, tuple(sorted(case.empty)), roles, len(self._seats), spent)

    def _writer(self, case: Case, path: Trail) -> EventWriter:
        """Draws of its own at every point, so that a longer path begins like the shorter one."""
        return EventWriter(self._seats, random.Random(f"{self._seed}/{case.task.task}/{path}"))

    def _looped(self, case: Case, path: Trail) -> list[Event]:
        step = path[-1]
        return self._writer(case, path).worked(len(path), step.row, path_of(case.task.prompt), step.passed)

    def _recorded(self, case: Case, path: Trail) -> list[Event]:
        """An agent's run of many calls, then the check."""
        step, turn = path[-1], len(path)
        agent = self._seats[step.row].row
        count = max(case.calls[step.row] if case.calls else 1, 1)
        calls = tuple(Call(id=f"c{turn}-{number}", tool="bash") for number in range(count - 1))
        edit = Call.make(f"c{turn}-{count}", "edit")
        facts: list[Event] = [Assigned(turn=turn, agent=agent, role="worker", by="replay", snapshot="tree")]
        facts.append(Replied(turn=turn, agent=agent, text="", calls=(*calls, edit)))
        for call in (*calls, edit):
            change = Change(path="source", before="a", after=f"b{turn}")
            facts.append(Permitted(turn=turn, call=call, allowed=True, by="policy"))
            facts.append(ToolRan(turn=turn, call=call, output="", ok=True, changes=(change,) if call is edit else ()))
        return facts + self._writer(case, path).tests(turn, f"e{turn}", step.passed)
