"""`fugu review`: one agent looks for what is wrong with a change, another judges each finding. It
changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    Review,
    ReviewFinding,
    review_object,
    review_sarif,
    review_text,
    worst_first,
)

UNFINISHED = 3


class _Report(BaseModel, extra="forbid"):
    findings: list[ReviewFinding]


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
    given: str
    answers: list[AgentAnswer[Any]] = field(default_factory=list)

    @property
    def dollars(self) -> float:
        return sum(answer.dollars for answer in self.answers)

    def ask(
        self, question: AgentQuestion[Answer], candidates: Sequence[Member]
    ) -> AgentAnswer[Answer]:
        """Return the answer of the first candidate that answers. Raises UnansweredError if none
        does.
        """
        for member in candidates:
            try:
                answer = asyncio.run(
                    agent_answer(self._affordable(), replace(question, agent=member.name))
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
        return [member for member in self.members if self.given in ("", member.name)]

    def verifiers(self, finder: str) -> Sequence[Member]:
        """Return the agents of other vendors, then others, then the finder itself."""
        vendor = next((member.vendor for member in self.members if member.name == finder), "")
        return sorted(
            self.members,
            key=lambda one: (one.name == finder, bool(vendor) and one.vendor in ("", vendor)),
        )


def review(flags: ReviewFlags) -> int:
    """Print the report. 0: nothing was found; 3: something was, or not everything was looked at."""
    loaded = current_config(settings_of(replace(flags, agent=None)))
    git = commits.git_in(current_path())
    change = _change(loaded, git, flags.base)
    if not change.diff:
        _print(Review((), 0, "", ""), flags.format)
        return 0
    check_answering(loaded)
    entries = [entry.member() for entry in usable_pool(loaded.config, os.environ)]
    members = [
        one for one in reversed(by_strength(entries)) if one.name not in loaded.config.opt_out
    ]
    pool = _Pool(loaded, members, flags.agent or "")
    if not pool.finders():
        raise UsageError(
            f"there is no agent {flags.agent!r} that may review",
            hint=f"there are {', '.join(m.name for m in members)}",
        )
    mask = wiring.build_workspace(loaded.config, loaded.root).mask
    made = _reviewed(pool, change, mask)
    _print(made, flags.format)
    return UNFINISHED if made.findings or made.unfinished else 0


def _change(loaded: LoadedConfig, git: UserGit, base: str | None) -> _Change:
    """Return the change from the base to the present files, new ones included. Raises UsageError
    for an unknown base.
    """
    before = commits.head_tree(git) if base is None else _merge_base(git, base)
    after = commits.working_tree(git)
    changed = commits.changed_blobs(git, before, after)
    hidden = hidden_paths(loaded, changed)
    contents = commits.read_blobs(git, [one.after for one in changed if one.after])
    diff = commits.readable_diff(git, before, after, hidden) + named_only(hidden)
    more = len(diff) - LONGEST_DATA
    unfinished = (
        f"the diff is too long, its last {more:,} characters were left out" if more > 0 else ""
    )
    shown = [one for one in changed if one.after and one.path not in hidden]
    lines = {one.path: contents.get(one.after, b"").count(b"\n") + 1 for one in shown}
    return _Change(diff if changed else "", unfinished, lines)


def _merge_base(git: UserGit, base: str) -> str:
    commit = git.read_line("rev-parse", "-q", "--verify", "--end-of-options", f"{base}^{{commit}}")
    if not commit:
        raise UsageError(
            f"there is no commit {base!r} here", hint="fetch it first, or name another with --base"
        )
    found = git.read_line("merge-base", commit, "HEAD")
    if not found:
        raise UsageError(
            f"{base} and HEAD have no commit in common here",
            hint="a shallow clone? fetch all of it",
        )
    return found


def _reviewed(pool: _Pool, change: _Change, mask: Callable[[str], str]) -> Review:
    say("looking for what is wrong with the change")
    found = pool.ask(
        AgentQuestion(prompts.load("review/find"), change.diff, _Report), pool.finders()
    )
    findings = [
        made
        for one in found.value.findings
        if (made := _finding(one, change.lines, mask)) is not None
    ]
    confirmed, verifier, unfinished = (
        _confirmed(pool, change, found, findings) if findings else ((), "", "")
    )
    unfinished = change.unfinished or unfinished
    confirmed = tuple(
        one.model_copy(update={"reason": mask(sanitize(one.reason))}) for one in confirmed
    )
    priced = {member.name for member in pool.members if member.price is not None}
    return Review(
        worst_first(confirmed),
        len(findings),
        found.agent,
        verifier,
        tuple(answer.session.stem for answer in pool.answers),
        pool.dollars,
        any(answer.agent not in priced for answer in pool.answers),
        unfinished,
        any(answer.is_estimated for answer in pool.answers),
    )


def _confirmed(
    pool: _Pool, change: _Change, found: AgentAnswer[_Report], findings: Sequence[ReviewFinding]
) -> tuple[tuple[ReviewFinding, ...], str, str]:
    """Return the findings that another agent confirms, that agent, and a note about findings that
    were not judged.
    """
    count, judges = plural(len(findings), "finding"), pool.verifiers(found.agent)
    say(
        f"{found.agent} reports {count}, which {'another agent' if judges[1:] else 'it'} judges now"
    )
    told = "\n\n".join(
        f"{number}. {_told(finding)}" for number, finding in enumerate(findings, start=1)
    )
    asked = AgentQuestion(prompts.load("review/verify"), f"{told}\n\n{change.diff}", _Verdicts)
    try:
        judged = pool.ask(asked, judges)
    except UnansweredError as error:
        return (
            (),
            "",
            f"nobody judged {count}, which `fugu trace {found.session.stem}` shows: {error}",
        )
    verdicts = {one.number: one for one in judged.value.verdicts}
    known = [number for number in range(1, len(findings) + 1) if number in verdicts]
    left = f"{judged.agent} judged {len(known)} of {count}" if len(known) < len(findings) else ""
    confirmed = [number for number in known if verdicts[number].confirmed]
    return (
        tuple(
            findings[number - 1].model_copy(update={"reason": verdicts[number].reason})
            for number in confirmed
        ),
        judged.agent,
        left,
    )


def _finding(
    said: ReviewFinding, lines: Mapping[str, int], mask: Callable[[str], str]
) -> ReviewFinding | None:
    """Return a finding with valid lines, None if it is outside the change."""
    file = said.file.removeprefix("./").removeprefix("b/")
    if file not in lines:
        return None
    first = min(max(said.line, 1), lines[file])
    last = min(max(said.end_line, first), lines[file])
    title, text = (mask(sanitize(text)) for text in (said.title, said.explanation))
    told = {"file": file, "line": first, "end_line": last, "title": title, "explanation": text}
    return said.model_copy(update=told)


def _told(finding: ReviewFinding) -> str:
    place = f"{finding.file}, line {finding.line}" + (
        f" to {finding.end_line}" if finding.end_line > finding.line else ""
    )
    return (
        f"{place} ({finding.category}, {finding.severity}): {finding.title}\n{finding.explanation}"
    )


def _print(made: Review, shape: str) -> None:
    if shape == "text":
        print(review_text(made))
    else:
        print(json.dumps(review_object(made) if shape == "json" else review_sarif(made), indent=2))
