"""The traces of served requests on the disk."""

from __future__ import annotations

from pathlib import Path

from fugu_cli.safety.redaction import Redactor
from fugu_cli.server.traces import Traces, new_id
from fugu_cli.session.events import Asked

KEY = "v3ry-s3cret-value"


def test_a_trace_holds_no_secret(tmp_path: Path) -> None:
    traces, id = Traces(tmp_path, lambda: Redactor({"OUR_API_KEY": KEY})), new_id()
    traces.open(id).append(Asked(text=f"why does {KEY} not work?"))
    live = traces.read(id)
    traces.finish(id)
    traces.close()
    (path,) = tmp_path.rglob("*.jsonl")
    assert KEY not in str(live) and KEY not in path.read_text()
    assert "why does [secret " in path.read_text()
