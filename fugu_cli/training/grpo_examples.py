"""What a Conductor is trained on: each question with a pool drawn for it, as the planner will read it.

Pool randomisation (arXiv 2512.04388): every question draws k of the n agents, and the prompt lists just those under
anonymous names. Beside conductor.py; must not know TRL.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fugu_cli import __version__, prompts
from fugu_cli.conductor.prompt import Task as Planning
from fugu_cli.conductor.prompt import prompt as planning_prompt
from fugu_cli.conductor.validate import Form
from fugu_cli.events import Asked, Event, Member, Opened
from fugu_cli.messages import FromUser
from fugu_cli.tasks import Problem, Question
from fugu_cli.training.grpo_reward import Example

OPENING = "model_id = ["
"""How a brief planner's reply begins."""
MODELS = "The models:\n"
"""Where the Conductor's own prompt begins to list them (prompts/conductor/request.md)."""
REQUEST = 200
"""Characters of a request in a brief prompt."""


class Tokenizer(Protocol):
    """What of a tokenizer is needed: its chat template, and how a text ends."""

    eos_token: str | None

    @property
    def apply_chat_template(self) -> Callable[..., str]:
        """Called with messages, tokenize=False, add_generation_prompt=True: one text, up to where the model goes on."""


@dataclass(frozen=True)
class Course:
    """How examples are made: `full` is the Conductor's own prompt, `brief` a short one for planners of few parameters.

    `fewest` and `most` agents are drawn for each question, `times` says how often each question comes.
    """

    form: Literal["full", "brief"]
    steps: int = 5
    fewest: int = 2
    most: int = 7
    times: int = 16
    seed: int = 0


def examples(
    problems: Sequence[Problem], members: Mapping[str, Member], tokenizer: Tokenizer, course: Course
) -> Iterator[Example]:
    """Every question as often as the course says, each time with another pool, in a fixed mixed order."""
    draw = random.Random(course.seed)
    names = list(members)
    for _ in range(course.times):
        for problem in draw.sample(list(problems), len(problems)):
            count = draw.randint(min(course.fewest, len(names)), min(course.most, len(names)))
            models = tuple(draw.sample(names, count))
            if course.form == "brief":
                prompt = _brief(problem, models, course, tokenizer.eos_token or "")
            else:
                said = _full(problem, models, members, course)
                prompt = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
            yield Example(problem=problem.id, prompt=prompt, models=models, steps=course.steps)


def again(example: Example, workflow: str, outcome: str, right: bool) -> Example:
    """The second round of a question: what the first one came to, to be kept or corrected. It stands where the
    Conductor's own prompt has it, between request and models; a brief planner reads on below what it wrote."""
    shown = prompts.fill(prompts.load("conductor/round"), workflow=workflow, outcome=outcome)
    if example.prompt.endswith(OPENING):
        prompt = f"{example.prompt}{workflow}\n\n{shown}\n"
    else:
        before, models, after = example.prompt.rpartition(MODELS)
        prompt = f"{before}{shown}\n\n{models}{after}"
    return example.model_copy(update={"prompt": prompt, "round": 2, "kept": right})


def _brief(problem: Problem, models: Sequence[str], course: Course, end: str) -> str:
    """Its examples end with the token that ends a text: a small model goes on as they do."""
    shown = ", ".join(f"Model {number}" for number in range(len(models)))
    asked = problem.question if isinstance(problem, Question) and problem.question else problem.prompt
    request = " ".join(asked.split())[:REQUEST]
    words = prompts.load("training/plan_brief")
    filled = prompts.fill(words, steps=str(course.steps), request=request, models=shown, end=end)
    return f"{filled}\n{OPENING}"


def _full(
    problem: Problem, models: tuple[str, ...], members: Mapping[str, Member], course: Course
) -> list[dict[str, str]]:
    events: list[Event] = [
        Opened(version=__version__, repo="", pool=tuple(members[name] for name in models)),
        Asked(text=problem.prompt),
    ]
    planner = next(iter(members.values()))
    sent = planning_prompt(events, Planning(problem.prompt, Form(models, course.steps)), members, planner)
    said = [message.text for message in sent.messages if isinstance(message, FromUser)]
    return [{"role": "system", "content": sent.system}, {"role": "user", "content": "\n".join(said)}]
