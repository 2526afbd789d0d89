"""Servers of models that run on this machine, found by asking the ports where they usually listen.

Asked by `fugu pool` and `fugu doctor` alone, all at once and for a second at most. What answers
with anything but a list of models is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from fugu_cli.system.bounded_json import parse_json

PATIENCE = 1.0
"""Seconds: a server on this machine lists its models in a few thousandths."""
LARGEST = 1_000_000
"""Bytes of a list."""
LONGEST = 200
"""Characters of a model's name."""
EVERYWHERE = frozenset({"", "localhost", "127.0.0.1", "0.0.0.0", "::", "::1"})
"""Hosts that a server names to be reached at this machine."""
PORTS = (
    ("Ollama", 11434, "OLLAMA_HOST"),
    ("LM Studio", 1234, ""),
    ("llama.cpp", 8080, "LLAMA_ARG_PORT"),
)
"""Who listens where, and the variable by which its user moves it."""


@dataclass(frozen=True)
class LocalServer:
    """A server that answered: who usually listens there, its address and its models, at least
    one.
    """

    name: str
    base_url: str
    models: tuple[str, ...]


async def find_local_servers(environ: Mapping[str, str]) -> tuple[LocalServer, ...]:
    """Those that answer now, in the order of `PORTS`."""
    found = await asyncio.gather(*(_asked(name, port) for name, port in _places(environ)))
    return tuple(server for server in found if server is not None)


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Who to ask at which port. A server that its user has put on another machine is not asked."""
    for name, usual, variable in PORTS:
        said = environ.get(variable, "").strip()
        said = f":{said}" if said.isdigit() else said
        try:
            place = urlsplit(said if "://" in said else f"//{said}")
            host, port = place.hostname or "", place.port or usual
        except ValueError:
            continue
        if host in EVERYWHERE:
            yield name, port


async def _asked(name: str, port: int) -> LocalServer | None:
    import httpx

    base_url = f"http://127.0.0.1:{port}/v1"
    headers = {"accept-encoding": "identity"}
    try:
        async with (
            asyncio.timeout(PATIENCE),
            httpx.AsyncClient(
                trust_env=False, verify=False, headers=headers
            ) as client,  # no TLS is spoken here
            client.stream("GET", f"{base_url}/models") as answer,
        ):
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > LARGEST:
                    return None
    except (httpx.HTTPError, TimeoutError):
        return None
    models = _models(body) if answer.status_code == httpx.codes.OK else ()
    return LocalServer(name, base_url, models) if models else None


def _models(body: bytes) -> tuple[str, ...]:
    """The names in a list of models; nothing for what is no such list."""
    try:
        said = parse_json(body)
    except ValueError:
        return ()
    listed = said.get("data") if isinstance(said, dict) else None
    if not isinstance(listed, list):
        return ()
    names = [entry.get("id") for entry in listed if isinstance(entry, dict)]
    return tuple(
        name
        for name in names
        if isinstance(name, str) and name.isprintable() and 0 < len(name) <= LONGEST
    )
