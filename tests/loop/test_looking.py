"""What is looked up for a question instead of files."""

import asyncio
from pathlib import Path

import pytest
from fugu_cli.loop.looking import look

from fugu_cli.messages import Call
from fugu_cli.test_paths import TEST
from fugu_cli.tools.search import Grep, grep
from fugu_cli.tools.workspace import Workspace

PATHS = [
    "a.py",
    "attest.py",
    "contest/a.py",
    "latest.txt",
    "test_a.py",
    "src/test_a.py",
    "a_test.go",
    "src/b.test.ts",
    "b.spec.js",
    "c-spec.rb",
    "tests/data.py",
    "pkg/__tests__/x.js",
    "spec/models/x.rb",
    "src/ATest.java",
    "src/ATests.cs",
    "ATest.py",
]


def test_the_tests_that_are_searched_are_those_that_look_like_tests_elsewhere(tmp_path: Path) -> None:
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("the_name\n")
    found = look("is there a test for the_name?", ("grep",))
    assert found is not None
    given = Grep.model_validate_json(found.call("1").arguments).model_copy(update={"context": 0})
    result = asyncio.run(grep(given, Workspace(tmp_path, tmp_path.parent / "store"), lambda said: None))
    assert sorted(line.partition(":")[0] for line in result.text.splitlines()) == sorted(filter(TEST.search, PATHS))


@pytest.mark.parametrize("line", ["add_tax(1)", "    return add_tax", "test_add_tax", "add_tax"])
def test_a_name_is_found_in_any_place_of_a_line(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"x = 1\n{line}\nreadd_taxes\n")
    found = look("where is add_tax used?", ("grep",))
    assert found is not None
    given = Grep.model_validate_json(found.call("1").arguments).model_copy(update={"context": 0})
    assert (
        asyncio.run(grep(given, Workspace(tmp_path, tmp_path.parent / "store"), lambda said: None)).text
        == f"a.py:2:{line}"
    )


def test_git_is_asked_where_commands_may_be_run() -> None:
    found = look("what changed in the last commit?", ("bash", "grep"))
    assert found is not None
    assert found.call("1") == Call.make("1", "bash", command="git show --stat --patch HEAD")
    assert look("what changed in the last commit?", ("grep",)) is None
    assert look("is add tested?", ()) is None
