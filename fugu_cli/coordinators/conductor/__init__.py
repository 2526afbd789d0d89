"""The Conductor (arXiv 2512.04388): a planner writes a whole workflow, and the engine runs it step by step.

`parse.py` reads the planner's three lists, `prompt.py` asks for them, `conductor.py` is the coordinator that
follows the workflow the log holds, `seen.py` says what a step may read, `memory.py` what earlier workflows found
out. Below the loop and above the coordinators; knows no provider and runs no tool.
"""
