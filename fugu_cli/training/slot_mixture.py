"""From files to a mixture and back to a checkpoint: what `fugu train evolve` and the shipped checkpoint's recipe share.

Beside mixture.py, which knows no files. The rows are the slots. What a checkpoint to begin with says of its transcripts
and its offsets holds for everything that is read and for what is written: its head knows no other states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators import svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, Meta, Training
from fugu_cli.coordinators.slots import SLOTS
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import ConfigError
from fugu_cli.training import fit, matrix, outcomes
from fugu_cli.training.matrix import Seat
from fugu_cli.training.mixture import Blend, Ingredients, Mixture
from fugu_cli.training.optimise import Numbers
from fugu_cli.training.replay_sessions import ReplaySessionWriter
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
        like = blend.reading
        terms = Terms(turns=blend.turns, cost=blend.course.price)
        recipe = Recipe(seats, terms, like.format, like.workers_only, like.budget, seed=blend.seed)
        start = WarmStart(recipe, backbone, Path())
        told = start.examples(start.tell_all(tasks), lambda _: None, hidden_states)
    writer = ReplaySessionWriter(seats, backbone, replace(blend.reading, request=REQUEST), blend.seed)
    mixture = Mixture(Ingredients(seats, recorded, tasks, told), blend, writer, hidden_states)
    return mixture, mixture.told()


def begun(path: Path) -> Checkpoint:
    """A checkpoint to begin with. Raises ConfigError where it is not over slots and roles."""
    found = checkpoints.load(path)
    if found.meta.rows != SLOTS or not found.meta.roles:
        raise ConfigError(f"{path} is no checkpoint over slots and roles", hint="leave --start out")
    return found


def fresh(head: Vector, backbone: Backbone) -> Checkpoint:
    """A new checkpoint over slots, without offsets."""
    sizes = svf.ranks(backbone.decoder.shape)
    meta = Meta(backbone=backbone.identity, width=backbone.decoder.shape.width, ranks=sizes, rows=SLOTS)
    return Checkpoint(meta, head, tuple(np.zeros(size, np.float32) for size in sizes))


def made_of(mixture: Mixture, start: Checkpoint | None) -> str:
    """For a checkpoint's record."""
    about = mixture.about()
    data = f"{about['issues']} recorded issues with random pools; {len(mixture.made_of.tasks)} tasks of a pass matrix"
    return data if start is None else f"{data}; from {start.digest[:12]}"


def packed(base: Checkpoint, layout: Layout, point: Numbers, training: Training) -> Checkpoint:
    """A point of the search as a checkpoint that reads like `base`."""
    vector = vector_of(base.offsets, layout.offsets(point), layout.head(point))
    return checkpoints.make(vector, base.meta.model_copy(update={"training": training}))
