"""Finds the authors of a commit's lines, and stores them as an Agent Trace record in a git note.

The record follows https://agent-trace.dev, version 0.1.0; fugu's additions stand under
`metadata.fugu`. Anybody who may push can write a note, so it is parsed, its names are cut and
cleaned, and nothing of it is run.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from fugu_cli import __version__
from fugu_cli.engine import blame
from fugu_cli.engine.blame import BlameLine, FileBlame, LineAuthor, NamedSession, TurnShare
from fugu_cli.messages import Usage
from fugu_cli.safety import paths
from fugu_cli.safety.git_process import repository_programs_off
from fugu_cli.session.costs import TurnCost, turn_costs
from fugu_cli.session.events import Member, Role
from fugu_cli.session.state import SessionState
from fugu_cli.snapshots.git_repositories import Git, find_repository, user_git
from fugu_cli.tools.commits import NOTES_REF, BlobChange
from fugu_cli.tools.workspace import Workspace

TRACE_VERSION = "0.1.0"
LONGEST_NOTE = 4 << 20
"""Bytes of a note that is read."""


@dataclass(frozen=True)
class CommitBlame:
    """The lines of a commit that agents wrote, by file, and the turns that wrote them. Line numbers
    are those after the commit.
    """

    files: Mapping[str, tuple[BlameLine, ...]]
    turns: tuple[TurnShare, ...]
    models: Mapping[tuple[str, str], Member]
    """Agents as their sessions knew them, by session and name."""


async def blame_commit(
    workspace: Workspace,
    changed: Sequence[BlobChange],
    contents: Mapping[str, bytes],
    every: Sequence[NamedSession],
) -> CommitBlame:
    """Return the authors of the lines that these changes add, according to the sessions of this
    repository.
    """
    edits = blame.merged_edits(
        edit for session in every for edit in blame.attributed_edits(*session)
    )
    files: dict[str, tuple[BlameLine, ...]] = {}
    for change in changed if edits else ():
        name, data = paths.quoted_path(change.path), contents.get(change.after, b"")
        before_is_unknown = change.before and change.before not in contents
        if not change.after or before_is_unknown or b"\0" in data:
            continue
        content, _ = await blame.blame_content(workspace, name, data, edits)
        old = blame.lines_of(contents.get(change.before, b""))
        added: list[BlameLine] = []
        for tag, _, _, start, end in blame.matcher(old, content.lines).get_opcodes():
            if tag in ("insert", "replace"):
                added += [
                    BlameLine("added", index + 1, content.lines[index], content.authors[index])
                    for index in range(start, end)
                ]
        if any(line.author is not None for line in added):
            files[change.path] = tuple(added)
    lines = [line for added_lines in files.values() for line in added_lines]
    turns = [cost for session in every for cost in turn_costs(*session)]
    models = {
        (name, agent): member
        for name, records in every
        for agent, member in SessionState.of_records(records).pool.items()
    }
    return CommitBlame(files, blame.turn_shares(turns, lines, writing=True), models)


def agent_totals(turns: Sequence[TurnShare]) -> dict[str, tuple[int, float]]:
    """Return lines and dollars by agent. A turn's dollars are the whole turn's."""
    totals: dict[str, tuple[int, float]] = {}
    for share in turns:
        lines, dollars = totals.get(share.cost.agent, (0, 0.0))
        totals[share.cost.agent] = (lines + share.lines, dollars + share.cost.dollars)
    return totals


def record_text(blamed: CommitBlame, commit: str) -> str:
    """Return the Agent Trace record of a commit, in one line of JSON: the author of each line."""
    turns = [share.cost for share in blamed.turns]
    record = {
        "version": TRACE_VERSION,
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"fugu:commit:{commit}")),
        "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "vcs": {"type": "git", "revision": commit},
        "tool": {"name": "fugu", "version": __version__},
        "files": [
            {"path": paths.quoted_path(path), "conversations": _conversations(lines, blamed.models)}
            for path, lines in blamed.files.items()
        ],
        "metadata": {"fugu": {"turns": {_address(cost): _turn_object(cost) for cost in turns}}},
    }
    return json.dumps(record)


def _conversations(
    lines: Sequence[BlameLine], models: Mapping[tuple[str, str], Member]
) -> list[dict[str, object]]:
    """Return a conversation for each turn, with the ranges of lines that it wrote."""
    conversations: dict[str, dict[str, Any]] = {}
    for author, run in groupby(
        enumerate(lines),
        key=lambda numbered: (numbered[1].author, numbered[1].number - numbered[0]),
    ):
        if (writer := author[0]) is None:
            continue
        member = models.get((writer.session, writer.agent))
        model = writer.model or (member.model if member else "")
        vendor = (member.vendor or member.provider) if member else ""
        named = {"model_id": f"{vendor}/{model}".strip("/")[:250]} if model else {}
        conversation = conversations.setdefault(
            _address(writer),
            {"url": _address(writer), "contributor": {"type": "ai", **named}, "ranges": []},
        )
        numbers = [line.number for _, line in run]
        conversation["ranges"].append({"start_line": numbers[0], "end_line": numbers[-1]})
    return list(conversations.values())


def _address(turn: LineAuthor | TurnCost) -> str:
    """Return a turn of a session as a URI; it leads nowhere, for sessions stay on their machine."""
    return f"urn:fugu:{turn.session}:{turn.request}.{turn.turn}:{turn.agent}"


def _turn_object(cost: TurnCost) -> dict[str, object]:
    return {
        "session": cost.session,
        "request": cost.request,
        "turn": cost.turn,
        "agent": cost.agent,
        "role": cost.role or "worker",
        "at": cost.at,
        "calls": cost.calls,
        "input": cost.usage.input,
        "output": cost.usage.output,
        "cost_usd": round(cost.dollars, 8),
    }


class _NotedTurn(BaseModel):
    session: str = ""
    request: int = 0
    turn: int = 0
    agent: str
    role: Role = "worker"
    at: float = 0.0
    calls: int = 0
    input: int = Field(default=0, ge=0)
    output: int = Field(default=0, ge=0)
    cost_usd: float = Field(default=0.0, ge=0, le=1e9, allow_inf_nan=False)


class _NotedRange(BaseModel):
    start_line: int
    end_line: int


class _NotedContributor(BaseModel):
    type: str = "unknown"
    model_id: str = ""


class _NotedConversation(BaseModel):
    url: str = ""
    contributor: _NotedContributor = _NotedContributor()
    ranges: list[_NotedRange] = []


class _NotedFile(BaseModel):
    path: str
    conversations: list[_NotedConversation] = []


class _NotedOwn(BaseModel):
    turns: dict[str, _NotedTurn] = {}


class _NotedMetadata(BaseModel):
    fugu: _NotedOwn = _NotedOwn()


class _Span(NamedTuple):
    """Lines `start` to `end` of a file, which that conversation wrote."""

    start: int
    end: int
    spoken: _NotedConversation


class AgentTrace(BaseModel):
    """The fields that are read of a record, fugu's or another tool's."""

    files: list[_NotedFile] = []
    metadata: _NotedMetadata = _NotedMetadata()

    def spans(self, path: str) -> list[_Span]:
        """Return the ranges of a file that an agent wrote, in order."""
        spoken = [
            conversation
            for file in self.files
            if file.path == path
            for conversation in file.conversations
        ]
        agents = [
            conversation for conversation in spoken if conversation.contributor.type != "human"
        ]
        spans = [
            _Span(run.start_line, run.end_line, conversation)
            for conversation in agents
            for run in conversation.ranges
        ]
        return sorted(spans, key=lambda span: span.start)

    def writer(self, commit: str, spoken: _NotedConversation) -> tuple[LineAuthor, TurnCost]:
        """Return the author and the turn's cost."""
        model = _clean(spoken.contributor.model_id)
        turn = self.metadata.fugu.turns.get(spoken.url) or _NotedTurn(agent=model or "ai")
        session, agent = _clean(turn.session) or f"commit {commit[:12]}", _clean(turn.agent) or "ai"
        author = LineAuthor(session, turn.request, turn.turn, agent, turn.role, model, turn.at)
        used = Usage(input=turn.input, output=turn.output)
        cost = TurnCost(
            session, turn.request, turn.turn, agent, turn.role, turn.at, (model,) if model else ()
        )
        return author, replace(cost, calls=turn.calls, usage=used, dollars=turn.cost_usd)


