"""Whether a command could show a file in words by which it is not known again: encoded, cut into pieces, computed.

Under withheld.py: what `cat` shows is found by its words, what `base64` makes of it is not. In doubt it could. A run of
the tests counts as one that could not: fugu makes those for every agent. Reads the disk only to tell folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fugu_cli.policy.classify import classify, may_name_files
from fugu_cli.policy.paths import there
from fugu_cli.policy.programs import base, names_of
from fugu_cli.policy.shell import Command, Unreadable, Word

VERBATIM = names_of(
    "ls cat head tail wc pwd echo printf grep egrep fgrep rg find fd tree file stat du df which type whoami date "
    "basename dirname realpath readlink sort uniq nl diff cmp comm true false test [ cd : sleep exit wait set tac tee "
    "rm mv cp ln touch mkdir rmdir chmod patch kill"
)
"""They show text as it is, or nothing of it."""

FILTERS = names_of(
    "sed awk gawk cut tr rev fold expand column paste join jq base64 base32 xxd od hexdump strings gzip gunzip zcat xz "
    "bzip2 zstd tar zip unzip cpio openssl md5sum sha1sum sha256sum sha512sum cksum shuf split"
)
"""They show it otherwise, but only of the files that they or the commands beside them are given."""

TESTERS = names_of("pytest tox nox ruff mypy make cargo go npm pnpm yarn mvn gradle ctest phpunit rspec jest")
PYTHONS = frozenset({"python", "python3"})
WIDE = frozenset({"find", "fd", "rg", "tree", "tar", "cpio", "zip"})
"""They read a whole folder unasked."""

GIT_SHOWS = names_of("status add commit log diff show branch checkout switch restore stash rm mv rev-parse")


def disguises(command: str, root: Path) -> bool:
    """The command line could show a file that it does not name, in other words than its own."""
    try:
        commands = [judged.command for judged in classify(command, root) if judged.command.words]
    except Unreadable:
        return True
    if not all(base(one) in FILTERS or _plain(one) for one in commands):
        return True
    return any(base(one) in FILTERS for one in commands) and any(_wide(one, root) for one in commands)


def _plain(command: Command) -> bool:
    name, words = base(command), [word.text for word in command.words[1:]]
    if name in PYTHONS:
        return words[:1] == ["-m"] and words[1:2] in (["pytest"], ["unittest"], ["ruff"], ["mypy"])
    if name == "git":
        return bool(words) and words[0] in GIT_SHOWS
    return name in VERBATIM or name in TESTERS


def _wide(command: Command, root: Path) -> bool:
    """It may read files that it does not name."""
    if command.given_more or base(command) in WIDE or base(command) == "git":
        return True
    options = [word for word in command.words[1:] if word.text.startswith("-")]
    words: Sequence[Word] = [*may_name_files(command), *options, *(redirect.target for redirect in command.redirects)]
    return any(_many(word, root) for word in words)


def _many(word: Word, root: Path) -> bool:
    if word.text.startswith("-"):
        return word.text.lstrip("-").lower() in ("r", "recursive")
    return word.globbed or word.dynamic or word.braced or _is_folder(root / word.text)


def _is_folder(path: Path) -> bool:
    return there(path) and path.is_dir()
