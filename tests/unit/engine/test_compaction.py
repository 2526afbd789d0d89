"""Compaction: what agents read stays short, nothing of the request is lost, no call is parted from
its result.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu_cli import prompts
from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.rules import Single
from fugu_cli.engine import compaction, orchestrator
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Prompt, Reply, Usage
from fugu_cli.session import costs
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    Finished,
    JobEnded,
    Member,
    ToolRan,
)
from fugu_cli.session.log import Log
from fugu_cli.session.open_work import BYTES
from fugu_cli.session.state import SessionState
from tests.facts import STRONG, assigned, opened, prompt_of, ran, replied
from tests.reacting import React, Reacting, Stage, calls, fails, repository

TIGHT = Member(name="strong", provider="openai", model="s", slot="strong", context=9000)
BIG = "x = 1\n" * 1500


def session(requests: int, steps: int, *, done: bool = True) -> list[Event]:
    """Requests with native tool calls of long output; the last one unfinished unless `done`."""
    facts: list[Event] = [opened()]
    for number in range(requests):
        facts.append(Asked(text=f"request number {number}: keep every word", snapshot="t"))
        facts.append(Assigned(turn=1, agent="strong", role="worker", by="single"))
        for step in range(steps):
            call = Call.make(f"t1-0-{step}", "read", path=f"f{number}-{step}.py")
            facts += [
                replied(1, "strong", f"I read {number}.{step}", call),
                *ran(1, call, f"{number}.{step} {BIG}"),
            ]
        if done or number < requests - 1:
            facts += [replied(1, "strong", f"answer {number}"), Finished(reason="answered")]
    return facts


def compacted(facts: list[Event], upto: int, text: str = "SUMMARY") -> list[Event]:
    return [*facts, Compacted(summary=text, upto=upto)]


def shown(facts: list[Event], member: Member = STRONG) -> Prompt:
    return prompt_of(facts, member, ())


def summarizer(
    log: Log,
    member: Member,
    agent: Reacting,
    check: Callable[[Prompt, float], None] = lambda prompt, lost: None,
) -> compaction.Summarizer:
    """An agent that reads the whole session."""
    return compaction.Summarizer(member, agent, shown(list(log.events), member), check)


def whole(prompt: Prompt) -> bool:
    """Every call that is shown has its result right behind it, and no result stands alone."""
    waiting: list[str] = []
    for message in prompt.messages:
        if isinstance(message, FromTool):
            if message.call not in waiting:
                return False
            waiting.remove(message.call)
        elif waiting:
            return False
        elif isinstance(message, FromAgent):
            waiting = [call.id for call in message.calls]
    return not waiting


def test_between_requests_the_summary_takes_the_place_of_all_that_was_said() -> None:
    facts = session(2, 2)
    facts = [*compacted(facts, len(facts) - 1), Asked(text="and now?"), Assigned(turn=1, agent="strong", role="worker",
             by="single")]  # fmt: skip
    first, second, *rest = shown(facts).messages
    assert first == FromUser(text="[What happened before, summed up:]\nSUMMARY")
    assert second == FromUser(text="and now?")
    assert [type(message) for message in rest] == [FromUser]


def test_inside_a_request_its_words_and_the_newest_calls_stay_as_they_are() -> None:
    facts = session(2, 4, done=False)
    upto = compaction.boundary(SessionState(facts), TIGHT)
    assert upto is not None
    prompt = shown(compacted(facts, upto))
    assert prompt.messages[0] == FromUser(text="[What happened before, summed up:]\nSUMMARY")
    assert prompt.messages[1] == FromUser(text="request number 1: keep every word")
    assert [m.text for m in prompt.messages if isinstance(m, FromAgent)] == ["I read 1.3"]
    assert whole(prompt)


def test_inside_a_request_the_turns_that_are_summed_up_leave_nothing_behind() -> None:
    start = [
        opened(),
        Asked(text="what is it?", snapshot="t"),
        assigned(1, "small"),
        replied(1, "small", "a parser"),
    ]
    events = compacted([*start, assigned(2, "strong", "thinker")], 3)
    role = FromUser(text=prompts.load("thinker"))
    before = FromUser(text="[What happened before, summed up:]\nSUMMARY")
    assert shown(events).messages == (before, FromUser(text="what is it?"), role)


def test_a_second_compaction_stands_for_the_first_too() -> None:
    facts = session(1, 3, done=False)
    facts = compacted(facts, 4, "FIRST")
    facts = compacted(facts, 7, "SECOND")
    texts = "".join(message.model_dump_json() for message in shown(facts).messages)
    assert "SECOND" in texts and "FIRST" not in texts


def test_an_earlier_request_that_was_cut_in_half_keeps_its_words_and_its_later_half() -> None:
    facts = session(1, 3, done=False)
    facts = [*compacted(facts, 5), replied(1, "strong", "the end"), Finished(reason="answered"), Asked(text="next"),
             Assigned(turn=1, agent="strong", role="worker", by="single")]  # fmt: skip
    prompt = shown(facts)
    assert [m.text for m in prompt.messages if isinstance(m, FromAgent)] == [
        "I read 0.1",
        "I read 0.2",
        "the end",
    ]
    assert FromUser(text="request number 0: keep every word") in prompt.messages
    assert whole(prompt)


@settings(max_examples=60, deadline=None)
@given(
    requests=st.integers(1, 4),
    steps=st.integers(0, 5),
    done=st.booleans(),
    budget=st.integers(2000, 40000),
    twice=st.booleans(),
)
def test_no_compaction_ever_parts_a_call_from_its_result(
    requests: int, steps: int, done: bool, budget: int, twice: bool
) -> None:
    facts = session(requests, steps, done=done)
    for _ in range(1 + twice):
        upto = compaction.boundary(
            SessionState(facts), TIGHT.model_copy(update={"context": budget})
        )
        if upto is None:
            break
        facts = compacted(facts, upto)
    if done:
        facts = [
            *facts,
            Asked(text="more"),
            Assigned(turn=1, agent="strong", role="worker", by="single"),
        ]
    prompt = shown(facts)
    assert whole(prompt)
    newest = next(event for event in reversed(facts) if isinstance(event, Asked))
    assert FromUser(text=newest.text) in prompt.messages


def test_the_summary_keeps_requests_word_for_word_and_says_what_it_dropped() -> None:
    log = Log.memory(session(2, 2))
    scribe = summarizer(log, STRONG, Reacting("strong", lambda prompt: Reply(text="Done: much.")))
    fact = asyncio.run(compaction.compact(log, (scribe,), len(log.events) - 1))
    assert fact.summary == (
        "Done: much.\n\n"
        "The user asked, word for word:\n"
        "1. request number 0: keep every word\n2. request number 1: keep every word\n\n"
        "[Left out above: 6 replies and 4 tool results of 36,016 characters. "
        "Files may not be as they were then: read one before you change it.]"
    )
    assert (fact.agent, fact.usage.input, log.events[-1]) == ("strong", 100, fact)
    assert costs.usage(log.events)["strong"].input == 100 * 6 + 100


def test_beside_the_summary_stand_the_open_items_of_the_list_and_the_jobs_that_run() -> None:
    items = [{"text": "look", "status": "done"}, {"text": "act", "status": "pending"}]
    todo, serve = (
        Call.make("8", "todo", items=items),
        Call.make("9", "bash", command="serve", background=True),
    )
    other = serve.model_copy(update={"id": "10"})
    begun = [
        ToolRan(turn=1, call=serve, output="", ok=True, job="job1"),
        ToolRan(turn=1, call=other, output="", ok=True, job="job2"),
        JobEnded(job="job2", command="serve", code=0),
    ]
    facts = [*session(1, 1), *ran(1, todo), *begun]
    now = [
        Asked(text="go on", snapshot="t"),
        Assigned(turn=1, agent="strong", role="worker", by="single"),
    ]
    first = shown([*facts, Compacted(summary="SUMMARY", upto=len(facts) - 1), *now]).messages[0]
    assert first == FromUser(
        text="[What happened before, summed up:]\nSUMMARY\n\nThe todo list, as it stood:\n[x] look\n[ ] act\n\n"
        'Background jobs:\njob1: {"command": "serve", "background": true}'
    )
    done = todo.model_copy(update={"arguments": todo.arguments.replace("pending", "done")})
    facts = [*session(1, 1), *ran(1, todo), *ran(1, done)]
    first = shown([*facts, Compacted(summary="SUMMARY", upto=len(facts) - 1), *now]).messages[0]
    assert first == FromUser(text="[What happened before, summed up:]\nSUMMARY")


def test_where_no_agent_can_write_it_the_facts_are_listed() -> None:
    log = Log.memory(session(2, 1))
    fact = asyncio.run(
        compaction.compact(log, (summarizer(log, STRONG, Reacting("strong", fails)),), 12)
    )
    assert fact.agent == ""
    assert fact.summary.startswith(
        f"{compaction.UNWRITTEN}\nRequest 1: changed nothing. Answer: answer 0\n"
        "Request 2: changed nothing."
    )


def test_what_the_summary_is_written_from_fits_the_agent_that_writes_it() -> None:
    log = Log.memory(session(30, 6))
    agent = Reacting("strong", lambda prompt: Reply(text="short"))
    asyncio.run(compaction.compact(log, (summarizer(log, TIGHT, agent),), len(log.events) - 1))
    assert compaction.prompt_tokens(agent.shown[0]) + agent.shown[0].max_tokens <= TIGHT.context
    assert any("[...]" in message.text for message in agent.shown[0].messages)
    assert whole(agent.shown[0])


def test_where_it_nearly_fits_only_results_that_no_cache_has_are_cut() -> None:
    events = session(1, 3, done=False)
    conversation = shown(events)
    size = compaction.prompt_tokens(conversation)
    member = TIGHT.model_copy(update={"context": size + conversation.max_tokens - 50})
    fitted = compaction.fit_window(
        conversation.model_copy(
            update={"messages": (*conversation.messages, FromUser(text="Sum it up."))}
        ),
        member,
    )
    *earlier, newest, _ = fitted.messages
    assert tuple(earlier) == conversation.messages[:-1]
    assert "[...]" in newest.text


def test_the_first_who_can_sum_up_does_and_nobody_else_is_paid() -> None:
    log = Log.memory(session(1, 1))
    first, second = (
        Reacting(name, lambda prompt: Reply(text="short")) for name in ("strong", "other")
    )
    scribes = [
        summarizer(log, STRONG.model_copy(update={"name": one.name}), one)
        for one in (first, second)
    ]
    fact = asyncio.run(compaction.compact(log, scribes, 6))
    assert (fact.agent, len(first.shown), len(second.shown)) == ("strong", 1, 0)


def test_the_summary_is_asked_for_at_the_end_of_the_conversation_as_it_stands() -> None:
    log = Log.memory(session(2, 2))
    agent = Reacting("strong", lambda prompt: Reply(text="short"))
    conversation = shown(log.events)
    asyncio.run(compaction.compact(log, (summarizer(log, STRONG, agent),), 6))
    (prompt,) = agent.shown
    assert prompt.messages[:-1] == conversation.messages
    assert (prompt.system, prompt.tools) == (conversation.system, conversation.tools)
    assert "Write its memory now" in prompt.messages[-1].text


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text="Known: ha", stop="length"),
        Reply(text="Known: ha", calls=(Call.make("c", "read", path="a.py"),), stop="calls"),
    ],
    ids=["cut", "a call"],
)
def test_a_cut_summary_is_asked_for_again_and_none_replaces_an_earlier_one(reply: Reply) -> None:
    log = Log.memory(compacted(session(1, 3, done=False), 4, "Known: EARLIER"))
    agent = Reacting("strong", lambda prompt: reply)
    upto = len(log.events) - 2  # the earlier summary was written behind this line
    fact = asyncio.run(compaction.compact(log, (summarizer(log, STRONG, agent),), upto))
    assert [prompt.max_tokens for prompt in agent.shown] == [8192, 16384]
    assert fact.summary.startswith(
        f"Known: EARLIER\n{compaction.UNWRITTEN}\nRequest 1: changed nothing."
    )
    assert "Known: ha" not in fact.summary


def test_a_summary_for_a_small_window_leaves_the_conversation_to_those_who_read_more() -> None:
    facts = session(1, 3, done=False)
    facts = [*facts, Compacted(summary="SUMMARY", upto=4, window=9000)]
    assert "SUMMARY" not in shown(facts).model_dump_json()
    pool = [opened().model_copy(update={"pool": (TIGHT,)}), *facts[1:]]
    assert "SUMMARY" in shown(pool, TIGHT).model_dump_json()


def test_turns_that_were_open_at_the_same_time_are_not_cut_between_a_call_and_its_result() -> None:
    first, second = Call.make("a", "read", path="a.py"), Call.make("b", "read", path="b.py")
    step = {"plan": 1, "sees": ()}
    facts = [
        opened(),
        Asked(text="read both"),
        *(assigned(n, "strong").model_copy(update=step) for n in (1, 2)),
    ]
    facts += [
        replied(1, "strong", "x" * 20_000, first),
        replied(2, "strong", "", second),
        *ran(1, first),
    ]
    facts += [
        *ran(2, second),
        replied(1, "strong", "read"),
        replied(2, "strong", "read"),
        assigned(3, "strong"),
    ]
    assert compaction.boundary(SessionState(facts), TIGHT) == 9
    assert facts[10] == replied(1, "strong", "read")


def test_before_a_call_would_not_fit_the_loop_compacts_and_goes_on(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", {f"f{number}.py": BIG for number in range(6)})
    shown_sizes: list[int] = []

    def react(prompt: Prompt) -> Reply:
        shown_sizes.append(compaction.prompt_tokens(prompt))
        if "Write its memory now" in prompt.messages[-1].text:
            return Reply(text="Known: the files say x = 1.")
        step = len(shown_sizes)
        return (
            calls(Call.make("1", "read", path=f"f{step % 6}.py"))
            if step < 9
            else Reply(text="all read")
        )

    agent = Reacting("strong", react)
    stage = Stage(
        root,
        tmp_path / "store",
        (TIGHT,),
        {"strong": agent},
        Single("strong", (TIGHT,), CoordinatorSettings()),
        test_command=None,
    )

    async def play() -> tuple[Log, Finished]:
        log = Log.memory()
        await stage.begin(log, "read them all", judged=False)
        return log, await orchestrator.run(log, stage.team(), stage.environment())

    log, end = asyncio.run(play())
    facts = [event for event in log.events if isinstance(event, Compacted)]
    assert facts and all(fact.agent == "strong" for fact in facts)
    assert end.reason == "answered"
    assert max(shown_sizes) <= TIGHT.context
    assert all(
        "read them all" in json.dumps([m.model_dump() for m in prompt.messages])
        for prompt in agent.shown
    )


def too_long(prompt: Prompt) -> Reply:
    error = AgentError("the request is longer than s can read", kind="invalid")
    error.too_long, error.usage = True, Usage()
    raise error


def played(tmp_path: Path, react: React, member: Member = STRONG) -> tuple[Log, Finished]:
    root = repository(tmp_path / "repo", {f"f{number}.py": BIG for number in range(6)})
    agent, lone = Reacting("strong", react), Single("strong", (member,), CoordinatorSettings())
    stage = Stage(root, tmp_path / "store", (member,), {"strong": agent}, lone, test_command=None)

    async def play() -> tuple[Log, Finished]:
        log = Log.memory()
        await stage.begin(log, "read them all", judged=False)
        return log, await orchestrator.run(log, stage.team(), stage.environment())

    return asyncio.run(play())


def test_a_prompt_that_the_server_finds_too_long_is_summed_up_and_the_turn_goes_on(
    tmp_path: Path,
) -> None:
    """The entry says that the agent reads far more than it does."""
    steps: list[int] = []

    def react(prompt: Prompt) -> Reply:
        if compaction.prompt_tokens(prompt) > 25_000:
            return too_long(prompt)
        if "Write its memory now" in prompt.messages[-1].text:
            return Reply(text="Known: the files say x = 1.")
        steps.append(compaction.prompt_tokens(prompt))
        return (
            calls(Call.make("1", "read", path=f"f{len(steps) % 6}.py"))
            if len(steps) < 9
            else Reply(text="all read")
        )

    log, end = played(tmp_path, react, STRONG.model_copy(update={"context": 500_000}))
    assert end.reason == "answered"
    assert len(steps) == 9
    assert [fact.agent for fact in log.events if isinstance(fact, Compacted)] == ["strong"]
    assert not any(isinstance(fact, Failed) for fact in log.events)


@pytest.mark.parametrize(("too_long", "used"), [(False, None), (True, Usage(input=9000))])
def test_a_call_that_failed_for_another_reason_or_was_paid_for_is_not_summed_up(
    tmp_path: Path, too_long: bool, used: Usage | None
) -> None:
    steps: list[int] = []

    def react(prompt: Prompt) -> Reply:
        steps.append(len(prompt.messages))
        if len(steps) < 5:
            return calls(Call.make("1", "read", path=f"f{len(steps)}.py"))
        error = AgentError("it will not", kind="invalid")
        error.too_long, error.usage = too_long, used
        raise error

    log, end = played(tmp_path, react, STRONG.model_copy(update={"context": 500_000}))
    assert (end.reason, len(steps)) == ("failed", 5)
    assert not any(isinstance(fact, Compacted) for fact in log.events)


def test_where_nothing_can_be_left_out_a_prompt_that_is_too_long_fails(tmp_path: Path) -> None:
    log, end = played(tmp_path, too_long)
    assert end.reason == "failed"
    assert [fact.kind for fact in log.events if isinstance(fact, Failed)] == ["invalid"]
    assert not any(isinstance(fact, Compacted) for fact in log.events)


@pytest.mark.parametrize("script", ["x = 1\n", "これは長い文章です。", "длинный текст "])
def test_a_prompt_is_measured_in_bytes_for_other_scripts_have_more_tokens(script: str) -> None:
    prompt = Prompt(system="", messages=(FromUser(text=script * 100),))
    assert compaction.prompt_tokens(prompt) >= len((script * 100).encode()) / BYTES
    facts = [*session(3, 2)[:-1], Finished(reason="answered")]
    long = [
        fact.model_copy(update={"output": script * 1500}) if isinstance(fact, ToolRan) else fact
        for fact in facts
    ]
    log = Log.memory(long)
    agent = Reacting("strong", lambda prompt: Reply(text="short"))
    asyncio.run(compaction.compact(log, (summarizer(log, TIGHT, agent),), len(long) - 1))
    assert compaction.prompt_tokens(agent.shown[0]) + agent.shown[0].max_tokens <= TIGHT.context


def too_dear(prompt: Prompt, lost: float) -> None:
    raise AgentError("it is too dear", kind="budget")


def test_a_summary_that_cannot_be_paid_for_is_not_asked_for() -> None:
    agent = Reacting("strong", lambda prompt: Reply(text="dear"))
    log = Log.memory(session(1, 1))
    fact = asyncio.run(compaction.compact(log, (summarizer(log, STRONG, agent, too_dear),), 6))
    assert (agent.shown, fact.agent) == ([], "")


def breaks_off(prompt: Prompt) -> Reply:
    error = AgentError("cut", kind="network")
    error.usage = Usage(input=7000, output=1)
    raise error


@pytest.mark.parametrize(
    ("react", "paid"),
    [
        (lambda prompt: Reply(text=" "), Usage(input=100, output=10)),
        (breaks_off, Usage(input=7000, output=1)),
    ],
)
def test_a_summary_without_words_is_paid_for_all_the_same(react: React, paid: Usage) -> None:
    log = Log.memory(session(1, 1))
    fact = asyncio.run(
        compaction.compact(log, (summarizer(log, STRONG, Reacting("strong", react)),), 6)
    )
    assert (fact.agent, fact.usage) == ("strong", paid)
    assert "Request 1: changed nothing." in fact.summary
    assert costs.usage([fact]) == {"strong": paid}


def test_a_prompt_that_fits_is_left_alone() -> None:
    facts = session(2, 1, done=False)
    prompt, member = shown(facts), STRONG.model_copy(update={"context": 200_000})
    tokens = compaction.prompt_tokens(prompt)
    assert not compaction.is_due(SessionState(facts), prompt, member, tokens)
