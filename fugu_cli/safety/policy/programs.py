"""What is known of programs, as data: which only read and with which options, which need a yes
every time.

Stands above shell_parser.py, beside git_commands.py, which has the same for git. What is not in the
table of readers runs something: nothing is harmless because it is not known. An option counts only
as the table has it, and not shortened.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from fugu_cli.safety.policy.shell_parser import Command, Word


class RiskLevel(IntEnum):
    """How much a command needs: nothing, a yes where the mode says so, a yes every time, a rule
    that names it.
    """

    READS = 0
    RUNS = 1
    EVERY = 2
    DESTROYS = 3


@dataclass(frozen=True)
class CommandRisk:
    """A level with its reason. `option`: a rule that allows the command must name this option of it
    as well.
    """

    level: RiskLevel
    reason: str
    option: str = ""


READS = CommandRisk(RiskLevel.READS, "it only reads")
RUNS = CommandRisk(RiskLevel.RUNS, "it is not known to be read-only")
UNKNOWN = CommandRisk(RiskLevel.EVERY, "what it runs is known only when it runs")


def names_of(names: str) -> frozenset[str]:
    return frozenset(names.split())


# ---- readers ----


@dataclass(frozen=True)
class ProgramOptions:
    """What a program's options are followed by, by the option without its dashes: one letter for
    each value.

    "" nothing, `t` a text, `f` a file that is read, `w` a file that is written, `!` nothing, but it
    runs something. `?` is a text that only stands in the same word.
    """

    known: dict[str, str]
    words: str = "f"
    """What its words are: `f` files, `t` texts, `p` a pattern and then files, `c` a command, where
    options end.
    """
    most: int = 1000
    """Words that are read; those behind them are written."""
    numbered: bool = False
    """`-5` is an option."""


@dataclass
class ParsedArguments:
    """A command's words by what they are. `odd`: the first option that is not one of a reader."""

    plain: list[Word] = field(default_factory=list)
    """The words that belong to no option."""
    files: list[Word] = field(default_factory=list)
    """Those that may name files, those of options as well."""
    written: list[tuple[str, Word]] = field(default_factory=list)
    """Files that are written, with the option that does it."""
    options: list[tuple[str, Word]] = field(default_factory=list)
    """Every option that is known, with its value."""
    odd: str = ""
    runs: bool = False
    """The odd option is known to write or to run something."""


def _row(row: str) -> tuple[str, ProgramOptions]:
    """`NAMES [WORDS][MOST][#] : letters : long options`; `k=t` is an option with a text behind
    it.
    """
    names, letters, longs = (part.strip() for part in row.split(":"))
    *called, form = names.split()
    known: dict[str, str] = {}
    for part in letters.split():
        name, valued, kind = part.partition("=")
        known |= {letter: kind for letter in name} if valued else dict.fromkeys(part, "")
    known |= {name: kind for name, _, kind in (part.partition("=") for part in longs.split())}
    most = int(found.group()) if (found := re.search(r"\d+", form)) else 1000
    return " ".join(called), ProgramOptions(known, form[0], most, "#" in form)


def program_table(rows: str) -> dict[str, ProgramOptions]:
    """A table by the names of programs; each row is `_row`'s, lines that go on are indented."""
    found = map(_row, rows.replace("\n  ", " ").strip().split("\n"))
    return {name: options for names, options in found for name in names.split()}


