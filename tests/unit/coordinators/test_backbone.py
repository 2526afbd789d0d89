"""The backbone: the penultimate token, what is remembered, what is wrong with a folder."""

import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fugu_cli.coordinators import backbone
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.backbone_files import backbone_identity, locate_backbone
from fugu_cli.coordinators.checkpoint import CheckpointMeta
from fugu_cli.coordinators.transcript import TranscriptFormat, transcript_text
from fugu_cli.errors import CoordinatorUnavailable, installing
from fugu_cli.session.state import SessionState
from tests.facts import asked, assigned, replied
from tests.unit.coordinators import tiny

TEXT = "user: fix the tests\nassistant: Worker (cheap): done\n[tests failed 1]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.folder(tmp_path / "backbone")


@pytest.fixture
def loaded(folder: Path) -> Backbone:
    return backbone.load_backbone(folder, device="cpu")


def fresh(loaded: Backbone, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return loaded.model(input_ids=torch.tensor([tokens])).last_hidden_state[0].float().numpy()


def test_the_state_is_that_of_the_penultimate_token(loaded: Backbone) -> None:
    tokens = loaded.tokens(TEXT)
    found = loaded.read(tokens)
    assert (found.tokens, found.cached, found.hidden.shape) == (len(tokens), 0, (tiny.WIDTH,))
    assert np.array_equal(found.hidden, fresh(loaded, tokens[:-1])[-1])


def test_the_last_token_does_not_matter(loaded: Backbone) -> None:
    tokens = loaded.tokens(TEXT)
    other = [*tokens[:-1], (tokens[-1] + 1) % 256]
    assert np.array_equal(loaded.read(tokens).hidden, loaded.read(other).hidden)


def test_a_single_token_is_its_own_penultimate(loaded: Backbone) -> None:
    assert np.array_equal(loaded.read([7]).hidden, fresh(loaded, [7])[0])


def test_nothing_cannot_be_read(loaded: Backbone) -> None:
    with pytest.raises(ValueError, match="nothing to read"):
        loaded.read([])


def test_a_text_that_grew_costs_only_its_new_tokens(loaded: Backbone) -> None:
    short, long = (
        loaded.tokens(TEXT),
        loaded.tokens(TEXT + "\nassistant: Verifier (middle): REVISE"),
    )
    loaded.read(short)
    found = loaded.read(long)
    assert found.cached == len(short) - 1
    np.testing.assert_allclose(found.hidden, fresh(loaded, long)[-2], atol=0.1)


def test_another_text_keeps_the_common_beginning(loaded: Backbone) -> None:
    loaded.read(loaded.tokens("user: one cat and more of it"))
    found = loaded.read(loaded.tokens("user: one bird"))
    assert found.cached == len(loaded.tokens("user: one "))
    assert loaded.read(loaded.tokens("user: one bird")).cached == found.tokens - 2, (
        "the newest state is not kept"
    )


def test_where_nothing_is_to_be_kept_the_text_alone_makes_the_state(loaded: Backbone) -> None:
    tokens = loaded.tokens(TEXT * 5)
    loaded.read(tokens[:70])
    again = loaded.read(tokens, fresh=True)
    assert (again.cached, again.at_once) == (0, True)
    assert np.array_equal(again.hidden, fresh(loaded, tokens[:-1])[-1])


def test_running_out_of_memory_is_one_error_and_forgets_what_was_half_read(
    loaded: Backbone,
) -> None:
    tokens = loaded.tokens(TEXT)
    tiny.crowd(loaded)
    with pytest.raises(MemoryError, match="no memory to read"):
        loaded.read(tokens)
    assert np.array_equal(loaded.read(tokens).hidden, fresh(loaded, tokens[:-1])[-1])


def test_threads_that_read_at_once_each_get_their_own_answer(loaded: Backbone) -> None:
    texts = [loaded.tokens(f"user: number {n} " + "x" * n) for n in range(8)]
    expected = [loaded.read(tokens).hidden for tokens in texts]
    found: dict[int, np.ndarray] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: loaded.read(texts[n]).hidden})) for n in range(8)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(8):
        np.testing.assert_allclose(found[n], expected[n], atol=0.1)


@pytest.mark.parametrize(
    "text", ["\x00\x01\x1b[31m", "你好，世界", "a", "\u202e\ufeff", "🎉" * 50, "\n\n\n"]
)
def test_odd_texts_are_read_like_any_other(loaded: Backbone, text: str) -> None:
    assert np.isfinite(loaded.read(loaded.tokens(text)).hidden).all()


def test_a_long_text_is_read_in_pieces(loaded: Backbone) -> None:
    tokens = loaded.tokens("user: " + "word " * 400)
    assert len(tokens) > 2 * backbone.CHUNK
    np.testing.assert_allclose(loaded.read(tokens).hidden, fresh(loaded, tokens)[-2], atol=0.15)


def read_as(loaded: Backbone, format: TranscriptFormat) -> str:
    events = [asked("a", judged=False), assigned(1, "cheap"), replied(1, "cheap", "b\nc")]
    return transcript_text(
        loaded,
        CheckpointMeta(backbone="", width=1, ranks=(), rows=(), format=format),
        SessionState(events),
    )


def test_the_raw_format_is_plain_lines(loaded: Backbone) -> None:
    assert read_as(loaded, "raw") == "user: a\nassistant: Worker (cheap): b\nc"


def test_the_chat_format_goes_through_the_backbones_template(loaded: Backbone) -> None:
    expected = "<|user|>a<|end|><|assistant|>Worker (cheap): b\nc<|end|><|assistant|>"
    assert read_as(loaded, "chat") == expected


