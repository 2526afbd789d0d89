"""May this call run? `judge` answers with allow, ask or deny, a reason, and the target as resolved.

Stands below the loop, which asks the user where this says so, and beside the tools, whose ways of
reading arguments and paths it shares. It follows links on the disk and reads git's settings; it
runs nothing and remembers nothing. In order: a deny rule, yolo, what undo cannot restore, what
needs a yes every time, an ask rule, an allow rule, then the table of decisions.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import field_validator

from fugu_cli.formatting import shorten
from fugu_cli.messages import Call, Value
from fugu_cli.safety.paths import (
    PathFault,
    inside,
    is_folder,
    locate,
    protected_reason,
    quoted_path,
)
from fugu_cli.safety.policy import command_rules, git_commands, rule_matching
from fugu_cli.safety.policy.dangers import dangers_of_line
from fugu_cli.safety.policy.decisions import CallClass, Decision, Mode, decide
from fugu_cli.safety.policy.readers import is_read, read_fault
from fugu_cli.safety.policy.rule_matching import (
    covers_tool,
    escape_argument,
    match_command,
    match_path,
    split_pattern,
)
from fugu_cli.safety.policy.shell_line import ShellLine, parse_line
from fugu_cli.safety.self_running_files import RunBy, self_running_file
from fugu_cli.session.call_arguments import (
    MalformedArguments,
    arguments_of,
    named_paths,
)
from fugu_cli.session.tool_facts import (
    ACCEPTANCE_CHECK,
    EDIT,
    RUN_TESTS,
    TASK,
    WEB_SEARCH,
    ToolFacts,
    facts_of,
)

__all__ = ["Judgement", "Mode", "Rules", "is_read", "judge"]

Verdict = Literal["allow", "ask", "deny"]
GO_ON_WITHOUT = "Go on without it, or say in your answer that it is needed."
"""The way out for an agent where nothing that it can do makes the call run."""
PLAN_WAY_OUT = "Go on with reading, and say in your answer what is to be done."
NO_SANDBOX = "no sandbox holds here, so that it would run with the user's own rights"
TEST_PROGRAMS = re.compile(
    r"\b(pytest|unittest|tox|nox|jest|vitest|mocha|(?:go|cargo|npm|pnpm|yarn|bun|mvn|gradle|make|"
    r"dotnet|mix|swift) (?:run )?test|nextest|phpunit|rspec|ctest)\b"
)


class Rules(Value):
    """The user's rules. Patterns are those of rule_matching.py; a malformed one is a ValueError
    that names it.
    """

    mode: Mode = "edit"
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    test_command: str | None = None
    folders: tuple[Path, ...] = ()
    """Folders outside the repository that agents may read and edit as if they were in it,
    resolved.
    """
    readable: tuple[Path, ...] = ()
    """Folders outside the repository that agents may read as if they were in it, resolved: the
    user's own skills.
    """
    from_folder: tuple[str, ...] = ()
    """The rules of `allow` that the folder's own configuration brings: they open no file that
    others run.
    """
    trusted: bool = False
    """The user trusted the folder: its tests run where nobody can be asked."""

    @field_validator("allow", "ask", "deny")
    @classmethod
    def _well_formed(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        for rule in rules:
            split_pattern(rule)
        return rules


class Judgement(Value):
    """The answer. `target` is what is touched or run, for people and for remembering a yes.

    `every_time` marks what a remembered yes must not cover. `rule` is what one may be remembered
    as; "": this very target (offered_rules.py fills it in before somebody is asked). `subtask` is
    the one that makes the call. `plan_mode`: it is denied because that mode only reads. `reads`:
    it is a command line that only reads. `way_out` says how it could run after all.
    `once_a_session`: any yes holds for the session. `forbidden`: a rule of the user's denies it.
    """

    verdict: Verdict
    reason: str
    target: str = ""
    every_time: bool = False
    rule: str = ""
    subtask: str = ""
    plan_mode: bool = False
    reads: bool = False
    forbidden: bool = False
    way_out: str = ""
    once_a_session: bool = False

    @property
    def refusal(self) -> str:
        """The reason and the way out, for whoever is told that the call did not run."""
        return f"{self.reason}. {self.way_out or GO_ON_WITHOUT}"


@dataclass(frozen=True)
class PolicyCase:
    """A call as the rules see it: its target, its class, and which rules match it."""

    target: str
    call_class: CallClass
    reason: str
    every_time: bool = False
    denial: str = ""
    """The reason that a rule forbids it."""
    asking_rule: str = ""
    allowing_rule: str = ""
    exact: bool = False
    """Whether the rule that allows it names this very call."""
    only_reads: bool = False
    """Whether a rule may allow it in plan mode."""
    way_out: str = ""


def judge(
    call: Call,
    rules: Rules,
    root: Path,
    *,
    sandbox_holds: bool = False,
    somebody_to_ask: bool = True,
) -> Judgement:
    """Judge one call. `root` is the resolved folder of the repository. `sandbox_holds`: a trial has
    shown that commands have no network and write only in the repository, and there neither git's
    folder nor files that others run."""
    arguments = arguments_of(call)
    if isinstance(arguments, MalformedArguments):
        return Judgement(verdict="allow", reason=f"nothing will run: {arguments.text}")
    tool = facts_of(call.tool)
    if call.tool == "bash":
        case = _command_case(str(arguments.get(tool.command, "")), rules, root, sandbox_holds)
    elif tool.command:
        case = _program_case(tool, arguments, rules, root, sandbox_holds)
    elif tool.names_files:
        case = _paths_case(tool, arguments, rules, root)
    elif tool.about_session or tool.rules_by == "name":
        case = _other_case(tool, rules)
    elif tool.rules_by == "host":
        case = _fetch_case(tool, str(arguments.get(tool.subject, "")), rules)
    else:
        case = _named_case(tool, str(arguments.get(tool.subject, "")), rules)
    judgement = _apply_rules(case, rules, sandbox_holds, somebody_to_ask)
    only_reads = call.tool == "bash" and case.call_class is CallClass.READ
    return judgement.model_copy(update={"reads": True}) if only_reads else judgement


def _apply_rules(
    case: PolicyCase, rules: Rules, sandbox_holds: bool, somebody_to_ask: bool
) -> Judgement:
    every_time = case.every_time and not case.exact
    tests_asked_once = case.call_class is CallClass.TESTS and rules.mode == "edit"

    def answer(verdict: Verdict, reason: str) -> Judgement:
        return Judgement(
            verdict=verdict,
            reason=reason,
            target=case.target,
            every_time=every_time,
            way_out=case.way_out if verdict != "allow" else "",
            once_a_session=tests_asked_once,
        )

    if case.denial:
        return answer("deny", case.denial).model_copy(update={"way_out": "", "forbidden": True})
    if rules.mode == "yolo":
        although = f", although {case.reason}" if every_time else ""
        return answer("allow", f"yolo: everything is allowed{although}")
    may_be_allowed = case.only_reads and case.allowing_rule and not every_time
    if rules.mode == "plan" and case.call_class is not CallClass.READ and not may_be_allowed:
        reason = "plan mode only reads: nothing is written, run or fetched"
        changes = {"plan_mode": True, "way_out": PLAN_WAY_OUT}
        return answer("deny", reason).model_copy(update=changes)
    if case.call_class is CallClass.LOST and every_time:
        return answer(
            "deny", f"{case.reason} (only a rule that allows this very command permits it)"
        )
    if case.asking_rule:
        return answer("ask", f"the rule {case.asking_rule} asks")
    if case.allowing_rule and not every_time:
        return answer("allow", f"the rule {case.allowing_rule} allows it")
    reason = case.reason
    needs_sandbox = {CallClass.COMMAND, CallClass.TESTS, CallClass.CHECK, CallClass.BUILD_FILE}
    if case.call_class in needs_sandbox and not sandbox_holds and rules.mode != "ask":
        reason = f"{reason}, and {NO_SANDBOX}"
    decision = decide(
        rules.mode,
        case.call_class,
        sandbox_holds=sandbox_holds,
        somebody_to_ask=somebody_to_ask,
    )
    match decision:
        case Decision.RUN:
            return answer("allow", case.reason)
        case Decision.ASK:
            return answer("ask", reason)
        case Decision.REFUSE:
            nobody = "auto mode asks nobody" if rules.mode == "auto" else "nobody can be asked"
            return answer("deny", f"{reason}, and {nobody}")


def _first(rules: tuple[str, ...], covers: Callable[[str], bool]) -> str:
    return next(filter(covers, rules), "")


def _forbids(rule: str) -> str:
    return f"the rule {rule} forbids it" if rule else ""


def _way_out(rule: str) -> str:
    shown = rule.replace("'", "'\\''")
    return f"The user can allow it with --allow '{shown}'" if len(rule) <= 200 else ""


def _paths_case(
    tool: ToolFacts, arguments: dict[str, object], rules: Rules, root: Path
) -> PolicyCase:
    """Judge a tool that names files by where each of them lies."""
    reads = tool.reads_files
    names = named_paths(tool, arguments)
    located = [locate(name, root) for name in names]
    paths = [path for path in located if isinstance(path, Path)]
    target = f"{tool.name}({', '.join(quoted_path(str(path)) for path in paths)})"
    reasons, builds = [], ""
    for path in paths:
        reason = _protected_reason(path, rules, root, reads)
        file = None if reads else self_running_file(path, root)
        if file is not None and file.run_by is RunBy.OTHERS:
            reason = "" if _is_opened(path, tool.name, rules, root) else reason or file.reason
        elif file is not None and not builds:
            builds = f"`{quoted_path(str(path))}`: {file.reason}"
        if reason:
            reasons.append(f"`{quoted_path(str(path))}`: {reason}")
    for fault in located:
        if isinstance(fault, PathFault):
            reasons.append(f"the path cannot be used: {fault.text}")
    if reasons:
        call_class, reason = CallClass.OUTSIDE, reasons[0]
    elif reads:
        call_class, reason = CallClass.READ, "it reads inside the repository"
    elif tool.effect == "runs":
        call_class, reason = CallClass.FOREIGN_TOOL, "it runs inside the repository"
    elif builds:
        call_class, reason = CallClass.BUILD_FILE, builds
    else:
        call_class, reason = CallClass.EDIT, f"it {tool.effect} inside the repository"

    def matching(candidates: tuple[str, ...], *, forbids: bool) -> str:
        quantify = any if forbids else all
        fits = partial(match_path, tool=tool.name, root=root, forbids=forbids)
        return _first(
            candidates,
            lambda rule: bool(paths) and quantify(fits(rule, path=path) for path in paths),
        )

    allowed = matching(rules.allow, forbids=False)
    exact = (
        bool(allowed)
        and len(paths) == len(names)
        and all(rule_matching.means_path_exactly(allowed, path, root) for path in paths)
        and (reads or allowed not in rules.from_folder)
    )
    name = escape_argument(tool.name, str(paths[0])) if paths else ""
    if paths and inside(paths[0], root):
        name = escape_argument(tool.name, paths[0].relative_to(root).as_posix())
    return PolicyCase(
        target=target,
        call_class=call_class,
        reason=reason,
        every_time=call_class is CallClass.OUTSIDE,
        denial=_forbids(matching(rules.deny, forbids=True)),
        asking_rule=matching(rules.ask, forbids=True),
        allowing_rule=allowed,
        exact=exact,
        only_reads=reads,
        way_out=_way_out(f"{'read' if reads else 'write'}({name})"),
    )


def _protected_reason(path: Path, rules: Rules, root: Path, reads: bool) -> str:
    """Like `paths.protected_reason`, for which folders that the user added count as repositories."""
    more = (*rules.folders, *(rules.readable if reads else ()))
    base = next((folder for folder in more if inside(path, folder)), root)
    return protected_reason(path, base, writes=not reads)


def _is_opened(path: Path, tool: str, rules: Rules, root: Path) -> bool:
    """Return whether a rule of the user's own names the file that others run, or its folder."""
    for rule in rules.allow:
        if rule in rules.from_folder or not match_path(rule, tool, path, root, forbids=False):
            continue
        pattern = root / split_pattern(rule)[1]
        file = self_running_file(pattern, root)
        if file is not None and file.run_by is RunBy.OTHERS:
            return True
    return False


