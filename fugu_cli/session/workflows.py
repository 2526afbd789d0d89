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
    planned = next(workflow.planned for workflow in workflows if workflow.number == number)
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
    changed if it said nothing. "" for neither.
    """
    text = turn.text.strip()
    if not text and turn.changes:
        paths = {change.path for change in turn.changes}
        return f"Changed {', '.join(sorted(paths))}."
    return text


def is_done(turn: Turn) -> bool:
    """Return whether a closed turn had a result: it neither failed nor was cut, and changed
    something or said its last words. A refusal, `UNABLE:`, and words beside calls in a turn that
    ran out of replies do not count.
    """
    if turn.failed or turn.interrupted or not turn.replies or turn.unable is not None:
        return False
    if turn.changes:
        return True
    last = turn.replies[-1]
    return bool(final_text(turn)) and not last.calls and last.stop != "refusal"


def step_output(workflows: Sequence[Workflow], number: int, step: int) -> Turn | None:
    """Return the turn whose words are the output of a step. If the step is a workflow of its own,
    this is the output of its last step that has one. None if there is none yet, or the step failed.
    """
    workflow = _workflow(workflows, number)
    if workflow is None:
        return None
    for turn in reversed(workflow.tries(step)):
        if is_done(turn):
            return turn
    inner = _inner_workflow(workflows, number, step)
    return workflow_result(workflows, inner.number) if inner is not None else None


def _workflow(workflows: Sequence[Workflow], number: int) -> Workflow | None:
    return next((workflow for workflow in workflows if workflow.number == number), None)


def _inner_workflow(workflows: Sequence[Workflow], number: int, step: int) -> Workflow | None:
    """Return the newest workflow inside a step, None for none."""
    for workflow in reversed(workflows):
        if workflow.planned.within == (number, step):
            return workflow
    return None


def workflow_result(workflows: Sequence[Workflow], number: int) -> Turn | None:
    """Return the turn with a workflow's answer: the output of its last step, or of the last step
    before it that has one.
    """
    workflow = _workflow(workflows, number)
    assert workflow is not None
    for step in reversed(range(len(workflow.planned.steps))):
        turn = step_output(workflows, number, step)
        if turn is not None:
            return turn
    return None


def visible_output(workflows: Sequence[Workflow], number: int, step: int) -> Turn | None:
    """Return the turn whose words other steps read of a step: its output. If the step is a workflow
    whose last words only approve, return what they approve of.
    """
    for turn in _step_outputs(workflows, number, step):
        if not _judges(turn):
            return turn
    return step_output(workflows, number, step)


def _step_outputs(workflows: Sequence[Workflow], number: int, step: int) -> Iterator[Turn]:
    """Yield the output of a step. If the step is a workflow of its own, yield the outputs of that
    workflow's steps, the last step first.
    """
    turn = step_output(workflows, number, step)
    if turn is None:
        return
    if turn.assigned.plan == number:
        yield turn
        return
    inner = _inner_workflow(workflows, number, step)
    assert inner is not None
    yield from _outputs(workflows, inner.number)


def _outputs(workflows: Sequence[Workflow], number: int) -> Iterator[Turn]:
    """Yield the outputs of a workflow's steps, the last step first."""
    workflow = _workflow(workflows, number)
    if workflow is not None:
        for step in reversed(range(len(workflow.planned.steps))):
            yield from _step_outputs(workflows, number, step)


def turn_that_answers(workflows: Sequence[Workflow]) -> Turn | None:
    """Return the turn that answers a request done by workflows, from the newest round that has an
    answer. None without workflows.
    """
    for workflow in reversed(workflows):
        if workflow.planned.within is None:
            turn = workflow_result(workflows, workflow.number)
            if turn is not None:
                return turn
    return None


def turn_for_user(
    workflows: Sequence[Workflow], merges: Sequence[Merged], turns: Sequence[Turn]
) -> Turn | None:
    """Return the turn whose words the user gets.

    It is the one that answers. If that turn only agrees or gives a bare verdict, it is the turn
    that the verdict is about. Of several turns that did the same job, it is the chosen one.
    """
    rounds = [workflow for workflow in workflows if workflow.planned.within is None]
    changing = [i for i, workflow in enumerate(rounds) if _has_changed(workflows, workflow.number)]
    if changing:  # a later plan that changed nothing does not describe the change
        rounds = rounds[: changing[-1] + 1]
    outputs: list[Turn] = []
    for workflow in reversed(rounds):
        outputs += _outputs(workflows, workflow.number)
    answer = next((turn for turn in outputs if not _judges(turn)), None)
    if answer is None:
        return turn_that_answers(workflows)
    competing = {answer.number}
    if named_choice(answer) and isinstance(answer.assigned.sees, tuple):
        competing.update(answer.assigned.sees)
    chosen = set()
    for merge in merges:
        if merge.chosen and len(merge.turns) > 1 and not competing.isdisjoint(merge.turns):
            chosen.add(merge.chosen)
    return next((turn for turn in turns if turn.number in chosen), answer)


def is_left_out(turn: Turn, merges: Sequence[Merged]) -> bool:
    """Return whether the turn changed files in a copy and these merges did not take them over."""
    was_taken_over = any(merge.chosen == turn.number and not merge.open for merge in merges)
    return bool(turn.assigned.worktree and turn.changes) and not was_taken_over


def reports_for_user(
    workflows: Sequence[Workflow], merges: Sequence[Merged], answering: Turn
) -> tuple[Turn, ...]:
    """Return the turns whose words answer the request, in their order: `answering`, and those whose
    changes it cannot describe because it did not read their reports.
    """
    if not answering.assigned.plan:
        return (answering,)
    reports = {answering.number: answering}
    for workflow in workflows:
        if workflow.planned.within is not None:
            continue
        for turn in _outputs(workflows, workflow.number):
            was_read = answering.assigned.sees == "all" or turn.number in answering.assigned.sees
            if turn.changes and not was_read and not is_left_out(turn, merges):
                reports[turn.number] = turn
    return tuple(reports[number] for number in sorted(reports))


def _has_changed(workflows: Sequence[Workflow], number: int) -> bool:
    """Return whether a step of the workflow, or of one inside it, changed files."""
    for workflow in workflows:
        if workflow.number == number and any(turn.changes for turn in workflow.turns):
            return True
        outer = workflow.planned.within
        if outer is not None and outer.plan == number and _has_changed(workflows, workflow.number):
            return True
    return False


def _judges(turn: Turn) -> bool:
    """Return whether the turn only gives a verdict on another turn's words."""
    if turn.assigned.role == "verifier":
        return True
    lead = leading_verdict(final_text(turn))
    if lead is None:
        return False
    has_reason = any(letter.isalnum() for letter in lead.rest)
    if not has_reason:
        return True
    # An answer may begin with the word ("Accept headers are ..."), but not in capitals.
    return bool(turn.assigned.sees) and lead.written == "ACCEPT" and bool(_REASON.match(lead.rest))
