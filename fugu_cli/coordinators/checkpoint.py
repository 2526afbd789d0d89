"""A checkpoint: the head, the SVF offsets, and everything they are valid for. Stored as safetensors
with JSON metadata; `.npy` holds the flat vector alone. Also imports the published TRINITY vector,
which fugu does not ship. A checkpoint that does not fit its backbone is refused. What it is valid
for is read without numpy.

The published vector (19,456 numbers for Qwen3-0.6B and seven agents) does not say how it was
trained to read. The default, raw with the Workers' replies alone, is the combination of no one
source; `fugu coordinator import` takes --format chat and --tied authors, as the authors' code has
it, and --all-replies.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from fugu_cli.coordinators.transcript import TranscriptFormat
from fugu_cli.errors import ConfigError, CoordinatorUnavailable
from fugu_cli.messages import Value
from fugu_cli.session.events import ROLES
from fugu_cli.system import atomic_files

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fugu_cli.coordinators import svf
    from fugu_cli.coordinators.backbone_files import ModelShape

FORMAT_VERSION = 1
LARGEST = 1e4
"""No sane weight or offset is larger; one that is comes from a broken file."""
_OTHER_CHECKPOINT = (
    "train one for this backbone, or leave `checkpoint` out: success rates and costs decide then"
)


class TrainingOrigin(Value):
    """The origin of a checkpoint, for people: how it was made, on which data, with which result."""

    stage: str = ""
    data: str = ""
    examples: int = 0
    seed: int = 0
    report: tuple[tuple[str, float], ...] = ()


class CheckpointMeta(Value):
    """The conditions under which the numbers are valid."""

    format_version: int = FORMAT_VERSION
    backbone: str
    """The sha256 of loading.identity."""
    backbone_name: str = ""
    width: int
    ranks: tuple[int, ...]
    """Sizes of the nine blocks of offsets (svf.ranks)."""
    rows: tuple[str, ...]
    """Agents of one pool, in the head's order."""
    roles: bool = True
    format: TranscriptFormat = "raw"
    workers_only: bool = False
    budget: int = 1536
    """Tokens of the transcript."""
    tied: Literal["untied", "authors"] = "untied"
    training: TrainingOrigin = TrainingOrigin()

    @property
    def head_rows(self) -> int:
        """Rows of the head: the agents', then the three roles'."""
        return len(self.rows) + (len(ROLES) if self.roles else 0)

    def check_pool(self, names: Sequence[str]) -> None:
        """Raise CoordinatorUnavailable if no agent of the pool has a row, because the checkpoint
        was trained for another pool.
        """
        if not set(self.rows) & set(names):
            raise CoordinatorUnavailable(
                f"the checkpoint chooses among {', '.join(self.rows)}; none is in the pool "
                f"({', '.join(names)})",
                hint=_OTHER_CHECKPOINT,
            )


@dataclass(frozen=True)
class Checkpoint:
    """`head` (head_rows, width) and `offsets`, nine vectors of the sizes in `meta.ranks`; all
    fp32.
    """

    meta: CheckpointMeta
    head: svf.Vector
    offsets: tuple[svf.Vector, ...]

    @property
    def vector(self) -> svf.Vector:
        """The flat vector: offsets, then the head row by row."""
        from fugu_cli.coordinators import svf

        return svf.join(self.offsets, self.head)

    @property
    def digest(self) -> str:
        """Names the numbers and what they are valid for, whatever file they lie in."""
        about = self.meta.model_dump_json(exclude={"training"}).encode()
        return hashlib.sha256(about + self.vector.tobytes()).hexdigest()

    def check(self, backbone: str, shape: ModelShape) -> None:
        """Raises CoordinatorUnavailable where this checkpoint was made for another backbone."""
        from fugu_cli.coordinators import svf

        if self.meta.backbone != backbone:
            raise CoordinatorUnavailable(
                f"the checkpoint was made for the backbone {self.meta.backbone_name or '?'} "
                f"({self.meta.backbone[:12]}), this one is {backbone[:12]}",
                hint=_OTHER_CHECKPOINT,
            )
        if self.meta.width != shape.width or self.meta.ranks != svf.ranks(shape):
            raise CoordinatorUnavailable(
                "the checkpoint's layout is not that of this backbone", hint=_OTHER_CHECKPOINT
            )


