"""Trains the Conductor with GRPO (DeepSeekMath, arXiv 2402.03300), by TRL's trainer.

`PAPER` is what the Conductor's paper used; `SMALL` is for one machine without a GPU: LoRA, few and short replies.
Departures from the paper: the planner reads the prompt of fugu's own Conductor, or a brief form of it; access lists may
name single steps; in the recursion fine-tune both rounds are learned from in one run, first rounds with a discounted
advantage, and the first rounds that second ones are about are those of the model as it was when the run began.

Stands on TRL, transformers and peft, which are imported when a training begins. A run is resumed from its newest saved
step; one writer per folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from fugu_cli.errors import StorageError, UsageError, installing
from fugu_cli.messages import Value
from fugu_cli.training import runs
from fugu_cli.training.grpo_reward import Example, Rewards, Tally

DISCOUNT = 0.2
"""Of a first round's advantage in the recursion fine-tune."""
LOG = "grpo_log.jsonl"


@dataclass(frozen=True)
class Settings:
    """Of a training. `questions` x `replies` are drawn each step; `lora` is the rank, 0 for all weights; `brief` asks
    with the short prompt; `part` is how many replies are learned from at once at most (memory)."""

    steps: int
    questions: int
    replies: int
    tokens: int
    rate: float
    schedule: str
    warmup: float
    lora: int
    brief: bool
    part: int
    save: int = 5
    temperature: float = 1.0
    clip: float = 0.2
    seed: int = 0


PAPER = Settings(
    steps=200,
    questions=4,
    replies=64,
    tokens=1024,
    rate=1e-6,
    schedule="cosine",
    warmup=0.03,
    lora=0,
    brief=False,
    part=8,
)
SMALL = Settings(
    steps=60, questions=1, replies=8, tokens=96, rate=5e-4, schedule="constant", warmup=0.0, lora=16, brief=True, part=8
)
PRESETS = {"paper": PAPER, "small": SMALL}


class Line(Value):
    """A step of grpo_log.jsonl. `readable` and `right` are shares of the step's replies, `length` tokens a reply."""

    step: int
    replies: int
    reward: float
    readable: float
    right: float
    length: float
    loss: float
    rate: float
    seconds: float


@dataclass(frozen=True)
class Run:
    """Where a training is kept, who is told of each step, and what beside the settings must stay as it was for it to go
    on. A `model` in `about` is compared in place of the one that is trained: what was warmed up is known by its folder
    only."""

    folder: Path
    tell: Callable[[Line], None]
    about: Mapping[str, JsonValue] = field(default_factory=dict)


def begin(model: str, settings: Settings, run: Run) -> None:
    """Write down what a training is started with, or compare it with what it was. Raises UsageError without the
    libraries or for a folder that was begun with something else, StorageError. The caller holds the folder."""
    _needed()
    fixed = {name: value for name, value in vars(settings).items() if name not in ("steps", "save", "part")}
    about = {"model": model, **fixed, **run.about}
    try:
        run.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{run.folder}: nothing can be kept here: {error}") from error
    _comparable(run.folder / runs.ABOUT, about)
    runs.Folder(run.folder, about, _nothing).begin()


def train(model: str, course: Sequence[Example], settings: Settings, rewards: Rewards, run: Run) -> Path:
    """Train to the last step, or on from the newest saved one. Returns the folder of the trained model (an adapter
    where LoRA was used). Raises as `begin` does."""
    begin(model, settings, run)
    trainer = _trainer(model, course, settings, rewards, run)
    saved = filter(_whole, run.folder.glob("checkpoint-*"))
    newest = max(saved, key=lambda path: int(path.name.split("-")[1]), default=None)
    trainer.train(resume_from_checkpoint=str(newest) if newest is not None else None)
    final = run.folder / "model"
    try:
        trainer.save_model(str(final))
    except OSError as error:
        raise StorageError(f"{final}: the trained model cannot be kept: {error}") from error
    return final


def newest_lines(lines: Iterable[Line]) -> list[Line]:
    """A log in the order of its steps; of a step that was made twice, after a kill, the newer line."""
    return sorted({line.step: line for line in lines}.values(), key=lambda line: line.step)


