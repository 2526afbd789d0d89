"""One call of a tool: policy, approval, execution, result. Also the environment in which agents
work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel

from fugu_cli.engine import content_key, secret_restoration
from fugu_cli.engine.attribution import mark_unclaimed
from fugu_cli.engine.environment import Environment, Refusal
from fugu_cli.engine.secret_restoration import RestoredCall
from fugu_cli.extensions import hook_protocol
from fugu_cli.extensions.hook_runner import HookVerdict
from fugu_cli.messages import Call
from fugu_cli.safety import policy
from fugu_cli.safety.prompt_injection import mark_injection
from fugu_cli.session.call_arguments import MalformedArguments, arguments_of, named_paths
from fugu_cli.session.checks import ACCEPTANCE_CHECK
from fugu_cli.session.events import (
    EVIDENCE,
    HOOK,
    ROLE,
    SAID_NO,
    Event,
    Finished,
    Permitted,
    Replied,
    TestReport,
    ToolRan,
)
from fugu_cli.session.live_events import OutputStreamed
from fugu_cli.session.log import Log, heartbeat
from fugu_cli.session.outcome import RUN_TESTS, TESTS_BEFORE
from fugu_cli.session.state import SessionState
from fugu_cli.session.tool_facts import BASH
from fugu_cli.system import temp_dirs
from fugu_cli.tools import worktrees
from fugu_cli.tools.acceptance_check import AcceptanceCheckArguments
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.toolbox import AnyTool
from fugu_cli.tools.workspace import Workspace

NO_SNAPSHOT = (
    "It was not run and does not count: something was changed already, and outside a git "
    "repository the files as they"
    " were before cannot be laid out."
)


def on_original_files(tool: AnyTool, state: SessionState) -> AnyTool:
    """Return the tool; one that sets a check runs on the original files if something was changed
    already.
    """
    if tool.name != ACCEPTANCE_CHECK or not state.request.changes:
        return tool
    tree = state.request.start_snapshot

    async def run(
        arguments: AcceptanceCheckArguments, workspace: Workspace, say: Say
    ) -> ToolResult:
        if not tree or not workspace.in_git:
            return ToolResult(text=NO_SNAPSHOT, ok=False)
        with temp_dirs.temp_dir("before") as folder:
            before = await worktrees.make_worktree(workspace, tree, folder / "copy")
            return await tool.run(arguments, before, say)

    return replace(tool, run=run)


"""Runs of fugu's that the user may end."""
CUT_OFF = (
    "{tool} was not run: your reply reached its limit of tokens in the middle of this call, so "
    "its arguments are not "
    "whole. Nothing was changed. Say less at once: a long file in parts, the first with write, "
    "the others with edit."
)
NOTHING_TO_ASK = "it cannot be carried out as things are, so nobody was asked"


async def run_call(
    log: Log,
    environment: Environment,
    number: int,
    recorded: Call,
    barred: Callable[[Call], str] = lambda _: "",
    *,
    only_reads: bool = False,
) -> None:
    """Judge the agent's call, ask about it if necessary, record the permission and run it.
    `recorded` is the call as the log holds it. `barred` says why the turn must not make it.
    `only_reads`: the turn changes nothing, so its commands cannot write the repository.
    """
    try:
        call = secret_restoration.restore_secrets(
            log,
            environment.toolbox,
            environment.workspace,
            recorded,
            alone=_alone(log, environment, number),
        )
        reason = barred(call)
    except secret_restoration.UnrestorableMark as error:
        call, reason = recorded, str(error)
    if reason:
        log.append(Permitted(turn=number, call=recorded, allowed=False, by=ROLE, reason=reason))
        return
    judgement, hooked = _judged(environment, call), HookVerdict(call)
    if judgement.verdict != "deny" and environment.hooks is not None:
        hooked = await _hooked(environment, call)
        judgement = _judged(environment, hooked.call)
    made = RestoredCall(recorded if hooked.call == call else hooked.call, hooked.call)
    if (
        "ask" in (judgement.verdict, hooked.decision)
        and judgement.verdict != "deny"
        and hooked.decision != "deny"
    ):
        fault = _cannot_run(log, environment, number, made.call)
        if fault is not None:
            log.append(
                Permitted(
                    turn=number,
                    call=made.recorded,
                    allowed=True,
                    by="policy",
                    reason=NOTHING_TO_ASK,
                )
            )
            preface = _told(call, made.call, hooked.context)
            log.append(
                ToolRan(
                    turn=number,
                    call=made.recorded,
                    output=preface + mark_injection(fault.text),
                    ok=False,
                )
            )
            return
    permit = await _permission(
        log, environment, made, hooked, _with_subtask(log, number, judgement)
    )
    reads = judgement.reads or (only_reads and made.call.tool == BASH.name)
    snapshot = None
    if permit.allowed:
        snapshot = await _before(environment, made.call, reads=reads)
    log.append(permit.model_copy(update={"turn": number, "snapshot": snapshot}))
    if permit.allowed:
        preface = _told(call, made.call, hooked.context)
        await _finish_tool(log, environment, made.call, preface, judgement, reads=reads)
    if environment.hooks is not None and (stop := environment.hooks.runner.stopped()) is not None:
        log.append(Finished(reason="denied", message=f"a hook ended the work: {stop}"))


