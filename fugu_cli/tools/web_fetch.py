"""web_fetch: a page of the web as text. Offered only where a rule of the user's names it.

GET alone, without cookies and without anybody's key. The address was judged before. Its host is
resolved once, private addresses are refused, and the connection goes to the very address that was
checked. A redirect to another host is answered, not followed: that host is judged by a call of its
own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fugu_cli import __version__
from fugu_cli.safety.policy import rule_matching
from fugu_cli.tools import html_to_text
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.workspace import Tool, Workspace

if TYPE_CHECKING:
    import httpx

SHOWN = 16_000
"""Characters of one answer."""
HOPS = 5
HEADERS = {
    "User-Agent": f"fugu/{__version__}",
    "Accept": "text/html,text/plain,application/json;q=0.9,*/*;q=0.5",
    "Accept-Encoding": "gzip",
}
PACKED = frozenset({"gzip", "x-gzip", "deflate"})
"""Once and no more: one inside another, a few bytes could become gigabytes."""
_WRAPS = tuple(ipaddress.IPv6Network(net) for net in ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96"))
"""Networks of IPv6 whose last four bytes are an address of IPv4."""
_LOCAL = tuple(ipaddress.IPv6Network(net) for net in ("64:ff9b:1::/48", "fec0::/10"))
"""Networks of IPv6 that are not public, although `is_global` says so."""


class WebFetchArguments(ToolArguments):
    """Arguments of web_fetch."""

    url: str = Field(description="http or https address")
    offset: Annotated[int, Field(ge=0, description="first character, to go on in a long page")] = 0


@dataclass(frozen=True)
class FetchLimits:
    """Of a fetch: seconds for all of it, redirects included, and bytes that are read of a page."""

    seconds: float = 30.0
    largest: int = 3_000_000


class FetchRefused(Exception):
    """Why nothing was fetched, for the agent."""


@dataclass(frozen=True)
class WebPage:
    """The answer of a server: status, media type without parameters, charset if named, content."""

    url: str
    status: int
    kind: str
    charset: str | None
    data: bytes
    whole: bool


def web_fetch(rules: Sequence[str], bounds: FetchLimits = FetchLimits()) -> Tool[WebFetchArguments]:
    """Return the tool under the user's `allow` and `ask` rules. A local host must be named in one
    of them.
    """

    async def run(given: WebFetchArguments, workspace: Workspace, say: Say) -> ToolResult:
        try:
            async with asyncio.timeout(bounds.seconds):
                page = await _fetched(given.url.strip().partition("#")[0], rules, bounds)
            text = await _text(page)
        except FetchRefused as error:
            return ToolResult(text=str(error), ok=False)
        except TimeoutError:
            return ToolResult(
                text=f"{given.url} did not answer within {bounds.seconds:g} s.", ok=False
            )
        if text is None:
            return ToolResult(
                text=f"{page.url} is no text ({page.kind or 'binary'}): it is not shown.", ok=False
            )
        return _shown(page, text, given.offset)

    return Tool(
        name=rule_matching.FETCH, effect="reads", arguments=WebFetchArguments, run=run, native=True
    )


async def _text(page: WebPage) -> str | None:
    if html_to_text.is_html(page.kind, page.data):
        return await html_to_text.html_to_markdown_apart(page.data, page.charset)
    return html_to_text.decode_page(page.data, page.charset)


def _shown(page: WebPage, text: str, offset: int) -> ToolResult:
    part = text[offset : offset + SHOWN]
    if not part and offset:
        return ToolResult(text=f"{page.url} has only {len(text)} characters.", ok=False)
    end = offset + len(part)
    notes = [f"{page.url}, status {page.status}"]
    notes += (
        [f"characters {offset} to {end} of {len(text)}; go on with offset={end}"]
        if end < len(text)
        else []
    )
    notes += [] if page.whole else [f"only its first {len(page.data):,} bytes were read"]
    return ToolResult(text=f"{part or '(empty)'}\n[{'; '.join(notes)}]", ok=page.status < 400)


async def _fetched(url: str, rules: Sequence[str], bounds: FetchLimits) -> WebPage:
    """Return the page at the end of redirects on the same host. Raises FetchRefused."""
    import httpx

    for _ in range(HOPS):
        place = _place(url)
        addresses = await _addresses(place)
        private = next((one for one in addresses if not is_public_address(one)), None)
        if private is not None and not rule_matching.any_names_host(rules, place):
            raise FetchRefused(
                f"{place.host} was not asked: {private} is an address of this machine or its "
                f"network. "
                f"Only a rule that names it permits that: web_fetch({place.shown})."
            )
        try:
            async with _client(bounds, place) as client:
                answer = await _answer(client, url, place, addresses, bounds.largest)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise FetchRefused(
                f"{url} could not be fetched: {str(error) or type(error).__name__}."
            ) from error
        if isinstance(answer, WebPage):
            return answer
        if not _same(place, _place(answer)):
            raise FetchRefused(
                f"{url} redirects to {answer}, which is another place: fetch that address if you "
                f"need it."
            )
        url = answer
    raise FetchRefused(f"{url}: more than {HOPS} redirects.")


def _place(url: str) -> rule_matching.WebAddress:
    place = rule_matching.web_address(url)
    if isinstance(place, str):
        raise FetchRefused(f"`{url}` was not fetched: {place}.")
    return place


def _same(place: rule_matching.WebAddress, target: rule_matching.WebAddress) -> bool:
    """Return whether the permission covers the target: same host and port, or http to https on the
    usual ports.
    """
    upgraded = (place.scheme, target.scheme) == ("http", "https") and (place.port, target.port) == (
        80,
        443,
    )
    return target.host == place.host and (
        upgraded or (target.scheme, target.port) == (place.scheme, place.port)
    )


async def _addresses(place: rule_matching.WebAddress) -> list[str]:
    """Return the addresses of the host, each once. Raises FetchRefused."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            place.host, place.port, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as error:
        raise FetchRefused(f"there is no host {place.host}, or no network: {error}.") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_public_address(text: str) -> bool:
    """Return whether it is a public internet address, also inside IPv6's wrappings of IPv4."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inside = (
            address.ipv4_mapped
            or address.sixtofour
            or (address.teredo[1] if address.teredo else None)
        )
        if any(address in net for net in _LOCAL):
            return False
        if any(address in net for net in _WRAPS):
            inside = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inside is not None and not is_public_address(str(inside)):
            return False
    return address.is_global and not address.is_multicast


def _client(bounds: FetchLimits, place: rule_matching.WebAddress) -> httpx.AsyncClient:
    """Return a client that follows no redirects and uses no proxy. It trusts the system's and the
    user's certificates.
    """
    import httpx

    return httpx.AsyncClient(
        follow_redirects=False,
        trust_env=False,
        headers=HEADERS,
        timeout=httpx.Timeout(bounds.seconds),
        verify=httpx.create_ssl_context() if place.scheme == "https" else False,
    )


async def _answer(
    client: httpx.AsyncClient,
    url: str,
    place: rule_matching.WebAddress,
    addresses: Sequence[str],
    largest: int,
) -> WebPage | str:
    """Return the page, or the address of a redirect. Tries the addresses in order until one
    connects.
    """
    import httpx

    asked = httpx.URL(url)
    sent = [
        client.build_request(
            "GET",
            asked.copy_with(host=address),
            headers={"Host": place.shown},
            extensions={"sni_hostname": place.host},
        )
        for address in addresses
    ]
    for request in sent[:-1]:
        try:
            return await _sent(client, request, asked, largest)
        except httpx.ConnectError:
            continue
    return await _sent(client, sent[-1], asked, largest)


def _unpacking(url: str, packed: str) -> Callable[[bytes, int], bytes]:
    """Return a function that unpacks a piece to a limited number of bytes, since a small page may
    unpack to any size. Raises FetchRefused.
    """
    if packed.strip().lower() in {"", "identity"}:
        return lambda piece, most: piece[:most]
    if packed.strip().lower() not in PACKED:
        raise FetchRefused(
            f"{url} is packed in a way that was not asked for ({packed}): it is not shown."
        )
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)  # with either header, gzip's or zlib's

    def unpacked(piece: bytes, most: int) -> bytes:
        try:
            return stream.decompress(piece, most)
        except zlib.error as error:
            raise FetchRefused(f"{url} could not be unpacked: {error}.") from error

    return unpacked


async def _sent(
    client: httpx.AsyncClient, request: httpx.Request, asked: httpx.URL, largest: int
) -> WebPage | str:
    response = await client.send(request, stream=True)
    try:
        if response.has_redirect_location:
            return str(asked.join(response.headers["location"]))
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not html_to_text.is_text(kind):
            raise FetchRefused(f"{asked} is no text ({kind}): it is not shown.")
        unpacked = _unpacking(str(asked), response.headers.get("content-encoding", ""))
        data, whole = b"", True
        async for piece in response.aiter_raw():
            data += unpacked(piece, largest + 1 - len(data))
            if len(data) > largest:
                data, whole = data[:largest], False
                break
        return WebPage(
            str(asked), response.status_code, kind, response.charset_encoding, data, whole
        )
    finally:
        await response.aclose()
