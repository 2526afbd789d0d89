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
from fugu_cli.safety import web_addresses
from fugu_cli.safety.policy import rule_matching
from fugu_cli.session import tool_facts
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
    media_type: str
    charset: str | None
    data: bytes
    whole: bool


def web_fetch(rules: Sequence[str], bounds: FetchLimits = FetchLimits()) -> Tool[WebFetchArguments]:
    """Return the tool under the user's `allow` and `ask` rules. A local host is reached only if one
    of them names it.
    """

    async def run(arguments: WebFetchArguments, workspace: Workspace, say: Say) -> ToolResult:
        url = arguments.url.strip().partition("#")[0]
        try:
            async with asyncio.timeout(bounds.seconds):
                page = await _fetch(url, rules, bounds)
            text: str | None
            if html_to_text.is_html(page.media_type, page.data):
                text = await html_to_text.html_to_markdown_apart(page.data, page.charset)
            else:
                text = html_to_text.decode_page(page.data, page.charset)
        except FetchRefused as error:
            return ToolResult(text=str(error), ok=False)
        except TimeoutError:
            return ToolResult(
                text=f"{arguments.url} did not answer within {bounds.seconds:g} s.", ok=False
            )
        if text is None:
            return ToolResult(
                text=f"{page.url} is no text ({page.media_type or 'binary'}): it is not shown.",
                ok=False,
            )
        return _show_part(page, text, arguments.offset)

    return Tool.of(tool_facts.WEB_FETCH, WebFetchArguments, run)


def _show_part(page: WebPage, text: str, offset: int) -> ToolResult:
    part = text[offset : offset + SHOWN]
    if not part and offset:
        return ToolResult(text=f"{page.url} has only {len(text)} characters.", ok=False)
    end = offset + len(part)
    notes = [f"{page.url}, status {page.status}"]
    if end < len(text):
        notes.append(f"characters {offset} to {end} of {len(text)}; go on with offset={end}")
    if not page.whole:
        notes.append(f"only its first {len(page.data):,} bytes were read")
    return ToolResult(text=f"{part or '(empty)'}\n[{'; '.join(notes)}]", ok=page.status < 400)


async def _fetch(url: str, rules: Sequence[str], bounds: FetchLimits) -> WebPage:
    """Return the page at the end of redirects on the same host. Raises FetchRefused."""
    import httpx

    for _ in range(HOPS):
        address = _web_address(url)
        ip_addresses = await _resolve_host(address)
        private = next(
            (ip_address for ip_address in ip_addresses if not is_public_address(ip_address)), None
        )
        if private is not None and not rule_matching.any_names_host(rules, address):
            raise FetchRefused(
                f"{address.host} was not asked: {private} is an address of this machine or its "
                f"network. "
                f"Only a rule that names it permits that: web_fetch({address.shown})."
            )
        try:
            async with _client(bounds, address) as client:
                answer = await _get(client, url, address, ip_addresses, bounds.largest)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise FetchRefused(
                f"{url} could not be fetched: {str(error) or type(error).__name__}."
            ) from error
        if isinstance(answer, WebPage):
            return answer
        if not _covers(address, _web_address(answer)):
            raise FetchRefused(
                f"{url} redirects to {answer}, which is another place: fetch that address if you "
                f"need it."
            )
        url = answer
    raise FetchRefused(f"{url}: more than {HOPS} redirects.")


def _web_address(url: str) -> web_addresses.WebAddress:
    address = web_addresses.web_address(url)
    if isinstance(address, str):
        raise FetchRefused(f"`{url}` was not fetched: {address}.")
    return address


def _covers(address: web_addresses.WebAddress, target: web_addresses.WebAddress) -> bool:
    """Return whether the permission covers the target: same host and port, or http to https on the
    usual ports.
    """
    if target.host != address.host:
        return False
    if (target.scheme, target.port) == (address.scheme, address.port):
        return True
    was_http = (address.scheme, address.port) == ("http", 80)
    return was_http and (target.scheme, target.port) == ("https", 443)


async def _resolve_host(address: web_addresses.WebAddress) -> list[str]:
    """Return the addresses of the host, each once. Raises FetchRefused."""
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as error:
        raise FetchRefused(f"there is no host {address.host}, or no network: {error}.") from error
    return list(dict.fromkeys(str(socket_address[0]) for *_, socket_address in entries))


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


def _client(bounds: FetchLimits, address: web_addresses.WebAddress) -> httpx.AsyncClient:
    """Return a client that follows no redirects and uses no proxy. It trusts the system's and the
    user's certificates.
    """
    import httpx

    return httpx.AsyncClient(
        follow_redirects=False,
        trust_env=False,
        headers=HEADERS,
        timeout=httpx.Timeout(bounds.seconds),
        verify=httpx.create_ssl_context() if address.scheme == "https" else False,
    )


async def _get(
    client: httpx.AsyncClient,
    url: str,
    address: web_addresses.WebAddress,
    ip_addresses: Sequence[str],
    largest: int,
) -> WebPage | str:
    """Return the page, or the address of a redirect. Tries the addresses in order until one
    connects.
    """
    import httpx

    requested = httpx.URL(url)
    requests = [
        client.build_request(
            "GET",
            requested.copy_with(host=ip_address),
            headers={"Host": address.shown},
            extensions={"sni_hostname": address.host},
        )
        for ip_address in ip_addresses
    ]
    for request in requests[:-1]:
        try:
            return await _send(client, request, requested, largest)
        except httpx.ConnectError:
            continue
    return await _send(client, requests[-1], requested, largest)


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


async def _send(
    client: httpx.AsyncClient, request: httpx.Request, requested: httpx.URL, largest: int
) -> WebPage | str:
    response = await client.send(request, stream=True)
    try:
        if response.has_redirect_location:
            return str(requested.join(response.headers["location"]))
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not html_to_text.is_text(media_type):
            raise FetchRefused(f"{requested} is no text ({media_type}): it is not shown.")
        unpacked = _unpacking(str(requested), response.headers.get("content-encoding", ""))
        data, whole = b"", True
        async for piece in response.aiter_raw():
            data += unpacked(piece, largest + 1 - len(data))
            if len(data) > largest:
                data, whole = data[:largest], False
                break
        return WebPage(
            str(requested), response.status_code, media_type, response.charset_encoding, data, whole
        )
    finally:
        await response.aclose()
