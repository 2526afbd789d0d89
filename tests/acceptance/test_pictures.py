"""Pictures and PDFs by the real binary: what a provider is sent, what is kept, and that no picture
ends a session.
"""

from __future__ import annotations

import base64
import hashlib

import pytest

from fugu_cli.session.events import Asked, Replied, ToolRan
from tests.acceptance import loopback
from tests.acceptance.driving import Agent, Place, objects
from tests.acceptance.loopback import Loopback, Refuses, Says, Use
from tests.acceptance.test_workflows import lists, plans
from tests.pictures import bomb, locked_pdf, pdf, picture

SEES = "vision = true\n"
WIRES = {
    "chat": Agent("eye", more=SEES),
    "responses": Agent("eye", more=SEES + 'api = "responses"'),
    "messages": Agent("eye", provider="anthropic", more=SEES),
}
SHOT = picture(800, 600)
BASE64 = base64.b64encode(SHOT).decode()
RED = Says("It is red.")


def shown(asked: loopback.Asked) -> list[str]:
    """What stands beside words in a request, oldest first: `picture`, `file`, each behind its
    wire's own field.
    """
    found: list[str] = []

    def walk(value: object) -> None:
        match value:
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                found.append(url.removeprefix("data:image/png;base64,"))
            case {"type": "input_image", "image_url": str(url)}:
                found.append(url.removeprefix("data:image/png;base64,"))
            case {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": str(data)},
            }:
                found.append(data)
            case {"type": "input_file", "filename": str(), "file_data": str(url)}:
                found.append(url.removeprefix("data:application/pdf;base64,"))
            case {
                "type": "document",
                "source": {"media_type": "application/pdf", "data": str(data)},
            }:
                found.append(data)
            case dict():
                for one in value.values():
                    walk(one)
            case list():
                for one in value:
                    walk(one)

    walk(asked.body.get("messages", asked.body.get("input")))
    return found


@pytest.mark.parametrize("wire", WIRES)
def test_a_picture_is_sent_kept_beside_the_log_and_sent_again_when_the_session_goes_on(
    place: Place, server: Loopback, wire: str
) -> None:
    place.configure(WIRES[wire])
    place.files({"shot.png": SHOT})
    server.play("eye", RED)
    done = place.fugu("run", "what is on @shot.png?")
    assert (done.code, done.out) == (0, "It is red.\n"), done.err
    assert done.err.count("shot.png, 800x600, ") == 1
    assert shown(server.asked("eye")[0]) == [BASE64]
    log = place.sessions()[0]
    kept = {path.name: path.read_bytes() for path in log.with_suffix(".media").iterdir()}
    assert kept == {hashlib.sha256(SHOT).hexdigest(): SHOT}
    assert BASE64 not in log.read_text()
    (place.repo / "shot.png").unlink()
    out = str(place.folder / "out")
    again = place.fugu("run", "--continue", "--fork-session", "--output-dir", out, "and below?")
    assert again.code == 0, again.err
    assert [shown(one) for one in server.asked("eye")[1:]] == [[BASE64]]
    copies = [
        *(place.folder / "out").glob("session.media/*"),
        *place.sessions()[1].with_suffix(".media").iterdir(),
    ]
    assert [path.read_bytes() for path in copies] == [SHOT, SHOT]


@pytest.mark.parametrize("wire", WIRES)
def test_what_an_agent_reads_is_shown_with_its_result(
    place: Place, server: Loopback, wire: str
) -> None:
    place.configure(WIRES[wire])
    place.files({"shot.png": SHOT})
    server.play("eye", Says("", (Use("read", {"path": "shot.png"}),)), RED)
    done = place.fugu("run", "what is on the picture?")
    assert done.code == 0, done.err
    first, second = server.asked("eye")
    assert (shown(first), shown(second)) == ([], [BASE64])
    assert second.results == ("[picture shot.png, 800x600]",)


def test_an_agent_that_sees_nothing_is_not_chosen_where_another_sees(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("blind"), Agent("eye", "strong", more=SEES))
    place.files({"shot.png": SHOT})
    server.play("blind", Says("ACCEPT"))
    server.play("eye", RED)
    done = place.fugu("run", "--output-format", "stream-json", "what is on @shot.png?")
    assert done.code == 0, done.err
    assert [one["agent"] for one in objects(done.out) if one.get("subtype") == "routing"] == ["eye"]
    assert (server.asked("blind"), shown(server.asked("eye")[0])) == ([], [BASE64])


