"""`fugu train conductor`: GRPO for a planner of workflows, rewarded by what its workflows come to with the user's pool.

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

from fugu_cli import __version__, log, views
from fugu_cli.commands import suites
from fugu_cli.commands.eval import chosen, fixed
from fugu_cli.commands.evalflags import ConductorFlags
from fugu_cli.commands.here import here
from fugu_cli.commands.opening import Opening, keys
from fugu_cli.commands.opening import settings as entry_settings
from fugu_cli.commands.train_learning import say
from fugu_cli.config.pool import pool
from fugu_cli.coordinators.panels import Given
from fugu_cli.errors import UsageError
from fugu_cli.evaluation import capacity, rows, running, setup
from fugu_cli.evaluation.loop import Open, Outcome, Place, Session
from fugu_cli.evaluation.rollout import Job, rollout
from fugu_cli.evaluation.spending import Limits, Spending
from fugu_cli.events import Member, Step
from fugu_cli.session import Session as OpenSession
from fugu_cli.tasks import Expected, Problem
from fugu_cli.tasks.checking import sha
from fugu_cli.tasks.folders import Defaults
from fugu_cli.training import conductor, grpo_rounds, grpo_warm
from fugu_cli.training.conductor import PRESETS, Settings
from fugu_cli.training.grpo_examples import OPENING, Course, examples
from fugu_cli.training.grpo_reward import Example, Ran, Rewards, Workflow

WORKFLOWS = "workflows.jsonl"
FIRST_ROUNDS = "first-rounds.jsonl"


@dataclass(frozen=True)
class Trying:
    """Carries workflows out: problems by id, where their sessions lie, who pays, how many run at once, and what is
    known of the problems' tests."""

    problems: Mapping[str, Problem]
    folder: Path
    opening: Opening
    spending: Spending
    at_once: int = 1
    expected: Mapping[str, Expected] = field(default_factory=dict)

    def __call__(self, problem: str, steps: tuple[Step, ...]) -> Ran:
        """One workflow on one problem; the same one is not carried out again. Raises Spent and Unanswered."""
        self.ahead([(problem, steps)])
        row = self._known()[_arm(steps), problem]
        events = [record.event for record in log.read(self.folder / row.session)]
        return Ran(row.ok, views.answer(events))

    def ahead(self, workflows: Sequence[Workflow]) -> None:
        """Those of them that were not carried out, several at once. Raises Spent and Unanswered."""
        known = self._known()
        asyncio.run(self._all([one for one in workflows if (_arm(one[1]), one[0]) not in known]))

    async def _all(self, workflows: Sequence[Workflow]) -> None:
        room = asyncio.Semaphore(self.at_once)

        async def one(problem: str, steps: tuple[Step, ...]) -> None:
            expected = self.expected.get(problem, Expected())
            job = Job(arm=_arm(steps), problem=self.problems[problem], expected=expected)
            async with room:
                row = await rollout(job, _given(self.opening(self.spending), steps), self.folder)
            rows.append(self.folder / WORKFLOWS, row)

        await asyncio.gather(*(one(problem, steps) for problem, steps in workflows))

    def _known(self) -> dict[tuple[str, str], Outcome]:
        return {(row.arm, row.task): row for row in rows.read(self.folder / WORKFLOWS, Outcome)}


def _arm(steps: tuple[Step, ...]) -> str:
    return f"workflow:{hashlib.sha256(repr(steps).encode()).hexdigest()[:16]}"


def _given(open_session: Open, steps: tuple[Step, ...]) -> Open:
    async def opened(place: Place) -> Session:
        session = await open_session(replace(place, arm="cascade"))
        assert isinstance(session, OpenSession)
        session.crew = replace(session.crew, coordinator=Given(steps))
        return session

    return opened


