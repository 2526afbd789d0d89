"""The circumstances of turns: folder, agents and rules. Wiring builds these values and the engine
passes them on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from fugu_cli.coordinators import Coordinator
from fugu_cli.messages import Call, Prompt, Value
from fugu_cli.providers import Agent
from fugu_cli.providers.circuit_breaker import CircuitBreaker
from fugu_cli.safety import policy
from fugu_cli.safety.path_rules import Denials
from fugu_cli.session.checks import RUN_CHECK
from fugu_cli.session.events import Event, Member, ToolRan
from fugu_cli.session.outcome import RUN_TESTS, TESTS_BEFORE, is_whole_run
from fugu_cli.session.recognized_tests import tests_among
from fugu_cli.session.spending import Limit
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn, interrupted_calls
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.toolbox import AnyTool, Toolbox
from fugu_cli.tools.workspace import Workspace

if TYPE_CHECKING:
    from fugu_cli.extensions.hook_runner import Hooks
    from fugu_cli.extensions.subagents import Subagent

CANCELLED = "The user ended this run."


class TestRunCanceller:
    """Cancels the session's running tests when the user asks for it. `allowed_by_user`: the user
    has allowed fugu to run the tests by itself.
    """

    def __init__(self) -> None:
        self.allowed_by_user = False
        self._running: set[asyncio.Task[ToolResult]] = set()
        self._ended: set[asyncio.Task[ToolResult]] = set()

    def cancel(self) -> bool:
        """End the running calls. Return False if there are none."""
        running = [task for task in self._running if not task.done()]
        for task in running:
            self._ended.add(task)
            task.cancel()
        return bool(running)

    def around(self, tool: AnyTool) -> AnyTool:
        """Return the tool with runs that `cancel` ends. The result then says that the user did."""

        async def run(arguments: object, workspace: Workspace, say: Say) -> ToolResult:
            task = asyncio.ensure_future(tool.run(arguments, workspace, say))
            self._running.add(task)
            try:
                return await task
            except asyncio.CancelledError:
                if task in self._ended:
                    return ToolResult(text=CANCELLED, ok=False, skipped=True)
                raise
            finally:
                self._running.discard(task)
                self._ended.discard(task)

        return replace(tool, run=run)


TestSchedule = Literal["auto", "always", "never"]


class TestRules(Value):
    """When fugu runs the test suite. `auto`: after a turn's changes; where the suite takes longer
    than `patience` seconds, only before a Verifier. `always`: after every turn's changes. `never`:
    only as an acceptance check."""

    __test__ = False

    when: TestSchedule = "auto"
    patience: float = 60.0


def due_run(
    state: SessionState, turn: Turn | None, rules: TestRules, *, verifying: bool = False
) -> Call | None:
    """Return the next run that the present work needs: the suite, the failing tests on the original
    files, or a check; None if all results are known. `turn` is the turn that the run belongs to.
    `verifying`: a Verifier is about to read the work.
    """
    request = state.request.asked
    if request is None:
        return None
    call_id = f"c{len(state.events)}"
    if turn is not None:
        call_id = f"e{turn.number}-{len(turn.rolled_back)}-{len(turn.runs)}"
    if _suite_due(state, rules, verifying=verifying):
        return Call(id=call_id, tool=RUN_TESTS)
    if request.test_command is not None and rules.when != "never":
        ids = state.request.lookup_due
        if ids is not None:
            return _call_of_tests_before(state, call_id, ids)
    for check in state.request.checks:
        if check.stale and not check.suite:
            return Call(id=call_id, tool=RUN_CHECK, arguments=check.arguments)
    return None


def _call_of_tests_before(state: SessionState, call_id: str, ids: Sequence[str]) -> Call:
    """Return the call that finds out how these tests stood before the request."""
    run, changes = state.request.tests, state.request.changes
    edited = [
        {"path": path, "before": changes[path].before, "after": changes[path].after}
        for path in tests_among(changes)
    ]
    return Call.make(
        call_id,
        TESTS_BEFORE,
        tree=state.request.start_snapshot,
        ids=list(ids),
        failing=run is not None and not run.ok,
        edited=edited,
    )


def _suite_due(state: SessionState, rules: TestRules, *, verifying: bool) -> bool:
    request, run = state.request.asked, state.request.tests
    if request is None or request.test_command is None or (run is not None and not run.stale):
        return False
    if state.request.suite_decides:
        return True
    if rules.when == "never" or state.request.tests_skipped or not _may_have_changed(state):
        return False
    return verifying or rules.when == "always" or _suite_seconds(state.events) <= rules.patience


def _may_have_changed(state: SessionState) -> bool:
    """Return whether the request changed a file, or a call of it was killed, which can have changed
    anything.
    """
    if state.request.changes:
        return True
    return any(interrupted_calls(turn) for turn in state.request.turns)


def _suite_seconds(events: Sequence[Event]) -> float:
    """Return the seconds that the session's newest run of the whole suite took, 0 for none."""
    for event in reversed(events):
        if not isinstance(event, ToolRan) or event.call.tool != RUN_TESTS:
            continue
        if is_whole_run(event.call) and not event.skipped:
            return event.seconds
    return 0.0


