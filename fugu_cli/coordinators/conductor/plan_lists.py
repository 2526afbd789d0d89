"""The lenient reader of the three lists in which a planner may write a workflow. Pure.

Nothing is evaluated. It tolerates fences, bullets, think blocks, labels with `:` or `=`,
annotations, smart quotes, comments and JSON. Labels count only outside the lists, so nothing inside
a subtask can pass for one.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass
from itertools import islice

REPLY_LIMIT = 32_768
"""Characters of a reply that are looked at; a planner that never stops is cut off before by its
token limit.
"""
NO_LISTS = "there are no lists in it"
LABELS = ("model_id", "subtasks", "access_list")
_LABEL = re.compile(
    r"(?<![A-Za-z0-9_])(?:(?P<model_id>model(?:\\?_| )ids?)|(?P<subtasks>sub(?:\\?_| )?tasks?)"
    r"|(?P<access_list>access(?:(?:\\?_| )lists?)?))"
    r"[`*\"'“”‘’]*\s*"
    r"(?::\s*(?:typing\.)?list\b(?:\[[\w.,|\[\]\"' \t]{0,80}\])?\s*=|[:=：]|(?<=\n))"
    r"[`*\s]*(?:```[\w-]*\s*)?(?P<list>\[)",
    re.IGNORECASE,
)
_MORE = re.compile(r"[ \t]*(?:\+|\*(?!\*)[ \t]*[\w(]|\[|(?<=\])\().{,30}")
"""Matches what turns a list into an expression. Other stars end emphasis, and a separate bracket
begins a remark.
"""
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.IGNORECASE | re.DOTALL)
_OPENING = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_CLOSING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_TAG = re.compile(r"<(/?think(?:ing)?>)", re.IGNORECASE)
_MARK = "<\x00"
_BULLET = re.compile(r"^[ \t]*[-*•][ \t]+", re.MULTILINE)
_NEXT = re.compile(r"\s*[,\]]")
"""Matches what may follow the end of a string. Elsewhere ’ is an apostrophe."""
_FORMATTED = re.compile(r"(?<!\w)[fF]\Z")
"""Matches the prefix of a formatted string."""
_CLOSERS = {'"': '"', "'": "'", "“": "”", "‘": "’", "”": "”"}


@dataclass(frozen=True)
class InvalidPlan:
    """Why a reply is no workflow, in words for the planner and the trace."""

    text: str


@dataclass(frozen=True)
class PlanLists:
    """The three lists as they were written: literals of any kind, not yet checked."""

    model_id: list[object]
    subtasks: list[object]
    access_list: list[object]


def parse_lists(text: str) -> PlanLists | InvalidPlan:
    """Return the lists of a reply."""
    if len(text) > REPLY_LIMIT:
        return InvalidPlan(f"the reply has {len(text)} characters; at most {REPLY_LIMIT} are read")
    lists = _lists(_without_thoughts(_without_first_thought(text)).replace(_MARK, "<"))
    if isinstance(lists, InvalidPlan):
        # a thought at the beginning, never closed, may have hidden the plan
        lists_in_whole = _lists(_without_thoughts(text))
        if isinstance(lists_in_whole, PlanLists):
            return lists_in_whole
    return lists


def parse_objects(text: str) -> list[dict[str, object]] | None:
    """Return the last list of objects in a reply; [] if it ends with an empty list, None if it has
    no list.
    """
    if len(text) > REPLY_LIMIT:
        return None
    text = _without_thoughts(text)
    objects: list[dict[str, object]] | None = None
    end_of_last = 0
    for match in islice(_OBJECTS.finditer(text), MOST_LISTS):
        if match.start() < end_of_last:
            continue  # inside the list before
        end = _end(text, match.start())
        if end is None:
            continue
        value = parse_list(text[match.start() : end], quoted=True)
        if not value:
            continue
        dicts = [item for item in value if isinstance(item, dict)]
        if len(dicts) == len(value):
            objects = dicts
            end_of_last = end
    if objects is None and "{" not in text and _KEPT.search(text):
        return []
    return objects


_OBJECTS = re.compile(r"\[\s*\{")
_KEPT = re.compile(r"^\s*`*\[\s*\]`*\s*(?:```)?\s*\Z", re.MULTILINE)
MOST_LISTS = 50
"""Places of a reply at which a list of objects is looked for."""


def _lists(text: str) -> PlanLists | InvalidPlan:
    """Return the lists of a reply without thoughts."""
    lists: dict[str, list[object]] = {}
    position = 0
    while (label := _LABEL.search(text, position)) is not None:
        name = next(name for name in LABELS if label.group(name))
        start = label.start("list")
        end = _end(text, start)
        if end is None:
            return InvalidPlan(f"the list {name} does not end")
        if more := _MORE.match(text, end):
            return InvalidPlan(
                f"{name} goes on behind its list: {more.group().strip()!r}; every list is "
                f"written out"
            )
        value = parse_list(text[start:end], quoted='"' in label.group())
        if value is None:
            return InvalidPlan(f"{name} is not a list that can be read")
        if name in lists and not _same_values(lists[name], value):
            return InvalidPlan(f"{name} is given twice, with different values")
        lists[name] = value
        position = end
    missing = [name for name in LABELS if name not in lists]
    if missing:
        return InvalidPlan(f"there is no list {missing[0]}" if len(missing) < 3 else NO_LISTS)
    return PlanLists(lists["model_id"], lists["subtasks"], lists["access_list"])


def _without_first_thought(text: str) -> str:
    """Return `text` without the thought that it begins with. Tags inside its lists are marked,
    because there they belong to a task.
    """
    while begins := _THOUGHT.match(text.lstrip()):
        text = text.lstrip()[begins.end() :]
    parts, at = [], 0
    while (label := _LABEL.search(text, at)) and (
        end := _end(text, label.start("list"))
    ) is not None:
        parts += [text[at : label.start()], _TAG.sub(rf"{_MARK}\1", text[label.start() : end])]
        at = end
    return "".join((*parts, text[at:]))


def _without_thoughts(text: str) -> str:
    """Return the text without think blocks. One that was never closed runs to the end of the text."""
    rest = _THOUGHT.sub("\n", text)
    closings = list(_CLOSING.finditer(rest))
    if closings:
        rest = rest[closings[-1].end() :]
    opening = _OPENING.search(rest)
    return rest[: opening.start()] if opening else rest


def _same_values(first: list[object], second: list[object]) -> bool:
    return repr(first) == repr(second)


def _end(text: str, start: int) -> int | None:
    """Return the position after the bracket that closes the one at `start`, None if nothing closes
    it. Brackets in quotes do not count.
    """
    depth, at = 0, start
    while at < len(text):
        char = text[at]
        if char in _CLOSERS:
            after = _after_string(text, at)
            if after is None:
                return None
            at = after
            continue
        if char == "#":
            at = _line_end(text, at)
            continue
        depth += (char == "[") - (char == "]")
        at += 1
        if depth == 0:
            return at
    return None


def _line_end(text: str, start: int) -> int:
    """Return the end of the line, which is the end of a comment."""
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _after_string(text: str, start: int) -> int | None:
    """Return the position after the string that begins at `start`, None if it does not end."""
    triple = text[start : start + 3]
    if triple in ('"""', "'''"):
        end = text.find(triple, start + 3)
        return None if end < 0 else end + 3
    closer = _CLOSERS[text[start]]
    at = start + 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == closer and (closer != "’" or _NEXT.match(text, at + 1)):
            return at + 1
        at += 1
    return None


