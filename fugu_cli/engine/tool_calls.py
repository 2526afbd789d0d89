"""Carries out one call of a tool: hooks and policy judge it, the user is perhaps asked, it runs,
and its result is recorded. turn.py calls `run_call` for agents and `run_evidence` for fugu itself.
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
    "repository the files as they were before cannot be laid out."
)


def on_original_files(tool: AnyTool, state: SessionState) -> AnyTool:
    """Return the tool. If it sets an acceptance check and the request has changed files already, it
    runs in a copy with the original files.
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


CUT_OFF = (
    "{tool} was not run: your reply reached its limit of tokens in the middle of this call, so "
    "its arguments are not whole. Nothing was changed. Say less at once: a long file in parts, the "
    "first with write, the others with edit."
)
NOTHING_TO_ASK = "it cannot be carried out as things are, so nobody was asked"


async def run_call(
    log: Log,
    environment: Environment,
    number: int,
    recorded: Call,
    refusal_of: Callable[[Call], str] = lambda _: "",
    *,
    only_reads: bool = False,
) -> None:
    """Judge the agent's call, ask about it if necessary, record the permission and run it.

    `recorded` is the call as the log holds it, with secrets masked. `refusal_of` returns why the
    turn must not make a call, "" if it may. `only_reads`: the turn changes nothing, so its commands
    cannot write the repository.
    """
    try:
        call = secret_restoration.restore_secrets(
            log,
            environment.toolbox,
            environment.workspace,
            recorded,
            alone=_has_withheld_files(log, environment, number),
        )
        reason = refusal_of(call)
    except secret_restoration.UnrestorableMark as error:
        call, reason = recorded, str(error)
    if reason:
        log.append(Permitted(turn=number, call=recorded, allowed=False, by=ROLE, reason=reason))
        return
    judgement, hook = _judge(environment, call), HookVerdict(call)
    if judgement.verdict != "deny" and environment.hooks is not None:
        hook = await _hook_verdict(environment, call)
        judgement = _judge(environment, hook.call)
    made = RestoredCall(recorded if hook.call == call else hook.call, hook.call)
    preface = ""
    if made.call != call:
        preface += f"[A hook changed the arguments: {made.call.arguments}]\n"
    if hook.context:
        preface += f"[A hook says: {hook.context}]\n"
    verdicts = {judgement.verdict, hook.decision}
    if "ask" in verdicts and "deny" not in verdicts:
        fault = _error_before_run(log, environment, number, made.call)
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
            output = preface + mark_injection(fault.text)
            log.append(ToolRan(turn=number, call=made.recorded, output=output, ok=False))
            return
    turn = log.state.request.turn(number)
    if turn is not None and turn.assigned.subtask is not None:
        title = turn.assigned.subtask.title
        judgement = judgement.model_copy(update={"subtask": title})
    permit = await _permission(log, environment, made, hook, judgement)
    reads = judgement.reads or (only_reads and made.call.tool == BASH.name)
    snapshot = None
    if permit.allowed:
        snapshot = await _snapshot_before(environment, made.call, reads=reads)
    log.append(permit.model_copy(update={"turn": number, "snapshot": snapshot}))
    if permit.allowed:
        await _run_permitted(log, environment, made.call, preface, judgement, reads=reads)
    if environment.hooks is not None and (stop := environment.hooks.runner.stopped()) is not None:
        log.append(Finished(reason="denied", message=f"a hook ended the work: {stop}"))


def _has_withheld_files(log: Log, environment: Environment, number: int) -> bool:
    """Return whether some files are withheld from the turn's agent."""
    turn = log.state.request.turn(number)
    if turn is None or environment.denials is None:
        return False
    return bool(environment.denials.of(turn.assigned.agent))


def asks_about(
    log: Log, environment: Environment, number: int, call: Call
) -> policy.Judgement | None:
    """Return the judgement that the user will be asked about before this call, None if no question
    is expected. Hooks are not run for it.
    """
    judgement = _judge(environment, call)
    if judgement.verdict != "ask":
        return None
    if _error_before_run(log, environment, number, call) is not None:
        return None
    return None if _was_granted(log, environment, call, judgement) else judgement


