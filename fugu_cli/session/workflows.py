"""Workflows of a request: their steps, what each came to, and whose words the user gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fugu_cli.session.events import Merged, OuterStep, Planned, Replied, ToolRan
from fugu_cli.session.turns import Turn, leading_verdict

_REASON = re.compile(r"[*_`\"']*(?:[.:;,!\n—–]|\s+[-—–])")
_CHOICE = re.compile(
    r"^\W*CHOOSE\W+((?:round-\d+-)?step-\d+(?:\.\d+)*|\d+)", re.IGNORECASE | re.MULTILINE
)


@dataclass(frozen=True)
class Workflow:
    """A plan of the newest request that has steps. `number` counts all plans from 1, those that
    failed included.
    """

    number: int
    planned: Planned
    turns: tuple[Turn, ...]

    def tries(self, step: int) -> tuple[Turn, ...]:
        """Return the attempts at a step, oldest first."""
        return tuple(turn for turn in self.turns if turn.assigned.step == step)


def step_name(workflows: Sequence[Workflow], number: int, step: int) -> str:
    """Return the name under which a step and its output are shown: `step-2`, `step-2.1` for a step
    inside it, `round-2-step-1` in a later plan.
    """
    planned = next(flow.planned for flow in workflows if flow.number == number)
    return f"{step_prefix(workflows, planned.within, planned.round)}{step + 1}"


def step_prefix(workflows: Sequence[Workflow], within: OuterStep | None, round_number: int) -> str:
    """Return the beginning of the names of a plan's steps."""
    if within is not None:
        return f"{step_name(workflows, *within)}."
    return "step-" if round_number == 1 else f"round-{round_number}-step-"


def named_choice(turn: Turn) -> str:
    """Return the change that a turn chose: the last valid choice in its replies, "" if there is
    none.
    """
    for reply in reversed(turn.replies):
        choice = _choice_in(reply.text, turn)
        if choice:
            return choice
    return ""


def _choice_in(text: str, turn: Turn) -> str:
    """Return the last change in the text, by its full name or its number, that the turn may choose;
    "" if there is none.
    """
    for name in reversed(_CHOICE.findall(text)):
        for choice in turn.assigned.choices:
            if name.lower() == choice or (name.isdigit() and choice.endswith(f"-{name}")):
                return choice
    return ""


def is_asked_to_choose_again(turn: Turn, reply: Replied) -> bool:
    """Return whether this reply, the first without calls, ends a turn that had to choose a change
    but neither chose one nor changed a file.
    """
    if not turn.assigned.choices or reply.calls or reply.stop != "end":
        return False
    for event in turn.events:
        if isinstance(event, ToolRan) and event.changes:
            return False
        if isinstance(event, Replied) and _choice_in(event.text, turn):
            return False
        if isinstance(event, Replied) and not event.calls:
            return event is reply
    return False


def final_text(turn: Turn) -> str:
    """Return a turn's result for other turns: the agent's last words, or the names of the files it
    wrote.
    """
    changed = ", ".join(sorted({change.path for change in turn.changes}))
    return turn.text.strip() or (f"Changed {changed}." if changed else "")


def is_done(turn: Turn) -> bool:
    """Return whether a closed turn had a result: it neither failed nor was cut, and changed
    something or said its last words. A refusal, `UNABLE:`, and words beside calls in a turn that
    ran out of replies do not count.
    """
    if turn.failed or turn.interrupted or not turn.replies or turn.unable is not None:
        return False
    last = turn.replies[-1]
    return bool(turn.changes) or (
        bool(final_text(turn)) and not last.calls and last.stop != "refusal"
    )


def step_output(workflows: Sequence[Workflow], number: int, step: int) -> Turn | None:
    """Return the turn whose words are the output of a step. If the step is a workflow of its own,
    this is the output of its last step that has one. None if there is none yet, or the step failed.
    """
    flow = next((flow for flow in workflows if flow.number == number), None)
    if flow is None:
        return None
    own = next((turn for turn in reversed(flow.tries(step)) if is_done(turn)), None)
    if own is not None:
        return own
    inside = [child for child in workflows if child.planned.within == (number, step)]
    return workflow_result(workflows, inside[-1].number) if inside else None


def workflow_result(workflows: Sequence[Workflow], number: int) -> Turn | None:
    """Return the turn with a workflow's answer: the output of its last step, or of the last step
    before it that has one.
    """
    flow = next(flow for flow in workflows if flow.number == number)
    outputs = (
        step_output(workflows, number, step) for step in reversed(range(len(flow.planned.steps)))
    )
    return next((turn for turn in outputs if turn is not None), None)


