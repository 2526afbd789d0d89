"""Files that a request means without naming them: by the names in it, by its words, or all of a small repository.

Below localization.py, for small models: they have no tool to look around with, and without a file in sight they can
only invent one. Reads files, runs nothing; what it reads is bounded.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from fugu_cli.repair import intent
from fugu_cli.test_paths import is_test
from fugu_cli.tools import tree

CODE = re.compile(
    r".*\.(?:pyi?|[mc]?js|tsx?|jsx|rs|go|java|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|scala|sh|html?|s?css|vue|svelte|sql)"
)
FILES, LARGEST, ALL = 1000, 60_000, 4_000_000
"""Files looked into, bytes of one, characters of all."""
SMALL = 6000
"""Characters of a repository that is shown whole: some 1,800 tokens."""
MOST = 4
ABOUT, WORKED_OUT = 0.34, 0.5
"""Of a question's own words, the part that a file holds which it is about; and of one that gives figures. Of 150 word
problems, asked in 27 repositories of exercises, none had as many."""
LONG = 7
"""Own words of a question that says by itself what it is about."""

_QUOTED = re.compile(r"`([^`\s]+)`")
_NAME = re.compile(r"\b(?:[A-Za-z]\w*_\w+|[a-z]+[a-z0-9]*[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*|[A-Za-z_]\w*(?=\())")
_FIGURE = re.compile(r"(?<![\w.:])\d+\b(?![\w.:]\w)")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{2,}")
_OF_CODE = re.compile(
    r"\b(?:this|it|here|my|our|code|projects?|repo(?:sitory)?|programs?|scripts?|apps?|server|modules?|packages?|files?"
    r"|functions?|class(?:es)?|methods?|tests?|bugs?|install|start|run|use|used|usage|api|cli|commands?|library|tool)\b",
    re.IGNORECASE,
)
_DEFINED = r"\b(?:def|class|fn|func|function|struct|enum|trait|interface|type|const|let|var|module|impl)\s+{}\b"


def meant(request: str, root: Path) -> list[Path]:
    """The likeliest first, at most `MOST`, tests after the rest; [] where nothing in the repository answers to it."""
    texts = _texts(root)
    names = {*_QUOTED.findall(request), *_NAME.findall(request)}
    found = _by_names({name.rstrip("()") for name in names}, texts) or _by_words(request, texts, root)
    if not found and sum(map(len, texts.values())) <= SMALL and not _stands_alone(request):
        found = list(texts)
    found.sort(key=lambda path: is_test(path.relative_to(root).as_posix()))
    return found[:MOST]


def _texts(root: Path) -> dict[Path, str]:
    """The code of the repository, as far as the bounds go; empty files left out."""
    texts: dict[Path, str] = {}
    room = ALL
    for path in tree.files(root, limit=5000):
        if not CODE.fullmatch(path.name) or len(texts) == FILES or room <= 0:
            continue
        try:
            text = path.read_text(encoding="utf-8", errors="replace") if 0 < path.stat().st_size <= LARGEST else ""
        except OSError:
            continue
        if text:
            texts[path] = text
            room -= len(text)
    return texts


def _by_names(names: set[str], texts: Mapping[Path, str]) -> list[Path]:
    """Files that hold one of the names: those that define it first, then by how often they do."""
    ranks: list[tuple[int, int, Path]] = []
    uses = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in names)) if names else None
    defines = re.compile("|".join(_DEFINED.format(re.escape(name)) for name in names)) if names else None
    for path, text in texts.items():
        if uses is not None and defines is not None and (count := len(uses.findall(text))):
            ranks.append((-len(defines.findall(text)), -count, path))
    return [path for _, _, path in sorted(ranks)]


def _by_words(request: str, texts: Mapping[Path, str], root: Path) -> list[Path]:
    """Files that hold the request's words, rare words counting most, and words of the path twice."""
    wanted = {_stem(word) for word in _WORD.findall(request)} - COMMON
    words = {
        path: (
            wanted & {_stem(word) for word in _WORD.findall(text)},
            wanted & {_stem(word) for word in _WORD.findall(path.relative_to(root).as_posix())},
        )
        for path, text in texts.items()
    }
    if intent.is_self_contained(request):
        part = WORKED_OUT if len(_FIGURE.findall(request)) > 1 else ABOUT
        words = {path: held for path, held in words.items() if len(held[0] | held[1]) >= len(wanted) * part}
    held = Counter(word for inside, named in words.values() for word in inside | named)
    least = 0.1 if len(texts) <= MOST else 0.0
    rarity = {word: least + math.log(1 + len(texts) / count) - math.log(2) for word, count in held.items()}
    scores = {
        path: sum(rarity[word] for word in inside) + sum(2 * rarity[word] for word in named)
        for path, (inside, named) in words.items()
    }
    best = max(scores.values(), default=0.0)
    return sorted((path for path in scores if scores[path] > best / 2), key=lambda path: (-scores[path], path))


def _stands_alone(request: str) -> bool:
    """A question that has words of its own, too many to be about a repository that knows none of them, or none that
    speaks of code."""
    own = {_stem(word) for word in _WORD.findall(request)} - COMMON
    if not own or not intent.is_self_contained(request):
        return False
    return len(own) >= LONG or not _OF_CODE.search(request)


def _stem(word: str) -> str:
    """Case and the commonest endings aside: `rounds`, `rounded` and `Rounding` are the same word."""
    plain = word.lower()
    ending = next((end for end in ("ing", "ed", "s") if plain.endswith(end) and len(plain) - len(end) >= 3), "")
    return plain[: len(plain) - len(ending)].rstrip("e")


_SAID_ANYWAY = """
the and for with that this from into not all any each every some are was has have does should must can
please you its what which where who how why when one new only also use there then than add fix make write
create update change rename remove delete implement file function class method code test fail pass run
everywhere describe explain repository project package example works
more many much other others they them their his her him she had were been being there would could often only just
our out over under again some such same very too both after before about how most between each per total
"""
COMMON = frozenset(map(_stem, _WORD.findall(_SAID_ANYWAY)))
"""Words that say nothing of which file is meant."""
