"""The first rounds that second ones are about: each question planned once by the model as it is, and carried out.

For the Conductor's recursion fine-tune, beside conductor.py. What was carried out is kept by the caller and not done
again. A reply that is no workflow has no second round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fugu_cli.conductor.parse import Fault
from fugu_cli.conductor.validate import workflow
from fugu_cli.messages import Value
from fugu_cli.training.grpo_examples import again
from fugu_cli.training.grpo_reward import Example, Execute

SHOWN = 1200
"""Characters of a first round's answer that the second one reads."""

Write = Callable[[str], str]
"""The planner: a prompt in, what it writes out."""


class First(Value):
    """A first round that was carried out."""

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


def second_rounds(course: Sequence[Example], firsts: Firsts, opening: str) -> Iterator[Example]:
    """A second round for every example whose first one is a workflow."""
    known = {(one.example.problem, one.example.models): one for one in firsts.known}
    for example in course:
        first = known.get((example.problem, example.models))
        if first is None:
            reply = opening + firsts.write(example.prompt)
            steps = workflow(reply, example.form())
            if isinstance(steps, Fault):
                continue
            ran = firsts.execute(example.problem, steps)
            first = First(example=example, reply=reply, right=ran.right, answer=ran.answer[:SHOWN])
            firsts.keep(first)
            known[example.problem, example.models] = first
        yield again(example, first.reply.removeprefix(opening), f"Its answer:\n{first.answer}", first.right)


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