def _clean(name: str) -> str:
    """Return a name for a table: short, on one line, and without terminal escapes."""
    return " ".join("".join(letter for letter in name[:400] if letter.isprintable()).split())[:80]


async def add_noted_authors(workspace: Workspace, made: FileBlame) -> FileBlame:
    """Return the file with authors from the notes of commits, for lines whose author the sessions
    here do not know.
    """
    repository = find_repository(workspace.root)
    if repository is None or all(line.author is not None for line in made.lines):
        return made
    git = user_git(repository, repository.top)
    listed = (await git.try_run("notes", f"--ref={NOTES_REF}", "list")).out.decode().split()
    notes = dict(zip(listed[1::2], listed[::2], strict=False))
    origins = await _line_origins(git, made.path) if notes else {}
    traces: dict[str, AgentTrace] = {}
    spans: dict[tuple[str, str], list[_Span]] = {}
    lines: list[BlameLine] = []
    costs = [share.cost for share in made.turns]
    noted = 0
    for line in made.lines:
        commit, path, number = origins.get(line.number, ("", "", 0))
        if line.author is not None or commit not in notes:
            lines.append(line)
            continue
        if commit not in traces:
            traces[commit] = await _read_trace(git, notes[commit])
        if (commit, path) not in spans:
            spans[commit, path] = traces[commit].spans(path)
        conversation = _spoken_at(spans[commit, path], number)
        if conversation is None:
            lines.append(line)
            continue
        author, cost = traces[commit].writer(commit, conversation)
        lines.append(replace(line, author=author))
        costs.append(cost)
        noted += 1
    by_turn: dict[tuple[object, ...], TurnCost] = {}
    for cost in costs:  # those that the sessions here know come first
        by_turn.setdefault((*cost.place, cost.agent), cost)
    shares = blame.turn_shares(by_turn.values(), lines, writing=True)
    return replace(made, lines=tuple(lines), turns=shares, noted=noted)


