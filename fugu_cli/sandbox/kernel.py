"""The system calls the launcher needs and Python does not have, with their numbers and structures. Linux only.

Under confine.py and spaces.py. Each function raises OSError with the kernel's own reason. Sources: landlock(7),
seccomp(2), mount_setattr(2), open_tree(2), user_namespaces(7), and the kernel's include/uapi.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

LIBC = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x40000000
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


def call(number: int, *arguments: object) -> int:
    """A raw system call."""
    found = LIBC.syscall(ctypes.c_long(number), *arguments)
    return _checked(int(found), "")


def _checked(found: int, what: str) -> int:
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}" if what else os.strerror(code))
    return found


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags`."""
    _checked(LIBC.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)."""
    given = [None if text == "" else os.fsencode(text) for text in (source, target, kind)]
    _checked(LIBC.mount(*given, ctypes.c_ulong(flags), os.fsencode(data) if data else None), f"mount {target}")


def clone_tree(path: str) -> int:
    """A detached copy of the mounts at and below `path`, as a descriptor."""
    return call(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), ctypes.c_uint(1 | _CLOEXEC | _AT_RECURSIVE))


def attach(tree: int, path: str) -> None:
    """Put a detached tree over `path`."""
    call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(path), ctypes.c_uint(4))


def read_only(path: str = "", tree: int = _AT_FDCWD) -> None:
    """Everything at and below `path` (or in a detached tree) can only be read from now on."""
    given = ctypes.create_string_buffer(struct.pack("QQQQ", _RDONLY, 0, 0, 0))
    flags = _AT_RECURSIVE | (0 if path else _AT_EMPTY_PATH)
    call(_MOUNT_SETATTR, tree, os.fsencode(path), ctypes.c_uint(flags), given, ctypes.c_size_t(32))


def loopback_up() -> None:
    """The loopback interface of a new network namespace, switched on: tests talk to servers of their own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        fcntl.ioctl(link, 0x8914, struct.pack("16sH14s", b"lo", 1, b""))  # SIOCSIFFLAGS, IFF_UP


def landlock_abi() -> int:
    """The version of Landlock the kernel offers, 0 for none."""
    try:
        return call(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    except OSError:
        return 0


def landlock_ruleset(abi: int, *, tcp: bool) -> int:
    """A ruleset that forbids everything the ABI knows, as a descriptor. `tcp`: TCP as well."""
    rights = FS_ALL.get(abi, 0xFFFF)
    given = struct.pack("QQQ", rights, 3 if tcp and abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    return call(_LANDLOCK_CREATE, ctypes.create_string_buffer(given), ctypes.c_size_t(size), ctypes.c_uint(0))


def landlock_scope() -> None:
    """No abstract Unix socket and no process outside can be reached, where the kernel can forbid that (Linux 6.12)."""
    if landlock_abi() >= 6:
        given = ctypes.create_string_buffer(struct.pack("QQQ", 0, 0, 3))
        ruleset = call(_LANDLOCK_CREATE, given, ctypes.c_size_t(24), ctypes.c_uint(0))
        landlock_restrict(ruleset)
        os.close(ruleset)


def landlock_allow(ruleset: int, path: str, rights: int) -> None:
    """Allow `rights` at and below `path`. What is not there, or is a link, is passed over."""
    try:
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        mode = os.fstat(place).st_mode
        if mode & 0o170000 == 0o120000:
            return
        given = rights if mode & 0o170000 == 0o040000 else rights & FS_FILE
        rule = ctypes.create_string_buffer(struct.pack("=Qi", given, place))
        call(_LANDLOCK_ADD, ruleset, ctypes.c_int(1), rule, ctypes.c_uint(0))
    finally:
        os.close(place)


def landlock_restrict(ruleset: int) -> None:
    """Hold this process and all its children to the ruleset. Cannot be taken back."""
    call(_LANDLOCK_RESTRICT, ruleset, ctypes.c_uint(0))


def no_new_privileges() -> None:
    """No set-user-id program gives rights any more."""
    _checked(LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def drop_capabilities(kept: frozenset[int]) -> None:
    """Root keeps these after the next exec and no others."""
    for number in range(64):
        if number not in kept and LIBC.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            return  # the first one the kernel does not know


class Machine:
    """Numbers of one processor: how seccomp names it, and its system calls that the filter looks at.

    A plain class: `typing` and `dataclasses` take longer to import than all the rest.
    """

    def __init__(self, audit: int, socket: int, keys: tuple[int, ...]) -> None:
        self.audit, self.socket, self.keys = audit, socket, keys


MACHINES = {
    "x86_64": Machine(0xC000003E, 41, (248, 249, 250)),
    "aarch64": Machine(0xC00000B7, 198, (217, 218, 219)),
    "riscv64": Machine(0xC00000F3, 198, (217, 218, 219)),
}
"""`keys`: add_key, request_key and keyctl, whose keyrings are shared with what runs outside."""
IO_URING = (425, 426, 427)
"""io_uring_setup, io_uring_enter and io_uring_register on every processor: a ring makes sockets past the filter."""
_FAIL, _ALLOW, _ABSENT = 0x00050000 | 1, 0x7FFF0000, 0x00050000 | 38


def filter_calls(families: tuple[int, ...]) -> None:
    """From now on only sockets of these families can be made; there is no io_uring and no keyring.

    Raises OSError, also on a processor whose numbers are not known here.
    """
    machine = MACHINES.get(os.uname().machine)
    if machine is None:
        raise OSError(0, f"no filter of system calls is known for the processor {os.uname().machine}")
    program = filter_program(machine, families)
    code = ctypes.create_string_buffer(program)
    whole = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    _checked(LIBC.prctl(_PR_SET_SECCOMP, 2, whole, 0, 0), "seccomp")


def filter_program(machine: Machine, families: tuple[int, ...]) -> bytes:
    """The filter as classic BPF, eight bytes an instruction. A refused call fails with EPERM, io_uring with ENOSYS."""
    program = [(0x20, 0, 0, 4), (0x15, 1, 0, machine.audit), (0x06, 0, 0, _FAIL), (0x20, 0, 0, 0)]
    program += [(0x35, 0, 1, 0x40000000), (0x06, 0, 0, _FAIL)]  # x32 calls have numbers of their own
    for number in (*IO_URING, *machine.keys):
        program += [(0x15, 0, 1, number), (0x06, 0, 0, _ABSENT if number in IO_URING else _FAIL)]
    program += [(0x15, 1, 0, machine.socket), (0x06, 0, 0, _ALLOW), (0x20, 0, 0, 16)]
    for family in families:
        program += [(0x15, 0, 1, family), (0x06, 0, 0, _ALLOW)]
    program.append((0x06, 0, 0, _FAIL))
    return b"".join(struct.pack("HBBI", *line) for line in program)
