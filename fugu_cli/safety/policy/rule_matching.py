"""The user's rules: their language, and which of them covers a path, a web address or a command line."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from fugu_cli import prompts
from fugu_cli.safety.paths import inside, real_path
from fugu_cli.safety.policy.classification import (
    ClassifiedCommand,
    expand_word,
    may_name_files,
    path_parts,
    possible_folders,
)
from fugu_cli.safety.policy.git_commands import after_options
from fugu_cli.safety.policy.programs import (
    SAFE_VARIABLES,
    WRITERS,
    RiskLevel,
    command_arguments,
    has_option,
    program_name,
)
from fugu_cli.safety.policy.shell_parser import MANY, ONE, Command, Word
from fugu_cli.safety.policy.tool_access import BUILT_IN, access_of, declared_names

READING = frozenset(name for name, access in BUILT_IN.items() if access.reads_files)
WRITING = frozenset(name for name, access in BUILT_IN.items() if access.writes_files)
MCP = "mcp__"
"""What the names of MCP servers' tools begin with: `mcp__SERVER__TOOL`."""

FETCH = "web_fetch"
"""The tool whose rules go by hosts."""

SEARCH = "web_search"
LEAVING = frozenset({FETCH, SEARCH})
"""Tools that send words of an agent's to other machines; rules offer them."""

NAMED_ALONE = frozenset(
    {"run_tests", "todo", "job_output", "job_stop", "diff", "acceptance_check", "run_check", "tests_before", SEARCH}
)
"""Tools whose arguments no rule looks at, as those of MCP servers."""
TOOLS = READING | WRITING | NAMED_ALONE | {"bash", "skill", "task", *LEAVING}
"""fugu's own tools, by the names that rules and hooks know them by."""
EVERYTHING = frozenset({"", "*", "**"})

_FORM = re.compile(r"\s*([\w*.-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NO_HOST = re.compile(r"[/\s@#]|domain:")
_GLOBBED = re.compile(r"[*?\[{]")


def pattern_fault(pattern: str) -> str:
    """What is wrong with a pattern, "" when nothing is."""
    found = _FORM.fullmatch(pattern)
    if found is None:
        return f"`{pattern}` is not a rule; write a tool's name, or name(pattern), like bash(git *)"
    name, argument = _canonical(found.group(1)), (found.group(2) or "").strip()
    if not _is_known(name):
        return f"`{pattern}` fits no tool: {unknown_tool(name)}"
    if name == FETCH and _NO_HOST.search(argument):
        return f"`{pattern}` names no host; write it like web_fetch(docs.python.org) or web_fetch(*.python.org)"
    alone = name in NAMED_ALONE or (name.startswith(MCP) and "*" not in name)
    if alone and argument not in EVERYTHING | {name}:
        return f"`{pattern}`: rules for {name} go by its name, not by what it is called with; write {name}"
    return ""


def unknown_tool(name: str) -> str:
    """That there is no such tool, and which one is meant."""
    near = difflib.get_close_matches(name.lower(), known_tools(), n=1, cutoff=0.7)
    known = (
        f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known_tools()))} and mcp__SERVER__TOOL"
    )
    return f"there is none called `{name}`; {known}"


@cache
def _described() -> frozenset[str]:
    """Tools that have a prompt."""
    return frozenset(file.stem for file in (prompts.folder() / "tools").glob("*.md"))


def known_tools() -> frozenset[str]:
    """Tools that a rule may name."""
    return TOOLS | declared_names() | _described()


def _canonical(name: str) -> str:
    """`Bash`, as other agents write it, is bash; a server's tool is called as the server says."""
    return name.lower() if name.lower() in known_tools() else name


def _is_known(name: str) -> bool:
    """Some tool can have this name; which ones servers offer is not known here."""
    head, star, _ = name.partition("*")
    if not star:
        return name in known_tools() or name.startswith(MCP)
    return head.startswith(MCP) or MCP.startswith(head) or any(fnmatchcase(tool, name) for tool in known_tools())


