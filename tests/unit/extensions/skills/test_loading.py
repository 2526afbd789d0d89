"""Where skills and commands are found, which of two counts, what is left out, and what trust
covers.
"""

import os
from pathlib import Path

import pytest

from fugu_cli.config import Config, trust
from fugu_cli.config.loader import load_config as load_all
from fugu_cli.extensions.skill_library import ExtensionFolder, SkillLibrary, load_library
from tests.unit.extensions.skills import making


def found(library: SkillLibrary) -> tuple[list[str], list[str]]:
    return [skill.shown for skill in library.skills], [command.name for command in library.commands]


def left(library: SkillLibrary) -> list[tuple[str, str, str]]:
    return [(one.kind, one.name, one.reason) for one in library.excluded]


def repository(trusted: bool = True) -> Path:
    """A repository, which is trusted once something lies in it."""
    root = Path.cwd() / "repo"
    (root / ".git").mkdir(parents=True)
    making.skill(root / ".agents", "release")
    making.text(root / ".agents/commands/review.md", "Review $1.")
    if trusted:
        trust.trust(Config().data, root)
    return root


def test_nothing_is_found_where_there_is_nothing(tmp_path: Path) -> None:
    assert (
        load_library(
            (ExtensionFolder(tmp_path / "none", "none"), ExtensionFolder(tmp_path, "here"))
        )
        == SkillLibrary()
    )


def test_commands_in_folders_are_named_with_them(tmp_path: Path) -> None:
    for name in (
        "b.md",
        "a.md",
        "git/commit.md",
        "git/pr/open.md",
        "1/2/3/4.md",
        "1/2/3/4/5.md",
        "x.txt",
        ".hidden.md",
    ):
        making.text(tmp_path / "commands" / name, "Do it.")
    assert found(load_library((ExtensionFolder(tmp_path, "x"),)))[1] == [
        "a",
        "b",
        "1:2:3:4",
        "git:commit",
        "git:pr:open",
    ]


def test_one_with_a_fault_is_left_out_and_named_while_the_others_count(tmp_path: Path) -> None:
    making.skill(tmp_path, "good")
    bad = making.text(tmp_path / "skills/bad/SKILL.md", "no front matter")
    making.text(tmp_path / "skills/README.md", "not a skill")
    making.text(tmp_path / "skills/shared/notes.md", "not a skill either")
    making.text(tmp_path / "commands/good.md", "Do it.")
    helped = making.text(tmp_path / "commands/help.md", "Do it.")
    library = load_library((ExtensionFolder(tmp_path, "x"),))
    assert found(library) == (["x/skills/good"], ["good"])
    assert library.notes == (
        f"{bad}: it has no front matter: name and description between two lines `---`; the skill "
        f"is left out",
        f"{helped}: /help is a command of fugu's own, which wins; the command is left out",
    )


def test_of_two_with_one_name_the_nearer_counts_and_the_other_is_listed_without_a_word(
    tmp_path: Path,
) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    for place in (near, far):
        making.skill(place, "release")
        making.text(place / "commands/go.md", "Do it.")
    library = load_library((ExtensionFolder(near, "near"), ExtensionFolder(far, "far")))
    assert found(library) == (["near/skills/release"], ["go"]) and library.notes == ()
    assert left(library) == [
        ("skill", "release", f"{near}/skills/release/SKILL.md has the same name and is nearer"),
        ("command", "go", f"{near}/commands/go.md has the same name and is nearer"),
    ]


def test_two_files_of_one_place_cannot_be_one_command(tmp_path: Path) -> None:
    making.text(tmp_path / "commands/a:b.md", "Do it.")
    making.text(tmp_path / "commands/a/b.md", "Do it.")
    assert left(load_library((ExtensionFolder(tmp_path, "x"),))) == [
        ("command", "a:b", "another file here is the command a:b")
    ]


def test_a_link_out_of_the_repository_or_of_the_skills_folder_is_left_out(tmp_path: Path) -> None:
    base, outside = tmp_path / "repo", tmp_path / "outside"
    making.skill(outside, "away")
    making.skill(base, "around")
    making.text(outside / "go.md", "Do it.")
    (base / ".agents/skills/linked").mkdir(parents=True)
    (base / ".agents/commands").mkdir()
    (base / ".agents/skills/away").symlink_to(outside / "skills/away")
    (base / ".agents/skills/linked/SKILL.md").symlink_to(outside / "skills/away/SKILL.md")
    making.text(base / "SKILL.md", "x")
    (base / ".agents/skills/repo").symlink_to(base)
    (base / ".agents/commands/go.md").symlink_to(outside / "go.md")
    library = load_library((ExtensionFolder(base / ".agents", ".agents", base=base),))
    assert found(library) == ([], [])
    assert left(library) == [
        ("skill", "away", f"its folder is a link that leads out of {base}"),
        ("skill", "linked", "it is a link that leads out of the skill's folder"),
        ("skill", "repo", "its folder is a link to a folder around it"),
        ("command", "go", f"it is a link that leads out of {base}"),
    ]


