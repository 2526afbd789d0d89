"""Plugins in Claude Code's format with the real binary: shown, trusted, used, changed, removed, and
refused where they cannot be trusted.
"""

import json
import subprocess
from pathlib import Path

import pytest

from fugu_cli.session.events import Asked, Permitted
from tests.acceptance.driving import Agent, Done, Place
from tests.acceptance.loopback import Loopback, Says, Use, once_there
from tests.acceptance.test_run import ACCEPT

SMALL = Path(__file__).parents[1] / "unit" / "extensions" / "mcp" / "server.py"
MANIFEST = ".claude-plugin/plugin.json"
GUARD = """import json, os, sys
call = json.load(sys.stdin)
if "secret" in json.dumps(call["tool_input"]):
    print("keep out", file=sys.stderr)
    sys.exit(2)
words = open(os.environ["CLAUDE_PLUGIN_ROOT"] + "/words.txt").read()
said = {"hookEventName": "PreToolUse", "additionalContext": words}
print(json.dumps({"hookSpecificOutput": said}))
"""


def entry(command: str) -> dict[str, object]:
    return {"matcher": "Write", "hooks": [{"type": "command", "command": command}]}


def plugin(folder: Path, **more: str) -> Path:
    """A plugin that brings something of every kind."""
    guard = entry('python3 "${CLAUDE_PLUGIN_ROOT}/guard.py"')
    server = {
        "command": "python3",
        "args": ["${CLAUDE_PLUGIN_ROOT}/server.py"],
        "env": {"LISTED": "${LISTED}", "FUGU_E2E_MARK": "${FUGU_E2E_MARK}"},
    }
    files = {
        MANIFEST: json.dumps({"name": "kit", "version": "1.2.0", "lspServers": {}}),
        "commands/greet.md": "---\ndescription: greets\n---\nGreet $1 as ${CLAUDE_PLUGIN_ROOT}/words.txt says.",
        "commands/help.md": "Help with it.",
        "skills/manners/SKILL.md": "---\nname: Good Manners\ndescription: how to greet\n---\nBow.",
        "agents/host.md": "---\nname: host\ndescription: welcomes\ntools: Read\ncolor: red\n---\nWelcome.",
        "hooks/hooks.json": json.dumps({"description": "d", "hooks": {"PreToolUse": [guard]}}),
        ".mcp.json": json.dumps({"small": server}),
        "guard.py": GUARD,
        "words.txt": "be kind",
        "output-styles/loud.md": "SHOUT",
        "server.py": SMALL.read_text(),
        **more,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_plugin_is_shown_trusted_used_changed_and_removed(place: Place, server: Loopback) -> None:
    folder = plugin(place.folder / "kit")
    listed = place.folder / "listed"
    place.variables["LISTED"] = str(listed)
    place.configure(Agent("worker"), Agent("judge", "strong"), more='allow = ["mcp__small__echo"]')
    (place.home / ".agents" / "commands").mkdir(parents=True)
    (place.home / ".agents" / "commands" / "greet.md").write_text("My own.")

    shown = place.fugu("plugin", "add", str(folder))
    assert (shown.code, shown.err.count("nobody was asked")) == (1, 1)
    for line in (
        "kit 1.2.0",
        'hook PreToolUse Write: python3 "${CLAUDE_PLUGIN_ROOT}/guard.py" (in the sandbox, where it is on)',
        "command /greet: greets",
        "skill manners: how to greet",
        "subagent host: welcomes",
        "MCP server small: python3 ${CLAUDE_PLUGIN_ROOT}/server.py (with your rights)",
        "given your variables LISTED, FUGU_E2E_MARK",
        "not used by fugu: lspServers, output-styles",
    ):
        assert line in shown.out
    assert "there are no plugins" in place.fugu("plugin").out
    assert not listed.exists()

    assert place.fugu("plugin", "add", str(folder), "--yes").code == 0
    tried = (
        Use("write", {"path": "secret.txt", "content": "x"}),
        Use("write", {"path": "new.txt", "content": "x"}),
        Use("skill", {"name": "manners"}),
        Use("mcp__small__echo", {"text": "hello"}),
    )
    server.play("worker", once_there(listed), Says("", tried), Says("Done."))
    server.play("judge", ACCEPT)
    done = place.fugu("run", "/kit:greet Ada")
    assert done.code == 0, done.err
    kept = next((place.home / "data" / "fugu" / "plugins").glob("kit-*"))
    [asked] = [event for event in place.events() if isinstance(event, Asked)]
    assert (asked.typed, asked.text) == ("/kit:greet Ada", f"Greet Ada as {kept}/words.txt says.")
    results = server.asked("worker")[-1].results[-4:]
    assert "a hook forbids it: keep out (the plugin kit)" in results[0]
    assert "[A hook says: the plugin kit: be kind]" in results[1]
    assert "Bow." in results[2]
    assert results[3] == "you said hello"
    by = [
        event.by for event in place.events() if isinstance(event, Permitted) and not event.allowed
    ]
    assert by == ["hook"]
    trace = " ".join(place.fugu("trace").out.split())
    assert "plugin kit 1.2.0 (" in trace
    assert (
        "brings: hook PreToolUse, command /kit:greet, command /kit:help, skill manners, "
        "subagent host, MCP server small"
    ) in trace
    assert "/kit:greet" in place.fugu("skills").out

    (folder / "guard.py").write_text("pass")
    changed = place.fugu("plugin", "add", str(folder))
    assert (changed.code, "changed: guard.py" in changed.out) == (1, True)
    assert (kept / "guard.py").read_text() == GUARD
    (kept / "guard.py").write_text("pass")
    assert "kit is not used: its files" in place.fugu("plugin").err
    (folder / "guard.py").write_text(GUARD)
    assert "nobody was asked" in place.fugu("plugin", "add", str(folder)).err
    assert place.fugu("plugin", "remove", "kit").code == 0
    assert not kept.exists()


def test_a_git_address_is_pinned_to_a_commit_and_nothing_of_the_repository_runs(
    place: Place, server: Loopback
) -> None:
    source = place.folder / "source"
    plugin(source / "plugins" / "kit", **{".gitattributes": "* filter=bad"})
    (source / ".claude-plugin").mkdir()
    (source / ".claude-plugin" / "marketplace.json").write_text(
        json.dumps({"plugins": [{"name": "kit", "source": "./plugins/kit"}]})
    )

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=source, env=place.environ(), check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "one")
    git("tag", "v1")
    address, commit = source.as_uri(), git("rev-parse", "HEAD")
    whole = place.fugu("plugin", "add", address)
    assert (whole.code, "add one with --path: plugins/kit" in whole.err) == (1, True)
    added = place.fugu("plugin", "add", address, "--path", "plugins/kit", "--yes")
    assert (added.code, f"commit {commit}" in added.out) == (0, True), added.err

    (source / "plugins" / "kit" / "words.txt").write_text("be brief")
    git("commit", "-qam", "two")
    assert f"commit {commit[:12]}" in place.fugu("plugin", "list").out
    newer = place.fugu("plugin", "add", address, "--path", "./plugins/kit/")
    assert (newer.code, "changed: words.txt" in newer.out) == (1, True)
    older = place.fugu("plugin", "add", address, "--path", "plugins/kit", "--ref", "v1", "--yes")
    assert (older.code, f"commit {commit}" in older.out) == (0, True)


