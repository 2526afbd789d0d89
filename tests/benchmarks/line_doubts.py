"""Every line of the functions that fail, filled in by both embedded models: is the wrong one among those they doubt?

    python tests/benchmarks/line_doubts.py --tasks DIR --out DIR [--only quixbugs,hefix-py,hefix-js]

Each line is left out once for each model (the likeliest answer), and what differs from what stood there is graded.
From these rows alone follows what a first turn costs and solves where a model goes through the lines in their order,
and where the second one begins with those that the first one wrote otherwise (repair/aims.py). Nobody waits here for
the first that passes, so all orders are read from the same answers. Seconds are at an even pace: what a token read and
a token written took on the average. Rows (line_doubts.jsonl) are kept in --out and not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np
import one_pass
from numpy.typing import NDArray
from on_tasks import embedded, measured, tell

from fugu_cli.evaluation import results_folder
from fugu_cli.evaluation.intervals import wilson
from fugu_cli.messages import Value
from fugu_cli.providers import Pause
from fugu_cli.providers.llama_server import EmbeddedAgent
from fugu_cli.repair import excerpts, intent
from fugu_cli.repair.protocols import with_infill_edit
from fugu_cli.tasks import Task
from fugu_cli.tasks.grading import grade
from fugu_cli.tasks.repository import create_repository

FIRST, SECOND = "small", "coder"
FILE = "line_doubts.jsonl"


class Line(Value):
    """One line of a task, left out: `other` where what was filled in differs and can be tried, `ok` where that is
    right; tokens and seconds of the call."""

    place: str
    other: bool
    ok: bool
    seconds: float
    read: int
    written: int
    sure: float = 0.0
    """Mean log probability of what was filled in."""


class Lines(Value):
    """A row: all lines of a task, in the file's order, by one agent."""

    task: str
    source: str
    agent: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Pass:
    """Some lines filled in one after the other, up to the first that is right."""

    ok: bool = False
    seconds: float = 0.0
    calls: int = 0
    tests: int = 0

    def then(self, other: Pass) -> Pass:
        """This, and where it was in vain the other one."""
        if self.ok:
            return self
        return Pass(other.ok, self.seconds + other.seconds, self.calls + other.calls, self.tests + other.tests)


async def measure(out: Path, tasks: Sequence[Task]) -> None:
    """The rows that are missing, then the report."""
    file = out / FILE
    for name in (FIRST, SECOND):
        agent = embedded(name)
        try:
            for task in tasks:
                if not any((row.task, row.agent) == (task.id, name) for row in results_folder.read_rows(file, Lines)):
                    row = await of_task(task, agent, out / "evidence")
                    results_folder.append_row(file, row)
                    tell(
                        f"{name} {task.id}: {len(row.lines)} lines, right: {[one.place for one in row.lines if one.ok]}"
                    )
        finally:
            await agent.close()
    print(report(results_folder.read_rows(file, Lines)))


async def of_task(task: Task, agent: EmbeddedAgent, evidence: Path) -> Lines:
    """Every line once. Raises AgentError where the model does not answer."""
    output = await one_pass.failing_output(task, evidence)
    found = []
    for path in (path for path in intent.target_files(task.files) if path in task.sources):
        for one in excerpts.line_infills(path, task.files[path], output, task.prompt):
            prompt, start = excerpts.infill_prompt(path, one, (), 0), time.monotonic()
            said = await agent.reply(prompt, _nothing, _no_wait)
            seconds, reply = time.monotonic() - start, with_infill_edit(prompt, said)
            ok = bool(reply.calls) and await _right(task, path, reply.calls[0].arguments)
            usage = said.usage
            found.append(
                Line(
                    place=one.gap.place,
                    other=bool(reply.calls),
                    ok=ok,
                    seconds=round(seconds, 3),
                    read=usage.input - usage.cached,
                    written=usage.output,
                    sure=said.logprob or 0.0,
                )
            )
    return Lines(task=task.id, source=task.source, agent=agent.name, lines=tuple(found))


