"""Facts of decisions and workflows, and values that facts carry: what events.py is made of and re-exports.

Read events.py first; import from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from fugu_cli.messages import Usage, Value

ROLE = "role"
"""`Permitted.by` of a call that its turn must not make, whatever the user permits: it has no such tool."""


KILLED = "killed"
"""The tool of a result that tells what a killed call had done to files. The call itself has no result and is never run
again."""


class Milliseconds(Value):
    """Where a decision's time went."""

    format: float = 0.0
    tokenise: float = 0.0
    forward: float = 0.0
    head: float = 0.0

    @property
    def total(self) -> float:
        return self.format + self.tokenise + self.forward + self.head


class Scores(Value):
    """What the coordinator computed. Logits are as the head gave them, before any mask.

    `rows` names the agent rows in the head's order (slots or agents); the probabilities are after the masks, in the
    same order; `masked` says why a row or role was out.
    """

    rows: tuple[str, ...]
    row_logits: tuple[float, ...]
    row_probabilities: tuple[float, ...]
    role_logits: tuple[float, ...] = ()
    role_probabilities: tuple[float, ...] = ()
    masked: tuple[tuple[str, str], ...] = ()
    read: str = ""
    tokens: int = 0
    cached_tokens: int = 0
    temperature: float = 1.0
    """Of the softmax."""


class Change(Value):
    """A file a tool changed: git blob ids before and after; None where it did not exist. `mode` is the one it has, or
    had.

    `beside`: no snapshot holds the file (git ignores it, or it lies in another repository or outside): a tool of fugu's
    own wrote it.
    """

    path: str
    before: str | None
    after: str | None
    mode: str = "100644"
    mode_before: str = ""
    """Where it was another."""
    beside: bool = False
    permissions: int = 0
    """Bits that a deleted file had, for one that no snapshot holds; 0 where nobody knows."""

    @property
    def back(self) -> Change:
        """What takes it back."""
        modes = {"mode": self.mode_before, "mode_before": self.mode} if self.mode_before else {}
        return self.model_copy(update={"before": self.after, "after": self.before, **modes})


class Attribute(Value):
    """What a git tree cannot hold of a path, before and after: permission bits, an empty folder, a named pipe, a file
    too large to keep (`large BYTES TIME`). "" for a file with the usual bits, and for nothing."""

    path: str
    before: str
    after: str

    @property
    def back(self) -> Attribute:
        """What takes it back."""
        return self.model_copy(update={"before": self.after, "after": self.before})

    @property
    def large(self) -> bool:
        """It tells of a file of which no copy was kept."""
        return self.before.startswith("large ") or self.after.startswith("large ")


class Made(NamedTuple):
    """What was done to files, in the order it was done."""

    changes: tuple[Change, ...] = ()
    attributes: tuple[Attribute, ...] = ()

    @property
    def back(self) -> Made:
        """What takes it back."""
        changes, attributes = reversed(self.changes), reversed(self.attributes)
        return Made(tuple(one.back for one in changes), tuple(one.back for one in attributes))

    @property
    def net(self) -> Made:
        """One change for each path."""
        return Made(tuple(net(self.changes).values()), tuple(net_attributes(self.attributes)))


NOTHING = Made()
"""Nothing was done to any file."""


def net_attributes(attributes: Iterable[Attribute]) -> list[Attribute]:
    """Attributes in the order they were set as one for each path; none for what is as it was."""
    found: dict[str, Attribute] = {}
    for one in attributes:
        found[one.path] = one.model_copy(update={"before": found.get(one.path, one).before})
    return [one for one in found.values() if one.before != one.after]


def net(changes: Iterable[Change]) -> dict[str, Change]:
    """Changes in the order they were made as one for each path; none for what is as it was."""
    made: dict[str, Change] = {}
    for change in changes:
        first = made.get(change.path, change)
        mode = (first.mode_before or first.mode) if first.before else change.mode
        update = {"before": first.before, "mode_before": mode if mode != change.mode else ""}
        made[change.path] = change.model_copy(update=update)
    return {path: one for path, one in made.items() if one.before != one.after or (one.after and one.mode_before)}


