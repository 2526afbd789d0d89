"""Everything that others write and a person sees, filled with commands to the terminal: none of
them comes out.

A row is a payload in a place: words of an agent, names of tools and files, outputs, errors of a
provider, and what an MCP server says, its own name included. What comes out is looked at as bytes.
"""

from __future__ import annotations

import json
import re
import sys

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Refuses, Says, Use
from tests.acceptance.test_run import ACCEPT, DONE, READ, WRITE

PAYLOADS = {
    "colour": "\x1b[31m",
    "clear": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "link": "\x1b]8;;file:///etc/passwd\x1b\\",
    "device": "\x1bP$q\x1b\\",
    "reset": "\x1bc",
    "mode": "\x1b[?1049h\x1b[?25l",
    "answer": "\x1b[6n\x1b[c",
    "eight-bit": "\x9b2J\x9d0;x\x9c",
    "bell": "\x07\x08\x08",
    "return": "harmless\rrm -rf /",
    "right-to-left": "\u202eevil\u202c\u2066x\u2069",
    "delete": "\x7f\x7f",
    "shift": "\x0e\x0f",
}
"""What a terminal, or the eye, would obey."""
ALL = "|".join(f"{name}={payload}" for name, payload in PAYLOADS.items())
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
COMMANDS = (
    ["trace"],
    ["trace", "--full"],
    ["sessions"],
    ["blame"],
    ["undo"],
    ["doctor"],
    ["sessions", "--path"],
)

SERVER = """
import json, sys
odd = json.loads(sys.argv[1])
def say(id, result): print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        info = {"name": odd, "title": odd, "version": odd}
        say(asked["id"], {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                          "serverInfo": info, "instructions": odd})
    elif asked.get("method") == "tools/list":
        schema = {"type": "object", "description": odd, "properties": {"text": {"description": odd}}}
        told = {"title": odd, "description": odd, "inputSchema": schema}
        tools = [{"name": name, **told} for name in ("echo", "x" + odd)]
        say(asked["id"], {"tools": tools})
    elif asked.get("method") == "tools/call":
        print(odd, file=sys.stderr, flush=True)
        say(asked["id"], {"content": [{"type": "text", "text": odd}], "isError": asked["params"]["name"] != "echo"})
    elif "id" in asked:
        say(asked["id"], {})
"""


def written(place: Place, *words: str) -> str:
    done = place.fugu(*words)
    assert done.code in {0, 1, 3} and "Traceback" not in done.err, (words, done)
    return done.out + done.err


def test_no_command_to_the_terminal_comes_out_wherever_it_was_put(
    place: Place, server: Loopback
) -> None:
    name = f"a {''.join(PAYLOADS.values())}".replace("/", "_").replace("\n", "")
    script = place.folder / "server.py"
    script.write_text(SERVER)
    entry = {"command": sys.executable, "args": [str(script), json.dumps(ALL)]}
    place.files(
        {
            ".mcp.json": json.dumps({"mcpServers": {"odd": entry, f"o{ALL}": entry}}),
            name[:200]: f"{ALL}\n",
        }
    )
    place.files(
        {
            "AGENTS.md": f"{ALL}\n",
            ".agents/skills/odd/SKILL.md": f"---\nname: odd\ndescription: odd\n---\n{ALL}\n",
        }
    )
    place.commit()
    place.configure(
        Agent("worker"), Agent("judge", "strong"),
        more='test_command = "sh check.sh"\npermission_mode = "auto"\nallow = ["mcp__*"]',
    )  # fmt: skip
    shout = f"printf '%s' {json.dumps(ALL)}; exit 3"
    server.play(
        "worker",
        Says(ALL, (Use("list", {"path": "."}), Use("read", {"path": name[:200]}), Use("grep", {"pattern": "colour"}))),
        Says(ALL, (Use(f"no{ALL}", {ALL: ALL}), Use("read", {"path": f"none{ALL}"}), Use("bash", {"command": shout}))),
        Says("", (Use("bash", {"command": f"rm -rf / # {ALL}"}), Use("edit", {"path": ALL, "old": ALL, "new": "x"}))),
        Says("", (Use("write", {"path": f"new{ALL[:60]}", "content": ALL}), Use("bash", "{" + ALL))),
        Says("", (Use("mcp__odd__echo", {"text": ALL}), Use(_offered(), {"text": ALL}), Use("todo", {"items": [ALL]}))),
        Says("", (Use("skill", {"name": "odd"}), Use("skill", {"name": ALL}))),
        READ, WRITE, Says(f"{DONE.text}\n{ALL}"),
    )  # fmt: skip
    server.play("judge", Refuses(400, ALL, ALL), Says(f"{ACCEPT.text} {ALL}"))
    said = written(place, "run", "--trust", f"fix the tests {ALL}")
    assert "mcp__odd__echo" in said and "colour=" in said
    outputs = {"run": said, **{" ".join(words): written(place, *words) for words in COMMANDS}}
    assert {
        what: found for what, text in outputs.items() if (found := set(OBEYED.findall(text)))
    } == {}


def _offered() -> str:
    return f"mcp__odd__x{re.sub(r'[^A-Za-z0-9_-]', '_', ALL)}"[:64]
