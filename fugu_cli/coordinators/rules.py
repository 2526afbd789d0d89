"""Coordinators that follow fixed rules: cascade, single, random. They need no model and say which
rule decided.

Baselines of every comparison; the cascade is also the measure of the gate.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli.coordinators import CoordinatorSettings, action_space
from fugu_cli.coordinators.action_space import near_price, slot_level
from fugu_cli.session.events import ROLES, Assigned, Finished, Member, Role
from fugu_cli.session.state import SessionState

FAR_PRICE = 10
"""If the next agent costs this many times as much, the same one tries once more first."""


class Cascade:
    """Cheap agents first, the tests judge, then stronger agents. A cheap Worker begins. While
    something speaks against the work, or a Verifier wants a revision, the next Worker is of the
    next slot up, in the end of the highest. An agent of another vendor is preferred: in its slot
    or, if the slot has none, at about the same price. The first Worker tries twice if a check fails
    and the next one costs ten times as much. If all of the highest slot have worked in vain,
    another agent thinks before the next one works, provided that turns are left for both and a
    Verifier. Work without a last word counts as a failure: somebody continues it first. Another
    agent verifies, of another vendor if one costs about the same: a cheap one if the tests pass,
    else a strong one, because then only the verdict counts. An agent verifies its own work only if
    it is alone.
    """

    def __init__(self, members: Sequence[Member], settings: CoordinatorSettings) -> None:
        self._members = action_space.by_strength(members)
        self._settings = settings

    async def decide(self, state: SessionState) -> Assigned | Finished:
        """Return the next turn by the rule, or the end of the request."""
        end = _stop(state, self._settings)
        if end is not None:
            return end
        excluded = action_space.agents_out_for_turn(state, self._settings, self._members)
        able = [member for member in self._members if member.name not in excluded]
        if not able:
            return action_space.finish_without_agents(state, excluded)
        if action_space.verifier_due(state):
            assigned = self._verify(state, able)
        elif action_space.thinker_due(state, self._settings, self._members):
            worked = action_space.members_so_far(state, self._members)
            thinker = _of_another_vendor(able[-1], able, worked[-1:])
            assigned = _assigned(state, thinker, "thinker", "cascade", action_space.THINKER_DUE)
        else:
            assigned = self._work(state, able)
        slots = {member.name: member.slot for member in able}
        return assigned.model_copy(update={"slot": slots[assigned.agent]})

    def _work(self, state: SessionState, able: list[Member]) -> Assigned:
        worked = action_space.members_so_far(state, self._members)
        member = self._next_up(state, able, worked)
        if len(worked) == 1 and worked[0] in able and _tries_again(state, worked[0], member):
            why = f"{worked[0].name} tries again: {member.name} costs {FAR_PRICE} times as much"
            return _assigned(state, worked[0], "worker", "cascade", why)
        why = _why_work(state, member, worked) if len(able) > 1 else action_space.ONLY_CHOICE
        return _assigned(state, member, "worker", "cascade", why)

    def _next_up(self, state: SessionState, able: list[Member], worked: Sequence[Member]) -> Member:
        """Return the next Worker. The first one is of the lowest slot; after a failure it is of the
        next slot above those that have worked, or of the highest again.
        """
        highest_tried = max((slot_level(member) for member in worked), default=-1)
        levels = sorted({slot_level(member) for member in able})
        levels_above = [level for level in levels if level > highest_tried]
        level = levels_above[0] if levels_above else levels[-1]
        of_slot = [member for member in able if slot_level(member) == level]
        fresh = [member for member in of_slot if member not in worked]
        preferred = action_space.choose_agent(fresh or of_slot, {}, state)
        assert preferred is not None
        others = [
            member
            for member in able
            if member not in worked and slot_level(member) >= highest_tried
        ]
        return _of_another_vendor(preferred, others, worked)

    def _verify(self, state: SessionState, able: list[Member]) -> Assigned:
        names = state.request.authors or (action_space.newest_worker(state),)
        authors = [member for member in self._members if member.name in names]
        run = state.request.tests
        if run is not None and run.passes:
            preferred, reason = able[0], "the tests pass: the cheapest other agent verifies"
        else:
            preferred, reason = able[-1], "no passing tests: the strongest other agent verifies"
        member = _of_another_vendor(preferred, able, authors)
        if member in authors:
            reason = OWN_WORK
        elif member is not preferred:
            reason = f"{reason.partition(':')[0]}: an agent of another vendor verifies"
        return _assigned(state, member, "verifier", "cascade", reason)


OWN_WORK = "no other agent is left: it verifies its own work"


def _of_another_vendor(usual: Member, others: Sequence[Member], worked: Sequence[Member]) -> Member:
    """Return `usual`, or, if an agent of its vendor has worked already, one of `others` of another
    vendor at about the same price: of the nearest slot, and in it of the nearest price.
    """
    near = [member for member in worked if near_price(member, usual)]
    vendors = set(map(action_space.vendor_key, near))
    if action_space.vendor_key(usual) not in vendors:
        return usual
    fresh = [
        m for m in others if action_space.vendor_key(m) not in vendors and near_price(m, usual)
    ]

    def distance(member: Member) -> tuple[int, float]:
        cost = action_space.blended_price(member.price) - action_space.blended_price(usual.price)
        return abs(slot_level(member) - slot_level(usual)), abs(cost)

    return min(fresh, key=distance, default=usual)


def _tries_again(state: SessionState, first: Member, following: Member) -> bool:
    """Return whether a check judged the work of the only Worker so far, which came to its last
    word, and the next one is far dearer.
    """
    if first.price is None or following.price is None:
        return False
    low, high = action_space.blended_price(first.price), action_space.blended_price(following.price)
    ended = [
        turn.concluded for turn in state.request.counted_turns if turn.assigned.role == "worker"
    ]
    return (
        high > 0
        and high >= FAR_PRICE * low
        and ended[-1:] == [True]
        and bool(state.request.acceptance_blocker)
    )


class Single:
    """One agent in every role. Ends as failed when that agent fails."""

    def __init__(self, name: str, members: Sequence[Member], settings: CoordinatorSettings) -> None:
        self._name = name
        self._members = members
        self._settings = settings

    async def decide(self, state: SessionState) -> Assigned | Finished:
        """Return a Worker's turn until the tests pass, then a Verifier's; again after a REVISE."""
        end = _stop(state, self._settings)
        if end is not None:
            return end
        excluded = action_space.agents_out(state, self._settings.opt_out)
        if self._name in excluded:
            return action_space.finish_without_agents(state, {self._name: excluded[self._name]})
        member = next(member for member in self._members if member.name == self._name)
        role: Role = "verifier" if action_space.verifier_due(state) else "worker"
        gave_up = action_space.agents_that_gave_up(state)
        if role == "worker" and self._name in gave_up:
            return action_space.finish_without_agents(state, gave_up)
        why = f"pinned to {self._name}"
        if role == "verifier":
            why += ": it verifies its own work"
        return _assigned(state, member, role, "single", why)


class Random:
    """Draws any agent in any role that may act, from a generator seeded by `settings.seed` and the
    position in the log.
    """

    def __init__(self, members: Sequence[Member], settings: CoordinatorSettings) -> None:
        self._members = members
        self._settings = settings

    async def decide(self, state: SessionState) -> Assigned | Finished:
        """Return a uniform draw. A Thinker's suggestion replaces the drawn role."""
        end = _stop(state, self._settings)
        if end is not None:
            return end
        excluded = action_space.agents_out_for_turn(state, self._settings, self._members)
        able = [member for member in self._members if member.name not in excluded]
        if not able:
            return action_space.finish_without_agents(state, excluded)
        turn = action_space.next_turn_number(state)
        draw = random.Random(f"{self._settings.seed}/{len(state.requests)}/{turn}")
        member = draw.choice(able)
        roles = action_space.roles_out_for_turn(state, self._settings, self._members)
        role = draw.choice([role for role in ROLES if role not in roles])
        suggested = action_space.thinker_suggestion(state)
        if (suggested or role) == "verifier":
            barred = action_space.verifiers_out(state, excluded, self._members)
            member = draw.choice(
                [verifier for verifier in self._members if verifier.name not in barred]
            )
        assigned = _assigned(
            state, member, suggested or role, "random", f"drawn with seed {self._settings.seed}"
        )
        return assigned.model_copy(
            update={"override": role if suggested and suggested != role else None}
        )


