"""A request as a small model reads it: below what was asked and answered before it, in few words.

Stands under prompt.py. Agents with native tools get the whole history instead; what was compacted is here its summary.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import views
from fugu_cli.events import Asked, Event

NEWEST = 1200
"""Characters of the answer to the request just before this one: small models lose the thread in long ones."""
PART, ALL = 400, 2400
"""Characters of a question, and of an answer, that came before that one; and of all of these together."""


def request_text(events: Sequence[Event], request: Asked) -> str:
    """The request, after the newest earlier one and its answer. Where words are all that is asked for, after those
    before it as well: in a conversation they belong together, while beside code to be mended they only distract."""
    summary, kept = views.shortened(events)
    before = views.requests(kept)[:-1]
    if not before:
        return f"(Before: {summary[:NEWEST]})\n\n{request.whole}" if summary else request.whole
    told, begin = [_exchange(before[-1])], "Before, "
    if not views.suite_decides(events):
        told = [*_older(before[:-1]), *told]
        begin = f"Before: {summary[:NEWEST]}\nThen " if summary else begin
    return f"({begin}{f'{chr(10)}Then '.join(told)})\n\n{request.whole}"


def _exchange(facts: Sequence[Event], limit: int = NEWEST, asked: int | None = None) -> str:
    """A request and its answer, the latter with at most `limit` characters, the former with at most `asked`."""
    first, answer = facts[0], views.answer(facts)[:limit]
    assert isinstance(first, Asked)
    got = [f"and got: {answer}"] if answer else []
    return "\n".join([f"the user asked: {first.text[:asked]}", *got, *views.taken_back(facts)])


def _older(requests: Sequence[Sequence[Event]]) -> list[str]:
    """Exchanges in short, the newest that have room, in the order in which they were."""
    told: list[str] = []
    left = ALL
    for facts in reversed(requests):
        text = _exchange(facts, PART, PART)
        left -= len(text)
        if left < 0:
            break
        told.append(text)
    return told[::-1]