def _error_before_run(
    log: Log, environment: Environment, number: int, call: Call
) -> ToolResult | None:
    """Return the error that the call would give, if it is known before it runs: a file was not
    read, or a text to replace does not exist.

    Looks only into files that the agent may read without a question.
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
    if _has_withheld_files(log, environment, number):
        return None
    if not all(may_read(environment, name) for name in names):
        return None
    try:
        planned = tool.plan(arguments, environment.workspace)
    except Exception:  # noqa: BLE001 - the run meets the same error, and records it
        return None
    return planned if isinstance(planned, ToolResult) else None


def _judge(environment: Environment, call: Call) -> policy.Judgement:
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


async def _hook_verdict(environment: Environment, call: Call) -> HookVerdict:
    """Return the hooks' decision about the call. No hook runs for a call with wrong arguments."""
    if environment.hooks is None or isinstance(environment.toolbox.parse(call)[1], ToolResult):
        return HookVerdict(call)
    return await environment.hooks.judge("PreToolUse", call, environment.workspace)


async def _permission(
    log: Log,
    environment: Environment,
    made: RestoredCall,
    hook: HookVerdict,
    judgement: policy.Judgement,
) -> Permitted:
    """Return whether the call may run, after asking the user if necessary.

    A hook may deny the call, ask about it, or answer for the user. It cannot allow a call that a
    rule denies or asks about, or one that the user must allow every time.
    """
    call = made.call

    def permit(allowed: bool, by: str, reason: str = judgement.reason) -> Permitted:
        return Permitted(turn=0, call=made.recorded, allowed=allowed, by=by, reason=reason)

    if judgement.verdict == "deny":
        refused = permit(False, "policy", judgement.refusal)
        return refused.model_copy(update={"plan_mode": judgement.plan_mode})
    if hook.decision == "deny":
        return permit(False, HOOK, f"a hook forbids it: {hook.reason}")
    if hook.decision == "ask":
        reason = f"a hook asks: {hook.reason}" if hook.reason else "a hook asks"
        judgement = judgement.model_copy(
            update={"verdict": "ask", "reason": reason, "every_time": True}
        )
    if judgement.verdict == "allow":
        return permit(True, "policy")
    rules, root = environment.rules, environment.workspace.root
    hooks_may_allow = (
        not rules.only_managed_allow
        and not judgement.every_time
        and not hook_protocol.matches_any_rule(call, rules.ask, root)
    )
    if hook.decision == "allow" and hooks_may_allow:
        return permit(True, HOOK, "a hook allows it")
    if _was_granted(log, environment, call, judgement):
        return permit(True, "session")
    if environment.hooks is not None:
        answer = await environment.hooks.judge("PermissionRequest", call, environment.workspace)
        if answer.decision == "deny":
            return permit(False, HOOK, f"a hook forbids it: {answer.reason}")
        if answer.decision == "allow" and hooks_may_allow and answer.call == call:
            return permit(True, HOOK, "a hook allows it")
    return await _ask_user(log, environment, made, judgement)


_ANSWERS = {
    "once": (True, "user"),
    "session": (True, "session"),
    "no": (False, "user"),
    "headless": (False, "headless"),
}


async def _ask_user(
    log: Log, environment: Environment, made: RestoredCall, judgement: policy.Judgement
) -> Permitted:
    """Ask the user about the call and return the answer. Notification hooks run unless the answer
    is there at once.
    """
    from fugu_cli.safety.offered_rules import offered_rule

    rule = offered_rule(made.call, judgement, environment.current_rules, environment.workspace.root)
    judgement = judgement.model_copy(update={"rule": rule})
    shown = log.mask.masked(judgement) if log.mask is not None else judgement
    began = time.monotonic()
    asking = asyncio.ensure_future(environment.ask(made.recorded, shown))
    try:
        await asyncio.sleep(0)  # lets the question end at once where nobody can be asked
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


