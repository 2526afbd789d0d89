"""Draws each kind of block as lines of a given width and palette.

rich.markdown is imported with the first piece of Markdown, not before the first paint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar, assert_never

from rich.cells import cell_len
from rich.segment import Segment

from fugu_cli.app import patches
from fugu_cli.app.event_text import (
    VERDICT_MARKS,
    decision_why,
    file_notes,
    team_line,
    test_counts_text,
    tool_name,
)
from fugu_cli.formatting import (
    escape_for_approval,
    flatten,
    plural,
    sanitize_for_screen,
    short_duration,
)
from fugu_cli.messages import Call
from fugu_cli.session.checks import RUN_CHECK
from fugu_cli.session.events import SAID_NO, Permitted, ToolRan
from fugu_cli.session.open_work import TODO, items_of
from fugu_cli.session.outcome import RUN_TESTS, TESTS_BEFORE
from fugu_cli.session.tool_facts import ASK_USER, facts_of
from fugu_cli.session.turns import find_verdict
from fugu_cli.testing.assertions import assertion_of, failing_tests
from fugu_cli.ui import diff_drawing
from fugu_cli.ui.blocks import (
    Block,
    DecisionBlock,
    EndBlock,
    Judged,
    NoteBlock,
    PlanBlock,
    ReplyBlock,
    RequestBlock,
    ThinkingBlock,
    ToolBlock,
    WelcomeBlock,
)
from fugu_cli.ui.call_groups import (
    checks_text,
    explored_text,
    group_kind,
    group_start,
    grouped_calls,
    is_empty,
)
from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import (
    BLANK,
    TERMINAL,
    Palette,
    StyledLine,
    StyledPart,
    indent_lines,
    justified_line,
    on_ground,
    parse_style,
    render_rich,
    styled_line,
    with_commands,
    wrap_lines,
)
from fugu_cli.ui.end_drawing import end_lines
from fugu_cli.ui.markdown_chunks import MarkdownChunk
from fugu_cli.ui.turn_notes import user_answer
from fugu_cli.ui.workflow_text import edge_columns, plan_title, step_agent

if TYPE_CHECKING:
    from rich.markdown import Markdown

    from fugu_cli.ui.first_screen import FirstScreen


@cache
def _document(palette: Palette) -> type[Markdown]:
    """Return the Markdown class for a palette, made once."""
    from rich import markdown
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.rule import Rule
    from rich.syntax import Syntax
    from rich.text import Text

    class Heading(markdown.Heading):
        """A heading on the left, ever plainer with its level."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            self.text.justify = "left"
            tones = {"h1": f"bold underline {palette.accent}", "h2": f"bold {palette.accent}"}
            yield Text.assemble(self.text, style=tones.get(self.tag, f"bold {palette.text}"))

    class HorizontalRule(markdown.HorizontalRule):
        """A line across the text."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            yield Rule(style=palette.dim)

    class ListItem(markdown.ListItem):
        """An item of a Markdown list. A task item has a box instead of a bullet."""

        def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
            drawn = [
                segment
                for segment in super().render_bullet(console, options)
                if isinstance(segment, Segment)
            ]
            lines = list(Segment.split_lines(drawn))
            begun = "".join(segment.text for segment in lines[0]) if lines else ""
            if begun[:5] in (" • ☐ ", " • ☑ "):
                _, rest = Segment.divide(lines[0], [5, Segment.get_line_length(lines[0])])
                lines[0] = [Segment(f" {begun[3]} ", parse_style(palette.accent)), *rest]
            for line in lines:
                yield from line
                yield Segment.line()

    class Code(markdown.CodeBlock):
        """Code in colours on a ground of its own."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            text = str(self.text).rstrip("\n")
            ground = palette.grounds[1] or "default"
            yield Syntax(
                text,
                self.lexer_name,
                theme=palette.code,
                word_wrap=True,
                background_color=ground,
                padding=(0, 2),
            )

    class Document(markdown.Markdown):
        """rich's Markdown with these elements."""

        elements: ClassVar[dict[str, type[markdown.MarkdownElement]]] = {
            **markdown.Markdown.elements,
            "heading_open": Heading,
            "hr": HorizontalRule,
            "list_item_open": ListItem,
            "fence": Code,
            "code_block": Code,
        }

    return Document


