"""When a draw that leaves tests failing is kept."""

from __future__ import annotations

from fugu_cli.messages import Call
from fugu_cli.repair import search
from fugu_cli.session import views
from fugu_cli.session.events import Event
from fugu_cli.session.state import SessionState
from tests.facts import asked, assigned, opened, ran, replied, write

ADD = "AttributeError: 'list' object has no attribute 'add'\na.py:3: AttributeError\n"


def kept(before: str, after: str, filled: str = "", aimed: str = "") -> bool:
    """The draw is worth building on: what the tests said before and after it."""
    events: list[Event] = [opened(), asked()]
    events += ran(0, Call(id="t0", tool="run_tests"), before, ok=False, by="evidence")
    said = replied(1, "coder", "", write("w")).model_copy(update={"filled": filled, "aimed": aimed})
    events += [assigned(1, "coder"), said, *ran(1, write("w"), path="a.py")]
    events += ran(1, Call(id="t1", tool="run_tests"), after, ok=False, by="evidence")
    run = views.tests(events)
    assert run is not None
    return search.made_progress(SessionState(events), views.turns(events)[-1], run)


def test_fewer_failures_or_more_that_pass_are_progress_unless_most_fail() -> None:
    assert kept("2 failed, 7 passed", "1 failed, 8 passed")
    assert kept("1 error", "2 failed, 3 passed")
    assert not kept("2 failed, 7 passed", "2 failed, 7 passed")
    assert not kept("2 failed, 7 passed", "3 failed, 6 passed")
    assert not kept("9 failed, 1 passed", "8 failed, 2 passed")
