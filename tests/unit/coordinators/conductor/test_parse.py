"""The parser: every well-formed variant is read, nothing malformed is accepted, nothing is ever
evaluated.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu_cli.coordinators.conductor.plan_lists import REPLY_LIMIT, InvalidPlan, parse_lists
from fugu_cli.coordinators.conductor.plan_steps import (
    SUBTASK_LIMIT,
    AccessList,
    PlanLimits,
    parse_workflow,
    same_job,
)
from fugu_cli.session.events import WorkflowStep

FORM = PlanLimits(("a", "b", "c"))
ONE = (WorkflowStep(agent="b", instruction="Do it."),)
TWO = (
    WorkflowStep(agent="a", instruction="Look."),
    WorkflowStep(agent="c", instruction="Do.", access=(0,)),
)
ALL = (
    WorkflowStep(agent="a", instruction="Look."),
    WorkflowStep(agent="c", instruction="Do.", access="all"),
)
PLAIN = 'model_id = [0, 2]\nsubtasks = ["Look.", "Do."]\naccess_list = [[], [0]]'

WELL_FORMED = {
    "equals signs": (PLAIN, TWO),
    "colons": (PLAIN.replace(" =", ":"), TWO),
    "annotations": (
        'model_id: list[int] = [0, 2]\nsubtasks: list = ["Look.", "Do."]\n'
        'access_list: List[Union[List[int], list[Literal["all"]]]] = [[], [0]]',
        TWO,
    ),
    "annotations of typing": (
        "model_id: typing.List[int] = [1]\nsubtasks: typing.List[str] = ['Do it.']\naccess_list: "
        "List[List] = [[]]",
        ONE,
    ),
    "no spaces": (PLAIN.replace(" = ", "="), TWO),
    "spaces everywhere": (
        PLAIN.replace(" = ", "  =   ").replace("[", "[ ").replace("]", " ]"),
        TWO,
    ),
    "prose before and after": (
        f"First one looks, then one does.\n\n{PLAIN}\n\nThat should do.",
        TWO,
    ),
    "a fence": (f"```python\n{PLAIN}\n```", TWO),
    "a fence without a language": (f"```\n{PLAIN}\n```\n", TWO),
    "a fence around each list": (
        "model_id:\n```python\n[0, 2]\n```\nsubtasks:\n```\n['Look.', "
        "'Do.']\n```\naccess_list:\n```\n[[], [0]]\n```",
        TWO,
    ),
    "bullets": ("- " + PLAIN.replace("\n", "\n- "), TWO),
    "stars as bullets": ("* " + PLAIN.replace("\n", "\n* "), TWO),
    "numbers": ("1. model_id = [1]\n2. subtasks = ['Do it.']\n3. access_list = [[]]", ONE),
    "bold labels": ("**model_id**: [1]\n**subtasks**: ['Do it.']\n**access_list**: [[]]", ONE),
    "bold with the colon inside": (
        "**model_id:** [1]\n**subtasks:** ['Do it.']\n**access_list:** [[]]",
        ONE,
    ),
    "lists in backticks": (
        "**model_id**: `[1]`\n**subtasks**: `['Do it.']`\n**access_list**: `[[]]`",
        ONE,
    ),
    "emphasis around all": (
        "**model_id: [1]**\n*subtasks: ['Do it.']*\n*access_list = [[]]* .",
        ONE,
    ),
    "a remark behind a list": (
        "model_id = [1] (the quick one)\nsubtasks = ['Do it.'], then\naccess_list = [[]]",
        ONE,
    ),
    "labels in backticks": ("`model_id` = [1]\n`subtasks` = ['Do it.']\n`access_list` = [[]]", ONE),
    "capitals": ("Model_ID = [1]\nSUBTASKS = ['Do it.']\nAccess_List = [[]]", ONE),
    "labels with spaces": ("model id: [1]\nsub tasks: ['Do it.']\naccess list: [[]]", ONE),
    "labels in other numbers": ("model_ids = [1]\nsubtask = ['Do it.']\naccess = [[]]", ONE),
    "labels as headings": (
        "## model_id\n\n[1]\n\n## Subtasks\n['Do it.']\n### access_list\n```\n[[]]\n```",
        ONE,
    ),
    "labels in bold lines": (
        "**model_id**\n[1]\n**subtasks**\n['Do it.']\n**access_list**\n[[]]",
        ONE,
    ),
    "underscores that are escaped": (
        "model\\_id = [1]\nsubtasks = ['Do it.']\naccess\\_list = [[]]",
        ONE,
    ),
    "wide colons": ("model_id：[1]\nsubtasks： ['Do it.']\naccess_list：[[]]", ONE),
    "all in capitals": (PLAIN.replace("[0]]", '["ALL"]]'), ALL),
    "tuples of places": (PLAIN.replace("[[], [0]]", "[(), (0,)]"), TWO),
    "strings marked f": (PLAIN.replace('"Look."', 'f"Look."').replace('"Do."', "F'Do.'"), TWO),
    "a think block": (f"<think>model_id = [7, 7]\nhm</think>\n{PLAIN}", TWO),
    "a think block whose beginning is lost": (f"model_id = [7]\n</think>\n{PLAIN}", TWO),
    "a thinking block": (f"<thinking>so\nso</thinking>{PLAIN}", TWO),
    "single quotes": (PLAIN.replace('"', "'"), TWO),
    "smart quotes": ("model_id = [1]\nsubtasks = [“Do it.”]\naccess_list = [[]]", ONE),
    "smart single quotes": ("model_id = [1]\nsubtasks = [‘Do it.’]\naccess_list = [[]]", ONE),
    "smart quotes around all": (
        PLAIN.replace('["Look.", "Do."]', "[“Look.”, “Do.”]").replace("[0]]", "[“all”]]"),
        ALL,
    ),
    "JSON": (
        json.dumps({"model_id": [0, 2], "subtasks": ["Look.", "Do."], "access_list": [[], [0]]}),
        TWO,
    ),
    "JSON over lines": (
        json.dumps(
            {"model_id": [0, 2], "subtasks": ["Look.", "Do."], "access_list": [[], ["all"]]},
            indent=2,
        ),
        ALL,
    ),
    "JSON in a fence": (
        '```json\n{"model_id": [1], "subtasks": ["Do it."], "access_list": [[]]}\n```',
        ONE,
    ),
    "JSON inside something": (
        '{"plan": {"model_id": [1], "subtasks": ["Do it."], "access_list": [[]]}}',
        ONE,
    ),
    "another order": ("access_list = [[]]\nsubtasks = ['Do it.']\nmodel_id = [1]", ONE),
    "over lines": (
        "model_id = [\n  1,\n]\nsubtasks = [\n  'Do it.',\n]\naccess_list = [\n  [],\n]",
        ONE,
    ),
    "bullets inside": ('model_id = [1]\nsubtasks = [\n  - "Do it."\n]\naccess_list = [[]]', ONE),
    "digits as text": ('model_id = ["1"]\nsubtasks = ["Do it."]\naccess_list = [[]]', ONE),
    "the same list twice": (f"{PLAIN}\n\nAgain:\n{PLAIN}", TWO),
    "all on the first step": (
        'model_id = [1]\nsubtasks = ["Do it."]\naccess_list = [["all"]]',
        ONE,
    ),
    "comments": (
        'model_id = [\n  0,  # it doesn\'t cost much ]\n  2,\n]\nsubtasks = ["Look.",  # first\n '
        ' "Do."]\n'
        "access_list = [[], [0]]  # the second reads the first",
        TWO,
    ),
    "comments among smart quotes": (
        "model_id = [1]\nsubtasks = [\n  “Do it.”,  # it’s one\n]\naccess_list = [[]]",
        ONE,
    ),
    "a number sign in a subtask": (
        'model_id = [1]\nsubtasks = ["Mend #7 of [x]."]\naccess_list = [[]]',
        (WorkflowStep(agent="b", instruction="Mend #7 of [x]."),),
    ),
    "one line": ("model_id = [1]; subtasks = ['Do it.']; access_list = [[]]", ONE),
    "windows lines": (PLAIN.replace("\n", "\r\n"), TWO),
    "an apostrophe": (
        'model_id = [1]\nsubtasks = ["Don\'t stop; it’s fine."]\naccess_list = [[]]',
        (WorkflowStep(agent="b", instruction="Don't stop; it’s fine."),),
    ),
    "brackets and labels in a subtask": (
        'model_id = [1]\nsubtasks = ["Use a[0]] and model_id = [2] or ``` here"]\naccess_list = '
        "[[]]",
        (WorkflowStep(agent="b", instruction="Use a[0]] and model_id = [2] or ``` here"),),
    ),
    "a subtask over lines": (
        'model_id = [1]\nsubtasks = ["""First\nthen"""]\naccess_list = [[]]',
        (WorkflowStep(agent="b", instruction="First\nthen"),),
    ),
    "a line break in a string": (
        'model_id = [1]\nsubtasks = ["First\nthen"]\naccess_list = [[]]',
        (WorkflowStep(agent="b", instruction="First\nthen"),),
    ),
}


@pytest.mark.parametrize("name", WELL_FORMED)
def test_a_well_formed_variant_is_read(name: str) -> None:
    text, steps = WELL_FORMED[name]
    assert parse_workflow(text, FORM) == steps


@pytest.mark.parametrize(
    "subtask",
    [
        "Strip <think>...</think> from it.",
        "Cut all up to </think>.",
        "Handle an open <think> tag.",
        "<THINKING>",
    ],
)
@pytest.mark.parametrize(
    "before",
    [
        "",
        "<think>model_id = [9] isn't it</think>",
        "model_id: [9], isn't it?</think>\n",
        "<think>a</think>b",
    ],
)
def test_a_subtask_may_speak_of_thoughts(before: str, subtask: str) -> None:
    found = parse_workflow(
        f'{before}\nmodel_id = [0]\nsubtasks = ["{subtask}"]\naccess_list = [[]]', FORM
    )
    assert not isinstance(found, InvalidPlan), found
    assert [step.instruction for step in found] == [subtask]


MALFORMED = {
    "nothing": ("", "no lists"),
    "prose": ("I think Model 0 should look and Model 1 should repair it.", "no lists"),
    "a missing list": ("model_id = [0]\nsubtasks = ['x']", "no list access_list"),
    "unequal lists": (
        PLAIN.replace("[0, 2]", "[0, 2, 1]"),
        "model_id 3, subtasks 2, access_list 2",
    ),
    "an id out of range": (
        PLAIN.replace("[0, 2]", "[0, 3]"),
        "model_id[1] is 3; the models are 0 to 2",
    ),
    "a negative id": (PLAIN.replace("[0, 2]", "[-1, 2]"), "model_id[0] is -1"),
    "an id that is a name": (
        PLAIN.replace("[0, 2]", "['gpt', 2]"),
        "model_id[0] is 'gpt', not a number",
    ),
    "an id that is a truth": (PLAIN.replace("[0, 2]", "[True, 2]"), "model_id[0] is True"),
    "an id that is a fraction": (PLAIN.replace("[0, 2]", "[0.0, 2]"), "model_id[0] is 0.0"),
    "a forward reference": (
        PLAIN.replace("[[], [0]]", "[[1], [0]]"),
        "access_list[0] holds 1: a step reads only those before it",
    ),
    "a self reference": (PLAIN.replace("[[], [0]]", "[[], [1]]"), "access_list[1] holds 1: "),
    "a negative reference": (PLAIN.replace("[[], [0]]", "[[], [-1]]"), "access_list[1] holds -1: "),
    "all beside a place": (PLAIN.replace("[[], [0]]", "[[], ['all', 0]]"), "holds 'all'"),
    "another word": (PLAIN.replace("[[], [0]]", "[[], ['none']]"), "holds 'none'"),
    "access that is no list": (
        PLAIN.replace("[[], [0]]", "[[], 0]"),
        "access_list[1] is 0, not a list",
    ),
    "six steps": (
        f"model_id = {[0] * 6}\nsubtasks = {['x'] * 6}\naccess_list = {[[]] * 6}",
        "6 steps; at most 5",
    ),
    "an empty workflow": (
        "model_id = []\nsubtasks = []\naccess_list = []",
        "the workflow is empty",
    ),
    "an empty subtask": (PLAIN.replace("Look.", " "), "subtasks[0] is"),
    "a subtask that is a number": (PLAIN.replace('"Look."', "7"), "subtasks[0] is 7"),
    "a subtask that never ends": (
        PLAIN.replace("Look.", "x" * (SUBTASK_LIMIT + 1)),
        "at most 8000",
    ),
    "a list that does not end": (PLAIN[:-1], "access_list does not end"),
    "a string that does not end": (
        'model_id = [0]\nsubtasks = ["x]\naccess_list = [[]]',
        "does not end",
    ),
    "a plan that was never closed in thought": (f"<think>{PLAIN}", "no lists"),
    "two plans": (f"{PLAIN}\nor\n{PLAIN.replace('[0, 2]', '[1, 2]')}", "model_id is given twice"),
    "an expression": (
        PLAIN.replace("[0, 2]", "[0] * 2"),
        "model_id goes on behind its list: '* 2'",
    ),
    "a sum": (
        "model_id = [0]*2\nsubtasks = ['x'] + ['y']\naccess_list = [[]] + [['all']]",
        "behind its list: '*2'",
    ),
    "a sum of lists": (
        PLAIN.replace("[[], [0]]", "[[]] + [[0]]"),
        "access_list goes on behind its list: '+ [[0]]'",
    ),
    "a place in a list": (
        PLAIN.replace("[0, 2]", "[[0, 2]][0]"),
        "model_id goes on behind its list: '[0]'",
    ),
    "a call": (PLAIN.replace("[0, 2]", "[int('0'), 2]"), "model_id is not a list that can be read"),
    "a comprehension": (
        PLAIN.replace("[0, 2]", "[i for i in (0, 2)]"),
        "not a list that can be read",
    ),
    "a string with a place to fill": (
        PLAIN.replace('"Look."', 'f"{x}"'),
        "subtasks is not a list that can be read",
    ),
    "a label in the text before a list": (
        f"The model_id is [0, 2]\n{PLAIN[PLAIN.index('subtasks') :]}",
        "no list model_id",
    ),
    "a dictionary": (PLAIN.replace("[0, 2]", "{0: 2}"), "no list model_id"),
    "a tuple": (PLAIN.replace("[0, 2]", "(0, 2)"), "no list model_id"),
    "an ellipsis": (PLAIN.replace("[0, 2]", "[0, ...]"), "model_id[1] is Ellipsis"),
    "100 kB": (PLAIN.replace("Look.", "x" * 100_000), f"at most {REPLY_LIMIT} are read"),
    "100 kB of brackets": ("model_id = " + "[" * 100_000, f"at most {REPLY_LIMIT} are read"),
    "a number of 5000 digits": (
        PLAIN.replace("[0, 2]", f"[0x{'f' * 5000}, 2]"),
        "model_id is not a list that can",
    ),
    "one among the places": (
        PLAIN.replace("[[], [0]]", f"[[], [0x{'f' * 5000}]]"),
        "access_list is not a list",
    ),
    "a number of 4000 digits": (
        PLAIN.replace("[0, 2]", f"[{'9' * 4000}, 2]"),
        "model_id[0] is 999999999",
    ),
    "deep brackets": ("model_id = " + "[" * 5000 + "]" * 5000, "not a list that can be read"),
    "many quotes": ("model_id = [" + "\"'“" * 5000, "does not end"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_one_is_refused_and_the_fault_named(name: str) -> None:
    text, fault = MALFORMED[name]
    found = parse_workflow(text, FORM)
    assert isinstance(found, InvalidPlan)
    assert fault in found.text


def test_nothing_is_evaluated(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = f"__import__('os').system('touch {mark}')"
    attempts = [f"open({str(mark)!r}, 'w')", command, f'f\'{{open("{mark}","w")}}\'']
    for code in attempts:
        for place in ("[0, 2]", '"Look."', "[0]]"):
            assert isinstance(
                parse_workflow(PLAIN.replace(place, f"[{code}]" if "]" in place else code), FORM),
                InvalidPlan,
            )
    assert not mark.exists()


@pytest.mark.parametrize(
    ("words", "access", "other", "same"),
    [
        ("Look.", (), (), True),
        (" Look.\n", (0,), (0,), True),
        ("Look again.", (), (), False),
        ("Look.", (0,), (), False),
        ("Look.", "all", "all", False),
        ("Look.", (0,), "all", False),
    ],
)
def test_two_steps_have_the_same_job_if_words_and_access_are_the_same(
    words: str, access: AccessList, other: AccessList, same: bool
) -> None:
    steps = [
        WorkflowStep(agent="a", instruction="Look.", access=access),
        WorkflowStep(agent="b", instruction=words, access=other),
    ]
    assert (same_job(steps, 0, 1), same_job(steps, 1, 0)) == (same, same)


def test_three_empty_lists_keep_a_result_where_there_is_one() -> None:
    empty = "model_id = []\nsubtasks = []\naccess_list = []"
    assert parse_workflow(empty, PlanLimits(("a",), keeps=True)) == ()


def test_the_planner_may_name_itself_where_it_may() -> None:
    text = "model_id = [3]\nsubtasks = ['Plan the hard part.']\naccess_list = [[]]"
    itself = PlanLimits(("a", "b", "c"), itself="p")
    assert parse_workflow(text, itself) == (
        WorkflowStep(agent="p", instruction="Plan the hard part.", plans=True),
    )
    assert isinstance(parse_workflow(text, FORM), InvalidPlan)


LETTERS = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="“”‘’")
TEXTS = st.text(LETTERS, min_size=1, max_size=60).filter(
    lambda text: text.strip() != "" and not re.search(r"</?think", text, re.IGNORECASE)
)


@st.composite
def plans(draw: st.DrawFn) -> tuple[tuple[WorkflowStep, ...], str]:
    """Any workflow, written as a literal or as JSON."""
    size = draw(st.integers(1, 5))
    numbers = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    subtasks = draw(st.lists(TEXTS, min_size=size, max_size=size))
    access: list[list[object]] = []
    for place in range(size):
        some = st.lists(st.integers(0, place - 1), unique=True) if place else st.just([])
        access.append(draw(st.one_of(some, st.just(["all"])) if place else some))  # type: ignore[arg-type]
    steps = tuple(
        WorkflowStep(
            agent="abc"[number],
            instruction=subtask.strip(),
            access="all" if opened == ["all"] else tuple(opened),  # type: ignore[arg-type]
        )
        for number, subtask, opened in zip(numbers, subtasks, access, strict=True)
    )
    if draw(st.booleans()):
        return steps, json.dumps({"model_id": numbers, "subtasks": subtasks, "access_list": access})
    sign = draw(st.sampled_from([" = ", ": ", "="]))
    return (
        steps,
        f"model_id{sign}{numbers}\nsubtasks{sign}{subtasks!r}\naccess_list{sign}{access!r}",
    )


@given(plans())
@settings(max_examples=150, deadline=None)
def test_what_was_written_is_what_is_read(plan: tuple[tuple[WorkflowStep, ...], str]) -> None:
    steps, text = plan
    assert parse_workflow(text, FORM) == steps


@given(plans(), st.data())
@settings(max_examples=150, deadline=None)
def test_a_plan_with_one_thing_wrong_is_never_accepted(
    plan: tuple[tuple[WorkflowStep, ...], str], data: st.DataObject
) -> None:
    steps, _ = plan
    size = len(steps)
    place = data.draw(st.integers(0, size - 1))
    numbers: list[object] = ["abc".index(step.agent) for step in steps]
    subtasks: list[object] = [step.instruction for step in steps]
    access: list[object] = [
        ["all"] if step.access == "all" else list(step.access) for step in steps
    ]
    match data.draw(st.sampled_from(["id", "subtask", "access", "missing", "more"])):
        case "id":
            numbers[place] = data.draw(
                st.sampled_from([3, -1, 99, None, 1.5, True, "b", "Model 1", [0], {}])
            )
        case "subtask":
            subtasks[place] = data.draw(st.sampled_from(["", "  ", 0, None, ["x"], True]))
        case "access":
            access[place] = data.draw(
                st.sampled_from(
                    [
                        [place],
                        [place + 1],
                        [-1],
                        "all",
                        None,
                        0,
                        [None],
                        ["any"],
                        ["all", "all"],
                        [[0]],
                        [True],
                    ]
                )
            )
        case "missing":
            del (numbers, subtasks, access)[place % 3][place]
        case _:
            (numbers, subtasks, access)[place % 3].append([])
    written = f"model_id = {numbers!r}\nsubtasks = {subtasks!r}\naccess_list = {access!r}"
    assert isinstance(parse_workflow(written, FORM), InvalidPlan)


@given(st.text(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    for given_text in (text, f"model_id = [{text}]\nsubtasks = ['x']\naccess_list = [[]]"):
        found = parse_lists(given_text)
        assert isinstance(found, InvalidPlan) or isinstance(found.model_id, list)


def test_the_longest_reply_is_read_in_a_moment() -> None:
    worst = [
        "model_id = [" * (REPLY_LIMIT // 12),
        "model_id = [" + "‘a’b" * (REPLY_LIMIT // 4 - 10),
        "<think>" * (REPLY_LIMIT // 7),
        "model_id = [" + "- " * (REPLY_LIMIT // 2 - 10) + "]",
    ]
    for text in worst:
        before = time.process_time()
        assert isinstance(parse_lists(text[:REPLY_LIMIT]), InvalidPlan)
        assert time.process_time() - before < 5, "an hour would be a way to stop fugu"
