"""Hooks run: what they read, when they say no, what is made of the rest, and that nothing of them
is left behind.
"""

import asyncio
import codecs
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fugu_cli.config import trust
from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.rules import Single
from fugu_cli.engine import orchestrator
from fugu_cli.engine.environment import Environment
from fugu_cli.extensions.hook_protocol import HookAnswer
from fugu_cli.extensions.hook_runner import WITHHELD, HookRunner, Hooks, HookVerdict
from fugu_cli.extensions.hook_settings import DeclaredHooks, Hook, HookEvent, read_hooks
from fugu_cli.extensions.repository_code import TrustedCode
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.safety.policy import Judgement
from fugu_cli.safety.sandbox.command_sandbox import Sandbox, SandboxSettings
from fugu_cli.session.events import Event, Finished, Member, Permitted, Replied, ToolRan
from fugu_cli.session.log import Log
from fugu_cli.tools.workspace import Workspace
from tests.reacting import Reacting, Stage, calls, repository, results

CHEAP = Member(name="cheap", provider="openai", model="c", slot="cheap")
WRITE = Call.make("1", "write", path="made.txt", content="by the agent\n")


def hook(moment: HookEvent, command: str, matcher: str = "", timeout: float = 120.0) -> Hook:
    return Hook(
        moment=moment, matcher=matcher, command=command, timeout=timeout, source="FILE", own=True
    )


def decided(moment: HookEvent = "PreToolUse", **said: object) -> str:
    """A command that prints a decision as JSON."""
    return f"echo '{json.dumps({'hookSpecificOutput': {'hookEventName': moment} | said})}'"


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
    rules: dict[str, object] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    questions: list[Call] = field(default_factory=list)
    log: Log = field(default_factory=Log.memory)
    code: TrustedCode | None = None
    sandbox: Sandbox | None = None

    def made(self) -> Hooks:
        common = {"session_id": "session-1"}
        return Hooks(
            HookRunner(
                DeclaredHooks(self.hooks),
                common,
                self.told.append,
                mute=self.mute,
                code=self.code,
            )
        )

    async def ask(self, call: Call, judgement: Judgement) -> str:
        self.questions.append(call)
        return "once"

    def stage(self) -> Stage:
        members = (CHEAP,)
        return Stage(
            repository(self.root / "repo")
            if not (self.root / "repo").exists()
            else self.root / "repo",
            self.root / "store",
            members,
            {"cheap": asking(self.call)},
            coordinator=Single("cheap", members, CoordinatorSettings(turns=1)),
            ask=self.ask,  # type: ignore[arg-type]
            test_command=None,
        )

    def environment(self, stage: Stage) -> Environment:
        environment = stage.environment()
        environment.workspace.sandbox = self.sandbox
        return replace(
            environment, hooks=self.made(), rules=environment.rules.model_copy(update=self.rules)
        )

    def run(self) -> Sequence[Event]:
        async def whole() -> Finished:
            stage = self.stage()
            await stage.begin(self.log, "write it", judged=False)
            return await orchestrator.run(self.log, stage.team(), self.environment(stage))

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
    assert play.log.state.request.answer == (
        "Not allowed: a hook forbids it: not in this folder. Go on without it, or say in your "
        "answer that it is needed."
    )


def test_a_hook_reads_who_what_and_where(tmp_path: Path) -> None:
    hooks = (hook("PreToolUse", "cat > ../before.json"), hook("PostToolUse", "cat > ../after.json"))
    Play(tmp_path, hooks).run()
    path = str(tmp_path / "repo/made.txt")
    common = {
        "session_id": "session-1",
        "cwd": str(tmp_path / "repo"),
        "permission_mode": "acceptEdits",
    }
    written = {"file_path": path, "path": "made.txt", "content": "by the agent\n"}
    given = common | {"tool_name": "Write", "tool_use_id": "t1-0-0", "tool_input": written}
    assert json.loads((tmp_path / "before.json").read_text()) == given | {
        "hook_event_name": "PreToolUse"
    }
    answered = {
        "output": "Created made.txt (1 line).",
        "ok": True,
        "filePath": path,
        "success": True,
    }
    after = given | {"hook_event_name": "PostToolUse", "tool_response": answered}
    assert json.loads((tmp_path / "after.json").read_text()) == after


