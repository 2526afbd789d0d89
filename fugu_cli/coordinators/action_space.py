"""The action space of every coordinator. Pure.

Slots of the cascade, and the agents of a head's rows. Action masks: which agents and roles are
excluded, and why. Termination: when the request is over, and as what.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.formatting import plural
from fugu_cli.session.events import (
    ANSWERED,
    BUDGET,
    ROLE,
    ROLES,
    AcceptedBy,
    Assigned,
    Event,
    Exclusion,
    Failed,
    Finished,
    Member,
    Permitted,
    Price,
    Role,
)
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn
from fugu_cli.session.verdicts import (
    UNREACHABLE_HINT,
    acceptance_words,
    suggested_role,
    tests_prove_small_change,
)

Slot = Literal["cheap", "middle", "strong"]
SLOTS: tuple[Slot, ...] = get_args(Slot)

OTHER_KEY_HINT = "`fugu login` keeps another key."
"""The next step where the key of each agent was refused."""
RECENT_REQUESTS = 3
"""An agent that failed in one of the newest requests gives way to another one in its slot."""


@dataclass(frozen=True)
class RowAgent:
    """A row of the head with the agent that it stands for; `why` says why it stands for none."""

    row: str
    member: Member | None
    why: str = ""


def blended_price(price: Price | None) -> float:
    """Return an agent's price in USD per million tokens of a usual mix: three prompt tokens for
    each token written; 0 for an unknown price.
    """
    if price is None:
        return 0.0
    return (3 * price.input + price.output) / 4


def assign_slots(prices: Mapping[str, Price]) -> dict[str, Slot]:
    """Return the members, each with a slot. Those without one get it by price, on a logarithmic
    scale cut into thirds. The cheapest agent is always cheap and the dearest strong; if all cost
    the same, all are middle.
    """
    costs = {name: blended_price(price) for name, price in prices.items()}
    paid = [cost for cost in costs.values() if cost > 0]
    if len(set(costs.values())) < 2 or not paid:
        return dict.fromkeys(prices, "middle")
    floor = (
        min(paid) / 10
    )  # an agent that costs nothing is cheaper than any other, and a logarithm needs a number
    scale = {name: math.log(max(cost, floor)) for name, cost in costs.items()}
    low, high = min(scale.values()), max(scale.values())
    return {
        name: SLOTS[min(int(3 * (value - low) / (high - low)), 2)] for name, value in scale.items()
    }


def choose_agent(
    candidates: Sequence[Member], excluded: Mapping[str, Exclusion], state: SessionState
) -> Member | None:
    """Return the best of the candidates that are not `excluded`, None if none is left.

    The criteria, in this order: it has not failed recently; agents of its vendor, at about its
    price, have worked little on this request; so has its model; its prompt cache is warm; it is
    cheap; it stands first in the pool. After a failure another vendor's model of equal strength
    solves more than a retry, and the same model at another effort solves nothing more, so effort
    does not count. The failure of a vendor's cheap model says little about its far more expensive
    one.
    """
    able = [member for member in candidates if member.name not in excluded]
    failed, warm = _failed_recently(state), _newest_agent(state.events)
    worked = members_so_far(state, candidates)

    def order(member: Member) -> tuple[bool, int, int, bool, float]:
        turns_of_vendor = sum(
            vendor_key(worker) == vendor_key(member) and near_price(worker, member)
            for worker in worked
        )
        turns_of_model = sum(worker.model == member.model for worker in worked)
        return (
            member.name in failed,
            turns_of_vendor,
            turns_of_model,
            member.name != warm,
            blended_price(member.price),
        )

    return min(able, key=order, default=None)


NEAR_PRICE = 5
"""Prices within this factor are about the same, and so is what the models can do."""


def near_price(first: Member, second: Member) -> bool:
    """Return whether two agents cost about the same; where a price is unknown, their slots say."""
    if first.price is None or second.price is None:
        return first.slot == second.slot
    low, high = sorted(blended_price(member.price) for member in (first, second))
    return high <= NEAR_PRICE * low


def vendor_key(member: Member) -> str:
    """Return a key that tells vendors apart. A model of an unknown vendor gets a key of its own."""
    return member.vendor or f"model {member.model}"


def agents_by_name(
    rows: Sequence[str], members: Sequence[Member], excluded: Mapping[str, Exclusion]
) -> tuple[RowAgent, ...]:
    """Return the agent for each row of a checkpoint: the agent with the row's name."""
    by_name = {member.name: member for member in members}
    row_agents = []
    for row in rows:
        if row not in by_name:
            row_agents.append(RowAgent(row, None, "not in the pool"))
        elif row in excluded:
            row_agents.append(RowAgent(row, None, str(excluded[row])))
        else:
            row_agents.append(RowAgent(row, by_name[row]))
    return tuple(row_agents)


