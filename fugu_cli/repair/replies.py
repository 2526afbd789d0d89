"""Parses a plain-text reply: files in fenced blocks, the file that each means, and where the reply
may stop.

Uses splicing.py. Does not know why something is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fugu_cli.messages import Prompt
from fugu_cli.providers.code_blocks import (
    Block,
    blocks,
    lines_of,
    similarity,
    widened,
    without_blocks,
)
from fugu_cli.repair.splicing import complete_file
from fugu_cli.repair.syntax import comment_mark, function_names, functions, is_stub, parses
from fugu_cli.session.turns import leading_verdict

_CODE = "pyi?|[mc]?[jt]s|[jt]sx|rs|go|java|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|scala|sh|html?|css|sql|vue|svelte"
CODE_ENDING = re.compile(rf"\.(?:{_CODE})")
ENDINGS = f"{_CODE}|toml|json|ya?ml|ini|cfg|md|rst|txt|csv"
PATH = re.compile(
    rf"(?<![\w./@-])@?((?:[\w.@+~-]*/)*(?![A-Z]\w*\.js\b)[\w.@+-]+\.(?:{ENDINGS})"
    r"|(?:[\w.-]+/)*(?:Makefile|Dockerfile|LICEN[CS]E|\.\w+ignore))(?![\w/-])(?!\.\w)"
)
"""A file in a sentence. Anything odder stands in backticks or alone on its line."""
_ODD = re.compile(r"(?:[\w.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w*")
_TITLE = re.compile(
    r"[^\w\n]*(?:(?:The|Of the) file\s+)?`?([\w./-]+\.\w+|[\w./-]*/[\w.-]+)`?:?[^\w\n]*"
)
"""A comment that names the file below it and says nothing else."""
_COMMAND = re.compile(r"`[^`]*\s[^`]*`")
_SHELL = {"bash", "sh", "shell", "console", "zsh", "diff", "output"}
DOCUMENTS = (".md", ".markdown", ".rst", ".adoc", ".txt")

ALIKE = 0.3
"""The least similarity (0 to 1) of a block to the file that it is a new version of."""
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class ParsedReply:
    """The files (path, content) that a reply wants written, and the words around them."""

    files: tuple[tuple[str, str], ...]
    words: str


def parse_reply(
    text: str, *, shown: Mapping[str, str] = NOTHING, asked: str = "", whole: bool = True
) -> ParsedReply:
    """Return the files that `text` wants written.

    A block without a path means the most similar file of `shown` (path -> content), because small
    models forget the path. If a new or longer file was `asked` for, the longest block is that file.
    `whole` is False for a cut reply: its last, unclosed block is no file. Later blocks of one file
    are merged into the first.
    """
    if whole and asked.endswith(DOCUMENTS) and (document := _document(text, asked, shown)):
        rest = parse_reply(without_blocks(text, [document]))
        others = [(path, body) for path, body in rest.files if path != asked]
        return ParsedReply(((asked, document.body.strip("\n") + "\n"), *others), rest.words)
    files: dict[str, str] = {}
    used: list[Block] = []
    unnamed: list[Block] = []
    lines, fenced_blocks = lines_of(text), blocks(text)
    if not fenced_blocks and whole and asked and functions(asked, text) and parses(asked, text):
        fenced_blocks = [
            Block("", text.strip("\n") + "\n", 0, len(lines), closed=True)
        ]  # the file without a fence
    for block in (block for block in fenced_blocks if block.body and (block.closed or whole)):
        named, body = _path_and_body(block, lines, shown, asked)
        path = named or _most_similar_file(block, shown, asked)
        if not path or not body.strip():
            unnamed.append(block)
            continue
        used.append(_with_title(block, lines, path))
        if path not in files:
            files[path] = body
        elif named and (functions(path, body) or not functions(path, files[path])):
            files[path] = complete_file(path, files[path], body)
    if asked and not files and (answer := _answer(unnamed, asked, shown.get(asked, ""))):
        files[asked] = answer.body
        used.append(answer)
    used.sort(key=lambda block: block.start)
    return ParsedReply(tuple(files.items()), without_blocks(text, used))


def _answer(unnamed: Sequence[Block], asked: str, old: str) -> Block | None:
    """The longest block that can be the file; of one that is there and written, one with functions
    to be added.
    """
    candidates = [block for block in unnamed if not _is_shell(block) or asked.endswith(".sh")]
    if old and not is_stub(asked, old):
        candidates = [
            block for block in candidates if functions(asked, block.body) and functions(asked, old)
        ]
    return max(candidates, key=lambda block: len(block.body), default=None)


def _path_and_body(
    block: Block, lines: Sequence[str], shown: Mapping[str, str], asked: str
) -> tuple[str, str]:
    """The file that the block says it is, by its info, the line above or a comment on top; "" where
    it says none.
    """
    title = _TITLE.fullmatch(block.body.split("\n")[0])
    names_file = title is not None and (
        title[1] in (*shown, asked) or (not asked and PATH.fullmatch(title[1]))
    )
    if title and names_file and not _is_shell(block):
        is_in_file = shown.get(title[1], "").startswith(block.body.split("\n")[0])
        return title[1], block.body if is_in_file else block.body.partition("\n")[2].lstrip("\n")
    lines_above = [line for line in lines[max(0, block.start - 2) : block.start] if line.strip()]
    name = (
        ""
        if _is_shell(block)
        else path_in_info(block.info) or (path_in_words(lines_above[-1]) if lines_above else "")
    )
    return placed_path(name, shown, asked) if name else "", block.body


def path_in_info(info: str) -> str:
    """The path in the words behind a fence; "" without one."""
    return next((word for word in re.split(r"[\s:=\"']+", info) if "/" in word or "." in word), "")


def path_in_words(line: str) -> str:
    """The one path that a line names; "" where it names none or several. A command names none."""
    quoted = [
        word
        for word in re.findall(r"`([^`\s]+)`", line)
        if _ODD.fullmatch(word) or PATH.fullmatch(word)
    ]
    bare = line.strip().strip("#*`: ").strip()
    whole_line = [bare] if _ODD.fullmatch(bare) or PATH.fullmatch(bare) else []
    paths = set(quoted or whole_line or PATH.findall(_COMMAND.sub("", line)))
    return paths.pop() if len(paths) == 1 else ""


def placed_path(path: str, shown: Iterable[str], asked: str = "") -> str:
    """The file that is meant where a model leaves its folders out (`lib.rs` for `src/lib.rs`) or
    makes them up.
    """
    bare = path.removeprefix("./").removeprefix("path/to/")
    paths = list(dict.fromkeys([asked, *shown] if asked else shown))
    matches = [
        candidate for candidate in paths if candidate == bare or candidate.endswith(f"/{bare}")
    ]
    return (
        path
        if path in paths or not matches or (len(matches) > 1 and matches[0] != asked)
        else matches[0]
    )


def _most_similar_file(block: Block, shown: Mapping[str, str], asked: str) -> str:
    """The `shown` file that the block is a new version of: many lines are the same, or only this
    one has a function of it."""
    if _is_shell(block) or (asked and asked not in shown):
        return ""
    best = max(shown, key=lambda path: similarity(shown[path], block.body), default="")
    if best and similarity(shown[best], block.body) >= ALIKE:
        return best
    same = [
        path
        for path, text in shown.items()
        if function_names(path, text) & function_names(path, block.body)
    ]
    return same[0] if len(same) == 1 else asked if asked in same else ""


def _document(text: str, asked: str, shown: Mapping[str, str]) -> Block | None:
    """The document in a reply, with the pairs of fences that it holds: the block that is most like
    what is there or, where nothing is, the longest one."""
    plain = ("", "text", "markdown", "md", "rst")
    documents = [
        widened(text, block)
        for block in blocks(text)
        if (block.info.split() or [""])[0].lower() in (*plain, asked.lower())
    ]
    old = shown.get(asked, "")
    best = max(
        documents, key=lambda block: (similarity(old, block.body), len(block.body)), default=None
    )
    is_similar = (
        best is not None and best.body.strip() and (not old or similarity(old, best.body) >= ALIKE)
    )
    return _with_title(best, lines_of(text), asked) if best and is_similar else None


def _is_only_path(line: str) -> bool:
    bare = line.strip().strip("#*`: ").strip()
    return _ODD.fullmatch(bare) is not None or PATH.fullmatch(bare) is not None


def _is_shell(block: Block) -> bool:
    return (block.info.split() or [""])[0].lower() in _SHELL


def _with_title(block: Block, lines: Sequence[str], path: str) -> Block:
    """The block and the line above it, where that only names the file."""
    above = block.start - 1
    if above >= 0 and _is_only_path(lines[above]) and path in lines[above]:
        return Block(block.info, block.body, above, block.end, block.closed)
    return block


PASSAGE, ONCE, SEVERAL = 6, 8, 5
"""Lines of a passage that may be repeated; how often a line, and a passage of several, stands there
in a row.
"""
_WITHIN = re.compile(r"(?s)(.{2,40}?)\1{24,}.{0,40}\Z")


def stop_reason(prompt: Prompt, pieces: Sequence[str], shown: str) -> str:
    """Why nothing more of the reply is wanted after the newest piece of it; "" where it goes on."""
    if is_complete(prompt, pieces):
        return "stop"
    check_repetition = "\n" in pieces[-1] or not len(pieces) % 50
    return "length" if check_repetition and repeats_itself("".join(pieces), shown) else ""


def is_complete(prompt: Prompt, pieces: Sequence[str]) -> bool:
    """Nothing more is wanted: an ACCEPT where that is all that counts, or a block that has ended
    and holds the functions that were asked for."""
    if prompt.verdict:
        lead = leading_verdict("".join(pieces))
        return (
            lead is not None and lead.verdict == "ACCEPT" and bool(lead.rest)
        )  # else a word may go on
    if not prompt.target or not {"`", "\n"} & set(pieces[-1]):
        return False
    names = function_names(prompt.target, prompt.part or prompt.files.get(prompt.target, ""))
    bodies = [block.body for block in blocks("".join(pieces)) if block.closed] if names else []
    return any(names <= function_names(prompt.target, body) for body in bodies)


def repeats_itself(text: str, shown: str = "") -> bool:
    """The text ends in repetitions of a passage, which `shown` (what the model was shown) does not
    hold as well.
    """
    *lines, rest = text.split("\n")
    for length in range(1, min(PASSAGE, len(lines)) + 1):
        passage = lines[-length:]
        times = ONCE if length == 1 else SEVERAL
        is_long = sum(len(line.strip()) for line in passage) >= ONCE  # brackets may close in a row
        if (
            is_long
            and lines[-length * times :] == passage * times
            and "\n".join(passage * 3) not in shown
        ):
            return True
    match = _WITHIN.search(rest[-1600:])
    return match is not None and bool(match[1].strip()) and match[1] * 12 not in shown


def stops_of(path: str, shown: str) -> tuple[str, ...]:
    """Return the beginnings of code that only tries the file out: the reply may stop there.

    None of them is in what was shown. Every server takes four.
    """
    python = ("\ndef test", "\ndef check", "\nassert ", "\nprint(")
    beginnings = (
        python
        if comment_mark(path) == "#"
        else ("\n// Test", "\n// Example", "\nconsole.log(", "\nassert(")
    )
    return tuple(beginning for beginning in beginnings if beginning not in f"\n{shown}")


def as_shown(content: str, shown: str) -> str:
    """`content` with the empty lines that the file `shown` begins with, and as it was where nothing
    but white space differs: a change of white space alone is nobody's work."""
    if [line.rstrip() for line in content.split("\n") if line.strip()] == [
        line.rstrip() for line in shown.split("\n") if line.strip()
    ]:
        return shown
    lead = shown[: len(shown) - len(shown.lstrip("\n"))]
    return content if content.startswith("\n") else lead + content