def tests_unknown_notice(state: SessionState) -> str:
    """Return the note for a Verifier if no tests ran on the present work, else ""."""
    request, run = state.request.asked, state.request.tests
    if request is None or (run is not None and not run.stale) or not state.request.changes:
        return ""
    if request.test_command is None:
        return "[No tests were run: there is no test command here that fugu may run.]"
    if not state.request.tests_skipped:
        return f"[The tests were not run{' since files were changed last' if run else ''}.]"
    skipped = next(e for e in reversed(state.events) if isinstance(e, ToolRan) and e.skipped)
    if skipped.output.startswith("The tests were not run"):
        return f"[{skipped.output}]"
    return "[The user ended the test run: no tests were run.]"


class Refusal(Value):
    """The user's no, with a message for the agent."""

    feedback: str


Permission = Literal["once", "session", "no", "headless"] | Refusal
AskPermission = Callable[[Call, policy.Judgement], Awaitable[Permission]]
"""Asks the user whether a call may run. `session` allows all calls that the judgement's `rule`
matches, without a rule those with the same target. `headless` means no, because there is nobody to
ask. Several questions may be open at the same time.
"""


MAX_WAIT_SECONDS = 180.0
"""The longest wait for a server in one piece, if the user has set no limit."""


@dataclass(frozen=True)
class WaitLimit:
    """The time that a request waits in one piece while no agent is available.

    `seconds` None: wait only for servers that said how long, at most `MAX_WAIT_SECONDS`. A number:
    wait that long after any failure; 0 ends the request at once.
    """

    seconds: float | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @property
    def most(self) -> float:
        """The longest wait in seconds."""
        return MAX_WAIT_SECONDS if self.seconds is None else self.seconds


@dataclass(frozen=True)
class RequestLimits:
    """The limits of a request. A `budget` that is a number holds for the request alone, in USD.
    `deadline` is a time of `time.monotonic`; `replies` limits each turn.
    """

    budget: Limit = None
    deadline: float | None = None
    replies: int = 30


@dataclass(frozen=True)
class Team:
    """The agents of a session: members of the pool by name, their agents, and the coordinator."""

    members: Mapping[str, Member]
    agents: Mapping[str, Agent]
    coordinator: Coordinator
    breaker: CircuitBreaker | None = None
    """Knows which agents are unavailable after failures; None if every failure lasts until the
    request's end.
    """
    wait_limit: WaitLimit = field(default_factory=WaitLimit)
    """The time that a request waits when no agent is available."""
    excluded: frozenset[str] = frozenset()
    """Members that the coordinator never chooses: opted out, excluded, or beside a pinned one."""


class ClientChannel(Protocol):
    """A client of `fugu serve` that turns speak to instead of the user of a repository. Plans and
    summaries do not pass through it, because only fugu reads them.
    """

    def render(self, prompt: Prompt, state: SessionState, turn: Turn) -> Prompt:
        """Return the prompt of a turn as its agent gets it."""

    def wait(self, turn: Turn) -> None:
        """Note that the call of a turn waits and may be tried again. Raises AgentError if it must
        not be.
        """


@dataclass
class ModeSwitch:
    """The permission mode that the user changed to; None if the mode of the rules still holds."""

    mode: policy.Mode | None = None


@dataclass(frozen=True)
class Environment:
    """The place and the rules of the work."""

    toolbox: Toolbox
    workspace: Workspace
    rules: policy.Rules
    ask: AskPermission
    limits: RequestLimits = RequestLimits()
    instructions: str = ""
    somebody_to_ask: bool = True
    """True if `ask` reaches a person."""
    remembers: bool = False
    """True if a call's dependencies are recorded with its result, for the tool memory of workflows."""
    denials: Denials | None = None
    """Files that are kept from some agents."""
    hooks: Hooks | None = None
    """The user's own commands around agents' calls."""
    nearer: Callable[[Path], Mapping[str, str]] | None = None
    """Standing instructions for a path in the repository, each under its heading; None where nobody
    is shown any.
    """
    client_channel: ClientChannel | None = None
    """The party that turns speak to; None for the user of the repository."""
    tests: TestRules = field(default_factory=TestRules)
    """When fugu runs the test suite."""
    subagents: tuple[Subagent, ...] = ()
    """The subagents described in files. A general one always exists."""
    advisor: str = "off"
    """The setting `advisor`, which engine/advisors.py reads: auto, off or the name of an agent."""
    never_advise: frozenset[str] = frozenset()
    """Agents that advise nobody."""
    test_canceller: TestRunCanceller = field(default_factory=TestRunCanceller)
    """Ends fugu's own test runs when the user asks for it."""
    mode_switch: ModeSwitch = field(default_factory=ModeSwitch)
    """Shared by all copies of this value, so that a new mode holds for the running request, too."""

    @property
    def current_rules(self) -> policy.Rules:
        """The rules in the mode that the user changed to last."""
        mode = self.mode_switch.mode
        return self.rules if mode is None else self.rules.model_copy(update={"mode": mode})


@dataclass(frozen=True)
class GatherEvidence:
    """Run this tool as fugu, for the agent."""

    call: Call


@dataclass(frozen=True)
class RequestReply:
    """Ask the agent for its next reply."""


@dataclass(frozen=True)
class RunCall:
    """Judge and run the agent's call."""

    call: Call


@dataclass(frozen=True)
class TurnClosed:
    """The turn is over; the coordinator decides next."""


NextStep = GatherEvidence | RequestReply | RunCall | TurnClosed