async def _right(task: Task, path: str, arguments: str) -> bool:
    given = json.loads(arguments)
    with tempfile.TemporaryDirectory(prefix="fugu-lines-") as folder:
        there = await create_repository(task, Path(folder) / "repo")
        (there / path).write_text(task.files[path].replace(given["old"], given["new"], 1), encoding="utf-8")
        return (await grade(task, there)).ok


def _nothing(_text: str) -> None:
    pass


def _no_wait(_pause: Pause) -> None:
    pass


def pace(found: Sequence[Lines], agent: str) -> NDArray[np.float64]:
    """Seconds of a call, of a token read and of one written: least squares over all calls of the agent."""
    calls = [line for row in found if row.agent == agent for line in row.lines]
    counts = np.array([[1.0, line.read, line.written] for line in calls])
    return np.asarray(np.linalg.lstsq(counts, np.array([line.seconds for line in calls]), rcond=None)[0])


def gone_through(lines: Sequence[Line], cost: NDArray[np.float64]) -> Pass:
    """One after the other, up to the first that is right."""
    last = next((number for number, line in enumerate(lines, start=1) if line.ok), len(lines))
    tried = lines[:last]
    seconds = sum(float(cost @ [1.0, line.read, line.written]) for line in tried)
    return Pass(any(line.ok for line in tried), seconds, len(tried), sum(line.other for line in tried))


def report(found: Sequence[Lines]) -> str:
    """Tables in Markdown, over the tasks that both models went through."""
    by = {(row.task, row.agent): row for row in found}
    tasks = [row.task for row in found if row.agent == SECOND and (row.task, FIRST) in by]
    costs = {agent: pace(found, agent) for agent in (FIRST, SECOND)}
    ways: dict[str, list[Pass]] = {}
    doubted = right = lines = 0
    for task in tasks:
        first, second = by[task, FIRST].lines, by[task, SECOND].lines
        doubts = {line.place: line.sure for line in first if line.other}
        few = [line for line in second if line.place in doubts]
        surest = sorted(few, key=lambda line: -doubts[line.place])
        small, coder = gone_through(first, costs[FIRST]), gone_through(second, costs[SECOND])
        after, sorted_ = gone_through(few, costs[SECOND]), gone_through(surest, costs[SECOND])
        lines, doubted = lines + len(second), doubted + len(few)
        right += after.ok and coder.ok
        for name, way in (
            (f"`{FIRST}`, all lines", small),
            (f"`{SECOND}`, all lines", coder),
            (f"`{SECOND}`, the lines that `{FIRST}` doubts", after),
            (f"`{SECOND}`, the same, the surest doubt first", sorted_),
            (f"`{FIRST}`, then `{SECOND}` on all lines", small.then(coder)),
            (f"`{FIRST}`, then `{SECOND}` on those that it doubts, the surest first", small.then(sorted_)),
        ):
            ways.setdefault(name, []).append(way)
    table = [
        "| who | solved | 95 % | model s | calls | tests run |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_row(name, passes) for name, passes in ways.items()),
    ]
    able = sum(way.ok for way in ways.get(f"`{SECOND}`, all lines", []))
    told = f"`{FIRST}` doubts {doubted} of {lines} lines; of the {able} that `{SECOND}` mends, {right}."
    return "\n".join([*table, "", told])


def _row(name: str, passes: Sequence[Pass]) -> str:
    solved, count = sum(way.ok for way in passes), len(passes)
    share = wilson(solved, count)
    costs = f"{mean(way.seconds for way in passes):.1f} | {mean(way.calls for way in passes):.1f}"
    tests = f"{mean(way.tests for way in passes):.1f}"
    return f"| {name} | {solved} / {count} | {100 * share.low:.0f}-{100 * share.high:.0f} % | {costs} | {tests} |"


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, or that of the failure that ended the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=Path, required=True, help="a folder of task files (*.jsonl)")
    parser.add_argument("--out", type=Path, required=True, help="where rows are kept")
    parser.add_argument(
        "--only", default="quixbugs,hefix-py,hefix-js", help="task files, by name (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    return measured(given.tasks, tuple(given.only.split(",")), partial(measure, given.out.resolve()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
