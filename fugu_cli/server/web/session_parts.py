"""The parts of a session's page as HTML: its blocks, its questions, and the tables of decisions and
agents. Reads values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from fugu_cli.app.approval_options import ApprovalOption, question_heading
from fugu_cli.app.approval_questions import ApprovalQuestion
from fugu_cli.app.event_text import (
    FAILURE_WORDS,
    VERDICT_MARKS,
    approval_target,
    decision_why,
    describe_call,
    file_notes,
)
from fugu_cli.app.patches import LONGEST_LINE_ON_PAGE, patch_of_call, patch_size, shorten_patch
from fugu_cli.formatting import (
    compact_number,
    escape_for_approval,
    excerpt,
    first_line,
    flatten,
    known_cost,
    plural,
    sanitize_for_screen,
    short_duration,
    with_tilde,
)
from fugu_cli.server.web.markup import Markup, element, joined
from fugu_cli.session.events import ToolRan
from fugu_cli.ui import workflow_text
from fugu_cli.ui.blocks import (
    DIFF,
    Block,
    DecisionBlock,
    EndBlock,
    NoteBlock,
    PlanBlock,
    ReplyBlock,
    RequestBlock,
    ThinkingBlock,
    ToolBlock,
    WelcomeBlock,
)
from fugu_cli.ui.end_drawing import end_numbers
from fugu_cli.ui.session_totals import SessionTotals
from fugu_cli.ui.trace_rows import PlanRow, RequestRow, TraceRow, TurnRow

LONGEST_TEXT = 50_000
"""Characters of a text on the page."""
LONGEST_PATCH = 200_000
"""Characters of a diff that nobody is asked about. One that needs an approval is never cut."""
IN_LOG = "the session's log holds all of it"


def text_of(text: str) -> str:
    """Return a text without control characters, and without its middle if it is very long."""
    return sanitize_for_screen(excerpt(text, LONGEST_TEXT, IN_LOG)).strip("\n")


def table(caption: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """Return a table with a row of headings. The first cell of each row is its heading."""
    headings = [element("th", cell, scope="col") for cell in heading]
    body = []
    for first, *others in rows:
        cells = [element("td", cell) for cell in others]
        body.append(element("tr", element("th", first, scope="row"), *cells))
    content = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *headings)),
        element("tbody", *body),
    )
    return element("div", content, class_="wide", tabindex=0, role="region", aria_label=caption)


def block_markup(block: Block) -> Markup:
    """Return a block of the conversation, "" for one that shows nothing."""
    match block:
        case RequestBlock():
            title = f"You, to {flatten(block.given_to)}" if block.given_to else "You"
            attached = [element("p", flatten(line), class_="dim") for line in block.attachments]
            request = element("p", text_of(block.text), class_="text")
            return element("div", element("h3", title), request, *attached, class_="request")
        case DecisionBlock():
            why = decision_why(block.assigned, block.reason, block.unavailable)
            title = f"{flatten(block.assigned.agent)} as {block.assigned.role}"
            return element("div", element("h3", title), element("p", why, class_="dim"))
        case ReplyBlock():
            text = text_of("".join(block.texts))
            return element("p", text, class_="text") if text else Markup()
        case ThinkingBlock():
            if not block.text:
                return Markup()
            return _folded("Thinking", element("p", text_of(block.text), class_="text dim"))
        case ToolBlock():
            return _tool_markup(block)
        case PlanBlock():
            return _plan_markup(block)
        case NoteBlock():
            note = element("p", text_of(block.text), class_=f"note {block.tone}")
            return joined((note, _plain(block.detail)))
        case EndBlock():
            line = element(
                "p", text_of(block.summary.line.text), class_=f"end {block.summary.line.tone}"
            )
            numbers = element("p", " · ".join(end_numbers(block)), class_="dim")
            reason = element("p", text_of(block.summary.why)) if block.summary.why else Markup()
            return joined((line, reason, numbers))
        case WelcomeBlock():
            return Markup()
        case _:
            assert_never(block)


def _tool_markup(block: ToolBlock) -> Markup:
    result = block.result
    if not block.permitted.allowed:
        state = f"not allowed: {flatten(block.permitted.reason)}"
    elif block.cut:
        state = "interrupted"
    elif result is None:
        state = "running"
    else:
        state = "ok" if result.ok else "failed"
    author = "fugu: " if block.evidence else ""
    summary = f"{author}{describe_call(block.call, block.root)} · {state}"
    patch = _patch_of(block, result)
    if patch:
        added, removed = patch_size(patch)
        summary += f" · +{added} -{removed}"
    body = [patch_markup(excerpt(patch, LONGEST_PATCH, IN_LOG))] if patch else []
    if result is not None:
        body += [element("p", note, class_="note warn") for note in file_notes(result)]
    if not patch:
        body.append(_plain(block.live if result is None else result.output))
    if block.inside:
        body.append(_plain(block.inside))
    return _folded(summary, *body, is_open=bool(patch) and not block.evidence)


def _patch_of(block: ToolBlock, result: ToolRan | None) -> str:
    if result is None:
        return ""
    if block.call.tool == DIFF:
        return result.output
    if not result.changes:
        return ""
    patch = block.patch or patch_of_call(block.call)
    return shorten_patch(patch, LONGEST_LINE_ON_PAGE)


def _folded(summary: str, *body: Markup, is_open: bool = False) -> Markup:
    return element("details", element("summary", summary), *body, open=is_open)


def _plain(text: str) -> Markup:
    shown = text_of(text)
    return element("pre", shown, tabindex=0) if shown else Markup()


def _plan_markup(block: PlanBlock) -> Markup:
    plan = block.planned
    title = f"{workflow_text.plan_title(plan)}, by {flatten(plan.agent)}"
    fault = [element("p", text_of(plan.fault), class_="note warn")] if plan.fault else []
    steps = []
    for step in plan.steps:
        reads = f"reads {workflow_text.step_access(step)}"
        text = f"{workflow_text.step_agent(step)} ({reads}): {text_of(step.instruction)}"
        steps.append(element("li", text))
    return element("div", element("h3", title), *fault, element("ol", *steps))


def patch_markup(patch: str) -> Markup:
    """Return a unified diff with its added and removed lines marked, and nothing of it hidden."""
    lines = []
    for line in escape_for_approval(patch).split("\n"):
        if line.startswith(("+++ ", "--- ", "@@")):
            tag = "b"
        elif line.startswith("+"):
            tag = "ins"
        elif line.startswith("-"):
            tag = "del"
        else:
            tag = "span"
        lines.append(element(tag, line))
    return element("pre", *lines, class_="diff", tabindex=0)


def question_markup(
    question: ApprovalQuestion, options: Sequence[ApprovalOption], patch: str, action: str
) -> Markup:
    """Return a question with the change that it is about, and a button for each answer."""
    target = approval_target(question.call, question.judgement.target)
    target = with_tilde(escape_for_approval(target).strip())
    shown = [element("h3", question_heading(question.call))]
    if target:
        shown.append(element("pre", target, tabindex=0))
    if question.judgement.reason:
        shown.append(element("p", text_of(question.judgement.reason), class_="dim"))
    if patch:
        shown.append(patch_markup(patch))
    hidden = {"act": "answer", "question": str(question.number), "call": question.call.id}
    fields = [
        element("input", type="hidden", name=name, value=value) for name, value in hidden.items()
    ]
    buttons = []
    own_words = Markup()
    for option in options:
        button = element("button", option.words, name="scope", value=option.scope)
        if option.scope == "feedback":
            field_id = f"feedback-{question.number}"
            label = element("label", "In your own words", for_=field_id)
            area = element("textarea", name="feedback", id=field_id, rows=2)
            own_words = element("p", label, area, button)
        else:
            buttons.append(button)
    form = element("form", *fields, element("p", *buttons), own_words, method="post", action=action)
    return element("div", *shown, form, class_="question")


def send_form(action: str) -> Markup:
    """Return the form for a message to the agents at work, or a request."""
    label = element("label", "Message to the agents at work, or the next request", for_="text")
    area = element("textarea", name="text", id="text", rows=3, required=True)
    act = element("input", type="hidden", name="act", value="send")
    buttons = element(
        "p",
        element("button", "Send", name="how", value="steer"),
        element("button", "Queue as a request", name="how", value="queue"),
    )
    return element("form", act, label, area, buttons, method="post", action=action)


def decisions_table(rows: Sequence[TraceRow]) -> Markup:
    """Return the table of turns: agent, role, time and cost."""
    cells = []
    for row in rows:
        match row:
            case RequestRow():
                continue
            case PlanRow():
                cost = known_cost(row.cost, unpriced=row.unpriced, estimated=row.estimated)
                plan = row.planned
                result = workflow_text.plan_title(plan)
                number = f"{row.request.number}, plan {row.number}"
                time = short_duration(plan.seconds)
                tokens = compact_number(plan.usage.input + plan.usage.output)
                cells.append((number, "planner", flatten(plan.agent), time, tokens, cost, result))
            case TurnRow():
                assigned = row.assigned
                role = "subtask" if assigned.subtask is not None else assigned.role
                cost = known_cost(row.cost, unpriced=row.unpriced, estimated=row.estimated)
                number = f"{row.request.number}, turn {assigned.turn}"
                time = short_duration(row.seconds)
                tokens = compact_number(row.tokens)
                agent = flatten(assigned.agent)
                cells.append((number, role, agent, time, tokens, cost, _turn_result(row)))
            case _:
                assert_never(row)
    heading = ("Request", "Role", "Agent", "Time", "Tokens", "Cost", "Result")
    return table("Decisions", heading, cells)


def _turn_result(row: TurnRow) -> str:
    parts = []
    if row.state == "open":
        parts.append("at work")
    elif row.state == "cut":
        parts.append("interrupted")
    if row.failure:
        parts.append(FAILURE_WORDS.get(row.failure, "failed"))
    for verdict, (mark, _) in VERDICT_MARKS.items():
        if row.verdict == verdict:
            parts.append(mark)
    if row.tests is not None:
        parts.append(f"tests: {row.tests}")
    if row.changed_files:
        parts.append("changed files")
    return "; ".join(parts)


def agents_table(totals: SessionTotals) -> Markup:
    """Return the table of the agents that may act, with their tokens and costs."""
    rows = []
    for name, member in totals.members.items():
        used = totals.by_agent.get(name)
        numbers = ["", "", "", ""]
        if used is not None:
            usage, dollars = used
            cost = known_cost(
                dollars, unpriced=name in totals.unpriced, estimated=name in totals.estimated
            )
            counts = map(compact_number, (usage.input, usage.cached, usage.output))
            numbers = [*counts, cost]
        rows.append((flatten(name), flatten(member.model), member.slot, *numbers))
    heading = ("Agent", "Model", "Price", "In", "Cached", "Out", "Cost")
    return table("Agents", heading, rows)


def cost_text(totals: SessionTotals) -> str:
    """Return the cost of the session in words."""
    return known_cost(totals.cost, unpriced=bool(totals.unpriced), estimated=bool(totals.estimated))


def changes_text(totals: SessionTotals) -> str:
    """Return the files that the session changed: `2 files changed: a.py, b.py`, "" for none."""
    if not totals.changed:
        return ""
    paths = ", ".join(flatten(path) for path in totals.changed)
    return f"{plural(len(totals.changed), 'file')} changed: {first_line(paths, 500)}"
