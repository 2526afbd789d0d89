"""How models that cannot call tools take a turn: what they are shown, one attempt after the other, and validation by
the tests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fugu_cli import prompts
from fugu_cli.coordinators.conductor import scheduling
from fugu_cli.coordinators.conductor.step_context import visible_facts
from fugu_cli.engine.environment import (
    Environment,
    GatherEvidence,
    NextStep,
    RequestReply,
    RollBackAttempt,
    RunCall,
    TurnClosed,
    due_run,
)
from fugu_cli.engine.harness import agent_is_done, diff_due, no_such_tool, told_instructions
from fugu_cli.engine.message_history import turn_messages
from fugu_cli.engine.tool_calls import may_read
from fugu_cli.messages import Call, FromUser, Message, Prompt, ToolSpec
from fugu_cli.repair import excerpts, intent, localization, search
from fugu_cli.repair.localization import files_read, files_shown
from fugu_cli.repair.search import RepairTask, made_progress
from fugu_cli.safety import policy
from fugu_cli.safety.policy.rule_matching import WRITING
from fugu_cli.session import views
from fugu_cli.session.events import Asked, Event, Member, Replied, Role, ToolRan
from fugu_cli.session.recognized_tests import tests_among
from fugu_cli.tools.workspace import CHANGED_SINCE_READ

NEWEST = 1200
"""Characters of the answer to the request just before this one: small models lose the thread in long ones."""
PART, ALL = 400, 2400
"""Characters of a question, and of an answer, that came before that one; and of all of these together."""


def request_with_history(events: Sequence[Event], request: Asked) -> str:
    """The request, after the newest earlier one and its answer. Where words are all that is asked for, after those
    before it as well: in a conversation they belong together, while beside code to be mended they only distract."""
    summary, kept = views.after_compaction(events)
    before = views.requests(kept)[:-1]
    if not before:
        return f"(Before: {summary[:NEWEST]})\n\n{request.whole}" if summary else request.whole
    told, begin = [_exchange(before[-1])], "Before, "
    if not views.suite_decides(events):
        told = [*_older(before[:-1]), *told]
        begin = f"Before: {summary[:NEWEST]}\nThen " if summary else begin
    return f"({begin}{f'{chr(10)}Then '.join(told)})\n\n{request.whole}"


def _exchange(facts: Sequence[Event], limit: int = NEWEST, asked: int | None = None) -> str:
    """A request and its answer, the latter with at most `limit` characters, the former with at most `asked`."""
    first, answer = facts[0], views.answer(facts)[:limit]
    assert isinstance(first, Asked)
    got = [f"and got: {answer}"] if answer else []
    return "\n".join([f"the user asked: {first.text[:asked]}", *got, *views.undo_notices(facts)])


def _older(requests: Sequence[Sequence[Event]]) -> list[str]:
    """Exchanges in short, the newest that have room, in the order in which they were."""
    told: list[str] = []
    left = ALL
    for facts in reversed(requests):
        text = _exchange(facts, PART, PART)
        left -= len(text)
        if left < 0:
            break
        told.append(text)
    return told[::-1]


COLLEAGUE, ANSWER_LIMIT = 1200, 4000
"""Characters of a colleague's text, and of the answer that is judged, which ends with its result."""
INSTRUCTIONS = 6000
"""Characters of the standing instructions."""
SENTENCES = 400
FILE = 800
UNFINISHED = 1600
"""Least tokens of a reply: as a Thinker or Verifier, as a Worker, and where the code is not written."""
TESTS_LIMIT, UNFINISHED_LIMIT = 1500, 500
"""Characters of a test run's output; it says little where nothing is written yet, or all is to be written again
(tests/benchmarks/results/infilling.md)."""


def played_role(turn: views.Turn) -> Role:
    """The part it plays: of a workflow's step, what its instruction says."""
    judges = turn.assigned.plan and turn.assigned.sees and scheduling.is_judging(turn.assigned.instruction)
    return "verifier" if judges else turn.assigned.role


def build_prompt(events: Sequence[Event], member: Member, tools: Sequence[ToolSpec], instructions: str) -> Prompt:
    """The next call's prompt for the agent of the newest turn. An attempt after the first is sampled (temperature .8,
    its own seed)."""
    turn = views.turns(events)[-1]
    aim = search.next_task(events, turn, member)
    if aim.gap is not None:
        return excerpts.infill_prompt(aim.target, excerpts.LineInfill(aim.part, aim.gap), tools, aim.tried)
    request = views.asked(events)
    return Prompt(
        system=told_instructions(turn, instructions[:INSTRUCTIONS]).strip(),
        messages=_messages(events, visible_facts(events), turn, aim),
        tools=tuple(tools),
        max_tokens=_reply_limit(turn, aim),
        temperature=0.8 if aim.tried else None,
        seed=aim.tried or None,
        open_ended=intent.is_open_ended(request, files_read(turn), judged=views.suite_decides(events)),
        target=aim.target,
        part=aim.part,
        unwritten=aim.unwritten,
        judged=aim.judged,
        wanted=search.wants_described_change(events, turn),
        begun=_begun(events, turn, member, aim),
        verdict=turn.assigned.role == "verifier" and bool(views.changes(events)),
        aimed=aim.key,
    )


