"""What an agent is shown: all that matters, nothing that is not in the log, nothing that belongs to
another agent.
"""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fugu_cli import prompts
from fugu_cli.engine import message_history
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, Thinking
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.server_quirks import ServerQuirks
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    FileChange,
    Finished,
    Interrupted,
    Member,
    Permitted,
    Planned,
    Replied,
    ToolRan,
    Undone,
    WorkflowStep,
)
from fugu_cli.session.state import SessionState
from fugu_cli.wires import chat_completions
from fugu_cli.wires import messages as providers_messages
from tests.facts import (
    POOL,
    SMALL,
    STRONG,
    asked,
    assigned,
    checked,
    opened,
    prompt_of,
    ran,
    replied,
    shown,
    write,
)

GREEK = st.text(alphabet="αβγδεζηθικλμνξοπρστυφχψω\n ", max_size=30)


TURNS = st.integers(min_value=0, max_value=3)


NAMES = st.sampled_from([member.name for member in POOL])


CALLS = st.builds(
    lambda number, tool, path: Call.make(f"t{number}", tool, path=path),
    st.integers(min_value=0, max_value=5),
    st.sampled_from(["read", "write", "bash", "run_tests", "diff"]),
    GREEK,
)


FACTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Asked, text=GREEK, snapshot=st.none() | st.just("tree"), test_command=st.none() | GREEK
    ),
    st.builds(
        Assigned,
        turn=TURNS,
        agent=NAMES,
        role=st.sampled_from(["worker", "thinker", "verifier"]),
        by=st.just("random"),
        instruction=GREEK,
    ),
    st.builds(
        Replied,
        turn=TURNS,
        agent=NAMES,
        text=GREEK,
        thinking=st.lists(st.builds(Thinking, text=GREEK), max_size=1).map(tuple),
        calls=st.lists(CALLS, max_size=3).map(tuple),
    ),
    st.builds(
        Permitted,
        turn=TURNS,
        call=CALLS,
        allowed=st.booleans(),
        by=st.sampled_from(["policy", "evidence", "user"]),
        reason=GREEK,
    ),
    st.builds(
        ToolRan,
        turn=TURNS,
        call=CALLS,
        output=GREEK,
        ok=st.booleans(),
        changes=st.just(())
        | st.builds(lambda path: (FileChange(path=path, before=None, after="b"),), GREEK),
    ),
    st.builds(Failed, turn=TURNS, what=NAMES, kind=st.just("network"), message=GREEK),
    st.builds(Compacted, summary=GREEK, upto=st.just(0)),
    st.builds(Interrupted, turn=TURNS, partial=GREEK),
    st.builds(Undone, snapshot=st.just("tree"), turn=TURNS, reason=GREEK),
    st.builds(Finished, reason=st.just("accepted"), message=GREEK),
)


@example(facts=[Undone(snapshot="tree", turn=0, reason="")], member=POOL[-1], number=0)
@given(facts=st.lists(FACTS, max_size=30), member=st.sampled_from(POOL), number=TURNS)
def test_whatever_happened_a_prompt_is_built_and_says_nothing_that_is_not_in_the_log(
    facts: list[Event], member: Member, number: int
) -> None:
    events = [opened(), asked(), *facts, assigned(number, member.name)]
    built = prompt_of(events, member, ())
    # what was said in the session is Greek here: each stretch of it must stand in the log as it is
    said = (
        "\n".join(event.model_dump_json() for event in events)
        .replace("\\n", "\n")
        .replace("\\\\n", "\n")
    )
    for text in shown(built):
        for stretch in re.findall(r"[α-ω]+", text):
            assert stretch in said
    roles = ("worker", "worker_again", "worker_whole")
    endings = [prompts.load(name) for name in roles]
    assert any(ending in built.messages[-1].text for ending in endings), (
        "it ends with what is to be done"
    )


@given(facts=st.lists(FACTS, max_size=30), member=st.sampled_from(POOL))
def test_calls_and_results_of_a_history_pair_up_where_the_log_says_so(
    facts: list[Event], member: Member
) -> None:
    events = [opened(), asked(), *facts, assigned(3, member.name)]
    for before, after in pairwise(prompt_of(events, member, ()).messages):
        if isinstance(after, FromTool):
            assert isinstance(before, FromAgent | FromTool)


