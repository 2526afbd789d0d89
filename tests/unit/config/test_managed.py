"""The administrator's settings: nothing of a user's widens them, and a broken file starts nothing."""

from pathlib import Path

import pytest

from fugu_cli.app.open_session import Session
from fugu_cli.config.loader import LoadedConfig, load_config
from fugu_cli.errors import ConfigError, UsageError
from fugu_cli.extensions.mcp_settings import DeclaredServers, McpServer, RemoteServer, StdioServer
from fugu_cli.extensions.plugin_sources import parse_address
from fugu_cli.extensions.plugin_store import fetch_plugin, keep_plugin
from fugu_cli.safety import saved_permissions
from fugu_cli.wiring import build_session
from tests.reacting import never

ENVIRON = {"ANTHROPIC_API_KEY": "key", "OPENAI_API_KEY": "key"}
AGENTS = """
[[agents]]
name = "a"
provider = "anthropic"
model = "claude-a"
[[agents]]
name = "o"
provider = "openai"
model = "gpt-o"
[[agents]]
name = "own"
provider = "openai"
model = "claude-own"
base_url = "https://evil.example/api.corp/v1"
"""


def loaded(
    managed: str, user: str = "", environ: dict[str, str] | None = None, **flags: object
) -> LoadedConfig:
    (Path.home() / ".fugurc").write_text(user, encoding="utf-8")
    file = Path.home() / "managed.toml"
    file.write_text(managed, encoding="utf-8")
    return load_config(Path.cwd(), {**ENVIRON, **(environ or {})}, flags, managed_file=file)


def test_no_file_flag_or_variable_widens_mode_rules_budgets_and_network() -> None:
    result = loaded(
        'loosest_mode = "ask"\nallow = ["bash(make)"]\ndeny = ["edit(infra/**)"]\n'
        "only_these_allow = true\nnetwork = false\nmax_budget_usd = { day = 5.0, request = 2.0 }",
        'allow = ["bash"]\nmax_budget_usd = { day = 50.0, session = 1.0 }\ndeny = ["task"]\n'
        'sandbox = { mode = "off", network = true }',
        {"FUGU_PERMISSION_MODE": "auto", "FUGU_MANAGED": "/nowhere"},
        permission_mode="yolo",
        allow=("edit",),
        max_budget_usd=9.0,
    )
    config = result.config
    assert config.permission_mode == "ask"
    assert config.allow == ("bash(make)",)
    assert config.deny == ("task", "edit(infra/**)", "web_fetch", "web_search")
    money = config.money
    assert (money.request, money.session, money.day) == (2.0, 1.0, 5.0)
    assert (config.sandbox.mode, config.sandbox.network) == ("auto", False)
    assert any("does not allow the mode yolo; ask is used" in note for note in result.notes)


def test_what_is_stricter_than_the_administrator_stays() -> None:
    config = loaded('loosest_mode = "auto"\nmax_budget_usd = { request = 9.0 }', "").config
    assert (config.permission_mode, config.money.request) == ("edit", 9.0)
    config = loaded("max_budget_usd = { request = 9.0 }", "max_budget_usd = 1.0").config
    assert config.money.request == 1.0


@pytest.mark.parametrize(
    ("managed", "names"),
    [
        ('providers = ["anthropic"]', ["a"]),
        ('models = ["claude-*"]', ["a", "own"]),
        ('base_urls = ["https://api.*"]', ["a", "o"]),
        ('models = ["claude-*"]\nbase_urls = ["https://api.*"]', ["a"]),
        ('base_urls = ["https://*.corp/*", "https://*.anthropic.com/*"]', ["a"]),
        ('base_urls = ["https://evil.example/*"]', ["own"]),
    ],
)
def test_agents_that_may_not_be_called_are_left_out(managed: str, names: list[str]) -> None:
    result = loaded(managed, AGENTS)
    assert [entry.name for entry in result.config.agents] == names
    assert sum(" is left out: its " in note for note in result.notes) == 3 - len(names)


def test_a_pool_that_is_found_by_its_keys_is_limited_too_and_an_empty_one_is_refused() -> None:
    found = loaded('providers = ["anthropic"]').config.agents
    assert found and {entry.provider for entry in found} == {"anthropic"}
    elsewhere = {"ANTHROPIC_BASE_URL": "https://evil.example"}
    with pytest.raises(ConfigError, match="allows no agent of your pool"):
        loaded(
            'base_urls = ["https://api.anthropic.com*"]\nproviders = ["anthropic"]', "", elsewhere
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("loosest_mode = edit", "is not valid TOML"),
        ("colour = 1", "unknown key 'colour'"),
        ('loosest_mode = "bold"', "loosest_mode: "),
        ('deny = ["bash("]', "deny: "),
        (b"\xff\xfe", "is not UTF-8"),
        (None, "it is not a file"),
        (Path("nowhere"), "No such file"),
    ],
)
def test_a_file_that_cannot_be_understood_starts_nothing(
    content: str | bytes | Path | None, message: str
) -> None:
    file = Path.home() / "managed.toml"
    match content:
        case None:
            file.mkdir()
        case Path():
            file.symlink_to(content)
        case bytes():
            file.write_bytes(content)
        case str():
            file.write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(Path.cwd(), {}, managed_file=file)
    assert str(file) in str(caught.value)


def test_a_session_keeps_to_the_mode_and_to_the_administrators_rules() -> None:
    result = loaded('loosest_mode = "ask"\nonly_these_allow = true', AGENTS)
    saved_permissions.add_rule(result.config.data, result.root, "bash(rm *)")
    session: Session = build_session(result, ENVIRON, never)
    rules = session.environment.rules
    assert (rules.mode, rules.allow) == ("ask", ())
    with pytest.raises(UsageError, match="the mode edit is not allowed"):
        session.set_mode("edit")
    session.set_mode("plan")
    session.log.close()


def test_only_named_mcp_servers_start() -> None:
    managed = loaded('mcp_servers = ["npx -y @corp/*", "https://mcp.corp.example/*"]').managed
    ways = {
        "good": StdioServer(command="npx", args=("-y", "@corp/git")),
        "bad": StdioServer(command="sh", args=("-c", "npx -y @corp/git")),
        "far": RemoteServer(kind="http", url="https://mcp.corp.example/x"),
        "evil": RemoteServer(kind="http", url="https://evil.example/https://mcp.corp.example/x"),
    }
    servers = tuple(McpServer(name=name, source="f", way=way) for name, way in ways.items())
    assert managed is not None
    allowed = managed.allowed_servers(DeclaredServers(servers))
    assert [server.name for server in allowed.servers] == ["good", "far"]
    assert len(allowed.notes) == 2


@pytest.mark.parametrize(
    ("patterns", "names"), [("[]", []), ('["https://*"]', []), ('["*/kit"]', ["greet"])]
)
def test_only_plugins_from_allowed_places_are_used(
    patterns: str, names: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "kit"
    (folder / "commands").mkdir(parents=True)
    (folder / "commands" / "greet.md").write_text("Greet them.")
    (tmp_path / "copy").mkdir()
    fetched = fetch_plugin(parse_address(str(folder), "", ""), tmp_path / "copy")
    keep_plugin(loaded("").trust_data, fetched)
    result = loaded(f"plugins = {patterns}")
    assert [command.name for command in result.library.commands] == names
    notes = [note for note in result.notes if note.startswith("the plugin kit is not used")]
    assert len(notes) == 1 - len(names)
