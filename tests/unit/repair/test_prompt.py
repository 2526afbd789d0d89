"""What a small model reads: one message with all that matters, and what it is asked to write."""

import pytest

from fugu_cli import prompts
from fugu_cli.messages import Call, FromUser
from fugu_cli.repair import intent
from fugu_cli.session import open_work
from fugu_cli.session.events import Asked, Event, Finished, Undone
from tests.facts import (
    CODER,
    SMALL,
    asked,
    assigned,
    checked,
    opened,
    prompt_of,
    ran,
    replied,
    rolled_back,
    shown,
    write,
)


def test_a_small_agent_reads_one_brief_with_the_tests_and_the_files() -> None:
    read = Call.make("e1-0", "read", path="a.py", plain=True)
    events = [
        opened(),
        asked(),
        *checked(0, ok=False),
        assigned(1, "small"),
        *ran(1, read, "x = 1", by="evidence"),
    ]
    (brief,) = prompt_of(events, SMALL, ()).messages
    assert isinstance(brief, FromUser)
    for part in (
        "fix the tests",
        "`a.py`",
        "```\nx = 1\n```",
        "`pytest`",
        "1 failed, 2 passed in 0.1s",
    ):
        assert part in brief.text
    assert brief.text.endswith(
        "The code in `a.py`" + prompts.load("brief/worker").removeprefix("{named}")
    )


def test_a_small_worker_reads_what_was_criticised_and_not_what_failed_and_is_gone() -> None:
    events = [
        opened(),
        asked(),
        *checked(0, ok=False),
        assigned(1, "small"),
        replied(1, "small", "I tried", write("w")),
    ]
    events += [*ran(1, write("w"), path="a.py"), *checked(1, ok=False)]
    events += [
        assigned(2, "strong", "verifier"),
        replied(2, "strong", "REVISE: look at line 3"),
        assigned(3, "coder"),
    ]
    (brief,) = prompt_of(events, CODER, ()).messages
    assert isinstance(brief, FromUser)
    assert "REVISE: look at line 3" in brief.text
    assert "I tried" not in brief.text


def test_a_draw_that_was_rolled_back_is_not_shown_and_the_next_one_is_sampled() -> None:
    events = [
        opened(),
        asked(),
        *checked(0, ok=False),
        assigned(1, "coder"),
        replied(1, "coder", "secret", write("w")),
    ]
    events += [*ran(1, write("w"), path="a.py"), *checked(1, ok=False), rolled_back(1)]
    built = prompt_of(events, CODER, ())
    assert not any("secret" in text for text in shown(built))
    assert (built.temperature, built.seed) == (0.8, 1)
    first = prompt_of(events[:5], CODER, ())
    assert (first.temperature, first.seed) == (None, None)


def test_a_second_turn_of_the_same_agent_in_the_same_role_is_another_draw() -> None:
    events = [
        opened(),
        asked(),
        *checked(0, ok=False),
        assigned(1, "small"),
        replied(1, "small", "no idea"),
    ]
    assert prompt_of([*events, assigned(2, "small")], SMALL, ()).seed == 1
    assert prompt_of([*events, assigned(2, "small", "verifier")], SMALL, ()).seed is None


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
    assert f"(Before, {first}\nThen {second})\n\nWho am I?" in brief_of(
        events, asked("Who am I?", judged=False)
    )


def test_what_the_user_took_back_since_is_told_behind_the_answer() -> None:
    undone = Undone(snapshot="tree0")
    redone = Undone(snapshot="abc", kind="redo")
    events = [*conversation(("add it", "It is added.")), undone]
    asks = "(Before, the user asked: add it\nand got: It is added.\n{said})\n\nfix it"
    assert asks.format(said=open_work.UNDO_NOTICE) in brief_of(events, asked("fix it"))
    left = undone.model_copy(update={"nested": ("vendor/lib",)})
    but = (
        f"{open_work.UNDO_NOTICE} But: left alone, because it is a repository of its own: "
        f"vendor/lib."
    )
    assert asks.format(said=but) in brief_of([*events[:-1], left], asked("fix it"))
    both = f"{open_work.UNDO_NOTICE}\n{open_work.REDO_NOTICE}"
    assert asks.format(said=both) in brief_of([*events, redone], asked("fix it"))


