"""How models that cannot call tools take a turn: localization, one attempt after the other, validation by the tests.

Chosen by wiring for agents whose protocol is `text` or `schema`, and imported by nobody else. Tests and files are read
for the model; what it writes becomes one edit; an attempt that the tests refuse is rolled back, and the next one is
asked for something else (aims.py). A request that is about failing tests makes the suite its acceptance check.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli import policy, views
from fugu_cli.events import Event, Member, Replied, ToolRan
from fugu_cli.loop import evidence
from fugu_cli.loop.bench import may_read
from fugu_cli.loop.environment import Bench, Closed, Evidence, Reply, RollBack, Run, Step
from fugu_cli.loop.harness import diff_due, no_such_tool, said_all
from fugu_cli.messages import Call, Prompt, ToolSpec
from fugu_cli.policy.patterns import WRITING
from fugu_cli.repair import aims, hanging, intent, localization, prompt
from fugu_cli.repair.opening import files_read
from fugu_cli.repair.progress import made
from fugu_cli.tools.seen import OUTDATED

MOST_FILES = 4
"""Files in a prompt: the first ones are the likeliest, and each costs seconds to read."""
BROKE = "tests that passed before fail"
"""Why an attempt is rolled back where no check judges the request."""


class Repair:
    """Models that write text: a prompt with all that matters, and edits that are judged by the tests at once."""

    @property
    def has_history(self) -> bool:
        return False

    def next_step(self, events: Sequence[Event], member: Member, bench: Bench) -> Step:
        """Tests and files first, then attempts until one stands."""
        turn = views.turns(events)[-1]
        if turn.failed is not None or turn.interrupted:
            return Closed()
        if not turn.replies:
            if _drawn_out(events, turn, member) or _outdated(turn):
                return Closed()
            opening = _opening(events, turn, member, bench)
            return Evidence(opening) if opening is not None else Reply()
        if calls := views.open_calls(turn):
            reason = aims.refused(events, turn) if len(turn.replies) == 1 else ""
            return RollBack(reason) if reason else Run(calls[0])
        if not (_wrote(turn) or said_all(turn, bench.limits.brief_replies)):
            return Reply()
        return _after(events, turn, bench)

    def prompt(self, events: Sequence[Event], member: Member, tools: Sequence[ToolSpec], instructions: str) -> Prompt:
        """One message with the request, the files, the tests' output and what is to be written."""
        return prompt.prompt(events, member, tools, instructions)

    def tools(self, events: Sequence[Event], member: Member, bench: Bench) -> tuple[ToolSpec, ...]:
        """The tools for files and commands, for a Worker that is to change something. None where it is asked a
        question, and where failing tests are to be mended and all pass: it can say so."""
        now, request = views.turns(events)[-1], views.asked(events)
        if request is None or prompt.role(now) != "worker" or _is_answered_in_words(events, now):
            return ()
        first = views.first_tests(events)
        if first is not None and first.ok and intent.is_for_failing_tests(request.text):
            return ()
        out = policy.OWN | {views.ACCEPTANCE_CHECK}
        return bench.toolbox.specs(lambda tool: tool.name not in out and not (tool.native or tool.foreign), brief=True)

    def refuses(self, call: Call, events: Sequence[Event], member: Member, bench: Bench) -> str:
        """Tools it was not offered, and changes of tests that failed first and judge the request."""
        if refused := no_such_tool(call, events, bench, self.tools(events, member, bench)):
            return refused
        first = views.first_tests(events)
        failed = first is None or not first.ok
        if failed and views.suite_decides(events) and localization.writes_test(bench.workspace, call):
            return "the tests judge this request and stay as they are"
        return ""


def _drawn_out(events: Sequence[Event], turn: views.Turn, member: Member) -> bool:
    """The turn has had its attempts. Lines that are filled in one after the other are one attempt, all together."""
    filled = [reply.filled for reply in turn.spent if reply.filled]
    whole = sum(not any(isinstance(fact, Replied) and fact.filled for fact in draw) for draw in turn.draws)
    newest = turn.draws[-1] if turn.draws else ()
    if any(isinstance(fact, Replied) and fact.filled for fact in newest):
        gap = aims.aim(events, turn, member).gap
        if gap is not None and gap.place not in filled:
            return False
    return whole + bool(filled) >= max(member.attempts, 1)


def _outdated(turn: views.Turn) -> bool:
    """The newest attempt met a file that the user saved meanwhile. Only a turn of its own is shown it again."""
    facts = turn.draws[-1] if turn.draws else ()
    refused = (fact for fact in facts if isinstance(fact, ToolRan) and fact.call.tool in WRITING and not fact.ok)
    return any(OUTDATED in fact.output for fact in refused)


