"""What an agent is shown: all that matters, nothing that is not in the log, nothing that belongs to another agent."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fugu_cli import prompts, views
from fugu_cli.agents import anthropic, openai
from fugu_cli.agents.access import Access
from fugu_cli.agents.dialects import Dialect
from fugu_cli.events import (
    Asked,
    Assigned,
    Change,
    Compacted,
    Event,
    Failed,
    Finished,
    Interrupted,
    Member,
    Permitted,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.loop import put_back
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, Prompt, Thinking
from fugu_cli.repair import brief_files
from fugu_cli.repair.written import shown_files
from fugu_cli.views import standing
from tests.facts import (
    CODER,
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
    rolled_back,
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
    st.builds(Asked, text=GREEK, snapshot=st.none() | st.just("tree"), test_command=st.none() | GREEK),
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
        changes=st.just(()) | st.builds(lambda path: (Change(path=path, before=None, after="b"),), GREEK),
    ),
    st.builds(Failed, turn=TURNS, what=NAMES, kind=st.just("network"), message=GREEK),
    st.builds(Compacted, summary=GREEK, upto=st.just(0)),
    st.builds(Interrupted, turn=TURNS, partial=GREEK),
    st.builds(Undone, snapshot=st.just("tree"), turn=TURNS, reason=GREEK),
    st.builds(Finished, reason=st.just("accepted"), message=GREEK),
)


def shown(prompt: Prompt) -> list[str]:
    """Every text of a prompt."""
    texts = [prompt.system]
    for message in prompt.messages:
        match message:
            case FromAgent():
                texts += [message.text, *(thought.text for thought in message.thinking)]
                texts += [call.arguments for call in message.calls]
            case FromUser() | FromTool():
                texts.append(message.text)
    return texts


@example(facts=[Undone(snapshot="tree", turn=0, reason="")], member=POOL[-1], number=0)
@given(facts=st.lists(FACTS, max_size=30), member=st.sampled_from(POOL), number=TURNS)
def test_whatever_happened_a_prompt_is_built_and_says_nothing_that_is_not_in_the_log(
    facts: list[Event], member: Member, number: int
) -> None:
    events = [opened(), asked(), *facts, assigned(number, member.name)]
    built = prompt_of(events, member, ())
    # what was said in the session is Greek here: each stretch of it must stand in the log as it is
    said = "\n".join(event.model_dump_json() for event in events).replace("\\n", "\n").replace("\\\\n", "\n")
    for text in shown(built):
        for stretch in re.findall(r"[α-ω]+", text):
            assert stretch in said
    roles = ("worker", "brief/worker", "brief/answer")
    endings = [prompts.load(name).removeprefix("{named}") for name in roles]
    assert any(ending in built.messages[-1].text for ending in endings), "it ends with what is to be done"


@given(facts=st.lists(FACTS, max_size=30), member=st.sampled_from(POOL))
def test_calls_and_results_of_a_history_pair_up_where_the_log_says_so(facts: list[Event], member: Member) -> None:
    events = [opened(), asked(), *facts, assigned(3, member.name)]
    for before, after in pairwise(prompt_of(events, member, ()).messages):
        if isinstance(after, FromTool):
            assert isinstance(before, FromAgent | FromTool)


def test_an_agent_with_native_tools_reads_the_whole_history() -> None:
    call = Call.make("t1", "read", path="a.py")
    events = [opened(), asked(), *checked(0, ok=False), assigned(1, "strong"), replied(1, "strong", "I look", call)]
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


def test_a_small_agent_reads_one_brief_with_the_tests_and_the_files() -> None:
    read = Call.make("e1-0", "read", path="a.py", plain=True)
    events = [opened(), asked(), *checked(0, ok=False), assigned(1, "small"), *ran(1, read, "x = 1", by="evidence")]
    (brief,) = prompt_of(events, SMALL, ()).messages
    assert isinstance(brief, FromUser)
    for part in ("fix the tests", "`a.py`", "```\nx = 1\n```", "`pytest`", "1 failed, 2 passed in 0.1s"):
        assert part in brief.text
    assert brief.text.endswith("The code in `a.py`" + prompts.load("brief/worker").removeprefix("{named}"))


def test_a_skill_that_the_user_named_stands_below_the_request_for_whoever_reads_it() -> None:
    request = Asked(text="cut 1.2", typed="/skill release cut 1.2", skill="The skill `release`: tag it.")
    for member in (SMALL, STRONG):
        first = prompt_of([opened(), request, assigned(1, member.name)], member, ()).messages[0]
        assert isinstance(first, FromUser)
        assert "cut 1.2\n\nThe skill `release`: tag it." in first.text and "/skill" not in first.text


def test_a_small_worker_reads_what_was_criticised_and_not_what_failed_and_is_gone() -> None:
    events = [
        opened(),
        asked(),
        *checked(0, ok=False),
        assigned(1, "small"),
        replied(1, "small", "I tried", write("w")),
    ]
    events += [*ran(1, write("w"), path="a.py"), *checked(1, ok=False)]
    events += [assigned(2, "strong", "verifier"), replied(2, "strong", "REVISE: look at line 3"), assigned(3, "coder")]
    (brief,) = prompt_of(events, CODER, ()).messages
    assert isinstance(brief, FromUser)
    assert "REVISE: look at line 3" in brief.text
    assert "I tried" not in brief.text


def test_a_draw_that_was_rolled_back_is_not_shown_and_the_next_one_is_sampled() -> None:
    events = [opened(), asked(), *checked(0, ok=False), assigned(1, "coder"), replied(1, "coder", "secret", write("w"))]
    events += [*ran(1, write("w"), path="a.py"), *checked(1, ok=False), rolled_back(1)]
    built = prompt_of(events, CODER, ())
    assert not any("secret" in text for text in shown(built))
    assert (built.temperature, built.seed) == (0.8, 1)
    first = prompt_of(events[:5], CODER, ())
    assert (first.temperature, first.seed) == (None, None)


def test_a_second_turn_of_the_same_agent_in_the_same_role_is_another_draw() -> None:
    events = [opened(), asked(), *checked(0, ok=False), assigned(1, "small"), replied(1, "small", "no idea")]
    assert prompt_of([*events, assigned(2, "small")], SMALL, ()).seed == 1
    assert prompt_of([*events, assigned(2, "small", "verifier")], SMALL, ()).seed is None


def test_a_refused_call_and_a_killed_one_say_so() -> None:
    no, killed = Call.make("t1", "bash", command="rm x"), Call.make("t2", "bash", command="make")
    events = [opened(), asked(), assigned(1, "strong"), replied(1, "strong", "", no, killed)]
    events += [
        Permitted(turn=1, call=no, allowed=False, by="headless", reason="it deletes"),
        Permitted(turn=1, call=killed, allowed=True, by="policy"),
    ]
    results = [message for message in prompt_of(events, STRONG, ()).messages if isinstance(message, FromTool)]
    assert [(result.call, result.ok) for result in results] == [("t1", False), ("t2", False)]
    assert "it deletes" in results[0].text
    assert "not run again" in results[1].text


def test_the_standing_instructions_are_in_the_system_text() -> None:
    built = prompt_of([opened(), asked(), assigned(1, "strong")], STRONG, (), "Use tabs.")
    assert "Use tabs." in built.system


def test_a_second_request_comes_after_the_first_and_its_answer() -> None:
    events = [opened(), asked("what is it?"), assigned(1, "small"), replied(1, "small", "a parser")]
    events += [Finished(reason="answered"), asked("fix it"), assigned(1, "small")]
    (brief,) = prompt_of(events, SMALL, ()).messages
    assert isinstance(brief, FromUser)
    assert "(Before, the user asked: what is it?\nand got: a parser)\n\nfix it" in brief.text


def conversation(*exchanges: tuple[str, str]) -> list[Event]:
    events: list[Event] = [opened()]
    for question, answer in exchanges:
        events += [
            asked(question, judged=False),
            assigned(1, "small"),
            replied(1, "small", answer),
            Finished(reason="answered"),
        ]
    return events


def brief_of(events: list[Event], newest: Asked) -> str:
    (brief,) = prompt_of([*events, newest, assigned(1, "small")], SMALL, ()).messages
    assert isinstance(brief, FromUser)
    return brief.text


def test_an_earlier_request_that_got_no_answer_is_not_said_to_have_got_one() -> None:
    text = brief_of([opened(), Asked(text="what is it?")], Asked(text="and now?"))
    assert "(Before, the user asked: what is it?)\n\nand now?" in text


def test_a_conversation_in_words_is_told_in_its_order() -> None:
    events = conversation(("I am Ada.", "Hello, Ada!"), ("What is a heap?", "A tree."))
    first, second = (
        "the user asked: I am Ada.\nand got: Hello, Ada!",
        "the user asked: What is a heap?\nand got: A tree.",
    )
    assert f"(Before, {first}\nThen {second})\n\nWho am I?" in brief_of(events, asked("Who am I?", judged=False))


def test_what_the_user_took_back_since_is_told_behind_the_answer() -> None:
    undone = Undone(snapshot="tree0", reason=standing.UNDONE.format(tree="abc"))
    redone = Undone(snapshot="abc", reason=standing.REDONE.format(tree="def"))
    events = [*conversation(("add it", "It is added.")), undone]
    asks = "(Before, the user asked: add it\nand got: It is added.\n{said})\n\nfix it"
    assert asks.format(said=standing.TAKEN) in brief_of(events, asked("fix it"))
    both = f"{standing.TAKEN}\n{standing.BROUGHT}"
    assert asks.format(said=both) in brief_of([*events, redone], asked("fix it"))


def test_beside_tests_that_judge_only_the_newest_exchange_is_told() -> None:
    events = conversation(("I am Ada.", "Hello, Ada!"), ("What is a heap?", "A tree."))
    text = brief_of(events, asked("fix the tests"))
    assert "What is a heap?" in text
    assert "Ada" not in text


def test_of_a_long_conversation_the_newest_part_is_told() -> None:
    events = conversation(*((f"question {number}", f"answer {number} " + "word " * 500) for number in range(20)))
    text = brief_of(events, asked("and now?", judged=False))
    assert "question 19" in text
    assert "question 16" in text
    assert "question 3\n" not in text
    assert len(text) < 6000


@pytest.mark.parametrize(("name", "sent"), [("strong", True), ("other", False)])
def test_thinking_goes_back_to_its_author_and_to_nobody_else(name: str, sent: bool) -> None:
    block = {"type": "thinking", "thinking": "a hidden thought", "signature": "signed"}
    call = Call.make("t1", "read", path="a.py")
    thought = Thinking(text="a hidden thought", data=json.dumps(block))
    reply = Replied(turn=1, agent="strong", thinking=(thought,), calls=(call,))
    events = [opened(), asked(), assigned(1, "strong"), reply, *ran(1, call)]
    built = prompt_of(events, STRONG, ())
    access = Access(name=name, model="m", base_url="http://127.0.0.1/v1")
    assert ("a hidden thought" in json.dumps(anthropic.encode(built, access, Dialect()))) is sent
    assert "a hidden thought" not in json.dumps(openai.encode(built, access, Dialect()))


def test_a_failed_turn_and_an_interrupted_one_are_said() -> None:
    events = [opened(), asked(), assigned(1, "small"), Failed(turn=1, what="small", kind="network", message="no line")]
    events += [assigned(2, "coder"), Interrupted(turn=2), assigned(3, "strong")]
    texts = shown(prompt_of(events, STRONG, ()))
    assert "[small failed: no line]" in texts
    assert "[The user interrupted this turn.]" in texts


def test_a_cut_between_turns_is_not_told_as_a_cut_turn() -> None:
    events = [opened(), asked(), assigned(1, "small"), replied(1, "small", "done"), Interrupted(turn=0)]
    texts = shown(prompt_of([*events, assigned(2, "strong")], STRONG, ()))
    assert "[The user interrupted this turn.]" not in texts
    assert views.turns(events)[-1].text == "done"


@pytest.mark.parametrize("plan", [0, 1])
def test_an_agent_is_told_what_the_user_undid_and_brought_back(plan: int) -> None:
    done: list[Event] = [opened(), asked("add it"), assigned(1, "strong"), replied(1, "strong", "", write("w"))]
    done += [*ran(1, write("w"), path="a.py"), replied(1, "strong", "added"), Finished(reason="accepted")]
    undone = Undone(snapshot="tree0", reason=standing.UNDONE.format(tree="abc"))
    redone = Undone(snapshot="abc", reason=standing.REDONE.format(tree="def"))

    def told(*facts: Event) -> tuple[Message, ...]:
        now = assigned(1, "strong").model_copy(update={"plan": plan})
        return prompt_of([*done, *facts, asked("and now?"), now], STRONG, ()).messages

    *before, request, role = told()
    gone, back = FromUser(text=put_back.UNDONE), FromUser(text=put_back.REDONE)
    assert told(undone) == (*before, gone, request, role)
    assert told(undone, redone) == (*before, gone, back, request, role)


def test_what_was_undone_before_a_stopped_request_went_on_is_told_where_it_was() -> None:
    done: list[Event] = [opened(), asked("add it"), Undone(snapshot="tree0", reason="undone by the user")]
    done += [assigned(1, "strong"), replied(1, "strong", "one"), Finished(reason="turn_limit")]
    done += [Undone(snapshot="tree0", reason="undone by the user"), opened(), assigned(2, "strong")]
    messages = prompt_of(done, STRONG, ()).messages
    role, gone = FromUser(text=prompts.load("worker")), FromUser(text=put_back.UNDONE)
    one = FromAgent(agent="strong", text="one")
    assert messages == (FromUser(text="add it"), gone, role, one, gone, role)


def test_an_earlier_request_is_told_as_its_own_session_has_it() -> None:
    """Sessions that share their first facts and then part (a fork, two rollouts) do not read each other's."""
    first = asked("what is it?", judged=False)
    parts = [[first, assigned(1, "strong"), replied(1, "strong", text)] for text in ("a parser", "a lexer")]
    for facts, said in zip(parts, ("a parser", "a lexer"), strict=True):
        built = prompt_of([opened(), *facts, asked("fix it"), assigned(1, "strong")], STRONG, ())
        assert FromAgent(agent="strong", text=said) in built.messages


