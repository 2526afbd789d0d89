"""Localization: the files that a failing test's output or a request leads to, which a small model must see.

Tracebacks, `file.py:12:`, cargo's arrows, node's and go's places, plain names; for a
test file also what it imports. Only files that exist inside the repository, source files before tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fugu_cli.messages import Call
from fugu_cli.policy.arguments import Malformed, arguments_of
from fugu_cli.policy.paths import actual, inside, locate, shown
from fugu_cli.policy.patterns import WRITING
from fugu_cli.repair import intent
from fugu_cli.repair.imports import imported
from fugu_cli.repair.opening import ROOM
from fugu_cli.repair.retrieval import meant
from fugu_cli.repair.stubs import is_stub
from fugu_cli.test_paths import is_test
from fugu_cli.tools import tree
from fugu_cli.tools.workspace import Workspace

MOST = 8
ENDINGS = (
    "py|pyi|js|mjs|cjs|ts|tsx|jsx|rs|go|java|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|scala|sh|toml|json|ya?ml|ini|cfg|md|txt"
    "|html|css|sql|vue|svelte"
)
_PATH = re.compile(rf"(?:file://)?((?:[\w.@+~-]*/)*[\w.@+-]+\.(?:{ENDINGS}))\b")
_QUOTED = re.compile(r'File "([^"\n]+)"')
_MODULE = re.compile(r"\b([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)\b")
_ELSEWHERE = re.compile(
    r"^/(?:/|tmp/|var/|private/|etc/|usr/)|/(?:lib\d*/python|site-packages/|dist-packages/|node_modules/|rustc/|\.cargo/)"
)
"""What lies outside of every repository: addresses, temporary files, what is installed."""
DOCUMENTS = (".md", ".txt", ".rst")
LARGEST = 100_000
MOST_LONG = 2
"""Files longer than that which are read as well."""
SHORT = 400
"""Characters of a request that somebody typed."""
_WELL_KNOWN = re.compile(
    r"\b(readme|changelog|licen[cs]e|contributing|makefile|dockerfile|gemfile|rakefile|gitignore|dockerignore"
    r"|gitattributes|editorconfig)\b(?!\.\w)",
    re.IGNORECASE,
)
_SAYS_ITSELF = re.compile(r"\b(?:licen[cs]e|gitignore|dockerignore|gitattributes|editorconfig)\b", re.IGNORECASE)
"""What such a file is to hold, no other file says."""
_ABOUT_IT = re.compile(
    r"\b(?:bump|set|change|update|increase|raise)\b[^.\n]*\bversion\b(?: number)?(?:\s+(?:to|from)\b|\s*[.!]?\s*$)"
    r"|\b(?:add|remove|update|upgrade|pin)\b[^.\n]*\bdependenc(?:y|ies)\b(?! injection)",
    re.IGNORECASE,
)
_MANIFESTS = ("package.json", "pyproject.toml", "Cargo.toml", "setup.py", "setup.cfg", "pom.xml", "VERSION")
_DEFINED = re.compile(r"\b(?:def|class|fn|func|function|struct|enum|trait|interface|type|const|let|var)\s+(\w{2,})")
_WORDS = re.compile(r"\w{2,}")
_CALLED = re.compile(r"\b(\w{2,})\(")


def files(output: str, request: str, root: Path) -> list[str]:
    """Paths of the files that a small model is to see, the likeliest first. `root` is resolved."""
    return fitting(shown_for(request, output, implicated(output, request, root), root), root)


def writes_test(workspace: Workspace, call: Call) -> bool:
    """The call would write a test, or what tests share."""
    given = arguments_of(call)
    named = None if isinstance(given, Malformed) else given.get("path")
    path = locate(named, workspace.root) if isinstance(named, str) and call.tool in WRITING else None
    return (
        isinstance(path, Path) and inside(path, workspace.root) and is_test(path.relative_to(workspace.root).as_posix())
    )


def implicated(output: str, request: str, root: Path) -> list[str]:
    """Paths relative to `root`, at most `MOST`. `root` is resolved.

    What the request names comes first, then the output's places from the last, which is where it broke, to the first,
    then what the tests import: first what defines a name that the output calls. Where nothing broke in the code, and an
    assertion is all there is to go by, also what that imports, for a test seldom names who is to blame; a package only
    passes on what it imports.
    """
    index = tree.Index(root)
    named = [
        *_resolved(_mentions(request), root, index),
        *_known(request, root),
        *reversed(_resolved(_mentions(output), root, index)),
    ]
    tests = [path for path in dict.fromkeys(named) if _is_test(path, root)]
    sources = [path for path in dict.fromkeys(named) if not _is_test(path, root)]
    behind: list[Path] = []
    for test in tests:
        used = [path for path in imported(test, root, index) if _own(path, root)]
        behind += [path for path in used if not _is_test(path, root)]
        behind += [path for helper in used if _is_test(helper, root) for path in imported(helper, root, index)]
    unwritten = (path for path in behind if path.name != "__init__.py" and is_stub(_text(path)))
    asked = set(_resolved(_mentions(request), root, index))
    broke = (path for path in sources if path in asked or _breaks_in(path, output, root))
    if not any(broke) and not any(unwritten):
        behind += [path for used in behind if used.name == "__init__.py" for path in imported(used, root, index)]
        behind += [path for used in dict.fromkeys([*sources, *behind]) for path in imported(used, root, index)]
    called = set(_CALLED.findall(output))
    sources += sorted(behind, key=lambda path: called.isdisjoint(_DEFINED.findall(_text(path))))
    code = [path for path in dict.fromkeys(sources) if _own(path, root) and not _is_test(path, root)]
    found = [*(p for p in code if p.name != "__init__.py"), *(p for p in code if p.name == "__init__.py"), *tests]
    return [shown(path.relative_to(root).as_posix()) for path in found[:MOST]]


def _breaks_in(path: Path, output: str, root: Path) -> bool:
    """The output names a line of it."""
    return re.search(rf'{re.escape(path.relative_to(root).as_posix())}(?::|", line )\d', output) is not None


def shown_for(request: str, output: str, found: Sequence[str], root: Path) -> list[str]:
    """Of what `implicated` found, what is to be shown; where that is nothing, what the request's words mean.

    Where tests are run for the request, code and documents: what tests ask for is in their `output`. They are shown
    where the code is a stub, or is not there, and no assertion is told, for then the output only says that all is
    missing; and where the request is about something else, or asks for tests.
    """
    if intent.wants_tests(request):
        code = list(found) or [shown(path.relative_to(root).as_posix()) for path in meant(request, root)]
        return [*code, *(() if any(is_test(actual(path)) for path in code) else _tests_like(code, root))]
    if not intent.is_about_tests(request):
        if found and not (intent.is_change(request) and all(path.lower().endswith(DOCUMENTS) for path in found)):
            return list(found)
        if _SAYS_ITSELF.search(request) and len(request) <= SHORT and not intent.is_question(request):
            return list(found)
        about = (shown(path.relative_to(root).as_posix()) for path in meant(request, root))  # what a document is to say
        return list(dict.fromkeys([*found, *about]))
    tests = [path for path in found if is_test(actual(path))]
    others = [path for path in found if path not in tests]
    if not found:
        others = [shown(path.relative_to(root).as_posix()) for path in meant(request, root) if not _is_test(path, root)]
    code = [path for path in others if not path.lower().endswith(DOCUMENTS)]
    finished = bool(code) and not any(is_stub(_text(root / actual(path))) for path in code)
    if finished or (code and "assert" in output.lower()):
        return others
    return [*others, *((tests or _tests_of(code, root))[:1] if code else tests)]


def fitting(paths: Iterable[str], root: Path) -> list[str]:
    """Of `paths`, the likeliest first, those that fit into `ROOM` with all that come before, and `MOST_LONG` that
    do not fit by themselves: of these functions may be shown."""
    found: list[str] = []
    room, more = ROOM, MOST_LONG
    for path in paths:
        length = len(_text(root / actual(path)))
        if length <= room or (length > ROOM and more):
            found.append(path)
            room, more = (room - length, more) if length <= ROOM else (room, more - 1)
    return found


def _tests_of(code: Sequence[str], root: Path) -> list[str]:
    """The test that holds most of the names these files define: code that does not compile hides what tests it."""
    names = {name for path in code for name in _DEFINED.findall(_text(root / actual(path)))}
    tests = [path for path in tree.files(root, limit=5000) if _is_test(path, root)]
    held = {path: len(names & set(_WORDS.findall(_text(path)))) for path in tests}
    best = max(held, key=lambda path: held[path], default=None)
    return [shown(best.relative_to(root).as_posix())] if best is not None and held[best] else []


def _tests_like(code: Sequence[str], root: Path) -> list[str]:
    """The test of these files, else the shortest one in their language: how tests are written here."""
    kinds = {Path(actual(path)).suffix for path in code}
    tests = [path for path in tree.files(root, limit=5000) if _is_test(path, root) and path.suffix in kinds]
    named = (path for path in tests if is_test(path.name) and path.stem != "conftest")
    cases = sorted(named, key=lambda path: len(_text(path)))
    example = [shown(path.relative_to(root).as_posix()) for path in cases[:1]]
    return _tests_of(code, root) or example


def _text(path: Path) -> str:
    """At most as much as tells its names; "" where it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST)
    except OSError:
        return ""