@cache
def split_pattern(pattern: str) -> tuple[str, str]:
    """(tool name, argument pattern or ""). Raises ValueError for what `fault` names."""
    found = _FORM.fullmatch(pattern)
    if found is None or pattern_fault(pattern):
        raise ValueError(pattern_fault(pattern))
    return _canonical(found.group(1)), (found.group(2) or "").strip()


def escape_argument(tool: str, argument: str) -> str:
    """`argument` as a pattern that means these very characters: each that stands for others alone in a set."""
    if tool == FETCH:
        return argument  # a host: nothing in it stands for others
    return re.sub(r"[*?\[]", r"[\g<0>]", argument) if tool == "bash" else _literal_path(argument)


def _literal_path(path: str) -> str:
    return _GLOBBED.sub(r"[\g<0>]", path)


def means_exactly(pattern: str, tool: str, argument: str) -> bool:
    """The pattern is for this argument alone, written as it is or escaped."""
    return split_pattern(pattern)[1] in {argument, escape_argument(tool, argument)}


def means_path_exactly(pattern: str, path: Path, root: Path) -> bool:
    """The same for a path, which is resolved; the pattern is a whole path, which may begin in the home."""
    argument = split_pattern(pattern)[1]
    whole = argument.startswith(("/", "~"))
    return argument == str(path) or (
        whole and _anchored(argument, root, follow=False) == _literal_path(path.as_posix())
    )


def covers_tool(name: str, tool: str) -> bool:
    """A rule's name covers this tool."""
    if name == "read":
        return access_of(tool).reads_files
    if name in {"edit", "write"}:
        return access_of(tool).writes_files
    server = name.startswith(MCP) and name.count("__") == 1
    return fnmatchcase(tool, name) or (server and tool.startswith(f"{name}__"))


def match_path(pattern: str, tool: str, path: Path, root: Path, *, forbids: bool) -> bool:
    """`path` is resolved. Patterns are relative to `root` unless they begin with `/` or `~`.

    What forbids follows every link. What allows follows none in the repository: whoever may write there could let a
    link lead anywhere.
    """
    name, argument = split_pattern(pattern)
    if not covers_tool(name, tool):
        return False
    if argument in EVERYTHING:
        return True
    form = _anchored(argument, root, follow=forbids)
    forms = [form, form.removesuffix("/**")]
    if forbids or not argument.startswith("/"):
        forms.append(f"{form}/**")
    return any(glob_regex(one).fullmatch(path.as_posix()) for one in forms)


def _anchored(argument: str, root: Path, *, follow: bool) -> str:
    """The pattern with `root` or the home before it and its links followed, up to the first part that is a glob."""
    parts = [part for part in argument.split("/") if part not in {"", "."}]
    fixed = next((at for at, part in enumerate(parts) if _GLOBBED.search(part)), len(parts))
    place = Path("/") if argument.startswith("/") else root
    for part in parts[:fixed]:
        if part == "~" and part is parts[0] and not argument.startswith("/"):
            place = real_path(Path.home())
        elif follow or not inside(place, root):
            place = real_path(place / part)
        else:
            place = place.parent if part == ".." else place / part
    return "/".join([_literal_path(place.as_posix()).rstrip("/"), *parts[fixed:]])


def match_command(pattern: str, tool: str, command: str) -> bool:
    """`bash(git *)` covers `git status` and `git`; `bash(npm test:*)`, as other agents write it, means `npm test *`."""
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


PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class WebAddress:
    """Where an address leads: the host in small letters and without a dot at its end, as it is asked for in DNS."""

    scheme: str
    host: str
    port: int

    @property
    def shown(self) -> str:
        """The host, and the port where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if PORTS[self.scheme] == self.port else f"{host}:{self.port}"


def web_address(url: str) -> WebAddress | str:
    """Where `url` leads, or what is wrong with it, for an agent."""
    if any(ord(letter) <= 32 or letter == "\\" for letter in url):
        return "it holds spaces, control characters or a backslash"
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").removesuffix("."), parts.port
        host = host if ":" in host or host.isascii() else host.encode("idna").decode("ascii")
    except ValueError as error:
        return str(error)
    if parts.scheme not in PORTS:
        return "only http:// and https:// are fetched"
    if parts.username is not None or parts.password is not None:
        return "a user name or password in an address is not sent"
    if not host or "%" in host or "*" in host:
        return "it names no host"
    return WebAddress(parts.scheme, host.lower(), PORTS[parts.scheme] if port is None else port)


def matches_address(pattern: str, place: WebAddress) -> bool:
    """The rule covers fetching from `place`."""
    name, argument = split_pattern(pattern)
    if not covers_tool(name, FETCH):
        return False
    return argument in EVERYTHING or _host_matches(argument, place)


def _host_matches(argument: str, place: WebAddress) -> bool:
    bare = f"[{place.host}]" if ":" in place.host else place.host
    wanted = _literal_host(_asked_for(argument))
    return any(fnmatchcase(form, wanted) for form in (place.host, bare, f"{bare}:{place.port}"))


def _asked_for(host: str) -> str:
    """As `place_of` writes it: in small letters, other alphabets as DNS knows them, no dot at its end."""
    with contextlib.suppress(UnicodeError):
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    return host.lower().removesuffix(".")


def _literal_host(argument: str) -> str:
    """Brackets are those of an IPv6 address and no set."""
    return argument.replace("[", "[[]")


def any_names(rules: Iterable[str], tool: str) -> bool:
    """Some rule names the tool itself. Agents see a tool that leaves the machine only then."""
    return any(split_pattern(rule)[0] == tool for rule in rules)


def any_names_host(rules: Iterable[str], place: WebAddress) -> bool:
    """Some rule names this very host: then it may be one of this machine or its network."""
    own = (split_pattern(rule) for rule in rules)
    return any(name == FETCH and argument and "*" not in argument and "?" not in argument
               and _host_matches(argument, place) for name, argument in own)  # fmt: skip


TOOL = "bash"
PLAINLY = "write simple commands, with their names and arguments in plain words, and one call for each"
"""How a line is written so that rules can be checked."""
IN_PLACE = frozenset({"sed", "perl", "ruby"})
"""Programs that write the files they are given with `-i`."""
COPIERS = frozenset({"cp", "mv", "ln", "install", "rsync", "scp"})
"""Programs by which what a file holds is found elsewhere."""
CHANGING = frozenset({"rm", "mv", "restore", "checkout", "apply", "clean"})
"""Commands of git that change the files they name."""


@dataclass(frozen=True)
class RuleMatch:
    """A rule, and why it counts where it is not sure that the line is what it means."""

    rule: str
    unclear: str = ""

    @property
    def forbids(self) -> str:
        if not self.unclear:
            return f"the rule {self.rule} forbids it"
        return f"the rule {self.rule} may forbid it: {self.unclear} ({PLAINLY})"


def forbidding_rule(
    rules: Sequence[str], line: str, judged: Sequence[ClassifiedCommand], root: Path, unread: str = ""
) -> RuleMatch | None:
    """The first rule that covers the line, a part of it, or a file that it names.

    `unread` says why the line could not be read: then every rule that could forbid a command does.
    """
    commands = [made for one in judged for made in (one.command, *one.carried)]
    surely = [line, *(form for command in commands for form in _forms(command, command_arguments(command)))]
    maybe = [form for command in commands if _open(command) for form in _open_forms(command)]
    why = f"policy cannot read it: {unread}" if unread else next((one.unclear for one in judged if one.unclear), "")
    files = list(_files(commands, root)) if any(map(_about_files, rules)) else []
    for rule in rules:
        if any(match_command(rule, TOOL, form) for form in surely):
            return RuleMatch(rule)
        if any(_forbids(rule, path, root, written) for path, written in files):
            return RuleMatch(rule)
        about_commands = covers_tool(split_pattern(rule)[0], TOOL)
        if (about_commands and why) or (unread and _about_files(rule)):
            return RuleMatch(rule, why)
        if about_commands and (form := next((one for one in maybe if _could_match(rule, one)), "")):
            return RuleMatch(rule, f"`{_plain(form)}` is known only when it runs")
    return None


def allowing_rule(rules: Sequence[str], judged: Sequence[ClassifiedCommand], root: Path, *, writes: bool) -> str:
    """The rule that allows the commands which run something, when every one of them has one.

    `writes`: files in the repository may be written unasked; else a rule for a command allows no redirection to one.
    """
    found = ""
    for one in judged:
        if one.finding.level is RiskLevel.READS:
            continue
        text = _with_variables(one.command)
        options = {one.finding.option, *(redirect.option for redirect in one.command.redirects)} - {""}
        rule = next((rule for rule in rules if match_command(rule, TOOL, text) and _names(rule, options)), "")
        if not rule or not one.command.words:
            return ""
        bare = split_pattern(rule)[1] in {"", "*"}
        if not (writes or bare or all(_may_write(rules, path, root) for path in _redirected(one.command, root))):
            return ""
        found = rule
    return found


def read_denial(rules: Sequence[str]) -> Callable[[Path, Path], bool]:
    """Whether one of these rules, which forbid, keeps a file (resolved) below a root from being read."""
    return lambda path, root: any(_forbids(rule, path, root) for rule in rules)


def _names(rule: str, options: set[str]) -> bool:
    """A rule for a reader allows an option by which it writes or runs something only when it names that option."""
    argument = split_pattern(rule)[1]
    return argument in EVERYTHING or all(option in argument for option in options)


def _forbids(rule: str, path: Path, root: Path, written: bool = False) -> bool:
    return match_path(rule, "edit" if written else "read", path, root, forbids=True)


def _forms(command: Command, arguments: Sequence[str]) -> Iterator[str]:
    """As it is written, and without what stands around its name: a folder before it, git's own options."""
    if not command.words:
        return
    name = command.words[0].shape
    yield " ".join([name, *arguments])
    plain = name.rsplit("/", 1)[-1]
    rest = after_options(arguments) if plain.lower() == "git" else arguments
    yield " ".join([plain, *rest])
    yield " ".join([plain.lower(), *rest])  # where letter case does not tell files apart


