"""`fugu run` without a full screen: follows the log, prints text or JSON, and asks for approval
where there is a terminal.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from rich.text import Text

from fugu_cli.app import event_text
from fugu_cli.formatting import (
    compact_number,
    duration,
    first_line,
    known_cost,
    plural,
    sanitize,
    shorten,
)
from fugu_cli.messages import Call
from fugu_cli.session import costs
from fugu_cli.session.events import Event, Permitted, Recorded, ToolRan
from fugu_cli.session.live_events import Live, OutputStreamed, Retried, TextStreamed, Waiting
from fugu_cli.session.log import Log
from fugu_cli.session.outcome import RUN_TESTS
from fugu_cli.session.state import SessionState
from fugu_cli.ui import json_output
from fugu_cli.ui.drawing import BLANK, TERMINAL, StyledLine, styled_line, wrap_lines
from fugu_cli.ui.json_output import RunEnding, result_object
from fugu_cli.ui.terminal_output import TerminalOutput

if TYPE_CHECKING:
    from fugu_cli.engine.environment import Permission
    from fugu_cli.safety.policy import Judgement
    from fugu_cli.ui.session_totals import FoldedSession

Answer = Literal["once", "session", "no", "headless"]
ANSWERS: dict[str, Answer] = {
    "y": "once",
    "yes": "once",
    "o": "once",
    "once": "once",
    "s": "session",
    "session": "session",
    "n": "no",
    "no": "no",
    "": "no",
}


SETTLE_SECONDS = 0.05
"""Seconds for the reader of the log to print what led to the question."""


AskApproval = Callable[[Call, "Judgement"], Awaitable["Permission"]]


async def deny_headless(call: Call, judgement: Judgement) -> Permission:
    """Deny the call, for runs without a terminal."""
    del call, judgement
    return "headless"


def ask_on_terminal(
    screen: TerminalOutput, read: Callable[[], Awaitable[str]], root: Path
) -> AskApproval:
    """Return a function that asks on `screen` about a call in `root`. `read` returns the next typed
    line, "" at the end (no).
    """

    one_at_a_time = asyncio.Lock()

    async def ask(call: Call, judgement: Judgement) -> Permission:
        from fugu_cli.app.approval_options import terminal_options
        from fugu_cli.app.patches import approval_patch
        from fugu_cli.session.tool_facts import ASK_USER

        async with one_at_a_time:
            await asyncio.sleep(SETTLE_SECONDS)
            patch = await asyncio.to_thread(approval_patch, call, root)
            with screen.held():
                width = screen.width
                whole = _question(call, judgement, patch, width)
                shown = _question(call, judgement, patch, width, MOST_CHARACTERS, MOST_DIFF_LINES)
                screen.lines(shown)
                for option in terminal_options(call, judgement):
                    screen.lines(wrap_lines(option, width, "", " " * 9))
                if call.tool == ASK_USER.name:
                    return await _typed_choice(screen, read, call)
                return await _typed_answer(screen, read, judgement, whole if whole != shown else [])

    return ask


MOST_CHARACTERS, MOST_DIFF_LINES = 10_000, 300
"""Of a command, and of the change a call would make, that a question shows before somebody wants to
see all of it."""


def _question(
    call: Call,
    judgement: Judgement,
    patch: str,
    width: int,
    characters: int | None = None,
    diff_lines_shown: int | None = None,
) -> list[StyledLine]:
    from fugu_cli.ui import diff_drawing, diff_lines

    target = diff_lines.approval_target_lines(call, judgement, width, TERMINAL, characters)
    lines = diff_lines.approval_lines(call, judgement, target, width, TERMINAL)
    if patch:
        lines += diff_drawing.patch_lines(patch, width, TERMINAL, diff_lines_shown)
    return lines


def ask_line_on_terminal(
    screen: TerminalOutput, read: Callable[[], Awaitable[str]]
) -> Callable[[str], Awaitable[str | None]]:
    """Return a function that asks on `screen` for a line. `read` returns it, "" at the end of input
    (None).
    """

    async def ask(heading: str) -> str | None:
        await asyncio.sleep(SETTLE_SECONDS)
        with screen.held():
            screen.lines(wrap_lines(sanitize(heading), screen.width, "", ""))
            screen.err.raw("> ")
            line = await read()
        return line.rstrip("\n") if line else None

    return ask


async def _typed_choice(
    screen: TerminalOutput, read: Callable[[], Awaitable[str]], call: Call
) -> Permission:
    """Read the answer to an agent's question: the number of a choice, or words; n or an empty line
    for none.
    """
    from fugu_cli.app.approval_options import question_choices
    from fugu_cli.engine.environment import Refusal

    screen.err.raw("> ")
    text = (await read()).strip()
    choices = question_choices(call)
    if text.isdigit() and 1 <= int(text) <= len(choices):
        text = choices[int(text) - 1]
    return Refusal(feedback=text) if text and text.lower() not in ("n", "no") else "no"


async def _typed_answer(
    screen: TerminalOutput,
    read: Callable[[], Awaitable[str]],
    judgement: Judgement,
    whole: list[StyledLine],
) -> Permission:
    """Read lines until one is an answer: y, s, n, or n with a message for the agent. The line d
    shows `whole`, if the question was cut.
    """
    from fugu_cli.engine.environment import Refusal

    keys = "y or n" if judgement.every_time else "y, s or n"
    shows_all = ", d shows all" if whole else ""
    while True:
        screen.err.raw(f"{keys}{shows_all} (Enter: no): ")
        line = await read()
        if whole and line.strip() == "d":
            screen.lines(whole)
            continue
        word, _, feedback = line.strip().partition(" ")
        if word.lower() in ("n", "no") and feedback.strip():
            return Refusal(feedback=feedback.strip())
        answer = ANSWERS.get(line.strip().lower())
        if answer is not None and not (answer == "session" and judgement.every_time):
            return answer
        if not line.endswith("\n"):
            return "no"


async def read_typed_line(stream: TextIO | None = None) -> str:
    """Read the next line of standard input without a thread, so that Ctrl-C ends the waiting at
    once.
    """
    source = sys.stdin if stream is None else stream
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    file = source.fileno()
    loop.add_reader(file, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(file)
    return source.readline()


def forget_typed_line(stream: TextIO | None = None) -> None:
    """Drop text that was typed without Enter: it was meant for a question that has been answered
    elsewhere.
    """
    import termios

    source = sys.stdin if stream is None else stream
    with suppress(OSError, ValueError, termios.error):
        termios.tcflush(source.fileno(), termios.TCIFLUSH)


REPLY_LINES = 6
"""Lines of an agent's reply that are shown while it works."""
DIFF_LINES = 200
DIFF_CHARACTERS = 50_000
"""Lines of the diff shown at the end; the rest is said to be there."""