_ROWS = """
ls f : 1aAbBcCdDeEfFgGhHiklLmnNopPqQrRsStuUvxXZ@% ITw=t : all almost-all author block-size=t classify=? color=?
  colour=? context dereference directory escape file-type format=t full-time group-directories-first hide=t
  human-readable ignore=t indicator-style=t inode literal no-group numeric-uid-gid quote-name quoting-style=t
  recursive reverse si size sort=t time=t time-style=t width=t zero help version
cat f : AbeEnstTuv : number number-nonblank show-all show-ends show-nonprinting show-tabs squeeze-blank help version
head f# : qvz cn=t : bytes=t lines=t quiet silent verbose zero-terminated help version
tail f# : fFqrvz cns=t : bytes=t follow=? lines=t pid=t quiet retry silent sleep-interval=t verbose zero-terminated
  help version
wc f : clLmw : bytes chars lines max-line-length words total=t help version
pwd f0 : LP :
echo printf true false exit whoami uname nproc t : :
grep egrep fgrep p# : abcEFGhHiIlLnoPqrRsTUvVwxyzZ ABCdDem=t f=f : after-context=t basic-regexp before-context=t
  binary binary-files=t byte-offset color=? colour=? context=t count dereference-recursive devices=t directories=t
  exclude=t exclude-dir=t exclude-from=f extended-regexp files-with-matches files-without-match fixed-strings
  group-separator=t ignore-case include=t initial-tab invert-match label=t line-buffered line-number line-regexp
  max-count=t no-filename no-group-separator no-ignore-case no-messages null null-data only-matching perl-regexp quiet
  recursive regexp=t file=f silent text with-filename word-regexp help version
rg p# : abcFhHiIlLnNopPqsSuUvVwx0. ABCdeEgjmMrtT=t f=f : after-context=t before-context=t block-buffered byte-offset
  case-sensitive color=t colors=t column context=t context-separator=t count count-matches crlf debug dfa-size-limit=t
  encoding=t engine=t field-context-separator=t field-match-separator=t file=f files files-with-matches
  files-without-match fixed-strings follow glob=t glob-case-insensitive heading hidden iglob=t ignore-case
  ignore-file=f include-zero invert-match json line-buffered line-number line-regexp max-columns=t max-columns-preview
  max-count=t max-depth=t max-filesize=t mmap multiline multiline-dotall no-config no-column no-filename no-heading
  no-ignore no-ignore-dot no-ignore-exclude no-ignore-files no-ignore-global no-ignore-messages no-ignore-parent
  no-ignore-vcs no-line-number no-messages no-mmap no-require-git no-unicode null null-data one-file-system
  only-matching passthru path-separator=t pcre2 pcre2-version pretty quiet regexp=t replace=t search-zip=! pre=!
  hostname-bin=! smart-case sort=t sortr=t stats stop-on-nonmatch text threads=t trim type=t type-list type-not=t
  unrestricted vimgrep with-filename word-regexp help version
fd p : HIusigalLFp01q dEeStcjo=t xX=! : hidden no-ignore no-ignore-vcs no-ignore-parent unrestricted case-sensitive
  ignore-case glob regex fixed-strings and=t absolute-path list-details follow full-path print0 max-depth=t
  min-depth=t exact-depth=t exclude=t prune type=t extension=t size=t changed-within=t changed-before=t owner=t exec=!
  exec-batch=! max-results=t quiet show-errors color=t threads=t strip-cwd-prefix one-file-system help version
tree f : adfxqQNpugshDFivtcrUnCASJX LPIHT=t o=w R=! : du si prune gitignore noreport dirsfirst filelimit=t charset=t
  timefmt=t sort=t matchdirs ignore-case inodes device metafirst output=w help version
file f : bEhiklLNnprsSvz0 eFP=t C=! : brief mime mime-type mime-encoding extension keep-going dereference
  no-dereference no-pad exclude=t separator=t list print0 raw special-files compile=! help version
stat f : fLtqrsxFn c=t : dereference file-system format=t printf=t terse help version
du f : 0aAbcDgHhklLmPsSx Bdt=t X=f : all apparent-size block-size=t bytes total max-depth=t human-readable inodes
  count-links dereference no-dereference null one-file-system separate-dirs si summarize threshold=t time=?
  time-style=t exclude=t exclude-from=f help version
df f : aghHiklmPTv Btx=t : all block-size=t exclude-type=t human-readable inodes local no-sync output=? portability
  print-type si sync total type=t help version
which type t : asfptP : all skip-alias skip-functions version help
id t : aGgnruzZ : context group groups name real user zero help version
date t : uR d=t rf=f s=! I=? : date=t utc universal rfc-email rfc-3339=t iso-8601=? reference=f file=f debug set=!
  help version
basename dirname t : az s=t : multiple suffix=t zero help version
realpath readlink f : eEfLmnPqsvz : canonicalize canonicalize-existing canonicalize-missing logical physical
  no-newline quiet silent strip no-symlinks relative-to=f relative-base=f verbose zero help version
sort f : bcCdfghiMmnrRsuVz ktS=t o=w T=! : batch-size=t buffer-size=t check=? debug dictionary-order field-separator=t
  general-numeric-sort human-numeric-sort ignore-case ignore-leading-blanks ignore-nonprinting key=t merge month-sort
  numeric-sort parallel=t random-sort random-source=f reverse sort=t stable unique version-sort zero-terminated
  output=w compress-program=! temporary-directory=! help version
uniq f1 : cdDiuz fsw=t : all-repeated=? check-chars=t count group=? ignore-case repeated skip-chars=t skip-fields=t
  unique zero-terminated help version
cut f : nsz bcdf=t : bytes=t characters=t complement delimiter=t fields=t only-delimited output-delimiter=t
  zero-terminated help version
tr t : cCdst : complement delete squeeze-repeats truncate-set1 help version
nl f : p bdfhilnsvw=t : body-numbering=t footer-numbering=t header-numbering=t join-blank-lines=t line-increment=t
  no-renumber number-format=t number-separator=t number-width=t section-delimiter=t starting-line-number=t help
  version
diff f# : abBcdeEiNnpqrstTuwyZ CFILUWx=t SX=f : brief color=? context=? ed exclude=t exclude-from=f expand-tabs
  from-file=f to-file=f horizon-lines=t ifdef=t ignore-all-space ignore-blank-lines ignore-case ignore-file-name-case
  ignore-matching-lines=t ignore-space-change ignore-tab-expansion ignore-trailing-space initial-tab label=t
  left-column line-format=t minimal new-file no-dereference normal palette=t rcs recursive report-identical-files
  show-c-function show-function-line=t side-by-side speed-large-files starting-file=f strip-trailing-cr
  suppress-blank-empty suppress-common-lines tabsize=t text unified=? unidirectional-new-file width=t help version
cmp f : blsv in=t : bytes=t ignore-initial=t print-bytes quiet silent verbose help version
comm f : 123iz : check-order nocheck-order output-delimiter=t total zero-terminated help version
md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum shasum md5 f : bcqrstwz al=t : algorithm=t
  binary check debug ignore-missing length=t quiet raw status strict tag text untagged warn zero help version
test [ [[ t : : ef nt ot eq ne lt le gt ge
seq t# : w fst=t : equal-width format=t separator=t help version
column f : tx csoNEHRTWOl=t : table separator=t output-separator=t table-columns=t fillrows output-width=t json help
  version
jq p : nrscCMSaej L=! f=! : arg=tt argjson=tt slurpfile=tf rawfile=tf args jsonargs null-input raw-output raw-input
  slurp compact-output color-output monochrome-output sort-keys ascii-output exit-status join-output tab indent=t seq
  stream raw-output0 from-file=! help version
cd pushd f : LPe :
sleep wait t : n p=! : help version
sed p : nErsuz e=t i=! f=! : quiet silent expression=t regexp-extended null-data separate unbuffered posix sandbox
  debug in-place=! file=! help version
awk gawk mawk nawk p : Fv=t : version
hexdump hd f : bcCdovx ens=t : canonical length=t skip=t no-squeezing help version
xxd f1 : abeipu cglos=t r=! : cols=t len=t
od f# : abcdfilosvx AjNtSw=t : address-radix=t format=t read-bytes=t skip-bytes=t output-duplicates width=? endian=t
  strings=? help version
strings f# : afow net=t : all print-file-name bytes=t radix=t encoding=t help version
rev tac f : br s=t : before regex separator=t help version
paste f : sz d=t : delimiters=t serial zero-terminated help version
fold expand unexpand fmt f# : abiscu tw=t : bytes spaces width=t initial all first-only tabs=t help version
join f : iz t12aejov=t : check-order nocheck-order header ignore-case zero-terminated help version
base64 base32 f : di w=t : decode ignore-garbage wrap=t help version
set command t : vVp :
tty groups t : s : help version
"""
READERS = program_table(_ROWS) | {"find": ProgramOptions({}), ":": ProgramOptions({}, "t")}

