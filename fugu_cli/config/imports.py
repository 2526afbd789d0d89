"""Reads the user's settings of another agent as fugu's: models, permissions, MCP servers and more.

Writes nothing. A setting that cannot be taken over is named with the reason. A model's key is never
taken from a file.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import parse_qs, urlsplit

from pydantic import ValidationError

from fugu_cli.config.agent_pool import SERVICES, KnownService
from fugu_cli.config.schema import AgentEntry
from fugu_cli.errors import ConfigError
from fugu_cli.safety.paths import expand_home, is_folder, path_exists
from fugu_cli.safety.policy.rule_matching import pattern_fault
from fugu_cli.safety.secret_values import NAMES
from fugu_cli.system.bounded_json import parse_json

Source = Literal["claude-code", "codex", "opencode", "aider"]
SOURCES: tuple[Source, ...] = get_args(Source)
FILES: Mapping[Source, tuple[str, ...]] = {
    "claude-code": (".claude/settings.json", ".claude.json"),
    "codex": (".codex/config.toml",),
    "opencode": (".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"),
    "aider": (".aider.conf.yml",),
}
"""The settings files of each agent, relative to the user's home."""
_CLAUDE_ALIASES = {
    "opus": "strong",
    "opusplan": "strong",
    "sonnet": "middle",
    "haiku": "cheap",
}
"""Claude's short names of models, and the slots of the pool that those models fill."""
_CLAUDE_WINDOW = "[1m]"
"""Stands after a model's name in Claude Code: the longer window is asked for."""
_JSON_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)
_CLAUDE_RULE = re.compile(r"\s*([\w*-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_OPENCODE_VARIABLE = re.compile(r"\{env:(\w+)\}")
_CODEX_SERVER_KEYS = {
    "args",
    "bearer_token_env_var",
    "command",
    "enabled",
    "env",
    "env_http_headers",
    "http_headers",
    "url",
}
_CODEX_MODES = {"untrusted": "ask", "on-request": "edit", "on-failure": "edit"}
"""Codex's approval policies as permission modes. Any other is left out."""
_CLAUDE_MODES = {"default": "ask", "acceptEdits": "edit", "plan": "plan"}
"""Claude Code's permission modes as fugu's. Any other is left out."""

Table = Mapping[str, object]


@dataclass
class ImportedSettings:
    """Settings of another agent that fugu supports as well."""

    files: list[Path] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    """Keys of `.fugurc` with their values."""
    agents: list[dict[str, object]] = field(default_factory=list)
    """Entries of the pool, as they stand in `.fugurc`."""
    servers: dict[str, dict[str, object]] = field(default_factory=dict)
    """MCP servers by name."""
    notes: list[str] = field(default_factory=list)
    """Sentences about settings that hold in fugu without being taken over."""
    left_out: list[str] = field(default_factory=list)
    """Settings that could not be taken over, each with the reason."""

    def add_rule(self, key: str, rule: str, written: str) -> None:
        """Add a rule to the list `key`: `allow`, `ask` or `deny`. `written`: the other agent's rule."""
        if fault := pattern_fault(rule):
            self.left_out.append(f"{key}: {written}: {fault}")
            return
        rules = self.settings.setdefault(key, [])
        assert isinstance(rules, list)
        if rule not in rules:
            rules.append(rule)

    def add_own_agent(self, model: str, base_url: str, **settings: str) -> None:
        """Add an agent for a model at a server of the user's own. It is left out if its entry would
        be invalid or would hold a key.
        """
        agent: dict[str, object] = {
            "name": _agent_name(model),
            "provider": "openai",
            "model": model,
            "base_url": base_url,
        }
        agent |= settings
        if agent in self.agents:
            return
        if agent["name"] in [other["name"] for other in self.agents]:
            self.left_out.append(f"model {model} at {base_url}: there is another of this name")
        elif fault := _entry_fault(agent):
            self.left_out.append(f"model {model}: {fault}")
        else:
            self.agents.append(agent)

    def texts(self, value: object, name: str) -> list[str]:
        """Return the texts in a list. Another value, or another item of the list, is left out."""
        if value is None:
            return []
        texts = _texts(value)
        if not isinstance(value, list):
            self.left_out.append(f"{name}: it is not a list")
        elif len(texts) < len(value):
            self.left_out.append(f"{name}: an item of it is not a text")
        return texts


def importable_sources(home: Path) -> tuple[Source, ...]:
    """Return the agents that have settings in the user's home."""
    return tuple(
        source for source in SOURCES if any(path_exists(home / file) for file in FILES[source])
    )


def read_settings(source: Source, home: Path) -> ImportedSettings:
    """Return the settings of another agent. Raises ConfigError where there are none, or a file
    cannot be read.
    """
    imported = ImportedSettings()
    tables: dict[str, Table] = {}
    for file in FILES[source]:
        path = home / file
        try:
            text = path.read_text("utf-8-sig")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {path}: {error}", hint="nothing was changed") from error
        tables[path.name] = _parse(text, path)
        imported.files.append(path)
    if not tables:
        files = " and ".join(f"~/{name}" for name in FILES[source])
        raise ConfigError(f"there is nothing to read: no {files}", hint="nothing was changed")
    match source:
        case "claude-code":
            _read_claude_code(tables, imported)
        case "codex":
            _read_codex(tables["config.toml"], imported)
        case "opencode":
            for table in tables.values():
                _read_opencode(table, imported)
        case "aider":
            _read_aider(tables[".aider.conf.yml"], imported)
    return imported


def _parse(text: str, path: Path) -> Table:
    try:
        if path.suffix == ".toml":
            table: object = tomllib.loads(text)
        elif path.suffix == ".yml":
            import yaml

            table = yaml.safe_load(text) or {}
        else:
            without_comments = _JSON_COMMENT.sub(lambda match: match[1] or "", text)
            plain = _TRAILING_COMMA.sub(lambda match: match[1] or "", without_comments)
            table = parse_json(plain or "{}")
    except Exception as error:  # each of the three parsers has errors of its own
        fault = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(
            f"{path} cannot be parsed: {fault}", hint="mend it first; nothing was changed"
        ) from error
    if not isinstance(table, dict):
        raise ConfigError(f"{path} holds no settings", hint="nothing was changed")
    return table


def _table(value: object) -> Table:
    """Return a table as it is; {} for any other value."""
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> list[str]:
    """Return the texts in a list; [] for any other value."""
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, str)]


