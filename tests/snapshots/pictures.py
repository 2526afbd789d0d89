"""Pictures of the real program: a small repository, a model on this machine, the learned
coordinator.

    python tests/snapshots/pictures.py [--cache FOLDER]

Writes fugu_cli/help/pictures/*.svg, some of them films of several frames, and with playwright and
chromium the web page as *.png. What the model says is
written here; decisions, tools, tests, costs and the screen are fugu's own. `--cache` is where the
coordinator's backbone is, by default the user's.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rich.console import Console
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import Static

from fugu_cli.app.attached_session import carry_out
from fugu_cli.app.session_messages import Interrupt
from fugu_cli.app.session_protocol import InterfaceOptions
from fugu_cli.cli.attach import RunningSession, running_sessions
from fugu_cli.cli.current_folder import current_config
from fugu_cli.cli.session_opening import FolderSessions
from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.ui.tui.approval import Approval
from tests.acceptance.loopback import KEY, Answer, Asked, Refuses, Says, Use, running
from tests.unit.ui.tui.terminal import Terminal

PICTURES = Path(__file__).parents[2] / "fugu_cli" / "help" / "pictures"
DEMO = Path(__file__).parents[1] / "demo" / "invoices"
WRONG, RIGHT = "lines.add(GAP", "lines.append(GAP"
READ = Use("read", {"path": "invoices/columns.py"})
EDIT = Use("edit", {"path": "invoices/columns.py", "old": WRONG, "new": RIGHT})
DONE = f"""`aligned` builds its lines now: **`append`** is what a list has.

```python
        {RIGHT}.join([first, *others]))
```

| test | before | now |
|---|---|---|
| columns | fails | passes |
| layout | fails | passes |
"""
PLAN = """Two agents look, the third mends.

[
  {"agent": "small", "task": "Find out why the tests fail.", "reads": []},
  {"agent": "coder", "task": "Look for other places with the same fault.", "reads": []},
  {"agent": "large", "task": "Put it right, run the tests.", "reads": "all"}
]
"""
LIMITED = Refuses(
    429, "Rate limit reached: 3 requests a minute.", "rate_limit_error", {"retry-after": "40"}
)
PLUGIN = {
    "formatter/.claude-plugin/plugin.json": json.dumps(
        {"name": "formatter", "version": "1.2.0", "description": "one style for all files"}
    ),
    "formatter/skills/house-style/SKILL.md": (
        "---\nname: house-style\ndescription: how names and comments are written\n---\nBe brief.\n"
    ),
    "formatter/commands/tidy.md": "---\ndescription: format what changed\n---\nFormat the diff.\n",
    "formatter/hooks/hooks.json": json.dumps(
        {
            "hooks": {
                "PostToolUse": [
                    {
                        "matcher": "Edit|Write",
                        "hooks": [
                            {"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/format.sh --fix"}
                        ],
                    }
                ]
            }
        }
    ),
    "formatter/format.sh": "#!/bin/sh\nruff format\n",
    "formatter/.mcp.json": json.dumps(
        {
            "styles": {
                "command": "npx",
                "args": ["-y", "@acme/styles"],
                "env": {"TOKEN": "${STYLES_TOKEN}"},
            }
        }
    ),
}
CODEX = {
    ".codex/config.toml": """
