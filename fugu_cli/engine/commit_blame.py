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
    sessions: Sequence[NamedSession],
) -> CommitBlame:
    """Return the authors of the lines that these changes add, according to the sessions of this
    repository.
    """
    edits = blame.edits_of_sessions(sessions)
    files: dict[str, tuple[BlameLine, ...]] = {}
    for change in changed:
        data = contents.get(change.after, b"")
        before_is_unknown = change.before and change.before not in contents
        if not edits or not change.after or before_is_unknown or b"\0" in data:
            continue
        name = paths.quoted_path(change.path)
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
    turns = [cost for session in sessions for cost in turn_costs(*session)]
    models = {}
    for session, records in sessions:
        for agent, member in SessionState.of_records(records).pool.items():
            models[session, agent] = member
    return CommitBlame(files, blame.turn_shares(turns, lines, only_writers=True), models)


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
        "metadata": {"fugu": {"turns": {_turn_urn(cost): _turn_object(cost) for cost in turns}}},
    }
    return json.dumps(record)


def _conversations(
    lines: Sequence[BlameLine], models: Mapping[tuple[str, str], Member]
) -> list[dict[str, object]]:
    """Return a conversation for each turn, with the ranges of lines that it wrote. The `lines` are
    in order.
    """
    conversations: dict[str, dict[str, Any]] = {}
    last_author, last_number = None, 0
    for line in lines:
        author = line.author
        if author is None:
            last_author = None
            continue
        url = _turn_urn(author)
        if url not in conversations:
            contributor = _contributor(author, models.get((author.session, author.agent)))
            conversations[url] = {"url": url, "contributor": contributor, "ranges": []}
        ranges = conversations[url]["ranges"]
        if author == last_author and line.number == last_number + 1:
            ranges[-1]["end_line"] = line.number
        else:
            ranges.append({"start_line": line.number, "end_line": line.number})
        last_author, last_number = author, line.number
    return list(conversations.values())


def _contributor(author: LineAuthor, member: Member | None) -> dict[str, str]:
    """Return the contributor object of an agent, with its model if that is known."""
    model = author.model or (member.model if member is not None else "")
    if not model:
        return {"type": "ai"}
    vendor = (member.vendor or member.provider) if member is not None else ""
    return {"type": "ai", "model_id": f"{vendor}/{model}".strip("/")[:250]}


def _turn_urn(turn: LineAuthor | TurnCost) -> str:
    """Return the URI of a session's turn. It only identifies the turn, and cannot be opened."""
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
    """The lines `start` to `end` of a file, and the conversation that wrote them."""

    start: int
    end: int
    conversation: _NotedConversation


class AgentTrace(BaseModel):
    """A record from a note, by fugu or another tool, with the fields that fugu reads."""

    files: list[_NotedFile] = []
    metadata: _NotedMetadata = _NotedMetadata()

    def spans(self, path: str) -> list[_Span]:
        """Return the ranges of a file that an agent wrote, in order."""
        spans = []
        for file in self.files:
            if file.path != path:
                continue
            for conversation in file.conversations:
                if conversation.contributor.type == "human":
                    continue
                for part in conversation.ranges:
                    spans.append(_Span(part.start_line, part.end_line, conversation))
        return sorted(spans, key=lambda span: span.start)

    def author_and_cost(
        self, commit: str, conversation: _NotedConversation
    ) -> tuple[LineAuthor, TurnCost]:
        """Return the author of a conversation's lines, and the cost of its turn."""
        model = _clean(conversation.contributor.model_id)
        turn = self.metadata.fugu.turns.get(conversation.url) or _NotedTurn(agent=model or "ai")
        session = _clean(turn.session) or f"commit {commit[:12]}"
        agent = _clean(turn.agent) or "ai"
        author = LineAuthor(session, turn.request, turn.turn, agent, turn.role, model, turn.at)
        cost = TurnCost(
            session,
            turn.request,
            turn.turn,
            agent,
            turn.role,
            turn.at,
            (model,) if model else (),
            calls=turn.calls,
            usage=Usage(input=turn.input, output=turn.output),
            dollars=turn.cost_usd,
        )
        return author, cost


def _clean(name: str) -> str:
    """Return a name for a table: short, on one line, and without terminal escapes."""
    printable = "".join(letter for letter in name[:400] if letter.isprintable())
    return " ".join(printable.split())[:80]


async def add_noted_authors(workspace: Workspace, file: FileBlame) -> FileBlame:
    """Return the blame with authors from the notes of commits, for lines whose author the sessions
    here do not know.
    """
    repository = find_repository(workspace.root)
    if repository is None or all(line.author is not None for line in file.lines):
        return file
    git = user_git(repository, repository.top)
    listed = (await git.try_run("notes", f"--ref={NOTES_REF}", "list")).out.decode().split()
    notes = dict(zip(listed[1::2], listed[::2], strict=False))
    origins = await _line_origins(git, file.path) if notes else {}
    traces: dict[str, AgentTrace] = {}
    spans: dict[tuple[str, str], list[_Span]] = {}
    lines: list[BlameLine] = []
    costs = [share.cost for share in file.turns]
    noted = 0
    for line in file.lines:
        commit, path, number = origins.get(line.number, ("", "", 0))
        if line.author is not None or commit not in notes:
            lines.append(line)
            continue
        if commit not in traces:
            traces[commit] = await _read_trace(git, notes[commit])
        if (commit, path) not in spans:
            spans[commit, path] = traces[commit].spans(path)
        conversation = _conversation_of_line(spans[commit, path], number)
        if conversation is None:
            lines.append(line)
            continue
        author, cost = traces[commit].author_and_cost(commit, conversation)
        lines.append(replace(line, author=author))
        costs.append(cost)
        noted += 1
    by_turn: dict[tuple[object, ...], TurnCost] = {}
    for cost in costs:  # of two equal turns the first counts, which a session here knows
        by_turn.setdefault((*cost.turn_key, cost.agent), cost)
    shares = blame.turn_shares(by_turn.values(), lines, only_writers=True)
    return replace(file, lines=tuple(lines), turns=shares, noted=noted)


def _conversation_of_line(spans: Sequence[_Span], line: int) -> _NotedConversation | None:
    """Return the conversation that wrote a line, None if none did. `spans` are in order."""
    index = bisect_right(spans, line, key=lambda span: span.start) - 1
    if index < 0 or spans[index].end < line:
        return None
    return spans[index].conversation


async def _line_origins(git: Git, path: str) -> dict[int, tuple[str, str, int]]:
    """Return the origin of each line of the present file, by its number from 1: the commit, and
    the path and line number there. git gives uncommitted lines a commit of zeros.
    """
    options = await asyncio.to_thread(repository_programs_off, git.tree, git.environment())
    result = await git.try_run(
        *options, "blame", "--no-textconv", "--line-porcelain", "--", paths.unquoted_path(path)
    )
    origins: dict[int, tuple[str, str, int]] = {}
    header: list[str] = []
    """Commit, line number there, and present line number."""
    name = ""
    for line in result.out.decode("utf-8", "surrogateescape").split("\n"):
        if line.startswith("\t"):
            origins[int(header[2])] = (header[0], name, int(header[1]))
            header = []
        elif not header:
            header = line.split(" ")
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
