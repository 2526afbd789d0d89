"""Files that hold fences themselves, and several blocks of one file: nothing of them is lost."""

import pytest

from fugu_cli.providers.code_blocks import blocks
from fugu_cli.repair.replies import parse_reply

MODULE = '"""Text helpers.\n\n```\nslug("A")\n```\n"""\nSEP = "-"\n\n\ndef slug(s):\n    return s.lower()\n'
MENDED = MODULE.replace("lower", "upper")
README = "# Cart\n\n```\npip install cart\n```\n\n```\nimport cart\n```\n\nEnd.\n"
NEW = README.replace("End", "The end")


@pytest.mark.parametrize("info", ["python", "py", "", "text.py", "python title=text.py"])
def test_a_fence_in_a_string_of_python_closes_no_block(info: str) -> None:
    reply = f"So:\n```{info}\n{MODULE}```\nand\n```\nls\n```\n"
    assert [block.body for block in blocks(reply)] == [MODULE, "ls\n"]


def test_python_that_never_can_be_read_ends_at_its_first_fence() -> None:
    reply = '```python\ndef f(:\n    """Say."""\n```\nand\n```python\nx = 1\n```\n'
    assert [block.body for block in blocks(reply)] == ['def f(:\n    """Say."""\n', "x = 1\n"]


@pytest.mark.parametrize(
    "reply",
    [
        f"Here is the new file:\n\n```markdown\n{NEW}```\n\nDone.",
        f"Here is the new file:\n\n````markdown\n{NEW}````\n\nDone.",
        f"Here is the new file:\n\n```\n{NEW}```\n\nDone.",
        f"Run:\n```bash\nls\n```\nThe new `README.md`:\n```\n{NEW}```\nDone.",
        f"```markdown\n{NEW}```\n\nLook at it with:\n```bash\ncat README.md\n```\n",
    ],
)
def test_a_document_with_bare_fences_is_taken_whole_with_prose_around_it(reply: str) -> None:
    written = parse_reply(reply, shown={"README.md": README}, asked="README.md")
    assert written.files == (("README.md", NEW),)
    assert "Done." in written.words or "Look" in written.words


def test_a_document_ends_where_the_next_block_is_introduced() -> None:
    reply = "```markdown\n# Cart\nThe end.\n```\n\nTo see it, run:\n\n```\ncat README.md\n```\n"
    assert parse_reply(reply, shown={"README.md": "# Cart\nEnd.\n"}, asked="README.md").files == (
        ("README.md", "# Cart\nThe end.\n"),
    )


def test_a_piece_of_a_document_or_a_command_is_no_document() -> None:
    for reply in (
        "Add this:\n\n```markdown\n## Licence\n\nMIT\n```\n\nDone.",
        "```\npip install cart\n```\nRun this.",
    ):
        assert parse_reply(reply, shown={"README.md": README}, asked="README.md").files == ()


def test_other_files_beside_a_document_are_written_too() -> None:
    reply = f"```markdown\n{NEW}```\n\n`b.py`:\n```python\nx = 2\n```\n"
    shown = {"README.md": README, "b.py": "x = 1\n"}
    assert parse_reply(reply, shown=shown, asked="README.md").files == (
        ("README.md", NEW),
        ("b.py", "x = 2\n"),
    )


FILE = "def one(x):\n    return x\n\n\ndef two(x):\n    return x\n"
ONE, TWO = "def one(x, y=0):\n    return x + y\n", "def two(x, y=0):\n    return x * y\n"


def test_two_blocks_of_one_file_are_both_taken() -> None:
    ((path, content),) = parse_reply(
        f"`a.py`:\n```python\n{ONE}```\n\nand\n\n`a.py`:\n```python\n{TWO}```\n"
    ).files
    assert (path, content.rstrip()) == ("a.py", f"{ONE}\n\n{TWO}".rstrip())


def test_a_later_block_with_all_of_the_earlier_one_replaces_it() -> None:
    reply = f"`a.py`:\n```python\n{FILE}```\nNo:\n`a.py`:\n```python\n{ONE}\n\n{TWO}```\n"
    assert parse_reply(reply).files == (("a.py", f"{ONE}\n\n{TWO}"),)


def test_a_block_that_only_uses_a_file_does_not_replace_it() -> None:
    used = "```python\nfrom a import one\nprint(one(1))\n```\n"
    for path in ("Use of `a.py`:\n", ""):
        reply = f"`a.py`:\n```python\n{FILE}```\n{path}{used}"
        assert parse_reply(reply, shown={"a.py": FILE}).files == (("a.py", FILE),)


def test_an_unnamed_block_takes_nothing_from_a_named_one() -> None:
    shown = f"import math\n\n\n{FILE}"
    whole = shown.replace("return x\n", "return math.ceil(x)\n")
    reply = f"`a.py`:\n```python\n{whole}```\n\nThe part that changed is\n\n```python\n{FILE}```\n"
    assert parse_reply(reply, shown={"a.py": shown}).files == (("a.py", whole),)
