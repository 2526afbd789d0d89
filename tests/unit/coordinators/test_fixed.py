"""Fixed rules: who comes next, and that they say why."""

import asyncio

import pytest

from fugu_cli.coordinators import Coordinator, CoordinatorSettings
from fugu_cli.coordinators.rules import Cascade, Random, Single
from fugu_cli.session.events import Assigned, Event, Failed, Finished, Member, Price, Role
from fugu_cli.session.state import SessionState
from tests.facts import POOL, asked, assigned, opened, ran, replied, rolled_back, write
from tests.unit.coordinators.test_stopping import BROKEN, said, verified, worked


def decide(coordinator: Coordinator, events: list[Event]) -> Assigned:
    found = asyncio.run(coordinator.decide(SessionState(events)))
    assert isinstance(found, Assigned), found
    return found


def cascade(events: list[Event], **settings: object) -> tuple[str, Role]:
    found = decide(Cascade(POOL, CoordinatorSettings(**settings)), events)  # type: ignore[arg-type]
    return found.agent, found.role


def failed(turn: int, agent: str) -> list[Event]:
    return [assigned(turn, agent), Failed(turn=turn, what=agent, kind="network", message="reset")]


def test_the_cascade_begins_cheap() -> None:
    found = decide(Cascade(POOL, CoordinatorSettings()), BROKEN)
    assert found == Assigned(
        turn=1, agent="small", role="worker", by="cascade", reason="cheapest first", slot="cheap"
    )


def test_the_cascade_escalates_while_the_tests_fail_and_stays_at_the_top() -> None:
    one = [*BROKEN, *worked(1, ok=False)]
    assert cascade(one) == ("coder", "worker")
    two = [*one, assigned(2, "coder"), replied(2, "coder", "I see nothing wrong.")]
    assert cascade(two) == ("strong", "worker")
    three = [*two, assigned(3, "strong"), replied(3, "strong", "Nor do I.")]
    assert cascade(three) == ("strong", "worker")


def test_draws_that_were_all_rolled_back_escalate() -> None:
    call = write("c1")
    draw = [replied(1, "coder", "", call), *ran(1, call, path="a.py"), rolled_back(1)]
    assert cascade([*BROKEN, assigned(1, "coder"), *draw]) == ("strong", "worker")


def test_when_the_tests_pass_the_cheapest_other_agent_verifies() -> None:
    assert cascade([*BROKEN, *worked(1, ok=True)]) == ("coder", "verifier")
    by_coder = [assigned(1, "coder"), *worked(1, ok=True)[1:]]
    assert cascade([*BROKEN, *by_coder]) == ("small", "verifier")


def test_where_no_tests_decide_a_strong_agent_verifies() -> None:
    call = write("c1")
    done = [assigned(1, "small"), replied(1, "small", "", call), *ran(1, call, path="a.py")]
    start = [opened(), asked("add a flag", judged=False, command=None)]
    assert cascade([*start, *done, replied(1, "small", "Done.")]) == ("strong", "verifier")
    assert cascade([*start, *done]) == ("coder", "worker"), "it came to no last word"


@pytest.mark.parametrize("role", ["verifier", "worker"])
def test_work_is_verified_whatever_a_thinker_suggests_after_it(role: Role) -> None:
    thought = f"Look again.\n<suggested_role>{role}</suggested_role>"
    asks = [assigned(2, "strong", "thinker"), replied(2, "strong", thought)]
    assert cascade([*BROKEN, *worked(1, ok=True), *asks]) == ("coder", "verifier")


def test_a_revision_goes_to_the_next_slot() -> None:
    assert cascade([*BROKEN, *worked(1, ok=True), *verified(2, "REVISE: slow")]) == (
        "coder",
        "worker",
    )


def agent(name: str, vendor: str, slot: str, cost: float) -> Member:
    """At one price for all tokens."""
    price = Price(input=cost, output=cost)
    return Member(name=name, provider="openai", model=name, slot=slot, vendor=vendor, price=price)  # type: ignore[arg-type]


def next_of(
    pool: tuple[Member, ...], *worked: Event, start: list[Event] = BROKEN
) -> tuple[str, Role]:
    """What the cascade decides with this pool after these facts."""
    events: list[Event] = [start[0].model_copy(update={"pool": pool}), *start[1:], *worked]
    found = decide(Cascade(pool, CoordinatorSettings()), events)
    return found.agent, found.role


def work(turn: int, name: str, *, ok: bool = False) -> list[Event]:
    return [
        assigned(turn, name),
        replied(turn, name),
        *worked(turn, ok=ok)[1:],
        replied(turn, name, "Done."),
    ]