model = "acme-coder"
model_provider = "acme"
model_reasoning_effort = "high"
approval_policy = "on-request"
sandbox_mode = "danger-full-access"
notify = ["notify-send"]
[model_providers.acme]
base_url = "https://llm.acme.example/v1"
env_key = "ACME_KEY"
wire_api = "responses"
[mcp_servers.docs]
url = "https://mcp.acme.example/docs"
bearer_token_env_var = "DOCS_TOKEN"
[mcp_servers.old]
command = "old-server"
enabled = false
"""
}
AGENTS = (
    ("small", "cheap", "{ input = 0.1, output = 0.4 }"),
    ("coder", "middle", "{ input = 0.5, cached = 0.05, output = 2.0 }"),
    ("large", "strong", "{ input = 3.0, cached = 0.3, output = 15.0 }"),
)


def answer(asked: Asked) -> Answer:
    """What a model of some sense would say to this prompt."""
    text = str(asked.body)
    used = (2100 + len(text) // 40, 90)
    if "You plan. A request" in text:
        has_planned = "Find out why" in text
        return Says(
            "It does what was asked.\n\n[]" if has_planned else PLAN, tokens=used, slow=0.01
        )
    if "You are the Verifier now" in text.rpartition("'role': 'user'")[2]:
        return Says(
            "ACCEPT\n\nBoth tests failed before and pass now; nothing else was changed.",
            tokens=used,
        )
    if "Find out why" in text and "Put it right" not in text:
        return Says("`columns.py` calls `add` on a list; it has `append`.", tokens=used, slow=0.01)
    if "Look for other places" in text and "Put it right" not in text:
        return Says("No other list is given an `add`.", tokens=used, slow=0.01)
    if any(result.startswith("Changed ") for result in asked.results):
        return Says(DONE, tokens=used, slow=0.01)
    if asked.results:
        return Says("It calls `add` on a list.", (EDIT,), tokens=used, slow=0.01)
    return Says("I read the file the traceback ends in.", (READ,), tokens=used, slow=0.01)


MESSAGE = "do not change it yet: where else is `add` called on a list?"
FRAME_SECONDS = 3.0


SENT = threading.Event()
"""MESSAGE was sent."""


def steered(asked: Asked) -> Answer:
    """What a model would say that is given MESSAGE while it works."""
    used = (2100 + len(str(asked.body)) // 40, 90)
    calls: tuple[Use, ...] = ()
    match len(asked.results):
        case 0:
            words, calls = "I read the file the traceback ends in.", (READ,)
        case 1:
            SENT.wait(60)
            words, calls = "It calls `add` on a list. I run the tests first.", (Use("run_tests"),)
        case 2:
            words = "I change nothing, as you say, and look for other places."
            calls = (Use("grep", {"pattern": r"\.add\("}),)
        case _:
            words = "Only `aligned` in `columns.py` does. I have changed nothing."
    return Says(words, calls, tokens=used, slow=0.01)


def planned(asked: Asked) -> Answer:
    """What a model would say that is asked for a plan."""
    used = (2100 + len(str(asked.body)) // 40, 90)
    if not asked.results:
        return Says("I read the file the traceback ends in.", (READ,), tokens=used, slow=0.01)
    return Says(
        "1. `columns.py`, `aligned`: a list has `append`, not `add`.\n"
        "2. Run the tests: `columns` and `layout`, which fail now, pass.",
        tokens=used,
        slow=0.01,
    )


def film(frames: Sequence[str]) -> str:
    """Return one SVG that shows these one after the other, for ever."""
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', frames[0])
    assert size is not None
    seconds, share = FRAME_SECONDS * len(frames), 100 / len(frames)
    shown = f"0%, {share:.2f}% {{ opacity: 1 }} {share + 0.01:.2f}%, 100% {{ opacity: 0 }}"
    parts = [
        f'<svg viewBox="0 0 {size[1]} {size[2]}" xmlns="http://www.w3.org/2000/svg">',
        f"<style>@keyframes shown {{ {shown} }}",
        f".frame {{ opacity: 0; animation: shown {seconds}s step-end infinite }}</style>",
    ]
    for number, frame in enumerate(frames):
        delay = f"animation-delay: {FRAME_SECONDS * number}s"
        parts.append(f'<g class="frame" style="{delay}">{frame}</g>')
    return "\n".join([*parts, "</svg>\n"])


class Studio:
    """A repository, a home and a server; each picture opens the interface there anew."""

    def __init__(self, folder: Path, url: str) -> None:
        self.repo, self._home, self._url = folder / "home" / "invoices", folder / "home", url
        self._home.mkdir()
        os.environ |= {
            "HOME": str(self._home),
            "XDG_DATA_HOME": str(self._home / "data"),
            "LOOPBACK_KEY": KEY,
        }
        shutil.copytree(DEMO, self.repo, ignore=shutil.ignore_patterns("__pycache__"))
        for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "start"]):
            who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
            subprocess.run(["git", *who, *words], cwd=self.repo, check=True)
        os.chdir(self.repo)

    def configure(self, more: str) -> None:
        """The user's .fugurc."""
        lines = [f'test_command = "{sys.executable} -m pytest -q -p no:cacheprovider"', more]
        for name, slot, price in AGENTS:
            lines += ["[[agents]]", f'name = "{name}"', 'provider = "openai"', 'model = "m"', f'slot = "{slot}"',
                      f'base_url = "{self._url}"', 'api_key_env = "LOOPBACK_KEY"', f"price = {price}"]  # fmt: skip
        (self._home / ".fugurc").write_text("\n".join(lines) + "\n")
        subprocess.run(["git", "checkout", "-q", "."], cwd=self.repo, check=True)

    def move_in_again(self) -> None:
        """Make it the home of somebody who starts fugu for the first time, and used Claude Code."""
        (self._home / ".fugurc").unlink(missing_ok=True)
        for name in ("data", "state"):
            shutil.rmtree(self._home / name, ignore_errors=True)
        (self._home / ".claude").mkdir()
        (self._home / ".claude" / "settings.json").write_text(
            '{"permissions": {"allow": ["Bash(ls)"]}}'
        )
        (self.repo / "AGENTS.md").write_text("Use tabs.\n")
        (self.repo / ".mcp.json").write_text('{"mcpServers": {"db": {"command": "db-server"}}}')

    def take_commands(self) -> None:
        """Add a plugin as far as the question, and import the settings of another agent."""
        _write_files(self.repo.parent, PLUGIN)
        with self._terminal("plugin", "add", "~/formatter") as terminal:
            terminal.sees("use it in every folder?")
            write_terminal("plugin", "fugu plugin add ~/formatter", terminal)
        _write_files(self.repo.parent, CODEX)
        with self._terminal("init", "--from", "codex") as terminal:
            terminal.ended()
            write_terminal("import", "fugu init --from codex", terminal)

    def _terminal(self, *words: str) -> AbstractContextManager[Terminal]:
        """Run a command in a terminal."""
        return closing(Terminal([*FUGU, *words], self.repo, os.environ, (110, 24)))

    def take(
        self, size: tuple[int, int], play: Callable[[Sitting], Awaitable[None]], theme: str = "dark"
    ) -> None:
        """Open the interface and play."""
        loaded = current_config()
        options = InterfaceOptions(state=self._home / "state", theme=theme, tier=loaded.config.tier)
        asyncio.run(_play(FolderSessions(loaded, os.environ), options, size, play))

    def take_attached(
        self, size: tuple[int, int], play: Callable[[Sitting], Awaitable[None]]
    ) -> None:
        """Begin a session in the background, open it as a second terminal does, and play. The web
        page shows the same session, while it waits for an answer.
        """
        words = ["run", "--background", "fix the failing tests"]
        subprocess.run([*FUGU, *words], check=True, stdout=subprocess.DEVNULL)
        loaded = current_config(quiet=True)
        path = running_sessions(loaded.config.data)[0]
        options = InterfaceOptions(state=self._home / "state", theme="dark", attached=True)
        opener = RunningSession(loaded, os.environ, path=path)
        asyncio.run(_play(opener, options, size, play))
        photograph_web_page()
        asyncio.run(carry_out(path, Interrupt()))


