"""Addresses of the web as rules see them: `web_fetch(docs.python.org)`, `web_fetch(*.python.org)`. Pure.

Beside patterns.py, for the one tool whose target is a host. A pattern is a host, with a port where it is meant for that
port alone; `*` in it is anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from fugu_cli.policy import patterns

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Place:
    """Where an address leads: the host in small letters and without a dot at its end, as it is asked for in DNS."""

    scheme: str
    host: str
    port: int

    @property
    def shown(self) -> str:
        """The host, and the port where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if PORTS[self.scheme] == self.port else f"{host}:{self.port}"


def place_of(url: str) -> Place | str:
    """Where `url` leads, or what is wrong with it, for an agent."""
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
    return Place(parts.scheme, host.lower(), PORTS[parts.scheme] if port is None else port)


def match(pattern: str, place: Place) -> bool:
    """The rule covers fetching from `place`."""
    name, argument = patterns.split(pattern)
    if not patterns.covers(name, patterns.FETCH):
        return False
    return argument in patterns.EVERYTHING or _hosts(argument, place)


def _hosts(argument: str, place: Place) -> bool:
    bare = f"[{place.host}]" if ":" in place.host else place.host
    wanted = _literal(_asked_for(argument))
    return any(fnmatchcase(form, wanted) for form in (place.host, bare, f"{bare}:{place.port}"))


def _asked_for(host: str) -> str:
    """As `place_of` writes it: in small letters, other alphabets as DNS knows them, no dot at its end."""
    with contextlib.suppress(UnicodeError):
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    return host.lower().removesuffix(".")


def _literal(argument: str) -> str:
    """Brackets are those of an IPv6 address and no set."""
    return argument.replace("[", "[[]")


def offered(rules: Iterable[str]) -> bool:
    """Some rule names web_fetch: only then agents are told of it."""
    return any(patterns.split(rule)[0] == patterns.FETCH for rule in rules)


def names_exactly(rules: Iterable[str], place: Place) -> bool:
    """Some rule names this very host: then it may be one of this machine or its network."""
    own = (patterns.split(rule) for rule in rules)
    return any(name == patterns.FETCH and argument and "*" not in argument and "?" not in argument
               and _hosts(argument, place) for name, argument in own)  # fmt: skip