def test_where_no_agent_sees_a_line_stands_in_its_place(place: Place, server: Loopback) -> None:
    place.configure(Agent("blind"))
    place.files({"shot.png": SHOT})
    server.play("blind", Says("I cannot see it."))
    done = place.fugu("run", "what is on @shot.png?")
    assert done.code == 0, done.err
    asked = server.asked("blind")[0]
    assert shown(asked) == []
    assert "[picture shot.png, 800x600, not shown: this model does not see pictures]" in asked.text


def test_a_refused_picture_is_replaced_by_a_line_then_and_later(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("eye", more=SEES))
    place.files({"shot.png": SHOT})
    server.react(
        "eye", lambda asked: Refuses(400, "Could not process image") if shown(asked) else RED
    )
    done = place.fugu("run", "what is on @shot.png?")
    assert done.code == 0, done.err
    assert [shown(asked) for asked in server.asked("eye")] == [[BASE64], []]
    assert "not shown: its provider refused it" in server.asked("eye")[1].text
    assert [len(event.refused) for event in place.events() if isinstance(event, Replied)] == [1]
    assert place.fugu("run", "--continue", "and now?").code == 0
    assert [shown(asked) for asked in server.asked("eye")[2:]] == [[]]


BAD = {
    "bomb.png": bomb(),
    "cut.png": SHOT[: len(SHOT) // 2],
    "none.pdf": b"%PDF-1.7\nno",
    "locked.pdf": locked_pdf(),
    "huge.png": SHOT + bytes(80_000_000),
}


def test_what_cannot_be_shown_costs_a_line_each_and_the_request_goes_on(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("eye", more=SEES))
    place.files(BAD)
    server.play("eye", RED)
    done = place.fugu("run", "see " + " ".join(f"@{name}" for name in BAD))
    assert done.code == 0, done.err
    assert [(event.ok, event.media) for event in place.events() if isinstance(event, ToolRan)] == [
        (False, ())
    ] * 5
    lines = [line.strip() for line in done.err.splitlines()]
    for said in (
        "bomb.png has",
        "cut.png is a damaged",
        "none.pdf is a damaged",
        "locked.pdf is enc",
        "huge.png is too",
    ):
        assert sum(said in line for line in lines) == 1, said
    assert [shown(asked) for asked in server.asked("eye")] == [[]]


@pytest.mark.parametrize("wire", WIRES)
def test_a_pdf_is_sent_as_it_is_where_the_wire_has_it_and_else_as_text(
    place: Place, server: Loopback, wire: str
) -> None:
    place.configure(WIRES[wire])
    data = pdf("The plan.", "The rest.")
    place.files({"plan.pdf": data})
    server.play("eye", RED)
    done = place.fugu("run", "build @plan.pdf")
    assert done.code == 0, done.err
    assert "plan.pdf, 2 pages, " in done.err
    asked = server.asked("eye")[0]
    if wire == "chat":
        assert shown(asked) == []
        assert (
            "[PDF plan.pdf, 2 pages, as text:]\\n[page 1]\\nThe plan.\\n\\n[page 2]\\nThe rest."
            in asked.text
        )
    else:
        assert shown(asked) == [base64.b64encode(data).decode()]
        assert "The plan." not in asked.text


def test_a_step_of_a_workflow_sees_no_picture_of_a_step_it_may_not_read(
    place: Place, server: Loopback
) -> None:
    place.configure(
        Agent("a", more=SEES), Agent("b", "middle", more=SEES), Agent("c", "strong", more=SEES),
        more='conductor = { agent = "c", rounds = 1 }',
    )  # fmt: skip
    place.files({"shot.png": SHOT})
    plan = Says(lists((0, "Look.", []), (1, "Think.", []), (2, "Say.", [0, 1])))
    server.react("c", lambda asked: plan if plans(asked) else Says("Red."))
    server.play("a", Says("", (Use("read", {"path": "shot.png"}),)), RED)
    server.play("b", Says("Thought."))
    done = place.fugu("run", "--tier", "ultra", "what is on the picture?")
    assert done.code == 0, done.err
    assert [shown(asked) for asked in server.asked("a")] == [[], [BASE64]]
    assert {tuple(shown(asked)) for asked in server.asked("b")} == {()}


def test_a_session_whose_pictures_are_gone_goes_on(place: Place, server: Loopback) -> None:
    place.configure(Agent("eye", more=SEES))
    place.files({"shot.png": SHOT})
    server.play("eye", RED)
    assert place.fugu("run", "what is on @shot.png?").code == 0
    for path in place.sessions()[0].with_suffix(".media").iterdir():
        path.unlink()
    done = place.fugu("run", "--continue", "and now?")
    assert done.code == 0, done.err
    assert "not shown: its bytes are not kept any more" in server.asked("eye")[1].text
    assert [event.text for event in place.events() if isinstance(event, Asked)] == [
        "what is on @shot.png?",
        "and now?",
    ]
