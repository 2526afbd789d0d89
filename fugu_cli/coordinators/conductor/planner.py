"""The prompt of the planner, and the parser that turns its reply into a workflow. Pure.

The prompt shows earlier results, framed as data. The reply's three lists are parsed without
evaluating anything, and checked against the agents offered; an unusable reply is an `InvalidPlan`
with the reason. The parser tolerates fences, bullets, think blocks, labels with `:` or `=`,
annotations, smart quotes, comments and JSON. Labels count only outside the lists, so nothing inside
a subtask can pass for one. An embedded planner is also held to the form by a JSON schema.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fugu_cli import prompts
from fugu_cli.coordinators.conductor.step_context import as_data, escape_frames
from fugu_cli.messages import FromUser, Prompt
from fugu_cli.session import views
from fugu_cli.session.events import Member, Planned, WorkflowStep
from fugu_cli.session.state import SessionState

REPLY_LIMIT = 32_768
"""Characters of a reply that are looked at; a planner that never stops is cut off before by its
token limit.
"""
LABELS = ("model_id", "subtasks", "access_list")
_LABEL = re.compile(
    r"(?<![A-Za-z0-9_])(?:(?P<model_id>model(?:\\?_| )ids?)|(?P<subtasks>sub(?:\\?_| )?tasks?)"
    r"|(?P<access_list>access(?:(?:\\?_| )lists?)?))"
    r"[`*\"'“”‘’]*\s*"
    r"(?::\s*(?:typing\.)?list\b(?:\[[\w.,|\[\]\"' \t]{0,80}\])?\s*=|[:=：]|(?<=\n))"
    r"[`*\s]*(?:```[\w-]*\s*)?(?P<list>\[)",
    re.IGNORECASE,
)
_MORE = re.compile(r"[ \t]*(?:\+|\*(?!\*)[ \t]*[\w(]|\[|(?<=\])\().{,30}")
"""Matches what turns a list into an expression. Other stars end emphasis, and a separate bracket
begins a remark.
"""
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.IGNORECASE | re.DOTALL)
_OPENING = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_CLOSING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_TAG = re.compile(r"<(/?think(?:ing)?>)", re.IGNORECASE)
_MARK = "<\x00"
_BULLET = re.compile(r"^[ \t]*[-*•][ \t]+", re.MULTILINE)
_NEXT = re.compile(r"\s*[,\]]")
"""Matches what may follow the end of a string. Elsewhere ’ is an apostrophe."""
_FORMATTED = re.compile(r"(?<!\w)[fF]\Z")
"""Matches the prefix of a formatted string."""
_CLOSERS = {'"': '"', "'": "'", "“": "”", "‘": "’", "”": "”"}


@dataclass(frozen=True)
class InvalidPlan:
    """Why a reply is no workflow, in words for the planner and the trace."""

    text: str


@dataclass(frozen=True)
class PlanLists:
    """The three lists as they were written: literals of any kind, not yet checked."""

    model_id: list[object]
    subtasks: list[object]
    access_list: list[object]


def parse_lists(text: str) -> PlanLists | InvalidPlan:
    """The lists of a reply."""
    if len(text) > REPLY_LIMIT:
        return InvalidPlan(f"the reply has {len(text)} characters; at most {REPLY_LIMIT} are read")
    read = _lists(_without_thoughts(_without_first_thought(text)).replace(_MARK, "<"))
    with_thoughts = (
        _lists(_without_thoughts(text)) if isinstance(read, InvalidPlan) else read
    )  # a thought that is no list ran into the plan
    return read if isinstance(with_thoughts, InvalidPlan) else with_thoughts


def _lists(text: str) -> PlanLists | InvalidPlan:
    """The lists of a reply without thoughts."""
    lists: dict[str, list[object]] = {}
    position = 0
    while (label := _LABEL.search(text, position)) is not None:
        name = next(name for name in LABELS if label.group(name))
        start = label.start("list")
        end = _end(text, start)
        if end is None:
            return InvalidPlan(f"the list {name} does not end")
        if more := _MORE.match(text, end):
            return InvalidPlan(
                f"{name} goes on behind its list: {more.group().strip()!r}; every list is "
                f"written out"
            )
        value = parse_list(text[start:end], quoted='"' in label.group())
        if value is None:
            return InvalidPlan(f"{name} is not a list that can be read")
        if name in lists and not _same_values(lists[name], value):
            return InvalidPlan(f"{name} is given twice, with different values")
        lists[name] = value
        position = end
    missing = [name for name in LABELS if name not in lists]
    if missing:
        return InvalidPlan(
            f"there is no list {missing[0]}" if len(missing) < 3 else "there are no lists in it"
        )
    return PlanLists(lists["model_id"], lists["subtasks"], lists["access_list"])


def _without_first_thought(text: str) -> str:
    """`text` without the thought it begins with, tags in its lists marked: there they are what is
    to be done.
    """
    while begins := _THOUGHT.match(text.lstrip()):
        text = text.lstrip()[begins.end() :]
    parts, at = [], 0
    while (label := _LABEL.search(text, at)) and (
        end := _end(text, label.start("list"))
    ) is not None:
        parts += [text[at : label.start()], _TAG.sub(rf"{_MARK}\1", text[label.start() : end])]
        at = end
    return "".join((*parts, text[at:]))


def _without_thoughts(text: str) -> str:
    """`text` without think blocks; one that was never closed takes everything after it along."""
    rest = _THOUGHT.sub("\n", text)
    closings = list(_CLOSING.finditer(rest))
    if closings:
        rest = rest[closings[-1].end() :]
    opening = _OPENING.search(rest)
    return rest[: opening.start()] if opening else rest


def _same_values(first: list[object], second: list[object]) -> bool:
    return repr(first) == repr(second)


def _end(text: str, start: int) -> int | None:
    """The place after the bracket that closes the one at `start`; quotes are respected. None when
    there is none.
    """
    depth, at = 0, start
    while at < len(text):
        char = text[at]
        if char in _CLOSERS:
            after = _after_string(text, at)
            if after is None:
                return None
            at = after
            continue
        if char == "#":
            at = _line_end(text, at)
            continue
        depth += (char == "[") - (char == "]")
        at += 1
        if depth == 0:
            return at
    return None


def _line_end(text: str, start: int) -> int:
    """The end of a comment: of its line."""
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _after_string(text: str, start: int) -> int | None:
    """The place after the string that begins at `start`, None when it does not end."""
    triple = text[start : start + 3]
    if triple in ('"""', "'''"):
        end = text.find(triple, start + 3)
        return None if end < 0 else end + 3
    closer = _CLOSERS[text[start]]
    at = start + 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == closer and (closer != "’" or _NEXT.match(text, at + 1)):
            return at + 1
        at += 1
    return None


