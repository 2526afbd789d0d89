"""What a plain text asks to be written: whole files in fenced blocks and SEARCH/REPLACE edits, and which file each
means.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fugu_cli.messages import FromUser, Prompt
from fugu_cli.providers.code_blocks import FENCE, Block, blocks, lines_of, parses, similarity, widened, without_blocks
from fugu_cli.repair import code_structure
from fugu_cli.repair.code_structure import Definition, Import, is_stub, parse_python, with_parsable_elisions
from fugu_cli.repair.partial_files import complete_file
from fugu_cli.session.recognized_tests import TEST, code_among

_UNENDED = (
    r"(?:(?:Make|Docker|Proc|Jenkins|Vagrant|Gem|Rake|Just)file|LICEN[CS]E|CODEOWNERS"
    r"|\.(?:(?:git|docker|npm|prettier|eslint)ignore|gitattributes|gitmodules|editorconfig|(?:npm|nvm|yarn|prettier|eslint"
    r"|babel|pylint|coverage|bash|zsh|vim)rc|flake8|htaccess|mailmap|python-version|tool-versions|env(?:\.\w+)?"
    r"|[\w-]+\.(?:ya?ml|json|toml|cfg|ini)))"
)
"""Names that are surely files and have no ending, or nothing before it."""
PATH = re.compile(
    rf"(?<![\w./-])(?:[\w.-]+/)*[\w-][\w.-]*\.\w+(?![\w/])|(?<![\w./-])(?:[\w.-]+/)*{_UNENDED}(?![\w/-])(?!\.\w)"
)
"""What a path looks like in a sentence; anything odder goes in backticks or stands alone."""

QUOTED = re.compile(r"`([^`\s]+)`")
COMMAND = re.compile(r"`[^`]*\s[^`]*`")
"""A command in a sentence; the block below is what it prints, and not the file it names."""
_ENDING = (
    r"(?:pyi?|[mc]?[jt]s|[jt]sx|rs|go|java|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|scala|sh|sql|lua|toml|ini|cfg|ya?ml|json"
    r"|md|rst|txt|csv|html|css|vue|svelte)"
)
TITLE = re.compile(rf"(?:#|//|--|/\*|<!--) *`?((?:[\w.-]+/)*[\w-][\w.-]*\.{_ENDING})`?:? *(?:\*/|-->)?")
"""A comment that names the file below it and says nothing else."""

FILE = re.compile(rf"(?![A-Z]\w*\.js$)(?:.*/)?[\w-][\w.-]*\.{_ENDING}|(?:.*/)?{_UNENDED}")
"""Of what looks like a path, what surely is a file: no `Cart.add`, no `Node.js`."""


def path_above(lines: Sequence[str], start: int) -> str | None:
    """The path that the nearest of the two lines above `start` names."""
    near = [line for line in lines[max(0, start - 2) : start] if line.strip()]
    return path_in_words(near[-1]) if near else None


def path_in_info(info: str) -> str | None:
    for word in re.split(r"[\s:=\"']+", info):
        if "/" in word or "." in word:
            return word
    return None


def path_in_words(line: str) -> str | None:
    """The one path a line names; none where it names several, or where a sentence only happens to hold a dot."""
    quoted = [word for word in QUOTED.findall(line) if PATH.fullmatch(word)]
    plain = COMMAND.sub("", line)
    found = set(quoted or (path for path in PATH.findall(plain) if FILE.fullmatch(path) or is_only_path(line)))
    return found.pop() if len(found) == 1 else None


def is_only_path(line: str) -> bool:
    """The line is a path and nothing else but marks."""
    bare = line.strip().strip("#*`: ").strip()
    return PATH.fullmatch(bare) is not None and not re.fullmatch(r"[\d.]+", bare)


ALIKE = 0.3
"""Of 88 answers of the embedded models, those that solved their task had .7 or more in common with the file."""

ALONE = 0.7
"""The same of a reply that is taken for a file although nothing in it says so."""


def resembled_file(body: str, shown: Mapping[str, str], code: Sequence[str], *, sole: bool) -> str | None:
    """The `shown` file (path -> content) that the body is a new version of: enough lines are the same, and of no other
    file more; or, where `sole` says so, it is the only one of the `code` that has a function of the body."""
    likeness = {path: similarity(content, body) for path, content in shown.items()}
    best = max(likeness, key=lambda path: likeness[path], default=None)
    found = (
        [path for path in code if defined_functions(path, shown[path]) & defined_functions(path, body)] if sole else []
    )
    if best is not None and likeness[best] >= ALIKE and (best in code or len(found) != 1):
        return best
    return found[0] if len(found) == 1 else None


def unfenced_file(text: str, path: str, shown: Mapping[str, str]) -> str:
    """The file `path` that a reply without any fence is, and nothing else; "" where it is words or something else.

    Python has to be readable and to define something that the file has, where it is there; of other languages most
    lines have to be the file's own."""
    if not path or any(FENCE.fullmatch(line) for line in text.split("\n")):
        return ""
    body, old = text.strip("\n") + "\n", shown.get(path)
    names = defined_functions(path, body)
    if not names or (old is not None and not names & defined_functions(path, old)):
        return ""
    if path.endswith((".py", ".pyi")):
        return body
    return body if old is not None and similarity(old, body) >= ALONE else ""


