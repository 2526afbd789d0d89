"""A test run's output brought down to what somebody needs who is to mend it: the failing assertions, and the counts.

Between a test command and every agent, the small ones above all. Figures that differ from run to run (seconds,
addresses, temporary folders) are taken out, so that equal runs read equal. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fugu_cli.tools.clip import clip, clip_tail
from fugu_cli.tools.tests import runner

LIMIT = 3000
"""Characters of a digest."""
FIRST, OTHERS = 1600, 320
"""Characters of the first failure, and of each further one."""
TOLD = 6
"""Failures told; of the others the number."""
PLACES, STATEMENT = 4, 6
"""Places whose source is shown where a runner names them only, and lines of one statement."""
COMPARED = 12
"""Lines of one assertion's explanation."""


@dataclass(frozen=True)
class Form:
    """How a test runner writes: where a failure starts and ends, the lines that count, and those that only name."""

    starts: re.Pattern[str]
    ends: re.Pattern[str]
    counts: re.Pattern[str]
    names: re.Pattern[str]


def _form(starts: str, ends: str, counts: str, names: str = r"(?!)") -> Form:
    return Form(*(re.compile(pattern) for pattern in (starts, ends, counts, names)))


FORMS = {
    "pytest": _form(
        r"_{3,} .+ _{3,}$",
        r"={3,} .* ={3,}$|\d+ (failed|passed|errors?)\b",
        r"=*\s*(no tests ran|.*\d+ (failed|passed|errors?|skipped|deselected)\b)|ERROR: ",
        r"(FAILED|ERROR) ",
    ),
    "unittest": _form(r"(FAIL|ERROR): ", r"Ran \d+ tests?", r"Ran \d+ tests?|(FAILED|OK)\b"),
    "cargo": _form(
        r"error(\[E\d+\])?: |---- .* ----$",
        r"failures:$|test result:|For more information|error: could not compile|error: test failed|warning: ",
        r"test result:|error: could not compile",
        r"test .* FAILED$",
    ),
    "go": _form(r"\s*--- FAIL:|# |panic: ", r"(FAIL|ok|PASS|exit status)\b|=== ", r"\s*--- FAIL|(FAIL|ok)\s"),
    "maven": _form(
        r"(?:\[ERROR\] )?(?!Tests run:)\S.*<<< (?:FAILURE|ERROR)!\s*$|\[ERROR\] \S+:\[\d+,\d+\] ",
        r"\[(?:INFO|WARNING|ERROR)\](?!.*<<< (?:FAILURE|ERROR)!\s*$)(?! \S+:\[\d+,\d+\] )|Tests run:|Results ?:",
        r"(?:\[\w+\] )?Tests run: \d+, Failures: \d+, Errors: \d+, Skipped: \d+\s*$|\[ERROR\] COMPILATION ERROR",
        r"\[ERROR\] +\S+:\d+ ",
    ),
    "node": _form(
        r"\s*not ok \d+|  ● |\s+\d+\) ",
        r"\s*(ok \d+|1\.\.\d)|\s*\.\.\.$|# |Test Suites:|Tests:",
        r"# (pass|fail|tests) |Tests?:? .*\d|.*\d+ (passing|failing)",
        r"\s*not ok \d+",
    ),
}
ANY = _form(r"(?!)", r"(?!)", r"(?!)")

_NOISE = re.compile(
    r"\s*(at )?.*\(?node:\w|\s*duration_ms|# (duration_ms|suites|cancelled|todo)|\s+at /rustc/"
    r"|\s+at (java\.base|jdk\.|sun\.|org\.(junit|opentest4j|apache\.maven|assertj|hamcrest))"
    r"|\s+\^+\s*$|\s+\d+: (core|std|__rustc|rust_begin)|note: (Some details are omitted|run with `RUST_BACKTRACE)"
)
_VARYING = (
    (re.compile(r" in \d+(\.\d+)?s( \(\d+:\d\d:\d\d\))?(?= =|$)"), ""),
    (re.compile(r"^(Ran \d+ tests?) in [\d.]+s$"), r"\1"),
    (re.compile(r"; finished in [\d.]+s$"), ""),
    (re.compile(r"(?: --|,)?\s+Time elapsed: [\d.]+ s(?:ec)?\b"), ""),
    (re.compile(r" \(\d+\.\d+s\)$|\t\d+\.\d+s$"), ""),
    (re.compile(r"([_=-])\1{5,}"), r"\1\1\1\1\1"),
    (re.compile(r"(_ ){5,}_?\s*$"), "_ _ _"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "0x..."),
    (re.compile(r"(/pytest-of-\w+/pytest-)\d+/"), r"\1N/"),
)


