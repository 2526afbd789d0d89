"""An agent behind a server: one call, repeated without the parameters that the server refuses.

Stands between the wire formats, each of which is a subclass, and http_client.py, which makes the
exchange.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping

import httpx

from fugu_cli.errors import AgentError, note_usage
from fugu_cli.messages import Prompt, Reply, Usage
from fugu_cli.providers import Pause, Say, ThoughtListener, Wait
from fugu_cli.providers.calls_in_text import TextCallReader, read_calls, with_calls_repaired
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.http_client import HttpConnection, Json, ReplyProgress, ServerEvent
from fugu_cli.providers.model_list import parse_model_list
from fugu_cli.providers.reply_decoder import ReplyDecoder
from fugu_cli.providers.server_quirks import LearnedQuirks, ServerQuirks, StopSequences
from fugu_cli.providers.shown_media import RefusedMedia
from fugu_cli.providers.usage_estimates import usage_of_broken_call, usage_of_reply


class WireAgent(ABC):
    """An agent behind a server. A wire format is a subclass that encodes requests and decodes
    replies.

    It remembers which parameters the server refused.
    """

    def __init__(
        self,
        endpoint: ModelEndpoint,
        transport: httpx.AsyncBaseTransport | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` replace the usual ones that show the key."""
        self._endpoint = endpoint
        if headers is None:
            headers = endpoint.credentials
        self._connection = HttpConnection(endpoint, headers, transport)
        self._quirks = LearnedQuirks()
        self._without_effort = False
        self._refused = RefusedMedia()

    @property
    def name(self) -> str:
        return self._endpoint.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """Make a call, and repeat it for each parameter that the server refuses for the first time.

        It is also repeated without pictures if the server refuses those.
        """

        def report(learned: ServerQuirks) -> None:
            asks_for_effort = prompt.effort or self._endpoint.effort
            if asks_for_effort and not learned.effort and not self._without_effort:
                self._without_effort = True
                message = f"{self.name} takes no effort: {self._endpoint.host} refuses it"
                wait(Pause(message, notice=True))

        async def call(shown: Prompt) -> Reply:
            async def once(quirks: ServerQuirks) -> Reply:
                reply = await self._once(shown, say, quirks)
                limit = quirks.tokens(shown.max_tokens)
                return reply.model_copy(update={"max_tokens": limit})

            return await self._quirks.call(once, report)

        return await self._refused.reply(prompt, wait, call)

    async def list_models(self, path: str = "") -> tuple[str, ...]:
        """Return the names of the server's models, as far as it lists any. `path`: ask for this
        instead of the list, to try a key. Raises AgentError.
        """
        body = await self._connection.get(path or self._list_path)
        models = parse_model_list(body)
        if models is None:
            what = "an HTML page" if body.lstrip().startswith(b"<") else "something"
            endpoint = self._endpoint
            raise AgentError(
                f"{endpoint.name}: {endpoint.host} answered with {what} instead of a list of models",
                kind="protocol",
                hint=f"Check the address: {endpoint.address}",
            )
        return models

    @property
    def _list_path(self) -> str:
        """The path of the list of models."""
        return "/models"

    async def close(self) -> None:
        await self._connection.close()

    @abstractmethod
    async def _once(self, prompt: Prompt, say: Say, quirks: ServerQuirks) -> Reply:
        """Make one exchange, without the parameters in `quirks` that the server refuses."""

    async def _exchange(
        self,
        path: str,
        payload: Json,
        decoder: ReplyDecoder,
        stops: StopSequences,
        say: Say,
        prompt: Prompt,
    ) -> Reply:
        """Post `payload`, which was made of `prompt`, and return the reply.

        Usage that the server did not report is estimated, also for a call that breaks off or is
        cancelled.
        """
        reader = TextCallReader(prompt.tools)
        has_begun = False
        usage: Usage | None = None

        def on_event(event: ServerEvent) -> ReplyProgress:
            nonlocal has_begun
            text = reader.feed(stops.feed(decoder.feed(event)))
            has_begun = True
            if decoder.thought and isinstance(say, ThoughtListener):
                say.think(decoder.thought)
            if text:
                say(text)
            return decoder.progress

        try:
            await self._connection.post(path, payload, on_event)
            reply = decoder.reply()
            names = frozenset(tool.name for tool in prompt.tools)
            usage = usage_of_reply(reply, prompt)
            reply = with_calls_repaired(stops.ended(reply), names)
            complete = read_calls(reply, prompt.tools, self._endpoint)
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
