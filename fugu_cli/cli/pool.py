"""The pool from the command line: `fugu pool` and `fugu pool check`, the embedded models (`fugu
models`), and the pool as an endpoint (`fugu serve`).
"""

from __future__ import annotations

import asyncio
import glob
import math
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import server, wiring
from fugu_cli.cli.command_flags import ClientName, ServeFlags
from fugu_cli.cli.current_folder import (
    check_embedded,
    current_config,
    local_servers,
    missing_models,
    needed_models,
    print_clean,
    say,
)
from fugu_cli.cli.flags import settings_of
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import (
    EMBEDDED,
    has_assumed_price,
    unready_services,
    unusable_entries,
    usable_pool,
)
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.config.schema import AgentEntry
from fugu_cli.coordinators.trinity import EMBEDDED as BACKBONE
from fugu_cli.errors import AgentError, InfrastructureError, ModelFileError, UsageError
from fugu_cli.formatting import aligned_rows, compact_number, shorten
from fugu_cli.local.sources import FetchProgress
from fugu_cli.local.store import Store
from fugu_cli.messages import Call, FromUser, Prompt, Reply, ToolSpec
from fugu_cli.providers import Agent, Pause, Say
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.ui.output_stream import OutputStream

if TYPE_CHECKING:
    from fugu_cli.local.small_model import FillIn
    from fugu_cli.providers.local_servers import LocalServer


def list_models() -> int:
    """List the models: name, size, whether they are here, licence, description."""
    store = _store()
    width = max(len(model.name) for model in store.models)
    for model in store.models:
        state = "here" if store.find(model.name) else "not here"
        print_clean(
            f"{model.name:<{width}}  {_size(model.size):>7}  {state:<8}  {model.licence}  {model.title}"
        )
    return 0


def pull_models(names: Sequence[str]) -> int:
    """Fetch the named models; without names those the pool uses, or the embedded pool's."""
    loaded = current_config()
    store = Store(loaded.config.cache)
    models = list(
        dict.fromkeys(
            names or needed_models(loaded.config, os.environ) or (entry.model for entry in EMBEDDED)
        )
    )
    missing = [name for name in models if store.find(name) is None]
    if missing:
        total = sum(store.model(name).size for name in missing)
        print(f"fetching {', '.join(missing)}: {_size(total)} into {store.folder}", file=sys.stderr)
    for name in models:
        print_clean(str(asyncio.run(store.pull(name, ProgressBar()))))
    if BACKBONE in models and find_spec("torch") is not None:
        _convert_backbone(loaded.config.cache)
    return 0


def _convert_backbone(cache: Path) -> None:
    """Make the coordinator's model ready, so that no request waits for it. A failure is a note: the
    model itself is here.
    """
    from fugu_cli.coordinators import backbone_files

    bar = ProgressBar()

    def report(share: float, step: str) -> None:
        done = round(share * backbone_files.NEEDED_BYTES)
        bar(FetchProgress(done, backbone_files.NEEDED_BYTES, step))

    try:
        backbone_files.backbone_folder(cache / "models" / f"{BACKBONE}.gguf", cache, report)
    except InfrastructureError as error:
        say(f"{error} {error.hint}")


def remove_models(names: Sequence[str]) -> int:
    """Delete models and the coordinator's backbone that was converted from them. Print the space
    freed.
    """
    cache = current_config().config.cache
    store = Store(cache)
    for name in names:
        store.model(name)  # a name that does not exist is said before anything is deleted
    for name in names:
        print_clean(f"{name}: {_size(store.remove(name) + _remove_converted(cache, name))} freed")
    return 0


def _remove_converted(cache: Path, name: str) -> int:
    """Delete the backbones that were converted from a model; how many bytes they had."""
    freed = 0
    for folder in (cache / "backbones").glob(f"{glob.escape(name)}-[0-9]*"):
        if folder.is_dir() and not folder.is_symlink():
            freed += sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
            shutil.rmtree(folder, ignore_errors=True)
    return freed