def slot_level(member: Member) -> int:
    """Return 0 for cheap, 2 for strong."""
    return SLOTS.index(member.slot)


def by_strength(members: Sequence[Member]) -> list[Member]:
    """Return cheap agents first; inside a slot by price, then in the pool's order."""
    return sorted(members, key=lambda member: (slot_level(member), blended_price(member.price)))


def _failed_recently(state: SessionState) -> set[str]:
    """Return the agents that failed in one of the newest requests, budgets left aside."""
    failed: set[str] = set()
    if not state.events:
        return failed
    for request in state.requests[-RECENT_REQUESTS:]:
        for event in request.events:
            if isinstance(event, Failed) and event.kind != BUDGET:
                failed.add(event.what)
    return failed


def _newest_agent(events: Sequence[Event]) -> str | None:
    """Return the agent of the newest turn that is no subtask, None if there is no turn."""
    for event in reversed(events):
        if isinstance(event, Assigned) and event.subtask is None:
            return event.agent
    return None


ONLY_CHOICE = "only choice"
VERDICT_DUE = "the newest work has not been verified yet"
ONE_PLAN = "in plan mode one agent makes the plan, and the user judges it"


THINKER_DUE = "all of the strongest have worked in vain: another agent thinks first"
NO_VISION = "it does not see pictures, and there are some"


def agents_out(
    state: SessionState, opt_out: Iterable[str] = (), members: Sequence[Member] = ()
) -> dict[str, Exclusion]:
    """Return the agents that are excluded, by name, with reasons: opted out, failed in this
    request, or over a budget. Also excluded, unless no other agent of `members` is left: agents
    that need an acceptance check in a request that has none, and agents that see no pictures in one
    that has some.
    """
    opted_out = dict.fromkeys(sorted(opt_out), Exclusion(message="opted out"))
    excluded = {**opted_out, **state.request.failed_agents, **opted_out}
    if not state.request.checks:
        weak = [member.name for member in members if member.needs_tests]
        excluded = _without(excluded, members, weak, "no acceptance check judges this request")
    if state.request.has_picture:
        blind = [member.name for member in members if not member.vision]
        excluded = _without(excluded, members, blind, NO_VISION)
    return excluded


def kept_assignment(
    state: SessionState, members: Sequence[Member], excluded: Collection[str]
) -> Assigned | None:
    """Return the next turn of the agent that was chosen for this request, None if that agent cannot
    go on or none was chosen.
    """
    turns = state.request.turns
    if not turns or turns[-1].assigned.plan:
        return None
    agent = turns[-1].assigned.agent
    if agent in excluded or all(member.name != agent for member in members):
        return None
    return Assigned(
        turn=next_turn_number(state),
        agent=agent,
        role="worker",
        by="trinity",
        reason="it has the request",
    )


def agents_that_gave_up(state: SessionState) -> dict[str, Exclusion]:
    """Return the agents by name that said `UNABLE:` to the newest request, with their reason. They
    may still verify another agent's work.
    """
    return {
        turn.assigned.agent: Exclusion(message=f"it said that it cannot do this: {turn.unable}")
        for turn in state.request.unable_turns
    }


def agents_out_of_turn(
    state: SessionState, settings: CoordinatorSettings, members: Sequence[Member]
) -> dict[str, Exclusion]:
    """Return the agents that cannot take the next turn, with the reason. If it must be a
    verification, these include agents that may not verify the work.
    """
    excluded = agents_out(state, settings.opt_out, members)
    if verifier_due(state):
        return verifiers_out(state, excluded, members)
    return excluded | agents_that_gave_up(state)


