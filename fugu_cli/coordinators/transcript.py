"""The transcript that a learned coordinator reads, built from the log alone: requests, turns, and a
one-line digest of each turn's tool calls, cut to a token budget. Written as plain lines or through
the backbone's chat template. Pure; tokens are counted by the caller.

Departures: TRINITY leaves the layout open; here a turn is `Worker (cheap): ...` under the chat role
`assistant`, and what fugu found out itself stands under `system`. Every message is cut to a share
of the budget, not only the whole. Chat templates come with weights from elsewhere, so they run in
jinja's sandbox.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from fugu_cli.errors import CoordinatorUnavailable
from fugu_cli.session.events import Asked
from fugu_cli.session.outcome import RUN_TESTS
from fugu_cli.session.recognized_tests import failed_count, passed_count
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import CallRecord, Turn
from fugu_cli.system.bounded_json import parse_json

TARGET_LIMIT = 60
DIGEST_ENTRIES = 8
"""Different (tool, target, outcome) entries of a digest; the newest stay."""

_TARGETS = ("path", "file", "command", "pattern", "query", "target")


def tool_digest(turn: Turn) -> str:
    """Return a turn's tools like `[read a.py ok; edit a.py failed x2; tests failed 1; 4 calls]`, ""
    for a turn without tools. The agent's own calls come first, then the newest result of the tests
    that fugu ran.
    """
    counts = Counter(_entry(run) for run in turn.runs if not run.evidence)
    parts = [f"{entry} x{count}" if count > 1 else entry for entry, count in counts.items()]
    if len(parts) > DIGEST_ENTRIES:
        parts = ["...", *parts[-DIGEST_ENTRIES:]]
    for run in reversed(turn.runs):
        if run.evidence and run.permitted.call.tool == RUN_TESTS:
            parts.append(tests_state(run))
            break
    if counts.total() > 1:
        parts.append(_plural(counts.total(), "call", "calls"))
    return f"[{'; '.join(parts)}]" if parts else ""


def tests_state(run: CallRecord) -> str:
    """Return the newest test result like `tests passed 5` or `tests failed 2`, with the count if
    the output gives it.
    """
    if run.result is None:
        return "tests interrupted"
    count = passed_count(run.result.output) if run.result.ok else failed_count(run.result.output)
    state = "passed" if run.result.ok else "failed"
    return f"tests {state} {count}" if count else f"tests {state}"


def _entry(run: CallRecord) -> str:
    call = run.permitted.call
    if call.tool == RUN_TESTS and run.permitted.allowed:
        return tests_state(run)
    return " ".join(part for part in (call.tool, _target(call.arguments), _outcome(run)) if part)


def _outcome(run: CallRecord) -> str:
    if not run.permitted.allowed:
        return "denied"
    if run.result is None:
        return "interrupted"
    return "ok" if run.result.ok else "failed"


def _target(arguments: str) -> str:
    try:
        parsed = parse_json(arguments)
    except ValueError:
        return ""
    if not isinstance(parsed, dict):
        return ""
    target = ""
    for name in _TARGETS:
        value = parsed.get(name)
        if isinstance(value, str):
            target = value
            break
    line = " ".join(target.split())
    return line if len(line) <= TARGET_LIMIT else line[: TARGET_LIMIT - 3] + "..."


def _plural(count: int, singular: str, plural: str) -> str:
    return f"{count} {singular if count == 1 else plural}"


CountTokens = Callable[[str], int]
"""Number of tokens of a text."""
TranscriptFormat = Literal["raw", "chat"]
"""Plain lines, or through the backbone's chat template."""

CUT = "\n[... cut ...]\n"
LEFT_OUT = "[... earlier turns left out ...]"


@dataclass(frozen=True)
class TranscriptMessage:
    """One message: a chat role (system, user, assistant) and its content. `kept`: never dropped,
    only cut.
    """

    role: str
    content: str
    kept: bool = False


class TranscriptLayout(Protocol):
    """The reading settings of a checkpoint. `budget` is in tokens."""

    @property
    def format(self) -> TranscriptFormat: ...
    @property
    def workers_only(self) -> bool: ...
    @property
    def budget(self) -> int: ...


class TranscriptReader(Protocol):
    """Reads the transcript."""

    @property
    def template(self) -> str:
        """The tokenizer's chat template, "" if it has none."""

    def count(self, text: str, /) -> int:
        """Count the tokens of a text."""


def transcript_text(
    reader: TranscriptReader,
    layout: TranscriptLayout,
    state: SessionState,
) -> str:
    """Return the events as `reader` reads them, cut to the layout's budget, in its format."""
    lines = transcript_messages(state, workers_only=layout.workers_only)
    lines = fit_budget(lines, layout.budget, reader.count)
    return render_raw(lines) if layout.format == "raw" else render_chat(reader.template, lines)


