"""A question of an agent's to the user, where somebody can be asked and where nobody can."""

from __future__ import annotations

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use

QUESTION = Use("ask_user", {"question": "Which one?", "choices": ["left", "right"]})


def test_headless_an_agent_is_told_that_nobody_can_be_asked(place: Place, server: Loopback) -> None:
    place.configure(Agent("a"))
    server.play("a", Says("", (QUESTION,)), Says("I took the left one."))
    done = place.fugu("run", "take one")
    assert done.out == "I took the left one.\n", done.err
    assert server.asked("a")[1].results[-1].startswith("Nobody can be asked in this session.")
