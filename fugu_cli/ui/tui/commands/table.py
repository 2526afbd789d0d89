"""The commands, each named once."""

from __future__ import annotations

from fugu_cli.ui.tui.commands import agents, blame, changes, jobs, sessions, skills, view
from fugu_cli.ui.tui.commands.command import Command

COMMANDS: tuple[Command, ...] = (
    Command("help", "keys and commands", view.help, also=("?",)),
    Command("new", "begin another session", sessions.new, also=("clear",)),
    Command("sessions", "search, look at, resume, fork, rename sessions", sessions.pick, "[WORDS]"),
    Command("resume", "go on with a session, the newest other one by default", sessions.resume, "[ID]"),
    Command("fork", "go on with a copy of a session", sessions.fork, "[ID]"),
    Command("rename", "give this session a title", sessions.rename, "TITLE"),
    Command("continue", "finish a request that was cut off", sessions.go_on),
    Command("undo", "take the newest request's changes back", changes.undo),
    Command("redo", "bring back what was undone", changes.redo),
    Command("diff", "what changed since the request began; all: since the session began", changes.show, "[all]",
            lambda room: ("all",)),
    Command("blame", "who wrote each line of what this session changed, or of a file", blame.show, "[PATH]",
            blame.changed),
    Command("retry", "ask the newest request again, of one agent if named", agents.retry, "[AGENT]", agents.names),
    Command("pin", "one agent takes every turn; auto: the coordinator decides", agents.pin, "[AGENT]",
            agents.names_or_auto),
    Command("exclude", "leave an agent out, or let it in again", agents.exclude, "AGENT", agents.names),
    Command("pool", "the agents; choose one to pin it", agents.pool, "[AGENT]", agents.names_or_auto, ("model",)),
    Command("tier", "fugu decides turn by turn, ultra plans first", agents.tier, "[TIER]",
            lambda room: ("fugu", "ultra")),
    Command("jobs", "background jobs; stop JOB or stop all ends them", jobs.jobs, "[stop JOB]", jobs.names),
    Command("skip", "end the test run that is under way, and go on without it", jobs.skip),
    Command("cost", "tokens and money by agent", agents.cost),
    Command("trace", "show or hide the trace; with a number, that turn in full", view.trace, "[TURN]"),
    Command("mode", "how much needs a yes", view.mode, "[MODE]", view.modes),
    Command("permissions", "the rules in force and what was granted", view.permissions),
    Command("skill", "ask for something, with what a skill says", skills.skill, "NAME TEXT", skills.names),
    Command("skills", "the skills and custom commands there are", skills.skills),
    Command("compact", "shorten what agents read of earlier requests", sessions.compact),
    Command("copy", "copy the newest answer, or the diff", view.copy, "[diff]", lambda room: ("diff",)),
    Command("export", "write the conversation as Markdown", sessions.export, "[FILE]"),
    Command("theme", "other colours", view.theme, "[THEME]", view.themes),
    Command("notify", "a word to the desktop when a long request ends", view.notify, "on|off",
            lambda room: ("on", "off")),
    Command("doctor", "what is there and what is missing", view.doctor),
    Command("quit", "leave", sessions.leave, also=("exit", "q")),
)  # fmt: skip
