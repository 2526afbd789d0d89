"""The language of the user's rules, and whether a rule covers a path, a server or a whole
command line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.safety.paths import inside, real_path
from fugu_cli.session.tool_facts import MCP, WEB_FETCH, facts_of, tool_names

if TYPE_CHECKING:
    from fugu_cli.safety.web_addresses import WebAddress

EVERYTHING = frozenset({"", "*", "**"})

_FORM = re.compile(r"\s*([\w*.-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NO_HOST = re.compile(r"[/\s@#]|domain:")
_GLOBBED = re.compile(r"[*?\[{]")


def pattern_fault(pattern: str) -> str:
    """Return what is wrong with a pattern, "" when nothing is."""
    form = _FORM.fullmatch(pattern)
    if form is None:
        return f"`{pattern}` is not a rule; write a tool's name, or name(pattern), like bash(git *)"
    name, argument = _canonical(form.group(1)), (form.group(2) or "").strip()
    if not _is_known(name):
        return f"`{pattern}` fits no tool: {unknown_tool(name)}"
    subject = facts_of(name).rules_by
    if subject == "host" and _NO_HOST.search(argument):
        return (
            f"`{pattern}` names no host; write it like web_fetch(docs.python.org) or "
            f"web_fetch(*.python.org)"
        )
    if subject == "name" and "*" not in name and argument not in EVERYTHING | {name}:
        return (
            f"`{pattern}`: rules for {name} go by its name, not by what it is called with; write "
            f"{name}"
        )
    return ""


def unknown_tool(name: str) -> str:
    """Say that there is no such tool, and which one may be meant."""
    near = difflib.get_close_matches(name.lower(), tool_names(), n=1, cutoff=0.7)
    advice = f"there are {', '.join(sorted(tool_names()))} and mcp__SERVER__TOOL"
    if near:
        advice = f"did you mean {near[0]}?"
    return f"there is none called `{name}`; {advice}"


def _canonical(name: str) -> str:
    """Return the tool that a rule names: other agents write "Bash" for bash. A name of a server's tool stays."""
    return name.lower() if name.lower() in tool_names() else name


def _is_known(name: str) -> bool:
    """Return whether some tool can have this name, be it one that a server may offer."""
    head, star, _ = name.partition("*")
    if not star:
        return name in tool_names() or name.startswith(MCP)
    return (
        head.startswith(MCP)
        or MCP.startswith(head)
        or any(fnmatchcase(tool, name) for tool in tool_names())
    )


@cache
def split_pattern(pattern: str) -> tuple[str, str]:
    """Return the name of the tool, and the pattern for its argument or "". Raises ValueError with
    what `pattern_fault` returns.
    """
    form = _FORM.fullmatch(pattern)
    if form is None or pattern_fault(pattern):
        raise ValueError(pattern_fault(pattern))
    return _canonical(form.group(1)), (form.group(2) or "").strip()


def escape_argument(tool: str, argument: str) -> str:
    """Return `argument` as a pattern that means these very characters: those that would stand for
    others are put into a set of their own.
    """
    match facts_of(tool).rules_by:
        case "host":
            return argument  # nothing in it stands for others
        case "command":
            return re.sub(r"[*?\[]", r"[\g<0>]", argument)
        case _:
            return _literal_path(argument)


def _literal_path(path: str) -> str:
    return _GLOBBED.sub(r"[\g<0>]", path)


def means_exactly(pattern: str, tool: str, argument: str) -> bool:
    """Return whether the pattern is for this argument alone, written as it is or escaped."""
    return split_pattern(pattern)[1] in {argument, escape_argument(tool, argument)}


def means_path_exactly(pattern: str, path: Path, root: Path) -> bool:
    """Like `means_exactly`, for a resolved path. The pattern is a whole path, which may begin in the
    home.
    """
    argument = split_pattern(pattern)[1]
    whole = argument.startswith(("/", "~"))
    return argument == str(path) or (
        whole and _anchored(argument, root, follow=False) == _literal_path(path.as_posix())
    )


def covers_tool(name: str, tool: str) -> bool:
    """Return whether the name in a rule covers this tool."""
    if name == "read":
        return facts_of(tool).reads_files
    if name in {"edit", "write"}:
        return facts_of(tool).writes_files
    server = name.startswith(MCP) and name.count("__") == 1
    return fnmatchcase(tool, name) or (server and tool.startswith(f"{name}__"))


