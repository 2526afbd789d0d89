"""The one table of programs that only read, and the judgement whether a command line is a read.

A line is a read when it is simple commands of programs in this table, with options that keep them
readers, and with paths inside the repository as the kernel resolves them. Nothing in it may be
made by the shell where an option or the text of a program could come of it. Everything else is
another command: depth of grammar is not safety. Stands above shell_line.py and git_commands.py;
looks at the disk only to follow links, to match globs and to read git's settings.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
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
from fugu_cli.safety.policy.shell_line import Command, ShellLine, Word, names_of, parse_line

FOLDERS_AT_MOST = 16
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
    """A row of the table. `operands` are `files`, `texts`, `none`, `file` (one at most), or
    `pattern`: a text and then files, unless an option brings the text.
    """

    operands: str
    options: frozenset[str]


@dataclass
class ParsedArguments:
    """A command's arguments by the table."""

    operands: list[Word] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    """Options that have a value, with it."""
    files: list[Word] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)


_BRACKETS = r"\[\^?[^\]\[/|#\\\n^]+\]"
_SED_ADDRESS = rf"(?:\d+|\$|/(?:[^/\\\n\[]|\\[^\n]|{_BRACKETS})*/)"
_SED_LINES = rf"(?:{_SED_ADDRESS}(?:,(?:{_SED_ADDRESS}|\+\d+))?)? *!?[pd=q]"
_SED_BODY = rf"(?:[^/|#\\\n\[]|\\[^\n]|{_BRACKETS})*"
_SED_SCRIPT = re.compile(
    rf"{_SED_LINES}(?: *; *{_SED_LINES})* *;?|s(?P<d>[/|#]){_SED_BODY}(?P=d){_SED_BODY}(?P=d)[gIip\d]*"
)
_AWK_RUNS = re.compile(
    r"[|>@]|\\\n|system|getline|ENVIRON|ARGV|ARGC|close|fflush|PROCINFO|SYMTAB|FUNCTAB"
)
_JQ_RUNS = re.compile(r"\benv\b|\$ENV|\$__prog|input_filename|\binclude\b|\bimport\b")
_PRINTF_SAFE = re.compile(r"(?!-)(?:[^%]|%%|%[-+ #0]*\d*(?:\.\d+)?[sbdiouxXeEfgGcq])*", re.DOTALL)
_TEST_OPTION = re.compile(r"-(?:[bcdefghLnprsSuwxz]|ef|nt|ot|eq|ne|lt|le|gt|ge)|-?\d+|\]|=|!=|!")


def _check_sed(parsed: ParsedArguments) -> str:
    scripts = [text for option, text in parsed.texts if option in {"-e", "--expression"}]
    scripts = scripts or [word.text for word in parsed.operands[:1]]
    if scripts and all(_SED_SCRIPT.fullmatch(script) for script in scripts):
        return ""
    return "a script of `sed` that may write or run something"


def _check_awk(parsed: ParsedArguments) -> str:
    texts = [word.text for word in parsed.operands]
    texts += [text for option, text in parsed.texts if option == "-v"]
    if any("=" in word.text for word in parsed.operands[1:]):
        return "`awk` takes a word with `=` for a setting"
    if any(_AWK_RUNS.search(text) for text in texts):
        return "a program of `awk` that may write or run something"
    return ""


def _check_jq(parsed: ParsedArguments) -> str:
    texts = [word.text for word in parsed.operands[:1]]
    return "a program of `jq` that reads more" if any(map(_JQ_RUNS.search, texts)) else ""


def _check_printf(parsed: ParsedArguments) -> str:
    text = parsed.operands[0].text if parsed.operands else "-"
    return "" if _PRINTF_SAFE.fullmatch(text) else "`printf` may set a variable"


def _check_date(parsed: ParsedArguments) -> str:
    shows = all(word.text.startswith("+") for word in parsed.operands)
    return "" if shows else "`date` sets the clock"


