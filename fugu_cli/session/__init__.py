"""The log and everything that is read from it.

`events` are the facts, `log` holds them, `views` answers questions about them; `store` finds,
resumes, forks sessions.
"""
