"""`fugu coordinator ...` and `fugu route` with a tiny backbone: what they print, and what bad input
gets.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.__main__ import called
from fugu_cli.config import Config
from fugu_cli.coordinators import checkpoint, svf
from fugu_cli.coordinators.backbone_files import shape_of
from fugu_cli.session import store
from fugu_cli.session.events import ROLES
from fugu_cli.session.log import Log
from tests.unit.coordinators import tiny
from tests.unit.coordinators.test_stopping import BROKEN, said, verified, worked

ROWS = ("small", "coder", "strong")
POOL = """
[[agents]]
name = "small"
provider = "openai"
model = "s"
base_url = "http://127.0.0.1:1/v1"
slot = "cheap"

[[agents]]
name = "strong"
provider = "openai"
model = "b"
base_url = "http://127.0.0.1:1/v1"
slot = "strong"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.folder(tmp_path / "backbone")


@pytest.fixture
def file(folder: Path, tmp_path: Path) -> Path:
    """A checkpoint for the tiny backbone; both are configured, with a pool of two."""
    path = tmp_path / "tiny.safetensors"
    checkpoint.save(tiny.checkpoint(tiny.meta(folder), offsets=0.1), path)
    configure(path, folder)
    return path


def configure(file: Path, folder: Path, *more: str) -> None:
    settings = [f'checkpoint = "{file}"', f'backbone = "{folder}"', *more]
    (Path.home() / ".fugurc").write_text("\n".join(settings) + POOL)


