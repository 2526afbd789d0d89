"""How commands are confined: which means the system has, what a command may reach, and the process that holds it there.

Start with places.py (the rule), then means.py (what holds here), then gitlines.py (which command lines may write the
git folder). launch.py, options.py, confine.py, spaces.py and kernel.py are the launcher: a small process that imports
nothing else of fugu.
"""
