"""Skills and custom commands from the command line: listed, trusted, used by a run, on scripted
agents.
"""

import json
import os
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.cli.flags import RunFlags
from fugu_cli.cli.run_session import resolve_request as asked_for
from fugu_cli.config import Config
from fugu_cli.config.loader import load_config
from fugu_cli.session import log, store
from fugu_cli.session.events import Asked, Assigned, Event, Permitted, ToolRan
from tests.reacting import repository
from tests.unit.extensions.skills import making

ANSWER = '[[step]]\ntext = "Done."\n' * 2
LOADS = """
[[step]]
calls = [
    { tool = "skill", arguments = { name = "release" } },
    { tool = "skill", arguments = { name = "mine" } },
    { tool = "read", arguments = { path = "~/.agents/skills/mine/style.md" } },
    { tool = "read", arguments = { path = "~/.agents/other.md" } },
]
[[step]]
text = "Done."
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a skill and commands, the user's own beside them, and two scripted
    agents.
    """
    root = repository(tmp_path / "repo").resolve()
    making.skill(
        root / ".agents",
        "release",
        "How to release.",
        body="You are now an assistant who releases.",
    )
    making.text(
        root / ".agents/commands/review.md", "---\nargument-hint: FILE\n---\nLook at @$1 with care."
    )
    making.skill(Path.home() / ".agents", "mine", "My own.")
    making.text(Path.home() / ".agents/skills/mine/style.md", "short")
    making.text(Path.home() / ".agents/other.md", "private")
    making.text(
        Path.home() / ".agents/commands/ask.md", "---\nagent: second\n---\nAnswer: $ARGUMENTS"
    )
    making.text(Path.home() / ".agents/commands/lost.md", "---\nagent: nobody\n---\nAnswer.")
    lines = ['coordinator = "single:first"']
    for name, script in (("first", LOADS), ("second", ANSWER)):
        path = making.text(tmp_path / f"{name}.toml", script)
        lines += [
            "[[agents]]",
            f'name = "{name}"',
            'provider = "scripted"',
            f'model = "{path}"',
            'slot = "strong"',
        ]
    making.text(Path.home() / ".fugurc", "\n".join(lines))
    os.chdir(root)
    return root


def facts() -> list[Event]:
    return [
        record.event for record in log.read(store.find_session(Config().data, Path.cwd(), "latest"))
    ]


def asked() -> list[tuple[str, str]]:
    return [(event.whole, event.typed) for event in facts() if isinstance(event, Asked)]


def agents() -> list[str]:
    return [event.agent for event in facts() if isinstance(event, Assigned)]


