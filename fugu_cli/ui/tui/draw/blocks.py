"""What each kind of block looks like. One small function a kind: block, width and palette in, lines out.

Called by pieces.py. Words that every output shares come from ui/render.py.
"""

from __future__ import annotations

import re

from fugu_cli import views
from fugu_cli.events import Assigned
from fugu_cli.ui.clean import count as tokens
from fugu_cli.ui.render import standing, target_of, tests_in_words
from fugu_cli.ui.tui.draw import diff
from fugu_cli.ui.tui.draw.block import Ended, Heading, Note, Plan, Request, Thought, ToolUse, Welcome
from fugu_cli.ui.tui.draw.graph import gutter
from fugu_cli.ui.tui.draw.lines import BLANK, Line, Part, indented, line, spread, wrapped
from fugu_cli.ui.tui.draw.palette import Palette
from fugu_cli.ui.tui.draw.text import brief_seconds, count, exact, flat, safe
from fugu_cli.ui.workflow import title, who

DIFF_LINES = 10
OUTPUT_LINES = 400
LIVE_LINES = 6
REQUEST_LINES = 60
_COLUMN = re.compile(r"(?<=\S) {2,}(?=\S)")


def request(block: Request, width: int, palette: Palette) -> list[Line]:
    """What the user asked, with a bar on its left."""
    made = wrapped(safe(block.text).strip("\n"), width - 2, palette.text)
    if len(made) > REQUEST_LINES:
        rest = len(made) - REQUEST_LINES
        made = [*made[:REQUEST_LINES], *wrapped(f"… {count(rest, 'more line')}", width - 2, palette.dim)]
    if block.attachments:
        made += wrapped("with " + ", ".join(flat(name) for name in block.attachments), width - 2, palette.dim)
    return [BLANK, *indented(made, ("▌ ", palette.user)), BLANK]


def heading(block: Heading, width: int, palette: Palette) -> list[Line]:
    """`● worker coder · middle .62, then cheap .30 · 310 ms` on a line."""
    assigned = block.assigned
    left: list[Part] = [
        ("● ", palette.role(assigned.role)),
        (assigned.role, f"bold {palette.role(assigned.role)}"),
        (f" {flat(assigned.agent)}", f"bold {palette.text}"),
    ]
    return [spread([*left, (f"  {_why(assigned)}", palette.dim)], [(f"turn {assigned.turn}", palette.dim)], width)]


def _why(assigned: Assigned) -> str:
    said = [standing(assigned) or "", flat(assigned.reason, 120), flat(assigned.instruction, 120)]
    if assigned.override is not None:
        said.append(f"a Thinker asked for this; the head had {assigned.override}")
    return " · ".join(part for part in said if part) or assigned.by


def thought(block: Thought, width: int, palette: Palette, unfolded: bool) -> list[Line]:
    """A line that says how much was thought, or all of it."""
    text = safe(block.text).strip()
    if not unfolded:
        head = [("  ∴ ", palette.dim), (f"thought, {count(text.count(chr(10)) + 1, 'line')}: ", palette.dim)]
        return [line([*head, (flat(text), f"italic {palette.dim}")], width), BLANK]
    return [*indented(wrapped(text, width - 4, f"italic {palette.dim}"), ("  ∴ ", palette.dim)), BLANK]


def tool(block: ToolUse, width: int, palette: Palette, unfolded: bool) -> list[Line]:
    """One line for the call; below it a change's diff, a running tool's newest output, or, unfolded, the result."""
    return [spread(*_tool_head(block, palette), width), *_below(block, width, palette, unfolded)]


def _tool_head(block: ToolUse, palette: Palette) -> tuple[list[Part], list[Part]]:
    sign, tone = _sign(block, palette)
    name = flat(exact(block.call.tool), 40)
    left: list[Part] = [(f"  {sign} ", tone)]
    if block.call.tool == views.RUN_TESTS:
        said = tests_in_words(block.result.ok, block.result.output) if block.result else "running"
        left += [("tests ", f"bold {palette.text}"), (said, tone)]
    else:
        left += [(name, f"bold {palette.dim if block.evidence else palette.text}")]
        left += [(f" {flat(exact(target_of(block.call)), 300)}", palette.dim if block.evidence else palette.text)]
    if not block.permitted.allowed:
        left.append((f"  not allowed: {flat(exact(block.permitted.reason), 200)}", palette.warn))
    added, removed = diff.size(_patch(block))
    right: list[Part] = []
    if added or removed:
        right += [(f"+{added}", palette.good), (f" -{removed} ", palette.bad)]
    if block.result is not None and block.result.job:
        right.append((f"started as {block.result.job} ", palette.dim))
    if block.result is not None and block.result.seconds >= 1:
        right.append((brief_seconds(block.result.seconds), palette.dim))
    return left, right


def _patch(block: ToolUse) -> str:
    """What the call changed: as it is known, else as its arguments say."""
    if block.result is None or not block.result.changes:
        return ""
    return block.patch or diff.of_call(block.call)


def _sign(block: ToolUse, palette: Palette) -> tuple[str, str]:
    if not block.permitted.allowed:
        return "⊘", palette.warn
    if block.result is None:
        return ("■", palette.warn) if block.cut else ("…", palette.accent)
    return ("✓", palette.good) if block.result.ok else ("✗", palette.bad)


