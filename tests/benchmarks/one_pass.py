"""One answer of one agent to one task, without loop or tools: the simplest baseline, and tables of
the results.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Literal

from fugu_cli import prompts
from fugu_cli.errors import AgentError, ModelFileError, StorageError
from fugu_cli.local.candidates import CodeCandidate, blamed_functions
from fugu_cli.messages import FromUser, Prompt, Reply, Usage, Value
from fugu_cli.providers import Agent
from fugu_cli.providers.code_blocks import blocks
from fugu_cli.system import temp_dirs
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.evaluation.intervals import mcnemar, wilson
from fugu_cli.training.evaluation.rollout import RolloutOutcome
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.grading import grade
from fugu_cli.training.tasks.repository import create_repository, write_files

HERE = Path(__file__).parent
TEMPERATURE = 0.8
UNFINISHED = (
    "The code in `{path}` is not finished. Write all of it, so that it does what is asked and the "
    "tests pass. Keep its names and leave the tests alone."
)
EVIDENCE = 1500
"""Characters of the failing tests' output that are shown."""
_DECORATION = " \t*`#:"
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_SECONDS = re.compile(r" in \d+\.\d+s\b")


class OnePassAttempt(Value):
    """A row. `seconds` is the model call's, `input`, `cached` and `output` its tokens; `prompt` the
    task's request and `prompt_sha` the hash of all that was sent; `error` why a call that was made
    is no answer (too long, refused)."""

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


Tell = Callable[[OnePassAttempt | str], None]
"""Takes each row as it is measured, or a sentence about one that could not be."""