_CHECKS: dict[str, Callable[[ParsedArguments], str]] = {
    "sed": _check_sed,
    **dict.fromkeys(("awk", "gawk", "mawk"), _check_awk),
    "jq": _check_jq,
    "printf": _check_printf,
    "date": _check_date,
}
"""Functions that return why a program's arguments do more than read, "" where they do not."""

_TABLE = """
ls: -1aAbBcCdDfFgGhHiklmnNopqQrRsStuUvxXZ -ITw= --all --almost-all --author --color? --directory
    --full-time --group-directories-first --human-readable --inode --numeric-uid-gid --recursive
    --reverse --si --size --sort= --time= --help --version
cat: -AbeEnstTuv --number --number-nonblank --show-all --squeeze-blank --version
head: -NUMBER -qvz -cn= --bytes= --lines= --quiet --verbose
tail: -NUMBER -qrvz -cns= --bytes= --lines= --quiet --verbose
wc: -clLmw --bytes --chars --lines --max-line-length --words
pwd: -LP
echo: TEXTS -neE
printf sleep: TEXTS
true false whoami nproc tty groups: NONE
uname: NONE -asnrvmpio
grep egrep fgrep: PATTERN -NUMBER -bcEFGHhiIlLnoPqrsTUvVwxyzZ -ABCDdem= -f@ --after-context=
    --basic-regexp --before-context= --byte-offset --color? --colour? --context= --count
    --exclude= --exclude-dir= --extended-regexp --files-with-matches --files-without-match
    --fixed-strings --file@ --ignore-case --include= --invert-match --line-number --line-regexp
    --max-count= --no-filename --no-messages --null --only-matching --perl-regexp --quiet
    --recursive --regexp= --text --with-filename --word-regexp --help --version
rg: PATTERN -NUMBER -abcFhHiIlnNopPqsSuUvVwx0. -ABCdEegjmMrtT= -f@ --after-context=
    --before-context= --case-sensitive --color= --column --context= --count --count-matches --crlf
    --debug --encoding= --file@ --files --files-with-matches --files-without-match --fixed-strings
    --glob= --heading --hidden --iglob= --ignore-case --invert-match --json --line-number
    --line-regexp --max-columns= --max-count= --max-depth= --max-filesize= --multiline
    --multiline-dotall --no-config --no-filename --no-heading --no-ignore --no-ignore-vcs
    --no-line-number --no-messages --null --only-matching --pcre2 --pretty --quiet --regexp=
    --replace= --smart-case --sort= --sortr= --stats --text --threads= --trim --type= --type-list
    --type-not= --vimgrep --with-filename --word-regexp --version
fd: PATTERN -HIusigaFp01q -dEeScjt= --hidden --no-ignore --no-ignore-vcs --case-sensitive
    --ignore-case --glob --regex --fixed-strings --absolute-path --full-path --print0 --max-depth=
    --min-depth= --exact-depth= --exclude= --type= --extension= --size= --changed-within=
    --changed-before= --max-results= --quiet --color= --version
tree: -adfxqQNpugshDFivtcrnCS -LPI= --du --si --prune --gitignore --noreport --dirsfirst
    --filelimit= --sort= --matchdirs --ignore-case
file: -bEhiklnNrsvz0 --brief --mime --mime-type --mime-encoding --version
stat: -Ltqrsxn -c= --dereference --format= --printf= --terse --version
du: -0abcghHklmsSx -dBt= --all --apparent-size --bytes --total --max-depth= --human-readable
    --summarize --exclude= --version
df: -ahHiklmPT -Btx= --human-readable --inodes --total --type= --version
which type: TEXTS -asptP
command: TEXTS -vV
id: TEXTS -Ggnru
date: TEXTS -uR -d= --date= --utc --iso-8601?
basename dirname: TEXTS -az -s=
realpath readlink: -eEfLmnPqsvz --canonicalize --canonicalize-existing --canonicalize-missing
    --no-newline --relative-to@ --relative-base@ --strip --no-symlinks
sort: -bcCdfghiMmnrRsuVz -kt= --check? --dictionary-order --field-separator=
    --general-numeric-sort --human-numeric-sort --ignore-case --key= --numeric-sort --reverse
    --stable --unique --version-sort --zero-terminated
uniq: FILE -cdDiuz -fsw= --count --repeated --ignore-case --skip-fields= --skip-chars=
    --check-chars= --unique
cut: -nsz -bcdf= --bytes= --characters= --complement --delimiter= --fields= --only-delimited
    --output-delimiter=
tr: TEXTS -cCdst --complement --delete --squeeze-repeats
nl: -p -bdfhilnsvw= --body-numbering= --number-width=
rev tac:
paste: -sz -d= --delimiters= --serial
fold: -bs -w= --spaces --width=
column: -tx -csoN= --table --separator= --output-separator=
comm: -123z --nocheck-order --output-delimiter= --total
cmp: -bls -in= --bytes= --print-bytes --quiet --silent --verbose
diff: -NUMBER -abBcdeEinNpqstTuwyZ -CUIW= --brief --color? --ignore-all-space --ignore-blank-lines
    --ignore-case --ignore-space-change --label= --minimal --new-file --side-by-side
    --strip-trailing-cr --suppress-common-lines --text --unified? --width=
md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum: -btz --binary --tag --text --zero
    --help --version
cksum: -z -a= --algorithm= --untagged --zero
seq: TEXTS -NUMBER -w -fs=
jq: PATTERN -nrscCMSaej --null-input --raw-output --raw-input --slurp --compact-output
    --color-output --monochrome-output --sort-keys --ascii-output --exit-status --join-output
    --tab --indent=
sed: PATTERN -nErsuz -e= --quiet --silent --expression= --regexp-extended --null-data --separate
    --posix --sandbox
awk gawk mawk: PATTERN -Fv=
hexdump: -bcCdovx -ens=
od: -abcdfilosvx -AjNtSw=
strings: -afo -net=
base64: -di -w= --decode --wrap=
"""
"""Every program that may stand in a read, beside cd, test, find, xargs and git, with the options
that keep it a reader. Its words are files unless TEXTS, NONE, FILE or PATTERN says otherwise.
`-abc` are letters, each an option, and `-NUMBER` is one like `-5`. Behind an option `=` stands for
a text, `@` for a file that is read, `?` for a text in the same word at most.
"""


