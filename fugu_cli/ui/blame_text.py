"""`fugu blame` for people and programs: lines with who wrote them, then the turns and their cost.
Pure.

Each line begins with its turn's number in the list underneath, the agent and the role; `-` is
nobody fugu knows of: the user, or whoever wrote it before. What a turn cost is the whole turn's; a
line's share is that over its lines here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from rich.text import Text

from fugu_cli.app.patches import LONGEST_LINE
from fugu_cli.engine.blame import (
    BlameLine,
    FileBlame,
    FileDiff,
    LineAuthor,
    SessionBlame,
    TurnShare,
)
from fugu_cli.formatting import aligned_rows, compact_number, money, plural, sanitize
from fugu_cli.messages import Usage
from fugu_cli.tools.commits import NOTES_REF
from fugu_cli.tools.result import truncate_line

Mask = Callable[[str], str]
COLOURS = ("cyan", "green", "magenta", "yellow", "blue")
NOBODY = "-"
MARKS = {"same": " ", "added": "+", "removed": "-"}
SHARES = "cost is the whole turn's, whatever else it did; share is that divided by its lines here"


@dataclass(frozen=True)
class _Gutter:
    """The columns before each line of a blame: numbers, agents and colours of turns."""

    turns: tuple[TurnShare, ...]
    mask: Mask

    def text(self, author: LineAuthor | None) -> Text:
        names = [
            (share.cost.agent, share.cost.role or "") for share in self.turns if share.lines
        ] or [("", "")]
        agent, role = (max(len(name[i]) for name in names) for i in (0, 1))
        if author is None:
            return Text(f"{NOBODY:>3} {'':<{agent}} {'':<{role}} ", "dim")
        keys = [(*share.cost.turn_key, share.cost.agent) for share in _writing(self.turns)]
        number = keys.index((*author.turn_key, author.agent)) + 1
        style = COLOURS[self._agents().index(author.agent) % len(COLOURS)]
        return Text(f"{number:>3} {author.agent:<{agent}} {author.role:<{role}} ", style)

    def _agents(self) -> list[str]:
        return list(dict.fromkeys(share.cost.agent for share in self.turns))

    def line_text(self, text: bytes) -> str:
        line = sanitize(self.mask(_decoded(text))).rstrip("\n")
        return truncate_line(line, LONGEST_LINE)


def file_blame_lines(blame: FileBlame, mask: Mask) -> list[Text]:
    """Return the lines of a file with their authors, then how much each author wrote."""
    gutter = _Gutter(blame.turns, mask)
    width = len(str(len(blame.lines)))
    lines = [
        Text.assemble(
            gutter.text(line.author), f"{line.number:>{width}}  ", gutter.line_text(line.text)
        )
        for line in blame.lines
    ]
    lines += [Text("")] if lines else []
    lines += _turns(_writing(blame.turns))
    lines += _agents(
        blame.turns, sum(line.author is None for line in blame.lines), len(blame.lines)
    )
    if not blame.turns:
        lines.append(Text("no change that fugu recorded wrote a line of it", "dim"))
    if blame.noted:
        subject = plural(blame.noted, "line is", "lines are")
        lines.append(
            Text(
                f"the writers of {subject} told by git notes ({NOTES_REF}), which others may have "
                f"written",
                "dim",
            )
        )
    return [*lines, *_notes(blame.lost, bool(blame.turns))]


def session_blame_lines(blame: SessionBlame, mask: Mask) -> list[Text]:
    """Return the session's diff with the author of each line, then the turns and the agents."""
    gutter = _Gutter(blame.turns, mask)
    lines = [Text(f"session {blame.session}", "bold"), Text("")]
    for file in blame.files:
        lines += _file(file, gutter)
    if not blame.files:
        lines += [Text("nothing that it changed stands"), Text("")]
    writing = _writing(blame.turns)
    lines += _turns([*writing, *(share for share in blame.turns if share not in writing)])
    added = _added_lines(blame)
    lines += _agents(blame.turns, sum(line.author is None for line in added), len(added))
    return [*lines, *_notes(any(file.lost for file in blame.files), bool(blame.turns))]


