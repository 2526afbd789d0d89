"""One work put before one Verifier, in the engine itself: a session whose Worker's change is
applied by a script.

The session is opened by wiring and driven by the orchestrator like a user's: the request, its tests
before and after the change where there are any, and a Verifier's turn of the agent. Only who is
next is fixed. A reproduction is a session before that one: the agent, as Worker, writes a script
that shows the bug, and that script is the test command.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from one_pass import answer_targets
from verifiers_works import Work

from fugu_cli import prompts, wiring
from fugu_cli.app.open_session import Session
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import EMBEDDED
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.config.schema import AgentEntry
from fugu_cli.engine.environment import Permission
from fugu_cli.errors import InfrastructureError
from fugu_cli.messages import Call, Usage, Value
from fugu_cli.safety import policy
from fugu_cli.session.events import Assigned, Event, Finished
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import verdict_of
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.repository import create_repository

Shown = Literal["nothing", "reproduction", "half", "half+reproduction", "all"]
SCRIPT = "reproduce.py"
_AUTHOR = "author"
_WORDS = Path(__file__).with_name("verifiers.prompts.md")
"""Request, request for a reproduction, what stands in its file, and what its Verifier is told of
it.
"""


class Script(Value):
    """A row: the reproduction `agent` wrote for a task before any change; "" where it wrote
    none.
    """

    task: str
    agent: str
    text: str
    seconds: float
    usage: Usage


class Judged(Value):
    """A row: what `agent` said of a work whose truth is `right`, `shown` that.

    `before`, `after`: whether what was run passed, before the change and after it; None where
    nothing was run. `said` is the agent's own word, `verdict` fugu's: failing tests turn an ACCEPT
    into REVISE.
    """

    task: str
    right: bool
    agent: str
    shown: Shown
    before: bool | None
    after: bool | None
    said: Literal["ACCEPT", "REVISE"]
    verdict: Literal["ACCEPT", "REVISE"]
    text: str
    seconds: float
    usage: Usage


@dataclass(frozen=True)
class Fixed:
    """A coordinator that has the turns of a session written down, and ends it after them."""

    turns: Sequence[Assigned]

    async def decide(self, state: SessionState) -> Assigned | Finished:
        """The next of them."""
        done = len(state.request.turns)
        return self.turns[done] if done < len(self.turns) else Finished(reason="answered")


async def reproduce(task: Task, agent: str, entries: Sequence[AgentEntry] = EMBEDDED) -> Script:
    """Let the agent write a script that fails while the bug is there. It has the code, and no
    tests.
    """
    path = answer_targets(task)[0]
    _, ask, stub, _ = _words(path, code=task.files[path].strip())
    own = _without_tests(task) | {SCRIPT: stub + "\n"}
    turn = Assigned(turn=1, agent=agent, role="worker", by="benchmark")
    with tempfile.TemporaryDirectory(
        prefix="fugu-verifiers-", ignore_cleanup_errors=True
    ) as temporary:
        folder = await create_repository(
            task.model_copy(update={"files": own}), Path(temporary) / task.id
        )
        config = Config(agents=tuple(entries), data_dir=Path(temporary) / "data")
        events = await _session(config, folder, ask, (turn,))
        text = (folder / SCRIPT).read_text(encoding="utf-8")
    replies = SessionState(events).request.turns[0].spent
    return Script(
        task=task.id,
        agent=agent,
        text="" if text.strip() == stub.strip() else text,
        seconds=round(sum(reply.seconds for reply in replies), 3),
        usage=sum((reply.usage for reply in replies), Usage()),
    )


@dataclass(frozen=True)
class Case:
    """A work, who judges it, and what is shown; `script` is the reproduction, "" for none."""

    work: Work
    agent: str
    shown: Shown
    script: str = ""


async def judge(task: Task, case: Case, entries: Sequence[AgentEntry] = EMBEDDED) -> Judged:
    """The Verifier's turn after the work. Raises InfrastructureError where the agent failed."""
    path, work = answer_targets(task)[0], case.work
    ask, _, _, told = _words(path, script=case.script.strip())
    with tempfile.TemporaryDirectory(
        prefix="fugu-verifiers-", ignore_cleanup_errors=True
    ) as temporary:
        files = _files(task, case)
        folder = await create_repository(
            task.model_copy(update={"files": files}), Path(temporary) / task.id
        )
        author = _author(Path(temporary) / "author.toml", path, work.files[path])
        config = Config(
            agents=(*entries, author),
            data_dir=Path(temporary) / "data",
            test_command=_command(task, case),
            test_timeout=min(task.timeout, 20.0),
        )
        turns = (
            Assigned(turn=1, agent=_AUTHOR, role="worker", by="benchmark"),
            Assigned(
                turn=2,
                agent=case.agent,
                role="verifier",
                by="benchmark",
                instruction=told if case.script else "",
            ),
        )
        events = await _session(config, folder, ask, turns)
        if (folder / path).read_text(encoding="utf-8") != work.files[path]:
            raise InfrastructureError(f"{task.id}: the work was not applied")
    return _row(case, SessionState(events))