_TESTS = re.compile(r"-([a-hkLnNOGoprsStuwxz]|ef|nt|ot|eq|ne|lt|le|gt|ge|\d+)")
FIND = dict.fromkeys(
    names_of(
        "-a -and -o -or -not -print -print0 -prune -depth -d -empty -true -false -readable "
        "-writable -executable "
        "-nouser -nogroup -daystart -follow -mount -xdev -noleaf -ls -quit -warn -nowarn -H -L "
        "-P -E -X -s -x"
    ),
    "",
)
FIND |= dict.fromkeys(
    names_of(
        "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname "
        "-regextype -type -xtype "
        "-maxdepth -mindepth -size -mtime -ctime -atime -mmin -cmin -amin -used -newermt "
        "-newerat -newerct -perm -user "
        "-group -uid -gid -links -inum -fstype -printf -flags -context"
    ),
    "t",
)
FIND |= dict.fromkeys(names_of("-newer -anewer -cnewer -samefile"), "f")
_SED_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)"
_SED_LINES = rf"{_SED_ADDRESS}(?:,(?:{_SED_ADDRESS}|\+\d+))? *!?[pd=q]?"
_SED_SCRIPT = re.compile(
    r"[\d$,;~+! \t{}p=qd]*|" + _SED_LINES + r"(?: *; *" + _SED_LINES + r")*"
    r"|[\d$,]*s(?P<d>[/|#,])(?:(?!(?P=d))[^\\\n]|\\.)*(?P=d)(?:(?!(?P=d))[^\\\n]|\\.)*(?P=d)[gIip\d]*"
)
_AWK_PLAIN = re.compile(r"(?!.*(?:[|>@]|system|getline|ENVIRON|ARGV|close|fflush)).*", re.DOTALL)
_JQ_PLAIN = re.compile(
    r"(?!.*(?:\benv\b|\$ENV|input_filename|\binclude\b|\bimport\b)).*", re.DOTALL
)