def _with_rules(
    case: PolicyCase,
    rules: Rules,
    covers: Callable[[str], bool],
    allows: Callable[[str], bool] | None = None,
) -> PolicyCase:
    return replace(
        case,
        denial=_forbids(_first(rules.deny, covers)),
        asking_rule=_first(rules.ask, covers),
        allowing_rule=_first(rules.allow, allows or covers),
    )


def _named_case(tool: ToolFacts, name: str, rules: Rules) -> PolicyCase:
    """Return the case of a skill or subagent, which the user trusts. A rule `skill(NAME)` means
    this one.
    """
    case = PolicyCase(
        target=f"{tool.name}({quoted_path(name)})",
        call_class=CallClass.READ,
        reason="what it does is judged call by call" if tool == TASK else f"it reads a {tool.name}",
        way_out=_way_out(f"{tool.name}({name})"),
    )
    return _with_rules(case, rules, lambda rule: match_command(rule, tool.name, name))


def _command_case(text: str, rules: Rules, root: Path, sandbox_holds: bool) -> PolicyCase:
    """Judge a command line: a read, the tests, files put back by git, or another command."""
    text = text.strip()
    line = parse_line(text)
    call_class, reason, every_time = _class_of_line(text, line, rules, root, sandbox_holds)
    own = [rule for rule in rules.allow if split_pattern(rule)[0] == "bash"]
    exact = _first(tuple(own), lambda rule: rule_matching.means_exactly(rule, "bash", text))
    denying = command_rules.forbidding_rule(rules.deny, text, root)
    asking = command_rules.forbidding_rule(rules.ask, text, root)
    allowed = command_rules.allowing_rule(
        rules.allow, line, root, writes=rules.mode in {"edit", "auto"}
    )
    return PolicyCase(
        target=f"bash({text})",
        call_class=call_class,
        reason=reason,
        every_time=every_time,
        denial=denying.reason if denying is not None else "",
        asking_rule=asking.rule if asking is not None else "",
        allowing_rule=exact or allowed,
        exact=bool(exact),
        way_out=_command_way_out(text, call_class, rules),
    )


