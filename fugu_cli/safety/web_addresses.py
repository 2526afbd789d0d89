"""The server that a web address leads to, and whether a pattern for hosts covers it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class WebAddress:
    """The server an address leads to. The host is in small letters and without a dot at its end, as
    DNS is asked for it.
    """

    scheme: str
    host: str
    port: int

    @property
    def shown(self) -> str:
        """The host, and the port where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if PORTS[self.scheme] == self.port else f"{host}:{self.port}"

    def is_covered_by(self, pattern: str) -> bool:
        """Return whether a pattern such as `*.python.org` or `localhost:8000` covers the server."""
        with contextlib.suppress(UnicodeError):
            pattern = pattern if pattern.isascii() else pattern.encode("idna").decode("ascii")
        # a bracket belongs to an IPv6 address, and begins no set of characters
        pattern = pattern.lower().removesuffix(".").replace("[", "[[]")
        host = f"[{self.host}]" if ":" in self.host else self.host
        forms = (self.host, host, f"{host}:{self.port}")
        return any(fnmatchcase(form, pattern) for form in forms)


def web_address(url: str) -> WebAddress | str:
    """Return the server that `url` leads to, or what is wrong with it, for an agent."""
    if any(ord(letter) <= 32 or letter == "\\" for letter in url):
        return "it holds spaces, control characters or a backslash"
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").removesuffix("."), parts.port
        host = host if ":" in host or host.isascii() else host.encode("idna").decode("ascii")
    except ValueError as error:
        return str(error)
    if parts.scheme not in PORTS:
        return "only http:// and https:// are fetched"
    if parts.username is not None or parts.password is not None:
        return "a user name or password in an address is not sent"
    if not host or "%" in host or "*" in host:
        return "it names no host"
    return WebAddress(parts.scheme, host.lower(), PORTS[parts.scheme] if port is None else port)