_PATTERNS = frozenset({"-e", "--regexp", "--expression", "-f", "--file", "--files", "--type-list"})
"""Options with which a search's first word is no pattern."""


def parse_arguments(options: ProgramOptions, words: Sequence[Word]) -> ParsedArguments:
    """The words behind a program's name, or behind a subcommand's, by the table."""
    found, rest, ended = ParsedArguments(), list(words), False
    while rest:
        word = rest.pop(0)
        text = word.text
        if ended or not text.startswith("-") or text == "-":
            found.plain.append(word)
            ended = ended or options.words == "c"
        elif text == "--":
            ended = True
        elif text.startswith("--"):
            name, equals, value = text.partition("=")
            _take(
                found,
                name,
                options.known.get(name[2:]),
                [replace(word, text=value)] if equals else [],
                rest,
            )
        elif not (options.numbered and text[1:].isdigit()):
            _cluster(found, options, word, rest)
    if options.words == "f":
        found.files += found.plain[: options.most]
    elif options.words == "p":
        brought = _PATTERNS & {option for option, _ in found.options}
        found.files += found.plain if brought else found.plain[1:]
    several = options.most < 1000 and any(word.globbed or word.dynamic for word in found.plain)
    if len(found.plain) > options.most or several:
        found.written += [("", word) for word in found.plain[0 if several else options.most :]]
        found.odd, found.runs = found.odd or "a second file", True
    return found


def _cluster(found: ParsedArguments, options: ProgramOptions, word: Word, rest: list[Word]) -> None:
    """Short options in one word, up to the first that has a value."""
    letters = word.text[1:]
    for at, letter in enumerate(letters):
        kind = options.known.get(letter)
        behind = letters[at + 1 :]
        _take(
            found,
            f"-{letter}",
            kind,
            [replace(word, text=behind)] if behind and kind != "" else [],
            rest,
        )
        if kind != "":
            return


def _take(
    found: ParsedArguments, option: str, kind: str | None, values: list[Word], rest: list[Word]
) -> None:
    """An option with what it is followed by: `values` in its own word, then words of the rest."""
    if kind is None or kind in {"!", "w"}:
        found.odd, found.runs = found.odd or option, found.runs or kind is not None
    if not kind or kind in {"!", "?"}:
        found.options.append((option, Word("")))
        found.files += values if kind != "?" else []  # what should have no value may name a file
        return
    for letter in kind:
        value = values.pop(0) if values else rest.pop(0) if rest else Word("")
        found.options.append((option, value))
        if letter == "w":
            found.written.append((option, value))
        elif letter == "f":
            found.files.append(value)


