"""Evaluation: how many tasks are solved, by whom, at what cost, and how sure that is. Start with
`rollout.py` (one session on one task), then `runner.py` (all of them), `summary.py` and
`report.py`.

`paid_calls.py` keeps the calls that were paid for, `results_folder.py` what was measured. No
session needs them.
"""
