"""Attempts to get out of the sandbox, made for real: none reads a secret, changes a file outside,
or lives on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fugu_cli.safety.sandbox.access_rules import CONFIGURATION_FILES
from fugu_cli.safety.sandbox.command_sandbox import ASKED, SandboxSettings
from fugu_cli.safety.sandbox.git_access import GitFolderAccess, git_folder_access
from tests.unit.safety.sandbox.attempts import Attempt, attempts, made, suspicious
from tests.unit.safety.sandbox.conftest import Make
from tests.unit.safety.sandbox.worlds import OTHER, SECRET, Unavailable, World, working

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a sandbox for Linux only")

PRELOAD = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void run(void) {
    char path[500], text[100] = {0};
    snprintf(path, 500, "%s/.ssh/id_rsa", getenv("HOME"));
    int file = open(path, O_RDONLY);
    if (file >= 0 && read(file, text, 99) > 0) puts(text);
    snprintf(path, 500, "%s/planted", getenv("HOME"));
    file = open(path, O_CREAT | O_WRONLY, 0600);
    if (file >= 0) puts("CHANGED");
}
"""


AREAS = ("reads", "writes", "reaches", "history")
PLAIN = SandboxSettings()
SOME = 4
"""Of the rows, every fourth is made as an ordinary user as well; `tests/benchmarks/escapes.py`
makes all of them.
"""


@pytest.mark.parametrize("area", AREAS)
def test_no_attempt_gets_through(area: str, kind: str) -> None:
    assert harmful(kind, area, attempts(area)) == []


@pytest.mark.parametrize("area", AREAS)
def test_no_attempt_of_an_ordinary_user_gets_through(area: str, kind: str) -> None:
    if os.geteuid():
        pytest.skip("only root can become another user")
    assert harmful(kind, area, attempts(area)[::SOME], OTHER) == []


def test_with_a_network_sockets_of_this_machine_and_the_kernel_stay_out_of_reach(kind: str) -> None:
    rows = [
        row
        for row in attempts("reaches")
        if "PORT" not in row.lines[0] or "AF_UNIX" in row.lines[0]
    ]
    assert harmful(kind, "reaches", rows, rules=SandboxSettings(network=True)) == []


def harmful(
    kind: str,
    area: str,
    rows: list[Attempt],
    user: int | None = None,
    rules: SandboxSettings = PLAIN,
) -> list[Attempt]:
    """The rows that do harm. Landlock alone seals no repository and knows nothing of modes and
    times: of the rows that it cannot hold, what is asked about is not made."""
    try:
        found = working(kind, user)
    except Unavailable as why:
        pytest.skip(str(why))
    open_to = attempts("history") if area == "history" else attempts("writes")[-1:]
    asked = [row for row in rows if kind == "bare landlock" and row in open_to]
    alone = suspicious([row for row in rows if row not in asked], found, rules, user)
    done = [*made(alone, found, rules, user)]
    done += made(asked, found, rules, user, unasked=True)
    return [attempt for attempt, did in done if did]


def test_where_the_git_folder_cannot_be_sealed_the_user_is_told(world: World, kind: str) -> None:
    told = [
        note
        for note in world.sandbox.notes()
        if "can damage the git folder" in note and ASKED in note
    ]
    assert (len(told), world.sandbox.holds) == (
        (1, False) if kind == "bare landlock" else (0, True)
    )
    world.run("rm -rf .git/refs")
    assert (world.root / ".git" / "refs").exists() == (kind != "bare landlock")


def test_a_preloaded_library_gets_no_further_than_the_program_it_is_in(
    world: World, tmp_path: Path
) -> None:
    (world.root / "l.c").write_text(PRELOAD)
    built = world.run("cc -shared -fPIC -o l.so l.c")
    if built.code:
        pytest.skip("no C compiler")
    before = world.untouched()
    output = world.run("LD_PRELOAD=$PWD/l.so /bin/ls; LD_PRELOAD=$PWD/l.so git status").output
    assert "tracked.txt" in output
    assert SECRET not in output and "CHANGED" not in output
    assert world.untouched() == before


def test_no_process_outside_is_ended_stopped_or_traced(world: World) -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        attach = "import ctypes; print(ctypes.CDLL(None).ptrace(16, int(PID), 0, 0))".replace(
            "PID", str(other.pid)
        )
        tracing = world.run(f"python3 -c '{attach}'").output
        world.run(f"kill -9 {other.pid}; kill -STOP {other.pid}; kill -9 $PPID")
        state = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[0]
        other.kill()
    assert state == "S"
    assert tracing.strip() == "-1"


@pytest.mark.parametrize(
    "daemon",
    [
        "setsid {} &",
        "(setsid env -i {} &)",
        "env -i setsid sh -c 'setsid {} & exit' &",
        "nohup {} > /dev/null 2>&1 & disown",
        "python3 -c 'import os\nfor _ in 1, 2:\n    if os.fork(): os._exit(0)\n    "
        "os.setsid()\nos.environ.clear()\n"
        'os.execvpe("sleep", ["sleep", "1234.5"], {{}})\'',
    ],
)
def test_no_daemon_lives_on(world: World, daemon: str) -> None:
    ended = world.run(daemon.format("sleep 1234.5") + "\nsleep 0.2; echo started")
    assert (ended.code, ended.output.strip()) == (0, "started")
    assert _sleeping("1234.5") == []


def test_nothing_lives_on_when_fugu_itself_is_killed(world: World) -> None:
    seconds = f"4321.{os.getpid()}"  # other runs of the tests have sleeping processes, too
    sleep = f"sleep {seconds}"
    command = f"setsid env -i {sleep} & (setsid {sleep} &) ; touch up; {sleep}"
    fugu = os.fork()
    if fugu == 0:
        try:
            world.run(command, 60)
        finally:
            os._exit(1)
    try:
        _until(lambda: (world.root / "up").exists() and len(_sleeping(seconds)) == 3)
    finally:
        os.kill(fugu, signal.SIGKILL)
        os.waitpid(fugu, 0)
    _until(lambda: _sleeping(seconds) == [])


