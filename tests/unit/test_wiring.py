"""From a configuration to a session that runs, is continued, and leaves the facts a rollout would
leave.
"""

import asyncio
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fugu_cli import wiring
from fugu_cli.config import kept_keys
from fugu_cli.config import trust as config_trust
from fugu_cli.config.loader import LoadedConfig, Setting, load_config
from fugu_cli.coordinators import rules
from fugu_cli.engine import availability, orchestrator, undo
from fugu_cli.errors import ConfigError, SessionBusy, UsageError
from fugu_cli.providers.circuit_breaker import CircuitBreaker
from fugu_cli.session import store
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Failed,
    Finished,
    Member,
    Opened,
    OutcomesKnown,
    ToolRan,
)
from fugu_cli.session.log import Log
from tests.facts import asked, assigned, checked, ran, replied, write
from tests.reacting import never, repository

SCRIPTS = {
    "cheap": """
[[step]]
text = "I look."
calls = [{ tool = "read", arguments = { path = "calc.txt" } }]
usage = { input = 100, output = 10 }
[[step]]
calls = [{ tool = "write", arguments = { path = "calc.txt", content = "wrong\\n" } }]
[[step]]
text = "I tried."
[[step]]
text = "I leave it so."
[[step]]
text = "ACCEPT"
[[step]]
text = "once more"
""",
    "middle": """
[[step]]
error = { kind = "refused", message = "no key" }
[[step]]
calls = [{ tool = "read", arguments = { path = "calc.txt" } }]
[[step]]
calls = [{ tool = "edit", arguments = { path = "calc.txt", old = "broken", new = "fixed" } }]
[[step]]
text = "I changed one word."
""",
    "strong": """
[[step]]
calls = [
    { tool = "read", arguments = { path = "calc.txt" } },
    { tool = "bash", arguments = { command = "rm -rf ../x" } },
]
[[step]]
calls = [{ tool = "write", arguments = { path = "calc.txt", content = "fixed\\n" } }]
[[step]]
text = "It is fixed."
[[step]]
text = "ACCEPT"
""",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo").resolve()


def configured(root: Path, *names: str, **flags: Setting) -> LoadedConfig:
    """A configuration with scripted agents."""
    lines = ['coordinator = "cascade"', 'test_command = "sh check.sh"']
    for name in names or tuple(SCRIPTS):
        script = root.parent / f"{name}.toml"
        script.write_text(SCRIPTS[name])
        lines += [
            "[[agents]]",
            f'name = "{name}"',
            'provider = "scripted"',
            f'model = "{script}"',
            f'slot = "{name}"',
        ]
    (Path.home() / ".fugurc").write_text("\n".join(lines))
    return load_config(root, {}, flags)


async def driven(
    loaded: LoadedConfig, text: str | None, resume: Path | None = None
) -> tuple[Finished, list[Event], Path]:
    session = wiring.build_session(loaded, {}, never, resume)
    try:
        if text is None:
            assert session.go_on()
        else:
            await session.ask(text)
        end = await session.run()
        assert session.log.path is not None
        return end, list(session.log.events), session.log.path
    finally:
        await session.close()


def timeless(events: list[Event]) -> list[Event]:
    """Facts without what the clock said."""
    clocks = {"seconds": 0.0, "milliseconds": {}, "seconds_left": ()}
    return [
        type(event).model_validate({**event.model_dump(), **_there(event, clocks)})
        for event in events
    ]


def _there(event: Event, values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in type(event).model_fields}


def test_a_session_and_a_rollout_with_the_same_agents_leave_the_same_facts(root: Path) -> None:
    loaded = configured(root)
    end, events, _ = asyncio.run(driven(loaded, "fix the tests"))
    assert end.reason == "accepted"
    assert {"failed", "assigned", "replied", "permitted", "tool_ran"} <= {
        event.type for event in events
    }
    (root / "calc.txt").write_text("broken\n")

    async def rollout() -> list[Event]:
        session = wiring.build_session(loaded, {}, never)
        log = Log.memory(session.log.events)
        rolled = replace(session, log=log)
        try:
            await rolled.ask("fix the tests")
            await orchestrator.run(log, rolled.team, rolled.environment)
            return list(log.events)
        finally:
            await session.close()

    assert timeless(asyncio.run(rollout())) == timeless(events)


def test_a_session_opens_with_what_is_needed_to_read_it_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "GIT_DIR", str(root.parent / "another.git")
    )  # as a git hook that starts fugu has it
    _, events, path = asyncio.run(driven(configured(root, "strong", "cheap"), "what is it?"))
    opened = events[0]
    assert isinstance(opened, Opened)
    assert (opened.repo, opened.coordinator, [member.name for member in opened.pool]) == (
        str(root),
        "cascade",
        ["strong", "cheap"],
    )
    assert opened.commit is not None
    assert len(opened.commit) == 40
    assert path.parent.parent == Path(path.parents[2]) / "sessions"
    (asked,) = (event for event in events if isinstance(event, Asked))
    assert (asked.test_command, asked.until, asked.snapshot is None) == ("sh check.sh", (), False)


