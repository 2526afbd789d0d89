"""Hooks: commands of the user's own, run around agents' calls, requests and sessions, which may say no.

`declared.py` reads what the files name, `calls.py` says a call in the words of Claude Code, `output.py` reads what a
hook says, `running.py` runs them at the bench and in the session. Knows no configuration, no agent and no screen, and
keeps no state of a session: what a hook decides becomes a fact like any other.
"""