def test_a_small_worker_may_write_all_the_code_it_was_shown_anew() -> None:
    events = [opened(), asked(), *checked(0, ok=False), assigned(1, "small")]
    for number, (path, size) in enumerate({"a.py": 4000, "b.py": 2000, "SPEC.md": 9000}.items()):
        read = Call.make(f"e1-{number}", "read", path=path, plain=True)
        events += ran(1, read, "x" * size, by="evidence")
    assert prompt_of(events, SMALL, ()).max_tokens == 3000


def test_a_small_worker_is_not_told_that_code_is_wrong_while_the_tests_pass() -> None:
    for ok, name in ((True, "brief/answer"), (False, "brief/worker")):
        (brief,) = prompt_of([opened(), asked(), *checked(0, ok=ok), assigned(1, "small")], SMALL, ()).messages
        assert isinstance(brief, FromUser)
        assert brief.text.endswith(prompts.load(name).removeprefix("{named}"))


def test_of_two_files_that_may_be_to_blame_a_small_worker_is_asked_for_one_at_a_time() -> None:
    start: list[Event] = [opened(), asked(), *checked(0, ok=False), assigned(1, "coder")]
    for number, path in enumerate(("a.py", "b.py")):
        start += ran(1, Call.make(f"e1-{number}", "read", path=path, plain=True), "x = 1", by="evidence")
    draw = [replied(1, "coder", "", write("w")), *ran(1, write("w"), path="a.py"), *checked(1, ok=False)]
    built = [prompt_of([*start, *[*draw, rolled_back(1)] * number], CODER, ()) for number in range(3)]
    assert [prompt.target for prompt in built] == ["a.py", "b.py", ""]
    endings = [shown(prompt)[-1].rpartition("The code in ")[2].partition(" does")[0] for prompt in built]
    assert endings == ["`a.py`", "`b.py`", "`a.py` or `b.py`"]


