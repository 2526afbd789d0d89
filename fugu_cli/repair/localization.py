"""Localization: the files that a failing test's output or a request leads to, by paths, imports,
names and words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fugu_cli.engine.message_history import opening_ids, path_argument
from fugu_cli.messages import Call
from fugu_cli.repair import intent
from fugu_cli.repair.replies import CODE_ENDING, DOCUMENTS, ENDINGS, PATH
from fugu_cli.repair.syntax import definitions, is_stub
from fugu_cli.safety.paths import inside, locate, quoted_path, unquoted_path
from fugu_cli.session import views
from fugu_cli.session.call_arguments import MalformedArguments, arguments_of
from fugu_cli.session.recognized_tests import is_test
from fugu_cli.session.tool_facts import facts_of
from fugu_cli.snapshots import repository_files
from fugu_cli.tools.workspace import Workspace

PROMPT_ROOM = 24_000
"""Characters of all files that a small model is shown: some 7,000 tokens, with its answer what its
context holds.
"""
MOST_FOUND, MOST_LONG = 8, 2
"""Files that are found, and files longer than `PROMPT_ROOM` among those that are read."""
MOST_READ = 100_000
"""Characters of a file that are looked into."""


def files_shown(turn: views.Turn) -> dict[str, str]:
    """Path -> content of the files fugu read when the turn opened; of a long one functions may be
    shown, not all.
    """
    return {path: content for path, content in files_read(turn).items() if not is_long(content)}


def files_read(turn: views.Turn) -> dict[str, str]:
    """The same with the long ones."""
    opening = opening_ids(turn)
    read = [
        run
        for run in turn.runs
        if run.permitted.call.id in opening and run.permitted.call.tool == "read"
    ]
    return {
        path_argument(run) or "": run.result.output
        for run in read
        if run.evidence and run.result and run.result.ok
    }


def is_long(content: str) -> bool:
    """A small model is not shown such a file whole."""
    return len(content) > PROMPT_ROOM


def writes_test(workspace: Workspace, call: Call) -> bool:
    """Return whether the call would write a test, or what tests share."""
    arguments = arguments_of(call)
    if isinstance(arguments, MalformedArguments) or not facts_of(call.tool).writes_files:
        return False
    name = arguments.get("path")
    path = locate(name, workspace.root) if isinstance(name, str) else None
    if not isinstance(path, Path) or not inside(path, workspace.root):
        return False
    return _is_test(path, workspace.root)


def relevant_files(output: str, request: str, root: Path) -> list[str]:
    """Paths of the files that a small model is to see, the likeliest first. `root` is resolved."""
    return fitting(shown_for(request, output, implicated_files(output, request, root), root), root)


_QUOTED = re.compile(r'File "([^"\n]+)"')
_ABSOLUTE = re.compile(rf"((?:/[\w.@+~-]+)+\.(?:{ENDINGS}))\b")
_MODULE = re.compile(r"\b([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)\b")
_ELSEWHERE = re.compile(
    r"^/(?:/|tmp/|var/|private/|etc/|usr/)|/(?:lib\d*/python|site-packages/|dist-packages/|node_modules/|rustc/|\.cargo/)"
)
"""Paths outside every repository: addresses, temporary files, installed packages."""
_CALLED = re.compile(r"\b(\w{2,})\(")


def implicated_files(output: str, request: str, root: Path) -> list[str]:
    """Paths relative to `root`, which is resolved; at most `MOST_FOUND`.

    What the request names comes first, then the output's places from the last, which is where it
    broke, to the first, then what the tests use: first what defines a name that the output calls.
    Where nothing broke in the code, also what that uses, for a test seldom names who is to blame.
    """
    index = repository_files.FileIndex(root)
    requested = _resolved(_mentions(request), root, index)
    mentioned = [*requested, *reversed(_resolved(_mentions(output), root, index))]
    tests = [path for path in dict.fromkeys(mentioned) if _is_test(path, root)]
    sources = [path for path in dict.fromkeys(mentioned) if not _is_test(path, root)]
    all_files = list(repository_files.walk_files(root, limit=5000)) if tests or sources else []
    imported: list[Path] = []
    for test in tests:
        used = used_files(test, root, all_files)
        used += [
            path
            for package in used
            if package.stem in _PACKAGE_FILES
            for path in used_files(package, root, all_files)
        ]
        imported += [path for path in used if not _is_test(path, root)]
        imported += [
            path
            for helper in used
            if _is_test(helper, root)
            for path in used_files(helper, root, all_files)
        ]
    patterns = {
        path: rf'{re.escape(path.relative_to(root).as_posix())}(?::|", line )\d' for path in sources
    }
    broke_in_source = any(
        path in requested or re.search(pattern, output) for path, pattern in patterns.items()
    )
    if (
        tests
        and not broke_in_source
        and not any(is_stub(path.name, _text(path)) for path in imported)
    ):
        imported += [
            path for used in [*sources, *imported] for path in used_files(used, root, all_files)
        ]
    called = set(_CALLED.findall(output))
    sources += sorted(imported, key=lambda path: called.isdisjoint(_names(path)))
    code = [path for path in dict.fromkeys(sources) if not _is_test(path, root)]
    paths = [*sorted(code, key=lambda path: path.name == "__init__.py"), *tests]
    return [_quoted(path, root) for path in paths[:MOST_FOUND]]


def _mentions(text: str) -> Iterator[str]:
    """Everything that looks like a file, in order; dotted names as the modules they may be."""
    plain = re.sub(r"\bhttps?://\S+", "", text.replace("file://", "").replace("\\", "/"))
    for line in plain.splitlines():
        yield from _QUOTED.findall(line)
        yield from _ABSOLUTE.findall(line) if _ABSOLUTE.search(line) else PATH.findall(line)
    yield from (
        f"{word.upper()}.md"
        for word in re.findall(r"\b(readme|changelog)\b(?!\.)", text, re.IGNORECASE)
    )
    for module in dict.fromkeys(_MODULE.findall(text)):
        parts = module.split(".")
        yield from (f"{'/'.join(parts[:length])}.py" for length in range(len(parts), 1, -1))


def _resolved(mentions: Iterable[str], root: Path, index: repository_files.FileIndex) -> list[Path]:
    """Return the mentioned files that exist.

    A bare or partial name means the one or two files of the repository that have it. A path on
    another machine means the file that shares the longest end of it.
    """
    paths: list[Path] = []
    for mention in dict.fromkeys(mentions):
        if (
            "\0" not in mention
            and len(mention) < 1000
            and (path := (root / mention).resolve()).is_file()
        ):
            paths.append(path)
        elif not mention.startswith("/") and mention[1:2] != ":":
            paths += index.ending(mention)
        elif not _ELSEWHERE.search(mention):
            parts = mention.split("/")[1:]
            ends = (index.ending("/".join(parts[start:])) for start in range(len(parts)))
            paths += next(filter(None, ends), [])
    return [path for path in dict.fromkeys(paths) if _own(path, root)]


_AFFIX = re.compile(r"^(?:test|check)_|[_.-](?:tests?|spec|unittest)$|(?:Tests?|Spec|IT)$")
_WHOLE_TEXT = (".java", ".kt", ".scala", ".cs", ".swift")
"""Languages that use a file of their own package without an import."""
_FAMILIES = ((".js", ".ts", ".mjs", ".cjs", ".jsx", ".tsx"), (".c", ".cc", ".cpp", ".h", ".hpp"))
_PACKAGE_FILES = ("__init__", "index", "mod", "lib")


def used_files(path: Path, root: Path, every: Sequence[Path]) -> list[Path]:
    """Return the files that `path` imports: of `every` file those of its language that are called
    like a word of its imports, in their order.

    Of several with one name, the ones whose folders it names as well; more than two say nothing.
    """
    words = _imported_words(path)
    family: tuple[str, ...] = (path.suffix,)
    for endings in _FAMILIES:
        if path.suffix in endings:
            family = endings
    candidates: dict[str, list[tuple[int, Path]]] = {}
    for file in every:
        if file == path or file.suffix not in family:
            continue
        name = file.parent.name if file.stem in _PACKAGE_FILES else file.stem
        is_same_package = (
            path.suffix == ".go" and file.parent == path.parent and not _is_test(file, root)
        )
        is_library = file.name == "lib.rs" and file.parent.parent in path.parents
        if name in words or is_same_package or is_library:
            nearness = sum(part in words for part in file.parent.parts)
            nearness += file.parent == path.parent
            candidates.setdefault(f"{name}{file.suffix}", []).append((nearness, file))
    ranked: list[tuple[int, Path]] = []
    for same_name in candidates.values():
        nearest = max(nearness for nearness, _ in same_name)
        files = [file for nearness, file in same_name if nearness == nearest]
        if len(files) <= 2:
            ranked += [(words.get(file.stem, len(words)), file) for file in files]
    ordered = [file for _, file in sorted(ranked)]
    folders: set[Path] = set()
    for file in ordered:
        if file.stem not in _PACKAGE_FILES:
            folders.update(file.parents)
    return [
        file
        for file in ordered
        if (file.stem not in _PACKAGE_FILES or file.parent not in folders) and _own(file, root)
    ]


def _imported_words(path: Path) -> dict[str, int]:
    """The words of the file's imports, and what a test has its name from, each with its place."""
    text = _text(path)
    parts = definitions(path.name, text)
    imports = [
        "\n".join(part.lines(text))
        for part in parts
        if part.kind == "import" or "require" in text.split("\n")[part.head]
    ]
    source = text if path.suffix in _WHOLE_TEXT or not parts else "\n".join(imports)
    words = dict.fromkeys([_AFFIX.sub("", path.stem), *re.findall(r"[\w-]+", source)])
    return {word: position for position, word in enumerate(words)}


