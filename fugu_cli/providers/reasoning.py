"""Keeps a model's reasoning so that it can go back to the same agent: think tags in the text,
thought signatures and sealed reasoning, and their order among text and calls.

Each block is kept as the provider's own JSON, because a changed byte makes its signature invalid.
Gemini 3 and later refuse a call without its signature; for calls of another agent they accept a
fixed word instead (https://ai.google.dev/gemini-api/docs/thought-signatures). Behind OpenRouter,
signatures travel as `reasoning_details` of the whole reply. Reasoning that is not signed goes back
inside a tool loop, in the field in which it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from pydantic import JsonValue

from fugu_cli.messages import Call, FromAgent, FromUser, Message, Thinking
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.history import arguments_object
from fugu_cli.system.bounded_json import parse_json

Json = dict[str, JsonValue]

OPENS, CLOSES = "<think>", "</think>"
CLOSING_ALONE = re.compile(r"(.*?)\n</think>[ \t]*\n+", re.DOTALL)


class ThinkTagParser:
    """Separates the answer from reasoning in think tags while a reply is streamed."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._held: list[str] = []
        """Text that is, or may be, the beginning of the reasoning."""
        self._tail = ""
        """The end of open reasoning, which may hold a part of the closing tag; "" if none is open."""
        self._thought = ""
        self._blank = True
        """True until anything but white space has arrived."""
        self._begins = self._decided = False

    def feed(self, text: str) -> str:
        """Return the part of `text` that can be shown. A possible beginning of reasoning is held
        back.
        """
        if not self._decided:
            text = self._decide(text)
        elif self._begins:
            text = text.lstrip()
        self._begins = self._begins and not text
        if text:
            self._shown.append(text)
        return text

    def parts(self) -> tuple[str, str]:
        """Return the answer and the reasoning before it. Reasoning without an end counts as answer."""
        text = "".join((*self._shown, *self._held))
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
        pending = "".join(self._held)
        stripped = pending.lstrip()
        if not stripped.startswith(OPENS) and not OPENS.startswith(stripped):
            self._held, self._decided = [], True
            return pending
        thought, closed, answer = stripped.removeprefix(OPENS).partition(CLOSES)
        if not closed:
            self._tail = stripped[-len(CLOSES) :] if stripped.startswith(OPENS) else ""
            return ""
        self._held, self._decided, self._begins = [], True, True
        self._thought = thought.strip()
        return answer.lstrip()


FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
"""The fields of a message in which servers send reasoning text."""
CONTENT = "content"
"""The field of reasoning that came in think tags, as a part of the text."""
CONTENT_PARTS = "content.thinking"
"""The field of reasoning that came as parts of the content beside the text, as Mistral sends it."""


def add_reasoning_text(encoded: Json, message: FromAgent) -> None:
    """Put the message's reasoning text into the fields in which it came."""
    texts: dict[str, list[str]] = {}
    for block in message.thinking:
        if block.text:
            texts.setdefault(block.field, []).append(block.text)
    for field, parts in texts.items():
        text = "\n".join(parts)
        if field == CONTENT:
            encoded[CONTENT] = f"{OPENS}\n{text}\n{CLOSES}\n\n{encoded[CONTENT] or ''}"
        elif field in FIELDS:
            encoded[field] = text
        elif field == CONTENT_PARTS:
            parts_of_thought: JsonValue = [{"type": "text", "text": text}]
            content: list[JsonValue] = [{"type": "thinking", "thinking": parts_of_thought}]
            if encoded[CONTENT]:
                content.append({"type": "text", "text": encoded[CONTENT]})
            encoded[CONTENT] = content


def loop_replies(messages: Sequence[Message], history: Sequence[Message]) -> set[int]:
    """Return the indices in `history` of the replies with calls since the user's last message.
    `history` is the normalized form of `messages`.
    """
    count = 0
    for message in reversed(messages):
        if isinstance(message, FromUser):
            break
        count += isinstance(message, FromAgent) and bool(message.calls)
    replies = [
        index
        for index, message in enumerate(history)
        if isinstance(message, FromAgent) and message.calls
    ]
    return set(replies[len(replies) - count :])


EXTRA_CONTENT = "extra_content"
REASONING_DETAILS = "reasoning_details"
SKIP_SIGNATURE = "skip_thought_signature_validator"
SIGNATURE_FORMAT = "google-gemini-v1"
UNSIGNED: JsonValue = {"google": {"thought_signature": SKIP_SIGNATURE}}


