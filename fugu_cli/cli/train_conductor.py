"""`fugu train conductor`: GRPO for a planner of workflows, rewarded by what its workflows achieve with the user's
pool.

Every workflow is carried out in a session of its own, with tools and tests, and every agent reply is paid for once. A
run that was stopped goes on from its newest saved step.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from fugu_cli import __version__
from fugu_cli.cli import eval
from fugu_cli.cli.current_folder import current_config
from fugu_cli.cli.eval import RolloutSessionFactory, pool_keys, sample_problems, shared_settings
from fugu_cli.cli.eval import reply_settings as entry_settings
from fugu_cli.cli.train import say_progress
from fugu_cli.cli.training_flags import ConductorFlags
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.coordinators.baselines import GivenWorkflow
from fugu_cli.errors import UsageError
from fugu_cli.evaluation import results_folder, runner
from fugu_cli.evaluation.paid_calls import Spending, SpendingLimits
from fugu_cli.evaluation.rollout import (
    OpenRolloutSession,
    RolloutContext,
    RolloutJob,
    RolloutOutcome,
    RolloutSession,
    rollout,
)
from fugu_cli.open_session import Session as OpenSession
from fugu_cli.session import log, views
from fugu_cli.session.events import Member, WorkflowStep
from fugu_cli.tasks import ExpectedTests, Problem
from fugu_cli.tasks.grading import problem_sha
from fugu_cli.tasks.loading import TaskDefaults
from fugu_cli.training import conductor_examples, conductor_grpo
from fugu_cli.training.conductor_examples import OPENING, ExampleSettings, planner_examples
from fugu_cli.training.conductor_grpo import (
    PRESETS,
    GrpoSettings,
    PlannerExample,
    Workflow,
    WorkflowResult,
    WorkflowRewards,
)

WORKFLOWS = "workflows.jsonl"
FIRST_ROUNDS = "first-rounds.jsonl"


@dataclass(frozen=True)
class WorkflowRunner:
    """Carries workflows out: problems by id, where their sessions lie, who pays, how many run at once, and what is
    known of the problems' tests."""

    problems: Mapping[str, Problem]
    folder: Path
    opening: RolloutSessionFactory
    spending: Spending
    at_once: int = 1
    expected: Mapping[str, ExpectedTests] = field(default_factory=dict)

    def __call__(self, problem: str, steps: tuple[WorkflowStep, ...]) -> WorkflowResult:
        """One workflow on one problem; the same one is not carried out again. Raises Spent and Unanswered."""
        self.ahead([(problem, steps)])
        row = self._known()[_arm(steps), problem]
        events = [record.event for record in log.read(self.folder / row.session)]
        return WorkflowResult(row.ok, views.answer(events))

    def ahead(self, workflows: Sequence[Workflow]) -> None:
        """Those of them that were not carried out, several at once. Raises Spent and Unanswered."""
        known = self._known()
        asyncio.run(self._all([one for one in workflows if (_arm(one[1]), one[0]) not in known]))

    async def _all(self, workflows: Sequence[Workflow]) -> None:
        room = asyncio.Semaphore(self.at_once)

        async def one(problem: str, steps: tuple[WorkflowStep, ...]) -> None:
            expected = self.expected.get(problem, ExpectedTests())
            job = RolloutJob(arm=_arm(steps), problem=self.problems[problem], expected=expected)
            async with room:
                row = await rollout(job, _session_with_plan(self.opening(self.spending), steps), self.folder)
            results_folder.append_row(self.folder / WORKFLOWS, row)

        await asyncio.gather(*(one(problem, steps) for problem, steps in workflows))

    def _known(self) -> dict[tuple[str, str], RolloutOutcome]:
        return {(row.arm, row.task): row for row in results_folder.read_rows(self.folder / WORKFLOWS, RolloutOutcome)}


def _arm(steps: tuple[WorkflowStep, ...]) -> str:
    return f"workflow:{hashlib.sha256(repr(steps).encode()).hexdigest()[:16]}"


def _session_with_plan(open_session: OpenRolloutSession, steps: tuple[WorkflowStep, ...]) -> OpenRolloutSession:
    async def opened(place: RolloutContext) -> RolloutSession:
        session = await open_session(replace(place, arm="cascade"))
        assert isinstance(session, OpenSession)
        session.team = replace(session.team, coordinator=GivenWorkflow(steps))
        return session

    return opened


