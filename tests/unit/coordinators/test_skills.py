"""Success rates and costs: public figures first, the user's own outcomes on top."""

import random

import pytest

from fugu_cli.coordinators.skills import (
    KINDS,
    SkillLine,
    SkillTable,
    VendorMean,
    can_tell_apart,
    canonical_model,
    run_cost,
    shipped_table,
    success_rate,
)
from fugu_cli.session.events import Member, OutcomeCount

TABLE = SkillTable(
    models={"fine-1": (0.8, 0.1, 12, "2026-10-01"), "poor-1": (-0.8, 0.1, 9, "2026-09-01")},
    vendors={"maker": VendorMean(0.3, 0.4, 2.0)},
    kinds={kind: SkillLine(0.0, 1.5, 0.35) for kind in KINDS},
    efforts={"high": 0.0, "low": -0.8},
    price_slope=0.2,
)


def member(name: str, model: str = "fine-1", **more: object) -> Member:
    return Member.model_validate(
        {"name": name, "provider": "openai", "model": model, "slot": "middle", **more}
    )


def counts(kind: str, successes: float, trials: float, agent: str = "a") -> OutcomeCount:
    return OutcomeCount(agent=agent, kind=kind, successes=successes, trials=trials)


def rate(*outcomes: OutcomeCount, kind: str = "bug_fix", model: str = "fine-1") -> float:
    return success_rate(member("a", model), kind, outcomes, TABLE).rate  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "canonical", "effort"),
    [
        ("anthropic/claude-opus-4.5", "claude-opus-4-5", None),
        ("claude-opus-4-5-20251101", "claude-opus-4-5", None),
        ("claude-4-5-opus", "claude-opus-4-5", None),
        ("GPT-5 (high)", "gpt-5", "high"),
        ("models/gemini-3-pro-preview", "gemini-3-pro", None),
        ("Qwen/Qwen3-Coder-480B-Instruct", "qwen3-coder-480b", None),
        ("deepseek-v3.2", "deepseek-3-2", None),
    ],
)
def test_a_model_has_one_name_whatever_its_provider_calls_it(
    name: str, canonical: str, effort: str | None
) -> None:
    assert canonical_model(name) == (canonical, effort)


def test_a_model_with_better_public_figures_has_the_higher_prior() -> None:
    assert rate(model="fine-1") > rate(model="poor-1") + 0.2


def test_a_lower_effort_has_a_lower_prior() -> None:
    low = success_rate(member("a", effort="low"), "tests", (), TABLE)
    assert low.rate < success_rate(member("a", effort="high"), "tests", (), TABLE).rate


def test_an_unknown_model_takes_its_vendors_mean_and_is_less_certain() -> None:
    stranger = success_rate(member("a", "new-9", vendor="maker"), "feature", (), TABLE)
    known = success_rate(member("a"), "feature", (), TABLE)
    assert "maker" in stranger.source
    assert stranger.error > known.error


def test_of_a_vendors_unknown_models_the_dearer_one_is_taken_for_the_better_one() -> None:
    cheap, usual, dear = (
        success_rate(
            member("a", "new-9", vendor="maker", price={"input": cost, "output": cost}),
            "feature",
            (),
            TABLE,
        )
        for cost in (0.2, 2.0, 20.0)
    )
    without_price = success_rate(member("a", "new-9", vendor="maker"), "feature", (), TABLE)
    assert cheap.rate < usual.rate == without_price.rate < dear.rate
    assert "its price" in dear.source and "its price" not in without_price.source


@pytest.mark.parametrize(
    "names",
    [
        ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "qwen2.5-coder-3b", "qwen2.5-coder-7b"),
        ("new-model-3B", "new-model-14B", "new-model-70B-A12B"),
        ("smollm2-135m", "smollm2-1.7b"),
    ],
)
def test_of_a_family_the_larger_model_is_taken_for_the_better_one(names: tuple[str, ...]) -> None:
    skills = [shipped_table().skill_of(member("a", name, vendor="alibaba")) for name in names]
    assert sorted(skill.skill for skill in skills) == [skill.skill for skill in skills]


def test_a_skill_in_the_entry_counts_before_public_figures() -> None:
    named = success_rate(member("a", "poor-1", skill=1.5), "feature", (), TABLE)
    assert named.rate > rate(model="fine-1", kind="feature")
    assert named.source == "your configuration"


def test_a_prior_is_worth_about_six_outcomes() -> None:
    before = rate()
    after = rate(counts("bug_fix", 0, 6))
    assert after == pytest.approx(before / 2, abs=0.1)


def test_many_own_outcomes_overrule_the_prior() -> None:
    assert rate(counts("bug_fix", 95, 100), model="poor-1") > 0.85
    assert rate(counts("bug_fix", 5, 100), model="fine-1") < 0.15


def test_outcomes_of_another_kind_move_a_rate_less_than_those_of_the_kind() -> None:
    before = rate()
    elsewhere, here = rate(counts("data", 0, 10)), rate(counts("bug_fix", 0, 10))
    assert here < elsewhere < before


def test_a_kind_speaks_for_itself_once_it_has_evidence() -> None:
    outcomes = (counts("data", 1, 20), counts("bug_fix", 19, 20))
    assert rate(*outcomes, kind="bug_fix") > 0.75
    assert rate(*outcomes, kind="data") < 0.25


def test_outcomes_without_a_kind_count_for_every_kind() -> None:
    assert all(rate(counts("", 1, 20), kind=kind) < rate(kind=kind) - 0.2 for kind in KINDS)


def test_outcomes_of_one_agent_say_nothing_of_another() -> None:
    assert rate(counts("bug_fix", 0, 50, agent="b")) == rate()


def test_two_agents_are_told_apart_only_beyond_what_is_uncertain() -> None:
    fine, poor = (success_rate(member(m, m), "tests", (), TABLE) for m in ("fine-1", "poor-1"))
    alike = success_rate(member("x", skill=0.85), "tests", (), TABLE)
    assert can_tell_apart(fine, poor)
    assert not can_tell_apart(fine, alike)


def test_the_cost_of_a_run_goes_from_its_price_to_what_was_paid() -> None:
    paid = OutcomeCount(agent="a", kind="tests", turns=9, mean_cost=0.1)
    assert run_cost(member("a"), "tests", (), 1.0) == 1.0
    assert run_cost(member("a"), "tests", (paid,), 1.0) == pytest.approx(0.19)


def test_every_kind_of_the_shipped_table_has_a_difficulty() -> None:
    table = shipped_table()
    assert set(table.kinds) == set(KINDS)
    assert len(table.models) > 100


def test_evidence_finds_the_better_of_two_agents_that_figures_put_the_other_way() -> None:
    """Twenty outcomes an agent are enough in nine of ten repetitions."""
    right = 0
    for seed in range(100):
        chance = random.Random(seed)
        good = sum(chance.random() < 0.85 for _ in range(20))
        bad = sum(chance.random() < 0.35 for _ in range(20))
        right += rate(counts("tests", good, 20), model="poor-1", kind="tests") > rate(
            counts("tests", bad, 20), model="fine-1", kind="tests"
        )
    assert right >= 90