def test_the_users_own_folders_may_be_links_to_anywhere(tmp_path: Path) -> None:
    kept = making.skill(tmp_path / "dotfiles", "mine").parent
    making.text(tmp_path / "dotfiles/go.md", "Do it.")
    (tmp_path / "home/skills").mkdir(parents=True)
    (tmp_path / "home/commands").mkdir()
    (tmp_path / "home/skills/mine").symlink_to(kept)
    (tmp_path / "home/commands/go.md").symlink_to(tmp_path / "dotfiles/go.md")
    library = load_library((ExtensionFolder(tmp_path / "home", "~"),))
    assert (found(library), library.skills[0].folder) == ((["~/skills/mine"], ["go"]), kept)


def test_a_folder_that_cannot_be_listed_and_a_file_in_its_place_are_said(tmp_path: Path) -> None:
    making.text(tmp_path / "skills", "a file")
    assert left(load_library((ExtensionFolder(tmp_path, "x"),))) == [
        ("skill", "skills", "it cannot be read: Not a directory")
    ]


def test_a_repositorys_count_once_it_is_trusted_before_the_users_own() -> None:
    root, home = repository(trusted=False), Path.home()
    making.skill(home / ".agents", "mine")
    making.skill(Path(os.environ["XDG_CONFIG_HOME"]) / "fugu", "configured")
    note = (
        f"{root}/.agents names the skill release and the command review: none is used until you "
        f"run `fugu trust` here"
    )
    library = load_all(root, {}).library
    assert [skill.name for skill in library.skills] == ["configured", "mine"]
    assert (library.commands, library.notes) == ((), (note,))
    library = load_all(root, {}, trust=True).library
    assert [(skill.name, skill.own) for skill in library.skills] == [
        ("release", False),
        ("configured", True),
        ("mine", True),
    ]
    assert found(library)[1] == ["review"] and library.notes == ()


def test_what_is_wrong_in_a_folder_that_is_not_trusted_is_said_in_the_list_alone() -> None:
    root = repository(trusted=False)
    making.text(root / ".agents/skills/bad/SKILL.md", "x")
    library = load_all(root, {}).library
    assert len(library.notes) == 1 and [name for _, name, _ in left(library)] == [
        "release",
        "review",
        "bad",
    ]


@pytest.mark.parametrize(
    "changed",
    ["skills/release/SKILL.md", "skills/release/new.sh", "skills/x/SKILL.md", "commands/y.md"],
)
def test_a_changed_or_new_file_of_a_repositorys_skills_or_commands_asks_again(changed: str) -> None:
    root = repository()
    assert found(load_all(root, {}).library) == ([".agents/skills/release"], ["review"])
    making.text(root / ".agents" / changed, "other")
    assert found(load_all(root, {}).library) == ([], [])


def test_what_a_link_within_the_repository_leads_to_is_trusted_with_it() -> None:
    root = repository(trusted=False)
    file = making.skill(root / "shared", "linked")
    script = making.text(file.parent / "scripts/run.sh", "true")
    (root / ".agents/skills/linked").symlink_to(root / "shared/skills/linked")
    command = making.text(root / "docs/ask.md", "Ask.")
    (root / ".agents/commands/ask.md").symlink_to(command)
    trust.trust(Config().data, root)
    assert found(load_all(root, {}).library) == (
        [".agents/skills/linked", ".agents/skills/release"],
        ["ask", "review"],
    )
    for path in (file, script, command):
        kept = path.read_bytes()
        path.write_bytes(kept + b"more")
        assert found(load_all(root, {}).library) == ([], []), path
        path.write_bytes(kept)
    assert found(load_all(root, {}).library)[1] == ["ask", "review"]


def test_folders_up_to_the_root_count_the_nearest_first_each_trusted_for_itself() -> None:
    root = repository()
    inner = root / "pkg/inner"
    making.skill(inner / ".agents", "local")
    making.skill(inner / ".agents", "release", "The nearer one.")
    making.skill(root / "other/.agents", "elsewhere")
    work = inner / "src"
    work.mkdir()
    assert found(load_all(work, {}).library)[0] == [".agents/skills/release"]
    trust.trust(Config().data, inner)
    near = ["pkg/inner/.agents/skills/local", "pkg/inner/.agents/skills/release"]
    assert found(load_all(work, {}).library)[0] == near
    assert found(load_all(root, {}).library)[0] == [".agents/skills/release"]
    trust.untrust(Config().data, root)
    assert found(load_all(work, {}).library)[0] == []


def test_skills_and_commands_of_claudes_folder_count_behind_those_of_agents() -> None:
    root = repository(trusted=False)
    making.skill(root / ".claude", "release", "The other one.")
    making.skill(root / ".claude", "theirs")
    file = making.text(root / ".claude/commands/ship.md", "Ship it.")
    making.skill(Path.home() / ".claude", "mine")
    assert found(load_all(root, {}).library)[1] == []
    trust.trust(Config().data, root)
    skills, commands = found(load_all(root, {}).library)
    assert skills == [
        ".agents/skills/release",
        ".claude/skills/theirs",
        str(Path.home() / ".claude/skills/mine"),
    ]
    assert commands == ["review", "ship"]
    file.write_text("Ship nothing.")
    assert trust.changed_files(Config().data, root) == (".claude/commands/ship.md",)


def test_in_the_home_itself_the_users_own_are_found_once() -> None:
    making.skill(Path.home() / ".agents", "mine")
    library = load_all(Path.home(), {}).library
    assert [skill.own for skill in library.skills] == [True] and library.excluded == ()
