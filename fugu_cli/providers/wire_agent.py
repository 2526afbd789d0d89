"""An entry of the pool behind a server: one call, made again without what the server refuses.

Between the wire formats, each of which is a subclass, and http_client.py, which makes the exchange.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

import httpx

from fugu_cli.errors import AgentError, note_usage
from fugu_cli.messages import Prompt, Reply, Usage
from fugu_cli.providers import Pause, Say, ThoughtListener, Wait
from fugu_cli.providers.calls_in_text import TextCallReader, read_calls, with_calls_repaired
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.http_client import HttpConnection, Json, ReplyProgress, ServerEvent
from fugu_cli.providers.server_quirks import LearnedQuirks, ServerQuirks, StopSequences
from fugu_cli.providers.shown_media import RefusedMedia
from fugu_cli.providers.usage_estimates import usage_of_broken_call, usage_of_reply


class ReplyDecoder(Protocol):
    """Reads one answer of a wire format."""

    @property
    def used(self) -> Usage:
        """What the server has reported so far, whatever becomes of the reply."""

    @property
    def received_bytes(self) -> int:
        """Of text, thoughts and arguments, as they were streamed."""

    @property
    def heard(self) -> ReplyProgress:
        """How far the reply has come."""

    @property
    def thought(self) -> str:
        """What the newest event added to what is thought."""

    def feed(self, event: ServerEvent) -> str:
        """Takes one event; returns the text it adds. Raises AgentError."""

    def reply(self) -> Reply:
        """The whole reply. Raises AgentError where there is none."""


class WireAgent(ABC):
    """An entry of the pool behind a server. A wire format is a subclass that writes requests and
    decodes answers. Remembers which parameters the server refused."""

    def __init__(
        self,
        access: ModelEndpoint,
        headers: Mapping[str, str],
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._access = access
        self._connection = HttpConnection(access, headers, transport)
        self._quirks = LearnedQuirks()
        self._without_effort = False
        self._refused = RefusedMedia()

    @property
    def name(self) -> str:
        return self._access.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """One call, and one more for each parameter that the server refuses for the first time; and
        without pictures where it refuses those."""

        def told(learned: ServerQuirks) -> None:
            if (
                (prompt.effort or self._access.effort)
                and not learned.effort
                and not self._without_effort
            ):
                self._without_effort = True
                wait(
                    Pause(
                        f"{self.name} takes no effort: {self._access.host} refuses it", notice=True
                    )
                )

        return await self._refused.reply(
            prompt,
            wait,
            lambda shown: self._quirks.call(lambda quirks: self._once(shown, say, quirks), told),
        )

    async def close(self) -> None:
        await self._connection.close()

    @abstractmethod
    async def _once(self, prompt: Prompt, say: Say, quirks: ServerQuirks) -> Reply:
        """Write the request without what the server refuses, make the exchange, and read the
        answer.
        """

    async def _exchange(
        self,
        request: tuple[str, Json],
        decoder: ReplyDecoder,
        stops: StopSequences,
        say: Say,
        prompt: Prompt,
    ) -> Reply:
        """Post `request`, a path and a body made of `prompt`, and read the reply.

        What the server did not count is estimated, also for a call that breaks off or is cancelled.
        """
        reader = TextCallReader(prompt.tools)
        has_begun = False
        usage: Usage | None = None

        def take(event: ServerEvent) -> ReplyProgress:
            nonlocal has_begun
            text = reader.feed(stops.feed(decoder.feed(event)))
            has_begun = True
            if decoder.thought and isinstance(say, ThoughtListener):
                say.think(decoder.thought)
            if text:
                say(text)
            return decoder.heard

        try:
            await self._connection.post(*request, take)
            reply = decoder.reply()
            names = frozenset(tool.name for tool in prompt.tools)
            usage = usage_of_reply(reply, prompt)
            reply = with_calls_repaired(stops.ended(reply), names)
            complete = read_calls(reply, prompt.tools, self._access)
            rest = reader.feed(stops.rest()) + reader.rest()
            if rest and not complete.calls:
                say(rest if complete.text == reply.text else complete.text)
            return complete.model_copy(update={"usage": usage})
        except AgentError as error:
            if usage is not None:
                error.usage = usage
            elif has_begun or error.prompt_was_sent:
                error.usage = usage_of_broken_call(decoder.used, prompt, decoder.received_bytes)
            else:
                error.usage = decoder.used
            raise
        except asyncio.CancelledError as cancelled:
            note_usage(
                cancelled, usage_of_broken_call(decoder.used, prompt, decoder.received_bytes)
            )
            raise
