"""A pool of models on this machine that speak the real wire format, and tasks that a shell script
judges.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

from tests.acceptance.loopback import Answer, Asked, Loopback, Says, Use

CHECK = 'grep -q fixed calc.txt && echo "1 passed" || { echo "calc.txt:1: 1 failed"; exit 1; }\n'


def task(name: str, **more: object) -> dict[str, object]:
    """A line of a task file: calc.txt must say `fixed`."""
    return {
        "id": name,
        "source": "own",
        "language": "text",
        "kind": "fix",
        "instruction": f"The tests fail for {name}. Fix calc.txt.",
        "test_command": "sh check.sh",
        "timeout_s": 20,
        "test_files": ["check.sh"],
        "repo": {"calc.txt": f"broken {name}\n", "check.sh": CHECK},
        "solution": {"calc.txt": "fixed\n"},
    } | more


def suite(folder: Path, *lines: dict[str, object], name: str = "own") -> Path:
    """A task file."""
    path = folder / f"{name}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def fixes(asked: Asked) -> Answer:
    """Reads, writes, says so; accepts as Verifier. A function of what it is shown, like a model at
    temperature 0.
    """
    if "You plan. " in asked.text:
        return Says('model_id = [1]\nsubtasks = ["Make calc.txt say fixed."]\naccess_list = [[]]')
    newest = asked.text.rpartition("You are the ")[2]
    if newest.startswith("Verifier now"):
        return Says("ACCEPT: it passes.")
    if newest.startswith("Thinker now"):
        return Says("calc.txt must say `fixed`.")
    messages = asked.body["messages"]
    start = max(index for index, message in enumerate(messages) if message["role"] == "user")
    tools = [message for message in messages[start:] if message["role"] == "tool"]
    if not tools:
        return Says("", (Use("read", {"path": "calc.txt"}),))
    if len(tools) == 1:
        return Says("", (Use("write", {"path": "calc.txt", "content": "fixed\n"}),))
    return Says("It is fixed.")


def idles(asked: Asked) -> Answer:
    """Says that all is well, whatever is asked."""
    return Says("ACCEPT: I see nothing wrong.")


def configured(home: Path, server: Loopback, *agents: tuple[str, str]) -> None:
    """A .fugurc in `home` with these agents: (name, slot). A token of input costs a dollar per
    million, output two.
    """
    entries = [
        f'[[agents]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\nbase_url = '
        f'"{server.url}"\n'
        f'api_key_env = "LOOPBACK_KEY"\nslot = "{slot}"\nprice = {{ input = 1.0, output = 2.0 }}\n'
        for name, slot in agents
    ]
    (home / ".fugurc").write_text('[sandbox]\nmode = "off"\n\n' + "\n".join(entries))


class Gate:
    """Lets so many requests through and holds the others until it is opened."""

    def __init__(self, free: int) -> None:
        self._left = free
        self._lock = threading.Lock()
        self.opened = threading.Event()

    def __call__(self, asked: Asked) -> Answer:
        with self._lock:
            self._left -= 1
            held = self._left < 0
        if held:
            self.opened.wait(30)
        return fixes(asked)
