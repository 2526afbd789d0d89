"""Limits how often a refused key is tried by calls that no agent makes, such as web_search. Agents
with the same key share the cooldown.
"""

from __future__ import annotations

from fugu_cli.providers.circuit_breaker import AgentKey, CircuitBreaker, RefusedKeys
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.error_mapping import error_of_status


class KeyGate:
    """Asked before every call with the key of `endpoint`, and told how the server answered."""

    def __init__(self, endpoint: ModelEndpoint, refused_keys: RefusedKeys) -> None:
        self._endpoint = endpoint
        key: AgentKey = (endpoint.base_url, endpoint.key, endpoint.model)
        self._breaker = CircuitBreaker(keys={endpoint.name: key}, refused_keys=refused_keys)

    def begin(self) -> float:
        """Return the time. Raises AgentError while the key was refused and must not be tried."""
        return self._breaker.begin_call(self._endpoint.name)

    def answered(self, began: float, status: int, message: str) -> None:
        """Note the status and the message of the answer to the call that began then."""
        name = self._endpoint.name
        if status < 300:
            self._breaker.succeeded(name, began)
        else:
            kind = error_of_status(self._endpoint, status, message).kind
            self._breaker.failed(name, kind, began=began)

    def cut(self, began: float) -> None:
        """Note that the call ended without an answer."""
        self._breaker.cut(self._endpoint.name, began)
