"""Replay: what recorded outcomes would have made of a coordinator's decisions, in expectation; and
trials that judge candidates by it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fugu_cli.coordinators import action_space, transcript
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.transcript import TranscriptFormat
from fugu_cli.messages import Call
from fugu_cli.session.events import (
    ROLES,
    Asked,
    Assigned,
    Event,
    FileChange,
    Permitted,
    Replied,
    ToolRan,
)
from fugu_cli.training.evolution import TrialResult
from fugu_cli.training.pass_matrix import HeadRow, turn_rate_and_cost
from fugu_cli.training.search import Candidates
from fugu_cli.training.synthetic_sessions import EventWriter, path_of
from tests.benchmarks.slots.outcomes import ReplayCase

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class ReplayStep:
    """A Worker's turn by `row`, and whether the check passed afterwards."""

    row: int
    passed: bool


ReplayHistory = tuple[ReplayStep, ...]
RowIndexes = NDArray[np.int64]
WORKER, VERIFIER = ROLES.index("worker"), ROLES.index("verifier")


@dataclass(frozen=True)
class TranscriptSettings:
    """How transcripts are written: what a checkpoint's meta says of it. `request` is the most
    tokens of a request.
    """

    format: TranscriptFormat = "raw"
    workers_only: bool = False
    budget: int = 1536
    request: int = 160


@dataclass(frozen=True)
class Observation:
    """A point at which to decide: the transcript, and the rows and roles that cannot be chosen."""

    text: str
    rows_out: tuple[int, ...]
    roles_out: tuple[int, ...]
    rows: int
    spent: tuple[int, ...] = ()
    """Rows whose one recorded run was used: they may verify, not work again."""

    def choose(self, logits: NDArray[np.float32]) -> tuple[RowIndexes, RowIndexes]:
        """Rows and roles (size,) of candidates' logits (size, rows + roles): the highest that is
        not masked. A row of -1: nobody is left to work."""
        heads = logits.astype(np.float64)
        roles = _best(heads[:, self.rows :], self.roles_out)
        if VERIFIER in self.roles_out:  # as Trinity has it: then a Worker acts
            roles = np.where(_best(heads[:, self.rows :], ()) == VERIFIER, WORKER, roles)
        working = _best(heads[:, : self.rows], (*self.rows_out, *self.spent))
        return np.where(
            roles == WORKER, working, _best(heads[:, : self.rows], self.rows_out)
        ), roles


def _best(scores: NDArray[np.float64], out: Sequence[int]) -> RowIndexes:
    """The highest place that is not out, -1 where all are."""
    if len(set(out)) == scores.shape[1]:
        return np.full(len(scores), -1)
    masked = scores.copy()
    masked[:, list(out)] = -np.inf
    return np.asarray(masked.argmax(1))


class ReplaySessionWriter:
    """`seats` give the rows their names. What a path reads like is the same every time it is
    told.
    """

    def __init__(
        self,
        seats: Sequence[HeadRow],
        backbone: Backbone,
        reading: TranscriptSettings,
        seed: int = 0,
    ) -> None:
        self._seats = tuple(seats)
        self._backbone = backbone
        self._reading = reading
        self._seed = seed
        self._scenes: dict[
            tuple[str, tuple[int, ...], ReplayHistory, frozenset[int]], Observation
        ] = {}

    def scene(self, case: ReplayCase, path: ReplayHistory) -> Observation:
        """What is to be decided on after `path`."""
        key = (case.task.task, case.calls, path, case.empty)
        if key not in self._scenes:
            self._scenes[key] = self._scene(case, path)
        return self._scenes[key]

    def events(self, case: ReplayCase, path: ReplayHistory) -> tuple[Event, ...]:
        """The session up to there."""
        text = transcript.cut_middle(
            case.task.prompt.strip(), self._reading.request, self._backbone.count
        )
        told = self._looped if case.looped else self._recorded
        facts: list[Event] = [
            Asked(text=text, snapshot="tree", test_command="pytest", until=("pytest",))
        ]
        facts += self._writer(case, ()).tests(0, "e0-0", False)
        for number in range(1, len(path) + 1):
            facts += told(case, path[:number])
        return tuple(facts)

    def _scene(self, case: ReplayCase, path: ReplayHistory) -> Observation:
        events = self.events(case, path)
        text = transcript.transcript_text(self._backbone, self._reading, events, {})
        roles = tuple(ROLES.index(role) for role in action_space.roles_out(events))
        spent = () if case.looped else tuple(sorted({step.row for step in path}))
        return Observation(text, tuple(sorted(case.empty)), roles, len(self._seats), spent)

    def _writer(self, case: ReplayCase, path: ReplayHistory) -> EventWriter:
        """Draws of its own at every point, so that a longer path begins like the shorter one."""
        taken = tuple((step.row, step.passed) for step in path)
        return EventWriter(self._seats, random.Random(f"{self._seed}/{case.task.task}/{taken}"))

    def _looped(self, case: ReplayCase, path: ReplayHistory) -> list[Event]:
        step = path[-1]
        return self._writer(case, path).worked(
            len(path), step.row, path_of(case.task.prompt), step.passed
        )

    def _recorded(self, case: ReplayCase, path: ReplayHistory) -> list[Event]:
        """An agent's run of many calls, then the check."""
        step, turn = path[-1], len(path)
        agent = self._seats[step.row].row
        count = max(case.calls[step.row] if case.calls else 1, 1)
        calls = tuple(Call(id=f"c{turn}-{number}", tool="bash") for number in range(count - 1))
        edit = Call.make(f"c{turn}-{count}", "edit")
        facts: list[Event] = [
            Assigned(turn=turn, agent=agent, role="worker", by="replay", snapshot="tree")
        ]
        facts.append(Replied(turn=turn, agent=agent, text="", calls=(*calls, edit)))
        for call in (*calls, edit):
            change = FileChange(path="source", before="a", after=f"b{turn}")
            facts.append(Permitted(turn=turn, call=call, allowed=True, by="policy"))
            facts.append(
                ToolRan(
                    turn=turn,
                    call=call,
                    output="",
                    ok=True,
                    changes=(change,) if call is edit else (),
                )
            )
        return facts + self._writer(case, path).tests(turn, f"e{turn}", step.passed)


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
        self,
        candidates: Candidates,
        cases: Sequence[ReplayCase],
        wave: PathFrontier,
        tally: ReplayTally,
        *,
        last: bool,
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
        """One candidate's turn on one path: what it costs, and the ways on ((): the request
        ends).
        """
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
        return TrialResult(
            self._solved, self._cost, self._turns, self._rows, self._roles, size * cases
        )


SampleCases = Callable[[random.Random], Sequence[ReplayCase]]
"""The cases of one iteration."""


@dataclass(frozen=True)
class ReplayTrial:
    """Recorded outcomes. `draw` gives an iteration's cases; `held` those that say which iteration
    was best.
    """

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
    """Several trials with a weight each, all on the same head: cases side by side, in the shares of
    their weights.
    """

    parts: Sequence[tuple[ReplayTrial, float]]

    def play(self, candidates: Candidates, iteration: int) -> TrialResult:
        """All parts' cases."""
        return _joined_results(
            [(part.play(candidates, iteration), weight) for part, weight in self.parts]
        )

    def validate(self, candidates: Candidates) -> TrialResult | None:
        """All parts' held-out cases."""
        found = [(part.validate(candidates), weight) for part, weight in self.parts]
        return (
            _joined_results([(played, weight) for played, weight in found if played is not None])
            if found
            else None
        )


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
