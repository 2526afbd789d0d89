import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fugu_cli.messages import FromAgent, FromUser, Prompt
from fugu_cli.repair.edit_parser import (
    ParsedEdits,
    SearchReplaceEdit,
    as_shown,
    parse_edits,
    placed_path,
    rewrite_token_limit,
    shown_files,
    unfenced_file,
)

FILE = "def f():\n    return 1\n"

NAMED = {
    "a path alone": f"src/a.py\n```\n{FILE}```",
    "a path and a blank line": f"src/a.py\n\n```python\n{FILE}```",
    "a path as a heading": f"### src/a.py\n```python\n{FILE}```",
    "a path in bold": f"**src/a.py**:\n```\n{FILE}```",
    "a path in a sentence": f"Here is the new `src/a.py`, with `f` put right:\n```python\n{FILE}```",
    "a path on the fence": f"```src/a.py\n{FILE}```",
    "a language and a path on the fence": f"```python src/a.py\n{FILE}```",
    "a path behind a colon": f"```python:src/a.py\n{FILE}```",
    "a title": f'```python title="src/a.py"\n{FILE}```',
    "no closing fence": f"src/a.py\n```\n{FILE}",
}


@pytest.mark.parametrize("name", NAMED)
def test_a_file_is_known_by_its_path(name: str) -> None:
    assert parse_edits(NAMED[name]).files == (("src/a.py", FILE),)


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
        "src/a.py\n```\n<<<<<<< SEARCH\nx\n=======\ny\n",
    ],
)
def test_anything_else_is_no_file(text: str) -> None:
    assert parse_edits(text).files == ()


def test_a_file_that_was_cut_short_is_none() -> None:
    text = f"a.py\n```\n{FILE}```\nb.py\n```\nx ="
    assert parse_edits(text, whole=False).files == (("a.py", FILE),)
    assert parse_edits(text, whole=True).files == (("a.py", FILE), ("b.py", "x =\n"))


def test_a_block_without_a_path_is_the_shown_file_it_resembles() -> None:
    shown = {"a.py": "import os\n\n\ndef f():\n    return 0\n", "b.py": "x = 1\n"}
    text = "The fix:\n```python\nimport os\n\n\ndef f():\n    return 1\n```\nRun it:\n```\nsomething else\n```"
    assert parse_edits(text, shown=shown).files == (("a.py", "import os\n\n\ndef f():\n    return 1\n"),)


def test_what_was_written_is_taken_out_of_the_words() -> None:
    text = f"I fixed it.\n\nsrc/a.py\n```python\n{FILE}```\n\nNow run:\n```bash\npytest\n```"
    assert parse_edits(text) == ParsedEdits(
        files=(("src/a.py", FILE),), edits=(), words="I fixed it.\n\nNow run:\n```bash\npytest\n```"
    )


def test_edits_are_read_inside_and_outside_of_fences() -> None:
    text = (
        "First:\nsrc/a.py\n```python\n<<<<<<< SEARCH\n    return 1\n=======\n    return 2\n>>>>>>> REPLACE\n```\n"
        "Then `b.py`:\n<<<<<<< SEARCH\nx\n=======\n>>>>>>> REPLACE\n"
        "<<<<<<< SEARCH\n=======\nnew line\n>>>>>>> REPLACE\nDone."
    )
    assert parse_edits(text) == ParsedEdits(
        files=(),
        edits=(
            SearchReplaceEdit("src/a.py", "    return 1", "    return 2"),
            SearchReplaceEdit("b.py", "x", ""),
            SearchReplaceEdit("b.py", "", "new line"),
        ),
        words="First:\nThen `b.py`:\nDone.",
    )


def test_an_edit_of_no_file_is_none() -> None:
    text = "<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE"
    assert parse_edits(text) == ParsedEdits(files=(), edits=(), words=text)


LINES = st.text("`<=>SEARCHREPLACE a.py/", max_size=12) | st.sampled_from(["a.py", "b/c.py:", "```", "```py", "x = 1"])


@given(text=st.lists(LINES, max_size=30).map("\n".join))
@example(text="a.py\n```\nx = 1\n```")
def test_no_text_breaks_the_reader(text: str) -> None:
    for path, content in parse_edits(text).files:
        assert path and content.endswith("\n")