def test_hooks_of_other_tools_and_of_calls_that_nothing_comes_of_are_not_run(
    tmp_path: Path,
) -> None:
    touch = hook("PreToolUse", "touch ../ran; exit 2")
    play = Play(tmp_path / "a", (replace_matcher(touch, "bash|edit"),))
    play.run()
    assert (play.permitted()[0][:2], (tmp_path / "a/ran").exists()) == ((True, "policy"), False)
    for index, call in enumerate((Call.make("1", "nonsense"), Call.make("1", "write", content=5))):
        play = Play(tmp_path / str(index), (touch,), call)
        play.run()
        assert ([ran.ok for ran in play.ran()], (tmp_path / str(index) / "ran").exists()) == (
            [False],
            False,
        )


def replace_matcher(one: Hook, matcher: str) -> Hook:
    return one.model_copy(update={"matcher": matcher})


def test_a_hook_is_asked_before_the_user_and_not_where_policy_denies(tmp_path: Path) -> None:
    command = Call.make("1", "bash", command="make it")
    play = Play(tmp_path / "a", (hook("PreToolUse", "exit 2", "bash"),), command)
    play.run()
    assert (play.questions, play.permitted()) == (
        [],
        [(False, "hook", "a hook forbids it: it gave no reason")],
    )
    play = Play(tmp_path / "b", (hook("PreToolUse", "true", "bash"),), command)
    play.run()
    assert ([call.tool for call in play.questions], play.permitted()[0][:2]) == (
        ["bash"],
        (True, "user"),
    )
    play = Play(
        tmp_path / "c",
        (hook("PreToolUse", "touch ../ran"),),
        Call.make("1", "bash", command="git clean -xfd"),
    )
    play.run()
    assert (play.permitted()[0][:2], (tmp_path / "c/ran").exists()) == ((False, "policy"), False)


def test_a_hook_that_fails_is_said_once_and_passed_over(tmp_path: Path) -> None:
    play = Play(tmp_path, (hook("PreToolUse", "echo broken >&2; exit 1"),))
    stage, hooks = play.stage(), play.made()

    async def twice() -> list[HookVerdict]:
        workspace = stage.environment().workspace
        return [await hooks.judge("PreToolUse", WRITE, workspace) for _ in range(2)]

    said = (
        "the PreToolUse hook `echo broken >&2; exit 1` in FILE failed with exit code 1: broken; "
        "it was passed over"
    )
    assert asyncio.run(twice()) == [HookVerdict(WRITE)] * 2
    assert hooks.runner.notes == (said,)
    assert play.told == ["the hook `echo broken >&2; exit 1` runs", said] * 2


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program", "failed with exit code 127: "),
        ("./made-by-nobody.sh", "failed with exit code 127: "),
        ("kill -9 $$", "was ended by signal 9"),
        ("sleep 60", "did not end in time and was ended"),
        ("echo '{\"decision\": '", "printed what cannot be read: not valid JSON: "),
        ('echo \'{"decision": "perhaps"}\'', "printed what cannot be read: decision: "),
        (
            decided("Stop", permissionDecision="allow"),
            "printed what cannot be read: it answers Stop",
        ),
        ("echo '{'; yes '\"x\": 1,' | head -c 10000000", "printed more than can be read"),
        ("yes 'all is well' | head -c 10000000", "printed more than can be read"),
        ('echo checking; echo \'{"decision": "block"\'', "printed what cannot be read: not valid"),
        ("echo \"result: {'decision': 'block'}\"", "printed what cannot be read: not valid JSON: "),
        ("echo '{ decision: deny }'; echo '{}'", "printed what cannot be read: not valid JSON: "),
        ("echo '{}'; echo '{\"decision\": 5}'", "printed what cannot be read: decision: "),
    ],
)
def test_a_guard_that_nobody_can_tell_from_says_no(tmp_path: Path, command: str, said: str) -> None:
    seconds = 0.2 if "sleep" in command else 120.0
    play = Play(tmp_path, (hook("PreToolUse", command, timeout=seconds),))
    play.run()
    ((allowed, by, reason),) = play.permitted()
    assert (allowed, by, play.ran()) == (False, "hook", [])
    assert reason.startswith(
        f"a hook forbids it: the guard `{play.hooks[0].description}` in FILE {said}"
    )
    assert len(reason) < 1000


