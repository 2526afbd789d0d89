"""The embedded models: which there are (manifest), where the bytes come from (sources, store), how
they run (server).

Default file: `store.py`. Nothing in here knows about agents, logs or the coordinator; importing it
does nothing.
"""
