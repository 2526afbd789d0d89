"""The embedded pool on development tasks: each agent alone with one answer, each alone in the loop,
and routed.

    python tests/benchmarks/embedded_pool.py --tasks DIR --out DIR [--only quixbugs,hefix-py]
    [--arms one-pass,cascade]

Takes hours: run it with `nice`, one at a time. What was measured is kept in the --out folder
(one_pass.jsonl, loop.jsonl, sessions/) and not measured again; a run that was stopped goes on. The
report is written at the end.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import one_pass
from arms import measure_arms
from on_tasks import embedded, measured, tell

from fugu_cli import __version__, prompts, wiring
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import EMBEDDED
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.engine.environment import Permission
from fugu_cli.local.store import default_cache
from fugu_cli.messages import Call
from fugu_cli.safety import policy
from fugu_cli.training.evaluation import results_folder, rollout
from fugu_cli.training.tasks import Task

ONE_PASS = "one-pass"
ARMS = (
    ONE_PASS,
    *("single:small", "single:coder"),
    *("cascade", "random", "trinity"),
)
PLAN = (("coder", (0, 1)), ("small", (0, 1)), ("coder", (2, 3)), ("small", (2, 3)))
"""The pass matrix: greedy answers first, mended and written anew, then the sampled ones."""
TEMPLATE = Path(__file__).with_suffix(".template.md")
RESULT = Path(__file__).parent / "results" / "embedded-pool.md"


@dataclass(frozen=True)
class Options:
    """The command line, parsed."""

    tasks: Path
    out: Path
    only: tuple[str, ...]
    arms: tuple[str, ...]
    limit: float
    report: Path

    @property
    def outcomes(self) -> Path:
        """The rows of the loop."""
        return self.out / "loop.jsonl"


def options(arguments: Sequence[str]) -> Options:
    """Raises SystemExit with a usage line for what cannot be used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tasks", type=Path, required=True, help="a folder of task files (*.jsonl)"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="where rows and session logs are kept"
    )
    parser.add_argument(
        "--only",
        default="quixbugs,hefix-py",
        help="task files to use, by name (default: %(default)s)",
    )
    parser.add_argument(
        "--arms", default=",".join(ARMS), help="what to measure (default: %(default)s)"
    )
    parser.add_argument(
        "--limit", type=float, default=240.0, help="seconds for one task in the loop (%(default)s)"
    )
    parser.add_argument(
        "--report", type=Path, default=RESULT, help="the report to write (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    arms = tuple(arm for arm in given.arms.split(",") if arm)
    known = {*ARMS, *(f"single:{entry.name}" for entry in EMBEDDED)}
    if unknown := [arm for arm in arms if arm not in known]:
        parser.error(f"no arm {unknown[0]!r}; there are {', '.join(ARMS)}")
    only = tuple(name for name in given.only.split(",") if name)
    return Options(given.tasks, given.out.resolve(), only, arms, given.limit, given.report)


async def measure(chosen: Options, tasks: Sequence[Task]) -> None:
    """All arms that were asked for, the report after each part."""
    attempts = chosen.out / "one_pass.jsonl"
    if ONE_PASS in chosen.arms:
        for name, repeats in PLAN:
            await answers(tasks, name, repeats, attempts)
            write_report(chosen, tasks)
    arms = [arm for arm in chosen.arms if arm != ONE_PASS]
    try:
        opening = partial(open_session, chosen=chosen)
        await measure_arms(tasks, arms, opening, chosen.outcomes, tell)
    finally:
        write_report(chosen, tasks)


async def answers(tasks: Sequence[Task], name: str, repeats: Sequence[int], file: Path) -> None:
    """One agent's part of the pass matrix."""
    agent = embedded(name)
    try:
        await one_pass.measure_agent(tasks, agent, repeats, file, tell)
    finally:
        await agent.close()


async def open_session(place: rollout.RolloutContext, chosen: Options) -> rollout.RolloutSession:
    """A session as `fugu run` opens it, with the embedded pool and nobody to ask. Draws differ from
    task to task.
    """
    config = Config(
        coordinator=place.arm,
        data_dir=place.data,
        cache_dir=default_cache(),
        time_limit=chosen.limit,
        test_command=place.task.test_command if place.task.test_files else None,
        test_timeout=place.task.timeout,
        seed=zlib.crc32(place.task.id.encode()),
    )
    loaded = LoadedConfig(config=config, files=(), notes=(), root=place.repository, trusted=False)
    return wiring.build_session(loaded, {}, no)


async def no(_call: Call, _judgement: policy.Judgement) -> Permission:
    """Nobody is there to ask."""
    return "no"


def write_report(chosen: Options, tasks: Sequence[Task]) -> None:
    """The report of all rows there are."""
    sources = {
        task.id: task.source for task in sorted(tasks, key=lambda task: (task.source, task.id))
    }
    attempts = one_pass.newest_attempts(
        results_folder.read_rows(chosen.out / "one_pass.jsonl", one_pass.OnePassAttempt)
    )
    outcomes = results_folder.read_rows(chosen.outcomes, rollout.RolloutOutcome)
    machine = (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}"
    )
    counts = {
        source: list(sources.values()).count(source) for source in dict.fromkeys(sources.values())
    }
    given = ", ".join(f"{count} of {source}" for source, count in counts.items())
    text = prompts.fill(
        TEMPLATE.read_text(encoding="utf-8"),
        version=__version__,
        tasks=given,
        machine=machine,
        limit=f"{chosen.limit:g}",
        one_pass=one_pass.one_pass_table(attempts, sources).rstrip(),
        loop=one_pass.loop_table(outcomes, sources).rstrip(),
        endings=one_pass.endings_table(outcomes, sources).rstrip(),
        paired=one_pass.paired_table(outcomes, sources).rstrip(),
    )
    chosen.report.parent.mkdir(parents=True, exist_ok=True)
    chosen.report.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, or that of the failure that ended the measurement."""
    chosen = options(arguments)
    return measured(chosen.tasks, chosen.only, partial(measure, chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