def _was_granted(
    log: Log, environment: Environment, call: Call, judgement: policy.Judgement
) -> bool:
    """Return whether the user has allowed the call earlier in the session: by a rule that covers
    it, or by a yes to a call with the same target.
    """
    from fugu_cli.safety.offered_rules import is_allowed_by

    if not judgement.target or judgement.every_time:
        return False
    lasting = {"session", "user"} if judgement.once_a_session else {"session"}
    grants = [
        event
        for event in log.events
        if isinstance(event, Permitted) and event.allowed and event.by in lasting
    ]
    for rule in {event.rule for event in grants if event.rule}:
        if is_allowed_by(call, rule, environment.current_rules, environment.workspace.root):
            return True
    return any(_target(log, environment, event.call) == judgement.target for event in grants)


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
    """Return whether an agent may read the file without a question, and so fugu for the agent."""
    call = Call.make("", "read", path=path)
    root = environment.workspace.root
    return policy.judge(call, environment.current_rules, root).verdict == "allow"


async def run_evidence(log: Log, environment: Environment, number: int, recorded: Call) -> None:
    """Run a call of fugu's own as evidence. Its command may be an agent's, such as a check."""
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
        log.append(
            ToolRan(
                turn=number,
                call=recorded,
                output=f"The tests were not run: {refusal}",
                ok=False,
                skipped=True,
                tests=TestReport(unable=f"the tests were not run: {refusal}"),
            )
        )
        return
    snapshot = await _snapshot_before(environment, call, by_fugu=True)
    log.append(Permitted(turn=number, call=recorded, allowed=True, by=EVIDENCE, snapshot=snapshot))
    await _run_permitted(log, environment, call, "")


async def _refusal_of_tests(log: Log, environment: Environment, call: Call) -> str:
    """Return why fugu must not run the tests by itself, "" if it may or the call runs no tests.

    fugu may if a rule or the user allows it, if the folder is trusted, or if the user wants the
    request to end when the tests pass.
    """
    if call.tool not in {RUN_TESTS, TESTS_BEFORE} or log.state.request.suite_decides:
        return ""
    run = Call(id=call.id, tool=RUN_TESTS)
    judgement = _judge(environment, run)
    if judgement.verdict == "allow" or _was_granted(log, environment, run, judgement):
        return ""
    if judgement.forbidden or judgement.plan_mode:
        return judgement.refusal
    if environment.rules.trusted or environment.test_canceller.allowed_by_user:
        return ""
    if judgement.verdict == "deny":
        return f"{judgement.refusal}, and so does `fugu trust` in this folder"
    permit = await _ask_user(log, environment, RestoredCall(run, run), judgement)
    environment.test_canceller.allowed_by_user = permit.allowed
    if permit.allowed:
        return ""
    if permit.by == "headless":
        return f"{permit.reason}, and so does `fugu trust` in this folder"
    return permit.reason


def _with_hooks(environment: Environment, tool: AnyTool, call: Call, *, by_fugu: bool) -> AnyTool:
    """Return the tool with the user's hooks around it. None run for fugu's own calls."""
    if environment.hooks is None or by_fugu:
        return tool
    return environment.hooks.around(tool, call)


def _read_only(tool: AnyTool) -> AnyTool:
    """Return the tool for a command that only reads: it cannot write the repository, and no change
    is attributed to it.
    """

    async def run(arguments: BaseModel, workspace: Workspace, say: Say) -> ToolResult:
        return await tool.run(arguments, workspace.read_only(), say)

    return replace(tool, run=run, effect="reads")


async def _snapshot_before(
    environment: Environment, call: Call, *, by_fugu: bool = False, reads: bool = False
) -> str | None:
    """Take a snapshot if the call may change something. `reads` as in `_run_permitted`."""
    tool, arguments = environment.toolbox.parse(call)
    if tool is None or isinstance(arguments, ToolResult):
        return None
    tool = _read_only(tool) if reads else tool
    if _with_hooks(environment, tool, call, by_fugu=by_fugu).effect == "reads":
        return None
    return await environment.workspace.history.snapshot()


