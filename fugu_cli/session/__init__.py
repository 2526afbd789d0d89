"""The log and everything that is read from it.

`events` are what happened, `log` holds them, `state` says what follows from them; `store` finds,
resumes, forks sessions.
"""
