"""What the Conductor is trained on: questions with random pools, first rounds for the recursion fine-tune, and a
supervised warm-up.
"""

from __future__ import annotations

import random
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from fugu_cli import __version__, prompts
from fugu_cli.coordinators.conductor.planner import InvalidPlan, PlanLimits, parse_workflow
from fugu_cli.coordinators.conductor.planner import PlanTask as Planning
from fugu_cli.coordinators.conductor.planner import planner_prompt as planning_prompt
from fugu_cli.errors import StorageError
from fugu_cli.messages import FromUser, Value
from fugu_cli.session.events import Asked, Event, Member, Opened
from fugu_cli.tasks import Problem, Question
from fugu_cli.training.conductor_grpo import Execute, PlannerExample, WorkflowResult, planner_tokenizer, workflow_reward

OPENING = "model_id = ["
"""How a brief planner's reply begins."""
MODELS = "The models:\n"
"""Where the Conductor's own prompt begins to list them (prompts/conductor/request.md)."""
REQUEST_CHARACTERS = 200
"""Characters of a request in a brief prompt."""


class ChatTokenizer(Protocol):
    """What of a tokenizer is needed: its chat template, and how a text ends."""

    eos_token: str | None

    @property
    def apply_chat_template(self) -> Callable[..., str]:
        """Called with messages, tokenize=False, add_generation_prompt=True: one text, up to where the model goes on."""


@dataclass(frozen=True)
class ExampleSettings:
    """How examples are made: `full` is the Conductor's own prompt, `brief` a short one for planners of few parameters.

    `fewest` and `most` agents are drawn for each question, `times` says how often each question comes.
    """

    form: Literal["full", "brief"]
    steps: int = 5
    fewest: int = 2
    most: int = 7
    times: int = 16
    seed: int = 0


def planner_examples(
    problems: Sequence[Problem], members: Mapping[str, Member], tokenizer: ChatTokenizer, course: ExampleSettings
) -> Iterator[PlannerExample]:
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
            yield PlannerExample(problem=problem.id, prompt=prompt, models=models, steps=course.steps)


def second_round_example(example: PlannerExample, workflow: str, outcome: str, right: bool) -> PlannerExample:
    """The second round of a question: what the first one came to, to be kept or corrected. It stands where the
    Conductor's own prompt has it, between request and models; a brief planner reads on below what it wrote."""
    shown = prompts.fill(prompts.load("conductor/round"), workflow=workflow, outcome=outcome)
    if example.prompt.endswith(OPENING):
        prompt = f"{example.prompt}{workflow}\n\n{shown}\n"
    else:
        before, models, after = example.prompt.rpartition(MODELS)
        prompt = f"{before}{shown}\n\n{models}{after}"
    return example.model_copy(update={"prompt": prompt, "round": 2, "kept": right})


def _brief(problem: Problem, models: Sequence[str], course: ExampleSettings, end: str) -> str:
    """Its examples end with the token that ends a text: a small model goes on as they do."""
    shown = ", ".join(f"Model {number}" for number in range(len(models)))
    asked = problem.question if isinstance(problem, Question) and problem.question else problem.prompt
    request = " ".join(asked.split())[:REQUEST_CHARACTERS]
    words = prompts.load("training/plan_brief")
    filled = prompts.fill(words, steps=str(course.steps), request=request, models=shown, end=end)
    return f"{filled}\n{OPENING}"


def _full(
    problem: Problem, models: tuple[str, ...], members: Mapping[str, Member], course: ExampleSettings
) -> list[dict[str, str]]:
    events: list[Event] = [
        Opened(version=__version__, repo="", pool=tuple(members[name] for name in models)),
        Asked(text=problem.prompt),
    ]
    planner = next(iter(members.values()))
    sent = planning_prompt(events, Planning(problem.prompt, PlanLimits(models, course.steps)), members, planner)
    said = [message.text for message in sent.messages if isinstance(message, FromUser)]
    return [{"role": "system", "content": sent.system}, {"role": "user", "content": "\n".join(said)}]


ANSWER_CHARACTERS = 1200
"""Characters of a first round's answer that the second one reads."""

Write = Callable[[str], str]
"""The planner: a prompt in, what it writes out."""


class FirstRound(Value):
    """A first round: what was written, and its outcome where that is a workflow."""

    example: PlannerExample
    reply: str
    right: bool
    answer: str


@dataclass(frozen=True)
class FirstRounds:
    """How first rounds are made: who plans, what runs, what was made before and who keeps what is made now."""

    write: Write
    execute: Execute
    known: Sequence[FirstRound]
    keep: Callable[[FirstRound], None]


def both_rounds(course: Sequence[PlannerExample], firsts: FirstRounds, opening: str) -> Iterator[PlannerExample]:
    """Every example, and behind each whose first round is a workflow its second one. A first round is made when its
    second one is asked for, not before: who stops reading pays for no more."""
    known: dict[tuple[str, tuple[str, ...]], deque[FirstRound]] = {}
    for one in firsts.known:
        known.setdefault((one.example.problem, one.example.models), deque()).append(one)
    for example in course:
        yield example
        made = known.setdefault((example.problem, example.models), deque())
        if not made:
            made.append(_first(example, firsts, opening))
        first = made[0]
        if isinstance(parse_workflow(first.reply, example.form()), InvalidPlan):
            made.popleft()
        else:
            yield second_round_example(
                example, first.reply.removeprefix(opening), f"Its answer:\n{first.answer}", first.right
            )


