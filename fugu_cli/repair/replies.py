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
    gone: list[Block] = []
    free: list[Block] = []
    lines, found = lines_of(text), blocks(text)
    if not found and whole and asked and functions(asked, text) and parses(asked, text):
        found = [
            Block("", text.strip("\n") + "\n", 0, len(lines), closed=True)
        ]  # the file without a fence
    for block in (block for block in found if block.body and (block.closed or whole)):
        named, body = _path_and_body(block, lines, shown, asked)
        path = named or _resembled(block, shown, asked)
        if not path or not body.strip():
            free.append(block)
            continue
        gone.append(_with_title(block, lines, path))
        if path not in files:
            files[path] = body
        elif named and (functions(path, body) or not functions(path, files[path])):
            files[path] = complete_file(path, files[path], body)
    if asked and not files and (answer := _answer(free, asked, shown.get(asked, ""))):
        files[asked] = answer.body
        gone.append(answer)
    gone.sort(key=lambda block: block.start)
    return ParsedReply(tuple(files.items()), without_blocks(text, gone))


def _answer(free: Sequence[Block], asked: str, old: str) -> Block | None:
    """The longest block that can be the file; of one that is there and written, one with functions
    to be added.
    """
    own = [block for block in free if not _is_shell(block) or asked.endswith(".sh")]
    if old and not is_stub(asked, old):
        own = [block for block in own if functions(asked, block.body) and functions(asked, old)]
    return max(own, key=lambda block: len(block.body), default=None)


def _path_and_body(
    block: Block, lines: Sequence[str], shown: Mapping[str, str], asked: str
) -> tuple[str, str]:
    """The file that the block says it is, by its info, the line above or a comment on top; "" where
    it says none.
    """
    title = _TITLE.fullmatch(block.body.split("\n")[0])
    known = title is not None and (
        title[1] in (*shown, asked) or (not asked and PATH.fullmatch(title[1]))
    )
    if title and known and not _is_shell(block):
        had = shown.get(title[1], "").startswith(block.body.split("\n")[0])
        return title[1], block.body if had else block.body.partition("\n")[2].lstrip("\n")
    near = [line for line in lines[max(0, block.start - 2) : block.start] if line.strip()]
    found = (
        ""
        if _is_shell(block)
        else path_in_info(block.info) or (path_in_words(near[-1]) if near else "")
    )
    return placed_path(found, shown, asked) if found else "", block.body


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
    alone = [bare] if _ODD.fullmatch(bare) or PATH.fullmatch(bare) else []
    found = set(quoted or alone or PATH.findall(_COMMAND.sub("", line)))
    return found.pop() if len(found) == 1 else ""


def placed_path(path: str, shown: Iterable[str], asked: str = "") -> str:
    """The file that is meant where a model leaves its folders out (`lib.rs` for `src/lib.rs`) or
    makes them up.
    """
    bare = path.removeprefix("./").removeprefix("path/to/")
    known = list(dict.fromkeys([asked, *shown] if asked else shown))
    same = [other for other in known if other == bare or other.endswith(f"/{bare}")]
    return path if path in known or not same or (len(same) > 1 and same[0] != asked) else same[0]


def _resembled(block: Block, shown: Mapping[str, str], asked: str) -> str:
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
    found = [
        widened(text, one)
        for one in blocks(text)
        if (one.info.split() or [""])[0].lower() in (*plain, asked.lower())
    ]
    old = shown.get(asked, "")
    best = max(found, key=lambda one: (similarity(old, one.body), len(one.body)), default=None)
    like = (
        best is not None and best.body.strip() and (not old or similarity(old, best.body) >= ALIKE)
    )
    return _with_title(best, lines_of(text), asked) if best and like else None


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


def stop_reason(prompt: Prompt, said: Sequence[str], shown: str) -> str:
    """Why nothing more of the reply is wanted after the newest piece of it; "" where it goes on."""
    if is_complete(prompt, said):
        return "stop"
    now = "\n" in said[-1] or not len(said) % 50
    return "length" if now and repeats_itself("".join(said), shown) else ""


def is_complete(prompt: Prompt, said: Sequence[str]) -> bool:
    """Nothing more is wanted: an ACCEPT where that is all that counts, or a block that has ended
    and holds the functions that were asked for."""
    if prompt.verdict:
        lead = leading_verdict("".join(said))
        return (
            lead is not None and lead.verdict == "ACCEPT" and bool(lead.rest)
        )  # else a word may go on
    if not prompt.target or not {"`", "\n"} & set(said[-1]):
        return False
    wanted = function_names(prompt.target, prompt.part or prompt.files.get(prompt.target, ""))
    ended = [block.body for block in blocks("".join(said)) if block.closed] if wanted else []
    return any(wanted <= function_names(prompt.target, body) for body in ended)


def repeats_itself(text: str, known: str = "") -> bool:
    """The text ends in repetitions of a passage, which `known` (what the model was shown) does not
    hold as well.
    """
    *done, rest = text.split("\n")
    for length in range(1, min(PASSAGE, len(done)) + 1):
        passage = done[-length:]
        times = ONCE if length == 1 else SEVERAL
        long = sum(len(line.strip()) for line in passage) >= ONCE  # brackets may close in a row
        if (
            long
            and done[-length * times :] == passage * times
            and "\n".join(passage * 3) not in known
        ):
            return True
    found = _WITHIN.search(rest[-1600:])
    return found is not None and bool(found[1].strip()) and found[1] * 12 not in known


def stops_of(path: str, shown: str) -> tuple[str, ...]:
    """Return the beginnings of code that only tries the file out: the reply may stop there.

    None of them is in what was shown. Every server takes four.
    """
    python = ("\ndef test", "\ndef check", "\nassert ", "\nprint(")
    marks = (
        python
        if comment_mark(path) == "#"
        else ("\n// Test", "\n// Example", "\nconsole.log(", "\nassert(")
    )
    return tuple(mark for mark in marks if mark not in f"\n{shown}")


def as_shown(content: str, shown: str) -> str:
    """`content` with the empty lines that the file `shown` begins with, and as it was where nothing
    but white space differs: a change of white space alone is nobody's work."""
    if [line.rstrip() for line in content.split("\n") if line.strip()] == [
        line.rstrip() for line in shown.split("\n") if line.strip()
    ]:
        return shown
    lead = shown[: len(shown) - len(shown.lstrip("\n"))]
    return content if content.startswith("\n") else lead + content
