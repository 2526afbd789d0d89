"""Secrets in text, found and replaced by a mark: in every event before it is recorded or shown."""

from __future__ import annotations

import hashlib
import heapq
import json
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from fugu_cli.messages import Call
from fugu_cli.safety.secret_values import (
    SHORTEST,
    EnvFiles,
    Stamp,
    assigned,
    in_file,
    is_word,
    secrets_in,
)
from fugu_cli.session.events import Event, Failed, Interrupted, Replied, ToolRan
from fugu_cli.session.live_events import (
    Live,
    OutputStreamed,
    Retried,
    TextStreamed,
    ThoughtStreamed,
)
from fugu_cli.session.tool_facts import facts_of
from fugu_cli.system.bounded_json import parse_json

MAX_HELD = 20_000
"""Characters of a live text that are held back at most."""


class _Form(NamedTuple):
    """The form of a kind of secret. It begins with one of `literals`, or behind one."""

    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    behind: bool = False


def _form(literals: str, pattern: str) -> _Form:
    return _Form(tuple(literals.split()), re.compile(pattern, re.DOTALL))


def _after(literals: tuple[str, ...], pattern: str) -> _Form:
    return _Form(literals, re.compile(pattern), behind=True)


_BLOCK = r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
_BEGIN = "-----BEGIN"
_ADDRESS = "://"
_ADDRESS_FORM = _after((_ADDRESS,), r"(?<=://)[^\s/:@'\"]{0,64}:[^\s/@'\"]{3,256}(?=@[\w.-])")
_FORMS = (
    _form(_BEGIN, rf"-----BEGIN {_BLOCK}.*?(?:-----END {_BLOCK}|\Z)"),
    _form("sk-", r"(?<![\w-])sk-(?:proj-|ant-|or-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    _form("AKIA ASIA ABIA ACCA", r"(?<![\w-])(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Z])"),
    _form("ghp_ gho_ ghu_ ghs_ ghr_", r"(?<![\w-])gh[pousr]_[A-Za-z0-9]{30,}"),
    _form("github_pat_ glpat-", r"(?<![\w-])(?:github_pat_[A-Za-z0-9_]{22,}|glpat-[\w-]{20,})"),
    _form("xox", r"(?<![\w-])xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _form("https://hooks.slack.com/services/", r"https://hooks\.slack\.com/services/[\w/]+"),
    _form("AIza ya29. GOCSPX-", r"(?<![\w-])(?:AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,})"),
    _form("sk_live_ sk_test_ rk_live_ rk_test_", r"(?<![\w-])[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _form(
        "whsec_ hf_ npm_",
        r"(?<![\w-])(?:whsec_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36})",
    ),
    _form("pypi-", r"(?<![\w-])pypi-[\w-]{50,}"),
    _form(
        "gsk_ xai- r8_ nvapi- tvly- pplx- fw_ tgp_v1_",
        r"(?<![\w-])(?:gsk_|xai-|r8_|nvapi-|tvly-|pplx-|fw_|tgp_v1_)[A-Za-z0-9_-]{20,}",
    ),
    _form("SG. dop_v1_", r"(?<![\w-])(?:SG\.[\w-]{16,}\.[\w-]{16,}|dop_v1_[a-f0-9]{64})"),
    _form("eyJ", r"(?<![\w-])eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    _ADDRESS_FORM,
    _after(("earer ",), r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{20,}=*"),
    _after(
        tuple(
            f"{header}{sign}{scheme} "
            for header in ("uthorization", "UTHORIZATION")
            for sign in (": ", ":", "=", '": "', "': '")
            for scheme in ("basic", "Basic", "BASIC", "bearer", "BEARER", "token", "Token")
        ),
        r"(?=[A-Za-z._~+/-]*[0-9=])[A-Za-z0-9._~+/-]{12,}=*",
    ),
    _after(
        tuple(f"{key}{sign}" for key in ("_key", "_KEY", "_Key") for sign in ("=", " = ")),
        r"(?i:(?<=aws_secret_access_key=)|(?<=aws_secret_access_key = ))[A-Za-z0-9/+=]{40}",
    ),
)
_LITERALS = [literal for form in _FORMS for literal in form.literals]
_FORMS_OF_LITERALS = [form for form in _FORMS for _ in form.literals]
"""The form that each of `_LITERALS` begins."""
MARK = re.compile(r"\[secret [0-9a-f]{4}\]")
MARK_LENGTH = len("[secret 0000]")
_AWS = "aws_secret_access_key = "
_OPENED = "[secret "
_MARK_GROWS = re.compile(r"\[secret [0-9a-f]{0,4}")
_FORM_GROWS = re.compile(r"[^\s'\"]*")
_HEAD = re.compile(rf"-----BEGIN {_BLOCK}")
_FOOT = re.compile(rf"-----END {_BLOCK}")
_BLOCK_GROWS = re.compile(rf"-----BEGIN(?: [A-Z0-9 ]*-{{0,4}}| {_BLOCK}.*)?", re.DOTALL)
_IN_BLOCK = re.compile(r"[A-Za-z0-9/][A-Za-z0-9+/=]{7,}|[A-Za-z0-9/][A-Za-z0-9+/]*={1,2}")
"""The text in the lines of a private key's block, without the number before a line or the sign of a
diff.
"""
_WRITTEN = re.compile(r'"(?:[^"\\]|\\.)*"|\d{16,}', re.DOTALL)
"""A text in JSON, or a number that may be a secret."""
UNREDACTED_FIELDS = frozenset(
    {
        "type",
        "id",
        "tool",
        "before",
        "after",
        "snapshot",
        "checkpoint",
        "commit",
        "mode",
        "data",
        "sha",
        "refused",
    }
)
"""Fields that hold no text of anybody's: hashes, names, and what a provider signed."""

T = TypeVar("T", bound=BaseModel)


class SecretSpan(NamedTuple):
    """A secret in a text, from `start` to before `end`. A mark in the text counts as one."""

    start: int
    end: int
    is_key_block: bool = False


class SecretScanner:
    """Finds secrets: known values, and what has the form of one. Pure.

    Where several begin at one place the longest counts, and none begins inside of another. No
    secret holds a line break: of a private key's block each line is one, so that numbered lines,
    diffs and single edits keep their shape.
    """

    def __init__(self, known_values: Iterable[str] = ()) -> None:
        values = sorted(set(known_values), key=len, reverse=True)
        self._exact = 1 + len(values)
        self._literals = (_OPENED, *values, *_LITERALS)
        self._forms = _FORMS_OF_LITERALS
        self._longest = max(map(len, self._literals))
        self._by_first: dict[str, list[str]] = defaultdict(list)
        for literal in self._literals:
            self._by_first[literal[0]].append(literal)

    def spans(self, text: str, start: int = 0, *, forms: bool = True) -> Iterator[SecretSpan]:
        """Yield the secrets from `start` on, from left to right. Without `forms` only known values.

        Literal beginnings are searched first, which is cheap: trying every pattern at every
        character took a second for a million of them, while nothing else ran.
        """
        waiting: list[tuple[int, int]] = []
        for number in range(len(self._literals) if forms else self._exact):
            if self._literals[number] not in text:
                continue
            at = self._begins(text, number, start)
            if at >= 0:
                waiting.append((at, number))
        heapq.heapify(waiting)
        last_end = start
        while waiting:
            first, best = waiting[0][0], SecretSpan(waiting[0][0], 0)
            while waiting and waiting[0][0] == first:
                number = waiting[0][1]
                if first >= last_end and (end := self._ends(text, number, first)) > best.end:
                    best = SecretSpan(first, end, self._literals[number] == _BEGIN)
                at = self._begins(text, number, max(first + 1, last_end))
                if at < 0:
                    heapq.heappop(waiting)
                else:
                    heapq.heapreplace(waiting, (at, number))
            if best.end:
                yield best
                last_end = best.end

    def masked(
        self, text: str, mark: Callable[[str], str], start: int = 0, *, forms: bool = True
    ) -> str:
        """Return `text` from `start` on, with `mark(secret)` in place of each secret."""
        parts, at = list[str](), start
        for span in self.spans(text, start, forms=forms):
            parts += text[at : span.start], self._shown(text, span, mark)
            at = span.end
        return "".join([*parts, text[at:]])

    def settled(self, text: str, start: int, mark: Callable[[str], str]) -> tuple[str, str]:
        """Split a growing text from `start` on into the masked part that is certain, and the part
        that may belong to a secret.
        """
        settled, at = "", start
        for span in self.spans(text, start):
            if self._growing(text, at) <= span.start:
                break
            settled += text[at : span.start] + self._shown(text, span, mark)
            at = span.end
        cut = self._growing(text, at)
        return settled + text[at:cut], text[cut:]

    def _begins(self, text: str, number: int, least: int) -> int:
        """Return where a secret with this literal may begin, at `least` or later; -1 for nowhere."""
        literal = self._literals[number]
        is_behind = number >= self._exact and self._forms[number - self._exact].behind
        offset = len(literal) if is_behind else 0
        at = text.find(literal, max(0, least - offset))
        return at if at < 0 else at + offset

    def _ends(self, text: str, number: int, start: int) -> int:
        """Return the end of the secret that begins at `start`, -1 if none begins there."""
        if 0 < number < self._exact:
            return start + len(self._literals[number])
        pattern = self._forms[number - self._exact].pattern if number else MARK
        match = pattern.match(text, start)
        if match is None:
            return -1
        is_address = self._literals[number] == _ADDRESS
        if is_address and is_word(match.group().rpartition(":")[2]):
            return -1
        return match.end()

    def _growing(self, text: str, start: int) -> int:
        """Return the first place, at `start` or later, where a secret may begin if the text goes
        on.
        """
        earliest = len(text)
        for literal in _LITERALS:
            at = text.find(literal, start)
            while 0 <= at < earliest:
                if literal == _BEGIN:
                    grows = not _FOOT.search(text, at) and _BLOCK_GROWS.fullmatch(text, at)
                else:
                    grows = _FORM_GROWS.fullmatch(text, at + len(literal))
                if grows:
                    earliest = at
                at = text.find(literal, at + 1)
        for at in range(max(start, len(text) - self._longest + 1), earliest):
            tail = text[at:]
            unfinished = [
                literal
                for literal in self._by_first[tail[0]]
                if len(literal) > len(tail) and literal.startswith(tail)
            ]
            if unfinished:
                return at
            if tail[0] == _OPENED[0] and _MARK_GROWS.fullmatch(tail):
                return at
        return earliest

    def _shown(self, text: str, span: SecretSpan, mark: Callable[[str], str]) -> str:
        secret = text[span.start : span.end]
        if MARK.fullmatch(secret):
            return secret
        head = _HEAD.match(secret) if span.is_key_block else None
        if head is None:
            return mark(secret)
        foot = _FOOT.search(secret)
        body_end = len(secret) if foot is None else foot.start()
        body = self.masked(secret[head.end() : body_end], mark, forms=False)
        masked_body = _IN_BLOCK.sub(lambda part: mark(part.group()), body)
        return head.group() + masked_body + secret[body_end:]


def has_secret(text: str) -> bool:
    """Return whether a part has the form of a key, or is a password in an address."""
    for span in _KEYS.spans(text):
        if not MARK.fullmatch(text, span.start, span.end):
            return True
    return _ADDRESS_FORM.pattern.search(text) is not None


_KEYS = SecretScanner()


def mark_for(value: str) -> str:
    """Return the mark of a secret, the same for the same secret, so that an agent can tell two
    apart. 16 bits of a hash give no key away.
    """
    return f"[secret {hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:4]}]"


class _Stream:
    """A live text that comes in pieces. `shown` is the end of what was shown, which a secret may
    depend on; `waiting` may be the beginning of one.
    """

    def __init__(self) -> None:
        self.shown = ""
        self.waiting = ""

    def push(self, piece: str, scanner: SecretScanner, mark: Callable[[str], str]) -> str:
        """Return the part of the stream that is certain now."""
        unshown = self.waiting + piece
        text = self.shown + unshown
        settled, waiting = scanner.settled(text, len(self.shown), mark)
        if len(waiting) > MAX_HELD:
            settled += scanner.masked(text, mark, len(text) - len(waiting))
            waiting = ""
        self.shown = (self.shown + unshown[: len(unshown) - len(waiting)])[-len(_AWS) :]
        self.waiting = waiting
        return settled

    def rest(self, scanner: SecretScanner, mark: Callable[[str], str]) -> str:
        """Return the part that was held back, once the stream has ended."""
        return scanner.masked(self.shown + self.waiting, mark, len(self.shown))


class Redactor:
    """Masks the secrets of one repository: given values, and those in its `.env` files, which are
    read again when they change.

    It remembers what it has masked: the values that each mark stands for, and the calls as agents
    made them.
    """

    def __init__(self, values: Mapping[str, str], root: Path | None = None) -> None:
        self._values = secrets_in(values.items())
        self._files = EnvFiles(root) if root is not None else None
        self._stamps: tuple[Stamp, ...] | None = None
        self._scanner = SecretScanner()
        self._streams: dict[
            tuple[int, str], tuple[TextStreamed | ThoughtStreamed | OutputStreamed, _Stream]
        ] = {}
        self._masked: dict[str, set[str]] = defaultdict(set)
        self._in_files: dict[str, set[str]] = defaultdict(set)
        self._made: dict[tuple[str, str], str] = {}

    def add(self, values: Mapping[str, str]) -> None:
        """Add values of variables whose names say that they are secrets."""
        self._values |= secrets_in(values.items())
        self._stamps = None  # what is looked for is computed again

    def text(self, text: str) -> str:
        """Return `text` without secrets."""
        return self._current_scanner().masked(text, self._mark)

    def masked(self, value: T) -> T:
        """Mask the secrets in an event. Returns the event itself if it has none."""
        return self._without(self._current_scanner(), value)

    def live(self, live: Live) -> list[Live]:
        """Return what can be shown now, without secrets.

        The end of a piece may be the beginning of a secret; it waits for the next piece or for
        `rest`. Secrets in files are not searched here: that is done for events.
        """
        scanner = self._scanner if self._stamps is not None else self._current_scanner()
        if isinstance(live, Retried):
            for kind in ("said", "thought"):
                self._streams.pop((live.turn, kind), None)
        if not isinstance(live, TextStreamed | ThoughtStreamed | OutputStreamed):
            return [self._without(scanner, live)]
        key = (live.turn, live.call if isinstance(live, OutputStreamed) else live.type)
        _, stream = self._streams.get(key) or (live, _Stream())
        self._streams[key] = (live, stream)
        text = stream.push(live.text, scanner, self._mark)
        thought = self._ended([(live.turn, "thought")]) if isinstance(live, TextStreamed) else []
        return [*thought, live.model_copy(update={"text": text})] if text else thought

    def rest(self, event: Event) -> list[Live]:
        """Return the held-back ends of live texts that this event completes."""
        match event:
            case ToolRan():
                ended = [key for key in self._streams if key == (event.turn, event.call.id)]
            case Replied() | Failed() | Interrupted():
                ended = [key for key in self._streams if key[0] == event.turn]
            case _:
                return []
        return self._ended(ended)

    def _ended(self, keys: Sequence[tuple[int, str]]) -> list[Live]:
        """Return the held-back ends of these live texts."""
        ended = [self._streams.pop(key) for key in keys if key in self._streams]
        return [
            live.model_copy(update={"text": stream.rest(self._scanner, self._mark)})
            for live, stream in ended
            if stream.waiting
        ]

    def original(self, call: Call, *, others: bool = True) -> Call:
        """Return a recorded call as its agent made it; the same call if this process masked nothing
        in it. `others`: another call with equal recorded arguments will do, for calls that fugu
        repeats as evidence.
        """
        made = self._made.get((call.id, call.arguments))
        made = self._made.get(("", call.arguments)) if made is None and others else made
        return call if made is None else call.model_copy(update={"arguments": made})

    def values(self, mark: str, near: Sequence[str], *, others: bool = True) -> set[str]:
        """Return the values that a mark may stand for, among the secrets of the texts in `near`.

        With `others`, values masked so far and those of `.env` files are included. A mark that one
        of the texts contains may also stand for itself.
        """
        values = {mark} if any(mark in text for text in near) else set()
        for text in near:
            values |= _secrets_by_mark(text, self._current_scanner()).get(mark, set())
        if others:
            values |= self._masked.get(mark, set()) | self._in_files.get(mark, set())
        return values

    def _mark(self, value: str) -> str:
        mark = mark_for(value)
        self._masked[mark].add(value)
        return mark

    def _current_scanner(self) -> SecretScanner:
        """Return the scanner for the present values, also in the form that JSON writes them."""
        stamps = tuple(self._files.look()) if self._files is not None else ()
        if self._stamps != stamps:
            for value in {value for path, *_ in stamps for value in in_file(Path(path))}:
                self._in_files[mark_for(value)].add(value)
                self._values.add(value)  # for good: the file may be moved to where it is read
            written = (
                json.dumps(value, ensure_ascii=plain)[1:-1]
                for value in self._values
                for plain in (True, False)
            )
            self._scanner = SecretScanner(self._values.union(written))
            self._stamps = stamps
        return self._scanner

    def _without(self, scanner: SecretScanner, value: T) -> T:
        def arguments(call: Call) -> str:
            mask = partial(scanner.masked, mark=self._mark, forms=facts_of(call.tool).takes_prose)
            masked = _masked_arguments(call.arguments, mask)
            if masked != call.arguments:
                self._made[call.id, masked] = self._made["", masked] = call.arguments
            return masked

        return _masked_model(value, partial(scanner.masked, mark=self._mark), arguments)


def _masked_model(value: T, masked: Callable[[str], str], arguments: Callable[[Call], str]) -> T:
    """Return the value with masked texts and arguments; itself if nothing changes."""
    changed = {}
    for name in type(value).model_fields:
        old = getattr(value, name)
        if not old or name in UNREDACTED_FIELDS:
            continue
        if name == "arguments" and isinstance(value, Call):
            new: object = arguments(value)
        else:
            new = _masked_value(old, masked, arguments)
        if new is not old:
            changed[name] = new
    return value.model_copy(update=changed) if changed else value


def _masked_value(
    value: object, masked: Callable[[str], str], arguments: Callable[[Call], str]
) -> object:
    if isinstance(value, str):
        new = masked(value)
        return value if new == value else new
    if isinstance(value, BaseModel):
        return _masked_model(value, masked, arguments)
    if isinstance(value, tuple):
        items = tuple([_masked_value(item, masked, arguments) for item in value])
        return items if any(map(operator.is_not, items, value)) else value
    return value


def _masked_arguments(arguments: str, masked: Callable[[str], str]) -> str:
    """Apply `masked` to the texts of a call's arguments, which are JSON where that is possible."""
    result = _in_strings(arguments, masked)
    if not _is_json(result):
        result = masked(result)
    return arguments if result == arguments else result


def _in_strings(arguments: str, changed: Callable[[str], str]) -> str:
    """Apply `changed` to each text in a call's arguments."""

    def change(match: re.Match[str]) -> str:
        literal = match.group()
        try:
            text = str(parse_json(literal, strict=False))
        except ValueError:
            return literal
        new = changed(text)
        return literal if new == text else json.dumps(new, ensure_ascii=False)

    return _WRITTEN.sub(change, arguments)


def restore_marks(arguments: str, value: Callable[[str], str]) -> str:
    """Replace every mark in a call's arguments by `value(mark)`."""
    return _in_strings(arguments, lambda text: MARK.sub(lambda mark: value(mark.group()), text))


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


_RUN = re.compile(rf"\S{{{SHORTEST},}}")
_EDGE = re.compile(r"[\"'`=:,;()<>{}\[\]@/&?|\\]|^[+-]")
MAX_EDGES, MAX_RUN_EDGES = 24, 200
"""Edges that a secret may hold; none, where a run has so many that looking would take seconds."""


def _secrets_by_mark(text: str, scanner: SecretScanner) -> Mapping[str, set[str]]:
    secrets: dict[str, set[str]] = defaultdict(set)

    def note(value: str) -> str:
        secrets[mark_for(value)].add(value)
        return mark_for(value)

    scanner.masked(text, note)
    for _, value in assigned(text):
        note(value)
    return secrets


class LogRedactor:
    """A mask that also knows what the logs at `paths` masked. They are read when there is something
    to mask.
    """

    def __init__(self, paths: Sequence[Path], mask: Callable[[str], str]) -> None:
        self._paths = paths
        self._mask = mask
        self._masked_runs: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return `text` without secrets."""
        text = self._mask(text)
        return _RUN.sub(lambda run: self._run(run.group()), text) if self._marks else text

    @cached_property
    def _logged(self) -> str:
        return "\n".join(
            path.read_text(encoding="utf-8", errors="replace")
            for path in self._paths
            if path.is_file()
        )

    @cached_property
    def _marks(self) -> frozenset[str]:
        return frozenset(MARK.findall(self._logged))

    def _run(self, run: str) -> str:
        if run not in self._masked_runs:
            self._masked_runs[run] = run
            for piece in _pieces(run):
                mark = mark_for(piece)
                if mark in self._marks and piece not in self._logged:
                    self._masked_runs[run] = mark.join(map(self._run, run.split(piece)))
                    break
        return self._masked_runs[run]


def _pieces(run: str) -> Iterator[str]:
    """Yield the parts of it that may be words, from edge to edge, the longest first."""
    cuts = sorted({0, len(run), *(at for edge in _EDGE.finditer(run) for at in edge.span())})
    reach = MAX_EDGES if len(cuts) <= MAX_RUN_EDGES else 2
    pairs = ((start, end) for at, start in enumerate(cuts) for end in cuts[at + 1 : at + reach])
    yield from sorted((run[a:b] for a, b in pairs if not is_word(run[a:b])), key=len, reverse=True)
