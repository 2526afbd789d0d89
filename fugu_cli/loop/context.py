"""What an agent reads: the prompt of its next model call, built from the log alone.

Stands between views and agents. Agents with native tools get the whole neutral history; small ones (`schema`, `text`)
get a brief: the request, how the tests stand, the files that matter, what was tried. Either way nothing is in it that
is not in the log. What the coordinator reads is something else (coordinators/transcript.py).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache

from fugu_cli import intent, prompts, views
from fugu_cli.conductor.seen import isolated, tests_since
from fugu_cli.events import Asked, Event, Member, Replied
from fugu_cli.loop import (
    aims,
    beginning,
    brief_files,
    brief_kind,
    earlier,
    excerpts,
    gaps,
    looking,
    put_back,
    reproducing,
)
from fugu_cli.loop.opening import files_read, files_shown, is_long, opening_ids, path_of
from fugu_cli.loop.ways import Aim
from fugu_cli.messages import FromAgent, FromTool, FromUser, Message, Prompt, ToolSpec
from fugu_cli.test_paths import tests_among
from fugu_cli.tools.try_answer import called

COLLEAGUE, ANSWER_LIMIT = 1200, 4000
"""Characters of a colleague's text in a brief, and of the answer that is judged, which ends with its result: small
models lose the thread in long ones."""
REPLY = 8192
"""Tokens a reply of an agent with native tools may have, unless its entry says otherwise."""
INSTRUCTIONS = 6000
"""Characters of the standing instructions that a small model is shown."""
SENTENCES = 200
FILE = 800
UNFINISHED = 1600
"""Least tokens of a small model's reply: as a Thinker or Verifier, as a Worker, and where the code is not written."""
UNSEEN = 1000
"""Where the seeds begin of Verifiers that answer for themselves: the likeliest answer would be the Worker's again."""
TESTS_LIMIT, UNFINISHED_LIMIT = 1500, 500
"""Characters of a test run's output in a brief; it says little where nothing is written, or is to be written anew
(tests/benchmarks/results/infilling.md)."""


ASKED_LAST = frozenset({"rewrite", "answer_found"})
"""Texts of prompts/brief/ that say the request themselves: a question that stands above what was found is answered as
if nothing had been."""


def prompt(events: Sequence[Event], member: Member, tools: Sequence[ToolSpec], instructions: str = "") -> Prompt:
    """The next call's prompt for the agent of the newest turn.

    `instructions` are the user's standing ones (AGENTS.md). A draw after the first is sampled (temperature 0.8, its own
    seed); the first leaves both to the agent's entry.
    """
    turn = views.turns(events)[-1]
    seen, brief = isolated(events), member.protocol != "native"
    aim = aims.aim(events, turn, member) if brief else Aim()
    if aim.gap is not None:
        return gaps.prompt(aim.target, gaps.Filling(aim.part, aim.gap), tools, aim.tried)
    hint = "" if brief or not reproducing.wanted(seen, tools) else prompts.load("reproduce")
    messages = _brief(events, seen, turn, aim) if brief else _full(seen, hint, tests_since(events, turn))
    again = aim.tried if brief else aims.draws_before(events, turn)
    if views.unseen_result(events, turn) is not None:
        again = UNSEEN + turn.number
    again = again if brief or member.attempts > 1 else 0
    system = prompts.load("system") if member.protocol == "native" else "{instructions}"
    return Prompt(
        system=prompts.fill(system, instructions=instructions[:INSTRUCTIONS] if brief else instructions).strip(),
        messages=messages,
        tools=tuple(tools),
        max_tokens=REPLY if member.protocol == "native" else _reply_limit(events, turn, aim),
        temperature=0.8 if again else None,
        seed=again or None,
        open_ended=brief and brief_files.open_ended(views.asked(events), files_read(turn)),
        target=aim.target,
        part=aim.part,
        unwritten=aim.unwritten,
        judged=aim.judged,
        wanted=brief and aims.wanted(events, turn),
        adds=aim.adds,
        begun=_begun(events, turn, member, aim) if brief else "",
        verdict=brief and not turn.assigned.plan and _asks_for_a_verdict(events, turn),
        aimed=aim.key,
    )


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
    written = brief_kind.of(events, turn, request) == "worker_unfinished"
    return beginning.of_stub(code[0], files[code[0]]) if sole and written else ""


def _asks_for_a_verdict(events: Sequence[Event], turn: views.Turn) -> bool:
    """The brief asks whether a change is accepted, and first of all for that word."""
    request = views.asked(events)
    return request is not None and brief_kind.of(events, turn, request) in ("verifier", "verifier_passing")


