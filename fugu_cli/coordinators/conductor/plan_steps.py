"""The parser that turns a planner's reply into a workflow. Pure.

A planner writes a JSON list of objects with the names of agents and outputs, or the three lists of
the papers with numbers (plan_lists.py); in both forms either is read. What it wrote is checked
against the agents offered; an unusable reply is an `InvalidPlan` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from fugu_cli.coordinators.conductor.plan_lists import (
    NO_LISTS,
    InvalidPlan,
    PlanLists,
    parse_lists,
    parse_objects,
)
from fugu_cli.session.events import WorkflowStep

SUBTASK_LIMIT = 8000
"""Characters of one subtask at most."""
AccessList = tuple[int, ...] | Literal["all"]


@dataclass(frozen=True)
class PlanLimits:
    """The limits of a workflow, and what its planner may name.

    `models` are the agents that may be named, as Model 0, 1, ... in the papers' form. `steps` is the
    most steps of any plan, `turns_left` the turns that the request's limit leaves for this one. With
    `itself` the planner may name itself, as the number after the last agent; such a step becomes a
    workflow of its own. With `keeps` an empty plan is allowed: the result stays as it is.
    """

    models: tuple[str, ...]
    steps: int = 5
    itself: str = ""
    keeps: bool = False
    earlier: bool = False
    """There are outputs from outside the plan, so that `all` means something on the first step too."""
    by_name: bool = False
    """The planner is shown names; False for the papers' form, which has numbers."""
    prefix: str = "step-"
    """The beginning of its steps' names: step-1, step-2, ..."""
    outputs: tuple[str, ...] = ()
    """The names of outputs from outside the plan that its steps may read."""
    turns_left: int | None = None

    @property
    def most_steps(self) -> int:
        """The most steps of this plan."""
        return self.steps if self.turns_left is None else min(self.steps, self.turns_left)

    @property
    def last(self) -> int:
        """The highest number that names a model."""
        return len(self.models) - (not self.itself)

    def name(self, index: int) -> str:
        """Return the name of the plan's step at this index."""
        return f"{self.prefix}{index + 1}"


def parse_workflow(text: str, form: PlanLimits) -> tuple[WorkflowStep, ...] | InvalidPlan:
    """Return the steps of a planner's reply; () where it keeps the result."""
    lists = parse_lists(text)
    if isinstance(lists, PlanLists):
        return validate_lists(lists, form)
    objects = parse_objects(text)
    if objects is not None:
        return validate_objects(objects, form)
    if form.by_name and lists.text == NO_LISTS:
        return InvalidPlan("there is no JSON list of steps in it")
    return lists


FIELDS = ("agent", "task", "reads", "files", "accepts", "divide")


def validate_objects(
    objects: Sequence[Mapping[str, object]], form: PlanLimits
) -> tuple[WorkflowStep, ...] | InvalidPlan:
    """Return the steps that a list of objects describes; () where it is empty and may be."""
    if not objects:
        return () if form.keeps else InvalidPlan("the plan is empty; it needs at least one step")
    if len(objects) > form.most_steps:
        return InvalidPlan(
            f"the plan has {len(objects)} steps; at most {form.most_steps} are allowed"
        )
    steps: list[WorkflowStep] = []
    for index, fields in enumerate(objects):
        step = _named_step(index, fields, form)
        if isinstance(step, InvalidPlan):
            return InvalidPlan(f"{form.name(index)}: {step.text}")
        steps.append(step)
    return tuple(steps)


def _named_step(
    index: int, fields: Mapping[str, object], form: PlanLimits
) -> WorkflowStep | InvalidPlan:
    if unknown := [name for name in fields if name not in FIELDS]:
        return InvalidPlan(f"there is no field `{unknown[0]}`; a step has {', '.join(FIELDS)}")
    divides = fields.get("divide", False)
    agent = fields.get("agent")
    if divides is True:
        if not form.itself:
            return InvalidPlan("`divide` cannot be used here; give the step to an agent")
        agent = form.itself
    elif not isinstance(agent, str) or agent not in form.models:
        return InvalidPlan(f"`agent` is {_shown(agent)}; the agents are {', '.join(form.models)}")
    task = fields.get("task")
    if not isinstance(task, str) or not task.strip():
        return InvalidPlan(f"`task` is {_shown(task)}, not a text")
    if len(task) > SUBTASK_LIMIT:
        return InvalidPlan(
            f"`task` has {len(task)} characters; at most {SUBTASK_LIMIT} are allowed"
        )
    accepts = fields.get("accepts", False)
    for name, value in (("accepts", accepts), ("divide", divides)):
        if not isinstance(value, bool):
            return InvalidPlan(f"`{name}` is {_shown(value)}, not true or false")
    if accepts and divides:
        return InvalidPlan("a step that is divided cannot accept; give `accepts` to another one")
    files = _files(fields.get("files", []))
    if isinstance(files, InvalidPlan):
        return files
    reads = _reads(index, fields.get("reads", []), form)
    if isinstance(reads, InvalidPlan):
        return reads
    return WorkflowStep(
        agent=agent,
        instruction=_whole(task).strip(),
        access=reads.access,
        opens=reads.opens,
        files=() if accepts else files,
        accepts=bool(accepts),
        plans=bool(divides),
    )


@dataclass(frozen=True)
class _Reads:
    """The outputs that a step reads: indexes of steps of its plan, and names of outputs outside it."""

    access: AccessList
    opens: tuple[str, ...] = ()


