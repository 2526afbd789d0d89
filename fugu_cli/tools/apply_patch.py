"""apply_patch: several changes in several files, all of them or none.

Every file is worked out first; only when all hunks fit is anything written, and what was written is
taken back if the disk refuses the rest.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from fugu_cli.errors import StorageError
from fugu_cli.safety import paths
from fugu_cli.safety.policy.call_arguments import patched_paths
from fugu_cli.snapshots import repository_files
from fugu_cli.system.atomic_files import make_executable
from fugu_cli.tools import text_edits
from fugu_cli.tools.read_write import ToolArguments, not_a_file
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.text_edits import FilePatch, Hunk, PatchError, parse_patch
from fugu_cli.tools.workspace import Tool, Workspace, resolve_path


class ApplyPatchArguments(ToolArguments):
    """Arguments of apply_patch."""

    patch: str = Field(description="unified diff, or the *** Begin Patch form")


class _Misfit(Exception):
    """A patch that cannot be applied; the message goes to the agent."""


@dataclass(frozen=True)
class _Outcome:
    """The new content of a file, None if it is deleted.

    `mode` are the permissions, None to keep those of the file. `executable` is the new executable
    flag, None to keep it.
    """

    path: Path
    name: str
    old: bytes | None
    new: bytes | None
    mode: int | None = None
    executable: bool | None = None


async def apply_patch(given: ApplyPatchArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Apply a patch."""
    outcomes = _planned(given, workspace)
    if isinstance(outcomes, ToolResult):
        return outcomes
    try:
        _carry_out(outcomes, workspace)
    except _Misfit as error:
        return _unchanged(error)
    return ToolResult(text="\n".join(_said(outcome) for outcome in outcomes))


def _planned(given: ApplyPatchArguments, workspace: Workspace) -> list[_Outcome] | ToolResult:
    try:
        files = parse_patch(given.patch)
        named = {*patched_paths(given.patch)}
        stray = [p for f in files for p in (f.path, f.target) if p and p not in named]
        if stray:  # what policy did not judge is not touched
            raise PatchError(f"the name {stray[0]} could not be read for certain")
        return _work_out(files, workspace)
    except PatchError as error:
        return ToolResult(text=f"This is not a patch: {error}. Nothing was changed.", ok=False)
    except _Misfit as error:
        return _unchanged(error)


def _unchanged(error: _Misfit) -> ToolResult:
    return ToolResult(text=f"{error}\nNothing was changed.", ok=False)


def _work_out(files: Sequence[FilePatch], workspace: Workspace) -> list[_Outcome]:
    planned: dict[Path, _Outcome] = {}
    for patch in files:
        for outcome in _outcomes(patch, workspace, planned):
            earlier = planned.get(outcome.path)
            old = earlier.old if earlier else outcome.old
            planned[outcome.path] = replace(outcome, old=old)
    if all(
        outcome.old == outcome.new and outcome.executable is None for outcome in planned.values()
    ):
        raise _Misfit("The patch changes nothing.")
    return list(planned.values())


