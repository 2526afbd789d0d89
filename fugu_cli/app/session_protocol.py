"""The protocols that interfaces need of a session and of its opener.

Between the interfaces and wiring, which implements them. Tests implement them with a log in memory
and scripted agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from fugu_cli.formatting import plural

if TYPE_CHECKING:
    from fugu_cli.engine.environment import AskPermission, Environment, Team
    from fugu_cli.extensions.mcp_servers import McpServers
    from fugu_cli.extensions.memory import Memory
    from fugu_cli.extensions.skill_library import SkillLibrary
    from fugu_cli.local.sources import ReportProgress
    from fugu_cli.messages import Call, Effort, Media
    from fugu_cli.safety import policy
    from fugu_cli.session.events import Finished
    from fugu_cli.session.log import Log
    from fugu_cli.session.store import RecentSession, SessionSummary


class DrivenSession(Protocol):
    """A session that runs requests one after the other. Interfaces show its log."""

    effort: Effort
    """The reasoning effort from the next request on, "" for each entry's own."""
    log: Log
    """The facts."""
    tier: str
    """`fugu` or `ultra`."""
    ignored: tuple[str, ...]
    """Files and folders that do not count, since the user does not trust the folder."""

    async def ask(
        self,
        text: str,
        typed: str = "",
        skill: str = "",
        piped: str = "",
        media: tuple[Media, ...] = (),
    ) -> None:
        """Record a request, with the working tree. `typed` is what the user wrote, if `text` was
        made from it. Agents read `skill`, `piped` and `media` below the text.
        """

    async def steer(self, text: str, typed: str = "", media: tuple[Media, ...] = ()) -> bool:
        """Record a message for the agents that are at work. Return False where the request has
        ended meanwhile. Raises UsageError where a hook refuses it.
        """

    @property
    def can_change_plan(self) -> bool:
        """True if the user's next text is a change of the open plan."""

    async def change_plan(self, text: str, typed: str = "", media: tuple[Media, ...] = ()) -> None:
        """Record a change that the user wants in the open plan. Raises UsageError."""

    async def accept_plan(self, mode: policy.Mode) -> None:
        """Record a request that carries out the open plan, and change to this mode. Raises
        UsageError where there is no plan.
        """

    def set_mode(self, mode: policy.Mode) -> None:
        """Change the permission mode from the next call on."""

    def go_on(self) -> bool:
        """Return whether there is a request to finish. Reopens one that a limit stopped."""

    async def run(self) -> Finished:
        """Run the newest request to its end. Cancelling interrupts it."""

    def pin(self, name: str | None) -> None:
        """Let one agent take every turn from now on; None gives the decision back to the
        coordinator.
        """

    def set_tier(self, tier: str) -> None:
        """Change the tier to `fugu` or `ultra` from the next request on. Raises UsageError if it is
        not available.
        """

    async def close(self) -> None:
        """Give back connections, leases and the log's lock."""


class SessionProtocol(DrivenSession, Protocol):
    """An open session. `team` and `environment` may be exchanged between turns."""

    environment: Environment
    """The place and the rules of the work."""
    servers: McpServers | None
    """The MCP servers; None where there are none."""
    excluded: frozenset[str]
    """Agents that are never chosen: `exclude` replaces them."""
    team: Team
    """The agents."""
    memory: Memory | None
    """The user's notes for later sessions; None if none can be kept."""
    library: SkillLibrary
    """The skills, custom commands and subagents that count."""
    permissions_file: str
    """The file to which `allow_always` adds rules."""

    @property
    def warm(self) -> Callable[[], None]:
        """A function that starts loading what the first decision needs, in the background."""

    def notes(self) -> tuple[str, ...]:
        """Return sentences about missing parts."""

    def exclude(self, names: frozenset[str]) -> None:
        """Exclude exactly these agents from now on."""

    def allow_always(self, call: Call, judgement: policy.Judgement) -> str:
        """Remember a yes for this project. Returns the rule and the file it stands in, for
        people.
        """

    async def compact(self) -> None:
        """Shorten what agents read of earlier requests. Raises UsageError where there is nothing to
        shorten.
        """


@dataclass(frozen=True)
class SetupOffer:
    """The ways to get working models: `providers` with the variables of their keys, and the missing
    small models with their size in `download`, "" for none.
    """

    providers: tuple[tuple[str, str], ...] = ()
    download: str = ""
    needs_model: bool = False
    """No provider's key is set, and the user has configured no agent."""
    importable: tuple[str, ...] = ()
    """Other agents whose settings can be imported, while the user has no configuration."""


@dataclass(frozen=True)
class KeyAccepted:
    """The server accepted the key. `models` are those that it lists; () if it was not asked for a
    list.
    """

    host: str
    models: tuple[str, ...]

    def __str__(self) -> str:
        models = f", {plural(len(self.models), 'model')}" if self.models else ""
        return f"accepted by {self.host}{models}"


@dataclass(frozen=True)
class KeyRefused:
    """The server refused the key, in its own words."""

    reason: str