def one_pass_prompt(task: Task, evidence: str, repeat: int = 0) -> Prompt:
    """What the agent is sent. `evidence` is what the failing tests printed, "" where the task shows
    no tests.
    """
    named = answer_targets(task)
    files, left_out = {path: task.files[path].strip("\n") for path in task.sources}, False
    path = named[0]
    content = task.files[path]
    blamed = blamed_functions(path, content, evidence)
    if repeat % 2 and len(named) == 1 and blamed:
        shown, left_out = CodeCandidate(path, blamed[0]).question(content)
        if left_out:
            files[path] = blocks(shown)[0].body.strip("\n")
    shown = "\n".join(
        f"The file `{name}`:\n```\n{content}\n```\n" for name, content in files.items()
    )
    tests = f"`{task.test_command}` prints:\n```\n{evidence}\n```\n\n" if evidence else ""
    if left_out:
        tests = f"{tests}{UNFINISHED.format(path=path)}\n\n"
    text = prompts.fill(
        (HERE / f"one_pass{'' if len(named) == 1 else '_several'}.template.md")
        .read_text(encoding="utf-8")
        .strip(),
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


def prompt_sha(sent: Prompt) -> str:
    """What names a call: the hash of everything sent. A field that Prompt gains later and that is
    not used changes nothing, so measured rows stay valid."""
    return hashlib.sha256(sent.model_dump_json(exclude_defaults=True).encode()).hexdigest()


def answer_targets(task: Task) -> tuple[str, ...]:
    """The files the answer may replace: those the request names, else all that are not tests."""
    named = tuple(
        path for path in task.sources if re.search(rf"(?<![\w/.]){re.escape(path)}\b", task.prompt)
    )
    return named or task.sources


def parse_answer(text: str, targets: Sequence[str]) -> dict[str, str]:
    """The files of an answer: contents by path, {} when it holds no block that can be placed.

    With one target the longest block is it. With several, a block belongs to the path on its info
    line or on the last line before it.
    """
    found = blocks(text)
    if found and len(targets) == 1:
        return {targets[0]: max((block.body for block in found), key=len)}
    lines = text.splitlines()
    placed = {}
    for block in found:
        before = next(
            (line.strip(_DECORATION) for line in reversed(lines[: block.start]) if line.strip()), ""
        )
        path = next(
            (name for name in targets if name == before or name in block.info.split()), None
        )
        if path is not None:
            placed[path] = block.body
    return placed


async def failing_output(task: Task, folder: Path) -> str:
    """What the visible tests print before any work, shortened, kept in `folder` so that every
    prompt of a measurement is the same: a run that is cut by a time limit never prints the same
    twice. "" for a task without visible tests."""
    kept = folder / f"{task.id}.txt"
    if kept.is_file():
        return kept.read_text(encoding="utf-8")
    text = ""
    if task.test_files:
        visible = task.model_copy(update={"grade_command": task.test_command, "hidden": {}})
        with temp_dirs.temp_dir("evidence") as temporary:
            text = _shortened(
                (await grade(visible, await create_repository(task, temporary / "repo"))).output
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{kept}: the tests' output cannot be kept: {error}") from error
    return text


def _shortened(output: str) -> str:
    """From the first failure on, cut on a line's end, with the closing line; nothing that changes
    from run to run.
    """
    plain = _SECONDS.sub("", _ADDRESS.sub("0x...", output)).strip()
    failures = re.search(r"^=+ (?:FAILURES|ERRORS) =+$", plain, re.MULTILINE)
    plain = plain[failures.end() if failures else 0 :].strip()
    if len(plain) <= EVIDENCE:
        return plain
    last = plain.rpartition("\n")[2][-200:]
    return f"{plain[: EVIDENCE - len(last)].rpartition(chr(10))[0]}\n...\n{last}"


async def ask_once(task: Task, agent: Agent, sent: Prompt, repeat: int) -> OnePassAttempt:
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
    files = parse_answer(reply.text, answer_targets(task))
    ok = False
    if files:
        with temp_dirs.temp_dir("onepass") as temporary:
            folder = await create_repository(task, temporary / "repo")
            write_files(files, folder)
            ok = (await grade(task, folder)).ok
    return OnePassAttempt(
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
        prompt_sha=prompt_sha(sent),
        reply=reply.text,
        error=error,
    )


def newest_attempts(attempts: Sequence[OnePassAttempt]) -> list[OnePassAttempt]:
    """The matrix of a file's rows: the newest row of every cell, where a prompt was changed and
    asked again.
    """
    return list({(row.agent, row.task, row.repeat): row for row in attempts}.values())


async def measure_agent(
    tasks: Sequence[Task], agent: Agent, repeats: Sequence[int], file: Path, tell: Tell
) -> None:
    """Fill one agent's part of the matrix in `file`; what was asked already, in the same words, is
    not asked again.

    A call that fails for reasons of infrastructure leaves its cell empty (never a 0) and is told;
    three in a row end the measurement with their AgentError. The tests' output is kept beside the
    rows, in `evidence/`.
    """
    known = {
        (row.task, row.repeat, row.prompt_sha)
        for row in results_folder.read_rows(file, OnePassAttempt)
        if row.agent == agent.name
    }
    failed = 0
    for task in tasks:
        evidence = await failing_output(task, file.parent / "evidence")
        for repeat in repeats:
            sent = one_pass_prompt(task, evidence, repeat)
            if (task.id, repeat, prompt_sha(sent)) in known:
                continue
            try:
                row = await ask_once(task, agent, sent, repeat)
            except AgentError as error:
                failed += 1
                tell(f"{task.id}, {agent.name}, repeat {repeat}: {error}")
                if failed == 3:
                    raise
                continue
            failed = 0
            results_folder.append_row(file, row)
            tell(row)


Sources = Mapping[str, str]
"""The source of each task, by its id: rows of other tasks are left out, and every source gets a
column.
"""


def one_pass_table(attempts: Sequence[OnePassAttempt], sources: Sources) -> str:
    """A line for each answer of each agent, in the order in which a request asks for them; then any
    of them.
    """
    rows = [row for row in attempts if row.task in sources]
    columns = _columns(sources)
    lines = []
    for agent in _unique(row.agent for row in rows):
        own = [row for row in rows if row.agent == agent]
        for repeat in sorted({row.repeat for row in own}):
            lines.append(
                [
                    agent,
                    _answer(repeat),
                    *_tallied([row for row in own if row.repeat == repeat], sources),
                ]
            )
        lines.append(
            [agent, "any of them", *_tallied(own, sources)[: 2 + len(columns)], *["-"] * 3]
        )
    return _table(
        ["agent", "answer", "solved", "95 %", *columns, "s an answer", "tokens in", "tokens out"],
        lines,
    )


def _answer(repeat: int) -> str:
    return (
        f"{repeat + 1}: {'written anew' if repeat % 2 else 'mended'}, "
        f"{'sampled' if repeat > 1 else 'greedy'}"
    )


def _tallied(rows: Sequence[OnePassAttempt], sources: Sources) -> list[str]:
    """Tasks that any of the rows solved, and the rows' mean costs."""
    solved = {
        task: any(row.ok for row in rows if row.task == task)
        for task in _unique(row.task for row in rows)
    }
    shares = [
        _share(solved.values()),
        _interval(solved.values()),
        *_by_source(solved, sources, _columns(sources)),
    ]
    return [*shares, *_costs(rows)]


def loop_table(outcomes: Sequence[RolloutOutcome], sources: Sources) -> str:
    """An arm a line, then the oracle over the single agents: what perfect routing among them could
    reach.
    """
    rows = [row for row in outcomes if row.task in sources]
    columns = _columns(sources)
    head = [
        "arm",
        "solved",
        "95 %",
        *columns,
        "accepted",
        "accepted, but wrong",
        "turns",
        "model calls",
    ]
    lines = []
    for arm in _unique(row.arm for row in rows):
        own = [row for row in rows if row.arm == arm]
        solved = {row.task: row.ok for row in own}
        lines.append(
            [
                f"`{arm}`",
                _share(solved.values()),
                _interval(solved.values()),
                *_by_source(solved, sources, columns),
                str(sum(row.accepted for row in own)),
                str(sum(row.accepted and not row.ok for row in own)),
                f"{fmean(row.turns for row in own):.1f}",
                f"{fmean(row.calls for row in own):.1f}",
                f"{fmean(row.model_seconds for row in own):.0f}",
                f"{fmean(row.seconds for row in own):.0f}",
                f"{fmean(row.input for row in own):.0f}",
                f"{fmean(row.output for row in own):.0f}",
            ]
        )
    if oracle := _oracle(rows):
        shown = [
            _share(oracle.values()),
            _interval(oracle.values()),
            *_by_source(oracle, sources, columns),
        ]
        lines.append(["oracle of the single agents", *shown, *["-"] * 8])
    return _table([*head, "model s", "wall s", "tokens in", "tokens out"], lines)


def paired_table(outcomes: Sequence[RolloutOutcome], sources: Sources) -> str:
    """Every two arms on the tasks that both were run on."""
    solved = _solved([row for row in outcomes if row.task in sources])
    lines = []
    for first, second in combinations(solved, 2):
        pair = mcnemar(solved[first], solved[second])
        counts = [
            str(count) for count in (pair.both, pair.first_only, pair.second_only, pair.neither)
        ]
        lines.append([f"`{first}`", f"`{second}`", *counts, f"{pair.p:.3f}"])
    return _table(["first", "second", "both", "first only", "second only", "neither", "p"], lines)


def endings_table(outcomes: Sequence[RolloutOutcome], sources: Sources) -> str:
    """How the requests of each arm ended, by the engine's own word."""
    rows = [row for row in outcomes if row.task in sources]
    reasons = sorted({row.reason for row in rows})
    lines = [
        [
            f"`{arm}`",
            *(
                str(sum(row.arm == arm and row.reason == reason for row in rows))
                for reason in reasons
            ),
        ]
        for arm in _unique(row.arm for row in rows)
    ]
    return _table(["arm", *reasons], lines)


def _solved(rows: Sequence[RolloutOutcome]) -> dict[str, dict[str, bool]]:
    solved: dict[str, dict[str, bool]] = {}
    for row in rows:
        solved.setdefault(row.arm, {})[row.task] = row.ok
    return solved


def _oracle(rows: Sequence[RolloutOutcome]) -> dict[str, bool]:
    """Whether any single agent solved the task, over the tasks that all of them were run on; {}
    below two of them.
    """
    singles = [tasks for arm, tasks in _solved(rows).items() if arm.startswith("single:")]
    if len(singles) < 2:
        return {}
    common = set.intersection(*(set(tasks) for tasks in singles))
    return {task: any(tasks[task] for tasks in singles) for task in sorted(common)}


def _columns(sources: Sources) -> list[str]:
    return _unique(sources.values())


def _by_source(solved: Mapping[str, bool], sources: Sources, columns: Sequence[str]) -> list[str]:
    return [
        _share(ok for task, ok in solved.items() if sources[task] == source) for source in columns
    ]


def _share(solved: Iterable[bool]) -> str:
    found = list(solved)
    return f"{sum(found)} / {len(found)}"


def _interval(solved: Iterable[bool]) -> str:
    found = list(solved)
    share = wilson(sum(found), len(found))
    return f"{100 * share.low:.0f}-{100 * share.high:.0f} %"


def _costs(rows: Sequence[OnePassAttempt]) -> list[str]:
    if not rows:
        return ["-"] * 3
    seconds, sent, written = (
        fmean(values)
        for values in zip(*((r.seconds, r.input, r.output) for r in rows), strict=True)
    )
    return [f"{seconds:.0f}", f"{sent:.0f}", f"{written:.0f}"]


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    if not lines:
        return "Not measured yet.\n"
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *lines))
