"""Replay: what recorded outcomes would have made of a coordinator's decisions, in expectation; and trials that judge
candidates by it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fugu_cli.session.events import ROLES
from fugu_cli.training.pass_matrix import turn_rate_and_cost
from fugu_cli.training.recorded_outcomes import ReplayCase
from fugu_cli.training.search import Candidates
from fugu_cli.training.synthetic_sessions import WORKER, ReplayHistory, ReplaySessionWriter, ReplayStep

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class CheckRates:
    """How often a check passes right work, and how often wrong work: 95/10 is Check(0.95, 0.10)."""

    right: float = 0.95
    wrong: float = 0.10


@dataclass(frozen=True)
class ReplayRules:
    """`turns` is K. `talk` is what a turn of words costs, as a share of a run by the same row."""

    check: CheckRates = CheckRates()
    turns: int = 5
    talk: float = 0.02


@dataclass(frozen=True)
class TrialResult:
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
class PathBelief:
    """How likely a path is met with the newest work right, and with it wrong."""

    right: float
    wrong: float

    @property
    def total(self) -> float:
        return self.right + self.wrong


def extend_path(
    case: ReplayCase, path: ReplayHistory, row: int, mass: PathBelief, check: CheckRates
) -> tuple[tuple[ReplayStep, PathBelief], ...]:
    """The two ways on after a Worker's turn by `row`: the check fails or passes."""
    rate = turn_rate_and_cost(case.task, row, tuple(step.row for step in path))[0]
    right, wrong = mass.total * rate, mass.total * (1 - rate)
    passed = PathBelief(right * check.right, wrong * check.wrong)
    failed = PathBelief(right - passed.right, wrong - passed.wrong)
    both = ((ReplayStep(row, False), failed), (ReplayStep(row, True), passed))
    return tuple((step, part) for step, part in both if part.total > 1e-9)


def can_continue(case: ReplayCase, path: ReplayHistory) -> bool:
    """Somebody can still work: where runs were recorded once, a row that has not."""
    spent = set() if case.looped else {step.row for step in path}
    return len(spent | case.empty) < len(case.task.rows)


class Replay:
    """Cases, the rules, and how paths are told."""

    def __init__(self, writer: ReplaySessionWriter, rules: ReplayRules) -> None:
        self._writer = writer
        self._rules = rules

    def play(self, candidates: Candidates, cases: Sequence[ReplayCase]) -> TrialResult:
        """Every candidate on every case."""
        tally = ReplayTally(candidates.size, len(cases), len(cases[0].task.rows))
        wave: PathFrontier = {
            (number, ()): [(who, PathBelief(0.0, 1.0)) for who in range(candidates.size)]
            for number in range(len(cases))
        }
        for turn in range(self._rules.turns):
            wave = self._turn(candidates, cases, wave, tally, last=turn == self._rules.turns - 1)
            if not wave:
                break
        return tally.played()

    def _turn(
        self, candidates: Candidates, cases: Sequence[ReplayCase], wave: PathFrontier, tally: ReplayTally, *, last: bool
    ) -> PathFrontier:
        """All paths of one length at once, so that a text is read once for everybody."""
        places = list(wave)
        scenes = [self._writer.scene(cases[number], path) for number, path in places]
        scores = candidates.logits([scene.text for scene in scenes])
        after: PathFrontier = {}
        for index, (number, path) in enumerate(places):
            rows, roles = scenes[index].choose(scores[:, index])
            for who, mass in wave[number, path]:
                turn = ReplayTurn(number, path, int(rows[who]), int(roles[who]), mass)
                for step, part in self._taken(cases[number], turn, who, tally):
                    grown_to = (*path, step)
                    if last or not can_continue(cases[number], grown_to):
                        tally.end(who, number, part)
                    else:
                        after.setdefault((number, grown_to), []).append((who, part))
        return after

    def _taken(
        self, case: ReplayCase, turn: ReplayTurn, who: int, tally: ReplayTally
    ) -> tuple[tuple[ReplayStep, PathBelief], ...]:
        """One candidate's turn on one path: what it costs, and the ways on ((): the request ends)."""
        if turn.row < 0:
            tally.end(who, turn.case, turn.mass)
            return ()
        history = tuple(step.row for step in turn.path)
        run = turn_rate_and_cost(case.task, turn.row, history)[1]
        working = turn.role == WORKER
        tally.pay(who, turn, run if working else self._rules.talk * run)
        if working:
            return extend_path(case, turn.path, turn.row, turn.mass, self._rules.check)
        tally.end(who, turn.case, turn.mass)
        return ()


