"""May this call run? `judge` answers with allow, ask or deny, a reason, and the target as resolved.

Stands below the loop, which asks the user where this says so, and beside the tools, whose ways of
reading arguments and paths it shares. It follows links on the disk and reads git's settings; it
runs nothing and remembers nothing. In order: a deny rule, yolo, what undo cannot restore, what
needs a yes every time, an ask rule, an allow rule, then the table of decisions.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import field_validator

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
Decides = Callable[[CallClass], Decision]
"""The table of decisions.py in the mode and the circumstances of one call."""
GO_ON_WITHOUT = "Go on without it, or say in your answer that it is needed."
"""The way out for an agent where nothing that it can do makes the call run."""
PLAN_WAY_OUT = "Go on with reading, and say in your answer what is to be done."
PRIVATE_TMP = "Commands have a /tmp of their own, whose files only bash reads and writes."
RULE_SHOWN_AT_MOST = 400
"""Characters of a rule that a refusal spells out."""
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
    loosest_mode: Mode = "yolo"
    """The loosest mode that the administrator allows."""
    only_managed_allow: bool = False
    """`allow` holds the administrator's rules alone: nothing else allows a call for good."""

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
    paths: tuple[Path, ...] = ()
    """The files and folders that the call names, resolved."""

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
    """The rule that allows it names this very call."""
    only_reads: bool = False
    """A rule may allow it in plan mode."""
    paths: tuple[Path, ...] = ()
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

    def decides(call_class: CallClass) -> Decision:
        return decide(
            rules.mode,
            call_class,
            sandbox_holds=sandbox_holds,
            somebody_to_ask=somebody_to_ask,
        )

    tool = facts_of(call.tool)
    if call.tool == "bash":
        text = str(arguments.get(tool.command, ""))
        case = _command_case(text, rules, root, sandbox_holds, decides)
    elif tool.command:
        case = _program_case(tool, arguments, rules, root, sandbox_holds, decides)
    elif tool.names_files:
        case = _paths_case(tool, arguments, rules, root)
        if sandbox_holds and case.call_class is CallClass.OUTSIDE and _is_in_tmp(case.paths, root):
            case = replace(case, way_out=f"{PRIVATE_TMP} {case.way_out}")
    else:
        case = _subject_case(tool, str(arguments.get(tool.subject, "")), rules)
    judgement = _apply_rules(case, rules, sandbox_holds, decides)
    only_reads = call.tool == "bash" and case.call_class is CallClass.READ
    return judgement.model_copy(update={"reads": True}) if only_reads else judgement