def _parse_table(table: str) -> dict[str, ReadingProgram]:
    programs: dict[str, ReadingProgram] = {}
    for row in re.sub(r"\n +", " ", table.strip()).split("\n"):
        names, _, text = row.partition(":")
        operands, options = "files", set[str]()
        for word in text.split():
            if not word.startswith("-"):
                operands = word.lower()
            elif word.startswith("--") or word == "-NUMBER":
                options.add(word)
            else:
                value = word[-1] if word[-1] in "=@" else ""
                options |= {f"-{letter}{value}" for letter in word[1:].rstrip("=@")}
        program = ReadingProgram(operands, frozenset(options))
        programs |= dict.fromkeys(names.split(), program)
    return programs


READERS = _parse_table(_TABLE)
_PATTERN_OPTIONS = names_of("-e -f --regexp --file --expression --files --type-list")
_NAME_READERS = frozenset({"echo", "basename", "dirname"})
"""Programs for which a name that find or xargs hands over is but a text."""
_BUILTINS = frozenset({"echo", "printf", "pwd", "true", "false", "type", "command", "test", "["})

_FIND_FLAGS = names_of(
    "( ) ! , -a -and -o -or -not -print -print0 -prune -depth -empty -true -false -readable "
    "-writable -executable -nouser -nogroup -daystart -mount -xdev -noleaf -ls -quit -P"
)
_FIND_TEXTS = names_of(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -regextype "
    "-type -xtype -maxdepth -mindepth -size -mtime -ctime -atime -mmin -cmin -amin -newermt -perm "
    "-user -group -uid -gid -links -inum -printf"
)
_FIND_FILES = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})
_XARGS_FLAGS = re.compile(r"-(?:0|r|0r|r0)|--null|--no-run-if-empty|-n\d+|-P\d+")
_GIVEN = Word("./given")
"""Stands for a file that find or xargs hands over: its name begins with a folder."""


