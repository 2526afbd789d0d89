"""How one entry of the pool is reached: address, key, timeouts, effort. Plain values that wiring
fills in.

Stands below every provider. It must not know any wire, and reads nothing from the environment:
wiring does that.
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
"""Characters of the shortest key that is hidden."""


def _parameter(found: re.Match[str]) -> str:
    return f"{found[1]}=***" if NAMES.search(found[1].replace("-", "_")) else found.group()


@dataclass(frozen=True)
class Timeouts:
    """Seconds of silence in each phase of one call: until the first token, between tokens; `whole`
    is all of it.
    """

    connect: float = 10.0
    first_token: float = 120.0
    between: float = 60.0
    whole: float = 1800.0


@dataclass(frozen=True)
class ModelEndpoint:
    """One entry of the pool as its provider sees it.

    `name` is the entry's name in the pool, `model` what the server calls it, `base_url` the address
    up to the version ("https://api.openai.com/v1"). `key` is never shown; `key_env` says where it
    came from, for messages.
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
    """Put into every request as it is: what only this server knows."""

    @property
    def host(self) -> str:
        """The server's host as it is shown to people; the whole address where there is none in
        it.
        """
        try:
            return urlsplit(self.base_url).netloc.rpartition("@")[2] or self.address
        except ValueError:
            return self.address

    @property
    def address(self) -> str:
        """`base_url` as it is shown to people: without a password, and without values of parameters
        that are named like secrets."""
        shown = re.sub(r"(?<=://)[^/@]*@", "***@", self.base_url)
        return re.sub(r"(?<=[?&])([^=&]+)=[^&]*", _parameter, shown)

    @property
    def loopback(self) -> bool:
        """Whether the server runs on this machine: no proxy is asked then."""
        try:
            return urlsplit(self.base_url).hostname in {"127.0.0.1", "localhost", "::1"}
        except ValueError:
            return False

    def url(self, path: str) -> str:
        """The address of one path. A query in `base_url` (Azure's api-version) stays at the end."""
        base, mark, query = self.base_url.partition("?")
        return base.rstrip("/") + path + mark + query

    @property
    def azure(self) -> bool:
        """The server is Azure's, which takes a key in a header of its own."""
        return (
            self.host.endswith((".azure.com", ".azure.us", ".azure.cn"))
            or "api-version=" in self.base_url
        )

    @property
    def credentials(self) -> dict[str, str]:
        """The header in which servers like OpenAI's look for the key; none without a key."""
        if not self.key:
            return {}
        return {"api-key": self.key} if self.azure else {"authorization": f"Bearer {self.key}"}

    def hidden(self, text: str) -> str:
        """`text` without the key, should a server have repeated it. Words like `x` and `none`, for
        servers that want no key, are no secret: without them nobody could read what the server
        says."""
        return text.replace(self.key, "***") if len(self.key) >= SHORTEST_SECRET else text
