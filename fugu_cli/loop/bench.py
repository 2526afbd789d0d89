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
from fugu_cli.budgets import Limit
from fugu_cli.coordinators import Coordinator
from fugu_cli.denials import Denials
from fugu_cli.events import EVIDENCE, HOOK, ROLE, Event, Member, Permitted, Recorded, ToolRan, ToolSaid, Undone
from fugu_cli.hooks.running import Hooks
from fugu_cli.injection import marked
from fugu_cli.log import Log
from fugu_cli.loop import missing_tests, reproducing, rolling_back
from fugu_cli.loop.cooldown import Patience, Rests
from fugu_cli.loop.opening import path_of
from fugu_cli.messages import Call, Prompt
from fugu_cli.tools import Result, content
from fugu_cli.tools.toolbox import AnyTool, Toolbox
from fugu_cli.tools.workspace import Workspace, recall

Permission = Literal["once", "session", "no", "headless"]
Ask = Callable[[Call, policy.Judgement], Awaitable[Permission]]
"""The one question that flows in: may this call run? Where nobody can be asked the answer is `headless`: no."""


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
    rests: Rests | None = None
    """Who rests after a failure; None where every failure stands until the request's end."""
    patience: Patience = field(default_factory=Patience)
    """How long a request waits when everybody rests."""


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


async def run_call(log: Log, bench: Bench, number: int, call: Call, barred: str = "") -> None:
    """The agent's call: judged, perhaps asked about, recorded, then run. `barred`: why its turn must not make it."""
    if barred:
        log.append(Permitted(turn=number, call=call, allowed=False, by=ROLE, reason=barred))
        return
    judgement = _judged(bench, call)
    if judgement.verdict != "deny" and (forbidden := await _forbidden(bench, call)):
        log.append(Permitted(turn=number, call=call, allowed=False, by=HOOK, reason=forbidden))
        return
    allowed, by = await _permission(log.events, bench, call, judgement)
    reason, snapshot = judgement.reason, await _before(bench, call) if allowed else None
    if allowed and judgement.verdict == "ask" and _judged(bench, call).target != judgement.target:
        allowed, reason, snapshot = False, MOVED, None
    log.append(Permitted(turn=number, call=call, allowed=allowed, by=by, reason=reason, snapshot=snapshot))
    if allowed:
        await _finish_tool(log, bench, log.events[-1])


def _judged(bench: Bench, call: Call) -> policy.Judgement:
    if call.tool not in bench.toolbox:
        return policy.Judgement(verdict="allow", reason="there is no such tool: nothing will run")
    return policy.judge(call, bench.rules, bench.workspace.root)


async def _forbidden(bench: Bench, call: Call) -> str:
    """Why a hook forbids the call; "" when none does. None is asked about a call that nothing will come of."""
    if bench.hooks is None or isinstance(bench.toolbox.parse(call)[1], Result):
        return ""
    return await bench.hooks.before(call, bench.workspace)


async def _permission(
    events: Sequence[Event], bench: Bench, call: Call, judgement: policy.Judgement
) -> tuple[bool, str]:
    if judgement.verdict != "ask":
        return judgement.verdict == "allow", "policy"
    if judgement.target and not judgement.every_time and _granted(events, bench, judgement.target):
        return True, "session"
    answer = await bench.ask(call, judgement)
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


def _granted(events: Sequence[Event], bench: Bench, target: str) -> bool:
    """The user said yes to this very target for the whole session."""
    yes = (fact.call for fact in events if isinstance(fact, Permitted) and fact.by == "session")
    return any(policy.judge(call, bench.rules, bench.workspace.root).target == target for call in yes)


def may_read(bench: Bench, path: str) -> bool:
    """fugu reads for an agent only what the agent might read without a question: no secrets, nothing outside."""
    return policy.judge(Call.make("", "read", path=path), bench.rules, bench.workspace.root).verdict == "allow"


async def run_evidence(log: Log, bench: Bench, number: int, call: Call) -> None:
    """A run of fugu's own: evidence."""
    snapshot = await _before(bench, call, by_fugu=True)
    log.append(Permitted(turn=number, call=call, allowed=True, by=EVIDENCE, snapshot=snapshot))
    await _finish_tool(log, bench, log.events[-1])


def _hooked(bench: Bench, tool: AnyTool, call: Call, *, by_fugu: bool) -> AnyTool:
    """The tool with the user's hooks around it."""
    return bench.hooks.around(tool, call) if bench.hooks is not None and not by_fugu else tool


async def _before(bench: Bench, call: Call, *, by_fugu: bool = False) -> str | None:
    """The working tree before a call that may change something."""
    tool, arguments = bench.toolbox.parse(call)
    if tool is None or isinstance(arguments, Result) or _hooked(bench, tool, call, by_fugu=by_fugu).effect == "reads":
        return None
    return await bench.workspace.snapshot()


async def _finish_tool(log: Log, bench: Bench, permitted: Event) -> None:
    """Run the call that the newest fact has permitted, and record what came of it."""
    assert isinstance(permitted, Permitted)
    call, number, by_fugu = permitted.call, permitted.turn, permitted.by == EVIDENCE
    tool, arguments = bench.toolbox.parse(call)
    started = time.monotonic()
    if tool is None or isinstance(arguments, Result):
        assert isinstance(arguments, Result)
        log.append(ToolRan(turn=number, call=call, output=arguments.text, ok=False))
        return
    tool = reproducing.before_the_work(tool, log.events)
    ran = _hooked(bench, tool, call, by_fugu=by_fugu)
    state = await content.state(bench.workspace, call) if bench.remembers and ran is tool else ""
    async with log.alive():
        result, made = await bench.workspace.observe(
            ran, arguments, lambda text: log.tell(ToolSaid(turn=number, call=call.id, text=text)), permitted.snapshot
        )
    if result.ok and call.tool == views.RUN_TESTS:
        result = missing_tests.compared(log.events, call, result)
    if state and (made.changes or not result.ok or state != await content.state(bench.workspace, call)):
        state = ""  # somebody wrote meanwhile: nobody can tell which content it saw
    log.append(
        ToolRan(
            turn=number,
            call=call,
            output=result.text if by_fugu or tool.instructs else marked(result.text),
            ok=result.ok,
            seconds=round(time.monotonic() - started, 3),
            changes=made.changes,
            attributes=made.attributes,
            state=state,
            job=result.job,
        )
    )


async def roll_back(bench: Bench, turn: views.Turn, reason: str) -> Undone:
    """Put the files that the draw changed back to how they stood when the turn began; what somebody else changed
    meanwhile stays (`rolling_back.py`).

    Those are again what fugu read for the turn, so that counts as read: an agent without a tool to read may write them.
    """
    begun = [run.result.job for run in turn.runs if run.result is not None and run.result.job]
    await bench.workspace.jobs.stop(begun, "undo")
    snapshot = next((run.permitted.snapshot for run in turn.runs if run.permitted.snapshot), turn.assigned.snapshot)
    paths, others = await rolling_back.roll_back(bench.workspace, snapshot, turn) if snapshot else ((), frozenset())
    shown = [run.result for run in turn.runs if run.evidence and run.result is not None and path_of(run) not in others]
    recall(bench.workspace, [Recorded(seq=0, at=time.time(), event=result) for result in shown])
    return Undone(snapshot=snapshot, turn=turn.number, reason=reason, paths=paths)