@dataclass(frozen=True)
class ReadContext:
    """The folders that a command may find itself in, and where it may read."""

    folders: tuple[Path, ...]
    root: Path
    added: tuple[Path, ...] = ()


def is_read(text: str, root: Path, added: tuple[Path, ...] = ()) -> bool:
    """Return whether a command line only reads, inside `root` and the folders of `added`."""
    return why_not_a_read(text, root, added) is None


def why_not_a_read(text: str, root: Path, added: tuple[Path, ...] = ()) -> NotARead | None:
    """Return why a command line is another command, None where it is a read."""
    try:
        _check_line(parse_line(text.strip()), root, added)
    except NotARead as fault:
        return fault
    except UnreadableConfiguration as fault:
        return NotARead(str(fault))
    return None


def read_fault(command: Command, root: Path, added: tuple[Path, ...] = ()) -> NotARead | None:
    """Return why one command of a line, run in `root`, does more than read."""
    try:
        _check_line(ShellLine((command,)), root, added)
    except (NotARead, UnreadableConfiguration) as fault:
        return fault if isinstance(fault, NotARead) else NotARead(str(fault))
    return None


def _check_line(line: ShellLine, root: Path, added: tuple[Path, ...]) -> None:
    if line.fault:
        raise NotARead(f"policy does not read it: {line.fault}")
    if not line.commands:
        raise NotARead("it is empty")
    everywhere = [root]
    after_cd: list[Path] | None = None
    for index, command in enumerate(line.commands):
        following = line.commands[index + 1 :][:1]
        if command.operator not in {"&&", "|"}:
            after_cd = None
        context = ReadContext(tuple(after_cd or everywhere), root, added)
        if command.assignments:
            raise NotARead("it sets variables")
        _check_redirects(command)
        if command.name == "cd" and command.operator != "|":
            after_cd = _change_folder(command, context)
            everywhere += after_cd
            if len(everywhere) > FOLDERS_AT_MOST:
                raise NotARead("it changes folders too often")
            if following and following[0].operator == "|":
                raise NotARead("`cd` in a pipe")
            if following and following[0].operator != "&&":
                after_cd = None
        elif command.name == "xargs":
            source = line.commands[index - 1] if command.operator == "|" else None
            _check_xargs(command, source, context)
        else:
            _check_command(command, context)


def _check_redirects(command: Command) -> None:
    for redirect in command.redirects:
        target = redirect.target
        between_streams = redirect.operator in {">&", "<&"} and target.text in {"0", "1", "2"}
        if not (target.plain and (between_streams or target.text == "/dev/null")):
            verb = "writes" if ">" in redirect.operator else "takes its input from"
            raise NotARead(f"it {verb} `{target.text or 'a heredoc'}`")


def _change_folder(command: Command, context: ReadContext) -> list[Path]:
    """Return where `cd` may lead. A link on the way, and CDPATH, would lead elsewhere than it
    says.
    """
    if len(command.words) != 2 or not command.words[1].plain or os.environ.get("CDPATH"):
        raise NotARead("where it leads is not plain to see")
    text = command.words[1].text
    if text.startswith("-"):
        raise NotARead("where it leads is not plain to see")
    targets = []
    for folder in context.folders:
        target = Path(os.path.normpath(folder / text))
        if real_path(target) != target or real_path(folder / text) != target:
            raise NotARead(f"`cd {text}` follows a link")
        _check_path(text, folder, context)
        targets.append(target)
    return targets