async def _play(
    opener: FolderSessions,
    options: InterfaceOptions,
    size: tuple[int, int],
    play: Callable[[Sitting], Awaitable[None]],
) -> None:
    app = FuguApp(opener, options)
    async with app.run_test(size=size) as pilot:
        await play(Sitting(app, pilot))


FUGU = (sys.executable, "-m", "fugu_cli")
WEB_PICTURES = (("web-wide", 1280, 1100), ("web-narrow", 390, 844))
"""Names and sizes of the pictures of the web page, in pixels."""


def photograph_web_page() -> None:
    """Take the page of the newest session in a headless Chromium, if there is one."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("no pictures of the web page: playwright or chromium is missing")
        return
    command = [*FUGU, "serve", "--web", "--port", "0"]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server,
        sync_playwright() as driver,
    ):
        assert server.stderr is not None
        line = next(line for line in server.stderr if "web page: " in line)
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = driver.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page()
        page.goto(line.split("web page: ")[1].split()[0])
        page.get_by_role("link", name="fix the failing tests").first.click()
        page.get_by_role("heading", name="Questions").wait_for()
        for name, width, height in WEB_PICTURES:
            page.set_viewport_size({"width": width, "height": height})
            page.screenshot(path=PICTURES / f"{name}.png")
            print(f"{name}.png")
        browser.close()
        server.terminate()


class Sitting:
    """The interface in front of the camera."""

    def __init__(self, app: FuguApp, pilot: Pilot[int]) -> None:
        self.app, self.pilot = app, pilot

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait, a minute at most."""
        for _ in range(1200):
            if true():
                await self.pilot.pause(0.3)
                return
            await self.pilot.pause(0.05)
        raise AssertionError("it did not come to that")

    async def ask(self, text: str) -> None:
        """Type it and send it, once the session is there."""
        await self.until(
            lambda: (
                self.app.main.controller is not None
                and self.app.main.controller.work.session is not None
            )
        )
        await self.pilot.press(*text, "enter")

    async def done(self) -> None:
        """Until the request has its end."""
        controller = self.app.main.controller
        assert controller is not None
        await self.until(
            lambda: (
                controller.session.log.events[-1].type == "finished" and not controller.work.running
            )
        )

    async def keys(self, *keys: str) -> None:
        """Press them."""
        await self.pilot.press(*keys)
        await self.pilot.pause(0.5)

    def waits(self) -> bool:
        """Somebody is waited for, until a time that is known."""
        return (
            self.app.main.controller is not None
            and self.app.main.controller.feed.folded.activity.until > 0
        )

    def question(self) -> str:
        """The open question, "" for none."""
        parts = self.app.screen.query("#key-question-text").results(Static)
        return " ".join(str(part.content) for part in parts)

    def frame(self) -> str:
        """The screen as it is."""
        return self.app.export_screenshot(title="fugu")

    def picture(self, name: str) -> None:
        """Take it."""
        write_picture(name, self.frame())


