"""Compaction: replaces what was said so far by a summary, so that prompts fit. The log keeps
everything.

turn.py calls `compact` before a call that would not fit, and an open session for /compact.
message_history.py reads the event it leaves (`SessionState.shown_requests`). The user's requests are
kept word for word, a call is never parted from its result, and the summary says what it stands for.
Knows no provider.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fugu_cli import prompts
from fugu_cli.engine import availability
from fugu_cli.errors import AgentError
from fugu_cli.messages import FromAgent, FromTool, FromUser, Message, Prompt, Usage
from fugu_cli.providers import Agent, Pause
from fugu_cli.session.costs import usd
from fugu_cli.session.events import (
    Asked,
    Compacted,
    Event,
    Member,
    Permitted,
    Replied,
    ToolRan,
)
from fugu_cli.session.live_events import Waiting
from fugu_cli.session.log import Log
from fugu_cli.session.open_work import BYTES, byte_size, prompt_bytes
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn
from fugu_cli.tools.result import cut_between_marks

FULL_SHARE = 0.9
"""Share of an agent's context that prompt and reply may take together."""
KEPT_SHARE = 0.3
"""Share of the context that the newest events, which are kept as they are, may take."""
SUMMARY_ROOM = 12_288
"""Tokens of the reply that is a summary: some 4,000 of it, and what is thought before."""
MOST_ATTEMPTS = 2
MOST_IN_A_ROW = 2
"""Summaries in a turn without a change between them, before a larger agent is asked."""
LONGEST_PIECE, SHORTEST_PIECE = 65_536, 64
"""Characters of a result that may stay where the conversation must be cut for its summary."""
REQUEST, REQUESTS = 1500, 6000
"""Characters kept of one earlier request, and of all."""
REQUESTED = "The user asked, word for word:\n"
LEFT_OUT = "[Left out above: "
UNWRITTEN = "(No memory of this part could be written. This much is known without it:)"


@dataclass(frozen=True)
class Summarizer:
    """The agent that writes the summary, from its own `conversation`. `check` raises AgentError if
    a call is too expensive after attempts that cost so much.
    """

    member: Member
    agent: Agent
    conversation: Prompt
    check: Callable[[Prompt, float], None] = lambda prompt, lost: None


