"""The digest that a learned coordinator reads instead of a whole transcript: who judges the work,
what agents cost beside each other, one line for each turn, and how things stand. At most `budget`
tokens however long the session is.

Not a word of the request is in it: its wording says nothing of its difficulty, and what is not read
cannot turn a decision (tests/benchmarks/results/outcome-replay.md). Numbers are rounded to 1, 2 or
5 of a power of ten, so that few digests differ, and what was read once is known the next time.
Pure; no tokenizer is needed, tokens are counted from above.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from fugu_cli.coordinators import action_space
from fugu_cli.session import views
from fugu_cli.session.events import Event, Finished, ToolRan
from fugu_cli.system.bounded_json import parse_json

DIGEST_TOKENS = 256
"""The usual budget."""
NAME_LENGTH = 24
"""Characters of a name that stands in the log: an agent's, a vendor's, a tool's."""
TRUSTED = 5
"""Accepted requests of a session from which on their number that was undone says something."""
UNDONE = ((0.05, "hardly ever"), (0.14, "seldom"), (0.25, "sometimes"), (1.0, "often"))
"""Shares of accepted work that was undone, up to which it is called so."""
REPEATED = 3
"""Failures of one call in a turn from which on the digest names it."""
UNUSUAL = 1.5
"""Multiple of an agent's usual calls and tokens from which on the digest gives them."""
LAST_LINE = "next:"


def digest(events: Sequence[Event], labels: Mapping[str, str], budget: int = DIGEST_TOKENS) -> str:
    """The digest of the newest request. `labels` names agents as the checkpoint was trained to read
    them. The oldest turns are left out where there is no room."""
    head, turns, state = _head(events, labels), _turn_lines(events, labels), _state(events, labels)
    for left_out in range(len(turns) + 1):
        earlier = [f"{left_out} earlier turns"] if left_out else []
        text = "\n".join([*head, *earlier, *turns[left_out:], *state, LAST_LINE])
        if tokens_at_most(text) <= budget:
            break
    return text


