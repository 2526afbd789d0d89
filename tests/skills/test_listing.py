"""The list of skills and commands, for people."""

from pathlib import Path

from fugu_cli.skills.listing import NOTHING, listed
from fugu_cli.skills.loading import Library, Place, load
from tests.skills import making


def test_nothing_is_said_with_what_would_make_some(tmp_path: Path) -> None:
    assert listed(Library(), tmp_path) == NOTHING


def test_each_stands_with_what_it_is_for_and_where_it_comes_from(tmp_path: Path) -> None:
    home = Path.home()
    making.skill(tmp_path / ".agents", "release", "How to release.")
    making.skill(home / ".agents", "pdf", "Fill forms.")
    making.text(tmp_path / ".agents/commands/review.md", "---\nargument-hint: FILE\nagent: a\ntier: fugu\n---\nReview.")
    making.text(home / ".agents/commands/undo.md", "Mine.")
    places = (Place(tmp_path / ".agents", ".agents", base=tmp_path), Place(home / ".agents", "~/.agents"))
    assert listed(load(places), tmp_path).splitlines() == [
        "skills",
        "  release  How to release.  (.agents/skills/release)",
        "  pdf      Fill forms.  (~/.agents/skills/pdf)",
        "commands",
        "  /review FILE  Review. [agent a, tier fugu]  (.agents/commands/review.md)",
        "left out",
        "  /undo  /undo is a command of fugu's own, which wins  (~/.agents/commands/undo.md)",
    ]
