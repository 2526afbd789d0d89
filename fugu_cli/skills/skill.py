"""A skill: what agents are told of it at once, and its text, read when it is wanted.

Under loading.py, which finds the folders; beside command.py. The format is that of agentskills.io.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli import prompts
from fugu_cli.skills.frontmatter import Document, Fault, read

FILE = "SKILL.md"
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
LONGEST_NAME = 64
LONGEST = 1024
"""Characters of a description."""
BODY = 24_000
"""Characters of a skill's text that an agent gets at once; the rest it reads itself."""
ROOM = 6000
"""Characters of all descriptions together in an agent's prompt: about 1,500 tokens."""
LEAST = 60
"""Characters of a description that say something."""


@dataclass(frozen=True)
class Skill:
    """`folder` is resolved, `shown` the same as agents name it. `own`: it is the user's, not the repository's."""

    name: str
    description: str
    folder: Path
    shown: str
    own: bool
    digest: str

    @property
    def file(self) -> Path:
        """What says what to do."""
        return self.folder / FILE

    def text(self) -> str:
        """What an agent reads of it: where its files are, and the body. Raises Fault.

        A repository's has to be what it was when the user was asked to trust it: agents can write there.
        """
        document, data = read(self.file)
        if not self.own and _digest(data) != self.digest:
            raise Fault("it has changed since this session began; the user has to look at it, and to start fugu again")
        body = document.body
        if len(body) > BODY:
            kept = body[:BODY].rpartition("\n")[0] or body[:BODY]
            body = f"{kept}\n[{len(body) - len(kept):,} characters more: read {self.shown}/{FILE}]"
        return prompts.fill(prompts.load("skill"), name=self.name, folder=self.shown, body=body)


def skill_at(folder: Path, shown: str, *, own: bool) -> Skill:
    """The skill in a folder that holds one; `shown` ends with the folder's own name. Raises Fault."""
    document, data = read(folder / FILE)
    if document.fields is None:
        raise Fault("it has no front matter: name and description between two lines `---`")
    name = _name(document, shown.rpartition("/")[2])
    description = document.text("description")
    if not description:
        raise Fault("its `description` is missing: agents choose by it")
    if not document.body:
        raise Fault("it says nothing below its front matter")
    if len(description) > LONGEST:
        description = description[: LONGEST - 1] + "…"
    return Skill(name, _plain(description), folder, shown, own, _digest(data))


def _name(document: Document, folder: str) -> str:
    name = document.text("name")
    if not name:
        raise Fault("its `name` is missing")
    if len(name) > LONGEST_NAME or NAME.fullmatch(name) is None:
        raise Fault(f"its name {_plain(name[:LONGEST_NAME])!r} is not small letters, digits and single hyphens")
    if name != folder:
        raise Fault(f"it is called {name!r}, and its folder {folder!r}: they must be the same")
    return name


def told(skills: Sequence[Skill]) -> str:
    """Names and descriptions for a prompt, a line each: all of them in about ROOM characters, however many."""
    names = sum(len(skill.name) + 5 for skill in skills)
    share = max((ROOM - names) // max(len(skills), 1), 0)
    lines: list[str] = []
    left = ROOM
    for skill in skills:
        line = f"- {skill.name}"
        if share >= LEAST or len(skills) == 1:
            line += f": {_cut(skill.description, _fair(skills, share))}"
        left -= len(line) + 1
        if left < 0:
            lines.append(f"({len(skills) - len(lines)} more, which the user names)")
            break
        lines.append(line)
    return "\n".join(lines)


def _fair(skills: Sequence[Skill], share: int) -> int:
    """How long a description may be: what short ones leave of their share is the long ones'."""
    lengths = sorted(len(skill.description) for skill in skills)
    left = share * len(lengths)
    for index, length in enumerate(lengths):
        allowed = left // (len(lengths) - index)
        if length > allowed:
            return allowed
        left -= length
    return LONGEST


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(most - 1, 1)]}…"


def _plain(text: str) -> str:
    """Without what a terminal or a prompt would take for something else."""
    return "".join(letter for letter in text if letter.isprintable())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
