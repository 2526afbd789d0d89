"""`fugu sessions`: the list, a search through it, copies, repairs, other titles."""

from __future__ import annotations

import time

from fugu_cli import sessions as kept
from fugu_cli.commands.flags import SessionsFlags
from fugu_cli.commands.here import here, newline, say
from fugu_cli.errors import UsageError
from fugu_cli.sessions import Summary
from fugu_cli.ui.clean import cut, one_line


def sessions(flags: SessionsFlags) -> int:
    """Print the list, or do what was asked with one of them."""
    if flags.repaired:
        return _repair(flags.search, flags.repaired)
    if flags.fork is not None:
        return _fork(flags.fork)
    return _rename(*flags.rename) if flags.rename is not None else _show(flags)


def _show(wanted: SessionsFlags) -> int:
    """Print a line a session, or only their paths. No session at all is an error only where one was asked for."""
    loaded = here()
    data, root = loaded.config.data, loaded.root
    if wanted.latest and wanted.paths and not wanted.search and not wanted.everywhere:
        newline(str(kept.find(data, root, "latest")))  # scripts ask this; the others need not be read
        return 0
    found = kept.summaries(kept.paths(data, None if wanted.everywhere else root))
    listed = [one for one in found if not wanted.search or kept.says(one, wanted.search)]
    if wanted.latest:
        listed = listed[:1]
    if not listed:
        if wanted.latest or wanted.search:
            raise UsageError("no session matches", hint="`fugu sessions --all` lists those of every folder")
        newline('this folder has no session yet; start one with `fugu run "..."`')
        return 0
    for one in listed:
        newline(str(one.path) if wanted.paths else _line(one, wanted.everywhere))
    if any(one.state == kept.DAMAGED for one in listed) and not wanted.paths:
        say("`fugu sessions repair ID` copies a damaged session up to its fault")
    return 0


def _line(one: Summary, everywhere: bool) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.newest))
    count = f"{one.requests} request{'' if one.requests == 1 else 's'}"
    place = f"  {cut(one.repo, 40)}" if everywhere else ""
    return f"{one.id}  {when}  {one.state:<11}  {count:<11}{place}  {one_line(one.title, 60)}".rstrip()


def _repair(word: str, key: str) -> int:
    """Copy a damaged session up to its fault; prints the new one's id."""
    if word != "repair":
        raise UsageError(f"one text is searched for, not {word!r} and {key!r}", hint='fugu sessions "two words"')
    loaded = here()
    data, root = loaded.config.data, loaded.root
    path = kept.find(data, root, key)
    copy, fault = kept.repair(data, root, path)
    say(f"the copy ends before line {fault.line} of {path.stem}, which stays as it is")
    newline(copy.stem)
    return 0


def _fork(key: str) -> int:
    """Copy a session; prints the new one's id."""
    loaded = here()
    data, root = loaded.config.data, loaded.root
    copy = kept.fork(data, root, kept.find(data, root, key))
    newline(copy.stem)
    return 0


def _rename(key: str, title: str) -> int:
    """Give a session another title."""
    loaded = here()
    path = kept.find(loaded.config.data, loaded.root, key)
    title = one_line(title, 200)
    if not title:
        raise UsageError("the title is empty", hint='fugu sessions --rename ID "what it was about"')
    kept.rename(path, title)
    newline(f"{path.stem}: {title}")
    return 0
