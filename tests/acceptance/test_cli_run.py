"""`fugu run` from the command line to its exit code, on scripted agents: no model, but real files
and real tools.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.config import Config
from fugu_cli.session import log, store
from fugu_cli.session.events import Asked, Event, Finished, Interrupted, Permitted, Undone
from fugu_cli.session.state import SessionState
from tests.rights import without_roots_rights
from tests.unit.ui import atif_rules

FIXED = "def add(a, b):\n    return a + b\n"
BROKEN = "def add(a, b):\n    return a - b\n"
CHECK = (
    "import calc, sys\nprint('1 passed' if calc.add(2, 3) == 5 else '1 "
    "failed')\nsys.exit(calc.add(2, 3) != 5)\n"
)
TESTS = f"{sys.executable} -B check.py"
EDIT = '{ tool = "edit", arguments = { path = "calc.py", old = "a - b", new = "a + b" } }'
READ = '{ tool = "read", arguments = { path = "calc.py" } }'
SOLVES = (
    f'text = "I read."\ncalls = [{READ}]\nusage = {{ input = 100, output = 10 }}',
    f'text = "I fix."\ncalls = [{EDIT}]\nusage = {{ input = 120, cached = 100, output = 20 }}',
    'text = "add() adds now."',
    'text = "ACCEPT: the tests pass."',
)


def project(*steps: str) -> Path:
    """A repository with a failing check, the working folder of the test; and a script beside it."""
    root = Path.cwd() / "repo"
    root.mkdir()
    (root / "calc.py").write_text(BROKEN)
    (root / "check.py").write_text(CHECK)
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "begin")):
        subprocess.run(["git", *words], cwd=root, check=True)
    script(*steps)
    os.chdir(root)
    return root


def script(*steps: str) -> None:
    path = (
        Path.cwd() / "script.toml"
        if (Path.cwd() / "repo").is_dir()
        else Path.cwd().parent / "script.toml"
    )
    path.write_text("".join(f"[[step]]\n{step}\n" for step in steps))


def words(*more: str) -> list[str]:
    return ["run", "--script", "../script.toml", "--test-command", TESTS, *more]


def facts() -> list[Event]:
    return [
        record.event for record in log.read(store.find_session(Config().data, Path.cwd(), "latest"))
    ]


def test_a_request_is_carried_out_accepted_traced_and_undone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    said = capsys.readouterr()
    assert said.out == "add() adds now.\n"
    assert (root / "calc.py").read_text() == FIXED
    order = [
        "▌ fix the failing tests",
        "turn 1",
        "✓ edit calc.py",
        "2 +     return a + b",
        f"running the tests: {TESTS}",
    ]
    order += [
        "turn 2",
        "✓ checks: 1 test passes",
        "✓ accepted",
        "accepted by its own author scripted · 1 test passes",
        "+    return a + b",
        "log: ",
    ]
    at = -1
    for piece in order:
        at = said.err.find(piece, at + 1)
        assert at >= 0, piece
    assert called(["trace"]) == 0
    assert "changed calc.py" in capsys.readouterr().out
    assert called(["trace", "--turn", "1"]) == 0
    full = capsys.readouterr().out
    assert "-     return a - b\n" in full and "▸ result of read" in full
    assert called(["undo"]) == 1
    assert "add --yes" in capsys.readouterr().err
    assert called(["undo", "--yes"]) == 0
    assert (root / "calc.py").read_text() == BROKEN
    assert isinstance(facts()[-1], Undone)
    assert called(["undo", "--yes"]) == 0
    assert "nothing to undo" in capsys.readouterr().out
    assert called(["redo", "--yes"]) == 0
    assert (root / "calc.py").read_text() == FIXED
    (root / "calc.py").write_text("mine\n")
    assert called(["undo", "--yes"]) == 1
    assert "undo would lose edits made since in 1 file: calc.py" in capsys.readouterr().err
    assert (root / "calc.py").read_text() == "mine\n"


@pytest.mark.parametrize("name", ["AGENTS.md", ".agents", "conftest.py", "tests"])
def test_a_link_to_what_may_not_be_looked_into_counts_for_nothing(name: str) -> None:
    root = project('text = "An adder."')
    (root / name).symlink_to(
        "x" * 300
    )  # following it fails, as into a folder that may not be entered
    assert called(["run", "--script", "../script.toml", "what is it?"]) == 0


def test_what_was_masked_is_masked_in_a_shell_that_does_not_know_the_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    word = "tok-veryverysecret-9931"
    root = project(*SOLVES)
    (root / "calc.py").write_text(BROKEN + f"TOKEN = '{word}'\n")
    monkeypatch.setenv("MY_TOKEN", word)
    assert called(words("fix the failing tests")) == 0
    monkeypatch.delenv("MY_TOKEN")
    for command in (["trace", "--turn", "1"], ["blame"], ["blame", "calc.py"], ["undo", "--yes"]):
        assert called(command) == 0
        said = capsys.readouterr()
        assert word not in said.out + said.err and "[secret 33ed]" in said.out + said.err, command
    assert word in (root / "calc.py").read_text()


def test_the_final_object_and_the_output_folder(capsys: pytest.CaptureFixture[str]) -> None:
    project(*SOLVES)
    assert (
        called(
            words(
                "-p", "fix the failing tests", "--output-format", "json", "--output-dir", "../out"
            )
        )
        == 0
    )
    said = capsys.readouterr()
    final = json.loads(said.out)
    assert said.err == ""
    assert (final["subtype"], final["is_error"], final["num_turns"], final["result"]) == (
        "success",
        False,
        2,
        "add() adds now.",
    )
    assert final["fugu"]["end"] == "accepted by its own author scripted · 1 test passes"
    assert final["fugu"]["tests"] == {
        "before": None,
        "after": {"ok": True, "passed": 1, "failed": 0, "skipped": 0},
        "fixed": [],
        "broken": [],
        "removed": [],
        "not_run": [],
    }
    assert final["fugu"]["changed"] == ["calc.py"]
    folder = Path("../out")
    assert log.read(folder / "session.jsonl") == log.read(Path(final["fugu"]["log"]))
    subprocess.run(["git", "apply", "-R", "--check", str(folder / "changes.patch")], check=True)
    atif_rules.check(json.loads((folder / "trajectory.json").read_text()))
    assert json.loads((folder / "summary.json").read_text())["session_id"] == final["session_id"]


def test_ctrl_c_is_an_answer_to_the_question_before_an_undo() -> None:
    root = project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    ours, theirs = os.openpty()
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm"}
    command = [sys.executable, "-m", "fugu_cli", "undo"]
    with subprocess.Popen(
        command, env=place, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        said = b""
        while b"put these files back? [y/N] " not in said:
            said += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 4
    os.close(ours)
    assert (root / "calc.py").read_text() == FIXED


def test_an_undo_whose_question_nobody_could_see_is_refused() -> None:
    root = project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    ours, theirs = os.openpty()
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "fugu_cli", "undo"]
    done = subprocess.run(
        command, env=place, stdin=theirs, capture_output=True, text=True, timeout=60, check=False
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 1
    assert "there is no terminal" in done.stderr
    assert (root / "calc.py").read_text() == FIXED


def test_an_output_folder_inside_the_repository_does_not_stand_in_the_way_of_undo() -> None:
    root = project(*SOLVES)
    assert called(words("fix the failing tests", "--output-dir", "out")) == 0
    assert called(["undo", "--yes"]) == 0
    assert (root / "calc.py").read_text() == BROKEN
    assert json.loads((root / "out" / "summary.json").read_text())["subtype"] == "success"


def test_a_stream_of_lines_begins_with_init_and_ends_with_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    project(*SOLVES)
    assert called(words("fix the failing tests", "--output-format", "stream-json")) == 0
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert said.err == ""
    assert [(line["type"], line.get("subtype", "")) for line in lines] == [
        ("system", "init"),
        ("system", "routing"),
        ("assistant", ""),
        ("user", ""),
        ("assistant", ""),
        ("user", ""),
        ("assistant", ""),
        ("system", "evidence"),
        ("system", "routing"),
        ("system", "evidence"),
        ("assistant", ""),
        ("result", "success"),
    ]
    assert lines[0]["tools"][:2] == ["read", "list"] and lines[0]["permissionMode"] == "edit"


def test_without_a_terminal_what_would_be_asked_is_denied_and_the_run_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bash = 'text = "x"\ncalls = [{ tool = "bash", arguments = { command = "touch ../made" } }]'
    root = project(bash, *SOLVES)
    assert called(words("fix the failing tests", "--output-format", "json")) == 0
    assert not (root.parent / "made").exists()
    final = json.loads(capsys.readouterr().out)
    assert [denial["tool_input"] for denial in final["permission_denials"]] == [
        {"command": "touch ../made"}
    ]


@pytest.mark.parametrize(
    "more", [("--yolo",), ("--allow", "bash(touch *)"), ("--permission-mode", "yolo")]
)
def test_what_is_allowed_runs_without_a_question(more: tuple[str, ...]) -> None:
    bash = 'text = "x"\ncalls = [{ tool = "bash", arguments = { command = "touch made" } }]'
    root = project(bash, *SOLVES)
    assert called(words("fix the failing tests", *more)) == 0
    assert (root / "made").exists()


@pytest.mark.parametrize(
    ("steps", "more", "code", "subtype"),
    [
        (
            ['text = "I did nothing."'] * 9,
            ("--max-turns", "2", "--until-tests-pass"),
            3,
            "error_max_turns",
        ),
        (
            ['text = "I did nothing."'] * 9,
            ("--max-turns", "2", "--until", "exit 1"),
            3,
            "error_max_turns",
        ),
        (
            [*SOLVES[:3], 'text = "REVISE: no."', 'text = "as before"'],
            ("--max-turns", "3"),
            3,
            "error_max_turns",
        ),
        (['text = "slow"\ndelay = 30.0'], ("--time-limit", "0.5"), 3, "error_time_limit"),
        (
            ['error = { kind = "refused", message = "the key was refused" }'] * 9,
            (),
            2,
            "error_during_execution",
        ),
    ],
)
def test_limits_end_with_3_and_failing_agents_with_2(
    steps: list[str],
    more: tuple[str, ...],
    code: int,
    subtype: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project(*steps)
    assert called(words("fix the failing tests", "--output-format", "json", *more)) == code
    final = json.loads(capsys.readouterr().out)
    assert (final["subtype"], final["is_error"]) == (subtype, True)


@pytest.mark.parametrize(
    ("steps", "code", "subtype"),
    [
        (['text = "I will deploy by"\nstop = "length"'] * 2, 3, "error_max_turns"),
        (['text = "I cannot help with that."\nstop = "refusal"'] * 2, 3, "error_max_turns"),
        ([f'text = "Looking."\ncalls = [{READ}]'] * 60, 3, "error_max_turns"),
        (
            [
                'text = "x"\ncalls = [{ tool = "bash", arguments = { command = "git push" } }]',
                'text = "UNABLE: I may not push."',
            ],
            4,
            "error_permission_denied",
        ),
    ],
)
def test_what_was_not_answered_is_no_success(
    steps: list[str], code: int, subtype: str, capsys: pytest.CaptureFixture[str]
) -> None:
    project(*steps)
    assert (
        called(
            [
                "run",
                "--script",
                "../script.toml",
                "--max-turns",
                "2",
                "--output-format",
                "json",
                "deploy it",
            ]
        )
        == code
    )
    assert json.loads(capsys.readouterr().out)["subtype"] == subtype


def test_a_question_is_answered_and_that_is_all(capsys: pytest.CaptureFixture[str]) -> None:
    project('text = "It adds two numbers."')
    assert called(["run", "--script", "../script.toml", "what does add do?"]) == 0
    said = capsys.readouterr()
    assert said.out == "It adds two numbers.\n" and "\n✓ done" in said.err


def piping(source: int, *more: str) -> int:
    command = [sys.executable, "-m", "fugu_cli", *words(*more)]
    return subprocess.run(
        command, stdin=source, capture_output=True, timeout=60, check=False
    ).returncode


def test_a_pipe_is_read_by_agents_and_nothing_is_concluded_from_its_words() -> None:
    project('text = "It says so."', 'text = "It does."')
    for text, more in (
        (b"fix the failing tests\n", ("explain",)),
        (b"why is it so\n", ("--continue",)),
    ):
        read, write = os.pipe()
        os.write(write, text)
        os.close(write)
        assert piping(read, *more) == 0
        os.close(read)
    first, second = (event for event in facts() if isinstance(event, Asked))
    assert (first.text, first.piped) == ("explain", "fix the failing tests")
    assert first.whole == "explain\n\n<stdin>\nfix the failing tests\n</stdin>"
    assert (second.text, second.piped) == ("why is it so", "")


def test_a_run_whose_standard_input_is_open_and_silent_does_not_hang() -> None:
    project('text = "It says so."')
    os.mkfifo("../silent")
    silent = os.open("../silent", os.O_RDWR)
    began = time.monotonic()
    assert piping(silent, "explain") == 0
    assert piping(silent, "--continue") == 1  # nothing is left to be finished
    os.close(silent)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("rule", ["nonsense", "cascade"])
def test_a_script_takes_no_coordinator(rule: str) -> None:
    project('text = "done"')
    assert called(words("--coordinator", rule, "why?")) == 1


def test_a_new_request_in_the_same_session_counts_for_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    project(
        'text = "one"\nusage = { input = 10, output = 1 }',
        'text = "two"\nusage = { input = 20, output = 2 }',
        'text = "three"',
    )
    base = ["run", "--script", "../script.toml", "--output-format", "json"]
    assert called([*base, "what is it?"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert called([*base, "--continue", "and what else?"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["session_id"] == first["session_id"] and second["result"] == "two"
    assert second["usage"]["output_tokens"] == 2
    assert called([*base, "--resume", first["session_id"][:10], "--fork-session", "again?"]) == 0
    assert json.loads(capsys.readouterr().out)["session_id"] != first["session_id"]
    assert called([*base, "--continue"]) == 1
    assert "the session has no unfinished request" in capsys.readouterr().err


def test_a_script_that_plans_goes_on_behind_its_plans(capsys: pytest.CaptureFixture[str]) -> None:
    plan = "model_id = [0]\\nsubtasks = ['Say it.']\\naccess_list = [[]]"
    keep = "model_id = []\\nsubtasks = []\\naccess_list = []"
    project(*(f'text = "{text}"' for text in (plan, "one", keep, plan, "two", keep)))
    base = ["run", "--script", "../script.toml", "--tier", "ultra"]
    assert called([*base, "what is it?"]) == 0
    assert called([*base, "--continue", "and what else?"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"


def started(*more: str) -> "subprocess.Popen[str]":
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-m", "fugu_cli", *words("fix the failing tests", *more)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )


def until(process: "subprocess.Popen[str]", piece: str) -> None:
    """Read standard error until `piece` was said."""
    assert process.stderr is not None
    for line in process.stderr:
        if piece in line:
            return
    raise AssertionError(f"{piece} was never said")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cuts_the_turn_and_continue_finishes_it(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(SOLVES[0], 'text = "I think.\\nLong."\npace = 0.2\ndelay = 60.0')
    process = started("--output-dir", "../out")
    until(process, "✓ read calc.py")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (4, "I read.\n"), err
    assert "`fugu run --continue` goes on with it" in err and "Traceback" not in err
    assert isinstance(facts()[-1], Interrupted) and SessionState(facts()).request.finished is None
    assert json.loads(Path("../out/summary.json").read_text())["subtype"] == "interrupted"
    script(*SOLVES)
    assert called(words("--continue")) == 0
    capsys.readouterr()
    assert (root / "calc.py").read_text() == FIXED
    end = facts()[-1]
    assert isinstance(end, Finished)
    assert end.reason == "accepted"
    calls = [fact.call.id for fact in facts() if isinstance(fact, Permitted)]
    assert len(calls) == len(set(calls))


def submitting(command: str) -> None:
    """A hook of the user's for every request."""
    group = {"hooks": [{"type": "command", "command": command, "timeout": 60}]}
    place = Path.home() / ".agents" / "hooks.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps({"hooks": {"UserPromptSubmit": [group]}}))


