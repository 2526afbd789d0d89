"""The status line: folder, mode, totals, and what is being waited for, as a line and as a
widget.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from fugu_cli.formatting import compact_number, known_cost, retrying_in, sanitize, short_duration
from fugu_cli.ui.drawing import Palette, StyledLine, StyledPart, styled_line
from fugu_cli.ui.tui.screen_protocol import StatusLine

RETRYING_NOW_SECONDS = 1.0
"""Seconds for which a retry that has begun is said to begin now."""
LEAST_ACTIVITY_CELLS = 16
"""Cells of what is going on that are left of it where there is little room."""


def draw_status(status: StatusLine, clock: float, width: int, palette: Palette) -> StyledLine:
    """Draw the lasting part on the left and the activity on the right. `clock` is the time in epoch
    seconds. If both do not fit, a hint about keys is cut to its first key, then the folder is
    shortened, then the hint is left out. A long activity is cut before the folder is. Activity and
    mode are kept longest; the keys of a marked row are never cut.
    """
    if status.has_mark and not status.doing and not status.remark:
        keys: list[StyledPart] = [(status.hint, palette.dim)]
        for left in (*_left_part(status, clock, palette), []):
            gap = width - _cells(left) - _cells(keys)
            if gap >= 2 or not left:
                return styled_line([*left, (" " * max(gap, 0), ""), *keys], width)
    if not status.doing and not status.remark:
        for left in _with_numbers(status, clock, palette):
            for right in _idle_hints(status, palette):
                gap = width - _cells(left) - _cells(right)
                if gap >= 2:
                    return styled_line([*left, (" " * gap, ""), *right], width)
    for left in _left_part(status, clock, palette):
        for right in _activity(status, clock, width - _cells(left) - 2, palette):
            gap = width - _cells(left) - _cells(right)
            if gap >= (2 if right else 0):
                return styled_line([*left, (" " * gap, ""), *right], width)
    return styled_line(
        [*_brief(status, palette), ("  ", ""), (status.mode, _tone(status, palette))], width
    )


def _activity(
    status: StatusLine, clock: float, width: int, palette: Palette
) -> Iterator[list[StyledPart]]:
    """Yield descriptions of the current activity, each shorter than the one before."""
    queued = _queued(status, palette)
    if status.remark or not status.doing:
        if status.remark:
            yield [(status.remark, palette.warn)]
        yield _brief(status, palette)
        return
    spent = _spent(status, clock)
    going: list[StyledPart] = [*queued, (f"◐ {status.doing}{spent}", palette.accent)]
    yield [*going, (f" {status.key}", palette.dim)]
    yield going
    left = width - _cells([*queued, (f"◐ …{spent}", "")])
    if left >= min(LEAST_ACTIVITY_CELLS, cell_len(status.doing)):
        yield [*queued, (f"◐ {set_cell_size(status.doing, left).rstrip()}…{spent}", palette.accent)]


def _spent(status: StatusLine, clock: float) -> str:
    """Return the time that the activity has taken, or the time until the next retry. A retry that
    has begun counts as the activity.
    """
    if status.until and clock - status.until < RETRYING_NOW_SECONDS:
        return retrying_in(status.until - clock)
    begun = status.until or status.since
    return f" {short_duration(max(clock - begun, 0.0))}" if begun else ""


def _idle_hints(status: StatusLine, palette: Palette) -> Iterator[list[StyledPart]]:
    """Yield the hint while nothing runs: first with all keys, then with the first key only."""
    hint = "ctrl+s sends it" if status.queued else status.hint
    for keys in (hint, hint.partition(" · ")[0]):
        yield [*_queued(status, palette), (keys, palette.dim)]


def _brief(status: StatusLine, palette: Palette) -> list[StyledPart]:
    if status.remark:
        return [(status.remark, palette.warn)]
    going: list[StyledPart] = [(f"◐ {status.doing}", palette.accent)] if status.doing else []
    return [*_queued(status, palette), *going]


def _queued(status: StatusLine, palette: Palette) -> list[StyledPart]:
    parts = [(f"{status.messages} with the next result ", palette.warn)] if status.messages else []
    if status.queued:
        parts.append((f"{status.queued} queued ", palette.warn))
    return parts


def _left_part(status: StatusLine, clock: float, palette: Palette) -> Iterator[list[StyledPart]]:
    """Yield the lasting part of the line, each version shorter than the one before."""
    yield from _with_numbers(status, clock, palette)
    unavailable = _unavailable(status, clock, palette)
    yield [*_mode(status, palette), *unavailable]
    yield _mode(status, palette)
    yield _mode(replace(status, pinned=""), palette)


def _with_numbers(status: StatusLine, clock: float, palette: Palette) -> Iterator[list[StyledPart]]:
    """Yield the lasting part with tokens and cost, each time with a shorter name of the folder."""
    unavailable = _unavailable(status, clock, palette)
    name = status.folder.rpartition("/")[2]
    branch = f" ({status.branch})" if status.branch else ""
    for location in (f"{status.folder}{branch} · ", f"{name}{branch} · ", f"{name} · ", ""):
        yield [
            (f"{location}{status.tier} · ", palette.dim),
            *_mode(status, palette),
            *unavailable,
            *_numbers(status, palette),
        ]


def _mode(status: StatusLine, palette: Palette) -> list[StyledPart]:
    pinned: list[StyledPart] = (
        [(f" · pinned {status.pinned}", palette.dim)] if status.pinned else []
    )
    vi: list[StyledPart] = [(f"{status.vi} · ", palette.accent)] if status.vi else []
    return [*vi, (status.mode, _tone(status, palette)), *pinned]


def _unavailable(status: StatusLine, clock: float, palette: Palette) -> list[StyledPart]:
    """Return a text on the unavailable agents and the first time at which one may be retried."""
    waiting = [(until, name) for name, until in status.unavailable if until > clock]
    if not waiting:
        return []
    agents = sanitize(waiting[0][1]) if len(waiting) == 1 else f"{len(waiting)} agents"
    return [(f" · {agents} unavailable{retrying_in(min(waiting)[0] - clock)}", palette.warn)]


def _tone(status: StatusLine, palette: Palette) -> str:
    return {"plan": palette.good, "auto": palette.warn, "yolo": palette.bad}.get(
        status.mode, palette.text
    )


def _numbers(status: StatusLine, palette: Palette) -> list[StyledPart]:
    parts = [f"ctx {round(status.context * 100)}%"] if status.context is not None else []
    if status.tokens:
        cost = known_cost(status.cost, unpriced=status.unpriced, estimated=status.estimated)
        parts += [f"{compact_number(status.tokens)} tok", cost]
    if status.jobs:
        parts.append(f"{status.jobs} {'job' if status.jobs == 1 else 'jobs'}")
    return [(f" · {part}", palette.dim) for part in parts]


def _cells(parts: Sequence[StyledPart]) -> int:
    return sum(cell_len(text) for text, _ in parts)


PROMPT_HINT = "/help · ctrl+t trace · shift+tab mode"
OUTCOME_HINT = "f6 diff, undo, commit"
"""The hint while the prompt has the focus, and what stands before it where a request has ended."""


class StatusBar(Widget):
    """The status line, and below it the lines of the user's own command. The current activity has a
    line of its own if there is room.
    """

    def __init__(self, palette: Palette, standing: StatusLine) -> None:
        super().__init__(id="status")
        self.palette = palette
        self.standing = standing
        """The content of the line."""
        self._complete = standing
        self._remark = ""
        self._clock: Timer | None = None

    def on_mount(self) -> None:
        """Redraw when the focus changes, because the keys depend on it."""
        self.watch(self.screen, "focused", self.draw_again, init=False)
        self._tick()

    def stand(self, standing: StatusLine) -> None:
        """Show this status from now on."""
        self._complete = standing
        self.draw_again()

    def remark(self, text: str, seconds: float) -> None:
        """Show a remark for a moment instead of the hint."""
        self._remark = text
        self.draw_again()
        if text:
            self.set_timer(seconds, lambda: self.remark("", 0.0))

    def draw_again(self) -> None:
        """Redraw after keys or size changed."""
        part = self.screen.focused
        focused = part.id or "" if part is not None else ""
        hint = getattr(part, "hint", "")
        if focused == "prompt":
            ended = any(
                getattr(pager, "card", None) is not None
                for pager in self.screen.query("#conversation")
            )
            hint = f"{OUTCOME_HINT} · {PROMPT_HINT}" if ended else PROMPT_HINT
        is_asking = any(approval.display for approval in self.screen.query("#approval"))
        is_finding = self.screen.has_class("-finding")
        has_mark = focused != "prompt" and (is_finding or getattr(part, "chosen", None) is not None)
        if self._complete.doing:
            hint = hint.removesuffix(" · esc back")
        key = self._complete.key and _key_about_work(focused, is_asking)
        own_line = bool(key) and not self.screen.has_class("-short")
        if key and has_mark and not own_line:
            key = f"{hint} · {key}"
        status = replace(self._complete, hint=hint, has_mark=has_mark, key=key, remark=self._remark)
        for activity in self.screen.query(ActivityLine):
            activity.tell(status if own_line else StatusLine())
        status = replace(status, doing="", since=0.0, until=0.0, written=0) if own_line else status
        if status != self.standing:
            self.standing = status
            self.styles.height = 1 + len(status.own)
            self._tick()

    def _tick(self) -> None:
        clock = time.time()
        moves = bool(self.standing.doing) or any(
            until > clock for _, until in self.standing.unavailable
        )
        if moves and self._clock is None:
            self._clock = self.set_interval(1.0, self._tick)
        elif not moves and self._clock is not None:
            self._clock.stop()
            self._clock = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw the status line or one of the user's lines below it."""
        width = self.size.width
        if 0 < y <= len(self.standing.own):
            text = Text.from_ansi(self.standing.own[y - 1], no_wrap=True, end="")
            return (
                Strip(text.render(self.app.console))
                .adjust_cell_length(width)
                .apply_style(self.rich_style)
            )
        line = draw_status(self.standing, time.time(), width, self.palette)
        return Strip(line).adjust_cell_length(width).apply_style(self.rich_style)