def reader_risk(command: Command) -> CommandRisk:
    """READS, or why a program of the table does more; RUNS for one that is not in it."""
    name, words = program_name(command), command.words[1:]
    if name not in READERS:
        return RUNS
    if any(word.dynamic for word in words):
        return CommandRisk(RiskLevel.RUNS, "what it reads is known only when it runs")
    if name == "find":
        return _find([word.text for word in words])
    found = (
        ParsedArguments(plain=list(words))
        if name in FREE
        else parse_arguments(READERS[name], words)
    )
    if found.odd:
        option = found.odd if found.runs and name != "sed" else ""
        return CommandRisk(
            RiskLevel.RUNS, f"with `{found.odd}` `{name}` does more than read", option
        )
    if command.given_more and READERS[name].most < 1000:
        return CommandRisk(RiskLevel.RUNS, f"`{name}` writes to the second file it is given")
    if _odd(name, found, [word.text for word in words]):
        return CommandRisk(RiskLevel.RUNS, f"with these arguments `{name}` may do more than read")
    return READS


FREE = names_of("echo printf true false : exit test [ [[ uname whoami nproc set wait")
"""Programs with a grammar of their own, or with options none of which matters."""


def _odd(name: str, found: ParsedArguments, arguments: Sequence[str]) -> bool:
    """The arguments themselves hold a program, or set something."""
    brought = [word.text for option, word in found.options if option in {"-e", "--expression"}]
    scripts = brought or [word.text for word in found.plain[:1]]
    dashed = [argument for argument in arguments if argument.startswith("-") and argument != "-"]
    plain = [word.text for word in found.plain]
    sums = name == "[[" and {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"} & set(
        arguments
    )  # names are worked out there
    patterns: dict[str, tuple[re.Pattern[str], Sequence[str]]] = {
        "date": (re.compile(r"\+.*", re.DOTALL), plain),
        "printf": (
            re.compile(r"(?!-v)(?:[^%]|%[^%a-mo-zA-Z]*(?!n)[%a-zA-Z])*", re.DOTALL),
            arguments[:1],
        ),
        "wait": (re.compile(r"-n"), dashed[:1] + dashed[2:]),
        "set": (re.compile(r"[-+][euxov]+|pipefail|errexit|nounset"), arguments or ["-"]),
        "sed": (_SED_SCRIPT, scripts or ["-"]),
        **dict.fromkeys(("test", "[", "[["), (_TESTS, dashed)),
        **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), (_AWK_PLAIN, arguments)),
        "jq": (_JQ_PLAIN, arguments),
        "command": (re.compile(r"-[vV]"), arguments[:1]),
    }
    pattern, texts = patterns.get(name, (_TESTS, ()))
    return bool(sums) or not all(map(pattern.fullmatch, texts))


def _find(arguments: Sequence[str]) -> CommandRisk:
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "-delete":
            return CommandRisk(RiskLevel.EVERY, "it deletes what it finds")
        if word in {"-exec", "-execdir"}:
            while rest and rest.pop(0) not in {";", "+"}:
                pass  # judged as a command of its own
        elif word.startswith("-") and word != "-":
            kind = FIND.get(word)
            if kind is None:
                return CommandRisk(RiskLevel.RUNS, f"with `{word}` `find` writes or asks", word)
            del rest[: len(kind)]
    return READS


# ---- what needs a yes every time, and what destroys ----


def _said(rows: str) -> dict[str, str]:
    """By name what `NAMES: TEXT` says of each."""
    found = (row.partition(": ") for row in rows.strip().split("\n"))
    return {name: text for names, _, text in found for name in names.split()}


