"""`fugu acp`: fugu as an agent in an editor, over the Agent Client Protocol.

`agent.py` answers the editor's requests; `client_session.py` is one of its sessions, driven by
app/request_queue.py like the terminal's; `updates.py` turns the log into updates for the editor.
It needs the SDK (extra `acp`), so only cli/acp.py imports this folder.
Importing this module imports nothing.
"""