def _row(case: Case, state: SessionState) -> Judged:
    turn = state.request.turns[-1]
    verdict = state.request.verdict(turn)
    if turn.failed is not None or verdict is None:
        raise InfrastructureError(
            f"{case.work.task}, {case.agent}: {turn.failed.message if turn.failed else 'silent'}"
        )
    first, now = state.request.first_tests, state.request.tests
    return Judged(
        task=case.work.task,
        right=case.work.right,
        agent=case.agent,
        shown=case.shown,
        before=None if first is None else first.ok,
        after=None if now is None else now.ok,
        said=verdict_of(turn.text),
        verdict=verdict,
        text=turn.text,
        seconds=round(sum(reply.seconds for reply in turn.spent), 3),
        usage=sum((reply.usage for reply in turn.spent), Usage()),
    )


def _files(task: Task, case: Case) -> dict[str, str]:
    """The repository: without tests, with some or all of them, and with the reproduction."""
    script = {SCRIPT: case.script} if case.script else {}
    match case.shown:
        case "all":
            return dict(task.files)
        case "half" | "half+reproduction":
            return {**task.files, **case.work.half, **script}
        case _:
            return _without_tests(task) | script


def _command(task: Task, case: Case) -> str | None:
    tests = [task.test_command] if case.shown in ("half", "half+reproduction", "all") else []
    return " && ".join([*tests, *([f"python {SCRIPT}"] if case.script else [])]) or None


def _without_tests(task: Task) -> dict[str, str]:
    return {name: text for name, text in task.files.items() if name not in task.test_files}


def _words(path: str, **more: str) -> tuple[str, str, str, str]:
    """The words of this benchmark for the module at `path`, filled in."""
    parts = _WORDS.read_text(encoding="utf-8").split("\n===\n")
    fields: Mapping[str, str] = {
        "path": path,
        "name": Path(path).stem,
        "code": "",
        "script": "",
        **more,
    }
    request, reproduction, stub, told = (prompts.fill(part.strip(), **fields) for part in parts)
    return request, reproduction, stub, told


def _author(file: Path, path: str, text: str) -> AgentEntry:
    """An agent that reads the file and writes the work."""
    calls = {"read": {"path": path}, "write": {"path": path, "content": text}}
    said = [
        f"{{ tool = {json.dumps(tool)}, arguments = {_quoted(given)} }}"
        for tool, given in calls.items()
    ]
    steps = [*(f"[[step]]\ncalls = [{call}]\n" for call in said), '[[step]]\ntext = "Done."\n']
    file.write_text("".join(steps), encoding="utf-8")
    return AgentEntry(
        name=_AUTHOR, provider="scripted", model=str(file), protocol="native", slot="strong"
    )


def _quoted(arguments: Mapping[str, str]) -> str:
    return json.dumps(json.dumps(arguments))  # a text of TOML is quoted like one of JSON


async def _session(
    config: Config, folder: Path, ask: str, turns: Sequence[Assigned]
) -> tuple[Event, ...]:
    if cache := os.environ.get("FUGU_CACHE_DIR"):
        config = config.model_copy(update={"cache_dir": Path(cache)})
    loaded = LoadedConfig(config=config, files=(), notes=(), root=folder, trusted=False)
    session: Session = wiring.build_session(loaded, {}, _no)
    session.team = replace(session.team, coordinator=Fixed(turns))
    try:
        await session.ask(ask)
        await session.run()
        return tuple(session.log.events)
    finally:
        await session.close()


async def _no(_call: Call, _judgement: policy.Judgement) -> Permission:
    """Nobody is there to ask."""
    return "no"