NO = json.dumps({"decision": "block", "reason": "nicht für uns"}, ensure_ascii=False)


@pytest.mark.parametrize(
    "output",
    [
        f"yarn run v1.22\n{NO}\nDone in 0.04s.\n".encode(),
        f"info: checking\n{json.dumps(json.loads(NO), indent=2)}\ninfo: done\n".encode(),
        f'{{}}\n{{"level": "info"}}\n{NO}\n'.encode(),
        f'{NO}\n{{"hookSpecificOutput": {{"permissionDecision": "allow"}}}}'.encode(),
        f"{{'python': 'dict'}}\n{NO}".encode(),
        f"result: {NO}\n".encode(),
        f"[{NO}]".encode(),
        f"working 10%\rworking 100%\r{NO}\rdone\n".encode(),
        f"\x1b[32m{NO}\x1b[0m\n".encode(),
        b"first\n" + codecs.BOM_UTF8 + NO.encode(),
        NO.encode("utf-8-sig"),
        NO.encode("utf-16"),
        NO.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + NO.encode("utf-16-be"),
    ],
)
def test_a_guards_no_counts_in_whatever_output_it_stands(tmp_path: Path, output: bytes) -> None:
    (tmp_path / "output").write_bytes(output)
    play = Play(tmp_path, (hook("PreToolUse", f"cat {tmp_path}/output"),))
    play.run()
    assert play.permitted() == [(False, "hook", "a hook forbids it: nicht für uns")]


def test_text_with_braces_is_no_object_and_decides_nothing(tmp_path: Path) -> None:
    commands = ("echo 'uses ${HOME} and {src,tests}/*.py'", 'echo \'{"level": "info"}\'; echo done')
    play = Play(tmp_path, tuple(hook("PreToolUse", command) for command in commands))
    play.run()
    assert play.permitted()[0][:2] == (True, "policy")


def test_text_for_agents_may_hold_code(tmp_path: Path) -> None:
    text = "Read this:\n{\n  set -e\n}\nand {'a': 1}"
    play = Play(tmp_path, (hook("UserPromptSubmit", f'echo "{text}"'),))
    answer = asyncio.run(play.made().prompted("do it", play.stage().environment().workspace))
    assert answer == HookAnswer(context=text)


def test_what_goes_wrong_after_a_call_is_passed_over(tmp_path: Path) -> None:
    play = Play(tmp_path, (hook("PostToolUse", "no-such-program"), hook("PostToolUse", "echo '{'")))
    play.run()
    assert [ran.output for ran in play.ran()] == ["Created made.txt (1 line)."]


def test_errors_of_ten_megabytes_are_no_decision(tmp_path: Path) -> None:
    play = Play(tmp_path, (hook("PreToolUse", "echo fine; yes | head -c 10000000 >&2"),))
    play.run()
    assert play.permitted()[0][:2] == (True, "policy")


def test_a_hook_asks_although_policy_allows(tmp_path: Path) -> None:
    asks = decided(permissionDecision="ask", permissionDecisionReason="look first")
    play = Play(tmp_path, (hook("PreToolUse", asks),))
    play.run()
    assert ([call.tool for call in play.questions], play.permitted()) == (
        ["write"],
        [(True, "user", "a hook asks: look first")],
    )


ALLOWS = decided(permissionDecision="allow", permissionDecisionReason="fine")
ANSWERS = """echo '{"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}}'"""


