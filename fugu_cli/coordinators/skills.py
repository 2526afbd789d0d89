"""Success rates and costs of each agent for each kind of request.

Two sources are joined. The prior is public: one skill per model and one line per kind, `logit p =
intercept[kind] + slope[kind] * skill + effort`, from `data/skills.json`. It counts as at most
`PRIOR_OUTCOMES` outcomes, fewer if it is uncertain. The user's own outcomes come on top. They are
partly pooled: an agent's outcomes in other kinds move its rate in a kind, and outcomes of the kind
itself count more, so that a kind speaks once it has evidence.

Nothing here reads a log, or a file besides the shipped table: `OutcomeCount`s are passed in.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from fugu_cli.coordinators.action_space import blended_price
from fugu_cli.session.events import Member, OutcomeCount

Kind = Literal[
    "bug_fix",
    "feature",
    "refactoring",
    "tests",
    "question",
    "shell",
    "data",
    "algorithms",
    "documentation",
    "interface",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of request, in the order of the rows of the kind head."""
KIND_WORDS: Mapping[Kind, str] = {
    "bug_fix": "bug fixes",
    "feature": "features",
    "refactoring": "refactorings",
    "tests": "tests to write",
    "question": "questions about code",
    "shell": "shell and infrastructure work",
    "data": "data and SQL work",
    "algorithms": "algorithms and mathematics",
    "documentation": "documentation",
    "interface": "user interfaces",
}

PRIOR_OUTCOMES = 6.0
"""The weight of a public figure, in own outcomes, if it is as certain as figures get."""
KIND_PRIOR_OUTCOMES = 4.0
"""Outcomes of a kind that count as much as everything known from other kinds."""
OTHER_KIND_SHARE = 0.5
"""The weight of an outcome for another kind, relative to its own."""
BOARD_ERROR = 0.35
"""Logits by which a rate in another harness and on other tasks departs from a board's."""
UNKNOWN_SKILL, UNKNOWN_SKILL_ERROR = 0.0, 0.6
"""Skill of a model without figures whose vendor has none either."""
UNKNOWN_EFFORT = -0.3
"""Logits for an effort that is not told."""
HARNESS_ERROR = 0.18
"""Logits by which another harness moves one model beside another: 5.5 points for a pair."""

DATE = re.compile(
    r"[-_ ]?(20\d{2}[-_]?\d{2}[-_]?\d{2}|\(\d{4}-\d{2}-\d{2}\))|-(\d{4})$(?<!-2\d{3})"
)
EFFORT = re.compile(
    r"[-_ ]*\(?(?:no[- ]?think(?:ing)?|(?:\d+k[- ]?)?thinking(?:[- ]?\d+k)?|"
    r"(?:max|xhigh|high|medium|low|minimal)(?:[- ](?:effort|\d+k))?)(?: mode)?\)?$",
    re.IGNORECASE,
)
REGION_AND_VENDOR = re.compile(r"^(?:global|us|eu|apac)\.[a-z]+\.")
"""The prefix of a model's name at Amazon Bedrock."""
VERSION_POINT = re.compile(r"(?<=\d)p(?=\d)")
"""Fireworks writes `5p2` for 5.2."""
MODEL_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([bm])(?:-a\d+b)?(?![a-z0-9])", re.IGNORECASE)
"""The parameters that a name tells, in billions or millions: `14b`, `135M`, `30B-A3B`."""
RELEASE_WORDS = re.compile(r"-(?:preview|instruct|base|chat|latest|exp|it|fp8|api)(?=-|$)")


@dataclass(frozen=True)
class SkillLine:
    """The success rate of a kind of request: logit p = intercept + slope * skill, uncertain by
    `error` logits.
    """

    intercept: float
    slope: float
    error: float


@dataclass(frozen=True)
class ModelSkill:
    """A model's skill with its error, and its source in words."""

    skill: float
    error: float
    source: str


@dataclass(frozen=True)
class SuccessRate:
    """A success rate (0..1) and the number of outcomes that it is worth, the prior's included.
    `own` is the number of the user's own among them (each counts at most 1); `source` names the
    prior. `error` is the uncertainty of a comparison with another agent on the same requests, whose
    difficulty is the same for both. `kind_error` is that for requests of this kind alone.
    """

    rate: float
    weight: float
    own: float
    source: str
    error: float
    kind_error: float = 0.0


@dataclass(frozen=True)
class VendorMean:
    """The mean skill of a vendor's models of the newest year, its error for one of them, and the
    geometric mean of their prices (USD per million tokens, blended).
    """

    skill: float
    error: float
    price: float


@dataclass(frozen=True)
class FamilyMean:
    """The mean skill of models that differ in size alone, its error for another one of them, and
    the geometric mean of their sizes (billions of parameters).
    """

    skill: float
    error: float
    size: float