def parse_list(text: str, *, quoted: bool = False) -> list[object] | None:
    """The list a bracketed text is: as a Python literal, as JSON, then both again with smart quotes
    made plain and bullets taken off. None when it is no list. `quoted`: its label was, so it is
    JSON first."""
    reads = (json.loads, ast.literal_eval) if quoted else (ast.literal_eval, json.loads)
    for form in dict.fromkeys((text, _plain(text), _plain(_BULLET.sub("", text)))):
        for read in reads:
            try:
                with warnings.catch_warnings(
                    action="ignore"
                ):  # odd escapes in a model's strings are no news
                    value = read(form)
                repr(value)  # a number of thousands of digits cannot be told
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(value, list):
                return value
    return None


def _plain(text: str) -> str:
    """Strings in smart quotes, or with line breaks in them, as JSON strings; the rest as it is."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "#":
            at = _line_end(text, at)
            continue
        after = _after_string(text, at) if char in _CLOSERS else None
        if after is None:
            parts.append(char)
            at += 1
            continue
        raw = text[at:after]
        at = after
        if "{" not in raw and _FORMATTED.search("".join(parts[-2:])):
            parts.pop()
        inner = raw[1:-1]
        odd = char in "“‘”" or ("\n" in raw and not raw.startswith(('"""', "'''")))
        parts.append(json.dumps(inner, ensure_ascii=False) if odd else raw)
    return "".join(parts)


SUBTASK_LIMIT = 8000
"""Characters of one subtask at most."""
AccessList = tuple[int, ...] | Literal["all"]


@dataclass(frozen=True)
class PlanLimits:
    """The limits of a workflow.

    `models` are the agents behind Model 0, 1, ...; `steps` is the most steps; `itself` lets the
    planner name itself (as the number after the last agent); with `keeps` three empty lists mean
    that a result is kept.
    """

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


