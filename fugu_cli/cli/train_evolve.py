"""`fugu train evolve`: builds the search of a coordinator's head, and measures the fitness of its
candidates in real sessions.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np
from pydantic import JsonValue

from fugu_cli.cli import eval
from fugu_cli.cli.coordinator import as_usage_errors
from fugu_cli.cli.current_folder import current_config
from fugu_cli.cli.eval import DISK_HINT, duration, refuse_ignored_keys, say_progress
from fugu_cli.cli.train import (
    backbone_for_checkpoint,
    save_checkpoint,
    singular_values_folder,
    usable_tasks,
)
from fugu_cli.cli.training_flags import EvolveFlags
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.coordinators import backbone_files, svf, trinity
from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators.checkpoint import Checkpoint, CheckpointMeta, TrainingOrigin
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import StorageError
from fugu_cli.messages import Value
from fugu_cli.session.events import ROLES
from fugu_cli.session.state import SessionState
from fugu_cli.training.default_comparison import (
    DefaultComparison,
    PlayedTask,
    compare_with_default,
)
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.evaluation.engine import RolloutEngine, gather_or_cancel
from fugu_cli.training.evaluation.paid_calls import AgentUnanswered, SpendingLimitReached
from fugu_cli.training.evaluation.rollout import (
    LEARNED_ARM,
    CheckpointChoice,
    RolloutJob,
    RolloutLost,
    RolloutOutcome,
)
from fugu_cli.training.evolution import TrialResult, cma_strategy, write_run_file
from fugu_cli.training.search import Candidates, HeadCandidates, checkpoint_vector
from fugu_cli.training.tasks import ExpectedTests, Problem
from fugu_cli.training.tasks.grading import problem_sha

if TYPE_CHECKING:
    from fugu_cli.training.evolution import EvolutionIteration
    from fugu_cli.training.search import HeadLayout, Numbers


class CandidateRow(Value):
    """A finished rollout of a candidate, a line of `rollouts.jsonl`.

    `place` names the candidate: `iteration-index`.
    """

    place: str
    outcome: RolloutOutcome


HELD_OUT_SHARE = 3
"""Of so many tasks one is held out, to judge what was evolved."""
HELD_OUT_SEEDS = 2


class RolloutFitness:
    """Measures candidates in real sessions. Tasks whose tests pass before any work, hang or cannot
    be run are refused and named.
    """

    def __init__(
        self,
        flags: EvolveFlags,
        config: Config,
        out_folder: Path,
        base: Checkpoint,
        engine: RolloutEngine,
        loop: asyncio.Runner,
    ) -> None:
        self._flags = flags
        self._out = out_folder
        self._base = base
        self._engine = engine
        self._loop = loop
        loaded = eval.load_problems(flags, flags.suites, say_progress)
        problems, self._expected = loop.run(usable_tasks(loaded, engine, out_folder))
        self.tasks = {problem.id: problem_sha(problem) for problem in problems}
        count = len(problems) // HELD_OUT_SHARE
        self._problems, self._held = problems[count:], problems[:count]
        members = [entry.member() for entry in usable_pool(config, os.environ)]
        self._priced = any(
            member.price and (member.price.input or member.price.output) for member in members
        )
        self._at_once = eval.rollouts_at_once(flags, members, engine)

    def play(self, candidates: Candidates, iteration: int) -> TrialResult:
        """Run every candidate on the iteration's tasks, with the same tasks and seeds for all."""
        draw = random.Random(f"{self._flags.seed}/{iteration}")
        chosen = [draw.choice(self._problems) for _ in range(self._flags.replications)]
        seeds = [draw.randrange(1000) for _ in chosen]
        jobs = []
        for candidate in range(candidates.size):
            checkpoint = self._save_candidate(candidates, candidate, iteration)
            jobs += [
                self._job(f"{iteration}-{candidate}", problem, seed, checkpoint)
                for problem, seed in zip(chosen, seeds, strict=True)
            ]
        outcomes = self._loop.run(self._run_all(jobs))
        return self._tally(outcomes, candidates.size)

    def validate(self, candidates: Candidates) -> TrialResult | None:
        """Return None: real sessions are too expensive to be repeated for this."""
        return None

    def judge(self, evolved: Checkpoint) -> DefaultComparison | None:
        """Compare the evolved checkpoint with the default on the tasks that no candidate has met.
        Return None if there are too few tasks to hold any out.
        """
        if not self._held:
            return None
        held_out = [(problem, seed) for problem in self._held for seed in range(HELD_OUT_SEEDS)]
        checkpoint = self._save(evolved, "held-evolved", sample=False)
        default = CheckpointChoice(file=None, sample=False)
        arm = Config().coordinator
        jobs = [self._job("held-evolved", problem, seed, checkpoint) for problem, seed in held_out]
        for problem, seed in held_out:
            jobs.append(self._job("held-default", problem, seed, default, arm))
        outcomes = self._loop.run(self._run_all(jobs))
        unit = self._unit_cost([outcome for outcome in outcomes if outcome])

        def played(outcome: RolloutOutcome) -> PlayedTask:
            return PlayedTask(outcome.task, right(outcome), self._cost(outcome) / unit)

        evolved_runs, default_runs = [], []
        half = len(outcomes) // 2
        for evolved_run, default_run in zip(outcomes[:half], outcomes[half:], strict=True):
            if evolved_run and default_run:
                evolved_runs.append(played(evolved_run))
                default_runs.append(played(default_run))
        if not evolved_runs:
            raise _unanswered("no rollout on the tasks held out was answered for both")
        return compare_with_default(evolved_runs, default_runs, self._flags.cost)

    def pack(self, head: Vector, offsets: Vector, how: str) -> Checkpoint:
        """Return a checkpoint like the first one, with another head and other offsets if there are
        any.
        """
        training = TrainingOrigin(
            stage="evolved on sessions", data=f"{', '.join(self.tasks)[:400]}; {how}"
        )
        meta = self._base.meta.model_copy(update={"training": training})
        return checkpoints.make(checkpoint_vector(self._base.offsets, offsets, head), meta)

    def _save_candidate(
        self, candidates: Candidates, index: int, iteration: int
    ) -> CheckpointChoice:
        """Write this candidate's checkpoint. Its decisions are drawn."""
        assert isinstance(candidates, HeadCandidates)
        offsets = (
            np.zeros(0, np.float32) if candidates.offsets is None else candidates.offsets[index]
        )
        checkpoint = self.pack(candidates.heads[index], offsets, "a candidate")
        return self._save(checkpoint, f"{iteration}-{index}", sample=True)

    def _save(self, checkpoint: Checkpoint, name: str, *, sample: bool) -> CheckpointChoice:
        path = self._out / "candidates" / f"{name}.safetensors"
        save_checkpoint(checkpoint, path)
        return CheckpointChoice(file=path, sample=sample)

    def _job(
        self,
        place: str,
        problem: Problem,
        seed: int,
        checkpoint: CheckpointChoice,
        arm: str = LEARNED_ARM,
    ) -> RolloutJob:
        return RolloutJob(
            arm=arm,
            problem=problem,
            seed=seed,
            expected=self._expected.get(problem.id, ExpectedTests()),
            folder=f"{ITERATIONS_FOLDER}/{place}",
            checkpoint=checkpoint,
        )

    async def _run_all(self, jobs: Sequence[RolloutJob]) -> list[RolloutOutcome | None]:
        """Run the rollouts and return their outcomes in order, None if an agent did not answer.

        Raises SpendingLimitReached, StorageError, RolloutLost, and AgentUnanswered if that is
        final.
        """
        file = self._out / "rollouts.jsonl"
        earlier = {
            (row.place, row.outcome.task, row.outcome.seed): row.outcome
            for row in results_folder.read_rows(file, CandidateRow)
        }
        by_key = {_key(job): job for job in jobs}  # candidates drawn twice share a rollout
        started = time.monotonic()
        left, finished = len(by_key.keys() - earlier.keys()), 0
        report_interval = max(left // 10, 10)
        gate = asyncio.Semaphore(self._at_once)

        async def run_rollout(job: RolloutJob) -> RolloutOutcome | None:
            nonlocal finished
            async with gate:
                if _key(job) in earlier:
                    return earlier[_key(job)]
                try:
                    outcome = await self._engine.do(job)
                except AgentUnanswered as error:
                    if error.final or self._engine.spending.is_down(error.agent):
                        raise  # without one agent the search would be for another pool
                    say_progress(f"{job.problem.id}: {error}; dropped")
                    return None
                place, _, _ = _key(job)
                results_folder.append_row(file, CandidateRow(place=place, outcome=outcome))
                finished += 1
                if finished % report_interval == 0 and finished < left:
                    seconds_left = (time.monotonic() - started) / finished * (left - finished)
                    say_progress(
                        f"{finished} of {left} rollouts of this iteration; about "
                        f"{duration(seconds_left)} left"
                    )
                return outcome

        try:
            outcomes = await gather_or_cancel([run_rollout(job) for job in by_key.values()])
        except (SpendingLimitReached, AgentUnanswered, RolloutLost, StorageError) as error:
            hint = error.hint.rstrip(".") or (DISK_HINT if isinstance(error, StorageError) else "")
            error.hint = f"{hint}; everything is kept, and the same command goes on".lstrip("; ")
            raise
        outcome_by_key = dict(zip(by_key, outcomes, strict=True))
        return [outcome_by_key[_key(job)] for job in jobs]

    def _tally(self, outcomes: Sequence[RolloutOutcome | None], size: int) -> TrialResult:
        """Add up the rollouts of `size` candidates, of which each has the same number in order. A
        rollout without an answer is NaN in the tables.
        """
        count = len(outcomes) // size
        for first in range(0, len(outcomes), count):
            if not any(outcomes[first : first + count]):
                raise _unanswered(
                    "a candidate of this iteration had no answer in any of its rollouts"
                )
        unit = self._unit_cost([outcome for outcome in outcomes if outcome])
        rows = self._base.meta.rows
        uses, roles = np.zeros((size, len(rows))), np.zeros((size, len(ROLES)))
        solved, cost, turns = np.full((3, size, count), np.nan)
        for index, outcome in enumerate(outcomes):
            if outcome is None:
                continue
            candidate, number = divmod(index, count)
            solved[candidate, number] = right(outcome)
            cost[candidate, number] = self._cost(outcome) / unit
            turns[candidate, number] = outcome.turns
            for use in outcome.uses:
                if use.agent in rows:
                    uses[candidate, rows.index(use.agent)] += use.turns
                if use.role in ROLES:
                    roles[candidate, ROLES.index(use.role)] += use.turns
        usd = self._engine.spending.total_usd()
        return TrialResult(solved, cost, turns, uses, roles, len(outcomes), usd)

    def _unit_cost(self, outcomes: Sequence[RolloutOutcome]) -> float:
        """Return the cost that counts as 1, the same for the whole run."""
        file = self._out / "unit.json"
        try:
            return float(json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            unit = mean(map(self._cost, outcomes)) or 1.0
            write_run_file(file, json.dumps(unit).encode())
            return unit
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{file} cannot be read: {error}",
                hint="delete it: the next iteration's mean counts as 1 then",
            ) from error

    def _cost(self, outcome: RolloutOutcome) -> float:
        """Return the cost in USD if any agent costs money, else in the models' seconds; one unit
        for the whole run.
        """
        return outcome.usd if self._priced else outcome.model_seconds


def _key(job: RolloutJob) -> tuple[str, str, int]:
    """Return the identity of a candidate's rollout."""
    return Path(job.folder).name, job.problem.id, job.seed


def right(outcome: RolloutOutcome) -> float:
    """Return 1 if the work is right and the request ended well, else 0."""
    return float(outcome.ok and outcome.reason in ("accepted", "answered"))


def _unanswered(message: str) -> AgentUnanswered:
    return AgentUnanswered(
        message, agent="", final=True, hint="everything is kept, and the same command goes on"
    )


ITERATIONS_FOLDER = "iterations"
CHECKPOINT_NAME = "checkpoint.safetensors"


def evolve(flags: EvolveFlags) -> int:
    """Run or continue an evolution. Return 0, or 4 if it was interrupted. Raises FuguError."""
    cma_strategy()  # before anything is read that takes minutes
    folder = (flags.out or Path("fugu-evolve")).resolve()
    try:
        loaded = current_config()
        refuse_ignored_keys(loaded)
        with (
            as_usage_errors(),
            results_folder.locked_folder(folder, "training"),
            asyncio.Runner() as loop,
            eval.engine_in_loop(flags, loaded.config, folder, loop) as engine,
        ):
            return _run_evolution(flags, loaded.config, folder, engine, loop)
    except KeyboardInterrupt:
        say_progress("interrupted; everything is kept, and the same command goes on")
        return eval.INTERRUPTED


def _run_evolution(
    flags: EvolveFlags, config: Config, path: Path, engine: RolloutEngine, loop: asyncio.Runner
) -> int:
    from fugu_cli.training.evolution import Evolution, EvolutionSettings, FitnessWeights, RunFolder

    settings = EvolutionSettings(
        population=flags.population,
        iterations=flags.iterations,
        replications=flags.replications,
        sigma=flags.sigma,
        seed=flags.seed,
        patience=flags.patience,
        shaping=FitnessWeights(diversity=flags.diversity, turns=flags.turns, cost=flags.cost),
    )
    begun = flags.start or config.checkpoint
    base = checkpoints.load(begun) if begun is not None else _blank_checkpoint(config)
    layout = _layout(flags, config, base)
    trial = RolloutFitness(flags, config, path, base, engine, loop)

    def pack(point: Numbers, how: str) -> Checkpoint:
        return trial.pack(layout.head(point), layout.offsets(point), how)

    about: dict[str, JsonValue] = {
        **eval.about_pool(config, os.environ),
        "tasks": dict(trial.tasks),
        "start": base.digest,
        "settings": settings.model_dump(mode="json", exclude={"iterations", "patience"}),
    }
    folder = RunFolder(path, about, lambda mean, file: save_checkpoint(pack(mean, "running"), file))
    folder.begin()
    evolved = Evolution(settings, trial, layout.breed, folder).run(
        layout.start(base.head, base.offsets), _report_iteration
    )
    count = len(evolved.history)
    how = f"{count} iteration{'s' * (count != 1)}, {evolved.stopped}"
    say_progress(how)
    checkpoint = pack(evolved.vector, how)
    judged = trial.judge(checkpoint)
    if judged is None:
        say_progress(
            f"fewer than {HELD_OUT_SHARE} tasks: none was held out, so nothing says whether it "
            f"is better: keep the default"
        )
    else:
        print(judged.text)
    save_checkpoint(checkpoint, path / CHECKPOINT_NAME)
    print(path / CHECKPOINT_NAME)
    return 0


def _report_iteration(row: EvolutionIteration) -> None:
    validation = "" if row.validation is None else f", held {row.validation:.4f}"
    say_progress(
        f"iteration {row.iteration}: best {row.best:.4f}, mean {row.mean:.4f}{validation}; sigma "
        f"{row.sigma:.3g}; "
        f"solved {row.reward:.1%}, cost {row.mean_cost:.3f}, turns {row.mean_turns:.2f}; "
        f"{row.seconds:.1f} s"
    )


def _blank_checkpoint(config: Config) -> Checkpoint:
    """Return a checkpoint for the configured pool that prefers nobody yet."""
    folder = trinity.backbone_folder(config.backbone, config.cache)
    shape = backbone_files.shape_of(folder)
    rows = tuple(entry.name for entry in usable_pool(config, os.environ))
    meta = CheckpointMeta(
        backbone=backbone_files.backbone_identity(folder, config.cache / "backbones"),
        width=shape.width,
        ranks=svf.ranks(shape),
        rows=rows,
    )
    return checkpoints.make(np.zeros(sum(meta.ranks) + meta.head_rows * meta.width), meta)


def _layout(flags: EvolveFlags, config: Config, base: Checkpoint) -> HeadLayout:
    """Return the layout of the search: the head alone, or with the offsets of the second-to-last
    layer.

    The units come from a few invented sessions, since no session of the tasks has been read yet.
    """
    from fugu_cli.coordinators.transcript import transcript_text
    from fugu_cli.training.pass_matrix import HeadRow, RowRates, TaskRates
    from fugu_cli.training.search import HeadLayout, LayerStates
    from fugu_cli.training.sft import session_after

    backbone, hidden_states = backbone_for_checkpoint(config, base, searched=flags.offsets)
    rows = [HeadRow(row, row) for row in base.meta.rows]
    task = TaskRates("", "fix the test in `main.py`", (RowRates(0.5, 0.5, 1, 1),) * len(rows))
    sessions = [session_after(task, rows, ())]
    for row in range(len(rows)):
        sessions.append(session_after(task, rows, (row,)))
        sessions.append(session_after(task, rows, (), row))
        sessions.append(session_after(task, rows, (row,), (row + 1) % len(rows)))
    sample = hidden_states(
        [transcript_text(backbone, base.meta, SessionState(session)) for session in sessions]
    )
    layer = None
    if flags.offsets:
        layer = LayerStates(
            backbone, svf.SvfAdapter(backbone.model, singular_values_folder(config, backbone))
        )
    return HeadLayout(hidden_states, len(base.head), sample, layer)
