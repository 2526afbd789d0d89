"""Files that hold fences themselves, and several blocks of one file: nothing of them is lost."""

import pytest

from fugu_cli.providers.code_blocks import blocks

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
