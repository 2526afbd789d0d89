"""Skills and custom commands: texts of the user's or a repository's own that tell agents how to do something.

A skill is a folder with SKILL.md (the open Agent Skills format), told to agents by its name and description and read
when one of them asks for it. A custom command is a request written once, sent with `/NAME`. `loading.py` finds both,
`asking.py` makes a typed line into the request it stands for. Knows no configuration, no agent and no screen; who says
what is trusted is config/trust_store.py.
"""
