"""The trace: a table where there is room, short lines where there is not, one decision in full, and
JSON.
"""

import json
from pathlib import Path

import pytest

from fugu_cli.errors import UsageError
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, PaidUse, Prompt, Usage
from fugu_cli.session.events import (
    AcceptedPlan,
    AgentEstimate,
    Asked,
    Assigned,
    Event,
    Finished,
    Interrupted,
    Member,
    Opened,
    Permitted,
    Price,
    Recorded,
    Replied,
    Scores,
    Steered,
    SteeringGiven,
    Subtask,
    ToolRan,
    Undone,
    UndoStarted,
)
from fugu_cli.session.state import SessionState
from fugu_cli.ui import trace, trace_rows, turn_page
from fugu_cli.ui.blocks import EndBlock
from fugu_cli.ui.drawing import TERMINAL, plain_text
from fugu_cli.ui.end_drawing import end_numbers
from fugu_cli.ui.session_totals import FoldedSession
from fugu_cli.ui.trace_drawing import trace_row_lines
from tests.unit.ui import example

TABLE = Path(__file__).with_name("table.txt").read_text(encoding="utf-8")

NARROW = """\
turn 1: coder as worker
  agents: cheap .25, middle *.75,
          strong --
  roles: worker *.91, thinker .09,
         verifier --
  30 s (decided in 310 ms), 4.8k in, 1.2k
    out, $0.0108
  tests pass (3 passed); changed a.py; 1
    rolled back
  strong excluded: opted out
  verifier excluded: no Worker answer yet
turn 2"""


def test_a_wide_terminal_gets_a_table() -> None:
    text = trace.trace_text(example.records(), "20261121-080000-ab12", 200)
    first, rest = text.split("\n", 1)
    assert first.startswith("session 20261121-080000-ab12  2026-09-2") and first.endswith(
        "  /home/me/shop"
    )
    assert rest + "\n" == TABLE


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 140, 170, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = trace.trace_text(example.records(), "20261121-080000-ab12", width).splitlines()
    assert [line for line in lines if len(line) > max(width, 56)] == []


def test_a_narrow_terminal_gets_the_same_in_short_lines() -> None:
    assert NARROW in trace.trace_text(example.records(), "s", 42)


def test_a_running_session_can_be_read_at_every_line() -> None:
    records = example.records()
    for end in range(len(records) + 1):
        assert trace.trace_text(records[:end], "s", 120).startswith("session s")
        json.loads(trace.trace_json(records[:end], "s"))


def test_a_session_without_a_request_says_so() -> None:
    assert "nothing was asked in this session" in trace.trace_text(example.records()[:1], "s")


def test_what_the_user_took_back_is_told_behind_the_end_of_the_request() -> None:
    records = example.records()
    last = records[-1]
    undone = Undone(snapshot="t0", paths=("a.py", "b.py"))
    back = Undone(snapshot="abc", kind="redo", paths=("a.py",))
    more = [
        last.model_copy(update={"seq": last.seq + step, "at": last.at + 60 * step, "event": event})
        for step, event in enumerate((UndoStarted(planned=undone), undone, back), start=1)
    ]
    said = trace.trace_text([*records, *more], "s", 120)
    put = [
        "undone by the user: 2 files put back",
        "redone by the user: 1 file put back",
    ]
    before = trace.trace_text(records, "s", 120).splitlines()
    assert said.splitlines() == [*before[:-2], *put, *before[-2:]]
    told = json.loads(trace.trace_json([*records, *more], "s"))["requests"]
    assert [one["undone"] for one in told][-1] == [
        {"redone": False, "paths": ["a.py", "b.py"]},
        {"redone": True, "paths": ["a.py"]},
    ]


def test_requests_are_numbered_and_each_has_its_own_turns() -> None:
    second = [
        Asked(text="and now?"),
        example.decision(1, "strong", "worker", None),
        Interrupted(turn=1),
    ]
    text = trace.trace_text(example.recorded([*example.events(), *second]), "s", 200)
    assert "request 2: and now?" in text
    assert text.rstrip().splitlines()[-3] == "not finished"
    assert "1     worker  strong  310 ms  2.0 s   0    0    $0  interrupted" in text