def parse_workflow(text: str, form: PlanLimits) -> tuple[WorkflowStep, ...] | InvalidPlan:
    """The steps of a planner's reply; () where it keeps the result."""
    lists = parse_lists(text)
    return lists if isinstance(lists, InvalidPlan) else validate_lists(lists, form)


def validate_lists(lists: PlanLists, form: PlanLimits) -> tuple[WorkflowStep, ...] | InvalidPlan:
    """Return the steps that three lists describe; () where they are empty and may be."""
    sizes = (len(lists.model_id), len(lists.subtasks), len(lists.access_list))
    if len(set(sizes)) > 1:
        return InvalidPlan(
            "the lists differ in length: model_id {}, subtasks {}, access_list {}".format(*sizes)
        )
    if not sizes[0]:
        return (
            () if form.keeps else InvalidPlan("the workflow is empty; it needs at least one step")
        )
    if sizes[0] > form.steps:
        return InvalidPlan(f"the workflow has {sizes[0]} steps; at most {form.steps} are allowed")
    steps: list[WorkflowStep] = []
    rows = zip(lists.model_id, lists.subtasks, lists.access_list, strict=True)
    for index, (number, subtask, access) in enumerate(rows):
        step = _step(index, number, subtask, _access(index, access, form), form)
        if isinstance(step, InvalidPlan):
            return step
        steps.append(step)
    return tuple(steps)


def _step(
    index: int, number: object, subtask: object, access: AccessList | InvalidPlan, form: PlanLimits
) -> WorkflowStep | InvalidPlan:
    chosen = _number(number)
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
    if isinstance(access, InvalidPlan):
        return access
    itself = chosen == len(form.models)
    return WorkflowStep(
        agent=form.itself if itself else form.models[chosen],
        instruction=_whole(subtask).strip(),
        access=access,
        plans=itself,
    )


def _whole(text: str) -> str:
    """Halves of characters, as JSON escapes them, joined."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _access(step: int, access: object, form: PlanLimits) -> AccessList | InvalidPlan:
    if not isinstance(access, list | tuple):
        return InvalidPlan(f"access_list[{step}] is {_shown(access)}, not a list")
    if len(access) == 1 and isinstance(access[0], str) and access[0].lower() == "all":
        return "all" if step or form.earlier else ()
    steps: list[int] = []
    for item in access:
        earlier = _number(item)
        if earlier is None:
            return InvalidPlan(
                f'access_list[{step}] holds {_shown(item)}; it takes [], ["all"] or places of steps'
            )
        if not 0 <= earlier < step:
            return InvalidPlan(
                f"access_list[{step}] holds {_shown(earlier)}: a step reads only those before it"
            )
        steps.append(earlier)
    return tuple(dict.fromkeys(steps))


def _number(value: object) -> int | None:
    """Whole numbers, and digits as text; True is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def same_job(steps: Sequence[WorkflowStep], first: int, second: int) -> bool:
    """Two steps were given the same job: the same words, the same outputs to read, and neither
    reads the other.
    """
    a, b = steps[first], steps[second]
    if a.access == "all":
        return False
    return (
        " ".join(a.instruction.split()) == " ".join(b.instruction.split()) and a.access == b.access
    )


def planner_feedback(
    state: SessionState, within: tuple[int, int] | None, number: int
) -> tuple[str, str]:
    """The text to plan for ("" for the request itself) and what is known so far."""
    if within is not None:
        return _part(state, within)
    if number == 1:
        return "", ""
    rounds = [flow for flow in state.request.workflows if flow.planned.within is None]
    text = prompts.fill(
        prompts.load("conductor/round"),
        workflow="\n\n".join(_workflow(state, flow) for flow in rounds),
        outcome=_outcome(state),
    )
    return "", text


def _part(state: SessionState, within: tuple[int, int]) -> tuple[str, str]:
    """A step that is planned in itself: its subtask, and the outputs its access list opens."""
    workflows = state.request.workflows
    flow = next(flow for flow in workflows if flow.number == within[0])
    step = flow.planned.steps[within[1]]
    request = state.request.asked
    assert request is not None
    sources = range(within[1]) if step.access == "all" else step.access
    opened = [(index, views.visible_output(workflows, flow.number, index)) for index in sources]
    shown = [_output(index, views.final_text(turn)) for index, turn in opened if turn is not None]
    whole = prompts.fill(prompts.load("conductor/part"), whole=request.text)
    outputs = (
        prompts.fill(prompts.load("conductor/outputs"), outputs="\n".join(shown)) if shown else ""
    )
    return step.instruction, "\n\n".join(part for part in (whole, outputs) if part)


