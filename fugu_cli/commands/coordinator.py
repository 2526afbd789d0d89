"""`fugu coordinator show` and `bench`: what a checkpoint is, whether it fits here, and what a decision costs here.

`import` and `export` are in coordinator_files.py. What is wrong with a file or does not fit ends with exit code 1.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fugu_cli.commands.here import here, newline
from fugu_cli.config import Config
from fugu_cli.config.pool import pool
from fugu_cli.coordinators import loading, trinity
from fugu_cli.errors import ConfigError, CoordinatorUnavailable, UsageError
from fugu_cli.models.store import Store

if TYPE_CHECKING:
    from fugu_cli.coordinators.checkpoint import Checkpoint
    from fugu_cli.coordinators.decoder import Shape


LONGEST = 32768
"""Tokens of the longest text that is measured."""


@contextmanager
def usable() -> Iterator[None]:
    """What the learned coordinator cannot use is a mistake of the command line here."""
    try:
        with loading.libraries():
            yield
    except CoordinatorUnavailable as error:
        raise UsageError(str(error), hint=error.hint) from error


def show(file: Path | None, as_json: bool) -> int:
    """Describe a checkpoint or a flat vector; the configured one without FILE."""
    config = here().config
    with usable():
        path = chosen(file, config)
        about = _vector(path) if path.suffix == ".npy" else _checkpoint(path, config)
    if as_json:
        print(json.dumps(about, indent=2))
        return 0
    width = max(len(name) for name in about)
    for name, value in about.items():
        newline(f"{name.replace('_', ' '):<{width}}  {_words(value)}".rstrip())
    return 0


def chosen(file: Path | None, config: Config) -> Path:
    """The file named, else the configured checkpoint, else the shipped one."""
    return file or config.checkpoint or trinity.SHIPPED


def _checkpoint(path: Path, config: Config) -> dict[str, Any]:
    from fugu_cli.coordinators import checkpoint

    made = checkpoint.load(path)
    meta = made.meta
    return {
        "file": str(path),
        "digest": made.digest,
        "backbone": f"{meta.backbone_name or 'unnamed'} {meta.backbone}",
        "fits": _fit(made, config),
        "rows": list(meta.rows),
        "rows_are": meta.kind,
        "roles": meta.roles,
        "format": meta.format,
        "reads": "Workers' replies" if meta.workers_only else "every reply",
        "token_budget": meta.budget,
        "tied_embeddings": meta.tied,
        "numbers": made.vector.size,
        "offsets": _moved(made),
        "trained": meta.training.stage or "unknown",
        "trained_on": meta.training.data or "unknown",
        "examples": meta.training.examples,
        "report": dict(meta.training.report),
    }


def _moved(made: Checkpoint) -> dict[str, float]:
    """The largest offset of every block: 0 leaves a matrix as it is."""
    from fugu_cli.coordinators import svf

    return {name: round(float(abs(block).max()), 4) for name, block in zip(svf.BLOCKS, made.offsets, strict=True)}


def _fit(made: Checkpoint, config: Config) -> str:
    """Whether the configured backbone and pool can be used with it, as far as that is known without loading."""
    try:
        found = configured(config)
        if found is None:
            return "unknown: the backbone is not on this machine"
        identity, shape = found
        if shape is not None:
            made.check(identity, shape)
        elif made.meta.backbone != identity:
            return "no: it was made for another backbone than the configured one"
        made.check_pool([entry.name for entry in pool(config, os.environ)])
    except (CoordinatorUnavailable, ConfigError) as error:
        return f"no: {error}"
    return "yes"


def configured(config: Config) -> tuple[str, Shape | None] | None:
    """The configured backbone's identity and shape; nothing is fetched or converted for it."""
    from fugu_cli.coordinators import convert

    if config.backbone is None:
        folder = config.cache / "backbones" / f"{trinity.EMBEDDED}-{convert.FORMAT}"
        shape = loading.shape_of(folder) if convert.read_note(folder) is not None else None
        return Store(config.cache).model(trinity.EMBEDDED).sha256, shape
    folder = Path(config.backbone).expanduser()
    if not folder.is_dir():
        return None
    return loading.identity(folder, config.cache / "backbones"), loading.shape_of(folder)


def _vector(path: Path) -> dict[str, Any]:
    import numpy as np

    from fugu_cli.coordinators import checkpoint, published

    found = checkpoint.read_npy(path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "file": str(path),
        "numbers": int(found.size),
        "shape": list(found.shape),
        "type": str(found.dtype),
        "sha256": sha256,
        "published": sha256 == published.SHA256,
        "finite": bool(np.isfinite(found).all()),
        "largest": float(np.abs(found).max()) if found.size else 0.0,
    }


def _words(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return ", ".join(f"{name} {_words(one)}" for name, one in value.items()) or "none"
        case list():
            return ", ".join(str(one) for one in value)
        case float():
            return f"{value:g}"
    return str(value)


def bench(asked: str, repeats: int, as_json: bool) -> int:
    """Measure decisions on this machine with the configured backbone and checkpoint."""
    from fugu_cli.coordinators import latency

    config = here().config
    lengths = [int(one) if one.strip().isdecimal() else 0 for one in asked.split(",")]
    if min(lengths) < 2 or max(lengths) > LONGEST:
        raise UsageError(f"--lengths takes numbers of tokens from 2 to {LONGEST}", hint="--lengths 512,2048")
    with usable():
        folder = trinity.backbone_folder(trinity.Places(config.checkpoint, config.backbone, config.cache))
        try:
            report = latency.measure(chosen(None, config), folder, config.cache, (lengths, repeats))
        except MemoryError as error:
            raise UsageError(f"{error}", hint="close other programs, or measure shorter texts") from error
    print(json.dumps(report.as_json(), indent=2) if as_json else report.text())
    return 0