@dataclass(frozen=True)
class RunReport:
    """The facts of a run that are not in its log. `since` is the line of the log at which this run
    begins.
    """

    session: str
    log: str
    since: int = 0
    milliseconds: int = 0
    patch: str = ""
    ignored: tuple[str, ...] = ()
    """Files that did not count, since the folder is not trusted."""


async def follow_text(log: Log, screen: TerminalOutput, since: int = 0) -> None:
    """Print the blocks of the conversation from line `since` of the log on, each once it is final,
    and show what fugu waits for, until the log is closed.
    """
    from fugu_cli.ui.session_totals import FoldedSession

    folded, printed = FoldedSession(), 0
    async with screen.ticking():
        async for item in log.follow():
            if isinstance(item, Recorded):
                folded.add_item(item, item.at, log.state)
                if item.seq < since:
                    printed = folded.transcript.placed.settled
                else:
                    await _add_patch(folded, item.event, log)
                    printed = _print_blocks(folded, printed, screen)
                    if isinstance(item.event, Permitted) and item.event.call.tool == RUN_TESTS:
                        screen.show(Text(f"  {folded.activity.doing}", "dim"))
                _show_activity(folded, item, screen)
                continue
            folded.activity.add_item(item, time.time())
            folded.totals.add_item(item)
            _show_activity(folded, item, screen)
            # the end of the turn names the hosts that could not be reached
            names_host = isinstance(item, Retried) and item.unreachable
            if not names_host and (text := event_text.pause_text(item)):
                screen.show(Text(f"  {text}", "yellow"))
    folded.transcript.placed.retractable = None
    folded.transcript.placed.holds_checks = False
    _print_blocks(folded, printed, screen)


