"""Sit in the model's chair: a server that shows each request as the model sees it and takes the
reply from a file.

    .venv/bin/python -m tests.recorder FOLDER

It serves Chat Completions, Messages and Responses on one port, writes a home with a pool of three
agents for it, and prints the variables with which `fugu run ...` uses them. The first request
becomes FOLDER/001-AGENT.txt: its head counts tokens (characters / 4) and says how much is no prefix of the
agent's earlier requests, and so is not in a cache. The reply is read from FOLDER/001.reply as soon
as that is there. It is plain text; a line that begins with `CALL NAME` and a JSON object, which may
go on over the next lines, is a tool call:

    I look at the file.
    CALL read {"path": "calc.py"}

A last line `CUT` says that the reply reached its limit. Prepared replies may be there before the
requests.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.acceptance.loopback import KEY, Asked, Loopback, Says, Use

CHARACTERS_PER_TOKEN = 4
AGENTS = (
    ("cheap", "openai", "cheap", 0.3, ""),
    ("middle", "anthropic", "middle", 3.0, ""),
    ("strong", "openai", "strong", 5.0, 'api = "responses"'),
)
"""Name, provider, slot, dollars per million tokens read, and more of the entry."""
CALL = re.compile(r"^CALL (\S+)[ \t]*", re.MULTILINE)


def parts_of(request: Asked) -> Iterator[tuple[str, str]]:
    """Yield what the model reads, in the order in which caches compare it: a heading and a text."""
    body = request.body
    for tool in body.get("tools", []):
        function = tool.get("function", tool)
        schema = function.get("parameters", function.get("input_schema", {}))
        text = f"{function.get('description', '')}\n{json.dumps(schema, ensure_ascii=False)}"
        yield f"tool {function.get('name', tool.get('type'))}", text
    yield from _system(body.get("system", body.get("instructions", "")))
    for message in body.get("messages", body.get("input", [])):
        yield from _message(message)


def _system(system: object) -> Iterator[tuple[str, str]]:
    for text in _texts(system):
        yield "system", text


def _message(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    role = str(message.get("role", message.get("type")))
    if role == "function_call":
        yield f"call {message['name']}", message["arguments"]
        return
    if role == "function_call_output":
        yield "result", str(message["output"])
        return
    for text in _texts(message.get("content", message.get("summary"))):
        yield role, text
    for call in message.get("tool_calls") or []:
        yield f"call {call['function']['name']}", call["function"]["arguments"]


def _texts(content: object) -> Iterator[str]:
    """Yield the texts of a message's content on any wire."""
    if isinstance(content, str):
        if content:
            yield content
        return
    for block in content if isinstance(content, list) else []:
        match block.get("type"):
            case "tool_use":
                yield f"[call {block['name']}] {json.dumps(block['input'], ensure_ascii=False)}"
            case "tool_result":
                marked = "\n".join(_texts(block.get("content")))
                yield f"[result{' (error)' if block.get('is_error') else ''}]\n{marked}"
            case "image" | "image_url" | "input_image" | "document":
                yield f"[{block['type']}]"
            case _:
                yield str(block.get("text", block.get("thinking", json.dumps(block))))


def tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    return round(len(text) / CHARACTERS_PER_TOKEN)


def _common_prefix(text: str, other: str) -> int:
    """Return how many characters both begin with."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(text), len(other)))


class Recorder:
    """Writes requests down and waits for their replies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._count = 0
        self._earlier: dict[str, list[str]] = {}

    def reply(self, request: Asked) -> Says:
        """Record the request and return what the reply's file says, once it is there."""
        with self._lock:
            self._count += 1
            number = self._count
            whole, uncached = self._counted(request)
            self._write(request, number, whole, uncached)
        path = self.folder / f"{number:03}.reply"
        while not path.exists() and not self.over.wait(0.1):
            pass
        answer = parse_reply(path.read_text(encoding="utf-8")) if path.exists() else Says("")
        print(f"{number:03} {request.model}: {whole:,} tokens, {uncached:,} not cached", flush=True)
        return answer

    def _counted(self, request: Asked) -> tuple[int, int]:
        """Return the request's tokens, and those that no earlier request of the model began with."""
        text = "".join(f"{heading}\0{part}\0" for heading, part in parts_of(request))
        earlier = self._earlier.setdefault(request.model, [])
        shared = max((_common_prefix(text, other) for other in earlier), default=0)
        earlier.append(text)
        return tokens(text), tokens(text[shared:])

    def _write(self, request: Asked, number: int, whole: int, uncached: int) -> None:
        settings = {
            name: value
            for name, value in request.body.items()
            if name not in {"tools", "system", "instructions", "messages", "input"}
        }
        lines = [
            f"request {number} to {request.model} ({request.wire})",
            f"{whole:,} tokens, {uncached:,} not cached",
            json.dumps(settings, ensure_ascii=False),
        ]
        for heading, part in parts_of(request):
            lines += ["", f"--- {heading} ({tokens(part):,})", part]
        path = self.folder / f"{number:03}-{request.model}.txt"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def parse_reply(text: str) -> Says:
    """Parse a reply's file. Raises ValueError for a call whose arguments are no JSON object."""
    text = text.strip()
    cut = text.endswith("CUT")
    text = text.removesuffix("CUT").rstrip()
    first = CALL.search(text)
    calls = []
    place = first
    while place is not None:
        arguments, end = json.JSONDecoder().raw_decode(text, place.end())
        calls.append(Use(place.group(1), arguments))
        place = CALL.search(text, end)
    said = text if first is None else text[: first.start()].rstrip()
    return Says(said, tuple(calls), cut=cut)


def configuration(url: str) -> str:
    """Return a configuration whose three agents are reached at `url`."""
    lines = []
    for name, provider, slot, price, more in AGENTS:
        base = url.removesuffix("/v1") if provider == "anthropic" else url
        lines += [
            "[[agents]]",
            f'name = "{name}"',
            f'provider = "{provider}"',
            f'model = "{name}"',
            f'base_url = "{base}"',
            'api_key_env = "RECORDER_KEY"',
            f'slot = "{slot}"',
            f"price = {{ input = {price}, cached = {price / 10}, output = {price * 5} }}",
            "context = 200000",
            *([more] if more else []),
            "",
        ]
    return "\n".join(lines)


def main(folder: Path) -> None:
    """Serve until Ctrl-C."""
    folder.mkdir(parents=True, exist_ok=True)
    recorder, server = Recorder(folder), Loopback()
    for name, *_ in AGENTS:
        server.react(name, recorder.reply)
    home = folder.resolve() / "home"
    home.mkdir(exist_ok=True)
    (home / ".fugurc").write_text(configuration(server.url), encoding="utf-8")
    print(f"env HOME={home} XDG_DATA_HOME={home}/data RECORDER_KEY={KEY} fugu run ...", flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        recorder.over.set()
        server.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