def _check_command(command: Command, context: ReadContext) -> None:
    name = command.words[0].text if command.words and command.words[0].plain else ""
    if name not in READERS and name not in {"git", "find", "test", "["}:
        shown = command.words[0].text if command.words else "a redirection alone"
        raise NotARead(f"`{shown}` is not known to be read-only")
    if name not in _BUILTINS:
        _check_location(name, context.root)
    if name == "git":
        _check_git(command, context)
    elif name == "find":
        _check_find(command, context)
    elif name in {"test", "["}:
        _check_test(command, context)
    else:
        _check_arguments(name, command.words[1:], context)


def _check_location(name: str, root: Path) -> None:
    """Raise NotARead where the program that PATH leads to may be one of the repository's."""
    for entry in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if not entry.startswith("/"):
            raise NotARead("PATH has a folder that is not absolute")
        program = Path(entry, name)
        if os.path.lexists(program):
            if inside(real_path(entry), root) or inside(real_path(program), root):
                raise NotARead(f"`{name}` is a program of the repository")
            if os.access(program, os.X_OK):
                return


def _check_arguments(name: str, words: Sequence[Word], context: ReadContext) -> None:
    operands = READERS[name].operands
    parsed = _parse_arguments(name, words)
    brings_pattern = name != "fd" and any(
        option in _PATTERN_OPTIONS for option in (*dict(parsed.texts), *parsed.flags)
    )
    texts: Sequence[Word]
    files: Sequence[Word]
    match operands:
        case "files" | "file":
            texts, files = [], parsed.operands
        case "pattern" if brings_pattern:
            texts, files = [], parsed.operands
        case "pattern":
            texts, files = parsed.operands[:1], parsed.operands[1:]
        case _:
            texts, files = parsed.operands, []
    if operands == "none" and parsed.operands:
        raise NotARead(f"`{name}` with arguments")
    if name == "command" and not (words and words[0].text in {"-v", "-V"}):
        raise NotARead("it runs another command")
    if operands == "file" and len(parsed.operands) > 1:
        raise NotARead(f"`{name}` writes to a second file", "a second file")
    for word in texts:
        if not word.plain or (word is _GIVEN and name not in _NAME_READERS):
            raise NotARead(f"what `{word.text}` is, the shell decides")
    for word in [*files, *parsed.files]:
        if operands == "file" and (word is _GIVEN or not word.plain):
            raise NotARead(f"`{name}` writes to a second file", "a second file")
        _check_file(word, context)
        if name == "diff" and any(is_folder(folder / word.text) for folder in context.folders):
            raise NotARead("`diff` follows links in folders")
    fault = _CHECKS[name](parsed) if name in _CHECKS else ""
    if fault:
        raise NotARead(fault)


def _parse_arguments(name: str, words: Sequence[Word]) -> ParsedArguments:
    parsed, rest, options = ParsedArguments(), list(words), READERS[name].options
    while rest:
        word = rest.pop(0)
        if not word.text.startswith("-") or word.text == "-":
            parsed.operands.append(word)
            continue
        if not word.plain:
            raise NotARead(f"what `{word.text}` is, the shell decides")
        if name in {"echo", "printf"}:
            parsed.operands.append(word)
        elif word.text == "--":
            parsed.operands += rest
            break
        elif word.text.startswith("--"):
            option, equals, value = word.text.partition("=")
            _take_option(name, option, Word(value) if equals else None, rest, parsed)
        elif not ("-NUMBER" in options and word.text[1:].isdigit()):
            letters = word.text[1:]
            for index, letter in enumerate(letters):
                has_value = not {f"-{letter}=", f"-{letter}@"}.isdisjoint(options)
                behind = letters[index + 1 :] if has_value else ""
                _take_option(name, f"-{letter}", Word(behind) if behind else None, rest, parsed)
                if has_value:
                    break
    return parsed


