"""A function written anew, from its head on or only its body: what either way solves, and how many tokens it takes.

    python tests/benchmarks/beginnings.py --tasks DIR --out DIR [--only quixbugs,hefix-py] [--agent coder]

The first function that the failing tests lead to is shown without its body, once as one that is to be written whole and
once with a reply that has begun up to it (repair/beginning.py). Both are the likeliest answers, graded alone. `--bare`
begins below a bare head as well, where nothing is said of the function. Rows (beginnings.jsonl) are kept in --out and
not measured again; which way comes first changes from task to task, and the second one finds the prompt in the model's
cache, so that tokens are what can be compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

import one_pass
from on_tasks import embedded, measured, tell

from fugu_cli import prompts
from fugu_cli.evaluation import results_folder
from fugu_cli.evaluation.intervals import wilson
from fugu_cli.messages import Call, FromUser, Prompt, ToolSpec, Value
from fugu_cli.providers.llama_server import EmbeddedAgent
from fugu_cli.repair import excerpts, intent
from fugu_cli.repair.harness import last_lines
from fugu_cli.repair.protocols import TextProtocol
from fugu_cli.repair.search import RepairTask, repair_candidates
from fugu_cli.tasks import Task
from fugu_cli.tasks.grading import grade
from fugu_cli.tasks.repository import create_repository

FILE = "beginnings.jsonl"
OUTPUT = 1500
TOOLS = tuple(ToolSpec(name=name, description="", parameters="{}") for name in ("write", "edit"))


class Answer(Value):
    """A row. `told`: something is said of the function above its body; tokens of the call."""

    task: str
    agent: str
    begun: bool
    told: bool
    ok: bool
    read: int
    written: int


@dataclass(frozen=True)
class Options:
    out: Path
    agent: str
    bare: bool


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
            head = _head(aim, bare=options.bare) if aim else ""
            known = {(row.task, row.agent, row.begun) for row in results_folder.read_rows(file, Answer)}
            for begun in (True, False) if number % 2 else (False, True):
                if aim is not None and head and (task.id, agent.name, begun) not in known:
                    row = await _answer(task, agent, aim, output, head if begun else "")
                    results_folder.append_row(file, row)
                    said = f"{'begun' if begun else 'whole'}: {'right' if row.ok else 'wrong'}, {row.written} tokens"
                    tell(f"{task.id} {said}")
    finally:
        await agent.close()
    print(report(results_folder.read_rows(file, Answer)))


def _head(aim: RepairTask, *, bare: bool) -> str:
    told = excerpts.prefix_of_rewrite(aim.shown, aim.unwritten)
    return told or (aim.shown.partition(aim.unwritten)[0].rstrip(" ") if bare else "")


async def _answer(task: Task, agent: EmbeddedAgent, aim: RepairTask, output: str, head: str) -> Answer:
    text = TextProtocol(agent, prompts.load("protocols/text"))
    reply = await text.reply(prompt_of(task, aim, output, head), lambda _: None, lambda *_: None)
    return Answer(
        task=task.id,
        agent=agent.name,
        begun=bool(head),
        told=bool(excerpts.prefix_of_rewrite(aim.shown, aim.unwritten)),
        ok=bool(reply.calls) and await right(task, reply.calls),
        read=reply.usage.input,
        written=reply.usage.output,
    )


async def right(task: Task, calls: Sequence[Call]) -> bool:
    """Whether the calls solve the task, graded alone."""
    with tempfile.TemporaryDirectory(prefix="fugu-beginnings-") as folder:
        there = await create_repository(task, Path(folder) / "repo")
        for call in calls:
            given, file = json.loads(call.arguments), there / json.loads(call.arguments)["path"]
            old = file.read_text(encoding="utf-8")
            new = given["content"] if call.tool == "write" else old.replace(given["old"], given["new"], 1)
            file.write_text(new, encoding="utf-8")
        return (await grade(task, there)).ok


def prompt_of(task: Task, aim: RepairTask, output: str, head: str, characters: int = OUTPUT) -> Prompt:
    """As repair/prompt.py puts it in a first draw, with so many characters of the tests' output."""
    files = {path: content for path, content in task.files.items() if path in task.sources}
    above = excerpts.context_above(aim.target, files[aim.target]) if aim.part else ""
    shown = files | {aim.target: f"{above}\n\n\n{aim.shown}" if above else aim.shown}
    printed = last_lines(output, characters)
    text = prompts.fill(
        prompts.load("brief"),
        request=task.prompt,
        tests=f"The tests were run. It prints:\n```\n{printed}\n```\n\n",
        files=intent.files_section(shown, True, aim.target if aim.part else ""),
        earlier="",
        role=prompts.fill(prompts.load("brief/worker_unfinished"), named=intent.code_files_in_words([aim.target])),
    )
    return Prompt(
        system="",
        messages=(FromUser(text=text),),
        tools=TOOLS,
        max_tokens=800,
        target=aim.target,
        part=aim.part,
        unwritten=aim.unwritten,
        judged=True,
        begun=head,
    )


def report(found: Sequence[Answer]) -> str:
    """A table in Markdown, over the tasks that were answered both ways."""
    by = {(row.task, row.agent, row.begun): row for row in found}
    lines = [
        "| agent, function | the reply begins | right | 95 % | tokens in | tokens out |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for agent, told in sorted({(row.agent, row.told) for row in found}, reverse=True):
        pairs = [
            (by[row.task, agent, False], row)
            for row in found
            if row.begun and (row.agent, row.told) == (agent, told) and (row.task, agent, False) in by
        ]
        for begun, name in enumerate(("as it likes", "below the head")):
            some = [pair[begun] for pair in pairs]
            if some:
                right, what = sum(row.ok for row in some), "described in it" if told else "a bare head"
                share = wilson(right, len(some))
                sure = f"{100 * share.low:.0f}-{100 * share.high:.0f} %"
                lines.append(
                    f"| `{agent}`, {what} | {name} | {right} / {len(some)} | {sure} "
                    f"| {mean(row.read for row in some):.0f} | {mean(row.written for row in some):.0f} |"
                )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, or that of the failure that ended the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=Path, required=True, help="a folder of task files (*.jsonl)")
    parser.add_argument("--out", type=Path, required=True, help="where rows are kept")
    parser.add_argument("--only", default="quixbugs,hefix-py", help="task files, by name (default: %(default)s)")
    parser.add_argument(
        "--agent", default="coder", choices=("small", "coder"), help="who answers (default: %(default)s)"
    )
    parser.add_argument("--bare", action="store_true", help="begin below a bare head as well")
    given = parser.parse_args(arguments)
    options = Options(given.out.resolve(), given.agent, given.bare)
    return measured(given.tasks, tuple(given.only.split(",")), partial(measure, options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
