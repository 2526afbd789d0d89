"""`fugu acp`: fugu as an agent in an editor, over the Agent Client Protocol.

`agent.py` answers the editor's requests; `client_session.py` is one of its sessions, over
ui/tui/request_queue.py like the terminal's; `updates.py` turns the log into what the editor shows;
`frames.py` is the wire. Needs the SDK (extra `acp`), so only cli/acp.py imports what is in this
folder. Importing this module imports nothing.
"""
