"""`fugu serve --write-client`: points another program's own configuration at the endpoint.

The rest of the file is kept, and a record in fugu's data folder holds the file as it was, so that
`--remove` can take our values out again. A file that nobody has changed since then is restored byte
for byte; in a changed one each of our values is put back alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import tomlkit
from pydantic import BaseModel, JsonValue, ValidationError
from tomlkit.exceptions import ParseError

from fugu_cli.cli.command_flags import ClientName
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.system.atomic_files import write_atomically
from fugu_cli.wires.client_requests import Json

Document = MutableMapping[str, object]
"""A parsed configuration file. Tables are documents, too."""


@dataclass(frozen=True)
class EndpointForClients:
    """The endpoint as clients reach it. `url` has no path. `models` are entries of
    `GET /v1/models`, the model to use first. `token_variable` is the environment variable with the
    bearer token, "" if none is needed.
    """

    url: str
    models: Sequence[Json]
    token_variable: str


class _Record(BaseModel):
    """The record that `--remove` needs: the configuration file before the change (None if there was
    none) and after it.
    """

    path: Path
    before: str | None
    after: str
    catalog: Path | None = None
    """A file beside the record that belongs to us alone."""


def write_client(
    client: ClientName, endpoint: EndpointForClients, data: Path, environ: Mapping[str, str]
) -> Path:
    """Set the client's configuration and return its path. `data` is fugu's data folder.

    A second call replaces the values of the first. Raises UsageError for a file that cannot be
    parsed, StorageError for one that cannot be read or written.
    """
    remove_client(client, data)
    path = _configuration_path(client, environ)
    before = _read(path)
    form = _FORMS[path.suffix]
    document = _parse(form, before or "", path)
    catalog = None
    match client:
        case "codex":
            catalog = _record_path(client, data).with_name("codex-models.json")
            _write(catalog, json.dumps({"models": _codex_catalog(endpoint.models)}, indent=1))
            values = _codex_values(endpoint, catalog)
        case "claude-code":
            values = _claude_values(endpoint)
        case "opencode":
            values = _opencode_values(endpoint)
    for keys, value in values.items():
        _set(document, keys, value, path)
    after = form.dump(document)
    record = _Record(path=path, before=before, after=after, catalog=catalog)
    _write(_record_path(client, data), record.model_dump_json(indent=1))
    _write(path, after)
    return path


def remove_client(client: ClientName, data: Path) -> Path | None:
    """Take our values out of the client's configuration and return its path, or None if it has none
    of them. Raises UsageError and StorageError like `write_client`.
    """
    record_path = _record_path(client, data)
    text = _read(record_path)
    if text is None:
        return None
    try:
        record = _Record.model_validate_json(text)
    except ValidationError as error:
        raise StorageError(
            f"{record_path} cannot be read",
            hint="remove fugu's values from the client's configuration by hand, then that file",
        ) from error
    current = _read(record.path)
    if current == record.after:
        restored = record.before
    elif current is None:
        restored = None
    else:
        restored = _without_our_values(record, current)
    if restored is not None:
        _write(record.path, restored)
    elif current is not None:
        record.path.unlink(missing_ok=True)
    if record.catalog is not None:
        record.catalog.unlink(missing_ok=True)
    record_path.unlink(missing_ok=True)
    return record.path


def _without_our_values(record: _Record, current: str) -> str:
    """Return the changed file with each value that is still ours as it was before."""
    form = _FORMS[record.path.suffix]
    document = _parse(form, current, record.path)
    ours = dict(_leaves(_parse(form, record.after, record.path)))
    earlier = dict(_leaves(_parse(form, record.before or "", record.path)))
    for keys, value in _leaves(document):
        if ours.get(keys) != value or earlier.get(keys) == value:
            continue
        if keys in earlier:
            _set(document, keys, earlier[keys], record.path)
        else:
            _delete(document, keys)
    return form.dump(document)


def _configuration_path(client: ClientName, environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or Path.home())
    match client:
        case "codex":
            return Path(environ.get("CODEX_HOME") or home / ".codex") / "config.toml"
        case "claude-code":
            return Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "settings.json"
        case "opencode":
            config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
            return config / "opencode" / "opencode.json"


def _record_path(client: ClientName, data: Path) -> Path:
    return data / "clients" / f"{client}.json"


Keys = tuple[str, ...]
"""The path of a value: the names of the tables around it, then its own."""

CODEX_INSTRUCTIONS = """\
You are a coding agent that works in the user's terminal, in the current directory.

