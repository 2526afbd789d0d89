"""The two protocols for models without tools, over the scripted agent and over the wire."""

import asyncio
import json

import pytest

from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromUser, Prompt, Reply, ToolSpec, Usage
from fugu_cli.prompts import load
from fugu_cli.providers.scripted import Script, Scripted, ScriptedStep
from fugu_cli.repair.protocols import SchemaProtocol, TextProtocol, answer_schema, describe_tools
from fugu_cli.repair.replies import parse_reply
from tests.unit.providers.histories import READ, TESTS, TOOLS, WRITE
from tests.unit.providers.servers import quiet, unhurried

BRIEF = FromUser(text="Fix it.\n# File `a.py`\n```\nx = 1\ny = 2\n```\n")
PROMPT = Prompt(system="s", messages=(BRIEF,), tools=TOOLS)
ONE = Usage(input=100, cached=10, output=5)


class Listening(Scripted):
    """A scripted agent that keeps the prompts it was given."""

    def __init__(self, *texts: str, stop: str = "") -> None:
        steps = [
            ScriptedStep.model_validate({"text": text, "usage": ONE, "stop": stop})
            for text in texts
        ]
        super().__init__("small", Script(step=tuple(steps)))
        self.prompts: list[Prompt] = []

    async def reply(self, prompt, say, wait):  # type: ignore[no-untyped-def]
        self.prompts.append(prompt)
        return await super().reply(prompt, say, wait)


def seen(prompt: Prompt) -> Prompt:
    """The prompt with the files that its texts show."""
    texts = [message.text for message in prompt.messages if isinstance(message, FromUser)]
    return (
        prompt
        if prompt.files
        else prompt.model_copy(update={"files": dict(parse_reply("\n".join(texts)).files)})
    )


def by_schema(*texts: str, prompt: Prompt = PROMPT, stop: str = "") -> tuple[Reply, Listening, str]:
    inner, said = Listening(*texts, stop=stop), list[str]()
    prompt = seen(prompt)
    reply = asyncio.run(
        SchemaProtocol(inner, load("protocols/schema")).reply(prompt, said.append, unhurried)
    )
    return reply, inner, "".join(said)


def by_text(text: str, prompt: Prompt = PROMPT, stop: str = "") -> tuple[Reply, Listening]:
    inner = Listening(text, stop=stop)
    prompt = seen(prompt)
    return asyncio.run(
        TextProtocol(inner, load("protocols/text")).reply(prompt, quiet, unhurried)
    ), inner


def made(reply: Reply) -> list[tuple[str, object]]:
    return [(call.tool, json.loads(call.arguments)) for call in reply.calls]


def test_a_tool_without_a_body_takes_one_call() -> None:
    reply, inner, said = by_schema('{"tool": "run_tests"}')
    assert made(reply) == [("run_tests", {})]
    assert (reply.stop, reply.text, reply.usage, said) == ("calls", "", ONE, "")
    assert len(inner.prompts) == 1


def test_a_body_is_asked_for_in_plain_text_and_both_calls_are_paid_for() -> None:
    reply, inner, said = by_schema(
        '{"tool": "write", "path": "a.py"}', "Sure:\n```python\nx = 2\ny = 2\n```"
    )
    assert made(reply) == [("write", {"path": "a.py", "content": "x = 2\ny = 2\n"})]
    assert reply.usage == ONE + ONE
    assert said == "Sure:\n```python\nx = 2\ny = 2\n```"
    first, second = inner.prompts
    assert (first.tools, second.tools, second.reply_schema) == ((), (), "")
    assert json.loads(first.reply_schema)["anyOf"][0]["properties"] == {
        "tool": {"const": "write"},
        "path": {"type": "string"},
    }


