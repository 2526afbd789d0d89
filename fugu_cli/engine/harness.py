"""Decides how an agent takes a turn: its next step, its prompt, its tools, and which tests and
checks run next.

Every decision is a function of the log, so a killed turn goes on where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fugu_cli import prompts
from fugu_cli.coordinators.conductor.step_context import tests_since, visible_part
from fugu_cli.engine import message_history, steering
from fugu_cli.engine.environment import (
    Environment,
    GatherEvidence,
    NextStep,
    RequestReply,
    RunCall,
    TurnClosed,
    due_run,
)
from fugu_cli.engine.structured_answer import correction_due, wanted_schema
from fugu_cli.messages import Call, Prompt, ToolSpec
from fugu_cli.providers import shown_media
from fugu_cli.safety import path_rules, policy
from fugu_cli.session.checks import ACCEPTANCE_CHECK
from fugu_cli.session.events import FIND_TOOLS, Member, Replied, Subtask
from fugu_cli.session.state import SessionState
from fugu_cli.session.tool_facts import ADVISE, BASH, facts_of
from fugu_cli.session.turns import TASK, Turn, call_records, open_calls
from fugu_cli.session.workflows import is_asked_to_choose_again, is_left_out
from fugu_cli.tools.toolbox import AnyTool

SAME_CALL_LIMIT = 3
"""A turn that made the same call this often without success, and changed nothing meanwhile, is
closed.
"""
MORE_ROOM = 2
"""Times that a reply cut before any text is asked for again, each time with twice the tokens."""


def next_step(state: SessionState, member: Member, environment: Environment) -> NextStep:
    """Return what the newest turn needs next: evidence, then the agent's replies and calls, then
    the tests and checks that its changes make due.
    """
    turn = state.request.turns[-1]
    if turn.failed is not None or turn.interrupted:
        return TurnClosed()
    if not turn.replies:
        opening = _opening_evidence(state, turn, environment)
        return GatherEvidence(opening) if opening is not None else RequestReply()
    if calls := open_calls(turn):
        return RunCall(calls[0])
    may_reply_again = len(turn.replies) < environment.limits.replies
    if may_reply_again and has_more_room(turn, member):
        return RequestReply()
    if not agent_is_done(turn, environment.limits.replies):
        return RequestReply()
    is_asked_again = (
        correction_due(state, turn)
        or is_asked_to_choose_again(turn, turn.replies[-1])
        or steering.opens_reply(state)
    )
    if may_reply_again and is_asked_again:
        return RequestReply()
    if (call := _due_after_last_word(state, turn, environment)) is not None:
        return GatherEvidence(call)
    if _goes_on_with_failures(state, turn, environment):
        return RequestReply()
    return TurnClosed()


def _due_after_last_word(state: SessionState, turn: Turn, environment: Environment) -> Call | None:
    """Return the run of tests or a check that is due after an agent's last word. Other roles than
    a Worker change nothing, but may have set a check.
    """
    if turn.assigned.role == "worker" or sets_check(turn):
        return due_run(state, turn, environment.tests)
    return None


def has_more_room(turn: Turn, member: Member) -> bool:
    """Return whether a reply that was cut before any text may have more tokens when it is asked for
    again. The window, a budget or the server may have limited it already.
    """
    if not 0 < turn.silent_cuts <= MORE_ROOM or member.max_tokens is not None:
        return False
    last_limit = turn.replies[-1].max_tokens
    return last_limit == 0 or last_limit >= member.reply_room << (turn.silent_cuts - 1)


def build_prompt(
    state: SessionState, member: Member, tools: Sequence[ToolSpec], instructions: str
) -> Prompt:
    """Return the prompt for the newest turn's next reply. A Verifier reads the work as data, every
    other role the session's history as messages.
    """
    turn = state.request.turns[-1]
    if turn.assigned.role == "verifier" and not state.served:
        from fugu_cli.engine.verifier_message import verifier_messages

        messages = verifier_messages(state)
    else:
        messages = message_history.history(visible_part(state), tests_since(state, turn))
    return Prompt(
        system=prompts.fill(
            prompts.load("system"), instructions=turn_instructions(turn, instructions)
        ).strip(),
        messages=shown_media.as_shown(messages, _not_shown(state, member)),
        tools=tuple(tools),
        max_tokens=member.reply_room << min(turn.silent_cuts, MORE_ROOM),
        reply_schema=wanted_schema(state.request, turn),
        role=turn.assigned.role,
        request=_request_of(state, turn),
    )


def offered_tools(state: SessionState, environment: Environment) -> tuple[ToolSpec, ...]:
    """Return the tools of the newest turn.

    Every role has the same tools, so that what comes before the messages stays in a model's cache;
    what a role may not use is refused. Plan mode, questions of fugu's own commands and subtasks are
    offered only the tools that they may use.
    """
    toolbox = environment.toolbox
    turn, request = state.request.turns[-1], state.request.asked
    task = turn.assigned.subtask
    if task is not None:
        tools = []
        for tool in toolbox:
            is_named_by_file = task.tools is not None and _is_deferred(tool)
            is_at_hand = is_named_by_file or _is_at_hand(tool, state, environment)
            if is_at_hand and not subtask_refusal(task, tool.name):
                tools.append(tool)
        return toolbox.specs(tools)
    visible = [tool for tool in toolbox if not tool.internal]
    if request is not None and request.only_reads:
        return toolbox.specs(tool for tool in visible if tool.effect == "reads" and tool.paths)
    excluded = set()
    if environment.current_rules.mode == "plan":
        excluded |= {tool.name for tool in visible if tool.effect != "reads"} - {BASH.name}
    else:
        if environment.denials is not None:
            excluded.add(ACCEPTANCE_CHECK)
        if not _has_subtasks(state, turn):
            excluded.add(TASK)
    tools = [
        tool
        for tool in visible
        if tool.name not in excluded and _is_at_hand(tool, state, environment)
    ]
    return toolbox.specs(tools)


def _is_at_hand(tool: AnyTool, state: SessionState, environment: Environment) -> bool:
    """Return whether the newest turn's agent need not find the tool first. The tool for advice is at
    hand if somebody may advise the agent.
    """
    if tool.name == ADVISE.name:
        from fugu_cli.engine.advisors import advisors_of

        agent = state.request.turns[-1].assigned.agent
        return bool(advisors_of(agent, state, environment))
    return not _is_deferred(tool) or tool.name in state.found_tools


def role_refusal(call: Call, state: SessionState, environment: Environment) -> str:
    """Return why the turn may not make this call: its tool is not offered, or not for its role."""
    offered = offered_tools(state, environment)
    if refusal := _refusal_of_unoffered(call, state, environment, offered):
        return refusal
    role = state.request.turns[-1].assigned.role
    if role == "worker" or call.tool not in environment.toolbox:
        return ""
    if _is_for_every_role(environment.toolbox[call.tool]):
        return ""
    if call.tool == BASH.name and _starts_job(call, environment):
        return (
            f"a {role.capitalize()} starts no background jobs. Run the command without `background`"
        )
    if call.tool == BASH.name and _is_left_to_policy(call, environment):
        return ""
    return ROLE_REFUSAL.format(role=role.capitalize())


def _starts_job(call: Call, environment: Environment) -> bool:
    _, arguments = environment.toolbox.parse(call)
    return getattr(arguments, "background", False) is True


def _is_left_to_policy(call: Call, environment: Environment) -> bool:
    """Return whether a role that changes nothing may run a command line if the rules allow it: the
    line only reads, or the sandbox keeps it from writing and the user need not be asked.
    """
    workspace = environment.workspace
    is_sandboxed = workspace.sandbox_holds
    judgement = policy.judge(
        call, environment.current_rules, workspace.root, sandbox_holds=is_sandboxed
    )
    return judgement.reads or (is_sandboxed and judgement.verdict != "ask")


def allowed_tools(
    turn: Turn, tools: Sequence[ToolSpec], environment: Environment
) -> tuple[str, ...]:
    """Return the names of the tools that a Thinker or a Verifier may call, () for a Worker, who may
    call all. Providers with an `allowed_tools` setting receive them.
    """
    if turn.assigned.role == "worker":
        return ()
    toolbox = environment.toolbox
    names = [tool.name for tool in tools if tool.name in toolbox]
    return tuple(name for name in names if name == BASH.name or _is_for_every_role(toolbox[name]))


ROLE_REFUSAL = (
    "a {role} changes nothing: it reads, runs the tests (run_tests), and runs commands that only "
    "read or, in the sandbox, that need no approval. Say in your last message what is to be done"
)


def subtask_refusal(task: Subtask, tool: str) -> str:
    """Return why a subtask must not use the tool; "" where it may."""
    facts = facts_of(tool)
    if facts.internal or not facts.in_subtasks:
        return f"a subtask has no tool {tool}"
    return "" if task.offers(tool) else f"the subagent {task.name} has no tool {tool}"


def _has_subtasks(state: SessionState, turn: Turn) -> bool:
    """Return whether the turn's agent may have subtasks done. In a workflow the planner has divided
    the work already.
    """
    request = state.request.asked
    return not turn.assigned.plan and (request is None or request.tier != "ultra")


def turn_instructions(turn: Turn, standing: str) -> str:
    """Return the user's standing instructions and, for a subtask, those of its subagent's file."""
    task = turn.assigned.subtask
    if task is None or not task.brief:
        return standing
    return f"{standing}\n\n{task.brief}".strip()


def _request_of(state: SessionState, turn: Turn) -> str:
    """Return what the turn is to do: a workflow's step its instruction, any other the request."""
    request = state.request.asked
    if turn.assigned.plan or request is None:
        return turn.assigned.instruction
    return state.request.whole_text


