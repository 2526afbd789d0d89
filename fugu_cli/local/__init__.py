"""Small models on this machine: which there are (manifest), where the bytes come from (sources,
store), how they run (server, server_lease), and the agent that they are (embedded_agent).

Read `store.py` first. Importing this folder does nothing.
"""
