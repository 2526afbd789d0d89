"""Finds servers of models on this machine by asking the ports where they usually listen.

Only `fugu pool`, `fugu doctor` and a login ask, all ports at once and for half a second at most.
Servers that do not answer with a list of models are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from fugu_cli.errors import AgentError
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.http_client import HttpConnection, ReplyProgress, ServerEvent
from fugu_cli.providers.model_list import parse_model_list
from fugu_cli.system.bounded_json import parse_json

TIMEOUT = 0.5
"""Seconds: a server on this machine lists its models in a few thousandths."""
MOST_DESCRIBED = 20
"""Models that Ollama is asked about one by one."""
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
    """A server of local models that answered: the name of its program, its address and its models,
    at least one.
    """

    name: str
    base_url: str
    models: tuple[str, ...]
    """The models that can call tools, if the server says so of any; else all."""


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
    address = f"http://127.0.0.1:{port}"
    connection = HttpConnection(ModelEndpoint(name, "", address), {})
    models: tuple[str, ...] = ()
    with_tools: frozenset[str] = frozenset()
    try:
        async with asyncio.timeout(TIMEOUT):
            models = parse_model_list(await connection.get("/v1/models")) or ()
            with_tools = await _models_with_tools(connection, name, models)
    except (AgentError, TimeoutError):
        pass  # it may have listed its models before it failed
    finally:
        await connection.close()
    offered = tuple(model for model in models if model in with_tools) or models
    return LocalServer(name, f"{address}/v1", offered) if offered else None


async def _models_with_tools(
    connection: HttpConnection, name: str, models: Sequence[str]
) -> frozenset[str]:
    """Return the models of which the server says that they can call tools. Raises AgentError."""
    if name == "LM Studio":
        listed = _field(await connection.get("/api/v0/models"), "data")
        entries = listed if isinstance(listed, list) else []
        return frozenset(
            str(entry.get("id"))
            for entry in entries
            if isinstance(entry, dict) and "tool_use" in _texts(entry.get("capabilities"))
        )
    if name != "Ollama":
        return frozenset()
    answers: dict[str, str] = {}

    async def describe(model: str) -> None:
        def keep(event: ServerEvent) -> ReplyProgress:
            answers[model] = event.data
            return ReplyProgress.WHOLE

        await connection.post("/api/show", {"model": model}, keep)

    await asyncio.gather(*map(describe, models[:MOST_DESCRIBED]))
    return frozenset(
        model
        for model, answer in answers.items()
        if "tools" in _texts(_field(answer, "capabilities"))
    )


def _field(body: bytes | str, name: str) -> object:
    """Return a field of a JSON object, None if `body` is no such object."""
    try:
        parsed = parse_json(body)
    except ValueError:
        return None
    return parsed.get(name) if isinstance(parsed, dict) else None


def _texts(value: object) -> Sequence[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