def _not_shown(state: SessionState, member: Member) -> shown_media.WhyNot:
    """Return the pictures and PDFs that the agent sees only as text, with reasons."""
    refused = state.refused_media(member.name)
    return shown_media.why_not(vision=member.vision, documents=member.documents, refused=refused)


def _refusal_of_unoffered(
    call: Call, state: SessionState, environment: Environment, offered: Sequence[ToolSpec]
) -> str:
    """Return why a call of an existing tool that was not offered is not made; "" for other calls."""
    names = [spec.name for spec in offered]
    if call.tool in names or call.tool not in environment.toolbox:
        return ""
    request = state.request.asked
    if request is not None and request.only_reads:
        return (
            f"this question is answered by reading files ({', '.join(names)}) and the data that it "
            f"holds"
        )
    if environment.current_rules.mode == "plan":
        return f"plan mode only reads and has no tool {call.tool}. {policy.PLAN_WAY_OUT}"
    role = state.request.turns[-1].assigned.role
    if role == "worker" and _is_deferred(environment.toolbox[call.tool]):
        return (
            f"{call.tool} was not found yet: call {FIND_TOOLS} first, which shows how it is called"
        )
    return f"a {role.capitalize()} has no tool {call.tool}. {policy.GO_ON_WITHOUT}"


