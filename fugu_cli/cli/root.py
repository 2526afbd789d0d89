"""The root of the command line and `fugu run`, each of which starts without building the other and
the commands of `app.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import typer
from typer.core import TyperGroup

from fugu_cli.cli.flags import InterfaceFlags, RunFlags, flags_as_parameters

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

WRONG_WORDS = cast(type[Exception], typer.BadParameter.__mro__[1])
"""The base class of typer's errors about a command line, which typer does not export."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

HELP_GROUPS = {
    "Start here": ("run", "login", "pool", "trace", "undo", "commit", "doctor"),
    "Work": ("review", "pr", "skills", "plugin", "mcp"),
    "Look": ("sessions", "attach", "cost", "blame", "export", "help"),
    "Back": ("rewind",),
    "Set up": ("init", "trust", "models", "update"),
    "Connect": ("serve", "acp", "sdk"),
    "Research": ("eval", "route", "replay", "coordinator", "train"),
}
"""The sections of `fugu --help`, and the commands of each."""


class CommandGroup(TyperGroup):
    """A group of commands. An unknown command is kept in the error, for the suggestion of another."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{**settings, "suggest_commands": False})

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except WRONG_WORDS as error:
            error.__dict__["unknown_command"] = args[0]
            raise


class GroupedCommands(CommandGroup):
    """The root command, whose help lists the commands in groups and before the flags."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        for heading, names in HELP_GROUPS.items():
            rows = [(name, self.commands[name].get_short_help_str(64)) for name in names]
            if heading == "Start here":
                rows.insert(0, ("fugu", "Open the terminal interface."))
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<11}", summary) for name, summary in rows])
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write nothing: the commands stand before the flags."""


app = typer.Typer(
    name="fugu",
    cls=GroupedCommands,
    help=(
        "A coding agent for the terminal that works with a pool of models and shows every "
        "routing decision."
    ),
    epilog="`fugu help` begins with a first session and lists the pages of the manual.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


@app.callback()
@flags_as_parameters(InterfaceFlags)
def root(flags: InterfaceFlags) -> int:
    """Open the terminal interface, if no command is given."""
    if flags.context.invoked_subcommand is not None:
        return 0
    if flags.version:
        from fugu_cli import __version__

        typer.echo(f"fugu {__version__}")
        return 0
    from fugu_cli.cli import interface

    return interface.start_interface(flags)


run_alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@run_alone.command(context_settings=CONTEXT)
@flags_as_parameters(RunFlags)
def run(flags: RunFlags) -> int:
    """Carry out one request to its end.

    fugu run "fix the failing tests"
    """
    from fugu_cli.cli import run as command

    return command.run(flags)
