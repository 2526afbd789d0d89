"""Advice with the real binary: an agent asks a stronger one, which reads its conversation."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence

import pytest

from fugu_cli.session.events import Interrupted, ToolRan
from tests.acceptance.driving import Agent, Place, ended
from tests.acceptance.loopback import Answer, Asked, Loopback, Refuses, Says, Use

QUESTION = "Is the word in calc.txt a bug?"
ADVISE = Use("advise", {"question": QUESTION})
PRICE = "{ input = 10.0, output = 10.0 }"
WEAK = Agent("weak", more="skill = -3.0")
STRONG = Agent("strong", "strong", "anthropic", price=PRICE, more="skill = 4.0")


def asks(calls: Sequence[Use], last: str = "It is done.") -> Callable[[Asked], Answer]:
    """An agent that reads a file, makes these calls one by one, and answers."""
    every = [Use("read", {"path": "calc.txt"}), *calls]

    def react(asked: Asked) -> Answer:
        made = len(asked.results)
        return Says("I look.", (every[made],)) if made < len(every) else Says(last)

    return react


def message_text(asked: Asked) -> str:
    (message,) = asked.body["messages"]
    return "".join(block["text"] for block in message["content"])


def advice(place: Place) -> list[ToolRan]:
    return [
        event
        for event in place.events()
        if isinstance(event, ToolRan) and event.call.tool == "advise"
    ]


def test_a_stronger_agent_reads_the_conversation_and_the_asker_goes_on_from_its_cache(
    place: Place, server: Loopback
) -> None:
    place.configure(WEAK, STRONG, more='advisor = "strong"', coordinator="single:weak")
    server.react("weak", asks([ADVISE, ADVISE, ADVISE, ADVISE]))
    server.play("strong", *[Says("Yes: write fixed.")] * 3)
    done = place.fugu("run", "what is in calc.txt?", "--output-format", "stream-json")
    assert done.code == 0, done.err
    asked = server.asked("strong")
    assert len(asked) == 3, "at most three a turn"
    assert not asked[0].body.get("tools")
    first, second = (message_text(one) for one in asked[:2])
    assert first.startswith("<given>\nwhat is in calc.txt?") and "broken" in first
    assert first.endswith(f"<question>\n{QUESTION}\n</question>")
    assert second.startswith(first) and "Yes: write fixed." in second
    prefixes = [json.dumps(one.body["tools"]) for one in server.asked("weak")]
    assert len(set(prefixes)) == 1 and '"advise"' in prefixes[0]
    results = server.asked("weak")[-1].results
    assert results[1:4] == ("strong advises:\nYes: write fixed.",) * 3
    assert "3 times in this turn" in results[4]
    events = advice(place)
    assert [event.agent for event in events] == ["strong"] * 3 + [""]
    assert events[0].usage.input == 100 and events[0].usage.output == 10
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["paid"]["agent"] for line in lines if "paid" in line] == ["strong"] * 3
    spent = lines[-1]["total_cost_usd"]
    assert spent == pytest.approx(3 * 110 * 10 / 1e6)
    trace = json.loads(place.fugu("trace", "--json").out)
    (decision,) = trace["requests"][0]["decisions"]
    assert decision["cost_usd"] == pytest.approx(spent)
    assert decision["advice"][0]["agent"] == "strong"
    assert decision["advice"][0]["question"] == QUESTION
    assert decision["advice"][0]["answer"].endswith("Yes: write fixed.")
    assert f"asked strong: {QUESTION}" in place.fugu("trace").out


@pytest.mark.parametrize(
    ("answer", "budget", "expected", "paid"),
    [
        (Says("Yes."), "0.01", "strong was not asked: its next call may cost $", False),
        (Refuses(400, "no such thing"), "9", "strong gave no advice: ", False),
        (Says(""), "9", "strong said nothing.", True),
    ],
)
def test_an_asker_without_advice_is_told_why_and_goes_on(
    place: Place, server: Loopback, answer: Answer, budget: str, expected: str, paid: bool
) -> None:
    place.configure(WEAK, STRONG, more='advisor = "strong"', coordinator="single:weak")
    server.react("weak", asks([ADVISE]))
    server.react("strong", lambda _: answer)
    done = place.fugu("run", "what is in calc.txt?", "--max-budget-usd", budget)
    assert (done.code, done.out) == (0, "It is done.\n"), done.err
    (event,) = advice(place)
    assert not event.ok and event.output.startswith(expected)
    assert event.output.endswith("Go on without advice.") and bool(event.agent) == paid


def test_killed_while_it_asks_an_agent_does_not_ask_again_and_the_advice_is_paid_for(
    place: Place, server: Loopback
) -> None:
    place.configure(WEAK, STRONG, more='advisor = "strong"', coordinator="single:weak")
    server.react("weak", asks([ADVISE]))
    server.react("strong", lambda _: Says("late", pause=60.0))
    process = place.start("run", "what is in calc.txt?")
    server.wait_for("strong")
    process.send_signal(signal.SIGKILL)
    ended(process)
    done = place.fugu("run", "--continue")
    assert done.code == 0, done.err
    assert len(server.asked("strong")) == 1 and advice(place) == []
    cut = [event for event in place.events() if isinstance(event, Interrupted) and event.agent]
    assert [event.agent for event in cut] == ["strong"] and cut[0].usage.input > 100


def test_the_advisor_is_not_shown_a_secret_of_the_question(place: Place, server: Loopback) -> None:
    place.configure(WEAK, STRONG, more='advisor = "strong"', coordinator="single:weak")
    place.files({".env": "API_KEY=s3cr3t-of-ours-77\n"})
    question = Use("advise", {"question": "Why is s3cr3t-of-ours-77 refused?"})
    server.react("weak", asks([question]))
    server.play("strong", Says("It is old."))
    assert place.fugu("run", "why is it refused?").code == 0
    (asked,) = server.asked("strong")
    assert "s3cr3t-of-ours-77" not in str(asked.body)
    assert "Why is [secret " in message_text(asked)