def test_json_holds_probabilities_logits_masks_and_what_came_of_it() -> None:
    document = json.loads(trace.trace_json(example.records(), "s"))
    (request,) = document["requests"]
    assert (document["session_id"], request["text"], request["reason"]) == (
        "s",
        "fix the failing tests",
        "accepted",
    )
    first = request["decisions"][0]
    assert first == {
        "turn": 1,
        "agent": "coder",
        "role": "worker",
        "by": "trinity",
        "slot": None,
        "reason": "",
        "override": None,
        "agents": {"cheap": 0.25, "middle": 0.75, "strong": 0.0},
        "roles": {"worker": 0.91, "thinker": 0.09, "verifier": 0.0},
        "masked": {"verifier": "no Worker answer yet", "strong": "opted out"},
        "milliseconds": 310.0,
        "subtask": None,
        "logits": {
            "cheap": -2.5,
            "middle": 2.5,
            "strong": -5.0,
            "worker": 2.5,
            "thinker": 0.25,
            "verifier": 1.5,
        },
        "estimates": [],
        "kinds": {},
        "kinds_from": None,
        "cascade": None,
        "probabilities_before_masks": {
            "cheap": 0.0067,
            "middle": 0.9928,
            "strong": 0.0005,
            "worker": 0.6788,
            "thinker": 0.0715,
            "verifier": 0.2497,
        },
        "margin": 5.0,
        "runner_up": "cheap",
        "role_margin": 2.25,
        "role_runner_up": "thinker",
        "read": "user: fix the tests\nmiddle (worker): done",
        "tokens": 412,
        "cached_tokens": 400,
        "cold": False,
        "temperature": 1.0,
        "milliseconds_by_part": {
            "load": 0.0,
            "format": 1.0,
            "tokenise": 2.0,
            "forward": 306.0,
            "head": 1.0,
        },
        "effort": "",
        "seconds": 30.0,
        "model_seconds": 16.0,
        "usage": {"input": 4800, "cached": 800, "output": 1200, "reasoning": 0},
        "cost_usd": pytest.approx(0.0108, abs=1e-4),
        "advice": [],
        "verdict": None,
        "tests_ok": True,
        "changed": ["a.py"],
        "draws_rolled_back": 1,
        "failed": None,
    }
    assert [decision["verdict"] for decision in request["decisions"]] == [None, None, "ACCEPT"]


def shown(state: SessionState, member: Member) -> Prompt:
    """Stands for context.prompt: one user message, then a pair for every reply so far."""
    messages = [FromUser(text="the task")]
    for number in range(sum(isinstance(event, example.Replied) for event in state.events)):
        messages += [
            FromAgent(agent="coder", text=f"reply {number}"),
            FromTool(call="c", tool="read", text="ok"),
        ]
    return Prompt(system="be good", messages=tuple(messages), temperature=0.8, seed=2)


