"""A host that cannot be reached fails all its agents: none of the others is called to learn it."""

from fugu_cli.providers.circuit_breaker import CircuitBreaker


def test_a_host_that_is_down_fails_all_its_agents_and_no_others() -> None:
    breaker = CircuitBreaker(hosts={"a": "one.example", "b": "one.example", "c": "two.example"})
    breaker.failed("a", "network", unreachable="one.example (its name is not found)")
    assert set(breaker.unavailable()) == {"a", "b"}
    assert breaker.tried_longest_ago(["a", "b"]) is None
    breaker.failed("c", "network")
    assert breaker.tried_longest_ago(["a", "b", "c"]) == "c"
