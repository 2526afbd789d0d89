"""Secrets in text, found and replaced by a mark: in every fact before it is recorded, so in all that is made of it.

Stands between the log, which asks it about each fact, and the surroundings: the values of variables and `.env` files
whose names look like secrets, and what has the form of a key. `restored` is the way back for a file an agent rewrites
that was shown a mark. Knows no provider.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from fugu_cli.policy.paths import is_secret

NAMES = re.compile(
    r"(^|_)(API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASS|PASSPHRASE|CREDENTIALS?|PAT|AUTH|DSN)(_|$)"
    r"|APIKEY|SECRET|PASSW(OR)?D|_PWD$|^(SSH|LDAP|MYSQL|FTP)PASS$",
    re.IGNORECASE,
)
"""Names of variables whose values are secrets."""
RACY = 100_000_000
"""Nanoseconds: a folder that changed so shortly before it was listed may have changed after that as well."""
SHORTEST = 6
"""Characters of the shortest value that is masked: a shorter one would tear ordinary words apart."""


@dataclass(frozen=True)
class _Form:
    """What a kind of key looks like. It begins with one of `literals`, or behind one."""

    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    behind: bool = False


def _form(literals: str, pattern: str) -> _Form:
    return _Form(tuple(literals.split()), re.compile(pattern, re.DOTALL))


def _after(literals: tuple[str, ...], pattern: str) -> _Form:
    return _Form(literals, re.compile(pattern), behind=True)


_BLOCK = r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
_FORMS = (
    _form("-----BEGIN", rf"-----BEGIN {_BLOCK}.*?(?:-----END {_BLOCK}|\Z)"),
    _form("sk-", r"(?<![\w-])sk-(?:proj-|ant-|or-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    _form("AKIA ASIA ABIA ACCA", r"(?<![\w-])(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Z])"),
    _form("ghp_ gho_ ghu_ ghs_ ghr_", r"(?<![\w-])gh[pousr]_[A-Za-z0-9]{30,}"),
    _form("github_pat_ glpat-", r"(?<![\w-])(?:github_pat_[A-Za-z0-9_]{22,}|glpat-[\w-]{20,})"),
    _form("xox", r"(?<![\w-])xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _form("https://hooks.slack.com/services/", r"https://hooks\.slack\.com/services/[\w/]+"),
    _form("AIza ya29. GOCSPX-", r"(?<![\w-])(?:AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,})"),
    _form("sk_live_ sk_test_ rk_live_ rk_test_", r"(?<![\w-])[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _form("whsec_ hf_ npm_", r"(?<![\w-])(?:whsec_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36})"),
    _form("pypi-", r"(?<![\w-])pypi-[\w-]{50,}"),
    _form(
        "gsk_ xai- r8_ nvapi- tvly- pplx- fw_ tgp_v1_",
        r"(?<![\w-])(?:gsk_|xai-|r8_|nvapi-|tvly-|pplx-|fw_|tgp_v1_)[A-Za-z0-9_-]{20,}",
    ),
    _form("SG. dop_v1_", r"(?<![\w-])(?:SG\.[\w-]{16,}\.[\w-]{16,}|dop_v1_[a-f0-9]{64})"),
    _form("eyJ", r"(?<![\w-])eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    _after(("://",), r"(?<=://)[^\s/:@'\"]{0,64}:[^\s/@'\"]{3,256}(?=@[\w.-])"),
    _after(("earer ",), r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{20,}=*"),
    _after(
        tuple(f"{key}{sign}" for key in ("_key", "_KEY", "_Key") for sign in ("=", " = ")),
        r"(?i:(?<=aws_secret_access_key=)|(?<=aws_secret_access_key = ))[A-Za-z0-9/+=]{40}",
    ),
)
_BEGINNINGS = tuple((literal, form) for form in _FORMS for literal in form.literals)
MARK = re.compile(r"\[secret [0-9a-f]{4}\]")
_LINE = re.compile(r"^\ufeff?[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE)
"""A file may begin with a byte order mark."""
PLAIN = frozenset({"type", "id", "tool", "before", "after", "snapshot", "checkpoint", "commit", "mode", "data"})
"""Fields that hold no text of anybody's: hashes, names, and what a provider signed."""
WRITTEN = frozenset({"arguments"})
"""What an agent wrote to be carried out: values it cannot know are masked, a key it made up for a test is not."""

Fact = TypeVar("Fact", bound=BaseModel)
_Stamp = tuple[str, int, int]
"""A file's path, time and size."""


class Mask:
    """Secrets of one repository: known `values`, and those of its `.env` files, read again when they change."""

    def __init__(self, values: Mapping[str, str], root: Path | None = None) -> None:
        self._values = frozenset(value for name, value in values.items() if _counts(name, value))
        self._found = _EnvFiles(root) if root is not None else None
        self._stamps: tuple[_Stamp, ...] | None = None
        self._known: tuple[str, ...] = ()

    def text(self, text: str) -> str:
        """`text` without secrets."""
        return _Masking(self._known_now()).text(text)

    def fact(self, fact: Fact) -> Fact:
        """The fact without secrets; itself where it holds none."""
        return _Masking(self._known_now()).model(fact)

    def _known_now(self) -> tuple[str, ...]:
        """The values, also as JSON writes them, the longest first."""
        stamps = tuple(self._found.look()) if self._found is not None else ()
        if self._stamps != stamps:
            self._values |= {value for path, *_ in stamps for value in _in_file(Path(path))}
            found = self._values  # also of a file that is gone: it may have been moved to where it is read
            escaped = {json.dumps(value, ensure_ascii=False)[1:-1] for value in found}
            self._known = tuple(sorted(found | escaped, key=len, reverse=True))
            self._stamps = stamps
        return self._known


