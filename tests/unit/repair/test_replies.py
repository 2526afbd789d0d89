import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fugu_cli.repair.replies import (
    ParsedReply,
    as_shown,
    parse_reply,
    placed_path,
)

FILE = "def f():\n    return 1\n"

NAMED = {
    "a path alone": f"src/a.py\n```\n{FILE}```",
    "a path and a blank line": f"src/a.py\n\n```python\n{FILE}```",
    "a path as a heading": f"### src/a.py\n```python\n{FILE}```",
    "a path in bold": f"**src/a.py**:\n```\n{FILE}```",
    "a path in a sentence": (
        f"Here is the new `src/a.py`, with `f` put right:\n```python\n{FILE}```"
    ),
    "a path on the fence": f"```src/a.py\n{FILE}```",
    "a language and a path on the fence": f"```python src/a.py\n{FILE}```",
    "a path behind a colon": f"```python:src/a.py\n{FILE}```",
    "a title": f'```python title="src/a.py"\n{FILE}```',
    "no closing fence": f"src/a.py\n```\n{FILE}",
}


@pytest.mark.parametrize("name", NAMED)
def test_a_file_is_known_by_its_path(name: str) -> None:
    assert parse_reply(NAMED[name]).files == (("src/a.py", FILE),)


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{FILE}```",
        f"Compare `a.py` and `b.py`:\n```\n{FILE}```",
        "Run this in src/a.py:\n```bash\npytest src/a.py\n```",
        "src/a.py\n```diff\n-x\n+y\n```",
        "src/a.py\n```\n```",
        "src/a.py says nothing",
        "It costs 23.80 EUR:\n```\nx\n```",
        "23.80\n```\nx\n```",
        "Run `python src/a.py`. It prints:\n```\nx\n```",
        "As in obj.attribute here:\n```\nx\n```",
    ],
)
def test_anything_else_is_no_file(text: str) -> None:
    assert parse_reply(text).files == ()


def test_a_file_that_was_cut_short_is_none() -> None:
    text = f"a.py\n```\n{FILE}```\nb.py\n```\nx ="
    assert parse_reply(text, whole=False).files == (("a.py", FILE),)
    assert parse_reply(text, whole=True).files == (("a.py", FILE), ("b.py", "x =\n"))


def test_a_block_without_a_path_is_the_shown_file_it_resembles() -> None:
    shown = {"a.py": "import os\n\n\ndef f():\n    return 0\n", "b.py": "x = 1\n"}
    text = (
        "The fix:\n```python\nimport os\n\n\ndef f():\n    return 1\n```\nRun "
        "it:\n```\nsomething else\n```"
    )
    assert parse_reply(text, shown=shown).files == (
        ("a.py", "import os\n\n\ndef f():\n    return 1\n"),
    )


def test_what_was_written_is_taken_out_of_the_words() -> None:
    text = f"I fixed it.\n\nsrc/a.py\n```python\n{FILE}```\n\nNow run:\n```bash\npytest\n```"
    assert parse_reply(text) == ParsedReply(
        files=(("src/a.py", FILE),), words="I fixed it.\n\nNow run:\n```bash\npytest\n```"
    )


LINES = st.text("`<=> a.py/", max_size=12) | st.sampled_from(
    ["a.py", "b/c.py:", "```", "```py", "x = 1"]
)


@given(text=st.lists(LINES, max_size=30).map("\n".join))
@example(text="a.py\n```\nx = 1\n```")
def test_no_text_breaks_the_reader(text: str) -> None:
    for path, content in parse_reply(text).files:
        assert path and content.endswith("\n")


def test_nothing_resembles_a_stub_so_the_longest_block_is_the_one_that_was_asked_for() -> None:
    shown = {"a.py": "def f(x):\n    pass\n"}
    body = "import os\n\n\ndef f(x):\n    if x:\n        return os.sep\n    return None\n"
    text = f"Here it is:\n```python\n{body}```\nUse it:\n```\nf(1)\n```"
    assert parse_reply(text, shown=shown, asked="a.py").files == (("a.py", body),)
    assert parse_reply(text, shown={"a.py": "x = 1\n"}, asked="a.py").files == (), (
        "a piece must not replace a file"
    )


def test_white_space_that_a_model_dropped_is_put_back() -> None:
    assert as_shown("x = 1\ny = 2\n", "\n\nx = 1  \ny = 2\n\n") == "\n\nx = 1  \ny = 2\n\n"
    assert as_shown("x = 1\ny = 3\n", "\n\nx = 1  \ny = 2\n\n") == "\n\nx = 1\ny = 3\n"
    assert as_shown("x = 1\n", "") == "x = 1\n"


def test_a_path_in_a_comment_on_top_of_a_block_is_its_path() -> None:
    assert parse_reply(f"```python\n# src/a.py\n{FILE}```").files == (("src/a.py", FILE),)
    assert parse_reply(
        f"```python\n# src/a.py\n{FILE}```", shown={"src/a.py": "# src/a.py\n"}
    ).files == (("src/a.py", f"# src/a.py\n{FILE}"),)


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{FILE}# src/a.py\n```",
        f"```python\n# as in src/a.py\n{FILE}```",
        "```bash\n# run.sh\nls\n```",
        "```python\n# src/a.py\n```",
        "```python\n# 3.11\nx = 1\n```",
    ],
)
def test_any_other_comment_is_none(text: str) -> None:
    assert parse_reply(text).files == ()


