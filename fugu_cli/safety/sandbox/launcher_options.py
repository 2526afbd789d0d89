"""The launcher's arguments. Imports nothing: every command waits for it."""

from __future__ import annotations

SWITCHES = frozenset({"--inner", "--namespaces", "--no-network", "--landlock"})


class LauncherOptions:
    """The arguments, as attributes; every `--x value` may be given more than once."""

    def __init__(self, arguments: list[str]) -> None:
        self.switches: set[str] = set()
        self.values: dict[str, list[str]] = {}
        rest = list(arguments)
        while rest:
            name = rest.pop(0)
            if name == "--":
                break
            if name in SWITCHES:
                self.switches.add(name)
            else:
                self.values.setdefault(name, []).append(rest.pop(0))
        self.command = rest

    def all(self, name: str) -> list[str]:
        return self.values.get(name, [])

    def one(self, name: str) -> str:
        return self.values[name][-1]
