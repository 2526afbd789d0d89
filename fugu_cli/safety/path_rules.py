"""Keeps files from some agents (`deny_agents`): which those are, whether a command could disclose
one in other words, and what an agent may know of the log.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fugu_cli.messages import Call
from fugu_cli.safety.paths import path_exists
from fugu_cli.safety.policy import rule_matching
from fugu_cli.safety.policy.shell_line import Command, Word, names_of, parse_line
from fugu_cli.session.call_arguments import arguments_of, names_in, patched_paths
from fugu_cli.session.events import (
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
from fugu_cli.session.state import SessionState
from fugu_cli.session.tool_facts import MCP, facts_of
from fugu_cli.system.bounded_json import parse_json

EVERYBODY = "*"
LARGEST = 4 * 1024 * 1024
"""Bytes of a file whose content is looked for in what an agent is shown; a larger one is kept away
by its path.
"""

WORD = re.compile(r"[^\s'\"`()\[\]{}<>,;:=|]+")
SHORTEST_LINE = 6
SHORTEST_WORD = 8
"""Characters. Shorter pieces stand in too many files to say where they come from; a word with a
digit may be less.
"""

SEARCHED = 2000
"""Up to this number of denied lines, each is also searched for inside other lines. With more, only
whole lines and words are compared.
"""

COMMON_BYTES = 32 * 1024 * 1024
"""Bytes read of the files that every agent may read, to find what they have in common with denied
files.
"""

SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__"})


@dataclass(frozen=True)
class ContentFingerprint:
    """The lines of denied files, and their words that look like values: each gives content away."""

    lines: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()

    def __sub__(self, other: ContentFingerprint) -> ContentFingerprint:
        return ContentFingerprint(self.lines - other.lines, self.words - other.words)

    def __or__(self, other: ContentFingerprint) -> ContentFingerprint:
        return ContentFingerprint(self.lines | other.lines, self.words | other.words)

    def within(self, line: str) -> bool:
        """Return whether the line contains a piece of the content."""
        if line.strip() in self.lines:
            return True
        if any(word in self.words for word in WORD.findall(line)):
            return True
        return len(self.lines) <= SEARCHED and any(
            len(piece) >= 2 * SHORTEST_LINE and piece in line for piece in self.lines
        )


def fingerprint_of(text: str) -> ContentFingerprint:
    """Return pieces of a text by which copies of it are recognised."""
    lines = frozenset(
        line for part in text.splitlines() if len(line := part.strip()) >= SHORTEST_LINE
    )
    words = frozenset(word for word in WORD.findall(text) if _telling(word))
    return ContentFingerprint(lines, words)


def _telling(word: str) -> bool:
    has_digit = any(char.isdigit() for char in word)
    least_length = SHORTEST_LINE if has_digit else 2 * SHORTEST_WORD
    return len(word) >= least_length and any(char.isalnum() for char in word)


class Denials:
    """The rules of one session. `root` is the repository; patterns are relative to it, as in
    `deny`.
    """

    def __init__(self, rules: Mapping[str, tuple[str, ...]], root: Path) -> None:
        self._rules = dict(rules)
        self.root = Path(os.path.realpath(root))
        self._read: dict[Path, tuple[int, int, ContentFingerprint]] = {}
        self._common = self._shared() if self._rules else ContentFingerprint()
        """The content at the session's beginning of files that every agent may read: it gives
        nothing away.
        """

    def of(self, agent: str) -> tuple[str, ...]:
        """Return the patterns that hold for an agent."""
        return tuple(
            glob for glob, agents in self._rules.items() if agent in agents or EVERYBODY in agents
        )

    def covers(self, author: str, agent: str) -> bool:
        """Return whether everything kept from `agent` is also kept from `author`, who then cannot
        pass it on.
        """
        return set(self.of(agent)) <= set(self.of(author))

    def denied(self, agent: str, path: str, copy: Path | None = None) -> bool:
        """Return whether the path, or what it links to, is kept from the agent.

        Relative paths start at the root, and at `copy` if the agent works in a copy of the
        repository.
        """
        tops = [self.root] if copy is None else [self.root, Path(os.path.realpath(copy))]
        for top in tops:
            for absolute in (os.path.normpath(top / path), os.path.realpath(top / path)):
                relative = _relative(Path(absolute), top)
                if relative is not None and self._matches(agent, relative):
                    return True
        return False

    def files(self, agent: str) -> list[str]:
        """Return the files that are kept from the agent now, relative to the root."""
        return (
            [path for path in self._all() if self._matches(agent, path)] if self.of(agent) else []
        )

    def mentioned(self, agent: str, text: str) -> bool:
        """Return whether the text names a file that is kept from the agent, or the folder of a
        pattern.
        """
        folders = [glob.split("*")[0].rstrip("/") for glob in self.of(agent)]
        names = {*self.files(agent), *(folder for folder in folders if folder)}
        return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) for name in names)

    def traces(self, agent: str) -> ContentFingerprint:
        """Return the lines and words that give away the content of those files."""
        fingerprint = ContentFingerprint()
        for path in self.files(agent):
            fingerprint |= self._fingerprint_of_file(self.root / path)
        return fingerprint - self._common

    def _shared(self) -> ContentFingerprint:
        lines: set[str] = set()
        words: set[str] = set()
        left = COMMON_BYTES
        kept = [path for path in self._all() if any(_fits(glob, path) for glob in self._rules)]
        same = {self._identity(path) for path in kept}
        for path in self._all():
            if self._identity(path) in same:  # also under another name: a link
                continue
            fingerprint = self._fingerprint_of_file(self.root / path)
            left -= sum(map(len, fingerprint.lines))
            if left < 0:
                break
            lines |= fingerprint.lines
            words |= fingerprint.words
        return ContentFingerprint(frozenset(lines), frozenset(words))

    def _matches(self, agent: str, path: str) -> bool:
        return any(_fits(glob, path) for glob in self.of(agent))

    def _identity(self, path: str) -> tuple[int, int] | None:
        try:
            state = (self.root / path).stat()
        except OSError:
            return None
        return state.st_dev, state.st_ino

    def _all(self) -> Iterator[str]:
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if name not in SKIPPED]
            relative = PurePosixPath(Path(folder).relative_to(self.root).as_posix())
            for name in names:
                yield (relative / name).as_posix()

    def _fingerprint_of_file(self, path: Path) -> ContentFingerprint:
        """Return the fingerprint of all contents that the file has had. It is read again when it
        changes.
        """
        try:
            state = path.stat()
            if state.st_size > LARGEST:
                return ContentFingerprint()
            earlier = self._read.get(path)
            if earlier is not None and earlier[:2] == (state.st_mtime_ns, state.st_size):
                return earlier[2]
            fingerprint = fingerprint_of(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return ContentFingerprint()
        if earlier is not None:
            fingerprint |= earlier[2]
        self._read[path] = (state.st_mtime_ns, state.st_size, fingerprint)
        return fingerprint


def _fits(glob: str, path: str) -> bool:
    bare = glob.removeprefix("./").rstrip("/")
    return any(rule_matching.glob_regex(form).fullmatch(path) for form in (bare, f"{bare}/**"))


def _relative(path: Path, top: Path) -> str | None:
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else None


VERBATIM = names_of(
    "ls cat head tail wc pwd echo printf grep egrep fgrep rg find fd tree file stat du df which "
    "type whoami date "
    "basename dirname realpath readlink sort uniq nl diff cmp comm true false test [ cd : sleep "
    "exit wait set tac tee "
    "rm mv cp ln touch mkdir rmdir chmod patch kill"
)
"""Commands that show text unchanged, or show none."""

FILTERS = names_of(
    "sed awk gawk cut tr rev fold expand column paste join jq base64 base32 xxd od hexdump "
    "strings gzip gunzip zcat xz "
    "bzip2 zstd tar zip unzip cpio openssl md5sum sha1sum sha256sum sha512sum cksum shuf split"
)
"""Commands that transform text, but only of files named in their line."""

TESTERS = names_of(
    "pytest tox nox ruff mypy make cargo go npm pnpm yarn mvn gradle ctest phpunit rspec jest"
)
PYTHONS = frozenset({"python", "python3"})
WIDE = frozenset({"find", "fd", "rg", "tree", "tar", "cpio", "zip"})
"""Commands that read whole folders."""

GIT_SHOWS = names_of(
    "status add commit log diff show branch checkout switch restore stash rm mv rev-parse"
)


def may_disguise(text: str, root: Path) -> bool:
    """Return whether a command line could show a file that it does not name, and its content in a
    changed form (for example encoded).
    """
    line = parse_line(text)
    if line.fault:
        return True
    has_filter = False
    for command in line.commands:
        if command.name in FILTERS:
            has_filter = True
        elif not _shows_text_as_it_is(command):
            return True
    return has_filter and any(_may_read_more(command, root) for command in line.commands)


def _shows_text_as_it_is(command: Command) -> bool:
    arguments = command.arguments
    if command.name in PYTHONS:
        modules = (["pytest"], ["unittest"], ["ruff"], ["mypy"])
        return arguments[:1] == ["-m"] and arguments[1:2] in modules
    if command.name == "git":
        return bool(arguments) and arguments[0] in GIT_SHOWS
    if command.name == "find" and "-exec" in arguments:
        return False
    return command.name in VERBATIM or command.name in TESTERS


def _may_read_more(command: Command, root: Path) -> bool:
    """Return whether a command may read files that it does not name."""
    if command.name in WIDE or command.name in {"git", "xargs"}:
        return True
    words = [*command.words[1:], *(redirect.target for redirect in command.redirects)]
    return any(_stands_for_many(word, root) for word in words)


def _stands_for_many(word: Word, root: Path) -> bool:
    if word.text.startswith("-"):
        return word.text.lstrip("-").lower() in ("r", "recursive")
    return not word.plain or _is_folder(root / word.text)


def _is_folder(path: Path) -> bool:
    return path_exists(path) and path.is_dir()


WITHHELD = "[withheld: it may hold what deny_agents keeps from you]"


def visible_events(events: Sequence[Event], agent: str, denials: Denials | None) -> Sequence[Event]:
    """Return the events as the agent may see them: as many, in the same order.

    They must be all events of a log, because what is withheld depends on what came before.
    """
    if denials is None or not denials.of(agent):
        return events
    event_filter = _EventFilter(agent, denials)
    return [event_filter.visible(event) for event in events]


def visible_state(state: SessionState, agent: str, denials: Denials | None) -> SessionState:
    """Return the state that follows from the events as the agent may see them."""
    if denials is None or not denials.of(agent):
        return state
    return SessionState(visible_events(state.events, agent, denials))


def withheld_texts(events: Sequence[Event], agent: str, denials: Denials) -> list[str]:
    """Return the texts that `visible_events` removes."""
    pairs = zip(events, visible_events(events, agent, denials), strict=True)
    return [text for before, after in pairs if before != after for text in _texts(before)]


def disclosure_check(
    events: Sequence[Event], agent: str, denials: Denials
) -> Callable[[str], bool]:
    """Return a function that says whether a line gives away a denied file, or words of somebody who
    could have known it.
    """
    traces = denials.traces(agent)
    withheld = _lines_of(withheld_texts(events, agent, denials))
    visible = _lines_of(
        text for event in visible_events(events, agent, denials) for text in _texts(event)
    )
    kept = frozenset(line for line in withheld - visible if len(line) >= SHORTEST_LINE)
    beginnings, ends = sorted(kept), sorted(line[::-1] for line in kept)

    def gives_away(line: str) -> bool:
        text = line.strip().replace("&lt;", "<")  # as it is framed for a planner
        if text in kept or traces.within(line):
            return True
        may_be_cut = len(text) >= 2 * SHORTEST_LINE and text not in visible
        return may_be_cut and (_first_of(beginnings, text) or _first_of(ends, text[::-1]))

    return gives_away


def _lines_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the lines of the texts that are not blank."""
    lines = (line.strip() for text in texts for line in text.splitlines())
    return frozenset(line for line in lines if line)


