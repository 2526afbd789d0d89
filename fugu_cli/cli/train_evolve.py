"""`fugu train evolve`: what is evolved, and the fitness of a candidate from recorded outcomes, a pass matrix or real
sessions.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np
from pydantic import JsonValue

from fugu_cli.cli import eval
from fugu_cli.cli.coordinator import as_usage_errors
from fugu_cli.cli.current_folder import current_config
from fugu_cli.cli.eval import DISK_HINT, RolloutSessionFactory, duration
from fugu_cli.cli.train import (
    backbone_for_checkpoint,
    parse_checks,
    save_checkpoint,
    say_progress,
    singular_values_folder,
)
from fugu_cli.cli.training_flags import EvolveFlags
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import SERVICES, usable_pool
from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators import trinity
from fugu_cli.coordinators.checkpoint import Checkpoint, TrainingOrigin
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import ConfigError, StorageError, UsageError
from fugu_cli.evaluation import results_folder, runner
from fugu_cli.evaluation.paid_calls import AgentUnanswered, Spending, SpendingLimitReached, SpendingLimits
from fugu_cli.evaluation.rollout import RolloutJob, RolloutOutcome, rollout
from fugu_cli.messages import Value
from fugu_cli.session.events import ROLES
from fugu_cli.tasks import ExpectedTests, Problem
from fugu_cli.tasks.grading import TaskCheck, problem_sha
from fugu_cli.tasks.loading import TaskDefaults
from fugu_cli.training.evolution import write_run_file
from fugu_cli.training.replay import TrialResult
from fugu_cli.training.search import Candidates, HeadCandidates, OffsetCandidates, checkpoint_vector, cma_strategy

if TYPE_CHECKING:
    from fugu_cli.coordinators.backbone import Backbone
    from fugu_cli.training.evolution import EvolutionIteration, EvolutionSettings, Evolved, Trial
    from fugu_cli.training.mixture import CascadeComparison, Mixture, MixtureConfig
    from fugu_cli.training.search import HiddenStates, Layout, Numbers


class CandidateRow(Value):
    """A rollout of a candidate. The name of its place is `iteration-candidate`."""

    place: str
    outcome: RolloutOutcome


@dataclass(frozen=True)
class CandidateRollout:
    """One rollout: a candidate's opening, on one problem with one seed."""

    place: str
    problem: Problem
    seed: int
    opening: RolloutSessionFactory

    @property
    def key(self) -> tuple[str, str, int]:
        """What is drawn twice has the same, and is one rollout."""
        return self.place, self.problem.id, self.seed


class ProgressEstimate:
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
            say_progress(f"{self._done} of {self._total} rollouts of this iteration; about {duration(left)} left")


