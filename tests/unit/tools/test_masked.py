"""Secrets in diffs and in what tools cut short."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from fugu_cli.safety.redaction import MARK_LENGTH, Redactor, mark_for
from fugu_cli.tools.diff import change_diffs
from fugu_cli.tools.result import COMMAND_LIMIT, truncate, truncate_line, truncate_start
from fugu_cli.tools.search import ripgrep
from fugu_cli.tools.shell_commands import CommandOutput
from tests.unit.conftest import Build, use

FORM = "sk-abcdefghijklmnopqrstuvwx"


def test_diffs_for_people_and_files_hold_no_secret(repo: Build) -> None:
    workspace = repo({"settings.ini": f"KEY={FORM}\n"})
    workspace.mask = Redactor({}).text
    before = asyncio.run(workspace.history.snapshot()) or ""
    (workspace.root / "settings.ini").write_text(f"KEY={FORM}\nOTHER=1\n")
    after = asyncio.run(workspace.history.snapshot()) or ""
    patch = asyncio.run(workspace.patch(before, after)).decode()
    made = "".join(
        asyncio.run(
            change_diffs(
                workspace, asyncio.run(workspace.history.effects_between(before, after)).changes
            )
        ).values()
    )
    for text in (patch, made):
        assert FORM not in text and "+OTHER=1" in text and "[secret " in text


def test_a_program_that_lies_in_the_repository_is_not_what_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "rg").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert ripgrep(tmp_path) != str(tmp_path / "bin" / "rg")


@pytest.mark.parametrize("before", range(COMMAND_LIMIT // 2 - 50, COMMAND_LIMIT // 2, 3))
def test_a_secret_that_a_cut_takes_apart_is_taken_out_before(plain: Build, before: int) -> None:
    workspace = plain({"said": f"{'a' * before}hunter2verylongvalue99{'b' * COMMAND_LIMIT}"})
    workspace.mask = Redactor({"SECRET_KEY": "hunter2verylongvalue99"}).text
    told = use(workspace, "bash", command="cat said").text
    assert "hunter2" not in told and "left out" in told


@pytest.mark.parametrize("before", [1990, 1995, 2000])
def test_a_secret_where_a_long_line_is_cut_is_taken_out_before(plain: Build, before: int) -> None:
    secret = "hunter2verylongvalue99"
    workspace = plain({"long": f"{'a' * before} {secret}{'b' * 900}"})
    workspace.mask = Redactor({"SECRET_KEY": secret}).text
    shown = use(workspace, "read", path="long").text
    assert "hunter2" not in shown
    assert re.search(r"a( \[secret \w{4}\])? ?(b*) \[\.\.\. [\d,]+ characters more\]$", shown)


@pytest.mark.parametrize("before", [270, 290, 299])
def test_a_secret_where_a_found_line_is_cut_is_taken_out_before(plain: Build, before: int) -> None:
    secret = "hunter2verylongvalue99"
    workspace = plain({"long": f"found {'a' * before} {secret}{'b' * 900}\n"})
    workspace.mask = Redactor({"SECRET_KEY": secret}).text
    assert "hunter2" not in use(workspace, "grep", pattern="found").text


@pytest.mark.parametrize("pattern", ["found", "verylong"])
@pytest.mark.parametrize("between", range(70, 215, 4))
def test_a_secret_beside_a_match_far_inside_a_line_is_taken_out_before(
    plain: Build, pattern: str, between: int
) -> None:
    secret = "hunter2verylongvalue99"
    around = f"{secret}{'a' * between} found {'b' * between}{secret}"
    workspace = plain({"long": f"{'x' * 3000}{around}{'y' * 3000}\n"})
    workspace.mask = Redactor({"SECRET_KEY": secret}).text
    shown = use(workspace, "grep", pattern=pattern).text
    assert not any(part in shown for part in ("hunter2", "value99", "very")), shown
    assert ("found" in shown) is (pattern == "found")


def test_no_cut_tears_a_mark() -> None:
    own = mark_for("x")
    for before in range(60):
        text = "a" * before + own + "b" * 100
        for made in (truncate(text, 90), truncate_start(text, 90), truncate_line(text, 60)):
            left = made.replace(own, "")
            assert not re.search(r"secret|\[s|\w{4}\]b", left), made
    assert len(own) == MARK_LENGTH


def test_half_a_word_that_a_running_job_has_printed_waits_for_its_end() -> None:
    output = CommandOutput(lambda text: None)
    output.take(b"one\nthe token is hunter2very")
    assert output.take_new(over=False) == "one\nthe token is "
    output.take(b"longvalue99\nGo on? ")
    assert output.take_new(over=False) == "hunter2verylongvalue99\nGo on? "
    output.take(b"yes")
    assert output.take_new(over=True) == "yes"
