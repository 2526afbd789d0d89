"""Files that others run without a further word, in a sandbox that holds."""

from __future__ import annotations

import subprocess

import pytest

from fugu_cli.safety.sandbox.command_sandbox import SandboxSettings
from tests.unit.safety.sandbox.conftest import Make
from tests.unit.safety.sandbox.worlds import World


@pytest.fixture(params=["bubblewrap", "landlock"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(make: Make) -> World:
    world = make(SandboxSettings())
    (world.root / ".github" / "workflows").mkdir(parents=True)
    (world.root / ".github" / "workflows" / "ci.yml").write_text("on: push\n")
    (world.root / "deep").mkdir()
    (world.root / "deep" / ".envrc").write_text("true\n")
    return world


@pytest.mark.parametrize(
    "line",
    [
        "echo x > .github/workflows/ci.yml",
        "echo x > .github/workflows/new.yml",
        "rm -rf .github",
        "mv .github gone && mkdir -p .github/workflows && echo x > .github/workflows/ci.yml",
        "echo x > deep/.envrc",
        "mv deep gone; mkdir deep; echo x > deep/.envrc",
    ],
)
def test_what_is_there_stays_as_it_is(world: World, line: str) -> None:
    world.run(line)
    kept = [*world.root.glob("*/workflows/ci.yml"), *world.root.glob("*/.envrc")]
    assert [path.read_text() for path in kept] == ["on: push\n", "true\n"]
    assert not (world.root / ".github" / "workflows" / "new.yml").exists()


@pytest.mark.parametrize(
    "name", [".envrc", ".vscode/tasks.json", "new/.github/ci.yml", "CLAUDE.md"]
)
def test_a_new_one_is_moved_away_and_the_agent_is_told_where(world: World, name: str) -> None:
    output = world.run(
        f"mkdir -p $(dirname {name}); echo planted > {name}; echo kept > a.txt"
    ).output
    assert not (world.root / name).exists()
    assert "commands may not make" in output and "moved to" in output
    assert (world.root / "a.txt").read_text() == "kept\n"


def test_a_folder_with_a_sealed_file_is_not_removed_and_the_agent_is_told_why(world: World) -> None:
    library = world.root / "node_modules" / "typescript" / "lib"
    library.mkdir(parents=True)
    (library / "tsserver.js").write_text("real\n")
    output = world.run("rm -rf node_modules").output
    assert (library / "tsserver.js").read_text() == "real\n"
    assert "node_modules/typescript/lib can only be read here, because a language server" in output
    assert "--allow 'write(node_modules/typescript/lib/**)'" in output


def test_the_users_own_rule_opens_one_and_no_other(world: World) -> None:
    world.sandbox.open_files((".github/**", ".vscode/**"))
    world.run(
        "echo x > .github/workflows/new.yml; mkdir .vscode; echo x > .vscode/a; echo x > .envrc"
    )
    assert (world.root / ".github" / "workflows" / "new.yml").exists()
    assert (world.root / ".vscode" / "a").exists()
    assert not (world.root / ".envrc").exists()


def test_what_fugus_own_tool_writes_meanwhile_stays(world: World) -> None:
    launch = world.sandbox.launch("sleep 1")
    path = world.root / ".vscode" / "tasks.json"
    world.sandbox.expect(path)
    path.parent.mkdir()
    path.write_text("{}")
    assert launch.guard.restore() == ()
    assert path.exists()


def test_a_read_only_command_writes_nothing_in_the_repository(world: World) -> None:
    launch = world.sandbox.launch("", read_only=True)
    assert launch.access is not None
    assert str(world.root) not in launch.access.writable


def test_the_user_is_told_how_a_file_of_theirs_comes_back(world: World) -> None:
    result = world.run("echo mine > .envrc")
    (sentence,) = result.restored
    subprocess.run(["sh", "-c", sentence.split("`")[3]], check=True)
    assert (world.root / ".envrc").read_text() == "mine\n"