PROBES = names_of(
    "python python3 pip pip3 node npm npx pnpm yarn cargo rustc rustup go gcc g++ cc clang make "
    "cmake ruby java javac "
    "git uv pytest ruff mypy tsc deno bun docker"
)
VERSION = frozenset(
    {(name, option) for name in PROBES for option in ("--version", "-V", "version")}
    | {(name, "-v") for name in ("node", "npm", "npx", "yarn", "pnpm")}
)
SHELLS = frozenset(
    {"sh", "bash", "zsh", "dash", "ksh", "mksh", "fish", "ash", "csh", "tcsh"}
) | names_of("rbash bash-static yash oksh posh pdksh ksh93 lksh nu pwsh powershell elvish xonsh")
READ_SHELLS = frozenset({"sh", "bash", "dash", "ash"})
"""Those whose language shell_parser.py reads."""
INTERPRETERS = SHELLS | {
    "python",
    "python3",
    "perl",
    "ruby",
    "node",
    "php",
    "deno",
    "bun",
    "osascript",
    "lua",
}
REDEFINES = names_of(
    "eval source . trap alias unalias enable shopt hash bind complete fc history emulate"
)
"""Builtins after which words mean something else, or which run what is not plain to see."""
WORKS_OUT = names_of(
    "let declare typeset local export readonly unset read mapfile readarray getopts printf test "
    "[ [[ wait"
)
"""Builtins that work out the names they are given: a subscript in one may hold a command."""
SHOWS_KEYS = "it may show keys in the environment"
SAFE_VARIABLES = re.compile(r"LANG|LC_\w+|CI|NO_COLOR|FORCE_COLOR|TERM|COLUMNS|LINES|TZ")
SHELL_VARIABLES = names_of(
    "CDPATH GLOBIGNORE BASH_ENV ENV SHELLOPTS BASHOPTS BASH_ALIASES BASH_CMDS PROMPT_COMMAND PS4 "
    "POSIXLY_CORRECT"
)
"""Variables that change what the rest of a line means."""

EVERY_TIME = _said("""
sudo su doas pkexec runuser: it takes other rights
dd mkfs fdisk parted sfdisk shred wipefs mkswap losetup: it writes to devices
mount umount sysctl modprobe insmod swapoff iptables nft ufw: it changes the system
passwd useradd userdel usermod groupadd chpasswd visudo crontab at: it changes the system
systemctl service launchctl loginctl: it changes the system
shutdown reboot halt poweroff init: it stops the machine
kill pkill killall skill xkill: it ends processes
apt apt-get dpkg yum dnf rpm pacman apk zypper brew snap port: it installs for the whole system
ssh scp sftp nc ncat netcat socat telnet ftp rsync mail sendmail: it reaches other machines
kubectl helm terraform tofu pulumi aws gcloud az gh glab heroku fly vercel netlify: it acts on other machines
""") | dict.fromkeys(names_of("printenv export set declare typeset"), SHOWS_KEYS)
_PUBLISHES = _said("""
npm: publish unpublish login adduser token deprecate owner
pnpm: publish login
yarn: publish npm
cargo: publish login yank owner
twine: upload
gem: push yank
poetry uv gradle: publish
docker podman: push system rm rmi volume login kill stop prune
mvn: deploy release:perform
goreleaser: release
wrangler firebase serverless cdk flyctl: deploy publish destroy
""")
"""Subcommands that act on something outside the repository."""
WRITERS = names_of("rm mv cp ln tee touch mkdir rmdir truncate unlink install chmod chgrp patch")
DELETERS = names_of("rm rmdir unlink truncate shred")
SYSTEM_FOLDERS = frozenset(
    {"/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/sbin", "/usr/sbin"}
)
_DEVICES = names_of("mkfs fdisk parted sfdisk shred wipefs mkswap")
_SQL = re.compile(
    r"\b(drop\s+(table|database|schema)|truncate\s+table|delete\s+from)\b|dropDatabase\(",
    re.IGNORECASE,
)
_CLIENTS = names_of("psql mysql mariadb sqlite3 mongosh mongo redis-cli")
_SERVICES: dict[str, frozenset[str]] = {
    **dict.fromkeys(("docker", "podman"), frozenset({"prune", "volume rm"})),
    **dict.fromkeys(("terraform", "tofu", "pulumi"), frozenset({"destroy"})),
    **dict.fromkeys(("kubectl", "gcloud", "az", "gh", "glab"), frozenset({"delete"})),
    "helm": frozenset({"uninstall", "delete"}),
    "aws": frozenset({"rm", "rb", "delete", "terminate"}),
    "crontab": frozenset({"-r"}),
}
_UPLOADS = (
    "--data",
    "--form",
    "--upload-file",
    "--request",
    "--config",
    "--json",
    "--post",
    "--body",
    "--method",
)
EVERYTHING = frozenset({"*", ".", "./", "./*", ".*", "*/", "**"})
DESTROYS_REASON = "it destroys what undo cannot restore"
FOUND = CommandRisk(RiskLevel.DESTROYS, DESTROYS_REASON)


