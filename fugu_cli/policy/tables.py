"""What is known of commands, as tables: which only read, which need a yes every time, which look into other commands.

Stands below commands.py, which turns them into findings. Data only.
"""

from __future__ import annotations


def names_of(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _all(names: str, reason: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


READERS = names_of(
    "ls cat head tail wc pwd echo printf grep egrep fgrep rg find fd tree file stat du df which type whoami id uname "
    "date basename dirname realpath readlink sort uniq cut tr nl diff cmp comm md5sum sha1sum sha256sum sha512sum "
    "cksum true false test [ [[ seq column jq cd : sleep sed awk hexdump od strings rev tac paste fold expand join "
    "nproc exit wait set command"
)
"""Commands that change nothing, as long as `REFUSED` and the checks below do not object."""

REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "sort": ("oST", ("--output", "--compress-program", "--temporary-directory", "--files0-from")),
    "wc": ("", ("--files0-from",)),
    "du": ("", ("--files0-from",)),
    "wait": ("p", ()),
    "date": ("s", ("--set",)),
    "fd": ("xX", ("--exec",)),
    "rg": ("", ("--pre", "--hostname-bin", "--search-zip")),
    "tree": ("oR", ("--output",)),
    "file": ("C", ("--compile",)),
    "test": ("v", ()),
    "[": ("v", ()),
    "[[": ("v", ()),
    "printf": ("v", ()),
    "sed": ("if", ("--in-place", "--file")),
    "jq": ("fL", ("--from-file", "--run-tests")),
}
"""Letters of short options and beginnings of long ones that make a reader do more than read."""

FIND_WRITES = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls", "-ok", "-okdir", "-files0-from"})
PROBES = names_of(
    "python python3 pip pip3 node npm npx pnpm yarn cargo rustc rustup go gcc g++ cc clang make cmake ruby java javac "
    "git uv pytest ruff mypy tsc deno bun docker"
)
VERSION = frozenset(
    {(name, option) for name in PROBES for option in ("--version", "-V", "version")}
    | {(name, "-v") for name in ("node", "npm", "npx", "yarn", "pnpm")}
)
SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "ash"})
INTERPRETERS = SHELLS | {"python", "python3", "perl", "ruby", "node", "php", "deno", "bun", "osascript", "lua"}

SHOWS_KEYS = "it may show keys in the environment"

EVERY_TIME: dict[str, str] = {
    **_all("sudo su doas pkexec runuser", "it takes other rights"),
    **_all("dd mkfs fdisk parted sfdisk shred wipefs mkswap losetup", "it writes to devices"),
    **_all("mount umount sysctl modprobe insmod swapoff iptables nft ufw", "it changes the system"),
    **_all("passwd useradd userdel usermod groupadd chpasswd visudo crontab at",
                    "it changes the system"),
    **_all("systemctl service launchctl loginctl", "it changes the system"),
    **_all("shutdown reboot halt poweroff init", "it stops the machine"),
    **_all("kill pkill killall skill xkill", "it ends processes"),
    **_all("apt apt-get dpkg yum dnf rpm pacman apk zypper brew snap port",
                    "it installs for the whole system"),
    **_all("ssh scp sftp nc ncat netcat socat telnet ftp rsync mail sendmail",
                    "it reaches other machines"),
    **_all("kubectl helm terraform tofu pulumi aws gcloud az gh glab heroku fly vercel netlify",
                    "it acts on something outside the repository"),
    **_all("printenv export set declare typeset", SHOWS_KEYS),
    **_all("eval trap alias enable", "what it runs is not plain to see"),
}  # fmt: skip

PUBLISHES: dict[str, frozenset[str]] = {
    "npm": frozenset({"publish", "unpublish", "login", "adduser", "token", "deprecate", "owner"}),
    "pnpm": frozenset({"publish", "login"}),
    "yarn": frozenset({"publish", "npm"}),
    "cargo": frozenset({"publish", "login", "yank", "owner"}),
    "twine": frozenset({"upload"}),
    "gem": frozenset({"push", "yank"}),
    "poetry": frozenset({"publish"}),
    "uv": frozenset({"publish"}),
    "docker": frozenset({"push", "system", "rm", "rmi", "volume", "login", "kill", "stop", "prune"}),
    "podman": frozenset({"push", "system", "rm", "rmi", "volume", "login", "kill", "stop"}),
    "mvn": frozenset({"deploy", "release:perform"}),
    "gradle": frozenset({"publish"}),
    "goreleaser": frozenset({"release"}),
    **dict.fromkeys(names_of("wrangler firebase serverless cdk flyctl"), frozenset({"deploy", "publish", "destroy"})),
}

WRITERS = names_of("rm mv cp ln tee touch mkdir rmdir truncate unlink install chmod chgrp patch")
PASSES = {"sort": 0, "head": 0, "tail": 0, "uniq": 0, "grep": 1, "egrep": 1, "fgrep": 1}
"""Commands that print lines of their input, and how many words they take that are no files."""
TELLS_NAMES = names_of("ls stat file wc du basename dirname realpath readlink echo printf test [")
"""Readers that say nothing of what is in a file."""
WRAPPERS: dict[str, tuple[str, int]] = {
    "nice": ("n", 0),
    "timeout": ("ks", 1),
    "nohup": ("", 0),
    "stdbuf": ("ioe", 0),
    "command": ("", 0),
    "builtin": ("", 0),
    "exec": ("a", 0),
    "setsid": ("", 0),
    "ionice": ("cnpPu", 0),
    "time": ("fo", 0),
    "sudo": ("aCcDghpRrTtUu", 0),
    "doas": ("aCu", 0),
    "busybox": ("", 0),
    "toybox": ("", 0),
}
"""Commands that run another one: letters of their options that take a value, and words before the command."""

RUNNERS: dict[str, tuple[frozenset[str], int]] = {
    **dict.fromkeys(names_of("uv poetry pipenv pdm rye hatch pixi conda mamba"), (frozenset({"run"}), 0)),
    **dict.fromkeys(names_of("npm pnpm yarn bun"), (frozenset({"exec", "dlx", "x"}), 0)),
    **dict.fromkeys(names_of("bundle mise"), (frozenset({"exec"}), 0)),
    "direnv": (frozenset({"exec"}), 1),
    **dict.fromkeys(
        names_of(
            "npx bunx uvx watch parallel script strace ltrace unbuffer chronic xvfb-run caffeinate prlimit unshare "
            "nsenter systemd-run su runuser"
        ),
        (frozenset(), 0),
    ),
    **dict.fromkeys(names_of("flock taskset chrt chroot"), (frozenset(), 1)),
}
"""Commands that run another one and are known by their own name still: the subcommands that do, none where all do, and
words before the other command."""
PLAIN = frozenset({"--", "-y", "--yes", "-q", "--quiet", "-s", "--silent", "--locked", "--frozen", "--no-sync"})
"""Options of theirs that take no word."""

SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/sbin", "/usr/sbin"})
