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
SUMMARY_TOKENS = 12_288
"""Tokens of the reply with the summary: about 4,000 for its text, the rest for thinking."""
MOST_ATTEMPTS = 2
"""Calls of one agent for one summary."""
MOST_IN_A_ROW = 2
"""Summaries in a turn without a change between them, before a larger agent is asked."""
LONGEST_PIECE, SHORTEST_PIECE = 65_536, 64
"""Characters of a message that may stay when the conversation is shortened to the context."""
REQUEST, REQUESTS = 1500, 6000
"""Characters kept of one earlier request, and of all together."""
REQUESTED = "The user asked, word for word:\n"
LEFT_OUT = "[Left out above: "
UNWRITTEN = "(No memory of this part could be written. This much is known without it:)"


@dataclass(frozen=True)
class Summarizer:
    """An agent that can write the summary, from its own `conversation`. `check` raises AgentError
    if a prompt is too expensive, given the dollars that earlier attempts have cost.
    """

    member: Member
    agent: Agent
    conversation: Prompt
    check: Callable[[Prompt, float], None] = lambda prompt, lost: None


def is_due(state: SessionState, prompt: Prompt, member: Member, tokens: int) -> bool:
    """Return whether the prompt, of `tokens` tokens, is too long for the agent and can be shortened.

    A workflow's steps are never compacted, because they read no history. Agents whose models call
    no tools select themselves which part of the prompt their model reads.
    """
    if member.protocol != "native":
        return False
    reply_tokens = min(prompt.max_tokens, member.context // 4)
    is_full = tokens + reply_tokens > FULL_SHARE * member.context
    return is_full and is_possible(state, member)


def is_possible(state: SessionState, member: Member) -> bool:
    """Return whether a summary can replace a part of the newest turn's prompt."""
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
    smaller = member.model_copy(update={"context": min(member.context, prompt_tokens(prompt))})
    return smaller if is_possible(state, smaller) else None


def is_thrashing(events: Sequence[Event], turn: Turn) -> bool:
    """Return whether the conversation was summed up `MOST_IN_A_ROW` times in this turn without a
    file change in between.
    """
    start = next(index for index, event in enumerate(events) if event is turn.assigned)
    summaries = 0
    for event in events[start:]:
        if isinstance(event, Compacted):
            summaries += 1
        elif isinstance(event, ToolRan) and event.changes:
            summaries = 0
    return summaries >= MOST_IN_A_ROW


def within_window(prompt: Prompt, member: Member, tokens: int) -> Prompt:
    """Return the prompt, of `tokens` tokens, with its reply limited to the rest of the agent's
    context. A quarter of the context is always left for the reply.
    """
    left = max(member.context - tokens, member.context // 4)
    return prompt.model_copy(update={"max_tokens": min(prompt.max_tokens, left)})


def prompt_tokens(prompt: Prompt) -> int:
    """Estimate the likely number of tokens of a prompt, for the context. Budgets count an upper
    bound (`Prompt.estimated_tokens`).
    """
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
    """Return the last line that a summary in the middle of a request would replace; None if nothing
    is gained.

    It is the earliest line after which the events take at most `KEPT_SHARE` of the agent's context.
    The event after it is a request or a reply, so that every call that is kept has its result.
    """
    newest, events = state.newest_compaction, state.events
    first = newest.upto + 1 if newest else 0
    begin = max(first, len(events) - len(state.request.events))
    most_bytes = KEPT_SHARE * member.context * BYTES
    kept_from = None
    size = 0
    for index, can_split in _split_points(events, begin):
        if index not in state.lines_of_subtasks:
            size += prompt_bytes(events[index])
        if can_split and index > first and (kept_from is None or size <= most_bytes):
            kept_from = index
        if size > most_bytes and kept_from is not None:
            break
    if kept_from is None:
        return None
    replaced = events[first:kept_from]
    is_gain = any(isinstance(event, Replied | ToolRan) for event in replaced)
    return kept_from - 1 if is_gain else None


def _split_points(events: Sequence[Event], begin: int) -> Iterator[tuple[int, bool]]:
    """Yield each index from the newest back to `begin`, and whether the events can be split before
    it: at a request or a reply, if no earlier call is permitted or answered after the split.
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


async def compact(
    log: Log, summarizers: Sequence[Summarizer], upto: int, window: int = 0
) -> Compacted:
    """Record a summary of all lines up to `upto`, by the first summarizer that can write one.
    `window` is recorded in the event. Raises StorageError.

    If none can, or one was paid and said nothing, fugu makes a summary from the events: the
    requests, their answers and the files that they changed.
    """
    state = log.state
    compacted: Compacted | None = None
    for summarizer in summarizers:
        log.tell(Waiting(why=f"{summarizer.member.name} sums up what was said so far"))
        compacted = await _write_summary(log, summarizer, upto)
        if compacted is not None:
            break
    if compacted is None:
        compacted = Compacted(summary=summary_without_model(state, upto), upto=upto)
    summary = f"{compacted.summary}\n\n{_requests_word_for_word(state, upto)}".strip()
    compacted = compacted.model_copy(update={"summary": summary, "window": window})
    log.append(compacted)
    return compacted


async def _write_summary(log: Log, summarizer: Summarizer, upto: int) -> Compacted | None:
    """Ask the agent for a summary. If its reply is cut, refused or a call, ask once more with twice
    the tokens. Return None if there is no summary and no call was paid.
    """
    member = summarizer.member
    started = time.monotonic()
    spent = 0.0

    def wait(pause: Pause) -> None:
        summarizer.check(prompt, spent + usd(pause.used, member.price))
        log.tell(availability.waiting_event(pause, 0, member.name))

    summary, used = "", Usage()
    for attempt in range(MOST_ATTEMPTS):
        prompt = summary_prompt(summarizer.conversation, member, attempt)
        try:
            summarizer.check(prompt, spent)
            reply = await summarizer.agent.reply(prompt, lambda text: None, wait)
        except AgentError as error:
            used += error.usage or Usage()
            break
        used += reply.usage
        spent = usd(used, member.price)
        if reply.stop == "end" and not reply.calls:
            summary = reply.text.strip()
            break
    if not summary and used == Usage():
        return None
    return Compacted(
        summary=summary or summary_without_model(log.state, upto),
        upto=upto,
        agent=member.name,
        usage=used,
        seconds=round(time.monotonic() - started, 3),
    )


def summary_prompt(conversation: Prompt, member: Member, attempt: int) -> Prompt:
    """Return the conversation with one more message that asks for a summary. Nothing before it
    changes, so that the provider reads the conversation from its cache. Each `attempt`, counted
    from 0, allows a reply twice as long.
    """
    first_limit = min(SUMMARY_TOKENS, max(member.context // 4, 1))
    question = FromUser(text=prompts.load("compact"))
    changes = {
        "messages": (*conversation.messages, question),
        "max_tokens": first_limit << attempt,
        "reply_schema": "",
        "temperature": None,
        "seed": None,
    }
    return fit_window(conversation.model_copy(update=changes), member)


def fit_window(prompt: Prompt, member: Member) -> Prompt:
    """Return the prompt, shortened to the agent's context.

    The largest tool results are cut first, those after the last reply before all others, because
    they are in no cache and stay visible below the summary. Then other messages are cut, and in the
    end the oldest messages are dropped. The last message is never cut.
    """
    message_tokens = member.context - prompt.max_tokens - _tokens_beside_messages(prompt)
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
        while sum(sizes) > message_tokens and limit > SHORTEST_PIECE:
            limit //= 2
            longer = [index for index in candidates if len(messages[index].text) > limit]
            gain = sum(sizes[index] * (1 - limit / len(messages[index].text)) for index in longer)
            if sum(sizes) - gain > message_tokens and limit > SHORTEST_PIECE:
                continue  # this limit would not be enough, so nothing is cut to it
            for index in longer:
                text = _clipped(messages[index].text, limit)
                messages[index] = messages[index].model_copy(update={"text": text})
                sizes[index] = _message_tokens(messages[index])
    size = sum(sizes)
    kept_from = 0
    for index, message in enumerate(messages):
        if index and isinstance(message, FromUser):
            kept_from = index  # a cut only here keeps each result with its call
        if kept_from == index and size <= message_tokens:
            break
        size -= sizes[index]
    return prompt.model_copy(update={"messages": tuple(messages[kept_from:])})


def _clipped(text: str, limit: int) -> str:
    """Return the text without its middle if it is longer than `limit`. Marks of secrets stay whole."""
    if len(text) <= limit:
        return text
    head = text[: cut_between_marks(text, limit // 2)]
    tail = text[cut_between_marks(text, len(text) - limit // 2) :]
    return f"{head} [...] {tail}"


def summary_without_model(state: SessionState, upto: int) -> str:
    """Return a summary up to a line, made without a model: the earlier summary, then the answers
    and changes of each request since.
    """
    lines = []
    first_unsummarized = 0
    earlier = state.newest_compaction
    if earlier is not None:
        lines.append(_without_requests(earlier.summary))
        first_unsummarized = earlier.upto + 1
    lines.append(UNWRITTEN)
    for number, (end, request) in enumerate(_requests_until(state, upto), start=1):
        if end <= first_unsummarized:
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


def _without_requests(summary: str) -> str:
    """Return a summary without the texts of requests that fugu added to it. They are added to the
    next summary again.
    """
    for heading in (REQUESTED, LEFT_OUT):
        summary = summary.partition(f"\n\n{heading}")[0]
    return summary


def _requests_word_for_word(state: SessionState, upto: int) -> str:
    """Return the texts of the requests that the summary replaces, word for word, and a sentence on
    the other events that it replaces.
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
    left_out = (
        f"{LEFT_OUT}{replies} replies and {len(results)} tool results of {sum(results):,} "
        f"characters. Files may not be as they were then: read one before you change it.]"
    )
    return f"{REQUESTED}{text}\n\n{left_out}" if requested else left_out
