"""The traces of served requests on the disk."""

from __future__ import annotations

from pathlib import Path

from fugu_cli.events import Asked
from fugu_cli.masking import Mask
from fugu_cli.serve.traces import Traces, new_id

KEY = "v3ry-s3cret-value"


def test_a_trace_holds_no_secret(tmp_path: Path) -> None:
    traces, id = Traces(tmp_path, Mask({"OUR_API_KEY": KEY})), new_id()
    traces.open(id).append(Asked(text=f"why does {KEY} not work?"))
    live = traces.read(id)
    traces.finish(id)
    traces.close()
    (path,) = tmp_path.rglob("*.jsonl")
    assert KEY not in str(live) and KEY not in path.read_text()
    assert "why does [secret " in path.read_text()
