"""The flags of `fugu eval`. Imported by cli.py at start-up: nothing heavy may be imported here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fugu_cli.commands.flags import option, place


class EngineName(StrEnum):
    """Where rollouts run."""

    local = "local"
    ray = "ray"


Only = Annotated[
    list[str] | None, option("--only", help="these files or folders of the suites; repeatable", metavar="NAME")
]
Limit = Annotated[int | None, option("--limit", help="so many tasks, drawn the same each time", metavar="N", least=1)]
TaskPrompt = Annotated[str | None, option("--prompt", help="for repositories that bring none", metavar="TEXT")]
TaskTests = Annotated[str | None, option("--test-command", help="for repositories that bring none", metavar="COMMAND")]
Budget = Annotated[
    float | None, option("--max-budget-usd", help="money of all rollouts together", metavar="USD", least=0)
]
Requests = Annotated[
    int | None, option("--max-requests", help="model calls of all rollouts together", metavar="N", least=0)
]
Rollouts = Annotated[int | None, option("--rollouts", help="at once at most", metavar="N", least=1)]
Cores = Annotated[int | None, option("--cores", help="cores to use: one a rollout", metavar="N", least=1)]
Memory = Annotated[float | None, option("--memory", help="memory to use: 1 GiB a rollout", metavar="GIB", above=0)]


@dataclass(frozen=True)
class EvalFlags:
    """`fugu eval`, as the user wrote it. None means: not said here."""

    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TASKS...", help="task files, folders of them or of repositories, gym:NAME[:COUNT[:SEED]]"
        ),
    ] = None
    arms: Annotated[
        list[str] | None, option("--arm", "-a", help="what to compare, or all; repeatable", metavar="ARM")
    ] = None
    only: Only = None
    limit: Limit = None
    seeds: Annotated[int, option("--seeds", help="repetitions of every task (1)", metavar="N", least=1)] = 1
    out: Annotated[Path | None, place("--out", "-o", help="where rows and report are kept", metavar="DIR")] = None
    report: Annotated[bool, option("--report", help="measure nothing, write the report of the rows there are")] = False
    prompt: TaskPrompt = None
    test_command: TaskTests = None
    max_turns: Annotated[int | None, option("--max-turns", help="turns of a rollout", metavar="N", least=1)] = None
    time_limit: Annotated[
        float | None, option("--time-limit", help="time of a rollout", metavar="SECONDS", above=0)
    ] = None
    max_budget_usd: Budget = None
    max_requests: Requests = None
    rollouts: Rollouts = None
    cores: Cores = None
    memory: Memory = None
    engine: Annotated[EngineName, option("--engine", help="local, or ray to spread over a cluster")] = EngineName.local
