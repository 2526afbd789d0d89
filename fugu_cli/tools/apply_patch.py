"""apply_patch: several changes in several files, all of them or none.

Every file is worked out first; only when all hunks fit is anything written, and what was written is
taken back if the disk refuses the rest.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from fugu_cli.errors import StorageError
from fugu_cli.safety import paths
from fugu_cli.session import tool_facts
from fugu_cli.session.call_arguments import patched_paths
from fugu_cli.snapshots import repository_files
from fugu_cli.system.atomic_files import make_executable
from fugu_cli.system.resolved_files import read_resolved
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


async def apply_patch(arguments: ApplyPatchArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Apply a patch."""
    outcomes = _plan(arguments, workspace)
    if isinstance(outcomes, ToolResult):
        return outcomes
    try:
        _write_outcomes(outcomes, workspace)
    except _Misfit as error:
        return _unchanged(error)
    return ToolResult(text="\n".join(_describe_outcome(outcome) for outcome in outcomes))


def _plan(arguments: ApplyPatchArguments, workspace: Workspace) -> list[_Outcome] | ToolResult:
    try:
        files = parse_patch(arguments.patch)
        named = {*patched_paths(arguments.patch)}
        stray = [p for f in files for p in (f.path, f.target) if p and p not in named]
        if stray:  # what policy did not judge is not touched
            raise PatchError(f"the name {stray[0]} could not be read for certain")
        planned: dict[Path, _Outcome] = {}
        for patch in files:
            for outcome in _plan_file(patch, workspace, planned):
                earlier = planned.get(outcome.path)
                old = earlier.old if earlier else outcome.old
                planned[outcome.path] = replace(outcome, old=old)
        outcomes = list(planned.values())
        if all(outcome.old == outcome.new and outcome.executable is None for outcome in outcomes):
            raise _Misfit("The patch changes nothing.")
        return outcomes
    except PatchError as error:
        return ToolResult(text=f"This is not a patch: {error}. Nothing was changed.", ok=False)
    except _Misfit as error:
        return _unchanged(error)


def _unchanged(error: _Misfit) -> ToolResult:
    return ToolResult(text=f"{error}\nNothing was changed.", ok=False)


def _plan_file(
    patch: FilePatch, workspace: Workspace, planned: dict[Path, _Outcome]
) -> list[_Outcome]:
    path = _resolve(patch.path, workspace)
    is_link = (workspace.root / paths.unquoted_path(patch.path)).is_symlink()
    if (patch.kind == "delete" or patch.target) and is_link:
        raise _Misfit(
            f"{patch.path} is a link: what it leads to would go. Remove or move the link with a "
            f"command."
        )
    data = _read_content(path, patch, workspace, planned)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    if patch.kind == "delete":
        return [_Outcome(path, patch.path, data, None, mode)]
    if patch.kind == "add":
        if data is not None:
            raise _Misfit(f"{patch.path} exists already. Update it, or delete it first.")
        lines = [line for hunk in patch.hunks for line in hunk.new]
        text = "\n".join(lines)
        if lines and not patch.hunks[-1].ends_without_newline:
            text += "\n"
        return [
            _Outcome(path, patch.path, None, text.encode(), executable=patch.executable or None)
        ]
    if data is None:
        raise _Misfit(f"{patch.path} is not there.")
    new = data
    if patch.hunks:
        new = _apply_to_file(data, path, patch, workspace, planned)
    executable = None if patch.executable == bool((mode or 0) & stat.S_IXUSR) else patch.executable
    if not patch.target:
        return [_Outcome(path, patch.path, data, new, mode, executable)]
    target = _resolve(patch.target, workspace)
    if target.exists() and target != path:
        raise _Misfit(f"{patch.target} exists already; {patch.path} cannot be moved there.")
    return [
        _Outcome(path, patch.path, data, None, mode),
        _Outcome(target, patch.target, None, new, mode, executable),
    ]


def _resolve(name: str, workspace: Workspace) -> Path:
    path = resolve_path(workspace, name)
    if isinstance(path, ToolResult):
        raise _Misfit(path.text)
    return path


