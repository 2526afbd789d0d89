"""HTML made into Markdown by a process of its own, which is ended when it takes too long or too much memory.

Between web_fetch.py and readable.py. The process gets the page on its input, nothing of the user's environment, and no
more than `SECONDS` of a processor, also when nobody is left to end it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from fugu_cli.processes import reap
from fugu_cli.tools import readable

SECONDS = 10
MEMORY = 2_000_000_000
"""Bytes of address space."""
PACKAGE = Path(__file__).resolve().parent.parent.parent
STARTER = "import sys; sys.path.append(sys.argv.pop(1)); from fugu_cli.tools.html_process import main; main()"


async def markdown(data: bytes, charset: str | None, seconds: float = SECONDS) -> str:
    """The page as Markdown; without its tags alone where that takes too much."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", STARTER, str(PACKAGE), charset or ""),
        cwd="/",
        env={"PATH": os.defpath},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            out, _ = await process.communicate(data)
    except TimeoutError:
        out = b""
    finally:
        await reap(process)
    return out.decode("utf-8", "replace") if process.returncode == 0 else readable.stripped(data, charset)


def main() -> None:
    """The process: a page from its input to its output."""
    limit()
    said = readable.markdown(sys.stdin.buffer.read(), sys.argv[1] or None)
    sys.stdout.buffer.write(said.encode("utf-8", "replace"))


def limit() -> None:
    """Bound what this process may take, where the system can."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, OSError, ValueError):
        return