def _below(block: ToolUse, width: int, palette: Palette, unfolded: bool) -> list[Line]:
    result = block.result
    if result is None:
        tail = safe(block.live).rstrip("\n").split("\n")[-LIVE_LINES:] if block.live.strip() else []
        return _set_off("\n".join(tail), width, palette) if tail else []
    if block.call.tool == views.TODO and result.ok:
        return _todo(block, width, palette)
    patch = _patch(block)
    if patch:
        shown = diff.block(patch, width, palette, None if unfolded else DIFF_LINES)
        return [*shown, *(_set_off(result.output, width, palette) if unfolded else [])]
    if unfolded:
        return _set_off(result.output, width, palette)
    if not result.ok and not block.evidence:
        return _set_off(flat(result.output, 300), width, palette)[:2]
    return []


def _todo(block: ToolUse, width: int, palette: Palette) -> list[Line]:
    """The list, each item with a sign of its own."""
    signs = {"pending": ("☐", palette.text), "in_progress": ("◐", palette.accent), "done": ("☑", palette.dim)}
    made: list[Line] = []
    for item in views.items_of(block.call):
        sign, tone = signs[item.status]
        made += indented(wrapped(safe(item.text), width - 6, tone), (f"    {sign} ", tone))
    return made


def _set_off(text: str, width: int, palette: Palette) -> list[Line]:
    every = safe(text).rstrip("\n").split("\n")
    made = [made for text in every[:OUTPUT_LINES] for made in wrapped(text, width - 4, palette.dim)]
    if len(every) > OUTPUT_LINES:
        made += wrapped(f"… {count(len(every) - OUTPUT_LINES, 'more line')}", width - 4, palette.dim)
    return indented(made, ("    ", ""))


def note(block: Note, width: int, palette: Palette) -> list[Line]:
    """A line of fugu's own."""
    tone = {
        "plain": palette.text,
        "dim": palette.dim,
        "good": palette.good,
        "bad": palette.bad,
        "warn": palette.warn,
    }[block.tone]
    made = indented(wrapped(safe(block.text).strip("\n"), width - 2, tone), ("  ", ""))
    if block.dropped:
        made += indented(wrapped(f"… {count(block.dropped, 'earlier line')}", width - 4, palette.dim), ("    ", ""))
    for told in safe(block.detail).strip("\n").split("\n") if block.detail else ():
        made += indented(wrapped(told, width - 4, palette.dim, " " * _hanging(told, width)), ("    ", ""))
    return [*made, BLANK]


def _hanging(text: str, width: int) -> int:
    """Where the last column of a table's line begins; 0 where it is none."""
    columns = list(_COLUMN.finditer(text, 0, width // 2))
    return columns[-1].end() if columns else 0


def plan(block: Plan, width: int, palette: Palette) -> list[Line]:
    """A workflow as a graph: a line for each step, with the edges of what it may read."""
    planned = block.planned
    head: list[Part] = [("● ", palette.accent), (title(planned), f"bold {palette.accent}")]
    made = [line([*head, (f" by {flat(planned.agent)}", palette.dim)], width)]
    made += indented(wrapped(safe(planned.fault), width - 2, palette.warn), ("  ", "")) if planned.fault else []
    for place, (edge, step) in enumerate(zip(gutter(planned.steps), planned.steps, strict=True)):
        left: list[Part] = [
            (f"  {edge}", palette.accent),
            (f"{place} ", palette.dim),
            (who(step), f"bold {palette.text}"),
        ]
        made.append(line([*left, (f" {flat(step.instruction)}", palette.text)], width))
    return [*made, BLANK]


def ended(block: Ended, width: int, palette: Palette) -> list[Line]:
    """How the request ended, in words and numbers."""
    finished = block.finished
    said = block.said.text
    good = finished.reason in ("accepted", "answered")
    stopped = palette.warn if finished.reason != "failed" else palette.bad
    tone = {"good": palette.good, "warn": palette.warn, "bad": stopped}[block.said.tone]
    numbers = f"{count(block.turns, 'turn')} · {brief_seconds(block.seconds)} · {tokens(block.tokens)} tokens"
    fits = len(said) + len(numbers) + 4 <= width
    sign = "✓" if good else "✗" if finished.reason == "failed" else "■"
    first = line([(f"{sign} ", tone), (said, f"bold {tone}"), (f"  {numbers}" if fits else "", palette.dim)], width)
    more = [] if fits else wrapped(numbers, width - 2, palette.dim)
    more += wrapped(safe(finished.message), width - 2, tone) if finished.message and not good else []
    return [first, *indented(more, ("  ", "")), BLANK]


def welcome(block: Welcome, width: int, palette: Palette) -> list[Line]:
    """Who is in the pool, and who decides."""
    opened = block.opened
    names = ", ".join(f"{member.name} ({member.slot})" for member in opened.pool) or "nobody"
    first = line([("fugu ", f"bold {palette.accent}"), (opened.version, palette.dim)], width)
    text = f"{opened.coordinator} decides over {names}"
    return [first, *wrapped(safe(text), width, palette.dim), BLANK]
