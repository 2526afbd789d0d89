"""The shape of a session: its requests and their turns, and subtasks as logs of their own.

A subtask is a turn that an agent's `task` call began. It reads its own prompt and nothing of the
request around it, so its facts are those of a request that asks this prompt alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, NamedTuple, TypeGuard

from fugu_cli.messages import Call, Effort
from fugu_cli.session.events import (
    ANSWERED,
    Asked,
    Assigned,
    Event,
    Exclusion,
    Failed,
    FileChange,
    Finished,
    Interrupted,
    Masked,
    Member,
    Merged,
    Opened,
    Permitted,
    Replied,
    Subtask,
    ToolRan,
    Undone,
)

TASK = "task"
"""The tool whose call begins one. It changes nothing itself: what its subtask did is in that one's
own facts.
"""
UNABLE = re.compile(r"\s*(\*\*|__|)UNABLE:\1\s*")
"""How an answer begins in which an agent gives up what was asked."""
BY_FILE = "file"
"""`Assigned.by` of a subtask whose subagent's file names the agent."""


@dataclass(frozen=True)
class CallRecord:
    """One tool call of a turn: judged, and, when it was allowed and came to an end, its result."""

    permitted: Permitted
    result: ToolRan | None

    @property
    def evidence(self) -> bool:
        """Made by fugu itself, not by the agent."""
        return self.permitted.by_fugu


@dataclass(frozen=True)
class Turn:
    """One turn as the log holds it.

    `facts` are the evidence it opened with and the current draw; draws that were rolled back are
    only in `draws`, each ending with its Undone. `subtasks` are the turns that its `task` calls of
    the current draw began.
    """

    number: int
    assigned: Assigned
    facts: tuple[Event, ...]
    draws: tuple[tuple[Event, ...], ...] = ()
    runs: tuple[CallRecord, ...] = field(default=())
    subtasks: tuple[Turn, ...] = ()

    @property
    def work(self) -> tuple[CallRecord, ...]:
        """Its runs with those of its subtasks, each before the call that they answer."""
        if not self.subtasks:
            return self.runs
        inside: dict[str, list[CallRecord]] = {}
        for one in self.subtasks:
            assert one.assigned.subtask is not None
            inside.setdefault(one.assigned.subtask.call, []).extend(one.runs)
        return tuple(
            each for run in self.runs for each in (*inside.get(run.permitted.call.id, ()), run)
        )

    @property
    def replies(self) -> tuple[Replied, ...]:
        """The agent's replies in the current draw, oldest first."""
        return tuple(fact for fact in self.facts if isinstance(fact, Replied))

    @property
    def failed(self) -> Failed | None:
        """Set when the agent failed after retries: the turn is closed without an answer."""
        return next((fact for fact in self.facts if isinstance(fact, Failed)), None)

    @property
    def interrupted(self) -> bool:
        """The user cut it: closed without an answer. A cut after the turn's end does not undo
        it.
        """
        return any(
            isinstance(fact, Interrupted) and fact.turn == self.number for fact in self.facts
        )

    @property
    def silent_cuts(self) -> int:
        """Count the newest replies that reached their limit of tokens before they said a word."""
        newest_first = reversed(self.replies)
        return sum(1 for _ in takewhile(is_cut_in_silence, newest_first))

    @property
    def text(self) -> str:
        """What the agent said last, "" before its first reply."""
        return self.replies[-1].text if self.replies else ""

    @property
    def concluded(self) -> bool:
        """Its agent came to its last word: that was not cut short, is no refusal, and asks for
        nothing more. Silence is one only of who changed something."""
        ended = bool(self.replies) and not self.replies[-1].calls and self.replies[-1].stop == "end"
        return ended and bool(self.text.strip() or self.changes)

    @property
    def unable(self) -> str | None:
        """The reason of a Worker that changed nothing and gave up with `UNABLE:`; None for other
        turns."""
        if self.assigned.role != "worker" or not self.concluded or self.changes:
            return None
        return unable_reason(self.text)

    @property
    def changes(self) -> tuple[FileChange, ...]:
        """Files changed in the current draw, by its subtasks too, in order."""
        return tuple(change for run in self.work if run.result for change in run.result.changes)

    @property
    def spent(self) -> tuple[Replied, ...]:
        """Every reply that was paid for, those of draws rolled back included."""
        earlier = tuple(fact for draw in self.draws for fact in draw if isinstance(fact, Replied))
        return earlier + self.replies