@dataclass(frozen=True)
class KeyUntested:
    """It is not known whether the key is valid, and why."""

    reason: str


KeyTrial = KeyAccepted | KeyRefused | KeyUntested
TrialWire = Literal["chat", "responses", "anthropic"]
"""The API that a server speaks."""


@dataclass(frozen=True)
class ServerModels:
    """A server of models that answered: its address up to the version, and the models it lists."""

    base_url: str
    models: tuple[str, ...]
    name: str = ""
    """The program that usually listens there, such as "Ollama"; "" for an address of the user."""
    wire: TrialWire = "chat"


class ModelSetup(Protocol):
    """Reports what models need and gets what is missing."""

    def doctor(self) -> str:
        """Return what is installed and what is missing as text. Called in a thread."""

    def lacking(self) -> tuple[str, ...]:
        """Return sentences about agents that cannot work yet. Raises FuguError if none can. Called
        in a thread.
        """

    def offer(self) -> SetupOffer:
        """Return the ways to get working models if there are none."""

    async def try_key(self, provider: str, key: str) -> KeyTrial:
        """Ask the provider whether the key is valid. Raises UsageError for a text that is no key."""

    def keep_key(self, provider: str, key: str) -> str:
        """Keep a provider's key; sessions opened from now on have its agents. Returns where it is
        kept. Raises FuguError. Called in a thread."""

    async def find_servers(self) -> Sequence[ServerModels]:
        """Return the servers of models on this machine that answer."""

    async def try_address(self, address: str, wire: TrialWire, key: str) -> ServerModels:
        """Ask a server for its models. Raises UsageError for a text that is no address, AgentError
        of the kind "refused" for a missing or refused key, and other AgentErrors.
        """

    def add_agent(self, server: ServerModels, model: str, key: str) -> Sequence[str]:
        """Add a model of a server to the user's pool, and keep its key. Returns sentences about it.
        Raises FuguError. Called in a thread.
        """

    def import_settings(self, source: str, *, dry_run: bool) -> Sequence[str]:
        """Import the settings of another agent, or with `dry_run` only look. Returns sentences about
        it. Raises FuguError. Called in a thread.
        """

    async def download(self, report: ReportProgress) -> None:
        """Download the models that the pool needs and that are missing. Raises FuguError."""


class SessionOpener(Protocol):
    """Opens, finds and stores the sessions of one folder."""

    @property
    def root(self) -> Path:
        """The folder the sessions work in."""

    @property
    def setup(self) -> ModelSetup:
        """The setup of this folder's models."""

    @property
    def ignored(self) -> Sequence[Path]:
        """The files and folders that are ignored until the user trusts the folder."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about the configuration, without those about ignored files."""

    @property
    def changed(self) -> Sequence[str]:
        """The names of files that changed since the user trusted the folder."""

    @property
    def is_declined(self) -> bool:
        """True if the user was asked to trust the folder as it is, and did not."""

    def decline(self) -> None:
        """Remember that the user does not trust the folder as it is. Raises FuguError. Called in a
        thread.
        """

    def reload(self) -> None:
        """Read the configuration again. Raises FuguError. Called in a thread."""

    def trust(self) -> None:
        """Trust the folder as it is: it counts in sessions opened from now on. Raises FuguError.
        Called in a thread.
        """

    def prepare(self) -> None:
        """Import what opening a session needs. Called in a thread, before the first session is
        opened.
        """

    async def begin(self, ask: AskPermission) -> SessionProtocol:
        """Open a new session. Raises FuguError."""

    async def resume(self, id: str, ask: AskPermission) -> SessionProtocol:
        """Go on with a session. Raises FuguError: there is none, another process writes it, the
        disk.
        """

    async def fork(self, id: str, ask: AskPermission, before: int | None = None) -> SessionProtocol:
        """Go on with a copy of a session, or of its lines `before` one."""

    def listed(self) -> Sequence[SessionSummary]:
        """Return this folder's sessions, the newest first. Called in a thread."""

    def recent(self, most: int, excluding: str) -> Sequence[RecentSession]:
        """Return this folder's newest sessions but the one with this id, the newest first, at most
        `most`. Called in a thread.
        """

    def rename(self, id: str, title: str) -> None:
        """Change a session's title."""


@dataclass(frozen=True)
class InterfaceOptions:
    """Options of the interface.

    `state` is the folder for history, panel width and theme. `keys` are the user's keys by action.
    `vi`: the prompt uses vi's keys. `status_command` prints a line below it. `added` are folders
    besides the repository. `attached`: another process runs the session.
    """

    state: Path
    resume: str | None = None
    fork: bool = False
    prompt: str = ""
    theme: str = ""
    tier: str = "fugu"
    panel: bool | None = None
    mouse: bool = True
    keys: Mapping[str, str] = field(default_factory=dict)
    vi: bool = False
    status_command: str = ""
    added: tuple[Path, ...] = ()
    attached: bool = False