def test_beside_tests_that_judge_only_the_newest_exchange_is_told() -> None:
    events = conversation(("I am Ada.", "Hello, Ada!"), ("What is a heap?", "A tree."))
    text = brief_of(events, asked("fix the tests"))
    assert "What is a heap?" in text
    assert "Ada" not in text


def test_of_a_long_conversation_the_newest_part_is_told() -> None:
    events = conversation(
        *((f"question {number}", f"answer {number} " + "word " * 500) for number in range(20))
    )
    text = brief_of(events, asked("and now?", judged=False))
    assert "question 19" in text
    assert "question 16" in text
    assert "question 3\n" not in text
    assert len(text) < 6000


def test_a_small_worker_may_write_all_the_code_it_was_shown_anew() -> None:
    events = [opened(), asked(), *checked(0, ok=False), assigned(1, "small")]
    for number, (path, size) in enumerate({"a.py": 4000, "b.py": 2000, "SPEC.md": 9000}.items()):
        read = Call.make(f"e1-{number}", "read", path=path, plain=True)
        events += ran(1, read, "x" * size, by="evidence")
    assert prompt_of(events, SMALL, ()).max_tokens == 3000


def test_a_small_worker_is_not_told_that_code_is_wrong_while_the_tests_pass() -> None:
    for ok, name in ((True, "brief/answer"), (False, "brief/worker")):
        (brief,) = prompt_of(
            [opened(), asked(), *checked(0, ok=ok), assigned(1, "small")], SMALL, ()
        ).messages
        assert isinstance(brief, FromUser)
        assert brief.text.endswith(prompts.load(name).removeprefix("{named}"))


def test_of_two_files_that_may_be_to_blame_a_small_worker_is_asked_for_one_at_a_time() -> None:
    start: list[Event] = [opened(), asked(), *checked(0, ok=False), assigned(1, "coder")]
    for number, path in enumerate(("a.py", "b.py")):
        start += ran(
            1, Call.make(f"e1-{number}", "read", path=path, plain=True), "x = 1", by="evidence"
        )
    draw = [
        replied(1, "coder", "", write("w")),
        *ran(1, write("w"), path="a.py"),
        *checked(1, ok=False),
    ]
    built = [
        prompt_of([*start, *[*draw, rolled_back(1)] * number], CODER, ()) for number in range(3)
    ]
    assert [prompt.target for prompt in built] == ["a.py", "b.py", ""]
    endings = [
        shown(prompt)[-1].rpartition("The code in ")[2].partition(" does")[0] for prompt in built
    ]
    assert endings == ["`a.py`", "`b.py`", "`a.py` or `b.py`"]


def test_of_a_long_file_a_small_worker_is_shown_the_function_that_the_failing_test_calls() -> None:
    function = "def total(prices):\n    return 0"
    others = "".join(
        f"\n\ndef other_{number}(value):\n    return value + {number}\n" for number in range(300)
    )
    failing = ran(
        0,
        Call(id="e0", tool="run_tests"),
        "assert total([1]) == 1\n1 failed",
        ok=False,
        by="evidence",
    )
    writer = CODER.model_copy(update={"protocol": "text"})
    read = ran(
        1,
        Call.make("e1-0", "read", path="a.py", plain=True),
        f"{function}\n{others}",
        by="evidence",
    )
    prompt = prompt_of([opened(), asked(), *failing, assigned(1, "coder"), *read], writer, ())
    assert (prompt.target, prompt.part) == ("a.py", function)
    (brief,) = prompt.messages
    assert isinstance(brief, FromUser)
    assert f"Of the file `a.py`:\n```\n{function}\n```" in brief.text
    assert "other_7" not in brief.text
    start = [opened(), asked(), *checked(0, ok=True), assigned(1, "coder"), *read]
    assert prompt_of(start, writer, ()).part == "", "nothing fails"
    assert (
        prompt_of([opened(), asked(), *failing, assigned(1, "coder"), *read], CODER, ()).part == ""
    ), "a schema"


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
        "fix it",
        {"a.py": f"{TOTAL}\n", "b.py": TOTAL.replace("total", "sum_of")},
        output="total(1)\n1 failed",
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
    again: list[Event] = [
        assigned(2, "small", "verifier"),
        replied(2, "small", "REVISE"),
        assigned(3, "coder"),
    ]
    answered = [*start, *again, replied(3, "coder", "It is 5.")]
    for events, answer in ((start, "6."), (answered, "It is 5.")):
        prompt = prompt_of([*events, assigned(9, "small", "verifier")], SMALL, ())
        (brief,) = prompt.messages
        assert isinstance(brief, FromUser)
        assert (
            f"This was answered:\n{answer}\n\n{prompts.load('brief/verifier_answer')}" in brief.text
        )
        assert prompt.max_tokens == 400
    changed = [*start, *ran(1, write("w"), path="a.py"), assigned(2, "small", "verifier")]
    prompt = prompt_of(changed, SMALL, ())
    assert not any("This was answered" in text for text in shown(prompt)), "its diff is read"
    assert prompt.max_tokens == 400


