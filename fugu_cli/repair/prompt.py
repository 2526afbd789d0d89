"""The prompt of a small model: one message with the request, the files, the tests' output and the
task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fugu_cli import prompts
from fugu_cli.coordinators.conductor import scheduling
from fugu_cli.coordinators.conductor.step_context import visible_part
from fugu_cli.engine.harness import told_instructions
from fugu_cli.engine.message_history import turn_messages
from fugu_cli.messages import FromUser, InfillHole, Message, Prompt, ToolSpec
from fugu_cli.providers.code_blocks import fenced
from fugu_cli.repair import excerpts, intent, search
from fugu_cli.repair.localization import files_read, files_shown
from fugu_cli.repair.replies import DOCUMENTS
from fugu_cli.repair.search import RepairTask
from fugu_cli.session import views
from fugu_cli.session.events import Asked, Member, Role
from fugu_cli.session.recognized_tests import tests_among
from fugu_cli.session.state import SessionState

NEWEST, EARLIER, ALL_EARLIER = 1200, 400, 2400
"""Characters of the answer to the request just before this one, of each exchange before that, and
of all of these.
"""
COLLEAGUE, ANSWER_LIMIT = 1200, 4000
"""Characters of a colleague's text, and of the answer that is judged, which ends with its
result.
"""
INSTRUCTIONS = 6000
"""Characters of the standing instructions."""
SENTENCES, FILE, UNFINISHED, INFILL_TOKENS = 400, 800, 1600, 64
"""Least tokens of a reply: as a Thinker or Verifier, as a Worker, and where the code is not
written; of a line.
"""
TESTS_LIMIT, UNFINISHED_LIMIT = 1500, 500
"""Characters of a test run's output; it says little where nothing is written yet, or all is to be
written again.
"""
DOCUMENT_LIMIT, TEST_LIMIT = 4000, 3000
"""Characters shown of a document, and of a test beside a stub: some 1,000 tokens."""


def build_prompt(
    state: SessionState, member: Member, tools: Sequence[ToolSpec], instructions: str
) -> Prompt:
    """The next call's prompt for the agent of the newest turn. What was asked for before is sampled
    (temperature .8, its own seed)."""
    turn, request = state.request.turns[-1], state.request.asked
    assert request is not None
    task = search.next_task(state, turn, member)
    sampled = {"temperature": 0.8, "seed": task.tried} if task.tried else {}
    files = files_read(turn)
    if task.gap is not None:
        return _infill_prompt(task, task.gap, files, tools).model_copy(update=sampled)
    return Prompt(
        system=told_instructions(turn, instructions[:INSTRUCTIONS]).strip(),
        messages=_messages(state, turn, request, task),
        tools=tuple(tools),
        max_tokens=_reply_limit(turn, task),
        open_ended=intent.is_open_ended(request, files, judged=state.request.suite_decides),
        target=task.target,
        part=task.part,
        unwritten=task.unwritten,
        judged=task.judged,
        wanted=search.wants_described_change(state, turn),
        verdict=turn.assigned.role == "verifier" and bool(state.request.changes),
        files=files,
        removes=intent.takes_away(request.text),
        aimed=task.key,
    ).model_copy(update=sampled)


def _infill_prompt(
    task: RepairTask, gap: InfillHole, files: dict[str, str], tools: Sequence[ToolSpec]
) -> Prompt:
    """The call that asks for a line. The model reads what stands around it, and no request."""
    return Prompt(
        system="",
        messages=(FromUser(text=f"{gap.before}[the line that is to be filled in]{gap.after}"),),
        tools=tuple(tools),
        max_tokens=INFILL_TOKENS,
        target=task.target,
        part=task.part,
        judged=True,
        gap=gap,
        files=files,
    )


def played_role(turn: views.Turn) -> Role:
    """The part it plays: of a workflow's step, what its instruction says."""
    judges = (
        turn.assigned.plan
        and turn.assigned.sees
        and scheduling.is_judging(turn.assigned.instruction)
    )
    return "verifier" if judges else turn.assigned.role