def _added_lines(blame: SessionBlame) -> list[BlameLine]:
    lines: list[BlameLine] = []
    for file in blame.files:
        lines += [line for line in chain(*file.hunks) if line.kind == "added"]
    return lines


def _file(file: FileDiff, gutter: _Gutter) -> list[Text]:
    name = file.path if file.path == file.was else f"{file.was} -> {file.path}"
    name = sanitize(name)
    later = "  (changed since; this is how the session left it)" if file.later else ""
    if file.binary:
        author = gutter.text(_author_of_binary(file))
        return [Text.assemble(author, (f"{name}  binary{later}", "bold")), Text("")]
    sizes = Counter(line.kind for line in chain(*file.hunks))
    lines = [Text(f"{name}  +{sizes['added']} -{sizes['removed']}{later}", "bold")]
    for hunk in file.hunks:
        lines += [
            Text(f"@@ line {hunk[0].number}", "cyan"),
            *(_diff_line(line, gutter) for line in hunk),
        ]
    return [*lines, Text("")]


def _diff_line(line: BlameLine, gutter: _Gutter) -> Text:
    blank = " " * len(gutter.text(None))
    before = gutter.text(line.author) if line.kind == "added" else Text(blank)
    style = {"added": "green", "removed": "red", "same": ""}[line.kind]
    return Text.assemble(before, (f"{MARKS[line.kind]}{gutter.line_text(line.text)}", style))


def _writing(turns: Sequence[TurnShare]) -> list[TurnShare]:
    return [share for share in turns if share.lines]


def _turns(shares: Sequence[TurnShare]) -> list[Text]:
    """Return a line for each turn. Turns that wrote lines shown above have the number used there."""
    header = [
        "",
        "turn",
        "agent",
        "role",
        "lines",
        "in",
        "out",
        "cost",
        "share",
        "model",
        "session",
    ]
    body = []
    for number, share in enumerate(shares, start=1):
        cost = share.cost
        body.append(
            [
                str(number) if share.lines else "",
                f"{cost.request}.{cost.turn}" if cost.turn else f"{cost.request}",
                cost.agent,
                cost.role or "beside turns",
                str(share.lines),
                compact_number(cost.usage.input),
                compact_number(cost.usage.output),
                money(cost.dollars),
                _share_text(cost.dollars / share.lines) if share.lines else "",
                ", ".join(cost.models),
                cost.session,
            ]
        )
    return _table([header, *body], left=(1, 2, 3, 9, 10)) if body else []


def _share_text(dollars: float) -> str:
    return f"${dollars:.6f}" if 0 < dollars < 0.001 else money(dollars)


def _agents(shares: Sequence[TurnShare], nobody: int, every: int) -> list[Text]:
    """Return one line for each agent, one for lines of unknown authors, and the sum."""
    groups: dict[str, list[TurnShare]] = {}
    for share in shares:
        groups.setdefault(share.cost.agent, []).append(share)
    if not groups:
        return []
    body = [
        _sum(name, sum(share.lines for share in group), group) for name, group in groups.items()
    ]
    body.append([NOBODY, str(nobody), *[""] * 4])
    body.append(_sum("all", every, shares))
    return _table([["agent", "lines", "turns", "in", "out", "cost"], *body], left=(0,))


def _sum(name: str, lines: int, shares: Sequence[TurnShare]) -> list[str]:
    usage = sum((share.cost.usage for share in shares), Usage())
    turns = sum(bool(share.cost.turn) for share in shares)
    dollars = sum(share.cost.dollars for share in shares)
    return [
        name,
        str(lines),
        str(turns),
        compact_number(usage.input),
        compact_number(usage.output),
        money(dollars),
    ]