class Step(Value):
    """One step of a Conductor's workflow: who, what, and which earlier steps it may read (their places, from 0).

    `plans`: the planner named itself; the step is a workflow of its own.
    """

    agent: str
    instruction: str
    access: tuple[int, ...] | Literal["all"] = ()
    plans: bool = False


class Planned(Value):
    """The planner's reply as it was read: a workflow, which the Conductor reads back from here on.

    Without steps: `fault` says why the reply is none, or, in a later round, the result was kept ("" then).
    """

    type: Literal["planned"] = "planned"
    steps: tuple[Step, ...]
    text: str
    agent: str = ""
    usage: Usage = Usage()
    fault: str = ""
    round: int = 1
    within: tuple[int, int] | None = None
    """The plan (counted from 1 in the request) and the step of it that this workflow is the inside of."""
    models: tuple[str, ...] = ()
    """The agents behind the anonymous names: Model 0, Model 1, ..."""
    model: str = ""
    seconds: float = 0.0


class Merged(Value):
    """Several agents had the same job, each in its own worktree: whose work was taken over.

    `chosen` is a turn, 0 where nobody's work was good enough. `diffs` are (turn, unified diff, clipped) of all of them.
    """

    type: Literal["merged"] = "merged"
    plan: int
    turns: tuple[int, ...]
    chosen: int = 0
    reason: str = ""
    open: bool = False
    """Not yet decided: a later step of the plan reads the diffs and chooses."""
    diffs: tuple[tuple[int, str], ...] = ()
    changes: tuple[Change, ...] = ()
    left: tuple[str, ...] = ()
    """Paths of the chosen work that were left alone: they are not as they were when it began."""

    @property
    def made(self) -> Made:
        """What it did to files."""
        return Made(self.changes)


class Compacted(Value):
    """Facts up to line `upto` are replaced by `summary` in prompts; the file keeps them. `agent` wrote it, for `usage`;
    "" where the facts were listed and nobody was paid."""

    type: Literal["compacted"] = "compacted"
    summary: str
    upto: int
    agent: str = ""
    usage: Usage = Usage()
    seconds: float = 0.0


class Interrupted(Value):
    """The user cut the turn, or what it did is gone, for `reason`. `partial` is what had been said."""

    type: Literal["interrupted"] = "interrupted"
    turn: int
    partial: str = ""
    reason: str = ""


class JobEnded(Value):
    """A background job is over. `code` is its exit code, negative for a signal; None where it was made to end.

    `by` says by whom: itself, an agent (job_stop), the user, undo (what it was started in was taken back), session (it
    was closed).
    """

    type: Literal["job_ended"] = "job_ended"
    job: str
    command: str
    by: Literal["itself", "agent", "user", "undo", "session"] = "itself"
    code: int | None = None
    seconds: float = 0.0


class Undone(Value):
    """Files were put back to how they stood before: at `snapshot`, where the log is old or a draw was rolled back.

    Between requests: the user's undo. Inside a turn: a draw that failed the tests (`attempts`, `fugu help pool`) was
    rolled back and the turn is drawn again; what came before it in the turn is kept here and paid for, and read by
    nobody.
    """

    type: Literal["undone"] = "undone"
    snapshot: str | None
    turn: int = 0
    reason: str = ""
    paths: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    """What was done to files. In older logs: to those that no snapshot holds."""
    attributes: tuple[Attribute, ...] = ()
    left: tuple[str, ...] = ()
    """Files of the request that were left alone: changed since, or too large to have been copied."""

    @property
    def made(self) -> Made:
        return Made(self.changes, self.attributes)

    @property
    def redoes(self) -> bool:
        """The user took an undo back."""
        return not self.turn and self.reason.startswith("redone")
