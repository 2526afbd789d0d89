"""Custom commands: their arguments in their places, and what is refused."""

from pathlib import Path

import pytest

from fugu_cli.extensions.skills import BUILT_IN, CustomCommand, DocumentError, command_at
from fugu_cli.ui.tui.commands import COMMANDS
from tests.unit.extensions.skills.making import text


def at(folder: Path, content: str, name: str = "go") -> CustomCommand:
    return command_at(text(folder / "go.md", content), name, own=True)


def test_a_command_is_its_description_its_hint_who_does_it_and_its_text(tmp_path: Path) -> None:
    content = (
        "---\ndescription: Look at a file\nargument-hint: FILE\nagent: large\ntier: "
        "ultra\nmodel: x\n---\nLook at $1."
    )
    assert at(tmp_path, content) == CustomCommand(
        name="go",
        about="Look at a file",
        body="Look at $1.",
        hint="FILE",
        agent="large",
        tier="ultra",
        file=tmp_path / "go.md",
        own=True,
    )


@pytest.mark.parametrize(
    ("hint", "expected"),
    [("[FILE]", "[FILE]"), ("[a, b]", "[a, b]"), ("[a] [b]", "[a] [b]"), ("<file>", "<file>")],
)
def test_a_hint_is_shown_as_it_is_written(tmp_path: Path, hint: str, expected: str) -> None:
    assert at(tmp_path, f"---\nargument-hint: {hint}\n---\nx").hint == expected


def test_front_matter_may_be_left_out_then_the_first_line_describes_it(tmp_path: Path) -> None:
    found = at(tmp_path, "# Tidy up\n\nSort the imports.")
    assert (found.about, found.body, found.agent, found.tier) == (
        "Tidy up",
        "# Tidy up\n\nSort the imports.",
        "",
        "",
    )


@pytest.mark.parametrize(
    ("body", "typed", "expected"),
    [
        ("Fix $ARGUMENTS now.", 'a "b c"', 'Fix a "b c" now.'),
        ("$2 before $1", 'a "b c" d', "b c before a"),
        ("[$1][$9]", "a", "[a][]"),
        ("Do it.", "", "Do it."),
        ("Do it.", "with care", "Do it.\n\nArguments: with care"),
        ("$1 and $1", "$2 x", "$2 and $2"),
        ("a lone $1", "quote' here", "a lone quote'"),
        (
            r"costs \$1, \$ARGUMENTS, $10, $1x, $0, $HOME",
            "y",
            "costs $1, $ARGUMENTS, $10, $1x, $0, $HOME\n\nArguments: y",
        ),
        ("no shell: !`date` $(date) `date`", "", "no shell: !`date` $(date) `date`"),
        ("two $ARGUMENTS", "lines\nof it", "two lines\nof it"),
    ],
)
def test_what_is_typed_after_the_name_takes_its_places(
    tmp_path: Path, body: str, typed: str, expected: str
) -> None:
    assert at(tmp_path, body).request(typed) == expected


FAULTS = {
    "empty": ("---\ndescription: x\n---\n", "go", "it says nothing"),
    "tier": ("---\ntier: best\n---\nx", "go", "its `tier` is 'best': fugu or ultra"),
    "name": ("x", "a b", "its name cannot be typed: letters, digits, `_`, `-` and `.` only"),
    "built in": ("x", "undo", "/undo is a command of fugu's own, which wins"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_command_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, case: str
) -> None:
    content, name, said = FAULTS[case]
    with pytest.raises(DocumentError) as fault:
        at(tmp_path, content, name)
    assert str(fault.value) == said


def test_the_names_that_no_file_takes_are_those_of_the_interface() -> None:
    assert {name for command in COMMANDS for name in (command.name, *command.also)} == BUILT_IN
