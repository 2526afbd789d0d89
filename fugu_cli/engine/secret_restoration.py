"""A recorded call as it runs: for each mark in it, the secret value that the mark stands for.

Between the log, whose calls hold marks instead of secrets, and tool_calls.py, which judges and runs
them. Agents read marks and write them again. fugu's own tools get the values, so that a file keeps
its secret. A command gets a value only if a shell reads it as one plain word. Other tools get none,
so that no secret leaves this machine. A call that needs an unknown value is refused with a
sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fugu_cli.messages import Call
from fugu_cli.safety import paths
from fugu_cli.safety.redaction import MARK, restore_marks
from fugu_cli.session.call_arguments import MalformedArguments, arguments_of, patched_paths
from fugu_cli.session.log import Log, Redaction
from fugu_cli.snapshots import repository_files
from fugu_cli.tools.toolbox import AnyTool, Toolbox
from fugu_cli.tools.workspace import Workspace

LARGEST = 2_000_000
"""Bytes of a file whose secrets are looked for."""
_INERT = re.compile(r"[\w./:@%+=,][\w./:@%+=,-]*")
"""A value that reads the same in a shell, quoted or not, and is no option."""
OUTSIDE = (
    "{mark} stands for a secret, and secrets are not sent to {tool}. Leave the mark out, or let "
    "the tool read the value"
    " where it stands."
)
UNSAFE_IN_SHELL = (
    "{mark} stands for a secret that a shell would not read as one word. Let the command read it "
    "where it stands (a"
    " file, a variable), or change the file with edit or write."
)
UNKNOWN = (
    "what {mark} stands for is not known. Read the file that holds it and try again, or change "
    "only other lines with"
    " edit."
)
AMBIGUOUS = (
    "{mark} stands for more than one secret. Change only other lines with edit, and leave this "
    "one as it is."
)


class UnrestorableMark(Exception):
    """A mark in a call that cannot be put back. The message says what to do, for the agent."""


class RestoredCall(NamedTuple):
    """A call in two forms: as it is recorded, with masked secrets, and as it is judged and run,
    with the secrets.
    """

    recorded: Call
    call: Call


def restore_secrets(
    log: Log, toolbox: Toolbox, workspace: Workspace, call: Call, *, alone: bool = False
) -> Call:
    """Return the call with restored secrets, to be judged and run. Raises UnrestorableMark.

    `alone`: some files are withheld from the agent, so only secrets from the files that the call
    writes are restored.
    """
    mask = log.mask
    if mask is None:
        return call
    call = mask.original(call, others=not alone)
    if MARK.search(call.arguments) is None or call.tool not in toolbox:
        return call
    tool = toolbox[call.tool]
    if tool.foreign is not None or tool.leaves_machine:
        raise UnrestorableMark(OUTSIDE.format(mark=MARK.findall(call.arguments)[0], tool=tool.name))
    near: tuple[str, ...] = ()
    if tool.effect == "writes":
        near = _texts_of_written_files(workspace, call, mask, alone)
    arguments = restore_marks(call.arguments, _value_of_mark(mask, tool, near, alone))
    return call.model_copy(update={"arguments": arguments})


def _value_of_mark(
    mask: Redaction, tool: AnyTool, near: tuple[str, ...], alone: bool
) -> Callable[[str], str]:
    """Return a function from a mark to its secret, for a call of the tool. It raises
    UnrestorableMark.
    """

    def value(mark: str) -> str:
        values = mask.values(mark, near, others=not alone)
        if len(values) == 1:
            (only,) = values
            if tool.effect == "runs" and not _INERT.fullmatch(only):
                raise UnrestorableMark(UNSAFE_IN_SHELL.format(mark=mark))
            return only
        if tool.effect == "reads":
            return mark  # at worst the tool finds nothing
        raise UnrestorableMark((AMBIGUOUS if values else UNKNOWN).format(mark=mark))

    return value


def _texts_of_written_files(
    workspace: Workspace, call: Call, mask: Redaction, alone: bool
) -> tuple[str, ...]:
    """Return the present texts of the files that a call writes."""

    def restored(match: re.Match[str]) -> str:
        values = mask.values(match.group(), (), others=not alone)
        return next(iter(values)) if len(values) == 1 else match.group()

    arguments = arguments_of(call)
    if isinstance(arguments, MalformedArguments):
        return ()
    patch = arguments.get("patch")
    names = patched_paths(patch) if isinstance(patch, str) else (arguments.get("path"),)
    texts = []
    for name in names:
        if isinstance(name, str):
            texts.append(_text(workspace, MARK.sub(restored, name)))
    return tuple(text for text in texts if text)


def _text(workspace: Workspace, name: str) -> str:
    path = paths.locate(name, workspace.root)
    if not isinstance(path, Path) or not paths.inside(path, workspace.root):
        return ""
    try:
        data = path.read_bytes() if path.is_file() and path.stat().st_size <= LARGEST else b""
    except OSError:
        return ""
    return "" if repository_files.is_binary(data) else repository_files.decode_text(data).text