def _with_subtask(log: Log, number: int, judgement: policy.Judgement) -> policy.Judgement:
    """Return the judgement with the title of the subtask that asks, if the turn is one."""
    turn = log.state.request.turn(number)
    subtask = turn.assigned.subtask if turn is not None else None
    return judgement if subtask is None else judgement.model_copy(update={"subtask": subtask.title})


def _told(made: Call, run: Call, context: str) -> str:
    """Return the lines above the result for the agent: a hook changed its call, or adds something."""
    change = f"[A hook changed the arguments: {run.arguments}]\n" if run != made else ""
    return change + (f"[A hook says: {context}]\n" if context else "")


def _alone(log: Log, environment: Environment, number: int) -> bool:
    """Return whether some files are kept from the turn's agent."""
    turn = log.state.request.turn(number) if environment.denials is not None else None
    return (
        turn is not None
        and environment.denials is not None
        and bool(environment.denials.of(turn.assigned.agent))
    )


def asks_about(
    log: Log, environment: Environment, number: int, call: Call
) -> policy.Judgement | None:
    """Return the judgement that the user will be asked about for this call of a reply, None if none
    is expected. Hooks are not asked.
    """
    judgement = _judged(environment, call)
    if judgement.verdict != "ask" or _cannot_run(log, environment, number, call) is not None:
        return None
    return None if _granted(log, environment, call, judgement) else judgement


def _cannot_run(log: Log, environment: Environment, number: int, call: Call) -> ToolResult | None:
    """Return the error that the call would give, if it is known before it runs: a file was not
    read, a text does not exist.

    Only for files that the agent may read without a question.
    """
    tool, arguments = environment.toolbox.parse(call)
    fields = arguments_of(call)
    if (
        tool is None
        or tool.plan is None
        or isinstance(arguments, ToolResult)
        or isinstance(fields, MalformedArguments)
    ):
        return None
    names = named_paths(tool, fields)
    if _alone(log, environment, number) or not all(may_read(environment, name) for name in names):
        return None
    try:
        planned = tool.plan(arguments, environment.workspace)
    except Exception:  # noqa: BLE001 - the run meets the same error, and records it
        return None
    return planned if isinstance(planned, ToolResult) else None


def _judged(environment: Environment, call: Call) -> policy.Judgement:
    if call.tool not in environment.toolbox:
        return policy.Judgement(verdict="allow", reason="there is no such tool: nothing will run")
    if isinstance(environment.toolbox.parse(call)[1], ToolResult):
        return policy.Judgement(
            verdict="allow", reason="its arguments do not fit the tool: nothing will run"
        )
    return policy.judge(
        call,
        environment.current_rules,
        environment.workspace.root,
        sandbox_holds=environment.workspace.sandbox_holds,
    )


async def _hooked(environment: Environment, call: Call) -> HookVerdict:
    """Return the hooks' decision about the call. None is asked about a call that cannot run anyway."""
    if environment.hooks is None or isinstance(environment.toolbox.parse(call)[1], ToolResult):
        return HookVerdict(call)
    return await environment.hooks.judge("PreToolUse", call, environment.workspace)


