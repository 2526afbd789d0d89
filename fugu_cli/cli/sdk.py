"""`fugu --input-format stream-json`: the protocol that Claude Code's SDKs speak with its binary, as
JSON lines on standard input and output.

Messages of the user are requests, answered one after the other; one that comes while agents work is
given to them, unless its `priority` is `later`. Control requests are answered meanwhile; what policy
asks is asked on the stream. What fugu cannot do is refused with the protocol's own error.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from fugu_cli import __version__
from fugu_cli.app.approval_options import ACCEPT_PLAN, question_choices
from fugu_cli.app.request_queue import request_from_text
from fugu_cli.cli.current_folder import check_embedded, current_config, say
from fugu_cli.cli.flags import SdkFlags, check_empty, check_session, settings_of
from fugu_cli.cli.output import ABORTED, init_of, take_standard_streams
from fugu_cli.cli.run import read_schema
from fugu_cli.cli.session_stream import SessionStream
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.extensions.hook_protocol import (
    UNSUPPORTED_TOOLS,
    describe_call,
    fugu_rule,
    fugu_tools,
)
from fugu_cli.extensions.hook_settings import (
    DEFAULT_TIMEOUT,
    GUARD_EVENT,
    HOOK_EVENTS,
    DeclaredHooks,
    Hook,
)
from fugu_cli.extensions.skill_library import parse_headless_request
from fugu_cli.safety.policy import rule_matching
from fugu_cli.session.call_arguments import arguments_of
from fugu_cli.session.tool_facts import ASK_USER
from fugu_cli.system import signals
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.system.reader_watch import call_when_reader_leaves
from fugu_cli.tools.media import NotTaken, take_base64
from fugu_cli.ui import json_output
from fugu_cli.ui.json_output import Object

if TYPE_CHECKING:
    from fugu_cli.app.request_queue import QueuedRequest
    from fugu_cli.config.loader import LoadedConfig
    from fugu_cli.engine.environment import Permission
    from fugu_cli.messages import Call, Media
    from fugu_cli.safety.policy import Judgement, Mode

MODES: dict[str, Mode] = {
    "default": "ask", "acceptEdits": "edit", "bypassPermissions": "yolo", "dontAsk": "ask",
    "plan": "plan", "ask": "ask", "edit": "edit", "auto": "auto", "yolo": "yolo",
}  # fmt: skip
"""Claude Code's permission modes, and fugu's own under their names. In `dontAsk` nobody is
asked.
"""
ACCEPT_EDITS = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
"""The permission update of the SDK by which edits are accepted without a question."""
CHANGED = "the client changed the arguments of the call; fugu runs a call as it is, or not"
SERVERS = "an entry is a program, an address, or a server of the SDK itself"
AGENTS = "fugu takes no subagents of an SDK: write them into .agents/agents (`fugu help agents`)"


def answer_sdk(flags: SdkFlags) -> int:
    """Serve the client until standard input ends. Return the exit code of the last request.

    Raises FuguError for contradicting flags, or if no session can be opened.
    """
    check_session(flags)
    check_empty(system_prompt=flags.system_prompt or None)
    schema = read_schema(flags.json_schema)
    loaded = replace(_load_configuration(flags), answer_schema=schema)
    for note in check_embedded(loaded.config, os.environ):
        say(note)
    source, sink = take_standard_streams()
    with os.fdopen(sink, "w", buffering=1) as answers:
        return asyncio.run(SdkConversation(flags, answers).run(loaded, source))


def _load_configuration(flags: SdkFlags) -> LoadedConfig:
    settings: dict[str, Any] = settings_of(flags)
    settings.pop("coordinator", None)
    if flags.coordinator:
        settings["coordinator"] = flags.coordinator
    settings["permission_mode"] = MODES[flags.mode or "default"]
    allow = itertools.chain.from_iterable(map(_allow_rules, split_rules(flags.allowed or ())))
    deny = itertools.chain.from_iterable(map(_deny_rules, split_rules(flags.disallowed or ())))
    for key, rules in (("allow", list(allow)), ("deny", list(deny))):
        if rules:
            settings[key] = rules
    appended = "\n\n".join(filter(None, (flags.system_prompt, flags.append_system_prompt)))
    loaded = current_config(
        settings, trust=flags.trust, appended=appended, mcp_config=flags.mcp_config
    )
    for note in loaded.servers.notes:
        if note.startswith("--mcp-config"):
            raise UsageError(note, hint=SERVERS)
    if not flags.agent:
        return loaded
    pool = {entry.name: entry.model for entry in usable_pool(loaded.config, os.environ)}
    name = named_agent(flags.agent, pool)
    config = loaded.config.model_copy(update={"coordinator": f"single:{name}"})
    return replace(loaded, config=config)


def named_agent(name_or_model: str, pool: dict[str, str]) -> str:
    """Return the agent with this name or model. `pool` maps agents to models. Raises UsageError."""
    names = [name for name, model in pool.items() if name_or_model in (name, model)]
    if not names:
        raise UsageError(
            f"no agent is called {name_or_model!r} or runs it",
            hint=f"the pool has: {', '.join(pool)}",
        )
    return names[0]


def split_rules(texts: Sequence[str]) -> list[str]:
    """Split a list of rules at commas and spaces outside parentheses."""
    rules, depth, current = list[str](), 0, ""
    for letter in ",".join(texts):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0 and letter in ", ":
            rules.append(current)
            current = ""
        else:
            current += letter
    return [rule for rule in (*rules, current) if rule]


def _allow_rules(rule: str) -> list[str]:
    """Return fugu's rules for an allow rule of Claude Code. `Bash(git log:*)` is the command alone,
    and with more words after it.
    """
    if rule.partition("(")[0] in UNSUPPORTED_TOOLS:
        return []
    variants = (
        [rule.replace(":*)", ")"), rule.replace(":*)", " *)")] if rule.endswith(":*)") else [rule]
    )
    return [_check_rule(variant) for variant in variants]


def _deny_rules(rule: str) -> list[str]:
    """Return fugu's rules for a deny rule of Claude Code. They hold for every tool that does the
    same as the named one.
    """
    name, _, inner = rule.partition("(")
    if name in UNSUPPORTED_TOOLS:
        return []
    same = [tool for tool in fugu_tools(name) if not inner]
    return list(dict.fromkeys([*_allow_rules(rule), *same]))


def _check_rule(rule: str) -> str:
    ours = fugu_rule(rule)
    if fault := rule_matching.pattern_fault(ours):
        raise UsageError(
            f"the rule {rule!r} cannot be read: {fault}",
            hint="leave it out, or write it as fugu does",
        )
    return ours


class ClientError(FuguError):
    """The client could not answer, or is gone."""


class ClientQuestions:
    """Sends questions to the client: about permissions, to its hooks, to its MCP servers. If
    `silent`, permissions are denied.
    """

    def __init__(self, send: Callable[[Object], None]) -> None:
        self.silent = False
        self._send = send
        self._open: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._gone = False

    async def permission(
        self, stream: SessionStream, call: Call, judgement: Judgement
    ) -> Permission:
        """Return the client's answer. A call that Claude Code would make as several is asked about
        part by part.
        """
        from fugu_cli.engine.environment import Refusal

        if call.tool == ASK_USER.name:
            return await self._ask_question(call)
        if call.tool == ACCEPT_PLAN:
            return await self._ask_about_plan(call)
        workspace = stream.session.environment.workspace
        for part in describe_call(call, workspace.root, workspace.test_command):
            if self.silent or self._gone:
                return "headless"
            try:
                answer = await self.ask(
                    "can_use_tool",
                    tool_name=part.name,
                    input=part.input,
                    tool_use_id=call.id,
                    decision_reason=judgement.reason,
                    permission_suggestions=[],
                )
            except ClientError as error:
                refusal: Permission = Refusal(feedback=str(error)) if str(error) else "no"
                return "headless" if self._gone else refusal
            if answer.get("behavior") != "allow":
                if answer.get("interrupt"):
                    stream.work.interrupt()
                words = answer.get("message")
                return Refusal(feedback=words) if isinstance(words, str) and words.strip() else "no"
            if answer.get("updatedInput", part.input) != part.input:
                return Refusal(feedback=CHANGED)
        return "once"

    async def _ask_question(self, call: Call) -> Permission:
        """Ask an agent's question as Claude Code's AskUserQuestion, and return the answer."""
        from fugu_cli.engine.environment import Refusal

        arguments = arguments_of(call)
        question = arguments.get("question", "") if isinstance(arguments, dict) else ""
        options = [{"label": choice, "description": ""} for choice in question_choices(call)]
        form = {"question": question, "header": "", "options": options, "multiSelect": False}
        if self.silent or self._gone:
            return "headless"
        try:
            answer = await self.ask(
                "can_use_tool",
                tool_name="AskUserQuestion",
                input={"questions": [form]},
                tool_use_id=call.id,
                decision_reason=question,
                permission_suggestions=[],
            )
        except ClientError:
            return "headless"
        changed = answer.get("updatedInput")
        answers = changed.get("answers") if isinstance(changed, dict) else None
        words = ", ".join(map(str, answers.values())) if isinstance(answers, dict) else ""
        words = words or str(answer.get("message") or "")
        return Refusal(feedback=words) if words.strip() else "no"

    async def _ask_about_plan(self, call: Call) -> Permission:
        """Ask whether a plan is carried out, in the form of Claude Code's ExitPlanMode, and return
        the answer. A yes that sets the mode acceptEdits accepts edits too.
        """
        from fugu_cli.engine.environment import Refusal

        arguments = arguments_of(call)
        plan = arguments.get("plan", "") if isinstance(arguments, dict) else ""
        if self.silent or self._gone:
            return "headless"
        try:
            answer = await self.ask(
                "can_use_tool",
                tool_name="ExitPlanMode",
                input={"plan": plan},
                tool_use_id=call.id,
                decision_reason="the plan is ready",
                permission_suggestions=[ACCEPT_EDITS],
            )
        except ClientError:
            return "headless"
        if answer.get("behavior") == "allow":
            updates = answer.get("updatedPermissions")
            accepts_edits = isinstance(updates, list) and any(
                isinstance(update, dict) and update.get("mode") == ACCEPT_EDITS["mode"]
                for update in updates
            )
            return "session" if accepts_edits else "once"
        feedback = answer.get("message")
        if isinstance(feedback, str) and feedback.strip():
            return Refusal(feedback=feedback)
        return "no"

    async def relay(self, server: str, message: Object) -> object:
        """Send an MCP message to a server inside the client (mcp_client.Relay)."""
        try:
            return (await self.ask("mcp_message", server_name=server, message=message)).get(
                "mcp_response"
            )
        except ClientError:
            return None

    async def call_hook(self, id: str, hook_input: Object) -> dict[str, Any]:
        """Call a hook inside the client and return its answer. Raises ClientError."""
        return await self.ask(
            "hook_callback",
            callback_id=id,
            input=hook_input,
            tool_use_id=hook_input.get("tool_use_id"),
        )

    async def ask(self, subtype: str, **request: Any) -> dict[str, Any]:
        """Send a control request, and wait for its answer. Raises ClientError."""
        if self._gone:
            raise ClientError("the client is gone")
        name = f"fugu_{next(self._numbers)}"
        answer = self._open[name] = asyncio.get_running_loop().create_future()
        self._send(
            {
                "type": "control_request",
                "request_id": name,
                "request": {"subtype": subtype, **request},
            }
        )
        try:
            reply: dict[str, Any] = await answer
            return reply
        except asyncio.CancelledError:
            # the request was interrupted
            self._send({"type": "control_cancel_request", "request_id": name})
            raise
        finally:
            del self._open[name]

    def answered(self, response: object) -> None:
        """Handle an answer of the client. An unreadable one is an error."""
        fields = response if isinstance(response, dict) else {}
        answer = self._open.get(str(fields.get("request_id")))
        if answer is None or answer.done():
            return
        reply = fields.get("response")
        if fields.get("subtype") == "success" and isinstance(reply, dict):
            answer.set_result(reply)
        else:
            answer.set_exception(ClientError(str(fields.get("error") or "")))

    def withdraw(self) -> None:
        """Fail all open questions: the client is gone."""
        self._gone = True
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(ClientError("the client is gone"))


@dataclass
class SdkConversation:
    """A conversation with one client. Requests wait for one another; control requests are answered
    at once.
    """

    flags: SdkFlags
    answers: TextIO
    stream: SessionStream = field(init=False)
    questions: ClientQuestions = field(init=False)
    _waiting: asyncio.Queue[Object | None] = field(default_factory=asyncio.Queue)
    _steering: list[asyncio.Task[None]] = field(default_factory=list)
    _code: int = 0
    _begun: bool = False
    _stopped: bool = False

    async def run(self, loaded: LoadedConfig, source: int) -> int:
        """Serve until the file descriptor `source` ends and its last line is answered. Return the
        exit code.

        Raises FuguError if no session can be opened.
        """
        self.questions = ClientQuestions(self._send)
        self.stream = SessionStream(
            self._send,
            lambda *question: self.questions.permission(self.stream, *question),
            partial=self.flags.partial,
            relay=self.questions.relay,
        )
        self.questions.silent = self.flags.prompt_tool is None or self.flags.mode == "dontAsk"
        resumed = self.flags.resume or ("latest" if self.flags.go_on else None)
        try:
            await self.stream.open(loaded, os.environ, resumed, fork=self.flags.fork_session)
        except FuguError as error:
            self._send(json_output.refused_object(error, "failed", 0))
            raise
        for note in self.stream.session.notes():
            say(note)
        loop = asyncio.get_running_loop()
        signals.call_on_signals(loop, self._stop)
        call_when_reader_leaves(loop, self.answers.fileno(), self._client_left)
        queue: asyncio.Queue[str] = asyncio.Queue()
        threading.Thread(target=_read_lines, args=(source, loop, queue), daemon=True).start()
        working = asyncio.create_task(self._work())
        try:
            while line := await _next_line(queue, working):
                self._handle_line(line)
            await asyncio.gather(*self._steering)
            self._leave()
            await working
        finally:
            working.cancel()
            await self.stream.close()
        code = ABORTED if self._stopped else self._code
        signals.exit_on_signals(loop, code)
        return code

    async def _work(self) -> None:
        """Run the requests one after the other."""
        while (message := await self._waiting.get()) is not None:
            if not self._begun:
                self._begun = True
                self._send(init_of(self.stream.session))
            try:
                result = await self.stream.request(await asyncio.to_thread(self._request, message))
            except FuguError as error:
                result = json_output.refused_object(error, "failed", 0, self.stream.id)
            own = result.get("fugu")
            self._code = json_output.exit_code(str(own["reason"])) if isinstance(own, dict) else 2
            self._send(result)

    def _stop(self) -> None:
        """Handle Ctrl-C or SIGTERM: end everything, at the second signal leave at once."""
        if self._stopped:
            os._exit(ABORTED)
        self._stopped = True
        self._leave()
        self.stream.work.interrupt()

    def _client_left(self) -> None:
        """End the running work, since nobody reads the answers any more. A silent command ends too."""
        if not self._stopped:
            self._stop()

    def _leave(self) -> None:
        """Finish the waiting requests and take no more."""
        self.questions.withdraw()
        self._waiting.put_nowait(None)

    # Lines of the client.

    def _handle_line(self, line: str) -> None:
        if not line.strip():
            return
        try:
            message = parse_json(line)
        except ValueError:
            message = None
        message_type = message.get("type") if isinstance(message, dict) else None
        match message_type:
            case "user":
                if self.stream.is_working and message.get("priority", "next") == "next":
                    self._steering.append(asyncio.create_task(self._steer(message)))
                else:
                    self._waiting.put_nowait(message)
            case "control_request":
                self._answer_control(message)
            case "control_response":
                self.questions.answered(message.get("response"))
            case "keep_alive" | "control_cancel_request":
                pass
            case _:
                say(
                    f"a line of standard input is no message of the protocol and was left out: "
                    f"{line.strip()[:80]!r}"
                )

    async def _steer(self, message: Object) -> None:
        """Give a message to the agents at work. If they have just ended, it becomes a request."""
        try:
            request = await asyncio.to_thread(self._request, message)
            if await self.stream.work.steer(request) is not None:
                self._waiting.put_nowait(message)
        except FuguError as error:
            self._send(json_output.steering_refused_object(error, self.stream.id))

    def _answer_control(self, message: Object) -> None:
        request = message.get("request")
        answer: Object = {"request_id": message.get("request_id")}
        try:
            done = self._control(request if isinstance(request, dict) else {})
            answer |= {"subtype": "success", "response": done}
        except FuguError as error:
            answer |= {
                "subtype": "error",
                "error": "; ".join(filter(None, (str(error), error.hint))),
            }
        self._send({"type": "control_response", "response": answer})

    def _control(self, request: Object) -> Object:
        """Carry out a control request. Raises FuguError."""
        session = self.stream.session
        match request.get("subtype"):
            case "initialize":
                if request.get("agents"):
                    raise UsageError(AGENTS)
                self._add_hooks(request.get("hooks"))
                return self._greeting()
            case "interrupt":
                self.stream.work.interrupt()
            case "set_permission_mode":
                name = str(request.get("mode"))
                if name not in MODES:
                    raise UsageError(
                        f"there is no mode {request.get('mode')!r}",
                        hint=f"there are {', '.join(MODES)}",
                    )
                session.set_mode(MODES[name])
                self.questions.silent = self.flags.prompt_tool is None or name == "dontAsk"
            case "set_model":
                model = request.get("model")
                agent = None
                if model not in (None, "default"):
                    members = session.team.members
                    pool = {name: member.model for name, member in members.items()}
                    agent = named_agent(str(model), pool)
                self.stream.work.pin(agent)
            case "mcp_status":
                servers = session.servers.names if session.servers is not None else ()
                return {"mcpServers": [{"name": name, "status": "pending"} for name in servers]}
            case subtype:
                raise UsageError(f"fugu does not know the control request {subtype!r}")
        return {}

    def _add_hooks(self, declared: object) -> None:
        """Add the client's hooks after those of files. Raises UsageError for an unknown event."""
        from fugu_cli.extension_wiring import build_hooks

        session = self.stream.session
        if added := client_hooks(declared):
            current = session.environment.hooks
            of_files = current.runner.declared if current is not None else DeclaredHooks()
            code = current.runner.code if current is not None else None
            combined = DeclaredHooks((*of_files.hooks, *added), of_files.notes)
            hooks = build_hooks(
                combined, session.config, session.log, code, self.questions.call_hook
            )
            session.environment = replace(session.environment, hooks=hooks)

    def _greeting(self) -> Object:
        session = self.stream.session
        commands = [
            {"name": command.name, "description": command.about, "argumentHint": command.hint}
            for command in session.library.commands
        ]
        models = [
            {"value": name, "displayName": name, "description": member.description or member.model}
            for name, member in session.team.members.items()
        ]
        auto = {"value": "default", "displayName": "fugu", "description": "the coordinator decides"}
        return {
            "commands": commands,
            "models": [auto, *models],
            "output_style": "default",
            "available_output_styles": ["default"],
            "account": {},
            "pid": os.getpid(),
            "hook_on_failure_supported": True,
            "fugu_version": __version__,
        }

    # Requests.

    def _request(self, message: Object) -> QueuedRequest:
        """Return the request of a message. Raises UsageError. Runs in a thread, because it may read
        files.
        """
        inner = message.get("message")
        content = inner.get("content") if isinstance(inner, dict) else None
        text, media = _read_content(content)
        parse_headless_request(text, self.stream.session.library)
        return replace(request_from_text(self.stream.session, text), media=media)

    def _send(self, message: Object) -> None:
        try:
            self.answers.write(json_output.json_line(message) + "\n")
        except BrokenPipeError:
            self._client_left()