def repository_that_writes_to(path: Path, place: Place) -> Path:
    """A bare repository with a tree that holds a file under an absolute name."""

    def git(*words: str, data: bytes = b"") -> str:
        command = ["git", "-C", str(place.folder), "--git-dir=tree.git", *words]
        return subprocess.check_output(command, input=data, env=place.environ()).decode().strip()

    git("init", "-q", "--bare")
    file = bytes.fromhex(git("hash-object", "-w", "--stdin"))
    tree = b"100644 " + bytes(path) + b"\0" + file
    made = git("hash-object", "-t", "tree", "-w", "--stdin", "--literally", data=tree)
    git("update-ref", "HEAD", git("commit-tree", made))
    return place.folder / "tree.git"


def bad(place: Place, name: str) -> tuple[Done, str]:
    """Try to add a plugin that must not be added; the words of its refusal."""
    folder = plugin(place.folder / "kit")
    arguments = [str(folder)]
    match name:
        case "json":
            (folder / MANIFEST).write_text('{"name": "kit",')
            words = "plugin.json, line 1, column 16: not valid JSON"
        case "name":
            (folder / MANIFEST).write_text('{"name": "../kit"}')
            words = "'../kit' is not small letters, digits and single hyphens"
        case "traversal":
            (folder / MANIFEST).write_text('{"name": "kit", "commands": "./../../home"}')
            words = "commands: ./../../home leads out of the plugin"
        case "link":
            (folder / "skills" / "top").symlink_to("..")
            (folder / "home").symlink_to("skills/top/../../home")
            words = "home is a link that leads out of the plugin, to skills/top/../../home"
        case "tree":
            arguments = [repository_that_writes_to(place.home / "never", place).as_uri()]
            words = f"the file {place.home}/never would lie outside the plugin"
        case "large":
            (folder / "model.bin").write_bytes(bytes(5_000_001))
            words = "model.bin is too large for a plugin's file"
        case "nothing":
            arguments = [str(place.repo)]
            words = "brings no skill, command, subagent, hook or MCP server"
        case "password":
            arguments = ["https://me:secret-4711@git.example/kit.git"]
            words = "the address holds a password"
        case "program":
            arguments = ["ext::sh -c touch% /tmp/never"]
            words = "is no address that plugins are fetched from"
        case _:
            arguments = ["file:///nowhere/at/all"]
            words = "git could not fetch HEAD"
    return place.fugu("plugin", "add", *arguments, "--yes"), words


@pytest.mark.parametrize(
    "name",
    [
        *("json", "name", "traversal", "link", "tree", "large", "nothing", "password", "program"),
        "absent",
    ],
)
def test_what_is_no_safe_plugin_is_refused_with_the_reason(place: Place, name: str) -> None:
    done, words = bad(place, name)
    assert done.code in (1, 2)
    assert words in done.err
    assert not (place.home / "data" / "fugu" / "plugins").exists()
    assert not (place.home / "never").exists()