def test_of_a_long_file_a_small_worker_is_shown_the_function_that_the_failing_test_calls() -> None:
    function = "def total(prices):\n    return 0"
    others = "".join(f"\n\ndef other_{number}(value):\n    return value + {number}\n" for number in range(300))
    failing = ran(0, Call(id="e0", tool="run_tests"), "assert total([1]) == 1\n1 failed", ok=False, by="evidence")
    writer = CODER.model_copy(update={"protocol": "text"})
    read = ran(1, Call.make("e1-0", "read", path="a.py", plain=True), f"{function}\n{others}", by="evidence")
    prompt = prompt_of([opened(), asked(), *failing, assigned(1, "coder"), *read], writer, ())
    assert (prompt.target, prompt.part) == ("a.py", function)
    (brief,) = prompt.messages
    assert isinstance(brief, FromUser)
    assert f"Of the file `a.py`:\n```\n{function}\n```" in brief.text
    assert "other_7" not in brief.text
    start = [opened(), asked(), *checked(0, ok=True), assigned(1, "coder"), *read]
    assert prompt_of(start, writer, ()).part == "", "nothing fails"
    assert prompt_of([opened(), asked(), *failing, assigned(1, "coder"), *read], CODER, ()).part == "", "a schema"


def test_a_file_with_two_functions_to_blame_is_mended_once_and_then_each_is_written_anew() -> None:
    writer = CODER.model_copy(update={"protocol": "text", "attempts": 9})
    file = f"{TOTAL}\n\n\n{TOTAL.replace('total', 'sum_of')}\n"
    events = began("fix it", {"a.py": file}, output="assert total([1]) == sum_of([1])\n1 failed")
    draw = [
        replied(1, "coder", "", write("w")),
        *ran(1, write("w"), path="a.py"),
        *checked(1, ok=False),
        rolled_back(1),
    ]
    built = [prompt_of([*events, *draw * number], writer, ()) for number in range(4)]
    assert [(bool(prompt.unwritten), prompt.seed) for prompt in built] == [
        (False, None),
        (True, None),
        (True, None),
        (False, 3),
    ]
    assert shown(built[1]) != shown(built[2])


