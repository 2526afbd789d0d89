"""`fugu eval`: coordinators compared on the same tasks with the user's own pool. Also what
training's commands share with it: task suites, and how a rollout's session is opened.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from fugu_cli import __version__, prompts, wiring
from fugu_cli.cli.current_folder import check_embedded, current_config
from fugu_cli.cli.training_flags import EvalFlags, RolloutFlags
from fugu_cli.config import MANAGED_FILE, Config
from fugu_cli.config.agent_pool import pool_variables, usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.config.schema import AgentEntry
from fugu_cli.coordinators.baselines import FixedWorkflow
from fugu_cli.engine.environment import Permission
from fugu_cli.errors import ConfigError, CoordinatorUnavailable, FuguError, StorageError, UsageError
from fugu_cli.formatting import plural
from fugu_cli.messages import Call
from fugu_cli.providers import Agent
from fugu_cli.safety import policy
from fugu_cli.session.events import Member
from fugu_cli.session.spending import PRICE_HINT, UNPRICED
from fugu_cli.training.evaluation import report, results_folder, runner
from fugu_cli.training.evaluation.engine import LocalEngine, RolloutEngine
from fugu_cli.training.evaluation.paid_calls import (
    PaidAgent,
    ReplyLocks,
    RolloutBilling,
    Spending,
    SpendingAccount,
    SpendingLimits,
    task_literals,
)
from fugu_cli.training.evaluation.rollout import (
    LEARNED_ARM,
    OpenRolloutSession,
    RolloutContext,
    RolloutOutcome,
    RolloutSession,
)
from fugu_cli.training.evaluation.summary import summarise
from fugu_cli.training.tasks import LoadedTasks, Problem, Task, questions
from fugu_cli.training.tasks.grading import TaskCheck
from fugu_cli.training.tasks.loading import EXAMPLE_TASKS, TaskDefaults, load_tasks

if TYPE_CHECKING:
    from fugu_cli.coordinators import Coordinator
    from fugu_cli.coordinators.backbone import Backbone
    from fugu_cli.coordinators.checkpoint import Checkpoint
    from fugu_cli.coordinators.skills import SkillTable


DECIDING_KEYS = frozenset(
    {"agents", "backbone", "checkpoint", "conductor", "coordinator", "roles", "sample", "tier"}
)
"""Keys that change what a measurement is about."""


def refuse_ignored_keys(loaded: LoadedConfig) -> None:
    """Raise UsageError where the folder's own file says who is measured and does not count: hours
    would go into measuring something else. Also where the administrator forbids unasked work.
    """
    ignored = [key for key in loaded.ignored_keys if key in DECIDING_KEYS]
    if ignored:
        raise UsageError(
            f"{', '.join(ignored)} of {loaded.root / '.fugurc'} would be ignored, and something "
            f"else would be measured: this folder is not trusted",
            hint="run `fugu trust` here, or take the lines out",
        )
    managed = loaded.managed
    if managed is not None and (
        managed.only_these_allow or managed.loosest_mode not in ("auto", "yolo")
    ):
        raise UsageError(
            "this command lets agents work without asking, on copies of repositories, and "
            f"{MANAGED_FILE} does not allow that",
            hint="your administrator would have to allow the mode auto and rules of your own",
        )


def load_problems(
    flags: RolloutFlags, suites: Sequence[str], say: Callable[[str], None]
) -> tuple[Problem, ...]:
    """Load the tasks of all suites, filtered by the flags.

    Their order is mixed but always the same, so that an interrupted run covers every suite. Raises
    ConfigError for an unreadable task, UsageError for a repeated id or no task.
    """
    defaults = TaskDefaults(prompt=flags.prompt or "", test_command=flags.test_command or "")
    by_id: dict[str, Problem] = {}
    for suite in suites:
        loaded = _load_suite(suite, flags.only or (), defaults)
        for skipped in loaded.skipped:
            say(f"{skipped.id}: left out: {skipped.reason}")
        for problem in loaded.problems:
            if by_id.setdefault(problem.id, problem) != problem:
                raise UsageError(f"two suites have a task {problem.id!r}, and they differ")
    if not by_id:
        raise UsageError(f"there is no task to run in {', '.join(suites)}")
    order = sorted(by_id.values(), key=lambda problem: zlib.crc32(problem.id.encode()))
    problems = tuple(order[: flags.limit])
    unjudged = [
        problem.id
        for problem in problems
        if isinstance(problem, Task) and problem.test_command and not problem.test_files
    ]
    if unjudged:
        say(
            f"{', '.join(unjudged)}: no test files are named or found, so agents work without an "
            f"acceptance check there; `test_files` names them"
        )
    return problems


def _load_suite(suite: str, only: Sequence[str], defaults: TaskDefaults) -> LoadedTasks:
    """Load one suite. Raises UsageError if it does not exist, ConfigError if it is unreadable."""
    if suite.startswith(questions.GYM_PREFIX):
        return questions.load_generated(suite)
    path = Path(suite)
    if suite == EXAMPLES and not path.exists():
        path = EXAMPLE_TASKS
    if not path.exists():
        raise UsageError(
            f"{suite}: there is no such file or folder",
            hint=f"`{EXAMPLES}` names the ten tasks that ship",
        )
    return load_tasks(path, only=tuple(only), defaults=defaults)


EXAMPLES = "examples"
"""Names the tasks that ship, where no file or folder is called so."""
CONDUCTOR = "conductor"
REPLY_SETTINGS = (
    "provider",
    "model",
    "base_url",
    "protocol",
    "temperature",
    "max_tokens",
    "effort",
    "context",
)
"""Fields of an entry that change its answers. Not its name: two entries of one model share what was
paid for.
"""


@dataclass(frozen=True)
class RolloutSessionFactory:
    """Opens sessions for the arms of an evaluation in `folder`, paid within its limits."""

    config: Config
    environ: Mapping[str, str]
    folder: Path

    def __call__(self, spending: SpendingAccount) -> OpenRolloutSession:
        """Return a function that opens a session in a folder, as `fugu run` does, with nobody to
        ask.
        """
        from fugu_cli.coordinators.action_space import by_strength

        add_python_to_path()
        entries = {entry.name: entry for entry in usable_pool(self.config, self.environ)}
        opted_out = self.config.opt_out
        able = [entry.member() for name, entry in entries.items() if name not in opted_out]
        strongest = by_strength(able)[-1].name

        locks = ReplyLocks()

        async def opened(context: RolloutContext) -> RolloutSession:
            billing = RolloutBilling(
                rollout=str(context.data.parent.relative_to(self.folder)),
                repository=context.repository,
                seed=context.seed,
                folder=self.folder,
                spending=spending,
                locks=locks,
                named=task_literals(context.task),
            )
            spending.begin_rollout(billing.rollout)

            def paid(agent: Agent) -> Agent:
                entry = entries[agent.name]
                return PaidAgent(agent, entry.member(), reply_settings(entry), billing)

            config = rollout_config(self.config, context, strongest)
            loaded = LoadedConfig(
                config=config, files=(), notes=(), root=context.repository, trusted=False
            )
            session = wiring.build_session(
                loaded,
                self.environ,
                _deny,
                context.resume,
                paid,
                learns=False,
                somebody_to_ask=False,
            )
            if context.steps:
                session.team = replace(session.team, coordinator=FixedWorkflow(context.steps))
            return session

        return opened


def add_python_to_path() -> None:
    """Add the Python that runs fugu to the end of PATH, for tasks whose commands need one."""
    interpreter, path = str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)
    if interpreter not in path.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([path, interpreter])


def rollout_config(config: Config, context: RolloutContext, strongest: str) -> Config:
    """Return the user's configuration for a rollout. `strongest`: the agent that advises.

    The tests that a task shows must pass in the end. Random choices differ between tasks and seeds.
    Commands run unasked, because the repository is a copy.
    """
    conductor, shown = context.arm == CONDUCTOR, bool(context.task.test_files)
    rule, _, worker = context.arm.partition(":")
    coordinator, advisor = config.coordinator if conductor else context.arm, config.advisor
    if rule == runner.ADVISED:
        coordinator, advisor = f"single:{worker}", strongest
    if context.steps:
        coordinator = "cascade"
    if context.checkpoint is not None:
        chosen = {"checkpoint": context.checkpoint.file, "sample": context.checkpoint.sample}
        config = config.model_copy(update=chosen)
    return config.model_copy(
        update={
            "coordinator": coordinator,
            "advisor": advisor,
            "tier": "ultra" if conductor else "fugu",
            "data_dir": context.data,
            "permission_mode": "auto",
            "allow": (*config.allow, "bash", "acceptance_check"),
            "test_command": context.task.test_command if shown else None,
            "tests": config.tests.model_copy(update={"until": (), "until_pass": shown}),
            "test_timeout": context.task.timeout,
            "verify_answers": context.question or config.verify_answers,
            "seed": zlib.crc32(context.task.id.encode()) + context.seed,
        }
    )


def reply_settings(entry: AgentEntry) -> dict[str, JsonValue]:
    """Return everything of an entry that its replies depend on, the prompts of its protocol
    included.
    """
    settings = entry.model_dump(mode="json", include=set(REPLY_SETTINGS))
    if entry.protocol != "native":
        prompt_texts = "".join(
            prompts.load(f"local/{name}") for name in ("rewrite", "correct", "change")
        )
        settings["asked"] = hashlib.sha256(prompt_texts.encode()).hexdigest()[:16]
    return settings


async def _deny(_call: Call, _judgement: policy.Judgement) -> Permission:
    """Deny the call: nobody can be asked."""
    return "headless"


PAID_FILE = "paid.jsonl"
DISK_HINT = "make room on the disk"
INTERRUPTED = 4
UNFINISHED = 2
NOT_PASSED = 3
SESSION_LIMITS = ("max_turns", "time_limit", "steps_per_turn", "max_budget_usd")


def evaluate(flags: EvalFlags) -> int:
    """Run an evaluation. Return 0 measured and reported, 2 agents that did not answer, 3 a limit, 4
    interrupted.
    """
    if not flags.suites:
        raise UsageError(
            "no tasks were given", hint="`fugu help evaluation` shows what they can be"
        )
    if flags.models or any(suite.startswith(OUTCOMES_PREFIX) for suite in flags.suites):
        return _play_outcomes(flags)
    limits = {"max_turns": flags.max_turns, "time_limit": flags.time_limit}
    loaded = current_config({name: value for name, value in limits.items() if value is not None})
    refuse_ignored_keys(loaded)
    config, environ = loaded.config, dict(os.environ)
    for note in check_embedded(config, environ):
        say_progress(note)
    entries = [entry for entry in usable_pool(config, environ) if entry.name not in config.opt_out]
    members = tuple(entry.member() for entry in entries)
    problems = load_problems(flags, flags.suites, say_progress)
    folder = (flags.out or Path("fugu-eval")).resolve()
    if (
        flags.report
        and not (folder / runner.ROWS_FILE).exists()
        and results_folder.read_setup(folder) is None
    ):
        raise UsageError(
            f"there is no evaluation in {folder}", hint="--out names the folder of one"
        )
    words = _parse_arms(flags, folder, members, config.opt_out)
    checkpoint = "" if flags.report else _checkpoint(config, members, words)
    plan = runner.EvaluationPlan(
        problems=problems,
        arms=words,
        seeds=flags.seeds,
        pool=members,
        settings=shared_settings(
            config, (*SESSION_LIMITS, *(["checkpoint"] if checkpoint else []), "sample")
        ),
        checkpoint=checkpoint,
        entries={
            entry.name: json.dumps(reply_settings(entry), sort_keys=True) for entry in entries
        },
    )
    ended = runner.EvaluationEnd()
    if not flags.report:
        try:
            with results_folder.locked_folder(folder):
                ended = asyncio.run(_measure(flags, plan, config, folder))
        except KeyboardInterrupt:
            say_progress("interrupted; the same command goes on")
            _write_report(folder, plan)
            return INTERRUPTED
    try:
        _write_report(folder, plan)
    except StorageError as error:
        ended.stopped = ended.stopped or error
        say_progress(str(error))
    return _report_end(ended, folder)


OUTCOMES_PREFIX = "outcomes:"
"""Before a file of recorded outcomes, on which rules are played without any agent."""
SMALLEST_POOL, LARGEST_POOL = 2, 5
"""Models of a pool for that: every list of them is played."""


def _play_outcomes(flags: EvalFlags) -> int:
    """Play recorded outcomes: with the named models as the pool, else the gate on drawn pools."""
    suites = flags.suites or ()
    files = [Path(word.removeprefix(OUTCOMES_PREFIX)) for word in suites]
    if not all(word.startswith(OUTCOMES_PREFIX) for word in suites):
        raise UsageError(
            "recorded outcomes are played alone, without other tasks",
            hint="fugu eval outcomes:FILE",
        )
    if set(flags.arms or ()) - {LEARNED_ARM}:
        raise UsageError(
            f"on recorded outcomes the rules are always played, and only {LEARNED_ARM} can be "
            f"added",
            hint=f"--arm {LEARNED_ARM}",
        )
    return _play_pool(flags, files) if flags.models else _play_gate(flags, files)


def _play_pool(flags: EvalFlags, files: Sequence[Path]) -> int:
    """Print what each way solves and spends with one pool. Raises UsageError, and ConfigError for a
    file that holds no outcomes of these models.
    """
    from fugu_cli.config.known_models import vendor_of
    from fugu_cli.coordinators.composed import ComposedHead
    from fugu_cli.coordinators.trinity import Trinity
    from fugu_cli.training.evaluation import outcome_replay

    models = flags.models or ()
    if len(files) != 1:
        raise UsageError(
            "a pool is played on one file at a time", hint=f"fugu eval outcomes:{files[0]}"
        )
    if not SMALLEST_POOL <= len(set(models)) <= LARGEST_POOL:
        raise UsageError(
            f"a pool of {SMALLEST_POOL} to {LARGEST_POOL} models is needed",
            hint=f"fugu eval outcomes:{files[0]} --model NAME --model NAME",
        )
    tasks = outcome_replay.read_outcomes(files[0], models)
    members = outcome_replay.members_of(tasks, {name: vendor_of(name) for name in models})
    learned: Coordinator | None = None
    config = current_config().config
    if flags.arms and config.checkpoint is None:
        learned = ComposedHead(members, outcome_replay.SETTINGS, table=_skills(flags))
    elif flags.arms:
        parts = load_learned(config, members, f"leave out --arm {LEARNED_ARM}")
        reader = outcome_replay.ReadingOnce(parts[0].meta, lambda: parts)
        learned = Trinity(reader, members, outcome_replay.SETTINGS)
    cells = outcome_replay.play_tasks(members, tasks, learned)
    print(outcome_replay.report(members, tasks, cells), end="")
    return 0


def _play_gate(flags: EvalFlags, files: Sequence[Path]) -> int:
    """Print whether the coordinator passes that decides without a checkpoint: exit code 0, or 3
    where it does not. Raises UsageError and ConfigError.
    """
    from fugu_cli.config.known_models import vendor_of
    from fugu_cli.coordinators.composed import ComposedHead
    from fugu_cli.training.evaluation import default_gate
    from fugu_cli.training.evaluation.outcome_replay import SETTINGS

    if current_config().config.checkpoint is not None:
        raise UsageError(
            "the gate draws pools, and a checkpoint is made for one pool",
            hint=f"name that pool's models: --model NAME --model NAME --arm {LEARNED_ARM}; or leave "
            f"the checkpoint out",
        )
    table = _skills(flags)
    recorded_sets = [default_gate.read_recorded_set(path, vendor_of) for path in files]
    plays = {}
    for recorded in recorded_sets:
        pools = default_gate.draw_pools(recorded, default_gate.POOLS, flags.pool_seed)
        plays_of = []
        for number, pool in enumerate(pools, start=1):
            say_progress(f"{recorded.name}: pool {number} of {len(pools)}: {', '.join(pool)}")
            build = partial(ComposedHead, settings=SETTINGS, table=table)
            plays_of.append(default_gate.play_pool(recorded, pool, {LEARNED_ARM: build}))
        plays[recorded.name] = plays_of
    result = default_gate.judge(plays, LEARNED_ARM)
    print(default_gate.gate_text(result), end="")
    return 0 if result.passes else NOT_PASSED


def _skills(flags: EvalFlags) -> SkillTable | None:
    """Return the table of skills that was named, None for the one that ships."""
    from fugu_cli.coordinators.skills import read_table

    if flags.skills is None:
        return None
    try:
        return read_table(flags.skills)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{flags.skills}: not a table of skills: {error!r}",
            hint="tests/benchmarks/skills_fit.py writes one",
        ) from error


def _parse_arms(
    flags: EvalFlags, folder: Path, members: Sequence[Member], opted_out: Sequence[str]
) -> tuple[str, ...]:
    """Return the requested arms. A report without --arms shows all measured arms."""
    if flags.report and not flags.arms:
        measured = {
            row.arm for row in results_folder.read_rows(folder / runner.ROWS_FILE, RolloutOutcome)
        }
        return tuple(sorted(measured, key=runner.report_order))
    return runner.expand_arms(flags.arms or runner.DEFAULT_ARMS, members, opted_out)


def _checkpoint(config: Config, members: Sequence[Member], words: Sequence[str]) -> str:
    """Return the digest of the checkpoint that one of these arms uses, "" if none does. Raises
    UsageError.
    """
    from fugu_cli.coordinators import checkpoint

    if config.checkpoint is None:
        return ""
    if LEARNED_ARM in words:
        without = " ".join(f"--arm {arm}" for arm in runner.DEFAULT_ARMS if arm != LEARNED_ARM)
        load_learned(config, members, f"name the arms without it: {without}")
    elif not (CONDUCTOR in words and config.coordinator == LEARNED_ARM):
        return ""
    return checkpoint.load(config.checkpoint).digest


def load_learned(
    config: Config, members: Sequence[Member], instead: str
) -> tuple[Checkpoint, Backbone]:
    """Load the checkpoint and backbone of the arm `trinity`.

    A session would go on with the cascade, which would then be measured under its name. Raises
    UsageError, whose hint ends with `instead`.
    """
    from fugu_cli.coordinators import backbone_files, trinity

    assert config.checkpoint is not None
    try:
        with backbone_files.required_libraries():
            folder = trinity.backbone_folder(config.backbone, config.cache)
            parts = trinity.load_parts(config.checkpoint, folder, config.cache)
            parts[0].meta.check_pool([member.name for member in members])
    except (CoordinatorUnavailable, MemoryError) as error:
        advice = error.hint if isinstance(error, CoordinatorUnavailable) else "close other programs"
        raise UsageError(
            f"the arm {LEARNED_ARM} cannot be measured here: {str(error).rstrip('.')}",
            hint=f"{advice.rstrip('.')}; or {instead}",
        ) from error
    return parts


def shared_settings(config: Config, names: Sequence[str] = SESSION_LIMITS) -> dict[str, str]:
    """Return the settings that all rows of a table share."""
    return {name: str(getattr(config, name)) for name in names}


def about_pool(config: Config, environ: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return the pool, its entries and the limits: a training run depends on them."""
    entries = usable_pool(config, environ)
    return {
        "pool": {entry.name: entry.member().model_dump(mode="json") for entry in entries},
        "entries": {entry.name: dict(reply_settings(entry)) for entry in entries},
        "limits": dict(shared_settings(config)),
    }


