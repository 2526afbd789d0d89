"""How files stand in a small model's brief: code in blocks with its path, documents quoted, long ones shortened.

Below prompt.py, which says which files. A quoted file is read and not written anew: where code is to be mended, a
small model that is shown INSTRUCTIONS.md like the code writes both again, and most of its time goes into the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from fugu_cli.code_blocks import fenced
from fugu_cli.events import Asked
from fugu_cli.repair import intent
from fugu_cli.repair.named import FILE, PATH
from fugu_cli.repair.stubs import is_stub
from fugu_cli.test_paths import code_among, tests_among

DOCUMENT = re.compile(r".*\.(?:md|markdown|rst|adoc|txt)", re.IGNORECASE)
MANIFEST = re.compile(
    r"(?:.*/)?(?:Cargo\.toml|pyproject\.toml|setup\.(?:py|cfg)|package\.json|go\.mod|pom\.xml|[^/]*\.(?:gradle|csproj))"
)
"""What says how code is built, and is seldom what is wrong with it."""
_NEW = re.compile(
    r"\b(?:create|add|write|make|generate|set up)\s+(?:me\s+)?"
    r"(?:(?:an?|the|my|our|new|simple|short|basic|good|small|proper|sensible|standard|mit|apache|python|node|rust)\s+){0,3}"
    r"\.?(readme|changelog|licen[cs]e|contributing|makefile|dockerfile|gitignore|dockerignore|editorconfig)\b"
    r"(?!\.\w|\s+(?:section|entry|target|rule|line|badge|header|chapter|for\s+the\s+\w+\s+(?:function|class)))",
    re.IGNORECASE,
)
_CALLED = {
    "readme": "README.md",
    "changelog": "CHANGELOG.md",
    "license": "LICENSE",
    "licence": "LICENCE",
    "contributing": "CONTRIBUTING.md",
    "makefile": "Makefile",
    "dockerfile": "Dockerfile",
}
"""The files that people call by another name than they have; the others begin with a dot."""
DOCUMENT_LIMIT = 4000
TEST_LIMIT = 3000
"""Characters shown of a document, and of a test beside a stub: some 1,000 tokens, which a 1.5b reads in 20 s on two
cores. Of a document the end is shown as well: what a general introduction is about comes last."""


def targets(files: Iterable[str]) -> list[str]:
    """The paths of the code that a request judged by tests is about: no tests, and documents only where that is all."""
    code = code_among(files)
    return [path for path in code if not DOCUMENT.fullmatch(path)] or code


def blamed(files: Iterable[str], told: str) -> list[str]:
    """Of the targets those that failing tests may be about: what says how code is built only where the request or the
    tests' output, `told`, names it, or where that is all."""
    paths = targets(files)
    return [path for path in paths if not MANIFEST.fullmatch(path) or path in told] or paths


def code(files: Iterable[str]) -> list[str]:
    """The paths of code that is no test, and no document."""
    return [path for path in code_among(files) if not DOCUMENT.fullmatch(path)]


def without_code(files: Mapping[str, str]) -> dict[str, str]:
    """The tests and documents: beside one function that is asked for, a small model writes the other code again."""
    return {path: text for path, text in files.items() if path not in code(files)}


def target(request: Asked | None, files: Iterable[str]) -> str:
    """The one file that the request names and that is not there, or the one test of a request for tests; "" where it
    names others, or one of `files`."""
    shown = list(files)
    named, missing = _named(request, shown)
    wanted = tests_among([*named, *missing])
    if len(wanted) == 1 and request is not None and intent.is_for_tests(request.text):
        return wanted[0]
    if document := _document(request, shown):
        return document
    return missing[0] if len(missing) == 1 and not named else ""


def _document(request: Asked | None, shown: Sequence[str]) -> str:
    """The one document that is to be changed, by the name that people call it; "" where there is none, or other files
    are named as well."""
    if request is None or not intent.is_change(request.text) or any(path in request.text for path in shown):
        return ""
    stems = {path: path.rpartition("/")[2].partition(".")[0] for path in shown if DOCUMENT.fullmatch(path)}
    found = [path for path, stem in stems.items() if re.search(rf"\b{re.escape(stem)}\b", request.text, re.IGNORECASE)]
    return found[0] if len(found) == 1 else ""


