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

LEAST_ACTIVITY_CELLS = 16
"""Cells of what is going on that are left of it where there is little room."""


def draw_status(now: StatusLine, clock: float, width: int, palette: Palette) -> StyledLine:
    """Draw the lasting part on the left and the activity on the right. `clock` is the time in epoch
    seconds.

    If both do not fit, the hint about keys is left out first, then a long activity is cut, then the
    place. Activity and mode stay longest.
    """
    for left in _left_part(now, clock, palette):
        for right in _activity(now, clock, width - _cells(left) - 2, palette):
            gap = width - _cells(left) - _cells(right)
            if gap >= (2 if right else 0):
                return styled_line([*left, (" " * gap, ""), *right], width)
    return styled_line([*_brief(now, palette), ("  ", ""), (now.mode, _tone(now, palette))], width)


def _activity(
    now: StatusLine, clock: float, controller: int, palette: Palette
) -> Iterator[list[StyledPart]]:
    """Yield descriptions of the current activity, each shorter than the one before."""
    queued = _queued(now, palette)
    if now.remark or not now.doing:
        hint = "ctrl+s sends it" if now.queued else now.hint
        yield [(now.remark, palette.warn)] if now.remark else [*queued, (hint, palette.dim)]
        yield _brief(now, palette)
        return
    spent = (
        retrying_in(now.until - clock)
        if now.until
        else f" {short_duration(max(clock - now.since, 0.0))}"
    )
    going: list[StyledPart] = [*queued, (f"◐ {now.doing}{spent}", palette.accent)]
    yield [*going, (f" {now.key}", palette.dim)]
    yield going
    left = controller - _cells([*queued, (f"◐ …{spent}", "")])
    if left >= min(LEAST_ACTIVITY_CELLS, cell_len(now.doing)):
        yield [*queued, (f"◐ {set_cell_size(now.doing, left).rstrip()}…{spent}", palette.accent)]


def _brief(now: StatusLine, palette: Palette) -> list[StyledPart]:
    if now.remark:
        return [(now.remark, palette.warn)]
    going: list[StyledPart] = [(f"◐ {now.doing}", palette.accent)] if now.doing else []
    return [*_queued(now, palette), *going]


def _queued(now: StatusLine, palette: Palette) -> list[StyledPart]:
    return [(f"{now.queued} queued ", palette.warn)] if now.queued else []


def _left_part(now: StatusLine, clock: float, palette: Palette) -> Iterator[list[StyledPart]]:
    """Yield the lasting part of the line, each version shorter than the one before."""
    out = _unavailable(now, clock, palette)
    folder = now.place.rpartition("/")[2]
    branch = f" ({now.branch})" if now.branch else ""
    for place in (f"{now.place}{branch} · ", f"{folder}{branch} · ", f"{folder} · ", ""):
        yield [
            (f"{place}{now.tier} · ", palette.dim),
            *_mode(now, palette),
            *out,
            *_numbers(now, palette),
        ]
    yield [*_mode(now, palette), *out]
    yield _mode(now, palette)
    yield _mode(replace(now, pinned=""), palette)


def _mode(now: StatusLine, palette: Palette) -> list[StyledPart]:
    pinned: list[StyledPart] = [(f" · pinned {now.pinned}", palette.dim)] if now.pinned else []
    vi: list[StyledPart] = [(f"{now.vi} · ", palette.accent)] if now.vi else []
    return [*vi, (now.mode, _tone(now, palette)), *pinned]


def _unavailable(now: StatusLine, clock: float, palette: Palette) -> list[StyledPart]:
    """Return the unavailable agents and the first retry time."""
    out = [(until, name) for name, until in now.unavailable if until > clock]
    if not out:
        return []
    who = sanitize(out[0][1]) if len(out) == 1 else f"{len(out)} agents"
    return [(f" · {who} unavailable{retrying_in(min(out)[0] - clock)}", palette.warn)]


def _tone(now: StatusLine, palette: Palette) -> str:
    return {"plan": palette.good, "auto": palette.warn, "yolo": palette.bad}.get(
        now.mode, palette.text
    )


def _numbers(now: StatusLine, palette: Palette) -> list[StyledPart]:
    made = [f"ctx {round(now.context * 100)}%"] if now.context is not None else []
    if now.tokens:
        cost = known_cost(now.cost, unpriced=now.unpriced, estimated=now.estimated)
        made += [f"{compact_number(now.tokens)} tok", cost]
    if now.jobs:
        made.append(f"{now.jobs} {'job' if now.jobs == 1 else 'jobs'}")
    return [(f" · {part}", palette.dim) for part in made]


