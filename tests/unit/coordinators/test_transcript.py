"""The transcript: what the coordinator reads, word for word, and what it drops when it gets too
long.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.coordinators.transcript import (
    LEFT_OUT,
    TranscriptMessage,
    cut_middle,
    fit_budget,
    render_raw,
    tool_digest,
    transcript_messages,
)
from fugu_cli.messages import Call
from fugu_cli.session.events import Event, Failed, Interrupted, Permitted
from fugu_cli.session.state import SessionState
from tests.facts import asked, assigned, opened, ran, replied
from tests.unit.coordinators.test_stopping import BROKEN, verified, worked


def words(text: str) -> int:
    """A stand-in for a tokenizer: one token per four bytes, at least one."""
    return max(1, len(text.encode(errors="replace")) // 4)


def test_a_whole_request_reads_like_this() -> None:
    fixed = [
        assigned(3, "strong"),
        replied(3, "strong", "Fixed the base case."),
        *worked(3, ok=True)[2:],
    ]
    events = [*BROKEN, *worked(1, ok=False), *verified(2, "REVISE: the base case."), *fixed]
    assert render_raw(transcript_messages(SessionState(events))) == (
        "user: fix the tests\n"
        "system: tests failed 1\n"
        "assistant: Worker (small):\n[write a.py ok; tests failed 1]\n"
        "assistant: Verifier (coder): REVISE: the base case.\n"
        "assistant: Worker (strong): Fixed the base case.\n[write a.py ok; tests passed 3]"
    )


def test_agents_of_a_fixed_pool_are_named() -> None:
    assert transcript_messages(SessionState([*BROKEN, *verified(1, "REVISE")]))[
        -1
    ] == TranscriptMessage("assistant", "Verifier (coder): REVISE")


def test_workers_only_leaves_other_replies_out() -> None:
    events = [*BROKEN, *worked(1, ok=True), *verified(2, "REVISE")]
    assert [line.role for line in transcript_messages(SessionState(events))] == [
        "user",
        "system",
        "assistant",
        "assistant",
    ]
    shown = transcript_messages(SessionState(events), workers_only=True)
    assert [line.content.split(" ")[0] for line in shown if line.role == "assistant"] == ["Worker"]


def test_earlier_requests_of_the_session_stay_in_sight() -> None:
    events = [
        opened(),
        asked("one", judged=False),
        *verified(1, "REVISE"),
        asked("two", judged=False),
    ]
    assert transcript_messages(SessionState(events)) == (
        TranscriptMessage("user", "one", kept=True),
        TranscriptMessage("assistant", "Verifier (coder): REVISE"),
        TranscriptMessage("user", "two", kept=True),
    )


def test_turns_without_an_answer_say_why() -> None:
    failed = [assigned(1, "small"), Failed(turn=1, what="small", kind="limited", message="429")]
    cut = [assigned(2, "coder", "thinker"), Interrupted(turn=2)]
    shown = transcript_messages(SessionState([*BROKEN, *failed, *cut]))
    assert [line.content for line in shown[2:]] == [
        "Worker (small): [failed: limited]",
        "Thinker (coder): [interrupted]",
    ]


def test_attachments_are_named() -> None:
    request = asked("look", judged=False).model_copy(update={"attachments": ("a.png", "b.txt")})
    assert transcript_messages(SessionState([opened(), request])) == (
        TranscriptMessage("user", "look\n[attached: a.png, b.txt]", kept=True),
    )


def test_a_digest_counts_repeats_and_names_outcomes() -> None:
    calls = [Call.make(f"e{n}", "edit", path="a.py", old="x", new="y") for n in range(3)]
    shell = Call.make("b", "bash", command="pytest   -q\n" + "x" * 100)
    denied = Call.make("r", "bash", command="rm -rf /")
    facts: list[Event] = [replied(1, "small", "", *calls, shell, denied)]
    for call in calls:
        facts += ran(1, call, "no match", ok=False)
    facts += ran(1, shell)
    facts.append(Permitted(turn=1, call=denied, allowed=False, by="policy"))
    facts += ran(1, Call.make("t", "run_tests"), "2 failed, 1 passed in 1s", ok=False)
    turn = SessionState([*BROKEN, assigned(1, "small"), *facts]).request.turns[-1]
    command = "pytest -q " + "x" * 47 + "..."
    assert tool_digest(turn) == (
        f"[edit a.py failed x3; bash {command} ok; bash rm -rf / denied; tests failed 2; 6 calls]"
    )


def test_a_digest_keeps_the_newest_of_many_entries() -> None:
    calls = [Call.make(f"r{n}", "read", path=f"{n}.py") for n in range(12)]
    facts = [fact for call in calls for fact in ran(1, call)]
    turn = SessionState(
        [*BROKEN, assigned(1, "small"), replied(1, "small", "", *calls), *facts]
    ).request.turns[-1]
    kept = "; ".join(f"read {n}.py ok" for n in range(4, 12))
    assert tool_digest(turn) == f"[...; {kept}; 12 calls]"


def test_a_digest_survives_arguments_that_are_not_json() -> None:
    bad = [
        Call(id="1", tool="edit", arguments="{path:"),
        Call(id="2", tool="edit", arguments="[1]"),
    ]
    facts = [fact for call in bad for fact in ran(1, call, "bad arguments", ok=False)]
    turn = SessionState(
        [*BROKEN, assigned(1, "small"), replied(1, "small", "", *bad), *facts]
    ).request.turns[-1]
    assert tool_digest(turn) == "[edit failed x2; 2 calls]"


def test_a_run_without_a_result_was_interrupted() -> None:
    call = Call.make("t", "run_tests")
    started = Permitted(turn=1, call=call, allowed=True, by="policy")
    events = [*BROKEN, assigned(1, "small"), replied(1, "small", "", call), started]
    assert tool_digest(SessionState(events).request.turns[-1]) == "[tests interrupted]"


def test_what_fits_is_left_alone() -> None:
    short = (TranscriptMessage("user", "a", kept=True), TranscriptMessage("assistant", "b"))
    assert fit_budget(short, 100, words) == short


def test_the_middle_goes_and_the_ends_stay() -> None:
    many = [
        TranscriptMessage("user", "first", kept=True),
        *[TranscriptMessage("assistant", f"{n:02} " + "x" * 60) for n in range(20)],
    ]
    many += [TranscriptMessage("user", "now", kept=True), TranscriptMessage("assistant", "newest")]
    kept = fit_budget(many, 200, words)
    assert kept[:2] == (
        TranscriptMessage("user", "first", kept=True),
        TranscriptMessage("system", LEFT_OUT),
    )
    assert kept[-2:] == (
        TranscriptMessage("user", "now", kept=True),
        TranscriptMessage("assistant", "newest"),
    )
    assert [line.content[:2] for line in kept[2:-2]] == ["16", "17", "18", "19"]


def test_a_growing_transcript_keeps_its_beginning_for_many_turns() -> None:
    budget, start = 400, [TranscriptMessage("user", "first", kept=True)]
    cuts = {fit_budget([*start, *_turns(count)], budget, words)[:3] for count in range(30, 60)}
    assert len(cuts) <= 5


def _turns(count: int) -> list[TranscriptMessage]:
    return [TranscriptMessage("assistant", f"{n:03} " + "x" * 60) for n in range(count)]


def test_a_message_is_cut_in_its_middle() -> None:
    text = "begin " + "x" * 5000 + " end"
    short = cut_middle(text, 50, words)
    assert short.startswith("begin x")
    assert short.endswith("x end")
    assert words(short) <= 50


LINE = st.builds(
    TranscriptMessage,
    st.sampled_from(["user", "assistant", "system"]),
    st.text(max_size=400),
    kept=st.booleans(),
)


@given(st.lists(LINE, min_size=1, max_size=30))
def test_any_transcript_fits_where_few_messages_must_stay(many: list[TranscriptMessage]) -> None:
    only_two = [
        TranscriptMessage(line.role, line.content, kept=index == 0)
        for index, line in enumerate(many)
    ]
    kept = fit_budget(only_two, 120, words)
    assert words(render_raw(kept)) <= 130
    assert kept[-1].content.startswith(only_two[-1].content[:5])


@pytest.mark.parametrize(
    "text", ["\x00\x07\x1b[31m", "你好" * 3000, "\ud800", "🎉" * 500, " " * 9000]
)
def test_odd_texts_are_cut_like_any_other(text: str) -> None:
    assert words(cut_middle(text, 40, words)) <= 40
