"""Language servers: an edit's result tells which errors are new in the file.

Between the toolbox and the servers on the user's PATH, over pygls. A language server runs code of
the repository: it starts only in trusted folders, and in a sandbox without network in which it
cannot write the repository. Where no sandbox holds, only servers outside of the repository start.
One is started when the first file of its language is read, so that it knows the errors from before
the edit; it ends with the session, also when fugu is killed. A server that is slow, wrong or gone
changes no edit: what it says too late stands in the result of the next edit, of the next test run,
or in the diff that a Verifier reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fugu_cli import __version__
from fugu_cli.extensions.mcp_start import server_environment
from fugu_cli.safety import process_cleanup
from fugu_cli.safety.paths import inside, real_path
from fugu_cli.safety.process_cleanup import LaunchedProcess, StandardStreams, start_process
from fugu_cli.safety.programs import program_environment, search_path_outside
from fugu_cli.session.call_arguments import patched_paths
from fugu_cli.tools.result import Say, ToolResult, truncate_line

if TYPE_CHECKING:
    from lsprotocol.types import Diagnostic, PublishDiagnosticsParams, RegistrationParams
    from pydantic import BaseModel
    from pygls.lsp.client import LanguageClient

    from fugu_cli.safety.sandbox.command_sandbox import Sandbox
    from fugu_cli.tools.toolbox import AnyTool, Toolbox
    from fugu_cli.tools.workspace import Workspace

WAIT_SECONDS = 2.0
"""Seconds that an edit waits for what is new."""
FIRST_SECONDS = 15.0
"""Seconds after which a server that has said nothing of a file knows no errors in it."""
SETTLE_SECONDS = 0.3
"""Seconds of silence after which what a server said is all, where it does not name the version it
speaks of.
"""
LATE_SECONDS = 5.0
"""Seconds that the first test run or diff after an edit waits for what is still missing."""
LATE_TOOLS = ("run_tests", "diff")
"""Tools whose results also tell what came too late for the edit."""
EXIT_SECONDS = 1.0
LARGEST = 1_000_000
"""Bytes of the largest file that is shown to a server."""
MOST_FILES = 64
"""Files that are open in a server because they were read."""
MOST_ERRORS = 10
OWN_PROGRAMS = (".venv/bin", "venv/bin", "node_modules/.bin")
"""Folders of a repository in which a server is looked for that the sandbox confines."""
_VARIABLES = (
    "VIRTUAL_ENV",
    "GOPATH",
    "GOROOT",
    "GOMODCACHE",
    "GOFLAGS",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "XDG_CACHE_HOME",
)
"""Variables for a server beside those for servers of MCP: no keys."""
UNCONFINED = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
"""Variables without a sandbox: Go takes no toolchain that the repository names, and no compiler."""


class ServerKind(NamedTuple):
    """A program, and the language of each ending of files as the protocol names it.

    `runs_toolchain`: what it runs is chosen by files of the repository (`rust-toolchain.toml`), so
    that it starts only in the sandbox.
    """

    program: str
    arguments: tuple[str, ...]
    languages: Mapping[str, str]
    runs_toolchain: bool = False


_PYTHON = {".py": "python", ".pyi": "python"}
_SCRIPT = {
    ".ts": "typescript",
    ".mts": "typescript",
    ".cts": "typescript",
    ".tsx": "typescriptreact",
}
_SCRIPT |= {
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".jsx": "javascriptreact",
}
_C = {".c": "c", ".h": "c", **dict.fromkeys((".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), "cpp")}
KINDS = (
    ServerKind("pyright-langserver", ("--stdio",), _PYTHON),
    ServerKind("basedpyright-langserver", ("--stdio",), _PYTHON),
    ServerKind("typescript-language-server", ("--stdio",), _SCRIPT),
    ServerKind("tsc", ("--lsp", "--stdio"), _SCRIPT),  # TypeScript 7, which the one above lacks
    ServerKind("gopls", (), {".go": "go"}),
    ServerKind("rust-analyzer", (), {".rs": "rust"}, runs_toolchain=True),
    ServerKind("clangd", (), _C),
)


@dataclass(frozen=True)
class InstalledServer:
    """A kind of server, and the path of its program on this machine."""

    kind: ServerKind
    program: str


def configured_kind(command: Sequence[str], extensions: Sequence[str]) -> ServerKind:
    """Return the kind of a server that the configuration names. `extensions` begin with a dot."""
    names = {suffix: name for kind in KINDS for suffix, name in kind.languages.items()}
    languages = {suffix: names.get(suffix, suffix.removeprefix(".")) for suffix in extensions}
    return ServerKind(command[0], tuple(command[1:]), languages)


def installed_servers(
    root: Path, own: Sequence[ServerKind] = (), *, confined: bool
) -> dict[str, tuple[InstalledServer, ...]]:
    """Return the installed servers for each ending of files: those of the configuration (`own`)
    first, then in the order of `KINDS`.

    Without a sandbox (`confined` is False) only servers outside of the repository count.
    """
    path = search_path_outside(root)
    if confined:
        path = os.pathsep.join([path, *(str(root / folder) for folder in OWN_PROGRAMS)])
    servers: dict[str, tuple[InstalledServer, ...]] = {}
    for kind in (*own, *KINDS):
        program = shutil.which(kind.program, path=path)
        if program is None or (not confined and kind.runs_toolchain):
            continue
        if not confined and inside(real_path(Path(program)), real_path(root)):
            continue
        for suffix in kind.languages:
            servers[suffix] = (*servers.get(suffix, ()), InstalledServer(kind, program))
    return servers


def usable_servers(
    root: Path, sandbox: Sandbox | None, own: Sequence[ServerKind] = (), *, trusted: bool
) -> LanguageServers | str:
    """Return the servers that may run, or why none does. `sandbox` is that of the folder's
    commands, `own` are servers of the configuration.
    """
    if not trusted:
        return "diagnostics: no language server runs before you run `fugu trust` here"
    if not installed_servers(root, own, confined=sandbox is not None):
        return "diagnostics: no language server is on PATH"
    if sandbox is not None:
        sandbox = sandbox.for_servers("servers", network=False)
    return LanguageServers(root, sandbox, own)


class LanguageServers:
    """The servers of a session, each started when it is needed."""

    def __init__(self, root: Path, sandbox: Sandbox | None, own: Sequence[ServerKind] = ()) -> None:
        self._root = real_path(root)
        self._sandbox = sandbox
        self._own = own
        self._running: dict[str, _Server] = {}
        self._changed: dict[Path, None] = {}
        """Files that edits have changed, in order."""
        self._pending: set[Path] = set()
        """Files that were changed since the last wait of a test run or a diff."""

    @cached_property
    def _installed(self) -> Mapping[str, tuple[InstalledServer, ...]]:
        """The installed servers, found when the first file is read: the sandbox has been tried by
        then.
        """
        confined = self._sandbox is not None and self._sandbox.holds
        return installed_servers(self._root, self._own, confined=confined)

    async def start_all(self) -> dict[str, bool]:
        """Start for every ending of files the servers that a session would start; return by program
        whether it answered in time.
        """
        answered: dict[str, bool] = {}
        for suffix in self._installed:
            while (server := self._server(Path(f"file{suffix}"))) is not None:
                answered[server.name] = await server.answers(FIRST_SECONDS)
                if not server.gone:
                    break
        return answered

    def around_all(self, toolbox: Toolbox) -> Toolbox:
        """Wrap all tools for files."""
        for name in toolbox.names:
            toolbox = toolbox.replaced(self.around(toolbox[name]))
        return toolbox

    def around(self, tool: AnyTool) -> AnyTool:
        """Wrap a tool. Files that it reads are shown to their server; after it has written files,
        new errors are added to its result.
        """

        async def run(arguments: BaseModel, workspace: Workspace, say: Say) -> ToolResult:
            paths: list[Path] = []
            if real_path(workspace.root) == self._root:
                paths += self._paths(tool, arguments)
            if tool.effect == "writes":
                for path in paths:
                    self._show(path)
            result = await tool.run(arguments, workspace, say)
            if tool.name in LATE_TOOLS:
                pending, self._pending = self._pending, set()
                errors = await self._new_errors(pending, LATE_SECONDS)
                return result.model_copy(update={"text": result.text + errors})
            if not (result.ok and paths):
                return result
            if tool.effect == "reads":
                for path in paths:
                    self._show(path)
                return result
            self._pending.update(paths)
            errors = await self._new_errors(paths, WAIT_SECONDS)
            return result.model_copy(update={"text": result.text + errors})

        is_wrapped = tool.effect == "writes" or tool.name in ("read", *LATE_TOOLS)
        return replace(tool, run=run) if is_wrapped else tool

    def _paths(self, tool: AnyTool, arguments: BaseModel) -> Iterator[Path]:
        """Yield the files of the call that some server handles."""
        values = arguments.model_dump()
        names = [str(values[name]) for name in tool.paths]
        names += patched_paths(str(values[tool.patch])) if tool.patch else []
        for name in names:
            path = real_path(self._root / name)
            if path.suffix in self._installed and inside(path, self._root):
                yield path

    def _show(self, path: Path) -> None:
        """Show the file, as it is now, to its server, without waiting for errors."""
        server, text = self._server(path), _text(path)
        if server is not None and text is not None:
            server.show(path, text)

    def _server(self, path: Path) -> _Server | None:
        """Return the server for a file, started if it does not run yet; None if there is none. If a
        server cannot be started, the next one for such files is used. A server that ended after it
        had answered is not replaced.
        """
        for installed in self._installed[path.suffix]:
            program = installed.program
            if program not in self._running:
                self._running[program] = _Server(installed, self._root, self._sandbox)
            server = self._running[program]
            if not server.gone:
                return server
            if server.has_answered:
                return None
        return None

    async def _new_errors(self, paths: Collection[Path], seconds: float) -> str:
        """Return the errors that were not reported yet, in these files and in all that were changed
        before; "" for none. Waits at most `seconds` for errors in `paths`, and not for others.
        """
        self._changed |= dict.fromkeys(paths)
        until = asyncio.get_running_loop().time() + seconds
        others = [changed for changed in self._changed if changed not in paths]
        lines: list[str] = []
        for path in (*paths, *others):
            server = self._server(path)
            if server is not None:
                lines += await server.news(path, self._root, until if path in paths else 0.0)
        if not lines:
            return ""
        shown = lines[:MOST_ERRORS]
        if len(lines) > MOST_ERRORS:
            shown.append(f"... and {len(lines) - MOST_ERRORS} more")
        errors = "\n".join(shown)
        return f"\n[New errors, as a language server sees them:\n{errors}]"

    async def close(self) -> None:
        """End every server, with all it has started."""
        await asyncio.gather(
            *(server.close() for server in self._running.values()), return_exceptions=True
        )


def _text(path: Path) -> str | None:
    """Return a file's text; "" if there is no such file, None if it must not be shown to a server."""
    try:
        data = path.read_bytes() if path.exists() else b""
        return data.decode() if len(data) <= LARGEST else None
    except (OSError, ValueError):
        return None