def print_model_path(name: str) -> int:
    """Print a model's file, or the folder of all. Raises ModelFileError when it is not here."""
    store = _store()
    if not name:
        print_clean(str(store.folder))
        return 0
    path = store.find(name)
    if path is None:
        raise ModelFileError(
            f"{name} is not on this machine yet", hint=f"fetch it with `fugu models pull {name}`"
        )
    print_clean(str(path))
    return 0


class ProgressBar:
    """Progress on standard error: one line that moves on a terminal, a line every ten seconds in a
    log.
    """

    def __init__(self) -> None:
        self._pen = OutputStream(sys.stderr)
        self._shown_text = ""
        self._at = 0.0

    def __call__(self, progress: FetchProgress) -> None:
        timestamp = time.monotonic()
        done = progress.done >= progress.total
        pause = 0.1 if self._pen.terminal else 10.0
        if not done and progress.what == self._shown_text and timestamp - self._at < pause:
            return
        self._shown_text, self._at = progress.what, timestamp
        share = progress.done / progress.total if progress.total else 1.0
        filled = "#" * int(share * 24)
        line = f"[{filled:<24}] {share:4.0%}  {_size(progress.done)} of {_size(progress.total)}  {progress.what}"
        if self._pen.terminal:
            self._pen.raw("\r\x1b[K" + shorten(line, 110) + ("\n" if done else ""))
        else:
            self._pen.line(line)


def _store() -> Store:
    return Store(current_config().config.cache)