def _kind(events: Sequence[Event], turn: views.Turn, request: Asked) -> str:
    """The name of the text in prompts/brief/ that says what is to be done."""
    first, now = views.first_tests(events), views.tests(events)
    match played_role(turn):
        case "verifier":
            if first and now and not first.ok and now.ok and not now.stale:
                return "verifier_passing"
            return "verifier" if turn.assigned.plan or views.changes(events) else "verifier_answer"
        case "thinker":
            return "thinker_step" if turn.assigned.plan else "thinker"
        case _:
            if search.wants_described_change(events, turn):
                return "tests" if intent.is_for_tests(request.text) and views.changes(events) else "change"
            if search.is_unjudged(events, request):
                return "answer"
            return "worker_unfinished" if intent.is_unfinished(files_read(turn)) else "worker"


def _begun(events: Sequence[Event], turn: views.Turn, member: Member, aim: RepairTask) -> str:
    """The code that a model is shown and need not write, where it can go on from there: those that fill in can."""
    request = views.asked(events)
    if turn.assigned.role != "worker" or request is None or not member.infill or member.protocol != "text":
        return ""
    if aim.unwritten:
        return excerpts.prefix_of_rewrite(aim.shown, aim.unwritten)
    files = files_shown(turn)
    code = intent.target_files(files)
    sole = len(code) == 1 and not aim.part and aim.target in ("", code[0])
    written = _kind(events, turn, request) == "worker_unfinished"
    return excerpts.prefix_of_stub(code[0], files[code[0]]) if sole and written else ""


def _messages(events: Sequence[Event], seen: Sequence[Event], turn: views.Turn, aim: RepairTask) -> tuple[Message, ...]:
    """One user message with all that matters, then this turn's own calls and results. `seen`: the facts it may see."""
    request, files, target = views.asked(events), files_shown(turn), aim.target
    assert request is not None
    kind = "worker_unfinished" if aim.unwritten else _kind(events, turn, request)
    if kind == "change" and not aim.tried % 2 and target in intent.code_files(files):
        kind = "rewrite"  # every other attempt is asked in other words: some changes only one of the two brings about
    instead = aim.shown or aim.part
    above = excerpts.context_above(target, files_read(turn).get(target, "")) if aim.part else ""
    around = intent.without_code(files) if aim.part and aim.judged else files
    shown = around | {target: f"{above}\n\n\n{instead}" if above else instead} if instead else files
    named = intent.code_files_in_words([target] if target in shown else files)
    what = excerpts.excerpt_name(target, aim.part) if aim.part and kind == "rewrite" else target
    said = prompts.fill(prompts.load(f"brief/{kind}"), named=named, request=request.text.strip(), target=what)
    asked, judged = request_with_history(seen, request), views.suite_decides(events)
    told_by_tests = judged and tests_among(files) and intent.is_unfinished(files)
    limit = UNFINISHED_LIMIT if told_by_tests or aim.unwritten else TESTS_LIMIT
    text = prompts.fill(
        prompts.load("brief"),
        request="" if kind == "rewrite" and asked == request.whole else asked,
        tests=_tests_section(events, request, limit),
        files=intent.files_section(shown, judged, target if aim.part else ""),
        earlier="" if turn.assigned.plan else _earlier_section(events, turn),
        role="\n\n".join(part for part in (views.turns(seen)[-1].assigned.instruction, said) if part),
    )
    return (FromUser(text=text.lstrip("\n")), *turn_messages(turn))


def _tests_section(events: Sequence[Event], request: Asked, limit: int) -> str:
    """The tests' output, where they judge the request, something was changed, or they are what is asked about."""
    run = views.tests(events)
    told = views.suite_decides(events) or views.changes(events) or intent.is_for_a_test_run(request.text)
    if run is None or run.stale or not told:
        return ""
    said = "All tests pass" if run.ok else "It prints"
    return f"The tests were run with `{request.test_command}`. {said}:\n```\n{last_lines(run.output, limit)}\n```\n\n"


def last_lines(text: str, limit: int) -> str:
    """The end of a text in whole lines: the summary comes last."""
    return text if len(text) <= limit else f"[...]\n{text[-limit:].partition(chr(10))[2]}"