@dataclass
class _Document:
    """A file as its server knows it. `error_counts` are its errors that have been reported before."""

    text: str
    version: int = 1
    sent: float = 0.0
    error_counts: Counter[tuple[str, str]] = field(default_factory=Counter)


class _Published(NamedTuple):
    """The newest errors that a server sent for a file."""

    version: int | None
    at: float
    errors: tuple[Diagnostic, ...]


class _Server:
    """A running language server. No method raises an error of the server; it is `gone` afterwards."""

    def __init__(self, installed: InstalledServer, root: Path, sandbox: Sandbox | None) -> None:
        self.gone = False
        self.has_answered = False
        """It has answered `initialize`."""
        self._server_kind = installed.kind
        self._sandbox = sandbox
        self._is_confined = False
        self._words = (installed.program, *installed.kind.arguments)
        self._root = root
        self._mark = uuid.uuid4().hex
        self._client: LanguageClient | None = None
        self._process: LaunchedProcess | None = None
        self._documents: dict[Path, asyncio.Task[_Document | None]] = {}
        self._opened: dict[Path, _Document] = {}
        """Documents that the server has been shown."""
        self._published: dict[str, _Published] = {}
        self._new_diagnostics = asyncio.Event()
        self._started = asyncio.Event()
        self._is_pulled = False
        """It tells errors when it is asked, not by itself (`textDocument/diagnostic`)."""
        self._pulls: set[asyncio.Task[None]] = set()
        self._life = asyncio.create_task(self._run())

    @property
    def name(self) -> str:
        return self._server_kind.program

    async def answers(self, seconds: float) -> bool:
        """Wait until the server has answered `initialize`. Return False if it ended or took too
        long.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._started.wait(), seconds)
        return self._client is not None and not self.gone

    def show(self, path: Path, text: str) -> None:
        """Open the file, if it is not."""
        if path not in self._documents and len(self._documents) < MOST_FILES:
            self._documents[path] = asyncio.create_task(self._open(path, text))

    async def news(self, path: Path, root: Path, until: float) -> list[str]:
        """Return the errors of the file that were not reported yet. Waits `until` a time of the
        event loop; later errors are reported the next time.
        """
        opening, loop = self._documents.get(path), asyncio.get_running_loop()
        if opening is None:
            return []
        await asyncio.wait((opening,), timeout=max(until - loop.time(), 0))
        document = opening.result() if opening.done() and not opening.cancelled() else None
        if document is None or self.gone:
            return []
        if (text := _text(path)) is not None and text != document.text:
            self._send_change(path, document, text)
        try:
            async with asyncio.timeout_at(max(until, loop.time())):
                await self._wait_for_errors(path, document)
        except TimeoutError:
            if until:
                return []
        published = self._published.get(path.as_uri())
        if published is None or published.version not in (None, document.version):
            return []
        if published.at < document.sent:
            return []
        lines, counts = [], Counter[tuple[str, str]]()
        for error in published.errors:
            key = (str(error.code), error.message)
            counts[key] += 1
            if counts[key] > document.error_counts[key]:
                start = error.range.start
                position = f"{path.relative_to(root)}:{start.line + 1}:{start.character + 1}"
                message = truncate_line(" ".join(error.message.split()), 300)
                code = f" ({error.code})" if error.code else ""
                lines.append(f"{position}: {message}{code}")
        document.error_counts = counts
        return lines

    async def close(self) -> None:
        """Ask the server to end, then end its process."""
        if self._client is not None and not self.gone:
            with contextlib.suppress(TimeoutError, RuntimeError, OSError):
                await asyncio.wait_for(self._client.shutdown_async(None), EXIT_SECONDS)
                self._client.exit(None)
        self.gone = True
        tasks = [self._life, *self._documents.values(), *self._pulls]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        """Start the server and read its messages until it ends."""
        try:
            client, run_async = await asyncio.to_thread(_library)
            client.feature("textDocument/publishDiagnostics")(
                lambda params: self._store_errors(params)
            )
            client.feature("workspace/configuration")(lambda params: self._configuration(params))
            client.feature("client/registerCapability")(lambda params: self._register(params))
            client.feature("client/unregisterCapability")(lambda params: None)
            client.feature("window/workDoneProgress/create")(lambda params: None)
            client.feature("workspace/diagnostic/refresh")(lambda params: self._pull_all())
            reader = await self._start(client)
            reading = asyncio.create_task(run_async(threading.Event(), reader, client.protocol))
            starting = asyncio.create_task(self._initialize(client))
            try:
                await asyncio.wait((reading, starting), return_when=asyncio.FIRST_COMPLETED)
                if starting.done() and starting.exception() is None:
                    self._client = client
                    self.has_answered = True
                    self._started.set()
                    await reading
            finally:
                for task in (reading, starting):
                    task.cancel()
                await asyncio.gather(reading, starting, return_exceptions=True)
        except (OSError, RuntimeError, ValueError):
            pass  # no program any more, or one that speaks something else
        finally:
            self.gone = True
            self._started.set()
            self._new_diagnostics.set()
            if self._process is not None:
                await self._process.end(self._mark)

    async def _start(self, client: LanguageClient) -> asyncio.StreamReader:
        """Start the process. Raises OSError."""
        pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        own = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        variables = server_environment(own, program_environment(self._root))
        launch = None
        if self._sandbox is not None:
            launch = await asyncio.to_thread(self._sandbox.launch, "", read_only=True)
        if launch is None or launch.access is None:
            variables |= UNCONFINED
        else:
            self._is_confined = True
            caches = {
                "XDG_CACHE_HOME": str(launch.cache),
                "CARGO_TARGET_DIR": str(launch.cache / "cargo-target"),
            }
            for name, value in {**launch.variables(), **caches}.items():
                variables.pop(name, None)
                if value is not None:
                    variables[name] = value
        variables[process_cleanup.CALL_VARIABLE] = self._mark
        streams = StandardStreams(pipe, pipe, errors=nowhere)
        self._process = await start_process(self._words, self._root, variables, streams, launch)
        reader, writer = self._process.process.stdout, self._process.process.stdin
        assert reader is not None and writer is not None
        client.protocol.set_writer(writer)
        return reader

    async def _initialize(self, client: LanguageClient) -> None:
        from lsprotocol import types

        uri = self._root.as_uri()
        document = types.TextDocumentClientCapabilities(
            synchronization=types.TextDocumentSyncClientCapabilities(did_save=True),
            publish_diagnostics=types.PublishDiagnosticsClientCapabilities(version_support=True),
            diagnostic=types.DiagnosticClientCapabilities(dynamic_registration=True),
        )
        workspace = types.WorkspaceClientCapabilities(configuration=True, workspace_folders=True)
        answer = await client.initialize_async(
            types.InitializeParams(
                process_id=None,  # it may not see this process, and ends with it all the same
                client_info=types.ClientInfo("fugu", __version__),
                root_uri=uri,
                workspace_folders=[types.WorkspaceFolder(uri, self._root.name)],
                capabilities=types.ClientCapabilities(text_document=document, workspace=workspace),
            )
        )
        self._is_pulled = answer.capabilities.diagnostic_provider is not None
        client.initialized(types.InitializedParams())

    def _register(self, params: RegistrationParams) -> None:
        """Note a capability that the server registers after its start."""
        if any(offer.method == "textDocument/diagnostic" for offer in params.registrations):
            self._is_pulled = True
            self._pull_all()

    def _pull_all(self) -> None:
        for path, document in self._opened.items():
            self._pull(path, document)

    def _pull(self, path: Path, document: _Document) -> None:
        """Ask for the errors of a document, if the server sends errors only on request."""
        if self._is_pulled and self._client is not None:
            task = asyncio.create_task(self._ask_for_errors(self._client, path, document))
            self._pulls.add(task)
            task.add_done_callback(self._pulls.discard)

    async def _ask_for_errors(
        self, client: LanguageClient, path: Path, document: _Document
    ) -> None:
        from lsprotocol import types
        from pygls.exceptions import JsonRpcException

        version, uri = document.version, path.as_uri()
        question = types.DocumentDiagnosticParams(types.TextDocumentIdentifier(uri))
        try:
            report = await client.text_document_diagnostic_async(question)
        except (JsonRpcException, OSError, RuntimeError):
            return  # what it does not tell now is told with the next change
        if isinstance(report, types.RelatedFullDocumentDiagnosticReport):
            self._keep_errors(uri, version, report.items)

    def _configuration(self, params: Any) -> list[object]:
        """Answer a request for the configuration with the repository's own virtual environment. The
        server runs its Python, so only in the sandbox.
        """
        sections: dict[str, object] = {}
        pythons = [self._root / name / "bin" / "python" for name in (".venv", "venv")]
        python = next(filter(Path.exists, pythons), None)
        if python is not None and self._is_confined:
            sections["python"] = {"pythonPath": str(python)}
        return [sections.get(item.section, {}) for item in params.items]

    def _store_errors(self, params: PublishDiagnosticsParams) -> None:
        if not self._is_pulled:
            from pygls.uris import to_fs_path

            path = to_fs_path(params.uri)
            uri = params.uri
            if path and path.startswith("/"):
                uri = Path(path).as_uri()  # as fugu writes it: some servers write `%3A` for a colon
            self._keep_errors(uri, params.version, params.diagnostics)

    def _keep_errors(
        self, uri: str, version: int | None, diagnostics: Sequence[Diagnostic]
    ) -> None:
        errors = tuple(error for error in diagnostics if error.severity in (1, None))
        time = asyncio.get_running_loop().time()
        self._published[uri] = _Published(version, time, errors)
        self._new_diagnostics.set()

    async def _open(self, path: Path, text: str) -> _Document | None:
        """Return the document of a file, opened before any edit, with the errors that it had then."""
        from lsprotocol import types

        await self._started.wait()
        if self._client is None or self.gone:
            return None
        document = _Document(text, sent=asyncio.get_running_loop().time())
        item = types.TextDocumentItem(
            path.as_uri(), self._server_kind.languages[path.suffix], 1, text
        )
        self._client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        self._opened[path] = document
        self._pull(path, document)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await self._wait_for_errors(path, document)
        published = self._published.get(path.as_uri())
        document.error_counts = Counter(
            (str(error.code), error.message) for error in (published.errors if published else ())
        )
        return document

    def _send_change(self, path: Path, document: _Document, text: str) -> None:
        from lsprotocol import types

        assert self._client is not None
        document.text, document.version = text, document.version + 1
        document.sent = asyncio.get_running_loop().time()
        what = types.VersionedTextDocumentIdentifier(document.version, path.as_uri())
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self._client.text_document_did_change(types.DidChangeTextDocumentParams(what, [whole]))
        self._client.text_document_did_save(
            types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(path.as_uri()), text)
        )
        self._pull(path, document)

    async def _wait_for_errors(self, path: Path, document: _Document) -> None:
        """Wait for the server's errors in the newest version of a document."""
        loop = asyncio.get_running_loop()
        while not self.gone:
            published, remaining = self._published.get(path.as_uri()), None
            if published is not None and published.version == document.version:
                return
            if (
                published is not None
                and published.version is None
                and published.at >= document.sent
            ):
                remaining = published.at + SETTLE_SECONDS - loop.time()
                if remaining <= 0:
                    return
            self._new_diagnostics.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._new_diagnostics.wait(), remaining)


def _library() -> tuple[LanguageClient, Any]:
    """Return the client class and the reader of its messages. Imported in a thread, because that
    takes half a second.
    """
    import logging

    from pygls.io_ import run_async
    from pygls.lsp.client import LanguageClient

    logger = logging.getLogger("pygls")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False  # what a server does wrong is no line on the screen
    return LanguageClient("fugu", __version__), run_async