def _outcomes(
    patch: FilePatch, workspace: Workspace, planned: dict[Path, _Outcome]
) -> list[_Outcome]:
    path = _located(patch.path, workspace)
    if (patch.kind == "delete" or patch.target) and (
        workspace.root / paths.unquoted_path(patch.path)
    ).is_symlink():
        raise _Misfit(
            f"{patch.path} is a link: what it leads to would go. Remove or move the link with a "
            f"command."
        )
    data = _content(path, patch, workspace, planned)
    if patch.kind == "delete":
        return [
            _Outcome(
                path,
                patch.path,
                data,
                None,
                stat.S_IMODE(path.stat().st_mode) if path.exists() else None,
            )
        ]
    if patch.kind == "add":
        if data is not None:
            raise _Misfit(f"{patch.path} exists already. Update it, or delete it first.")
        lines = [line for hunk in patch.hunks for line in hunk.new]
        bare = bool(patch.hunks) and patch.hunks[-1].ends_without_newline
        text = "\n".join(lines) + ("" if bare or not lines else "\n")
        return [
            _Outcome(path, patch.path, None, text.encode(), executable=patch.executable or None)
        ]
    if data is None or (repository_files.is_binary(data) and patch.hunks):
        raise _Misfit(
            f"{patch.path} is "
            f"{'not there' if data is None else repository_files.describe_binary(data)}."
        )
    try:
        new = _patched(repository_files.decode_text(data), patch) if patch.hunks else data
    except _Misfit as misfit:
        if path in planned:
            raise
        changed = workspace.change_since_read(path, data, patch.path)
        raise _Misfit(f"{changed} {misfit}".strip()) from misfit
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    executable = None if patch.executable == bool((mode or 0) & stat.S_IXUSR) else patch.executable
    if not patch.target:
        return [_Outcome(path, patch.path, data, new, mode, executable)]
    target = _located(patch.target, workspace)
    if target.exists() and target != path:
        raise _Misfit(f"{patch.target} exists already; {patch.path} cannot be moved there.")
    return [
        _Outcome(path, patch.path, data, None, mode),
        _Outcome(target, patch.target, None, new, mode, executable),
    ]


def _located(name: str, workspace: Workspace) -> Path:
    path = resolve_path(workspace, name)
    if isinstance(path, ToolResult):
        raise _Misfit(path.text)
    return path


def _content(
    path: Path, patch: FilePatch, workspace: Workspace, planned: dict[Path, _Outcome]
) -> bytes | None:
    if path in planned:
        return planned[path].new
    if patch.kind == "add" and not path.exists():
        return None
    if (refusal := not_a_file(path, patch.path, workspace)) is not None:
        raise _Misfit(refusal.text)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _Misfit(f"{patch.path} cannot be read: {error.strerror}.") from error
    if patch.kind == "add":
        return data
    if _quotes_file(patch):
        refused = workspace.quoting_refusal(path, data, patch.path)
    else:
        refused = workspace.overwriting_refusal(path, data, patch.path)
    if refused:
        raise _Misfit(refused)
    return data


def _quotes_file(patch: FilePatch) -> bool:
    """Return whether each hunk quotes lines of the file, or nothing of it is changed: who can quote
    it knows it.
    """
    if not patch.hunks:
        return patch.kind != "delete"
    return all(any(line.strip() for line in hunk.old) for hunk in patch.hunks)


def _patched(file: repository_files.TextFile, patch: FilePatch) -> bytes:
    text = apply_hunks(file.text, patch)
    if char := file.misfit(text):
        raise _Misfit(f"{patch.path} {repository_files.MISFIT.format(char=char)}.")
    return file.encode(text)


def apply_hunks(text: str, patch: FilePatch) -> str:
    lines = text.split("\n")
    ended = lines[-1] == ""
    if ended:
        lines.pop()
    moved, after = 0, 0
    for number, hunk in enumerate(patch.hunks, start=1):
        places = _places(lines, hunk, moved, after)
        if not places:
            raise _Misfit(_missed(lines, hunk, number, patch.path))
        if len(places) > sum(other.old == hunk.old for other in patch.hunks[number - 1 :]):
            where = ", ".join(str(place.start + 1) for place in places[:9])
            told = f"Hunk {number} of {patch.path} fits in {len(places)} places (lines {where})."
            raise _Misfit(f"{told} Give more lines around it, or a heading after @@.")
        place = places[0]
        lines[place.start : place.end] = place.lines
        moved += len(place.lines) - (place.end - place.start)
        after = place.start + len(place.lines)
        if after == len(lines) and hunk.new:
            ended = _ends(hunk, ended)
    return "\n".join(lines) + ("\n" if ended and lines else "")


def _ends(hunk: Hunk, ended: bool) -> bool:
    """Return whether the file ends with a newline after the hunk."""
    if hunk.ends_without_newline is not None:
        return not hunk.ends_without_newline
    return ended or hunk.old[-1:] != hunk.new[-1:]


