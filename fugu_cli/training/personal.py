"""Training from the user's own sessions (`fugu train sessions`): their requests, what was kept and what was not.

Labelled decisions (session_outcomes.py) become soft targets: of everyone who worked at such a point, who was worth it.
The head starts from the checkpoint in use and is pulled towards it, so that a handful of sessions moves it a little and
a hundred move it far. It is saved only where it does better on requests that were held out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fugu_cli.coordinators import svf, transcript
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, Training, make
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import UsageError
from fugu_cli.events import ROLES
from fugu_cli.training import fit
from fugu_cli.training.session_outcomes import Decided

LEAST = 8
"""Labelled requests without which nothing is learned: fewer say more about chance than about the agents."""
See = Callable[[Sequence[str]], Vector]


@dataclass(frozen=True)
class Found:
    """How the checkpoint in use and the new one do on requests held out (mean log-likelihood of what turned out well,
    lower KL is better), and the new one."""

    before: fit.Scored
    after: fit.Scored
    checkpoint: Checkpoint
    decisions: int
    requests: int

    @property
    def better(self) -> bool:
        return self.after.kl < self.before.kl


def examples(
    decided: Sequence[Decided], checkpoint: Checkpoint, labels: Mapping[str, str], reading: tuple[Backbone, See]
) -> fit.Examples:
    """A target per decision: the row that was chosen where it turned out well, the others where it did not."""
    meta, (backbone, see) = checkpoint.meta, reading
    rows = {label: meta.rows.index(label) for label in meta.rows}
    known = [one for one in decided if labels.get(one.agent) in rows]
    texts = []
    for one in known:
        lines = transcript.lines(one.events, labels, workers_only=meta.workers_only)
        texts.append(backbone.write(transcript.fit(lines, meta.budget, backbone.count), meta.format))
    targets = [_target(rows[labels[one.agent]], one.worth, len(rows)) for one in known]
    return fit.Examples(
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


def learn(found: fit.Examples, checkpoint: Checkpoint, seed: int = 0) -> Found:
    """Raises UsageError where there are too few requests."""
    requests = len(set(found.groups))
    if requests < LEAST:
        raise too_few(requests)
    head = checkpoint.head
    scores = [
        (fit.score(head, found.take(held)), fit.score(_moved(found.take(~held), head), found.take(held)), held.sum())
        for held in fit.folds(found.groups, min(5, requests), seed)
    ]
    before, after = (_mean([(score[side], int(score[2])) for score in scores]) for side in (0, 1))
    new = _moved(found, head)
    training = Training(
        stage="own sessions",
        data=f"{len(found.groups)} decisions of {requests} requests; {checkpoint.meta.training.data}",
        examples=len(found.groups),
        seed=seed,
        report=(("held-out kl before", round(before.kl, 4)), ("held-out kl after", round(after.kl, 4))),
    )
    meta = checkpoint.meta.model_copy(update={"training": training})
    return Found(before, after, make(svf.join(checkpoint.offsets, new), meta), len(found.groups), requests)


def too_few(requests: int) -> UsageError:
    """What is said where there is too little to learn from."""
    return UsageError(
        f"only {requests} requests of these sessions say how a decision turned out, {LEAST} are needed",
        hint="work on, with a test command where there is one: accepted, undone and tested requests count",
    )


def _moved(found: fit.Examples, head: Vector) -> Vector:
    """The head that fits the examples, mixed with the one in use by how much was seen: n / (n + 50) of the new one."""
    roles = head.shape[0] - found.rows.shape[1]
    known = _anchored(found, head)
    fitted = fit.fit(known, roles, l2=3e-2)
    share = len(found.groups) / (len(found.groups) + 50)
    return np.asarray((1 - share) * head + share * fitted * _size(head) / max(_size(fitted), 1e-12), np.float32)


def _anchored(found: fit.Examples, head: Vector) -> fit.Examples:
    """Roles that no label gives are those the head would take."""
    count = found.rows.shape[1]
    if head.shape[0] == count:
        return found
    taken = (found.hidden @ head[count:].T).argmax(1)
    return replace(found, roles=np.where(found.roles < 0, taken, found.roles))


def _size(head: Vector) -> float:
    return float(np.linalg.norm(head))


def _mean(scores: Sequence[tuple[fit.Scored, int]]) -> fit.Scored:
    total = sum(count for _, count in scores)
    return fit.Scored(*(
        sum(getattr(score, name) * count for score, count in scores) / total
        for name in ("kl", "row_accuracy", "role_accuracy")
    ))  # fmt: skip
