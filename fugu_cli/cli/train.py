"""`fugu train matrix`, `sft` and `kinds`: the pass matrix, and learning that calls no agent."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import wiring
from fugu_cli.cli.coordinator import as_usage_errors
from fugu_cli.cli.current_folder import current_config
from fugu_cli.cli.eval import evaluate, refuse_ignored_keys, say_progress
from fugu_cli.cli.training_flags import (
    EvalFlags,
    KindsFlags,
    MatrixFlags,
    RolloutFlags,
    SftFlags,
)
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.coordinators import trinity
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.session import log
from fugu_cli.session.state import SessionState
from fugu_cli.system.atomic_files import write_atomically
from fugu_cli.training.evaluation import results_folder, runner
from fugu_cli.training.evaluation.engine import RolloutEngine
from fugu_cli.training.evaluation.results_folder import locked_folder
from fugu_cli.training.evaluation.rollout import RolloutOutcome
from fugu_cli.training.pass_matrix import MatrixCell, headroom, headroom_report
from fugu_cli.training.tasks import ExpectedTests, Problem
from fugu_cli.training.tasks.grading import TaskCheck

if TYPE_CHECKING:
    from fugu_cli.coordinators.backbone import Backbone
    from fugu_cli.coordinators.checkpoint import Checkpoint
    from fugu_cli.training.pass_matrix import HeadRow
    from fugu_cli.training.search import HiddenStates
    from fugu_cli.training.sft import DefaultPolicy


def load_backbone(config: Config) -> Backbone:
    """Load the configured backbone. Raises CoordinatorUnavailable."""
    from fugu_cli.coordinators import backbone

    folder = trinity.backbone_folder(config.backbone, config.cache)
    return backbone.load_backbone(folder, cache=config.cache / "backbones")


def backbone_for_checkpoint(
    config: Config, start: Checkpoint | None = None, *, searched: bool = False
) -> tuple[Backbone, HiddenStates]:
    """Load the backbone with which sessions read for the checkpoint `start`, and its hidden states.

    With `searched`, the offsets of the second-to-last layer are left to the search. Raises
    CoordinatorUnavailable if `start` is for another backbone.
    """
    from fugu_cli.training import search
    from fugu_cli.training.search import HiddenStates

    backbone, named = load_backbone(config), ""
    if start is not None:
        start.check(backbone.identity, backbone.shape)
        searches = [searched and 1 <= index <= 7 for index in range(len(start.offsets))]
        blocks = [
            block * (not is_searched)
            for block, is_searched in zip(start.offsets, searches, strict=True)
        ]
        named = search.apply_offsets(
            backbone, blocks, start.meta.tied, singular_values_folder(config, backbone)
        )
    return backbone, HiddenStates(backbone, hidden_states_folder(config), say_progress, named)


def singular_values_folder(config: Config, backbone: Backbone) -> Path:
    """Return the folder of the backbone's singular values."""
    return config.cache / "svf" / backbone.identity[:16]


