"""Runs hooks around an agent's call, a request and a session, and collects their answers.

Below the engine, which logs a refusal as an event, and the session. A repository's hooks run in the
sandbox like its tests, because an agent may change their scripts. The user's hooks run with the
user's rights. Each has a timeout and ends with everything it started, also when the turn is
interrupted. Knows no log.
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
    command_words,
    hash_of_named_files,
)
from fugu_cli.extensions.mcp_settings import PLUGIN_VARIABLE
from fugu_cli.extensions.repository_code import (
    NO_COMPILED_FILES,
    TrustedCode,
    paths_in_repository,
)
from fugu_cli.messages import Call
from fugu_cli.safety.paths import inside, real_path
from fugu_cli.safety.programs import search_path_outside
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.shell_commands import CommandContext, CommandOutput, run_command
from fugu_cli.tools.workspace import Tool, Workspace, run_tool

Arguments = TypeVar("Arguments", bound=BaseModel)

REASON_LIMIT = 2000
"""The most characters of a hook's reason."""
CONTEXT_LIMIT = 10_000
"""The most characters that a hook adds for agents."""
OUTPUT_LIMIT = 1_000_000
"""The most bytes of a hook's standard output."""
SANDBOX_FAILURE = "bwrap: "
"""The beginning of what bubblewrap says when it cannot start a command."""
NOT_CONFINED = (
    "was not run: no sandbox holds here, and it is not known whether an agent changed what it runs "
    "since you trusted it (`fugu trust` if the files are yours, or make it a hook of your own: "
    "`fugu help hooks`)"
)
WARNING_LIMIT = 300
"""The most characters of a warning."""
WITHHELD = "its words are withheld: some agents must not see every file (deny_agents)"
MODES = {
    "plan": "plan",
    "ask": "default",
    "edit": "acceptEdits",
    "auto": "auto",
    "yolo": "bypassPermissions",
}
"""The permission modes and their names in Claude Code."""


@dataclass(frozen=True)
class HookVerdict:
    """The hooks' decision about a call. `call` is the call with their changes. `context` is text
    for its agent.
    """

    call: Call
    decision: HookDecision = ""
    reason: str = ""
    context: str = ""


@dataclass(frozen=True)
class _EventInput:
    """An event that runs hooks: its input, and the names for matchers. Without names all hooks run."""

    moment: HookEvent
    fields: Mapping[str, JsonValue]
    names: frozenset[str] = frozenset()
    call: Call | None = None


CallClient = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Call the client's function with this id and input. Raises FuguError if it does not answer."""