def transcript_messages(
    session: SessionState, *, workers_only: bool = False
) -> tuple[TranscriptMessage, ...]:
    """Return every request and every closed turn of the session, oldest first. `workers_only` leaves
    out all replies but the Workers' (the authors' code).
    """
    messages: list[TranscriptMessage] = []
    all_requests = session.requests
    for index, request in enumerate(all_requests):
        kept = index in (0, len(all_requests) - 1)
        asked = request.events[0]
        assert isinstance(asked, Asked)
        text = asked.text.strip()
        attachments = [*asked.attachments, *(media.name for media in asked.media)]
        if attachments:
            text += f"\n[attached: {', '.join(attachments)}]"
        messages.append(TranscriptMessage("user", text, kept=kept))
        messages += [TranscriptMessage("system", state) for state in _baseline(request)]
        for turn in request.turns:
            if not workers_only or turn.assigned.role == "worker":
                messages.append(TranscriptMessage("assistant", _turn(turn)))
    return tuple(messages)


def render_raw(messages: Sequence[TranscriptMessage]) -> str:
    """Return one line `role: content` for each message, without a newline at the end."""
    return "\n".join(f"{line.role}: {line.content}" for line in messages)


def fit_budget(
    messages: Sequence[TranscriptMessage], budget: int, count: CountTokens
) -> tuple[TranscriptMessage, ...]:
    """Return messages of at most `budget` tokens: the first request, the newest one and the newest
    turns stay, the middle is dropped.

    A request may take a third of the budget, any other message a quarter, each cut in its middle.
    Messages are dropped in blocks of half a budget, so that a growing transcript keeps its
    beginning (and the cache of it) for many turns.
    """
    cut = []
    for message in messages:
        limit = budget // 3 if message.role == "user" else budget // 4
        cut.append(replace(message, content=cut_middle(message.content, max(limit, 1), count)))
    sizes = [count(f"{message.role}: {message.content}") + 1 for message in cut]
    excess = sum(sizes) - budget
    if excess <= 0:
        return tuple(cut)
    excess += count(LEFT_OUT) + 3
    droppable = sum(
        size for message, size in zip(cut[:-1], sizes, strict=False) if not message.kept
    )
    block = max(budget // 2, 1)
    whole_blocks = -(-excess // block) * block
    dropped = _oldest(cut, sizes, whole_blocks if whole_blocks <= droppable else excess)
    if not dropped:
        return tuple(cut)
    kept = [message for index, message in enumerate(cut) if index not in dropped]
    kept.insert(min(dropped), TranscriptMessage("system", LEFT_OUT))
    return tuple(kept)


def cut_middle(text: str, limit: int, count: CountTokens) -> str:
    """Return the beginning and the end of the text, in at most about `limit` tokens, with a mark
    where it was cut.
    """
    if len(text.encode(errors="replace")) <= limit:  # a token is at least one byte
        return text
    shortened = text if len(text) <= 64 * limit else text[: 32 * limit] + CUT + text[-32 * limit :]
    size = count(shortened)
    if size <= limit:
        return shortened
    while size > limit and len(shortened) > len(CUT) + 2:
        kept = min(int(len(shortened) * limit / size), len(shortened) - 1) - len(CUT)
        half = max(kept // 2, 1)
        shortened = text[:half] + CUT + text[-half:]
        size = count(shortened) if half > 1 else 0
    return shortened


def _oldest(messages: Sequence[TranscriptMessage], sizes: Sequence[int], tokens: int) -> set[int]:
    """Return the oldest droppable messages of at least `tokens` in all, as far as there are any;
    the newest one stays.
    """
    chosen: set[int] = set()
    for index, line in enumerate(messages[:-1]):
        if tokens <= 0:
            break
        if not line.kept:
            chosen.add(index)
            tokens -= sizes[index]
    return chosen


def _baseline(request: RequestState) -> list[str]:
    runs = [run for run in request.baseline if run.permitted.call.tool == RUN_TESTS]
    return [tests_state(runs[-1])] if runs else []


def _turn(turn: Turn) -> str:
    text = turn.text.strip()
    if turn.failed is not None:
        text = f"[failed: {turn.failed.kind}]"
    elif turn.interrupted:
        text = "[interrupted]"
    head = f"{turn.assigned.role.capitalize()} ({turn.assigned.agent}):"
    return "\n".join(part for part in (f"{head} {text}".rstrip(), tool_digest(turn)) if part)


def render_chat(template: str, lines: Sequence[TranscriptMessage]) -> str:
    """Return the text the backbone reads. Raises CoordinatorUnavailable where there is no template
    or it refuses the lines.
    """
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    if not template:
        raise CoordinatorUnavailable(
            "this checkpoint reads the chat format and the backbone has no chat template",
            hint="use a checkpoint trained with the raw format",
        )
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    messages = [{"role": line.role, "content": line.content} for line in lines]
    try:
        return environment.from_string(template).render(
            messages=messages,
            add_generation_prompt=True,
            enable_thinking=False,
            bos_token="",
            eos_token="",
        )
    except TemplateError as error:
        raise CoordinatorUnavailable(
            f"the backbone's chat template refuses the transcript: {error}"
        ) from error


def _tojson(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)
