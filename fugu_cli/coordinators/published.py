"""The published TRINITY checkpoint: 19,456 numbers for Qwen3-0.6B and seven agents (arXiv 2512.04695). Never shipped.

Its licence is unclear, so the user brings the file; its hash is checked and its rows are named by the user's own pool.

The numbers do not say how they were trained to read. The default, raw with the Workers' replies alone, is the
combination of no one source; `fugu coordinator import` takes --format chat and --tied authors, as the authors' code
has it, and --all-replies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fugu_cli.coordinators import checkpoint, svf
from fugu_cli.coordinators.checkpoint import Checkpoint, Meta, Training
from fugu_cli.coordinators.decoder import Shape
from fugu_cli.errors import ConfigError, CoordinatorUnavailable

SHA256 = "769f64ee4e01080ff67e64a677ed3ce5268da69cdf7a44810accb096ef64ab10"
QWEN3 = {"width": 1024, "layers": 28, "heads": 16, "kv_heads": 8, "head_dim": 128, "inner": 3072, "vocab": 151936}
"""Qwen3-0.6B's own numbers: another backbone may have a vector of the same length."""
ROWS = (
    "gpt-5",
    "claude-sonnet-4",
    "gemini-2.5-pro",
    "deepseek-r1-distill-qwen-32b",
    "gemma-3-27b",
    "qwen3-32b-reasoning",
    "qwen3-32b-direct",
)


def import_published(
    path: Path, mapping: Mapping[str, str], backbone: str, shape: Shape, *, sha256: str = SHA256
) -> Checkpoint:
    """The vector at `path` as a checkpoint for the given backbone.

    `mapping` gives published agents the names of the user's; rows that are not mapped keep theirs and are masked when
    no such agent is in the pool. Raises ConfigError for an unknown name in `mapping` or another file than the published
    one, CoordinatorUnavailable for a vector or a backbone of another layout.
    """
    unknown = [name for name in mapping if name not in ROWS]
    if unknown:
        raise ConfigError(
            f"--map {unknown[0]}=...: the published agents are {', '.join(ROWS)}", hint="name one of them"
        )
    vector = checkpoint.read_npy(path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise ConfigError(
            f"{path} is not the published vector: its sha256 is {found}", hint=f"the published one has {sha256}"
        )
    meta = Meta(
        backbone=backbone,
        backbone_name="Qwen3-0.6B",
        width=shape.width,
        ranks=svf.ranks(shape),
        rows=ROWS,
        kind="agents",
        workers_only=True,
        budget=8192,
        training=Training(stage="sep-CMA-ES, 60 iterations (TRINITY, arXiv 2512.04695)"),
    )
    other = [name for name, number in QWEN3.items() if getattr(shape, name) != number] if sha256 == SHA256 else []
    if other or vector.size != sum(meta.ranks) + meta.head_rows * meta.width:
        raise CoordinatorUnavailable(
            f"the published vector has {vector.size} numbers for Qwen3-0.6B; this backbone, {shape.width} wide with "
            f"{shape.layers} layers, needs another",
            hint="set `Qwen/Qwen3-0.6B` or its folder as the backbone",
        )
    return checkpoint.make(vector, checkpoint.renamed(meta, mapping))