class HookRunner:
    """Selects the hooks of an event and runs them. `tell` shows the user at once what runs and what
    failed.

    Every hook gets `common` and the current permission `mode`. `mute`: some files are kept from
    some agents; hooks may quote any file, so their words reach no agent. `client` calls hooks
    inside the client.
    """

    def __init__(
        self,
        declared: DeclaredHooks,
        common: Mapping[str, JsonValue],
        tell: Callable[[str], None],
        *,
        mute: bool = False,
        client: CallClient | None = None,
        code: TrustedCode | None = None,
    ) -> None:
        self.code = code
        """Tells whether what the repository's hooks run is as the user trusted it."""
        self.declared = declared
        self.mode = "edit"
        self.mute = mute
        self._common = common
        self._tell = tell
        self._client = client
        self._warnings: list[str] = []
        self._stop: str | None = None
        self._background: set[asyncio.Task[None]] = set()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user: hooks that are left out, and hooks that failed so far."""
        return (*self.declared.notes, *self._warnings)

    def stopped(self) -> str | None:
        """Return and forget the reason a hook gave to end all work, None if none did."""
        stop, self._stop = self._stop, None
        return stop

    async def close(self) -> None:
        """End the hooks that nobody waits for."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    def matching(self, moment: HookEvent, names: Iterable[str] = ()) -> list[Hook]:
        """Return the hooks of the event that match, each command once."""
        names = frozenset(names)
        hooks: dict[tuple[str, str, str, str], Hook] = {}
        for hook in self.declared.hooks:
            if hook.moment == moment and (not names or hook.matches(names)):
                hooks.setdefault((hook.command, hook.callback, hook.rule, hook.fault), hook)
        return list(hooks.values())

    async def ask_all(self, workspace: Workspace, event: _EventInput) -> list[HookAnswer]:
        """Run the hooks of an event one after the other, and return their answers."""
        return [
            await self.ask(hook, workspace, event)
            for hook in self.matching(event.moment, event.names)
        ]

    async def ask(self, hook: Hook, workspace: Workspace, event: _EventInput) -> HookAnswer:
        """Run one hook and return its answer: cut, with secrets masked, and without its words if
        `mute`.
        """
        call, root = event.call, workspace.root
        if hook.rule and call is not None and not hook_protocol.rule_fits(hook.rule, call, root):
            return HookAnswer()
        if hook.apart:
            self.begin(hook, workspace, event)
            return HookAnswer()
        answer = await self._run_hook(hook, workspace, event)
        mask = workspace.mask
        reason = truncate(mask(answer.reason), REASON_LIMIT)
        context = truncate(mask(answer.context), CONTEXT_LIMIT)
        if hook.plugin and answer.decision:
            reason = f"{reason} (the plugin {hook.plugin})".strip()
        if hook.plugin and context:
            context = f"the plugin {hook.plugin}: {context}"
        if answer.message:
            message = truncate(mask(answer.message), REASON_LIMIT)
            self._note(f"{_named(hook)} says: {message}")
        if answer.stop is not None:
            self._stop = truncate(mask(answer.stop), REASON_LIMIT)
            if not self._stop:
                self._stop = f"{_named(hook)} ended it"
        folder = Path(hook.plugin_root) if hook.plugin else workspace.root
        content = "" if hook.own else hash_of_named_files(hook.command, folder)
        if answer.decision == "allow" and hook.content != content:
            # an agent may have changed the script
            answer = replace(answer, decision="")
        has_words = bool(reason or context or answer.output is not None)
        if self.mute and hook.moment != "UserPromptSubmit" and has_words:
            self._tell(f"{_named(hook)} says: {reason or context}")
            return replace(
                answer, reason=WITHHELD if answer.decision else "", context="", output=None
            )
        output = mask(answer.output) if answer.output is not None else None
        return replace(answer, reason=reason, context="" if self.mute else context, output=output)

    async def _run_hook(self, hook: Hook, workspace: Workspace, event: _EventInput) -> HookAnswer:
        """Run a hook and read its answer. A guard whose answer cannot be read denies the call."""
        if hook.fault:
            return HookAnswer(
                "deny",
                f"the guard in {hook.source} cannot be run (hooks.{hook.moment}{hook.fault})",
            )
        self._tell(f"{_named(hook)} runs")
        hook_input = {
            **self._common,
            "cwd": str(workspace.root),
            "permission_mode": MODES.get(self.mode, "default"),
            "hook_event_name": hook.moment,
            **event.fields,
        }
        if hook.callback:
            answer = await _call_client(hook, hook_input, self._client)
        else:
            answer = await self._run_command(hook, hook_input, workspace)
        if not answer.fault:
            return answer
        fault = truncate(answer.fault, WARNING_LIMIT)
        if hook.moment == GUARD_EVENT and answer.unsure:
            return HookAnswer("deny", f"the guard `{hook.description}` in {hook.source} {fault}")
        self.warn(hook, fault)
        return answer

    async def _run_command(
        self, hook: Hook, hook_input: Mapping[str, JsonValue], workspace: Workspace
    ) -> HookAnswer:
        """Run a hook's command. A hook of the repository runs in the sandbox; without a sandbox it
        runs only if all files that its commands run are as the user trusted them.
        """
        confined = hook.own or await asyncio.to_thread(_is_confined, workspace)
        if not confined:
            root = real_path(workspace.root)
            # in a thread: it reads all files beside those that the hook names
            if not await asyncio.to_thread(self._runs_what_was_trusted, hook, root):
                return HookAnswer(fault=NOT_CONFINED, unsure=True)
        more = {} if confined else NO_COMPILED_FILES
        return await _run_command(hook, hook_input, workspace, more)

    def _runs_what_was_trusted(self, hook: Hook, root: Path) -> bool:
        """Return whether each command of a hook runs files of the repository that are as the user
        trusted them, or files of the user's plugin, which lies outside.
        """
        plugin = real_path(hook.plugin_root) if hook.plugin else root
        commands = command_words(hook.command, plugin)
        if plugin != root and not inside(plugin, root):
            return bool(commands) and all(
                paths_in_repository(words, plugin) and not paths_in_repository(words, root)
                for words in commands
            )
        named = [paths_in_repository(words, root) for words in commands]
        code = self.code
        return bool(named) and code is not None and all(code.holds(paths, root) for paths in named)

    def begin(self, hook: Hook, workspace: Workspace, event: _EventInput) -> None:
        """Run the hook in the background and ignore its answer."""

        async def run() -> None:
            await self._run_hook(hook, workspace, event)

        task = asyncio.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def warn(self, hook: Hook, fault: str) -> None:
        """Tell the user that the hook was ignored, and why."""
        self._note(
            f"the {hook.moment} hook `{hook.description}` in {hook.source} {fault}; it was passed over"
        )

    def _note(self, note: str) -> None:
        self._tell(note)
        if note not in self._warnings:
            self._warnings.append(note)


