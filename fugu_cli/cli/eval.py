"""`fugu eval`: coordinators compared on the same tasks with the user's own pool. Also what
training's commands share with it: task suites, and the engine that runs rollouts.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from fugu_cli import __version__
from fugu_cli.cli.current_folder import check_embedded, current_config
from fugu_cli.cli.rollout_sessions import (
    CONDUCTOR,
    PAID_FILE,
    local_engine,
    reply_settings,
)
from fugu_cli.cli.training_flags import EvalFlags, RolloutFlags
from fugu_cli.config import MANAGED_FILE, Config
from fugu_cli.config.agent_pool import pool_variables, usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.errors import (
    ConfigError,
    CoordinatorUnavailable,
    FuguError,
    StorageError,
    UsageError,
    installing,
)
from fugu_cli.formatting import plural
from fugu_cli.session.events import Member
from fugu_cli.session.spending import PRICE_HINT, UNPRICED
from fugu_cli.training.evaluation import report, results_folder, runner
from fugu_cli.training.evaluation.engine import RolloutEngine
from fugu_cli.training.evaluation.paid_calls import (
    Spending,
    SpendingLimits,
)
from fugu_cli.training.evaluation.rollout import (
    LEARNED_ARM,
    RolloutOutcome,
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
    if flags.report and all(
        (Path(word) / results_folder.SETUP_FILE).is_file() for word in flags.suites
    ):
        return _report_folders(flags, [Path(word).resolve() for word in flags.suites])
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
    """Play the gate for the coordinator that decides without a checkpoint, and print the result.

    Return 0 if it passes, else 3. Raises UsageError and ConfigError.
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
        plays_of_set = []
        for number, pool in enumerate(pools, start=1):
            say_progress(f"{recorded.name}: pool {number} of {len(pools)}: {', '.join(pool)}")
            build = partial(ComposedHead, settings=SETTINGS, table=table)
            plays_of_set.append(default_gate.play_pool(recorded, pool, {LEARNED_ARM: build}))
        plays[recorded.name] = plays_of_set
    result = default_gate.judge(plays, LEARNED_ARM)
    print(default_gate.gate_text(result), end="")
    return 0 if result.passes else NOT_PASSED


def _skills(flags: EvalFlags) -> SkillTable | None:
    """Return the table of skills that the flags name, None for the one that is shipped."""
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
    """Return the digest of the checkpoint that these arms use, "" if they use none. Raises
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
    unpriced = [
        entry.name
        for entry in usable_pool(config, pool_variables(config, os.environ))
        if entry.rates is None and entry.name not in config.opt_out
    ]
    if flags.max_budget_usd is not None and unpriced:
        raise ConfigError(f"{', '.join(unpriced)}: {UNPRICED}", hint=PRICE_HINT)
    limits = SpendingLimits(flags.max_budget_usd, flags.max_requests)
    if flags.engine == "ray":
        return _ray_engine(config, limits, folder)
    return local_engine(config, Spending(folder / PAID_FILE, limits), folder)


def _ray_engine(config: Config, limits: SpendingLimits, folder: Path) -> RolloutEngine:
    if find_spec("ray") is None:
        raise UsageError(
            "ray is not installed, so nothing can run on a cluster",
            hint=f"it is the extra `ray`: {installing('ray[default]>=2.40')}",
        )
    from fugu_cli.cli.ray_engine import RayEngine

    return RayEngine(config, limits, folder)


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
    """Return the requested number, by default the cores: all of a cluster, at most four of this
    machine, since providers limit requests before machines do.
    """
    if flags.rollouts is not None:
        return flags.rollouts
    if flags.engine == "ray":
        return engine.cores
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
    sources = {problem.id: problem.source for problem in plan.problems}
    setup = results_folder.read_setup(folder) or plan
    rows = results_folder.read_rows(folder / runner.ROWS_FILE, RolloutOutcome)
    checks = results_folder.read_rows(folder / runner.CHECKS_FILE, TaskCheck)
    _report_rows(folder, rows, checks, sources, plan.arms, setup, plan.seeds)


def _report_folders(flags: EvalFlags, folders: Sequence[Path]) -> int:
    """Write one report of several evaluations: the first row of each arm, task and seed."""
    setup = results_folder.common_setup(folders)
    sources = {task: setup.sources.get(task, "tasks") for task in setup.tasks}
    rows: dict[tuple[str, str, int], RolloutOutcome] = {}
    repeated = 0
    checks: list[TaskCheck] = []
    for folder in folders:
        checks += results_folder.read_rows(folder / runner.CHECKS_FILE, TaskCheck)
        for row in results_folder.read_rows(folder / runner.ROWS_FILE, RolloutOutcome):
            key = (row.arm, row.task, row.seed)
            if key in rows:
                repeated += 1
            else:
                rows[key] = row
    if repeated:
        say_progress(f"in several folders and counted once: {plural(repeated, 'rollout')}")
    arms = sorted({row.arm for row in rows.values()}, key=runner.report_order)
    if flags.arms:
        arms = [arm for arm in arms if arm in flags.arms]
    report_folder = flags.out or (folders[0] if len(folders) == 1 else Path("fugu-eval"))
    report_folder.mkdir(parents=True, exist_ok=True)
    _report_rows(report_folder.resolve(), list(rows.values()), checks, sources, arms, setup)
    return 0


def _report_rows(
    folder: Path,
    all_rows: Sequence[RolloutOutcome],
    all_checks: Sequence[TaskCheck],
    sources: Mapping[str, str],
    arms: Sequence[str],
    setup: runner.EvaluationPlan | results_folder.EvaluationSetup,
    seeds: int = 1,
) -> None:
    """Write the report of the rows of these tasks (id -> suite) and arms into `folder`."""
    sources = dict(sorted(sources.items(), key=lambda item: (item[1], item[0])))
    rows = [row for row in all_rows if row.arm in arms]
    rows.sort(key=lambda row: arms.index(row.arm))
    summary = summarise(rows, sources)
    checks = {check.task: check for check in all_checks}
    refused = [checks[task] for task in sources if task in checks and checks[task].refused]
    judged_tasks = len(sources) - len(refused)
    suites = ", ".join(dict.fromkeys(sources.values()))
    seeds = max([seeds, *(row.seed + 1 for row in rows)])
    agents = [f"{member.name} ({member.model}, {member.slot})" for member in setup.pool]
    limits = [f"{name} {value}" for name, value in setup.settings.items() if value != "None"]
    facts = {
        "fugu": __version__,
        "pool": ", ".join(agents),
        "tasks": f"{judged_tasks} of {suites}; {seeds} seed(s)",
        "limits": ", ".join(limits),
        "written": time.strftime("%Y-%m-%d %H:%M"),
    }
    notes = [f"Refused: {check.task}: {check.refused}." for check in refused]
    measured = sum(row.task in sources for row in rows)
    left = judged_tasks * len(arms) * seeds - measured
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
        kept = f"{_rollouts_left(ended.missing)}; everything measured is kept in {folder}"
        hints = [ended.stopped.hint.rstrip("."), "the same command goes on"]
        if not hints[0] and isinstance(ended.stopped, StorageError):
            hints[0] = DISK_HINT
        hint = "; ".join(filter(None, hints))
        error = FuguError(f"{ended.stopped}; {kept}", hint=hint)
        error.exit_code = ended.stopped.exit_code
        raise error
    if ended.missing:
        say_progress(f"{_rollouts_left(ended.missing)}; the same command goes on")
        return UNFINISHED
    return 0
