"""The rule language of `allow`, `ask` and `deny`: `bash(git *)`, `edit(src/**)`, `write`, `mcp_*`.

Stands beside the judge. `read` also covers list, glob and grep; `edit` and `write` both cover every tool that changes
files; `web_fetch` goes by hosts (web.py); any other name is a tool's, with `*`. In a command `*` is anything; in a path
it stops at `/`, `**` does not.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

READING = frozenset({"read", "list", "glob", "grep"})
WRITING = frozenset({"edit", "write", "apply_patch"})
MCP = "mcp__"
"""What the names of MCP servers' tools begin with: `mcp__SERVER__TOOL`."""

FETCH = "web_fetch"
"""The tool whose rules go by hosts (web.py)."""

_FORM = re.compile(r"\s*([\w*.-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NO_HOST = re.compile(r"[/\s@#]|domain:")


def fault(pattern: str) -> str:
    """What is wrong with a pattern, "" when nothing is."""
    found = _FORM.fullmatch(pattern)
    if found is None:
        return f"`{pattern}` is not a rule; write a tool's name, or name(pattern), like bash(git *)"
    if found.group(1) == FETCH and _NO_HOST.search((found.group(2) or "").strip()):
        return f"`{pattern}` names no host; write it like web_fetch(docs.python.org) or web_fetch(*.python.org)"
    return ""


def split(pattern: str) -> tuple[str, str]:
    """(tool name, argument pattern or ""). Raises ValueError for what `fault` names."""
    found = _FORM.fullmatch(pattern)
    if found is None or (found.group(1) == FETCH and fault(pattern)):
        raise ValueError(fault(pattern))
    return found.group(1), (found.group(2) or "").strip()


def escaped(tool: str, argument: str) -> str:
    """`argument` as a pattern that means these very characters: each that stands for others alone in a set."""
    if tool == FETCH:
        return argument  # a host: nothing in it stands for others
    return re.sub(r"[*?\[]" if tool == "bash" else r"[*?\[{]", r"[\g<0>]", argument)


def means(pattern: str, tool: str, argument: str) -> bool:
    """The pattern is for this argument alone, written as it is or escaped."""
    return split(pattern)[1] in {argument, escaped(tool, argument)}


def covers(name: str, tool: str) -> bool:
    """A rule's name covers this tool."""
    if name == "read":
        return tool in READING
    if name in {"edit", "write"}:
        return tool in WRITING
    return fnmatchcase(tool, name)


def match_path(pattern: str, tool: str, path: Path, root: Path) -> bool:
    """`path` is resolved. Patterns are relative to `root` unless they start with `/`."""
    name, argument = split(pattern)
    if not covers(name, tool):
        return False
    if argument in {"", "*", "**"}:
        return True
    if argument.startswith("/"):
        return any(glob(form).fullmatch(path.as_posix()) for form in (argument, argument.removesuffix("/**")))
    if root not in path.parents and path != root:
        return False
    relative = path.relative_to(root).as_posix()
    forms = (argument, f"{argument.rstrip('/')}/**", argument.removesuffix("/**"))
    return any(glob(form).fullmatch(relative) for form in forms)


def match_command(pattern: str, tool: str, command: str) -> bool:
    """`bash(git *)` covers `git status` and `git`; `bash(npm test:*)`, as other agents write it, means `npm test *`."""
    name, argument = split(pattern)
    if not covers(name, tool):
        return False
    if argument in {"", "*"}:
        return True
    if argument.endswith(":*"):
        argument = argument[:-2] + " *"
    text = " ".join(command.split())
    return fnmatchcase(text, argument) or (argument.endswith(" *") and text == argument[:-2])


@cache
def glob(pattern: str) -> re.Pattern[str]:
    """A path glob as a regular expression for whole posix paths: `*`, `?`, `[a-z]`, `{a,b}`, `**` over folders."""
    pattern = pattern.removeprefix("./")
    try:
        return re.compile(_translate(pattern), re.DOTALL)
    except re.error:  # a set like [z-a]
        return re.compile(re.escape(pattern))


_TOKEN = re.compile(
    r"(?P<deep>\*\*/)|(?P<all>\*\*)|(?P<star>\*)|(?P<one>\?)|(?P<set>\[[^\]]+\])|(?P<either>\{[^{}]*\})"
)


def _translate(pattern: str) -> str:
    out, at = "", 0
    for token in _TOKEN.finditer(pattern):
        out += re.escape(pattern[at : token.start()])
        at = token.end()
        match token.lastgroup:
            case "deep":
                out += "(?:.*/)?"
            case "all":
                out += ".*"
            case "star":
                out += "[^/]*"
            case "one":
                out += "[^/]"
            case "set":
                inner = token.group()[1:-1].replace("\\", "\\\\").replace("[", "\\[")
                out += f"[{'^' + inner[1:] if inner.startswith('!') else inner}]"
            case _:
                out += "(?:" + "|".join(_translate(part) for part in token.group()[1:-1].split(",")) + ")"
    return out + re.escape(pattern[at:])
