"""Every kind of failure after every other kind makes few calls, wherever it is asked for."""

import pytest

from tests.acceptance import failing
from tests.acceptance.driving import Place
from tests.acceptance.failing import KINDS, NO_SERVER, REFUSED, TRIES, Pair
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


@pytest.mark.parametrize("tools", [True, False])
def test_in_serve(place: Place, server: Loopback, tools: bool) -> None:
    failing.hasty(place)
    pairs = failing.in_serve(place, server, tools)
    others = [kind for kind in KINDS if kind not in REFUSED]
    check(pairs, others)
    refused = [pair for pair in pairs if pair.first in REFUSED or pair.second in REFUSED]
    assert {pair.calls for pair in refused} == {0}
    assert all(pair.end.startswith("503, after ") for pair in refused)
    assert all(pair.calls >= 1 for pair in pairs if pair not in refused)


def test_in_an_editor(place: Place, server: Loopback) -> None:
    pytest.importorskip("acp")
    failing.hasty(place)
    pairs = failing.in_acp(place, server)
    check(pairs, [kind for kind in KINDS if kind not in REFUSED])
    refused = [pair for pair in pairs if pair.first in REFUSED or pair.second in REFUSED]
    assert {pair.calls for pair in refused} == {0}


def test_in_the_interface(place: Place, server: Loopback) -> None:
    failing.hasty(place)
    pairs = failing.in_interface(place, server)
    check(pairs, [kind for kind in KINDS if kind not in REFUSED])
    assert all(pair.calls >= 1 for pair in pairs if pair.first in REFUSED)