def parse_list(text: str, *, quoted: bool = False) -> list[object] | None:
    """Return the list that a text in brackets stands for, None if it is no list. The text is read
    as a Python literal and as JSON, then again with plain quotes and without bullets. `quoted`: the
    list's label stood in quotes, so JSON is tried first.
    """
    reads = (json.loads, ast.literal_eval) if quoted else (ast.literal_eval, json.loads)
    for form in dict.fromkeys((text, _plain(text), _plain(_BULLET.sub("", text)))):
        for read in reads:
            try:
                with warnings.catch_warnings(
                    action="ignore"
                ):  # odd escapes in a model's strings are no news
                    value = read(form)
                repr(value)  # a number of thousands of digits cannot be told
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(value, list):
                return value
    return None


def _plain(text: str) -> str:
    """Return the text with strings in smart quotes, and strings with line breaks, as JSON strings."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "#":
            at = _line_end(text, at)
            continue
        after = _after_string(text, at) if char in _CLOSERS else None
        if after is None:
            parts.append(char)
            at += 1
            continue
        raw = text[at:after]
        at = after
        if "{" not in raw and _FORMATTED.search("".join(parts[-2:])):
            parts.pop()
        inner = raw[1:-1]
        odd = char in "“‘”" or ("\n" in raw and not raw.startswith(('"""', "'''")))
        parts.append(json.dumps(inner, ensure_ascii=False) if odd else raw)
    return "".join(parts)
