"""What one Worker turn of each embedded model solves, beside one answer of other kinds.

    python tests/benchmarks/infilling.py --tasks DIR --out DIR [--only quixbugs,hefix-py] [--agents
    small,coder]

A session of one turn for each task and agent, as `fugu run` opens it: the lines of the function
that fails are filled in one after the other, then its body is written anew, the tests judge, the
grader has the last word. Rows are kept in --out (infilling.jsonl, sessions/) and
not measured again; a run that was stopped goes on. Beside them stand the answers in
results/embedded-pool/one_pass.jsonl to the same tasks. `turns.jsonl`, written at the end, is the
pass matrix of these turns and those answers, for `fugu train evolve --matrix`.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

import one_pass
from arms import measure_arms
from embedded_pool import no
from on_tasks import measured, tell

from fugu_cli import wiring
from fugu_cli.config import Config
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.local.store import default_cache
from fugu_cli.session.events import Replied, ToolRan
from fugu_cli.session.log import read
from fugu_cli.training.evaluation import results_folder, rollout
from fugu_cli.training.evaluation.intervals import wilson
from fugu_cli.training.tasks import Task

ANSWERS = Path(__file__).parent / "results" / "embedded-pool" / "one_pass.jsonl"
KINDS = {0: "one answer: mended", 1: "one answer: written anew"}
LIMIT = 240.0


@dataclass(frozen=True)
class Options:
    """The command line, parsed."""

    tasks: Path
    out: Path
    only: tuple[str, ...]
    agents: tuple[str, ...]

    @property
    def file(self) -> Path:
        return self.out / "infilling.jsonl"


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
        "--agents", default="small,coder", help="of the embedded pool (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    only, agents = (
        tuple(name for name in text.split(",") if name) for text in (given.only, given.agents)
    )
    return Options(given.tasks, given.out.resolve(), only, agents)


async def measure(chosen: Options, tasks: Sequence[Task]) -> None:
    """Every agent's first turn on every task, then the report and the matrix."""
    arms = [f"single:{name}" for name in chosen.agents]
    try:
        await measure_arms(tasks, arms, open_session, chosen.file, tell)
    finally:
        outcomes = [
            row
            for row in results_folder.read_rows(chosen.file, rollout.RolloutOutcome)
            if row.arm in arms
        ]
        answers = list(
            one_pass.newest_attempts(results_folder.read_rows(ANSWERS, one_pass.OnePassAttempt))
        )
        print(report(chosen, outcomes, answers))
        write_matrix(chosen, {task.id: task.prompt for task in tasks}, outcomes, answers)


async def open_session(place: rollout.RolloutContext) -> rollout.RolloutSession:
    """As `fugu run` opens it with the embedded pool, but for one turn."""
    config = Config(
        coordinator=place.arm,
        data_dir=place.data,
        cache_dir=default_cache(),
        time_limit=LIMIT,
        max_turns=1,
        test_command=place.task.test_command if place.task.test_files else None,
        test_timeout=place.task.timeout,
        seed=zlib.crc32(place.task.id.encode()),
    )
    loaded = LoadedConfig(config=config, files=(), notes=(), root=place.repository, trusted=False)
    return wiring.build_session(loaded, {}, no)


def report(
    chosen: Options,
    outcomes: Sequence[rollout.RolloutOutcome],
    answers: Sequence[one_pass.OnePassAttempt],
) -> str:
    """A table in Markdown; a row for each agent and way, over the tasks that have all of them."""
    lines = [
        "| agent | way | solved | 95 % | model s | wall s | calls | tests run | tokens in, out |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in chosen.agents:
        own = [row for row in outcomes if row.arm == f"single:{name}"]
        lines.append(_line(name, "one turn: lines, then bodies", own, chosen.out))
        for repeat, kind in KINDS.items():
            done = {row.task for row in own}
            same = [
                row
                for row in answers
                if (row.agent, row.repeat) == (name, repeat) and row.task in done
            ]
            if same:
                solved = sum(row.ok for row in same)
                tokens = (
                    f"{mean(row.input for row in same):.0f}, {mean(row.output for row in same):.0f}"
                )
                took = f"{mean(row.seconds for row in same):.0f}"
                lines.append(
                    f"| {name} | {kind} | {_share(solved, len(same))} | {took} | - | 1.0 | 1.0 | "
                    f"{tokens} |"
                )
    return "\n".join(lines)


def _line(name: str, way: str, own: Sequence[rollout.RolloutOutcome], out: Path) -> str:
    if not own:
        return f"| {name} | {way} | - | - | - | - | - | - | - |"
    runs = mean(_runs(out / row.session) for row in own)
    tokens = f"{mean(row.input for row in own):.0f}, {mean(row.output for row in own):.0f}"
    seconds = (
        f"{mean(row.model_seconds for row in own):.0f} | {mean(row.seconds for row in own):.0f}"
    )
    share = _share(sum(row.ok for row in own), len(own))
    return (
        f"| {name} | {way} | {share} | {seconds} | {mean(row.calls for row in own):.1f} | "
        f"{runs:.1f} | {tokens} |"
    )


def _share(solved: int, count: int) -> str:
    share = wilson(solved, count)
    return f"{solved} / {count} | {100 * share.low:.0f}-{100 * share.high:.0f} %"


def _runs(session: Path) -> int:
    """How often the tests were run for a draw; not the run before the request."""
    events = [record.event for record in read(session)]
    begun = next(
        (place for place, event in enumerate(events) if isinstance(event, Replied)), len(events)
    )
    return sum(
        isinstance(event, ToolRan) and event.call.tool == "run_tests" for event in events[begun:]
    )


def write_matrix(
    chosen: Options,
    prompts: dict[str, str],
    outcomes: Sequence[rollout.RolloutOutcome],
    answers: Sequence[one_pass.OnePassAttempt],
) -> None:
    """The pass matrix: an agent's first turn as it was measured, and the function written anew,
    which is what a turn after another agent's begins with."""
    cells = [
        {
            "task": row.task,
            "agent": row.arm.removeprefix("single:"),
            "repeat": 0,
            "ok": row.ok,
            "seconds": round(row.model_seconds, 3),
            "prompt": prompts[row.task],
        }
        for row in outcomes
        if row.task in prompts
    ]
    known = {(cell["task"], cell["agent"]) for cell in cells}
    cells += [
        {
            "task": row.task,
            "agent": row.agent,
            "repeat": 1,
            "ok": row.ok,
            "seconds": row.seconds,
            "prompt": row.prompt,
        }
        for row in answers
        if row.repeat == 1 and (row.task, row.agent) in known
    ]
    text = "".join(json.dumps(cell, ensure_ascii=False) + "\n" for cell in cells)
    (chosen.out / "turns.jsonl").write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, or that of the failure that ended the measurement."""
    chosen = options(arguments)
    return measured(chosen.tasks, chosen.only, partial(measure, chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
