"""Agents that answer by what they are shown, and a small repository for them: shared by the tests
of the loop.

The same prompt gets the same answer, so a session that was killed and goes on needs no script's
place to be kept.
"""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fugu_cli.coordinators import Coordinator, CoordinatorSettings
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.engine.environment import Environment, Permission, RequestLimits, Team
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Prompt, Reply, Usage
from fugu_cli.providers import Agent, Say, Wait
from fugu_cli.safety import policy
from fugu_cli.safety.path_rules import Denials
from fugu_cli.session.events import Asked, Event, Member, Opened
from fugu_cli.session.log import Log
from fugu_cli.tools.workspace import Workspace
from fugu_cli.wiring import build_toolbox

TESTS = "sh check.sh"
CHECK = 'grep -q fixed calc.txt && echo "1 passed" || { echo "calc.txt:1: 1 failed"; exit 1; }\n'

React = Callable[[Prompt], Reply]


class Reacting:
    """An agent made of a function. Keeps what it was shown."""

    def __init__(self, name: str, react: React) -> None:
        self._name = name
        self._react = react
        self.shown: list[Prompt] = []

    @property
    def name(self) -> str:
        return self._name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        self.shown.append(prompt)
        reply = self._react(prompt)
        say(reply.text)
        return reply.model_copy(
            update={"usage": Usage(input=100, output=10), "model": f"{self._name}-served"}
        )

    async def close(self) -> None:
        pass


def fails(prompt: Prompt) -> Reply:
    """An agent whose key is refused."""
    raise AgentError("the key was refused", kind="refused", hint="set another")


def says(text: str) -> React:
    return lambda prompt: Reply(text=text)


def calls(*made: Call, text: str = "") -> Reply:
    return Reply(text=text, calls=made, stop="calls")


def results(prompt: Prompt) -> list[FromTool]:
    """Tool results of the newest turn an agent with native tools is shown."""
    start = max(
        index for index, message in enumerate(prompt.messages) if isinstance(message, FromUser)
    )
    return [message for message in prompt.messages[start:] if isinstance(message, FromTool)]


def said(prompt: Prompt) -> list[FromAgent]:
    """Replies of the newest turn."""
    start = max(
        index for index, message in enumerate(prompt.messages) if isinstance(message, FromUser)
    )
    return [message for message in prompt.messages[start:] if isinstance(message, FromAgent)]


def role(prompt: Prompt) -> str:
    """In which role the newest turn asks the agent to act."""
    newest = next(message for message in reversed(prompt.messages) if isinstance(message, FromUser))
    return "verifier" if "You are the Verifier now" in newest.text else "worker"


def repository(root: Path, files: Mapping[str, str] | None = None) -> Path:
    """A git repository whose tests fail until calc.txt says `fixed`."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in (files or {"calc.txt": "broken\n", "check.sh": CHECK}).items():
        (root / name).write_text(text)
    for arguments in (["init", "-q", "--template="], ["add", "."], ["commit", "-q", "-m", "start"]):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    return root


async def never(call: Call, judgement: policy.Judgement) -> Permission:
    """Without a terminal nobody is asked."""
    return "headless"


@dataclass
class Stage:
    """A session of reacting agents: who, where, and how the log begins."""

    root: Path
    store: Path
    members: tuple[Member, ...]
    agents: Mapping[str, Agent]
    coordinator: Coordinator | None = None
    limits: RequestLimits = field(default_factory=RequestLimits)
    ask: Callable[[Call, policy.Judgement], Awaitable[Permission]] = never
    mode: str = "edit"
    deny: tuple[str, ...] = ()
    test_command: str | None = TESTS
    settings: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    denials: Denials | None = None

    def team(self) -> Team:
        coordinator = self.coordinator or Cascade(self.members, self.settings)
        return Team({member.name: member for member in self.members}, self.agents, coordinator)

    def environment(self) -> Environment:
        """A new workspace each time, as after a kill."""
        workspace = Workspace(
            self.root, self.store, test_command=self.test_command, test_timeout=20.0
        )
        rules = policy.Rules(
            mode=self.mode, deny=self.deny, test_command=self.test_command, trusted=True
        )  # type: ignore[arg-type]
        return Environment(
            build_toolbox(), workspace, rules, self.ask, self.limits, denials=self.denials
        )

    async def begin(
        self,
        log: Log,
        text: str = "fix the tests",
        *,
        judged: bool = True,
        until: tuple[str, ...] = (),
    ) -> None:
        """The session's first lines. `judged`: the tests must pass; `until`: so must these
        commands.
        """
        log.append(
            Opened(version="1", repo=str(self.root), pool=self.members, coordinator="cascade")
        )
        await self.asked(log, text, judged=judged, until=until)

    async def asked(
        self, log: Log, text: str, *, judged: bool = True, until: tuple[str, ...] = ()
    ) -> None:
        snapshot = "" if self.environment().workspace.in_git else None
        suite = (self.test_command,) if judged and self.test_command else ()
        log.append(
            Asked(
                text=text, snapshot=snapshot, test_command=self.test_command, until=(*suite, *until)
            )
        )


def kinds(events: list[Event] | tuple[Event, ...]) -> list[str]:
    """The events' types, for a look at the order of things."""
    return [event.type for event in events]
