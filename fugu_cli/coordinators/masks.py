"""Masks: which agents and roles cannot be chosen now, and why (`fugu help coordinator`). Pure; for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fugu_cli import intent, views
from fugu_cli.events import Event, Finished, Member, Role
from fugu_cli.test_paths import tests_among


def agents_out(events: Sequence[Event], opt_out: Iterable[str] = (), members: Sequence[Member] = ()) -> dict[str, str]:
    """Agents by name that are opted out, failed in this request or are too dear for it, with the reason; of `members`,
    who may be chosen from, also those that need tests where none judge, unless nobody else is left."""
    opted = dict.fromkeys(sorted(opt_out), "opted out")
    out = {**opted, **views.failed_agents(events), **opted}
    left = [member for member in members if member.name not in out]
    weak = [member.name for member in left if member.needs_tests]
    request, first = views.asked(events), views.first_tests(events)
    silent = (first is not None and first.ok) or (request is not None and intent.wants_tests(request.text))
    judged = views.judged_by_tests(events) and not silent
    if len(weak) == len(left) or judged or views.reproduction(events) is not None:
        return out
    return {**out, **dict.fromkeys(weak, "no tests judge this request")}


def nobody(out: Mapping[str, str]) -> Finished:
    """The end of a request in which everybody is out who could act: by `budget` where more money would let one act."""
    said = "; ".join(f"{name}: {why.rstrip('.')}" for name, why in out.items()) or "the pool is empty"
    if any(map(views.is_budget, out.values())):
        return Finished(reason="budget", message=f"no agent is left that the budget carries ({said})")
    return Finished(reason="failed", message=f"no agent is left to act ({said}). `fugu pool check` tries each one.")


def roles_out(events: Sequence[Event]) -> dict[Role, str]:
    """Roles that make no sense now, with the reason."""
    if not views.has_worker_answer(events):
        return {"verifier": "there is no Worker answer yet"}
    run = views.tests(events)
    if run is not None and not run.stale and not run.ok:
        if views.regressed(events):
            return {"verifier": "tests that passed before fail now, and no verdict changes that"}
        if views.judged_by_tests(events):
            return {"verifier": "the tests fail, and no verdict changes that"}
    tried = views.reproduction(events)
    if tried is not None and not tried.stale and not tried.ok:
        return {"verifier": "the reproduction fails, and no verdict changes that"}
    request = views.asked(events)
    if request is not None and request.assertions and (run is None or not run.passes):
        return {"verifier": "no code was shown that could be tried"}
    if _refused(events):
        return {"verifier": "a Verifier refused it, and nobody has worked since"}
    if why := _unfinished(events):
        return {"verifier": why}
    return {"worker": "the tests pass, and no Verifier has judged it yet"} if _to_be_judged(events) else {}


def _to_be_judged(events: Sequence[Event]) -> bool:
    """The tests that judge the request failed, and pass now by a small model's work. What they do not ask for, a
    Verifier sees; a small Worker that is sent again only changes what is right. Of strong ones that is learned."""
    request, first, run = views.asked(events), views.first_tests(events), views.tests(events)
    if request is None or request.assertions or not views.judged_by_tests(events) or intent.wants_tests(request.text):
        return False
    if first is None or first.ok or run is None or not run.passes:
        return False
    turns, newest = views.turns(events), _newest(events)
    worked = next((turn for turn in reversed(turns) if turn.assigned.role == "worker" and turn.replies), None)
    member = views.pool(events).get(worked.assigned.agent) if worked is not None else None
    judged = newest is not None and newest.assigned.role == "verifier"
    return member is not None and member.protocol != "native" and not judged


def _unfinished(events: Sequence[Event]) -> str:
    """What the newest Worker, a small model that writes one file at a time, has surely left to do; "" for any other."""
    worked = [turn for turn in views.turns(events) if turn.assigned.role == "worker" and turn.replies]
    request, member = views.asked(events), views.pool(events).get(worked[-1].assigned.agent) if worked else None
    if request is None or member is None or member.protocol == "native":
        return ""
    if only_words(events, member.name):
        return "a change was asked for, and nothing was changed"
    changed = views.changes(events)
    missing = changed and intent.wants_tests_beside(request.text) and not tests_among(changed)
    return "tests were asked for as well, and none was written" if missing else ""


def only_words(events: Sequence[Event], agent: str) -> bool:
    """`agent` is a small model and nothing was changed, where the request wants something changed for which files were
    shown, or is about tests and none judge it. Small models accept their own words."""
    request, member = views.asked(events), views.pool(events).get(agent)
    if request is None or member is None or member.protocol == "native" or views.changes(events):
        return False
    if intent.is_to_mend_tests(request.text) and not views.judged_by_tests(events):
        return True
    shown = (run for turn in views.turns(events) for run in turn.runs if run.evidence)
    return intent.wants_change(request.text) and any(run.permitted.call.tool == "read" for run in shown)


def _refused(events: Sequence[Event]) -> bool:
    """The newest turn of a Worker or Verifier that was not cut is a Verifier's, and did not accept."""
    newest = _newest(events)
    return newest is not None and views.verdict(events, newest) == "REVISE"


def _newest(events: Sequence[Event]) -> views.Turn | None:
    """The newest turn of a Worker or Verifier that said something and was not cut."""
    said = (
        turn
        for turn in reversed(views.turns(events))
        if turn.assigned.role != "thinker" and turn.replies and not turn.failed and not turn.interrupted
    )
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