def write_picture(name: str, svg: str) -> None:
    """Write a picture of the help."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")
    print(f"{name}.svg")


def write_terminal(name: str, command: str, terminal: Terminal) -> None:
    """Write a picture of a command and of what it printed."""
    text = terminal.screen.text.rstrip()
    console = Console(record=True, width=terminal.screen.width, file=io.StringIO())
    console.print(Text(f"$ {command}", "bold"))
    console.print(Text(text))
    home = str(Path.home())
    write_picture(name, console.export_svg(title="fugu").replace(home, "~"))


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def steering(sitting: Sitting) -> None:
    """A message changes the course of a turn: typed, sent, given with a result, followed."""
    await sitting.ask("fix the failing tests")
    controller = sitting.app.main.controller
    assert controller is not None
    log = controller.session.log

    def has(kind: str) -> bool:
        return any(event.type == kind for event in log.events)

    await sitting.until(lambda: has("tool_ran"))
    await sitting.pilot.press(*MESSAGE)
    frames = [sitting.frame()]
    await sitting.pilot.press("enter")
    await sitting.until(lambda: has("steered"))
    frames.append(sitting.frame())
    SENT.set()
    await sitting.until(lambda: has("steering_given"))
    frames.append(sitting.frame())
    await sitting.done()
    frames.append(sitting.frame())
    write_picture("steering", film(frames))


async def plan(sitting: Sitting) -> None:
    """A plan, and the question whether it is carried out."""
    await sitting.ask("fix the failing tests")
    await sitting.until(lambda: sitting.app.main.query_one(Approval).display)
    sitting.picture("plan")
    await sitting.keys("n", "ctrl+c")


async def work(sitting: Sitting) -> None:
    """A request to its end, with the trace beside it; then its first turn in full."""
    await sitting.ask("fix the failing tests")
    await sitting.done()
    sitting.picture("work")
    await sitting.keys(*"/trace 1", "enter")
    sitting.picture("turn")


async def question(sitting: Sitting) -> None:
    """Approval before a change."""
    await sitting.ask("fix the failing tests")
    await sitting.until(lambda: sitting.app.main.query_one(Approval).display)
    sitting.picture("question")
    await sitting.keys("n", "ctrl+c")


async def attached(sitting: Sitting) -> None:
    """A question of a session in the background, in a second terminal."""
    await sitting.until(lambda: sitting.app.main.query_one(Approval).display)
    sitting.picture("attach")


async def workflow(sitting: Sitting) -> None:
    """A workflow and its graph."""
    await sitting.ask("fix the failing tests")
    await sitting.done()
    sitting.picture("workflow")


async def failure(sitting: Sitting) -> None:
    """Nobody can work: a line for each failure, and until when."""
    await sitting.ask("fix the failing tests")
    await sitting.until(sitting.waits)
    sitting.picture("failure")
    await sitting.keys("escape")


async def first_start(sitting: Sitting) -> None:
    """The questions of the first start, one after the other: a model, an import, trust."""
    frames = []
    for question in ("What shall fugu work with?", "There are settings of", "This folder brings"):
        await sitting.until(lambda wanted=question: wanted in sitting.question())
        frames.append(sitting.frame())
        await sitting.pilot.pause(0.5)
        await sitting.keys("escape")
    frames.append(sitting.frame())
    write_picture("first-start", film(frames))


async def trust(sitting: Sitting) -> None:
    """The first start in a folder that brings files for agents."""
    await sitting.until(lambda: len(sitting.app.screen_stack) > 1)
    sitting.picture("trust")
    await sitting.keys("n", "ctrl+c")


async def sessions(sitting: Sitting) -> None:
    """Earlier sessions, on a light ground."""
    await sitting.ask("/sessions")
    await sitting.keys()
    sitting.picture("sessions")
    await sitting.keys("escape")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "fugu")
    os.environ["FUGU_CACHE_DIR"] = str(parser.parse_args().cache.resolve())
    os.environ.pop("NO_COLOR", None)
    os.environ["COLORTERM"] = "truecolor"
    with tempfile.TemporaryDirectory(prefix="fugu-pictures-") as folder, running() as server:
        server.react("m", answer)
        studio = Studio(Path(folder), server.url)
        studio.configure('coordinator = "trinity"')
        studio.take((120, 36), work)
        studio.configure('coordinator = "trinity"\npermission_mode = "ask"')
        studio.take((100, 30), question)
        studio.take_attached((100, 30), attached)
        (studio.repo / "AGENTS.md").write_text("Use tabs.\n")
        (studio.repo / ".mcp.json").write_text('{"mcpServers": {"db": {"command": "db-server"}}}')
        studio.take((100, 30), trust)
        (studio.repo / "AGENTS.md").unlink()
        (studio.repo / ".mcp.json").unlink()
        studio.configure('tier = "ultra"\nconductor = { agent = "large" }')
        studio.take((120, 36), workflow)
        studio.take((110, 26), sessions, "light")
        server.react("m", steered)
        studio.configure('coordinator = "single:coder"')
        studio.take((100, 26), steering)
        server.react("m", planned)
        studio.configure('coordinator = "single:coder"\npermission_mode = "plan"')
        studio.take((100, 30), plan)
        server.react("m", lambda asked: LIMITED)
        studio.configure("")
        studio.take((110, 30), failure)
        os.environ |= {"FUGU_CACHE_DIR": str(Path(folder) / "no-models")}
        studio.move_in_again()
        studio.take((100, 24), first_start)
        studio.take_commands()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
