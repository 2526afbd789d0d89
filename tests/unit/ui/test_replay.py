"""Recorded decisions beside other ones, and a request beside itself carried out again."""

from rich.text import Text

from fugu_cli.engine.decision_replay import RecordedDecision, ReplayedDecision
from fugu_cli.session.events import Assigned, Event, Finished, Scores
from fugu_cli.session.state import SessionState
from fugu_cli.ui.replay import ReplayReport, replay_lines, replay_object
from tests.facts import POOL, asked, assigned, opened, replied

ROWS = ("cheap", "middle", "strong")
FACTS: list[Event] = [
    opened(),
    asked("fix it"),
    assigned(1, "coder"),
    replied(1, "coder", "Done."),
    assigned(2, "small"),
]


def scored(
    agent: str, logits: tuple[float, float, float], chances: tuple[float, float, float]
) -> Assigned:
    scores = Scores(rows=ROWS, row_logits=logits, row_probabilities=chances)
    return Assigned(turn=1, agent=agent, role="worker", by="trinity", scores=scores)


def report() -> ReplayReport:
    then = scored("coder", (0.0, 1.0, 0.5), (0.2, 0.5, 0.3))
    now = scored("strong", (0.0, 0.5, 2.0), (0.1, 0.2, 0.7))
    compared = (
        ReplayedDecision(RecordedDecision(1, 2, then), now, POOL),
        ReplayedDecision(
            RecordedDecision(1, 4, assigned(2, "small")), Finished(reason="answered"), POOL
        ),
    )
    return ReplayReport("id", "trinity", "trinity (new)", compared, steps=2)


def plain(made: list[Text]) -> list[str]:
    return [line.plain for line in made]


def test_probabilities_margins_and_what_the_recorded_agent_was_given_stand_side_by_side() -> None:
    assert plain(replay_lines(SessionState(FACTS), report()))[3:] == [
        "request 1: fix it",
        "turn  recorded      p    margin  again           p    margin  of recorded  same",
        "1     coder worker  .50  +0.500  strong worker   .70  +1.500  .20          role",
        "2     small worker               ends: answered                            no",
        "",
        "left out: 2 turns were steps of a workflow, which nobody decides one by one",
        "the same: 0 of 2 decisions; the agent in 0 of 1, the role in 1",
    ]


def test_programs_get_the_same() -> None:
    found = replay_object(FACTS, report())
    assert found["agreement"] == {
        "decisions": 2,
        "same": 0,
        "with_agents": 1,
        "same_agent": 0,
        "same_role": 1,
    }
    first, second = found["decisions"]  # type: ignore[misc]
    again = first["again"]
    assert (again["agent"], again["slot"], again["probability"], again["margin"]) == (
        "strong",
        "strong",
        0.7,
        1.5,
    )
    assert (second["again"], second["same_agent"]) == (
        {"next": "finished", "reason": "answered"},
        None,
    )


def test_a_session_without_decisions_says_so() -> None:
    made = plain(
        replay_lines(
            SessionState([opened(), asked()]), ReplayReport("id", "trinity", "cascade", ())
        )
    )
    assert made[-1] == "there is no decision to compare"
