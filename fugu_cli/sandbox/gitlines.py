"""Whether a command line runs git and beside it nothing that could do harm: such a line may write the git folder.

Above policy, which reads the line, and under box.py. A line that policy cannot read, git with another configuration,
and a git command that starts programs it is told are no such lines. In doubt git can only read. What may stand beside
git reads, or prints, makes and removes files of the working tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.policy.classify import Judged, classify
from fugu_cli.policy.paths import GIT_MARKS, inside, is_folder, locate, there
from fugu_cli.policy.shell import Command, Unreadable, Word, read


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PLAIN = _names(
    "add am apply branch checkout clean commit commit-tree gc hash-object maintenance mv notes pack-refs prune "
    "read-tree reflog repack replace rerere reset restore rm sparse-checkout stash switch symbolic-ref tag "
    "update-index update-ref worktree write-tree"
)
"""Commands of git that write and start no program but git itself, its hooks and what the configuration names."""
FREE = _names("add branch checkout commit mv reset restore rm switch tag")
"""Those of which no argument can name a file to write: it need not be known before the line runs."""
WRITING = re.compile(r"--ou(?!rs$).*|--index-o.*|--uns.*|--(expire|filter)-t.*")
"""An argument that names one, or any: `git diff --output=FILE`, `git apply --unsafe-paths`."""
STARTING: dict[str, re.Pattern[str]] = {
    "merge": re.compile(r"-[^-]*s.*|--str.*"),
    "cherry-pick": re.compile(r"--str.*"),
    "revert": re.compile(r"--str.*"),
    "rebase": re.compile(r"-[^-]*[sx].*|--str.*|--ex.*|--e"),
    "fetch": re.compile(r"--up.*"),
    "pull": re.compile(r"-[^-]*s.*|--str.*|--up.*"),
    "push": re.compile(r"--rec.*|--rep.*|--ex.*|--e"),
    "bisect": re.compile(r"run|replay|visualize|view"),
    "submodule": re.compile(r"foreach|add|set-url"),
}
"""Commands of git, each with the arguments that start a program or lead to a repository which starts its own."""
REMOTE = re.compile(r"[\w-]+|(?:https|ssh|git)://.*")
"""What may be fetched from and pushed to: a name from the configuration, another machine; no folder with its hooks."""
BEFORE = _names("--no-pager -P --no-optional-locks --literal-pathspecs")
SETTINGS = re.compile(
    r"(user|author|committer)\.\w+|(color|advice|log)\.[\w.]+|core\.(quotepath|autocrlf|abbrev)|(commit|tag)\.gpgsign"
    r"|init\.defaultbranch|merge\.conflictstyle|diff\.(renames|algorithm)|pull\.(ff|rebase)|rebase\.autostash",
    re.IGNORECASE,
)
"""Settings that may be given with `-c`: they start nothing and lead nowhere."""
VARIABLES = re.compile(r"GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)|LANG|LC_\w+|CI|NO_COLOR|TZ")
READS, RUNS = 0, 1
"""The least of policy's levels: what only reads, and what touches nothing special."""
PRINTING, MAKING = _names("echo printf cat"), _names("mkdir rmdir touch rm")
"""What may write files of the working tree in such a line: the first by a redirection, the others by name. None of
them makes a link, through which the next would write elsewhere."""
STILL = _names("add commit tag branch push notes")
"""Commands of git that may stand beside those: they write no file of the working tree, hence no link."""
DEVICES = _names("/dev/null /dev/stdout /dev/stderr")
_MESSAGE = re.compile(
    r"""([^'"\\`$#<]*)"\$\(cat <<'(\w+)'\n(?:(?!\2$).*\n)*\2\n\s*\)"([^'"\\`$#<]*)""", re.MULTILINE | re.ASCII
)
"""A line with one quoted heredoc that stands for a word, as messages of commits are written: nothing in it is run."""


