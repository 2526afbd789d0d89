"""Compaction: replaces what was said so far by a summary, so that prompts fit. The log keeps
everything.

Between the orchestrator, which calls `shorten` before a call that would not fit, an open session's
/compact, and message_history.py, which reads the fact it leaves (`views.shortened`). The user's
requests are kept word for word, a call is never parted from its result, and the summary says what
it stands for. Knows no provider.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fugu_cli import prompts
from fugu_cli.engine import availability
from fugu_cli.errors import AgentError
from fugu_cli.messages import FromUser, Media, Prompt, Usage
from fugu_cli.providers import Agent, Pause
from fugu_cli.session import views
from fugu_cli.session.costs import usd
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    Finished,
    Member,
    Permitted,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.session.live_events import Waiting
from fugu_cli.session.log import Log
from fugu_cli.tools.result import cut_between_marks

FULL_SHARE = 0.9
"""Share of an agent's context that prompt and reply may take together."""
KEPT_SHARE = 0.3
"""Share of the context that the newest facts, which are kept as they are, may take."""
WORDS = 900
"""Tokens of a summary."""
REQUEST, REQUESTS = 1500, 6000
"""Characters kept of one earlier request, and of all."""
SAID, RAN = 2000, 900
"""Characters of a reply, and of a tool's result, that the summary is written from."""


@dataclass(frozen=True)
class Summarizer:
    """The agent that writes the summary. `check` raises AgentError if a call is too expensive after
    attempts that cost so much.
    """

    member: Member
    agent: Agent
    check: Callable[[Prompt, float], None] = lambda prompt, lost: None


