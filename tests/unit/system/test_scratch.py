"""Temporary folders: gone with their process, and where it was killed, with a later one."""

from __future__ import annotations

import ast
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fugu_cli
from fugu_cli.system import temp_dirs

WORKS = """
import sys
from fugu_cli.system import temp_dirs
with temp_dirs.temp_dir("box") as made:
    (made / "left").write_text("x")
    print(made, flush=True)
    sys.stdin.read()
"""
"""A process that works in a folder until its input is closed."""


def working(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that works in a folder in `place`, and that folder."""
    environment = {
        **os.environ,
        "TMPDIR": str(place),
        "PYTHONPATH": str(Path(fugu_cli.__file__).parents[1]),
    }
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", WORKS], env=environment, stdin=pipe, stdout=pipe, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def ended(process: subprocess.Popen[str]) -> None:
    process.communicate()


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def aged(folder: Path) -> Path:
    """As if nobody had touched it for an hour."""
    then = time.time() - 3600
    os.utime(folder, (then, then))
    return folder


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def swept(place: Path, user: int | None = None) -> list[str]:
    """What is left in `place` after a process of `user` has swept it."""
    temp_dirs.remove_leftovers(
        place, time.time() - temp_dirs.MIN_AGE_SECONDS, os.geteuid() if user is None else user
    )
    return names(place)


def test_a_folder_is_gone_when_its_block_is_left() -> None:
    with temp_dirs.temp_dir("box") as made:
        (made / "deep" / "er").mkdir(parents=True)
        assert made.is_dir()
        assert temp_dirs.OURS.fullmatch(made.name)
    assert not made.exists()


def test_folders_that_were_made_read_only_go_as_well() -> None:
    with temp_dirs.temp_dir("box") as made:
        (made / "sealed" / "inner").mkdir(parents=True)
        (made / "sealed" / "inner" / "file").write_text("x")
        (made / "sealed" / "inner").chmod(0o555)
        (made / "sealed").chmod(0o555)
    assert not made.exists()


def test_what_a_folder_links_to_stays_as_it_was(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    outside.chmod(0o555)
    with temp_dirs.temp_dir("box") as made:
        (made / "link").symlink_to(outside)
        (made / "name").symlink_to(outside / "file")
    assert (oct(outside.stat().st_mode & 0o777), (outside / "file").read_text()) == (
        "0o555",
        "mine",
    )
    outside.chmod(0o755)


def test_folders_nested_deeper_than_python_can_go_end_nothing_in_an_error() -> None:
    with temp_dirs.temp_dir("box") as made:
        subprocess.run(
            ["sh", "-c", 'i=0; while [ $i -lt 1500 ]; do mkdir d && cd -P ./d; i=$((i+1)); done'],
            cwd=made, check=False, capture_output=True,
        )  # fmt: skip
        assert (made / "d").is_dir()
    subprocess.run(["rm", "-rf", str(made)], check=True)


def test_a_process_that_ends_leaves_nothing(tmp_path: Path) -> None:
    process, made = working(tmp_path)
    assert made.parent == tmp_path
    ended(process)
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    process, made = working(tmp_path)
    killed(process)
    assert swept(tmp_path) == [made.name]
    aged(made)
    assert swept(tmp_path) == []


def test_a_folder_that_a_process_works_in_stays_however_old_it_is(tmp_path: Path) -> None:
    process, made = working(tmp_path)
    aged(made)
    assert swept(tmp_path) == [made.name]
    ended(process)


def test_the_first_folder_of_a_process_sweeps_what_others_left(tmp_path: Path) -> None:
    process, left = working(tmp_path)
    killed(process)
    aged(left)
    later, made = working(tmp_path)
    while left.exists():
        assert later.poll() is None
        threading.Event().wait(0.05)
    assert names(tmp_path) == [made.name]
    ended(later)


def test_other_users_folders_are_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "fugu-tmp-box-a1b2c3d4"
    theirs.mkdir()
    aged(theirs)
    assert swept(tmp_path, os.geteuid() + 1) == [theirs.name]


def test_links_that_somebody_laid_there_are_not_followed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "file").write_text("mine")
    aged(home)
    place = tmp_path / "place"
    place.mkdir()
    (place / "fugu-tmp-box-a1b2c3d4").symlink_to(home)
    assert swept(place) == ["fugu-tmp-box-a1b2c3d4"]
    assert (home / "file").read_text() == "mine"


def test_folders_and_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    for name in ("fugu-demo.Xy12ab", "fugu-tmp-mine", "fugu-tmp-box-longer-than-ours", "fugu-main"):
        (tmp_path / name).mkdir()
        aged(tmp_path / name)
    (tmp_path / "fugu-tmp-box-a1b2c3d4").write_text("a file")
    aged(tmp_path / "fugu-tmp-box-a1b2c3d4")
    before = names(tmp_path)
    assert swept(tmp_path) == before


def test_a_temporary_directory_that_cannot_be_listed_is_no_failure(tmp_path: Path) -> None:
    temp_dirs.remove_leftovers(tmp_path / "none", time.time(), os.geteuid())
    assert names(tmp_path) == []


def test_nothing_else_in_the_package_makes_folders_in_the_temporary_directory() -> None:
    """A folder beside the file it is for (`dir=`) is another thing, and so is one inside the
    sandbox.
    """
    package = Path(fugu_cli.__file__).parent
    makers = {"mkdtemp", "TemporaryDirectory"}
    found = [
        path.relative_to(package).as_posix()
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in makers
        and "dir" not in {keyword.arg for keyword in node.keywords}
    ]
    assert found == []


def test_a_disk_is_full_where_a_small_file_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not temp_dirs.is_disk_full(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not temp_dirs.is_disk_full(tmp_path / "absent")
    for number in (errno.ENOSPC, errno.EDQUOT):
        monkeypatch.setattr("tempfile.TemporaryFile", failing(number))
        assert temp_dirs.is_disk_full(tmp_path)
    monkeypatch.setattr("tempfile.TemporaryFile", failing(errno.EACCES))
    assert not temp_dirs.is_disk_full(tmp_path)


def failing(number: int) -> Callable[..., None]:
    def temporary(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    return temporary
