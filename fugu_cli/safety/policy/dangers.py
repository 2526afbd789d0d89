"""Commands of the table's last column, and those that undo cannot take back, by their words.

A warning, not a wall: where the sandbox holds it keeps commands from the network, from what lies
outside and from git's folder whatever their words are. Stands above readers.py.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from fugu_cli.formatting import shorten
from fugu_cli.safety import paths
from fugu_cli.safety.git_configuration import UnreadableConfiguration
from fugu_cli.safety.paths import expand_home, inside, protected_reason, real_path
from fugu_cli.safety.policy import git_commands
from fugu_cli.safety.policy.git_commands import Danger
from fugu_cli.safety.policy.readers import READERS
from fugu_cli.safety.policy.shell_line import Command, ShellLine, Word, names_of, parse_line
from fugu_cli.safety.self_running_files import RunBy, self_running_file


def _table(rows: str) -> dict[str, str]:
    """Return by name what `NAMES: TEXT` says of each."""
    split = [row.partition(": ") for row in rows.strip().split("\n")]
    return {name: text for names, _, text in split for name in names.split()}


EVERY_TIME = _table("""
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
printenv: it may show keys in the environment
""")
"""Programs that stand in the last column whatever they are given."""
PUBLISHING = _table("""
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
"""By program, subcommands that act on something outside the repository."""
DESTROYING = _table("""
docker podman: prune volume
terraform tofu pulumi: destroy
kubectl gcloud az gh glab: delete
helm: uninstall delete
aws: rm rb delete terminate
crontab: -r
dropdb: *
""")
"""By program, words with which it destroys what lies elsewhere."""
WRITERS = names_of("rm mv cp ln tee touch mkdir rmdir truncate unlink install chmod chgrp patch")
DELETERS = names_of("rm rmdir unlink truncate shred")
SHELLS = names_of(
    "sh bash zsh dash ksh mksh fish ash csh tcsh rbash yash posh pdksh oksh ksh93 lksh nu pwsh "
    "powershell elvish xonsh bash-static"
)
INTERPRETERS = SHELLS | names_of("python python3 perl ruby node php deno bun osascript lua")
WRAPPERS = names_of(
    "sudo doas env timeout nice nohup stdbuf time command exec builtin xargs setsid ionice busybox "
    "toybox chronic unbuffer watch parallel script strace ltrace flock taskset chrt chroot su "
    "runuser npx bunx uvx xvfb-run caffeinate prlimit unshare nsenter systemd-run fakeroot setarch"
)
"""Programs that run the command that stands in their arguments."""
RUNNERS = {
    **dict.fromkeys("uv poetry pipenv pdm rye hatch pixi conda mamba".split(), "run"),  # noqa: SIM905
    **dict.fromkeys(("npm", "pnpm", "yarn", "bundle", "mise", "direnv"), "exec"),
    "python": "-m",
    "python3": "-m",
}
"""The word behind which these programs run another command."""
_PLAIN_OPTIONS = names_of("-- -y --yes -q --quiet -s --silent -i -n -v")
"""Options of wrappers and runners that take no value."""
COMMANDS_AT_MOST = 200
WRAPPED_AT_MOST = 40
_SENDING = ("--data", "--form", "--upload-file", "--request", "--config", "--json", "--post",
            "--body", "--method")  # fmt: skip
_SQL_DELETES = re.compile(
    r"\b(drop\s+(table|database|schema)|truncate\s+table|delete\s+from)\b|dropDatabase\(",
    re.IGNORECASE,
)
_DATABASES = names_of("psql mysql mariadb sqlite3 mongosh mongo redis-cli")
_WHOLE_REPOSITORY = names_of("* . ./ ./* .* */ ** .[!.]*")
_LOST = "it destroys what undo cannot restore"
_IN_ADDED_FOLDER = "in an added folder undo restores only what fugu's own tools changed"
_STREAMS = names_of("/dev/null /dev/stdin /dev/stdout /dev/stderr /dev/tty")


@dataclass(frozen=True)
class _Surroundings:
    """The folders that a line may run in. `private_tmp`: /tmp is the command's own."""

    folders: tuple[Path, ...]
    root: Path
    added: tuple[Path, ...]
    private_tmp: bool


