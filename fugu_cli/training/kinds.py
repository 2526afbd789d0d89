"""Train a kind head (coordinators/kinds.py) from requests whose kind is known."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fugu_cli.coordinators import kinds
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.kinds import KindHead, KindHeadMeta
from fugu_cli.coordinators.skills import KINDS, Kind
from fugu_cli.errors import UsageError

FOLDS = 5
DECAY = 0.1
"""Of the squared weights, for states of length `STATE_LENGTH`."""
STATE_LENGTH = 30.0
"""Length of the states while fitting, near that of real ones."""
TEMPERATURES = np.geomspace(0.2, 10.0, 60)
REPORT_EVERY = 100
"""Requests between two reports of progress."""


class KindRow(BaseModel):
    """A request and its kind; other keys of the line are ignored."""

    model_config = ConfigDict(frozen=True)

    text: str
    kind: Kind
    weight: float = Field(1.0, gt=0)
    """Beside other rows of its kind: lower it where the source is often wrong about the kind."""


@dataclass(frozen=True)
class TrainedKinds:
    """A head, and its accuracy on rows it was not fitted to beside the share of the most frequent
    kind.
    """

    head: KindHead
    accuracy: float
    majority: float
    rows: int


def read_rows(path: Path) -> list[KindRow]:
    """Read a JSONL file of requests. Raise UsageError for a line that is none, and where there are
    not enough rows to hold some out.
    """
    rows = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append(KindRow.model_validate_json(line))
        except ValidationError as error:
            raise UsageError(
                f'{path}, line {number} is not {{"text": ..., "kind": ...}}',
                hint=f"kinds are {', '.join(KINDS)}",
            ) from error
    missing = [name for name in KINDS if sum(row.kind == name for row in rows) < FOLDS]
    if missing:
        raise UsageError(
            f"{path} has fewer than {FOLDS} requests of the kind {missing[0]}",
            hint="every kind needs examples; some are held out to measure the head",
        )
    return rows


def train(
    rows: Sequence[KindRow], backbone: Backbone, report: Callable[[str], None]
) -> TrainedKinds:
    """Read the requests with the backbone and fit a head. Blocking, 0.1 to 1 s a request."""
    states = []
    for number, row in enumerate(rows, start=1):
        states.append(kinds.read_request(backbone, row.text).hidden)
        if number % REPORT_EVERY == 0:
            report(f"  {number} of {len(rows)} requests read")
    labels = np.array([KINDS.index(row.kind) for row in rows])
    row_weights = np.array([row.weight for row in rows], dtype=np.float32)
    weights, accuracy = fit_and_validate(np.stack(states), labels, row_weights)
    majority = Counter(labels.tolist()).most_common(1)[0][1] / len(rows)
    meta = KindHeadMeta(
        backbone=backbone.identity,
        training=f"{len(rows)} requests; {accuracy:.1%} right on rows held out ({FOLDS} folds), "
        f"the most frequent kind {majority:.1%}",
    )
    return TrainedKinds(KindHead(meta, weights), accuracy, majority, len(rows))


def fit_and_validate(
    states: NDArray[np.float32], labels: NDArray[np.int64], row_weights: NDArray[np.float32]
) -> tuple[NDArray[np.float32], float]:
    """Return the weights fitted to all rows, and the accuracy on held-out folds. The temperature
    that suits the held-out logits best is folded into the weights.
    """
    order = list(range(len(labels)))
    random.Random(0).shuffle(order)
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % FOLDS
    unit = states / np.linalg.norm(states, axis=1, keepdims=True)
    logits = np.empty((len(labels), len(KINDS)), dtype=np.float32)
    for held_out in range(FOLDS):
        train_rows = fold != held_out
        fitted = _fit(unit[train_rows], labels[train_rows], row_weights[train_rows])
        logits[~train_rows] = unit[~train_rows] @ fitted.T
    losses = [_log_loss(logits / temperature, labels) for temperature in TEMPERATURES]
    temperature = TEMPERATURES[int(np.argmin(losses))]
    accuracy = float((logits.argmax(axis=1) == labels).mean())
    weights = _fit(unit, labels, row_weights) / temperature
    return weights.astype(np.float32), accuracy


def _log_loss(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_shares = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(-log_shares[np.arange(len(labels)), labels].mean())


def _fit(
    unit: NDArray[np.float32], labels: NDArray[np.int64], row_weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Fit a multinomial logistic regression in which every kind weighs the same."""
    import torch
    from torch.nn.functional import cross_entropy

    inputs = torch.from_numpy((unit * STATE_LENGTH).astype(np.float32))
    targets = torch.from_numpy(labels)
    kind_totals = np.bincount(labels, weights=row_weights, minlength=len(KINDS))
    weights = torch.from_numpy((row_weights / kind_totals[labels]).astype(np.float32))
    weights = weights / weights.sum()
    head = torch.zeros(len(KINDS), inputs.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([head], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        losses = cross_entropy(inputs @ head.T, targets, reduction="none")
        value = (weights * losses).sum() + DECAY * head.square().sum()
        value.backward()
        return float(value.detach())

    optimizer.step(loss)
    fitted: NDArray[np.float32] = head.detach().numpy() * STATE_LENGTH
    return fitted
