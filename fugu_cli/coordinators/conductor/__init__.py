"""The Conductor (arXiv 2512.04388): a planner writes a whole workflow, and the engine runs it step
by step.

`planner.py` asks for the workflow and reads its three lists, `conductor.py` is the coordinator that
follows the workflow the log holds, `scheduling.py` says which step may run, `step_context.py` what
it may read. Below the loop and above the coordinators; knows no provider and runs no tool.
"""
