"""What a small model reads: one message with the request, the files that matter, the tests' output and its part.

Under harness.py. Few words and the code first: a small model that is told of roles, tools and colleagues talks about
them. A function of the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import prompts, views
from fugu_cli.conductor import scheduling
from fugu_cli.conductor.seen import isolated
from fugu_cli.events import Asked, Event, Member, Role
from fugu_cli.loop.context import turn_messages
from fugu_cli.messages import FromUser, Message, Prompt, ToolSpec
from fugu_cli.repair import aims, beginning, brief_files, earlier, excerpts, gaps, intent
from fugu_cli.repair.opening import files_read, files_shown
from fugu_cli.repair.ways import Aim
from fugu_cli.test_paths import tests_among

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


def role(turn: views.Turn) -> Role:
    """The part it plays: of a workflow's step, what its instruction says."""
    judges = turn.assigned.plan and turn.assigned.sees and scheduling.judges(turn.assigned.instruction)
    return "verifier" if judges else turn.assigned.role


def prompt(events: Sequence[Event], member: Member, tools: Sequence[ToolSpec], instructions: str) -> Prompt:
    """The next call's prompt for the agent of the newest turn. An attempt after the first is sampled (temperature .8,
    its own seed)."""
    turn = views.turns(events)[-1]
    aim = aims.aim(events, turn, member)
    if aim.gap is not None:
        return gaps.prompt(aim.target, gaps.Filling(aim.part, aim.gap), tools, aim.tried)
    request = views.asked(events)
    return Prompt(
        system=instructions[:INSTRUCTIONS].strip(),
        messages=_messages(events, isolated(events), turn, aim),
        tools=tuple(tools),
        max_tokens=_reply_limit(turn, aim),
        temperature=0.8 if aim.tried else None,
        seed=aim.tried or None,
        open_ended=brief_files.open_ended(request, files_read(turn), judged=views.suite_decides(events)),
        target=aim.target,
        part=aim.part,
        unwritten=aim.unwritten,
        judged=aim.judged,
        wanted=aims.wanted(events, turn),
        begun=_begun(events, turn, member, aim),
        verdict=turn.assigned.role == "verifier" and bool(views.changes(events)),
        aimed=aim.key,
    )


def _kind(events: Sequence[Event], turn: views.Turn, request: Asked) -> str:
    """The name of the text in prompts/brief/ that says what is to be done."""
    first, now = views.first_tests(events), views.tests(events)
    match role(turn):
        case "verifier":
            if first and now and not first.ok and now.ok and not now.stale:
                return "verifier_passing"
            return "verifier" if turn.assigned.plan or views.changes(events) else "verifier_answer"
        case "thinker":
            return "thinker_step" if turn.assigned.plan else "thinker"
        case _:
            if aims.wanted(events, turn):
                return "tests" if intent.is_for_tests(request.text) and views.changes(events) else "change"
            if aims.free(events, request):
                return "answer"
            return "worker_unfinished" if brief_files.unfinished(files_read(turn)) else "worker"


def _begun(events: Sequence[Event], turn: views.Turn, member: Member, aim: Aim) -> str:
    """The code that a model is shown and need not write, where it can go on from there: those that fill in can."""
    request = views.asked(events)
    if turn.assigned.role != "worker" or request is None or not member.infill or member.protocol != "text":
        return ""
    if aim.unwritten:
        return beginning.of_anew(aim.shown, aim.unwritten)
    files = files_shown(turn)
    code = brief_files.targets(files)
    sole = len(code) == 1 and not aim.part and aim.target in ("", code[0])
    written = _kind(events, turn, request) == "worker_unfinished"
    return beginning.of_stub(code[0], files[code[0]]) if sole and written else ""


def _messages(events: Sequence[Event], seen: Sequence[Event], turn: views.Turn, aim: Aim) -> tuple[Message, ...]:
    """One user message with all that matters, then this turn's own calls and results. `seen`: the facts it may see."""
    request, files, target = views.asked(events), files_shown(turn), aim.target
    assert request is not None
    kind = "worker_unfinished" if aim.unwritten else _kind(events, turn, request)
    if kind == "change" and not aim.tried % 2 and target in brief_files.code(files):
        kind = "rewrite"  # every other attempt is asked in other words: some changes only one of the two brings about
    instead = aim.shown or aim.part
    above = excerpts.above(target, files_read(turn).get(target, "")) if aim.part else ""
    around = brief_files.without_code(files) if aim.part and aim.judged else files
    shown = around | {target: f"{above}\n\n\n{instead}" if above else instead} if instead else files
    named = brief_files.named([target] if target in shown else files)
    what = excerpts.name_of(target, aim.part) if aim.part and kind == "rewrite" else target
    said = prompts.fill(prompts.load(f"brief/{kind}"), named=named, request=request.text.strip(), target=what)
    asked, judged = earlier.request_text(seen, request), views.suite_decides(events)
    told_by_tests = judged and tests_among(files) and brief_files.unfinished(files)
    limit = UNFINISHED_LIMIT if told_by_tests or aim.unwritten else TESTS_LIMIT
    text = prompts.fill(
        prompts.load("brief"),
        request="" if kind == "rewrite" and asked == request.whole else asked,
        tests=_tests_section(events, request, limit),
        files=brief_files.section(shown, judged, target if aim.part else ""),
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
    return f"The tests were run with `{request.test_command}`. {said}:\n```\n{shortened(run.output, limit)}\n```\n\n"


def shortened(text: str, limit: int) -> str:
    """The end of a text in whole lines: the summary comes last."""
    return text if len(text) <= limit else f"[...]\n{text[-limit:].partition(chr(10))[2]}"


def _reply_limit(turn: views.Turn, aim: Aim) -> int:
    """Tokens that the reply may have: all the code it was shown, or a few sentences. It may run on."""
    if turn.assigned.role != "worker":
        return SENTENCES
    files = files_shown(turn)
    least = UNFINISHED if brief_files.unfinished(files_read(turn)) else FILE
    of_a_long_one = 0 if aim.target in files else len(aim.part)
    return max(least, (sum(len(files[path]) for path in brief_files.targets(files)) + of_a_long_one) // 2)


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
