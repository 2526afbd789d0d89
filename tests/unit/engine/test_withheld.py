"""Files that are kept from an agent: nothing of them reaches it, whatever way it takes."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fugu_cli.coordinators import AskPlanner, CoordinatorSettings
from fugu_cli.coordinators.conductor.conductor import Conductor, ConductorSettings
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.engine.orchestrator import run
from fugu_cli.messages import Call, Prompt, Reply, Thinking
from fugu_cli.providers.wrappers import filtered_prompt
from fugu_cli.safety import path_rules
from fugu_cli.safety.path_rules import Denials
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Compacted,
    Event,
    FileChange,
    Finished,
    Member,
    Opened,
    Permitted,
    Planned,
    Replied,
    ToolRan,
    WorkflowStep,
)
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from tests.facts import prompt_of
from tests.reacting import Reacting, Stage, calls, repository, results

FREE = Member(name="free", provider="openai", model="m-free", slot="cheap")
KEPT = Member(name="kept", provider="openai", model="m-kept", slot="strong")
SECRET = "launch-code-4711"
RULES = {"secrets/**": ("kept",)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = repository(tmp_path / "repo")
    (root / "secrets").mkdir()
    (root / "secrets" / "codes.txt").write_text(f"the codes\n{SECRET}\nimport os\n")
    (root / "a.py").write_text("import os\nprint('hello')\n")
    (root / "link.txt").symlink_to("secrets/codes.txt")
    return root


def all_text(prompt: Prompt) -> str:
    return json.dumps(prompt.model_dump(mode="json"), ensure_ascii=False)


def shown(events: list[Event], denials: Denials, reader: Member = KEPT) -> str:
    """What the agent is sent at the end of `events`."""
    known = path_rules.visible_events(events, reader.name, denials)
    prompt = prompt_of(known, reader, ())
    return all_text(
        filtered_prompt(prompt, path_rules.disclosure_check(events, reader.name, denials))
    )


def test_a_path_is_denied_by_its_name_and_by_where_it_leads(root: Path) -> None:
    denials = Denials(RULES, root)
    asked = [
        "secrets/codes.txt",
        "./secrets/new.txt",
        "a/../secrets/x",
        "link.txt",
        "secrets",
        "a.py",
        "secretsanta",
    ]
    assert [denials.denied("kept", path) for path in asked] == [
        True,
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert not any(denials.denied("free", path) for path in asked)
    assert Denials({"secrets/**": ("*",)}, root).denied("free", "secrets/codes.txt")


def test_what_everybody_may_read_elsewhere_gives_nothing_away(root: Path) -> None:
    known = Denials(RULES, root).traces("kept")
    assert [known.within(line) for line in ("import os", "the codes", f"x = '{SECRET}'", "hello")] == [
        False, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (
            Call.make("1", "read", path="secrets/codes.txt"),
            "deny_agents keeps secrets/codes.txt from kept",
        ),
        (
            Call.make("1", "edit", path="link.txt", old="a", new="b"),
            "deny_agents keeps link.txt from kept",
        ),
        (Call.make("1", "bash", command="base64 s*/*"), "a command could read secrets/codes.txt"),
        (Call.make("1", "job_output", job="job1"), "a command could read secrets/codes.txt"),
        (Call.make("1", "mcp__files__get", name="x"), "an MCP server could read secrets/codes.txt"),
        (Call.make("1", "read", path="a.py"), ""),
        (Call.make("1", "grep", pattern="x"), ""),
    ],
)
def test_the_agent_itself_cannot_ask_for_one(root: Path, call: Call, why: str) -> None:
    denials = Denials(RULES, root)
    assert path_rules.call_refusal([], "kept", call, denials).startswith(why)
    assert (path_rules.call_refusal([], "kept", call, denials) == "") == (why == "")
    assert path_rules.call_refusal([], "free", call, denials) == ""


def test_without_rules_nothing_changes(root: Path) -> None:
    events: list[Event] = [Asked(text="x")]
    assert path_rules.visible_events(events, "kept", None) is events
    assert path_rules.visible_events(events, "free", Denials(RULES, root)) is events


OUTPUTS = st.sampled_from(
    [
        ("read", {"path": "secrets/codes.txt"}, f"1\tthe codes\n2\t{SECRET}"),
        ("read", {"path": "link.txt"}, f"1\t{SECRET}"),
        ("grep", {"pattern": "code"}, f"secrets/codes.txt:2:{SECRET}\na.py:1:import os"),
        ("bash", {"command": "cat secrets/*"}, f"the codes\n{SECRET}"),
        ("bash", {"command": "cat $(echo c2VjcmV0cw== | base64 -d)/*"}, f"{SECRET}"),
        ("bash", {"command": "cat s*/* | rev"}, SECRET[::-1]),
        ("bash", {"command": "awk -F- '{print $3}' */*"}, "4711"),
        ("bash", {"command": "python show.py"}, SECRET[::-1]),
        ("job_output", {"job": "job1"}, SECRET[::-1]),
        (
            "todo",
            {"items": [{"text": f"use {SECRET[::-1]}", "status": "pending"}]},
            "The list stands.",
        ),
        ("run_tests", {}, f"FAILED: expected '{SECRET}'"),
        ("diff", {"since": "t"}, f"+++ b/secrets/codes.txt\n+{SECRET}"),
        ("write", {"path": "notes.md", "content": f"remember {SECRET}"}, "written"),
        ("read", {"path": "notes.md"}, f"remember {SECRET[::-1]}"),
        ("read", {"path": "a.py"}, "import os"),
    ]
)
WORDS = st.sampled_from(
    [
        f"It says {SECRET}.",
        f"Reversed it is {SECRET[::-1]}",
        "4711, I believe",
        "Nothing to see.",
        f"`{SECRET}`",
    ]
)


@st.composite
def stories(draw: st.DrawFn) -> list[Event]:
    """A session in which the free agent works first and tells what it saw in every way there is."""
    events: list[Event] = [
        Opened(version="1", repo="/r", pool=(FREE, KEPT)),
        Asked(text="do it", snapshot="t0"),
    ]
    exposed = False
    for turn in range(1, draw(st.integers(1, 4)) + 1):
        events.append(Assigned(turn=turn, agent="free", role="worker", by="cascade"))
        for number in range(draw(st.integers(0, 3))):
            tool, arguments, output = draw(OUTPUTS)
            if tool in {"write", "todo"} and not exposed:
                continue  # before it has seen it, it cannot write it
            if tool == "read" and SECRET[::-1] in output and not exposed:
                continue
            call = Call(id=f"t{turn}-{number}", tool=tool, arguments=json.dumps(arguments))
            events.append(Replied(turn=turn, agent="free", text="", calls=(call,), stop="calls"))
            events.append(Permitted(turn=turn, call=call, allowed=True, by="policy"))
            changes = (
                (FileChange(path="notes.md", before=None, after="b"),) if tool == "write" else ()
            )
            events.append(ToolRan(turn=turn, call=call, output=output, ok=True, changes=changes))
            exposed = exposed or any(form in output for form in (SECRET, SECRET[::-1], "4711"))
        said = draw(WORDS) if exposed else "Nothing to see."
        thinking = (Thinking(text=said, data=json.dumps({"thinking": said})),)
        events.append(Replied(turn=turn, agent="free", text=said, thinking=thinking))
        if exposed and draw(st.booleans()):
            events.append(
                Compacted(summary=f"So far: {said} {SECRET}", upto=len(events) - 1, agent="free")
            )
        if exposed and draw(st.booleans()):
            step = WorkflowStep(agent="kept", instruction=f"use {SECRET}")
            events.append(Planned(steps=(step,), text=f"plan with {SECRET}", agent="free"))
    instruction = f"use {SECRET[::-1]}" if exposed else ""
    last = Assigned(turn=9, agent="kept", role="worker", by="conductor", instruction=instruction)
    if draw(
        st.booleans()
    ):  # a step of a workflow: it is told outputs of others and what the tool memory holds
        events.append(
            Planned(steps=(WorkflowStep(agent="kept", instruction=instruction),), text="", agent="")
        )
        lines = tuple(number for number, event in enumerate(events) if isinstance(event, ToolRan))
        turns = tuple({event.turn for event in events if isinstance(event, Assigned)})
        plan = sum(isinstance(event, Planned) for event in events)
        last = last.model_copy(update={"plan": plan, "sees": turns, "remembers": lines})
    return [*events, last]


@pytest.mark.parametrize("protocol", ["native", "text"])
@given(events=stories())
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_of_it_reaches_the_agent_by_output_quote_digest_summary_plan_or_tool_memory(
    root: Path, protocol: str, events: list[Event]
) -> None:
    reader = KEPT.model_copy(update={"protocol": protocol})
    events[0] = Opened(version="1", repo="/r", pool=(FREE, reader))
    text = shown(events, Denials(RULES, root), reader)
    assert SECRET not in text
    assert SECRET[::-1] not in text
    assert "4711" not in text


@pytest.mark.parametrize(
    "said", [f"Backwards it is {SECRET[::-1]}. {'And so on. ' * 200}", f"<output> {SECRET[::-1]}"]
)
def test_a_planner_is_not_shown_the_beginning_of_a_line_that_is_kept_from_it(
    root: Path, said: str
) -> None:
    call = Call.make("x", "read", path="secrets/codes.txt")
    events: list[Event] = [
        Opened(version="1", repo="/r", pool=(FREE, KEPT)),
        Asked(text="look"),
        Assigned(turn=1, agent="free", role="worker", by="cascade"),
        Replied(turn=1, agent="free", text="", calls=(call,), stop="calls"),
        Permitted(turn=1, call=call, allowed=True, by="policy"),
        ToolRan(turn=1, call=call, output=SECRET, ok=True),
        Replied(turn=1, agent="free", text=f"I have seen it.\n{said}"),
        Finished(reason="answered"),
        Asked(text="and now?"),
    ]
    plain = CoordinatorSettings()
    conductor = Conductor(
        (FREE, KEPT), ConductorSettings(agent="kept"), plain, Cascade((FREE, KEPT), plain)
    )
    decision = asyncio.run(conductor.decide(SessionState(events)))
    assert isinstance(decision, AskPlanner)
    text = all_text(
        filtered_prompt(
            decision.prompt, path_rules.disclosure_check(events, "kept", Denials(RULES, root))
        )
    )
    assert ("and now?" in text, SECRET[::-1] in text) == (True, False)


@given(events=stories())
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_other_agent_reads_everything(root: Path, events: list[Event]) -> None:
    assert path_rules.visible_events(events, "free", Denials(RULES, root)) is events


def test_an_agent_with_the_same_rule_passes_its_words_on(root: Path) -> None:
    both = Denials({"secrets/**": ("kept", "free")}, root)
    call = Call.make("1", "bash", command="ls secrets")
    events: list[Event] = [
        Opened(version="1", repo="/r", pool=(FREE, KEPT)),
        Asked(text="x"),
        Assigned(turn=1, agent="free", role="worker", by="cascade"),
        ToolRan(turn=1, call=call, output="secrets/codes.txt", ok=True),
        Replied(turn=1, agent="free", text="a plan"),
        Assigned(turn=2, agent="kept", role="worker", by="cascade"),
    ]
    assert "a plan" in shown(events, both)
    assert "a plan" not in shown(events, Denials(RULES, root))


def test_a_whole_session_keeps_it_from_the_agent(root: Path, tmp_path: Path) -> None:
    def reads(prompt: Prompt) -> Reply:
        if not results(prompt):
            return calls(Call.make("a", "read", path="secrets/codes.txt"))
        return Reply(text=f"It is {results(prompt)[0].text}")

    def tries(prompt: Prompt) -> Reply:
        done = len(results(prompt))
        made = [
            Call.make("a", "read", path="secrets/codes.txt"),
            Call.make("b", "bash", command="cat secrets/codes.txt"),
            Call.make("c", "grep", pattern="launch"),
            Call.make("d", "read", path="link.txt"),
        ]
        return calls(made[done]) if done < len(made) else Reply(text="ACCEPT")

    kept = Reacting("kept", tries)
    stage = Stage(
        root, tmp_path / "store", (FREE, KEPT), {"free": Reacting("free", reads), "kept": kept}, mode="yolo",
        test_command=None,
    )  # fmt: skip
    stage.coordinator = Cascade(stage.members, CoordinatorSettings(verify_answers=True, turns=2))

    async def go() -> Log:
        log = Log.memory()
        await stage.begin(log, "what does it say?", judged=False)
        environment = stage.environment()
        object.__setattr__(environment, "denials", Denials(RULES, root))
        await run(log, stage.team(), environment)
        return log

    log = asyncio.run(go())
    assert [event.agent for event in log.events if isinstance(event, Assigned)] == ["free", "kept"]
    assert len(kept.shown) == 5
    assert SECRET not in "".join(all_text(prompt) for prompt in kept.shown)
    reasons = [
        event.reason for event in log.events if isinstance(event, Permitted) and not event.allowed
    ]
    assert [reason.split(" keeps ")[0].split(" could ")[0] for reason in reasons] == [
        "deny_agents", "a command", "deny_agents",
    ]  # fmt: skip
