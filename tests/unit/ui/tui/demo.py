"""The real session on scripted agents: the log, the loop, the tools, policy and undo. `python -m
tests.unit.ui.tui.demo [FOLDER]` opens the interface on it.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import wiring
from fugu_cli.app.open_session import Session
from fugu_cli.app.session_protocol import (
    InterfaceOptions,
    KeyTrial,
    ServerModels,
    SetupOffer,
    TrialWire,
)
from fugu_cli.config import Config
from fugu_cli.coordinators import Coordinator
from fugu_cli.engine.environment import AskPermission, Environment, Team
from fugu_cli.errors import UsageError
from fugu_cli.extensions.skill_library import SkillLibrary
from fugu_cli.providers.scripted import Script, Scripted
from fugu_cli.safety import policy
from fugu_cli.session import log as logs
from fugu_cli.session import store
from fugu_cli.session.events import Member, Opened
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

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import SessionOpener
    from fugu_cli.local.sources import ReportProgress

TOOLS = (
    READ,
    LIST,
    GLOB,
    GREP,
    EDIT,
    WRITE,
    APPLY_PATCH,
    BASH,
    RUN_TESTS,
    DIFF,
    JOB_OUTPUT,
    JOB_STOP,
    TODO_LIST,
)

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
VERDICT = (
    '[[step]]\ntext = "ACCEPT\\n\\nThe file is there and greets."\nusage = { input = 900, output '
    "= 15 }\n"
)


class DemoSession(Session):
    """Has no planner, and notes nothing about the machine."""

    def notes(self) -> tuple[str, ...]:
        return ()

    def set_tier(self, tier: str) -> None:
        if tier != "fugu":
            raise UsageError(
                f"the tier {tier!r} is not there", hint="scripted agents only have /tier fugu"
            )


class DemoSetup:
    """Nothing is missing."""

    def doctor(self) -> str:
        return f"python {sys.version.split()[0]}\ngit: {shutil.which('git') or 'missing'}"

    def lacking(self) -> tuple[str, ...]:
        return ()

    def offer(self) -> SetupOffer:
        return SetupOffer()

    async def try_key(self, provider: str, key: str) -> KeyTrial:
        raise UsageError("scripted agents have no keys")

    def keep_key(self, provider: str, key: str) -> str:
        raise UsageError("scripted agents have no keys")

    async def find_servers(self) -> Sequence[ServerModels]:
        return ()

    async def try_address(self, address: str, wire: TrialWire, key: str) -> ServerModels:
        raise UsageError("scripted agents have no servers")

    def add_agent(self, server: ServerModels, model: str, key: str) -> Sequence[str]:
        raise UsageError("scripted agents have no servers")

    def import_settings(self, source: str, *, dry_run: bool) -> Sequence[str]:
        raise UsageError("there is nothing to import")

    async def download(self, report: ReportProgress) -> None:
        """There is nothing to download."""


@dataclass
class DemoSessionOpener:
    """Sessions in `data`; `scripts` are the agents' scripts by name (TOML). The last agent is
    strong, others cheap.
    """

    root: Path
    data: Path
    scripts: dict[str, str] = field(default_factory=lambda: {"small": SCRIPT, "large": VERDICT})
    mode: policy.Mode = "ask"
    library: SkillLibrary = field(default_factory=SkillLibrary)
    setup: DemoSetup = field(default_factory=DemoSetup)
    ignored: Sequence[Path] = ()
    notes: Sequence[str] = ()
    changed: Sequence[str] = ()
    is_declined: bool = False

    def trust(self) -> None:
        self.ignored = ()

    def decline(self) -> None:
        self.is_declined = True

    def reload(self) -> None:
        """There is no configuration."""

    def prepare(self) -> None:
        """Everything is imported already."""

    async def begin(self, ask: AskPermission) -> Session:
        return self._session(store.new_path(self.data, self.root), ask)

    async def resume(self, id: str, ask: AskPermission) -> Session:
        return self._session(store.find_session(self.data, self.root, id), ask)

    async def fork(self, id: str, ask: AskPermission, before: int | None = None) -> Session:
        source = store.find_session(self.data, self.root, id)
        return self._session(store.fork_session(self.data, self.root, source, before), ask)

    def listed(self) -> Sequence[store.SessionSummary]:
        return store.session_summaries(store.session_paths(self.data, self.root))

    def recent(self, most: int, excluding: str) -> Sequence[store.RecentSession]:
        paths = store.session_paths(self.data, self.root)
        return store.recent_sessions((path for path in paths if path.stem != excluding), most)

    def rename(self, id: str, title: str) -> None:
        store.rename_session(store.find_session(self.data, self.root, id), title)

    def _session(self, path: Path, ask: AskPermission) -> Session:
        members = tuple(self._members())
        log = logs.Log.open(path) if path.exists() else logs.Log.create(path)
        if not log.events:
            log.append(
                Opened(version="demo", repo=str(self.root), pool=members, coordinator="cascade")
            )
        agents = {name: _agent(name, text, log) for name, text in self.scripts.items()}
        workspace = Workspace(self.root, self.data / "snapshots" / self.root.name)
        workspace.jobs.attach(log.state, log.append)
        config = Config(coordinator="cascade", data_dir=self.data)

        def decide(config: Config) -> Coordinator:
            return wiring.build_coordinator(config, members)[0]

        return DemoSession(
            log=log,
            root=self.root,
            config=config,
            team=Team({member.name: member for member in members}, agents, decide(config)),
            environment=Environment(Toolbox(TOOLS), workspace, policy.Rules(mode=self.mode), ask),
            warm=lambda: None,
            decide=decide,
            permissions_file="memory",  # the same on every machine: it is in snapshots
            library=self.library,
        )

    def _members(self) -> list[Member]:
        last = len(self.scripts) - 1
        return [
            Member(
                name=name,
                provider="scripted",
                model=name,
                slot="strong" if index == last else "cheap",
            )
            for index, name in enumerate(self.scripts)
        ]


def _agent(name: str, text: str, log: logs.Log) -> Scripted:
    done = sum(
        getattr(event, "type", "") == "replied" and getattr(event, "agent", "") == name
        for event in log.events
    )
    return Scripted(name, Script.model_validate(tomllib.loads(text)), done)


def main(arguments: Sequence[str]) -> int:
    """Open the interface on a folder, by default a new one."""
    from fugu_cli.ui.tui import run_app

    with temp_dirs.temp_dir("demo") as place:
        root = Path(arguments[0]).resolve() if arguments else place / "work"
        root.mkdir(exist_ok=True)
        return run_app(
            DemoSessionOpener(root, place / "data"), InterfaceOptions(state=place / "state")
        )


if TYPE_CHECKING:
    _opener: SessionOpener = DemoSessionOpener(Path(), Path())

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
