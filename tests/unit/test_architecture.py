"""The shape the code must keep: sizes, docstrings, what importing costs. Imports' directions are
import-linter's.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import fugu_cli

PACKAGE = Path(fugu_cli.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
NAMED = {str(path.relative_to(PACKAGE)): path for path in MODULES}


@cache
def parsed(path: Path) -> ast.Module:
    """The code of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def test_every_module_says_what_it_is() -> None:
    assert [name for name, path in NAMED.items() if not ast.get_docstring(parsed(path))] == []


def test_classes_have_names_that_say_something_and_nothing_is_caught_that_was_not_named() -> None:
    assert {name: found for name, path in NAMED.items() if (found := list(faults(path)))} == {}


def faults(path: Path) -> Iterator[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef) and node.name.endswith(
            ("Manager", "Handler", "Helper", "Utils")
        ):
            yield f"{node.name} says nothing"
        if isinstance(node, ast.ExceptHandler):
            caught = (
                {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)}
                if node.type
                else {""}
            )
            reraised = any(
                isinstance(item, ast.Raise) and item.exc is None for item in ast.walk(node)
            )
            explained = "# noqa: BLE001 - " in lines[node.lineno - 1]
            catches_all = not reraised and caught & {"Exception", "BaseException"}
            if node.type is None or (catches_all and not explained):
                yield f"line {node.lineno} catches what it does not name"


def test_the_root_of_the_package_holds_few_modules_beside_its_folders() -> None:
    assert (
        len(
            [
                path
                for path in PACKAGE.glob("*.py")
                if path.name not in {"__init__.py", "__main__.py"}
            ]
        )
        <= 8
    )


def test_the_top_level_holds_what_was_agreed() -> None:
    root = PACKAGE.parent
    agreed = {
        "pyproject.toml", "README.md", "fugu_cli", "prompts", "tests", "install.sh", "LICENSE", "CHANGELOG.md",
    }  # fmt: skip
    found = {path.name for path in root.iterdir() if not path.name.startswith(".")}
    assert found - {"fugu_cli.egg-info", "dist", "build"} == agreed


def test_a_public_class_name_stands_for_one_thing() -> None:
    named: dict[str, list[str]] = {}
    for path in MODULES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in named.items() if len(places) > 1} == {}


def test_docstrings_name_modules_that_exist() -> None:
    existing = {path.name for path in MODULES}
    stale = {
        str(path.relative_to(PACKAGE)): missing
        for path in MODULES
        if (text := ast.get_docstring(parsed(path)))
        and (missing := set(re.findall(r"\b[a-z_]+\.py\b", text)) - existing - EXAMPLES)
    }
    assert stale == {}


EXAMPLES = {"a.py", "sitecustomize.py"}
"""Files of users and of Python that docstrings name."""


def test_no_module_of_the_package_is_taken_for_a_test() -> None:
    assert [name for name, path in NAMED.items() if path.name.startswith("test_")] == []
