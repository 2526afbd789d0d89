"""A model's reasoning, kept so that it can go back to the same agent: think tags in the text,
thought signatures and sealed reasoning, and their order among text and calls. Each is kept as the
provider's own JSON, because a changed byte makes its signature invalid. Pure.

Gemini 3 and later refuse a call without its signature; for calls of another agent they take a fixed
word in its place (https://ai.google.dev/gemini-api/docs/thought-signatures). Behind OpenRouter
signatures travel as `reasoning_details` of the whole reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from pydantic import JsonValue

from fugu_cli.messages import Call, FromAgent, Thinking
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.history import arguments_object
from fugu_cli.system.bounded_json import parse_json

OPENS, CLOSES = "<think>", "</think>"
CLOSING_ALONE = re.compile(r"(.*?)\n</think>[ \t]*\n+", re.DOTALL)


class ThinkTagParser:
    """Text as it comes. `feed` returns what of it is to be shown, `parts` the whole of it: answer
    and thought.
    """

    def __init__(self) -> None:
        self._said: list[str] = []
        self._held: list[str] = []
        """What may be, or is, the beginning of a thought."""
        self._tail = ""
        """The end of what is held of an open thought, in which its end may have begun; "" where
        none is open.
        """
        self._thought = ""
        self._blank = True
        """Nothing but white space has come."""
        self._begins = self._decided = False

    def feed(self, text: str) -> str:
        """The part of it that is no thought; a beginning that may be one is held back."""
        if not self._decided:
            text = self._decide(text)
        elif self._begins:
            text = text.lstrip()
        self._begins = self._begins and not text
        if text:
            self._said.append(text)
        return text

    def parts(self) -> tuple[str, str]:
        """The answer, and what was thought before it. A thought that does not end is no thought."""
        text = "".join((*self._said, *self._held))
        alone = CLOSING_ALONE.match(text) if not self._thought and OPENS not in text else None
        return (text[alone.end() :], alone[1].strip()) if alone else (text, self._thought)

    def _decide(self, text: str) -> str:
        self._held.append(text)
        self._blank = self._blank and not text.strip()
        if self._blank:
            return ""
        if self._tail and CLOSES not in self._tail + text:
            self._tail = (self._tail + text)[-len(CLOSES) :]
            return ""
        held = "".join(self._held)
        lead = held.lstrip()
        if not lead.startswith(OPENS) and not OPENS.startswith(lead):
            self._held, self._decided = [], True
            return held
        thought, closed, rest = lead.removeprefix(OPENS).partition(CLOSES)
        if not closed:
            self._tail = lead[-len(CLOSES) :] if lead.startswith(OPENS) else ""
            return ""
        self._held, self._decided, self._begins = [], True, True
        self._thought = thought.strip()
        return rest.lstrip()


EXTRA_CONTENT = "extra_content"
REASONING_DETAILS = "reasoning_details"
SKIP_SIGNATURE = "skip_thought_signature_validator"
SIGNATURE_FORMAT = "google-gemini-v1"
UNSIGNED: JsonValue = {"google": {"thought_signature": SKIP_SIGNATURE}}


def sealed_blocks(
    extras: Sequence[JsonValue], details: Sequence[dict[str, JsonValue]]
) -> tuple[Thinking, ...]:
    """The blocks that keep what came beside the calls, in their order, and the pieces of sealed
    reasoning.
    """
    found: list[JsonValue] = []
    if any(extras):
        found.append({"type": EXTRA_CONTENT, "calls": [*extras]})
    if details:
        found.append({"type": REASONING_DETAILS, REASONING_DETAILS: [*_joined(details)]})
    return tuple(Thinking(data=json.dumps(block, ensure_ascii=False)) for block in found)


def _joined(details: Sequence[dict[str, JsonValue]]) -> list[dict[str, JsonValue]]:
    """A text that was streamed in pieces, each with the same type and index, is one again; other
    pieces stay alone.
    """
    whole: list[dict[str, JsonValue]] = []
    for piece in details:
        last = whole[-1] if whole else {}
        part = {"reasoning.text": "text", "reasoning.summary": "summary"}.get(
            str(piece.get("type")), ""
        )
        if part and (last.get("type"), last.get("index")) == (
            piece.get("type"),
            piece.get("index"),
        ):
            said = {key: value for key, value in piece.items() if value is not None}
            whole[-1] = {**last, **said, part: f"{last.get(part) or ''}{piece.get(part) or ''}"}
        else:
            whole.append(piece)
    return whole


def sealed_reasoning(message: FromAgent, access: ModelEndpoint) -> JsonValue:
    """The sealed reasoning that goes back with the message; None where there is none. For calls of
    another agent OpenRouter takes Google's word in its place: one piece, by the name of the first
    call."""
    for block in message.thinking if message.agent == access.name else ():
        given = parse_json(block.data) if arguments_object(block.data) else {}
        if given.get("type") == REASONING_DETAILS:
            found: JsonValue = given.get(REASONING_DETAILS)
            return found
    if message.calls and access.host == "openrouter.ai" and _signs(access.model):
        piece: dict[str, JsonValue] = {
            "type": "reasoning.encrypted",
            "data": SKIP_SIGNATURE,
            "format": SIGNATURE_FORMAT,
            "index": 0,
        }
        return [{**piece, "id": message.calls[0].id}]
    return None


def call_signatures(message: FromAgent, access: ModelEndpoint) -> list[JsonValue]:
    """What goes back beside each call of the message; None where nothing does."""
    known: list[JsonValue] = []
    for block in message.thinking if message.agent == access.name else ():
        given = arguments_object(block.data)
        calls = given.get("calls") if given and given.get("type") == EXTRA_CONTENT else None
        known = parse_json(json.dumps(calls)) if isinstance(calls, list) else known
    found = [known[number] if number < len(known) else None for number in range(len(message.calls))]
    if found and not any(found) and _validates(access):
        found[0] = UNSIGNED
    return found


def _validates(access: ModelEndpoint) -> bool:
    return access.host.endswith("googleapis.com") and _signs(access.model)


def _signs(model: str) -> bool:
    return "gemini" in model and not any(old in model for old in ("gemini-1", "gemini-2"))


POSITION = "after"
"""Characters of text and calls that came before a thought in its message."""

Json = dict[str, JsonValue]


def position(after: tuple[int, int]) -> Json:
    """What is kept beside the provider's own fields; nothing where the thought came first."""
    return {POSITION: [*after]} if any(after) else {}


def in_order(
    message: FromAgent,
    thought: Callable[[Thinking], Json | None],
    words: Callable[[str], list[Json]],
    uses: Callable[[Sequence[Call]], list[Json]],
) -> list[Json]:
    """The message's thoughts, text and calls as the wire's own pieces, in the order in which they
    came.
    """
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
    match (arguments_object(thinking.data) or {}).get(POSITION):
        case [int(said), int(made)]:
            return said, made
    return 0, 0
