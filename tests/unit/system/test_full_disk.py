"""What fugu keeps of its own, written on a full disk: the old file stays, and nothing is left
beside it.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fugu_cli.config import trust as config_trust
from fugu_cli.errors import StorageError
from fugu_cli.safety import saved_permissions
from fugu_cli.session import store
from fugu_cli.system import atomic_files
from fugu_cli.ui import run_artifacts

LONG = "x" * 3000


@contextmanager
def full() -> Iterator[None]:
    """No file of this process grows over 1,000 bytes, with the error of a full disk's kind."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def trust(data: Path, text: str) -> None:
    config_trust.trust(
        data, Path("/repo", *(text[at : at + 100] for at in range(0, len(text), 100)))
    )


def allow(data: Path, text: str) -> None:
    saved_permissions.add_rule(data, Path("/repo"), f"bash({text})")


def title(data: Path, text: str) -> None:
    store.rename_session(data / "one.jsonl", text)


@pytest.mark.parametrize("write", [trust, allow, title])
def test_the_old_file_stays_and_nothing_lies_beside_it(
    write: Callable[[Path, str], None], tmp_path: Path
) -> None:
    write(tmp_path, "short")
    before = tree(tmp_path)
    with full(), pytest.raises(StorageError, match="cannot write"):
        write(tmp_path, LONG)
    assert tree(tmp_path) == before and len(before) == 1


def test_a_file_of_an_output_folder_is_whole_or_missing(tmp_path: Path) -> None:
    with full():
        said = run_artifacts.write_artifacts(tmp_path, [], "s", {"short": True}, LONG.encode())
    missing = (run_artifacts.PATCH, run_artifacts.PREDICTION)
    assert [str(tmp_path / name) in one for name, one in zip(missing, said, strict=True)] == [
        True,
        True,
    ]
    assert sorted(tree(tmp_path)) == sorted(
        [run_artifacts.SESSION, run_artifacts.TRAJECTORY, run_artifacts.SUMMARY]
    )


def test_a_new_file_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with atomic_files.replacement_file(tmp_path / "new.json") as draft:
        draft.write_text("{}")
    assert (tmp_path / "new.json").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert draft.suffix == ".json" and not draft.exists()
