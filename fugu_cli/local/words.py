"""Guesses from the words of a request what a small model has to do, since such a model cannot be
asked. No other module reads a request.
"""

from __future__ import annotations

import re

from fugu_cli.tools.grammars import SOURCE_ENDINGS

_PATH = re.compile(r"(?<![\w/@-])(?:[\w.@+~-]*/)*[\w.@+-]+\.\w+(?![\w/-])")
_DOCUMENTS = {
    "md",
    "rst",
    "txt",
    "toml",
    "json",
    "yaml",
    "yml",
    "ini",
    "cfg",
    "sh",
    "html",
    "css",
    "sql",
}
_ENDINGS = SOURCE_ENDINGS | _DOCUMENTS
_POLITE = r"\s*(?:please\s+|can you\s+|could you\s+|would you\s+)?"
_QUESTION = re.compile(
    _POLITE + r"(?:what|why|how|where|who|which|when|explain|describe|summari[sz]e|list|show|tell"
    r"|review|analy[sz]e|suggest|is|are|was|were|does|do|did|has|have|hi|hello|thanks?)\b",
    re.IGNORECASE,
)
_ABOUT_TESTS = re.compile(
    r"\b(?:tests?|pytest|unittest|fail(?:s|ed|ing|ure)?|fix(?:es|ed|ing)?|bugs?|broken|breaks?"
    r"|crash(?:es|ed)?|errors?|exceptions?|traceback|regression|implement(?:s|ed|ing)?|repair)\b",
    re.IGNORECASE,
)
_NEW_TESTS = re.compile(
    r"\b(?:write|add|create|generate|extend)\s+(?:[\w-]+\s+){0,4}tests?\b(?!\s+pass)", re.IGNORECASE
)


def mentioned_files(text: str) -> list[str]:
    """Return the words that look like the path of a source file or document, each once, in order."""
    paths = (path.removeprefix("./") for path in _PATH.findall(text))
    return [path for path in dict.fromkeys(paths) if path.rpartition(".")[2] in _ENDINGS]


def is_question(text: str) -> bool:
    """Return whether the request asks for words alone."""
    return _QUESTION.match(text) is not None and ("?" in text or not _ABOUT_TESTS.search(text))


def is_about_tests(text: str) -> bool:
    """Return whether the tests can show that the request is done."""
    return _ABOUT_TESTS.search(text) is not None and not (
        is_question(text) or _NEW_TESTS.search(text)
    )


def rare_words(text: str) -> list[str]:
    """Return the words of a request that code may hold: names, and long words."""
    words = re.findall(r"[A-Za-z]\w{3,}", text)
    names = [word for word in words if "_" in word or not (word.islower() or word.istitle())]
    return list(dict.fromkeys([*names, *(word for word in words if len(word) > 5)]))[:8]


_IMPORT = re.compile(r"\s*(?:import|from|use|using|mod|package|#include)\b")


def imported_words(source: str) -> list[str]:
    """Return the words of a file's imports, which may be names of other files."""
    words: dict[str, None] = {}
    for line in source.split("\n"):
        if _IMPORT.match(line) or "require(" in line:
            words.update(dict.fromkeys(re.findall(r"\w{2,}", line)))
    return list(words)
