"""`fugu blame` from the command line, on sessions of scripted agents."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.config import Config
from fugu_cli.session import store as session_store
from tests.acceptance.test_cli_run import BROKEN, READ, SOLVES, project, script, words

PAID = (
    '[[agents]]\nname = "dear"\nprovider = "scripted"\nmodel = "../script.toml"\nslot = "strong"\n'
)
PAID += "price = { input = 1000, output = 2000 }\n"


def blamed(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    capsys.readouterr()
    assert called(["blame", *more]) == 0
    return capsys.readouterr().out


def objects(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, list[dict[str, object]]]:
    made: dict[str, list[dict[str, object]]] = json.loads(blamed(capsys, *more, "--format", "json"))
    return made


def writers(found: dict[str, list[dict[str, object]]]) -> list[tuple[object, object, object]]:
    return [(line["line"], line["text"], line["agent"]) for line in found["lines"]]


def test_the_newest_sessions_diff_names_who_added_each_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    lines = blamed(capsys).splitlines()
    id = session_store.find_session(Config().data, Path.cwd(), "latest").stem
    assert lines[0] == f"session {id}"
    assert lines[2:7] == [
        "calc.py  +1 -1",
        "@@ line 1",
        "                     def add(a, b):",
        "                    -    return a - b",
        "  1 scripted worker +    return a + b",
    ]
    assert lines[-5].split() == ["scripted", "1", "2", "220", "30", "$0"]
    assert lines[-3].split() == ["all", "1", "2", "220", "30", "$0"]
    found = objects(capsys)
    kinds = [(line["kind"], line["agent"]) for line in found["files"][0]["lines"]]  # type: ignore[attr-defined]
    assert kinds == [("removed", None), ("added", "scripted")]
    assert [(turn["turn"], turn["role"], turn["lines"]) for turn in found["turns"]] == [
        (1, "worker", 1),
        (2, "verifier", 0),
    ]


def test_a_files_lines_over_all_sessions_with_edits_of_the_users_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    (root / "calc.py").write_text("# mine\n" + (root / "calc.py").read_text())
    edit = (
        '{ tool = "edit", arguments = { path = "calc.py", old = "# mine", new = "# mine\\n# two" '
        "} }"
    )
    script(f'text = "More."\ncalls = [{READ}, {edit}]', 'text = "Done."', 'text = "ACCEPT"')
    assert called(words("add a line")) == 0
    (root / "calc.py").write_text((root / "calc.py").read_text() + "# end\n")
    found = objects(capsys, "calc.py")
    assert writers(found) == [
        (1, "# mine", None),
        (2, "# two", "scripted"),
        (3, "def add(a, b):", None),
        (4, "    return a + b", "scripted"),
        (5, "# end", None),
    ]
    first, second = (turn["session"] for turn in found["turns"])
    assert (found["unknown_lines"], found["contents_missing"], first != second) == (3, False, True)
    assert writers(objects(capsys, "calc.py", "--session", str(second)))[1::2] == [
        (2, "# two", "scripted"),
        (4, "    return a + b", None),
    ]
    assert "calc.py  +1 -0  (changed since; this is how the session left it)" in blamed(capsys)


def test_undone_requests_do_not_count_and_redone_ones_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    assert called(["undo", "--yes"]) == 0
    assert [line["agent"] for line in objects(capsys, "calc.py")["lines"]] == [None, None]
    assert "nothing that it changed stands" in blamed(capsys)
    assert called(["redo", "--yes"]) == 0
    assert [line["agent"] for line in objects(capsys, "calc.py")["lines"]] == [None, "scripted"]


def test_what_it_cost_is_the_turns_and_a_lines_share_is_said_to_be_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = project(*SOLVES)
    (Path.home() / ".fugurc").write_text(PAID.replace("../", f"{root.parent}/"))
    assert called(["run", "--test-command", words()[4], "fix the failing tests"]) == 0
    found = objects(capsys, "calc.py")
    dollars = (120 * 1000 + 30 * 2000 + 100 * 1000) / 1e6
    assert [
        (turn["cost_usd"], turn["line_share_usd"], turn["calls"]) for turn in found["turns"]
    ] == [(dollars, dollars, 3)]
    said = blamed(capsys, "calc.py")
    assert "cost is the whole turn's" in said and "share is that divided by its lines" in said
    row = next(line for line in said.splitlines() if line.startswith("1  1.1 "))
    assert row.split()[2:9] == [
        "dear",
        "worker",
        "1",
        "220",
        "30",
        f"${dollars:.2f}",
        f"${dollars:.2f}",
    ]


def test_a_file_that_a_command_moved_keeps_its_writers(capsys: pytest.CaptureFixture[str]) -> None:
    move = '{ tool = "bash", arguments = { command = "mv calc.py sums.py" } }'
    project(*SOLVES[:2], f'text = "I move."\ncalls = [{move}]', *SOLVES[2:])
    assert called(words("fix it", "--yolo", "--max-turns", "1")) == 3
    assert writers(objects(capsys, "sums.py")) == [
        (1, "def add(a, b):", None),
        (2, "    return a + b", "scripted"),
    ]
    assert "calc.py -> sums.py  +1 -1" in blamed(capsys)


def test_a_file_that_the_user_moved_and_edited_keeps_its_writers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    (root / "calc.py").rename(root / "sums.py")
    (root / "sums.py").write_text((root / "sums.py").read_text() + "# mine\n")
    assert [line["agent"] for line in objects(capsys, "sums.py")["lines"]] == [
        None,
        "scripted",
        None,
    ]
    assert [line["agent"] for line in objects(capsys, "check.py")["lines"]] == [None] * 3


def test_secrets_are_masked_and_nothing_moves_the_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    (root / "calc.py").write_text(
        "key = 'sk-abcdefghijklmnopqrstuvwxyz123456'\nx = '\x1b[31mred'\n"
    )
    for shape in ("text", "json"):
        said = blamed(capsys, "calc.py", "--format", shape)
        assert "sk-abc" not in said and "[secret " in said
    assert "x = 'red'" in blamed(capsys, "calc.py")


def test_outside_git_the_lines_of_files_that_were_changed_since_are_known_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("notes").mkdir()
    Path("script.toml").write_text("")
    os.chdir("notes")
    create = '{ tool = "write", arguments = { path = "a.txt", content = "one\\ntwo\\n" } }'
    Path("../script.toml").write_text(
        f'[[step]]\ncalls = [{create}]\n[[step]]\ntext = "ok"\n[[step]]\ntext = "ACCEPT"\n'
    )
    assert called(["run", "--script", "../script.toml", "write it"]) == 0
    Path("a.txt").write_text("zero\none\ntwo\n")
    assert [line["agent"] for line in objects(capsys, "a.txt")["lines"]] == [
        None,
        "scripted",
        "scripted",
    ]
    assert objects(capsys, "a.txt")["contents_missing"] is False
    (store,) = Path.home().rglob("fugu/snapshots")
    shutil.rmtree(store)
    assert [line["agent"] for line in objects(capsys, "a.txt")["lines"]] == [None, None, None]
    assert objects(capsys, "a.txt")["contents_missing"] is True
    Path("a.txt").write_text("one\ntwo\n")
    assert [line["agent"] for line in objects(capsys, "a.txt")["lines"]] == ["scripted", "scripted"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["none.py"], "there is no file none.py"),
        (["."], ". is a folder"),
        (["/etc/passwd"], "/etc/passwd is not in"),
        (["blob.bin"], "blob.bin is binary"),
        (["--session", "nope"], "there is no session 'nope'"),
        (["calc.py", "--format", "xml"], "'xml' is not one of"),
    ],
)
def test_bad_input_is_refused_with_a_reason(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(*SOLVES)
    (root / "blob.bin").write_bytes(b"\0\1")
    assert called(words("fix the failing tests")) == 0
    capsys.readouterr()
    assert called(["blame", *given]) == 1
    assert said in capsys.readouterr().err


def test_a_deleted_file_says_who_deleted_it(capsys: pytest.CaptureFixture[str]) -> None:
    remove = '{ tool = "bash", arguments = { command = "rm calc.py" } }'
    project(f"calls = [{remove}]", 'text = "gone"')
    assert called(words("remove it", "--yolo", "--max-turns", "1")) == 3
    assert called(["blame", "calc.py"]) == 1
    assert (
        "there is no file calc.py: scripted deleted it in request 1, turn 1 of session"
        in capsys.readouterr().err
    )


def test_a_session_of_another_folder_is_sent_there(capsys: pytest.CaptureFixture[str]) -> None:
    root = project(*SOLVES)
    assert called(words("fix the failing tests")) == 0
    id = session_store.find_session(Config().data, root, "latest").stem
    other = root.parent / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=other, check=True)
    os.chdir(other)
    assert called(["blame"]) == 1
    assert "this folder has no session yet" in capsys.readouterr().err
    assert called(["blame", "--session", id]) == 1
    assert f"the session {id} worked in {root}, not in {other}" in capsys.readouterr().err
    (other / "calc.py").write_text(BROKEN)
    assert "no change that fugu recorded wrote a line of it" in blamed(capsys, "calc.py")
