"""The engines that run rollouts for evaluation and training: the protocol, and the engine that runs
them in this process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from fugu_cli.tools.shell_commands import command_slots
from fugu_cli.training.evaluation.paid_calls import SpendingAccount
from fugu_cli.training.evaluation.rollout import (
    OpenRolloutSession,
    RolloutJob,
    RolloutOutcome,
    rollout,
)
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.grading import TaskCheck, check_task

Result = TypeVar("Result")


class RolloutEngine(Protocol):
    """Runs rollouts and checks of tasks, and keeps the account of all their costs.

    A job writes only into its own folder, and the caller writes the rows. So a job that is run a
    second time continues from its log.
    """

    @property
    def spending(self) -> SpendingAccount:
        """The account that grants every model call."""

    @property
    def cores(self) -> int:
        """The number of tests and commands of rollouts that run at a time."""

    async def do(self, job: RolloutJob) -> RolloutOutcome:
        """Run or resume a rollout. Raises what `rollout` raises."""

    async def check(self, task: Task) -> TaskCheck:
        """Check that the task can judge. Raises StorageError and RolloutLost."""

    async def close(self) -> None:
        """Release the engine's processes and connections."""


class LocalEngine:
    """Runs rollouts in this process. Each core runs one of their tests or commands at a time; the
    caller bounds how many rollouts wait for models.
    """

    def __init__(
        self,
        open_session: OpenRolloutSession,
        spending: SpendingAccount,
        folder: Path,
        cores: int | None = None,
    ) -> None:
        """`cores` defaults to the cores of this process."""
        self._open_session = open_session
        self._spending = spending
        self._folder = folder
        self._cores = cores or available_cores()
        self._slots = asyncio.Semaphore(self._cores)
        self._checks = asyncio.Semaphore(self._cores)

    @property
    def spending(self) -> SpendingAccount:
        return self._spending

    @property
    def cores(self) -> int:
        return self._cores

    async def do(self, job: RolloutJob) -> RolloutOutcome:
        with command_slots(self._slots):
            return await rollout(job, self._open_session, self._folder)

    async def check(self, task: Task) -> TaskCheck:
        async with self._checks:
            return await check_task(task)

    async def close(self) -> None:
        pass


async def gather_or_cancel(coroutines: Sequence[Coroutine[object, object, Result]]) -> list[Result]:
    """Run the coroutines side by side and return their results in order. If one fails, the others
    are cancelled.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def available_cores() -> int:
    """Return the cores of this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if TYPE_CHECKING:

    def _fits(engine: LocalEngine) -> RolloutEngine:
        return engine