A1, A2, A3 = (
    agent("a1", "a", "cheap", 1),
    agent("a2", "a", "middle", 3),
    agent("a3", "a", "strong", 9),
)
B1, B2, B3 = (
    agent("b1", "b", "cheap", 2),
    agent("b2", "b", "middle", 4),
    agent("b3", "b", "strong", 40),
)


@pytest.mark.parametrize(
    ("pool", "tried", "follows"),
    [
        ((A1, A2, A3, B1, B2, B3), ["a1"], "b2"),
        ((A1, A2, A3, B1, B2, B3), ["a1", "b2"], "a3"),
        ((A1, A2, A3), ["a1"], "a2"),
        ((A2, B2, A3), ["a2"], "b2"),
        ((A1, B1, A3), ["a1"], "a3"),
        ((A1, A2, B3), ["a1"], "a2"),
        ((A2, A3, B1), ["a2"], "a3"),
        ((A1, A3, B3), ["a1", "a3"], "b3"),
        ((A1, A3, B3), ["a1", "b3"], "a3"),
        ((A1, A3, B3), ["a1", "a3", "b3"], "b3"),
    ],
    ids=[
        "the next slot has another vendor",
        "so has the one after that",
        "there is no other vendor",
        "the next slot has none, and another vendor costs about the same",
        "the next slot is far dearer, so what its vendor's cheap one failed at says little",
        "the other vendor costs ten times as much",
        "the other vendor is weaker than what failed",
        "the strongest failed and another one is as strong",
        "the dearest failed and another one is as strong",
        "all of the top failed: the vendor that has worked less",
    ],
)
def test_after_a_failure_another_vendor_of_about_the_same_price_goes_on(
    pool: tuple[Member, ...], tried: list[str], follows: str
) -> None:
    facts = [fact for turn, name in enumerate(tried, start=1) for fact in work(turn, name)]
    assert next_of(pool, *facts) == (follows, "worker")


def test_where_the_strongest_worked_in_vain_another_one_thinks_and_nobody_weaker_works() -> None:
    stuck = [*work(1, "a1"), *work(2, "a3")]
    assert next_of((A1, A3), *stuck) == ("a1", "thinker")
    assert next_of((A1, A2, A3, B2), *stuck) == ("b2", "thinker"), "of another vendor"
    thought = [*stuck, assigned(3, "a1", "thinker"), replied(3, "a1", "Read b.py first.")]
    assert next_of((A1, A3), *thought) == ("a3", "worker")
    assert next_of((A3,), *work(1, "a3")) == ("a3", "worker"), "there is nobody else"
    short = CoordinatorSettings(turns=4)
    found = decide(Cascade((A1, A3), short), [*BROKEN, *stuck])
    assert (found.agent, found.role) == ("a3", "worker"), "no turn would be left for a Verifier"


def test_of_two_efforts_of_one_model_neither_is_a_remedy_for_the_other() -> None:
    low, high = (
        agent(name, "a", "strong", 9).model_copy(update={"model": "m"}) for name in ("low", "high")
    )
    other = agent("other", "a", "strong", 10)
    assert next_of((low, high, other), *work(1, "low")) == ("other", "worker")


def test_one_that_is_ten_times_cheaper_than_the_next_tries_twice_where_a_check_fails() -> None:
    pool = (agent("nano", "a", "cheap", 0.5), A3)
    assert next_of(pool, *work(1, "nano")) == ("nano", "worker")
    assert next_of(pool, *work(1, "nano"), *work(2, "nano")) == ("a3", "worker")
    assert next_of(pool, *work(1, "nano", ok=True), *verified(2, "REVISE")) == ("a3", "worker"), (
        "no check fails"
    )
    cut = [*work(1, "nano")[:-1], replied(1, "nano", "", write("more"))]
    assert next_of(pool, *cut) == ("a3", "worker"), "it came to no last word"
    unknown = pool[0].model_copy(update={"price": None})
    assert next_of((unknown, A3), *work(1, "nano")) == ("a3", "worker"), "nobody knows its price"


def test_an_agent_that_fails_in_the_middle_of_its_work_has_been_tried() -> None:
    broke = [*work(1, "a1")[:-1], Failed(turn=1, what="a1", kind="timeout", message="no reply")]
    assert next_of((A1, A2, B1, B2), *broke) == ("b2", "worker")
    silent = [assigned(1, "a1"), Failed(turn=1, what="a1", kind="limited", message="429")]
    assert next_of((A1, A2, B1, B2), *silent) == ("b1", "worker"), "nothing was tried"