def test_an_agent_with_native_tools_reads_the_whole_history() -> None:
    call = Call.make("t1", "read", path="a.py")
    events = [
        opened(),
        asked(),
        *checked(0, ok=False),
        assigned(1, "strong"),
        replied(1, "strong", "I look", call),
    ]
    events += ran(1, call, "x = 1")
    built = prompt_of(events, STRONG, ())
    assert built.messages == (
        FromUser(text="fix the tests"),
        FromUser(text="[The tests were run: they FAIL.]\n1 failed, 2 passed in 0.1s"),
        FromUser(text=prompts.load("worker")),
        FromAgent(agent="strong", text="I look", calls=(call,)),
        FromTool(call="t1", tool="read", text="x = 1"),
    )
    assert (built.temperature, built.seed) == (None, None)


def test_a_skill_that_the_user_named_stands_below_the_request_for_whoever_reads_it() -> None:
    request = Asked(
        text="cut 1.2", typed="/skill release cut 1.2", skill="The skill `release`: tag it."
    )
    for member in (SMALL, STRONG):
        first = prompt_of([opened(), request, assigned(1, member.name)], member, ()).messages[0]
        assert isinstance(first, FromUser)
        assert (
            "cut 1.2\n\nThe skill `release`: tag it." in first.text and "/skill" not in first.text
        )


def test_a_refused_call_and_a_killed_one_say_so() -> None:
    no, killed = Call.make("t1", "bash", command="rm x"), Call.make("t2", "bash", command="make")
    events = [opened(), asked(), assigned(1, "strong"), replied(1, "strong", "", no, killed)]
    events += [
        Permitted(turn=1, call=no, allowed=False, by="headless", reason="it deletes"),
        Permitted(turn=1, call=killed, allowed=True, by="policy"),
    ]
    results = [
        message
        for message in prompt_of(events, STRONG, ()).messages
        if isinstance(message, FromTool)
    ]
    assert [(result.call, result.ok) for result in results] == [("t1", False), ("t2", False)]
    assert "it deletes" in results[0].text
    assert "not run again" in results[1].text


def test_the_standing_instructions_are_in_the_system_text() -> None:
    built = prompt_of([opened(), asked(), assigned(1, "strong")], STRONG, (), "Use tabs.")
    assert "Use tabs." in built.system


@pytest.mark.parametrize(("name", "sent"), [("strong", True), ("other", False)])
def test_thinking_goes_back_to_its_author_and_to_nobody_else(name: str, sent: bool) -> None:
    block = {"type": "thinking", "thinking": "a hidden thought", "signature": "signed"}
    call = Call.make("t1", "read", path="a.py")
    thought = Thinking(text="a hidden thought", data=json.dumps(block))
    reply = Replied(turn=1, agent="strong", thinking=(thought,), calls=(call,))
    events = [opened(), asked(), assigned(1, "strong"), reply, *ran(1, call)]
    built = prompt_of(events, STRONG, ())
    access = ModelEndpoint(name=name, model="m", base_url="http://127.0.0.1/v1")
    assert (
        "a hidden thought"
        in json.dumps(providers_messages.encode_request(built, access, ServerQuirks()))
    ) is sent
    assert "a hidden thought" not in json.dumps(
        chat_completions.encode_request(built, access, ServerQuirks())
    )


def test_a_failed_turn_and_an_interrupted_one_are_said() -> None:
    events = [
        opened(),
        asked(),
        assigned(1, "small"),
        Failed(turn=1, what="small", kind="network", message="no line"),
    ]
    begun = [
        assigned(2, "coder"),
        replied(2, "coder", "", write("w")),
        *ran(2, write("w"), path="a.py"),
    ]
    hint = "Try later, or use another agent."
    failed = Failed(turn=2, what="coder", kind="network", message=f"no answer. {hint}", hint=hint)
    cut = [assigned(3, "strong"), Interrupted(turn=3), assigned(4, "strong")]
    texts = shown(prompt_of([*events, *begun, failed, *cut], STRONG, ()))
    assert "no line" not in "".join(texts), "it did nothing that anybody goes on with"
    assert any(
        "`coder` began this and changed a.py; then it failed: no answer." in t for t in texts
    )
    assert hint not in "".join(texts), "advice for the user"
    assert "[This turn was interrupted.]" in texts


def test_a_cut_between_turns_is_not_told_as_a_cut_turn() -> None:
    events = [
        opened(),
        asked(),
        assigned(1, "small"),
        replied(1, "small", "done"),
        Interrupted(turn=0),
    ]
    texts = shown(prompt_of([*events, assigned(2, "strong")], STRONG, ()))
    assert "[This turn was interrupted.]" not in texts
    assert SessionState(events).request.turns[-1].text == "done"