def make(vector: NDArray[np.floating], meta: CheckpointMeta) -> Checkpoint:
    """Return a checkpoint of a flat vector. Raises CoordinatorUnavailable for a wrong length, NaN
    or huge numbers.
    """
    import numpy as np

    from fugu_cli.coordinators import svf

    _check_length(vector.size, meta)
    if not np.isfinite(vector).all() or np.abs(vector).max() > LARGEST:
        raise CoordinatorUnavailable(
            "the checkpoint holds numbers that are not finite or far too large",
            hint=_OTHER_CHECKPOINT,
        )
    offsets, head = svf.split(vector.astype(np.float32), meta.ranks, meta.width)
    return Checkpoint(meta, head, offsets)


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Write our own form, atomically."""
    from safetensors.numpy import save as pack

    data = pack({"vector": checkpoint.vector}, metadata={"fugu": checkpoint.meta.model_dump_json()})
    with atomic_files.replacement_file(path) as draft:
        draft.write_bytes(data)


def load(path: Path) -> Checkpoint:
    """Read our own form. Raises CoordinatorUnavailable, saying what is wrong with the file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpack

    meta = read_meta(path)
    try:
        vector = unpack(path.read_bytes())["vector"]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise _broken(path, error) from error
    return make(vector, meta)


def read_meta(path: Path) -> CheckpointMeta:
    """Return what the numbers of a file are valid for. Raise CoordinatorUnavailable, also for an
    older checkpoint that reads a digest or whose rows are slots.
    """
    try:
        data = path.read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + size])
        text, (numbers,) = header["__metadata__"]["fugu"], header["vector"]["shape"]
    except FileNotFoundError as error:
        raise CoordinatorUnavailable(
            f"there is no checkpoint at {path}", hint=_OTHER_CHECKPOINT
        ) from error
    except (OSError, KeyError, TypeError, ValueError, struct.error) as error:
        raise _broken(path, error) from error
    meta = _meta(text, path)
    _check_length(numbers, meta)
    return meta


def _check_length(numbers: int, meta: CheckpointMeta) -> None:
    expected = sum(meta.ranks) + meta.head_rows * meta.width
    if numbers != expected:
        raise CoordinatorUnavailable(
            f"the checkpoint holds {numbers} numbers, {len(meta.rows)} rows on this backbone "
            f"need {expected}",
            hint=_OTHER_CHECKPOINT,
        )


def _broken(path: Path, error: Exception) -> CoordinatorUnavailable:
    return CoordinatorUnavailable(
        f"{path} is not a whole checkpoint of fugu: {error}", hint=_OTHER_CHECKPOINT
    )


def load_vector(path: Path, meta: CheckpointMeta) -> Checkpoint:
    """Return a flat vector from `.npy`, valid for what `meta` says."""
    return make(read_npy(path), meta)


def save_vector(checkpoint: Checkpoint, path: Path) -> None:
    """Save the flat vector as `.npy`, in float64 like the published one."""
    import numpy as np

    with path.open("wb") as file:
        np.save(file, checkpoint.vector.astype(np.float64), allow_pickle=False)


def read_npy(path: Path) -> NDArray[np.floating]:
    """Return the numbers of a `.npy` file. Pickles are never opened. Raises CoordinatorUnavailable
    for any other file.
    """
    import numpy as np

    try:
        with path.open("rb") as file:
            array = np.load(file, allow_pickle=False)
    except FileNotFoundError as error:
        raise CoordinatorUnavailable(f"there is no file {path}", hint=_OTHER_CHECKPOINT) from error
    except (OSError, ValueError, EOFError) as error:
        raise CoordinatorUnavailable(
            f"{path} is not a whole .npy file: {error}", hint=_OTHER_CHECKPOINT
        ) from error
    if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, np.floating):
        raise CoordinatorUnavailable(
            f"{path} does not hold floating-point numbers", hint=_OTHER_CHECKPOINT
        )
    return array


