"""Opens, resumes, forks and lists the sessions of one folder for the interfaces, and sets up their
models.

Implements SessionOpener and ModelSetup of app/session_protocol.py. Opening costs imports and a look
at the repository, so `prepare` does both in a thread while the first frame is already on the
screen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.session import store

if TYPE_CHECKING:
    from fugu_cli.app.open_session import Session
    from fugu_cli.app.session_protocol import KeyTrial, ServerModels, SetupOffer, TrialWire
    from fugu_cli.config import Config
    from fugu_cli.config.loader import LoadedConfig
    from fugu_cli.engine.environment import AskPermission
    from fugu_cli.local.sources import ReportProgress


def import_wiring() -> None:
    """Import what opening a session needs."""
    from fugu_cli import wiring

    assert wiring.__name__


@dataclass
class FolderSessions:
    """The sessions of `loaded.root`, kept among the user's data. `load` reads the configuration
    again after the folder was trusted.
    """

    loaded: LoadedConfig
    environ: MutableMapping[str, str]
    load: Callable[[], LoadedConfig] | None = None

    @property
    def ignored(self) -> Sequence[Path]:
        return self.loaded.ignored

    @property
    def notes(self) -> Sequence[str]:
        return [note for note in self.loaded.notes if note not in self.loaded.trust_notes]

    def trust(self) -> None:
        """Trust the folder as `fugu trust` does, and read its configuration again. Raises
        FuguError.
        """
        from fugu_cli.cli.current_folder import trust_folders

        trust_folders(None, self.root, self.loaded.trust_data)
        self.reload()

    @property
    def changed(self) -> Sequence[str]:
        from fugu_cli.config import trust

        return trust.changed_files(self.loaded.trust_data, self.root)

    @property
    def is_declined(self) -> bool:
        from fugu_cli.config import trust

        return trust.is_declined(self.loaded.trust_data, self.root)

    def decline(self) -> None:
        from fugu_cli.config import trust

        trust.decline(self.loaded.trust_data, self.root)

    def reload(self) -> None:
        if self.load is not None:
            self.loaded = self.load()

    @property
    def root(self) -> Path:
        return self.loaded.root

    @property
    def setup(self) -> UserSetup:
        return UserSetup(self.loaded.config, self.environ)

    def prepare(self) -> None:
        import_wiring()

    async def begin(self, ask: AskPermission) -> Session:
        return await self._open(ask, lambda: None)

    async def resume(self, id: str, ask: AskPermission) -> Session:
        return await self._open(ask, lambda: self._find(id))

    async def fork(self, id: str, ask: AskPermission, before: int | None = None) -> Session:
        return await self._open(
            ask,
            lambda: store.fork_session(self.loaded.config.data, self.root, self._find(id), before),
        )

    def listed(self) -> Sequence[store.SessionSummary]:
        """Return this folder's sessions, the newest first, under the user's titles."""
        return store.session_summaries(store.session_paths(self.loaded.config.data, self.root))

    def recent(self, most: int, excluding: str) -> Sequence[store.RecentSession]:
        """Return this folder's newest sessions but the one with this id, at most `most`."""
        paths = store.session_paths(self.loaded.config.data, self.root)
        return store.recent_sessions((path for path in paths if path.stem != excluding), most)

    def rename(self, id: str, title: str) -> None:
        """Change a session's title. Raises StorageError."""
        store.rename_session(self._find(id), title)

    def _find(self, id: str) -> Path:
        return store.find_session(self.loaded.config.data, self.root, id)

    async def _open(self, ask: AskPermission, path: Callable[[], Path | None]) -> Session:
        """Open a session in a thread, because disk and git may be slow."""
        from fugu_cli import wiring

        opening = asyncio.ensure_future(
            asyncio.to_thread(lambda: wiring.build_session(self.loaded, self.environ, ask, path()))
        )
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:  # the user left before it was there: its lock is given back
            for opened in await asyncio.gather(opening, return_exceptions=True):
                if not isinstance(opened, BaseException):
                    await opened.close()
            raise


