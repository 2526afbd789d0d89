"""Every fact that can happen in a session, and the four live ones that are never written.

Read this first. The log (log.py) is a list of `Recorded`; everything else (views/) is computed from it. A fact
carries no number and no clock: those belong to its line. What can be derived (a verdict, a cost) is not here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fugu_cli.facts import KILLED as KILLED
from fugu_cli.facts import NOTHING as NOTHING
from fugu_cli.facts import ROLE as ROLE
from fugu_cli.facts import Attribute as Attribute
from fugu_cli.facts import Change as Change
from fugu_cli.facts import Compacted as Compacted
from fugu_cli.facts import Interrupted as Interrupted
from fugu_cli.facts import JobEnded as JobEnded
from fugu_cli.facts import Made as Made
from fugu_cli.facts import Merged as Merged
from fugu_cli.facts import Milliseconds as Milliseconds
from fugu_cli.facts import Planned as Planned
from fugu_cli.facts import Scores as Scores
from fugu_cli.facts import Step as Step
from fugu_cli.facts import Undone as Undone
from fugu_cli.facts import net as net
from fugu_cli.facts import net_attributes as net_attributes
from fugu_cli.messages import Call, Thinking, Usage, Value

Role = Literal["worker", "thinker", "verifier"]
ROLES: tuple[Role, ...] = ("worker", "thinker", "verifier")
"""Row order of the roles in the coordinator's head (arXiv 2512.04695)."""

EVIDENCE = "evidence"
"""`Permitted.by` of the runs fugu makes itself before a turn: the tests, and the files they name."""
CLIENT = "client"
"""`by` of what the client of an endpoint brought along: what was said before, and what its tools returned."""
USERS = frozenset({"user", "session"})
"""`Permitted.by` of a user's own answer."""
HOOK = "hook"
"""`Permitted.by` of a call that a hook of the user's forbade or allowed."""


class Price(Value):
    """USD per million tokens."""

    input: float = 0.0
    cached: float | None = None
    output: float = 0.0


class Member(Value):
    """One agent of the pool as the session knew it: enough to read the log without the user's configuration."""

    name: str
    provider: str
    model: str
    protocol: Literal["native", "schema", "text"] = "native"
    slot: Literal["cheap", "middle", "strong"]
    price: Price | None = Price()
    """None: nobody knows."""
    context: int = 32768
    attempts: int = 1
    infill: bool = False
    """Can fill in a line that is left out (fill-in-the-middle)."""
    needs_tests: bool = False
    """Is chosen only where tests judge the request, or nobody else can act."""
    max_tokens: int | None = None
    """Tokens of every reply at most; None: each prompt says it."""
    thinking: int = 0
    """Tokens it may think beside them."""
    description: str = ""
    """One line about it for a planner, which reads no names."""


class Opened(Value):
    """First line of every session. `served`: agents are shown what a client of `fugu serve` sent."""

    type: Literal["opened"] = "opened"
    version: str
    repo: str
    commit: str | None = None
    pool: tuple[Member, ...] = ()
    coordinator: str = "trinity"
    checkpoint: str | None = None
    served: bool = False


class Asked(Value):
    """A request. `snapshot`: "" in a git repository, where one is taken before the first call that may change something
    (`Permitted.snapshot`); None outside of one. In older logs it is the working tree before the request.

    `typed`: what the user wrote, where `text` was made of it (a custom command, a named skill); "" where it is `text`.
    `skill`: what a skill says that the user named; `hooks`: what hooks add; `piped`: what came from standard input
    beside the request. Agents read them below the text; they are not the user's words, so nothing is concluded from
    them.
    `tier`: the one it was asked in, and is gone on with in; "" where that is not known.
    `until`: commands of the user's that must pass before the request is accepted.
    `judged`, `assertions`: read from the logs of version 0.1.0 and no longer written.
    """

    type: Literal["asked"] = "asked"
    text: str
    typed: str = ""
    skill: str = ""
    hooks: str = ""
    piped: str = ""
    attachments: tuple[str, ...] = ()
    snapshot: str | None = None
    tier: Literal["fugu", "ultra", ""] = ""
    test_command: str | None = None
    until: tuple[str, ...] = ()
    judged: bool = Field(default=False, exclude=True)
    assertions: tuple[str, ...] = Field(default=(), exclude=True)

    @property
    def said(self) -> str:
        """What the user wrote."""
        return self.typed or self.text

    @property
    def whole(self) -> str:
        """What agents are asked."""
        piped = f"<stdin>\n{self.piped}\n</stdin>" if self.piped else ""
        hooks = f"[Hooks say:]\n{self.hooks}" if self.hooks else ""
        return "\n\n".join(part for part in (self.text, self.skill, hooks, piped) if part)


class Assigned(Value):
    """A decision: who acts, in which role, on what instruction; with what the coordinator saw and computed."""

    type: Literal["assigned"] = "assigned"
    turn: int
    agent: str
    role: Role
    by: str
    """Which rule decided: trinity, cascade, random, single, conductor."""
    reason: str = ""
    instruction: str = ""
    sees: tuple[int, ...] | Literal["all"] = "all"
    scores: Scores | None = None
    override: Role | None = None
    """The role the head chose, where a Thinker's suggestion replaced it."""
    plan: int = 0
    """The workflow this turn is a step of, counted from 1 in the request; 0 for a turn of its own. Then `sees` names
    the turns whose outputs it may read, and nothing else of others reaches the agent."""
    step: int = 0
    remembers: tuple[int, ...] = ()
    """Lines of the log: what tools said in earlier workflows and still holds: what it depended on is as it was."""
    worktree: str = ""
    """The name of the worktree it works in, where several agents were given the same job; "" for the repository."""
    snapshot: str | None = None
    """The working tree when a step of a workflow began; in older logs when any turn did."""
    milliseconds: Milliseconds = Milliseconds()


