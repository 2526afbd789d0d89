"""`fugu login --base-url`: adds a model of a server at an address of the user's own to the pool."""

from __future__ import annotations

import asyncio
import difflib
import itertools
import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from urllib.parse import urlsplit

from fugu_cli.app.key_trial import check_address, try_address
from fugu_cli.app.session_protocol import ServerModels, TrialWire
from fugu_cli.cli.current_folder import LOCAL_HOSTS, print_clean, say
from fugu_cli.cli.init import pool_sentence
from fugu_cli.cli.login import MOST_TRIES, ask_line, ask_secret, check_form, read_piped_key
from fugu_cli.config import kept_keys
from fugu_cli.config.user_file import UserFile
from fugu_cli.errors import AgentError, ConfigError, InfrastructureError, UsageError

MOST_SHOWN = 30
"""Models of a server that are listed."""


def login_server(address: str, wire: TrialWire, model: str | None, *, check: bool) -> int:
    """Ask the server at `address` for its models, and add one of them to the user's pool. A key is
    asked for, or piped. Without `check`, or after a yes, the model is added untried.

    Raises UsageError, InfrastructureError for a server that could not be asked, StorageError.
    """
    base_url = check_address(address)
    if not check:
        if model is None:
            raise UsageError("--no-check needs --model", hint="name the model to add")
        key, server = _read_key(base_url), ServerModels(base_url, ())
    else:
        key, server = _ask_server(base_url, wire)
        if server.models:
            print_clean(f"{server.base_url} offers {', '.join(server.models[:MOST_SHOWN])}")
    name = model or _choose_model(server)
    if server.models and name not in server.models:
        near = difflib.get_close_matches(name, server.models, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`--model` takes one of those"
        raise UsageError(f"{server.base_url} offers no model {name!r}", hint=hint)
    for line in add_server_agent(server.base_url, name, wire, key, os.environ):
        print_clean(line)
    return 0


def add_server_agent(
    base_url: str, model: str, wire: TrialWire, key: str, environ: MutableMapping[str, str]
) -> list[str]:
    """Keep the key of a server, set it in `environ`, add an agent for one of its models to the
    user's pool, and return sentences about it. An agent that the pool has gets the new key. Raises
    UsageError, StorageError.
    """
    user_file = UserFile(Path.home())
    agent = user_file.find_agent(base_url, model)
    if agent is not None:
        return [_replace_key(agent, key, environ)]
    variable = _free_variable(user_file, base_url) if key else ""
    had_agents = bool(user_file.agents)
    found_agents = user_file.add_found_agents(environ)
    name = user_file.add_server_agent(base_url, model, wire, variable)
    kept_in = ""
    if key:
        kept_in = kept_keys.keep_key(variable, key)
        environ[variable] = key
    try:
        copy = user_file.write()
    except OSError as error:
        raise ConfigError(
            f"cannot write {user_file.path}: {error.strerror}", hint="make it writable"
        ) from error
    lines = [f"agent {name} was added to {user_file.path}"]
    if key:
        lines.append(f"its key is saved as {variable} in {kept_in}")
    if copy is not None:
        lines.append(f"the earlier file is kept as {copy}")
    url = urlsplit(base_url)
    if key and url.scheme == "http" and url.hostname not in LOCAL_HOSTS:
        lines.append(f"the key goes to {url.netloc} unencrypted: its address begins with http://")
    if not had_agents:
        lines.append(pool_sentence(found_agents))
    return lines


def _replace_key(agent: Mapping[str, object], key: str, environ: MutableMapping[str, str]) -> str:
    """Keep a new key for an agent of the pool, and return a sentence about it. Raises UsageError if
    no key was given or the agent's key is not one that fugu keeps, and StorageError.
    """
    name, variable = agent.get("name"), str(agent.get("api_key_env", ""))
    if not key or not kept_keys.SERVER_VARIABLE.fullmatch(variable):
        raise UsageError(
            f"~/.fugurc has {agent.get('model')} at {agent.get('base_url')} already, as {name}",
            hint="`fugu pool` shows it",
        )
    kept_in = kept_keys.keep_key(variable, key)
    environ[variable] = key
    return f"the new key of {name} is saved as {variable} in {kept_in}"


def _free_variable(user_file: UserFile, base_url: str) -> str:
    """Return a variable for a server's key that no agent at another address uses."""
    used = {
        agent.get("api_key_env") for agent in user_file.agents if agent.get("base_url") != base_url
    }
    host = urlsplit(base_url).netloc
    variable = kept_keys.server_variable(host)
    numbers = itertools.count(2)
    while variable in used:
        variable = kept_keys.server_variable(f"{host}-{next(numbers)}")
    return variable


def _ask_server(base_url: str, wire: TrialWire) -> tuple[str, ServerModels]:
    """Return the key and the models of a server that answered, or that is kept untried. Raises
    UsageError for a refused key, InfrastructureError for a server that could not be asked.
    """
    for _ in range(MOST_TRIES):
        key = _read_key(base_url)
        try:
            return key, asyncio.run(try_address(base_url, wire, key))
        except AgentError as error:
            if not _has_terminal():
                hint = "nothing was added"
                if error.kind == "refused":
                    raise UsageError(
                        str(error), hint=f"{hint}; pipe a key that is valid"
                    ) from error
                raise InfrastructureError(
                    str(error), hint=f"{hint}; --no-check with --model adds one untried"
                ) from error
            say(str(error))
            if error.kind == "refused":
                continue
            answer = ask_line("Add a model of it untried? y or n: ")
            if answer.lower() not in ("y", "yes"):
                raise UsageError("nothing was added") from error
            return key, ServerModels(base_url, ())
    raise UsageError(f"{MOST_TRIES} keys were refused", hint="nothing was added")


def _read_key(base_url: str) -> str:
    """Return the key that is typed or piped, "" for none. Raises UsageError."""
    if _has_terminal():
        host = urlsplit(base_url).netloc
        key = ask_secret(f"Key of {host} (not shown; enter: it needs none): ")
    else:
        key = read_piped_key()
    if key:
        check_form(key, "your server")
    return key


def _choose_model(server: ServerModels) -> str:
    """Return the model that the user names, or the only one. Raises UsageError for none."""
    if len(server.models) == 1:
        return server.models[0]
    name = ask_line("Model to add: ") if _has_terminal() else ""
    if not name:
        raise UsageError("no model was named", hint="`--model NAME` adds it; nothing was added")
    return name


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