def _leave_out_others(table: Table, read_keys: set[str], imported: ImportedSettings) -> None:
    """Note the keys that were not read, so that the user hears of them."""
    others = [key for key in table if key not in read_keys]
    if others:
        names = ", ".join(others)
        imported.left_out.append(
            f"{names}: not taken over by `fugu init` (`fugu help config` lists fugu's settings)"
        )


# --- models ---------------------------------------------------------------------------------------


def _add_model(imported: ImportedSettings, model: str, service_name: str = "") -> None:
    """Add an agent for a model of a known service; a note where its key alone puts it in the pool.

    Without a service's name the model's own name decides.
    """
    model = model.removesuffix(_CLAUDE_WINDOW)
    alias_slot = _CLAUDE_ALIASES.get(model)
    if alias_slot is not None:
        service_name = "anthropic"
        model = next(name for slot, name in _service("anthropic").models if slot == alias_slot)
    service = _service(service_name) if service_name else _service_of_model(model)
    if service is None:
        imported.left_out.append(
            f"model {model}: its provider is not known; add an entry (`fugu help pool`)"
        )
        return
    if any(name == model for _, name in service.models):
        imported.notes.append(
            f"{model} is in the pool when {service.variable} is set and ~/.fugurc names no agents"
        )
        return
    entry: dict[str, object] = {
        "name": _agent_name(model),
        "provider": service.provider,
        "model": model,
        "base_url": service.base_url,
        "api_key_env": service.variable,
    }
    if "{region}" in service.base_url:
        imported.left_out.append(f"model {model}: {service.name} needs a region (`fugu help pool`)")
    elif entry["name"] not in [agent["name"] for agent in imported.agents]:
        imported.agents.append(entry)


def _entry_fault(agent: Mapping[str, object]) -> str:
    """Return why an entry of the pool may not stand in `.fugurc`, "" if it may."""
    try:
        entry = AgentEntry.model_validate(agent)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        return f"{key}: {fault['msg'].removeprefix('Value error, ')}"
    names = parse_qs(urlsplit(entry.base_url or "").query)
    if any(NAMES.search(name.replace("-", "_")) for name in names):
        return "its address holds a key; add an entry without it (`fugu help pool`)"
    return ""