class _HookGroup(BaseModel, extra="ignore"):
    matcher: str | None = None
    hookCallbackIds: list[str] = []
    timeout: Annotated[float, Field(gt=0)] | None = None
    onFailure: str | None = None


def client_hooks(declared: object) -> tuple[Hook, ...]:
    """Return the hooks that a client names at its start. Raises UsageError for an unknown event or
    an invalid hook.
    """
    try:
        groups = TypeAdapter(dict[str, list[_HookGroup]]).validate_python(declared or {})
        for group in itertools.chain(*groups.values()):
            re.compile(group.matcher or "")
    except (ValidationError, re.error) as error:
        raise UsageError(
            f"the hooks of the SDK cannot be read: {str(error).splitlines()[0]}"
        ) from error
    for event in groups:
        if event not in HOOK_EVENTS:
            raise UsageError(
                f"fugu has no hooks for {event}", hint=f"there are {', '.join(HOOK_EVENTS)}"
            )
        for group in groups[event]:
            if event != GUARD_EVENT and group.onFailure not in (None, "continue"):
                raise UsageError(
                    f"of the hooks of an SDK those for {GUARD_EVENT} alone can block where they "
                    "fail"
                )
    hooks = []
    for event in HOOK_EVENTS:
        for group in groups.get(event, ()):
            for callback in group.hookCallbackIds:
                hook = Hook(
                    moment=event,
                    matcher=group.matcher or "",
                    callback=callback,
                    timeout=group.timeout or DEFAULT_TIMEOUT,
                    source="the SDK",
                    own=True,
                )
                hooks.append(hook)
    return tuple(hooks)


