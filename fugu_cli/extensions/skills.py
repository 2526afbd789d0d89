"""A skill and a custom command as described in files: Markdown with YAML front matter.

skill_library.py finds the files. Agents see a skill's description at once and read its text when
they need it; the format is that of agentskills.io. A custom command is a prepared request with
placeholders for what is typed after its name. Every value of the front matter is text. Nothing here
is run.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

from fugu_cli import prompts
from fugu_cli.extensions.mcp_settings import PLUGIN_VARIABLE

LARGEST = 100_000
"""The most bytes of a file. More would not fit into a request."""
FENCE = "---"
_UNQUOTED = re.compile(
    r"^(?P<key>[A-Za-z][\w-]*):[ \t]+(?P<value>[^\s\"'|>&*{].*?)[ \t]*$", re.MULTILINE
)
"""Matches an unquoted value, like `description: use it: now` or `argument-hint: [A] [B]`."""


class DocumentError(Exception):
    """A file cannot be used. The message is a clause that follows its name."""


@dataclass(frozen=True)
class FrontMatterDocument:
    """The parts of a file. `fields` is None if it has no front matter."""

    fields: Mapping[str, object] | None
    body: str

    def listed(self, key: str) -> str:
        """Return a field as text. A list becomes the text `[A, B]` that it was written as."""
        value = (self.fields or {}).get(key)
        return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else self.text(key)

    def text(self, key: str) -> str:
        """Return a field as one line of text, "" if it is missing. Raises DocumentError for a list
        or table.
        """
        value = (self.fields or {}).get(key, "")
        if not isinstance(value, str):
            raise DocumentError(f"`{key}` should be a text")
        return " ".join(value.split())


def read_document(path: Path) -> tuple[FrontMatterDocument, bytes]:
    """Return the parts of a file and its bytes. Raises DocumentError."""
    data = _data(path)
    if b"\0" in data:
        raise DocumentError("it is not a text file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"it is not UTF-8 text (byte {error.start})") from error
    return parse_document(text), data


def parse_document(text: str) -> FrontMatterDocument:
    """Split a text into its parts. Raises DocumentError."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        return FrontMatterDocument(None, text.strip())
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise DocumentError(f"its front matter has no end: a line `{FENCE}` is missing")
    return FrontMatterDocument(
        _fields("\n".join(lines[1:end])), "\n".join(lines[end + 1 :]).strip()
    )