def _apply_rules(
    case: PolicyCase, rules: Rules, sandbox_holds: bool, decides: Decides
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
            paths=case.paths,
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
    match decides(case.call_class):
        case Decision.RUN:
            return answer("allow", case.reason)
        case Decision.ASK:
            return answer("ask", _question_reason(case, sandbox_holds))
        case Decision.REFUSE:
            reason = case.reason
            needs_sandbox = {
                CallClass.COMMAND,
                CallClass.TESTS,
                CallClass.CHECK,
                CallClass.BUILD_FILE,
            }
            if case.call_class in needs_sandbox and not sandbox_holds and rules.mode != "ask":
                reason = f"{reason}, and {NO_SANDBOX}"
            nobody = "auto mode asks nobody" if rules.mode == "auto" else "nobody can be asked"
            return answer("deny", f"{reason}, and {nobody}")


ASK_MODE = "in ask mode every change is asked about"
WITHOUT_SANDBOX = "could change any file of yours and use the network: no sandbox holds here"


def _question_reason(case: PolicyCase, sandbox_holds: bool) -> str:
    """Return why the user is asked, as a clause. It does not repeat the command or the file, which
    the question shows.
    """
    match case.call_class:
        case CallClass.EDIT:
            return ASK_MODE
        case CallClass.BUILD_FILE if sandbox_holds:
            return f"{case.reason}, and {ASK_MODE}"
        case CallClass.BUILD_FILE:
            return f"{case.reason}, and so it {WITHOUT_SANDBOX}"
        case CallClass.COMMAND if sandbox_holds:
            return "it may change files of the repository; the sandbox keeps it from all others"
        case CallClass.COMMAND:
            return f"it {WITHOUT_SANDBOX}"
        case CallClass.TESTS | CallClass.CHECK:
            return f"it runs code of the repository, which {WITHOUT_SANDBOX}"
        case _:
            return case.reason


def _first(rules: tuple[str, ...], covers: Callable[[str], bool]) -> str:
    return next(filter(covers, rules), "")


def _forbids(rule: str) -> str:
    return f"the rule {rule} forbids it" if rule else ""


def _way_out(rule: str) -> str:
    if len(rule) > RULE_SHOWN_AT_MOST:
        name = rule.partition("(")[0]
        return f"The user can allow it with a rule {name}(...) that holds this very text"
    shown = rule.replace("'", "'\\''")
    return f"The user can allow it with --allow '{shown}'"


def _paths_case(
    tool: ToolFacts, arguments: dict[str, object], rules: Rules, root: Path
) -> PolicyCase:
    """Judge a tool that names files by where each of them lies."""
    reads = tool.reads_files
    located = [locate(name, root) for name in named_paths(tool, arguments)]
    paths = [path for path in located if isinstance(path, Path)]
    reasons, build_reason = [], ""
    for path in located:
        if isinstance(path, PathFault):
            reasons.append(f"the path cannot be used: {path.text}")
            continue
        # the question and the refusal show the path of a call that names one
        where = f": `{quoted_path(str(path))}`" if len(located) > 1 else ""
        reason = _protected_reason(path, rules, root, reads)
        file = None if reads else self_running_file(path, root)
        if file is not None and file.run_by is RunBy.OTHERS:
            reason = "" if _is_opened(path, tool.name, rules, root) else reason or file.reason
        elif file is not None:
            build_reason = build_reason or f"{file.reason}{where}"
        if reason:
            reasons.append(f"{reason}{where}")
    if reasons:
        call_class, reason = CallClass.OUTSIDE, reasons[0]
    elif reads:
        call_class, reason = CallClass.READ, "it reads inside the repository"
    elif tool.effect == "runs":
        call_class, reason = CallClass.FOREIGN_TOOL, "it runs inside the repository"
    elif build_reason:
        call_class, reason = CallClass.BUILD_FILE, build_reason
    else:
        call_class, reason = CallClass.EDIT, f"it {tool.effect} inside the repository"

    def forbids(rule: str) -> bool:
        return any(match_path(rule, tool.name, path, root, forbids=True) for path in paths)

    def allows(rule: str) -> bool:
        return bool(paths) and all(
            match_path(rule, tool.name, path, root, forbids=False) for path in paths
        )

    allowed = _first(rules.allow, allows)
    exact = (
        bool(allowed)
        and len(paths) == len(located)
        and all(rule_matching.means_path_exactly(allowed, path, root) for path in paths)
        and (reads or allowed not in rules.from_folder)
    )
    name = ""
    if paths:
        shown = paths[0].relative_to(root).as_posix() if inside(paths[0], root) else str(paths[0])
        name = escape_argument(tool.name, shown)
    return PolicyCase(
        target=f"{tool.name}({', '.join(quoted_path(str(path)) for path in paths)})",
        call_class=call_class,
        reason=reason,
        every_time=call_class is CallClass.OUTSIDE,
        denial=_forbids(_first(rules.deny, forbids)),
        asking_rule=_first(rules.ask, forbids),
        allowing_rule=allowed,
        exact=exact,
        only_reads=reads,
        paths=tuple(paths),
        way_out=_way_out(f"{'read' if reads else 'write'}({name})"),
    )


def _is_in_tmp(paths: Sequence[Path], root: Path) -> bool:
    """Return whether all paths are in /tmp, where a command has a folder of its own."""
    outside = [path for path in paths if inside(path, Path("/tmp")) and not inside(path, root)]
    return bool(paths) and len(outside) == len(paths)


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


def _command_case(
    text: str, rules: Rules, root: Path, sandbox_holds: bool, decides: Decides
) -> PolicyCase:
    """Judge a command line: a read, the tests, files put back by git, or another command."""
    text = text.strip(" \t\n")
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
        way_out=_command_way_out(text, line, call_class, rules, decides),
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
    if restored := git_commands.restored_files(line):
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
    return CallClass.COMMAND, str(not_a_read), unreadable


def _command_way_out(
    text: str, line: ShellLine, call_class: CallClass, rules: Rules, decides: Decides
) -> str:
    """Return the tool that does the same, if there is one that runs, and the rule that allows the
    line.
    """
    advice = ""
    if call_class is CallClass.COMMAND:
        programs = {command.name for command in line.commands}
        redirects = [redirect for command in line.commands for redirect in command.redirects]
        if TEST_PROGRAMS.search(text):
            advice = _tests_advice(rules, decides)
        elif "sed" in programs or any(redirect.writes for redirect in redirects):
            if decides(CallClass.EDIT) is Decision.RUN:
                advice = "Use edit or write to change files. "
        elif programs & {"find", "xargs"}:
            advice = "Use glob and grep to search files. "
    return advice + _way_out(f"bash({escape_argument('bash', text)})")


def _tests_advice(rules: Rules, decides: Decides) -> str:
    is_allowed = rule_matching.any_names(rules.allow, RUN_TESTS.name)
    runs = is_allowed or decides(CallClass.TESTS) is Decision.RUN
    return "Use run_tests with target=FILE_OR_ID for tests. " if runs else ""


def _program_case(
    tool: ToolFacts,
    arguments: dict[str, object],
    rules: Rules,
    root: Path,
    sandbox_holds: bool,
    decides: Decides,
) -> PolicyCase:
    """Return the case of a command line of another tool than bash.

    It is judged like any other, and by rules that name the tool. A yes holds for this very line and
    its script.
    """
    command = str(arguments.get(tool.command, ""))
    name = str(arguments.get("file", "")) or "check.py"
    line = re.sub(r"\$SCRIPT\b|\$\{SCRIPT\}", lambda _: name, command)
    case = _command_case(line, rules, root, sandbox_holds, decides)
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
        way_out=_tests_advice(rules, decides) + _way_out(tool.name),
    )


