"""Tries a provider's key before it is kept: asks for the list of models, which costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from fugu_cli.app.session_protocol import KeyAccepted, KeyRefused, KeyTrial, KeyUntested
from fugu_cli.config.agent_pool import KnownService
from fugu_cli.errors import AgentError
from fugu_cli.providers.endpoint import ModelEndpoint, Timeouts
from fugu_cli.providers.wire_agent import WireAgent

TRIAL_SECONDS = 10.0
"""Seconds in which a server must answer."""


async def try_key(service: KnownService, key: str, environ: Mapping[str, str]) -> KeyTrial:
    """Try a key at its service, or at the gateway that the environment names for it."""
    address = service.address(environ)
    if not address:
        return KeyUntested(f"{service.name}: set AWS_REGION, which its address holds")
    endpoint = ModelEndpoint(
        name=service.name,
        model="",
        base_url=address,
        key=key,
        timeouts=Timeouts(connect=TRIAL_SECONDS, first_token=TRIAL_SECONDS, whole=TRIAL_SECONDS),
    )
    with_key, without_key = await asyncio.gather(
        _ask(endpoint, service), _ask(replace(endpoint, key=""), service)
    )
    if isinstance(with_key, AgentError):
        refused = with_key.kind == "refused"
        return KeyRefused(str(with_key)) if refused else KeyUntested(str(with_key))
    if not isinstance(without_key, AgentError):
        return KeyUntested(f"{endpoint.host} answers without a key, too")
    if without_key.status is None:  # it may have answered
        return KeyUntested(str(without_key))
    return KeyAccepted(endpoint.host, with_key)


async def _ask(endpoint: ModelEndpoint, service: KnownService) -> tuple[str, ...] | AgentError:
    """Return the names of the models that the service lists, or the error."""
    agent: WireAgent
    if service.provider == "anthropic":
        from fugu_cli.wires.messages import Anthropic

        agent = Anthropic(endpoint)
    else:
        from fugu_cli.wires.chat_completions import OpenAI

        agent = OpenAI(endpoint)
    try:
        return await agent.list_models(service.key_path)
    except AgentError as error:
        return error
    finally:
        await agent.close()
