import asyncio
from pathlib import Path

import pytest

from fugu_cli.coordinators import Coordinator, CoordinatorSettings, baselines
from fugu_cli.coordinators.baselines import FixedWorkflow
from fugu_cli.engine import orchestrator
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.session.events import Assigned, Event, Failed, Finished, Member, Planned, WorkflowStep
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from tests.reacting import Reacting, Stage, calls, fails, repository, results, role, says

MEMBERS = tuple(
    Member(name=name, provider="openai", model=name, slot=slot)  # type: ignore[arg-type]
    for name, slot in (("small", "cheap"), ("medium", "middle"), ("large", "strong"))
)


def fixes(prompt: Prompt) -> Reply:
    """Reads, writes and says so; accepts as Verifier."""
    if role(prompt) == "verifier":
        return Reply(text="ACCEPT: it passes.")
    steps = [
        Call.make("1", "read", path="calc.txt"),
        Call.make("2", "write", path="calc.txt", content="fixed\n"),
    ]
    done = len(results(prompt))
    return calls(steps[done]) if done < 2 else Reply(text="It is fixed.")


def played(
    tmp_path: Path, words: str, *, judged: bool = True, **agents: object
) -> tuple[Event, ...]:
    """The facts of a request under a baseline; agents that are not given say the same thing every
    time.
    """
    reacting = {
        m.name: Reacting(m.name, agents.get(m.name, says(f"{m.name} has an idea.")))
        for m in MEMBERS
    }  # type: ignore[arg-type]
    coordinator: Coordinator = baselines.build_baseline(words, MEMBERS, CoordinatorSettings())
    root = repository(tmp_path / "repo")
    stage = Stage(root, tmp_path / "store", MEMBERS, reacting, coordinator)

    async def steps() -> tuple[Event, ...]:
        log = Log.memory()
        await stage.begin(log, "fix the tests" if judged else "What is it?", judged=judged)
        await orchestrator.run(log, stage.team(), stage.environment())
        return tuple(log.events)

    return asyncio.run(steps())


def turns(events: tuple[Event, ...]) -> list[tuple[str, str]]:
    return [
        (turn.assigned.agent, turn.assigned.role) for turn in SessionState(events).request.turns
    ]


def end(events: tuple[Event, ...]) -> Finished:
    found = events[-1]
    assert isinstance(found, Finished)
    return found


@pytest.mark.parametrize(
    ("word", "known"),
    [
        ("one-pass:small", True),
        ("mixture-of-agents", True),
        ("one-pass", False),
        ("one-pass:", False),
        ("panel-judge-merge:small", False),
        ("cascade", False),
    ],
)
def test_a_baseline_is_known_by_its_words(word: str, known: bool) -> None:
    assert baselines.is_baseline(word) is known


def test_one_pass_is_one_turn_whatever_came_of_it(tmp_path: Path) -> None:
    right = played(tmp_path / "a", "one-pass:small", small=fixes)
    wrong = played(tmp_path / "b", "one-pass:small")
    assert turns(right) == turns(wrong) == [("small", "worker")]
    assert end(right) == Finished(
        reason="accepted", message="one-pass: 1 of 1 turns were taken; the tests pass"
    )
    message = "one-pass: 1 of 1 turns were taken; the tests must pass and do not"
    assert end(wrong) == Finished(reason="turn_limit", message=message)


def test_retrying_asks_the_same_agent_until_the_tests_pass(tmp_path: Path) -> None:
    tried: list[int] = []

    def third_time(prompt: Prompt) -> Reply:
        if not results(prompt):
            tried.append(1)
        # the first turn is shown once what fails
        return fixes(prompt) if len(tried) >= 4 else Reply(text="I see nothing.")

    events = played(tmp_path, "retry-same:medium", medium=third_time)
    assert turns(events) == [("medium", "worker")] * 3
    assert end(events).reason == "accepted"


def test_retrying_stops_after_all_turns_and_an_answer_is_not_asked_for_again(
    tmp_path: Path,
) -> None:
    failing = played(tmp_path / "a", "retry-same:small")
    assert (turns(failing), end(failing).reason) == ([("small", "worker")] * 5, "turn_limit")
    answered = played(tmp_path / "b", "retry-same:small", judged=False)
    assert (turns(answered), end(answered).reason) == ([("small", "worker")], "answered")


def test_reflection_looks_at_its_own_work_five_times(tmp_path: Path) -> None:
    events = played(tmp_path, "self-reflection:large", judged=False)
    assert turns(events) == [("large", "worker")] * 6
    told = [turn.assigned.instruction[:15] for turn in SessionState(events).request.turns]
    assert told == ["", *["Look critically"] * 5]


