"""The address, key, timeouts and effort of one agent of the pool, as plain values that wiring fills
in.

Stands below every provider. It knows no wire, and reads nothing from the environment: wiring does
that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pydantic import JsonValue

from fugu_cli.messages import Effort
from fugu_cli.safety.secret_values import NAMES

SHORTEST_SECRET = 6
"""Characters of the shortest key that is hidden in messages."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds of silence that end a call: until the first token, and between tokens. `whole` limits
    the entire call.
    """

    connect: float = 10.0
    first_token: float = 120.0
    between: float = 60.0
    whole: float = 1800.0


@dataclass(frozen=True)
class ModelEndpoint:
    """One agent of the pool as its provider sees it.

    `name` is the agent's name in the pool, `model` the server's name of its model, `base_url` the
    address up to the version ("https://api.openai.com/v1"). `key` is never shown; `key_env` is the
    variable that holds it, for messages.
    """

    name: str
    model: str
    base_url: str
    key: str = field(default="", repr=False)
    key_env: str = ""
    effort: Effort = ""
    timeouts: Timeouts = Timeouts()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, JsonValue] = field(default_factory=dict)
    """Fields that are added to every request, for parameters that only this server has."""

    @property
    def host(self) -> str:
        """The server's host for messages; the whole address if it has no host."""
        try:
            return urlsplit(self.base_url).netloc.rpartition("@")[2] or self.address
        except ValueError:
            return self.address

    @property
    def address(self) -> str:
        """`base_url` for messages, without its password and the values of secret parameters."""

        def redacted(parameter: re.Match[str]) -> str:
            name = parameter[1]
            return f"{name}=***" if NAMES.search(name.replace("-", "_")) else parameter[0]

        without_password = re.sub(r"(?<=://)[^/@]*@", "***@", self.base_url)
        return re.sub(r"(?<=[?&])([^=&]+)=[^&]*", redacted, without_password)

    @property
    def loopback(self) -> bool:
        """True if the server runs on this machine, so that no proxy is used."""
        try:
            return urlsplit(self.base_url).hostname in {"127.0.0.1", "localhost", "::1"}
        except ValueError:
            return False

    def url(self, path: str) -> str:
        """Return the URL of a path. A query in `base_url` (Azure's api-version) stays at the end."""
        base, question_mark, query = self.base_url.partition("?")
        return base.rstrip("/") + path + question_mark + query

    @property
    def azure(self) -> bool:
        """True if the server is Azure's, which takes the key in a header of its own."""
        return (
            self.host.endswith((".azure.com", ".azure.us", ".azure.cn"))
            or "api-version=" in self.base_url
        )

    @property
    def bedrock(self) -> bool:
        """True if the server is Amazon Bedrock's for Claude."""
        return self.host.endswith(".api.aws")

    @property
    def vertex(self) -> bool:
        """True if the server is Google's Vertex AI, which has the model in the address."""
        return self.host.endswith(("aiplatform.googleapis.com", ".rep.googleapis.com"))

    @property
    def credentials(self) -> dict[str, str]:
        """The header with the key, as OpenAI's servers expect it; empty without a key."""
        if not self.key:
            return {}
        return {"api-key": self.key} if self.azure else {"authorization": f"Bearer {self.key}"}

    def hidden(self, text: str) -> str:
        """Return `text` without the key, which a server may have repeated.

        Short keys are kept. They are words like `x` or `none` for servers that need no key, and
        removing them would garble the text.
        """
        return text.replace(self.key, "***") if len(self.key) >= SHORTEST_SECRET else text
