"""Test runners: found in a project, recognised in a command, and their reports read."""