def _first(example: PlannerExample, firsts: FirstRounds, opening: str) -> FirstRound:
    reply = opening + firsts.write(example.prompt)
    steps = parse_workflow(reply, example.form())
    ran = WorkflowResult(right=False) if isinstance(steps, InvalidPlan) else firsts.execute(example.problem, steps)
    first = FirstRound(example=example, reply=reply, right=ran.right, answer=ran.answer[:ANSWER_CHARACTERS])
    firsts.keep(first)
    return first


def planner_writer(model: str, tokens: int, temperature: float, seed: int) -> Write:
    """The model in `model`, a folder or hub id, as it plans before it is trained. Loads it."""
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = planner_tokenizer(model)
    loaded: Any = AutoModelForCausalLM.from_pretrained(model)
    torch.manual_seed(seed)

    def write(prompt: str) -> str:
        given = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            out = loaded.generate(**given, max_new_tokens=tokens, do_sample=True, temperature=temperature)
        return str(tokenizer.decode(out[0, given["input_ids"].shape[1] :], skip_special_tokens=True))

    return write


SUBTASKS = (
    *("Find out what is asked and what is given.", "Work it out step by step.", "Write the code.", "Check the result."),
    *("Look for the cause.", "Repair what is wrong.", "Compare the answers and choose.", "Give the answer alone."),
)
READABLE_SHARE = 0.25
"""Share of readable replies from which on rewards teach."""
BATCH = 4
LOOK_EVERY = 4
"""Steps between two looks, at as many replies as two batches."""


def random_workflow(example: PlannerExample, draw: random.Random) -> str:
    """A workflow for the example, right in form: models, subtasks and access drawn."""
    count = draw.randint(1, min(3, example.steps))
    models = [draw.randrange(len(example.models)) for _ in range(count)]
    subtasks = [draw.choice(SUBTASKS) for _ in range(count)]
    access = [[] if not place else draw.choice([[], ["all"], [place - 1]]) for place in range(count)]
    quoted = ", ".join(f'"{text}"' for text in subtasks)
    shown = str(access).replace("'", '"')
    return f"model_id = {models}\nsubtasks = [{quoted}]\naccess_list = {shown}"


def warm_up(model: str, course: Sequence[PlannerExample], opening: str, steps: int, folder: Path) -> Path:
    """Train all weights for at most `steps` steps, until a quarter of the replies can be read. Returns the model's
    folder; a whole one that is there already is taken. Raises StorageError."""
    import torch
    from transformers import AutoModelForCausalLM

    target, part = folder / "warm", folder / "warm.part"
    if (target / "tokenizer_config.json").is_file():
        return target
    torch.manual_seed(0)
    draw = random.Random(0)
    tokenizer = planner_tokenizer(model)
    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    optimiser = torch.optim.AdamW(loaded.parameters(), lr=1e-4)

    def some(most: int) -> list[PlannerExample]:
        return draw.sample(list(course), min(most, len(course)))

    for step in range(1, steps + 1):
        _step(
            loaded,
            tokenizer,
            optimiser,
            [(one, random_workflow(one, draw).removeprefix(opening)) for one in some(BATCH)],
        )
        if step % LOOK_EVERY == 0 and _readable(loaded, tokenizer, some(2), opening) >= READABLE_SHARE:
            break
    try:
        for old in (part, target):
            shutil.rmtree(old, ignore_errors=True)
        loaded.save_pretrained(str(part))
        tokenizer.save_pretrained(str(part))
        part.rename(target)
    except OSError as error:
        raise StorageError(f"{target}: the warmed model cannot be kept: {error}") from error
    return target


def _step(model: Any, tokenizer: Any, optimiser: Any, pairs: Sequence[tuple[PlannerExample, str]]) -> None:
    """One step on what follows the prompts."""
    import torch

    optimiser.zero_grad()
    for example, rest in pairs:
        prompt = tokenizer(example.prompt, add_special_tokens=False)["input_ids"]
        reply = tokenizer(rest + (tokenizer.eos_token or ""), add_special_tokens=False)["input_ids"]
        tokens = torch.tensor([prompt + reply])
        labels = torch.tensor([[-100] * len(prompt) + reply])
        (model(input_ids=tokens, labels=labels).loss / len(pairs)).backward()
    optimiser.step()


def _readable(model: Any, tokenizer: Any, some: Sequence[PlannerExample], opening: str) -> float:
    """The share of four replies to each that are a workflow."""
    import torch

    worth = []
    for example in some:
        given = tokenizer(example.prompt, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            out = model.generate(
                **given, max_new_tokens=80, do_sample=True, temperature=1.0, top_k=0, num_return_sequences=4
            )
        rest = tokenizer.batch_decode(out[:, given["input_ids"].shape[1] :], skip_special_tokens=True)
        worth += [workflow_reward(opening + text, example, None) > 0 for text in rest]
    return sum(worth) / len(worth)
