"""The toolbox: what agents are told, and what is answered to calls that cannot be understood."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.messages import Call, ToolSpec
from fugu_cli.safety.policy import Rules, judge
from fugu_cli.tools.bash import BashArguments
from fugu_cli.tools.edit import EditArguments
from fugu_cli.tools.read_write import ReadArguments, WriteArguments
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.todo import TODO_LIST, TodoArguments
from fugu_cli.tools.toolbox import Toolbox, tool_spec
from fugu_cli.tools.workspace import ForeignSpec, RawArguments, Tool, Workspace
from tests.unit.conftest import TOOLS


def parse(tool: str, arguments: str) -> object:
    return TOOLS.parse(Call(id="1", tool=tool, arguments=arguments))[1]


def test_arguments_are_read_leniently_where_it_is_harmless() -> None:
    assert parse("read", '{"path": "a.py", "offset": "3", "limit": null}') == ReadArguments(
        path="a.py", offset=3
    )
    assert parse("write", '{"path": "a", "content": 12}') == WriteArguments(path="a", content="12")
    assert parse("list", "") == TOOLS["list"].arguments()


def test_other_tools_words_are_understood_where_they_can_mean_but_one_thing() -> None:
    twice = '{"path": "a", "content": "x"}'
    assert parse("write", twice + "\n" + twice) == WriteArguments(path="a", content="x")
    assert parse("read", '{"file_path": "a.py"}') == ReadArguments(path="a.py")
    assert parse(
        "edit", '{"filePath": "a", "old_string": "x", "new_string": "y"}'
    ) == EditArguments(path="a", old="x", new="y")
    assert parse("bash", '{"command": ["bash", "-lc", "ls -l | wc"]}') == BashArguments(
        command="ls -l | wc"
    )
    assert parse("bash", '{"cmd": ["grep", "a b", "c"]}') == BashArguments(command="grep 'a b' c")
    items = [{"text": "x", "status": "pending"}]
    todo = Toolbox((TODO_LIST,)).parse(Call.make("1", "todo", items=json.dumps(items)))[1]
    assert todo == TodoArguments.model_validate({"items": items})
    assert (
        Toolbox((TODO_LIST,)).parse(
            Call.make("1", "todo", todos=[{"content": "x", "status": "pending"}])
        )[1]
        == todo
    )


def test_two_objects_that_differ_are_refused() -> None:
    for other in ('{"path": "b"}', '{"path": "a", "offset": 2}', "1", "{"):
        found = parse("read", '{"path": "a"}' + other)
        assert isinstance(found, ToolResult) and "the arguments are not valid JSON" in found.text


def test_policy_judges_what_the_tool_will_do_in_whatever_words_it_is_said(tmp_path: Path) -> None:
    for call in (
        Call.make("1", "write", file_path="/etc/made", content="x"),
        Call.make("1", "bash", cmd=["bash", "-c", "curl example.org"]),
        Call.make("1", "apply_patch", input="--- /dev/null\n+++ /etc/made\n@@ -0,0 +1 @@\n+x\n"),
    ):
        assert judge(call, Rules(mode="edit"), tmp_path).verdict == "ask"


def test_a_foreign_tools_list_that_came_as_text_is_a_list() -> None:
    async def nothing(given: RawArguments, workspace: Workspace, say: Say) -> ToolResult:
        return ToolResult(text="")

    schema = {
        "type": "object",
        "properties": {"paths": {"type": "array"}, "note": {"type": "string"}},
    }
    foreign = ForeignSpec("reads", json.dumps(schema))
    tool = Tool(
        name="mcp__files__read", effect="runs", arguments=RawArguments, run=nothing, foreign=foreign
    )
    call = Call.make("1", "mcp__files__read", paths='["a", "b"]', note='["c"]')
    assert Toolbox((tool,)).parse(call)[1] == RawArguments(
        values={"paths": ["a", "b"], "note": '["c"]'}
    )


def test_a_call_that_cannot_be_understood_is_told_what_is_wrong_and_what_is_expected() -> None:
    def refused(text: str) -> ToolResult:
        return ToolResult(text=text, ok=False)

    takes = "It takes path, offset?, limit?."
    assert parse("read", "{}") == refused(f"read was not run: `path` is missing. {takes}")
    assert parse("read", '["a"]') == refused(
        f"read was not run: the arguments must be a JSON object, not list. {takes}"
    )
    assert parse("read", '{"path": "a", "offset": 0}') == refused(
        f"read was not run: `offset`: Input should be greater than or equal to 1. {takes}"
    )
    assert parse("reed", "{}") == refused(
        "There is no tool `reed`. Did you mean read? The tools are: "
        "read, list, glob, grep, edit, write, apply_patch, bash, run_tests."
    )
    broken = parse("read", '{"path": "a')
    assert isinstance(broken, ToolResult)
    assert broken.text.startswith(
        "read was not run: the arguments are not valid JSON: Unterminated string"
    )
    half = parse("read", '{"path": "\\ud800"}')
    assert isinstance(half, ToolResult)
    assert "half a character" in half.text


def test_a_tool_is_told_with_nothing_that_is_not_needed() -> None:
    assert tool_spec(TOOLS["write"], "Writes.") == ToolSpec(
        name="write",
        description="Writes.",
        parameters=json.dumps(
            {
                "type": "object",
                "properties": {
                    "path": {"description": "file, relative to the repository", "type": "string"},
                    "content": {"description": "the whole new content", "type": "string"},
                },
                "required": ["path", "content"],
            }
        ),
    )


def test_every_tool_has_a_description_and_fits_a_small_first_request() -> None:
    specs = TOOLS.specs(TOOLS)
    assert {one.name for one in specs} == {*TOOLS.names, "diff"}
    assert all(one.description for one in specs)
    assert "plain" not in specs[0].parameters
    assert sum(len(one.model_dump_json()) for one in specs) < 5000


@given(st.text(max_size=60), st.sampled_from(TOOLS.names))
def test_any_arguments_are_parsed_or_refused(arguments: str, tool: str) -> None:
    assert parse(tool, arguments) is not None
