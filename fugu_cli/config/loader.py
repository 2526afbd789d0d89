"""Loads files, environment and flags into one `Config`, with messages that name file, line and key."""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fugu_cli.config import (
    ADDING,
    LISTS,
    MANAGED_FILE,
    MODES,
    PATHS,
    ConductorEntry,
    Config,
    SandboxEntry,
    TestsEntry,
    TuiEntry,
    agent_pool,
)
from fugu_cli.config import trust as config_trust
from fugu_cli.config.schema import FORMS, AgentEntry, Money, TimeLimit, TimeoutPhases
from fugu_cli.errors import ConfigError
from fugu_cli.extensions import hook_settings as hooks
from fugu_cli.extensions import instruction_files, mcp_settings
from fugu_cli.extensions.instruction_files import standing_instructions
from fugu_cli.extensions.mcp_settings import DeclaredServers
from fugu_cli.extensions.repository_code import TrustedCode
from fugu_cli.extensions.skill_library import SkillLibrary, load_library
from fugu_cli.safety.paths import is_file, is_folder, path_exists
from fugu_cli.safety.programs import use_repositories
from fugu_cli.session.events import Price

if TYPE_CHECKING:
    from fugu_cli.config.managed import ManagedSettings
    from fugu_cli.extensions.plugins import Plugin

HARMLESS = frozenset(
    {"ask", "deny", "opt_out", "deny_agents", "verify_answers", "seed", "test_timeout"}
)
"""Keys an untrusted repository may set: they take rights away or cost nothing."""
LOWERED = ("max_turns", "max_budget_usd", "time_limit", "steps_per_turn")
"""Keys an untrusted repository may only lower."""


@dataclass(frozen=True)
class ConfigLayer:
    """One source of settings. Only the keys in `config.model_fields_set` come from it."""

    source: str
    config: Config


def merge_layers(layers: Sequence[ConfigLayer]) -> Config:
    """Return the layers laid over one another, the last on top."""
    values: dict[str, object] = {}
    for layer in layers:
        for key in layer.config.model_fields_set:
            value = getattr(layer.config, key)
            values[key] = _merge(values.get(key), value) if key in ADDING else value
    return Config().model_copy(update=values)


def _merge(before: object, value: object) -> object:
    """Merge a value over another. Lists and denials are joined; tables of limits replace only the
    limits that they set.
    """
    if isinstance(value, tuple):
        items = [*before, *value] if isinstance(before, tuple) else list(value)
        return tuple(dict.fromkeys(items))
    if isinstance(value, dict):
        merged = dict(before) if isinstance(before, dict) else {}
        for key, names in value.items():
            merged[key] = tuple(dict.fromkeys([*merged.get(key, ()), *names]))
        return merged
    if isinstance(before, TestsEntry) and isinstance(value, TestsEntry):
        update = value.model_dump(exclude_unset=True)
        return before.model_copy(update=update | {"until": (*before.until, *value.until)})
    if isinstance(before, Money | TimeLimit):
        update = {"request": value}
        if isinstance(value, Money | TimeLimit):
            update = value.model_dump(exclude_unset=True)
        return before.model_copy(update=update)
    if isinstance(before, float) and isinstance(value, Money | TimeLimit):
        if "request" in value.model_fields_set:
            return value
        return value.model_copy(update={"request": before})
    return value


def narrow_layer(layer: ConfigLayer, below: Config) -> tuple[ConfigLayer, tuple[str, ...]]:
    """Return what an untrusted repository's file may set, and the keys that were left out."""
    kept, ignored = {}, []
    for key in sorted(layer.config.model_fields_set):
        value = getattr(layer.config, key)
        if key in HARMLESS or _is_lowered(key, value, getattr(below, key)):
            kept[key] = value
        elif key in (*LOWERED, "permission_mode"):
            ignored.append(f"{key} (it may only be lowered)")
        else:
            ignored.append(key)
    return ConfigLayer(layer.source, Config().model_copy(update=kept)), tuple(ignored)


def _is_lowered(key: str, value: float | str, before: float | str | None) -> bool:
    """Return whether the key may be lowered and its value is not above that before."""
    if key == "permission_mode":
        return MODES.index(value) <= MODES.index(before)
    if key not in LOWERED:
        return False
    if key not in ("max_budget_usd", "time_limit"):
        return value <= before  # type: ignore[operator]
    limits_before = _limits(before)
    for name, limit in _limits(value).items():
        # The default wait depends on what servers say, so only a wait of 0 is surely not above it.
        unset = 0.0 if name == "wait" else math.inf
        if limit > limits_before.get(name, unset):
            return False
    return True


