"""The `/` commands: their table, how a typed line finds its command and runs it, and the commands
about the screen. To add one, write the function in the file it fits and name it in COMMANDS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from fugu_cli.app.event_text import call_target, describe_call
from fugu_cli.app.modes import MODE_HELP, all_modes
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.extensions.skill_library import MCP_PROMPT, refuse_left_out
from fugu_cli.session.events import Replied, ToolRan
from fugu_cli.ui.blocks import NoteBlock
from fugu_cli.ui.tui import agent_commands, session_commands, themes
from fugu_cli.ui.tui.help_page import help_sections
from fugu_cli.ui.tui.screen_protocol import Choice
from fugu_cli.ui.tui.session_commands import diff_of_request
from fugu_cli.ui.tui.session_controller import choose_mode

if TYPE_CHECKING:
    from fugu_cli.safety.policy import Mode
    from fugu_cli.session.events import Event
    from fugu_cli.ui.tui.session_controller import SessionController

RunCommand = Callable[["SessionController", str], Awaitable[None]]
ArgumentValues = Callable[["SessionController"], Sequence[str]]


def no_values(controller: SessionController) -> Sequence[str]:
    """Return no completions."""
    del controller
    return ()


@dataclass(frozen=True)
class SlashCommand:
    """`usage` names its arguments ("" for none, [optional]), `values` what completes the first
    one.
    """

    name: str
    about: str
    run: RunCommand
    usage: str = ""
    values: ArgumentValues = no_values
    also: tuple[str, ...] = ()
    custom: bool = False
    """A file says what it does: its usage is a hint."""

    @property
    def takes_more(self) -> bool:
        """True if the command takes an argument."""
        return bool(self.usage) and not self.usage.startswith("[")

    @property
    def needs_more(self) -> bool:
        """True if the command cannot be run without an argument."""
        return self.takes_more and not self.custom


def find_command(commands: Sequence[SlashCommand], line: str) -> tuple[SlashCommand | None, str]:
    """Return the command of a line and its argument."""
    name, *rest = line.strip().removeprefix("/").split(maxsplit=1) or [""]
    argument = rest[0] if rest else ""
    for command in commands:
        if name in (command.name, *command.also):
            return command, argument
    starting = [command for command in commands if name and command.name.startswith(name)]
    return (starting[0] if len(starting) == 1 else None), argument


def nearest_command(commands: Sequence[SlashCommand], line: str) -> str:
    """Return the most similar command name, "" if none is similar."""
    name = line.strip().removeprefix("/").partition(" ")[0]
    matches = get_close_matches(name, [command.name for command in commands], 1)
    return matches[0] if matches else ""


def command_choices(
    commands: Sequence[SlashCommand], controller: SessionController, line: str
) -> list[Choice]:
    """Return completions for the typed line. What was typed whole comes first, because Enter takes
    the first one: `/pin gpt-5` must not pin `gpt-5-mini`.
    """
    name, space, argument = line.removeprefix("/").partition(" ")
    if space:
        command, _ = find_command(commands, f"/{name}")
        values = command.values(controller) if command else ()
        typed = argument.strip().lower()
        matching = [value for value in values if value.lower().startswith(typed)]
        if [value.lower() for value in matching] == [typed]:
            return []
        matching.sort(key=lambda value: value.lower() != typed)
        return [Choice(f"/{name} {value}", value) for value in matching]
    beginning = [command for command in commands if command.name.startswith(name)]
    beginning.sort(key=lambda command: command.name != name)
    inside = [command for command in commands if name in command.name and command not in beginning]
    return [_command_choice(command) for command in (*beginning, *inside)]


def _command_choice(command: SlashCommand) -> Choice:
    shown = f"/{command.name} {command.usage}".rstrip()
    return Choice(
        f"/{command.name}{' ' if command.takes_more else ''}", f"{shown:<24}", command.about
    )


def mode_names(controller: SessionController) -> Sequence[str]:
    """Return the permission modes."""
    del controller
    return tuple(MODE_HELP)


def theme_names(controller: SessionController) -> Sequence[str]:
    """Return the themes."""
    del controller
    return themes.theme_names()


async def show_help(controller: SessionController, argument: str) -> None:
    """Show keys and commands."""
    del argument
    commands = [
        (f"/{command.name} {command.usage}".rstrip(), command.about)
        for command in all_commands(controller)
    ]
    controller.view.dialogs.read("Help", help_sections(controller.options.keys, commands))


async def change_theme(controller: SessionController, argument: str) -> None:
    """Change the colours."""
    names = themes.theme_names()
    if not argument:
        about = {themes.AUTO: "dark or light, as the terminal is"}
        picked = await controller.view.dialogs.pick(
            "Theme", [Choice(name, name, about.get(name, "")) for name in names]
        )
        argument = picked[1] if picked else ""
    if argument and argument not in names:
        raise UsageError(f"there is no theme {argument!r}", hint="there are " + ", ".join(names))
    if argument:
        themes.find_palette(argument)
        controller.view.wear(argument)


async def change_mode(controller: SessionController, argument: str) -> None:
    """Change the permission mode."""
    if not argument:
        mode = controller.session.environment.rules.mode
        controller.say(f"the mode is {mode}: {MODE_HELP[mode]}")
        return
    chosen: Mode | None = next(
        (candidate for candidate in all_modes() if candidate == argument), None
    )
    if chosen is None:
        raise UsageError(f"there is no mode {argument!r}", hint="there are " + ", ".join(MODE_HELP))
    if message := choose_mode(controller, chosen):
        controller.say(message)


async def show_permissions(controller: SessionController, argument: str) -> None:
    """Show the mode, the rules, and what was granted in this session."""
    del argument
    rules = controller.session.environment.rules
    lines = [f"mode {rules.mode}: {MODE_HELP[rules.mode]}"]
    for name, patterns in (("allow", rules.allow), ("ask", rules.ask), ("deny", rules.deny)):
        lines += [f"{name}: {pattern}" for pattern in patterns]
    granted = [
        run.permitted.call
        for request in controller.session.log.state.requests
        for turn in request.turns
        for run in turn.work
        if run.permitted.by == "session"
    ]
    lines += [f"this session: {describe_call(call)}" for call in granted]
    path = controller.session.permissions_file
    lines.append(f"Always-allowed rules are stored in {path}; remove a line there to revoke one.")
    controller.say("permissions", "plain", "\n".join(lines))


async def run_doctor(controller: SessionController, argument: str) -> None:
    """Show what is installed and what is missing."""
    del argument
    grow = controller.feed.say(NoteBlock("doctor", "plain", live=True))
    grow(NoteBlock("doctor", "plain", await asyncio.to_thread(controller.opener.setup.doctor)))


async def copy_answer(controller: SessionController, argument: str) -> None:
    """Copy the newest answer; with `diff`, what changed."""
    if argument == "diff":
        text = await diff_of_request(controller)
    else:
        text = controller.session.log.state.request.answer
    if not text.strip():
        controller.say("there is nothing to copy yet")
        return
    controller.view.copy(text)
    controller.say(f"copied {len(text):,} characters")


async def open_place(controller: SessionController, argument: str) -> None:
    """Open a file in the editor. Without a name, choose among the files that the conversation
    names, the newest first.
    """
    from fugu_cli.ui.hyperlinks import FilePlace, LinkFinder

    finder = LinkFinder(controller.opener.root)
    if argument:
        location = finder.place(argument)
        if location is None:
            raise UsageError(
                f"there is no file {argument!r}",
                hint=f"/open PATH:LINE, from {controller.opener.root}",
            )
        await controller.view.dialogs.edit_file(location)
        return
    texts = [
        text
        for event in reversed(controller.session.log.events[-NEWEST_EVENTS:])
        for text in _texts(event)
    ]
    named: dict[str, FilePlace] = {}
    for text in texts:
        for location in finder.places(text[:LONGEST_TEXT]):
            named.setdefault(location.shown(controller.opener.root), location)
    if not named:
        controller.say("the conversation names no file that is there")
        return
    choices = [Choice(shown, shown) for shown in list(named)[:MOST_PLACES]]
    if (picked := await controller.view.dialogs.pick("Open", choices)) is not None:
        await controller.view.dialogs.edit_file(named[picked[1]])


NEWEST_EVENTS, LONGEST_TEXT, MOST_PLACES = 200, 20_000, 100
"""Of what was said and done, what is searched for names of files; how many are offered."""


def _texts(event: Event) -> tuple[str, ...]:
    match event:
        case Replied():
            return (event.text,)
        case ToolRan():
            return (event.output, call_target(event.call))
        case _:
            return ()


async def set_notifications(controller: SessionController, argument: str) -> None:
    """Turn desktop notifications on or off, for the end of a long request and for questions."""
    if argument not in ("on", "off"):
        raise UsageError("on or off?", hint="/notify on")
    controller.view.preferences.keep(notify=argument == "on")
    controller.say(f"notifications are {argument}")


COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand("help", "keys and commands", show_help, also=("?",)),
    SlashCommand("new", "begin another session", session_commands.new_session, also=("clear",)),
    SlashCommand(
        "sessions",
        "search, look at, resume, fork, rename sessions",
        session_commands.pick_session,
        "[WORDS]",
    ),
    SlashCommand(
        "resume",
        "go on with a session, the newest other one by default",
        session_commands.resume_session,
        "[ID]",
    ),
    SlashCommand("fork", "go on with a copy of a session", session_commands.fork_session, "[ID]"),
    SlashCommand("rename", "give this session a title", session_commands.rename_session, "TITLE"),
    SlashCommand("continue", "resume an interrupted request", session_commands.continue_request),
    SlashCommand("undo", "take the newest request's changes back", session_commands.undo_request),
    SlashCommand(
        "rewind",
        "go back to before a request or a turn: files, conversation, or both",
        session_commands.rewind_session,
        "[N [files|conversation]]",
        session_commands.point_names,
    ),
    SlashCommand("redo", "bring back what was undone", session_commands.redo_undo),
    SlashCommand(
        "diff",
        "what changed since the request began; all: since the session began; N: by request N",
        session_commands.show_diff,
        "[all|N]",
        lambda controller: ("all",),
    ),
    SlashCommand(
        "blame",
        "who wrote each line of what this session changed, or of a file",
        session_commands.show_blame,
        "[PATH]",
        session_commands.changed_paths,
    ),
    SlashCommand(
        "remember",
        "keep a line for later sessions; also `# TEXT`",
        session_commands.remember,
        "TEXT",
    ),
    SlashCommand(
        "memory",
        "what is kept for later sessions, in the editor",
        session_commands.open_memory,
        "[repository|user]",
        lambda controller: ("repository", "user"),
    ),
    SlashCommand(
        "commit",
        "commit what is staged, with -a all changes of tracked files, with -r the files of the "
        "newest request; an agent writes the message",
        session_commands.commit_changes,
        "[-a|-r] [MESSAGE]",
        lambda controller: ("-a", "-r"),
    ),
    SlashCommand(
        "retry",
        "ask the newest request again, of one agent if named",
        agent_commands.retry_request,
        "[AGENT]",
        agent_commands.agent_names,
    ),
    SlashCommand(
        "pin",
        "pin one agent for every turn; auto: the coordinator decides",
        agent_commands.pin_agent,
        "[AGENT]",
        agent_commands.agent_names_or_auto,
    ),
    SlashCommand(
        "exclude",
        "exclude an agent, or include it again",
        agent_commands.exclude_agent,
        "AGENT",
        agent_commands.agent_names,
    ),
    SlashCommand(
        "pool",
        "the agents; choose one to pin it",
        agent_commands.show_pool,
        "[AGENT]",
        agent_commands.agent_names_or_auto,
        ("model",),
    ),
    SlashCommand(
        "tier",
        "fugu decides turn by turn, ultra plans first",
        agent_commands.change_tier,
        "[TIER]",
        lambda controller: ("fugu", "ultra"),
    ),
    SlashCommand(
        "effort",
        "how much agents may reason, from the next request on; with a text, for that request",
        agent_commands.change_effort,
        "[LEVEL [TEXT]]",
        agent_commands.effort_names,
    ),
    SlashCommand(
        "jobs",
        "background jobs; stop JOB or stop all ends them",
        agent_commands.list_or_stop_jobs,
        "[stop JOB]",
        agent_commands.job_arguments,
    ),
    SlashCommand(
        "skip", "end the running tests and go on without them", agent_commands.skip_test_run
    ),
    SlashCommand(
        "context",
        "what fills the next prompt, and what each agent would read and cost",
        agent_commands.show_context,
        "[AGENT]",
        agent_commands.agent_names,
    ),
    SlashCommand("cost", "tokens and money by model", agent_commands.show_cost),
    SlashCommand(
        "trace",
        "show or hide the trace; with a number, that turn in full (2.1: turn 1 of request 2)",
        session_commands.show_trace,
        "[TURN]",
    ),
    SlashCommand("mode", "how much needs a yes", change_mode, "[MODE]", mode_names),
    SlashCommand("permissions", "the rules in force and what was granted", show_permissions),
    SlashCommand(
        "skill",
        "ask for something, with what a skill says",
        agent_commands.use_skill,
        "NAME TEXT",
        agent_commands.skill_names,
    ),
    SlashCommand(
        "skills", "the skills, custom commands and subagents there are", agent_commands.list_skills
    ),
    SlashCommand(
        "compact", "shorten what agents read of earlier requests", session_commands.compact_session
    ),
    SlashCommand(
        "copy",
        "copy the newest answer, or the diff",
        copy_answer,
        "[diff]",
        lambda controller: ("diff",),
    ),
    SlashCommand(
        "export",
        "write the conversation as Markdown, HTML or JSON",
        session_commands.export_session,
        "[FILE]",
    ),
    SlashCommand("open", "a file in the editor, at a line", open_place, "[PATH[:LINE]]"),
    SlashCommand("theme", "other colours", change_theme, "[THEME]", theme_names),
    SlashCommand(
        "notify",
        "desktop notification when a long request ends",
        set_notifications,
        "on|off",
        lambda controller: ("on", "off"),
    ),
    SlashCommand(
        "login",
        "enter a provider's key, or download small models",
        agent_commands.log_in,
        "[PROVIDER]",
        agent_commands.provider_names,
    ),
    SlashCommand("trust", "let what this folder brings count", session_commands.trust_folder),
    SlashCommand("doctor", "what is there and what is missing", run_doctor),
    SlashCommand("quit", "leave", session_commands.leave_fugu, also=("exit", "q")),
)


WITHOUT_SESSION = frozenset({"new", "sessions", "resume", "help", "quit", "doctor", "login"})


WHEN_ATTACHED = frozenset(
    {
        "help",
        "continue",
        "diff",
        "blame",
        "cost",
        "trace",
        "mode",
        "copy",
        "open",
        "theme",
        "notify",
    }
    | {"quit"}
)
"""The commands in a session of another process: those that read, and those that its socket takes."""


def all_commands(controller: SessionController) -> Sequence[SlashCommand]:
    """Return all commands of the session."""
    session, commands = controller.work.session, COMMANDS
    if controller.options.attached:
        commands = tuple(command for command in COMMANDS if command.name in WHEN_ATTACHED)
    if session is None:
        return commands
    prompts = session.servers.prompts if session.servers is not None else ()
    return (
        *commands,
        *(
            _request_command(command.name, command.about, command.hint, also=(command.full_name,))
            for command in session.library.commands
        ),
        *(
            _request_command(line.removeprefix("/"), usage.about, usage.hint)
            for line, usage in prompts
        ),
    )


def _request_command(name: str, about: str, hint: str, also: tuple[str, ...] = ()) -> SlashCommand:
    async def run(controller: SessionController, argument: str) -> None:
        await agent_commands.send_request(controller, f"/{name} {argument}".rstrip())

    return SlashCommand(name, about, run, hint, also=also, custom=True)


async def run_input(
    controller: SessionController, text: str, *, queued: bool = False, typed: bool = False
) -> None:
    """Run a line that was entered, to its end. Errors of the outside world are shown. `queued`: a
    request waits until no work is running; otherwise it is a message for the agents at work.
    `typed`: every character came from the keyboard, so that a line that begins with `# ` may be one
    for the memory.
    """
    # from a paste: no name, no argument of a command and no file can hold it
    text = text.replace("\0", "")
    if not text:
        return
    controller.history.add(text)
    # what is typed while another session is being opened is for that one
    async with controller.door:
        pass
    try:
        if typed and is_memory_line(text):
            await _run_command(controller, f"/remember {text.removeprefix('# ')}")
        elif queued and is_request(controller, text):
            await agent_commands.send_request(controller, text, queued=True)
        elif text.startswith("!"):
            await _run_shell(controller, text)
        elif _is_command(text):
            await _run_command(controller, text)
        else:
            await agent_commands.send_request(controller, text)
    except FuguError as error:
        controller.failed(error)


def is_memory_line(text: str) -> bool:
    """Return whether a typed text is a line for the memory. A heading with more below it is none."""
    return text.startswith("# ") and "\n" not in text


def is_request(controller: SessionController, text: str) -> bool:
    """Return whether the text is a request for agents, perhaps by a custom command, and not the
    interface's own command.
    """
    if not _is_command(text):
        return not text.startswith("!")
    command, _ = find_command(all_commands(controller), text)
    if command is None or not command.custom:
        return False
    return text.split()[0].removeprefix("/") in (command.name, *command.also)


async def _run_shell(controller: SessionController, text: str) -> None:
    tells_agents = text.startswith("!!")
    command = text.lstrip("!").strip()
    if command:
        await controller.shell.run(command, tell=tells_agents)


async def _run_command(controller: SessionController, text: str) -> None:
    command, argument = find_command(all_commands(controller), text)
    if command is None:
        if controller.work.session is not None:
            refuse_left_out("command", text.split()[0][1:], controller.session.library)
        if controller.options.attached and find_command(COMMANDS, text)[0] is not None:
            raise UsageError(
                f"{text.split()[0]} is for the terminal in which the session runs",
                hint="/help lists what can be done here",
            )
        near = nearest_command(all_commands(controller), text)
        raise UsageError(
            f"there is no command {text.split()[0]}",
            hint=f"did you mean /{near}?" if near else "/help lists them",
        )
    if controller.work.session is None and command.name not in WITHOUT_SESSION:
        raise UsageError("there is no session", hint="/new opens one")
    if command.needs_more and not argument:
        raise UsageError(
            f"/{command.name} needs an argument", hint=f"/{command.name} {command.usage}"
        )
    if argument and not command.usage and not command.custom:
        raise UsageError(
            f"/{command.name} takes no argument",
            hint=f"/{command.name} alone does it; up recalls this line",
        )
    await command.run(controller, argument)


def _is_command(text: str) -> bool:
    """Return whether the text is a command. A prompt of an MCP server is a request."""
    return text.startswith("/") and not text.startswith(("//", MCP_PROMPT)) and not _is_path(text)


def _is_path(text: str) -> bool:
    """Return whether the text begins with a path: `/etc/hosts is wrong` is a request."""
    return "/" in text.split()[0][1:]
