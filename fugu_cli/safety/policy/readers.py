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
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from fugu_cli.safety.git_configuration import UnreadableConfiguration, begins_repository
from fugu_cli.safety.paths import (
    MAY_HOLD_SECRETS,
    OUTSIDE,
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

FOLDERS_AT_MOST = 16
PROGRAM_AT_MOST = 10_000
"""Characters of a program's text, such as a script of sed."""
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
    """A command's arguments by the table: its operands, and its options each with its value."""

    operands: list[Word] = field(default_factory=list)
    options: list[tuple[str, Word]] = field(default_factory=list)


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
_JQ_RUNS = re.compile(r"\benv\b|\$ENV|\$__prog|input_filename|modulemeta|\binclude\b|\bimport\b")
_PRINTF_SAFE = re.compile(r"(?!-)(?:[^%]|%%|%[-+ #0]*\d*(?:\.\d+)?[sbdiouxXeEfgGcq])*", re.DOTALL)
_TEST_OPTION = re.compile(r"-(?:[bcdefghLnprsSuwxz]|ef|nt|ot|eq|ne|lt|le|gt|ge)|-?\d+|\]|=|!=|!")


def _program_fault(name: str, parsed: ParsedArguments) -> str:
    """Return why the text of a program does more than read, "" where it does not."""
    first, *others = [word.text for word in parsed.operands] or [""]
    if max(len(first), *(len(value.text) for _, value in parsed.options), 0) > PROGRAM_AT_MOST:
        return "it is too long to be looked at"
    match name:
        case "sed":
            scripts = [
                value.text for option, value in parsed.options if option in {"-e", "--expression"}
            ]
            if not all(_SED_SCRIPT.fullmatch(script) for script in scripts or [first]):
                return "a script of `sed` that may write or run something"
        case "awk" | "gawk" | "mawk":
            settings = [value.text for option, value in parsed.options if option == "-v"]
            if any("=" in text for text in others):
                return "`awk` takes a word with `=` for a setting"
            if any(map(_AWK_RUNS.search, [first, *others, *settings])):
                return "a program of `awk` that may write or run something"
        case "jq" if _JQ_RUNS.search(first):
            return "a program of `jq` that reads more"
        case "printf" if not _PRINTF_SAFE.fullmatch(first or "-"):
            return "`printf` may set a variable"
        case "date" if not all(word.text.startswith("+") for word in parsed.operands):
            return "`date` sets the clock"
        case "date" if any("TZ" in value.text for _, value in parsed.options):
            return "`date` reads the time zone from a file"
    return ""


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
file: -bEhiklnNrsv0 --brief --mime --mime-type --mime-encoding --version
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
"""Every program that may stand in a read, beside cd, test, find and git, with the options
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
_FILE_PATTERNS = names_of("--include --glob --iglob -g")
_BUILTINS = frozenset({"echo", "printf", "pwd", "true", "false", "type", "command", "test", "["})

_FIND_FLAGS = names_of(
    "( ) ! , -a -and -o -or -not -print -print0 -prune -depth -empty -true -false -readable "
    "-writable -executable -nouser -nogroup -daystart -mount -xdev -noleaf -ls -quit -P"
)
_FIND_VALUES = names_of(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -regextype "
    "-type -xtype -maxdepth -mindepth -size -mtime -ctime -atime -mmin -cmin -amin -newermt -perm "
    "-user -group -uid -gid -links -inum -printf -newer -anewer -cnewer -samefile"
)
_FIND_FILES = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})


@dataclass(frozen=True)
class ReadContext:
    """The folders that a command may find itself in, and where it may read."""

    folders: tuple[Path, ...]
    root: Path
    added: tuple[Path, ...] = ()


def is_read(text: str, root: Path, added: tuple[Path, ...] = ()) -> bool:
    """Return whether a command line only reads, inside `root` and the folders of `added`."""
    return read_fault(parse_line(text.strip(" \t\n")), root, added) is None


def read_fault(line: ShellLine, root: Path, added: tuple[Path, ...] = ()) -> NotARead | None:
    """Return why a line, run in `root`, is another command; None where it is a read."""
    try:
        _check_line(line, root, added)
    except NotARead as fault:
        return fault
    except UnreadableConfiguration as fault:
        return NotARead(str(fault))
    return None


def _check_line(line: ShellLine, root: Path, added: tuple[Path, ...]) -> None:
    if line.fault or not line.commands:
        raise NotARead(f"policy does not read it: {line.fault or 'it is empty'}")
    everywhere = [root]
    after_cd: list[Path] = []
    for index, command in enumerate(line.commands):
        if command.operator not in {"&&", "|"}:
            after_cd = []
        context = ReadContext(tuple(after_cd or everywhere), root, added)
        if command.assignments:
            raise NotARead("it sets variables")
        for redirect in command.redirects:
            _check_redirect(redirect)
        if command.name != "cd":
            _check_command(command, context)
            continue
        if "|" in {part.operator for part in (command, *line.commands[index + 1 : index + 2])}:
            raise NotARead("`cd` in a pipe")
        after_cd = _change_folder(command, context)
        everywhere += after_cd
        if len(everywhere) > FOLDERS_AT_MOST:
            raise NotARead("it changes folders too often")


def _check_redirect(redirect: Redirect) -> None:
    target = redirect.target
    between_streams = redirect.operator in {">&", "<&"} and target.text in {"0", "1", "2"}
    if not (target.plain and (between_streams or target.text == "/dev/null")):
        verb = "writes" if ">" in redirect.operator else "takes its input from"
        raise NotARead(f"it {verb} `{target.text or 'a heredoc'}`")


def _require_plain(word: Word) -> None:
    if not word.plain:
        raise NotARead(f"what `{word.text}` is, the shell decides")


def _change_folder(command: Command, context: ReadContext) -> list[Path]:
    """Return where `cd` may lead. A link on the way, and CDPATH, would lead elsewhere than it
    says.
    """
    text = command.words[1].text if len(command.words) == 2 else "-"
    if text.startswith("-") or os.environ.get("CDPATH"):
        raise NotARead("where it leads is not plain to see")
    _require_plain(command.words[1])
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
    if name == "command" and not (words and words[0].text in {"-v", "-V"}):
        raise NotARead("it runs another command")
    program = READERS[name]
    parsed = _parse_arguments(name, words)
    operands, text_count = parsed.operands, 0
    match program.operands:
        case "none" if operands:
            raise NotARead(f"`{name}` with arguments")
        case "file" if len(operands) > 1 or any(word.globbed for word in operands):
            raise NotARead(f"`{name}` writes to a second file", "a second file")
        case "texts":
            text_count = len(operands)
        case "pattern":
            brings_pattern = any(option in _PATTERN_OPTIONS for option, _ in parsed.options)
            text_count = int(name == "fd" or not brings_pattern)
    for word in operands[:text_count]:
        _require_plain(word)
    files = [value for option, value in parsed.options if f"{option}@" in program.options]
    for word in operands[text_count:] + files:
        if name == "strings" and word.text.startswith("@"):
            raise NotARead(f"`{word.text}`: `strings` reads its arguments from it")
        _check_file(word, context)
        may_be_folder = any(is_folder(folder / word.text) for folder in context.folders)
        if name == "diff" and (word.globbed or may_be_folder):
            raise NotARead("`diff` follows links in folders")
    for option, value in parsed.options:
        if option in _FILE_PATTERNS and is_secret(value.text.rpartition("/")[2]):
            raise NotARead(f"`{value.text}`: {MAY_HOLD_SECRETS}", outside=True)
    if fault := _program_fault(name, parsed):
        raise NotARead(fault)


def _parse_arguments(name: str, words: Sequence[Word]) -> ParsedArguments:
    parsed, rest, options = ParsedArguments(), list(reversed(words)), READERS[name].options
    while rest:
        word = rest.pop()
        if name in {"echo", "printf"} or not word.text.startswith("-") or word.text == "-":
            parsed.operands.append(word)
            continue
        _require_plain(word)
        if word.text == "--":
            parsed.operands += reversed(rest)
            break
        if "-NUMBER" in options and word.text[1:].isdigit():
            continue
        option, equals, glued = word.text[:2], "", word.text[2:]
        if option == "--":
            option, equals, glued = word.text.partition("=")
        if f"{option}=" in options or f"{option}@" in options:
            if not (glued or equals or rest):
                raise NotARead(f"`{name} {option}` has no value")
            value = Word(glued) if glued or equals else rest.pop()
            _require_plain(value)
            parsed.options.append((option, value))
        elif f"{option}?" in options or (option in options and not equals and glued[:1] != "-"):
            parsed.options.append((option, Word("")))
            if glued and not equals:
                rest.append(Word(f"-{glued}"))
        else:
            raise NotARead(f"with `{option}` `{name}` may do more than read", option)
    return parsed


def _check_file(word: Word, context: ReadContext) -> None:
    """Raise NotARead where the word may name a file that no read may touch."""
    if not word.globbed:
        _require_plain(word)
        for folder in context.folders:
            _check_path(word.text, folder, context)
        return
    parts = word.text.split("/")
    may_lead_up = any(part.startswith(".") and fnmatchcase("..", part) for part in parts)
    if word.expands or "[" in word.text or may_lead_up or len(parts) > FOLDERS_AT_MOST:
        raise NotARead(f"what `{word.text}` matches is not plain to see")
    for folder in context.folders:
        pattern = str(Path(glob.escape(str(folder)), word.text))
        _check_path(re.split(r"[*?]", word.text)[0], folder, context)
        for count, match in enumerate(glob.iglob(pattern)):  # noqa: PTH207
            name = os.path.relpath(match, folder)
            if count == MATCHES_AT_MOST:
                raise NotARead(f"`{word.text}` matches too many files to look at")
            if name.startswith(("-", "@")) and word.text[0] in "*?@":
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
        raise NotARead(f"{reason}: `{text}`", outside=True)


def _check_test(command: Command, context: ReadContext) -> None:
    for word in command.words[1:]:
        if word.expands:
            raise NotARead(f"what `{word.text}` is, the shell decides")
        if not _TEST_OPTION.fullmatch(word.text):
            if word.text.startswith("-") or word.globbed:
                raise NotARead(f"`{word.text}` in a test")
            for folder in context.folders:
                if not inside(real_path(folder / word.text), context.root):
                    raise NotARead(f"{OUTSIDE}: `{word.text}`", outside=True)


def _check_find(command: Command, context: ReadContext) -> None:
    rest = list(reversed(command.words[1:]))
    while rest and not rest[-1].text.startswith("-") and rest[-1].text not in _FIND_FLAGS:
        _check_file(rest.pop(), context)
    while rest:
        word = rest.pop()
        _require_plain(word)
        if word.text in _FIND_VALUES and rest:
            _require_plain(rest[-1])
            value = rest.pop()
            if word.text in _FIND_FILES:
                _check_file(value, context)
        elif word.text not in _FIND_FLAGS:
            raise NotARead(f"with `{word.text}` `find` does more than read", word.text)


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
        else:
            _require_plain(word)
    for folder in folders:
        if begins_repository(folder, context.root) is not None:
            raise NotARead(f"`{folder.name}` is a repository of its own, with its own settings")
    if reason := git_commands.settings_fault(context.root, subcommand):
        raise NotARead(reason)
