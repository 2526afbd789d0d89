"""What no linter checks of the code: names, docstrings, where files stand."""

import ast
import re
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
