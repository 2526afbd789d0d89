"""The rule language of `allow`, `ask` and `deny`: `bash(git *)`, `edit(src/**)`, `write`, `mcp_*`.

Stands beside the judge. `read` also covers list, glob and grep; `edit` and `write` both cover every tool that changes
files; `web_fetch` goes by hosts (web.py); any other name is a tool's, with `*`, or `mcp__SERVER` for all of a server's.
In a command `*` is anything; in a path it stops at `/`, `**` does not. What can fit no call is a fault: a rule that
forbids nothing must not look like one that does.
"""

from __future__ import annotations

import difflib
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from fugu_cli.policy.paths import inside, real

READING = frozenset({"read", "list", "glob", "grep"})
WRITING = frozenset({"edit", "write", "apply_patch"})
MCP = "mcp__"
"""What the names of MCP servers' tools begin with: `mcp__SERVER__TOOL`."""

FETCH = "web_fetch"
"""The tool whose rules go by hosts (web.py)."""

NAMED_ALONE = frozenset(
    {"run_tests", "todo", "job_output", "job_stop", "diff", "acceptance_check", "run_check", "tests_before"}
)
"""Tools whose arguments no rule looks at, as those of MCP servers."""
TOOLS = READING | WRITING | NAMED_ALONE | {"bash", "skill", FETCH}
"""fugu's own tools, by the names that rules and hooks know them by."""
EVERYTHING = frozenset({"", "*", "**"})

_FORM = re.compile(r"\s*([\w*.-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NO_HOST = re.compile(r"[/\s@#]|domain:")
_GLOBBED = re.compile(r"[*?\[{]")


def fault(pattern: str) -> str:
    """What is wrong with a pattern, "" when nothing is."""
    found = _FORM.fullmatch(pattern)
    if found is None:
        return f"`{pattern}` is not a rule; write a tool's name, or name(pattern), like bash(git *)"
    name, argument = _canonical(found.group(1)), (found.group(2) or "").strip()
    if not _is_known(name):
        return f"`{pattern}` fits no tool: {unknown(name)}"
    if name == FETCH and _NO_HOST.search(argument):
        return f"`{pattern}` names no host; write it like web_fetch(docs.python.org) or web_fetch(*.python.org)"
    alone = name in NAMED_ALONE or (name.startswith(MCP) and "*" not in name)
    if alone and argument not in EVERYTHING | {name}:
        return f"`{pattern}`: rules for {name} go by its name, not by what it is called with; write {name}"
    return ""


def unknown(name: str) -> str:
    """That there is no such tool, and which one is meant."""
    near = difflib.get_close_matches(name.lower(), TOOLS, n=1, cutoff=0.7)
    known = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(TOOLS))} and mcp__SERVER__TOOL"
    return f"there is none called `{name}`; {known}"


def _canonical(name: str) -> str:
    """`Bash`, as other agents write it, is bash; a server's tool is called as the server says."""
    return name.lower() if name.lower() in TOOLS else name


def _is_known(name: str) -> bool:
    """Some tool can have this name; which ones servers offer is not known here."""
    head, star, _ = name.partition("*")
    if not star:
        return name in TOOLS or name.startswith(MCP)
    return head.startswith(MCP) or MCP.startswith(head) or any(fnmatchcase(tool, name) for tool in TOOLS)


@cache
def split(pattern: str) -> tuple[str, str]:
    """(tool name, argument pattern or ""). Raises ValueError for what `fault` names."""
    found = _FORM.fullmatch(pattern)
    if found is None or fault(pattern):
        raise ValueError(fault(pattern))
    return _canonical(found.group(1)), (found.group(2) or "").strip()


def escaped(tool: str, argument: str) -> str:
    """`argument` as a pattern that means these very characters: each that stands for others alone in a set."""
    if tool == FETCH:
        return argument  # a host: nothing in it stands for others
    return re.sub(r"[*?\[]", r"[\g<0>]", argument) if tool == "bash" else _literal(argument)


def _literal(path: str) -> str:
    return _GLOBBED.sub(r"[\g<0>]", path)


def means(pattern: str, tool: str, argument: str) -> bool:
    """The pattern is for this argument alone, written as it is or escaped."""
    return split(pattern)[1] in {argument, escaped(tool, argument)}


def means_path(pattern: str, path: Path, root: Path) -> bool:
    """The same for a path, which is resolved; the pattern is a whole path, which may begin in the home."""
    argument = split(pattern)[1]
    whole = argument.startswith(("/", "~"))
    return argument == str(path) or (whole and _anchored(argument, root, follow=False) == _literal(path.as_posix()))


def covers(name: str, tool: str) -> bool:
    """A rule's name covers this tool."""
    if name == "read":
        return tool in READING
    if name in {"edit", "write"}:
        return tool in WRITING
    server = name.startswith(MCP) and name.count("__") == 1
    return fnmatchcase(tool, name) or (server and tool.startswith(f"{name}__"))


def match_path(pattern: str, tool: str, path: Path, root: Path, *, forbids: bool) -> bool:
    """`path` is resolved. Patterns are relative to `root` unless they begin with `/` or `~`.

    What forbids follows every link. What allows follows none in the repository: whoever may write there could let a
    link lead anywhere.
    """
    name, argument = split(pattern)
    if not covers(name, tool):
        return False
    if argument in EVERYTHING:
        return True
    form = _anchored(argument, root, follow=forbids)
    forms = [form, form.removesuffix("/**")]
    if forbids or not argument.startswith("/"):
        forms.append(f"{form}/**")
    return any(glob(one).fullmatch(path.as_posix()) for one in forms)


def _anchored(argument: str, root: Path, *, follow: bool) -> str:
    """The pattern with `root` or the home before it and its links followed, up to the first part that is a glob."""
    parts = [part for part in argument.split("/") if part not in {"", "."}]
    fixed = next((at for at, part in enumerate(parts) if _GLOBBED.search(part)), len(parts))
    place = Path("/") if argument.startswith("/") else root
    for part in parts[:fixed]:
        if part == "~" and part is parts[0] and not argument.startswith("/"):
            place = real(Path.home())
        elif follow or not inside(place, root):
            place = real(place / part)
        else:
            place = place.parent if part == ".." else place / part
    return "/".join([_literal(place.as_posix()).rstrip("/"), *parts[fixed:]])


def match_command(pattern: str, tool: str, command: str) -> bool:
    """`bash(git *)` covers `git status` and `git`; `bash(npm test:*)`, as other agents write it, means `npm test *`."""
    name, argument = split(pattern)
    if not covers(name, tool):
        return False
    if argument in EVERYTHING:
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