def _read_content(
    path: Path, patch: FilePatch, workspace: Workspace, planned: dict[Path, _Outcome]
) -> bytes | None:
    if path in planned:
        return planned[path].new
    if patch.kind == "add" and not path.exists():
        return None
    if (refusal := not_a_file(path, patch.path, workspace)) is not None:
        raise _Misfit(refusal.text)
    try:
        data = read_resolved(path)
    except OSError as error:
        raise _Misfit(f"{patch.path} cannot be read: {error.strerror}.") from error
    if patch.kind == "add":
        return data
    if _quotes_file(patch):
        reason = workspace.quoting_refusal(path, data, patch.path)
    else:
        reason = workspace.overwriting_refusal(path, data, patch.path)
    if reason:
        raise _Misfit(reason)
    return data


def _quotes_file(patch: FilePatch) -> bool:
    """Return whether each hunk quotes lines of the file, or the hunk changes nothing in it. Whoever
    quotes a file has read it.
    """
    if not patch.hunks:
        return patch.kind != "delete"
    return all(any(line.strip() for line in hunk.old) for hunk in patch.hunks)


def _apply_to_file(
    data: bytes,
    path: Path,
    patch: FilePatch,
    workspace: Workspace,
    planned: dict[Path, _Outcome],
) -> bytes:
    """Return the file's new content. Raises _Misfit."""
    if repository_files.is_binary(data):
        raise _Misfit(f"{patch.path} is {repository_files.describe_binary(data)}.")
    file = repository_files.decode_text(data)
    try:
        text = apply_hunks(file.text, patch)
        if char := file.misfit(text):
            raise _Misfit(f"{patch.path} {repository_files.MISFIT.format(char=char)}.")
    except _Misfit as misfit:
        if path in planned:
            raise
        changed = workspace.change_since_read(path, data, patch.path)
        raise _Misfit(f"{changed} {misfit}".lstrip()) from misfit
    return file.encode(text)


def apply_hunks(text: str, patch: FilePatch) -> str:
    lines = text.split("\n")
    has_final_newline = lines[-1] == ""
    if has_final_newline:
        lines.pop()
    shift, end_of_last = 0, 0
    for number, hunk in enumerate(patch.hunks, start=1):
        matches = _find_matches(lines, hunk, shift, end_of_last)
        if not matches:
            raise _Misfit(_describe_misfit(lines, hunk, number, patch.path))
        same_hunks = sum(later.old == hunk.old for later in patch.hunks[number - 1 :])
        if len(matches) > same_hunks:
            numbers = ", ".join(str(match.start + 1) for match in matches[:9])
            raise _Misfit(
                f"Hunk {number} of {patch.path} fits in {len(matches)} places (lines {numbers}). "
                f"Give more lines around it, or a heading after @@."
            )
        match = matches[0]
        lines[match.start : match.end] = match.lines
        shift += len(match.lines) - (match.end - match.start)
        end_of_last = match.start + len(match.lines)
        if end_of_last == len(lines) and hunk.new:
            has_final_newline = _ends_with_newline(hunk, has_final_newline)
    return "\n".join(lines) + ("\n" if has_final_newline and lines else "")


def _ends_with_newline(hunk: Hunk, had_newline: bool) -> bool:
    """Return whether the file ends with a newline after the hunk."""
    if hunk.ends_without_newline is not None:
        return not hunk.ends_without_newline
    return had_newline or hunk.old[-1:] != hunk.new[-1:]


