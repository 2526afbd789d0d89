"""A skill: what agents are told of it, what they get when they ask, and what is refused."""

from pathlib import Path

import pytest

from fugu_cli.extensions.skills import (
    BODY_LIMIT,
    DESCRIPTIONS_LIMIT,
    DocumentError,
    Skill,
    describe_each,
    skill_at,
)
from tests.unit.extensions.skills import making


def at(folder: Path, *, own: bool = True) -> Skill:
    return skill_at(folder, f".agents/skills/{folder.name}", own=own)


def test_a_skill_is_told_by_name_and_description_and_read_with_its_folder(tmp_path: Path) -> None:
    file = making.skill(
        tmp_path,
        "pdf-forms",
        "Fill PDF forms.\n  Use it for PDF.",
        license="MIT",
        metadata="{a: b}",
    )
    found = at(file.parent)
    assert (found.name, found.description, found.file) == (
        "pdf-forms",
        "Fill PDF forms. Use it for PDF.",
        file,
    )
    assert found.text() == (
        "The skill `pdf-forms`: instructions the user has for this. Paths in it are relative to "
        f"`.agents/skills/pdf-forms`.\n\n{making.BODY}"
    )


FAULTS = {
    "no front matter": (
        "just text",
        "it has no front matter: name and description between two lines `---`",
    ),
    "no name": ("---\ndescription: x\n---\nx", "its `name` is missing"),
    "no description": ("---\nname: a\n---\nx", "its `description` is missing: agents choose by it"),
    "other name": (
        "---\nname: b\ndescription: x\n---\nx",
        "it is called 'b', and its folder 'a': they must be the same",
    ),
    "bad name": (
        "---\nname: A--b\ndescription: x\n---\nx",
        "its name 'A--b' is not small letters, digits and single hyphens",
    ),
    "long name": (
        f"---\nname: {'a' * 65}\ndescription: x\n---\nx",
        f"its name {'a' * 64!r} is not small letters, digits and single hyphens",
    ),
    "no body": ("---\nname: a\ndescription: x\n---\n", "it says nothing below its front matter"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_skill_that_keeps_not_to_the_format_is_refused_with_the_reason(
    tmp_path: Path, case: str
) -> None:
    content, said = FAULTS[case]
    file = making.text(tmp_path / "a" / "SKILL.md", content)
    with pytest.raises(DocumentError) as fault:
        at(file.parent)
    assert str(fault.value) == said


def test_the_text_is_read_when_it_is_wanted_and_a_repositorys_has_to_be_as_it_was(
    tmp_path: Path,
) -> None:
    folder = making.skill(tmp_path, "a").parent
    mine, theirs = at(folder), at(folder, own=False)
    making.skill(tmp_path, "a", body="Other words.")
    assert mine.text().endswith("Other words.")
    with pytest.raises(DocumentError, match="it has changed since this session began"):
        theirs.text()


def test_a_long_text_is_cut_at_a_line_and_says_where_the_rest_is(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(4000)]
    found = at(making.skill(tmp_path, "a", body="\n".join(lines)).parent).text()
    kept = found.split("\n\n", 1)[1].split("\n")
    assert kept[:-1] == lines[: len(kept) - 1] and len(found) < BODY_LIMIT + 300
    left = len("\n".join(lines)) - len("\n".join(kept[:-1]))
    assert kept[-1] == f"[{left:,} characters more: read .agents/skills/a/SKILL.md]"


def test_a_description_cannot_paint_the_terminal_or_begin_a_line_of_its_own(tmp_path: Path) -> None:
    file = making.skill(tmp_path, "a", '"red \\e[31m\\nnew line"')
    assert at(file.parent).description == "red [31m new line"


def some(*descriptions: str) -> list[Skill]:
    return [Skill(f"s{n}", text, Path("/"), "", True, "") for n, text in enumerate(descriptions)]


def test_agents_are_told_each_skill_on_a_line() -> None:
    assert describe_each(some("One.", "Two.")) == "- s0: One.\n- s1: Two."


def test_long_descriptions_share_the_room_that_short_ones_leave() -> None:
    found = describe_each(some(*(["x" * 1000] * 10), "short")).splitlines()
    assert found[10] == "- s10: short"
    assert {len(line) for line in found[:10]} == {len(found[0])}
    assert 5800 < len("\n".join(found)) <= DESCRIPTIONS_LIMIT


def test_many_skills_are_told_by_their_names_and_too_many_are_counted() -> None:
    assert describe_each(some(*(["x" * 100] * 200))).splitlines()[:2] == ["- s0", "- s1"]
    found = describe_each(some(*(["x"] * 3000)))
    assert len(found) < DESCRIPTIONS_LIMIT + 60 and found.splitlines()[-1].endswith(
        "more, which the user names)"
    )
