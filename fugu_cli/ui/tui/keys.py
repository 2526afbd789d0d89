"""The keys, for help: one table, so that what help says is what is bound (a test compares them)."""

from __future__ import annotations

KEYS: tuple[tuple[str, str], ...] = (
    ("enter", "send; while something runs, wait in the queue"),
    ("shift+enter, ctrl+j, alt+enter, \\ enter", "a new line"),
    ("esc", "stop what runs; close what is open"),
    ("ctrl+s", "cut what runs, if anything does, and go on with the queue at once"),
    ("ctrl+c", "copy what is selected, else empty the prompt; twice leaves"),
    ("shift+tab", "the next permission mode"),
    ("ctrl+t", "show or hide the trace"),
    ("f6", "question, prompt, conversation, trace: the next one takes the keys"),
    ("ctrl+o", "unfold all tool results, or fold them"),
    ("ctrl+r", "search what was typed before"),
    ("ctrl+g", "write in the editor ($VISUAL, $EDITOR)"),
    ("ctrl+y", "copy the newest answer"),
    ("up, down", "at the first and last line: what was typed before"),
    ("pageup, pagedown, ctrl+home, ctrl+end", "scroll the conversation"),
    ("ctrl+_", "take back what was typed"),
    ("ctrl+z", "back to the shell; `fg` goes on"),
    ("f1", "help"),
    ("f2", "end the test run that is under way"),
)

OTHERS = """\
In the conversation: up and down mark a tool call, enter unfolds it. In the trace: up and down mark a turn, enter opens
it, p pins its agent, x excludes it, r asks again with it, [ and ] move the edge.

`@` completes files, `/` commands, `!` runs a command of yours, `!!` also tells its output with the next request."""


def help_text() -> str:
    """The keys as Markdown."""
    rows = [f"- `{keys}`: {words}" for keys, words in KEYS]
    return "# Keys\n\n" + "\n".join(rows) + "\n\n" + OTHERS
