"""Tools: one file per tool or family, each named once more in wiring.

A tool gets its arguments and the workspace, nothing else: no log, no agent, no permission. What it
may do was decided before it runs (safety judges, the engine asks).
"""
