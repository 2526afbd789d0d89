"""Keys of providers that `fugu login` keeps, and logins of `fugu mcp login`: in the system's
keyring if Python's `keyring` works, else in a file.

Keys are put into the process's environment, under the names that providers give them. Like all keys
of the environment they are then masked in every text and taken out of the environment of agents'
commands. Commands do not see the file's folder. `data_dir` does not move it, since a repository can
set that.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from fugu_cli.errors import StorageError
from fugu_cli.safety.programs import libraries_search_outside
from fugu_cli.system import atomic_files
from fugu_cli.system.bounded_json import parse_json

LOCK_SECONDS = 30.0
"""Seconds that another process may take to change the file; a keyring may ask its owner
meanwhile.
"""
SERVICE = "fugu"
"""fugu's name in the keyring."""
MCP_LOGIN = "mcp "
"""The prefix of logins at MCP servers. No variable name contains a space."""
SERVER_VARIABLE = re.compile(r"SERVER_[A-Z0-9_]+_API_KEY")
"""Variables of keys for servers at addresses of the user's own."""
RECOMMENDED = 1
"""From this priority on `keyring` recommends a backend; it gives less to one that does not work, or
hides nothing.
"""

Kept = dict[str, str | None]
"""Variable, or name of a login -> key, or login; None where the keyring has it."""


def server_variable(host: str) -> str:
    """Return the variable for the key of a server at an address of the user's own."""
    return f"SERVER_{re.sub(r'[^A-Z0-9]+', '_', host.upper()).strip('_')}_API_KEY"


def keys_folder() -> Path:
    """Return the folder of the key file and its lock."""
    from platformdirs import user_data_path

    return user_data_path("fugu") / "keys"


def keys_file() -> Path:
    """Return the file of the stored keys."""
    return keys_folder() / "credentials.json"


def add_kept_keys(environ: MutableMapping[str, str]) -> tuple[str, ...]:
    """Set the kept keys that `environ` does not have. Returns sentences about
    what is wrong.
    """
    from fugu_cli.config.agent_pool import SERVICES

    try:
        kept, note = read_kept_keys()
    except StorageError as error:
        return (f"{error}; {error.hint}",)
    notes = [note] if note else []
    variables = [service.variable for service in SERVICES]
    variables += [name for name in kept if SERVER_VARIABLE.fullmatch(name)]
    for variable in variables:
        if variable not in kept or environ.get(variable):
            continue
        key = kept[variable] or _from_keyring(variable)
        if key:
            environ[variable] = key
        else:
            notes.append(
                f"{variable} cannot be read from the keyring: unlock it, or `fugu login` again"
            )
    return tuple(notes)


def read_kept_keys() -> tuple[Kept, str]:
    """Return the stored keys, and a sentence if other users could read the file. Raises
    StorageError for an unusable file.
    """
    path = keys_file()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return {}, ""
    except OSError as error:
        raise _unused(path, error.strerror or "it cannot be opened") from error
    with os.fdopen(descriptor, "rb") as file:
        note = _made_private(path, descriptor)
        try:
            keys = parse_json(file.read())
        except (ValueError, OSError) as error:
            raise _unused(path, "it is not what `fugu login` wrote") from error
    if not isinstance(keys, dict) or not all(
        value is None or isinstance(value, str) for value in keys.values()
    ):
        raise _unused(path, "it is not what `fugu login` wrote")
    return keys, note


def _made_private(path: Path, number: int) -> str:
    """Close the file to other users. Return a sentence if it was open to them. Raises StorageError
    if that fails.
    """
    state = os.fstat(number)
    if not stat.S_ISREG(state.st_mode):
        raise _unused(path, "it is not a file")
    if state.st_uid != os.getuid():
        raise _unused(path, "it belongs to another user")
    if not state.st_mode & 0o077:
        return ""
    try:
        os.fchmod(number, 0o600)
    except OSError as error:
        raise _unused(
            path, f"others may read it, and that cannot be changed ({error.strerror})"
        ) from error
    return (
        f"{path} could be read by others and is closed to them now; replace its keys if others "
        f"use this machine"
    )


