"""Who wrote which line, from changes and contents alone."""

from typing import Literal

from fugu_cli.engine.blame import (
    AttributedEdit,
    AttributedLines,
    BlameTracker,
    LineAuthor,
    attributed_edits,
    carry_authors,
    lines_of,
    merged_edits,
    moved_from,
    related_edits,
)
from fugu_cli.session.costs import TurnCost, turn_costs
from fugu_cli.session.events import Event, FileChange, Merged, Recorded, Undone
from fugu_cli.session.open_work import UndoHistory
from fugu_cli.session.state import SessionState
from fugu_cli.snapshots.git_repositories import blob_id
from tests.facts import asked, assigned, checked, opened, ran, replied, rolled_back, write


def author(agent: str, turn: int = 1) -> LineAuthor:
    return LineAuthor("s", 1, turn, agent, "worker", "m", float(turn))


ADA, BOB = author("ada"), author("bob", 2)


def records(*events: Event | list[Event]) -> list[Recorded]:
    flat = [event for item in events for event in (item if isinstance(item, list) else [item])]
    return [Recorded(seq=seq, at=100.0 + seq, event=event) for seq, event in enumerate(flat)]


class Story:
    """Changes written as texts; contents as they are kept."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.edits: list[AttributedEdit] = []

    def blob(self, text: str | None) -> str | None:
        if text is None:
            return None
        name = blob_id(text.encode())
        self.contents[name] = text.encode()
        return name

    def change(self, who: LineAuthor, *files: tuple[str, str | None, str | None]) -> None:
        changes = tuple(
            FileChange(path=path, before=self.blob(old), after=self.blob(new))
            for path, old, new in files
        )
        self.edits.append(AttributedEdit(who, changes, float(len(self.edits)), len(self.edits)))

    def now(self, path: str, text: str) -> list[tuple[str, str]]:
        known = BlameTracker(self.contents)
        for edit in self.edits:
            known.follow(edit)
        return named(known.lines_now(path, blob_id(text.encode()), text.encode()))


def named(written: AttributedLines) -> list[tuple[str, str]]:
    pairs = zip(written.lines, written.authors, strict=True)
    return [(line.decode().rstrip("\n"), who.agent if who else "-") for line, who in pairs]


def test_lines_that_stay_keep_their_writer_and_new_ones_get_theirs() -> None:
    story = Story()
    story.change(ADA, ("f", "a\nb\n", "a\nB\nb\n"))
    story.change(BOB, ("f", "a\nB\nb\n", "z\na\nB\nc\n"))
    assert story.now("f", "z\na\nB\nc\n") == [("z", "bob"), ("a", "-"), ("B", "ada"), ("c", "bob")]


def test_edits_between_and_after_are_nobodys_wherever_they_move_the_lines() -> None:
    story = Story()
    story.change(ADA, ("f", None, "1\n2\n3\n"))
    story.change(BOB, ("f", "mine\n1\n2\n3\n", "mine\n1\n2\n3\n4\n"))
    assert story.now("f", "mine\n1\nalso mine\n3\n4\n") == [
        ("mine", "-"),
        ("1", "ada"),
        ("also mine", "-"),
        ("3", "ada"),
        ("4", "bob"),
    ]


def test_a_content_that_comes_back_is_what_it_was() -> None:
    story = Story()
    story.change(ADA, ("f", "a\n", "a\nada\n"))
    story.change(BOB, ("f", "a\n", "bob\n"))  # another branch was checked out between
    assert story.now("f", "a\nada\n") == [("a", "-"), ("ada", "ada")]
    assert story.now("f", "bob\n") == [("bob", "bob")]


def test_a_file_that_moves_takes_its_writers_along() -> None:
    story = Story()
    story.change(ADA, ("old", None, "1\n2\n3\n4\n"))
    story.change(BOB, ("new", None, "1\n2\n3\nfour\n"), ("old", "1\n2\n3\n4\n", None))
    assert story.now("new", "1\n2\n3\nfour\n") == [
        ("1", "ada"),
        ("2", "ada"),
        ("3", "ada"),
        ("four", "bob"),
    ]
    assert [len(edit.changes) for edit in related_edits(story.edits, "new")] == [1, 2]
    assert related_edits(story.edits, "other") == []


def test_a_new_file_beside_an_unlike_one_that_goes_is_new() -> None:
    story = Story()
    story.change(ADA, ("old", None, "1\n2\n3\n"))
    story.change(BOB, ("new", None, "4\n5\n3\n"), ("old", "1\n2\n3\n", None))
    assert story.now("new", "4\n5\n3\n") == [("4", "bob"), ("5", "bob"), ("3", "bob")]


def test_a_file_that_the_user_moved_before_an_edit_keeps_its_writers() -> None:
    story = Story()
    story.change(ADA, ("old", "1\n", "1\n2\n"))
    story.change(BOB, ("new", "1\n2\n", "1\n2\n3\n"))
    assert story.now("new", "1\n2\n3\n") == [("1", "-"), ("2", "ada"), ("3", "bob")]
    assert [edit.author.agent for edit in related_edits(story.edits, "new")] == ["ada", "bob"]


def test_a_file_that_nobody_names_is_the_one_it_is_most_like_if_any() -> None:
    story = Story()
    story.change(ADA, ("one", None, "1\n2\n3\n4\n"), ("two", None, "a\nb\nc\nd\n"))
    assert moved_from(story.edits, b"a\nb\nc\nD\n", story.contents) == "two"
    assert moved_from(story.edits, b"x\ny\nc\nd\ne\n", story.contents) is None
    assert moved_from(story.edits, b"1\n2\n3\n4\n", {}) is None


def test_where_a_content_is_gone_nobody_is_named() -> None:
    story = Story()
    story.change(ADA, ("f", "a\n", "a\nb\n"))
    del story.contents[blob_id(b"a\n")]
    known = BlameTracker(story.contents)
    known.follow(story.edits[0])
    assert named(known.lines_now("f", blob_id(b"a\nb\n"), b"a\nb\n")) == [("a", "-"), ("b", "-")]
    assert known.lost == {"f"}


def test_only_newlines_end_lines_and_what_is_no_text_is_one() -> None:
    assert lines_of(b"a\r\nb\x0cc\rd\n\ne") == (b"a\n", b"b\x0cc\rd\n", b"\n", b"e")
    assert lines_of(b"a\n\0b\n") == (b"a\n\0b\n",)
    assert lines_of(b"") == ()


def test_a_last_line_that_only_gets_its_newline_is_a_change() -> None:
    assert named(carry_authors(AttributedLines((b"a",), (ADA,)), lines_of(b"a\nb\n"), BOB)) == [
        ("a", "bob"),
        ("b", "bob"),
    ]


def test_writers_are_found_by_the_call_with_the_model_that_served() -> None:
    call = write("t1-0-0")
    reply = replied(1, "small", "", call).model_copy(update={"model": "served-7b"})
    log = records(
        opened(),
        asked(),
        checked(0, ok=False),
        assigned(1, "small"),
        reply,
        ran(1, call, path="a.py"),
    )
    changed = FileChange(path="a.py", before="a", after="b-t1-0-0")
    who = LineAuthor("id", 1, 1, "small", "worker", "served-7b", 107.0)
    assert attributed_edits("id", log) == [AttributedEdit(who, (changed,), 107.0, 7)]


def test_draws_that_were_rolled_back_and_evidence_are_nobodys() -> None:
    first, second = write("t1-0-0"), write("t1-1-0")
    log = records(
        opened(),
        asked(),
        ran(0, write("e0"), path="built.txt", by="evidence"),
        assigned(1, "small"),
        replied(1, "small", "", first),
        ran(1, first, path="a.py"),
        rolled_back(1),
        replied(1, "small", "", second),
        ran(1, second, path="a.py"),
    )
    assert [change.after for edit in attributed_edits("id", log) for change in edit.changes] == [
        "b-t1-1-0"
    ]


def test_what_was_taken_over_from_a_worktree_is_its_turns_work() -> None:
    call = write("t2-0-0")
    change = FileChange(path="a.py", before="a", after="b")
    apart = assigned(2, "coder").model_copy(update={"plan": 1, "worktree": "/w"})
    reply = replied(2, "coder", "", call).model_copy(update={"model": "m-served"})
    merged = Merged(plan=1, turns=(1, 2), chosen=2, changes=(change,))
    log = records(opened(), asked(), apart, reply, ran(2, call, path="a.py"), merged)
    assert [
        (edit.author.agent, edit.author.model, edit.changes) for edit in attributed_edits("id", log)
    ] == [("coder", "m-served", (change,))]


def one_request(turn_call: str) -> list[Event]:
    call = write(turn_call)
    return [
        asked(),
        assigned(1, "small"),
        replied(1, "small", "", call),
        *ran(1, call, path=f"{turn_call}.py"),
    ]


def undo(path: str, kind: Literal["undo", "redo"] = "undo") -> Undone:
    return Undone(
        snapshot=None, kind=kind, changes=(FileChange(path=path, before="1", after=None),)
    )


def test_undone_requests_do_not_stand_until_they_are_redone() -> None:
    first, second = one_request("one"), one_request("two")
    both = [opened(), *first, *second]
    back = [undo("b"), undo("a")]
    assert SessionState(both).undo_history == UndoHistory((0, 1), ())
    assert SessionState([*both, *back]).undo_history == UndoHistory((), tuple(back))
    assert SessionState([*both, *back, undo("0", "redo")]).undo_history == UndoHistory(
        (0,), (back[0],)
    )
    assert SessionState([*both, *back, *one_request("three")]).undo_history == UndoHistory((2,), ())
    paths = [
        change.path
        for edit in attributed_edits("id", records(both, undo("b")))
        for change in edit.changes
    ]
    assert paths == ["one.py"]


def test_what_a_forked_session_repeats_counts_once_in_the_order_of_time() -> None:
    log = records(opened(), one_request("one"), one_request("two"))
    early = [
        record.model_copy(update={"at": record.at - 50})
        for record in records(opened(), one_request("zero"))
    ]
    found = merged_edits(
        [*attributed_edits("a", log), *attributed_edits("fork", log), *attributed_edits("b", early)]
    )
    assert [(edit.author.session, edit.changes[0].path) for edit in found] == [
        ("b", "zero.py"),
        ("a", "one.py"),
        ("a", "two.py"),
    ]


def test_a_turn_is_charged_with_every_draw_and_numbered_in_its_request() -> None:
    log = records(
        opened(), asked(), assigned(1, "small"), replied(1, "small"), rolled_back(1), replied(1, "small"),
        assigned(2, "strong", "verifier"), asked(), assigned(1, "coder"),
    )  # fmt: skip
    usage = replied(1, "small").usage
    assert turn_costs("id", log) == [
        TurnCost("id", 1, 1, "small", "worker", 102.0, (), 2, usage + usage, 0.0),
        TurnCost("id", 1, 2, "strong", "verifier", 106.0),
        TurnCost("id", 2, 1, "coder", "worker", 108.0),
    ]
