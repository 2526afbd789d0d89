"""`fugu login`: keeps a provider's key, forgets one, or says which are set."""

from __future__ import annotations

import asyncio
import difflib
import getpass
import os
import sys
from typing import TYPE_CHECKING, assert_never

from fugu_cli.cli.current_folder import current_path, print_clean, say
from fugu_cli.config import kept_keys
from fugu_cli.config.agent_pool import SERVICES, KnownService
from fugu_cli.config.loader import repository
from fugu_cli.errors import InfrastructureError, UsageError
from fugu_cli.formatting import aligned_rows
from fugu_cli.safety.programs import add_repository

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import KeyTrial

LONGEST = 8192
"""Characters of a key: what is longer is no key."""
MOST_TRIES = 5
"""Keys that are asked for after one was refused."""


def login(provider: str | None, *, remove: bool = False, check: bool = True) -> int:
    """Ask for the key of `provider`, try it and keep it; with `remove` forget it; without a provider
    list them all. `check`: a key that could not be tried is kept only if the user says so.

    Raises UsageError for an unknown provider and for a key that is none or is refused,
    InfrastructureError where it could not be tried, StorageError where it cannot be kept.
    """
    add_repository(repository(current_path()))  # what the keyring starts is not found there
    if provider is None:
        if remove:
            raise UsageError("--remove needs a provider", hint="`fugu login` lists the kept keys")
        return _list_providers()
    if remove and kept_keys.SERVER_VARIABLE.fullmatch(provider):
        forgotten = kept_keys.remove_key(provider)
        print_clean(f"{provider} {'is forgotten' if forgotten else 'was not kept'}")
        return 0
    service = find_service(provider)
    if remove:
        if kept_keys.remove_key(service.variable):
            print_clean(f"the key of {service.name} is forgotten")
        else:
            print_clean(f"no key of {service.name} was kept")
        return 0
    if sys.stdin is not None and sys.stdin.isatty():
        key = _ask_for_key(service, check=check)
    else:
        key = read_piped_key()
        check_form(key, service.name)
        if check:
            _require_accepted(service, key)
    kept_in = kept_keys.keep_key(service.variable, key)
    print_clean(f"{service.name} key saved in {kept_in}; `fugu pool` shows its agents")
    if os.environ.get(service.variable):
        say(
            f"{service.variable} is set in the environment: that key is used, not the one that "
            f"was kept"
        )
    return 0


def _ask_for_key(service: KnownService, *, check: bool) -> str:
    """Ask until a key is accepted, or kept untried. Raises UsageError for a key that is none."""
    from fugu_cli.app.session_protocol import KeyAccepted, KeyRefused, KeyUntested

    for _ in range(MOST_TRIES):
        key = ask_secret(f"{service.variable} (it is not shown): ")
        check_form(key, service.name)
        if not check:
            return key
        match _try_key(service, key):
            case KeyAccepted() as accepted:
                print_clean(str(accepted))
                return key
            case KeyRefused(reason):
                say(f"{reason}; nothing was kept: try another key, or enter leaves")
            case KeyUntested(reason):
                say(f"the key could not be tried: {reason}")
                if ask_line("Keep it untried? y or n: ").lower() in ("y", "yes"):
                    return key
                raise UsageError("the key was not kept")
            case unknown:
                assert_never(unknown)
    raise UsageError(f"{MOST_TRIES} keys were refused", hint="nothing was kept")


def _require_accepted(service: KnownService, key: str) -> None:
    """Raise UsageError for a refused key, InfrastructureError for one that could not be tried."""
    from fugu_cli.app.session_protocol import KeyAccepted, KeyRefused, KeyUntested

    match _try_key(service, key):
        case KeyAccepted() as accepted:
            print_clean(str(accepted))
        case KeyRefused(reason):
            raise UsageError(reason, hint="nothing was kept")
        case KeyUntested(reason):
            raise InfrastructureError(
                f"the key could not be tried: {reason}",
                hint="nothing was kept; --no-check keeps a key untried",
            )
        case unknown:
            assert_never(unknown)


def _try_key(service: KnownService, key: str) -> KeyTrial:
    from fugu_cli.app.key_trial import try_key

    return asyncio.run(try_key(service, key, os.environ))


def ask_secret(prompt: str) -> str:
    """Return the line that is typed unseen, "" at the end of the input."""
    try:
        return getpass.getpass(prompt)
    except EOFError:
        return ""


def ask_line(prompt: str) -> str:
    """Return the line that is typed, "" at the end of the input."""
    try:
        return input(prompt).strip()
    except EOFError:
        return ""


def check_form(key: str, provider: str) -> None:
    """Raise UsageError for a text that is no key."""
    if not key:
        raise UsageError(
            "there is no key", hint=f"type it, or pipe it: fugu login {provider} < FILE"
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
    for name in kept:
        if kept_keys.SERVER_VARIABLE.fullmatch(name):
            rows.append(("own address", name, "kept"))
    for line in aligned_rows(rows):
        print_clean(line)
    print_clean("`fugu login PROVIDER` keeps a key, `fugu login --remove PROVIDER` forgets it")
    print_clean("`fugu login --base-url URL` adds a model of your own server, as of Ollama")
    return 0


def find_service(name: str) -> KnownService:
    """Return the provider of this name, or of this key variable. Raises UsageError."""
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


def read_piped_key() -> str:
    """Return the key that is piped, without the end of its line. Raises UsageError."""
    if sys.stdin is None:
        return ""
    try:
        text = sys.stdin.buffer.read(LONGEST + 3).decode("ascii", "replace")
        return text.removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise UsageError(
            f"standard input cannot be read: {error.strerror}", hint="pipe the key"
        ) from error