def _full(events: Sequence[Event], hint: str, state: str) -> tuple[Message, ...]:
    """Every request with its turns, as one neutral history; what was compacted, as its summary. `state` and `hint`:
    what the newest turn's agent is told besides."""
    summary, kept = views.shortened(events)
    *earlier, newest = views.requests(kept)
    before = "\n\n".join(part for part in (summary, views.still_open(events)) if part)
    messages: list[Message] = [FromUser(text=f"[What happened before, summed up:]\n{before}")] if summary else []
    for facts in earlier:
        messages += _past(_Past(facts))
    return (*messages, *_request_messages(newest, hint, state))


class _Past:
    """An earlier request's facts, which never change: equal when they are the very same ones."""

    def __init__(self, facts: Sequence[Event]) -> None:
        self.facts = facts

    def __hash__(self) -> int:
        return hash((id(self.facts[0]), len(self.facts)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Past) or len(self.facts) != len(other.facts):
            return False
        return all(map(operator.is_, self.facts, other.facts))


@lru_cache(maxsize=256)
def _past(past: _Past) -> tuple[Message, ...]:
    """Its messages, built once: a session's every model call would build them anew."""
    return _request_messages(past.facts)


def _request_messages(facts: Sequence[Event], hint: str = "", state: str = "") -> tuple[Message, ...]:
    request = facts[0]
    assert isinstance(request, Asked)
    messages: list[Message] = [FromUser(text=request.whole), *_runs_as_text(views.baseline(facts))]
    messages += put_back.after(facts, None)
    turns = views.turns(facts)
    for turn in turns:
        parts = (state, _opening(facts, turn), hint) if turn is turns[-1] else (_opening(facts, turn),)
        messages.append(FromUser(text="\n\n".join(part for part in parts if part)))
        messages += [*_turn_messages(turn), *put_back.after(facts, turn.assigned)]
    return tuple(messages)


def _opening(facts: Sequence[Event], turn: views.Turn) -> str:
    role = "" if turn.assigned.plan else prompts.load(turn.assigned.role)
    opening = opening_ids(turn)
    shown = [_evidence_text(run) for run in turn.runs if run.evidence and run.permitted.call.id in opening]
    failed = [_draw_text(index, draw) for index, draw in enumerate(turn.draws, start=1)]
    return "\n\n".join(part for part in (*shown, turn.assigned.instruction, *failed, role) if part)


def _turn_messages(turn: views.Turn) -> list[Message]:
    results = {run.permitted.call.id: run for run in turn.runs if not run.evidence}
    opening = opening_ids(turn)
    messages: list[Message] = []
    begun = [place for place, fact in enumerate(turn.facts) if isinstance(fact, Replied)]
    for reply, start, stop in zip(turn.replies, begun, [*begun, len(turn.facts)][1:], strict=True):
        messages.append(FromAgent(agent=reply.agent, text=reply.text, thinking=reply.thinking, calls=reply.calls))
        messages += [_result(results[call.id]) for call in reply.calls if call.id in results]
        after = views.pair_runs(turn.facts[start:stop])
        messages += _runs_as_text([run for run in after if run.permitted.call.id not in opening])
    if turn.failed is not None:
        messages.append(FromUser(text=f"[{turn.assigned.agent} failed: {turn.failed.message}]"))
    if turn.interrupted:
        messages.append(FromUser(text="[The user interrupted this turn.]"))
    return messages


def _result(run: views.Run) -> FromTool:
    call = run.permitted.call
    if not run.permitted.allowed:
        return FromTool(call=call.id, tool=call.tool, text=f"Not allowed: {run.permitted.reason}", ok=False)
    if run.result is None:
        text = "Interrupted: the call was started and did not come to an end. It was not run again."
        return FromTool(call=call.id, tool=call.tool, text=text, ok=False)
    return FromTool(call=call.id, tool=call.tool, text=run.result.output, ok=run.result.ok)


def _runs_as_text(runs: Sequence[views.Run]) -> list[Message]:
    texts = [_evidence_text(run) for run in runs if run.evidence]
    return [FromUser(text="\n\n".join(texts))] if texts else []


def _evidence_text(run: views.Run) -> str:
    if run.result is None:
        return ""
    call = run.permitted.call
    if call.tool == views.TRY_ANSWER:
        state = "hold" if run.result.ok else "do NOT all hold"
        return f"[The code of the answer was tried: the question's assertions {state}.]\n{run.result.output}"
    if call.tool == views.RUN_TESTS:
        return f"[The tests were run: they {'pass' if run.result.ok else 'FAIL'}.]\n{run.result.output}"
    if call.tool == views.RUN_REPRODUCTION:
        return f"[The reproduction was run: it {'passes' if run.result.ok else 'FAILS'}.]\n{run.result.output}"
    text = run.result.output
    return f"[{call.tool} {path_of(run) or ''}]\n{f'({len(text):,} characters)' if is_long(text) else text}"


def _draw_text(index: int, draw: tuple[Event, ...]) -> str:
    return f"[Try {index} of this turn was rolled back: {getattr(draw[-1], 'reason', '')}]"


def _brief(events: Sequence[Event], seen: Sequence[Event], turn: views.Turn, aim: Aim) -> tuple[Message, ...]:
    """One user message with all that matters, then this turn's own calls and results. `seen`: the facts it may see.

    Few words and the code first: a small model that is told of roles, tools and colleagues talks about them.
    """
    request, files, target = views.asked(events), files_shown(turn), aim.target
    assert request is not None
    kind = "worker_unfinished" if aim.unwritten else brief_kind.of(events, turn, request)
    if kind == "tests_failing" and not tests_among([target]):
        kind = "worker"
    elif kind == "change" and not aim.tried % 2 and target in brief_files.code(files):
        kind = "rewrite"  # every other draw is asked in other words: some changes only one of the two brings about
    role = prompts.load(f"brief/{kind}")
    instead = aim.shown or aim.part
    files = {} if kind == "tests_outdated" and aim.part else files
    above = excerpts.above(target, files_read(turn).get(target, "")) if aim.part else ""
    around = brief_files.without_code(files) if aim.part and aim.judged else files
    shown = around | {target: f"{above}\n\n\n{instead}" if above else instead} if instead else files
    names = " and ".join(f"`{name}`" for name in called(request.assertions))
    named = brief_files.named([target] if target in shown else files)
    what = excerpts.name_of(target, aim.part) if aim.part and kind == "rewrite" else target
    role = prompts.fill(role, named=named, names=names, request=request.text.strip(), target=what)
    asked = earlier.request_text(seen, request)
    told_by_tests = request.judged and tests_among(files) and brief_files.unfinished(files)
    text = prompts.fill(
        prompts.load("brief"),
        request="" if kind in ASKED_LAST and asked == request.whole else asked,
        tests=_tests_section(events, request, UNFINISHED_LIMIT if told_by_tests or aim.unwritten else TESTS_LIMIT)
        + reproducing.section(events),
        files=brief_files.section(shown, request.judged, target if aim.part else "")
        + looking.section(turn, request.text),
        earlier="" if turn.assigned.plan else _earlier_section(events, turn),
        role="\n\n".join(part for part in (views.turns(seen)[-1].assigned.instruction, role) if part),
    )
    return (FromUser(text=text.lstrip("\n")), *_turn_messages(turn))


def _tests_section(events: Sequence[Event], request: Asked, limit: int) -> str:
    run = views.tests(events) if intent.is_for_a_test_run(request.text) else views.tests_to_tell(events)
    if run is None or run.stale or (request.assertions and not run.ok):
        return ""  # of an answer that it is not shown a small model hears nothing: it would talk about it
    said = "All tests pass" if run.ok else "It prints"
    if request.assertions:
        return "The code was tried with these lines. They hold.\n\n"
    shown = looking.shortened(run.output, limit)
    return f"The tests were run with `{request.test_command}`. {said}:\n```\n{shown}\n```\n\n"


def _reply_limit(events: Sequence[Event], turn: views.Turn, aim: Aim) -> int:
    """Tokens a small model's reply may have: all the code it was shown, or a few sentences. It may run on."""
    if views.unseen_result(events, turn) is not None:
        return FILE
    if turn.assigned.role != "worker":
        return SENTENCES * 2 if brief_kind.judges_words(events, turn) else SENTENCES
    files = files_shown(turn)
    least = UNFINISHED if brief_files.unfinished(files_read(turn)) else FILE
    of_a_long_one = 0 if aim.target in files else len(aim.part)
    return max(least, (sum(len(files[path]) for path in brief_files.targets(files)) + of_a_long_one) // 2)


def _earlier_section(events: Sequence[Event], turn: views.Turn) -> str:
    """For a Worker what a Thinker or Verifier said since the newest change, nothing that failed and is gone; for a
    Verifier the words it is to judge, where nothing was changed."""
    if views.unseen_result(events, turn) is not None:
        return ""
    if brief_kind.judges_words(events, turn):
        answers = [
            one.text.strip() for one in views.turns(events) if one.assigned.role == "worker" and one.text.strip()
        ]
        return f"This was answered:\n{answers[-1][-ANSWER_LIMIT:]}\n\n" if answers else ""
    if turn.assigned.role != "worker":
        return ""
    said: list[str] = []
    for one in views.turns(events):
        if one.number >= turn.number:
            break
        if one.assigned.role == "worker":
            said = []
        elif one.text.strip() and views.unseen_result(events, one) is None:
            said.append(f"A colleague says: {one.text.strip()[:COLLEAGUE]}\n\n")
    return "".join(said)
