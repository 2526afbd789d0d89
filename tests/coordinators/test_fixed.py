"""Fixed rules: who comes next, and that they say why."""

import asyncio

import pytest

from fugu_cli.coordinators import Coordinator, CoordinatorSettings
from fugu_cli.coordinators.rules import Cascade, Random, Single
from fugu_cli.session.events import Assigned, Event, Failed, Finished, Role
from tests.coordinators.test_stopping import BROKEN, said, verified, worked
from tests.facts import POOL, asked, assigned, opened, ran, replied, rolled_back, write


def decide(coordinator: Coordinator, events: list[Event]) -> Assigned:
    found = asyncio.run(coordinator.decide(events))
    assert isinstance(found, Assigned), found
    return found


def cascade(events: list[Event], **settings: object) -> tuple[str, Role]:
    found = decide(Cascade(POOL, CoordinatorSettings(**settings)), events)  # type: ignore[arg-type]
    return found.agent, found.role


def failed(turn: int, agent: str) -> list[Event]:
    return [assigned(turn, agent), Failed(turn=turn, what=agent, kind="network", message="reset")]


def test_the_cascade_begins_cheap() -> None:
    found = decide(Cascade(POOL, CoordinatorSettings()), BROKEN)
    assert found == Assigned(turn=1, agent="small", role="worker", by="cascade", reason="cheap first")


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
    assert cascade([opened(), asked("add a flag", judged=False, command=None), *done]) == ("strong", "verifier")


@pytest.mark.parametrize("role", ["verifier", "worker"])
def test_work_is_verified_whatever_a_thinker_suggests_after_it(role: Role) -> None:
    thought = f"Look again.\n<suggested_role>{role}</suggested_role>"
    asks = [assigned(2, "strong", "thinker"), replied(2, "strong", thought)]
    assert cascade([*BROKEN, *worked(1, ok=True), *asks]) == ("coder", "verifier")


def test_a_revision_goes_to_the_next_slot() -> None:
    assert cascade([*BROKEN, *worked(1, ok=True), *verified(2, "REVISE: slow")]) == ("coder", "worker")


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
    found = asyncio.run(Cascade(POOL, everyone).decide(BROKEN))
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
        found = asyncio.run(rule.decide(events))
        assert isinstance(found, Finished)
        assert found.reason == "accepted"


def test_a_single_agent_takes_every_role() -> None:
    single = Single("coder", POOL, CoordinatorSettings())
    assert decide(single, BROKEN) == Assigned(
        turn=1, agent="coder", role="worker", by="single", reason="coder takes every turn"
    )
    assert decide(single, [*BROKEN, *worked(1, ok=True)]).role == "verifier"
    assert decide(single, [*BROKEN, *said(1, "Fine already.")]).role == "worker"


def test_a_single_agent_that_failed_ends_the_request() -> None:
    found = asyncio.run(Single("coder", POOL, CoordinatorSettings()).decide([*BROKEN, *failed(1, "coder")]))
    assert isinstance(found, Finished)
    assert (found.reason, "coder: network: reset" in found.message) == ("failed", True)


def test_random_draws_differ_by_seed_and_repeat_with_it() -> None:
    def drawn(seed: int) -> list[tuple[str, Role]]:
        rule = Random(POOL, CoordinatorSettings(seed=seed))
        logs = [[*BROKEN, *[fact for turn in range(1, n) for fact in worked(turn, ok=False)]] for n in range(1, 5)]
        return [(found.agent, found.role) for found in (decide(rule, events) for events in logs)]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(8)}) > 1


def test_random_never_verifies_before_there_is_work() -> None:
    roles = {decide(Random(POOL, CoordinatorSettings(seed=seed)), BROKEN).role for seed in range(40)}
    assert roles == {"worker", "thinker"}


def test_random_says_which_role_a_suggestion_replaced() -> None:
    thought = [assigned(1, "strong", "thinker"), replied(1, "strong", "<suggested_role>worker</suggested_role>")]
    found = [decide(Random(POOL, CoordinatorSettings(seed=seed)), [*BROKEN, *thought]) for seed in range(20)]
    assert {(one.role, one.override) for one in found} == {("worker", None)}, "two Thinkers in a row make no sense"