def _limits(value: object) -> dict[str, float]:
    """Return the limits of a table by their names, or a single number as that of a request."""
    if isinstance(value, Money | TimeLimit):
        return {
            name: limit
            for name, limit in value.model_dump(exclude_unset=True).items()
            if limit is not None
        }
    return {} if value is None else {"request": float(str(value))}


NAME = ".fugurc"
PREFIX = "FUGU_"
POOL = "FUGU_AGENTS"
"""The one key that the environment cannot hold."""
TABLES = (
    "sandbox",
    "conductor",
    "deny_agents",
    "max_budget_usd",
    "time_limit",
    "tests",
    "tui",
    "keys",
    "lsp",
)
TABLE_KEYS: Mapping[str, type[BaseModel]] = {
    "sandbox": SandboxEntry,
    "conductor": ConductorEntry,
    "max_budget_usd": Money,
    "time_limit": TimeLimit,
    "tests": TestsEntry,
    "tui": TuiEntry,
}
WORDS = {"sandbox": "mode", "conductor": "agent"}
"""Tables that may be given as a single word, with the key that it sets."""
HELP = "`fugu help config` lists every key"

Setting = str | int | float | bool | Sequence[str] | Mapping[str, object]
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class LoadedConfig:
    """The configuration and its sources.

    `notes` are sentences for people; `trust_notes` are those about trust. `ignored` are files and
    folders that do not count, at least in part, until the user trusts this folder.
    """

    config: Config
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    root: Path
    trusted: bool
    servers: DeclaredServers = field(default_factory=DeclaredServers)
    """The MCP servers that count here, and what is wrong with others."""
    hooks: hooks.DeclaredHooks = field(default_factory=hooks.DeclaredHooks)
    """The hooks that count here, and what is wrong with others."""
    library: SkillLibrary = field(default_factory=SkillLibrary)
    """The skills, custom commands and subagents that count here, and what is wrong with others."""
    below: tuple[Path, ...] = ()
    """Instructions of folders below the root that count, the nearest last."""
    vouched: Callable[[Path], bool] = field(default=lambda _: False)
    """Return whether an instruction file is unchanged since the user trusted it."""
    trust_data: Path = Path()
    """The folder that records trust: the user's data, whatever `data_dir` a repository names."""
    ignored: tuple[Path, ...] = ()
    trust_notes: tuple[str, ...] = ()
    answer_schema: str = ""
    """The JSON schema, as text, that answers must follow."""
    only_reads: bool = False
    """The session answers a command of fugu's and has the tools that read files."""
    from_folder: tuple[str, ...] = ()
    """Rules of `allow` that the folder's own configuration brings: they open no file that others
    run.
    """
    ignored_keys: tuple[str, ...] = ()
    """Keys of the folder's own configuration that do not count before the user trusts it."""
    managed: ManagedSettings | None = None
    """The administrator's limits, by which `config` is narrowed already."""
    online_servers: tuple[str, ...] = ()
    """Names of the repository's MCP servers that the user's own settings let reach the network."""
    code: TrustedCode = field(default_factory=lambda: TrustedCode({}))
    """Tells whether code that the repository's servers and hooks run is as the user trusted it."""
    plugins: tuple[Plugin, ...] = ()
    """The user's plugins. What they bring stands in `servers`, `hooks` and `library`."""
    plugin_notes: tuple[str, ...] = ()
    """A sentence for each plugin that is not used; they stand in `notes`, too."""
    appended: str = ""
    """Standing instructions that were given with the command line: they stand behind those of
    files.
    """

    def __post_init__(self) -> None:
        use_repositories(self, self.root, *self.config.add_dirs)


