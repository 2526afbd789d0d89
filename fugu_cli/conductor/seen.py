"""What a step of a workflow may see, and nothing else: the Conductor's access lists (arXiv 2512.04388). Pure.

    ctx(agent, W, t) = own history  U  { o_j : j in access_list }  U  tool memory(< W)

`isolated` takes everything else out of the facts before a prompt is built from them, `opening` writes what the access
list and the memory opened, `manifest` lists it for the trace. The user's requests and the tests' state, which fugu
takes itself, belong to the request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fugu_cli import prompts, views
from fugu_cli.events import CLIENT, Asked, Assigned, Event, Merged, Opened, ToolRan, Undone

OUTPUT, OUTPUT_BRIEF = 12_000, 1_500
"""Characters of one output that another step reads: of an agent with native tools, of a small one."""
_FRAMES = re.compile(r"<(\s*/?\s*)(?=(?:output|subtask|request|change|reply|known|tests)\b)", re.IGNORECASE)
OWN = 0.3
"""Share of an agent's context that earlier requests may take: those of a long session would fill it, and no summary may
be shown, for it tells of others. A request whose turns have no room is shown as what was asked and answered."""
REMEMBERED = 2_000
"""Characters of one entry of the tool memory."""


@dataclass(frozen=True)
class Manifest:
    """What a step is shown, by turn and line numbers: its agent's own earlier turns in this request, the outputs opened
    to it as (step, turn), the lines of the tool memory, and turns whose diffs it chooses among. `hidden` are the turns
    of others, finished when it began, that it does not see."""

    own: tuple[int, ...]
    outputs: tuple[tuple[int, int], ...]
    memory: tuple[int, ...]
    candidates: tuple[int, ...]
    hidden: tuple[int, ...]


def isolated(events: Sequence[Event]) -> Sequence[Event]:
    """The facts without all that the newest turn must not see; as they are, where it is no step of a workflow. Of
    earlier requests what was answered and the agent's own turns, the newest, as far as there is room for them."""
    turns = views.turns(events)
    if not turns or not turns[-1].assigned.plan:
        return events
    now = turns[-1].assigned
    member = views.pool(events).get(now.agent)
    room = OWN * views.BYTES * member.context if member is not None else 0.0
    brief = member is not None and member.protocol != "native"
    *earlier, newest = views.requests(events)
    kept = _told(events, newest, _own_turns(events, now), None)
    end = len(events) - len(newest)
    for facts in reversed(earlier):
        own = set() if brief else _own_turns(events[:end], now)
        forms = (_told(events[:end], facts, mine, views.answered_by(facts)) for mine in (own, set[int]()))
        shown = next((form for form in forms if sum(map(views.length, form)) <= room), [facts[0]])
        end -= len(facts)
        room -= sum(map(views.length, shown))
        kept = [*shown, *kept]
    return [*(event for event in events if isinstance(event, Opened)), *kept]


def tests_since(events: Sequence[Event], turn: views.Turn) -> str:
    """How the tests stood when a workflow's step began, where others ran them since its own turns: those runs are
    hidden from it, and the one before the first step says how they stood then. "" where it has seen the newest."""
    if not turn.assigned.plan:
        return ""
    before = views.before(events, turn)
    run, own = views.tests(before), _own_turns(before, turn.assigned)
    if run is None or run.stale or run.turn in own or run == views.first_tests(before):
        return ""
    return f"[The tests were run again since: they {'pass' if run.ok else 'FAIL'}.]\n{run.output}"


def _told(events: Sequence[Event], facts: Sequence[Event], own: set[int], answer: views.Turn | None) -> list[Event]:
    """A request's facts that are shown: the request, what the user took back, the agent's own turns with fugu's
    evidence before them, and of the turn that answered, where that is another's, its last words."""
    begun = next((i for i, fact in enumerate(facts) if isinstance(fact, Assigned)), len(facts))
    kept: list[Event] = []
    for index, fact in enumerate(facts):
        number = getattr(fact, "turn", 0)
        of_the_user = isinstance(fact, Asked) or (isinstance(fact, Undone) and not number)
        evidence = own and number == 0 and index < begun and getattr(fact, "call", None) is not None
        if isinstance(fact, Assigned) and number in own and fact.plan:
            kept.append(fact.model_copy(update={"instruction": opening(events, fact)}))
        elif of_the_user or evidence or number in own:
            kept.append(fact)
        elif answer is not None and fact is answer.assigned:
            kept.append(fact.model_copy(update={"instruction": ""}))
        elif answer is not None and fact is answer.replies[-1]:
            said = clipped(views.said(answer), OUTPUT)
            kept.append(fact.model_copy(update={"text": said, "thinking": (), "calls": ()}))
    return kept


