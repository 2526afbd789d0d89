"""Which of prompts/brief/ asks a small model for what its turn is there for.

Below context.py, which fills it in. A function of the log. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import views
from fugu_cli.events import Asked, Event
from fugu_cli.loop import aims, brief_files, looking, outdated, tests_wanted
from fugu_cli.loop.opening import files_read


def of(events: Sequence[Event], turn: views.Turn, request: Asked) -> str:
    """The name of the text in prompts/brief/ that says what is to be done."""
    first, now = views.first_tests(events), views.tests(events)
    if turn.assigned.role == "worker":
        return _work(events, turn, request)
    if turn.assigned.role == "verifier" and first and now and not first.ok and now.ok and not now.stale:
        return "verifier_passing"
    if views.unseen_result(events, turn) is not None:
        return "verifier_unseen"
    if turn.assigned.role == "thinker" and turn.assigned.plan:
        return "thinker_step"  # nobody asks it who is next
    return "verifier_answer" if judges_words(events, turn) else turn.assigned.role


def _work(events: Sequence[Event], turn: views.Turn, request: Asked) -> str:
    if request.assertions:
        return "answer_code"
    if outdated.target(events):
        return "tests_outdated"
    if aims.wanted(events, turn):
        return tests_wanted.brief(request.text, views.changes(events), views.tests(events))
    if aims.free(events, request):
        return "answer_found" if looking.searched(turn) else "answer"
    return "worker_unfinished" if brief_files.unfinished(files_read(turn)) else "worker"


def judges_words(events: Sequence[Event], turn: views.Turn) -> bool:
    """A Verifier's turn on an answer that changed nothing."""
    return turn.assigned.role == "verifier" and not turn.assigned.plan and not views.changes(events)
