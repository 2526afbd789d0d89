"""The one table of programs that only read, and the judgement whether a command line is a read.

A line is a read when it is simple commands of programs in this table, with options that keep them
readers, and with paths inside the repository as the kernel resolves them. Nothing in it may be
made by the shell where an option or the text of a program could come of it. Everything else is
another command: depth of grammar is not safety. Stands above shell_line.py and git_commands.py;
looks at the disk only to follow links, to match globs and to read git's settings.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from fugu_cli.safety.git_configuration import UnreadableConfiguration, begins_repository
from fugu_cli.safety.paths import (
    MAY_HOLD_SECRETS,
    inside,
    is_folder,
    is_secret,
    protected_reason,
    real_path,
)
from fugu_cli.safety.policy import git_commands
from fugu_cli.safety.policy.shell_line import (
    Command,
    Redirect,
    ShellLine,
    Word,
    names_of,
    parse_line,
)
from fugu_cli.safety.programs import find_program

PROGRAM_AT_MOST = 10_000
"""Characters of a program's text, such as a script of sed."""
STARS_AT_MOST = 4
MATCHES_AT_MOST = 500
"""Files that a glob may match."""
STREAMS = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "-"})


class NotARead(Exception):
    """The line is another command; the message says why. `option` is the one to blame, if any;
    `outside`: it would read what no read may touch.
    """

    def __init__(self, reason: str, option: str = "", *, outside: bool = False) -> None:
        super().__init__(reason)
        self.option = option
        self.outside = outside


@dataclass(frozen=True)
class ReadingProgram:
    """A row of the table. `operands` are `files`, `texts`, `none`, or `pattern`: a text and then
    files, unless an option brings the text.
    """

    operands: str
    options: frozenset[str]