def is_due(state: SessionState, prompt: Prompt, member: Member, tokens: int) -> bool:
    """Return whether the prompt of so many tokens is too long for the agent and something can be left
    out of it.

    A workflow's steps are not summed up: they read no history. Nor are agents whose models call no
    tools: they choose what of the prompt their model reads.
    """
    if member.protocol != "native":
        return False
    reply_tokens = min(prompt.max_tokens, member.context // 4)
    is_full = tokens + reply_tokens > FULL_SHARE * member.context
    return is_full and is_possible(state, member)


def is_possible(state: SessionState, member: Member) -> bool:
    """Return whether the newest turn's prompt can be shortened, and there is something to leave
    out.
    """
    turn = state.request.turns[-1].assigned
    if turn.plan or turn.sees != "all":
        return False
    return boundary(state, member) is not None


def with_shown_limit(
    state: SessionState, prompt: Prompt, member: Member, error: AgentError
) -> Member | None:
    """Return the agent with a smaller context, if its server refused the prompt as too long and the
    prompt can be shortened. None for other failures, and for calls that were paid.

    The server may allow less than the configuration says, or the estimate of the tokens was too
    low.
    """
    if not error.too_long or error.usage not in (None, Usage()):
        return None
    less = member.model_copy(update={"context": min(member.context, prompt_tokens(prompt))})
    return less if is_possible(state, less) else None


def is_thrashing(events: Sequence[Event], turn: Turn) -> bool:
    """Return whether the conversation was summed up twice in this turn with no change between."""
    begin = next(at for at, event in enumerate(events) if event is turn.assigned)
    count = 0
    for event in events[begin:]:
        if isinstance(event, Compacted):
            count += 1
        elif isinstance(event, ToolRan) and event.changes:
            count = 0
    return count >= MOST_IN_A_ROW


def within_window(prompt: Prompt, member: Member, tokens: int) -> Prompt:
    """Return the prompt of so many tokens with its reply limited to what it leaves of the agent's
    context, but to a quarter of that at least.
    """
    left = max(member.context - tokens, member.context // 4)
    return prompt.model_copy(update={"max_tokens": min(prompt.max_tokens, left)})


def prompt_tokens(prompt: Prompt) -> int:
    """Estimate the tokens of a prompt."""
    return int(_tokens_beside_messages(prompt) + sum(map(_message_tokens, prompt.messages)))


def _tokens_beside_messages(prompt: Prompt) -> float:
    texts = [prompt.system]
    for tool in prompt.tools:
        texts += tool.description, tool.parameters
    return byte_size("".join(texts)) / BYTES


def _message_tokens(message: Message) -> float:
    tokens = byte_size(message.model_dump_json()) / BYTES
    if not isinstance(message, FromAgent):
        tokens += sum(media.tokens for media in message.media)
    return tokens


def boundary(state: SessionState, member: Member) -> int | None:
    """Return the newest line that a summary in the middle of a request would replace; None if
    nothing is gained.

    It is the earliest line after which the events take little of the agent's context. The next
    event is always a reply, so that every call that is kept has its result.
    """
    newest, events = state.newest_compaction, state.events
    first = newest.upto + 1 if newest else 0
    begin = max(first, len(events) - len(state.request.events))
    kept_bytes = KEPT_SHARE * member.context * BYTES
    kept = None
    size = 0
    for index, is_whole in _places(events, begin):
        if index not in state.lines_of_subtasks:
            size += prompt_bytes(events[index])
        if is_whole and index > first and (kept is None or size <= kept_bytes):
            kept = index
        if size > kept_bytes and kept is not None:
            break
    if kept is None or not any(
        isinstance(event, Replied | ToolRan) for event in events[first:kept]
    ):
        return None
    return kept - 1


def _places(events: Sequence[Event], begin: int) -> Iterator[tuple[int, bool]]:
    """Yield the places from the newest back to `begin`, and whether the events can be parted there:
    before a request or a reply, where no call that was made before is judged or answered after it.
    """
    made = {
        call.id for event in events[begin:] if isinstance(event, Replied) for call in event.calls
    }
    made_later: set[str] = set()
    waiting: set[str] = set()
    for index in range(len(events) - 1, begin - 1, -1):
        event = events[index]
        if isinstance(event, Permitted | ToolRan):
            if event.call.id in made and event.call.id not in made_later:
                waiting.add(event.call.id)
        elif isinstance(event, Replied):
            made_later.update(call.id for call in event.calls)
            waiting -= made_later
        yield index, isinstance(event, Asked | Replied) and not waiting


async def compact(log: Log, scribes: Sequence[Summarizer], upto: int, window: int = 0) -> Compacted:
    """Let the first scribe who can sum up everything up to line `upto`, and record it. Raises
    StorageError. `window`: as in Compacted.

    Where nobody can, or one was paid and said nothing, the events themselves are listed: who asked
    for what, what was answered and changed.
    """
    state = log.state
    written: Compacted | None = None
    for scribe in scribes:
        log.tell(Waiting(why=f"{scribe.member.name} sums up what was said so far"))
        written = await _written(log, scribe, upto)
        if written is not None:
            break
    compacted = written or Compacted(summary=summary_without_model(state, upto), upto=upto)
    summary = f"{compacted.summary}\n\n{_words(state, upto)}".strip()
    compacted = compacted.model_copy(update={"summary": summary, "window": window})
    log.append(compacted)
    return compacted


async def _written(log: Log, scribe: Summarizer, upto: int) -> Compacted | None:
    """Ask for the memory; once more with twice the room where the reply is cut, refused or a call.
    None where nobody was paid and nothing came of it.
    """
    name = scribe.member.name
    started = time.monotonic()
    lost = 0.0

    def wait(pause: Pause) -> None:
        scribe.check(prompt, lost + usd(pause.used, scribe.member.price))
        log.tell(availability.waiting_event(pause, 0, name))

    summary, used = "", Usage()
    for attempt in range(MOST_ATTEMPTS):
        prompt = memory_prompt(scribe.conversation, scribe.member, attempt)
        try:
            scribe.check(prompt, lost)
            reply = await scribe.agent.reply(prompt, lambda text: None, wait)
        except AgentError as error:
            used += error.usage or Usage()
            break
        used += reply.usage
        lost = usd(used, scribe.member.price)
        if reply.stop == "end" and not reply.calls:
            summary = reply.text.strip()
            break
    if not summary and used == Usage():
        return None
    return Compacted(
        summary=summary or summary_without_model(log.state, upto),
        upto=upto,
        agent=name,
        usage=used,
        seconds=round(time.monotonic() - started, 3),
    )


def memory_prompt(conversation: Prompt, member: Member, attempt: int) -> Prompt:
    """Return the conversation with one more message that asks for a summary. Nothing before it
    changes, so that the conversation is read from a cache. Each `attempt`, counted from 0, allows a
    reply twice as long.
    """
    first_room = min(SUMMARY_ROOM, max(member.context // 4, 1))
    asks = FromUser(text=prompts.load("compact"))
    changes = {
        "messages": (*conversation.messages, asks),
        "max_tokens": first_room << attempt,
        "reply_schema": "",
        "temperature": None,
        "seed": None,
    }
    return fit_window(conversation.model_copy(update=changes), member)


def fit_window(prompt: Prompt, member: Member) -> Prompt:
    """Return the prompt, shortened to the agent's context.

    The largest results are cut first, starting with those after the last reply, because these are
    in no cache and stay visible below the summary. Then the oldest messages are left out. The last
    message is never cut.
    """
    room_for_messages = member.context - prompt.max_tokens - _tokens_beside_messages(prompt)
    messages = list(prompt.messages)
    sizes = [_message_tokens(message) for message in messages]
    results = [index for index, message in enumerate(messages) if isinstance(message, FromTool)]
    last_reply = max(
        (index for index, message in enumerate(messages) if isinstance(message, FromAgent)),
        default=-1,
    )
    newest_results = [index for index in results if index > last_reply]
    for candidates in (newest_results, results, range(len(messages) - 1)):
        limit = LONGEST_PIECE
        while sum(sizes) > room_for_messages and limit > SHORTEST_PIECE:
            limit //= 2
            longer = [index for index in candidates if len(messages[index].text) > limit]
            gain = sum(sizes[index] * (1 - limit / len(messages[index].text)) for index in longer)
            if sum(sizes) - gain > room_for_messages and limit > SHORTEST_PIECE:
                continue  # the next limit is tried at once
            for index in longer:
                text = _clipped(messages[index].text, limit)
                messages[index] = messages[index].model_copy(update={"text": text})
                sizes[index] = _message_tokens(messages[index])
    size = sum(sizes)
    kept_from = 0
    for index, message in enumerate(messages):  # the oldest go, each result with its call
        if index and isinstance(message, FromUser):
            kept_from = index
        if kept_from == index and size <= room_for_messages:
            break
        size -= sizes[index]
    return prompt.model_copy(update={"messages": tuple(messages[kept_from:])})


def _clipped(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return (
        f"{text[: cut_between_marks(text, limit // 2)]} [...] "
        f"{text[cut_between_marks(text, len(text) - limit // 2) :]}"
    )


def summary_without_model(state: SessionState, upto: int) -> str:
    """Return a summary up to a line, made without a model: the earlier summary, then the answers
    and changes of each request since.
    """
    earlier = state.newest_compaction
    lines = [_without_words(earlier.summary)] if earlier is not None else []
    lines.append(UNWRITTEN)
    summed_up = earlier.upto + 1 if earlier is not None else 0
    for number, (end, request) in enumerate(_requests_until(state, upto), start=1):
        if end <= summed_up:
            continue
        changed = ", ".join(sorted(request.changes)) or "nothing"
        answer = _clipped(request.answer.strip(), 600)
        line = f"Request {number}: changed {changed}."
        lines.append(f"{line} Answer: {answer}" if answer else line)
    return "\n".join(lines)


def _requests_until(state: SessionState, upto: int) -> list[tuple[int, RequestState]]:
    """Return the requests as they were after the line `upto`, each with the line after its end."""
    requests = []
    start = len(state.events) - sum(len(request.events) for request in state.requests)
    for request in state.requests:
        if start > upto:
            break
        end = start + len(request.events)
        if end > upto + 1:
            end, request = upto + 1, RequestState(request.events[: upto + 1 - start])
        requests.append((end, request))
        start = end
    return requests


def _without_words(summary: str) -> str:
    """Return a summary without the texts of requests that fugu added to it. They are added to the
    next summary again.
    """
    ends = [summary.find(f"\n\n{heading}") for heading in (REQUESTED, LEFT_OUT)]
    return summary[: min((end for end in ends if end >= 0), default=len(summary))]


def _words(state: SessionState, upto: int) -> str:
    """Return the texts of the requests that the summary stands for, word for word, and the number
    of other events that it stands for.
    """
    past = state.events[: upto + 1]
    kept = state.followed_by(Compacted(summary="", upto=upto)).shown_requests
    requests = [request for _, request in _requests_until(state, upto) if request.asked]
    if kept and requests and kept[0].asked is requests[-1].asked:
        del requests[-1]
    requested = []
    for number, request in enumerate(requests, start=1):
        words = request.asked.text if request.asked is not None else ""
        text = "\n\n".join(part for part in (words.strip(), request.steering_text) if part)
        requested.append(f"{number}. {_clipped(text, REQUEST)}")
    text = _clipped("\n".join(requested), REQUESTS)
    replies = sum(isinstance(event, Replied) for event in past)
    results = [len(event.output) for event in past if isinstance(event, ToolRan)]
    dropped = (
        f"{LEFT_OUT}{replies} replies and {len(results)} tool results of {sum(results):,} "
        f"characters. "
        "Files may not be as they were then: read one before you change it.]"
    )
    return "\n\n".join(
        part for part in (f"{REQUESTED}{text}" if requested else "", dropped) if part
    )