class Replied(Value):
    """One model call's answer inside a turn. A reply without calls closes the turn."""

    type: Literal["replied"] = "replied"
    turn: int
    agent: str
    text: str = ""
    thinking: tuple[Thinking, ...] = ()
    calls: tuple[Call, ...] = ()
    usage: Usage = Usage()
    model: str = ""
    stop: Literal["end", "calls", "length", "refusal", "cut"] = "end"
    seconds: float = 0.0
    filled: str = ""
    """path:line where the reply is one line of that file, left out and filled in; path:line:column where it is a word,
    path:line+ where it is one more line behind that one; "" for any other reply."""
    aimed: str = ""
    """What a small model was asked for, where failing tests lead to it: a file, or a function, as it is or anew."""
    logprob: float | None = None
    """How sure the model was of it: the mean logarithm of its tokens' probabilities, where that is known."""


class Permitted(Value):
    """Written before every tool run, allowed or not. With allowed=True it also means: this was started."""

    type: Literal["permitted"] = "permitted"
    turn: int
    call: Call
    allowed: bool
    by: str
    """policy, user, session (a user's yes that holds for the session), headless, hook, role, evidence (fugu's own)."""
    reason: str = ""
    snapshot: str | None = None
    """The working tree before a call that may change something; None outside git and for what only reads."""


class TestReport(Value):
    """What a run of the tests reported.

    `failing` and `passing`: ids as the runner names them, at most `MOST_FAILING`; `passing` only where single tests
    were asked for. `by_id`: the runner named its tests, and `failing` is complete; otherwise only the counts are known.
    `removed`: tests that the request took away.
    """

    __test__ = False

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failing: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    by_id: bool = False
    removed: tuple[str, ...] = ()


MOST_FAILING = 500


class ToolRan(Value):
    """A tool's result. `output` is word for word what the agent gets: clipped before it was recorded."""

    type: Literal["tool_ran"] = "tool_ran"
    turn: int
    call: Call
    output: str
    ok: bool
    seconds: float = 0.0
    changes: tuple[Change, ...] = ()
    state: str = ""
    """The content the output depended on: a file's blob or the whole tree; "" where nobody knows."""
    job: str = ""
    """The background job that the call started; "" where it started none."""
    attributes: tuple[Attribute, ...] = ()
    """What the call changed of files and folders that no Change tells."""
    extras: bool = False
    """In older logs: permission bits or empty folders are others now."""
    tests: TestReport | None = None
    """What a run of the tests reported; None for other tools, and where it reported nothing."""
    skipped: bool = False
    """The user ended it: it says nothing."""

    @property
    def made(self) -> Made:
        """What it did to files."""
        return Made(self.changes, self.attributes)


class Masked(Value):
    """From here on exactly these agents are out, each for its reason, until the next such fact or an agent's Failed.

    Written before a decision where that has changed: an agent is unavailable after a failure, or may be tried again;
    the client of an endpoint opted one out for its request.
    """

    type: Literal["masked"] = "masked"
    agents: tuple[tuple[str, str], ...] = ()


class Failed(Value):
    """An agent (or the coordinator) that failed after its retries. The coordinator masks it for this request. `usage`:
    what its provider counted all the same, over all tries; `agent` was paid for that, "" where it is nothing."""

    type: Literal["failed"] = "failed"
    turn: int
    what: str
    kind: str
    message: str
    usage: Usage = Usage()

    @property
    def agent(self) -> str:
        return self.what if self.usage != Usage() else ""


class Finished(Value):
    """The end of a request."""

    type: Literal["finished"] = "finished"
    reason: Literal[
        "accepted", "answered", "unaccepted", "turn_limit", "budget", "time_limit", "interrupted", "denied", "failed"
    ]
    message: str = ""


Event = Annotated[
    Opened
    | Asked
    | Planned
    | Assigned
    | Replied
    | Permitted
    | ToolRan
    | JobEnded
    | Merged
    | Masked
    | Failed
    | Compacted
    | Interrupted
    | Undone
    | Finished,
    Field(discriminator="type"),
]


class Recorded(BaseModel):
    """One line of the log. `seq` counts from 0; `at` is seconds since the epoch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    at: float
    event: Event


class Said(Value):
    """Live: a piece of the reply being written."""

    type: Literal["said"] = "said"
    turn: int
    agent: str
    text: str


class ToolSaid(Value):
    """Live: output of a running tool."""

    type: Literal["tool_said"] = "tool_said"
    turn: int
    call: str
    text: str


class Waiting(Value):
    """Live: nothing moves, and this is why. `seconds`: until it goes on, 0 where nobody knows."""

    type: Literal["waiting"] = "waiting"
    why: str
    seconds: float = 0.0


class Retried(Value):
    """Live: a call failed and is made again in `seconds`. What it had said no longer stands.

    `kind` and `why`: the failure's kind and message (errors.AgentError). `retry` counts from 1, up to `retries`.
    """

    type: Literal["retried"] = "retried"
    turn: int
    agent: str
    kind: str
    why: str
    seconds: float
    retry: int
    retries: int


Live = Said | ToolSaid | Waiting | Retried

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
RECORDED: TypeAdapter[Recorded] = TypeAdapter(Recorded)
