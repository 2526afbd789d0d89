"""An agent that is an embedded model: its llama.cpp server starts when first needed, then is called
like any other.

Built on wires/chat_completions.py. It does not know how a server is started: wiring gives it
the function that leases one (server_lease.py, `lease_server`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from fugu_cli.errors import AgentError, InfrastructureError, ModelFileError
from fugu_cli.local.infill import fill_in_middle
from fugu_cli.messages import Prompt, Reply
from fugu_cli.providers import Pause, Say, Wait
from fugu_cli.providers.endpoint import ModelEndpoint, Timeouts
from fugu_cli.providers.http_client import HttpConnection
from fugu_cli.wires.chat_completions import OpenAI

EMBEDDED_TIMEOUTS = Timeouts(first_token=900.0, between=300.0)
"""A long prompt is read at 60 tokens a second here, slower while tests run."""


class ServerLease(Protocol):
    """A server that keeps running until the lease is closed."""

    @property
    def base_url(self) -> str: ...

    async def close(self) -> None: ...


LeaseServer = Callable[[], Awaitable[ServerLease]]
"""Leases the model's server, starting it if need be. Raises InfrastructureError."""


class EmbeddedAgent:
    """An agent served by an embedded model. It holds its lease until `close`, or until the server
    is gone.
    """

    def __init__(
        self,
        name: str,
        model: str,
        start: LeaseServer,
        timeouts: Timeouts = EMBEDDED_TIMEOUTS,
    ) -> None:
        self._name = name
        self._model = model
        self._start = start
        self._timeouts = timeouts
        self._lock = asyncio.Lock()
        self._lease: ServerLease | None = None
        self._agent: OpenAI | None = None
        self._filling: tuple[HttpConnection, ModelEndpoint] | None = None

    @property
    def name(self) -> str:
        return self._name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        agent = await self._started(wait)
        return await self._on_server(agent.reply(prompt, say, wait))

    async def fill(self, before: str, behind: str, wait: Wait) -> Reply:
        """Return the rest of a line between two texts. Raises AgentError."""
        await self._started(wait)
        assert self._filling is not None
        connection, endpoint = self._filling
        return await self._on_server(fill_in_middle(connection, endpoint, before, behind))

    async def _on_server(self, call: Awaitable[Reply]) -> Reply:
        try:
            reply = await call
        except AgentError as error:
            if error.kind == "network":
                await self.close()  # the server died: the next try starts another
            raise
        return reply.model_copy(update={"model": self._model})

    async def close(self) -> None:
        agent, self._agent = self._agent, None
        filling, self._filling = self._filling, None
        lease, self._lease = self._lease, None
        if agent is not None:
            await agent.close()
        if filling is not None:
            await filling[0].close()
        if lease is not None:
            await lease.close()

    async def _started(self, wait: Wait) -> OpenAI:
        async with self._lock:
            return self._agent or await self._start_agent(wait)

    async def _start_agent(self, wait: Wait) -> OpenAI:
        wait(Pause(f"loading {self._model}"))
        try:
            self._lease = await self._start()
        except InfrastructureError as error:
            kind = "invalid" if isinstance(error, ModelFileError) else "overloaded"
            raise AgentError(f"{self._name}: {error}", kind=kind, hint=error.hint) from error
        endpoint = ModelEndpoint(
            name=self._name,
            model=self._model,
            base_url=self._lease.base_url,
            timeouts=self._timeouts,
            body={"timings_per_token": True},
        )
        self._agent = OpenAI(endpoint)
        completions = replace(endpoint, base_url=endpoint.base_url.removesuffix("/v1"))
        self._filling = HttpConnection(completions, {}), completions
        return self._agent
