"""Attempts to get out of the sandbox, made for real: none reads a secret, changes a file outside, or lives on."""

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

from fugu_cli.sandbox.box import Rules
from fugu_cli.sandbox.gitdirs import GitPlaces, git_places
from fugu_cli.sandbox.places import OBEYED
from tests.sandbox.conftest import SECRET, Make, World

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a sandbox for Linux only")

READS = r"""
cat ~/.ssh/id_rsa
cat ~/.aws/credentials ~/.netrc ~/.config/app/token ~/.cargo/credentials.toml ~/x.pem
cat ~/work/other/.env ~/work/other/id_ed25519 ~/work/secrets.yml ~/work/a/tls.key; grep -r S3CR ~/work
ln -s ~/.ssh keys; cat keys/id_rsa; ls keys/
ln -s ~/.ssh/id_rsa key; cat key; cp -L key stolen && cat stolen
ln ~/.ssh/id_rsa hard && cat hard
cat /proc/self/root$HOME/.ssh/id_rsa
cat /proc/$PPID/root$HOME/.ssh/id_rsa
cat /proc/1/root$HOME/.ssh/id_rsa
cat /proc/self/cwd/../../../../../../../..$HOME/.ssh/id_rsa
for p in /proc/[0-9]*; do tr '\0' '\n' < $p/environ; done | grep S3CR
for p in /proc/[0-9]*; do for f in $p/fd/*; do timeout 1 head -c 200 $f < /dev/null & done; wait; done | grep -a S3CR
tr '\0' '\n' < /proc/$PPID/environ; cat /proc/$PPID/mem | head -c 100
env; printenv OUR_API_KEY
cp -r ~ copy; grep -r S3CR copy
tar c ~ 2>/dev/null | grep -a S3CR
find ~ -type f -exec cat {} +
bash -c 'cd ~/.ssh && cat id_rsa'
git -c core.pager=cat diff --no-index /dev/null ~/.ssh/id_rsa
unshare -Urm sh -c 'umount -a; cat ~/.ssh/id_rsa'
unshare -m sh -c 'umount -l /tmp; umount -l ~/.ssh; cat ~/.ssh/id_rsa'
umount -l /tmp; umount -l /run; umount ~/.ssh; cat ~/.ssh/id_rsa
mount --bind / mnt; mkdir -p mnt; mount --bind / mnt && cat mnt$HOME/.ssh/id_rsa
chroot / cat ~/.ssh/id_rsa
nsenter -t 1 -m cat ~/.ssh/id_rsa
nsenter -t $PPID -m cat ~/.ssh/id_rsa
python3 -c 'import os; print(os.listdir(os.path.expanduser("~/.ssh")))'
python3 -c 'import os; print(open(os.path.expanduser("~/.ssh/id_rsa")).read())'
grep -a -m1 -c S3CR /dev/vda /dev/sda /dev/nvme0n1 /dev/mem; mknod disk b 254 0 && head -c 10 disk
cat /etc/shadow | grep -q '^root:' && echo S3CRET-that-nobody-may-see
ls ../data/ && find ../data -name '*.jsonl' -exec cat {} +
"""

WRITES = r"""
echo x > ~/planted; echo x >> ~/.bashrc; mkdir ~/.config/autostart
echo x > ../outside/planted; echo x >> ../outside/work.txt
ln -s ../outside out; echo x > out/planted; echo x > out/work.txt
ln -s ../outside/work.txt link; echo x > link; sed -i s/work/x/ link; truncate -s 0 link
ln ../outside/work.txt hard && echo x > hard
mv tracked.txt ../outside/; mv ../outside/work.txt .; cp tracked.txt ~/
rm -rf ../outside; rm -rf ~/notes.txt; rm -rf ~
echo x > /proc/self/root$HOME/planted; echo x > /proc/$PPID/cwd/../outside/planted
echo x > /proc/$PPID/root$PWD/../outside/planted
cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern && echo CHANGED
cat /proc/sys/vm/swappiness > /proc/sys/vm/swappiness && echo CHANGED
echo x > /usr/local/bin/git; echo x > /etc/ld.so.preload
cp tracked.txt /usr/bin/fugu-planted; ls /usr/bin/fugu-planted && echo CHANGED
echo x > /etc/cron.d/fugu-planted && echo CHANGED; echo '* * * * * true' | crontab - && echo CHANGED
printf '#!/bin/sh\n' > .git/hooks/pre-commit; chmod +x .git/hooks/*
rm -rf .git/hooks; mkdir .git/hooks; echo x > .git/hooks/post-checkout
mv .git/hooks .git/h2 && mkdir .git/hooks && echo x > .git/hooks/pre-push
mv .git .g && cp -r .g .git && echo x > .git/hooks/pre-commit && echo x >> .git/config
rm -rf .git/config; git config core.fsmonitor 'touch /tmp/x'; git config alias.status '!sh'
git config --file .git/config core.hooksPath .hooks; echo '[core]' >> .git/config; ln -sf ../x .git/config
git config --global user.name x; git config --system core.editor x
git init --separate-git-dir=../outside/git .
git worktree add ../outside/tree
git -C ../outside init
unshare -Urm sh -c 'mount -o remount,rw,bind ~; echo x > ~/planted'
mount -o remount,rw /; mount -o remount,rw,bind .git/hooks; echo x > .git/hooks/x; echo x > ~/planted
python3 -c 'import os; os.replace("tracked.txt", os.path.expanduser("~/planted"))'
python3 -c 'import os; os.symlink("/x", os.path.expanduser("~/planted"))'
python3 -c 'import os; os.mkfifo(os.path.expanduser("~/planted"))'
python3 -c 'import socket, os; socket.socket(socket.AF_UNIX).bind(os.path.expanduser("~/planted"))'
dd if=tracked.txt of=../outside/work.txt; install tracked.txt ~/planted; tar xf - -C ~ < tracked.txt
"""

