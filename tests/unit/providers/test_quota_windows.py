"""Plans that are used up are known to every process, and to none for more than a day."""

from pathlib import Path

import pytest

from fugu_cli.providers.circuit_breaker import CircuitBreaker
from fugu_cli.providers.quota_windows import QuotaFile

HOUR, DAY = 3600.0, 24 * 3600.0
KEYS = {"a": ("https://a.example", "secret-key", "m"), "b": ("https://b.example", "key", "m")}


class Clocks:
    """The monotonic clock, and the one that somebody may set."""

    def __init__(self) -> None:
        self.monotonic, self.wall = 1000.0, 1_793_534_400.0

    def advance(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds

    def process(self, data: Path) -> CircuitBreaker:
        """The breaker of a process that starts now."""
        started = self.monotonic - 7.0
        return CircuitBreaker(
            now=lambda: self.monotonic - started,
            keys=KEYS,
            quotas=QuotaFile(data, lambda: self.wall),
        )


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def test_another_process_knows_a_window_and_takes_it_back_when_the_agent_answers(
    clocks: Clocks, tmp_path: Path
) -> None:
    first, running = clocks.process(tmp_path), clocks.process(tmp_path)
    assert running.unavailable() == {}
    first.failed("a", "limited", 5 * HOUR)
    later = clocks.process(tmp_path)
    for breaker in (first, running, later):
        assert list(breaker.unavailable()) == ["a"]
        assert breaker.seconds("a") == pytest.approx(5 * HOUR)
    assert "secret-key" not in (tmp_path / "quotas.json").read_text()
    later.try_early("a")
    assert later.unavailable() == {} and list(running.unavailable()) == ["a"]
    later.succeeded("a")
    assert running.unavailable() == {} and first.unavailable() == {}


def test_an_agent_comes_back_by_itself_when_its_window_is_over(
    clocks: Clocks, tmp_path: Path
) -> None:
    clocks.process(tmp_path).failed("a", "limited", 5 * HOUR)
    clocks.advance(5 * HOUR - 60)
    assert list(clocks.process(tmp_path).unavailable()) == ["a"]
    clocks.advance(61)
    assert clocks.process(tmp_path).unavailable() == {}


@pytest.mark.parametrize("wrong", [30 * DAY, 1e12])
def test_no_server_locks_an_agent_out_for_more_than_a_day(
    clocks: Clocks, tmp_path: Path, wrong: float
) -> None:
    breaker = clocks.process(tmp_path)
    breaker.failed("a", "credit", wrong)
    assert breaker.seconds("a") <= DAY
    clocks.advance(DAY + 1)
    assert clocks.process(tmp_path).unavailable() == {} == breaker.unavailable()


def test_a_clock_that_was_set_back_locks_nobody_out(clocks: Clocks, tmp_path: Path) -> None:
    clocks.process(tmp_path).failed("a", "limited", 5 * HOUR)
    clocks.wall -= 30 * DAY
    assert clocks.process(tmp_path).unavailable() == {}


@pytest.mark.parametrize("content", ["", "[]", '{"x": {"until": "soon"}}', '{"x": 1}'])
def test_a_damaged_file_is_written_anew(clocks: Clocks, tmp_path: Path, content: str) -> None:
    (tmp_path / "quotas.json").write_text(content)
    breaker = clocks.process(tmp_path)
    assert breaker.unavailable() == {}
    breaker.failed("b", "limited", HOUR)
    assert list(clocks.process(tmp_path).unavailable()) == ["b"]


def test_where_the_file_cannot_be_written_the_process_itself_still_waits(
    clocks: Clocks, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("a file in the place of the folder")
    breaker = clocks.process(tmp_path / "data")
    breaker.failed("a", "limited", 5 * HOUR)
    assert list(breaker.unavailable()) == ["a"]


def test_while_the_file_cannot_be_read_what_it_held_counts(clocks: Clocks, tmp_path: Path) -> None:
    file = tmp_path / "quotas.json"
    breaker = clocks.process(tmp_path)
    breaker.failed("a", "limited", 5 * HOUR)
    assert list(breaker.unavailable()) == ["a"]
    content = file.read_bytes()
    file.unlink()
    file.mkdir()
    assert list(breaker.unavailable()) == ["a"]
    breaker.failed("b", "limited", HOUR)
    file.rmdir()
    file.write_bytes(content)
    assert list(clocks.process(tmp_path).unavailable()) == ["a"]


def test_without_a_time_the_waits_grow_over_processes(clocks: Clocks, tmp_path: Path) -> None:
    waits = []
    for _ in range(6):
        breaker = clocks.process(tmp_path)
        breaker.unavailable()
        breaker.failed("a", "credit")
        waits.append(round(breaker.seconds("a")))
        clocks.advance(waits[-1] + 1)
    assert waits == [300, 600, 1200, 2400, 3600, 3600]


def test_a_short_limit_is_no_window(clocks: Clocks, tmp_path: Path) -> None:
    clocks.process(tmp_path).failed("a", "limited", 20.0)
    assert not (tmp_path / "quotas.json").exists()
