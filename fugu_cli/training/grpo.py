"""GRPO (arXiv 2402.03300) for the Conductor (arXiv 2512.04388), by TRL: what a planner is asked,
what a reply is worth, and the training, in a folder in which it goes on.

A = (r - mean r) / std r over the G replies to a question; the loss is PPO's, clipped at epsilon,
without a KL term. r is 0 for a reply that is no workflow, 0.5 for a workflow that ran, 1 for a
right result. Every question comes with agents drawn for it, so that a planner learns to read which
there are.

Departures: first rounds of the recursion fine-tune are written by the planner as it was when the
run began, not by the one that is trained; only first rounds that are workflows have second ones.
The preset `small` trains an adapter.
"""

from __future__ import annotations

import importlib.util
import json
import random
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import JsonValue

from fugu_cli import __version__, prompts
from fugu_cli.coordinators.conductor.plan_lists import InvalidPlan
from fugu_cli.coordinators.conductor.plan_steps import PlanLimits, parse_workflow
from fugu_cli.coordinators.conductor.planner import PlanTask, planner_prompt
from fugu_cli.errors import StorageError, UsageError, installing
from fugu_cli.messages import FromUser, Value
from fugu_cli.session.events import Asked, Event, Member, Opened, WorkflowStep
from fugu_cli.session.state import SessionState
from fugu_cli.training.evaluation.results_folder import begin_run
from fugu_cli.training.tasks import Problem

UNREADABLE, RAN, RIGHT = 0.0, 0.5, 1.0
FIRST_ROUND_DISCOUNT = 0.2
"""Of a first round's advantage in the recursion fine-tune."""
GRPO_LOG = "grpo_log.jsonl"
MODELS = "The models:\n"
"""The line before the list of models in the Conductor's prompt (prompts/conductor/paper_request.md)."""
ANSWER_CHARACTERS = 1200
"""Characters of a first round's answer that the second one reads."""


class PlannerExample(Value):
    """A question for the planner: what it reads, the agents it may name (drawn anew for each
    question), and the round. In the second round it has also read the result of the first; `kept`
    says whether that result was right, which three empty lists confirm.
    """

    problem: str
    prompt: str
    models: tuple[str, ...]
    steps: int = 5
    round: Literal[1, 2] = 1
    kept: bool = False

    def form(self) -> PlanLimits:
        """Return the limits of its workflow."""
        second = self.round == 2
        return PlanLimits(models=self.models, steps=self.steps, keeps=second, earlier=second)


@dataclass(frozen=True)
class WorkflowResult:
    """The result of a workflow: whether it was right, and its answer."""

    right: bool
    answer: str = ""


Workflow = tuple[str, tuple[WorkflowStep, ...]]
"""A problem's id, and what is to be done."""


class Execute(Protocol):
    """Carries workflows out."""

    def __call__(self, problem: str, steps: tuple[WorkflowStep, ...]) -> WorkflowResult:
        """Run one workflow."""

    def ahead(self, workflows: Sequence[Workflow]) -> None:
        """Run all workflows that are needed, each once and at the same time."""


@dataclass(frozen=True)
class ExampleSettings:
    """Settings of `planner_examples`: the most steps of a workflow, the fewest and most agents
    offered with a question, and the number of passes over all questions.
    """

    steps: int = 5
    min_agents: int = 2
    max_agents: int = 7
    passes: int = 16
    seed: int = 0


def planner_examples(
    problems: Sequence[Problem],
    members: Mapping[str, Member],
    tokenizer: Any,
    settings: ExampleSettings,
) -> Iterator[PlannerExample]:
    """Yield the Conductor's prompt for every question, in `settings.passes` shuffled passes. Each
    prompt offers a random selection of agents.

    Only the chat template of `tokenizer` is used.
    """
    generator = random.Random(settings.seed)
    names = list(members)
    min_agents = min(settings.min_agents, len(names))
    max_agents = min(settings.max_agents, len(names))
    for _ in range(settings.passes):
        for problem in generator.sample(list(problems), len(problems)):
            count = generator.randint(min_agents, max_agents)
            models = tuple(generator.sample(names, count))
            messages = _question(problem, models, members, settings)
            prompt = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
            yield PlannerExample(
                problem=problem.id, prompt=prompt, models=models, steps=settings.steps
            )


