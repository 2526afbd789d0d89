"""A checkpoint: what training leaves behind - the head, the SVF offsets, and everything they are valid for.

Our own form is safetensors with one JSON text in its metadata; `.npy` holds the flat vector alone (svf.py). A
checkpoint names its backbone by hash, its rows, its transcript's format and budget; one that does not fit is refused.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fugu_cli import atomic
from fugu_cli.coordinators import svf
from fugu_cli.coordinators.decoder import Shape
from fugu_cli.coordinators.transcript import Format
from fugu_cli.errors import CoordinatorUnavailable
from fugu_cli.events import ROLES
from fugu_cli.messages import Value

FORMAT_VERSION = 1
LARGEST = 1e4
"""No sane weight or offset is larger; one that is comes from a broken file."""
_INSTEAD = "train one for this backbone, or leave the checkpoint out to use the one that ships with fugu"


class Training(Value):
    """Where a checkpoint comes from, for people: how it was made, on what, and what it reached."""

    stage: str = ""
    data: str = ""
    examples: int = 0
    seed: int = 0
    report: tuple[tuple[str, float], ...] = ()


class Meta(Value):
    """What the numbers are valid for."""

    format_version: int = FORMAT_VERSION
    backbone: str
    """The sha256 of loading.identity."""
    backbone_name: str = ""
    width: int
    ranks: tuple[int, ...]
    """Sizes of the nine blocks of offsets (svf.ranks)."""
    rows: tuple[str, ...]
    """In the head's order."""
    kind: Literal["slots", "agents"] = "slots"
    """Slots fit any pool; agents are those of one."""
    roles: bool = True
    format: Format = "raw"
    workers_only: bool = False
    budget: int = 1536
    """Tokens of the transcript."""
    tied: svf.Tied = "untied"
    training: Training = Training()

    @property
    def head_rows(self) -> int:
        """Rows of the head: the agents', then the three roles'."""
        return len(self.rows) + (len(ROLES) if self.roles else 0)


@dataclass(frozen=True)
class Checkpoint:
    """`head` (head_rows, width) and `offsets`, nine vectors of the sizes in `meta.ranks`; all fp32."""

    meta: Meta
    head: svf.Vector
    offsets: tuple[svf.Vector, ...]

    @property
    def vector(self) -> svf.Vector:
        """The flat vector: offsets, then the head row by row."""
        return svf.join(self.offsets, self.head)

    @property
    def digest(self) -> str:
        """Names the numbers and what they are valid for, whatever file they lie in."""
        about = self.meta.model_dump_json(exclude={"training"}).encode()
        return hashlib.sha256(about + self.vector.tobytes()).hexdigest()

    def without_roles(self) -> Checkpoint:
        """Product mode: the rows of agents alone, which are independent of those of the roles."""
        if not self.meta.roles:
            return self
        head = self.head[: len(self.meta.rows)]
        return Checkpoint(self.meta.model_copy(update={"roles": False}), head, self.offsets)

    def check(self, backbone: str, shape: Shape) -> None:
        """Raises CoordinatorUnavailable where this checkpoint was made for another backbone."""
        if self.meta.backbone != backbone:
            raise CoordinatorUnavailable(
                f"the checkpoint was made for the backbone {self.meta.backbone_name or '?'} "
                f"({self.meta.backbone[:12]}), this one is {backbone[:12]}",
                hint=_INSTEAD,
            )
        if self.meta.width != shape.width or self.meta.ranks != svf.ranks(shape):
            raise CoordinatorUnavailable("the checkpoint's layout is not that of this backbone", hint=_INSTEAD)

    def check_pool(self, names: Sequence[str]) -> None:
        """Raises CoordinatorUnavailable where no agent of the pool has a row: it was trained for another pool."""
        if self.meta.kind == "agents" and not set(self.meta.rows) & set(names):
            raise CoordinatorUnavailable(
                f"the checkpoint chooses among {', '.join(self.meta.rows)}; none is in the pool ({', '.join(names)})",
                hint=_INSTEAD,
            )


def make(vector: NDArray[np.floating], meta: Meta) -> Checkpoint:
    """A checkpoint of a flat vector. Raises CoordinatorUnavailable for a wrong length, NaN or huge numbers."""
    wanted = sum(meta.ranks) + meta.head_rows * meta.width
    if vector.shape != (wanted,):
        raise CoordinatorUnavailable(
            f"the checkpoint holds {vector.size} numbers, {len(meta.rows)} rows on this backbone need {wanted}",
            hint=_INSTEAD,
        )
    if not np.isfinite(vector).all() or np.abs(vector).max() > LARGEST:
        raise CoordinatorUnavailable("the checkpoint holds numbers that are not finite or far too large", hint=_INSTEAD)
    offsets, head = svf.split(vector.astype(np.float32), meta.ranks, meta.width)
    return Checkpoint(meta, head, offsets)


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Write our own form, atomically."""
    from safetensors.numpy import save as pack

    data = pack({"vector": checkpoint.vector}, metadata={"fugu": checkpoint.meta.model_dump_json()})
    with atomic.beside(path) as draft:
        draft.write_bytes(data)


def load(path: Path) -> Checkpoint:
    """Read our own form. Raises CoordinatorUnavailable, saying what is wrong with the file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpack

    try:
        data = path.read_bytes()
        vector = unpack(data)["vector"]
        size = struct.unpack("<Q", data[:8])[0]
        text = json.loads(data[8 : 8 + size])["__metadata__"]["fugu"]
    except FileNotFoundError as error:
        raise CoordinatorUnavailable(f"there is no checkpoint at {path}", hint=_INSTEAD) from error
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise CoordinatorUnavailable(f"{path} is not a whole checkpoint of fugu: {error}", hint=_INSTEAD) from error
    return make(vector, _meta(text, path))


def load_vector(path: Path, meta: Meta) -> Checkpoint:
    """A flat vector from `.npy`, valid for what `meta` says."""
    return make(read_npy(path), meta)


def save_vector(checkpoint: Checkpoint, path: Path) -> None:
    """The flat vector as `.npy`, float64 like the published one."""
    with path.open("wb") as file:
        np.save(file, checkpoint.vector.astype(np.float64), allow_pickle=False)


def read_npy(path: Path) -> NDArray[np.floating]:
    """Numbers of a `.npy` file. Raises CoordinatorUnavailable where it is none; pickles are never opened."""
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CoordinatorUnavailable(f"{path} is not a whole .npy file: {error}", hint=_INSTEAD) from error
    if not isinstance(found, np.ndarray) or not np.issubdtype(found.dtype, np.floating):
        raise CoordinatorUnavailable(f"{path} does not hold floating-point numbers", hint=_INSTEAD)
    return found


def _meta(text: str, path: Path) -> Meta:
    try:
        version = json.loads(text).get("format_version")
        if version != FORMAT_VERSION:
            raise CoordinatorUnavailable(
                f"{path} has format version {version}, this fugu reads {FORMAT_VERSION}", hint="update fugu"
            )
        return Meta.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise CoordinatorUnavailable(
            f"{path} does not say what it is valid for: {where}: {fault['msg']}", hint=_INSTEAD
        ) from error
    except (ValueError, AttributeError) as error:
        raise CoordinatorUnavailable(f"{path} does not say what it is valid for: {error}", hint=_INSTEAD) from error


def renamed(meta: Meta, mapping: Mapping[str, str]) -> Meta:
    """The same rows under the names that the user's pool has for them."""
    return meta.model_copy(update={"rows": tuple(mapping.get(row, row) for row in meta.rows)})
