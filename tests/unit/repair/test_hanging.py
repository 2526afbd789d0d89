"""Runs of the tests after a small model's draw: one that makes a loop endless does not take all the
time there is.
"""

from __future__ import annotations

import pytest

from fugu_cli.engine.environment import GatherEvidence
from fugu_cli.messages import Call
from fugu_cli.repair import harness
from fugu_cli.session import views
from fugu_cli.session.events import Event, ToolRan
from fugu_cli.session.state import SessionState
from tests.facts import CODER, FAILS, asked, assigned, opened, ran, replied, write
from tests.unit.repair.conftest import Next

FILLER = CODER.model_copy(update={"protocol": "text", "infill": True})


def filled(
    first: str = FAILS, *, seconds: float = 1.0, place: str = "a.py:3", aimed: str = ""
) -> list[Event]:
    """A line was filled in, or what was `aimed` at written, and is not tested yet."""
    before = ran(1, Call(id="e0", tool="run_tests"), first, ok=False, by="evidence")
    before = [
        one.model_copy(update={"seconds": seconds}) if isinstance(one, ToolRan) else one
        for one in before
    ]
    said = replied(1, "coder", "a.py:3: `x`", write("w")).model_copy(
        update={"filled": place, "aimed": aimed}
    )
    return [
        opened(),
        asked(),
        assigned(1, "coder"),
        *before,
        said,
        *ran(1, write("w"), path="a.py"),
    ]


@pytest.mark.parametrize(
    ("events", "limit"),
    [
        (filled(seconds=0.3), 5.0),
        (filled(seconds=7.25), 29.0),
        (filled(place="", aimed="a.py:1 f rewritten", seconds=0.3), 30.0),
        (filled(place="", aimed="a.py", seconds=7.25), 72.5),
        (filled(place=""), None),
        (filled("2 errors in 0.1s"), None),
        (filled("1 failed, 1 error in 0.1s"), None),
        (filled("1 failed, 2 passed, 1 error\n[exit code 1]"), None),
        (filled("Ran 3 tests in 0.1s\n\nFAILED (failures=1, errors=1)"), None),
        (filled("1 failed, 2 warnings\n[exit code 1]"), 5.0),
    ],
    ids=[
        *(
            "a line",
            "four times as long",
            "a function",
            "a file, ten times as long",
            "no small model",
        ),
        *(
            "nothing was collected",
            "not all was collected",
            "but some of it",
            "so in unittest",
            "nothing passed",
        ),
    ],
)
def test_how_long_they_may_take(events: list[Event], limit: float | None, next_step: Next) -> None:
    step = next_step(events, FILLER)
    assert isinstance(step, GatherEvidence)
    wanted = {} if limit is None else {"seconds": limit}
    assert step.call == Call.make(step.call.id, "run_tests", **wanted)
    assert views.is_whole_run(step.call), "it judges the draw all the same"


def test_a_request_without_a_run_before_has_no_limit() -> None:
    events = [
        event
        for event in filled()
        if getattr(event, "call", None) != Call(id="e0", tool="run_tests")
    ]
    call = Call(id="e", tool="run_tests")
    assert harness.with_test_timeout(call, SessionState(events), views.turns(events)[-1]) == call
