"""An open session as every front end drives it: requests and their queue, approvals, modes, and
what is remembered between sessions.

The terminal interface, inline mode, editors (ACP), the SDK protocol and the Python API stand above
this folder and do not import one another.
"""
