"""A planner's reply -> three lists, without ever evaluating anything. Pure.

Tolerates fences, bullets, think blocks, labels with `:` or `=` or on a line of their own, annotations (`model_id:
list[int] = ...`), smart quotes, strings marked `f` without a place to fill, comments, JSON. A label counts outside the
lists only, so nothing that is written inside a subtask can pass for one. What cannot be read is a Fault that says why.
What the lists mean (numbers in range, access to earlier steps) is validate.py's.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass

LIMIT = 32_768
"""Characters of a reply that are looked at; a planner that never stops is cut off before by its token limit."""
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
"""What makes an expression of a list. Other stars end emphasis, and a bracket apart begins a remark."""
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.IGNORECASE | re.DOTALL)
_OPENING = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_CLOSING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_TAG = re.compile(r"<(/?think(?:ing)?>)", re.IGNORECASE)
_MARK = "<\x00"
_BULLET = re.compile(r"^[ \t]*[-*•][ \t]+", re.MULTILINE)
_NEXT = re.compile(r"\s*[,\]]")
"""What follows the end of a string: ’ is an apostrophe elsewhere."""
_FORMATTED = re.compile(r"(?<!\w)[fF]\Z")
"""What stands before a string with places to fill."""
_CLOSERS = {'"': '"', "'": "'", "“": "”", "‘": "’", "”": "”"}


@dataclass(frozen=True)
class Fault:
    """Why a reply is no workflow, in words for the planner and the trace."""

    text: str


@dataclass(frozen=True)
class Lists:
    """The three lists as they were written: literals of any kind, not yet checked."""

    model_id: list[object]
    subtasks: list[object]
    access_list: list[object]


def parse(text: str) -> Lists | Fault:
    """The lists of a reply."""
    if len(text) > LIMIT:
        return Fault(f"the reply has {len(text)} characters; at most {LIMIT} are read")
    read = _lists(_bare(_aside(text)).replace(_MARK, "<"))
    other = _lists(_bare(text)) if isinstance(read, Fault) else read  # a thought that is no list ran into the plan
    return read if isinstance(other, Fault) else other


def _lists(said: str) -> Lists | Fault:
    """The lists of a reply without thoughts."""
    found: dict[str, list[object]] = {}
    at = 0
    while (label := _LABEL.search(said, at)) is not None:
        name = next(name for name in LABELS if label.group(name))
        start = label.start("list")
        end = _end(said, start)
        if end is None:
            return Fault(f"the list {name} does not end")
        if more := _MORE.match(said, end):
            return Fault(f"{name} goes on behind its list: {more.group().strip()!r}; every list is written out")
        value = literal(said[start:end], quoted='"' in label.group())
        if value is None:
            return Fault(f"{name} is not a list that can be read")
        if name in found and not _same(found[name], value):
            return Fault(f"{name} is given twice, with different values")
        found[name] = value
        at = end
    missing = [name for name in LABELS if name not in found]
    if missing:
        return Fault(f"there is no list {missing[0]}" if len(missing) < 3 else "there are no lists in it")
    return Lists(found["model_id"], found["subtasks"], found["access_list"])


def _aside(text: str) -> str:
    """`text` without the thought it begins with, tags in its lists marked: there they are what is to be done."""
    while begins := _THOUGHT.match(text.lstrip()):
        text = text.lstrip()[begins.end() :]
    parts, at = [], 0
    while (label := _LABEL.search(text, at)) and (end := _end(text, label.start("list"))) is not None:
        parts += [text[at : label.start()], _TAG.sub(rf"{_MARK}\1", text[label.start() : end])]
        at = end
    return "".join((*parts, text[at:]))


def _bare(text: str) -> str:
    """`text` without think blocks; one that was never closed takes everything after it along."""
    said = _THOUGHT.sub("\n", text)
    closings = list(_CLOSING.finditer(said))
    if closings:
        said = said[closings[-1].end() :]
    opening = _OPENING.search(said)
    return said[: opening.start()] if opening else said


def _same(one: list[object], other: list[object]) -> bool:
    return repr(one) == repr(other)


def _end(text: str, start: int) -> int | None:
    """The place after the bracket that closes the one at `start`; quotes are respected. None when there is none."""
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
    """The end of a comment: of its line."""
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _after_string(text: str, start: int) -> int | None:
    """The place after the string that begins at `start`, None when it does not end."""
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


def literal(text: str, *, quoted: bool = False) -> list[object] | None:
    """The list a bracketed text is: as a Python literal, as JSON, then both again with smart quotes made plain and
    bullets taken off. None when it is no list. `quoted`: its label was, so it is JSON first."""
    reads = (json.loads, ast.literal_eval) if quoted else (ast.literal_eval, json.loads)
    for form in dict.fromkeys((text, _plain(text), _plain(_BULLET.sub("", text)))):
        for read in reads:
            try:
                with warnings.catch_warnings(action="ignore"):  # odd escapes in a model's strings are no news
                    value = read(form)
                repr(value)  # a number of thousands of digits cannot be told
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(value, list):
                return value
    return None


def _plain(text: str) -> str:
    """Strings in smart quotes, or with line breaks in them, as JSON strings; the rest as it is."""
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