def load_config(
    folder: Path,
    environ: Mapping[str, str],
    flags: Mapping[str, Setting] | None = None,
    *,
    trust: bool = False,
    managed_file: Path = MANAGED_FILE,
) -> LoadedConfig:
    """Load the configuration for a run in `folder`. `trust` trusts the folder for this run.

    Raises ConfigError for unreadable or invalid settings. Tests name another `managed_file`.
    """
    managed = _managed_settings(managed_file)
    root, home = repository(folder), _home()
    user = _file_layer(home / NAME)
    environment = from_environment(environ, folder)
    flag_layer = from_settings(flags or {}, "the command line", folder)
    users_own = merge_layers([layer for layer in (user, environment, flag_layer) if layer])
    data = users_own.data
    trusted = trust or config_trust.is_trusted(data, root)
    own = _file_layer(root / NAME) if root != home.resolve() else None
    notes = [] if trusted else _changed(data, root)
    ignored_files: list[Path] = []
    ignored: tuple[str, ...] = ()
    if own is not None and not trusted:
        own, ignored = narrow_layer(own, user.config if user else Config())
        if ignored:
            ignored_files.append(root / NAME)
            notes.append(
                f"{own.source}: ignored until you run `fugu trust` here: {', '.join(ignored)}"
            )
    config = merge_layers([layer for layer in (user, own, environment, flag_layer) if layer])
    config = agent_pool.without_former_agents(config)
    notes += agent_pool.former_settings(config)
    files = tuple(Path(layer.source) for layer in (user, own) if layer)
    from_folder = own.config.allow if own is not None else ()
    if managed is not None:
        from fugu_cli.config.managed import narrowed

        config, taken_away = narrowed(config, managed, environ)
        notes += taken_away
    if missing := [str(path) for path in config.add_dirs if not is_folder(path)]:
        raise ConfigError(
            f"add_dirs: {', '.join(missing)}: there is no such folder",
            hint="name folders that are there",
        )
    if config.bare:
        return LoadedConfig(
            config,
            files,
            tuple(notes),
            root,
            trusted,
            trust_data=data,
            ignored=tuple(ignored_files),
            from_folder=from_folder,
            ignored_keys=ignored,
            managed=managed,
        )
    own_servers = None if root == home.resolve() else root / mcp_settings.MCP_FILE
    servers = mcp_settings.read_servers(
        home / mcp_settings.MCP_FILE, own_servers, trusted=trusted, environ=environ
    )
    hook_settings = hooks.read_hooks(
        home, None if root == home.resolve() else root, trusted=trusted
    )

    def trusts(path: Path) -> bool:
        if path == root or not trusted:
            return trusted
        return trust or config_trust.is_trusted(data, path)

    plugins, plugin_notes = _plugins(data, environ, managed)
    if plugins:
        from fugu_cli.extensions.plugins import joined_hooks, joined_servers

        servers = joined_servers(servers, plugins)
        hook_settings = joined_hooks(hook_settings, plugins)
    folders = instruction_files.library_folders(folder, root, trusts)
    library = load_library((*folders, *(plugin.files for plugin in plugins)))
    is_unchanged = config_trust.unchanged_since_trust(data, root)

    def counts(file: Path) -> bool:
        if trust or not trusted:
            return trust
        return is_unchanged(file) or config_trust.is_trusted(data, file.parent)

    instructions = instruction_files.trusted_instructions(folder, root, counts)
    instructions += instruction_files.files_in(
        path for path in config.add_dirs if trust or config_trust.is_trusted(data, path)
    )
    untrusted = instruction_files.untrusted_instructions(folder, root, counts)
    memory_file = root / instruction_files.MEMORY_FILE
    if root != home.resolve() and is_file(memory_file) and not counts(memory_file):
        untrusted = (*untrusted, memory_file)
    if untrusted:
        names = ", ".join(map(str, untrusted))
        notes.append(f"{names}: ignored until you run `fugu trust` here")
    trust_notes = tuple(notes)
    ignored_files = [
        *untrusted,
        *ignored_files,
        *servers.untrusted,
        *hook_settings.untrusted,
        *library.untrusted,
    ]
    notes += [
        *standing_instructions(root if trusted else None, instructions, counts).notes,
        *plugin_notes,
        *instruction_files.unread_notes(root),
        *misspelled_variables(environ),
    ]
    return LoadedConfig(
        config,
        files,
        tuple(notes),
        root,
        trusted,
        servers,
        hook_settings,
        library,
        instructions,
        counts,
        data,
        tuple(dict.fromkeys(ignored_files)),
        trust_notes,
        from_folder=from_folder,
        ignored_keys=ignored,
        managed=managed,
        online_servers=users_own.sandbox.mcp_network if managed is None or managed.network else (),
        code=config_trust.trusted_code(data, root, for_one_run=trust),
        plugins=tuple(plugins),
        plugin_notes=plugin_notes,
    )


def _plugins(
    data: Path, environ: Mapping[str, str], managed: ManagedSettings | None
) -> tuple[Sequence[Plugin], tuple[str, ...]]:
    """Return the user's plugins, and a sentence for each that is not used."""
    if not path_exists(data / "plugins"):
        return (), ()
    from fugu_cli.extensions.plugin_store import load_plugins

    refusal = managed.plugin_refusal if managed is not None else lambda _: ""
    return load_plugins(data, environ, refusal)


def check_managed_settings() -> None:
    """Raise ConfigError where the administrator's settings cannot be read or understood."""
    _managed_settings(MANAGED_FILE)


