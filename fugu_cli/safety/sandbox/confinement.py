"""The confinement itself, put on by the child that is about to become the command: namespaces,
Landlock, a filter of system calls, and the calls for them that Python does not have. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct

from fugu_cli.safety.sandbox.launcher_options import LauncherOptions

LIBC = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x40000000,
)
MS_REC_PRIVATE, MS_NOSUID, MS_NODEV = 0x4000 | 0x40000, 2, 4
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_AT_FDCWD, _AT_RECURSIVE, _AT_EMPTY_PATH, _CLOEXEC = -100, 0x8000, 0x1000, 0o2000000
_RDONLY = 1
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 38, 22, 24

FS_ALL = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}
"""File rights a ruleset of that ABI knows; from 5 on also device ioctls."""
FS_READ = 0x1 | 0x4 | 0x8
FS_FILE = 0x1 | 0x2 | 0x4 | 0x4000 | 0x8000
"""Execute, read, list; and those that a plain file can be given."""


def system_call(number: int, *arguments: object) -> int:
    """Make a raw system call."""
    result = LIBC.syscall(ctypes.c_long(number), *arguments)
    return _checked(int(result), "")


def _checked(result: int, action: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{action}: {os.strerror(code)}" if action else os.strerror(code))
    return result


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags`."""
    _checked(LIBC.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Call mount(2)."""
    texts = [None if text == "" else os.fsencode(text) for text in (source, target, kind)]
    _checked(
        LIBC.mount(*texts, ctypes.c_ulong(flags), os.fsencode(data) if data else None),
        f"mount {target}",
    )


def clone_tree(path: str) -> int:
    """Return a detached copy of the mounts at and below `path`, as a descriptor."""
    return system_call(
        _OPEN_TREE, _AT_FDCWD, os.fsencode(path), ctypes.c_uint(1 | _CLOEXEC | _AT_RECURSIVE)
    )


def attach_tree(tree: int, path: str) -> None:
    """Put a detached tree over `path`."""
    system_call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(path), ctypes.c_uint(4))


def make_read_only(path: str = "", tree: int = _AT_FDCWD) -> None:
    """Make everything at and below `path` (or in a detached tree) read-only."""
    attributes = ctypes.create_string_buffer(struct.pack("QQQQ", _RDONLY, 0, 0, 0))
    flags = _AT_RECURSIVE | (0 if path else _AT_EMPTY_PATH)
    system_call(
        _MOUNT_SETATTR,
        tree,
        os.fsencode(path),
        ctypes.c_uint(flags),
        attributes,
        ctypes.c_size_t(32),
    )


def enable_loopback() -> None:
    """Enable the loopback interface of a new network namespace, so that tests reach the servers they
    start.
    """
    import fcntl  # Windows has none, and imports this module, too

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        fcntl.ioctl(link, 0x8914, struct.pack("16sH14s", b"lo", 1, b""))  # SIOCSIFFLAGS, IFF_UP


def landlock_abi() -> int:
    """Return the kernel's Landlock version, 0 for none."""
    try:
        return system_call(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    except OSError:
        return 0


def landlock_ruleset(abi: int, *, tcp: bool) -> int:
    """Return the descriptor of a ruleset that forbids everything the ABI knows, TCP only with `tcp`."""
    rights = FS_ALL.get(abi, 0xFFFF)
    attributes = struct.pack("QQQ", rights, 3 if tcp and abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    return system_call(
        _LANDLOCK_CREATE,
        ctypes.create_string_buffer(attributes),
        ctypes.c_size_t(size),
        ctypes.c_uint(0),
    )


def landlock_scope() -> None:
    """Forbid connections to abstract Unix sockets of processes outside, and signals to them, if the
    kernel supports it (Linux 6.12).
    """
    if landlock_abi() >= 6:
        attributes = ctypes.create_string_buffer(struct.pack("QQQ", 0, 0, 3))
        ruleset = system_call(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(24), ctypes.c_uint(0))
        landlock_restrict(ruleset)
        os.close(ruleset)


def landlock_allow(ruleset: int, path: str, rights: int) -> None:
    """Allow `rights` at and below `path`. A missing path and a link are ignored."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        mode = os.fstat(descriptor).st_mode
        if mode & 0o170000 == 0o120000:
            return
        is_folder = mode & 0o170000 == 0o040000
        allowed = rights if is_folder else rights & FS_FILE
        rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, descriptor))
        system_call(_LANDLOCK_ADD, ruleset, ctypes.c_int(1), rule, ctypes.c_uint(0))
    finally:
        os.close(descriptor)


def landlock_restrict(ruleset: int) -> None:
    """Apply the ruleset to this process and its children for good."""
    system_call(_LANDLOCK_RESTRICT, ruleset, ctypes.c_uint(0))


def no_new_privileges() -> None:
    """Keep this process from gaining rights through set-user-id programs."""
    _checked(LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def drop_capabilities(kept: frozenset[int]) -> None:
    """Let root keep only these capabilities after the next exec."""
    for number in range(64):
        if number not in kept and LIBC.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            return  # the first one the kernel does not know


class SeccompMachine:
    """Numbers of one processor: how seccomp names it, and its system calls that the filter looks
    at.

    A plain class: `typing` and `dataclasses` take longer to import than all the rest.
    """

    def __init__(self, audit: int, socket: int, keys: tuple[int, ...]) -> None:
        self.audit, self.socket, self.keys = audit, socket, keys


MACHINES = {
    "x86_64": SeccompMachine(0xC000003E, 41, (248, 249, 250)),
    "aarch64": SeccompMachine(0xC00000B7, 198, (217, 218, 219)),
    "riscv64": SeccompMachine(0xC00000F3, 198, (217, 218, 219)),
}
"""`keys`: add_key, request_key and keyctl, whose keyrings are shared with what runs outside."""
IO_URING = (425, 426, 427)
"""io_uring_setup, io_uring_enter and io_uring_register on every processor: a ring makes sockets
past the filter.
"""
_FAIL, _ALLOW, _ABSENT = 0x00050000 | 1, 0x7FFF0000, 0x00050000 | 38


def filter_calls(families: tuple[int, ...]) -> None:
    """Allow only sockets of these families from now on; no io_uring and no keyring.

    Raises OSError, also on an unknown processor.
    """
    machine = MACHINES.get(os.uname().machine)
    if machine is None:
        raise OSError(
            0, f"no filter of system calls is known for the processor {os.uname().machine}"
        )
    program = filter_program(machine, families)
    code = ctypes.create_string_buffer(program)
    whole = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    )
    _checked(LIBC.prctl(_PR_SET_SECCOMP, 2, whole, 0, 0), "seccomp")


def filter_program(machine: SeccompMachine, families: tuple[int, ...]) -> bytes:
    """Return the filter as classic BPF, eight bytes an instruction. A refused call fails with
    EPERM, io_uring with ENOSYS.
    """
    program = [(0x20, 0, 0, 4), (0x15, 1, 0, machine.audit), (0x06, 0, 0, _FAIL), (0x20, 0, 0, 0)]
    program += [
        (0x35, 0, 1, 0x40000000),
        (0x06, 0, 0, _FAIL),
    ]  # x32 calls have numbers of their own
    for number in (*IO_URING, *machine.keys):
        program += [(0x15, 0, 1, number), (0x06, 0, 0, _ABSENT if number in IO_URING else _FAIL)]
    program += [(0x15, 1, 0, machine.socket), (0x06, 0, 0, _ALLOW), (0x20, 0, 0, 16)]
    for family in families:
        program += [(0x15, 0, 1, family), (0x06, 0, 0, _ALLOW)]
    program.append((0x06, 0, 0, _FAIL))
    return b"".join(struct.pack("HBBI", *line) for line in program)


TMPFS = "mode=0755,size=1m"
SHARED = "mode=1777,size=512m"


def enter_namespaces(options: LauncherOptions, *, offline: bool) -> None:
    """Leave the common namespaces. Raises OSError where the system does not allow it."""
    _leave(CLONE_NEWNS | CLONE_NEWIPC | (CLONE_NEWNET if offline else 0))
    if offline:
        enable_loopback()
    mount("", "/", "", MS_REC_PRIVATE)
    trees = {path: clone_tree(path) for path in _trees(options)}
    for path in options.all("--seal"):
        if path in trees:
            make_read_only(tree=trees[path])
    for path in options.all("--read"):
        if path in trees:
            make_read_only(tree=trees[path])
    private = options.all("--private")
    private_tmp = clone_tree(private[-1]) if private else -1
    make_read_only("/")
    if private_tmp >= 0:
        attach_tree(private_tmp, "/tmp")
        os.close(private_tmp)
    covered = set(options.all("--cover")) | set(options.all("--hide"))
    for path in sorted({*trees, *covered}, key=lambda path: path.count("/")):
        if path in covered:
            _cover(path)
        if path in trees:
            _mount_back(trees.pop(path), path)
    _devices()


def _leave(flags: int) -> None:
    """Enter new namespaces with root's rights, or as root of a user namespace with oneself as the
    only user.
    """
    user, group = os.getuid(), os.getgid()
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):
            unshare(flags)
            return
    unshare(flags | CLONE_NEWUSER)
    for name, text in {
        "setgroups": "deny",
        "uid_map": f"{user} {user} 1",
        "gid_map": f"{group} {group} 1",
    }.items():
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _trees(options: LauncherOptions) -> set[str]:
    named = [*options.all("--write"), *options.all("--read"), *options.all("--seal")]
    return {path for path in named if os.path.exists(path)}


def _cover(path: str) -> None:
    """Cover a path with an empty one."""
    if os.path.islink(path) or not os.path.exists(path):
        return
    if os.path.isdir(path):
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, SHARED if path == "/dev/shm" else TMPFS)
    else:
        tree = clone_tree(os.devnull)
        attach_tree(tree, path)
        os.close(tree)


def _mount_back(tree: int, path: str) -> None:
    """Mount a path back at its own place, creating it if its folder was covered."""
    if not os.path.lexists(path):
        if os.path.isdir(f"/proc/self/fd/{tree}"):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    attach_tree(tree, path)
    os.close(tree)


def _devices() -> None:
    """Provide private shared memory and terminals; none if that is impossible."""
    with contextlib.suppress(OSError):
        _cover("/dev/shm")
    with contextlib.suppress(OSError):
        mount("devpts", "/dev/pts", "devpts", MS_NOSUID, "newinstance,ptmxmode=0666,mode=620")
        if not os.path.islink("/dev/ptmx"):
            tree = clone_tree("/dev/pts/ptmx")
            attach_tree(tree, "/dev/ptmx")
            os.close(tree)


KEPT = frozenset({0, 1, 3, 4, 5, 6, 7, 10})
"""The capabilities that root keeps: owners, permissions and signals of files and processes it may
reach. No mounts, devices, tracing.
"""
NETWORK = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
APART = (socket.AF_UNIX, *NETWORK)
"""Families of sockets: those that lead to other machines, and those that a command with a view of
the file system of its own may make. No others: AF_VSOCK leads to the host of a virtual machine,
AF_PACKET reads the network."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd")


def confine(options: LauncherOptions) -> None:
    """Confine this process as `options` say. Raises OSError."""
    inner = "--inner" in options.switches
    has_namespaces = inner or "--namespaces" in options.switches
    offline = "--no-network" in options.switches
    if has_namespaces and not inner:
        enter_namespaces(options, offline=offline)
    no_new_privileges()
    if os.geteuid() == 0 and not inner:
        drop_capabilities(KEPT)
    if "--landlock" in options.switches:
        _restrict(options, has_namespaces=has_namespaces, offline=offline)
    elif inner and not offline:
        landlock_scope()
    # without a view of its own, a path leads to sockets outside, and without a network of its own
    # every family does
    filter_calls(APART if has_namespaces else () if offline else NETWORK)


def _restrict(options: LauncherOptions, *, has_namespaces: bool, offline: bool) -> None:
    abi = landlock_abi()
    if abi < 1:
        raise OSError(0, "the kernel has no Landlock")
    ruleset = landlock_ruleset(abi, tcp=offline and not has_namespaces)
    everything = FS_ALL.get(abi, 0xFFFF)
    hidden = {*options.all("--hide"), "/dev"}  # of the devices only those that hold nothing
    above = frozenset(_above(hidden))
    for path in _outside("/", hidden, above):
        landlock_allow(ruleset, path, FS_READ)
    for name in DEVICES if has_namespaces else DEVICES[:6]:
        landlock_allow(ruleset, f"/dev/{name}", everything)
    private = ["/tmp"] if has_namespaces and options.all("--private") else options.all("--private")
    for path in (*options.all("--write"), *private):
        for part in (
            _outside(path, hidden, above) if path in above and not has_namespaces else [path]
        ):
            landlock_allow(ruleset, part, everything)
    for path in (*options.all("--read"), *options.all("--seal")):
        for part in _outside(path, hidden, above) if path in above else [path]:
            landlock_allow(ruleset, part, FS_READ)
    landlock_restrict(ruleset)
    os.close(ruleset)


def _above(paths: set[str]) -> set[str]:
    """Return the folders that hold one of `paths`."""
    folders = {"/"}
    for path in paths:
        while path not in {"/", ""}:
            path = os.path.dirname(path)
            folders.add(path)
    return folders


def _outside(folder: str, hidden: set[str], above: frozenset[str]) -> list[str]:
    """Return the trees below `folder` without anything hidden. Landlock can only add rights, so a
    folder with something hidden is split.
    """
    trees = []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    for entry in entries:
        if entry.path in hidden or entry.is_symlink():
            continue
        if entry.path in above:
            trees += _outside(entry.path, hidden, above)
        else:
            trees.append(entry.path)
    return trees
