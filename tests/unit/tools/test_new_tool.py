"""A tool that is added is judged by what it declares: no other file knows its name."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import pytest

from fugu_cli.messages import Call
from fugu_cli.safety.path_rules import Denials, call_refusal
from fugu_cli.safety.policy import Rules, judge
from fugu_cli.safety.saved_permissions import rule_for
from fugu_cli.session.events import Asked
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.wiring import build_toolbox

SOURCE = """
from pydantic import BaseModel
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.workspace import Tool


class Arguments(BaseModel):
    where: str | list[str] = "."
    line: str = ""


async def run(given, workspace, say):
    return ToolResult(text="done")


TOOLS = (
    Tool(name="outline", effect="reads", arguments=Arguments, run=run, paths=("where",)),
    Tool(name="reformat", effect="writes", arguments=Arguments, run=run, paths=("where",)),
    Tool(name="profile", effect="runs", arguments=Arguments, run=run, command="line"),
    Tool(name="mystery", effect="reads", arguments=Arguments, run=run),
)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository beside a module with new tools, which a toolbox has."""
    path = tmp_path / "new_tools.py"
    path.write_text(SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("new_tools", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    Toolbox(module.TOOLS)
    root = tmp_path.resolve() / "repo"
    (root / "keys").mkdir(parents=True)
    (root / "keys/a.txt").write_text("x", encoding="utf-8")
    return root


def verdict(root: Path, tool: str, rules: Rules, **arguments: object) -> str:
    return judge(Call.make("1", tool, **arguments), rules, root).verdict


def test_a_new_reader_is_allowed_inside_the_workspace_and_asked_about_outside(root: Path) -> None:
    rules = Rules(mode="ask")
    inside, outside = str(root / "keys"), "/etc/passwd"
    wheres = ("keys/a.txt", inside, outside, ["keys", outside], f'["keys", "{outside}"]')
    found = [verdict(root, "outline", rules, where=where) for where in wheres]
    assert found == ["allow", "allow", "ask", "ask", "ask"]
    assert verdict(root, "outline", Rules(mode="plan")) == "allow"


def test_a_new_writer_is_asked_about_and_edit_mode_keeps_it_inside(root: Path) -> None:
    assert verdict(root, "reformat", Rules(mode="ask"), where="a.py") == "ask"
    assert verdict(root, "reformat", Rules(mode="plan"), where="a.py") == "deny"
    found = [
        verdict(root, "reformat", Rules(mode="edit"), where=where)
        for where in ("a.py", "/etc/x", ".git/config")
    ]
    assert found == ["allow", "ask", "ask"]


def test_a_new_tool_with_a_command_line_is_judged_by_it(root: Path) -> None:
    assert verdict(root, "profile", Rules(mode="edit"), line="make all") == "ask"
    assert (
        verdict(root, "profile", Rules(mode="yolo", deny=("bash(make *)",)), line="make all")
        == "deny"
    )
    assert verdict(root, "profile", Rules(mode="yolo", deny=("profile",)), line="ls") == "deny"


def test_what_declares_nothing_is_asked_about(root: Path) -> None:
    assert [
        verdict(root, "mystery", Rules(mode=mode), where="a") for mode in ("ask", "edit", "auto")
    ] == ["ask", "ask", "deny"]


def test_rules_hold_by_the_path_that_it_declares(root: Path) -> None:
    for rule in ("read(keys/**)", "outline(keys/**)"):
        assert (
            verdict(root, "outline", Rules(mode="yolo", deny=(rule,)), where="keys/a.txt") == "deny"
        )
        assert verdict(root, "outline", Rules(mode="yolo", deny=(rule,)), where="b.txt") == "allow"
    assert (
        verdict(root, "reformat", Rules(mode="yolo", deny=("edit(keys/**)",)), where="keys/a.txt")
        == "deny"
    )
    assert (
        verdict(root, "reformat", Rules(mode="ask", allow=("edit(src/**)",)), where="src/a.py")
        == "allow"
    )


def test_files_kept_from_an_agent_are_kept_by_the_path_that_it_declares(root: Path) -> None:
    denials, events = Denials({"keys/**": ("one",)}, root), [Asked(text="x")]

    def refused(agent: str, tool: str, **arguments: object) -> str:
        return call_refusal(events, agent, Call.make("1", tool, **arguments), denials)

    assert refused("one", "outline", where="keys/a.txt") == "deny_agents keeps keys/a.txt from one"
    assert (
        refused("one", "outline", where=["b", "keys/a.txt"])
        == "deny_agents keeps keys/a.txt from one"
    )
    assert refused("one", "profile", line="cat b").startswith("a command could read")
    assert [
        refused("two", "outline", where="keys/a.txt"),
        refused("one", "outline", where="b"),
    ] == ["", ""]


def test_the_question_shows_the_path_and_a_yes_is_for_that_path(root: Path) -> None:
    call = Call.make("1", "reformat", where="a.py")
    judged = judge(call, Rules(mode="ask"), root)
    assert judged.target == f"reformat({root / 'a.py'})"
    rules = Rules(mode="ask", allow=(rule_for(call, judged),))
    assert [verdict(root, "reformat", rules, where=where) for where in ("a.py", "b.py")] == [
        "allow",
        "ask",
    ]


def test_no_tool_can_take_the_name_of_another(root: Path) -> None:
    taken = dataclasses.replace(build_toolbox()["write"], effect="reads")
    with pytest.raises(ValueError, match="two tools are called write"):
        Toolbox((taken,))