def _is_confined(workspace: Workspace) -> bool:
    return workspace.sandbox is not None and workspace.sandbox.mechanism.kind != "none"


def _named(hook: Hook) -> str:
    plugin = f" of the plugin {hook.plugin}" if hook.plugin else ""
    return f"the hook `{hook.description}`{plugin}"


class Hooks:
    """The events of a session, and the hooks' decisions about them."""

    def __init__(self, runner: HookRunner) -> None:
        self.runner = runner
        self._begun = False
        self._opening = ""
        self._words_for_agent: dict[str, str] = {}

    async def judge(self, moment: HookEvent, call: Call, workspace: Workspace) -> HookVerdict:
        """Return the hooks' strictest decision about a call: no, ask, yes.

        PreToolUse asks whether it may run. PermissionRequest asks whether a hook answers instead of the
        user. Each hook sees the call as the hooks before it changed it.
        """

        def current_parts() -> tuple[hook_protocol.HookCall, ...]:
            return hook_protocol.describe_call(verdict.call, workspace.root, workspace.test_command)

        verdict = HookVerdict(call)
        part_count = len(current_parts())
        for index in range(part_count):
            for hook in self.runner.matching(moment, current_parts()[index].names):
                part = current_parts()[index]
                event = _event_of_call(moment, part, verdict.call)
                answer = await self.runner.ask(hook, workspace, event)
                changes_call = answer.input is not None and answer.decision != "deny"
                if changes_call and self.runner.mute:
                    answer = HookAnswer("deny", WITHHELD)
                elif changes_call and part_count > 1:
                    answer = HookAnswer(
                        "deny",
                        f"the hook `{hook.description}` changes the arguments of one part of the "
                        f"call; make it alone",
                    )
                if answer.stop is not None:
                    reason = answer.stop or "it ended the work"
                    answer = replace(answer, decision="deny", reason=reason)
                verdict = _stricter(verdict, answer, part)
                if verdict.decision == "deny":
                    return verdict
        return verdict

    def around(self, tool: Tool[Arguments], call: Call) -> Tool[Arguments]:
        """Return the tool followed by its PostToolUse hooks, or the tool itself if no hook matches.

        A hook may change the result. `said` returns its words for the agent.
        """
        after: tuple[HookEvent, ...] = ("PostToolUse", "PostToolUseFailure")
        names: set[str] = set()
        for part in hook_protocol.describe_call(call, Path()):
            names |= part.names
        if not any(self.runner.matching(moment, names) for moment in after):
            return tool

        async def run(arguments: Arguments, workspace: Workspace, say: Say) -> ToolResult:
            result = await run_tool(tool, arguments, workspace, say)
            moment: HookEvent = "PostToolUse" if result.ok else "PostToolUseFailure"
            for part in hook_protocol.describe_call(call, workspace.root, workspace.test_command):
                for hook in self.runner.matching(moment, part.names):
                    event = _event_of_call(moment, part, call)
                    event = replace(event, fields={**event.fields, **_outcome_of(part, result)})
                    answer = await self.runner.ask(hook, workspace, event)
                    words = ""
                    if answer.decision == "deny":
                        words += f"[A hook objects: {answer.reason}]\n"
                    if answer.context:
                        words += f"[A hook says: {answer.context}]\n"
                    self._words_for_agent[call.id] = self._words_for_agent.get(call.id, "") + words
                    if answer.output is not None:
                        result = result.model_copy(update={"text": answer.output})
            return result

        return replace(tool, run=run, effect="runs")

    def said(self, call: Call) -> str:
        """Return and forget the words of hooks for the agent of this call."""
        return self._words_for_agent.pop(call.id, "")

    async def prompted(self, text: str, workspace: Workspace) -> HookAnswer:
        """Run UserPromptSubmit. "deny" refuses the request with words for the user.

        Otherwise return the context for agents, that of SessionStart first.
        """
        contexts = [self._opening]
        for hook in self.runner.matching("UserPromptSubmit"):
            answer = await self.runner.ask(
                hook, workspace, _EventInput("UserPromptSubmit", {"prompt": text})
            )
            stop = self.runner.stopped()
            if answer.decision == "deny" or stop is not None:
                reason = stop or answer.reason or "it gave no reason"
                return HookAnswer("deny", f"{reason} (`{hook.description}` in {hook.source})")
            contexts.append(answer.context)
        self._opening = ""
        return HookAnswer(context="\n\n".join(filter(None, contexts)))

    async def began(self, source: str, workspace: Workspace) -> None:
        """Run SessionStart, once. `source` is startup or resume."""
        if not self._begun:
            self._begun = True
            self._opening = await self._run_simple_event(
                "SessionStart", {"source": source}, source, workspace
            )

    async def closed(self, workspace: Workspace) -> None:
        """Run SessionEnd if the session began, and end the hooks that nobody waits for."""
        if self._begun:
            await self._run_simple_event("SessionEnd", {"reason": "other"}, "other", workspace)
        await self.runner.close()

    async def compacting(self, trigger: str, workspace: Workspace) -> str:
        """Run PreCompact. Return why there must be no summary, "" if there may be one.

        `trigger` is manual or auto.
        """
        event = _EventInput(
            "PreCompact", {"trigger": trigger, "custom_instructions": ""}, frozenset({trigger})
        )
        answers = await self.runner.ask_all(workspace, event)
        self.runner.stopped()
        return "\n".join(answer.reason for answer in answers if answer.decision == "deny")

    def notify(self, call: Call, workspace: Workspace) -> None:
        """Run the Notification hooks in the background, because the user is asked about a call."""
        name = hook_protocol.describe_call(call, workspace.root)[0].name
        notification = "permission_prompt"
        event = _EventInput(
            "Notification",
            {
                "message": f"fugu needs your permission to use {name}",
                "title": "fugu",
                "notification_type": notification,
            },
            frozenset({notification}),
        )
        for hook in self.runner.matching("Notification", event.names):
            self.runner.begin(hook, workspace, event)

    async def ended(
        self, outcome: Mapping[str, JsonValue], workspace: Workspace, *, again: bool
    ) -> str:
        """Run Stop. Return the work that hooks still want, "" if the request may end.

        `again`: a hook has asked for more work before.
        """
        event = _EventInput("Stop", {"stop_hook_active": again, **outcome})
        wanted_work: list[str] = []
        for hook in self.runner.matching("Stop"):
            answer = await self.runner.ask(hook, workspace, event)
            words = answer.reason if answer.decision == "deny" else answer.context
            if words and self.runner.mute:
                self.runner.warn(hook, f"cannot ask to go on; {WITHHELD}")
            elif words:
                wanted_work.append(words)
        return "" if self.runner.stopped() is not None else "\n".join(wanted_work)

    async def step_ended(
        self, role: str, outcome: Mapping[str, JsonValue], workspace: Workspace
    ) -> None:
        """Run SubagentStop: a step of a workflow ended. Hooks cannot make it go on."""
        event_input = {"stop_hook_active": False, "agent_type": role, **outcome}
        event = _EventInput("SubagentStop", event_input, frozenset({role}))
        await self.runner.ask_all(workspace, event)

    async def _run_simple_event(
        self,
        moment: HookEvent,
        event_input: Mapping[str, JsonValue],
        name: str,
        workspace: Workspace,
    ) -> str:
        """Run the hooks of an event that they cannot refuse. Return their context for agents."""
        event = _EventInput(moment, event_input, frozenset({name}))
        answers = await self.runner.ask_all(workspace, event)
        self.runner.stopped()
        return "\n\n".join(answer.context for answer in answers if answer.context)


