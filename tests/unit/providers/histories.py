"""Histories as a log may hold them after the worst of days: hypothesis strategies."""

import json

from hypothesis import strategies as st

from fugu_cli.messages import (
    Call,
    FromAgent,
    FromTool,
    FromUser,
    Media,
    Message,
    Prompt,
    Thinking,
    ToolSpec,
)

ME, OTHER = "strong", "cheap"
SIGNED = json.dumps({"type": "thinking", "thinking": "hm", "signature": "c2ln"})
REASONED = json.dumps(
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbA=="}
)
SEALED = json.dumps({"type": "redacted_thinking", "data": "c2VhbA=="})

SHOT = Media(
    name="shot.png", type="image/png", sha="a" * 64, size=3, width=8, height=6, data="UE5H"
)
REPORT = Media(
    name="report.pdf",
    type="application/pdf",
    sha="b" * 64,
    size=3,
    pages=2,
    text="words",
    data="UERG",
)

texts = st.one_of(
    st.sampled_from(["", " ", "\n\t", "yes", "```\ncode\n```", "\x00"]), st.text(max_size=12)
)
ids = st.one_of(
    st.sampled_from(["a", "b", "call_0", "call_1", "", "two words", "ü", "x" * 70]),
    st.text(max_size=4),
)
names = st.one_of(
    st.sampled_from(["read", "write", "", "no such tool", "x" * 90]), st.text(max_size=4)
)
arguments = st.one_of(
    st.sampled_from(
        [
            "",
            "{}",
            '{"path": "a"}',
            '{"path"',
            "[]",
            "null",
            "NaN",
            '{"n": NaN}',
            '{"s": "\\ud800"}',
            "[" * 3000,
        ]
    ),
    st.text(max_size=8),
    st.dictionaries(
        st.text(max_size=3), st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=2
    ).map(json.dumps),
)
calls = st.builds(Call, id=ids, tool=names, arguments=arguments)
thinking = st.builds(
    Thinking,
    text=texts,
    data=st.sampled_from(
        ["", SIGNED, SEALED, REASONED, "{", "[]", '{"type": "thinking"}', '{"type": 3}']
    ),
)
shown = st.lists(st.sampled_from([SHOT, REPORT]), max_size=2).map(tuple)
messages = st.one_of(
    st.builds(FromUser, text=texts, media=shown),
    st.builds(
        FromAgent,
        agent=st.sampled_from([ME, OTHER]),
        text=texts,
        thinking=st.lists(thinking, max_size=2).map(tuple),
        calls=st.lists(calls, max_size=3).map(tuple),
    ),
    st.builds(FromTool, call=ids, tool=names, text=texts, ok=st.booleans(), media=shown),
)
histories: st.SearchStrategy[list[Message]] = st.lists(messages, max_size=10)

READ = ToolSpec(
    name="read",
    description="Read a file.",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "title": "Path"},
                "offset": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            },
            "required": ["path"],
        }
    ),
)
WRITE = ToolSpec(
    name="write",
    description="Write a file.",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        }
    ),
)
TESTS = ToolSpec(
    name="run_tests",
    description="Run the tests.",
    parameters='{"type": "object", "properties": {}}',
)
TOOLS = (READ, WRITE, TESTS)

prompts = st.builds(
    Prompt,
    system=texts,
    messages=histories.map(tuple),
    tools=st.sampled_from([(), TOOLS]),
    max_tokens=st.just(100),
    temperature=st.sampled_from([None, 0.0, 0.8]),
    seed=st.sampled_from([None, 3]),
)