def is_cut_in_silence(reply: Replied) -> bool:
    """Return whether a reply reached its limit of tokens before it said or called anything."""
    return reply.stop == "length" and not reply.calls and not reply.text.strip()


def turns_since_opened(events: Sequence[Event]) -> tuple[Turn, ...]:
    """The turns of the newest request since the session was opened the last time."""
    assigned = before = 0
    for event in request(events):
        if isinstance(event, Assigned) and event.subtask is None:
            assigned += 1
        elif isinstance(event, Opened):
            before = assigned
    return turns(events)[before:]


def unable_turns(events: Sequence[Event]) -> tuple[Turn, ...]:
    """The turns in which agents gave the newest request up since it was opened the last time.
    A workflow's step is given up for itself, and is not among them."""
    return tuple(
        turn
        for turn in turns_since_opened(events)
        if turn.unable is not None and not turn.assigned.plan
    )


def request(events: Sequence[Event]) -> Sequence[Event]:
    """The facts of the newest request: from its Asked to the end. Empty before the first."""
    for index in range(len(events) - 1, -1, -1):
        if isinstance(events[index], Asked):
            return events[index:]
    return ()


def requests(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Every request's facts, oldest first."""
    starts = [index for index, event in enumerate(events) if isinstance(event, Asked)]
    return [
        events[start:end] for start, end in zip(starts, [*starts[1:], len(events)], strict=False)
    ]


def asked(events: Sequence[Event]) -> Asked | None:
    """The newest request itself."""
    facts = request(events)
    return facts[0] if facts and isinstance(facts[0], Asked) else None


def asked_effort(events: Sequence[Event], member: Member) -> Effort:
    """How much the newest request lets an agent reason; "" where it does not say so, or the agent
    cannot be told.
    """
    now = asked(events)
    return now.effort if now is not None and member.reasoning else ""


def without_effort(members: Mapping[str, Member]) -> tuple[str, ...]:
    """The agents that no effort can be told."""
    return tuple(name for name, member in members.items() if not member.reasoning)


def opened(events: Sequence[Event]) -> Opened | None:
    """The newest opening: the session's first line, or a later one where it was continued with
    another pool.
    """
    return next((event for event in reversed(events) if isinstance(event, Opened)), None)


def served(events: Sequence[Event]) -> bool:
    """What agents are shown now is what a client of `fugu serve` sent: no prompt is made of the
    facts.
    """
    newest = opened(events)
    return newest is not None and newest.served


def pool(events: Sequence[Event]) -> dict[str, Member]:
    """Every agent the session ever had, by name, as it was known last."""
    return {
        member.name: member
        for event in events
        if isinstance(event, Opened)
        for member in event.pool
    }


def turns(events: Sequence[Event]) -> tuple[Turn, ...]:
    """The turns of the newest request, oldest first, each with its subtasks. A fact belongs to the
    turn it names: turns that are open at the same time are interleaved in the log. Facts of no turn
    (`baseline`) are in none."""
    groups = _groups(events)
    parents = {number: _parent(group) for number, group in groups.items()}
    inside = {
        number: parent
        for number, parent in parents.items()
        if parent in groups and parent != number
    }
    return tuple(
        _turn(group, [groups[child] for child, parent in inside.items() if parent == number])
        for number, group in groups.items()
        if number not in inside
    )


def _groups(events: Sequence[Event]) -> dict[int, list[Event]]:
    """The facts of the newest request's turns and subtasks by number, each group led by its
    Assigned.
    """
    groups: dict[int, list[Event]] = {}
    for event in request(events):
        number = getattr(event, "turn", 0)
        if isinstance(event, Assigned):
            groups.pop(number, None)  # one that is assigned again is the newest
            groups[number] = [event]
        elif number in groups:
            groups[number].append(event)
    return groups


def _parent(group: Sequence[Event]) -> int | None:
    """The turn whose call began it; None for a turn of its own."""
    begin = group[0]
    assert isinstance(begin, Assigned)
    return begin.subtask.turn if begin.subtask is not None else None


def every_turn(events: Sequence[Event]) -> tuple[Turn, ...]:
    """The turns and the subtasks of the newest request in the order they began."""
    found = (each for turn in turns(events) for each in (turn, *turn.subtasks))
    return tuple(sorted(found, key=lambda turn: turn.number))


def turn_of(events: Sequence[Event], number: int) -> Turn | None:
    """The turn or subtask of the newest request with this number."""
    return next((turn for turn in every_turn(events) if turn.number == number), None)


def open_subtasks(events: Sequence[Event]) -> tuple[Turn, ...]:
    """Subtasks that have not come to an end: nothing closed them, and the call that began them has
    no result.
    """
    return tuple(
        one
        for turn in turns(events)
        for one in turn.subtasks
        if not (one.failed or one.interrupted)
        and one.assigned.subtask is not None
        and any(
            run.permitted.call.id == one.assigned.subtask.call and run.result is None
            for run in turn.runs
        )
    )


def events_before(events: Sequence[Event], turn: Turn) -> Sequence[Event]:
    """The facts as they were when the turn, one of theirs, began."""
    return events[: next(place for place, event in enumerate(events) if event is turn.assigned)]


def events_of_turn(events: Sequence[Event], number: int) -> Sequence[Event]:
    """The facts as the turn `number` stands in them, as if it were the newest: without what others,
    open at the same time, did since it began. A worktree of its own is its repository here. A
    subtask stands alone."""
    start = next((i for i in range(len(events) - 1, -1, -1) if _begins(events[i], number)), None)
    if start is None:
        return events
    later = [
        e
        for e in events[start + 1 :]
        if getattr(e, "turn", number) == number and not isinstance(e, Merged)
    ]
    begin = events[start]
    assert isinstance(begin, Assigned)
    if begin.subtask is not None:
        return events_of_subtask(
            events[:start], begin, [e for e in later if getattr(e, "turn", 0) == number]
        )
    if not later and start == len(events) - 1 and not begin.worktree:
        return events
    own = begin.model_copy(update={"worktree": ""}) if begin.worktree else begin
    return (*events[:start], own, *later)


def _begins(event: Event, number: int) -> bool:
    return isinstance(event, Assigned) and event.turn == number


def _turn(group: list[Event], inside: Sequence[list[Event]] = ()) -> Turn:
    assigned = group[0]
    assert isinstance(assigned, Assigned)
    opening: list[Event] = []
    draws: list[tuple[Event, ...]] = []
    current: list[Event] = []
    for fact in group[1:]:
        if isinstance(fact, Undone) and fact.turn == assigned.turn:
            draws.append((*current, fact))
            current = []
        elif isinstance(fact, Finished | Undone):
            continue
        elif draws or current or isinstance(fact, Replied):
            current.append(fact)
        else:
            opening.append(fact)
    facts = (*opening, *current)
    runs = call_records(facts)
    calls = {run.permitted.call.id for run in runs}
    begun = (
        turn
        for turn in map(_turn, inside)
        if turn.assigned.subtask and turn.assigned.subtask.call in calls
    )
    return Turn(assigned.turn, assigned, facts, tuple(draws), runs, tuple(begun))


def effective(events: Sequence[Event]) -> tuple[Event, ...]:
    """The newest request without the draws that were rolled back and without what was done in
    worktrees: what the working tree is the result of. What was taken over from a worktree is in its
    Merged. Where the user undid the request and it went on, what had changed files until then is
    left out, and the Undone is there."""
    kept: list[Event] = []
    apart: set[int] = set()
    undone: list[Undone] = []
    for event in request(events):
        if isinstance(event, Undone) and not event.turn:
            undone = undone[:-1] if event.kind == "redo" else [*undone, event]
            continue
        if undone and isinstance(event, Assigned | Replied | Permitted):
            kept = [*(fact for fact in kept if not any(getattr(fact, "made", ()))), undone[0]]
            undone = []
        if isinstance(event, Assigned) and event.worktree:
            apart.add(event.turn)
        if isinstance(event, Undone):
            start = next(
                (i for i, fact in enumerate(kept) if _draw_of(fact, event.turn)), len(kept)
            )
            gone = {
                event.turn,
                *(fact.turn for fact in kept[start:] if _began_subtask(fact, event.turn)),
            }
            others = [fact for fact in kept[start:] if getattr(fact, "turn", 0) not in gone]
            kept = [*kept[:start], *others]
        elif getattr(event, "turn", 0) not in apart:
            kept.append(event)
    return tuple(kept)


def _draw_of(fact: Event, turn: int) -> bool:
    return isinstance(fact, Replied) and fact.turn == turn


def _began_subtask(fact: Event, turn: int) -> TypeGuard[Assigned]:
    return isinstance(fact, Assigned) and fact.subtask is not None and fact.subtask.turn == turn


def call_records(facts: Sequence[Event]) -> tuple[CallRecord, ...]:
    """Each Permitted with its ToolRan, where there is one."""
    results = {fact.call.id: fact for fact in facts if isinstance(fact, ToolRan)}
    return tuple(
        CallRecord(fact, results.get(fact.call.id)) for fact in facts if isinstance(fact, Permitted)
    )


def baseline(events: Sequence[Event]) -> tuple[CallRecord, ...]:
    """What fugu ran before the first turn of the newest request: evidence, and what the request
    attaches.
    """
    facts: list[Event] = []
    for event in request(events):
        if isinstance(event, Assigned):
            break
        facts.append(event)
    return call_records(facts)


def open_calls(turn: Turn) -> tuple[Call, ...]:
    """Calls of the newest reply that nobody has judged yet, in the order the agent made them."""
    if not turn.replies:
        return ()
    judged = {run.permitted.call.id for run in turn.runs}
    return tuple(call for call in turn.replies[-1].calls if call.id not in judged)


def interrupted_calls(turn: Turn) -> tuple[Call, ...]:
    """Calls that were started and never came back: killed, also in subtasks. They are never run
    again.
    """
    runs = (run.permitted for run in turn.work if run.permitted.allowed and run.result is None)
    return tuple(permitted.call for permitted in runs if permitted.call.tool != TASK)


def start_snapshot(events: Sequence[Event]) -> str:
    """The working tree before the newest request did anything to it, a snapshot's id; "" where it
    did nothing, and outside git."""
    for fact in request(events):
        if isinstance(fact, Asked | Assigned | Permitted) and fact.snapshot:
            return fact.snapshot
    return ""


def failed_agents(events: Sequence[Event]) -> dict[str, Exclusion]:
    """Agents that failed in this request: masked until the next one, or until it is opened
    again.
    """
    failed: dict[str, Exclusion] = {}
    for fact in request(events):
        if isinstance(fact, Opened):
            failed.clear()
        elif isinstance(fact, Masked):
            failed = dict(fact.agents)
        elif isinstance(fact, Failed):
            failed[fact.what] = Exclusion(
                kind=fact.kind, message=fact.message, unreachable=fact.unreachable
            )
    return failed


def failed_since_reply(events: Sequence[Event]) -> frozenset[str]:
    """Agents that failed in this request after whoever answered last, or with nobody having
    answered at all.
    """
    failed: set[str] = set()
    for fact in request(events):
        if isinstance(fact, Opened | Replied):
            failed.clear()
        elif isinstance(fact, Failed):
            failed.add(fact.what)
    return frozenset(failed)


def failed_turns(events: Sequence[Event]) -> Counter[str]:
    """Count each agent's failures in this request since it was asked, or opened again."""
    failures: Counter[str] = Counter()
    for event in request(events):
        if isinstance(event, Opened):
            failures.clear()
        elif isinstance(event, Failed) and event.kind != "switched":
            failures[event.what] += 1
    return failures


def probed_since_reply(events: Sequence[Event]) -> bool:
    """Whether an unavailable agent was tried, for want of others, since the newest reply."""
    for event in reversed(request(events)):
        if isinstance(event, Opened | Replied):
            return False
        if isinstance(event, Masked) and event.probed:
            return True
    return False


STOPPED = frozenset(
    {"unaccepted", "turn_limit", "budget", "time_limit", "interrupted", "denied", "failed"}
)
"""Ends that an Opened after them takes back: the request goes on, with other limits, other agents,
another key.
"""


def finished(events: Sequence[Event]) -> Finished | None:
    """How the newest request ended; None while it runs, or where it was stopped and then opened
    again.
    """
    again = False
    for event in reversed(request(events)):
        if isinstance(event, Finished):
            return None if again and event.reason in STOPPED else event
        again = again or isinstance(event, Opened)
    return None


def events_of_subtask(
    opened: Sequence[Event], begin: Assigned, later: Sequence[Event]
) -> tuple[Event, ...]:
    """A log whose only request is the subtask that `begin` began. `opened`: the facts before it;
    `later`: its own.
    """
    assert begin.subtask is not None
    around = asked(opened)
    rules = around.rules if around is not None else ()
    prompt = Asked(text=begin.instruction, effort=begin.subtask.effort, rules=rules)
    return (*_openings(opened), prompt, begin.model_copy(update={"instruction": ""}), *later)


def lines_of_subtasks(events: Sequence[Event]) -> frozenset[int]:
    """The places of the facts of subtasks, which no other turn reads."""
    found: set[int] = set()
    inside: set[int] = set()
    for place, event in enumerate(events):
        if isinstance(event, Asked):
            inside.clear()
        elif isinstance(event, Assigned) and event.subtask is not None:
            inside.add(event.turn)
        if inside and getattr(event, "turn", 0) in inside:
            found.add(place)
    return frozenset(found)


def events_to_assign(
    events: Sequence[Event], task: Subtask, prompt: str, out: Mapping[str, Exclusion]
) -> tuple[Event, ...]:
    """What a coordinator reads to choose who does it: what the same subagent did last, whose prompt
    may be cached, and the new prompt. `out`: who cannot do it now."""
    masked = (Masked(agents=tuple(sorted(out.items()))),) if out else ()
    return (
        *_openings(events),
        *_last_of(events, task),
        Asked(text=prompt, effort=task.effort),
        *masked,
    )


def _openings(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(event for event in events if isinstance(event, Opened))


def _last_of(events: Sequence[Event], task: Subtask) -> tuple[Event, ...]:
    """The newest subtask of the same subagent that was answered, as a request of its own."""
    for place in range(len(events) - 1, -1, -1):
        begin = events[place]
        if (
            isinstance(begin, Assigned)
            and begin.subtask is not None
            and begin.subtask.name == task.name
        ):
            said = [e for e in events[place:] if isinstance(e, Replied) and e.turn == begin.turn][
                -1:
            ]
            if said and not said[0].calls:
                assigned = begin.model_copy(update={"instruction": "", "subtask": None})
                return (Asked(text=begin.instruction), assigned, *said, ANSWERED)
    return ()


def unable_reason(text: str) -> str | None:
    """Return what stands behind the `UNABLE:` that a text begins with; None for other texts."""
    begun = UNABLE.match(text)
    return None if begun is None else text[begun.end() :].strip()


def may_be_unable(beginning: str) -> bool:
    """Return whether a text that begins so gives up, or may still turn out to."""
    text = beginning.lstrip()
    if UNABLE.match(text):
        return True
    return any(f"{mark}UNABLE:".startswith(text) for mark in ("", "**", "__"))


Verdict = Literal["ACCEPT", "REVISE"]
_MARKS = r"[\s*_#>`\"'“”‘’(\[•–—✅✔☑\uFE0F-]*"
_LEADING = re.compile(
    rf"{_MARKS}(?:verdict\s*[:=]?{_MARKS})?(accept|revise|reject)(?:ed)?(?:\b|(?=_+(?:\W|$)))",
    re.IGNORECASE,
)
_LONE = re.compile(
    r"^[ \t*_`#>]*(?:verdict:[ \t*_`]*)?(ACCEPT|REVISE|REJECT)(?:ED)?[*_`.! \t]*$", re.I | re.M
)


class LeadingVerdict(NamedTuple):
    """The verdict that a text begins with: its meaning, the word as written, and the text behind
    it.
    """

    verdict: Verdict
    written: str
    rest: str


def leading_verdict(text: str) -> LeadingVerdict | None:
    """Read a verdict at the beginning of a text, in any case ("Accepted" counts, REJECT means REVISE).

    Marks of emphasis, headings, lists and quotes, and the label "Verdict:" before it are skipped.
    """
    lead = _LEADING.match(text)
    if lead is None:
        return None
    return LeadingVerdict(
        "ACCEPT" if lead[1].lower() == "accept" else "REVISE", lead[1], text[lead.end() :]
    )


def verdict_of(text: str) -> Verdict:
    """By the leading word, else the only one of the words anywhere, else REVISE."""
    if lead := leading_verdict(text):
        return lead.verdict
    words = {
        word.lower() for word in re.findall(r"\b(accept|revise|reject)\b", text, re.IGNORECASE)
    }
    return "ACCEPT" if words == {"accept"} else "REVISE"


def find_verdict(text: str, *, leading: bool) -> tuple[str, Verdict, str] | None:
    """The verdict that a Verifier's text begins with (where that is `leading`), or that stands
    alone on a line: what is before it, the verdict, what is behind it."""
    if leading and (lead := leading_verdict(text)) is not None:
        return "", lead.verdict, lead.rest.lstrip(" \t\n.,:;!*_`)-\u2013\u2014")
    found = _LONE.search(text)
    if found is None:
        return None
    return (
        text[: found.start()].rstrip(),
        "ACCEPT" if found[1].upper() == "ACCEPT" else "REVISE",
        text[found.end() :],
    )
