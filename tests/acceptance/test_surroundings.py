"""The real binary in odd surroundings: no repository, no tests, strange files, a broken
configuration, wrong words.
"""

import shutil
import subprocess

import pytest

from fugu_cli.session.events import Asked, Finished, ToolRan
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use
from tests.acceptance.test_run import ACCEPT, DONE, WORKS

ENTRY = '[[agents]]\nname = "a"\nprovider = "openai"\nmodel = "m"\n'


def test_outside_git_it_works_and_says_that_undo_is_limited(place: Place, server: Loopback) -> None:
    shutil.rmtree(place.repo / ".git")
    place.configure(Agent("no-git"), Agent("judge-no-git", "strong", "anthropic"))
    server.play("no-git", *WORKS)
    server.play("judge-no-git", ACCEPT)
    done = place.fugu("run", "fix the tests")
    assert done.code == 0, done.err
    assert (place.repo / "calc.txt").read_text() == "fixed\n"
    assert "not a git repository" in done.err
    assert "undo" in done.err
    (asked,) = (event for event in place.events() if isinstance(event, Asked))
    assert asked.snapshot is None


def test_in_an_empty_repository_something_can_be_made(place: Place, server: Loopback) -> None:
    for name in ("calc.txt", "check.sh"):
        (place.repo / name).unlink()
    shutil.rmtree(place.repo / ".git")
    subprocess.run(["git", "init", "-q", "--template="], cwd=place.repo, check=True)
    place.configure(Agent("makes"), Agent("judge-makes", "strong"), more="")
    server.play(
        "makes",
        Says("", (Use("list", {}), Use("write", {"path": "src/new.py", "content": "x = 1\n"}))),
        DONE,
    )
    server.play("judge-makes", ACCEPT)
    done = place.fugu("run", "write a module new.py that sets x")
    assert done.code == 0, done.err
    assert (place.repo / "src" / "new.py").read_text() == "x = 1\n"
    assert "+x = 1" in done.err


def test_without_a_test_command_a_verifier_decides_and_the_end_says_that_no_tests_ran(
    place: Place, server: Loopback
) -> None:
    (place.repo / "check.sh").unlink()
    place.configure(Agent("untested"), Agent("judge-untested", "strong"), more="")
    server.play("untested", *WORKS)
    server.play("judge-untested", ACCEPT)
    done = place.fugu("run", "fix the failing tests")
    assert done.code == 0, done.err
    assert "verified by judge-untested · no tests ran" in done.err
    assert (
        "[No tests were run: there is no test command here that fugu may run.]"
        in server.asked("judge-untested")[0].text
    )
    assert not any(
        isinstance(event, ToolRan) and event.call.tool == "run_tests" for event in place.events()
    )


def test_tests_that_must_pass_and_cannot_be_run_are_a_usage_error(
    place: Place, server: Loopback
) -> None:
    (place.repo / "check.sh").unlink()
    place.configure(Agent("unasked"), more="")
    done = place.fugu("run", "--until-tests-pass", "fix the failing tests")
    assert done.code == 1
    assert "the tests are to pass, and no test command can be run here" in done.err
    assert "name one with --test-command" in done.err
    assert server.asked("unasked") == []


def test_large_binary_and_foreign_files_are_read_with_care(place: Place, server: Loopback) -> None:
    foreign = b"na\xefve caf\xe9\n"
    place.files({"latin.txt": foreign, "image.bin": bytes(range(256)) * 16})
    (place.repo / "caf\udce9.txt").write_bytes(b"strange name\n")
    (place.repo / "large.log").write_bytes(b"a line of a log that grew too large\n" * 1_500_000)
    place.configure(Agent("curious"), Agent("judge-curious", "strong", "anthropic"))
    names = (
        "latin.txt",
        "image.bin",
        "large.log",
        '"caf\\351.txt"',
        "gone.txt",
        "../../../../etc/shadow",
    )
    server.play(
        "curious",
        Says(
            "",
            (
                *(Use("read", {"path": name}) for name in names),
                Use("list", {}),
                Use("grep", {"pattern": "strange"}),
                Use("read", {"path": "large.log", "offset": 1_400_000, "limit": 2}),
            ),
        ),
        *WORKS,
    )
    server.play("judge-curious", ACCEPT)
    done = place.fugu("run", "fix the tests")
    assert done.code == 0, done.err
    results = server.asked("curious")[1].results
    assert "caf\N{REPLACEMENT CHARACTER}" in results[0]
    assert "binary" in results[1]
    assert "large.log is large: 54,000,000 bytes. Read a part with offset and limit" in results[2]
    assert "strange name" in results[3]
    assert "gone.txt" in results[4]
    assert "Not allowed" in results[5]
    assert "latin.txt" in results[6]
    assert "strange name" in results[7]
    assert results[8].startswith("1400000\ta line of a log")
    assert (place.repo / "latin.txt").read_bytes() == foreign
    assert (place.repo / "caf\udce9.txt").read_bytes() == b"strange name\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "max_turn = 3\n" + ENTRY,
            ("line 1", "unknown key 'max_turn'", "did you mean 'max_turns'?"),
        ),
        ('coordinator = "cascade"\nmax_turns = "three"\n', ("line 2", "max_turns")),
        ("max_turns = \n", ("line 1", "not valid TOML")),
        (ENTRY + 'api_key = "sk-1"\n', ("line 5", "api_key_env")),
        (ENTRY + 'protocl = "native"\n', ("line 5", "did you mean 'protocol'?")),
    ],
)
def test_a_broken_configuration_names_file_line_key_and_what_is_near(
    place: Place, text: str, words: tuple[str, ...]
) -> None:
    (place.home / ".fugurc").write_text(text)
    done = place.fugu("run", "fix the tests")
    assert done.code == 1
    assert str(place.home / ".fugurc") in done.err
    for word in words:
        assert word in done.err
    assert place.sessions() == []


def test_a_pool_without_usable_agents_says_which_variable_to_set(place: Place) -> None:
    (place.home / ".fugurc").write_text(ENTRY)
    done = place.fugu("run", "fix the tests")
    assert done.code == 1
    assert "no agent of the pool can be used" in done.err
    assert "set OPENAI_API_KEY" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--no-such-flag", "x"),
        ("no-such-command",),
        ("run",),
        ("run", "a", "-p", "b"),
        ("run", "--resume", "nobody", "x"),
    ],
)
def test_wrong_words_end_with_1_and_a_hint(place: Place, words: tuple[str, ...]) -> None:
    place.configure(Agent("never-asked"))
    done = place.fugu(*words)
    assert done.code == 1
    assert done.out == ""
    assert "fugu: " in done.err


def test_data_that_cannot_be_written_ends_with_2(place: Place, server: Loopback) -> None:
    place.configure(Agent("never-reached"))
    (place.home / "data").write_text("a file where a folder should be")
    done = place.fugu("run", "fix the tests")
    assert done.code == 2
    assert "cannot" in done.err
    assert str(place.home / "data") in done.err


def test_a_run_in_a_folder_whose_name_is_no_utf8(place: Place, server: Loopback) -> None:
    place.configure(Agent("abroad"))
    server.play("abroad", Says("It is here."))
    place.repo.rename(place.folder / "caf\udce9")
    done = place.fugu("run", "what is this?", folder=place.folder / "caf\udce9")
    assert (done.code, done.out) == (0, "It is here.\n"), done.err
    assert place.end() == Finished(reason="answered")