def test_both_prompts_begin_alike_and_the_second_knows_nothing_of_tools() -> None:
    _, inner, _ = by_schema('{"tool": "write", "path": "a.py"}', "```\nx\n```")
    first, second = inner.prompts
    assert first.system == second.system == "s"
    (one,), (two,) = first.messages, second.messages
    assert one.text.startswith(
        f"{BRIEF.text}\n\nYou may use one of these tools now:\n- write(path)"
    )
    assert "choose `write` with the path of that file (`a.py`)" in one.text
    assert two.text.startswith(f"{BRIEF.text}\n\nAnswer with the file `a.py`")
    assert "JSON" not in two.text and "tool" not in two.text


def test_without_a_file_in_sight_none_is_named() -> None:
    unseen = PROMPT.model_copy(update={"messages": (FromUser(text="Fix it."),)})
    _, inner, _ = by_schema('{"tool": "run_tests"}', prompt=unseen)
    assert "shown above" not in inner.prompts[0].messages[-1].text


def test_done_is_an_answer() -> None:
    reply, _, said = by_schema('{"tool": "done", "answer": "It was off by one."}')
    assert (reply.text, reply.calls, reply.stop, said) == (
        "It was off by one.",
        (),
        "end",
        "It was off by one.",
    )


@pytest.mark.parametrize(
    "text", ["", "I would read it.", '{"tool": "write", "pa', "[]", '{"tool": 3}', '{"path": "a"}']
)
def test_what_is_no_choice_is_answered_as_text(text: str) -> None:
    reply, _, said = by_schema(text)
    assert (reply.text, reply.calls, said) == (text, (), text)


def test_an_unknown_tool_and_odd_arguments_are_left_to_the_toolbox() -> None:
    reply, _, _ = by_schema('{"tool": "fly", "to": [1]}')
    assert made(reply) == [("fly", {"to": [1]})]


@pytest.mark.parametrize(("text", "stop"), [("```\nx = 1\ny =", "length"), ("I cannot.", "")])
def test_half_a_file_is_never_written(text: str, stop: str) -> None:
    inner = Listening('{"tool": "write", "path": "a.py"}')
    second = ScriptedStep.model_validate({"text": text, "stop": stop})
    inner = Scripted(
        "small", Script(step=(ScriptedStep(text='{"tool": "write", "path": "a.py"}'), second))
    )
    reply = asyncio.run(
        SchemaProtocol(inner, load("protocols/schema")).reply(PROMPT, quiet, unhurried)
    )
    assert (reply.text, reply.calls, reply.stop) == (text, (), stop or "end")


def test_a_model_that_forgets_the_last_fence_has_written_its_file() -> None:
    reply, _, _ = by_schema('{"tool": "write", "path": "a.py"}', "```\nx = 1")
    assert made(reply) == [("write", {"path": "a.py", "content": "x = 1\n"})]


def test_without_tools_both_are_a_plain_call() -> None:
    plain = PROMPT.model_copy(update={"tools": ()})
    reply, inner, said = by_schema("ACCEPT", prompt=plain)
    assert (reply.text, inner.prompts, said) == ("ACCEPT", [seen(plain)], "ACCEPT")
    reply, inner = by_text("ACCEPT\na.py\n```\nx\n```", prompt=plain)
    assert (reply.calls, inner.prompts) == ((), [seen(plain)])


def test_tools_are_described_without_their_body() -> None:
    assert describe_tools(TOOLS) == (
        "- read(path, offset?): Read a file.\n- write(path): Write a file.\n- run_tests(): Run "
        "the tests."
    )


def test_there_is_a_variant_for_each_tool_and_for_being_done() -> None:
    assert json.loads(answer_schema([READ, TESTS])) == {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "tool": {"const": "read"},
                    "path": {"type": "string"},
                    "offset": {"type": "integer"},
                },
                "required": ["tool", "path"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"tool": {"const": "run_tests"}},
                "required": ["tool"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"tool": {"const": "done"}, "answer": {"type": "string"}},
                "required": ["tool", "answer"],
                "additionalProperties": False,
            },
        ]
    }


EDIT = ToolSpec(name="edit", description="Edit.", parameters='{"type": "object", "properties": {}}')


