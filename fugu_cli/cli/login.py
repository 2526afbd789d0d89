"""`fugu login`: keeps a provider's key, forgets one, or says which are set."""

from __future__ import annotations

import difflib
import getpass
import os
import sys

from fugu_cli.cli.current_folder import print_clean, say
from fugu_cli.config import kept_keys
from fugu_cli.config.agent_pool import SERVICES, KnownService
from fugu_cli.errors import UsageError
from fugu_cli.formatting import aligned_rows

LONGEST = 8192
"""Characters of a key: what is longer is no key."""


def login(provider: str | None, remove: bool) -> int:
    """Ask for the key of `provider` and keep it; with `remove` forget it; without a provider list
    them all.

    Raises UsageError for a provider nobody knows and for what is no key, StorageError where it
    cannot be kept."""
    if provider is None:
        if remove:
            raise UsageError("--remove needs a provider", hint="`fugu login` lists the kept keys")
        return _list_providers()
    service = _find_service(provider)
    if remove:
        if kept_keys.remove_key(service.variable):
            print_clean(f"the key of {service.name} is forgotten")
        else:
            print_clean(f"no key of {service.name} was kept")
        return 0
    if sys.stdin is not None and sys.stdin.isatty():
        try:
            key = getpass.getpass(f"{service.variable} (it is not shown): ")
        except EOFError:
            key = ""
    else:
        key = _read_piped()
    _, where = keep_checked(service.name, key.removesuffix("\n").removesuffix("\r"))
    print_clean(f"{service.name} key saved in {where}; `fugu pool` shows its agents")
    if os.environ.get(service.variable):
        say(
            f"{service.variable} is set in the environment: that key is used, not the one that "
            f"was kept"
        )
    return 0


def keep_checked(provider: str, key: str) -> tuple[str, str]:
    """Keep a key. Returns its variable and where it is kept. Raises UsageError for a provider
    nobody knows and for what is no key, StorageError where it cannot be kept."""
    service = _find_service(provider)
    if not key:
        raise UsageError(
            "there is no key", hint=f"type it, or pipe it: fugu login {service.name} < FILE"
        )
    if len(key) > LONGEST:
        raise UsageError(f"a key has at most {LONGEST:,} characters", hint="give the key alone")
    if any(char.isspace() for char in key):
        raise UsageError(
            "the key holds a space or the end of a line",
            hint="give the key alone; nothing was kept",
        )
    if not (key.isascii() and key.isprintable()):
        raise UsageError(
            "the key holds a character that no key has", hint="copy it again; nothing was kept"
        )
    return service.variable, kept_keys.keep_key(service.variable, key)


def _list_providers() -> int:
    kept, note = kept_keys.read_kept_keys()
    if note:
        say(note)
    rows = []
    for service in SERVICES:
        stored = ""
        if service.variable in kept:
            stored = "in the keyring" if kept[service.variable] is None else "kept"
        state = "in the environment" if os.environ.get(service.variable) else stored or "-"
        rows.append((service.name, service.variable, state))
    for line in aligned_rows(rows):
        print_clean(line)
    print_clean("`fugu login PROVIDER` keeps a key, `fugu login --remove PROVIDER` forgets it")
    return 0


def _find_service(name: str) -> KnownService:
    match = next(
        (
            service
            for service in SERVICES
            if name.lower() in (service.name, service.variable.lower())
        ),
        None,
    )
    if match is None:
        names = [service.name for service in SERVICES]
        near = difflib.get_close_matches(name.lower(), names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
        raise UsageError(f"there is no provider {name!r}", hint=hint)
    return match


def _read_piped() -> str:
    if sys.stdin is None:
        return ""
    try:
        return sys.stdin.buffer.read(LONGEST + 3).decode("ascii", "replace")
    except OSError as error:
        raise UsageError(
            f"standard input cannot be read: {error.strerror}", hint="pipe the key"
        ) from error