def test_a_session_goes_on_where_it_stopped_with_another_pool(root: Path) -> None:
    wanted = {"until_pass": True}
    end, events, path = asyncio.run(
        driven(configured(root, "cheap", max_turns=1, tests=wanted), "fix the tests")
    )
    assert end.reason == "turn_limit"
    end, events, again = asyncio.run(driven(configured(root, "strong"), None, path))
    assert (end.reason, again) == ("accepted", path)
    assert (root / "calc.txt").read_text() == "fixed\n"
    assert len([event for event in events if isinstance(event, Opened)]) >= 2
    assert [event.agent for event in events if isinstance(event, Assigned)] == [
        "cheap",
        "strong",
        "strong",
    ]


def test_a_script_goes_on_at_the_step_the_log_stands_at(root: Path) -> None:
    loaded = configured(root, "cheap", max_turns=1)
    _, _, path = asyncio.run(driven(loaded, "fix the tests"))
    end, events, _ = asyncio.run(driven(configured(root, "cheap"), "what now?", path))
    assert end == Finished(reason="answered")
    assert [event.text for event in events if event.type == "replied"][-1] == "ACCEPT"


def test_agents_that_failed_are_tried_again_when_the_request_is_opened_again(root: Path) -> None:
    loaded = configured(root, "middle")
    end, events, path = asyncio.run(driven(loaded, "fix the tests"))
    assert end.reason == "failed"
    assert [event.kind for event in events if isinstance(event, Failed)] == ["refused"]
    without_the_error = SCRIPTS["middle"].partition("[[step]]\n")[2].partition("\n")[2]
    (root.parent / "middle.toml").write_text(without_the_error)
    end, _, _ = asyncio.run(driven(loaded, None, path))
    assert (root / "calc.txt").read_text() == "fixed\n"
    assert end.reason == "failed", "the script ends before somebody verifies"


def test_what_is_finished_is_not_opened_again(root: Path) -> None:
    loaded = configured(root, "strong")
    _, events, path = asyncio.run(driven(loaded, "fix the tests"))

    async def opened() -> tuple[bool, int]:
        session = wiring.build_session(loaded, {}, never, path)
        try:
            return session.go_on(), len(session.log.events)
        finally:
            await session.close()

    assert events[-1] == Finished(
        reason="accepted",
        message="accepted by its own author strong",
        accepted_by="author",
        judge="strong",
    )
    assert asyncio.run(opened()) == (False, len(events))


def test_a_second_writer_is_refused(root: Path) -> None:
    loaded = configured(root, "cheap")

    async def both() -> None:
        session = wiring.build_session(loaded, {}, never)
        try:
            with pytest.raises(SessionBusy):
                wiring.build_session(loaded, {}, never, session.log.path)
        finally:
            await session.close()

    asyncio.run(both())