def tokens_at_most(text: str) -> int:
    """More tokens than a byte-level tokenizer makes of such lines: three letters of a word each,
    every digit and sign, every byte of other scripts."""
    words = re.findall(r"[A-Za-z]+", text)
    others = re.sub(r"[A-Za-z ]+", "", text)
    return sum(-(-len(word) // 3) for word in words) + len(others.encode(errors="replace"))


def _name(text: str) -> str:
    return " ".join(text.split())[:NAME_LENGTH]


def _head(events: Sequence[Event], labels: Mapping[str, str]) -> list[str]:
    """Who judges the work, how far that can be trusted, what agents cost, and the tests before the
    work.
    """
    asked, checks = views.asked(events), views.checks(events)
    judge = "a Verifier"
    if checks:
        judge = (
            "a check of the user"
            if any(check.by == "user" for check in checks)
            else "a check of an agent"
        )
    elif asked is not None and asked.test_command:
        judge = "the tests and a Verifier"
    runs = [run for run in views.baseline(events) if run.permitted.call.tool == views.RUN_TESTS]
    tests = [f"before: {_tests(None, _counts(runs[-1]))}"] if runs else []
    return [f"judged by {judge}{_trust(events)}", *_prices(events, labels), *tests]


def _trust(events: Sequence[Event]) -> str:
    """How far an acceptance can be trusted: how much of this session's earlier accepted work the
    user undid.
    """
    standing = set(views.undo_history(events).requests)
    accepted = [
        number
        for number, facts in enumerate(views.requests(events)[:-1])
        if any(isinstance(fact, Finished) and fact.reason == "accepted" for fact in facts)
        and any(isinstance(fact, ToolRan) and fact.changes for fact in facts)
    ]
    if len(accepted) < TRUSTED:
        return ""
    share = sum(number not in standing for number in accepted) / len(accepted)
    return f"; accepted work was {next(said for limit, said in UNDONE if share <= limit)} undone"


def _costs(events: Sequence[Event], labels: Mapping[str, str]) -> dict[str, float]:
    """The least price by label, the lowest first."""
    costs: dict[str, float] = {}
    for name, member in views.pool(events).items():
        cost, label = action_space.blended_price(member.price), _name(labels.get(name, name))
        costs[label] = min(cost, costs.get(label, cost))
    return dict(sorted(costs.items(), key=lambda one: one[1]))


def _prices(events: Sequence[Event], labels: Mapping[str, str]) -> list[str]:
    """What an agent costs beside the cheapest one: by slot, or by name where rows are agents."""
    costs = _costs(events, labels)
    least = min((cost for cost in costs.values() if cost > 0), default=0.0)
    if len(costs) < 2 or not least:
        return []
    return [
        "prices: " + ", ".join(f"{label} {_rounded(cost / least)}" for label, cost in costs.items())
    ]


class _TestCounts(NamedTuple):
    """A run of the tests. `failing`: their ids where all are known."""

    ok: bool
    passed: int | None
    failed: int | None
    failing: frozenset[str] | None


def _counts(run: views.CallRecord) -> _TestCounts | None:
    """None where the run did not end."""
    result = run.result
    if result is None:
        return None
    if (report := result.tests) is not None:
        return _TestCounts(
            result.ok,
            report.passed,
            report.failed,
            frozenset(report.failing) if report.by_id else None,
        )
    return _TestCounts(
        result.ok, views.passed_count(result.output), views.failed_count(result.output), None
    )


def _tests(before: _TestCounts | None, now: _TestCounts | None) -> str:
    """`tests failed 2, passed 5, 1 fixed, 1 broken`: what changed is told where the run before is
    known.
    """
    if now is None:
        return "tests interrupted"
    parts = [f"tests {'passed' if now.ok else 'failed'}"]
    if not now.ok and now.failed:
        parts[0] += f" {_rounded(now.failed)}"
    if before is not None and not (before.ok and now.ok):
        if before.failing is not None and now.failing is not None:
            fixed, broken = len(before.failing - now.failing), len(now.failing - before.failing)
        else:
            change = (0 if now.ok else now.failed or 0) - (0 if before.ok else before.failed or 0)
            fixed, broken = max(-change, 0), max(change, 0)
        parts += [
            f"{_rounded(number)} {what}"
            for number, what in ((fixed, "fixed"), (broken, "broken"))
            if number
        ]
    return ", ".join(parts)


def _turn_lines(events: Sequence[Event], labels: Mapping[str, str]) -> Sequence[str]:
    """`Worker cheap openai: files 2, lines 30, tests failed 1, 2 fixed`, a line for each closed
    turn.
    """
    pool, usual = views.pool(events), _usual(events)
    before = next(
        (
            _counts(run)
            for run in views.baseline(events)
            if run.permitted.call.tool == views.RUN_TESTS
        ),
        None,
    )
    lines = []
    for turn in views.turns(events):
        member = pool.get(turn.assigned.agent)
        label = _name(labels.get(turn.assigned.agent, turn.assigned.agent))
        name = f"{turn.assigned.role.capitalize()} {label} {_name(member.vendor) if member else ''}".rstrip()
        runs = [
            run for run in turn.runs if run.evidence and run.permitted.call.tool == views.RUN_TESTS
        ]
        now = _counts(runs[-1]) if runs else None
        parts = [*_ended(events, turn), *_work(turn), *_effort(turn, usual)]
        if runs:
            parts.append(_tests(before, now))
            before = now or before
        lines.append(f"{name}: {', '.join(parts) or 'words'}")
    return lines


def _ended(events: Sequence[Event], turn: views.Turn) -> list[str]:
    """How it ended, where that was not with its last word; a verdict; what a Thinker asks for."""
    if turn.failed is not None:
        return [f"failed, {_name(turn.failed.kind)}"]
    if turn.interrupted:
        return ["interrupted"]
    verdict = views.verdict(events, turn)
    if verdict is not None:
        return [verdict]
    if (role := views.suggested_role(turn)) is not None:
        return [f"asks for a {role}"]
    if turn.concluded or not turn.replies:
        return []
    return [f"ended early, {turn.replies[-1].stop}"]


def _work(turn: views.Turn) -> list[str]:
    """What it changed, what was taken back, and what it tried again and again in vain."""
    own = [run for run in turn.work if not run.evidence]
    parts = []
    if files := {change.path for change in turn.changes}:
        lines = sum(
            _written_lines(run.permitted.call.arguments)
            for run in own
            if run.result and run.result.changes
        )
        parts.append(
            f"files {_rounded(len(files))}" + (f", lines {_rounded(lines)}" if lines else "")
        )
    elif own:
        parts.append("nothing changed")
    if turn.draws:
        parts.append(f"{_rounded(len(turn.draws))} tries rolled back")
    in_vain = Counter(
        run.permitted.call.tool for run in own if run.result is None or not run.result.ok
    )
    parts += [
        f"{_name(tool)} failed {_rounded(times)} times"
        for tool, times in in_vain.items()
        if times >= REPEATED
    ]
    return parts


def _written_lines(arguments: str) -> int:
    """Lines of the longest text that a call was given."""
    try:
        given = parse_json(arguments)
    except ValueError:
        return 0
    texts = (
        [value for value in given.values() if isinstance(value, str)]
        if isinstance(given, dict)
        else []
    )
    return max((text.count("\n") + 1 for text in texts), default=0)


def _effort(turn: views.Turn, usual: Mapping[str, tuple[float, float]]) -> list[str]:
    """Calls and tokens where they are far from what this agent usually takes."""
    if turn.assigned.agent not in usual:
        return []
    calls, tokens = usual[turn.assigned.agent]
    found = []
    for what, now, mostly in (("calls", _calls(turn), calls), ("tokens", _tokens(turn), tokens)):
        if now and mostly and not 1 / UNUSUAL < now / mostly < UNUSUAL:
            found.append(f"{_rounded(now / mostly)} times its usual {what}")
    return found


def _usual(events: Sequence[Event]) -> dict[str, tuple[float, float]]:
    """Mean calls and tokens of a Worker's turn by agent, over the session's earlier requests."""
    found: dict[str, list[tuple[int, int]]] = {}
    for facts in views.requests(events)[:-1]:
        for turn in views.turns(facts):
            if turn.assigned.role == "worker" and turn.replies:
                found.setdefault(turn.assigned.agent, []).append((_calls(turn), _tokens(turn)))
    return {
        name: (mean(one[0] for one in each), mean(one[1] for one in each))
        for name, each in found.items()
    }


def _calls(turn: views.Turn) -> int:
    return sum(not run.evidence for run in turn.runs)


def _tokens(turn: views.Turn) -> int:
    return sum(reply.usage.output for reply in turn.spent)


def _state(events: Sequence[Event], labels: Mapping[str, str]) -> list[str]:
    """What speaks against the work, who has not worked on it yet, what was spent, and what a new
    agent would read.
    """
    pool, turns = views.pool(events), views.turns(events)
    blocked = views.acceptance_blocker(events).partition(":")[0]
    worked = {turn.assigned.agent for turn in turns if turn.assigned.role == "worker"}
    left = Counter(_name(labels.get(name, name)) for name in pool if name not in worked)
    untried = ", ".join(f"{label} {left[label]}" for label in _costs(events, labels) if left[label])
    spent = views.cost(views.request(events), pool)
    newest = next((turn.replies[-1] for turn in reversed(turns) if turn.replies), None)
    parts = [f"spent ${_rounded(spent)}"] if spent else []
    if newest is not None and newest.usage.input >= 1000:
        parts.append(f"another agent reads {_rounded(newest.usage.input / 1000)}k tokens")
    lines = [f"against it: {blocked}"] if blocked else []
    return [*lines, *([", ".join(parts)] if parts else []), f"untried: {untried or 'nobody'}"]


def _rounded(value: float) -> str:
    """The nearest of 1, 2 and 5 of a power of ten: 0.02, 5, 20."""
    if value <= 0:
        return "0"
    unit = 10 ** math.floor(math.log10(value))
    step = min((1, 2, 5, 10), key=lambda one: abs(math.log(value / unit / one)))
    return f"{float(f'{step * unit:.1g}'):g}"
