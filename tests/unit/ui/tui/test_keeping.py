import asyncio
import os
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from fugu_cli.app.preferences import InputHistory, Preferences, PreferencesFile
from fugu_cli.tools.mentions import mentioned
from fugu_cli.ui.tui.project_folder import FolderFiles, git_branch, list_files, mention, short_path
from fugu_cli.ui.tui.screen_feed import notification_sequence
from fugu_cli.ui.tui.user_programs import edit_text, run_editor


def test_how_the_screen_was_left_is_remembered(tmp_path: Path) -> None:
    PreferencesFile(tmp_path / "state").keep(theme="light", panel=True)
    PreferencesFile(tmp_path / "state").keep(panel_width=60, notify=True)
    left = Preferences(theme="light", panel=True, panel_width=60, notify=True)
    assert PreferencesFile(tmp_path / "state").current == left


def test_a_broken_file_counts_as_none(tmp_path: Path) -> None:
    for text in ("", "[]", "{", '{"theme": 3, "panel": "yes", "panel_width": null, "unknown": 1}'):
        (tmp_path / "screen.json").write_text(text)
        assert PreferencesFile(tmp_path).current == Preferences()
    assert PreferencesFile(tmp_path / "nowhere").current == Preferences()


def test_the_history_walks_back_and_forth_and_returns_to_the_draft(tmp_path: Path) -> None:
    history = InputHistory(tmp_path)
    for text in ("one", "two\nlines", "two\nlines", "three"):
        history.add(text)
    again = InputHistory(tmp_path)
    again.load()
    assert again.texts == ["one", "two\nlines", "three"]
    shown, walked = "draft", []
    for by in (-1, -1, -1, -1, 1, 1, 1, 1):
        found = again.walk(by, shown)
        walked.append(found)
        shown = found if found is not None else shown
    assert walked == ["three", "two\nlines", "one", None, "two\nlines", "three", "draft", None]


def test_lines_of_the_history_that_are_none_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('"one"\nnot json\n{"a": 1}\n"two"\n')
    history = InputHistory(tmp_path)
    history.load()
    assert history.texts == ["one", "two"]


def test_files_are_found_by_name_before_path_before_letters(tmp_path: Path) -> None:
    for name in (
        "src/model.py",
        "src/deep/remodel.py",
        "model/other.py",
        "m_o_d_e_l.txt",
        "unrelated.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    files = FolderFiles(tmp_path)
    files.refresh()
    assert files.search("model") == [
        "src/model.py",
        "src/deep/remodel.py",
        "model/other.py",
        "m_o_d_e_l.txt",
    ]
    assert files.search("MODEL.PY", most=1) == ["src/model.py"]
    assert files.search("model", superseded=lambda: True) == []


def test_a_name_that_nearly_fits_in_many_ways_takes_no_time(tmp_path: Path) -> None:
    (tmp_path / ("e" * 60)).touch()
    files = FolderFiles(tmp_path)
    files.refresh()
    assert (files.search("e" * 25 + "z"), files.search("e" * 25)) == ([], ["e" * 60])


def test_ignored_files_are_not_offered_and_hidden_ones_are(project: Path) -> None:
    (project / ".gitignore").write_text("out/\n")
    (project / "out").mkdir()
    (project / "out" / "big.bin").write_text("")
    (project / ".github").mkdir()
    (project / ".github" / "ci.yml").write_text("")
    assert sorted(list_files(project)) == [".github/ci.yml", ".gitignore", "kept.txt"]


def test_a_configuration_of_ripgrep_in_the_folder_starts_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = project / "evil.sh"
    program.write_text(f"#!/bin/sh\ntouch {project}/ran\n")
    program.chmod(0o755)
    (project / ".ripgreprc").write_text(
        f"--hostname-bin={program}\n--hyperlink-format=default\n--color=always\n"
    )
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", ".ripgreprc")
    list_files(project)
    assert not (project / "ran").exists()


def test_names_that_no_text_can_mention_are_not_offered(project: Path) -> None:
    names = ['a"b', "a b", 'a "b', '"a', "a\nb", "a\x1bb", "a\udcffb", "a(1)."]
    for name in names:
        (project / name).touch()
    files = FolderFiles(project)
    files.refresh()
    offered = [name for name in files.search("") if name != "kept.txt"]
    assert sorted(offered) == ["a b", 'a"b', "a(1)."]
    assert {name: mentioned(project, f"see {mention(name)} now") for name in offered} == {
        name: (name,) for name in offered
    }


def test_a_hundred_thousand_files_are_searched_in_slices(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    files._paths = [f"folder{number % 97}/file{number}.py" for number in range(100_000)]
    files._lowered = files._paths
    asked = 0

    def superseded() -> bool:
        nonlocal asked
        asked += 1
        return False

    assert files.search("file99999", superseded=superseded) == ["folder89/file99999.py"]
    assert asked == 25


def test_the_branch_is_read_from_files(project: Path, tmp_path: Path) -> None:
    assert (git_branch(project), git_branch(project / "sub"), short_path(project)) == (
        "main",
        "main",
        "~/project",
    )
    (project / ".git" / "HEAD").write_text("0123456789abcdef0123456789abcdef01234567\n")
    assert git_branch(project) == "01234567"
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {project / '.git'}\n")
    assert git_branch(tree) == "01234567"


def test_a_notification_is_one_sequence_without_controls() -> None:
    assert notification_sequence("done\x1b]\x07", tmux=False) == "\x1b]9;done]\x07"
    assert notification_sequence("done", tmux=True) == "\x1bPtmux;\x1b\x1b]9;done\x07\x1b\\"


class Suspends:
    """A terminal that can be given away."""

    def suspend(self):  # type: ignore[no-untyped-def]
        return nullcontext()

    def batch_update(self):  # type: ignore[no-untyped-def]
        return nullcontext()


def test_the_editor_gets_the_text_and_gives_it_back(tmp_path: Path) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nprintf "%s and more\\n\\n" "$(cat "$2")" > "$2"\n')
    editor.chmod(0o755)
    os.environ["EDITOR"] = f"{editor} --wait"
    run = partial(run_editor, Suspends())
    assert asyncio.run(edit_text("a request", run)) == "a request and more"
    os.environ["VISUAL"] = "/nowhere/at/all"
    assert asyncio.run(edit_text("a request", run)) is None
    del os.environ["EDITOR"], os.environ["VISUAL"]


def test_the_list_of_files_is_made_again_when_it_is_old(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    (tmp_path / "a").write_text("")
    files.refresh()
    (tmp_path / "b").write_text("")
    files.refresh()
    assert files.search("") == ["a"]
    files._at = time.monotonic() - 60
    files.refresh()
    assert files.search("") == ["a", "b"]
