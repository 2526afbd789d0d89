"""`fugu train matrix`: the pass matrix through the engine, and what it says.

Everything is measured as `fugu eval` does: several at once within limits, every reply paid for once, resumable.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fugu_cli import log, views
from fugu_cli.atomic import write_whole
from fugu_cli.commands import suites
from fugu_cli.commands.eval import evaluate
from fugu_cli.commands.evalflags import EvalFlags, MatrixFlags
from fugu_cli.errors import StorageError
from fugu_cli.evaluation import rows, running, setup
from fugu_cli.evaluation.loop import Outcome
from fugu_cli.tasks.checking import Checked
from fugu_cli.tasks.folders import Defaults
from fugu_cli.training.headroom import Draw, headroom, report
from fugu_cli.training.matrix import Cell

FILE = "matrix.jsonl"


def matrix(flags: MatrixFlags) -> int:
    """The exit code of the measurement; what there is is reported whatever ended it."""
    folder = (flags.out or Path("fugu-matrix")).resolve()
    kind = "single" if flags.loop else "one-pass"
    code = 0
    try:
        if not flags.report:
            code = evaluate(_eval_flags(flags, kind, folder))
    finally:
        _reported(flags, kind, folder)
    return code


def _eval_flags(flags: MatrixFlags, kind: str, folder: Path) -> EvalFlags:
    return EvalFlags(
        suites=flags.suites,
        arms=[kind],
        only=flags.only,
        limit=flags.limit,
        prompt=flags.prompt,
        test_command=flags.test_command,
        seeds=flags.repeats,
        out=folder,
        max_budget_usd=flags.max_budget_usd,
        max_requests=flags.max_requests,
        rollouts=flags.rollouts,
        cores=flags.cores,
        memory=flags.memory,
    )


def _reported(flags: MatrixFlags, kind: str, folder: Path) -> None:
    found = [row for row in rows.read(folder / running.ROWS, Outcome) if row.arm.startswith(f"{kind}:")]
    if not found:
        print("nothing was measured yet", file=sys.stderr)
        return
    prompts = _asked(flags)
    prompts |= _before(folder, [row for row in found if row.task not in prompts])
    paid = any(row.usd for row in found)
    cells = [_cell(row, prompts[row.task], _cost(row, paid)) for row in found]
    try:
        write_whole(folder / FILE, "".join(f"{cell.model_dump_json()}\n" for cell in cells).encode())
    except OSError as error:
        raise StorageError(f"{folder / FILE} cannot be written: {error}") from error
    draws = [Draw(row.task, row.arm.partition(":")[2], row.seed, row.ok, _cost(row, paid)) for row in found]
    try:
        missing = _missing(folder, len(found), max(flags.repeats, *(row.seed + 1 for row in found)))
        print(report(headroom(draws, "USD" if paid else "model seconds"), missing))
    except ValueError as error:
        print(f"{error}: nothing can be said yet", file=sys.stderr)
    print(folder / FILE)


def _missing(folder: Path, runs: int, repeats: int) -> int:
    """How many runs the folder's tasks and agents still lack."""
    begun = setup.read(folder)
    if begun is None:
        return 0
    refused = {found.task for found in rows.read(folder / running.CHECKS, Checked) if found.refused}
    return max(len({*begun.tasks} - refused) * len(begun.pool) * repeats - runs, 0)


def _cost(row: Outcome, paid: bool) -> float:
    """USD where any agent of the matrix costs money, seconds of the models where none does: one unit for all."""
    return row.usd if paid else row.model_seconds


def _cell(row: Outcome, prompt: str, cost: float) -> Cell:
    agent = row.arm.partition(":")[2]
    return Cell(task=row.task, agent=agent, repeat=row.seed, ok=row.ok, seconds=cost, prompt=prompt)


def _asked(flags: MatrixFlags) -> dict[str, str]:
    """Requests by task, for the warm start. What is left out was said when it was measured."""
    defaults = Defaults(prompt=flags.prompt or "", test_command=flags.test_command or "")
    every = suites.problems(flags.suites, flags.only or (), defaults, lambda _: None)
    return {problem.id: problem.prompt for problem in every}


def _before(folder: Path, found: Sequence[Outcome]) -> dict[str, str]:
    """The same of tasks that were named another time, as they were put."""
    prompts = {}
    for task, row in {row.task: row for row in found}.items():
        asked = views.asked([record.event for record in log.read(folder / row.session)])
        prompts[task] = asked.text if asked is not None else task
    return prompts
