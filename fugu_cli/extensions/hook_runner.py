"""Hooks run: around an agent's call, a request, a session; their answers, and what agents read of
them.

Below the engine, which makes a refusal an event, and the session. A repository's hooks run in the
sandbox like its tests: an agent may change the scripts that they name. The user's own run with the
user's rights. Each has a time limit, and ends with everything it started, also when the turn is
cut. Knows no log.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, JsonValue

from fugu_cli.errors import FuguError
from fugu_cli.extensions import hook_protocol
from fugu_cli.extensions.hook_protocol import (
    BY_STRICTNESS,
    HookAnswer,
    HookDecision,
    HookOutput,
    answer_of_client,
    read_answer,
)
from fugu_cli.extensions.hook_settings import (
    GUARD_EVENT,
    ROOT_VARIABLE,
    DeclaredHooks,
    Hook,
    HookEvent,
    hash_of_named_files,
)
from fugu_cli.messages import Call
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.shell_commands import CommandContext, CommandOutput, run_command
from fugu_cli.tools.workspace import Tool, Workspace, run_tool

Arguments = TypeVar("Arguments", bound=BaseModel)

REASON_LIMIT = 2000
"""Characters of a hook's reason."""
CONTEXT_LIMIT = 10_000
"""Characters of what a hook adds for agents."""
OUTPUT_LIMIT = 1_000_000
"""Bytes of a hook's standard output."""
WARNING_LIMIT = 300
"""Characters of a warning."""
WITHHELD = "its words are withheld: some agents must not see every file (deny_agents)"
MODES = {
    "plan": "plan",
    "ask": "default",
    "edit": "acceptEdits",
    "auto": "auto",
    "yolo": "bypassPermissions",
}
"""The permission modes by the names that hooks know."""


@dataclass(frozen=True)
class HookVerdict:
    """What hooks decided about a call: `call` is as they want it run, `context` what its agent is
    told besides.
    """

    call: Call
    decision: HookDecision = ""
    reason: str = ""
    context: str = ""


@dataclass(frozen=True)
class _EventInput:
    """An event that hooks are run for: what they are told, and the names that matchers go by; none:
    all are run.
    """

    moment: HookEvent
    told: Mapping[str, JsonValue]
    names: frozenset[str] = frozenset()
    call: Call | None = None


