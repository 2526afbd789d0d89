"""The interface on scripted agents: for a look at it without a model, and what its tests run on.

`python -m fugu_cli.ui.tui.demo [FOLDER]`. Everything but the agents is the real thing: the log, the loop, the tools,
policy, undo. Sessions are kept in a temporary folder.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import log as logs
from fugu_cli import orchestrator, permissions, policy, scratch, sessions, undoing, views
from fugu_cli.agents.scripted import Script, Scripted
from fugu_cli.coordinators.fixed import Cascade, Single
from fugu_cli.coordinators.settings import Settings
from fugu_cli.errors import UsageError
from fugu_cli.events import Asked, Event, Finished, Member, Opened, Replied, Undone
from fugu_cli.loop import compaction, harness
from fugu_cli.loop.environment import Ask, Bench
from fugu_cli.messages import Call, Prompt
from fugu_cli.orchestrator import Crew
from fugu_cli.skills.loading import Library
from fugu_cli.tools.apply_patch import APPLY_PATCH
from fugu_cli.tools.bash import BASH
from fugu_cli.tools.diff import DIFF
from fugu_cli.tools.edit import EDIT
from fugu_cli.tools.files import READ, WRITE
from fugu_cli.tools.job_tools import JOB_OUTPUT, JOB_STOP
from fugu_cli.tools.run_tests import RUN_TESTS
from fugu_cli.tools.search import GLOB, GREP, LIST
from fugu_cli.tools.todo import TODO_LIST
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui.tui.session import Options

if TYPE_CHECKING:
    from fugu_cli.ui.tui.session import Desk, Session

TOOLS = (READ, LIST, GLOB, GREP, EDIT, WRITE, APPLY_PATCH, BASH, RUN_TESTS, DIFF, JOB_OUTPUT, JOB_STOP, TODO_LIST)

SCRIPT = '''
[[step]]
text = """
I look at the file first.

Then I *add* a line:

