"""Failures after failures make few calls: every kind after every other in runs, one kind of each way
of failing in served requests, an editor and the interface.
"""

from collections.abc import Callable

import pytest

from tests.acceptance import failing
from tests.acceptance.driving import Place
from tests.acceptance.failing import KINDS, NO_SERVER, REFUSED, TRIES, WAYS, Pair
from tests.acceptance.loopback import Loopback


def expected(kinds: list[str]) -> set[tuple[str, str]]:
    return {(first, second) for first in kinds for second in kinds if first != second}


def check(pairs: list[Pair], kinds: list[str]) -> None:
    """Every pair was driven, and no failure made more calls than a turn has tries."""
    assert {(pair.first, pair.second) for pair in pairs} >= expected(kinds)
    assert [pair for pair in pairs if pair.calls > TRIES] == []


def test_in_runs(place: Place, server: Loopback) -> None:
    failing.hasty(place)
    pairs = failing.in_runs(place, server)
    check(pairs, [kind for kind in [*KINDS, NO_SERVER] if kind != "reset"])
    assert {pair.calls for pair in pairs if pair.second in REFUSED} == {1}


def check_refused(pairs: list[Pair]) -> None:
    """A key is refused once, and not asked again behind that, whatever asks."""
    assert {pair.calls for pair in pairs if pair.first in REFUSED} == {0}
    assert {pair.calls for pair in pairs if pair.first not in REFUSED} <= {1, TRIES}
    assert {
        pair.calls for pair in pairs if pair.second in REFUSED and pair.first not in REFUSED
    } == {1}


@pytest.mark.parametrize("drive", [failing.in_serve, failing.in_serve_with_tools])
def test_in_serve(
    place: Place, server: Loopback, drive: Callable[[Place, Loopback], list[Pair]]
) -> None:
    failing.hasty(place)
    pairs = drive(place, server)
    check(pairs, [*WAYS])
    check_refused(pairs)
    assert all(pair.end.startswith("503, after ") for pair in pairs if pair.first in REFUSED)


def test_in_an_editor(place: Place, server: Loopback) -> None:
    pytest.importorskip("acp")
    failing.hasty(place)
    pairs = failing.in_acp(place, server)
    check(pairs, [*WAYS])
    check_refused(pairs)


def test_in_the_interface(place: Place, server: Loopback) -> None:
    failing.hasty(place)
    pairs = failing.in_interface(place, server)
    check(pairs, [*WAYS])
    assert [pair for pair in pairs if not pair.calls] == [], "`/retry NAME` asks a refused key"