def shown_for(request: str, output: str, implicated: Sequence[str], root: Path) -> list[str]:
    """Of what `implicated_files` found, what is to be shown; where that is nothing, what the
    request's words mean.

    Where tests judge, code and documents: what tests ask for is in their `output`. They are shown
    where the code is a stub, or is not there, and no assertion is told; and where the request is
    about something else, or asks for tests.
    """
    if intent.is_for_tests(request):
        code = list(implicated) or retrieve(request, root)
        return [*code, *(path for path in _tests_of(code, root) if path not in code)]
    if not intent.is_about_tests(request):
        documents = intent.wants_change(request) and all(
            path.lower().endswith(DOCUMENTS) for path in implicated
        )
        return list(
            dict.fromkeys(
                [*implicated, *(retrieve(request, root) if not implicated or documents else ())]
            )
        )
    tests = [path for path in implicated if is_test(unquoted_path(path))]
    others = [path for path in implicated if path not in tests]
    if not implicated:
        others = [path for path in retrieve(request, root) if not is_test(unquoted_path(path))]
    code = [path for path in others if not path.lower().endswith(DOCUMENTS)]
    finished = bool(code) and not any(
        is_stub(path, _text(root / unquoted_path(path))) for path in code
    )
    if finished or (code and "assert" in output.lower()):
        return others
    return [*others, *((tests or _tests_of(code, root))[:1] if code else tests)]


