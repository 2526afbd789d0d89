"""The profile that macOS' `sandbox-exec` holds a command to. Only text: nothing is run here.

It begins with nothing allowed. Of rules that match, the last one counts, so that a deeper path's
rule stands behind that of the folder around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fugu_cli.safety.sandbox.access_rules import FileAccess

BASE = """(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal process-info* (target same-sandbox))
(allow sysctl-read user-preference-read ipc-posix-sem ipc-posix-shm* pseudo-tty)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.system.logger"))
(allow file-read* file-test-existence file-map-executable)
(allow file-write-data file-ioctl
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (literal "/dev/ptmx")
  (literal "/dev/dtracehelper") (subpath "/dev/fd")
  (require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty")))"""
"""The permissions that every program needs. Of the terminals only those that a command makes itself
can be written. Desktop services are left out: they start programs outside.
"""

NETWORK_SERVICES = """(allow mach-lookup
  (global-name "com.apple.dnssd.service") (global-name "com.apple.networkd")
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.SecurityServer") (global-name "com.apple.ocspd")
  (global-name "com.apple.trustd.agent"))"""
"""The permissions to find a host and to check its certificate."""


def seatbelt_profile(access: FileAccess, private: str, *, network: bool) -> str:
    """Return the profile for one command, whose temporary files lie in `private`."""
    lines = [BASE]
    if network:
        lines.append("(allow network* system-socket)")
        lines.append(NETWORK_SERVICES)
    lines.append(f"(allow network* (local unix-socket {_subpath(private)}))")
    lines.append(f"(allow network-outbound (remote unix-socket {_subpath(private)}))")
    rules = dict.fromkeys((*access.hidden, *access.covered), ("deny", "file-read* file-write*"))
    rules |= dict.fromkeys(access.readable, ("allow", "file-read*"))
    rules |= dict.fromkeys((*access.writable, private), ("allow", "file-read* file-write*"))
    rules |= dict.fromkeys((*access.sealed, *access.loose), ("deny", "file-write*"))
    for path in sorted(rules, key=lambda path: path.count("/")):
        action, operations = rules[path]
        lines.append(f"({action} {operations} {_subpath(path)})")
    for path in dict.fromkeys(_folders_around((*access.sealed, *access.loose))):
        lines.append(f"(deny file-write-unlink (literal {_quoted(path)}))")
    return "\n".join(lines) + "\n"


def _folders_around(paths: tuple[str, ...]) -> Iterator[str]:
    """Yield the folders above sealed paths: none can be moved away with what is sealed in it."""
    for path in paths:
        yield from map(str, Path(path).parents)


def _subpath(path: str) -> str:
    return f"(subpath {_quoted(path)})"


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
