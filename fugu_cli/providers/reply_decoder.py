"""The base of the decoders of all wires: events of a model's server in, one reply out.

Stands between http_client.py, which delivers the events, and the wires, which know what an event of
theirs means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from fugu_cli.errors import AgentError
from fugu_cli.messages import Reply, Usage
from fugu_cli.providers import error_mapping
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.http_client import ReplyLimits, ReplyProgress, ServerEvent
from fugu_cli.system.bounded_json import parse_json

DONE = "[DONE]"
"""The data of the last event on OpenAI's wires."""


class WireModel(BaseModel):
    """Data from a model's server. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class ReplyDecoder(ABC):
    """Decodes one reply. Once `finished`, no more events are expected and `reply` may be called."""

    api: ClassVar[str]
    """The name of the wire, as a hint says it."""
    whole: ClassVar[str]
    """The name of a whole reply on this wire."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._endpoint = endpoint
        self._limits = ReplyLimits(endpoint.name, endpoint.host)
        self._id = ""
        self._model = ""
        self._begun = False
        """At least one token has arrived."""
        self._reason: str | None = None
        """The server's reason for the end of the reply."""
        self.thought = ""
        """The reasoning text that the newest event added."""
        self.used = Usage()
        """The usage that the server has reported so far, also if the reply is never completed."""
        self.finished = False

    @property
    def received_bytes(self) -> int:
        """Bytes of text, reasoning and arguments that were streamed so far."""
        return self._limits.received_bytes

    @property
    def progress(self) -> ReplyProgress:
        """The part of the reply that has arrived."""
        if self.finished:
            return ReplyProgress.WHOLE
        if self._reason is not None:
            return ReplyProgress.SAID
        return ReplyProgress.BEGUN if self._begun else ReplyProgress.NOTHING

    def feed(self, event: ServerEvent) -> str:
        """Decode one event, and return the text it adds. Raises AgentError for an error inside the
        stream, and for data that is no part of a reply.
        """
        self.thought = ""
        data = event.data.strip()
        if not data or data == DONE or self.finished:
            return ""
        try:
            return self._decode(parse_json(data), event.name)
        except ValueError as error:
            if not event.whole:
                return ""  # the connection broke inside this event; reply() says so
            hint = f"Check that {self._endpoint.address} speaks {self.api}."
            raise error_mapping.error_of_part(
                self._endpoint, data, error, self.whole, hint
            ) from error

    @abstractmethod
    def _decode(self, parsed: object, event_name: str) -> str:
        """Add one event to the reply, and return the text it adds. Raises ValueError for data of
        another form, AgentError for an error of the server.
        """

    @abstractmethod
    def reply(self) -> Reply:
        """Return the whole reply. Raises AgentError(kind="network") if the stream ended before the
        reply.
        """

    def _cut_stream(self) -> AgentError:
        return AgentError(
            f"{self._endpoint.name}: the connection to {self._endpoint.host} was lost",
            kind="network",
            retry=True,
        )