@pytest.mark.parametrize("plan", [0, 1])
def test_an_agent_is_told_what_the_user_undid_and_brought_back(plan: int) -> None:
    done: list[Event] = [
        opened(),
        asked("add it"),
        assigned(1, "strong"),
        replied(1, "strong", "", write("w")),
    ]
    done += [
        *ran(1, write("w"), path="a.py"),
        replied(1, "strong", "added"),
        Finished(reason="accepted"),
    ]
    undone = Undone(snapshot="tree0")
    redone = Undone(snapshot="abc", kind="redo")

    def told(*facts: Event) -> tuple[Message, ...]:
        now = assigned(1, "strong").model_copy(update={"plan": plan})
        step = WorkflowStep(agent="strong", instruction="go on")
        plans = [Planned(steps=(step,), text="")] * plan
        return prompt_of([*done, *facts, asked("and now?"), *plans, now], STRONG, ()).messages

    *before, request, role = told()
    gone, back = (
        FromUser(text=message_history.UNDO_MESSAGE),
        FromUser(text=message_history.REDO_MESSAGE),
    )
    assert told(undone) == (*before, gone, request, role)
    assert told(undone, redone) == (*before, gone, back, request, role)


def test_what_was_undone_before_a_stopped_request_went_on_is_told_where_it_was() -> None:
    done: list[Event] = [opened(), asked("add it"), Undone(snapshot="tree0")]
    done += [assigned(1, "strong"), replied(1, "strong", "one"), Finished(reason="turn_limit")]
    done += [Undone(snapshot="tree0"), opened(), assigned(2, "strong")]
    messages = prompt_of(done, STRONG, ()).messages
    role, gone = FromUser(text=prompts.load("worker")), FromUser(text=message_history.UNDO_MESSAGE)
    one, again = FromAgent(agent="strong", text="one"), FromUser(text=prompts.load("worker_again"))
    assert messages == (FromUser(text="add it"), gone, role, one, gone, again)


def test_an_earlier_request_is_told_as_its_own_session_has_it() -> None:
    """Sessions that share their first facts and then part (a fork, two rollouts) do not read each
    other's.
    """
    first = asked("what is it?", judged=False)
    parts = [
        [first, assigned(1, "strong"), replied(1, "strong", text)]
        for text in ("a parser", "a lexer")
    ]
    for facts, said in zip(parts, ("a parser", "a lexer"), strict=True):
        built = prompt_of([opened(), *facts, asked("fix it"), assigned(1, "strong")], STRONG, ())
        assert FromAgent(agent="strong", text=said) in built.messages


def test_a_long_file_is_not_copied_into_the_history_that_other_agents_read() -> None:
    long = "other = 7\n" * 3000
    events = [opened(), asked("fix it"), assigned(1, "coder")]
    for number, (path, content) in enumerate({"a.py": long, "b.py": "x = 1"}.items()):
        events += ran(
            1, Call.make(f"e1-{number}", "read", path=path, plain=True), content, by="evidence"
        )
    events += [replied(1, "coder", "done"), assigned(2, "strong")]
    texts = shown(prompt_of(events, STRONG, ()))
    assert any(
        f"[read a.py]\n({len(long):,} characters)" in text and "x = 1" in text for text in texts
    )
    assert not any("other = 7" in text for text in texts)


def test_a_reader_knows_its_own_verdict_and_that_the_revision_is_open_after_others_gave_up() -> (
    None
):
    events = [
        opened(),
        asked(),
        assigned(1, SMALL.name),
        replied(1, SMALL.name, "I added it."),
        assigned(2, STRONG.name, "verifier"),
        replied(2, STRONG.name, "A name is wrong.\nVERDICT: REVISE\nQuote it."),
        assigned(3, SMALL.name),
        replied(3, SMALL.name, "UNABLE: I do not know how."),
        assigned(4, STRONG.name),
    ]
    told = shown(prompt_of(events, STRONG, ()))[-1]
    assert f"The Verifier (yourself, `{STRONG.name}`) wants a revision:" in told
    assert f"`{SMALL.name}` said that it cannot do this: I do not know how." in told
    assert prompts.load("worker_revision") in told
    first_revision = shown(prompt_of(events[:7], SMALL, ()))[-1]
    assert f"The Verifier (`{STRONG.name}`) wants a revision:" in first_revision
