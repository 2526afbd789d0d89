"""From files to a mixture and back to a checkpoint: what `fugu train evolve` and the shipped checkpoint's recipe share.

Beside mixture.py, which knows no files. The rows are the slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators import svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, Meta, Training
from fugu_cli.coordinators.slots import SLOTS
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import ConfigError
from fugu_cli.training import fit, matrix, outcomes, replay_training
from fugu_cli.training.matrix import Seat
from fugu_cli.training.mixture import Blend, Ingredients, Mixture
from fugu_cli.training.optimise import Numbers
from fugu_cli.training.replay_sessions import Reading, ReplaySessionWriter
from fugu_cli.training.search_vector import HiddenStates, Layout, vector_of
from fugu_cli.training.sft import Recipe, WarmStart, seat
from fugu_cli.training.values import Terms

REQUEST = 64
"""Tokens of a recorded issue's text that are read: nothing of its difficulty is in it."""

Tell = Callable[[str], None]


def mixture_of(
    issues: Path | None, table: Path | None, rows: Sequence[str], blend: Blend, reading: tuple[Backbone, HiddenStates]
) -> tuple[Mixture, fit.Examples]:
    """The mixture of the files, and its warm start's examples. `rows` as in `fugu train sft`, for the pass matrix."""
    backbone, hidden_states = reading
    seats = tuple(seat(text) for text in rows) or tuple(Seat(slot, slot) for slot in SLOTS)
    if tuple(one.row for one in seats) != SLOTS:
        raise ConfigError(f"the rows are the slots {', '.join(SLOTS)}, in this order", hint="--row cheap=AGENT ...")
    tasks = matrix.rates(matrix.read(table), seats) if table is not None else ()
    recorded = outcomes.read(issues) if issues is not None else ()
    told = None
    if tasks:
        recipe = Recipe(seats, Terms(turns=blend.turns, cost=blend.course.price), seed=blend.seed)
        start = WarmStart(recipe, backbone, Path())
        told = start.examples(start.tell_all(tasks), lambda _: None, hidden_states)
    writer = ReplaySessionWriter(seats, backbone, Reading(request=REQUEST), blend.seed)
    mixture = Mixture(Ingredients(seats, recorded, tasks, told), blend, writer, hidden_states)
    return mixture, mixture.told()


def starting(start: Path | None, told: fit.Examples, mixture: Mixture, backbone: Backbone) -> tuple[Vector, str]:
    """The head to begin with, and what it was made of: a checkpoint's, or the warm start's."""
    about = mixture.about()
    data = f"{about['issues']} recorded issues with random pools; {len(mixture.made_of.tasks)} tasks of a pass matrix"
    if start is None:
        return replay_training.warm_start(told, mixture.blend.course), data
    found = checkpoints.load(start)
    found.check(backbone.identity, backbone.decoder.shape)
    if found.meta.rows != SLOTS or not found.meta.roles:
        raise ConfigError(f"{start} is no checkpoint over slots and roles", hint="leave --start out")
    return found.head, f"{data}; from {found.digest[:12]}"


def packed(layout: Layout, point: Numbers, mixture: Mixture, about: tuple[Backbone, str, int]) -> Checkpoint:
    """A point of the search as a checkpoint over slots; `about` it: the backbone, the data, how many examples."""
    backbone, data, count = about
    shape = backbone.decoder.shape
    sizes = svf.ranks(shape)
    training = Training(stage="evolved", data=data, examples=count, seed=mixture.blend.seed)
    meta = Meta(backbone=backbone.identity, width=shape.width, ranks=sizes, rows=SLOTS, training=training)
    return checkpoints.make(vector_of(layout, point, sizes), meta)