def _question(
    problem: Problem,
    models: tuple[str, ...],
    members: Mapping[str, Member],
    settings: ExampleSettings,
) -> list[dict[str, str]]:
    events: list[Event] = [
        Opened(version=__version__, repo="", pool=tuple(members[name] for name in models)),
        Asked(text=problem.prompt),
    ]
    task = PlanTask(problem.prompt, PlanLimits(models, settings.steps))
    sent = planner_prompt(SessionState(events), task, members, next(iter(members.values())))
    texts = [message.text for message in sent.messages if isinstance(message, FromUser)]
    return [
        {"role": "system", "content": sent.system},
        {"role": "user", "content": "\n".join(texts)},
    ]


def second_round_example(
    example: PlannerExample, workflow: str, outcome: str, right: bool
) -> PlannerExample:
    """Return the second round of a question, in which the planner keeps or corrects the first
    result.

    The first round is shown between the request and the models, as in the Conductor's own prompt.
    """
    shown = prompts.fill(prompts.load("conductor/paper_round"), workflow=workflow, outcome=outcome)
    before, models, after = example.prompt.rpartition(MODELS)
    prompt = f"{before}{shown}\n\n{models}{after}"
    return example.model_copy(update={"prompt": prompt, "round": 2, "kept": right})


class FirstRound(Value):
    """A first round: the planner's reply, and its outcome if that is a workflow."""

    example: PlannerExample
    reply: str
    right: bool
    answer: str


@dataclass(frozen=True)
class FirstRounds:
    """Plays first rounds: `write` returns the planner's reply to a prompt, `execute` runs the plan,
    and `store` saves the round. `earlier` are rounds saved by an interrupted training.
    """

    write: Callable[[str], str]
    execute: Callable[[str, tuple[WorkflowStep, ...]], WorkflowResult]
    earlier: Sequence[FirstRound]
    store: Callable[[FirstRound], None]

    def play(self, example: PlannerExample) -> FirstRound:
        """Play and store the first round of an example."""
        reply = self.write(example.prompt)
        steps = parse_workflow(reply, example.form())
        if isinstance(steps, InvalidPlan):
            result = WorkflowResult(right=False)
        else:
            result = self.execute(example.problem, steps)
        answer = result.answer[:ANSWER_CHARACTERS]
        first_round = FirstRound(example=example, reply=reply, right=result.right, answer=answer)
        self.store(first_round)
        return first_round


def with_second_rounds(
    examples: Sequence[PlannerExample], first_rounds: FirstRounds
) -> Iterator[PlannerExample]:
    """Yield every example, and after each example whose first round is a workflow also its second
    round. A first round is played only when its second round is requested, so that a reader who
    stops early pays for no more.
    """
    rounds: dict[tuple[str, tuple[str, ...]], deque[FirstRound]] = {}
    for earlier in first_rounds.earlier:
        key = earlier.example.problem, earlier.example.models
        rounds.setdefault(key, deque()).append(earlier)
    for example in examples:
        yield example
        example_rounds = rounds.setdefault((example.problem, example.models), deque())
        if not example_rounds:
            example_rounds.append(first_rounds.play(example))
        first_round = example_rounds[0]
        if isinstance(parse_workflow(first_round.reply, example.form()), InvalidPlan):
            example_rounds.popleft()
        else:
            outcome = f"Its answer:\n{first_round.answer}"
            yield second_round_example(example, first_round.reply, outcome, first_round.right)


def workflow_reward(reply: str, example: PlannerExample, execute: Execute | None) -> float:
    """Return the reward of one reply. Without `execute` no workflow is carried out, and a readable
    one counts 0.5.
    """
    steps = parse_workflow(reply, example.form())
    if isinstance(steps, InvalidPlan):
        return UNREADABLE
    if not steps:
        return RIGHT if example.kept else RAN
    if execute is None:
        return RAN
    return RIGHT if execute(example.problem, steps).right else RAN