_TASK = re.compile(r"^(\s*(?:[-*+]|\d{1,9}[.)])\s+)\[([ xX])\] ", re.MULTILINE)


def markdown_lines(chunk: MarkdownChunk, width: int, palette: Palette) -> list[StyledLine]:
    """Return the chunk's lines, and a blank one unless the next chunk belongs to the same block."""
    text = sanitize_for_screen(chunk.text)
    if "[" in text and not text.lstrip().startswith(("```", "~~~")):
        text = _TASK.sub(lambda match: f"{match[1]}{'☐' if match[2] == ' ' else '☑'} ", text)
    document = _document(palette)(text, code_theme=palette.code, hyperlinks=False)
    lines = render_rich(document, width, palette)
    while lines and not any(segment.text.strip() for segment in lines[0]):
        lines = lines[1:]
    while lines and not any(segment.text.strip() for segment in lines[-1]):
        lines = lines[:-1]
    return lines if chunk.joined else [*lines, BLANK]


def reply_lines(
    chunk: MarkdownChunk, width: int, palette: Palette, judged: Judged = ""
) -> list[StyledLine]:
    """Return a chunk of a reply. A Verifier's verdict is drawn as a mark in place of the word."""
    split = find_verdict(chunk.text, leading=judged == "first") if judged else None
    if split is None:
        return markdown_lines(chunk, width, palette)
    before, verdict, after = split
    words, tone = VERDICT_MARKS[verdict]
    lines = (
        markdown_lines(replace(chunk, text=before, joined=False), width, palette) if before else []
    )
    lines.append(
        styled_line([(words, f"bold {palette.good if tone == 'good' else palette.warn}")], width)
    )
    if after:
        return [*lines, *markdown_lines(replace(chunk, text=after), width, palette)]
    return lines if chunk.joined else [*lines, BLANK]


DIFF_LINES = 10
DIFF_TOOL = "diff"
OUTPUT_LINES = 400
LIVE_LINES = 6
REQUEST_LINES, REQUEST_ENDS = 12, (4, 2)
"""Lines of a request that are shown whole; of a longer one, its first and its last lines."""
LONG_REQUEST = 400
"""Characters of a request that may have more lines than these."""
_COLUMN = re.compile(r"(?<=\S) {2,}(?=\S)")


def request_lines(
    block: RequestBlock, width: int, palette: Palette, unfolded: bool = False
) -> list[StyledLine]:
    """Return the user's request with a bar on its left. A long one shows only its beginning and
    end.
    """
    lines = wrap_lines(sanitize_for_screen(block.text).strip("\n"), width - 2, palette.text)
    if not unfolded and len(lines) > REQUEST_LINES:
        key = "" if palette is TERMINAL else " (ctrl+o: all of it)"
        hidden = f"… {plural(len(lines) - sum(REQUEST_ENDS), 'more line')}{key}"
        lines = [
            *lines[: REQUEST_ENDS[0]],
            *wrap_lines(hidden, width - 2, palette.dim),
            *lines[-REQUEST_ENDS[1] :],
        ]
    if block.attachments:
        lines += wrap_lines(
            "with " + ", ".join(flatten(name) for name in block.attachments), width - 2, palette.dim
        )
    mark = ("▌ ", palette.user)
    if block.given_to:
        mark = ("↳ ", palette.user)
        result = " with the next result" if block.with_result else ""
        recipient = f"given to {flatten(block.given_to)}{result}"
        lines += wrap_lines(recipient, width - 2, palette.dim)
    return [BLANK, *on_ground(indent_lines(lines, mark), width, palette.request), BLANK]


def decision_lines(block: DecisionBlock, width: int, palette: Palette) -> list[StyledLine]:
    """Return a line like `● worker coder  should solve 61% of bug fixes, about $0.12 a turn`. A reason
    that does not fit goes on below it.
    """
    assigned = block.assigned
    left: list[StyledPart] = [
        ("● ", palette.role(assigned.role)),
        (assigned.role, f"bold {palette.role(assigned.role)}"),
        (f" {flatten(assigned.agent)}", f"bold {palette.text}"),
    ]
    right: list[StyledPart] = [(f"turn {assigned.turn}", palette.dim)]
    why = decision_why(assigned, block.reason, block.unavailable)
    available = width - sum(cell_len(text) for text, _ in (*left, *right)) - 3
    if cell_len(why) <= available:
        return [justified_line([*left, (f"  {why}", palette.dim)], right, width)]
    lines = indent_lines(wrap_lines(why, width - 2, palette.dim), ("  ", palette.dim))
    return [justified_line(left, right, width), *lines]