_TABLE = """
ls: -1aAbBcCdFghHiklmnNopqQrRsStuUvxXZ -ITw= --all --almost-all --color? --directory --full-time
    --group-directories-first --human-readable --recursive --reverse --size --sort= --time=
cat: -AbeEnstTuv --number --show-all
head: -NUMBER -qvz -cn= --bytes= --lines= --quiet
tail: -NUMBER -qrvz -cn= --bytes= --lines= --quiet
wc: -clLmw --bytes --chars --lines --words
nl: -p -bdfhilnsvw= --body-numbering= --number-width=
pwd: -LP
echo printf sleep: TEXTS
true false whoami: NONE
uname: NONE -asnrvmpio
command: NONE -vV=
which basename dirname: TEXTS -a
date: TEXTS -u
realpath readlink: -efmnqsz --canonicalize
grep egrep fgrep: PATTERN -NUMBER -bcEFGHhiIlLnoPqrsTUvVwxyzZ -ABCDdem= --after-context=
    --basic-regexp --before-context= --color? --colour? --context= --count --exclude=
    --exclude-dir= --extended-regexp --files-with-matches --files-without-match --fixed-strings
    --ignore-case --include= --invert-match --line-number --line-regexp --max-count=
    --no-filename --no-messages --null --only-matching --perl-regexp --quiet --recursive --regexp=
    --text --with-filename --word-regexp
rg: PATTERN -NUMBER -abcFhHiIlnNopPqsSuUvVwx0. -ABCdEegmMrtT= --after-context= --before-context=
    --case-sensitive --color= --column --context= --count --count-matches --files
    --files-with-matches --files-without-match --fixed-strings --glob= --heading --hidden
    --iglob= --ignore-case --invert-match --json --line-number --line-regexp --max-columns=
    --max-count= --max-depth= --max-filesize= --multiline --multiline-dotall --no-config
    --no-filename --no-heading --no-ignore --no-ignore-vcs --no-line-number --no-messages --null
    --only-matching --pcre2 --quiet --regexp= --replace= --smart-case --sort= --sortr= --stats
    --text --trim --type= --type-list --type-not= --vimgrep --with-filename --word-regexp
find: -name= -iname= -path= -ipath= -wholename= -regex= -iregex= -regextype= -type= -maxdepth=
    -mindepth= -size= -mtime= -ctime= -atime= -mmin= -newermt= -perm= -user= -group= -printf= -a
    -and -o -or -not -print -print0 -prune -depth -empty -true -false -readable -writable
    -executable -mount -xdev -ls -quit
tree: -adfxqQNpugshDFivtcrnCS -LPI= --du --si --prune --gitignore --noreport --dirsfirst
    --filelimit= --matchdirs --ignore-case
file: -bEhikLnNr0 --brief --mime --mime-type --mime-encoding
stat: -Ltx -cf= --dereference --format= --printf= --terse
du: -0abchHklmsSx -dBt= --all --apparent-size --bytes --total --max-depth= --human-readable
    --summarize --exclude=
test [: -bcdefghLnprsSuwxz
sort: -bcCdfghiMmnrRsuVz -kt= --check? --field-separator= --ignore-case --key= --numeric-sort
    --reverse --stable --unique --version-sort
uniq: NONE -cdDiuz -fsw= --count --repeated --ignore-case --unique
cut: -nsz -bcdf= --bytes= --characters= --complement --delimiter= --fields= --only-delimited
tr: TEXTS -cCdst --complement --delete --squeeze-repeats
diff: -NUMBER -abBcdeEinNpqstTuwyZ -CUW= --brief --color? --ignore-all-space
    --ignore-space-change --side-by-side --unified?
md5sum sha1sum sha256sum sha512sum: -bt --binary --text
jq: PATTERN -nrscCMSaej --null-input --raw-output --raw-input --slurp --compact-output
    --monochrome-output --sort-keys --exit-status --join-output --tab --indent=
sed: PATTERN -nErsuz -e= --quiet --silent --expression= --regexp-extended --posix --sandbox
awk: PATTERN -Fv=
"""
"""Every program that may stand in a read, beside cd and git, with the options that keep it a
reader. Its words are files unless TEXTS, NONE or PATTERN says otherwise. `-abc` are letters, each
an option, but for find; `-NUMBER` is one like `-5`. Behind an option `=` stands for a text, `?` for
a text in the same word at most.
"""
_BRACKETS = r"\[\^?[^\]\[/|#\\\n^]+\]"
_SED_ADDRESS = rf"(?:\d+|\$|/(?:[^/\\\n\[]|\\[^\n]|{_BRACKETS})*/)"
_SED_LINES = rf"(?:{_SED_ADDRESS}(?:,(?:{_SED_ADDRESS}|\+\d+))?)? *!?[pd=q]"
_SED_BODY = rf"(?:[^/|#\\\n\[]|\\[^\n]|{_BRACKETS})*"
_PROGRAM_TEXTS = {
    "sed": rf"{_SED_LINES}(?: *; *{_SED_LINES})* *;?"
    rf"|s(?P<d>[/|#]){_SED_BODY}(?P=d){_SED_BODY}(?P=d)[gIip\d]*",
    "awk": r"(?s)(?!.*(?:[|>@]|\\\n|system|getline|ENVIRON|ARG|PROCINFO|SYMTAB|FUNCTAB)).*",
    "jq": r"(?s)(?!.*(?:\benv\b|\$ENV|\$__prog|input_filename|modulemeta|\b(?:include|import)\b)).*",
    "printf": r"(?s)(?!-)(?:[^%]|%%|%[-+ #0]*\d*(?:\.\d+)?[sbdiouxXeEfgGcq])*",
    "date": r"\+.*",
}
"""By program, the form of texts that only read: no file is written or named in them, no program
started, no variable of the shell set.
"""
_BRINGS_PATTERN = names_of("-e= --regexp= --expression= --files --type-list")
"""Options with which no operand is the pattern, as the table writes them: `-e` of jq is none."""
_SCRIPT_OPTIONS = names_of("-e --expression")
_FILE_PATTERNS = names_of("--include --glob --iglob -g")
_BUILTINS = names_of("echo printf pwd true false command test [")


def _parse_table(table: str) -> dict[str, ReadingProgram]:
    programs: dict[str, ReadingProgram] = {}
    for row in re.sub(r"\n +", " ", table.strip()).split("\n"):
        names, _, text = row.partition(":")
        operands, options = "files", set[str]()
        for word in text.split():
            if not word.startswith("-"):
                operands = word.lower()
            elif word.startswith("--") or word == "-NUMBER" or names == "find":
                options.add(word)
            else:
                value = "=" if word.endswith("=") else ""
                options |= {f"-{letter}{value}" for letter in word[1:].rstrip("=")}
        programs |= dict.fromkeys(names.split(), ReadingProgram(operands, frozenset(options)))
    return programs


READERS = _parse_table(_TABLE)


@dataclass(frozen=True)
class ReadContext:
    """The folder that a command runs in, and where it may read."""

    folder: Path
    root: Path
    added: tuple[Path, ...] = ()


