"""`fugu doctor`: what is installed, what is missing, and what to do about it.

No model is called. Each check is a function that returns one Finding or yields several. Names of
keys are shown, never their values.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fugu_cli import __version__
from fugu_cli.cli.current_folder import current_path, local_servers, needed_models
from fugu_cli.config import MANAGED_FILE, Config
from fugu_cli.config.agent_pool import (
    detected_keys,
    unready_services,
    unusable_entries,
    usable_pool,
)
from fugu_cli.config.kept_keys import StoredLogins, add_kept_keys
from fugu_cli.config.loader import LoadedConfig, load_config, repository
from fugu_cli.errors import ConfigError, FuguError, installing
from fugu_cli.extension_wiring import own_language_servers, server_rules, server_secrets
from fugu_cli.formatting import sanitize
from fugu_cli.local.server_lease import missing_package
from fugu_cli.local.store import Store
from fugu_cli.safety.git_process import git_program, own_environment, run_git
from fugu_cli.safety.paths import is_folder
from fugu_cli.safety.programs import find_program
from fugu_cli.safety.redaction import Redactor
from fugu_cli.safety.sandbox.command_sandbox import ASKED
from fugu_cli.session import store as session_store
from fugu_cli.wiring import build_sandbox, snapshot_store

if TYPE_CHECKING:
    from fugu_cli.extensions.language_servers import LanguageServers

MIN_FREE_BYTES = 2_000_000_000
"""Bytes that should be free: the embedded models and the converted backbone."""


@dataclass(frozen=True)
class Finding:
    """One line of the report. Without a `missing` thing no run is possible; a `note` is about
    something that fugu then does without.
    """

    state: Literal["ok", "note", "missing"]
    what: str
    message: str
    advice: str = ""


def doctor() -> int:
    """Print the findings. Return 0 if a run can work here, 1 if the configuration is at fault, and 2
    if something else that a run needs is missing.
    """
    findings = list(_check_all(current_path()))
    print(report(findings))
    missing = [finding.what for finding in findings if finding.state == "missing"]
    if "configuration" in missing:
        return 1
    return 2 if missing else 0


def report(findings: Iterable[Finding] | None = None) -> str:
    """Return the findings as lines of text; without `findings`, check the current folder."""
    rows = list(_check_all(current_path()) if findings is None else findings)
    width = max(len(finding.what) for finding in rows)
    lines = []
    for finding in rows:
        lines.append(f"{finding.state:<7}  {finding.what:<{width}}  {sanitize(finding.message)}")
        if finding.advice:
            lines.append(f"{'':<7}  {'':<{width}}  -> {sanitize(finding.advice)}")
    return "\n".join(lines)


def _check_all(folder: Path) -> Iterator[Finding]:
    yield Finding(
        "ok", "fugu", f"{__version__}, Python {platform.python_version()} at {sys.executable}"
    )
    yield _git(folder)
    yield _ripgrep(folder)
    yield _torch()
    yield from (Finding("note", "keys", note) for note in add_kept_keys(os.environ))
    try:
        loaded = load_config(folder, os.environ)
    except ConfigError as error:
        yield Finding("missing", "configuration", str(error), error.hint)
        return
    yield from _configuration(loaded)
    yield from _pool(loaded)
    yield from _local_servers(loaded.config)
    if loaded.config.coordinator == "trinity":
        if loaded.config.checkpoint is not None:
            yield _checkpoint(loaded.config.checkpoint, loaded.config)
        if importlib.util.find_spec("torch") is not None:
            yield _backbone(loaded.config)
    yield _tests(loaded)
    yield _sandbox(loaded)
    yield from _servers(loaded)
    yield from _hooks(loaded)
    yield from _plugins(loaded)
    yield from _skills(loaded)
    yield from _language_servers(loaded)
    yield _data(loaded)
    yield _disk_space(loaded.config)
    yield _terminal()


def _git(folder: Path) -> Finding:
    root = repository(folder)
    if git_program(root) is None:
        return Finding(
            "note",
            "git",
            "not found",
            "install git: without it undo takes back only what fugu's own tools changed",
        )
    output = run_git(root, "--version", environment=own_environment()).out.decode().strip()
    return Finding("ok", "git", output.removeprefix("git version ") or "found")


def _ripgrep(folder: Path) -> Finding:
    bundled = shutil.which("rg", path=sysconfig.get_path("scripts"))
    program = bundled or find_program("rg", repository(folder))
    if program is None:
        return Finding(
            "note",
            "ripgrep",
            "not found",
            "agents cannot search; reinstall fugu, or install ripgrep",
        )
    return Finding("ok", "ripgrep", program)


def _torch() -> Finding:
    lacking = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if lacking:
        advice = (
            f"success rates and costs decide without it, the kind of a request is not read; "
            f"{installing(*lacking)} reads it"
        )
        return Finding("note", "torch", f"{' and '.join(lacking)} not installed", advice)
    return Finding("ok", "torch", f"{importlib.metadata.version('torch')}")


def _configuration(loaded: LoadedConfig) -> Iterator[Finding]:
    files = ", ".join(str(path) for path in loaded.files) or "no .fugurc: the defaults"
    trusted = "; this folder is trusted" if loaded.trusted else ""
    yield Finding("ok", "configuration", f"{files}{trusted}")
    if loaded.managed is not None:
        settings = "; ".join(loaded.managed.described()) or "it limits nothing"
        yield Finding("ok", "managed", f"{MANAGED_FILE}: {settings}")
    for note in loaded.notes:
        yield Finding("note", "configuration", note)
    keys = ", ".join(detected_keys(os.environ))
    yield Finding("ok", "keys", keys or "none of the known ones is set; `fugu login` keeps one")


def _pool(loaded: LoadedConfig) -> Iterator[Finding]:
    try:
        entries = usable_pool(loaded.config, os.environ)
    except ConfigError as error:
        yield Finding("missing", "pool", str(error), error.hint)
        return
    yield Finding("ok", "pool", ", ".join(f"{entry.name} ({entry.slot})" for entry in entries))
    for entry in unusable_entries(loaded.config, os.environ):
        yield Finding("note", "pool", f"{entry.name} is left out", entry.reason)
    if not loaded.config.agents:
        for service in unready_services(os.environ):
            yield Finding(
                "note", "pool", f"{service.name} brings no agent", "`fugu pool` says what to add"
            )
    names = needed_models(loaded.config, os.environ)
    if not names:
        return
    store = Store(loaded.config.cache)
    missing = [name for name in names if store.find(name) is None]
    fault = missing_package()
    if fault is not None:
        can_work = any(entry.provider != "local" for entry in entries)
        yield Finding("note" if can_work else "missing", "models", str(fault), fault.hint)
    elif missing:
        can_work = any(entry.model not in missing for entry in entries)
        message = f"not here: {', '.join(missing)}"
        yield Finding("note" if can_work else "missing", "models", message, "fugu models pull")
    else:
        yield Finding("ok", "models", f"{', '.join(names)} in {store.folder}")


def _local_servers(config: Config) -> Iterator[Finding]:
    """Yield the model servers on this machine that answer and are in no entry."""
    for server in local_servers(config):
        message = (
            f"{server.base_url}, where {server.name} listens, offers {len(server.models)} models"
        )
        yield Finding("ok", "local server", message, "`fugu pool` says how to use it")


def _checkpoint(path: Path, config: Config) -> Finding:
    """Check that the checkpoint loads and was trained for the embedded backbone. Another backbone
    is checked when it is loaded.
    """
    from fugu_cli.coordinators.backbone_files import required_libraries
    from fugu_cli.coordinators.trinity import EMBEDDED

    try:
        with required_libraries():
            from fugu_cli.coordinators import checkpoint

            meta = checkpoint.load(path).meta
    except FuguError as error:
        return Finding(
            "note", "checkpoint", str(error), error.hint or "success rates and costs decide instead"
        )
    message = f"{path.name}: agents {', '.join(meta.rows)}"
    if config.backbone is None and meta.backbone != Store(config.cache).model(EMBEDDED).sha256:
        advice = "success rates and costs decide instead; name the checkpoint's own `backbone`"
        return Finding(
            "note", "checkpoint", f"{message}, for another backbone than the embedded one", advice
        )
    return Finding("ok", "checkpoint", message)


def _backbone(config: Config) -> Finding:
    from fugu_cli.coordinators import backbone_files
    from fugu_cli.coordinators.trinity import EMBEDDED

    if config.backbone is not None:
        return Finding("ok", "backbone", f"{config.backbone}, looked at when it is loaded")
    if Store(config.cache).find(EMBEDDED) is None:
        return Finding(
            "note",
            "backbone",
            f"{EMBEDDED} is not here, so the kind of a request is not read",
            f"fugu models pull {EMBEDDED}",
        )
    if (
        backbone_files.read_note(
            config.cache / "backbones" / f"{EMBEDDED}-{backbone_files.CONVERSION_FORMAT}"
        )
        is None
    ):
        words = f"{EMBEDDED} is here and not converted, which the first request that needs it does"
        return Finding("note", "backbone", words, f"fugu models pull {EMBEDDED}")
    return Finding("ok", "backbone", f"{EMBEDDED}, converted")


def _tests(loaded: LoadedConfig) -> Finding:
    from fugu_cli.testing.runner_discovery import find_test_command, missing_runner

    command = loaded.config.test_command or find_test_command(loaded.root)
    if command is None:
        advice = "without tests a Verifier's word is all there is; --test-command names them"
        return Finding("note", "tests", f"no test command found in {loaded.root}", advice)
    if missing := missing_runner(loaded.root, command):
        advice = "install it, or name another command with --test-command"
        return Finding("note", "tests", f"{command}: {missing}", advice)
    return Finding("ok", "tests", command)


def _sandbox(loaded: LoadedConfig) -> Finding:
    """Try the sandbox that commands of a session would have."""
    sandbox = build_sandbox(loaded.config, loaded.root, snapshot_store(loaded.config, loaded.root))
    try:
        mechanism = sandbox.mechanism
    except FuguError as error:
        return Finding("missing", "sandbox", str(error), error.hint)
    if mechanism.kind == "none":
        return Finding(
            "note", "sandbox", mechanism.description, f"commands run with your own rights; {ASKED}"
        )
    network = "on" if loaded.config.sandbox.network else "off"
    message = f"{mechanism.description}; network {network}; writable: the repository and a temporary folder"
    if not sandbox.holds:
        advice = f"install bubblewrap: with it only git writes the git folder; without it {ASKED}"
        return Finding("note", "sandbox", message, advice)
    return Finding("ok", "sandbox", message)


def _servers(loaded: LoadedConfig) -> Iterator[Finding]:
    """Start the MCP servers and ask for their tools."""
    from fugu_cli.extensions.mcp_servers import check_servers

    for note in loaded.servers.notes:
        yield Finding("note", "mcp", note)
    redactor = Redactor({**os.environ, **server_secrets(loaded.servers)})
    store = snapshot_store(loaded.config, loaded.root)
    rules = server_rules(loaded, build_sandbox(loaded.config, loaded.root, store))
    for name, works, message in check_servers(loaded.servers, loaded.root, StoredLogins(), rules):
        yield Finding("ok" if works else "note", "mcp", redactor.text(f"{name}: {message}"))


def _hooks(loaded: LoadedConfig) -> Iterator[Finding]:
    """Report the hooks without running them."""
    for note in loaded.hooks.notes:
        yield Finding("note", "hooks", note)
    redactor = Redactor(os.environ)
    for hook in loaded.hooks.hooks:
        if hook.fault:
            continue  # said among the notes
        tools = f" {hook.matcher or '*'}" if hook.matcher or hook.moment.endswith("ToolUse") else ""
        where = "with your rights" if hook.own else "in the sandbox"
        message = f"{hook.moment}{tools}: {hook.description} ({hook.timeout:g} s, {where}, from {hook.source})"
        yield Finding("ok", "hooks", redactor.text(message))


def _language_servers(loaded: LoadedConfig) -> Iterator[Finding]:
    """Yield findings about language servers. A server that a session would start is started in the
    same way, and ended.
    """
    from fugu_cli.extensions.language_servers import installed_servers, usable_servers

    store = snapshot_store(loaded.config, loaded.root)
    sandbox = build_sandbox(loaded.config, loaded.root, store)
    confined = False
    with suppress(FuguError):  # it is said about the sandbox
        confined = sandbox.holds
    own = own_language_servers(loaded.config)
    installed = installed_servers(loaded.root, own, confined=confined).values()
    names = ", ".join(
        dict.fromkeys(server.kind.program for servers in installed for server in servers)
    )
    if not names:
        return
    if loaded.config.diagnostics is False or loaded.config.deny_agents:
        setting = "diagnostics" if loaded.config.diagnostics is False else "deny_agents"
        yield Finding("ok", "diagnostics", f"{names}, off (`{setting}` in the configuration)")
        return
    servers = usable_servers(loaded.root, sandbox, own, trusted=loaded.trusted)
    if isinstance(servers, str):
        reason = servers.removeprefix("diagnostics: ")
        yield Finding("note", "diagnostics", f"{names}: not started; {reason}")
        return
    for program, answered in asyncio.run(_try_servers(servers)).items():
        where = "in the sandbox" if confined else "without a sandbox"
        if answered:
            yield Finding("ok", "diagnostics", f"{program} was started {where} and answered")
        else:
            yield Finding(
                "note",
                "diagnostics",
                f"{program} was started {where} and did not answer",
                f"run `{program}` yourself to see why, or set `diagnostics = false`",
            )


async def _try_servers(servers: LanguageServers) -> dict[str, bool]:
    try:
        return await servers.start_all()
    finally:
        await servers.close()


def _plugins(loaded: LoadedConfig) -> Iterator[Finding]:
    """Report the plugins in use. The configuration's notes name those that are not used."""
    for plugin in loaded.plugins:
        version = f" {plugin.version}" if plugin.version else ""
        commit = f", commit {plugin.commit[:12]}" if plugin.commit else ""
        yield Finding("ok", "plugins", f"{plugin.name}{version} ({plugin.source}{commit})")