def visible_output(workflows: Sequence[Workflow], number: int, step: int) -> Turn | None:
    """Return the turn whose words other steps read of a step: its output. If the step is a workflow
    whose last words only approve, return what they approve of.
    """
    last = step_output(workflows, number, step)
    return next((turn for turn in _outputs(workflows, number, (step,)) if not _judges(turn)), last)


def _outputs(
    workflows: Sequence[Workflow], number: int, steps: Sequence[int] = ()
) -> Iterator[Turn]:
    """Yield the outputs of these steps of a workflow, or of all, last first. A nested workflow
    yields those of its own steps.
    """
    flow = next((flow for flow in workflows if flow.number == number), None)
    for step in reversed(steps or range(len(flow.planned.steps) if flow else 0)):
        turn = step_output(workflows, number, step)
        if turn is not None and turn.assigned.plan != number:
            yield from _outputs(
                workflows,
                next(c.number for c in reversed(workflows) if c.planned.within == (number, step)),
            )
        elif turn is not None:
            yield turn


def turn_that_answers(workflows: Sequence[Workflow]) -> Turn | None:
    """Return the turn that answers a request done by workflows, from the newest round that has an
    answer. None without workflows.
    """
    rounds = [flow for flow in workflows if flow.planned.within is None]
    answers = (workflow_result(workflows, flow.number) for flow in reversed(rounds))
    return next((turn for turn in answers if turn is not None), None)


def turn_for_user(
    workflows: Sequence[Workflow], merges: Sequence[Merged], turns: Sequence[Turn]
) -> Turn | None:
    """Return the turn whose words the user gets: the one that answers. If that turn only agrees or
    gives a bare verdict, it is the turn that it is about; of several that did the same job, the one
    whose work was chosen.
    """
    rounds = [flow for flow in workflows if flow.planned.within is None]
    changing = [index for index, flow in enumerate(rounds) if _has_changed(workflows, flow.number)]
    if changing:  # a later plan that changed nothing does not describe the change
        rounds = rounds[: changing[-1] + 1]
    outputs = (turn for flow in reversed(rounds) for turn in _outputs(workflows, flow.number))
    turn = next((turn for turn in outputs if not _judges(turn)), None)
    if turn is None:
        return turn_that_answers(workflows)
    about = {turn.number}
    if named_choice(turn) and isinstance(turn.assigned.sees, tuple):
        about.update(turn.assigned.sees)
    chosen = {
        merge.chosen for merge in merges if len(merge.turns) > 1 and about & {*merge.turns}
    } - {0}
    return next((each for each in turns if each.number in chosen), turn)


def is_left_out(turn: Turn, merges: Sequence[Merged]) -> bool:
    """Return whether the turn changed files in a copy and these merges did not take them over."""
    was_taken_over = any(merge.chosen == turn.number and not merge.open for merge in merges)
    return bool(turn.assigned.worktree and turn.changes) and not was_taken_over


def reports_for_user(
    workflows: Sequence[Workflow], merges: Sequence[Merged], answering: Turn
) -> tuple[Turn, ...]:
    """Return the turns whose words answer the request when `answering` answers it, in their order:
    this turn, and those whose changes it cannot describe, since it did not read their reports.
    """
    if not answering.assigned.plan:
        return (answering,)
    reports = {answering.number: answering}
    for flow in workflows:
        if flow.planned.within is not None:
            continue
        for turn in _outputs(workflows, flow.number):
            was_read = answering.assigned.sees == "all" or turn.number in answering.assigned.sees
            if turn.changes and not was_read and not is_left_out(turn, merges):
                reports[turn.number] = turn
    return tuple(reports[number] for number in sorted(reports))


def _has_changed(workflows: Sequence[Workflow], number: int) -> bool:
    """Return whether a step of the workflow, or of one inside it, changed files."""
    for flow in workflows:
        if flow.number == number and any(turn.changes for turn in flow.turns):
            return True
        outer = flow.planned.within
        if outer is not None and outer.plan == number and _has_changed(workflows, flow.number):
            return True
    return False


def _judges(turn: Turn) -> bool:
    """Return whether the turn only says what it thinks of another turn's words."""
    if turn.assigned.role == "verifier":
        return True
    lead = leading_verdict(final_text(turn))
    if lead is None or not any(letter.isalnum() for letter in lead.rest):
        return lead is not None
    # In capitals and with a reason: an answer may begin with the word ("Accept headers are ...").
    return bool(turn.assigned.sees and lead.written == "ACCEPT" and _REASON.match(lead.rest))
