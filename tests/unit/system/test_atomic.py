"""Files written whole: what stays of the file that was there, and what is not touched."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from fugu_cli.system.atomic_files import write_atomically
from tests.unit.conftest import Build, use

READS = 0o4


def attribute(path: Path, name: str, value: bytes) -> None:
    """Set it; the test is skipped where the disk has none."""
    if not hasattr(os, "setxattr"):
        pytest.skip("this system has no extended attributes")
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"this disk has no such attributes: {error}")


def access_list(user: int) -> bytes:
    """The owner may write, `user` may read, nobody else may anything: as the kernel keeps it."""
    anybody = 0xFFFFFFFF
    entries = (
        (0x1, 0o6, anybody),
        (0x2, READS, user),
        (0x4, 0, anybody),
        (0x10, READS, anybody),
        (0x20, 0, anybody),
    )
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_extended_attributes_stay(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    attribute(path, "user.origin", b"here")
    write_atomically(path, b"new")
    assert (path.read_text(), os.getxattr(path, "user.origin")) == ("new", b"here")


def test_an_access_list_stays_and_so_does_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o600)
    attribute(path, "system.posix_acl_access", access_list(12345))
    mode = path.stat().st_mode
    write_atomically(path, b"new")
    assert os.getxattr(path, "system.posix_acl_access") == access_list(12345)
    assert path.stat().st_mode == mode


def test_a_mode_that_is_given_wins_over_the_access_list(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    attribute(path, "system.posix_acl_access", access_list(12345))
    write_atomically(path, b"new", 0o600)
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_other_names_of_a_file_with_hard_links_keep_what_they_had(
    plain: Build, tmp_path: Path
) -> None:
    workspace = plain({"a.txt": "old\n"})
    outside = tmp_path / "outside.txt"
    os.link(workspace.root / "a.txt", outside)
    use(workspace, "read", path="a.txt")
    assert use(workspace, "edit", path="a.txt", old="old", new="new").ok
    assert ((workspace.root / "a.txt").read_text(), outside.read_text()) == ("new\n", "old\n")