def _managed_settings(path: Path) -> ManagedSettings | None:
    try:
        path.lstat()
    except FileNotFoundError:
        return None
    except OSError:  # it may be there: reading it says why it cannot be read
        pass
    from fugu_cli.config.managed import read_managed

    return read_managed(path)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise ConfigError(
            "there is no home folder: HOME is not set, and the system knows none for this user",
            hint="set HOME to a folder that can be written",
        ) from error


def _changed(data: Path, root: Path) -> list[str]:
    names = ", ".join(config_trust.changed_files(data, root))
    return (
        [f"{root} is not trusted any more: {names} changed since; look at it, then `fugu trust`"]
        if names
        else []
    )


def repository(folder: Path) -> Path:
    """Return the root of the repository that holds `folder`, or `folder` itself."""
    folder = folder.resolve()
    for path in (folder, *folder.parents):
        if path_exists(path / ".git"):
            return path
    return folder


def _file_layer(path: Path) -> ConfigLayer | None:
    try:
        if path.exists() and not path.is_file():
            raise OSError(0, "it is not a file")
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text (byte {error.start})", hint="save it as UTF-8"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", hint="check the file's permissions"
        ) from error
    return parse_layer(text, path)


def parse_layer(text: str, path: Path) -> ConfigLayer:
    """Parse a file's text into a layer. Raises ConfigError with file, line and key."""
    try:
        values = tomllib.loads(text)
        json_text = json.dumps(values, default=str)
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deep", hint=HELP) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path} is not valid TOML: {str(error)[:1].lower() + str(error)[1:]}",
            hint="`fugu help config` shows one",
        ) from error
    lines = key_lines(text)
    try:
        config = Config.model_validate_json(json_text, strict=True)
    except ValidationError as error:
        first = _worst(error)
        line = _line(lines, (*first["loc"], first.get("ctx", {}).get("index", "")))
        raise _describe_fault(first, f"{path}, line {line}" if line else str(path)) from error
    return ConfigLayer(str(path), _resolved(config, path.parent))


def from_environment(environ: Mapping[str, str], folder: Path) -> ConfigLayer | None:
    """Return the layer of variables like `FUGU_MAX_TURNS=3`. Lists are separated by commas, or
    written as in TOML.
    """
    values: dict[str, Setting] = {}
    for key in Config.model_fields:
        variable = PREFIX + key.upper()
        value = environ.get(variable, "")
        if not value or variable == POOL:
            continue
        if key in LISTS:
            values[key] = _parse_list_value(key, value)
        elif key in TABLES:
            values[key] = _parse_table_value(key, value)
        else:
            values[key] = value
    return from_settings(values, "the environment", folder) if values else None


def from_settings(values: Mapping[str, Setting], source: str, folder: Path) -> ConfigLayer | None:
    """Return the layer of values; text like "3" or "true" is converted. None without values."""
    if not values:
        return None
    try:
        config = Config.model_validate(
            {key: value for key, value in values.items() if value is not None}
        )
    except ValidationError as error:
        first = _worst(error)
        key = str(first["loc"][0])
        spot = PREFIX + key.upper() if source == "the environment" else "--" + key.replace("_", "-")
        raise _describe_fault(first, f"{source} ({spot})") from error
    return ConfigLayer(source, _resolved(config, folder))