def request_with_history(state: SessionState, request: Asked) -> str:
    """The request, after the newest earlier one and its answer. Where words are all that is asked
    for, after those before it as well: in a conversation they belong together, while beside code to
    be fixed they only distract."""
    summary, kept = views.after_compaction(state.events)
    before = views.requests(kept)[:-1]
    judged = state.request.suite_decides
    exchanges = [_exchange(SessionState(facts)) for facts in before[-1:]]
    for facts in [] if judged else reversed(before[:-1]):
        text = _exchange(SessionState(facts), EARLIER, EARLIER)
        if sum(map(len, exchanges[:-1])) + len(text) > ALL_EARLIER:
            break
        exchanges.insert(0, text)
    begin = "Before, "
    if summary and not (exchanges and judged):
        exchanges, begin = [summary[:NEWEST], *exchanges], "Before: "
    if not exchanges:
        return request.whole
    return f"({begin}{f'{chr(10)}Then '.join(exchanges)})\n\n{request.whole}"


def _exchange(state: SessionState, limit: int = NEWEST, request_limit: int | None = None) -> str:
    """A request and its answer, the latter with at most `limit` characters, the former with at most
    `request_limit`.
    """
    first, answer = state.events[0], state.request.answer[:limit]
    assert isinstance(first, Asked)
    answered = [f"and got: {answer}"] if answer else []
    return "\n".join(
        [
            f"the user asked: {first.text[:request_limit]}",
            *answered,
            *views.undo_notices(state.events),
        ]
    )


def _brief_name(state: SessionState, turn: views.Turn, request: Asked) -> str:
    """The name of the text in prompts/brief/ that says what is to be done."""
    first, newest = state.request.first_tests, state.request.tests
    match played_role(turn):
        case "verifier":
            if first and newest and not first.ok and newest.ok and not newest.stale:
                return "verifier_passing"
            return "verifier" if turn.assigned.plan or state.request.changes else "verifier_answer"
        case "thinker":
            return "thinker_step" if turn.assigned.plan else "thinker"
        case _:
            if search.wants_described_change(state, turn):
                return (
                    "tests"
                    if intent.is_for_tests(request.text) and state.request.changes
                    else "change"
                )
            if search.is_unjudged(state, request):
                return "answer"
            return "worker_unfinished" if intent.is_unfinished(files_read(turn)) else "worker"


def _messages(
    state: SessionState, turn: views.Turn, request: Asked, task: RepairTask
) -> tuple[Message, ...]:
    """One user message with all that matters, then this turn's own calls and results."""
    visible, files, target = visible_part(state), files_shown(turn), task.target
    brief = "worker_unfinished" if task.unwritten else _brief_name(state, turn, request)
    above = excerpts.context_above(target, files_read(turn).get(target, "")) if task.part else ""
    beside_part = files
    if task.part and task.judged:  # beside one function a small model writes the other code again
        beside_part = {
            path: text for path, text in files.items() if path not in intent.code_files(files)
        }
    part_shown = "\n\n\n".join(filter(None, [above, task.shown or task.part]))
    shown = {**beside_part, target: part_shown} if task.shown or task.part else beside_part
    judged = state.request.suite_decides
    told_by_tests = judged and tests_among(files) and intent.is_unfinished(files)
    instruction = prompts.fill(
        prompts.load(f"brief/{brief}"),
        named=code_in_words([target] if target in shown else files),
        request=request.text.strip(),
    )
    text = prompts.fill(
        prompts.load("brief"),
        request=request_with_history(visible, request),
        tests=_tests_section(
            state, request, UNFINISHED_LIMIT if told_by_tests or task.unwritten else TESTS_LIMIT
        ),
        files=(_quoted(target, task.texts) if task.texts else "")
        + files_section(shown, judged, target if task.part else ""),
        earlier="" if turn.assigned.plan else _earlier_section(state, turn),
        role="\n\n".join(
            part for part in (visible.request.turns[-1].assigned.instruction, instruction) if part
        ),
    )
    return (FromUser(text=text.lstrip("\n")), *turn_messages(turn))


