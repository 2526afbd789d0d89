import os
import time
from pathlib import Path

import pytest

from fugu_cli.errors import StorageError, UsageError
from fugu_cli.messages import Call
from fugu_cli.session import log as logs
from fugu_cli.session import store
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Finished,
    Interrupted,
    Opened,
    Permitted,
    Replied,
)
from fugu_cli.session.log import Log


def make(data: Path, root: Path, id: str, *, text: str = "fix it") -> Path:
    path = store.session_folder(data, root) / f"{id}.jsonl"
    log = Log.create(path)
    for event in (
        Opened(version="1", repo=str(root)),
        Asked(text=text),
        Finished(reason="accepted"),
    ):
        log.append(event)
    log.close()
    return path


def test_sessions_are_found_by_id_beginning_and_latest(tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "a repo"
    first, second = (
        make(data, root, "20260101-000000-aaaa"),
        make(data, root, "20260102-000000-bbbb"),
    )
    assert store.find_session(data, root, "latest") == second
    assert store.find_session(data, root, "20260101") == first
    assert store.find_session(data, root, second.stem) == second
    assert store.find_session(data, tmp_path / "other", "20260102") == second
    assert store.find_session(data, root, str(first)) == first
    with pytest.raises(UsageError, match="2 sessions"):
        store.find_session(data, root, "2026")
    for nobody in ("1999", ""):
        with pytest.raises(UsageError, match="no session"):
            store.find_session(data, root, nobody)
    with pytest.raises(UsageError, match="no session yet"):
        store.find_session(data, tmp_path / "other", "latest")


def test_what_is_no_file_any_more_is_no_session(tmp_path: Path) -> None:
    one = make(tmp_path, tmp_path, "20260101-000000-aaaa")
    (one.parent / "20260102-000000-bbbb.jsonl").symlink_to(tmp_path / "deleted")
    (one.parent / "20260103-000000-cccc.jsonl").mkdir()
    os.utime(one, (0, 0))
    assert store.session_paths(tmp_path) == [one]
    assert store.find_session(tmp_path, tmp_path, "latest") == one
    with pytest.raises(UsageError, match="there is no session"):
        store.find_session(tmp_path, tmp_path, "a" * 5000 + ".jsonl")


def test_a_session_in_which_nothing_was_asked_is_the_latest_only_where_there_is_no_other(
    tmp_path: Path,
) -> None:
    root = tmp_path / "repo"
    log = Log.create(store.session_folder(tmp_path, root) / "20260103-000000-cccc.jsonl")
    log.append(Opened(version="1", repo=str(root)))
    log.close()
    assert log.path is not None
    assert store.find_session(tmp_path, root, "latest") == log.path
    assert store.session_summaries([log.path]) == []
    asked = make(tmp_path, root, "20260101-000000-aaaa")
    os.utime(log.path, (time.time() + 5, time.time() + 5))
    assert store.find_session(tmp_path, root, "latest") == asked
    assert store.find_session(tmp_path, root, "20260103") == log.path
    assert [one.path for one in store.session_summaries(store.session_paths(tmp_path, root))] == [
        asked
    ]


def test_two_repositories_of_one_name_do_not_share_sessions(tmp_path: Path) -> None:
    assert store.session_folder(tmp_path, Path("/a/x")) != store.session_folder(
        tmp_path, Path("/b/x")
    )


def test_a_summary_says_what_a_list_shows(tmp_path: Path) -> None:
    path = make(tmp_path, tmp_path / "r", "20260101-000000-aaaa", text="fix it\nplease")
    found = store.session_summary(path)
    assert found is not None
    assert (found.id, found.title, found.requests, found.state) == (
        "20260101-000000-aaaa",
        "fix it",
        1,
        "accepted",
    )
    path.write_bytes(b"")
    assert store.session_summary(path) is None


def test_recent_sessions_are_read_from_the_ends_of_their_files(tmp_path: Path) -> None:
    ids = [f"20260101-00000{number}-aaaa" for number in range(4)]
    renamed, ended, running, broken = (make(tmp_path, tmp_path, id) for id in ids)
    store.rename_session(renamed, "mine")
    long_reply = Replied(turn=1, agent="a", text="x" * 1000)
    for path, events in ((ended, [Finished(reason="answered")]), (running, [])):
        log = Log.open(path)
        for event in [Asked(text="again"), *[long_reply] * 600, *events]:
            log.append(event)
        log.close()
    damage(ended, 300)
    damage(broken, 1)
    recent = store.recent_sessions((renamed, ended, running, broken), 4)
    titles = [(session.title, session.ended) for session in recent]
    assert titles == [("mine", "accepted"), ("fix it", "done"), ("fix it", "")]
    assert store.recent_sessions((renamed, ended), 1) == recent[:1]


def test_a_fork_is_a_copy_of_the_whole_lines(tmp_path: Path) -> None:
    path = make(tmp_path, tmp_path / "r", "20260101-000000-aaaa")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"torn')
    copy = store.fork_session(tmp_path, tmp_path / "r", path)
    assert copy.read_bytes() == whole
    assert copy.stat().st_mode & 0o777 == 0o600


def damage(path: Path, line: int) -> bytes:
    """Spoil a line, counted from 1; the bytes before it."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[: line - 1], b"garbage\n", *lines[line:]]))
    return b"".join(lines[: line - 1])


@pytest.mark.parametrize("line", [1, 2, 3])
def test_a_damaged_session_is_listed_as_such(line: int, tmp_path: Path) -> None:
    path = make(tmp_path, tmp_path / "r", "20260101-000000-aaaa")
    damage(path, line)
    (found,) = store.session_summaries([path])
    assert (found.id, found.state) == ("20260101-000000-aaaa", "damaged")
    assert (found.title, found.requests) == (("fix it", 1) if line == 3 else ("", 0))
    assert store.find_session(tmp_path, tmp_path / "r", "latest") == path


def test_a_repaired_session_is_a_copy_up_to_the_fault_beside_the_damaged_one(
    tmp_path: Path,
) -> None:
    path = make(tmp_path, tmp_path / "r", "20260101-000000-aaaa")
    kept = damage(path, 3)
    before = path.read_bytes()
    copy, fault = store.repair_session(tmp_path, tmp_path / "elsewhere", path)
    assert (copy.parent, copy.read_bytes(), fault.line) == (path.parent, kept, 3)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == before
    Log.open(copy).close()
    assert sorted(one.state for one in store.session_summaries(store.session_paths(tmp_path))) == [
        "damaged",
        "unfinished",
    ]


def test_only_damage_is_repaired_and_only_where_something_is_left(tmp_path: Path) -> None:
    path = make(tmp_path, tmp_path / "r", "20260101-000000-aaaa")
    with pytest.raises(UsageError, match="is not damaged"):
        store.repair_session(tmp_path, tmp_path, path)
    damage(path, 1)
    with pytest.raises(StorageError, match="line 1 is not a session's line"):
        store.repair_session(tmp_path, tmp_path, path)
    newer = Log.create(path.parent / "20260102-000000-bbbb.jsonl")
    newer.append(Opened(version="999.0.0", repo="/r"))
    newer.close()
    assert newer.path is not None
    with pytest.raises(StorageError, match=r"written by fugu 999\.0\.0"):
        store.repair_session(tmp_path, tmp_path, newer.path)
    (listed,) = store.session_summaries([newer.path])
    assert listed.state == "newer fugu"
    assert len(store.session_paths(tmp_path)) == 2


def test_calls_that_may_have_run_behind_the_fault_are_not_open_in_the_copy(tmp_path: Path) -> None:
    path = store.session_folder(tmp_path, tmp_path) / "20260101-000000-aaaa.jsonl"
    log = Log.create(path)
    call = Call.make("1", "bash", command="make release")
    for event in (
        Opened(version="1", repo=str(tmp_path)),
        Asked(text="release it"),
        Assigned(turn=1, agent="a", role="worker", by="cascade"),
        Replied(turn=1, agent="a", calls=(call,), stop="calls"),
        Permitted(turn=1, call=call, allowed=True, by="user"),
    ):
        log.append(event)
    log.close()
    kept = damage(path, 5)
    copy, _ = store.repair_session(tmp_path, tmp_path, path)
    assert copy.read_bytes().startswith(kept)
    *_, last = logs.read(copy)
    assert last.event == Interrupted(turn=1, reason="the session's file was damaged here")
    assert last.at == logs.read(copy)[-2].at, "what was written to files since may be the user's"


def test_a_damaged_session_is_not_forked(tmp_path: Path) -> None:
    path = make(tmp_path, tmp_path / "r", "20260101-000000-aaaa")
    damage(path, 3)
    with pytest.raises(StorageError, match="damaged at line 3"):
        store.fork_session(tmp_path, tmp_path / "r", path)
    assert store.session_paths(tmp_path) == [path]


def test_an_archived_session_is_in_no_list_and_is_found_by_its_id(tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "repo"
    path, other = make(data, root, "20260101-000000-aaaa"), make(data, root, "20260102-000000-bbbb")
    store.archive_session(path, archived=True)
    listed = store.session_paths(data, root)
    assert [one.path for one in store.session_summaries(listed)] == [other]
    assert [one.path for one in store.session_summaries(listed, archived=True)] == [path]
    assert store.find_session(data, root, "20260101") == path
    store.archive_session(path, archived=False)
    assert [one.path for one in store.session_summaries(listed)] == [other, path]


def test_a_deleted_session_leaves_nothing_behind_and_no_other_alone(tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "repo"
    path, other = make(data, root, "20260101-000000-aaaa"), make(data, root, "20260102-000000-bbbb")
    logs.media_folder(path).mkdir()
    (logs.media_folder(path) / "sha").write_bytes(b"picture")
    store.rename_session(path, "mine")
    store.rename_session(other, "another")
    store.archive_session(path, archived=True)
    held = Log.open(path)
    with pytest.raises(StorageError, match="open in another process"):
        store.delete_session(data, path)
    held.close()
    store.delete_session(data, path)
    assert [found.name for found in path.parent.iterdir() if path.stem in found.name] == []
    assert [one.title for one in store.session_summaries(store.session_paths(data, root))] == [
        "another"
    ]
    assert (
        path.stem
        not in (path.parent / store.TITLES).read_text() + (path.parent / store.ARCHIVED).read_text()
    )


def test_a_session_that_moves_keeps_its_title_and_stays_archived(tmp_path: Path) -> None:
    path = make(tmp_path, tmp_path / "copy", "20260101-000000-aaaa")
    store.rename_session(path, "mine")
    store.archive_session(path, archived=True)
    moved = store.move_session(tmp_path, tmp_path / "home", path)
    (summary,) = store.session_summaries([moved], archived=True)
    assert (summary.title, path.exists()) == ("mine", False)


@pytest.mark.parametrize("kept", ["{", '{"a": 1}', ""])
def test_a_file_of_archived_ids_that_says_nothing_hides_nothing(tmp_path: Path, kept: str) -> None:
    path = make(tmp_path, tmp_path / "repo", "20260101-000000-aaaa")
    (path.parent / store.ARCHIVED).write_text(kept)
    assert [one.path for one in store.session_summaries([path])] == [path]
    store.archive_session(path, archived=True)
    assert store.session_summaries([path]) == []
