"""A repository, a home with secrets beside it, and a sandbox of each kind that works here."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fugu_cli.sandbox import kernel, means
from fugu_cli.sandbox.box import Box, Rules
from fugu_cli.sandbox.means import Means
from fugu_cli.tools.process import Around, Ended, run_command

SECRET = "S3CRET-that-nobody-may-see"
KINDS = ("landlock", "bare landlock", "bubblewrap")
BWRAP = shutil.which("bwrap", path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, Path("/opt").glob("*"))]))


class Fixed(Box):
    """A sandbox whose means is given."""

    means = Means("none")

    @property
    def held(self) -> Means:
        return self.means


@dataclass(frozen=True)
class World:
    """Where a command is let loose: `root` may be written, `home` and `outside` may not."""

    root: Path
    home: Path
    outside: Path
    box: Box

    def run(self, command: str, seconds: float = 20.0) -> Ended:
        return asyncio.run(run_command(command, self.root, seconds, lambda text: None, Around(box=self.box)))

    def untouched(self) -> dict[str, tuple[int, bytes]]:
        """Modes and contents of everything that must stay as it is."""
        git = self.root / ".git"
        files = [*self.home.rglob("*"), *self.outside.rglob("*"), *(git / "hooks").rglob("*"), git / "config"]
        return {str(path): (path.lstat().st_mode, _bytes(path)) for path in files if not path.is_socket()}


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def working(kind: str) -> Means:
    """The means of this kind; the test is skipped where it does not work."""
    if kind == "bubblewrap":
        found = means.find("bubblewrap", os.path.dirname(BWRAP) if BWRAP else "")  # noqa: PTH120
    elif not kernel.landlock_abi():
        found = Means("none", why="no Landlock")
    else:
        found = means.find("landlock", "")
        if kind == "bare landlock":
            found = Means("landlock")
        elif not found.namespaces:
            found = Means("none", why="no namespaces")
    if found.kind == "none":
        pytest.skip(f"{kind}: {found.why}")
    return found


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Make = Callable[[Rules], World]


@pytest.fixture
def make(kind: str, tmp_path: Path) -> Make:
    """Builds the world with these rules."""
    found = working(kind)
    home, root, outside = Path.home(), tmp_path / "repo", tmp_path / "outside"
    for name in (".ssh/id_rsa", ".aws/credentials", ".netrc", ".config/app/token", ".cargo/credentials.toml", "x.pem"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    for name in ("work/other/.env", "work/other/id_ed25519", "work/secrets.yml", "work/a/tls.key"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"-----BEGIN PRIVATE KEY-----\nKEY={SECRET}\n")
    (home / "work" / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (home / ".cargo" / "registry").mkdir()
    (home / ".cargo" / "registry" / "crate").write_text("a crate")
    (home / "notes.txt").write_text("notes")
    outside.mkdir()
    (outside / "work.txt").write_text("work")
    root.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True)
    (root / "tracked.txt").write_text("tracked\n")
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    subprocess.run(["git", "commit", "-q", "-m", "start"], cwd=root, check=True)

    def build(rules: Rules) -> World:
        box = Fixed(root, tmp_path / "data" / "snapshots" / "repo", rules, own=(tmp_path / "data",))
        box.means = found
        return World(root, home, outside, box)

    return build


@pytest.fixture
def world(make: Make) -> World:
    return make(Rules())
