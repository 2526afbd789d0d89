"""The configuration: one frozen `Config` and the entries of the pool.

Only the command line and wiring read it; everything below gets plain values. `config/loader.py`
reads files, environment and flags; `config/agent_pool.py` makes a usable pool of the entries. Each
key is described by its line in `.fugurc.example` and in `fugu help config`.
"""

# without `from __future__ import annotations`: strings would be compiled at every start
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Discriminator, Field, StringConstraints, Tag, field_validator
from pydantic_core import PydanticCustomError

from fugu_cli.config.schema import (
    AgentEntry,
    ConfigPath,
    ConfigPathOrId,
    ConfigTable,
    Money,
    Positive,
    Text,
    TimeLimit,
    value_form,
)
from fugu_cli.coordinators import CoordinatorSettings as Deciding
from fugu_cli.safety.policy import rule_matching

Mode = Literal["plan", "ask", "edit", "auto", "yolo"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""Permission modes, the strictest first."""

Names = tuple[Text, ...]
Extension = Annotated[str, StringConstraints(pattern=r"^\.[^/\s]+$")]
"""An ending of file names, with its dot."""
RULES = ("cascade", "trinity", "random")


class SandboxEntry(ConfigTable):
    """The table `sandbox`: how commands and tests are confined."""

    mode: Literal["auto", "bubblewrap", "landlock", "off"] = "auto"
    """auto takes the best that works here; a name insists on it"""
    network: bool = False
    """commands may reach other machines"""
    writable: tuple[ConfigPath, ...] = ()
    """folders that may be written beside the repository"""
    readable: tuple[ConfigPath, ...] = ()
    """places that may be read although they are hidden"""
    environment: Names = ()
    """variables that commands get although their names look like secrets"""
    mcp_network: Names = ()
    """MCP servers of repositories that may reach other machines; only your own file says so"""
    memory: float | None = Field(default=None, gt=0)
    """gigabytes of memory that a command may take; half of the machine's when left out"""


class TestsEntry(ConfigTable):
    """The table `tests`: when fugu runs the project's tests, and what must pass."""

    __test__ = False

    when: Literal["auto", "always", "never"] = "auto"
    """auto: after changes, a slow suite once before the Verifier; always: after every turn's
    changes; never
    """
    patience: float = Field(default=60.0, ge=0)
    """seconds from which a suite counts as slow"""
    until: Names = ()
    """commands that must pass before a request is accepted"""
    until_pass: bool = False
    """the tests themselves must pass before a request is accepted"""


class ConductorEntry(ConfigTable):
    """The table `conductor`: how the ultra tier plans."""

    agent: str = ""
    """the planner, an agent of the pool; the strongest one when left out"""
    max_steps: int = Field(default=5, ge=1, le=10)
    """steps of one workflow"""
    rounds: int = Field(default=2, ge=1, le=5)
    """workflows for one request: after the first the planner keeps the result or corrects it"""
    depth: int = Field(default=1, ge=0, le=3)
    """how deep a planner may make a step a workflow of its own"""
    agents: int = Field(default=3, ge=1, le=20)
    """agents of the pool it is offered"""
    works: bool = True
    """the planner may be given steps, too"""
    planner_format: Literal["names", "paper"] = "names"
    """names: the planner reads names and writes objects; paper: numbers and the three lists that
    `fugu train conductor` trains for
    """


class TuiEntry(ConfigTable):
    """The table `tui`: the terminal interface."""

    vi: bool = False
    """the prompt takes vi's keys"""
    status_line: str = ""
    """a command: the first lines that it prints stand below the prompt (`fugu help slash`)"""


class LspEntry(ConfigTable):
    """A table `lsp.NAME`: a language server of the user's own, as in [lsp.zig]."""

    command: Annotated[Names, Field(min_length=1)]
    """the program and its arguments, as in ["zls"]; it speaks over standard input and output"""
    extensions: Annotated[tuple[Extension, ...], Field(min_length=1)]
    """endings of the files it looks at, as in [".zig"]"""


class Config(ConfigTable):
    """The keys of `.fugurc`. None stands for a key without a fixed default: either there is no
    limit, or fugu finds the value.
    """

    coordinator: str = "trinity"
    """who decides: trinity (success rates and costs), cascade, random or single:NAME"""
    checkpoint: ConfigPath | None = None
    """a coordinator checkpoint; without one success rates and costs decide"""
    backbone: ConfigPathOrId | None = None
    """a folder or hub id of the coordinator's backbone; the embedded one when left out"""
    roles: bool = True
    """false: one agent takes the whole request, and nobody verifies (the learned coordinator)"""
    sample: bool = False
    """draw decisions by their probability instead of taking the likeliest"""
    seed: int = Field(default=0, ge=0)
    """seed of everything that is drawn"""
    tier: Literal["fugu", "ultra"] = "fugu"
    """fugu decides turn by turn; ultra plans whole workflows (`fugu help ultra`)"""
    conductor: ConductorEntry = ConductorEntry()
    """who plans workflows, and how far: agent ("" is the strongest), steps, rounds, depth, agents
    offered
    """
    max_turns: int = Field(default=5, ge=1, le=100)
    """turns of one request"""
    max_budget_usd: (
        Annotated[Positive | Annotated[Money, Tag("table")], Discriminator(value_form)] | None
    ) = None
    """USD one request may cost, no limit when left out; or { request, session, day, project }"""
    time_limit: (
        Annotated[Positive | Annotated[TimeLimit, Tag("table")], Discriminator(value_form)] | None
    ) = None
    """seconds one request may take, no limit if left out; or { request, wait, answer }: `fugu help
    providers`
    """
    steps_per_turn: int = Field(default=30, ge=1, le=1000)
    """model calls of one turn"""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """for agents that name none; the provider's own when left out"""
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """how much every agent may reason; each entry's own when left out"""
    permission_mode: Mode = "edit"
    """plan (read only), ask, edit (files yes, commands ask), auto or yolo"""
    allow: Names = ()
    """calls that need no question, such as "bash(git commit *)" or "edit(src/**)" """
    ask: Names = ()
    """calls that always need one"""
    deny: Names = ()
    """calls that are never made"""
    add_dirs: tuple[ConfigPath, ...] = ()
    """folders beside the repository that agents may read and edit like it"""
    bare: bool = False
    """no hooks, skills, commands, subagents, MCP servers and instruction files, but what flags
    name
    """
    test_command: str | None = Field(default=None, min_length=1)
    """how the project's tests are run; found when left out"""
    test_timeout: float = Field(default=300.0, gt=0)
    """seconds before a test run is ended"""
    tests: TestsEntry = TestsEntry()
    """when tests run and what must pass: when, patience, until, until_pass (`fugu help tests`)"""
    search: Text = "auto"
    """what web_search asks: auto, an agent, the address of a SearXNG, brave or tavily (`fugu help
    web`)
    """
    diagnostics: bool | None = None
    """language servers tell the new errors of edited files: true, false; in trusted folders when
    left out
    """
    lsp: dict[Text, LspEntry] = Field(default={})
    """language servers of your own by name, before those that fugu knows: command, extensions"""
    verify_answers: bool = False
    """let a Verifier look at answers that changed nothing, too"""
    sandbox: SandboxEntry = SandboxEntry()
    """how commands are confined: auto, bubblewrap, landlock or off (`fugu help sandbox`)"""
    advisor: Text = "auto"
    """whom agents may ask for advice (tool advise): auto, one that is more often right; a name; off"""
    repository_map: Literal["off", "planner", "first"] = "planner"
    """who is shown what files define: off, planner, first (a session's first request, too; `fugu help
    ultra`)
    """
    opt_out: Names = ()
    """agents of the pool that are never chosen"""
    deny_agents: dict[Text, Names] = Field(default={})
    """files whose content never reaches an agent, as in { "secrets/**" = ["strong"] }"""
    tui: TuiEntry = TuiEntry()
    """the interface: vi keys, the command that prints a status line (`fugu help slash`)"""
    keys: dict[Text, Text] = Field(default={})
    """keys of the interface by action, as in { trace = "f3" }: F1 lists the actions"""
    local_idle: float = Field(default=120.0, ge=0)
    """seconds an unused local model stays loaded"""
    data_dir: ConfigPath | None = None
    """where sessions are kept; the system's place for data when left out"""
    cache_dir: ConfigPath | None = None
    """where models are kept; the system's place for caches when left out"""
    agents: tuple[AgentEntry, ...] = ()
    """the pool; found from the keys in the environment when left out"""

    @field_validator("coordinator")
    @classmethod
    def _is_a_rule(cls, value: str) -> str:
        if value in RULES or (value.startswith("single:") and value != "single:"):
            return value
        from fugu_cli.coordinators import baselines

        if baselines.is_baseline(value):
            return value
        others = ", ".join(
            (*baselines.WITHOUT_AGENT, *(f"{kind}:NAME" for kind in baselines.WITH_AGENT))
        )
        named = f"{', '.join(RULES)} or single:NAME with the name of an agent"
        raise ValueError(f"must be one of {named}; to compare with them, {others}")

    @field_validator("allow", "ask", "deny")
    @classmethod
    def _are_rules(cls, value: Names) -> Names:
        for rule in value:
            rule_matching.split_pattern(rule)
        return value

    @field_validator("agents")
    @classmethod
    def _names_are_unique(cls, value: tuple[AgentEntry, ...]) -> tuple[AgentEntry, ...]:
        names: set[str] = set()
        for index, entry in enumerate(value):
            if entry.name in names:
                message = "two entries are called '{name}'; names must be unique"
                raise PydanticCustomError("twice", message, {"name": entry.name, "index": index})
            names.add(entry.name)
        return value

    @property
    def decided_by(self) -> str:
        """The coordinator's name; in `ultra` that of the Conductor first."""
        return self.coordinator if self.tier == "fugu" else f"{self.tier} (then {self.coordinator})"

    @property
    def money(self) -> Money:
        """The budgets, whichever way they were written."""
        budget = self.max_budget_usd
        return budget if isinstance(budget, Money) else Money(request=budget)

    def excluded_agents(self, names: Iterable[str]) -> frozenset[str]:
        """Return the agents that are never chosen: opted out, or all but the one that the rule
        names.
        """
        excluded = set(self.opt_out)
        rule, _, only_agent = self.coordinator.partition(":")
        if only_agent and rule != "prompted":
            excluded.update(name for name in names if name != only_agent)
        return frozenset(excluded)

    @property
    def deciding(self) -> Deciding:
        """The settings for coordinators."""
        return Deciding(
            turns=self.max_turns,
            verify_answers=self.verify_answers,
            opt_out=frozenset(self.opt_out),
            roles=self.roles,
            sample=self.sample,
            seed=self.seed,
        )

    @property
    def time(self) -> TimeLimit:
        """The limits on time, whichever way they were written."""
        limit = self.time_limit
        return limit if isinstance(limit, TimeLimit) else TimeLimit(request=limit)

    @property
    def data(self) -> Path:
        """The folder of sessions, snapshots and trust."""
        from platformdirs import user_data_path

        return self.data_dir or user_data_path("fugu")

    @property
    def cache(self) -> Path:
        """The folder of models and the converted backbone."""
        from platformdirs import user_cache_path

        return self.cache_dir or user_cache_path("fugu")


MANAGED_FILE = Path("/etc/fugu/managed.toml")
"""The administrator's settings (config/managed.py). No variable moves them: a user could name an empty
file.
"""
PATHS = ("checkpoint", "data_dir", "cache_dir")
LISTS = ("allow", "ask", "deny", "opt_out", "add_dirs")
ADDING = (*LISTS, "deny_agents", "max_budget_usd", "time_limit", "tests")
"""Keys that add up over files, environment and flags; every other key is replaced by the later
one.
"""
