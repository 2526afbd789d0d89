"""Starts processes that parse untrusted content, which may be written to keep a parser busy or to
crash it.

Such a process runs the function `main` of a module of fugu. It gets nothing of the user's
environment, and limits its own use of the processor and of memory.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent.parent
STARTER = "import sys; sys.path.append(sys.argv.pop(1)); from {module} import main; main()"


async def start_parser(module: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start `main` of a module with pipes for its input and its output. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", STARTER.format(module=module), str(PACKAGE), *arguments),
        cwd="/",
        env={"PATH": os.defpath},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )


def limit_resources(seconds: int, memory_bytes: int) -> None:
    """Limit the processor time and the address space of this process, if the system can, and let a
    crash leave no memory dump.
    """
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    except (ImportError, OSError, ValueError):
        return