def _table(rows: Sequence[Sequence[str]], left: Sequence[int]) -> list[Text]:
    head, *lines = aligned_rows(
        rows, [column for column in range(len(rows[0])) if column not in left]
    )
    return [Text(head, "bold"), *map(Text, lines), Text("")]


def _notes(lost: bool, any_turns: bool) -> list[Text]:
    notes = [Text(SHARES, "dim")] if any_turns else []
    if lost:
        notes.append(
            Text(
                "the contents of some changes are not in the store any more: their lines count "
                "as -",
                "dim",
            )
        )
    return notes


def file_blame_object(blame: FileBlame, mask: Mask) -> dict[str, object]:
    """Return the authors of a file's lines for programs."""
    return {
        "path": blame.path,
        "lines": [_line_object(line, mask) for line in blame.lines],
        "turns": [_turn_object(share) for share in blame.turns],
        "agents": _agent_objects(blame.turns),
        "unknown_lines": sum(line.author is None for line in blame.lines),
        "contents_missing": blame.lost,
        "noted_lines": blame.noted,
    }


def session_blame_object(blame: SessionBlame, mask: Mask) -> dict[str, object]:
    """Return the authors of a session's changes for programs."""
    added = _added_lines(blame)
    return {
        "session": blame.session,
        "files": [_file_object(file, mask) for file in blame.files],
        "turns": [_turn_object(share) for share in blame.turns],
        "agents": _agent_objects(blame.turns),
        "unknown_lines": sum(line.author is None for line in added),
        "contents_missing": any(file.lost for file in blame.files),
    }


def _file_object(file: FileDiff, mask: Mask) -> dict[str, object]:
    lines = []
    if not file.binary:
        changed = [line for line in chain(*file.hunks) if line.kind != "same"]
        lines = [{"kind": line.kind, **_line_object(line, mask)} for line in changed]
    return {
        "path": file.path,
        "was": file.was,
        "binary": file.binary,
        "changed_since": file.later,
        "lines": lines,
        "author": _author_object(_author_of_binary(file)) if file.binary else None,
    }


def _author_of_binary(file: FileDiff) -> LineAuthor | None:
    added = (line for line in chain(*file.hunks) if line.kind == "added")
    return next((line.author for line in added), None)


def _line_object(line: BlameLine, mask: Mask) -> dict[str, object]:
    text = mask(_decoded(line.text)).rstrip("\n")
    return {"line": line.number, "text": text, **_author_object(line.author)}


def _author_object(author: LineAuthor | None) -> dict[str, object]:
    if author is None:
        return dict.fromkeys(("agent", "model", "role", "session", "request", "turn", "at"))
    return {
        "agent": author.agent,
        "model": author.model,
        "role": author.role,
        "session": author.session,
        "request": author.request,
        "turn": author.turn,
        "at": author.at,
    }


def _turn_object(share: TurnShare) -> dict[str, object]:
    cost = share.cost
    return {
        "session": cost.session,
        "request": cost.request,
        "turn": cost.turn,
        "agent": cost.agent,
        "role": cost.role,
        "models": list(cost.models),
        "lines": share.lines,
        "calls": cost.calls,
        **cost.usage.model_dump(),
        "cost_usd": round(cost.dollars, 8),
        "line_share_usd": round(cost.dollars / share.lines, 8) if share.lines else None,
    }


def _agent_objects(shares: Sequence[TurnShare]) -> list[dict[str, object]]:
    names = dict.fromkeys(share.cost.agent for share in shares)
    return [
        _agent_object(name, [share for share in shares if share.cost.agent == name])
        for name in names
    ]


def _agent_object(name: str, shares: Sequence[TurnShare]) -> dict[str, object]:
    usage = sum((share.cost.usage for share in shares), Usage())
    return {
        "agent": name,
        "lines": sum(share.lines for share in shares),
        "turns": sum(bool(share.cost.turn) for share in shares),
        **usage.model_dump(),
        "cost_usd": round(sum(share.cost.dollars for share in shares), 8),
    }


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")