class WorkflowRewards:
    """The function TRL calls: many replies at once, each with its example. `rewards` are those
    since the last step.
    """

    __name__ = "workflow"

    def __init__(self, execute: Execute | None) -> None:
        self._execute = execute
        self.rewards: list[float] = []

    def __call__(
        self, completions: Sequence[str], example: Sequence[str], **_more: object
    ) -> list[float]:
        """Return a reward for each completion. `example` holds the example of each as JSON."""
        planner_examples = [PlannerExample.model_validate_json(text) for text in example]
        pairs = list(zip(completions, planner_examples, strict=True))
        if self._execute is not None:
            workflows: dict[tuple[str, tuple[WorkflowStep, ...]], None] = {}
            for text, planner_example in pairs:
                steps = parse_workflow(text, planner_example.form())
                if isinstance(steps, tuple) and steps:
                    workflows[planner_example.problem, steps] = None
            self._execute.ahead(list(workflows))
        rewards = [
            workflow_reward(text, planner_example, self._execute) for text, planner_example in pairs
        ]
        self.rewards += rewards
        return rewards


@dataclass(frozen=True)
class GrpoSettings:
    """Of a training. `questions` x `replies` are drawn each step; `lora` is the rank, 0 for all
    weights; `part` is how many replies are learned from at once at most (memory)."""

    steps: int
    questions: int
    replies: int
    tokens: int
    rate: float
    schedule: str
    warmup: float
    lora: int
    part: int = 8
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
)
SMALL_SETTINGS = GrpoSettings(
    steps=60,
    questions=1,
    replies=8,
    tokens=256,
    rate=5e-4,
    schedule="constant",
    warmup=0.0,
    lora=16,
)
PRESETS = {"paper": PAPER_SETTINGS, "small": SMALL_SETTINGS}


class GrpoStep(Value):
    """A step of grpo_log.jsonl. `readable` and `right` are shares of the step's replies, `length`
    tokens a reply.
    """

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
    """A training run: its folder, a listener for each step, and what must not change besides the
    settings when it is resumed.
    """

    folder: Path
    tell: Callable[[GrpoStep], None]
    about: Mapping[str, JsonValue] = field(default_factory=dict)


def begin_training(model: str, settings: GrpoSettings, run: GrpoRun) -> None:
    """Write down what a training is started with, or compare it with what it was. Raises UsageError
    and StorageError. The caller holds the folder."""
    fixed = {
        name: value
        for name, value in vars(settings).items()
        if name not in ("steps", "save", "part")
    }
    begin_run(run.folder, {"model": model, **fixed, **run.about})


def train_planner(
    model: str,
    examples: Sequence[PlannerExample],
    settings: GrpoSettings,
    rewards: Callable[..., list[float]],
    run: GrpoRun,
) -> Path:
    """Train to the last step, or on from the newest saved one. Returns the folder of the trained
    model (an adapter where LoRA was used). Raises StorageError."""
    with quiet_libraries():
        trainer = _trainer(model, examples, settings, rewards, run)
        saved = filter(_is_complete, run.folder.glob("checkpoint-*"))
        newest = max(saved, key=lambda path: int(path.name.split("-")[1]), default=None)
        resumed = str(newest) if newest is not None else None
        trainer.train(resume_from_checkpoint=resumed)
        final = run.folder / "model"
        try:
            trainer.save_model(str(final))
        except OSError as error:
            raise StorageError(f"{final}: the trained model cannot be kept: {error}") from error
    return final


def dataset_rows(examples: Sequence[PlannerExample]) -> list[dict[str, Any]]:
    """Return the columns TRL reads: the prompt, the example as JSON, and the weight of its
    advantage.
    """
    recursive = any(example.round == 2 for example in examples)
    return [
        {
            "prompt": example.prompt,
            "example": example.model_dump_json(),
            "weight": FIRST_ROUND_DISCOUNT if recursive and example.round == 1 else 1.0,
        }
        for example in examples
    ]


