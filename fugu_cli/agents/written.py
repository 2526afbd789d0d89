"""What a plain text asks to be written: whole files in fenced blocks, and SEARCH/REPLACE edits.

Stands under the protocols for models without tools, over fences.py. Pure. It must not know roles or tools: it says
which file a block means, and leaves it to the protocol whether that is a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fugu_cli.agents.fences import Block, alike, blocks, lines_of, without
from fugu_cli.messages import FromUser, Prompt
from fugu_cli.stubs import is_stub

PATH = re.compile(
    r"(?<![\w./-])(?:[\w.-]+/)*[\w-][\w.-]*\.\w+(?![\w/])|(?<![\w./-])(?:[\w.-]+/)*(?:Makefile|Dockerfile)\b"
)
"""What a path looks like in a sentence; anything odder goes in backticks or stands alone."""

QUOTED = re.compile(r"`([^`\s]+)`")
COMMAND = re.compile(r"`[^`]*\s[^`]*`")
"""A command in a sentence; the block below is what it prints, and not the file it names."""
SEARCH = re.compile(r"<{5,9} ?SEARCH>?\s*")
DIVIDER = re.compile(r"={5,9}\s*")
REPLACE = re.compile(r">{5,9} ?REPLACE<?\s*")
TEST = re.compile(
    r"(^|/)(tests?|specs?|__tests__)/|(^|/)(test_|conftest)|_(test|spec)\.|[.-](test|spec)\.|Tests?\.(java|kt|cs|php|swift)$"
)
ALIKE = 0.3
"""Of 88 answers of the embedded models, those that solved their task had .7 or more in common with the file."""

_ENDING = (
    r"(?:pyi?|[mc]?[jt]s|[jt]sx|rs|go|java|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|scala|sh|sql|lua|toml|ini|cfg|ya?ml|json"
    r"|md|rst|txt|csv|html|css|vue|svelte)"
)
TITLE = re.compile(rf"(?:#|//|--|/\*|<!--) *`?((?:[\w.-]+/)*[\w-][\w.-]*\.{_ENDING})`?:? *(?:\*/|-->)?")
"""A comment that names the file below it and says nothing else."""

FILE = re.compile(rf"(?![A-Z]\w*\.js$)(?:.*/)?[\w-][\w.-]*\.{_ENDING}|(?:.*/)?(?:Makefile|Dockerfile)")
"""Of what looks like a path, what surely is a file: no `Cart.add`, no `Node.js`."""

NOTHING: Mapping[str, str] = {}
SHELL = {"bash", "sh", "shell", "console", "zsh", "diff", "text", "output"}


@dataclass(frozen=True)
class Edit:
    """One SEARCH/REPLACE block."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Written:
    """What a reply asks to be written: whole files (path, content), edits, and the words around them."""

    files: tuple[tuple[str, str], ...]
    edits: tuple[Edit, ...]
    words: str


def parse(text: str, *, shown: Mapping[str, str] = NOTHING, asked: str = "", whole: bool = True) -> Written:
    """What `text` asks to be written.

    A block without a path is the files whose paths stand in it, each as a comment alone on a line, the first on top;
    else the one of the files `shown` (path -> content) that it resembles: small models forget the path. Nothing
    resembles a stub or a new file: where one was `asked` for by name, the longest block is that file. `whole` is False
    where the reply was cut: its last, unclosed block is no file.
    """
    if asked.endswith((".md", ".rst")) and (document := _document(text, asked)) and whole:
        return Written(((asked, document),), (), "")
    edits, gone = _edits(text)
    files: dict[str, str] = {}
    lines = lines_of(text)
    for block in blocks(text):
        inside = any(block.start < other.end and other.start < block.end for other in gone)
        path = _path_of(block, lines)
        titled = {} if path else _titled(block, shown, asked)
        old = shown if not asked or asked in shown else {}  # a new file resembles what it is about
        path = path or next(iter(titled), None) or _resembled(block, old)
        path = path and placed(path, shown, asked)
        begun = any(SEARCH.fullmatch(line) for line in lines[block.start : block.end])  # an edit without its end
        if inside or begun or path is None or not (block.closed or whole):
            continue
        files |= {placed(own, shown, asked): body for own, body in titled.items()} or {path: block.body}
        gone.append(_with_title(block, lines, path))
    answers = asked and is_stub(shown.get(asked, "")) and not files and not edits
    if answers and (answer := _longest(text, whole)) is not None:
        files[asked] = answer.body
        gone.append(answer)
    gone.sort(key=lambda block: block.start)
    return Written(tuple(files.items()), tuple(edits), without(text, gone))


