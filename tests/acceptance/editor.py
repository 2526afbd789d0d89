"""An editor: the SDK's own client, the real `fugu acp` as its agent, and a user who answers what it
asks.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from acp import spawn_agent_process
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    DeclineElicitationResponse,
    ElicitationMode,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallUpdate,
)

from tests.acceptance.driving import Place

Shown = dict[str, Any]


def words(text: str) -> list[TextContentBlock]:
    """A prompt of these words."""
    return [TextContentBlock(type="text", text=text)]


class Editor:
    """What was shown, by session, and what was asked. `answer` chooses an option's id."""

    def __init__(self) -> None:
        self.shown: dict[str, list[Shown]] = {}
        self.asked: list[Shown] = []
        self.answer: Callable[[Shown], str] = lambda asked: "once"
        self.hold = asyncio.Event()
        """Questions are answered once it is set."""
        self.hold.set()
        self.forms: list[Shown] = []
        self.filled: dict[str, Any] | None = None
        """What the user answers to a form; None: declines it."""
        self._news = asyncio.Condition()

    def on_connect(self, conn: object) -> None:
        """Nothing to keep."""

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        async with self._news:
            self.shown.setdefault(session_id, []).append(
                update.model_dump(mode="json", by_alias=True, exclude_none=True)
            )
            self._news.notify_all()

    async def request_permission(
        self,
        session_id: str,
        tool_call: ToolCallUpdate,
        options: list[PermissionOption],
        **more: Any,
    ) -> RequestPermissionResponse:
        asked = tool_call.model_dump(mode="json", by_alias=True, exclude_none=True)
        asked |= {
            "session": session_id,
            "options": {option.option_id: option.kind for option in options},
        }
        async with self._news:
            self.asked.append(asked)
            self._news.notify_all()
        await self.hold.wait()
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=self.answer(asked))
        )

    async def create_elicitation(
        self, message: str, mode: ElicitationMode, **more: Any
    ) -> AcceptElicitationResponse | DeclineElicitationResponse:
        form = mode.model_dump(mode="json", by_alias=True, exclude_none=True)
        async with self._news:
            self.forms.append({"message": message, **form})
            self._news.notify_all()
        if self.filled is None:
            return DeclineElicitationResponse(action="decline")
        return AcceptElicitationResponse(action="accept", content=self.filled)

    async def until(self, holds: Callable[["Editor"], bool]) -> None:
        """Wait for something to be shown or asked."""
        async with self._news, asyncio.timeout(60):
            await self._news.wait_for(lambda: holds(self))

    def of(self, session: str, kind: str) -> list[Shown]:
        """The updates of one kind."""
        return [update for update in self.shown.get(session, []) if update["sessionUpdate"] == kind]

    def text(self, session: str, kind: str = "agent_message_chunk") -> str:
        """Everything that was said in this kind of update."""
        return "".join(update["content"]["text"] for update in self.of(session, kind))


@asynccontextmanager
async def editing(
    place: Place, editor: Editor, *flags: str, can: ClientCapabilities | None = None
) -> AsyncIterator[ClientSideConnection]:
    """`fugu acp` as the editor's agent, greeted by one that `can` do so much. It ends well when the
    editor closes its input, and says nothing that looks like a bug."""
    command = [sys.executable, "-m", "fugu_cli", "acp", *flags]
    log = place.folder / "stderr.txt"
    with log.open("wb") as said:
        how = {"shutdown_timeout": 30.0, "stderr": said}
        async with spawn_agent_process(
            editor,
            *command,
            env=place.environ(),
            cwd=place.folder,
            transport_kwargs=how,
            use_unstable_protocol=True,
        ) as (agent, process):
            await agent.initialize(protocol_version=1, client_capabilities=can)
            yield agent
    assert (process.returncode, "Traceback" in log.read_text()) == (0, False), log.read_text()