def _key_about_work(focused: str, is_asking: bool) -> str:
    """Return the key that stops or opens what is going on, with its meaning."""
    if is_asking:
        return "esc denies" if focused == "approval" else "f6 answers · esc to interrupt"
    return "esc to interrupt"


SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_SECONDS = 0.2
"""Seconds for which a sign of the spinner is seen."""
WAITS_FOR_USER = "needs approval"


class ActivityLine(Widget):
    """The current activity with its time and tokens. Hidden while there is none."""

    def __init__(self, palette: Palette, id: str = "activity") -> None:
        super().__init__(id=id)
        self.palette = palette
        self.display = False
        self._shown = StatusLine()
        self._clock: Timer | None = None

    def tell(self, status: StatusLine) -> None:
        """Show this activity from now on."""
        same = replace(status, written=self._shown.written) == self._shown
        self._shown = status
        if same:  # numbers alone: the clock shows them
            return
        self.display = bool(status.doing)
        if self.display and self._clock is None:
            self._clock = self.set_interval(SPINNER_SECONDS, self.refresh)
        elif not self.display and self._clock is not None:
            self._clock.stop()
            self._clock = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw the line."""
        status, clock, width = self._shown, time.time(), self.size.width
        waits = status.until > clock or status.doing.startswith(WAITS_FOR_USER)
        sign = "◐" if waits else SPINNER[int(clock / SPINNER_SECONDS) % len(SPINNER)]
        spent = _spent(status, clock)
        written = f" · ↓ {compact_number(status.written)} tokens" if status.written else ""
        key = f" · {status.key}" if status.key else ""
        available = width - cell_len(f"{sign} {spent}{written}{key}")
        doing = (
            status.doing
            if cell_len(status.doing) <= available
            else f"{set_cell_size(status.doing, max(available - 1, 0)).rstrip()}…"
        )
        parts = [
            (f"{sign} {doing}", self.palette.accent),
            (f"{spent}{written}{key}", self.palette.dim),
        ]
        return (
            Strip(styled_line(parts, width)).adjust_cell_length(width).apply_style(self.rich_style)
        )