def fugu(*words: str | Path, capture: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capture.readouterr()
    code = called([str(word) for word in words])
    done = capture.readouterr()
    return code, done.out, done.err


def kept(*events: object) -> Path:
    """A session of the current folder."""
    path = store.new_path(Config().data, Path.cwd())
    log = Log.create(path)
    for event in events:
        log.append(event)  # type: ignore[arg-type]
    log.close()
    return path


def test_show_says_what_a_checkpoint_is_for_and_that_it_fits(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = fugu("coordinator", "show", "--json", capture=capsys)
    found = json.loads(out)
    made = checkpoint.load(file)
    assert (code, found["fits"], found["file"], found["digest"]) == (
        0,
        "yes",
        str(file),
        made.digest,
    )
    assert (found["rows"], found["roles"], found["format"]) == (
        ["small", "coder", "strong"],
        True,
        "raw",
    )
    assert found["numbers"] == made.vector.size
    assert set(found["offsets"]) == set(svf.BLOCKS)
    code, out, _ = fugu("coordinator", capture=capsys)
    assert (code, "small, coder, strong" in out, "fits             yes" in out) == (0, True, True)
    assert "1536 tokens of the transcript" in out and "% of a singular value" in out


def test_show_without_a_checkpoint_describes_what_decides(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = fugu("coordinator", "show", capture=capsys)
    assert code == 0
    assert "no checkpoint is configured" in out and "10 kinds of request" in out
    assert "fugu models pull qwen2.5-coder-0.5b" in out


def test_show_says_why_a_checkpoint_does_not_fit(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(file, tiny.folder(tmp_path / "other", seed=1))
    _, out, _ = fugu("coordinator", "show", capture=capsys)
    assert "no: the checkpoint was made for the backbone" in out
    named = tmp_path / "named.safetensors"
    checkpoint.save(tiny.checkpoint(tiny.meta(tmp_path / "backbone", rows=("a", "b"))), named)
    configure(named, tmp_path / "backbone")
    _, out, _ = fugu("coordinator", "show", capture=capsys)
    assert "none is in the pool (small, strong)" in out
    configure(named, tmp_path / "nowhere")
    _, out, _ = fugu("coordinator", "show", capture=capsys)
    assert "unknown: the backbone is not on this machine" in out


def test_what_is_exported_as_numbers_comes_back_the_same(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, flat = checkpoint.load(file), tmp_path / "flat.npy"
    assert fugu("coordinator", "export", "--npy", flat, capture=capsys)[:2] == (0, f"{flat}\n")
    numbers = np.load(flat)
    assert (numbers.dtype, numbers.shape) == (np.dtype(np.float64), made.vector.shape)
    assert np.array_equal(numbers.astype(np.float32), made.vector)
    back = tmp_path / "deep" / "back.safetensors"
    words = ("coordinator", "import", flat, "--rows", "small,coder,strong", "--out", back)
    code, out, err = fugu(*words, capture=capsys)
    assert (code, out) == (0, f"{back}\n")
    assert f'checkpoint = "{back}"' in err
    again = checkpoint.load(back)
    assert np.array_equal(again.vector, made.vector)
    assert (again.meta.roles, again.meta.format) == (True, "raw")
    reading = ("--format", "chat", "--tied", "authors", "--workers-only", "--budget", "900")
    assert fugu(*words, *reading, capture=capsys)[0] == 0
    meta = checkpoint.load(back).meta
    assert (meta.format, meta.tied, meta.workers_only, meta.budget) == (
        "chat",
        "authors",
        True,
        900,
    )
    code, _, err = fugu(*words, "--budget", "0", capture=capsys)
    assert (code, "--budget must be 64 or more" in err, checkpoint.load(back).meta.budget) == (
        1,
        True,
        900,
    )


def test_export_copies_any_checkpoint(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.safetensors"
    assert fugu("coordinator", "export", copy, "--from", file, capture=capsys)[0] == 0
    assert checkpoint.load(copy).digest == checkpoint.load(file).digest


def test_import_names_rows_after_the_pool_and_says_which_nobody_takes(
    folder: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = shape_of(folder)
    vector = tmp_path / "seven.npy"
    np.save(
        vector, np.random.default_rng(0).normal(0, 0.1, sum(svf.ranks(shape)) + 10 * shape.width)
    )
    rows = ",".join(checkpoint.PUBLISHED_ROWS)
    words = (
        "coordinator",
        "import",
        vector,
        "--rows",
        rows,
        "--map",
        "gpt-5=strong",
        "--map",
        "gemma-3-27b=small",
    )
    code, out, err = fugu(*words, capture=capsys)
    assert code == 0
    made = checkpoint.load(Path(out.strip()))
    assert (made.meta.rows[0], made.meta.rows[4]) == ("strong", "small")
    assert "excluded from every decision: claude-sonnet-4, gemini-2.5-pro" in err
    configure(Path(out.strip()), folder)
    code, out, _ = fugu("route", "fix it", "--json", capture=capsys)
    found = json.loads(out)
    assert found["agent"] in ("small", "strong")
    assert found["masked"]["claude-sonnet-4"] == "not in the pool"


def test_a_checkpoint_can_be_imported_under_other_names(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.safetensors"
    words = (
        "coordinator",
        "import",
        file,
        "--map",
        "small=cheap",
        "--map",
        "strong=strong",
        "--out",
        out,
    )
    assert fugu(*words, capture=capsys)[0] == 0
    found = checkpoint.load(out).meta
    assert found.rows == ("cheap", "coder", "strong")


def published_like(path: Path) -> Path:
    np.save(path, np.zeros(19456))
    return path


BAD_FILES = {
    "there is no checkpoint at": lambda path: None,
    "is not a whole checkpoint of fugu": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "not a whole checkpoint": lambda path: path.write_bytes(b""),
    "not finite or far too large": lambda path: spoil(path, np.nan),
    "far too large": lambda path: spoil(path, 1e9),
    "has format version 99, this fugu reads 1": lambda path: rewrite(path, format_version=99),
    "does not say what it is valid for": lambda path: rewrite(path, format="poem"),
    "the checkpoint holds": lambda path: rewrite(path, rows=["a", "b", "c", "d", "e", "f", "g"]),
}


def spoil(path: Path, number: float) -> None:
    made = checkpoint.load(path)
    made.head[0, 0] = number
    checkpoint.save(made, path)


def rewrite(path: Path, **changes: object) -> None:
    from safetensors.numpy import save_file

    made = checkpoint.load(path)
    about = json.dumps(json.loads(made.meta.model_dump_json()) | changes)
    save_file({"vector": made.vector}, path, metadata={"fugu": about})


@pytest.mark.parametrize("message", list(BAD_FILES))
def test_a_bad_checkpoint_ends_with_1_and_says_what_is_wrong(
    file: Path, tmp_path: Path, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.safetensors"
    if not message.startswith("there is no"):
        bad.write_bytes(file.read_bytes())
        BAD_FILES[message](bad)
    for words in (
        ("coordinator", "show", bad),
        ("coordinator", "import", bad),
        ("coordinator", "export", tmp_path / "out.npy", "--from", bad),
        ("route", "fix it", "--checkpoint", bad),
    ):
        code, out, err = fugu(*words, capture=capsys)
        assert (code, out) == (1, ""), words
        assert message in err, words
        assert len(err.splitlines()) == 2, err


@pytest.mark.parametrize("message", list(BAD_FILES))
def test_a_bad_configured_checkpoint_leaves_the_decision_to_success_rates_and_says_so(
    file: Path, folder: Path, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if message.startswith("there is no"):
        file.unlink()
    else:
        BAD_FILES[message](file)
    code, out, err = fugu("route", "fix it", capture=capsys)
    assert (code, out) == (0, "small worker\n")
    assert "the checkpoint does not decide" in err
    assert message in err


WRONG = [
    (("coordinator", "import", "nothing.npy"), "there is no file nothing.npy"),
    (
        ("coordinator", "import", "zeros.npy"),
        "zeros.npy is not the published vector: its sha256 is",
    ),
    (
        ("coordinator", "import", "zeros.npy", "--map", "gpt-9=x"),
        "--map gpt-9=...: the published agents are gpt-5",
    ),
    (("coordinator", "import", "zeros.npy", "--map", "gpt-5"), "--map gpt-5 is not ROW=AGENT"),
    (
        ("coordinator", "import", "zeros.npy", "--rows", "a,b,c"),
        "the checkpoint holds 19456 numbers, 3 rows",
    ),
    (
        ("coordinator", "import", "zeros.npy", "--rows", ",", "--no-roles"),
        "--rows , does not name anything",
    ),
    (
        ("coordinator", "import", "zeros.npy", "--rows", "a", "--map", "b=c"),
        "--rows a does not name b",
    ),
    (
        ("coordinator", "import", "zeros.npy", "--backbone", "/nowhere"),
        "there is no backbone at /nowhere",
    ),
    (("coordinator", "import", "zeros.npy", "--format", "poem"), "there are raw and chat"),
    (("coordinator", "import", "text.npy"), "text.npy is not a whole .npy file"),
    (("coordinator", "import", "words.npy"), "words.npy does not hold floating-point numbers"),
    (
        ("coordinator", "import", "tiny.safetensors", "--map", "best=x"),
        "the checkpoint's rows are small, coder",
    ),
    (
        ("coordinator", "import", "tiny.safetensors", "--format", "chat"),
        "says itself how it was trained",
    ),
    (("coordinator", "import", "zeros.npy", "--no-roles"), "says itself how it was trained"),
    (("coordinator", "export", "."), ". is a folder"),
    (("coordinator", "export", "text.npy/deep.npy"), "text.npy/deep.npy cannot be written"),
    (("route", "x", "--format", "digest"), "--format digest is gone"),
    (("route",), "there is nothing to decide about"),
    (("route", "  "), "there is nothing to decide about"),
    (("route", "latest"), "this folder has no session yet"),
    (("route", "x", "--session", "y"), "a text and --session exclude each other"),
    (("route", "--session", "y"), "there is no session 'y'"),
    (("route", "x", "--turn", "1"), "--turn and --request need a session"),
    (("route", "x", "--format", "chat"), "was trained on the raw format and refuses chat"),
    (("route", "x", "--temperature", "-1"), "--temperature -1.0: should be from 0"),
    (("route", "x", "--coordinator", "cascade", "--roles"), "say nothing to the rule cascade"),
    (("route", "x", "--backbone", "other"), "the checkpoint was made for the backbone"),
    (("route", "x", "--backbone", "deaf"), "has no tokenizer.json"),
    (("route", "x", "--opt-out", "nobody"), "opt_out: no agent or model named nobody"),
    (
        ("route", "x", "--checkpoint", "roleless.safetensors", "--roles"),
        "was trained without roles",
    ),
    (
        ("route", "x", "--checkpoint", "foreign.safetensors"),
        "chooses among a, b; none is in the pool (small, strong)",
    ),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_wrong_words_and_files_end_with_1_and_say_what_to_do(
    file: Path,
    folder: Path,
    words: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published_like(Path("zeros.npy"))
    Path("text.npy").write_text("no numbers")
    np.save("words.npy", np.array(["a"]))
    Path("tiny.safetensors").write_bytes(file.read_bytes())
    tiny.folder(Path("other"), seed=1)
    (tiny.folder(Path("deaf")) / "tokenizer.json").unlink()
    checkpoint.save(tiny.checkpoint(tiny.meta(folder, roles=False)), Path("roleless.safetensors"))
    checkpoint.save(
        tiny.checkpoint(tiny.meta(folder, rows=("a", "b"))),
        Path("foreign.safetensors"),
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, out, err = fugu(*words, capture=capsys)
    assert (code, out) == (1, "")
    assert message in err
    assert len(err.splitlines()) == 2, err


def test_route_prints_the_decision_and_nothing_else(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = fugu("route", "fix the failing tests", capture=capsys)
    agent, role = out.split()
    assert (code, err, agent in ("small", "strong"), role in ("worker", "thinker")) == (
        0,
        "",
        True,
        True,
    )


def test_route_as_json_holds_everything_that_was_weighed(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = fugu("route", "fix it", "--json", capture=capsys)
    found = json.loads(out)
    assert (found["by"], found["read"], found["cold"], found["session_id"]) == (
        "trinity",
        "user: fix it",
        True,
        None,
    )
    assert found["masked"] == {
        "coder": "not in the pool",
        "verifier": "there is no Worker answer yet",
        "thinker": "a Verifier was chosen, and a Worker comes before it",
    }
    assert found["agents"]["coder"] == 0
    before = found["probabilities_before_masks"]
    assert [round(sum(before[name] for name in names), 2) for names in (ROWS, ROLES)] == [1, 1]
    assert set(found["logits"]) == {*ROWS, "worker", "thinker", "verifier"}
    assert set(found["milliseconds_by_part"]) == {"format", "tokenise", "forward", "head", "load"}
    assert found["margin"] > 0


def test_route_explains_in_words(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = fugu("route", "fix it", "--explain", capture=capsys)
    assert out.splitlines()[0].split()[0] in ("small", "strong")
    for words in ("── The decision", "margin: ", " ms: format", "0 of them cached", "user: fix it"):
        assert words in out


def test_route_reads_standard_input(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("explain the parser\n"))
    _, out, _ = fugu("route", "-", "--json", capture=capsys)
    assert json.loads(out)["read"] == "user: explain the parser"


def test_route_goes_on_with_a_session_and_decides_its_turns_again(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kept(*BROKEN, *said(1, "I see nothing."), *worked(2, ok=False))
    for key in ("latest", path.stem, str(path)):
        code, out, _ = fugu("route", key, "--json", capture=capsys)
        found = json.loads(out)
        assert (code, found["session_id"], found["turn"]) == (0, path.stem, 3)
        assert found["read"].count("assistant:") == 2
    _, out, _ = fugu("route", "--session", path.stem[:10], "--turn", "2", "--json", capture=capsys)
    assert json.loads(out)["read"].count("assistant:") == 1
    assert fugu("route", "latest", "--turn", "7", capture=capsys)[0] == 1


def test_route_says_that_a_request_is_over(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(*BROKEN, *worked(1, ok=True), *verified(2, "ACCEPT"))
    assert fugu("route", "latest", capture=capsys)[:2] == (0, "finished accepted\n")
    _, out, _ = fugu("route", "latest", "--json", capture=capsys)
    assert json.loads(out)["reason"] == "accepted"


def test_route_without_roles_uses_the_agents_rows_alone(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = fugu("route", "fix it", "--no-roles", "--json", capture=capsys)
    found = json.loads(out)
    assert (found["role"], found["roles"], set(found["logits"])) == (
        "worker",
        {},
        set(ROWS),
    )


def test_the_configuration_leaves_roles_out_and_a_flag_insists_on_them(
    file: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(file, folder, "roles = false")
    without, insisting = (
        fugu("route", "x", "--json", *flags, capture=capsys)[1] for flags in ((), ("--roles",))
    )
    assert (json.loads(without)["by"], json.loads(without)["roles"]) == ("trinity", {})
    assert set(json.loads(insisting)["roles"]) == {"worker", "thinker", "verifier"}


def test_route_draws_with_a_seed_and_a_temperature(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def drawn(seed: int) -> str:
        words = ("route", "fix it", "--sample", "--temperature", "100", "--seed", str(seed))
        return fugu(*words, capture=capsys)[1]

    assert drawn(1) == drawn(1)
    assert len({drawn(seed) for seed in range(12)}) > 1


def test_route_takes_rules_as_well(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fugu("route", "x", "--coordinator", "cascade", capture=capsys)[:2] == (
        0,
        "small worker\n",
    )
    assert fugu("route", "x", "--coordinator", "single:strong", capture=capsys)[:2] == (
        0,
        "strong worker\n",
    )
    _, out, _ = fugu("route", "x", "--coordinator", "cascade", "--explain", capture=capsys)
    assert "no language model was asked" in out


ODD = ["x", "\x00\x01\x1b[31m red", "你好，请修复测试", "\u202e\ufeff", "word " * 200_000]


@pytest.mark.parametrize(
    "text", ODD, ids=["one token", "control", "chinese", "directions", "200k tokens"]
)
def test_any_text_is_routed(
    file: Path, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    code, out, err = fugu("route", "-", "--json", capture=capsys)
    found = json.loads(out)
    assert (code, err, found["by"]) == (0, "", "trinity")
    assert found["tokens"] <= checkpoint.load(file).meta.budget + 10


def test_halves_of_letters_are_no_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("fix \udcff\ud83d"))
    code, out, err = fugu("route", "-", "--json", capture=capsys)
    assert (code, out) == (1, "")
    assert "standard input is not UTF-8 text" in err


def test_bench_times_a_decision_and_says_why_the_kind_is_not_read(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("coordinator", "bench", "--repeats", "1")
    code, out, _ = fugu(*words, "--json", capture=capsys)
    times = json.loads(out)
    assert code == 0
    assert times["planning"] > 0 and times["reading"] is None
    assert "there is no kind head for the backbone" in times["missing"]
    assert "a decision without a reading" in fugu(*words, capture=capsys)[1]


def test_the_published_file_is_known_by_its_hash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = published_like(tmp_path / "a.npy")
    _, out, _ = fugu("coordinator", "show", path, "--json", capture=capsys)
    found = json.loads(out)
    assert (found["published"], found["numbers"], found["finite"]) == (False, 19456, True)
    assert (
        found["sha256"]
        == hashlib.sha256(path.read_bytes()).hexdigest()
        != checkpoint.PUBLISHED_SHA256
    )


@pytest.mark.parametrize("library", ["torch", "safetensors", "tokenizers"])
def test_without_a_library_success_rates_decide_and_what_lacks_is_said(
    file: Path, library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        f"import sys; sys.modules[{library!r}] = None; from fugu_cli.__main__ import main; main()"
    )
    words = [sys.executable, "-c", code, "route", "fix it"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "small worker\n")
    assert f"{library} is not installed" in done.stderr
    assert f"{sys.executable} -m pip install {library}" in done.stderr.replace("'", "")