def _class_of_line(
    text: str, line: ShellLine, rules: Rules, root: Path, sandbox_holds: bool
) -> tuple[CallClass, str, bool]:
    """Return the class of a line, the reason, and whether a yes holds for one call only."""
    not_a_read = read_fault(line, root, rules.folders)
    if not_a_read is None:
        return CallClass.READ, "it only reads", False
    if rules.test_command is not None and text.split() == rules.test_command.split():
        return CallClass.TESTS, "these are the tests", False
    if restored := _restored_files(line):
        case = _paths_case(EDIT, {"path": restored}, rules, root)
        if case.call_class is not CallClass.OUTSIDE and not any(
            is_folder(root / name) for name in restored
        ):
            return case.call_class, "it puts files back that a snapshot holds", False
    danger = dangers_of_line(line, root, rules.folders, private_tmp=sandbox_holds)
    if danger is not None:
        call_class = CallClass.LOST if danger.lost else CallClass.OUTSIDE
        return call_class, danger.reason, danger.every_time
    if not_a_read.outside:
        return CallClass.OUTSIDE, str(not_a_read), True
    unreadable = line.unreadable and not sandbox_holds
    return CallClass.COMMAND, f"`{shorten(text, 80)}`: {not_a_read}", unreadable


def _restored_files(line: ShellLine) -> list[str]:
    """Return the files that a line puts back by `git restore` or `git checkout --` alone."""
    if line.fault or len(line.commands) != 1:
        return []
    command = line.commands[0]
    has_more = command.assignments or command.redirects
    if has_more or not command.words or not all(word.plain for word in command.words):
        return []
    if command.words[0].text != "git":
        return []
    return git_commands.restored_files(command.arguments)


