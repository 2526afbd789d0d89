"""The shape the code must keep: sizes, docstrings, what importing costs. Imports' directions are import-linter's."""

import ast
from pathlib import Path

import pytest

import fugu_cli

PACKAGE = Path(fugu_cli.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in MODULES]


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_a_module_holds_one_idea_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 600
    assert ast.get_docstring(ast.parse(text)), "a module begins by saying what it is"


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_classes_are_small_and_nothing_is_caught_that_was_not_named(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
            assert len(methods) <= 24, f"{node.name} has {len(methods)} methods"
            assert not node.name.endswith(("Manager", "Handler", "Helper", "Utils")), node.name
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None
            caught = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)}
            reraised = any(isinstance(item, ast.Raise) and item.exc is None for item in ast.walk(node))
            assert reraised or not caught & {"Exception", "BaseException"}, f"line {node.lineno}"


def test_the_root_of_the_package_holds_few_modules_beside_its_folders() -> None:
    assert len([path for path in PACKAGE.glob("*.py") if path.name not in {"__init__.py", "__main__.py"}]) <= 8


def test_the_top_level_holds_what_was_agreed() -> None:
    root = PACKAGE.parent
    agreed = {
        "pyproject.toml", "README.md", "fugu_cli", "prompts", "tests", "install.sh", "LICENSE", "CHANGELOG.md",
    }  # fmt: skip
    found = {path.name for path in root.iterdir() if not path.name.startswith(".")}
    assert found - {"fugu_cli.egg-info", "dist", "build"} == agreed
