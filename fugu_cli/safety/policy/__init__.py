"""May this call run? `judge` answers with allow, ask or deny, a reason, and the target as resolved.

Stands below the loop, which asks the user where this says so, and beside the tools, whose ways of
reading arguments and paths it shares. A function of the call, the rules, where links on the disk
lead, and whether the sandbox seals the repository; it runs nothing and remembers nothing. In order:
a deny rule, yolo, plan mode, what undo cannot restore, what needs a yes every time, an ask rule, an
allow rule, the mode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import field_validator

from fugu_cli.messages import Call, Value
from fugu_cli.safety.paths import PathFault, inside, locate, protected_reason, quoted_path
from fugu_cli.safety.policy import command_rules, rule_matching
from fugu_cli.safety.policy.call_arguments import (
    MalformedArguments,
    ToolAccess,
    access_of,
    arguments_of,
    patched_paths,
)
from fugu_cli.safety.policy.classification import ClassifiedCommand, classify
from fugu_cli.safety.policy.programs import RiskLevel
from fugu_cli.safety.policy.shell_parser import Unreadable
from fugu_cli.session.turns import TASK

__all__ = ["Judgement", "Mode", "Rules", "judge"]

Mode = Literal["plan", "ask", "edit", "auto", "yolo"]
Verdict = Literal["allow", "ask", "deny"]
INTERNAL_TOOLS = frozenset({"diff", "run_check", "tests_before"})
"""fugu's own: what the session itself did, and its runs of checks and tests."""
HIDDEN_TOOLS = frozenset({"run_check", "tests_before"})
"""Of them those that no agent sees."""
SESSION_TOOLS = frozenset({"todo", "job_output", "job_stop", "find_tools"}) | INTERNAL_TOOLS
"""Tools that keep to what the session itself began and did: its list, its background jobs, its
changes, its tools.
"""
REASONS = dict.fromkeys(SESSION_TOOLS, "it is about what this session began") | {
    "run_tests": "it runs the tests",
    rule_matching.SEARCH: (
        "it sends the query to a search engine, and what comes back is anybody's words"
    ),
}
UNSEALED = "no sandbox keeps it from the git folder, which undo cannot restore"
"""The reason, besides its own, of what auto mode asks about only where the repository is not
sealed.
"""
ACCEPTANCE_CHECK = "acceptance_check"
"""The tool that runs a script of an agent's; its command line calls it $SCRIPT."""
SKILL = "skill"
"""The tool that reads one of the skills that count in a session."""


