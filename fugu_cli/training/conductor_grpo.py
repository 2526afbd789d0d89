"""Trains the Conductor with GRPO (arXiv 2402.03300) by TRL, and its reward: 0 for an unreadable reply, 0.5 for a
workflow that ran, 1 for a right answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from fugu_cli.coordinators.conductor.planner import InvalidPlan, PlanLimits, parse_workflow
from fugu_cli.errors import StorageError, UsageError, installing
from fugu_cli.messages import Value
from fugu_cli.session.events import WorkflowStep
from fugu_cli.training import evolution

UNREADABLE, RAN, RIGHT = 0.0, 0.5, 1.0


class PlannerExample(Value):
    """A question put to the planner: what it reads, the agents it may name (drawn again for each), and in which round.

    In the second round it has read what the first one came to; `kept` is whether that was right, for three empty lists
    keep it.
    """

    problem: str
    prompt: str
    models: tuple[str, ...]
    steps: int = 5
    round: Literal[1, 2] = 1
    kept: bool = False

    def form(self) -> PlanLimits:
        """What its workflow may be."""
        second = self.round == 2
        return PlanLimits(models=self.models, steps=self.steps, keeps=second, earlier=second)


@dataclass(frozen=True)
class WorkflowResult:
    """What a workflow came to: whether that was right, and what it answered."""

    right: bool
    answer: str = ""


Execute = Callable[[str, tuple[WorkflowStep, ...]], WorkflowResult]
"""Runs a workflow on a problem, by its id."""
Workflow = tuple[str, tuple[WorkflowStep, ...]]
"""A problem's id, and what is to be done."""
Prefetch = Callable[[Sequence[Workflow]], None]
"""Gets all workflows that are needed, each once, so that they can run at the same time."""


@dataclass
class RewardTally:
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


def workflow_reward(reply: str, example: PlannerExample, execute: Execute | None) -> float:
    """One reply's reward. Without `execute` nothing is run: a readable workflow is worth 0.5."""
    steps = parse_workflow(reply, example.form())
    if isinstance(steps, InvalidPlan):
        return UNREADABLE
    if not steps:
        return RIGHT if example.kept else RAN
    if execute is None:
        return RAN
    return RIGHT if execute(example.problem, steps).right else RAN


class WorkflowRewards:
    """The function TRL calls: many replies at once, each with its example. Counts them in `tally`."""

    __name__ = "workflow"

    def __init__(self, opening: str, execute: Execute | None, ahead: Prefetch | None = None) -> None:
        """`opening` is how every first reply begins: it stands in the prompt and is part of what was written."""
        self._opening = opening
        self._execute = execute
        self._ahead = ahead
        self.tally = RewardTally()

    def __call__(self, completions: Sequence[str], example: Sequence[str], **_more: object) -> list[float]:
        """One number for each completion; `example` holds each one's Example as JSON."""
        about = [PlannerExample.model_validate_json(given) for given in example]
        written = [
            (self._opening if one.round == 1 else "") + text for text, one in zip(completions, about, strict=True)
        ]
        if self._ahead is not None:
            read = [(one.problem, parse_workflow(text, one.form())) for text, one in zip(written, about, strict=True)]
            self._ahead(
                list(dict.fromkeys((name, steps) for name, steps in read if isinstance(steps, tuple) and steps))
            )
        found = [workflow_reward(text, one, self._execute) for text, one in zip(written, about, strict=True)]
        self.tally.rewards += found
        return found


FIRST_ROUND_DISCOUNT = 0.2
"""Of a first round's advantage in the recursion fine-tune."""
GRPO_LOG = "grpo_log.jsonl"


@dataclass(frozen=True)
class GrpoSettings:
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


