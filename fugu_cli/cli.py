"""The command line: words in, one call of a module in commands/ each, an exit code out. No logic.

Commands return their exit code. What is wrong with the words themselves ends with 1 (`__main__.py`), as
`fugu help exit-codes` says, not with click's 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fugu_cli.commands import coordinator_app, train
from fugu_cli.commands.evalflags import EvalFlags
from fugu_cli.commands.flags import OpenFlags, RunFlags, ServeFlags, SessionsFlags, Shape, spread
from fugu_cli.commands.replay_flags import SessionReplayFlags

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

app = typer.Typer(
    name="fugu",
    help="A coding agent for the terminal that works with a pool of models and shows every routing decision.",
    epilog="`fugu help` lists pages on configuration, permissions, exit codes and more.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)
pool = typer.Typer(
    help="Show the agents of the pool; `check` calls each once.",
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings=CONTEXT,
)
models = typer.Typer(
    help="The embedded models: list, pull, remove, path.", rich_markup_mode=None, context_settings=CONTEXT
)
app.add_typer(pool, name="pool")
app.add_typer(models, name="models")
app.add_typer(coordinator_app.app, name="coordinator")
app.add_typer(train.app, name="train")
app.command()(coordinator_app.route)

Session = Annotated[str, typer.Argument(metavar="SESSION", help="an id, the beginning of one, a file, or latest")]


@app.callback()
@spread(OpenFlags)
def root(flags: OpenFlags) -> int:
    """Without a command: the terminal interface."""
    if flags.context.invoked_subcommand is not None:
        return 0
    if flags.version:
        from fugu_cli import __version__

        typer.echo(f"fugu {__version__}")
        return 0
    from fugu_cli.commands import interface

    return interface.start(flags)


@app.command()
@spread(RunFlags)
def run(flags: RunFlags) -> int:
    """Carry out one request to its end: fugu run "fix the failing tests"."""
    from fugu_cli.commands import run as command

    return command.run(flags)


@app.command()
def trace(
    session: Session = "latest",
    turn: Annotated[int | None, typer.Option("--turn", metavar="N", help="one decision in full")] = None,
    request: Annotated[
        int | None, typer.Option("--request", metavar="N", help="of this request, not the newest")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="as one JSON document")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="print it, in a terminal too")] = False,
) -> int:
    """Show who was chosen each turn, against whom, and what came of it."""
    from fugu_cli.commands import trace as command

    if not plain and not as_json and turn is None and request is None and command.can_be_opened():
        return command.opened(session)
    return command.trace(session, turn, request, as_json)


@app.command()
@spread(SessionsFlags)
def sessions(flags: SessionsFlags) -> int:
    """List the sessions of this folder, the newest first."""
    from fugu_cli.commands import sessions as command

    return command.sessions(flags)


@app.command()
def undo(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    session: Annotated[str, typer.Option("--session", metavar="ID", help="of this session")] = "latest",
) -> int:
    """Put the files back to how they stood before the newest request."""
    from fugu_cli.commands import undo as command

    return command.undo(session, yes)


@app.command()
def redo(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    session: Annotated[str, typer.Option("--session", metavar="ID", help="of this session")] = "latest",
) -> int:
    """Bring back what the newest undo took."""
    from fugu_cli.commands import undo as command

    return command.redo(session, yes)


@pool.callback()
def pool_root(context: typer.Context) -> int:
    """Show the agents of the pool, their slots and prices."""
    if context.invoked_subcommand is not None:
        return 0
    from fugu_cli.commands import pool as command

    return command.show()


@pool.command("check")
def pool_check() -> int:
    """Call each agent once: does it answer, stream, use tools, keep to a schema, and how fast?"""
    from fugu_cli.commands import pool as command

    return command.check()


@models.command("list")
def models_list() -> int:
    """List the embedded models and which of them are here."""
    from fugu_cli.commands import models as command

    return command.show()


@models.command("pull")
def models_pull(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="all that the pool needs by default")
    ] = None,
) -> int:
    """Fetch models; goes on where it was interrupted and checks the hash."""
    from fugu_cli.commands import models as command

    return command.pull(names or [])


@models.command("remove")
def models_remove(names: Annotated[list[str], typer.Argument(metavar="NAME...")]) -> int:
    """Delete models from this machine."""
    from fugu_cli.commands import models as command

    return command.remove(names)


@models.command("path")
def models_path(name: Annotated[str, typer.Argument(metavar="NAME")] = "") -> int:
    """Print where a model's file is, or the folder of all."""
    from fugu_cli.commands import models as command

    return command.path(name)


@app.command()
def cost(
    by: Annotated[str, typer.Option("--by", metavar="WHAT", help="day, agent, session or project")] = "day",
    days: Annotated[int | None, typer.Option("--days", metavar="N", min=1, help="of the last days only")] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="of every folder, not only this one")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="as one JSON document")] = False,
) -> int:
    """Show what was spent here, and what is left of the budgets."""
    from fugu_cli.commands import cost as command

    return command.show(by, days, everywhere, as_json)


@app.command()
def blame(
    path: Annotated[
        Path | None, typer.Argument(metavar="PATH", help="a file; without one, what the newest session changed")
    ] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="of this session alone")] = None,
    shape: Annotated[Shape, typer.Option("--format", help="text or json", show_default=False)] = Shape.text,
) -> int:
    """Show which agent wrote each line, in which turn, and what it cost."""
    from fugu_cli.commands import blame as command

    return command.blame(path, session, shape)


@app.command()
@spread(SessionReplayFlags)
def replay(flags: SessionReplayFlags) -> int:
    """Decide a session again with another coordinator, or with --run carry its requests out again in copies."""
    from fugu_cli.commands import replay as command

    return command.replay(flags)


@app.command()
@spread(ServeFlags)
def serve(flags: ServeFlags) -> int:
    """Answer as one endpoint: Chat Completions, Responses and Messages over the whole pool."""
    from fugu_cli.commands import serve as command

    return command.serve(flags)


@app.command("eval")
@spread(EvalFlags)
def evaluate(flags: EvalFlags) -> int:
    """Compare coordinators on the same tasks, with your own pool: fugu eval TASKS --arm trinity --arm single."""
    from fugu_cli.commands import eval as command

    return command.evaluate(flags)


@app.command()
def skills() -> int:
    """List the skills and custom commands that count here, and what is left out."""
    from fugu_cli.commands import skills as command

    return command.show()


@app.command()
def doctor() -> int:
    """Say what is there and what is missing."""
    from fugu_cli.commands import doctor as command

    return command.doctor()


@app.command("help")
def help_page(topic: Annotated[str, typer.Argument(metavar="TOPIC")] = "") -> int:
    """Show a page on a topic; without one, the list."""
    from fugu_cli.commands import pages

    return pages.show(topic)


@app.command()
def trust(folder: Annotated[Path | None, typer.Argument(metavar="FOLDER")] = None) -> int:
    """Trust this folder: its .fugurc, AGENTS.md, MCP servers, hooks, skills and commands count from now on.

    Servers are started with your rights, hooks in the sandbox: see .mcp.json and .agents first (`fugu help safety`).
    """
    from fugu_cli.commands import trust as command

    return command.trust(folder)


@app.command()
def untrust(folder: Annotated[Path | None, typer.Argument(metavar="FOLDER")] = None) -> int:
    """Take the trust in this folder back."""
    from fugu_cli.commands import trust as command

    return command.untrust(folder)