class Rules(Value):
    """What the user set. Patterns are those of rule_matching.py; a malformed one is a ValueError
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

    @field_validator("allow", "ask", "deny")
    @classmethod
    def _well_formed(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        for rule in rules:
            rule_matching.split_pattern(rule)
        return rules


class Judgement(Value):
    """The answer. `target` is what is touched or run, for people and for remembering a yes.

    `every_time` marks what a remembered yes must not cover. `rule` is what one may be remembered
    as; "": this very target (offered_rules.py fills it in before somebody is asked). `subtask` is
    the one that makes the call. `plan_mode`: it is denied because that mode only reads.
    """

    verdict: Verdict
    reason: str
    target: str = ""
    every_time: bool = False
    rule: str = ""
    subtask: str = ""
    plan_mode: bool = False
    reads: bool = False


@dataclass(frozen=True)
class PolicyCase:
    """A call as the rules see it: its target, what it needs, and which rules match it."""

    target: str
    level: RiskLevel
    reason: str
    reads: bool = False
    tests: bool = False
    known: bool = True
    denied: str = ""
    """Why a rule forbids it; of the other two the rule."""
    asked: str = ""
    allowed: str = ""
    exact: bool = False


def judge(call: Call, rules: Rules, root: Path, *, sealed: bool = False) -> Judgement:
    """Judge one call. `root` is the resolved folder of the repository. `sealed`: no command but git
    writes what git keeps of it."""
    arguments = arguments_of(call)
    if isinstance(arguments, MalformedArguments):
        return Judgement(verdict="allow", reason=f"nothing will run: {arguments.text}")
    access = access_of(call.tool)
    if call.tool == "bash":
        case = _command_case(str(arguments.get(access.command, "")), rules, root)
        judgement = _decide(case, rules, sealed=sealed)
        return judgement.model_copy(update={"reads": case.level is RiskLevel.READS})
    if access.command:
        case = _program_case(call.tool, access, arguments, rules, root)
    elif access.paths or access.patch:
        case = _paths_case(call.tool, access, arguments, rules, root)
    elif call.tool == SKILL:
        case = _named_case(SKILL, str(arguments.get("name", "")), "it reads a skill", rules)
    elif call.tool == TASK:  # the subtask's own calls are judged one by one
        case = _named_case(
            TASK, str(arguments.get("agent", "")), "what it does is judged call by call", rules
        )
    elif call.tool == rule_matching.FETCH:
        case = _fetch_case(str(arguments.get("url", "")), rules)
    else:
        case = _other_case(call.tool, rules)
    return _decide(case, rules, sealed=sealed)


def _decide(case: PolicyCase, rules: Rules, *, sealed: bool) -> Judgement:
    every = case.level >= RiskLevel.EVERY and not case.exact

    def say(verdict: Verdict, reason: str) -> Judgement:
        return Judgement(verdict=verdict, reason=reason, target=case.target, every_time=every)

    if case.denied:
        return say("deny", case.denied)
    if rules.mode == "yolo":
        return say(
            "allow", "yolo: everything is allowed" + (f", although {case.reason}" if every else "")
        )
    if rules.mode == "plan" and not case.reads:
        reason = "plan mode only reads: nothing is written and nothing is run"
        return say("deny", reason).model_copy(update={"plan_mode": True})
    if case.level is RiskLevel.DESTROYS and every:
        return say("deny", f"{case.reason} (only a rule that allows this very command permits it)")
    if every or case.asked:
        return say("ask", case.reason if every else f"the rule {case.asked} asks")
    if case.allowed or case.level is RiskLevel.READS:
        return say("allow", f"the rule {case.allowed} allows it" if case.allowed else case.reason)
    harmless = rules.mode == "auto" and case.known
    if (harmless and sealed) or (rules.mode in {"edit", "auto"} and case.tests):
        return say("allow", f"{rules.mode} mode" + (": these are the tests" if case.tests else ""))
    return say("ask", f"{case.reason}, and {UNSEALED}" if harmless else case.reason)


def _paths_case(
    tool: str, access: ToolAccess, arguments: dict[str, object], rules: Rules, root: Path
) -> PolicyCase:
    """Tools that name files. Writing inside the repository is what edit mode allows; what runs is
    asked about.
    """
    reads = access.reads_files
    names = access.named(arguments)
    if access.patch:
        names += patched_paths(str(arguments.get(access.patch, "")))
    located = [locate(name, root) for name in names]
    found = [path for path in located if isinstance(path, Path)]
    target = f"{tool}({', '.join(quoted_path(str(path)) for path in found)})"
    reasons = [
        f"`{quoted_path(str(path))}`: {reason}"
        for path in found
        if (reason := _special(path, rules, root, reads))
    ]
    reasons += [
        f"the path cannot be used: {fault.text}"
        for fault in located
        if isinstance(fault, PathFault)
    ]
    calm = reads or (access.effect == "writes" and rules.mode in {"edit", "auto"})
    level = RiskLevel.EVERY if reasons else RiskLevel.READS if calm else RiskLevel.RUNS
    usual = f"it {access.effect} inside the repository"

    def first(given: tuple[str, ...], *, forbids: bool) -> str:
        quantify = any if forbids else all
        fits = partial(rule_matching.match_path, tool=tool, root=root, forbids=forbids)
        return next(
            (rule for rule in given if found and quantify(fits(rule, path=path) for path in found)),
            "",
        )

    denied, allowed = first(rules.deny, forbids=True), first(rules.allow, forbids=False)
    exact = (
        bool(allowed)
        and len(found) == len(names)
        and all(rule_matching.means_path_exactly(allowed, p, root) for p in found)
    )
    return PolicyCase(
        target=target,
        level=level,
        reason=reasons[0] if reasons else usual,
        reads=reads,
        known=access.effect != "runs",
        denied=_forbids(denied),
        asked=first(rules.ask, forbids=True),
        allowed=allowed,
        exact=exact,
    )


def _forbids(rule: str) -> str:
    return f"the rule {rule} forbids it" if rule else ""


def _special(path: Path, rules: Rules, root: Path, reads: bool) -> str:
    """As paths.special; what may be read beside the repository is judged as if it were one."""
    more = (*rules.folders, *(rules.readable if reads else ()))
    base = next((folder for folder in more if inside(path, folder)), root)
    return protected_reason(path, base, writes=not reads)


def _named_case(tool: str, name: str, reason: str, rules: Rules) -> PolicyCase:
    """A skill or a subagent, which the user has put there or trusted. `skill(NAME)` in a rule means
    this one.
    """

    def first(given: tuple[str, ...]) -> str:
        return next((rule for rule in given if rule_matching.match_command(rule, tool, name)), "")

    return PolicyCase(
        target=f"{tool}({quoted_path(name)})",
        level=RiskLevel.READS,
        reason=reason,
        reads=True,
        denied=_forbids(first(rules.deny)),
        asked=first(rules.ask),
        allowed=first(rules.allow),
    )


def _command_case(command: str, rules: Rules, root: Path) -> PolicyCase:
    """A command line: the worst of its simple commands decides, and a rule must allow each that
    runs something.
    """
    line = command.strip()
    tests = rules.test_command is not None and line.split() == rules.test_command.split()
    try:
        judged = classify(line, root, rules.folders)
    except Unreadable as error:
        judged, unread = [], str(error)
    else:
        unread = ""
    worst = max(judged, key=lambda one: one.finding.level, default=None)
    level = RiskLevel.EVERY if unread or worst is None else worst.finding.level
    reason = (
        f"policy cannot read it: {unread}"
        if unread
        else ("it is empty" if worst is None else f"`{_short(worst)}`: {worst.finding.reason}")
    )
    own = (rule for rule in rules.allow if rule_matching.split_pattern(rule)[0] == "bash")
    exact = next((rule for rule in own if rule_matching.means_exactly(rule, "bash", line)), "")
    denied, asked = (
        command_rules.forbidding_rule(given, line, judged, root, unread)
        for given in (rules.deny, rules.ask)
    )
    return PolicyCase(
        target=f"bash({line})",
        level=RiskLevel.RUNS if tests else level,
        reason=reason,
        tests=tests,
        denied=denied.forbids if denied is not None else "",
        asked=asked.rule if asked is not None else "",
        allowed=exact
        or command_rules.allowing_rule(
            rules.allow, judged, root, writes=rules.mode in {"edit", "auto"}
        ),
        exact=bool(exact),
    )


def _program_case(
    tool: str, access: ToolAccess, arguments: dict[str, object], rules: Rules, root: Path
) -> PolicyCase:
    """A command line of another tool than bash: judged as any other, and by rules that name the
    tool. A yes is one for this very line, and for the script that goes with it."""
    command = str(arguments.get(access.command, ""))
    name = str(arguments.get("file", "")) or "check.py"
    case = _command_case(re.sub(r"\$SCRIPT\b|\$\{SCRIPT\}", lambda _: name, command), rules, root)

    def first(given: tuple[str, ...]) -> str:
        return next(
            (
                rule
                for rule in given
                if rule_matching.covers_tool(rule_matching.split_pattern(rule)[0], tool)
            ),
            "",
        )

    return replace(
        case,
        target=f"{command.strip()}\n{arguments.get('script', '')}",
        level=max(case.level, RiskLevel.RUNS),
        tests=False,
        denied=case.denied or _forbids(first(rules.deny)),
        asked=case.asked or first(rules.ask),
        allowed=first(rules.allow) or case.allowed,
        exact=False,
    )


def _short(one: ClassifiedCommand) -> str:
    text = one.command.text or "the line"
    return text if len(text) <= 80 else text[:77] + "..."


def _fetch_case(url: str, rules: Rules) -> PolicyCase:
    """web_fetch: rules go by the host. It reads, so that plan mode has it; what no rule allows is
    asked about.
    """
    place = rule_matching.web_address(url)
    if isinstance(place, str):
        return PolicyCase(
            target=rule_matching.FETCH,
            level=RiskLevel.READS,
            reason=f"nothing will be fetched: {place}",
            reads=True,
        )

    def first(given: tuple[str, ...]) -> str:
        return next((rule for rule in given if rule_matching.matches_address(rule, place)), "")

    return PolicyCase(
        target=f"{rule_matching.FETCH}({place.shown})",
        level=RiskLevel.RUNS,
        reason="it sends the address to another machine, and what comes back is anybody's words",
        reads=True,
        known=False,
        denied=_forbids(first(rules.deny)),
        asked=first(rules.ask),
        allowed=first(rules.allow),
    )


def _other_case(tool: str, rules: Rules) -> PolicyCase:
    """run_tests, what the session keeps for its agents, and tools policy does not know (those of
    MCP servers).
    """
    tests, keeps = tool == "run_tests", tool in SESSION_TOOLS

    def first(given: tuple[str, ...], *, whole: bool = False) -> str:
        """`whole`: a pattern for arguments, which are not looked at here, must not allow all of
        them.
        """
        named = [(rule, *rule_matching.split_pattern(rule)) for rule in given]
        hits = (rule for rule, name, inner in named if not (whole and inner not in rule_matching.EVERYTHING | {tool})
                and rule_matching.covers_tool(name, tool))  # fmt: skip
        return next(hits, "")

    return PolicyCase(
        target=tool,
        level=RiskLevel.READS if keeps else RiskLevel.RUNS,
        reason=REASONS.get(tool, f"policy does not know what `{tool}` does"),
        reads=keeps or tool == rule_matching.SEARCH,
        tests=tests,
        known=tests or keeps,
        denied=_forbids(first(rules.deny)),
        asked=first(rules.ask),
        allowed=first(rules.allow, whole=True),
    )
