"""`fugu init --from`: another agent's settings become fugu's, and what does not is named."""

import json
from pathlib import Path

import pytest

from fugu_cli.cli.init import init
from fugu_cli.config.loader import load_config
from fugu_cli.errors import ConfigError, UsageError


def home_files(files: dict[str, str]) -> None:
    for name, text in files.items():
        path = Path.home() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")


def servers() -> dict[str, dict[str, object]]:
    path = Path.home() / ".mcp.json"
    return json.loads(path.read_text())["mcpServers"] if path.exists() else {}


CLAUDE = {
    ".claude/settings.json": json.dumps(
        {
            "model": "opusplan[1m]",
            "permissions": {
                "allow": [
                    "Bash(npm run test:*)",
                    "WebFetch(domain:docs.python.org)",
                    "Read(//data/**)",
                ],
                "ask": ["Bash(git push:*)"],
                "deny": ["Read(./.env)", "Edit(/src/**)", "Unknown(x)", "Bash(("],
                "defaultMode": "acceptEdits",
                "additionalDirectories": ["~/gone", "../beside", "/usr"],
            },
            "hooks": {"Stop": []},
            "env": {"A": "b"},
            "statusLine": {},
            "enabledPlugins": {"hookify@official": True},
        }
    ),
    ".claude.json": json.dumps(
        {
            "mcpServers": {"git": {"command": "npx", "args": ["-y", "git"]}, "empty": {}},
            "projects": {"/x": {"mcpServers": {"own": {}}}},
        }
    ),
}
CODEX = {
    ".codex/config.toml": """
model = "gpt-own"
model_provider = "corp"
model_reasoning_effort = "high"
approval_policy = "untrusted"
sandbox_mode = "danger-full-access"
notify = ["say"]
[model_providers.corp]
base_url = "https://llm.corp.example/v1"
env_key = "CORP_KEY"
wire_api = "responses"
[mcp_servers.docs]
url = "https://mcp.example/x"
bearer_token_env_var = "DOCS_TOKEN"
http_headers = {"X-Team" = "docs"}
startup_timeout_sec = 20
[mcp_servers.off]
command = "x"
enabled = false
"""
}
OPENCODE = {
    ".config/opencode/opencode.json": """{
  // a comment with "quotes"
  "model": "anthropic/claude-elder-1",
  "small_model": "corp/tiny",
  "provider": {"corp": {"options": {"baseURL": "https://llm.corp.example/v1", "apiKey": "sk-secret"}}},
  "permission": {"edit": "ask", "bash": {"git *": "allow", "rm *": "deny", "*": "ask"}, "lsp": "allow"},
  "mcp": {"fs": {"type": "local", "command": ["npx", "fs"], "environment": {"A": "{env:B}"}},
          "key": {"type": "remote", "url": "https://x.example", "headers": {"K": "{file:~/.key}"}}},
  "theme": "x",
}"""
}
AIDER = {
    ".aider.conf.yml": "model: openrouter/z/model-1\nweak-model: nowhere/x\ntest-cmd: make test\n"
    "openai-api-key: sk-secret\nopenai-api-base: http://127.0.0.1:9\nread: [CONVENTIONS.md]\ndark-mode: true\n"
}


