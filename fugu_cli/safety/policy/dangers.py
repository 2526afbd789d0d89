"""Commands of the table's last column, and those that undo cannot take back, by their words.

A warning, not a wall: where the sandbox holds it keeps commands from the network, from what lies
outside and from git's folder whatever their words are. Stands above readers.py.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from fugu_cli.formatting import shorten
from fugu_cli.safety import paths
from fugu_cli.safety.paths import expand_home, inside, protected_reason, real_path
from fugu_cli.safety.policy import git_commands
from fugu_cli.safety.policy.readers import READERS
from fugu_cli.safety.policy.shell_line import (
    Command,
    ShellLine,
    Word,
    names_of,
    parse_line,
    rows_of,
)
from fugu_cli.safety.self_running_files import RunBy, self_running_file

LOST = "it destroys what undo cannot restore"
NETWORK = "it reaches the network"
HISTORY = "it writes git history"
OTHER_REPOSITORY = "it reaches another repository"
DANGEROUS = {
    LOST: """
mkfs fdisk parted sfdisk wipefs mkswap losetup shred dropdb: *
docker podman: prune volume+rm down+-v down+--volumes
docker-compose: down+-v down+--volumes
terraform tofu pulumi: destroy
kubectl gcloud az gh glab: delete
helm: uninstall delete
aws: rm rb delete terminate
crontab: -r
git-prune git-filter-branch git-filter-repo: *
git-stash: drop clear
git-reflog: expire delete drop
git-branch: -D -d+-f -d+--force --delete+-f --delete+--force
git-clean: -x -X -f+--force -ff
git-gc: --prune=*
git-worktree: remove+-f remove+--force
git-update-ref: -d --delete --stdin
""",
    "it takes other rights": "sudo su doas pkexec runuser: *",
    "it writes to devices": "dd: *",
    "it changes the system": """
mount umount sysctl modprobe insmod swapoff iptables nft ufw: *
passwd useradd userdel usermod groupadd chpasswd visudo crontab at: *
systemctl service launchctl loginctl: *
""",
    "it stops the machine": "shutdown reboot halt poweroff init: *",
    "it ends processes": "kill pkill killall skill xkill: *",
    "it installs for the whole system": """
apt apt-get dpkg yum dnf rpm pacman apk zypper brew snap port: *
npm pnpm yarn: -g --global
""",
    "it reaches other machines": """
ssh scp sftp nc ncat netcat socat telnet ftp rsync mail sendmail: *
""",
    "it acts on other machines": """
kubectl helm terraform tofu pulumi aws gcloud az gh glab heroku fly vercel netlify: *
""",
    "it acts on something outside the repository": """
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
""",
    "it may show keys in the environment": "printenv: *",
    "it changes who may use many files": "chown: *\nchmod chgrp: -R --recursive",
    "it publishes commits": """
git-push git-send-pack git-http-push git-send-email git-request-pull git-svn git-p4: *
""",
    "it changes what git does here": "git-config git-remote: *",
    "it throws away work or history": """
git-rebase git-update-ref git-gc git-replace git-symbolic-ref git-restore git-clean: *
git-branch: -d --delete -M -C -f --force
git-tag: -d --delete -f --force
git-reset: --hard --merge --keep
git-checkout: -f --force -p -B --ours --theirs --patch -- .* *.* */
git-switch: -f -C --force --discard-changes --force-create
git-commit: --amend
git-worktree: remove prune
""",
    "it sends something out": """
curl: -d -F -T -X -K --data* --form* --upload-file --request --config --json
wget: --post* --body* --method --config
""",
    NETWORK: "curl wget: *",
    OTHER_REPOSITORY: """
