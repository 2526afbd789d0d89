"""What measurements over a folder of tasks share: the tasks' order, how they tell of themselves,
how they end.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import zlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path

import one_pass

from fugu_cli.config.agent_pool import EMBEDDED
from fugu_cli.errors import FuguError
from fugu_cli.local.embedded_agent import EmbeddedAgent
from fugu_cli.local.server_lease import lease_server
from fugu_cli.training.evaluation import rollout
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.loading import load_tasks


def measured(
    folder: Path,
    only: Sequence[str],
    measure: Callable[[Sequence[Task]], Coroutine[object, object, None]],
) -> int:
    """Measure the tasks of `folder` in the files `only`. Exit code: 0, or that of the failure that
    ended it.
    """
    interpreter = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join(
        [interpreter, os.environ.get("PATH", os.defpath)]
    )  # tasks say `python`
    try:
        loaded = load_tasks(folder, only=tuple(only))
        for skipped in loaded.skipped:
            tell(f"{skipped.id}: left out: {skipped.reason}")
        asyncio.run(measure(mixed(loaded.tasks)))
    except FuguError as error:
        print(f"{error}\n{error.hint}".strip(), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; run it again to go on", file=sys.stderr)
        return 4
    return 0


def embedded(name: str) -> EmbeddedAgent:
    """The embedded pool's agent of this name, without its protocol."""
    entry = next(entry for entry in EMBEDDED if entry.name == name)
    start = partial(lease_server, entry.model, context=entry.context or 16384)
    return EmbeddedAgent(entry.name, entry.model, start)


def mixed(tasks: Sequence[Task]) -> list[Task]:
    """Always the same order, of no meaning: a measurement cut short covers every source."""
    return sorted(tasks, key=lambda task: zlib.crc32(task.id.encode()))


def tell(row: one_pass.OnePassAttempt | rollout.RolloutOutcome | str) -> None:
    """One line on stderr for each row."""
    match row:
        case str():
            line = row
        case one_pass.OnePassAttempt():
            cost = f"{row.seconds:.0f} s, {row.input} + {row.output} tokens"
            line = (
                f"{row.agent} {row.task} answer {row.repeat}: "
                f"{'solved' if row.ok else 'not solved'}, {cost}"
            )
        case rollout.RolloutOutcome():
            cost = f"{row.turns} turns, {row.calls} calls, {row.seconds:.0f} s"
            line = (
                f"{row.arm} {row.task}: {'solved' if row.ok else 'not solved'}, {row.reason}, "
                f"{cost}"
            )
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)