OTHERS = "".join(
    f"\n\ndef other_{number}(value):\n    return value + {number}\n" for number in range(900)
)


TOTAL = 'def total(prices):\n    """What all come to."""\n    return 0'


def began(
    text: str, files: dict[str, str], *, judged: bool = True, output: str = "1 failed"
) -> list[Event]:
    """A request with the files that fugu read for its first turn."""
    failing = (
        ran(0, Call(id="e0", tool="run_tests"), output, ok=False, by="evidence") if judged else []
    )
    events: list[Event] = [opened(), asked(text, judged=judged), *failing, assigned(1, "coder")]
    for number, (path, content) in enumerate(files.items()):
        events += ran(
            1, Call.make(f"e1-{number}", "read", path=path, plain=True), content, by="evidence"
        )
    return events


def test_of_a_file_too_long_to_be_shown_a_small_worker_sees_the_function_to_blame_and_no_more() -> (
    None
):
    writer = CODER.model_copy(update={"protocol": "text", "attempts": 9})
    files = {"a.py": f"{TOTAL}\n{OTHERS}", "b.py": "x = 1\n"}
    events = began("fix it", files, output="assert total([1]) == 1\n1 failed")
    draw = [
        replied(1, "coder", "", write("w")),
        *ran(1, write("w"), path="a.py"),
        *checked(1, ok=False),
    ]
    built = [
        prompt_of([*events, *[*draw, rolled_back(1)] * number], writer, ()) for number in range(4)
    ]
    assert [(prompt.target, bool(prompt.part), bool(prompt.unwritten)) for prompt in built] == [
        ("a.py", True, False),
        ("b.py", False, False),
        ("a.py", True, True),
        ("a.py", True, False),
    ], "b.py alone is written whole, and nothing asks for both"
    assert built[0].part == TOTAL
    assert not any("x = 1" in text for text in shown(built[0])), "other code would be written again"
    assert any("The file `b.py`:\n```\nx = 1\n```" in text for text in shown(built[1]))
    assert not any("other_7" in text for prompt in built for text in shown(prompt))
    assert all(prompt.max_tokens < 2000 for prompt in built)
    schema = prompt_of(events, CODER, ())
    assert (schema.target, schema.part) == ("", ""), "its edits are not asked for by parts"


def test_of_a_long_file_that_no_failure_leads_into_the_function_that_the_request_names_is_shown() -> (
    None
):
    writer = CODER.model_copy(update={"protocol": "text"})
    files = {"a.py": f"{TOTAL}\n{OTHERS}"}
    for judged in (True, False):
        text = "Correct total in a.py" if judged else "Add a docstring to total in a.py"
        prompt = prompt_of(began(text, files, judged=judged), writer, ())
        assert (prompt.target, prompt.part, prompt.open_ended) == ("a.py", TOTAL, False)
        assert any(f"Of the file `a.py`:\n```\n{TOTAL}\n```" in text for text in shown(prompt))
    for text in (
        "Correct a.py",
        "Rename other_1 to other_2 in a.py",
        "What does total in a.py do?",
    ):
        prompt = prompt_of(began(text, files, judged=False), writer, ())
        assert (prompt.target, prompt.part) == ("", ""), "it is not asked to write it anew"
        assert not any("other_7" in text for text in shown(prompt))