Look at the code before you change it, and change only what the request needs, in the style of the
code around it. Keep changes of the user that you meet. Run the tests or the program where you can,
and say what you ran and what it printed. Do not commit, push or delete what you did not make unless
you are asked to. Say what you are about to do in a sentence before you call tools. Answer in the
user's language, briefly, with paths and line numbers for what you name.
"""


def _codex_values(endpoint: EndpointForClients, catalog: Path) -> dict[Keys, object]:
    provider = ("model_providers", "fugu")
    values: dict[Keys, object] = {
        ("model",): endpoint.models[0]["id"],
        ("model_provider",): "fugu",
        ("model_catalog_json",): str(catalog),
        (*provider, "name"): "fugu",
        (*provider, "base_url"): f"{endpoint.url}/v1",
        (*provider, "wire_api"): "responses",
        (*provider, "stream_idle_timeout_ms"): 600_000,
    }
    if endpoint.token_variable:
        values[*provider, "env_key"] = endpoint.token_variable
    return values


def _codex_catalog(models: Sequence[Json]) -> list[Json]:
    """Return the models as Codex lists them (0.171)."""
    efforts: list[JsonValue] = [
        {"effort": effort, "description": f"{effort} reasoning effort"}
        for effort in ("low", "medium", "high")
    ]
    catalog: list[Json] = []
    for number, model in enumerate(models):
        inputs: list[JsonValue] = ["text", "image"] if _sees_pictures(model) else ["text"]
        entry: Json = {
            "slug": model["id"],
            "display_name": model["id"],
            "description": "answered by fugu serve",
            "supported_reasoning_levels": efforts,
            "default_reasoning_level": "medium",
            "shell_type": "unified_exec",
            "apply_patch_tool_type": "freeform",
            "visibility": "list",
            "supported_in_api": True,
            "priority": number,
            "support_verbosity": False,
            "truncation_policy": {"mode": "tokens", "limit": 10_000},
            "experimental_supported_tools": [],
            "context_window": model["max_input_tokens"],
            "input_modalities": inputs,
            "base_instructions": CODEX_INSTRUCTIONS,
        }
        catalog.append(entry)
    return catalog


def _claude_values(endpoint: EndpointForClients) -> dict[Keys, object]:
    model = endpoint.models[0]
    names = ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL")
    variables = {
        "ANTHROPIC_BASE_URL": endpoint.url,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(model["max_tokens"]),
        **dict.fromkeys((*names, "ANTHROPIC_DEFAULT_OPUS_MODEL"), str(model["id"])),
    }
    if not endpoint.token_variable:
        variables["ANTHROPIC_AUTH_TOKEN"] = "unused"
    values: dict[Keys, object] = {("env", name): value for name, value in variables.items()}
    if endpoint.token_variable:
        values["apiKeyHelper",] = f'printf %s "${endpoint.token_variable}"'
    return values


def _opencode_values(endpoint: EndpointForClients) -> dict[Keys, object]:
    provider = ("provider", "fugu")
    models: dict[str, object] = {}
    for model in endpoint.models:
        limit = {"context": model["max_input_tokens"], "output": model["max_tokens"]}
        pictures = _sees_pictures(model)
        models[str(model["id"])] = {"limit": limit, "tool_call": True, "attachment": pictures}
    token = f"{{env:{endpoint.token_variable}}}" if endpoint.token_variable else "unused"
    return {
        ("model",): f"fugu/{endpoint.models[0]['id']}",
        (*provider, "npm"): "@ai-sdk/openai-compatible",
        (*provider, "name"): "fugu",
        (*provider, "options"): {"baseURL": f"{endpoint.url}/v1", "apiKey": token},
        (*provider, "models"): models,
    }


def _sees_pictures(model: Json) -> bool:
    capabilities = cast(dict[str, dict[str, bool]], model["capabilities"])
    return capabilities["image_input"]["supported"]


@dataclass(frozen=True)
class _Form:
    """The parser and the writer for files of one suffix."""

    parse: Callable[[str], object]
    dump: Callable[[Document], str]


def _dump_json(document: Document) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


_FORMS: Mapping[str, _Form] = {
    ".toml": _Form(tomlkit.parse, tomlkit.dumps),
    ".json": _Form(lambda text: json.loads(text) if text.strip() else {}, _dump_json),
}


def _parse(form: _Form, text: str, path: Path) -> Document:
    try:
        document = form.parse(text)
    except (ValueError, ParseError, RecursionError) as error:
        raise UsageError(
            f"{path} cannot be parsed: {error}", hint="repair it, or set its values by hand"
        ) from error
    if not isinstance(document, MutableMapping):
        raise UsageError(f"{path} holds no table", hint="repair it, or set its values by hand")
    return document


def _leaves(document: Document, above: Keys = ()) -> list[tuple[Keys, object]]:
    """Return all values of a document that are not tables, each with its path of keys."""
    leaves: list[tuple[Keys, object]] = []
    for name, value in document.items():
        if isinstance(value, MutableMapping):
            leaves += _leaves(value, (*above, name))
        else:
            leaves.append(((*above, name), value))
    return leaves


def _set(document: Document, keys: Keys, value: object, path: Path) -> None:
    table = document
    for name in keys[:-1]:
        inner = table.setdefault(name, {})
        if not isinstance(inner, MutableMapping):
            raise UsageError(
                f"{path}: {name} is no table", hint="repair it, or set its values by hand"
            )
        table = inner
    table[keys[-1]] = value


def _delete(document: Document, keys: Keys) -> None:
    """Delete a value, and the tables around it that become empty."""
    name, *inner = keys
    if inner:
        table = document[name]
        assert isinstance(table, MutableMapping)
        _delete(table, tuple(inner))
        if table:
            return
    del document[name]


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error


def _write(path: Path, text: str) -> None:
    """Write a file. If the path is a link (people keep such files in repositories), its target is
    written.
    """
    try:
        write_atomically(Path(os.path.realpath(path)), text.encode())
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}") from error