def dangers_of_line(
    line: ShellLine, root: Path, added: tuple[Path, ...], *, private_tmp: bool
) -> Danger | None:
    """Return the worst that stands in a line. `private_tmp`: /tmp is the command's own."""
    surroundings = _Surroundings(possible_folders(line, root), root, added, private_tmp)
    worst: Danger | None = None
    waiting, seen = list(line.commands), set[Command]()
    most = len(waiting) + COMMANDS_AT_MOST
    while waiting:
        command = waiting.pop(0)
        if command in seen:
            continue
        seen.add(command)
        dangers = list(_dangers_of(command, surroundings))
        waiting += commands_within(command)
        try:
            waiting += _aliased_commands(command, surroundings)
        except (UnreadableConfiguration, ValueError) as fault:
            dangers.append(Danger(str(fault)))
        if len(seen) > most:
            dangers, waiting = [Danger("it runs more commands than can be checked")], []
        for danger in dangers:
            weight = (danger.lost, danger.every_time)
            if worst is None or weight > (worst.lost, worst.every_time):
                shown = shorten(command.text, 80)
                worst = replace(danger, reason=f"`{shown}`: {danger.reason}")
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


def commands_within(command: Command) -> list[Command]:
    """Return the commands that a wrapper, a runner or a shell with -c runs, as far as its words say
    so, and what these run in turn.
    """
    within: dict[str, Command] = {}
    waiting = [command]
    while waiting:
        for inner in _wrapped(waiting.pop(0)):
            if inner.text not in within and len(within) < WRAPPED_AT_MOST:
                within[inner.text] = inner
                waiting.append(inner)
    return list(within.values())


def _wrapped(command: Command) -> Iterator[Command]:
    name, words = command.name, command.words[1:]
    if name in SHELLS:
        for option, script in itertools.pairwise(words):
            if re.fullmatch(r"-\w*c", option.text):
                yield from parse_line(script.text).commands
        return
    if name == "find":
        yield from _executed_by_find(words)
        return
    if name in RUNNERS:
        texts = [word.text for word in words]
        if RUNNERS[name] not in texts:
            return
        words = words[texts.index(RUNNERS[name]) + 1 :]
    elif name not in WRAPPERS:
        return
    for index, word in enumerate(words):
        if " " in word.text:
            yield from parse_line(word.text).commands
        elif not re.match(r"-|[\d.]+[smhd]?$|\w+=", word.text):
            yield Command(tuple(words[index:]))
            before = words[index - 1].text if index else ""
            if not before.startswith("-") or before in _PLAIN_OPTIONS:
                return


def _executed_by_find(words: Sequence[Word]) -> Iterator[Command]:
    executed: list[Word] | None = None
    for word in words:
        if word.text in {"-exec", "-execdir", "-ok", "-okdir"}:
            executed = []
        elif executed is not None and word.text in {";", "+"}:
            yield Command(tuple(executed))
            executed = None
        elif executed is not None:
            executed.append(word)


def _dangers_of(command: Command, surroundings: _Surroundings) -> Iterator[Danger]:
    name, arguments = command.name, command.arguments
    if name.startswith("git-"):
        name, arguments = "git", [name.removeprefix("git-"), *arguments]
    if name == "git" and not _is_local(command):
        danger = git_commands.git_danger(arguments)
        if danger is not None:
            yield danger
        if any(git_commands.variable_redirects_git(n, w.text) for n, w in command.assignments):
            yield Danger(git_commands.OTHER_SETTINGS)
    elif name not in READERS and not _is_local(command):
        yield from _dangers_by_name(name, arguments)
    yield from _dangers_by_paths(command, surroundings)


def _is_local(command: Command) -> bool:
    """Return whether a command is named by a path that leads to no folder of programs."""
    folder, slash, _ = command.words[0].text.rpartition("/") if command.words else ("", "", "")
    return bool(slash) and folder not in os.get_exec_path() and not folder.startswith("/usr/")


def _aliased_commands(command: Command, surroundings: _Surroundings) -> list[Command]:
    if command.name != "git" or _is_local(command):
        return []
    return git_commands.aliased_commands(command, surroundings.folders)