def open_engine(flags: RolloutFlags, config: Config, folder: Path) -> RolloutEngine:
    """Return the engine that the flags name. The caller has locked `folder`. Raises ConfigError if
    money is limited and an agent has no price.
    """
    environ = pool_variables(config, os.environ)
    unpriced = [
        entry.name
        for entry in usable_pool(config, environ)
        if entry.rates is None and entry.name not in config.opt_out
    ]
    if flags.max_budget_usd is not None and unpriced:
        raise ConfigError(f"{', '.join(unpriced)}: {UNPRICED}", hint=PRICE_HINT)
    limits = SpendingLimits(flags.max_budget_usd, flags.max_requests)
    spending = Spending(folder / PAID_FILE, limits)
    opening = RolloutSessionFactory(config, environ, folder)
    return LocalEngine(opening(spending), spending, folder)


@contextmanager
def engine_in_loop(
    flags: RolloutFlags, config: Config, folder: Path, loop: asyncio.Runner
) -> Iterator[RolloutEngine]:
    """Open the engine that the flags name, and close it in its event loop."""
    engine = open_engine(flags, config, folder)
    try:
        yield engine
    finally:
        loop.run(engine.close())


def rollouts_at_once(flags: RolloutFlags, members: Sequence[Member], engine: RolloutEngine) -> int:
    """Return the requested number, by default the engine's cores, at most four: providers limit
    requests before machines do.
    """
    if flags.rollouts is not None:
        return flags.rollouts
    if any(member.provider == "local" for member in members):
        return 1  # a model on this machine uses all cores for one reply
    return min(4, engine.cores)


