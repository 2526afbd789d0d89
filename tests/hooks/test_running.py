"""Hooks run: what they read, when they say no, what is made of the rest, and that nothing of them is left behind."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fugu_cli import orchestrator, views
from fugu_cli.coordinators.fixed import Single
from fugu_cli.coordinators.settings import Settings
from fugu_cli.events import Event, Finished, Member, Permitted, ToolRan
from fugu_cli.hooks.declared import Declared, Hook, Moment
from fugu_cli.hooks.running import WITHHELD, Hooks
from fugu_cli.log import Log
from fugu_cli.loop.bench import Bench
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.policy import Judgement
from fugu_cli.tools.workspace import Workspace
from tests.reacting import Reacting, Stage, calls, repository, results

CHEAP = Member(name="cheap", provider="openai", model="c", slot="cheap")
WRITE = Call.make("1", "write", path="made.txt", content="by the agent\n")


def hook(moment: Moment, command: str, matcher: str = "", timeout: float = 20.0) -> Hook:
    return Hook(moment=moment, matcher=matcher, command=command, timeout=timeout, source="FILE", own=True)


def asking(call: Call) -> Reacting:
    """An agent that makes one call, then says what came back."""

    def react(prompt: Prompt) -> Reply:
        found = results(prompt)
        return Reply(text=found[-1].text) if found else calls(call)

    return Reacting("cheap", react)


@dataclass
class Play:
    """One request to one agent, with hooks around it."""

    root: Path
    hooks: tuple[Hook, ...]
    call: Call = WRITE
    mute: bool = False
    told: list[str] = field(default_factory=list)
    questions: list[Call] = field(default_factory=list)
    log: Log = field(default_factory=Log.memory)

    def made(self) -> Hooks:
        return Hooks(Declared(self.hooks), "session-1", self.told.append, mute=self.mute)

    async def ask(self, call: Call, judgement: Judgement) -> str:
        self.questions.append(call)
        return "once"

    def stage(self) -> Stage:
        members = (CHEAP,)
        return Stage(
            repository(self.root / "repo") if not (self.root / "repo").exists() else self.root / "repo",
            self.root / "store",
            members,
            {"cheap": asking(self.call)},
            coordinator=Single("cheap", members, Settings(turns=1)),
            ask=self.ask,  # type: ignore[arg-type]
            test_command=None,
        )

    def bench(self, stage: Stage) -> Bench:
        return replace(stage.bench(), hooks=self.made())

    def run(self) -> Sequence[Event]:
        async def whole() -> Finished:
            stage = self.stage()
            await stage.begin(self.log, "write it", judged=False)
            return await orchestrator.run(self.log, stage.crew(), self.bench(stage))

        asyncio.run(whole())
        return self.log.events

    def permitted(self) -> list[tuple[bool, str, str]]:
        return [(e.allowed, e.by, e.reason) for e in self.log.events if isinstance(e, Permitted)]

    def ran(self) -> list[ToolRan]:
        return [e for e in self.log.events if isinstance(e, ToolRan)]


def test_a_hook_before_a_call_says_no_and_the_agent_is_told_why(tmp_path: Path) -> None:
    play = Play(tmp_path, (hook("PreToolUse", "echo not in this folder >&2; exit 2", "write"),))
    play.run()
    assert play.permitted() == [(False, "hook", "a hook forbids it: not in this folder")]
    assert (play.ran(), (tmp_path / "repo/made.txt").exists()) == ([], False)
    assert views.answer(play.log.events) == "Not allowed: a hook forbids it: not in this folder"


def test_a_hook_reads_who_what_and_where(tmp_path: Path) -> None:
    hooks = (hook("PreToolUse", "cat > ../before.json"), hook("PostToolUse", "cat > ../after.json"))
    Play(tmp_path, hooks).run()
    common = {"session_id": "session-1", "cwd": str(tmp_path / "repo"), "tool_name": "write"}
    given = common | {"tool_input": {"path": "made.txt", "content": "by the agent\n"}}
    assert json.loads((tmp_path / "before.json").read_text()) == given | {"hook_event_name": "PreToolUse"}
    after = json.loads((tmp_path / "after.json").read_text())
    assert after.pop("tool_response").keys() == {"output", "ok"}
    assert after == given | {"hook_event_name": "PostToolUse"}


def test_hooks_of_other_tools_and_of_calls_that_nothing_comes_of_are_not_run(tmp_path: Path) -> None:
    touch = hook("PreToolUse", "touch ../ran; exit 2")
    play = Play(tmp_path / "a", (replace_matcher(touch, "bash|edit"),))
    play.run()
    assert (play.permitted()[0][:2], (tmp_path / "a/ran").exists()) == ((True, "policy"), False)
    for index, call in enumerate((Call.make("1", "nonsense"), Call.make("1", "write", content=5))):
        play = Play(tmp_path / str(index), (touch,), call)
        play.run()
        assert ([ran.ok for ran in play.ran()], (tmp_path / str(index) / "ran").exists()) == ([False], False)


def replace_matcher(one: Hook, matcher: str) -> Hook:
    return one.model_copy(update={"matcher": matcher})


def test_a_hook_is_asked_before_the_user_and_not_where_policy_denies(tmp_path: Path) -> None:
    command = Call.make("1", "bash", command="make it")
    play = Play(tmp_path / "a", (hook("PreToolUse", "exit 2", "bash"),), command)
    play.run()
    assert (play.questions, play.permitted()) == ([], [(False, "hook", "a hook forbids it: it gave no reason")])
    play = Play(tmp_path / "b", (hook("PreToolUse", "true", "bash"),), command)
    play.run()
    assert ([call.tool for call in play.questions], play.permitted()[0][:2]) == (["bash"], (True, "user"))
    play = Play(tmp_path / "c", (hook("PreToolUse", "touch ../ran"),), Call.make("1", "bash", command="git clean -xfd"))
    play.run()
    assert (play.permitted()[0][:2], (tmp_path / "c/ran").exists()) == ((False, "policy"), False)


@pytest.mark.parametrize(
    ("command", "seconds", "said"),
    [
        ("echo broken >&2; exit 1", 20.0, "failed with exit code 1: broken"),
        ("no-such-program", 20.0, "failed with exit code 127: "),
        ("sleep 60", 0.2, "did not end within 0.2 s and was ended"),
    ],
)
def test_a_hook_that_fails_is_said_once_and_passed_over(
    tmp_path: Path, command: str, seconds: float, said: str
) -> None:
    play = Play(tmp_path, (hook("PreToolUse", command, timeout=seconds),))
    stage, hooks = play.stage(), play.made()

    async def twice() -> list[str]:
        workspace = stage.bench().workspace
        return [await hooks.before(WRITE, workspace) for _ in range(2)]

    assert asyncio.run(twice()) == ["", ""]
    assert len(hooks.notes) == 1
    assert hooks.notes[0].startswith(f"the PreToolUse hook `{command}` in FILE {said}")
    assert hooks.notes[0].endswith("; it was passed over")
    assert play.told == [f"the hook `{command}` runs", hooks.notes[0]] * 2


def test_the_first_hook_that_says_no_ends_the_question_and_all_are_run_after_a_call(tmp_path: Path) -> None:
    no, mark = "echo no $0 >&2; exit 2", "touch ../ran"
    play = Play(tmp_path / "a", (hook("PreToolUse", no), hook("PreToolUse", mark)))
    play.run()
    assert (play.permitted()[0][1], (tmp_path / "a/ran").exists()) == ("hook", False)
    play = Play(tmp_path / "b", (hook("PostToolUse", "echo first >&2; exit 2"), hook("PostToolUse", mark)))
    play.run()
    assert (tmp_path / "b/ran").exists()


def test_a_hook_after_a_call_speaks_to_the_agent_and_what_it_changes_is_the_calls(tmp_path: Path) -> None:
    format = "tr a-z A-Z < made.txt > other.txt && mv other.txt made.txt && echo shouted >&2; exit 2"
    play = Play(tmp_path, (hook("PostToolUse", format, "edit|write"),))
    play.run()
    (ran,) = play.ran()
    assert (tmp_path / "repo/made.txt").read_text() == "BY THE AGENT\n"
    assert (ran.ok, ran.output.splitlines()[0]) == (True, "[A hook objects: shouted]")
    (change,) = ran.changes
    blob = asyncio.run(Workspace(tmp_path / "repo", tmp_path / "store").blob(str(change.after)))
    assert (change.path, change.before, blob) == ("made.txt", None, b"BY THE AGENT\n")
    assert views.answer(play.log.events).startswith("[A hook objects: shouted]\n")


def test_a_hook_after_reading_is_watched_for_what_it_changes(tmp_path: Path) -> None:
    play = Play(tmp_path, (hook("PostToolUse", "echo x > seen.txt", "read"),), Call.make("1", "read", path="calc.txt"))
    play.run()
    assert [change.path for change in play.ran()[0].changes] == ["seen.txt"]


def test_evidence_is_not_the_agents_and_runs_no_hook(tmp_path: Path) -> None:
    from fugu_cli.loop.bench import run_evidence

    play = Play(tmp_path, (hook("PreToolUse", "exit 2"), hook("PostToolUse", "echo x >&2; exit 2")))
    stage = play.stage()
    asyncio.run(run_evidence(play.log, play.bench(stage), 0, Call.make("e0", "read", path="calc.txt")))
    assert (play.permitted(), play.told) == ([(True, "evidence", "")], [])
    assert "hook" not in play.ran()[0].output


def test_a_call_that_was_permitted_is_asked_about_no_second_time(tmp_path: Path) -> None:
    count = hook("PreToolUse", "echo x >> ../asked")
    play = Play(tmp_path, (count,))
    play.run()
    kept = next(i for i, event in enumerate(play.log.events) if isinstance(event, Permitted))
    again = Play(tmp_path, (count,))
    for event in play.log.events[: kept + 1]:
        again.log.append(event)
    stage = again.stage()
    asyncio.run(orchestrator.run(again.log, stage.crew(), again.bench(stage)))
    assert (tmp_path / "asked").read_text() == "x\n"
    assert isinstance(again.log.events[-1], Finished)


def test_a_turn_that_is_cut_ends_its_hook_and_all_it_started(tmp_path: Path) -> None:
    slow = "(sleep 60; touch ../late) & echo $! > ../pid; echo $$ >> ../pid; sleep 60"
    play = Play(tmp_path, (hook("PreToolUse", slow, timeout=60),))
    stage = play.stage()

    async def cut() -> None:
        await stage.begin(play.log, "write it", judged=False)
        work = asyncio.create_task(orchestrator.run(play.log, stage.crew(), play.bench(stage)))
        pids = tmp_path / "pid"
        while not pids.exists() or len(pids.read_text().split()) < 2:
            await asyncio.sleep(0.02)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(cut())
    assert play.permitted() == []
    pids = [int(pid) for pid in (tmp_path / "pid").read_text().split()]
    end = time.monotonic() + 10
    while any(_lives(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert [pid for pid in pids if _lives(pid)] == []


def _lives(pid: int) -> bool:
    try:
        return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def test_what_a_hook_writes_is_clipped_and_masked(tmp_path: Path) -> None:
    play = Play(tmp_path, (hook("PreToolUse", "yes word | head -c 100000 >&2; echo hunter2 >&2; exit 2"),))
    stage = play.stage()
    workspace = stage.bench().workspace
    workspace.mask = lambda text: text.replace("hunter2", "[secret]")
    said = asyncio.run(play.made().before(WRITE, workspace))
    assert len(said) < 2200
    assert said.endswith("word\n[secret]")


def test_where_files_are_kept_from_agents_no_word_of_a_hook_reaches_one(tmp_path: Path) -> None:
    says = "echo the secret plan >&2; exit 2"
    play = Play(tmp_path / "a", (hook("PreToolUse", says),), mute=True)
    play.run()
    assert play.permitted() == [(False, "hook", f"a hook forbids it: {WITHHELD}")]
    assert play.told[-1] == f"the hook `{says}` says: the secret plan"
    play = Play(tmp_path / "b", (hook("PostToolUse", says),), mute=True)
    play.run()
    assert play.ran()[0].output.splitlines()[0] == f"[A hook objects: {WITHHELD}]"
    play = Play(tmp_path / "c", (hook("Stop", says),), mute=True)
    hooks, workspace = play.made(), play.stage().bench().workspace
    assert asyncio.run(hooks.ended(Finished(reason="answered"), workspace, again=False)) == ""
    assert hooks.notes == (f"the Stop hook `{says}` in FILE cannot ask to go on; {WITHHELD}; it was passed over",)


def test_a_repositorys_hook_is_confined_like_its_tests_and_the_users_own_is_not(tmp_path: Path) -> None:
    from fugu_cli.sandbox.box import Box, Rules

    play = Play(tmp_path, ())
    workspace = play.stage().bench().workspace
    workspace.box = Box(workspace.root, tmp_path / "store", Rules())
    if workspace.box.held.kind == "none":
        pytest.skip("no sandbox holds here")
    command = f"touch {tmp_path}/outside"
    found = {}
    for own in (False, True):
        one = hook("PreToolUse", command).model_copy(update={"own": own})
        hooks = Hooks(Declared((one,)), "s", play.told.append)
        asyncio.run(hooks.before(WRITE, workspace))
        found[own] = (tmp_path / "outside").exists()
    assert found == {False: False, True: True}