def agents_out_for_turn(
    state: SessionState, settings: CoordinatorSettings, members: Sequence[Member]
) -> dict[str, Exclusion]:
    """Like `agents_out_of_turn`, with the exclusions by the cascade's slots. If a Thinker is due,
    the newest Worker is excluded. If the strongest agent has worked in vain, all weaker ones are,
    because they would solve far less of the work.
    """
    excluded = agents_out_of_turn(state, settings, members)
    if verifier_due(state):
        return excluded
    worker = newest_worker(state)
    if worker is not None and thinker_due(state, settings, members):
        return _without(excluded, members, [worker], "it has worked in vain: another agent thinks")
    top = max((slot_level(member) for member in members if member.name not in excluded), default=0)
    if not any(slot_level(member) >= top for member in members_so_far(state, members)):
        return excluded
    weaker = [member.name for member in members if slot_level(member) < top]
    return _without(excluded, members, weaker, "a stronger agent has worked on it in vain")


AUTHOR = "it wrote a part of what is to be verified"
CHEAPEST = "tests that failed before prove this small change: the cheapest agent verifies"


def verifiers_out(
    state: SessionState, already_excluded: Mapping[str, Exclusion], members: Sequence[Member]
) -> dict[str, Exclusion]:
    """Add the agents that may not verify the present work, unless no other agent is left: every
    author of the diff, and for a small change that tests prove, all but the cheapest agent. If
    every agent is an author, only the newest Worker is added.
    """
    worker = newest_worker(state)
    authors = state.request.authors or ((worker,) if worker is not None else ())
    excluded = _without({**already_excluded}, members, authors, AUTHOR)
    left = [member for member in members if member.name not in excluded]
    if worker is not None and all(member.name in authors for member in left):
        excluded = _without(excluded, members, [worker], "it did the newest work")
    left = [member for member in by_strength(members) if member.name not in excluded]
    if tests_prove_small_change(state.request):
        excluded = _without(excluded, members, [member.name for member in left[1:]], CHEAPEST)
    return excluded


def verifies_own_work(state: SessionState, agent: str) -> bool:
    """Return whether the agent would verify its own work: it wrote a part of the newest request's
    diff, or gave the answer if nothing was changed.
    """
    return agent in (state.request.authors or [newest_worker(state)])


def _without(
    excluded: dict[str, Exclusion], members: Sequence[Member], names: Sequence[str], why: str
) -> dict[str, Exclusion]:
    """Exclude these agents as well, unless no other agent would be left."""
    left = {member.name for member in members} - excluded.keys()
    if not left - set(names):
        return excluded
    added = [name for name in names if name in left]
    return {**excluded, **dict.fromkeys(added, Exclusion(message=why))}


def finish_without_agents(state: SessionState, excluded: Mapping[str, Exclusion]) -> Finished:
    """Return the end of a request in which all agents are excluded: by `budget` if more money would
    let one act, as given up if an agent said `UNABLE:`, else as failed.
    """
    reasons = "the pool is empty"
    if excluded:
        each = [f"{name}: {str(why).rstrip('.')}" for name, why in excluded.items()]
        reasons = "; ".join(each)
    if any(why.kind == BUDGET for why in excluded.values()):
        return Finished(
            reason="budget", message=f"no agent is left that the budget carries ({reasons})"
        )
    if state.request.unable_turns:
        return _given_up(state, f"no other agent is left ({reasons})")
    hosts = dict.fromkeys(why.unreachable for why in excluded.values())
    if hosts and "" not in hosts:
        return Finished(
            reason="failed",
            message=f"no connection to {', '.join(hosts)}. {UNREACHABLE_HINT}",
            unreachable=tuple(hosts),
        )
    is_key_refused = bool(excluded) and all(why.kind == "refused" for why in excluded.values())
    hint = OTHER_KEY_HINT if is_key_refused else "`fugu pool check` tries each one."
    return Finished(reason="failed", message=f"all models are unavailable ({reasons}). {hint}")


def _given_up(state: SessionState, why: str) -> Finished:
    """Return the end of a request that agents gave up: `denied` if a call of one was refused."""
    refused: dict[str, Permitted] = {}
    for turn in state.request.unable_turns:
        for run in turn.work:
            decision = run.permitted
            if decision.allowed or decision.plan_mode or run.evidence:
                continue
            if decision.by != ROLE:
                refused[decision.call.tool] = decision
    if not refused:
        return Finished(reason="unaccepted", message=why)
    calls = "; ".join(
        f"{decision.call.tool} ({decision.by}: {decision.reason})" for decision in refused.values()
    )
    hint = "`fugu help permissions` says how to allow it."
    return Finished(reason="denied", message=f"{why}; this was refused: {calls}. {hint}")


