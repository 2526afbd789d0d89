"""Makes a checkpoint over slots as the one that ships was made: from recorded outcomes under pools drawn at random, and
the turns of the embedded pool. Goes on where it was stopped.

    python tests/benchmarks/slot_checkpoint.py --outcomes FILE --matrix results/embedded-pool/turns.jsonl \
        --row cheap=small --row middle=coder --row "strong=coder*5" --iterations 20 --patience 8 --out slots

FILE has one JSON object a line: {"id", "repo", "text", "outcomes": {"MODEL": {"ok", "cost", "calls"}}}. At the end the
recipe is learned again without parts of the repositories and tasks, which are then decided beside the rule cascade: the
table is printed and stands in the checkpoint's record.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from fugu_cli.cli.current_folder import current_config
from fugu_cli.cli.train import backbone_for_checkpoint, save_checkpoint, say_progress
from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators.checkpoint import TrainingOrigin
from fugu_cli.coordinators.digest import DIGEST_TOKENS
from fugu_cli.training.evolution import Evolution, EvolutionIteration, EvolutionSettings, FitnessWeights, RunFolder
from fugu_cli.training.search import HeadLayout
from tests.benchmarks.slots import lessons, recipe
from tests.benchmarks.slots.replay import TranscriptSettings

COST = 0.1


def main() -> None:
    """Train, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outcomes", type=Path)
    parser.add_argument("--matrix", type=Path)
    parser.add_argument("--row", action="append", default=[])
    parser.add_argument("--start", type=Path)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--patience", type=int, default=8)
    parser.add_argument("--replications", type=int, default=16)
    parser.add_argument("--population", type=int, default=32)
    parser.add_argument("--digest", action="store_true", help="it reads the digest; the one that ships reads raw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    start = recipe.load_start(asked.start) if asked.start else None
    backbone, states = backbone_for_checkpoint(current_config().config, start)
    settings = EvolutionSettings(
        population=asked.population,
        iterations=asked.iterations,
        patience=asked.patience,
        replications=asked.replications,
        seed=asked.seed,
        shaping=FitnessWeights(cost=COST),
    )
    course = lessons.HeadTrainingSettings(price=COST, settings=settings)
    like = start.meta if start else None
    reading = TranscriptSettings("digest", budget=DIGEST_TOKENS) if asked.digest else TranscriptSettings()
    if like:
        reading = TranscriptSettings(like.format, like.workers_only, like.budget)
    blend = recipe.MixtureConfig(course=course, reading=reading, shown=asked.replications, seed=asked.seed)
    mixture, told = recipe.load_mixture(asked.outcomes, asked.matrix, asked.row, blend, (backbone, states))
    mixture.provable()
    base = start or recipe.new_checkpoint(lessons.warm_start_head(told, mixture.blend.course), backbone, reading)
    layout = HeadLayout(states, len(base.head), told.hidden)

    def pack(point: np.ndarray, how: str) -> checkpoints.Checkpoint:
        data = f"{recipe.mixture_record(mixture, start)}; {how}"
        training = TrainingOrigin(stage="evolved", data=data, examples=len(told.hidden), seed=asked.seed)
        return recipe.checkpoint_at(base, layout, point, training)

    folder = RunFolder(
        asked.out, dict(mixture.about()), lambda mean, path: save_checkpoint(pack(mean, "running"), path)
    )
    trial, begun = mixture.trial(), layout.start(base.head, base.offsets)
    with folder.held():
        evolved = Evolution(settings, trial, layout.breed, folder).run(begun, tell)
    better = lessons.surely_better(trial, layout.breed(np.stack([begun, evolved.vector])), COST)
    how = f"{len(evolved.history)} iterations, {evolved.stopped}"
    kept = "" if better else "; not surely better than the start, which stays"
    made = pack(evolved.vector if better else begun, how + kept)
    proven = recipe.compare_with_cascade(mixture, states, None, say_progress)
    print(proven.table())
    save_checkpoint(recipe.with_comparison(made, proven.record()), asked.out / "checkpoint.safetensors")
    print(asked.out / "checkpoint.safetensors")


def tell(row: EvolutionIteration) -> None:
    """One line an iteration."""
    say_progress(f"iteration {row.iteration}: best {row.best:.4f}, mean {row.mean:.4f}, held {row.validation}")


if __name__ == "__main__":
    main()