@dataclass(frozen=True)
class SkillTable:
    """The public skills of models and the lines that turn them into success rates."""

    models: Mapping[str, tuple[float, float, int, str]]
    vendors: Mapping[str, VendorMean]
    kinds: Mapping[str, SkillLine]
    efforts: Mapping[str, float]
    price_slope: float = 0.0
    """By how much the skill rises where a vendor asks e times as much."""
    families: Mapping[str, FamilyMean] = field(default_factory=dict)
    """By `sized_family`; "" for models of this year whose family has no figures."""
    size_slope: float = 0.0
    """By how much the skill rises where a model of a family is e times as large."""

    def skill_of(self, member: Member) -> ModelSkill:
        """Return the skill that the agent's entry gives, else the skill of its model, else an
        estimate by its size, its vendor, or all models.
        """
        if member.skill is not None:
            return ModelSkill(member.skill, BOARD_ERROR / 2, "your configuration")
        model, _ = canonical_model(member.model)
        if figures := self.models.get(model):
            skill, error, count, date = figures
            return ModelSkill(skill, error, f"{count} public figures, the newest of {date}")
        if (by_size := self._skill_by_size(member.model)) is not None:
            return by_size
        if mean := self.vendors.get(member.vendor):
            source = f"the mean of {member.vendor}'s models of this year"
            price = blended_price(member.price)
            if not price:
                return ModelSkill(mean.skill, mean.error, source)
            skill = mean.skill + self.price_slope * math.log(price / mean.price)
            return ModelSkill(skill, mean.error, f"{source}, and its price")
        return ModelSkill(UNKNOWN_SKILL, UNKNOWN_SKILL_ERROR, "no figure of this model or vendor")

    def _skill_by_size(self, model: str) -> ModelSkill | None:
        """Estimate a model's skill from its size, by the models of its family, else by models of
        any family. None if its name gives no size.
        """
        sized = sized_family(model)
        if sized is None:
            return None
        family, size = sized
        source = "its family's models, and its size"
        mean = self.families.get(family)
        if mean is None:
            source = "models of its size"
            mean = self.families.get("")
        if mean is None:
            return None
        skill = mean.skill + self.size_slope * math.log(size / mean.size)
        return ModelSkill(skill, mean.error, source)

    def prior(self, member: Member, request_kind: Kind) -> SuccessRate:
        """Return the rate that public figures give, and how many outcomes it is worth."""
        skill, line = self.skill_of(member), self.kinds[request_kind]
        _, named_effort = canonical_model(member.model)
        effort = self.efforts.get(member.effort or named_effort or "", UNKNOWN_EFFORT)
        rate = _sigmoid(line.intercept + line.slope * skill.skill + effort)
        error = math.hypot(line.slope * skill.error, BOARD_ERROR, line.error)
        weight = 1 / (rate * (1 - rate) * error**2) - 1
        beside_others = math.hypot(line.slope * skill.error, HARNESS_ERROR) * rate * (1 - rate)
        return SuccessRate(
            rate, min(max(weight, 1.0), PRIOR_OUTCOMES), 0.0, skill.source, beside_others
        )


@functools.cache
def shipped_table() -> SkillTable:
    """Read the table beside this module."""
    return read_table(Path(__file__).parent / "data" / "skills.json")


def read_table(path: Path) -> SkillTable:
    """Read a table that `tests/benchmarks/skills_fit.py` has written."""
    return table_from(json.loads(path.read_text(encoding="utf-8")))


def table_from(data: Mapping[str, Any]) -> SkillTable:
    """Return a table from its JSON. A table that was fitted before sizes counted has no families."""
    return SkillTable(
        models={name: tuple(row) for name, row in data["models"].items()},
        vendors={name: VendorMean(*row) for name, row in data["vendors"].items()},
        kinds={name: SkillLine(*row) for name, row in data["kinds"].items()},
        efforts=data["efforts"],
        price_slope=data["price_slope"],
        families={name: FamilyMean(*row) for name, row in data.get("families", {}).items()},
        size_slope=data.get("size_slope", 0.0),
    )


