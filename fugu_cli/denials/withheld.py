"""What an agent may know of the log where files are kept from it (`deny_agents`).

Between the log and everything that builds a prompt. Content travels: a tool shows a file, an agent that saw it speaks
and writes, a summary repeats it. So whatever was said, called, returned or written by somebody who could have seen such
a file, after it was shown to anybody, is withheld, not only what looks like it. Facts keep their places: only their
words are taken out. `guarded.py` looks at each prompt once more.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path

from fugu_cli.denials import SHORTEST_LINE, Denials
from fugu_cli.denials.obfuscation import disguises
from fugu_cli.events import (
    Assigned,
    Compacted,
    Event,
    Interrupted,
    Merged,
    Permitted,
    Planned,
    Replied,
    ToolRan,
)
from fugu_cli.messages import Call
from fugu_cli.policy.arguments import arguments_of, patched_paths
from fugu_cli.policy.patterns import MCP

WITHHELD = "[withheld: it may hold what deny_agents keeps from you]"
COMMANDS = frozenset({"bash", "job_output", "job_stop"})
"""Tools that tell what a command printed."""
NAMES_ONLY = frozenset({"glob", "list"})
"""Tools that tell names of files and nothing of what is in them."""


def visible(events: Sequence[Event], agent: str, denials: Denials | None) -> Sequence[Event]:
    """`events` as the agent may know them: as many, in the same order. They are all facts of a log: what is withheld
    depends on what came before."""
    if denials is None or not denials.of(agent):
        return events
    reader = _Reader(agent, denials)
    return [reader.take(event) for event in events]


def hidden_texts(events: Sequence[Event], agent: str, denials: Denials) -> list[str]:
    """The words that `visible` takes out."""
    pairs = zip(events, visible(events, agent, denials), strict=True)
    return [text for before, after in pairs if before != after for text in _texts(before)]


def hidden(events: Sequence[Event], agent: str, denials: Denials) -> Callable[[str], bool]:
    """Whether a line gives away a denied file, or what was said by somebody who could have known it."""
    known = denials.traces(agent)
    told = frozenset(
        line for text in hidden_texts(events, agent, denials) for part in text.splitlines() if (line := part.strip())
    )
    open_to_all = frozenset(
        line
        for event in visible(events, agent, denials)
        for text in _texts(event)
        for part in text.splitlines()
        if (line := part.strip())
    )
    kept = frozenset(line for line in told - open_to_all if len(line) >= SHORTEST_LINE)
    begins, ends = sorted(kept), sorted(line[::-1] for line in kept)

    def gives_away(line: str) -> bool:
        said = line.strip().replace("&lt;", "<")  # as it is framed for a planner
        cut = len(said) >= 2 * SHORTEST_LINE and said not in open_to_all
        part = cut and (_first_of(begins, said) or _first_of(ends, said[::-1]))
        return said in kept or part or known.within(line)

    return gives_away


def _first_of(lines: Sequence[str], piece: str) -> bool:
    """One of these sorted lines begins with it: what is clipped ends in the middle of a line."""
    place = bisect_left(lines, piece)
    return place < len(lines) and lines[place].startswith(piece)


def barred(events: Sequence[Event], agent: str, call: Call, denials: Denials | None, here: Path | None = None) -> str:
    """Why the agent must not make this call; "" when it may be judged like any other. `here`: the copy of the
    repository that it works in, where it does in one."""
    if denials is None or not denials.of(agent):
        return ""
    if call.tool in COMMANDS or call.tool.startswith(MCP):
        files, what = denials.files(agent), "a command" if call.tool in COMMANDS else "an MCP server"
        return f"{what} could read {files[0]}, which deny_agents keeps from {agent}" if files else ""
    reader = _Reader(agent, denials)
    for event in events:
        reader.take(event)
    asked = ((path, denials.denied(agent, path, here) or path in reader.written) for path in paths_of(call))
    named = next((path for path, kept in asked if kept), None)
    return f"deny_agents keeps {named} from {agent}" if named is not None else ""


def paths_of(call: Call) -> list[str]:
    """The paths a call names in its arguments."""
    try:
        given = json.loads(call.arguments or "{}")
    except ValueError:
        return []
    if not isinstance(given, dict):
        return []
    named = [value for key in ("path", "file", "file_path") if isinstance(value := given.get(key), str)]
    patch = given.get("patch")
    return [*named, *patched_paths(patch)] if isinstance(patch, str) else named


class _Reader:
    """Goes through the facts once, remembering who has seen what the agent must not."""

    def __init__(self, agent: str, denials: Denials) -> None:
        self._agent = agent
        self._denials = denials
        self._shown = False
        """Content of a denied file has been in somebody's prompt, or could have been."""
        self._calls: set[str] = set()
        """Ids of calls whose words are withheld."""
        self.written: set[str] = set()
        """Files written by agents that may have known such content."""
        self._agents: dict[int, str] = {}
        """Whose turn it is, by its number."""

    def take(self, event: Event) -> Event:
        if isinstance(event, Assigned):
            self._agents[event.turn] = event.agent
        match event:
            case Replied():
                return self._replied(event)
            case Permitted() if event.call.id in self._calls:
                return event.model_copy(update={"call": _bare(event.call), "reason": ""})
            case ToolRan():
                return self._ran(event)
            case _:
                return self._spoken(event)

    def _spoken(self, event: Event) -> Event:
        """Words about what happened, in somebody else's mouth."""
        match event:
            case Compacted() if self._told(event.agent):
                return event.model_copy(update={"summary": WITHHELD})
            case Planned() if self._told(event.agent):
                steps = tuple(step.model_copy(update={"instruction": ""}) for step in event.steps)
                return event.model_copy(update={"text": WITHHELD, "steps": steps, "fault": ""})
            case Assigned() if self._shown and event.instruction:
                return event.model_copy(update={"instruction": "", "reason": ""})
            case Merged() if self._shown:
                return event.model_copy(update={"diffs": (), "reason": ""})
            case Interrupted() if self._shown and event.partial:
                return event.model_copy(update={"partial": WITHHELD})
            case _:
                return event

    def _told(self, author: str) -> bool:
        """The author could have known such content when this was said."""
        return self._shown and not self._denials.covers(author, self._agent)

    def _replied(self, event: Replied) -> Event:
        if not self._told(event.agent):
            return event
        self._calls |= {call.id for call in event.calls}
        calls = tuple(_bare(call) for call in event.calls)
        return event.model_copy(update={"text": WITHHELD, "thinking": (), "calls": calls})

    def _ran(self, event: ToolRan) -> Event:
        if event.call.id in self._calls:
            self.written |= {change.path for change in event.changes}
            return event.model_copy(update={"call": _bare(event.call), "output": WITHHELD})
        if not self._touches(event):
            return event
        self._shown = True
        if any(self._denials.denied(self._agent, path) for path in paths_of(event.call)):
            return event.model_copy(update={"call": _bare(event.call), "output": WITHHELD})
        return event.model_copy(update={"output": WITHHELD})

    def _touches(self, event: ToolRan) -> bool:
        """The tool may have shown such a file, or a file that was made from one."""
        if event.call.tool in NAMES_ONLY:
            return False
        if self._disguised(event):
            return True
        named = paths_of(event.call)
        if any(self._denials.denied(self._agent, path) or path in self.written for path in named):
            return True
        known = self._denials.traces(self._agent)
        words = f"{event.call.arguments}\n{event.output}"
        return self._denials.mentioned(self._agent, words) or any(known.within(line) for line in words.splitlines())

    def _disguised(self, event: ToolRan) -> bool:
        """A command of somebody who may read such files, which could show one in other words than its own."""
        if event.call.tool not in COMMANDS or self._denials.covers(self._agents.get(event.turn, ""), self._agent):
            return False
        given = arguments_of(event.call)
        command = given.get("command") if isinstance(given, dict) else None
        told = isinstance(command, str) and not disguises(command, self._denials.root)
        return not told and bool(self._denials.files(self._agent))


def _bare(call: Call) -> Call:
    return call.model_copy(update={"arguments": "{}"})


def _texts(event: Event) -> list[str]:
    """The words of a fact."""
    match event:
        case Replied():
            return [event.text, *(call.arguments for call in event.calls), *(block.text for block in event.thinking)]
        case ToolRan():
            return [event.output, event.call.arguments]
        case Compacted():
            return [event.summary]
        case Planned():
            return [event.text, *(step.instruction for step in event.steps)]
        case Assigned():
            return [event.instruction]
        case Merged():
            return [diff for _, diff in event.diffs]
        case Interrupted():
            return [event.partial]
        case _:
            return []
