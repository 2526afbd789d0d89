"""Localization: the files that a failing test's output or a request leads to, by paths, imports, names and words."""

from __future__ import annotations

import ast
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fugu_cli.engine.message_history import opening_ids, path_argument
from fugu_cli.messages import Call
from fugu_cli.repair import intent
from fugu_cli.repair.code_structure import is_stub
from fugu_cli.safety.paths import inside, locate, quoted_path, unquoted_path
from fugu_cli.safety.policy.call_arguments import MalformedArguments, arguments_of
from fugu_cli.safety.policy.rule_matching import WRITING
from fugu_cli.session import views
from fugu_cli.session.recognized_tests import is_test
from fugu_cli.tools import repository_files
from fugu_cli.tools.repository_files import FileIndex
from fugu_cli.tools.runner_discovery import cargo_package_name
from fugu_cli.tools.workspace import Workspace

PROMPT_ROOM = 24_000
"""Characters of all files that a small model is shown: some 7,000 tokens, with its answer what its context holds."""


def files_shown(turn: views.Turn) -> dict[str, str]:
    """Path -> content of the files fugu read when the turn opened; of a long one functions may be shown, not all."""
    return {path: content for path, content in files_read(turn).items() if not is_long(content)}


def files_read(turn: views.Turn) -> dict[str, str]:
    """The same with the long ones."""
    opening = opening_ids(turn)
    read = [run for run in turn.runs if run.permitted.call.id in opening and run.permitted.call.tool == "read"]
    return {
        path_argument(run) or "": run.result.output for run in read if run.evidence and run.result and run.result.ok
    }


def is_long(content: str) -> bool:
    """A small model is not shown such a file whole."""
    return len(content) > PROMPT_ROOM


_SCRIPT = re.compile(r"""(?:\bfrom\s*|\brequire\(\s*|\bimport\s*\(?\s*)["'](\.{1,2}/[^"']+|\.{1,2})["']""")
_RUST = re.compile(r"^\s*(?:pub\s+)?(?:use\s+([\w:]+)|mod\s+(\w+)\s*;)", re.MULTILINE)
_RUBY = re.compile(r"""^\s*require_relative[\s(]+["']([^"']+)["']""", re.MULTILINE)
_INCLUDE = re.compile(r"""^\s*#\s*include\s*"([^"]+)\"""", re.MULTILINE)
_CLASS = re.compile(r"\b[A-Z]\w+\b")
_TEST_OF = re.compile(r"(\w+?)(?:Tests?|Spec|IT)")
SCRIPT_ENDINGS = ("", ".js", ".ts", ".mjs", ".cjs", ".jsx", ".tsx", "/index.js", "/index.ts")
LARGEST_PARSED = 500_000


def imported_files(path: Path, root: Path, index: FileIndex) -> list[Path]:
    """Files inside `root` that `path` imports, in the order it names them; [] when it cannot be read."""
    try:
        if path.stat().st_size > LARGEST_PARSED:
            return []
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    match path.suffix:
        case ".py":
            found = _python(text, path, root, index)
        case ".js" | ".ts" | ".mjs" | ".cjs" | ".jsx" | ".tsx":
            found = _script(text, path)
        case ".rs":
            found = _rust(text, path, root)
        case ".go":
            found = (other for other in sorted(path.parent.glob("*.go")) if not other.name.endswith("_test.go"))
        case ".java" | ".kt" | ".scala" | ".cs" | ".swift":
            found = _classes(text, path, index)
        case ".rb":
            found = ((path.parent / f"{name.removesuffix('.rb')}.rb").resolve() for name in _RUBY.findall(text))
        case ".c" | ".cc" | ".cpp" | ".h" | ".hpp":
            found = _included(text, path, index)
        case _:
            found = iter(())
    return [file for file in dict.fromkeys(found) if file.is_file() and file != path]


def _python(text: str, path: Path, root: Path, index: FileIndex) -> Iterator[Path]:
    for level, module, names in _python_imports(text):
        for folder in _bases(level, path, root):
            found = list(_module(folder, module, names))
            if found:
                yield from found
                break
        else:  # a folder put on the path by configuration
            if not level and module.split(".")[0] not in sys.stdlib_module_names:
                yield from index.ending(f"{module.replace('.', '/')}.py")


