"""What some servers put beside a tool call and want back with it, unread: Google's thought signatures.

Beside openai.py and openai_stream.py. Kept as an opaque thinking block of the reply, returned to the same agent only.
Gemini 3 and later refuse a call of theirs without its signature; for calls that another agent made they take a word in
its place (https://ai.google.dev/gemini-api/docs/thought-signatures). Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import JsonValue

from fugu_cli.agents.access import Access
from fugu_cli.agents.history import arguments_object
from fugu_cli.messages import FromAgent, Thinking

KIND = "extra_content"
UNSIGNED: JsonValue = {"google": {"thought_signature": "skip_thought_signature_validator"}}


def kept(extras: Sequence[JsonValue]) -> tuple[Thinking, ...]:
    """The block that keeps what came beside the calls, in their order; none where nothing came."""
    if not any(extras):
        return ()
    return (Thinking(data=json.dumps({"type": KIND, "calls": [*extras]}, ensure_ascii=False)),)


def returned(message: FromAgent, access: Access) -> list[JsonValue]:
    """What goes back beside each call of the message; None where nothing does."""
    known: list[JsonValue] = []
    for block in message.thinking if message.agent == access.name else ():
        given = arguments_object(block.data)
        calls = given.get("calls") if given and given.get("type") == KIND else None
        known = json.loads(json.dumps(calls)) if isinstance(calls, list) else known
    found = [known[number] if number < len(known) else None for number in range(len(message.calls))]
    if found and not any(found) and _validates(access):
        found[0] = UNSIGNED
    return found


def _validates(access: Access) -> bool:
    here = access.host.endswith("googleapis.com")
    return here and "gemini" in access.model and not any(old in access.model for old in ("gemini-1", "gemini-2"))
