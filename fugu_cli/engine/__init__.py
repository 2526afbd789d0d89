"""The loop and its parts: what an open turn needs next, what its agent reads, how a call is judged
and run. Read orchestrator.py and harness.py first.

Under orchestrator.py, which drives a request with them; above coordinators, agents and tools.
`harness.py` first.
"""
