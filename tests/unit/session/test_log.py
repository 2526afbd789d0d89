import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli import __version__
from fugu_cli.errors import SessionBusy, StorageError
from fugu_cli.session import log as logs
from fugu_cli.session.events import Asked, Event, Finished, Opened, Recorded, Replied
from fugu_cli.session.live_events import Live, TextStreamed
from fugu_cli.session.log import Log

OPENED = Opened(version="1", repo="/repo")


def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "s.jsonl")
    for event in (OPENED, Asked(text="fix ✓"), Finished(reason="accepted")):
        log.append(event)
    log.close()
    again = Log.open(tmp_path / "s.jsonl")
    assert list(again.events) == [OPENED, Asked(text="fix ✓"), Finished(reason="accepted")]
    assert [record.seq for record in again.records] == [0, 1, 2]
    again.close()


def test_a_session_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    Log.create(tmp_path / "s.jsonl").close()
    assert (tmp_path / "s.jsonl").stat().st_mode & 0o777 == 0o600


@given(torn=st.binary(max_size=40).filter(lambda data: b"\n" not in data))
def test_a_torn_last_line_is_cut_and_nothing_else(
    torn: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("torn") / "s.jsonl"
    log = Log.create(path)
    log.append(OPENED)
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert [record.event for record in logs.read(path)] == [OPENED]
    reopened = Log.open(path)
    reopened.append(Asked(text="go on"))
    reopened.close()
    assert path.read_bytes().startswith(whole)
    assert [record.event for record in logs.read(path)] == [OPENED, Asked(text="go on")]


def test_a_second_writer_is_told_who_is_in_the_way(tmp_path: Path) -> None:
    first = Log.create(tmp_path / "s.jsonl")
    script = (
        f"from pathlib import Path; from fugu_cli.session.log import Log; "
        f"Log.open(Path({str(tmp_path / 's.jsonl')!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "SessionBusy" in done.stderr
    first.close()
    Log.open(tmp_path / "s.jsonl").close()


def test_a_line_that_is_not_one_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    Log.create(path).close()
    path.write_bytes(b'{"seq":0}\n')
    with pytest.raises(StorageError, match="line 1"):
        Log.open(path)
    assert path.read_bytes() == b'{"seq":0}\n'
    with pytest.raises(StorageError):
        logs.read(tmp_path / "none.jsonl")


@pytest.mark.parametrize("foreign", [b"hello", b'{"a": 1}', b"\0" * 20])
def test_a_file_of_somebody_elses_that_is_one_line_without_an_end_is_not_cut(
    foreign: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(foreign)
    with pytest.raises(StorageError, match="line 1 is not a session's line"):
        Log.open(path)
    assert path.read_bytes() == foreign


def test_a_first_line_that_was_cut_off_anywhere_leaves_an_empty_session(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    log = Log.create(path)
    log.append(OPENED)
    log.close()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        Log.open(path).close()
        assert path.read_bytes() == b""


def test_creating_over_an_existing_session_is_refused(tmp_path: Path) -> None:
    Log.create(tmp_path / "s.jsonl").close()
    with pytest.raises(StorageError):
        Log.create(tmp_path / "s.jsonl")


def test_a_writer_killed_at_any_moment_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    script = textwrap.dedent(f"""
        from pathlib import Path
        from fugu_cli.session.events import Asked
        from fugu_cli.session.log import Log
        log = Log.create(Path({str(path)!r}))
        while True:
            log.append(Asked(text="x" * 5000))
            print(len(log.events), flush=True)
    """)
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    told = [int(child.stdout.readline()) for _ in range(5)]
    os.kill(child.pid, signal.SIGKILL)
    told += [int(line) for line in child.stdout]
    child.wait()
    child.stdout.close()
    log = Log.open(path)
    assert len(log.events) >= told[-1], "whatever was told had been written"
    log.close()


def test_readers_get_what_was_then_what_comes_and_live_events_are_not_written() -> None:
    async def scenario() -> tuple[list[Recorded | Live], int]:
        log = Log.memory([OPENED])
        seen: list[Recorded | Live] = []

        async def read() -> None:
            async for item in log.follow():
                seen.append(item)

        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        log.append(Asked(text="a"))
        log.tell(TextStreamed(turn=1, agent="a", text="hm"))
        log.append(Finished(reason="answered"))
        log.close()
        await reader
        return seen, len(log.events)

    seen, written = asyncio.run(scenario())
    kinds = [item.event.type if isinstance(item, Recorded) else item.type for item in seen]
    assert kinds == ["opened", "asked", "said", "finished"]
    assert written == 3


def test_a_full_disk_is_a_storage_error_and_the_file_keeps_its_whole_lines(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import resource
        from pathlib import Path
        from fugu_cli.errors import StorageError
        from fugu_cli.session.events import Asked
        from fugu_cli.session.log import Log
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        log = Log.create(Path({str(tmp_path / "s.jsonl")!r}))
        log.append(Asked(text="first"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
        try:
            log.append(Asked(text="x" * 1000))
        except StorageError as error:
            print(error, error.hint)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "cannot write the session" in done.stdout
    assert [record.event for record in logs.read(tmp_path / "s.jsonl")] == [Asked(text="first")]


def test_what_can_be_written_again_after_the_disk_was_full_is_written(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import contextlib
        import resource
        from pathlib import Path
        from fugu_cli.errors import StorageError
        from fugu_cli.session.events import Asked
        from fugu_cli.session.log import Log
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        log = Log.create(Path({str(tmp_path / "s.jsonl")!r}))
        log.append(Asked(text="first"))
        no_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, no_limit[1]))
        for text in ("x" * 1000, "y" * 2000, "second"):
            with contextlib.suppress(StorageError):
                log.append(Asked(text=text))
        resource.setrlimit(resource.RLIMIT_FSIZE, no_limit)
        log.append(Asked(text="z" * 1000))
        print([event.text[:6] for event in log.events])
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['first', 'second', 'zzzzzz']\n"
    kept = logs.read(tmp_path / "s.jsonl")
    assert [(record.seq, record.event) for record in kept] == [
        (0, Asked(text="first")),
        (1, Asked(text="second")),
        (2, Asked(text="z" * 1000)),
    ]


def test_what_a_killed_process_still_holds_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    Log.create(tmp_path / "s.jsonl").close()
    before = Log.open(tmp_path / "s.jsonl")
    before.append(Asked(text="the last word"))
    threading.Timer(0.2, before.close).start()
    after = Log.open(tmp_path / "s.jsonl")
    assert after.events == [Asked(text="the last word")]
    after.close()


def test_session_busy_is_an_infrastructure_failure() -> None:
    assert SessionBusy("x").exit_code == 2


def test_text_that_is_no_unicode_is_recorded_as_near_as_can_be(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "s.jsonl")
    log.append(
        Asked(
            text="halves \ud83d\ude00, one half \ud83d, a byte \udce9",
            attachments=("caf\udce9.py",),
        )
    )
    expected = Asked(
        text="halves 😀, one half \ufffd, a byte \ufffd", attachments=("caf\ufffd.py",)
    )
    assert list(log.events) == [expected]
    log.close()
    assert [record.event for record in logs.read(tmp_path / "s.jsonl")] == [expected]


FACTS = (
    OPENED,
    Asked(text="fix ✓"),
    Replied(turn=1, agent="a", text="done"),
    Finished(reason="accepted"),
)


def written(path: Path, *facts: Event) -> list[bytes]:
    """A session of these facts; its lines."""
    log = Log.create(path)
    for fact in facts or FACTS:
        log.append(fact)
    log.close()
    return path.read_bytes().splitlines(keepends=True)


DAMAGES = {
    "a line that is no JSON": lambda lines: [*lines[:2], b"garbage\n", *lines[3:]],
    "a line cut in the middle": lambda lines: [*lines[:2], lines[2][:40] + b"\n", *lines[3:]],
    "two lines run together": lambda lines: [*lines[:2], lines[2][:-1], *lines[3:]],
    "a block of zeros": lambda lines: [*lines[:2], b"\0" * len(lines[2]), *lines[3:]],
    "bytes that are no UTF-8": lambda lines: [
        *lines[:2],
        lines[2].replace(b"done", b"d\xff\xfee"),
        *lines[3:],
    ],
    "an empty line": lambda lines: [*lines[:2], b"\n", *lines[2:]],
    "a line that is gone": lambda lines: [*lines[:2], *lines[3:]],
    "a line that stands twice": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "a fact that is not known": lambda lines: [
        *lines[:2],
        lines[2].replace(b'"replied"', b'"dreamt"'),
        *lines[3:],
    ],
    "a field that is not known": lambda lines: [
        *lines[:2],
        lines[2].replace(b'"turn"', b'"twist"'),
        *lines[3:],
    ],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_session_is_read_up_to_its_fault_and_not_written(
    damage: str, tmp_path: Path
) -> None:
    path = tmp_path / "20260101-000000-aaaa.jsonl"
    lines = written(path)
    path.write_bytes(b"".join(DAMAGES[damage](lines)))
    before = path.read_bytes()
    found = logs.examine(path)
    assert [record.event for record in found.records] == list(FACTS[:2])
    assert found.size == len(lines[0] + lines[1])
    assert found.fault is not None and (found.fault.line, found.fault.newer) == (3, "")
    for opening in (Log.open, logs.read):
        with pytest.raises(StorageError, match="is damaged at line 3: ") as raised:
            opening(path)
        assert "`fugu sessions repair 20260101-000000-aaaa`" in raised.value.hint
    assert path.read_bytes() == before


@given(at=st.integers(0, 10_000), put=st.binary(max_size=3), lost=st.integers(0, 3))
def test_whatever_bytes_are_changed_what_stood_before_is_read(
    at: int, put: bytes, lost: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("changed") / "s.jsonl"
    lines = written(path)
    data = b"".join(lines)
    at %= len(data)
    path.write_bytes(changed := data[:at] + put + data[at + lost :])
    found = logs.examine(path)
    whole = data[:at].count(b"\n")
    assert [record.event for record in found.records[:whole]] == list(FACTS[:whole])
    assert changed[: found.size].count(b"\n") == len(found.records)
    if found.fault is not None:
        with pytest.raises(StorageError):
            Log.open(path)
        assert path.read_bytes() == changed


NEWER = "999.0.0"


@pytest.mark.parametrize("known", [True, False])
def test_a_session_of_a_newer_fugu_is_refused(known: bool, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    lines = written(path, Opened(version=NEWER, repo="/repo"), Asked(text="fix"))
    if not known:
        path.write_bytes(lines[0].replace(b'"repo"', b'"home"') + lines[1])
    before = path.read_bytes()
    for opening in (Log.open, logs.read):
        with pytest.raises(
            StorageError, match=f"was written by fugu {NEWER}; this is fugu {__version__}"
        ):
            opening(path)
    assert path.read_bytes() == before


def test_a_session_that_a_newer_fugu_went_on_with_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "s.jsonl", *FACTS, Opened(version=NEWER, repo="/repo"), Asked(text="more"))
    with pytest.raises(StorageError, match="written by fugu 999"):
        Log.open(tmp_path / "s.jsonl")


@pytest.mark.parametrize("version", ["0.0.9", __version__, "1", "demo", ""])
def test_a_session_of_this_fugu_or_an_older_one_is_opened(version: str, tmp_path: Path) -> None:
    written(tmp_path / "s.jsonl", Opened(version=version, repo="/repo"))
    log = Log.open(tmp_path / "s.jsonl")
    assert log.events == [Opened(version=version, repo="/repo")]
    log.close()


def test_events_that_were_read_share_the_names_of_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    log = Log.create(path)
    for text in ("one", "two"):
        log.append(Asked(text=text))
    written = log.events
    log.close()
    events = [record.event for record in logs.read(path)]
    assert events == list(written)
    first, second = events
    assert first.model_fields_set is second.model_fields_set, "a set each is half of the memory"
    copy = first.model_copy(update={"text": "three"})
    assert copy.model_fields_set is not first.model_fields_set