def _agent_name(model: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", model.rpartition("/")[2]).strip("-.")
    return name or "imported"


def _service(name: str) -> KnownService:
    return next(service for service in SERVICES if service.name == name)


_SERVICES_BY_BEGINNING = {
    "claude": "anthropic",
    "gpt": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "google",
    "deepseek": "deepseek",
    "grok": "xai",
    "kimi": "moonshot",
}
"""The beginnings of models' names, and the services that have those models."""


def _service_of_model(model: str) -> KnownService | None:
    for beginning, name in _SERVICES_BY_BEGINNING.items():
        if model.startswith(beginning):
            return _service(name)
    return None


def _add_named_model(imported: ImportedSettings, text: str) -> None:
    """Add a model that is named like `anthropic/claude-x`, as in OpenCode and aider."""
    provider, slash, model = text.partition("/")
    if provider == "gemini":
        provider = "google"
    if not slash:
        _add_model(imported, text)
    elif provider in {service.name for service in SERVICES}:
        _add_model(imported, model, provider)
    else:
        imported.left_out.append(
            f"model {text}: the provider {provider} is not known; add an entry (`fugu help pool`)"
        )


# --- Claude Code ----------------------------------------------------------------------------------


def _add_folders(imported: ImportedSettings, folders: list[str]) -> None:
    """Add the folders that exist: fugu does not start with one that is missing."""
    present = []
    for folder in folders:
        path = expand_home(folder)
        if path.is_absolute() and is_folder(path):
            present.append(folder)
        else:
            imported.left_out.append(f"additionalDirectories {folder}: there is no such folder")
    if present:
        imported.settings["add_dirs"] = present


def _read_claude_code(tables: Mapping[str, Table], imported: ImportedSettings) -> None:
    settings = tables.get("settings.json", {})
    permissions = _table(settings.get("permissions"))
    for key in ("allow", "ask", "deny"):
        for rule in imported.texts(permissions.get(key), f"permissions.{key}"):
            _add_claude_rule(imported, key, rule)
    mode = permissions.get("defaultMode")
    if mode in _CLAUDE_MODES:
        imported.settings["permission_mode"] = _CLAUDE_MODES[str(mode)]
    elif mode is not None:
        imported.left_out.append(
            f"defaultMode {mode}: choose a mode yourself (`fugu help permissions`)"
        )
    folders = permissions.get("additionalDirectories")
    _add_folders(imported, imported.texts(folders, "additionalDirectories"))
    model = settings.get("model")
    if isinstance(model, str):
        _add_model(imported, model)
    elif model is not None:
        imported.left_out.append("model: it is not a text")
    if "hooks" in settings:
        imported.notes.append("hooks: fugu runs those of ~/.claude/settings.json as they are")
    imported.notes.append(
        "instructions, skills, commands and subagents of ~/.claude are read as they are"
    )
    if "env" in settings:
        imported.left_out.append("env: set these variables yourself before you start fugu")
    if plugins := _table(settings.get("enabledPlugins")):
        imported.left_out.append(
            f"plugins {', '.join(plugins)}: look at each and add it with `fugu plugin add`"
        )
    read_keys = {"permissions", "model", "hooks", "env", "enabledPlugins", "mcpServers", "$schema"}
    _leave_out_others(settings, read_keys, imported)
    user_settings = tables.get(".claude.json", {})
    for table in (settings, user_settings):
        _add_servers(imported, table.get("mcpServers"), _claude_server)
    projects = _table(user_settings.get("projects")).values()
    if any(_table(project).get("mcpServers") for project in projects):
        imported.left_out.append(
            "MCP servers of single projects: add them with `fugu mcp add` in the projects' folders"
        )


_CLAUDE_TOOLS = {
    "WebFetch": "web_fetch",
    "WebSearch": "web_search",
    "MultiEdit": "edit",
    "Task": "task",
    "Agent": "task",
    "Skill": "skill",
    "LS": "list",
}
"""Claude Code's tools whose names differ from fugu's by more than capital letters."""


def _add_claude_rule(imported: ImportedSettings, key: str, written: str) -> None:
    match = _CLAUDE_RULE.fullmatch(written)
    if match is None:
        imported.left_out.append(f"{key}: {written}: it is not a permission rule")
        return
    tool = match[1]
    argument = (match[2] or "").strip()
    if tool in _CLAUDE_TOOLS:
        name = _CLAUDE_TOOLS[tool]
    elif tool.startswith("mcp__"):
        name = tool
    else:
        name = tool.lower()
    if tool == "WebFetch":
        argument = argument.removeprefix("domain:")
    elif tool in ("Read", "Edit", "Write", "Glob", "Grep"):
        if argument.startswith("/") and not argument.startswith("//"):
            reason = "its path begins at the settings file; write the rule yourself"
            imported.left_out.append(f"{key}: {written}: {reason}")
            return
        argument = argument.removeprefix("./")
        if argument.startswith("//"):  # a path from the root of the disk
            argument = argument[1:]
    arguments = [argument]
    if tool == "Bash" and argument.endswith(":*"):
        command = argument.removesuffix(":*")
        arguments = [command, f"{command} *"]
    for text in arguments:
        rule = f"{name}({text})" if text else name
        imported.add_rule(key, rule, written)


def _add_servers(
    imported: ImportedSettings,
    servers: object,
    convert: Callable[[Table], dict[str, object] | str],
) -> None:
    """Add MCP servers. `convert` returns a server as fugu's files have it, or why it cannot."""
    for name, entry in _table(servers).items():
        converted = convert(_table(entry))
        if isinstance(converted, str):
            imported.left_out.append(f"MCP server {name}: {converted}")
        else:
            imported.servers[name] = converted


def _claude_server(entry: Table) -> dict[str, object] | str:
    if not (entry.get("command") or entry.get("url")):
        return "it has no command and no address"
    return dict(entry)


# --- Codex ----------------------------------------------------------------------------------------


def _read_codex(table: Table, imported: ImportedSettings) -> None:
    providers = _table(table.get("model_providers"))
    provider = _table(providers.get(str(table.get("model_provider"))))
    model = table.get("model")
    if isinstance(model, str) and provider.get("base_url"):
        more = {"api": "responses" if provider.get("wire_api") == "responses" else "chat"}
        if isinstance(provider.get("env_key"), str):
            more["api_key_env"] = str(provider["env_key"])
        imported.add_own_agent(model, str(provider["base_url"]), **more)
        read_keys = {"name", "base_url", "wire_api", "env_key"}
        if others := [key for key in provider if key not in read_keys]:
            imported.left_out.append(
                f"{', '.join(others)} of provider {table['model_provider']}: fugu has no such key"
            )
    elif isinstance(model, str):
        _add_model(imported, model)
    effort = table.get("model_reasoning_effort")
    if effort in ("minimal", "low", "medium", "high", "xhigh"):
        imported.settings["effort"] = effort
    elif effort is not None:
        imported.left_out.append(
            f"model_reasoning_effort {json.dumps(effort)}: fugu has no such effort"
        )
    policy = table.get("approval_policy")
    if policy in _CODEX_MODES:
        imported.settings["permission_mode"] = _CODEX_MODES[str(policy)]
    elif policy is not None:
        imported.left_out.append(
            f"approval_policy {json.dumps(policy)}: choose a mode yourself (`fugu help permissions`)"
        )
    if table.get("sandbox_mode") == "danger-full-access":
        imported.left_out.append("sandbox_mode danger-full-access: fugu's sandbox stays on")
    _add_servers(imported, table.get("mcp_servers"), _codex_server)
    for name, server in _table(table.get("mcp_servers")).items():
        others = [key for key in _table(server) if key not in _CODEX_SERVER_KEYS]
        if others and name in imported.servers:
            imported.left_out.append(
                f"{', '.join(others)} of MCP server {name}: fugu has no such key"
            )
    imported.notes.append("~/.codex/AGENTS.md, where there is one, is read as it is")
    read_keys = {"model", "model_provider", "model_providers", "model_reasoning_effort"}
    read_keys |= {"approval_policy", "mcp_servers", "sandbox_mode"}
    _leave_out_others(table, read_keys, imported)


def _codex_server(entry: Table) -> dict[str, object] | str:
    if entry.get("enabled") is False:
        return "it is switched off"
    if isinstance(entry.get("command"), str):
        names = ("command", "args", "env")
        return {name: entry[name] for name in names if name in entry}
    if not isinstance(entry.get("url"), str):
        return "it has no command and no address"
    headers = dict(_table(entry.get("http_headers")))
    for name, variable in _table(entry.get("env_http_headers")).items():
        headers[name] = f"${{{variable}}}"
    if isinstance(variable := entry.get("bearer_token_env_var"), str):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    server: dict[str, object] = {"type": "http", "url": entry["url"]}
    if headers:
        server["headers"] = headers
    return server


# --- OpenCode -------------------------------------------------------------------------------------


def _read_opencode(table: Table, imported: ImportedSettings) -> None:
    providers = _table(table.get("provider"))
    for key in ("model", "small_model"):
        name = table.get(key)
        if not isinstance(name, str):
            continue
        provider, _, model = name.partition("/")
        options = _table(_table(providers.get(provider)).get("options"))
        api_key = options.get("apiKey")
        variable = _OPENCODE_VARIABLE.fullmatch(api_key) if isinstance(api_key, str) else None
        if isinstance(base_url := options.get("baseURL"), str):
            more = {"provider": "anthropic"} if provider == "anthropic" else {}
            if variable is not None:
                more["api_key_env"] = variable[1]
            imported.add_own_agent(model, base_url, **more)
        else:
            _add_named_model(imported, name)
        if api_key and variable is None:
            imported.left_out.append(
                f"the key of {provider}: keys stay out of files; name a variable with api_key_env"
            )
    permission = table.get("permission")
    if isinstance(permission, str):
        imported.left_out.append(
            f"permission {permission}: choose a mode yourself (`fugu help permissions`)"
        )
    _add_opencode_permissions(_table(permission), imported)
    _add_servers(imported, table.get("mcp"), _opencode_server)
    if files := _texts(table.get("instructions")):
        imported.left_out.append(
            f"instructions {', '.join(files)}: write them into ~/.agents/AGENTS.md"
        )
    read_keys = {"$schema", "provider", "model", "small_model", "permission", "mcp", "instructions"}
    _leave_out_others(table, read_keys, imported)


def _add_opencode_permissions(permission: Table, imported: ImportedSettings) -> None:
    tools = {"edit": "edit", "bash": "bash", "webfetch": "web_fetch", "websearch": "web_search"}
    tools |= {"task": "task", "read": "read"}
    for name, value in permission.items():
        patterns = {"*": value} if isinstance(value, str) else _table(value)
        for pattern, answer in patterns.items():
            written = f"permission {name} {pattern}"
            if name not in tools or answer not in ("allow", "ask", "deny"):
                imported.left_out.append(f"{written}: fugu has no such rule")
                continue
            rule = tools[name] if pattern == "*" else f"{tools[name]}({pattern})"
            imported.add_rule(str(answer), rule, written)


def _opencode_server(entry: Table) -> dict[str, object] | str:
    if entry.get("enabled") is False:
        return "it is switched off"
    if "{file:" in json.dumps(entry):
        return "it takes a value from a file; add it with `fugu mcp add`"
    command = [_with_variables(word) for word in _texts(entry.get("command"))]
    if entry.get("type") == "local" and command:
        server: dict[str, object] = {"command": command[0], "args": command[1:]}
        if environment := _table(entry.get("environment")):
            server["env"] = {name: _with_variables(value) for name, value in environment.items()}
        return server
    if entry.get("type") == "remote" and isinstance(entry.get("url"), str):
        headers = _table(entry.get("headers"))
        return {
            "type": "http",
            "url": _with_variables(entry["url"]),
            "headers": {name: _with_variables(value) for name, value in headers.items()},
        }
    return "it has no command and no address"


def _with_variables(value: object) -> object:
    """Return a text with OpenCode's `{env:NAME}` as `${NAME}`; any other value as it is."""
    return _OPENCODE_VARIABLE.sub(r"${\1}", value) if isinstance(value, str) else value


# --- aider ----------------------------------------------------------------------------------------


def _read_aider(table: Table, imported: ImportedSettings) -> None:
    base_url = table.get("openai-api-base")
    base_url_is_used = False
    for key in ("model", "editor-model", "weak-model"):
        name = table.get(key)
        if not isinstance(name, str):
            continue
        if isinstance(base_url, str) and name.startswith("openai/"):
            model = name.removeprefix("openai/")
            imported.add_own_agent(model, base_url)
            base_url_is_used = True
        else:
            _add_named_model(imported, name)
    if base_url and not base_url_is_used:
        imported.left_out.append(
            f"openai-api-base {base_url}: no model of the file begins with openai/; "
            "add an entry with this base_url (`fugu help pool`)"
        )
    if isinstance(command := table.get("test-cmd"), str) and command:
        imported.settings["test_command"] = command
    api_keys = [key for key in table if "api-key" in key]
    for key in api_keys:
        imported.left_out.append(f"{key}: keys stay out of files; `fugu login` keeps one")
    if files := table.get("read"):
        names = ", ".join(_texts(files)) or files
        imported.left_out.append(f"read {names}: write it into ~/.agents/AGENTS.md")
    read_keys = {"model", "editor-model", "weak-model", "test-cmd", "openai-api-base", "read"}
    _leave_out_others(table, read_keys.union(api_keys), imported)


def described(imported: ImportedSettings) -> Iterator[str]:
    """Yield a line for each thing that is taken over."""
    for key, value in imported.settings.items():
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    for agent in imported.agents:
        address = agent.get("base_url", "its provider")
        yield f"agent {agent['name']}: {agent['model']} at {address}"
    for name in imported.servers:
        yield f"MCP server {name}"
