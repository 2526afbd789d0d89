"""Arms of a coordinator on a folder of tasks, in this process: a table that goes on where it was
stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fugu_cli.errors import InfrastructureError
from fugu_cli.session.events import Failed
from fugu_cli.session.state import SessionState
from fugu_cli.system import temp_dirs
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.evaluation.paid_calls import OUTSIDE_FAILURES
from fugu_cli.training.evaluation.rollout import (
    OpenRolloutSession,
    RolloutContext,
    RolloutOutcome,
    agent_spending,
)
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.grading import grade
from fugu_cli.training.tasks.repository import create_repository


class RolloutDropped(InfrastructureError):
    """A try that ended for reasons outside the agents; its row stays empty and is measured
    again.
    """


Tell = Callable[[RolloutOutcome | str], None]
"""Takes each row as it is measured, or a sentence about one that could not be."""


async def run_task(
    task: Task, arm: str, open_session: OpenRolloutSession, folder: Path
) -> RolloutOutcome:
    """One task, one arm, in a new repository; the session's log stays below `folder`.

    Raises Dropped when the surroundings ended it, and whatever opening the session raises.
    """
    with temp_dirs.temp_dir("loop") as temporary:
        repository = await create_repository(task, temporary / task.id)
        session = await open_session(
            RolloutContext(arm, task, repository, folder / "sessions" / arm.replace(":", "-"))
        )
        started = time.monotonic()
        try:
            await session.ask(task.prompt)
            end = await session.run()
            events = tuple(session.log.events)
            path = session.log.path
        finally:
            await session.close()
        seconds = time.monotonic() - started
        failures = [event for event in events if isinstance(event, Failed)]
        if end.reason == "failed" and any(failure.kind in OUTSIDE_FAILURES for failure in failures):
            raise RolloutDropped(f"{task.id}, {arm}: {end.message or failures[-1].message}")
        judged = await grade(task, repository)
    return RolloutOutcome(
        task=task.id,
        arm=arm,
        ok=judged.ok,
        accepted=end.reason == "accepted",
        reason=end.reason,
        turns=len(SessionState(events).request.turns),
        seconds=round(seconds, 3),
        spent=agent_spending(events),
        session=""
        if path is None
        else str(path.relative_to(folder))
        if path.is_relative_to(folder)
        else str(path),
        failures=tuple(
            f"{failure.what}: {failure.kind}: {failure.message}" for failure in failures
        ),
    )


async def measure_arms(
    tasks: Sequence[Task],
    arms: Sequence[str],
    open_session: OpenRolloutSession,
    file: Path,
    tell: Tell,
) -> None:
    """Fill the table tasks x arms in `file`, task by task so that a measurement cut short compares
    the same tasks; what is there already is not measured again. Three tries in a row that had to be
    dropped end it with Dropped.
    """
    known = {(row.task, row.arm) for row in results_folder.read_rows(file, RolloutOutcome)}
    dropped = 0
    for task in tasks:
        for arm in arms:
            if (task.id, arm) in known:
                continue
            try:
                row = await run_task(task, arm, open_session, file.parent)
            except RolloutDropped as error:
                dropped += 1
                tell(f"{error}; dropped")
                if dropped == 3:
                    raise
                continue
            dropped = 0
            results_folder.append_row(file, row)
            tell(row)