def is_read(text: str, root: Path, added: tuple[Path, ...] = ()) -> bool:
    """Return whether a command line only reads, inside `root` and the folders of `added`."""
    return read_fault(parse_line(text.strip(" \t\n")), root, added) is None


def read_fault(line: ShellLine, root: Path, added: tuple[Path, ...] = ()) -> NotARead | None:
    """Return why a line, run in `root`, is another command; None where it is a read."""
    try:
        _check_line(line, ReadContext(root, root, added))
    except NotARead as fault:
        return fault
    except UnreadableConfiguration as fault:
        return NotARead(str(fault))
    return None


def _check_line(line: ShellLine, context: ReadContext) -> None:
    if line.fault or not line.commands:
        raise NotARead(f"policy does not read it: {line.fault or 'it is empty'}")
    for index, command in enumerate(line.commands):
        if command.assignments:
            raise NotARead("it sets variables")
        for redirect in command.redirects:
            _check_redirect(redirect)
        if command.name != "cd":
            _check_command(command, context)
            continue
        operators = [following.operator for following in line.commands[1:]]
        if index or operators[:1] == ["|"] or not {"&&", "|"}.issuperset(operators):
            raise NotARead("`cd` is read only at the start of a line that goes on with `&&`")
        context = _change_folder(command, context)


def _check_redirect(redirect: Redirect) -> None:
    target = redirect.target
    between_streams = redirect.operator in {">&", "<&"} and target.text in {"0", "1", "2"}
    if not (target.plain and (between_streams or target.text == "/dev/null")):
        verb = "writes" if ">" in redirect.operator else "takes its input from"
        raise NotARead(f"it {verb} `{target.text or 'a heredoc'}`")


def _require_plain(word: Word) -> None:
    if not word.plain:
        raise NotARead(f"what `{word.text}` is, the shell decides")


def _change_folder(command: Command, context: ReadContext) -> ReadContext:
    """Return the context behind `cd`. A link on the way, and CDPATH, would lead elsewhere than it
    says.
    """
    text = command.words[1].text if len(command.words) == 2 else "-"
    if text.startswith("-") or os.environ.get("CDPATH"):
        raise NotARead("where it leads is not plain to see")
    _require_plain(command.words[1])
    target = Path(os.path.normpath(context.folder / text))
    if real_path(target) != target or real_path(context.folder / text) != target:
        raise NotARead(f"`cd {text}` follows a link")
    _check_path(text, context)
    return replace(context, folder=target)


def _check_command(command: Command, context: ReadContext) -> None:
    name = command.words[0].text if command.words and command.words[0].plain else ""
    if name not in READERS and name != "git":
        shown = command.words[0].text if command.words else "a redirection alone"
        raise NotARead(f"`{shown}` is not known to be read-only")
    if name not in _BUILTINS:
        _check_location(name, context.root)
    if name == "git":
        _check_git(command, context)
    else:
        _check_arguments(name, command.words[1:], context)


def _check_location(name: str, root: Path) -> None:
    """Raise NotARead where the program that PATH leads to may be one of the repository's."""
    if not all(folder.startswith("/") for folder in os.get_exec_path()):
        raise NotARead("PATH has a folder that is not absolute")
    program = shutil.which(name)
    if program != find_program(name, root) or (program and inside(real_path(program), root)):
        raise NotARead(f"`{name}` is a program of the repository")


def _check_arguments(name: str, words: Sequence[Word], context: ReadContext) -> None:
    program = READERS[name]
    operands, options = _parse_arguments(name, words)
    texts: list[Word] = []
    match program.operands:
        case "none" if operands:
            raise NotARead(f"`{name}` with arguments")
        case "texts":
            texts = operands
        case "pattern":
            brings_pattern = _BRINGS_PATTERN & program.options
            used = {name for option, _ in options for name in (option, f"{option}=")}
            texts = operands[:1] if brings_pattern.isdisjoint(used) else []
    for word in operands[len(texts) :]:
        _check_file(word, context)
        if name == "diff" and (word.globbed or is_folder(context.folder / word.text)):
            raise NotARead("`diff` follows links in folders")
    for option, value in options:
        if option in _FILE_PATTERNS and is_secret(value.text.rpartition("/")[2]):
            raise NotARead(f"`{value.text}`: {MAY_HOLD_SECRETS}", outside=True)
    scripts = [value for option, value in options if option in _SCRIPT_OPTIONS]
    form = _PROGRAM_TEXTS.get(name, r"(?s).*")
    for word in [*texts, *scripts]:
        _require_plain(word)
        if len(word.text) > PROGRAM_AT_MOST or re.fullmatch(form, word.text) is None:
            raise NotARead(f"what `{name}` does with `{word.text[:80]}` may be more than reading")