def _unused(path: Path, why: str) -> StorageError:
    return StorageError(
        f"the keys in {path} are not used: {why}", hint="remove it, then `fugu login` again"
    )


class StoredLogins:
    """Logins at MCP servers, by the server's address (extensions/mcp_login.py's LoginStore). `hide`
    is called with the tokens of every new login, so that they are masked.
    """

    def __init__(self, hide: Callable[[Mapping[str, str]], None] = lambda _: None) -> None:
        self.hide = hide

    def read(self, address: str) -> str:
        """Return the stored login, "" if there is none. Raises StorageError."""
        name = f"{MCP_LOGIN}{address}"
        kept, _ = read_kept_keys()
        return (kept[name] or _from_keyring(name)) if name in kept else ""

    def keep(self, address: str, text: str) -> str:
        """Keep a key in place of an earlier one, and return where it is kept. Raises StorageError."""
        return keep_key(f"{MCP_LOGIN}{address}", text)

    def remove(self, address: str) -> bool:
        """Forget it; False when none was kept. Raises StorageError."""
        return remove_key(f"{MCP_LOGIN}{address}")


def keep_key(variable: str, key: str) -> str:
    """Keep a key in place of an older one. Returns where. Raises StorageError; what was kept before
    is kept then.
    """
    with _alone():
        kept, _ = read_kept_keys()
        in_keyring = _into_keyring(variable, key)
        _write({**kept, variable: None if in_keyring else key})
    return "the system's keyring" if in_keyring else str(keys_file())


def remove_key(variable: str) -> bool:
    """Forget a key; False when none was kept. Raises StorageError."""
    if variable not in read_kept_keys()[0]:
        return False
    with _alone():
        kept, _ = read_kept_keys()
        if kept.get(variable, "") is None and (ring := _keyring()) is not None:
            try:
                ring.delete_password(SERVICE, variable)
            except ring.errors.PasswordDeleteError:
                pass  # the user has removed it there
            except ring.errors.KeyringError as error:
                raise StorageError(
                    f"the keyring does not give up {variable}", hint="unlock it, then try again"
                ) from error
        _write({name: value for name, value in kept.items() if name != variable})
        return True


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Lock the key file: several sessions may renew logins at the same time. Raises StorageError."""
    from filelock import FileLock, Timeout

    folder = keys_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(folder / "lock", timeout=LOCK_SECONDS, mode=0o600, thread_local=False)
        lock.acquire()
    except Timeout as error:
        raise StorageError(f"another process changes {keys_file()}", hint="try again") from error
    except OSError as error:
        hint = "check space and permissions; nothing was changed"
        raise StorageError(f"cannot write {keys_file()}: {error.strerror}", hint=hint) from error
    try:
        yield
    finally:
        lock.release()


def _write(kept: Mapping[str, str | None]) -> None:
    path = keys_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_files.replacement_file(path, mode=0o600) as draft:
            draft.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        hint = "check space and permissions; nothing was changed"
        raise StorageError(f"cannot write {path}: {error.strerror}", hint=hint) from error


@libraries_search_outside()
def _keyring() -> Any | None:
    """Return Python's `keyring` if it is installed with a recommended backend."""
    try:
        ring: Any = importlib.import_module("keyring")
        importlib.import_module("keyring.errors")
        return ring if ring.get_keyring().priority >= RECOMMENDED else None
    except (
        ImportError,
        AttributeError,
        RuntimeError,
        OSError,
    ):  # also of a backend that its settings name wrongly
        return None


@libraries_search_outside()
def _into_keyring(variable: str, key: str) -> bool:
    """Store a key in the keyring. Return whether the keyring gives it back."""
    ring = _keyring()
    if ring is None:
        return False
    try:
        ring.set_password(SERVICE, variable, key)
        return bool(ring.get_password(SERVICE, variable) == key)
    except ring.errors.KeyringError:
        return False


@libraries_search_outside()
def _from_keyring(variable: str) -> str:
    ring = _keyring()
    if ring is None:
        return ""
    try:
        return str(ring.get_password(SERVICE, variable) or "")
    except ring.errors.KeyringError:
        return ""
