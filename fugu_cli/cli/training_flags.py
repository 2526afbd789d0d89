"""The flags of `fugu eval`, `fugu train`, `fugu route` and `fugu coordinator import`, as frozen
dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from fugu_cli.cli.flags import (
    SEED,
    BackboneFlag,
    CheckpointFlag,
    CoordinatorFlag,
    FormatFlag,
    JsonFlag,
    MaxBudgetFlag,
    MaxTurnsFlag,
    OptOutFlag,
    RequestFlag,
    SampleFlag,
    SeedFlag,
    SessionFlag,
    TimeLimitFlag,
    TurnFlag,
    option,
    path_option,
)

CheckpointOut = Annotated[
    Path | None, path_option("--out", "-o", help="the checkpoint to write", metavar="FILE")
]
HeadRows = Annotated[
    list[str] | None,
    option(
        "--row",
        help="ROW=AGENT or ROW=AGENT*DRAWS, in the head's order; repeatable",
        metavar="ROW=AGENT",
    ),
]
LimitFlag = Annotated[
    int | None,
    option("--limit", help="so many tasks, drawn the same each time", metavar="N", least=1),
]
OffsetsFlag = Annotated[
    bool, option("--offsets", help="with the SVF offsets of one layer too (slow)")
]
OnlyFlag = Annotated[
    list[str] | None,
    option("--only", help="these files or folders of the suites; repeatable", metavar="NAME"),
]
OutFolder = Annotated[
    Path | None, path_option("--out", "-o", help="where everything is kept", metavar="DIR")
]
ReportFlag = Annotated[
    bool,
    option(
        "--report", help="run nothing, write the report of what is there; of folders named as TASKS"
    ),
]
SUITES = typer.Argument(
    metavar="TASKS...",
    help="examples, task files, folders of them or of repositories, gym:NAME[:COUNT[:SEED]]",
)
SuitesArgument = Annotated[list[str], SUITES]


@dataclass(frozen=True, kw_only=True)
class RolloutFlags:
    """The flags for sessions on tasks: which tasks, how they are prompted, what they may cost, how
    many run at once. A command's own flags are listed first.
    """

    prompt: Annotated[
        str | None, option("--prompt", help="for repositories that bring none", metavar="TEXT")
    ] = None
    test_command: Annotated[
        str | None,
        option("--test-command", help="for repositories that bring none", metavar="COMMAND"),
    ] = None
    max_budget_usd: MaxBudgetFlag = None
    max_requests: Annotated[
        int | None,
        option("--max-requests", help="model calls of all rollouts together", metavar="N", least=0),
    ] = None
    only: OnlyFlag = None
    limit: LimitFlag = None
    rollouts: Annotated[
        int | None, option("--rollouts", help="at once at most", metavar="N", least=1)
    ] = None
    engine: Annotated[
        Literal["local", "ray"],
        option("--engine", help="where rollouts run: local, or on a cluster of Ray"),
    ] = "local"


@dataclass(frozen=True, kw_only=True)
class EvalFlags(RolloutFlags):
    """The flags of `fugu eval`. None stands for a flag that was not given."""

    suites: Annotated[list[str] | None, SUITES] = None
    arms: Annotated[
        list[str] | None,
        option("--arm", "-a", help="what to compare, or all; repeatable", metavar="ARM"),
    ] = None
    models: Annotated[
        list[str] | None,
        option("--model", help="with outcomes:FILE: whom the pool has; repeatable", metavar="NAME"),
    ] = None
    skills: Annotated[
        Path | None,
        option("--skills", help="with outcomes:FILE: skills, not those that ship", metavar="FILE"),
    ] = None
    pool_seed: Annotated[
        str, option("--pool-seed", help="with outcomes:FILE: draws the pools (gate)", metavar="S")
    ] = "gate"
    seeds: Annotated[
        int, option("--seeds", help="repetitions of every task (1)", metavar="N", least=1)
    ] = 1
    out: OutFolder = None
    report: ReportFlag = False
    max_turns: MaxTurnsFlag = None
    time_limit: TimeLimitFlag = None


@dataclass(frozen=True, kw_only=True)
class MatrixFlags(RolloutFlags):
    """`fugu train matrix`."""

    suites: SuitesArgument
    repeats: Annotated[
        int, option("--repeats", help="runs of each agent on each task (1)", metavar="N", least=1)
    ] = 1
    loop: Annotated[bool, option("--loop", help="whole sessions instead of one answer each")] = (
        False
    )
    report: ReportFlag = False
    out: OutFolder = None


@dataclass(frozen=True)
class SftFlags:
    """`fugu train sft`."""

    matrix: Annotated[
        Path,
        typer.Argument(metavar="MATRIX", help="matrix.jsonl, as `fugu train matrix` leaves it"),
    ]
    rows: HeadRows = None
    offsets: Annotated[bool, typer.Option("--offsets", hidden=True)] = False
    digest: Annotated[bool, typer.Option("--digest", hidden=True)] = False
    tau: Annotated[
        float, option("--tau", help="softness of the targets (0.1)", metavar="T", above=0)
    ] = 0.1
    cost: Annotated[
        float, option("--cost", help="weight of a turn's cost (0.1)", metavar="W", least=0)
    ] = 0.1
    seed: Annotated[int, SEED] = 0
    out: CheckpointOut = None


@dataclass(frozen=True, kw_only=True)
class EvolveFlags(RolloutFlags):
    """The flags of `fugu train evolve`: the tasks that candidates are judged by, and the settings
    of the search.
    """

    suites: SuitesArgument
    start: Annotated[
        Path | None, option("--start", help="a checkpoint to begin with", metavar="FILE")
    ] = None
    population: Annotated[
        int, option("--population", help="candidates of an iteration (32)", metavar="N", least=4)
    ] = 32
    iterations: Annotated[
        int, option("--iterations", help="iterations at most (60)", metavar="N", least=0)
    ] = 60
    replications: Annotated[
        int, option("--replications", help="tasks of a candidate (16)", metavar="N", least=1)
    ] = 16
    sigma: Annotated[
        float, option("--sigma", help="first step size (0.03)", metavar="S", above=0)
    ] = 0.03
    patience: Annotated[
        int,
        option(
            "--patience", help="stop after N iterations without gain (15)", metavar="N", least=0
        ),
    ] = 15
    diversity: Annotated[
        float, option("--w-div", help="weight of H(agents) (0)", metavar="W", least=0)
    ] = 0.0
    turns: Annotated[
        float, option("--w-turn", help="weight of mean turns (0)", metavar="W", above=float("-inf"))
    ] = 0.0
    cost: Annotated[
        float, option("--w-cost", help="weight of mean cost (0.1)", metavar="W", least=0)
    ] = 0.1
    offsets: OffsetsFlag = False
    seed: Annotated[int, SEED] = 0
    out: OutFolder = None


@dataclass(frozen=True, kw_only=True)
class ConductorFlags(RolloutFlags):
    """The flags of `fugu train conductor`. None stands for the value of the preset."""

    suites: SuitesArgument
    model: Annotated[
        str, option("--model", help="the planner to train: a folder or hub id", metavar="MODEL")
    ] = "Qwen/Qwen2.5-7B-Instruct"
    preset: Annotated[
        str, option("--preset", help="paper, or small for a machine without a GPU", metavar="NAME")
    ] = "paper"
    steps: Annotated[
        int | None, option("--steps", help="optimisation steps", metavar="N", least=1)
    ] = None
    questions: Annotated[
        int | None, option("--questions", help="questions of a step", metavar="N", least=1)
    ] = None
    replies: Annotated[
        int | None, option("--replies", help="replies to each question", metavar="N", least=2)
    ] = None
    tokens: Annotated[
        int | None, option("--tokens", help="of a reply at most", metavar="N", least=1)
    ] = None
    rate: Annotated[float | None, option("--rate", help="learning rate", metavar="R", above=0)] = (
        None
    )
    lora: Annotated[
        int | None,
        option("--lora", help="rank of the adapter, 0 trains all weights", metavar="N", least=0),
    ] = None
    agents: Annotated[
        int,
        option("--agents", help="agents drawn for a question at most (7)", metavar="N", least=1),
    ] = 7
    max_steps: Annotated[
        int, option("--max-steps", help="steps of a workflow (5)", metavar="N", least=1)
    ] = 5
    form_only: Annotated[
        bool, option("--form-only", help="run nothing: a readable workflow is worth 0.5")
    ] = False
    recursion: Annotated[
        bool, option("--recursion", help="second rounds too, the first discounted by 0.2")
    ] = False
    seed: SeedFlag = None
    out: OutFolder = None


@dataclass(frozen=True)
class KindsFlags:
    """`fugu train kinds`."""

    rows: Annotated[
        Path,
        typer.Argument(metavar="REQUESTS", help='a JSONL file of {"text": ..., "kind": ...}'),
    ]
    backbone: BackboneFlag = None
    out: Annotated[
        Path | None, path_option("--out", "-o", help="the kind head to write", metavar="FILE")
    ] = None


@dataclass(frozen=True)
class ImportFlags:
    """The flags of `fugu coordinator import`. None stands for what the file itself says."""

    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="the published .npy, a .npy of your own, a checkpoint"),
    ]
    mapping: Annotated[
        list[str] | None,
        option(
            "--map",
            help="the row of that name is this agent of your pool; repeatable",
            metavar="ROW=AGENT",
        ),
    ] = None
    rows: Annotated[
        str | None,
        option("--rows", help="the rows of a .npy of your own, in order", metavar="NAME,NAME"),
    ] = None
    roles: Annotated[bool, option("--roles/--no-roles", help="it has rows for the three roles")] = (
        True
    )
    format: FormatFlag = None
    tied: Annotated[
        Literal["untied", "authors"] | None,
        option(
            "--tied",
            help="which block moves a tied embedding: untied (the first) or authors (the ninth)",
        ),
    ] = None
    workers_only: Annotated[
        bool | None,
        option("--workers-only/--all-replies", help="whose replies its transcript shows"),
    ] = None
    budget: Annotated[
        int | None, option("--budget", help="tokens of its transcript", metavar="N", least=64)
    ] = None
    backbone: BackboneFlag = None
    out: CheckpointOut = None


@dataclass(frozen=True)
class RouteFlags:
    """The flags of `fugu route`. None stands for a flag that was not given."""

    what: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            help="a request, - for standard input, or a session: an id, a file, latest",
        ),
    ] = None
    session: SessionFlag = None
    turn: TurnFlag = None
    request: RequestFlag = None
    explain: Annotated[bool, option("--explain", help="show what was read and weighed")] = False
    as_json: JsonFlag = False
    coordinator: CoordinatorFlag = None
    checkpoint: CheckpointFlag = None
    backbone: BackboneFlag = None
    roles: Annotated[
        bool | None,
        option("--roles/--no-roles", help="with a role for the agent, or one agent and no role"),
    ] = None
    format: FormatFlag = None
    sample: SampleFlag = False
    temperature: Annotated[
        float | None, option("--temperature", help="of the softmax; 1 by default", metavar="T")
    ] = None
    seed: SeedFlag = None
    opt_out: OptOutFlag = None