def _edits(text: str) -> tuple[list[Edit], list[Block]]:
    lines = lines_of(text)
    edits: list[Edit] = []
    gone: list[Block] = []
    number, path = 0, None
    while number < len(lines):
        if not SEARCH.fullmatch(lines[number]):
            number += 1
            continue
        middle = _next(lines, number + 1, DIVIDER)
        end = _next(lines, middle + 1, REPLACE)
        if end >= len(lines):
            break
        named = _path_before(lines, number)
        path = named or path
        if path is not None:
            old, new = "\n".join(lines[number + 1 : middle]), "\n".join(lines[middle + 1 : end])
            edits.append(Edit(path, old, new))
            gone.append(_around(lines, number, end))
        number = end + 1
    return edits, gone


def _next(lines: Sequence[str], start: int, mark: re.Pattern[str]) -> int:
    return next((number for number in range(start, len(lines)) if mark.fullmatch(lines[number])), len(lines))


def _around(lines: Sequence[str], start: int, end: int) -> Block:
    """The lines of an edit with the fence and the path that belong to it."""
    first, last = start, end + 1
    while first > 0 and (lines[first - 1].startswith("```") or _alone(lines[first - 1])):
        first -= 1
    if last < len(lines) and lines[last].strip() == "```":
        last += 1
    return Block("", "", first, last, closed=True)


def _path_before(lines: Sequence[str], number: int) -> str | None:
    """The path named in a fence's info or in the nearest line above, at most three lines up."""
    for line in reversed(lines[max(0, number - 3) : number]):
        if line.startswith("```"):
            if path := _path_in_info(line.strip("` ")):
                return path
        elif line.strip():
            return _path_in(line)
    return None


def _path_of(block: Block, lines: Sequence[str]) -> str | None:
    if _is_shell(block) or not block.body:
        return None
    if path := _path_in_info(block.info):
        return path
    above = [line for line in lines[max(0, block.start - 2) : block.start] if line.strip()]
    return _path_in(above[-1]) if above else None


def _document(text: str, asked: str) -> str:
    """A reply that is one document in a fence from its first line to its last, whatever fences are in it; else ""."""
    lines = lines_of(text.strip())
    if _alone(lines[0]) and asked in lines[0]:
        lines = lines_of("\n".join(lines[1:]).strip())
    opening = re.fullmatch(r"`{3,}\s*(markdown|md|rst|text)?", lines[0])
    inner = lines[1:]
    if sum(line.startswith("```") for line in inner) % 2:  # the others come in pairs
        closed = inner.pop() == "```"
    else:
        closed = opening is not None and bool(opening.group(1))  # left open by a model that says what it begins
    return "\n".join(inner).strip("\n") + "\n" if opening and closed and inner else ""


def _titled(block: Block, shown: Mapping[str, str], asked: str) -> dict[str, str]:
    """Path -> content of the files in one block, each below a comment that is its path; a file that had it keeps it.

    {} where the block begins otherwise, or where one file was `asked` for and these are others.
    """
    found: dict[str, list[str]] = {}
    path = ""
    for line in lines_of(block.body):
        if title := TITLE.fullmatch(line):
            path = title.group(1)
            found[path] = [line] if shown.get(path, "").lstrip("\n").startswith(line) else []
        elif not path:
            return {}
        else:
            found[path].append(line)
    if _is_shell(block) or (asked and set(found) != {asked}):
        return {}
    return {path: "\n".join(body).strip("\n") + "\n" for path, body in found.items() if "".join(body).strip()}