def _first_of(lines: Sequence[str], piece: str) -> bool:
    """Return whether one of these sorted lines begins with the piece: cut text ends in the middle
    of a line.
    """
    index = bisect_left(lines, piece)
    return index < len(lines) and lines[index].startswith(piece)


def call_refusal(
    events: Sequence[Event],
    agent: str,
    call: Call,
    denials: Denials | None,
    copy: Path | None = None,
) -> str:
    """Return why the agent must not make this call, "" if it may be judged like any other.

    `copy` is the copy of the repository that the agent works in, if there is one.
    """
    if denials is None or not denials.of(agent):
        return ""
    foreign = call.tool.startswith(MCP)
    tool = facts_of(call.tool)
    if foreign or tool.shows_command_output or tool.command:
        files, what = denials.files(agent), "an MCP server" if foreign else "a command"
        return (
            f"{what} could read {files[0]}, which deny_agents keeps from {agent}" if files else ""
        )
    event_filter = _EventFilter(agent, denials)
    for event in events:
        event_filter.visible(event)
    for path in paths_in_call(call):
        if denials.denied(agent, path, copy) or path in event_filter.written:
            return f"deny_agents keeps {path} from {agent}"
    return ""


def paths_in_call(call: Call) -> list[str]:
    """Return the paths in a call's arguments."""
    try:
        arguments = parse_json(call.arguments or "{}")
    except ValueError:
        return []
    if not isinstance(arguments, dict):
        return []
    tool = facts_of(call.tool)
    keys = dict.fromkeys(("path", "file", "file_path", *tool.paths))
    values = [arguments[key] for key in keys if arguments.get(key) is not None]
    named = [name for value in values for name in names_in(value)]
    patch = arguments.get(tool.patch or "patch")
    return [*named, *patched_paths(patch)] if isinstance(patch, str) else named


