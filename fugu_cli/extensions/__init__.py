"""Extensions: what a user or a repository adds to fugu. Hooks, MCP servers, skills, custom commands
and subagents.

Hooks are the user's own commands, run around agents' calls, requests and sessions; they may refuse.
MCP servers are programs that offer tools to agents; the SDK is imported when the first server is
started, in a thread. A skill is a folder with SKILL.md, offered to agents by name and description.
A custom command is a request written once, sent with `/NAME`. The `_settings` modules read files
and run nothing. Knows no log and no screen: what a hook decides becomes an event like any other.
"""