def train_conductor(flags: ConductorFlags) -> int:
    """The exit code: 0 trained. Raises UsageError, SessionBusy, and what stopped it."""
    settings = _settings(flags)
    if flags.recursion and flags.form_only:
        raise UsageError("--recursion needs workflows to be carried out: leave out --form-only")
    loaded = current_config()
    entries = usable_pool(loaded.config, os.environ)
    members = {entry.name: entry.member() for entry in entries}
    defaults = TaskDefaults(prompt=flags.prompt or "", test_command=flags.test_command or "")
    problems = sample_problems(eval.load_problems(flags.suites, flags.only or (), defaults, say_progress), flags.limit)
    folder = (flags.out or Path("fugu-conductor")).resolve()
    begun = results_folder.EvaluationSetup(
        version=__version__,
        pool=tuple(members.values()),
        entries={entry.name: json.dumps(entry_settings(entry), sort_keys=True) for entry in entries},
        settings=shared_settings(loaded.config),
        tasks={problem.id: problem_sha(problem) for problem in problems},
    )
    local = 1 if any(member.provider == "local" for member in members.values()) else None
    at_once = runner.rollouts_at_once(flags.rollouts or local, None, None)
    with results_folder.locked_folder(folder, "training"):
        results_folder.record_or_compare_setup(folder, begun)
        usable, expected = _usable(problems, folder, flags.form_only)
        opening = RolloutSessionFactory(loaded.config, pool_keys(loaded.config, os.environ), folder)
        spending = Spending(folder / "paid.jsonl", SpendingLimits(flags.max_budget_usd, flags.max_requests))
        print(_trained(flags, settings, WorkflowRunner(usable, folder, opening, spending, at_once, expected), members))
    return 0


def _usable(
    problems: Sequence[Problem], folder: Path, form_only: bool
) -> tuple[dict[str, Problem], dict[str, ExpectedTests]]:
    """By id the tasks that can judge a workflow, and what is known of their tests. Raises UsageError for none."""
    checks = {} if form_only else asyncio.run(runner.check_tasks(problems, folder, say_progress))
    usable = {one.id: one for one in problems if one.id not in checks or not checks[one.id].refused}
    if not usable:
        raise UsageError(
            "no task is left that could judge anything", hint="`fugu help training` says what a task needs"
        )
    return usable, {name: found.expected for name, found in checks.items()}


def _trained(
    flags: ConductorFlags, settings: GrpoSettings, trying: WorkflowRunner, members: Mapping[str, Member]
) -> Path:
    folder = trying.folder
    execute = None if flags.form_only else trying
    course = _example_config(flags, settings, tuple(trying.problems.values()), members)
    run = conductor_grpo.GrpoRun(
        folder, partial(results_folder.append_row, folder / conductor_grpo.GRPO_LOG), _about(flags, trying.problems)
    )
    conductor_grpo.begin_run(flags.model, settings, run)
    begun = OPENING if settings.brief else ""
    model = flags.model
    if flags.warm:
        model = str(conductor_examples.warm_up(model, course, begun, flags.warm, folder))
    if flags.recursion:
        write = conductor_examples.planner_writer(model, settings.tokens, settings.temperature, settings.seed)
        file = folder / FIRST_ROUNDS
        firsts = conductor_examples.FirstRounds(
            write,
            trying,
            results_folder.read_rows(file, conductor_examples.FirstRound),
            partial(results_folder.append_row, file),
        )
        course = list(islice(conductor_examples.both_rounds(course, firsts, begun), len(course)))
    rewards = WorkflowRewards(begun, execute, trying.ahead if execute else None)
    return conductor_grpo.train_planner(model, course, settings, rewards, run)


def _about(flags: ConductorFlags, problems: Mapping[str, Problem]) -> dict[str, JsonValue]:
    """What decides, beside the settings, which prompts are read and what a reply to them is worth."""
    return {
        "model": flags.model,
        "agents": flags.agents,
        "max_steps": flags.max_steps,
        "warm": flags.warm,
        "form_only": flags.form_only,
        "recursion": flags.recursion,
        "tasks": {name: problem_sha(problem) for name, problem in problems.items()},
    }


def _settings(flags: ConductorFlags) -> GrpoSettings:
    given = {
        "steps": flags.steps,
        "questions": flags.questions,
        "replies": flags.replies,
        "tokens": flags.tokens,
        "rate": flags.rate,
        "lora": flags.lora,
        "seed": flags.seed,
    }
    if flags.preset not in PRESETS:
        raise UsageError(f"there is no preset {flags.preset!r}", hint=f"presets are {', '.join(PRESETS)}")
    said = {name: value for name, value in given.items() if value is not None}
    return replace(PRESETS[flags.preset], **said)  # type: ignore[arg-type]


def _example_config(
    flags: ConductorFlags, settings: GrpoSettings, problems: Sequence[Problem], members: Mapping[str, Member]
) -> list[PlannerExample]:
    needed = settings.steps * settings.questions
    times = max(1, -(-needed // len(problems)))
    form: Literal["brief", "full"] = "brief" if settings.brief else "full"
    course = ExampleSettings(form, steps=flags.max_steps, most=flags.agents, times=times, seed=settings.seed)
    tokenizer = conductor_grpo.planner_tokenizer(flags.model)
    return list(planner_examples(problems, members, tokenizer, course))[:needed]
