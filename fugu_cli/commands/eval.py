"""`fugu eval`: coordinators against each other on the same tasks, with the user's own pool, and a report of it.

Everything that was measured is kept in one folder and not measured again; a run that was stopped, or killed, goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fugu_cli import __version__
from fugu_cli.commands import suites
from fugu_cli.commands.embedded import check_embedded
from fugu_cli.commands.evalflags import EngineName, EvalFlags
from fugu_cli.commands.here import here
from fugu_cli.commands.opening import CONDUCTOR, Opening, keys, settings
from fugu_cli.config import Config
from fugu_cli.config.pool import pool
from fugu_cli.errors import CoordinatorUnavailable, FuguError, StorageError, UsageError
from fugu_cli.evaluation import arms, capacity, pages, rows, running, setup
from fugu_cli.evaluation.loop import Outcome
from fugu_cli.evaluation.rollout import LEARNED
from fugu_cli.evaluation.spending import Limits, Spending
from fugu_cli.evaluation.summary import summarise
from fugu_cli.events import Member
from fugu_cli.tasks import Problem
from fugu_cli.tasks.checking import Checked
from fugu_cli.tasks.folders import Defaults

ROOM = "make room on the disk"
INTERRUPTED = 4
UNFINISHED = 2
LIMITS = ("max_turns", "time_limit", "steps_per_turn", "max_budget_usd")


def evaluate(flags: EvalFlags) -> int:
    """The exit code: 0 measured and reported, 2 agents that did not answer, 3 a limit, 4 interrupted."""
    if not flags.suites:
        raise UsageError("no tasks were given", hint="`fugu help evaluation` shows what they can be")
    loaded = here(_settings(flags))
    config, environ = loaded.config, dict(os.environ)
    for note in check_embedded(config, environ):
        _say(note)
    entries = [entry for entry in pool(config, environ) if entry.name not in config.opt_out]
    members = tuple(entry.member() for entry in entries)
    defaults = Defaults(prompt=flags.prompt or "", test_command=flags.test_command or "")
    problems = chosen(suites.problems(flags.suites, flags.only or (), defaults, _say), flags.limit)
    folder = (flags.out or Path("fugu-eval")).resolve()
    if flags.report and not (folder / running.ROWS).exists() and setup.read(folder) is None:
        raise UsageError(f"there is no evaluation in {folder}", hint="--out names the folder of one")
    words = _arms(flags, folder, members, config.opt_out)
    checkpoint = "" if flags.report else _checkpoint(config, members, words)
    plan = running.Plan(
        problems=problems,
        arms=words,
        seeds=flags.seeds,
        pool=members,
        settings=fixed(config, (*LIMITS, *(["checkpoint"] if checkpoint else []), "sample")),
        checkpoint=checkpoint,
        entries={entry.name: json.dumps(settings(entry), sort_keys=True) for entry in entries},
        at_once=capacity.at_once(flags.rollouts or _local(members), flags.cores, flags.memory),
    )
    ended = running.Ended()
    if not flags.report:
        try:
            ended = asyncio.run(_measured(flags, plan, Opening(config, keys(config, environ), folder)))
        except KeyboardInterrupt:
            _say("interrupted; the same command goes on")
            _reported(folder, plan)
            return INTERRUPTED
    try:
        _reported(folder, plan)
    except StorageError as error:
        ended.stopped = ended.stopped or error
        _say(str(error))
    return _ended(ended, folder)


def chosen(problems: Sequence[Problem], limit: int | None) -> tuple[Problem, ...]:
    """In an order of no meaning that is always the same, so that an evaluation cut short covers every suite."""
    mixed = sorted(problems, key=lambda problem: zlib.crc32(problem.id.encode()))
    return tuple(mixed[:limit])


def _settings(flags: EvalFlags) -> dict[str, Any]:
    said = {"max_turns": flags.max_turns, "time_limit": flags.time_limit}
    return {name: value for name, value in said.items() if value is not None}


def _arms(flags: EvalFlags, folder: Path, members: Sequence[Member], opted_out: Sequence[str]) -> tuple[str, ...]:
    """Those asked for; a report of what there is, without a word about arms, has all that were measured."""
    if flags.report and not flags.arms:
        measured = {row.arm for row in rows.read(folder / running.ROWS, Outcome)}
        return tuple(sorted(measured, key=arms.place))
    return arms.expand(flags.arms or arms.DEFAULT, members, opted_out)


def _checkpoint(config: Config, members: Sequence[Member], words: Sequence[str]) -> str:
    """The digest of the checkpoint that one of these arms decides with, "" where none does.

    Loads what the arm `trinity` is, as sessions do: they go on with the cascade where it cannot be loaded, and that
    would be measured under its name. Raises UsageError.
    """
    from fugu_cli.coordinators import checkpoint, loading, trinity

    if LEARNED not in words and not (CONDUCTOR in words and config.coordinator == LEARNED):
        return ""
    path = config.checkpoint or trinity.SHIPPED
    try:
        with loading.libraries():
            digest = checkpoint.load(path).digest
            if LEARNED in words:
                folder = trinity.backbone_folder(trinity.Places(path, config.backbone, config.cache))
                trinity.ready(path, folder, (members, config.deciding), config.cache)
    except (CoordinatorUnavailable, MemoryError) as error:
        mended = error.hint if isinstance(error, CoordinatorUnavailable) else "close other programs"
        without = " ".join(f"--arm {arm}" for arm in arms.DEFAULT if arm != LEARNED)
        raise UsageError(
            f"the arm {LEARNED if LEARNED in words else CONDUCTOR} cannot be measured here: {str(error).rstrip('.')}",
            hint=f"{mended.rstrip('.')}; or name the arms without it: {without}",
        ) from error
    return digest


def fixed(config: Config, names: Sequence[str] = LIMITS) -> dict[str, str]:
    """What all rows of a table share."""
    return {name: str(getattr(config, name)) for name in names}


def _local(members: Sequence[Member]) -> int | None:
    """A model on this machine uses all its cores for one reply."""
    return 1 if any(member.provider == "local" for member in members) else None


async def _measured(flags: EvalFlags, plan: running.Plan, opening: Opening) -> running.Ended:
    folder = opening.folder
    spending = Spending(folder / "paid.jsonl", Limits(flags.max_budget_usd, flags.max_requests))
    engine: running.Engine
    if flags.engine is EngineName.ray:
        from fugu_cli.evaluation.spread import Spread

        engine = Spread(opening, folder, spending, plan.at_once)
    else:
        engine = running.Here(opening, folder, spending)
    try:
        return await running.run(plan, engine, folder, _tell)
    finally:
        await engine.close()


def _tell(told: running.Progress | str) -> None:
    if isinstance(told, str):
        _say(told)
        return
    row = told.row
    cost = f"{row.turns} turns, {row.calls} calls, {row.seconds:.0f} s" + (f", ${row.usd:.4f}" if row.usd else "")
    left = f"; about {duration(told.left)} left" if told.left else ""
    said = "solved" if row.ok else "not solved"
    _say(f"[{told.done}/{told.total}] {row.arm} {row.task}: {said} ({row.reason}), {cost}{left}")


def duration(seconds: float) -> str:
    """For people: `40 s`, `12 min`, `3.1 h`."""
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def _reported(folder: Path, plan: running.Plan) -> None:
    """The report of all rows there are, for the tasks and arms that were asked for."""
    sources = {problem.id: problem.source for problem in sorted(plan.problems, key=lambda one: (one.source, one.id))}
    found = [row for row in rows.read(folder / running.ROWS, Outcome) if row.arm in plan.arms]
    found.sort(key=lambda row: plan.arms.index(row.arm))
    summary = summarise(found, sources)
    begun = setup.read(folder) or plan
    checks = {check.task: check for check in rows.read(folder / running.CHECKS, Checked)}
    refused = [check for name in sources if (check := checks.get(name)) is not None and check.refused]
    seeds = max([plan.seeds, *(row.seed + 1 for row in found)])
    facts = {
        "fugu": __version__,
        "pool": ", ".join(f"{member.name} ({member.model}, {member.slot})" for member in begun.pool),
        "tasks": f"{len(sources) - len(refused)} of {', '.join(dict.fromkeys(sources.values()))}; {seeds} seed(s)",
        "limits": ", ".join(f"{name} {value}" for name, value in begun.settings.items() if value != "None"),
        "written": time.strftime("%Y-%m-%d %H:%M"),
    }
    notes = [f"Refused: {found.task}: {found.refused}." for found in refused]
    left = (len(sources) - len(refused)) * len(plan.arms) * seeds - sum(row.task in sources for row in found)
    if left > 0:
        are = "rollouts are" if left > 1 else "rollout is"
        notes.append(f"Not finished: {left} {are} missing; arms are compared on what both have.")
    page, html = pages.write(folder, pages.Report("Evaluation", facts, tuple(notes)), summary)
    print(page)
    print(html)


def _ended(ended: running.Ended, folder: Path) -> int:
    """What is left to say. Raises what stopped it, with the way to go on."""
    if ended.stopped is not None:
        kept = f"{ended.missing} rollouts are left; everything measured is kept in {folder}"
        stopped = type(ended.stopped)
        hint = ended.stopped.hint.rstrip(".") or (ROOM if isinstance(ended.stopped, StorageError) else "")
        error = FuguError(f"{ended.stopped}; {kept}", hint=f"{hint}; the same command goes on".lstrip("; "))
        error.exit_code = stopped.exit_code
        raise error
    if ended.missing:
        _say(f"{ended.missing} rollouts are left, for agents did not answer; the same command goes on")
        return UNFINISHED
    return 0
