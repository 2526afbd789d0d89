"""Which one file a small model is asked for where no failing test says so."""

import pytest

from fugu_cli.loop import tests_wanted

CODE = "def slugify(title):\n    return title\n"
OTHER = "from shop.prices import parse\n\n\ndef test_parse():\n    assert parse('1') == 1\n"


@pytest.mark.parametrize(
    ("request_text", "files", "changed", "expected"),
    [
        ("write tests for slugify", {"src/slugs.py": CODE}, [], "tests/test_slugs.py"),
        ("write tests for slugify", {"slugs.py": CODE}, [], "test_slugs.py"),
        ("write tests for slugify", {"src/slugs.py": CODE, "t/test_x.py": OTHER}, [], "t/test_slugs.py"),
        ("write tests for slugify", {"src/slugs.py": CODE, "tests/x_test.py": OTHER}, [], "tests/slugs_test.py"),
        ("write tests for slugify", {"a.py": CODE, "tests/test_all.py": "slugify('a')"}, [], "tests/test_all.py"),
        ("write tests for slugify", {"a.py": CODE, "b.py": "x = 1\n"}, [], ""),
        ("write tests", {"README.md": "# shop\n"}, [], ""),
        ("write tests for f", {"lib/a.mjs": "function f() {}"}, [], "lib/a.test.mjs"),
        ("write tests for f", {"lib/a.ts": "function f() {}", "lib/b.spec.ts": "b()"}, [], "lib/a.spec.ts"),
        ("write tests for A", {"src/main/java/x/A.java": "class A {}"}, [], "src/test/java/x/ATest.java"),
        ("write tests for f", {"a.go": "func f() {}"}, [], "a_test.go"),
        ("write tests for f", {"src/lib.rs": "fn f() {}"}, [], ""),
        ("add a function f with a test", {"a.py": CODE}, [], ""),
        ("add a function f with a test", {"a.py": CODE}, ["a.py"], "test_a.py"),
        ("add a function f with a test", {"a.py": CODE, "b.py": "x = 1\n"}, ["a.py"], "test_a.py"),
        ("add a function f with a test", {"a.py": CODE}, ["a.py", "test_a.py"], ""),
        ("rename slugify", {"a.py": CODE}, ["a.py"], ""),
    ],
)  # fmt: skip
def test_the_test_that_is_to_be_written(
    request_text: str, files: dict[str, str], changed: list[str], expected: str
) -> None:
    assert tests_wanted.target(request_text, files, changed) == expected


@pytest.mark.parametrize(
    ("request_text", "files", "expected"),
    [
        ("slugify should turn umlauts into ae", {"a.py": CODE, "tests/test_a.py": "slugify"}, "a.py"),
        ("add a function shorten", {"a.py": CODE, "tests/test_a.py": "slugify"}, "a.py"),
        ("add a function f with a test", {"a.py": CODE}, "a.py"),
        ("what does slugify do?", {"a.py": CODE}, ""),
        ("write tests for slugify", {"a.py": CODE}, ""),
        ("rename slugify to slug", {"a.py": CODE, "tests/test_a.py": "slugify"}, ""),
        ("a.py needs a remove function", {"a.py": CODE, "tests/test_a.py": "slugify"}, "a.py"),
        ("create a server", {"a.py": CODE}, ""),
        ("create a short form of slugify", {"a.py": CODE}, "a.py"),
        ("add a module with constants", {"a.py": CODE}, ""),
        ("add a flag", {"a.py": CODE, "b.py": "x = 1\n"}, ""),
        ("add a chapter", {"README.md": "# a\n"}, ""),
    ],
)
def test_the_code_that_a_change_is_surely_in(request_text: str, files: dict[str, str], expected: str) -> None:
    assert tests_wanted.only_code(request_text, files) == expected
