"""One answer of one agent to one task: no loop, no tools. The simplest baseline, and the cell of a pass matrix.

The prompt holds the instruction, the files that are not tests, and what the failing tests print; the answer is whole
files; they are written and graded. Rows are agents x tasks x repeats, whose prompts differ as a small Worker's draws do
(repair/aims.py): every second one shows a described function without its body. The first of either way is greedy, later
ones are sampled at temperature 0.8 with their number as the seed. It must not know which model answers.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from fugu_cli import prompts, scratch
from fugu_cli.agents import Agent
from fugu_cli.code_blocks import blocks
from fugu_cli.errors import AgentError, ModelFileError, StorageError
from fugu_cli.evaluation import rows
from fugu_cli.messages import FromUser, Prompt, Reply, Usage, Value
from fugu_cli.repair import anew
from fugu_cli.tasks import Task
from fugu_cli.tasks.grading import grade
from fugu_cli.tasks.repository import lay, materialise

TEMPERATURE = 0.8
EVIDENCE = 1500
"""Characters of the failing tests' output that are shown."""
_DECORATION = " \t*`#:"
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_SECONDS = re.compile(r" in \d+\.\d+s\b")


class Attempt(Value):
    """A row. `seconds` is the model call's, `input`, `cached` and `output` its tokens; `prompt` the task's request and
    `prompt_sha` the hash of all that was sent; `error` why a call that was made is no answer (too long, refused)."""

    task: str
    agent: str
    repeat: int
    ok: bool
    seconds: float
    input: int
    cached: int
    output: int
    stop: Literal["end", "calls", "length", "refusal", "cut"]
    prompt: str
    prompt_sha: str
    reply: str
    error: str = ""


Tell = Callable[[Attempt | str], None]
"""Takes each row as it is measured, or a sentence about one that could not be."""