def digest(output: str, command: str, root: str, *, ok: bool, limit: int = LIMIT) -> str:
    """What of `output` an agent gets, in at most about `limit` characters. Paths in `root` become relative."""
    lines = [_steady(line) for line in output.replace(f"{root}/", "").split("\n") if not _NOISE.match(line)]
    form = FORMS.get(runner(command)) or _recognised(lines)
    counts = list(dict.fromkeys(line for line in lines if form.counts.match(line)))
    if ok:
        return clip_tail("\n".join(counts[-3:] or lines).strip(), limit // 4)
    blocks = _blocks(lines, form)
    if blocks:
        return _assembled(blocks, counts, limit)
    names = [line for line in lines if form.names.match(line)]
    text = "\n".join(lines).strip()
    return text if len(text) <= limit else _tail(text, [*names[:TOLD], *counts[-3:]], limit)


def placed(told: str) -> list[tuple[int, str, int]]:
    """Where a digest of node's or Maven's tests names a place without showing it: number of the line, path or the
    file's name alone, line of the file."""
    lines = told.split("\n")
    if any(_FRAMED.match(line) for line in lines):
        return []
    found = ((number, _SCRIPT.search(line) or _STACK.match(line)) for number, line in enumerate(lines))
    return [(number, place.group(1), int(place.group(2))) for number, place in found if place][:PLACES]


def shown_at(told: str, sources: Mapping[int, str]) -> str:
    """The digest with what stands at its places, by number of the line."""
    lines = told.split("\n")
    return "\n".join(f"{line}\n      > {sources[n]}" if sources.get(n) else line for n, line in enumerate(lines))


def statement(lines: Sequence[str], line: int) -> str:
    """The statement that begins on this line (from 1) of a script: up to where its brackets are closed."""
    found = ""
    for text in lines[line - 1 : line - 1 + STATEMENT]:
        found = f"{found} {text.strip()}".strip()
        if found.count("(") <= found.count(")"):
            break
    return clip(found, OTHERS // 2)


def _tail(text: str, closing: Sequence[str], limit: int) -> str:
    """The end of `text`, and the lines that name and count where that does not hold them."""
    tail = clip_tail(text, limit * 2 // 3)
    more = "\n".join(line for line in closing if line not in tail)
    return f"{tail}\n{clip(more, limit // 3)}" if more else tail


def _steady(line: str) -> str:
    for varying, form in _VARYING:
        line = varying.sub(form, line)
    return line.rstrip()


def _recognised(lines: Sequence[str]) -> Form:
    """For `make test` and other commands that do not say what they run: the form with the most failures in it."""
    found = {name: sum(bool(form.starts.match(line)) for line in lines) for name, form in FORMS.items()}
    name = max(found, key=lambda one: found[one])
    return FORMS[name] if found[name] and any(FORMS[name].counts.match(line) for line in lines) else ANY


def _blocks(lines: Sequence[str], form: Form) -> list[list[str]]:
    blocks: list[list[str]] = []
    inside = False
    for line in lines:
        if form.ends.match(line):
            inside = False
        elif form.starts.match(line):
            blocks.append([line])
            inside = True
        elif inside:
            blocks[-1].append(line)
    return blocks


def _assembled(blocks: Sequence[Sequence[str]], counts: Sequence[str], limit: int) -> str:
    ending = [line if len(line) <= 200 else line[:200] + "..." for line in [*counts[:TOLD], *counts[TOLD:][-1:]]]
    room = limit - sum(len(line) + 1 for line in ending)
    parts: list[str] = []
    for index, block in enumerate(blocks):
        part = _brief(block) if index else _shrunk(block, FIRST)
        if part in parts:
            continue
        if parts and (len(part) > room or len(parts) == TOLD):
            parts.append(f"[... {len(blocks) - index} more failures]")
            break
        parts.append(part)
        room -= len(part) + 1
    return "\n".join([*parts, *(line for line in ending if line not in parts)])


def _brief(block: Sequence[str]) -> str:
    """A further failure: its name, what it was called with, what was asserted and where."""
    text = "\n".join(line for line in block if line.strip())
    explained = [line for line in block if line.startswith("E ")]
    if len(text) <= OTHERS or not explained:
        return clip(text, OTHERS)
    given = [line for line in block[1:4] if re.match(r"(?!self)\w+ = ", line)]
    places = [line for line in block if _PLACE.match(line)]
    lines = [block[0], *given, *explained[:2], *places[-1:]]
    return "\n".join(line if len(line) <= OTHERS // 2 else line[: OTHERS // 2] + "..." for line in lines)


_SCRIPT = re.compile(r"(?:^|[\s(])((?:[\w.@+-]+/)*[\w.@+-]+\.[cm]?[jt]sx?):(\d+):\d+\)?$")
_STACK = re.compile(r"\s+at [\w.$/]+\((\w+\.(?:java|kt|scala)):(\d+)\)$")
_FRAMED = re.compile(r"\s*>?\s*\d+ \| ")
_PLACE = re.compile(r"\S+:\d+: ")


def _shrunk(block: Sequence[str], limit: int) -> str:
    """A failure in `limit` characters: its head and, above all, the assertion and where it is."""
    captured = next((i for i, line in enumerate(block) if re.match(r"-{3,} Captured ", line)), len(block))
    whole, own = (_compared("\n".join(part).strip("\n").split("\n")) for part in (block, block[:captured]))
    for lines in (whole, own):
        if len("\n".join(lines)) <= limit:
            return "\n".join(lines)
    key = [i for i, line in enumerate(own) if re.match(r">|E ", line) or _PLACE.match(line)]
    if not key:
        return clip("\n".join(own), limit)
    wanted = sorted({0, *key, *(i for k in key if own[k].startswith(">") for i in range(max(k - 6, 1), k))})
    return clip("\n".join(_gapped(own, wanted)), limit)


def _compared(lines: Sequence[str]) -> list[str]:
    """With at most `COMPARED` lines of each explanation: comparisons of long lists go on for pages."""
    found: list[str] = []
    run = 0
    for line in lines:
        run = run + 1 if line == "E" or line.startswith("E ") else 0
        if run <= COMPARED:
            found.append(line)
        elif run == COMPARED + 1:
            found.append("E     ...")
    return found


def _gapped(block: Sequence[str], wanted: Sequence[int]) -> list[str]:
    """The wanted lines, with a mark where others are left out."""
    found: list[str] = []
    before = -1
    for index in wanted:
        if index != before + 1:
            found.append("    ...")
        found.append(block[index])
        before = index
    return found