def _take_option(
    name: str, option: str, value: Word | None, rest: list[Word], parsed: ParsedArguments
) -> None:
    """Take an option with its value, which may be the next word of `rest`."""
    options = READERS[name].options
    if f"{option}?" in options or (option in options and value is None):
        parsed.flags.append(option)
        return
    if f"{option}=" not in options and f"{option}@" not in options:
        raise NotARead(f"with `{option}` `{name}` may do more than read", option)
    word = value or _next_word(name, option, rest)
    if not word.plain:
        raise NotARead(f"what `{word.text}` is, the shell decides")
    parsed.texts.append((option, word.text))
    if f"{option}@" in options:
        parsed.files.append(word)


def _next_word(name: str, option: str, rest: list[Word]) -> Word:
    if not rest:
        raise NotARead(f"`{name} {option}` has no value")
    return rest.pop(0)


def _check_file(word: Word, context: ReadContext) -> None:
    """Raise NotARead where the word may name a file that no read may touch."""
    if word.expands:
        raise NotARead(f"what `{word.text}` is, the shell decides")
    if not word.globbed:
        for folder in context.folders:
            _check_path(word.text, folder, context)
        return
    may_lead_up = any(
        part.startswith(".") and fnmatchcase("..", part) for part in word.text.split("/")
    )
    if "[" in word.text or may_lead_up:
        raise NotARead(f"what `{word.text}` matches is not plain to see")
    for folder in context.folders:
        pattern = str(Path(glob.escape(str(folder)), word.text))
        _check_path(re.split(r"[*?]", word.text)[0], folder, context)
        for count, match in enumerate(glob.iglob(pattern)):  # noqa: PTH207
            name = os.path.relpath(match, folder)
            if count == MATCHES_AT_MOST:
                raise NotARead(f"`{word.text}` matches too many files to look at")
            if name.startswith("-") and word.text[0] in "*?":
                raise NotARead(f"the name of the file `{name}` is taken for an option")
            _check_path(match, folder, context)


def _check_path(text: str, folder: Path, context: ReadContext) -> None:
    if text in STREAMS or not text:
        return
    path = real_path(folder / text)
    base = next((added for added in context.added if inside(path, added)), context.root)
    reason = protected_reason(path, base, writes=False)
    if reason == MAY_HOLD_SECRETS and not os.path.lexists(folder / text):
        return
    if reason:
        raise NotARead(f"`{text}`: {reason}", outside=True)


def _check_test(command: Command, context: ReadContext) -> None:
    for word in command.words[1:]:
        if word.expands:
            raise NotARead(f"what `{word.text}` is, the shell decides")
        if not _TEST_OPTION.fullmatch(word.text):
            if word.text.startswith("-") or word.globbed:
                raise NotARead(f"`{word.text}` in a test")
            for folder in context.folders:
                if not inside(real_path(folder / word.text), context.root):
                    raise NotARead(f"`{word.text}`: it is outside the repository", outside=True)


def _check_find(command: Command, context: ReadContext) -> None:
    rest = list(command.words[1:])
    while rest and not rest[0].text.startswith("-") and rest[0].text not in _FIND_FLAGS:
        word = rest.pop(0)
        _check_file(word, context)
    while rest:
        word = rest.pop(0)
        if not word.plain:
            raise NotARead(f"what `{word.text}` is, the shell decides")
        if word.text in _FIND_TEXTS or word.text in _FIND_FILES:
            value = _next_word("find", word.text, rest)
            if not value.plain:
                raise NotARead(f"what `{value.text}` is, the shell decides")
            if word.text in _FIND_FILES:
                _check_file(value, context)
        elif word.text == "-exec":
            _check_find_exec(command, rest, context)
        elif word.text not in _FIND_FLAGS:
            raise NotARead(f"with `{word.text}` `find` does more than read", word.text)


