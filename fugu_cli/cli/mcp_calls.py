"""The tools of `fugu mcp serve`: their descriptions, their arguments, and their calls.

Every call that asks a model is a session of its own, opened as `fugu run` opens one. A client
chooses neither the permission mode nor a folder outside those that are open to it, and limits of
its calls only lower the user's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolResult,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel, Field, ValidationError

from fugu_cli.app.request_queue import request_from_text
from fugu_cli.cli.agent_answers import answering_config
from fugu_cli.cli.current_folder import check_embedded, current_config, current_path, say
from fugu_cli.cli.flags import settings_of
from fugu_cli.cli.mcp_client_questions import CallingClient
from fugu_cli.cli.review import review_change
from fugu_cli.cli.session_stream import SessionStream
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.config.loader import repository
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.extensions.skill_library import parse_headless_request
from fugu_cli.formatting import flatten, plural, sanitize
from fugu_cli.safety.paths import is_folder
from fugu_cli.safety.process_cleanup import CALL_VARIABLE
from fugu_cli.session import store
from fugu_cli.session.events import Permitted
from fugu_cli.session.state import SessionState
from fugu_cli.ui.review_report import review_object, review_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp.server.context import ServerRequestContext
    from mcp_types import CallToolRequestParams, PaginatedRequestParams

    from fugu_cli.cli.command_flags import McpServeFlags
    from fugu_cli.config.loader import LoadedConfig
    from fugu_cli.session.request_state import RequestState
    from fugu_cli.ui.json_output import Object

MOST_CALLS = 8
"""Calls that are carried out at the same time."""
MOST_SESSIONS = 50
"""Sessions of a list."""
LONGEST_CONVERSATION = 50_000
"""Characters of a session that a client reads. Of a longer one it reads the end."""
RESULT_KEYS = ("subtype", "is_error", "session_id", "num_turns", "total_cost_usd")
"""Fields of the result of `fugu run --output-format json` that a client gets, beside the answer."""
FUGU_KEYS = ("reason", "message", "end", "verified_by", "tests", "changed", "ignored")

Returned = TypeVar("Returned")
Folder = Annotated[
    str,
    Field(description="The folder to work in, as an absolute path. Default: the one that is open."),
]


class RunArguments(BaseModel, extra="forbid"):
    """The arguments of `run`."""

    prompt: Annotated[
        str,
        Field(min_length=1, description="What to do, with everything fugu has to know about it."),
    ]
    cwd: Folder = ""
    session_id: Annotated[
        str, Field(description="Go on with this session of the folder. Default: a new one.")
    ] = ""
    agent: Annotated[
        str, Field(description="The agent that takes every turn. Default: fugu chooses.")
    ] = ""
    plan: Annotated[bool, Field(description="Make a plan and change nothing.")] = False
    max_turns: Annotated[int | None, Field(ge=1, description="Turns of agents at most.")] = None
    max_budget_usd: Annotated[float | None, Field(gt=0, description="US dollars at most.")] = None


class ReviewArguments(BaseModel, extra="forbid"):
    """The arguments of `review`."""

    cwd: Folder = ""
    base: Annotated[
        str,
        Field(description="Review what changed since this commit or branch. Default: HEAD."),
    ] = ""
    agent: Annotated[str, Field(description="The agent that looks for faults.")] = ""


class AskArguments(BaseModel, extra="forbid"):
    """The arguments of `ask_agent`."""

    agent: Annotated[str, Field(min_length=1, description="The agent's name.")]
    question: Annotated[
        str, Field(min_length=1, description="The question. The agent may read the repository.")
    ]
    cwd: Folder = ""


class SessionsArguments(BaseModel, extra="forbid"):
    """The arguments of `sessions`."""

    cwd: Folder = ""
    session_id: Annotated[
        str, Field(description="Return this session's requests and answers. Default: a list.")
    ] = ""


class ServedTools:
    """The tools of one client, and its running calls."""

    def __init__(self, flags: McpServeFlags) -> None:
        self._flags = flags
        self._folder = current_path()
        self._running = 0
        self._working_in: dict[Path, str] = {}
        """The session id of the `run` at work in each repository, "" until it is open."""

    async def list_tools(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """Return the tools. The pool in their descriptions is that of the server's folder."""
        del context, params
        agents = await asyncio.to_thread(self._describe_agents)
        return ListToolsResult(
            tools=[
                _tool(
                    "run",
                    "Let fugu's agents carry out a coding task in the user's repository: they "
                    "read, edit, run commands and tests, and another agent checks the result. "
                    "Returns the answer, the changed files and the session's id. It may take "
                    "minutes.",
                    RunArguments,
                    reads=False,
                ),
                _tool(
                    "review",
                    "Review the uncommitted change of the repository, or the change since a "
                    "commit. A second agent confirms each finding. Changes nothing.",
                    ReviewArguments,
                ),
                _tool(
                    "ask_agent",
                    f"Ask one agent of fugu's pool a question about the repository, for a second "
                    f"opinion. It may read files and changes nothing. Agents: {agents}",
                    AskArguments,
                ),
                _tool(
                    "sessions",
                    "List fugu's sessions in the repository, newest first, or read one.",
                    SessionsArguments,
                ),
            ]
        )

    async def call_tool(
        self, context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        """Carry out a call. Wrong arguments and FuguErrors become results that say what is wrong."""
        client = CallingClient(context.session)
        arguments = params.arguments or {}
        try:
            match params.name:
                case "run":
                    work = self._run(client, RunArguments.model_validate(arguments))
                case "review":
                    work = self._review(client, ReviewArguments.model_validate(arguments))
                case "ask_agent":
                    work = self._ask(client, AskArguments.model_validate(arguments))
                case "sessions":
                    work = self._sessions(client, SessionsArguments.model_validate(arguments))
                case name:
                    raise MCPError(code=INVALID_PARAMS, message=f"there is no tool {name!r}")
        except ValidationError as error:
            return _failure(f"the arguments of {params.name} are wrong: {_describe_faults(error)}")
        if self._running >= MOST_CALLS:
            work.close()
            return _failure(
                f"{MOST_CALLS} calls are being carried out; wait until one of them has ended"
            )
        self._running += 1
        try:
            return await _finish_call(work, client)
        except FuguError as error:
            return _failure("; ".join(part for part in (str(error), error.hint) if part))
        finally:
            self._running -= 1

    async def _run(self, client: CallingClient, arguments: RunArguments) -> CallToolResult:
        _check_not_nested()
        settings: dict[str, Any] = {"permission_mode": "plan"} if arguments.plan else {}
        loaded = await self._load_for_call(client, arguments.cwd, arguments.agent, settings)
        loaded = _lower_limits(loaded, arguments)
        session_id = arguments.session_id
        if session_id:
            _session_path(loaded, session_id)  # raises if there is no such session
        with self._reserve_repository(loaded.root) as set_session:
            return await self._carry_out(client, loaded, arguments.prompt, session_id, set_session)

    async def _review(self, client: CallingClient, arguments: ReviewArguments) -> CallToolResult:
        _check_not_nested()
        loaded = await self._load_for_call(client, arguments.cwd, "")
        agent = self._checked_agent(loaded, arguments.agent)
        await client.tell("looking for what is wrong with the change")
        review = await review_change(loaded, loaded.root, arguments.base or None, agent)
        return _success(review_text(review), review_object(review))

    async def _ask(self, client: CallingClient, arguments: AskArguments) -> CallToolResult:
        _check_not_nested()
        loaded = await self._load_for_call(client, arguments.cwd, arguments.agent)
        loaded = answering_config(loaded, arguments.agent)
        return await self._carry_out(client, loaded, arguments.question)

    async def _sessions(
        self, client: CallingClient, arguments: SessionsArguments
    ) -> CallToolResult:
        loaded = await self._load_for_call(client, arguments.cwd, "")
        if arguments.session_id:
            path = _session_path(loaded, arguments.session_id)
            return await asyncio.to_thread(_read_session, path)
        return await asyncio.to_thread(_list_sessions, loaded)

    async def _carry_out(
        self,
        client: CallingClient,
        loaded: LoadedConfig,
        prompt: str,
        session_id: str = "",
        on_opened: Callable[[str], None] = lambda _: None,
    ) -> CallToolResult:
        """Carry a request out in a session, and close it. `on_opened` is called with the session's
        id.
        """
        notes = await asyncio.to_thread(check_embedded, loaded.config, os.environ)
        stream = SessionStream(lambda _: None, partial(client.ask_permission, loaded.root))
        await stream.open(loaded, os.environ, session_id or None)
        session = stream.session
        if session.servers is not None:
            session.servers.answer = client.answer_server
        on_opened(stream.id)
        for note in (*notes, *session.notes()):
            say(note)
        telling = asyncio.create_task(client.tell_progress(session.log))
        try:
            parse_headless_request(prompt, session.library)
            request = await asyncio.to_thread(request_from_text, session, prompt)
            result = await stream.request(request)
        finally:
            await stream.close()
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        nobody_asked = any(
            isinstance(event, Permitted) and event.by == "headless"
            for event in session.log.state.request.events
        )
        return _request_result(result, nobody_asked=nobody_asked)

    async def _load_for_call(
        self,
        client: CallingClient,
        cwd: str,
        agent: str,
        settings: Mapping[str, Any] | None = None,
    ) -> LoadedConfig:
        """Return the configuration of a folder that the client may name. Raises FuguError."""
        folder = _chosen_folder(await self._open_folders(client), self._folder, cwd)
        loaded = await asyncio.to_thread(self._read_config, folder, settings or {})
        name = self._checked_agent(loaded, agent)
        if not name:
            return loaded
        config = loaded.config.model_copy(update={"coordinator": f"single:{name}"})
        return replace(loaded, config=config)

    def _read_config(self, folder: Path, settings: Mapping[str, Any]) -> LoadedConfig:
        flags = self._flags
        return current_config(
            {**settings_of(flags), **settings},
            trust=flags.trust,
            appended=flags.append_system_prompt,
            folder=folder,
        )

    async def _open_folders(self, client: CallingClient) -> list[Path]:
        """Return the folders that are open to the client: its own roots, or the repository in which
        the server was started. Raises UsageError if no root is a folder here.
        """
        roots = await client.roots()
        if roots is None:
            return [repository(self._folder)]
        folders = [path.resolve() for path in roots if is_folder(path)]
        if not folders:
            raise UsageError(
                "no root of the client is a folder on this machine",
                hint="open the folder in the client, or start one that names no roots",
            )
        return folders

    def _checked_agent(self, loaded: LoadedConfig, agent: str) -> str:
        """Return the agent that a call names. Raises UsageError if the call may not use it."""
        if not agent:
            return ""
        names = [
            entry.name
            for entry in usable_pool(loaded.config, os.environ)
            if entry.name not in loaded.config.opt_out
        ]
        if self._flags.agent and agent != self._flags.agent:
            raise UsageError(
                f"this server was started for the agent {self._flags.agent} alone",
                hint="leave `agent` out",
            )
        if agent not in names:
            raise UsageError(
                f"there is no agent {agent!r} that may work here",
                hint=f"there are {', '.join(names)}",
            )
        return agent

    def _describe_agents(self) -> str:
        try:
            config = self._read_config(self._folder, {}).config
            entries = usable_pool(config, os.environ)
        except FuguError:
            return "`fugu pool` names them"
        names = [f"{entry.name} ({entry.model})" for entry in entries]
        return flatten(", ".join(names), 2000)

    @contextmanager
    def _reserve_repository(self, root: Path) -> Iterator[Callable[[str], None]]:
        """Keep other calls of `run` out of the repository in the block, because two would change the
        same files. Yield a function that is called with the session's id. Raises UsageError if a
        `run` is at work there.
        """
        if root in self._working_in:
            session = self._working_in[root] or "that is just being opened"
            raise UsageError(
                f"the session {session} is at work in {root}",
                hint="call `run` again when it has ended; `ask_agent` and `review` work meanwhile",
            )
        self._working_in[root] = ""
        try:
            yield partial(self._working_in.__setitem__, root)
        finally:
            del self._working_in[root]


async def _finish_call(work: Coroutine[Any, Any, Returned], client: CallingClient) -> Returned:
    """Return the result of a call. A cancelled call ends its session and all processes first. The SDK
    would cancel that as well, so the work is a task of its own.
    """
    task = asyncio.create_task(work)
    repeating = asyncio.create_task(client.repeat_progress())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(task, return_exceptions=True)
        raise
    finally:
        repeating.cancel()


def _tool(name: str, description: str, arguments: type[BaseModel], *, reads: bool = True) -> Tool:
    return Tool(
        name=name,
        description=description,
        input_schema=arguments.model_json_schema(),
        annotations=ToolAnnotations(read_only_hint=reads, destructive_hint=not reads),
    )


def _check_not_nested() -> None:
    """Raise UsageError where a session of fugu started this server: its agents would call fugu,
    whose agents would call fugu again.
    """
    if CALL_VARIABLE in os.environ:
        raise UsageError(
            "a session of fugu started this server, and fugu does not call itself",
            hint="use the tools of your own session; its `task` tool gives work to another agent",
        )


def _chosen_folder(open_folders: list[Path], started_in: Path, cwd: str) -> Path:
    """Return the folder of a call. Raises UsageError unless the whole repository of that folder lies
    in an open folder.
    """
    names = ", ".join(map(str, open_folders))
    if cwd:
        folder = Path(cwd)
    elif len(open_folders) == 1:
        folder = open_folders[0]
    elif any(started_in.resolve().is_relative_to(path) for path in open_folders):
        folder = started_in
    else:
        raise UsageError(f"several folders are open: {names}", hint="name one of them as `cwd`")
    if "\0" in cwd or not folder.is_absolute() or not is_folder(folder):
        raise UsageError(
            f"{cwd} is not the absolute path of a folder", hint=f"open to this client: {names}"
        )
    root = repository(folder)
    if not any(root.is_relative_to(path) for path in open_folders):
        raise UsageError(
            f"{root} is outside the folders that are open to this client",
            hint=f"open are {names}; fugu works in whole repositories",
        )
    return folder.resolve()


def _lower_limits(loaded: LoadedConfig, arguments: RunArguments) -> LoadedConfig:
    """Return the configuration with the limits of the call where they are lower."""
    config = loaded.config
    changes: dict[str, Any] = {}
    if arguments.max_turns is not None:
        changes["max_turns"] = min(arguments.max_turns, config.max_turns)
    if arguments.max_budget_usd is not None:
        budgets = [arguments.max_budget_usd]
        if config.money.request is not None:
            budgets.append(config.money.request)
        changes["max_budget_usd"] = config.money.model_copy(update={"request": min(budgets)})
    return replace(loaded, config=config.model_copy(update=changes))


def _session_path(loaded: LoadedConfig, id: str) -> Path:
    """Return the log of a session of the folder. Raises UsageError."""
    for path in store.session_paths(loaded.config.data, loaded.root):
        if path.stem == id:
            return path
    raise UsageError(
        f"there is no session {id!r} in {loaded.root}", hint="the tool `sessions` lists them"
    )


def _list_sessions(loaded: LoadedConfig) -> CallToolResult:
    paths = store.session_paths(loaded.config.data, loaded.root)
    summaries = store.session_summaries(paths)
    lines = [
        f"{summary.id}  {summary.ended}  {plural(summary.requests, 'request')}  "
        f"{flatten(summary.title, 120)}"
        for summary in summaries[:MOST_SESSIONS]
    ]
    if len(summaries) > MOST_SESSIONS:
        lines.append(f"{len(summaries) - MOST_SESSIONS} older ones are left out")
    sessions = [
        {
            "session_id": summary.id,
            "title": summary.title,
            "state": summary.state,
            "requests": summary.requests,
            "started": summary.started,
            "newest": summary.newest,
            "total_cost_usd": summary.cost,
        }
        for summary in summaries[:MOST_SESSIONS]
    ]
    text = "\n".join(lines) or f"there are no sessions in {loaded.root}"
    return _success(text, {"sessions": sessions})


def _read_session(path: Path) -> CallToolResult:
    from fugu_cli.cli.current_folder import read_records

    state = SessionState.of_records(read_records(path))
    text = "\n\n".join(_conversation(request) for request in state.requests)
    if len(text) > LONGEST_CONVERSATION:
        left_out = len(text) - LONGEST_CONVERSATION
        text = f"[{left_out:,} earlier characters are left out]\n{text[-LONGEST_CONVERSATION:]}"
    fields = {
        "session_id": path.stem,
        "requests": len(state.requests),
        "total_cost_usd": state.cost,
        "conversation": text,
    }
    return _success(text, fields)


def _conversation(request: RequestState) -> str:
    parts = []
    if request.asked is not None:
        parts.append(f"User: {request.asked.said}")
    if request.changes:
        parts.append(f"[changed: {', '.join(sorted(request.changes))}]")
    if request.answer:
        parts.append(f"fugu: {request.answer}")
    end = request.finished
    if end is None:
        parts.append("[not finished]")
    elif end.reason not in ("accepted", "answered"):
        parts.append(f"[{end.reason}: {end.message}]" if end.message else f"[{end.reason}]")
    return "\n".join(parts)


def _request_result(result: Object, *, nobody_asked: bool) -> CallToolResult:
    """Return the answer to a request, and a line with the facts that the client's model needs. Some
    clients show their model only the structured content, so that has both as well. `nobody_asked`:
    a call was denied because the client shows no forms.
    """
    fugu = result.get("fugu")
    fields: Mapping[str, Any] = fugu if isinstance(fugu, dict) else {}
    errors = result.get("errors")
    answer = str(result.get("result") or "")
    if not answer and isinstance(errors, list):
        answer = "; ".join(map(str, errors))
    facts = [f"session {result['session_id']}"] if result.get("session_id") else []
    facts.append(str(fields.get("end") or fields.get("message") or fields.get("reason") or ""))
    if changed := fields.get("changed"):
        facts.append(f"changed {', '.join(changed)}")
    denials = result.get("permission_denials")
    if isinstance(denials, list) and denials:
        tools = ", ".join(dict.fromkeys(str(denial["tool_name"]) for denial in denials))
        facts.append(f"{plural(len(denials), 'call')} not allowed ({tools})")
    if nobody_asked:
        facts.append("this client cannot ask its user for approvals (elicitation)")
    if ignored := fields.get("ignored"):
        facts.append(f"ignored until the user runs `fugu trust`: {', '.join(ignored)}")
    line = "; ".join(fact for fact in facts if fact)
    structured = {
        "result": answer,
        "note": line,
        **{key: result[key] for key in RESULT_KEYS if key in result},
        "permission_denials": denials or [],
        "fugu": {key: fields[key] for key in FUGU_KEYS if key in fields},
    }
    text = f"{answer}\n\n[fugu: {line}]" if answer else f"[fugu: {line}]"
    return CallToolResult(
        content=[TextContent(type="text", text=sanitize(text))],
        structured_content=structured,
        is_error=bool(result.get("is_error")),
    )


def _success(text: str, structured: dict[str, Any]) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=sanitize(text))], structured_content=structured
    )


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=sanitize(text))], is_error=True)


def _describe_faults(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'they'}: {fault['msg']}" for fault in error.errors()
    )
