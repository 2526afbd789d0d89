"""What a decision weighed, worked out from its record."""

import pytest

from fugu_cli.session.decision_scores import ScoredOption, ScoreMargin, decision_scores
from fugu_cli.session.events import Assigned, Scores


def decision(**scores: object) -> Assigned:
    about = {
        "rows": ("cheap", "middle", "strong"),
        "row_logits": (1.0, 0.0, 2.0),
        "row_probabilities": (0.7311, 0.2689, 0.0),
        "role_logits": (0.0, 0.0, 0.0),
        "role_probabilities": (0.5, 0.5, 0.0),
        "masked": (("strong", "opted out"), ("verifier", "no Worker answer")),
    }
    found = Scores.model_validate({**about, **scores})
    return Assigned(turn=1, agent="small", role="worker", by="trinity", scores=found)


def test_probabilities_are_given_before_and_after_the_masks() -> None:
    found = decision_scores(decision(), "cheap")
    assert found is not None
    assert found.rows == (
        ScoredOption("cheap", 1.0, 0.2447, 0.7311),
        ScoredOption("middle", 0.0, 0.09, 0.2689),
        ScoredOption("strong", 2.0, 0.6652, 0.0, "opted out"),
    )
    assert [role.before for role in found.roles] == [0.3333] * 3


def test_the_lead_is_over_the_next_one_that_could_act() -> None:
    found = decision_scores(decision(), "cheap")
    assert found is not None
    assert (found.lead, found.role_lead) == (
        ScoreMargin("cheap", 1.0, "middle"),
        ScoreMargin("worker", 0.0, "thinker"),
    )


def test_without_a_choice_there_is_no_lead() -> None:
    out = (("strong", "opted out"), ("middle", "no agent in this slot"))
    found = decision_scores(decision(masked=out, role_logits=(), role_probabilities=()), "cheap")
    assert found is not None
    assert (found.lead, found.role_lead) == (None, None)


def test_an_agent_of_a_pool_checkpoint_is_its_own_row() -> None:
    found = decision_scores(decision(rows=("small", "b", "c"), masked=()))
    assert found is not None
    assert found.lead == ScoreMargin("small", -1.0, "c")


@pytest.mark.parametrize(("cached", "cold"), [(0, True), (2, True), (10, False)])
def test_a_decision_is_cold_when_most_of_it_was_read_anew(cached: int, cold: bool) -> None:
    found = decision_scores(decision(tokens=20, cached_tokens=cached))
    assert found is not None
    assert found.cold is cold


def test_the_temperature_counts_before_the_masks_too() -> None:
    found = decision_scores(decision(temperature=1000.0))
    assert found is not None
    assert [round(row.before, 2) for row in found.rows] == [0.33, 0.33, 0.33]


def test_a_rule_weighs_nothing() -> None:
    assert decision_scores(Assigned(turn=1, agent="small", role="worker", by="cascade")) is None
