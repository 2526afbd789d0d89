"""Namespaces of the command's own: its view of the file system, its network, its shared memory. Part of the launcher.

Under confine.py. Everything becomes read-only, then the places that may be written are put back over themselves; what
must not be seen is covered; what must not change inside a writable place (git's hooks) is put back read-only.
"""

from __future__ import annotations

import contextlib
import os

from fugu_cli.sandbox import kernel
from fugu_cli.sandbox.options import Options

TMPFS = "mode=0755,size=1m"
SHARED = "mode=1777,size=512m"


def enter(options: Options, *, offline: bool) -> None:
    """Leave the common namespaces. Raises OSError where the system does not allow it."""
    _leave(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | (kernel.CLONE_NEWNET if offline else 0))
    if offline:
        kernel.loopback_up()
    kernel.mount("", "/", "", kernel.MS_REC_PRIVATE)
    trees = {path: kernel.clone_tree(path) for path in _trees(options)}
    for path in options.all("--seal"):
        if path in trees:
            kernel.read_only(tree=trees[path])
    for path in options.all("--read"):
        if path in trees:
            kernel.read_only(tree=trees[path])
    private = options.all("--private")
    over = kernel.clone_tree(private[-1]) if private else -1
    kernel.read_only("/")
    if over >= 0:
        kernel.attach(over, "/tmp")
        os.close(over)
    covered = set(options.all("--cover")) | set(options.all("--hide"))
    for path in sorted({*trees, *covered}, key=lambda path: path.count("/")):
        if path in covered:
            _cover(path)
        if path in trees:
            _put(trees.pop(path), path)
    _devices()


def _leave(flags: int) -> None:
    """With root's rights where there are any, else as root of a user namespace with one user: oneself."""
    user, group = os.getuid(), os.getgid()
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):
            kernel.unshare(flags)
            return
    kernel.unshare(flags | kernel.CLONE_NEWUSER)
    for name, text in {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}.items():
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _trees(options: Options) -> set[str]:
    named = [*options.all("--write"), *options.all("--read"), *options.all("--seal")]
    return {path for path in named if os.path.exists(path)}


def _cover(path: str) -> None:
    """Nothing is there any more."""
    if os.path.islink(path) or not os.path.exists(path):
        return
    if os.path.isdir(path):
        kernel.mount(
            "tmpfs", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, SHARED if path == "/dev/shm" else TMPFS
        )
    else:
        tree = kernel.clone_tree(os.devnull)
        kernel.attach(tree, path)
        os.close(tree)


def _put(tree: int, path: str) -> None:
    """A place as it was, at its own path; made where it was covered with the folder that holds it."""
    if not os.path.lexists(path):
        if os.path.isdir(f"/proc/self/fd/{tree}"):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    kernel.attach(tree, path)
    os.close(tree)


def _devices() -> None:
    """Shared memory and terminals of one's own; where that is not possible, none."""
    with contextlib.suppress(OSError):
        _cover("/dev/shm")
    with contextlib.suppress(OSError):
        kernel.mount("devpts", "/dev/pts", "devpts", kernel.MS_NOSUID, "newinstance,ptmxmode=0666,mode=620")
        if not os.path.islink("/dev/ptmx"):
            tree = kernel.clone_tree("/dev/pts/ptmx")
            kernel.attach(tree, "/dev/ptmx")
            os.close(tree)
