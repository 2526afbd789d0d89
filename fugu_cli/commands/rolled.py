"""Candidates judged by real sessions: a rollout is a session with the candidate's checkpoint.

Between evolve.py and the evaluation's rollouts: several at once, every reply paid for once over all candidates and
iterations, rows kept, so that a run that was killed repeats no call. Cost 1 is the mean rollout of the first iteration.
Decisions are drawn by the replication's seed, the same for all candidates.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from fugu_cli.commands import suites
from fugu_cli.commands.eval import ROOM, duration
from fugu_cli.commands.evalflags import EvolveFlags
from fugu_cli.commands.opening import Opening
from fugu_cli.commands.train_learning import save, say
from fugu_cli.config import Config
from fugu_cli.config.pool import SERVICES, pool
from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators.checkpoint import Checkpoint, Training
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.evaluation import capacity, rows, running
from fugu_cli.evaluation.loop import Outcome
from fugu_cli.evaluation.rollout import Job, rollout
from fugu_cli.evaluation.spending import Limits, Spending, Spent, Unanswered
from fugu_cli.events import ROLES
from fugu_cli.messages import Value
from fugu_cli.tasks import Expected, Problem
from fugu_cli.tasks.checking import Checked, sha
from fugu_cli.tasks.folders import Defaults
from fugu_cli.training.candidates import Candidates, Heads, Shaped
from fugu_cli.training.replay import Played
from fugu_cli.training.runs import write
from fugu_cli.training.search_vector import vector_of


class Row(Value):
    """A rollout of a candidate. The name of its place is `iteration-candidate`."""

    place: str
    outcome: Outcome


@dataclass(frozen=True)
class Wanted:
    """One rollout: a candidate's opening, on one problem with one seed."""

    place: str
    problem: Problem
    seed: int
    opening: Opening

    @property
    def key(self) -> tuple[str, str, int]:
        """What is drawn twice has the same, and is one rollout."""
        return self.place, self.problem.id, self.seed


class Pace:
    """How far an iteration is, and how long the rest of it may take: told at most every `EVERY` seconds."""

    EVERY = 30.0

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._clock = total, clock
        self._begun = self._told = clock()
        self._done = 0

    def step(self) -> None:
        """One rollout more is done."""
        self._done += 1
        now = self._clock()
        if now - self._told >= self.EVERY and self._done < self._total:
            self._told = now
            left = (now - self._begun) / self._done * (self._total - self._done)
            say(f"{self._done} of {self._total} rollouts of this iteration; about {duration(left)} left")


