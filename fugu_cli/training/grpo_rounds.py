"""The first rounds that second ones are about: each question planned once by the model as it is, and carried out.

For the Conductor's recursion fine-tune, beside conductor.py. What was written and carried out is kept by the caller and
not done again, so that a run that goes on reads the same course. A reply that is no workflow has no second round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fugu_cli.conductor.parse import Fault
from fugu_cli.conductor.validate import workflow
from fugu_cli.messages import Value
from fugu_cli.training.grpo_examples import again
from fugu_cli.training.grpo_reward import Example, Execute, Ran

SHOWN = 1200
"""Characters of a first round's answer that the second one reads."""

Write = Callable[[str], str]
"""The planner: a prompt in, what it writes out."""


class First(Value):
    """A first round: what was written, and what came of it where that is a workflow."""

    example: Example
    reply: str
    right: bool
    answer: str


@dataclass(frozen=True)
class Firsts:
    """How first rounds are made: who plans, what runs, what was made before and who keeps what is made now."""

    write: Write
    execute: Execute
    known: Sequence[First]
    keep: Callable[[First], None]


def both_rounds(course: Sequence[Example], firsts: Firsts, opening: str) -> Iterator[Example]:
    """Every example, and behind each whose first round is a workflow its second one. A first round is made when its
    second one is asked for, not before: who stops reading pays for no more."""
    known: dict[tuple[str, tuple[str, ...]], deque[First]] = {}
    for one in firsts.known:
        known.setdefault((one.example.problem, one.example.models), deque()).append(one)
    for example in course:
        yield example
        made = known.setdefault((example.problem, example.models), deque())
        if not made:
            made.append(_first(example, firsts, opening))
        first = made[0]
        if isinstance(workflow(first.reply, example.form()), Fault):
            made.popleft()
        else:
            yield again(example, first.reply.removeprefix(opening), f"Its answer:\n{first.answer}", first.right)


def _first(example: Example, firsts: Firsts, opening: str) -> First:
    reply = opening + firsts.write(example.prompt)
    steps = workflow(reply, example.form())
    ran = Ran(right=False) if isinstance(steps, Fault) else firsts.execute(example.problem, steps)
    first = First(example=example, reply=reply, right=ran.right, answer=ran.answer[:SHOWN])
    firsts.keep(first)
    return first


def writing(model: str, tokens: int, temperature: float, seed: int) -> Write:
    """The model in `model`, a folder or hub id, as it plans before it is trained. Loads it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    loaded: Any = AutoModelForCausalLM.from_pretrained(model)
    torch.manual_seed(seed)

    def write(prompt: str) -> str:
        given = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            out = loaded.generate(**given, max_new_tokens=tokens, do_sample=True, temperature=temperature)
        return str(tokenizer.decode(out[0, given["input_ids"].shape[1] :], skip_special_tokens=True))

    return write
