"""What the planner reads: the form it has to keep, four examples of other domains, the request, the anonymous models.

Built from the log alone; prompt text lives in prompts/conductor/. An embedded planner is held to the form by a JSON
schema besides; its reply is read by the same parser.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fugu_cli import prompts, views
from fugu_cli.conductor.seen import harmless
from fugu_cli.conductor.validate import Form
from fugu_cli.events import Asked, Event, Member, Planned
from fugu_cli.messages import FromUser, Prompt

REPLY = 1024
"""Tokens a plan may have (the paper's limit)."""
REPLY_NATIVE = 4096
"""The same where thinking may be counted in."""
TESTS = 1500
EARLIER = 1200
REFUSED = 1500
"""Characters of a test run, of an earlier answer, of a reply that could not be used."""


@dataclass(frozen=True)
class Task:
    """What a plan is asked for. `text` is the request, or the subtask of the step that is planned in itself; `result`
    what was done so far, already framed as data; `refused` the reply that was no workflow."""

    text: str
    form: Form
    round: int = 1
    within: tuple[int, int] | None = None
    result: str = ""
    refused: Planned | None = None


def prompt(events: Sequence[Event], task: Task, members: Mapping[str, Member], planner: Member) -> Prompt:
    """The planner's prompt. The answer to a refused reply holds everything again: a planner has no history."""
    form = task.form
    last = str(form.last)
    limits = {"steps": str(form.steps), "last": last}
    ask = prompts.fill(prompts.load("conductor/ask"), **limits)
    if task.refused is not None:
        again = prompts.load("conductor/again")
        ask = prompts.fill(again, fault=task.refused.fault, reply=harmless(task.refused.text[:REFUSED]), **limits)
    text = prompts.fill(
        prompts.load("conductor/request"),
        before=_before(events),
        state=_state(events),
        request=task.text,
        result=f"{task.result}\n\n" if task.result else "",
        models=_models(form, members),
        ask=ask,
    )
    held = planner.provider == "local"
    return Prompt(
        system=prompts.fill(prompts.load("conductor/plan"), steps=str(form.steps)),
        messages=(FromUser(text=text),),
        max_tokens=REPLY if held else REPLY_NATIVE,
        reply_schema=schema(form) if held else "",
    )


def _before(events: Sequence[Event]) -> str:
    """The conversation so far: each earlier request with the answer the user got, and what was taken back."""
    parts = []
    for facts in views.requests(events)[:-1][-3:]:
        asked = facts[0]
        assert isinstance(asked, Asked)
        answer = harmless(views.answer(facts)[:EARLIER])
        parts.append(prompts.fill(prompts.load("conductor/before"), request=asked.text, answer=answer) + "\n\n")
        parts += [f"{said}\n\n" for said in views.taken_back(facts)]
    return "".join(parts)


def _state(events: Sequence[Event]) -> str:
    """How the tests stand, where they were run."""
    run, asked = views.tests(events), views.asked(events)
    if run is None or run.stale or asked is None:
        return ""
    output, said = harmless(run.output.strip()[:TESTS]), "pass" if run.ok else "FAIL"
    text = prompts.load("conductor/tests")
    return prompts.fill(text, command=asked.test_command or "", said=said, output=output) + "\n\n"


def _models(form: Form, members: Mapping[str, Member]) -> str:
    """`Model 0`, with the line its entry gives it, if any. No names: a planner has opinions about names."""
    lines = []
    for number, name in enumerate(form.models):
        said = members[name].description if name in members else ""
        lines.append(f"- Model {number}" + (f": {said}" if said else ""))
    if form.itself:
        lines.append(f"- Model {len(form.models)}: you yourself; the step becomes a workflow of its own")
    return "\n".join(lines)


def schema(form: Form) -> str:
    """The JSON schema of a reply, one variant for each number of steps, so that equal lengths and earlier places are
    held as well."""
    sizes = range(0 if form.keeps else 1, form.steps + 1)
    return json.dumps({"anyOf": [_variant(size, form) for size in sizes]})


def _variant(size: int, form: Form) -> dict[str, object]:
    number: dict[str, object] = {"type": "integer", "enum": list(range(form.last + 1))}
    text: dict[str, object] = {"type": "string", "minLength": 1, "maxLength": 400}
    lists = {
        "model_id": _items([number] * size),
        "subtasks": _items([text] * size),
        "access_list": _items([_places(place, form) for place in range(size)]),
    }
    return {"type": "object", "properties": lists, "required": list(lists), "additionalProperties": False}


def _items(kinds: Sequence[dict[str, object]]) -> dict[str, object]:
    if not kinds:
        return {"const": []}
    return {"type": "array", "prefixItems": list(kinds), "minItems": len(kinds), "maxItems": len(kinds)}


def _places(place: int, form: Form) -> dict[str, object]:
    """What step `place` may read."""
    choices: list[object] = [[], ["all"]] if place or form.earlier else [[]]
    choices += [[earlier] for earlier in range(place)]
    return {"enum": choices}
