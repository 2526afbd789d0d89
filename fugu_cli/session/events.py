"""Every event that can happen in a session, and is written to its log."""

# without `from __future__ import annotations`: strings would be compiled at every start
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fugu_cli import prompts
from fugu_cli.messages import Call, Effort, Media, PaidValue, Thinking, Usage, Value
from fugu_cli.session.file_effects import NO_EFFECTS as NO_EFFECTS
from fugu_cli.session.file_effects import FileAttribute as FileAttribute
from fugu_cli.session.file_effects import FileChange as FileChange
from fugu_cli.session.file_effects import FileEffects as FileEffects
from fugu_cli.session.file_effects import Merged as Merged
from fugu_cli.session.file_effects import Undone as Undone
from fugu_cli.session.file_effects import UndoStarted as UndoStarted
from fugu_cli.session.file_effects import net_changes as net_changes

ROLE = "role"
"""`Permitted.by` of a call that its turn must not make, whatever the user permits: it has no such
tool.
"""


KILLED = "killed"
"""The tool of a result that tells what a killed call had done to files. The call itself has no
result and is never run again."""


class DecisionTimings(Value):
    """The time of each part of a decision, in milliseconds. `load`: how long the decision waited
    for the model to be loaded.
    """

    load: float = 0.0
    format: float = 0.0
    tokenise: float = 0.0
    forward: float = 0.0
    head: float = 0.0

    @property
    def total(self) -> float:
        return self.load + self.format + self.tokenise + self.forward + self.head


class AgentEstimate(Value):
    """The coordinator's estimates of one agent when it decided.

    `success_rate` (0..1) is the mean over the kinds of request, weighted by their probability. It
    rests on `own_outcomes` outcomes of the user, and on what `source` names. `run_cost` (USD) is the
    expected cost of the agent's next turn in the chosen role, None without a price: the mean of
    `run_turns` turns of its own, an estimate where that is 0. `call_cost` (USD) is the estimated
    cost of its next model call alone, None without a price and in older logs. `value` is that of the
    best list of attempts that begins with the agent.
    """

    agent: str
    success_rate: float
    own_outcomes: float = 0.0
    source: str = ""
    run_cost: float | None = None
    run_turns: float = 0.0
    call_cost: float | None = None
    value: float | None = None


class Scores(Value):
    """The coordinator's scores. Logits are the head's output before any mask.

    `rows` names the head's agent rows in order (slots or agents). Probabilities are after the
    masks, in the same order. `masked` gives the reason for each excluded row or role.
    """

    rows: tuple[str, ...]
    row_logits: tuple[float, ...]
    row_probabilities: tuple[float, ...]
    role_logits: tuple[float, ...] = ()
    role_probabilities: tuple[float, ...] = ()
    masked: tuple[tuple[str, str], ...] = ()
    read: str = ""
    tokens: int = 0
    cached_tokens: int = 0
    temperature: float = 1.0
    """Of the softmax."""
    kinds: tuple[tuple[str, float], ...] = ()
    """Kinds of request with their probabilities; none where every kind has the same best agent."""
    kinds_from: str = ""
    """The source of the probabilities, in words."""
    estimates: tuple[AgentEstimate, ...] = ()
    rule: str = ""
    """The agent that the cascade would have asked."""


class WorkflowStep(Value):
    """A step of a Conductor's workflow: its agent, its instruction, and the indexes of the earlier
    steps that it may read.

    `plans`: the planner named itself, so that the step becomes a workflow of its own. `opens` names
    outputs outside its plan that it may read. `files` are the files and folders that it said it
    would write. `accepts`: whether it judges the work; None if the planner's form cannot say that.
    """

    agent: str
    instruction: str
    access: tuple[int, ...] | Literal["all"] = ()
    plans: bool = False
    opens: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    accepts: bool | None = None


class OuterStep(NamedTuple):
    """The step that a workflow is the inside of: its plan, counted from 1 in the request, and its
    index there.
    """

    plan: int
    step: int


class Planned(Value):
    """The planner's reply as it was read: a workflow, which the Conductor reads back from here on.

    Without steps: `fault` says why the reply is none, or, in a later round, the result was kept (""
    then).
    """

    type: Literal["planned"] = "planned"
    steps: tuple[WorkflowStep, ...]
    text: str
    agent: str = ""
    usage: Usage = Usage()
    fault: str = ""
    round: int = 1
    within: OuterStep | None = None
    models: tuple[str, ...] = ()
    """The agents behind the anonymous names: Model 0, Model 1, ..."""
    model: str = ""
    seconds: float = 0.0