def program_name(command: Command) -> str:
    """The command's name without its folder, as the tables know it."""
    return command.words[0].text.rsplit("/", 1)[-1] if command.words else ""


def is_local_program(command: Command) -> bool:
    """It names a program by a path that is none of the system's: what it does is not known by its
    name.
    """
    folder, slash, _ = command.words[0].text.rpartition("/") if command.words else ("", "", "")
    return bool(slash) and folder not in SYSTEM_FOLDERS


def command_arguments(command: Command) -> list[str]:
    return [word.text for word in command.words[1:]]


def has_option(arguments: Sequence[str], letters: str, *longs: str) -> bool:
    """One of these short options (alone or in a cluster) or long ones (shortened too) is among the
    arguments.
    """
    return any(_option(argument, letters, longs) for argument in arguments)


def _option(argument: str, letters: str, longs: Sequence[str]) -> bool:
    if argument.startswith("--"):
        name = argument.split("=", 1)[0]
        return len(name) > 2 and any(
            long.startswith(name) or name.startswith(long) for long in longs
        )
    return argument.startswith("-") and bool(set(argument[1:]) & set(letters))


def destroys(command: Command) -> CommandRisk | None:
    """What undo cannot restore, by the command's name and arguments alone; what its paths say is in
    classification.py.

    Undo restores files of the repository that git does not ignore. It restores nothing outside,
    nothing of git's own, no ignored file, no disk and no database.
    """
    name, arguments = program_name(command), command_arguments(command)
    if name.partition(".")[0] in _DEVICES or (
        name == "dd" and any(a.startswith("of=/dev/") for a in arguments)
    ):
        return FOUND
    emptied = name in _CLIENTS and any(
        _SQL.search(a) or a.upper() in {"FLUSHALL", "FLUSHDB"} for a in arguments
    )
    composed = name in {"docker", "podman", "docker-compose"} and "down" in arguments
    if name == "dropdb" or emptied or (composed and has_option(arguments, "v", "--volumes")):
        return FOUND
    if name == "rm" and EVERYTHING & set(arguments):
        return CommandRisk(
            RiskLevel.DESTROYS, "it deletes everything here, what git ignores included"
        )
    said = " ".join(a for a in arguments if not a.startswith("-") or a == "-r")
    ends = any(
        re.search(rf"(^|[ -]){re.escape(word)}($|[ -])", said) for word in _SERVICES.get(name, ())
    )
    return FOUND if ends else None


def known_risk(command: Command) -> CommandRisk | None:
    """What needs a yes every time by the command's name and arguments alone."""
    name, arguments = program_name(command), command_arguments(command)
    name = "mkfs" if name.startswith("mkfs.") else name
    if name in EVERY_TIME:
        sets = (
            EVERY_TIME[name] == SHOWS_KEYS
            and name != "printenv"
            and arguments not in ([], ["-p"], ["-x"])
        )
        return None if sets else CommandRisk(RiskLevel.EVERY, EVERY_TIME[name])
    said = [argument for argument in arguments if not argument.startswith("-")]
    if set(_PUBLISHES.get(name, "").split()) & set(said[:3]):
        return CommandRisk(RiskLevel.EVERY, "it acts on something outside the repository")
    if name == "rm" and any(word.dynamic for word in command.words[1:]):
        return CommandRisk(RiskLevel.EVERY, "what it deletes is known only when it runs")
    if name in {"chmod", "chown", "chgrp"} and (
        name == "chown" or has_option(arguments, "R", "--recursive")
    ):
        return CommandRisk(RiskLevel.EVERY, "it changes who may use many files")
    if name in {"curl", "wget"} and has_option(
        arguments, "dFTXK" if name == "curl" else "", *_UPLOADS
    ):
        return CommandRisk(RiskLevel.EVERY, "it sends something out")
    if name in {"npm", "pnpm", "yarn"} and {"-g", "--global"} & set(arguments):
        return CommandRisk(RiskLevel.EVERY, "it installs for the whole system")
    return None
