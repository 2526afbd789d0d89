"""The composed head: skills, costs and the kind of a request become a decision and its reason."""

import asyncio
from collections.abc import Sequence

from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.composed import ComposedHead, KindReading
from fugu_cli.coordinators.skills import KINDS, Kind
from fugu_cli.errors import CoordinatorUnavailable
from fugu_cli.session.events import (
    Assigned,
    BudgetLeft,
    DecisionTimings,
    Event,
    Failed,
    Finished,
    Member,
    Opened,
    OutcomeCount,
    OutcomesKnown,
    Price,
)
from fugu_cli.session.state import SessionState
from tests.facts import asked, checked, ran, replied, write

SETTINGS = CoordinatorSettings(turns=6)


def member(name: str, cost: float, skill: float, vendor: str = "") -> Member:
    return Member(
        name=name,
        provider="openai",
        model=name,
        slot="middle",
        price=Price(input=cost, output=cost),
        skill=skill,
        vendor=vendor or name,
    )


CHEAP, GOOD, BEST = member("cheap", 0.2, -0.6), member("good", 1, 0.3), member("best", 5, 0.9)
POOL = (CHEAP, GOOD, BEST)


class FixedKind:
    """A reader that has one answer, and counts how often it was asked."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.texts: list[str] = []

    async def read(self, text: str) -> KindReading:
        self.texts.append(text)
        shares = tuple(float(kind == self._kind) for kind in KINDS)
        return KindReading(shares, 12, DecisionTimings(forward=20.0))


class NoModel:
    async def read(self, text: str) -> KindReading:
        raise CoordinatorUnavailable("torch is not installed")


def start(pool: Sequence[Member] = POOL, *counts: OutcomeCount) -> list[Event]:
    known = [OutcomesKnown(counts=counts)] if counts else []
    return [Opened(version="1", repo="/repo", pool=tuple(pool)), *known, asked()]


def work(decision: Assigned, *, ok: bool) -> list[Event]:
    """The turn that was decided, with a change and what the tests say of it."""
    turn, call = decision.turn, write(f"w{decision.turn}")
    return [
        decision,
        replied(turn, decision.agent, "", call),
        *ran(turn, call, path="a.py"),
        replied(turn, decision.agent, "Done."),
        *checked(turn, ok=ok),
    ]


def decide(
    events: Sequence[Event],
    pool: Sequence[Member] = POOL,
    settings: CoordinatorSettings = SETTINGS,
    reader: FixedKind | NoModel | None = None,
) -> Assigned:
    decision = asyncio.run(ComposedHead(pool, settings, reader).decide(SessionState(events)))
    assert isinstance(decision, Assigned)
    return decision


def specialists() -> list[OutcomeCount]:
    """Each agent is right in nine of ten requests of its own kind and in three of other kinds."""
    return [
        OutcomeCount(agent=agent, kind=kind, successes=18 if own == kind else 6, trials=20)
        for agent, own in (("a", "tests"), ("b", "data"), ("c", "shell"))
        for kind in ("tests", "data", "shell")
    ]


EQUALS = tuple(member(name, 1, 0.2) for name in ("a", "b", "c"))


def test_own_outcomes_decide_who_is_asked_first() -> None:
    counts = [
        OutcomeCount(agent="good", kind="", successes=2, trials=30),
        OutcomeCount(agent="cheap", kind="", successes=27, trials=30),
    ]
    decision = decide(start(POOL, *counts))
    assert (decision.agent, decision.role, decision.by) == ("cheap", "worker", "trinity")
    assert decision.reason.startswith("solves") and "30 outcomes" in decision.reason


def test_the_kind_of_the_request_decides_between_specialists() -> None:
    for kind, agent in (("tests", "a"), ("data", "b"), ("shell", "c")):
        reader = FixedKind(kind)  # type: ignore[arg-type]
        decision = decide(start(EQUALS, *specialists()), EQUALS, reader=reader)
        assert decision.agent == agent
        assert decision.scores is not None
        assert dict(decision.scores.kinds)[kind] == 1.0


def test_the_model_is_not_asked_where_the_same_agent_is_best_for_every_kind() -> None:
    counts = [OutcomeCount(agent="a", kind="", successes=40, trials=40)]
    reader = FixedKind("tests")
    decision = decide(start(EQUALS, *counts), EQUALS, reader=reader)
    assert decision.agent == "a"
    assert reader.texts == []
    assert decision.scores is not None
    assert decision.scores.kinds == ()


def test_the_kind_is_read_once_a_request() -> None:
    reader = FixedKind("tests")
    events = start(EQUALS, *specialists())
    first = decide(events, EQUALS, reader=reader)
    decide([*events, *work(first, ok=False)], EQUALS, reader=reader)
    assert len(reader.texts) == 1


def test_nobody_waits_for_the_kind_where_the_same_agent_verifies_whatever_it_is() -> None:
    reader = FixedKind("tests")
    events = start(EQUALS, *specialists())
    first = decide(events, EQUALS)
    decision = decide([*events, *work(first, ok=True)], EQUALS, reader=reader)
    assert (decision.role, reader.texts) == ("verifier", [])


def test_without_a_model_it_decides_and_says_that_the_kind_is_unknown() -> None:
    for reader in (None, NoModel()):
        decision = decide(start(EQUALS, *specialists()), EQUALS, reader=reader)
        assert decision.scores is not None
        assert decision.scores.kinds_from == "kind unknown: no model"


def test_finished_work_is_verified_by_an_agent_that_wrote_none_of_it() -> None:
    events = start()
    first = decide(events)
    events += work(first, ok=False)
    second = decide(events)
    events += work(second, ok=True)
    verifier = decide(events)
    assert verifier.role == "verifier"
    assert verifier.agent not in {first.agent, second.agent}


def test_a_verifier_that_wrote_a_part_is_taken_where_nobody_else_is_left() -> None:
    events = start((CHEAP,))
    events += work(decide(events, (CHEAP,)), ok=True)
    verifier = decide(events, (CHEAP,))
    why = "no other agent is left: it verifies its own work"
    assert (verifier.agent, verifier.role, verifier.reason) == ("cheap", "verifier", why)


def test_another_agent_thinks_once_the_best_have_worked_in_vain() -> None:
    events = start(EQUALS)
    roles = []
    for _ in range(4):
        decision = decide(events, EQUALS)
        roles.append(decision.role)
        if decision.role == "thinker":
            break
        events += work(decision, ok=False)
    assert roles[-1] == "thinker"


def test_without_roles_the_agent_that_has_the_request_keeps_it() -> None:
    settings = CoordinatorSettings(turns=6, roles=False)
    events = start()
    first = decide(events, settings=settings)
    second = decide([*events, *work(first, ok=False)], settings=settings)
    assert (second.agent, second.role) == (first.agent, "worker")


def test_of_agents_that_nobody_can_tell_apart_the_least_known_goes_first() -> None:
    counts = [
        OutcomeCount(agent="a", kind="", successes=3, trials=5),
        OutcomeCount(agent="b", kind="", successes=3, trials=5),
    ]
    assert decide(start(EQUALS, *counts), EQUALS).agent == "c"


def test_a_dearer_agent_is_not_preferred_for_a_difference_that_cannot_be_seen() -> None:
    pool = (member("plain", 1, 0.50), member("dear", 1.2, 0.51))
    assert decide(start(pool), pool).agent == "plain"


def test_a_dearer_agent_that_is_more_likely_the_better_one_is_preferred_for_more_than_its_cost() -> (
    None
):
    pool = (member("plain", 1, 0.30), member("better", 1.2, 0.55), member("dearest", 9, -0.9))
    assert decide(start(pool), pool).agent == "better"


def test_an_equal_agent_is_tried_until_it_has_half_of_the_outcomes() -> None:
    lucky = OutcomeCount(agent="a", kind="", successes=2, trials=2, turns=2, mean_cost=0.001)
    decision = decide(start(EQUALS, lucky), EQUALS)
    assert decision.agent != "a"
    assert decision.reason.startswith("should solve"), "it has no outcome yet"
    assert "has done less than a" in decision.reason
    half_as_known = OutcomeCount(agent="b", kind="", successes=1, trials=1)
    others = OutcomeCount(agent="c", kind="", successes=1, trials=3)
    assert decide(start(EQUALS, lucky, half_as_known, others), EQUALS).agent == "b"
    nearly = OutcomeCount(agent="b", kind="", successes=2, trials=3)
    known = lucky.model_copy(update={"successes": 4, "trials": 4})
    assert decide(start(EQUALS, known, nearly, others), EQUALS).agent == "a"
    proven = OutcomeCount(agent="a", kind="", successes=38, trials=40)
    assert decide(start(EQUALS, proven), EQUALS).agent == "a"


def test_an_agent_whose_run_costs_more_than_the_budget_leaves_is_not_planned_with() -> None:
    pool = (member("weak", 0.2, 0.3), member("good", 4, 0.9))
    assert decide(start(pool), pool).agent == "good"
    enough, too_little = BudgetLeft(dollars=0.33), BudgetLeft(dollars=0.2)
    assert decide([*start(pool), enough], pool).agent == "good"
    decision = decide([*start(pool), enough, too_little], pool)
    assert decision.agent == "weak"
    assert decision.scores is not None
    assert [estimate.value is None for estimate in decision.scores.estimates] == [False, True]


def test_an_agent_that_may_act_is_asked_though_its_usual_run_costs_more_than_is_left() -> None:
    assert decide([*start(), BudgetLeft(dollars=0.001)]).agent == "cheap"


def test_an_agent_that_failed_or_gave_up_is_left_out_with_the_reason() -> None:
    events = start()
    first = decide(events)
    gone = Failed(turn=1, what=first.agent, kind="network", message="reset")
    second = decide([*events, first, gone])
    assert second.agent != first.agent
    assert second.scores is not None
    assert dict(second.scores.masked)[first.agent] == "network: reset"
    unable = [*events, first, replied(1, first.agent, "UNABLE: I cannot do this.")]
    assert decide(unable).agent != first.agent


def test_an_opted_out_agent_is_never_asked() -> None:
    settings = CoordinatorSettings(turns=6, opt_out=frozenset({"best", "good"}))
    decision = decide(start(), settings=settings)
    assert (decision.agent, decision.reason) == ("cheap", "only choice")


def test_every_agents_numbers_stand_in_the_decision() -> None:
    decision = decide(start(POOL, OutcomeCount(agent="good", kind="", successes=3, trials=4)))
    assert decision.scores is not None
    estimates = {estimate.agent: estimate for estimate in decision.scores.estimates}
    assert set(estimates) == {"cheap", "good", "best"}
    assert estimates["good"].own_outcomes == 4
    assert 0 < estimates["good"].success_rate < 1
    assert (estimates["best"].run_cost or 0) > (estimates["good"].run_cost or 0) > 0


def test_deciding_again_on_the_same_log_gives_the_same() -> None:
    events = start(EQUALS, *specialists())
    decisions = [decide(events, EQUALS) for _ in range(3)]
    assert len({(one.agent, one.role, one.reason) for one in decisions}) == 1


def test_sampled_decisions_repeat_with_their_seed() -> None:
    settings = CoordinatorSettings(turns=6, sample=True, seed=4)
    events = start(EQUALS)
    assert len({decide(events, EQUALS, settings).agent for _ in range(5)}) == 1
    agents = {
        decide(events, EQUALS, CoordinatorSettings(turns=6, sample=True, seed=seed)).agent
        for seed in range(20)
    }
    assert len(agents) > 1


def test_the_request_ends_where_its_turns_are_used_up() -> None:
    settings = CoordinatorSettings(turns=1)
    events = start()
    events += work(decide(events, settings=settings), ok=False)
    end = asyncio.run(ComposedHead(POOL, settings).decide(SessionState(events)))
    assert isinstance(end, Finished)
    assert end.reason == "turn_limit"
