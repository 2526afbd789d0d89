"""Training from the user's own sessions: labelled decisions, soft targets, and a head pulled
towards the checkpoint in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fugu_cli.coordinators import svf, transcript
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, TrainingOrigin, make
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import UsageError
from fugu_cli.session import views
from fugu_cli.session.events import ROLES, Asked, Assigned, Event, Finished, Role, Undone
from fugu_cli.training import fitting
from fugu_cli.training.search import Encode

Label = Literal["accepted", "tests passed", "tests failed", "reverted"]


@dataclass(frozen=True)
class LabelledDecision:
    """A decision and its outcome. `events` are the session up to it; `group` is the request: its
    decisions are never on both sides of a split."""

    events: tuple[Event, ...]
    agent: str
    role: Role
    label: Label
    group: str

    @property
    def worth(self) -> float:
        return 1.0 if self.label in ("accepted", "tests passed") else 0.0


def labelled_decisions(events: Sequence[Event], session: str) -> Iterator[LabelledDecision]:
    """All labelled decisions of a session, oldest first."""
    reverted = _reverted(events)
    starts = [index for index, event in enumerate(events) if isinstance(event, Asked)]
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(events)
        yield from _of_request(events, (start, end), start in reverted, f"{session}/{number + 1}")


def _of_request(
    events: Sequence[Event], span: tuple[int, int], reverted: bool, group: str
) -> Iterator[LabelledDecision]:
    facts = events[span[0] : span[1]]
    accepted = any(isinstance(fact, Finished) and fact.reason == "accepted" for fact in facts)
    turns = [
        turn
        for turn in views.turns(facts)
        if not turn.failed and not turn.interrupted and turn.replies
    ]
    working = [turn for turn in turns if turn.assigned.role == "worker"]
    for turn in turns:
        approved = accepted and views.verdict(events[: span[1]], turn) in {None, "ACCEPT"}
        label = _label(turn, working[-1:] == [turn], approved, reverted)
        place = next(
            index
            for index in range(*span)
            if isinstance(events[index], Assigned) and events[index] == turn.assigned
        )
        if label is not None:
            yield LabelledDecision(
                tuple(events[:place]), turn.assigned.agent, turn.assigned.role, label, group
            )


def _label(turn: views.Turn, newest: bool, accepted: bool, reverted: bool) -> Label | None:
    """None where nothing is known of a turn. What the user took back outweighs what the tests said.
    `accepted`: the request was, and a Verifier's turn said so."""
    if turn.assigned.role == "worker":
        if newest and reverted:
            return "reverted"
        run = next(
            (run for run in reversed(turn.runs) if run.permitted.call.tool == views.RUN_TESTS), None
        )
        if run is not None and run.result is not None:
            return "tests passed" if run.result.ok else "tests failed"
        return "accepted" if newest and accepted else None
    return "accepted" if turn.assigned.role == "verifier" and accepted and not reverted else None


def _reverted(events: Sequence[Event]) -> set[int]:
    """Places of the Asked whose request was undone and not redone."""
    done: list[int] = []
    taken: list[int] = []
    gone: set[int] = set()
    for index, event in enumerate(events):
        if isinstance(event, Asked):
            done.append(index)
            gone |= set(taken)  # a new request ends the redoing: what is taken back stays so
            taken = []
        elif isinstance(event, Undone) and event.turn == 0:
            if event.kind == "redo" and taken:
                done.append(taken.pop())
            elif done:
                taken.append(done.pop())
    return gone | set(taken)


LEAST_REQUESTS = 8
"""Labelled requests without which nothing is learned: fewer say more about chance than about the
agents.
"""


@dataclass(frozen=True)
class OwnSessionsResult:
    """How the checkpoint in use and the new one do on requests held out (mean log-likelihood of
    what turned out well, lower KL is better), and the new one."""

    before: fitting.HeadScore
    after: fitting.HeadScore
    checkpoint: Checkpoint
    decisions: int
    requests: int

    @property
    def better(self) -> bool:
        return self.after.kl < self.before.kl


