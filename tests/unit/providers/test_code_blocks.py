import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.providers.code_blocks import Block, blocks, fenced

NESTED = "```markdown\n# Title\n```bash\nls\n```\nend\n```\nThat is all."
TWO = "Old:\n```python\nx = 1\n```\nNew:\n```python\nx = 2\ny = 3\n```\n"


@pytest.mark.parametrize(
    ("text", "bodies"),
    [
        ("```\nx\n```", ["x\n"]),
        ("```python\nx\n\ny\n```\n", ["x\n\ny\n"]),
        ("Sure!\n\n```py\nx\n```\nHope it helps.", ["x\n"]),
        ("  ~~~\nx\n```\n~~~", ["x\n```\n"]),
        ("````\n```\nx\n```\n````", ["```\nx\n```\n"]),
        (NESTED, ["# Title\n```bash\nls\n```\nend\n"]),
        ("```\nx = 1\n", ["x = 1\n"]),
        ("```", [""]),
        ("```\n```", [""]),
        ("    ```\nindented code is no fence", []),
        ("no fence at all", []),
        (TWO, ["x = 1\n", "x = 2\ny = 3\n"]),
        ("```\r\nx\r\n```\r\n", ["x\n"]),
        ("```\na\x0cb\u2028c\n```", ["a\x0cb\u2028c\n"]),
    ],
)
def test_blocks_are_found_as_a_reader_would(text: str, bodies: list[str]) -> None:
    assert [block.body for block in blocks(text)] == bodies


def test_a_block_says_where_it_stands_and_whether_it_was_closed() -> None:
    assert blocks("a\n```sh x\nls\n") == [
        Block(info="sh x", body="ls\n", start=1, end=4, closed=False)
    ]
    assert blocks("a\n```\nls\n```\nb") == [
        Block(info="", body="ls\n", start=1, end=4, closed=True)
    ]


@given(body=st.text(st.sampled_from("`~ab \n"), max_size=40))
def test_what_was_fenced_is_found_again(body: str) -> None:
    found = blocks(fenced(body))
    expected = body if body.endswith("\n") or not body else f"{body}\n"
    assert [block.body for block in found] == [expected]


@given(text=st.text(st.sampled_from("`~abc \n\r"), max_size=80))
def test_any_text_gives_blocks_that_lie_apart_and_in_order(text: str) -> None:
    edges = [edge for block in blocks(text) for edge in (block.start, block.end)]
    assert edges == sorted(edges)


@pytest.mark.parametrize("margin", [" ", "   ", "    ", "      "])
@pytest.mark.parametrize("item", ["1. Change it:", "- Change it:", "* Change it:\n\n  As this:"])
def test_a_block_in_an_item_of_a_list_is_indented_as_its_fence_is(item: str, margin: str) -> None:
    inside = "```python\ndef f(x):\n    return x\n\n\n```"
    indented = "\n".join(f"{margin}{line}" if line else line for line in inside.split("\n"))
    text = f"{item}\n\n{indented}\n\n2. Then:\n{margin}```\n{margin}x = 1\n{margin}```\nDone.\n"
    text += "```\nif x:\n    y\n```\n"
    assert [block.body for block in blocks(text)] == [
        "def f(x):\n    return x\n\n\n",
        "x = 1\n",
        "if x:\n    y\n",
    ]


def test_what_is_indented_without_a_list_is_no_fence() -> None:
    assert blocks("def f():\n    ```\n    x\n    ```\n") == []