def train(flags: ConductorFlags) -> int:
    """The exit code: 0 trained. Raises UsageError, SessionBusy, and what stopped it."""
    settings = _settings(flags)
    if flags.recursion and flags.form_only:
        raise UsageError("--recursion needs workflows to be carried out: leave out --form-only")
    loaded = here()
    entries = pool(loaded.config, os.environ)
    members = {entry.name: entry.member() for entry in entries}
    problems = chosen(suites.problems(flags.suites, flags.only or (), Defaults(), say), flags.limit)
    folder = (flags.out or Path("fugu-conductor")).resolve()
    begun = setup.Setup(
        version=__version__,
        pool=tuple(members.values()),
        entries={entry.name: json.dumps(entry_settings(entry), sort_keys=True) for entry in entries},
        settings=fixed(loaded.config),
        tasks={problem.id: sha(problem) for problem in problems},
    )
    local = 1 if any(member.provider == "local" for member in members.values()) else None
    at_once = capacity.at_once(flags.rollouts or local, None, None)
    with setup.alone(folder, "training"):
        setup.settle(folder, begun)
        usable, expected = _usable(problems, folder, flags.form_only)
        opening = Opening(loaded.config, keys(loaded.config, os.environ), folder)
        spending = Spending(folder / "paid.jsonl", Limits(flags.max_budget_usd, flags.max_requests))
        print(_trained(flags, settings, Trying(usable, folder, opening, spending, at_once, expected), members))
    return 0


def _usable(
    problems: Sequence[Problem], folder: Path, form_only: bool
) -> tuple[dict[str, Problem], dict[str, Expected]]:
    """By id the tasks that can judge a workflow, and what is known of their tests. Raises UsageError for none."""
    checks = {} if form_only else asyncio.run(running.checked(problems, folder, say))
    usable = {one.id: one for one in problems if one.id not in checks or not checks[one.id].refused}
    if not usable:
        raise UsageError(
            "no task is left that could judge anything", hint="`fugu help training` says what a task needs"
        )
    return usable, {name: found.expected for name, found in checks.items()}


def _trained(flags: ConductorFlags, settings: Settings, trying: Trying, members: Mapping[str, Member]) -> Path:
    folder = trying.folder
    execute = None if flags.form_only else trying
    course = _course(flags, settings, tuple(trying.problems.values()), members)
    run = conductor.Run(folder, partial(rows.append, folder / conductor.LOG), _about(flags, trying.problems))
    conductor.begin(flags.model, settings, run)
    begun = OPENING if settings.brief else ""
    model = flags.model
    if flags.warm:
        model = str(grpo_warm.warm(model, course, begun, flags.warm, folder))
    if flags.recursion:
        write = grpo_rounds.writing(model, settings.tokens, settings.temperature, settings.seed)
        file = folder / FIRST_ROUNDS
        firsts = grpo_rounds.Firsts(write, trying, rows.read(file, grpo_rounds.First), partial(rows.append, file))
        course = list(islice(grpo_rounds.both_rounds(course, firsts, begun), len(course)))
    rewards = Rewards(begun, execute, trying.ahead if execute else None)
    return conductor.train(model, course, settings, rewards, run)


def _about(flags: ConductorFlags, problems: Mapping[str, Problem]) -> dict[str, JsonValue]:
    """What decides, beside the settings, which prompts are read and what a reply to them is worth."""
    return {
        "model": flags.model,
        "agents": flags.agents,
        "max_steps": flags.max_steps,
        "warm": flags.warm,
        "form_only": flags.form_only,
        "recursion": flags.recursion,
        "tasks": {name: sha(problem) for name, problem in problems.items()},
    }


def _settings(flags: ConductorFlags) -> Settings:
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


def _course(
    flags: ConductorFlags, settings: Settings, problems: Sequence[Problem], members: Mapping[str, Member]
) -> list[Example]:
    from transformers import AutoTokenizer

    needed = settings.steps * settings.questions
    times = max(1, -(-needed // len(problems)))
    form: Literal["brief", "full"] = "brief" if settings.brief else "full"
    course = Course(form, steps=flags.max_steps, most=flags.agents, times=times, seed=settings.seed)
    tokenizer = AutoTokenizer.from_pretrained(flags.model)
    return list(examples(problems, members, tokenizer, course))[:needed]