def _command_way_out(text: str, call_class: CallClass, rules: Rules) -> str:
    rule = _way_out(f"bash({escape_argument('bash', text)})") if "\n" not in text else ""
    if call_class is CallClass.COMMAND and TEST_PROGRAMS.search(text):
        return f"Use run_tests with target=FILE_OR_ID for tests. {rule}".strip()
    return rule


def _program_case(
    tool: ToolFacts,
    arguments: dict[str, object],
    rules: Rules,
    root: Path,
    sandbox_holds: bool,
) -> PolicyCase:
    """Return the case of a command line of another tool than bash.

    It is judged like any other, and by rules that name the tool. A yes holds for this very line and
    its script.
    """
    command = str(arguments.get(tool.command, ""))
    name = str(arguments.get("file", "")) or "check.py"
    line = re.sub(r"\$SCRIPT\b|\$\{SCRIPT\}", lambda _: name, command)
    case = _command_case(line, rules, root, sandbox_holds)
    call_class = case.call_class
    if call_class not in {CallClass.OUTSIDE, CallClass.LOST}:
        call_class = CallClass.CHECK if tool == ACCEPTANCE_CHECK else CallClass.COMMAND

    def covers(rule: str) -> bool:
        return covers_tool(split_pattern(rule)[0], tool.name)

    return replace(
        case,
        target=f"{command.strip()}\n{arguments.get('script', '')}",
        call_class=call_class,
        denial=case.denial or _forbids(_first(rules.deny, covers)),
        asking_rule=case.asking_rule or _first(rules.ask, covers),
        allowing_rule=_first(rules.allow, covers) or case.allowing_rule,
        exact=False,
        way_out=f"Use run_tests with target=FILE_OR_ID for tests. {_way_out(tool.name)}",
    )