def _data(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise DocumentError("it is not a file")
        if (size := path.stat().st_size) > LARGEST:
            raise DocumentError(f"it is too large: {size:,} bytes, {LARGEST:,} at most")
        return path.read_bytes()
    except OSError as error:
        raise DocumentError(f"it cannot be read: {error.strerror}") from error


def _fields(text: str) -> Mapping[str, object]:
    """Parse the front matter. Unquoted values that are not valid YAML are read as other programs
    read them.
    """
    try:
        fields = _load_yaml(text)
    except DocumentError as fault:
        quoted = _UNQUOTED.sub(_quote_value, text)
        try:
            fields = _load_yaml(quoted)
        except DocumentError:
            raise fault from None
    if fields is None or fields == "":
        return {}
    if not isinstance(fields, dict):
        raise DocumentError("its front matter should hold `name: value` lines")
    return fields


def _load_yaml(text: str) -> object:
    import yaml  # a tenth of what starting costs: only where there is something to read

    try:
        return yaml.load(text, Loader=yaml.BaseLoader)  # texts, lists and tables, nothing else
    except yaml.MarkedYAMLError as error:
        line = (
            f"line {error.problem_mark.line + 2}"
            if error.problem_mark is not None
            else "its front matter"
        )
        raise DocumentError(f"{line} is not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise DocumentError(
            "its front matter is not valid YAML: it holds characters that YAML does not take"
        ) from error
    except RecursionError as error:
        raise DocumentError("its front matter is nested too deeply") from error


def _quote_value(line: re.Match[str]) -> str:
    value = line["value"].replace("'", "''")
    return f"{line['key']}: '{value}'"


PLUGIN_ROOT = f"${{{PLUGIN_VARIABLE}}}"
"""Stands for a plugin's folder in its files."""
SKILL_FILE = "SKILL.md"
SKILL_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1024
"""The most characters of a description."""
BODY_LIMIT = 24_000
"""Characters of a skill's text that an agent gets at once. It reads the rest from the file."""
DESCRIPTIONS_LIMIT = 6000
"""The most characters of all descriptions together in a prompt: about 1,500 tokens."""
SHORTEST_DESCRIPTION = 60
"""Descriptions are left out if they would have to be shorter than this."""


@dataclass(frozen=True)
class Skill:
    """A skill in the resolved `folder`; agents see its path as `shown`. `own`: it is the user's,
    not the repository's. `plugin` names the plugin that brings it, whose folder is `plugin_root`.
    """

    name: str
    description: str
    folder: Path
    shown: str
    own: bool
    digest: str
    plugin: str = ""
    plugin_root: str = ""

    @property
    def file(self) -> Path:
        """The file with the instructions."""
        return self.folder / SKILL_FILE

    def text(self) -> str:
        """Return the text for agents: where the files are, and the body. Raises DocumentError.

        A repository's skill must not have changed since the user trusted it, because agents can
        write there.
        """
        document, data = read_document(self.file)
        if not self.own and _digest(data) != self.digest:
            raise DocumentError(
                "it has changed since this session began; the user has to look at it, and to "
                "start fugu again"
            )
        body = document.body
        if self.plugin:
            body = body.replace(PLUGIN_ROOT, self.plugin_root)
        if len(body) > BODY_LIMIT:
            kept = body[:BODY_LIMIT].rpartition("\n")[0] or body[:BODY_LIMIT]
            body = (
                f"{kept}\n[{len(body) - len(kept):,} characters more: read "
                f"{self.shown}/{SKILL_FILE}]"
            )
        return prompts.fill(prompts.load("skill"), name=self.name, folder=self.shown, body=body)


def skill_at(folder: Path, shown: str, *, own: bool, plugin: str = "") -> Skill:
    """Read the skill in a folder. `shown` ends with the folder's name. A skill of a `plugin` may
    have another name than its folder, or a title; the folder's name counts then. Raises
    DocumentError.
    """
    document, data = read_document(folder / SKILL_FILE)
    if document.fields is None:
        raise DocumentError("it has no front matter: name and description between two lines `---`")
    folder_name = shown.rpartition("/")[2]
    if plugin and SKILL_NAME.fullmatch(folder_name) is not None:
        name = folder_name
    else:
        name = _name(document, folder_name)
    description = document.text("description")
    if not description:
        raise DocumentError("its `description` is missing: agents choose by it")
    if not document.body:
        raise DocumentError("it says nothing below its front matter")
    if len(description) > LONGEST_DESCRIPTION:
        description = description[: LONGEST_DESCRIPTION - 1] + "…"
    return Skill(name, printable(description), folder, shown, own, _digest(data), plugin)


def _name(document: FrontMatterDocument, folder: str) -> str:
    name = document.text("name")
    if not name:
        raise DocumentError("its `name` is missing")
    if len(name) > LONGEST_NAME or SKILL_NAME.fullmatch(name) is None:
        raise DocumentError(
            f"its name {printable(name[:LONGEST_NAME])!r} is not small letters, digits and "
            f"single hyphens"
        )
    if name != folder:
        raise DocumentError(
            f"it is called {name!r}, and its folder {folder!r}: they must be the same"
        )
    return name


class Described(Protocol):
    """A skill or a subagent with its description for agents."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...


def describe_each(skills: Sequence[Described]) -> str:
    """Return a line for each skill, in about DESCRIPTIONS_LIMIT characters altogether."""
    names = sum(len(skill.name) + 5 for skill in skills)
    share = max((DESCRIPTIONS_LIMIT - names) // max(len(skills), 1), 0)
    lines: list[str] = []
    left = DESCRIPTIONS_LIMIT
    for skill in skills:
        line = f"- {skill.name}"
        if share >= SHORTEST_DESCRIPTION or len(skills) == 1:
            line += f": {_shorten(skill.description, _fair_length(skills, share))}"
        left -= len(line) + 1
        if left < 0:
            lines.append(f"({len(skills) - len(lines)} more, which the user names)")
            break
        lines.append(line)
    return "\n".join(lines)


def _fair_length(skills: Sequence[Described], share: int) -> int:
    """Return the largest number of characters for one description. What short descriptions do not
    need of their share goes to long ones.
    """
    lengths = sorted(len(skill.description) for skill in skills)
    left = share * len(lengths)
    for index, length in enumerate(lengths):
        allowed = left // (len(lengths) - index)
        if length > allowed:
            return allowed
        left -= length
    return LONGEST_DESCRIPTION


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: max(length - 1, 1)]}…"


def printable(text: str) -> str:
    """Remove characters that a terminal or a prompt would take for something else."""
    return "".join(letter for letter in text if letter.isprintable())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


BUILT_IN = frozenset({
    "help", "?", "new", "clear", "sessions", "resume", "fork", "rename", "continue", "undo",
    "redo", "diff", "blame", "jobs", "retry", "skip", "pin", "exclude", "pool", "model",
    "tier", "cost", "trace", "mode", "commit", "context", "effort", "login", "memory", "permissions",
    "skill", "skills", "compact", "copy", "export", "open", "theme", "notify", "doctor",
    "trust", "quit", "exit", "q", "rewind", "remember",
})  # fmt: skip
"""Commands of the interface (ui/tui/commands.py). No file may use their names."""
COMMAND_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
ABOUT = 200
"""Characters of a description that lists show."""
Tier = Literal["", "fugu", "ultra"]
TIERS: tuple[Tier, ...] = get_args(Tier)
_PLACEHOLDER = re.compile(r"(?P<kept>\\)?\$(?P<what>ARGUMENTS|[1-9])(?!\w)")


@dataclass(frozen=True)
class CustomCommand:
    """A command, typed as `/name` with folders before colons.

    `agent` takes every turn in `tier`; "" if the file names none. `own`: it is the user's, not the
    repository's. `plugin` names the plugin that brings it.
    """

    name: str
    about: str
    body: str
    hint: str
    agent: str
    tier: Tier
    file: Path
    own: bool
    plugin: str = ""

    @property
    def full_name(self) -> str:
        """The name with that of its plugin in front."""
        prefix = f"{self.plugin}:" if self.plugin else ""
        return prefix + self.name.removeprefix(prefix)

    def request(self, typed: str) -> str:
        """Fill the arguments into the body, or add them after it if it has no placeholder."""
        words = _words(typed)
        has_placeholder = False

        def fill(match: re.Match[str]) -> str:
            nonlocal has_placeholder
            name = match["what"]
            if match["kept"]:
                return f"${name}"
            has_placeholder = True
            if name == "ARGUMENTS":
                return typed
            return words[int(name) - 1] if int(name) <= len(words) else ""

        text = _PLACEHOLDER.sub(fill, self.body)
        return text if has_placeholder or not typed else f"{text}\n\nArguments: {typed}"


def _words(typed: str) -> list[str]:
    try:
        return shlex.split(typed)
    except ValueError:  # a lone quote is a letter like any other
        return typed.split()


def command_at(file: Path, name: str, *, own: bool) -> CustomCommand:
    """Read the command in a file. Raises DocumentError."""
    if not all(COMMAND_NAME.fullmatch(part) for part in name.split(":")):
        raise DocumentError("its name cannot be typed: letters, digits, `_`, `-` and `.` only")
    if name in BUILT_IN:
        raise DocumentError(f"/{name} is a command of fugu's own, which wins")
    document, _ = read_document(file)
    if not document.body:
        raise DocumentError("it says nothing")
    tier_text = document.text("tier")
    tiers: dict[str, Tier] = {tier: tier for tier in TIERS}
    if tier_text not in tiers:
        raise DocumentError(f"its `tier` is {tier_text!r}: fugu or ultra")
    about = document.text("description") or document.body.splitlines()[0].lstrip("# ").strip()
    return CustomCommand(
        name=name,
        about=printable(about)[:ABOUT],
        body=document.body,
        hint=printable(document.listed("argument-hint")),
        agent=document.text("agent"),
        tier=tiers[tier_text],
        file=file,
        own=own,
    )