def _longest(text: str, whole: bool) -> Block | None:
    """The longest block that could be a file."""
    found = [block for block in blocks(text) if block.body and not _is_shell(block) and (block.closed or whole)]
    plain = [block for block in found if not any(SEARCH.fullmatch(line) for line in lines_of(block.body))]
    return max(plain, key=lambda block: len(block.body), default=None)


def _resembled(block: Block, shown: Mapping[str, str]) -> str | None:
    """The shown file that the block is a new version of: enough lines are the same, and of no other file more."""
    if _is_shell(block):
        return None
    likeness = {path: alike(content, block.body) for path, content in shown.items()}
    best = max(likeness, key=lambda path: likeness[path], default=None)
    return best if best is not None and likeness[best] >= ALIKE else None


def code_among(paths: Iterable[str]) -> list[str]:
    """Those that are no tests: what a fix may change."""
    return [path for path in paths if not TEST.search(path)]


def shown_files(prompt: Prompt) -> dict[str, str]:
    """The files that the user's side of the prompt shows in blocks with their paths."""
    texts = [message.text for message in prompt.messages if isinstance(message, FromUser)]
    return dict(parse("\n".join(texts)).files)


def placed(path: str, shown: Iterable[str], asked: str = "") -> str:
    """The file that is meant where a model leaves its folders out (`lib.rs` for `src/lib.rs`) or makes them up."""
    bare = path.removeprefix("./").removeprefix("path/to/")
    known = list(dict.fromkeys([asked, *shown] if asked else shown))
    same = [other for other in known if other == bare or other.endswith(f"/{bare}")]
    return path if path in known or not same or (len(same) > 1 and same[0] != asked) else same[0]


def as_shown(content: str, shown: str) -> str:
    """`content` with the empty lines that the file `shown` begins with, and as it was where nothing but empty lines and
    white space at line ends differs: models drop both, and a change of white space alone is nobody's work."""
    if [line.rstrip() for line in content.split("\n") if line.strip()] == [
        line.rstrip() for line in shown.split("\n") if line.strip()
    ]:
        return shown
    lead = shown[: len(shown) - len(shown.lstrip("\n"))]
    return content if content.startswith("\n") else lead + content


def room(most: int, *contents: str) -> int:
    """Tokens for new versions of `contents`, at most `most`: three times what they take now, 512 for small ones; where
    they are still to be written, all.

    Small models that have lost the thread repeat themselves until they are cut: two minutes of nothing.
    """
    if any(map(is_stub, contents)):
        return most
    return min(most, max(512, sum(len(content) for content in contents)))


def _is_shell(block: Block) -> bool:
    return (block.info.split() or [""])[0].lower() in SHELL


def _path_in_info(info: str) -> str | None:
    for word in re.split(r"[\s:=\"']+", info):
        if "/" in word or "." in word:
            return word
    return None


def _path_in(line: str) -> str | None:
    """The one path a line names; none where it names several, or where a sentence only happens to hold a dot."""
    quoted = [word for word in QUOTED.findall(line) if PATH.fullmatch(word)]
    plain = COMMAND.sub("", line)
    found = set(quoted or (path for path in PATH.findall(plain) if FILE.fullmatch(path) or _alone(line)))
    return found.pop() if len(found) == 1 else None


def _alone(line: str) -> bool:
    """The line is a path and nothing else but marks."""
    bare = line.strip().strip("#*`: ").strip()
    return PATH.fullmatch(bare) is not None and not re.fullmatch(r"[\d.]+", bare)


def _with_title(block: Block, lines: Sequence[str], path: str) -> Block:
    """The block and the line above it, where that only names the file."""
    above = block.start - 1
    if above >= 0 and _alone(lines[above]) and path in lines[above]:
        return Block(block.info, block.body, above, block.end, block.closed)
    return block
