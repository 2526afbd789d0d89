"""The real binary on session files that were damaged or come from elsewhere: shown, never written,
with a way on.
"""

import re
from pathlib import Path

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback
from tests.acceptance.test_run import ACCEPT, WORKS


def worked(place: Place, server: Loopback, name: str) -> Path:
    """A session that mended the tests; its file."""
    place.configure(Agent(name))
    server.play(name, *WORKS, ACCEPT)
    done = place.fugu("run", "fix the tests")
    assert done.code == 0, done.err
    return place.sessions()[-1]


def spoiled(path: Path, fact: str) -> tuple[int, bytes]:
    """The last line of such a fact is garbage: its number, and what stood before it."""
    lines = path.read_bytes().splitlines(keepends=True)
    at = max(place for place, line in enumerate(lines) if f'"type":"{fact}"'.encode() in line)
    path.write_bytes(b"".join([*lines[:at], b"\x00\xffgarbage\n", *lines[at + 1 :]]))
    return at + 1, b"".join(lines[:at])


def test_a_damaged_session_is_shown_up_to_its_fault_and_repaired_into_a_copy(
    place: Place, server: Loopback
) -> None:
    path = worked(place, server, "damaged")
    line, kept = spoiled(path, "finished")
    before = path.read_bytes()
    words = f"is damaged at line {line}: "
    listed = place.fugu("sessions")
    assert (listed.code, listed.out.count("\n")) == (0, 1)
    assert re.match(rf"{path.stem}  \S+ \S+  damaged +1 request +fix the tests\n", listed.out), (
        listed.out
    )
    assert "fugu sessions repair ID" in listed.err
    trace = place.fugu("trace")
    assert trace.code == 0
    assert "damaged" in trace.out and "worker" in trace.out
    assert words in trace.err
    for refused in (
        ("run", "--continue", "go on"),
        ("run", "--resume", path.stem),
        ("undo", "--yes"),
    ):
        done = place.fugu(*refused)
        assert (done.code, done.out) == (2, ""), done.err
        assert words in done.err and f"fugu sessions repair {path.stem}" in done.err
        assert "Traceback" not in done.err
    repaired = place.fugu("sessions", "repair", path.stem)
    assert repaired.code == 0, repaired.err
    copy = path.parent / f"{repaired.out.strip()}.jsonl"
    assert copy.read_bytes() == kept
    assert f"before line {line} of {path.stem}, which stays as it is" in repaired.err
    undone = place.fugu("undo", "--yes")
    assert undone.code == 0, undone.err
    assert (place.repo / "calc.txt").read_text() == "broken\n"
    server.play("damaged", *WORKS, ACCEPT)
    again = place.fugu("run", "--continue", "fix them again")
    assert again.code == 0, again.err
    assert (place.repo / "calc.txt").read_text() == "fixed\n"
    assert copy.read_bytes().startswith(kept)
    assert path.read_bytes() == before


def test_what_was_done_behind_the_fault_is_not_taken_back_unasked(
    place: Place, server: Loopback
) -> None:
    path = worked(place, server, "behind")
    lines = path.read_bytes().splitlines(keepends=True)
    wrote = next(
        at
        for at, line in enumerate(lines)
        if b'"tool":"write"' in line and b'"type":"replied"' in line
    )
    path.write_bytes(b"".join([*lines[:wrote], b"{}\n", *lines[wrote + 1 :]]))
    assert place.fugu("sessions", "repair", path.stem).code == 0
    undone = place.fugu("undo", "--yes")
    assert (undone.code, undone.out) == (
        0,
        "there is nothing to undo: the newest request changed no file\n",
    )
    assert (place.repo / "calc.txt").read_text() == "fixed\n"


def test_a_session_of_a_newer_fugu_is_refused_by_every_command(
    place: Place, server: Loopback
) -> None:
    path = worked(place, server, "newer")
    path.write_bytes(
        re.sub(rb'"version":"[^"]*"', b'"version":"999.1.0"', path.read_bytes(), count=1)
    )
    before = path.read_bytes()
    listed = place.fugu("sessions")
    assert (listed.code, "newer fugu" in listed.out) == (0, True)
    commands = (
        ("trace",),
        ("run", "--continue", "go on"),
        ("undo", "--yes"),
        ("sessions", "repair", path.stem),
    )
    for command in commands:
        done = place.fugu(*command)
        assert (done.code, done.out) == (2, "")
        assert "was written by fugu 999.1.0; this is fugu" in done.err and "update fugu" in done.err
    assert path.read_bytes() == before
    assert place.sessions() == [path]


def test_a_file_that_is_no_session_is_listed_named_and_left_alone(
    place: Place, server: Loopback
) -> None:
    path = worked(place, server, "foreign")
    foreign = path.parent / "20990101-000000-aaaa.jsonl"
    foreign.write_bytes(b'{"a": 1}\n{"b": 2}\n')
    listed = place.fugu("sessions")
    assert listed.code == 0
    assert (
        "20990101-000000-aaaa" in listed.out and "damaged" in listed.out and path.stem in listed.out
    )
    for command in (("trace",), ("undo", "--yes"), ("sessions", "repair", foreign.stem)):
        done = place.fugu(*command)
        assert done.code == 2
        assert "line 1 is not a session's line" in done.err
    assert foreign.read_bytes() == b'{"a": 1}\n{"b": 2}\n'
    foreign.unlink()


def test_two_words_are_not_searched_for_as_one(place: Place) -> None:
    done = place.fugu("sessions", "two", "words")
    assert (done.code, done.out) == (1, "")
    assert 'fugu sessions "two words"' in done.err
