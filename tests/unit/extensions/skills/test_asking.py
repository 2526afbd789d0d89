"""From a typed line to a request: commands, named skills, and what is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.errors import UsageError
from fugu_cli.extensions.skill_library import (
    ExtensionFolder,
    SkillLibrary,
    TypedRequest,
    load_library,
    parse_headless_request,
    parse_request,
)
from fugu_cli.extensions.skills import CustomCommand
from tests.unit.extensions.skills import making


@pytest.fixture
def library(tmp_path: Path) -> SkillLibrary:
    making.skill(tmp_path, "release", "How to release.")
    making.text(tmp_path / "skills/broken/SKILL.md", "x")
    making.text(
        tmp_path / "commands/review.md",
        "---\nagent: large\ntier: ultra\n---\nReview @$1: $ARGUMENTS",
    )
    making.text(tmp_path / "commands/git/commit.md", "Commit.")
    making.text(tmp_path / "commands/odd.md", "---\ntier: x\n---\nOdd.")
    return load_library((ExtensionFolder(tmp_path, "x"),))


@pytest.mark.parametrize("ask", [parse_request, parse_headless_request])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "/review a.py b",
            TypedRequest("Review @a.py: a.py b", "/review a.py b", agent="large", tier="ultra"),
        ),
        (
            " /review a.py\nand more\n",
            TypedRequest(
                "Review @a.py: a.py\nand more",
                "/review a.py\nand more",
                agent="large",
                tier="ultra",
            ),
        ),
        ("/git:commit", TypedRequest("Commit.", "/git:commit")),
        ("please /review it", TypedRequest("please /review it")),
        ("/etc/hosts is wrong", TypedRequest("/etc/hosts is wrong")),
        ("//review", TypedRequest("//review")),
        ("/ a", TypedRequest("/ a")),
        ("/tmp is full", TypedRequest("/tmp is full")),
    ],
)
def test_a_line_is_itself_or_what_its_command_makes_of_it(
    ask: object, line: str, expected: TypedRequest, library: SkillLibrary
) -> None:
    assert callable(ask) and ask(line, library) == expected


@pytest.mark.parametrize("gap", [" ", "\n", "  ", "\t"])
def test_a_named_skill_comes_after_the_request(library: SkillLibrary, gap: str) -> None:
    line = f"/skill release{gap}cut 1.2"
    skill = library.skills[0].text()
    assert parse_request(line, library) == TypedRequest("cut 1.2", line, skill)
    alone = "Follow the skill `release`."
    assert parse_request("/skill release", library) == TypedRequest(alone, "/skill release", skill)


REFUSED = {
    "/skill": ("which skill?", "there are release"),
    "/skill relase x": ("there is no skill 'relase'", "did you mean release?"),
    "/skill zzz x": ("there is no skill 'zzz'", "there are release"),
    "/skill broken": (
        "the skill broken is not used: it has no front matter: name and description between two "
        "lines `---`",
        "it stands in",
    ),
    "/odd": ("the command odd is not used: its `tier` is 'x': fugu or ultra", "it stands in"),
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_not_there_or_cannot_be_used_is_refused_with_the_reason(
    library: SkillLibrary, line: str
) -> None:
    with pytest.raises(UsageError) as error:
        parse_request(line, library)
    said, hint = REFUSED[line]
    assert str(error.value) == said and error.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/undo", "/undo is a command of the terminal interface"),
        ("/skills", "/skills is a command of the terminal interface"),
        ("/reviw a.py", "there is no command /reviw"),
    ],
)
def test_without_an_interface_its_commands_and_mistyped_ones_are_refused(
    library: SkillLibrary, line: str, said: str
) -> None:
    with pytest.raises(UsageError) as error:
        parse_headless_request(line, library)
    assert str(error.value) == said


@given(st.from_regex(r"[/\s]?(skill|go)?[\s]?.{0,20}", fullmatch=True))
def test_any_line_is_a_request_or_refused(line: str) -> None:
    command = CustomCommand("go", "", "Go $1.", "", "", "", Path("/"), True)
    for ask in (parse_request, parse_headless_request):
        try:
            found = ask(line, SkillLibrary(commands=(command,)))
        except UsageError:
            continue
        assert found == TypedRequest(line) or found.typed == line.strip()


def test_a_skill_that_is_gone_when_it_is_wanted_is_refused(library: SkillLibrary) -> None:
    library.skills[0].file.unlink()
    with pytest.raises(UsageError, match="it is not a file"):
        parse_request("/skill release x", library)


def test_without_an_interface_a_command_that_is_not_there_is_refused_whatever_it_is_like(
    library: SkillLibrary,
) -> None:
    with pytest.raises(UsageError, match="there is no command /deploy") as error:
        parse_headless_request("/deploy now", library)
    assert error.value.hint == "`fugu skills` lists those there are"
    assert parse_headless_request("/deploy/now is missing", library) == TypedRequest(
        "/deploy/now is missing"
    )