def test_what_came_back_as_it_was_is_not_asked_for_again_while_there_is_another_way() -> None:
    writer = CODER.model_copy(update={"protocol": "text", "attempts": 9})
    events = began(
        "fix it", {"a.py": f"{TOTAL}\n", "b.py": TOTAL.replace("total", "sum_of")}, output="total(1)\n1 failed"
    )
    changed = [
        replied(1, "coder", "", write("w")),
        *ran(1, write("w"), path="a.py"),
        *checked(1, ok=False),
        rolled_back(1),
    ]
    vain = [replied(1, "coder", "", write("w")), *ran(1, write("w")), rolled_back(1)]

    def way(*draws: list[Event]) -> tuple[str, bool, int | None]:
        prompt = prompt_of([*events, *(fact for draw in draws for fact in draw)], writer, ())
        return prompt.target, bool(prompt.unwritten), prompt.seed

    assert way() == ("a.py", False, None)
    assert way(vain) == ("b.py", False, None)
    assert way(vain, changed) == ("a.py", True, None)
    assert way(vain, changed, changed) == ("b.py", True, None)
    assert way(vain, changed, changed, changed) == ("", False, None)
    every = [vain, *[changed] * 4]
    assert way(*every) == ("b.py", False, 5), "a.py was handed back as it was"
    assert way(*every, changed) == ("a.py", True, 6)
    assert way(*[vain] * 5) == ("a.py", False, 5), "nothing else is left"