class Rolled:
    """A trial of real sessions. Tasks whose tests pass before, hang or cannot be run are refused and named."""

    def __init__(self, flags: EvolveFlags, config: Config, out: Path, base: Checkpoint) -> None:
        self._flags = flags
        self._config = config
        self._out = out
        self._base = base
        self._problems, self._checks = asyncio.run(_usable(flags, out))
        self.tasks = {problem.id: sha(problem) for problem in self._problems}
        keys = {entry.api_key_env for entry in config.agents} | {service.variable for service in SERVICES}
        self._environ = tuple(sorted((key, value) for key, value in os.environ.items() if key in keys))
        members = [entry.member() for entry in pool(config, dict(self._environ))]
        self._slots = {member.name: member.slot for member in members}
        self._priced = any(member.price and (member.price.input or member.price.output) for member in members)
        self._spending = Spending(out / "paid.jsonl", Limits(flags.max_budget_usd, flags.max_requests))

    def play(self, candidates: Candidates, iteration: int) -> Played:
        """Every candidate on the iteration's tasks, the same tasks and seeds for all."""
        draw = random.Random(f"{self._flags.seed}/{iteration}")
        chosen = [draw.choice(self._problems) for _ in range(self._flags.replications)]
        seeds = [draw.randrange(1000) for _ in chosen]
        wanted = [
            Wanted(f"{iteration}-{who}", problem, seed, self._opening(candidates, who, iteration))
            for who in range(candidates.size)
            for problem, seed in zip(chosen, seeds, strict=True)
        ]
        found = asyncio.run(self._all(wanted))
        return self._played(found, candidates.size)

    def validate(self, candidates: Candidates) -> Played | None:
        """None: real sessions are too dear to be repeated for this."""
        return None

    def pack(self, head: Vector, offsets: Vector, how: str) -> Checkpoint:
        """A checkpoint like the one the search began with, with another head (and offsets, where there are any)."""
        training = Training(stage="evolved on sessions", data=f"{', '.join(self.tasks)[:400]}; {how}")
        meta = self._base.meta.model_copy(update={"training": training})
        return checkpoints.make(vector_of(self._base.offsets, offsets, head), meta)

    def _opening(self, candidates: Candidates, who: int, iteration: int) -> Opening:
        """Sessions with this candidate's checkpoint."""
        assert isinstance(candidates, Heads | Shaped)
        offsets = candidates.offsets[who] if isinstance(candidates, Shaped) else np.zeros(0, np.float32)
        path = self._out / "candidates" / f"{iteration}-{who}.safetensors"
        save(self.pack(candidates.heads[who], offsets, "a candidate"), path)
        config = self._config.model_copy(update={"checkpoint": path, "sample": True})
        return Opening(config, self._environ, self._out)

    async def _all(self, wanted: Sequence[Wanted]) -> list[Outcome | None]:
        """In the order of `wanted`; None where an agent did not answer. Raises Spent, StorageError, and Unanswered
        where it is final or the agent is down."""
        flags, file = self._flags, self._out / "rollouts.jsonl"
        known = {(row.place, row.outcome.task, row.outcome.seed): row.outcome for row in rows.read(file, Row)}
        jobs = {job.key: job for job in wanted}
        pace = Pace(len(jobs.keys() - known.keys()))
        gate = asyncio.Semaphore(capacity.at_once(self._at_once(), flags.cores, flags.memory))

        async def one(job: Wanted) -> Outcome | None:
            async with gate:
                if job.key in known:
                    return known[job.key]
                try:
                    folder = self._out / "iterations" / job.place
                    done = await rollout(self._job(job), job.opening(self._spending), folder)
                except Unanswered as error:
                    if error.final or self._spending.down(error.agent):
                        raise  # without one agent the search would be for another pool
                    say(f"{job.problem.id}: {error}; dropped")
                    return None
                pace.step()
                rows.append(file, Row(place=job.place, outcome=done))
                return done

        done = await _together([asyncio.create_task(one(job)) for job in jobs.values()])
        found = dict(zip(jobs, done, strict=True))
        return [found[job.key] for job in wanted]

    def _job(self, wanted: Wanted) -> Job:
        checked = self._checks.get(wanted.problem.id)
        expected = checked.expected if checked else Expected()
        return Job(arm="trinity", problem=wanted.problem, seed=wanted.seed, expected=expected)

    def _at_once(self) -> int | None:
        local = any(entry.provider == "local" for entry in pool(self._config, dict(self._environ)))
        return self._flags.rollouts or (1 if local else None)

    def _played(self, found: Sequence[Outcome | None], size: int) -> Played:
        rowed = self._base.meta.rows
        by_agents = self._base.meta.kind == "agents"
        uses, roles = np.zeros((size, len(rowed))), np.zeros((size, len(ROLES)))
        count = len(found) // size
        for place, outcome in enumerate(found):
            for use in outcome.uses if outcome else ():
                row = use.agent if by_agents else self._slots.get(use.agent, "")
                if row in rowed:
                    uses[place // count, rowed.index(row)] += use.turns
                if use.role in ROLES:
                    roles[place // count, ROLES.index(use.role)] += use.turns
        if any(not any(found[first : first + count]) for first in range(0, len(found), count)):
            raise Unanswered(
                "a candidate of this iteration had no answer in any of its rollouts",
                agent="",
                final=True,
                hint="everything is kept, and the same command goes on",
            )
        unit = self._unit([outcome for outcome in found if outcome])

        def table(values: Sequence[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
            return np.array(values, np.float64).reshape(size, count)

        return Played(
            table([float(outcome.ok) if outcome else np.nan for outcome in found]),
            table([self._cost(outcome) / unit if outcome else np.nan for outcome in found]),
            table([float(outcome.turns) if outcome else np.nan for outcome in found]),
            uses,
            roles,
            len(found),
            self._spending.usd,
        )

    def _unit(self, found: Sequence[Outcome]) -> float:
        """What counts as 1, the same for the whole run."""
        file = self._out / "unit.json"
        try:
            return float(json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            unit = mean(map(self._cost, found)) or 1.0
            write(file, json.dumps(unit).encode())
            return unit
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{file} cannot be read: {error}", hint="delete it: the next iteration's mean counts as 1 then"
            ) from error

    def _cost(self, outcome: Outcome) -> float:
        """USD where any agent of the pool costs money, else the models' seconds: one unit for the whole run."""
        return outcome.usd if self._priced else outcome.model_seconds


async def _together(tasks: Sequence[asyncio.Task[Outcome | None]]) -> list[Outcome | None]:
    """All of them; what ends one for good ends all, with everything kept."""
    try:
        return await asyncio.gather(*tasks)
    except (Spent, Unanswered, StorageError) as error:
        hint = error.hint.rstrip(".") or (ROOM if isinstance(error, StorageError) else "")
        error.hint = f"{hint}; everything is kept, and the same command goes on".lstrip("; ")
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _usable(flags: EvolveFlags, folder: Path) -> tuple[list[Problem], dict[str, Checked]]:
    """Tasks that can judge, and their checks, which are kept in `folder`. Raises UsageError where there is none."""
    defaults = Defaults(prompt=flags.prompt or "", test_command=flags.test_command or "")
    problems = suites.problems(flags.suites or (), (), defaults, say)
    checks = await running.checked(problems, folder, say)
    found = [problem for problem in problems if problem.id not in checks or not checks[problem.id].refused]
    if not found:
        raise UsageError(
            "no task is left that could judge anything", hint="`fugu help training` says what a task needs"
        )
    return found, checks
