"""The user's own sessions as training data: what was accepted, taken back, and what the tests said.

Reads logs, gives labelled decisions: the session up to a turn, who took it, how it ended. Above the views, below the
command; must not know heads or files' places.

A Worker's turn is worth 1 where the user kept its request's result (a Verifier accepted it or the tests passed), 0
where it was undone afterwards or the tests failed; other turns say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fugu_cli import views
from fugu_cli.events import Asked, Assigned, Event, Finished, Role, Undone

Label = Literal["accepted", "tests passed", "tests failed", "reverted"]


@dataclass(frozen=True)
class Decided:
    """A decision and what came of it. `events` are the session up to it; `group` is the request: its decisions are
    never on both sides of a split."""

    events: tuple[Event, ...]
    agent: str
    role: Role
    label: Label
    group: str

    @property
    def worth(self) -> float:
        return 1.0 if self.label in ("accepted", "tests passed") else 0.0


def decisions(events: Sequence[Event], session: str) -> Iterator[Decided]:
    """All labelled decisions of a session, oldest first."""
    reverted = _reverted(events)
    starts = [index for index, event in enumerate(events) if isinstance(event, Asked)]
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(events)
        yield from _of_request(events, (start, end), start in reverted, f"{session}/{number + 1}")


def _of_request(events: Sequence[Event], span: tuple[int, int], reverted: bool, group: str) -> Iterator[Decided]:
    facts = events[span[0] : span[1]]
    accepted = any(isinstance(fact, Finished) and fact.reason == "accepted" for fact in facts)
    turns = [turn for turn in views.turns(facts) if not turn.failed and not turn.interrupted and turn.replies]
    working = [turn for turn in turns if turn.assigned.role == "worker"]
    for turn in turns:
        approved = accepted and views.verdict(events[: span[1]], turn) in {None, "ACCEPT"}
        label = _label(turn, working[-1:] == [turn], approved, reverted)
        place = next(
            index for index in range(*span) if isinstance(events[index], Assigned) and events[index] == turn.assigned
        )
        if label is not None:
            yield Decided(tuple(events[:place]), turn.assigned.agent, turn.assigned.role, label, group)


def _label(turn: views.Turn, newest: bool, accepted: bool, reverted: bool) -> Label | None:
    """None where nothing is known of a turn. What the user took back outweighs what the tests said. `accepted`: the
    request was, and a Verifier's turn said so."""
    if turn.assigned.role == "worker":
        if newest and reverted:
            return "reverted"
        run = next((run for run in reversed(turn.runs) if run.permitted.call.tool == views.RUN_TESTS), None)
        if run is not None and run.result is not None:
            return "tests passed" if run.result.ok else "tests failed"
        return "accepted" if newest and accepted else None
    return "accepted" if turn.assigned.role == "verifier" and accepted and not reverted else None


def _reverted(events: Sequence[Event]) -> set[int]:
    """Places of the Asked whose request was undone and not redone."""
    done: list[int] = []
    taken: list[int] = []
    gone: set[int] = set()
    for index, event in enumerate(events):
        if isinstance(event, Asked):
            done.append(index)
            gone |= set(taken)  # a new request ends the redoing: what is taken back stays so
            taken = []
        elif isinstance(event, Undone) and event.turn == 0:
            if event.redoes and taken:
                done.append(taken.pop())
            elif done:
                taken.append(done.pop())
    return gone | set(taken)
