"""Sessions that version 0.1.0 wrote are shown, blamed, undone and gone on with as by that version.

Ten were recorded with all kinds of events: tests/recorded/README.md says how.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.config.loader import load_config
from fugu_cli.session import log, store
from fugu_cli.session.events import Finished, Opened

RECORDED = Path(__file__).parents[1] / "recorded" / "sessions-0.1.0"
EXPECTED = json.loads((RECORDED / "expected.json").read_text(encoding="utf-8"))
UNFINISHED = ("interrupted", "killed")
CONFIGURATION = """
coordinator = "single:answering"
permission_mode = "yolo"
[[agents]]
name = "answering"
provider = "scripted"
model = "{script}"
slot = "strong"
"""


def placed(tmp_path: Path, name: str) -> Path:
    """A recorded session where a session of its repository has its place; the repository is the
    current folder.
    """
    with tarfile.open(RECORDED / f"{name}.tar.xz") as archive:
        # 3.11.0 to 3.11.3 have no filters, later versions warn without one
        filters = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
        archive.extractall(tmp_path, **filters)
    root = (tmp_path / "repository").resolve()
    os.chdir(root)
    script = tmp_path / "script.toml"
    script.write_text(9 * '[[step]]\ntext = "ACCEPT There is no more to do."\n')
    (Path.home() / ".fugurc").write_text(CONFIGURATION.format(script=script))
    path = store.new_path(load_config(root, {}, {}).config.data, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (RECORDED / f"{name}.jsonl").read_text(encoding="utf-8")
    path.write_text(lines.replace("/repository", str(root)), encoding="utf-8")
    snapshots = path.parents[2] / "snapshots" / path.parent.name
    if (tmp_path / "snapshots").is_dir():  # nothing was changed without one
        snapshots.parent.mkdir()
        (tmp_path / "snapshots").rename(snapshots)
    return path


def files(root: Path) -> dict[str, str]:
    """Everything in a repository by name: where links lead, and short digests of files."""
    contents = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name.split("/")[0] == ".git":
            continue
        if path.is_symlink():
            contents[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            contents[name] = "folder"
        else:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
            contents[name] = f"x {digest}" if path.stat().st_mode & 0o111 else digest
    return contents


@pytest.mark.parametrize("name", EXPECTED)
def test_a_session_of_0_1_0_is_shown_blamed_and_undone(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = placed(tmp_path, name)
    before = path.read_bytes()
    assert called(["trace", "latest"]) == 0
    assert path.stem in capsys.readouterr().out
    assert called(["blame", "--format", "json"]) == 0
    blamed = [
        [file["path"], *(line[key] for key in ("kind", "line", "text", "agent", "turn"))]
        for file in json.loads(capsys.readouterr().out)["files"]
        for line in file["lines"]
    ]
    assert blamed == EXPECTED[name]["blame"]
    assert called(["undo", "--yes"]) == 0
    assert files(Path.cwd()) == EXPECTED[name]["undone"]
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_session_of_0_1_0_goes_on(tmp_path: Path, name: str) -> None:
    path = placed(tmp_path, name)
    before = path.read_bytes()
    request = [] if name in UNFINISHED else ["what is left to do?"]
    assert called(["run", "--resume", path.stem, *request]) == 0
    assert path.read_bytes().startswith(before)
    events = [record.event for record in log.read(path)]
    assert isinstance(events[-1], Finished)
    formats = [event.format for event in events if isinstance(event, Opened)]
    assert formats == [0, 1]


def test_the_recorded_sessions_hold_every_event_of_0_1_0() -> None:
    texts = [(RECORDED / f"{name}.jsonl").read_text(encoding="utf-8") for name in EXPECTED]
    events = [json.loads(line)["event"] for text in texts for line in text.splitlines()]
    assert {event["type"] for event in events} == {
        "opened", "asked", "planned", "assigned", "replied", "permitted", "tool_ran", "job_ended",
        "merged", "masked", "failed", "compacted", "interrupted", "undone", "finished",
    }  # fmt: skip


def test_a_session_of_an_earlier_form_is_refused_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = placed(tmp_path, "accepted")
    path.write_text(path.read_text().replace(',"plan_mode":false', ""))
    before = path.read_bytes()
    for arguments in (["trace", "latest"], ["run", "--continue"], ["undo", "--yes"]):
        assert called(arguments) != 0
        error = capsys.readouterr().err
        assert "was written by an early fugu, whose sessions are no longer read" in error
        assert "Traceback" not in error
    assert path.read_bytes() == before


@pytest.mark.parametrize("pool", ["5", "[5]", '{"name": 5}', "null"])
def test_a_damaged_line_of_a_session_of_0_1_0_is_a_fault(tmp_path: Path, pool: str) -> None:
    event = f'{{"type":"opened","version":"0.1.0","repo":"/r","pool":{pool}}}'
    path = tmp_path / "session.jsonl"
    path.write_text(f'{{"seq":0,"at":1.0,"event":{event}}}\n')
    fault = log.examine(path).fault
    assert fault is not None and fault.line == 1 and not fault.earlier