@pytest.mark.parametrize(
    ("source", "files", "expected", "names", "left_out"),
    [
        (
            "claude-code",
            CLAUDE,
            {
                "permission_mode": "edit",
                "allow": (
                    "bash(npm run test)",
                    "bash(npm run test *)",
                    "web_fetch(docs.python.org)",
                    "read(/data/**)",
                ),
                "ask": ("bash(git push)", "bash(git push *)"),
                "deny": ("read(.env)",),
                "add_dirs": (Path("/usr"),),
            },
            ["git"],
            [
                "~/gone: there is no such folder",
                "../beside: there is no such folder",
                "Edit(/src/**)",
                "Unknown(x)",
                "Bash((",
                "env:",
                "statusLine",
                "plugins hookify@official: look at each",
                "empty",
                "single projects",
            ],
        ),
        (
            "codex",
            CODEX,
            {"permission_mode": "ask", "effort": "high"},
            ["docs"],
            [
                "danger-full-access",
                "off: it is switched off",
                "startup_timeout_sec of MCP server docs",
                "notify",
            ],
        ),
        (
            "opencode",
            OPENCODE,
            {"allow": ("bash(git *)",), "ask": ("edit", "bash"), "deny": ("bash(rm *)",)},
            ["fs"],
            [
                "permission lsp",
                "key of corp",
                "theme",
                "MCP server key: it takes a value from a file",
            ],
        ),
        (
            "aider",
            AIDER,
            {"test_command": "make test"},
            [],
            [
                "nowhere/x",
                "openai-api-key",
                "openai-api-base http://127.0.0.1:9: no model",
                "CONVENTIONS.md",
                "dark-mode",
            ],
        ),
    ],
)
def test_settings_are_taken_over_and_the_rest_is_named(
    capsys: pytest.CaptureFixture[str],
    source: str,
    files: dict[str, str],
    expected: dict[str, object],
    names: list[str],
    left_out: list[str],
) -> None:
    home_files(files)
    assert init(source, dry_run=True) == 0
    assert not (Path.home() / ".fugurc").exists() and servers() == {}
    assert init(source, dry_run=False) == 0
    config = load_config(Path.cwd(), {}).config
    assert {key: getattr(config, key) for key in expected} == expected
    assert list(servers()) == names
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out")]
    for reason in left_out:
        assert any(reason in line for line in lines), reason
    written = "".join(
        path.read_text() for path in Path.home().glob(".*") if path.name in (".fugurc", ".mcp.json")
    )
    assert "sk-secret" not in written


def test_agents_at_servers_of_ones_own_get_an_entry() -> None:
    home_files({**CODEX, **OPENCODE})
    init("codex", dry_run=False)
    init("opencode", dry_run=False)
    agents = {entry.name: entry for entry in load_config(Path.cwd(), {}).config.agents}
    assert list(agents) == ["gpt-own", "claude-elder-1", "tiny"]
    assert servers()["fs"]["env"] == {"A": "${B}"}
    own = agents["gpt-own"]
    assert (own.base_url, own.api_key_env, own.api) == (
        "https://llm.corp.example/v1",
        "CORP_KEY",
        "responses",
    )
    assert agents["claude-elder-1"].api_key_env == "ANTHROPIC_API_KEY"
    assert servers()["docs"]["headers"] == {
        "X-Team": "docs",
        "Authorization": "Bearer ${DOCS_TOKEN}",
    }


@pytest.mark.parametrize(
    "old",
    [
        "max_turns = 3\n\n[tui]\nvi = true",
        '[[agents]]\nname = "x"\nprovider = "openai"\nmodel = "y"',
        '[[agents]]\nname = "x"\nprovider = "openai"\nmodel = "y"\n\n[tui]\nvi = true',
    ],
)
def test_an_empty_line_stands_above_each_agent_that_is_added(old: str) -> None:
    home_files({**AIDER, ".aider.conf.yml": "model: openrouter/z/model-1", ".fugurc": f"{old}\n"})
    init("aider", dry_run=False)
    text = (Path.home() / ".fugurc").read_text()
    assert text.startswith(f'{old}\n\n[[agents]]\nname = "model-1"\n')


def test_agents_of_an_array_in_one_line_get_company() -> None:
    agent = 'agents = [{ name = "x", provider = "openai", model = "y" }]\n'
    home_files({**OPENCODE, ".fugurc": agent})
    init("opencode", dry_run=False)
    names = [entry.name for entry in load_config(Path.cwd(), {}).config.agents]
    assert names == ["x", "claude-elder-1", "tiny"]


def test_servers_of_claude_codes_settings_are_taken_over_and_not_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = {"mcpServers": {"own": {"command": "own-server"}}}
    home_files({**CLAUDE, ".claude/settings.json": json.dumps(own)})
    init("claude-code", dry_run=False)
    assert sorted(servers()) == ["git", "own"]
    output = capsys.readouterr().out
    assert "taken over: MCP server own" in output and "mcpServers" not in output