def _open(command: Command) -> bool:
    """Some of its words are known only when it runs."""
    return command.given_more or any(ONE in shape or MANY in shape for shape in command.shapes)


def _open_forms(command: Command) -> Iterator[str]:
    """The forms of such a command. One whose name is not known may run what stands behind it."""
    yield from _forms(command, command.shapes[1:])
    if program_name(command) == "git":  # what is known only when it runs may be an option before the subcommand
        rest = itertools.dropwhile(lambda shape: ONE in shape or MANY in shape, after_options(command.shapes[1:]))
        yield " ".join(["git", *rest])
    if command.words and command.words[0].shape != command.words[0].text:
        for at in range(1, len(command.words)):
            yield from _forms(replace(command, words=command.words[at:]), command.shapes[at + 1 :])


def _plain(form: str) -> str:
    return re.sub(f"[{ONE}{MANY}]+", "...", form)


def _could_match(rule: str, form: str) -> bool:
    """Some text that the form could be when it runs is one that the rule is for."""
    argument = split_pattern(rule)[1]
    if argument in EVERYTHING:
        return True
    argument = f"{argument[:-2]} *" if argument.endswith(":*") else argument
    whole = [argument, argument[:-2]] if argument.endswith(" *") else [argument]
    words = re.sub(f" *{MANY}[{MANY}{ONE}]* *", MANY, form)  # it may be no word at all
    return any(_meet([*_tokens(one, "*")], [*_tokens(words, MANY)]) for one in whole)


def _tokens(text: str, star: str) -> Iterator[str]:
    """Characters, "?" for any one, "*" for any text, "+" for any text without a space in it."""
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == star:
            yield "**"
        elif char == ONE:
            yield "++"
        elif star == "*" and (char == "?" or (char == "[" and "]" in text[at + 1 :])):
            at = text.find("]", at + 1) + 1 if char == "[" else at
            yield "??"
        else:
            yield char


