"""Code that is still to be written is told from code that is written wrongly."""

import pytest

from fugu_cli.repair.syntax import functions, is_stub, parses

STUBS = (
    "",
    "# my module\n",
    "def f(x): ...\n",
    'def longest(words):\n    """The longest.\n\n    >>> longest([])\n    """\n    raise NotImplementedError\n',
    "import os\n\n\ndef f(x: int) -> int:\n    # to do\n    ...\n\n\ndef g():\n    return f(1)\n",
    "class A:\n    def __init__(self, x):\n        pass\n\n    async def run(self):\n        "
    "return 1\n",
    'pub fn reply(message: &str) -> &str {\n    todo!("how does {message} go?")\n}\n',
    "pub fn new() -> Self {\n    Self {\n        a: unimplemented!(),\n    }\n}\n",
    "export const f = (x) => {\n  const y = x;\n  throw new Error('Implement the function');\n};\n",
    'package a\n\nfunc F(n int) int {\n\tm := n\n\tpanic("Please implement the F function")\n}\n',
    "class A {\n    int f() {\n        throw new UnsupportedOperationException();\n    }\n}\n",
)
WRITTEN = (
    "x = 1\n",
    "def f(x):\n    try:\n        return int(x)\n    except ValueError:\n        pass\n    "
    "return 0\n",
    'def f(x):\n    """Do nothing with pass.\n    """\n    y = x\n    return y\n',
    "class E(Exception):\n    pass\n\n\ndef f(x):\n    if x:\n        raise E(x)\n    return x\n",
    "const f = (x) => {\n  if (!x) {\n    throw new Error('no x');\n  }\n  return x;\n};\n",
    "fn f(x: u8) -> u8 {\n    // todo later\n    let y = x;\n    y + 1\n}\n",
)


def path_of(text: str) -> str:
    """A file in the language of the text."""
    starts = {
        "pub fn": "rs",
        "fn ": "rs",
        "export": "js",
        "const": "js",
        "package": "go",
        "class A {": "java",
    }
    return f"a.{next((ending for start, ending in starts.items() if text.startswith(start)), 'py')}"


@pytest.mark.parametrize("text", STUBS)
def test_code_that_is_still_to_be_written_is_a_stub(text: str) -> None:
    assert is_stub(path_of(text), text)


@pytest.mark.parametrize("text", WRITTEN)
def test_code_that_is_written_is_none(text: str) -> None:
    assert not is_stub(path_of(text), text)


def test_a_long_file_is_not_called_a_stub_for_one_function() -> None:
    assert is_stub("a.py", "def f():\n    pass\n")
    assert not is_stub("a.py", "def f():\n    pass\n" + "x = 1\n" * 1000)


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        (
            "a.py",
            "@cache\ndef f():\n    def g():\n        return 1\n    return g\n",
            [("f", 0, 5), ("g", 2, 4)],
        ),
        (
            "a.js",
            "const f = async (x) => {\n  return x;\n};\nexports.g = function () {\n};\n",
            [("f", 0, 3), ("g", 3, 5)],
        ),
        (
            "a.ts",
            "export class A {\n  /** Adds. */\n  add(x: number) {\n    return x;\n  }\n}\n",
            [("add", 1, 5)],
        ),
        (
            "a.rs",
            "impl A for B {\n    /// Adds.\n    #[inline]\n    fn add() {\n    }\n}\n",
            [("add", 1, 5)],
        ),
        ("a.go", "// Adds.\nfunc (s *S) Add(x int) int {\n\treturn x\n}\n", [("Add", 0, 4)]),
        (
            "A.java",
            "class A {\n  @Test\n  int add(int x) {\n    return x;\n  }\n}\n",
            [("add", 1, 5)],
        ),
        ("a.c", "static int *add(int x)\n{\n  return 0;\n}\n", [("add", 0, 4)]),
        ("a.cc", "int Cart::add(int x) {\n  return 0;\n}\n", [("add", 0, 3)]),
        ("a.rb", "class A\n  def add(x)\n    x\n  end\nend\n", [("add", 1, 4)]),
        ("a.txt", "def f(): pass\n", []),
        ("a.py", "", []),
    ],
)
def test_functions_are_found_in_every_language_with_what_stands_above_them(
    path: str, text: str, found: list[tuple[str, int, int]]
) -> None:
    assert [(one.name, one.start, one.end) for one in functions(path, text)] == found


def test_what_cannot_be_read_is_known() -> None:
    assert [parses(path, "def f(:\n") for path in ("a.py", "a.txt")] == [False, True]
    assert not parses("a.py", "def f():\ndef f():\n    return 1\n")
    assert [parses("a.js", text) for text in ("function f() {\n", "function f() {}\n")] == [
        False,
        True,
    ]
