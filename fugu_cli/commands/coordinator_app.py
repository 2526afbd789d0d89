"""The command lines of `fugu coordinator ...` and `fugu route`: words in, one call each. No logic, nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fugu_cli.commands.flags import ImportFlags, RouteFlags, spread

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
app = typer.Typer(
    help="The learned coordinator: show, import, export, bench.",
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings=CONTEXT,
)

Json = Annotated[bool, typer.Option("--json", help="as one JSON document")]


@app.callback()
def root(context: typer.Context) -> int:
    """The learned coordinator: show, import, export, bench."""
    if context.invoked_subcommand is not None:
        return 0
    return show()


@app.command("show")
def show(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="the configured one when left out")] = None,
    as_json: Json = False,
) -> int:
    """Describe a checkpoint (.safetensors) or a flat vector (.npy), and say whether it fits here."""
    from fugu_cli.commands import coordinator as command

    return command.show(file, as_json)


@app.command("import")
@spread(ImportFlags)
def bring(flags: ImportFlags) -> int:
    """Make a checkpoint for your pool: fugu coordinator import FILE --map gpt-5=strong --map gemma-3-27b=small."""
    from fugu_cli.commands import coordinator_files as command

    said = {"format": flags.format, "tied": flags.tied, "workers_only": flags.workers_only, "budget": flags.budget}
    reading = tuple((name, value) for name, value in said.items() if value is not None)
    settled = command.Vector(flags.rows, flags.roles, reading)
    return command.bring(command.Incoming(flags.file, tuple(flags.mapping or ()), settled, flags.out, flags.backbone))


@app.command("export")
def take(
    out: Annotated[Path, typer.Argument(metavar="OUT")],
    file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="this checkpoint, not the configured one")
    ] = None,
    npy: Annotated[bool, typer.Option("--npy", help="the flat vector alone; implied by a name ending in .npy")] = False,
) -> int:
    """Write a checkpoint's numbers to OUT: in fugu's own form, or as the flat vector."""
    from fugu_cli.commands import coordinator_files as command

    return command.take(out, file, npy)


@app.command("bench")
def bench(
    lengths: Annotated[str, typer.Option("--lengths", metavar="N,N", help="tokens of the transcripts")] = "512,2048",
    repeats: Annotated[int, typer.Option("--repeats", min=1, max=100, help="of each; medians are shown")] = 3,
    as_json: Json = False,
) -> int:
    """Measure what a decision costs on this machine: cold, with new tokens, read along."""
    from fugu_cli.commands import coordinator as command

    return command.bench(lengths, repeats, as_json)


@spread(RouteFlags)
def route(flags: RouteFlags) -> int:
    """Decide who would be next, and nothing else: fugu route "fix the failing tests"."""
    from fugu_cli.commands import route as command

    return command.route(flags)
