"""Questions with a checkable answer: their prompts, the check of a reply, and generated ones from
the package `reasoning-gym`.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from fugu_cli import prompts
from fugu_cli.errors import ConfigError, installing
from fugu_cli.providers.code_blocks import blocks
from fugu_cli.system import temp_dirs
from fugu_cli.training.tasks import ExpectedTests, LoadedTasks, Question, Task
from fugu_cli.training.tasks.grading import grade
from fugu_cli.training.tasks.repository import write_files

_MARKED = (
    re.compile(
        r"\banswers?\b[^.\n:=]{0,40}?(?:\bis\b|[:=])[\s:=*]*(.+)", re.IGNORECASE
    ),  # not "to answer 1, add 3"
    re.compile(r"\\boxed\{([^{}]*)\}"),
    re.compile(r"####\s*(.+)"),
)


def number_prompt(question: str) -> str:
    """Return the prompt for a question whose answer is a number."""
    return prompts.fill(prompts.load("evaluation/number"), question=question.strip()).strip()


def code_prompt(question: str, tests: Sequence[str]) -> str:
    """Return the prompt for Python code that passes `tests`."""
    filled = prompts.fill(
        prompts.load("evaluation/code"), question=question.strip(), tests="\n".join(tests)
    )
    return filled.strip()


def exact_prompt(question: str) -> str:
    """Return the prompt for a question whose answer is one word or line."""
    return prompts.fill(prompts.load("evaluation/exact"), question=question.strip()).strip()


def question_as_task(question: Question) -> Task:
    """Return a task whose repository holds only the question, so that a session can be opened on
    it.
    """
    return Task(
        id=question.id,
        source=question.source,
        language="",
        kind="implement",
        prompt=question.prompt,
        files={"QUESTION.md": f"{question.prompt}\n"},
        test_command="true",
        grade_command="true",
        timeout=question.timeout,
    )


_NUMBER = re.compile(r"-?\$?\s?\d[\d,]*(?:\.\d+)?|-?\.\d+")


def last_number(text: str) -> Decimal | None:
    """Return the last number in a text, None if there is none."""
    numbers = _NUMBER.findall(text)
    return Decimal(re.sub(r"[$,\s]", "", numbers[-1])) if numbers else None


async def is_right(question: Question, reply: str) -> bool:
    """Return whether a reply answers the question. Raises ConfigError if a needed generator is not
    installed.
    """
    match question.kind:
        case "number":
            given_number, right_number = (
                last_number(final_answer(reply, r"\d")),
                last_number(question.answer),
            )
            return given_number is not None and given_number == right_number
        case "code":
            # the longest block, or a reply that is nothing but code. What it defines is not imported
            # by name: pytest would take a `test_duplicate` that was asked for as a test
            code_blocks = blocks(reply)
            code = max((block.body for block in code_blocks), key=len) if code_blocks else reply
            checks = "\n".join(question.tests)
            test = (
                f"import answer\n\n\ndef test_answer():\n    exec({checks!r}, dict(vars(answer)))\n"
            )
            judged = question_as_task(question).model_copy(
                update={
                    "files": {"answer.py": ""},
                    "hidden": {"test_answer.py": test},
                    "grade_command": "python -m pytest -q -p no:cacheprovider test_answer.py",
                }
            )
            with temp_dirs.temp_dir("answer") as folder:
                write_files({"answer.py": code}, folder)
                return (await grade(judged, folder, ExpectedTests(least=1))).ok
        case "gym":
            return is_right_generated(
                question.dataset, json.loads(question.entry), final_answer(reply)
            )


def final_answer(reply: str, holding: str = r"\w") -> str:
    """Return the part of a reply that is its answer: the text after the last answer mark, else the
    last line with a word.

    Text without a match of `holding` does not count, because "the answer is:" may stand above a
    formula.
    """
    for pattern in _MARKED:
        answers = [text for text in pattern.findall(reply) if re.search(holding, text)]
        if answers:
            return str(answers[-1]).strip().strip("*`").strip()
    lines = [line.strip() for line in reply.splitlines() if re.search(holding, line)]
    return lines[-1] if lines else ""


GYM_PREFIX = "gym:"
UNUSABLE_GENERATORS = frozenset({"game_of_life_halting", "composite"})
"""Generators whose questions can take for ever to make, and one that is made of others."""


def load_generated(source: str) -> LoadedTasks:
    """Return the questions of `gym:NAME[:COUNT[:SEED]]`, by default 20 with seed 0. Raise
    ConfigError.
    """
    name, count, seed = _parse_source(source)
    dataset = _dataset(name, count, seed)
    questions = tuple(
        Question(
            id=f"gym-{name}-{seed}-{index}",
            source=f"gym-{name}",
            kind="gym",
            prompt=exact_prompt(str(entry["question"])),
            answer=str(entry["answer"]),
            dataset=name,
            entry=json.dumps(entry, default=str),
        )
        for index, entry in enumerate(dataset)
    )
    if any(
        not is_right_generated(
            name, json.loads(question.entry), final_answer(f"Answer: {question.answer}")
        )
        for question in questions
    ):
        raise ConfigError(
            f"gym:{name}: its answers are not one line, so that none could be graded as right",
            hint="gym:basic_arithmetic is one whose are",
        )
    return LoadedTasks((), (), questions)


def is_right_generated(name: str, entry: dict[str, Any], reply: str) -> bool:
    """Return whether the generator's own judgement gives the reply full marks."""
    return float(_dataset(name, 1, 0).score_answer(answer=reply, entry=entry)) >= 0.999


def _parse_source(source: str) -> tuple[str, int, int]:
    """Return the name, the count and the seed of `gym:NAME[:COUNT[:SEED]]`. Raises ConfigError."""
    match = re.fullmatch(
        r"([^:]+)(?::(\d+)(?::(\d+))?)?", source.removeprefix(GYM_PREFIX), re.ASCII
    )
    name, count, seed = match.groups() if match is not None else ("", "", "")
    if not name or (count is not None and int(count) == 0):
        raise ConfigError(
            f"{source!r} names no questions",
            hint="write gym:NAME, gym:NAME:COUNT or gym:NAME:COUNT:SEED",
        )
    return name, int(count or 20), int(seed or 0)


def _dataset(name: str, count: int, seed: int) -> Any:
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ConfigError(
            "questions of `gym:` need the package 'reasoning-gym', which is not installed",
            hint=installing("reasoning-gym>=0.1.20"),
        )
    import reasoning_gym

    if name in UNUSABLE_GENERATORS or name not in reasoning_gym.factory.DATASETS:
        raise ConfigError(
            f"gym:{name}: there is no such generator that can be used",
            hint="gym:basic_arithmetic is one",
        )
    return reasoning_gym.create_dataset(name, size=count, seed=seed)