def _cells(parts: Sequence[StyledPart]) -> int:
    return sum(cell_len(text) for text, _ in parts)


HINTS = {
    "prompt": "/help · ctrl+t trace · shift+tab mode",
    "trace": "enter opens · p pins · x excludes · r retries · [ ] resize",
    "conversation": "↑ ↓ mark · enter unfolds · esc back",
}
"""Hints while nothing is running, by focused part."""


class StatusBar(Widget):
    """The line, and below it those of the user's own command. What is under way has a line of its
    own, where there is room for it."""

    def __init__(self, palette: Palette, standing: StatusLine) -> None:
        super().__init__(id="status")
        self.palette = palette
        self.standing = standing
        """The content of the line."""
        self._given = standing
        self._remark = ""
        self._clock: Timer | None = None

    def on_mount(self) -> None:
        """Redraw when the focus changes, because the keys depend on it."""
        self.watch(self.screen, "focused", self.draw_again, init=False)
        self._tick()

    def stand(self, standing: StatusLine) -> None:
        """Say this from now on."""
        self._given = standing
        self.draw_again()

    def remark(self, text: str, seconds: float) -> None:
        """Say something else for a while."""
        self._remark = text
        self.draw_again()
        if text:
            self.set_timer(seconds, lambda: self.remark("", 0.0))

    def draw_again(self) -> None:
        """Redraw after keys or size changed."""
        focused = self.screen.focused.id or "" if self.screen.focused is not None else ""
        hint = HINTS.get(focused, "")
        asked = any(approval.display for approval in self.screen.query("#approval"))
        key = self._given.key and _key_about_work(focused, hint, asked)
        now = replace(self._given, hint=hint, key=key, remark=self._remark)
        own_line = bool(key) and not self.screen.has_class("-short")
        for activity in self.screen.query(ActivityLine):
            activity.tell(now if own_line else StatusLine())
        now = replace(now, doing="", since=0.0, until=0.0, written=0) if own_line else now
        if now != self.standing:
            self.standing = now
            self.styles.height = 1 + len(now.own)
            self._tick()

    def _tick(self) -> None:
        now = time.time()
        moves = bool(self.standing.doing) or any(
            until > now for _, until in self.standing.unavailable
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
        made = draw_status(self.standing, time.time(), width, self.palette)
        return Strip(made).adjust_cell_length(width).apply_style(self.rich_style)


def _key_about_work(focused: str, hint: str, asked: bool) -> str:
    """Return the key that acts on the current activity."""
    if asked:
        return "esc denies" if focused == "approval" else "f6 answers · esc stops"
    return (
        hint.replace("esc back", "esc stops")
        if focused in ("trace", "conversation")
        else "esc stops"
    )


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
        self._now = StatusLine()
        self._clock: Timer | None = None

    def tell(self, now: StatusLine) -> None:
        """Say this from now on."""
        same = replace(now, written=self._now.written) == self._now
        self._now = now
        if same:  # numbers alone: the clock shows them
            return
        self.display = bool(now.doing)
        if self.display and self._clock is None:
            self._clock = self.set_interval(SPINNER_SECONDS, self.refresh)
        elif not self.display and self._clock is not None:
            self._clock.stop()
            self._clock = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw the line."""
        now, clock, width = self._now, time.time(), self.size.width
        waits = now.until or now.doing.startswith(WAITS_FOR_USER)
        sign = "◐" if waits else SPINNER[int(clock / SPINNER_SECONDS) % len(SPINNER)]
        spent = (
            retrying_in(now.until - clock)
            if now.until
            else f" {short_duration(max(clock - now.since, 0.0))}"
        )
        written = f" · ↓ {compact_number(now.written)} tokens" if now.written else ""
        key = f" · {now.key}" if now.key else ""
        room = width - cell_len(f"{sign} {spent}{written}{key}")
        doing = (
            now.doing
            if cell_len(now.doing) <= room
            else f"{set_cell_size(now.doing, max(room - 1, 0)).rstrip()}…"
        )
        parts = [
            (f"{sign} {doing}", self.palette.accent),
            (f"{spent}{written}{key}", self.palette.dim),
        ]
        return (
            Strip(styled_line(parts, width)).adjust_cell_length(width).apply_style(self.rich_style)
        )