def _tests_section(state: SessionState, request: Asked, limit: int) -> str:
    """The tests' output, where they judge the request, something was changed, or they are what is
    asked about.
    """
    run = state.request.tests
    is_relevant = (
        state.request.suite_decides
        or state.request.changes
        or intent.is_for_a_test_run(request.text)
    )
    if run is None or run.stale or not is_relevant:
        return ""
    outcome = "All tests pass" if run.ok else "It prints"
    return (
        f"The tests were run with `{request.test_command}`. "
        f"{outcome}:\n```\n{last_lines(run.output, limit)}\n```\n\n"
    )


def last_lines(text: str, limit: int) -> str:
    """The end of a text in whole lines: the summary comes last."""
    return text if len(text) <= limit else f"[...]\n{text[-limit:].partition(chr(10))[2]}"


def _reply_limit(turn: views.Turn, task: RepairTask) -> int:
    """Tokens that the reply may have: all the code it was shown, or a few sentences. It may run
    on.
    """
    if turn.assigned.role != "worker":
        return SENTENCES
    files = files_shown(turn)
    least = UNFINISHED if intent.is_unfinished(files_read(turn)) else FILE
    of_a_long_one = 0 if task.target in files else len(task.part)
    return max(
        least, (sum(len(files[path]) for path in intent.target_files(files)) + of_a_long_one) // 2
    )


def _earlier_section(state: SessionState, turn: views.Turn) -> str:
    """For a Worker what a Thinker or Verifier said since the newest change; for a Verifier the
    words it is to judge, where nothing was changed."""
    before = [earlier for earlier in state.request.turns if earlier.number < turn.number]
    if turn.assigned.role == "verifier" and not state.request.changes:
        answers = [
            earlier.text.strip()
            for earlier in before
            if earlier.assigned.role == "worker" and earlier.text.strip()
        ]
        return f"This was answered:\n{answers[-1][-ANSWER_LIMIT:]}\n\n" if answers else ""
    if turn.assigned.role != "worker":
        return ""
    texts: list[str] = []
    for earlier in before:
        if earlier.assigned.role == "worker":
            texts = []
        elif earlier.text.strip():
            texts.append(f"A colleague says: {earlier.text.strip()[:COLLEAGUE]}\n\n")
    return "".join(texts)


def code_in_words(files: Iterable[str]) -> str:
    """The code that is to be worked on, in words."""
    paths = list(files)
    code = intent.target_files(paths)
    named = " or ".join(f"`{path}`" for path in code or paths)
    return (
        f"The code in {named}"
        if code
        else f"The code that {named} asks for"
        if named
        else "The code"
    )


def files_section(files: Mapping[str, str], judged: bool, part_of: str = "") -> str:
    """All files. Where tests judge, what stays as it is comes first, so that it need not be read
    again: documents, quoted, then tests, then the code. Of the file `part_of` only a part is
    there."""
    code = intent.target_files(files) if judged else list(files)
    around = sorted(
        (path for path in files if path not in code), key=lambda path: not path.endswith(DOCUMENTS)
    )
    return "".join(
        [
            *(_around(path, files[path]) for path in around),
            *(_block(p, files[p], p == part_of) for p in code),
        ]
    )


def _around(path: str, content: str) -> str:
    """A document or a test, shortened."""
    if not path.endswith(DOCUMENTS):
        return _block(path, excerpts.shortened(content, TEST_LIMIT))
    return _quoted(path, excerpts.shortened(content.strip(), DOCUMENT_LIMIT))


def _quoted(path: str, text: str) -> str:
    return (
        f"What `{path}` "
        f"says:\n{chr(10).join(f'> {line}'.rstrip() for line in text.splitlines())}\n\n"
    )


def _block(path: str, content: str, part: bool = False) -> str:
    """The file in a fence that no line of it closes."""
    return (
        f"{'Of the' if part else 'The'} file "
        f"`{path}`:\n{fenced(content.rstrip(chr(10)) + chr(10))}\n\n"
    )
