"""`fugu review`: one agent looks for what is wrong with a change, another judges each finding. It
changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fugu_cli import prompts, wiring
from fugu_cli.cli.agent_answers import (
    LONGEST_DATA,
    AgentAnswer,
    AgentQuestion,
    Answer,
    UnansweredError,
    agent_answer,
    check_answering,
)
from fugu_cli.cli.command_flags import ReviewFlags
from fugu_cli.cli.current_folder import current_config, current_path, say
from fugu_cli.cli.flags import settings_of
from fugu_cli.cli.git import hidden_paths, named_only
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.coordinators.action_space import by_strength
from fugu_cli.errors import UsageError
from fugu_cli.formatting import plural, sanitize
from fugu_cli.session.events import Member
from fugu_cli.tools import commits
from fugu_cli.tools.commits import UserGit
from fugu_cli.ui.review_report import (
    ReportedFinding,
    Review,
    ReviewFinding,
    review_object,
    review_sarif,
    review_text,
    worst_first,
)

UNFINISHED = 3


class _Report(BaseModel, extra="forbid"):
    findings: list[ReportedFinding]


class _Verdict(BaseModel, extra="forbid"):
    number: int
    confirmed: bool
    reason: str


class _Verdicts(BaseModel, extra="forbid"):
    verdicts: list[_Verdict]


@dataclass(frozen=True)
class _Change:
    """The reviewed diff, a note if it is incomplete, and the number of lines of every file after
    it.
    """

    diff: str
    unfinished: str
    lines: Mapping[str, int]


@dataclass
class _Pool:
    """The agents that may answer, the strongest first, and their answers so far."""

    loaded: LoadedConfig
    members: Sequence[Member]
    agent: str
    answers: list[AgentAnswer[Any]] = field(default_factory=list)

    @property
    def dollars(self) -> float:
        return sum(answer.dollars for answer in self.answers)

    async def ask(
        self, question: AgentQuestion[Answer], candidates: Sequence[Member]
    ) -> AgentAnswer[Answer]:
        """Return the answer of the first candidate that answers. Raises UnansweredError if none
        does.
        """
        for member in candidates:
            try:
                answer = await agent_answer(
                    self._affordable(), replace(question, agent=member.name)
                )
            except UnansweredError as error:
                if member is candidates[-1] or not error.for_another:
                    raise
                say(str(error))
                continue
            self.answers.append(answer)
            return answer
        raise UnansweredError("no agent is left to review", hint="`fugu pool` shows who is there")

    def _affordable(self) -> LoadedConfig:
        """Return the configuration with the request's budget reduced by the money spent."""
        money = self.loaded.config.money
        if money.request is None:
            return self.loaded
        left = money.model_copy(update={"request": max(money.request - self.dollars, 1e-9)})
        return replace(
            self.loaded, config=self.loaded.config.model_copy(update={"max_budget_usd": left})
        )

    def finders(self) -> Sequence[Member]:
        return [member for member in self.members if self.agent in ("", member.name)]

    def verifiers(self, finder: str) -> Sequence[Member]:
        """Return the agents of other vendors, then others, then the finder itself."""
        vendor = next((member.vendor for member in self.members if member.name == finder), "")

        def rank(member: Member) -> tuple[bool, bool]:
            return member.name == finder, bool(vendor) and member.vendor in ("", vendor)

        return sorted(self.members, key=rank)


def review(flags: ReviewFlags) -> int:
    """Print the report. 0: nothing was found; 3: something was, or not everything was looked at."""
    loaded = current_config(settings_of(replace(flags, agent=None)))
    result = asyncio.run(review_change(loaded, current_path(), flags.base, flags.agent or ""))
    if flags.format == "text":
        print(review_text(result))
    else:
        report = review_object(result) if flags.format == "json" else review_sarif(result)
        print(json.dumps(report, indent=2))
    return UNFINISHED if result.findings or result.unfinished else 0


async def review_change(
    loaded: LoadedConfig, folder: Path, base: str | None, agent: str = ""
) -> Review:
    """Return the review of the change from `base`, by default from the last commit, to the present
    files. `agent` alone looks for faults; "": the strongest. Raises FuguError.
    """
    change = await asyncio.to_thread(lambda: _find_change(loaded, commits.git_in(folder), base))
    if not change.diff:
        return Review((), 0, "", "")
    await asyncio.to_thread(check_answering, loaded)
    entries = [entry.member() for entry in usable_pool(loaded.config, os.environ)]
    members = [
        member
        for member in reversed(by_strength(entries))
        if member.name not in loaded.config.opt_out
    ]
    pool = _Pool(loaded, members, agent)
    if not pool.finders():
        raise UsageError(
            f"there is no agent {agent!r} that may review",
            hint=f"there are {', '.join(member.name for member in members)}",
        )
    mask = wiring.build_workspace(loaded.config, loaded.root).mask
    return await _run_review(pool, change, mask)