class Compacted(Value):
    """In prompts, `summary` replaces the events up to line `upto`; the file keeps them.

    `agent` wrote it and is paid `usage`; "" if the events were only listed. Agents whose context is
    larger than `window` tokens are shown the events instead. A `window` of 0 is for all.
    """

    type: Literal["compacted"] = "compacted"
    summary: str
    upto: int
    window: int = 0
    agent: str = ""
    usage: Usage = Usage()
    seconds: float = 0.0


class Interrupted(Value):
    """The user cut the turn, or its work is lost, for `reason`. `partial` is the text so far.
    `usage` is the estimated usage of the running call of `agent`.
    """

    type: Literal["interrupted"] = "interrupted"
    turn: int
    partial: str = ""
    reason: str = ""
    agent: str = ""
    usage: Usage = Usage()


class JobEnded(Value):
    """A background job ended. `code` is its exit code, negative for a signal; None if it was made
    to end. `by` says who ended it: itself, an agent (job_stop), the user, undo (of the turn that
    started it), or session (it was closed).
    """

    type: Literal["job_ended"] = "job_ended"
    job: str
    command: str
    by: Literal["itself", "agent", "user", "undo", "session"] = "itself"
    code: int | None = None
    seconds: float = 0.0


Role = Literal["worker", "thinker", "verifier"]
ROLES: tuple[Role, ...] = ("worker", "thinker", "verifier")
"""Row order of the roles in the coordinator's head (arXiv 2512.04695)."""