class _StandardOutput:
    """Collects a hook's standard output, up to OUTPUT_LIMIT bytes."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.is_whole = True

    def add_piece(self, piece: bytes) -> bytes:
        """Keep a piece of the output, as far as there is room. Return b"": the command's output gets
        none of it.
        """
        free_bytes = OUTPUT_LIMIT - len(self._data)
        self._data += piece[:free_bytes]
        self.is_whole = self.is_whole and len(piece) <= free_bytes
        return b""

    @property
    def text(self) -> str:
        """The output, decoded as UTF-8, UTF-16 or UTF-32, whichever its first bytes show."""
        return self._data.decode(json.detect_encoding(self._data), "replace")


async def _run_command(
    hook: Hook,
    hook_input: Mapping[str, JsonValue],
    workspace: Workspace,
    more_variables: Mapping[str, str],
) -> HookAnswer:
    output, errors = _StandardOutput(), CommandOutput(lambda _: None)
    variables = {**more_variables, ROOT_VARIABLE: str(workspace.root)}
    if hook.plugin:
        variables[PLUGIN_VARIABLE] = hook.plugin_root
    if hook.own:
        variables["PATH"] = search_path_outside(workspace.root)
    context = CommandContext(
        variables=variables,
        sandbox=None if hook.own else workspace.sandbox,
        stdin=json.dumps(hook_input, ensure_ascii=False).encode("utf-8", "replace"),
        through=output.add_piece,
        errors=errors.take,
    )
    try:
        result = await run_command(
            hook.command, workspace.root, hook.timeout, lambda _: None, context
        )
    except OSError as error:
        return HookAnswer(fault=f"could not be started: {error.strerror}", unsure=True)
    if context.sandbox is not None and result.code and errors.text.startswith(SANDBOX_FAILURE):
        # bubblewrap ends as a hook does that objects to nothing
        return HookAnswer(fault=f"could not be started: {errors.text.strip()}", unsure=True)
    written = HookOutput(output.text, errors.text, result.code, output.is_whole)
    return read_answer(written, hook.moment)


async def _call_client(
    hook: Hook, hook_input: dict[str, Any], client: CallClient | None
) -> HookAnswer:
    assert client is not None
    try:
        async with asyncio.timeout(hook.timeout):
            return answer_of_client(await client(hook.callback, hook_input), hook.moment)
    except TimeoutError:
        return HookAnswer(fault="did not end in time", unsure=True)
    except FuguError as error:
        return HookAnswer(fault=f"failed: {error}", unsure=True)


def _event_of_call(moment: HookEvent, part: hook_protocol.HookCall, call: Call) -> _EventInput:
    event_input: dict[str, JsonValue] = {
        "tool_name": part.name,
        "tool_input": part.input,
        "tool_use_id": call.id,
    }
    return _EventInput(moment, event_input, part.names, call)


def _outcome_of(part: hook_protocol.HookCall, result: ToolResult) -> dict[str, JsonValue]:
    """Return the fields about a call's result for PostToolUse and PostToolUseFailure."""
    if not result.ok:
        return {"error": result.text}
    response: dict[str, JsonValue] = {"output": result.text, "ok": True}
    path = part.input.get("file_path")
    if part.name == "Bash":
        response |= {"stdout": result.text, "stderr": "", "interrupted": False}
    elif path is not None:
        response |= {"filePath": path, "success": True}
    return {"tool_response": response}


def _stricter(
    verdict: HookVerdict, answer: HookAnswer, part: hook_protocol.HookCall
) -> HookVerdict:
    """Merge an answer into the verdict: the stricter decision, all context, the changed call."""
    call, context = verdict.call, "\n\n".join(filter(None, (verdict.context, answer.context)))
    if answer.input is not None and answer.decision != "deny":
        call = hook_protocol.call_changed_by_hook(call, part, answer.input)
    if BY_STRICTNESS.index(answer.decision) > BY_STRICTNESS.index(verdict.decision):
        return HookVerdict(call, answer.decision, answer.reason, context)
    return replace(verdict, call=call, context=context)
