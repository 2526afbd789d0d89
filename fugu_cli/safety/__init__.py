"""What must not happen: policy, sandbox, redaction, path rules and what the user has permitted
before.
"""