def _dangers_by_name(name: str, arguments: Sequence[str]) -> Iterator[Danger]:
    words = {argument for argument in arguments if not argument.startswith("-")}
    if name.startswith("mkfs") or (
        name in EVERY_TIME
        and "devices" in EVERY_TIME[name]
        and (name != "dd" or any(argument.startswith("of=/dev/") for argument in arguments))
    ):
        yield Danger(_LOST, lost=True)
    ending = set(DESTROYING.get(name, "").split())
    if ending & {*arguments, "*"} and (name not in {"docker", "podman"} or words & {"prune", "rm"}):
        yield Danger(_LOST, lost=True)
    composes = name in {"docker", "podman", "docker-compose"} and "down" in words
    if composes and git_commands.has_option(arguments, "v", "--volumes"):
        yield Danger(_LOST, lost=True)
    if name in _DATABASES and any(
        _SQL_DELETES.search(a) or a.upper() in {"FLUSHALL", "FLUSHDB"} for a in arguments
    ):
        yield Danger(_LOST, lost=True)
    if name == "rm" and _WHOLE_REPOSITORY & set(arguments):
        yield Danger("it deletes everything here, what git ignores included", lost=True)
    if name in EVERY_TIME:
        yield Danger(EVERY_TIME[name])
    if words & set(PUBLISHING.get(name, "").split()):
        yield Danger("it acts on something outside the repository")
    if name in {"chmod", "chown", "chgrp"} and (
        name == "chown" or git_commands.has_option(arguments, "R", "--recursive")
    ):
        yield Danger("it changes who may use many files")
    if name in {"curl", "wget"}:
        letters = "dFTXK" if name == "curl" else ""
        sends = git_commands.has_option(arguments, letters, *_SENDING)
        reason = "it sends something out" if sends else "it reaches the network"
        yield Danger(reason, every_time=sends)
    if name in {"npm", "pnpm", "yarn"} and {"-g", "--global"} & set(arguments):
        yield Danger("it installs for the whole system")


def _dangers_by_paths(command: Command, surroundings: _Surroundings) -> Iterator[Danger]:
    arguments = command.arguments
    in_place = command.name in {"sed", "perl"} and git_commands.has_option(
        arguments, "i", "--in-place"
    )
    deletes = command.name in DELETERS or "-delete" in arguments
    writes = command.name in WRITERS or in_place or deletes
    texts_only = command.name in READERS and READERS[command.name].operands == "texts"
    named = [] if texts_only else [(word, writes) for word in command.words[1:]]
    named += [(redirect.target, redirect.writes) for redirect in command.redirects]
    if _is_local(command):
        named.append((command.words[0], False))
    for word, is_written in named:
        if deletes and _deletes_everything(word, surroundings):
            yield Danger("it deletes everything here, what git ignores included", lost=True)
        for text in (word.text, word.text.partition("=")[2]):
            if text.startswith("/dev/") and text not in _STREAMS and is_written:
                yield Danger(f"`{text}` is a device", lost=True)
            for reason in _path_reasons(text, is_written, surroundings):
                lost = deletes and reason in {paths.OUTSIDE, paths.OF_GIT, _IN_ADDED_FOLDER}
                because = f"{reason}; {_LOST}" if lost else reason
                yield Danger(f"`{text}`: {because}", lost=lost)


def _deletes_everything(word: Word, surroundings: _Surroundings) -> bool:
    """Return whether a word is the whole repository, or a pattern for all that is plain to see."""
    if word.text.startswith("-"):
        return False
    if not word.globbed:
        return any(
            real_path(folder / word.text) == surroundings.root for folder in surroundings.folders
        )
    pattern = word.text.removeprefix("./").rstrip("/").replace("[^", "[!")
    pattern = re.sub(r"\[\[:\w+:\]\]", "?", pattern)
    names = [path.name for path in surroundings.root.iterdir() if not path.name.startswith(".")]
    matches_all = len(names) > 1 and all(fnmatchcase(name, pattern) for name in names)
    return matches_all or fnmatchcase(".git", pattern)


def _path_reasons(text: str, is_written: bool, surroundings: _Surroundings) -> Iterator[str]:
    """Yield why a word that may be a path needs a yes, in any folder that the line may be in."""
    text = re.sub(r"^\$(?:HOME|\{HOME\})(?=/|$)", "~", text)
    if not text or "://" in text or text.startswith(("-", "/dev/", "$")) or "\0" in text:
        return
    if " " in text and not os.path.lexists(expand_home(text)):
        return
    root = surroundings.root
    for folder in surroundings.folders:
        path = real_path(folder / expand_home(text))
        base = next((added for added in surroundings.added if inside(path, added)), root)
        is_private = surroundings.private_tmp and text.startswith("/tmp")
        if is_private and inside(path, Path("/tmp")) and not inside(path, base):
            continue
        reason = protected_reason(path, base, writes=is_written)
        if not reason and is_written and base != root:
            reason = _IN_ADDED_FOLDER
        if reason == paths.OUTSIDE and text.startswith("/"):
            # A word such as `/x/d` is a path only where something lies there.
            reason = reason if os.path.lexists("/" + text.split("/")[1]) else ""
        if reason == paths.MAY_HOLD_SECRETS and not (is_written or os.path.lexists(path)):
            reason = ""
        file = self_running_file(path, root) if is_written else None
        if not reason and file is not None and file.run_by is RunBy.OTHERS:
            reason = file.reason
        if reason:
            yield reason
