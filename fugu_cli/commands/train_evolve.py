"""`fugu train evolve`: what is evolved, what it is judged by, and the folder that everything is kept in."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from fugu_cli.commands.coordinator import usable
from fugu_cli.commands.evalflags import EvolveFlags
from fugu_cli.commands.here import here
from fugu_cli.commands.train_learning import checks, reading, save, say, spectra_of
from fugu_cli.config import Config
from fugu_cli.config.pool import pool
from fugu_cli.coordinators import trinity
from fugu_cli.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from fugu_cli.coordinators.backbone import Backbone
    from fugu_cli.coordinators.checkpoint import Checkpoint
    from fugu_cli.coordinators.svf import Vector
    from fugu_cli.training.cascade_comparison import Proven
    from fugu_cli.training.evolve import Evolved, Iteration, Settings, Trial
    from fugu_cli.training.mixture import Blend, Mixture
    from fugu_cli.training.optimise import Numbers
    from fugu_cli.training.search_vector import HiddenStates, Layout

NAME = "checkpoint.safetensors"


@dataclass(frozen=True)
class Subject:
    """What is evolved: where the search begins, how its points become checkpoints, and in what it is judged."""

    start: Numbers
    layout: Layout
    trial: Trial
    pack: Callable[[Numbers, str], Checkpoint]
    about: dict[str, JsonValue]
    prove: Callable[[], Proven] | None = None


def evolve(flags: EvolveFlags) -> int:
    """Run or go on with an evolution: exit code 0, or 4 where it was interrupted. Failures are those of the tree."""
    from fugu_cli.commands.eval import INTERRUPTED

    try:
        return _evolve(flags)
    except KeyboardInterrupt:
        say("interrupted; everything is kept, and the same command goes on")
        return INTERRUPTED


def _evolve(flags: EvolveFlags) -> int:
    kinds = [bool(flags.suites), flags.outcomes is not None or flags.matrix is not None]
    if sum(kinds) != 1:
        raise UsageError("say what candidates are judged by: TASKS, or --outcomes FILE and/or --matrix FILE")
    if flags.prove and flags.suites:
        raise UsageError("--prove goes with --outcomes and --matrix", hint="`fugu eval` compares on TASKS")
    loaded = here()
    config, out = loaded.config, (flags.out or Path("fugu-evolve")).resolve()
    interpreter = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([interpreter, os.environ.get("PATH", os.defpath)])  # tasks say `python`
    with usable():
        found = _played(flags, config, out) if flags.suites else _replayed(flags, config)
        evolved = _run(flags, found, out)
        made = found.pack(*_settled(found, evolved, flags.cost))
        proven = found.prove() if flags.prove and found.prove is not None else None
    say(f"{len(evolved.history)} iterations; {evolved.stopped}")
    if proven is not None:
        print(proven.table())
        if proven.worse:
            (out / NAME).unlink(missing_ok=True)
            raise ConfigError(
                f"the rule cascade does better on {' and '.join(proven.worse)}: no checkpoint is left",
                hint='train on more, with another --seed, or use `coordinator = "cascade"`',
            )
        made = recorded(made, proven.record())
    save(made, out / NAME)
    print(out / NAME)
    return 0


def _settled(found: Subject, evolved: Evolved, price: float) -> tuple[Numbers, str]:
    """The evolved point and how it came about; the start where validation is not sure that evolution was better."""
    import numpy as np

    from fugu_cli.training.replay_training import surely

    how = f"{len(evolved.history)} iterations, {evolved.stopped}"
    both = found.layout.breed(np.stack([found.start, evolved.vector]))
    if surely(found.trial, both, price):
        return evolved.vector, how
    return found.start, f"{how}; not surely better than the start, which stays"


def recorded(made: Checkpoint, lines: dict[str, float]) -> Checkpoint:
    """With the proof in its record."""
    from fugu_cli.coordinators import checkpoint as checkpoints

    training = made.meta.training.model_copy(update={"report": (*made.meta.training.report, *lines.items())})
    return checkpoints.make(made.vector, made.meta.model_copy(update={"training": training}))


def _run(flags: EvolveFlags, found: Subject, out: Path) -> Evolved:
    from fugu_cli.training.evolve import Evolution
    from fugu_cli.training.runs import Folder

    settings = _settings(flags)
    fixed = settings.model_dump(mode="json", exclude={"iterations", "patience"})
    folder = Folder(out, {**found.about, "settings": fixed}, lambda mean, path: save(found.pack(mean, "running"), path))
    with folder.held():
        return Evolution(settings, found.trial, found.layout.breed, folder).run(found.start, _tell)


def _settings(flags: EvolveFlags) -> Settings:
    from fugu_cli.training.evolve import Settings, Shaping

    return Settings(
        population=flags.population,
        iterations=flags.iterations,
        replications=flags.replications,
        sigma=flags.sigma,
        seed=flags.seed,
        patience=flags.patience,
        shaping=Shaping(diversity=flags.diversity, turns=flags.turns, cost=flags.cost),
    )


def _tell(row: Iteration) -> None:
    held = "" if row.validation is None else f", held {row.validation:.4f}"
    say(
        f"iteration {row.iteration}: best {row.best:.4f}, mean {row.mean:.4f}{held}; sigma {row.sigma:.3g}; "
        f"solved {row.reward:.1%}, cost {row.mean_cost:.3f}, turns {row.mean_turns:.2f}; {row.seconds:.1f} s"
    )


def _replayed(flags: EvolveFlags, config: Config) -> Subject:
    """Recorded outcomes under random pools, a pass matrix, or both."""
    from fugu_cli.coordinators.checkpoint import Training
    from fugu_cli.training import cascade_comparison, replay_training
    from fugu_cli.training.slot_mixture import begun, fresh, made_of, mixture_of, packed

    start = begun(flags.start) if flags.start else None
    backbone, hidden_states = reading(config, start, searched=flags.offsets)
    read = (backbone, hidden_states)
    blend = _blend(flags, start)
    mixture, told = mixture_of(flags.outcomes, flags.matrix, tuple(flags.rows or ()), blend, read)
    if flags.prove:
        mixture.provable()
    base = start or fresh(replay_training.warm_start(told, mixture.blend.course), backbone)
    layout = _layout(flags, config, read, (told.hidden, len(base.head)))
    data, count = made_of(mixture, start), 0 if start else len(told.hidden)

    def pack(point: Numbers, how: str) -> Checkpoint:
        training = Training(stage="evolved", data=f"{data}; {how}", examples=count, seed=flags.seed)
        return packed(base, layout, point, training)

    return Subject(
        layout.start(base.head, base.offsets),
        layout,
        mixture.trial(),
        pack,
        {"layout": type(layout).__name__, "start": start.digest if start else None, **_about(mixture)},
        lambda: cascade_comparison.prove(mixture, hidden_states, _before(config, base, hidden_states), say),
    )


def _before(config: Config, base: Checkpoint, hidden_states: HiddenStates) -> Vector | None:
    """The head in use, where it is over the same slots and reads the same states."""
    from fugu_cli.coordinators import checkpoint as checkpoints
    from fugu_cli.training import states

    used = checkpoints.load(config.checkpoint or trinity.SHIPPED)
    same = {"rows", "roles", "backbone", "format", "workers_only", "budget"}
    fits = used.meta.model_dump(include=same) == base.meta.model_dump(include=same)
    return used.head if fits and states.named(used.offsets, used.meta.tied) == hidden_states.offsets else None


def _about(mixture: Mixture) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = dict(mixture.about())
    return found


def _blend(flags: EvolveFlags, start: Checkpoint | None) -> Blend:
    from fugu_cli.training.mixture import Blend
    from fugu_cli.training.replay_sessions import Reading
    from fugu_cli.training.replay_training import Course

    course = Course(price=flags.cost, settings=_settings(flags))
    like = Reading(start.meta.format, start.meta.workers_only, start.meta.budget) if start else Reading()
    return Blend(checks(flags.check)[0], course, like, shown=flags.replications, seed=flags.seed)


def _layout(
    flags: EvolveFlags, config: Config, read: tuple[Backbone, HiddenStates], like: tuple[Vector, int]
) -> Layout:
    """The head alone, or with the offsets of the second-to-last layer; `like` are states and the head's rows."""
    from fugu_cli.coordinators import svf
    from fugu_cli.training.search_vector import HeadLayout, LayerLayout

    backbone, hidden_states = read
    if not flags.offsets:
        return HeadLayout(hidden_states, like[1], like[0])
    adapter = svf.Adapter(backbone.decoder, spectra_of(config, backbone))
    return LayerLayout(backbone, adapter, like[1], like[0])


