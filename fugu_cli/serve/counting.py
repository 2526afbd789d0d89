"""What an answer took: the tokens of the reply the client gets, and those of all that led to it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import views
from fugu_cli.events import Assigned, Event, Replied
from fugu_cli.messages import Usage
from fugu_cli.serve.asking import Answer


def answer(events: Sequence[Event], began: int, reply: Replied, recorded: Replied, note: str = "") -> Answer:
    """The answer made of `reply`, which is `recorded` in the log, there without secrets; facts from `began` on were
    made by this request."""
    made = events[began:]
    return Answer(
        text=reply.text,
        calls=reply.calls,
        stop=reply.stop,
        usage=reply.usage,
        orchestration=orchestration(made, recorded),
        agent=reply.agent,
        served=reply.model,
        cost=views.cost(made, views.pool(events)),
        note=note,
    )


def orchestration(made: Sequence[Event], answer: Replied) -> Usage:
    """What the coordinator read, and every model call but the one whose reply is the answer."""
    total = Usage()
    for event in made:
        if isinstance(event, Assigned) and event.scores is not None:
            total += Usage(input=event.scores.tokens, cached=event.scores.cached_tokens)
        elif event is not answer:
            usage = getattr(event, "usage", None)
            total += usage if isinstance(usage, Usage) else Usage()
    return total