MODES = "chmod 777 ~/.ssh ../outside; chmod 000 ../outside/work.txt; touch -d 2001-01-01 ../outside/work.txt"

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


def lines(table: str) -> list[str]:
    return [line for line in table.strip().splitlines() if line]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_API_KEY", SECRET)


def test_no_attempt_reads_a_secret(world: World) -> None:
    world.run("true")  # fugu's own folders are there now
    found = {line: world.run(f"({line}) 2>&1").output for line in lines(READS)}
    assert [line for line, output in found.items() if SECRET in output] == []


def test_no_attempt_changes_anything_outside(world: World, kind: str) -> None:
    world.run("true")
    before = world.untouched()
    changed = {}
    for line in [*lines(WRITES), *([] if kind == "bare landlock" else [MODES])]:
        ended = world.run(line)
        after = world.untouched()
        if after != before or "CHANGED" in ended.output.splitlines():
            changed[line] = {path for path in {**before, **after} if before.get(path) != after.get(path)}
            before = after
    assert changed == {}
    assert (world.root / "tracked.txt").exists() or not (world.outside / "tracked.txt").exists()


def test_a_preloaded_library_gets_no_further_than_the_program_it_is_in(world: World, tmp_path: Path) -> None:
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
        attach = "import ctypes; print(ctypes.CDLL(None).ptrace(16, int(PID), 0, 0))".replace("PID", str(other.pid))
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
        "python3 -c 'import os\nfor _ in 1, 2:\n    if os.fork(): os._exit(0)\n    os.setsid()\nos.environ.clear()\n"
        'os.execvpe("sleep", ["sleep", "1234.5"], {{}})\'',
    ],
)
def test_no_daemon_lives_on(world: World, daemon: str) -> None:
    ended = world.run(daemon.format("sleep 1234.5") + "\nsleep 0.2; echo started")
    assert (ended.code, ended.output.strip()) == (0, "started")
    assert _sleeping("1234.5") == []


def test_nothing_lives_on_when_fugu_itself_is_killed(world: World, tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom fugu_cli.tools.process import run_command\n"
        "command = 'setsid env -i sleep 4321.5 & (setsid sleep 4321.5 &) ; touch up; sleep 4321.5'\n"
        "asyncio.run(run_command(command, Path(sys.argv[1]), 60, lambda text: None))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", script, str(world.root)], env=environment) as fugu:
        _until(lambda: (world.root / "up").exists() and len(_sleeping("4321.5")) == 3)
        os.kill(fugu.pid, signal.SIGKILL)
    _until(lambda: _sleeping("4321.5") == [])


def test_no_other_machine_and_no_socket_of_this_one_can_be_reached(world: World, tmp_path: Path) -> None:
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
            code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{folder}/s'); print('REACHED')"
            assert "REACHED" not in world.run(f'python3 -c "{code}"').output
    finally:
        with contextlib.suppress(OSError):
            (folder / "s").unlink()
            folder.rmdir()


def test_a_git_file_that_points_elsewhere_opens_nothing(world: World, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    subprocess.run(["git", "init", "-q", str(theirs)], check=True)
    (world.root / ".git").rename(tmp_path / "moved")
    world.run(f"echo 'gitdir: {theirs}/.git' > .git")
    world.run(f"touch {theirs}/.git/planted {theirs}/planted")
    assert not (theirs / ".git" / "planted").exists()
    assert not (theirs / "planted").exists()


def test_a_pipe_in_the_place_of_a_git_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert git_places(tmp_path) == GitPlaces(sealed=(tmp_path / ".git",))


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
    named = [path for name in OBEYED for path in (root / name, *(root / name).rglob("*"))]
    return {path.relative_to(root).as_posix(): path.read_text() for path in named if path.is_file()}


@pytest.mark.parametrize("there", [True, False])
def test_where_the_home_is_the_repository_no_command_changes_what_the_next_run_obeys(
    make: Make, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    world = make(Rules())
    monkeypatch.setenv("HOME", str(world.root))
    files = [f"{name}/mine.md" if name.endswith(("skills", "commands")) else name for name in OBEYED]
    for name in files if there else ():
        (world.root / name).parent.mkdir(parents=True, exist_ok=True)
        (world.root / name).write_text("mine")
    for attempt in TAKES_OVER.strip().splitlines():
        world.run(attempt)
        assert obeyed(world.root) == (dict.fromkeys(files, "mine") if there else {}), attempt
