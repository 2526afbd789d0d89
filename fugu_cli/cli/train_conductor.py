"""`fugu train conductor`: GRPO for a planner of workflows, rewarded by what its workflows achieve
with the user's pool.

Every workflow is carried out in a session of its own, with tools and tests, and every agent reply
is paid for once. A run that was stopped goes on from its newest saved step.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from pydantic import JsonValue

from fugu_cli.cli import eval
from fugu_cli.cli.current_folder import current_config
from fugu_cli.cli.eval import about_pool, say_progress
from fugu_cli.cli.train import usable_tasks
from fugu_cli.cli.training_flags import ConductorFlags
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.errors import UsageError
from fugu_cli.session import log
from fugu_cli.session.events import Member, WorkflowStep
from fugu_cli.session.state import SessionState
from fugu_cli.training import grpo
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.evaluation.engine import RolloutEngine, gather_or_cancel
from fugu_cli.training.evaluation.rollout import RolloutJob, RolloutOutcome
from fugu_cli.training.grpo import (
    PRESETS,
    ExampleSettings,
    FirstRound,
    FirstRounds,
    GrpoRun,
    GrpoSettings,
    GrpoStep,
    Workflow,
    WorkflowResult,
    WorkflowRewards,
    planner_examples,
)
from fugu_cli.training.tasks import ExpectedTests, Problem
from fugu_cli.training.tasks.grading import problem_sha

WORKFLOWS = "workflows.jsonl"
FIRST_ROUNDS = "first-rounds.jsonl"
PRESET_FLAGS = ("steps", "questions", "replies", "tokens", "rate", "lora", "seed")
"""Flags that replace a value of the preset."""


@dataclass(frozen=True)
class WorkflowRunner:
    """Carries workflows out on `problems` (by id), `at_once` at a time, and keeps their results in
    `folder`. `expected` holds the tests that each problem's solution has to pass."""

    problems: Mapping[str, Problem]
    folder: Path
    engine: RolloutEngine
    loop: asyncio.Runner
    at_once: int = 1
    expected: Mapping[str, ExpectedTests] = field(default_factory=dict)

    def __call__(self, problem: str, steps: tuple[WorkflowStep, ...]) -> WorkflowResult:
        """Run a workflow on a problem, once. Raises SpendingLimitReached and AgentUnanswered."""
        self.ahead([(problem, steps)])
        row = self._read_finished()[_arm_name(steps), problem]
        events = [record.event for record in log.read(self.folder / row.session)]
        return WorkflowResult(row.ok, SessionState(events).request.answer)

    def ahead(self, workflows: Sequence[Workflow]) -> None:
        """Run the workflows that have no result yet, several at once. Raises the same errors as a
        single run.
        """
        finished = self._read_finished()
        missing = [
            (problem, steps)
            for problem, steps in workflows
            if (_arm_name(steps), problem) not in finished
        ]
        self.loop.run(self._run_all(missing))

    async def _run_all(self, workflows: Sequence[Workflow]) -> None:
        semaphore = asyncio.Semaphore(self.at_once)

        async def run_workflow(problem: str, steps: tuple[WorkflowStep, ...]) -> None:
            expected = self.expected.get(problem, ExpectedTests())
            job = RolloutJob(
                arm=_arm_name(steps),
                problem=self.problems[problem],
                expected=expected,
                steps=steps,
            )
            async with semaphore:
                row = await self.engine.do(job)
            results_folder.append_row(self.folder / WORKFLOWS, row)

        await gather_or_cancel([run_workflow(problem, steps) for problem, steps in workflows])

    def _read_finished(self) -> dict[tuple[str, str], RolloutOutcome]:
        return {
            (row.arm, row.task): row
            for row in results_folder.read_rows(self.folder / WORKFLOWS, RolloutOutcome)
        }


def _arm_name(steps: tuple[WorkflowStep, ...]) -> str:
    return f"workflow:{hashlib.sha256(repr(steps).encode()).hexdigest()[:16]}"


def train_conductor(flags: ConductorFlags) -> int:
    """Train the Conductor and return 0. Raises UsageError, SessionBusy, and the error that stopped
    the training.
    """
    if flags.preset not in PRESETS:
        raise UsageError(
            f"there is no preset {flags.preset!r}", hint=f"presets are {', '.join(PRESETS)}"
        )
    if flags.recursion and flags.form_only:
        raise UsageError("--recursion needs workflows to be carried out: leave out --form-only")
    grpo.require_libraries()
    values = {name: getattr(flags, name) for name in PRESET_FLAGS}
    changes = {name: value for name, value in values.items() if value is not None}
    settings = replace(PRESETS[flags.preset], **changes)
    config = current_config().config
    folder = (flags.out or Path("fugu-conductor")).resolve()
    members = {entry.name: entry.member() for entry in usable_pool(config, os.environ)}
    with (
        results_folder.locked_folder(folder, "training"),
        asyncio.Runner() as loop,
        eval.engine_in_loop(flags, config, folder, loop) as engine,
    ):
        problems: Sequence[Problem] = eval.load_problems(flags, flags.suites, say_progress)
        expected: dict[str, ExpectedTests] = {}
        if not flags.form_only:
            problems, expected = loop.run(usable_tasks(problems, engine, folder))
        runner = WorkflowRunner(
            {problem.id: problem for problem in problems},
            folder,
            engine,
            loop,
            eval.rollouts_at_once(flags, tuple(members.values()), engine),
            expected,
        )
        about: dict[str, JsonValue] = {
            **about_pool(config, os.environ),
            **{
                name: getattr(flags, name)
                for name in ("agents", "max_steps", "form_only", "recursion")
            },
            "tasks": {problem.id: problem_sha(problem) for problem in problems},
        }

        def report_step(step: GrpoStep) -> None:
            results_folder.append_row(folder / grpo.GRPO_LOG, step)
            say_progress(
                f"step {step.step} of {settings.steps}: reward {step.reward:.2f}, readable "
                f"{step.readable:.0%}, "
                f"right {step.right:.0%}; {step.seconds:.0f} s"
            )

        print(_train(flags, settings, runner, members, GrpoRun(folder, report_step, about)))
    return 0


def _train(
    flags: ConductorFlags,
    settings: GrpoSettings,
    runner: WorkflowRunner,
    members: Mapping[str, Member],
    run: GrpoRun,
) -> Path:
    """Train the planner on as many examples as the settings need. Return the trained model's
    folder.
    """
    grpo.begin_training(flags.model, settings, run)
    needed = settings.steps * settings.questions
    passes = max(1, math.ceil(needed / len(runner.problems)))
    example_settings = ExampleSettings(
        steps=flags.max_steps, max_agents=flags.agents, passes=passes, seed=settings.seed
    )
    say_progress(f"reading the planner {flags.model}")
    with grpo.quiet_libraries():
        tokenizer = grpo.planner_tokenizer(flags.model)
    problems = tuple(runner.problems.values())
    examples = list(planner_examples(problems, members, tokenizer, example_settings))[:needed]
    if flags.recursion:
        file = run.folder / FIRST_ROUNDS
        first_rounds = FirstRounds(
            write=grpo.planner_writer(flags.model, settings),
            execute=runner,
            earlier=results_folder.read_rows(file, FirstRound),
            store=partial(results_folder.append_row, file),
        )
        both_rounds = grpo.with_second_rounds(examples, first_rounds)
        examples = list(islice(both_rounds, len(examples)))
    rewards = WorkflowRewards(None if flags.form_only else runner)
    return grpo.train_planner(flags.model, examples, settings, rewards, run)