def test_files_in_a_text_are_calls() -> None:
    text = "Done.\n\na.py\n```\nx = 2\n```\n\nb.py\n```\ny = 2\n```"
    reply, inner = by_text(text, PROMPT.model_copy(update={"tools": (WRITE, EDIT)}))
    assert made(reply) == [
        ("write", {"path": "a.py", "content": "x = 2\n"}),
        ("write", {"path": "b.py", "content": "y = 2\n"}),
    ]
    assert (reply.text, reply.stop, reply.usage) == ("Done.", "calls", ONE)
    assert len({call.id for call in reply.calls}) == 2
    assert inner.prompts[0].tools == ()


def test_only_offered_tools_are_called() -> None:
    reply, inner = by_text(
        "ACCEPT. For example\na.py\n```\nx = 2\n```", PROMPT.model_copy(update={"tools": (READ,)})
    )
    assert reply.calls == ()
    assert inner.prompts[0].system == "s"


def test_a_text_that_was_cut_writes_nothing_of_what_was_cut() -> None:
    reply, _ = by_text("a.py\n```\nx = 2\n", stop="length")
    assert (reply.calls, reply.stop) == ((), "length")


def test_a_reply_that_is_the_file_without_a_fence_is_written_unless_it_was_cut() -> None:
    old, new = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
    prompt = PROMPT.model_copy(update={"messages": (FromUser(text=file("a.py", old)),)})
    assert made(by_text(new, prompt)[0]) == [("write", {"path": "a.py", "content": new})]
    assert by_text(new, prompt, stop="length")[0].calls == ()
    assert by_text("It subtracts instead of adding.", prompt)[0].calls == ()
    fresh = PROMPT.model_copy(update={"target": "b.py"})
    assert made(by_text(new, fresh)[0]) == [("write", {"path": "b.py", "content": new})]


EXAMPLE = 'hello.py\n```\ndef hello():\n    return "hello"\n```'


def test_the_example_of_the_form_is_no_file_unless_somebody_spoke_of_it() -> None:
    assert EXAMPLE in load("protocols/text")
    for text, count in (("Say something.", 0), ("Make hello.py say something.", 1)):
        prompt = PROMPT.model_copy(
            update={"messages": (FromUser(text=text),), "tools": (WRITE, EDIT), "target": ""}
        )
        assert len(by_text(EXAMPLE, prompt)[0].calls) == count


def test_calls_of_one_reply_have_ids_that_a_replay_repeats() -> None:
    one, _, _ = by_schema('{"tool": "run_tests"}')
    two, _, _ = by_schema('{"tool": "run_tests"}')
    other, _, _ = by_schema('{"tool": "run_tests"}', prompt=PROMPT.model_copy(update={"seed": 5}))
    assert one.calls == two.calls
    assert one.calls[0].id != other.calls[0].id
    assert isinstance(one.calls[0], Call)


@pytest.mark.parametrize("protocol", [SchemaProtocol, TextProtocol])
def test_a_protocol_text_of_other_parts_is_refused(
    protocol: type[SchemaProtocol | TextProtocol],
) -> None:
    with pytest.raises(ValueError, match="parts is needed"):
        protocol(Listening(), "one part")


def asks(*shown: str, tools: tuple[ToolSpec, ...] = (WRITE, EDIT)) -> tuple[str, str]:
    """The system text and the last line that `text` sends for a brief that shows these files."""
    brief = "Fix it.\n" + "\n".join(shown)
    prompt = Prompt(system="", messages=(FromUser(text=brief),), tools=tools)
    _, inner = by_text("no", prompt)
    (message,) = inner.prompts[0].messages
    return inner.prompts[0].system, message.text.removeprefix(brief).strip()


def file(path: str, content: str = "x = 1") -> str:
    return f"The file `{path}`:\n```\n{content}\n```\n"


def test_one_file_is_asked_for_by_name_and_nothing_is_said_of_forms() -> None:
    system, ask = asks(
        file("src/a.py"), file("tests/test_a.py"), file("conftest.py"), file("web/a.spec.ts")
    )
    assert system == ""
    assert ask.startswith("Answer with the file `src/a.py`, corrected and complete")


