"""The recorder: a run whose model is answered from files, on the three wires."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.driving import Place
from tests.acceptance.loopback import KEY, Use
from tests.recorder import parse_reply

ROOT = Path(__file__).parent.parent.parent


def test_a_reply_is_text_then_calls_whose_arguments_may_go_on_over_lines() -> None:
    reply = parse_reply('I look.\nCALL read {"path": "a",\n "limit": 3}\nCALL list {}\n')
    assert reply.text == "I look."
    assert reply.calls == (Use("read", {"path": "a", "limit": 3}), Use("list", {}))
    assert parse_reply("half a\nCUT").cut


@pytest.mark.parametrize("agent", ["cheap", "middle", "strong"])
def test_each_wires_requests_are_shown_with_what_is_not_cached(place: Place, agent: str) -> None:
    folder = place.folder / "record"
    folder.mkdir()
    (folder / "001.reply").write_text('I look.\nCALL read {"path": "calc.txt"}\n')
    (folder / "002.reply").write_text("It is broken.\n")
    with subprocess.Popen(
        [sys.executable, "-m", "tests.recorder", str(folder)], cwd=ROOT
    ) as server:
        try:
            home = folder / "home"
            end = time.monotonic() + 60
            while not (home / ".fugurc").exists() and time.monotonic() < end:
                time.sleep(0.05)
            place.variables |= {"HOME": str(home), "RECORDER_KEY": KEY}
            done = place.fugu("run", "--model", agent, "what is in calc.txt?")
        finally:
            server.terminate()
    assert (done.code, done.out) == (0, "It is broken.\n"), done.err
    first, second = (folder / f"00{number}-{agent}.txt" for number in (1, 2))
    assert "[The session when this request came:]" in first.read_text()
    lines = second.read_text().splitlines()
    whole, uncached = (int(word.replace(",", "")) for word in lines[1].split() if word[0].isdigit())
    assert uncached < 100 < whole
    assert "1\tbroken" in second.read_text()
