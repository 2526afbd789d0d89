"""Code that is still to be written is told from code that is written wrongly."""

import pytest

from fugu_cli.repair.code_structure import body_to_write, is_stub

STUBS = (
    "",
    "# my module\n",
    "def f(x): ...\n",
    'def longest(words):\n    """The longest.\n\n    >>> longest([])\n    """\n    raise NotImplementedError\n',
    "import os\n\n\ndef f(x: int) -> int:\n    # to do\n    ...\n\n\ndef g():\n    return f(1)\n",
    "class A:\n    def __init__(self, x):\n        pass\n\n    async def run(self):\n        return 1\n",
    'pub fn reply(message: &str) -> &str {\n    todo!("how does {message} go?")\n}\n',
    "pub fn new() -> Self {\n    Self {\n        a: unimplemented!(),\n    }\n}\n",
    "export const f = (x) => {\n  const y = x;\n  throw new Error('Implement the function');\n};\n",
    'package a\n\nfunc F(n int) int {\n\tm := n\n\tpanic("Please implement the F function")\n}\n',
    "class A {\n    int f() {\n        throw new UnsupportedOperationException();\n    }\n}\n",
)
WRITTEN = (
    "x = 1\n",
    "def f(x):\n    try:\n        return int(x)\n    except ValueError:\n        pass\n    return 0\n",
    'def f(x):\n    """Do nothing with pass.\n    """\n    y = x\n    return y\n',
    "class E(Exception):\n    pass\n\n\ndef f(x):\n    if x:\n        raise E(x)\n    return x\n",
    "const f = (x) => {\n  if (!x) {\n    throw new Error('no x');\n  }\n  return x;\n};\n",
    "fn f(x: u8) -> u8 {\n    // todo later\n    let y = x;\n    y + 1\n}\n",
)


@pytest.mark.parametrize("text", STUBS)
def test_code_that_is_still_to_be_written_is_a_stub(text: str) -> None:
    assert is_stub(text)


@pytest.mark.parametrize("text", WRITTEN)
def test_code_that_is_written_is_none(text: str) -> None:
    assert not is_stub(text)


def test_a_long_file_is_not_called_a_stub_for_one_function() -> None:
    assert is_stub("def f():\n    pass\n")
    assert not is_stub("def f():\n    pass\n" + "x = 1\n" * 1000)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('def f():\n    """One."""\n    pass', 2),
        ("import re\n\ndef f():\n    # nothing yet\n    raise NotImplementedError('f')\n", 4),
        ("def f(): ...", None),
        ("def f():\n    pass\n\ndef g():\n    pass", None),
        ("def f():\n    return 1", None),
        ("", None),
    ],
)
def test_the_body_that_is_to_be_written_is_that_of_the_only_function_without_one(text: str, line: int | None) -> None:
    assert body_to_write(text.split("\n")) == line
