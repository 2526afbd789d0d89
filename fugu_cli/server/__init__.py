"""`fugu serve`: the pool behind one endpoint that speaks three wires. Here: where it listens and
what it takes, as plain values. Nothing heavy is imported here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from fugu_cli.errors import UsageError

SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class ListenAddress:
    """Where an endpoint listens. Port 0: any free one. `grace`: seconds that answers may take after
    a stop. `origins`: web pages that may use it beside its own, as `https://host:port`.
    """

    host: str = "127.0.0.1"
    port: int = 8484
    token: str | None = None
    grace: float = 30.0
    origins: tuple[str, ...] = ()


@dataclass(frozen=True)
class EndpointLimits:
    """What one endpoint takes: bytes of a body, seconds of an answer, answers at once."""

    body: int = 32 * 1024 * 1024
    seconds: float = 1800.0
    at_once: int = 128


_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def parse_authority(text: str, scheme: str = "http") -> tuple[str, int] | None:
    """Return the host and port of a Host header; None for what is not one, such as `user@host`."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None
    host, port = match[1].strip("[]").lower(), match[2]
    return host, int(port) if port else _DEFAULT_PORTS[scheme]


def parse_origin(text: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an Origin; None for what is not one of a web page."""
    scheme, separator, authority = text.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        return None
    parsed = parse_authority(authority, scheme)
    return (scheme, *parsed) if parsed is not None else None


def is_loopback(host: str) -> bool:
    """The address is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_address(place: ListenAddress, bounds: EndpointLimits, variable: str) -> None:
    """Raises UsageError for limits that are none, and for an address that others reach without a
    token.
    """
    if min(bounds.body, bounds.seconds, bounds.at_once, place.grace) <= 0:
        raise UsageError("limits must be above 0", hint="`fugu serve --help` lists them")
    if not 0 <= place.port <= 65535:
        raise UsageError(f"{place.port} is no port", hint="0 takes any free one")
    if place.token is None and not is_loopback(place.host):
        raise UsageError(
            f"{place.host} can be reached from other machines, and no token protects it",
            hint=(
                f"set {variable} to a long random text, or leave --host out: 127.0.0.1 is this "
                f"machine alone"
            ),
        )
    for origin in place.origins:
        if parse_origin(origin) is None:
            raise UsageError(
                f"--allow-origin {origin} is no origin", hint="write it as https://host:port"
            )
    if place.origins and place.token is None:
        raise UsageError(
            "--allow-origin needs a token: any other page could be opened under that name",
            hint=f"set {variable} to a long random text",
        )
    if place.token is not None and len(place.token) < SHORTEST_TOKEN:
        raise UsageError(
            f"the token in {variable} is too short", hint="`openssl rand -hex 24` makes a good one"
        )