def thinking_lines(
    block: ThinkingBlock, width: int, palette: Palette, unfolded: bool
) -> list[StyledLine]:
    """Draw the thoughts of an agent: one line with their number of lines, or all of them if
    `unfolded`.
    """
    text = sanitize_for_screen(block.text).strip()
    if not unfolded:
        head = [
            ("  ∴ ", palette.dim),
            (f"Thought ({plural(text.count(chr(10)) + 1, 'line')}): ", palette.dim),
        ]
        return [styled_line([*head, (flatten(text), f"italic {palette.dim}")], width), BLANK]
    return [
        *indent_lines(wrap_lines(text, width - 4, f"italic {palette.dim}"), ("  ∴ ", palette.dim)),
        BLANK,
    ]


def tool_lines(
    block: ToolBlock, width: int, palette: Palette, unfolded: bool, terminal: int = 0
) -> list[StyledLine]:
    """Return one line for the call, and below it a change's diff, a running tool's newest output,
    or if `unfolded` the result.
    """
    left, right = _tool_head(block, palette)
    denial = "" if block.permitted.allowed else _denial(block.permitted)
    fits = cell_len(denial) + sum(cell_len(text) for text, _ in left) + 2 <= width
    if denial and fits:
        left.append((f"  {denial}", palette.warn))
    lines = [justified_line(left, right, width)]
    if denial and not fits:
        lines += indent_lines(wrap_lines(denial, width - 4, palette.warn), ("    ", ""))
    target = escape_for_approval(block.target)
    if unfolded and (
        "\n" in target or cell_len(tool_name(block.call) + target) > width - CALL_FRAME
    ):
        lines += _set_off(target, width, palette)
    for note in file_notes(block.result) if block.result is not None else ():
        lines += indent_lines(wrap_lines(note, width - 4, palette.warn), ("    ", ""))
    return [*lines, *_below(block, width, palette, unfolded, terminal)]


CALL_FRAME = 24
"""Columns of a call's line around its name and target."""


def _tool_head(block: ToolBlock, palette: Palette) -> tuple[list[StyledPart], list[StyledPart]]:
    sign, tone = _sign(block, palette)
    name = flatten(escape_for_approval(tool_name(block.call)), 40)
    left: list[StyledPart] = [(f"  {sign} ", tone)]
    if block.call.tool == RUN_TESTS:
        outcome = "running"
        if block.result is not None and block.tests is not None:
            outcome = test_counts_text(block.tests, block.result.output)
        left += [("tests ", f"bold {palette.text}"), (outcome, tone)]
    elif block.call.tool == RUN_CHECK:
        outcome = "running"
        if block.result is not None:
            outcome = "pass" if block.result.ok else "FAIL"
        left += [("acceptance check ", f"bold {palette.text}"), (outcome, tone)]
    else:
        style = palette.dim if block.evidence else palette.text
        left.append((name, f"bold {style}"))
        if block.call.tool != TODO or block.result is None or block.result.ok:
            target = flatten(escape_for_approval(block.target), 300)
            left.append((f" {target}", style))
    if block.cut and block.result is None:
        left.append(("  interrupted", palette.warn))
    added, removed = patches.patch_size(_patch(block))
    right: list[StyledPart] = []
    if added or removed:
        right += [(f"+{added}", palette.good), (f" -{removed} ", palette.bad)]
    if block.result is not None and block.result.job:
        right.append((f"started as {block.result.job} ", palette.dim))
    if block.result is not None and block.result.seconds >= 1:
        right.append((short_duration(block.result.seconds), palette.dim))
    return left, right


def _denial(permitted: Permitted) -> str:
    """Return who denied the call and why. The reason of a rule is left out if the user decided."""
    reason = flatten(escape_for_approval(permitted.reason), 400)
    if permitted.by != "user":
        return f"not allowed: {reason}"
    if reason.startswith(SAID_NO):
        return f"denied by you{reason.removeprefix(SAID_NO)}"
    return "denied by you"