def test_a_small_verifier_of_an_answer_reads_the_answer_and_has_room_to_work_it_out() -> None:
    start: list[Event] = [
        opened(),
        asked("What is 2 + 3?", judged=False),
        assigned(1, "small"),
        replied(1, "small", "6."),
    ]
    again: list[Event] = [assigned(2, "small", "verifier"), replied(2, "small", "REVISE"), assigned(3, "coder")]
    answered = [*start, *again, replied(3, "coder", "It is 5.")]
    for events, answer in ((start, "6."), (answered, "It is 5.")):
        prompt = prompt_of([*events, assigned(9, "small", "verifier")], SMALL, ())
        (brief,) = prompt.messages
        assert isinstance(brief, FromUser)
        assert f"This was answered:\n{answer}\n\n{prompts.load('brief/verifier_answer')}" in brief.text
        assert prompt.max_tokens == 400
    changed = [*start, *ran(1, write("w"), path="a.py"), assigned(2, "small", "verifier")]
    prompt = prompt_of(changed, SMALL, ())
    assert not any("This was answered" in text for text in shown(prompt)), "its diff is read"
    assert prompt.max_tokens == 200


OTHERS = "".join(f"\n\ndef other_{number}(value):\n    return value + {number}\n" for number in range(900))
TOTAL = 'def total(prices):\n    """What all come to."""\n    return 0'


def test_a_small_worker_is_told_what_the_code_it_shows_has_to_define_and_nothing_of_code_it_is_not_shown() -> None:
    says = ("from math import isclose", "assert isclose(twice(2), half(8))")
    question = asked("Show the code.", judged=False, command=None).model_copy(update={"assertions": says})
    code = "```python\ndef twice(x):\n    return x\n```"
    tried = ran(1, Call.make("e", "try_answer", code="", assertions=[]), "1 failed", ok=False, by="evidence")
    events = [opened(), question, assigned(1, "coder"), replied(1, "coder", code), *tried, assigned(2, "small")]
    (_, brief) = shown(prompt_of(events, SMALL, ()))
    told = prompts.fill(prompts.load("brief/answer_code"), names="`twice` and `half`")
    assert brief.endswith(told)
    assert "failed" not in brief
    native = prompt_of([*events[:-1], assigned(2, "strong")], STRONG, ())
    assert "do NOT all hold.]\n1 failed" in "".join(shown(native))


