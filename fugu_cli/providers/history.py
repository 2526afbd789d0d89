"""Turns any list of messages into one that every provider accepts. The only place where a history
is repaired.

A log may hold anything: a turn cut in the middle, replies of five providers, results whose calls
were compacted away. Stands before every wire's encoder and before the two protocols for models
without tools. Pure. It knows no wire's field names. What `closed` promises:

1. messages of the user and of agents alternate, the first and the last are not an agent's; 2. an
agent's calls are followed at once by one result for each, in the order of the calls, and by nothing
else; there
   are no other results; 3. call ids are unique and match ID, tool names match NAME, arguments are
the JSON text of an object; 4. no text is blank (an agent that only calls, and pictures alone, have
none at all), no thinking is another agent's.

A longer history is repaired like its beginning, except at the seam: prompt caches hold.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence

from fugu_cli.messages import (
    Call,
    FromAgent,
    FromTool,
    FromUser,
    Media,
    Message,
    Prompt,
    with_call_ids,
)
from fugu_cli.system.bounded_json import parse_json

ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""Ids that OpenAI (at most 40 characters) and Anthropic (this alphabet) both take."""

SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")
"""Ids that Mistral takes."""

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

INTERRUPTED = "interrupted: this call has no result"
NO_OUTPUT = "(no output)"
BEGIN = "(The conversation so far begins with an agent's reply.)"
GO_ON = "Go on."
RESULTS_READ = "(The results have been read.)"

CallAsText = Callable[[Call], Sequence[Message]]
"""How a call reads as plain text: what the agent wrote, and what it was asked in between."""


def normalized(messages: Sequence[Message], agent: str) -> tuple[Message, ...]:
    """`messages` in the form above, for the agent named `agent`: thinking of any other is
    dropped.
    """
    paired = _Pairing(agent).over(messages)
    return tuple(_alternating(paired))


def as_plain_text(messages: Sequence[Message], show: CallAsText) -> tuple[Message, ...]:
    """`messages` without calls and results: both as text, in the form above. For models without
    tools.
    """
    texts: list[Message] = []
    for message in normalized(messages, agent=""):
        match message:
            case FromAgent():
                texts.append(message.model_copy(update={"calls": ()}))
                for call in message.calls:
                    texts += show(call)
            case FromTool():
                texts.append(FromUser(text=result_text(message), media=message.media))
            case FromUser():
                texts.append(message)
    return tuple(_alternating(texts))


def with_short_ids(messages: Sequence[Message]) -> tuple[Message, ...]:
    """A closed history whose call ids are nine letters and digits: those that are something else
    are renamed.
    """

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
    """A closed history in which an agent has a word between results and what the user says next."""
    done: list[Message] = []
    for message in messages:
        if isinstance(message, FromUser) and done and isinstance(done[-1], FromTool):
            done.append(FromAgent(agent="", text=RESULTS_READ))
        done.append(message)
    return tuple(done)


PICTURES_OF_RESULTS = "[Of the results above: {names}]"


def with_media_behind_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """A closed history in which results are text alone: the user shows their pictures behind
    them.
    """
    done: list[Message] = []
    held: tuple[Media, ...] = ()
    for message in messages:
        if isinstance(message, FromTool):
            held += message.media
            done.append(message.model_copy(update={"media": ()}))
            continue
        if held:
            done.append(_of_results(held))
        done.append(message)
        held = ()
    return tuple(_alternating([*done, _of_results(held)] if held else done))


def _of_results(media: Sequence[Media]) -> FromUser:
    return FromUser(
        text=PICTURES_OF_RESULTS.format(names=", ".join(one.described for one in media)),
        media=tuple(media),
    )


def _said_together(first: FromUser, then: FromUser) -> FromUser:
    return FromUser(
        text="\n\n".join(filter(str.strip, (first.text, then.text))),
        media=(*first.media, *then.media),
    )


def _short(id: str) -> str:
    return id if SHORT_ID.fullmatch(id) else hashlib.sha256(id.encode()).hexdigest()[:9]


def result_text(result: FromTool) -> str:
    """A result as a user's text."""
    verdict = "Result" if result.ok else "Failure"
    return f"{verdict} of {result.tool or 'a tool'}:\n{result.text}"


def call_id(prompt: Prompt, number: int) -> str:
    """An id for call `number` of the reply to `prompt`, for servers and protocols that give none.

    Made from the prompt: the same for the same call, another for any other, so that a replay gives
    equal logs.
    """
    return f"call_{hashlib.sha256(prompt.model_dump_json().encode('utf-8', 'replace')).hexdigest()[:12]}_{number}"