def _is_test(path: Path, root: Path) -> bool:
    return is_test(path.relative_to(root).as_posix())


def _mentions(text: str) -> Iterator[str]:
    """Everything that looks like a file, in order; dotted names as the modules they may be."""
    for line in text.splitlines():
        yield from _QUOTED.findall(line)
        yield from _PATH.findall(line)
    for module in dict.fromkeys(_MODULE.findall(text)):
        parts = module.split(".")
        yield from (f"{'/'.join(parts[:length])}.py" for length in range(len(parts), 1, -1))


def _known(request: str, root: Path) -> list[Path]:
    """Files in the root that have no ending in anybody's mouth (README, Makefile), and where its version, licence or
    dependencies stand. Of a short request: an issue's template names some of them."""
    if len(request) > SHORT:
        return []
    words = {word.lower() for word in _WELL_KNOWN.findall(request)}
    wanted = set(_MANIFESTS) if _ABOUT_IT.search(request) else set()
    if not words and not wanted:
        return []
    try:
        files = sorted(path for path in root.iterdir() if path.is_file())
    except OSError:
        return []
    found = [path for path in files if path.name.lstrip(".").split(".")[0].lower() in words or path.name in wanted]
    return [path for path in found if _own(path, root)]


def _resolved(mentions: Iterable[str], root: Path, index: tree.Index) -> list[Path]:
    """Those that exist: as given, else (a bare or partial name) wherever the repository has exactly one or two. Of a
    place on another machine, as an issue tells it, the file with the longest end of its path."""
    found: list[Path] = []
    for mention in dict.fromkeys(one.removeprefix("@").replace("\\", "/") for one in mentions):
        path = _existing(mention, root)
        if path is not None:
            found.append(path)
        elif not mention.startswith("/"):
            found += index.ending(mention)
        elif not _ELSEWHERE.search(mention):
            parts = mention.split("/")[1:]
            ends = (index.ending("/".join(parts[start:])) for start in range(len(parts)))
            found += next(filter(None, ends), [])
    return [path for path in dict.fromkeys(found) if _own(path, root)]


def _existing(mention: str, root: Path) -> Path | None:
    try:
        path = (root / mention).resolve()
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _own(path: Path, root: Path) -> bool:
    """A file of the repository itself, wherever links lead."""
    real = path.resolve()
    return inside(real, root) and not tree.SKIPPED & set(real.relative_to(root).parts) and real.is_file()