def _is_deferred(tool: AnyTool) -> bool:
    """Return whether the tool is offered only after an agent has found it."""
    return tool.foreign is not None and tool.foreign.deferred


def _is_for_every_role(tool: AnyTool) -> bool:
    """Return whether Thinkers and Verifiers may use the tool whatever they call it with."""
    if tool.internal:
        return False
    return tool.roles == "all" or (tool.roles == "" and tool.effect == "reads")


def _opening_evidence(state: SessionState, turn: Turn, environment: Environment) -> Call | None:
    """Return the call that gathers the next piece of evidence a turn opens with, None after the
    last one. A Verifier sees the tests and the diff; an agent that continues the changes of others
    sees the diff.
    """
    if turn.assigned.subtask is not None:
        return None
    if turn.assigned.role == "verifier":
        call = due_run(state, turn, environment.tests, verifying=True)
        return call if call is not None else diff_due(state, turn)
    if turn.assigned.plan:
        continues_changes = _takes_over_changes(state, turn)
    else:
        others = _turns_since_own(state, turn)
        continues_changes = any(earlier.changes for earlier in others)
    return diff_due(state, turn) if continues_changes else None


def _takes_over_changes(state: SessionState, turn: Turn) -> bool:
    """Return whether an earlier try of the same step of a plan failed and left changes behind, or
    agents among whom the step was divided did.
    """
    if turn.assigned.in_copy:
        return False
    plan, step = turn.assigned.plan, turn.assigned.step
    for earlier in state.request.turns:
        if earlier.number >= turn.number:
            continue
        is_kept = earlier.changes and not is_left_out(earlier, state.request.merges)
        if is_kept and state.request.is_of_step(earlier, plan, step):
            return True
    return False