def test_another_vendor_verifies_where_it_costs_about_the_same() -> None:
    proven = work(1, "a1", ok=True)
    assert next_of((A1, A2, B2, B3), *proven) == ("a2", "verifier"), "tests prove a small change"
    assert next_of((A1, A2, B3), *work(1, "a1", ok=True)) == ("a2", "verifier"), "ten times as dear"
    free: list[Event] = [opened(), asked("add a flag", judged=False, command=None)]
    written = [
        assigned(1, "a2"),
        replied(1, "a2", "", write("w")),
        *ran(1, write("w"), path="a.py"),
    ]
    facts = [*written, replied(1, "a2", "Done.")]
    assert next_of((A2, A3, B2), *facts, start=free) == ("b2", "verifier")
    assert next_of((A2, A3, B1), *facts, start=free) == ("b1", "verifier"), "4.5 times cheaper"
    assert next_of((A2, A3), *facts, start=free) == ("a3", "verifier")


def test_an_agent_that_failed_is_passed_over() -> None:
    assert cascade([*BROKEN, *failed(1, "small")]) == ("coder", "worker")


def test_an_agent_that_opted_out_is_never_taken() -> None:
    out = frozenset({"small", "coder"})
    assert cascade(BROKEN, opt_out=out) == ("strong", "worker")


def test_an_agent_verifies_its_own_work_only_when_alone() -> None:
    out = frozenset({"coder", "strong"})
    assert cascade([*BROKEN, *worked(1, ok=True)], opt_out=out) == ("small", "verifier")


def test_the_cascade_ends_when_nobody_is_left() -> None:
    everyone = CoordinatorSettings(opt_out=frozenset(member.name for member in POOL))
    found = asyncio.run(Cascade(POOL, everyone).decide(SessionState(BROKEN)))
    assert found == Finished(
        reason="failed",
        message="all models are unavailable (coder: opted out; small: opted out; strong: opted out). "
        "`fugu pool check` tries each one.",
    )


def test_every_rule_ends_where_the_request_does() -> None:
    events = [*BROKEN, *worked(1, ok=True), *verified(2, "ACCEPT")]
    for rule in (
        Cascade(POOL, CoordinatorSettings()),
        Single("coder", POOL, CoordinatorSettings()),
        Random(POOL, CoordinatorSettings()),
    ):
        found = asyncio.run(rule.decide(SessionState(events)))
        assert isinstance(found, Finished)
        assert found.reason == "accepted"


def test_a_single_agent_takes_every_role() -> None:
    single = Single("coder", POOL, CoordinatorSettings())
    assert decide(single, BROKEN) == Assigned(
        turn=1, agent="coder", role="worker", by="single", reason="pinned to coder"
    )
    assert decide(single, [*BROKEN, *worked(1, ok=True)]).role == "verifier"
    assert decide(single, [*BROKEN, *said(1, "Fine already.")]).role == "worker"


def test_a_single_agent_that_failed_ends_the_request() -> None:
    found = asyncio.run(
        Single("coder", POOL, CoordinatorSettings()).decide(
            SessionState([*BROKEN, *failed(1, "coder")])
        )
    )
    assert isinstance(found, Finished)
    assert (found.reason, "coder: network: reset" in found.message) == ("failed", True)


def test_random_draws_differ_by_seed_and_repeat_with_it() -> None:
    def drawn(seed: int) -> list[tuple[str, Role]]:
        rule = Random(POOL, CoordinatorSettings(seed=seed))
        logs = [
            [*BROKEN, *[fact for turn in range(1, n) for fact in worked(turn, ok=False)]]
            for n in range(1, 5)
        ]
        return [(found.agent, found.role) for found in (decide(rule, events) for events in logs)]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(8)}) > 1


def test_random_never_verifies_before_there_is_work() -> None:
    roles = {
        decide(Random(POOL, CoordinatorSettings(seed=seed)), BROKEN).role for seed in range(40)
    }
    assert roles == {"worker", "thinker"}


def test_random_says_which_role_a_suggestion_replaced() -> None:
    thought = [
        assigned(1, "strong", "thinker"),
        replied(1, "strong", "<suggested_role>worker</suggested_role>"),
    ]
    found = [
        decide(Random(POOL, CoordinatorSettings(seed=seed)), [*BROKEN, *thought])
        for seed in range(20)
    ]
    assert {(one.role, one.override) for one in found} == {("worker", None)}, (
        "two Thinkers in a row make no sense"
    )
