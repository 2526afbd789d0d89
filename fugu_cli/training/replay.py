"""Replay: what recorded outcomes would have made of a coordinator's decisions, in expectation.

A path is the Workers that took a turn so far and how a check judged each. Its transcript is written as events and read
through the coordinator's own functions (replay_sessions.py); a candidate's logits say who is next and in which role.
Nothing is sampled: the check's errors split every path in two, each with its weight, so all candidates meet the same
chances.

A Verifier accepts where the check passed and ends the request. Any other turn than a Worker's is vain here: nothing
was recorded of it, and the request ends with what there is. So it does where every row has worked: a model ran once on
a recorded issue, and what a second run would bring is not known. What counts is the newest Worker's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fugu_cli.events import ROLES
from fugu_cli.training.candidates import Candidates
from fugu_cli.training.outcomes import Case
from fugu_cli.training.replay_sessions import WORKER, ReplaySessionWriter, Step, Trail
from fugu_cli.training.values import chance

Numbers = NDArray[np.float64]
VERIFIER = ROLES.index("verifier")


@dataclass(frozen=True)
class Check:
    """How often a check passes right work, and how often wrong work: 95/10 is Check(0.95, 0.10)."""

    right: float = 0.95
    wrong: float = 0.10


@dataclass(frozen=True)
class Rules:
    """`turns` is K. `talk` is what a turn of words costs, as a share of a run by the same row."""

    check: Check = Check()
    turns: int = 5
    talk: float = 0.02


@dataclass(frozen=True)
class Played:
    """By candidate and case (size, n): share solved, relative cost, turns, and how sure it ends accepted. `rows` and
    `roles` (size, L) and (size, 3): turns taken by each. NaN where a replication failed for outside reasons."""

    solved: Numbers
    cost: Numbers
    turns: Numbers
    rows: Numbers
    roles: Numbers
    evaluations: int
    usd: float = 0.0


@dataclass(frozen=True)
class Mass:
    """How likely a path is met with the newest work right, and with it wrong."""

    right: float
    wrong: float

    @property
    def total(self) -> float:
        return self.right + self.wrong


def grown(case: Case, path: Trail, row: int, mass: Mass, check: Check) -> tuple[tuple[Step, Mass], ...]:
    """The two ways on after a Worker's turn by `row`: the check fails or passes."""
    rate = chance(case.task, row, tuple(step.row for step in path))[0]
    right, wrong = mass.total * rate, mass.total * (1 - rate)
    passed = Mass(right * check.right, wrong * check.wrong)
    failed = Mass(right - passed.right, wrong - passed.wrong)
    both = ((Step(row, False), failed), (Step(row, True), passed))
    return tuple((step, part) for step, part in both if part.total > 1e-9)


def left(case: Case, path: Trail) -> bool:
    """Somebody can still work: where runs were recorded once, a row that has not."""
    spent = set() if case.looped else {step.row for step in path}
    return len(spent | case.empty) < len(case.task.rows)


class Replay:
    """Cases, the rules, and how paths are told."""

    def __init__(self, writer: ReplaySessionWriter, rules: Rules) -> None:
        self._writer = writer
        self._rules = rules

    def play(self, candidates: Candidates, cases: Sequence[Case]) -> Played:
        """Every candidate on every case."""
        tally = Tally(candidates.size, len(cases), len(cases[0].task.rows))
        wave: Wave = {
            (number, ()): [(who, Mass(0.0, 1.0)) for who in range(candidates.size)] for number in range(len(cases))
        }
        for turn in range(self._rules.turns):
            wave = self._turn(candidates, cases, wave, tally, last=turn == self._rules.turns - 1)
            if not wave:
                break
        return tally.played()

    def _turn(self, candidates: Candidates, cases: Sequence[Case], wave: Wave, tally: Tally, *, last: bool) -> Wave:
        """All paths of one length at once, so that a text is read once for everybody."""
        places = list(wave)
        scenes = [self._writer.scene(cases[number], path) for number, path in places]
        scores = candidates.logits([scene.text for scene in scenes])
        after: Wave = {}
        for index, (number, path) in enumerate(places):
            rows, roles = scenes[index].choose(scores[:, index])
            for who, mass in wave[number, path]:
                turn = Turn(number, path, int(rows[who]), int(roles[who]), mass)
                for step, part in self._taken(cases[number], turn, who, tally):
                    grown_to = (*path, step)
                    if last or not left(cases[number], grown_to):
                        tally.end(who, number, part)
                    else:
                        after.setdefault((number, grown_to), []).append((who, part))
        return after

    def _taken(self, case: Case, turn: Turn, who: int, tally: Tally) -> tuple[tuple[Step, Mass], ...]:
        """One candidate's turn on one path: what it costs, and the ways on ((): the request ends)."""
        if turn.row < 0:
            tally.end(who, turn.case, turn.mass)
            return ()
        history = tuple(step.row for step in turn.path)
        run = chance(case.task, turn.row, history)[1]
        working = turn.role == WORKER
        tally.pay(who, turn, run if working else self._rules.talk * run)
        if working:
            return grown(case, turn.path, turn.row, turn.mass, self._rules.check)
        tally.end(who, turn.case, turn.mass)
        return ()


Wave = dict[tuple[int, Trail], list[tuple[int, Mass]]]
"""Case and path to the candidates that are there, each with the chance of it."""


@dataclass(frozen=True)
class Turn:
    """A decision: by which path it was met, with which chance, and what was chosen."""

    case: int
    path: Trail
    row: int
    role: int
    mass: Mass


class Tally:
    """What is counted while paths are followed."""

    def __init__(self, size: int, cases: int, rows: int) -> None:
        self._solved, self._cost, self._turns = (np.zeros((size, cases)) for _ in range(3))
        self._rows, self._roles = np.zeros((size, rows)), np.zeros((size, len(ROLES)))

    def pay(self, who: int, turn: Turn, cost: float) -> None:
        """A turn was taken."""
        self._cost[who, turn.case] += turn.mass.total * cost
        self._turns[who, turn.case] += turn.mass.total
        self._rows[who, turn.row] += turn.mass.total
        self._roles[who, turn.role] += turn.mass.total

    def end(self, who: int, case: int, mass: Mass) -> None:
        """A request came to its end: the newest work counts."""
        self._solved[who, case] += mass.right

    def played(self) -> Played:
        """Everything counted."""
        size, cases = self._solved.shape
        return Played(self._solved, self._cost, self._turns, self._rows, self._roles, size * cases)