```python
def greet(name: str) -> str:
    return f"hello, {name}"
```
"""
pace = 0.15
calls = [{ tool = "list", arguments = { path = "." } }]
usage = { input = 1200, output = 80 }

[[step]]
text = "A new file is the least I can do."
calls = [{ tool = "write", arguments = { path = "hello.py", content = "def greet(name):\\n    return name\\n" } }]
usage = { input = 1500, cached = 1200, output = 40 }

[[step]]
calls = [{ tool = "bash", arguments = { command = "for i in 1 2 3; do echo working $i; sleep 1; done" } }]
usage = { input = 1600, cached = 1500, output = 20 }

[[step]]
text = "Done: `hello.py` greets.\\n\\n| what | where |\\n|---|---|\\n| greeting | hello.py |"
pace = 0.1
usage = { input = 1700, cached = 1600, output = 60 }
'''
VERDICT = '[[step]]\ntext = "ACCEPT\\n\\nThe file is there and greets."\nusage = { input = 900, output = 15 }\n'


@dataclass
class DemoSession:
    """A session on scripted agents."""

    log: logs.Log
    root: Path
    crew: Crew
    bench: Bench
    warm: Callable[[], None] = lambda: None
    rules: list[str] = field(default_factory=list)
    excluded: frozenset[str] = frozenset()
    pinned: str | None = None
    library: Library = field(default_factory=Library)
    tier: str = "fugu"

    async def ask(self, text: str, attachments: tuple[str, ...] = (), typed: str = "", skill: str = "") -> None:
        snapshot = "" if self.bench.workspace.in_git else None
        self.log.append(Asked(text=text, typed=typed, skill=skill, attachments=attachments, snapshot=snapshot))

    def notes(self) -> tuple[str, ...]:
        return ()

    def prompt(self, events: Sequence[Event], member: Member) -> Prompt:
        return harness.chosen(self.crew, member.name).prompt(events, member, (), "")

    def go_on(self) -> bool:
        return views.asked(self.log.events) is not None and views.finished(self.log.events) is None

    async def run(self) -> Finished:
        return await orchestrator.run(self.log, self.crew, self.bench)

    def set_mode(self, mode: policy.Mode) -> None:
        self.bench = replace(self.bench, rules=self.bench.rules.model_copy(update={"mode": mode}))

    def wake(self, name: str | None = None) -> None:
        del name  # scripted agents never rest

    def pin(self, name: str | None) -> None:
        self.pinned = name
        self._choose()

    def exclude(self, names: frozenset[str]) -> None:
        self.excluded = names
        self._choose()

    def set_tier(self, tier: str) -> None:
        if tier != "fugu":
            raise UsageError(f"the tier {tier!r} is not there", hint="scripted agents only have /tier fugu")

    def allow_always(self, call: Call, judgement: policy.Judgement) -> str:
        rule = permissions.rule(call, judgement)
        self.rules.append(rule)
        return f"{rule} (in memory)"

    def permissions_file(self) -> str:
        return "memory"

    async def undo_preview(self) -> str:
        return await undoing.undo_preview(self.log, self.bench.workspace)

    async def undo(self) -> Undone:
        return await undoing.undo(self.log, self.bench.workspace)

    async def redo_preview(self) -> str:
        return await undoing.redo_preview(self.log, self.bench.workspace)

    async def redo(self) -> Undone:
        return await undoing.redo(self.log, self.bench.workspace)

    async def compact(self) -> None:
        if not any(isinstance(event, Replied) for event in self.log.events):
            raise UsageError("there is nothing to shorten yet")
        agents = self.crew.agents
        scribes = [compaction.Scribe(member, agents[name]) for name, member in self.crew.members.items()]
        await compaction.shorten(self.log, scribes, len(self.log.events) - 1)

    async def close(self) -> None:
        await self.bench.workspace.jobs.close()
        for agent in self.crew.agents.values():
            await agent.close()
        self.log.close()

    def _choose(self) -> None:
        members = tuple(self.crew.members.values())
        settings = Settings(opt_out=self.excluded)
        one = Single(self.pinned, members, settings) if self.pinned else Cascade(members, settings)
        self.crew = replace(self.crew, coordinator=one)


@dataclass
class DemoDesk:
    """Sessions in `data`; `scripts` are the agents' scripts by name (TOML). The last agent is strong, others cheap."""

    root: Path
    data: Path
    scripts: dict[str, str] = field(default_factory=lambda: {"small": SCRIPT, "large": VERDICT})
    mode: policy.Mode = "ask"
    library: Library = field(default_factory=Library)

    def prepare(self) -> None:
        """Everything is imported already."""

    async def begin(self, ask: Ask) -> Session:
        return self._session(sessions.new_path(self.data, self.root), ask)

    async def resume(self, id: str, ask: Ask) -> Session:
        return self._session(sessions.find(self.data, self.root, id), ask)

    async def fork(self, id: str, ask: Ask) -> Session:
        source = sessions.find(self.data, self.root, id)
        return self._session(sessions.fork(self.data, self.root, source), ask)

    def listed(self) -> Sequence[sessions.Summary]:
        return sessions.summaries(sessions.paths(self.data, self.root))

    def rename(self, id: str, title: str) -> None:
        sessions.rename(sessions.find(self.data, self.root, id), title)

    def lacking(self) -> tuple[str, ...]:
        return ()

    def doctor(self) -> str:
        return f"python {sys.version.split()[0]}\ngit: {shutil.which('git') or 'missing'}"

    def _session(self, path: Path, ask: Ask) -> DemoSession:
        members = tuple(self._members())
        log = logs.Log.open(path) if path.exists() else logs.Log.create(path)
        if not log.events:
            log.append(Opened(version="demo", repo=str(self.root), pool=members, coordinator="cascade"))
        agents = {name: _agent(name, text, log) for name, text in self.scripts.items()}
        workspace = Workspace(self.root, self.data / "snapshots")
        workspace.jobs.attach(log.events, log.append)
        bench = Bench(Toolbox(TOOLS), workspace, policy.Rules(mode=self.mode), ask)
        crew = Crew({member.name: member for member in members}, agents, Cascade(members, Settings()))
        return DemoSession(log, self.root, crew, bench, library=self.library)

    def _members(self) -> list[Member]:
        last = len(self.scripts) - 1
        return [
            Member(name=name, provider="scripted", model=name, slot="strong" if index == last else "cheap")
            for index, name in enumerate(self.scripts)
        ]


def _agent(name: str, text: str, log: logs.Log) -> Scripted:
    done = sum(getattr(event, "type", "") == "replied" and getattr(event, "agent", "") == name for event in log.events)
    return Scripted(name, Script.model_validate(tomllib.loads(text)), done)


def main(arguments: Sequence[str]) -> int:
    """Open the interface on a folder, by default a new one."""
    from fugu_cli.ui.tui import run_app

    with scratch.folder("demo") as place:
        root = Path(arguments[0]).resolve() if arguments else place / "work"
        root.mkdir(exist_ok=True)
        return run_app(DemoDesk(root, place / "data"), Options(state=place / "state"))


if TYPE_CHECKING:
    _desk: Desk = DemoDesk(Path(), Path())
    _opening: Callable[[Ask], Awaitable[Session]] = _desk.begin

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