def defined_functions(path: str, content: str) -> set[str]:
    """The names of all functions in the content of this file."""
    return {name for name, _, _ in code_structure.function_spans(path, content)}


def blocks_used_by(file: str, found: Sequence[Block]) -> list[Block]:
    """Of the blocks those of Python with definitions, and no more, that the Python `file` uses and does not have."""
    tree = parse_python(file)
    if tree is None:
        return []
    used = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
    own = {one.name for one in ast.walk(tree) if isinstance(one, Definition)}
    modules = [(block, parse_python(block.body)) for block in found]
    return [block for block, module in modules if module is not None and _only_defines(module, used - own)]


def _only_defines(module: ast.Module, wanted: set[str]) -> bool:
    names = {node.name for node in module.body if isinstance(node, Definition)}
    return bool(names & wanted) and all(isinstance(node, Definition | Import) for node in module.body)


SEARCH = re.compile(r"<{5,9} ?SEARCH>?\s*")
DIVIDER = re.compile(r"={5,9}\s*")
REPLACE = re.compile(r">{5,9} ?REPLACE<?\s*")
NOTHING: Mapping[str, str] = {}
_DOCUMENTS = {"", "text", "markdown", "md", "rst"}
"""The infos of blocks that may be a document; the first two may be anything."""
SCRIPTS = (".sh", ".bash", ".zsh")
SHELL = {"bash", "sh", "shell", "console", "zsh", "diff", "text", "output"}


