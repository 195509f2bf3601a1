"""Commands about what holds for every session: keys, settings, servers, plugins, rules, checks.

Each file is a command, as in the folder above; ``checks`` is what ``doctor`` looks at.
"""
