"""Coordinators that follow fixed rules: cascade, single, random. They need no model and say which rule decided.

Baselines of every comparison, and what routes when the learned coordinator cannot (CoordinatorUnavailable).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli.coordinators import CoordinatorSettings, action_space
from fugu_cli.session import views
from fugu_cli.session.events import ROLES, Assigned, Event, Finished, Member, Role


class Cascade:
    """Cheap first, the tests judge, escalate.

    A cheap Worker begins. While something speaks against the work, or a Verifier wants a revision, the next Worker is
    of the next slot up; at the top the strongest goes on. Where the tests pass the cheapest other agent verifies, else
    one of the strong slot does, for then the verdict is all there is. An agent verifies its own work only when alone.
    """

    def __init__(self, members: Sequence[Member], settings: CoordinatorSettings) -> None:
        self._members = action_space.by_strength(members)
        self._settings = settings

    async def decide(self, events: Sequence[Event]) -> Assigned | Finished:
        """The next turn by the rule, or the end of the request."""
        end = _stop(events, self._settings)
        if end is not None:
            return end
        out = action_space.agents_out_for_turn(events, self._settings.opt_out, self._members)
        able = [member for member in self._members if member.name not in out]
        if not able:
            return action_space.finish_without_agents(out)
        worker, verifying = action_space.newest_worker(events), action_space.verifier_due(events)
        if worker is not None and verifying:
            return self._verify(events, able, worker)
        return self._work(events, able, worker)

    def _work(self, events: Sequence[Event], able: list[Member], worker: str | None) -> Assigned:
        member = self._next_up(able, worker, events)
        return _assigned(events, member, "worker", "cascade", _why_work(events, member))

    def _next_up(self, able: list[Member], worker: str | None, events: Sequence[Event]) -> Member:
        """The first Worker comes from the lowest slot there is; each one after a failure from the next one up."""
        levels = [slot for slot in action_space.SLOTS if any(member.slot == slot for member in able)]
        tried = next((member.slot for member in self._members if member.name == worker), None)
        above = [s for s in levels if tried is None or action_space.SLOTS.index(s) > action_space.SLOTS.index(tried)]
        level = above[0] if above else levels[-1]
        chosen = action_space.choose_agent([member for member in able if member.slot == level], {}, events)
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

    def __init__(self, name: str, members: Sequence[Member], settings: CoordinatorSettings) -> None:
        self._name = name
        self._members = members
        self._settings = settings

    async def decide(self, events: Sequence[Event]) -> Assigned | Finished:
        """Work until the tests pass, then verify; again while the verdict is REVISE."""
        end = _stop(events, self._settings)
        if end is not None:
            return end
        out = action_space.agents_out(events, self._settings.opt_out)
        if self._name in out:
            return action_space.finish_without_agents({self._name: out[self._name]})
        member = next(member for member in self._members if member.name == self._name)
        role: Role = "verifier" if action_space.verifier_due(events) else "worker"
        return _assigned(events, member, role, "single", f"{self._name} takes every turn")


class Random:
    """Any agent in any role that may act, drawn from a generator seeded by `settings.seed` and the place in the log."""

    def __init__(self, members: Sequence[Member], settings: CoordinatorSettings) -> None:
        self._members = members
        self._settings = settings

    async def decide(self, events: Sequence[Event]) -> Assigned | Finished:
        """A uniform draw; a Thinker's suggestion replaces the drawn role."""
        end = _stop(events, self._settings)
        if end is not None:
            return end
        out = action_space.agents_out_for_turn(events, self._settings.opt_out, self._members)
        able = [member for member in self._members if member.name not in out]
        if not able:
            return action_space.finish_without_agents(out)
        number = len(views.requests(events)), action_space.next_turn_number(events)
        draw = random.Random(f"{self._settings.seed}/{number[0]}/{number[1]}")
        member = draw.choice(able)
        role = draw.choice([role for role in ROLES if role not in action_space.roles_out(events)])
        suggested = action_space.thinker_suggestion(events)
        assigned = _assigned(events, member, suggested or role, "random", f"drawn with seed {self._settings.seed}")
        return assigned.model_copy(update={"override": role if suggested and suggested != role else None})


def _stop(events: Sequence[Event], settings: CoordinatorSettings) -> Finished | None:
    return action_space.request_end(events, turns=settings.turns, verify_answers=settings.verify_answers)


def _assigned(events: Sequence[Event], member: Member, role: Role, by: str, reason: str) -> Assigned:
    return Assigned(turn=action_space.next_turn_number(events), agent=member.name, role=role, by=by, reason=reason)


def _why_work(events: Sequence[Event], member: Member) -> str:
    taken = views.counted_turns(events)
    if not taken:
        return f"{member.slot} first"
    if why := views.acceptance_blocker(events):
        return f"{why}: {member.slot} works on it"
    return f"not accepted yet: {member.slot} works on it"


if TYPE_CHECKING:
    from fugu_cli.coordinators import Coordinator

    _cascade: Coordinator = Cascade((), CoordinatorSettings())
    _single: Coordinator = Single("", (), CoordinatorSettings())
    _random: Coordinator = Random((), CoordinatorSettings())