async def _permission(
    log: Log,
    environment: Environment,
    made: RestoredCall,
    hooked: HookVerdict,
    judgement: policy.Judgement,
) -> Permitted:
    """Return whether the call may run.

    A hook may forbid it, ask about it, or answer for the user. No hook allows what a rule denies or
    asks about, or what needs a yes every time.
    """
    call = made.call

    def say(allowed: bool, by: str, reason: str = judgement.reason) -> Permitted:
        return Permitted(turn=0, call=made.recorded, allowed=allowed, by=by, reason=reason)

    if judgement.verdict == "deny":
        refused = say(False, "policy", judgement.refusal)
        return refused.model_copy(update={"plan_mode": judgement.plan_mode})
    if hooked.decision == "deny":
        return say(False, HOOK, f"a hook forbids it: {hooked.reason}")
    if hooked.decision == "ask":
        reason = f"a hook asks: {hooked.reason}" if hooked.reason else "a hook asks"
        judgement = judgement.model_copy(
            update={"verdict": "ask", "reason": reason, "every_time": True}
        )
    if judgement.verdict == "allow":
        return say(True, "policy")
    yields_to_hooks = not environment.rules.only_managed_allow
    yielding = (
        yields_to_hooks
        and not judgement.every_time
        and not hook_protocol.matches_any_rule(
            call, environment.rules.ask, environment.workspace.root
        )
    )
    if hooked.decision == "allow" and yielding:
        return say(True, HOOK, "a hook allows it")
    if _granted(log, environment, call, judgement):
        return say(True, "session")
    if environment.hooks is not None:
        answer = await environment.hooks.judge("PermissionRequest", call, environment.workspace)
        if answer.decision == "deny":
            return say(False, HOOK, f"a hook forbids it: {answer.reason}")
        if answer.decision == "allow" and yielding and answer.call == call:
            return say(True, HOOK, "a hook allows it")
    return await _asked(log, environment, made, judgement)


_ANSWERS = {
    "once": (True, "user"),
    "session": (True, "session"),
    "no": (False, "user"),
    "headless": (False, "headless"),
}


async def _asked(
    log: Log, environment: Environment, made: RestoredCall, judgement: policy.Judgement
) -> Permitted:
    """Return the user's answer. Hooks are told while somebody has to wait for it."""
    from fugu_cli.safety.offered_rules import offered_rule

    rule = offered_rule(made.call, judgement, environment.current_rules, environment.workspace.root)
    judgement, began = judgement.model_copy(update={"rule": rule}), time.monotonic()
    asking = asyncio.ensure_future(
        environment.ask(
            made.recorded, log.mask.masked(judgement) if log.mask is not None else judgement
        )
    )
    try:
        await asyncio.sleep(0)
        if environment.hooks is not None and not asking.done():
            environment.hooks.notify(made.call, environment.workspace)
        answer = await asking
    finally:
        asking.cancel()
    waited = round(time.monotonic() - began, 3)
    permit = Permitted(
        turn=0, call=made.recorded, allowed=False, by="user", reason=judgement.reason, waited=waited
    )
    if isinstance(answer, Refusal):
        return permit.model_copy(update={"reason": f"{SAID_NO}: {answer.feedback}"})
    allowed, by = _ANSWERS[answer]
    return permit.model_copy(
        update={
            "allowed": allowed,
            "by": by,
            "rule": rule if by == "session" else "",
            "reason": judgement.refusal if by == "headless" else judgement.reason,
        }
    )


def _granted(log: Log, environment: Environment, call: Call, judgement: policy.Judgement) -> bool:
    """Return whether the user said yes for the whole session to a rule that allows the call, or to
    this very target.
    """
    from fugu_cli.safety.offered_rules import is_allowed_by

    if not judgement.target or judgement.every_time:
        return False
    target, holds_on = judgement.target, {"session"}
    if judgement.once_a_session:
        holds_on.add("user")
    permitted = (event for event in log.events if isinstance(event, Permitted) and event.allowed)
    allowed = [event for event in permitted if event.by in holds_on]
    rules = dict.fromkeys(event.rule for event in allowed if event.rule)
    if any(
        is_allowed_by(call, rule, environment.current_rules, environment.workspace.root)
        for rule in rules
    ):
        return True
    return any(_target(log, environment, event.call) == target for event in allowed)


def _target(log: Log, environment: Environment, recorded: Call) -> str:
    """Return the target of a recorded call, "" if it is no longer known."""
    try:
        call = secret_restoration.restore_secrets(
            log, environment.toolbox, environment.workspace, recorded
        )
    except secret_restoration.UnrestorableMark:
        return ""
    return policy.judge(call, environment.current_rules, environment.workspace.root).target


