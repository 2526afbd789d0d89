"""Training the coordinator (arXiv 2512.04695): from what agents achieved to a checkpoint. Stage 1 is `sft.py`, stage
2 `evolution.py`; `replay.py` judges candidates on recorded outcomes, `mixture.py` makes the checkpoint that ships.

`sft.py` is stage 1, the warm start: a pass matrix gives soft targets, transcripts are rendered exactly as the
coordinator reads them, and the head is fitted to the hidden states behind them. `evolve.py` is stage 2: candidates of
`optimise.py` (sep-CMA-ES) decide as `candidates.py` and are judged in a trial. `replay.py` is a trial on recorded
outcomes, told by `replay_sessions.py`; `study.py` learns and judges across repositories what `signals.py` plans over
the chances of `latent.py`; `mixture.py` makes the checkpoint over slots that ships. `personal.py` learns from the
user's own sessions, `conductor.py` trains the Conductor.
"""
