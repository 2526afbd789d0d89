"""`fugu` alone opens the terminal interface, or says how to begin without a terminal; `fugu help`
prints the help pages. Imports nothing heavy.
"""

from __future__ import annotations

import difflib
import gc
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from fugu_cli.cli.flags import InterfaceFlags, check_session, settings_of
from fugu_cli.errors import UsageError

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import InterfaceOptions, SessionOpener
    from fugu_cli.config import Config

FIRST_SESSION = """\
  fugu login openai                   keep a provider's key (`fugu login` lists them), or `fugu models pull`
  fugu run "fix the failing tests"    one request, to its end; `fugu` alone opens the interface
  fugu trace                          who was chosen each turn, and why
  fugu undo                           put the files back
  fugu commit                         commit what is staged; the message names the agents
"""


PAGES_ELSEWHERE = {
    "exit-codes": "output",
    "replay": "trace",
    "decisions": "trace",
    "commands": "skills",
    "themes": "slash",
    "benchmarks": "outcomes",
    "telemetry": "storage",
    "jobs": "run",
    "background": "attach",
    "undo": "sessions",
    "redo": "sessions",
    "rewind": "sessions",
    "export": "sessions",
    "commit": "git",
    "pr": "git",
    "worktree": "git",
    "login": "pool",
    "cost": "providers",
    "route": "coordinator",
    "trust": "safety",
    "update": "storage",
    "doctor": "install",
    "untrust": "safety",
}
"""The page on which a command stands, or what was a page of its own before."""


def help_topics() -> dict[str, str]:
    """Return every help page by its topic: the pages of `fugu help`, then the pages they refer to."""
    folder = files("fugu_cli").joinpath("help")
    return {**_pages_in(folder), **_pages_in(folder / "compare"), **_pages_in(folder / "providers")}


def _pages_in(folder: Traversable) -> dict[str, str]:
    pages = [page for page in folder.iterdir() if page.name.endswith(".md")]
    pages.sort(key=lambda page: page.name.removesuffix(".md"))
    return {page.name.removesuffix(".md"): page.read_text(encoding="utf-8") for page in pages}


def show_page(topic: str) -> int:
    """Print a page; without a topic, what there is. A topic is a page's name or its beginning, or
    the page's file, as in `providers/openai.md`.

    Raises UsageError for a topic that does not exist.
    """
    pages = help_topics()
    if not topic:
        _list_pages()
        return 0
    topic = topic.strip().lower().rpartition("/")[2].removesuffix(".md")
    begun = [name for name in pages if name.startswith(topic)]
    if topic in pages:
        page = topic
    elif topic in PAGES_ELSEWHERE:
        page = PAGES_ELSEWHERE[topic]
        print(f"`{topic}` stands on the page `{page}`:\n")
    elif len(begun) == 1:
        page = begun[0]
    else:
        near = begun or difflib.get_close_matches(topic, [*pages, *PAGES_ELSEWHERE], n=2)
        hint = "`fugu help` lists the pages"
        if near:
            hint = f"did you mean {' or '.join(map(repr, near))}? {hint}"
        raise UsageError(f"there is no page on {topic!r}", hint=hint)
    print(pages[page], end="")
    return 0


def _list_pages() -> None:
    pages = _pages_in(files("fugu_cli").joinpath("help"))
    width = max(len(name) for name in pages)
    print(f"A first session, in a git repository of yours:\n\n{FIRST_SESSION}")
    print(
        "`fugu help TOPIC` shows one of these pages, `fugu help words` what the words mean;\n"
        "`fugu COMMAND --help` shows the flags of a command.\n"
    )
    for name, text in pages.items():
        print(f"  {name:<{width}}  {text.splitlines()[0].partition(': ')[2]}")


HOW_TO = f"""\
fugu is a coding agent that works with a pool of models and shows every routing decision.

{FIRST_SESSION}
  fugu pool                           the agents; without keys, small models on this machine
  fugu models pull                    fetch those (1.6 GB)
  fugu doctor                         what is there and what is missing
  fugu help                           pages on configuration, permissions and more

In a terminal, `fugu` alone opens the interface.
"""


def start_interface(flags: InterfaceFlags) -> int:
    """Open the interface, full screen or in the scrollback. Return the exit code once the user has
    left.

    Raises FuguError, and UsageError for contradicting flags or a session without a terminal.
    """
    check_session(flags)
    if flags.worktree is not None and sys.stdin and sys.stdin.isatty():
        from fugu_cli.cli.worktree import asks_to_bring_back, work_in_worktree

        return work_in_worktree(flags, start_interface, asks_to_bring_back)
    if not has_terminal():
        if wants_session(flags):
            raise UsageError(
                "the interface needs a terminal", hint='use `fugu run "..."` in scripts and pipes'
            )
        print(HOW_TO, end="")
        return 0
    from fugu_cli.cli.current_folder import current_config
    from fugu_cli.cli.session_opening import FolderSessions
    from fugu_cli.session import store

    load = partial(
        current_config,
        settings_of(flags),
        quiet=True,
        trust=flags.trust,
        appended=flags.append_system_prompt,
        mcp_config=flags.mcp_config,
    )
    loaded = load()
    opener = FolderSessions(loaded, os.environ, load)
    data = loaded.config.data
    session = flags.resume or ("latest" if flags.go_on else None)
    options = replace(
        interface_options(loaded.config),
        resume=store.find_session(data, loaded.root, session).stem if session else None,
        fork=flags.fork_session,
    )
    return open_interface(opener, options, inline=flags.inline)


def interface_options(config: Config) -> InterfaceOptions:
    """Return the options of the interface that the configuration sets."""
    from fugu_cli.app.session_protocol import InterfaceOptions
    from fugu_cli.ui.tui.terminal_app import read_keymap

    return InterfaceOptions(
        state=config.data / "interface",
        tier=config.tier,
        keys=read_keymap(config.keys),
        vi=config.tui.vi,
        status_command=config.tui.status_line,
        added=config.add_dirs,
    )


def has_terminal() -> bool:
    """Return whether the interface can be shown and typed into."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty())


def open_interface(opener: SessionOpener, options: InterfaceOptions, *, inline: bool) -> int:
    """Open the interface and return the exit code once the user leaves. It is shown in the scrollback
    with `inline`, and where a full screen would not be visible.
    """
    from fugu_cli.ui.tui import run_app

    gc.freeze()
    gc.enable()
    if inline or not (supports_fullscreen(os.environ) and is_screen_visible()):
        from fugu_cli.ui.inline import run_inline

        return run_inline(opener, options)
    return run_app(opener, options)


def wants_session(flags: InterfaceFlags) -> bool:
    """Return whether any flag asks for a session, so that a missing terminal is an error."""
    switches = (flags.inline, flags.go_on, flags.fork_session, flags.trust)
    values = (flags.resume, flags.worktree, flags.append_system_prompt, flags.mcp_config)
    has_value = any(value is not None for value in values)
    return any(switches) or has_value or bool(settings_of(flags))


def supports_fullscreen(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal supports a full screen. Shells inside editors do not."""
    default = "" if os.name == "posix" else "windows"
    return environ.get("TERM", default) not in ("", "dumb", "unknown")


def is_screen_visible() -> bool:
    """Return whether the full screen would be visible: it is drawn on standard error."""
    return sys.__stderr__ is not None and sys.__stderr__.isatty()