@pytest.mark.parametrize(
    ("moment", "command"), [("PreToolUse", ALLOWS), ("PermissionRequest", ANSWERS)]
)
def test_a_hooks_yes_stands_for_the_users_but_not_for_a_rules_or_an_every_time_question(
    tmp_path: Path, moment: HookEvent, command: str
) -> None:
    yes = hook(moment, command)
    make = Call.make("1", "bash", command="make it")
    play = Play(tmp_path / "a", (yes,), make)
    play.run()
    assert (play.questions, play.permitted()) == ([], [(True, "hook", "a hook allows it")])
    play = Play(tmp_path / "b", (yes,), make, rules={"ask": ("bash(make *)",)})
    play.run()
    assert (len(play.questions), play.permitted()[0][:2]) == (1, (True, "user"))
    play = Play(tmp_path / "c", (yes,), make, rules={"deny": ("bash(make *)",)})
    play.run()
    assert (play.questions, play.permitted()[0][:2]) == ([], (False, "policy"))
    play = Play(tmp_path / "d", (yes,), Call.make("1", "read", path="/etc/hostname"))
    play.run()
    assert (len(play.questions), play.permitted()[0][:2]) == (1, (True, "user"))
    play = Play(tmp_path / "e", (yes,), make, rules={"mode": "plan"})
    play.run()
    assert (play.questions, play.permitted()[0][:2]) == ([], (False, "policy"))


def test_a_repositorys_hook_says_yes_only_as_it_was_when_it_was_trusted(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    repository(root)
    (root / "yes.sh").write_text(ALLOWS)
    files = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "sh yes.sh"}]}]}}
    (root / ".agents").mkdir()
    (root / ".agents/hooks.json").write_text(json.dumps(files))
    (own,) = read_hooks(tmp_path / "home", root, trusted=True).hooks
    make = Call.make("1", "bash", command="make it")
    sandbox = Sandbox(root, tmp_path / "store", SandboxSettings())
    if sandbox.mechanism.kind == "none":
        pytest.skip("no sandbox holds here")
    play = Play(tmp_path, (own,), make, rules={"mode": "ask"}, sandbox=sandbox)
    play.run()
    assert (play.questions, play.permitted()[0][:2]) == ([], (True, "hook"))
    (root / "yes.sh").write_text(ALLOWS + "; true")
    play = Play(tmp_path, (own,), make, rules={"mode": "ask"}, sandbox=sandbox)
    play.run()
    assert (len(play.questions), play.permitted()[0][:2]) == (1, (True, "user"))