def misspelled_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each FUGU_ variable whose name is nearly a key, since such a typing
    mistake would not be noticed.
    """
    variables = [PREFIX + key.upper() for key in Config.model_fields]
    notes = []
    if environ.get(POOL):
        notes.append(
            f"the environment's {POOL} was ignored: agents are entries of .fugurc (`fugu help "
            f"pool`)"
        )
    for name in sorted(
        name for name in environ if name.startswith(PREFIX) and name not in variables
    ):
        if similar := difflib.get_close_matches(name, variables, n=1, cutoff=0.85):
            notes.append(
                f"the environment's {name} is not a setting and was ignored; did you mean "
                f"{similar[0]}?"
            )
    return tuple(notes)


def _parse_list_value(key: str, value: str) -> list[str]:
    if value.lstrip().startswith("["):
        try:
            items = tomllib.loads(f"x = {value}")["x"]
            return [str(item) for item in items]
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"the environment ({PREFIX}{key.upper()}) holds a list that is not valid TOML: "
                f"{value}"
            ) from error
    return [part.strip() for part in re.split(r",(?![^()]*\))", value) if part.strip()]


def _parse_table_value(key: str, value: str) -> dict[str, object] | str:
    """Parse a table as in TOML, or a single word that stands for one."""
    if not value.lstrip().startswith("{"):
        return {WORDS[key]: value} if key in WORDS else value
    try:
        table: dict[str, object] = tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"the environment ({PREFIX}{key.upper()}) holds a table that is not valid TOML: {value}"
        ) from error
    return table


def _resolved(config: Config, base: Path) -> Config:
    """Make paths absolute: `~` is the home, others are relative to `base`. A backbone may be a hub
    id.
    """
    paths = {key: getattr(config, key) for key in PATHS if getattr(config, key) is not None}
    update: dict[str, object] = {key: base / Path(path).expanduser() for key, path in paths.items()}
    if config.backbone is not None and config.backbone.startswith(("~", "./", "../")):
        update["backbone"] = str(base / Path(config.backbone).expanduser())
    if config.add_dirs:
        update["add_dirs"] = tuple((base / path.expanduser()).resolve() for path in config.add_dirs)
    return config.model_copy(update=update)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line numbers, from 1, of tables and keys of a TOML file: ("agents", 1, "name") ->
    12.
    """
    lines: dict[KeyPath, int] = {}
    counts: dict[str, int] = {}
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if match := re.match(r"\s*\[\[\s*([\w.\"'-]+)\s*\]\]", line):
            name = match.group(1).strip("\"'")
            counts[name] = counts.get(name, -1) + 1
            table = (name, counts[name])
            lines.setdefault(table, number)
        elif match := re.match(r"\s*\[\s*([\w.\"'-]+)\s*\]", line):
            parts = [part.strip("\"'") for part in match.group(1).split(".")]
            table = (parts[0], counts[parts[0]], *parts[1:]) if parts[0] in counts else tuple(parts)
            lines.setdefault(table, number)
        elif match := re.match(r"\s*([\w\"'-]+)\s*(?:\.|=)", line):
            lines.setdefault((*table, match.group(1).strip("\"'")), number)
    return lines


def _line(lines: Mapping[KeyPath, int], spot: KeyPath) -> int | None:
    for end in range(len(spot), 0, -1):
        if spot[:end] in lines:
            return lines[spot[:end]]
    return None


def _worst(error: ValidationError) -> ErrorDetails:
    """Return the fault to report. An unknown key comes before a missing one, since it is often the
    same, mistyped.
    """
    return min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")


def _describe_fault(error: ErrorDetails, where: str) -> ConfigError:
    """Describe one fault: its place and key, the reason, and a similar key if there is one."""
    path = tuple(part for part in error["loc"] if part not in FORMS)
    if not path:  # nothing was read at all
        return ConfigError(f"{where} is nested too deep", hint=HELP)
    key, fault = str(path[-1]), error["type"]
    if key in {"api_key", "key", "apikey", "token"} and fault == "extra_forbidden":
        advice = (
            'put the key into an environment variable and name that: api_key_env = "OPENAI_API_KEY"'
        )
        return ConfigError(
            f"{where}: {key!r} is refused: a key does not belong into a file", hint=advice
        )
    if fault == "extra_forbidden":
        similar = difflib.get_close_matches(key, _keys(path), n=1)
        return ConfigError(
            f"{where}: unknown key {key!r}",
            hint=f"did you mean {similar[0]!r}? {HELP}" if similar else HELP,
        )
    name = ".".join(str(part) for part in path if not isinstance(part, int))
    if fault == "missing":
        return ConfigError(
            f"{where}: an agent needs {key!r}", hint="`fugu help pool` shows an entry"
        )
    message = (
        error["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    )
    hidden = key in {"api_key_env", "agents", "headers"} or isinstance(error["input"], dict)
    shown = "" if hidden else f" = {_shown(error['input'])}"
    similar = difflib.get_close_matches(str(error["input"]), re.findall(r"'(\w+)'", message), n=1)
    page = "`fugu help permissions` shows rules" if key in {"allow", "ask", "deny"} else HELP
    return ConfigError(
        f"{where}: {name}{shown}: {message}",
        hint=f"did you mean {similar[0]!r}?" if similar else page,
    )


_PASSWORD = re.compile(r"""(?:(?<=://)[^\s/@"']*|[^\s/@"':]+:[^\s/@"']+)@""")


def _shown(value: object) -> str:
    text = _PASSWORD.sub("***@", json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= 60 else text[:57] + "..."


def _keys(spot: KeyPath) -> list[str]:
    model: type[BaseModel] = TABLE_KEYS.get(str(spot[0]), Config) if len(spot) > 1 else Config
    if len(spot) > 2 and spot[0] == "agents":
        model = AgentEntry
        if "price" in spot[:-1]:
            model = Price
        elif "timeout" in spot[:-1]:
            model = TimeoutPhases
    return list(model.model_fields)
