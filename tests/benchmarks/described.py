"""A function written anew that is described elsewhere in its file: shown with what is said of it, or without.

    python tests/benchmarks/described.py --tasks DIR --out DIR [--only quixbugs] [--agent coder]

The first function that the failing tests lead to is shown without its body. Ways: `alone`; `told`, below what the file
says of it; `begun`, the same with a reply that has begun up to the body (repair/beginning.py). The number is how many
characters of the tests' output are shown. Likeliest answers, graded alone. Rows (described.jsonl) are kept in --out and
not measured again; which way comes first changes from task to task, and a model's cache may hold what the ways
share, so that tokens are what can be compared.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean

import one_pass
from beginnings import prompt_of, right
from on_tasks import embedded, measured, tell

from fugu_cli import prompts
from fugu_cli.evaluation import results_folder
from fugu_cli.evaluation.intervals import mcnemar, wilson
from fugu_cli.messages import Value
from fugu_cli.providers.llama_server import EmbeddedAgent
from fugu_cli.repair import excerpts
from fugu_cli.repair.protocols import TextProtocol
from fugu_cli.repair.search import RepairTask, repair_candidates
from fugu_cli.tasks import Task

FILE = "described.jsonl"
WAYS = (("alone", 1500), ("told", 1500), ("told", 500), ("begun", 1500), ("begun", 500))


class Answer(Value):
    """A row. `shown`: characters of the tests' output; tokens of the call."""

    task: str
    agent: str
    way: str
    shown: int
    ok: bool
    read: int
    written: int


@dataclass(frozen=True)
class Options:
    out: Path
    agent: str


async def measure(options: Options, tasks: Sequence[Task]) -> None:
    """The rows that are missing, then the report."""
    file = options.out / FILE
    agent = embedded(options.agent)
    try:
        for number, task in enumerate(tasks):
            output = await one_pass.failing_output(task, options.out / "evidence")
            code = {path: content for path, content in task.files.items() if path in task.sources}
            aim = next(
                (way for way in repair_candidates(code, output, task.prompt, None, parts=True) if way.unwritten), None
            )
            known = {(row.task, row.agent, row.way, row.shown) for row in results_folder.read_rows(file, Answer)}
            first = number % len(WAYS)
            for way, shown in (*WAYS[first:], *WAYS[:first]):
                if aim is None or _bare(aim) == aim or (task.id, agent.name, way, shown) in known:
                    continue
                row = await _answer(task, agent, (aim, output), (way, shown))
                results_folder.append_row(file, row)
                tell(f"{task.id} {way} {shown}: {'right' if row.ok else 'wrong'}, {row.read} + {row.written} tokens")
    finally:
        await agent.close()
    print(report(results_folder.read_rows(file, Answer)))


def _bare(aim: RepairTask) -> RepairTask:
    """Without what the file says of the function outside of it."""
    return replace(aim, shown=aim.shown[max(aim.shown.find(aim.part.split("\n")[0]), 0) :]) if aim.part else aim


async def _answer(task: Task, agent: EmbeddedAgent, asked: tuple[RepairTask, str], how: tuple[str, int]) -> Answer:
    (aim, output), (way, shown) = asked, how
    aim = _bare(aim) if way == "alone" else aim
    head = excerpts.prefix_of_rewrite(aim.shown, aim.unwritten) if way == "begun" else ""
    text = TextProtocol(agent, prompts.load("protocols/text"))
    reply = await text.reply(prompt_of(task, aim, output, head, shown), lambda _: None, lambda *_: None)
    ok = bool(reply.calls) and await right(task, reply.calls)
    used = reply.usage
    return Answer(task=task.id, agent=agent.name, way=way, shown=shown, ok=ok, read=used.input, written=used.output)


def report(found: Sequence[Answer]) -> str:
    """A table in Markdown; p: McNemar's exact test against the first way, on the tasks that both were asked."""
    lines = [
        "| agent | way | characters of the output | right | 95 % | tokens in | tokens out | p |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for agent in sorted({row.agent for row in found}):
        by = {way: [row for row in found if (row.agent, row.way, row.shown) == (agent, *way)] for way in WAYS}
        first = {row.task: row.ok for row in by[WAYS[0]]}
        for (way, shown), some in by.items():
            if some:
                share = wilson(sum(row.ok for row in some), len(some))
                p = mcnemar({row.task: row.ok for row in some}, first).p
                lines.append(
                    f"| `{agent}` | {way} | {shown} | {share.count} / {share.total} "
                    f"| {100 * share.low:.0f}-{100 * share.high:.0f} % | {mean(row.read for row in some):.0f} "
                    f"| {mean(row.written for row in some):.0f} | {p:.2f} |"
                )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, or that of the failure that ended the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=Path, required=True, help="a folder of task files (*.jsonl)")
    parser.add_argument("--out", type=Path, required=True, help="where rows are kept")
    parser.add_argument("--only", default="quixbugs", help="task files, by name (default: %(default)s)")
    parser.add_argument(
        "--agent", default="coder", choices=("small", "coder"), help="who answers (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    options = Options(given.out.resolve(), given.agent)
    return measured(given.tasks, tuple(given.only.split(",")), partial(measure, options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