def hidden_states_folder(config: Config) -> Path:
    """Return the cache folder of hidden states, all of which can be computed again."""
    return config.cache / "training"


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint. Raises StorageError where it cannot be written."""
    from fugu_cli.coordinators import checkpoint as checkpoints

    try:
        checkpoints.save(checkpoint, path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


COUNTING_DOES_IT = (
    "leave `checkpoint` out: fugu counts the outcomes of your sessions and decides by them"
)


def refuse_train_sessions() -> int:
    """Raise UsageError that names the successor of the former command `fugu train sessions`."""
    raise UsageError("fugu train sessions is gone", hint=COUNTING_DOES_IT)


def train_sft(flags: SftFlags) -> int:
    """Fit a head to a pass matrix, and say whether it is better than the default."""
    if flags.digest:
        raise UsageError("--digest is gone", hint=COUNTING_DOES_IT)
    if flags.offsets:
        raise UsageError(
            "--offsets is gone here", hint="`fugu train evolve --offsets` trains offsets"
        )
    from fugu_cli.training import pass_matrix
    from fugu_cli.training.pass_matrix import ValueSettings
    from fugu_cli.training.search import HiddenStates
    from fugu_cli.training.sft import WarmStart, WarmStartSettings, parse_head_rows

    cells = pass_matrix.read_matrix(flags.matrix)
    agents = dict.fromkeys(cell.agent for cell in cells)
    rows = parse_head_rows(flags.rows or [f"{agent}={agent}" for agent in agents])
    for row in rows:
        if row.agent not in agents:
            raise UsageError(
                f"--row {row.row}={row.agent}: {flags.matrix} has no run of {row.agent}",
                hint=f"it has runs of {', '.join(agents) or 'nobody'}",
            )
    tasks = pass_matrix.pass_rates(cells, rows)
    loaded = current_config()
    refuse_ignored_keys(loaded)
    config = loaded.config
    path = flags.out or config.data / "coordinators" / "warm-start.safetensors"
    recipe = WarmStartSettings(rows, ValueSettings(cost=flags.cost, tau=flags.tau), seed=flags.seed)
    with as_usage_errors(), locked_folder(path.parent, "training"):
        say_progress("loading the backbone")
        backbone = load_backbone(config)
        states = HiddenStates(backbone, hidden_states_folder(config), say_progress)
        warm_start = WarmStart(recipe, backbone, states, _default_policy(config, rows))
        result = warm_start.run(tasks, flags.matrix.name, say_progress)
        save_checkpoint(result.checkpoint, path)
    print(result.report)
    print(path)
    return 0


def _default_policy(config: Config, rows: Sequence[HeadRow]) -> DefaultPolicy | None:
    """Return the coordinator that decides among the rows' agents without a checkpoint; None if an
    agent is missing in the pool.
    """
    from fugu_cli.training.sft import DefaultPolicy

    entries = {entry.name: entry for entry in usable_pool(config, os.environ)}
    if any(row.agent not in entries for row in rows):
        return None
    members = tuple(
        entries[row.agent].member().model_copy(update={"name": row.row}) for row in rows
    )
    default = config.model_copy(
        update={"coordinator": Config().coordinator, "checkpoint": None, "tier": "fugu"}
    )
    return DefaultPolicy(wiring.build_coordinator(default, members)[0], members)


def train_kinds(flags: KindsFlags) -> int:
    """Fit a kind head to requests whose kind is known, and say how often it is right."""
    config = current_config().config
    if flags.backbone is not None:
        config = config.model_copy(update={"backbone": flags.backbone})
    with as_usage_errors():
        from fugu_cli.coordinators import kinds
        from fugu_cli.training import kinds as training

        rows = training.read_rows(flags.rows)
        backbone = load_backbone(config)
        trained = training.train(rows, backbone, say_progress)
    path = flags.out or kinds.head_file(config.data / "coordinators", backbone.identity)
    try:
        kinds.save(trained.head, path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    print(
        f"right for {trained.accuracy:.1%} of the requests that were held out "
        f"({training.FOLDS} folds of {trained.rows}); the most frequent kind: "
        f"{trained.majority:.1%}"
    )
    print(path)
    return 0


async def usable_tasks(
    problems: Sequence[Problem], engine: RolloutEngine, folder: Path
) -> tuple[list[Problem], dict[str, ExpectedTests]]:
    """Return the tasks that can judge, with their known tests. Checks are kept in `folder`. Raises
    UsageError if there are none.
    """
    checks = await runner.check_tasks(problems, engine, folder, say_progress)
    tasks = [
        problem
        for problem in problems
        if problem.id not in checks or not checks[problem.id].refused
    ]
    if not tasks:
        raise runner.no_task_left()
    return tasks, {name: check.expected for name, check in checks.items()}


MATRIX_FILE = "matrix.jsonl"


def train_matrix(flags: MatrixFlags) -> int:
    """Measure the agents and return the exit code. The present results are reported however it
    ends.
    """
    folder = (flags.out or Path("fugu-matrix")).resolve()
    arm = "single" if flags.loop else "one-pass"
    code = 0
    try:
        if not flags.report:
            rollout_flags = {
                field.name: getattr(flags, field.name) for field in fields(RolloutFlags)
            }
            code = evaluate(
                EvalFlags(
                    suites=flags.suites,
                    arms=[arm],
                    seeds=flags.repeats,
                    out=folder,
                    **rollout_flags,
                )
            )
    finally:
        _write_results(flags, arm, folder)
    return code


def _write_results(flags: MatrixFlags, arm: str, folder: Path) -> None:
    """Write the matrix of all rows of `arm` into the folder, and print the headroom."""
    all_rows = results_folder.read_rows(folder / runner.ROWS_FILE, RolloutOutcome)
    rows = [row for row in all_rows if row.arm.startswith(f"{arm}:")]
    if not rows:
        if flags.report:
            print("nothing was measured yet", file=sys.stderr)
        return
    prompts: dict[str, str] = {}
    for row in rows:
        if row.task not in prompts:
            prompts[row.task] = _request_of(folder, row)
    is_paid = any(row.usd for row in rows)  # one unit for all: USD if any agent costs money
    cells = []
    for row in rows:
        cell = MatrixCell(
            task=row.task,
            agent=row.arm.partition(":")[2],
            repeat=row.seed,
            ok=row.ok,
            seconds=row.usd if is_paid else row.model_seconds,
            prompt=prompts[row.task],
        )
        cells.append(cell)
    file = folder / MATRIX_FILE
    try:
        write_atomically(file, "".join(f"{cell.model_dump_json()}\n" for cell in cells).encode())
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error}") from error
    repeats = max(flags.repeats, *(row.seed + 1 for row in rows))
    missing = _count_missing(folder, len(rows), repeats)
    unit = "USD" if is_paid else "model seconds"
    try:
        print(headroom_report(headroom(cells, unit), missing))
    except ValueError as error:
        print(f"{error}: nothing can be said yet", file=sys.stderr)
    print(file)


def _count_missing(folder: Path, runs: int, repeats: int) -> int:
    """Return how many runs the folder's tasks and agents still need."""
    setup = results_folder.read_setup(folder)
    if setup is None:
        return 0
    checks = results_folder.read_rows(folder / runner.CHECKS_FILE, TaskCheck)
    refused = {check.task for check in checks if check.refused}
    tasks = len({*setup.tasks} - refused)
    return max(tasks * len(setup.pool) * repeats - runs, 0)


def _request_of(folder: Path, row: RolloutOutcome) -> str:
    """Return the request of a row, for the warm start."""
    request = SessionState.of_records(log.read(folder / row.session)).request.asked
    return request.text if request is not None else row.task