def _read_content(content: object) -> tuple[str, tuple[Media, ...]]:
    """Return the text and pictures of a message. Raises UsageError."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts: list[str] = []
    media: list[Media] = []
    for block in blocks if isinstance(blocks, list) else [None]:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {
                "type": "image" | "document",
                "source": {"type": "base64", "data": str(data), "media_type": str(media_type)},
            }:
                try:
                    media.append(take_base64(data, "the picture", media_type))
                except NotTaken as fault:
                    raise UsageError(str(fault), hint="send another picture") from fault
            case _:
                raise UsageError(
                    "a message holds something else than text and pictures", hint="send those"
                )
    text = "\n\n".join(texts)
    if not text.strip():
        raise UsageError("the message says nothing", hint="write what is to be done")
    return text, tuple(media)


def _read_lines(source: int, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[str]) -> None:
    """Put each line of `source` into the queue, and "" at its end.

    This is a thread of its own, because nothing else reads pipes, files and terminals alike. It
    holds no lock while it waits, so that the process can end meanwhile.
    """
    begun = b""
    try:
        while piece := os.read(source, 65536):
            *lines, begun = (begun + piece).split(b"\n")
            for line in lines:
                loop.call_soon_threadsafe(queue.put_nowait, line.decode("utf-8", "replace") + "\n")
        for line in (begun, b""):
            loop.call_soon_threadsafe(queue.put_nowait, line.decode("utf-8", "replace"))
    except (RuntimeError, OSError):  # the loop or the stream is closed: nobody listens
        return


async def _next_line(queue: asyncio.Queue[str], working: asyncio.Task[None]) -> str:
    """Return the next line, "" if the work ended first."""
    line = asyncio.ensure_future(queue.get())
    await asyncio.wait({line, working}, return_when=asyncio.FIRST_COMPLETED)
    if line.done():
        return line.result()
    line.cancel()
    return ""
