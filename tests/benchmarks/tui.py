"""How the terminal interface feels: first paint, key presses, streaming, idling, memory, opening a
long session.

    python tests/benchmarks/tui.py [--tokens 20000] [--idle 20] [--presses 60]
        [--entries 50000]

Drives the real `fugu` in a pseudo-terminal with a model on this machine that speaks the real wire
format; the rule `cascade` decides, so that no coordinator is measured, except in the row that says
so. CPU-seconds are the program's own and sturdier than seconds on a machine that does other work.
Writes the first table of tests/benchmarks/results/tui.md and keeps what stands below it.
"""

from __future__ import annotations

import argparse
import os
import platform
import select
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from fugu_cli import __version__
from fugu_cli.messages import Call, Usage
from fugu_cli.session import store
from fugu_cli.session.events import (
    RECORDED,
    Asked,
    Assigned,
    Event,
    FileChange,
    Finished,
    Member,
    Opened,
    Permitted,
    Recorded,
    Replied,
    ToolRan,
)
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, running
from tests.unit.ui.tui.terminal import Terminal

RESULT = Path(__file__).parent / "results" / "tui.md"
SIZE = (120, 40)
MARKDOWN = (
    "I changed `{n}` in the **parser**:\n\n```python\ndef part(text: str) -> int:\n    return "
    "{n}\n```\n"
)


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    what: str
    measured: str
    bar: str
    holds: bool | None


@contextmanager
def places() -> Iterator[tuple[Place, Loopback]]:
    """A repository, a home and a server."""
    with tempfile.TemporaryDirectory(prefix="fugu-bench-") as folder, running() as server:
        place = Place(Path(folder), server.url)
        place.begin()
        place.configure(Agent("m", more='protocol = "native"\nmax_tokens = 100000'))
        yield place, server


def start(place: Place, *arguments: str, **environ: str) -> Terminal:
    """`fugu` in a terminal."""
    return Terminal(
        [sys.executable, "-m", "fugu_cli", *arguments],
        place.repo,
        {**place.environ(), **environ},
        SIZE,
    )


def wait_for(terminal: Terminal, text: bytes, seconds: float = 60.0) -> float:
    """Seconds until these bytes are written; the screen is not followed meanwhile, to leave the
    processor alone.
    """
    begun, kept = time.perf_counter(), b""
    while time.perf_counter() - begun < seconds:
        ready, _, _ = select.select([terminal._fd], [], [], 0.2)
        if ready:
            kept = (kept + os.read(terminal._fd, 1 << 16))[-(1 << 17) :]
            if text in kept:
                return time.perf_counter() - begun
    raise AssertionError(f"{text!r} did not come within {seconds} s:\n{kept[-2000:]!r}")


def drained(terminal: Terminal, seconds: float) -> None:
    """Read for a while."""
    end = time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        ready, _, _ = select.select([terminal._fd], [], [], left)
        if ready:
            os.read(terminal._fd, 1 << 16)


def presses(terminal: Terminal, count: int, pause: float = 0.05) -> list[float]:
    """Milliseconds from a key to its letter on the screen. Every letter is one that nothing else
    shows.
    """
    took = []
    for number in range(count):
        letter = chr(0x0400 + number % 250)
        terminal.keys(letter)
        took.append(1000 * wait_for(terminal, letter.encode()))
        drained(terminal, pause)
        if number % 30 == 29:
            terminal.keys("\x15")  # empty the line
            drained(terminal, 0.2)
    terminal.keys("\x15")
    drained(terminal, 0.2)
    return took


