"""Acceptance checks: a command that fails before the work and must pass before it is accepted."""

import asyncio
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.coordinators import action_space
from fugu_cli.engine import orchestrator
from fugu_cli.messages import Call, FromUser, Prompt, Reply
from fugu_cli.safety import policy
from fugu_cli.session.events import (
    Assigned,
    Finished,
    Interrupted,
    Member,
    Permitted,
    Role,
    ToolRan,
)
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from tests.reacting import CHECK, Reacting, Stage, calls, repository

ONE = Member(name="one", provider="openai", model="o", slot="strong")
FILES = {"calc.txt": "fixed\n", "check.sh": CHECK}
SCRIPT = "grep -q new calc.txt || { echo no new; exit 1; }\n"
MADE = Call.make("1", "acceptance_check", script=SCRIPT, command='sh "$SCRIPT"', file="new.sh")


def write(content: str) -> tuple[Call, ...]:
    return Call.make("1", "read", path="calc.txt"), Call.make(
        "2", "write", path="calc.txt", content=content
    )


class Roles:
    """Gives out these roles, one after the other, until the request is over."""

    def __init__(self, *roles: Role) -> None:
        self._roles = roles

    async def decide(self, state: SessionState) -> Assigned | Finished:
        end = action_space.request_end(
            SessionState(state.events), turns=len(self._roles), verify_answers=False
        )
        number = action_space.next_turn_number(SessionState(state.events))
        return end or Assigned(turn=number, agent="one", role=self._roles[number - 1], by="test")