EVIDENCE = "evidence"
"""`Permitted.by` of the runs fugu makes itself before a turn: the tests, and the files they
name.
"""
CLIENT = "client"
"""`by` of what the client of an endpoint brought along: what was said before, and what its tools
returned.
"""
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
    """One agent of the pool as the session knew it: enough to read the log without the user's
    configuration.
    """

    name: str
    provider: str
    model: str
    protocol: Literal["native", "text"] = "native"
    slot: Literal["cheap", "middle", "strong"]
    price: Price | None = Price()
    """None: nobody knows."""
    assumed_price: bool = False
    """The price is what others ask for the model, and another server answers."""
    context: int = 32768
    needs_tests: bool = False
    """Is chosen only where tests judge the request, or nobody else can act."""
    max_tokens: int | None = None
    """Tokens of every reply at most; None: each prompt says it."""
    reasoning: Literal["", "within"] = ""
    """"" where it can be told nothing of how much to reason."""
    effort: Effort = ""
    """Its reasoning effort if the request sets none."""
    description: str = ""
    """One line about it for a planner, which reads no names."""
    vision: bool = False
    """It is shown pictures."""
    vendor: str = ""
    """The vendor of its model, "" if unknown."""
    address: str = ""
    """The host of its server, "" for the embedded one."""
    skill: float | None = None
    """The skill of its model on the scale of the public table; None to look it up there."""
    documents: bool = False
    """It is sent PDFs as they are; others read their text."""

    @property
    def reply_room(self) -> int:
        """The tokens of a reply, reasoning included, if the agent's entry sets no limit."""
        return min(LONGEST_REPLY, max(self.context // 4, SHORTEST_ROOM))


LONGEST_REPLY = 32_768
"""Tokens asked for a reply. A server that takes fewer says so, and is asked for those."""
SHORTEST_ROOM = 8192


class OutcomeCount(Value):
    """An agent's own outcomes in one kind of request, "" if the kind is unknown.

    In `trials` an attempt after failures of others counts less than a first one, and in `successes`
    a Verifier's word counts less than a test's, so both may be fractions. `turns` and `mean_cost`
    (USD a turn) count every turn the same; a turn whose kind is uncertain counts in parts.
    `solo_requests` are completed requests with changes that no other agent worked on, and
    `solo_cost` (USD) is the sum of what the agent's calls for them cost.
    """

    agent: str
    kind: str = ""
    successes: float = 0.0
    trials: float = 0.0
    turns: float = 0.0
    mean_cost: float = 0.0
    solo_requests: float = 0.0
    solo_cost: float = 0.0


class OutcomesKnown(Value):
    """The agents' own outcomes when a request was asked. Its decisions read only this, so that
    resume and replay decide the same.

    `kinds`: how many of the repository's earlier requests were of each kind.
    """

    type: Literal["outcomes_known"] = "outcomes_known"
    counts: tuple[OutcomeCount, ...] = ()
    kinds: tuple[tuple[str, float], ...] = ()


class BudgetLeft(Value):
    """The rest of the tightest budget (USD), written before a decision where a budget is set and
    the amount has changed.
    """

    type: Literal["budget_left"] = "budget_left"
    dollars: float


class KindRead(Value):
    """The kind of a request that was decided without it, read from its words afterwards.

    `request` counts the requests of a log from 1: of this log, or of the session `session`.
    """

    type: Literal["kind_read"] = "kind_read"
    session: str = ""
    request: int
    kinds: tuple[tuple[str, float], ...]


FORMAT = 1
"""The format of the lines that this version writes."""


class PluginUse(Value):
    """A plugin that a session has. `commit` is "" for one from a folder. `brings` are its parts in a
    few words.
    """

    name: str
    version: str = ""
    source: str = ""
    commit: str = ""
    brings: tuple[str, ...] = ()


class Opened(Value):
    """First line of every session, and of each part that was written with other settings.

    `format` is that of the lines from here on (log_format.py). `served`: agents are shown what a
    client of `fugu serve` sent.
    """

    type: Literal["opened"] = "opened"
    version: str
    format: int = FORMAT
    repo: str
    commit: str | None = None
    pool: tuple[Member, ...] = ()
    coordinator: str = "trinity"
    checkpoint: str | None = None
    served: bool = False
    plugins: tuple[PluginUse, ...] = ()


class AcceptedPlan(Value):
    """A plan that the user wants carried out. `agent` made it. `changed` names files that changed
    since it was asked for.
    """

    agent: str
    text: str
    changed: tuple[str, ...] = ()

    def shown(self, *, is_above: bool) -> str:
        """Return the plan as agents read it. `is_above`: the agent wrote the plan itself, and reads
        it further above.
        """
        plan = prompts.load("plan_accepted_own")
        if not is_above:
            plan = prompts.fill(prompts.load("plan_accepted"), agent=self.agent, plan=self.text)
        if not self.changed:
            return plan
        files = prompts.fill(prompts.load("plan_changed"), files=", ".join(self.changed))
        return f"{plan}\n{files}"


class MemoryText(Value):
    """A memory file as agents read it: its newest lines. `left_out`: how many are older."""

    file: str
    text: str
    left_out: int = 0

    @property
    def lines(self) -> int:
        """The number of lines that are not empty."""
        return sum(bool(line.strip()) for line in self.text.splitlines())


class Asked(Value):
    """A request. `snapshot`: "" in a git repository, where one is taken before the first call that
    may change something (`Permitted.snapshot`), or before a plan is made; None outside of one.

    `typed`: what the user wrote, where `text` was made of it (a custom command, a named skill); ""
    where it is `text`. `skill`: what a skill says that the user named; `hooks`: what hooks add;
    `piped`: what came from standard input beside the request. Agents read them below the text; they
    are not the user's words, so nothing is concluded from them. `tier`: the one it was asked in,
    and is gone on with in; "" where that is not known. `attachments`: what `@` names in the text.
    Each is read before the first turn, as a call of turn 0. `media`: pictures and PDFs that came
    with the text and lie in no file. `until`: commands of the user's that must pass before the
    request is accepted. `effort`: how much agents may reason; "" leaves it to their entries.
    `answer_schema`: the JSON schema, as text, that the answer must follow; "" where none was given.
    `rules`: where the session works and what it allows, as pairs of a name and a text, as of the
    moment the request came (engine/session_rules.py). `memory`: the memory files then
    (extensions/memory.py). `mode`: the permission mode then, "" in older
    logs. `tree`: the map of the repository for a planner; `repository_map`: the one that agents
    read with the request (extensions/repository_map.py). `only_reads`: a command of fugu's asks
    (`fugu review`): the text is all that the agent is to do, and it has the tools that read files.
    `plan`: the plan that the request carries out.
    """

    type: Literal["asked"] = "asked"
    text: str
    typed: str = ""
    skill: str = ""
    hooks: str = ""
    piped: str = ""
    attachments: tuple[str, ...] = ()
    media: tuple[Media, ...] = ()
    snapshot: str | None = None
    tier: Literal["fugu", "ultra", ""] = ""
    test_command: str | None = None
    until: tuple[str, ...] = ()
    effort: Effort = ""
    answer_schema: str = ""
    rules: tuple[tuple[str, str], ...] = ()
    memory: tuple[MemoryText, ...] = ()
    mode: Literal["plan", "ask", "edit", "auto", "yolo", ""] = ""
    tree: str = ""
    repository_map: str = ""
    only_reads: bool = False
    plan: AcceptedPlan | None = None

    @property
    def said(self) -> str:
        """The text that the user typed."""
        return self.typed or self.text

    @property
    def wanted(self) -> str:
        """The task as the user typed it. If the request carries out a plan, that is the task of the
        plan.
        """
        return self.said if self.plan is None else self.text

    @property
    def whole(self) -> str:
        """The request as agents read it."""
        return self.shown(plan_is_above=False)

    def shown(self, *, plan_is_above: bool) -> str:
        """Return the request as an agent reads it. `plan_is_above`: it carries out a plan that the
        agent wrote itself and reads further above.
        """
        piped = f"<stdin>\n{self.piped}\n</stdin>" if self.piped else ""
        hooks = f"[Hooks say:]\n{self.hooks}" if self.hooks else ""
        schema = ""
        if self.answer_schema:
            schema = (
                f"[The answer must be JSON alone, and follow this schema:]\n{self.answer_schema}"
            )
        media = "\n".join(f"[{item.described}]" for item in self.media)
        plan = self.plan.shown(is_above=plan_is_above) if self.plan is not None else ""
        parts = (self.text, self.skill, hooks, piped, media, plan, schema)
        return "\n\n".join(part for part in parts if part)


class Steered(Value):
    """A message that the user sent while the request was being worked on. `typed`: what the user
    wrote, where `text` was made of it.
    """

    type: Literal["steered"] = "steered"
    text: str
    typed: str = ""
    media: tuple[Media, ...] = ()

    @property
    def said(self) -> str:
        """The text that the user typed."""
        return self.typed or self.text

    @property
    def whole(self) -> str:
        """The message as agents read it."""
        media = "\n".join(f"[{item.described}]" for item in self.media)
        return "\n\n".join(part for part in (self.text, media) if part)


class SteeringGiven(Value):
    """A message of the user's becomes part of the prompt of a turn's next reply; turn 0: of the
    planner's. `number` counts the request's messages from 1.
    """

    type: Literal["steering_given"] = "steering_given"
    turn: int
    agent: str
    number: int
    message: Steered


class ModeGiven(Value):
    """A permission mode that the user changed to becomes part of the prompt of a turn's next reply.
    `rules`: what it allows, as in `Asked.rules`.
    """

    type: Literal["mode_given"] = "mode_given"
    turn: int
    agent: str
    mode: str
    rules: tuple[tuple[str, str], ...]


class Subtask(Value):
    """A `task` call of an agent: a turn with a context of its own, whose last words answer the
    call.

    `turn` and `call` identify the call. `name` is the subagent's, "" for the general one. `brief`
    is the text of its file, `tools` are those it may use (None: all), `effort` is its reasoning
    effort. `about` is the task in a few words.
    """

    turn: int
    call: str
    name: str = ""
    about: str = ""
    brief: str = ""
    tools: tuple[str, ...] | None = None
    effort: Effort = ""

    @property
    def title(self) -> str:
        """The subagent and its task in a few words, for people."""
        return f"{self.name or 'task'}: {self.about}" if self.about else self.name or "task"

    def offers(self, tool: str) -> bool:
        """Return whether the subtask may use the tool. `mcp__SERVER` stands for all tools of that
        server.
        """
        servers = tuple(
            f"{name.rstrip('*').rstrip('_')}__"
            for name in self.tools or ()
            if name.startswith("mcp__")
        )
        return self.tools is None or tool in self.tools or tool.startswith(servers)


class Assigned(Value):
    """A decision: the agent that acts, its role and instruction, and what the coordinator saw and
    computed.
    """

    type: Literal["assigned"] = "assigned"
    turn: int
    agent: str
    role: Role
    by: str
    """The rule that decided: trinity, cascade, random, single, conductor; file: that of a subtask's
    subagent.
    """
    reason: str = ""
    instruction: str = ""
    sees: tuple[int, ...] | Literal["all"] = "all"
    scores: Scores | None = None
    fallback: str = ""
    """Why a rule decided in the place of the learned coordinator."""
    chooses: bool = False
    """The agent is asked who takes the next turn."""
    override: Role | None = None
    """The role the head chose, where a Thinker's suggestion replaced it."""
    plan: int = 0
    """The workflow this turn is a step of, counted from 1 in the request; 0 for a turn of its own.
    Then `sees` names the turns whose outputs it may read, and nothing else of others reaches the
    agent."""
    step: int = 0
    choices: tuple[str, ...] = ()
    """Names of the changes, each in a copy of its own, of which the step chooses one."""
    remembers: tuple[int, ...] = ()
    """Lines of the log: what tools said in earlier workflows and still holds: what it depended on
    is as it was.
    """
    worktree: str = ""
    """The name of the worktree it works in, where several agents were given the same job; "" for
    the repository.
    """
    in_copy: bool = False
    """It works in a worktree, also where `worktree` is taken for the repository."""
    snapshot: str | None = None
    """The working tree when a step of a workflow began."""
    milliseconds: DecisionTimings = DecisionTimings()
    subtask: Subtask | None = None
    """The turn is a subtask of another one: `instruction` is all that it is asked, and it sees
    nothing else.
    """
    slot: Literal["", "cheap", "middle", "strong"] = ""
    """The agent's slot, where the cascade decided."""
    seconds_left: tuple[tuple[str, float], ...] = ()
    """Agents that failed, each with the seconds until it may be asked again, where that is known."""

    @property
    def why(self) -> str:
        """The reason, and why the checkpoint did not decide."""
        return (
            f"{self.reason} [the checkpoint does not decide: {self.fallback}]"
            if self.fallback
            else self.reason
        )


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
    response_id: str = ""
    """The provider's id of the reply, "" if it gives none."""
    max_tokens: int = 0
    """Tokens that the reply might have, 0 in older logs."""
    refused: tuple[str, ...] = ()
    """`sha` of media that its provider refused: the agent was, and is from then on, shown a line in
    their place.
    """


SAID_NO = "the user said no"
"""The beginning of the reason of a call that the user refused."""


class Permitted(Value):
    """Written before every tool run. If `allowed`, the run was started."""

    type: Literal["permitted"] = "permitted"
    turn: int
    call: Call
    allowed: bool
    by: str
    """policy, user, session (a user's yes that holds for the session), headless, hook, role,
    evidence (fugu's own).
    """
    reason: str = ""
    snapshot: str | None = None
    """The working tree before a call that may change something; None outside git and for what only
    reads.
    """
    rule: str = ""
    """The rule that a yes for the session adds besides this very call."""
    waited: float = 0.0
    """Seconds that somebody was waited for to answer."""
    plan_mode: bool = False
    """It was refused because plan mode only reads."""

    @property
    def by_fugu(self) -> bool:
        """True if fugu made the call, for evidence or for an attachment of the request."""
        return self.by == EVIDENCE or not self.turn


class TestReport(Value):
    """The result of a test run.

    `failing` and `passing` are the runner's ids, at most `MOST_FAILING`; `passing` only if single
    tests were asked for. `by_id`: the runner named its tests and `failing` is complete; otherwise
    only counts are known. `removed` are tests that the request removed. `unable` says why the tests
    could not be run to their end, as a clause ("the tests could not be run: go: not found"), ""
    otherwise. Then they have neither passed nor failed.
    """

    __test__ = False

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failing: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    by_id: bool = False
    removed: tuple[str, ...] = ()
    unable: str = ""


MOST_FAILING = 500


class ToolRan(PaidValue):
    """A tool's result. `output` is exactly what the agent gets: it was cut before it was recorded."""

    type: Literal["tool_ran"] = "tool_ran"
    turn: int
    call: Call
    output: str
    ok: bool
    seconds: float = 0.0
    changes: tuple[FileChange, ...] = ()
    state: str = ""
    """The content the output depended on: a file's blob or the whole tree; "" where nobody
    knows.
    """
    job: str = ""
    """The background job that the call started; "" where it started none."""
    attributes: tuple[FileAttribute, ...] = ()
    """Other changes of files and folders, besides FileChange."""
    tests: TestReport | None = None
    """The result of a test run; None for other tools and without a report."""
    skipped: bool = False
    """The user ended it: it says nothing."""
    media: tuple[Media, ...] = ()
    """Pictures and PDFs that it returned beside its output."""
    found: tuple[str, ...] = ()
    """Names of tools that agents may call from now on: of find_tools."""
    traceback: str = ""
    """The traceback of an exception inside the tool. Agents do not see it."""
    restored: tuple[str, ...] = ()
    """Sentences on files that the sandbox put back or moved away."""
    omitted_lines: int = 0
    """Lines that a command printed and `output` leaves out."""

    @property
    def effects(self) -> FileEffects:
        """The changes that the call made to files."""
        return FileEffects(self.changes, self.attributes)


FIND_TOOLS = "find_tools"
"""The tool that shows agents other tools."""
BUDGET = "budget"
"""The kind of a failure that is none of the agent's: no budget carries its next call."""


class Exclusion(Value):
    """The reason why an agent cannot act. `kind` is that of its failure; "" if it did not fail.
    `unreachable` is its host and why no connection could be made to it; "" for other failures.
    """

    kind: str = ""
    message: str
    unreachable: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.kind else self.message


class Masked(Value):
    """Replaces the set of excluded agents, until the next such event or an agent's Failed.

    Written before a decision if the set has changed: an agent is unavailable after a failure, or
    may be tried again; the client of an endpoint opted one out for its request.
    """

    type: Literal["masked"] = "masked"
    agents: tuple[tuple[str, Exclusion], ...] = ()
    probed: str = ""
    """The agent that is tried although it failed a short time ago, because all have."""


class Failed(Value):
    """An agent (or the coordinator) failed after its retries. It is excluded for the rest of this
    request.

    `usage` is what its provider counted nevertheless, over all tries; `agent` was paid for that, ""
    if it is nothing. `unreachable`: as in `Exclusion`. `hint` is the end of `message` that says
    what the user can do; "" in older sessions.
    """

    type: Literal["failed"] = "failed"
    turn: int
    what: str
    kind: str
    message: str
    usage: Usage = Usage()
    unreachable: str = ""
    hint: str = ""

    @property
    def agent(self) -> str:
        return self.what if self.usage != Usage() else ""

    @property
    def cause(self) -> str:
        """Return what happened, without advice to the user: what other agents are told."""
        return self.message.removesuffix(self.hint).rstrip(" ;.")


AcceptedBy = Literal["", "verifier", "author", "planner", "tests"]


class Finished(Value):
    """The end of a request. `unreachable`: the hosts, each with the reason, where no agent could be
    reached at all. `tests_not_run`: command lines of tests beside the changed files which the test
    command of the repository does not run. `accepted_by`: who accepted the work: an agent that
    wrote none of it, one that wrote a part of it, a workflow's planner, or the tests alone; "" in
    sessions of version 0.1.0 and for other ends. `judge` is that agent.
    """

    type: Literal["finished"] = "finished"
    reason: Literal[
        "accepted",
        "answered",
        "unaccepted",
        "turn_limit",
        "budget",
        "time_limit",
        "interrupted",
        "denied",
        "failed",
    ]
    message: str = ""
    unreachable: tuple[str, ...] = ()
    tests_not_run: tuple[str, ...] = ()
    accepted_by: AcceptedBy = ""
    judge: str = ""


ANSWERED = Finished(reason="answered")
"""Somebody has answered, and there is nothing more to say of it."""
Event = Annotated[
    Opened
    | Asked
    | Steered
    | SteeringGiven
    | ModeGiven
    | Planned
    | Assigned
    | Replied
    | Permitted
    | ToolRan
    | JobEnded
    | Merged
    | Masked
    | OutcomesKnown
    | BudgetLeft
    | KindRead
    | Failed
    | Compacted
    | Interrupted
    | UndoStarted
    | Undone
    | Finished,
    Field(discriminator="type"),
]


class Recorded(BaseModel):
    """One line of the log. `seq` counts from 0; `at` is seconds since the epoch."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    seq: int
    at: float
    event: Event


RECORDED: TypeAdapter[Recorded] = TypeAdapter(Recorded)
