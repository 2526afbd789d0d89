"""A session as a document: what is in it, in each format."""

import json
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fugu_cli.errors import UsageError
from fugu_cli.messages import Call
from fugu_cli.session.events import Asked, Event, FileChange, Permitted, Recorded, ToolRan
from fugu_cli.ui.session_export import FORMATS, export_format, write_new_file
from tests.unit.ui import example


def document(shape: str, events: Sequence[Event]) -> str:
    records = [
        Recorded(seq=place, at=1_790_000_000.0 + place, event=event)
        for place, event in enumerate(events)
    ]
    return FORMATS[shape](records, "s1")


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.said = ""
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.said += data


def test_markdown_has_requests_answers_and_changes() -> None:
    text = document("md", example.events())
    assert text.startswith("## ")
    assert "I read the file." in text and "```diff" in text


def test_a_line_without_end_is_cut_to_what_changed_in_it() -> None:
    call = Call.make("1", "apply_patch", patch="*** Add File: a.js\n+" + "x" * 1_000_000)
    change = FileChange(path="a.js", before=None, after="1" * 40)
    events = [
        *example.events()[:3],
        Permitted(turn=1, call=call, allowed=True, by="policy"),
        ToolRan(turn=1, call=call, output="Applied.", ok=True, changes=(change,)),
    ]
    assert "[… 999,800 characters …]" in document("md", events)


def test_the_page_has_the_trace_before_the_conversation_and_loads_nothing() -> None:
    page = document("html", example.events())
    read = _Text()
    read.feed(page)
    assert read.said.index("session s1") < read.said.index("I read the file.")
    assert read.tags & {"script", "link", "img", "iframe"} == set()


def test_what_somebody_says_is_text_on_the_page() -> None:
    events = [
        event.model_copy(update={"text": "<script>alert(1)</script>"})
        if isinstance(event, Asked)
        else event
        for event in example.events()
    ]
    page = document("html", events)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_json_has_the_objects_of_stream_json_and_the_result() -> None:
    found = json.loads(document("json", example.events()))
    assert (found["session_id"], found["result"]["type"]) == ("s1", "result")
    assert {"assistant", "user", "system"} == {one["type"] for one in found["events"]}


@pytest.mark.parametrize("shape", FORMATS)
def test_a_session_in_which_nothing_was_asked_is_a_document_too(shape: str) -> None:
    assert document(shape, example.events()[:1])


def test_the_ending_of_a_file_says_the_format(tmp_path: Path) -> None:
    names = {"a": "md", "a.md": "md", "a.MARKDOWN": "md", "a.html": "html", "a.json": "json"}
    assert {name: export_format(Path(name)) for name in names} == names
    with pytest.raises(UsageError, match="no format 'pdf'"):
        export_format(Path("a.pdf"))
    write_new_file(tmp_path / "a.md", "once", lambda _: None)
    with pytest.raises(FileExistsError):
        write_new_file(tmp_path / "a.md", "twice", lambda _: None)
