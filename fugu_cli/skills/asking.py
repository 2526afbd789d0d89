"""What a typed line asks for: the request as it is, or the one that a custom command or a named skill makes of it.

Between what people type (the interface, `fugu run`) and the session, which records both. Pure but for reading a skill.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import UsageError
from fugu_cli.policy.paths import there
from fugu_cli.skills.command import BUILT_IN
from fugu_cli.skills.frontmatter import Fault
from fugu_cli.skills.loading import Kind, Library

SKILL = "skill"
"""`/skill NAME TEXT`: the request TEXT, with what the skill says."""
_LINE = re.compile(r"/(?P<name>[\w?][\w.:-]*)(?:\s+(?P<rest>.*))?", re.DOTALL)


@dataclass(frozen=True)
class Request:
    """`text` is what agents are asked; `typed` what the user wrote, where that is something else, or "".

    `skill` is what a skill says that the user named: it stands apart, so that its words are not taken for the user's.
    `agent` takes every turn, in `tier`; "" where nothing names them.
    """

    text: str
    typed: str = ""
    skill: str = ""
    agent: str = ""
    tier: str = ""


def request(text: str, library: Library) -> Request:
    """The request a line stands for. Raises UsageError for a skill that is not there or cannot be read, and for a
    command that is there and is left out."""
    found = _LINE.fullmatch(text.strip())
    if found is None:
        return Request(text)
    name, rest = found["name"], (found["rest"] or "").strip()
    if name == SKILL:
        return _with_skill(text, rest, library)
    command = library.command(name)
    if command is None:
        refuse_left_out("command", name, library)
        return Request(text)
    return Request(command.request(rest), text.strip(), agent=command.agent, tier=command.tier)


def headless(text: str, library: Library) -> Request:
    """The same where no interface is: a command that only it has, or one that is not there, is refused. A path that is
    there (`/tmp is full`) is a word like any other."""
    line = _LINE.fullmatch(text.strip())
    name = line["name"] if line is not None else ""
    if name in BUILT_IN - {SKILL}:
        raise UsageError(f"/{name} is a command of the terminal interface", hint="`fugu` alone opens it")
    found = request(text, library)
    near = difflib.get_close_matches(name, [command.name for command in library.commands], 1)
    if name and not found.typed and not there(Path("/", name)):
        meant = f"did you mean /{near[0]}? " if near else ""
        raise UsageError(f"there is no command /{name}", hint=f"{meant}`fugu skills` lists those there are")
    return found


def refuse_left_out(kind: Kind, name: str, library: Library) -> None:
    """Say why a skill or a command that was asked for is not used. Raises UsageError; does nothing for other names."""
    left = next((one for one in library.left if (one.kind, one.name) == (kind, name)), None)
    if left is not None:
        raise UsageError(f"the {kind} {name} is not used: {left.why}", hint=f"it stands in {left.path}")


def _with_skill(text: str, rest: str, library: Library) -> Request:
    if not rest:
        raise UsageError("which skill?", hint=_known(library))
    name, *wanted = rest.split(maxsplit=1)
    skill = library.skill(name)
    if skill is None:
        refuse_left_out("skill", name, library)
        near = difflib.get_close_matches(name, [one.name for one in library.skills], 1)
        raise UsageError(f"there is no skill {name!r}", hint=f"did you mean {near[0]}?" if near else _known(library))
    try:
        told = skill.text()
    except Fault as fault:
        raise UsageError(f"{skill.file}: {fault}", hint="`fugu skills` lists what there is") from fault
    return Request(wanted[0] if wanted else f"Follow the skill `{name}`.", text.strip(), told)


def _known(library: Library) -> str:
    names = ", ".join(skill.name for skill in library.skills)
    return f"there are {names}" if names else "there are none here: `fugu help skills` says where they lie"