def test_what_mending_did_not_mend_is_asked_for_anew_and_then_drawn_by_chance() -> None:
    file = 'def total(prices):\n    """What all come to."""\n    return 0\n'
    failing = ran(
        0,
        Call(id="e0", tool="run_tests"),
        "assert total([1]) == 1\n1 failed",
        ok=False,
        by="evidence",
    )
    start: list[Event] = [opened(), asked(), *failing, assigned(1, "coder")]
    start += ran(1, Call.make("e1-0", "read", path="a.py", plain=True), file, by="evidence")
    draw = [replied(1, "coder", "", write("w")), *ran(1, write("w"), path="a.py"), *failing]
    writer = CODER.model_copy(update={"protocol": "text", "attempts": 5})
    built = [
        prompt_of([*start, *[*draw, rolled_back(1)] * number], writer, ()) for number in range(4)
    ]
    blank = "raise NotImplementedError  # TODO: implement"
    assert [prompt.unwritten for prompt in built] == ["", blank, "", blank]
    assert [(prompt.temperature, prompt.seed) for prompt in built] == [(None, None)] * 2 + [
        (0.8, 2),
        (0.8, 3),
    ]
    assert [any(blank in text for text in shown(prompt)) for prompt in built] == [False, True] * 2
    assert [any("is not finished" in text for text in shown(prompt)) for prompt in built] == [
        False,
        True,
    ] * 2
    schema = CODER.model_copy(update={"attempts": 5})
    assert not prompt_of([*start, *draw, rolled_back(1)], schema, ()).unwritten


def test_of_two_files_each_is_mended_then_each_written_anew_and_both_at_once_are_last() -> None:
    said = 'def {}(x):\n    """What it is of x."""\n    return x\n'
    failing = ran(
        0, Call(id="e0", tool="run_tests"), "assert f(1) == g(2)\n2 failed", ok=False, by="evidence"
    )
    writer = CODER.model_copy(update={"protocol": "text", "attempts": 9})
    both = {"a.py": said.format("f"), "b.py": said.format("g")}

    def reading(turn: int, files: dict[str, str]) -> list[Event]:
        calls = [
            (Call.make(f"e{turn}-{path}", "read", path=path, plain=True), text)
            for path, text in files.items()
        ]
        return [fact for call, text in calls for fact in ran(turn, call, text, by="evidence")]

    start = [opened(), asked(), *failing, assigned(1, "coder"), *reading(1, both)]
    draw = [replied(1, "coder", "", write("w")), *ran(1, write("w"), path="a.py"), *failing]
    built = [
        prompt_of([*start, *[*draw, rolled_back(1)] * number], writer, ()) for number in range(6)
    ]
    assert [prompt.target for prompt in built] == ["a.py", "b.py", "a.py", "b.py", "", "a.py"]
    assert [bool(prompt.unwritten) for prompt in built] == [False, False, True, True, False, False]
    assert [prompt.seed for prompt in built] == [None] * 5 + [5]
    both_are_shown = [
        any("def f" in text and "def g" in text for text in shown(prompt)) for prompt in built
    ]
    assert both_are_shown == [True, True, False, False, True, True], (
        "beside a function no other code"
    )

    better = ran(
        1, Call(id="e1-9", tool="run_tests"), "assert g(2) == 2\n1 failed", ok=False, by="evidence"
    )
    kept = [*start, *draw, rolled_back(1), *draw[: -len(failing)], *better, assigned(2, "coder")]
    after = prompt_of([*kept, *reading(2, {"b.py": both["b.py"]})], writer, ())
    assert (after.unwritten, after.seed) == ("", None), "what is left is another question"


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
def test_a_document_that_is_called_by_its_name_is_the_file_that_is_asked_for(
    text: str, target: str
) -> None:
    shown = ["cart.js", "README.md", "CHANGELOG.rst"]
    assert intent.target_file(asked(text, judged=False), shown) == target
