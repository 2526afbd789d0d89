"""Turns any list of messages into one that every provider accepts. Only this module repairs a
history.

A log may hold anything: a turn cut in the middle, replies of five providers, results whose calls
were compacted away. This module stands before every wire's encoder. It is pure, and knows no wire's
field names. `normalized` promises:

1. Messages of the user and of agents alternate; the first and the last are not an agent's.

2. An agent's calls are followed at once by one result for each, in the order of the calls, and by
nothing else. There are no other results.

3. Call ids are unique and match ID, tool names match NAME, arguments are the JSON text of an
object.

4. No text is blank (a reply with calls only, or a message with pictures only, has none), and no
reasoning is another agent's.

A longer history is repaired like its beginning, except at the seam, so prompt caches keep working.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence

from fugu_cli.messages import (
    INTERRUPTED,
    Call,
    FromAgent,
    FromTool,
    FromUser,
    Media,
    Message,
    Prompt,
    with_call_ids,
)
from fugu_cli.system.bounded_json import parse_json, refuse_constant

ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""Ids that both OpenAI (at most 40 characters) and Anthropic (this alphabet) accept."""

SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")
"""Ids that Mistral accepts."""

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

NO_OUTPUT = "(no output)"
BEGIN = "(The conversation so far begins with an agent's reply.)"
GO_ON = "Go on."
RESULTS_READ = "(The results have been read.)"


def normalized(messages: Sequence[Message], agent: str) -> tuple[Message, ...]:
    """Return `messages` in the form above for the agent named `agent`. Reasoning of other agents is
    dropped.
    """
    paired = _Pairing(agent).pair(messages)
    return tuple(_alternating(paired))