def _turns_since_own(state: SessionState, turn: Turn) -> list[Turn]:
    """Return the turns after the newest one that the agent reads word for word: its own newest turn
    that was not a Verifier's.
    """
    others: list[Turn] = []
    for earlier in state.request.turns[:-1]:
        is_own = earlier.assigned.agent == turn.assigned.agent
        if is_own and earlier.assigned.role != "verifier":
            others = []
        else:
            others.append(earlier)
    return others


def diff_due(state: SessionState, turn: Turn) -> Call | None:
    """Return the call that shows the turn the request's diff. None if the turn has been shown it,
    or if there is no snapshot of the request's start.
    """
    snapshot = state.request.start_snapshot
    for run in turn.runs:
        if run.evidence and run.result is not None and run.permitted.call.tool == "diff":
            return None
    if not snapshot:
        return None
    arguments: dict[str, object] = {"since": snapshot}
    unsnapshotted = [
        (change.path, change.before, change.after)
        for change in state.request.unsnapshotted_changes.values()
    ]
    if unsnapshotted:
        arguments["beside"] = unsnapshotted
    return Call.make(
        f"e{turn.number}-{len(turn.rolled_back)}-{len(turn.runs)}", "diff", **arguments
    )


def _goes_on_with_failures(state: SessionState, turn: Turn, environment: Environment) -> bool:
    """Return whether a Worker that has said its last word is shown failing tests or checks: those
    that speak against the work, or whose report names a file that it changed. A turn is shown them
    only once, and the same results are shown to one Worker only.
    """
    if turn.assigned.role != "worker" or turn.assigned.plan or turn.assigned.subtask is not None:
        return False
    if environment.rules.mode == "plan":
        return False
    if not turn.concluded or turn.unable is not None:
        return False
    if len(turn.replies) >= environment.limits.replies:
        return False
    if _was_shown(state, turn) or _newest_results_were_shown(state):
        return False
    if state.request.acceptance_blocker:
        return True
    tests = state.request.tests
    if tests is None or tests.stale or not tests.fails:
        return False
    report = [tests.output, *(tests.report.failing if tests.report is not None else ())]
    return any(_names_file(text, change.path) for change in turn.changes for text in report)


def _was_shown(state: SessionState, turn: Turn) -> bool:
    return message_history.was_shown_failures(turn, wanted_schema(state.request, turn))


def _newest_results_were_shown(state: SessionState) -> bool:
    """Return whether a Worker of this request that had said its last word has been shown the
    newest results of tests and checks.
    """
    for turn in reversed(state.request.turns):
        runs = [run for run in turn.runs if message_history.is_test_run(run)]
        replied_at = [
            index for index, event in enumerate(turn.events) if isinstance(event, Replied)
        ]
        after_reply = call_records(turn.events[replied_at[-1] :]) if replied_at else ()
        if any(run in after_reply for run in runs):
            return False
        if _was_shown(state, turn):
            return True
        if any(run.evidence or turn.changes for run in runs):
            return False
    return False


def _names_file(text: str, path: str) -> bool:
    """Return whether a report names this file and not one whose name only ends or begins like it."""
    return re.search(rf"(?<![\w.-]){re.escape(path)}(?!\w)", text) is not None


def sets_check(turn: Turn) -> bool:
    """Return whether the turn set an acceptance check, which may have to run on the changed files
    at once.
    """
    return any(
        run.permitted.call.tool == ACCEPTANCE_CHECK and run.result is not None for run in turn.runs
    )


def agent_is_done(turn: Turn, replies: int) -> bool:
    """Return whether the agent's part is over: its newest reply makes no call, it has used its
    `replies`, or it repeats a call that fails.
    """
    newest = turn.replies[-1]
    if not newest.calls or len(turn.replies) >= replies:
        return True
    last_call = newest.calls[-1]
    failures = 0
    for run in turn.runs:
        call = run.permitted.call
        if run.result is not None and run.result.changes:
            failures = 0  # the call may succeed after a change
        elif run.result is not None and run.result.ok:
            continue
        elif (call.tool, call.arguments) == (last_call.tool, last_call.arguments):
            failures += 1
    return failures >= SAME_CALL_LIMIT


def conversation(state: SessionState, member: Member, environment: Environment) -> Prompt:
    """Return the prompt with the conversation so far, from the agent's view."""
    visible = path_rules.visible_events(state.events, member.name, environment.denials)
    offered = offered_tools(state, environment) if member.protocol == "native" else ()
    return build_prompt(SessionState(visible), member, offered, environment.instructions)