def _meta(text: str, path: Path) -> CheckpointMeta:
    try:
        described = json.loads(text)
        version = described.get("format_version")
        if version != FORMAT_VERSION:
            raise CoordinatorUnavailable(
                f"{path} has format version {version}, this fugu reads {FORMAT_VERSION}",
                hint="update fugu",
            )
        if described.get("format") == "digest":
            raise CoordinatorUnavailable(
                f"the checkpoint {path} reads a digest, which is no longer used",
                hint="leave `checkpoint` out: counted outcomes decide better",
            )
        if described.pop("kind", "agents") == "slots":
            raise CoordinatorUnavailable(
                f"the rows of the checkpoint {path} are slots, which no checkpoint chooses among now",
                hint="leave `checkpoint` out, or train one for your agents: `fugu help training`",
            )
        return CheckpointMeta.model_validate(described)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise CoordinatorUnavailable(
            f"{path} does not say what it is valid for: {where}: {fault['msg']}",
            hint=_OTHER_CHECKPOINT,
        ) from error
    except (ValueError, AttributeError) as error:
        raise CoordinatorUnavailable(
            f"{path} does not say what it is valid for: {error}", hint=_OTHER_CHECKPOINT
        ) from error


def renamed_rows(meta: CheckpointMeta, mapping: Mapping[str, str]) -> CheckpointMeta:
    """Return the same rows under the names that the user's pool has for them."""
    return meta.model_copy(update={"rows": tuple(mapping.get(row, row) for row in meta.rows)})


PUBLISHED_SHA256 = "769f64ee4e01080ff67e64a677ed3ce5268da69cdf7a44810accb096ef64ab10"
PUBLISHED_SHAPE = {
    "width": 1024,
    "layers": 28,
    "heads": 16,
    "kv_heads": 8,
    "head_dim": 128,
    "inner": 3072,
    "vocab": 151936,
}
"""Qwen3-0.6B's own numbers: another backbone may have a vector of the same length."""
PUBLISHED_ROWS = (
    "gpt-5",
    "claude-sonnet-4",
    "gemini-2.5-pro",
    "deepseek-r1-distill-qwen-32b",
    "gemma-3-27b",
    "qwen3-32b-reasoning",
    "qwen3-32b-direct",
)


def import_published(
    path: Path,
    mapping: Mapping[str, str],
    backbone: str,
    shape: ModelShape,
    *,
    sha256: str = PUBLISHED_SHA256,
) -> Checkpoint:
    """Return the published vector at `path` as a checkpoint for the given backbone.

    `mapping` maps published agents to the user's. Rows that are not mapped keep their name and are
    masked if no such agent is in the pool. Raises ConfigError for an unknown name in `mapping` or a
    file that is not the published one, and CoordinatorUnavailable for a vector or a backbone of
    another layout.
    """
    from fugu_cli.coordinators import svf

    unknown = [name for name in mapping if name not in PUBLISHED_ROWS]
    if unknown:
        raise ConfigError(
            f"--map {unknown[0]}=...: the published agents are {', '.join(PUBLISHED_ROWS)}",
            hint="name one of them",
        )
    vector = read_npy(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != sha256:
        raise ConfigError(
            f"{path} is not the published vector: its sha256 is {digest}",
            hint=f"the published one has {sha256}",
        )
    meta = CheckpointMeta(
        backbone=backbone,
        backbone_name="Qwen3-0.6B",
        width=shape.width,
        ranks=svf.ranks(shape),
        rows=PUBLISHED_ROWS,
        workers_only=True,
        budget=8192,
        training=TrainingOrigin(stage="sep-CMA-ES, 60 iterations (TRINITY, arXiv 2512.04695)"),
    )
    has_other_shape = sha256 == PUBLISHED_SHA256 and any(
        getattr(shape, name) != number for name, number in PUBLISHED_SHAPE.items()
    )
    if has_other_shape or vector.size != sum(meta.ranks) + meta.head_rows * meta.width:
        raise CoordinatorUnavailable(
            f"the published vector has {vector.size} numbers for Qwen3-0.6B; this backbone, "
            f"{shape.width} wide with "
            f"{shape.layers} layers, needs another",
            hint="set `Qwen/Qwen3-0.6B` or its folder as the backbone",
        )
    return make(vector, renamed_rows(meta, mapping))
