"""Recorded decisions beside other ones, and a request beside itself carried out again."""

from rich.text import Text

from fugu_cli.engine.decision_replay import RecordedDecision, ReplayedDecision
from fugu_cli.session.events import Assigned, Event, Finished, Recorded, Scores, Undone
from fugu_cli.ui.replay import ReplayReport, RerunPair, replay_lines, replay_object, rerun_side
from fugu_cli.ui.replay import rerun_lines as side_lines
from tests.facts import POOL, asked, assigned, checked, opened, replied

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
    assert plain(replay_lines(FACTS, report()))[3:] == [
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
    made = plain(replay_lines([opened(), asked()], ReplayReport("id", "trinity", "cascade", ())))
    assert made[-1] == "there is no decision to compare"


def request(*more: Event) -> list[Recorded]:
    events = [
        opened(), asked("fix it"), *checked(0, ok=False), assigned(1, "small"), replied(1, "small", "Done."),
        *checked(1, ok=True), Finished(reason="accepted"), *more,
    ]  # fmt: skip
    return [Recorded(seq=seq, at=10.0 * seq, event=event) for seq, event in enumerate(events)]


def test_a_side_counts_its_request_alone_until_its_end() -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-old\n+new\n+more\n"
    made = rerun_side(
        "id", request(Undone(snapshot="t"), asked("more"), assigned(1, "coder")), 1, patch
    )
    assert (made.reason, made.taken, made.calls, made.seconds, made.added, made.removed) == (
        "accepted", ("small worker",), 1, 70.0, 2, 1,
    )  # fmt: skip
    assert made.coordinator == "trinity (decided: cascade)"
    cut = rerun_side("id", request(asked("more"), assigned(1, "coder")), 2, "")
    assert (cut.reason, cut.accepted, cut.taken, cut.calls) == ("", False, ("coder worker",), 0)
    rows = [
        line.split("  ")[0] for line in plain(side_lines([RerunPair(1, "fix it", made, cut, "/p")]))
    ]
    assert rows[-1] == "diff: /p" and "ended" in rows and rows[1] == "request 1: fix it"
    assert "ended        accepted" in "\n".join(
        plain(side_lines([RerunPair(1, "fix it", made, cut, "/p")]))
    )