class _Masking:
    """One text or fact, and the values that are known now."""

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known

    def text(self, text: str) -> str:
        told, at = "", 0
        text = self.known(text)
        for found in _found(text):
            told += text[at : found.start()] + _marked(found)
            at = found.end()
        return told + text[at:] if at else text

    def known(self, text: str) -> str:
        there = [value for value in self._known if value in text]
        return re.sub("|".join(map(re.escape, there)), _marked, text) if there else text

    def model(self, value: Fact) -> Fact:
        changed = {}
        for name in type(value).model_fields:
            if name in PLAIN:
                continue
            old = getattr(value, name)
            new = self._value(old, self.known if name in WRITTEN else self.text)
            if new is not old:
                changed[name] = new
        return value.model_copy(update=changed) if changed else value

    def _value(self, value: object, mask: Callable[[str], str]) -> object:
        if isinstance(value, str):
            new = mask(value)
            return value if new == value else new
        if isinstance(value, BaseModel):
            return self.model(value)
        if isinstance(value, tuple):
            items = tuple(self._value(item, mask) for item in value)
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        return value


def holds(text: str) -> bool:
    """Something in it has the form of a key, or is a password in an address."""
    return next(_found(text), None) is not None


def _found(text: str) -> Iterator[re.Match[str]]:
    """What has the form of a key, from left to right. Beginnings are looked for first, which is cheap: every form tried
    at every character took a second for a million of them, and nothing else ran meanwhile."""
    waiting = [(at, number) for number in range(len(_BEGINNINGS)) if (at := _begins(text, number, 0)) >= 0]
    heapq.heapify(waiting)
    end = 0
    while waiting:
        start, number = waiting[0]
        found = _BEGINNINGS[number][1].pattern.match(text, start) if start >= end else None
        if found is not None:
            yield found
            end = found.end()
        at = _begins(text, number, max(start + 1, end))
        if at < 0:
            heapq.heappop(waiting)
        else:
            heapq.heapreplace(waiting, (at, number))


def _begins(text: str, number: int, least: int) -> int:
    """Where a key may begin by this literal, not before `least`; -1 for nowhere."""
    literal, form = _BEGINNINGS[number]
    behind = len(literal) if form.behind else 0
    at = text.find(literal, max(0, least - behind))
    return at if at < 0 else at + behind


def restored(text: str, original: str) -> str:
    """`text` with its marks replaced by the secrets of `original` they stand for: of the file it was made from."""
    if MARK.search(text) is None:
        return text
    found = [*(key.group() for key in _found(original)), *(value for _, value in _assigned(original))]
    known = {mark(value): value for value in found}
    return MARK.sub(lambda found: known.get(found.group(), found.group()), text)


def _marked(found: re.Match[str]) -> str:
    return mark(found.group())


def mark(value: str) -> str:
    """The same for the same secret, so that an agent can tell two apart; 16 bits of a hash give no key away."""
    return f"[secret {hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:4]}]"


def _counts(name: str, value: str) -> bool:
    return len(value) >= SHORTEST and NAMES.search(name) is not None and not _is_path(value)


def _is_path(value: str) -> bool:
    """A key's file rather than a key; a key may begin with a slash as well."""
    return value.startswith("/") and "\0" not in value and os.path.lexists(Path(value).parent) and value.count("/") > 1


class _EnvFiles:
    """`.env` files at the top of a folder and one folder down. A folder is listed again only when it has changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listed: dict[str, tuple[int, tuple[str, ...]]] = {}

    def look(self) -> Iterator[_Stamp]:
        """Their paths, with what changes when they do."""
        for folder in (str(self._root), *self._folders()):
            for name in self._names(folder):
                with contextlib.suppress(OSError):
                    found = os.stat(f"{folder}/{name}")  # noqa: PTH116 - for every fact, in every folder
                    if stat.S_ISREG(found.st_mode):  # a pipe would be waited for
                        yield f"{folder}/{name}", found.st_mtime_ns, found.st_size

    def _folders(self) -> list[str]:
        try:
            with os.scandir(self._root) as entries:
                return sorted(entry.path for entry in entries if entry.is_dir())
        except OSError:
            return []

    def _names(self, folder: str) -> tuple[str, ...]:
        try:
            changed = os.stat(folder).st_mtime_ns  # noqa: PTH116
            known = self._listed.get(folder)
            if known is not None and known[0] == changed:
                return known[1]
            names = tuple(sorted(n for n in os.listdir(folder) if n.startswith(".env") and is_secret(n)))  # noqa: PTH208
        except OSError:
            return ()
        if time.time_ns() - changed > RACY:
            self._listed[folder] = changed, names
        return names


def _in_file(path: Path) -> set[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")[:100_000]
    except OSError:
        return set()
    return {value for name, value in _assigned(text) if _counts(name, value)}


def _assigned(text: str) -> list[tuple[str, str]]:
    """NAME=VALUE lines; quotes and what follows a `#` taken off."""
    found = []
    for name, value in _LINE.findall(text):
        quoted = value[:1] in {'"', "'"}
        found.append((name, value[1:].partition(value[0])[0] if quoted else value.partition(" #")[0].rstrip()))
    return found