PAPER_SETTINGS = GrpoSettings(
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
SMALL_SETTINGS = GrpoSettings(
    steps=60, questions=1, replies=8, tokens=96, rate=5e-4, schedule="constant", warmup=0.0, lora=16, brief=True, part=8
)
PRESETS = {"paper": PAPER_SETTINGS, "small": SMALL_SETTINGS}


class GrpoStep(Value):
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
class GrpoRun:
    """Where a training is kept, who gets each step, and what beside the settings must stay as it was for it to go
    on. A `model` in `about` is compared in place of the one that is trained: what was warmed up is known by its folder
    only."""

    folder: Path
    tell: Callable[[GrpoStep], None]
    about: Mapping[str, JsonValue] = field(default_factory=dict)


def begin_run(model: str, settings: GrpoSettings, run: GrpoRun) -> None:
    """Write down what a training is started with, or compare it with what it was. Raises UsageError without the
    libraries or for a folder that was begun with something else, StorageError. The caller holds the folder."""
    _import_libraries()
    fixed = {name: value for name, value in vars(settings).items() if name not in ("steps", "save", "part")}
    about = {"model": model, **fixed, **run.about}
    try:
        run.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{run.folder}: nothing can be kept here: {error}") from error
    _comparable(run.folder / evolution.ABOUT_FILE, about)
    evolution.RunFolder(run.folder, about, _save_nothing).begin()


def train_planner(
    model: str, course: Sequence[PlannerExample], settings: GrpoSettings, rewards: WorkflowRewards, run: GrpoRun
) -> Path:
    """Train to the last step, or on from the newest saved one. Returns the folder of the trained model (an adapter
    where LoRA was used). Raises as `begin` does."""
    begin_run(model, settings, run)
    trainer = _trainer(model, course, settings, rewards, run)
    saved = filter(_is_complete, run.folder.glob("checkpoint-*"))
    newest = max(saved, key=lambda path: int(path.name.split("-")[1]), default=None)
    trainer.train(resume_from_checkpoint=str(newest) if newest is not None else None)
    final = run.folder / "model"
    try:
        trainer.save_model(str(final))
    except OSError as error:
        raise StorageError(f"{final}: the trained model cannot be kept: {error}") from error
    return final


def dataset_rows(course: Sequence[PlannerExample]) -> list[dict[str, Any]]:
    """The columns TRL reads: the prompt, the example as JSON, and the weight of its advantage."""
    recursive = any(example.round == 2 for example in course)
    return [
        {
            "prompt": example.prompt,
            "example": example.model_dump_json(),
            "weight": FIRST_ROUND_DISCOUNT if recursive and example.round == 1 else 1.0,
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


def _is_complete(checkpoint: Path) -> bool:
    """Whether it was saved to the end: its last file can be read."""
    try:
        return bool(json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False


def _import_libraries() -> None:
    import importlib.util

    missing = [name for name in ("trl", "peft", "datasets") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training a Conductor needs {', '.join(missing)}, not installed here",
            hint=installing("trl>=1", "peft>=0.15"),
        )


def _save_nothing(_mean: object, _path: Path) -> None:
    """TRL writes its own checkpoints."""


def planner_tokenizer(model: str) -> Any:
    """The tokenizer of the planner in `model`, a folder or hub id. Raises UsageError where there is none, and where it
    has no token that could fill up shorter texts."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise UsageError(f"the planner {model} cannot be read: {first}", hint="name another with --model") from error
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    if tokenizer.pad_token is None:
        raise UsageError(
            f"the planner {model} has neither a padding token nor one that ends a text, and training needs one",
            hint="set `pad_token` in its tokenizer_config.json, or name another with --model",
        )
    return tokenizer


def _trainer(
    model: str, course: Sequence[PlannerExample], settings: GrpoSettings, rewards: WorkflowRewards, run: GrpoRun
) -> Any:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PrinterCallback
    from transformers.utils import logging as library_messages
    from trl import GRPOTrainer

    class Discounting(GRPOTrainer):  # type: ignore[misc]
        """First rounds count less where second ones are trained: their groups were normalised apart already."""

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            found: dict[str, Any] = super()._generate_and_score_completions(inputs)
            weights = torch.tensor([float(one["weight"]) for one in inputs], device=found["advantages"].device)
            shape = (-1, *[1] * (found["advantages"].dim() - 1))
            return {**found, "advantages": found["advantages"] * weights.view(shape)}

    library_messages.set_verbosity_error()
    tokenizer = planner_tokenizer(model)
    kind = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=kind)
    trainer = Discounting(
        model=loaded,
        reward_funcs=rewards,
        args=trl_arguments(settings, run.folder),
        train_dataset=Dataset.from_list(dataset_rows(course)),
        processing_class=tokenizer,
        peft_config=_lora(settings),
    )
    trainer.remove_callback(PrinterCallback)  # raw dicts; the log has the same
    trainer.add_callback(_log_callback(run.tell, rewards.tally))
    return trainer


def trl_arguments(settings: GrpoSettings, folder: Path) -> Any:
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


def _lora(settings: GrpoSettings) -> Any:
    if not settings.lora:
        return None
    from peft import LoraConfig

    return LoraConfig(r=settings.lora, lora_alpha=2 * settings.lora, target_modules="all-linear", task_type="CAUSAL_LM")


def _log_callback(tell: Callable[[GrpoStep], None], tally: RewardTally) -> Any:
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
            line = GrpoStep(
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
