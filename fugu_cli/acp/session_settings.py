"""The settings of a session as the protocol's values: modes, options, commands, and the editor's
MCP servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from acp.schema import (
    AcpMcpServer,
    AvailableCommand,
    AvailableCommandInput,
    HttpMcpServer,
    McpServerStdio,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    SseMcpServer,
    UnstructuredCommandInput,
)

from fugu_cli.app.modes import AUTO, MODE_HELP, all_modes, effort_named, modes_up_to
from fugu_cli.errors import UsageError
from fugu_cli.extensions.mcp_settings import McpServer, RemoteServer, StdioServer
from fugu_cli.extensions.skill_library import SKILL_COMMAND, SkillLibrary
from fugu_cli.messages import EFFORTS

if TYPE_CHECKING:
    from fugu_cli.app.request_queue import RequestQueue
    from fugu_cli.app.session_protocol import SessionProtocol

TIERS = {"fugu": "an agent is chosen turn by turn", "ultra": "a workflow is planned first"}
GivenServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
COMMANDS = {
    "continue": "resume an interrupted request",
    "undo": "take the newest request's changes back",
    "redo": "bring back what was undone",
    "compact": "sum up what was said; agents read the summary from then on",
}
"""fugu's own commands that a prompt in an editor can run."""


def mode_state(session: SessionProtocol) -> SessionModeState:
    """Return the permission modes that the administrator allows, and the current one."""
    rules = session.environment.rules
    modes = [
        SessionMode(id=mode, name=mode, description=MODE_HELP[mode])
        for mode in modes_up_to(rules.loosest_mode)
    ]
    return SessionModeState(current_mode_id=rules.mode, available_modes=modes)


def config_options(session: SessionProtocol, pinned: str | None) -> list[SessionConfigOptionSelect]:
    """Return the options of a session with their current values: mode, agent, tier, effort."""
    rules = session.environment.rules
    modes: dict[str, str] = {mode: MODE_HELP[mode] for mode in modes_up_to(rules.loosest_mode)}
    agents = {AUTO: "the coordinator decides"}
    agents |= {
        name: member.description or member.model for name, member in session.team.members.items()
    }
    efforts = {AUTO: "what each agent's entry says"} | dict.fromkeys(EFFORTS, "")
    return [
        _select("mode", "Permission mode", modes, rules.mode),
        _select("agent", "Agent", agents, pinned or AUTO),
        _select("tier", "Tier", TIERS, session.tier),
        _select("effort", "Effort", efforts, session.effort or AUTO),
    ]


def set_option(queue: RequestQueue, name: str, value: str) -> None:
    """Set one of these options. Raises UsageError for an unknown name or value."""
    session = queue.session
    assert session is not None
    if name == "mode":
        new_mode = next((mode for mode in all_modes() if mode == value), None)
        if new_mode is None:
            raise UsageError(
                f"there is no mode {value!r}", hint=f"there are {', '.join(MODE_HELP)}"
            )
        session.set_mode(new_mode)
    elif name == "agent":
        members = session.team.members
        if value not in (AUTO, *members):
            raise UsageError(
                f"there is no agent {value!r}", hint=f"there are {AUTO}, {', '.join(members)}"
            )
        queue.pin(None if value == AUTO else value)
    elif name == "tier":
        session.set_tier(value)
    elif name == "effort":
        session.effort = effort_named(value)
    else:
        raise UsageError(
            f"there is no option {name!r}", hint="there are mode, agent, tier and effort"
        )


def restore_mode(queue: RequestQueue) -> None:
    """Set the mode of the session's newest request, where it allows less than the present one."""
    session = queue.session
    assert session is not None
    request = session.log.state.request.asked
    modes = all_modes()
    if request is not None and request.mode in modes[: modes.index(session.environment.rules.mode)]:
        set_option(queue, "mode", request.mode)


_CATEGORIES: dict[str, Literal["mode", "model"]] = {"mode": "mode", "agent": "model"}


def _select(id: str, name: str, values: dict[str, str], current: str) -> SessionConfigOptionSelect:
    options = [
        SessionConfigSelectOption(value=value, name=value, description=about or None)
        for value, about in values.items()
    ]
    return SessionConfigOptionSelect(
        type="select",
        id=id,
        name=name,
        category=_CATEGORIES.get(id),
        current_value=current,
        options=options,
    )


def available_commands(library: SkillLibrary) -> list[AvailableCommand]:
    """Return the user's and the repository's commands, skills, and some of fugu's own."""
    commands = [_command(name, about) for name, about in COMMANDS.items()]
    commands += [
        _command(command.name, command.about, command.hint) for command in library.commands
    ]
    if library.skills:
        names = ", ".join(skill.name for skill in library.skills)
        commands.append(
            _command(SKILL_COMMAND, f"follow a skill: {names}", "NAME, and what is to be done")
        )
    return commands


def _command(name: str, about: str, hint: str = "") -> AvailableCommand:
    command_input = (
        AvailableCommandInput(root=UnstructuredCommandInput(hint=hint)) if hint else None
    )
    return AvailableCommand(name=name, description=about, input=command_input)


def given_servers(servers: Sequence[GivenServer]) -> tuple[McpServer, ...]:
    """Return the MCP servers that the editor names. Like those of `~/.mcp.json`, they are the
    user's own choice.

    Raises UsageError for a server that cannot be started.
    """
    return tuple(_server(server) for server in servers)


def _server(server: GivenServer) -> McpServer:
    transport: StdioServer | RemoteServer
    match server:
        case McpServerStdio():
            env = {variable.name: variable.value for variable in server.env}
            transport = StdioServer(command=server.command, args=tuple(server.args), env=env)
            texts = (server.command, *server.args, *env, *env.values())
            if not server.command.strip() or any(not name or "=" in name for name in env):
                raise UsageError(
                    f"the MCP server {server.name!r} has no command, or a variable without a "
                    f"proper name"
                )
        case HttpMcpServer() | SseMcpServer():
            headers = {header.name: header.value for header in server.headers}
            transport = RemoteServer(kind=server.type, url=server.url, headers=headers)
            texts = (server.url, *headers, *headers.values())
            if not server.url.startswith(("http://", "https://")):
                raise UsageError(
                    f"the address of the MCP server {server.name!r} begins with neither http:// "
                    f"nor https://"
                )
        case _:
            raise UsageError(
                f"the MCP server {server.name!r} runs inside the editor",
                hint="name one that is a program or an address",
            )
    if any("\0" in text for text in texts):
        raise UsageError(f"the entry of the MCP server {server.name!r} holds a NUL character")
    return McpServer(name=server.name, source="the editor", way=transport)
