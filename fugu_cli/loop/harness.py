"""How models of one kind take a turn: the protocol, and the harness for models that call tools.

The loop asks the harness of a turn's agent what the turn needs next, what the agent is shown and which tools it has.
`ToolCalling` is the default and all that a reader of the loop meets; wiring may choose another one for an agent. Every
answer is a function of the log, so a turn that was killed goes on where it stood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from fugu_cli import policy, prompts, views
from fugu_cli.conductor.seen import isolated, tests_since
from fugu_cli.events import Event, Member
from fugu_cli.loop import context, evidence
from fugu_cli.loop.environment import Bench, Closed, Crew, Evidence, Harness, Reply, RollBack, Run, Step
from fugu_cli.messages import Call, Prompt, ToolSpec
from fugu_cli.tools.toolbox import AnyTool

if TYPE_CHECKING:
    pass

SAME_CALL_LIMIT = 3
"""A turn that made the same call this often without success is closed."""
REPLY = 8192
"""Tokens that a reply may have, unless the agent's entry says otherwise."""


class ToolCalling:
    """Models with native tool calls: they read the whole history and act until they say their last word."""

    @property
    def has_history(self) -> bool:
        return True

    def next_step(self, events: Sequence[Event], member: Member, bench: Bench) -> Step:
        """Evidence, the agent's replies and calls, then the tests and checks that its changes make due."""
        turn = views.turns(events)[-1]
        if turn.failed is not None or turn.interrupted:
            return Closed()
        if not turn.replies:
            if len(turn.draws) >= max(member.attempts, 1):
                return Closed()
            opening = _opening(events, turn, bench)
            return Evidence(opening) if opening is not None else Reply()
        if calls := views.open_calls(turn):
            return Run(calls[0])
        if not said_all(turn, bench.limits.replies):
            return Reply()
        return _after(events, turn, member, bench)

    def prompt(self, events: Sequence[Event], member: Member, tools: Sequence[ToolSpec], instructions: str) -> Prompt:
        """The whole history as messages. A further attempt is sampled (temperature .8, a seed of its own)."""
        turn = views.turns(events)[-1]
        again = attempts_before(events, turn) if member.attempts > 1 else 0
        return Prompt(
            system=prompts.fill(prompts.load("system"), instructions=instructions).strip(),
            messages=context.history(isolated(events), _told(events, turn)),
            tools=tuple(tools),
            max_tokens=REPLY,
            temperature=0.8 if again else None,
            seed=again or None,
        )

    def tools(self, events: Sequence[Event], member: Member, bench: Bench) -> tuple[ToolSpec, ...]:
        """A Worker has all tools, a Thinker those that read, a Verifier those and the tests; all may set acceptance
        checks, unless the mode or the files kept from some agents forbid running them."""
        checks = bench.rules.mode != "plan" and bench.denials is None
        more = {views.ACCEPTANCE_CHECK} if checks else set[str]()
        match views.turns(events)[-1].assigned.role:
            case "worker":
                out = policy.OWN if checks else policy.OWN | {views.ACCEPTANCE_CHECK}
                return bench.toolbox.specs(lambda tool: tool.name not in out)
            case "thinker":
                return bench.toolbox.specs(lambda tool: _reads(tool) or tool.name in more)
            case "verifier":
                return bench.toolbox.specs(lambda tool: _reads(tool) or tool.name in {*more, views.RUN_TESTS})

    def refuses(self, call: Call, events: Sequence[Event], member: Member, bench: Bench) -> str:
        """Tools that the role does not have."""
        return no_such_tool(call, events, bench, self.tools(events, member, bench))


def no_such_tool(call: Call, events: Sequence[Event], bench: Bench, offered: Sequence[ToolSpec]) -> str:
    """Why a call of a tool that was not offered is not made; "" for others."""
    role = views.turns(events)[-1].assigned.role.capitalize()
    absent = call.tool in bench.toolbox and all(spec.name != call.tool for spec in offered)
    return f"a {role} has no tool {call.tool}" if absent else ""


def _reads(tool: AnyTool) -> bool:
    """It changes nothing and is an agent's: how tests stood before is looked up by fugu alone."""
    return tool.effect == "reads" and not tool.worker and tool.name != views.TESTS_BEFORE


