"""The list of skills and commands, for people."""

from pathlib import Path

from fugu_cli.extensions.skill_library import (
    EMPTY_LIBRARY,
    ExtensionFolder,
    SkillLibrary,
    format_library,
    load_library,
)
from tests.unit.extensions.skills import making


def test_nothing_is_said_with_what_would_make_some(tmp_path: Path) -> None:
    assert format_library(SkillLibrary(), tmp_path) == EMPTY_LIBRARY


def test_each_stands_with_what_it_is_for_and_where_it_comes_from(tmp_path: Path) -> None:
    home = Path.home()
    making.skill(tmp_path / ".agents", "release", "How to release.")
    making.skill(home / ".agents", "pdf", "Fill forms.")
    making.text(
        tmp_path / ".agents/commands/review.md",
        "---\nargument-hint: FILE\nagent: a\ntier: fugu\n---\nReview.",
    )
    making.text(home / ".agents/commands/undo.md", "Mine.")
    places = (
        ExtensionFolder(tmp_path / ".agents", ".agents", base=tmp_path),
        ExtensionFolder(home / ".agents", "~/.agents"),
    )
    assert format_library(load_library(places), tmp_path).splitlines() == [
        "skills",
        "  release  How to release.  (.agents/skills/release)",
        "  pdf      Fill forms.  (~/.agents/skills/pdf)",
        "commands",
        "  /review FILE  Review. [agent a, tier fugu]  (.agents/commands/review.md)",
        "left out",
        "  /undo  /undo is a command of fugu's own, which wins  (~/.agents/commands/undo.md)",
    ]
