"""The prompt of the planner: the request, earlier results framed as data, and whom it plans for.
Pure.

A prompted planner sees agents and outputs by their names (plan_steps.py reads what it writes). A
planner that was trained on the papers' form sees numbers and writes three lists; an embedded one is
also held to that form by a JSON schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fugu_cli import prompts
from fugu_cli.coordinators.conductor.outputs import outside_outputs
from fugu_cli.coordinators.conductor.plan_steps import PlanLimits
from fugu_cli.coordinators.conductor.step_context import (
    as_data,
    escape_frames,
    turn_output,
    what_became_of,
)
from fugu_cli.coordinators.skills import (
    KINDS,
    canonical_model,
    shipped_table,
    success_rate,
)
from fugu_cli.formatting import plural
from fugu_cli.messages import FromUser, Prompt
from fugu_cli.session.events import Member, OuterStep, Planned
from fugu_cli.session.open_work import undo_notices
from fugu_cli.session.state import SessionState
from fugu_cli.session.workflows import Workflow, final_text, step_name, visible_output


def planner_feedback(
    state: SessionState, within: OuterStep | None, number: int, *, by_name: bool
) -> tuple[str, str]:
    """Return the text to plan for ("" for the request itself), and the results so far."""
    if within is not None:
        return _part(state, within, by_name=by_name)
    if number == 1:
        return "", ""
    rounds = [flow for flow in state.request.workflows if flow.planned.within is None]
    describe = _carried_out if by_name else _carried_out_by_number
    text = prompts.fill(
        prompts.load("conductor/round" if by_name else "conductor/paper_round"),
        workflow="\n\n".join(describe(state, flow) for flow in rounds),
        outcome=_outcome(state),
    )
    return "", text


def _part(state: SessionState, within: OuterStep, *, by_name: bool) -> tuple[str, str]:
    """Return the subtask of a step that is planned in itself, and the outputs that it may read."""
    workflows = state.request.workflows
    flow = next(flow for flow in workflows if flow.number == within.plan)
    request = state.request.asked
    assert request is not None
    outputs = outside_outputs(workflows, within, 1)
    shown = [
        turn_output(name, turn, state.request.merges, by_name=by_name)
        for name, turn in outputs.items()
    ]
    name = step_name(workflows, *within)
    text = "\n\n".join(part for part in (request.text, state.request.steering_text) if part)
    whole = prompts.fill(prompts.load("conductor/part"), name=name, whole=text)
    if shown:
        text = prompts.fill(prompts.load("conductor/outputs"), outputs="\n".join(shown))
        whole = f"{whole}\n\n{text}"
    return flow.planned.steps[within.step].instruction, whole


def _carried_out(state: SessionState, flow: Workflow) -> str:
    """Return the steps of a plan with their reports."""
    workflows = state.request.workflows
    lines = []
    for index, step in enumerate(flow.planned.steps):
        name = step_name(workflows, flow.number, index)
        turn = visible_output(workflows, flow.number, index)
        agent = turn.assigned.agent if turn is not None else step.agent
        lines.append(f"{name} ({agent}): {step.instruction}")
        if turn is not None:
            lines.append(turn_output(name, turn, state.request.merges))
        tries = flow.tries(index)
        if turn is None or (tries and turn not in tries):
            lines.append(_not_done(flow, index))
    return "\n".join(lines)


def _carried_out_by_number(state: SessionState, flow: Workflow) -> str:
    """Return the steps of a plan with their outputs, in the papers' form."""
    workflows, models = state.request.workflows, flow.planned.models
    lines = []
    for index, step in enumerate(flow.planned.steps):
        turn = visible_output(workflows, flow.number, index)
        number = models.index(step.agent) if step.agent in models else len(models)
        lines.append(f"Step {index}, Model {number}: {step.instruction}")
        if turn is not None:
            lines.append(f'<output step="{index}">\n{as_data(final_text(turn))}\n</output>')
        else:
            lines.append(_not_done(flow, index))
    return "\n".join(lines)


def _not_done(flow: Workflow, index: int) -> str:
    """Return what became of a step without a report, with advice if its request was refused."""
    text = what_became_of(flow, index)
    kinds = {
        turn.failed.kind if turn.failed else ""
        for turn in flow.tries(index)
        if not turn.interrupted
    }
    return f"{text} Plan it in other words or smaller parts." if kinds == {"invalid"} else text


