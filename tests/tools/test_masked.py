"""Files that hold secrets, changed by an agent that was shown marks in their place."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fugu_cli.contents import diffs
from fugu_cli.masking import Mask
from fugu_cli.tools.search import ripgrep
from tests.tools.conftest import Build, use

FORM = "sk-abcdefghijklmnopqrstuvwx"


def test_a_file_with_secrets_keeps_them_when_an_agent_rewrites_it(plain: Build) -> None:
    content = f"# settings\nDB_PASSWORD='pa ss word'\nKEY={FORM}\nOTHER=1\n"
    workspace = plain({"settings.ini": content})
    shown = Mask({"DB_PASSWORD": "pa ss word"}).text(content)
    assert "pa ss word" not in shown and FORM not in shown
    assert use(workspace, "read", path="settings.ini").ok
    assert use(workspace, "write", path="settings.ini", content=shown.replace("OTHER=1", "OTHER=2")).ok
    assert (workspace.root / "settings.ini").read_text() == content.replace("OTHER=1", "OTHER=2")
    old = next(line for line in shown.splitlines() if line.startswith("KEY="))
    assert use(workspace, "edit", path="settings.ini", old=old, new=f"{old}\nNEW=1").ok
    assert f"KEY={FORM}\nNEW=1\n" in (workspace.root / "settings.ini").read_text()


def test_diffs_for_people_and_files_hold_no_secret(repo: Build) -> None:
    workspace = repo({"settings.ini": f"KEY={FORM}\n"})
    workspace.mask = Mask({}).text
    before = asyncio.run(workspace.snapshot()) or ""
    (workspace.root / "settings.ini").write_text(f"KEY={FORM}\nOTHER=1\n")
    after = asyncio.run(workspace.snapshot()) or ""
    patch = asyncio.run(workspace.patch(before, after)).decode()
    made = "".join(asyncio.run(diffs(workspace, asyncio.run(workspace.diff(before, after)))).values())
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


@pytest.mark.parametrize("before", range(3950, 3990, 3))
def test_a_secret_that_a_cut_takes_apart_is_taken_out_before(plain: Build, before: int) -> None:
    workspace = plain({"said": f"{'a' * before}hunter2verylongvalue99{'b' * 9000}"})
    workspace.mask = Mask({"SECRET_KEY": "hunter2verylongvalue99"}).text
    told = use(workspace, "bash", command="cat said").text
    assert "hunter2" not in told and "left out" in told
