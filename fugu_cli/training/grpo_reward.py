"""The Conductor's reward (arXiv 2512.04388): 0 for a reply that is no workflow, 0.5 for one that ran, 1 if right.

Beside conductor.py, which trains. The reply is read by the Conductor's own parser, so a planner is trained on exactly
the form it will be held to. What running a workflow means is the caller's business (`Execute`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fugu_cli.conductor.parse import Fault
from fugu_cli.conductor.validate import Form, workflow
from fugu_cli.events import Step
from fugu_cli.messages import Value

UNREADABLE, RAN, RIGHT = 0.0, 0.5, 1.0


class Example(Value):
    """A question put to the planner: what it reads, the agents it may name (drawn anew for each), and in which round.

    In the second round it has read what the first one came to; `kept` is whether that was right, for three empty lists
    keep it.
    """

    problem: str
    prompt: str
    models: tuple[str, ...]
    steps: int = 5
    round: Literal[1, 2] = 1
    kept: bool = False

    def form(self) -> Form:
        """What its workflow may be."""
        second = self.round == 2
        return Form(models=self.models, steps=self.steps, keeps=second, earlier=second)


@dataclass(frozen=True)
class Ran:
    """What a workflow came to: whether that was right, and what it answered."""

    right: bool
    answer: str = ""


Execute = Callable[[str, tuple[Step, ...]], Ran]
"""Runs a workflow on a problem, by its id."""
Workflow = tuple[str, tuple[Step, ...]]
"""A problem's id, and what is to be done."""
Ahead = Callable[[Sequence[Workflow]], None]
"""Is told of all workflows that will be asked for, each once, so that they can be carried out at the same time."""


@dataclass
class Tally:
    """What the replies since the last look were worth."""

    rewards: list[float] = field(default_factory=list)

    def taken(self) -> tuple[int, float, float, float]:
        """(replies, mean reward, share with a readable workflow, share right); empties it."""
        found, self.rewards = self.rewards, []
        count = len(found)
        if not count:
            return 0, 0.0, 0.0, 0.0
        readable, right = sum(r > UNREADABLE for r in found), sum(r == RIGHT for r in found)
        return count, sum(found) / count, readable / count, right / count


def reward(reply: str, example: Example, execute: Execute | None) -> float:
    """One reply's reward. Without `execute` nothing is run: a readable workflow is worth 0.5."""
    steps = workflow(reply, example.form())
    if isinstance(steps, Fault):
        return UNREADABLE
    if not steps:
        return RIGHT if example.kept else RAN
    if execute is None:
        return RAN
    return RIGHT if execute(example.problem, steps).right else RAN


class Rewards:
    """The function TRL calls: many replies at once, each with its example. Counts them in `tally`."""

    __name__ = "workflow"

    def __init__(self, opening: str, execute: Execute | None, ahead: Ahead | None = None) -> None:
        """`opening` is how every first reply begins: it stands in the prompt and is part of what was written."""
        self._opening = opening
        self._execute = execute
        self._ahead = ahead
        self.tally = Tally()

    def __call__(self, completions: Sequence[str], example: Sequence[str], **_more: object) -> list[float]:
        """One number for each completion; `example` holds each one's Example as JSON."""
        about = [Example.model_validate_json(given) for given in example]
        written = [
            (self._opening if one.round == 1 else "") + text for text, one in zip(completions, about, strict=True)
        ]
        if self._ahead is not None:
            read = [(one.problem, workflow(text, one.form())) for text, one in zip(written, about, strict=True)]
            self._ahead(
                list(dict.fromkeys((name, steps) for name, steps in read if isinstance(steps, tuple) and steps))
            )
        found = [reward(text, one, self._execute) for text, one in zip(written, about, strict=True)]
        self.tally.rewards += found
        return found