def match_path(pattern: str, tool: str, path: Path, root: Path, *, forbids: bool) -> bool:
    """Return whether a rule covers what the tool does to a resolved path. Patterns are relative to
    `root` unless they begin with `/` or `~`.

    What forbids follows every link. What allows follows none in the repository: whoever may write
    there could let a link lead anywhere.
    """
    name, argument = split_pattern(pattern)
    if not covers_tool(name, tool):
        return False
    if argument in EVERYTHING:
        return True
    pattern = _anchored(argument, root, follow=forbids)
    globs = [pattern, pattern.removesuffix("/**")]
    if forbids or not argument.startswith("/"):
        globs.append(f"{pattern}/**")
    return any(glob_regex(glob).fullmatch(path.as_posix()) for glob in globs)


def forbids_path(rule: str, path: Path, root: Path, written: bool = False) -> bool:
    """Return whether the rule keeps a resolved path from being read, or from being written."""
    return match_path(rule, "edit" if written else "read", path, root, forbids=True)


def read_denial(rules: Sequence[str]) -> Callable[[Path, Path], bool]:
    """Return a function that tells whether one of these rules, which forbid, keeps a resolved path
    below a root from being read.
    """
    return lambda path, root: any(forbids_path(rule, path, root) for rule in rules)


def _anchored(argument: str, root: Path, *, follow: bool) -> str:
    """Return the pattern with `root` or the home before it and its links followed, up to the first
    part that is a glob.
    """
    parts = [part for part in argument.split("/") if part not in {"", "."}]
    globs = [index for index, part in enumerate(parts) if _GLOBBED.search(part)]
    fixed = globs[0] if globs else len(parts)
    folder = Path("/") if argument.startswith("/") else root
    for index, part in enumerate(parts[:fixed]):
        if part == "~" and index == 0 and not argument.startswith("/"):
            folder = real_path(Path.home())
        elif follow or not inside(folder, root):
            folder = real_path(folder / part)
        else:
            folder = folder.parent if part == ".." else folder / part
    return "/".join([_literal_path(folder.as_posix()).rstrip("/"), *parts[fixed:]])


def match_command(pattern: str, tool: str, command: str) -> bool:
    """Return whether a pattern covers a command. `bash(git *)` covers `git status` and `git`;
    `bash(npm test:*)` means `npm test *`.
    """
    name, argument = split_pattern(pattern)
    if not covers_tool(name, tool):
        return False
    if argument in EVERYTHING:
        return True
    if argument.endswith(":*"):
        argument = argument[:-2] + " *"
    text = " ".join(command.split())
    return fnmatchcase(text, argument) or (argument.endswith(" *") and text == argument[:-2])


@cache
def glob_regex(pattern: str) -> re.Pattern[str]:
    """Return a path glob as a regular expression for whole posix paths. It knows `*`, `?`, `[a-z]`,
    `{a,b}`, and `**` over folders.
    """
    pattern = pattern.removeprefix("./")
    try:
        return re.compile(_translate(pattern), re.DOTALL)
    except re.error:  # a set like [z-a]
        return re.compile(re.escape(pattern))


_TOKEN = re.compile(
    r"(?P<deep>\*\*/)|(?P<all>\*\*)|(?P<star>\*)|(?P<one>\?)|(?P<set>\[[^\]]+\])|(?P<either>\{[^{}]*\})"
)


def _translate(pattern: str) -> str:
    regex, end = "", 0
    for token in _TOKEN.finditer(pattern):
        regex += re.escape(pattern[end : token.start()])
        end = token.end()
        match token.lastgroup:
            case "deep":
                regex += "(?:.*/)?"
            case "all":
                regex += ".*"
            case "star":
                regex += "[^/]*"
            case "one":
                regex += "[^/]"
            case "set":
                inner = token.group()[1:-1].replace("\\", "\\\\").replace("[", "\\[")
                regex += f"[{'^' + inner[1:] if inner.startswith('!') else inner}]"
            case _:
                choices = token.group()[1:-1].split(",")
                regex += f"(?:{'|'.join(map(_translate, choices))})"
    return regex + re.escape(pattern[end:])


def matches_address(pattern: str, address: WebAddress) -> bool:
    """Return whether the rule covers fetching from this address."""
    name, argument = split_pattern(pattern)
    if not covers_tool(name, WEB_FETCH.name):
        return False
    return argument in EVERYTHING or address.is_covered_by(argument)


def any_names(rules: Iterable[str], tool: str) -> bool:
    """Return whether a rule names the tool itself. Agents see a tool that leaves the machine only
    then.
    """
    return any(split_pattern(rule)[0] == tool for rule in rules)


def any_names_host(rules: Iterable[str], address: WebAddress) -> bool:
    """Return whether a rule names this very host: then it may be one of this machine or its
    network.
    """
    for rule in rules:
        name, pattern = split_pattern(rule)
        is_exact = bool(pattern) and not {"*", "?"} & set(pattern)
        if name == WEB_FETCH.name and is_exact and address.is_covered_by(pattern):
            return True
    return False
