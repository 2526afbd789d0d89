"""Every declared server started once, asked for its tools and ended: what `fugu doctor` says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.tools.mcp import sdk
from fugu_cli.tools.mcp.declared import Declared
from fugu_cli.tools.mcp.servers import Servers

PATIENCE = 30.0
"""Seconds a server may take to answer while somebody waits for the report."""

Tried = tuple[str, bool, str]
"""A server's name, whether it works, and its tools or why it does not, with what is run."""


def tried(declared: Declared, root: Path) -> Sequence[Tried]:
    """What each does now. Without servers nothing is imported."""
    if not declared.servers:
        return ()
    hurried = tuple(server.model_copy(update={"patience": PATIENCE}) for server in declared.servers)
    servers = Servers(Declared(hurried), root)
    if not servers.declared:
        return [(", ".join(server.name for server in declared.servers), False, f"not started: {sdk.lacking()}")]
    return asyncio.run(_tried(servers))


async def _tried(servers: Servers) -> Sequence[Tried]:
    try:
        found: list[Tried] = []
        for one in await servers.tried():
            file = f" ({one.server.said}, from {one.server.source})"
            works = one.state == "ready"
            names = ", ".join(tool.name.rpartition("__")[2] for tool in one.tools) or "none"
            found.append((one.server.name, works, (f"tools: {names}" if works else one.why) + file))
        return found
    finally:
        await servers.close()
