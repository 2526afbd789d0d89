"""Questions with a checkable answer: how they are put, and whether a reply is right.

Stands beside grading.py, which judges repositories; code answers are graded by it. It must not know who answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal

from fugu_cli import prompts, scratch
from fugu_cli.code_blocks import blocks
from fugu_cli.tasks import Expected, Question, Task
from fugu_cli.tasks.grading import grade
from fugu_cli.tasks.repository import lay

_MARKED = (
    re.compile(r"\banswers?\b[^.\n:=]{0,40}?(?:\bis\b|[:=])[\s:=*]*(.+)", re.IGNORECASE),  # not "to answer 1, add 3"
    re.compile(r"\\boxed\{([^{}]*)\}"),
    re.compile(r"####\s*(.+)"),
)


def number_prompt(question: str) -> str:
    """What is asked where a number is wanted."""
    return prompts.fill(prompts.load("evaluation/number"), question=question.strip()).strip()


def code_prompt(question: str, tests: Sequence[str]) -> str:
    """What is asked where Python code is wanted that passes `tests`."""
    filled = prompts.fill(prompts.load("evaluation/code"), question=question.strip(), tests="\n".join(tests))
    return filled.strip()


def exact_prompt(question: str) -> str:
    """What is asked where one word or line is wanted."""
    return prompts.fill(prompts.load("evaluation/exact"), question=question.strip()).strip()


def task_of(question: Question) -> Task:
    """The question as a repository that holds nothing but itself: what a session is opened on."""
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


def number(text: str) -> Decimal | None:
    """The last number in a text; None where there is none."""
    found = _NUMBER.findall(text)
    return Decimal(re.sub(r"[$,\s]", "", found[-1])) if found else None


async def right(question: Question, reply: str) -> bool:
    """Whether a reply answers the question. Raises ConfigError where a generator is needed and not installed."""
    match question.kind:
        case "number":
            found, wanted = number(final(reply, r"\d")), number(question.answer)
            return found is not None and found == wanted
        case "code":
            return await _passes(question, reply)
        case "gym":
            from fugu_cli.tasks import gym

            return gym.right(question.dataset, json.loads(question.entry), final(reply))


def final(reply: str, holding: str = r"\w") -> str:
    """The part of a reply that is its answer: after the last mark of one, else the last line that says something. What
    holds no match of `holding` is none: "the answer is:" may stand above a formula."""
    for mark in _MARKED:
        found = [text for text in mark.findall(reply) if re.search(holding, text)]
        if found:
            return str(found[-1]).strip().strip("*`").strip()
    lines = [line.strip() for line in reply.splitlines() if re.search(holding, line)]
    return lines[-1] if lines else ""


async def _passes(question: Question, reply: str) -> bool:
    """The longest block, or a reply that is nothing but code, with the tests behind it. What it defines is not
    imported: pytest would take a `test_duplicate` that was asked for as a test."""
    found = blocks(reply)
    code = max((block.body for block in found), key=len) if found else reply
    checks = "\n".join(question.tests)
    test = f"import answer\n\n\ndef test_answer():\n    exec({checks!r}, dict(vars(answer)))\n"
    judged = task_of(question).model_copy(
        update={
            "files": {"answer.py": ""},
            "hidden": {"test_answer.py": test},
            "grade_command": "python -m pytest -q -p no:cacheprovider test_answer.py",
        }
    )
    with scratch.folder("answer") as folder:
        lay({"answer.py": code}, folder)
        return (await grade(judged, folder, Expected(least=1))).ok