def open_ended(request: Asked | None, files: Iterable[str], *, judged: bool) -> bool:
    """The request may mean other files than these: it asks for tests, names one that is not among them, or names none
    and is not judged by the tests, whose output has led to these."""
    shown = list(files)
    if request is None or not shown or intent.is_question(request.text):
        return False
    named, missing = _named(request, shown)
    return bool(missing) or (intent.is_for_tests(request.text) if judged else not named)


def _named(request: Asked | None, shown: Sequence[str]) -> tuple[list[str], list[str]]:
    """Of the files that the request names: those that are shown, and the others that it may want to be written."""
    if request is None or intent.is_question(request.text):
        return [], []
    paths = [path.removeprefix("./") for path in dict.fromkeys(PATH.findall(request.text)) if FILE.fullmatch(path)]
    paths += [path for path in _to_make(request.text, shown) if path not in paths]
    said = [path for path in shown if any(path == name or path.endswith(f"/{name}") for name in paths)]
    missing = [name for name in paths if not any(path == name or path.endswith(f"/{name}") for path in shown)]
    return said, missing if intent.is_for_tests(request.text) else code_among(missing)


def _to_make(text: str, shown: Sequence[str]) -> list[str]:
    """The files that the request wants made by the names people call them, unless one of that name is there."""
    words = [word.lower() for word in _NEW.findall(text)]
    there = {path.rpartition("/")[2].lstrip(".").partition(".")[0].lower() for path in shown}
    return [_CALLED.get(word, f".{word}") for word in dict.fromkeys(words) if word not in there]


def named(files: Iterable[str]) -> str:
    """The code that is to be worked on, in words."""
    paths = list(files)
    code = targets(paths)
    if not code and paths:
        return f"The code that {_either(paths)} asks for"
    return f"The code in {_either(code)}" if code else "The code"


def unfinished(files: Mapping[str, str]) -> bool:
    """The code that the files (path -> content) are about is still to be written, or some of it."""
    code = targets(files)
    return any(is_stub(files[path]) for path in code) or (not code and bool(files))


def _either(paths: Iterable[str]) -> str:
    return " or ".join(f"`{path}`" for path in paths)


def section(files: Mapping[str, str], judged: bool, part_of: str = "") -> str:
    """All files. Where tests judge, what stays as it is comes first, so that it need not be read again: documents,
    quoted, then tests, then the code. Of the file `part_of` only a part is there."""
    if not judged:
        return "".join(
            _block(path, content, "Of the file" if path == part_of else "The file") for path, content in files.items()
        )
    code = targets(files)
    around = [path for path in files if path not in code]
    documents = [_quote(path, files[path]) for path in around if DOCUMENT.fullmatch(path)]
    tests = [_block(path, _head(files[path])) for path in around if not DOCUMENT.fullmatch(path)]
    blocks = [_block(path, files[path], "Of the file" if path == part_of else "The file") for path in code]
    return "".join([*documents, *tests, *blocks])


def _quote(path: str, content: str) -> str:
    lines = "\n".join(f"> {line}".rstrip() for line in _clipped(content.strip()).splitlines())
    return f"What `{path}` says:\n{lines}\n\n"


def _block(path: str, content: str, what: str = "The file") -> str:
    """The file in a fence that no line of it closes: what is read back is what was shown."""
    return f"{what} `{path}`:\n{fenced(content.rstrip(chr(10)) + chr(10))}\n\n"


def _head(text: str) -> str:
    """The beginning of a test, in whole lines."""
    return text if len(text) <= TEST_LIMIT else f"{text[:TEST_LIMIT].rpartition(chr(10))[0]}\n..."


def _clipped(text: str) -> str:
    """Two thirds of the room for the beginning, one for the end, in whole lines."""
    if len(text) <= DOCUMENT_LIMIT:
        return text
    head, tail = text[: DOCUMENT_LIMIT * 2 // 3], text[-(DOCUMENT_LIMIT // 3) :]
    return f"{head.rpartition(chr(10))[0] or head}\n[...]\n{tail.partition(chr(10))[2] or tail}"
