"""The operating system: files written whole or not at all, temporary folders, processes and
signals.
"""