def _outcome(state: SessionState) -> str:
    """Return what the plans changed, the results of the tests now and before, and the words of a
    judging step.
    """
    changed = sorted(state.request.changes)
    sentences = [
        f"Files that were changed: {', '.join(changed)}." if changed else "Nothing changed."
    ]
    run, before = state.request.tests, state.request.tests_before
    if run is not None and not run.stale:
        if run.unable:
            sentences.append(f"{run.unable[0].upper()}{run.unable[1:]}.")
        elif run.ok:
            sentences.append("The tests pass now.")
        elif run.passes:
            sentences.append(
                "The tests that fail failed before the request, too; nothing that passed then "
                "fails now."
            )
        else:
            failing = sorted(run.report.failing) if run.report is not None else []
            failed_before = [test for test in failing if test in before.failed]
            sentences.append(_failing(failing, failed_before))
    return " ".join(sentences)


def _failing(failing: Sequence[str], failed_before: Sequence[str]) -> str:
    new = [test for test in failing if test not in failed_before]
    if not new and failed_before:
        return "The tests that fail failed before the request, too; their output is above."
    if not new:
        return "The tests FAIL; their output is above."
    text = f"These tests fail and did not fail before the request: {', '.join(new[:MOST_TESTS])}."
    return f"{text} {len(failed_before)} more failed before it, too." if failed_before else text


MOST_TESTS = 20
"""Ids of failing tests that are named."""
PLAN_TOKENS = 1024
"""Tokens a plan of the embedded planner may have (the paper's limit)."""
TESTS_LIMIT = 1500
ANSWER_LIMIT = 1200
REFUSED_LIMIT = 1500
"""Characters of a test run, of an earlier answer, of a reply that could not be used."""


@dataclass(frozen=True)
class PlanTask:
    """The task of a plan.

    `text` is the request, or the subtask of the step to be planned. `result` is the work so far,
    framed as data. `refused` is an earlier reply that was no workflow.
    """

    text: str
    form: PlanLimits
    round: int = 1
    within: OuterStep | None = None
    result: str = ""
    refused: Planned | None = None


def planner_prompt(
    state: SessionState, task: PlanTask, members: Mapping[str, Member], planner: Member
) -> Prompt:
    """Return the planner's prompt. It is whole also after a refused reply, because a planner sees
    no earlier messages.
    """
    form = task.form
    folder = "conductor/" if form.by_name else "conductor/paper_"
    steps, last = str(form.most_steps), str(form.last)
    limit = ""
    if form.most_steps != form.steps:
        limit = f", in at most {plural(form.most_steps, 'step')}"
    question = prompts.fill(
        prompts.load(f"{folder}ask"),
        limit=limit,
        steps=steps,
        last=last,
        first=form.name(0),
        second=form.name(1),
        divides=f" {prompts.load('conductor/divides')}" if form.itself else "",
    )
    if task.refused is not None:
        again = prompts.fill(
            prompts.load(f"{folder}again"),
            fault=task.refused.fault,
            reply=escape_frames(task.refused.text[:REFUSED_LIMIT]),
            steps=steps,
            last=last,
        )
        question = f"{question}\n\n{again}" if form.by_name else again
    tree = ""
    if state.request.asked is not None and state.request.asked.tree:
        tree = f"The repository when the request came:\n{state.request.asked.tree}\n\n"
    text = prompts.fill(
        prompts.load(f"{folder}request"),
        before=_before(state),
        tree=tree,
        state=_tests(state, form),
        request=task.text,
        result=f"{task.result}\n\n" if task.result else "",
        models=_models(form, members),
        agents=_agents(form, members),
        ask=question,
    )
    is_embedded = planner.provider == "local"
    return Prompt(
        system=_system(form, served=state.served),
        messages=(FromUser(text=text),),
        max_tokens=PLAN_TOKENS if is_embedded else planner.reply_room,
        effort=state.request.effort_for(planner),
        reply_schema=plan_schema(form) if is_embedded else "",
    )


def _system(form: PlanLimits, *, served: bool) -> str:
    if not form.by_name:
        return prompts.fill(prompts.load("conductor/paper_plan"), steps=str(form.most_steps))
    name = "conductor/plan_answer" if served else "conductor/plan"
    return prompts.fill(prompts.load(name), steps=str(form.steps))


