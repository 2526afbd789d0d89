"""What must go on working inside the sandbox: the tools of a day's work, and what the user allowed
beyond the rule.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import sys
import tempfile
import time
import venv
from pathlib import Path

import pytest

from fugu_cli.safety.sandbox.command_sandbox import SandboxSettings
from fugu_cli.safety.sandbox.git_access import RACY
from fugu_cli.safety.sandbox.mechanisms import Mechanism, find_mechanism
from tests.unit.safety.sandbox.conftest import Make
from tests.unit.safety.sandbox.worlds import SECRET, World, working

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a sandbox for Linux only")

CARGO = '[package]\nname = "demo"\nversion = "0.1.0"\nedition = "2021"\n'
RUST = "#[test]\nfn adds() { assert_eq!(1 + 1, 2); }\n"
LOOPBACK = (
    "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
    "socket.create_connection(s.getsockname()).close(); print('connected')\n"
)
POOL = (
    "import multiprocessing, pty\nif __name__ == '__main__':\n"
    "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(abs, [-1]))\n"
    "    print(len(pty.openpty()))\n"
)


def test_pytest_runs_and_writes_where_tests_write(world: World) -> None:
    (world.root / "test_it.py").write_text(
        "import tempfile\ndef test_it(tmp_path):\n    (tmp_path / 'x').write_text('x')\n"
        "    open('made', 'w').close()\n    tempfile.TemporaryDirectory().cleanup()\n"
    )
    ended = world.run(f"{sys.executable} -m pytest -q -p no:cacheprovider")
    assert (ended.code, "1 passed" in ended.output) == (0, True), ended.output
    assert (world.root / "made").exists()


def test_what_runs_out_of_time_is_asked_to_end_before_it_is_ended(world: World) -> None:
    ended = world.run("trap 'echo bye' TERM; echo up; sleep 600 & wait", 2)
    assert ended.output.split()[:2] == ["up", "bye"], ended.output


GIT = """
git checkout -q -b other
git add new && git commit -q -m "$(cat <<'EOF'<NL>new<NL><NL>It's (more) "of it".<NL>EOF<NL>)"
cd sub && git add . && git commit -q -m sub | cat
GIT_AUTHOR_DATE=2020-01-01T00:00:00Z git -c user.name=B -C sub commit -q --allow-empty -m dated
git checkout -q main; git merge -q other 2>&1 | tail -5
git stash list; git tag v1; git gc -q; git worktree list | grep -c repo
git rebase -q HEAD~1; git cherry-pick --quiet HEAD 2>/dev/null; git reset -q --hard other
git worktree add -q -b side .trees/side
git -C .trees/side commit -q --allow-empty -m side
git status --short; git log --format=%s other
"""


def test_git_alone_commits_branches_merges_and_goes_through_with_it(world: World) -> None:
    world.run("echo x > new; mkdir sub; echo x > sub/file; echo .trees > .gitignore; mkdir .trees")
    for line in GIT.strip().splitlines():
        ended = world.run(line.replace("<NL>", "\n"))
        assert (ended.code, "Read-only" in ended.output) == (0, False), (line, ended.output)
    assert ended.output.splitlines() == [
        "?? .gitignore",
        "?? kept/",
        "dated",
        "sub",
        "new",
        "start",
    ]
    assert world.git("log", "--format=%s", "-1", "side") == "side\n"


def test_beside_other_programs_git_reads_and_the_agent_is_told_how_it_could_write(
    world: World, kind: str
) -> None:
    ended = world.run("echo x > new; python3 -c 1 && git log --format=%s && git add new")
    if kind == "bare landlock":
        assert (ended.code, ended.output) == (0, "start\n")
        return
    assert ended.code != 0
    assert ended.output.startswith("start\n") and "could only be read here" in ended.output
    for reading in ("git log --format=%s | python3 -c 'print(input())'", "git status; ls -a"):
        assert "only be read" not in world.run(reading).output
    assert world.run("git add new && git commit -q -m new").code == 0


def test_a_repository_that_the_one_around_it_ignores_is_left_to_the_build(world: World) -> None:
    for name in ("build/dep", "lib"):
        (world.root / name).mkdir(parents=True)
        world.git("init", "-q", folder=world.root / name)
    (world.root / ".gitignore").write_text("/build\n")
    time.sleep(1.2 * RACY / 1e9)
    later = World(world.root, world.home, world.outside, world.sandbox.at(world.root))
    assert later.run("rm -rf build && rm -rf lib 2>/dev/null; ls -a").code == 0
    held = world.sandbox.mechanism.has_private_mounts
    assert ((world.root / "build").exists(), (world.root / "lib" / ".git" / "HEAD").exists()) == (
        False,
        held,
    )


def test_who_names_the_git_folder_among_what_may_be_written_has_it_written(world: World) -> None:
    sandbox = world.sandbox.at(world.root)
    sandbox.settings = SandboxSettings(writable=(world.root / ".git",))
    ended = World(world.root, world.home, world.outside, sandbox).run(
        "echo x > new; python3 -c 1 && git add new && git commit -q -m new; echo x >> .git/config"
    )
    assert "`.git` could only be read" not in ended.output
    assert world.git("log", "--format=%s", "-1") == "new\n"
    assert "x" not in (world.root / ".git" / "config").read_text().split()


def test_node_runs_its_tests(world: World) -> None:
    if shutil.which("node") is None:
        pytest.skip("no node")
    (world.root / "a.test.js").write_text("require('node:test')('adds', () => {})\n")
    ended = world.run("node --test")
    assert ended.code == 0, ended.output


def test_cargo_builds_and_tests_offline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    if shutil.which("cargo") is None:
        pytest.skip("no cargo")
    monkeypatch.setenv("CARGO_HOME", str(home / ".cargo"))
    monkeypatch.setenv("RUSTUP_HOME", str(home / ".rustup"))
    (world.root / "src").mkdir()
    (world.root / "Cargo.toml").write_text(CARGO)
    (world.root / "src" / "lib.rs").write_text(RUST)
    ended = world.run("cargo test -q", 120)
    assert (ended.code, "1 passed" in ended.output) == (0, True), ended.output


def test_a_command_has_a_temporary_folder_shared_memory_terminals_and_a_loopback_of_its_own(
    world: World, kind: str
) -> None:
    (world.root / "pool.py").write_text(POOL)
    (world.root / "loopback.py").write_text(LOOPBACK)
    assert world.run('echo x > "$TMPDIR/x" && cat "$TMPDIR/x"').output == "x\n"
    if kind == "bare landlock":
        return
    assert world.run("echo x > /tmp/y && ls /tmp/x").output == "/tmp/x\n"
    assert world.run("python3 loopback.py").output == "connected\n"
    assert world.run("python3 pool.py").output == "[1]\n2\n"


def test_it_ends_as_the_command_did_and_says_so(world: World, kind: str) -> None:
    assert world.run("exit 7").code == 7
    assert world.run("kill -9 $$").code == (137 if kind == "bubblewrap" else -9)
    late = world.run("sleep 1000", 0.5)
    assert late.code is None
    assert world.run("no-such-program").code == 127


def test_what_toolchains_need_of_the_home_can_be_read(world: World) -> None:
    assert world.run("cat ~/.cargo/registry/crate ~/notes.txt").output == "a cratenotes"
    assert world.run("cat ~/work/ca.pem").output == "-----BEGIN CERTIFICATE-----\n"


def test_keys_are_taken_out_of_the_environment(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "GH_TOKEN",
        "DB_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "CI_KEY",
        "SSH_AUTH_SOCK",
        "PGPASSWORD",
    ):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("DATABASE_URL", f"postgres://app:{SECRET}@db/x")
    monkeypatch.setenv("REDIS_URL", f"redis://:{SECRET}@cache/0")
    monkeypatch.setenv("KEYBOARD", "plain")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "A. Tester")
    world = make(SandboxSettings(environment=("CI_KEY",)))
    found = dict(line.split("=", 1) for line in world.run("env").output.splitlines() if "=" in line)
    assert [name for name, value in found.items() if SECRET in value] == ["CI_KEY"]
    assert (found["KEYBOARD"], found["GIT_AUTHOR_NAME"]) == ("plain", "A. Tester")


def test_what_the_user_allows_is_allowed(make: Make) -> None:
    world = make(SandboxSettings())
    more = world.outside.parent / "more"
    more.mkdir()
    world.sandbox.settings = SandboxSettings(
        network=True, writable=(more,), readable=(world.home / ".aws",)
    )
    assert world.run(f"echo x > {more}/x; cat ~/.aws/credentials").output == SECRET
    assert (more / "x").read_text() == "x\n"
    assert SECRET not in world.run("cat ~/.ssh/id_rsa").output
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        code = (
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]})); "
            f"print('there')"
        )
        assert world.run(f'python3 -c "{code}"').output == "there\n"


def test_a_linked_working_tree_can_be_committed_in(world: World, tmp_path: Path) -> None:
    world.run("true")
    tree = tmp_path / "tree"
    os.spawnlp(
        os.P_WAIT,
        "git",
        "git",
        "-C",
        str(world.root),
        "worktree",
        "add",
        "-q",
        "-b",
        "side",
        str(tree),
    )
    beside = World(tree, world.home, world.outside, world.sandbox.at(tree))
    beside.run("echo x > .git")
    ended = beside.run(
        "echo x > new && git add new && git commit -q -m side && git log -1 --format=%s"
    )
    assert ended.output.splitlines()[0] == "side", ended.output
    before = world.untouched()
    beside.run(f"echo x > {world.root}/.git/hooks/pre-commit; echo x >> {world.root}/.git/config")
    assert world.untouched() == before
    assert (tree / ".git").read_text().startswith("gitdir: ")


def test_dependencies_that_a_link_leads_to_are_seen_and_nothing_else(world: World) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as outside:
        for name, mark in (("venv", "pyvenv.cfg"), ("pack", "package.json"), ("data", "secret")):
            Path(outside, name).mkdir()
            Path(outside, name, mark).write_text("seen\n")
        Path(outside, "chain").symlink_to(Path(outside, "pack"))
        (world.root / "node_modules" / "@a").mkdir(parents=True)
        links = {
            ".venv": "venv",
            "node_modules/@a/b": "pack",
            "vendor": "data",
            "node_modules/c": "chain",
        }
        for link, target in links.items():
            (world.root / link).symlink_to(Path(outside, target))
        output = world.run("cat .venv/pyvenv.cfg node_modules/@a/b/package.json").output
        assert output == "seen\nseen\n"
        hidden = world.sandbox.hidden_links()
        assert {".venv", "node_modules/@a/b"}.isdisjoint(hidden)
        for link, file in (("vendor", "secret"), ("node_modules/c", "package.json")):
            is_seen = world.run(f"cat {link}/{file}").output == "seen\n"
            assert is_seen == (link not in hidden), (link, hidden)


def test_a_means_that_is_asked_for_must_hold() -> None:
    assert find_mechanism("off", "").description == "none: the sandbox is turned off"
    assert find_mechanism("bubblewrap", "/nowhere") == Mechanism(
        "none", why="bubblewrap: it is not installed"
    )
    assert working("landlock").description == "Landlock with namespaces"


def test_a_git_configuration_that_names_nobodys_home_keeps_no_command_from_running(
    world: World,
) -> None:
    with (world.root / ".git" / "config").open("a") as file:
        file.write("[core]\n\thooksPath = ~nosuch/hooks\n")
    assert world.run("echo works").output == "works\n"


@pytest.mark.parametrize("name", ["home/.hidden/environment", "environment"])
def test_an_environment_on_path_below_a_hidden_or_temporary_folder_is_whole(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    environment = world.home.parent / name
    venv.create(environment, with_pip=False, symlinks=True)
    monkeypatch.setenv("PATH", f"{environment / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    output = world.run(f"cat {environment}/pyvenv.cfg && python -c 'import sys; print(sys.prefix)'")
    assert output.code == 0 and output.output.strip().endswith(str(environment)), output
