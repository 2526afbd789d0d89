"""The real binary and secrets: what is sent and logged holds none, what is written and run is what
the agent wrote.
"""

from pathlib import Path

from fugu_cli.safety.redaction import mark_for
from tests.acceptance.driving import Agent, Place, objects
from tests.acceptance.loopback import Loopback, Says, Use

SECRET = "tok-9f8e7d6c5b"
ENV = f"POSTGRES_PASSWORD=postgres\nAPP_SECRET=secret\nAPP_TOKEN={SECRET}\nMODE=old\n"
DONE = Says("ACCEPT Done.")


def played(place: Place, server: Loopback, *answers: Says) -> str:
    """A run in which the agent answers so; all that the run has sent, logged and printed."""
    place.configure(Agent("worker"), more="")
    server.play("worker", *answers, DONE)
    done = place.fugu("run", "--yolo", "go")
    assert done.code == 0, done.err
    sent = [asked.text for asked in server.asked("worker")]
    return "\n".join([*sent, *(log.read_text() for log in place.sessions()), done.out, done.err])


def folder(place: Place) -> Path:
    (place.repo / "deploy" / "prod").mkdir(parents=True)
    (place.repo / "deploy" / "prod" / ".env").write_text(ENV)
    return place.repo


def test_words_that_are_passwords_are_written_and_run_as_the_agent_wrote_them(
    place: Place, server: Loopback
) -> None:
    root = folder(place)
    told = played(
        place,
        server,
        Says(
            "", (Use("write", {"path": "db.py", "content": "IMAGE = 'postgres:16'\nsecret = 1\n"}),)
        ),
        Says(
            "", (Use("bash", {"command": f"echo 'image: postgres:16 # {SECRET}' > compose.yml"}),)
        ),
    )
    assert (root / "db.py").read_text() == "IMAGE = 'postgres:16'\nsecret = 1\n"
    assert (root / "compose.yml").read_text() == f"image: postgres:16 # {SECRET}\n"
    log = place.sessions()[-1].read_text()
    assert SECRET not in log
    assert "postgres:16" in told


def test_an_env_file_deep_in_the_repository_is_shown_masked_and_written_whole(
    place: Place, server: Loopback
) -> None:
    root, path = folder(place), "deploy/prod/.env"
    shown = ENV.replace(SECRET, mark_for(SECRET))
    told = played(
        place,
        server,
        Says("", (Use("read", {"path": path}),)),
        Says("", (Use("write", {"path": path, "content": shown.replace("MODE=old", "MODE=new")}),)),
    )
    assert (root / path).read_text() == ENV.replace("MODE=old", "MODE=new")
    assert SECRET not in told


def test_a_secret_in_two_streamed_pieces_is_in_no_line_of_the_stream(
    place: Place, server: Loopback
) -> None:
    folder(place)
    place.configure(Agent("worker"), more="")
    key = "sk-" + "a1B2" * 8
    said = f"The token is {SECRET}, and the key {key}. That is all."
    server.play("worker", Says(said), DONE)
    done = place.fugu("run", "--output-format", "stream-json", "what is the token?")
    assert done.code == 0, done.err
    masked = said.replace(SECRET, mark_for(SECRET)).replace(key, mark_for(key))
    spoken = [one["message"]["content"] for one in objects(done.out) if one["type"] == "assistant"]
    assert spoken[0] == [{"type": "text", "text": masked}]
    assert not [part for part in (SECRET[:8], key[:8]) if part in done.out + done.err]
