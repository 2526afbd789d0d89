"""What an answer took: the tokens of the reply the client gets, and those of all that led to it (SPEC 5). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import views
from fugu_cli.events import Assigned, Event, Replied
from fugu_cli.messages import Reply, Usage
from fugu_cli.serve.asking import Answer


def answer(events: Sequence[Event], began: int, reply: Reply, note: str = "") -> Answer:
    """The answer made of `reply`, the newest Worker's; facts from `began` on were made by this request."""
    made = events[began:]
    replies = [event for event in made if isinstance(event, Replied)]
    newest = next((event for event in reversed(replies) if is_answer(event, reply)), None)
    return Answer(
        text=reply.text,
        calls=reply.calls,
        stop=reply.stop,
        usage=reply.usage,
        orchestration=orchestration(made, newest),
        agent=newest.agent if newest else "",
        served=reply.model,
        cost=views.cost(made, views.pool(events)),
        note=note,
    )


def is_answer(event: Replied, reply: Reply) -> bool:
    """The fact that records this reply."""
    return event.text == reply.text and event.calls == reply.calls


def orchestration(made: Sequence[Event], answer: Event | None) -> Usage:
    """What the coordinator read, and every model call but the one whose reply is the answer."""
    total = Usage()
    for event in made:
        if isinstance(event, Assigned) and event.scores is not None:
            total += Usage(input=event.scores.tokens, cached=event.scores.cached_tokens)
        elif event is not answer:
            usage = getattr(event, "usage", None)
            total += usage if isinstance(usage, Usage) else Usage()
    return total
