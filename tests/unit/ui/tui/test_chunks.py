import re
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from fugu_cli.ui.markdown_chunks import (
    CHUNK_CHARACTERS,
    MarkdownChunk,
    MarkdownChunker,
)

MARKS = [
    "# head\n",
    "text",
    " ",
    "\n",
    "\n\n",
    "- item\n",
    "1. one\n",
    "```py\n",
    "```\n",
    "~~~\n",
    "    code\n",
    "| a |\n",
]
documents = st.lists(st.sampled_from(MARKS), max_size=60).map("".join)


def chunks_of(text: str, cuts: Sequence[int] = ()) -> list[MarkdownChunk]:
    """Return the chunks of a text that arrives in pieces, cut at `cuts`."""
    chunker = MarkdownChunker()
    before = 0
    for cut in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        chunker.feed(text[before:cut])
        before = cut
    return chunker.chunks()


@settings(max_examples=300)
@given(documents, st.lists(st.integers(min_value=0), max_size=20))
def test_chunks_do_not_depend_on_how_the_text_arrived(text: str, cuts: list[int]) -> None:
    assert chunks_of(text, cuts) == chunks_of(text)


@given(documents)
def test_nothing_is_lost_and_nothing_stands_twice(text: str) -> None:
    kept = "".join(chunk.text for chunk in chunks_of(text))
    assert re.sub(r"\s", "", kept) == re.sub(r"\s", "", text)


def test_what_is_done_never_changes() -> None:
    chunker = MarkdownChunker()
    seen: list[MarkdownChunk] = []
    for line in ("para one\n", "\n", "para two\n", "```py\n", "a = 1\n", "```\n", "end"):
        chunker.feed(line)
        assert chunker.done[: len(seen)] == seen
        seen = list(chunker.done)
    assert chunker.chunks() == [
        MarkdownChunk("para one"), MarkdownChunk("para two"), MarkdownChunk("```py\na = 1\n```"), MarkdownChunk("end"),
    ]  # fmt: skip


def test_a_fence_without_an_end_is_cut_into_fences() -> None:
    chunks = chunks_of("```py\n" + "a = 1\n" * 200)
    assert len(chunks) > 3
    assert all(chunk.text.startswith("```py\na = 1") for chunk in chunks)
    assert all(chunk.joined for chunk in chunks[:-1])
    assert sum(chunk.text.count("a = 1") for chunk in chunks) == 200


def test_a_line_without_an_end_is_cut_at_spaces() -> None:
    chunks = chunks_of("word " * 4000)
    assert max(len(chunk.text) for chunk in chunks) <= CHUNK_CHARACTERS
    assert " ".join(chunk.text for chunk in chunks).split() == ["word"] * 4000


def test_a_long_line_without_a_space_is_cut_anywhere() -> None:
    chunks = chunks_of("x" * 10_000)
    assert "".join(chunk.text for chunk in chunks) == "x" * 10_000
    assert max(len(chunk.text) for chunk in chunks) <= CHUNK_CHARACTERS


def test_a_list_stays_together_while_it_is_short() -> None:
    assert chunks_of("1. a\n\n2. b\n\n   more\n\nafter\n") == [
        MarkdownChunk("1. a\n\n2. b\n\n   more"),
        MarkdownChunk("after\n"),
    ]