CHANGES = {
    "nothing": ("sh tools/ok.sh", "", True),
    "the script": ("sh tools/ok.sh", "tools/ok.sh", False),
    "a file beside it": ("sh tools/ok.sh", "tools/lib.sh", False),
    "another folder": ("sh tools/ok.sh", "src.py", True),
    "a command that names nothing": ("sh tools/ok.sh && true", "", False),
    "a substitution": ("sh tools/ok.sh $(true)", "", False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_without_a_sandbox_a_repositorys_hook_runs_only_what_is_as_it_was_trusted(
    tmp_path: Path, change: str
) -> None:
    command, changed, runs = CHANGES[change]
    root = tmp_path / "repo"
    repository(root)
    (root / "tools").mkdir()
    (root / "tools/ok.sh").write_text(f"touch {tmp_path}/ran\n")
    (root / ".agents").mkdir()
    hooks = {"PreToolUse": [{"hooks": [{"type": "command", "command": command}]}]}
    (root / ".agents/hooks.json").write_text(json.dumps({"hooks": hooks}))
    data = tmp_path / "data"
    trust.trust(data, root)
    if changed:
        (root / changed).write_text("# by an agent\n")
    (own,) = read_hooks(tmp_path / "home", root, trusted=True).hooks
    play = Play(tmp_path, (own,), code=trust.trusted_code(data, root))
    play.run()
    assert ((tmp_path / "ran").exists(), (root / "made.txt").exists()) == (runs, runs)
    refused = "no sandbox holds here, and it is not known whether an agent changed what it runs"
    assert (refused in play.permitted()[0][2]) is not runs


@pytest.mark.parametrize("kind", ["a pipe", "a link to a device"])
def test_without_a_sandbox_a_hook_beside_what_has_no_end_is_refused(
    tmp_path: Path, kind: str
) -> None:
    root = tmp_path / "repo"
    repository(root)
    (root / "tools").mkdir()
    (root / "tools/ok.sh").write_text("true\n")
    (root / ".agents").mkdir()
    hooks = {"PreToolUse": [{"hooks": [{"type": "command", "command": "sh tools/ok.sh"}]}]}
    (root / ".agents/hooks.json").write_text(json.dumps({"hooks": hooks}))
    data = tmp_path / "data"
    trust.trust(data, root)
    if kind == "a pipe":
        os.mkfifo(root / "tools/endless")
    else:
        (root / "tools/endless").symlink_to("/dev/zero")
    (own,) = read_hooks(tmp_path / "home", root, trusted=True).hooks
    play = Play(tmp_path, (own,), code=trust.trusted_code(data, root))
    play.run()
    assert "no sandbox holds here" in play.permitted()[0][2]


@pytest.mark.parametrize(
    ("command", "runs"),
    [("sh $CLAUDE_PLUGIN_ROOT/ok.sh", True), ("sh $CLAUDE_PLUGIN_ROOT/ok.sh && make it", False)],
)
def test_without_a_sandbox_a_plugins_hook_runs_what_the_plugin_brings(
    tmp_path: Path, command: str, runs: bool
) -> None:
    repository(tmp_path / "repo")
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    (plugin / "ok.sh").write_text(f"touch {tmp_path}/ran\n")
    of_plugin = hook("PreToolUse", command).model_copy(
        update={"own": False, "plugin": "helper", "plugin_root": str(plugin)}
    )
    play = Play(
        tmp_path, (of_plugin,), code=trust.trusted_code(tmp_path / "data", tmp_path / "repo")
    )
    play.run()
    assert (tmp_path / "ran").exists() is runs


def test_a_request_for_permission_is_answered_with_no_and_its_words(tmp_path: Path) -> None:
    said = {"behavior": "deny", "message": "not on Fridays"}
    answer = json.dumps(
        {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": said}}
    )
    call = Call.make("1", "bash", command="make it")
    play = Play(tmp_path, (hook("PermissionRequest", f"echo '{answer}'", "Bash"),), call)
    play.run()
    assert (play.questions, play.permitted()) == (
        [],
        [(False, "hook", "a hook forbids it: not on Fridays")],
    )


def test_who_waits_for_the_user_is_told_to_hooks(tmp_path: Path) -> None:
    mark = tmp_path / "told.json"
    play = Play(
        tmp_path,
        (hook("Notification", f"cat > {mark}", "permission_prompt"),),
        Call.make("1", "bash", command="make it"),
    )

    async def ask(call: Call, judgement: Judgement) -> str:
        while not (mark.exists() and mark.read_text()):
            await asyncio.sleep(0.02)
        return "no"

    play.ask = ask  # type: ignore[method-assign]
    play.run()
    told = json.loads(mark.read_text())
    assert (told["notification_type"], told["message"]) == (
        "permission_prompt",
        "fugu needs your permission to use Bash",
    )


def test_a_hook_changes_what_is_run_and_policy_judges_the_change(tmp_path: Path) -> None:
    there = tmp_path / "a/repo/other.txt"
    moved = decided(updatedInput={"file_path": str(there), "content": "by a hook\n"})
    play = Play(tmp_path / "a", (hook("PreToolUse", moved, "Write"),))
    play.run()
    assert (there.read_text(), (tmp_path / "a/repo/made.txt").exists()) == ("by a hook\n", False)
    changed = f'{{"content": "by a hook\\n", "path": "{there}"}}'
    assert (
        play.ran()[0].output
        == f"[A hook changed the arguments: {changed}]\nCreated {there} (1 line)."
    )
    outside = decided(
        permissionDecision="allow", updatedInput={"file_path": "/etc/made.txt", "content": "x"}
    )
    play = Play(
        tmp_path / "b", (hook("PreToolUse", outside, "Write"),), rules={"deny": ("write(/etc/**)",)}
    )
    play.run()
    assert (play.permitted()[0][:2], play.ran()) == ((False, "policy"), [])


def test_a_later_hook_judges_what_an_earlier_one_made_of_the_call(tmp_path: Path) -> None:
    made = decided(updatedInput={"command": "rm -rf build"})
    guard = "grep -q 'rm -rf' && { echo never >&2; exit 2; }; true"
    play = Play(
        tmp_path,
        (hook("PreToolUse", made), hook("PreToolUse", guard)),
        Call.make("1", "bash", command="ls"),
    )
    play.run()
    assert play.permitted() == [(False, "hook", "a hook forbids it: never")]


@pytest.mark.parametrize("moment", ["PreToolUse", "PostToolUse"])
def test_what_a_hook_adds_stands_above_the_answer(tmp_path: Path, moment: HookEvent) -> None:
    play = Play(tmp_path, (hook(moment, decided(moment, additionalContext="ours is Python 3.11")),))
    play.run()
    assert play.ran()[0].output == "[A hook says: ours is Python 3.11]\nCreated made.txt (1 line)."


def test_a_hook_replaces_what_a_tool_answered(tmp_path: Path) -> None:
    play = Play(
        tmp_path, (hook("PostToolUse", decided("PostToolUse", updatedToolOutput="all well")),)
    )
    play.run()
    assert play.ran()[0].output == "all well"


@pytest.mark.parametrize("moment", ["PreToolUse", "PostToolUse"])
def test_a_hook_ends_the_work(tmp_path: Path, moment: HookEvent) -> None:
    play = Play(
        tmp_path,
        (hook(moment, """echo '{"continue": false, "stopReason": "the disk is full"}'"""),),
    )
    play.run()
    assert play.log.events[-1] == Finished(
        reason="denied", message="a hook ended the work: the disk is full"
    )
    assert sum(isinstance(event, Replied) for event in play.log.events) == 1


def test_a_message_for_people_is_shown_to_them_alone(tmp_path: Path) -> None:
    play = Play(tmp_path, (hook("PreToolUse", """echo '{"systemMessage": "linted"}'"""),))
    play.run()
    assert play.told[-1].endswith(" says: linted")
    assert play.ran()[0].output == "Created made.txt (1 line)."


def test_a_call_that_failed_is_told_as_a_failure(tmp_path: Path) -> None:
    hooks = (
        hook("PostToolUse", "touch ../after"),
        hook("PostToolUseFailure", "cat > ../failed.json"),
    )
    play = Play(tmp_path, hooks, Call.make("1", "read", path="none.txt"))
    play.run()
    assert (tmp_path / "after").exists() is False
    told = json.loads((tmp_path / "failed.json").read_text())
    assert (told["hook_event_name"], told["error"].splitlines()[0][:24]) == (
        "PostToolUseFailure",
        "There is no file none.tx",
    )


def test_a_hook_that_nobody_waits_for_decides_nothing_and_ends_with_the_session(
    tmp_path: Path,
) -> None:
    slow = hook("PreToolUse", "echo $$ > ../pid; exec sleep 60").model_copy(update={"apart": True})
    play = Play(tmp_path, (slow,))
    hooks, workspace = play.made(), play.stage().environment().workspace

    async def session() -> HookVerdict:
        verdict = await hooks.judge("PreToolUse", WRITE, workspace)
        while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
            await asyncio.sleep(0.02)
        await hooks.closed(workspace)
        return verdict

    assert asyncio.run(session()) == HookVerdict(WRITE)
    assert not _lives(int((tmp_path / "pid").read_text()))


def test_the_same_command_is_run_once_for_an_event(tmp_path: Path) -> None:
    play = Play(
        tmp_path,
        (hook("PreToolUse", "echo x >> ../ran", "Write"), hook("PreToolUse", "echo x >> ../ran")),
    )
    play.run()
    assert (tmp_path / "ran").read_text() == "x\n"


def test_the_repositorys_place_is_in_a_variable(tmp_path: Path) -> None:
    play = Play(tmp_path, (hook("PreToolUse", 'echo "${CLAUDE_PROJECT_DIR}" > ../place'),))
    play.run()
    assert (tmp_path / "place").read_text() == f"{tmp_path}/repo\n"


PATCH = """--- a/calc.txt
+++ b/calc.txt
@@ -1 +1 @@
-broken
+fixed
--- /dev/null
+++ b/secrets/new.txt
@@ -0,0 +1 @@
+hidden
"""


def test_a_guard_of_edits_and_writes_sees_a_patch_file_by_file(tmp_path: Path) -> None:
    guard = "cat >> ../seen; echo >> ../seen"
    play = Play(
        tmp_path,
        (hook("PreToolUse", guard, "Edit|Write"),),
        Call.make("1", "apply_patch", patch=PATCH),
    )
    play.run()
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    root = tmp_path / "repo"
    assert [
        (one["tool_name"], {k: v for k, v in one["tool_input"].items() if k != "patch"})
        for one in seen
    ] == [
        ("Edit", {"file_path": f"{root}/calc.txt", "old_string": "broken", "new_string": "fixed"}),
        ("Write", {"file_path": f"{root}/secrets/new.txt", "content": "hidden"}),
    ]


def test_the_first_hook_that_says_no_ends_the_question_and_all_are_run_after_a_call(
    tmp_path: Path,
) -> None:
    no, mark = "echo no $0 >&2; exit 2", "touch ../ran"
    play = Play(tmp_path / "a", (hook("PreToolUse", no), hook("PreToolUse", mark)))
    play.run()
    assert (play.permitted()[0][1], (tmp_path / "a/ran").exists()) == ("hook", False)
    play = Play(
        tmp_path / "b", (hook("PostToolUse", "echo first >&2; exit 2"), hook("PostToolUse", mark))
    )
    play.run()
    assert (tmp_path / "b/ran").exists()


def test_a_hook_after_a_call_speaks_to_the_agent_and_what_it_changes_is_the_calls(
    tmp_path: Path,
) -> None:
    format = (
        "tr a-z A-Z < made.txt > other.txt && mv other.txt made.txt && echo shouted >&2; exit 2"
    )
    play = Play(tmp_path, (hook("PostToolUse", format, "edit|write"),))
    play.run()
    (ran,) = play.ran()
    assert (tmp_path / "repo/made.txt").read_text() == "BY THE AGENT\n"
    assert (ran.ok, ran.output.splitlines()[0]) == (True, "[A hook objects: shouted]")
    (change,) = ran.changes
    blob = asyncio.run(
        Workspace(tmp_path / "repo", tmp_path / "store").history.blob(str(change.after))
    )
    assert (change.path, change.before, blob) == ("made.txt", None, b"BY THE AGENT\n")
    assert play.log.state.request.answer.startswith("[A hook objects: shouted]\n")


def test_a_hook_after_reading_is_watched_for_what_it_changes(tmp_path: Path) -> None:
    play = Play(
        tmp_path,
        (hook("PostToolUse", "echo x > seen.txt", "read"),),
        Call.make("1", "read", path="calc.txt"),
    )
    play.run()
    assert [change.path for change in play.ran()[0].changes] == ["seen.txt"]


def test_evidence_is_not_the_agents_and_runs_no_hook(tmp_path: Path) -> None:
    from fugu_cli.engine.tool_calls import run_evidence

    play = Play(tmp_path, (hook("PreToolUse", "exit 2"), hook("PostToolUse", "echo x >&2; exit 2")))
    stage = play.stage()
    asyncio.run(
        run_evidence(play.log, play.environment(stage), 0, Call.make("e0", "read", path="calc.txt"))
    )
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
    asyncio.run(orchestrator.run(again.log, stage.team(), again.environment(stage)))
    assert (tmp_path / "asked").read_text() == "x\n"
    assert isinstance(again.log.events[-1], Finished)


def test_a_turn_that_is_cut_ends_its_hook_and_all_it_started(tmp_path: Path) -> None:
    slow = "(sleep 60; touch ../late) & echo $! > ../pid; echo $$ >> ../pid; sleep 60"
    play = Play(tmp_path, (hook("PreToolUse", slow, timeout=60),))
    stage = play.stage()

    async def cut() -> None:
        await stage.begin(play.log, "write it", judged=False)
        work = asyncio.create_task(
            orchestrator.run(play.log, stage.team(), play.environment(stage))
        )
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
    play = Play(
        tmp_path, (hook("PreToolUse", "yes word | head -c 100000 >&2; echo hunter2 >&2; exit 2"),)
    )
    stage = play.stage()
    workspace = stage.environment().workspace
    workspace.mask = lambda text: text.replace("hunter2", "[secret]")
    said = asyncio.run(play.made().judge("PreToolUse", WRITE, workspace))
    assert len(said.reason) < 2200
    assert said.reason.endswith("word\n[secret]")


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
    hooks, workspace = play.made(), play.stage().environment().workspace
    assert asyncio.run(hooks.ended({"reason": "answered"}, workspace, again=False)) == ""
    said = f"the Stop hook `{says}` in FILE cannot ask to go on; {WITHHELD}; it was passed over"
    assert hooks.runner.notes == (said,)


def test_a_repositorys_hook_is_confined_and_refuses_where_no_sandbox_starts(
    tmp_path: Path,
) -> None:
    play = Play(tmp_path, ())
    workspace = play.stage().environment().workspace
    workspace.sandbox = Sandbox(workspace.root, tmp_path / "store", SandboxSettings())
    if workspace.sandbox.mechanism.kind == "none":
        pytest.skip("no sandbox holds here")
    command = f"touch {tmp_path}/outside"
    found = {}
    for own in (False, True):
        one = hook("PreToolUse", command).model_copy(update={"own": own})
        hooks = Hooks(HookRunner(DeclaredHooks((one,)), {}, play.told.append))
        asyncio.run(hooks.judge("PreToolUse", WRITE, workspace))
        found[own] = (tmp_path / "outside").exists()
    assert found == {False: False, True: True}
    failure = "echo 'bwrap: execvp python: No such file or directory' >&2; exit 1"
    guard = hook("PreToolUse", failure).model_copy(update={"own": False})
    hooks = Hooks(HookRunner(DeclaredHooks((guard,)), {}, play.told.append))
    verdict = asyncio.run(hooks.judge("PreToolUse", WRITE, workspace))
    assert verdict.decision == "deny"
    assert "could not be started: bwrap: execvp" in verdict.reason


def test_hooks_hear_of_a_sessions_beginning_once_of_summaries_and_of_steps(tmp_path: Path) -> None:
    heard = "cat >> ../heard; echo >> ../heard"
    play = Play(
        tmp_path,
        (
            hook("SessionStart", f"{heard}; echo hello", "resume"),
            hook("SessionStart", "echo never", "startup"),
            hook("PreCompact", f"{heard}; echo not now >&2; exit 2", "manual"),
            hook("SubagentStop", heard, "worker"),
            hook("SessionEnd", heard),
        ),
    )
    hooks, workspace = play.made(), play.stage().environment().workspace

    async def session() -> list[str]:
        for _ in range(2):
            await hooks.began("resume", workspace)
        said = [
            (await hooks.prompted("a", workspace)).context,
            (await hooks.prompted("b", workspace)).context,
        ]
        said += [await hooks.compacting(trigger, workspace) for trigger in ("auto", "manual")]
        await hooks.step_ended("worker", {"agent_id": "turn-1"}, workspace)
        await hooks.step_ended("verifier", {"agent_id": "turn-2"}, workspace)
        await hooks.closed(workspace)
        return said

    assert asyncio.run(session()) == ["hello", "", "", "not now"]
    told = [json.loads(line) for line in (tmp_path / "heard").read_text().splitlines()]
    assert [
        (one["hook_event_name"], one.get("source"), one.get("trigger"), one.get("agent_id"))
        for one in told
    ] == [
        ("SessionStart", "resume", None, None),
        ("PreCompact", None, "manual", None),
        ("SubagentStop", None, None, "turn-1"),
        ("SessionEnd", None, None, None),
    ]
