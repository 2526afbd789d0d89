"""Checks who may see the page: the Host and Origin of a request, the link that signs a browser in
once, and the cookies of the browsers that have signed in.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from fugu_cli.server import WEB_ROOT, is_loopback, parse_authority, parse_origin

COOKIE = "fugu_web"
COOKIE_SECONDS = 12 * 3600
"""Seconds after which a browser has to sign in again."""
MOST_BROWSERS = 32
"""With more, the browser that signed in first is signed out."""


@dataclass(frozen=True)
class Denial:
    """A refusal: the HTTP status, and what happened and what to do, for people."""

    status: int
    message: str


class WebAccess:
    """The link, the cookies and the origin of one running server.

    The paths of the page have a random part, and the cookie is sent to those paths only: browsers
    send a cookie to every port of a host, so other servers on this machine would be sent it too.
    """

    def __init__(
        self, port: int, named_origin: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        """`named_origin` is the address under which a proxy with TLS serves the page, "" for this
        machine only.
        """
        self.base = f"{WEB_ROOT}/{secrets.token_urlsafe(9)}"
        self._port = port
        self._named_origin = named_origin
        self._clock = clock
        self._key = secrets.token_urlsafe(32)
        self._expiry_by_token: dict[str, float] = {}

    def link(self, host: str) -> str:
        """Return the link that signs one browser in. `host` is the address of the server."""
        origin = self._named_origin or f"http://{host}:{self._port}"
        return f"{origin}{WEB_ROOT}/login?key={self._key}"

    def check_request(self, method: str, path: str, headers: Mapping[str, str]) -> Denial | None:
        """Return the refusal of a request that nobody may send, None for any other request.

        Refused are a Host that is not this server's, a page of another origin, and a change that
        names no origin.
        """
        host = headers.get("host", "")
        own_origin = self._own_origin(host)
        if own_origin is None:
            name = host or "a server without a name"
            message = f"This page is not served as {name}. Open the link that `fugu serve` printed."
            return Denial(403, message)
        origin = headers.get("origin")
        if origin is None and method not in ("GET", "HEAD"):
            return Denial(403, "A change must come from the page itself.")
        if origin is not None and parse_origin(origin) != own_origin:
            return Denial(403, "Pages of other origins may not use this page.")
        signs_in = path == f"{WEB_ROOT}/login"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not signs_in:
            return Denial(403, "Pages of other origins may not use this page.")
        return None

    def _own_origin(self, host: str) -> tuple[str, str, int] | None:
        """Return the origin of the page, if `host` is a name of this server."""
        if self._named_origin:
            origin = parse_origin(self._named_origin)
            is_own = origin is not None and parse_authority(host, origin[0]) == origin[1:]
            return origin if is_own else None
        authority = parse_authority(host)
        if authority is None or not is_loopback(authority[0]) or authority[1] != self._port:
            return None
        return ("http", *authority)

    def sign_in(self, key: str) -> str | None:
        """Return the Set-Cookie header for a browser that brings the key of the link, None for any
        other key. The key is then replaced.
        """
        if not hmac.compare_digest(key.encode("utf-8", "replace"), self._key.encode()):
            return None
        self._key = secrets.token_urlsafe(32)
        token = secrets.token_urlsafe(32)
        self._expiry_by_token[token] = self._clock() + COOKIE_SECONDS
        while len(self._expiry_by_token) > MOST_BROWSERS:
            oldest = next(iter(self._expiry_by_token))
            del self._expiry_by_token[oldest]
        secure = "; Secure" if self._named_origin else ""
        return (
            f"{COOKIE}={token}; Path={self.base}; Max-Age={COOKIE_SECONDS}; HttpOnly; "
            f"SameSite=Strict{secure}"
        )

    def is_signed_in(self, headers: Mapping[str, str]) -> bool:
        """Return whether the request comes from a browser that has signed in."""
        return self._valid_token(headers) is not None

    def sign_out(self, headers: Mapping[str, str]) -> None:
        """Make the cookie of the request invalid."""
        token = self._valid_token(headers)
        if token is not None:
            del self._expiry_by_token[token]

    def _valid_token(self, headers: Mapping[str, str]) -> str | None:
        """Return the token in the cookie of the request if it is valid."""
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return None
        if morsel is None:
            return None
        sent = morsel.value.encode("utf-8", "replace")
        for token, expiry in self._expiry_by_token.items():
            if hmac.compare_digest(sent, token.encode()) and self._clock() < expiry:
                return token
        return None
