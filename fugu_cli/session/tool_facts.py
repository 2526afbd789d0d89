"""Everything that fugu knows about a tool without running it: one entry for each tool.

Stands below policy and all readers of a log, which have no toolbox. `Tool` (tools/workspace.py) is
these facts with the function that runs. To add a tool, write its entry into `TOOLS`, one file in
tools/ and its description in prompts/tools/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Effect = Literal["reads", "writes", "runs"]
RuleSubject = Literal["name", "paths", "command", "word", "host"]
EditorKind = Literal["read", "edit", "search", "execute", "think", "fetch", "other"]
MCP = "mcp__"
"""The beginning of the names of MCP servers' tools: `mcp__SERVER__TOOL`."""


@dataclass(frozen=True, kw_only=True)
class ToolFacts:
    """Facts about a tool: how policy judges its calls, which agents are offered it, what its
    results show, and its names in other programs.
    """

    name: str
    effect: Effect = "runs"
    """Its effect on the repository."""
    implementation: str = ""
    """The place of its implementation, as `module:NAME`; "" for a tool that is built for each session."""

    paths: tuple[str, ...] = ()
    """The arguments that name files and folders."""
    patch: str = ""
    """The argument that holds a patch."""
    command: str = ""
    """The argument that holds a command line."""
    rule_subject: RuleSubject | None = None
    """The text that the pattern of a rule is matched with, if not its files or its command."""
    subject: str = ""
    """The argument that holds the word or the host of a rule."""
    about_session: bool = False
    """It keeps to what the session itself began and did."""
    leaves_machine: bool = False
    """It sends words of the agent to other machines."""
    takes_prose: bool = False
    """Its arguments are prose for people or agents. Secrets are masked in it by their form, too; in
    code and commands only known values are, as an agent may make up a key for a test.
    """

    internal: bool = False
    """fugu alone calls it; no agent sees it."""
    in_subtasks: bool = True
    roles: Literal["", "all", "worker"] = ""
    """The roles that may call it; "" means all if it reads, else Workers."""
    skippable: bool = False
    """The user may skip a run that fugu began."""
    asks_user: bool = False
    """A call lasts as long as the user takes to answer it."""

    instructs: bool = False
    """Its text is the user's own word to the agents, and is not marked as data."""
    remembered: bool = False
    """The steps of a workflow are offered its earlier results."""
    shows_names_only: bool = False
    """Its results hold names of files and nothing of what is in them."""
    shows_command_output: bool = False
    """Its results hold what a command printed."""

    aliases: tuple[str, ...] = ()
    """Names of it that models know from other agents."""
    argument_aliases: Mapping[str, str] = field(default_factory=dict)
    """The names that other agents have for its arguments, with fugu's."""
    remarks: frozenset[str] = frozenset()
    """Arguments of other agents' tools that say why a call is made and change nothing."""
    claude_code: tuple[str, ...] = ()
    """Its names in Claude Code's hooks, rules and subagents; hooks are told the first."""
    claude_code_arguments: Mapping[str, str] = field(default_factory=dict)
    """Its arguments with their names in Claude Code. There a `path` is given under both names."""
    covered_by: tuple[str, ...] = ()
    """Tools of Claude Code whose hooks are run for it too, as it does what they do."""
    editor_kind: EditorKind | None = None
    """Its kind in editors (ACP), where that does not follow from its effect."""

    def __post_init__(self) -> None:
        if self.command and (self.paths or self.patch):
            raise ValueError(f"{self.name}: policy judges a command line or paths, not both")

    @property
    def rules_by(self) -> RuleSubject:
        """The text that the pattern of a rule is matched with."""
        if self.rule_subject is not None:
            return self.rule_subject
        if self.command:
            return "command"
        return "paths" if self.names_files else "name"

    @property
    def names_files(self) -> bool:
        return bool(self.paths or self.patch)

    @property
    def reads_files(self) -> bool:
        return self.effect == "reads" and self.names_files

    @property
    def writes_files(self) -> bool:
        """True if the tool may write the files it names, as a program that is given files may."""
        return self.effect != "reads" and self.names_files


