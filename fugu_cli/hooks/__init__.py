"""Hooks: commands of the user's own, run around agents' calls and requests, which may say no.

`declared.py` reads what the hooks files name, `running.py` runs them at the bench and in the session. Knows no
configuration, no agent and no screen, and keeps no state: what a hook decides becomes a fact like any other.
"""
