"""`fugu export` and what `fugu sessions` does to a session's file, on the real binary."""

import json

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says


def asked(place: Place, server: Loopback) -> str:
    """A session's id."""
    place.configure(Agent("worker"))
    server.play("worker", Says("It is 4."))
    assert place.fugu("run", "what is 2 + 2?").code == 0
    return place.sessions()[-1].stem


def test_a_session_is_exported_and_nothing_is_overwritten(place: Place, server: Loopback) -> None:
    id = asked(place, server)
    assert "It is 4." in place.fugu("export").out
    assert json.loads(place.fugu("export", id, "--format", "json").out)["requests"] == [
        "what is 2 + 2?"
    ]
    done = place.fugu("export", id, "-o", "talk.html")
    assert (done.code, done.out) == (0, "talk.html\n")
    page = (place.repo / "talk.html").read_text()
    assert "It is 4." in page and page.startswith("<!DOCTYPE html>")
    for words, said in (
        (("export", "-o", "talk.html"), "exists already"),
        (("export", "-o", "talk.pdf"), "there is no format 'pdf'"),
        (("export", "--format", "pdf"), "there is no format 'pdf'"),
        (("export", "-o", "nowhere/talk.md"), "cannot write nowhere/talk.md"),
        (("export", "1999"), "there is no session '1999'"),
    ):
        done = place.fugu(*words)
        assert (done.code, said in done.err, done.out) == (
            2 if "nowhere" in said else 1,
            True,
            "",
        ), words


def test_a_session_is_archived_restored_and_deleted(place: Place, server: Loopback) -> None:
    id = asked(place, server)
    assert place.fugu("sessions", "--archive", id).code == 0
    assert id not in place.fugu("sessions").out
    assert id in place.fugu("sessions", "--archived").out
    assert place.fugu("sessions", "--restore", id).code == 0
    assert place.fugu("sessions", "--archived").code == 1
    refused = place.fugu("sessions", "--delete", id)
    assert (refused.code, "add --yes" in refused.err, len(place.sessions())) == (1, True, 1)
    done = place.fugu("sessions", "--delete", id, "--yes")
    assert (done.code, done.out) == (0, f"{id}: what is 2 + 2?: deleted\n")
    assert place.sessions() == []
    assert place.fugu("sessions", "--delete", id, "--yes").code == 1
