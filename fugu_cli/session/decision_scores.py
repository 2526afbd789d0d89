"""The options of a decision: each logit, and its probability before and after the masks."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fugu_cli.session.events import ROLES, Assigned, Scores


@dataclass(frozen=True)
class ScoredOption:
    """A row or role: its logit, its probability without any mask and with them (0 where `masked`
    says why).
    """

    name: str
    logit: float
    before: float
    after: float
    masked: str = ""


@dataclass(frozen=True)
class ScoreMargin:
    """The lead of the chosen option's logit over the next one that could act; below 0 if it was
    drawn at random.
    """

    chosen: str
    margin: float
    over: str


@dataclass(frozen=True)
class DecisionScores:
    """A whole decision. A lead is None where there was no choice; `cold`: most was read again."""

    rows: tuple[ScoredOption, ...]
    roles: tuple[ScoredOption, ...]
    lead: ScoreMargin | None
    role_lead: ScoreMargin | None
    cold: bool


def decision_scores(assigned: Assigned, slot: str = "") -> DecisionScores | None:
    """Return the options that `assigned` weighed, None for a rule. `slot` is the agent's, for a
    head that chooses slots.
    """
    scores = assigned.scores
    if scores is None:
        return None
    rows = _weighed(scores.rows, scores.row_logits, scores.row_probabilities, scores)
    roles = _weighed(ROLES, scores.role_logits, scores.role_probabilities, scores)
    own = (assigned.agent, slot)
    by_head = assigned.override or assigned.role
    return DecisionScores(
        rows,
        roles,
        _lead(rows, own),
        _lead(roles, (by_head,)),
        2 * scores.cached_tokens < scores.tokens,
    )


def _weighed(
    names: Sequence[str], logits: Sequence[float], after: Sequence[float], scores: Scores
) -> tuple[ScoredOption, ...]:
    masked = dict(scores.masked)
    before = _softmax(logits, scores.temperature)
    return tuple(
        ScoredOption(name, logit, first, then, masked.get(name, ""))
        for name, logit, first, then in zip(names, logits, before, after, strict=False)
    )


def _softmax(logits: Sequence[float], temperature: float) -> list[float]:
    if not logits:
        return []
    heat, top = max(temperature, 1e-6), max(logits)
    weights = [math.exp((logit - top) / heat) for logit in logits]
    return [round(weight / math.fsum(weights), 4) for weight in weights]


def _lead(options: Sequence[ScoredOption], own: Collection[str]) -> ScoreMargin | None:
    able = [option for option in options if not option.masked]
    own_options = [option for option in able if option.name in own]
    if not own_options:
        return None
    best = max(own_options, key=lambda option: option.after)
    others = [option for option in able if option is not best]
    if not others:
        return None
    second = max(others, key=lambda option: option.logit)
    return ScoreMargin(best.name, round(best.logit - second.logit, 4), second.name)
