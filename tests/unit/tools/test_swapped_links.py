"""A link that a running command swaps in between the judgement of a path and its use leads no tool
elsewhere.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from fugu_cli.errors import StorageError
from fugu_cli.safety import paths
from fugu_cli.session.file_effects import FileChange, FileEffects
from fugu_cli.snapshots import file_history, repository_files
from fugu_cli.tools.workspace import Workspace
from tests.unit.conftest import Build, use
from tests.unit.extensions.mcp.server import PIXEL

SECRET = "what lies outside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a.txt").write_text(SECRET)
    (folder / "a.png").write_bytes(base64.b64decode(PIXEL))
    return folder


@pytest.fixture
def tree(repo: Build) -> Workspace:
    return repo({"docs/a.txt": "ours\n", "docs/a.png": "ours\n", "docs/b.txt": "ours\n"})


def swap(path: Path, target: Path) -> None:
    """Put a link in the place of a file or folder."""
    if not path.is_symlink():
        path.rename(path.with_name("moved"))
        path.symlink_to(target)


@pytest.fixture
def after_judgement(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Have something happen right after a tool has resolved a path."""
    locate = paths.locate

    def plant(happens: Callable[[], None]) -> None:
        def located(*arguments: object) -> object:
            path = locate(*arguments)  # type: ignore[arg-type]
            happens()
            return path

        monkeypatch.setattr(paths, "locate", located)

    return plant


Plant = Callable[[Callable[[], None]], None]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("list", {"path": "docs"}),
        ("glob", {"pattern": "*", "path": "docs"}),
        ("grep", {"pattern": "lies", "path": "docs"}),
        ("grep", {"pattern": "lies", "path": "docs/a.txt"}),
        ("read", {"path": "docs/a.txt"}),
        ("read", {"path": "docs/a.png"}),
    ],
)
@pytest.mark.parametrize("what", ["the folder", "the file"])
def test_a_swapped_link_shows_nothing_from_elsewhere(
    tree: Workspace, outside: Path, after_judgement: Plant, tool: str, arguments: dict[str, str],
    what: str,
) -> None:  # fmt: skip
    named = tree.root / arguments["path"]
    if what == "the folder":
        after_judgement(lambda: swap(tree.root / "docs", outside))
    else:
        after_judgement(lambda: swap(named, outside / named.name if named.suffix else outside))
    result = use(tree, tool, **arguments)
    assert (SECRET in result.text, "a.png" in result.text, result.media) == (False, False, ()) or (
        not result.ok
    )
    assert SECRET not in result.text


def test_a_swapped_link_gives_nobody_else_the_right_to_execute(
    tree: Workspace, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Workspace.write

    def write_and_swap(self: Workspace, path: Path, *more: object) -> None:
        write(self, path, *more)  # type: ignore[arg-type]
        swap(path, outside / "a.txt")

    monkeypatch.setattr(Workspace, "write", write_and_swap)
    mode = (outside / "a.txt").stat().st_mode
    patch = (
        "diff --git a/docs/new.sh b/docs/new.sh\nnew file mode 100755\n--- /dev/null\n"
        "+++ b/docs/new.sh\n@@ -0,0 +1 @@\n+true\n"
    )
    assert use(tree, "apply_patch", patch=patch).ok is False
    assert (outside / "a.txt").stat().st_mode == mode


@pytest.mark.parametrize("kind", ["mode", "link", "content", "removal"])
def test_undo_reaches_nothing_through_a_swapped_link(
    tree: Workspace, outside: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    history = tree.history
    data = b"a.txt" if kind == "link" else (tree.root / "docs/a.txt").read_bytes()
    blob = history.keep(data)
    before = {"mode": blob, "link": blob, "content": blob, "removal": None}[kind]
    after = {"mode": blob, "link": None, "content": None, "removal": blob}[kind]
    change = FileChange(
        path="docs/a.txt",
        before=before,
        after=after,
        mode="100644",
        mode_before="120000" if kind == "link" else "100755",
    )
    through_link = file_history.through_link

    def judged_and_swapped(root: Path, path: Path) -> bool:
        is_link = through_link(root, path)
        swap(tree.root / "docs", outside)
        return is_link

    monkeypatch.setattr(file_history, "through_link", judged_and_swapped)
    held = {path.name: (path.read_bytes(), path.lstat().st_mode) for path in outside.iterdir()}

    async def restore() -> None:
        async with history.contents() as contents:
            await file_history.restore_files(tree.root, FileEffects((change,)), contents, None)

    is_removal = kind == "removal"  # a file that is behind a link now is not fugu's to remove
    expected = contextlib.nullcontext() if is_removal else pytest.raises(StorageError)
    with expected:
        asyncio.run(restore())
    assert held == {
        path.name: (path.read_bytes(), path.lstat().st_mode) for path in outside.iterdir()
    }


def test_a_picture_is_read_from_the_place_that_was_judged(
    tree: Workspace, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree.root / "docs/a.png").write_bytes(base64.b64decode(PIXEL))
    media_kind = repository_files.media_kind

    def seen_and_swapped(beginning: bytes) -> str:
        swap(tree.root / "docs", outside)
        return media_kind(beginning)

    monkeypatch.setattr(repository_files, "media_kind", seen_and_swapped)
    result = use(tree, "read", path="docs/a.png")
    assert (result.ok, result.media) == (False, ())
