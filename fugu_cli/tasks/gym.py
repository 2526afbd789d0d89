"""Verifiable questions without end, from the package `reasoning-gym` (the extra `questions`).

Stands beside loading.py: `gym:NAME`, `gym:NAME:COUNT` or `gym:NAME:COUNT:SEED` in place of a file. The same words
always give the same questions. It must not know how they are put to an agent.
"""

from __future__ import annotations

import importlib.util
import json
from typing import Any

from fugu_cli.errors import ConfigError, installing
from fugu_cli.tasks import Loaded, Question, questions

PREFIX = "gym:"
UNUSABLE = frozenset({"game_of_life_halting", "composite"})
"""Generators whose questions can take for ever to make, and one that is made of others."""


def load(words: str) -> Loaded:
    """The questions of `gym:NAME[:COUNT[:SEED]]`, 20 with seed 0 where nothing else is said. Raises ConfigError."""
    name, count, seed = _parsed(words)
    dataset = _dataset(name, count, seed)
    found = tuple(
        Question(
            id=f"gym-{name}-{seed}-{index}",
            source=f"gym-{name}",
            kind="gym",
            prompt=questions.exact_prompt(str(entry["question"])),
            answer=str(entry["answer"]),
            dataset=name,
            entry=json.dumps(entry, default=str),
        )
        for index, entry in enumerate(dataset)
    )
    if any(not right(name, json.loads(one.entry), questions.final(f"Answer: {one.answer}")) for one in found):
        raise ConfigError(
            f"gym:{name}: its answers are not one line, so that none could be graded as right",
            hint="gym:basic_arithmetic is one whose are",
        )
    return Loaded((), (), found)


def right(name: str, entry: dict[str, Any], reply: str) -> bool:
    """The generator's own judgement: full marks only."""
    return float(_dataset(name, 1, 0).score_answer(answer=reply, entry=entry)) >= 0.999


def _parsed(words: str) -> tuple[str, int, int]:
    name, *numbers = words.removeprefix(PREFIX).split(":")
    if (
        not name
        or len(numbers) > 2
        or not all(number.isdecimal() for number in numbers)
        or int((numbers or "1")[0]) == 0
    ):
        raise ConfigError(f"{words!r} names no questions", hint="write gym:NAME, gym:NAME:COUNT or gym:NAME:COUNT:SEED")
    count, seed = (*(int(number) for number in numbers), 20, 0)[:2] if len(numbers) != 1 else (int(numbers[0]), 0)
    return name, count, seed


def _dataset(name: str, count: int, seed: int) -> Any:
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ConfigError(
            "questions of `gym:` need the package 'reasoning-gym', which is not installed",
            hint=installing("reasoning-gym>=0.1.20"),
        )
    import reasoning_gym

    if name in UNUSABLE or name not in reasoning_gym.factory.DATASETS:
        raise ConfigError(
            f"gym:{name}: there is no such generator that can be used", hint="gym:basic_arithmetic is one"
        )
    return reasoning_gym.create_dataset(name, size=count, seed=seed)