@dataclass(frozen=True)
class SearchReplaceEdit:
    """One SEARCH/REPLACE block."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class ParsedEdits:
    """What a reply asks to be written: whole files (path, content), edits, and the words around them."""

    files: tuple[tuple[str, str], ...]
    edits: tuple[SearchReplaceEdit, ...]
    words: str


def parse_edits(
    text: str, *, shown: Mapping[str, str] = NOTHING, asked: str = "", whole: bool = True, joined: bool = True
) -> ParsedEdits:
    """What `text` asks to be written.

    A block without a path is the files whose paths stand in it, each as a comment alone on a line, the first on top;
    else the one of the files `shown` (path -> content) that it resembles: small models forget the path. Nothing
    resembles a stub or a new file: where one was `asked` for by name, the longest block is that file. `whole` is False
    where the reply was cut: its last, unclosed block is no file. Several blocks of one file are `joined`, or the last
    is the file; one that does not say which file it is takes nothing from one that did. Python that cannot be read is
    no new version of a file that can.
    """
    if whole and asked.endswith((".md", ".rst")) and (document := _document(text, asked, shown)) is not None:
        rest = parse_edits(without_blocks(text, [document]))
        others = [(path, body) for path, body in rest.files if path != asked]
        return ParsedEdits(((asked, document.body.strip("\n") + "\n"), *others), rest.edits, rest.words)
    edits, gone = _edits(text)
    files: dict[str, str] = {}
    told: set[str] = set()
    lines = lines_of(text)
    for block in blocks(text):
        inside = _overlaps(block, gone)
        begun = any(SEARCH.fullmatch(line) for line in lines[block.start : block.end])  # an edit without its end
        if inside or begun or not (block.closed or whole):
            continue
        meant, says = _meant(block, lines, shown, asked)
        meant = {
            path: body
            for path, body in meant.items()
            if (says or path not in told) and not _breaks(shown.get(path), path, body)
        }
        for path, body in meant.items():
            before = files.get(path) if joined and (path in told or not says) else None
            files[path] = body if before is None else _joined(path, before, body)
        if meant:
            told |= set(meant) if says else set()
            gone.append(_with_title(block, lines, next(iter(meant))))
    answer = _answer(text, asked, shown, whole) if asked and not files and not edits else None
    if answer is not None and not _breaks(shown.get(asked), asked, answer.body):
        files[asked] = answer.body
        gone.append(answer)
    if asked in shown and asked not in files:
        files = _redirected_files(files, shown, asked)
    if joined and asked in files:
        free = [block for block in blocks(text) if (block.closed or whole) and not _is_shell(block)]
        for block in blocks_used_by(files[asked], [one for one in free if not _overlaps(one, gone)]):
            files[asked] = complete_file(files[asked], block.body)
            gone.append(block)
    gone.sort(key=lambda block: block.start)
    return ParsedEdits(tuple(files.items()), tuple(edits), without_blocks(text, gone))


def _meant(block: Block, lines: Sequence[str], shown: Mapping[str, str], asked: str) -> tuple[dict[str, str], bool]:
    """Path -> content of the files that a block is, and whether it says so itself."""
    path = _path_of(block, lines)
    titled = {} if path else _titled(block, shown, asked)
    if titled:
        return {placed_path(own, shown, asked): body for own, body in titled.items()}, True
    old = shown if not asked or asked in shown else {}  # a new file resembles what it is about
    code = code_among(old)
    found = path or (
        "" if _is_shell(block) else resembled_file(block.body, old, code, sole=bool(asked) or len(code) > 1)
    )
    return {placed_path(found, shown, asked): block.body} if found else {}, path is not None


def _overlaps(block: Block, gone: Iterable[Block]) -> bool:
    return any(block.start < other.end and other.start < block.end for other in gone)


def _redirected_files(files: dict[str, str], shown: Mapping[str, str], asked: str) -> dict[str, str]:
    """The files, where one that is not there holds functions of the one that was asked for, under the latter's name."""
    found = [path for path in files if path not in shown and not TEST.search(path)]
    same = [path for path in found if defined_functions(asked, files[path]) & defined_functions(asked, shown[asked])]
    return {asked if path == same[0] else path: body for path, body in files.items()} if len(same) == 1 else files


def _joined(path: str, earlier: str, later: str) -> str:
    """Two blocks of one file: what the later leaves out stays. One without a function, where there were some, only
    shows how they are used."""
    both = complete_file(earlier, later)
    used = (
        both == later
        and code_structure.function_spans(path, earlier)
        and not code_structure.function_spans(path, later)
    )
    return earlier if used else both


def _breaks(old: str | None, path: str, new: str) -> bool:
    """A file of Python that could be read no longer can, whatever comments stand for code in it."""
    return (
        old is not None
        and path.endswith((".py", ".pyi"))
        and parses(old)
        and not parses(with_parsable_elisions(old, new))
    )


def _edits(text: str) -> tuple[list[SearchReplaceEdit], list[Block]]:
    lines = lines_of(text)
    edits: list[SearchReplaceEdit] = []
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
        path = _path_before(lines, number) or path
        if path is not None:
            old, new = "\n".join(lines[number + 1 : middle]), "\n".join(lines[middle + 1 : end])
            edits.append(SearchReplaceEdit(path, old, new))
            gone.append(_around(lines, number, end))
        number = end + 1
    return edits, gone


def _next(lines: Sequence[str], start: int, mark: re.Pattern[str]) -> int:
    return next((number for number in range(start, len(lines)) if mark.fullmatch(lines[number])), len(lines))


def _around(lines: Sequence[str], start: int, end: int) -> Block:
    """The lines of an edit with the fence and the path that belong to it."""
    first, last = start, end + 1
    while first > 0 and (lines[first - 1].startswith("```") or is_only_path(lines[first - 1])):
        first -= 1
    if last < len(lines) and lines[last].strip() == "```":
        last += 1
    return Block("", "", first, last, closed=True)