def _find_matches(
    lines: Sequence[str], hunk: Hunk, shift: int, earliest: int
) -> list[text_edits.TextMatch]:
    """Return the positions where a hunk fits: the nearest to its line, else the first after its
    anchor, else the first after the previous hunk. `shift` is the number of lines that earlier
    hunks added, `earliest` the end of the previous one.
    """
    if not any(line.strip() for line in hunk.old):
        insertion = _find_insertion(lines, hunk, shift, earliest)
        return [insertion] if insertion else []
    matches = [
        text_edits.TextMatch(start, start + len(hunk.old), hunk.new)
        for start in _exact_matches(lines, hunk.old)
    ]
    if not matches:
        matches = text_edits.find_matches(lines, hunk.old, hunk.new)
    matches = [match for match in matches if match.start >= earliest] or matches
    if hunk.anchor:
        anchor = _find_anchor(lines, hunk.anchor, earliest)
        if anchor is not None:
            matches = [match for match in matches if match.start >= anchor] or matches
    if hunk.line is not None:
        expected = hunk.line - 1 + shift
        matches.sort(key=lambda match: abs(match.start - expected))
    return matches[:1] if hunk.line is not None or hunk.anchor else matches


def _find_insertion(
    lines: Sequence[str], hunk: Hunk, shift: int, earliest: int
) -> text_edits.TextMatch | None:
    """Return the index at which lines that are only added go: after the header's line, after the
    anchor, else at the end.
    """
    blanks = len(hunk.old)
    if hunk.line is not None:
        start = min(max(hunk.line + shift - (1 if blanks else 0), earliest), len(lines))
    elif hunk.anchor:
        anchor = _find_anchor(lines, hunk.anchor, earliest)
        if anchor is None:
            return None
        start = anchor + 1
    else:
        start = len(lines)
    if tuple(lines[start : start + blanks]) != hunk.old:
        return None
    return text_edits.TextMatch(start, start + blanks, hunk.new)


def _exact_matches(lines: Sequence[str], old: tuple[str, ...]) -> list[int]:
    starts = range(len(lines) - len(old) + 1)
    return [
        start
        for start in starts
        if lines[start] == old[0] and tuple(lines[start : start + len(old)]) == old
    ]


def _find_anchor(lines: Sequence[str], anchor: str, earliest: int) -> int | None:
    """Return the index of the anchor's last line, None if the anchor is not there. Whole lines are
    preferred to parts of lines, and lines from `earliest` on to those before it.
    """
    match_index: int | None = None
    for part in anchor.split("\n"):
        start = earliest if match_index is None else match_index + 1
        order = [*range(start, len(lines)), *range(start)]
        whole_lines = [index for index in order if lines[index].strip() == part]
        parts_of_lines = [index for index in order if part in lines[index]]
        if not whole_lines and not parts_of_lines:
            return None
        match_index = (whole_lines or parts_of_lines)[0]
    return match_index


def _describe_misfit(lines: Sequence[str], hunk: Hunk, number: int, name: str) -> str:
    nearest = text_edits.nearest_lines(lines, hunk.old)
    hint = "Read the file again."
    if nearest:
        hint = f"The nearest lines are:\n{text_edits.numbered_region(lines, *nearest)}"
    return f"Hunk {number} of {name} does not fit: its lines are not in the file. {hint}"


def _write_outcomes(outcomes: Sequence[_Outcome], workspace: Workspace) -> None:
    written: list[_Outcome] = []
    try:
        for outcome in outcomes:
            _write_content(outcome, outcome.new, workspace)
            written.append(outcome)
            if outcome.new is not None and outcome.executable is not None:
                make_executable(outcome.path, outcome.executable)
    except (OSError, StorageError) as error:
        for earlier in reversed(written):
            # where a link has taken its place, or the disk refuses this too, the others go on
            with contextlib.suppress(OSError, StorageError):
                _write_content(earlier, earlier.old, workspace)
        if isinstance(error, StorageError):
            raise
        raise _Misfit(f"{outcome.name} cannot be written: {error.strerror}.") from error


def _write_content(outcome: _Outcome, data: bytes | None, workspace: Workspace) -> None:
    if data is not None:
        workspace.write(outcome.path, data, outcome.mode)
    elif outcome.path.exists():
        workspace.remove(outcome.path)


def _describe_outcome(outcome: _Outcome) -> str:
    if outcome.old is None:
        return f"Created {outcome.name}."
    if outcome.new is None:
        return f"Deleted {outcome.name}."
    return f"Changed {outcome.name}."


APPLY_PATCH = Tool.of(tool_facts.APPLY_PATCH, ApplyPatchArguments, apply_patch, _plan)
