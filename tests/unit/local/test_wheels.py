"""Wheels: what pip says when it cannot, what is read out of a zip, and that nothing outlives a
killed fugu.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fugu_cli.local.sources import SourceUnavailable, WheelIndex, append_member, download_with_pip
from fugu_cli.local.store import Store
from tests.unit.local.making import BYTES, Index, tiny

PULL_THAT_STOPS = """
import asyncio, pathlib, sys
from fugu_cli.local.sources import WheelIndex
from fugu_cli.local.store import Store
from tests.unit.local.making import Index, tiny

index = Index()

async def stops_at_the_third(requirement, folder):
    if requirement == "tiny-part3==1.0":
        print("stopped", flush=True)
        await asyncio.sleep(600)
    await index.download(requirement, folder)

asyncio.run(Store(pathlib.Path(sys.argv[1]), (tiny(),), (WheelIndex(stops_at_the_third),)).pull("tiny"))
"""


class Vanishing:
    """What os.scandir gives, where every listing of a download's folder shows one that is gone a
    moment later.
    """

    def __init__(
        self, path: "int | str | Path", list_folder: "Callable[..., Any]" = os.scandir
    ) -> None:
        short = (
            None
            if isinstance(path, int) or not str(path).endswith(".tmp")
            else Path(path) / "unpacked"
        )
        if short is not None:
            short.mkdir(exist_ok=True)
        with list_folder(path) as found:
            self._entries = iter(list(found))
        if short is not None:
            short.rmdir()

    def __iter__(self) -> "Vanishing":
        return self

    def __next__(self) -> "os.DirEntry[str]":
        return next(self._entries)

    def __enter__(self) -> "Vanishing":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held open."""

    def close(self) -> None:
        """Nothing is held open."""


DOWNLOAD = """
import asyncio, pathlib, sys
from fugu_cli.local.sources import download_with_pip
asyncio.run(download_with_pip("nothing-at-all==1.0", pathlib.Path(sys.argv[1])))
"""


def python(code: str, *words: str) -> "subprocess.Popen[str]":
    root = Path(__file__).parents[3]
    environ = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True, env=environ
    )


def children(pid: int) -> list[int]:
    lines = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if int(line.split()[1]) == pid]


def alive(pid: int) -> bool:
    words = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return words.strip() not in ("", "Z", "Z+")


def test_pip_says_why_a_wheel_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        SourceUnavailable,
        match=r"pip could not download nothing-at-all==1.0: .*nothing-at-all==1.0",
    ):
        asyncio.run(download_with_pip("nothing-at-all==1.0", tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_pip_puts_a_wheel_of_the_users_index_into_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, target = tmp_path / "links", tmp_path / "target"
    links.mkdir()
    target.mkdir()
    with zipfile.ZipFile(links / "carrier-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carrier/data.bin", BYTES)
        wheel.writestr(
            "carrier-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n"
        )
        wheel.writestr(
            "carrier-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("carrier-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    asyncio.run(download_with_pip("carrier==1.0", target))
    assert append_member(target, "carrier/data.bin", tmp_path / "part") == len(BYTES)
    assert (tmp_path / "part").read_bytes() == BYTES


def test_a_wheel_without_the_expected_file_is_unavailable(tmp_path: Path) -> None:
    asyncio.run(Index().download("tiny-part1==1.0", tmp_path))
    with pytest.raises(SourceUnavailable, match=r"does not hold tiny_part1/part02.bin"):
        append_member(tmp_path, "tiny_part1/part02.bin", tmp_path / "part")


def test_a_wheel_that_is_no_zip_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="pip left 0 wheels instead of one"):
        append_member(tmp_path, "a", tmp_path / "part")
    (tmp_path / "a-1.0-py3-none-any.whl").write_bytes(b"PK, or not")
    with pytest.raises(SourceUnavailable, match=r"a-1.0-py3-none-any.whl is damaged"):
        append_member(tmp_path, "a", tmp_path / "part")


def test_a_pull_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    with python(PULL_THAT_STOPS, str(tmp_path)) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "stopped\n"
        child.kill()
    index = Index()
    store = Store(tmp_path, (tiny(),), (WheelIndex(index.download),))
    assert asyncio.run(store.pull("tiny")).read_bytes() == BYTES
    assert index.asked == ["tiny-part3==1.0", "tiny-part4==1.0"]


def test_pip_does_not_outlive_a_killed_fugu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        with python(DOWNLOAD, str(tmp_path)) as child:
            silent.settimeout(60)
            asked, _ = silent.accept()  # pip waits for an answer that never comes
            [pip] = children(child.pid)
            assert alive(pip)
            os.kill(child.pid, signal.SIGKILL)
        limit = time.monotonic() + 20
        while alive(pip) and time.monotonic() < limit:
            time.sleep(0.05)
        assert not alive(pip)
        asked.close()


def test_folders_that_pip_deletes_while_they_are_counted_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index()

    async def download(requirement: str, folder: Path) -> None:
        await asyncio.sleep(0.01)
        await index.download(requirement, folder)

    monkeypatch.setattr(os, "scandir", Vanishing)
    monkeypatch.setattr("fugu_cli.local.sources.POLL_SECONDS", 0.001)
    store = Store(tmp_path / "models", (tiny(),), (WheelIndex(download),))
    assert asyncio.run(store.pull("tiny")).read_bytes() == BYTES