@dataclass(frozen=True)
class UserSetup:
    """Sets up the models of a configuration: keys, which are put into `environ`, and files."""

    config: Config
    environ: MutableMapping[str, str]

    def doctor(self) -> str:
        """Return the output of `fugu doctor`."""
        from fugu_cli.cli import doctor

        return doctor.report()

    def lacking(self) -> tuple[str, ...]:
        """Return a note if embedded models are missing. Raises ModelFileError if no agent could
        work without them.
        """
        from fugu_cli.cli.current_folder import check_embedded

        return check_embedded(self.config, self.environ)

    def offer(self) -> SetupOffer:
        """Return the known providers and the missing embedded models."""
        from fugu_cli.app.session_protocol import SetupOffer
        from fugu_cli.cli.current_folder import missing_models
        from fugu_cli.config.agent_pool import SERVICES, detected_keys
        from fugu_cli.config.imports import importable_sources
        from fugu_cli.config.loader import NAME
        from fugu_cli.local.server_lease import missing_package

        home = Path.home()
        models = ""
        missing, gigabytes = missing_models(self.config, self.environ)
        if missing and not missing_package():
            models = f"{', '.join(missing)}: {gigabytes:.1f} GB"
        importable: tuple[str, ...] = ()
        if not (home / NAME).exists():
            importable = importable_sources(home)
        return SetupOffer(
            tuple((service.name, service.variable) for service in SERVICES),
            models,
            needs_model=not self.config.agents and not detected_keys(self.environ),
            importable=importable,
        )

    async def try_key(self, provider: str, key: str) -> KeyTrial:
        """Ask the provider whether the key is valid. Raises UsageError for a text that is no key."""
        from fugu_cli.app.key_trial import try_key
        from fugu_cli.cli import login

        service = login.find_service(provider)
        login.check_form(key, service.name)
        return await try_key(service, key, self.environ)

    def keep_key(self, provider: str, key: str) -> str:
        """Keep a key as `fugu login` does, and use it from now on. Raises UsageError,
        StorageError.
        """
        from fugu_cli.cli import login
        from fugu_cli.config import kept_keys

        variable = login.find_service(provider).variable
        kept_in = kept_keys.keep_key(variable, key)
        self.environ[variable] = key
        return kept_in

    async def find_servers(self) -> Sequence[ServerModels]:
        """Return the servers of models on this machine that answer."""
        from fugu_cli.app.session_protocol import ServerModels
        from fugu_cli.providers.local_servers import find_local_servers

        servers = await find_local_servers(self.environ)
        return [ServerModels(server.base_url, server.models, server.name) for server in servers]

    async def try_address(self, address: str, wire: TrialWire, key: str) -> ServerModels:
        """Ask a server for its models. Raises UsageError, AgentError."""
        from fugu_cli.app.key_trial import try_address
        from fugu_cli.cli import login

        if key:
            login.check_form(key, "your server")
        return await try_address(address, wire, key)

    def add_agent(self, server: ServerModels, model: str, key: str) -> Sequence[str]:
        """Add a model of a server to the user's pool, and keep its key, which is used from now on.
        Raises UsageError, StorageError.
        """
        from fugu_cli.cli.login_server import add_server_agent

        return add_server_agent(server.base_url, model, server.wire, key, self.environ)

    def import_settings(self, source: str, *, dry_run: bool) -> Sequence[str]:
        """Import the settings of another agent, or only look. Raises ConfigError, UsageError."""
        from fugu_cli.cli.init import import_settings

        return list(import_settings(source, self.environ, dry_run=dry_run))

    async def download(self, report: ReportProgress) -> None:
        """Fetch the missing models, one after the other. The progress covers all of them."""
        from fugu_cli.cli.current_folder import missing_models
        from fugu_cli.local.sources import FetchProgress
        from fugu_cli.local.store import Store

        models = Store(self.config.cache)
        names, _ = missing_models(self.config, self.environ)
        whole, before = sum(models.model(name).size for name in names), 0

        def report_part(progress: FetchProgress) -> None:
            report(FetchProgress(before + progress.done, whole, progress.what))

        for name in names:
            await models.pull(name, report_part)
            before += models.model(name).size