def write_session(place: Place, entries: int) -> str:
    """A session of about this many lines; its id."""
    facts: list[Event] = [
        Opened(
            version=__version__,
            repo=str(place.repo),
            pool=(Member(name="m", provider="openai", model="m", slot="cheap"),),
        )
    ]
    while len(facts) < entries:
        number = len(facts)
        facts.append(Asked(text=f"request {number}: make it better"))
        for turn in range(1, 4):
            call = Call.make(
                f"t{turn}-0-0", "edit", path=f"src/f{number}.py", old="a\nb\n", new="a\nc\n"
            )
            ran = ToolRan(
                turn=turn,
                call=call,
                output="edited",
                ok=True,
                changes=(FileChange(path="a", before="1", after="2"),),
            )
            usage = Usage(input=1000, output=100)
            facts += [
                Assigned(
                    turn=turn, agent="m", role="worker", by="cascade", reason="cheapest first"
                ),
                Replied(
                    turn=turn, agent="m", text=MARKDOWN.format(n=number), calls=(call,), usage=usage
                ),
                Permitted(turn=turn, call=call, allowed=True, by="policy"),
                ran,
            ]
        facts.append(Finished(reason="turn_limit", message=f"the end of {number}"))
    path = (
        store.session_folder(place.home / "data" / "fugu", place.repo.resolve())
        / f"20250101-000000-{entries:04x}.jsonl"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (Recorded(seq=seq, at=1.7e9 + seq, event=event) for seq, event in enumerate(facts))
    path.write_bytes(b"".join(RECORDED.dump_json(line) + b"\n" for line in lines))
    return path.stem


def first_paint(place: Place) -> list[Row]:
    """The first frame, and the session behind it."""
    cpu, wall, ready = [], [], []
    for _ in range(5):
        begun = time.perf_counter()
        terminal = start(place)
        wait_for(terminal, b"starting")
        cpu.append(terminal.cpu())
        wall.append(time.perf_counter() - begun)
        wait_for(terminal, b"coordinator: ")
        ready.append(terminal.cpu())
        terminal.close()
    best = min(cpu)
    return [
        Row(
            "first paint, CPU-seconds (best of 5)",
            f"{best:.2f} ({min(wall):.2f} s)",
            "0.60",
            best <= 0.6,
        ),
        Row("session open behind it, CPU-seconds", f"{min(ready):.2f}", "", None),
    ]


def loading(place: Place, count: int) -> list[Row]:
    """Keys while the learned coordinator loads behind the first paint."""
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    fugurc = place.home / ".fugurc"
    text = fugurc.read_text()
    fugurc.write_text(text.replace('coordinator = "cascade"', 'coordinator = "trinity"'))
    terminal = start(place, XDG_CACHE_HOME=cache)
    wait_for(terminal, b"starting")
    took = presses(terminal, count, 0.02)
    terminal.close()
    fugurc.write_text(text)
    median, slowest = statistics.median(took), max(took)
    return [
        Row(
            "key press while session and coordinator load, median",
            f"{median:.0f} ms",
            "50 ms",
            median <= 50,
        ),
        Row("the slowest of them", f"{slowest:.0f} ms", "", None),
    ]


def typing(place: Place, server: Loopback, count: int, entries: int) -> list[Row]:
    """Keys in a session of 5 entries and in a long one, in turns, and while a reply streams in;
    memory and opening on the way.
    """
    short, long = write_session(place, 5), write_session(place, entries)
    medians: dict[str, list[float]] = {short: [], long: []}
    memory = 0.0
    for _ in range(3):
        for id in (short, long):
            terminal = start(place)
            wait_for(terminal, b"coordinator: ")
            drained(terminal, 1.0)
            terminal.keys(f"/resume {id}\r")
            wait_for(terminal, b"the end of")
            drained(terminal, 1.5)
            medians[id] += presses(terminal, count // 3)
            memory = max(memory, terminal.memory())
            if id == long:
                last = terminal
            else:
                terminal.close()
        if _ < 2:
            last.close()
    few, many = statistics.median(medians[short]), statistics.median(medians[long])
    server.play("m", Says("streaming " * 4000, slow=0.005))
    last.keys("explain\r")
    wait_for(last, b"streaming")
    busy = statistics.median(presses(last, count, 0.05))
    last.close()
    return [
        Row("key press to screen at 5 entries, median", f"{few:.1f} ms", "17 ms", few <= 17),
        Row(
            f"key press to screen at {entries:,} entries, median",
            f"{many:.1f} ms",
            "17 ms",
            many <= 17,
        ),
        Row("ratio of the two", f"{many / few:.2f}", "1.3", many / few <= 1.3),
        Row(
            f"key press while 200 pieces a second stream in, {entries:,} entries",
            f"{busy:.1f} ms",
            "50 ms",
            busy <= 50,
        ),
        Row(
            f"memory at {entries:,} entries, without a coordinator",
            f"{memory:.0f} MB",
            "250 MB" if entries <= 5000 else "",
            memory <= 250 if entries <= 5000 else None,
        ),
    ]


def opening(place: Place) -> list[Row]:
    """A session of 10,000 lines."""
    id = write_session(place, 10_000)
    took = []
    for _ in range(3):
        terminal = start(place)
        wait_for(terminal, b"coordinator: ")
        drained(terminal, 1.0)
        before = terminal.cpu()
        terminal.keys(f"/resume {id}\r")
        took.append((wait_for(terminal, b"the end of"), terminal.cpu() - before))
        terminal.close()
    wall, cpu = min(took)
    return [
        Row(
            "opening a session of 10,000 lines, first screen",
            f"{wall:.2f} s ({cpu:.2f} CPU-s)",
            "1 s",
            wall <= 1,
        )
    ]


def streaming(place: Place, server: Loopback, tokens: int) -> list[Row]:
    """One reply of many tokens: the CPU they cost over the reply, and whether all of it can be read
    on the screen.
    """
    text = "".join(
        f"w{number:05d} " + ("\n\n" if number % 40 == 39 else "") for number in range(tokens)
    )
    server.play("m", Says(text, slow=0.001))
    terminal = start(place)
    wait_for(terminal, b"coordinator: ")
    drained(terminal, 1.5)
    terminal.keys("explain\r")
    marks, cpu = [tokens * part // 8 for part in range(1, 8)], []
    for mark in marks:
        wait_for(terminal, f"w{mark:05d}"[:-1].encode(), 300)
        cpu.append(terminal.cpu())
    parts = [1000 * (after - before) / (tokens / 8) for before, after in pairwise(cpu)]
    terminal.resize((SIZE[0], SIZE[1] - 1))  # drawn anew: so far nobody followed what was written
    drained(terminal, 0.5)
    terminal.resize(SIZE)
    terminal.sees("1 turn · ", seconds=120)
    terminal.keys("\x1b[1;5H")
    terminal.until(lambda screen: "w00000" in screen and "1 turn · " not in screen)
    seen: set[str] = set()
    while "1 turn · " not in terminal.screen.text:
        seen |= {
            word
            for word in terminal.screen.text.split()
            if word.startswith("w") and word[1:].isdigit()
        }
        before = terminal.screen.text
        terminal.keys("\x1b[6~")
        terminal.until(lambda now, before=before: now != before)  # type: ignore[misc]
        while terminal.read(0.06):  # the frame to its end
            pass
    seen |= {
        word for word in terminal.screen.text.split() if word.startswith("w") and word[1:].isdigit()
    }
    missing = sum(f"w{number:05d}" not in seen for number in range(tokens))
    terminal.close()
    half = len(parts) // 2
    first, last = statistics.mean(parts[:half]), statistics.mean(parts[-half:])
    shown = ", ".join(f"{part:.2f}" for part in parts)
    return [
        Row(
            f"CPU per token over a reply of {tokens:,}, ms by eighth",
            shown,
            "flat",
            last <= 1.5 * first,
        ),
        Row("words of it that cannot be found on the screen", str(missing), "0", missing == 0),
    ]


def idling(place: Place, server: Loopback, seconds: float) -> list[Row]:
    """Nothing happens; nothing should run."""
    id = write_session(place, 5000)
    terminal = start(place)
    wait_for(terminal, b"coordinator: ")
    drained(terminal, 1.0)
    terminal.keys(f"/resume {id}\r")
    wait_for(terminal, b"the end of")
    drained(terminal, 3.0)
    before = terminal.cpu()
    drained(terminal, seconds)
    share = 100 * (terminal.cpu() - before) / seconds
    terminal.close()
    return [Row(f"idle for {seconds:.0f} s, share of a core", f"{share:.2f} %", "1 %", share < 1)]


def report(rows: list[Row]) -> str:
    """The table."""
    signs = {True: "yes", False: "**no**", None: ""}
    lines = [
        "# The terminal interface",
        "",
        f"Measured by `tests/benchmarks/tui.py` with fugu {__version__}, Python "
        f"{platform.python_version()}, on "
        f"{os.cpu_count()} cores ({platform.machine()}),",
        f"load average {os.getloadavg()[0]:.1f} at the end. The real program in a "
        f"pseudo-terminal of "
        f"{SIZE[0]}x{SIZE[1]}, the model a server on the same machine.",
        "",
        "| what | measured | at most | holds |",
        "|---|---|---|---|",
        *(f"| {row.what} | {row.measured} | {row.bar} | {signs[row.holds]} |" for row in rows),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--idle", type=float, default=20.0)
    parser.add_argument("--presses", type=int, default=60)
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    os.environ["PYTEST_FUGU_EXEC"] = "1"  # a forked process would not show what starting costs
    rows: list[Row] = []
    with places() as (place, server):
        for part in (
            lambda: first_paint(place),
            lambda: loading(place, given.presses),
            lambda: typing(place, server, given.presses, given.entries),
            lambda: opening(place),
            lambda: streaming(place, server, given.tokens),
            lambda: idling(place, server, given.idle),
        ):
            rows += part()
            print(report(rows), file=sys.stderr)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    _, mark, kept = (
        given.out.read_text(encoding="utf-8").partition("\n## ")
        if given.out.exists()
        else ("", "", "")
    )
    given.out.write_text(report(rows) + mark + kept, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