def with_short_ids(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a normalized history with call ids of nine letters and digits."""

    def renamed(message: Message) -> Message:
        match message:
            case FromAgent():
                ids = [_short(call.id) for call in message.calls]
                calls, thinking = with_call_ids(message.calls, message.thinking, ids)
                return message.model_copy(update={"calls": calls, "thinking": thinking})
            case FromTool():
                return message.model_copy(update={"call": _short(message.call)})
            case FromUser():
                return message

    return tuple(renamed(message) for message in messages)


def with_agent_between(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a normalized history in which an agent speaks between results and the user's next
    message.
    """
    done: list[Message] = []
    for message in messages:
        if isinstance(message, FromUser) and done and isinstance(done[-1], FromTool):
            done.append(FromAgent(agent="", text=RESULTS_READ))
        done.append(message)
    return tuple(done)


PICTURES_OF_RESULTS = "[Of the results above: {names}]"


def with_media_behind_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a normalized history in which results are text only: a user's message after them shows
    their media.
    """
    done: list[Message] = []
    media: tuple[Media, ...] = ()
    for message in messages:
        if isinstance(message, FromTool):
            media += message.media
            done.append(message.model_copy(update={"media": ()}))
            continue
        if media:
            done.append(_media_message(media))
        done.append(message)
        media = ()
    return tuple(_alternating([*done, _media_message(media)] if media else done))


def _media_message(media: Sequence[Media]) -> FromUser:
    return FromUser(
        text=PICTURES_OF_RESULTS.format(names=", ".join(item.described for item in media)),
        media=tuple(media),
    )


def _short(id: str) -> str:
    return id if SHORT_ID.fullmatch(id) else hashlib.sha256(id.encode()).hexdigest()[:9]


def result_text(result: FromTool) -> str:
    """Return a result as the text of a user's message."""
    verdict = "Result" if result.ok else "Failure"
    return f"{verdict} of {result.tool or 'a tool'}:\n{result.text}"


def call_id(prompt: Prompt, number: int) -> str:
    """Return an id for call `number` of the reply to `prompt`, for servers and protocols without ids.

    It is made from the prompt, so that a replay gives equal logs.
    """
    digest = hashlib.sha256(prompt.model_dump_json().encode("utf-8", "replace")).hexdigest()
    return f"call_{digest[:12]}_{number}"


def join_surrogates(text: str) -> str:
    """Join the halves of characters that were streamed in two pieces. A lone half becomes a
    replacement character.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def arguments_object(text: str) -> dict[str, object] | None:
    """Return the arguments of a call if they are a JSON object (blank text is an empty one), else
    None.
    """
    if not text.strip():
        return {}
    try:
        parsed: object = parse_json(text, parse_constant=refuse_constant)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


class _Pairing:
    """Pairs calls with their results, and repairs everything about either that a provider would
    refuse.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._used_ids: set[str] = set()
        self._done: list[Message] = []
        self._calls: list[tuple[str, Call]] = []
        self._results: dict[str, FromTool] = {}
        self._later: list[Message] = []

    def pair(self, messages: Iterable[Message]) -> list[Message]:
        for message in messages:
            match message:
                case FromUser():
                    self._add(message)
                case FromTool():
                    self._add_result(message)
                case FromAgent():
                    self._finish_calls()
                    calls = []
                    for call in message.calls:
                        repaired = self._repaired(call)
                        calls.append(repaired)
                        self._calls.append((call.id, repaired))
                    own_thinking = message.thinking if message.agent == self._agent else ()
                    _, thinking = with_call_ids(
                        message.calls, own_thinking, [call.id for call in calls]
                    )
                    self._done.append(
                        message.model_copy(update={"thinking": thinking, "calls": tuple(calls)})
                    )
        self._finish_calls()
        return self._done

    def _add(self, message: Message) -> None:
        # A message between calls and their results is moved behind the results.
        (self._later if self._calls else self._done).append(message)

    def _add_result(self, result: FromTool) -> None:
        text = result.text if result.text.strip() else NO_OUTPUT
        for original, call in self._calls:
            if original == result.call and call.id not in self._results:
                update = {"call": call.id, "tool": call.tool, "text": text}
                self._results[call.id] = result.model_copy(update=update)
                return
        self._add(
            FromUser(text=result_text(result.model_copy(update={"text": text})), media=result.media)
        )

    def _finish_calls(self) -> None:
        for _, call in self._calls:
            missing = FromTool(call=call.id, tool=call.tool, text=INTERRUPTED, ok=False)
            self._done.append(self._results.get(call.id, missing))
        self._done += self._later
        self._calls, self._results, self._later = [], {}, []

    def _repaired(self, call: Call) -> Call:
        parsed = arguments_object(call.arguments)
        tool = call.tool
        if not NAME.fullmatch(tool):
            tool = re.sub(r"[^a-zA-Z0-9_-]", "_", tool)[:64] or "unnamed"
        arguments = {"malformed_arguments": call.arguments} if parsed is None else parsed
        return Call(
            id=self._unique_id(call.id),
            tool=tool,
            arguments=json.dumps(arguments, ensure_ascii=False),
        )

    def _unique_id(self, id: str) -> str:
        unique, number = id, len(self._used_ids)
        while unique in self._used_ids or not ID.fullmatch(unique):
            unique, number = f"call_{number}", number + 1
        self._used_ids.add(unique)
        return unique


def _alternating(messages: Iterable[Message]) -> list[Message]:
    """Enforce rules 1 and 4: drop blank messages, join neighbours of one side, begin and end with a
    user's message.
    """
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        match message, last:
            case FromUser(), _ if not message.text.strip() and not message.media:
                continue
            case FromAgent(), _ if not message.text.strip() and not message.calls:
                continue
            case FromUser(), FromUser():
                joined[-1] = FromUser(
                    text="\n\n".join(filter(str.strip, (last.text, message.text))),
                    media=(*last.media, *message.media),
                )
            case FromAgent(), FromAgent():
                # The later reasoning belongs to the calls that follow. Providers check it, and
                # ignore earlier reasoning.
                texts = [part.text for part in (last, message) if part.text.strip()]
                joined[-1] = FromAgent(
                    agent=message.agent if message.thinking else last.agent,
                    text="\n\n".join(texts),
                    thinking=message.thinking or last.thinking,
                    calls=message.calls,
                )
            case FromAgent(), _:
                if last is None:
                    joined.append(FromUser(text=BEGIN))
                joined.append(
                    message if message.text.strip() else message.model_copy(update={"text": ""})
                )
            case _:
                joined.append(message)
    if not joined or isinstance(joined[-1], FromAgent):
        joined.append(FromUser(text=GO_ON))
    return joined
