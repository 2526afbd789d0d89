"""The real `fugu` in a pseudo-terminal: /undo asks which changes are the user's own."""

from __future__ import annotations

from collections.abc import Callable

from tests.acceptance.driving import Place
from tests.acceptance.loopback import Loopback, Says, Use
from tests.unit.ui.tui.conftest import ready
from tests.unit.ui.tui.terminal import Terminal

WAITS = "touch begun; python3 -c 'import time; time.sleep(2)'"


def test_what_is_unticked_stays_and_the_rest_is_put_back(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    original = (place.repo / "calc.txt").read_text()
    server.play(
        "m", Says("", (Use("bash", {"command": WAITS}),)), Says("I waited."), Says("ACCEPT")
    )
    terminal = ready(fugu("--permission-mode", "auto"))
    terminal.keys("wait\r")
    terminal.until(lambda _: (place.repo / "begun").exists())
    (place.repo / "calc.txt").write_text("by hand\n")
    (place.repo / "mine.txt").write_text("by hand\n")
    terminal.sees(
        "no other agent is left: it verifies its own work", "✓ accepted by its own author m"
    )
    terminal.keys("/undo\r")
    terminal.sees("y yes")
    terminal.keys("y")
    terminal.sees("Untick what is yours", "[x] calc.txt", "[x] mine.txt")
    terminal.keys("mine")
    terminal.until(lambda screen: "calc.txt" not in screen)
    terminal.keys("\r")
    terminal.sees("[ ] mine.txt", "[x] calc.txt", "put back the ticked files")
    terminal.keys("\r")
    terminal.until(lambda _: (place.repo / "calc.txt").read_text() == original)
    terminal.sees("put back")
    assert (place.repo / "mine.txt").read_text() == "by hand\n"
    assert not (place.repo / "begun").exists()
