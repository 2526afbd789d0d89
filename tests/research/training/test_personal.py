"""The user's own sessions: what turned out well or badly is read from the log, and learned from
only if better.
"""

from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import backbone, svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, CheckpointMeta, make
from fugu_cli.errors import UsageError
from fugu_cli.messages import Call
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    FileChange,
    Finished,
    Permitted,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.training.own_sessions import labelled_decisions, learn_from_sessions, session_examples
from fugu_cli.training.search import HiddenStates
from tests.unit.coordinators import tiny

UNDO = Undone(snapshot="tree")
REDO = Undone(snapshot="tree", kind="redo")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return backbone.load_backbone(
        tiny.folder(tmp_path_factory.mktemp("personal") / "backbone"), device="cpu"
    )


def asked(text: str = "fix it") -> Asked:
    return Asked(text=text, snapshot="tree", test_command="pytest", until=("pytest",))


def worked(turn: int, agent: str, tests: bool | None) -> list[Event]:
    write = Call.make(f"w{turn}", "write", path="a.py")
    change = FileChange(path="a.py", before="a", after="b")
    facts: list[Event] = [
        Assigned(turn=turn, agent=agent, role="worker", by="trinity", snapshot="tree"),
        Replied(turn=turn, agent=agent, text="done", calls=(write,)),
        Permitted(turn=turn, call=write, allowed=True, by="policy"),
        ToolRan(turn=turn, call=write, output="ok", ok=True, changes=(change,)),
    ]
    if tests is not None:
        run = Call(id=f"e{turn}", tool="run_tests")
        facts.append(Permitted(turn=turn, call=run, allowed=True, by="evidence"))
        facts.append(ToolRan(turn=turn, call=run, output="1 passed", ok=tests))
    return facts


def verified(turn: int, agent: str, text: str) -> list[Event]:
    return [
        Assigned(turn=turn, agent=agent, role="verifier", by="trinity", snapshot="tree"),
        Replied(turn=turn, agent=agent, text=text),
    ]


def labels(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(one.agent, one.role, one.label) for one in labelled_decisions(events, "s")]


def test_tests_say_how_a_turn_ended_and_acceptance_how_the_request_did() -> None:
    events = [
        asked(),
        *worked(1, "small", False),
        *worked(2, "big", True),
        *verified(3, "small", "ACCEPT: fine"),
    ]
    found = labels([*events, Finished(reason="accepted")])
    assert found == [
        ("small", "worker", "tests failed"),
        ("big", "worker", "tests passed"),
        ("small", "verifier", "accepted"),
    ]


def test_what_the_user_took_back_was_no_success() -> None:
    events = [
        asked(),
        *worked(1, "small", True),
        *verified(2, "big", "ACCEPT"),
        Finished(reason="accepted"),
    ]
    assert labels([*events, UNDO]) == [("small", "worker", "reverted")]
    assert ("small", "worker", "tests passed") in labels([*events, UNDO, REDO])


def test_an_undo_takes_back_the_newest_request_that_stands() -> None:
    done = Finished(reason="accepted")
    events = [asked("one"), *worked(1, "a", True), done, asked("two"), *worked(1, "b", True), done]
    assert labels([*events, UNDO]) == [("a", "worker", "tests passed"), ("b", "worker", "reverted")]
    assert labels([*events, UNDO, UNDO]) == [
        ("a", "worker", "reverted"),
        ("b", "worker", "reverted"),
    ]
    later = [*events, UNDO, asked("three"), *worked(1, "c", None), done]
    assert labels(later) == [
        ("a", "worker", "tests passed"),
        ("b", "worker", "reverted"),
        ("c", "worker", "accepted"),
    ]


def test_a_draw_that_was_rolled_back_is_no_revert() -> None:
    events = [
        asked(),
        *worked(1, "a", True),
        Undone(snapshot="tree", turn=1, reason="the tests failed"),
    ]
    assert ("a", "worker", "reverted") not in labels(events)


def test_turns_nobody_judged_say_nothing() -> None:
    assert labels([asked(), *worked(1, "a", None), Finished(reason="turn_limit")]) == []
    assert labels([asked(), *verified(1, "a", "REVISE: no"), Finished(reason="turn_limit")]) == []


def test_a_decision_is_shown_with_what_was_known_before_it() -> None:
    events = [asked(), *worked(1, "small", False), *worked(2, "big", True)]
    first, second = labelled_decisions(events, "s")
    assert first.events == (events[0],)
    assert second.events == tuple(events[:7])
    assert first.group == second.group == "s/1"


def started(loaded: Backbone) -> Checkpoint:
    shape = loaded.shape
    rows = ("cheap", "middle", "strong")
    meta = CheckpointMeta(
        backbone=loaded.identity, width=shape.width, ranks=svf.ranks(shape), rows=rows
    )
    head = np.random.default_rng(0).normal(scale=0.01, size=(6, shape.width)).astype(np.float32)
    return make(svf.join([np.zeros(size, np.float32) for size in meta.ranks], head), meta)


def sessions(count: int) -> list[Event]:
    """`small` fails whatever it is asked, `big` does not."""
    events: list[Event] = []
    for number in range(count):
        events += [
            asked(f"fix number {number}"),
            *worked(1, "small", False),
            *worked(2, "big", True),
        ]
    return events


def test_a_head_learns_whom_the_user_can_rely_on(loaded: Backbone, tmp_path: Path) -> None:
    decided = list(labelled_decisions(sessions(30), "s"))
    named = {"small": "cheap", "big": "strong"}
    hidden_states = HiddenStates(loaded, tmp_path, lambda _: None)
    told = session_examples(decided, started(loaded), named, (loaded, hidden_states))
    assert told.rows[0].tolist() == pytest.approx([0.1, 0.45, 0.45])
    assert told.rows[1].tolist() == pytest.approx([0.05, 0.05, 0.9])
    found = learn_from_sessions(told, started(loaded))
    assert found.better
    assert found.requests == 30
    new = found.checkpoint.head
    assert (told.hidden @ new[:3].T).argmax(1).tolist().count(0) == 0
    assert found.checkpoint.meta.training.stage == "own sessions"


def test_a_few_requests_are_too_few(loaded: Backbone, tmp_path: Path) -> None:
    decided = list(labelled_decisions(sessions(3), "s"))
    told = session_examples(
        decided,
        started(loaded),
        {"small": "cheap", "big": "strong"},
        (loaded, HiddenStates(loaded, tmp_path, lambda _: None)),
    )
    with pytest.raises(UsageError, match="only 3 requests"):
        learn_from_sessions(told, started(loaded))


def test_agents_without_a_row_are_left_out(loaded: Backbone, tmp_path: Path) -> None:
    decided = list(labelled_decisions(sessions(2), "s"))
    told = session_examples(
        decided,
        started(loaded),
        {"big": "strong"},
        (loaded, HiddenStates(loaded, tmp_path, lambda _: None)),
    )
    assert told.hidden.shape == (2, loaded.shape.width)
