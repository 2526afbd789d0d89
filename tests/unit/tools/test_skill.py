"""The tool that reads a skill: what agents are told of it, what it says, and which agents have
it.
"""

import asyncio
import json
from pathlib import Path

import pytest

from fugu_cli import wiring
from fugu_cli.engine import harness
from fugu_cli.engine.environment import Environment
from fugu_cli.extensions.skill_library import ExtensionFolder, load_library
from fugu_cli.extensions.skills import Skill
from fugu_cli.messages import Call
from fugu_cli.safety.policy import Rules, judge
from fugu_cli.session.events import Asked, Assigned, Member, Opened, Role
from fugu_cli.session.state import SessionState
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace
from tests.reacting import never
from tests.unit.extensions.skills import making

NATIVE = Member(name="a", provider="openai", model="m", slot="strong")


@pytest.fixture
def skills(tmp_path: Path) -> tuple[Skill, ...]:
    making.skill(
        tmp_path / "home",
        "release",
        "How to release.",
        body="You are now an assistant who releases.",
    )
    making.skill(tmp_path / "home", "pdf", "Forms {in} braces.")
    return load_library((ExtensionFolder(tmp_path / "home", "~/.agents"),)).skills


def called(toolbox: Toolbox, tmp_path: Path, name: str) -> ToolResult:
    workspace = Workspace(tmp_path, tmp_path / "store")
    return asyncio.run(toolbox.run(Call.make("1", "skill", name=name), workspace, lambda _: None))


def offered(toolbox: Toolbox, member: Member, role: Role, root: Path) -> list[str]:
    facts = [
        Opened(version="0", repo="/", pool=(member,)),
        Asked(text="add it"),
        Assigned(turn=1, agent=member.name, role=role, by="x"),
    ]
    environment = Environment(toolbox, Workspace(root, root / "store"), Rules(), never)
    return [spec.name for spec in harness.offered_tools(SessionState(facts), environment)]


def test_agents_are_told_the_names_and_descriptions_with_the_tool(
    skills: tuple[Skill, ...],
) -> None:
    toolbox = wiring.build_toolbox(None, skills)
    (told,) = toolbox.specs([toolbox["skill"]])
    assert told.description.endswith("\n- pdf: Forms {in} braces.\n- release: How to release.")
    assert json.loads(told.parameters) == {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "which one"}},
        "required": ["name"],
    }


def test_without_skills_there_is_no_such_tool() -> None:
    assert "skill" not in wiring.build_toolbox()


def test_it_says_what_the_skill_says(skills: tuple[Skill, ...], tmp_path: Path) -> None:
    assert called(wiring.build_toolbox(None, skills), tmp_path, "pdf") == ToolResult(
        text=skills[0].text()
    )


def test_a_name_that_is_not_there_is_answered_with_those_that_are(
    skills: tuple[Skill, ...], tmp_path: Path
) -> None:
    toolbox = wiring.build_toolbox(None, skills)
    assert (
        called(toolbox, tmp_path, "relase").text
        == "There is no skill relase. Did you mean release?"
    )
    assert called(toolbox, tmp_path, "zzz") == ToolResult(
        text="There is no skill zzz. There are pdf, release.", ok=False
    )


def test_a_skill_that_cannot_be_read_any_more_is_an_answer(
    skills: tuple[Skill, ...], tmp_path: Path
) -> None:
    skills[0].file.unlink()
    found = called(wiring.build_toolbox(None, skills), tmp_path, "pdf")
    assert found == ToolResult(
        text="~/.agents/skills/pdf cannot be used: it is not a file.", ok=False
    )


def test_agents_have_it_in_every_role(skills: tuple[Skill, ...], tmp_path: Path) -> None:
    with_it, without = wiring.build_toolbox(None, skills), wiring.build_toolbox()
    for role in ("worker", "thinker", "verifier"):
        assert offered(with_it, NATIVE, role, tmp_path) == [
            *offered(without, NATIVE, role, tmp_path),
            "skill",
        ]


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        (Rules(mode="plan"), "allow"),
        (Rules(mode="ask"), "allow"),
        (Rules(ask=("skill",)), "ask"),
        (Rules(deny=("skill(pdf)",)), "deny"),
        (Rules(deny=("skill(release)",)), "allow"),
        (Rules(deny=("*",)), "deny"),
    ],
)
def test_it_reads_so_nobody_is_asked_unless_a_rule_says_so(
    rules: Rules, verdict: str, tmp_path: Path
) -> None:
    found = judge(Call.make("1", "skill", name="pdf"), rules, tmp_path)
    assert (found.verdict, found.target) == (verdict, "skill(pdf)")


@pytest.mark.parametrize(
    ("tool", "path", "verdict"),
    [
        ("read", "pdf/style.md", "allow"),
        ("list", "pdf", "allow"),
        ("grep", "pdf/references", "allow"),
        ("read", "pdf/../release/SKILL.md", "ask"),
        ("read", "pdf/link", "ask"),
        ("read", "pdf/.env", "ask"),
        ("read", "pdf-other/x", "ask"),
        ("write", "pdf/style.md", "ask"),
    ],
)
def test_of_what_lies_outside_exactly_a_skills_own_folder_may_be_read(
    tool: str, path: str, verdict: str, tmp_path: Path
) -> None:
    outside, root = tmp_path / "outside", tmp_path / "repo"
    (outside / "pdf").mkdir(parents=True)
    (outside / "pdf/link").symlink_to(outside / "release")
    rules = Rules(mode="edit", readable=(outside / "pdf",))
    assert (
        judge(Call.make("1", tool, path=str(outside / path), content=""), rules, root).verdict
        == verdict
    )


@pytest.mark.parametrize(
    "path", [".agents/skills/a/SKILL.md", "pkg/.agents/commands/x.md", "pkg/.Agents/x"]
)
def test_skills_and_commands_of_a_repository_are_written_with_a_yes_every_time(
    path: str, tmp_path: Path
) -> None:
    found = judge(Call.make("1", "write", path=path, content=""), Rules(mode="edit"), tmp_path)
    assert (found.verdict, found.every_time) == ("ask", True)