def _output(step: int, text: str) -> str:
    return f'<output step="{step}">\n{as_data(text)}\n</output>'


def _workflow(state: SessionState, flow: views.Workflow) -> str:
    workflows = state.request.workflows
    lines = []
    for index, step in enumerate(flow.planned.steps):
        turn = views.visible_output(workflows, flow.number, index)
        name = (
            flow.planned.models.index(step.agent)
            if step.agent in flow.planned.models
            else len(flow.planned.models)
        )
        lines.append(f"Step {index}, Model {name}: {step.instruction}")
        if turn is not None:
            lines.append(_output(index, views.final_text(turn)))
        else:
            kinds = {
                attempt.failed.kind for attempt in flow.tries(index) if attempt.failed
            }  # messages name providers
            lines.append(
                f"It failed: no model answered ({', '.join(sorted(kinds))})."
                if kinds
                else "It was not done."
            )
    return "\n".join(lines)


def _outcome(state: SessionState) -> str:
    changed = sorted(state.request.changes)
    run = state.request.tests
    sentences = [
        f"Files that were changed: {', '.join(changed)}." if changed else "No file was changed."
    ]
    if run is not None and not run.stale:
        sentences.append(
            "The tests pass now." if run.ok else "The tests still FAIL; their output is above."
        )
    return " ".join(sentences)


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
    within: tuple[int, int] | None = None
    result: str = ""
    refused: Planned | None = None


def planner_prompt(
    state: SessionState, task: PlanTask, members: Mapping[str, Member], planner: Member
) -> Prompt:
    """The planner's prompt. The answer to a refused reply holds everything again: a planner has no
    history.
    """
    form = task.form
    last = str(form.last)
    limits = {"steps": str(form.steps), "last": last}
    ask = prompts.fill(prompts.load("conductor/ask"), **limits)
    if task.refused is not None:
        again = prompts.load("conductor/again")
        ask = prompts.fill(
            again,
            fault=task.refused.fault,
            reply=escape_frames(task.refused.text[:REFUSED_LIMIT]),
            **limits,
        )
    text = prompts.fill(
        prompts.load("conductor/request"),
        before=_before(state),
        state=_state(state),
        request=task.text,
        result=f"{task.result}\n\n" if task.result else "",
        models=_models(form, members),
        ask=ask,
    )
    is_embedded = planner.provider == "local"
    return Prompt(
        system=prompts.fill(prompts.load("conductor/plan"), steps=str(form.steps)),
        messages=(FromUser(text=text),),
        max_tokens=PLAN_TOKENS if is_embedded else planner.reply_room,
        effort=state.request.effort_for(planner),
        reply_schema=plan_schema(form) if is_embedded else "",
    )


def _before(state: SessionState) -> str:
    """The conversation so far: each earlier request with the answer the user got, and what was
    taken back.
    """
    parts = []
    for request in state.requests[:-1][-3:]:
        assert request.asked is not None
        answer = escape_frames(request.answer[:ANSWER_LIMIT])
        parts.append(
            prompts.fill(
                prompts.load("conductor/before"), request=request.asked.text, answer=answer
            )
            + "\n\n"
        )
        parts += [f"{notice}\n\n" for notice in views.undo_notices(request.events)]
    return "".join(parts)


def _state(state: SessionState) -> str:
    """Return the state of the tests if they were run."""
    run, request = state.request.tests, state.request.asked
    if run is None or run.stale or request is None:
        return ""
    output, outcome = escape_frames(run.output.strip()[:TESTS_LIMIT]), "pass" if run.ok else "FAIL"
    text = prompts.load("conductor/tests")
    return (
        prompts.fill(text, command=request.test_command or "", said=outcome, output=output) + "\n\n"
    )


def _models(form: PlanLimits, members: Mapping[str, Member]) -> str:
    """`Model 0`, with the line its entry gives it, if any. No names: a planner has opinions about
    names.
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


def plan_schema(form: PlanLimits) -> str:
    """The JSON schema of a reply, one variant for each number of steps, so that equal lengths and
    earlier places are held as well."""
    sizes = range(0 if form.keeps else 1, form.steps + 1)
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