@dataclass
class Play:
    """One agent, turn after turn: what it calls in each, and then says."""

    root: Path
    parts: list[tuple[Role, tuple[Call, ...], str]]
    log: Log = field(default_factory=Log.memory)
    more: dict[str, object] = field(default_factory=dict)
    until: tuple[str, ...] = ()
    agent: Reacting = field(init=False)

    def __post_init__(self) -> None:
        self.agent = Reacting("one", self._react)

    def _react(self, prompt: Prompt) -> Reply:
        _, made, text = self.parts[len(self.log.state.request.turns) - 1]
        done = len([fact for fact in self.log.state.request.turns[-1].replies])
        return calls(made[done]) if done < len(made) else Reply(text=text)

    def run(self, text: str = "let it say new") -> Finished:
        roles = Roles(*(role for role, _, _ in self.parts))
        stage = Stage(
            self.root,
            self.root.parent / "store",
            (ONE,),
            {"one": self.agent},
            roles,
            **{"mode": "yolo", **self.more},  # type: ignore[arg-type]
        )

        async def whole() -> Finished:
            await stage.begin(self.log, text, judged=False, until=self.until)
            return await orchestrator.run(self.log, stage.team(), stage.environment())

        return asyncio.run(whole())

    @property
    def tried(self) -> list[tuple[int, str, bool]]:
        """Each run: its turn, the tool, and whether it was ok."""
        ran = [event for event in self.log.events if isinstance(event, ToolRan)]
        return [
            (e.turn, e.call.tool, e.ok)
            for e in ran
            if e.call.tool in {"acceptance_check", "run_check"}
        ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo", FILES)


def test_a_thinkers_check_fails_before_and_nothing_is_accepted_until_it_passes(root: Path) -> None:
    found = Play(
        root,
        [
            ("thinker", (MADE,), "Do it."),
            ("worker", write("fixed and wrong\n"), "done"),
            ("worker", write("fixed and new\n"), "done"),
            ("verifier", (), "ACCEPT"),
        ],
    )
    assert found.run() == Finished(
        reason="accepted",
        message="accepted by its own author one",
        accepted_by="author",
        judge="one",
    )
    assert found.tried == [
        (1, "acceptance_check", True),
        (2, "run_check", False),
        (3, "run_check", True),
    ]
    runs = [
        event
        for event in found.log.events
        if isinstance(event, Permitted) and event.call.tool == "run_check"
    ]
    assert {event.by for event in runs} == {"evidence"}
    worker, verifier = (
        "".join(message.text for message in prompt.messages if isinstance(message, FromUser))
        for prompt in found.agent.shown[-2:]
    )
    assert "[An acceptance check was run: it FAILS.]\nno new" in worker
    assert "An agent's acceptance check passes: `sh" in verifier


def test_an_accept_while_it_fails_is_none_and_no_verifier_may_be_asked(root: Path) -> None:
    found = Play(
        root,
        [
            ("thinker", (MADE,), "Do it."),
            ("worker", write("fixed, wrong\n"), "done"),
            ("verifier", (), "ACCEPT"),
        ],
    )
    end = found.run()
    assert (end.reason, "An acceptance check fails: sh" in end.message) == ("turn_limit", True)
    turns = found.log.state.request.turns
    assert found.log.state.request.verdict(turns[-1]) == "REVISE"
    worked = found.log.events[
        : next(n for n, e in enumerate(found.log.events) if e is turns[-1].assigned)
    ]
    assert action_space.roles_out(SessionState(worked)) == {
        "verifier": 'an acceptance check fails: sh "$SCRIPT", and no verdict changes that'
    }


@pytest.mark.parametrize(
    ("script", "ok"), [(SCRIPT, True), ("exit 1\n", True), ("exit 0\n", False)]
)
def test_a_verifiers_is_run_on_the_files_from_before_and_then_on_those_of_now(
    root: Path, script: str, ok: bool
) -> None:
    made = Call.make("1", "acceptance_check", script=script, command='sh "$SCRIPT"')
    found = Play(
        root, [("worker", write("fixed and new\n"), "done"), ("verifier", (made,), "ACCEPT")]
    )
    end = found.run()
    passes = script == SCRIPT
    assert found.tried == [(2, "acceptance_check", ok), *([(2, "run_check", passes)] if ok else [])]
    assert end.reason == ("turn_limit" if ok and not passes else "accepted")
    assert (root / "calc.txt").read_text() == "fixed and new\n"


def test_outside_git_what_is_written_after_a_change_does_not_count(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    (root / "calc.txt").write_text("fixed\n")
    found = Play(
        root,
        [("worker", write("fixed and new\n"), "done"), ("verifier", (MADE,), "ACCEPT")],
        more={"test_command": None},
    )
    assert found.run().reason == "accepted"
    assert found.tried == [(2, "acceptance_check", False)]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            Call.make("1", "acceptance_check", script="exit 0", command='sh "$SCRIPT"'),
            "it passes before the work",
        ),
        (Call.make("1", "acceptance_check", command="nowhere"), "could not be run"),
        (
            Call.make("1", "acceptance_check", script="exit 1", command="false"),
            'names the script as "$SCRIPT"',
        ),
        (Call.make("1", "acceptance_check", command=" "), "one line of the shell"),
        (
            Call.make(
                "1", "acceptance_check", script="exit 1", command='sh "$SCRIPT"', file="../x"
            ),
            "a plain name",
        ),
    ],
)
def test_what_does_not_fail_before_is_no_check_and_the_agent_is_told(
    root: Path, call: Call, said: str
) -> None:
    found = Play(
        root,
        [
            ("thinker", (call,), "Hm."),
            ("worker", write("fixed\nx\n"), "done"),
            ("verifier", (), "ACCEPT"),
        ],
    )
    assert found.run().reason == "accepted"
    assert found.tried == [(1, "acceptance_check", False)]
    (ran,) = [
        event
        for event in found.log.events
        if isinstance(event, ToolRan) and event.call.tool == "acceptance_check"
    ]
    assert said in ran.output


def test_checks_are_only_added_and_all_of_them_must_pass(root: Path) -> None:
    other = Call.make("1", "acceptance_check", command="grep -q wrong calc.txt")
    found = Play(
        root,
        [
            ("thinker", (MADE, other), "Do it."),
            ("worker", write("fixed, wrong\n"), "done"),
            ("verifier", (), "ACCEPT"),
        ],
    )
    assert found.run().reason == "turn_limit"
    assert found.tried[-2:] == [(2, "run_check", False), (2, "run_check", True)]


def test_the_users_checks_hold_from_the_beginning(root: Path) -> None:
    found = Play(
        root, [("worker", (), "It is done already."), ("worker", write("fixed and new\n"), "done")]
    )
    found.until = ("grep -q new calc.txt",)
    assert found.run().reason == "turn_limit"
    assert found.tried == [(1, "run_check", False), (2, "run_check", True)]
    accepted = Play(root, [("worker", (), "It is done."), ("verifier", (), "ACCEPT")])
    accepted.until = found.until
    assert accepted.run() == Finished(reason="answered")


