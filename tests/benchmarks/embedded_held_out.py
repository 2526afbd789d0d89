"""Checkpoints for the embedded pool that have not seen the tasks they decide: one for each of five
folds.

    python tests/benchmarks/embedded_held_out.py --store DIR

Made as the shipped one is (`fugu train evolve --iterations 20 --patience 8`, whose lambda is 0.1),
of results/embedded-pool/turns.jsonl (infilling.py) alone, without the fold's rows. Kept in --store,
with folds.json, which says which of them decides which task. What they do with the recorded answers
is printed, so that a broken head is seen before it is measured in the loop (embedded_pool.py --arms
held-out).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np
from on_tasks import tell

from fugu_cli.cli.train import load_backbone
from fugu_cli.config import Config
from fugu_cli.coordinators import backbone as backbones
from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators.action_space import SLOTS
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, TrainingOrigin
from fugu_cli.coordinators.svf import Vector
from fugu_cli.session.events import ROLES
from fugu_cli.training import fitting, pass_matrix
from fugu_cli.training.evolution import EvolutionSettings
from fugu_cli.training.pass_matrix import ValueSettings
from fugu_cli.training.search import HeadCandidates, HeadLayout, HiddenStates
from fugu_cli.training.sft import WarmStart, WarmStartSettings, parse_head_row
from tests.benchmarks.slots import frontier
from tests.benchmarks.slots.frontier import PolicyScores
from tests.benchmarks.slots.lessons import HeadTrainingSettings, learn_head
from tests.benchmarks.slots.outcomes import ReplayCase
from tests.benchmarks.slots.recipe import (
    EXACT_TESTS,
    REQUEST_TOKENS,
    VERIFIER_COST,
    Mixture,
    MixtureConfig,
    MixtureData,
    checkpoint_at,
    new_checkpoint,
)
from tests.benchmarks.slots.replay import (
    Replay,
    ReplayRules,
    ReplaySessionWriter,
    ReplayStep,
    TranscriptSettings,
)

TABLE = Path(__file__).parent / "results" / "embedded-pool" / "turns.jsonl"
ROWS = ("cheap=small", "middle=coder", "strong=coder*5")
FOLDS = 5
COURSE = HeadTrainingSettings(settings=EvolutionSettings(iterations=20, patience=8))
BLEND = MixtureConfig(course=COURSE)
INDEX = "folds.json"


def checkpoint_of(store: Path, task: str) -> Path:
    """The checkpoint that did not see the task. SystemExit where the folds were not made."""
    file = store / INDEX
    if not file.is_file():
        raise SystemExit(f"{file} is missing: make it with embedded_held_out.py --store {store}")
    folds: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    if task not in folds:
        raise SystemExit(f"{file}: no fold left out {task}: the pass matrix has no row of it")
    return store / folds[task]


def make(store: Path, backbone: Backbone) -> None:
    """All folds' checkpoints, and what they do with the recorded answers."""
    hidden_states = HiddenStates(backbone, store, tell)
    names = sorted({cell.task for cell in pass_matrix.read_matrix(TABLE)})
    folds: dict[str, str] = {}
    for number, held in enumerate(fitting.group_folds(names, FOLDS, BLEND.seed)):
        out = frozenset(np.array(names)[held].tolist())
        made = checkpoint(out, (backbone, hidden_states))
        name = f"fold-{number}.safetensors"
        checkpoints.save(made, store / name)
        folds |= dict.fromkeys(sorted(out), name)
        tell(f"{name}: {made.digest[:12]}, without {len(out)} tasks; {made.meta.training.data}")
    (store / INDEX).write_text(json.dumps(folds, indent=1), encoding="utf-8")
    heads = {name: checkpoints.load(store / name).head for name in sorted(set(folds.values()))}
    print(replayed({task: heads[name] for task, name in folds.items()}, (backbone, hidden_states)))


