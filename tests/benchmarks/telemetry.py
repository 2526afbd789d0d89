"""What telemetry adds to a turn: a long session's facts are written, without and with a collector
that reads along.

    python tests/benchmarks/telemetry.py [--events 1000] [--repeat 15]

The log lies in a file, as in a session; the collector throws away what it gets. Both ways are timed
one after the other, in CPU time, sending included. Writes results/telemetry.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from fugu_cli.extensions.telemetry import CollectorLink, Telemetry
from fugu_cli.session.events import Assigned, Event
from fugu_cli.session.log import Log
from tests.benchmarks.overhead import session

LIMIT = 2.0
"""What a turn's facts may take with a collector, as a multiple of what they take without: writing
them twice.
"""
SINK = """
import http.server
class Sink(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *said): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
print(server.server_port, flush=True)
server.serve_forever()
"""


def turns_of(events: list[Event]) -> int:
    """Of all requests."""
    return sum(isinstance(event, Assigned) for event in events)


async def written(events: list[Event], collector: str) -> tuple[float, float]:
    """Milliseconds of CPU per turn: of the session's own thread, and of all with what is sent at
    the end.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Log.create(Path(folder) / "session.jsonl")
        told = CollectorLink({"OTEL_EXPORTER_OTLP_ENDPOINT": collector}) if collector else None
        if told is not None:
            Telemetry(log, told, "session")
        own, every = time.thread_time(), time.process_time()
        for event in events:
            log.append(event)
        log.close()
        own = time.thread_time() - own
        if told is not None:
            await told.finish()
            assert told.notes == (), told.notes
        each = 1000 / turns_of(events)
        return own * each, (time.process_time() - every) * each


def main() -> int:
    """Measures and writes; 1 when the limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=15)
    given = parser.parse_args()
    events = session(given.events)
    with subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        url = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = (
            f"http://127.0.0.1:{sink.stdout.readline().strip()}"
        )
        try:
            pairs = [
                (asyncio.run(written(events, "")), asyncio.run(written(events, url)))
                for _ in range(given.repeat + 1)
            ][1:]
        finally:
            sink.kill()
    rows, ratios = [], []
    for place, name in ((0, "the session's thread"), (1, "all threads")):
        plain, told = (statistics.median(pair[way][place] for pair in pairs) for way in (0, 1))
        added = [two[place] - one[place] for one, two in pairs]
        ratios.append(statistics.median(two[place] / one[place] for one, two in pairs))
        cells = f"{statistics.median(added):.2f} ({min(added):.2f}) | {ratios[-1]:.1f}"
        rows.append(f"| {name} | {plain:.2f} | {told:.2f} | {cells} |")
    text = f"""# What telemetry adds to a turn

`python tests/benchmarks/telemetry.py --events {given.events} --repeat {given.repeat}` on {platform.machine()}, \
{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}.

The {len(events)} facts of a session of {turns_of(events)} turns are written to its log, without and with a \
collector that reads along.
Milliseconds of CPU per turn, medians of {len(pairs)} pairs (and the lowest); the SDK sends from threads of its own.

| where | without | with | added | ratio |
|---|---|---|---|---|
{chr(10).join(rows)}

The limit is a ratio of {LIMIT:g} on the session's thread. Milliseconds depend on what else runs: on an idle machine
a turn of fugu's own takes 5.6 ms of CPU (overhead.md).
"""
    (Path(__file__).parent / "results" / "telemetry.md").write_text(text)
    print(text)
    return int(ratios[0] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