def join_surrogates(text: str) -> str:
    """What was streamed in pieces, some of which ended in half of a character: halves that belong
    together joined, any other a replacement character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def arguments_object(text: str) -> dict[str, object] | None:
    """The arguments a model wrote, if they are a JSON object (a blank text is an empty one), else
    None.
    """
    if not text.strip():
        return {}
    try:
        parsed: object = parse_json(text, parse_constant=refuse_constant)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def refuse_constant(constant: str) -> object:
    """For `json.loads`, which takes NaN and Infinity for numbers. Raises ValueError."""
    raise ValueError(f"{constant} is no JSON")


class _Pairing:
    """Calls meet their results; everything a provider would refuse about either is put right."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._taken: set[str] = set()
        self._done: list[Message] = []
        self._calls: list[tuple[str, Call]] = []
        self._results: dict[str, FromTool] = {}
        self._later: list[Message] = []

    def over(self, messages: Iterable[Message]) -> list[Message]:
        for message in messages:
            match message:
                case FromUser():
                    self._put(message)
                case FromTool():
                    self._take_result(message)
                case FromAgent():
                    self._settle()
                    self._take_reply(message)
        self._settle()
        return self._done

    def _put(self, message: Message) -> None:
        # What is said while calls wait for their results is said after them: nothing may stand
        # between.
        (self._later if self._calls else self._done).append(message)

    def _take_reply(self, message: FromAgent) -> None:
        calls = []
        for call in message.calls:
            repaired = self._repaired(call)
            calls.append(repaired)
            self._calls.append((call.id, repaired))
        own_thinking = message.thinking if message.agent == self._agent else ()
        _, thinking = with_call_ids(message.calls, own_thinking, [call.id for call in calls])
        self._done.append(message.model_copy(update={"thinking": thinking, "calls": tuple(calls)}))

    def _take_result(self, result: FromTool) -> None:
        text = result.text if result.text.strip() else NO_OUTPUT
        for original, call in self._calls:
            if original == result.call and call.id not in self._results:
                update = {"call": call.id, "tool": call.tool, "text": text}
                self._results[call.id] = result.model_copy(update=update)
                return
        self._put(
            FromUser(text=result_text(result.model_copy(update={"text": text})), media=result.media)
        )

    def _settle(self) -> None:
        for _, call in self._calls:
            missing = FromTool(call=call.id, tool=call.tool, text=INTERRUPTED, ok=False)
            self._done.append(self._results.get(call.id, missing))
        self._done += self._later
        self._calls, self._results, self._later = [], {}, []

    def _repaired(self, call: Call) -> Call:
        parsed = arguments_object(call.arguments)
        tool = (
            call.tool
            if NAME.fullmatch(call.tool)
            else re.sub(r"[^a-zA-Z0-9_-]", "_", call.tool)[:64] or "unnamed"
        )
        arguments = {"malformed_arguments": call.arguments} if parsed is None else parsed
        return Call(
            id=self._fresh(call.id), tool=tool, arguments=json.dumps(arguments, ensure_ascii=False)
        )

    def _fresh(self, wanted: str) -> str:
        chosen, number = wanted, len(self._taken)
        while chosen in self._taken or not ID.fullmatch(chosen):
            chosen, number = f"call_{number}", number + 1
        self._taken.add(chosen)
        return chosen


def _alternating(messages: Iterable[Message]) -> list[Message]:
    """Rules 1 and 4: blanks dropped, neighbours of one side joined, a user's words at both ends."""
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        match message, last:
            case FromUser(), _ if not message.text.strip() and not message.media:
                continue
            case FromAgent(), _ if not message.text.strip() and not message.calls:
                continue
            case FromUser(), FromUser():
                joined[-1] = _said_together(last, message)
            case FromAgent(), FromAgent():
                joined[-1] = _merged(last, message)
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


def _merged(earlier: FromAgent, later: FromAgent) -> FromAgent:
    # The later block belongs to the calls that follow; a provider checks those and forgets earlier
    # ones.
    texts = [part.text for part in (earlier, later) if part.text.strip()]
    return FromAgent(
        agent=later.agent if later.thinking else earlier.agent,
        text="\n\n".join(texts),
        thinking=later.thinking or earlier.thinking,
        calls=later.calls,
    )
