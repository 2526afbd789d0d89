"""GRPO for the Conductor on a small model and the CPU: does the share of readable workflows rise?

    python tests/benchmarks/grpo.py --model DIR --tasks DIR --out DIR [--steps 40] [--report]

The reward is 0 for a reply that the Conductor's parser cannot read and 0.5 for one it can; nothing
is run, so what rises is the form alone. Takes minutes; a run that was stopped goes on from its
newest saved step. `--held N` then asks N questions that were not trained on, before and after.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fugu_cli import prompts
from fugu_cli.config.agent_pool import EMBEDDED
from fugu_cli.coordinators.conductor.plan_lists import InvalidPlan
from fugu_cli.coordinators.conductor.plan_steps import parse_workflow
from fugu_cli.errors import FuguError, StorageError
from fugu_cli.messages import Value
from fugu_cli.training import grpo
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.evaluation.intervals import wilson
from fugu_cli.training.tasks import Problem, Question
from fugu_cli.training.tasks.loading import load_tasks

TEMPLATE = Path(__file__).with_name("grpo.template.md")
RESULT = Path(__file__).parent / "results" / "grpo.md"
CURVE = RESULT.with_suffix(".svg")
HELD = "held.jsonl"
BRIEF = Path(__file__).with_name("grpo.brief.md")
OPENING = "model_id = ["
"""How a planner's reply begins."""
REQUEST_CHARACTERS = 200
"""Characters of a request in a prompt."""
TOKENS = 96
WINDOW = 5


class Held(Value):
    """One reply to a question that was not trained on: `which` model, its steps (0: unreadable),
    and its words.
    """

    which: str
    problem: str
    steps: int
    reply: str


SUBTASKS = (
    *(
        "Find out what is asked and what is given.",
        "Work it out step by step.",
        "Write the code.",
        "Check the result.",
    ),
    *(
        "Look for the cause.",
        "Repair what is wrong.",
        "Compare the answers and choose.",
        "Give the answer alone.",
    ),
)
READABLE_SHARE = 0.25
"""Share of readable replies from which on rewards teach."""
BATCH = 4
LOOK_EVERY = 4
"""Steps between two looks, at as many replies as two batches."""


def random_workflow(example: grpo.PlannerExample, draw: random.Random) -> str:
    """A workflow for the example, right in form: models, subtasks and access drawn."""
    count = draw.randint(1, min(3, example.steps))
    models = [draw.randrange(len(example.models)) for _ in range(count)]
    subtasks = [draw.choice(SUBTASKS) for _ in range(count)]
    access = [
        [] if not place else draw.choice([[], ["all"], [place - 1]]) for place in range(count)
    ]
    quoted = ", ".join(f'"{text}"' for text in subtasks)
    shown = str(access).replace("'", '"')
    return f"model_id = {models}\nsubtasks = [{quoted}]\naccess_list = {shown}"


def warm_up(model: str, course: Sequence[grpo.PlannerExample], steps: int, folder: Path) -> Path:
    """Train all weights for at most `steps` steps, until a quarter of the replies can be read.
    Returns the model's folder; a whole one that is there already is taken. Raises StorageError."""
    import torch
    from transformers import AutoModelForCausalLM

    target, part = folder / "warm", folder / "warm.part"
    if (target / "tokenizer_config.json").is_file():
        return target
    torch.manual_seed(0)
    draw = random.Random(0)
    tokenizer = grpo.planner_tokenizer(model)
    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    optimiser = torch.optim.AdamW(loaded.parameters(), lr=1e-4)

    def some(most: int) -> list[grpo.PlannerExample]:
        return draw.sample(list(course), min(most, len(course)))

    for step in range(1, steps + 1):
        _step(
            loaded,
            tokenizer,
            optimiser,
            [(one, random_workflow(one, draw).removeprefix(OPENING)) for one in some(BATCH)],
        )
        if step % LOOK_EVERY == 0 and _readable(loaded, tokenizer, some(2)) >= READABLE_SHARE:
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


def _step(
    model: Any, tokenizer: Any, optimiser: Any, pairs: Sequence[tuple[grpo.PlannerExample, str]]
) -> None:
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


