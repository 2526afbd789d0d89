"""The loop: each way a request can go, from the first fact to the last."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fugu_cli.coordinators import CoordinatorSettings, action_space
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.engine import orchestrator
from fugu_cli.engine.environment import Permission, Refusal, RequestLimits
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromUser, Prompt, Reply
from fugu_cli.providers import Say, Wait
from fugu_cli.providers.endpoint import ModelEndpoint, Timeouts
from fugu_cli.providers.retry import Backoff, Retrying
from fugu_cli.safety import policy
from fugu_cli.session.events import (
    Assigned,
    Event,
    Failed,
    Finished,
    Interrupted,
    Member,
    Permitted,
    Price,
    Recorded,
    Replied,
    Role,
    ToolRan,
)
from fugu_cli.session.live_events import Live, TextStreamed
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from fugu_cli.wires.chat_completions import OpenAI
from tests.acceptance.loopback import KEY, Breaks, running
from tests.reacting import (
    React,
    Reacting,
    Stage,
    calls,
    fails,
    repository,
    results,
    role,
    said,
    says,
)

CHEAP = Member(name="cheap", provider="openai", model="c", slot="cheap")
STRONG = Member(name="strong", provider="openai", model="s", slot="strong")
READ = Call.make("1", "read", path="calc.txt")
FIX = Call.make("2", "write", path="calc.txt", content="fixed\n")


def writes(content: str = "fixed\n") -> React:
    """A Worker that reads, writes and says so; a Verifier that accepts."""

    def react(prompt: Prompt) -> Reply:
        if role(prompt) == "verifier":
            return Reply(text="ACCEPT")
        tools = [result.tool for result in results(prompt)]
        if not tools:
            return calls(READ)
        return (
            Reply(text="done")
            if "write" in tools
            else calls(Call.make("2", "write", path="calc.txt", content=content))
        )

    return react


@dataclass
class Play:
    """A stage with its log; `run` drives the newest request."""

    stage: Stage
    log: Log = field(default_factory=Log.memory)

    def run(self, text: str = "fix the tests", *, judged: bool = True) -> Finished:
        async def whole() -> Finished:
            if self.log.events:
                await self.stage.asked(self.log, text, judged=judged)
            else:
                await self.stage.begin(self.log, text, judged=judged)
            return await self.again()

        return asyncio.run(whole())

    async def again(self) -> Finished:
        return await orchestrator.run(self.log, self.stage.team(), self.stage.environment())

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.log.events if isinstance(event, kind)]

    @property
    def told(self) -> list[str]:
        """The facts in short: type and who or what."""
        return [_short(event) for event in self.log.events[2:]]


def _short(event: Event) -> str:
    match event:
        case Assigned():
            return f"{event.agent} as {event.role}"
        case Permitted():
            return f"{'may' if event.allowed else 'may not'} {event.call.tool}"
        case ToolRan():
            return f"{event.call.tool} {'ok' if event.ok else 'failed'}"
        case Finished():
            return event.reason
        case _:
            return event.type


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def play(root: Path, *who: tuple[Member, React]) -> Play:
    agents = {member.name: Reacting(member.name, react) for member, react in who}
    return Play(Stage(root, root.parent / "store", tuple(member for member, _ in who), agents))


def shown(found: Play, name: str) -> list[Prompt]:
    agent = found.stage.agents[name]
    assert isinstance(agent, Reacting)
    return agent.shown


def test_a_question_is_answered_and_that_is_all(root: Path) -> None:
    found = play(root, (CHEAP, says("It holds a word.")), (STRONG, fails))
    assert found.run("what is it?", judged=False) == Finished(reason="answered")
    assert found.told == ["cheap as worker", "replied", "answered"]


def test_without_a_request_there_is_nothing_to_drive(root: Path) -> None:
    with pytest.raises(ValueError, match="no request"):
        asyncio.run(play(root, (CHEAP, says("x"))).again())


def test_a_worker_with_tools_fixes_and_another_agent_verifies(root: Path) -> None:
    found = play(root, (CHEAP, writes()), (STRONG, writes()))
    assert found.run().reason == "accepted"
    assert found.told == [
        *(
            "cheap as worker",
            "replied",
            "may read",
            "read ok",
            "replied",
            "may write",
            "write ok",
            "replied",
        ),
        *("may run_tests", "run_tests ok"),
        *("strong as verifier", "may diff", "diff ok", "replied", "accepted"),
    ]
    assert {event.model for event in found.log.events if isinstance(event, Replied)} == {
        "cheap-served",
        "strong-served",
    }
    verifier = "\n".join(
        message.text
        for message in shown(found, "strong")[0].messages
        if isinstance(message, FromUser)
    )
    assert "+fixed" in verifier
    assert "The tests were run (`sh check.sh`): 1 pass" in verifier


@dataclass
class Roles:
    """Agents and roles in a fixed order, then the end."""

    order: Sequence[tuple[str, Role]]

    async def decide(self, state: SessionState) -> Assigned | Finished:
        number = len(state.request.turns)
        end = action_space.request_end(state, turns=len(self.order), verify_answers=True)
        if end is not None:
            return end
        agent, acting = self.order[number]
        return Assigned(
            turn=number + 1, agent=agent, role=acting, by="test", instruction="Look closely."
        )


def test_each_role_is_offered_its_tools_and_told_its_part(root: Path) -> None:
    plan = "Change calc.txt. <suggested_role>worker</suggested_role>"
    found = play(root, (CHEAP, says(plan)), (STRONG, writes()))
    order: list[tuple[str, Role]] = [
        ("cheap", "thinker"),
        ("strong", "worker"),
        ("strong", "verifier"),
    ]
    found.stage = replace(found.stage, coordinator=Roles(order))
    assert found.run().reason == "accepted"
    offered = [
        {tool.name for tool in prompt.tools}
        for prompt in (
            shown(found, "cheap")[0],
            shown(found, "strong")[0],
            shown(found, "strong")[-1],
        )
    ]
    assert offered[0] == offered[1] == offered[2], "one list, which stays in a model's cache"
    assert {"read", "edit", "bash", "run_tests", "acceptance_check"} <= offered[0]
    assert not {"diff", "run_check", "tests_before"} & offered[0]
    worker = str(shown(found, "strong")[0].messages)
    assert "Change calc.txt." in worker
    assert "suggested_role" not in worker
    assert "Look closely." in worker


def test_a_thinkers_suggestion_decides_the_next_role(root: Path) -> None:
    """The work is done already: the Thinker sends it to a Verifier although the tests do not decide
    this request.
    """
    found = play(root, (CHEAP, writes()), (STRONG, says("<suggested_role>worker</suggested_role>")))
    found.stage = replace(
        found.stage, coordinator=Thinks(Cascade((CHEAP, STRONG), CoordinatorSettings()))
    )
    found.run("tidy up", judged=False)
    assert [event.role for event in found.log.events if isinstance(event, Assigned)][:2] == [
        "thinker",
        "worker",
    ]


@dataclass
class Thinks:
    """A Thinker first, then as the cascade says."""

    then: Cascade

    async def decide(self, state: SessionState) -> Assigned | Finished:
        if not state.request.turns:
            return Assigned(turn=1, agent="strong", role="thinker", by="test")
        return await self.then.decide(state)


def test_an_agent_that_fails_is_masked_and_the_next_best_takes_the_turn(root: Path) -> None:
    found = play(root, (CHEAP, fails), (STRONG, writes()))
    assert found.run().reason == "accepted"
    assert [event for event in found.log.events if isinstance(event, Failed)] == [
        Failed(
            turn=1,
            what="cheap",
            kind="refused",
            message="the key was refused; set another",
            hint="set another",
        )
    ]
    assert [event.agent for event in found.log.events if isinstance(event, Assigned)] == [
        "cheap",
        "strong",
        "strong",
    ]


def test_a_failure_names_its_agent_once_and_its_advice_is_a_sentence(root: Path) -> None:
    def refused(prompt: Prompt) -> Reply:
        raise AgentError("cheap: the key was refused", kind="refused", hint="Set SHOP_KEY.")

    found = play(root, (CHEAP, refused))
    end = found.run()
    assert [event.message for event in found.log.events if isinstance(event, Failed)] == [
        "the key was refused. Set SHOP_KEY."
    ]
    assert "(cheap: refused: the key was refused. Set SHOP_KEY)" in end.message


def test_when_all_agents_fail_the_request_ends_as_failed(root: Path) -> None:
    found = play(root, (CHEAP, fails), (STRONG, fails))
    end = found.run()
    assert end.reason == "failed"
    assert "the key was refused" in end.message


@dataclass
class Answers:
    """The user: answers in turn, and remembers what was asked."""

    answers: list[Permission]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, call: Call, judgement: policy.Judgement) -> Permission:
        self.asked.append(judgement.target)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


@pytest.mark.parametrize(
    ("answers", "asked", "by", "ran"),
    [
        (["once", "once"], 2, ["user", "user"], 2),
        (["session"], 1, ["session", "session"], 2),
        (["no", "no"], 2, ["user", "user"], 0),
    ],
)
def test_what_the_user_is_asked_and_what_the_answer_covers(
    root: Path, answers: list[Permission], asked: int, by: list[str], ran: int
) -> None:
    touch = Call.make("1", "bash", command="echo x >> made")

    def twice(prompt: Prompt) -> Reply:
        return calls(touch) if len(said(prompt)) < 2 else Reply(text="done")

    user = Answers(answers)
    found = play(root, (CHEAP, twice))
    found.stage = replace(found.stage, ask=user, settings=CoordinatorSettings(turns=1))
    found.run("make it", judged=False)
    assert user.asked == ["bash(echo x >> made)"] * asked
    assert [
        event.by
        for event in found.log.events
        if isinstance(event, Permitted) and event.call.tool == "bash"
    ] == by
    assert ((root / "made").read_text() if ran else "") == "x\n" * ran
    assert (root / "made").exists() is bool(ran)


def test_a_yes_for_the_session_covers_what_the_offered_rule_says(root: Path) -> None:
    lines = ["make test", "make test all", "make test && make clean", "make clean"]

    def each(prompt: Prompt) -> Reply:
        done = len(said(prompt))
        return (
            calls(Call.make(str(done), "bash", command=lines[done]))
            if done < len(lines)
            else Reply(text="done")
        )

    user = Answers(["session", "no", "no"])
    found = play(root, (CHEAP, each))
    found.stage = replace(found.stage, ask=user, settings=CoordinatorSettings(turns=1))
    found.run("make it", judged=False)
    assert user.asked == ["bash(make test)", "bash(make test && make clean)", "bash(make clean)"]
    made = [
        event
        for event in found.log.events
        if isinstance(event, Permitted) and event.call.tool == "bash"
    ]
    assert [(event.by, event.rule) for event in made] == [
        ("session", "bash(make test *)"),
        ("session", ""),
        ("user", ""),
        ("user", ""),
    ]


def test_a_refusal_with_words_reaches_the_agent(root: Path) -> None:
    user, write = (
        Answers([Refusal(feedback="keep the old file")]),
        Call.make("1", "write", path="new.txt", content="x"),
    )
    found = play(
        root, (CHEAP, lambda prompt: Reply(text="then not") if said(prompt) else calls(write))
    )
    found.stage = replace(found.stage, ask=user, mode="ask", settings=CoordinatorSettings(turns=1))
    found.run("write it", judged=False)
    assert not (root / "new.txt").exists()
    told = results(shown(found, "cheap")[1])[0]
    assert (told.ok, told.text) == (False, "Not allowed: the user said no: keep the old file")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            Call.make("1", "write", path="calc.txt", content="x"),
            "calc.txt exists and its present content was not read yet.",
        ),
        (
            Call.make("1", "edit", path="calc.txt", old="x y z", new="b"),
            "calc.txt: the old text was not found",
        ),
        (Call.make("1", "edit", path="gone.txt", old="a", new="b"), "There is no file gone.txt."),
        (Call.make("1", "apply_patch", patch="no patch"), "This is not a patch"),
        (Call.make("1", "bash"), "bash was not run: `command` is missing."),
    ],
)
def test_nobody_is_asked_about_a_call_that_cannot_run(root: Path, call: Call, told: str) -> None:
    user = Answers(["once"])
    found = play(
        root, (CHEAP, lambda prompt: Reply(text="then not") if said(prompt) else calls(call))
    )
    found.stage = replace(found.stage, ask=user, mode="ask", settings=CoordinatorSettings(turns=1))
    found.run("write it", judged=False)
    assert user.asked == []
    assert (root / "calc.txt").read_text() == "broken\n"
    result = results(shown(found, "cheap")[1])[0]
    assert not result.ok and result.text.startswith(told)


def test_a_file_outside_is_not_looked_into_before_the_answer(root: Path) -> None:
    (root.parent / "secret.txt").write_text("nearly this text\n")
    call = Call.make("1", "edit", path="../secret.txt", old="nearly that text", new="b")
    user = Answers(["no"])
    found = play(
        root, (CHEAP, lambda prompt: Reply(text="then not") if said(prompt) else calls(call))
    )
    found.stage = replace(found.stage, ask=user, mode="ask", settings=CoordinatorSettings(turns=1))
    found.run("write it", judged=False)
    assert len(user.asked) == 1
    assert "this text" not in results(shown(found, "cheap")[1])[0].text


def test_what_needs_a_yes_every_time_is_asked_every_time(root: Path) -> None:
    def twice(prompt: Prompt) -> Reply:
        return (
            calls(Call.make("1", "bash", command="touch ../x"))
            if len(said(prompt)) < 2
            else Reply(text="done")
        )

    user = Answers(["session"])
    found = play(root, (CHEAP, twice))
    found.stage = replace(found.stage, ask=user, settings=CoordinatorSettings(turns=1))
    found.run("clean up", judged=False)
    assert len(user.asked) == 2


def test_a_denied_call_is_told_to_the_agent_and_does_nothing(root: Path) -> None:
    found = play(
        root, (CHEAP, lambda prompt: Reply(text="then not") if said(prompt) else calls(FIX))
    )
    found.stage = replace(found.stage, deny=("write",), settings=CoordinatorSettings(turns=1))
    found.run("write it", judged=False)
    assert (root / "calc.txt").read_text() == "broken\n"
    result = results(shown(found, "cheap")[1])[0]
    assert (result.ok, "Not allowed" in result.text, "write" in result.text) == (False, True, True)


def test_a_call_that_would_exceed_the_budget_is_not_made(root: Path) -> None:
    dear = CHEAP.model_copy(update={"price": Price(input=1000.0, output=1000.0)})
    found = play(root, (dear, says("never said")))
    found.stage = replace(found.stage, limits=RequestLimits(budget=0.5))
    end = found.run()
    assert end.reason == "budget"
    assert "may cost $" in end.message
    assert shown(found, "cheap") == []


def test_a_budget_is_one_requests_and_not_the_whole_sessions(root: Path) -> None:
    dear = CHEAP.model_copy(update={"price": Price(input=0.0, output=100.0)})
    found = play(root, (dear, says("an answer")))
    found.stage = replace(found.stage, limits=RequestLimits(budget=0.4101))
    for _ in range(8):  # each costs 0.001; the shortest reply asked for can cost 0.4096
        assert found.run("what is it?", judged=False).reason == "answered"


@dataclass
class Hanging:
    """An agent that says a few words and then nothing. `at` is told when it hangs."""

    name: str
    at: asyncio.Event = field(default_factory=asyncio.Event)

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        say("Let me ")
        say("see")
        self.at.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        pass


def test_at_the_time_limit_the_turn_is_cut_and_the_request_ends(root: Path) -> None:
    found = Play(
        Stage(root, root.parent / "store", (CHEAP,), {"cheap": Hanging("cheap")}, test_command=None)
    )

    async def whole() -> Finished:
        await found.stage.begin(found.log, judged=False)
        clock = asyncio.get_running_loop().time  # the same clock as time.monotonic
        found.stage = replace(found.stage, limits=RequestLimits(deadline=clock() + 0.5))
        return await found.again()

    assert asyncio.run(whole()) == Finished(
        reason="time_limit", message="`fugu run --continue` goes on from here."
    )
    assert found.told == ["cheap as worker", "interrupted", "time_limit"]


def test_an_interruption_keeps_what_was_said_and_another_run_goes_on(root: Path) -> None:
    hanging = Hanging("cheap")
    found = Play(Stage(root, root.parent / "store", (CHEAP,), {"cheap": hanging}))
    heard: list[Recorded | Live] = []

    async def follow() -> None:
        async for item in found.log.follow():
            heard.append(item)

    async def whole() -> Finished:
        reader = asyncio.create_task(follow())
        await found.stage.begin(found.log)
        work = asyncio.create_task(found.again())
        await hanging.at.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert found.log.events[-1] == Interrupted(turn=1, partial="Let me see")
        found.stage = replace(found.stage, agents={"cheap": Reacting("cheap", writes())})
        end = await found.again()
        found.log.close()
        await reader
        return end

    assert asyncio.run(whole()).reason == "accepted"
    assert [event.turn for event in found.log.events if isinstance(event, Assigned)] == [1, 2, 3]
    assert [item.text for item in heard if isinstance(item, TextStreamed)][:2] == ["Let me ", "see"]
    assert [item.event for item in heard if isinstance(item, Recorded)] == list(found.log.events)


@dataclass
class Slow:
    """A coordinator that takes its time with the second decision."""

    then: Cascade
    at: asyncio.Event = field(default_factory=asyncio.Event)

    async def decide(self, state: SessionState) -> Assigned | Finished:
        if state.request.turns and not self.at.is_set():
            self.at.set()
            await asyncio.Event().wait()
        return await self.then.decide(state)


def test_a_cut_between_turns_keeps_the_work_that_is_done(root: Path) -> None:
    found = play(root, (CHEAP, writes()), (STRONG, writes()))
    slow = Slow(Cascade((CHEAP, STRONG), CoordinatorSettings()))
    found.stage = replace(found.stage, coordinator=slow)

    async def whole() -> Finished:
        await found.stage.begin(found.log)
        work = asyncio.create_task(found.again())
        await slow.at.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert found.log.events[-1] == Interrupted(turn=0)
        return await found.again()

    assert asyncio.run(whole()).reason == "accepted"
    assert [
        (event.agent, event.role) for event in found.log.events if isinstance(event, Assigned)
    ] == [
        ("cheap", "worker"),
        ("strong", "verifier"),
    ]


@pytest.mark.parametrize("left", ["fixed", "wrong"])
def test_a_command_that_is_cut_is_ended_and_the_tests_say_who_goes_on(
    root: Path, left: str
) -> None:
    started = root.parent / "started"
    long = Call.make("1", "bash", command=f"echo {left} > calc.txt; touch {started}; sleep 1000")
    found = play(root, (CHEAP, lambda prompt: calls(long)), (STRONG, says("ACCEPT")))
    found.stage = replace(found.stage, mode="yolo")

    async def whole() -> Finished:
        await found.stage.begin(found.log)
        work = asyncio.create_task(found.again())
        while not started.exists():
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        found.stage = replace(
            found.stage, agents={**found.stage.agents, "cheap": Reacting("cheap", writes())}
        )
        return await found.again()

    assert asyncio.run(whole()).reason == "accepted"
    assert found.told[:3] == ["cheap as worker", "replied", "may bash"]
    verified = ("strong as verifier", "may diff", "diff ok", "replied", "accepted")
    if left == "fixed":
        assert found.told[3:] == [
            "interrupted",
            "killed failed",
            "may run_tests",
            "run_tests ok",
            *verified,
        ]
    else:
        assert found.told[3:] == [
            *(
                "interrupted",
                "killed failed",
                "may run_tests",
                "run_tests failed",
                "may tests_before",
                "tests_before ok",
                "cheap as worker",
                "replied",
                "may read",
                "read ok",
            ),
            *(
                "replied",
                "may write",
                "write ok",
                "replied",
                "may run_tests",
                "run_tests ok",
                *verified,
            ),
        ]


def test_an_agent_that_left_the_pool_gives_its_open_turn_to_another(root: Path) -> None:
    found = play(root, (CHEAP, writes()), (STRONG, writes()))
    asyncio.run(found.stage.begin(found.log))
    found.log.append(Assigned(turn=1, agent="cheap", role="worker", by="cascade"))
    found.stage = replace(found.stage, members=(STRONG,))
    found.stage = replace(found.stage, agents={"strong": Reacting("strong", writes())})
    assert asyncio.run(found.again()).reason == "accepted"
    (failed,) = (event for event in found.log.events if isinstance(event, Failed))
    assert (failed.what, "not in the pool any more" in failed.message) == ("cheap", True)


def test_the_same_failing_call_again_and_again_ends_the_turn(root: Path) -> None:
    found = play(root, (CHEAP, lambda prompt: calls(Call.make("1", "read", path="gone.txt"))))
    found.stage = replace(found.stage, settings=CoordinatorSettings(turns=1))
    assert found.run().reason == "turn_limit"
    assert found.told.count("read failed") == 3


def test_the_same_call_may_fail_again_after_each_change(root: Path) -> None:
    def react(prompt: Prompt) -> Reply:
        tried = len(said(prompt))
        content = "fixed\n" if tried == 5 else f"wrong {tried}\n"
        write = Call.make("1", "write", path="calc.txt", content=content)
        if not tried:
            return calls(READ)
        return calls(write, Call(id="2", tool="run_tests")) if tried < 6 else Reply(text="done")

    found = play(root, (CHEAP, react), (STRONG, writes()))
    found.stage = replace(found.stage, mode="yolo")
    assert found.run().reason == "accepted"
    assert found.told.count("run_tests failed") == 4


@pytest.mark.parametrize("how", ["hang", "hang_middle"])
def test_a_server_that_hangs_is_given_up_and_the_next_agent_goes_on(root: Path, how: str) -> None:
    with running() as server:
        server.play("c", Breaks(how))
        limits = Timeouts(first_token=0.3, between=0.3)
        agent = OpenAI(
            ModelEndpoint(name="cheap", model="c", base_url=server.url, key=KEY, timeouts=limits)
        )
        found = play(root, (STRONG, writes()))
        stage = replace(found.stage, members=(CHEAP, STRONG))
        found.stage = replace(
            stage, agents={**stage.agents, "cheap": Retrying(agent, Backoff(attempts=1))}
        )
        assert found.run().reason == "accepted"
    (failed,) = (event for event in found.log.events if isinstance(event, Failed))
    assert (failed.kind, "for 0.3 s" in failed.message) == ("timeout", True)


def test_every_call_of_a_turn_has_an_id_of_its_own_whatever_the_provider_calls_it(
    root: Path,
) -> None:
    files = ["calc.txt", "check.sh"]

    def react(prompt: Prompt) -> Reply:
        pair = [Call.make("same", "read", path=path) for path in files]
        return calls(*pair) if len(said(prompt)) < 3 else Reply(text="read")

    found = play(root, (CHEAP, react))
    assert found.run("what is in there?", judged=False).reason == "answered"
    (turn,) = found.log.state.request.turns
    ran = [(run.permitted.call.id, run.result.call.arguments) for run in turn.runs if run.result]
    wanted = [Call.make("", "read", path=path).arguments for path in files * 3]
    assert ran == [(f"t1-0-{number}", arguments) for number, arguments in enumerate(wanted)]


def test_a_verifier_that_writes_is_refused(root: Path) -> None:
    def react(prompt: Prompt) -> Reply:
        if role(prompt) == "worker":
            return writes()(prompt)
        return Reply(text="ACCEPT") if results(prompt) else calls(FIX)

    found = play(root, (CHEAP, react))
    assert found.run().reason == "accepted"
    last = [
        fact
        for fact in found.of(Permitted)
        if isinstance(fact, Permitted) and fact.call.tool == "write"
    ][-1]
    assert not last.allowed
    assert last.reason.startswith("a Verifier changes nothing")
