"""Adds to the user's own `.fugurc`, and keeps a copy of a file before it is changed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Array

from fugu_cli.config.agent_pool import detected_keys, detected_pool, entry_name
from fugu_cli.config.loader import NAME, parse_layer
from fugu_cli.errors import ConfigError
from fugu_cli.system.atomic_files import write_atomically


class UserFile:
    """The user's `.fugurc`, which may not exist. Raises ConfigError for one that cannot be read or
    is invalid. Nothing is written before `write`.
    """

    def __init__(self, home: Path) -> None:
        self.path = home / NAME
        self._added_agents: list[dict[str, object]] = []
        try:
            self._old_text = self.path.read_text("utf-8-sig") if self.path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot read {self.path}: {error}", hint="nothing was changed"
            ) from error
        parse_layer(self._old_text, self.path)
        try:
            self.document = tomlkit.parse(self._old_text)
        except TOMLKitError as error:
            raise ConfigError(
                f"{self.path} is not valid TOML: {error}", hint="mend it first; nothing was changed"
            ) from error

    @property
    def agents(self) -> list[dict[str, object]]:
        """The entries of the pool, with those that were added."""
        return [*map(dict, self.document.get("agents", ())), *self._added_agents]

    def add_agent(self, entry: Mapping[str, object]) -> None:
        """Add an entry to the pool. It becomes a table at the end of the file."""
        self._added_agents.append(dict(entry))

    def find_agent(self, base_url: str, model: str) -> dict[str, object] | None:
        """Return the entry for a model at an address."""
        for agent in self.agents:
            if (agent.get("base_url"), agent.get("model")) == (base_url, model):
                return agent
        return None

    def add_server_agent(self, base_url: str, model: str, api: str, key_variable: str) -> str:
        """Add an agent for a model of the user's own server, and return its name."""
        name = entry_name(model)
        used_names = {agent.get("name") for agent in self.agents}
        numbers = itertools.count(2)
        while name in used_names:
            name = f"{entry_name(model)}-{next(numbers)}"
        entry = {
            "name": name,
            "provider": "anthropic" if api == "anthropic" else "openai",
            "model": model,
            "base_url": base_url,
            "api": api if api == "responses" else "",
            "api_key_env": key_variable,
        }
        self.add_agent({key: value for key, value in entry.items() if value})
        return name

    def add_found_agents(self, environ: Mapping[str, str]) -> list[str]:
        """Add the agents that keys bring while the file names none, since entries replace them.
        Return their names.
        """
        if self.agents or not detected_keys(environ):
            return []
        found = detected_pool(environ)
        for entry in found:
            stated = entry.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
            self.add_agent(stated)
        return [entry.name for entry in found]

    def write(self) -> Path | None:
        """Write the file, whole or not at all. Return the copy of the earlier file, if it changed.
        Raises ConfigError for settings that would be invalid, and OSError.
        """
        new_text = self._new_text()
        parse_layer(new_text, self.path)
        if new_text == self._old_text:
            return None
        exists = self.path.exists()
        copy = keep_copy(self.path, self.path.read_bytes()) if self._old_text else None
        write_atomically(self.path.resolve(), new_text.encode(), None if exists else 0o600)
        return copy

    def _new_text(self) -> str:
        """Return the file's text with the added agents."""
        agents = self.document.get("agents")
        if isinstance(agents, Array):  # agents = [{ name = ... }]: there cannot be tables as well
            for agent in self._added_agents:
                agents.append(agent)
            return tomlkit.dumps(self.document)
        text = tomlkit.dumps(self.document)
        for agent in self._added_agents:
            table = tomlkit.dumps({"agents": [agent]})
            text = f"{text.rstrip()}\n\n{table}" if text.strip() else table
        return text


def keep_copy(path: Path, content: bytes) -> Path:
    """Write the old content of a file beside it, under a name that is free. Raises OSError."""
    copy = path.with_name(f"{path.name}.old")
    number = 2
    while copy.exists():
        copy = path.with_name(f"{path.name}.old-{number}")
        number += 1
    write_atomically(copy, content, 0o600)
    return copy