def _reply_limit(turn: views.Turn, aim: RepairTask) -> int:
    """Tokens that the reply may have: all the code it was shown, or a few sentences. It may run on."""
    if turn.assigned.role != "worker":
        return SENTENCES
    files = files_shown(turn)
    least = UNFINISHED if intent.is_unfinished(files_read(turn)) else FILE
    of_a_long_one = 0 if aim.target in files else len(aim.part)
    return max(least, (sum(len(files[path]) for path in intent.target_files(files)) + of_a_long_one) // 2)


def _earlier_section(events: Sequence[Event], turn: views.Turn) -> str:
    """For a Worker what a Thinker or Verifier said since the newest change; for a Verifier the words it is to judge,
    where nothing was changed."""
    before = [one for one in views.turns(events) if one.number < turn.number]
    if turn.assigned.role == "verifier" and not views.changes(events):
        answers = [one.text.strip() for one in before if one.assigned.role == "worker" and one.text.strip()]
        return f"This was answered:\n{answers[-1][-ANSWER_LIMIT:]}\n\n" if answers else ""
    if turn.assigned.role != "worker":
        return ""
    said: list[str] = []
    for one in before:
        if one.assigned.role == "worker":
            said = []
        elif one.text.strip():
            said.append(f"A colleague says: {one.text.strip()[:COLLEAGUE]}\n\n")
    return "".join(said)


@dataclass(frozen=True)
class TimeoutRule:
    """As long as before the request, so many `times`, and `least` so many seconds."""

    times: int
    least: float


AFTER_LINE, AFTER_REWRITE = TimeoutRule(4, 5.0), TimeoutRule(10, 30.0)
"""After one line, of which many are tried, and after anything else."""

_ALL_FAILED = re.compile(
    r"^(?:=+ )?\d+ failed(?:, \d+ (?:skipped|deselected|warnings?))*(?: in [\d.]+s.*)?$", re.MULTILINE
)
"""pytest ran each of them to its end."""
_BROKEN_OFF = re.compile(r"\b\d+ errors?(?:,| in |$)|\berrors=\d", re.MULTILINE)
"""A file of tests may have ended before its first one: pytest, unittest."""


def with_test_timeout(call: Call, events: Sequence[Event], turn: views.Turn) -> Call:
    """The `call` that runs the tests, with a limit where the newest reply is a small model's. Without one where none
    ran to its end before: then the run may have broken off early, and says nothing of how long it takes."""
    newest = turn.replies[-1] if turn.replies else None
    if newest is None or not (newest.filled or newest.aimed):
        return call
    first = views.first_tests(events)
    if first is None or _BROKEN_OFF.search(first.output):
        return call
    if not (views.passed_count(first.output) or _ALL_FAILED.search(first.output)):
        return call
    bound = AFTER_LINE if newest.filled else AFTER_REWRITE
    return Call.make(call.id, call.tool, seconds=max(bound.least, round(bound.times * first.seconds, 1)))


MOST_FILES = 4
"""Files in a prompt: the first ones are the likeliest, and each costs seconds to read."""
BROKE = "tests that passed before fail"
"""Why an attempt is rolled back where no check judges the request."""


class Repair:
    """Models that write text: a prompt with all that matters, and edits that are judged by the tests at once."""

    @property
    def has_history(self) -> bool:
        return False

    def next_step(self, events: Sequence[Event], member: Member, environment: Environment) -> NextStep:
        """Tests and files first, then attempts until one stands."""
        turn = views.turns(events)[-1]
        if turn.failed is not None or turn.interrupted:
            return TurnClosed()
        if not turn.replies:
            if _out_of_attempts(events, turn, member) or _outdated(turn):
                return TurnClosed()
            opening = _opening(events, turn, member, environment)
            return GatherEvidence(opening) if opening is not None else RequestReply()
        if calls := views.open_calls(turn):
            reason = search.repeated_attempt_reason(events, turn) if len(turn.replies) == 1 else ""
            return RollBackAttempt(reason) if reason else RunCall(calls[0])
        if not (_wrote(turn) or agent_is_done(turn, environment.limits.brief_replies)):
            return RequestReply()
        return _after(events, turn, environment)

    def prompt(self, events: Sequence[Event], member: Member, tools: Sequence[ToolSpec], instructions: str) -> Prompt:
        """One message with the request, the files, the tests' output and what is to be written."""
        return build_prompt(events, member, tools, instructions)

    def tools(self, events: Sequence[Event], member: Member, environment: Environment) -> tuple[ToolSpec, ...]:
        """The tools for files and commands, for a Worker that is to change something. None where it is asked a
        question, and where failing tests are to be mended and all pass: it can say so."""
        now, request = views.turns(events)[-1], views.asked(events)
        if request is None or played_role(now) != "worker" or _is_answered_in_words(events, now):
            return ()
        first = views.first_tests(events)
        if first is not None and first.ok and intent.is_for_failing_tests(request.text):
            return ()
        out = policy.INTERNAL_TOOLS | {views.ACCEPTANCE_CHECK}
        return environment.toolbox.specs(
            lambda tool: tool.name not in out and not (tool.native or tool.foreign), brief=True
        )

    def refuses(self, call: Call, events: Sequence[Event], member: Member, environment: Environment) -> str:
        """Tools it was not offered, and changes of tests that failed first and judge the request."""
        if refused := no_such_tool(call, events, environment, self.tools(events, member, environment)):
            return refused
        first = views.first_tests(events)
        failed = first is None or not first.ok
        if failed and views.suite_decides(events) and localization.writes_test(environment.workspace, call):
            return "the tests judge this request and stay as they are"
        return ""


def _out_of_attempts(events: Sequence[Event], turn: views.Turn, member: Member) -> bool:
    """The turn has had its attempts. Lines that are filled in one after the other are one attempt, all together."""
    filled = [reply.filled for reply in turn.spent if reply.filled]
    whole = sum(not any(isinstance(fact, Replied) and fact.filled for fact in draw) for draw in turn.draws)
    newest = turn.draws[-1] if turn.draws else ()
    if any(isinstance(fact, Replied) and fact.filled for fact in newest):
        gap = search.next_task(events, turn, member).gap
        if gap is not None and gap.place not in filled:
            return False
    return whole + bool(filled) >= max(member.attempts, 1)


def _outdated(turn: views.Turn) -> bool:
    """The newest attempt met a file that the user saved meanwhile. Only a turn of its own is shown it again."""
    facts = turn.draws[-1] if turn.draws else ()
    refused = (fact for fact in facts if isinstance(fact, ToolRan) and fact.call.tool in WRITING and not fact.ok)
    return any(CHANGED_SINCE_READ in fact.output for fact in refused)


def _opening(events: Sequence[Event], turn: views.Turn, member: Member, environment: Environment) -> Call | None:
    """The next piece of evidence that the turn opens with; None when it has all."""
    if turn.draws:
        return None
    if played_role(turn) == "verifier":
        due = due_run(events, turn, environment.tests, verifying=True)
        return due if due is not None or turn.assigned.role != "verifier" else diff_due(events, turn)
    if (call := _tests_due(events, turn, environment)) is not None:
        return call
    taken = [run for run in turn.runs if run.evidence]
    read = {run.permitted.call.arguments for run in taken if run.result is not None}
    calls = (
        Call.make(f"e{turn.number}-{len(taken)}", "read", path=path, plain=True)
        for path in _files(events, member, environment)
    )
    return next((call for call in calls if call.arguments not in read), None)


def _tests_due(events: Sequence[Event], turn: views.Turn, environment: Environment) -> Call | None:
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


def _files(events: Sequence[Event], member: Member, environment: Environment) -> tuple[str, ...]:
    """Paths that the request or the tests' output leads to, and that the agent may read without a question."""
    request, run = views.asked(events), views.tests(events)
    text, output = request.text if request else "", run.output if run is not None and not run.ok else ""
    found = localization.relevant_files(output, text, environment.workspace.root)
    denials = environment.denials
    return tuple(
        path for path in found if may_read(environment, path) and not (denials and denials.denied(member.name, path))
    )[:MOST_FILES]


def _wrote(turn: views.Turn) -> bool:
    """Its edit was made or refused. Told that it missed, a small model repeats itself."""
    done = {run.permitted.call.id for run in turn.runs if run.result is not None or not run.permitted.allowed}
    return any(call.tool in WRITING and call.id in done for call in turn.replies[-1].calls)


def _after(events: Sequence[Event], turn: views.Turn, environment: Environment) -> NextStep:
    """After the agent's last word: the tests, when a Worker changed files; then whether the attempt stands."""
    if turn.assigned.role != "worker":
        return TurnClosed()
    if (call := due_run(events, turn, environment.tests)) is not None:
        return GatherEvidence(with_test_timeout(call, events, turn) if call.tool == views.RUN_TESTS else call)
    asked = views.asked(events)
    if asked is None or asked.snapshot is None:
        return TurnClosed()
    if not turn.changes and not views.interrupted_calls(turn):
        return RollBackAttempt("nothing was changed") if _wanted_a_change(events, turn) else TurnClosed()
    if not views.suite_decides(events):
        return RollBackAttempt(BROKE) if views.has_regressions(events) else TurnClosed()
    run = views.tests(events)
    return (
        TurnClosed()
        if run is None or run.ok or made_progress(events, turn, run)
        else RollBackAttempt("the tests failed")
    )


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
    from fugu_cli.engine.environment import Harness

    _harness: Harness = Repair()