def _parse_arguments(name: str, words: Sequence[Word]) -> tuple[list[Word], list[tuple[str, Word]]]:
    """Return the operands, and the options each with its value or an empty word."""
    allowed = READERS[name].options
    operands: list[Word] = []
    options: list[tuple[str, Word]] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if name in {"echo", "printf"} or not word.text.startswith("-") or word.text == "-":
            operands.append(word)
            continue
        _require_plain(word)
        if word.text == "--":
            operands += reversed(rest)
            break
        if "-NUMBER" in allowed and word.text[1:].isdigit():
            continue
        option, equals, glued = word.text.partition("=")
        if not option.startswith("--") and allowed.isdisjoint({option, f"{option}="}):
            option, equals, glued = word.text[:2], "", word.text[2:]
        if f"{option}=" in allowed:
            if not (glued or equals or rest):
                raise NotARead(f"`{name} {option}` has no value")
            value = Word(glued) if glued or equals else rest.pop()
            _require_plain(value)
            options.append((option, value))
        elif f"{option}?" in allowed or (option in allowed and not equals and glued[:1] != "-"):
            options.append((option, Word("")))
            if glued and not equals:
                rest.append(Word(f"-{glued}"))
        else:
            raise NotARead(f"with `{option}` `{name}` may do more than read", option)
    return operands, options


def _check_file(word: Word, context: ReadContext) -> None:
    """Raise NotARead where the word may name a file that no read may touch."""
    if not word.globbed:
        _require_plain(word)
    elif (
        word.expands
        or re.search(r"\[|(?:^|/)\.[^/]*[*?]", word.text)
        or word.text.count("*") > STARS_AT_MOST
    ):
        raise NotARead(f"what `{word.text}` matches is not plain to see")
    _check_path(word.text, context)
    if word.globbed:
        matches = glob.iglob(word.text, root_dir=context.folder)  # noqa: PTH207
        for count, match in enumerate(islice(matches, MATCHES_AT_MOST + 1)):
            if count == MATCHES_AT_MOST:
                raise NotARead(f"`{word.text}` matches too many files to look at")
            if match.startswith("-"):
                raise NotARead(f"the name of the file `{match}` is taken for an option")
            _check_path(match, context)


def _check_path(text: str, context: ReadContext) -> None:
    if text in STREAMS or not text:
        return
    path = real_path(context.folder / text)
    base = next((added for added in context.added if inside(path, added)), context.root)
    reason = protected_reason(path, base, writes=False)
    if reason == MAY_HOLD_SECRETS and not os.path.lexists(context.folder / text):
        return
    if reason:
        # dangers.py knows whether /tmp is private
        may_be_scratch = text.startswith("/tmp") and inside(path, Path("/tmp"))
        raise NotARead(f"{reason}: `{text}`", outside=not may_be_scratch)


def _check_git(command: Command, context: ReadContext) -> None:
    """Raise NotARead unless it is one of git's own readers in the repository itself."""
    words = list(command.words[1:])
    if len(words) > 1 and words[0].text == "-C":
        context = _change_folder(replace(command, words=tuple(words[:2])), context)
        words = words[2:]
    if words and words[0].text in {"--no-pager", "-P"}:
        words.pop(0)
    subcommand, *arguments = [word.text for word in words] or [""]
    if fault := git_commands.reading_fault(subcommand, arguments):
        raise NotARead(*fault)
    for word in words:
        if "%G" in word.text or "%(signature" in word.text:
            raise NotARead(f"with `{word.text}` git starts a program")
        in_tree = re.sub(r"^(?:\([^)]*\)|[/!^]+)", "", word.text.rpartition(":")[2])
        if is_secret(in_tree.rpartition("/")[2]):
            raise NotARead(f"`{word.text}`: {MAY_HOLD_SECRETS}", outside=True)
        if word.text.startswith("-"):
            _require_plain(word)
        else:
            _check_file(word, context)
    if begins_repository(context.folder, context.root) is not None:
        raise NotARead("another repository has settings of its own")
    if reason := git_commands.settings_fault(context.root):
        raise NotARead(reason)
