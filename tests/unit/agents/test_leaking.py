"""Tool calls that a server leaves in the text of an answer: carried out where they can be read."""

import asyncio

import httpx
import pytest
from servers import ACCESS, Server, quiet, unhurried

from fugu_cli.errors import AgentError
from fugu_cli.messages import FromUser, Prompt, Reply, ToolSpec, Usage
from fugu_cli.providers.chat_completions import OpenAI

READ = ToolSpec(name="read", description="reads", parameters='{"type": "object", "properties": {}}')
PROMPT = Prompt(system="s", messages=(FromUser(text="u"),), tools=(READ,))

READ_CALLS = {
    "Qwen": (
        'I read it.\n<tool_call>\n{"name": "read", "arguments": {"path": "a.py"}}\n</tool_call>'
    ),
    "Qwen Coder": "<tool_call>\n<function=read>\n<parameter=path>\na.py\n</parameter>\n</function>\n</tool_call>\n",
    "Qwen, several": '<tool_call>{"name": "read", "arguments": {"path": "a.py"}}</tool_call>\n' * 2,
    "Qwen Coder, alone": "Now.\n<function=read><parameter=path>a.py</parameter></function>",
    "Llama": '<function=read>{"path": "a.py"}</function>',
    "Mistral": '[TOOL_CALLS][{"name": "read", "arguments": {"path": "a.py"}}]',
    "Meta": '<|python_tag|>{"name": "read", "parameters": {"path": "a.py"}}',
    "in a fence": '```json\n{"name": "read", "arguments": {"path": "a.py"}}\n```',
}
LEFT = {
    "Z.ai": "\n<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a.py</arg_value>\n</tool_call>",
    "Moonshot": "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
    '{"path": "a.py"}<|tool_call_end|><|tool_calls_section_end|>',
    "half of one": 'Now.\n<tool_call>\n{"name": "read", "arguments": {"path": \n</tool_call>',
    "one of them another tool": '<tool_call>{"name": "read", "arguments": {}}</tool_call>'
    '<tool_call>{"name": "fly", "arguments": {}}</tool_call>',
}
ANSWERS = {
    "another tool": '<tool_call>\n{"name": "fly", "arguments": {}}\n</tool_call>',
    "an example in a fence": (
        'So it looks:\n```\n<tool_call>\n{"name": "read"}\n</tool_call>\n```\n<end>'
    ),
    "an example in words": '<tool_call>\n{"name": "read"}\n</tool_call>\nis what the parser reads.',
    "JSON of something else": '```json\n{"name": "read", "version": 1, "arguments": {}}\n```',
    "a fence with words": (
        'A call is\n```json\n{"name": "read", "arguments": {"path": "a.py"}}\n```'
    ),
    "a fence of another tool": '```json\n{"name": "fly", "arguments": {}}\n```',
    "a fence with a name alone": '```json\n{"name": "read"}\n```',
    "a mark in a sentence": "The parser looks for <tool_call> and read>",
}


def ask(text: str, prompt: Prompt = PROMPT) -> Reply:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    whole = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    return asyncio.run(
        OpenAI(ACCESS, Server(httpx.Response(200, json=whole))).reply(prompt, quiet, unhurried)
    )


@pytest.mark.parametrize("name", READ_CALLS)
def test_a_call_that_can_be_read_is_one(name: str) -> None:
    reply = ask(READ_CALLS[name])
    before = {"Qwen": "I read it.", "Qwen Coder, alone": "Now."}.get(name, "")
    count = 2 if name == "Qwen, several" else 1
    assert (reply.text, reply.stop, len({call.id for call in reply.calls})) == (
        before,
        "calls",
        count,
    )
    assert [(call.tool, call.arguments) for call in reply.calls] == [
        ("read", '{"path": "a.py"}')
    ] * count


@pytest.mark.parametrize("name", LEFT)
def test_a_call_left_in_the_text_is_no_answer(name: str) -> None:
    with pytest.raises(AgentError) as raised:
        ask(LEFT[name])
    error = raised.value
    assert str(error) == "strong: api.example.org sent a tool call of gpt-5 as text"
    assert (error.kind, error.retry, error.tries, error.usage) == (
        "protocol",
        True,
        2,
        Usage(input=7, output=3),
    )
    assert 'protocol = "text"' in error.hint


@pytest.mark.parametrize("name", ANSWERS)
def test_what_only_speaks_of_calls_is_an_answer(name: str) -> None:
    assert ask(ANSWERS[name]).text == ANSWERS[name]


def test_where_no_tools_were_offered_every_text_is_an_answer() -> None:
    assert (
        ask(READ_CALLS["Qwen"], PROMPT.model_copy(update={"tools": ()})).text == READ_CALLS["Qwen"]
    )


MENDED = {
    " read\n": '{"path": "a.py"}',
    "functions.read:0": '{"path": "a.py"}',
    "Read": '{"path": "a.py"}',
    "default_api:read": '{"path": "a.py"}',
    "read<|channel|>commentary": '```json\n{"path": "a.py"}\n```',
}


@pytest.mark.parametrize("name", MENDED)
def test_a_call_whose_name_or_arguments_stand_in_marks_is_the_call_that_is_meant(name: str) -> None:
    assert called(name, MENDED[name]) == ("read", '{"path": "a.py"}')


def test_line_breaks_inside_an_argument_are_taken_and_other_faults_left_to_the_agent() -> None:
    assert called("read", '{"path": "a\nb"}') == ("read", '{"path": "a\\nb"}')
    assert called("read", '{"path": "a",}') == ("read", '{"path": "a",}')
    assert called("functions.fly", "{}") == ("functions.fly", "{}")


def called(name: str, arguments: str) -> tuple[str, str]:
    call = {"id": 7, "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "reasoning": {"odd": 1}, "tool_calls": [call]}
    whole = {"choices": [{"message": message, "finish_reason": False}]}
    reply = asyncio.run(
        OpenAI(ACCESS, Server(httpx.Response(200, json=whole))).reply(PROMPT, quiet, unhurried)
    )
    return reply.calls[0].tool, reply.calls[0].arguments
