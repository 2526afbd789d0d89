"""Which files of a repository a source file uses: its imports, followed where they stay inside.

Below localization.py. Python by its syntax tree; JavaScript, TypeScript, Rust, Go, Ruby and C by their import lines;
Java and its like, where a file is called as its class, by the names in it. Reads files, runs nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from fugu_cli.tools.tests import project_name
from fugu_cli.tools.tree import Index

_SCRIPT = re.compile(r"""(?:\bfrom\s*|\brequire\(\s*|\bimport\s*\(?\s*)["'](\.{1,2}/[^"']+|\.{1,2})["']""")
_RUST = re.compile(r"^\s*(?:pub\s+)?(?:use\s+([\w:]+)|mod\s+(\w+)\s*;)", re.MULTILINE)
_RUBY = re.compile(r"""^\s*require_relative[\s(]+["']([^"']+)["']""", re.MULTILINE)
_INCLUDE = re.compile(r"""^\s*#\s*include\s*"([^"]+)\"""", re.MULTILINE)
_CLASS = re.compile(r"\b[A-Z]\w+\b")
_TEST_OF = re.compile(r"(\w+?)(?:Tests?|Spec|IT)")
SCRIPT_ENDINGS = ("", ".js", ".ts", ".mjs", ".cjs", ".jsx", ".tsx", "/index.js", "/index.ts")
LARGEST = 500_000


def imported(path: Path, root: Path, index: Index) -> list[Path]:
    """Files inside `root` that `path` imports, in the order it names them; [] when it cannot be read."""
    try:
        if path.stat().st_size > LARGEST:
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


def _python(text: str, path: Path, root: Path, index: Index) -> Iterator[Path]:
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
    name = project_name(root)
    for used, module in _RUST.findall(text):
        if module:
            yield from (path.parent / f"{module}.rs", path.parent / module / "mod.rs")
            continue
        first, *rest = used.split("::")
        if first in {name, "crate"}:
            yield from (source / f"{part}.rs" for part in rest[:1])
            yield source / "lib.rs"


def _classes(text: str, path: Path, index: Index) -> Iterator[Path]:
    """The files called as the classes named in `text`, first the one that a test has its name from."""
    of = _TEST_OF.fullmatch(path.stem)
    for name in dict.fromkeys([*([of[1]] if of else []), *_CLASS.findall(text)]):
        yield from index.ending(f"{name}{path.suffix}")


def _included(text: str, path: Path, index: Index) -> Iterator[Path]:
    """Headers in quotes, and what is beside them or has their name and is compiled."""
    for name in _INCLUDE.findall(text):
        header = (path.parent / name).resolve()
        yield from [header] if header.is_file() else index.ending(name)
        for ending in (".c", ".cc", ".cpp"):
            yield from index.ending(f"{Path(name).stem}{ending}")
