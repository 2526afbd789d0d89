"""Training the coordinator (arXiv 2512.04695): from what agents achieved to a checkpoint.

Stage 1 is `sft.py`, the warm start: a pass matrix (`pass_matrix.py`) gives soft targets,
transcripts are rendered exactly as the coordinator reads them, and the head is fitted to the hidden
states behind them (`fitting.py`). Stage 2 is `evolution.py`: candidates of sep-CMA-ES (`search.py`)
are judged in real sessions. Both end with a comparison with what decides without a checkpoint
(`default_comparison.py`). `kinds.py` fits the kind head, `grpo.py` trains the Conductor.
"""