def test_no_other_machine_and_no_socket_of_this_one_can_be_reached(
    world: World, tmp_path: Path
) -> None:
    with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        tcp.bind(("127.0.0.1", 0))
        udp.bind(("127.0.0.1", 0))
        tcp.listen()
        tcp.settimeout(0.2)
        udp.settimeout(0.2)
        ports = (tcp.getsockname()[1], udp.getsockname()[1])
        code = (
            "import socket, sys\n"
            "def attempt(kind, port):\n"
            "    try:\n"
            "        with socket.socket(socket.AF_INET, kind) as s:\n"
            "            s.settimeout(2); s.connect(('127.0.0.1', port)); s.send(b'x')\n"
            "    except OSError as error: print(error)\n"
            f"attempt(socket.SOCK_STREAM, {ports[0]}); attempt(socket.SOCK_DGRAM, {ports[1]})\n"
            "try: socket.create_connection(('192.0.2.1', 9), 1); print('REACHED')\n"
            "except OSError: pass\n"
        )
        (world.root / "reach.py").write_text(code)
        said = world.run("python3 reach.py").output
        with pytest.raises(TimeoutError):
            tcp.accept()
        with pytest.raises(TimeoutError):
            udp.recv(10)
    assert "REACHED" not in said


def test_services_behind_sockets_in_tmp_cannot_be_reached(world: World) -> None:
    folder = Path(f"/tmp/fugu-test-{os.getpid()}")
    folder.mkdir()
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / "s"))
            server.listen()
            code = (
                f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{folder}/s'); "
                f"print('REACHED')"
            )
            assert "REACHED" not in world.run(f'python3 -c "{code}"').output
    finally:
        with contextlib.suppress(OSError):
            (folder / "s").unlink()
            folder.rmdir()


def test_a_git_file_that_points_elsewhere_opens_nothing(world: World) -> None:
    theirs = world.outside / "theirs"
    subprocess.run(["git", "init", "-q", str(theirs)], check=True)
    (world.root / ".git").rename(world.root.parent / "moved")
    (world.root / ".git").write_text(f"gitdir: {theirs}/.git")
    touched = (theirs / ".git" / "planted", theirs / "planted", world.outside / "planted")
    for line in (f"touch {' '.join(map(str, touched))}", "git add tracked.txt; git commit -m x"):
        world.run(line)
    assert [path for path in touched if path.exists()] == []
    assert world.git("log", folder=theirs) == ""


@pytest.mark.parametrize("linked", [True, False])
def test_a_git_folder_that_names_another_as_its_own_opens_nothing(
    world: World, linked: bool
) -> None:
    git = world.root / ".git"
    if linked:
        evil = world.root / "evil"
        git.rename(evil)
        git.write_text("gitdir: evil")
        (evil / "gitdir").write_text("../.git")
        (evil / "commondir").write_text(f"{world.outside}")
    else:
        (git / "commondir").write_text(f"{world.outside}")
    places = git_folder_access(world.root, git)
    assert [path for path in places.writable if path not in {git, world.root / "evil"}] == []
    before = world.untouched()
    world.run(f"touch {world.outside}/planted")
    world.run("git add tracked.txt; git branch x; git status")
    assert world.untouched() == before


def test_a_pipe_in_the_place_of_a_git_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert git_folder_access(tmp_path) == GitFolderAccess(sealed=(tmp_path / ".git",))


def _sleeping(seconds: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if words[:2] == [b"sleep", seconds.encode()]:
                found.append(int(entry.name))
    return found


def _until(true: object, seconds: float = 20.0) -> None:
    assert callable(true)
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


TAKES_OVER = """
for f in .fugurc .mcp.json .agents/hooks.json; do mkdir -p .agents; echo evil > $f; echo evil > ~/$f; done
rm -rf .agents .fugurc; mkdir -p .agents; echo evil > .agents/hooks.json; echo evil > .fugurc
mv .agents away; mkdir .agents; echo evil > .agents/hooks.json
mkdir evil; echo evil > evil/hooks.json; rm -rf .agents; ln -s evil .agents
for f in .agents/skills .agents/commands .config/fugu/skills; do mkdir -p $f; echo evil | tee $f/mine.md $f/x; done
mkdir evil; echo evil > evil/mine.md; rm -rf .agents/skills; ln -s ../evil .agents/skills
mv .config away; ln -s evil .config
"""


def obeyed(root: Path) -> dict[str, str]:
    """The files of OBEYED that there are, those in its folders among them, and what they hold."""
    named = [
        path for name in CONFIGURATION_FILES for path in (root / name, *(root / name).rglob("*"))
    ]
    return {path.relative_to(root).as_posix(): path.read_text() for path in named if path.is_file()}


@pytest.mark.parametrize("there", [True, False])
def test_where_the_home_is_the_repository_no_command_changes_what_the_next_run_obeys(
    make: Make, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    world = make(SandboxSettings())
    monkeypatch.setenv("HOME", str(world.root))
    files = [
        f"{name}/mine.md" if name.endswith(("skills", "commands")) else name
        for name in CONFIGURATION_FILES
    ]
    for name in files if there else ():
        (world.root / name).parent.mkdir(parents=True, exist_ok=True)
        (world.root / name).write_text("mine")
    for attempt in TAKES_OVER.strip().splitlines():
        world.run(attempt)
        assert obeyed(world.root) == (dict.fromkeys(files, "mine") if there else {}), attempt