def _find_change(loaded: LoadedConfig, git: UserGit, base: str | None) -> _Change:
    """Return the change from the base to the present files, new ones included. Raises UsageError
    for an unknown base.
    """
    before = commits.head_tree(git) if base is None else _merge_base(git, base)
    after = commits.working_tree(git)
    changed = commits.changed_blobs(git, before, after)
    hidden = hidden_paths(loaded, changed)
    contents = commits.read_blobs(git, [change.after for change in changed if change.after])
    diff = commits.readable_diff(git, before, after, hidden) + named_only(hidden)
    more = len(diff) - LONGEST_DATA
    unfinished = (
        f"the diff is too long, its last {more:,} characters were left out" if more > 0 else ""
    )
    shown = [change for change in changed if change.after and change.path not in hidden]
    lines = {change.path: contents.get(change.after, b"").count(b"\n") + 1 for change in shown}
    return _Change(diff if changed else "", unfinished, lines)


def _merge_base(git: UserGit, base: str) -> str:
    commit = git.read_line("rev-parse", "-q", "--verify", "--end-of-options", f"{base}^{{commit}}")
    if not commit:
        raise UsageError(
            f"there is no commit {base!r} here", hint="fetch it first, or name another with --base"
        )
    ancestor = git.read_line("merge-base", commit, "HEAD")
    if not ancestor:
        raise UsageError(
            f"{base} and HEAD have no commit in common here",
            hint="a shallow clone? fetch all of it",
        )
    return ancestor


async def _run_review(pool: _Pool, change: _Change, mask: Callable[[str], str]) -> Review:
    say("looking for what is wrong with the change")
    question = AgentQuestion(prompts.load("review/find"), change.diff, _Report)
    report = await pool.ask(question, pool.finders())
    findings = []
    for reported in report.value.findings:
        finding = _fit_to_change(reported, change.lines, mask)
        if finding is not None:
            findings.append(finding)
    confirmed: tuple[ReviewFinding, ...] = ()
    verifier, unfinished = "", ""
    if findings:
        confirmed, verifier, unfinished = await _confirm_findings(pool, change, report, findings)
    confirmed = tuple(
        finding.model_copy(update={"reason": mask(sanitize(finding.reason))})
        for finding in confirmed
    )
    priced = {member.name for member in pool.members if member.price is not None}
    return Review(
        worst_first(confirmed),
        len(findings),
        report.agent,
        verifier,
        tuple(answer.session.stem for answer in pool.answers),
        pool.dollars,
        any(answer.agent not in priced for answer in pool.answers),
        change.unfinished or unfinished,
        any(answer.is_estimated for answer in pool.answers),
    )


async def _confirm_findings(
    pool: _Pool, change: _Change, report: AgentAnswer[_Report], findings: Sequence[ReviewFinding]
) -> tuple[tuple[ReviewFinding, ...], str, str]:
    """Return the findings that another agent confirms, that agent, and a note about findings that
    were not judged.
    """
    count = plural(len(findings), "finding")
    judges = pool.verifiers(report.agent)
    judge = "another agent" if judges[1:] else "it"
    say(f"{report.agent} reports {count}, which {judge} judges now")
    listing = "\n\n".join(
        f"{number}. {_describe(finding)}" for number, finding in enumerate(findings, start=1)
    )
    prompt = prompts.load("review/verify")
    question = AgentQuestion(prompt, f"{listing}\n\n{change.diff}", _Verdicts)
    try:
        answer = await pool.ask(question, judges)
    except UnansweredError as error:
        note = f"nobody judged {count}, which `fugu trace {report.session.stem}` shows: {error}"
        return (), "", note
    verdicts = {verdict.number: verdict for verdict in answer.value.verdicts}
    judged = 0
    confirmed = []
    for number, finding in enumerate(findings, start=1):
        verdict = verdicts.get(number)
        if verdict is None:
            continue
        judged += 1
        if verdict.confirmed:
            confirmed.append(finding.model_copy(update={"reason": verdict.reason}))
    note = f"{answer.agent} judged {judged} of {count}" if judged < len(findings) else ""
    return tuple(confirmed), answer.agent, note


def _fit_to_change(
    reported: ReportedFinding, lines: Mapping[str, int], mask: Callable[[str], str]
) -> ReviewFinding | None:
    """Return a finding with valid lines, None if it is outside the change."""
    file = reported.file.removeprefix("./").removeprefix("b/")
    if file not in lines:
        return None
    first = min(max(reported.line, 1), lines[file])
    return ReviewFinding(
        file=file,
        line=first,
        end_line=min(max(reported.end_line, first), lines[file]),
        severity=reported.severity,
        category=reported.category,
        title=mask(sanitize(reported.title)),
        explanation=mask(sanitize(reported.explanation)),
    )


def _describe(finding: ReviewFinding) -> str:
    location = f"{finding.file}, line {finding.line}"
    if finding.end_line > finding.line:
        location += f" to {finding.end_line}"
    return (
        f"{location} ({finding.category}, {finding.severity}): {finding.title}\n"
        f"{finding.explanation}"
    )
