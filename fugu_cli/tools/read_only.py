"""Does a command line look at nothing but what files hold and how they are named? Pure.

Beside content.py, which asks about commands that policy knows to read only. What tells times, sizes on the disk, the
machine or chance says something else each time, although no file changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.policy.programs import base, names_of
from fugu_cli.policy.shell import Command, Unreadable, read

CONTENT = names_of(
    "cat head tail wc grep egrep fgrep rg find ls sed awk sort uniq cut tr nl diff cmp comm md5sum sha1sum sha256sum "
    "sha512sum cksum jq od hexdump strings rev tac paste fold expand join column basename dirname echo printf true "
    "false test [ seq cd :"
)
_LS = set("1aAFpdBmxCRrNQ")
_FIND = names_of(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -maxdepth -mindepth -prune -not "
    "-and -or -a -o -print -print0 -empty -true -false -depth"
)
_TEST = names_of("-e -f -d -L -h -n -z -a -o")
_WORDS = {
    "awk": ("rand", "time", "ENVIRON", "PROCINFO"),
    "sort": ("-R", "--random"),
    "printf": ("%(",),
    "tail": ("-f",),
}
"""Parts of arguments by which a command says something else each time, or never ends."""
_HIDDEN = ("-u", "--unrestricted", "--no-ignore", "--hidden", "-.")


def at_content(line: str) -> bool:
    """Every simple command of the line looks at content or names only."""
    commands = _commands(line)
    return bool(commands) and all(_looks(command) for command in commands)


def goes_down(line: str) -> bool:
    """Some command of the line goes down into every folder, or into any that a pattern matches, those that git ignores
    included."""
    return any(
        any(word.globbed for word in command.words) or _goes_down(base(command), _arguments(command))
        for command in _commands(line)
    )


def _commands(line: str) -> Sequence[Command]:
    try:
        return read(line)
    except Unreadable:
        return ()


def _arguments(command: Command) -> list[str]:
    return [word.text for word in command.words[1:]]


def _looks(command: Command) -> bool:
    name, arguments = base(command), _arguments(command)
    if name not in CONTENT or command.assignments:
        return False
    options = [argument for argument in arguments if argument.startswith("-") and argument != "-"]
    if name == "ls":
        return all(not option.startswith("--") and set(option[1:]) <= _LS for option in options)
    if name == "find":
        return all(option in _FIND for option in options)
    if name in {"test", "["}:
        return all(option in _TEST for option in options)
    return not any(part in argument for argument in arguments for part in _WORDS.get(name, ()))


def _goes_down(name: str, arguments: Sequence[str]) -> bool:
    short = {letter for a in arguments if a.startswith("-") and not a.startswith("--") for letter in a[1:]}
    match name:
        case "find":
            return True
        case "ls":
            return "R" in short
        case "grep" | "egrep" | "fgrep":
            return bool(short & {"r", "R"}) or any(a.startswith(("--recursive", "--dereference-r")) for a in arguments)
        case "diff":
            return "r" in short or "--recursive" in arguments
        case "rg":
            return any(argument.startswith(_HIDDEN) for argument in arguments)
        case _:
            return False