def page(turn: int, request: int | None = None) -> str:
    records = example.records()
    row = trace_rows.find_turn(FoldedSession(records).rows.rows, turn, request)
    sources = turn_page.TurnSources(
        shown, lambda ran: "--- a.py\n+++ a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    )
    return turn_page.turn_text(records, row, sources, 80)


def test_one_decision_in_full() -> None:
    text = page(1)
    assert text.startswith(
        """\
request 1, turn 1: coder as worker

── The decision ────────────────────────────────────────────────────────────────
coder as worker
why: p=.75, then cheap .25
result: tests pass (3 passed); changed a.py; 1 rolled back

  agent   price in/out  chance  logit  may act
  small   $0 / $0       .25     -2.50  could act
  coder   $1 / $5       .75     +2.50  ◂ chosen
  strong  $5 / $25              -5.00  no: opted out

roles
  worker           ██████████████████████░░ .91 ◀
  thinker          ██░░░░░░░░░░░░░░░░░░░░░░ .09
  verifier         no Worker answer yet

── What the coordinator read ───────────────────────────────────────────────────
  412 tokens, 400 of them cached

  user: fix the tests
  middle (worker): done
"""
    )
    assert (
        "\n  margin: middle is +5.000 over cheap\n  margin: worker is +2.250 over thinker\n" in text
    )
    assert "\n▸ system\n  be good\n\n▸ user\n  the task\n" in text
    assert (
        "\n▸ call 2\n  1 message as before\n\n▸ coder\n  reply 0\n\n▸ result of read\n  ok\n"
        in text
    )
    assert "\n  rolled back, trying again: the tests failed\n" in text
    assert "1 - x = 1\n1 + x = 2\n" in text


def test_a_rules_decision_a_failure_and_a_denial_are_shown_in_full() -> None:
    assert "small failed: m-small: the server does not answer" in page(2)
    third = page(3, 1)
    assert "The events of the request alone" in third
    assert "asked for this instead of a Worker" in third
    assert "⊘ bash git push --force  not allowed: a force push needs a yes" in third


def test_the_wait_for_the_user_is_no_part_of_a_turn_s_time() -> None:
    def seconds(waited: float) -> list[float]:
        records = [
            record.model_copy(update={"event": record.event.model_copy(update={"waited": waited})})
            if isinstance(record.event, Permitted) and record.event.turn == 3
            else record
            for record in example.records()
        ]
        drawn = trace_rows.TraceRows()
        for record in records:
            drawn.add_item(record)
        whole = [
            row.seconds for request in trace_rows.traced_requests(records) for row in request.rows
        ]
        return [
            *whole,
            *(turn.seconds for turn in drawn.rows if isinstance(turn, trace_rows.TurnRow)),
        ]

    changed = {
        round(before - after, 3) for before, after in zip(seconds(0.0), seconds(0.25), strict=True)
    }
    assert changed == {0.0, 0.25}


def test_the_panel_shows_whom_an_agent_asked_for_advice_and_counts_its_cost() -> None:
    price = Price(input=10.0, output=10.0)
    weak, strong = (
        Member(name=name, provider="openai", model=name, slot="middle", price=price)
        for name in ("weak", "strong")
    )
    call = Call.make("t1-0-0", "advise", question="Is it a bug?")
    paid = PaidUse(agent="strong", usage=Usage(input=90_000, output=10_000))
    events = [
        Opened(version="1", repo="/r", pool=(weak, strong)),
        Asked(text="fix it"),
        Assigned(turn=1, agent="weak", role="worker", by="cascade"),
        Replied(turn=1, agent="weak", calls=(call,)),
        Permitted(turn=1, call=call, allowed=True, by="policy"),
        ToolRan(turn=1, call=call, output="strong advises:\nYes.", ok=True, paid=paid),
    ]
    rows = trace_rows.TraceRows()
    for seq, event in enumerate(events):
        rows.add_item(Recorded(seq=seq, at=float(seq), event=event))
    turn = rows.rows[-1]
    assert isinstance(turn, trace_rows.TurnRow)
    assert (turn.cost, turn.tokens) == (1.0, 100_000)
    drawn = "\n".join(plain_text(line) for line in trace_row_lines(turn, 60, TERMINAL))
    assert "asked strong: Is it a bug?" in drawn


def test_a_row_shows_what_the_user_said_and_no_waiting_for_the_user() -> None:
    question = Call.make("t1-0-0", "ask_user", question="Which rounding?", choices=["up", "even"])
    command = Call.make("t1-1-0", "bash", command="rm notes.txt")
    task = Call.make("t1-2-0", "task", prompt="look")
    permitted = Permitted(turn=1, call=question, allowed=True, by="policy")
    steered = Steered(text="also the docs")
    subtask = Subtask(turn=1, call=task.id, about="look around")
    events: list[tuple[float, Event]] = [
        (0, Opened(version="1", repo="/r", pool=())),
        (0, Asked(text="fix it")),
        (0, Assigned(turn=1, agent="a", role="worker", by="cascade")),
        (1, Replied(turn=1, agent="a", calls=(question, command, task))),
        (1, permitted),
        (21, ToolRan(turn=1, call=question, output="The user answers: up", ok=True, seconds=20.0)),
        (
            51,
            Permitted(
                turn=1,
                call=command,
                allowed=False,
                by="user",
                reason="the user said no: keep it",
                waited=30.0,
            ),
        ),
        (51, steered),
        (51, SteeringGiven(turn=1, agent="a", number=1, message=steered)),
        (51, Permitted(turn=1, call=task, allowed=True, by="policy")),
        (51, Assigned(turn=2, agent="a", role="worker", by="cascade", subtask=subtask)),
        (53, Replied(turn=2, agent="a", text="Two files.")),
        (53, ToolRan(turn=1, call=task, output="Two files.", ok=True)),
        (54, Replied(turn=1, agent="a", text="Done.")),
        (54, Finished(reason="answered")),
    ]
    folded = FoldedSession(
        [Recorded(seq=seq, at=at, event=event) for seq, (at, event) in enumerate(events)]
    )
    request, turn, inside = folded.rows.rows
    assert isinstance(request, trace_rows.RequestRow) and request.seconds == 4.0
    assert isinstance(turn, trace_rows.TurnRow) and turn.seconds == 4.0
    lines = [plain_text(line) for line in trace_row_lines(turn, 60, TERMINAL)]
    assert [line.strip() for line in lines][1:] == [
        "asked you: Which rounding? → up",
        "⊘ you: keep it (denied: bash rm notes.txt)",
        "↳ you: also the docs",
        "waited 50s for you",
    ]
    answer = [plain_text(line).strip() for line in trace_row_lines(inside, 60, TERMINAL)]
    assert answer[-1] == "→ Two files."
    end = folded.transcript.blocks[-1]
    assert isinstance(end, EndBlock)
    assert end_numbers(end)[:3] == ["1 turn, 1 subtask", "4.0s", "waited 50s for you"]


def test_a_turn_that_is_not_there_is_refused_with_those_that_are() -> None:
    rows = FoldedSession(example.records()).rows.rows
    with pytest.raises(UsageError) as caught:
        trace_rows.find_turn(rows, 7)
    assert (str(caught.value), caught.value.hint) == (
        "request 1 has no turn 7",
        "its turns: 1, 2, 3",
    )
    with pytest.raises(UsageError, match="there is no request 2"):
        trace_rows.find_turn(rows, 1, 2)
    with pytest.raises(UsageError, match="nothing was asked"):
        trace_rows.find_turn([], 1)


def test_the_trace_shows_the_answers_to_a_plan_and_the_turn_that_changed_it() -> None:
    change = Steered(text="also the docs")
    events: list[tuple[float, Event]] = [
        (0, Opened(version="1", repo="/r", pool=())),
        (0, Asked(text="fix it", mode="plan")),
        (0, Assigned(turn=1, agent="a", role="worker", by="cascade")),
        (2, Replied(turn=1, agent="a", text="1. Fix it.", usage=Usage(input=10, output=1))),
        (2, Finished(reason="answered")),
        (40, change),
        (40, SteeringGiven(turn=1, agent="a", number=1, message=change)),
        (43, Replied(turn=1, agent="a", text="2. Docs.", usage=Usage(input=20, output=1))),
        (43, Finished(reason="answered")),
        (60, Asked(text="fix it", typed="Carry out the plan of a, in edit mode.", mode="edit",
                   plan=AcceptedPlan(agent="a", text="2. Docs.", changed=("a.py",)))),
    ]  # fmt: skip
    records = [Recorded(seq=seq, at=at, event=event) for seq, (at, event) in enumerate(events)]
    rows = FoldedSession(records).rows.rows
    planned, turn, accepted = rows
    assert isinstance(planned, trace_rows.RequestRow) and planned.finished is not None
    assert isinstance(turn, trace_rows.TurnRow) and turn.state == "closed"
    assert (turn.seconds, turn.tokens) == (5.0, 32)
    assert "↳ you: also the docs" in turn.notes
    lines = [plain_text(line).strip() for line in trace_row_lines(accepted, 80, TERMINAL)]
    assert lines[-1] == "you: go ahead, accept edits · changed since the plan: a.py"
    assert trace_rows.traced_requests(records)[0].rows[0].seconds == 5.0

    changing = FoldedSession(records[:8]).rows.rows
    assert isinstance(changing[0], trace_rows.RequestRow) and changing[0].finished is None
    assert isinstance(changing[1], trace_rows.TurnRow) and changing[1].state == "open"


def test_a_turns_page_tells_the_next_call_from_the_whole_turn() -> None:
    pool = tuple(
        Member(name=name, provider="openai", model=name, slot="middle", price=price)
        for name, price in (("a", Price(input=1, output=5)), ("b", Price(input=5, output=25)))
    )
    estimates = (
        AgentEstimate(agent="a", success_rate=0.5, run_cost=0.02, run_turns=3, call_cost=0.0041),
        AgentEstimate(agent="b", success_rate=0.5, run_cost=0.1, call_cost=0.021),
    )
    scores = Scores(
        rows=("a", "b"), row_logits=(1.0, 0.5), row_probabilities=(0.0, 1.0),
        masked=(("a", "it wrote a part of what is to be verified"),), estimates=estimates,
    )  # fmt: skip
    events: list[Event] = [
        Opened(version="1", repo="/r", pool=pool),
        Asked(text="go"),
        Assigned(turn=1, agent="b", role="verifier", by="trinity", scores=scores),
        Replied(turn=1, agent="b", text="Done."),
    ]
    records = [Recorded(seq=seq, at=0, event=event) for seq, event in enumerate(events)]
    row = trace_rows.find_turn(FoldedSession(records).rows.rows, 1)
    sources = turn_page.TurnSources(shown)

    wide = turn_page.turn_text(records, row, sources, 130)
    assert "agent  price in/out  next call  whole turn         solves" in wide
    assert "a      $1 / $5       ~$0.0041   $0.0200 (3 turns)" in wide
    assert "b      $5 / $25      ~$0.021    ~$0.10" in wide

    narrow = turn_page.turn_text(records, row, sources, 60)
    assert "a      $1 / $5       ~$0.0041   no: it wrote a part of" in narrow
    assert "what is to be verified" in narrow