async def _add_patch(folded: FoldedSession, event: Event, log: Log) -> None:
    """Add the diff of a call's changes to its block."""
    from fugu_cli.app.patches import finished_edit_patch

    if not isinstance(event, ToolRan) or not event.changes or log.mask is None:
        return
    opened = log.state.opened
    root = Path(opened.repo if opened is not None else ".")
    patch = await asyncio.to_thread(finished_edit_patch, event.call, root)
    folded.transcript.patched(event, log.mask.text(patch))


def _show_activity(folded: FoldedSession, item: Recorded | Live, screen: TerminalOutput) -> None:
    """Show what is being waited for after this item."""
    activity = folded.activity.doing
    if isinstance(item, TextStreamed):
        # in tens, so that the line is not drawn again for every token
        written = folded.totals.writing // 10 * 10
        if written:
            activity += f", {written} tokens"
    elif isinstance(item, OutputStreamed):
        activity = first_line(item.text) or activity
    seconds = item.seconds if isinstance(item, Waiting | Retried) else 0.0
    screen.wait(activity, seconds)


def _print_blocks(folded: FoldedSession, first: int, screen: TerminalOutput) -> int:
    """Print the blocks from index `first` on, up to the first one that is not final, and return the
    index of that one. A reply is shown up to its first lines only, because the answer is printed
    whole at the end.
    """
    from fugu_cli.ui import block_drawing
    from fugu_cli.ui.blocks import NoteBlock, ReplyBlock, ToolBlock, WelcomeBlock

    blocks, settled = folded.transcript.blocks, folded.transcript.placed.settled
    for index in range(first, settled):
        block = blocks[index]
        if isinstance(block, ToolBlock) and not block.over:
            return index
        has_calls_inside = isinstance(block, ToolBlock) and bool(block.inside)
        unfolded = has_calls_inside or isinstance(block, NoteBlock)
        pieces = block_drawing.fragments_at(blocks, index, unfolded=unfolded, since=first)
        lines = [line for piece in pieces for line in piece.painted(screen.width, TERMINAL)]
        if isinstance(block, WelcomeBlock):
            # only the agents: the version was printed, and there are no keys to explain
            lines = lines[1:2]
        if isinstance(block, ReplyBlock) and len(lines) > REPLY_LINES + 2:
            rest = f"… {plural(len(lines) - REPLY_LINES - 1, 'more line')}"
            lines = [*lines[:REPLY_LINES], styled_line([(rest, TERMINAL.dim)], screen.width), BLANK]
        screen.lines(lines)
    return max(first, settled)


async def follow_stream_json(
    log: Log,
    screen: TerminalOutput,
    session: str,
    since: int,
    end_work: Callable[[], None],
) -> None:
    """Print a JSON line for every event from line `since` on, until the log is closed. Call
    `end_work` when the reader turns out to have left.
    """
    state = SessionState()
    async for item in log.follow():
        line = None
        if isinstance(item, Recorded):
            state.add(item.event)
            if item.seq >= since:
                line = json_output.event_object(item, state.request, session)
        else:
            line = json_output.live_object(item, session)
        if line is not None:
            screen.data(json_output.json_line(line))
        if screen.out.reader_left:
            end_work()


