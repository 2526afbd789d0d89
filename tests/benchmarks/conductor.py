"""Ultra against Trinity and against single agents, with the embedded pool, on development tasks.

    python tests/benchmarks/conductor.py --tasks DIR --out DIR [--beside FILE] [--seconds 480]

Measures only the arm `ultra`; the others' rows come from `--beside` (embedded_pool.py's loop.jsonl,
measured with the same limit). Takes about an hour and a half: run it with `nice`, in slices of
`--seconds`. What was measured is kept in --out and not measured again; the report is written at the
end of every slice.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

import one_pass
from arms import measure_arms
from on_tasks import measured, tell

from fugu_cli import __version__, prompts, wiring
from fugu_cli.config import Config
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.engine.environment import Permission
from fugu_cli.messages import Call
from fugu_cli.safety import policy
from fugu_cli.session import costs, log
from fugu_cli.session.events import Event, Planned
from fugu_cli.session.state import SessionState
from fugu_cli.training.evaluation import results_folder, rollout
from fugu_cli.training.tasks import Task

ARM = "ultra"
TEMPLATE = Path(__file__).with_suffix(".template.md")
RESULT = Path(__file__).parent / "results" / "conductor.md"


@dataclass(frozen=True)
class Options:
    """The command line, parsed."""

    tasks: Path
    out: Path
    beside: Path
    only: tuple[str, ...]
    limit: float
    seconds: float
    report: Path


def options(arguments: Sequence[str]) -> Options:
    """Raises SystemExit with a usage line for what cannot be used."""
    results = Path(__file__).parent / "results"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tasks", type=Path, required=True, help="a folder of task files (*.jsonl)"
    )
    parser.add_argument(
        "--out", type=Path, default=results / "conductor", help="where rows and logs are kept"
    )
    parser.add_argument(
        "--beside",
        type=Path,
        default=results / "embedded-pool" / "loop.jsonl",
        help="other arms' rows",
    )
    parser.add_argument(
        "--only",
        default="quixbugs,hefix-py",
        help="task files to use, by name (default: %(default)s)",
    )
    parser.add_argument(
        "--limit", type=float, default=90.0, help="seconds for one task (%(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="begin no task after that many seconds"
    )
    parser.add_argument(
        "--report", type=Path, default=RESULT, help="the report to write (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    only = tuple(name for name in given.only.split(",") if name)
    return Options(
        given.tasks,
        given.out.resolve(),
        given.beside,
        only,
        given.limit,
        given.seconds,
        given.report,
    )


async def open_session(place: rollout.RolloutContext, limit: float) -> rollout.RolloutSession:
    """A session as `fugu run --tier ultra` opens it, with the embedded pool and nobody to ask."""
    config = Config(
        tier="ultra",
        data_dir=place.data,
        time_limit=limit,
        test_command=place.task.test_command if place.task.test_files else None,
        test_timeout=place.task.timeout,
        seed=zlib.crc32(place.task.id.encode()),
    )
    loaded = LoadedConfig(config=config, files=(), notes=(), root=place.repository, trusted=False)
    return wiring.build_session(loaded, {}, no)


async def no(_call: Call, _judgement: policy.Judgement) -> Permission:
    """Nobody is there to ask."""
    return "no"


async def measure(chosen: Options, tasks: Sequence[Task]) -> None:
    """Task by task until the slice is used up."""
    until = time.monotonic() + chosen.seconds
    try:
        for task in tasks:
            if time.monotonic() > until:
                return
            file = chosen.out / "loop.jsonl"
            await measure_arms([task], [ARM], partial(open_session, limit=chosen.limit), file, tell)
    finally:
        write_report(chosen, tasks)


@dataclass(frozen=True)
class Planning:
    """What one session's log says of its planning."""

    steps: int
    plans: int
    faults: int
    fell_back: bool
    rounds: int
    tokens: int
    share: float
    seconds: float
    agents: int


def planning(events: Sequence[Event]) -> Planning:
    """Counts of a session with one request. `share`: of all tokens, those of plans."""
    plans = [event for event in events if isinstance(event, Planned)]
    turns = SessionState(events).request.turns
    used = [usage.input + usage.output for usage in costs.usage(events).values()]
    spent = sum(plan.usage.input + plan.usage.output for plan in plans)
    return Planning(
        steps=sum(len(plan.steps) for plan in plans if plan.round == 1 and plan.within is None),
        plans=len(plans),
        faults=sum(bool(plan.fault) for plan in plans),
        fell_back=any(turn.assigned.plan == 0 for turn in turns),
        rounds=max((plan.round for plan in plans if not plan.fault), default=0),
        tokens=sum(used),
        share=spent / sum(used) if sum(used) else 0.0,
        seconds=sum(plan.seconds for plan in plans),
        agents=len({turn.assigned.agent for turn in turns if turn.assigned.plan}),
    )


def write_report(chosen: Options, tasks: Sequence[Task]) -> None:
    """The report of all rows there are, the other arms on the same tasks."""
    own = results_folder.read_rows(chosen.out / "loop.jsonl", rollout.RolloutOutcome)
    measured = {row.task for row in own}
    sources = {task.id: task.source for task in tasks if task.id in measured}
    others = [
        row
        for row in results_folder.read_rows(chosen.beside, rollout.RolloutOutcome)
        if row.task in measured
    ]
    found = [planning([r.event for r in log.read(chosen.out / row.session)]) for row in own]
    machine = (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}"
    )
    text = prompts.fill(
        TEMPLATE.read_text(encoding="utf-8"),
        version=__version__,
        machine=machine,
        measured=str(len(own)),
        all=str(len(tasks)),
        limit=f"{chosen.limit:g}",
        loop=one_pass.loop_table([*own, *others], sources).rstrip(),
        endings=one_pass.endings_table([*own, *others], sources).rstrip(),
        paired=one_pass.paired_table([*own, *others], sources).rstrip(),
        planning=planning_table(found).rstrip(),
    )
    chosen.report.parent.mkdir(parents=True, exist_ok=True)
    chosen.report.write_text(text, encoding="utf-8")


def planning_table(found: Sequence[Planning]) -> str:
    """What the plans were like, over all measured tasks."""
    if not found:
        return "Not measured yet."
    planned = [one for one in found if one.steps]
    lines = [
        ("requests with a workflow in the first round", f"{len(planned)} of {len(found)}"),
        ("requests that fell back to turn by turn", str(sum(one.fell_back for one in found))),
        ("planner's replies", str(sum(one.plans for one in found))),
        ("of them no workflow", str(sum(one.faults for one in found))),
        (
            "steps of a first workflow, mean",
            f"{fmean(one.steps for one in planned):.2f}" if planned else "-",
        ),
        (
            "different agents of a request, mean",
            f"{fmean(one.agents for one in planned):.2f}" if planned else "-",
        ),
        ("requests with a second workflow", str(sum(one.rounds > 1 for one in found))),
        ("tokens of a task, mean", f"{fmean(one.tokens for one in found):.0f}"),
        ("share of planning in them, mean", f"{100 * fmean(one.share for one in found):.0f} %"),
        ("seconds of planning in a task, mean", f"{fmean(one.seconds for one in found):.0f}"),
    ]
    return "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {value} |" for name, value in lines)


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, or that of the failure that ended the measurement."""
    chosen = options(arguments)
    return measured(chosen.tasks, chosen.only, partial(measure, chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