@pytest.mark.parametrize(
    ("flags", "command", "until"),
    [
        ({}, "sh check.sh", ()),
        ({"tests": {"until_pass": True}}, "sh check.sh", ("sh check.sh",)),
        (
            {"tests": {"until": ["make docs", "sh check.sh"]}},
            "sh check.sh",
            ("make docs", "sh check.sh"),
        ),
        ({"permission_mode": "plan"}, None, ()),
        ({"deny": ["run_tests"]}, None, ()),
    ],
)
def test_a_request_has_the_test_command_that_may_run_and_the_checks_that_the_user_named(
    root: Path, flags: dict[str, Setting], command: str | None, until: tuple[str, ...]
) -> None:
    found = asyncio.run(asks(configured(root, "cheap", **flags)))
    assert (found.test_command, found.until) == (command, until)


async def asks(loaded: LoadedConfig) -> Asked:
    session = wiring.build_session(loaded, {}, never)
    try:
        await session.ask("fix the tests")
        newest = session.log.events[-1]
        assert isinstance(newest, Asked)
        return newest
    finally:
        await session.close()


def test_tests_that_must_pass_and_cannot_run_are_refused_before_anything_is_asked(
    root: Path,
) -> None:
    loaded = configured(root, "cheap", deny=("run_tests",), tests={"until_pass": True})
    with pytest.raises(
        UsageError, match="the tests are to pass, and no test command can be run here"
    ):
        asyncio.run(asks(loaded))


def test_what_is_missing_is_said(root: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    loaded = configured(root, "cheap")

    async def notes() -> tuple[str, ...]:
        session = wiring.build_session(replace(loaded, root=bare), {}, never)
        try:
            return session.notes()
        finally:
            await session.close()

    assert [note.partition(":")[0] for note in asyncio.run(notes())] == [
        "this is not a git repository"
    ]


def test_a_request_is_undone_exactly_and_that_is_recorded(root: Path) -> None:
    loaded = configured(root, "strong", "cheap")
    (root / "mine.txt").write_text("untracked\n")

    async def undone() -> tuple[str, Event]:
        session = wiring.build_session(loaded, {}, never)
        try:
            with pytest.raises(UsageError):
                await undo.undo_request(session.log, session.environment.workspace)
            await session.ask("fix the tests")
            await session.run()
            (root / "mine.txt").write_text("my own edit\n")
            preview = await undo.undo_preview(session.log, session.environment.workspace)
            await undo.undo_request(session.log, session.environment.workspace)
            return preview, session.log.events[-1]
        finally:
            await session.close()

    preview, newest = asyncio.run(undone())
    assert "+broken" in preview
    assert newest.type == "undone"
    assert (root / "calc.txt").read_text() == "broken\n"
    assert (root / "mine.txt").read_text() == "my own edit\n"


def test_a_data_folder_inside_the_repository_is_no_part_of_it(root: Path) -> None:
    loaded = configured(root, "strong", "cheap", data_dir=str(root / ".fugu"))

    async def undone() -> tuple[set[str], Path]:
        session = wiring.build_session(loaded, {}, never)
        try:
            await session.ask("fix the tests")
            await session.run()
            await undo.undo_request(session.log, session.environment.workspace)
            runs = [event for event in session.log.events if isinstance(event, ToolRan)]
            changed = {change.path for run in runs for change in run.changes}
            assert session.log.path is not None
            return changed, session.log.path
        finally:
            await session.close()

    changed, path = asyncio.run(undone())
    assert changed == {"calc.txt"}
    assert path.is_relative_to(root / ".fugu")
    assert b"undone" in path.read_bytes()
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True
    )
    assert ".fugu" not in status.stdout


def test_the_mode_and_the_pin_hold_from_the_next_call_on(root: Path) -> None:
    async def changed() -> list[object]:
        session = wiring.build_session(configured(root), {}, never)
        try:
            session.set_mode("plan")
            session.pin("strong")
            pinned = session.team.coordinator
            session.pin(None)
            return [session.environment.rules.mode, type(pinned), type(session.team.coordinator)]
        finally:
            await session.close()

    assert asyncio.run(changed()) == ["plan", rules.Single, rules.Cascade]


