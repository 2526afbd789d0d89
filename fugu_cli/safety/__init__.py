"""The guards of a call: policy, sandbox, redaction, path rules and the permissions the user gave
before.
"""