def _size(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


PROBE_TOKENS = 200
"""Tokens of a probe's reply: a model that runs on to it has not understood."""
THINKING_TOKENS = 4096
"""Tokens of a second try, where the first was used up before a word of the answer: a model that
reasons first.
"""
PROBE_TOOL = ToolSpec(
    name="add_numbers",
    description="Add two whole numbers and return the sum.",
    parameters='{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, '
    '"required": ["a", "b"]}',
)
STOCK_TOOL = ToolSpec(
    name="pieces_in_stock",
    description="Return how many pieces of an article are in stock.",
    parameters='{"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}',
)
PROBE_SCHEMA = (
    '{"type": "object", "properties": {"capital": {"type": "string"}}, "required": ["capital"], '
    '"additionalProperties": false}'
)


PROBE_INFILL = "def double(number):\n    return ", "\n\n\nassert double(21) == 42\n"
"""The text before and behind the line that a model is asked to fill in."""
INFILL_ANSWER = re.compile(r"number ?\* ?2|2 ?\* ?number|number ?\+ ?number|number << 1")


@dataclass(frozen=True)
class AgentProbe:
    """The result of probing an agent. With `failure` the other fields are unknown. `first` and
    `seconds` are durations of the first call.
    """

    streams: bool = False
    tools: bool = False
    schema: bool = False
    first: float = 0.0
    seconds: float = 0.0
    output: int = 0
    fills: bool | None = None
    """None: not asked for."""
    failure: str = ""

    @property
    def speed(self) -> float:
        """Tokens a second after the first one, 0 if there are too few to tell."""
        writing = self.seconds - self.first
        return self.output / writing if writing > 0.05 and self.output > 1 else 0.0


async def probe_agent(agent: Agent, fill: FillIn | None = None) -> AgentProbe:
    """Call the agent three times, and `fill` once, which fills in a line. A failure is part of the
    result and never raised.
    """
    prompt = Prompt(
        system="You answer briefly.",
        messages=(FromUser(text="Write the numbers from 1 to 10, separated by commas."),),
        max_tokens=PROBE_TOKENS,
    )
    started = time.monotonic()
    piece_times: list[float] = []

    def note_time(text: str) -> None:
        piece_times.append(time.monotonic() - started)

    try:
        reply = await _ask(agent, prompt, note_time)
        seconds = time.monotonic() - started
        calls_tools = await _succeeds(_calls_tools(agent))
        keeps_schema = await _succeeds(_keeps_schema(agent))
        fills = None
        if fill is not None:
            fills = await _succeeds(_fills_in(fill))
    except AgentError as error:
        return AgentProbe(failure=f"{error}; {error.hint}" if error.hint else str(error))
    return AgentProbe(
        streams=len(piece_times) > 1,
        tools=calls_tools,
        schema=keeps_schema,
        fills=fills,
        first=piece_times[0] if piece_times else seconds,
        seconds=seconds,
        output=reply.usage.output,
    )


async def _ask(agent: Agent, prompt: Prompt, say: Say) -> Reply:
    reply = await agent.reply(prompt, say, _ignore_pause)
    if reply.stop == "length" and not reply.text and not reply.calls:
        return await agent.reply(
            prompt.model_copy(update={"max_tokens": THINKING_TOKENS}), say, _ignore_pause
        )
    return reply


async def _succeeds(request: Awaitable[bool]) -> bool:
    """Return the answer, False if the server refuses such a request. Other errors are raised."""
    try:
        return await request
    except AgentError as error:
        if error.kind not in ("invalid", "absent", "protocol"):
            raise
        return False
    except (ValueError, TypeError):
        return False


async def _calls_tools(agent: Agent) -> bool:
    prompt = Prompt(
        system="Use the tools you are given.",
        messages=(FromUser(text="What is 18 + 24? Use the tool."),),
        tools=(PROBE_TOOL,),
        max_tokens=PROBE_TOKENS,
    )
    reply = await _ask(agent, prompt, _ignore_text)
    if not reply.calls:
        # many models add two numbers without a tool: ask what only the tool knows
        question = FromUser(text="How many pieces of the article A17 are in stock?")
        stock_prompt = prompt.model_copy(update={"messages": (question,), "tools": (STOCK_TOOL,)})
        reply = await _ask(agent, stock_prompt, _ignore_text)
        return any("A17" in _values(call) for call in reply.calls)
    return any(sorted(_values(call)) == ["18", "24"] for call in reply.calls)


def _values(call: Call) -> list[str]:
    """Return the arguments' values as text: numbers in quotes call a tool as well."""
    arguments = parse_json(call.arguments)
    return [str(value) for value in arguments.values()] if isinstance(arguments, dict) else []


async def _keeps_schema(agent: Agent) -> bool:
    prompt = Prompt(
        system="You answer in JSON.",
        messages=(FromUser(text="What is the capital of France?"),),
        max_tokens=PROBE_TOKENS,
        reply_schema=PROBE_SCHEMA,
    )
    return list(parse_json((await _ask(agent, prompt, _ignore_text)).text)) == ["capital"]


async def _fills_in(fill: FillIn) -> bool:
    reply = await fill(*PROBE_INFILL, _ignore_pause)
    return INFILL_ANSWER.search(reply.text) is not None


def _ignore_text(text: str) -> None:
    del text


def _ignore_pause(pause: Pause) -> None:
    del pause


ENTRY_FIELDS = {
    *("provider", "model", "base_url", "api", "api_key_env", "effort"),
    *("infill", "temperature", "max_tokens", "headers", "body"),
}
"""Fields that change a call. Entries that agree in all of them are called once."""


def show_pool() -> int:
    """List the agents. Raises ConfigError if none can be used."""
    loaded = current_config()
    entries = usable_pool(loaded.config, os.environ)
    header = (
        "name",
        "slot",
        "provider",
        "model",
        "vendor",
        "protocol",
        "context",
        "USD per million in/out",
    )
    for line in aligned_rows([header, *(_cells(entry, loaded.config) for entry in entries)]):
        print_clean(line)
    if any(has_assumed_price(entry, loaded.config) for entry in entries):
        print_clean("~ assumed: what others ask for the model, since its server is not in the list")
    for entry in unusable_entries(loaded.config, os.environ):
        print_clean(f"left out: {entry.name} ({entry.reason})")
    if not loaded.config.agents:
        for service in unready_services(os.environ):
            _print_lines(f"not in the pool: {service.name}: {service.reason}")
    missing, gigabytes = missing_models(loaded.config, os.environ)
    if any(entry.model in missing for entry in entries):
        print_clean(
            f"not on this machine yet: {', '.join(missing)} ({gigabytes:.1f} GB); "
            "`fugu models pull` fetches them"
        )
    for name in loaded.config.opt_out:
        print_clean(f"opted out: {name}")
    breaker = wiring.build_circuit_breaker(entries, os.environ, {}, loaded.config.data)
    for name, reason in breaker.unavailable().items():
        print_clean(
            f"unavailable: {name} ({reason}); `/retry {name}` in a session tries it at once"
        )
    print_clean(
        "agents that failed in a session for another reason: `/pool` in that session names them"
    )
    if loaded.config.agents:
        origin = ", ".join(str(path) for path in loaded.files) or "the command line"
    else:
        origin = "the keys that are set or kept, or the embedded models where there are none"
    print_clean(f"decided by: {loaded.config.coordinator}; from {origin}")
    if loaded.config.coordinator == "trinity":
        from fugu_cli.cli.pool_skills import print_estimates

        print_estimates(loaded, tuple(entry.member() for entry in entries))
    for local_server in local_servers(loaded.config):
        print_clean(_offer(local_server))
    return 0


def forget_outcomes() -> int:
    """Let no outcome count that there is so far; the sessions stay. Raises StorageError."""
    wiring.build_outcomes(current_config()).forget()
    print_clean("outcomes so far no longer count; sessions are kept")
    return 0


SHOWN = 5
"""Models of a server that are named."""


def _offer(local_server: LocalServer) -> str:
    """Describe a server that was found, and the command that adds a model of it to the pool."""
    names = ", ".join(local_server.models[:SHOWN])
    if len(local_server.models) > SHOWN:
        names += ", ..."
    model = shlex.quote(local_server.models[0])
    return (
        f"found: {local_server.base_url}, where {local_server.name} listens, offers {names}; "
        f"`fugu login --base-url {local_server.base_url} --model {model}` adds one to the pool"
    )


def _print_lines(text: str) -> None:
    for line in text.splitlines():
        print_clean(line)


def _cells(entry: AgentEntry, config: Config) -> tuple[str, ...]:
    price = f"{entry.rates.input:g} / {entry.rates.output:g}" if entry.rates else "unknown"
    if entry.rates and has_assumed_price(entry, config):
        price = f"~{price}"
    return (
        entry.name,
        entry.slot or "",
        f"{entry.provider} ({entry.api})" if entry.api == "responses" else entry.provider,
        entry.model,
        entry.vendor or "?",
        entry.protocol or "",
        compact_number(entry.context or 0),
        price,
    )


def check_pool() -> int:
    """Call every agent; 0 when all answered, 2 when one did not."""
    loaded = current_config()
    return asyncio.run(_check_agents(loaded, usable_pool(loaded.config, os.environ)))


async def _check_agents(loaded: LoadedConfig, entries: Sequence[AgentEntry]) -> int:
    # The bare agent is asked, not the one that speaks its protocol: what it could speak is the
    # question.
    bare = [entry.model_copy(update={"protocol": "native"}) for entry in entries]
    resources = wiring.AgentResources(loaded.config.cache, loaded.config.local_idle)
    agents = wiring.build_agents(bare, os.environ, resources)
    filling = wiring.build_agents(
        [candidate for candidate in entries if candidate.infill], os.environ, resources
    )
    probes: dict[str, AgentProbe] = {}
    try:
        for entry in entries:
            same = entry.model_dump_json(include=ENTRY_FIELDS)
            if same not in probes:
                probes[same] = await probe_agent(
                    agents[entry.name], _fill_of(filling.get(entry.name))
                )
            print_clean(f"{entry.name}: {_probe_cells(probes[same], entry)}")
    finally:
        for agent in (*agents.values(), *filling.values()):
            await agent.close()
    return 2 if any(probe.failure for probe in probes.values()) else 0


def _fill_of(agent: Agent | None) -> FillIn | None:
    """Return how the agent's model fills in a line, None where it cannot."""
    if agent is None:
        return None
    from fugu_cli.local.small_model import SmallModel

    return agent.fill if isinstance(agent, SmallModel) else None


def _probe_cells(probe: AgentProbe, entry: AgentEntry) -> str:
    if probe.failure:
        return f"does not answer: {probe.failure}"
    can = [("streams", probe.streams), ("tools", probe.tools), ("schema", probe.schema)]
    can += [("fills in a line", probe.fills)] if probe.fills is not None else []
    words = ", ".join(f"{name} {'yes' if able else 'no'}" for name, able in can)
    speed = f", {probe.speed:.0f} tokens/s" if probe.speed else ""
    advice = ""
    if entry.protocol == "native" and not probe.tools and entry.provider != "scripted":
        advice = '; it called no tool: set protocol = "text"'
    if probe.fills is False:
        advice += "; it filled in no line: leave `infill` out"
    loading = " (with loading it)" if entry.provider == "local" else ""
    return f"answers, first words after {probe.first:.1f} s{loading}{speed}; {words}{advice}"


def serve(flags: ServeFlags) -> int:
    """Serve until a stop is requested, then return 0. Raises FuguError if it cannot begin."""
    if not all(map(math.isfinite, (flags.max_request_mb, flags.request_timeout, flags.grace))):
        raise UsageError("limits must be finite numbers", hint="`fugu serve --help` lists them")
    token = os.environ.get(flags.token_env, "").strip() or None
    address = server.ListenAddress(
        flags.host,
        flags.port,
        token,
        flags.grace,
        tuple(flags.allow_origin or ()),
        web=flags.web,
        web_origin=flags.web_origin,
    )
    bounds = server.EndpointLimits(
        round(flags.max_request_mb * 1024 * 1024), flags.request_timeout, flags.max_concurrent
    )
    server.check_address(address, bounds, flags.token_env)
    from fugu_cli import server_wiring
    from fugu_cli.system import signals

    loaded = current_config(settings_of(flags))
    if flags.write_client is not None:
        return _write_client(flags, flags.write_client, loaded.config)
    if flags.remove:
        raise UsageError("--remove needs --write-client", hint="`fugu help clients` has examples")
    if flags.replica:
        money = loaded.config.money
        names = [name for name in ("day", "project") if getattr(money, name) is not None]
        if names:
            raise UsageError(
                f"replicas cannot keep the budget of a {' or '.join(names)}: machines share no account",
                hint="set max_budget_usd = { request = ... }, and keep the sum in a gateway in front",
            )
    for note in check_embedded(loaded.config, os.environ):
        say(note)

    async def served() -> int:
        code = await server_wiring.run_server(loaded, address, bounds, say)
        signals.exit_on_signals(asyncio.get_running_loop(), code)
        return code

    return asyncio.run(served())


def _write_client(flags: ServeFlags, client: ClientName, config: Config) -> int:
    from fugu_cli.cli import client_files
    from fugu_cli.server.model_list import served_models

    if flags.remove:
        path = client_files.remove_client(client, config.data)
        message = f"fugu's values are taken out of {path}" if path else "nothing was written"
        print_clean(f"{client}: {message}")
        return 0
    if flags.port == 0:
        raise UsageError(
            "a client needs a port that stays", hint="--port N, and the same for `fugu serve`"
        )
    members = {
        entry.name: entry.member()
        for entry in usable_pool(config, os.environ)
        if entry.name not in config.opt_out
    }
    host = f"[{flags.host}]" if ":" in flags.host else flags.host
    endpoint = client_files.EndpointForClients(
        url=f"http://{host}:{flags.port}",
        models=served_models(members, {}, created=0),
        token_variable=flags.token_env if os.environ.get(flags.token_env) else "",
    )
    path = client_files.write_client(client, endpoint, config.data, os.environ)
    print_clean(
        f"{client}: {path} now names {endpoint.url}; start `fugu serve` there, and "
        f"`fugu serve --write-client {client} --remove` takes it back"
    )
    return 0
