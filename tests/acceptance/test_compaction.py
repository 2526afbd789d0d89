"""A conversation that does not fit an agent any more, by the real binary."""

from __future__ import annotations

import json

from fugu_cli.session.events import Assigned, Compacted, Failed
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Asked, Loopback, Says, Use

LONG = "".join(f"line {number} of a long file\n" for number in range(400))


def test_a_small_window_is_summed_up_and_after_two_summaries_a_larger_agent_goes_on(
    place: Place, server: Loopback
) -> None:
    place.configure(
        Agent("small", more="context = 12000"), Agent("large", "strong", more="context = 200000")
    )
    place.files({f"long{number}.txt": LONG for number in range(9)})
    asked_for_memory: list[Asked] = []
    reads = iter(range(99))

    def react(request: Asked) -> Says:
        if "Write its memory now" in request.text:
            asked_for_memory.append(request)
            return Says("Known: the files are long.")
        path = f"long{next(reads) % 9}.txt"
        return Says(calls=(Use("read", {"path": path}),))

    server.react("small", react)
    server.play("large", Says("They are long."))
    done = place.fugu("run", "what is in these files?")
    assert (done.code, done.out) == (0, "They are long.\n"), done.err
    events = place.events()
    summaries = [event for event in events if isinstance(event, Compacted)]
    assert [(event.agent, event.window) for event in summaries] == [("small", 12000)] * 2
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert "summed up 2 times in a row without a change; large can read more" in failed.message
    assert [event.agent for event in events if isinstance(event, Assigned)] == ["small", "large"]
    assert "Known: the files are long." not in server.asked("large")[0].text
    whole = server.asked("small")
    before = whole[whole.index(asked_for_memory[0]) - 1]
    kept = before.body["messages"]
    assert asked_for_memory[0].body["messages"][: len(kept)] == kept
    assert asked_for_memory[0].body["tools"] == before.body["tools"]
    for request in whole:
        prompt_tokens = len(json.dumps(request.body)) / 4
        assert prompt_tokens + request.body["max_tokens"] <= 12000