def test_who_is_unavailable_is_tried_at_once_where_the_user_says_so(root: Path) -> None:
    async def called() -> list[list[str]]:
        session = wiring.build_session(configured(root), {}, never)
        breaker = session.team.breaker
        assert isinstance(breaker, CircuitBreaker)
        for name in SCRIPTS:
            breaker.failed(name, "credit")
        found = [sorted(breaker.unavailable())]
        for step in (
            lambda: session.pin(None),
            lambda: session.pin("strong"),
            lambda: availability.wake(session.team, session.team.members),
        ):
            step()
            found.append(sorted(breaker.unavailable()))
        await session.close()
        return found

    everybody = sorted(SCRIPTS)
    others = [name for name in everybody if name != "strong"]
    assert asyncio.run(called()) == [everybody, everybody, others, []]


@pytest.mark.parametrize(
    ("rule", "kind"),
    [("cascade", rules.Cascade), ("random", rules.Random), ("single:cheap", rules.Single)],
)
def test_a_rule_needs_no_model(root: Path, rule: str, kind: type) -> None:
    loaded = configured(root, coordinator=rule)
    coordinator, checkpoint, warm = wiring.build_coordinator(loaded.config, ())
    warm()
    assert (type(coordinator), checkpoint) == (kind, None)


def test_a_secret_of_a_server_is_in_no_diff(root: Path) -> None:
    given = {"command": "true", "env": {"ISSUES_TOKEN": "t0ken-of-mine"}}
    (Path.home() / ".mcp.json").write_text(json.dumps({"mcpServers": {"issues": given}}))

    async def shown(loaded: LoadedConfig) -> bytes:
        session = wiring.build_session(loaded, {}, never)
        await session.close()
        return session.environment.workspace.shown(b"+t0ken-of-mine\n")

    assert b"t0ken" not in asyncio.run(shown(configured(root, "cheap")))


def test_the_tokens_of_a_login_at_a_server_are_in_no_diff(root: Path) -> None:
    address = "https://docs.example.org/mcp"
    entry = {"type": "http", "url": address}
    (Path.home() / ".mcp.json").write_text(json.dumps({"mcpServers": {"docs": entry}}))
    tokens = {"access_token": "acc3ss-of-mine", "refresh_token": "r3fresh-of-mine"}
    kept_keys.StoredLogins().keep(address, json.dumps({"tokens": tokens}))

    async def shown(loaded: LoadedConfig) -> bytes:
        session = wiring.build_session(loaded, {}, never)
        await session.close()
        return session.environment.workspace.shown(b"+acc3ss-of-mine\n+r3fresh-of-mine\n")

    assert b"of-mine" not in asyncio.run(shown(configured(root, "cheap")))


def test_standing_instructions_count_only_in_a_trusted_folder(root: Path) -> None:
    (root / "AGENTS.md").write_text("Use tabs.")
    loaded = configured(root, "cheap")

    async def instructions(loaded: LoadedConfig) -> str:
        session = wiring.build_session(loaded, {}, never)
        await session.close()
        return session.environment.instructions

    assert asyncio.run(instructions(loaded)) == ""
    config_trust.trust(loaded.config.data, root)
    assert "Use tabs." in asyncio.run(instructions(load_config(root, {})))