def fitting(paths: Iterable[str], root: Path) -> list[str]:
    """Return the paths, likeliest first, whose files fit into `PROMPT_ROOM` with all that come
    before, and `MOST_LONG` that do not fit by themselves: of these functions may be shown."""
    fitting_paths: list[str] = []
    remaining, long_files = PROMPT_ROOM, MOST_LONG
    for path in paths:
        length = len(_text(root / unquoted_path(path)))
        if length <= remaining:
            fitting_paths.append(path)
            remaining -= length
        elif length > PROMPT_ROOM and long_files:
            fitting_paths.append(path)
            long_files -= 1
    return fitting_paths


def _tests_of(code: Sequence[str], root: Path) -> list[str]:
    """The test that holds most of the names these files define."""
    suffixes = {Path(unquoted_path(path)).suffix for path in code}
    names = {name for path in code for name in _names(root / unquoted_path(path))}
    tests = [path for path in repository_files.walk_files(root, limit=5000) if _is_test(path, root)]
    cases = [
        path
        for path in tests
        if path.suffix in suffixes and path.stem not in ("conftest", "__init__")
    ]
    ranked = sorted(
        (-len(names & set(re.findall(r"\w{2,}", _text(path)))), len(_text(path)), path)
        for path in cases
    )
    return [_quoted(path, root) for shared_names, _, path in ranked[:1] if shared_names]


