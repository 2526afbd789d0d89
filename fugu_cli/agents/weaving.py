"""Thoughts back in their places: models also think between text and calls, and a thought that was moved is refused.

Under anthropic.py and responses.py. A thought is kept as the provider's own JSON; where it stood in its message stands
beside the provider's fields (`AFTER`). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import JsonValue

from fugu_cli.agents.history import arguments_object
from fugu_cli.messages import Call, FromAgent, Thinking

AFTER = "after"
"""Characters of text and calls that came before a thought in its message."""

Json = dict[str, JsonValue]


def mark(after: tuple[int, int]) -> Json:
    """What is kept beside the provider's own fields; nothing where the thought came first."""
    return {AFTER: [*after]} if any(after) else {}


def woven(
    message: FromAgent,
    thought: Callable[[Thinking], Json | None],
    words: Callable[[str], list[Json]],
    uses: Callable[[Sequence[Call]], list[Json]],
) -> list[Json]:
    """The message's thoughts, text and calls as the wire's own pieces, in the order in which they came."""
    pieces: list[Json] = []
    said = made = 0
    for thinking in message.thinking:
        piece = thought(thinking)
        if piece is not None:
            until, before = _place(thinking)
            pieces += [*words(message.text[said:until]), *uses(message.calls[made:before]), piece]
            said, made = max(said, until), max(made, before)
    return [*pieces, *words(message.text[said:]), *uses(message.calls[made:])]


def _place(thinking: Thinking) -> tuple[int, int]:
    match (arguments_object(thinking.data) or {}).get(AFTER):
        case [int(said), int(made)]:
            return said, made
    return 0, 0
