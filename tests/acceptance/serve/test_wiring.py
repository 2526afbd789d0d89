"""What `fugu serve` is built of."""

from pathlib import Path

from fugu_cli import server_wiring
from fugu_cli.config import Config
from fugu_cli.config.loader import LoadedConfig
from tests.acceptance.test_own_outcomes import session_of


def test_served_requests_are_decided_by_the_outcomes_of_sessions(tmp_path: Path) -> None:
    entry = {
        "name": "first",
        "provider": "openai",
        "model": "first",
        "base_url": "http://127.0.0.1:1/v1",
        "price": {"input": 1.0, "output": 2.0},
    }
    values = {"agents": [entry], "coordinator": "trinity", "data_dir": tmp_path / "data"}
    config = Config.model_validate(values)
    loaded = LoadedConfig(config, files=(), notes=(), root=tmp_path, trusted=False)
    session_of(config.data, tmp_path, "first", ok=True)
    settings = server_wiring.build_server(loaded, {"OPENAI_API_KEY": "k"}, tmp_path)
    assert settings.known_outcomes is not None
    assert [count.successes for count in settings.known_outcomes().counts] == [1.0]
