"""The interface on scripted agents: `python -m fugu_cli.ui.tui.demo [FOLDER]`, and the base of its tests. Everything
but the agents is real.

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

from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.rules import Cascade, Single
from fugu_cli.engine import compaction, harness, orchestrator, undo
from fugu_cli.engine.environment import AskPermission, Environment, Team
from fugu_cli.errors import UsageError
from fugu_cli.extensions.skill_library import SkillLibrary
from fugu_cli.messages import Call, Prompt
from fugu_cli.providers.scripted import Script, Scripted
from fugu_cli.safety import policy, saved_permissions
from fugu_cli.session import log as logs
from fugu_cli.session import store, views
from fugu_cli.session.events import Asked, Event, Finished, Member, Opened, Replied, Undone
from fugu_cli.system import temp_dirs
from fugu_cli.tools.apply_patch import APPLY_PATCH
from fugu_cli.tools.bash import BASH
from fugu_cli.tools.diff import DIFF
from fugu_cli.tools.edit import EDIT
from fugu_cli.tools.job_tools import JOB_OUTPUT, JOB_STOP
from fugu_cli.tools.read_write import READ, WRITE
from fugu_cli.tools.run_tests import RUN_TESTS
from fugu_cli.tools.search import GLOB, GREP, LIST
from fugu_cli.tools.todo import TODO_LIST
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui.tui.session_protocol import InterfaceOptions

if TYPE_CHECKING:
    from fugu_cli.ui.tui.session_protocol import SessionOpener, SessionProtocol

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
    team: Team
    environment: Environment
    warm: Callable[[], None] = lambda: None
    rules: list[str] = field(default_factory=list)
    excluded: frozenset[str] = frozenset()
    pinned: str | None = None
    library: SkillLibrary = field(default_factory=SkillLibrary)
    tier: str = "fugu"

    async def ask(self, text: str, attachments: tuple[str, ...] = (), typed: str = "", skill: str = "") -> None:
        snapshot = "" if self.environment.workspace.in_git else None
        self.log.append(Asked(text=text, typed=typed, skill=skill, attachments=attachments, snapshot=snapshot))

    def notes(self) -> tuple[str, ...]:
        return ()

    def prompt(self, events: Sequence[Event], member: Member) -> Prompt:
        return harness.chosen(self.team, member.name).prompt(events, member, (), "")

    def go_on(self) -> bool:
        return views.asked(self.log.events) is not None and views.finished(self.log.events) is None

    async def run(self) -> Finished:
        return await orchestrator.run(self.log, self.team, self.environment)

    def set_mode(self, mode: policy.Mode) -> None:
        self.environment = replace(self.environment, rules=self.environment.rules.model_copy(update={"mode": mode}))

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
        rule = saved_permissions.rule_for(call, judgement)
        self.rules.append(rule)
        return f"{rule} (in memory)"

    def permissions_file(self) -> str:
        return "memory"

    async def undo_preview(self) -> str:
        return await undo.undo_preview(self.log, self.environment.workspace)

    async def undo(self) -> Undone:
        return await undo.undo_request(self.log, self.environment.workspace)

    async def redo_preview(self) -> str:
        return await undo.redo_preview(self.log, self.environment.workspace)

    async def redo(self) -> Undone:
        return await undo.redo_request(self.log, self.environment.workspace)

    async def compact(self) -> None:
        if not any(isinstance(event, Replied) for event in self.log.events):
            raise UsageError("there is nothing to shorten yet")
        agents = self.team.agents
        scribes = [compaction.Summarizer(member, agents[name]) for name, member in self.team.members.items()]
        await compaction.compact(self.log, scribes, len(self.log.events) - 1)

    async def close(self) -> None:
        await self.environment.workspace.jobs.close()
        for agent in self.team.agents.values():
            await agent.close()
        self.log.close()

    def _choose(self) -> None:
        members = tuple(self.team.members.values())
        settings = CoordinatorSettings(opt_out=self.excluded)
        one = Single(self.pinned, members, settings) if self.pinned else Cascade(members, settings)
        self.team = replace(self.team, coordinator=one)


@dataclass
class DemoSessionOpener:
    """Sessions in `data`; `scripts` are the agents' scripts by name (TOML). The last agent is strong, others cheap."""

    root: Path
    data: Path
    scripts: dict[str, str] = field(default_factory=lambda: {"small": SCRIPT, "large": VERDICT})
    mode: policy.Mode = "ask"
    library: SkillLibrary = field(default_factory=SkillLibrary)

    def prepare(self) -> None:
        """Everything is imported already."""

    async def begin(self, ask: AskPermission) -> SessionProtocol:
        return self._session(store.new_path(self.data, self.root), ask)

    async def resume(self, id: str, ask: AskPermission) -> SessionProtocol:
        return self._session(store.find_session(self.data, self.root, id), ask)

    async def fork(self, id: str, ask: AskPermission) -> SessionProtocol:
        source = store.find_session(self.data, self.root, id)
        return self._session(store.fork_session(self.data, self.root, source), ask)

    def listed(self) -> Sequence[store.SessionSummary]:
        return store.session_summaries(store.session_paths(self.data, self.root))

    def rename(self, id: str, title: str) -> None:
        store.rename_session(store.find_session(self.data, self.root, id), title)

    def lacking(self) -> tuple[str, ...]:
        return ()

    def doctor(self) -> str:
        return f"python {sys.version.split()[0]}\ngit: {shutil.which('git') or 'missing'}"

    def _session(self, path: Path, ask: AskPermission) -> DemoSession:
        members = tuple(self._members())
        log = logs.Log.open(path) if path.exists() else logs.Log.create(path)
        if not log.events:
            log.append(Opened(version="demo", repo=str(self.root), pool=members, coordinator="cascade"))
        agents = {name: _agent(name, text, log) for name, text in self.scripts.items()}
        workspace = Workspace(self.root, self.data / "snapshots")
        workspace.jobs.attach(log.events, log.append)
        environment = Environment(Toolbox(TOOLS), workspace, policy.Rules(mode=self.mode), ask)
        team = Team({member.name: member for member in members}, agents, Cascade(members, CoordinatorSettings()))
        return DemoSession(log, self.root, team, environment, library=self.library)

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

    with temp_dirs.temp_dir("demo") as place:
        root = Path(arguments[0]).resolve() if arguments else place / "work"
        root.mkdir(exist_ok=True)
        return run_app(DemoSessionOpener(root, place / "data"), InterfaceOptions(state=place / "state"))


if TYPE_CHECKING:
    _desk: SessionOpener = DemoSessionOpener(Path(), Path())
    _opening: Callable[[AskPermission], Awaitable[SessionProtocol]] = _desk.begin

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