@given(
    text=st.lists(st.sampled_from(["a.py", "```", "```python", "x", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"]))
)
def test_no_mixture_of_marks_breaks_the_reader(text: list[str]) -> None:
    written = parse_edits("\n".join(text))
    assert all("<<<<<<< SEARCH" not in content for _, content in written.files)


def test_the_files_of_a_brief_are_known() -> None:
    prompt = Prompt(
        system="",
        messages=(
            FromUser(text=f"# Task\nFix it.\n# File `src/a.py`\n```\n{FILE}```\n# File `b.py`\n```\nx\n```\n"),
            FromAgent(agent="a", text="c.py\n```\nmine\n```"),
        ),
    )
    assert shown_files(prompt) == {"src/a.py": FILE, "b.py": "x\n"}


def test_nothing_resembles_a_stub_so_the_longest_block_is_the_one_that_was_asked_for() -> None:
    shown = {"a.py": "def f(x):\n    pass\n"}
    body = "import os\n\n\ndef f(x):\n    if x:\n        return os.sep\n    return None\n"
    text = f"Here it is:\n```python\n{body}```\nUse it:\n```\nf(1)\n```"
    assert parse_edits(text, shown=shown, asked="a.py").files == (("a.py", body),)
    assert parse_edits(text, shown=shown).files == ()
    assert parse_edits(text, shown={"a.py": "x = 1\n"}, asked="a.py").files == (), "a piece must not replace a file"


def test_white_space_that_a_model_dropped_is_put_back() -> None:
    assert as_shown("x = 1\ny = 2\n", "\n\nx = 1  \ny = 2\n\n") == "\n\nx = 1  \ny = 2\n\n"
    assert as_shown("x = 1\ny = 3\n", "\n\nx = 1  \ny = 2\n\n") == "\n\nx = 1\ny = 3\n"
    assert as_shown("x = 1\n", "") == "x = 1\n"


def test_a_stub_leaves_all_the_room_there_is_and_a_file_three_times_its_own() -> None:
    assert rewrite_token_limit(1600, "def f():\n    pass\n") == 1600
    assert rewrite_token_limit(1600, "x = 1\n") == 512
    assert rewrite_token_limit(1600, "x = 1\n" * 100) == 600


def test_a_path_in_a_comment_on_top_of_a_block_is_its_path() -> None:
    assert parse_edits(f"```python\n# src/a.py\n{FILE}```").files == (("src/a.py", FILE),)
    assert parse_edits(f"```js\n// a.js\n\n{FILE}\n// b/c.test.js\nx\n```").files == (
        ("a.js", FILE),
        ("b/c.test.js", "x\n"),
    )
    assert parse_edits(f"```python\n# src/a.py\n{FILE}```", shown={"src/a.py": "# src/a.py\n"}).files == (
        ("src/a.py", f"# src/a.py\n{FILE}"),
    )


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
    assert parse_edits(text).files == ()


def test_where_one_file_was_asked_for_a_block_with_another_path_on_top_is_an_example() -> None:
    text = f"```python\n# use.py\n{FILE}```"
    assert parse_edits(text, shown={"a.py": "x = 1\n"}, asked="a.py").files == ()
    assert parse_edits(text, shown={"a.py": "x = 1\n"}).files == (("use.py", FILE),)


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
    assert parse_edits(text, shown=dict.fromkeys(["src/lib.rs", "a/mod.rs", "b/mod.rs"], "x\n"), asked=asked).files == (
        (expected, "x\n"),
    )


def test_a_document_is_the_whole_reply_whatever_fences_are_in_it() -> None:
    inner = "# A\n\n```python\nimport a\n```\n\nIt prints:\n\n```\n23.80\n```\n\nThat is all.\n"
    for reply in (f"```markdown\n{inner}```", f"README.md\n\n```\n{inner}```\n", f"```markdown\n{inner}"):
        assert parse_edits(reply, asked="README.md").files == (("README.md", inner),)
    assert parse_edits("Use it:\n```sh\nls\n```", asked="README.md").files == ()


def test_a_new_file_is_not_the_one_that_it_is_about() -> None:
    shown = {"a.py": "import os\n\n\ndef f():\n    return 1\n"}
    text = "```python\nimport os\n\n\ndef f():\n    return 1\n\n\ndef test_f():\n    assert f() == 1\n```"
    assert [path for path, _ in parse_edits(text, shown=shown, asked="test_a.py").files] == ["test_a.py"]
    assert [path for path, _ in parse_edits(text, shown=shown).files] == ["a.py"]


ONE, TWO = "def one(x):\n    return x - 1\n", "from a import one\n\n\ndef two(x):\n    return one(x)\n"
TESTS = "import unittest\nfrom a import one\n\n\nclass T(unittest.TestCase):\n    def test_one(self):\n        one(1)\n"


def test_a_block_without_a_path_is_the_one_file_that_has_its_function() -> None:
    new = "def one(x):\n    y = x * 2\n    z = y // 2\n    w = z\n    return w\n"
    for words in ("", "What `b.py` does comes from `a.py`:\n"):
        assert parse_edits(f"{words}```python\n{new}```", shown={"a.py": ONE, "b.py": TWO}).files == (("a.py", new),)
    assert parse_edits(f"```python\n{new}```", shown={"a.py": ONE, "b.py": ONE}).files == ()


def test_a_copy_of_the_test_below_the_answer_does_not_make_it_the_test() -> None:
    both = f"def one(x):\n    return x\n\n\n{TESTS}"
    shown = {"a.py": "def one(x):\n    pass\n", "test_a.py": TESTS}
    assert [path for path, _ in parse_edits(f"```python\n{both}```", shown=shown, asked="a.py").files] == ["a.py"]


def test_a_made_up_name_is_the_file_that_was_asked_for_where_it_holds_its_functions() -> None:
    new = ONE.replace("x - 1", "x")
    assert parse_edits(f"solution.py\n```\n{new}```", shown={"a.py": ONE}, asked="a.py").files == (("a.py", new),)
    for other in (f"test_a.py\n```\n{new}```", "new.py\n```\ndef more():\n    return 1\n```"):
        assert [path for path, _ in parse_edits(other, shown={"a.py": ONE}, asked="a.py").files] != ["a.py"]
    both = f"a.py\n```\n{new}```\nb.py\n```\n{new}```"
    assert [path for path, _ in parse_edits(both, shown={"a.py": ONE}, asked="a.py").files] == ["a.py", "b.py"]


def test_a_helper_in_a_block_of_its_own_comes_along() -> None:
    helper, new = "def half(x):\n    return x // 2\n", "def one(x):\n    return half(x)\n"
    text = f"First:\n```python\n{helper}```\nThen:\n```python\n{new}```\nUse it:\n```python\nprint(one(1))\n```"
    for shown in (ONE, "def one(x):\n    pass\n"):
        assert parse_edits(text, shown={"a.py": shown}, asked="a.py").files == (("a.py", f"{new}\n\n{helper}"),)


SUM = {"calc.py": "import math\n\n\ndef add(a, b):\n    return a - b\n"}
LIST = {"list.js": "function first(xs) {\n  return xs[1];\n}\n\nfunction last(xs) {\n  return xs[xs.length - 1];\n}\n"}


@pytest.mark.parametrize(
    ("text", "path", "shown"),
    [
        ("import math\n\n\ndef add(a, b):\n    return a + b", "calc.py", SUM),
        ("def double(x):\n    return 2 * x\n", "new.py", SUM),
        (LIST["list.js"].replace("[1]", "[0]"), "list.js", LIST),
    ],
)
def test_a_reply_that_is_nothing_but_the_file_needs_no_fence(text: str, path: str, shown: dict[str, str]) -> None:
    assert unfenced_file(text, path, shown).strip() == text.strip()
    assert unfenced_file(f"{text}\n```\n", path, shown) == unfenced_file(text, "", shown) == ""


@pytest.mark.parametrize(
    ("text", "path", "shown"),
    [
        ("The sum is wrong.", "calc.py", SUM),
        ("yes", "calc.py", SUM),
        ("Here it is:\n\ndef add(a, b):\n    return a + b\n", "calc.py", SUM),
        ("def other(a):\n    return a\n", "calc.py", SUM),
        ("function first(xs) {\n  return xs[0];\n}\n", "list.js", LIST),
        ("function first(xs) {\n  return xs[0];\n}\n", "new.js", LIST),
    ],
)
def test_words_and_parts_without_a_fence_are_no_file(text: str, path: str, shown: dict[str, str]) -> None:
    assert unfenced_file(text, path, shown) == ""


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        ("```bash\n#!/bin/bash\npytest -q\n```", "#!/bin/bash\npytest -q\n"),
        ("```sh\npytest -q\n```", "pytest -q\n"),
        ("```bash\n#!/bin/sh\npytest\n```\nRun it:\n```bash\nchmod +x test.sh\n./test.sh\n```", "#!/bin/sh\npytest\n"),
        ("Run it:\n```bash\n./test.sh\n```", None),
        ("```bash\nmkdir out\n```\nThen:\n```bash\ncp a out\n```", None),
    ],
)
def test_a_shell_script_that_was_asked_for_is_a_block_of_shell(reply: str, content: str | None) -> None:
    written = parse_edits(reply, shown={"a.py": "x = 1\n"}, asked="test.sh")
    assert written.files == (() if content is None else (("test.sh", content),))
    assert parse_edits(reply, shown={"a.py": "x = 1\n"}, asked="a.py").files == ()