def _path_before(lines: Sequence[str], number: int) -> str | None:
    """The path named in a fence's info or in the nearest line above, at most three lines up."""
    for line in reversed(lines[max(0, number - 3) : number]):
        if line.startswith("```"):
            if path := path_in_info(line.strip("` ")):
                return path
        elif line.strip():
            return path_in_words(line)
    return None


def _path_of(block: Block, lines: Sequence[str]) -> str | None:
    if _is_shell(block) or not block.body:
        return None
    if path := path_in_info(block.info):
        return path
    return path_above(lines, block.start)


def _document(text: str, asked: str, shown: Mapping[str, str]) -> Block | None:
    """The document in a reply, whatever fences are in it: the block that is named, else the one that resembles what is
    there or, where nothing is, says that it is a document, else one that is all of the reply. Left open it has to say
    what it begins."""
    lines = lines_of(text)
    found: list[tuple[tuple[bool, bool], Block]] = []
    for block in blocks(text):
        first, kind = block.start, (block.info.split() or [""])[0].lower()
        while first and (
            not lines[first - 1].strip() or (is_only_path(lines[first - 1]) and asked in lines[first - 1])
        ):
            first -= 1
        wide = widened(text, block)
        if any(SEARCH.fullmatch(line) for line in lines_of(wide.body)) or not (wide.closed or kind):
            continue
        said = asked in block.info or (kind in _DOCUMENTS and path_above(lines, block.start) == asked)
        told = kind in _DOCUMENTS - {"", "text"} or lines[block.start].startswith("````")
        near = similarity(shown[asked], wide.body) >= ALIKE if asked in shown else told
        alone = first == 0 and not "".join(lines[wide.end :]).strip()
        if wide.body.strip() and (said or (kind in _DOCUMENTS and (near or alone))):
            found.append(((said, near), Block(wide.info, wide.body, first, wide.end, wide.closed)))
    return max(found, key=lambda one: one[0], default=(None, None))[1]


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


def _answer(text: str, asked: str, shown: Mapping[str, str], whole: bool) -> Block | None:
    """The block that is the file although it does not say so: a shell script's the one that says what runs it, else the
    only one, unless that is how it is called; of a file that is still to be written the longest."""
    if not asked.endswith(SCRIPTS):
        return _longest(text, whole) if is_stub(shown.get(asked, "")) else None
    found = [block for block in blocks(text) if block.closed or whole]
    begun = [block for block in found if block.body.lstrip().startswith("#!")]
    own = [block for block in found if not re.search(rf"(?:\./|sh\s+){re.escape(asked)}", block.body)]
    return next(iter(begun or (own if len(found) == 1 else [])), None)


def _longest(text: str, whole: bool) -> Block | None:
    """The longest block that could be a file."""
    found = [block for block in blocks(text) if block.body and not _is_shell(block) and (block.closed or whole)]
    plain = [block for block in found if not any(SEARCH.fullmatch(line) for line in lines_of(block.body))]
    return max(plain, key=lambda block: len(block.body), default=None)


def shown_files(prompt: Prompt) -> dict[str, str]:
    """The files that the user's side of the prompt shows in blocks with their paths; as the last shows them."""
    texts = [message.text for message in prompt.messages if isinstance(message, FromUser)]
    return dict(parse_edits("\n".join(texts), joined=False).files)


def placed_path(path: str, shown: Iterable[str], asked: str = "") -> str:
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


def rewrite_token_limit(most: int, *contents: str) -> int:
    """Tokens for new versions of `contents`, at most `most`: three times what they take now, 512 for small ones; where
    they are still to be written, all.

    Small models that have lost the thread repeat themselves until they are cut: two minutes of nothing.
    """
    if any(map(is_stub, contents)):
        return most
    return min(most, max(512, sum(len(content) for content in contents)))


def _is_shell(block: Block) -> bool:
    return (block.info.split() or [""])[0].lower() in SHELL


def _with_title(block: Block, lines: Sequence[str], path: str) -> Block:
    """The block and the line above it, where that only names the file."""
    above = block.start - 1
    if above >= 0 and is_only_path(lines[above]) and path in lines[above]:
        return Block(block.info, block.body, above, block.end, block.closed)
    return block
