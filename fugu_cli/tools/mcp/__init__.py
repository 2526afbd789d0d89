"""MCP servers: programs of the user's own that offer tools to agents, over the Model Context Protocol.

`declared.py` reads what `.mcp.json` names, `servers.py` keeps them running for a session, `connection.py` is one of
them, `pipes.py` its process, `offering.py` its tools as fugu's. The SDK (the extra `mcp`) is imported when the first
server is started, in a thread, and nowhere else. Knows no log, no agent and no permission.
"""