def _opening(events: Sequence[Event], turn: views.Turn, bench: Bench) -> Call | None:
    """The next piece of evidence that a Verifier's turn opens with; None when it has all, and for other roles."""
    if turn.draws or turn.assigned.role != "verifier":
        return None
    if (call := evidence.due(events, turn, bench.tests, verifying=True)) is not None:
        return call
    return diff_due(events, turn)


def diff_due(events: Sequence[Event], turn: views.Turn) -> Call | None:
    """The diff of the request, which a Verifier is shown once; None where it has it, or where undo is limited."""
    began = views.began(events)
    done = [run.permitted.call.tool for run in turn.runs if run.evidence and run.result is not None]
    if not began or "diff" in done:
        return None
    more = [(change.path, change.before, change.after) for change in views.beside(events).values()]
    given = {"since": began} | ({"beside": more} if more else {})
    return Call.make(f"e{turn.number}-{len(turn.draws)}-{len(turn.runs)}", "diff", **given)


def _after(events: Sequence[Event], turn: views.Turn, member: Member, bench: Bench) -> Step:
    """After the agent's last word: the tests and checks that are due, then whether the attempt stands."""
    if turn.assigned.role != "worker":
        call = evidence.due(events, turn, bench.tests) if set_a_check(turn) else None
        return Evidence(call) if call is not None else Closed()
    if (call := evidence.due(events, turn, bench.tests)) is not None:
        return Evidence(call)
    asked = views.asked(events)
    undoes = member.attempts > 1 and bool(turn.changes) and asked is not None and asked.snapshot is not None
    why = views.against(events) if undoes else ""
    return RollBack(why) if why else Closed()


def set_a_check(turn: views.Turn) -> bool:
    """The turn set an acceptance check, which may have to run on the changed files at once."""
    return any(run.permitted.call.tool == views.ACCEPTANCE_CHECK and run.result is not None for run in turn.runs)


def said_all(turn: views.Turn, replies: int) -> bool:
    """The agent's part is over: no calls left, no more replies allowed, or nothing but repeats."""
    newest = turn.replies[-1]
    if not newest.calls or len(turn.replies) >= replies:
        return True
    last = newest.calls[-1]
    failed = [run.permitted.call for run in turn.runs if run.result is None or not run.result.ok]
    return sum((call.tool, call.arguments) == (last.tool, last.arguments) for call in failed) >= SAME_CALL_LIMIT


def attempts_before(events: Sequence[Event], turn: views.Turn) -> int:
    """How often this agent's model has answered in this role in this request. The same prompt must not give the same
    answer."""
    pool = views.pool(events)

    def model(one: views.Turn) -> str:
        name = one.assigned.agent
        return pool[name].model if name in pool else name

    earlier = (one for one in views.turns(events) if one.number < turn.number)
    same = (one for one in earlier if one.assigned.role == turn.assigned.role and model(one) == model(turn))
    return sum(len(one.draws) + bool(one.replies) for one in same) + len(turn.draws)


def _told(events: Sequence[Event], turn: views.Turn) -> str:
    """What the newest turn's agent is told besides: tests that ran in steps it does not see, and, as a Verifier, that
    no tests have run."""
    verifier = turn.assigned.role == "verifier"
    parts = (tests_since(events, turn), evidence.unknown(events) if verifier else "")
    return "\n\n".join(part for part in parts if part)


TOOL_CALLING = ToolCalling()


def chosen(crew: Crew, name: str) -> Harness:
    """How the agent takes a turn. An agent without a harness of its own calls tools."""
    return crew.harnesses.get(name, TOOL_CALLING)


def describe(step: Step) -> str:
    """For the waiting line on the screen."""
    match step:
        case Evidence(call) | Run(call):
            return f"running {call.tool}"
        case Reply():
            return "waiting for the agent"
        case RollBack(reason):
            return f"rolling back: {reason}"
        case Closed():
            return "deciding"
        case _:
            assert_never(step)


if TYPE_CHECKING:
    _tool_calling: Harness = ToolCalling()