def _stop(state: SessionState, settings: CoordinatorSettings) -> Finished | None:
    return action_space.request_end(
        state, turns=settings.turns, verify_answers=settings.verify_answers
    )


def _assigned(state: SessionState, member: Member, role: Role, by: str, reason: str) -> Assigned:
    return Assigned(
        turn=action_space.next_turn_number(state),
        agent=member.name,
        role=role,
        by=by,
        reason=reason,
    )


def _why_work(state: SessionState, member: Member, worked: Sequence[Member]) -> str:
    if not state.request.counted_turns:
        return "cheapest first"
    gave_up = worked and worked[-1].name in action_space.agents_that_gave_up(state)
    unfinished = f"{worked[-1].name} gave up" if gave_up else "not accepted yet"
    why = state.request.acceptance_blocker or unfinished
    if not worked:
        return f"{why}: the cheapest agent"
    if member in worked:
        return f"{why}: the same agent again"
    is_dearer = slot_level(member) > slot_level(worked[-1])
    chosen = "the next dearer agent" if is_dearer else "another agent"
    vendors = map(action_space.vendor_key, worked)
    if member.vendor and action_space.vendor_key(member) not in vendors:
        chosen += ", of another vendor"
    return f"{why}: {chosen}"


if TYPE_CHECKING:
    from fugu_cli.coordinators import Coordinator

    _cascade: Coordinator = Cascade((), CoordinatorSettings())
    _single: Coordinator = Single("", (), CoordinatorSettings())
    _random: Coordinator = Random((), CoordinatorSettings())