def _patch(block: ToolBlock) -> str:
    """Return the patch of the call, or the one that its arguments describe."""
    if block.result is None or not block.result.changes:
        return ""
    return block.patch or patches.patch_of_call(block.call)


def _sign(block: ToolBlock, palette: Palette) -> tuple[str, str]:
    if not block.permitted.allowed:
        return "⊘", palette.warn
    if block.result is None:
        return ("■", palette.warn) if block.cut else ("…", palette.accent)
    if block.tests is not None and block.tests not in ("pass", "broken"):
        return ("·", palette.dim) if block.tests == "none" else ("✗", palette.warn)
    return ("✓", palette.good) if block.result.ok else ("✗", palette.bad)


def _below(
    block: ToolBlock, width: int, palette: Palette, unfolded: bool, terminal: int
) -> list[StyledLine]:
    result = block.result
    if result is None:
        text = block.live or block.inside
        if not text.strip():
            return []
        tail = sanitize_for_screen(text).rstrip("\n").split("\n")[-LIVE_LINES:]
        return _set_off("\n".join(tail), width, palette)
    if block.call.tool == TODO and result.ok:
        return _todo(block, width, palette)
    if result.media:
        return _set_off("\n".join(flatten(media.line) for media in result.media), width, palette)
    patch = _patch(block)
    if patch:
        shown = diff_drawing.indented_patch(
            patch, width, palette, None if unfolded else DIFF_LINES, terminal
        )
        return [*shown, *(_set_off(result.output, width, palette) if unfolded else [])]
    if unfolded and result.ok and block.call.tool == DIFF_TOOL:
        return diff_drawing.indented_patch(result.output, width, palette, None, terminal)
    if unfolded:
        inside = block.inside if result.ok else ""
        _, _, cost = result.output.rpartition("\n\n")  # its last words stand in what it said
        if inside:
            return _set_off(f"{inside}\n\n{cost}", width, palette)
        return _set_off(result.output, width, palette, result.omitted_lines)
    return _folded_result(block.call, result, width, palette, has_keys=terminal > 0)


def _folded_result(
    call: Call, result: ToolRan, width: int, palette: Palette, *, has_keys: bool
) -> list[StyledLine]:
    if result.tests is not None and result.tests.failing:
        named = _named_failures(result.tests.failing, result.output, has_keys=has_keys)
        return _set_off("\n".join(named), width, palette)
    if call.tool in (RUN_TESTS, RUN_CHECK, TESTS_BEFORE) or result.job:
        return []
    if facts_of(call.tool).command:
        last_lines = _last_lines(result, has_keys=has_keys)
        return _set_off(last_lines, width, palette) if last_lines else []
    if not result.ok:
        return _set_off(flatten(result.output, 300), width, palette)[:LAST_LINES]
    if call.tool == ASK_USER.name:
        return _set_off(f"→ {user_answer(result)}", width, palette)
    return []


LAST_LINES, NAMED_FAILURES = 3, 3
"""Lines of a command's output, and failing tests, that are shown folded."""


def _last_lines(result: ToolRan, *, has_keys: bool) -> str:
    """Return the end of what a command printed, and how many lines of it stand above that. Where
    tests failed, they stand in the place of the last lines but one.
    """
    lines = sanitize_for_screen(result.output).split("\n")
    failing = [] if result.ok else failing_tests("\n".join(lines))
    if lines[-1] == "[exit code 0]" or failing:
        lines.pop()
    printed = [number for number, line in enumerate(lines) if line.strip()]
    last = printed[-1:] if failing else printed[-LAST_LINES:]
    shown = _named_failures(failing, result.output, has_keys=has_keys)
    shown += [_shortened(lines[number]) for number in last]
    hidden = last[0] if last else 0
    if result.omitted_lines:
        hidden += result.omitted_lines - 1  # a note in the output stands for them
    if hidden > 0:
        shown.append(f"+{_folded(hidden, 'line', has_keys=has_keys)}")
    return "\n".join(shown)


def _named_failures(failing: Sequence[str], output: str, *, has_keys: bool) -> list[str]:
    """Return the names of failing tests, each with the assertion that its runner reports."""
    output = sanitize_for_screen(output)
    lines = []
    for test in failing[:NAMED_FAILURES]:
        assertion = assertion_of(test, failing, output)
        lines.append(_shortened(f"✗ {test}: {assertion}" if assertion else f"✗ {test}"))
    if len(failing) > NAMED_FAILURES:
        more = _folded(len(failing) - NAMED_FAILURES, "failing test", has_keys=has_keys)
        lines.append(f"+{more}")
    return lines