def _meet(left: Sequence[str], right: Sequence[str]) -> bool:
    """Two patterns have a text in common."""
    states, seen = {(0, 0)}, set[tuple[int, int]]()
    while states:
        state = states.pop()
        if state in seen:
            continue
        seen.add(state)
        one, other = state
        if one == len(left) and other == len(right):
            return True
        a, b = left[one] if one < len(left) else "", right[other] if other < len(right) else ""
        if a in {"**", "++"}:
            states.add((one + 1, other))
        if b in {"**", "++"}:
            states.add((one, other + 1))
        if a and b and _agree(a, b):
            states.add((one + (a not in {"**", "++"}), other + (b not in {"**", "++"})))
    return False


def _agree(a: str, b: str) -> bool:
    """One character fits both."""
    if "++" in (a, b):
        return " " not in (a, b)
    return a == b or len(a) == 2 or len(b) == 2


def _with_variables(command: Command) -> str:
    """What it sets is a part of what is run; but for what changes nothing but its looks."""
    sets = [f"{name}={word.text}" for name, word in command.assignments if not SAFE_VARIABLES.fullmatch(name)]
    return " ".join([*sets, command.text])


def _about_files(rule: str) -> bool:
    return split_pattern(rule)[0] in {"read", "edit", "write"}


def _may_write(rules: Sequence[str], path: Path, root: Path) -> bool:
    return any(match_path(rule, "edit", path, root, forbids=False) for rule in rules)


def _redirected(command: Command, root: Path) -> Iterator[Path]:
    for redirect in command.redirects:
        if redirect.writes and not redirect.target.text.startswith("/dev/"):
            yield from expand_word(redirect.target, root, root)


def _files(commands: Sequence[Command], root: Path) -> Iterator[tuple[Path, bool]]:
    """The files that the commands plainly name, and whether they write them."""
    folders, given = possible_folders(commands, root), [command for command in commands if command.given_more]
    for command in commands:
        for word, written in _named(command, root, given):
            if word.text and not word.dynamic and "://" not in word.text and not _of_somebody(word.text):
                yield from ((path, written) for folder in folders for path in expand_word(word, folder, root))


def _named(command: Command, root: Path, given: Sequence[Command]) -> Iterator[tuple[Word, bool]]:
    """`given`: commands of the line that take names from elsewhere, of those that are printed too."""
    name, written = program_name(command), _writes(command)
    printed = bool(given) and name in {"echo", "printf"}
    for word in command.words[1:] if printed else may_name_files(command):
        for text in path_parts(word.text, name):
            named = _below_root(replace(word, text=text), root)
            yield named, written or (printed and any(map(_writes, given)))
            if printed or _copies(command):
                yield named, False
    for one in command.redirects:
        if given or not one.op.startswith("<<"):
            yield _below_root(one.target, root), one.writes


def _copies(command: Command) -> bool:
    """What its files hold is found elsewhere behind it."""
    name = program_name(command)
    return name in COPIERS or (name == "git" and after_options(command_arguments(command))[:1] == ["mv"])


def _writes(command: Command) -> bool:
    """It writes, moves or removes the files that it names."""
    name, words = program_name(command), command_arguments(command)
    if name == "git":
        return next(iter(after_options(words)), "") in CHANGING
    in_place = name in IN_PLACE and has_option(words, "i", "--in-place")
    return in_place or name in WRITERS or (name == "find" and "-delete" in words) or any(w[:3] == "of=" for w in words)


def _below_root(word: Word, root: Path) -> Word:
    """`$PWD/FILE` is a file that is plainly named, as long as no command changes the folder."""
    for start in ("$PWD/", "${PWD}/", "~+/"):
        if word.text.startswith(start) and "$" not in (rest := word.text[len(start) :]):
            return replace(word, text=f"{root}/{rest}", dynamic=False)
    return word


def _of_somebody(text: str) -> bool:
    """It stands in a home that is not the user's."""
    return text.startswith("~") and text != "~" and not text.startswith("~/")