class RolloutFitness:
    """A trial of real sessions. Tasks whose tests pass before, hang or cannot be run are refused and named."""

    def __init__(self, flags: EvolveFlags, config: Config, out: Path, base: Checkpoint) -> None:
        self._flags = flags
        self._config = config
        self._out = out
        self._base = base
        self._problems, self._checks = asyncio.run(_usable_tasks(flags, out))
        self.tasks = {problem.id: problem_sha(problem) for problem in self._problems}
        keys = {entry.api_key_env for entry in config.agents} | {service.variable for service in SERVICES}
        self._environ = tuple(sorted((key, value) for key, value in os.environ.items() if key in keys))
        members = [entry.member() for entry in usable_pool(config, dict(self._environ))]
        self._slots = {member.name: member.slot for member in members}
        self._priced = any(member.price and (member.price.input or member.price.output) for member in members)
        self._spending = Spending(out / "paid.jsonl", SpendingLimits(flags.max_budget_usd, flags.max_requests))

    def play(self, candidates: Candidates, iteration: int) -> TrialResult:
        """Every candidate on the iteration's tasks, the same tasks and seeds for all."""
        draw = random.Random(f"{self._flags.seed}/{iteration}")
        chosen = [draw.choice(self._problems) for _ in range(self._flags.replications)]
        seeds = [draw.randrange(1000) for _ in chosen]
        wanted = [
            CandidateRollout(f"{iteration}-{who}", problem, seed, self._opening(candidates, who, iteration))
            for who in range(candidates.size)
            for problem, seed in zip(chosen, seeds, strict=True)
        ]
        found = asyncio.run(self._all(wanted))
        return self._played(found, candidates.size)

    def validate(self, candidates: Candidates) -> TrialResult | None:
        """None: real sessions are too dear to be repeated for this."""
        return None

    def pack(self, head: Vector, offsets: Vector, how: str) -> Checkpoint:
        """A checkpoint like the one the search began with, with another head (and offsets, where there are any)."""
        training = TrainingOrigin(stage="evolved on sessions", data=f"{', '.join(self.tasks)[:400]}; {how}")
        meta = self._base.meta.model_copy(update={"training": training})
        return checkpoints.make(checkpoint_vector(self._base.offsets, offsets, head), meta)

    def _opening(self, candidates: Candidates, who: int, iteration: int) -> RolloutSessionFactory:
        """Sessions with this candidate's checkpoint."""
        assert isinstance(candidates, HeadCandidates | OffsetCandidates)
        offsets = candidates.offsets[who] if isinstance(candidates, OffsetCandidates) else np.zeros(0, np.float32)
        path = self._out / "candidates" / f"{iteration}-{who}.safetensors"
        save_checkpoint(self.pack(candidates.heads[who], offsets, "a candidate"), path)
        config = self._config.model_copy(update={"checkpoint": path, "sample": True})
        return RolloutSessionFactory(config, self._environ, self._out)

    async def _all(self, wanted: Sequence[CandidateRollout]) -> list[RolloutOutcome | None]:
        """In the order of `wanted`; None where an agent did not answer. Raises Spent, StorageError, and Unanswered
        where it is final or the agent is down."""
        flags, file = self._flags, self._out / "rollouts.jsonl"
        known = {
            (row.place, row.outcome.task, row.outcome.seed): row.outcome
            for row in results_folder.read_rows(file, CandidateRow)
        }
        jobs = {job.key: job for job in wanted}
        pace = ProgressEstimate(len(jobs.keys() - known.keys()))
        gate = asyncio.Semaphore(runner.rollouts_at_once(self._at_once(), flags.cores, flags.memory))

        async def one(job: CandidateRollout) -> RolloutOutcome | None:
            async with gate:
                if job.key in known:
                    return known[job.key]
                try:
                    folder = self._out / "iterations" / job.place
                    done = await rollout(self._job(job), job.opening(self._spending), folder)
                except AgentUnanswered as error:
                    if error.final or self._spending.down(error.agent):
                        raise  # without one agent the search would be for another pool
                    say_progress(f"{job.problem.id}: {error}; dropped")
                    return None
                pace.step()
                results_folder.append_row(file, CandidateRow(place=job.place, outcome=done))
                return done

        done = await _gather_all([asyncio.create_task(one(job)) for job in jobs.values()])
        found = dict(zip(jobs, done, strict=True))
        return [found[job.key] for job in wanted]

    def _job(self, wanted: CandidateRollout) -> RolloutJob:
        checked = self._checks.get(wanted.problem.id)
        expected = checked.expected if checked else ExpectedTests()
        return RolloutJob(arm="trinity", problem=wanted.problem, seed=wanted.seed, expected=expected)

    def _at_once(self) -> int | None:
        local = any(entry.provider == "local" for entry in usable_pool(self._config, dict(self._environ)))
        return self._flags.rollouts or (1 if local else None)

    def _played(self, found: Sequence[RolloutOutcome | None], size: int) -> TrialResult:
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
            raise AgentUnanswered(
                "a candidate of this iteration had no answer in any of its rollouts",
                agent="",
                final=True,
                hint="everything is kept, and the same command goes on",
            )
        unit = self._unit([outcome for outcome in found if outcome])

        def table(values: Sequence[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
            return np.array(values, np.float64).reshape(size, count)

        return TrialResult(
            table([float(outcome.ok) if outcome else np.nan for outcome in found]),
            table([self._cost(outcome) / unit if outcome else np.nan for outcome in found]),
            table([float(outcome.turns) if outcome else np.nan for outcome in found]),
            uses,
            roles,
            len(found),
            self._spending.usd,
        )

    def _unit(self, found: Sequence[RolloutOutcome]) -> float:
        """What counts as 1, the same for the whole run."""
        file = self._out / "unit.json"
        try:
            return float(json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            unit = mean(map(self._cost, found)) or 1.0
            write_run_file(file, json.dumps(unit).encode())
            return unit
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{file} cannot be read: {error}", hint="delete it: the next iteration's mean counts as 1 then"
            ) from error

    def _cost(self, outcome: RolloutOutcome) -> float:
        """USD where any agent of the pool costs money, else the models' seconds: one unit for the whole run."""
        return outcome.usd if self._priced else outcome.model_seconds


async def _gather_all(tasks: Sequence[asyncio.Task[RolloutOutcome | None]]) -> list[RolloutOutcome | None]:
    """All of them; what ends one for good ends all, with everything kept."""
    try:
        return await asyncio.gather(*tasks)
    except (SpendingLimitReached, AgentUnanswered, StorageError) as error:
        hint = error.hint.rstrip(".") or (DISK_HINT if isinstance(error, StorageError) else "")
        error.hint = f"{hint}; everything is kept, and the same command goes on".lstrip("; ")
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _usable_tasks(flags: EvolveFlags, folder: Path) -> tuple[list[Problem], dict[str, TaskCheck]]:
    """Tasks that can judge, and their checks, which are kept in `folder`. Raises UsageError where there is none."""
    defaults = TaskDefaults(prompt=flags.prompt or "", test_command=flags.test_command or "")
    problems = eval.load_problems(flags.suites or (), (), defaults, say_progress)
    checks = await runner.check_tasks(problems, folder, say_progress)
    found = [problem for problem in problems if problem.id not in checks or not checks[problem.id].refused]
    if not found:
        raise UsageError(
            "no task is left that could judge anything", hint="`fugu help training` says what a task needs"
        )
    return found, checks


CHECKPOINT_NAME = "checkpoint.safetensors"


@dataclass(frozen=True)
class EvolutionSetup:
    """What is evolved: where the search begins, how its points become checkpoints, and in what it is judged."""

    start: Numbers
    layout: Layout
    trial: Trial
    pack: Callable[[Numbers, str], Checkpoint]
    about: dict[str, JsonValue]
    prove: Callable[[], CascadeComparison] | None = None


def evolve(flags: EvolveFlags) -> int:
    """Run or go on with an evolution: exit code 0, or 4 where it was interrupted. Failures are those of the tree."""
    from fugu_cli.cli.eval import INTERRUPTED

    try:
        return _evolve(flags)
    except KeyboardInterrupt:
        say_progress("interrupted; everything is kept, and the same command goes on")
        return INTERRUPTED


def _evolve(flags: EvolveFlags) -> int:
    kinds = [bool(flags.suites), flags.outcomes is not None or flags.matrix is not None]
    if sum(kinds) != 1:
        raise UsageError("say what candidates are judged by: TASKS, or --outcomes FILE and/or --matrix FILE")
    if flags.prove and flags.suites:
        raise UsageError("--prove goes with --outcomes and --matrix", hint="`fugu eval` compares on TASKS")
    cma_strategy()  # before anything is read that takes minutes
    loaded = current_config()
    config, out = loaded.config, (flags.out or Path("fugu-evolve")).resolve()
    interpreter = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([interpreter, os.environ.get("PATH", os.defpath)])  # tasks say `python`
    with as_usage_errors():
        found = _rollout_setup(flags, config, out) if flags.suites else _replay_setup(flags, config)
        evolved = _run(flags, found, out)
        made = found.pack(*_best_point(found, evolved, flags.cost))
        proven = found.prove() if flags.prove and found.prove is not None else None
    say_progress(f"{len(evolved.history)} iterations; {evolved.stopped}")
    if proven is not None:
        print(proven.table())
        if proven.worse:
            (out / CHECKPOINT_NAME).unlink(missing_ok=True)
            raise ConfigError(
                f"the rule cascade does better on {' and '.join(proven.worse)}: no checkpoint is left",
                hint='train on more, with another --seed, or use `coordinator = "cascade"`',
            )
        made = with_comparison(made, proven.record())
    save_checkpoint(made, out / CHECKPOINT_NAME)
    print(out / CHECKPOINT_NAME)
    return 0


def _best_point(found: EvolutionSetup, evolved: Evolved, price: float) -> tuple[Numbers, str]:
    """The evolved point and how it came about; the start where validation is not sure that evolution was better."""
    import numpy as np

    from fugu_cli.training.study import surely_better

    how = f"{len(evolved.history)} iterations, {evolved.stopped}"
    both = found.layout.breed(np.stack([found.start, evolved.vector]))
    if surely_better(found.trial, both, price):
        return evolved.vector, how
    return found.start, f"{how}; not surely better than the start, which stays"


def with_comparison(made: Checkpoint, lines: dict[str, float]) -> Checkpoint:
    """With the proof in its record."""
    from fugu_cli.coordinators import checkpoint as checkpoints

    training = made.meta.training.model_copy(update={"report": (*made.meta.training.report, *lines.items())})
    return checkpoints.make(made.vector, made.meta.model_copy(update={"training": training}))


def _run(flags: EvolveFlags, found: EvolutionSetup, out: Path) -> Evolved:
    from fugu_cli.training.evolution import Evolution, RunFolder

    settings = _settings(flags)
    fixed = settings.model_dump(mode="json", exclude={"iterations", "patience"})
    folder = RunFolder(
        out, {**found.about, "settings": fixed}, lambda mean, path: save_checkpoint(found.pack(mean, "running"), path)
    )
    with folder.held():
        return Evolution(settings, found.trial, found.layout.breed, folder).run(found.start, _tell)


def _settings(flags: EvolveFlags) -> EvolutionSettings:
    from fugu_cli.training.evolution import EvolutionSettings, FitnessWeights

    return EvolutionSettings(
        population=flags.population,
        iterations=flags.iterations,
        replications=flags.replications,
        sigma=flags.sigma,
        seed=flags.seed,
        patience=flags.patience,
        shaping=FitnessWeights(diversity=flags.diversity, turns=flags.turns, cost=flags.cost),
    )


def _tell(row: EvolutionIteration) -> None:
    held = "" if row.validation is None else f", held {row.validation:.4f}"
    say_progress(
        f"iteration {row.iteration}: best {row.best:.4f}, mean {row.mean:.4f}{held}; sigma {row.sigma:.3g}; "
        f"solved {row.reward:.1%}, cost {row.mean_cost:.3f}, turns {row.mean_turns:.2f}; {row.seconds:.1f} s"
    )


def _replay_setup(flags: EvolveFlags, config: Config) -> EvolutionSetup:
    """Recorded outcomes under random pools, a pass matrix, or both."""
    from fugu_cli.coordinators.checkpoint import TrainingOrigin
    from fugu_cli.training import mixture as training_mixture
    from fugu_cli.training import study
    from fugu_cli.training.mixture import checkpoint_at, load_mixture, load_start, mixture_record, new_checkpoint

    start = load_start(flags.start) if flags.start else None
    backbone, hidden_states = backbone_for_checkpoint(config, start, searched=flags.offsets)
    read = (backbone, hidden_states)
    blend = _mixture_config(flags, start)
    mixture, told = load_mixture(flags.outcomes, flags.matrix, tuple(flags.rows or ()), blend, read)
    if flags.prove:
        mixture.provable()
    base = start or new_checkpoint(study.warm_start_head(told, mixture.blend.course), backbone)
    layout = _layout(flags, config, read, (told.hidden, len(base.head)))
    data, count = mixture_record(mixture, start), 0 if start else len(told.hidden)

    def pack(point: Numbers, how: str) -> Checkpoint:
        training = TrainingOrigin(stage="evolved", data=f"{data}; {how}", examples=count, seed=flags.seed)
        return checkpoint_at(base, layout, point, training)

    return EvolutionSetup(
        layout.start(base.head, base.offsets),
        layout,
        mixture.trial(),
        pack,
        {"layout": type(layout).__name__, "start": start.digest if start else None, **_mixture_record(mixture)},
        lambda: training_mixture.compare_with_cascade(
            mixture, hidden_states, _previous_head(config, base, hidden_states), say_progress
        ),
    )


def _previous_head(config: Config, base: Checkpoint, hidden_states: HiddenStates) -> Vector | None:
    """The head in use, where it is over the same slots and reads the same states."""
    from fugu_cli.coordinators import checkpoint as checkpoints
    from fugu_cli.training import search

    used = checkpoints.load(config.checkpoint or trinity.SHIPPED)
    same = {"rows", "roles", "backbone", "format", "workers_only", "budget"}
    fits = used.meta.model_dump(include=same) == base.meta.model_dump(include=same)
    return used.head if fits and search.states_name(used.offsets, used.meta.tied) == hidden_states.offsets else None


def _mixture_record(mixture: Mixture) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = dict(mixture.about())
    return found


def _mixture_config(flags: EvolveFlags, start: Checkpoint | None) -> MixtureConfig:
    from fugu_cli.training.mixture import MixtureConfig
    from fugu_cli.training.study import HeadTrainingSettings
    from fugu_cli.training.synthetic_sessions import TranscriptSettings

    course = HeadTrainingSettings(price=flags.cost, settings=_settings(flags))
    like = (
        TranscriptSettings(start.meta.format, start.meta.workers_only, start.meta.budget)
        if start
        else TranscriptSettings()
    )
    return MixtureConfig(parse_checks(flags.check)[0], course, like, shown=flags.replications, seed=flags.seed)


def _layout(
    flags: EvolveFlags, config: Config, read: tuple[Backbone, HiddenStates], like: tuple[Vector, int]
) -> Layout:
    """The head alone, or with the offsets of the second-to-last layer; `like` are states and the head's rows."""
    from fugu_cli.coordinators import svf
    from fugu_cli.training.search import HeadLayout, LayerLayout

    backbone, hidden_states = read
    if not flags.offsets:
        return HeadLayout(hidden_states, like[1], like[0])
    adapter = svf.SvfAdapter(backbone.decoder, singular_values_folder(config, backbone))
    return LayerLayout(backbone, adapter, like[1], like[0])


def _rollout_setup(flags: EvolveFlags, config: Config, out: Path) -> EvolutionSetup:
    """Real sessions on tasks: every candidate's checkpoint in the engine, every reply paid for once."""
    from fugu_cli.cli.eval import reply_settings, shared_settings
    from fugu_cli.coordinators import checkpoint as checkpoints

    entries = usable_pool(config, dict(os.environ))
    members = tuple(entry.member() for entry in entries)
    base = checkpoints.load(flags.start or config.checkpoint or trinity.SHIPPED)
    read = backbone_for_checkpoint(config, base, searched=flags.offsets)
    trial = RolloutFitness(flags, config, out, base)
    layout = _layout_of(flags, config, read, base)
    return EvolutionSetup(
        layout.start(base.head, base.offsets),
        layout,
        trial,
        lambda point, how: trial.pack(layout.head(point), layout.offsets(point), how),
        {
            "pool": [member.model_dump(mode="json") for member in members],
            "entries": {entry.name: dict(reply_settings(entry)) for entry in entries},
            "limits": dict(shared_settings(config)),
            "tasks": dict(trial.tasks),
            "start": base.digest,
        },
    )


def _layout_of(flags: EvolveFlags, config: Config, read: tuple[Backbone, HiddenStates], base: Checkpoint) -> Layout:
    """Units from a few requests as the backbone reads them: sessions have not been read yet."""
    from fugu_cli.training import synthetic_sessions

    general = synthetic_sessions.general_requests()
    texts = [f"user: {text}" for part in (general.questions, general.changes) for text in part[:12]]
    return _layout(flags, config, read, (read[1](texts), len(base.head)))