def may_read(environment: Environment, path: str) -> bool:
    """fugu reads for an agent only what the agent might read without a question: no secrets,
    nothing outside.
    """
    return (
        policy.judge(
            Call.make("", "read", path=path), environment.current_rules, environment.workspace.root
        ).verdict
        == "allow"
    )


async def run_evidence(log: Log, environment: Environment, number: int, recorded: Call) -> None:
    """Run a call of fugu's own as evidence. It may run an agent's call, taken from the log."""
    try:
        call = secret_restoration.restore_secrets(
            log, environment.toolbox, environment.workspace, recorded
        )
    except secret_restoration.UnrestorableMark as error:
        log.append(Permitted(turn=number, call=recorded, allowed=True, by=EVIDENCE))
        log.append(ToolRan(turn=number, call=recorded, output=f"It was not run: {error}", ok=False))
        return
    if refusal := await _refusal_of_tests(log, environment, call):
        log.append(Permitted(turn=number, call=recorded, allowed=True, by=EVIDENCE))
        reason = f"the tests were not run: {refusal}"
        log.append(
            ToolRan(
                turn=number,
                call=recorded,
                output=reason[0].upper() + reason[1:],
                ok=False,
                skipped=True,
                tests=TestReport(unable=reason),
            )
        )
        return
    snapshot = await _before(environment, call, by_fugu=True)
    log.append(Permitted(turn=number, call=recorded, allowed=True, by=EVIDENCE, snapshot=snapshot))
    await _finish_tool(log, environment, call, "")


async def _refusal_of_tests(log: Log, environment: Environment, call: Call) -> str:
    """Return why fugu must not run the tests by itself, "" if it may: because a rule or the user
    allows it, the folder is trusted, or the user wants the request to end when the tests pass.
    """
    if call.tool not in {RUN_TESTS, TESTS_BEFORE} or log.state.request.suite_decides:
        return ""
    run = Call(id=call.id, tool=RUN_TESTS)
    judgement = _judged(environment, run)
    if judgement.verdict == "allow" or _granted(log, environment, run, judgement):
        return ""
    if judgement.forbidden or judgement.plan_mode:
        return judgement.refusal
    if environment.rules.trusted or environment.test_canceller.allowed_by_user:
        return ""
    if judgement.verdict == "deny":
        return f"{judgement.refusal}, and so does `fugu trust` in this folder"
    permit = await _asked(log, environment, RestoredCall(run, run), judgement)
    environment.test_canceller.allowed_by_user = permit.allowed
    if permit.allowed:
        return ""
    trusts = ", and so does `fugu trust` in this folder" if permit.by == "headless" else ""
    return f"{permit.reason}{trusts}"


def _with_hooks(environment: Environment, tool: AnyTool, call: Call, *, by_fugu: bool) -> AnyTool:
    """Return the tool with the user's hooks around it."""
    return (
        environment.hooks.around(tool, call)
        if environment.hooks is not None and not by_fugu
        else tool
    )


def _that_reads(tool: AnyTool) -> AnyTool:
    """Return the tool for a command that only reads: it cannot write the repository, and its
    changes are not its own.
    """

    async def run(arguments: BaseModel, workspace: Workspace, say: Say) -> ToolResult:
        return await tool.run(arguments, workspace.read_only(), say)

    return replace(tool, run=run, effect="reads")


async def _before(
    environment: Environment, call: Call, *, by_fugu: bool = False, reads: bool = False
) -> str | None:
    """Take a snapshot before a call that may change something. `reads` as in `_finish_tool`."""
    tool, arguments = environment.toolbox.parse(call)
    if tool is None or isinstance(arguments, ToolResult):
        return None
    tool = _that_reads(tool) if reads else tool
    if _with_hooks(environment, tool, call, by_fugu=by_fugu).effect == "reads":
        return None
    return await environment.workspace.history.snapshot()


