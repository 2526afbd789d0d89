"""Where agents work and under which rules, and how a call of theirs runs: judged, perhaps asked about, recorded, done.

Used by the orchestrator alone; `Permitted` is on the disk before anything happens, so that nothing ever runs twice.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, assert_never

from fugu_cli import policy, views
from fugu_cli.agents import Agent
from fugu_cli.agents.circuit_breaker import CircuitBreaker
from fugu_cli.budgets import Limit
from fugu_cli.coordinators import Coordinator
from fugu_cli.denials import Denials
from fugu_cli.events import EVIDENCE, HOOK, ROLE, Event, Member, Permitted, Recorded, ToolRan, ToolSaid, Undone
from fugu_cli.hooks.running import Hooks
from fugu_cli.injection import marked
from fugu_cli.log import Log
from fugu_cli.loop import acceptance_checks, rolling_back, unmasking
from fugu_cli.loop.availability import WaitLimit
from fugu_cli.loop.evidence import TestRules
from fugu_cli.loop.harness import TOOL_CALLING, Harness
from fugu_cli.loop.opening import path_of
from fugu_cli.loop.skipping import Skip
from fugu_cli.loop.unmasking import Made
from fugu_cli.messages import Call, Prompt
from fugu_cli.tools import Result, content
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace, recall

Permission = Literal["once", "session", "no", "headless"]
Ask = Callable[[Call, policy.Judgement], Awaitable[Permission]]
"""The one question that flows in: may this call run? Where nobody can be asked the answer is `headless`: no."""


SKIPPED = frozenset({views.RUN_TESTS, views.TESTS_BEFORE})
"""Runs of fugu's that the user may end."""
MOVED = "it leads to another place now than when it was asked about"


@dataclass(frozen=True)
class Limits:
    """What ends a request early. Money in USD, a request's where it is a number; `deadline` on the monotonic clock."""

    budget: Limit = None
    deadline: float | None = None
    replies: int = 30
    brief_replies: int = 6
    """Replies in one draw of a small model (`schema`, `text`): more lead nowhere."""


@dataclass(frozen=True)
class Crew:
    """Who works: the members of the pool by name, each one's agent, and the coordinator that chooses among them."""

    members: Mapping[str, Member]
    agents: Mapping[str, Agent]
    coordinator: Coordinator
    breaker: CircuitBreaker | None = None
    """Who is unavailable after a failure; None where every failure stands until the request's end."""
    wait_limit: WaitLimit = field(default_factory=WaitLimit)
    """How long a request waits when no agent is available."""
    never: frozenset[str] = frozenset()
    """Members that the coordinator never chooses: opted out, excluded, or beside a pinned one."""
    harnesses: Mapping[str, Harness] = field(default_factory=dict)
    """How agents take a turn, by name; an agent that is not here calls tools."""

    def harness(self, name: str) -> Harness:
        """How this agent takes a turn."""
        return self.harnesses.get(name, TOOL_CALLING)


class Voice(Protocol):
    """Whom turns speak to, where it is not the user of a repository: an endpoint's client. Plans and summaries are no
    turns: nobody but fugu reads them."""

    def put(self, prompt: Prompt, events: Sequence[Event], now: views.Turn) -> Prompt:
        """The prompt of a turn's call as it is put to its agent."""

    def say(self, now: views.Turn, text: str) -> None:
        """A piece of a turn's reply arrived."""

    def wait(self, now: views.Turn) -> None:
        """A turn's call waits, and may then be tried again. Raises AgentError where it must not be."""


@dataclass(frozen=True)
class Bench:
    """Where and under which rules they work."""

    toolbox: Toolbox
    workspace: Workspace
    rules: policy.Rules
    ask: Ask
    limits: Limits = Limits()
    instructions: str = ""
    remembers: bool = False
    """What a call depended on is recorded with its result: the tool memory of workflows needs it."""
    denials: Denials | None = None
    """Files that are kept from some agents."""
    hooks: Hooks | None = None
    """The user's own commands around agents' calls."""
    voice: Voice | None = None
    """Whom turns speak to; None: the user of the repository."""
    tests: TestRules = field(default_factory=TestRules)
    """When fugu runs the test suite."""
    skip: Skip = field(default_factory=Skip)
    """With which the user ends a test run of fugu's."""


def _free(call: Call) -> str:
    """Nothing but policy speaks against the call."""
    return ""


async def run_call(log: Log, bench: Bench, number: int, recorded: Call, barred: Callable[[Call], str] = _free) -> None:
    """The agent's recorded call, as it made it: judged, perhaps asked about, permitted in the log, then run. `barred`:
    why its turn must not make it."""
    try:
        call = unmasking.as_made(log, bench.toolbox, bench.workspace, recorded, alone=_alone(log, bench, number))
        reason = barred(call)
    except unmasking.Unrestorable as error:
        call, reason = recorded, str(error)
    if reason:
        log.append(Permitted(turn=number, call=recorded, allowed=False, by=ROLE, reason=reason))
        return
    judgement = _judged(bench, call)
    if judgement.verdict != "deny" and (forbidden := await _forbidden(bench, call)):
        log.append(Permitted(turn=number, call=recorded, allowed=False, by=HOOK, reason=forbidden))
        return
    allowed, by = await _permission(log, bench, Made(recorded, call), judgement)
    reason = judgement.reason
    if allowed and judgement.verdict == "ask" and _judged(bench, call).target != judgement.target:
        allowed, reason = False, MOVED
    log.append(Permitted(turn=number, call=recorded, allowed=allowed, by=by, reason=reason))
    if allowed:
        await _finish_tool(log, bench, number, Made(recorded, call))


