"""What an editor can set in a session, and what it gives: modes, options, commands, MCP servers.
Values of the protocol from those of fugu, and back.
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

from fugu_cli.app.modes import AUTO, MODE_HELP, all_modes, effort_named
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
"""Commands of fugu's own that an editor has as well; a prompt that is one of these runs it."""


def mode_state(session: SessionProtocol) -> SessionModeState:
    """The permission modes, and the one that holds."""
    modes = [
        SessionMode(id=name, name=name, description=about) for name, about in MODE_HELP.items()
    ]
    return SessionModeState(current_mode_id=session.environment.rules.mode, available_modes=modes)


def config_options(session: SessionProtocol, pinned: str | None) -> list[SessionConfigOptionSelect]:
    """The options of a session with the values that hold: mode, agent, tier, effort."""
    agents = {AUTO: "the coordinator decides"}
    agents |= {
        name: member.description or member.model for name, member in session.team.members.items()
    }
    efforts = {AUTO: "what each agent's entry says"} | dict.fromkeys(EFFORTS, "")
    return [
        _select("mode", "Permission mode", MODE_HELP, session.environment.rules.mode),
        _select("agent", "Agent", agents, pinned or AUTO),
        _select("tier", "Tier", TIERS, session.tier),
        _select("effort", "Effort", efforts, session.effort or AUTO),
    ]


def set_option(work: RequestQueue, name: str, value: str) -> None:
    """Another value of one of these options. Raises UsageError for a name or a value that there is
    not.
    """
    session = work.session
    assert session is not None
    if name == "mode":
        chosen = next((mode for mode in all_modes() if mode == value), None)
        if chosen is None:
            raise UsageError(
                f"there is no mode {value!r}", hint=f"there are {', '.join(MODE_HELP)}"
            )
        session.set_mode(chosen)
    elif name == "agent":
        members = session.team.members
        if value not in (AUTO, *members):
            raise UsageError(
                f"there is no agent {value!r}", hint=f"there are {AUTO}, {', '.join(members)}"
            )
        work.pin(None if value == AUTO else value)
    elif name == "tier":
        session.set_tier(value)
    elif name == "effort":
        session.effort = effort_named(value)
    else:
        raise UsageError(
            f"there is no option {name!r}", hint="there are mode, agent, tier and effort"
        )


_CATEGORIES: dict[str, Literal["mode", "model"]] = {"mode": "mode", "agent": "model"}


def _select(id: str, name: str, values: dict[str, str], now: str) -> SessionConfigOptionSelect:
    options = [
        SessionConfigSelectOption(value=value, name=value, description=about or None)
        for value, about in values.items()
    ]
    return SessionConfigOptionSelect(
        type="select",
        id=id,
        name=name,
        category=_CATEGORIES.get(id),
        current_value=now,
        options=options,
    )


def available_commands(library: SkillLibrary) -> list[AvailableCommand]:
    """The user's and the repository's commands, skills, and the few of fugu's own."""
    found = [_command(name, about) for name, about in COMMANDS.items()]
    found += [_command(command.name, command.about, command.hint) for command in library.commands]
    if library.skills:
        names = ", ".join(skill.name for skill in library.skills)
        found.append(
            _command(SKILL_COMMAND, f"follow a skill: {names}", "NAME, and what is to be done")
        )
    return found


def _command(name: str, about: str, hint: str = "") -> AvailableCommand:
    given = AvailableCommandInput(root=UnstructuredCommandInput(hint=hint)) if hint else None
    return AvailableCommand(name=name, description=about, input=given)


def given_servers(given: Sequence[GivenServer]) -> tuple[McpServer, ...]:
    """The MCP servers that the editor names: the user's own choice, like those of `~/.mcp.json`.
    Raises UsageError for one that cannot be started."""
    return tuple(_server(one) for one in given)


def _server(given: GivenServer) -> McpServer:
    way: StdioServer | RemoteServer
    match given:
        case McpServerStdio():
            env = {one.name: one.value for one in given.env}
            way = StdioServer(command=given.command, args=tuple(given.args), env=env)
            words = (given.command, *given.args, *env, *env.values())
            if not given.command.strip() or any(not name or "=" in name for name in env):
                raise UsageError(
                    f"the MCP server {given.name!r} has no command, or a variable without a "
                    f"proper name"
                )
        case HttpMcpServer() | SseMcpServer():
            headers = {one.name: one.value for one in given.headers}
            way = RemoteServer(kind=given.type, url=given.url, headers=headers)
            words = (given.url, *headers, *headers.values())
            if not given.url.startswith(("http://", "https://")):
                raise UsageError(
                    f"the address of the MCP server {given.name!r} begins with neither http:// "
                    f"nor https://"
                )
        case _:
            raise UsageError(
                f"the MCP server {given.name!r} runs inside the editor",
                hint="name one that is a program or an address",
            )
    if any("\0" in word for word in words):
        raise UsageError(f"the entry of the MCP server {given.name!r} holds a NUL character")
    return McpServer(name=given.name, source="the editor", way=way)
