"""Where we are: the folder's short name and the branch, read from files, so that the first paint waits for nobody."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def short(root: Path) -> str:
    """The folder as people write it."""
    with suppress(ValueError, RuntimeError):
        return f"~/{root.relative_to(Path.home()).as_posix()}".rstrip("/.") or "~"
    return str(root)


def at_home(text: str) -> str:
    """A text in which paths under the home folder begin with `~/`."""
    with suppress(RuntimeError):
        return text.replace(f"{Path.home()}/", "~/")
    return text


def typed(root: Path, name: str) -> Path:
    """The path that somebody typed: in `root`, `~/` being their home."""
    return Path.home() / name[2:] if name.startswith("~/") else root / name


def branch(root: Path) -> str:
    """The branch that is checked out, a commit's beginning when none is, "" outside git."""
    for folder in (root, *root.parents):
        git = folder / ".git"
        with suppress(OSError, UnicodeDecodeError):
            if git.is_file():
                git = folder / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
            head = (git / "HEAD").read_text(encoding="utf-8").strip()
            return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""