def written_by(line: str, root: Path) -> Path | None:
    """The `.git` of the repository that git, alone in the line, works on; None where it is not alone, or works on
    several. `root` is resolved; the line runs in it."""
    found = _MESSAGE.fullmatch(line.strip())
    if found is not None:
        line = f'{found.group(1)}"message"{found.group(3)}'
    try:
        commands, judged = read(line), classify(line, root)
    except Unreadable:
        return None
    gits = [one for one in judged if _is_git(one.command) and one.command in commands]
    others = [one for one in judged if one not in gits]
    writers = [one for one in others if one.finding.level > READS]
    if not gits or not all(_writes(one) for one in writers) or any(_name(one.command) == "git" for one in others):
        return None
    if writers and not all(one.finding.level == READS or _is_still(one.command) for one in gits):
        return None
    moves = [one.command for one in others if _name(one.command) == "cd"]
    folder = root if not moves else _target(moves[0].words[1:], root) if len(moves) == 1 else None
    if folder is None:
        return None
    entries = {_entry(one, folder, root, moved=bool(moves)) for one in gits}
    return entries.pop() if len(entries) == 1 else None


def _name(command: Command) -> str:
    return command.words[0].text.rsplit("/", 1)[-1] if command.words else ""


def _writes(one: Judged) -> bool:
    """It does nothing but write files which policy knows, none of them special."""
    command = one.command
    words = [*command.words, *(redirect.target for redirect in command.redirects)]
    if one.finding.level > RUNS or not command.words or command.assignments or command.given_more or command.mark:
        return False
    if any(redirect.target.dynamic or redirect.target.globbed for redirect in command.redirects if redirect.writes):
        return False
    if command.words[0].text in PRINTING:
        return not any(word.text.startswith("-v") or word.dynamic for word in command.words)
    return command.words[0].text in MAKING and not any(word.dynamic or word.globbed or word.braced for word in words)


def _is_still(command: Command) -> bool:
    """A git command that writes no file of the working tree."""
    texts = [word.text for word in command.words[1:]]
    return texts[:1] != [] and (texts[0] in STILL or (len(texts) == 3 and texts[:2] in _BRANCHING))


_BRANCHING = (["checkout", "-b"], ["switch", "-c"])


def _is_git(command: Command) -> bool:
    return bool(command.words) and command.words[0].text == "git" and not command.words[0].dynamic


def _target(words: Sequence[Word], root: Path) -> Path | None:
    """Where `cd` or `-C` leads, None where that is not plain."""
    found = locate(words[0].text, root) if len(words) == 1 and not (words[0].dynamic or words[0].globbed) else None
    return found if isinstance(found, Path) and is_folder(found) else None


def _entry(judged: Judged, folder: Path, root: Path, *, moved: bool) -> Path | None:
    """The `.git` a git command works on; None where the command is not a plain one. `moved`: after a `cd`, which may
    fail, so that a folder named beside it is not known."""
    command = judged.command
    if command.given_more or command.mark or any(not VARIABLES.fullmatch(name) for name, _ in command.assignments):
        return None
    if any(redirect.writes and redirect.target.text not in DEVICES for redirect in command.redirects):
        return None
    words = list(command.words[1:])
    place: Path | None = folder
    while words and words[0].text.startswith("-"):
        option = words.pop(0)
        if option.text == "-C" and not moved and place == root:
            place = _target(words[:1], root)
            words = words[1:]
        elif option.text == "-c" and words and SETTINGS.fullmatch(words[0].text.partition("=")[0]):
            words = words[1:]
        elif option.text not in BEFORE:
            return None
    if place is None or not words or words[0].dynamic:
        return None
    reads = judged.finding.level == READS and not any(WRITING.fullmatch(word.text) for word in words)
    return _found(place, root) if reads or _plain(words[0].text, words[1:]) else None


def _plain(name: str, arguments: Sequence[Word]) -> bool:
    if name in FREE:
        return True
    texts = [word.text for word in arguments]
    if any(word.dynamic or word.globbed or word.braced or WRITING.fullmatch(word.text) for word in arguments):
        return False
    if name not in STARTING:
        return name in PLAIN
    if any(STARTING[name].fullmatch(text) for text in texts):
        return False
    named = [text for text in texts if not text.startswith("-")]
    return name not in {"fetch", "pull", "push"} or not named or REMOTE.fullmatch(named[0]) is not None


def _found(folder: Path, root: Path) -> Path | None:
    """The nearest `.git` at or above a folder in the root; None where a bare repository comes first."""
    for place in (folder, *folder.parents) if inside(folder, root) else ():
        if os.path.lexists(place / ".git"):
            return place / ".git"
        if place == root or all(there(place / name) for name in GIT_MARKS):
            return None
    return None