async def _run_permitted(
    log: Log,
    environment: Environment,
    call: Call,
    preface: str,
    judgement: policy.Judgement | None = None,
    *,
    reads: bool = False,
) -> None:
    """Run the call that the newest event permits and record its result, with `preface` above it.

    `judgement` is policy's about an agent's call. `reads`: the command or the turn only reads, so
    it cannot write the repository and no change is attributed to it.
    """
    permitted = log.events[-1]
    assert isinstance(permitted, Permitted)
    recorded, number, by_fugu = permitted.call, permitted.turn, permitted.by == EVIDENCE
    tool, arguments = environment.toolbox.parse(call)
    started = time.monotonic()
    if tool is None or isinstance(arguments, ToolResult):
        assert isinstance(arguments, ToolResult)
        text = arguments.text
        if _is_cut_off(log.events, recorded):
            text = CUT_OFF.format(tool=call.tool)
        log.append(
            ToolRan(
                turn=number, call=recorded, output=preface + text, ok=False, tests=arguments.tests
            )
        )
        return
    tool = on_original_files(_read_only(tool) if reads else tool, log.state)
    wrapped = _with_hooks(environment, tool, call, by_fugu=by_fugu)
    if by_fugu and tool.skippable:
        wrapped = environment.test_canceller.around(wrapped)
    key = ""
    if environment.remembers and wrapped is tool:
        key = await content_key.content_key(environment.workspace, call)
    judged_paths = frozenset(judgement.paths) if judgement is not None else None
    workspace = environment.workspace.for_call(_context_tokens(log.state, number), judged_paths)
    async with heartbeat(log):
        result, effects, written = await workspace.observe(
            wrapped,
            arguments,
            lambda text: log.tell(OutputStreamed(turn=number, call=call.id, text=text)),
            permitted.snapshot,
        )
    if wrapped.effect == "runs":
        effects = mark_unclaimed(effects, [call], environment.workspace.root, written)
    if key and (effects.changes or not result.ok):
        key = ""
    if key and key != await content_key.content_key(environment.workspace, call):
        key = ""  # files changed meanwhile, so it is unknown which content the call saw
    text = result.text
    if not by_fugu:
        text = truncate(text, workspace.output_limit(len(text)))
        if not tool.instructs:
            text = mark_injection(text)
        preface = _folder_instructions(log.state, environment, number, call) + preface
        if environment.hooks is not None:
            preface += environment.hooks.said(call)
    log.append(
        ToolRan(
            turn=number,
            call=recorded,
            output=preface + text,
            ok=result.ok,
            seconds=round(time.monotonic() - started, 3),
            changes=effects.changes,
            attributes=effects.attributes,
            state=key,
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


def _context_tokens(state: SessionState, number: int) -> int | None:
    """Return the size of the context of the turn's agent, None if the turn is no agent's."""
    turn = state.request.turn(number)
    member = state.pool.get(turn.assigned.agent) if turn is not None else None
    return member.context if member is not None else None


def _is_cut_off(events: Sequence[Event], call: Call) -> bool:
    """Return whether the call is the last one of a reply that reached its limit of tokens, so that
    its arguments may be incomplete.
    """
    for event in reversed(events):
        if isinstance(event, Replied) and any(made.id == call.id for made in event.calls):
            return event.stop == "length" and event.calls[-1].id == call.id
    return False


def _folder_instructions(
    state: SessionState, environment: Environment, number: int, call: Call
) -> str:
    """Return the standing instructions of the folder in which the call works, without those that
    its agent has been shown already.
    """
    if environment.nearer is None:
        return ""
    root = environment.workspace.root
    instructions: dict[str, str] = {}
    for part in hook_protocol.describe_call(call, root):
        name = part.input.get("file_path") or part.input.get("path")
        if isinstance(name, str) and Path(name).is_relative_to(root):
            instructions |= environment.nearer(Path(name).relative_to(root))
    if not instructions:
        return ""
    turn = state.request.turn(number)
    is_isolated = turn is not None and (turn.assigned.plan or turn.assigned.subtask)
    if turn is not None and is_isolated:
        events: Iterable[Event] = turn.events
    else:
        events = (event for request in state.shown_requests for event in request.events)
    shown_outputs = [event.output for event in events if isinstance(event, ToolRan)]
    unseen = ""
    for heading, text in instructions.items():
        if not any(heading in output for output in shown_outputs):
            unseen += f"{heading}\n{text}\n\n"
    return unseen