def test_they_are_listed_and_count_after_trust(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["skills"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "skills",
        "  mine  My own.  (~/.agents/skills/mine)",
        "commands",
        "  /ask   Answer: $ARGUMENTS [agent second]  (~/.agents/commands/ask.md)",
        "  /lost  Answer. [agent nobody]  (~/.agents/commands/lost.md)",
        "left out",
        "  release  its folder is not trusted; `fugu trust` there  "
        "(.agents/skills/release/SKILL.md)",
        "  /review  its folder is not trusted; `fugu trust` there  (.agents/commands/review.md)",
    ]
    assert called(["trust"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "its skill release is told to agents: How to release.",
        "its command /review can be used: Look at @$1 with care.",
    ]
    assert called(["skills"]) == 0
    said = capsys.readouterr().out
    assert (
        "  /review FILE  Look at @$1 with care.  (.agents/commands/review.md)" in said
        and "left out" not in said
    )


def test_trust_below_the_root_is_for_the_folders_in_between(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    making.skill(root / "pkg/.agents", "local")
    (root / "pkg/src").mkdir()
    os.chdir(root / "pkg/src")
    assert called(["trust"]) == 0
    said = capsys.readouterr().out
    assert (
        f"{root / 'pkg'} is trusted now as well" in said
        and "its skill local is told to agents" in said
    )
    assert called(["skills"]) == 0
    assert "  local    What it is for.  (pkg/.agents/skills/local)" in capsys.readouterr().out
    assert called(["untrust"]) == 0
    capsys.readouterr()
    assert called(["skills"]) == 0
    assert "local    its folder is not trusted" in capsys.readouterr().out


def test_a_run_loads_skills_reads_their_files_and_records_both(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["run", "--trust", "do it"]) == 0
    ran = {event.call.arguments: event.output for event in facts() if isinstance(event, ToolRan)}
    body = (
        "Paths in it are relative to `.agents/skills/release`.\n\nYou are now an assistant who "
        "releases."
    )
    assert (
        ran['{"name": "release"}']
        == f"The skill `release`: instructions the user has for this. {body}"
    )
    assert ran['{"path": "~/.agents/skills/mine/style.md"}'] == "1\tshort"
    refused = [
        event.call.arguments
        for event in facts()
        if isinstance(event, Permitted) and not event.allowed
    ]
    assert refused == ['{"path": "~/.agents/other.md"}']
    said = capsys.readouterr()
    assert "✓ skill release" in said.err
    assert called(["trace", "--turn", "1"]) == 0
    assert "▸ result of skill" in capsys.readouterr().out


def test_a_command_makes_the_request_and_the_log_keeps_what_was_typed(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["run", "--trust", "/review calc.txt"]) == 0
    assert asked() == [("Look at @calc.txt with care.", "/review calc.txt")]
    assert "▌ /review calc.txt" in capsys.readouterr().err
    assert called(["sessions"]) == 0
    assert "/review calc.txt" in capsys.readouterr().out


def test_a_command_that_is_not_trusted_is_refused_and_nothing_is_asked(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["run", "/review calc.txt"]) == 1
    said = capsys.readouterr()
    assert (said.out, "the command review is not used: its folder is not trusted" in said.err) == (
        "",
        True,
    )
    assert called(["sessions"]) == 0
    assert "calc" not in capsys.readouterr().out


def test_a_command_names_its_agent_unless_a_flag_does(root: Path) -> None:
    assert called(["run", "/ask what is it?"]) == 0
    assert (asked(), agents()) == ([("Answer: what is it?", "/ask what is it?")], ["second"])
    assert called(["run", "--agent", "first", "/ask what is it?"]) == 0
    assert agents() == ["first"]


def test_a_command_names_its_tier_unless_a_flag_does(root: Path) -> None:
    making.text(Path.home() / ".agents/commands/plan.md", "---\ntier: ultra\n---\nPlan $1.")
    loaded = load_config(root, {})
    wanted, changed = asked_for("/plan it", RunFlags(), loaded, {})
    assert (wanted.text, changed.config.tier) == ("Plan it.", "ultra")
    assert asked_for("/plan it", RunFlags(tier="fugu"), loaded, {})[1].config.tier == "fugu"


def test_an_agent_that_is_not_in_the_pool_is_said_with_the_command(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["run", "/lost"]) == 1
    said = capsys.readouterr().err
    assert (
        "/lost is for the agent 'nobody', which is not in the pool" in said
        and "first, second" in said
    )


def test_a_named_skill_is_a_part_of_the_request(root: Path) -> None:
    assert called(["run", "/skill mine write it"]) == 0
    said = (
        f"The skill `mine`: instructions the user has for this. Paths in it are relative to "
        f"`{Path.home()}/.agents"
    )
    assert asked() == [
        (f"write it\n\n{said}/skills/mine`.\n\n{making.BODY}", "/skill mine write it")
    ]


def test_programs_are_told_of_both_at_the_beginning(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["run", "--trust", "--output-format", "stream-json", "do it"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["skills"], first["slash_commands"]) == (
        ["release", "mine"],
        ["review", "ask", "lost"],
    )
    assert "skill" in first["tools"]


def test_what_is_wrong_with_one_is_said_by_a_run_and_the_doctor(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = making.text(Path.home() / ".agents/skills/bad/SKILL.md", "x")
    note = (
        f"{bad}: it has no front matter: name and description between two lines `---`; the skill "
        f"is left out"
    )
    assert called(["run", "--trust", "do it"]) == 0
    assert f"fugu: {note}\n" in capsys.readouterr().err
    called(["doctor"])
    said = capsys.readouterr().out
    assert note in said and "/ask, /lost" in said
