"""How commands are confined: which means the system has, what a command may reach, and the process that holds it there.

Start with places.py (the rule), then means.py (what holds here). launch.py, confine.py, spaces.py and kernel.py are the
launcher: a small process that imports nothing else of fugu.
"""