def _played(flags: EvolveFlags, config: Config, out: Path) -> Subject:
    """Real sessions on tasks: every candidate's checkpoint in the engine, every reply paid for once."""
    from fugu_cli.commands.eval import fixed
    from fugu_cli.commands.opening import settings
    from fugu_cli.commands.rolled import Rolled
    from fugu_cli.coordinators import checkpoint as checkpoints

    entries = pool(config, dict(os.environ))
    members = tuple(entry.member() for entry in entries)
    base = checkpoints.load(flags.start or config.checkpoint or trinity.SHIPPED)
    read = reading(config, base, searched=flags.offsets)
    trial = Rolled(flags, config, out, base)
    layout = _layout_of(flags, config, read, base)
    return Subject(
        layout.start(base.head, base.offsets),
        layout,
        trial,
        lambda point, how: trial.pack(layout.head(point), layout.offsets(point), how),
        {
            "pool": [member.model_dump(mode="json") for member in members],
            "entries": {entry.name: dict(settings(entry)) for entry in entries},
            "limits": dict(fixed(config)),
            "tasks": dict(trial.tasks),
            "start": base.digest,
        },
    )


def _layout_of(flags: EvolveFlags, config: Config, read: tuple[Backbone, HiddenStates], base: Checkpoint) -> Layout:
    """Units from a few requests as the backbone reads them: sessions have not been read yet."""
    from fugu_cli.training import matrix_sessions

    general = matrix_sessions.general_requests()
    texts = [f"user: {text}" for part in (general.questions, general.changes) for text in part[:12]]
    return _layout(flags, config, read, (read[1](texts), len(base.head)))