def test_a_check_that_is_the_test_command_is_the_suite_and_is_not_run_twice(root: Path) -> None:
    made = Call.make("1", "acceptance_check", command="sh check.sh")
    parts: list[tuple[Role, tuple[Call, ...], str]] = [
        ("worker", (made, *write("fixed and new\n")), "done"),
        ("verifier", (), "ACCEPT"),
    ]
    found = Play(root, parts)
    assert found.run().reason == "accepted"
    assert found.tried == [(1, "acceptance_check", True)]
    assert found.log.state.request.suite_decides and found.log.state.request.unmet_checks == ()


def test_the_script_sees_the_repository_and_leaves_nothing_in_it(root: Path) -> None:
    (root / "calc.py").write_text("def twice(n):\n    return n\n")
    script = "import calc\nassert calc.twice(2) == 4, calc.twice(2)\n"
    made = Call.make("1", "acceptance_check", script=script, command='python3 "$SCRIPT"')
    found = Play(root, [("thinker", (made,), "Do it.")])
    found.run()
    (ran,) = [
        event
        for event in found.log.events
        if isinstance(event, ToolRan) and event.call.tool == "acceptance_check"
    ]
    assert "AssertionError: 2" in ran.output and ran.ok and ran.changes == ()


def test_one_that_is_refused_is_no_reason_to_end_as_denied(root: Path) -> None:
    parts: list[tuple[Role, tuple[Call, ...], str]] = [
        ("thinker", (MADE,), "Do it."),
        ("worker", (), "It says so."),
    ]
    found = Play(root, parts, more={"mode": "edit"})
    assert found.run() == Finished(reason="answered")
    assert found.tried == []


def test_after_a_cut_turn_it_is_run_again_before_the_next_one(root: Path) -> None:
    found = Play(root, [("thinker", (MADE,), "Do it.")])
    found.run()
    facts = [*found.log.events[:-1]]
    call = Call.make("x", "write", path="calc.txt", content="")
    facts += [
        Assigned(turn=2, agent="one", role="worker", by="test"),
        Permitted(turn=2, call=call, allowed=True, by="policy"),
    ]
    facts += [Interrupted(turn=2)]
    (now,) = SessionState(facts).request.checks
    assert (now.ok, now.stale) == (False, True)


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        (policy.Rules(mode="plan"), "deny"),
        (policy.Rules(mode="edit"), "allow"),
        (policy.Rules(mode="auto"), "allow"),
        (policy.Rules(mode="edit", allow=("acceptance_check",)), "allow"),
        (policy.Rules(mode="edit", allow=("bash(sh *)",)), "allow"),
        (policy.Rules(mode="auto", deny=("acceptance_check",)), "deny"),
        (policy.Rules(mode="auto", deny=("bash(sh *)",)), "deny"),
        (policy.Rules(mode="auto", ask=("acceptance_check",)), "ask"),
    ],
)
def test_it_is_judged_as_the_command_that_it_is(
    rules: policy.Rules, verdict: str, tmp_path: Path
) -> None:
    judged = policy.judge(MADE, rules, tmp_path, sandbox_holds=True)
    assert judged.verdict == verdict
    assert SCRIPT in judged.target, "a yes is one for this very script"


AGENT = """
coordinator = "random"
seed = 5
permission_mode = "auto"
[[agents]]
name = "one"
provider = "scripted"
model = "{script}"
slot = "strong"
"""


def test_the_trace_of_a_whole_request_shows_that_it_failed_before_and_passes_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seed draws a Thinker, a Worker, which is shown that it fails, and a Verifier."""
    steps = [MADE, None, *write("wrong, fixed\n"), None, *write("new, fixed\n"), None]
    words = [_step(call) if call is not None else 'text = "So."' for call in steps]
    script = tmp_path / "script.toml"
    script.write_text("".join(f"[[step]]\n{step}\n" for step in [*words, 'text = "ACCEPT"']))
    (Path.home() / ".fugurc").write_text(AGENT.format(script=script))
    os.chdir(repository(tmp_path / "repo", {**FILES, "Makefile": "test:\n\t@sh check.sh\n"}))
    assert called(["run", "let it say new"]) == 0
    assert "acceptance check FAIL" in capsys.readouterr().err
    assert called(["trace", "latest"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "acceptance check " in line]
    assert [line.partition("acceptance check ")[2].split(";")[0] for line in told] == [
        "FAIL",
        "FAIL -> pass",
    ]


def _step(call: Call) -> str:
    given = json.loads(call.arguments)
    values = ", ".join(f"{name} = {json.dumps(value)}" for name, value in given.items())
    return f'calls = [{{ tool = "{call.tool}", arguments = {{ {values} }} }}]'