CallClient = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Calls the client's function of that id with what the hook is told. Raises FuguError where it does
not answer.
"""


class HookRunner:
    """The declared hooks: which of them are for an event, and what one of them says. `tell` shows
    people what is waited for and what went wrong, at once.

    `common` is what every hook is told, and the permission `mode` that holds now. `mute`: files are
    kept from some agents, so that what hooks write, which may quote any file, reaches none.
    `client` calls hooks inside of it.
    """

    def __init__(
        self,
        declared: DeclaredHooks,
        common: Mapping[str, JsonValue],
        tell: Callable[[str], None],
        *,
        mute: bool = False,
        client: CallClient | None = None,
    ) -> None:
        self.declared = declared
        self.mode = "edit"
        self.mute = mute
        self._common = common
        self._tell = tell
        self._client = client
        self._warnings: list[str] = []
        self._stop: str | None = None
        self._apart: set[asyncio.Task[None]] = set()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for people: what is left out and why, and which hooks failed so far."""
        return (*self.declared.notes, *self._warnings)

    def stopped(self) -> str | None:
        """Why a hook wants all work ended, None when none does. Asked once: then it is
        forgotten.
        """
        stop, self._stop = self._stop, None
        return stop

    async def close(self) -> None:
        """End hooks that nobody waits for."""
        for task in self._apart:
            task.cancel()
        await asyncio.gather(*self._apart, return_exceptions=True)

    def matching(self, moment: HookEvent, names: Iterable[str] = ()) -> list[Hook]:
        """The hooks for this, each command once."""
        names = frozenset(names)
        found = [
            hook
            for hook in self.declared.hooks
            if hook.moment == moment and (not names or hook.matches(names))
        ]
        once = {
            (hook.command, hook.callback, hook.rule, hook.fault): hook for hook in reversed(found)
        }
        return list(once.values())[::-1]

    async def ask_all(self, workspace: Workspace, asked: _EventInput) -> list[HookAnswer]:
        """What the hooks of an event say, one after the other."""
        return [
            await self.ask(hook, workspace, asked)
            for hook in self.matching(asked.moment, asked.names)
        ]

    async def ask(self, hook: Hook, workspace: Workspace, asked: _EventInput) -> HookAnswer:
        """What one hook says, made fit to be told: clipped, masked, withheld where it must be."""
        if (
            hook.rule
            and asked.call is not None
            and not hook_protocol.rule_fits(hook.rule, asked.call, workspace.root)
        ):
            return HookAnswer()
        if hook.apart:
            self.begin(hook, workspace, asked)
            return HookAnswer()
        answer = await self._ran(hook, workspace, asked)
        mask = workspace.mask
        reason, context = (
            truncate(mask(answer.reason), REASON_LIMIT),
            truncate(mask(answer.context), CONTEXT_LIMIT),
        )
        if answer.message:
            self._note(
                f"the hook `{hook.said}` says: {truncate(mask(answer.message), REASON_LIMIT)}"
            )
        if answer.stop is not None:
            self._stop = (
                truncate(mask(answer.stop), REASON_LIMIT) or f"the hook `{hook.said}` ended it"
            )
        now = "" if hook.own else hash_of_named_files(hook.command, workspace.root)
        if (
            answer.decision == "allow" and hook.content != now
        ):  # an agent may have changed a repository's script
            answer = replace(answer, decision="")
        if (
            self.mute
            and hook.moment != "UserPromptSubmit"
            and (reason or context or answer.output is not None)
        ):
            self._tell(f"the hook `{hook.said}` says: {reason or context}")
            return replace(
                answer, reason=WITHHELD if answer.decision else "", context="", output=None
            )
        shown = mask(answer.output) if answer.output is not None else None
        return replace(answer, reason=reason, context="" if self.mute else context, output=shown)

    async def _ran(self, hook: Hook, workspace: Workspace, asked: _EventInput) -> HookAnswer:
        """Run it and read what it said. A guard that nobody can tell from says no."""
        if hook.fault:
            return HookAnswer(
                "deny",
                f"the guard in {hook.source} cannot be run (hooks.{hook.moment}{hook.fault})",
            )
        self._tell(f"the hook `{hook.said}` runs")
        mode = {"permission_mode": MODES.get(self.mode, "default")}
        told = {
            **self._common,
            "cwd": str(workspace.root),
            **mode,
            "hook_event_name": hook.moment,
            **asked.told,
        }
        answer = await (
            _called(hook, told, self._client) if hook.callback else _run(hook, told, workspace)
        )
        if not answer.fault:
            return answer
        if hook.moment == GUARD_EVENT and answer.unsure:
            return HookAnswer(
                "deny",
                f"the guard `{hook.said}` in {hook.source} {truncate(answer.fault, WARNING_LIMIT)}",
            )
        self.warn(hook, truncate(answer.fault, WARNING_LIMIT))
        return answer

    def begin(self, hook: Hook, workspace: Workspace, asked: _EventInput) -> None:
        """Run it beside everything else; what it says is not looked at."""

        async def run() -> None:
            await self._ran(hook, workspace, asked)

        task = asyncio.create_task(run())
        self._apart.add(task)
        task.add_done_callback(self._apart.discard)

    def warn(self, hook: Hook, what: str) -> None:
        self._note(
            f"the {hook.moment} hook `{hook.said}` in {hook.source} {what}; it was passed over"
        )

    def _note(self, said: str) -> None:
        self._tell(said)
        if said not in self._warnings:
            self._warnings.append(said)