def _python_imports(text: str) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """(level, module, names) of every import statement, wherever it stands."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", tuple(alias.name for alias in node.names)


def _bases(level: int, path: Path, root: Path) -> list[Path]:
    """Folders an import is looked up in: relative ones in their package, others where tests usually find them."""
    if level:
        return [path.parents[level - 1]] if level <= len(path.parents) else []
    around = [folder for folder in path.parents if folder == root or root in folder.parents]
    return [*around, root / "src", root / "lib"]


def _module(folder: Path, module: str, names: tuple[str, ...]) -> Iterator[Path]:
    """The files of `from module import names` below `folder`; names a package passes on are followed one step."""
    place = folder.joinpath(*module.split(".")) if module else folder
    if place.with_suffix(".py").is_file() and module:
        yield place.with_suffix(".py")
        return
    start = place / "__init__.py"
    rest = [name for name in names if not (place / f"{name}.py").is_file()]
    yield from (place / f"{name}.py" for name in names if (place / f"{name}.py").is_file())
    if not start.is_file():
        return
    passed = [name for name in names if name in rest] if names else None
    for level, inner, given in _python_imports(start.read_text(encoding="utf-8", errors="replace")):
        if level == 1 and inner and (passed is None or set(given) & {*passed, "*"}):
            yield place.joinpath(*inner.split(".")).with_suffix(".py")
    if passed is None or passed:
        yield start


def _script(text: str, path: Path) -> Iterator[Path]:
    for named in _SCRIPT.findall(text):
        base = (path.parent / named).resolve()
        for ending in SCRIPT_ENDINGS:
            candidate = Path(f"{base}{ending}")
            if candidate.is_file():
                yield candidate
                break


def _rust(text: str, path: Path, root: Path) -> Iterator[Path]:
    source = root / "src"
    name = cargo_package_name(root)
    for used, module in _RUST.findall(text):
        if module:
            yield from (path.parent / f"{module}.rs", path.parent / module / "mod.rs")
            continue
        first, *rest = used.split("::")
        if first in {name, "crate"}:
            yield from (source / f"{part}.rs" for part in rest[:1])
            yield source / "lib.rs"


def _classes(text: str, path: Path, index: FileIndex) -> Iterator[Path]:
    """The files called as the classes named in `text`, first the one that a test has its name from."""
    of = _TEST_OF.fullmatch(path.stem)
    for name in dict.fromkeys([*([of[1]] if of else []), *_CLASS.findall(text)]):
        yield from index.ending(f"{name}{path.suffix}")


def _included(text: str, path: Path, index: FileIndex) -> Iterator[Path]:
    """Headers in quotes, and what is beside them or has their name and is compiled."""
    for name in _INCLUDE.findall(text):
        header = (path.parent / name).resolve()
        yield from [header] if header.is_file() else index.ending(name)
        for ending in (".c", ".cc", ".cpp"):
            yield from index.ending(f"{Path(name).stem}{ending}")


CODE = re.compile(
    r".*\.(?:pyi?|[mc]?js|tsx?|jsx|rs|go|java|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|scala|sh|html?|s?css|vue|svelte|sql)"
)
MOST_SEARCHED, LARGEST_SEARCHED, MOST_BYTES_SEARCHED = 1000, 60_000, 4_000_000
"""Files looked into, bytes of one, characters of all."""
SMALL_REPOSITORY = 6000
"""Characters of a repository that is shown whole: some 1,800 tokens."""
MOST_RETRIEVED = 4
ABOUT, WORKED_OUT = 0.34, 0.5
"""Of a question's own words, the part that a file holds which it is about; and of one that gives figures. Of 150 word
problems, asked in 27 repositories of exercises, none had as many."""
LONG_QUESTION = 7
"""Own words of a question that says by itself what it is about."""

_BACKQUOTED = re.compile(r"`([^`\s]+)`")
_NAME = re.compile(r"\b(?:[A-Za-z]\w*_\w+|[a-z]+[a-z0-9]*[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*|[A-Za-z_]\w*(?=\())")
_FIGURE = re.compile(r"(?<![\w.:])\d+\b(?![\w.:]\w)")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{2,}")
_OF_CODE = re.compile(
    r"\b(?:this|it|here|my|our|code|projects?|repo(?:sitory)?|programs?|scripts?|apps?|server|modules?|packages?|files?"
    r"|functions?|class(?:es)?|methods?|tests?|bugs?|install|start|run|use|used|usage|api|cli|commands?|library|tool)\b",
    re.IGNORECASE,
)
_DEFINES_NAME = r"\b(?:def|class|fn|func|function|struct|enum|trait|interface|type|const|let|var|module|impl)\s+{}\b"


def retrieve(request: str, root: Path) -> list[Path]:
    """The likeliest first, at most `MOST`, tests after the rest; [] where nothing in the repository answers to it."""
    texts = _texts(root)
    names = {*_BACKQUOTED.findall(request), *_NAME.findall(request)}
    found = _by_names({name.rstrip("()") for name in names}, texts) or _by_words(request, texts, root)
    if not found and sum(map(len, texts.values())) <= SMALL_REPOSITORY and not _stands_alone(request):
        found = list(texts)
    found.sort(key=lambda path: is_test(path.relative_to(root).as_posix()))
    return found[:MOST_RETRIEVED]


def _texts(root: Path) -> dict[Path, str]:
    """The code of the repository, as far as the bounds go; empty files left out."""
    texts: dict[Path, str] = {}
    room = MOST_BYTES_SEARCHED
    for path in repository_files.walk_files(root, limit=5000):
        if not CODE.fullmatch(path.name) or len(texts) == MOST_SEARCHED or room <= 0:
            continue
        try:
            text = (
                path.read_text(encoding="utf-8", errors="replace")
                if 0 < path.stat().st_size <= LARGEST_SEARCHED
                else ""
            )
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
    defines = re.compile("|".join(_DEFINES_NAME.format(re.escape(name)) for name in names)) if names else None
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
    least = 0.1 if len(texts) <= MOST_RETRIEVED else 0.0
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
    return len(own) >= LONG_QUESTION or not _OF_CODE.search(request)


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


MOST_FILES_FOUND = 8
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
LARGEST_SHOWN = 100_000
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


def relevant_files(output: str, request: str, root: Path) -> list[str]:
    """Paths of the files that a small model is to see, the likeliest first. `root` is resolved."""
    return fitting(shown_for(request, output, implicated_files(output, request, root), root), root)


def writes_test(workspace: Workspace, call: Call) -> bool:
    """The call would write a test, or what tests share."""
    given = arguments_of(call)
    named = None if isinstance(given, MalformedArguments) else given.get("path")
    path = locate(named, workspace.root) if isinstance(named, str) and call.tool in WRITING else None
    return (
        isinstance(path, Path) and inside(path, workspace.root) and is_test(path.relative_to(workspace.root).as_posix())
    )


def implicated_files(output: str, request: str, root: Path) -> list[str]:
    """Paths relative to `root`, at most `MOST`. `root` is resolved.

    What the request names comes first, then the output's places from the last, which is where it broke, to the first,
    then what the tests import: first what defines a name that the output calls. Where nothing broke in the code, and an
    assertion is all there is to go by, also what that imports, for a test seldom names who is to blame; a package only
    passes on what it imports.
    """
    index = repository_files.FileIndex(root)
    named = [
        *_resolved(_mentions(request), root, index),
        *_known(request, root),
        *reversed(_resolved(_mentions(output), root, index)),
    ]
    tests = [path for path in dict.fromkeys(named) if _is_test(path, root)]
    sources = [path for path in dict.fromkeys(named) if not _is_test(path, root)]
    behind: list[Path] = []
    for test in tests:
        used = [path for path in imported_files(test, root, index) if _own(path, root)]
        behind += [path for path in used if not _is_test(path, root)]
        behind += [path for helper in used if _is_test(helper, root) for path in imported_files(helper, root, index)]
    unwritten = (path for path in behind if path.name != "__init__.py" and is_stub(_text(path)))
    asked = set(_resolved(_mentions(request), root, index))
    broke = (path for path in sources if path in asked or _breaks_in(path, output, root))
    if not any(broke) and not any(unwritten):
        behind += [path for used in behind if used.name == "__init__.py" for path in imported_files(used, root, index)]
        behind += [path for used in dict.fromkeys([*sources, *behind]) for path in imported_files(used, root, index)]
    called = set(_CALLED.findall(output))
    sources += sorted(behind, key=lambda path: called.isdisjoint(_DEFINED.findall(_text(path))))
    code = [path for path in dict.fromkeys(sources) if _own(path, root) and not _is_test(path, root)]
    found = [*(p for p in code if p.name != "__init__.py"), *(p for p in code if p.name == "__init__.py"), *tests]
    return [quoted_path(path.relative_to(root).as_posix()) for path in found[:MOST_FILES_FOUND]]


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
        code = list(found) or [quoted_path(path.relative_to(root).as_posix()) for path in retrieve(request, root)]
        return [*code, *(() if any(is_test(unquoted_path(path)) for path in code) else _tests_like(code, root))]
    if not intent.is_about_tests(request):
        if found and not (intent.is_change(request) and all(path.lower().endswith(DOCUMENTS) for path in found)):
            return list(found)
        if _SAYS_ITSELF.search(request) and len(request) <= SHORT and not intent.is_question(request):
            return list(found)
        about = (
            quoted_path(path.relative_to(root).as_posix()) for path in retrieve(request, root)
        )  # what a document is to say
        return list(dict.fromkeys([*found, *about]))
    tests = [path for path in found if is_test(unquoted_path(path))]
    others = [path for path in found if path not in tests]
    if not found:
        others = [
            quoted_path(path.relative_to(root).as_posix())
            for path in retrieve(request, root)
            if not _is_test(path, root)
        ]
    code = [path for path in others if not path.lower().endswith(DOCUMENTS)]
    finished = bool(code) and not any(is_stub(_text(root / unquoted_path(path))) for path in code)
    if finished or (code and "assert" in output.lower()):
        return others
    return [*others, *((tests or _tests_of(code, root))[:1] if code else tests)]


def fitting(paths: Iterable[str], root: Path) -> list[str]:
    """Of `paths`, the likeliest first, those that fit into `ROOM` with all that come before, and `MOST_LONG` that
    do not fit by themselves: of these functions may be shown."""
    found: list[str] = []
    room, more = PROMPT_ROOM, MOST_LONG
    for path in paths:
        length = len(_text(root / unquoted_path(path)))
        if length <= room or (length > PROMPT_ROOM and more):
            found.append(path)
            room, more = (room - length, more) if length <= PROMPT_ROOM else (room, more - 1)
    return found


def _tests_of(code: Sequence[str], root: Path) -> list[str]:
    """The test that holds most of the names these files define: code that does not compile hides what tests it."""
    names = {name for path in code for name in _DEFINED.findall(_text(root / unquoted_path(path)))}
    tests = [path for path in repository_files.walk_files(root, limit=5000) if _is_test(path, root)]
    held = {path: len(names & set(_WORDS.findall(_text(path)))) for path in tests}
    best = max(held, key=lambda path: held[path], default=None)
    return [quoted_path(best.relative_to(root).as_posix())] if best is not None and held[best] else []


def _tests_like(code: Sequence[str], root: Path) -> list[str]:
    """The test of these files, else the shortest one in their language: how tests are written here."""
    kinds = {Path(unquoted_path(path)).suffix for path in code}
    tests = [
        path for path in repository_files.walk_files(root, limit=5000) if _is_test(path, root) and path.suffix in kinds
    ]
    named = (path for path in tests if is_test(path.name) and path.stem != "conftest")
    cases = sorted(named, key=lambda path: len(_text(path)))
    example = [quoted_path(path.relative_to(root).as_posix()) for path in cases[:1]]
    return _tests_of(code, root) or example


def _text(path: Path) -> str:
    """At most as much as tells its names; "" where it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST_SHOWN)
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


def _resolved(mentions: Iterable[str], root: Path, index: repository_files.FileIndex) -> list[Path]:
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
    return (
        inside(real, root)
        and not repository_files.SKIPPED_FOLDERS & set(real.relative_to(root).parts)
        and real.is_file()
    )