def began(text: str, files: dict[str, str], *, judged: bool = True, output: str = "1 failed") -> list[Event]:
    """A request with the files that fugu read for its first turn."""
    failing = ran(0, Call(id="e0", tool="run_tests"), output, ok=False, by="evidence") if judged else []
    events: list[Event] = [opened(), asked(text, judged=judged), *failing, assigned(1, "coder")]
    for number, (path, content) in enumerate(files.items()):
        events += ran(1, Call.make(f"e1-{number}", "read", path=path, plain=True), content, by="evidence")
    return events


def test_of_a_file_too_long_to_be_shown_a_small_worker_sees_the_function_to_blame_and_no_more() -> None:
    writer = CODER.model_copy(update={"protocol": "text", "attempts": 9})
    files = {"a.py": f"{TOTAL}\n{OTHERS}", "b.py": "x = 1\n"}
    events = began("fix it", files, output="assert total([1]) == 1\n1 failed")
    draw = [replied(1, "coder", "", write("w")), *ran(1, write("w"), path="a.py"), *checked(1, ok=False)]
    built = [prompt_of([*events, *[*draw, rolled_back(1)] * number], writer, ()) for number in range(4)]
    assert [(prompt.target, bool(prompt.part), bool(prompt.unwritten)) for prompt in built] == [
        ("a.py", True, False),
        ("b.py", False, False),
        ("a.py", True, True),
        ("a.py", True, False),
    ], "b.py alone is written whole, and nothing asks for both"
    assert built[0].part == TOTAL
    assert shown_files(built[0]) == {"a.py": f"{TOTAL}\n"}, "other code would be written again"
    assert shown_files(built[1]) == {"b.py": "x = 1\n"}
    assert not any("other_7" in text for prompt in built for text in shown(prompt))
    assert all(prompt.max_tokens < 2000 for prompt in built)
    schema = prompt_of(events, CODER, ())
    assert (schema.target, shown_files(schema)) == ("", {"b.py": "x = 1\n"}), "its edits are not asked for by parts"


def test_of_a_long_file_that_no_failure_leads_into_the_function_that_the_request_names_is_shown() -> None:
    writer = CODER.model_copy(update={"protocol": "text"})
    files = {"a.py": f"{TOTAL}\n{OTHERS}"}
    for judged in (True, False):
        text = "Correct total in a.py" if judged else "Add a docstring to total in a.py"
        prompt = prompt_of(began(text, files, judged=judged), writer, ())
        assert (prompt.target, prompt.part, prompt.open_ended) == ("a.py", TOTAL, False)
        assert any(f"Of the file `a.py`:\n```\n{TOTAL}\n```" in text for text in shown(prompt))
    for text in ("Correct a.py", "Rename other_1 to other_2 in a.py", "What does total in a.py do?"):
        prompt = prompt_of(began(text, files, judged=False), writer, ())
        assert (prompt.target, prompt.part, shown_files(prompt)) == ("", "", {}), "it is not asked to write it anew"


def test_a_long_file_is_not_copied_into_the_history_that_other_agents_read() -> None:
    events = [*began("fix it", {"a.py": OTHERS, "b.py": "x = 1"}), replied(1, "coder", "done"), assigned(2, "strong")]
    texts = shown(prompt_of(events, STRONG, ()))
    assert any(f"[read a.py]\n({len(OTHERS):,} characters)" in text and "x = 1" in text for text in texts)
    assert not any("other_7" in text for text in texts)