class Hooks:
    """The events of a session, and what its hooks decide at each."""

    def __init__(self, runner: HookRunner) -> None:
        self.runner = runner
        self._begun = False
        self._opening = ""
        self._said: dict[str, str] = {}

    async def judge(self, moment: HookEvent, call: Call, workspace: Workspace) -> HookVerdict:
        """Whether the call may run, as far as hooks go, and how: PreToolUse; PermissionRequest,
        where the user is to be asked: whether a hook answers instead. The strictest answer of all:
        no, ask, yes. Each hook is told the call as those before it have changed it."""

        def parts() -> tuple[hook_protocol.HookCall, ...]:
            return hook_protocol.describe_call(verdict.call, workspace.root, workspace.test_command)

        verdict = HookVerdict(call)
        count = len(parts())
        for part in range(count):
            for hook in self.runner.matching(moment, parts()[part].names):
                now = parts()[part]
                answer = await self.runner.ask(hook, workspace, _of_call(moment, now, verdict.call))
                if answer.input is not None and answer.decision != "deny" and self.runner.mute:
                    answer = HookAnswer("deny", WITHHELD)
                elif answer.input is not None and answer.decision != "deny" and count > 1:
                    said = (
                        f"the hook `{hook.said}` changes the arguments of one part of the call; "
                        f"make it alone"
                    )
                    answer = HookAnswer("deny", said)
                if answer.stop is not None:
                    answer = replace(
                        answer, decision="deny", reason=answer.stop or "it ended the work"
                    )
                verdict = _stricter(verdict, answer, now)
                if verdict.decision == "deny":
                    return verdict
        return verdict

    def around(self, tool: Tool[Arguments], call: Call) -> Tool[Arguments]:
        """The tool, its PostToolUse hooks after it: what they change is the call's, and `said` what
        they say of it. The tool itself where no hook is for it."""
        after: tuple[HookEvent, ...] = ("PostToolUse", "PostToolUseFailure")
        names = frozenset().union(
            *(part.names for part in hook_protocol.describe_call(call, Path()))
        )
        if not any(self.runner.matching(moment, names) for moment in after):
            return tool

        async def run(arguments: Arguments, workspace: Workspace, say: Say) -> ToolResult:
            result = await run_tool(tool, arguments, workspace, say)
            moment: HookEvent = "PostToolUse" if result.ok else "PostToolUseFailure"
            for part in hook_protocol.describe_call(call, workspace.root, workspace.test_command):
                for hook in self.runner.matching(moment, part.names):
                    asked = _of_call(moment, part, call)
                    more = (
                        {"tool_response": _response(part, result)}
                        if result.ok
                        else {"error": result.text}
                    )
                    answer = await self.runner.ask(
                        hook, workspace, replace(asked, told={**asked.told, **more})
                    )
                    self._said[call.id] = self._said.get(call.id, "") + _words(answer)
                    result = (
                        result
                        if answer.output is None
                        else result.model_copy(update={"text": answer.output})
                    )
            return result

        return replace(tool, run=run, effect="runs")

    def said(self, call: Call) -> str:
        """What hooks said after the call, for its agent. Asked once: then it is forgotten."""
        return self._said.pop(call.id, "")

    async def prompted(self, text: str, workspace: Workspace) -> HookAnswer:
        """UserPromptSubmit: "deny" where the request is refused, with words for the user; else
        context for agents, that of the session's beginning first."""
        said = [self._opening]
        for hook in self.runner.matching("UserPromptSubmit"):
            answer = await self.runner.ask(
                hook, workspace, _EventInput("UserPromptSubmit", {"prompt": text})
            )
            stop = self.runner.stopped()
            if answer.decision == "deny" or stop is not None:
                reason = stop or answer.reason or "it gave no reason"
                return HookAnswer("deny", f"{reason} (`{hook.said}` in {hook.source})")
            said.append(answer.context)
        self._opening = ""
        return HookAnswer(context="\n\n".join(filter(None, said)))

    async def began(self, source: str, workspace: Workspace) -> None:
        """SessionStart, once. `source`: startup or resume."""
        if not self._begun:
            self._begun = True
            self._opening = await self._heard("SessionStart", {"source": source}, source, workspace)

    async def closed(self, workspace: Workspace) -> None:
        """SessionEnd, of one that began; and the end of hooks that nobody waits for."""
        if self._begun:
            await self._heard("SessionEnd", {"reason": "other"}, "other", workspace)
        await self.runner.close()

    async def compacting(self, trigger: str, workspace: Workspace) -> str:
        """PreCompact. Why there should be no summary, "" when there may be. `trigger`: manual or
        auto.
        """
        asked = _EventInput(
            "PreCompact", {"trigger": trigger, "custom_instructions": ""}, frozenset({trigger})
        )
        answers = await self.runner.ask_all(workspace, asked)
        self.runner.stopped()
        return "\n".join(one.reason for one in answers if one.decision == "deny")

    def notify(self, call: Call, workspace: Workspace) -> None:
        """Notification: the user is asked about a call. Nobody waits for these hooks."""
        name = hook_protocol.describe_call(call, workspace.root)[0].name
        told: dict[str, JsonValue] = {
            "message": f"fugu needs your permission to use {name}",
            "title": "fugu",
        }
        kind = "permission_prompt"
        asked = _EventInput("Notification", {**told, "notification_type": kind}, frozenset({kind}))
        for hook in self.runner.matching("Notification", asked.names):
            self.runner.begin(hook, workspace, asked)

    async def ended(
        self, told: Mapping[str, JsonValue], workspace: Workspace, *, again: bool
    ) -> str:
        """Stop. What is still to be done, "" when the request may end. `again`: a hook has asked to
        go on already.
        """
        asked = _EventInput("Stop", {"stop_hook_active": again, **told})
        left: list[str] = []
        for hook in self.runner.matching("Stop"):
            answer = await self.runner.ask(hook, workspace, asked)
            words = answer.reason if answer.decision == "deny" else answer.context
            if words and self.runner.mute:
                self.runner.warn(hook, f"cannot ask to go on; {WITHHELD}")
            elif words:
                left.append(words)
        return "" if self.runner.stopped() is not None else "\n".join(left)

    async def step_ended(
        self, role: str, told: Mapping[str, JsonValue], workspace: Workspace
    ) -> None:
        """SubagentStop: a step of a workflow is over. It is not gone on with, whatever a hook
        says.
        """
        names = frozenset({role})
        asked = _EventInput(
            "SubagentStop", {"stop_hook_active": False, "agent_type": role, **told}, names
        )
        await self.runner.ask_all(workspace, asked)

    async def _heard(
        self, moment: HookEvent, told: Mapping[str, JsonValue], kind: str, workspace: Workspace
    ) -> str:
        """Run the hooks of an event that nothing depends on; what they say to agents."""
        asked = _EventInput(moment, told, frozenset({kind}))
        answers = await self.runner.ask_all(workspace, asked)
        self.runner.stopped()
        return "\n\n".join(one.context for one in answers if one.context)