def checkpoint(out: frozenset[str], reading: tuple[Backbone, HiddenStates]) -> Checkpoint:
    """Learned without the tasks in `out`: what `fugu train evolve` does, and nothing of theirs in
    the rates either.
    """
    backbone, hidden_states = reading
    seats, cells = tuple(parse_head_row(text) for text in ROWS), pass_matrix.read_matrix(TABLE)
    rates = {task.task: task for task in pass_matrix.pass_rates(cells, seats)}
    rates |= {
        task.task: task
        for task in pass_matrix.pass_rates([cell for cell in cells if cell.task not in out], seats)
    }
    start = WarmStart(
        WarmStartSettings(
            seats, ValueSettings(turns=BLEND.turns, cost=COURSE.price), seed=BLEND.seed
        ),
        backbone,
        Path(),
    )
    tasks = tuple(rates.values())
    stories = start.examples(start.tell_all(tasks), lambda _: None, hidden_states)
    writer = ReplaySessionWriter(
        seats, backbone, TranscriptSettings(request=REQUEST_TOKENS), BLEND.seed
    )
    mixture = Mixture(
        MixtureData(seats, tasks=tasks, stories=stories), BLEND, writer, hidden_states
    )
    told = mixture.told(out)
    learned = learn_head(told, mixture.trial(out), COURSE, hidden_states, lambda _: None)
    layout = HeadLayout(hidden_states, len(learned.head), told.hidden)
    kept = "the warm start" if learned.head is learned.warm else "evolved"
    data = f"the embedded pool's answers to {len(tasks) - len(out)} repair tasks; {kept}"
    training = TrainingOrigin(
        stage="evolved", data=data, examples=len(told.hidden), seed=mixture.blend.seed
    )
    return checkpoint_at(
        new_checkpoint(learned.head, backbone, TranscriptSettings()),
        layout,
        layout.start(learned.head),
        training,
    )


def replayed(heads: dict[str, Vector], reading: tuple[Backbone, HiddenStates]) -> str:
    """What each task's held-out head does with the recorded answers: first who it begins with, and
    goes on with.
    """
    seats = tuple(parse_head_row(row) for row in ROWS)
    recorded = pass_matrix.pass_rates(pass_matrix.read_matrix(TABLE), seats, prior=0.0)
    cases = [ReplayCase(task, task.task, looped=True) for task in recorded]
    writer = ReplaySessionWriter(
        seats, reading[0], TranscriptSettings(request=REQUEST_TOKENS), BLEND.seed
    )
    lines = [f"worked so far -> next: {ways(cases, writer, heads, reading[1])}"]
    unit = (
        mean(cell.seconds for cell in pass_matrix.read_matrix(TABLE) if cell.agent == "small")
        / recorded[0].rows[0].first_cost
    )
    replay = Replay(writer, ReplayRules(EXACT_TESTS, BLEND.turns, VERIFIER_COST))
    each = [
        replay.play(HeadCandidates(heads[case.group][None], reading[1]), [case]) for case in cases
    ]
    ours = PolicyScores(
        "held out",
        np.array([one.solved[0, 0] for one in each]),
        np.array([one.cost[0, 0] for one in each]),
    )
    orders = {
        "cascade": (0, 1, *(2,) * (BLEND.turns - 2)),
        **{name: (row,) * BLEND.turns for row, name in enumerate(ROWS)},
    }
    talk = {
        "cascade": VERIFIER_COST
    }  # who verifies costs as it does in ours; a single row verifies itself, which is left out
    arms = [
        ours,
        *(
            frontier.sequence_policy(name, cases, order, EXACT_TESTS, talk.get(name, 0.0))
            for name, order in orders.items()
        ),
    ]
    lines += [
        f"{arm.name}: solved {arm.solved.mean():.1%} at {unit * arm.cost.mean():.1f} s a task"
        for arm in arms
    ]
    return "\n".join(lines)


def ways(
    cases: Sequence[ReplayCase],
    writer: ReplaySessionWriter,
    heads: dict[str, Vector],
    hidden_states: HiddenStates,
) -> dict[str, dict[str, int]]:
    """By who has worked so far: how often each row in each role is next, over the tasks."""
    found: dict[str, dict[str, int]] = {}
    rows = range(len(SLOTS))
    failed = [
        (),
        *(tuple(ReplayStep(row, False) for _ in range(times)) for row in rows for times in (1, 2)),
    ]
    for path in [*failed, *((ReplayStep(row, True),) for row in rows)]:
        counts: Counter[str] = Counter()
        for case in cases:
            scene = writer.scene(case, path)
            row, role = scene.choose(
                HeadCandidates(heads[case.group][None], hidden_states).logits([scene.text])[:, 0]
            )
            counts[f"{SLOTS[int(row[0])]} {ROLES[int(role[0])]}"] += 1
        who = ", ".join(f"{SLOTS[step.row]}{' passed' if step.passed else ''}" for step in path)
        found[who or "nobody"] = dict(counts)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--store", type=Path, required=True, help="where checkpoints and hidden states are kept"
    )
    parser.add_argument(
        "--backbone", type=Path, help="its folder (the embedded one where left out)"
    )
    given = parser.parse_args()
    given.store.mkdir(parents=True, exist_ok=True)
    backbone = (
        backbones.load_backbone(given.backbone) if given.backbone else load_backbone(Config())
    )
    make(given.store, backbone)


if __name__ == "__main__":
    main()
