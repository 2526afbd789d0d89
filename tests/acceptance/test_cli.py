"""The command line: words in, messages and exit codes out. Nothing here calls a model."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.cli import run
from fugu_cli.cli.flags import RunFlags
from fugu_cli.config import Config
from fugu_cli.errors import UsageError
from fugu_cli.session import store
from fugu_cli.session.log import Log
from tests.rights import without_roots_rights
from tests.unit.ui import example


def fugu(*words: str, capture: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capture.readouterr()
    code = called(list(words))
    said = capture.readouterr()
    return code, said.out, said.err


def kept(root: Path | None = None, text: str = "fix the failing tests") -> Path:
    """A finished session of the current folder, on the disk."""
    path = store.new_path(Config().data, root or Path.cwd())
    log = Log.create(path)
    for event in example.events():
        log.append(
            event.model_copy(update={"text": text}) if isinstance(event, example.Asked) else event
        )
    log.close()
    return path


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("nonsense",), "No such command 'nonsense'.", "`fugu --help` shows what it takes"),
        (("--nonsense",), "No such option: --nonsense", "`fugu --help`"),
        (("--continue",), "the interface needs a terminal", "`fugu run"),
        (("--inline",), "the interface needs a terminal", "`fugu run"),
        (("--permission-mode", "plan"), "the interface needs a terminal", "`fugu run"),
        (("run", "x", "--max-truns", "3"), "No such option: --max-truns", "mean `--max-turns`"),
        (("run", "x", "--bugdet", "3"), "No such option: --bugdet", "mean `--max-budget-usd`"),
        (("comit",), "No such command 'comit'.", "did you mean `fugu commit`? `fugu --help`"),
        (("pool", "chekc"), "No such command 'chekc'.", "did you mean `fugu pool check`?"),
        (("exec",), "No such command 'exec'.", "did you mean `fugu run`?"),
        (("version",), "No such command 'version'.", "did you mean `fugu --version`?"),
        (("config",), "No such command 'config'.", "did you mean `fugu help config`?"),
        (
            ("run", "x", "--max-turns", "many"),
            "Invalid value for '--max-turns'",
            "`fugu run --help`",
        ),
        (("run", "x", "--max-turns"), "requires an argument", "shows what it takes"),
        (
            ("run", "x", "--output-format", "xml"),
            "Invalid value for '--output-format'",
            "`fugu run --help`",
        ),
        (("run", "fix", "the", "tests"), "unexpected extra argument", "`fugu run --help`"),
        (
            ("run", "x", "--continue", "--resume", "y"),
            "--continue and --resume exclude",
            "--continue takes",
        ),
        (("run", "x", "--fork-session"), "--fork-session needs a session", "add --continue"),
        (("--fork-session",), "--fork-session needs a session", "add --continue"),
        (("--continue", "--resume", "y"), "--continue and --resume exclude", "--continue takes"),
        (("--resume", ""), "--resume is empty", "leave it out"),
        (
            ("run", "x", "--agent", "a", "--coordinator", "random"),
            "--agent and --coordinator exclude",
            "--agent",
        ),
        (
            ("run", "x", "--yolo", "--permission-mode", "plan"),
            "--yolo and --permission-mode exclude",
            "--yolo is",
        ),
        (
            ("run", "x", "--agent", "nobody"),
            "no agent or model named nobody; the pool has",
            "fugu pool",
        ),
        (
            ("run", "x", "--opt-out", "smal"),
            "opt_out: no agent or model named smal",
            "did you mean 'small'?",
        ),
        (
            ("run", "x", "--max-turns", "0"),
            "the command line (--max-turns): max_turns = 0",
            "help config",
        ),
        (
            ("run", "x", "--max-budget-usd", "0"),
            "max_budget_usd = 0.0: should be greater than 0",
            "help config",
        ),
        (("run", "x", "--resume", ""), "--resume is empty", "leave it out"),
        (("run", "x", "--output-dir", ""), "--output-dir is empty", "leave it out"),
        (("run", "x", "--until", " "), "--until is empty", "leave it out"),
        (("train", "matrix"), "Missing argument 'TASKS...'.", "`fugu train matrix --help`"),
        (("train", "sft"), "Missing argument 'MATRIX'.", "`fugu train sft --help`"),
        (("train", "conductor"), "Missing argument 'TASKS...'.", "`fugu train conductor --help`"),
        (("train", "evolve"), "Missing argument 'TASKS...'.", "`fugu train evolve --help`"),
        (("coordinator", "import"), "Missing argument 'FILE'.", "`fugu coordinator import --help`"),
        (("trace", "--turn", "1", "--json"), "--json and --turn exclude one another", "every turn"),
        (
            ("serve", "--max-request-mb", "nan"),
            "limits must be finite numbers",
            "`fugu serve --help`",
        ),
        (("serve", "--grace", "inf"), "limits must be finite numbers", "`fugu serve --help`"),
        (("cost", "--days", "0"), "Invalid value for '--days'", "`fugu cost --help`"),
        (
            ("run", "x", "--tier", "max"),
            "Invalid value for '--tier': 'max' is not one of 'fugu'",
            "run --help`",
        ),
        (
            ("run", "x", "--coordinator", "tirnity"),
            "must be one of cascade, trinity, random or single:NAME",
            "",
        ),
        (
            ("run", "x", "--script", "good.toml", "--resume", "never"),
            "there is no session 'never'",
            "`fugu sessions` lists them",
        ),
        (
            ("run", "--script", "good.toml", "--continue"),
            "this folder has no session yet",
            "start one",
        ),
        (("run", "x", "--script", "no.toml"), "no.toml", ""),
        (("trace",), "this folder has no session yet", "start one"),
        (("trace", "--request", "1"), "--request needs --turn", "fugu trace SESSION"),
        (("undo",), "this folder has no session yet", "start one"),
        (("sessions", "--latest"), "no session matches", "--all"),
        (("sessions", "never said"), "no session matches", "--all"),
        (("sessions", "--fork", "x"), "there is no session 'x'", "lists them"),
        (("models", "pull", "gpt"), "no embedded model called 'gpt'", "qwen2.5-coder-0.5b"),
        (("models", "remove", "gpt"), "no embedded model called 'gpt'", "qwen2.5-coder-0.5b"),
        (("models", "remove"), "Missing argument", "`fugu models remove --help`"),
        (("help", "trce"), "there is no page on 'trce'", "did you mean 'trace'?"),
        (("help", "se"), "there is no page on 'se'", "did you mean 'serve' or 'sessions'?"),
        (("help", "xyzzy"), "there is no page on 'xyzzy'", "`fugu help` lists the pages"),
        (("trust", "nowhere"), "nowhere is not a folder", "give the folder"),
    ],
)
def test_wrong_words_end_with_1_a_sentence_and_what_to_do(
    words: tuple[str, ...], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("good.toml").write_text('[[step]]\ntext = "hello"\n')
    code, out, err = fugu(*words, capture=capsys)
    assert (code, out) == (1, ""), err
    assert message in err and hint in err
    assert "Traceback" not in err


def test_a_broken_configuration_ends_with_1_and_names_file_and_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (Path.home() / ".fugurc").write_text("\nmax_turn = 3\n")
    for words in (("run", "x"), ("pool",), ("sessions",), ("trace",)):
        code, _, err = fugu(*words, capture=capsys)
        assert code == 1
        assert (
            f"{Path.home()}/.fugurc, line 2: unknown key 'max_turn'" in err
            and "did you mean 'max_turns'?" in err
        )


def test_a_pool_without_keys_ends_with_1_and_names_the_variable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (Path.home() / ".fugurc").write_text(
        '[[agents]]\nname = "a"\nprovider = "openai"\nmodel = "m"\n'
    )
    code, _, err = fugu("run", "x", capture=capsys)
    assert code == 1 and "a: OPENAI_API_KEY is not set" in err and "set OPENAI_API_KEY" in err


def test_embedded_models_that_are_not_here_end_with_2_before_anything_is_begun(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = fugu("run", "x", capture=capsys)
    assert code == 2
    assert "qwen2.5-coder-0.5b, qwen2.5-coder-1.5b are not on this machine yet (1.6 GB)" in err
    assert "`fugu models pull`" in err
    assert store.session_paths(Config().data) == []
    assert (
        "not on this machine yet: qwen2.5-coder-0.5b, qwen2.5-coder-1.5b (1.6 GB)"
        in fugu("pool", capture=capsys)[1]
    )


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_a_program_learns_of_a_refusal_from_standard_output(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = fugu("run", "x", "--agent", "nobody", "--output-format", form, capture=capsys)
    final = json.loads(out)
    assert code == 1
    assert (final["type"], final["subtype"], final["is_error"]) == (
        "result",
        "error_during_execution",
        True,
    )
    assert final["errors"][0].startswith("no agent or model named nobody")


def test_the_output_folder_is_written_when_nothing_could_begin(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fugu("run", "x", "--agent", "nobody", "--output-dir", "out", capture=capsys)
    assert json.loads(Path("out/summary.json").read_text())["is_error"] is True
    assert Path("out/session.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    "words", [("-p", ""), ("x", "-p", "y"), ("x", "--fork-session"), ("x", "--agent", "")]
)
def test_wrong_words_are_said_there_as_well(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = fugu(
        "run", *words, "--output-format", "json", "--output-dir", "out", capture=capsys
    )
    assert code == 1
    assert json.loads(out)["errors"][0] in err
    assert json.loads(Path("out/summary.json").read_text()) == json.loads(out)


def test_an_output_folder_without_a_name_is_not_the_current_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = fugu("run", "x", "--output-format", "json", "--output-dir", "", capture=capsys)
    assert (code, json.loads(out)["errors"][0]) == (1, "--output-dir is empty")
    assert list(Path.cwd().iterdir()) == []


def test_a_folder_that_cannot_be_written_into_is_said_there_as_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("file").touch()
    code, out, _ = fugu(
        "run", "x", "--output-format", "json", "--output-dir", "file", capture=capsys
    )
    assert (code, json.loads(out)["errors"][0]) == (
        1,
        "cannot write into --output-dir file: File exists",
    )


@pytest.mark.parametrize(
    "words", [("trust",), ("untrust",), ("doctor",), ("sessions",), ("run", "x")]
)
def test_a_folder_that_is_gone_is_said(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    home = Path.cwd()
    gone = home / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    code, _, err = fugu(*words, capture=capsys)
    os.chdir(home)
    assert (code, "the current folder does not exist any more" in err) == (1, True)


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_version_and_help_end_with_0(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = fugu(word, capture=capsys)
    assert (code, err) == (0, "") and "fugu" in out


def test_fugu_alone_says_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = fugu(capture=capsys)
    assert (code, err) == (0, "") and 'fugu run "fix the failing tests"' in out


def test_help_lists_the_pages_and_shows_one(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = fugu("help", capture=capsys)
    assert out.startswith("A first session, in a git repository of yours:\n\n  fugu login ")
    assert re.search(r"^  output +what `fugu run` prints and leaves", out, re.MULTILINE)
    assert fugu("help", "output", capture=capsys)[1].startswith("# output: ")
    assert fugu("help", "train", capture=capsys)[1].startswith("# training: ")
    assert fugu("help", "eval", capture=capsys)[1].startswith("# evaluation: ")
    assert fugu("help", "providers/openai.md", capture=capsys)[1].startswith("# openai: ")


def test_the_pool_is_listed_with_slots_prices_and_who_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path.home() / ".fugurc").write_text(
        'opt_out = ["near"]\n'
        '[[agents]]\nname = "paid"\nprovider = "openai"\nmodel = "gpt-6.1-sol"\nprotocol = '
        '"native"\n'
        '[[agents]]\nname = "near"\nprovider = "openai"\nmodel = "q"\nbase_url = '
        '"http://localhost:1/v1"\n'
        '[[agents]]\nname = "new"\nprovider = "openai"\nmodel = "anything-new"\n'
        '[[agents]]\nname = "dear"\nprovider = "anthropic"\nmodel = "claude-opus-5-5"\n'
    )
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    code, out, _ = fugu("pool", capture=capsys)
    assert code == 0 and "sk-secret" not in out
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["paid", "near"]
    assert [line.split("  ")[-1].strip() for line in out.splitlines()[1:4]] == [
        "2 / 10",
        "0 / 0",
        "unknown",
    ]
    assert "left out: dear (ANTHROPIC_API_KEY is not set)" in out and "opted out: near" in out


def test_sessions_are_listed_searched_copied_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    path = kept()
    code, out, _ = fugu("sessions", capture=capsys)
    assert (
        code == 0
        and out.startswith(f"{path.stem}  2")
        and "accepted       1 request    fix the failing tests" in out
    )
    assert fugu("sessions", "--latest", "--path", capture=capsys) == (0, f"{path}\n", "")
    assert fugu("sessions", "IT IS 3 NOW", capture=capsys)[1] == out
    code, copy, _ = fugu("sessions", "--fork", path.stem, capture=capsys)
    copied = path.with_name(copy.strip() + ".jsonl")
    assert code == 0 and copied.read_bytes() == path.read_bytes() and copied != path


def test_a_session_gets_another_title_and_its_log_stays_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = kept()
    before = path.read_bytes()
    assert fugu("sessions", "--rename", path.stem, "the sign", capture=capsys) == (
        0,
        f"{path.stem}: the sign\n",
        "",
    )
    assert fugu("sessions", capture=capsys)[1].endswith("1 request    the sign\n")
    assert fugu("sessions", "THE SIGN", "--path", capture=capsys)[1] == f"{path}\n"
    assert fugu("sessions", "--rename", path.stem, " ", capture=capsys)[0] == 1
    assert path.read_bytes() == before


def test_sessions_of_other_folders_are_listed_only_when_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = Path.cwd() / "other"
    other.mkdir()
    kept(other)
    assert "no session yet" in fugu("sessions", capture=capsys)[1]
    assert "fix the failing tests" in fugu("sessions", "--all", capture=capsys)[1]


def test_what_a_session_holds_cannot_command_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept(text="\x1b]0;owned\x07fix \x1b[2Jit")
    for words in (("sessions",), ("trace",), ("trace", "--turn", "1")):
        code, out, err = fugu(*words, capture=capsys)
        assert code == 0, err
        assert "\x1b" not in out and "\x07" not in out and "fix it" in out


def test_the_trace_shows_every_decision_one_in_full_and_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = kept()
    code, out, _ = fugu("trace", capture=capsys)
    assert code == 0 and "*.75" in out and "verifier excluded: no Worker answer yet" in out
    code, out, _ = fugu("trace", path.stem[:12], "--turn", "1", capture=capsys)
    assert code == 0 and "What coder was shown" in out and "fix the failing tests" in out
    code, out, _ = fugu("trace", str(path), "--json", capture=capsys)
    assert code == 0 and json.loads(out)["session_id"] == path.stem
    code, _, err = fugu("trace", "--turn", "9", capture=capsys)
    assert code == 1 and "request 1 has no turn 9" in err


def test_trust_is_given_taken_back_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path.cwd()
    (root / ".git").mkdir()
    (root / ".fugurc").write_text('test_command = "make"\n')
    (root / "inside").mkdir()
    assert (
        "ignored until you run `fugu trust` here: test_command" in fugu("pool", capture=capsys)[2]
    )
    assert fugu("trust", capture=capsys)[1].startswith(f"{root} is trusted now")
    assert fugu("trust", "inside", capture=capsys)[1].startswith(f"{root} is trusted already")
    assert fugu("pool", capture=capsys)[2] == ""
    assert fugu("untrust", capture=capsys)[1] == f"{root} is not trusted any more\n"
    assert fugu("untrust", capture=capsys)[1] == f"{root} was not trusted\n"


def test_trust_of_a_folder_with_a_data_folder_of_its_own_can_be_taken_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = Path.cwd()
    (root / ".git").mkdir()
    (root / ".fugurc").write_text('data_dir = "own"\ntest_command = "make"\n')
    assert fugu("trust", capture=capsys)[1].startswith(f"{root} is trusted now")
    assert fugu("trust", capture=capsys)[1].startswith(f"{root} is trusted already")
    assert fugu("untrust", capture=capsys)[1] == f"{root} is not trusted any more\n"
    assert (
        "ignored until you run `fugu trust` here: data_dir, test_command"
        in fugu("pool", capture=capsys)[2]
    )
    assert not (root / "own").exists()


def test_what_trust_lets_run_is_said_before_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    said = " ".join(fugu("trust", "--help", capture=capsys)[1].split())
    assert all(
        word in said
        for word in (".fugurc", "AGENTS.md", "MCP servers", "hooks", "skills", "commands")
    )
    assert "with your rights" in said


def test_models_are_listed_and_their_place_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    out = fugu("models", "list", capture=capsys)[1]
    assert [line.split()[0] for line in out.splitlines()] == [
        "qwen2.5-coder-1.5b",
        "qwen2.5-coder-0.5b",
        "smollm2-135m",
    ]
    assert all("not here  Apache-2.0" in line for line in out.splitlines())
    folder = Path(os.environ["XDG_CACHE_HOME"]) / "fugu" / "models"
    assert fugu("models", "path", capture=capsys)[1] == f"{folder}\n"
    code, _, err = fugu("models", "path", "smollm2-135m", capture=capsys)
    assert code == 2 and "fugu models pull smollm2-135m" in err


def test_with_a_model_the_backbone_made_of_it_goes_and_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    backbones = Config().cache / "backbones"
    for name in ("qwen2.5-coder-0.5b-1", "qwen2.5-coder-0.5b-instruct-1"):
        (backbones / name).mkdir(parents=True)
        (backbones / name / "model.safetensors").write_bytes(b"x" * 3_000_000)
    assert fugu("models", "remove", "qwen2.5-coder-0.5b", capture=capsys)[:2] == (
        0,
        "qwen2.5-coder-0.5b: 3 MB freed\n",
    )
    assert [folder.name for folder in backbones.iterdir()] == ["qwen2.5-coder-0.5b-instruct-1"]


def test_the_doctor_says_what_is_missing_and_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = fugu("doctor", capture=capsys)
    assert code == 2 and "missing  models" in out and "-> fugu models pull" in out
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    code, out, _ = fugu("doctor", capture=capsys)
    assert code == 0 and "ANTHROPIC_API_KEY" in out and "sk-secret" not in out
    named = {line[9:].split()[0] for line in out.splitlines() if line[:7].strip()}
    assert {"fugu", "git", "ripgrep", "torch", "pool", "tests", "disk", "terminal"} <= named
    assert "backbone" in named and "checkpoint" not in named
    monkeypatch.setenv("FUGU_COORDINATOR", "trinity")
    monkeypatch.setenv("FUGU_TEST_COMMAND", "nowhere -m pytest")
    learned = fugu("doctor", capture=capsys)[1]
    assert "nowhere -m pytest: nowhere is not installed" in learned
    assert {"backbone"} <= {
        line[9:].split()[0] for line in learned.splitlines() if line[:7].strip()
    }
    (Path.home() / ".fugurc").write_text("nonsense = 1")
    code, out, _ = fugu("doctor", capture=capsys)
    assert code == 1 and "unknown key 'nonsense'" in out


def test_the_doctor_says_where_sessions_cannot_be_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    monkeypatch.setenv("FUGU_DATA_DIR", "/proc/fugu")
    code, out, _ = fugu("doctor", capture=capsys)
    (line,) = (line for line in out.splitlines() if line[9:].startswith("data "))
    assert (
        code == 2
        and line.startswith("missing")
        and "/proc/fugu cannot be written: No such file" in line
    )
    assert "FUGU_DATA_DIR" in out
    monkeypatch.setenv("FUGU_DATA_DIR", str(Path.cwd() / "not" / "yet"))
    code, out, _ = fugu("doctor", capture=capsys)
    assert code == 0 and not Path("not").exists()


def flags(**given: object) -> RunFlags:
    return RunFlags(**given)  # type: ignore[arg-type]


class Typing(io.StringIO):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_prompt_comes_from_one_place() -> None:
    Path("task.txt").write_text("from a file\n")
    assert run.read_request(flags(text="said"), Typing()) == ("said", "")
    assert run.read_request(flags(prompt="-x"), Typing()) == ("-x", "")
    assert run.read_request(flags(text="-"), io.StringIO("piped\n")) == ("piped", "")
    assert run.read_request(flags(), io.StringIO("piped\nlines\n")) == ("piped\nlines", "")
    assert run.read_request(flags(prompt_file=Path("task.txt")), None) == ("from a file", "")
    assert run.read_request(flags(text="-"), io.StringIO("\ufeffpiped")) == ("piped", "")
    assert run.read_request(flags(resume="x", text="more"), None) == ("more", "")


def test_what_is_piped_beside_a_request_belongs_to_it() -> None:
    Path("task.txt").write_text("from a file\n")
    Path("log.txt").write_text("line\nanother\n")
    for given, text in (
        (flags(text="said"), "said"),
        (flags(prompt_file=Path("task.txt")), "from a file"),
    ):
        with Path("log.txt").open() as file:
            assert run.read_request(given, file) == (text, "line\nanother")
        with Path("log.txt").open() as begun:
            os.read(begun.fileno(), 5)  # as a shell's loop over its lines has
            assert run.read_request(given, begun) == (text, "")
        with Path("/dev/zero").open() as endless:
            assert run.read_request(given, endless) == (text, "")
    with Path("log.txt").open() as file:
        assert run.read_request(flags(go_on=True), file) == ("line\nanother", "")
    with Path("/dev/null").open() as nothing:
        assert run.read_request(flags(resume="x"), nothing) == (None, "")


def test_standard_input_without_an_end_is_refused() -> None:
    Path("log.txt").write_text("y\n" * (run.LARGEST_REQUEST // 2) + "y")
    for given in (flags(text="said"), flags(text="-"), flags()):
        with (
            Path("log.txt").open() as file,
            pytest.raises(UsageError, match="more than 1,000,000 characters"),
        ):
            run.read_request(given, file)


@pytest.mark.parametrize(
    ("given", "stdin", "message"),
    [
        (flags(text="a", prompt="b"), None, "there are 2 prompts: an argument and -p"),
        (
            flags(prompt="b", prompt_file=Path("x")),
            None,
            "there are 2 prompts: -p and --prompt-file",
        ),
        (flags(), Typing(), "there is no prompt"),
        (flags(), None, "there is no prompt"),
        (flags(text="-"), None, "standard input is closed"),
        (flags(), io.StringIO(" \n"), "the prompt is empty"),
        (flags(text=""), None, "the prompt is empty"),
        (
            flags(text="-"),
            io.TextIOWrapper(io.BytesIO(b"caf\xe9"), "utf-8"),
            "standard input is not UTF-8 text",
        ),
        (
            flags(),
            io.TextIOWrapper(io.BytesIO(b"\xff"), "utf-8", "surrogateescape"),
            "is not UTF-8 text",
        ),
        (flags(prompt_file=Path("gone")), None, "cannot read gone: No such file or directory"),
        (flags(prompt_file=Path(__file__).parent), None, "Is a directory"),
    ],
)
def test_several_prompts_none_or_an_empty_one_are_refused(
    given: RunFlags, stdin: io.StringIO, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        run.read_request(given, stdin)


def binary(*words: str, **more: object) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "fugu_cli", *words],
        capture_output=True,
        timeout=60,
        check=False,
        **more,
    )  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("words", [("help", "config"), ("trust",), ("--help",)])
def test_a_pipe_that_is_closed_early_is_quiet(words: tuple[str, ...], buffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "fugu_cli", *words],
        stdout=write,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": buffered},
        timeout=60,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("buffered", ["", "1"])
def test_output_that_is_lost_on_a_full_disk_is_an_error_and_no_bug(buffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fugu_cli", "help", "config"],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": buffered},
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "No space left on device" in done.stderr


def test_closed_standard_streams_are_no_crash() -> None:
    words = f"{sys.executable} -m fugu_cli help >&- 2>&- <&-"
    assert subprocess.run(["/bin/sh", "-c", words], timeout=60, check=False).returncode == 0


def test_in_a_terminal_a_closed_standard_output_is_no_crash() -> None:
    ours, theirs = os.openpty()
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    words = ["/bin/sh", "-c", f"exec {sys.executable} -m fugu_cli >&-"]
    done = subprocess.run(
        words, stdin=theirs, stderr=subprocess.PIPE, env=place, timeout=60, check=False
    )
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_without_utf8_gets_escapes_and_no_crash() -> None:
    kept(text="Grüße 漢字")
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = binary("sessions", env=environ)
    assert done.returncode == 0 and b"Gr\\xfc\\xdfe \\u6f22\\u5b57" in done.stdout


def test_modules_that_lie_in_the_current_folder_are_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit(77)\n")
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "fugu_cli", "--help"]
    assert (
        subprocess.run(
            command, cwd=tmp_path, env=place, capture_output=True, check=False
        ).returncode
        == 0
    )


def test_a_bug_of_ours_is_called_one_and_ends_with_2() -> None:
    code = (
        "import sys; sys.argv = ['fugu']; from fugu_cli import __main__; from fugu_cli.cli "
        "import root; root.app = None"
    )
    code += "; __main__.main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 3, done.stderr
    assert "a bug in fugu" in done.stderr and "`fugu --continue`" in done.stderr
    report = Path(done.stderr.split()[-1])
    assert "Traceback" in report.read_text() and report.stat().st_mode & 0o077 == 0


def test_the_shell_completes_commands_and_flags() -> None:
    for typed, position, found in (
        ("fugu tr", "1", b"trace"),
        ("fugu run --max-b", "2", b"--max-budget-usd"),
    ):
        environ = {
            **os.environ,
            "_FUGU_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": position,
        }
        done = binary(env=environ)
        assert done.returncode == 0 and found in done.stdout.split(), done.stderr


@pytest.mark.parametrize(
    "words", [("sessions",), ("run", "hello"), ("doctor",), ("trust",), ("models", "list")]
)
def test_without_a_home_folder_it_is_said_what_to_set(words: tuple[str, ...]) -> None:
    nobody = ["unshare", "--user", "--map-user=12345", "--map-group=12345", "env", "-u", "HOME"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*nobody, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this system lets nobody be a user it does not know")
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [*nobody, sys.executable, "-m", "fugu_cli", *words]
    done = subprocess.run(command, env=place, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "there is no home folder" in done.stdout + done.stderr
    assert "set HOME" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", ["sessions", "run hello", "trust", "blame", "pool"])
def test_in_a_folder_that_may_not_be_looked_into_that_is_said(words: str, tmp_path: Path) -> None:
    (tmp_path / "outer" / "repo" / ".git").mkdir(parents=True)
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    script = f"cd outer/repo && chmod 0 .. && exec {sys.executable} -m fugu_cli {words}"
    command = [*without_roots_rights(), "sh", "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, env=place, capture_output=True, text=True, check=False
    )
    (tmp_path / "outer").chmod(0o700)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert f"cannot read {tmp_path}/outer/repo/.fugurc: Permission denied" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", f"/{'a' * 300}"), "there is no command /aaa"),
        (("trust", "a" * 300), "is not a folder"),
    ],
)
def test_names_too_long_for_any_file_are_words_like_others(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = fugu(*words, capture=capsys)
    assert code == 1 and said in err


def test_the_pool_says_how_often_each_agent_is_right_and_where_that_is_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (Path.home() / ".fugurc").write_text(
        '[[agents]]\nname = "known"\nprovider = "openai"\nmodel = "gpt-5-mini"\n'
        'base_url = "http://localhost:1/v1"\n'
        '[[agents]]\nname = "told"\nprovider = "openai"\nmodel = "anything-new"\nskill = 1.5\n'
        'base_url = "http://localhost:1/v1"\n'
    )
    code, out, _ = fugu("pool", "--skills", capture=capsys)
    known, told = out.splitlines()[1:3]
    assert code == 0
    assert "public figures" in known
    assert "+1.50" in told
    assert "your configuration" in told


def test_outcomes_are_forgotten_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = fugu("pool", "--forget-outcomes", capture=capsys)
    assert code == 0
    assert "sessions are kept" in out
