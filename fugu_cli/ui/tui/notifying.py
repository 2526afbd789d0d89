"""A word to the desktop when a long request ended or something is asked, while the terminal is not looked at.

OSC 9 (Windows Terminal, iTerm2, kitty, WezTerm and others) and the bell; inside tmux the sequence is passed through.
Never while the terminal has the focus; one that does not tell counts as looked at.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fugu_cli.events import Finished, Live, Recorded
from fugu_cli.ui.tui.draw.text import exact, flat

if TYPE_CHECKING:
    from textual.app import App

    from fugu_cli.ui.tui.draw.tally import Tally
    from fugu_cli.ui.tui.working import Question

LONG = 10.0
"""Seconds after which a request's end is worth a word."""


def heard(app: App[object], item: Recorded | Live, tally: Tally) -> None:
    """Notify when this item ends a request that took long."""
    if app.app_focus or not isinstance(item, Recorded) or not isinstance(item.event, Finished):
        return
    if item.at - tally.asked_at >= LONG:
        send(app, f"fugu: {item.event.reason.replace('_', ' ')}")


def asked(app: App[object], question: Question) -> None:
    """Notify when somebody is needed."""
    if not app.app_focus:
        send(app, f"fugu asks: {flat(exact(question.judgement.target or question.call.tool), 100)}")


def send(app: App[object], text: str) -> None:
    """The sequence and the bell."""
    app.bell()
    driver = app._driver  # textual has no public way to write a sequence
    if driver is not None:
        driver.write(sequence(text, tmux="TMUX" in os.environ))


def sequence(text: str, *, tmux: bool) -> str:
    """OSC 9 with `text`, for a terminal or through tmux."""
    plain = "".join(letter for letter in text if letter.isprintable())
    osc = f"\x1b]9;{plain}\x07"
    return f"\x1bPtmux;\x1b{osc}\x1b\\" if tmux else osc
