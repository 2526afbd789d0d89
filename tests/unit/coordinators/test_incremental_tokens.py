"""Tokens of a text that grew are those of the whole text."""

import json
import random

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from fugu_cli.coordinators.backbone import IncrementalTokenizer
from tests.unit.coordinators import tiny

PLAIN = tiny.tokenizer()
PIECES = st.lists(
    st.text("ab \n.:erk t\u0301é你🙂", max_size=90)
    | st.sampled_from(["\nassistant: er", "\nuser:", "\n\n", "\r\n", " " * 70]),
    max_size=12,
)


def counted(tokenizer: Tokenizer, texts: list[str]) -> int:
    """How many characters are tokenised for `texts`, one after the other, whose tokens must be those of each alone."""

    class Counting:
        characters = 0

        def encode(self, text: str) -> object:
            self.characters += len(text)
            return tokenizer.encode(text)

    counting = Counting()
    growing = IncrementalTokenizer(counting)  # type: ignore[arg-type]
    for text in texts:
        assert growing.tokens(text) == tokenizer.encode(text).ids
    return counting.characters


@given(PIECES, st.integers(0, 400))
def test_whatever_is_added_or_taken_away_the_tokens_are_those_of_the_whole(pieces: list[str], back: int) -> None:
    texts = ["user: fix" + "".join(pieces[:upto]) for upto in range(len(pieces) + 1)]
    counted(PLAIN, [*texts, texts[-1][: max(len(texts[-1]) - back, 1)], *texts[::-1], "other", *texts])


def test_only_the_end_of_a_text_that_grew_is_tokenised() -> None:
    lines = [f"assistant: Worker (cheap): changed line {number} of the file" for number in range(200)]
    texts = ["\n".join(lines[:upto]) for upto in range(1, 201)]
    assert counted(PLAIN, texts) < 60 * len(texts[-1])


def test_a_tokenizer_that_treats_the_beginning_otherwise_reads_the_whole_text() -> None:
    made = tiny.tokenizer()
    made.post_processor = processors.TemplateProcessing(single="a $A b", special_tokens=[("a", 64), ("b", 65)])
    spaced = Tokenizer(models.BPE(vocab=json.loads(PLAIN.to_str())["model"]["vocab"], merges=[]))
    spaced.normalizer = normalizers.Prepend("t")
    spaced.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    spaced.decoder = decoders.ByteLevel()
    draw = random.Random(0)
    texts = ["user: x"]
    for _ in range(30):
        texts.append(texts[-1] + draw.choice(["\nassistant: ", " word", "\n"]) + "er" * draw.randint(0, 60))
    for tokenizer in (made, spaced):
        assert counted(tokenizer, texts) >= sum(map(len, texts))


def test_tokens_that_are_put_at_the_end_of_every_text_stay_there() -> None:
    made = tiny.tokenizer()
    made.post_processor = processors.TemplateProcessing(single="$A b", special_tokens=[("b", 65)])
    lines = [f"assistant: Worker (cheap): changed line {number} of the file" for number in range(40)]
    counted(made, ["\n".join(lines[:upto]) for upto in range(1, 41)])


def test_a_text_of_one_line_is_tokenised_whole() -> None:
    assert counted(PLAIN, ["user: " + "x" * 400, "user: " + "x" * 500]) == 406 + 506