def test_of_several_files_or_none_each_that_changes_is_asked_for() -> None:
    for shown in ((file("a.py"), file("b.py")), ()):
        system, ask = asks(*shown)
        assert "hello.py\n```" in system
        assert ask.startswith("Answer with each file that must change")


def test_where_other_files_may_be_meant_none_is_asked_for_by_name() -> None:
    prompt = Prompt(
        system="", messages=(FromUser(text=file("a.py")),), tools=(WRITE,), open_ended=True
    )
    (message,) = by_text("no", prompt)[1].prompts[0].messages
    assert "Answer with each file that must change" in message.text


def test_a_file_that_is_to_be_made_is_asked_for_by_name_and_needs_no_path_above_it() -> None:
    prompt = Prompt(
        system="", messages=(FromUser(text=file("a.py")),), tools=(WRITE,), target="README.md"
    )
    reply, inner = by_text(
        "Here:\n```markdown\n# A\n\n```python\nimport a\n```\n\nMore.\n```", prompt
    )
    (message,) = inner.prompts[0].messages
    assert "Answer with the file `README.md`" in message.text
    assert inner.prompts[0].max_tokens == prompt.max_tokens
    assert [call.arguments for call in reply.calls] == [
        json.dumps({"path": "README.md", "content": "# A\n\n```python\nimport a\n```\n\nMore.\n"})
    ]


def test_what_an_answer_leaves_out_of_a_python_file_stays_unless_the_request_takes_something_away() -> (
    None
):
    old = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"

    def written(request: str, answer: str) -> list[tuple[str, object]]:
        brief = FromUser(text=f"{request}\n\n{file('a.py', old.strip())}\nDo what is asked.")
        prompt = Prompt(
            system="", messages=(brief,), tools=(WRITE, EDIT), removes=request.startswith("Remove")
        )
        return made(by_text(answer, prompt)[0])

    three = "def three():\n    return 3\n"
    for answer in (f"So:\n```python\n{three}```\nDone.", f"a.py\n```\n{three}```"):
        assert written("Add three to a.py", answer) == [
            ("write", {"path": "a.py", "content": f"{old}\n\n{three}"})
        ]
    alone = [("write", {"path": "a.py", "content": three})]
    assert written("Remove all but three from a.py", f"a.py\n```\n{three}```") == alone
    assert written("Add three to a.py", "Say this:\n```\nthree()\n```") == []


PART = "    def total(self):\n        return 1"


def in_part(answer: str, stop: str = "") -> tuple[Reply, Listening]:
    brief = f"Of the file `a.py`:\n```\n{PART}\n```\n"
    prompt = Prompt(
        system="", messages=(FromUser(text=brief),), tools=(WRITE, EDIT), target="a.py", part=PART
    )
    return by_text(answer, prompt, stop=stop)


def test_the_answer_to_a_part_of_a_file_takes_its_place_indented_as_it_was() -> None:
    mended = {"path": "a.py", "old": "        return 1", "new": "        return 2"}
    for answer in (
        "```python\n    def total(self):\n        return 2\n```",
        "Here it is:\n\na.py\n```\ndef total(self):\n    return 2\n```\nand a test:\n```\nassert "
        "total() == 2\n```",
    ):
        reply, inner = in_part(answer)
        assert made(reply) == [("edit", mended)]
        (message,) = inner.prompts[0].messages
        assert "Answer with these lines of `a.py`" in message.text
    assert in_part("I cannot.")[0].calls == ()
    assert in_part("```\ndef total(self):\n    ret", stop="length")[0].calls == ()