def _readable(model: Any, tokenizer: Any, some: Sequence[grpo.PlannerExample]) -> float:
    """The share of four replies to each that are a workflow."""
    import torch

    worth = []
    for example in some:
        given = tokenizer(example.prompt, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            out = model.generate(
                **given,
                max_new_tokens=80,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                num_return_sequences=4,
            )
        rest = tokenizer.batch_decode(
            out[:, given["input_ids"].shape[1] :], skip_special_tokens=True
        )
        worth += [grpo.workflow_reward(OPENING + text, example, None) > 0 for text in rest]
    return sum(worth) / len(worth)


def newest_lines(lines: Iterable[grpo.GrpoStep]) -> list[grpo.GrpoStep]:
    """In the order of the steps; of a step that was made twice, after a kill, the newer line."""
    return sorted({line.step: line for line in lines}.values(), key=lambda line: line.step)


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line, parsed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", required=True, help="a folder with a causal language model in transformers' form"
    )
    parser.add_argument(
        "--tasks", type=Path, required=True, help="a folder of task files (*.jsonl)"
    )
    parser.add_argument("--only", default="gsm8k", help="files to use (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="where the run is kept")
    parser.add_argument(
        "--steps", type=int, default=40, help="optimisation steps (default: %(default)s)"
    )
    parser.add_argument(
        "--replies", type=int, default=8, help="replies to each question (default: %(default)s)"
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=grpo.SMALL_SETTINGS.rate,
        help="learning rate (default: %(default)s)",
    )
    parser.add_argument(
        "--warm", type=int, default=40, help="supervised steps at most (default: %(default)s)"
    )
    parser.add_argument("--name", default="", help="what the model is called in the report")
    parser.add_argument(
        "--held",
        type=int,
        default=0,
        help="questions to ask before and after (default: %(default)s)",
    )
    parser.add_argument(
        "--report", action="store_true", help="only write the report of what is there"
    )
    return parser.parse_args(arguments)


def made(given: argparse.Namespace) -> list[grpo.PlannerExample]:
    """What is trained on, in its order; a step takes one. Asked in the short form: each question
    with two or three models, twice."""
    from transformers import AutoTokenizer

    problems = load_tasks(given.tasks, only=given.only.split(",")).problems
    end = AutoTokenizer.from_pretrained(given.model).eos_token or ""
    draw, names = random.Random(0), [entry.name for entry in EMBEDDED]
    found = []
    for _ in range(2):
        for problem in draw.sample(list(problems), len(problems)):
            models = tuple(draw.sample(names, draw.randint(min(2, len(names)), min(3, len(names)))))
            found.append(
                grpo.PlannerExample(
                    problem=problem.id, prompt=brief(problem, models, end), models=models
                )
            )
    return found


def brief(problem: Problem, models: Sequence[str], end: str) -> str:
    """A prompt for planners of few parameters. Its example ends with the token that ends a text: a
    small model goes on as it does."""
    shown = ", ".join(f"Model {number}" for number in range(len(models)))
    asked = (
        problem.question if isinstance(problem, Question) and problem.question else problem.prompt
    )
    request = " ".join(asked.split())[:REQUEST_CHARACTERS]
    filled = prompts.fill(
        BRIEF.read_text(encoding="utf-8"), steps="5", request=request, models=shown, end=end
    )
    return f"{filled.strip()}\n{OPENING}"


class OpenedRewards(grpo.WorkflowRewards):
    """The opening stands in the prompt and is part of what was written."""

    def __call__(
        self, completions: Sequence[str], example: Sequence[str], **_more: object
    ) -> list[float]:
        return super().__call__([OPENING + text for text in completions], example)


def train(given: argparse.Namespace) -> None:
    """To the last step."""
    course = made(given)
    settings = replace(
        grpo.SMALL_SETTINGS,
        steps=given.steps,
        replies=given.replies,
        rate=given.rate,
        part=given.replies,
        tokens=TOKENS,
    )
    run = grpo.GrpoRun(given.out, partial(results_folder.append_row, given.out / grpo.GRPO_LOG))
    model = warm_up(given.model, course, given.warm, given.out) if given.warm else given.model
    grpo.begin_training(str(model), settings, run)
    grpo.train_planner(str(model), course, settings, OpenedRewards(None), run)


def held(given: argparse.Namespace) -> None:
    """Eight replies to each of some questions that come last in the course, by the model before and
    after.
    """
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    course = made(given)
    trained = {example.problem for example in course[: given.steps]}
    asked = [example for example in course if example.problem not in trained][-given.held :]
    before = given.out / "warm" if given.warm else Path(given.model)
    saved = sorted(given.out.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    after = given.out / "model" if (given.out / "model").is_dir() else saved[-1]
    tokenizer: Any = AutoTokenizer.from_pretrained(before)
    model: Any = AutoModelForCausalLM.from_pretrained(before)
    for which in ("before", "after"):
        model = PeftModel.from_pretrained(model, str(after)) if which == "after" else model
        for example in asked:
            for reply in drawn(model, tokenizer, example.prompt, given.replies):
                steps = parse_workflow(OPENING + reply, example.form())
                count = 0 if isinstance(steps, InvalidPlan) else len(steps)
                results_folder.append_row(
                    given.out / HELD,
                    Held(which=which, problem=example.problem, steps=count, reply=reply),
                )


def drawn(model: Any, tokenizer: Any, prompt: str, replies: int) -> list[str]:
    """Replies at temperature 1, as in the training."""
    import torch

    torch.manual_seed(0)
    asked = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    with torch.inference_mode():
        out = model.generate(
            **asked,
            max_new_tokens=TOKENS,
            do_sample=True,
            top_k=0,
            num_return_sequences=replies,
        )
    found: list[str] = tokenizer.batch_decode(
        out[:, asked["input_ids"].shape[1] :], skip_special_tokens=True
    )
    return found


def held_table(found: Sequence[Held]) -> str:
    """What the questions that both were asked show; "" where they were not asked."""
    lines = []
    asked = [{one.problem for one in found if one.which == which} for which in ("before", "after")]
    for which in ("before", "after"):
        own = [one for one in found if one.which == which and one.problem in asked[0] & asked[1]]
        if not own:
            return ""
        good = [one for one in own if one.steps]
        share = wilson(len(good), len(own))
        mean = sum(one.steps for one in good) / (len(good) or 1)
        lines.append(
            f"| {which} | {len({one.problem for one in own})} | {len(own)} | "
            f"{100 * len(good) / len(own):.0f} % "
            f"({100 * share.low:.0f}-{100 * share.high:.0f}) | {mean:.1f} | "
            f"{len({one.reply for one in good})} |"
        )
    return "\n".join(lines)


def report(given: argparse.Namespace) -> None:
    """The curve as a table and a picture."""
    lines = newest_lines(results_folder.read_rows(given.out / grpo.GRPO_LOG, grpo.GrpoStep))
    smooth = [sum(one.readable for one in part) / len(part) for part in _windows(lines)]
    table = [
        f"| {part[0].step}-{part[-1].step} | {sum(one.replies for one in part)} | "
        f"{100 * share:.0f} % "
        f"| {sum(one.length for one in part) / len(part):.0f} | "
        f"{sum(one.seconds for one in part) / len(part):.0f} |"
        for part, share in zip(_windows(lines), smooth, strict=True)
    ]
    text = prompts.fill(
        TEMPLATE.read_text(encoding="utf-8"),
        model=given.name or Path(given.model).name,
        machine=(
            f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python "
            f"{platform.python_version()}"
        ),
        steps=str(len(lines)),
        replies=str(given.replies),
        rate=f"{given.rate:g}",
        rank=str(grpo.SMALL_SETTINGS.lora),
        tokens=str(TOKENS),
        warm=str(given.warm),
        rows="\n".join(table),
        held=held_table(results_folder.read_rows(given.out / HELD, Held))
        or "| not asked | | | | | |",
        first=f"{100 * smooth[0]:.0f}",
        last=f"{100 * smooth[-1]:.0f}",
    )
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    CURVE.write_text(_curve(lines), encoding="utf-8")


def _windows(lines: Sequence[grpo.GrpoStep]) -> list[Sequence[grpo.GrpoStep]]:
    return [lines[start : start + WINDOW] for start in range(0, len(lines), WINDOW)]


def _curve(lines: Sequence[grpo.GrpoStep]) -> str:
    """Each step's share as a dot, the mean of the last five as a line."""
    wide, high, most = 640.0, 220.0, max(line.step for line in lines)

    def x(step: float) -> float:
        return 50 + wide * step / most

    def y(share: float) -> float:
        return 20 + high * (1 - share)

    dots = "".join(
        f'<circle cx="{x(one.step):.1f}" cy="{y(one.readable):.1f}" r="2" fill="#7d8288"/>'
        for one in lines
    )
    means = [
        sum(one.readable for one in lines[max(0, i - 4) : i + 1])
        / len(lines[max(0, i - 4) : i + 1])
        for i in range(len(lines))
    ]
    points = " ".join(
        f"{x(one.step):.1f},{y(mean):.1f}" for one, mean in zip(lines, means, strict=True)
    )
    axis = "".join(
        f'<line x1="50" x2="{50 + wide}" y1="{y(s):.0f}" y2="{y(s):.0f}" stroke="#ccc"/>'
        f'<text x="44" y="{y(s) + 4:.0f}" text-anchor="end">{100 * s:.0f} %</text>'
        for s in (0, 0.25, 0.5, 0.75, 1)
    )
    ticks = "".join(
        f'<text x="{x(s):.0f}" y="258" text-anchor="middle">{s}</text>'
        for s in range(0, most + 1, 10)
    )
    style = "<style>text{font:12px system-ui,sans-serif;fill:#777}</style>"
    line = f'<polyline points="{points}" fill="none" stroke="#2f6fb7" stroke-width="2"/>'
    ticks += '<text x="370" y="276" text-anchor="middle">steps</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 710 '
        f'284">{style}{axis}{ticks}{dots}{line}</svg>\n'
    )


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, or that of the failure that ended it."""
    given = options(arguments)
    try:
        if not given.report:
            train(given)
        if given.held:
            held(given)
        report(given)
    except FuguError as error:
        print(f"{error}\n{error.hint}".strip(), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
