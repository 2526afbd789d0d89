"""Evaluation: how many tasks are solved, by whom, at what cost, and how sure that is. Start with `rollout.py` (one
session on one task), then `runner.py` (all of them), `summary.py` and `report.py`.

`one_pass.py` measures an agent alone with one answer, `loop.py` a coordinator with a pool in the engine's own loop,
`rows.py` keeps what was measured, `report.py` makes tables of it. Nothing here is needed to run a session.
"""