def roles_out(state: SessionState) -> dict[Role, str]:
    """Return the roles that are excluded now, with the reason. Work without objections is verified
    next; work without a last word has failed, unless a Thinker asks to verify it; after a REVISE
    somebody works first; a Thinker is followed by another role. A plan is made by a Worker.
    """
    if state.request.asks_for_plan and not state.request.is_work:
        return {"verifier": ONE_PLAN, "thinker": ONE_PLAN}
    if not state.request.has_worker_answer:
        return {"verifier": "there is no Worker answer yet", **_after_thinker(state)}
    if why := state.request.acceptance_blocker:
        return {"verifier": f"{why}, and no verdict changes that", **_after_thinker(state)}
    newest = _newest(state)
    if newest is None or newest.assigned.role == "verifier":
        return {"verifier": "nobody has worked since the newest verdict", **_after_thinker(state)}
    if newest.unable is not None:
        return {"verifier": "the newest Worker gave up", **_after_thinker(state)}
    run = state.request.tests
    if newest.concluded or (run is not None and run.passes):
        return {"worker": VERDICT_DUE, "thinker": VERDICT_DUE}
    return _after_thinker(state) or {"verifier": "the work came to no last word"}


def roles_out_for_turn(
    state: SessionState, settings: CoordinatorSettings, members: Sequence[Member]
) -> dict[Role, str]:
    """Like `roles_out`, with the exclusions by the cascade's slots: no Worker while a Thinker is
    due.
    """
    due: dict[Role, str] = {"worker": THINKER_DUE} if thinker_due(state, settings, members) else {}
    return {**roles_out(state), **due}


def thinker_due(
    state: SessionState, settings: CoordinatorSettings, members: Sequence[Member]
) -> bool:
    """Return whether a Thinker is to act next: all of the strongest agents that are left have
    worked in vain, an agent other than the newest Worker can think, and turns are left for it, a
    Worker and a Verifier.
    """
    turns_left = settings.turns - turns_taken(state)
    if not settings.roles or turns_left < len(ROLES):
        return False
    excluded_roles = roles_out(state)
    if "worker" in excluded_roles or "thinker" in excluded_roles:
        return False
    excluded = agents_out(state, settings.opt_out, members) | agents_that_gave_up(state)
    able = [member for member in members if member.name not in excluded]
    worked = [member.name for member in members_so_far(state, members)]
    if not able or not worked:
        return False
    top = max(slot_level(member) for member in able)
    strongest = {member.name for member in able if slot_level(member) == top}
    another_can_think = any(member.name != worked[-1] for member in able)
    return strongest <= set(worked) and another_can_think


def _after_thinker(state: SessionState) -> dict[Role, str]:
    """Return the exclusion of the Thinker if the newest completed turn was a Thinker's. Turns that
    only chose the next agent do not count.
    """
    for turn in reversed(state.request.turns):
        is_cut = turn.failed or turn.interrupted or not turn.replies
        if is_cut or turn.assigned.chooses:
            continue
        if turn.assigned.role == "thinker":
            return {"thinker": "a Thinker has just spoken"}
        break
    return {}


def verifier_due(state: SessionState) -> bool:
    """Return whether finished work waits for a Verifier, or a Thinker asks for one when the work
    may be verified.
    """
    return "worker" in roles_out(state) or thinker_suggestion(state) == "verifier"


def members_so_far(state: SessionState, members: Iterable[Member]) -> list[Member]:
    """Return the agents that worked on this request, once for each turn, the newest last.

    Turns that ended abnormally count. Agents that failed before they said anything, or that the
    user interrupted, do not. `members` is the present pool.
    """
    by_name = {**state.pool, **{member.name: member for member in members}}
    turns = (turn for turn in state.request.turns if turn.assigned.role == "worker" and turn.spent)
    names = [turn.assigned.agent for turn in turns if not turn.interrupted]
    return [by_name[name] for name in names if name in by_name]


def newest_worker(state: SessionState) -> str | None:
    """Return the agent of this request's last Worker turn."""
    for turn in reversed(state.request.counted_turns):
        if turn.assigned.role == "worker":
            return turn.assigned.agent
    return None