async def _finish_tool(
    log: Log,
    environment: Environment,
    call: Call,
    preface: str,
    judgement: policy.Judgement | None = None,
    *,
    reads: bool = False,
) -> None:
    """Run the call that the newest event permits, and record its result, with `preface` above it.
    `judgement`: policy's about an agent's call. `reads`: the command or the turn only reads. It
    then cannot write the repository, and no change is attributed to it.
    """
    permitted = log.events[-1]
    assert isinstance(permitted, Permitted)
    recorded, number, by_fugu = permitted.call, permitted.turn, permitted.by == EVIDENCE
    tool, arguments = environment.toolbox.parse(call)
    started = time.monotonic()
    if tool is None or isinstance(arguments, ToolResult):
        assert isinstance(arguments, ToolResult)
        text = CUT_OFF.format(tool=call.tool) if _cut(log.events, recorded) else arguments.text
        log.append(ToolRan(turn=number, call=recorded, output=preface + text, ok=False))
        return
    tool = on_original_files(_that_reads(tool) if reads else tool, log.state)
    ran = _with_hooks(environment, tool, call, by_fugu=by_fugu)
    ran = environment.test_canceller.around(ran) if by_fugu and tool.skippable else ran
    state = (
        await content_key.content_key(environment.workspace, call)
        if environment.remembers and ran is tool
        else ""
    )
    judged_paths = frozenset(judgement.paths) if judgement is not None else None
    workspace = environment.workspace.for_call(_window(log.state, number), judged_paths)
    async with heartbeat(log):
        result, made, written = await workspace.observe(
            ran,
            arguments,
            lambda text: log.tell(OutputStreamed(turn=number, call=call.id, text=text)),
            permitted.snapshot,
        )
    if ran.effect == "runs":
        made = mark_unclaimed(made, [call], environment.workspace.root, written)
    if not by_fugu:
        preface = _instructions(log.state, environment, number, call) + preface
        preface += environment.hooks.said(call) if environment.hooks is not None else ""
    if state and (
        made.changes
        or not result.ok
        or state != await content_key.content_key(environment.workspace, call)
    ):
        state = ""  # somebody wrote meanwhile: nobody can tell which content it saw
    text = result.text
    if not by_fugu:
        text = truncate(text, workspace.output_limit(len(text)))
    log.append(
        ToolRan(
            turn=number,
            call=recorded,
            output=preface + (text if by_fugu or tool.instructs else mark_injection(text)),
            ok=result.ok,
            seconds=round(time.monotonic() - started, 3),
            changes=made.changes,
            attributes=made.attributes,
            state=state,
            job=result.job,
            tests=result.tests,
            skipped=result.skipped,
            media=result.media,
            found=result.found,
            paid=result.paid,
            traceback=result.traceback,
            restored=result.restored,
            omitted_lines=result.omitted_lines,
        )
    )


def _window(state: SessionState, number: int) -> int | None:
    """Return how many tokens the agent of a turn reads; None where no agent's turn it is."""
    turn = state.request.turn(number)
    member = state.pool.get(turn.assigned.agent) if turn is not None else None
    return member.context if member is not None else None


def _cut(events: Sequence[Event], call: Call) -> bool:
    """Return whether the reply that made the call reached its limit, and its last call may be only
    begun.
    """
    replies = (event for event in reversed(events) if isinstance(event, Replied))
    made = next(
        (reply for reply in replies if any(call_made.id == call.id for call_made in reply.calls)),
        None,
    )
    return made is not None and made.stop == "length" and made.calls[-1].id == call.id


def _instructions(state: SessionState, environment: Environment, number: int, call: Call) -> str:
    """Return the standing instructions of the folder in which the call works, unless its agent has
    been shown them already.
    """
    root = environment.workspace.root
    named = [
        part.input.get("file_path") or part.input.get("path")
        for part in hook_protocol.describe_call(call, root)
    ]
    paths = [
        Path(name) for name in named if isinstance(name, str) and Path(name).is_relative_to(root)
    ]
    nearer = environment.nearer or (lambda _: {})
    instructions = {
        head: text for path in paths for head, text in nearer(path.relative_to(root)).items()
    }
    if not instructions:
        return ""
    turn = state.request.turn(number)
    is_isolated = turn is not None and (turn.assigned.plan or turn.assigned.subtask)
    if turn is not None and is_isolated:
        events: Iterable[Event] = turn.events
    else:
        events = (event for request in state.shown_requests for event in request.events)
    shown = [event.output for event in events if isinstance(event, ToolRan)]
    return "".join(
        f"{head}\n{text}\n\n"
        for head, text in instructions.items()
        if not any(head in output for output in shown)
    )