def _reads(index: int, value: object, form: PlanLimits) -> _Reads | InvalidPlan:
    """Parse the names that a step reads, for the step at `index`."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return InvalidPlan(f"`reads` is {_shown(value)}, not a list of names")
    if len(names) == 1 and isinstance(names[0], str) and names[0].lower() == "all":
        return _Reads("all" if index or form.earlier else ())
    steps_before = [form.name(earlier) for earlier in range(index)]
    access: dict[int, None] = {}
    opens: dict[str, None] = {}
    for name in names:
        if name in steps_before:
            access[steps_before.index(name)] = None
        if name in form.outputs:
            opens[name] = None
        elif name not in steps_before:
            allowed = ", ".join([*form.outputs, *steps_before])
            allowed = allowed or "nothing, for there is no step before it"
            return InvalidPlan(f"`reads` holds {_shown(name)}; it may hold {allowed}")
    return _Reads(tuple(access), tuple(opens))


def _files(value: object) -> tuple[str, ...] | InvalidPlan:
    """Return the paths that a step names, relative to the repository."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return InvalidPlan(f"`files` is {_shown(value)}, not a list of paths")
    paths = []
    for name in names:
        path = PurePosixPath(name)
        if not path.parts or path.is_absolute() or ".." in path.parts or re.search(r"[*?]", name):
            return InvalidPlan(
                f"`files` holds {_shown(name)}; name files and folders by their paths in the "
                f"repository"
            )
        paths.append(str(path))
    return tuple(dict.fromkeys(paths))


def name_same_file(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether a path of one list is one of the other's, or lies in a folder of it."""
    return any(
        PurePosixPath(path).is_relative_to(named) or PurePosixPath(named).is_relative_to(path)
        for path in first
        for named in second
    )


def validate_lists(lists: PlanLists, form: PlanLimits) -> tuple[WorkflowStep, ...] | InvalidPlan:
    """Return the steps three lists describe; () where they are empty and may be."""
    sizes = (len(lists.model_id), len(lists.subtasks), len(lists.access_list))
    if len(set(sizes)) > 1:
        return InvalidPlan(
            "the lists differ in length: model_id {}, subtasks {}, access_list {}".format(*sizes)
        )
    if not sizes[0]:
        return (
            () if form.keeps else InvalidPlan("the workflow is empty; it needs at least one step")
        )
    if sizes[0] > form.most_steps:
        return InvalidPlan(
            f"the workflow has {sizes[0]} steps; at most {form.most_steps} are allowed"
        )
    steps: list[WorkflowStep] = []
    for index, (number, subtask, access) in enumerate(
        zip(lists.model_id, lists.subtasks, lists.access_list, strict=True)
    ):
        step = _step(index, number, subtask, _access(index, access, form), form)
        if isinstance(step, InvalidPlan):
            return step
        steps.append(step)
    return tuple(steps)


def _step(
    index: int, number: object, subtask: object, reads: _Reads | InvalidPlan, form: PlanLimits
) -> WorkflowStep | InvalidPlan:
    chosen = _number(number)
    if form.by_name and number in form.models:
        chosen = form.models.index(str(number))
    if chosen is None:
        return InvalidPlan(
            f"model_id[{index}] is {_shown(number)}, not a number from 0 to {form.last}"
        )
    if not 0 <= chosen <= form.last:
        return InvalidPlan(
            f"model_id[{index}] is {_shown(chosen)}; the models are 0 to {form.last}"
        )
    if not isinstance(subtask, str) or not subtask.strip():
        return InvalidPlan(f"subtasks[{index}] is {_shown(subtask)}, not a text")
    if len(subtask) > SUBTASK_LIMIT:
        return InvalidPlan(
            f"subtasks[{index}] has {len(subtask)} characters; at most {SUBTASK_LIMIT} are allowed"
        )
    if isinstance(reads, InvalidPlan):
        return reads
    itself = chosen == len(form.models)
    return WorkflowStep(
        agent=form.itself if itself else form.models[chosen],
        instruction=_whole(subtask).strip(),
        access=reads.access,
        opens=reads.opens,
        plans=itself,
    )


def _whole(text: str) -> str:
    """Return the text with surrogate halves, which JSON escapes, joined to characters."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _access(index: int, access: object, form: PlanLimits) -> _Reads | InvalidPlan:
    if not isinstance(access, list | tuple):
        return InvalidPlan(f"access_list[{index}] is {_shown(access)}, not a list")
    if len(access) == 1 and isinstance(access[0], str) and access[0].lower() == "all":
        return _Reads("all" if index or form.earlier else ())
    own = [form.name(earlier) for earlier in range(index)] if form.by_name else []
    steps: dict[int, None] = {}
    opens: dict[str, None] = {}
    for item in access:
        if isinstance(item, str) and item in form.outputs:
            opens[item] = None
            continue
        earlier = own.index(item) if item in own else _number(item)
        if earlier is None:
            return InvalidPlan(
                f'access_list[{index}] holds {_shown(item)}; it takes [], ["all"] or places of '
                f"steps"
            )
        if not 0 <= earlier < index:
            return InvalidPlan(
                f"access_list[{index}] holds {_shown(earlier)}: a step reads only those before it"
            )
        steps[earlier] = None
    return _Reads(tuple(steps), tuple(opens))


def _number(value: object) -> int | None:
    """Return a whole number, given as one or as digits; None for anything else, also for True."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def same_job(steps: Sequence[WorkflowStep], first: int, second: int) -> bool:
    """Return whether two steps were given the same job: the same words and the same outputs to
    read. A step that reads all earlier ones shares its job with none.
    """
    a, b = steps[first], steps[second]
    if a.access == "all":
        return False
    return (
        " ".join(a.instruction.split()) == " ".join(b.instruction.split())
        and a.access == b.access
        and a.opens == b.opens
    )


def shares_job(steps: Sequence[WorkflowStep], index: int) -> bool:
    """Return whether another step that one agent does was given the same job."""
    return any(
        other != index and not steps[other].plans and same_job(steps, index, other)
        for other in range(len(steps))
    )