def _alone(log: Log, bench: Bench, number: int) -> bool:
    """Some files are kept from the turn's agent."""
    now = views.turn_of(log.events, number) if bench.denials is not None else None
    return now is not None and bench.denials is not None and bool(bench.denials.of(now.assigned.agent))


def _judged(bench: Bench, call: Call) -> policy.Judgement:
    if call.tool not in bench.toolbox:
        return policy.Judgement(verdict="allow", reason="there is no such tool: nothing will run")
    return policy.judge(call, bench.rules, bench.workspace.root)


async def _forbidden(bench: Bench, call: Call) -> str:
    """Why a hook forbids the call; "" when none does. None is asked about a call that nothing will come of."""
    if bench.hooks is None or isinstance(bench.toolbox.parse(call)[1], Result):
        return ""
    return await bench.hooks.before(call, bench.workspace)


async def _permission(log: Log, bench: Bench, made: Made, judgement: policy.Judgement) -> tuple[bool, str]:
    if judgement.verdict != "ask":
        return judgement.verdict == "allow", "policy"
    if judgement.target and not judgement.every_time and _granted(log, bench, judgement.target):
        return True, "session"
    answer = await bench.ask(made.recorded, log.mask.fact(judgement) if log.mask is not None else judgement)
    match answer:
        case "once":
            return True, "user"
        case "session":
            return True, "session"
        case "no":
            return False, "user"
        case "headless":
            return False, "headless"
        case _:
            assert_never(answer)


def _granted(log: Log, bench: Bench, target: str) -> bool:
    """The user said yes to this very target for the whole session."""
    yes = [fact.call for fact in log.events if isinstance(fact, Permitted) and fact.by == "session"]
    return any(_target(log, bench, call) == target for call in yes)


def _target(log: Log, bench: Bench, recorded: Call) -> str:
    """What a recorded call was aimed at; "" where that is not known any more."""
    try:
        call = unmasking.as_made(log, bench.toolbox, bench.workspace, recorded)
    except unmasking.Unrestorable:
        return ""
    return policy.judge(call, bench.rules, bench.workspace.root).target


def may_read(bench: Bench, path: str) -> bool:
    """fugu reads for an agent only what the agent might read without a question: no secrets, nothing outside."""
    return policy.judge(Call.make("", "read", path=path), bench.rules, bench.workspace.root).verdict == "allow"


async def run_evidence(log: Log, bench: Bench, number: int, recorded: Call) -> None:
    """A run of fugu's own: evidence. What it runs may be an agent's, taken from the log."""
    log.append(Permitted(turn=number, call=recorded, allowed=True, by=EVIDENCE))
    try:
        call = unmasking.as_made(log, bench.toolbox, bench.workspace, recorded)
    except unmasking.Unrestorable as error:
        log.append(ToolRan(turn=number, call=recorded, output=f"It was not run: {error}", ok=False))
        return
    await _finish_tool(log, bench, number, Made(recorded, call), by_fugu=True)


async def _finish_tool(log: Log, bench: Bench, number: int, made: Made, *, by_fugu: bool = False) -> None:
    recorded, call = made
    tool, arguments = bench.toolbox.parse(call)
    started = time.monotonic()
    if tool is None or isinstance(arguments, Result):
        assert isinstance(arguments, Result)
        log.append(ToolRan(turn=number, call=recorded, output=arguments.text, ok=False))
        return
    tool = acceptance_checks.before_the_work(tool, log.events)
    ran = bench.hooks.around(tool, call) if bench.hooks is not None and not by_fugu else tool
    ran = bench.skip.around(ran) if by_fugu and call.tool in SKIPPED else ran
    state = await content.state(bench.workspace, call) if bench.remembers and ran is tool else ""
    result, changes, extras = await bench.workspace.observe(
        ran, arguments, lambda text: log.tell(ToolSaid(turn=number, call=call.id, text=text))
    )
    if state and (changes or not result.ok or state != await content.state(bench.workspace, call)):
        state = ""  # somebody wrote meanwhile: nobody can tell which content it saw
    log.append(
        ToolRan(
            turn=number,
            call=recorded,
            output=result.text if by_fugu or tool.instructs else marked(result.text),
            ok=result.ok,
            seconds=round(time.monotonic() - started, 3),
            changes=changes,
            state=state,
            job=result.job,
            extras=extras,
            tests=result.tests,
            skipped=result.skipped,
        )
    )


async def roll_back(bench: Bench, turn: views.Turn, reason: str) -> Undone:
    """Put the files that the draw changed back to how they stood when the turn began; what somebody else changed
    meanwhile stays (`rolling_back.py`).

    Those are again what fugu read for the turn, so that counts as read: an agent without a tool to read may write them.
    """
    begun = [run.result.job for run in turn.runs if run.result is not None and run.result.job]
    await bench.workspace.jobs.stop(begun, "undo")
    snapshot = turn.assigned.snapshot
    back = await rolling_back.roll_back(bench.workspace, snapshot, turn) if snapshot is not None else None
    paths, others = back or ((), frozenset())
    shown = [run.result for run in turn.runs if run.evidence and run.result is not None and path_of(run) not in others]
    recall(bench.workspace, [Recorded(seq=0, at=time.time(), event=result) for result in shown])
    return Undone(snapshot=snapshot, turn=turn.number, reason=reason, paths=paths)
