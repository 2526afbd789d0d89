"""`fugu coordinator import` and `export`: bring a checkpoint or a vector in, take one out.

Paths go to standard output, notes to standard error, so that the output can be used in scripts. What is wrong with a
file or does not fit ends with exit code 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.commands.coordinator import chosen, configured, usable
from fugu_cli.commands.here import here
from fugu_cli.config import Config
from fugu_cli.config.pool import pool
from fugu_cli.coordinators import loading, trinity
from fugu_cli.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from fugu_cli.coordinators.checkpoint import Checkpoint, Meta
    from fugu_cli.coordinators.decoder import Shape


@dataclass(frozen=True)
class Vector:
    """What a flat vector of one's own does not say itself. `rows` in the head's order; None for the published one."""

    rows: str | None = None
    roles: bool = True
    reading: tuple[tuple[str, object], ...] = ()
    """Fields of a checkpoint's Meta that say how it reads; those that were not said are the source's own."""


@dataclass(frozen=True)
class Incoming:
    """What `import` was told."""

    file: Path
    mapping: tuple[str, ...] = ()
    vector: Vector = Vector()
    out: Path | None = None
    backbone: str | None = None


def bring(incoming: Incoming) -> int:
    """Make a checkpoint of the published vector, a flat vector of one's own, or another checkpoint; print where."""
    config = here({"backbone": incoming.backbone} if incoming.backbone else {}).config
    mapping = _mapping(incoming.mapping)
    with usable():
        made = _brought(incoming, mapping, config)
        from fugu_cli.coordinators import checkpoint

        out = incoming.out or config.data / "coordinators" / f"{incoming.file.stem}.safetensors"
        _writable(out, lambda: checkpoint.save(made, out))
    print(out)
    for note in _notes(made, out, config):
        print(f"fugu: {note}", file=sys.stderr)
    return 0


def _mapping(given: Sequence[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    for row, equals, name in pairs:
        if not (row and equals and name):
            raise UsageError(f"--map {row}{equals}{name} is not ROW=AGENT", hint="--map gpt-5=strong")
    return {row: name for row, _, name in pairs}


def _brought(incoming: Incoming, mapping: Mapping[str, str], config: Config) -> Checkpoint:
    from fugu_cli.coordinators import checkpoint, published

    flat = incoming.file.suffix == ".npy"
    if incoming.vector.rows is None and (not incoming.vector.roles or (incoming.vector.reading and not flat)):
        raise UsageError(
            f"{incoming.file} says itself how it was trained: --roles, --format, --tied, --workers-only and --budget "
            "are for vectors that do not",
            hint="name its rows with --rows, or leave these out",
        )
    if not flat:
        made = checkpoint.load(incoming.file)
        unknown = [row for row in mapping if row not in made.meta.rows]
        if unknown:
            rows = ", ".join(made.meta.rows)
            raise UsageError(f"--map {unknown[0]}=...: the checkpoint's rows are {rows}", hint="name one of them")
        found = configured(config)
        if found is not None and found[1] is not None:
            made.check(found[0], found[1])
        return checkpoint.Checkpoint(_renamed(made.meta, mapping), made.head, made.offsets)
    checkpoint.read_npy(incoming.file)  # a broken file is named before a backbone is looked for
    identity, shape = _backbone(config)
    if incoming.vector.rows is None:
        made = published.import_published(incoming.file, mapping, identity, shape)
        meta = type(made.meta).model_validate({**made.meta.model_dump(), **dict(incoming.vector.reading)})
        return checkpoint.Checkpoint(meta, made.head, made.offsets)
    return checkpoint.load_vector(incoming.file, _meta(incoming, mapping, (identity, shape), config))


def _renamed(meta: Meta, mapping: Mapping[str, str]) -> Meta:
    """Rows under other names are agents of one pool, whatever they were."""
    from fugu_cli.coordinators import checkpoint

    return checkpoint.renamed(meta, mapping).model_copy(update={"kind": "agents"}) if mapping else meta


def _meta(incoming: Incoming, mapping: Mapping[str, str], found: tuple[str, Shape], config: Config) -> Meta:
    from fugu_cli.coordinators import slots, svf
    from fugu_cli.coordinators.checkpoint import Meta

    rows = tuple(name.strip() for name in (incoming.vector.rows or "").split(",") if name.strip())
    unknown = [row for row in mapping if row not in rows]
    if not rows or unknown:
        lacking = unknown[0] if unknown else "anything"
        raise UsageError(f"--rows {incoming.vector.rows} does not name {lacking}", hint="--rows cheap,middle,strong")
    named = tuple(mapping.get(row, row) for row in rows)
    return Meta.model_validate(
        {
            "backbone": found[0],
            "backbone_name": config.backbone or trinity.EMBEDDED,
            "width": found[1].width,
            "ranks": svf.ranks(found[1]),
            "rows": named,
            "kind": "slots" if set(named) <= set(slots.SLOTS) else "agents",
            "roles": incoming.vector.roles,
            "training": {"stage": f"imported from {incoming.file.name}"},
            **dict(incoming.vector.reading),
        }
    )


def _backbone(config: Config) -> tuple[str, Shape]:
    """Identity and shape of the configured backbone, which must be on this machine or the hub."""
    folder = trinity.backbone_folder(trinity.Places(None, config.backbone, config.cache))
    return loading.identity(folder, config.cache / "backbones"), loading.shape_of(folder)


def _notes(made: Checkpoint, out: Path, config: Config) -> Iterator[str]:
    yield f"to decide with it, put into .fugurc: checkpoint = {json.dumps(str(out))}"
    if config.backbone is not None:
        yield f"and its backbone: backbone = {json.dumps(config.backbone)}"
    if made.meta.kind == "agents":
        try:
            names = {entry.name for entry in pool(config, os.environ)}
        except ConfigError as error:
            yield f"the pool cannot be used now: {error}"
            return
        missing = [row for row in dict.fromkeys(made.meta.rows) if row not in names]
        if missing:
            yield f"rows that no agent of the pool takes, masked in every decision: {', '.join(missing)}"


def take(out: Path, file: Path | None, npy: bool) -> int:
    """Write a checkpoint's numbers elsewhere: in fugu's own form, or as the flat vector alone."""
    config = here().config
    with usable():
        from fugu_cli.coordinators import checkpoint

        made = checkpoint.load(chosen(file, config))
        flat = npy or out.suffix == ".npy"
        _writable(out, lambda: checkpoint.save_vector(made, out) if flat else checkpoint.save(made, out))
    print(out)
    return 0


def _writable(out: Path, write: Callable[[], None]) -> None:
    if out.is_dir():
        raise UsageError(f"{out} is a folder", hint="name a file in it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write()
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}", hint="name another file") from error