class _StandardOutput:
    """The bytes that a hook wrote to standard output, up to a limit."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.is_whole = True

    def take(self, piece: bytes) -> bytes:
        """Keep a piece of the output; nothing of it is left for others."""
        room = OUTPUT_LIMIT - len(self._data)
        self._data += piece[:room]
        self.is_whole = self.is_whole and len(piece) <= room
        return b""

    @property
    def text(self) -> str:
        """The output in the encoding that its first bytes show: UTF-8, UTF-16 or UTF-32."""
        return self._data.decode(json.detect_encoding(self._data), "replace")


async def _run(hook: Hook, told: Mapping[str, JsonValue], workspace: Workspace) -> HookAnswer:
    output, errors = _StandardOutput(), CommandOutput(lambda _: None)
    context = CommandContext(
        variables={ROOT_VARIABLE: str(workspace.root)},
        box=None if hook.own else workspace.box,
        given=json.dumps(told, ensure_ascii=False).encode("utf-8", "replace"),
        through=output.take,
        errors=errors.take,
    )
    try:
        result = await run_command(
            hook.command, workspace.root, hook.timeout, lambda _: None, context
        )
    except OSError as error:
        return HookAnswer(fault=f"could not be started: {error.strerror}", unsure=True)
    written = HookOutput(output.text, errors.text, result.code, output.is_whole)
    return read_answer(written, hook.moment)


async def _called(hook: Hook, told: dict[str, Any], client: CallClient | None) -> HookAnswer:
    assert client is not None
    try:
        async with asyncio.timeout(hook.timeout):
            return answer_of_client(await client(hook.callback, told), hook.moment)
    except TimeoutError:
        return HookAnswer(fault="did not end in time", unsure=True)
    except FuguError as error:
        return HookAnswer(fault=f"failed: {error}", unsure=True)


def _of_call(moment: HookEvent, part: hook_protocol.HookCall, call: Call) -> _EventInput:
    told: dict[str, JsonValue] = {
        "tool_name": part.name,
        "tool_input": part.input,
        "tool_use_id": call.id,
    }
    return _EventInput(moment, told, part.names, call)


def _stricter(
    verdict: HookVerdict, answer: HookAnswer, part: hook_protocol.HookCall
) -> HookVerdict:
    """Both decisions as one: the stricter of them, what both say to the agent, and the call as it
    is now.
    """
    call, context = verdict.call, "\n\n".join(filter(None, (verdict.context, answer.context)))
    if answer.input is not None and answer.decision != "deny":
        call = hook_protocol.call_changed_by_hook(call, part, answer.input)
    if BY_STRICTNESS.index(answer.decision) > BY_STRICTNESS.index(verdict.decision):
        return HookVerdict(call, answer.decision, answer.reason, context)
    return replace(verdict, call=call, context=context)


def _response(part: hook_protocol.HookCall, result: ToolResult) -> dict[str, JsonValue]:
    """What a tool answered: as fugu has it, and under the names that hooks for commands and files
    look for.
    """
    told: dict[str, JsonValue] = {"output": result.text, "ok": result.ok}
    if part.name == "Bash":
        return {**told, "stdout": result.text, "stderr": "", "interrupted": False}
    path = part.input.get("file_path")
    return {**told, "filePath": path, "success": result.ok} if path is not None else told


def _words(answer: HookAnswer) -> str:
    """What an agent reads above a result."""
    objection = f"[A hook objects: {answer.reason}]\n" if answer.decision == "deny" else ""
    return objection + (f"[A hook says: {answer.context}]\n" if answer.context else "")
