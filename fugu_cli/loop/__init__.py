"""The parts of the loop: what an open turn needs next, what its agent reads, how a call is judged and run.

Under orchestrator.py, which drives a request with them; above coordinators, agents and tools. `harness.py` first.
"""