def _places(lines: Sequence[str], hunk: Hunk, moved: int, after: int) -> list[text_edits.TextMatch]:
    """Return the positions that fit a hunk: nearest to its line, else first after its anchor, else
    after the hunk before it.
    """
    if not any(line.strip() for line in hunk.old):
        place = _insertion(lines, hunk, moved, after)
        return [place] if place else []
    found = [
        text_edits.TextMatch(at, at + len(hunk.old), hunk.new) for at in _exact(lines, hunk.old)
    ]
    found = found or text_edits.find_matches(lines, hunk.old, hunk.new)
    found = [place for place in found if place.start >= after] or found
    if hunk.anchor and (start := _anchor(lines, hunk.anchor, after)) is not None:
        found = [place for place in found if place.start >= start] or found
    if hunk.line is not None:
        wanted = hunk.line - 1 + moved
        found.sort(key=lambda place: abs(place.start - wanted))
    return found[:1] if hunk.line is not None or hunk.anchor else found


def _insertion(
    lines: Sequence[str], hunk: Hunk, moved: int, after: int
) -> text_edits.TextMatch | None:
    """Return the place for lines that are only added: after the header's line, after the anchor,
    else at the end.
    """
    blanks = len(hunk.old)
    if hunk.line is not None:
        at = min(max(hunk.line + moved - (1 if blanks else 0), after), len(lines))
    elif hunk.anchor:
        start = _anchor(lines, hunk.anchor, after)
        if start is None:
            return None
        at = start + 1
    else:
        at = len(lines)
    same = tuple(lines[at : at + blanks]) == hunk.old
    return text_edits.TextMatch(at, at + blanks, hunk.new) if same else None


def _exact(lines: Sequence[str], old: tuple[str, ...]) -> list[int]:
    starts = range(len(lines) - len(old) + 1)
    return [at for at in starts if lines[at] == old[0] and tuple(lines[at : at + len(old)]) == old]


def _anchor(lines: Sequence[str], anchor: str, after: int) -> int | None:
    at: int | None = None
    for part in anchor.split("\n"):
        start = after if at is None else at + 1
        order = [*range(start, len(lines)), *range(start)]
        whole = (at for at in order if lines[at].strip() == part)
        at = next(whole, next((at for at in order if part in lines[at]), None))
        if at is None:
            return None
    return at


def _missed(lines: Sequence[str], hunk: Hunk, number: int, name: str) -> str:
    near = text_edits.nearest_lines(lines, hunk.old)
    told = (
        f" The nearest lines are:\n{text_edits.numbered_region(lines, *near)}"
        if near
        else " Read the file again."
    )
    return f"Hunk {number} of {name} does not fit: its lines are not in the file.{told}"


def _carry_out(outcomes: Sequence[_Outcome], workspace: Workspace) -> None:
    done: list[_Outcome] = []
    try:
        for outcome in outcomes:
            _set(outcome, outcome.new, workspace)
            done.append(outcome)
            if outcome.new is not None and outcome.executable is not None:
                make_executable(outcome.path, outcome.executable)
    except (OSError, StorageError) as error:
        for other in reversed(done):
            _set(other, other.old, workspace)
        if isinstance(error, StorageError):
            raise
        raise _Misfit(f"{outcome.name} cannot be written: {error.strerror}.") from error


def _set(outcome: _Outcome, data: bytes | None, workspace: Workspace) -> None:
    if data is not None:
        workspace.write(outcome.path, data, outcome.mode)
    elif outcome.path.exists():
        workspace.remove(outcome.path)


def _said(outcome: _Outcome) -> str:
    if outcome.old is None:
        return f"Created {outcome.name}."
    return f"Deleted {outcome.name}." if outcome.new is None else f"Changed {outcome.name}."


APPLY_PATCH = Tool(
    name="apply_patch",
    effect="writes",
    arguments=ApplyPatchArguments,
    run=apply_patch,
    body="patch",
    patch="patch",
    plan=_planned,
)
