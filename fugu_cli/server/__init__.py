"""`fugu serve`: the pool behind one HTTP endpoint that speaks three wires.

This module holds the address and the limits as plain values, and imports nothing heavy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from fugu_cli.errors import UsageError

SHORTEST_TOKEN = 16
WEB_ROOT = "/web"
"""The path of the web page."""


@dataclass(frozen=True)
class ListenAddress:
    """The address and token of an endpoint.

    Port 0 means any free port. `grace` is the number of seconds that running answers may take after
    a stop. `origins` are web pages, as `https://host:port`, that may use the endpoint besides its
    own. With `web`, the web page is served too: under `web_origin` by a proxy with TLS, else for
    this machine alone.
    """

    host: str = "127.0.0.1"
    port: int = 8484
    token: str | None = None
    grace: float = 30.0
    origins: tuple[str, ...] = ()
    web: bool = False
    web_origin: str = ""


@dataclass(frozen=True)
class EndpointLimits:
    """Limits of one endpoint: bytes of a request body, seconds for an answer, and requests at once."""

    body: int = 32 * 1024 * 1024
    seconds: float = 1800.0
    at_once: int = 128


_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def parse_authority(text: str, scheme: str = "http") -> tuple[str, int] | None:
    """Return the host and port of a Host header, or None if it is malformed (such as `user@host`)."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None
    host, port = match[1].strip("[]").lower(), match[2]
    return host, int(port) if port else _DEFAULT_PORTS[scheme]


def parse_origin(text: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an Origin header, or None if it names no web page."""
    scheme, separator, authority = text.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        return None
    parsed = parse_authority(authority, scheme)
    return (scheme, *parsed) if parsed is not None else None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_address(address: ListenAddress, limits: EndpointLimits, variable: str) -> None:
    """Raise UsageError for a limit that is not positive, and for an address that other machines
    reach without a token. `variable` is the environment variable of the token.
    """
    if min(limits.body, limits.seconds, limits.at_once, address.grace) <= 0:
        raise UsageError("limits must be above 0", hint="`fugu serve --help` lists them")
    if not 0 <= address.port <= 65535:
        raise UsageError(f"{address.port} is no port", hint="0 takes any free one")
    if address.token is None and not is_loopback(address.host):
        raise UsageError(
            f"{address.host} can be reached from other machines, and no token protects it",
            hint=(
                f"set {variable} to a long random text, or leave --host out: 127.0.0.1 is this "
                f"machine alone"
            ),
        )
    for origin in address.origins:
        if parse_origin(origin) is None:
            raise UsageError(
                f"--allow-origin {origin} is no origin", hint="write it as https://host:port"
            )
    if address.origins and address.token is None:
        raise UsageError(
            "--allow-origin needs a token: any other page could be opened under that name",
            hint=f"set {variable} to a long random text",
        )
    if address.web_origin and not address.web:
        raise UsageError("--web-origin is an address of the web page", hint="add --web")
    if address.web and not address.web_origin and not is_loopback(address.host):
        raise UsageError(
            f"the web page on {address.host} needs the name under which browsers open it",
            hint="put a proxy with TLS in front, and name it: --web-origin https://host",
        )
    if address.web_origin:
        page_origin = parse_origin(address.web_origin)
        if page_origin is None or page_origin[0] != "https":
            raise UsageError(
                f"--web-origin {address.web_origin} is no origin with TLS",
                hint="write it as https://host or https://host:port",
            )
        if address.token is None:
            raise UsageError(
                "--web-origin needs a token: the proxy reaches the endpoint, too",
                hint=f"set {variable} to a long random text",
            )
    if address.token is not None and len(address.token) < SHORTEST_TOKEN:
        raise UsageError(
            f"the token in {variable} is too short", hint="`openssl rand -hex 24` makes a good one"
        )
