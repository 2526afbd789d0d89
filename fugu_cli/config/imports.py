"""The user's settings of another agent, read as fugu's: models, permissions, MCP servers and more.

Reads the other agent's files and writes nothing. What cannot be taken over is a sentence with the
reason; a model's key is never
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

from fugu_cli.config.agent_pool import SERVICES, KnownService
from fugu_cli.errors import ConfigError
from fugu_cli.safety.policy.rule_matching import pattern_fault
from fugu_cli.system.bounded_json import parse_json

Source = Literal["claude-code", "codex", "opencode", "aider"]
SOURCES: tuple[Source, ...] = get_args(Source)
FILES: Mapping[Source, tuple[str, ...]] = {
    "claude-code": (".claude/settings.json", ".claude.json"),
    "codex": (".codex/config.toml",),
    "opencode": (".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"),
    "aider": (".aider.conf.yml",),
}
"""The files of each agent, from the user's home."""
MODELS_BY_WORD = {"opus": "strong", "sonnet": "middle", "haiku": "cheap"}
_JSON_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)
_CLAUDE_RULE = re.compile(r"\s*([\w*-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_CODEX_MODES = {"untrusted": "ask", "on-request": "edit", "on-failure": "edit"}
_CLAUDE_MODES = {"default": "ask", "acceptEdits": "edit", "plan": "plan"}

Table = Mapping[str, object]


@dataclass
class ImportedSettings:
    """What was taken over. `settings` are keys of `.fugurc`, `agents` its entries; `notes` say what
    needs nothing, `left_out` what could not be taken over and why.
    """

    files: list[Path] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    agents: list[dict[str, object]] = field(default_factory=list)
    servers: dict[str, dict[str, object]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add_rule(self, key: str, rule: str, written: str) -> None:
        """Add a rule to `allow`, `ask` or `deny`; `written`: as the other agent has it."""
        if fault := pattern_fault(rule):
            self.left_out.append(f"{key}: {written}: {fault}")
            return
        rules = self.settings.setdefault(key, [])
        assert isinstance(rules, list)
        if rule not in rules:
            rules.append(rule)


def read_settings(source: Source, home: Path) -> ImportedSettings:
    """Return the settings of another agent. Raises ConfigError where there are none, or a file
    cannot be read.
    """
    imported = ImportedSettings()
    tables: dict[str, Table] = {}
    for name in FILES[source]:
        path = home / name
        try:
            text = path.read_text("utf-8-sig")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {path}: {error}", hint="nothing was changed") from error
        tables[path.name] = _parsed(text, path)
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


def _parsed(text: str, path: Path) -> Table:
    try:
        if path.suffix == ".toml":
            table: object = tomllib.loads(text)
        elif path.suffix == ".yml":
            import yaml

            table = yaml.safe_load(text) or {}
        else:
            plain = _JSON_COMMENT.sub(lambda match: match[1] or "", text)
            table = parse_json(_TRAILING_COMMA.sub(lambda match: match[1] or "", plain) or "{}")
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"{path} cannot be parsed: {first}", hint="mend it first; nothing was changed"
        ) from error
    if not isinstance(table, dict):
        raise ConfigError(f"{path} holds no settings", hint="nothing was changed")
    return table


def _table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _leave_out_others(table: Table, known: set[str], imported: ImportedSettings) -> None:
    """Name the keys that nothing is known of."""
    others = [key for key in table if key not in known]
    if others:
        imported.left_out.append(
            f"{', '.join(others)}: fugu has no such setting, or sets it by itself"
        )


# --- models ---------------------------------------------------------------------------------------


def _add_model(imported: ImportedSettings, model: str, service_name: str = "") -> None:
    """Add an agent for a model of a known service, unless the pool finds it by its key anyway."""
    slot = MODELS_BY_WORD.get(model)
    if slot is not None:
        service_name = "anthropic"
        model = next(name for place, name in _service("anthropic").models if place == slot)
    service = _service(service_name) if service_name else _service_of_model(model)
    if service is None:
        imported.left_out.append(
            f"model {model}: its provider is not known; add an entry (`fugu help pool`)"
        )
        return
    if any(name == model for _, name in service.models):
        imported.notes.append(f"{model} is in the pool when {service.variable} is set")
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


def _custom_agent(model: str, base_url: str) -> dict[str, object]:
    """Return the entry of a model at a server of the user's own."""
    name = _agent_name(model)
    return {"name": name, "provider": "openai", "model": model, "base_url": base_url}


def _agent_name(model: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", model.rpartition("/")[2]).strip("-.")
    return name or "imported"


def _service(name: str) -> KnownService:
    return next(service for service in SERVICES if service.name == name)


def _service_of_model(model: str) -> KnownService | None:
    beginnings = {"claude": "anthropic", "gpt": "openai", "o3": "openai", "o4": "openai"}
    beginnings |= {"gemini": "google", "deepseek": "deepseek", "grok": "xai", "kimi": "moonshot"}
    match = next((name for start, name in beginnings.items() if model.startswith(start)), None)
    return _service(match) if match is not None else None


def _add_named_model(imported: ImportedSettings, text: str) -> None:
    """Add the model of a name like `anthropic/claude-x`, as OpenCode and aider write them."""
    provider, slash, model = text.partition("/")
    names = {service.name for service in SERVICES}
    provider = {"gemini": "google"}.get(provider, provider)
    if not slash:
        _add_model(imported, text)
    elif provider in names:
        _add_model(imported, model, provider)
    else:
        imported.left_out.append(
            f"model {text}: the provider {provider} is not known; add an entry (`fugu help pool`)"
        )


# --- Claude Code ----------------------------------------------------------------------------------


def _read_claude_code(tables: Mapping[str, Table], imported: ImportedSettings) -> None:
    settings = tables.get("settings.json", {})
    permissions = _table(settings.get("permissions"))
    for key in ("allow", "ask", "deny"):
        for rule in _texts(permissions.get(key)):
            _add_claude_rule(imported, key, rule)
    mode = permissions.get("defaultMode")
    if mode in _CLAUDE_MODES:
        imported.settings["permission_mode"] = _CLAUDE_MODES[str(mode)]
    elif mode is not None:
        imported.left_out.append(
            f"defaultMode {mode}: choose a mode yourself (`fugu help permissions`)"
        )
    if folders := _texts(permissions.get("additionalDirectories")):
        imported.settings["add_dirs"] = folders
    if isinstance(model := settings.get("model"), str):
        _add_model(imported, model)
    if "hooks" in settings:
        imported.notes.append("hooks: fugu runs those of ~/.claude/settings.json as they are")
    imported.notes.append(
        "instructions, skills, commands and subagents of ~/.claude are read as they are"
    )
    if "env" in settings:
        imported.left_out.append("env: set these variables where you start fugu")
    _leave_out_others(settings, {"permissions", "model", "hooks", "env", "$schema"}, imported)
    user = tables.get(".claude.json", {})
    _add_servers(imported, user.get("mcpServers"), _claude_server)
    if any(_table(project).get("mcpServers") for project in _table(user.get("projects")).values()):
        imported.left_out.append("MCP servers of single projects: `fugu mcp add` in their folders")


def _add_claude_rule(imported: ImportedSettings, key: str, written: str) -> None:
    match = _CLAUDE_RULE.fullmatch(written)
    if match is None:
        imported.left_out.append(f"{key}: {written}: it is no rule")
        return
    tool, argument = match[1], (match[2] or "").strip()
    names = {"WebFetch": "web_fetch", "WebSearch": "web_search", "MultiEdit": "edit"}
    names |= {"Task": "task", "Agent": "task", "Skill": "skill", "LS": "list"}
    name = names.get(tool, tool if tool.startswith("mcp__") else tool.lower())
    if tool == "WebFetch":
        argument = argument.removeprefix("domain:")
    elif tool in ("Read", "Edit", "Write", "Glob", "Grep"):
        if argument.startswith("/") and not argument.startswith("//"):
            reason = "its path begins at the settings file; write the rule yourself"
            imported.left_out.append(f"{key}: {written}: {reason}")
            return
        argument = argument.removeprefix("./")
        argument = argument[1:] if argument.startswith("//") else argument
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
    provider = table.get("model_provider")
    custom = _table(_table(table.get("model_providers")).get(str(provider)))
    model = table.get("model")
    if isinstance(model, str) and custom.get("base_url"):
        entry = _custom_agent(model, str(custom["base_url"]))
        entry["api"] = "responses" if custom.get("wire_api") == "responses" else "chat"
        if isinstance(custom.get("env_key"), str):
            entry["api_key_env"] = custom["env_key"]
        imported.agents.append(entry)
    elif isinstance(model, str):
        _add_model(imported, model)
    effort = table.get("model_reasoning_effort")
    if effort in ("minimal", "low", "medium", "high", "xhigh"):
        imported.settings["effort"] = effort
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
    imported.notes.append("~/.codex/AGENTS.md is read as it is")
    known = {"model", "model_provider", "model_providers", "model_reasoning_effort"}
    known |= {"approval_policy", "mcp_servers", "sandbox_mode"}
    _leave_out_others(table, known, imported)


def _codex_server(entry: Table) -> dict[str, object] | str:
    if entry.get("enabled") is False:
        return "it is switched off"
    if isinstance(entry.get("command"), str):
        names = ("command", "args", "env")
        return {name: entry[name] for name in names if name in entry}
    if not isinstance(entry.get("url"), str):
        return "it has no command and no address"
    server: dict[str, object] = {"type": "http", "url": entry["url"]}
    if isinstance(variable := entry.get("bearer_token_env_var"), str):
        server["headers"] = {"Authorization": f"Bearer ${{{variable}}}"}
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
        if isinstance(base_url := options.get("baseURL"), str):
            imported.agents.append(_custom_agent(model, base_url))
        else:
            _add_named_model(imported, name)
        if options.get("apiKey"):
            imported.left_out.append(
                f"the key of {provider}: keys stay out of files; name a variable with api_key_env"
            )
    _add_opencode_permissions(_table(table.get("permission")), imported)
    _add_servers(imported, table.get("mcp"), _opencode_server)
    if files := _texts(table.get("instructions")):
        imported.left_out.append(
            f"instructions {', '.join(files)}: write them into ~/.agents/AGENTS.md"
        )
    known = {"$schema", "provider", "model", "small_model", "permission", "mcp", "instructions"}
    _leave_out_others(table, known, imported)


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
    command = _texts(entry.get("command"))
    if entry.get("type") == "local" and command:
        server: dict[str, object] = {"command": command[0], "args": command[1:]}
        if environment := _table(entry.get("environment")):
            server["env"] = dict(environment)
        return server
    if entry.get("type") == "remote" and isinstance(entry.get("url"), str):
        return {"type": "http", "url": entry["url"], "headers": dict(_table(entry.get("headers")))}
    return "it has no command and no address"


# --- aider ----------------------------------------------------------------------------------------


def _read_aider(table: Table, imported: ImportedSettings) -> None:
    base = table.get("openai-api-base")
    for key in ("model", "editor-model", "weak-model"):
        name = table.get(key)
        if not isinstance(name, str):
            continue
        if isinstance(base, str) and name.startswith("openai/"):
            model = name.removeprefix("openai/")
            imported.agents.append(_custom_agent(model, base))
        else:
            _add_named_model(imported, name)
    if isinstance(command := table.get("test-cmd"), str) and command:
        imported.settings["test_command"] = command
    for key in table:
        if "api-key" in key:
            imported.left_out.append(f"{key}: keys stay out of files; `fugu login` keeps one")
    if files := table.get("read"):
        imported.left_out.append(
            f"read {', '.join(_texts(files)) or files}: write it into ~/.agents/AGENTS.md"
        )
    known = {"model", "editor-model", "weak-model", "test-cmd", "openai-api-base", "read"}
    known |= {key for key in table if "api-key" in key}
    _leave_out_others(table, known, imported)


def described(imported: ImportedSettings) -> Iterator[str]:
    """Yield a line for each thing that is taken over."""
    for key, value in imported.settings.items():
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    for agent in imported.agents:
        yield f"agent {agent['name']}: {agent['model']} at {agent.get('base_url', 'its provider')}"
    for name in imported.servers:
        yield f"MCP server {name}"