def _check_find_exec(command: Command, rest: list[Word], context: ReadContext) -> None:
    """Take the command behind -exec from `rest`, and check it with a file for its `{}`."""
    _check_hands_over_files(command)
    words: list[Word] = []
    while rest and rest[0].text not in {";", "+"}:
        words.append(rest.pop(0))
    if not rest or not words:
        raise NotARead("an -exec without its end")
    rest.pop(0)
    if words[0].text in {"find", "git", "xargs", "cd"} or any(
        "{}" in word.text and word.text != "{}" for word in words
    ):
        raise NotARead("what -exec runs is not plain to see")
    given = tuple(_GIVEN if word.text == "{}" else word for word in words)
    _check_location(words[0].text, context.root)
    _check_command(Command(given), context)


def _check_hands_over_files(command: Command) -> None:
    """Raise NotARead where a `find` may hand over links, which may lead out of the repository."""
    texts = [word.text for word in command.words]
    pairs = itertools.pairwise(texts)
    alternatives = {"-o", "-or", "!", "-not", ",", "("} & set(texts)
    if ("-type", "f") not in pairs or alternatives:
        raise NotARead("`find` without `-type f` may hand over links that lead elsewhere")
    if texts[1:2] and texts[1].startswith("-"):
        raise NotARead("`find` without a folder to begin with")


def _check_xargs(command: Command, source: Command | None, context: ReadContext) -> None:
    """Raise NotARead unless xargs gets names that end in a zero, cannot be options, and are no
    links.
    """
    words = list(command.words[1:])
    options = []
    while words and words[0].text.startswith("-"):
        option = words.pop(0).text
        if option in {"-n", "-P"} and words and words[0].text.isdigit():
            option += words.pop(0).text
        options.append(option)
    ends_in_zero = {"-0", "-0r", "-r0", "--null"} & set(options)
    if not all(map(_XARGS_FLAGS.fullmatch, options)) or not ends_in_zero:
        raise NotARead("`xargs` without `-0`: a file's name may become an option")
    prints_names_only = (
        source is not None
        and source.name == "find"
        and source.arguments[-1:] == ["-print0"]
        and not {"-printf", "-print", "-ls", "-exec"} & set(source.arguments)
    )
    if source is None or not prints_names_only:
        raise NotARead("`xargs` takes what no `find -print0` lists")
    _check_hands_over_files(source)
    if not words or words[0].text in {"find", "git", "xargs", "cd"}:
        raise NotARead("what `xargs` runs is not plain to see")
    _check_location(words[0].text, context.root)
    _check_command(Command((*words, _GIVEN)), context)


def _check_git(command: Command, context: ReadContext) -> None:
    """Raise NotARead unless it is one of git's own readers in the repository itself."""
    words, folders = list(command.words[1:]), list(context.folders)
    for word in words:
        if word.expands or "%G" in word.text or "%(signature" in word.text:
            raise NotARead(f"what `{word.text}` does is known only when it runs")
    while words and words[0].text.startswith("-"):
        option = words.pop(0).text
        if option == "-C" and words:
            text = words.pop(0).text
            for folder in folders:
                _check_path(text, folder, context)
            folders = [real_path(folder / text) for folder in folders]
        elif option not in {"--no-pager", "-P", "--no-optional-locks", "--version"}:
            raise NotARead(f"`git {option}` may give git other settings", option)
    if not words:
        return
    subcommand, arguments = words[0].text, words[1:]
    if fault := git_commands.reading_fault(subcommand, [word.text for word in arguments]):
        raise NotARead(*fault)
    git_context = ReadContext(tuple(folders), context.root, context.added)
    for word in arguments:
        in_tree = re.sub(r"^(?:\([^)]*\)|[/!^]+)", "", word.text.rpartition(":")[2])
        if is_secret(in_tree.rpartition("/")[2]):
            raise NotARead(f"`{word.text}`: it may hold secrets", outside=True)
        if not word.text.startswith("-"):
            _check_file(word, git_context)
        elif word.globbed:
            raise NotARead(f"what `{word.text}` is, the shell decides")
    for folder in folders:
        if begins_repository(folder, context.root) is not None:
            raise NotARead(f"`{folder.name}` is a repository of its own, with its own settings")
    if reason := git_commands.settings_fault(context.root, subcommand):
        raise NotARead(reason)