def test_a_run_that_is_cut_before_its_request_is_recorded_does_not_stand_for_an_earlier_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    submitting("sleep 60")
    for more in ((), ("--continue",)):
        process = started(*more, "--output-dir", "../out")
        until(process, "session ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, "diff" in err) == (4, "", False), err
        assert "interrupted: nothing was recorded yet; give the request again" in err
        assert json.loads(Path("../out/summary.json").read_text())["subtype"] == "interrupted"
    assert len(store.session_paths(Config().data)) == 2
    assert isinstance(facts()[-1], Finished), "the session in which something was asked"


def test_a_request_that_a_hook_refused_leaves_the_newest_session_as_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    submitting("exit 2")
    assert called(words("fix it again")) == 1
    assert called(["sessions", "--latest"]) == 0
    assert "fix the failing tests" in capsys.readouterr().out
    assert called(["undo", "--yes"]) == 0
    assert (root / "calc.py").read_text() == BROKEN


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_after_the_end_does_not_change_the_exit_code(number: signal.Signals) -> None:
    project('text = "It adds."\npace = 0.1\nstop = "length"')
    process = started("--max-turns", "1")
    until(process, "log: ")
    while process.poll() is None:
        process.send_signal(number)
        time.sleep(0.001)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (3, "")


def test_a_second_signal_leaves_at_once() -> None:
    command = (
        'text = "It sleeps."\ncalls = [{ tool = "bash", arguments = { command = "trap \'\' TERM; '
        'sleep 60" } }]'
    )
    project(command)
    process = started("--yolo", "--output-dir", "../out")
    until(process, "It sleeps.")
    process.send_signal(signal.SIGINT)
    until(process, "interrupting; once more to leave at once")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 4 and "Traceback" not in err and "log: " not in err
    assert json.loads(Path("../out/summary.json").read_text())["subtype"] == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_is_still_being_opened(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(*SOLVES)
    tools = Path.cwd().parent / "bin"
    tools.mkdir()
    (tools / "git").write_text(
        f"#!/bin/sh\necho $$ >> {tools}/asked\nexec sleep 1000\n"
    )  # never answers
    (tools / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    process = started()
    until(process, "reading the repository")
    while not (tools / "asked").exists():
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in err) == (4, False)
    for pid in map(int, (tools / "asked").read_text().split()):
        end = time.monotonic() + 5
        while running(pid) and time.monotonic() < end:
            time.sleep(0.01)
        assert not running(pid)


def test_a_signal_before_anything_is_opened_is_told_to_programs() -> None:
    project(*SOLVES)
    os.mkfifo("request")
    given = ["run", "--prompt-file", "request", "--output-format", "json", "--output-dir", "../out"]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-m", "fugu_cli", *given],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )
    silent = os.open("request", os.O_WRONLY)  # until it is being read
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    os.close(silent)
    assert (process.returncode, err) == (4, "")
    final = json.loads(out)
    assert (final["subtype"], final["errors"]) == (
        "interrupted",
        ["interrupted before the session was open"],
    )
    assert json.loads(Path("../out/summary.json").read_text())["errors"] == final["errors"]


def running(pid: int) -> bool:
    """It is there, and not only waiting to be told off by whoever started it."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def full(*more: str, err: bool = False) -> "subprocess.CompletedProcess[str]":
    """`fugu run` where standard output, or else standard error, is a full disk."""
    with Path("/dev/full").open("w") as nowhere:
        return subprocess.run(
            [sys.executable, "-m", "fugu_cli", *words("what is this?", *more)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if err else nowhere,
            stderr=nowhere if err else subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            timeout=60,
            check=False,
        )


def test_an_answer_that_cannot_be_written_is_an_error_and_the_output_folder_has_it() -> None:
    project('text = "It adds."')
    done = full("--output-dir", "../out")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "cannot write to standard output: No space left on device" in done.stderr
    assert json.loads(Path("../out/summary.json").read_text())["result"] == "It adds."


def test_a_run_does_not_depend_on_somebody_reading_along() -> None:
    project('text = "It adds."')
    done = full(err=True)
    assert (done.returncode, done.stdout) == (0, "It adds.\n")


def test_what_people_read_is_not_sent_to_standard_output_where_standard_error_is_closed() -> None:
    project('text = "It adds."')
    line = '"$@" 2>&-'
    command = [
        "/bin/sh",
        "-c",
        line,
        "sh",
        sys.executable,
        "-m",
        "fugu_cli",
        *words("what is this?"),
    ]
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env=place, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "It adds.\n")


def test_nothing_to_go_on_with_leaves_no_copy(capsys: pytest.CaptureFixture[str]) -> None:
    project('text = "It adds."')
    assert called(words("what is this?")) == 0
    assert called(["run", "--script", "../script.toml", "--continue", "--fork-session"]) == 1
    assert "the session has no unfinished request" in capsys.readouterr().err
    assert len(store.session_paths(Config().data, Path.cwd())) == 1


def test_a_session_of_another_folder_goes_on_with_something_new_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = project(*SOLVES)
    assert called(words("--max-turns", "1", "fix the failing tests")) == 3
    first = store.find_session(Config().data, root, "latest").stem
    other = root.parent / "other"
    other.mkdir()
    os.chdir(other)
    capsys.readouterr()
    assert called(["run", "--script", "../script.toml", "--resume", first]) == 1
    assert f"worked in {root}, not in {other}" in capsys.readouterr().err
    assert called(["run", "--script", "../script.toml", "--resume", first, "what is this?"]) == 0
    assert f"worked in {root}; it goes on in {other}" in capsys.readouterr().err
    assert called(["undo", "--yes", "--session", first]) == 1
    assert f"this was done in {root}, not in {other}" in capsys.readouterr().err
    assert (root / "calc.py").read_text() == FIXED
    os.chdir(root)
    assert called(["undo", "--yes", "--session", first]) == 0, (
        "the question in the other folder changed nothing"
    )
    assert (root / "calc.py").read_text() != FIXED


def test_a_session_goes_on_and_is_undone_in_a_folder_whose_name_is_no_unicode(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = project(*SOLVES)
    os.chdir(root.rename(root.with_name(os.fsdecode(b"re\xffpo"))))
    assert called(words("--max-turns", "1", "fix the failing tests")) == 3
    assert called(words("--continue")) == 0
    assert "it goes on in" not in capsys.readouterr().err
    assert called(["cost"]) == called(["blame"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert next(line for line in told if line.startswith("all")).split()[:4] == [
        "all",
        "4",
        "220",
        "100",
    ]
    assert Path("calc.py").read_text() == FIXED
    assert called(["undo", "--yes"]) == 0
    assert Path("calc.py").read_text() == BROKEN


def test_a_reader_of_the_stream_that_goes_away_ends_the_work() -> None:
    sleeps = 'calls = [{ tool = "bash", arguments = { command = "sleep 6544" } }]'
    root = project(sleeps, *SOLVES)
    process = started("--output-format", "stream-json", "--yolo")
    assert process.stdout is not None
    while "sleep 6544" not in process.stdout.readline():
        pass
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (4, "")
    assert (root / "calc.py").read_text() == BROKEN


def rightless(*words: str) -> "subprocess.CompletedProcess[str]":
    """`fugu`, for which modes of files count."""
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [*without_roots_rights(), sys.executable, "-m", "fugu_cli", *words]
    return subprocess.run(
        command, env=place, capture_output=True, text=True, timeout=60, check=False
    )


def test_outside_of_git_what_cannot_be_put_back_is_said_and_can_be_undone_later() -> None:
    root = project(*SOLVES)
    shutil.rmtree(root / ".git")
    assert called(words("fix the failing tests")) == 0
    root.chmod(0o555)
    done = rightless("undo", "--yes")
    root.chmod(0o755)
    assert (done.returncode, (root / "calc.py").read_text()) == (2, FIXED)
    assert "1 of 1 files could not be put back: calc.py (Permission denied)" in done.stderr
    (root / "calc.py").chmod(0)
    done = rightless("undo", "--yes")
    (root / "calc.py").chmod(0o644)
    assert done.returncode == 2
    assert f"{root}/calc.py cannot be read: Permission denied" in done.stderr
    assert called(["undo", "--yes"]) == 0
    assert (root / "calc.py").read_text() == BROKEN


def test_sessions_that_may_not_be_looked_for_are_said() -> None:
    project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    place = Config().data / "sessions"
    place.chmod(0)
    done = rightless("sessions")
    place.chmod(0o755)
    assert done.returncode == 2
    assert f"cannot look for sessions in {Config().data}: Permission denied" in done.stderr


def test_outside_of_git_it_works_and_undo_puts_back_what_fugu_wrote(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bash = (
        'text = "x"\ncalls = [{ tool = "bash", arguments = { command = "echo by hand > made" } }]'
    )
    project(bash, *SOLVES)
    subprocess.run(["rm", "-rf", ".git"], check=True)
    assert called(words("fix the failing tests", "--yolo", "--output-dir", "out")) == 0
    patch = Path("out/changes.patch").read_text()
    assert (patch.count("+    return a + b"), patch.count("+by hand")) == (1, 1)
    assert re.findall(r"^diff --git a/(\S+)", patch, re.MULTILINE) == ["calc.py", "made"]
    assert Path("calc.py").read_text() == FIXED
    Path("other.txt").write_text("mine")
    capsys.readouterr()
    assert called(["undo", "--yes"]) == 0
    assert (Path("calc.py").read_text(), Path("other.txt").read_text()) == (BROKEN, "mine")
    assert called(["redo", "--yes"]) == 0
    assert Path("calc.py").read_text() == FIXED
    assert called(["undo", "--yes"]) == 0
    capsys.readouterr()


def test_a_message_that_nobody_read_before_the_end_is_said_where_the_session_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    project('text = "one"', 'text = "two"')
    base = ["run", "--script", "../script.toml"]
    assert called([*base, "what is it?"]) == 0
    found = re.search(r"^log: (\S+)", capsys.readouterr().err, re.MULTILINE)
    assert found
    path = Path(found[1])
    *lines, end = path.read_text().splitlines()
    steered, finished = json.loads(end), json.loads(end)
    assert finished["event"]["type"] == "finished"
    steered["event"] = {"type": "steered", "text": "and in French"}
    finished["seq"] += 1
    path.write_text("\n".join([*lines, json.dumps(steered), json.dumps(finished)]) + "\n")
    assert called([*base, "--continue", "and what else?"]) == 0
    told = capsys.readouterr().err
    assert "before an agent had read this message" in told
    assert ": and in French" in told
