"""What three lists mean: a workflow over the agents shown, or a Fault that names the first thing wrong. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fugu_cli.conductor.parse import Fault, Lists, parse
from fugu_cli.events import Step

SUBTASK = 8000
"""Characters of one subtask at most."""
Access = tuple[int, ...] | Literal["all"]


@dataclass(frozen=True)
class Form:
    """What a workflow may be: the agents behind Model 0, 1, ..., how many steps, whether the planner may name itself
    (as the number after the last agent), and whether three empty lists mean something (they keep a result)."""

    models: tuple[str, ...]
    steps: int = 5
    itself: str = ""
    keeps: bool = False
    earlier: bool = False
    """There is an earlier round, so that `all` means something on the first step too."""

    @property
    def last(self) -> int:
        """The highest number that names a model."""
        return len(self.models) - (not self.itself)


def workflow(text: str, form: Form) -> tuple[Step, ...] | Fault:
    """The steps of a planner's reply; () where it keeps the result."""
    lists = parse(text)
    return lists if isinstance(lists, Fault) else validate(lists, form)


def validate(lists: Lists, form: Form) -> tuple[Step, ...] | Fault:
    """The steps three lists describe; () where they are empty and may be."""
    sizes = (len(lists.model_id), len(lists.subtasks), len(lists.access_list))
    if len(set(sizes)) > 1:
        return Fault("the lists differ in length: model_id {}, subtasks {}, access_list {}".format(*sizes))
    if not sizes[0]:
        return () if form.keeps else Fault("the workflow is empty; it needs at least one step")
    if sizes[0] > form.steps:
        return Fault(f"the workflow has {sizes[0]} steps; at most {form.steps} are allowed")
    steps: list[Step] = []
    for place, (number, subtask, access) in enumerate(
        zip(lists.model_id, lists.subtasks, lists.access_list, strict=True)
    ):
        step = _step(place, number, subtask, _access(place, access, form), form)
        if isinstance(step, Fault):
            return step
        steps.append(step)
    return tuple(steps)


def _step(place: int, number: object, subtask: object, access: Access | Fault, form: Form) -> Step | Fault:
    chosen = _number(number)
    if chosen is None:
        return Fault(f"model_id of step {place} is {_shown(number)}, not a number from 0 to {form.last}")
    if not 0 <= chosen <= form.last:
        return Fault(f"model_id of step {place} is {_shown(chosen)}; the models are 0 to {form.last}")
    if not isinstance(subtask, str) or not subtask.strip():
        return Fault(f"the subtask of step {place} is {_shown(subtask)}, not a text")
    if len(subtask) > SUBTASK:
        return Fault(f"the subtask of step {place} has {len(subtask)} characters; at most {SUBTASK} are allowed")
    if isinstance(access, Fault):
        return access
    itself = chosen == len(form.models)
    return Step(
        agent=form.itself if itself else form.models[chosen],
        instruction=_whole(subtask).strip(),
        access=access,
        plans=itself,
    )


def _whole(text: str) -> str:
    """Halves of characters, as JSON escapes them, joined."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _access(place: int, given: object, form: Form) -> Access | Fault:
    if not isinstance(given, list | tuple):
        return Fault(f"access_list of step {place} is {_shown(given)}, not a list")
    if len(given) == 1 and isinstance(given[0], str) and given[0].lower() == "all":
        return "all" if place or form.earlier else ()
    places: list[int] = []
    for item in given:
        earlier = _number(item)
        if earlier is None:
            return Fault(f'access_list of step {place} holds {_shown(item)}; it takes [], ["all"] or places of steps')
        if not 0 <= earlier < place:
            return Fault(f"step {place} reads step {_shown(earlier)}, which is not before it")
        places.append(earlier)
    return tuple(dict.fromkeys(places))


def _number(value: object) -> int | None:
    """Whole numbers, and digits as text; True is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def same_job(steps: Sequence[Step], one: int, other: int) -> bool:
    """Two steps were given the same job: the same words, the same outputs to read, and neither reads the other."""
    a, b = steps[one], steps[other]
    if a.access == "all":
        return False
    return " ".join(a.instruction.split()) == " ".join(b.instruction.split()) and a.access == b.access
