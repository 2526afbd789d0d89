"""`--add-dir` and `--bare` with the real binary: more folders for agents, and nothing but what the
flags say.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fugu_cli.session.events import Permitted, ToolRan
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use


@pytest.fixture
def other(place: Place) -> Path:
    """A folder beside the repository."""
    folder = place.folder / "other"
    folder.mkdir()
    (folder / "notes.txt").write_text("blue\n")
    (folder / "AGENTS.md").write_text("Write in capitals.\n")
    return folder


def calls(other: Path) -> tuple[Use, ...]:
    return (
        Use("write", {"path": str(other / "new.txt"), "content": "made\n"}),
        Use("bash", {"command": f"cat {other}/notes.txt"}),
        Use("bash", {"command": f"rm {other}/notes.txt"}),
        Use("write", {"path": str(other / ".env"), "content": "A=b\n"}),
    )


def permitted(place: Place) -> list[bool]:
    asked = [
        event for event in place.events() if isinstance(event, Permitted) and not event.by_fugu
    ]
    return [event.allowed for event in asked if event.call.tool in ("write", "bash")]


def test_agents_read_and_edit_an_added_folder_as_the_repository(
    place: Place, server: Loopback, other: Path
) -> None:
    place.configure(Agent("m"))
    assert place.fugu("trust", str(other)).code == 0
    server.play("m", Says("", calls(other)), Says("Done."), Says("ACCEPT"))
    done = place.fugu("run", "--add-dir", "../other", "look at @../other/notes.txt")
    assert done.code == 0, done.err
    first = server.asked("m")[0].text
    assert (
        "blue" in first
        and "Write in capitals." in first
        and f"you may read and edit: {other}" in first
    )
    assert permitted(place) == [
        True,
        True,
        False,
        False,
    ]  # nothing that could not be undone, no secrets
    assert (other / "new.txt").read_text() == "made\n"
    assert place.fugu("undo", "--yes").code == 0
    assert sorted(path.name for path in other.iterdir()) == ["AGENTS.md", "notes.txt"]


def test_in_a_worktree_the_folder_is_the_one_that_was_named(
    place: Place, server: Loopback, other: Path
) -> None:
    place.configure(Agent("m"))
    server.play("m", Says("", calls(other)[:1]), Says("Done."), Says("ACCEPT"))
    done = place.fugu("run", "--worktree", "--add-dir", "../other", "look")
    assert (done.code, (other / "new.txt").read_text()) == (0, "made\n"), done.err


def test_without_the_flag_the_folder_is_outside(
    place: Place, server: Loopback, other: Path
) -> None:
    place.configure(Agent("m"))
    server.play("m", Says("", calls(other)), Says("Done."))
    place.fugu("run", "look")
    # the commands run, in a /tmp of their own where the file is not
    assert permitted(place) == [False, True, True, False]
    shown = [event for event in place.events() if isinstance(event, ToolRan)]
    assert "No such file" in shown[0].output
    assert sorted(path.name for path in other.iterdir()) == ["AGENTS.md", "notes.txt"]


def test_commands_write_in_an_added_folder_from_the_sandbox(
    place: Place, server: Loopback, other: Path
) -> None:
    place.configure(Agent("m"))
    server.play(
        "m",
        Says("", (Use("bash", {"command": f"echo x > {other}/x"}),)),
        Says("Done."),
        Says("ACCEPT"),
    )
    done = place.fugu("run", "--yolo", "--add-dir", str(other), "write x")
    assert (done.code, (other / "x").read_text()) == (0, "x\n"), done.err


@pytest.mark.parametrize("given", ["nowhere", "notes.txt", ""])
def test_a_folder_that_is_none_is_one_line(place: Place, given: str) -> None:
    place.configure(Agent("m"))
    place.files({"notes.txt": "x"})
    done = place.fugu("run", "--add-dir", given, "look")
    said = (
        f"add_dirs: {place.repo / given}: there is no such folder"
        if given
        else "--add-dir is empty"
    )
    lines = [line for line in done.err.splitlines() if line.startswith("fugu: ")]
    assert (done.code, lines) == (1, [f"fugu: {said}"])


def test_bare_leaves_out_all_that_files_add_and_keeps_what_flags_say(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("m"))
    place.files(
        {
            "AGENTS.md": "Use tabs.\n",
            ".mcp.json": '{"mcpServers": {"lost": {"command": "nosuchprogram"}}}',
            ".agents/skills/poems/SKILL.md": ("---\nname: poems\ndescription: Writes "
                "poems.\n---\nRhyme.\n"),
            ".agents/hooks.json": json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [
                {"type": "command", "command": "echo hooked"}]}]}}),
        }
    )  # fmt: skip
    (place.home / ".claude").mkdir()
    (place.home / ".claude" / "CLAUDE.md").write_text("Answer in Basque.\n")
    server.play("m", Says("Yes."), Says("Yes."))
    marks = ("Use tabs.", "Answer in Basque.", "poems", "hooked")
    for flags, expected in (
        ((), [True] * 4),
        (("--bare", "--append-system-prompt", "Be brief."), [False] * 4),
    ):
        done = place.fugu("run", "--trust", *flags, "say yes")
        assert done.code == 0, done.err
        body = json.dumps(server.asked("m")[-1].body)
        assert [mark in body for mark in marks] == expected, flags
        lost = (
            "nosuchprogram" in done.err or "the MCP servers lost" in done.err
        )  # on a busy machine it is not known yet
        assert ("Be brief." in body, lost) == (bool(flags), not flags), done.err
    assert [event for event in place.events() if isinstance(event, ToolRan)] == []
