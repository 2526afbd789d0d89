"""The answers to a question for approval and their words: the one place for the full screen, the
inline mode and `fugu run`.

An option says what it covers, in the words of the rule that is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fugu_cli.formatting import escape_for_approval, escape_invisible, flatten, plural

if TYPE_CHECKING:
    from fugu_cli.engine.environment import Permission
    from fugu_cli.messages import Call
    from fugu_cli.safety.policy import Judgement

ApprovalScope = Literal[
    "once",
    "session",
    "always",
    "no",
    "feedback",
    "all",
    "none",
    "choice-1",
    "choice-2",
    "choice-3",
    "choice-4",
    "choice-5",
    "choice-6",
]
CHOICES: tuple[ApprovalScope, ...] = (
    "choice-1",
    "choice-2",
    "choice-3",
    "choice-4",
    "choice-5",
    "choice-6",
)
"""The answers to a question of an agent's, in the order of its choices."""


ACCEPT_PLAN = "accept_plan"
"""The name under which the user is asked about a plan (plans.py), as if it were a tool."""


@dataclass(frozen=True)
class ApprovalOption:
    """An answer to a question: its key, its meaning, and a single word for it."""

    scope: ApprovalScope
    key: str
    words: str
    word: str


MOST_LISTED = 6
"""Calls that are listed behind a question."""


@dataclass(frozen=True)
class PendingCall:
    """A call that will be asked about once the one before it is through."""

    call: Call
    judgement: Judgement


@dataclass(frozen=True)
class Pending:
    """The other waiting calls. `number` is the shown question's place among `total`."""

    number: int = 1
    total: int = 1
    others: tuple[PendingCall, ...] = ()

    @property
    def readable(self) -> bool:
        """True if a yes may cover the others: all of them are listed in full, and none needs a yes
        of its own.
        """
        listed = len(self.others) <= MOST_LISTED and all(
            _is_listed_whole(pending_call.call) for pending_call in self.others
        )
        return listed and not any(pending_call.judgement.every_time for pending_call in self.others)


ALONE = Pending()


def _is_listed_whole(call: Call) -> bool:
    from fugu_cli.app.event_text import call_target, describe_call

    return describe_call(call).endswith(escape_invisible(call_target(call)))


def covered(call: Call, judgement: Judgement) -> str:
    """Describe what a yes for the session covers: ``edits in src/``, ```pytest *```, `exactly
    this`.
    """
    name, _, argument = judgement.rule.removesuffix(")").partition("(")
    if name == "edit" and argument.endswith("/**"):
        text = f"edits in {argument.removesuffix('**')}"
    elif name == "edit":
        text = f"edits of {argument}"
    elif judgement.rule:
        text = f"`{argument}`"
    elif judgement.target == call.tool:
        text = f"every call of {call.tool}"
    elif call.tool == "web_fetch":
        text = f"pages of {judgement.target.removeprefix('web_fetch(').removesuffix(')')}"
    else:
        text = "exactly this"
    return escape_for_approval(text)


def approval_options(
    call: Call, judgement: Judgement, pending: Pending = ALONE
) -> tuple[ApprovalOption, ...]:
    """Return the possible answers. A call that has to be asked about every time has no lasting
    answer, and no answer for several calls.
    """
    from fugu_cli.session.tool_facts import ASK_USER

    if call.tool == ASK_USER.name:
        return _answers_to_question(call)
    if call.tool == ACCEPT_PLAN:
        return PLAN_OPTIONS
    options = [ApprovalOption("once", "y", "yes, once", "once")]
    if not judgement.every_time:
        scope = covered(call, judgement)
        options.append(
            ApprovalOption(
                "session", "s", f"yes, and {scope} for this session", f"session: {scope}"
            )
        )
        options.append(
            ApprovalOption(
                "always", "a", f"yes, and {scope} always in this project", "always: the same"
            )
        )
    options.append(ApprovalOption("no", "n", "no", "no"))
    options.append(
        ApprovalOption("feedback", "t", "no, and tell it what to do instead", "no, tell it")
    )
    if pending.others:
        rest = plural(len(pending.others) + 1, "call")
        if pending.readable and not judgement.every_time:
            options.append(ApprovalOption("all", "Y", f"yes to these {rest}, once", "yes to all"))
        options.append(ApprovalOption("none", "N", f"no to these {rest}", "no to all"))
    return tuple(options)


PLAN_OPTIONS = (
    ApprovalOption("session", "1", "go ahead, accept edits", "accept edits"),
    ApprovalOption("once", "2", "go ahead, ask", "ask"),
    ApprovalOption("feedback", "3", "change the plan", "change the plan"),
    ApprovalOption("no", "n", "not now", "not now"),
)


def scope_of_key(options: Sequence[ApprovalOption], key: str) -> ApprovalScope | None:
    """Return the answer of a key, which may also be the number of the answer; None for others."""
    for option in options:
        if option.key == key:
            return option.scope
    for number, option in enumerate(options, start=1):
        if str(number) == key:
            return option.scope
    return None


def question_heading(call: Call) -> str:
    """Return the heading of a question to the user, such as `Allow bash?`."""
    from fugu_cli.session.call_arguments import arguments_of
    from fugu_cli.session.tool_facts import ASK_USER, REMEMBER

    if call.tool == ASK_USER.name:
        return "An agent asks:"
    if call.tool == REMEMBER.name:
        return "Keep this line in the memory?"
    if call.tool != ACCEPT_PLAN:
        return f"Allow {flatten(escape_for_approval(call.tool), 40)}?"
    arguments = arguments_of(call)
    agent = arguments.get("agent", "") if isinstance(arguments, dict) else ""
    return f"Carry out the plan of {flatten(escape_for_approval(str(agent)), 40)}?"


def _answers_to_question(call: Call) -> tuple[ApprovalOption, ...]:
    options = []
    for number, choice in enumerate(question_choices(call), start=1):
        words = escape_for_approval(choice)
        options.append(ApprovalOption(CHOICES[number - 1], str(number), words, words))
    options.append(ApprovalOption("feedback", "t", "answer in your own words", "own words"))
    options.append(ApprovalOption("no", "n", "give no answer", "no answer"))
    return tuple(options)


def question_choices(call: Call) -> tuple[str, ...]:
    """Return the choices of a question that an agent asks the user."""
    from fugu_cli.session.call_arguments import arguments_of

    arguments = arguments_of(call)
    choices = arguments.get("choices") if isinstance(arguments, dict) else None
    return tuple(map(str, choices))[: len(CHOICES)] if isinstance(choices, list) else ()


def permission_for(call: Call, scope: ApprovalScope) -> Permission:
    """Return the permission that an answer to one call stands for; the words of a choice are given
    as feedback.
    """
    from fugu_cli.engine.environment import Refusal

    match scope:
        case "once" | "session" | "no":
            return scope
        case "always":
            return "session"
        case _:
            choices = dict(zip(CHOICES, question_choices(call), strict=False))
            return Refusal(feedback=choices[scope]) if scope in choices else "no"


def terminal_options(call: Call, judgement: Judgement) -> Sequence[str]:
    """Return the possible answers for a terminal where a line is typed."""
    from fugu_cli.session.tool_facts import ASK_USER

    text_key = "TEXT" if call.tool == ASK_USER.name else "n TEXT"
    lines = []
    for option in approval_options(call, judgement):
        if option.scope in ("once", "session", "no", "feedback", *CHOICES):
            key = text_key if option.scope == "feedback" else option.key
            lines.append(f"  {key:<7}{option.words}")
    return lines