def _before(state: SessionState) -> str:
    """Return the conversation so far: each earlier request with the answer the user got, and what
    was taken back.
    """
    parts = []
    for request in state.earlier_requests[-3:]:
        assert request.asked is not None
        answer = escape_frames(request.answer[:ANSWER_LIMIT])
        parts.append(
            prompts.fill(
                prompts.load("conductor/before"), request=request.asked.text, answer=answer
            )
            + "\n\n"
        )
        parts += [f"{notice}\n\n" for notice in undo_notices(request.events)]
    return "".join(parts)


def _tests(state: SessionState, form: PlanLimits) -> str:
    """Return the test command, and the results of the tests if they ran on the present files."""
    run, request = state.request.tests, state.request.asked
    if request is None or request.test_command is None:
        return ""
    if run is None or run.stale:
        if not form.by_name:
            return ""
        tests = f"the repository's tests (`{request.test_command}`)"
        return f"There was no run of all {tests} on the files as they are.\n\n"
    if run.unable:
        return f"{run.unable[0].upper()}{run.unable[1:]}.\n\n"
    text = prompts.fill(
        prompts.load("conductor/tests"),
        command=request.test_command,
        said="pass" if run.ok else "FAIL",
        output=escape_frames(run.output.strip()[:TESTS_LIMIT]),
    )
    return f"{text}\n\n"


def _models(form: PlanLimits, members: Mapping[str, Member]) -> str:
    """List the agents as in the papers: `Model 0`, with its description if it has one. Names are
    left out, because planners have opinions about them.
    """
    lines = []
    for number, name in enumerate(form.models):
        description = members[name].description if name in members else ""
        lines.append(f"- Model {number}" + (f": {description}" if description else ""))
    if form.itself:
        lines.append(
            f"- Model {len(form.models)}: you yourself; the step becomes a workflow of its own"
        )
    return "\n".join(lines)


def _agents(form: PlanLimits, members: Mapping[str, Member]) -> str:
    """List the agents by name, each with its slot, price, success rate and description."""
    lines = []
    for name in form.models:
        member = members.get(name)
        lines.append(f"- {name}: {_described(member)}" if member is not None else f"- {name}")
    return "\n".join(lines)


def _described(member: Member) -> str:
    parts = [f"{member.slot}, {member.model}"]
    if member.price is not None and member.price.input:
        price = member.price
        parts.append(f"${price.input:g} / ${price.output:g} per million tokens read / written")
    skills = shipped_table()
    if member.skill is not None or canonical_model(member.model)[0] in skills.models:
        rates = [success_rate(member, kind, (), skills).rate for kind in KINDS]
        parts.append(f"right in about {sum(rates) / len(rates):.0%} of coding tasks")
    if member.description:
        parts.append(member.description)
    return "; ".join(parts)


def plan_schema(form: PlanLimits) -> str:
    """Return the JSON schema of a reply, one variant for each number of steps, so that equal
    lengths and earlier places are held as well.
    """
    sizes = range(0 if form.keeps else 1, form.most_steps + 1)
    return json.dumps({"anyOf": [_variant(size, form) for size in sizes]})


def _variant(size: int, form: PlanLimits) -> dict[str, object]:
    number: dict[str, object] = {"type": "integer", "enum": list(range(form.last + 1))}
    text: dict[str, object] = {"type": "string", "minLength": 1, "maxLength": 400}
    lists = {
        "model_id": _items([number] * size),
        "subtasks": _items([text] * size),
        "access_list": _items([_access_schema(step, form) for step in range(size)]),
    }
    return {
        "type": "object",
        "properties": lists,
        "required": list(lists),
        "additionalProperties": False,
    }


def _items(kinds: Sequence[dict[str, object]]) -> dict[str, object]:
    if not kinds:
        return {"const": []}
    return {
        "type": "array",
        "prefixItems": list(kinds),
        "minItems": len(kinds),
        "maxItems": len(kinds),
    }


def _access_schema(step: int, form: PlanLimits) -> dict[str, object]:
    """Return the schema of the steps that the step may read."""
    choices: list[object] = [[], ["all"]] if step or form.earlier else [[]]
    choices += [[earlier] for earlier in range(step)]
    return {"enum": choices}