def _fetch_case(tool: ToolFacts, url: str, rules: Rules) -> PolicyCase:
    """Return the case of web_fetch. Rules name the host. It reads, so a rule allows it in plan
    mode.
    """
    address = rule_matching.web_address(url)
    if isinstance(address, str):
        return PolicyCase(tool.name, CallClass.READ, f"nothing will be fetched: {address}")
    case = PolicyCase(
        target=f"{tool.name}({address.shown})",
        call_class=CallClass.OUTSIDE,
        reason="it sends the address to another machine, and what comes back is anybody's words",
        only_reads=True,
        way_out=_way_out(f"{tool.name}({address.shown})"),
    )
    return _with_rules(case, rules, lambda rule: rule_matching.matches_address(rule, address))


def _other_case(tool: ToolFacts, rules: Rules) -> PolicyCase:
    """Return the case of run_tests, the session's own tools, and tools that policy does not know
    (of MCP servers).
    """

    def covers(rule: str) -> bool:
        return covers_tool(split_pattern(rule)[0], tool.name)

    def covers_every_call(rule: str) -> bool:
        # a pattern for arguments, which are not read here, must not allow all of them
        whole = split_pattern(rule)[1] in rule_matching.EVERYTHING | {tool.name}
        return whole and covers(rule)

    if tool.about_session:
        call_class, reason = CallClass.READ, "it is about what this session began"
    elif tool == RUN_TESTS:
        call_class, reason = CallClass.TESTS, "it runs the tests"
    elif tool == WEB_SEARCH:
        call_class = CallClass.OUTSIDE
        reason = "it sends the query to a search engine, and what comes back is anybody's words"
    else:
        call_class, reason = CallClass.FOREIGN_TOOL, f"policy does not know what `{tool.name}` does"
    case = PolicyCase(
        tool.name,
        call_class,
        reason,
        only_reads=tool == WEB_SEARCH,
        way_out=_way_out(tool.name),
    )
    return _with_rules(case, rules, covers, covers_every_call)