def test_a_chat_template_may_not_reach_outside(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages.__class__.__mro__ }}")
    with pytest.raises(CoordinatorUnavailable, match="refuses"):
        read_as(backbone.load_backbone(folder, device="cpu"), "chat")


def test_a_backbone_without_a_chat_template_says_so(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(CoordinatorUnavailable, match="has no chat template"):
        read_as(backbone.load_backbone(folder, device="cpu"), "chat")


def test_a_backbone_is_named_by_what_it_came_from_else_by_its_weights(
    folder: Path, tmp_path: Path
) -> None:
    assert backbone_identity(folder) == "tiny-qwen3-0"
    (folder / "fugu.json").unlink()
    found = backbone_identity(folder, tmp_path / "notes")
    assert len(found) == 64
    assert [backbone_identity(folder, tmp_path / "notes"), backbone_identity(folder)] == [
        found,
        found,
    ]
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-2] + b"\x01\x02")
    os.utime(weights, (1, 1))
    assert backbone_identity(folder, tmp_path / "notes") != found


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def enlarge(folder: Path, words: int) -> None:
    """A tokenizer with more tokens than the table has rows."""
    made = tiny.tokenizer()
    made.add_tokens([f"<{number}>" for number in range(words)])
    made.save(str(folder / "tokenizer.json"))


BREAKS = {
    "no tokenizer.json": lambda folder: (folder / "tokenizer.json").unlink(),
    "is not a tokenizer": lambda folder: (folder / "tokenizer.json").write_text('{"model": {'),
    "is not a tokenizer: data": lambda folder: (folder / "tokenizer.json").write_text(
        '{"model": {}}'
    ),
    "the tokenizer in .* is of a larger model": lambda folder: enlarge(folder, 400),
    "config.json is missing": lambda folder: (folder / "config.json").unlink(),
    "cannot be read": lambda folder: (folder / "config.json").write_text("{"),
    "is not a JSON object": lambda folder: (folder / "config.json").write_text("[1]"),
    "known kinds are": lambda folder: rewrite(folder, model_type="mamba"),
    "garbles cannot convert float": lambda folder: rewrite(folder, hidden_size=float("inf")),
    "lacks or garbles": lambda folder: rewrite(folder, hidden_size=None),
    "weights in .* lack embed_tokens.weight": lambda folder: (
        folder / "model.safetensors"
    ).unlink(),
    "the model in .* cannot be read": lambda folder: (folder / "model.safetensors").write_bytes(
        (folder / "model.safetensors").read_bytes()[:5000]
    ),
    "lack ": lambda folder: rewrite(folder, num_hidden_layers=9),
    "cannot be read: .*size": lambda folder: rewrite(folder, intermediate_size=64),
    "cannot be read: .*mismatch": lambda folder: rewrite(folder, vocab_size=500),
    "has sizes that no backbone has": lambda folder: rewrite(folder, num_hidden_layers=1),
    "garbles integer division": lambda folder: rewrite(
        folder, num_attention_heads=0, head_dim=None
    ),
}


@pytest.mark.parametrize("message", list(BREAKS))
def test_a_folder_that_is_no_backbone_is_refused_with_what_is_wrong(
    folder: Path, message: str
) -> None:
    BREAKS[message](folder)
    with pytest.raises(CoordinatorUnavailable, match=message) as caught:
        backbone.load_backbone(folder, device="cpu")
    assert caught.value.hint


def test_numbers_that_are_not_finite_decide_nothing(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][3] = torch.nan
    save_file(weights, folder / "model.safetensors")
    loaded = backbone.load_backbone(folder, device="cpu")
    with pytest.raises(CoordinatorUnavailable, match="numbers that are not finite"):
        loaded.read(loaded.tokens("user: x"))


def test_halves_of_characters_are_read_as_unknown_ones(loaded: Backbone) -> None:
    halves = "user: \ud83d and \udcff"
    assert loaded.tokens(halves) == loaded.tokens("user: \ufffd and \ufffd")
    assert loaded.count(halves) == len(loaded.tokens(halves))


def test_a_backbone_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    assert locate_backbone(str(tmp_path)) == tmp_path
    with pytest.raises(CoordinatorUnavailable, match="there is no backbone at /nowhere/at/all"):
        locate_backbone("/nowhere/at/all")
    with pytest.raises(
        CoordinatorUnavailable, match="there is no backbone at a--b/c, and no model on the hub"
    ):
        locate_backbone("a--b/c")


def test_without_torch_the_message_says_what_is_missing(folder: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from fugu_cli.coordinators import backbone\n"
        "from fugu_cli.errors import CoordinatorUnavailable\n"
        "try:\n    backbone.load_backbone(Path(sys.argv[1]))\n"
        "except CoordinatorUnavailable as error:\n    print(error, '|', error.hint)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    advice = installing("torch>=2.4,<3")
    assert (
        ran.stdout == f"torch is not installed, so the learned coordinator cannot run | {advice}\n"
    )


def test_importing_the_coordinator_loads_no_library() -> None:
    code = (
        "import sys\n"
        "import fugu_cli.coordinators.trinity, fugu_cli.coordinators.backbone, "
        "fugu_cli.coordinators.rules\n"
        "print(sorted({'torch', 'transformers', 'numpy', 'safetensors', 'tokenizers', 'jinja2'} "
        "& set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_a_backbone_that_nobody_needs_gives_its_memory_back_at_once(folder: Path) -> None:
    backbone.load_backbone(folder, device="cpu")  # what a first one brings with it stays
    held = backbone.load_backbone(folder, device="cpu")
    held.read(held.tokens(TEXT))
    held.count(TEXT)
    gone = weakref.ref(held), weakref.ref(held.model)
    gc.disable()  # hundreds of megabytes are a few objects: the collector would come late
    try:
        del held
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()