AWKWARD = {
    "claude-code": (
        {
            ".claude/settings.json": json.dumps(
                {
                    "permissions": {"allow": "Bash(ls)", "deny": ["Read(.env)", 5]},
                    "model": 5,
                    "mcpServers": [],
                }
            )
        },
        ["permissions.allow: it is not a list", "permissions.deny: an item", "model: it is not"],
    ),
    "codex": (
        {
            ".codex/config.toml": """
model = "m"
model_provider = "corp"
model_reasoning_effort = "boundless"
[model_providers.corp]
base_url = "https://x.example/v1?api-key=sk-secret"
query_params = { api-version = "1" }
"""
        },
        ["model m: its address holds a key", "query_params of provider corp", '"boundless"'],
    ),
    "opencode": (
        {
            ".config/opencode/opencode.json": json.dumps(
                {
                    "model": "a/x",
                    "small_model": "b/x",
                    "provider": {
                        "a": {"options": {"baseURL": "https://a.example/v1"}},
                        "b": {"options": {"baseURL": "https://b.example/v1"}},
                    },
                    "permission": "allow",
                }
            )
        },
        ["model x at https://b.example/v1: there is another", "permission allow: choose a mode"],
    ),
    "aider": (
        {".aider.conf.yml": "model: openai/x\nopenai-api-base: http://me:sk-secret@x.example/v1\n"},
        ["model x: base_url: must not hold a user name or password"],
    ),
}


@pytest.mark.parametrize("source", AWKWARD)
def test_what_has_an_unexpected_form_or_holds_a_key_is_left_out_with_the_reason(
    capsys: pytest.CaptureFixture[str], source: str
) -> None:
    files, reasons = AWKWARD[source]
    home_files(files)
    assert init(source, dry_run=False) == 0
    output = capsys.readouterr().out
    for reason in reasons:
        assert reason in output, output
    written = Path.home() / ".fugurc"
    assert "sk-secret" not in output
    assert not written.exists() or "sk-secret" not in written.read_text()


def test_a_server_of_opencodes_that_speaks_messages_keeps_its_api_and_its_variable() -> None:
    options = {"baseURL": "https://proxy.example/v1", "apiKey": "{env:PROXY_KEY}"}
    settings = {"model": "anthropic/claude-x", "provider": {"anthropic": {"options": options}}}
    home_files({".config/opencode/opencode.json": json.dumps(settings)})
    init("opencode", dry_run=False)
    (agent,) = load_config(Path.cwd(), {}).config.agents
    assert (agent.provider, agent.api_key_env) == ("anthropic", "PROXY_KEY")


def test_a_file_that_cannot_be_written_is_named() -> None:
    home_files(CODEX)
    (Path.home() / ".fugurc").symlink_to(Path.home() / "file" / "fugurc")
    (Path.home() / "file").write_text("no folder")
    with pytest.raises(ConfigError, match=r"cannot write .*file"):
        init("codex", dry_run=False)


def test_what_stands_in_the_users_file_stays_and_a_copy_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = '# mine\npermission_mode = "ask"\nallow = ["bash(make)"]\n\n[tui]\nvi = true\n'
    home_files({**CLAUDE, ".fugurc": old, ".mcp.json": '{"mcpServers": {"git": {"command": "g"}}}'})
    init("claude-code", dry_run=True)
    assert "left out: MCP server git" in capsys.readouterr().out
    assert (Path.home() / ".fugurc").read_text() == old
    init("claude-code", dry_run=False)
    config = load_config(Path.cwd(), {}).config
    assert config.permission_mode == "ask" and config.tui.vi
    assert config.allow[0] == "bash(make)" and len(config.allow) == 5
    assert (Path.home() / ".fugurc").read_text().startswith("# mine\n")
    assert (Path.home() / ".fugurc.old").read_text() == old
    assert servers() == {"git": {"command": "g"}}
    output = capsys.readouterr().out
    assert "left out: permission_mode = edit" in output and "left out: MCP server git" in output
    init("claude-code", dry_run=False)
    assert sorted(path.name for path in Path.home().glob("*.old*")) == [".fugurc.old"]


@pytest.mark.parametrize(
    ("source", "files", "message"),
    [
        ("cursor", {}, "cannot read the settings of 'cursor'"),
        (None, {}, "name the agent"),
        ("codex", {}, "nothing to read"),
        ("codex", {".codex/config.toml": "model = "}, "cannot be parsed"),
        ("claude-code", {".claude/settings.json": "[]"}, "holds no settings"),
        ("aider", {".aider.conf.yml": "a: [1"}, "cannot be parsed"),
        ("opencode", {**OPENCODE, ".fugurc": "nonsense = 1"}, "unknown key"),
        ("opencode", {**OPENCODE, ".fugurc": "# \udcff"}, "cannot read .*fugurc"),
    ],
)
def test_what_cannot_be_read_changes_nothing(
    source: str | None, files: dict[str, str], message: str
) -> None:
    home_files(files)
    with pytest.raises((ConfigError, UsageError), match=message):
        init(source, dry_run=False)
    assert servers() == {}
    assert not (Path.home() / ".fugurc.old").exists()