def _is_complete(checkpoint: Path) -> bool:
    """Return whether the checkpoint was saved completely, that is, its last file is readable."""
    try:
        return bool(json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False


def require_libraries() -> None:
    """Raise UsageError if the training libraries are not installed."""
    missing = [
        name
        for name in ("torch", "trl", "peft", "datasets")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise UsageError(
            f"training a Conductor needs {', '.join(missing)}, not installed here",
            hint=installing("trl>=1", "peft>=0.15"),
        )


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Silence the libraries' messages, warnings and progress bars."""
    from huggingface_hub.utils import logging as hub_messages
    from transformers.utils import logging as library_messages

    library_messages.set_verbosity_error()
    library_messages.disable_progress_bar()
    hub_messages.set_verbosity_error()  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def planner_tokenizer(model: str) -> Any:
    """Return the tokenizer of the planner in `model`, a folder or hub id.

    Raises UsageError if it is missing or has no token for padding.
    """
    from transformers import AutoTokenizer

    if model.startswith(("/", ".", "~")) and not Path(model).is_dir():
        raise UsageError(
            f"there is no folder {model}", hint="--model names a planner: a folder or hub id"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"the planner {model} cannot be read: {first}", hint="name another with --model"
        ) from error
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    if tokenizer.pad_token is None:
        raise UsageError(
            f"the planner {model} has neither a padding token nor one that ends a text, and "
            f"training needs one",
            hint="set `pad_token` in its tokenizer_config.json, or name another with --model",
        )
    if tokenizer.chat_template is None:
        raise UsageError(
            f"the planner {model} has no chat template, so it cannot be asked",
            hint="name an instruction-tuned model with --model",
        )
    return tokenizer


def planner_writer(model: str, settings: GrpoSettings) -> Callable[[str], str]:
    """Load the untrained planner in `model`, and return the function that maps a prompt to its
    reply.
    """
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = planner_tokenizer(model)
    with quiet_libraries():
        loaded: Any = AutoModelForCausalLM.from_pretrained(model)
    torch.manual_seed(settings.seed)

    def write(prompt: str) -> str:
        inputs = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            generated = loaded.generate(
                **inputs,
                max_new_tokens=settings.tokens,
                do_sample=True,
                temperature=settings.temperature,
            )
        return str(
            tokenizer.decode(generated[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        )

    return write


def _trainer(
    model: str,
    examples: Sequence[PlannerExample],
    settings: GrpoSettings,
    rewards: Callable[..., list[float]],
    run: GrpoRun,
) -> Any:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, PrinterCallback
    from trl import GRPOTrainer

    class Discounting(GRPOTrainer):  # type: ignore[misc]
        """First rounds count less where second ones are trained: their groups were normalised apart
        already.
        """

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            scored: dict[str, Any] = super()._generate_and_score_completions(inputs)
            weights = torch.tensor(
                [float(row["weight"]) for row in inputs], device=scored["advantages"].device
            )
            shape = (-1, *[1] * (scored["advantages"].dim() - 1))
            return {**scored, "advantages": scored["advantages"] * weights.view(shape)}

    rank = settings.lora
    adapter = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    trainer = Discounting(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=dtype),
        reward_funcs=rewards,
        args=trl_arguments(settings, run.folder),
        train_dataset=Dataset.from_list(dataset_rows(examples)),
        processing_class=planner_tokenizer(model),
        peft_config=adapter if rank else None,
    )
    trainer.remove_callback(PrinterCallback)  # raw dicts; the log has the same
    trainer.add_callback(_log_callback(run.tell, rewards))
    return trainer


def trl_arguments(settings: GrpoSettings, folder: Path) -> Any:
    """Return the settings for TRL. A step is split into equal parts without rest, since TRL wants
    whole questions.
    """
    import torch
    from trl import GRPOConfig

    every, gpu = settings.questions * settings.replies, torch.cuda.is_available()
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
        bf16=gpu,
        use_cpu=not gpu,
        gradient_checkpointing=gpu,
        shuffle_dataset=False,
    )


def _log_callback(tell: Callable[[GrpoStep], None], rewards: Any) -> Any:
    """Return a callback that reports each step with the rewards since the last one."""
    from transformers import TrainerCallback

    class Writer(TrainerCallback):  # type: ignore[misc]
        began = time.monotonic()

        def on_log(
            self, _args: Any, state: Any, _control: Any, logs: Mapping[str, float], **_more: Any
        ) -> None:
            new_rewards, rewards.rewards = rewards.rewards, []
            if not new_rewards:
                return
            time_now, count = time.monotonic(), len(new_rewards)
            line = GrpoStep(
                step=state.global_step,
                replies=count,
                reward=round(sum(new_rewards) / count, 4),
                readable=round(sum(r > UNREADABLE for r in new_rewards) / count, 4),
                right=round(sum(r == RIGHT for r in new_rewards) / count, 4),
                length=float(logs.get("completions/mean_length", 0.0)),
                loss=float(logs.get("loss", 0.0)),
                rate=float(logs.get("learning_rate", 0.0)),
                seconds=round(time_now - self.began, 1),
            )
            self.began = time_now
            tell(line)

    return Writer()