def prompt(task: Task, evidence: str, repeat: int = 0) -> Prompt:
    """What the agent is sent. `evidence` is what the failing tests printed, "" where the task shows no tests."""
    named = targets(task)
    files, left_out = {path: task.files[path].strip("\n") for path in task.sources}, False
    path = named[0]
    if repeat % 2 and len(named) == 1 and (new := anew.in_file(path, task.files[path], evidence, task.prompt)):
        files[path], left_out = new[0][1].shown.strip("\n"), True
    shown = "\n".join(f"The file `{name}`:\n```\n{content}\n```\n" for name, content in files.items())
    tests = f"`{task.test_command}` prints:\n```\n{evidence}\n```\n\n" if evidence else ""
    if left_out:
        unfinished = prompts.fill(prompts.load("brief/worker_unfinished"), named=f"The code in `{path}`")
        tests = f"{tests}{unfinished}\n\n"
    text = prompts.fill(
        prompts.load("evaluation/one_pass" if len(named) == 1 else "evaluation/one_pass_several"),
        instruction=task.prompt,
        files=shown,
        tests=tests,
        target=f"the file `{path}`",
    )
    return Prompt(
        system="",
        messages=(FromUser(text=text),),
        max_tokens=min(4096, max(512, sum(len(task.files[path]) for path in named) // 2)),
        temperature=0.0 if repeat == 0 or (left_out and repeat == 1) else TEMPERATURE,
        seed=repeat,
    )


def sha(sent: Prompt) -> str:
    """What names a call: the hash of everything sent. A field that Prompt gains later and that is not used changes
    nothing, so measured rows stay valid."""
    return hashlib.sha256(sent.model_dump_json(exclude_defaults=True).encode()).hexdigest()


def targets(task: Task) -> tuple[str, ...]:
    """The files the answer may replace: those the request names, else all that are not tests."""
    named = tuple(path for path in task.sources if re.search(rf"(?<![\w/.]){re.escape(path)}\b", task.prompt))
    return named or task.sources


def answered(text: str, targets: Sequence[str]) -> dict[str, str]:
    """The files of an answer: contents by path, {} when it holds no block that can be placed.

    With one target the longest block is it. With several, a block belongs to the path on its info line or on the last
    line before it.
    """
    found = blocks(text)
    if found and len(targets) == 1:
        return {targets[0]: max((block.body for block in found), key=len)}
    lines = text.splitlines()
    placed = {}
    for block in found:
        before = next((line.strip(_DECORATION) for line in reversed(lines[: block.start]) if line.strip()), "")
        path = next((name for name in targets if name == before or name in block.info.split()), None)
        if path is not None:
            placed[path] = block.body
    return placed


async def failing_output(task: Task, folder: Path) -> str:
    """What the visible tests print before any work, shortened, kept in `folder` so that every prompt of a measurement
    is the same: a run that is cut by a time limit never prints the same twice. "" for a task without visible tests."""
    kept = folder / f"{task.id}.txt"
    if kept.is_file():
        return kept.read_text(encoding="utf-8")
    text = ""
    if task.test_files:
        visible = task.model_copy(update={"grade_command": task.test_command, "hidden": {}})
        with scratch.folder("evidence") as temporary:
            text = _shortened((await grade(visible, await materialise(task, temporary / "repo"))).output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{kept}: the tests' output cannot be kept: {error}") from error
    return text


def _shortened(output: str) -> str:
    """From the first failure on, cut on a line's end, with the closing line; nothing that changes from run to run."""
    plain = _SECONDS.sub("", _ADDRESS.sub("0x...", output)).strip()
    failures = re.search(r"^=+ (?:FAILURES|ERRORS) =+$", plain, re.MULTILINE)
    plain = plain[failures.end() if failures else 0 :].strip()
    if len(plain) <= EVIDENCE:
        return plain
    last = plain.rpartition("\n")[2][-200:]
    return f"{plain[: EVIDENCE - len(last)].rpartition(chr(10))[0]}\n...\n{last}"


async def attempt(task: Task, agent: Agent, sent: Prompt, repeat: int) -> Attempt:
    """Ask once, write the answer, grade it. Raises AgentError when there is no answer to judge."""
    started = time.monotonic()
    error = ""
    try:
        reply = await agent.reply(sent, lambda _text: None, lambda _pause: None)
    except AgentError as caught:
        if caught.kind != "invalid" or isinstance(caught.__cause__, ModelFileError):
            raise
        error, reply = str(caught), Reply(usage=Usage(), stop="refusal")
    seconds = time.monotonic() - started
    files = answered(reply.text, targets(task))
    ok = False
    if files:
        with scratch.folder("onepass") as temporary:
            folder = await materialise(task, temporary / "repo")
            lay(files, folder)
            ok = (await grade(task, folder)).ok
    return Attempt(
        task=task.id,
        agent=agent.name,
        repeat=repeat,
        ok=ok,
        seconds=round(seconds, 3),
        input=reply.usage.input,
        cached=reply.usage.cached,
        output=reply.usage.output,
        stop=reply.stop,
        prompt=task.prompt,
        prompt_sha=sha(sent),
        reply=reply.text,
        error=error,
    )


def newest(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The matrix of a file's rows: the newest row of every cell, where a prompt was changed and asked again."""
    return list({(row.agent, row.task, row.repeat): row for row in attempts}.values())


async def measure(tasks: Sequence[Task], agent: Agent, repeats: Sequence[int], file: Path, tell: Tell) -> None:
    """Fill one agent's part of the matrix in `file`; what was asked already, in the same words, is not asked again.

    A call that fails for reasons of infrastructure leaves its cell empty (never a 0) and is told; three in a row end
    the measurement with their AgentError. The tests' output is kept beside the rows, in `evidence/`.
    """
    known = {(row.task, row.repeat, row.prompt_sha) for row in rows.read(file, Attempt) if row.agent == agent.name}
    failed = 0
    for task in tasks:
        evidence = await failing_output(task, file.parent / "evidence")
        for repeat in repeats:
            sent = prompt(task, evidence, repeat)
            if (task.id, repeat, sha(sent)) in known:
                continue
            try:
                row = await attempt(task, agent, sent, repeat)
            except AgentError as error:
                failed += 1
                tell(f"{task.id}, {agent.name}, repeat {repeat}: {error}")
                if failed == 3:
                    raise
                continue
            failed = 0
            rows.append(file, row)
            tell(row)