def _own_turns(events: Sequence[Event], now: Assigned) -> set[int]:
    """Numbers of the agent's turns in the newest of `events`' requests that said something, and of this very turn. What
    the client of an endpoint brought along belongs to its request, whoever said it."""
    turns = views.turns(events)
    own = {t.number for t in turns if t.replies and (t.assigned.agent == now.agent or t.assigned.by == CLIENT)}
    return own | {turn.number for turn in turns if turn.assigned is now}


def opening(events: Sequence[Event], now: Assigned) -> str:
    """What a step is told: the memory, the outputs its access list opens, the changes it chooses among, its part."""
    member = views.pool(events).get(now.agent)
    brief = member is not None and member.protocol != "native"
    found = {turn.number: turn for turn in views.turns(events)}
    outputs = [
        f'<output step="{place}">\n{framed(views.said(found[number]), brief=brief)}\n</output>'
        for place, number in _places(now, found)
    ]
    shown = prompts.fill(prompts.load("conductor/outputs"), outputs="\n".join(outputs)) + "\n\n" if outputs else ""
    return prompts.fill(
        prompts.load("conductor/step_brief" if brief else "conductor/step"),
        memory=_memory(events, now),
        outputs=shown + _candidates(events, now),
        subtask=now.instruction,
    )


def framed(text: str, *, brief: bool = False) -> str:
    """Somebody's words as data: what would end the frame is made harmless, the middle of a long text is left out."""
    return clipped(harmless(text), OUTPUT_BRIEF if brief else OUTPUT)


def harmless(text: str) -> str:
    """Somebody's words without what would end a frame or begin another."""
    return _FRAMES.sub(r"&lt;\1", text)


def clipped(text: str, limit: int) -> str:
    """At most `limit` characters: the beginning and the end."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _places(now: Assigned, found: dict[int, views.Turn]) -> list[tuple[str, int]]:
    """The outputs that are open to a step, named by the place of the step that wrote them."""
    sees = now.sees if isinstance(now.sees, tuple) else ()
    places = []
    for number in sees:
        if number in found:
            step = found[number].assigned
            earlier = "" if step.plan == now.plan else f" of workflow {step.plan}"
            places.append((f"{step.step}{earlier}", number))
    return places


def _memory(events: Sequence[Event], now: Assigned) -> str:
    """Entries the memory offers. `remembers` are lines of the whole log, so `events` must begin with its first."""
    entries = []
    for line in now.remembers:
        ran = events[line]
        assert isinstance(ran, ToolRan)
        said = clipped(ran.output, REMEMBERED)
        entries.append(f'<known call="{ran.call.tool} {framed(ran.call.arguments)}">\n{framed(said)}\n</known>')
    if not entries:
        return ""
    return prompts.fill(prompts.load("conductor/memory"), entries="\n".join(entries)) + "\n\n"


def _candidates(events: Sequence[Event], now: Assigned) -> str:
    """The diffs a merging step decides between."""
    waiting = _waiting(events, now)
    if waiting is None:
        return ""
    shown = "\n".join(f'<change n="{turn}">\n{framed(diff)}\n</change>' for turn, diff in waiting.diffs)
    return prompts.fill(prompts.load("conductor/merge"), candidates=shown) + "\n\n"


def _waiting(events: Sequence[Event], now: Assigned) -> Merged | None:
    """The choice this step was given: it reads the outputs of all whose diffs wait."""
    start = next(i for i in range(len(events) - 1, -1, -1) if events[i] is now or _is(events[i], now))
    newest = {merge.turns: merge for merge in views.merges(events[:start])}
    found = [merge for merge in newest.values() if merge.open and merge.plan == now.plan]
    sees = set(now.sees) if isinstance(now.sees, tuple) else set()
    return next((m for m in reversed(found) if {turn for turn, _ in m.diffs} <= sees), None)


def _is(event: Event, now: Assigned) -> bool:
    return isinstance(event, Assigned) and event.turn == now.turn


def manifest(events: Sequence[Event], number: int) -> Manifest:
    """What the step of turn `number` of the newest request was shown, and which turns it was not."""
    turns = views.turns(events)
    turn = next(turn for turn in turns if turn.number == number)
    now = turn.assigned
    before = [one for one in turns if one.number < number]
    found = {one.number: one for one in turns}
    sees = tuple((found[n].assigned.step, n) for n in (now.sees if isinstance(now.sees, tuple) else ()) if n in found)
    own = tuple(one.number for one in before if one.assigned.agent == now.agent and one.replies)
    open_to = {*own, *(n for _, n in sees)}
    waiting = _waiting(events, now)
    return Manifest(
        own=own,
        outputs=sees,
        memory=now.remembers,
        candidates=tuple(n for n, _ in waiting.diffs) if waiting else (),
        hidden=tuple(one.number for one in before if one.number not in open_to),
    )
