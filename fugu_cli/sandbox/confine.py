"""The confinement itself, put on by the child that is about to become the command. Part of the launcher.

Namespaces first where they are allowed (spaces.py: what is there, what can be written), then Landlock (which files may
be read and written at all), then a filter of system calls. `--inner`: bubblewrap has put on the rest. Any failure stops
the command from being started.
"""

from __future__ import annotations

import os
import socket

from fugu_cli.sandbox import kernel, spaces
from fugu_cli.sandbox.options import Options

KEPT = frozenset({0, 1, 3, 4, 5, 6, 7, 10})
"""What root keeps: owners, permissions and signals of files and processes it may reach. No mounts, devices, tracing."""
NETWORK = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
APART = (socket.AF_UNIX, *NETWORK)
"""Families of sockets: those that lead to other machines, and those that a command with a view of the file system of
its own may make. No others: AF_VSOCK leads to the host of a virtual machine, AF_PACKET reads the network."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd")


def confine(options: Options) -> None:
    """Hold this process to what `options` say. Raises OSError."""
    inner = "--inner" in options.switches
    apart = inner or "--namespaces" in options.switches
    offline = "--no-network" in options.switches
    if apart and not inner:
        spaces.enter(options, offline=offline)
    kernel.no_new_privileges()
    if os.geteuid() == 0 and not inner:
        kernel.drop_capabilities(KEPT)
    if "--landlock" in options.switches:
        _restrict(options, apart=apart, offline=offline)
    elif inner and not offline:
        kernel.landlock_scope()
    # without a view of its own, a path leads to sockets outside, and without a network of its own every family does
    kernel.filter_calls(APART if apart else () if offline else NETWORK)


def _restrict(options: Options, *, apart: bool, offline: bool) -> None:
    abi = kernel.landlock_abi()
    if abi < 1:
        raise OSError(0, "the kernel has no Landlock")
    ruleset = kernel.landlock_ruleset(abi, tcp=offline and not apart)
    everything = kernel.FS_ALL.get(abi, 0xFFFF)
    hidden = {*options.all("--hide"), "/dev"}  # of the devices only those that hold nothing
    above = frozenset(_above(hidden))
    for path in _outside("/", hidden, above):
        kernel.landlock_allow(ruleset, path, kernel.FS_READ)
    for name in DEVICES if apart else DEVICES[:6]:
        kernel.landlock_allow(ruleset, f"/dev/{name}", everything)
    private = ["/tmp"] if apart and options.all("--private") else options.all("--private")
    for path in (*options.all("--write"), *private):
        for part in _outside(path, hidden, above) if path in above and not apart else [path]:
            kernel.landlock_allow(ruleset, part, everything)
    for path in (*options.all("--read"), *options.all("--seal")):
        for part in _outside(path, hidden, above) if path in above else [path]:
            kernel.landlock_allow(ruleset, part, kernel.FS_READ)
    kernel.landlock_restrict(ruleset)
    os.close(ruleset)


def _above(paths: set[str]) -> set[str]:
    """The folders that hold one of `paths`."""
    found = {"/"}
    for path in paths:
        while path not in {"/", ""}:
            path = os.path.dirname(path)
            found.add(path)
    return found


def _outside(folder: str, hidden: set[str], above: frozenset[str]) -> list[str]:
    """The trees below `folder` that hold nothing hidden: Landlock can only add, so what holds some is taken apart."""
    found = []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    for entry in entries:
        if entry.path in hidden or entry.is_symlink():
            continue
        if entry.path in above:
            found += _outside(entry.path, hidden, above)
        else:
            found.append(entry.path)
    return found
