"""The questions before the first session: a model and the import of settings once for a user, trust
once for a folder and again when its files have changed.

Nothing of the folder is read for the first two. `/login`, `fugu init` and `/trust` come back to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli.errors import FuguError
from fugu_cli.ui.blocks import NoteBlock
from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import wrap_lines
from fugu_cli.ui.tui.folder_trust import ask_for_trust
from fugu_cli.ui.tui.model_login import (
    ADDRESS,
    LoginResult,
    add_model,
    choose_provider,
    log_in_at,
)
from fugu_cli.ui.tui.screen_protocol import KeyAnswer
from fugu_cli.ui.turn_page import Section

if TYPE_CHECKING:
    from fugu_cli.app.preferences import PreferencesFile
    from fugu_cli.app.session_protocol import ModelSetup, SessionOpener, SetupOffer
    from fugu_cli.ui.tui.screen_protocol import DialogsProtocol

TITLES = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "opencode": "OpenCode",
    "aider": "aider",
}


class FirstStart:
    """Asks what has not been asked yet. `notes` say what the answers led to; `downloads`: the small
    models are to be downloaded.
    """

    def __init__(
        self, opener: SessionOpener, dialogs: DialogsProtocol, preferences: PreferencesFile
    ) -> None:
        self._opener = opener
        self._dialogs = dialogs
        self._preferences = preferences
        self.notes: list[NoteBlock] = []
        self.downloads = False

    async def ask(self) -> None:
        """Ask for a model, about an import and for trust, in this order."""
        offer = await asyncio.to_thread(self._opener.setup.offer)
        if offer.needs_model and not self._preferences.current.asked_for_model:
            await self._ask_for_model(offer)
            self._preferences.keep(asked_for_model=True)
        if offer.importable and not self._preferences.current.asked_to_import:
            await self._ask_to_import(offer.importable)
            self._preferences.keep(asked_to_import=True)
        try:
            if not await asyncio.to_thread(lambda: self._opener.is_declined):
                await ask_for_trust(self._opener, self._dialogs)
        except FuguError as error:
            self._note_error(error)

    async def _ask_for_model(self, offer: SetupOffer) -> None:
        """Ask until a model can work, or the user leaves the question."""
        setup = self._opener.setup
        servers = await setup.find_servers()
        answers = [KeyAnswer("k", "key")]
        answers += [
            KeyAnswer(str(number), f"{server.name} ({server.models[0]})")
            for number, server in enumerate(servers, start=1)
        ]
        answers.append(KeyAnswer("o", "own server"))
        if offer.download:
            size = offer.download.rpartition(": ")[2]
            answers.append(KeyAnswer("s", f"small models ({size})"))
        while key := await self._dialogs.choose(
            "No provider's key is set. What shall fugu work with?",
            "A key, a server on this machine or elsewhere, or small models. Later: /login.",
            answers,
        ):
            try:
                match key:
                    case "k":
                        result = await choose_provider(setup, self._dialogs)
                    case "o":
                        result = await log_in_at(setup, self._dialogs, ADDRESS)
                    case "s":
                        result = LoginResult(downloads=True)
                    case _:
                        result = await add_model(setup, self._dialogs, servers[int(key) - 1])
                if result is not None:
                    await self._use(result)
                    return
            except FuguError as error:
                self._note_error(error)

    async def _use(self, result: LoginResult) -> None:
        self.downloads = result.downloads
        if result.added_agent:
            await asyncio.to_thread(self._opener.reload)
        if result.summary:
            self.notes.append(NoteBlock(result.summary, "good", result.detail))

    async def _ask_to_import(self, sources: Sequence[str]) -> None:
        """Ask whether the settings of other agents are imported, and import them after a yes."""
        setup = self._opener.setup
        sections = await asyncio.to_thread(
            lambda: [_import_section(setup, source) for source in sources]
        )
        names = ", ".join(TITLES[source] for source in sources)
        if not await self._dialogs.choose(
            f"There are settings of {names} in your home folder.",
            "Import models, permissions and MCP servers? Later: `fugu init --from`.",
            [KeyAnswer("y", "import")],
            sections,
        ):
            return
        for source in sources:
            try:
                lines = await asyncio.to_thread(setup.import_settings, source, dry_run=False)
            except FuguError as error:
                self._note_error(error)
            else:
                self.notes.append(
                    NoteBlock(f"imported from {TITLES[source]}", "good", "\n".join(lines))
                )
        try:
            await asyncio.to_thread(self._opener.reload)
        except FuguError as error:
            self._note_error(error)

    def _note_error(self, error: FuguError) -> None:
        self.notes.append(NoteBlock(str(error), "bad", error.hint))


def _import_section(setup: ModelSetup, source: str) -> Section:
    """Return what an import would take over from an agent."""
    try:
        text = "\n".join(setup.import_settings(source, dry_run=True))
    except FuguError as error:
        text = f"{error}; {error.hint}"
    fragment = Fragment(lambda width, palette: wrap_lines(text, width, palette.text), text)
    return Section(TITLES[source], (fragment,))
