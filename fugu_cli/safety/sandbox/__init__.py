"""Confines commands: the mechanism of this system, what a command may reach, and the process that
holds it.

Start with access_rules.py (the rule), mechanisms.py, then command_sandbox.py. The launcher
(launcher.py, launcher_options.py, confinement.py) is a small process that imports nothing else of
fugu. git_access.py says which command lines may write the git folder.
"""