def is_due(events: Sequence[Event], prompt: Prompt, member: Member) -> bool:
    """The prompt is too long for the agent and something can be left out of it.

    A workflow's steps are not looked at: they read nobody's history.
    """
    room = min(prompt.max_tokens, member.context // 4)
    return prompt_tokens(prompt) + room > FULL_SHARE * member.context and is_possible(
        events, member
    )


def is_possible(events: Sequence[Event], member: Member) -> bool:
    """Return whether the newest turn's prompt can be shortened, and there is something to leave
    out.
    """
    turn = views.turns(events)[-1].assigned
    if turn.plan or turn.sees != "all":
        return False
    return boundary(events, member) is not None


def with_shown_limit(
    events: Sequence[Event], prompt: Prompt, member: Member, error: AgentError
) -> Member | None:
    """The agent as its server has shown it, where it found the prompt too long and something can be
    left out of it: it reads less than was said, or the guess was too low. None where it failed for
    another reason, or was paid for."""
    if not error.too_long or error.usage not in (None, Usage()):
        return None
    less = member.model_copy(update={"context": min(member.context, prompt_tokens(prompt))})
    return less if is_possible(events, less) else None


def prompt_tokens(prompt: Prompt) -> int:
    """Tokens of a prompt, guessed."""
    said = sum(views.byte_size(message.model_dump_json()) for message in prompt.messages)
    offered = sum(
        views.byte_size(tool.description) + views.byte_size(tool.parameters)
        for tool in prompt.tools
    )
    shown = sum(one.tokens for one in prompt.media)
    return int((views.byte_size(prompt.system) + said + offered) / views.BYTES) + shown


def boundary(events: Sequence[Event], member: Member) -> int | None:
    """The newest line that a summary would stand for in the middle of a request; None when nothing
    is gained.

    The earliest place after which all that is kept takes little of the agent's context; always
    before a reply, so that every call that is kept has its result.
    """
    newest = views.newest_compaction(events)
    first = newest.upto + 1 if newest else 0
    starts = [i for i in range(first, len(events)) if isinstance(events[i], Asked)]
    begin = starts[-1] if starts else first
    places = [
        i
        for i in range(max(begin, first + 1), len(events))
        if isinstance(events[i], Asked | Replied)
    ]
    whole = [place for place in places if _parts_nothing(events, begin, place)]
    room, inside = KEPT_SHARE * member.context * views.BYTES, views.lines_of_subtasks(events)
    sizes = [
        0 if place in inside else views.prompt_bytes(event) for place, event in enumerate(events)
    ]
    fits = next(
        (place for place in whole if sum(sizes[place:]) <= room), whole[-1] if whole else None
    )
    if fits is None or not any(
        isinstance(event, Replied | ToolRan) for event in events[first:fits]
    ):
        return None
    return fits - 1


def _parts_nothing(events: Sequence[Event], begin: int, place: int) -> bool:
    """No call made before `place` is judged or answered after it."""
    made = {
        call.id
        for event in events[begin:place]
        if isinstance(event, Replied)
        for call in event.calls
    }
    later = (event.call.id for event in events[place:] if isinstance(event, Permitted | ToolRan))
    again = {
        call.id for event in events[place:] if isinstance(event, Replied) for call in event.calls
    }
    return not any(id in made and id not in again for id in later)


async def compact(log: Log, scribes: Sequence[Summarizer], upto: int) -> Compacted:
    """Let the first scribe who can sum up everything up to line `upto`, and record it. Raises
    StorageError.

    Where nobody can, or one was paid and said nothing, the facts themselves are listed: who asked
    for what, what was answered and changed.
    """
    events = log.events
    written: Compacted | None = None
    for scribe in scribes:
        log.tell(Waiting(why=f"{scribe.member.name} sums up what was said so far"))
        written = await _written(log, scribe, upto)
        if written is not None:
            break
    fact = written or Compacted(summary=summary_without_model(events[: upto + 1]), upto=upto)
    fact = fact.model_copy(update={"summary": f"{fact.summary}\n\n{_words(events, upto)}".strip()})
    log.append(fact)
    return fact


async def _written(log: Log, scribe: Summarizer, upto: int) -> Compacted | None:
    events, name = log.events, scribe.member.name
    room = int(max(scribe.member.context - 2 * WORDS, WORDS) * FULL_SHARE * 3)
    prompt = Prompt(
        system=prompts.load("compact"),
        messages=(FromUser(text=_fitting(transcript(events, upto), room)),),
        max_tokens=WORDS,
    )
    started = time.monotonic()

    def wait(pause: Pause) -> None:
        scribe.check(prompt, usd(pause.used, scribe.member.price))
        log.tell(availability.waiting_event(pause, 0, name))

    try:
        scribe.check(prompt, 0.0)
        reply = await scribe.agent.reply(prompt, lambda text: None, wait)
        said, used = reply.text.strip(), reply.usage
    except AgentError as error:
        said, used = "", error.usage or Usage()
    if not said and used == Usage():
        return None
    summary, spent = (
        said or summary_without_model(events[: upto + 1]),
        round(time.monotonic() - started, 3),
    )
    return Compacted(summary=summary, upto=upto, agent=name, usage=used, seconds=spent)


def _fitting(text: str, room: int) -> str:
    """The beginning, which says what it is about, and the end, which says where it stands. `room`
    in bytes.
    """
    if (size := views.byte_size(text)) <= room:
        return text
    room = room * len(text) // size
    head, tail = (
        text[: cut_between_marks(text, room // 5)],
        text[cut_between_marks(text, len(text) - room * 4 // 5) :],
    )
    return (
        f"{head}\n\n[... {len(text) - len(head) - len(tail):,} characters left out ...]\n\n{tail}"
    )


def transcript(events: Sequence[Event], upto: int) -> str:
    """Return the text that a summary is written from: the summary before it, and the events since.
    Pure.
    """
    earlier = views.newest_compaction(events[: upto + 1])
    first = earlier.upto + 1 if earlier else 0
    lines = [f"The summary so far:\n{earlier.summary}"] if earlier else []
    now = views.asked(events[:first])
    if now is not None and not any(isinstance(event, Asked) for event in events[first : upto + 1]):
        lines.append(f"THE REQUEST THAT IS BEING WORKED ON: {_clipped(now.text, SAID)}")
    inside = views.lines_of_subtasks(events)
    lines += [
        said for at in range(first, upto + 1) if at not in inside and (said := _said(events[at]))
    ]
    return "\n\n".join(lines)


def _said(event: Event) -> str:
    match event:
        case Asked():
            return f"THE USER ASKED: {_clipped(event.text, SAID)}{_media_lines(event.media)}"
        case Assigned():
            return f"-- {event.agent} as {event.role} {event.instruction}".rstrip()
        case Replied():
            calls = "".join(
                f"\n[calls {call.tool} {_clipped(call.arguments, RAN)}]" for call in event.calls
            )
            return f"{event.agent}: {_clipped(event.text.strip(), SAID)}{calls}"
        case ToolRan():
            said = _clipped(event.output.strip(), RAN) + _media_lines(event.media)
            return f"[{event.call.tool} {'ok' if event.ok else 'FAILED'}]\n{said}"
        case Permitted(allowed=False):
            return f"[{event.call.tool} was not allowed: {event.reason}]"
        case Failed() | Undone() | Finished():
            return _happened(event)
        case _:
            return ""


def _media_lines(media: Sequence[Media]) -> str:
    """Pictures and PDFs as a summary may tell of them: named, a PDF with the beginning of its
    text.
    """
    return "".join(
        f"\n[{one.described}]" + (f"\n{_clipped(one.text, RAN)}" if one.text else "")
        for one in media
    )


def _happened(event: Failed | Undone | Finished) -> str:
    match event:
        case Failed():
            return f"[{event.what} failed: {event.message}]"
        case Undone():
            return f"[the files were put back: {event.words}]"
        case Finished():
            return f"[the request ended: {event.reason}. {event.message}]"


def _clipped(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return (
        f"{text[: cut_between_marks(text, limit // 2)]} [...] "
        f"{text[cut_between_marks(text, len(text) - limit // 2) :]}"
    )


def summary_without_model(events: Sequence[Event]) -> str:
    """A summary without a model: what was answered and changed, request by request. Pure."""
    lines = []
    for number, facts in enumerate(views.requests(events), start=1):
        changed = ", ".join(sorted(views.changes(facts))) or "nothing"
        lines.append(
            f"Request {number}: changed {changed}. Answer: "
            f"{_clipped(views.answer(facts).strip(), 600)}"
        )
    return "\n".join(lines)


def _words(events: Sequence[Event], upto: int) -> str:
    """The requests the summary stands for, word for word, and how much else it does. Pure."""
    past = events[: upto + 1]
    _, kept = views.after_compaction((*events, Compacted(summary="", upto=upto)))
    asked = [
        event
        for event in past
        if isinstance(event, Asked) and not any(event is fact for fact in kept)
    ]
    said = [
        f"{number}. {_clipped(event.text.strip(), REQUEST)}"
        for number, event in enumerate(asked, start=1)
    ]
    text = _clipped("\n".join(said), REQUESTS)
    replies = sum(isinstance(event, Replied) for event in past)
    results = [len(event.output) for event in past if isinstance(event, ToolRan)]
    dropped = (
        f"[Left out above: {replies} replies and {len(results)} tool results of {sum(results):,} "
        f"characters. "
        "Files may not be as they were then: read one before you change it.]"
    )
    return "\n\n".join(
        part
        for part in (f"The user asked, word for word:\n{text}" if said else "", dropped)
        if part
    )