def _skills(loaded: LoadedConfig) -> Iterator[Finding]:
    """Report skills and custom commands. `fugu skills` describes them."""
    for note in loaded.library.notes:
        yield Finding("note", "skills", note)
    if loaded.library.skills:
        yield Finding("ok", "skills", ", ".join(skill.name for skill in loaded.library.skills))
    if loaded.library.commands:
        yield Finding(
            "ok", "commands", ", ".join(f"/{command.name}" for command in loaded.library.commands)
        )
    if loaded.library.agents:
        yield Finding("ok", "subagents", ", ".join(agent.name for agent in loaded.library.agents))


def _data(loaded: LoadedConfig) -> Finding:
    """Check that sessions can be stored: create and remove a file in the nearest existing folder."""
    folder = session_store.session_folder(loaded.config.data, loaded.root)
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        probe = existing / f".fugu-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        message = f"{loaded.config.data} cannot be written: {error.strerror}"
        return Finding(
            "missing", "data", message, "set data_dir or FUGU_DATA_DIR to a folder you may write to"
        )
    return Finding("ok", "data", str(loaded.config.data))


def _disk_space(config: Config) -> Finding:
    folder = next(path for path in (config.cache, *config.cache.parents) if is_folder(path))
    free = shutil.disk_usage(folder).free
    message = f"{free / 1e9:.1f} GB free at {folder}"
    if free < MIN_FREE_BYTES:
        return Finding(
            "note",
            "disk",
            message,
            "the embedded models and the backbone need 2.6 GB; FUGU_CACHE_DIR moves them",
        )
    return Finding("ok", "disk", message)


def _terminal() -> Finding:
    encoding = getattr(sys.stdout, "encoding", None) or "unknown"
    size = shutil.get_terminal_size()
    terminal = (
        os.environ.get("TERM", "no TERM")
        if sys.stdout is not None and sys.stdout.isatty()
        else "not a terminal"
    )
    colour = ", NO_COLOR is set" if os.environ.get("NO_COLOR") else ""
    return Finding("ok", "terminal", f"{terminal}, {size.columns}x{size.lines}, {encoding}{colour}")