def test_where_one_file_was_asked_for_a_block_with_another_path_on_top_is_an_example() -> None:
    text = f"```python\n# use.py\n{FILE}```"
    assert parse_reply(text, shown={"a.py": "x = 1\n"}, asked="a.py").files == ()
    assert parse_reply(text, shown={"a.py": "x = 1\n"}).files == (("use.py", FILE),)


@pytest.mark.parametrize(
    ("path", "asked", "expected"),
    [
        ("lib.rs", "", "src/lib.rs"),
        ("path/to/lib.rs", "", "src/lib.rs"),
        ("./src/lib.rs", "", "src/lib.rs"),
        ("other/lib.rs", "", "other/lib.rs"),
        ("mod.rs", "", "mod.rs"),
        ("mod.rs", "b/mod.rs", "b/mod.rs"),
        ("test_a.py", "tests/test_a.py", "tests/test_a.py"),
        ("new.rs", "src/lib.rs", "new.rs"),
    ],
)
def test_a_path_without_its_folders_is_the_file_that_was_shown_or_asked_for(
    path: str, asked: str, expected: str
) -> None:
    assert placed_path(path, ["src/lib.rs", "a/mod.rs", "b/mod.rs"], asked) == expected
    text = f"{path}\n```\nx\n```\n"
    assert parse_reply(
        text, shown=dict.fromkeys(["src/lib.rs", "a/mod.rs", "b/mod.rs"], "x\n"), asked=asked
    ).files == ((expected, "x\n"),)


def test_a_document_is_the_whole_reply_whatever_fences_are_in_it() -> None:
    inner = "# A\n\n```python\nimport a\n```\n\nIt prints:\n\n```\n23.80\n```\n\nThat is all.\n"
    for reply in (
        f"```markdown\n{inner}```",
        f"README.md\n\n```\n{inner}```\n",
        f"```markdown\n{inner}",
    ):
        assert parse_reply(reply, asked="README.md").files == (("README.md", inner),)
    assert parse_reply("Use it:\n```sh\nls\n```", asked="README.md").files == ()


def test_a_new_file_is_not_the_one_that_it_is_about() -> None:
    shown = {"a.py": "import os\n\n\ndef f():\n    return 1\n"}
    text = (
        "```python\nimport os\n\n\ndef f():\n    return 1\n\n\ndef test_f():\n    assert f() == "
        "1\n```"
    )
    assert [path for path, _ in parse_reply(text, shown=shown, asked="test_a.py").files] == [
        "test_a.py"
    ]
    assert [path for path, _ in parse_reply(text, shown=shown).files] == ["a.py"]


ONE, TWO = (
    "def one(x):\n    return x - 1\n",
    "from a import one\n\n\ndef two(x):\n    return one(x)\n",
)
TESTS = (
    "import unittest\nfrom a import one\n\n\nclass T(unittest.TestCase):\n    def "
    "test_one(self):\n        one(1)\n"
)


def test_a_block_without_a_path_is_the_one_file_that_has_its_function() -> None:
    new = "def one(x):\n    y = x * 2\n    z = y // 2\n    w = z\n    return w\n"
    for words in ("", "What `b.py` does comes from `a.py`:\n"):
        assert parse_reply(
            f"{words}```python\n{new}```", shown={"a.py": ONE, "b.py": TWO}
        ).files == (("a.py", new),)
    assert parse_reply(f"```python\n{new}```", shown={"a.py": ONE, "b.py": ONE}).files == ()


SUM = {"calc.py": "import math\n\n\ndef add(a, b):\n    return a - b\n"}
LIST = {
    "list.js": (
        "function first(xs) {\n  return xs[1];\n}\n\nfunction last(xs) {\n  return "
        "xs[xs.length - 1];\n}\n"
    )
}


@pytest.mark.parametrize(
    ("text", "path", "shown"),
    [
        ("import math\n\n\ndef add(a, b):\n    return a + b", "calc.py", SUM),
        ("def double(x):\n    return 2 * x\n", "new.py", SUM),
        (LIST["list.js"].replace("[1]", "[0]"), "list.js", LIST),
    ],
)
def test_a_reply_that_is_nothing_but_the_file_needs_no_fence(
    text: str, path: str, shown: dict[str, str]
) -> None:
    assert parse_reply(text, shown=shown, asked=path).files == ((path, f"{text.strip()}\n"),)
    assert (
        parse_reply(text, shown=shown, asked=path, whole=False).files
        == parse_reply(text, shown=shown).files
        == ()
    )


@pytest.mark.parametrize(
    "text", ["The sum is wrong.", "yes", "Here it is:\n\ndef add(a, b):\n    return a + b\n"]
)
def test_words_without_a_fence_are_no_file(text: str) -> None:
    assert parse_reply(text, shown=SUM, asked="calc.py").files == ()
