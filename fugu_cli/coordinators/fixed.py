"""Fixed rules: cascade, single, random. They need no model and no torch, and say which rule decided and why.

Baselines of every comparison, and what routes when the learned coordinator cannot (CoordinatorUnavailable).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli import views
from fugu_cli.coordinators import masks, slots, stopping
from fugu_cli.coordinators.settings import Settings
from fugu_cli.events import ROLES, Assigned, Event, Finished, Member, Role


class Cascade:
    """Cheap first, the tests judge, escalate.

    A cheap Worker begins. While something speaks against the work, or a Verifier wants a revision, the next Worker is
    of the next slot up; at the top the strongest goes on. Where the tests pass the cheapest other agent verifies, else
    one of the strong slot does, for then the verdict is all there is. An agent verifies its own work only when alone.
    """

    def __init__(self, members: Sequence[Member], settings: Settings) -> None:
        self._members = slots.by_strength(members)
        self._settings = settings

    async def decide(self, events: Sequence[Event]) -> Assigned | Finished:
        """The next turn by the rule, or the end of the request."""
        end = _stop(events, self._settings)
        if end is not None:
            return end
        out = masks.turn_out(events, self._settings.opt_out, self._members)
        able = [member for member in self._members if member.name not in out]
        if not able:
            return masks.nobody(out)
        worker, verifying = masks.newest_worker(events), masks.verifier_due(events)
        if worker is not None and verifying:
            return self._verify(events, able, worker)
        return self._work(events, able, worker)

    def _work(self, events: Sequence[Event], able: list[Member], worker: str | None) -> Assigned:
        member = self._next_up(able, worker, events)
        return _assigned(events, member, "worker", "cascade", _why_work(events, member))

    def _next_up(self, able: list[Member], worker: str | None, events: Sequence[Event]) -> Member:
        """The first Worker comes from the lowest slot there is; each one after a failure from the next one up."""
        levels = [slot for slot in slots.SLOTS if any(member.slot == slot for member in able)]
        tried = next((member.slot for member in self._members if member.name == worker), None)
        above = [s for s in levels if tried is None or slots.SLOTS.index(s) > slots.SLOTS.index(tried)]
        level = above[0] if above else levels[-1]
        chosen = slots.choose([member for member in able if member.slot == level], {}, events)
        assert chosen is not None
        return chosen

    def _verify(self, events: Sequence[Event], able: list[Member], worker: str) -> Assigned:
        others = [member for member in able if member.name != worker] or able
        run = views.tests(events)
        if run is not None and run.passes:
            why = "the tests pass: the cheapest other agent verifies"
            return _assigned(events, others[0], "verifier", "cascade", why)
        why = "no passing tests: the strongest other agent verifies"
        return _assigned(events, others[-1], "verifier", "cascade", why)


class Single:
    """One agent in every role. Ends as failed when that agent fails."""

    def __init__(self, name: str, members: Sequence[Member], settings: Settings) -> None:
        self._name = name
        self._members = members
        self._settings = settings

    async def decide(self, events: Sequence[Event]) -> Assigned | Finished:
        """Work until the tests pass, then verify; again while the verdict is REVISE."""
        end = _stop(events, self._settings)
        if end is not None:
            return end
        out = masks.agents_out(events, self._settings.opt_out)
        if self._name in out:
            return masks.nobody({self._name: out[self._name]})
        member = next(member for member in self._members if member.name == self._name)
        role: Role = "verifier" if masks.verifier_due(events) else "worker"
        return _assigned(events, member, role, "single", f"{self._name} takes every turn")


class Random:
    """Any agent in any role that may act, drawn from a generator seeded by `settings.seed` and the place in the log."""

    def __init__(self, members: Sequence[Member], settings: Settings) -> None:
        self._members = members
        self._settings = settings

    async def decide(self, events: Sequence[Event]) -> Assigned | Finished:
        """A uniform draw; a Thinker's suggestion replaces the drawn role."""
        end = _stop(events, self._settings)
        if end is not None:
            return end
        out = masks.turn_out(events, self._settings.opt_out, self._members)
        able = [member for member in self._members if member.name not in out]
        if not able:
            return masks.nobody(out)
        number = len(views.requests(events)), masks.next_turn(events)
        draw = random.Random(f"{self._settings.seed}/{number[0]}/{number[1]}")
        member = draw.choice(able)
        role = draw.choice([role for role in ROLES if role not in masks.roles_out(events)])
        suggested = masks.suggestion(events)
        assigned = _assigned(events, member, suggested or role, "random", f"drawn with seed {self._settings.seed}")
        return assigned.model_copy(update={"override": role if suggested and suggested != role else None})


def _stop(events: Sequence[Event], settings: Settings) -> Finished | None:
    return stopping.stop(events, turns=settings.turns, verify_answers=settings.verify_answers)


def _assigned(events: Sequence[Event], member: Member, role: Role, by: str, reason: str) -> Assigned:
    return Assigned(turn=masks.next_turn(events), agent=member.name, role=role, by=by, reason=reason)


def _why_work(events: Sequence[Event], member: Member) -> str:
    taken = views.taken(events)
    if not taken:
        return f"{member.slot} first"
    if why := views.against(events):
        return f"{why}: {member.slot} works on it"
    return f"not accepted yet: {member.slot} works on it"


if TYPE_CHECKING:
    from fugu_cli.coordinators import Coordinator

    _cascade: Coordinator = Cascade((), Settings())
    _single: Coordinator = Single("", (), Settings())
    _random: Coordinator = Random((), Settings())