def _spoken_at(spans: Sequence[_Span], line: int) -> _NotedConversation | None:
    before = bisect_right(spans, line, key=lambda span: span.start)
    return spans[before - 1].spoken if before and spans[before - 1].end >= line else None


async def _line_origins(git: Git, path: str) -> dict[int, tuple[str, str, int]]:
    """Return, for each line of the present file from 1: its commit, and the file's name and the
    line's number there. A line that is not committed has no commit.
    """
    options = await asyncio.to_thread(repository_programs_off, git.tree, git.environment())
    done = await git.try_run(
        *options, "blame", "--no-textconv", "--line-porcelain", "--", paths.unquoted_path(path)
    )
    origins: dict[int, tuple[str, str, int]] = {}
    head: list[str] = []
    name = ""
    for line in done.out.decode("utf-8", "surrogateescape").split("\n"):
        if line.startswith("\t"):
            origins[int(head[2])] = (head[0], name, int(head[1]))
            head = []
        elif not head:
            head = line.split(" ")
        elif line.startswith("filename "):
            name = paths.quoted_path(paths.unquoted_path(line.removeprefix("filename ")))
    return origins


async def _read_trace(git: Git, note: str) -> AgentTrace:
    """Return the record in a note; an empty record if the note holds something else."""
    size = (await git.try_run("cat-file", "-s", note)).out
    if not size.strip().isdigit() or int(size) > LONGEST_NOTE:
        return AgentTrace()
    try:
        return AgentTrace.model_validate_json((await git.try_run("cat-file", "blob", note)).out)
    except ValidationError:
        return AgentTrace()
