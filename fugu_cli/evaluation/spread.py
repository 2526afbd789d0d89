"""Rollouts spread over a cluster with ray (the extra `ray`): the engine for more than one machine.

Stands beside running.Here. The folder of the evaluation must be reachable under the same path from every machine: kept
replies and the logs of rollouts lie there. Each rollout gets its share of what may still be spent and says what it
spent; nothing but jobs and rows travels.
"""

from __future__ import annotations

import asyncio
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from fugu_cli.errors import FuguError, UsageError, installing
from fugu_cli.evaluation.loop import Outcome
from fugu_cli.evaluation.rollout import Job, rollout
from fugu_cli.evaluation.running import Opening
from fugu_cli.evaluation.spending import Limits, Spending, Spent, Unanswered
from fugu_cli.messages import Value


class Result(Value):
    """What comes back from a machine: a row, or why there is none; and what was spent."""

    row: Outcome | None = None
    why: Literal["", "spent", "unanswered", "failed"] = ""
    message: str = ""
    hint: str = ""
    agent: str = ""
    final: bool = False
    requests: int = 0
    usd: float = 0.0


def work(job: str, opening: Opening, folder: str, limits: Limits) -> str:
    """One job as JSON, carried out in a process of its own; its Result as JSON. Picklable, as its arguments are."""
    return asyncio.run(_worked(Job.model_validate_json(job), opening, Path(folder), limits)).model_dump_json()


async def _worked(job: Job, opening: Opening, folder: Path, limits: Limits) -> Result:
    spending = Spending(folder / "paid" / f"{job.name.replace('/', '-')}.jsonl", Limits())
    before = spending.requests, spending.usd
    spending.limits = Limits(
        usd=None if limits.usd is None else limits.usd + before[1],
        requests=None if limits.requests is None else limits.requests + before[0],
    )
    found = Result()
    try:
        found = Result(row=await rollout(job, opening(spending), folder))
    except Spent as error:
        found = Result(why="spent", message=str(error), hint=error.hint)
    except Unanswered as error:
        found = Result(why="unanswered", message=str(error), hint=error.hint, agent=error.agent, final=error.final)
    except FuguError as error:
        found = Result(why="failed", message=str(error), hint=error.hint)
    return found.model_copy(update={"requests": spending.requests - before[0], "usd": spending.usd - before[1]})


class Spread:
    """Rollouts on a ray cluster: the one that is there, or one on this machine."""

    def __init__(self, opening: Opening, folder: Path, spending: Spending, share: int) -> None:
        self._ray = _ray()
        self._opening = opening
        self._folder = folder
        self._spending = spending
        self._share = share
        for file in sorted((folder / "paid").glob("*.jsonl")):
            spent = Spending(file, Limits())
            spending.requests, spending.usd = spending.requests + spent.requests, spending.usd + spent.usd
        self._work: Any = self._ray.remote(num_cpus=1, max_retries=0)(work)

    async def do(self, job: Job) -> Outcome:
        """Raises as `rollout` does, and Unanswered where a machine is gone."""
        limits = self._allowance()
        sent = job.model_dump_json(), self._opening, str(self._folder), limits
        try:
            answered = await asyncio.wrap_future(self._work.remote(*sent).future())
        except self._ray.exceptions.RayError as error:
            message = f"{job.name}: the machine that worked on it is gone: {type(error).__name__}"
            raise Unanswered(message, agent="", final=False) from error
        result = Result.model_validate_json(answered)
        self._spending.requests += result.requests
        self._spending.usd += result.usd
        return _row(result)

    async def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()

    def _allowance(self) -> Limits:
        """An equal share of what is left for each of the rollouts at once, so that together they stay within it."""
        left = self._spending.left()
        if (left.usd is not None and left.usd <= 0) or (left.requests is not None and left.requests <= 0):
            raise Spent("the limits of this evaluation are reached", hint="a larger limit goes on")
        usd = None if left.usd is None else left.usd / self._share
        requests = None if left.requests is None else max(1, left.requests // self._share)
        return replace(left, usd=usd, requests=requests)


def _row(result: Result) -> Outcome:
    match result.why:
        case "spent":
            raise Spent(result.message, hint=result.hint)
        case "unanswered":
            raise Unanswered(result.message, agent=result.agent, final=result.final, hint=result.hint)
        case "failed":
            raise FuguError(result.message, hint=result.hint)
        case "":
            assert result.row is not None
            return result.row


def _ray() -> Any:
    """The package, joined to a cluster. Raises UsageError without it."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("the engine ray needs the package 'ray'", hint=installing("ray>=2.40"))
    import ray

    try:
        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
    except BaseException as error:
        if type(error) is not Exception and not isinstance(error, RuntimeError | OSError | ValueError):
            raise
        # ray raises a bare Exception where its own processes do not start in half a minute
        raise FuguError(
            f"ray cannot be started or reached: {error}", hint="look at RAY_ADDRESS, or leave out --engine"
        ) from error
    return ray
