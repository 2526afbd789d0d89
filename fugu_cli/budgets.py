"""Budgets before the call: what a call may cost at most, and whether that is more than is left.

Under budget_guard.py (the loop) and the endpoint. Pure but for `Elsewhere`, which the caller brings: it knows what
other sessions spent (ledger.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fugu_cli import views
from fugu_cli.events import Event, Member
from fugu_cli.messages import Prompt
from fugu_cli.views.spending import WRITING

BYTES_PER_TOKEN = 3
"""A prompt's tokens are taken as its bytes / 3: more than any tokenizer met so far makes of code and prose."""

UNPRICED = "no price is known, so that no budget can hold"
PRICE_HINT = "give its entry a price = { input = ..., output = ... }, USD per million tokens; zeros where it is free"


@dataclass(frozen=True)
class Budgets:
    """USD at most; None: no limit. `day` is a calendar day of this machine, `project` everything in this folder."""

    request: float | None = None
    session: float | None = None
    day: float | None = None
    project: float | None = None
    elsewhere: Elsewhere | None = None


Limit = Budgets | float | None
"""A number alone is the request's."""


def of(limit: Limit) -> Budgets:
    """The budgets a limit means."""
    return limit if isinstance(limit, Budgets) else Budgets(request=limit)


class Elsewhere(Protocol):
    """What was spent outside the session at hand, in USD; less what its own facts count that is of another day, or of
    another project."""

    def day(self) -> float: ...

    def project(self) -> float: ...

    def held(self) -> float:
        """What calls under way there may still cost, as far as that is known."""


class Tab(Elsewhere, Protocol):
    """One session's account, where a process has several at once: elsewhere is all others."""

    def hold(self, dollars: float) -> None:
        """So much more is set aside for a call under way, for the others to see; less than nothing gives it back."""

    def close(self) -> None:
        """The session is over; what it spent stays known."""


def worst(member: Member, prompt: Prompt) -> float:
    """USD that a call costs at most: no token read from a cache, and all written to one where that costs more; 0 where
    no price is known."""
    if member.price is None:
        return 0.0
    texts = [one.model_dump_json() for one in (*prompt.messages, *prompt.tools)]
    size = sum(len(text.encode("utf-8", "replace")) for text in (*texts, prompt.system, prompt.reply_schema))
    dearest = member.price.input * WRITING
    longest = prompt.longest(member.max_tokens) + member.thinking
    calls = 2 if member.protocol == "schema" and prompt.tools else 1  # the tool is chosen first, then written for
    return calls * (size / BYTES_PER_TOKEN * dearest + longest * member.price.output) / 1e6


def rest(events: Sequence[Event], budgets: Budgets) -> tuple[float, str, float] | None:
    """The tightest budget: what is left of it, whose it is, and how large it is; None where there is none. What
    calls under way elsewhere may cost is not left."""
    pool, elsewhere = views.pool(events), budgets.elsewhere
    session = views.cost(events, pool)
    held = elsewhere.held() if elsewhere else 0.0
    left: list[tuple[float, str, float]] = []
    if budgets.request is not None:
        left.append((budgets.request - views.cost(views.request(events), pool), "request", budgets.request))
    if budgets.session is not None:
        left.append((budgets.session - session, "session", budgets.session))
    if budgets.day is not None:
        others = elsewhere.day() + held if elsewhere else 0.0
        left.append((budgets.day - session - others, "day", budgets.day))
    if budgets.project is not None:
        others = elsewhere.project() + held if elsewhere else 0.0
        left.append((budgets.project - session - others, "project", budgets.project))
    return min(left, default=None)


def too_dear(events: Sequence[Event], member: Member, prompt: Prompt, budgets: Budgets, held: float = 0.0) -> str:
    """Says so where this call could exceed what is left of a budget, or nobody knows what it costs; "" where it may be
    made, as one that costs nothing always may. `held`: set aside."""
    tightest, most = rest(events, budgets), worst(member, prompt)
    if tightest is not None and member.price is None:
        return f"{UNPRICED}: {PRICE_HINT}"
    if tightest is None or not most or most <= tightest[0] - held:
        return ""
    left, name, limit = tightest
    whole = f"the {name}'s budget of ${limit:.4f}"
    return f"its next call may cost ${most:.4f}; ${max(left - held, 0):.4f} of {whole} are left"