class _EventFilter:
    """Goes through the events in order and withholds content of denied files from one agent, and
    the words of agents that may have seen such content.
    """

    def __init__(self, agent: str, denials: Denials) -> None:
        self._agent = agent
        self._denials = denials
        self._was_shown = False
        """Content of a denied file may have been in some agent's prompt."""
        self._withheld_calls: set[str] = set()
        """Ids of calls whose arguments are withheld."""
        self.written: set[str] = set()
        """Files written by agents that may have known such content."""
        self._agents: dict[int, str] = {}
        """The agent of each turn, by the turn's number."""

    def visible(self, event: Event) -> Event:
        """Return the next event as the agent may see it."""
        if isinstance(event, Assigned):
            self._agents[event.turn] = event.agent
        match event:
            case Replied():
                if not self._could_know(event.agent):
                    return event
                self._withheld_calls |= {call.id for call in event.calls}
                calls = tuple(_without_arguments(call) for call in event.calls)
                return event.model_copy(update={"text": WITHHELD, "thinking": (), "calls": calls})
            case Permitted() if event.call.id in self._withheld_calls:
                return event.model_copy(
                    update={"call": _without_arguments(event.call), "reason": ""}
                )
            case ToolRan():
                return self._visible_result(event)
            # another agent's words about what happened
            case Compacted() if self._could_know(event.agent):
                return event.model_copy(update={"summary": WITHHELD})
            case Planned() if self._could_know(event.agent):
                steps = tuple(step.model_copy(update={"instruction": ""}) for step in event.steps)
                return event.model_copy(update={"text": WITHHELD, "steps": steps, "fault": ""})
            case Assigned() if self._was_shown and event.instruction:
                instruction = WITHHELD if event.subtask is not None else ""
                return event.model_copy(update={"instruction": instruction, "reason": ""})
            case Merged() if self._was_shown:
                return event.model_copy(update={"diffs": (), "reason": ""})
            case Interrupted() if self._was_shown and event.partial:
                return event.model_copy(update={"partial": WITHHELD})
            case _:
                return event

    def _could_know(self, author: str) -> bool:
        """Return whether the author may have seen content of a denied file by now."""
        return self._was_shown and not self._denials.covers(author, self._agent)

    def _visible_result(self, event: ToolRan) -> Event:
        """Return a tool's result, without its output if that may hold denied content. Remember
        the content it showed and the files it wrote.
        """
        call = event.call
        if call.id in self._withheld_calls:
            self.written |= {change.path for change in event.changes}
            call = _without_arguments(call)
        elif self._may_show_denied(event):
            self._was_shown = True
            if any(self._denials.denied(self._agent, path) for path in paths_in_call(call)):
                call = _without_arguments(call)
        else:
            return event
        return event.model_copy(update={"call": call, "output": WITHHELD, "media": ()})

    def _may_show_denied(self, event: ToolRan) -> bool:
        """Return whether the tool may have shown such a file, or a file made from one."""
        if facts_of(event.call.tool).shows_names_only:
            return False
        if self._may_show_disguised(event):
            return True
        named = paths_in_call(event.call)
        if any(self._denials.denied(self._agent, path) or path in self.written for path in named):
            return True
        traces = self._denials.traces(self._agent)
        text = "\n".join(_texts(event))
        return self._denials.mentioned(self._agent, text) or any(
            traces.within(line) for line in text.splitlines()
        )

    def _may_show_disguised(self, event: ToolRan) -> bool:
        """Return whether the command of an agent that may read denied files could have shown one in
        a form that its text does not reveal, for example encoded.
        """
        is_denied_too = self._denials.covers(self._agents.get(event.turn, ""), self._agent)
        if is_denied_too or not facts_of(event.call.tool).shows_command_output:
            return False
        arguments = arguments_of(event.call)
        command = arguments.get("command") if isinstance(arguments, dict) else None
        shows_plainly = isinstance(command, str) and not may_disguise(command, self._denials.root)
        return not shows_plainly and bool(self._denials.files(self._agent))


def _without_arguments(call: Call) -> Call:
    return call.model_copy(update={"arguments": "{}"})


def _texts(event: Event) -> list[str]:
    """Return the texts of an event."""
    match event:
        case Replied():
            return [
                event.text,
                *(call.arguments for call in event.calls),
                *(block.text for block in event.thinking),
            ]
        case ToolRan():
            return [event.output, event.call.arguments, *(media.text for media in event.media)]
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
