"""Changes as unified diffs: what a call is about to change, and how large that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fugu_cli.messages import Call
from fugu_cli.system.line_diffs import unified_diff_lines

ReadFile = Callable[[str], str | None]
"""The text of a file by the path a call names; None where there is none that can be shown."""
LARGEST = 200_000
"""Characters that are still compared: from the first to the last line that differs."""
LARGEST_READ = 1_000_000
"""Bytes of a file whose change is still shown in its surroundings."""


def read_nothing(path: str) -> None:
    """Return None: a change is shown without its surroundings."""
    del path


def patch_of_call(call: Call, read: ReadFile = read_nothing) -> str:
    """Return the change of an edit, write or apply_patch call as a unified diff, "" for other
    calls.
    """
    # not before the first paint
    from fugu_cli.session.call_arguments import MalformedArguments, arguments_of

    arguments = arguments_of(call)
    if isinstance(arguments, MalformedArguments):
        return ""
    texts = {key: value for key, value in arguments.items() if isinstance(value, str)}
    path = texts.get("path", "")
    match call.tool:
        case "apply_patch" if "patch" in texts:
            return texts["patch"]
        case "edit" if "old" in texts and "new" in texts:
            every = arguments.get("replace_all") is True
            old, new, text = texts["old"], texts["new"], read(path)
            if text is None or not old or old not in text:
                return unified_diff(path, old, new)
            return unified_diff(path, text, text.replace(old, new, -1 if every else 1))
        case "write" if "content" in texts:
            return unified_diff(path, read(path) or "", texts["content"])
        case _:
            return ""


def approval_patch(call: Call, root: Path) -> str:
    """Return the change that a call in `root` would make, with context lines, "" if none. Runs in a
    thread.
    """
    return patch_of_call(call, lambda path: _read_file(root, path))


def finished_edit_patch(call: Call, root: Path) -> str:
    """Return the change of an edit that was made, with the line numbers of the file in `root`; ""
    for other calls, and where the file does not hold the new text exactly once. Runs in a thread.
    """
    from fugu_cli.session.call_arguments import MalformedArguments, arguments_of

    arguments = arguments_of(call)
    if call.tool != "edit" or isinstance(arguments, MalformedArguments):
        return ""
    path, old, new = (arguments.get(name) for name in ("path", "old", "new"))
    if not isinstance(path, str) or not isinstance(old, str) or not isinstance(new, str):
        return ""
    text = _read_file(root, path)
    if not new or text is None or text.count(new) != 1:
        return ""
    return unified_diff(path, text.replace(new, old), text)


def _read_file(root: Path, path: str) -> str | None:
    try:
        file = (root / path).resolve()
        if not file.is_file() or file.stat().st_size > LARGEST_READ:
            return None
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def unified_diff(path: str, before: str, after: str) -> str:
    """Return the difference of two texts as a unified diff with three context lines."""
    lines = unified_diff_lines(
        _lines(before), _lines(after), path, path, line_end="", largest=LARGEST
    )
    if lines is None:
        return (
            f"--- {path}\n+++ {path}\n@@ too large to compare: {len(before):,} and "
            f"{len(after):,} characters @@"
        )
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    """Split a text at newlines only, not at other control characters."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def patch_size(patch: str) -> tuple[int, int]:
    """Return how many lines were added and removed."""
    lines = _lines(patch)
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    return added, removed


LONGEST_LINE = 1000
"""Characters of a line of a diff that are shown where it passes by."""
LONGEST_LINE_ON_PAGE = 20_000
"""The same on a page that was opened to be read."""
AROUND_CHANGE = 200
"""Characters that are shown on both sides of what changed in a long line."""


def shorten_patch(patch: str, longest: int) -> str:
    """Cut lines of a unified diff that have more than `longest` characters to what changed in them,
    and say how much is left out."""
    if len(patch) <= longest:
        return patch
    lines = patch.split("\n")
    index = 0
    while index < len(lines):
        removed = _run_of_sign(lines, index, "-")
        added = _run_of_sign(lines, index + removed, "+")
        for offset in range(max(removed, added, 1)):
            old = index + offset if offset < removed else None
            new = index + removed + offset if offset < added else None
            if old is not None and new is not None:
                lines[old], lines[new] = _shorten_pair(lines[old], lines[new], longest)
            else:
                single = next((at for at in (old, new) if at is not None), index)
                lines[single] = _excerpt(lines[single], 1, 1, longest)
        index += max(removed + added, 1)
    return "\n".join(lines)


def _run_of_sign(lines: Sequence[str], start: int, sign: str) -> int:
    end = start
    while end < len(lines) and lines[end].startswith(sign):
        end += 1
    return end - start


def _shorten_pair(old: str, new: str, longest: int) -> tuple[str, str]:
    if max(len(old), len(new)) <= longest:
        return old, new
    start = 1 + _common_length(old[1:], new[1:])
    tail = _common_length(old[: start - 1 : -1], new[: start - 1 : -1])
    return (
        _excerpt(old, start, len(old) - tail, longest),
        _excerpt(new, start, len(new) - tail, longest),
    )


def _common_length(first: str, second: str) -> int:
    """Return the length of the common beginning. Halves the range: the texts may have megabytes."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _excerpt(line: str, start: int, end: int, longest: int) -> str:
    """Return a line with its sign and what stands around the characters from `start` to `end`."""
    if len(line) <= longest:
        return line
    first = max(start - AROUND_CHANGE, 1)
    last = min(max(end + AROUND_CHANGE, first + AROUND_CHANGE), first + longest, len(line))
    before = f"[… {first - 1:,} characters …]" if first > 1 else ""
    after = f"[… {len(line) - last:,} characters …]" if last < len(line) else ""
    return f"{line[:1]}{before}{line[first:last]}{after}"