def success_rate(
    member: Member,
    request_kind: Kind,
    outcomes: Sequence[OutcomeCount],
    table: SkillTable | None = None,
) -> SuccessRate:
    """Return the posterior rate of an agent in a kind, from its prior and its own outcomes."""
    table = table or shipped_table()
    own = [count for count in outcomes if count.agent == member.name]
    of_kind = [count for count in own if count.kind == request_kind]
    elsewhere = [count for count in own if count.kind != request_kind and count.trials > 0]
    prior = table.prior(member, request_kind)
    rate, weight = prior.rate, prior.weight
    if elsewhere:
        successes = trials = expected = 0.0
        for count in elsewhere:
            share = OTHER_KIND_SHARE if count.kind else 1.0
            successes += share * count.successes
            trials += share * count.trials
            expected += share * count.trials * _expected_rate(table, member, count.kind, prior)
        mean = expected / trials
        pooled = (PRIOR_OUTCOMES * mean + successes) / (PRIOR_OUTCOMES + trials)
        rate = _sigmoid(_logit(rate) + _logit(pooled) - _logit(mean))
        weight = min(weight, KIND_PRIOR_OUTCOMES)
    successes = sum(count.successes for count in of_kind)
    trials = sum(count.trials for count in of_kind)
    posterior = (weight * rate + successes) / (weight + trials)
    spread = max(posterior * (1 - posterior), 0.01)
    own_trials = sum(count.trials for count in own)
    # the error of a mean of the prior and own outcomes, weighted as the rate weights them
    error = math.hypot(weight * prior.error, math.sqrt(own_trials * spread)) / (weight + own_trials)
    kind_error = error
    if elsewhere:
        kind_error = max(error, math.sqrt(spread / (weight + trials + 1)))
    return SuccessRate(posterior, weight + trials, own_trials, prior.source, error, kind_error)


def _expected_rate(
    table: SkillTable, member: Member, outcome_kind: str, prior: SuccessRate
) -> float:
    """Return the prior's rate in the kind of an outcome, `prior` where its kind is not known."""
    rates = (table.prior(member, name).rate for name in KINDS if name == outcome_kind)
    return next(rates, prior.rate)


def run_cost(
    member: Member, request_kind: Kind | None, outcomes: Sequence[OutcomeCount], usual: float
) -> float:
    """Return the expected cost of one turn (USD): the mean of the agent's own turns of the kind,
    else of all its turns, drawn towards `usual`, the cost that its price suggests.
    """
    own = [count for count in outcomes if count.agent == member.name and count.turns > 0]
    chosen = [count for count in own if count.kind == request_kind] or own
    turns = sum(count.turns for count in chosen)
    spent = sum(count.turns * count.mean_cost for count in chosen)
    return (usual + spent) / (1 + turns)


def can_tell_apart(first: SuccessRate, second: SuccessRate, errors: float = 1.0) -> bool:
    """Return whether two rates differ by more than so many standard errors of their difference."""
    return abs(first.rate - second.rate) > errors * math.hypot(first.error, second.error)


def can_tell_apart_in_kind(first: SuccessRate, second: SuccessRate) -> bool:
    """Return whether two rates differ by more than the uncertainty of the comparison for this kind
    of request.
    """
    return abs(first.rate - second.rate) > math.hypot(first.kind_error, second.kind_error)


def canonical_model(name: str) -> tuple[str, str | None]:
    """Return a model's name without vendor, date and effort, and the effort that the name held."""
    text = name.lower().rsplit("/", 1)[-1].strip().replace(" ", "-").replace("_", "-")
    effort = None
    for _ in range(3):
        match = EFFORT.search(text)
        if match and match.start() > 0:
            word = match.group().lower()
            if re.search(r"no-?think", word):
                effort = "none"
            elif "thinking" in word:
                effort = effort or "thinking"
            else:
                named = re.search(r"max|xhigh|high|medium|low|minimal", word)
                effort = named.group() if named else effort
            text = text[: match.start()]
        text = DATE.sub("", text)
    text = REGION_AND_VENDOR.sub("", text)
    text = VERSION_POINT.sub("-", text.replace(".", "-"))
    text = re.sub(r"-\(.*\)$", "", text)
    text = RELEASE_WORDS.sub("", text)
    text = re.sub(r"^claude-(\d+(?:-\d)?)-(opus|sonnet|haiku)", r"claude-\2-\1", text)
    text = re.sub(r"-v(?=\d)", "-", text)
    text = re.sub(r"^(qwen)-?(\d)", r"\1\2", text)
    return text.strip("-"), effort


def sized_family(name: str) -> tuple[str, float] | None:
    """Return a model's family, which is its name without the size, and its size in billions of
    parameters; None if the name gives no size.
    """
    text = name.rsplit("/", 1)[-1].replace(" ", "-").replace("_", "-")
    match = MODEL_SIZE.search(text)
    if match is None:
        return None
    size = float(match.group(1)) / (1000 if match.group(2).lower() == "m" else 1)
    family = canonical_model(text[: match.start()] + text[match.end() :])[0]
    return (re.sub("-+", "-", family), size) if size else None


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def _logit(rate: float) -> float:
    bounded = min(max(rate, 0.005), 0.995)
    return math.log(bounded / (1 - bounded))
