"""Tool calls that a server leaves in the text of an answer: carried out where they can be read."""

import asyncio
import json

import httpx
import pytest
from servers import ACCESS, Server, quiet, unhurried

from fugu_cli.errors import AgentError
from fugu_cli.messages import FromUser, Prompt, Reply, ToolSpec, Usage
from fugu_cli.providers.calls_in_text import read_calls
from fugu_cli.wires.chat_completions import OpenAI

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
    "Z.ai": "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a.py</arg_value>\n</tool_call>",
    "Moonshot": "I read it.<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0"
    '<|tool_call_argument_begin|>{"path": "a.py"}<|tool_call_end|><|tool_calls_section_end|>',
    "Mistral, newer": '[TOOL_CALLS]read[ARGS]{"path": "a.py"}',
    "DeepSeek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n"
    '```json\n{"path": "a.py"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>',
    "DeepSeek, newer": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>"
    '{"path": "a.py"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "DSML": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read">\n<｜DSML｜parameter name="path" '
    'string="true">a.py</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "MiniMax": '<minimax:tool_call>\n<invoke name="read">\n<parameter name="path">a.py</parameter>\n'
    "</invoke>\n</minimax:tool_call>",
    "Claude": 'I read it.\n\n<invoke name="read">\n<parameter name="path">a.py</parameter>\n</invoke>',
    "gpt-oss": "<|channel|>analysis<|message|>I must read it.<|end|><|start|>assistant<|channel|>"
    'commentary to=functions.read <|constrain|>json<|message|>{"path": "a.py"}<|call|>',
    "gpt-oss, the tool first": "<|start|>assistant to=functions.read<|channel|>commentary json"
    '<|message|>{"path": "a.py"}<|call|>',
    "gpt-oss, without its tokens": 'I read it.assistantcommentary to=functions.read json{"path": "a.py"}',
    "Llama, Python": '<|python_tag|>read.call(path="a.py")<|eom_id|>',
    "Llama 4": "<|python_start|>[read(path='a.py')]<|python_end|>",
    "Phi": '<|tool_call|>[{"name": "read", "arguments": {"path": "a.py"}}]<|/tool_call|>',
    "Command": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "read", "parameters": '
    '{"path": "a.py"}}]<|END_ACTION|>',
    "a family that is not known": '<tool:calls><acme:invoke name="read"><acme:parameter name="path">'
    "a.py</acme:parameter></acme:invoke></tool:calls>",
    "with a made-up result": '<tool_call>{"name": "read", "arguments": {"path": "a.py"}}</tool_call>\n'
    "<tool_response>\nit is empty\n</tool_response>\nIt is empty.",
    "in a fence": '```json\n{"name": "read", "arguments": {"path": "a.py"}}\n```',
    "nothing but JSON": '{"name": "read", "arguments": {"path": "a.py"}}\n',
    "nothing but a list": '[{"name": "read", "arguments": {"path": "a.py"}}]',
    "the field of the wire": '{"tool_calls": [{"type": "function", "function": {"name": "read", '
    '"arguments": "{\\"path\\": \\"a.py\\"}"}}]}',
    "Gemini": '```tool_code\nprint(default_api.read(path="a.py"))\n```',
    "LongCat": "<longcat_tool_call>read\n<longcat_arg_key>path</longcat_arg_key>\n"
    "<longcat_arg_value>a.py</longcat_arg_value>\n</longcat_tool_call>",
    "Step": "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>read\n"
    '{"path": "a.py"}<｜tool_call_end｜><｜tool_calls_end｜>',
    "gpt-oss, the receiver alone": 'to=functions.read<|message|>{"path": "a.py"}',
}
LEFT = {
    "half of one": 'Now.\n<tool_call>\n{"name": "read", "arguments": {"path": \n</tool_call>',
    "the end is cut": 'I look.\n<invoke name="read">\n<parameter name="path">a.py',
    "the end mark is cut": '<invoke name="read">\n<parameter name="path">a.py</parameter>\n</inv',
    "cut behind the mark": "I look.\n<tool_call>\n",
    "cut inside the arguments": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>"
    '{"path": "a',
    "cut behind the name": "<|channel|>commentary to=functions.read <|constrain|>json<|mess",
    "cut inside the name": "<tool_call>\n<function=re",
    "cut in a mark behind the name": "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜too",
    "nothing but JSON, cut": '{"name": "read", "arguments": {"path": ',
    "Gemini, cut": "```tool_code\nprint(default_api.read(path=",
    "a form that is only recognised": '<|tool_call>call:read{path:<|"|>a.py<|"|>}<tool_call|>',
    "words behind a call that is the beginning": '<tool_call>{"name": "read", "arguments": '
    '{"path": "a.py"}}</tool_call>\nI wait for the result.',
    "one of them another tool": '<tool_call>{"name": "read", "arguments": {}}</tool_call>'
    '<tool_call>{"name": "fly", "arguments": {}}</tool_call>',
}
ANSWERS = {
    "a mark at the end of a sentence": "Each of them begins with <tool_call>",
    "JSON that is cut": '{"name": "reader", "arguments": {"path": "a',
    "JSON with words behind it": '{"name": "read", "arguments": {"path": "a.py"}} is how it looks.',
    "a list of something else": '[{"name": "read", "arguments": {}}, {"name": "Ada"}]',
    "code of Gemini's for something else": "```tool_code\nprint(sum([1, 2]))\n```",
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
    "quoted in a line": 'Claude writes `<invoke name="read"><parameter name="path">` for a call.',
    "quoted at the end": 'The beginning is "<|tool_call_begin|>functions.read:0',
    "a block quote": '> <tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>',
    "an unquoted mark in a sentence": 'It begins with\n<invoke name="read"> and ends with </invoke>',
    "a call between words": "Kimi writes <|tool_call_begin|>functions.read:0"
    '<|tool_call_argument_begin|>{"path": "x"}<|tool_call_end|> for a call.',
    "a fence that is open": 'So:\n```\n<invoke name="read">\n<parameter name="path">a</parameter>',
    "code": 'MARKS = ["<tool_call>", "<|channel|>commentary to=functions.read"]\nread>',
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
    spoken = ("I read it.", "Now.")
    before = next((words for words in spoken if READ_CALLS[name].startswith(words)), "")
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


@pytest.mark.parametrize("name", READ_CALLS)
def test_a_call_that_is_cut_anywhere_behind_its_mark_is_no_answer(name: str) -> None:
    text, is_begun = READ_CALLS[name], False
    for cut in range(1, len(text)):
        try:
            reply = read_calls(Reply(text=text[:cut]), PROMPT.tools, ACCESS)
        except AgentError:
            is_begun = True
        else:
            is_begun |= bool(reply.calls)
            assert reply.calls or not reply.text or not is_begun, text[:cut]
    assert is_begun


@pytest.mark.parametrize("name", ANSWERS)
def test_what_only_speaks_of_calls_is_an_answer(name: str) -> None:
    assert ask(ANSWERS[name]).text == ANSWERS[name]


def test_where_no_tools_were_offered_every_text_is_an_answer() -> None:
    assert (
        ask(READ_CALLS["Qwen"], PROMPT.model_copy(update={"tools": ()})).text == READ_CALLS["Qwen"]
    )


@pytest.mark.parametrize("name", sorted({*READ_CALLS, *ANSWERS}))
def test_what_is_shown_of_a_streamed_reply_is_its_answer(name: str) -> None:
    text = {**READ_CALLS, **ANSWERS}[name]
    shown: list[str] = []
    events = [{"choices": [{"delta": {"content": character}}]} for character in text]
    events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, text=body)
    agent = OpenAI(ACCESS, Server(response))
    reply = asyncio.run(agent.reply(PROMPT, shown.append, unhurried))
    assert "".join(shown).rstrip() == reply.text.rstrip()


def test_arguments_of_tags_have_the_types_of_the_tool() -> None:
    fields = {"path": {"type": "string"}, "limit": {"type": "integer"}, "tags": {"type": "array"}}
    schema = json.dumps({"type": "object", "properties": fields})
    prompt = PROMPT.model_copy(update={"tools": (READ.model_copy(update={"parameters": schema}),)})
    text = (
        '<invoke name="read"><parameter name="path">12</parameter><parameter name="limit">3'
        '</parameter><parameter name="tags">["</parameter>"]</parameter></invoke>'
    )
    call = ask(text, prompt).calls[0]
    assert json.loads(call.arguments) == {"path": "12", "limit": 3, "tags": ["</parameter>"]}


def test_the_channels_of_a_reply_are_its_thoughts_and_its_answer() -> None:
    reply = ask(
        "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>"
        "It is 4.<|return|>"
    )
    assert (reply.text, [block.text for block in reply.thinking]) == ("It is 4.", ["Easy."])


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