git-fetch git-pull git-clone git-ls-remote git-submodule git-lfs git-subtree: *
""",
}
"""By reason, the programs of the last column, each with the arguments of which it needs one; `a+b`
stands for both, `*` for any or none, and `git-stash` for git's command. `-d` is a letter in any
group of options, `--long` an option that may be shortened. The first reason that fits counts.
"""
_DANGEROUS = [(reason, rows_of(rows)) for reason, rows in DANGEROUS.items()]
_WEAK = frozenset({NETWORK, OTHER_REPOSITORY, HISTORY})
"""Reasons for which a yes may be remembered."""
WRITERS = names_of("rm mv cp ln tee touch mkdir rmdir truncate unlink install chmod chgrp patch dd")
DELETERS = names_of("rm rmdir unlink truncate shred")
SHELLS = names_of(
    "sh bash zsh dash ksh mksh fish ash csh tcsh rbash yash posh pdksh oksh ksh93 lksh nu pwsh "
    "powershell elvish xonsh bash-static"
)
INTERPRETERS = SHELLS | names_of("python python3 perl ruby node php deno bun osascript lua")
WRAPPERS = names_of(
    "sudo doas env timeout nice nohup stdbuf time command exec builtin xargs setsid ionice busybox "
    "toybox chronic unbuffer watch parallel script strace ltrace flock taskset chrt chroot su "
    "runuser npx bunx uvx xvfb-run caffeinate prlimit unshare nsenter systemd-run fakeroot setarch "
    "valgrind perf gdb catchsegv numactl cpulimit proxychains torsocks eatmydata firejail bwrap entr "
    "hyperfine tmux screen ssh start-stop-daemon dbus-run-session expect"
)
"""Programs that run the command that stands in their arguments."""
RUNNERS = rows_of("""
uv poetry pipenv pdm rye hatch pixi conda mamba volta devbox: run
npm yarn bundle mise direnv asdf rbenv pyenv nodenv: exec
pnpm: exec dlx
python python3: -m
""")
"""The words behind which these programs run another command."""
_PLAIN_OPTIONS = names_of("-- -y --yes -q --quiet -s --silent -i -n -v")
"""Options of wrappers and runners that take no value."""
LONGEST_PATH = 4_096
"""Characters of a word, or of a part of one, that may be a path."""
COMMANDS_AT_MOST = 200
WORDS_AT_MOST = 5_000
"""Commands inside of others that are looked at, and their words."""
_SQL_DELETES = re.compile(
    r"\b(drop\s+(table|database|schema)|truncate\s+table|delete\s+from|flush(all|db))\b"
    r"|dropDatabase\(",
    re.IGNORECASE,
)
_DATABASES = names_of("psql mysql mariadb sqlite3 mongosh mongo redis-cli")
_WHOLE_REPOSITORY = names_of("* . ./ ./* .* */ ** .[!.]*")
_IN_ADDED_FOLDER = "in an added folder undo restores only what fugu's own tools changed"
_LOOPBACK = re.compile(r"(?:https?://)?(?:localhost|127(?:\.\d+){3}|\[::1\])(?::\d+)?(?:[/?#]|$)")
_GREP_PATTERNS = ("-e", "-f", "--regexp", "--file")
_FIND_PATTERNS = names_of("-name -iname -path -ipath -wholename -iwholename -regex -iregex")
_STREAMS = names_of("/dev/null /dev/stdin /dev/stdout /dev/stderr /dev/tty")


@dataclass(frozen=True)
class Danger:
    """Why a command stands in the table's last column. `every_time`: a yes holds for one call;
    `lost`: undo does not bring back what it takes away.
    """

    reason: str
    every_time: bool = True
    lost: bool = False


class TooManyCommands(Exception):
    """A line runs more commands than can be checked."""

    def __init__(self) -> None:
        super().__init__("it runs more commands than can be checked")


@dataclass(frozen=True)
class _Surroundings:
    """The folders that a line may run in. `scratch`: those below a private /tmp that it enters.
    `own_jobs`: the words that name its own background jobs.
    """

    folders: tuple[Path, ...]
    root: Path
    added: tuple[Path, ...]
    private_tmp: bool
    scratch: tuple[Path, ...]
    own_jobs: frozenset[str]


def dangers_of_line(
    line: ShellLine, root: Path, added: tuple[Path, ...], *, private_tmp: bool
) -> Danger | None:
    """Return the worst that stands in a line. Its reason names the command only where the line has
    several. `private_tmp`: /tmp is the command's own.
    """
    scratch = _scratch_folders(line) if private_tmp else ()
    surroundings = _Surroundings(
        possible_folders(line, root), root, added, private_tmp, scratch, _own_jobs(line)
    )
    worst: Danger | None = None
    try:
        commands = all_commands(line)
    except TooManyCommands as fault:
        commands, worst = list(line.commands), Danger(str(fault))
    for command in commands:
        is_whole_line = line.commands == (command,)
        where = "" if is_whole_line else f", in `{shorten(command.text, 80)}`"
        for danger in _dangers_of(command, surroundings):
            if worst is None or (danger.lost, danger.every_time) > (worst.lost, worst.every_time):
                worst = replace(danger, reason=f"{danger.reason}{where}")
    return worst


def possible_folders(line: ShellLine, root: Path) -> tuple[Path, ...]:
    """Return the folders that commands of the line may find themselves in, `..` followed as the
    kernel does.
    """
    folders = [root]
    for command in line.commands:
        arguments = command.arguments
        targets = arguments[:1] if command.name in {"cd", "pushd"} else []
        if command.name == "git":
            targets = [b for a, b in itertools.pairwise(arguments) if a == "-C"]
        for target in targets:
            folders += [real_path(folder / expand_home(target)) for folder in folders]
        if len(folders) > 16:
            break
    return tuple(dict.fromkeys(folders))


def _scratch_folders(line: ShellLine) -> tuple[Path, ...]:
    """Return the folders below /tmp that the line enters by their full names."""
    targets = [Path(c.arguments[0]) for c in line.commands if c.name == "cd" and c.arguments]
    folders = [real_path(target) for target in targets if target.parts[:2] == ("/", "tmp")]
    return tuple(folder for folder in folders if inside(folder, Path("/tmp")))


def _own_jobs(line: ShellLine) -> frozenset[str]:
    """Return the words for background jobs of the line: `$!`, and variables that hold nothing else."""
    values: dict[str, set[str]] = {}
    for command in line.commands:
        for name, word in command.assignments:
            values.setdefault(name, set()).add(word.text)
    names = {name for name, assigned in values.items() if assigned == {"$!"}}
    return frozenset({"$!"} | {f"${name}" for name in names} | {f"${{{name}}}" for name in names})


def _stays_inside(command: Command, surroundings: _Surroundings) -> bool:
    """Return whether a command ends only jobs of its own line, or asks only servers that the line
    itself started: a sandbox has no network but its own.
    """
    arguments = command.arguments
    if command.name == "kill":
        targets = arguments[1:] if re.match(r"-[A-Z0-9]+$", arguments[0]) else arguments
        return bool(targets) and surroundings.own_jobs.issuperset(targets)
    if command.name in {"curl", "wget"} and surroundings.private_tmp:
        has_loopback = False
        before = ""
        for word in arguments:
            may_be_value = before.startswith("-") and before not in _PLAIN_OPTIONS
            if _LOOPBACK.match(word):
                has_loopback = True
            elif "://" in word or not (word.startswith("-") or may_be_value):
                return False
            before = word
        return has_loopback
    return False


def all_commands(line: ShellLine, *, any_word: bool = False) -> list[Command]:
    """Return the commands of a line, and those that wrappers, runners and shells run, as far as
    their words say so. `any_word`: every word of a wrapper, and every text with a blank, may begin
    one. Raise TooManyCommands.
    """
    words_left = WORDS_AT_MOST
    if line.is_cut:
        raise TooManyCommands
    commands = dict.fromkeys(line.commands)
    queue = list(commands)
    for command in queue:  # it grows meanwhile
        for inner in _commands_in(command, any_word):
            if inner not in commands:
                commands[inner] = None
                queue.append(inner)
                words_left -= len(inner.words)
            if words_left < 0 or len(queue) > len(line.commands) + COMMANDS_AT_MOST:
                raise TooManyCommands
    return queue


def commands_within(command: Command) -> list[Command]:
    """Return the commands that a command runs, as far as its words say so."""
    try:
        return all_commands(ShellLine((command,)))[1:]
    except TooManyCommands:
        return [command]


def _commands_in(command: Command, any_word: bool) -> Iterator[Command]:
    """Yield the commands that stand in the words of a command."""
    name, words = command.name, command.words[1:]
    if name.startswith("git-"):
        yield Command((Word("git"), Word(name.removeprefix("git-")), *words))
    if any_word and name not in READERS and name != "git":
        for word in words:
            if " " in word.text:
                for text in (word.text, word.text.partition("=")[2], word.text[2:]):
                    yield from parse_line(text).commands
    if name in RUNNERS:
        verbs = RUNNERS[name].split()
        after_verb = list(itertools.dropwhile(lambda word: word.text not in verbs, words))[1:]
        yield from _wrapped_commands(after_verb, any_word=False)
    elif name in SHELLS:
        for option, word in itertools.pairwise(words):
            if re.fullmatch(r"-\w*c", option.text):
                yield from parse_line(word.text).commands
    elif name == "find":
        for index, word in enumerate(words):
            if word.text in {"-exec", "-execdir", "-ok", "-okdir"} and words[index + 1 :]:
                yield Command(words[index + 1 :])
    elif name in WRAPPERS or name.startswith("ld-"):
        yield from _wrapped_commands(words, any_word)


def _wrapped_commands(words: Sequence[Word], any_word: bool) -> Iterator[Command]:
    """Yield the commands that may begin in the words behind a wrapper. Options, durations and
    assignments are passed over; a word behind an option may be its value, or the command.
    """
    before = ""
    for index, word in enumerate(words):
        if " " in word.text:
            yield from parse_line(word.text).commands
        elif not re.match(r"-|[\d.]+[smhd]?$|\w+=", word.text):
            yield Command(tuple(words[index:]))
            may_be_value = before.startswith("-") and before not in _PLAIN_OPTIONS
            if not (may_be_value or any_word):
                return
        before = word.text


def _dangers_of(command: Command, surroundings: _Surroundings) -> Iterator[Danger]:
    name, arguments = command.name.partition(".")[0], command.arguments
    if command.name == "git":
        options, rest = git_commands.split_options(arguments)
        variables = [(name, word.text) for name, word in command.assignments]
        if git_commands.gives_other_settings(options, variables):
            yield Danger(git_commands.OTHER_SETTINGS)
        name, arguments = f"git-{rest[0]}" if rest else "", rest[1:]
    if name.startswith("git-"):
        subcommand = name.removeprefix("git-")
        if git_commands.only_lists(subcommand, arguments):
            name = ""
        elif subcommand not in git_commands.KNOWN:
            yield Danger("an alias of git can stand for anything")
        elif subcommand == "apply" and not git_commands.writes_index(arguments):
            pass
        elif subcommand not in git_commands.READING:
            yield Danger(HISTORY, every_time=False)
    stays_inside = bool(arguments) and _stays_inside(command, surroundings)
    for reason, rows in [] if stays_inside else _DANGEROUS:
        if any(has_arguments(pattern, arguments) for pattern in rows.get(name, "").split()):
            yield Danger(reason, every_time=reason not in _WEAK, lost=reason == LOST)
            break
    if name in _DATABASES and any(map(_SQL_DELETES.search, arguments)):
        yield Danger(LOST, lost=True)
    yield from _dangers_by_paths(command, surroundings)


def has_arguments(pattern: str, arguments: Sequence[str]) -> bool:
    """Return whether all parts of a pattern of the table are among the arguments."""
    return pattern == "*" or all(
        any(_is_argument(part, argument) for argument in arguments) for part in pattern.split("+")
    )


def _is_argument(part: str, argument: str) -> bool:
    if not part.startswith("-") or part == "--":
        return fnmatchcase(argument, part)
    if part.startswith("--"):
        name = argument.partition("=")[0]
        is_shortened = len(name) > 2 and name.startswith("--") and part.startswith(name)
        return is_shortened or fnmatchcase(argument, part) or fnmatchcase(name, part)
    letters = Counter(argument[1:]) if argument[:1] == "-" != argument[1:2] else Counter()
    return letters >= Counter(part[1:])


def writes_arguments(command: Command) -> bool:
    """Return whether a command writes or takes away the files that it is given."""
    arguments = command.arguments
    if command.name in {"sed", "gsed", "perl", "ruby"}:
        return has_arguments("-i", arguments) or has_arguments("--in-place", arguments)
    if command.name == "git":
        subcommand = git_commands.split_options(arguments)[1][:1]
        return not {"rm", "mv", "restore", "checkout", "apply", "clean"}.isdisjoint(subcommand)
    return command.name in WRITERS | DELETERS or "-delete" in arguments


def named_files(command: Command) -> list[tuple[Word, bool]]:
    """Return the words of a command that may be files, each with whether it is written."""
    writes = writes_arguments(command)
    program = READERS.get(command.name)
    only_texts = program is not None and program.operands == "texts"
    exclusions = _exclusions(command)
    named = [
        (word, writes)
        for index, word in enumerate(command.words[1:])
        if not only_texts and index not in exclusions
    ]
    return named + [(redirect.target, redirect.writes) for redirect in command.redirects]


def _exclusions(command: Command) -> Sequence[int]:
    """Return the indexes of the arguments that say which files the command leaves alone."""
    arguments = command.arguments
    exclusions = [
        index
        for index, word in enumerate(arguments)
        if re.match("--(exclude|ignore)(-dir)?=", word)
    ]
    if command.name == "find":
        for index, option in enumerate(arguments[:-1]):
            if option not in _FIND_PATTERNS:
                continue
            is_negated = index > 0 and arguments[index - 1] in {"-not", "!"}
            if is_negated or _is_pruned(arguments[index:]):
                exclusions.append(index + 1)
    elif command.name in {"grep", "egrep", "fgrep"} and (
        has_arguments("-v", arguments) or "--invert-match" in arguments
    ):
        operands = [index for index, word in enumerate(arguments) if not word.startswith("-")]
        is_in_option = any(has_arguments(option, arguments) for option in _GREP_PATTERNS)
        exclusions += [] if is_in_option else operands[:1]
    return exclusions


def _is_pruned(expression: Sequence[str]) -> bool:
    """Return whether an expression of find begins with alternatives that `-prune -o` leaves out."""
    rest = list(expression)
    while len(rest) > 2 and rest[0] in _FIND_PATTERNS:
        rest = rest[2:]
        if rest[0] in {"-o", "-or"}:
            rest = rest[1:]
    if rest[:1] == [")"]:
        rest = rest[1:]
    after = rest[2:] if rest[1:2] == [")"] else rest[1:]
    return rest[:1] == ["-prune"] and after[:1] in (["-o"], ["-or"])


def _dangers_by_paths(command: Command, surroundings: _Surroundings) -> Iterator[Danger]:
    deletes = command.name in DELETERS or "-delete" in command.arguments
    named = named_files(command)
    program_folder = command.words[0].text.rpartition("/")[0] if command.words else ""
    if program_folder and program_folder not in os.get_exec_path():
        named.append((command.words[0], False))
    for word, is_written in dict.fromkeys(named):
        if deletes and _deletes_everything(word, surroundings):
            yield Danger("it deletes everything here, what git ignores included", lost=True)
        for text in dict.fromkeys((word.text, word.text.partition("=")[2])):
            is_device = text.startswith("/dev/") and text not in _STREAMS
            if is_device and is_written and not word.text.startswith("if="):
                yield Danger(f"`{text}` is a device", lost=True)
            for reason in _path_reasons(text, is_written, surroundings):
                yield _path_danger(text, reason, is_written, deletes)


def _path_danger(text: str, reason: str, is_written: bool, deletes: bool) -> Danger:
    lost = deletes and reason in {paths.OUTSIDE, paths.OF_GIT, _IN_ADDED_FOLDER}
    if reason == paths.OUTSIDE and deletes:
        reason = "it deletes outside the repository"
    elif reason == paths.OUTSIDE and is_written:
        reason = "it writes outside the repository"
    elif reason == paths.OUTSIDE:
        reason = "it reaches outside the repository"
    end = f"; {LOST}" if lost else ""
    return Danger(f"{reason}: `{text}`{end}", lost=lost)


def _deletes_everything(word: Word, surroundings: _Surroundings) -> bool:
    """Return whether a word is the whole repository, or a pattern for all that is plain to see, as
    it may be where the repository cannot be listed.
    """
    root = surroundings.root
    if word.text in _WHOLE_REPOSITORY:
        return True
    if not word.globbed:
        is_option = word.text.startswith("-")
        return not is_option and any(real_path(f / word.text) == root for f in surroundings.folders)
    pattern = word.text.removeprefix("./").rstrip("/").replace("[^", "[!")
    pattern = re.sub(r"\[\[:\w+:\]\]", "?", pattern)
    try:
        names = [path.name for path in root.iterdir() if not path.name.startswith(".")]
    except OSError:
        return True
    matches_all = len(names) > 1 and all(fnmatchcase(name, pattern) for name in names)
    return matches_all or fnmatchcase(".git", pattern)


def _path_reasons(text: str, is_written: bool, surroundings: _Surroundings) -> Iterator[str]:
    """Yield why a word that may be a path needs a yes, in any folder that the line may be in."""
    text = re.sub(r"^\$(?:HOME|\{HOME\})(?=/|$)", "~", text)
    if not text or "://" in text or text.startswith(("-", "/dev/", "$")) or "\0" in text:
        return
    if len(text) > LONGEST_PATH or (" " in text and not os.path.lexists(expand_home(text))):
        return
    for folder in surroundings.folders:
        path = real_path(folder / expand_home(text))
        reason = _path_reason(text, path, is_written, surroundings)
        if reason:
            yield reason


def _path_reason(text: str, path: Path, is_written: bool, surroundings: _Surroundings) -> str:
    """Return why a path, written as `text` in the line, needs a yes, "" where it needs none."""
    root = surroundings.root
    base = next((added for added in surroundings.added if inside(path, added)), root)
    is_private = surroundings.private_tmp and text.startswith("/tmp") and inside(path, Path("/tmp"))
    is_private |= any(inside(path, folder) for folder in surroundings.scratch)
    if is_private and not inside(path, base):
        return ""
    reason = protected_reason(path, base, writes=is_written)
    if reason == paths.OUTSIDE and text.startswith("/"):
        # A word such as `/x/d` is a path only where something lies there.
        is_path = os.path.lexists("/" + text.split("/")[1])
        reason = reason if is_path else ""
    if reason == paths.MAY_HOLD_SECRETS and not (is_written or os.path.lexists(path)):
        reason = ""
    if reason or not is_written:
        return reason
    if base != root:
        return _IN_ADDED_FOLDER
    file = self_running_file(path, root)
    return file.reason if file is not None and file.run_by is RunBy.OTHERS else ""