async def follow_quietly(log: Log) -> None:
    """Follow the log without output, for the format `json`."""
    async for _ in log.follow():
        pass


def print_end(
    state: SessionState,
    records: Sequence[Recorded],
    screen: TerminalOutput,
    report: RunReport,
    end: RunEnding,
) -> None:
    """Print the end of a run for people: diff, tests, tokens, money and log; the answer goes to
    standard output. `state` is that of the `records`.
    """
    request = state.request
    if request.finished is None:
        screen.show(
            Text(f"{end.reason}: {end.message}" if end.message else end.reason, "bold yellow")
        )
    if report.patch.strip():
        for text in coloured_diff(report.patch):
            screen.show(text)
    answer = sanitize(request.answer).strip()
    if answer:
        screen.data(answer)
    for text in _totals(state, records, report):
        screen.show(text)


def print_result_object(
    state: SessionState,
    records: Sequence[Recorded],
    screen: TerminalOutput,
    report: RunReport,
    end: RunEnding,
) -> None:
    """Print the final object of `json`, which is also the last line of `stream-json`. `state` is that
    of the `records`.
    """
    screen.data(json_output.json_line(final_object(state, records, report, end)))


def final_object(
    state: SessionState, records: Sequence[Recorded], report: RunReport, end: RunEnding
) -> json_output.Object:
    """Return the final object, with the path of the log. `state` is that of the `records`."""
    final = result_object(
        state,
        records,
        report.session,
        end,
        since=report.since,
        milliseconds=report.milliseconds,
        ignored=report.ignored,
    )
    own = final["fugu"]
    assert isinstance(own, dict)
    return {**final, "fugu": {**own, "log": report.log}}


def coloured_diff(patch: str, limit: int = DIFF_LINES) -> list[Text]:
    """Return a unified diff line by line. After `limit` lines or DIFF_CHARACTERS only the number of
    further lines is told."""
    from fugu_cli.app.patches import LONGEST_LINE, shorten_patch

    shortened = shorten_patch(patch, LONGEST_LINE)
    lines = sanitize(shortened).rstrip("\n").splitlines()
    styles = {"+": "green", "-": "red", "@": "cyan"}
    texts: list[Text] = []
    characters = 0
    for line in lines[:limit]:
        characters += len(line)
        if characters > DIFF_CHARACTERS:
            break
        is_head = line.startswith(("+++", "---", "diff "))
        texts.append(Text(line, "bold" if is_head else styles.get(line[:1], "")))
    rest = len(lines) - len(texts)
    return [*texts, Text(f"... {rest} more lines of diff", "dim")] if rest > 0 else texts


def _totals(state: SessionState, records: Sequence[Recorded], report: RunReport) -> list[Text]:
    members = state.pool
    mine = [record.event for record in records if record.seq >= report.since]
    used = costs.usage(mine)
    parts = []
    for name, total in used.items():
        cached = f" ({compact_number(total.cached)} cached)" if total.cached else ""
        numbers = f"{compact_number(total.input)} in{cached} {compact_number(total.output)} out"
        parts.append(f"{name} {numbers}")
    cost = known_cost(
        costs.cost(mine, members),
        unpriced=bool(costs.unpriced(mine, members)),
        estimated=costs.is_estimated(mine, members),
    )
    turns = plural(len(state.request.turns), "turn")
    words = f"{turns}, {duration(report.milliseconds / 1000)}, {cost}"
    lines = [Text(shorten(", ".join([words, *parts]), 300), "dim")]
    if report.ignored:
        names = sanitize(", ".join(report.ignored))
        lines.append(Text(f"ignored until you trust this folder (`fugu trust`): {names}", "dim"))
    if report.log:
        lines.append(Text(f"log: {sanitize(report.log)}  (`fugu trace {report.session}`)", "dim"))
    return lines