def _newest(state: SessionState) -> Turn | None:
    """Return the newest turn of a Worker or Verifier whose work counts."""
    for turn in reversed(state.request.counted_turns):
        if turn.assigned.role != "thinker" and turn.replies:
            return turn
    return None


def thinker_suggestion(state: SessionState) -> Role | None:
    """Return the role that the newest Thinker asked for, if that role may act now."""
    turns = state.request.turns
    if not turns or turns[-1].failed or turns[-1].interrupted:
        return None
    role = suggested_role(turns[-1])
    return None if role in roles_out(state) else role


def next_turn_number(state: SessionState) -> int:
    """Return the number of the turn to be assigned, from 1 in a request, subtasks included."""
    return 1 + max(
        (event.turn for event in state.request.events if isinstance(event, Assigned)), default=0
    )


def request_end(state: SessionState, *, turns: int, verify_answers: bool) -> Finished | None:
    """Return the end of the newest request, None if it needs another turn.

    Only closed turns count. `turns` is the limit of turns; those that failed, were interrupted or
    came before the session was opened again do not count towards it, so that a stopped request that
    is continued gets as many turns once more.
    """
    closed = state.request.turns
    if closed and _accepted(state, closed[-1]):
        agent = closed[-1].assigned.agent
        if verifies_own_work(state, agent):
            return accepted_end("author", agent)
        return accepted_end("verifier", agent)
    is_judged_by_user = state.request.asks_for_plan
    if closed and (is_judged_by_user or not verify_answers) and _answered(state, closed[-1]):
        return ANSWERED
    if _failures_stay_unknown(state):
        run = state.request.tests_before
        return Finished(
            reason="unaccepted",
            message=f"tests fail, and it is not known whether they failed before: {run.unknown}",
        )
    taken = turns_taken(state)
    if taken >= turns:
        why = _limit_message(state, taken)
        if closed and closed[-1].unable is not None:
            return _given_up(state, why.rstrip("."))
        return Finished(reason="turn_limit", message=why)
    return end_without_agents(state)


def accepted_end(by: AcceptedBy, agent: str = "", what: str = "") -> Finished:
    """Return the end of an accepted request. `what` is a clause on the work."""
    words = acceptance_words(by, agent)
    message = f"{what}; {words}" if what else words
    return Finished(reason="accepted", message=message, accepted_by=by, judge=agent)


def _failures_stay_unknown(state: SessionState) -> bool:
    """Return whether tests fail whose earlier results are unknown, although a Worker that was shown
    them has tried to mend them.
    """
    if not state.request.failing_unknown:
        return False
    workers = [turn for turn in state.request.counted_turns if turn.assigned.role == "worker"]
    return len(workers) > 1


def end_without_agents(state: SessionState) -> Finished | None:
    """Return the end of a request in which every agent failed or is over a budget; None while one
    can act.
    """
    if state.opened is None or not state.opened.pool:
        return None
    failed = state.request.failed_agents
    if not {member.name for member in state.opened.pool} <= failed.keys():
        return None
    return finish_without_agents(state, failed)


def turns_taken(state: SessionState) -> int:
    """Count the turns of the newest request that use up its limit."""
    return sum(
        not turn.failed and not turn.interrupted for turn in state.request.turns_since_opened
    )


def _accepted(state: SessionState, turn: Turn) -> bool:
    if turn.failed or turn.interrupted:
        return False
    return state.request.verdict(turn) == "ACCEPT" and state.request.has_worker_answer


def _answered(state: SessionState, turn: Turn) -> bool:
    """Return whether the turn answers a request that changes no file: a Worker said its last word
    without giving up, and no check of the user's is unmet. A plan need not meet checks.
    """
    if turn.assigned.role != "worker" or turn.failed or turn.interrupted or state.request.is_work:
        return False
    if turn.unable is not None or not turn.concluded or not turn.text.strip():
        return False
    if state.request.asks_for_plan:
        return True
    return not any(check.by == "user" for check in state.request.unmet_checks)


def _limit_message(session: SessionState, taken: int) -> str:
    sentences = [f"stopped after {plural(taken, 'turn')} without an accepted result."]
    if blocker := session.request.acceptance_blocker:
        sentences.append(f"{blocker[0].upper()}{blocker[1:]}.")
    sentences.append("`fugu run --continue` goes on from here.")
    return " ".join(sentences)
