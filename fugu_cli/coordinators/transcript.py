"""The transcript: what the coordinator reads, built from the log alone. Pure.

Not what an agent reads (context.py). Replies are named by their agent's label: its slot for a slot checkpoint, its name
for one trained on a fixed pool. How tokens are counted is the caller's; this module knows no model.

Departures: TRINITY leaves the layout open; here a turn is `Worker (cheap): ...` under the chat role `assistant`, what
fugu found out itself stands under `system`. Every message is cut to a share of the budget, not only the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fugu_cli import views
from fugu_cli.coordinators.digest import digest, tests_state
from fugu_cli.events import Asked, Event

Format = Literal["raw", "chat"]
Count = Callable[[str], int]
"""Number of tokens of a text."""

CUT = "\n[... cut ...]\n"
LEFT_OUT = "[... earlier turns left out ...]"


@dataclass(frozen=True)
class Line:
    """One message: a chat role (system, user, assistant) and its content. `kept`: never dropped, only cut."""

    role: str
    content: str
    kept: bool = False


def lines(events: Sequence[Event], labels: Mapping[str, str], *, workers_only: bool = False) -> tuple[Line, ...]:
    """Every request and every closed turn of the session, oldest first.

    `labels` names agents as the checkpoint was trained to read them; an agent without one keeps its own name.
    `workers_only` leaves out all replies but the Workers' (the authors' code).
    """
    found: list[Line] = []
    all_requests = views.requests(events)
    for index, facts in enumerate(all_requests):
        kept = index in (0, len(all_requests) - 1)
        found.append(Line("user", _asked(facts[0]), kept=kept))
        found += [Line("system", state) for state in _baseline(facts)]
        shown = [t for t in views.turns(facts) if not workers_only or t.assigned.role == "worker"]
        found += [Line("assistant", _turn(facts, turn, labels)) for turn in shown]
    return tuple(found)


def raw(messages: Sequence[Line]) -> str:
    """One line `role: content` per message, joined with newlines, none trailing."""
    return "\n".join(f"{line.role}: {line.content}" for line in messages)


def fit(messages: Sequence[Line], budget: int, count: Count) -> tuple[Line, ...]:
    """At most `budget` tokens: the first request, the newest one and the newest turns stay, the middle goes.

    A request may take a third of the budget, any other message a quarter, each cut in its middle. Messages are dropped
    in blocks of half a budget, so that a growing transcript keeps its beginning (and the cache of it) for many turns.
    """
    shares = [budget // 3 if line.role == "user" else budget // 4 for line in messages]
    cut = [replace(m, content=cut_middle(m.content, max(n, 1), count)) for m, n in zip(messages, shares, strict=True)]
    sizes = [count(f"{line.role}: {line.content}") + 1 for line in cut]
    excess = sum(sizes) - budget
    if excess <= 0:
        return tuple(cut)
    excess += count(LEFT_OUT) + 3
    free = sum(size for line, size in zip(cut[:-1], sizes, strict=False) if not line.kept)
    block = max(budget // 2, 1)
    rounded = -(-excess // block) * block
    drop = _oldest(cut, sizes, rounded if rounded <= free else excess)
    if not drop:
        return tuple(cut)
    kept = [line for index, line in enumerate(cut) if index not in drop]
    kept.insert(min(drop), Line("system", LEFT_OUT))
    return tuple(kept)


def cut_middle(text: str, limit: int, count: Count) -> str:
    """`text` in at most about `limit` tokens: its beginning and its end, and a mark where it was cut."""
    if len(text.encode(errors="replace")) <= limit:  # a token is at least one byte
        return text
    shortened = text if len(text) <= 64 * limit else text[: 32 * limit] + CUT + text[-32 * limit :]
    size = count(shortened)
    if size <= limit:
        return shortened
    while size > limit and len(shortened) > len(CUT) + 2:
        room = min(int(len(shortened) * limit / size), len(shortened) - 1) - len(CUT)
        half = max(room // 2, 1)
        shortened = text[:half] + CUT + text[-half:]
        size = count(shortened) if half > 1 else 0
    return shortened


def _oldest(messages: Sequence[Line], sizes: Sequence[int], tokens: int) -> set[int]:
    """The oldest droppable messages of at least `tokens` in all, as far as there are any; the newest one stays."""
    chosen: set[int] = set()
    for index, line in enumerate(messages[:-1]):
        if tokens <= 0:
            break
        if not line.kept:
            chosen.add(index)
            tokens -= sizes[index]
    return chosen


def _asked(fact: Event) -> str:
    assert isinstance(fact, Asked)
    names = f"\n[attached: {', '.join(fact.attachments)}]" if fact.attachments else ""
    return fact.text.strip() + names


def _baseline(facts: Sequence[Event]) -> list[str]:
    runs = [run for run in views.baseline(facts) if run.permitted.call.tool == views.RUN_TESTS]
    return [tests_state(runs[-1])] if runs else []


def _turn(facts: Sequence[Event], turn: views.Turn, labels: Mapping[str, str]) -> str:
    label = labels.get(turn.assigned.agent, turn.assigned.agent)
    said = turn.text.strip()
    if turn.failed is not None:
        said = f"[failed: {turn.failed.kind}]"
    elif turn.interrupted:
        said = "[interrupted]"
    head = f"{turn.assigned.role.capitalize()} ({label}):"
    return "\n".join(part for part in (f"{head} {said}".rstrip(), digest(turn)) if part)