def test_instructions_of_folders_down_to_where_the_user_works_come_after_the_roots(
    root: Path,
) -> None:
    work = root / "pkg/inner/src"
    work.mkdir(parents=True)
    for folder, text in (
        (root, "Root."),
        (root / "pkg", "Pkg."),
        (root / "pkg/inner", "Inner." + "x" * 39000),
    ):
        (folder / "AGENTS.md").write_text(text)
    configured(root, "cheap")

    async def instructions(folder: Path, *, trust: bool = False) -> str:
        session = wiring.build_session(load_config(folder, {}, trust=trust), {}, never)
        await session.close()
        return session.environment.instructions

    said = "\nThe user's standing instructions (AGENTS.md"
    data = load_config(root, {}).config.data
    assert asyncio.run(instructions(work)) == ""
    config_trust.trust(data, root)
    assert asyncio.run(instructions(root)) == f"{said}):\nRoot."
    (cut,) = load_config(work, {}).notes
    assert (
        cut == f"{root}/pkg/inner/AGENTS.md: agents are shown its first 31,991 of 39,006 characters"
    )
    whole = asyncio.run(instructions(work))
    assert whole.startswith(f"{said}):\nRoot.\n{said} of pkg/, for work there):\nPkg.")
    assert whole.endswith(f"{said} of inner/, for work there):\nInner.{'x' * 31985}")
    (root / "pkg/AGENTS.md").write_text("Changed.")
    (root / "pkg/inner/AGENTS.md").write_text("Changed.")
    assert asyncio.run(instructions(work)) == f"{said}):\nRoot."
    assert "Changed." in asyncio.run(instructions(work, trust=True))


def test_every_provider_and_protocol_makes_an_agent_that_calls_nobody_yet(root: Path) -> None:
    entries = "\n".join(
        f'[[agents]]\nname = "{provider}-{protocol}"\nprovider = "{provider}"\nmodel = '
        f'"m"\nprotocol = "{protocol}"\n'
        f'api_key_env = "KEY"\nprice = {{ input = 1.0, output = 1.0 }}'
        for provider in ("openai", "anthropic", "local")
        for protocol in ("native", "schema", "text")
    )
    (Path.home() / ".fugurc").write_text(entries)
    loaded = load_config(root, {})
    config = loaded.config
    agents = wiring.build_agents(
        config.agents, {"KEY": "k"}, wiring.AgentResources(config.cache, config.local_idle)
    )
    assert (
        [agent.name for agent in agents.values()]
        == list(agents)
        == [entry.name for entry in config.agents]
    )
    assert not config.cache.exists()


def test_a_script_that_is_not_there_is_refused_before_a_session_is_begun(root: Path) -> None:
    loaded = configured(root, "cheap")
    (root.parent / "cheap.toml").unlink()
    with pytest.raises(ConfigError, match=r"cheap\.toml cannot be read"):
        wiring.build_session(loaded, {}, never)
    assert not (loaded.config.data / "sessions").exists()


def test_what_is_known_of_outcomes_is_written_down_when_a_request_is_asked(root: Path) -> None:
    (Path.home() / ".fugurc").write_text(
        'coordinator = "trinity"\n[[agents]]\nname = "a"\nprovider = "openai"\nmodel = "m"\n'
        'base_url = "http://127.0.0.1:9/v1"\nslot = "strong"\n'
    )
    loaded = load_config(root, {}, {})
    pool = (Member(name="a", provider="openai", model="m", slot="strong"),)
    earlier = Log.create(store.new_path(loaded.config.data, root))
    call = write("w1")
    for event in (
        Opened(version="1", repo=str(root), pool=pool),
        asked(),
        assigned(1, "a"),
        replied(1, "a", "", call),
        *ran(1, call, path="calc.txt"),
        replied(1, "a", "Done."),
        *checked(1, ok=True),
    ):
        earlier.append(event)
    earlier.close()

    async def asked_events(*, learns: bool) -> list[Event]:
        session = wiring.build_session(loaded, {}, never, learns=learns)
        try:
            await session.ask("fix the tests")
            return list(session.log.events)
        finally:
            await session.close()

    (known,) = (
        event
        for event in asyncio.run(asked_events(learns=True))
        if isinstance(event, OutcomesKnown)
    )
    assert [(count.agent, count.successes, count.trials) for count in known.counts] == [
        ("a", 1.0, 1.0)
    ]
    assert not any(
        isinstance(event, OutcomesKnown) for event in asyncio.run(asked_events(learns=False))
    )