def dataset_rows(course: Sequence[Example]) -> list[dict[str, Any]]:
    """The columns TRL reads: the prompt, the example as JSON, and the weight of its advantage."""
    recursive = any(example.round == 2 for example in course)
    return [
        {
            "prompt": example.prompt,
            "example": example.model_dump_json(),
            "weight": DISCOUNT if recursive and example.round == 1 else 1.0,
        }
        for example in course
    ]


def _comparable(file: Path, about: Mapping[str, JsonValue]) -> None:
    """Raises UsageError where an earlier version wrote down less. What cannot be read is refused by who compares."""
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if missing := sorted(about.keys() - before):
        raise UsageError(
            f"the run in {file.parent} was started by an earlier version of fugu, which did not write down its "
            f"{', '.join(missing)}: whether they are the same cannot be known",
            hint="give another folder with --out",
        )


def _whole(checkpoint: Path) -> bool:
    """Whether it was saved to the end: its last file can be read."""
    try:
        return bool(json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False


def _needed() -> None:
    import importlib.util

    missing = [name for name in ("trl", "peft", "datasets") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training a Conductor needs {', '.join(missing)}, not installed here",
            hint=installing("trl>=1", "peft>=0.15"),
        )


def _nothing(_mean: object, _path: Path) -> None:
    """TRL writes its own checkpoints."""


def _trainer(model: str, course: Sequence[Example], settings: Settings, rewards: Rewards, run: Run) -> Any:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOTrainer

    class Discounting(GRPOTrainer):  # type: ignore[misc]
        """First rounds count less where second ones are trained: their groups were normalised apart already."""

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            found: dict[str, Any] = super()._generate_and_score_completions(inputs)
            weights = torch.tensor([float(one["weight"]) for one in inputs], device=found["advantages"].device)
            shape = (-1, *[1] * (found["advantages"].dim() - 1))
            return {**found, "advantages": found["advantages"] * weights.view(shape)}

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    kind = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=kind)
    trainer = Discounting(
        model=loaded,
        reward_funcs=rewards,
        args=arguments(settings, run.folder),
        train_dataset=Dataset.from_list(dataset_rows(course)),
        processing_class=tokenizer,
        peft_config=_lora(settings),
    )
    trainer.add_callback(_writer(run.tell, rewards.tally))
    return trainer


def arguments(settings: Settings, folder: Path) -> Any:
    """What TRL is told. A step is learned from in equal parts that leave nothing over: TRL wants whole questions."""
    import torch
    from trl import GRPOConfig

    every = settings.questions * settings.replies
    part = next(count for count in range(min(settings.part, every), 0, -1) if every % count == 0)
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=part,
        gradient_accumulation_steps=every // part,
        num_generations=settings.replies,
        max_completion_length=settings.tokens,
        temperature=settings.temperature,
        learning_rate=settings.rate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=settings.warmup,
        adam_beta1=0.9,
        adam_beta2=0.999,
        epsilon=settings.clip,
        beta=0.0,
        loss_type="grpo",
        scale_rewards="group",
        logging_steps=1,
        logging_strategy="steps",
        save_steps=settings.save,
        save_total_limit=2,
        seed=settings.seed,
        report_to="none",
        disable_tqdm=True,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=torch.cuda.is_available(),
        shuffle_dataset=False,
    )


def _lora(settings: Settings) -> Any:
    if not settings.lora:
        return None
    from peft import LoraConfig

    return LoraConfig(r=settings.lora, lora_alpha=2 * settings.lora, target_modules="all-linear", task_type="CAUSAL_LM")


def _writer(tell: Callable[[Line], None], tally: Tally) -> Any:
    """A callback that tells of each step."""
    from transformers import TrainerCallback

    class Writer(TrainerCallback):  # type: ignore[misc]
        began = time.monotonic()

        def on_log(
            self, _args: Any, state: Any, _control: Any, logs: dict[str, float] | None = None, **more: Any
        ) -> None:
            told = logs or {}
            count, mean, readable, right = tally.taken()
            if not count:
                return
            now = time.monotonic()
            line = Line(
                step=state.global_step,
                replies=count,
                reward=round(mean, 4),
                readable=round(readable, 4),
                right=round(right, 4),
                length=float(told.get("completions/mean_length", 0.0)),
                loss=float(told.get("loss", 0.0)),
                rate=float(told.get("learning_rate", 0.0)),
                seconds=round(now - self.began, 1),
            )
            self.began = now
            tell(line)

    return Writer()
