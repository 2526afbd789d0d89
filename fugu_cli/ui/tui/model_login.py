"""The dialogs that get a model to work: a provider's key, a server of the user's own, a download.

Knows no screen and no session: the dialogs ask, and the setup tries and keeps what was entered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from fugu_cli.app.session_protocol import KeyAccepted, KeyRefused, KeyUntested, ServerModels
from fugu_cli.errors import AgentError, UsageError
from fugu_cli.ui.tui.screen_protocol import Choice, KeyAnswer

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import ModelSetup, TrialWire
    from fugu_cli.ui.tui.screen_protocol import DialogsProtocol

DOWNLOAD = "download"
ADDRESS = "address"
WIRES: Mapping[str, tuple[TrialWire, str]] = {
    "Chat Completions": ("chat", "most servers: vLLM, llama.cpp, LM Studio, gateways"),
    "Responses": ("responses", "OpenAI's newer API"),
    "Messages": ("anthropic", "Anthropic's API"),
}
"""The APIs that a server may speak, with the name of the wire and a description."""
LOCAL = "local "
"""Before the number of a server on this machine."""


@dataclass(frozen=True)
class LoginResult:
    """The result of the dialogs: a sentence about it and further lines. `downloads`: the small
    models are to be downloaded; `added_agent`: the user's configuration has changed.
    """

    summary: str = ""
    detail: str = ""
    downloads: bool = False
    added_agent: bool = False


async def choose_provider(setup: ModelSetup, dialogs: DialogsProtocol) -> LoginResult | None:
    """Let the user choose among servers on this machine, providers, an own address and the download.
    Return None if nothing was set up. Raises FuguError.
    """
    offer = setup.offer()
    servers = await setup.find_servers()
    choices = [
        Choice(f"{LOCAL}{number}", f"{server.name} on this machine", ", ".join(server.models))
        for number, server in enumerate(servers)
    ]
    choices += [Choice(name, f"key of {name}", variable) for name, variable in offer.providers]
    if offer.download:
        choices.append(Choice(DOWNLOAD, "download small models", offer.download))
    choices.append(Choice(ADDRESS, "a server of your own", "http://.../v1"))
    picked = await dialogs.pick("Choose a provider", choices)
    if picked is None:
        return None
    if picked[1].startswith(LOCAL):
        return await add_model(setup, dialogs, servers[int(picked[1].removeprefix(LOCAL))])
    return await log_in_at(setup, dialogs, picked[1])


async def log_in_at(
    setup: ModelSetup, dialogs: DialogsProtocol, provider: str
) -> LoginResult | None:
    """Ask for what a provider needs, or for an own address. Raises FuguError."""
    if provider == DOWNLOAD:
        return LoginResult(downloads=True)
    if provider == ADDRESS:
        return await _add_address(setup, dialogs)
    return await _keep_key(setup, dialogs, provider)


async def add_model(
    setup: ModelSetup, dialogs: DialogsProtocol, server: ServerModels, key: str = ""
) -> LoginResult | None:
    """Let the user choose a model of a server, and add an agent for it. Raises FuguError."""
    if len(server.models) == 1:
        model = server.models[0]
    elif server.models:
        choices = [Choice(model, model) for model in server.models]
        picked = await dialogs.pick(f"Choose a model of {server.base_url}", choices)
        model = picked[1] if picked is not None else ""
    else:
        model = (await dialogs.enter_text(f"{server.base_url} lists no models: name one")).strip()
    if not model:
        return None
    lines = await asyncio.to_thread(setup.add_agent, server, model, key)
    return LoginResult(lines[0], "\n".join(lines[1:]), added_agent=True)


async def _keep_key(
    setup: ModelSetup, dialogs: DialogsProtocol, provider: str
) -> LoginResult | None:
    """Ask for a key until one is accepted, or is to be kept untried."""
    heading = f"API key of {provider} (it is not shown)"
    accepted = ""
    while not accepted:
        key = (await dialogs.enter_text(heading, secret=True)).strip()
        if not key:
            return None
        trial = await setup.try_key(provider, key)
        match trial:
            case KeyAccepted():
                accepted = str(trial)
            case KeyRefused(reason):
                heading = f"{reason}. Another API key of {provider} (it is not shown)"
            case KeyUntested(reason):
                keep = KeyAnswer("y", "keep it untried")
                if not await dialogs.choose("The key could not be tried.", reason, [keep]):
                    return None
                accepted = "not tried"
            case unknown:
                assert_never(unknown)
    kept_in = await asyncio.to_thread(setup.keep_key, provider, key)
    return LoginResult(f"{provider} key saved in {kept_in} ({accepted})")


async def _add_address(setup: ModelSetup, dialogs: DialogsProtocol) -> LoginResult | None:
    """Ask for an address and its API, and for a key where the server wants one, until it lists its
    models.
    """
    heading = "Address of the server, as in http://127.0.0.1:8000/v1"
    while address := (await dialogs.enter_text(heading)).strip():
        choices = [Choice(name, name, description) for name, (_, description) in WIRES.items()]
        picked = await dialogs.pick("Choose the API that it speaks", choices)
        if picked is None:
            return None
        wire, _ = WIRES[picked[1]]
        key = ""
        while True:
            try:
                server = await setup.try_address(address, wire, key)
                return await add_model(setup, dialogs, server, key)
            except UsageError as error:
                heading = f"{error} ({error.hint}). Address of the server"
                break
            except AgentError as error:
                heading = f"{error}. Another address"
                if error.kind != "refused":
                    break
                key_heading = f"{error}. API key for it (it is not shown)"
                key = (await dialogs.enter_text(key_heading, secret=True)).strip()
                if not key:
                    break
    return None
