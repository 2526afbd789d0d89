"""The status line keeps what matters most where there is little room."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fugu_cli.ui.drawing import DARK, plain_text
from fugu_cli.ui.tui.screen_protocol import StatusLine
from fugu_cli.ui.tui.status_line import draw_status

WORKS = StatusLine(
    folder="~/work/shop", branch="main", mode="edit", context=0.034, tokens=14_000, cost=0.0123, since=1.0, queued=0,
    doing="running bash for i in 1 2 3; do make check; done",
)  # fmt: skip
IDLE = StatusLine(
    folder="~/work/shop", branch="main", mode="plan", tokens=5, pinned="large", hint="/help"
)
OUT = StatusLine(folder="~/shop", mode="ask", unavailable=(("claude", 100.0),), hint="/help")
WAITS = StatusLine(folder="~/shop", mode="ask", doing="waiting for claude", since=1.0, until=35.5)


@pytest.mark.parametrize(
    ("standing", "width", "said"),
    [
        (WORKS, 140, "~/work/shop (main) · fugu · edit · ctx 3% · 14k tok · $0.0123"
                     "  ◐ running bash for i in 1 2 3; do make check; done 4.0s esc to interrupt"),
        (WORKS, 100, "~/work/shop (main) · fugu · edit · ctx 3% · 14k tok · $0.0123"
                     "  ◐ running bash for i in 1 2 3;… 4.0s"),
        (WORKS, 80, ("shop (main) · fugu · edit · ctx 3% · 14k tok · $0.0123  ◐ running bash for… "
            "4.0s")),
        (WORKS, 40, "edit  ◐ running bash for i in 1 2… 4.0s"),
        (IDLE, 70, "~/work/shop (main) · fugu · plan · pinned large · 5 tok · $0    /help"),
        (replace(IDLE, hint="f6 diff, undo, commit · /help", folder="/srv/projects/2026/shop"), 80,
         "shop (main) · fugu · plan · pinned large · 5 tok · $0  f6 diff, undo, commit"),
        (IDLE, 40, "fugu · plan · pinned large · 5 tok · $0"),
        (IDLE, 10, "plan"),
        (replace(WAITS, messages=1, queued=2, until=0.0), 96,
         "~/shop · fugu · ask 1 with the next result 2 queued ◐ waiting for claude 4.0s esc to interrupt"),
    ],
)  # fmt: skip
def test_a_narrow_line_loses_the_keys_then_words_then_the_place(
    standing: StatusLine, width: int, said: str
) -> None:
    made = plain_text(draw_status(standing, 5.0, width, DARK))
    assert " ".join(made.split()) == " ".join(said.split())
    assert len(made) <= width


def test_jobs_in_the_background_are_counted() -> None:
    for jobs, said in ((0, "$0"), (1, "$0 · 1 job"), (3, "$0 · 3 jobs")):
        standing = StatusLine(folder="~/shop", mode="ask", tokens=5, jobs=jobs, hint="/help")
        assert (
            plain_text(draw_status(standing, 5.0, 60, DARK)).split("5 tok · ")[1].split("  ")[0]
            == said
        )


def test_a_remark_is_said_in_the_place_of_the_rest() -> None:
    standing = StatusLine(
        folder="~/shop", mode="ask", doing="reading", since=1.0, remark="ctrl+c again leaves"
    )
    assert (
        plain_text(draw_status(standing, 5.0, 50, DARK)).split("  ")[-1].strip()
        == "ctrl+c again leaves"
    )


@pytest.mark.parametrize(
    ("standing", "width", "said"),
    [
        (OUT, 90, "~/shop · fugu · ask · claude unavailable, retrying in 95 s /help"),
        (OUT, 44, "ask · claude unavailable, retrying in 95 s"),
        (replace(OUT, unavailable=(("claude", 100.0), ("gpt", 12.0))), 90,
         "~/shop · fugu · ask · 2 agents unavailable, retrying in 7 s /help"),
        (replace(OUT, unavailable=(("claude", 4.0),)), 90, "~/shop · fugu · ask /help"),
        (WAITS, 96, "~/shop · fugu · ask ◐ waiting for claude, retrying in 31 s esc to interrupt"),
        (WAITS, 46, "ask ◐ waiting for claude, retrying in 31 s"),
        (replace(WAITS, until=5.0), 96, ("~/shop · fugu · ask ◐ waiting for claude, retrying now "
            "esc to interrupt")),
        (replace(WAITS, until=1.0), 96, ("~/shop · fugu · ask ◐ waiting for claude 4.0s "
            "esc to interrupt")),
    ],
)  # fmt: skip
def test_it_says_who_is_unavailable_and_counts_down(
    standing: StatusLine, width: int, said: str
) -> None:
    assert " ".join(plain_text(draw_status(standing, 5.0, width, DARK)).split()) == said


def test_a_plan_that_is_used_up_for_hours_has_a_time_of_the_day() -> None:
    hours = replace(OUT, unavailable=(("claude", 5.0 + 2 * 3600),))
    text = plain_text(draw_status(hours, 5.0, 90, DARK))
    assert re.search(r"claude unavailable, until (\w+ )?\d\d:\d\d", text), text