def test_an_agent_that_fails_ends_its_own_baseline(tmp_path: Path) -> None:
    events = played(tmp_path, "one-pass:small", small=fails)
    assert end(events) == Finished(
        reason="failed",
        message="all models are unavailable (small: refused: the key was refused; set another). "
        "`fugu login` keeps another key.",
    )


def test_a_mixture_has_layers_that_read_the_one_before_and_an_aggregator_that_works(
    tmp_path: Path,
) -> None:
    events = played(tmp_path, "mixture-of-agents", large=fixes)
    names = ["small", "medium", "large"]
    assert turns(events) == [*((name, "thinker") for name in [*names, *names]), ("large", "worker")]
    assert [turn.assigned.sees for turn in SessionState(events).request.turns] == [
        (),
        (),
        (),
        *[(1, 2, 3)] * 3,
        (4, 5, 6),
    ]
    (plan,) = [event for event in events if isinstance(event, Planned)]
    assert [step.access for step in plan.steps] == [(), (), (), *[(0, 1, 2)] * 3, (3, 4, 5)]
    assert end(events).reason == "accepted"


def test_a_panel_is_judged_then_merged_by_the_strongest(tmp_path: Path) -> None:
    events = played(tmp_path, "panel-judge-merge", large=fixes)
    assert turns(events) == [
        *((name, "thinker") for name in ("small", "medium", "large", "large")),
        ("large", "worker"),
    ]
    assert [turn.assigned.sees for turn in SessionState(events).request.turns] == [
        (),
        (),
        (),
        (1, 2, 3),
        (1, 2, 3, 4),
    ]
    assert end(events).reason == "accepted"


def test_a_proposal_that_fails_is_left_out_and_who_settles_it_is_replaced(tmp_path: Path) -> None:
    events = played(tmp_path, "panel-judge-merge", large=fails, medium=fixes)
    assert [event.what for event in events if isinstance(event, Failed)] == ["large"]
    done = [
        (t.assigned.agent, t.assigned.role)
        for t in SessionState(events).request.turns
        if not t.failed
    ]
    assert done == [
        ("small", "thinker"),
        ("medium", "thinker"),
        ("medium", "thinker"),
        ("medium", "worker"),
    ]
    assert end(events).reason == "accepted"


def test_a_prompted_coordinator_is_asked_each_time_and_read_back_from_the_log(
    tmp_path: Path,
) -> None:
    def leads(prompt: Prompt) -> Reply:
        if "You lead a team" in prompt.messages[-1].text:  # type: ignore[union-attr]
            verified = "It is fixed." in prompt.model_dump_json()
            return Reply(text="agent: 0, role: verifier" if verified else "agent: 1, role: worker")
        return fixes(prompt)

    events = played(tmp_path, "prompted:large", large=leads, medium=fixes, small=fixes)
    assert turns(events) == [
        ("large", "thinker"),
        ("medium", "worker"),
        ("large", "thinker"),
        ("small", "verifier"),
    ]
    assert end(events).reason == "accepted"


def test_a_choice_that_names_nobody_leaves_the_decision_to_the_cascade(tmp_path: Path) -> None:
    events = played(tmp_path, "prompted:large", small=fixes)
    second = [event for event in events if isinstance(event, Assigned)][1]
    assert (second.agent, second.by) == ("small", "prompted")
    assert second.reason == (
        "the chooser's reply names nobody; the cascade: the tests must pass and do not: the cheapest agent"
    )


def test_a_workflow_that_was_written_elsewhere_is_carried_out_step_by_step(tmp_path: Path) -> None:
    steps = (
        WorkflowStep(agent="small", instruction="Find the cause."),
        WorkflowStep(agent="medium", instruction="Say something else."),
        WorkflowStep(agent="large", instruction="Repair it.", access=(0, 1)),
    )
    reacting = {
        "small": Reacting("small", says("calc.txt must say fixed.")),
        "medium": Reacting("medium", fails),
        "large": Reacting("large", fixes),
    }
    stage = Stage(
        repository(tmp_path / "repo"), tmp_path / "store", MEMBERS, reacting, FixedWorkflow(steps)
    )

    async def driven() -> tuple[Event, ...]:
        log = Log.memory()
        await stage.begin(log)
        await orchestrator.run(log, stage.team(), stage.environment())
        return tuple(log.events)

    events = asyncio.run(driven())
    taken = [turn.assigned for turn in SessionState(events).request.turns if not turn.failed]
    assert [(one.agent, one.instruction, one.sees) for one in taken] == [
        ("small", "Find the cause.", ()),
        ("large", "Repair it.", (1,)),
    ]
    assert end(events) == Finished(
        reason="accepted", message="workflow: 2 of 3 steps were taken; the tests pass"
    )
    assert "calc.txt must say fixed." in reacting["large"].shown[0].model_dump_json()