async def _measure(
    flags: EvalFlags, plan: runner.EvaluationPlan, config: Config, folder: Path
) -> runner.EvaluationEnd:
    engine = open_engine(flags, config, folder)
    plan = replace(plan, at_once=rollouts_at_once(flags, plan.pool, engine))
    try:
        return await runner.run_evaluation(plan, engine, folder, _report_progress)
    finally:
        await engine.close()


def _report_progress(progress: runner.EvaluationProgress | str) -> None:
    if isinstance(progress, str):
        say_progress(progress)
        return
    row = progress.row
    cost = f"{row.turns} turns, {row.calls} calls, {row.seconds:.0f} s" + (
        f", ${row.usd:.4f}" if row.usd else ""
    )
    left = f"; about {duration(progress.left)} left" if progress.left else ""
    result = "solved" if row.ok else "not solved"
    say_progress(
        f"[{progress.done}/{progress.total}] {row.arm} {row.task}: {result} ({row.reason}), {cost}{left}"
    )


def duration(seconds: float) -> str:
    """Return a duration for people: `40 s`, `12 min`, `3.1 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def say_progress(text: str) -> None:
    """Print progress on standard error."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def _write_report(folder: Path, plan: runner.EvaluationPlan) -> None:
    """Write the report of all rows of the requested tasks and arms."""
    sources = {
        problem.id: problem.source
        for problem in sorted(plan.problems, key=lambda problem: (problem.source, problem.id))
    }
    rows = [
        row
        for row in results_folder.read_rows(folder / runner.ROWS_FILE, RolloutOutcome)
        if row.arm in plan.arms
    ]
    rows.sort(key=lambda row: plan.arms.index(row.arm))
    summary = summarise(rows, sources)
    begun = results_folder.read_setup(folder) or plan
    checks = {
        check.task: check
        for check in results_folder.read_rows(folder / runner.CHECKS_FILE, TaskCheck)
    }
    refused = [
        check for name in sources if (check := checks.get(name)) is not None and check.refused
    ]
    seeds = max([plan.seeds, *(row.seed + 1 for row in rows)])
    facts = {
        "fugu": __version__,
        "pool": ", ".join(
            f"{member.name} ({member.model}, {member.slot})" for member in begun.pool
        ),
        "tasks": (
            f"{len(sources) - len(refused)} of "
            f"{', '.join(dict.fromkeys(sources.values()))}; {seeds} seed(s)"
        ),
        "limits": ", ".join(
            f"{name} {value}" for name, value in begun.settings.items() if value != "None"
        ),
        "written": time.strftime("%Y-%m-%d %H:%M"),
    }
    notes = [f"Refused: {check.task}: {check.refused}." for check in refused]
    left = (len(sources) - len(refused)) * len(plan.arms) * seeds - sum(
        row.task in sources for row in rows
    )
    if left > 0:
        are = "rollouts are" if left > 1 else "rollout is"
        notes.append(f"Not finished: {left} {are} missing; arms are compared on what both have.")
    page, html = report.write_report(
        folder, report.ReportNotes("Evaluation", facts, tuple(notes)), summary
    )
    print(page)
    print(html)


def _rollouts_left(count: int) -> str:
    return f"{plural(count, 'rollout')} {'is' if count == 1 else 'are'} left"


def _report_end(ended: runner.EvaluationEnd, folder: Path) -> int:
    """Print the end of an evaluation. Raises the error that stopped it, with the way to continue."""
    if ended.stopped is not None:
        left = _rollouts_left(ended.missing)
        kept = f"{left}; everything measured is kept in {folder}"
        stopped = type(ended.stopped)
        hint = ended.stopped.hint.rstrip(".") or (
            DISK_HINT if isinstance(ended.stopped, StorageError) else ""
        )
        error = FuguError(
            f"{ended.stopped}; {kept}", hint=f"{hint}; the same command goes on".lstrip("; ")
        )
        error.exit_code = stopped.exit_code
        raise error
    if ended.missing:
        say_progress(
            f"{_rollouts_left(ended.missing)}, for agents did not answer; the same command goes on"
        )
        return UNFINISHED
    return 0
