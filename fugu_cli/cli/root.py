"""The root of the command line and `fugu run`, each of which starts without building the other and
the commands of `app.py`.
"""

from __future__ import annotations

import typer

from fugu_cli.cli.flags import InterfaceFlags, RunFlags, flags_as_parameters

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

app = typer.Typer(
    name="fugu",
    help=(
        "A coding agent for the terminal that works with a pool of models and shows every "
        "routing decision."
    ),
    epilog="`fugu help` lists pages on configuration, permissions, exit codes and more.",
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
    """Carry out one request to its end: fugu run "fix the failing tests"."""
    from fugu_cli.cli import run as command

    return command.run(flags)