def test_what_mending_did_not_mend_is_asked_for_anew_and_then_drawn_by_chance() -> None:
    file = 'def total(prices):\n    """What all come to."""\n    return 0\n'
    failing = ran(0, Call(id="e0", tool="run_tests"), "assert total([1]) == 1\n1 failed", ok=False, by="evidence")
    start: list[Event] = [opened(), asked(), *failing, assigned(1, "coder")]
    start += ran(1, Call.make("e1-0", "read", path="a.py", plain=True), file, by="evidence")
    draw = [replied(1, "coder", "", write("w")), *ran(1, write("w"), path="a.py"), *failing]
    writer = CODER.model_copy(update={"protocol": "text", "attempts": 5})
    built = [prompt_of([*start, *[*draw, rolled_back(1)] * number], writer, ()) for number in range(4)]
    blank = "raise NotImplementedError  # TODO: implement"
    assert [prompt.unwritten for prompt in built] == ["", blank, "", blank]
    assert [(prompt.temperature, prompt.seed) for prompt in built] == [(None, None)] * 2 + [(0.8, 2), (0.8, 3)]
    assert [any(blank in text for text in shown(prompt)) for prompt in built] == [False, True] * 2
    assert [any("is not finished" in text for text in shown(prompt)) for prompt in built] == [False, True] * 2
    schema = CODER.model_copy(update={"attempts": 5})
    assert not prompt_of([*start, *draw, rolled_back(1)], schema, ()).unwritten
    other = [assigned(1, "small"), replied(1, "small", "I cannot."), assigned(2, "coder")]
    read = ran(2, Call.make("e2-0", "read", path="a.py", plain=True), file, by="evidence")
    follows = prompt_of([opened(), asked(), *failing, *other, *read], writer, ())
    assert (follows.unwritten, follows.temperature) == (blank, None), "another model has not mended it"


def test_of_two_files_each_is_mended_then_each_written_anew_and_both_at_once_are_last() -> None:
    said = 'def {}(x):\n    """What it is of x."""\n    return x\n'
    failing = ran(0, Call(id="e0", tool="run_tests"), "assert f(1) == g(2)\n2 failed", ok=False, by="evidence")
    writer = CODER.model_copy(update={"protocol": "text", "attempts": 9})
    both = {"a.py": said.format("f"), "b.py": said.format("g")}

    def reading(turn: int, files: dict[str, str]) -> list[Event]:
        calls = [(Call.make(f"e{turn}-{path}", "read", path=path, plain=True), text) for path, text in files.items()]
        return [fact for call, text in calls for fact in ran(turn, call, text, by="evidence")]

    start = [opened(), asked(), *failing, assigned(1, "coder"), *reading(1, both)]
    draw = [replied(1, "coder", "", write("w")), *ran(1, write("w"), path="a.py"), *failing]
    built = [prompt_of([*start, *[*draw, rolled_back(1)] * number], writer, ()) for number in range(6)]
    assert [prompt.target for prompt in built] == ["a.py", "b.py", "a.py", "b.py", "", "a.py"]
    assert [bool(prompt.unwritten) for prompt in built] == [False, False, True, True, False, False]
    assert [prompt.seed for prompt in built] == [None] * 5 + [5]
    assert all(any("def f" in text and "def g" in text for text in shown(prompt)) for prompt in built)

    other = [opened(), asked(), *failing, assigned(1, "small"), replied(1, "small", "I cannot."), assigned(2, "coder")]
    follows = prompt_of([*other, *reading(2, both)], writer, ())
    assert (follows.target, bool(follows.unwritten)) == ("a.py", True), "another model has mended neither"

    better = ran(1, Call(id="e1-9", tool="run_tests"), "assert g(2) == 2\n1 failed", ok=False, by="evidence")
    kept = [*start, *draw, rolled_back(1), *draw[: -len(failing)], *better, assigned(2, "coder")]
    after = prompt_of([*kept, *reading(2, {"b.py": both["b.py"]})], writer, ())
    assert (after.unwritten, after.seed) == ("", None), "what is left is another question"


def test_what_a_test_command_prints_is_not_taken_for_the_file_it_names() -> None:
    events = [opened(), asked(command="pytest --doctest-modules a.py"), *checked(0, ok=False), assigned(1, "small")]
    events += ran(1, Call.make("e1-0", "read", path="a.py", plain=True), "x = 1", by="evidence")
    assert shown_files(prompt_of(events, SMALL, ())) == {"a.py": "x = 1\n"}


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("Write a README section that explains total", "README.md"),
        ("add an entry to the changelog", "CHANGELOG.rst"),
        ("Add the version to README and changelog", ""),
        ("Explain the readme", ""),
        ("Add what cart.js does to the README", ""),
    ],
)
def test_a_document_that_is_called_by_its_name_is_the_file_that_is_asked_for(text: str, target: str) -> None:
    shown = ["cart.js", "README.md", "CHANGELOG.rst"]
    assert brief_files.target(asked(text, judged=False), shown) == target