def test_an_answer_that_leaves_open_what_is_to_be_written_is_none() -> None:
    blank = "raise NotImplementedError  # TODO: implement"
    old = f"def total(prices):\n    {blank}\n\n\ndef first(prices):\n    return prices[0]\n"
    new = old.replace(blank, "return sum(prices)")
    brief = FromUser(text=file("a.py", old))
    prompt = Prompt(
        system="", messages=(brief,), tools=(WRITE, EDIT), target="a.py", unwritten=blank
    )
    assert made(by_text(f"```\n{new}```", prompt)[0]) == [
        ("write", {"path": "a.py", "content": new})
    ]
    assert by_text(f"```\n{old}```", prompt)[0].calls == ()
    part = prompt.model_copy(update={"part": PART})
    assert by_text(f"```\n    def total(self):\n        {blank}\n```", part)[0].calls == ()


def test_only_where_tests_judge_an_answer_what_tries_it_out_is_left_out_and_ends_the_reply() -> (
    None
):
    stub = "def total(prices):\n    pass\n"
    done = stub.replace("pass", "return sum(prices)")
    brief = (
        f"Implement it.\nThe file `a.py`:\n```\n{stub}```\n    def check(candidate):\n>       "
        f"assert candidate([1])"
    )
    answer = f"```python\n{done}\nassert total([1]) == 3\n```"
    for judged, kept in ((True, done), (False, f"{done}\nassert total([1]) == 3\n")):
        prompt = Prompt(system="", messages=(FromUser(text=brief),), tools=TOOLS, judged=judged)
        reply, inner = by_text(answer, prompt)
        assert made(reply) == [("write", {"path": "a.py", "content": kept})]
        assert inner.prompts[0].stop == (
            ("\ndef test", "\ndef check", "\nassert ", "\nprint(") if judged else ()
        )
    prompt = Prompt(system="", messages=(FromUser(text=brief),), tools=TOOLS, judged=True)
    assert made(by_text(f"```python\n{done}\n", prompt)[0]) == [
        ("write", {"path": "a.py", "content": done})
    ]
    two = Prompt(
        system="",
        messages=(FromUser(text=f"{brief}\nThe file `b.py`:\n```\ny\n```"),),
        tools=TOOLS,
        judged=True,
    )
    assert by_text(answer, two)[1].prompts[0].stop == (), "another file may come after it"
    part = prompt.model_copy(
        update={"tools": (WRITE, EDIT), "target": "a.py", "part": stub.rstrip()}
    )
    mended = {"path": "a.py", "old": "    pass", "new": "    return sum(prices)"}
    assert made(by_text(answer, part)[0]) == [("edit", mended)]


def test_a_second_call_that_fails_leaves_the_first_one_to_be_paid_for() -> None:
    steps = [
        {"text": '{"tool": "write", "path": "a.py"}', "usage": ONE},
        {"error": {"kind": "invalid"}, "usage": ONE},
    ]
    inner = Scripted("small", Script.model_validate({"step": steps}))
    with pytest.raises(AgentError) as raised:
        asyncio.run(SchemaProtocol(inner, load("protocols/schema")).reply(PROMPT, quiet, unhurried))
    assert raised.value.usage == ONE + ONE


def test_where_a_change_is_asked_for_the_file_is_asked_for_as_it_is_then() -> None:
    change = PROMPT.model_copy(update={"target": "a.py", "wanted": True})
    for prompt, said in (
        (change, "Give the whole file"),
        (change.model_copy(update={"wanted": False}), "corrected"),
    ):
        _, inner = by_text("I cannot.", prompt)
        last = inner.prompts[0].messages[-1]
        assert isinstance(last, FromUser) and said in last.text and "`a.py`" in last.text


def test_a_part_of_a_file_too_long_to_be_shown_never_takes_the_place_of_all_of_it() -> None:
    long = "".join(f"def f{number}(x):\n    return x\n\n\n" for number in range(1000))
    prompt = PROMPT.model_copy(update={"files": {"a.py": long}})
    reply, inner = by_text("a.py\n```\ndef f7(x):\n    return 7\n```", prompt)
    last = inner.prompts[0].messages[-1]
    assert isinstance(last, FromUser) and "Answer with each file that must change" in last.text
    expected = long.replace("def f7(x):\n    return x", "def f7(x):\n    return 7")
    assert made(reply) == [("write", {"path": "a.py", "content": expected})]
