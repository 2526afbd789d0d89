"""Standing instructions: which files count under which names, what they import, and what agents are
shown where.
"""

import asyncio
from pathlib import Path

import pytest

from fugu_cli.config import Config, trust
from fugu_cli.config.loader import load_config
from fugu_cli.engine.tool_calls import run_call
from fugu_cli.extensions.instruction_files import (
    nested_instructions,
    standing_instructions,
    unread_notes,
)
from fugu_cli.messages import Call
from fugu_cli.session.events import ToolRan
from fugu_cli.session.log import Log
from tests.unit.extensions.hooks.test_running import Play
from tests.unit.extensions.skills.making import text


def shown(root: Path) -> str:
    return standing_instructions(root, (), lambda _: True).text


@pytest.mark.parametrize(
    "name",
    [
        "AGENTS.md",
        "CLAUDE.md",
        ".claude/CLAUDE.md",
        "GEMINI.md",
        ".cursorrules",
        ".github/copilot-instructions.md",
    ],
)
def test_files_for_other_agents_count_too(tmp_path: Path, name: str) -> None:
    text(tmp_path / name, "Use tabs.")
    tabs = f"\nThe user's standing instructions ({Path(name).name}):\nUse tabs."
    assert shown(tmp_path) == tabs
    if name != "AGENTS.md":
        text(tmp_path / "AGENTS.md", "Be brief.")
        brief = "\nThe user's standing instructions (AGENTS.md):\nBe brief."
        assert shown(tmp_path) == f"{brief}\n{tabs}"


def test_rules_of_other_agents_that_are_not_read_are_named(tmp_path: Path) -> None:
    text(tmp_path / ".cursor/rules/style.mdc", "Use tabs.")
    text(tmp_path / ".clinerules", "Use tabs.")
    assert unread_notes(tmp_path) == [
        ".cursor/rules is not read; AGENTS.md can take in a file with @.cursor/rules/FILE",
        ".clinerules is not read; AGENTS.md can take in a file with @.clinerules",
    ]


def test_what_several_files_say_alike_is_shown_once(tmp_path: Path) -> None:
    text(tmp_path / "AGENTS.md", "Be brief.")
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")
    text(tmp_path / "GEMINI.md", "Be brief.")
    assert shown(tmp_path).count("Be brief.") == 1
    text(tmp_path / ".cursorrules", "@AGENTS.md and use tabs")
    assert (shown(tmp_path).count("Be brief."), "and use tabs" in shown(tmp_path)) == (1, True)


@pytest.mark.parametrize(
    "name", [".config/agents/AGENTS.md", ".agents/AGENTS.md", ".codex/AGENTS.md"]
)
def test_the_users_own_count_in_every_repository_before_its_own(tmp_path: Path, name: str) -> None:
    text(Path.home() / name, "Answer in Basque.")
    own = "\nThe user's standing instructions (AGENTS.md, for every repository):\nAnswer in Basque."
    assert standing_instructions(None, (), lambda _: False).text == own
    text(tmp_path / "CLAUDE.md", "Use tabs.")
    assert shown(tmp_path) == f"{own}\n\nThe user's standing instructions (CLAUDE.md):\nUse tabs."


def test_a_file_in_utf16_is_read_and_one_that_is_no_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_bytes("Use tabs.\r\n".encode("utf-16"))
    assert shown(tmp_path) == "\nThe user's standing instructions (AGENTS.md):\nUse tabs.\r\n"
    (tmp_path / "AGENTS.md").write_bytes(b"\x7fELF\0\1")
    found = standing_instructions(tmp_path, (), lambda _: True)
    assert (found.text, found.notes) == (
        "",
        (f"{tmp_path}/AGENTS.md: it is not text, so agents are not shown it",),
    )


def test_imports_stand_below_and_lead_nowhere_else(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    said = (
        "See @docs/style.md, and `@docs/no.md`.\n```\n@docs/no.md\n```\n@../out.md @.env "
        "@types/node me@docs/no.md"
    )
    text(root / "CLAUDE.md", said)
    text(root / "docs/style.md", "Tabs. @more.md")
    text(root / "docs/more.md", "Really. @style.md")
    for name in ("docs/no.md", ".env", "../out.md"):
        text(root / name, "NEVER")
    whole = f"{said}\n\n[style.md:]\nTabs. @more.md\n\n[more.md:]\nReally. @style.md"
    assert shown(root) == f"\nThe user's standing instructions (CLAUDE.md):\n{whole}"


def test_what_is_imported_is_trusted_with_what_imports_it(tmp_path: Path) -> None:
    data, root = Config().data, tmp_path
    text(root / "AGENTS.md", "@docs/style.md")
    text(root / "docs/style.md", "Tabs.")
    assert trust.trust(data, root)
    text(root / "docs/style.md", "Spaces.")
    assert trust.changed_files(data, root) == ("docs/style.md",)


def test_instructions_below_the_root_count_as_they_were_when_it_was_trusted(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    text(root / ".git/HEAD", "")
    text(root / "web/AGENTS.md", "Use tabs. @style.md")
    text(root / "web/style.md", "Wide ones.")
    text(root / "web/deep/CLAUDE.md", "Deeper.")
    text(root / "other/.git/HEAD", "")
    text(root / "other/AGENTS.md", "Another repository.")
    trust.trust(Config().data, root)
    text(root / "late/AGENTS.md", "Nobody has seen it.")

    def of(path: str) -> list[str]:
        loaded = load_config(root, {})
        assert loaded.trusted
        return [
            said
            for said in nested_instructions(root, loaded.below, loaded.vouched)(Path(path)).values()
        ]

    assert of("web/a.ts") == ["Use tabs. @style.md\n\n[style.md:]\nWide ones."]
    assert of("web/deep/er/a.ts")[1:] == ["Deeper."]
    assert (of("a.ts"), of("other/a.ts"), of("late/a.ts")) == ([], [], [])
    text(root / "web/style.md", "Narrow ones.")
    assert of("web/a.ts") == ["Use tabs. @style.md"]
    text(root / "web/AGENTS.md", "Changed.")
    assert of("web/a.ts") == []


def test_an_agent_is_shown_them_once_when_it_works_there(tmp_path: Path) -> None:
    play = Play(tmp_path, (), Call.make("1", "read", path="web/a.ts"))
    stage, root = play.stage(), tmp_path / "repo"
    text(root / "web/AGENTS.md", "Use tabs.")
    text(root / "web/a.ts", "one\n")
    heading = "[The user's standing instructions for web/ (AGENTS.md):]\nUse tabs.\n\n"

    async def calls(log: Log) -> list[str]:
        from dataclasses import replace

        await stage.begin(log, "change it", judged=False)
        environment = replace(
            stage.environment(), nearer=nested_instructions(root, (), lambda _: True)
        )
        for number, tool in enumerate(("read", "read")):
            await run_call(log, environment, 1, Call.make(str(number), tool, path="web/a.ts"))
        await run_call(log, environment, 1, Call.make("2", "read", path="calc.txt"))
        return [event.output for event in log.events if isinstance(event, ToolRan)]

    first, second, third = asyncio.run(calls(play.log))
    assert (first, second) == (f"{heading}1\tone", "1\tone")
    assert "instructions" not in third
