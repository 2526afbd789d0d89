"""Masks: which agents and roles cannot be chosen now, and why (`fugu help coordinator`). Pure; for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fugu_cli import views
from fugu_cli.events import Event, Finished, Member, Role

DUE = "the newest work has not been verified yet"


def agents_out(events: Sequence[Event], opt_out: Iterable[str] = (), members: Sequence[Member] = ()) -> dict[str, str]:
    """Agents by name that are opted out, failed in this request or are too dear for it, with the reason.

    Of `members`, who may be chosen from, also those that need an acceptance check where there is none, unless nobody
    else is left.
    """
    opted = dict.fromkeys(sorted(opt_out), "opted out")
    out = {**opted, **views.failed_agents(events), **opted}
    if not views.checks(events):
        weak = [member.name for member in members if member.needs_tests]
        out = _without(out, members, weak, "no acceptance check judges this request")
    return out


def turn_out(events: Sequence[Event], opt_out: Iterable[str], members: Sequence[Member]) -> dict[str, str]:
    """The same for a turn of its own: where work is to be verified, also the agent that did it, if another is left."""
    out = agents_out(events, opt_out, members)
    worker = newest_worker(events) if "worker" in roles_out(events) else None
    return out if worker is None else _without(out, members, [worker], "it did the work that is to be verified")


def _without(out: dict[str, str], members: Sequence[Member], names: Sequence[str], why: str) -> dict[str, str]:
    """`out` with these names, if anybody is left without them."""
    left = {member.name for member in members} - out.keys()
    return {**out, **dict.fromkeys([name for name in names if name in left], why)} if left - set(names) else out


def nobody(out: Mapping[str, str]) -> Finished:
    """The end of a request in which everybody is out who could act: by `budget` where more money would let one act."""
    said = "; ".join(f"{name}: {why.rstrip('.')}" for name, why in out.items()) or "the pool is empty"
    if any(map(views.is_budget, out.values())):
        return Finished(reason="budget", message=f"no agent is left that the budget carries ({said})")
    return Finished(reason="failed", message=f"no agent is left to act ({said}). `fugu pool check` tries each one.")


def roles_out(events: Sequence[Event]) -> dict[Role, str]:
    """Roles that make no sense now, with the reason. Work that nothing speaks against is verified next; after a REVISE
    somebody works first; a Thinker is followed by another role."""
    if not views.has_worker_answer(events):
        return {"verifier": "there is no Worker answer yet", **_thought(events)}
    if why := views.against(events):
        return {"verifier": f"{why}, and no verdict changes that", **_thought(events)}
    newest = _newest(events)
    if newest is None or newest.assigned.role == "verifier":
        return {"verifier": "nobody has worked since the newest verdict", **_thought(events)}
    run = views.tests(events)
    if newest.concluded or (run is not None and run.passes):
        return {"worker": DUE, "thinker": DUE}
    return _thought(events)


def _thought(events: Sequence[Event]) -> dict[Role, str]:
    """The newest turn that came to its end was a Thinker's."""
    ended = [turn for turn in views.turns(events) if turn.replies and not turn.failed and not turn.interrupted]
    return {"thinker": "a Thinker has just spoken"} if ended and ended[-1].assigned.role == "thinker" else {}


def verifier_due(events: Sequence[Event]) -> bool:
    """A Verifier may act, and nothing is left to do before that."""
    out = roles_out(events)
    return "verifier" not in out and (suggestion(events) == "verifier" or "thinker" not in out or "worker" in out)


def newest_worker(events: Sequence[Event]) -> str | None:
    """Who worked last in this request."""
    return next((t.assigned.agent for t in reversed(views.taken(events)) if t.assigned.role == "worker"), None)


def _newest(events: Sequence[Event]) -> views.Turn | None:
    """The newest turn of a Worker or Verifier whose work counts."""
    said = (turn for turn in reversed(views.taken(events)) if turn.assigned.role != "thinker" and turn.replies)
    return next(said, None)


def suggestion(events: Sequence[Event]) -> Role | None:
    """The role the newest turn's Thinker asked for, if it is one that may act now."""
    turns = views.turns(events)
    if not turns or turns[-1].failed or turns[-1].interrupted:
        return None
    role = views.suggested_role(turns[-1])
    return None if role in roles_out(events) else role


def next_turn(events: Sequence[Event]) -> int:
    """The number of the turn to be assigned, counting from 1 within a request."""
    turns = views.turns(events)
    return turns[-1].number + 1 if turns else 1
