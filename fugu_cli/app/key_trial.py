"""Tries keys and addresses before they are kept: asks for the list of models, which costs nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

from fugu_cli.app.session_protocol import (
    KeyAccepted,
    KeyRefused,
    KeyTrial,
    KeyUntested,
    ServerModels,
    TrialWire,
)
from fugu_cli.config.agent_pool import KnownService
from fugu_cli.errors import AgentError, UsageError
from fugu_cli.providers.endpoint import ModelEndpoint, Timeouts
from fugu_cli.providers.wire_agent import WireAgent
from fugu_cli.safety.secret_values import NAMES

TRIAL_SECONDS = 10.0
"""Seconds in which a server must answer."""
VERSIONED = re.compile(r"/v\d+\w*(/|$)|[?]")
"""Found in an address that is complete."""


async def try_key(service: KnownService, key: str, environ: Mapping[str, str]) -> KeyTrial:
    """Try a key at its service, or at the gateway that the environment names for it."""
    address = service.address(environ)
    if not address:
        return KeyUntested(f"{service.name}: set AWS_REGION, which its address holds")
    endpoint = _endpoint(service.name, address, key)
    wire: TrialWire = "anthropic" if service.provider == "anthropic" else "chat"

    async def ask(endpoint: ModelEndpoint) -> tuple[str, ...] | AgentError:
        try:
            return await _list_models(endpoint, wire, service.key_path)
        except AgentError as error:
            return error

    with_key, without_key = await asyncio.gather(ask(endpoint), ask(replace(endpoint, key="")))
    if isinstance(with_key, AgentError):
        refused = with_key.kind == "refused"
        return KeyRefused(str(with_key)) if refused else KeyUntested(str(with_key))
    if not isinstance(without_key, AgentError):
        return KeyUntested(f"{endpoint.host} answers without a key, too")
    if without_key.status is None:  # it may have answered
        return KeyUntested(str(without_key))
    return KeyAccepted(endpoint.host, with_key)


async def try_address(address: str, wire: TrialWire, key: str) -> ServerModels:
    """Ask the server at an address, or at its `/v1`, for its models. Raises UsageError for a text
    that is no address, AgentError of the kind "refused" for a missing or refused key, and other
    AgentErrors.
    """
    base_url = check_address(address)
    candidates = [base_url] if VERSIONED.search(base_url) else [f"{base_url}/v1", base_url]
    empty_server: ServerModels | None = None
    errors: list[AgentError] = []
    for candidate in candidates:
        try:
            models = await _list_models(_endpoint("your server", candidate, key), wire)
        except AgentError as error:
            errors.append(error)
            if error.kind == "refused" or (error.status is None and error.kind != "protocol"):
                break
        else:
            if models:
                return ServerModels(candidate, models, wire=wire)
            empty_server = empty_server or ServerModels(candidate, (), wire=wire)
    if empty_server is None:
        raise errors[-1] if errors[-1].kind == "refused" else errors[0]
    return empty_server


def check_address(text: str) -> str:
    """Return a server's address without a slash at its end. Raises UsageError for a text that is
    none, and for an address with a key in it.
    """
    hint = "give it as in http://127.0.0.1:8000/v1"
    address = text.strip().rstrip("/")
    try:
        url = urlsplit(address)
        is_address = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_address = False
    if not is_address or not address.isprintable() or " " in address:
        raise UsageError("that is no address of a server", hint=hint)
    if url.username or any(NAMES.search(name.replace("-", "_")) for name in parse_qs(url.query)):
        raise UsageError(
            "the address holds a password or a key", hint="give it without; the key is asked for"
        )
    return address


def _endpoint(name: str, base_url: str, key: str) -> ModelEndpoint:
    limits = Timeouts(connect=TRIAL_SECONDS, first_token=TRIAL_SECONDS)
    return ModelEndpoint(name, "", base_url, key, timeouts=limits)


async def _list_models(endpoint: ModelEndpoint, wire: TrialWire, path: str = "") -> tuple[str, ...]:
    """Return the names of the models that the server lists. Raises AgentError."""
    agent: WireAgent
    if wire == "anthropic":
        from fugu_cli.wires.messages import Anthropic

        agent = Anthropic(endpoint)
    else:
        from fugu_cli.wires.chat_completions import OpenAI

        agent = OpenAI(endpoint)
    try:
        return await agent.list_models(path)
    finally:
        await agent.close()