MOST_SEARCHED, LARGEST_SEARCHED = 1000, 60_000
"""Files looked into, bytes of one."""
SMALL_REPOSITORY = 6000
"""Characters of a repository that is shown whole: some 1,800 tokens."""
MOST_RETRIEVED = 4
ABOUT = 0.34
"""Of a question's words, the part that a file holds which it is about."""
_SAID_ANYWAY = """
tests failing what which where when does this that with from into have should must please will would there then than
your make write create update change rename remove delete implement file function class method code test fail pass
explain describe repository project work more other them some every everywhere only also return
"""


def retrieve(request: str, root: Path) -> list[str]:
    """The files that hold the request's words, rare words counting most, at most `MOST_RETRIEVED`,
    tests after the rest; a small repository whole, where none does and the request is no question
    about something else."""
    words, is_question = _words(request) - _words(_SAID_ANYWAY), intent.is_question(request)
    texts = _texts(root)
    words_of = {
        path: words & _words(f"{_quoted(path, root)} {text}") for path, text in texts.items()
    }
    words_of = {
        path: shared
        for path, shared in words_of.items()
        if shared and len(shared) >= len(words) * (ABOUT if is_question else 0)
    }
    count = Counter(word for shared in words_of.values() for word in shared)
    scores = {
        path: sum(math.log(1 + len(texts) / count[word]) for word in shared)
        for path, shared in words_of.items()
    }
    best = max(scores.values(), default=0.0)
    paths = sorted(
        (path for path in scores if scores[path] > best / 2), key=lambda path: (-scores[path], path)
    )
    if intent.is_worked_out(request):
        return []
    if (
        not paths
        and sum(map(len, texts.values())) <= SMALL_REPOSITORY
        and not (words and is_question)
    ):
        paths = list(texts)
    paths.sort(key=lambda path: _is_test(path, root))
    return [_quoted(path, root) for path in paths[:MOST_RETRIEVED]]


def _words(text: str) -> set[str]:
    """Return words by their first letters, so that "rounds" and "Rounding" are the same."""
    return {
        word[:5]
        for word in re.findall(r"[a-z0-9]{4,}", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    }


def _texts(root: Path) -> dict[Path, str]:
    """The code of the repository, as far as the bounds go; empty files left out."""
    every = repository_files.walk_files(root, limit=MOST_SEARCHED)
    texts = {path: _text(path) for path in every if CODE_ENDING.fullmatch(path.suffix)}
    return {path: text for path, text in texts.items() if 0 < len(text) <= LARGEST_SEARCHED}


def _names(path: Path) -> set[str]:
    """Return the names that the file defines."""
    names: set[str] = set()
    for definition in definitions(path.name, _text(path)):
        names.add(definition.name)
        names.update(member.name for member in definition.members)
    return {name for name in names if len(name) > 1}


def _text(path: Path) -> str:
    """At most as much as tells its names; "" where it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MOST_READ)
    except OSError:
        return ""


def _is_test(path: Path, root: Path) -> bool:
    return is_test(path.relative_to(root).as_posix())


def _quoted(path: Path, root: Path) -> str:
    return quoted_path(path.relative_to(root).as_posix())


def _own(path: Path, root: Path) -> bool:
    """A file of the repository itself, wherever links lead."""
    real = path.resolve()
    return (
        inside(real, root)
        and not repository_files.SKIPPED_FOLDERS & set(real.relative_to(root).parts)
        and real.is_file()
    )
