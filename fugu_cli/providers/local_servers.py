"""Finds servers of models on this machine by asking the ports where they usually listen.

Only `fugu pool` and `fugu doctor` ask, all ports at once and for a second at most. Servers that do
not answer with a list of models are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from fugu_cli.system.bounded_json import parse_json

TIMEOUT = 1.0
"""Seconds: a server on this machine lists its models in a few thousandths."""
MAX_LIST_BYTES = 1_000_000
"""Bytes of a list of models."""
MAX_NAME_LENGTH = 200
"""Characters of a model's name."""
LOCAL_HOSTS = frozenset({"", "localhost", "127.0.0.1", "0.0.0.0", "::", "::1"})
"""Host names of this machine in a server's configuration."""
PORTS = (
    ("Ollama", 11434, "OLLAMA_HOST"),
    ("LM Studio", 1234, ""),
    ("llama.cpp", 8080, "LLAMA_ARG_PORT"),
)
"""Each server's name, its usual port, and the environment variable that changes the port."""


@dataclass(frozen=True)
class LocalServer:
    """A server that answered: its usual name, its address and its models, at least one."""

    name: str
    base_url: str
    models: tuple[str, ...]


async def find_local_servers(environ: Mapping[str, str]) -> tuple[LocalServer, ...]:
    """Return the servers that answer, in the order of `PORTS`."""
    requests = [_ask_server(name, port) for name, port in _ports_to_ask(environ)]
    servers = await asyncio.gather(*requests)
    return tuple(server for server in servers if server is not None)


def _ports_to_ask(environ: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the name and port of each server that is not configured to run on another machine."""
    for name, usual_port, variable in PORTS:
        address = environ.get(variable, "").strip()
        if address.isdigit():
            address = f":{address}"
        try:
            url = urlsplit(address if "://" in address else f"//{address}")
            host, port = url.hostname or "", url.port or usual_port
        except ValueError:
            continue
        if host in LOCAL_HOSTS:
            yield name, port


async def _ask_server(name: str, port: int) -> LocalServer | None:
    import httpx

    base_url = f"http://127.0.0.1:{port}/v1"
    headers = {"accept-encoding": "identity"}
    try:
        async with (
            asyncio.timeout(TIMEOUT),
            httpx.AsyncClient(
                trust_env=False, verify=False, headers=headers
            ) as client,  # no TLS is spoken here
            client.stream("GET", f"{base_url}/models") as answer,
        ):
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > MAX_LIST_BYTES:
                    return None
    except (httpx.HTTPError, TimeoutError):
        return None
    models = _model_names(body) if answer.status_code == httpx.codes.OK else ()
    return LocalServer(name, base_url, models) if models else None


def _model_names(body: bytes) -> tuple[str, ...]:
    """Return the names in a list of models, none if `body` is no such list."""
    try:
        parsed = parse_json(body)
    except ValueError:
        return ()
    listed = parsed.get("data") if isinstance(parsed, dict) else None
    if not isinstance(listed, list):
        return ()
    names = [entry.get("id") for entry in listed if isinstance(entry, dict)]
    return tuple(
        name
        for name in names
        if isinstance(name, str) and name.isprintable() and 0 < len(name) <= MAX_NAME_LENGTH
    )