PathFrontier = dict[tuple[int, ReplayHistory], list[tuple[int, PathBelief]]]
"""Case and path to the candidates that are there, each with the chance of it."""


@dataclass(frozen=True)
class ReplayTurn:
    """A decision: by which path it was met, with which chance, and what was chosen."""

    case: int
    path: ReplayHistory
    row: int
    role: int
    mass: PathBelief


class ReplayTally:
    """What is counted while paths are followed."""

    def __init__(self, size: int, cases: int, rows: int) -> None:
        self._solved, self._cost, self._turns = (np.zeros((size, cases)) for _ in range(3))
        self._rows, self._roles = np.zeros((size, rows)), np.zeros((size, len(ROLES)))

    def pay(self, who: int, turn: ReplayTurn, cost: float) -> None:
        """A turn was taken."""
        self._cost[who, turn.case] += turn.mass.total * cost
        self._turns[who, turn.case] += turn.mass.total
        self._rows[who, turn.row] += turn.mass.total
        self._roles[who, turn.role] += turn.mass.total

    def end(self, who: int, case: int, mass: PathBelief) -> None:
        """A request came to its end: the newest work counts."""
        self._solved[who, case] += mass.right

    def played(self) -> TrialResult:
        """Everything counted."""
        size, cases = self._solved.shape
        return TrialResult(self._solved, self._cost, self._turns, self._rows, self._roles, size * cases)


SampleCases = Callable[[random.Random], Sequence[ReplayCase]]
"""The cases of one iteration."""


@dataclass(frozen=True)
class ReplayTrial:
    """Recorded outcomes. `draw` gives an iteration's cases; `held` those that say which iteration was best."""

    replay: Replay
    draw: SampleCases
    held: Sequence[ReplayCase] = ()
    seed: int = 0

    def play(self, candidates: Candidates, iteration: int) -> TrialResult:
        """Every candidate on the iteration's cases."""
        return self.replay.play(candidates, self.draw(random.Random(f"{self.seed}/{iteration}")))

    def validate(self, candidates: Candidates) -> TrialResult | None:
        """Every candidate on the cases held out."""
        return self.replay.play(candidates, self.held) if self.held else None


@dataclass(frozen=True)
class CombinedTrial:
    """Several trials with a weight each, all on the same head: cases side by side, in the shares of their weights."""

    parts: Sequence[tuple[ReplayTrial, float]]

    def play(self, candidates: Candidates, iteration: int) -> TrialResult:
        """All parts' cases."""
        return _joined_results([(part.play(candidates, iteration), weight) for part, weight in self.parts])

    def validate(self, candidates: Candidates) -> TrialResult | None:
        """All parts' held-out cases."""
        found = [(part.validate(candidates), weight) for part, weight in self.parts]
        return _joined_results([(played, weight) for played, weight in found if played is not None]) if found else None


def _joined_results(played: Sequence[tuple[TrialResult, float]]) -> TrialResult:
    """One table: every part's cases repeated to its weight's share of the mean."""
    total = sum(weight for _, weight in played)
    count = sum(one.solved.shape[1] for one, _ in played)
    scaled = [(one, weight / total * count / one.solved.shape[1]) for one, weight in played]

    def side_by_side(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.concatenate([getattr(one, name) * factor for one, factor in scaled], 1)

    return TrialResult(
        side_by_side("solved"),
        side_by_side("cost"),
        side_by_side("turns"),
        sum(one.rows * factor for one, factor in scaled),
        sum(one.roles * factor for one, factor in scaled),
        sum(one.evaluations for one, _ in played),
        sum(one.usd for one, _ in played),
    )