def _opening(events: Sequence[Event], turn: views.Turn, member: Member, bench: Bench) -> Call | None:
    """The next piece of evidence that the turn opens with; None when it has all."""
    if turn.draws:
        return None
    if prompt.role(turn) == "verifier":
        due = evidence.due(events, turn, bench.tests, verifying=True)
        return due if due is not None or turn.assigned.role != "verifier" else diff_due(events, turn)
    if (call := _tests_due(events, turn, bench)) is not None:
        return call
    taken = [run for run in turn.runs if run.evidence]
    read = {run.permitted.call.arguments for run in taken if run.result is not None}
    calls = (
        Call.make(f"e{turn.number}-{len(taken)}", "read", path=path, plain=True)
        for path in _files(events, member, bench)
    )
    return next((call for call in calls if call.arguments not in read), None)


def _tests_due(events: Sequence[Event], turn: views.Turn, bench: Bench) -> Call | None:
    """The tests where they are the acceptance check, and where the request is about them: then they become it while
    they fail."""
    request, run = views.asked(events), views.tests(events)
    if request is None or request.test_command is None:
        return None
    about = intent.is_about_tests(request.text)
    wanted = about or intent.is_for_a_test_run(request.text) or views.suite_decides(events)
    id = f"e{turn.number}-{len(turn.draws)}-{len(turn.runs)}"
    if wanted and (run is None or run.stale):
        return Call(id=id, tool=views.RUN_TESTS)
    if about and run is not None and not run.ok and not run.empty and not views.suite_decides(events):
        return Call.make(id, views.ACCEPTANCE_CHECK, command=request.test_command)
    return None


def _files(events: Sequence[Event], member: Member, bench: Bench) -> tuple[str, ...]:
    """Paths that the request or the tests' output leads to, and that the agent may read without a question."""
    request, run = views.asked(events), views.tests(events)
    text, output = request.text if request else "", run.output if run is not None and not run.ok else ""
    found = localization.files(output, text, bench.workspace.root)
    denials = bench.denials
    return tuple(
        path for path in found if may_read(bench, path) and not (denials and denials.denied(member.name, path))
    )[:MOST_FILES]


def _wrote(turn: views.Turn) -> bool:
    """Its edit was made or refused. Told that it missed, a small model repeats itself."""
    done = {run.permitted.call.id for run in turn.runs if run.result is not None or not run.permitted.allowed}
    return any(call.tool in WRITING and call.id in done for call in turn.replies[-1].calls)


def _after(events: Sequence[Event], turn: views.Turn, bench: Bench) -> Step:
    """After the agent's last word: the tests, when a Worker changed files; then whether the attempt stands."""
    if turn.assigned.role != "worker":
        return Closed()
    if (call := evidence.due(events, turn, bench.tests)) is not None:
        return Evidence(hanging.bounded(call, events, turn) if call.tool == views.RUN_TESTS else call)
    asked = views.asked(events)
    if asked is None or asked.snapshot is None:
        return Closed()
    if not turn.changes and not views.interrupted_calls(turn):
        return RollBack("nothing was changed") if _wanted_a_change(events, turn) else Closed()
    if not views.suite_decides(events):
        return RollBack(BROKE) if views.regressed(events) else Closed()
    run = views.tests(events)
    return Closed() if run is None or run.ok or made(events, turn, run) else RollBack("the tests failed")


def _wanted_a_change(events: Sequence[Event], turn: views.Turn) -> bool:
    """Words are no answer: failing tests are to be mended, or a change of files that were shown is asked for."""
    request, run = views.asked(events), views.tests(events)
    if request is None or turn.assigned.plan:
        return False
    said = bool(turn.text.strip()) and not turn.replies[-1].calls
    if views.suite_decides(events):
        return not (said and run is not None and run.ok)
    return intent.wants_change(request.text) and bool(files_read(turn)) and not views.changes(events)


def _is_answered_in_words(events: Sequence[Event], now: views.Turn) -> bool:
    """The tests do not judge the request, and it asks a question, or for something to be worked out of which no file
    says anything."""
    request = views.asked(events)
    if request is None or views.suite_decides(events):
        return False
    text = request.text
    asks = intent.is_for_a_test_run(text) or intent.only_asks(text) or intent.is_question(text)
    return asks or (intent.is_self_contained(text) and not files_read(now))


if TYPE_CHECKING:
    from fugu_cli.loop.environment import Harness

    _harness: Harness = Repair()
