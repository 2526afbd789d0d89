"""The protocols that the session controller needs of a screen: full screen or scrollback. Values
and protocols only.

Between session_controller.py with its commands, which know no screen, and the two interfaces:
tui/app.py and ui/inline.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fugu_cli.app.approval_options import Pending
    from fugu_cli.app.approval_questions import ApprovalQuestion
    from fugu_cli.app.preferences import PreferencesFile
    from fugu_cli.session.events import Recorded, ToolRan
    from fugu_cli.session.live_events import Live
    from fugu_cli.ui.blocks import NoteBlock
    from fugu_cli.ui.column import Fragment
    from fugu_cli.ui.first_screen import FirstScreen
    from fugu_cli.ui.hyperlinks import FilePlace
    from fugu_cli.ui.session_totals import FoldedSession
    from fugu_cli.ui.turn_page import Section, TurnPages

Preview = Callable[[str], Sequence["Fragment"]]
"""Draw the preview of a value. Runs in a thread."""
UpdateNote = Callable[["NoteBlock"], None]
"""Puts another note in the place of one that was said; nothing, once another session is shown."""
PickedChoice = tuple[str, str]
"""The key that ended a choice (`enter`, or one of the further ones) and the value that was
chosen.
"""


@dataclass(frozen=True)
class Choice:
    """A row to choose: its value, its text, and a description."""

    value: str
    shown: str
    about: str = ""


@dataclass(frozen=True)
class KeyAnswer:
    """An answer to a question, and the letter that gives it. `n` always means not now."""

    key: str
    label: str


def answer_keys(answers: Sequence[KeyAnswer], *, looks: bool) -> list[str]:
    """Return the keys of a question with their labels. `looks`: there is a text that can be read
    first.
    """
    shown = [*answers, KeyAnswer("n", "not now"), *([KeyAnswer("d", "look")] if looks else [])]
    return [f"{answer.key} {answer.label}" for answer in shown]


@dataclass(frozen=True)
class StatusLine:
    """The content of the status line. Times are epoch seconds.

    `doing` began at `since` (0: its time is not shown); `key` names the key that stops it. `until` is
    the next retry. `unavailable` are agents and their retry times. `messages` wait for the next result.
    `jobs` run in the background. `vi` is vi's mode. `own` are lines of the user's
    status command, perhaps with colours; they stand below. `hint` is shown while nothing runs,
    `remark` for a moment instead of both.
    """

    folder: str = ""
    branch: str = ""
    tier: str = "fugu"
    mode: str = ""
    pinned: str = ""
    context: float | None = None
    tokens: int = 0
    cost: float = 0.0
    unpriced: bool = False
    estimated: bool = False
    doing: str = ""
    key: str = "esc to interrupt"
    since: float = 0.0
    until: float = 0.0
    written: int = 0
    """Tokens that agents wrote for the request under way."""
    unavailable: tuple[tuple[str, float], ...] = ()
    queued: int = 0
    messages: int = 0
    jobs: int = 0
    vi: str = ""
    own: tuple[str, ...] = ()
    hint: str = ""
    has_mark: bool = False
    """The hint has the keys of a marked row."""
    remark: str = ""


class FeedProtocol(Protocol):
    """Shows the log, event by event."""

    @property
    def folded(self) -> FoldedSession:
        """The session folded from its log."""

    def replay(self, records: Sequence[Recorded], *, is_running: bool = False) -> None:
        """Show a session from its beginning. `is_running`: another process runs its calls."""

    def add_item(self, item: Recorded | Live) -> None:
        """Show the next item of the log."""

    def say(self, note: NoteBlock) -> UpdateNote:
        """Add a note that is in no log. Return a function that updates it."""

    def totals_changed(self) -> None:
        """Update the totals, which hold more than the log."""

    def patched(self, ran: ToolRan, patch: str) -> None:
        """Show the diff of a call's changes. Called for every call that comes."""

    def show_start(self, start: FirstScreen) -> None:
        """Show what there is to do in an empty session."""

    def measured(self, added: int, removed: int) -> None:
        """Show how many lines the request that ended last added and removed."""


class DialogsProtocol(Protocol):
    """Dialogs over the screen, or printed."""

    def read(self, text: str, sections: Sequence[Section]) -> None:
        """Show a long text with its title."""

    def turn_pages(self, pages: TurnPages) -> None:
        """Show the pages of turns. Keys pin or exclude a turn's agent, or ask again with it."""

    async def confirm(self, question: str, patch: str) -> bool:
        """Ask for a yes or no about a patch."""

    async def choose(
        self,
        question: str,
        meaning: str,
        answers: Sequence[KeyAnswer],
        sections: Sequence[Section] = (),
    ) -> str:
        """Ask a question that keys answer. Return the key of an answer, "" for not now. `meaning`:
        a sentence below the question; `sections`: a text that the user may read first.
        """

    async def enter_text(self, heading: str, *, secret: bool = False) -> str:
        """Ask for a line, masked if `secret`. Return "" for none."""

    async def pick(
        self,
        heading: str,
        choices: Sequence[Choice],
        preview: Preview | None = None,
        keys: dict[str, str] | None = None,
    ) -> PickedChoice | None:
        """Let the user choose one, None for none. `keys` are further ways to choose, with a
        description.
        """

    async def edit_file(self, location: FilePlace) -> None:
        """Open a file in the user's editor, at its line. Raises UsageError without an editor."""


class ScreenProtocol(Protocol):
    """The screen: what people see and type into."""

    preferences: PreferencesFile
    """Remembered settings of the interface."""

    @property
    def feed(self) -> FeedProtocol:
        """The conversation."""

    @property
    def dialogs(self) -> DialogsProtocol:
        """The dialogs: texts, questions and choices."""

    def stand(self, standing: StatusLine) -> None:
        """Show the status line."""

    def question(self, question: ApprovalQuestion | None, pending: Pending, patch: str) -> None:
        """Show a question about a call, with its change and the calls that wait behind it; None
        hides it.
        """

    def show_queue(self, texts: Sequence[str], messages: Sequence[str]) -> None:
        """Show the queued requests, and the messages that wait for the next result."""

    def noticed(self, item: Recorded | Live) -> None:
        """Notify a user who looks elsewhere if the item of the log is worth it."""

    def type(self, text: str) -> bool:
        """Put a text into the prompt. Return False if the prompt holds text already, which stays."""

    def wear(self, theme: str) -> None:
        """Change the colours to a theme."""

    def show_trace(self) -> None:
        """Show or hide the trace, or print it."""

    def copy(self, text: str) -> None:
        """Copy to the clipboard."""

    async def leave(self) -> None:
        """Close the session and go."""