def session_examples(
    decided: Sequence[LabelledDecision],
    checkpoint: Checkpoint,
    labels: Mapping[str, str],
    reading: tuple[Backbone, Encode],
) -> fitting.HeadExamples:
    """A target per decision: the row that was chosen where it turned out well, the others where it
    did not.
    """
    meta, (backbone, see) = checkpoint.meta, reading
    rows = {label: meta.rows.index(label) for label in meta.rows}
    known = [one for one in decided if labels.get(one.agent) in rows]
    texts = [transcript.transcript_text(backbone, meta, one.events, labels) for one in known]
    targets = [_target(rows[labels[one.agent]], one.worth, len(rows)) for one in known]
    return fitting.HeadExamples(
        hidden=see(texts) if texts else np.zeros((0, meta.width), np.float32),
        rows=np.array(targets, np.float32).reshape(len(known), len(rows)),
        roles=np.array([ROLES.index(one.role) if one.worth else -1 for one in known], np.int64),
        weights=np.ones(len(known), np.float32),
        groups=tuple(one.group for one in known),
    )


def _target(row: int, worth: float, count: int) -> tuple[float, ...]:
    """Most of the mass on the row that did well; little on the one that did not."""
    if count == 1:
        return (1.0,)
    share = 0.9 if worth else 0.1
    return tuple(share if index == row else (1 - share) / (count - 1) for index in range(count))


def learn_from_sessions(
    found: fitting.HeadExamples, checkpoint: Checkpoint, seed: int = 0
) -> OwnSessionsResult:
    """Raises UsageError where there are too few requests."""
    requests = len(set(found.groups))
    if requests < LEAST_REQUESTS:
        raise too_few(requests)
    head = checkpoint.head
    scores = [
        (
            fitting.score_head(head, found.take(held)),
            fitting.score_head(_blended_head(found.take(~held), head), found.take(held)),
            held.sum(),
        )
        for held in fitting.group_folds(found.groups, min(5, requests), seed)
    ]
    before, after = (
        fitting.mean_score([(score[side], int(score[2])) for score in scores]) for side in (0, 1)
    )
    new = _blended_head(found, head)
    training = TrainingOrigin(
        stage="own sessions",
        data=(
            f"{len(found.groups)} decisions of {requests} requests; {checkpoint.meta.training.data}"
        ),
        examples=len(found.groups),
        seed=seed,
        report=(
            ("held-out kl before", round(before.kl, 4)),
            ("held-out kl after", round(after.kl, 4)),
        ),
    )
    meta = checkpoint.meta.model_copy(update={"training": training})
    return OwnSessionsResult(
        before, after, make(svf.join(checkpoint.offsets, new), meta), len(found.groups), requests
    )


def too_few(requests: int) -> UsageError:
    """What is said where there is too little to learn from."""
    return UsageError(
        f"only {requests} requests of these sessions say how a decision turned out, "
        f"{LEAST_REQUESTS} are needed",
        hint=(
            "work on, with a test command where there is one: accepted, undone and tested "
            "requests count"
        ),
    )


def _blended_head(found: fitting.HeadExamples, head: Vector) -> Vector:
    """The head that fits the examples, mixed with the one in use by how much was seen: n / (n + 50)
    of the new one.
    """
    roles = head.shape[0] - found.rows.shape[1]
    known = _anchored(found, head)
    fitted = fitting.fit_head(known, roles, l2=3e-2)
    share = len(found.groups) / (len(found.groups) + 50)
    return np.asarray(
        (1 - share) * head + share * fitted * _size(head) / max(_size(fitted), 1e-12), np.float32
    )


def _anchored(found: fitting.HeadExamples, head: Vector) -> fitting.HeadExamples:
    """Roles that no label gives are those the head would take."""
    count = found.rows.shape[1]
    if head.shape[0] == count:
        return found
    taken = (found.hidden @ head[count:].T).argmax(1)
    return replace(found, roles=np.where(found.roles < 0, taken, found.roles))


def _size(head: Vector) -> float:
    return float(np.linalg.norm(head))