def _subject_case(tool: ToolFacts, subject: str, rules: Rules) -> PolicyCase:
    """Judge a tool that names no files and runs no command line: by its name, by the host it
    fetches from, or by the skill or subagent it names.
    """
    target, way_out = tool.name, tool.name
    address = None
    if tool.rules_by == "host":
        from fugu_cli.safety.web_addresses import web_address  # not in runs that fetch nothing

        address = web_address(subject)
    if isinstance(address, str):
        return PolicyCase(tool.name, CallClass.READ, f"nothing will be fetched: {address}")
    if address is not None:
        target = way_out = f"{tool.name}({address.shown})"
        call_class = CallClass.OUTSIDE
        reason = "it sends the address to another machine, and what comes back is anybody's words"
    elif tool.about_session:
        call_class, reason = CallClass.READ, "it is about what this session began"
    elif tool.rules_by == "name" and tool == RUN_TESTS:
        call_class, reason = CallClass.TESTS, "tests run the repository's code"
    elif tool == WEB_SEARCH:
        call_class = CallClass.OUTSIDE
        reason = "it sends the query to a search engine, and what comes back is anybody's words"
    elif tool.rules_by == "name":
        call_class, reason = CallClass.FOREIGN_TOOL, f"fugu cannot tell what `{tool.name}` does"
    else:
        target, way_out = f"{tool.name}({quoted_path(subject)})", f"{tool.name}({subject})"
        call_class = CallClass.READ
        reason = (
            "what it does is judged call by call" if tool == TASK else f"it reads a {tool.name}"
        )

    def covers(rule: str, *, forbids: bool = True) -> bool:
        name, pattern = split_pattern(rule)
        if address is not None:
            return rule_matching.matches_address(rule, address)
        if tool.rules_by != "name":
            return match_command(rule, tool.name, subject)
        # a pattern for arguments, which are not read here, must not allow all of them
        is_whole = pattern in rule_matching.EVERYTHING | {tool.name}
        return (forbids or is_whole) and covers_tool(name, tool.name)

    return PolicyCase(
        target,
        call_class,
        reason,
        denial=_forbids(_first(rules.deny, covers)),
        asking_rule=_first(rules.ask, covers),
        allowing_rule=_first(rules.allow, partial(covers, forbids=False)),
        only_reads=tool == WEB_SEARCH or address is not None,
        way_out=_way_out(way_out),
    )