def _folded(count: int, thing: str, *, has_keys: bool) -> str:
    """Return a note on how much is hidden, with the key that shows it if there is one."""
    return f"{plural(count, thing)}{' (ctrl+o)' if has_keys else ''}"


def _shortened(line: str) -> str:
    """Return a line of output that takes little room."""
    return line.rstrip() if len(line) <= FOLDED_CHARACTERS else line[:FOLDED_CHARACTERS] + "…"


FOLDED_CHARACTERS = 300
"""Characters of a line of output that are shown folded."""


def _todo(block: ToolBlock, width: int, palette: Palette) -> list[StyledLine]:
    """Return the todo list, each item with the sign of its state."""
    signs = {
        "pending": ("☐", palette.text),
        "in_progress": ("◐", palette.accent),
        "done": ("☑", palette.dim),
    }
    lines: list[StyledLine] = []
    for item in items_of(block.call):
        sign, tone = signs[item.status]
        first, *rest = wrap_lines(sanitize_for_screen(item.text), width - 6, tone) or [BLANK]
        lines += indent_lines([first], (f"    {sign} ", tone))
        lines += indent_lines(rest, ("      ", ""))
    return lines


def _set_off(text: str, width: int, palette: Palette, omitted_lines: int = 0) -> list[StyledLine]:
    """Draw a text on a ground of its own. A note in it stands for `omitted_lines`."""
    every = sanitize_for_screen(text).rstrip("\n").split("\n")
    if len(every) > OUTPUT_LINES:
        hidden = len(every) - OUTPUT_LINES + max(omitted_lines - 1, 0)
        left_out = f"… {plural(hidden, 'more line')} …"
        half = OUTPUT_LINES // 2
        every = [*every[:half], left_out, *every[-half:]]
    lines = []
    for line in every:
        lines += wrap_lines(line, width - 4, palette.dim)
    return indent_lines(on_ground(lines, width - 4, palette.quiet), ("    ", ""))


def note_lines(block: NoteBlock, width: int, palette: Palette) -> list[StyledLine]:
    """Return a note of fugu's own."""
    tone = {
        "plain": palette.text,
        "dim": palette.dim,
        "good": palette.good,
        "bad": palette.bad,
        "warn": palette.warn,
    }[block.tone]
    text = with_commands(block.text, palette)
    lines = indent_lines(
        wrap_lines(sanitize_for_screen(text).strip("\n"), width - 2, tone), ("  ", "")
    )
    if block.dropped:
        lines += indent_lines(
            wrap_lines(f"… {plural(block.dropped, 'earlier line')}", width - 4, palette.dim),
            ("    ", ""),
        )
    detail: list[str] = []
    if block.detail:
        detail = sanitize_for_screen(with_commands(block.detail, palette)).strip("\n").split("\n")
    for line in detail:
        wrapped = wrap_lines(line, width - 4, palette.dim, " " * _hanging(line, width))
        lines += indent_lines(on_ground(wrapped, width - 4, palette.quiet), ("    ", ""))
    return [*lines, BLANK]