def sealed_blocks(
    extras: Sequence[JsonValue], details: Sequence[dict[str, JsonValue]]
) -> tuple[Thinking, ...]:
    """Return blocks that keep `extras`, which came with the calls, and `details`, the pieces of
    sealed reasoning.
    """
    blocks: list[JsonValue] = []
    if any(extras):
        blocks.append({"type": EXTRA_CONTENT, "calls": [*extras]})
    if details:
        blocks.append({"type": REASONING_DETAILS, REASONING_DETAILS: [*_joined(details)]})
    return tuple(Thinking(data=json.dumps(block, ensure_ascii=False)) for block in blocks)


def _joined(details: Sequence[dict[str, JsonValue]]) -> list[dict[str, JsonValue]]:
    """Join the pieces of a streamed text, which have the same type and index. Other pieces stay
    alone.
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
            fields = {key: value for key, value in piece.items() if value is not None}
            whole[-1] = {**last, **fields, part: f"{last.get(part) or ''}{piece.get(part) or ''}"}
        else:
            whole.append(piece)
    return whole


def sealed_reasoning(message: FromAgent, endpoint: ModelEndpoint) -> JsonValue:
    """Return the sealed reasoning that goes back with the message, None if there is none.

    For calls of another agent, OpenRouter accepts Google's fixed word: one piece with the id of the
    first call.
    """
    for block in message.thinking if message.agent == endpoint.name else ():
        data = parse_json(block.data) if arguments_object(block.data) else {}
        if data.get("type") == REASONING_DETAILS:
            details: JsonValue = data.get(REASONING_DETAILS)
            return details
    if message.calls and endpoint.host == "openrouter.ai" and _signs(endpoint.model):
        return [
            {
                "type": "reasoning.encrypted",
                "data": SKIP_SIGNATURE,
                "format": SIGNATURE_FORMAT,
                "index": 0,
                "id": message.calls[0].id,
            }
        ]
    return None


def call_signatures(message: FromAgent, endpoint: ModelEndpoint) -> list[JsonValue]:
    """Return the signature that goes back with each call of the message, None for calls without."""
    stored: list[JsonValue] = []
    for block in message.thinking if message.agent == endpoint.name else ():
        data = arguments_object(block.data)
        calls = data.get("calls") if data and data.get("type") == EXTRA_CONTENT else None
        if isinstance(calls, list):
            stored = parse_json(json.dumps(calls))
    count = len(message.calls)
    signatures: list[JsonValue] = [*stored[:count], *[None] * (count - len(stored))]
    requires_signature = endpoint.host.endswith("googleapis.com") and _signs(endpoint.model)
    if signatures and not any(signatures) and requires_signature:
        signatures[0] = UNSIGNED
    return signatures


def _signs(model: str) -> bool:
    return "gemini" in model and not any(old in model for old in ("gemini-1", "gemini-2"))


POSITION = "after"
"""The field with the numbers of characters and calls before a thought in its message."""


def position(characters: int, calls: int) -> Json:
    """Return the field with a thought's position, nothing for a thought that came first."""
    return {POSITION: [characters, calls]} if characters or calls else {}


def in_order(
    message: FromAgent,
    encode_thought: Callable[[Thinking], Json | None],
    encode_text: Callable[[str], list[Json]],
    encode_calls: Callable[[Sequence[Call]], list[Json]],
) -> list[Json]:
    """Encode the message's reasoning, text and calls in the order in which they arrived."""
    pieces: list[Json] = []
    text_done = calls_done = 0
    for thinking in message.thinking:
        thought = encode_thought(thinking)
        if thought is not None:
            text_before, calls_before = _position_of(thinking)
            pieces += encode_text(message.text[text_done:text_before])
            pieces += encode_calls(message.calls[calls_done:calls_before])
            pieces.append(thought)
            text_done = max(text_done, text_before)
            calls_done = max(calls_done, calls_before)
    return [
        *pieces,
        *encode_text(message.text[text_done:]),
        *encode_calls(message.calls[calls_done:]),
    ]


def _position_of(thinking: Thinking) -> tuple[int, int]:
    match (arguments_object(thinking.data) or {}).get(POSITION):
        case [int(characters), int(calls)]:
            return characters, calls
    return 0, 0