_FILE_NAMES = ("file_path", "filePath", "filepath", "filename", "file")
_FOLDER_NAMES = ("dir_path", "directory", "dir")
READ = ToolFacts(
    name="read",
    effect="reads",
    implementation="fugu_cli.tools.read_write:READ",
    paths=("path",),
    remembered=True,
    argument_aliases=dict.fromkeys(_FILE_NAMES, "path"),
    claude_code=("Read",),
    claude_code_arguments={"path": "file_path"},
)
LIST = ToolFacts(
    name="list",
    effect="reads",
    implementation="fugu_cli.tools.search:LIST",
    paths=("path",),
    shows_names_only=True,
    remembered=True,
    argument_aliases=dict.fromkeys(_FOLDER_NAMES, "path"),
    claude_code=("LS",),
    editor_kind="search",
)
GLOB = ToolFacts(
    name="glob",
    effect="reads",
    implementation="fugu_cli.tools.search:GLOB",
    paths=("path",),
    shows_names_only=True,
    remembered=True,
    argument_aliases={"dir_path": "path"},
    claude_code=("Glob",),
    editor_kind="search",
)
GREP = ToolFacts(
    name="grep",
    effect="reads",
    implementation="fugu_cli.tools.search:GREP",
    paths=("path",),
    remembered=True,
    argument_aliases={
        "dir_path": "path",
        "regex": "pattern",
        "-i": "ignore_case",
        "-C": "context",
        "include": "glob",
    },
    claude_code=("Grep",),
    claude_code_arguments={"ignore_case": "-i", "context": "-C"},
    editor_kind="search",
)
EDIT = ToolFacts(
    name="edit",
    effect="writes",
    implementation="fugu_cli.tools.edit:EDIT",
    paths=("path",),
    argument_aliases={
        **dict.fromkeys(_FILE_NAMES, "path"),
        **dict.fromkeys(("old_string", "oldString", "old_str"), "old"),
        **dict.fromkeys(("new_string", "newString", "new_str"), "new"),
        "replaceAll": "replace_all",
    },
    claude_code=("Edit", "MultiEdit"),
    claude_code_arguments={"path": "file_path", "old": "old_string", "new": "new_string"},
)
WRITE = ToolFacts(
    name="write",
    effect="writes",
    implementation="fugu_cli.tools.read_write:WRITE",
    paths=("path",),
    argument_aliases={
        **dict.fromkeys(_FILE_NAMES, "path"),
        **dict.fromkeys(("contents", "file_text", "text"), "content"),
    },
    claude_code=("Write",),
    claude_code_arguments={"path": "file_path"},
)
APPLY_PATCH = ToolFacts(
    name="apply_patch",
    effect="writes",
    implementation="fugu_cli.tools.apply_patch:APPLY_PATCH",
    patch="patch",
    argument_aliases={"input": "patch", "diff": "patch"},
    covered_by=("Edit", "Write"),
)
BASH = ToolFacts(
    name="bash",
    implementation="fugu_cli.tools.bash:BASH",
    command="command",
    shows_command_output=True,
    remembered=True,
    aliases=("shell",),
    argument_aliases={"cmd": "command", "run_in_background": "background"},
    remarks=frozenset({"description", "justification", "explanation"}),
    claude_code=("Bash",),
    claude_code_arguments={"background": "run_in_background"},
)
RUN_TESTS = ToolFacts(
    name="run_tests",
    implementation="fugu_cli.tools.run_tests:RUN_TESTS",
    roles="all",
    remembered=True,
    skippable=True,
    claude_code=("Bash",),
    editor_kind="execute",
)
JOB_OUTPUT = ToolFacts(
    name="job_output",
    effect="reads",
    implementation="fugu_cli.tools.job_tools:JOB_OUTPUT",
    about_session=True,
    roles="worker",
    shows_command_output=True,
    claude_code=("BashOutput", "TaskOutput"),
    claude_code_arguments={"job": "bash_id"},
    editor_kind="execute",
)
JOB_STOP = ToolFacts(
    name="job_stop",
    effect="reads",
    implementation="fugu_cli.tools.job_tools:JOB_STOP",
    about_session=True,
    roles="worker",
    shows_command_output=True,
    claude_code=("KillShell", "KillBash", "TaskStop"),
    claude_code_arguments={"job": "shell_id"},
    editor_kind="execute",
)
TODO = ToolFacts(
    name="todo",
    effect="reads",
    implementation="fugu_cli.tools.todo:TODO_LIST",
    about_session=True,
    takes_prose=True,
    in_subtasks=False,
    roles="worker",
    argument_aliases={"todos": "items"},
    claude_code=("TodoWrite",),
    claude_code_arguments={"items": "todos"},
    editor_kind="think",
)
ADVISE = ToolFacts(
    name="advise",
    effect="reads",
    about_session=True,
    takes_prose=True,
    aliases=("advisor", "ask_oracle", "oracle"),
    editor_kind="think",
)
DIFF = ToolFacts(
    name="diff",
    effect="reads",
    implementation="fugu_cli.tools.diff:DIFF",
    about_session=True,
    internal=True,
)
ACCEPTANCE_CHECK = ToolFacts(
    name="acceptance_check",
    implementation="fugu_cli.tools.acceptance_check:ACCEPTANCE_CHECK",
    command="command",
    rule_subject="name",
    in_subtasks=False,
    roles="all",
    covered_by=("Write", "Bash"),
)
RUN_CHECK = ToolFacts(
    name="run_check",
    implementation="fugu_cli.tools.acceptance_check:RUN_CHECK",
    about_session=True,
    internal=True,
    editor_kind="execute",
)
TESTS_BEFORE = ToolFacts(
    name="tests_before",
    effect="reads",
    implementation="fugu_cli.engine.tests_before:TESTS_BEFORE",
    about_session=True,
    internal=True,
    skippable=True,
    editor_kind="execute",
)
USER_ANSWERS = "The user answers: "
"""The beginning of a result of ask_user that holds an answer."""
ASK_USER = ToolFacts(
    name="ask_user",
    effect="reads",
    implementation="fugu_cli.tools.ask_user:ASK_USER",
    about_session=True,
    takes_prose=True,
    asks_user=True,
    in_subtasks=False,
    claude_code=("AskUserQuestion",),
    editor_kind="think",
)
REMEMBER = ToolFacts(
    name="remember",
    effect="reads",
    about_session=True,
    takes_prose=True,
    asks_user=True,
    in_subtasks=False,
    roles="worker",
    editor_kind="think",
)
"""It writes only what the user says yes to, and asks for that itself."""
SKILL = ToolFacts(
    name="skill",
    effect="reads",
    rule_subject="word",
    subject="name",
    instructs=True,
    claude_code=("Skill",),
    claude_code_arguments={"name": "skill"},
)
TASK = ToolFacts(
    name="task",
    effect="reads",
    rule_subject="word",
    subject="agent",
    in_subtasks=False,
    roles="worker",
    argument_aliases={"subagent_type": "agent"},
    claude_code=("Task", "Agent"),
    claude_code_arguments={"agent": "subagent_type"},
    editor_kind="think",
)
WEB_FETCH = ToolFacts(
    name="web_fetch",
    effect="reads",
    rule_subject="host",
    subject="url",
    leaves_machine=True,
    claude_code=("WebFetch",),
    editor_kind="fetch",
)
WEB_SEARCH = ToolFacts(
    name="web_search",
    effect="reads",
    leaves_machine=True,
    claude_code=("WebSearch",),
    editor_kind="fetch",
)
FIND_TOOLS = ToolFacts(
    name="find_tools",
    effect="reads",
    rule_subject="word",
    subject="query",
    about_session=True,
    editor_kind="other",
)
TOOLS = {
    facts.name: facts
    for facts in (
        READ,
        LIST,
        GLOB,
        GREP,
        EDIT,
        WRITE,
        APPLY_PATCH,
        BASH,
        RUN_TESTS,
        JOB_OUTPUT,
        JOB_STOP,
        TODO,
        ASK_USER,
        DIFF,
        ACCEPTANCE_CHECK,
        RUN_CHECK,
        TESTS_BEFORE,
        REMEMBER,
        SKILL,
        TASK,
        ADVISE,
        WEB_FETCH,
        WEB_SEARCH,
        FIND_TOOLS,
    )
}
"""fugu's own tools by name, in the order in which agents see them."""
_declared: dict[str, ToolFacts] = {}


def declare(facts: ToolFacts) -> None:
    """Declare a tool that a toolbox has beside fugu's own. Raises ValueError where another tool has
    this name.
    """
    if TOOLS.get(facts.name, facts) != facts or _declared.get(facts.name, facts) != facts:
        raise ValueError(f"two tools are called {facts.name}")
    _declared[facts.name] = facts


def facts_of(name: str) -> ToolFacts:
    """Return the facts about a tool. A tool that nobody declared, as those of MCP servers, may do
    anything.
    """
    facts = TOOLS.get(name) or _declared.get(name)
    if facts is not None:
        return facts
    return ToolFacts(name=name, leaves_machine=name.startswith(MCP), editor_kind="other")


def tool_names() -> frozenset[str]:
    """Return the names of the tools about which something is known."""
    return frozenset({*TOOLS, *_declared})


def own_tool_name(name: str) -> str:
    """Return fugu's tool for a name that other agents use for it."""
    for facts in TOOLS.values():
        if name in facts.aliases:
            return facts.name
    return name
