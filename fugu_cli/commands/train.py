"""The command lines of `fugu train ...`: words in, one call of a module in commands/train_*.py each. Nothing heavy."""

from __future__ import annotations

import typer

from fugu_cli.commands.evalflags import (
    ConductorFlags,
    EvolveFlags,
    MatrixFlags,
    ReplayFlags,
    SessionFlags,
    SftFlags,
)
from fugu_cli.commands.flags import spread

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
app = typer.Typer(
    help="Train the coordinator: pass matrix, warm start, evolution, replay of outcomes, your own sessions.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=CONTEXT,
)


@app.command("matrix")
@spread(MatrixFlags)
def matrix(flags: MatrixFlags) -> int:
    """Run every agent on every task and say whether routing can pay, before money is spent on training."""
    from fugu_cli.commands import train_matrix as command

    return command.matrix(flags)


@app.command("sft")
@spread(SftFlags)
def sft(flags: SftFlags) -> int:
    """Warm start: fit a head to what a pass matrix says of every agent."""
    from fugu_cli.commands import train_learning as command

    return command.sft(flags)


@app.command("evolve")
@spread(EvolveFlags)
def evolve(flags: EvolveFlags) -> int:
    """Evolve the coordinator with sep-CMA-ES by what its decisions are worth; goes on where it was stopped."""
    from fugu_cli.commands import train_evolve as command

    return command.evolve(flags)


@app.command("replay")
@spread(ReplayFlags)
def replay(flags: ReplayFlags) -> int:
    """Learn from recorded outcomes, cross-validated by repository, and print the accuracy-cost frontier."""
    from fugu_cli.commands import train_learning as command

    return command.replay(flags)


@app.command("conductor")
@spread(ConductorFlags)
def train_conductor(flags: ConductorFlags) -> int:
    """Train a planner of workflows with GRPO; goes on where it was stopped."""
    from fugu_cli.commands import train_conductor as command

    return command.train(flags)


@app.command("sessions")
@spread(SessionFlags)
def own_sessions(flags: SessionFlags) -> int:
    """Learn from your own sessions: what was accepted, undone, and what the tests said."""
    from fugu_cli.commands import train_learning as command

    return command.own(flags)