def _hanging(text: str, width: int) -> int:
    """Return the column where the last cell of a table line begins, 0 if it is not a table line."""
    columns = list(_COLUMN.finditer(text, 0, width // 2))
    return columns[-1].end() if columns else 0


def plan_lines(block: PlanBlock, width: int, palette: Palette) -> list[StyledLine]:
    """Return a workflow as a graph: a line for each step, with the edges of what it may read."""
    planned = block.planned
    head: list[StyledPart] = [
        ("● ", palette.accent),
        (plan_title(planned), f"bold {palette.accent}"),
    ]
    lines = [styled_line([*head, (f" by {flatten(planned.agent)}", palette.dim)], width)]
    if planned.fault:
        fault = wrap_lines(sanitize_for_screen(planned.fault), width - 2, palette.warn)
        lines += indent_lines(fault, ("  ", ""))
    if block.why:
        lines += indent_lines(
            wrap_lines(f"because {flatten(block.why)}", width - 2, palette.dim), ("  ", "")
        )
    for index, (edge, step) in enumerate(
        zip(edge_columns(planned.steps), planned.steps, strict=True)
    ):
        left: list[StyledPart] = [
            (f"  {edge}", palette.accent),
            (f"{index + 1} ", palette.dim),
            (step_agent(step), f"bold {palette.text}"),
        ]
        lines.append(styled_line([*left, (f" {flatten(step.instruction)}", palette.text)], width))
    return [*lines, BLANK]


def welcome_lines(block: WelcomeBlock, width: int, palette: Palette) -> list[StyledLine]:
    """Return the pool and the coordinator; before the first request also what there is to do."""
    opened = block.opened
    first = styled_line([("fugu ", f"bold {palette.accent}"), (opened.version, palette.dim)], width)
    lines = [first, *wrap_lines(sanitize_for_screen(team_line(opened)), width, palette.dim), BLANK]
    if block.start is not None:
        lines += start_lines(block.start, width, palette)
    return lines


def start_lines(start: FirstScreen, width: int, palette: Palette) -> list[StyledLine]:
    """Return the folder's state, requests to begin with, and the recent sessions."""
    lines = wrap_lines(sanitize_for_screen(start.git), width, palette.text)
    lines += wrap_lines(f"{start.turn} {start.budget}", width, palette.dim)
    headed = (("ask, for example", start.examples), ("recent sessions: /sessions", start.sessions))
    for heading, texts in headed:
        if texts:
            lines += [BLANK, styled_line([(heading, palette.dim)], width)]
            lines += [styled_line([(f"  {text}", palette.text)], width) for text in texts]
    return [*lines, BLANK]


_FinishedBlock = (
    RequestBlock
    | DecisionBlock
    | ThinkingBlock
    | ToolBlock
    | NoteBlock
    | PlanBlock
    | EndBlock
    | WelcomeBlock
)


def chunk_fragment(chunk: MarkdownChunk, judged: Judged = "") -> Fragment:
    """Return a fragment that draws a chunk of Markdown."""
    return Fragment(lambda width, palette: reply_lines(chunk, width, palette, judged), chunk.text)


GAP = Fragment(lambda width, palette: [BLANK], exact=1)
"""A blank line between two blocks."""


def has_gap_before(blocks: Sequence[Block], index: int) -> bool:
    """Return whether a blank line precedes this block. Text after a row of tool calls is set apart,
    and so is a reply from the heading of its turn.
    """
    block = blocks[index]
    if isinstance(block, ToolBlock | RequestBlock) or is_empty(block):
        return False
    before = next((blocks[at] for at in range(index - 1, -1, -1) if not is_empty(blocks[at])), None)
    if isinstance(before, DecisionBlock):
        return isinstance(block, ReplyBlock)
    return isinstance(before, ToolBlock)


Columns = Callable[[], int]
"""Return the terminal's width in columns, 0 for no limit."""


def block_fragments(block: Block, *, unfolded: bool, terminal: Columns = int) -> list[Fragment]:
    """Return a block's pieces. A reply that grows keeps those that are complete."""
    if isinstance(block, ReplyBlock):
        return ReplyFragments(block).pieces()
    return [] if is_empty(block) else [_single(block, unfolded, terminal)]


def fragments_at(
    blocks: Sequence[Block],
    index: int,
    *,
    unfolded: bool,
    terminal: Columns = int,
    since: int = 0,
) -> list[Fragment]:
    """Return the pieces of the block at `index`, with the gap before it.

    Calls that share a line are drawn with the first of them, unless they are unfolded. Blocks before
    `since` were printed earlier and are not drawn again.
    """
    block = blocks[index]
    gap = [GAP] if has_gap_before(blocks, index) else []
    if not unfolded and group_kind(block):
        start = max(group_start(blocks, index), since)
        if start < index:
            return []
        if calls := grouped_calls(blocks, start):
            return [_group_fragment(calls, terminal)]
    return [*gap, *block_fragments(block, unfolded=unfolded, terminal=terminal)]


def _group_fragment(calls: Sequence[ToolBlock], terminal: Columns) -> Fragment:
    return Fragment(
        lambda width, palette: group_lines(calls, width, palette, has_keys=terminal() > 0), exact=1
    )


def group_lines(
    calls: Sequence[ToolBlock], width: int, palette: Palette, *, has_keys: bool
) -> list[StyledLine]:
    """Draw the line that the calls share, and below it the failing tests."""
    is_checks = calls[0].evidence
    signs = [_sign(call, palette) for call in calls if call.call.tool != TESTS_BEFORE]
    if not signs:  # only the failing tests were run, on the files as they were
        is_running = any(call.result is None for call in calls)
        signs = [("…", palette.accent) if is_running else ("·", palette.dim)]
    sign, tone = max(signs, key=lambda sign: SIGN_ORDER.index(sign[0]))
    left: list[StyledPart] = [(f"  {sign} ", tone)]
    if is_checks:
        left += [("checks: ", f"bold {palette.text}"), (checks_text(calls), tone)]
    else:
        left += [("Explored ", f"bold {palette.text}"), (explored_text(calls), palette.text)]
    results = [call.result for call in calls if call.result is not None]
    seconds = sum(result.seconds for result in results)
    took = short_duration(seconds) if seconds >= 1 else ""
    lines = [justified_line(left, [(took, palette.dim)], width)]
    for result in results if is_checks else ():
        if result.call.tool == RUN_TESTS and result.tests is not None and result.tests.failing:
            named = _named_failures(result.tests.failing, result.output, has_keys=has_keys)
            lines += _set_off("\n".join(named), width, palette)
        for note in file_notes(result):
            lines += indent_lines(wrap_lines(note, width - 4, palette.warn), ("    ", ""))
    return lines


SIGN_ORDER = "·✓■⊘✗…"
"""Signs of calls, the least important first."""


def _single(block: _FinishedBlock, unfolded: bool, terminal: Columns) -> Fragment:
    match block:
        case RequestBlock():
            return Fragment(
                lambda width, palette: request_lines(block, width, palette, unfolded), block.text
            )
        case DecisionBlock():
            return Fragment(lambda width, palette: decision_lines(block, width, palette), exact=1)
        case ThinkingBlock():
            return Fragment(
                lambda width, palette: thinking_lines(block, width, palette, unfolded), exact=2
            )
        case ToolBlock():
            return Fragment(
                lambda width, palette: tool_lines(block, width, palette, unfolded, terminal()),
                exact=1,
            )
        case NoteBlock():
            text = block.text + block.detail
            return Fragment(lambda width, palette: note_lines(block, width, palette), text)
        case PlanBlock():
            return Fragment(
                lambda width, palette: plan_lines(block, width, palette),
                "\n" * len(block.planned.steps),
            )
        case EndBlock():
            return Fragment(lambda width, palette: end_lines(block, width, palette), exact=5)
        case WelcomeBlock():
            return Fragment(lambda width, palette: welcome_lines(block, width, palette), exact=4)
        case _:
            assert_never(block)


class ReplyFragments:
    """The pieces of one Speech while it grows: those of finished chunks stay, the tail's lines are
    kept where equal.
    """

    def __init__(self, speech: ReplyBlock) -> None:
        self.chunker = speech.chunker
        self._speech = speech
        self._done: list[Fragment] = []
        self._tail: Fragment | None = None

    def pieces(self) -> list[Fragment]:
        """Return the fragments of the present reply."""
        count = len(self._done)
        new = [
            chunk_fragment(chunk, self._speech.judged(count + at))
            for at, chunk in enumerate(self.chunker.done[count:])
        ]
        if new and self._tail is not None:
            new[0].resemble(self._tail)
            self._tail = None
        self._done += new
        tail = self.chunker.tail
        if tail is None:
            return list(self._done)
        piece = chunk_fragment(tail, self._speech.judged(len(self._done)))
        if self._tail is not None:
            piece.resemble(self._tail)
        self._tail = piece
        return [*self._done, piece]


def transcript_fragments(every: Sequence[Block], *, unfolded: bool) -> list[Fragment]:
    """Return the fragments of finished blocks."""
    pieces: list[Fragment] = []
    for index in range(len(every)):
        pieces += fragments_at(every, index, unfolded=unfolded)
    return pieces


def foldable(block: Block) -> bool:
    """Return whether unfolding the block shows more."""
    if isinstance(block, RequestBlock):
        return len(block.text) > LONG_REQUEST or block.text.count("\n") >= REQUEST_LINES
    return isinstance(block, ToolBlock | ThinkingBlock) and not is_empty(block)
