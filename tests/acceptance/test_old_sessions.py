"""A session that version 0.1.0 wrote still opens, is shown, and goes on."""

import json
import os
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from fugu_cli.__main__ import called
from fugu_cli.config.loader import load_config
from fugu_cli.messages import Call
from fugu_cli.session import log, store, views
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Exclusion,
    Finished,
    Masked,
    Permitted,
    ToolRan,
    Undone,
)
from tests.reacting import CHECK, repository

RECORDED = Path(__file__).parents[1] / "recorded" / "session-0.1.0.jsonl"
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
AGENT = """
coordinator = "single:one"
permission_mode = "yolo"
[[agents]]
name = "one"
provider = "scripted"
model = "{script}"
slot = "strong"
"""
STEPS = (
    'text = "I see no more that I can do."',  # the Worker, which is shown what fails
    'text = "REVISE: it is not fixed"',
    'calls = [{ tool = "read", arguments = { path = "calc.txt" } }]',
    'calls = [{ tool = "write", arguments = { path = "calc.txt", content = "new and fixed\\n" } }]',
    'text = "Done."',
    'text = "ACCEPT"',
)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """The log, where a session of this repository has its own."""
    root = repository(
        tmp_path / "repo", {"calc.txt": "new but wrong\n", "check.sh": CHECK}
    ).resolve()
    os.chdir(root)
    script = tmp_path / "script.toml"
    replied = 5 * '[[step]]\ntext = "This was said already."\n'
    script.write_text(replied + "".join(f"[[step]]\n{step}\n" for step in STEPS))
    (Path.home() / ".fugurc").write_text(AGENT.format(script=script))
    path = store.new_path(load_config(root, {}, {}).config.data, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(RECORDED.read_text().replace("/repository", str(root)))
    return path


def test_its_facts_are_read_as_they_were_meant(session: Path) -> None:
    events = [record.event for record in log.read(session)]
    asked = views.asked(events)
    assert isinstance(asked, Asked)
    assert (asked.judged, asked.until) == (True, ())
    assert [turn.assigned.role for turn in views.turns(events)] == ["thinker", "worker"]
    (check,) = views.checks(events)
    assert (check.by, check.ok, check.command) == ("agent", True, 'sh "$SCRIPT"')
    first, newest = views.first_tests(events), views.tests(events)
    assert (first and first.ok, newest and newest.ok, views.has_regressions(events)) == (
        False,
        False,
        False,
    )


def test_it_is_shown_and_goes_on_to_its_end(
    session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["trace", "latest"]) == 0
    assert "acceptance check FAIL" in capsys.readouterr().out
    assert called(["run", "--continue"]) == 0
    events = [record.event for record in log.read(session)]
    assert isinstance(events[-1], Finished) and events[-1].reason == "accepted"
    assert Path("calc.txt").read_text() == "new and fixed\n"


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        (
            {"snapshot": "t", "reason": "undone by the user, from tree ab12"},
            Undone(snapshot="t", tree="ab12"),
        ),
        ({"snapshot": None, "reason": "redone by the user"}, Undone(snapshot=None, kind="redo")),
        (
            {"snapshot": "t", "turn": 2, "reason": "the tests failed"},
            Undone(snapshot="t", kind="rollback", turn=2, reason="the tests failed"),
        ),
        (
            {
                "snapshot": None,
                "reason": "undone by the user; left alone, because they were changed since: a; left alone, because "
                "files so large are not copied before a command: b, c",
                "left": ["a", "b", "c"],
            },
            Undone(snapshot=None, left=("a",), unkept=("b", "c")),
        ),
    ],
)
def test_what_older_logs_say_in_words_is_read_into_fields(
    fields: dict[str, object], meant: Undone
) -> None:
    assert EVENT.validate_python({"type": "undone", **fields}) == meant
    assert EVENT.validate_json(EVENT.dump_json(meant)) == meant


def test_a_rule_in_the_coordinators_place_a_refusal_of_plan_mode_and_found_tools_are_read_from_older_logs() -> (
    None
):
    call = Call(id="1", tool="find_tools")
    ran = {
        "turn": 1,
        "call": call,
        "output": "mcp__db__ask: asks\nmcp__db__tell: tells mcp__no: x",
        "ok": True,
    }
    decided = {"turn": 1, "agent": "a", "role": "worker", "by": "cascade"}
    refused = {"turn": 1, "call": call, "allowed": False, "by": "policy"}
    reads = "plan mode only reads: nothing is written and nothing is run"
    why = "cheap first [no learned coordinator: torch is not installed (`pip install torch[cpu]`)]"
    told = (
        ({"type": "tool_ran", **ran}, ToolRan(**ran, found=("mcp__db__ask", "mcp__db__tell"))),
        (
            {"type": "permitted", **refused, "reason": reads},
            Permitted(**refused, reason=reads, plan_mode=True),
        ),
        (
            {"type": "assigned", **decided, "reason": why},
            Assigned(
                **decided,
                reason="cheap first",
                fallback="torch is not installed (`pip install torch[cpu]`)",
            ),
        ),
    )
    for fields, meant in told:
        assert (
            EVENT.validate_json(json.dumps(fields, default=lambda value: value.model_dump()))
            == meant
        )
        assert EVENT.validate_json(EVENT.dump_json(meant)) == meant
    assert isinstance(meant, Assigned)
    assert meant.why.startswith("cheap first [the checkpoint does not decide: torch")


def test_why_agents_are_out_is_read_from_older_logs() -> None:
    lines = [["a", "budget: it may cost more"], ["b", "opted out of this request"]]
    found = EVENT.validate_python({"type": "masked", "agents": lines})
    out = (
        ("a", Exclusion(kind="budget", message="it may cost more")),
        ("b", Exclusion(message=lines[1][1])),
    )
    assert found == Masked(agents=out)
    assert EVENT.validate_json(EVENT.dump_json(found)) == found


def test_a_turn_that_chooses_the_next_agent_is_told_from_work() -> None:
    fields = {"type": "assigned", "turn": 1, "agent": "a", "role": "thinker", "by": "prompted"}
    old, work = (
        EVENT.validate_python({**fields, "reason": reason})
        for reason in ("whom to ask", "whom to ask is clear")
    )
    assert isinstance(old, Assigned) and isinstance(work, Assigned)
    assert (old.chooses, work.chooses) == (True, False)
    assert EVENT.validate_json(EVENT.dump_json(old)) == old
