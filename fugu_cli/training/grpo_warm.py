"""A cold start for planners that hardly ever write a workflow: without one readable reply GRPO has nothing to prefer.

A few supervised steps on workflows that are right in form and drawn by chance in content, just until some replies can
be read; everything after that is learned from rewards. Beside conductor.py. The paper's planner needed none.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fugu_cli.errors import StorageError
from fugu_cli.training.grpo_reward import Example, reward

WORDS = (
    *("Find out what is asked and what is given.", "Work it out step by step.", "Write the code.", "Check the result."),
    *("Look for the cause.", "Repair what is wrong.", "Compare the answers and choose.", "Give the answer alone."),
)
ENOUGH = 0.25
"""Share of readable replies from which on rewards teach."""
BATCH = 4
LOOK = 4
"""Steps between two looks, at as many replies as two batches."""


def written(example: Example, draw: random.Random) -> str:
    """A workflow for the example, right in form: models, subtasks and access drawn."""
    count = draw.randint(1, min(3, example.steps))
    models = [draw.randrange(len(example.models)) for _ in range(count)]
    subtasks = [draw.choice(WORDS) for _ in range(count)]
    access = [[] if not place else draw.choice([[], ["all"], [place - 1]]) for place in range(count)]
    quoted = ", ".join(f'"{text}"' for text in subtasks)
    shown = str(access).replace("'", '"')
    return f"model_id = {models}\nsubtasks = [{quoted}]\naccess_list = {shown}"


def warm(model: str, course: Sequence[Example], opening: str, steps: int, folder: Path) -> Path:
    """Train all weights for at most `steps` steps, until a quarter of the replies can be read. Returns the model's
    folder; a whole one that is there already is taken. Raises StorageError."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target, part = folder / "warm", folder / "warm.part"
    if (target / "tokenizer_config.json").is_file():
        return target
    torch.manual_seed(0)
    draw = random.Random(0)
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    optimiser = torch.optim.AdamW(loaded.parameters(), lr=1e-4)

    def some(most: int) -> list[Example]:
        return draw.sample(list(course), min(most, len(course)))

    for step in range(1, steps + 1):
        _step(loaded, tokenizer, optimiser, [(one, written(one, draw).removeprefix(opening)) for one in some(BATCH)])
        if step % LOOK == 0 and _readable(loaded, tokenizer, some(2), opening) >= ENOUGH:
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


def _step(model: Any, tokenizer: Any, optimiser: Any, pairs: Sequence[tuple[Example, str]]) -> None:
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


def _readable(model: Any, tokenizer: Any, some: Sequence[Example], opening: str) -> float:
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
        worth += [reward(opening + text, example, None) > 0 for text in rest]
    return sum(worth) / len(worth)
